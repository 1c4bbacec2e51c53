/* The file server's database as a cleanup sees it: the two calls of sql/fileserver/fileserver.sql behind the gate. Each is one
 * statement, one transaction and one round trip; told twice by the same grant, each answers as before.
 *
 * Errors are the database's (common/db.h), and RETRY file_store_in_doubt when one was answered with a warning, as is a commit whose
 * wait for a standby was cancelled. The same call again waits anew, for all before it too. Thread safe. */
#ifndef LEASE_FILE_STORE_H
#define LEASE_FILE_STORE_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_store;

/* Connects at the first call. conninfo is borrowed for its life. call_ms bounds a call: keep it within the third of a lease for which
 * work may say nothing. 8 s at most, and connecting 5 s. */
struct file_store *file_store_new(const char *conninfo, const char *application_name, int64_t call_ms);
void file_store_free(struct file_store *store); /* NULL allowed */

/* Can the database be reached, and has it got what this needs? FATAL file_store_missing otherwise. */
bool file_store_check(struct file_store *store, struct error *error) MUST_USE;

struct file_grant {
    const char *file;
    int64_t fence;
    const char *claim_id; /* a uuid as text */
};

enum file_begun {
    FILE_BEGUN_STALE,   /* somebody else was granted the file since */
    FILE_BEGUN_UNKNOWN, /* the file server has no such file */
    FILE_BEGUN,         /* go on */
    FILE_BEGUN_SETTLED, /* a predecessor has settled it: only the disk is left to do */
};

/* What the database says about a file whose cleanup begins. Release it; zeroed is fine. */
struct file_facts {
    char *name;       /* where it is, if nobody has moved it */
    int64_t *earlier; /* fences of those who began before, rising */
    size_t earlier_count;
    char **former; /* names that it had before it was written anew */
    size_t former_count;
    bool was_missing; /* FILE_BEGUN_SETTLED: it was not there when it was settled */
};

bool file_store_begin(struct file_store *store, const struct file_grant *grant, enum file_begun *ret_begun,
                      struct file_facts *ret_facts, struct error *error) MUST_USE;
void file_facts_release(struct file_facts *facts);

struct file_settlement {
    bool is_stale;      /* refused; nothing else is set */
    int64_t bytes;      /* that the account has got back */
    int64_t settled_by; /* the fence that did it, ours or a predecessor's */
    bool was_missing;
};

bool file_store_settle(struct file_store *store, const struct file_grant *grant, bool is_missing,
                       struct file_settlement *ret_settlement, struct error *error) MUST_USE;

#endif
