/* For tests: one request over a bare socket, so that what arrives is what the server sent. */
#ifndef TEST_HTTP_CLIENT_H
#define TEST_HTTP_CLIENT_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* A connection to 127.0.0.1, or -1. Reads give up after 20 s. */
static inline int http_client_connect(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 20};
    int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(file, (struct sockaddr *)&address, sizeof address) == 0)
        return file;
    close(file);
    return -1;
}

/* Reads to the end of the connection; the text is cut at `size`. Bytes read, or -1 when the peer was silent. */
static inline ssize_t http_client_read(int file, char *text, size_t size) {
    size_t got = 0;
    ssize_t more;
    while (got < size - 1 && (more = recv(file, text + got, size - 1 - got, 0)) > 0)
        got += (size_t)more;
    text[got] = '\0';
    return more < 0 && got == 0 ? -1 : (ssize_t)got;
}

/* Sends the request as it stands and reads the whole answer. The status code, or -1. */
static inline int http_client_send(uint16_t port, const char *request, char *answer, size_t size) {
    int file = http_client_connect(port);
    if (file < 0)
        return -1;
    answer[0] = '\0';
    send(file, request, strlen(request), MSG_NOSIGNAL);
    http_client_read(file, answer, size);
    close(file);
    return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : -1;
}

/* What follows the headers. */
static inline const char *http_client_body(const char *answer) {
    const char *end = strstr(answer, "\r\n\r\n");
    return end != NULL ? end + 4 : "";
}

#endif
