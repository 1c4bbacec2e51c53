/* Connections to one database for several threads: each call takes one for as long as it needs, and gives it back.
 *
 * Made at need, so there are never more than threads that were inside at one time. A connection that broke is freed when it is
 * given back; one that broke unnoticed fails in the hands of the next, who tries again. Thread safe. */
#ifndef LEASE_DB_POOL_H
#define LEASE_DB_POOL_H

#include "common/db.h"
#include "common/error.h"

struct db_pool;

/* The options are copied; what they point to is borrowed for the pool's life. */
struct db_pool *db_pool_new(const struct db_options *options);
void db_pool_free(struct db_pool *pool); /* all must have been given back. NULL allowed */

bool db_pool_take(struct db_pool *pool, struct db **ret_db, struct error *error) MUST_USE;
void db_pool_give(struct db_pool *pool, struct db *db); /* NULL allowed */

#endif
