/* Flyway's rules for migration files; see migration.h. */
#include "coordinator/cli/migration.h"

#include "common/buf.h"
#include "coordinator/cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- one file ---- */

static const char *skip_byte_order_mark(const char *text, const char *end) {
    return end - text >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? text + 3 : text;
}

int32_t migration_checksum(const char *text, size_t size) {
    const char *end = text + size;
    uLong sum = crc32(0, NULL, 0);
    for (const char *line = skip_byte_order_mark(text, end); line < end;) {
        const char *stop = line;
        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        /* crc32 of no bytes at NULL starts anew: an empty line is passed by, as it adds nothing. */
        if (stop > line)
            sum = crc32(sum, (const Bytef *)line, (uInt)(stop - line));
        line = stop < end ? stop + 1 : end;
    }
    return (int32_t)(uint32_t)sum;
}

/* "2_1" or "2.1" → "2.1" and {2, 1}. */
static bool parse_version(const char *text, size_t size, struct migration *migration) {
    char version[64];
    if (size >= sizeof version)
        return false;
    for (size_t i = 0; i < size; i++)
        version[i] = text[i] == '_' ? '.' : text[i];
    version[size] = '\0';
    const char *at = version;
    for (size_t part = 0; part < MIGRATION_VERSION_PARTS; part++) {
        size_t digits = strspn(at, "0123456789");
        if (digits == 0 || digits > 18) /* 18 digits fit into 63 bits */
            return false;
        migration->parts[part] = strtoll(at, NULL, 10);
        at += digits;
        if (*at == '\0') {
            migration->version = memory_copy_text(version);
            return true;
        }
        if (*at++ != '.')
            return false;
    }
    return false;
}

static char *describe(const char *text, size_t size) {
    char *description = memory_copy_bytes(text, size);
    for (char *at = description; *at != '\0'; at++)
        if (*at == '_')
            *at = ' ';
    return description;
}

/* False: not a migration's name. */
static bool parse_name(const char *script, struct migration *migration) {
    const char *slash = strrchr(script, '/');
    const char *name = slash ? slash + 1 : script;
    size_t size = strlen(name);
    const char *middle = strstr(name, "__");
    if (size < 5 || strcmp(name + size - 4, ".sql") != 0 || middle == NULL)
        return false;
    migration->is_repeatable = name[0] == 'R' && middle == name + 1;
    if (!migration->is_repeatable &&
        (name[0] != 'V' || !parse_version(name + 1, (size_t)(middle - name) - 1, migration)))
        return false;
    migration->description = describe(middle + 2, (size_t)(name + size - 4 - middle) - 2);
    migration->script = memory_copy_text(script);
    return true;
}

static void release_migration(struct migration *migration) {
    free(migration->version);
    free(migration->description);
    free(migration->script);
    free(migration->text);
}

static int compare_versions(const struct migration *left, const struct migration *right) {
    for (size_t i = 0; i < MIGRATION_VERSION_PARTS; i++)
        if (left->parts[i] != right->parts[i])
            return left->parts[i] < right->parts[i] ? -1 : 1;
    return 0;
}

static int compare_migrations(const void *left_item, const void *right_item) {
    const struct migration *left = left_item, *right = right_item;
    if (left->is_repeatable != right->is_repeatable)
        return left->is_repeatable ? 1 : -1;
    return left->is_repeatable ? strcmp(left->description, right->description) : compare_versions(left, right);
}

/* ---- sets ---- */

void migration_set_release(struct migration_set *set) {
    if (set == NULL)
        return;
    for (size_t i = 0; i < set->count; i++)
        release_migration(&set->items[i]);
    free(set->items);
    *set = (struct migration_set){0};
}

static bool add_file(struct migration_set *set, const char *script, const char *text, size_t size, struct error *error) {
    struct migration migration = {0};
    if (!parse_name(script, &migration)) {
        release_migration(&migration);
        return true;
    }
    migration.text = memory_copy_bytes(text, size);
    migration.size = size;
    migration.checksum = migration_checksum(text, size);
    set->items = memory_resize(set->items, set->count + 1, sizeof *set->items);
    set->items[set->count++] = migration;
    if (set->count > MIGRATION_FILES_MAX)
        return error_set(error, ERROR_REJECT, "too_many", "more than %d migrations", MIGRATION_FILES_MAX);
    if (strlen(text) != size)
        return error_set(error, ERROR_REJECT, "not_text", "%s holds a NUL byte", script);
    return true;
}

/* Sorts, and refuses two files that Flyway could not tell apart. */
static bool put_in_order(struct migration_set *set, struct error *error) {
    if (set->count == 0)
        return error_set(error, ERROR_REJECT, "no_migrations", "there are no files named V<n>__<what>.sql or R__<what>.sql");
    qsort(set->items, set->count, sizeof *set->items, compare_migrations);
    for (size_t i = 1; i < set->count; i++)
        if (compare_migrations(&set->items[i - 1], &set->items[i]) == 0)
            return error_set(error, ERROR_REJECT, "two_of_a_name", "%s and %s have the same %s", set->items[i - 1].script,
                             set->items[i].script, set->items[i].is_repeatable ? "description" : "version");
    return true;
}

bool migration_set_load(struct migration_set *set, const struct embedded_file *files, size_t count, struct error *error) {
    *set = (struct migration_set){0};
    bool is_ok = true;
    for (size_t i = 0; i < count && is_ok; i++)
        is_ok = add_file(set, files[i].name, files[i].text, files[i].size, error);
    if (is_ok && put_in_order(set, error))
        return true;
    migration_set_release(set);
    return false;
}

static bool read_whole(const char *path, struct buf *buf, struct error *error) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;
    if (file < 0)
        return error_set(error, ERROR_REJECT, "not_readable", "%s: %s", path, strerror(errno));
    do {
        buf_reserve(buf, 65536);
        got = read(file, buf->data + buf->size, 65536);
        if (got > 0)
            buf->size += (size_t)got;
    } while ((got > 0 && buf->size <= MIGRATION_FILE_BYTES_MAX) || (got < 0 && errno == EINTR));
    int failed = errno;
    close(file);
    if (got < 0)
        return error_set(error, ERROR_REJECT, "not_readable", "%s: %s", path, strerror(failed));
    if (buf->size > MIGRATION_FILE_BYTES_MAX)
        return error_set(error, ERROR_REJECT, "too_large", "%s is larger than %d bytes", path, MIGRATION_FILE_BYTES_MAX);
    buf->data[buf->size] = '\0';
    return true;
}

static bool add_from_folder(struct migration_set *set, FTS *walk, size_t folder_size, struct error *error) {
    for (FTSENT *entry = fts_read(walk); entry != NULL; entry = fts_read(walk)) {
        if (entry->fts_info == FTS_ERR || entry->fts_info == FTS_DNR || entry->fts_info == FTS_NS)
            return error_set(error, ERROR_REJECT, "not_readable", "%s: %s", entry->fts_path, strerror(entry->fts_errno));
        if (entry->fts_info != FTS_F)
            continue;
        size_t length = strlen(entry->fts_path);
        if (length < 4 || strcmp(entry->fts_path + length - 4, ".sql") != 0)
            continue;
        struct buf text = BUF_INIT;
        const char *script = entry->fts_path + folder_size + strspn(entry->fts_path + folder_size, "/");
        bool is_ok = read_whole(entry->fts_path, &text, error) && add_file(set, script, buf_text(&text), text.size, error);
        buf_release(&text);
        if (!is_ok)
            return false;
    }
    return true;
}

bool migration_set_load_folder(struct migration_set *set, const char *folder, struct error *error) {
    *set = (struct migration_set){0};
    char *path = memory_copy_text(folder);
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/')
        path[--size] = '\0';
    FTS *walk = fts_open((char *const[]){path, NULL}, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    bool is_ok = walk != NULL ? add_from_folder(set, walk, size, error)
                              : error_set(error, ERROR_REJECT, "not_readable", "%s: %s", folder, strerror(errno));
    if (walk != NULL)
        fts_close(walk);
    free(path);
    if (is_ok && put_in_order(set, error))
        return true;
    migration_set_release(set);
    return error_prefix(error, "%s", folder);
}

void migration_history_release(struct migration_history *history) {
    if (history == NULL)
        return;
    for (size_t i = 0; i < history->count; i++) {
        free(history->rows[i].version);
        free(history->rows[i].description);
        free(history->rows[i].type);
        free(history->rows[i].script);
    }
    free(history->rows);
    *history = (struct migration_history){0};
}

/* ---- plan ---- */

static const struct {
    const char *name, *meaning;
} states[] = {
    [MIGRATION_APPLIED] = {"applied", "nothing to do"},
    [MIGRATION_PENDING] = {"pending", "will be applied"},
    [MIGRATION_AGAIN] = {"again", "its text changed since it was applied: will be applied again"},
    [MIGRATION_GONE] = {"gone", "applied once; this version no longer has the file, and what it made is left as it is"},
    [MIGRATION_CHANGED] = {"changed", "this file was applied with another text: put the old text back and write a new V file"},
    [MIGRATION_MISSING] = {"missing", "the database has had a file that is not here: take the folder or program that has it"},
    [MIGRATION_NEWER] = {"newer", "the database is newer than this program: take a leasectl of that version or later"},
    [MIGRATION_OUT_OF_ORDER] = {"out-of-order", "a later version was applied already: give the file a higher version"},
    [MIGRATION_FAILED] = {"failed", "Flyway noted that it failed: set right what it left and run Flyway's 'repair'"},
    [MIGRATION_FOREIGN] = {"foreign", "a row that only Flyway understands: go on with Flyway on this database"},
};

const char *migration_state_name(enum migration_state state) {
    return states[state].name;
}

const char *migration_state_meaning(enum migration_state state) {
    return states[state].meaning;
}

static bool has_type(const struct migration_row *row, const char *type) {
    return strcmp(row->type, type) == 0;
}

static bool parse_row_version(const struct migration_row *row, struct migration *ret_version) {
    *ret_version = (struct migration){0};
    if (row->version == NULL || !parse_version(row->version, strlen(row->version), ret_version))
        return false;
    free(ret_version->version);
    ret_version->version = NULL;
    return true;
}

static bool is_about(const struct migration_row *row, const struct migration *file) {
    struct migration version;
    if (!has_type(row, "SQL") || file->is_repeatable != (row->version == NULL))
        return false;
    if (file->is_repeatable)
        return strcmp(row->description, file->description) == 0;
    return parse_row_version(row, &version) && compare_versions(&version, file) == 0;
}

/* The newest row about a file, or NULL. */
static const struct migration_row *find_row(const struct migration_history *history, const struct migration *file) {
    for (size_t i = history->count; i > 0; i--)
        if (is_about(&history->rows[i - 1], file))
            return &history->rows[i - 1];
    return NULL;
}

static const struct migration *find_file(const struct migration_set *set, const struct migration_row *row) {
    for (size_t i = 0; i < set->count; i++)
        if (is_about(row, &set->items[i]))
            return &set->items[i];
    return NULL;
}

/* Highest version among the files, or among the rows: what decides newer and out of order. */
static struct migration highest_file(const struct migration_set *set) {
    struct migration highest = {0};
    for (size_t i = 0; i < set->count; i++)
        if (!set->items[i].is_repeatable && compare_versions(&set->items[i], &highest) > 0)
            highest = set->items[i];
    return highest;
}

static struct migration highest_row(const struct migration_history *history) {
    struct migration highest = {0}, version;
    for (size_t i = 0; i < history->count; i++)
        if (has_type(&history->rows[i], "SQL") && parse_row_version(&history->rows[i], &version) &&
            compare_versions(&version, &highest) > 0)
            highest = version;
    return highest;
}

/* A row that no file answers to. */
static enum migration_state judge_row(const struct migration_row *row, const struct migration *highest) {
    struct migration version;
    if (!row->is_success)
        return MIGRATION_FAILED;
    if (!has_type(row, "SQL"))
        return MIGRATION_FOREIGN;
    if (row->version == NULL)
        return MIGRATION_GONE;
    bool is_newer = parse_row_version(row, &version) && compare_versions(&version, highest) > 0;
    return is_newer ? MIGRATION_NEWER : MIGRATION_MISSING;
}

static enum migration_state judge_file(const struct migration *file, const struct migration_row *row,
                                       const struct migration *highest) {
    if (row != NULL && !row->is_success)
        return MIGRATION_FAILED;
    if (row != NULL && row->has_checksum && row->checksum == file->checksum)
        return MIGRATION_APPLIED;
    if (file->is_repeatable)
        return row == NULL ? MIGRATION_PENDING : MIGRATION_AGAIN;
    if (row != NULL)
        return MIGRATION_CHANGED;
    return compare_versions(file, highest) < 0 ? MIGRATION_OUT_OF_ORDER : MIGRATION_PENDING;
}

static void add_step(struct migration_plan *plan, struct migration_step step) {
    plan->steps[plan->count++] = step;
    plan->pending += step.state == MIGRATION_PENDING || step.state == MIGRATION_AGAIN;
}

/* The newest row of a repeatable file that is gone stands for all of them. */
static bool is_newest(const struct migration_history *history, size_t index) {
    const struct migration_row *row = &history->rows[index];
    for (size_t i = index + 1; i < history->count && row->version == NULL; i++)
        if (history->rows[i].version == NULL && strcmp(history->rows[i].description, row->description) == 0)
            return false;
    return true;
}

void migration_plan_make(struct migration_plan *plan, const struct migration_set *set,
                         const struct migration_history *history) {
    *plan = (struct migration_plan){.steps = memory_alloc_array(set->count + history->count + 1, sizeof *plan->steps)};
    struct migration known = highest_file(set), applied = highest_row(history);
    for (size_t i = 0; i < history->count; i++) {
        const struct migration_row *row = &history->rows[i];
        bool is_ours = find_file(set, row) != NULL;
        /* Flyway notes that it created the schema, as rank 0. */
        if (!is_ours && !has_type(row, "SCHEMA") && is_newest(history, i))
            add_step(plan, (struct migration_step){judge_row(row, &known), NULL, row});
    }
    for (size_t i = 0; i < set->count; i++) {
        const struct migration_row *row = find_row(history, &set->items[i]);
        add_step(plan, (struct migration_step){judge_file(&set->items[i], row, &applied), &set->items[i], row});
    }
    for (size_t i = 0; i < plan->count && plan->refusal == NULL; i++)
        if (plan->steps[i].state >= MIGRATION_CHANGED)
            plan->refusal = &plan->steps[i];
}

void migration_plan_release(struct migration_plan *plan) {
    if (plan == NULL)
        return;
    free(plan->steps);
    *plan = (struct migration_plan){0};
}
