/* HTTP for probes and metrics; see http.h. http_start and http_stop run in the owner's thread, all else in the server's. */
#include "common/http.h"

#include "common/clock.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TICK_MS = 100,      /* how late a deadline or http_stop may be noticed */
    IDLE_SECONDS = 5,   /* a connection that says nothing at all */
    HOST_SIZE = 64,
    PORT_SIZE = 6,
};

static const char text_plain[] = "text/plain; charset=utf-8";

/* A connection and when it has to be gone. Slots are used by the server's thread only. */
struct slot {
    int file; /* -1 = free */
    int64_t deadline_us;
};

struct http_server {
    struct MHD_Daemon *daemon;
    struct http_route *routes;
    size_t route_count;
    uint16_t port;
    struct slot slots[HTTP_CONNECTIONS_MAX];
    atomic_bool is_stopping;
    pthread_t thread;
};

/* ---- the address ------------------------------------------------------------------------------------------- */

static bool split_address(const char *address, char host[static HOST_SIZE], char port[static PORT_SIZE]) {
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon == address || strlen(colon + 1) >= PORT_SIZE || colon[1] == '\0' ||
        colon[1 + strspn(colon + 1, "0123456789")] != '\0' || atoi(colon + 1) > UINT16_MAX)
        return false;
    size_t length = (size_t)(colon - address);
    bool has_brackets = address[0] == '[' && length > 2 && colon[-1] == ']';
    const char *start = has_brackets ? address + 1 : address;
    length -= has_brackets ? 2 : 0;
    if (length >= HOST_SIZE || (!has_brackets && memchr(start, ':', length) != NULL))
        return false;
    memcpy(host, start, length);
    host[length] = '\0';
    strcpy(port, colon + 1);
    if (strcmp(host, "localhost") == 0)
        strcpy(host, "127.0.0.1");
    if (strcmp(host, "*") == 0)
        strcpy(host, "::");
    return true;
}

static bool parse_address(const char *address, struct addrinfo **ret_info, struct error *error) {
    char host[HOST_SIZE], port[PORT_SIZE];
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    if (!split_address(address, host, port) || getaddrinfo(host, port, &hints, ret_info) != 0)
        return error_set(error, ERROR_FATAL, "http_address",
                         "\"%s\" is not host:port with a numeric address, localhost or *", address);
    return true;
}

bool http_address_check(const char *address, struct error *error) {
    struct addrinfo *info;
    if (!parse_address(address, &info, error))
        return false;
    freeaddrinfo(info);
    return true;
}

static bool listen_on(const char *address, int *ret_file, struct error *error) {
    struct addrinfo *info;
    if (!parse_address(address, &info, error))
        return false;
    int yes = 1;
    int file = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool is_listening = file >= 0 && setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                        bind(file, info->ai_addr, info->ai_addrlen) == 0 && listen(file, HTTP_BACKLOG) == 0;
    int reason = errno;
    freeaddrinfo(info);
    if (is_listening) {
        *ret_file = file;
        return true;
    }
    if (file >= 0)
        close(file);
    return error_set(error, ERROR_FATAL, "http_listen", "cannot listen on %s: %s", address, strerror(reason));
}

static uint16_t port_of(int file) {
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    char port[PORT_SIZE] = "0";
    if (getsockname(file, (struct sockaddr *)&name, &size) == 0)
        getnameinfo((struct sockaddr *)&name, size, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    return (uint16_t)atoi(port);
}

/* ---- connections and their deadlines ----------------------------------------------------------------------- */

static void note_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                            enum MHD_ConnectionNotificationCode what) {
    struct http_server *server = context;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        struct slot *slot = *socket_context;
        if (slot != NULL)
            slot->file = -1;
        return;
    }
    *socket_context = NULL;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    for (size_t i = 0; i < HTTP_CONNECTIONS_MAX && info != NULL; i++) {
        if (server->slots[i].file >= 0)
            continue;
        server->slots[i] =
            (struct slot){.file = info->connect_fd, .deadline_us = clock_monotonic_us() + HTTP_DEADLINE_MS * 1000};
        *socket_context = &server->slots[i];
        return;
    }
}

/* The library's own timeout starts again with every byte; ours does not. It sees the shutdown as the peer's end. */
static void end_overdue(struct http_server *server) {
    int64_t now_us = clock_monotonic_us();
    for (size_t i = 0; i < HTTP_CONNECTIONS_MAX; i++)
        if (server->slots[i].file >= 0 && now_us >= server->slots[i].deadline_us)
            shutdown(server->slots[i].file, SHUT_RDWR);
}

static void *serve(void *context) {
    struct http_server *server = context;
    pthread_setname_np(pthread_self(), "http");
    while (!atomic_load(&server->is_stopping)) {
        if (MHD_run_wait(server->daemon, TICK_MS) != MHD_YES)
            usleep(TICK_MS * 1000); /* out of descriptors or memory: come back, do not spin */
        end_overdue(server);
    }
    return NULL;
}

/* ---- requests ---------------------------------------------------------------------------------------------- */

static enum MHD_Result send_reply(struct MHD_Connection *connection, struct http_reply *reply) {
    size_t size;
    char *body = buf_take(&reply->body, &size);
    struct MHD_Response *response = MHD_create_response_from_buffer(size, body, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(body);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", reply->content_type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Connection", "close");
    if (reply->status == 405)
        MHD_add_response_header(response, "Allow", "GET");
    enum MHD_Result result = MHD_queue_response(connection, reply->status, response);
    MHD_destroy_response(response);
    return result;
}

static bool has_body(struct MHD_Connection *connection) {
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    return (length != NULL && strcmp(length, "0") != 0) ||
           MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Transfer-Encoding") != NULL;
}

static const struct http_route *find_route(const struct http_server *server, const char *path) {
    for (size_t i = 0; i < server->route_count; i++)
        if (strcmp(server->routes[i].path, path) == 0)
            return &server->routes[i];
    return NULL;
}

static void refuse(struct http_reply *reply, unsigned status, const char *why) {
    reply->status = status;
    buf_append_text(&reply->body, why);
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *upload_data, size_t *upload_size, void **request_context) {
    (void)version;
    (void)upload_data;
    (void)upload_size;
    (void)request_context;
    struct http_server *server = context;
    struct http_reply reply = {.status = 200, .content_type = text_plain};
    const struct http_route *route = find_route(server, url);
    if (strcmp(method, "GET") != 0)
        refuse(&reply, 405, "only GET\n");
    else if (has_body(connection))
        refuse(&reply, 400, "no body here\n");
    else if (route == NULL)
        refuse(&reply, 404, "no such page\n");
    else
        route->handle(route->context, &reply);
    return send_reply(connection, &reply);
}

/* ---- start and stop ---------------------------------------------------------------------------------------- */

static struct MHD_Daemon *start_daemon(struct http_server *server, int listening) {
    return MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, answer, server,
                            MHD_OPTION_LISTEN_SOCKET, listening,
                            MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CONNECTIONS_MAX,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_HEADER_BYTES_MAX,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
                            MHD_OPTION_NOTIFY_CONNECTION, note_connection, server,
                            MHD_OPTION_END);
}

/* The server's thread takes no signals: they are main's. */
static int start_thread(struct http_server *server) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&server->thread, NULL, serve, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

static void free_server(struct http_server *server) {
    if (server->daemon != NULL)
        MHD_stop_daemon(server->daemon);
    free(server->routes);
    free(server);
}

bool http_start(const char *address, const struct http_route *routes, size_t route_count, struct http_server **ret_server,
                struct error *error) {
    int listening = -1;
    if (!listen_on(address, &listening, error))
        return false;
    struct http_server *server = memory_alloc(sizeof *server);
    for (size_t i = 0; i < HTTP_CONNECTIONS_MAX; i++)
        server->slots[i].file = -1;
    server->routes = memory_alloc_array(route_count, sizeof *routes);
    if (route_count > 0)
        memcpy(server->routes, routes, route_count * sizeof *routes);
    server->route_count = route_count;
    server->port = port_of(listening);
    server->daemon = start_daemon(server, listening);
    if (server->daemon == NULL)
        close(listening);
    if (server->daemon == NULL || start_thread(server) != 0) {
        free_server(server);
        return error_set(error, ERROR_FATAL, "http_start", "the HTTP server on %s cannot start", address);
    }
    *ret_server = server;
    return true;
}

uint16_t http_port(const struct http_server *server) {
    return server->port;
}

void http_stop(struct http_server *server) {
    if (server == NULL)
        return;
    atomic_store(&server->is_stopping, true);
    pthread_join(server->thread, NULL);
    free_server(server);
}
