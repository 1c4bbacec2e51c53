/* Between daemon.c and its jobs. */
#ifndef LEASE_DAEMON_PRIVATE_H
#define LEASE_DAEMON_PRIVATE_H

#include "common/log.h"
#include "worker/daemon/daemon.h"
#include "worker/lease_worker.h"

/* One kind of work. */
struct job {
    bool (*start)(struct daemon *daemon, struct error *error);     /* looks whether what it needs is there; may be called again */
    void (*work)(struct daemon *daemon, struct lease_item *item);
    void (*release)(struct daemon *daemon);
};
extern const struct job job_cleanup, job_delivery;

struct daemon {
    const struct settings *settings;
    const struct job *job;
    struct log log;
    struct lease_worker *worker;
    struct file_root *root;
    struct file_store *store;
    struct delivery *delivery;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t stopping;
    bool is_stopping;
    struct error failure; /* why it stopped by itself */
};

/* Waits; false as soon as the daemon is to stop. */
bool daemon_pause(struct daemon *daemon, int64_t ms);

/* Nothing can be done here any more: the daemon stops, with this reason. Any thread. */
void daemon_fail(struct daemon *daemon, const struct error *error);

/* Is the lease still ours? The effects ask before each step; asking says that the work gets on. */
bool daemon_item_is_mine(void *item);

#endif
