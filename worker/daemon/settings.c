/* The table of keys; see settings.h. Runs at start, in main's thread. */
#include "worker/daemon/settings.h"

#include "worker/effects/delivery.h"

#include <string.h>
#include <sysexits.h>

enum {
    US = 1, /* the one program of this table */
    DELIVERY_TTL_MIN_MS = 3000,
};

static const char *const kinds[] = {"cleanup", "delivery", NULL};                    /* enum settings_kind */
static const char *const log_formats[] = {"logfmt", "json", NULL};                   /* enum log_format */
static const char *const log_levels[] = {"debug", "info", "warning", "error", NULL}; /* enum log_level */

/* Kafka's own rule for names. */
static bool check_topic_name(const char *value, struct error *error) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    if (value[strspn(value, allowed)] == '\0')
        return true;
    return error_set(error, ERROR_FATAL, "configuration", "\"%s\" may hold only letters, digits, '.', '_' and '-'", value);
}

static bool check_url(const char *value, struct error *error) {
    if (delivery_check_url(value, error))
        return true;
    strcpy(error->code, "configuration");
    return false;
}

/* It becomes a line of a request. */
static bool check_header(const char *value, struct error *error) {
    for (; *value != '\0'; value++)
        if ((unsigned char)*value < ' ' || *value == 0x7f)
            return error_set(error, ERROR_FATAL, "configuration", "the value of a header may hold no control characters");
    return true;
}

#define FIELD(name) .key = #name, .offset = offsetof(struct settings, name), .programs = US
#define TEXT(least, most) .type = CONFIG_TEXT, .minimum = (least), .maximum = (most)
#define NUMBER(least, most, text) .type = CONFIG_NUMBER, .minimum = (least), .maximum = (most), .initial = (text)

static const struct config_row rows[] = {
    {FIELD(kind), .type = CONFIG_CHOICE, .choices = kinds, .required = US,
     .help = "what to do: cleanup removes files of the file server, delivery posts payloads to an HTTP endpoint"},
    {FIELD(brokers), TEXT(1, 4096), .required = US, .help = "Kafka brokers, host:port[,host:port…]"},
    {FIELD(topic_prefix), TEXT(0, 100), .initial = "", .check = check_topic_name, .help = "put before the name of every topic"},
    {FIELD(group), TEXT(1, 100), .initial = "lease-worker", .check = check_topic_name,
     .help = "named to the brokers, for their access rules; no group is joined"},
    {FIELD(name), TEXT(1, 150), .initial = "lease-worker",
     .help = "of this service: holders are called <name>.<incarnation>, anew in every process"},
    {FIELD(concurrency), NUMBER(1, 256, "4"), .help = "items that are worked on at a time"},
    {FIELD(credit), NUMBER(0, 10000, "0"), .help = "items in hand or asked for, at most; 0 is twice the concurrency"},
    {FIELD(ttl_ms), NUMBER(300, 3600000, "30000"),
     .help = "of each lease; it is renewed at a third of it. A worker that dies keeps its items from others for so long. "
             "delivery: 3000 at least"},
    {FIELD(patience_ms), NUMBER(0, 3600000, "60000"),
     .help = "how long an item waits here for a database or disk that is away, before it is given back"},
    {FIELD(drain_ms), NUMBER(0, 600000, "20000"), .help = "time that a stop gives to the items in hand"},
    {FIELD(file_root), TEXT(1, 4096), .help = "cleanup: the directory that physical names are beneath. If all files may go by right, put one there that stays: a worker that "
             "misses a file where there is nothing at all takes it for not mounted, and ends"},
    {FIELD(file_database), TEXT(1, 8192), .secrecy = CONFIG_SECRET,
     .help = "cleanup: PostgreSQL connection string of the file server's database, with sql/gate/ and sql/fileserver/ in it"},
    {FIELD(delivery_url), TEXT(1, 4096), .check = check_url, .help = "delivery: where payloads are posted, http or https"},
    {FIELD(delivery_authorization), TEXT(1, 4096), .secrecy = CONFIG_SECRET_NO_FLAG, .check = check_header,
     .help = "delivery: value of the Authorization header"},
    {FIELD(delivery_timeout_ms), NUMBER(10, 600000, "10000"), .help = "delivery: of a whole exchange, connecting included"},
    {FIELD(log_format), .type = CONFIG_CHOICE, .choices = log_formats, .initial = "logfmt", .help = "form of the log lines on stderr"},
    {FIELD(log_level), .type = CONFIG_CHOICE, .choices = log_levels, .initial = "info",
     .help = "least important lines that are written"},
    {.key = "config", .offset = offsetof(struct settings, config_file), .programs = US, TEXT(1, 4096),
     .help = "file with more keys (key = value lines, then [kafka])"},
};

/* LEASE_* variables of the coordinator, the tests, the crash points and ./dev. */
static const char *const ignored[] = {"LEASE_DATABASE", "LEASE_HTTP",  "LEASE_TOKEN_KEY", "LEASE_THROWAWAY", "LEASE_TEST_",
                                      "LEASE_BENCH_",   "LEASE_CRASH", "LEASE_DEV_",      "LEASE_CACHE",     NULL};

static const struct config_schema schema = {
    .program = "lease-worker",
    .program_bit = US,
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
    .ignored = ignored,
    .property_check = kafka_property_check,
    .property_is_secret = kafka_property_is_secret,
};

/* Rules between keys. Each names both. */
static bool check_together(const struct settings *settings, struct error *error) {
    if (settings->kind == SETTINGS_CLEANUP && (settings->file_root == NULL || settings->file_database == NULL))
        return error_set(error, ERROR_FATAL, "configuration", "kind cleanup needs file_root and file_database");
    if (settings->kind == SETTINGS_DELIVERY && settings->delivery_url == NULL)
        return error_set(error, ERROR_FATAL, "configuration", "kind delivery needs delivery_url");
    /* An exchange that is waited for tells of progress once a second; what tells of none for a third of its lease is not renewed. */
    if (settings->kind == SETTINGS_DELIVERY && settings->ttl_ms < DELIVERY_TTL_MIN_MS)
        return error_set(error, ERROR_FATAL, "configuration", "kind delivery needs a ttl_ms of at least %d", DELIVERY_TTL_MIN_MS);
    if (settings->credit != 0 && settings->credit < settings->concurrency)
        return error_set(error, ERROR_FATAL, "configuration", "credit (%lld) is below concurrency (%lld)",
                         (long long)settings->credit, (long long)settings->concurrency);
    return true;
}

static bool load(struct settings *settings, int *argc, char **argv, char *const *environment, struct error *error) {
    if (!config_take_flags(settings->config, argc, argv, error) || !config_refuse_rest(settings->config, *argc, argv, error) ||
        !config_read_environment(settings->config, environment, error) || !config_read_file(settings->config, error) ||
        !config_store(settings->config, settings, error))
        return false;
    settings->kafka = config_properties(settings->config, &settings->kafka_count);
    return check_together(settings, error);
}

bool settings_load(struct settings *settings, int *argc, char **argv, char *const *environment, struct error *error) {
    memset(settings, 0, sizeof *settings);
    settings->action = config_take_action(argc, argv);
    if (settings->action == CONFIG_HELP || settings->action == CONFIG_VERSION)
        return true;
    settings->config = config_new(&schema);
    if (load(settings, argc, argv, environment, error))
        return true;
    settings_release(settings);
    return false;
}

void settings_release(struct settings *settings) {
    if (settings == NULL)
        return;
    config_free(settings->config);
    memset(settings, 0, sizeof *settings);
}

const char *settings_kind_name(const struct settings *settings) {
    return kinds[settings->kind];
}

void settings_show(const struct settings *settings, struct buf *out) {
    config_show(settings->config, out);
}

void settings_help(struct buf *out) {
    config_help(&schema, out);
}

int settings_exit_status(const struct error *error) {
    return strcmp(error->code, "usage") == 0 ? EX_USAGE : EX_CONFIG;
}
