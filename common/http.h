/* A small HTTP server for probes and metrics: GET on a table of paths, one thread of its own.
 *
 * It must never cost the process anything that matters: a bounded number of connections, a small cap on request line and
 * headers, no bodies, every connection answered and closed within HTTP_DEADLINE_MS however slowly its peer sends, no
 * names looked up. Anything but GET is 405, an unknown path 404. Handlers run in the server's thread, one at a time; they
 * must not wait. Only http.c includes microhttpd.h. */
#ifndef LEASE_HTTP_H
#define LEASE_HTTP_H

#include "common/buf.h"
#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HTTP_CONNECTIONS_MAX = 32,      /* a handful of scrapers and probes; more wait in the listen queue */
    HTTP_HEADER_BYTES_MAX = 8192,   /* memory of one connection, request line and headers included */
    HTTP_DEADLINE_MS = 10 * 1000,   /* Prometheus' own default scrape timeout */
    HTTP_BACKLOG = 16,
};

struct http_reply {
    unsigned status;          /* 200 at first */
    const char *content_type; /* "text/plain; charset=utf-8" at first; borrowed */
    struct buf body;          /* empty at first; the server releases it */
};

struct http_route {
    const char *path;
    void (*handle)(void *context, struct http_reply *reply);
    void *context;
};

struct http_server;

/* Is this "host:port", with a numeric address ("[::1]:0"), "localhost" or "*" as host and a port of 0..65535? */
bool http_address_check(const char *address, struct error *error) MUST_USE;

/* Listens on the address and serves `routes` (copied) until http_stop. Port 0 takes a free one. */
bool http_start(const char *address, const struct http_route *routes, size_t route_count, struct http_server **ret_server,
                struct error *error) MUST_USE;

uint16_t http_port(const struct http_server *server);

/* Closes the port and all connections, waits for the thread. NULL allowed. */
void http_stop(struct http_server *server);

#endif
