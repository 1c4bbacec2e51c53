/* The other side of the comparison: a database of its own, made from sql/, and lease.apply and lease.reap
 * called on it. Names and numbers of the model become text here, and rows become structs. Test code: any error
 * ends the program, but one raised by lease.apply or lease.reap is a finding and is handed back. */
#ifndef TESTS_MODEL_DATABASE_H
#define TESTS_MODEL_DATABASE_H

#include "script.h"

#define CLAIM_ID_SIZE 40
#define NAME_SIZE 48

struct database;

/* One row of lease.apply; of a member, what its head's answer tells of it, or all absent. Absent numbers are MODEL_NONE, absent
 * texts "". */
struct database_answer {
    char outcome[24];
    int64_t number, fence, until;
    char claim_id[CLAIM_ID_SIZE];
};

struct database_event {
    int64_t number, fence, min_fence, until, amount, refresh, attempt;
    char event[24], kind[NAME_SIZE], subject[NAME_SIZE], message_id[NAME_SIZE], holder[NAME_SIZE], state[24], step[NAME_SIZE];
    char claim_id[CLAIM_ID_SIZE], blocker_kind[NAME_SIZE], blocker_lease[NAME_SIZE], original[24], payload[NAME_SIZE];
    bool changes_lease, is_grant;
};

struct database_lease {
    char kind[NAME_SIZE], lease[NAME_SIZE], state[24], condition[24], holder[NAME_SIZE], step[NAME_SIZE];
    int64_t fence, until, attempt, covered, ready_at;
    bool is_overtaken;
};

struct database_resource {
    char resource[NAME_SIZE];
    int64_t fence;
};

struct database_demand {
    char kind[NAME_SIZE], worker[NAME_SIZE];
    int64_t credit_total, granted, refresh, wait_until;
};

/* A template: the schema and the test's kinds. Databases are then copied from it. */
struct database *database_template_new(const char *conninfo, const char *sql_folder, const struct model_kind *kinds, int kind_count);
struct database *database_copy_new(const struct database *template);
/* Closes the connection and drops the database. */
void database_free(struct database *database);

void database_insert_unfenced(struct database *database, const struct model_kind *kinds, int kind, int lease);

/* Fences and claim ids in the messages are the model's; these say what the database called them. */
void database_map_grant(struct database *database, int64_t model_fence, int64_t fence, const char *claim_id);
int64_t database_fence(const struct database *database, int64_t model_fence);

bool database_apply(struct database *database, const struct model_kind *kinds, const struct model_message *messages, size_t count,
                    int64_t at, struct database_answer *ret_answers);
/* Prints the statement that database_apply would run, for psql. */
void database_print_apply(struct database *database, const struct model_kind *kinds, const struct model_message *messages,
                          size_t count, int64_t at);
bool database_reap(struct database *database, int limit, int64_t at, int *ret_turned);
/* What the last refused call raised. */
const char *database_error(const struct database *database);

/* Each of these allocates its rows; the caller frees them. */
struct database_event *database_events(struct database *database, int64_t after, size_t *ret_count);
struct database_lease *database_leases(struct database *database, size_t *ret_count);
struct database_lease *database_some_leases(struct database *database, const char *kinds, const char *leases, size_t *ret_count);
struct database_resource *database_resources(struct database *database, size_t *ret_count);
struct database_demand *database_demands(struct database *database, size_t *ret_count);

void name_lease(char *ret, int lease);
void name_worker(char *ret, int worker);
void name_holder(char *ret, const struct model_kind *kind, int holder);
void name_resource(char *ret, int resource);
const char *name_step(int step);

#endif
