/* options: the keys of our programs as a user meets them. How keys are spelt and who wins is test_config's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coordinator/options.h"

#define KEY "LEASE_TOKEN_KEY=canary-canary-canary-canary-canary"
#define ENOUGH "LEASE_BROKERS=b:1", "LEASE_DATABASE=host=d password=canary", KEY

struct fixture {
    struct options options;
    struct error error;
    char *argv[16];
    int argc;
};

static int set_up(void **state) {
    *state = calloc(1, sizeof(struct fixture));
    return *state == NULL;
}

static int tear_down(void **state) {
    struct fixture *fixture = *state;
    options_release(&fixture->options);
    free(fixture);
    return 0;
}

static bool load(struct fixture *fixture, enum options_program program, char *const *environment, ...)
    __attribute__((sentinel));

static bool load(struct fixture *fixture, enum options_program program, char *const *environment, ...) {
    va_list flags;
    va_start(flags, environment);
    fixture->argc = 0;
    fixture->argv[fixture->argc++] = (char *)(uintptr_t) "program";
    while ((fixture->argv[fixture->argc] = va_arg(flags, char *)) != NULL)
        fixture->argc++;
    va_end(flags);
    options_release(&fixture->options);
    return options_load(&fixture->options, program, &fixture->argc, fixture->argv, environment, &fixture->error);
}

#define ENVIRONMENT(...) ((char *[]){__VA_ARGS__, NULL})

static void test_options__brokers_database_and_key_are_enough(void **state) {
    struct fixture *fixture = *state;
    struct options *options = &fixture->options;
    assert_true(load(fixture, OPTIONS_COORDINATOR, ENVIRONMENT(ENOUGH), NULL));
    assert_string_equal(options->brokers, "b:1");
    assert_string_equal(options->database, "host=d password=canary");
    assert_string_equal(options->http, "127.0.0.1:9464");
    assert_string_equal(options->topic_prefix, "");
    assert_string_equal(options->group, "lease-coordinator");
    assert_null(options->token_key_previous);
    assert_int_equal(options->batch_messages, 1000);
    assert_int_equal(options->batch_bytes, 4 << 20);
    assert_int_equal(options->batch_wait_ms, 0);
    assert_int_equal(options->lanes, 2);
    assert_int_equal(options->queue_messages, 4000);
    assert_int_equal(options->session_timeout_ms, 10000);
    assert_int_equal(options->database_grace_ms, 30000);
    assert_int_equal(options->drain_ms, 10000);
    assert_int_equal(options->reap_poll_ms, 50);
    assert_int_equal(options->relay_batch, 2000);
    assert_int_equal(options->mark_interval_ms, 60000);
    assert_int_equal(options->log_format, LOG_FORMAT_LOGFMT);
    assert_int_equal(options->log_level, LOG_INFO);
    assert_false(options->throwaway);
    assert_int_equal(options->action, CONFIG_RUN);
    assert_int_equal(options->kafka_count, 0);
}

static void test_options__choices_match_the_logs_enums(void **state) {
    struct fixture *fixture = *state;
    for (int i = LOG_DEBUG; i <= LOG_ERROR; i++) {
        assert_true(load(fixture, OPTIONS_COORDINATOR, ENVIRONMENT(ENOUGH), "--log-format=json", "--log-level",
                         log_level_name((enum log_level)i), NULL));
        assert_int_equal(fixture->options.log_level, i);
        assert_int_equal(fixture->options.log_format, LOG_FORMAT_JSON);
    }
}

static void test_options__each_process_has_a_name_of_its_own(void **state) {
    struct fixture *fixture = *state;
    char first[128];
    assert_true(load(fixture, OPTIONS_COORDINATOR, ENVIRONMENT(ENOUGH), NULL));
    snprintf(first, sizeof first, "%s", fixture->options.instance);
    size_t length = strlen(first);
    assert_true(length >= 10 && first[length - 9] == '-');
    assert_int_equal(strspn(first + length - 8, "0123456789abcdef"), 8);
    assert_true(load(fixture, OPTIONS_COORDINATOR, ENVIRONMENT(ENOUGH), NULL));
    assert_string_not_equal(first, fixture->options.instance);
    assert_true(load(fixture, OPTIONS_COORDINATOR, ENVIRONMENT(ENOUGH), "--instance", "mine", NULL));
    assert_string_equal(fixture->options.instance, "mine");
}

static void test_options__what_is_wrong_is_refused_with_a_status(void **state) {
    static const struct {
        const char *flag, *value;
        int status;
        const char *message;
    } rows[] = {
        {"--queue-messages", "999", 78, "queue_messages (999) is below batch_messages (1000)"},
        {"--batch-wait-ms=1000", "--session-timeout-ms=9999", 78,
         "batch_wait_ms (1000) is more than a tenth of session_timeout_ms (9999)"},
        {"--http", "9464", 78, "http (--http): \"9464\" is not host:port with a numeric address, localhost or *"},
        {"--topic-prefix", "a b", 78, "topic_prefix (--topic-prefix): \"a b\" may hold only letters, digits, '.', '_' and '-'"},
        {"--batch-mesages", "5", 64, "unknown key --batch-mesages, the nearest known one is --batch-messages"},
        {"--lanes", "0", 78, "lanes (--lanes): 0 is outside 1..16"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture *fixture = *state;
        assert_false(load(fixture, OPTIONS_COORDINATOR, ENVIRONMENT(ENOUGH), rows[i].flag, rows[i].value, NULL));
        assert_string_equal(fixture->error.message, rows[i].message);
        assert_int_equal(options_exit_status(&fixture->error), rows[i].status);
    }
}

static void test_options__what_is_missing_is_named(void **state) {
    struct fixture *fixture = *state;
    assert_false(load(fixture, OPTIONS_COORDINATOR, ENVIRONMENT(KEY, "LEASE_DATABASE=x"), NULL));
    assert_string_equal(fixture->error.message, "brokers is not set: use --brokers, LEASE_BROKERS, or brokers in the file");
    assert_false(load(fixture, OPTIONS_COORDINATOR, ENVIRONMENT("LEASE_BROKERS=b", "LEASE_DATABASE=x"), NULL));
    assert_string_equal(fixture->error.message,
                        "token_key is not set: use LEASE_TOKEN_KEY, LEASE_TOKEN_KEY_FILE, or token_key or its _file in the file");
}

static void test_options__short_and_equal_keys_are_refused(void **state) {
    struct fixture *fixture = *state;
    assert_false(load(fixture, OPTIONS_COORDINATOR,
                      ENVIRONMENT("LEASE_BROKERS=b", "LEASE_DATABASE=x", "LEASE_TOKEN_KEY=0123456789012345678901234567890"), NULL));
    assert_string_equal(fixture->error.message, "token_key (LEASE_TOKEN_KEY): 31 bytes long, allowed are 32 to 4096");
    assert_false(load(fixture, OPTIONS_COORDINATOR,
                      ENVIRONMENT(ENOUGH, "LEASE_TOKEN_KEY_PREVIOUS=canary-canary-canary-canary-canary"), NULL));
    assert_string_equal(fixture->error.message, "token_key and token_key_previous are the same");
}

static void test_options__protocol_keys_of_librdkafka_are_refused_by_name(void **state) {
    static const char *const names[] = {"enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset", "acks",
                                        "enable.idempotence", "group.id",  "bootstrap.servers",  "isolation.level",
                                        "plugin.library.paths", "no.such.key"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fixture *fixture = *state;
        char property[64];
        snprintf(property, sizeof property, "%s=canary", names[i]);
        if (load(fixture, OPTIONS_COORDINATOR, ENVIRONMENT(ENOUGH), "-X", property, NULL))
            fail_msg("%s was accepted", names[i]);
        assert_non_null(strstr(fixture->error.message, names[i]));
        assert_null(strstr(fixture->error.message, "canary"));
        assert_int_equal(options_exit_status(&fixture->error), 78);
    }
}

static void test_options__security_of_kafka_passes_through(void **state) {
    struct fixture *fixture = *state;
    assert_true(load(fixture, OPTIONS_COORDINATOR, ENVIRONMENT(ENOUGH, "LEASE_KAFKA_SASL_PASSWORD=canary"), "-X",
                     "security.protocol=SASL_SSL", "-X", "sasl.mechanisms=SCRAM-SHA-512", "-X", "sasl.username=u", NULL));
    assert_int_equal(fixture->options.kafka_count, 4);
    assert_string_equal(fixture->options.kafka[0].key, "sasl.mechanisms");
    assert_string_equal(fixture->options.kafka[0].value, "SCRAM-SHA-512");
}

static void test_options__show_holds_no_secret(void **state) {
    struct fixture *fixture = *state;
    assert_true(load(fixture, OPTIONS_COORDINATOR,
                     ENVIRONMENT(ENOUGH, "LEASE_KAFKA_SASL_PASSWORD=canary",
                                 "LEASE_TOKEN_KEY_PREVIOUS=canary-canary-canary-canary-canary-"),
                     "--show-config", NULL));
    assert_int_equal(fixture->options.action, CONFIG_SHOW);
    struct buf out = BUF_INIT;
    options_show(&fixture->options, &out);
    assert_null(strstr(buf_text(&out), "canary"));
    assert_non_null(strstr(buf_text(&out), "brokers = b:1  # LEASE_BROKERS\n"));
    assert_non_null(strstr(buf_text(&out), "token_key_previous = (secret)  # LEASE_TOKEN_KEY_PREVIOUS\n"));
    buf_release(&out);
}

static void test_options__help_and_version_need_nothing_else(void **state) {
    struct fixture *fixture = *state;
    char *nothing[] = {NULL};
    assert_true(load(fixture, OPTIONS_COORDINATOR, nothing, "--lanes", "many", "--help", NULL));
    assert_int_equal(fixture->options.action, CONFIG_HELP);
    assert_true(load(fixture, OPTIONS_COORDINATOR, nothing, "-V", NULL));
    assert_int_equal(fixture->options.action, CONFIG_VERSION);
}

static void test_options__leasectl_takes_its_keys_and_leaves_the_rest(void **state) {
    struct fixture *fixture = *state;
    char *environment[] = {"LEASE_HTTP=127.0.0.1:1", "LEASE_LANES=nonsense", NULL};
    assert_true(load(fixture, OPTIONS_LEASECTL, environment, "ls", "--brokers=b:2", "--kind", "settlement", "--topic-prefix",
                     "p.", "-X", "client.rack=x", "--help", NULL));
    assert_string_equal(fixture->options.brokers, "b:2");
    assert_string_equal(fixture->options.topic_prefix, "p.");
    assert_null(fixture->options.database);
    static const char *const wanted[] = {"program", "ls", "--kind", "settlement", "--help"};
    assert_int_equal(fixture->argc, 5);
    for (int i = 0; i < fixture->argc; i++)
        assert_string_equal(fixture->argv[i], wanted[i]);
}

#define OPTIONS_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        OPTIONS_TEST(test_options__brokers_database_and_key_are_enough),
        OPTIONS_TEST(test_options__choices_match_the_logs_enums),
        OPTIONS_TEST(test_options__each_process_has_a_name_of_its_own),
        OPTIONS_TEST(test_options__what_is_wrong_is_refused_with_a_status),
        OPTIONS_TEST(test_options__what_is_missing_is_named),
        OPTIONS_TEST(test_options__short_and_equal_keys_are_refused),
        OPTIONS_TEST(test_options__protocol_keys_of_librdkafka_are_refused_by_name),
        OPTIONS_TEST(test_options__security_of_kafka_passes_through),
        OPTIONS_TEST(test_options__show_holds_no_secret),
        OPTIONS_TEST(test_options__help_and_version_need_nothing_else),
        OPTIONS_TEST(test_options__leasectl_takes_its_keys_and_leaves_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
