/* Configuration from a table: one row per key drives parsing, bounds, help, the list that --show-config prints and the
 * tables in the documentation. Knows no key itself; coordinator/options.c has the rows.
 *
 * A key `batch_messages` is the flag --batch-messages, the environment variable LEASE_BATCH_MESSAGES and the line
 * `batch_messages = …` of the file that `config` names. Flags beat the environment, which beats the file, which beats the
 * default. Unknown and repeated keys are errors that name the key and the nearest known one. An environment variable that
 * is empty counts as not set. A secret row also has `<key>_file`: the path of a file whose content is the value.
 *
 * librdkafka properties come as -X name=value, LEASE_KAFKA_NAME (dots as _) or lines of the file's section [kafka]; the
 * schema's functions say which are allowed and which are secret; `<secret property>_file` reads a file as above.
 *
 * The file is INI as inih reads it, less what would surprise: no indented lines, no comments behind a value, at most
 * CONFIG_LINE_MAX bytes a line.
 *
 * Errors have kind ERROR_FATAL and the code "usage" (the command line is wrong), "configuration" or "secret_file". No
 * error holds the value of a secret. Runs at start, in one thread. */
#ifndef LEASE_CONFIG_H
#define LEASE_CONFIG_H

#include "common/buf.h"
#include "common/error.h"
#include "common/kafka_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CONFIG_LINE_MAX = 190,        /* inih's own limit is 200 with its line ends */
    CONFIG_FILE_MAX = 64 * 1024,  /* a file larger than this is not a configuration */
    CONFIG_SECRET_MAX = 64 * 1024, /* a private key with its chain fits well */
    CONFIG_PROPERTIES_MAX = 128,  /* librdkafka has about 170 in all */
};

enum config_type {
    CONFIG_TEXT,   /* const char *: minimum and maximum bound its bytes; NULL when not set */
    CONFIG_NUMBER, /* int64_t, plain decimal, in the unit that the key's name ends in */
    CONFIG_BOOL,   /* bool: true, false, 1, 0; the flag alone means true */
    CONFIG_CHOICE, /* int: index into choices */
};

enum config_secrecy {
    CONFIG_PUBLIC,
    CONFIG_SECRET,         /* never printed; may also come from a file */
    CONFIG_SECRET_NO_FLAG, /* nor accepted on the command line, which everybody on the machine can read */
};

/* What --help or -h, --version or -V, and --show-config ask for. */
enum config_action { CONFIG_RUN, CONFIG_HELP, CONFIG_VERSION, CONFIG_SHOW };

enum config_origin { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_ENVIRONMENT, CONFIG_FLAG, CONFIG_ORIGINS };

struct config_row {
    const char *key;
    enum config_type type;
    unsigned programs; /* bits of the programs that have it; the others overlook it in environment and file */
    unsigned required; /* bits of the programs that do not start without it */
    size_t offset;     /* of the field in the program's options struct */
    int64_t minimum, maximum;
    const char *initial;        /* text of the default; NULL = not set */
    const char *const *choices; /* CONFIG_CHOICE: NULL-terminated */
    enum config_secrecy secrecy;
    bool (*check)(const char *value, struct error *error); /* further rules of a text, or NULL */
    const char *help;                                      /* one line, no full stop */
};

struct config_schema {
    const char *program;
    unsigned program_bit;
    const struct config_row *rows;
    size_t row_count;
    const char *const *ignored; /* prefixes of LEASE_* variables that are somebody else's; NULL-terminated */
    bool (*property_check)(const char *name, const char *value, struct error *error);
    bool (*property_is_secret)(const char *name);
};

struct config;

struct config *config_new(const struct config_schema *schema); /* schema is borrowed for good */
void config_free(struct config *config);                       /* NULL allowed; secrets are wiped */

/* Takes the flags of the table (and -X) out of argv, up to "--"; what is left keeps its order, argv[0] stays. */
bool config_take_flags(struct config *config, int *argc, char **argv, struct error *error) MUST_USE;

/* Refuses what config_take_flags left over, naming the nearest flag. */
bool config_refuse_rest(const struct config *config, int argc, char **argv, struct error *error) MUST_USE;

bool config_read_environment(struct config *config, char *const *environment, struct error *error) MUST_USE;

/* Reads the file that the key `config` names, if it is set. After flags and environment. */
bool config_read_file(struct config *config, struct error *error) MUST_USE;

/* Settles who wins, reads the secret files, checks types, bounds and properties, and writes each field of `target`.
 * Texts are borrowed from the config. On failure target is partly written. */
bool config_store(struct config *config, void *target, struct error *error) MUST_USE;

/* The librdkafka properties that won, sorted by name. Borrowed from the config. After config_store. */
const struct kafka_property *config_properties(const struct config *config, size_t *ret_count);

/* One line `key = value  # origin` each, in the table's order, then [kafka]; secrets as "(secret)". After config_store. */
void config_show(const struct config *config, struct buf *out);

/* The table as help text. */
void config_help(const struct config_schema *schema, struct buf *out);

/* Reads a secret file: a regular file, not behind a symbolic link, owned by this user or root, not writable by the group,
 * closed to others, not empty, without NUL bytes. On a read-only mount, link, owner and mode do not count: container
 * engines mount secrets so, with the modes and owners of wherever they come from. One trailing line end is dropped.
 * free() the text, better after wiping. */
bool config_read_secret(const char *path, char **ret_secret, struct error *error) MUST_USE;

/* For documents and tests: "--batch-messages" and "LEASE_BATCH_MESSAGES". */
void config_flag_name(const char *key, struct buf *out);
void config_environment_name(const char *key, struct buf *out);

/* Takes these flags out of argv; the first of them counts. */
enum config_action config_take_action(int *argc, char **argv);

#endif
