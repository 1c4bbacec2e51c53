/* What went wrong, and what the caller should do next.
 *
 * Every fallible function of ours is `bool f(…, struct error *error)`: true is success and leaves the error alone,
 * false means that the error is filled in. It is classified once, where a foreign library is met; policy is applied
 * once, in the loop that owns the work. A refused command (stale, held, …) is data, not an error.
 *
 * Plain data: no ownership, no thread of its own, copied by assignment. */
#ifndef LEASE_ERROR_H
#define LEASE_ERROR_H

#include <stdbool.h>

enum error_kind {
    ERROR_NONE = 0,
    ERROR_RETRY,  /* the same call may succeed later: wait, then try again */
    ERROR_REJECT, /* this input will never be accepted: refuse or dead-letter it, and go on */
    ERROR_FATAL,  /* going on would be wrong: stop the partition or the process */
};

struct error {
    enum error_kind kind;
    char code[32];     /* stable, lower case, for logs and tests: "tx_conflict" */
    char message[480]; /* one line for a person; never holds a token or another secret */
};

/* Must-use marker of fallible functions. */
#define MUST_USE __attribute__((warn_unused_result))

/* Fills the error and always returns false, so that `return error_set(error, …);` reads well. Text that does not fit
 * is cut at a character's border. The arguments may point into the same error. `error` and `code` are never NULL. */
bool error_set(struct error *error, enum error_kind kind, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "<context>: " before the message of an error that is already set; kind and code stay. Always false. */
bool error_prefix(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Analyzers look at one file at a time, and would follow paths on which these are true. */
#ifdef __clang_analyzer__
#define error_set(...) ((void)(error_set)(__VA_ARGS__), false)
#define error_prefix(...) ((void)(error_prefix)(__VA_ARGS__), false)
#endif

void error_clear(struct error *error);

/* "none", "retry", "reject", "fatal". */
const char *error_kind_name(enum error_kind kind);

#endif
