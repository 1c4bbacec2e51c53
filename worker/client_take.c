/* What comes in for the run side: grants, answers to what runs were asked, and to renewals. The handle's own thread. */
#include "worker/client_private.h"

#include "common/token.h"

#include <stdlib.h>
#include <string.h>

/* ---- copies ---- */

/* Appends a text to the pool of them; offsets, since the pool moves. 0 = NULL. */
static size_t pool_text(struct buf *pool, const char *text, size_t size) {
    if (!text)
        return 0;
    size_t at = pool->size;
    buf_append(pool, text, size);
    buf_append_byte(pool, '\0');
    return at;
}

static const char *pooled(const char *pool, size_t at) {
    return at ? pool + at : NULL;
}

static void keep_grant(struct lease_run *run, const struct lease_grant *grant) {
    struct buf pool = BUF_INIT;
    buf_append_byte(&pool, '\0');
    size_t kind = pool_text(&pool, grant->kind, strlen(grant->kind)), lease = pool_text(&pool, grant->lease, strlen(grant->lease)),
           holder = pool_text(&pool, grant->holder, strlen(grant->holder)),
           claim_id = pool_text(&pool, grant->claim_id, strlen(grant->claim_id)),
           token = pool_text(&pool, grant->token, strlen(grant->token)),
           payload = pool_text(&pool, grant->payload, grant->payload_size);
    run->grant_texts = buf_take(&pool, &run->grant_texts_size);
    run->grant = *grant;
    run->grant.kind = pooled(run->grant_texts, kind);
    run->grant.lease = pooled(run->grant_texts, lease);
    run->grant.holder = pooled(run->grant_texts, holder);
    run->grant.claim_id = pooled(run->grant_texts, claim_id);
    run->grant.token = pooled(run->grant_texts, token);
    run->grant.payload = pooled(run->grant_texts, payload);
    run->has_grant = true;
}

enum { ANSWER_TEXTS = 13 };

/* Where the texts of an answer are, in one order for copying out and in. */
static void texts_of(struct lease_answer *answer, const char **ret_texts[ANSWER_TEXTS]) {
    const char **const texts[ANSWER_TEXTS] = {
        &answer->outcome, &answer->state, &answer->reason, &answer->field, &answer->step, &answer->until,
        &answer->held_by.kind, &answer->held_by.lease, &answer->held_by.resource, &answer->held_by.holder,
        &answer->held_by.since, &answer->held_by.until, &answer->basis};
    memcpy(ret_texts, texts, sizeof texts);
}

void client_keep_answer(struct lease_run *run, const struct lease_answer *answer) {
    struct buf pool = BUF_INIT;
    const char **texts[ANSWER_TEXTS];
    size_t at[ANSWER_TEXTS];
    free(run->answer_texts);
    run->answer = *answer;
    texts_of(&run->answer, texts);
    buf_append_byte(&pool, '\0');
    for (size_t i = 0; i < ANSWER_TEXTS; i++)
        at[i] = pool_text(&pool, *texts[i], *texts[i] ? strlen(*texts[i]) : 0);
    run->answer_texts = buf_take(&pool, NULL);
    for (size_t i = 0; i < ANSWER_TEXTS; i++)
        *texts[i] = pooled(run->answer_texts, at[i]);
    run->has_answer = true;
}

/* ---- the end of a command ---- */

static void end_ask(struct lease_run *run, bool is_refused, struct call_list *calls) {
    bool has_callback = run->ask.has_callback;
    ask_clear(&run->ask);
    run->ask.is_refused = is_refused;
    run->ask.state = has_callback ? ASK_NONE : ASK_DONE;
    if (has_callback)
        client_gather(calls, run, false, run->has_answer);
    pthread_cond_broadcast(&run->client->is_changed);
}

void client_give_up(struct lease_run *run, struct call_list *calls) {
    run->has_answer = run->ask.line.is_waiting;
    end_ask(run, run->ask.line.is_waiting, calls);
}

/* A lease's messages between the first and the newest one of what is asked are all of it. */
static struct lease_run *find_run(struct lease_client *client, uint64_t number, const char *lease) {
    struct lease_run *run;
    TAILQ_FOREACH(run, &client->runs, all)
        if (run->ask.state == ASK_SENT && run->ask.first <= number && number <= run->ask.number && strcmp(run->lease, lease) == 0)
            return run;
    return NULL;
}

/* What the deadline of a grant counts from: when the asking that it names was sent; so long ago that it is lost, if that is forgotten. */
static int64_t asked_us(const struct lease_run *run, uint64_t number) {
    const struct line *line = &run->ask.line;
    if (line->until_us == 0)
        return run->ask.sent_us;
    for (unsigned i = 0; i < LINE_ASKINGS; i++)
        if (line->asked[i].number == number)
            return line->asked[i].sent_us;
    return hold_clock_us() - run->terms.ttl_us;
}

/* ---- grants ---- */

static void take_start(struct lease_run *run, const struct messages_grant *read, uint64_t number, struct call_list *calls) {
    int64_t now_us = hold_clock_us();
    struct lease_answer answer = {.outcome = "granted", .until = read->until, .fence = read->grant.fence, .remaining_ms = -1,
                                  .held_by = {.fence = -1, .remaining_ms = -1}};
    keep_grant(run, &read->grant);
    client_keep_answer(run, &answer);
    hold_init(&run->hold, &run->terms, asked_us(run, number), now_us);
    if (number < run->ask.number)
        client_leave_line(run->client, run); /* what was asked since has met the grant */
    if (!client_renews(run))
        run->hold.look_us = INT64_MAX;
    atomic_store(&run->is_held, true);
    end_ask(run, false, calls);
    client_look_at_loss(run, now_us, calls); /* it may have come too late */
}

/* A grant that comes again after its position was forgotten. */
static bool is_kept(const struct lease_client *client, const struct lease_grant *grant) {
    const struct lease_run *run;
    TAILQ_FOREACH(run, &client->runs, all)
        if (run->has_grant && run->grant.fence == grant->fence && strcmp(run->grant.claim_id, grant->claim_id) == 0)
            return true;
    return false;
}

void client_take_grant(struct lease_client *client, const struct message *record, struct call_list *calls) {
    struct messages_grant read;
    if (!messages_read_grant(record, &read))
        return;
    uint64_t number = link_number_of(client->link, read.command.source, read.command.id);
    pthread_mutex_lock(&client->lock);
    struct lease_run *run = number > 0 ? find_run(client, number, read.grant.lease) : NULL;
    if (run && run->ask.command == LEASE_COMMAND_START)
        take_start(run, &read, number, calls);
    else if (!is_kept(client, &read.grant)) /* who asked for it waits no more */
        client_say_farewell(client, &read.grant, -1);
    pthread_mutex_unlock(&client->lock);
    messages_free(read.document);
}

/* ---- answers ---- */

static bool is_loss(enum lease_outcome outcome) {
    return outcome == LEASE_OUTCOME_UNKNOWN || outcome == LEASE_OUTCOME_FINAL || outcome == LEASE_OUTCOME_STALE ||
           outcome == LEASE_OUTCOME_LAPSED;
}

static void lose(struct lease_run *run, struct call_list *calls) {
    if (!atomic_load(&run->is_held))
        return;
    hold_lose(&run->hold);
    client_look_at_loss(run, hold_clock_us(), calls);
}

static void renewed(struct lease_run *run, int64_t sent_us) {
    hold_renewed(&run->hold, &run->terms, sent_us, hold_clock_us());
    if (!client_renews(run))
        run->hold.look_us = INT64_MAX;
}

static bool ends_run(enum lease_outcome outcome) {
    return outcome == LEASE_OUTCOME_FINISHED || outcome == LEASE_OUTCOME_FAILED || outcome == LEASE_OUTCOME_RELEASED;
}

/* The answer to one asking of many: a place in line, or that the lease is ours already, which the grant says as well. */
static bool is_in_line(struct lease_run *run, const struct messages_result *result) {
    const struct lease_blocker *blocker = &result->answer.held_by;
    if (run->ask.line.until_us == 0)
        return false;
    return result->outcome == LEASE_OUTCOME_WAITING ||
           (result->answer.has_blocker && blocker->lease && strcmp(blocker->lease, run->lease) == 0 && blocker->holder &&
            strcmp(blocker->holder, link_holder(run->client->link)) == 0);
}

static void take_answer(struct lease_run *run, struct messages_result *result, struct call_list *calls) {
    if (result->outcome == LEASE_OUTCOME_DUPLICATE && !messages_get_original(result))
        return;
    if (run->ask.command == LEASE_COMMAND_START && result->outcome == LEASE_OUTCOME_GRANTED)
        return; /* the grant itself, with its token, is on its way */
    bool is_waiting = is_in_line(run, result);
    result->answer.is_refusal = is_waiting || lease_outcome_is_refusal(result->outcome);
    client_keep_answer(run, &result->answer);
    if (is_waiting) {
        run->ask.line.is_waiting = true;
        run->has_answer = false; /* it is one only if nothing better comes */
        return;
    }
    if (result->outcome == LEASE_OUTCOME_RENEWED)
        renewed(run, run->ask.sent_us);
    if (ends_run(result->outcome))
        atomic_store(&run->is_held, false);
    else if (is_loss(result->outcome))
        lose(run, calls);
    end_ask(run, result->answer.is_refusal, calls);
}

static struct lease_run *find_holder(struct lease_client *client, const struct messages_item *item) {
    struct lease_run *run;
    TAILQ_FOREACH(run, &client->runs, all)
        if (run->has_grant && run->grant.fence == item->fence && strcmp(run->grant.lease, item->lease) == 0)
            return run;
    return NULL;
}

/* What is asked at the moment has its own answer coming, which may be the very reason of a refusal here. */
static void take_renewals(struct lease_client *client, const struct messages_result *result, uint64_t number,
                          struct call_list *calls) {
    if (client->renewals[number % CLIENT_RENEWALS].number != number)
        return;
    for (size_t i = 0; i < result->item_count; i++) {
        struct messages_item item;
        struct lease_run *run = messages_get_item(result, i, &item) ? find_holder(client, &item) : NULL;
        if (!run || !atomic_load(&run->is_held))
            continue;
        if (item.outcome == LEASE_OUTCOME_RENEWED)
            renewed(run, client->renewals[number % CLIENT_RENEWALS].sent_us);
        else if (is_loss(item.outcome) && run->ask.state != ASK_SENT)
            lose(run, calls);
    }
}

static bool is_key(const struct message *record, const char *text) {
    size_t size = strlen(text);
    return record->key && record->key_size == size && memcmp(record->key, text, size) == 0;
}

static bool is_wanted(struct lease_client *client, const struct message *record) {
    struct lease_run *run;
    if (is_key(record, link_holder(client->link)))
        return true;
    TAILQ_FOREACH(run, &client->runs, all)
        if (run->ask.state == ASK_SENT && is_key(record, run->lease))
            return true;
    return false;
}

void client_take_result(struct lease_client *client, const struct message *record, struct call_list *calls) {
    struct messages_result result;
    pthread_mutex_lock(&client->lock);
    if (is_wanted(client, record) && messages_read_result(record, &result)) {
        uint64_t number = link_number_of(client->link, result.command.source, result.command.id);
        struct lease_run *run = number > 0 ? find_run(client, number, result.lease) : NULL;
        if (result.is_answered)
            take_renewals(client, &result, number, calls);
        else if (run)
            take_answer(run, &result, calls);
        messages_free(result.document);
    }
    pthread_mutex_unlock(&client->lock);
}
