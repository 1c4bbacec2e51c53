/* Large starts: everything is covered, one message after the other under the fence of the start, and begun; see LARGE STARTS in
 * lease_worker.h. In the caller's thread, which lists and waits; the handle's thread sends, and renews meanwhile. */
#include "worker/client_private.h"

#include "common/token.h"
#include "worker/options.h"

/* What is to be covered: an array or a callback, one name at a time. */
struct listing {
    struct lease_run *run;
    const struct lease_run_options *options;
    size_t at;        /* in the array */
    const char *name; /* the next one, borrowed; NULL: there is no more */
    int64_t covered;
};

/* ---- listing ---- */

static const char *next_of_array(struct listing *listing) {
    return listing->at < listing->options->resource_count ? listing->options->resources[listing->at++] : NULL;
}

/* False: the callback broke off, or what it gave is no resource. That the listing gets on is the progress that keeps the lease. */
static bool step(struct listing *listing, struct lease_error *ret_error) {
    const struct lease_run_options *options = listing->options;
    struct lease_error broken = {0};
    struct error error = {0};
    listing->name = options->next ? options->next(options->context, &broken) : next_of_array(listing);
    hold_progress(&listing->run->hold, hold_clock_us());
    if (broken.kind != LEASE_ERROR_NONE) {
        if (ret_error)
            *ret_error = broken;
        return false;
    }
    return !listing->name || options_check_resource(listing->name, &error) || options_fail(ret_error, &error);
}

/* Writes one cover, of as many as a message takes. */
static bool write_cover(struct listing *listing, struct buf *data, struct lease_error *ret_error) {
    int count = 0;
    messages_begin_cover(data, &listing->run->grant);
    do {
        messages_add_resource(data, listing->name);
        count++;
        if (!step(listing, ret_error))
            return false;
    } while (listing->name && count < LEASE_RESOURCES_MAX && messages_has_room(data, listing->name));
    messages_end_cover(data);
    listing->covered += count;
    return true;
}

/* ---- asking ---- */

/* Ours by the clock; otherwise the answer says so in the library's own word. Under the lock. */
static enum lease_status still_mine(struct lease_run *run, enum lease_status status) {
    static const struct lease_answer lapsed = {.outcome = "lapsed", .is_refusal = true, .fence = -1, .remaining_ms = -1,
                                               .held_by = {.fence = -1, .remaining_ms = -1}};
    if (status != LEASE_ACCEPTED || hold_is_mine(&run->hold, hold_clock_us()))
        return status;
    client_keep_answer(run, &lapsed);
    return LEASE_REFUSED;
}

/* A lease that was lost while the listing took its time is not asked about any more. */
static enum lease_status ask(struct lease_run *run, enum lease_command command, struct buf *data, unsigned wait_ms) {
    pthread_mutex_lock(&run->client->lock);
    enum lease_status status = still_mine(run, LEASE_ACCEPTED);
    if (status == LEASE_ACCEPTED)
        status = still_mine(run, run_ask(run, command, data, wait_ms));
    pthread_mutex_unlock(&run->client->lock);
    return status;
}

/* What was not sent has a token in it. */
static void wipe(struct buf *data) {
    if (data->data)
        token_wipe(data->data, data->size);
    buf_release(data);
}

static enum lease_status cover(struct listing *listing, unsigned wait_ms, struct lease_error *ret_error) {
    struct buf data = BUF_INIT;
    enum lease_status status = LEASE_FAILED;
    if (write_cover(listing, &data, ret_error))
        status = ask(listing->run, LEASE_COMMAND_COVER, &data, wait_ms);
    wipe(&data);
    return status;
}

static enum lease_status begin(struct listing *listing, unsigned wait_ms) {
    struct buf data = BUF_INIT;
    messages_write_begin(&data, &listing->run->grant, listing->covered);
    enum lease_status status = ask(listing->run, LEASE_COMMAND_BEGIN, &data, wait_ms);
    wipe(&data);
    return status;
}

/* ---- the end ---- */

static void give_back(struct lease_run *run) {
    struct lease_client *client = run->client;
    client_say_farewell(client, &run->grant, -1);
    atomic_store(&run->is_held, false);
    run->has_grant = false;
    link_wake(client->link);
}

/* From here on it is a run as any other, or none: callbacks come only now. */
static enum lease_status end(struct lease_run *run, enum lease_status status) {
    pthread_mutex_lock(&run->client->lock);
    status = still_mine(run, status);
    run->is_covering = false;
    if (status != LEASE_ACCEPTED)
        give_back(run);
    pthread_mutex_unlock(&run->client->lock);
    return status;
}

enum lease_status cover_all(struct lease_run *run, const struct lease_run_options *options, unsigned wait_ms,
                            struct lease_error *ret_error) {
    struct listing listing = {.run = run, .options = options};
    enum lease_status status = step(&listing, ret_error) ? LEASE_ACCEPTED : LEASE_FAILED;
    while (status == LEASE_ACCEPTED && listing.name)
        status = cover(&listing, wait_ms, ret_error);
    if (status == LEASE_ACCEPTED)
        status = begin(&listing, wait_ms);
    return end(run, status);
}
