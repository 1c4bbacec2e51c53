/* What a lease's size costs: renewing and finishing a run over very many resources against one over a single one, and starting
 * a run against a plain UPDATE of the same rows. Timed inside the server, the decision apart from the commit; finishes and
 * starts are rolled back, so that each round meets the same tables. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>

/* lease.apply for one command; how many microseconds it took. */
static const char functions_sql[] =
    "CREATE OR REPLACE FUNCTION public.bench_one(p_command text, p_lease text, p_id text, p_resource text[], p_flag boolean, p_tables text[], p_amount bigint)"
    " RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE l record; t timestamptz; v_outcome text; BEGIN"
    "  SELECT fence, claim_id, holder INTO l FROM lease.leases WHERE kind = 'settlement' AND lease = p_lease;"
    "  t := clock_timestamp();"
    "  SELECT outcome INTO v_outcome FROM lease.apply(ARRAY['bench'], ARRAY[0], ARRAY[0::bigint], ARRAY['settlement'], ARRAY[p_command], ARRAY[p_lease],"
    "   ARRAY['/bench/covered'], ARRAY[p_id], ARRAY['\\x00112233445566778899aabbccddeeff'::bytea], ARRAY[NULL::text], ARRAY[coalesce(l.holder, 'run-1')],"
    "   ARRAY[l.fence], ARRAY[l.claim_id], ARRAY[true], ARRAY[3600000::bigint], ARRAY[p_amount], NULL, NULL, NULL, ARRAY[p_flag],"
    "   ARRAY[coalesce(cardinality(p_resource), 0)], p_resource, ARRAY[coalesce(cardinality(p_tables), 0)], p_tables, NULL, NULL, NULL, NULL, NULL, NULL, NULL);"
    "  IF v_outcome NOT IN ('granted', 'covered', 'renewed', 'finished') THEN RAISE EXCEPTION '% of % answered %', p_command, p_lease, v_outcome; END IF;"
    "  RETURN extract(epoch FROM clock_timestamp() - t) * 1000000; END $$;"
    "CREATE OR REPLACE FUNCTION public.bench_names(p_from bigint, p_upto bigint) RETURNS text[] LANGUAGE sql AS $$"
    "  SELECT array_agg('contract/' || i) FROM generate_series(p_from, p_upto) i $$;"
    "CREATE TABLE IF NOT EXISTS public.bench_plain (resource text COLLATE \"C\" PRIMARY KEY, fence bigint) WITH (fillfactor = 80);";

static int64_t one(struct db *db, const char *command, const char *lease, const char *id, long from, long upto, bool is_more, long amount) {
    char sql[512];
    struct error error = {0};
    struct db_result *rows = NULL;
    char names[96] = "NULL";
    if (upto >= from && from > 0)
        snprintf(names, sizeof names, "public.bench_names(%ld, %ld)", from, upto);
    snprintf(sql, sizeof sql, "SELECT public.bench_one('%s', '%s', '%s', %s, %s, %s, %ld)", command, lease, id, names,
             is_more ? "true" : "NULL", is_more ? "ARRAY['contract']" : "NULL", amount);
    require(db_query(db, NULL, sql, NULL, &rows, &error), &error);
    int64_t took = db_int8(rows, 0, 0);
    db_result_free(rows);
    return took;
}

static void cover(struct db *db, size_t count) {
    char id[48];
    one(db, "start", "big", "big", 0, -1, true, 0);
    for (size_t from = 1; from <= count; from += 10000) {
        size_t upto = from + 9999 < count ? from + 9999 : count;
        snprintf(id, sizeof id, "cover-%zu", from);
        one(db, "cover", "big", id, (long)from, (long)upto, false, 0);
    }
    one(db, "begin", "big", "begin", 0, -1, false, (long)count);
    one(db, "start", "small", "small", (long)count + 1, (long)count + 1, false, 0);
}

static int64_t rolled_back(struct db *db, const char *command, const char *lease, size_t round, long from, long upto) {
    char id[64];
    snprintf(id, sizeof id, "%s-%s-%zu", command, lease, round);
    bench_execute(db, "BEGIN");
    int64_t took = one(db, command, lease, id, from, upto, false, 0);
    bench_execute(db, "ROLLBACK");
    return took;
}

static int64_t plain_update(struct db *db, long count) {
    char sql[256];
    struct error error = {0};
    struct db_result *rows = NULL;
    /* The same way to the rows, and an array made beforehand, as lease.apply gets it. */
    snprintf(sql, sizeof sql, "UPDATE public.bench_plain SET fence = coalesce(fence, 0) + 1 WHERE resource = ANY ((SELECT names FROM bench_array)::text[])");
    (void)count;
    bench_execute(db, "BEGIN");
    int64_t start = now_us();
    require(db_query(db, NULL, sql, NULL, &rows, &error), &error);
    int64_t took = now_us() - start;
    db_result_free(rows);
    bench_execute(db, "ROLLBACK");
    return took;
}

void bench_covered(const struct bench *bench) {
    struct db *db = bench_connect(bench);
    bench_execute(db, functions_sql);
    int64_t start = now_us();
    cover(db, bench->count);
    int64_t covering = now_us() - start;
    long rows = bench->count < 10000 ? (long)bench->count : 10000, from = (long)bench->count + 100;
    char sql[512];
    snprintf(sql, sizeof sql,
             "INSERT INTO public.bench_plain SELECT 'contract/' || i FROM generate_series(%ld, %ld) i;"
             "CREATE TEMP TABLE bench_array AS SELECT public.bench_names(%ld, %ld) AS names;", from, from + rows - 1, from, from + rows - 1);
    bench_execute(db, sql);
    one(db, "start", "seed", "seed", from, from + rows - 1, false, 0);
    one(db, "finish", "seed", "seed-end", 0, -1, false, 0);
    bench_execute(db, "VACUUM ANALYZE public.bench_plain");

    int64_t *values = calloc(bench->rounds * 6, sizeof *values), *at[6];
    for (size_t i = 0; i < 6; i++)
        at[i] = values + i * bench->rounds;
    size_t slow = bench->rounds < 20 ? bench->rounds : 20;
    for (size_t i = 0; i < bench->rounds; i++) {
        at[0][i] = rolled_back(db, "renew", "big", i, 0, -1);
        at[1][i] = rolled_back(db, "renew", "small", i, 0, -1);
        at[2][i] = rolled_back(db, "finish", "big", i, 0, -1);
        at[3][i] = rolled_back(db, "finish", "small", i, 0, -1);
        if (i < slow) {
            at[4][i] = rolled_back(db, "start", "again", i, from, from + rows - 1);
            at[5][i] = plain_update(db, rows);
        }
    }
    printf("covered count %zu cover_us %lld renew_big_us %lld renew_small_us %lld finish_big_us %lld finish_small_us %lld start_rows %ld start_us %lld update_us %lld\n",
           bench->count, (long long)covering, (long long)median(at[0], bench->rounds), (long long)median(at[1], bench->rounds),
           (long long)median(at[2], bench->rounds), (long long)median(at[3], bench->rounds), rows, (long long)median(at[4], slow), (long long)median(at[5], slow));
    free(values);
    db_free(db);
}
