/* A query whose columns are the output's columns: what ls, show, timeline and dlq ls have in common. */
#ifndef LEASE_CLI_LISTING_H
#define LEASE_CLI_LISTING_H

#include "coordinator/cli/cli.h"

/* Rows that one listing shows at most; more is a job for SQL on the views. */
enum { LISTING_ROWS_MAX = 100000, LISTING_ROWS = 100 };

/* What no query can tell. `values` are a row's, in the order of the columns; what is put there must live until the next row. */
struct listing_fill {
    void (*fill)(void *context, const char **values);
    void *context;
};

struct listing {
    const char *query; /* name in queries/; takes the parameters in order, then the limit */
    const struct output_column *columns;
    size_t column_count;
    const char *nothing; /* said on stderr when there is no row */
    bool is_tail;        /* the query gives the last rows, oldest first: what is too much is in front */
    const struct listing_fill *fill; /* NULL: the query tells all */
};

/* Runs the query with texts (NULL: not asked for) and --limit + 1, and prints up to --limit rows. CLI_YES, also when
 * nothing was found: an empty list is an answer. */
enum cli_exit listing_run(struct cli *cli, const struct listing *listing, const char *const *parameters,
                          size_t parameter_count);

/* One row, upright. *ret_found is false when there is none. */
bool listing_show(struct cli *cli, const struct listing *listing, const char *const *parameters,
                  size_t parameter_count, bool *ret_found, struct error *error) MUST_USE;

/* "kind/id" at its first slash; the parts are copied. */
enum { LISTING_NAME_SIZE = 256 };
bool listing_split_lease(const char *text, char ret_kind[static LISTING_NAME_SIZE], const char **ret_id,
                         struct error *error) MUST_USE;

#endif
