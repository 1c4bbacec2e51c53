#include "tests/bench/workload.h"

#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t workload_grants(enum workload_kind kind, size_t count) {
    switch (kind) {
    case WORKLOAD_MIXED: return count / 10 * 6 + 6;
    case WORKLOAD_HOT: return 1;
    case WORKLOAD_STARTS: break;
    }
    return 0;
}

/* The place of the i-th event's grant among those of the mix, -1: it needs none. */
static long grant_of(size_t i) {
    size_t in_ten = i % 10;
    return in_ten < 6 ? (long)(i / 10 * 6 + in_ten) : -1;
}

/* Starts through lease.apply itself, a thousand at a time, and reads back what was granted. */
struct grant *workload_fill(struct db *db, const struct token_keys *keys, const char *run, size_t count) {
    static const char fill_sql[] =
        "SELECT count(*) FROM (SELECT array_agg('bench'::text) ot, array_agg(0) op, array_agg(i::bigint) oo, array_agg('settlement'::text) k,"
        " array_agg('start'::text) c, array_agg($1 || '-held-' || i) s, array_agg('/bench/fill'::text) so, array_agg($1 || '-' || i) id,"
        " array_agg('\\x00112233445566778899aabbccddeeff'::bytea) d, array_agg(NULL::text) t, array_agg('run-' || i) h, array_agg(3600000::bigint) ttl"
        " FROM generate_series($2::bigint, $3::bigint) i) a, LATERAL lease.apply(ot, op, oo, k, c, s, so, id, d, t, h, NULL, NULL, NULL, ttl,"
        " NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) r WHERE r.outcome = 'granted'";
    static const char read_sql[] = "SELECT lease, holder, claim_id::text AS claim_id, fence FROM lease.leases"
                                   " WHERE kind = 'settlement' AND lease LIKE $1 || '-held-%' ORDER BY fence";
    struct error error = {0};
    struct db_params params;
    struct db_result *rows = NULL;
    db_params_init(&params);
    for (size_t from = 0; from < count; from += 1000) {
        size_t upto = from + 1000 < count ? from + 1000 : count;
        db_params_reset(&params);
        db_param_text(&params, run);
        db_param_int8(&params, (int64_t)from);
        db_param_int8(&params, (int64_t)upto - 1);
        require(db_query(db, "fill", fill_sql, &params, &rows, &error), &error);
        require(db_int8(rows, 0, 0) == (int64_t)(upto - from), &error);
        db_result_free(rows);
    }
    db_params_reset(&params);
    db_param_text(&params, run);
    require(db_query(db, NULL, read_sql, &params, &rows, &error), &error);
    require(db_rows(rows) == count, &error);
    struct grant *grants = calloc(count + 1, sizeof *grants);
    for (size_t i = 0; i < count; i++) {
        struct grant *grant = &grants[i];
        snprintf(grant->subject, sizeof grant->subject, "%s", db_text(rows, i, 0, NULL));
        snprintf(grant->holder, sizeof grant->holder, "%s", db_text(rows, i, 1, NULL));
        snprintf(grant->claim_id, sizeof grant->claim_id, "%s", db_text(rows, i, 2, NULL));
        grant->fence = db_int8(rows, i, 3);
        struct claim_id claim_id;
        require(claim_id_parse(grant->claim_id, strlen(grant->claim_id), &claim_id), &error);
        token_derive(keys, &claim_id, grant->token);
    }
    db_result_free(rows);
    db_params_release(&params);
    return grants;
}

static void fill_by_holder(struct event *event, const char *command, const struct grant *grant, const char *more) {
    snprintf(event->type, sizeof event->type, "settlement.%s", command);
    snprintf(event->subject, sizeof event->subject, "%s", grant->subject);
    snprintf(event->value, sizeof event->value,
             "{\"holder\":\"%s\",\"fence\":%lld,\"claim_id\":\"%s\",\"token\":\"%s\"%s}", grant->holder,
             (long long)grant->fence, grant->claim_id, grant->token, more);
}

void workload_event(enum workload_kind kind, const char *run, size_t i, const struct grant *grants, struct event *event) {
    memset(event, 0, sizeof *event);
    snprintf(event->topic, sizeof event->topic, "settlement.events");
    snprintf(event->id, sizeof event->id, "%s-%zu", run, i);
    long grant = kind == WORKLOAD_MIXED ? grant_of(i) : kind == WORKLOAD_HOT ? 0 : -1;
    if (grant >= 0 && (kind == WORKLOAD_HOT || i % 10 < 4)) {
        fill_by_holder(event, "renew", &grants[grant], ",\"ttl_ms\":3600000");
    } else if (grant >= 0) {
        fill_by_holder(event, "finish", &grants[grant], ",\"result\":{\"lines\":1200}");
    } else if (kind == WORKLOAD_MIXED && i % 10 == 9) {
        snprintf(event->topic, sizeof event->topic, "cleanup.events");
        snprintf(event->type, sizeof event->type, "cleanup.request");
        snprintf(event->subject, sizeof event->subject, "%s-item-%zu", run, i);
        snprintf(event->value, sizeof event->value,
                 "{\"payload\":{\"path\":\"uploads/2026/11/%zu.flac\",\"bytes\":31457280,\"account\":\"label-%zu\"}}", i, i % 97);
    } else {
        snprintf(event->type, sizeof event->type, "settlement.start");
        snprintf(event->subject, sizeof event->subject, "%s-%zu", run, i);
        snprintf(event->value, sizeof event->value,
                 "{\"holder\":\"run-%zu\",\"ttl_ms\":3600000,\"payload\":{\"month\":\"2026-10\",\"label\":\"label-%zu\",\"currency\":\"KRW\"}}",
                 i, i % 97);
    }
    event->value_size = strlen(event->value);
    const char *const headers[][2] = {{"ce_specversion", "1.0"}, {"ce_id", event->id}, {"ce_source", "/bench/producer"},
                                      {"ce_type", event->type}, {"ce_subject", event->subject}, {"content-type", "application/json"}};
    for (size_t h = 0; h < 6; h++)
        event->headers[h] = (struct message_header){headers[h][0], strlen(headers[h][0]), headers[h][1], strlen(headers[h][1])};
}

struct message workload_message(const struct event *event, const char *topic, int32_t partition, int64_t offset) {
    return (struct message){.topic = topic, .partition = partition, .offset = offset, .timestamp_ms = 1700000000000,
                            .key = event->subject, .key_size = strlen(event->subject), .value = event->value,
                            .value_size = event->value_size, .headers = event->headers, .header_count = 6};
}
