/* The table of keys; see settings.h. Runs at start, in main's thread. */
#include "worker/royalty/settings.h"

#include "common/event_text.h"

#include <string.h>
#include <sysexits.h>

enum { US = 1 /* the one program of this table */ };

static const char *const log_formats[] = {"logfmt", "json", NULL};                   /* enum log_format */
static const char *const log_levels[] = {"debug", "info", "warning", "error", NULL}; /* enum log_level */

/* Kafka's own rule for names. */
static bool check_topic_name(const char *value, struct error *error) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    if (value[strspn(value, allowed)] == '\0')
        return true;
    return error_set(error, ERROR_FATAL, "configuration", "\"%s\" may hold only letters, digits, '.', '_' and '-'", value);
}

static bool check_settlement(const char *value, struct error *error) {
    if (event_text_id((struct slice){value, strlen(value)}) == EVENT_REASON_NONE)
        return true;
    return error_set(error, ERROR_FATAL, "configuration", "\"%s\" is no name of a lease", value);
}

static bool check_period(const char *value, struct error *error) {
    static const char form[] = "0000-00";
    size_t i = 0;
    while (value[i] != '\0' && form[i] != '\0' && (form[i] == '-' ? value[i] == '-' : value[i] >= '0' && value[i] <= '9'))
        i++;
    if (value[i] == '\0' && form[i] == '\0')
        return true;
    return error_set(error, ERROR_FATAL, "configuration", "\"%s\" is no month: YYYY-MM", value);
}

#define FIELD(name) .key = #name, .offset = offsetof(struct royalty_settings, name), .programs = US
#define TEXT(least, most) .type = CONFIG_TEXT, .minimum = (least), .maximum = (most)
#define NUMBER(least, most, text) .type = CONFIG_NUMBER, .minimum = (least), .maximum = (most), .initial = (text)

static const struct config_row rows[] = {
    {FIELD(settlement), TEXT(1, 150), .required = US, .check = check_settlement, .help = "name of the settlement, and of its lease"},
    {FIELD(period), TEXT(7, 7), .required = US, .check = check_period, .help = "the month that is settled, YYYY-MM"},
    {FIELD(contracts), TEXT(1, 1000000),
     .help = "settle these only: <type>/<contract>[,…] with type album-contract, track-contract or video-contract. Without it, all there are"},
    {FIELD(brokers), TEXT(1, 4096), .required = US, .help = "Kafka brokers, host:port[,host:port…]"},
    {FIELD(topic_prefix), TEXT(0, 100), .initial = "", .check = check_topic_name, .help = "put before the name of every topic"},
    {FIELD(group), TEXT(1, 100), .initial = "lease-worker", .check = check_topic_name,
     .help = "named to the brokers, for their access rules; no group is joined"},
    {FIELD(name), TEXT(1, 150), .initial = "lease-royalty",
     .help = "of this service: holders are called <name>.<incarnation>, anew in every process"},
    {FIELD(royalty_database), TEXT(1, 8192), .required = US, .secrecy = CONFIG_SECRET,
     .help = "PostgreSQL connection string of the database with sql/gate/ and sql/royalty/ in it"},
    {FIELD(ttl_ms), NUMBER(300, 3600000, "30000"),
     .help = "of the lease; it is renewed at a third of it. A call of the database may take a third of it, too"},
    {FIELD(answer_ms), NUMBER(100, 3600000, "30000"), .help = "how long the coordinator's answers are waited for"},
    {FIELD(chunk_sales), NUMBER(1, 1000000, "20000"), .help = "sales that are read, computed and written at a time"},
    {FIELD(log_format), .type = CONFIG_CHOICE, .choices = log_formats, .initial = "logfmt", .help = "form of the log lines on stderr"},
    {FIELD(log_level), .type = CONFIG_CHOICE, .choices = log_levels, .initial = "info",
     .help = "least important lines that are written"},
    {.key = "config", .offset = offsetof(struct royalty_settings, config_file), .programs = US, TEXT(1, 4096),
     .help = "file with more keys (key = value lines, then [kafka])"},
};

/* LEASE_* variables of the coordinator, the tests, the crash points and ./dev. */
static const char *const ignored[] = {"LEASE_DATABASE", "LEASE_HTTP",  "LEASE_TOKEN_KEY", "LEASE_THROWAWAY", "LEASE_TEST_",
                                      "LEASE_BENCH_",   "LEASE_CRASH", "LEASE_DEV_",      "LEASE_CACHE",     NULL};

static const struct config_schema schema = {
    .program = "lease-royalty",
    .program_bit = US,
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
    .ignored = ignored,
    .property_check = kafka_property_check,
    .property_is_secret = kafka_property_is_secret,
};

static bool load(struct royalty_settings *settings, int *argc, char **argv, char *const *environment, struct error *error) {
    if (!config_take_flags(settings->config, argc, argv, error) || !config_refuse_rest(settings->config, *argc, argv, error) ||
        !config_read_environment(settings->config, environment, error) || !config_read_file(settings->config, error) ||
        !config_store(settings->config, settings, error))
        return false;
    settings->kafka = config_properties(settings->config, &settings->kafka_count);
    return true;
}

bool royalty_settings_load(struct royalty_settings *settings, int *argc, char **argv, char *const *environment,
                           struct error *error) {
    memset(settings, 0, sizeof *settings);
    settings->action = config_take_action(argc, argv);
    if (settings->action == CONFIG_HELP || settings->action == CONFIG_VERSION)
        return true;
    settings->config = config_new(&schema);
    if (load(settings, argc, argv, environment, error))
        return true;
    royalty_settings_release(settings);
    return false;
}

void royalty_settings_release(struct royalty_settings *settings) {
    if (settings == NULL)
        return;
    config_free(settings->config);
    memset(settings, 0, sizeof *settings);
}

void royalty_settings_show(const struct royalty_settings *settings, struct buf *out) {
    config_show(settings->config, out);
}

void royalty_settings_help(struct buf *out) {
    config_help(&schema, out);
}

int royalty_settings_exit_status(const struct error *error) {
    return strcmp(error->code, "usage") == 0 ? EX_USAGE : EX_CONFIG;
}
