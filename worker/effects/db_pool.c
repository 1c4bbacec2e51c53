/* A stack of idle connections behind a mutex; see db_pool.h. Connecting happens outside of it. */
#include "worker/effects/db_pool.h"

#include "common/buf.h"

#include <pthread.h>
#include <stdlib.h>

struct db_pool {
    struct db_options options;
    pthread_mutex_t mutex;
    struct db **idle;
    size_t count, capacity;
};

struct db_pool *db_pool_new(const struct db_options *options) {
    struct db_pool *pool = memory_alloc(sizeof *pool);
    pool->options = *options;
    pthread_mutex_init(&pool->mutex, NULL);
    return pool;
}

void db_pool_free(struct db_pool *pool) {
    if (pool == NULL)
        return;
    for (size_t i = 0; i < pool->count; i++)
        db_free(pool->idle[i]);
    free(pool->idle);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

bool db_pool_take(struct db_pool *pool, struct db **ret_db, struct error *error) {
    struct db *db = NULL;
    pthread_mutex_lock(&pool->mutex);
    if (pool->count > 0)
        db = pool->idle[--pool->count];
    pthread_mutex_unlock(&pool->mutex);
    if (db == NULL)
        return db_connect(&pool->options, ret_db, error);
    *ret_db = db;
    return true;
}

void db_pool_give(struct db_pool *pool, struct db *db) {
    if (db == NULL)
        return;
    if (!db_is_usable(db) || db_in_transaction(db)) {
        db_free(db);
        return;
    }
    pthread_mutex_lock(&pool->mutex);
    if (pool->count == pool->capacity) {
        pool->capacity = pool->capacity * 2 + 4;
        pool->idle = memory_resize(pool->idle, pool->capacity, sizeof *pool->idle);
    }
    pool->idle[pool->count++] = db;
    pthread_mutex_unlock(&pool->mutex);
}
