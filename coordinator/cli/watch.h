/* Output topics as leasectl reads them: every partition from its beginning or its end, records only once. Marks are
 * passed over and repeats (a journal number not above the last one of its partition) dropped, as every consumer does. */
#ifndef LEASE_CLI_WATCH_H
#define LEASE_CLI_WATCH_H

#include "common/message.h"
#include "common/topics.h"
#include "coordinator/cli/cli.h"
#include "coordinator/cli/document.h"

struct watch;

/* A record that came in; borrowed until the next call on the watch. */
struct watch_record {
    enum topic_id topic;
    int64_t number;           /* of the journal; 0 when the record carries none */
    struct document *value;   /* of the record; an object of ours for a dead letter, see watch.c */
    const char *time;         /* as its ce_time or lease_dlq_at says; "" when absent */
    const char *type;         /* its ce_type; "" when absent */
};

enum watch_event {
    WATCH_NOTHING,
    WATCH_RECORD,
    WATCH_CAUGHT_UP, /* once: the end of every partition has been reached */
    WATCH_ERROR,     /* *error; kind RETRY may pass by itself */
};

/* from_end: what is there already is not read; the end of each partition counts from when WATCH_CAUGHT_UP came. */
bool watch_open(struct cli *cli, const enum topic_id *topics, size_t count, bool from_end, struct watch **ret_watch,
                struct error *error) MUST_USE;
void watch_free(struct watch *watch); /* NULL allowed */
enum watch_event watch_next(struct watch *watch, int timeout_ms, struct watch_record *ret_record, struct error *error);

/* One line for people: what, who, under which fence, for how long. Never a token. */
void watch_describe(const struct watch_record *record, bool colored, struct buf *buf);

#endif
