/* The words of the protocol as enums and names: modes, commands, outcomes, states; and the claim id.
 *
 * Each enum has one table in lease.c; the same names, in the same order, stand in the tables of sql/ and a test
 * compares them. Nothing here decides anything: what a command may do to a lease is SQL's business (sql/).
 *
 * Plain data, no ownership; safe from any thread. */
#ifndef LEASE_LEASE_H
#define LEASE_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a kind of work is given out: a run names what it takes, a pool item waits to be claimed; an edit is of a row, and nobody's lease. */
enum lease_mode { LEASE_MODE_RUN, LEASE_MODE_POOL, LEASE_MODE_EDIT, LEASE_MODE_COUNT };

/* What a message may ask, the part of its type behind the last dot. */
enum lease_command {
    LEASE_COMMAND_START,
    LEASE_COMMAND_COVER,
    LEASE_COMMAND_BEGIN,
    LEASE_COMMAND_REQUEST,
    LEASE_COMMAND_CLAIM,
    LEASE_COMMAND_RENEW,
    LEASE_COMMAND_ADVANCE,
    LEASE_COMMAND_FINISH,
    LEASE_COMMAND_FAIL,
    LEASE_COMMAND_RELEASE,
    LEASE_COMMAND_RESOLVE, /* an operator's, not a holder's */
    LEASE_COMMAND_EDIT,
    LEASE_COMMAND_CANCEL,
    LEASE_COMMAND_COUNT
};

/* The answer to a command: the refusals in their order of precedence (the first that applies is the answer), then
 * what was done. A refusal is data, not an error. */
enum lease_outcome {
    LEASE_OUTCOME_MALFORMED,
    LEASE_OUTCOME_DUPLICATE,
    LEASE_OUTCOME_UNKNOWN,
    LEASE_OUTCOME_FINAL,
    LEASE_OUTCOME_STALE,
    LEASE_OUTCOME_LAPSED,
    LEASE_OUTCOME_HELD,
    LEASE_OUTCOME_BUSY,
    LEASE_OUTCOME_INCOMPLETE,
    LEASE_OUTCOME_OUT_OF_STEP,
    LEASE_OUTCOME_WAITING,
    LEASE_OUTCOME_PARKED,
    LEASE_OUTCOME_EMPTY,
    LEASE_OUTCOME_GRANTED,
    LEASE_OUTCOME_COVERED,
    LEASE_OUTCOME_RENEWED,
    LEASE_OUTCOME_ADVANCED,
    LEASE_OUTCOME_FINISHED,
    LEASE_OUTCOME_FAILED,
    LEASE_OUTCOME_RELEASED,
    LEASE_OUTCOME_REQUESTED,
    LEASE_OUTCOME_ANSWERED, /* of a command over many items: each has an outcome of its own */
    LEASE_OUTCOME_APPLIED,
    LEASE_OUTCOME_BOUNCED, /* of an edit: a refusal */
    LEASE_OUTCOME_CANCELLED,
    LEASE_OUTCOME_COUNT
};

/* What is stored of a lease. */
enum lease_state {
    LEASE_STATE_FREE,     /* run: unfinished, nobody has it */
    LEASE_STATE_READY,    /* pool: waiting to be claimed */
    LEASE_STATE_HELD,     /* somebody has it; past its expiry it is lapsed whether the reaper has been there or not */
    LEASE_STATE_FINISHED, /* final */
    LEASE_STATE_FAILED,   /* final; run: gave up */
    LEASE_STATE_DEAD,     /* final; pool: attempts spent, or failed for good */
    LEASE_STATE_COUNT
};

/* Names as they stand in messages and in SQL. A name for every value; a value out of range is a bug (assert). */
const char *lease_command_name(enum lease_command command);
const char *lease_outcome_name(enum lease_outcome outcome);
const char *lease_state_name(enum lease_state state);

/* The reverse. `size` bytes, no NUL needed. False, and *ret untouched, for any other text. */
bool lease_mode_parse(const char *text, size_t size, enum lease_mode *ret);
bool lease_command_parse(const char *text, size_t size, enum lease_command *ret);
bool lease_outcome_parse(const char *text, size_t size, enum lease_outcome *ret);

/* Is the command one of this mode's? (start of a pool item, claim of a run: no.) */
bool lease_command_is_of_mode(enum lease_command command, enum lease_mode mode);
bool lease_outcome_is_refusal(enum lease_outcome outcome);

/* Is this a well-formed name of a kind: `[a-z][a-z0-9_-]{0,31}`? Which kinds exist is a table in SQL. */
bool lease_kind_is_well_formed(const char *text, size_t size);

/* The identity of one grant: a UUID, as its 16 bytes (which is also how PostgreSQL takes it in binary). */
struct claim_id {
    uint8_t bytes[16];
};

enum { CLAIM_ID_TEXT_SIZE = 37 }; /* 36 characters and the NUL */

/* Only the canonical text: 36 characters, lower case, and not the nil UUID. */
bool claim_id_parse(const char *text, size_t size, struct claim_id *ret);
const char *claim_id_format(const struct claim_id *claim_id, char ret_text[static CLAIM_ID_TEXT_SIZE]);

/* Numbers of the protocol, the same in schemas/ (compared in tests). */
#define LEASE_FENCE_MAX INT64_C(9007199254740991) /* 2^53 - 1: JSON readers keep it exact */
enum {
    LEASE_KIND_MAX = 32,
    LEASE_ID_MAX = 200,               /* subject, holder, resource, in bytes */
    LEASE_MESSAGE_ID_MAX = 128,       /* CloudEvents id and source, in bytes */
    LEASE_STEP_MAX = 64,
    LEASE_REASON_MAX = 500,           /* of a fail, in characters */
    LEASE_RESOURCES_MAX = 10000,      /* of one message */
    LEASE_TABLES_MAX = 100,
    LEASE_ITEMS_MAX = 1000,           /* of one command over many */
    LEASE_PAYLOAD_MAX = 65536,        /* payload and result, bytes of their compact JSON */
    LEASE_TTL_MS_MAX = 86400000,      /* one day; a kind's own maximum is lower */
    LEASE_WAIT_MS_MAX = 86400000,
    LEASE_TOKEN_TEXT_SIZE = 65,       /* 64 hexadecimal digits and the NUL */
};
#define LEASE_DELAY_MS_MAX INT64_C(2592000000) /* 30 days */

#endif
