/* The royalty database as a run sees it: the calls of sql/royalty/royalty.sql. Each is one statement, one transaction and one round trip,
 * and given again by the same grant it answers as before.
 *
 * One connection, made at need and made anew when it was lost. Errors are the database's (common/db.h). What may work later is tried
 * again here, for as long as `may_retry` says so: it waits, and ends the waiting. One thread. */
#ifndef LEASE_ROYALTY_STORE_H
#define LEASE_ROYALTY_STORE_H

#include "common/error.h"
#include "worker/royalty/tally.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct royalty_store;

/* Waits a little before the attempt of that number (from 2 on); false: give up. The error says what was wrong. */
typedef bool royalty_retry_fn(void *context, const struct error *error, int attempt);

/* conninfo is borrowed for its life. call_ms bounds a call: keep it within the third of a lease for which work may say nothing. */
struct royalty_store *royalty_store_new(const char *conninfo, int64_t call_ms, royalty_retry_fn *may_retry, void *context);
void royalty_store_free(struct royalty_store *store); /* NULL allowed */

/* Can the database be reached, and has it got what this needs? FATAL royalty_missing otherwise. */
bool royalty_store_check(struct royalty_store *store, struct error *error) MUST_USE;

struct royalty_grant {
    const char *settlement;
    int64_t fence;
    const char *claim_id; /* a uuid as text */
};

enum royalty_verdict {
    ROYALTY_STALE,   /* somebody else was granted the settlement since */
    ROYALTY_DIFFERS, /* it is about something else; at the end: that is not what the lines add up to */
    ROYALTY_ENDED,   /* it is settled already */
    ROYALTY_DONE,    /* begun, written, closed, noted */
};

/* Where a run stands: behind which sale of which type. */
struct royalty_place {
    char type[32]; /* "": at the beginning */
    char contract[TALLY_CONTRACT_SIZE];
    int32_t work;
    int64_t number;
};

struct royalty_begun {
    struct royalty_place behind;
    int64_t lines; /* that are there already */
    int64_t total;
};

/* contracts: '<type>/<contract>' joined by commas, in order, or NULL for all. */
bool royalty_store_begin(struct royalty_store *store, const struct royalty_grant *grant, const char *period, const char *contracts,
                         enum royalty_verdict *ret_verdict, struct royalty_begun *ret_begun, struct error *error) MUST_USE;

struct royalty_rows; /* what a reading gave */
void royalty_rows_free(struct royalty_rows *rows); /* NULL allowed */
size_t royalty_rows_count(const struct royalty_rows *rows);

struct royalty_sale {
    const char *contract; /* borrowed from the rows */
    int32_t work;
    int64_t number;
    int64_t amount;
};
/* The next sales behind that place. contracts: names of that type joined by commas, or NULL for all. */
bool royalty_store_sales(struct royalty_store *store, const char *period, const char *contracts, const struct royalty_place *behind,
                         int32_t most, struct royalty_rows **ret_rows, struct error *error) MUST_USE;
struct royalty_sale royalty_rows_sale(const struct royalty_rows *rows, size_t row);

/* Rates of the lines' contracts, into the lines. Lines of one contract stand together, contracts in order. */
bool royalty_store_share(struct royalty_store *store, const char *type, struct tally_line *lines, size_t count,
                         struct error *error) MUST_USE;

/* Names of contracts of a type behind that one, in order. */
bool royalty_store_contracts(struct royalty_store *store, const char *type, const char *behind, int32_t most,
                             struct royalty_rows **ret_rows, struct error *error) MUST_USE;
const char *royalty_rows_contract(const struct royalty_rows *rows, size_t row);

bool royalty_store_write(struct royalty_store *store, const struct royalty_grant *grant, const char *type,
                         const struct tally_line *lines, size_t count, enum royalty_verdict *ret_verdict,
                         struct error *error) MUST_USE;
bool royalty_store_close(struct royalty_store *store, const struct royalty_grant *grant, int64_t lines, int64_t total,
                         enum royalty_verdict *ret_verdict, struct error *error) MUST_USE;
/* basis: "unchanged", "changed", or NULL: not said. */
bool royalty_store_note_basis(struct royalty_store *store, const struct royalty_grant *grant, const char *basis,
                              enum royalty_verdict *ret_verdict, struct error *error) MUST_USE;

#endif
