/* The table of configuration keys; see options.h. Runs at start, in main's thread. */
#include "coordinator/options.h"

#include "common/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    BOTH = OPTIONS_COORDINATOR | OPTIONS_LEASECTL,
    COORDINATOR = OPTIONS_COORDINATOR,
    EXIT_USAGE = 64,  /* sysexits.h: EX_USAGE */
    EXIT_CONFIG = 78, /* EX_CONFIG */
};

#define FIELD(name) .key = #name, .offset = offsetof(struct options, name)
#define TEXT(least, most) .type = CONFIG_TEXT, .minimum = (least), .maximum = (most)
#define NUMBER(least, most, text) .type = CONFIG_NUMBER, .minimum = (least), .maximum = (most), .initial = (text)

/* Bounds: a value outside makes no sense at all; inside, the help says what it costs. */
static const struct config_row rows[] = {
    {FIELD(brokers), TEXT(1, 4096), .programs = BOTH, .required = COORDINATOR,
     .help = "Kafka brokers, host:port[,host:port…]"},
    {FIELD(database), TEXT(1, 8192), .programs = BOTH, .required = COORDINATOR, .secrecy = CONFIG_SECRET,
     .help = "PostgreSQL connection string (libpq: key=value pairs or postgresql://…)"},
    {FIELD(http), TEXT(1, 80), .programs = COORDINATOR, .initial = "127.0.0.1:9464", .check = http_address_check,
     .help = "where /metrics, /livez and /readyz are served, address:port; port 0 takes a free one and logs it"},
    {FIELD(topic_prefix), TEXT(0, 100), .programs = BOTH, .initial = "", .check = kafka_name_check,
     .help = "put before the name of every topic and of the consumer group"},
    {FIELD(group), TEXT(1, 100), .programs = COORDINATOR, .initial = "lease-coordinator", .check = kafka_name_check,
     .help = "consumer group that the coordinators share"},
    {FIELD(instance), TEXT(1, 100), .programs = COORDINATOR, .check = kafka_name_check,
     .help = "name of this process in logs, in Kafka and in the database; made of host name and 8 random digits if not set"},
    {FIELD(token_key), TEXT(32, 4096), .programs = BOTH, .required = COORDINATOR, .secrecy = CONFIG_SECRET_NO_FLAG,
     .help = "key that tokens are derived with; the same in all coordinators"},
    {FIELD(token_key_previous), TEXT(32, 4096), .programs = BOTH, .secrecy = CONFIG_SECRET_NO_FLAG,
     .help = "key that is still accepted while leases granted under it live"},
    {FIELD(batch_messages), NUMBER(1, 10000, "1000"), .programs = COORDINATOR,
     .help = "most messages in one transaction"},
    {FIELD(batch_bytes), NUMBER(1, 67108864, "4194304"), .programs = COORDINATOR,
     .help = "most bytes of messages in one transaction; a single larger message goes alone"},
    {FIELD(batch_wait_ms), NUMBER(0, 1000, "0"), .programs = COORDINATOR,
     .help = "how long a batch that is not full waits for more; 0 takes what is there"},
    {FIELD(lanes), NUMBER(1, 16, "2"), .programs = COORDINATOR,
     .help = "connections that apply batches side by side; renewals have one more of their own"},
    {FIELD(queue_messages), NUMBER(1, 1000000, "4000"), .programs = COORDINATOR,
     .help = "messages read but not yet applied, at which reading pauses"},
    {FIELD(session_timeout_ms), NUMBER(1000, 300000, "10000"), .programs = COORDINATOR,
     .help = "silence after which Kafka gives a coordinator's partitions to others"},
    {FIELD(database_grace_ms), NUMBER(1000, 3600000, "30000"), .programs = COORDINATOR,
     .help = "cut off from PostgreSQL for so long, the coordinator leaves the group until it is back"},
    {FIELD(drain_ms), NUMBER(0, 600000, "10000"), .programs = COORDINATOR,
     .help = "time that a stop gives to batches and to the relay"},
    {FIELD(reap_poll_ms), NUMBER(1, 1000, "50"), .programs = COORDINATOR,
     .help = "longest time until a lapse that another process granted is noticed"},
    {FIELD(relay_batch), NUMBER(1, 20000, "2000"), .programs = COORDINATOR,
     .help = "journal rows that the relay reads at once"},
    {FIELD(mark_interval_ms), NUMBER(100, 3600000, "60000"), .programs = COORDINATOR,
     .help = "how often the witness of fence and journal number is written to lease.state"},
    {FIELD(log_format), .type = CONFIG_CHOICE, .choices = log_format_names, .programs = COORDINATOR, .initial = "logfmt",
     .help = "form of the log lines on stderr"},
    {FIELD(log_level), .type = CONFIG_CHOICE, .choices = log_level_names, .programs = COORDINATOR, .initial = "info",
     .help = "least important lines that are written"},
    {FIELD(throwaway), .type = CONFIG_BOOL, .programs = BOTH, .initial = "false",
     .help = "the server's data may be lost: allow fsync and synchronous_commit to be off"},
    {.key = "config", .offset = offsetof(struct options, config_file), TEXT(1, 4096), .programs = BOTH,
     .help = "file with more keys (key = value lines, then [kafka])"},
};

/* LEASE_* variables of the tests, the benchmark, the crash points and ./dev. */
static const char *const ignored[] = {"LEASE_TEST_", "LEASE_BENCH_", "LEASE_CRASH", "LEASE_DEV_", "LEASE_CACHE", NULL};

#define SCHEMA(name, bit)                                                                                              \
    {.program = (name), .program_bit = (bit), .rows = rows, .row_count = sizeof rows / sizeof rows[0],                 \
     .ignored = ignored, .property_check = kafka_property_check, .property_is_secret = kafka_property_is_secret}

static const struct config_schema coordinator_schema = SCHEMA("lease-coordinator", OPTIONS_COORDINATOR);
static const struct config_schema leasectl_schema = SCHEMA("leasectl", OPTIONS_LEASECTL);

static const struct config_schema *schema_of(enum options_program program) {
    return program == OPTIONS_COORDINATOR ? &coordinator_schema : &leasectl_schema;
}

/* "<host>-<8 hex digits>": unlike any other process, before or after. */
static void make_instance(struct options *options) {
    char host[64] = "";
    unsigned char bytes[4];
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
        strcpy(host, "host");
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        memory_or_exit(NULL); /* cannot happen for 4 bytes; without chance there is no name */
    for (char *at = host; *at != '\0'; at++)
        if (strchr("/:@ ", *at) != NULL)
            *at = '-';
    snprintf(options->generated_instance, sizeof options->generated_instance, "%s-%02x%02x%02x%02x", host, bytes[0],
             bytes[1], bytes[2], bytes[3]);
    options->instance = options->generated_instance;
}

/* Rules between keys. Each names both. */
static bool check_together(const struct options *options, struct error *error) {
    if (options->queue_messages < options->batch_messages)
        return error_set(error, ERROR_FATAL, "configuration", "queue_messages (%lld) is below batch_messages (%lld)",
                         (long long)options->queue_messages, (long long)options->batch_messages);
    if (options->batch_wait_ms * 10 > options->session_timeout_ms)
        return error_set(error, ERROR_FATAL, "configuration",
                         "batch_wait_ms (%lld) is more than a tenth of session_timeout_ms (%lld)",
                         (long long)options->batch_wait_ms, (long long)options->session_timeout_ms);
    if (options->token_key_previous != NULL && strcmp(options->token_key, options->token_key_previous) == 0)
        return error_set(error, ERROR_FATAL, "configuration", "token_key and token_key_previous are the same");
    return true;
}

static bool load(struct options *options, enum options_program program, int *argc, char **argv, char *const *environment,
                 struct error *error) {
    bool is_coordinator = program == OPTIONS_COORDINATOR;
    if (!config_take_flags(options->config, argc, argv, error))
        return false;
    if (is_coordinator && !config_refuse_rest(options->config, *argc, argv, error))
        return false;
    if (!config_read_environment(options->config, environment, error) || !config_read_file(options->config, error) ||
        !config_store(options->config, options, error))
        return false;
    options->kafka = config_properties(options->config, &options->kafka_count);
    if (!is_coordinator)
        return true;
    if (options->instance == NULL)
        make_instance(options);
    return check_together(options, error);
}

bool options_load(struct options *options, enum options_program program, int *argc, char **argv, char *const *environment,
                  struct error *error) {
    memset(options, 0, sizeof *options);
    if (program == OPTIONS_COORDINATOR)
        options->action = config_take_action(argc, argv);
    if (options->action == CONFIG_HELP || options->action == CONFIG_VERSION)
        return true;
    options->config = config_new(schema_of(program));
    if (load(options, program, argc, argv, environment, error))
        return true;
    options_release(options);
    return false;
}

void options_release(struct options *options) {
    if (options == NULL)
        return;
    config_free(options->config);
    memset(options, 0, sizeof *options);
}

void options_show(const struct options *options, struct buf *out) {
    config_show(options->config, out);
}

void options_help(enum options_program program, struct buf *out) {
    config_help(schema_of(program), out);
}

int options_exit_status(const struct error *error) {
    return strcmp(error->code, "usage") == 0 ? EXIT_USAGE : EXIT_CONFIG;
}
