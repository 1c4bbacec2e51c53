/* CloudEvents in: one Kafka record becomes one struct command, or a verdict why not. event.c and event_members.c
 * are the only files that know the JSON library.
 *
 * Decoding never fails: what cannot be identified (no trustworthy id, source, type and subject) gets the verdict
 * `dead_letter`, what can be identified but not understood the verdict `malformed`; both go to lease.apply like any
 * other command, so every record consumed has its row. A reason is a stable code; a field says where.
 *
 * Both content modes are accepted: binary (ce_* headers), structured (content-type application/cloudevents+json, or
 * no such header and a JSON object with `specversion`). The same event in both modes decodes to the same command and
 * the same digest.
 *
 * Everything is checked before the JSON library sees it that could make it slow, large or ambiguous: bytes, depth,
 * number of elements, encoding, and every number that is not a plain integer. No function keeps a pointer into a
 * message. Safe from any thread. */
#ifndef LEASE_EVENT_H
#define LEASE_EVENT_H

#include "common/buf.h"
#include "common/headers.h"
#include "common/lease.h"
#include "common/message.h"
#include "common/token.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum event_verdict {
    EVENT_ACCEPTED,    /* a command; SQL decides about it */
    EVENT_MALFORMED,   /* answered `malformed` with reason and field */
    EVENT_DEAD_LETTER, /* kept whole, with reason and detail */
    EVENT_VERDICT_COUNT
};
/* As lease.apply takes it: NULL, "malformed", "dead_letter". */
const char *event_verdict_name(enum event_verdict verdict);

/* Stable codes of why. The first group are dead letters in the order in which they are looked for, as far as that
 * order is a fact; the second group answers `malformed`. Codes marked so are given by others (the
 * coordinator, SQL), and listed here so that there is one list. */
enum event_reason {
    EVENT_REASON_NONE,
    EVENT_NULL_VALUE,
    EVENT_EMPTY_VALUE,
    EVENT_NULL_KEY,
    EVENT_KEY_TOO_LONG,
    EVENT_VALUE_TOO_LARGE,
    EVENT_HEADERS_TOO_LARGE,
    EVENT_BATCH_MODE,
    EVENT_NOT_CLOUDEVENTS,
    EVENT_UNKNOWN_SPECVERSION,
    EVENT_MISSING_ATTRIBUTE,
    EVENT_INVALID_ATTRIBUTE, /* id, source, type or subject is there and cannot be trusted */
    EVENT_UNKNOWN_TYPE,
    EVENT_INVALID_ENCODING,
    EVENT_INVALID_JSON,
    EVENT_DUPLICATE_MEMBER,
    EVENT_TOO_DEEP,
    EVENT_TOO_COMPLEX,
    EVENT_KILLED_PROCESS,   /* coordinator */
    EVENT_DATABASE_REFUSED, /* coordinator */

    EVENT_KEY_MISMATCH,
    EVENT_WRONG_KIND,
    EVENT_WRONG_TYPE,
    EVENT_OUT_OF_RANGE,
    EVENT_NOT_ALLOWED_CHARACTERS,
    EVENT_MISSING,
    EVENT_UNKNOWN_MEMBER,
    EVENT_TOO_LONG,
    EVENT_TOO_MANY,
    EVENT_EMPTY,
    EVENT_REPEATED,
    EVENT_UNKNOWN_KIND,      /* SQL, when it knows more or fewer kinds than the coordinator */
    EVENT_ID_REUSED,         /* SQL */
    EVENT_TTL_ABOVE_MAXIMUM, /* SQL */
    EVENT_REASON_COUNT
};
const char *event_reason_name(enum event_reason reason); /* NULL for EVENT_REASON_NONE */
enum event_verdict event_reason_verdict(enum event_reason reason);

/* A kind as SQL's table has it; `name` is borrowed. */
struct event_kind {
    const char *name;
    enum lease_mode mode;
};

/* Bounds, checked before anything is parsed. */
struct event_limits {
    size_t value_bytes;
    size_t key_bytes;
    size_t header_count;
    size_t header_bytes; /* names and values together */
    unsigned depth;      /* at most EVENT_DEPTH_MAX */
    size_t elements;     /* members and array elements */
    size_t gap_bytes;    /* one run of white space between tokens */
    /* Kinds known: another one is `unknown_type`, a command of the other mode `wrong_kind`. Without kinds (count 0)
     * any well-formed kind passes and SQL answers. Borrowed. */
    const struct event_kind *kinds;
    size_t kind_count;
};
enum { EVENT_DEPTH_MAX = 32, EVENT_VALUE_MAX = 262144, EVENT_ELEMENTS_MAX = 20000 };
/* The protocol's own bounds, no kinds. */
struct event_limits event_limits_default(void);

/* A number that was not given. Every number given is ≥ 0. */
#define COMMAND_ABSENT INT64_C(-1)

/* One item of a command over many: what a command over it alone would say beyond kind, command, holder and ttl. */
struct command_item {
    const char *lease;
    int64_t fence;
    struct claim_id claim_id;
    bool token_fits; /* false until command_check_token */
    int64_t amount;  /* fail: delay_ms */
    const char *word; /* fail: reason */
    int flag;         /* fail: retry (its default filled in); -1 for other commands */
    const char *payload; /* finish: result */

    char token[LEASE_TOKEN_TEXT_SIZE]; /* private, as a command's */
};

/* One decoded record: what one element of lease.apply's arrays takes, or, over many items, one and one for each item. Text is NUL-terminated UTF-8 without NUL in it,
 * or NULL when absent; all of it, and the arrays, belong to the command and live until command_release. */
struct command {
    /* Where it came from; always there. */
    const char *topic;
    int32_t partition;
    int64_t offset;

    enum event_verdict verdict;
    enum event_reason reason; /* EVENT_REASON_NONE when accepted */
    const char *field;        /* malformed: the member or attribute at fault; dead letter: a detail for people */

    /* Who says what about which lease. All there unless the verdict is dead_letter (then all absent). */
    const char *kind;
    enum lease_command command;
    const char *subject; /* over many items: the holder */
    const char *source;
    const char *message_id;
    uint8_t digest[16];      /* SHA-256 of type \0 subject \0 canonical data, its first half */
    const char *traceparent; /* only if well-formed */

    /* What it says. Absent unless accepted. */
    const char *holder; /* for a claim: the subject */
    int64_t fence;
    bool has_claim_id;
    struct claim_id claim_id;
    bool token_fits; /* false until command_check_token */
    int64_t ttl_ms;
    int64_t amount; /* begin: count; claim: credit_total; request, fail: delay_ms */
    int64_t refresh;
    int64_t wait_ms;
    const char *word; /* advance: step; fail: reason; resolve: verdict; edit: the message that it follows; cancel: the one that it takes back */
    const char *old;  /* edit: what its author saw, JSON text; part of the payload then */
    int flag;         /* start: more; fail: retry (their defaults filled in); -1 for other commands */
    const char **resources;
    size_t resource_count;
    const char **tables;
    size_t table_count;
    const char *payload; /* payload or result: compact JSON text, numbers and order as they came; resolve: the whole data */
    struct command_item *items; /* of a command over many, in its order; then fence, claim_id and token are the items' */
    size_t item_count;          /* 0: over the subject alone */

    /* Dead letters only: the record as it came. NULL for a null key or value; headers packed (headers_pack). */
    const uint8_t *raw_key;
    size_t raw_key_size;
    const uint8_t *raw_value;
    size_t raw_value_size;
    const uint8_t *raw_headers;
    size_t raw_headers_size;

    /* Private: the token as it was sent, until it is checked; and the memory all pointers above point into. */
    char token[LEASE_TOKEN_TEXT_SIZE];
    struct command_block *blocks;
};

/* Once, before anything is decoded, in a process of our own: want of memory then ends it. The parser tells of it in the words of
 * its other errors, so that a good message would become a dead letter. */
void event_prepare(void);

/* Always fills *ret_command (which need not be initialised) and returns true if the verdict is EVENT_ACCEPTED.
 * Release it in either case. */
bool event_decode(const struct message *message, const struct event_limits *limits, struct command *ret_command);

/* Sets token_fits for a command that carries a token, or of each of its items, and wipes the tokens. Call once, before lease.apply. */
void command_check_token(struct command *command, const struct token_keys *keys);

/* Turns any decoded command into a dead letter of its record (killed_process, database_refused): clears what it says,
 * keeps where it came from, copies key, value and headers. `detail` may be NULL. Of a record that no output topic would
 * take, the beginnings are kept, and the detail says so: "cut ...". */
void command_to_dead_letter(struct command *command, const struct message *message, enum event_reason reason,
                            const char *detail);

void command_release(struct command *command); /* NULL and all-zero allowed; wipes tokens; leaves all-zero */

/* Bytes of heap that the command holds, for bounds on queues. */
size_t command_size(const struct command *command);

#endif
