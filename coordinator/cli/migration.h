/* Migration files, what the database says about them, and what is to be done: Flyway's rules, so that a DBA may use
 * Flyway itself on the same folder and the same history table.
 *
 * V<version>__<description>.sql runs once, in order of version; R__<description>.sql runs after them, in byte order of
 * the description, whenever its checksum changed. The checksum is the CRC-32 of the lines without their ends, the byte
 * order mark dropped, as a signed number. Pure but for migration_set_load_folder; the database is command_migrate's. */
#ifndef LEASE_CLI_MIGRATION_H
#define LEASE_CLI_MIGRATION_H

#include "common/error.h"
#include "coordinator/cli/embedded.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Far more than a schema of ours needs; a folder with more is the wrong folder. */
enum { MIGRATION_FILES_MAX = 1000, MIGRATION_FILE_BYTES_MAX = 8 * 1024 * 1024, MIGRATION_VERSION_PARTS = 8 };

struct migration {
    bool is_repeatable;
    char *version; /* "2.1"; NULL for a repeatable one */
    int64_t parts[MIGRATION_VERSION_PARTS];
    char *description; /* "first step" */
    char *script;      /* path below the folder */
    char *text;
    size_t size;
    int32_t checksum;
};

struct migration_set {
    struct migration *items; /* in the order in which they are applied */
    size_t count;
};

int32_t migration_checksum(const char *text, size_t size);

/* Other names than V…__… and R__… are left out. Two files with one version, or repeatable ones with one description, are
 * refused (ERROR_REJECT). On failure the set is empty. */
bool migration_set_load(struct migration_set *set, const struct embedded_file *files, size_t count,
                        struct error *error) MUST_USE;
bool migration_set_load_folder(struct migration_set *set, const char *folder, struct error *error) MUST_USE;
void migration_set_release(struct migration_set *set);

/* A row of flyway_schema_history. */
struct migration_row {
    int32_t rank;
    char *version; /* NULL for a repeatable one */
    char *description;
    char *type; /* SQL, or one of Flyway's own */
    char *script;
    bool has_checksum;
    int32_t checksum;
    bool is_success;
};

struct migration_history {
    struct migration_row *rows; /* by rank */
    size_t count;
};

void migration_history_release(struct migration_history *history);

/* What a file, or a row without one, needs. From MIGRATION_CHANGED on: nothing may be applied. */
enum migration_state {
    MIGRATION_APPLIED,
    MIGRATION_PENDING,
    MIGRATION_AGAIN, /* repeatable, and its text changed */
    MIGRATION_GONE,  /* repeatable, applied once, and this version no longer has it */
    MIGRATION_CHANGED,
    MIGRATION_MISSING,
    MIGRATION_NEWER,
    MIGRATION_OUT_OF_ORDER,
    MIGRATION_FAILED,
    MIGRATION_FOREIGN,
};

const char *migration_state_name(enum migration_state state);
/* What it means and what to do; for the refusals and `--plan`. */
const char *migration_state_meaning(enum migration_state state);

struct migration_step {
    enum migration_state state;
    const struct migration *file;      /* NULL: there is only a row */
    const struct migration_row *row;   /* NULL: never applied */
};

struct migration_plan {
    struct migration_step *steps; /* rows without a file first, then the files in order */
    size_t count;
    size_t pending;               /* steps to be applied */
    const struct migration_step *refusal; /* the first step that forbids applying anything, or NULL */
};

/* Borrows from both; they outlive the plan. */
void migration_plan_make(struct migration_plan *plan, const struct migration_set *set,
                         const struct migration_history *history);
void migration_plan_release(struct migration_plan *plan);

#endif
