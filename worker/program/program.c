/* The main of a program, and its connection; see program.h. */
#include "worker/program/program.h"

#include "common/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

extern char **environ;

/* LEASE_* variables that are not of these programs: of the coordinator, the tests, the crash points and ./dev. */
static const char *const ignored[] = {"LEASE_DATABASE", "LEASE_HTTP",  "LEASE_TOKEN_KEY", "LEASE_THROWAWAY", "LEASE_TEST_",
                                      "LEASE_BENCH_",   "LEASE_CRASH", "LEASE_DEV_",      "LEASE_CACHE",     NULL};

static bool load(const struct program *program, struct program_settings *settings, int *argc, char **argv, struct error *error) {
    struct config *config = settings->config;
    if (!config_take_flags(config, argc, argv, error) || !config_refuse_rest(config, *argc, argv, error) ||
        !config_read_environment(config, environ, error) || !config_read_file(config, error) ||
        !config_store(config, settings, error))
        return false;
    settings->kafka = config_properties(config, &settings->kafka_count);
    return program->check == NULL || program->check(settings, error);
}

static void append_help(const struct program *program, const struct config_schema *schema, struct buf *out) {
    buf_append_text(out, program->usage);
    buf_append_text(out, "  --help, --version, --show-config\n\n");
    config_help(schema, out);
}

static int print(struct buf *out) {
    fputs(buf_text(out), stdout);
    buf_release(out);
    return EXIT_SUCCESS;
}

/* Help and version ask for no settings. */
static int act(const struct program *program, const struct config_schema *schema, struct program_settings *settings, int argc,
               char **argv) {
    struct buf out = BUF_INIT;
    struct error error = {0};
    enum config_action action = config_take_action(&argc, argv);
    if (action == CONFIG_HELP) {
        append_help(program, schema, &out);
        return print(&out);
    }
    if (action == CONFIG_VERSION) {
        buf_appendf(&out, "%s %s\n", program->name, LEASE_VERSION);
        return print(&out);
    }
    settings->config = config_new(schema);
    if (!load(program, settings, &argc, argv, &error)) {
        fprintf(stderr, "%s: %s\n", program->name, error.message);
        return strcmp(error.code, "usage") == 0 ? EX_USAGE : EX_CONFIG;
    }
    if (action == CONFIG_RUN)
        return program->run(settings);
    config_show(settings->config, &out);
    return print(&out);
}

int program_main(const struct program *program, void *settings, int argc, char **argv) {
    const struct config_schema schema = {
        .program = program->name,
        .program_bit = PROGRAM_US,
        .rows = program->rows,
        .row_count = program->row_count,
        .ignored = ignored,
        .property_check = kafka_property_check,
        .property_is_secret = kafka_property_is_secret,
    };
    struct program_settings *common = settings;
    process_prepare();
    int status = act(program, &schema, common, argc, argv);
    config_free(common->config);
    return status;
}

struct lease_property *program_connect(const struct program_settings *settings, struct lease_connection *connection) {
    struct lease_property *properties = memory_alloc_array(settings->kafka_count + 1, sizeof *properties);
    for (size_t i = 0; i < settings->kafka_count; i++)
        properties[i] = (struct lease_property){.key = settings->kafka[i].key, .value = settings->kafka[i].value};
    connection->brokers = settings->brokers;
    connection->topic_prefix = settings->topic_prefix;
    connection->properties = properties;
    connection->property_count = settings->kafka_count;
    connection->group = settings->group;
    return properties;
}
