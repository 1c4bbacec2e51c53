/* The gate of topic consumers: its rule as a table (F2, F31: two histories, stragglers), how it begins, what its bound may and may not do,
 * and random play against a statement of the rule that forgets nothing. */
#include "common/gate.h"

#include "common/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* ---- records as the relay writes them ---- */

static struct claim_id claim_of(int number) {
    struct claim_id claim_id = {{0}};
    claim_id.bytes[0] = (uint8_t)(number >> 24);
    claim_id.bytes[1] = (uint8_t)(number >> 16);
    claim_id.bytes[2] = (uint8_t)(number >> 8);
    claim_id.bytes[3] = (uint8_t)number;
    claim_id.bytes[15] = 1; /* none is the nil UUID */
    return claim_id;
}

struct grant {
    const char *lease;
    int64_t number, fence; /* fence 0: none */
    int claim;             /* 0: none */
    int64_t min_fence;     /* 0: none */
    bool is_finished;
};

/* Feeds it as the record of cleanup/<lease>. */
static bool feed_at(struct gate *gate, const struct grant *grant, int32_t partition, int64_t offset, struct error *error) {
    struct record record;
    record_init(&record);
    struct journal_row row = JOURNAL_ROW_INIT;
    row.number = grant->number;
    row.event = "granted";
    row.kind = "cleanup";
    row.subject = grant->lease;
    row.state = grant->is_finished ? "finished" : grant->min_fence > grant->fence ? "ready" : "held";
    row.changes_lease = true;
    if (grant->fence > 0)
        row.fence = grant->fence;
    if (grant->min_fence > 0)
        row.min_fence = grant->min_fence;
    row.has_claim_id = grant->claim > 0;
    row.claim_id = claim_of(grant->claim);
    assert_true(record_encode_state(&record, &row, 1));
    const struct message message = {.topic = "lease.state", .partition = partition, .offset = offset,
                                    .key = record.key, .key_size = record.key_size, .value = record.value,
                                    .value_size = record.value_size, .headers = record.headers, .header_count = record.header_count};
    bool done = gate_feed(gate, &message, error);
    record_release(&record);
    return done;
}

static void feed(struct gate *gate, const char *lease, int64_t number, int64_t fence, int claim, int64_t min_fence) {
    struct error error;
    struct grant grant = {lease, number, fence, claim, min_fence, false};
    assert_true(feed_at(gate, &grant, 0, number, &error));
}

static void feed_finished(struct gate *gate, const char *lease, int64_t number, int64_t fence, int claim) {
    struct error error;
    struct grant grant = {lease, number, fence, claim, fence, true};
    assert_true(feed_at(gate, &grant, 0, number, &error));
}

static enum gate_verdict ask_effect(struct gate *gate, const char *resource, int64_t fence, int claim, int64_t effect) {
    struct gate_request request = {resource, strlen(resource), fence, claim_of(claim), effect};
    return gate_admit(gate, &request);
}

static enum gate_verdict ask(struct gate *gate, const char *resource, int64_t fence, int claim) {
    return ask_effect(gate, resource, fence, claim, 0);
}

static void done(struct gate *gate, const char *resource, int64_t fence, int claim, int64_t effect) {
    struct gate_request request = {resource, strlen(resource), fence, claim_of(claim), effect};
    gate_done(gate, &request);
}

static struct gate *ready_gate(size_t resources_max) {
    struct gate *gate = gate_new(&(struct gate_options){.resources_max = resources_max});
    gate_begin(gate, NULL, 0);
    return gate;
}

#define RESOURCE "cleanup/f1"

/* ---- the rule ---- */

enum { STATE, ADMITTED, DONE };

struct step {
    int what;
    int64_t number; /* of a record; of a done effect */
    int64_t fence;
    int claim;
    int64_t min_fence;
};

struct row {
    const char *name;
    struct step before[4];
    int64_t fence;
    int claim;
    int64_t effect;
    enum gate_verdict verdict;
};

#define S(number, fence, claim, floor) {STATE, number, fence, claim, floor}
#define A(fence, claim) {ADMITTED, 0, fence, claim, 0}
#define D(effect, fence, claim) {DONE, effect, fence, claim, 0}

static const struct row rows[] = {
    {"nothing known", {{0}}, 5, 1, 0, GATE_ADMIT},
    {"below what was admitted", {A(5, 1)}, 4, 1, 0, GATE_STALE},
    {"the same again", {A(5, 1)}, 5, 1, 0, GATE_ADMIT},
    {"another claim under the same fence", {A(5, 1)}, 5, 2, 0, GATE_STALE},
    {"above what was admitted", {A(5, 1)}, 6, 2, 0, GATE_ADMIT},
    {"the last grant, as published", {S(1, 5, 1, 5)}, 5, 1, 0, GATE_ADMIT},
    {"before the last grant", {S(1, 5, 1, 5)}, 4, 1, 0, GATE_STALE},
    {"another claim than published", {S(1, 5, 1, 5)}, 5, 2, 0, GATE_STALE},
    {"ahead of what is published", {S(1, 5, 1, 5)}, 6, 2, 0, GATE_ADMIT},
    {"behind the end of its lease", {S(1, 5, 1, 5), S(2, 5, 1, 6)}, 5, 1, 0, GATE_STALE},
    {"behind its end, admitted before", {S(1, 5, 1, 5), A(5, 1), S(2, 5, 1, 6)}, 5, 1, 0, GATE_STALE},
    {"its own finish: effects may be under way", {S(1, 5, 1, 5), S(2, 5, 1, 5)}, 5, 1, 0, GATE_ADMIT},
    {"the next after an end", {S(2, 5, 1, 6)}, 6, 2, 0, GATE_ADMIT},
    {"an end without a claim", {S(2, 5, 0, 6)}, 5, 1, 0, GATE_STALE},
    {"a fence without claim or floor", {S(2, 5, 0, 0)}, 4, 1, 0, GATE_STALE},
    {"only a floor (restated as absent)", {S(2, 0, 0, 9)}, 8, 1, 0, GATE_STALE},
    {"requested: nothing is said", {S(2, 0, 0, 0)}, 1, 1, 0, GATE_ADMIT},
    {"requested anew: the floor stays", {S(2, 5, 1, 6), S(9, 0, 0, 0)}, 5, 1, 0, GATE_STALE},
    {"a straggler lowers nothing", {S(7, 6, 2, 6), S(3, 5, 1, 5)}, 5, 1, 0, GATE_STALE},
    {"a straggler takes nothing away", {S(7, 6, 2, 6), S(3, 5, 1, 5)}, 6, 2, 0, GATE_ADMIT},
    {"published late, admitted ahead", {A(6, 2), S(3, 5, 1, 5)}, 6, 2, 0, GATE_ADMIT},
    {"two histories: the newer record says who", {S(1, 5, 1, 5), S(9, 5, 2, 5)}, 5, 2, 0, GATE_ADMIT},
    {"two histories: and who not", {S(1, 5, 1, 5), S(9, 5, 2, 5)}, 5, 1, 0, GATE_STALE},
    {"two histories, in the other order", {S(9, 5, 2, 5), S(1, 5, 1, 5)}, 5, 1, 0, GATE_STALE},
    {"two histories: who was admitted stays", {S(1, 5, 1, 5), A(5, 1), S(9, 5, 2, 5)}, 5, 2, 0, GATE_STALE},
    {"two histories: who was admitted may go on", {S(1, 5, 1, 5), A(5, 1), S(9, 5, 2, 5)}, 5, 1, 0, GATE_ADMIT},
    {"an effect that is not done", {A(5, 1)}, 5, 1, 1, GATE_ADMIT},
    {"an effect that is done", {A(5, 1), D(3, 5, 1)}, 5, 1, 3, GATE_DUPLICATE},
    {"an effect before one that is done", {A(5, 1), D(3, 5, 1)}, 5, 1, 2, GATE_DUPLICATE},
    {"the next effect", {A(5, 1), D(3, 5, 1)}, 5, 1, 4, GATE_ADMIT},
    {"an effect without a number", {A(5, 1), D(3, 5, 1)}, 5, 1, 0, GATE_ADMIT},
    {"numbers begin anew with a grant", {A(5, 1), D(3, 5, 1)}, 6, 2, 1, GATE_ADMIT},
    {"numbers begin anew with a published grant", {A(5, 1), D(3, 5, 1), S(9, 6, 2, 6)}, 6, 2, 1, GATE_ADMIT},
    {"done too late to count", {A(5, 1), A(6, 2), D(3, 5, 1)}, 6, 2, 1, GATE_ADMIT},
    {"stale comes before duplicate", {A(5, 1), D(3, 5, 1), A(6, 2)}, 5, 1, 3, GATE_STALE},
    {"no fence at all", {{0}}, 0, 1, 0, GATE_STALE},
    {"a negative fence", {{0}}, -5, 1, 0, GATE_STALE},
    {"above all fences", {{0}}, LEASE_FENCE_MAX + 1, 1, 0, GATE_STALE},
    {"the last fence", {{0}}, LEASE_FENCE_MAX, 1, 0, GATE_ADMIT},
};

static void test_gate__keeps_the_rule(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        struct gate *gate = ready_gate(0);
        for (size_t j = 0; j < 4; j++) {
            const struct step *step = &row->before[j];
            if (step->what == STATE && step->number > 0)
                feed(gate, "f1", step->number, step->fence, step->claim, step->min_fence);
            if (step->what == ADMITTED)
                assert_int_equal(ask(gate, RESOURCE, step->fence, step->claim), GATE_ADMIT);
            if (step->what == DONE)
                done(gate, RESOURCE, step->fence, step->claim, step->number);
        }
        enum gate_verdict verdict = ask_effect(gate, RESOURCE, row->fence, row->claim, row->effect);
        if (verdict != row->verdict)
            fail_msg("%s: %s instead of %s", row->name, gate_verdict_name(verdict), gate_verdict_name(row->verdict));
        assert_int_equal(ask(gate, "cleanup/other", 1, 9), GATE_ADMIT);
        gate_free(gate);
    }
}

static void test_gate__takes_no_name_that_is_none(void **state) {
    (void)state;
    static char name[GATE_RESOURCE_NAME_MAX + 2];
    memset(name, 'x', sizeof name - 1);
    struct gate *gate = ready_gate(0);
    assert_int_equal(ask(gate, "", 5, 1), GATE_STALE);
    assert_int_equal(ask(gate, name, 5, 1), GATE_STALE);
    name[GATE_RESOURCE_NAME_MAX] = '\0';
    assert_int_equal(ask(gate, name, 5, 1), GATE_ADMIT);
    struct gate_request null_name = {NULL, 0, 5, claim_of(1), 0};
    assert_int_equal(gate_admit(gate, &null_name), GATE_STALE);
    gate_free(gate);
}

/* ---- how it begins ---- */

static void test_gate__admits_nobody_before_it_has_read_what_was_there(void **state) {
    (void)state;
    struct error error;
    struct gate *gate = gate_new(NULL);
    assert_int_equal(ask(gate, "r", 5, 1), GATE_NOT_READY);
    assert_false(gate_is_ready(gate));
    const int64_t ends[] = {0, 3, 10};
    gate_begin(gate, ends, 3);
    struct grant grant = {"f1", 1, 5, 1, 5, false};
    for (int64_t offset = 0; offset < 3; offset++) {
        assert_int_equal(ask(gate, "r", 5, 1), GATE_NOT_READY);
        assert_true(feed_at(gate, &grant, 1, offset, &error));
    }
    assert_true(feed_at(gate, &grant, 1, 3, &error)); /* what came after counts for nothing here */
    assert_true(feed_at(gate, &grant, 0, 0, &error));
    assert_int_equal(ask(gate, "r", 5, 1), GATE_NOT_READY);
    gate_reached(gate, 2, 9); /* its last records were compacted away */
    assert_false(gate_is_ready(gate));
    gate_reached(gate, 7, 100); /* none of ours */
    gate_reached(gate, -1, 100);
    assert_false(gate_is_ready(gate));
    gate_reached(gate, 2, 10);
    gate_reached(gate, 2, 10);
    assert_true(gate_is_ready(gate));
    assert_int_equal(ask(gate, RESOURCE, 4, 1), GATE_STALE);
    gate_begin(gate, ends, 3);
    assert_int_equal(ask(gate, RESOURCE, 5, 1), GATE_NOT_READY);
    struct gate_counts counts;
    gate_get_counts(gate, &counts);
    assert_int_equal(counts.verdicts[GATE_NOT_READY], 6);
    assert_int_equal(counts.verdicts[GATE_STALE], 1);
    gate_free(gate);
}

#define HEADER(name, text) ((struct message_header){name, sizeof(name) - 1, text, sizeof(text) - 1})

static bool feed_text(struct gate *gate, const char *value, const struct message_header *headers, size_t count, struct error *error) {
    struct message message = {.topic = "lease.state", .key = RESOURCE, .key_size = sizeof RESOURCE - 1, .value = value,
                              .value_size = value ? strlen(value) : 0, .headers = headers, .header_count = count, .offset = 4};
    return gate_feed(gate, &message, error);
}

static void test_gate__skips_marks_null_values_and_what_no_relay_wrote(void **state) {
    (void)state;
    struct error error;
    const struct message_header mark[] = {HEADER("lease_mark", "1"), HEADER("lease_number", "7"), HEADER("lease_epoch", "2")};
    const struct message_header ours[] = {HEADER("lease_number", "7"), HEADER("lease_epoch", "2")};
    struct gate *gate = gate_new(NULL);
    gate_begin(gate, (int64_t[]){5}, 1);
    assert_true(feed_text(gate, "{\"epoch\":2,\"number\":7,\"fence\":99,\"timeline\":1}", mark, 3, &error));
    assert_true(gate_is_ready(gate)); /* but it is read */
    assert_true(feed_text(gate, NULL, ours, 2, &error));
    assert_true(feed_text(gate, "rubbish", NULL, 0, &error));
    assert_true(feed_text(gate, "{\"number\":8,\"min_fence\":99}", NULL, 0, &error));
    assert_int_equal(ask(gate, RESOURCE, 1, 1), GATE_ADMIT);
    struct gate_counts counts;
    gate_get_counts(gate, &counts);
    assert_int_equal(counts.marks, 1);
    assert_int_equal(counts.strangers, 3);
    assert_int_equal(counts.records, 0);
    gate_free(gate);
}

static void test_gate__does_not_go_on_over_a_record_that_it_cannot_read(void **state) {
    (void)state;
    static const char *const values[] = {"", "{", "{}", "[]", "{\"number\":7", "{\"number\":8,\"state\":\"held\"}", "{\"number\":7,\"fence\":-1}",
                                         "{\"number\":7,\"min_fence\":1e3}", "{\"number\":7,\"fence\":5,\"claim_id\":\"x\"}",
                                         "{\"number\":7,\"fence\":99999999999999999999}", "{\"number\":7,\"fence\":5,\"claim_id\":null}"};
    const struct message_header headers[] = {HEADER("lease_number", "7"), HEADER("lease_epoch", "2")};
    struct error error;
    struct gate *gate = gate_new(NULL);
    gate_begin(gate, (int64_t[]){5}, 1);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (feed_text(gate, values[i], headers, 2, &error))
            fail_msg("%s was taken", values[i]);
        assert_string_equal(error.code, "gate_unreadable");
        assert_int_equal(error.kind, ERROR_FATAL);
    }
    assert_false(gate_is_ready(gate));
    struct message lost = {.topic = "lease.state", .key = "k/x", .key_size = 3, .value = "{}", .value_size = 2, .has_lost_headers = true};
    assert_false(gate_feed(gate, &lost, &error));
    /* Members that this version does not know are none of its business. */
    assert_true(feed_text(gate, "{\"number\":7,\"new\":{\"fence\":[1]},\"min_fence\":5}", headers, 2, &error));
    assert_int_equal(ask(gate, RESOURCE, 4, 1), GATE_STALE);
    gate_free(gate);
}

static bool by_file(void *context, const char *key, size_t size, struct buf *resource) {
    (void)context;
    if (size < 8 || memcmp(key, "cleanup/", 8) != 0)
        return false;
    buf_append_text(resource, "file/");
    buf_append(resource, key + 8, size - 8);
    return true;
}

static void test_gate__may_know_resources_by_another_name(void **state) {
    (void)state;
    struct gate *gate = gate_new(&(struct gate_options){.resource = by_file});
    gate_begin(gate, NULL, 0);
    feed(gate, "f1", 1, 5, 1, 6);
    assert_int_equal(ask(gate, "file/f1", 5, 1), GATE_STALE);
    assert_int_equal(ask(gate, "cleanup/f1", 5, 1), GATE_ADMIT);
    gate_free(gate);
}

/* ---- the bound ---- */

static const char *name_of(char text[32], const char *kind, int number) {
    snprintf(text, 32, "%s%d", kind, number);
    return text;
}

static void test_gate__forgets_what_has_ended_first_and_then_refuses_what_it_forgot(void **state) {
    (void)state;
    char text[32];
    struct gate_counts counts;
    struct gate *gate = ready_gate(64);
    for (int i = 1; i <= 40; i++)
        feed(gate, name_of(text, "live", i), i, i, i, i);
    for (int i = 41; i <= 1000; i++)
        feed(gate, name_of(text, "over", i), i, i, i, i + 1);
    gate_get_counts(gate, &counts);
    assert_true(counts.resources <= 64);
    assert_int_equal(counts.forgotten, 1000 - (int64_t)counts.resources);
    assert_true(counts.base > 900 && counts.base <= 1001);
    for (int i = 41; i <= 1000; i++)
        assert_int_equal(ask(gate, name_of(text, "cleanup/over", i), i, i), GATE_STALE);
    for (int i = 1; i <= 40; i++)
        assert_int_equal(ask(gate, name_of(text, "cleanup/live", i), i, i), GATE_ADMIT);
    assert_int_equal(ask(gate, "cleanup/never-seen", counts.base - 1, 1), GATE_STALE);
    assert_int_equal(ask(gate, "cleanup/never-seen", counts.base, 1), GATE_ADMIT);
    gate_free(gate);
}

/* A partition that is read before another makes the base rise; the live leases of the other must not suffer. */
static void test_gate__lets_live_leases_in_that_it_hears_of_after_it_forgot_others(void **state) {
    (void)state;
    char text[32];
    struct error error;
    struct gate *gate = gate_new(&(struct gate_options){.resources_max = 64});
    gate_begin(gate, (int64_t[]){1001, 101}, 2);
    for (int i = 1; i <= 1000; i++) {
        struct grant over = {name_of(text, "over", i), 100 + i, 100 + i, i, 101 + i, false};
        assert_true(feed_at(gate, &over, 0, i, &error));
    }
    struct grant live = {"live", 50, 50, 7, 50, false}, straggler = {"late", 49, 49, 7, 49, false};
    assert_true(feed_at(gate, &live, 1, 99, &error));
    assert_true(feed_at(gate, &straggler, 1, 100, &error)); /* may stand for anything that was forgotten */
    assert_true(gate_is_ready(gate));
    assert_int_equal(ask(gate, "cleanup/live", 49, 7), GATE_STALE);
    assert_int_equal(ask(gate, "cleanup/live", 50, 7), GATE_ADMIT);
    assert_int_equal(ask(gate, "cleanup/late", 49, 7), GATE_STALE);
    gate_free(gate);
}

static void test_gate__remembers_whom_it_admitted_before_any_record_said_so(void **state) {
    (void)state;
    char text[32];
    struct error error;
    struct gate *gate = gate_new(&(struct gate_options){.resources_max = 8});
    gate_begin(gate, (int64_t[]){0}, 1);
    assert_int_equal(ask(gate, RESOURCE, 60, 2), GATE_ADMIT); /* its record comes later */
    for (int i = 100; i < 200; i++)
        assert_int_equal(ask(gate, name_of(text, "other/", i), i, i), GATE_ADMIT);
    struct grant before = {"f1", 50, 50, 1, 50, false};
    assert_true(feed_at(gate, &before, 0, 1, &error));
    assert_int_equal(ask(gate, RESOURCE, 50, 1), GATE_STALE);
    gate_free(gate);
}

/* Found by a random play: the fence had been given out twice, and whom it was admitted for was forgotten in between. */
static void test_gate__refuses_another_claim_under_a_fence_that_it_admitted_and_forgot(void **state) {
    (void)state;
    char text[32];
    struct error error;
    struct gate *gate = gate_new(&(struct gate_options){.resources_max = 8});
    gate_begin(gate, (int64_t[]){0, 0}, 2);
    struct grant first = {"f1", 50, 50, 1, 50, false}, second = {"f1", 51, 50, 2, 50, false};
    assert_true(feed_at(gate, &first, 0, 1, &error));
    assert_int_equal(ask(gate, RESOURCE, 50, 1), GATE_ADMIT);
    for (int i = 100; i < 200; i++) {
        struct grant other = {name_of(text, "o", i), 1000 + i, i, i, i, false};
        assert_true(feed_at(gate, &other, 1, i, &error));
    }
    assert_true(feed_at(gate, &second, 0, 2, &error));
    assert_int_equal(ask(gate, RESOURCE, 50, 2), GATE_STALE);
    gate_free(gate);
}

/* ---- random play ---- */

enum { LEASES = 12, EVENTS_MAX = 4000, PARTITIONS = 3 };

struct event {
    bool is_record;
    int lease;
    int64_t number, fence, min_fence;
    int claim;
};

/* Everything that ever happened, looked through anew for each verdict. */
struct reference {
    struct event events[EVENTS_MAX];
    size_t count;
    int64_t done[LEASES][EVENTS_MAX]; /* by fence: the last effect that is done */
};

static bool is_refused(const struct reference *reference, int lease, int64_t fence, int claim) {
    int64_t floor = 0, published = 0, admitted = 0, number = 0;
    int published_claim = 0, admitted_claim = 0;
    for (size_t i = 0; i < reference->count; i++) {
        const struct event *event = &reference->events[i];
        if (event->lease != lease)
            continue;
        if (!event->is_record) {
            admitted = event->fence > admitted ? event->fence : admitted;
            admitted_claim = event->fence == admitted ? event->claim : admitted_claim;
            continue;
        }
        floor = event->min_fence > floor ? event->min_fence : floor;
        if (event->fence > published || (event->fence == published && event->number > number)) {
            published = event->fence;
            published_claim = event->claim;
            number = event->number;
        }
    }
    if (fence < floor || fence < published || fence < admitted)
        return true;
    if (fence == admitted)
        return claim != admitted_claim;
    return fence == published && claim != published_claim;
}

struct play {
    struct gate *gate;
    struct reference reference;
    struct event published[EVENTS_MAX]; /* records in the journal's order */
    size_t published_count, fed[PARTITIONS];
    int64_t fence, number, offset;
    int64_t live[LEASES]; /* the fence of who has it; 0 = nobody */
    int claims[LEASES];
    int verdicts[GATE_VERDICT_COUNT];
};

static unsigned random_state;

static int random_below(int bound) {
    random_state = random_state * 1103515245u + 12345u;
    return (int)((random_state >> 8) % (unsigned)bound);
}

static void publish(struct play *play, int lease, int64_t fence, int claim, int64_t min_fence) {
    play->published[play->published_count++] = (struct event){true, lease, ++play->number, fence, min_fence, claim};
}

/* A lease is granted, ends, or was given out under one fence twice. */
static void decide(struct play *play) {
    int lease = random_below(LEASES);
    if (play->published_count + 2 > EVENTS_MAX)
        return;
    if (play->live[lease] > 0 && random_below(10) > 0) {
        publish(play, lease, play->live[lease], random_below(2) ? play->claims[lease] : 0, play->live[lease] + 1);
        play->live[lease] = 0;
        return;
    }
    bool is_twice = play->live[lease] > 0;
    if (!is_twice)
        play->live[lease] = ++play->fence;
    play->claims[lease] = (int)play->fence * 2 + is_twice;
    publish(play, lease, play->live[lease], play->claims[lease], play->live[lease]);
}

static void feed_event(struct play *play, const struct event *event) {
    char text[32];
    struct error error;
    /* Ends without a claim say nothing that their floor does not. */
    struct grant grant = {name_of(text, "", event->lease), event->number, event->fence, event->claim, event->min_fence, false};
    assert_true(feed_at(play->gate, &grant, event->lease % PARTITIONS, play->offset++, &error));
    struct event noted = *event;
    if (event->claim == 0)
        noted.fence = 0;
    assert_true(play->reference.count < EVENTS_MAX);
    play->reference.events[play->reference.count++] = noted;
}

/* A partition's next record; or, now and then, one that was read before. */
static void read_state(struct play *play) {
    int partition = random_below(PARTITIONS);
    size_t *next = &play->fed[partition];
    if (*next > 0 && random_below(6) == 0) {
        const struct event *old = &play->published[random_below((int)*next)];
        if (old->lease % PARTITIONS == partition)
            feed_event(play, old);
        return;
    }
    while (*next < play->published_count && play->published[*next].lease % PARTITIONS != partition)
        ++*next;
    if (*next < play->published_count)
        feed_event(play, &play->published[(*next)++]);
}

static void ask_at_random(struct play *play, bool is_exact) {
    char text[32];
    int lease = random_below(LEASES);
    int64_t fence = random_below(3) ? play->fence - random_below(LEASES) : play->live[lease];
    if (fence < 1 || fence >= EVENTS_MAX)
        return;
    int claim = (int)fence * 2 + (random_below(4) == 0);
    int64_t effect = random_below(4);
    bool refused = is_refused(&play->reference, lease, fence, claim);
    int64_t *last_done = &play->reference.done[lease][fence];
    enum gate_verdict expected = refused ? GATE_STALE : effect > 0 && effect <= *last_done ? GATE_DUPLICATE : GATE_ADMIT;
    enum gate_verdict verdict = ask_effect(play->gate, name_of(text, "cleanup/", lease), fence, claim, effect);
    if (verdict != expected && (is_exact || verdict != GATE_STALE))
        fail_msg("lease %d, fence %lld, claim %d: %s instead of %s", lease, (long long)fence, claim, gate_verdict_name(verdict),
                 gate_verdict_name(expected));
    play->verdicts[verdict]++;
    if (verdict == GATE_STALE)
        return;
    assert_true(play->reference.count < EVENTS_MAX);
    play->reference.events[play->reference.count++] = (struct event){false, lease, 0, fence, 0, claim};
    if (random_below(2)) {
        done(play->gate, text, fence, claim, effect);
        *last_done = effect > *last_done ? effect : *last_done;
    }
}

static unsigned seed(void) {
    const char *given = getenv("LEASE_TEST_SEED");
    unsigned value = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    printf("seed %u\n", value);
    return value;
}

/* Bounded: whom it turns away more is not said here; whom it lets in is never one that the whole history refuses. */
static void play_games(size_t resources_max, bool is_exact, int games) {
    struct play *play = malloc(sizeof *play);
    int verdicts[GATE_VERDICT_COUNT] = {0};
    struct gate_counts counts = {0};
    assert_non_null(play);
    for (int game = 0; game < games; game++) {
        memset(play, 0, sizeof *play);
        play->gate = gate_new(&(struct gate_options){.resources_max = resources_max});
        gate_begin(play->gate, (int64_t[PARTITIONS]){0}, PARTITIONS);
        for (int step = 0; step < 1000; step++) {
            int roll = random_below(10);
            if (roll < 3)
                decide(play);
            else if (roll < 6)
                read_state(play);
            else
                ask_at_random(play, is_exact);
        }
        for (int i = 0; i < GATE_VERDICT_COUNT; i++)
            verdicts[i] += play->verdicts[i];
        gate_get_counts(play->gate, &counts);
        assert_true(counts.resources <= (resources_max ? resources_max : LEASES));
        gate_free(play->gate);
    }
    free(play);
    printf("%d games: %d admitted, %d duplicates, %d stale; %lld forgotten in the last\n", games, verdicts[GATE_ADMIT],
           verdicts[GATE_DUPLICATE], verdicts[GATE_STALE], (long long)counts.forgotten);
    assert_true(verdicts[GATE_ADMIT] > games && verdicts[GATE_DUPLICATE] > games && verdicts[GATE_STALE] > games);
    assert_true(resources_max == 0 || counts.forgotten > 0);
}

static void test_gate__agrees_with_the_whole_history(void **state) {
    (void)state;
    random_state = seed();
    play_games(0, true, 200);
}

static void test_gate__never_admits_more_than_the_whole_history_when_it_forgets(void **state) {
    (void)state;
    random_state = seed() + 1;
    play_games(GATE_RESOURCES_MIN, false, 200);
}

/* A finish is no floor above its fence, and an end all the same. */
static void test_gate__forgets_what_is_finished_before_what_is_held(void **state) {
    (void)state;
    struct gate *gate = ready_gate(8);
    static const char *const held[] = {"h1", "h2", "h3", "h4"}, *const finished[] = {"f1", "f2", "f3", "f4"};
    for (int i = 0; i < 4; i++)
        feed(gate, held[i], i + 1, i + 1, i + 1, i + 1);
    for (int i = 0; i < 4; i++)
        feed_finished(gate, finished[i], i + 5, i + 5, i + 5);
    feed(gate, "h5", 9, 9, 9, 9);
    assert_int_equal(ask(gate, "cleanup/h1", 1, 1), GATE_ADMIT);
    assert_int_equal(ask(gate, "cleanup/f1", 5, 5), GATE_STALE); /* its place was needed */
    assert_int_equal(ask(gate, "cleanup/f2", 6, 6), GATE_ADMIT); /* sent before the finish, and late */
    gate_free(gate);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gate__forgets_what_is_finished_before_what_is_held),
        cmocka_unit_test(test_gate__keeps_the_rule),
        cmocka_unit_test(test_gate__takes_no_name_that_is_none),
        cmocka_unit_test(test_gate__admits_nobody_before_it_has_read_what_was_there),
        cmocka_unit_test(test_gate__skips_marks_null_values_and_what_no_relay_wrote),
        cmocka_unit_test(test_gate__does_not_go_on_over_a_record_that_it_cannot_read),
        cmocka_unit_test(test_gate__may_know_resources_by_another_name),
        cmocka_unit_test(test_gate__forgets_what_has_ended_first_and_then_refuses_what_it_forgot),
        cmocka_unit_test(test_gate__lets_live_leases_in_that_it_hears_of_after_it_forgot_others),
        cmocka_unit_test(test_gate__remembers_whom_it_admitted_before_any_record_said_so),
        cmocka_unit_test(test_gate__refuses_another_claim_under_a_fence_that_it_admitted_and_forgot),
        cmocka_unit_test(test_gate__agrees_with_the_whole_history),
        cmocka_unit_test(test_gate__never_admits_more_than_the_whole_history_when_it_forgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
