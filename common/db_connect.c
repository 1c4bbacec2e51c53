/* Opening a connection: one host after the other, each with its share of the time; see db.h. */
#include "common/db_private.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

struct conninfo_override {
    char host[256], hostaddr[64], port[16];
};

static bool wait_connected(PGconn *connection, int64_t deadline, struct error *error) {
    PostgresPollingStatusType state = PGRES_POLLING_WRITING;
    while (state != PGRES_POLLING_OK) {
        struct pollfd slot = { .fd = PQsocket(connection), .events = state == PGRES_POLLING_READING ? POLLIN : POLLOUT };
        int ready = slot.fd < 0 ? -1 : poll(&slot, 1, db_ms_until(deadline));
        if (ready == 0)
            return error_set(error, ERROR_RETRY, "db_deadline", "connect: no answer in time");
        if (ready < 0 && (slot.fd < 0 || errno != EINTR))
            return error_set(error, ERROR_RETRY, "db_lost", "connect: no socket");
        if (ready > 0)
            state = PQconnectPoll(connection);
        if (state == PGRES_POLLING_FAILED) {
            char line[300];
            db_first_line(PQerrorMessage(connection), line, sizeof line);
            /* libpq does not tell which; a name that does not match it tells by itself */
            bool is_certificate = strstr(line, "certificate verify failed") != NULL;
            return error_set(error, ERROR_RETRY, "db_lost", "connect: %s%s", line,
                             is_certificate ? " (the server's certificate was signed by no authority in sslrootcert, or it is out of date)" : "");
        }
    }
    return true;
}

/* libpq's own way would be a bare line on stderr: what is said before the connection is anybody's, who closes it says again. */
static void drop_notice(void *context, const char *text) {
    (void)context;
    (void)text;
}

static PGconn *start_connection(const struct db_options *options, const struct conninfo_override *host) {
    char tcp_user_timeout[16];
    snprintf(tcp_user_timeout, sizeof tcp_user_timeout, "%d",
             options->tcp_user_timeout_ms > 0 ? options->tcp_user_timeout_ms : 10000);
    /* Later words win over those in the conninfo; empty ones count for nothing. */
    const char *keywords[] = { "tcp_user_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count",
                               "dbname", "application_name", "client_encoding", "host", "hostaddr", "port", NULL };
    const char *values[] = { tcp_user_timeout, "10", "5", "3",
                             options->conninfo, options->application_name, "UTF8",
                             host ? host->host : "", host ? host->hostaddr : "", host ? host->port : "", NULL };
    PGconn *connection = PQconnectStartParams(keywords, values, 1);
    if (connection != NULL)
        PQsetNoticeProcessor(connection, drop_notice, NULL);
    return connection;
}

static const char *option_value(const PQconninfoOption *options, const char *keyword) {
    for (; options && options->keyword; options++)
        if (strcmp(options->keyword, keyword) == 0)
            return options->val ? options->val : "";
    return "";
}

/* The n-th word of a comma-separated list; a list of one serves all. */
static void list_item(const char *list, int n, char *item, size_t capacity) {
    if (!strchr(list, ','))
        n = 0;
    for (; n > 0; n--) {
        list = strchr(list, ',');
        if (!list)
            break;
        list++;
    }
    size_t size = list ? strcspn(list, ",") : 0;
    if (size >= capacity)
        size = capacity - 1;
    memcpy(item, list ? list : "", size);
    item[size] = '\0';
}

static int list_items(const char *list) {
    int items = 1;
    for (; *list; list++)
        items += *list == ',';
    return items;
}

static int find_hosts(PGconn *connection, struct conninfo_override hosts[HOSTS_MAX]) {
    PQconninfoOption *options = PQconninfo(connection);
    const char *host = option_value(options, "host"), *hostaddr = option_value(options, "hostaddr");
    const char *port = option_value(options, "port");
    int count = list_items(*hostaddr ? hostaddr : host);
    if (count > HOSTS_MAX)
        count = HOSTS_MAX;
    for (int i = 0; i < count; i++) {
        list_item(host, i, hosts[i].host, sizeof hosts[i].host);
        list_item(hostaddr, i, hosts[i].hostaddr, sizeof hosts[i].hostaddr);
        list_item(port, i, hosts[i].port, sizeof hosts[i].port);
    }
    PQconninfoFree(options);
    return count;
}

/* What libpq quotes of a conninfo that it cannot read may be a piece of a password with a space in it. A quoted "=" stays. */
static void drop_quoted(char *line) {
    char *to = line;
    for (const char *from = line; *from != '\0';) {
        *to++ = *from;
        if (*from++ != '"')
            continue;
        bool is_sign = from[0] == '=' && from[1] == '"';
        const char *end = strchr(from, '"');
        if (is_sign)
            *to++ = '=';
        if (end == NULL)
            break;
        *to++ = '"';
        from = end + 1;
    }
    *to = '\0';
}

/*
 * libpq's asynchronous connect tries the hosts in turn but has no deadline for each, so that a silent first host
 * would eat all the time. With several hosts each gets its share.
 */
bool db_open_connection(const struct db_options *options, PGconn **ret_connection, struct error *error) {
    int total_ms = options->connect_ms > 0 ? options->connect_ms : 5000;
    PGconn *connection = start_connection(options, NULL);
    if (!connection)
        return error_set(error, ERROR_RETRY, "db_lost", "connect: out of memory");
    if (PQstatus(connection) == CONNECTION_BAD) {
        char line[300];
        db_first_line(PQerrorMessage(connection), line, sizeof line);
        /* A socket that is refused at once is passing; a conninfo that cannot be read is not. */
        PQconninfoOption *parsed = PQconninfo(connection);
        bool is_readable = *option_value(parsed, "dbname") && strncmp(line, "invalid ", 8) != 0 && strncmp(line, "could not match", 15) != 0;
        PQconninfoFree(parsed);
        if (!is_readable) {
            PQfinish(connection);
            drop_quoted(line);
            return error_set(error, ERROR_FATAL, "db_conninfo", "connect: %s", line);
        }
        error_set(error, ERROR_RETRY, "db_lost", "connect: %s", line);
    }
    struct conninfo_override hosts[HOSTS_MAX];
    int count = find_hosts(connection, hosts);
    if (count <= 1) {
        if (PQstatus(connection) != CONNECTION_BAD &&
            wait_connected(connection, db_deadline_after(total_ms), error)) {
            *ret_connection = connection;
            return true;
        }
        PQfinish(connection);
        return false;
    }
    PQfinish(connection);
    for (int i = 0; i < count; i++) {
        connection = start_connection(options, &hosts[i]);
        if (connection && PQstatus(connection) != CONNECTION_BAD &&
            wait_connected(connection, db_deadline_after(total_ms / count), error)) {
            *ret_connection = connection;
            return true;
        }
        PQfinish(connection);
    }
    if (error->kind == ERROR_NONE)
        error_set(error, ERROR_RETRY, "db_lost", "connect: no host answered");
    return false;
}
