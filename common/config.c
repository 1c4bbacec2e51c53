/* Configuration from a table; see config.h. The only file that includes ini.h. One thread, at start. */
#include "common/config.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char environment_prefix[] = "LEASE_";
static const char property_prefix[] = "KAFKA_"; /* behind LEASE_ */
enum { FILE_SUFFIX_SIZE = sizeof "_file" - 1 };

/* What one source said about one row. */
struct setting {
    char *value; /* as given, or read from the secret file */
    char *where; /* "--batch-messages", "LEASE_BATCH_MESSAGES", "/etc/lease.conf:12"; NULL = this source said nothing */
    bool is_path; /* value is still the path of a secret file */
};

struct property {
    char *name;
    char *value;
    char *where;
    enum config_origin origin;
};

struct config {
    const struct config_schema *schema;
    struct setting (*settings)[CONFIG_ORIGINS]; /* per row */
    struct property *properties;
    size_t property_count;
    struct kafka_property *chosen; /* borrowed names and values of the properties that won */
    size_t chosen_count;
};

/* ---- names ------------------------------------------------------------------------------------------------- */

static void append_mapped(struct buf *out, const char *text, char from, char to, int (*fold)(int)) {
    for (; *text != '\0'; text++)
        buf_append_byte(out, *text == from ? to : (char)fold((unsigned char)*text));
}

void config_flag_name(const char *key, struct buf *out) {
    buf_append_text(out, "--");
    append_mapped(out, key, '_', '-', tolower);
}

void config_environment_name(const char *key, struct buf *out) {
    buf_append_text(out, environment_prefix);
    append_mapped(out, key, '.', '_', toupper);
}

static bool is_secret(const struct config_row *row) {
    return row->secrecy != CONFIG_PUBLIC;
}

/* Length of `name` without "_file" (or, as the environment spells it, ".file"), 0 if it does not end so. */
static size_t without_file_suffix(const char *name) {
    size_t length = strlen(name);
    if (length <= FILE_SUFFIX_SIZE)
        return 0;
    const char *end = name + length - FILE_SUFFIX_SIZE;
    return (*end == '_' || *end == '.') && strcmp(end + 1, "file") == 0 ? length - FILE_SUFFIX_SIZE : 0;
}

static const struct config_row *row_named(const struct config_schema *schema, const char *key, size_t length) {
    for (size_t i = 0; i < schema->row_count; i++)
        if (strlen(schema->rows[i].key) == length && strncmp(schema->rows[i].key, key, length) == 0)
            return &schema->rows[i];
    return NULL;
}

/* The row of `key`, or of the secret whose file `key` names. */
static const struct config_row *find_row(const struct config_schema *schema, const char *key, bool *ret_is_path) {
    const struct config_row *row = row_named(schema, key, strlen(key));
    *ret_is_path = false;
    if (row != NULL)
        return row;
    size_t length = without_file_suffix(key);
    row = length > 0 ? row_named(schema, key, length) : NULL;
    if (row == NULL || !is_secret(row))
        return NULL;
    *ret_is_path = true;
    return row;
}

/* ---- the nearest known key --------------------------------------------------------------------------------- */

enum { DISTANCE_MAX = 64 };

/* Levenshtein's distance; texts longer than DISTANCE_MAX are far from everything. */
static size_t distance(const char *left, const char *right) {
    size_t width = strlen(right), row[DISTANCE_MAX + 1];
    if (strlen(left) > DISTANCE_MAX || width > DISTANCE_MAX)
        return SIZE_MAX;
    for (size_t i = 0; i <= width; i++)
        row[i] = i;
    for (size_t i = 1; left[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t best = diagonal + (left[i - 1] != right[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[width];
}

static const char *nearest_key(const struct config_schema *schema, const char *key) {
    const char *nearest = schema->rows[0].key;
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < schema->row_count; i++) {
        if ((schema->rows[i].programs & schema->program_bit) == 0)
            continue;
        size_t here = distance(key, schema->rows[i].key);
        if (here >= best)
            continue;
        best = here;
        nearest = schema->rows[i].key;
    }
    return nearest;
}

/* `spell` writes the nearest key as the source of the unknown one spells it. */
static bool refuse_unknown(const struct config_schema *schema, const char *code, const char *where, const char *given,
                           const char *key, void (*spell)(const char *key, struct buf *out), struct error *error) {
    struct buf nearest = BUF_INIT;
    spell(nearest_key(schema, key), &nearest);
    error_set(error, ERROR_FATAL, code, "%s%sunknown key %s, the nearest known one is %s", where, *where ? ": " : "",
              given, buf_text(&nearest));
    buf_release(&nearest);
    return false;
}

static void spell_plainly(const char *key, struct buf *out) {
    buf_append_text(out, key);
}

/* ---- collecting -------------------------------------------------------------------------------------------- */

struct config *config_new(const struct config_schema *schema) {
    struct config *config = memory_alloc(sizeof *config);
    config->schema = schema;
    config->settings = memory_alloc_array(schema->row_count, sizeof *config->settings);
    config->properties = memory_alloc_array(CONFIG_PROPERTIES_MAX, sizeof *config->properties);
    return config;
}

static void wipe_and_free(char *text) {
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    free(text);
}

void config_free(struct config *config) {
    if (config == NULL)
        return;
    for (size_t i = 0; i < config->schema->row_count; i++)
        for (int origin = 0; origin < CONFIG_ORIGINS; origin++) {
            wipe_and_free(config->settings[i][origin].value);
            free(config->settings[i][origin].where);
        }
    for (size_t i = 0; i < config->property_count; i++) {
        free(config->properties[i].name);
        wipe_and_free(config->properties[i].value);
        free(config->properties[i].where);
    }
    free(config->settings);
    free(config->properties);
    free(config->chosen);
    free(config);
}

static const char *code_of(enum config_origin origin) {
    return origin == CONFIG_FLAG ? "usage" : "configuration";
}

static bool add_setting(struct config *config, const struct config_row *row, enum config_origin origin, bool is_path,
                        const char *where, const char *value, struct error *error) {
    struct setting *setting = &config->settings[row - config->schema->rows][origin];
    if (setting->where != NULL)
        return error_set(error, ERROR_FATAL, code_of(origin), "%s: %s is given twice, first as %s", where, row->key,
                         setting->where);
    *setting = (struct setting){.value = memory_copy_text(value), .where = memory_copy_text(where), .is_path = is_path};
    return true;
}

static bool store_property(struct config *config, enum config_origin origin, const char *where, char *take_name,
                           char *take_value, struct error *error) {
    for (size_t i = 0; i < config->property_count; i++) {
        const struct property *other = &config->properties[i];
        if (other->origin == origin && strcmp(other->name, take_name) == 0) {
            error_set(error, ERROR_FATAL, code_of(origin), "%s: property %s is given twice, first as %s", where, take_name,
                      other->where);
            goto refuse;
        }
    }
    if (config->property_count == CONFIG_PROPERTIES_MAX) {
        error_set(error, ERROR_FATAL, code_of(origin), "%s: more than %d librdkafka properties", where,
                  CONFIG_PROPERTIES_MAX);
        goto refuse;
    }
    config->properties[config->property_count++] = (struct property){
        .name = take_name, .value = take_value, .where = memory_copy_text(where), .origin = origin};
    return true;
refuse:
    free(take_name);
    wipe_and_free(take_value);
    return false;
}

/* A property, or the file of a secret one. */
static bool add_property(struct config *config, enum config_origin origin, const char *where, const char *name,
                         const char *value, struct error *error) {
    size_t length = without_file_suffix(name);
    char *secret_name = length > 0 ? memory_copy_bytes(name, length) : NULL;
    if (secret_name == NULL || !config->schema->property_is_secret(secret_name)) {
        free(secret_name);
        return store_property(config, origin, where, memory_copy_text(name), memory_copy_text(value), error);
    }
    char *secret;
    if (!config_read_secret(value, &secret, error)) {
        free(secret_name);
        return error_prefix(error, "%s", where);
    }
    return store_property(config, origin, where, secret_name, secret, error);
}

/* ---- flags ------------------------------------------------------------------------------------------------- */

/* One flag on its way through argv. */
struct flag {
    const char *text;  /* as given */
    const char *value; /* behind '=', or the next argument, or NULL */
    bool takes_next;   /* value is the next argument */
};

static bool take_property_flag(struct config *config, const struct flag *flag, struct error *error) {
    const char *equals = flag->value != NULL ? strchr(flag->value, '=') : NULL;
    if (equals == NULL || equals == flag->value)
        return error_set(error, ERROR_FATAL, "usage", "-X wants name=value");
    char *name = memory_copy_bytes(flag->value, (size_t)(equals - flag->value));
    struct buf where = BUF_INIT;
    buf_appendf(&where, "-X %s", name);
    bool is_taken = add_property(config, CONFIG_FLAG, buf_text(&where), name, equals + 1, error);
    buf_release(&where);
    free(name);
    return is_taken;
}

static bool take_row_flag(struct config *config, const struct config_row *row, bool is_path, const char *name,
                          const struct flag *flag, struct error *error) {
    if (row->secrecy == CONFIG_SECRET_NO_FLAG && !is_path)
        return error_set(error, ERROR_FATAL, "usage",
                         "%s would show to everybody on this machine: use %s-file or the environment", name, name);
    const char *value = flag->value;
    if (row->type == CONFIG_BOOL && (value == NULL || flag->takes_next))
        value = "true";
    if (value == NULL)
        return error_set(error, ERROR_FATAL, "usage", "%s wants a value", name);
    return add_setting(config, row, CONFIG_FLAG, is_path, name, value, error);
}

/* "--batch-messages" → row of batch_messages; NULL for what is no flag of ours. */
static const struct config_row *row_of_flag(const struct config_schema *schema, const char *text, size_t length,
                                            bool *ret_is_path) {
    char key[DISTANCE_MAX + 1];
    if (length < 3 || length - 2 > DISTANCE_MAX || strncmp(text, "--", 2) != 0)
        return NULL;
    for (size_t i = 2; i < length; i++) {
        if (text[i] == '_')
            return NULL;
        key[i - 2] = text[i] == '-' ? '_' : text[i];
    }
    key[length - 2] = '\0';
    const struct config_row *row = find_row(schema, key, ret_is_path);
    return row != NULL && (row->programs & schema->program_bit) != 0 ? row : NULL;
}

/* How many arguments were consumed at argv[0]: 0 = none of ours, -1 = refused. */
static int take_flag(struct config *config, char **argv, struct error *error) {
    const char *text = argv[0];
    struct flag flag = {.text = text, .value = argv[1], .takes_next = true};
    if (strncmp(text, "-X", 2) == 0) {
        if (text[2] != '\0')
            flag = (struct flag){.text = text, .value = text + 2, .takes_next = false};
        return !take_property_flag(config, &flag, error) ? -1 : flag.takes_next ? 2 : 1;
    }
    size_t length = strcspn(text, "=");
    bool is_path;
    const struct config_row *row = row_of_flag(config->schema, text, length, &is_path);
    if (row == NULL)
        return 0;
    if (text[length] == '=')
        flag = (struct flag){.text = text, .value = text + length + 1, .takes_next = false};
    else if (row->type == CONFIG_BOOL)
        flag = (struct flag){.text = text, .value = NULL, .takes_next = false};
    char *name = memory_copy_bytes(text, length);
    bool is_taken = take_row_flag(config, row, is_path, name, &flag, error);
    free(name);
    return !is_taken ? -1 : flag.takes_next ? 2 : 1;
}

bool config_take_flags(struct config *config, int *argc, char **argv, struct error *error) {
    int kept = *argc > 0 ? 1 : 0;
    int at = kept;
    while (at < *argc && strcmp(argv[at], "--") != 0) {
        int consumed = take_flag(config, argv + at, error);
        if (consumed < 0)
            return false;
        if (consumed == 0)
            argv[kept++] = argv[at++];
        at += consumed;
    }
    while (at < *argc)
        argv[kept++] = argv[at++];
    argv[kept] = NULL;
    *argc = kept;
    return true;
}

bool config_refuse_rest(const struct config *config, int argc, char **argv, struct error *error) {
    if (argc < 2)
        return true;
    const char *text = argv[1];
    if (strncmp(text, "--", 2) != 0 || text[2] == '\0')
        return error_set(error, ERROR_FATAL, "usage", "unexpected argument: %s", text);
    struct buf key = BUF_INIT;
    buf_append(&key, text + 2, strcspn(text + 2, "="));
    for (size_t i = 0; i < key.size; i++)
        if (key.data[i] == '-')
            key.data[i] = '_';
    char *given = memory_copy_bytes(text, strcspn(text, "="));
    refuse_unknown(config->schema, "usage", "", given, buf_text(&key), config_flag_name, error);
    free(given);
    buf_release(&key);
    return false;
}

/* ---- environment ------------------------------------------------------------------------------------------- */

/* Kubernetes gives every container LEASE_SERVICE_HOST, LEASE_PORT_9464_TCP_ADDR, … when a service is called "lease"
 * or "lease-something". None of our keys looks like that. */
static bool is_service_variable(const char *name) {
    size_t length = strlen(name);
    return strstr(name, "_SERVICE_HOST") != NULL || strstr(name, "_SERVICE_PORT") != NULL ||
           strstr(name, "_PORT_") != NULL || (length >= 5 && strcmp(name + length - 5, "_PORT") == 0);
}

static bool is_ignored(const struct config_schema *schema, const char *name) {
    for (const char *const *prefix = schema->ignored; prefix != NULL && *prefix != NULL; prefix++)
        if (strncmp(name, *prefix, strlen(*prefix)) == 0)
            return true;
    return is_service_variable(name);
}

static bool read_variable(struct config *config, const char *name, const char *value, struct error *error) {
    const char *rest = name + sizeof environment_prefix - 1;
    struct buf key = BUF_INIT;
    bool is_property = strncmp(rest, property_prefix, sizeof property_prefix - 1) == 0;
    if (is_property)
        append_mapped(&key, rest + sizeof property_prefix - 1, '_', '.', tolower);
    else
        append_mapped(&key, rest, '\0', '\0', tolower);
    bool is_path, is_read = true;
    const struct config_row *row = is_property ? NULL : find_row(config->schema, buf_text(&key), &is_path);
    if (is_property)
        is_read = add_property(config, CONFIG_ENVIRONMENT, name, buf_text(&key), value, error);
    else if (row == NULL)
        is_read = is_ignored(config->schema, name) ||
                  refuse_unknown(config->schema, "configuration", "environment", name, buf_text(&key),
                                 config_environment_name, error);
    else if ((row->programs & config->schema->program_bit) != 0)
        is_read = add_setting(config, row, CONFIG_ENVIRONMENT, is_path, name, value, error);
    buf_release(&key);
    return is_read;
}

bool config_read_environment(struct config *config, char *const *environment, struct error *error) {
    for (; *environment != NULL; environment++) {
        const char *equals = strchr(*environment, '=');
        if (strncmp(*environment, environment_prefix, sizeof environment_prefix - 1) != 0 || equals == NULL ||
            equals[1] == '\0')
            continue;
        char *name = memory_copy_bytes(*environment, (size_t)(equals - *environment));
        bool is_read = read_variable(config, name, equals + 1, error);
        free(name);
        if (!is_read)
            return false;
    }
    return true;
}

/* ---- the file ---------------------------------------------------------------------------------------------- */

struct reader {
    struct config *config;
    const char *path;
    const char *rest; /* of the file's text */
    int line;
    bool is_loose; /* others may read the file, or its group may write it */
    bool is_refused;
    struct error *error;
};

static bool refuse_line(struct reader *reader, const char *what) {
    if (!reader->is_refused)
        error_set(reader->error, ERROR_FATAL, "configuration", "%s:%d: %s", reader->path, reader->line, what);
    reader->is_refused = true;
    return false;
}

static bool has_inline_comment(const char *line) {
    for (const char *at = line; (at = strchr(at, ';')) != NULL; at++)
        if (at > line && isspace((unsigned char)at[-1]))
            return true;
    return false;
}

/* What inih would read otherwise than its writer meant. */
static bool check_line(struct reader *reader, const char *line) {
    size_t length = strlen(line), blank = strspn(line, " \t\r");
    for (size_t i = 0; i < length; i++)
        if (iscntrl((unsigned char)line[i]) && strchr("\t\r", line[i]) == NULL)
            return refuse_line(reader, "control character");
    if (line[blank] == '\0' || line[blank] == '#' || line[blank] == ';')
        return true;
    if (blank > 0)
        return refuse_line(reader, "a line must not begin with a space, it would continue the value above");
    if (has_inline_comment(line))
        return refuse_line(reader, "';' behind a space would begin a comment: comments have lines of their own");
    return true;
}

/* An ini_reader: hands out one checked line, or NULL at the end and after a refusal. Comments may be of any length. */
static char *read_line(char *line, int size, void *stream) {
    struct reader *reader = stream;
    if (reader->is_refused || *reader->rest == '\0')
        return NULL;
    size_t length = strcspn(reader->rest, "\n");
    reader->line++;
    bool is_comment = *reader->rest == '#' || *reader->rest == ';';
    if (!is_comment && length > CONFIG_LINE_MAX) {
        refuse_line(reader, "the line is too long; a long secret can stand in a file of its own (<key>_file)");
        return NULL;
    }
    size_t kept = is_comment ? 1 : length;
    assert(size > CONFIG_LINE_MAX + 1);
    memcpy(line, reader->rest, kept);
    line[kept] = '\0';
    reader->rest += length + (reader->rest[length] == '\n' ? 1 : 0);
    return check_line(reader, line) ? line : NULL;
}

static bool read_file_row(struct reader *reader, const char *where, const char *name, const char *value) {
    struct config *config = reader->config;
    bool is_path;
    const struct config_row *row = find_row(config->schema, name, &is_path);
    if (row == NULL)
        return refuse_unknown(config->schema, "configuration", where, name, name, spell_plainly, reader->error);
    if (strcmp(row->key, "config") == 0)
        return error_set(reader->error, ERROR_FATAL, "configuration", "%s: a file cannot name another file", where);
    if ((row->programs & config->schema->program_bit) == 0)
        return true;
    if (row->secrecy == CONFIG_SECRET_NO_FLAG && !is_path && reader->is_loose)
        return error_set(reader->error, ERROR_FATAL, "secret_file",
                         "%s: others may read this file: close it (chmod 600), or use %s_file", where, row->key);
    return add_setting(config, row, CONFIG_FILE, is_path, where, value, reader->error);
}

static bool read_file_property(struct reader *reader, const char *where, const char *name, const char *value) {
    if (reader->is_loose && reader->config->schema->property_is_secret(name))
        return error_set(reader->error, ERROR_FATAL, "secret_file",
                         "%s: others may read this file: close it (chmod 600), or use %s_file", where, name);
    return add_property(reader->config, CONFIG_FILE, where, name, value, reader->error);
}

static int read_pair(void *user, const char *section, const char *name, const char *value) {
    struct reader *reader = user;
    if (reader->is_refused)
        return 0;
    struct buf where = BUF_INIT;
    buf_appendf(&where, "%s:%d", reader->path, reader->line);
    bool is_read;
    if (strcmp(section, "kafka") == 0)
        is_read = read_file_property(reader, buf_text(&where), name, value);
    else if (*section == '\0')
        is_read = read_file_row(reader, buf_text(&where), name, value);
    else
        is_read = error_set(reader->error, ERROR_FATAL, "configuration",
                            "%s: unknown section [%s], the only one is [kafka]", buf_text(&where), section);
    buf_release(&where);
    reader->is_refused = !is_read;
    return is_read;
}

/* What the file system says about an open file. */
struct facts {
    struct stat status;
    bool is_mounted_read_only; /* as container engines mount secrets: who may read it is then the engine's affair, and
                                  owner and mode are whatever they were where it comes from */
};

static bool is_loose(const struct facts *facts) {
    return !facts->is_mounted_read_only && (facts->status.st_mode & (S_IWGRP | S_IRWXO)) != 0;
}

static bool look_at(int file, struct facts *ret_facts) {
    struct statvfs mount;
    if (fstat(file, &ret_facts->status) != 0 || fstatvfs(file, &mount) != 0)
        return false;
    ret_facts->is_mounted_read_only = (mount.f_flag & ST_RDONLY) != 0;
    return S_ISREG(ret_facts->status.st_mode);
}

/* Reads a regular file of at most `limit` bytes. */
static bool slurp(const char *path, size_t limit, struct facts *ret_facts, struct buf *out, struct error *error) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return error_set(error, ERROR_FATAL, "configuration", "%s cannot be opened: %s", path, strerror(errno));
    if (!look_at(file, ret_facts)) {
        close(file);
        return error_set(error, ERROR_FATAL, "configuration", "%s is not a regular file", path);
    }
    buf_reserve(out, limit + 1);
    ssize_t got;
    while (out->size <= limit && (got = read(file, out->data + out->size, limit + 1 - out->size)) != 0) {
        if (got < 0 && errno != EINTR) {
            int reason = errno;
            close(file);
            return error_set(error, ERROR_FATAL, "configuration", "%s cannot be read: %s", path, strerror(reason));
        }
        out->size += got > 0 ? (size_t)got : 0;
    }
    close(file);
    out->data[out->size] = '\0';
    if (out->size > limit)
        return error_set(error, ERROR_FATAL, "configuration", "%s is larger than %zu bytes", path, limit);
    if (memchr(out->data, '\0', out->size) != NULL)
        return error_set(error, ERROR_FATAL, "configuration", "%s holds a NUL byte", path);
    return true;
}

static void wipe_and_release(struct buf *buf) {
    if (buf->data != NULL)
        explicit_bzero(buf->data, buf->capacity);
    buf_release(buf);
}

static bool parse_file(struct config *config, const char *path, struct error *error) {
    struct buf text = BUF_INIT;
    struct facts facts;
    if (!slurp(path, CONFIG_FILE_MAX, &facts, &text, error)) {
        wipe_and_release(&text);
        return false;
    }
    struct reader reader = {
        .config = config, .path = path, .rest = buf_text(&text), .is_loose = is_loose(&facts), .error = error};
    int bad_line = ini_parse_stream(read_line, &reader, read_pair, &reader);
    if (!reader.is_refused && bad_line != 0) {
        reader.line = bad_line;
        refuse_line(&reader, "neither key = value nor [section] nor a comment");
    }
    wipe_and_release(&text);
    return !reader.is_refused;
}

static const struct setting *winner(const struct config *config, const struct config_row *row,
                                    enum config_origin *ret_origin) {
    for (int origin = CONFIG_FLAG; origin > CONFIG_DEFAULT; origin--) {
        const struct setting *setting = &config->settings[row - config->schema->rows][origin];
        if (setting->where == NULL)
            continue;
        *ret_origin = (enum config_origin)origin;
        return setting;
    }
    *ret_origin = CONFIG_DEFAULT;
    return NULL;
}

bool config_read_file(struct config *config, struct error *error) {
    const struct config_row *row = row_named(config->schema, "config", strlen("config"));
    enum config_origin origin;
    const struct setting *setting = row != NULL ? winner(config, row, &origin) : NULL;
    return setting == NULL || parse_file(config, setting->value, error);
}

/* The name is looked at apart from what was opened: a link swapped in between still leads to a file that is closed to
 * others and belongs to us or root. */
static bool is_symbolic_link(const char *path) {
    struct stat status;
    return lstat(path, &status) != 0 || S_ISLNK(status.st_mode);
}

static bool check_secret_file(const char *path, const struct facts *facts, struct error *error) {
    if (facts->is_mounted_read_only)
        return true;
    if (is_symbolic_link(path))
        return error_set(error, ERROR_FATAL, "secret_file", "%s is a symbolic link", path);
    if (is_loose(facts))
        return error_set(error, ERROR_FATAL, "secret_file", "%s is open to others (mode %04o): chmod 600", path,
                         (unsigned)facts->status.st_mode & 07777U);
    if (facts->status.st_uid != 0 && facts->status.st_uid != geteuid())
        return error_set(error, ERROR_FATAL, "secret_file", "%s belongs to another user (%u)", path,
                         (unsigned)facts->status.st_uid);
    return true;
}

bool config_read_secret(const char *path, char **ret_secret, struct error *error) {
    struct buf text = BUF_INIT;
    struct facts facts;
    if (!slurp(path, CONFIG_SECRET_MAX, &facts, &text, error) || !check_secret_file(path, &facts, error))
        goto refuse;
    if (text.size > 0 && text.data[text.size - 1] == '\n')
        text.data[--text.size] = '\0';
    if (text.size > 0 && text.data[text.size - 1] == '\r')
        text.data[--text.size] = '\0';
    if (text.size == 0) {
        error_set(error, ERROR_FATAL, "secret_file", "%s is empty", path);
        goto refuse;
    }
    /* A copy of the right size: the buffer has the size of the largest secret, and would live as long as the program. */
    *ret_secret = memory_copy_bytes(text.data, text.size);
    wipe_and_release(&text);
    return true;
refuse:
    wipe_and_release(&text);
    return false;
}

/* ---- settling ---------------------------------------------------------------------------------------------- */

static bool refuse_value(const struct config_row *row, const char *where, struct error *error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static bool refuse_value(const struct config_row *row, const char *where, struct error *error, const char *format, ...) {
    struct buf what = BUF_INIT;
    va_list arguments;
    va_start(arguments, format);
    char text[256];
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    buf_append_text(&what, row->key);
    if (strcmp(where, row->key) != 0)
        buf_appendf(&what, " (%s)", where);
    error_set(error, ERROR_FATAL, "configuration", "%s: %s", buf_text(&what), text);
    buf_release(&what);
    return false;
}

static bool store_text(const struct config_row *row, const char *where, const char *value, void *field,
                       struct error *error) {
    size_t length = strlen(value);
    if (length < (size_t)row->minimum || length > (size_t)row->maximum)
        return refuse_value(row, where, error, "%zu bytes long, allowed are %lld to %lld", length,
                            (long long)row->minimum, (long long)row->maximum);
    for (const char *at = value; *at != '\0'; at++)
        if (iscntrl((unsigned char)*at))
            return refuse_value(row, where, error, "control character");
    struct error why;
    if (row->check != NULL && !row->check(value, &why))
        return refuse_value(row, where, error, "%s", why.message);
    memcpy(field, &value, sizeof value);
    return true;
}

static bool store_number(const struct config_row *row, const char *where, const char *value, void *field,
                         struct error *error) {
    size_t digits = strspn(value + (*value == '-'), "0123456789");
    if (digits == 0 || value[digits + (*value == '-')] != '\0')
        return refuse_value(row, where, error, "\"%s\" is not a whole number", value);
    errno = 0;
    int64_t number = strtoll(value, NULL, 10);
    if (errno != 0 || number < row->minimum || number > row->maximum)
        return refuse_value(row, where, error, "%s is outside %lld..%lld", value, (long long)row->minimum,
                            (long long)row->maximum);
    memcpy(field, &number, sizeof number);
    return true;
}

static bool store_bool(const struct config_row *row, const char *where, const char *value, void *field,
                       struct error *error) {
    bool is_true = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
    if (!is_true && strcmp(value, "false") != 0 && strcmp(value, "0") != 0)
        return refuse_value(row, where, error, "\"%s\" is neither true nor false", value);
    memcpy(field, &is_true, sizeof is_true);
    return true;
}

static void append_choices(const struct config_row *row, struct buf *out) {
    for (int i = 0; row->choices[i] != NULL; i++)
        buf_appendf(out, "%s%s", i > 0 ? "|" : "", row->choices[i]);
}

static bool store_choice(const struct config_row *row, const char *where, const char *value, void *field,
                         struct error *error) {
    for (int i = 0; row->choices[i] != NULL; i++) {
        if (strcmp(row->choices[i], value) != 0)
            continue;
        memcpy(field, &i, sizeof i);
        return true;
    }
    struct buf choices = BUF_INIT;
    append_choices(row, &choices);
    refuse_value(row, where, error, "\"%s\" is none of %s", value, buf_text(&choices));
    buf_release(&choices);
    return false;
}

static bool store_value(const struct config_row *row, const char *where, const char *value, void *target,
                        struct error *error) {
    void *field = (char *)target + row->offset;
    switch (row->type) {
    case CONFIG_TEXT: return store_text(row, where, value, field, error);
    case CONFIG_NUMBER: return store_number(row, where, value, field, error);
    case CONFIG_BOOL: return store_bool(row, where, value, field, error);
    case CONFIG_CHOICE: return store_choice(row, where, value, field, error);
    }
    return false;
}

static bool refuse_missing(const struct config_row *row, struct error *error) {
    struct buf ways = BUF_INIT;
    if (row->secrecy != CONFIG_SECRET_NO_FLAG) {
        config_flag_name(row->key, &ways);
        buf_append_text(&ways, ", ");
    }
    config_environment_name(row->key, &ways);
    if (is_secret(row)) {
        buf_append_text(&ways, ", ");
        config_environment_name(row->key, &ways);
        buf_append_text(&ways, "_FILE");
    }
    error_set(error, ERROR_FATAL, "configuration", "%s is not set: use %s, or %s%s in the file", row->key,
              buf_text(&ways), row->key, is_secret(row) ? " or its _file" : "");
    buf_release(&ways);
    return false;
}

static bool read_secret_setting(struct config *config, const struct config_row *row, enum config_origin origin,
                                struct error *error) {
    struct setting *setting = &config->settings[row - config->schema->rows][origin];
    char *secret;
    if (!config_read_secret(setting->value, &secret, error))
        return error_prefix(error, "%s (%s)", row->key, setting->where);
    free(setting->value);
    setting->value = secret;
    setting->is_path = false;
    return true;
}

static bool store_row(struct config *config, const struct config_row *row, void *target, struct error *error) {
    if ((row->programs & config->schema->program_bit) == 0)
        return true;
    enum config_origin origin;
    const struct setting *setting = winner(config, row, &origin);
    if (setting != NULL && setting->is_path && !read_secret_setting(config, row, origin, error))
        return false;
    if (setting != NULL)
        return store_value(row, setting->where, setting->value, target, error);
    if ((row->required & config->schema->program_bit) != 0)
        return refuse_missing(row, error);
    return row->initial == NULL || store_value(row, row->key, row->initial, target, error);
}

static int compare_properties(const void *left, const void *right) {
    const struct kafka_property *a = left, *b = right;
    return strcmp(a->key, b->key);
}

static const struct property *stronger_property(const struct config *config, const struct property *property) {
    for (size_t i = 0; i < config->property_count; i++)
        if (config->properties[i].origin > property->origin &&
            strcmp(config->properties[i].name, property->name) == 0)
            return &config->properties[i];
    return NULL;
}

static bool choose_properties(struct config *config, struct error *error) {
    free(config->chosen);
    config->chosen = memory_alloc_array(config->property_count, sizeof *config->chosen);
    config->chosen_count = 0;
    for (size_t i = 0; i < config->property_count; i++) {
        const struct property *property = &config->properties[i];
        if (!config->schema->property_check(property->name, property->value, error))
            return error_prefix(error, "%s", property->where);
        if (stronger_property(config, property) == NULL)
            config->chosen[config->chosen_count++] =
                (struct kafka_property){.key = property->name, .value = property->value};
    }
    qsort(config->chosen, config->chosen_count, sizeof *config->chosen, compare_properties);
    return true;
}

bool config_store(struct config *config, void *target, struct error *error) {
    for (size_t i = 0; i < config->schema->row_count; i++)
        if (!store_row(config, &config->schema->rows[i], target, error))
            return false;
    return choose_properties(config, error);
}

const struct kafka_property *config_properties(const struct config *config, size_t *ret_count) {
    *ret_count = config->chosen_count;
    return config->chosen;
}

/* ---- showing ----------------------------------------------------------------------------------------------- */

static void show_row(const struct config *config, const struct config_row *row, struct buf *out) {
    enum config_origin origin;
    const struct setting *setting = winner(config, row, &origin);
    const char *value = setting != NULL ? setting->value : row->initial;
    if (value == NULL)
        buf_appendf(out, "# %s is not set\n", row->key);
    else
        buf_appendf(out, "%s = %s  # %s\n", row->key, is_secret(row) ? "(secret)" : value,
                    setting != NULL ? setting->where : "default");
}

static const char *where_of_chosen(const struct config *config, const char *name) {
    for (size_t i = 0; i < config->property_count; i++)
        if (strcmp(config->properties[i].name, name) == 0 && stronger_property(config, &config->properties[i]) == NULL)
            return config->properties[i].where;
    return "";
}

void config_show(const struct config *config, struct buf *out) {
    for (size_t i = 0; i < config->schema->row_count; i++)
        if ((config->schema->rows[i].programs & config->schema->program_bit) != 0)
            show_row(config, &config->schema->rows[i], out);
    if (config->chosen_count > 0)
        buf_append_text(out, "[kafka]\n");
    for (size_t i = 0; i < config->chosen_count; i++) {
        const struct kafka_property *property = &config->chosen[i];
        buf_appendf(out, "%s = %s  # %s\n", property->key,
                    config->schema->property_is_secret(property->key) ? "(secret)" : property->value,
                    where_of_chosen(config, property->key));
    }
}

/* "1..100000", "logfmt|json", "true|false", "" */
static void append_range(const struct config_row *row, struct buf *out) {
    switch (row->type) {
    case CONFIG_NUMBER: buf_appendf(out, "%lld..%lld", (long long)row->minimum, (long long)row->maximum); break;
    case CONFIG_BOOL: buf_append_text(out, "true|false"); break;
    case CONFIG_CHOICE: append_choices(row, out); break;
    case CONFIG_TEXT:
        if (row->minimum > 1)
            buf_appendf(out, "at least %lld bytes", (long long)row->minimum);
        break;
    }
}

static void help_row(const struct config_schema *schema, const struct config_row *row, struct buf *out) {
    struct buf range = BUF_INIT;
    append_range(row, &range);
    buf_append_text(out, "  ");
    config_flag_name(row->key, out);
    if (row->secrecy == CONFIG_SECRET_NO_FLAG)
        buf_append_text(out, "-file FILE");
    else if (row->type != CONFIG_BOOL)
        buf_append_text(out, row->type == CONFIG_NUMBER ? " N" : " TEXT");
    buf_appendf(out, "\n        %s\n        (", row->help);
    if (range.size > 0)
        buf_appendf(out, "%s; ", buf_text(&range));
    if ((row->required & schema->program_bit) != 0)
        buf_append_text(out, "required");
    else if (row->initial == NULL)
        buf_append_text(out, "not set by default");
    else
        buf_appendf(out, "default %s", *row->initial != '\0' ? row->initial : "empty");
    buf_append_text(out, "; ");
    config_environment_name(row->key, out);
    if (is_secret(row)) {
        buf_append_text(out, "; from a file: ");
        config_environment_name(row->key, out);
        buf_append_text(out, "_FILE");
    }
    buf_append_text(out, ")\n");
    buf_release(&range);
}

void config_help(const struct config_schema *schema, struct buf *out) {
    for (size_t i = 0; i < schema->row_count; i++)
        if ((schema->rows[i].programs & schema->program_bit) != 0)
            help_row(schema, &schema->rows[i], out);
    buf_append_text(out, "  -X NAME=VALUE\n        a librdkafka property (LEASE_KAFKA_<NAME with _ for .>, section [kafka] of "
                         "the file; a secret one\n        also as NAME_file)\n");
}

/* ---- flags that are no keys ---- */

enum config_action config_take_action(int *argc, char **argv) {
    static const struct {
        const char *flag;
        enum config_action action;
    } actions[] = {{"--help", CONFIG_HELP},
                   {"-h", CONFIG_HELP},
                   {"--version", CONFIG_VERSION},
                   {"-V", CONFIG_VERSION},
                   {"--show-config", CONFIG_SHOW}};
    for (int at = 1; at < *argc; at++)
        for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
            if (strcmp(argv[at], actions[i].flag) != 0)
                continue;
            memmove(argv + at, argv + at + 1, (size_t)(*argc - at) * sizeof *argv);
            --*argc;
            return actions[i].action;
        }
    return CONFIG_RUN;
}
