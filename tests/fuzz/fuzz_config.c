/* options_load: command line, environment and file. Input: lines `arg X`, `env NAME=VALUE` and `program leasectl` (else it is the
 * coordinator), then, behind an empty line, the file.
 *
 * Holds: whatever is refused is refused for good, with a known code and a text; whatever is taken lies in its bounds, and is taken
 * again as the same when every value that --show-config prints is given as a flag; secrets stand in no error and in nothing shown. */
#include "fuzz.h"

#include "coordinator/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET "canary-0123456789-canary-0123456789-canary"
enum { WORDS_MAX = 64 };

/* A list of words as main gets them. */
struct words {
    char *items[WORDS_MAX + 8];
    size_t count;
};

static void add_word(struct words *words, char *take_word) {
    if (words->count < WORDS_MAX)
        words->items[words->count++] = take_word;
    else
        free(take_word);
}

static void free_words(struct words *words) {
    for (size_t i = 0; i < words->count; i++)
        free(words->items[i]);
    *words = (struct words){0};
}

/* ---- the input ---- */

struct input {
    enum options_program program;
    struct words arguments, environment;
    bool has_secrets; /* ours were added, and nobody else's are there */
};

/* The file, in memory: closed to others, so that it may hold secrets. */
static const char *file_path(const uint8_t *text, size_t size) {
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("fuzz-config", MFD_CLOEXEC);
        CHECK(file >= 0 && fchmod(file, 0600) == 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    CHECK(ftruncate(file, 0) == 0 && pwrite(file, text, size, 0) == (ssize_t)size);
    return path;
}

static bool mentions(const uint8_t *data, size_t size, const char *word) {
    size_t length = strlen(word);
    for (size_t i = 0; i + length <= size; i++)
        if (strncasecmp((const char *)data + i, word, length) == 0)
            return true;
    return false;
}

static void read_line(struct input *input, const char *line, size_t size) {
    if (size >= 4 && memcmp(line, "arg ", 4) == 0)
        add_word(&input->arguments, memory_copy_bytes(line + 4, size - 4));
    else if (size >= 4 && memcmp(line, "env ", 4) == 0)
        add_word(&input->environment, memory_copy_bytes(line + 4, size - 4));
    else if (size == 16 && memcmp(line, "program leasectl", 16) == 0)
        input->program = OPTIONS_LEASECTL;
}

static void read_input(struct input *input, const uint8_t *data, size_t size) {
    *input = (struct input){.program = OPTIONS_COORDINATOR};
    add_word(&input->arguments, memory_copy_text("program"));
    if (!mentions(data, size, "brokers"))
        add_word(&input->environment, memory_copy_text("LEASE_BROKERS=localhost:9092"));
    input->has_secrets = !mentions(data, size, "canary");
    if (!mentions(data, size, "token"))
        add_word(&input->environment, memory_copy_text("LEASE_TOKEN_KEY=" SECRET));
    if (!mentions(data, size, "database"))
        add_word(&input->environment, memory_copy_text("LEASE_DATABASE=password=" SECRET));
    if (!mentions(data, size, "sasl"))
        add_word(&input->environment, memory_copy_text("LEASE_KAFKA_SASL_PASSWORD=" SECRET));
    const char *line;
    size_t length, position = 0;
    while (fuzz_next_line(data, size, &position, &line, &length)) {
        if (length > 0) {
            read_line(input, line, length);
            continue;
        }
        struct buf variable = BUF_INIT;
        buf_appendf(&variable, "LEASE_CONFIG=%s", file_path(data + position, size - position));
        add_word(&input->environment, buf_take(&variable, NULL));
        break;
    }
}

/* ---- what must hold ---- */

static void check_refusal(const struct input *input, const struct error *error) {
    static const char *const codes[] = {"usage",       "configuration",      "secret_file",
                                        "kafka_value", "kafka_key_unknown", "kafka_key_refused", "kafka_key_protocol"};
    bool is_known = false;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        is_known |= strcmp(codes[i], error->code) == 0;
    CHECK(is_known && error->kind == ERROR_FATAL && error->message[0] != '\0');
    CHECK(options_exit_status(error) == (strcmp(error->code, "usage") == 0 ? 64 : 78));
    CHECK(!input->has_secrets || strstr(error->message, "canary") == NULL);
}

static void check_between(int64_t number, int64_t least, int64_t most) {
    CHECK(number >= least && number <= most);
}

static void check_text(const char *text, size_t least, size_t most) {
    CHECK(text != NULL && strlen(text) >= least && strlen(text) <= most);
    for (; *text != '\0'; text++)
        CHECK((unsigned char)*text >= 0x20 && *text != 0x7F);
}

static void check_bounds(const struct options *options) {
    check_text(options->brokers, 1, 4096);
    check_text(options->database, 1, 8192);
    check_text(options->http, 1, 80);
    check_text(options->topic_prefix, 0, 100);
    check_text(options->group, 1, 100);
    check_text(options->instance, 1, 100);
    check_text(options->token_key, 32, 4096);
    check_between(options->batch_messages, 1, 10000);
    check_between(options->batch_bytes, 1, 67108864);
    check_between(options->batch_wait_ms, 0, 1000);
    check_between(options->lanes, 1, 16);
    check_between(options->queue_messages, options->batch_messages, 1000000);
    check_between(options->session_timeout_ms, 1000, 300000);
    check_between(options->database_grace_ms, 1000, 3600000);
    check_between(options->drain_ms, 0, 600000);
    check_between(options->reap_poll_ms, 1, 1000);
    check_between(options->relay_batch, 1, 20000);
    check_between(options->mark_interval_ms, 100, 3600000);
    check_between(options->log_format, 0, 1);
    check_between(options->log_level, 0, 3);
    CHECK(options->batch_wait_ms * 10 <= options->session_timeout_ms);
    CHECK(options->token_key_previous == NULL || strcmp(options->token_key, options->token_key_previous) != 0);
}

static void check_properties(const struct options *options) {
    struct error error;
    for (size_t i = 0; i < options->kafka_count; i++) {
        CHECK(i == 0 || strcmp(options->kafka[i - 1].key, options->kafka[i].key) < 0);
        CHECK(kafka_property_check(options->kafka[i].key, options->kafka[i].value, &error));
    }
}

/* ---- the same again ---- */

/* "key = value  # where" of what is shown, up to [kafka]. False: no such line. */
static bool split_shown(const char *line, size_t size, struct buf *key, struct buf *value) {
    const char *equals = memmem(line, size, " = ", 3), *end = NULL;
    if (equals == NULL || line[0] == '#')
        return false;
    for (const char *at = equals; at != NULL; at = memmem(at + 1, size - (size_t)(at + 1 - line), "  # ", 4))
        end = at;
    buf_append(key, line, (size_t)(equals - line));
    buf_append(value, equals + 3, (size_t)(end - equals - 3));
    return true;
}

static bool is_given_again(const char *key) {
    return strcmp(key, "config") != 0 && strcmp(key, "database") != 0 && strncmp(key, "token_key", 9) != 0;
}

static void add_flags(struct words *flags, const struct buf *shown) {
    const char *line;
    size_t length, position = 0;
    while (fuzz_next_line((const uint8_t *)shown->data, shown->size, &position, &line, &length) &&
           !(length == 7 && memcmp(line, "[kafka]", 7) == 0)) {
        struct buf key = BUF_INIT, value = BUF_INIT, flag = BUF_INIT;
        if (split_shown(line, length, &key, &value) && is_given_again(buf_text(&key))) {
            config_flag_name(buf_text(&key), &flag);
            buf_appendf(&flag, "=%s", buf_text(&value));
            add_word(flags, buf_take(&flag, NULL));
        }
        buf_release(&key);
        buf_release(&value);
        buf_release(&flag);
    }
}

static void add_secret(struct words *environment, const char *name, const char *value) {
    struct buf variable = BUF_INIT;
    if (value != NULL)
        buf_appendf(&variable, "%s=%s", name, value);
    if (value != NULL)
        add_word(environment, buf_take(&variable, NULL));
}

static void check_same(const struct options *left, const struct options *right) {
    CHECK(fuzz_same_text(left->brokers, right->brokers) && fuzz_same_text(left->database, right->database));
    CHECK(fuzz_same_text(left->http, right->http) && fuzz_same_text(left->topic_prefix, right->topic_prefix));
    CHECK(fuzz_same_text(left->group, right->group) && fuzz_same_text(left->token_key, right->token_key));
    CHECK(fuzz_same_text(left->token_key_previous, right->token_key_previous));
    CHECK(left->batch_messages == right->batch_messages && left->batch_bytes == right->batch_bytes);
    CHECK(left->batch_wait_ms == right->batch_wait_ms && left->lanes == right->lanes);
    CHECK(left->queue_messages == right->queue_messages && left->session_timeout_ms == right->session_timeout_ms);
    CHECK(left->database_grace_ms == right->database_grace_ms && left->drain_ms == right->drain_ms);
    CHECK(left->reap_poll_ms == right->reap_poll_ms && left->relay_batch == right->relay_batch);
    CHECK(left->mark_interval_ms == right->mark_interval_ms && left->throwaway == right->throwaway);
    CHECK(left->log_format == right->log_format && left->log_level == right->log_level);
    CHECK(left->kafka_count == right->kafka_count);
    for (size_t i = 0; i < left->kafka_count; i++)
        CHECK(strcmp(left->kafka[i].key, right->kafka[i].key) == 0 && strcmp(left->kafka[i].value, right->kafka[i].value) == 0);
}

static void check_again(const struct options *options, enum options_program program, const struct buf *shown) {
    struct words flags = {0}, environment = {0};
    add_word(&flags, memory_copy_text("program"));
    add_flags(&flags, shown);
    for (size_t i = 0; i < options->kafka_count; i++) {
        struct buf flag = BUF_INIT;
        buf_appendf(&flag, "-X%s=%s", options->kafka[i].key, options->kafka[i].value);
        add_word(&flags, buf_take(&flag, NULL));
    }
    add_secret(&environment, "LEASE_DATABASE", options->database);
    add_secret(&environment, "LEASE_TOKEN_KEY", options->token_key);
    add_secret(&environment, "LEASE_TOKEN_KEY_PREVIOUS", options->token_key_previous);
    struct words arguments = flags; /* the list is changed, its words are not */
    int count = (int)arguments.count;
    struct options again;
    struct error error = {0};
    bool is_loaded = options_load(&again, program, &count, arguments.items, environment.items, &error);
    if (!is_loaded)
        fprintf(stderr, "%s: %s\n", error.code, error.message);
    CHECK(is_loaded && count == 1);
    check_same(options, &again);
    options_release(&again);
    free_words(&flags);
    free_words(&environment);
}

static void check_taken(const struct input *input, const struct options *options) {
    struct buf shown = BUF_INIT;
    options_show(options, &shown);
    CHECK(!input->has_secrets || strstr(buf_text(&shown), "canary") == NULL);
    if (input->program == OPTIONS_COORDINATOR)
        check_bounds(options);
    check_properties(options);
    if (options->kafka_count < 24)
        check_again(options, input->program, &shown);
    buf_release(&shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input input;
    read_input(&input, data, size);
    struct words arguments = input.arguments;
    int count = (int)arguments.count;
    struct options options;
    struct error error = {0};
    if (!options_load(&options, input.program, &count, arguments.items, input.environment.items, &error))
        check_refusal(&input, &error);
    else if (options.action == CONFIG_RUN || options.action == CONFIG_SHOW)
        check_taken(&input, &options);
    CHECK(count >= 1 && count <= (int)input.arguments.count && strcmp(arguments.items[0], "program") == 0);
    if (error.kind == ERROR_NONE)
        options_release(&options);
    free_words(&input.arguments);
    free_words(&input.environment);
    return 0;
}
