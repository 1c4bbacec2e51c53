/* leasectl topics: the one table of topics (common/topics.h) against what the broker has. */
#include "common/clock.h"
#include "common/kafka_admin.h"
#include "common/kafka_reader.h"
#include "common/lease.h"
#include "common/topics.h"
#include "coordinator/cli/commands.h"

#include <string.h>

/* One request to the broker. REPLICAS_MAX: Kafka's own field has 16 bits. TOPICS_MAX: the table's, and that of --kind. */
enum { REQUEST_MS = 5000, CREATE_MS = 30000, SERVED_RETRY_MS = 20, REPLICAS_MAX = 32767, TOPICS_MAX = TOPIC_COUNT + 1 };

static const struct argument_option options[] = {
    {"apply", 0, NULL, "create the topics that are missing"},
    {"kind", 0, "KIND", "also <kind>.events of a kind that is only rows in lease.kind"},
    {"replicas", 0, "N", "copies of each topic that is created (default: the broker's own default)"},
    {"wait", 'w', "SECONDS", "wait so long for the broker to answer"},
    {0},
};

static const struct output_column columns[] = {
    {"topic", "TOPIC", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"state", "STATE", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"partitions", "PARTITIONS", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"replicas", "REPLICAS", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"cleanup_policy", "CLEANUP", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"key", "KEY", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"contents", "CONTENTS", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"differences", "DIFFERS", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
};

enum topic_state { TOPIC_IS_THERE, TOPIC_DIFFERS, TOPIC_MISSING, TOPIC_CREATED };
static const char *const state_names[] = {"there", "differs", "missing", "created"};

struct seen {
    const struct topic *topic;
    struct buf name; /* full */
    enum topic_state state;
    int32_t partitions, replicas;
    struct buf differences; /* "retention.ms is 1, should be 604800000; …" */
};

struct topics {
    struct cli *cli;
    struct kafka_admin *admin;
    struct seen seen[TOPICS_MAX];
    size_t count;
    struct buf kind_name; /* of --kind's topic, and the topic */
    struct topic of_kind;
    int64_t replicas; /* 0: the broker's default */
    int64_t wait_ms;
};

/* ---- looking ---- */

static void note_difference(struct seen *seen, const char *what, const char *is, const char *should) {
    buf_appendf(&seen->differences, "%s%s is %s, should be %s", seen->differences.size > 0 ? "; " : "", what,
                is && is[0] ? is : "unset", should);
}

static void compare_config(void *context, const char *key, const char *value, bool is_default) {
    struct seen *seen = context;
    const char *should = topic_config_get(seen->topic, key);
    (void)is_default;
    if (should != NULL && (value == NULL || strcmp(value, should) != 0))
        note_difference(seen, key, value, should);
}

static bool look_at(struct topics *topics, struct seen *seen, struct error *error) {
    const char *name = buf_text(&seen->name);
    char is[16], should[16];
    buf_reset(&seen->differences);
    if (!kafka_admin_partition_count(topics->admin, name, REQUEST_MS, &seen->partitions, &seen->replicas, error))
        return false;
    if (seen->partitions == 0 && seen->state == TOPIC_CREATED)
        return error_set(error, ERROR_RETRY, "kafka_unknown_topic", "%s was created, and a broker has not heard of it yet", name);
    if (seen->partitions == 0) {
        seen->state = TOPIC_MISSING;
        return true;
    }
    snprintf(is, sizeof is, "%d", seen->partitions);
    snprintf(should, sizeof should, "%d", seen->topic->partitions);
    if (seen->partitions != seen->topic->partitions)
        note_difference(seen, "the number of partitions", is, should);
    if (!kafka_admin_describe_config(topics->admin, name, REQUEST_MS, compare_config, seen, error)) {
        if (strcmp(error->code, "kafka_unknown_topic") == 0)
            error->kind = ERROR_RETRY; /* one broker knows it, and another not yet */
        return false;
    }
    enum topic_state when_same = seen->state == TOPIC_CREATED ? TOPIC_CREATED : TOPIC_IS_THERE;
    seen->state = seen->differences.size > 0 ? TOPIC_DIFFERS : when_same;
    return true;
}

static bool look_at_all(struct topics *topics, struct error *error) {
    for (size_t i = 0; i < topics->count; i++)
        if (!look_at(topics, &topics->seen[i], error))
            return false;
    return true;
}

/* The first look may find the broker not there yet; the one after creating, a broker that is behind. */
static bool look_within(struct topics *topics, int64_t wait_ms, struct error *error) {
    int64_t until_us = clock_monotonic_us() + wait_ms * 1000;
    bool has_said = false;
    while (!look_at_all(topics, error)) {
        if (error->kind != ERROR_RETRY || clock_monotonic_us() >= until_us)
            return false;
        if (!has_said)
            cli_note(topics->cli, "waiting for Kafka");
        has_said = true;
        cli_pause_ms(CLI_RETRY_MS);
    }
    return true;
}

/* ---- creating ---- */

static size_t spec_of(const struct topics *topics, const struct seen *seen, struct kafka_topic_config *configs,
                      struct kafka_topic_spec *ret_spec) {
    size_t count = 0;
    for (; count < TOPIC_CONFIGS_MAX && seen->topic->configs[count].name != NULL; count++)
        configs[count] = (struct kafka_topic_config){seen->topic->configs[count].name, seen->topic->configs[count].value};
    *ret_spec = (struct kafka_topic_spec){buf_text(&seen->name), seen->topic->partitions, (int32_t)topics->replicas,
                                          configs, count};
    return count;
}

/* A broker that just heard of a partition says "not leader" for a moment, though the metadata already names it, and another one has
 * not heard of it yet: who is told that topics are ready must be able to use them. */
static bool await_partition(struct kafka_reader *reader, const char *topic, int32_t partition, int64_t until_us,
                            struct error *error) {
    int64_t low = 0, high = 0;
    while (!kafka_reader_watermarks(reader, topic, partition, REQUEST_MS, &low, &high, error)) {
        bool may_pass = error->kind == ERROR_RETRY || strcmp(error->code, "kafka_unknown_topic") == 0;
        if (!may_pass || clock_monotonic_us() >= until_us)
            return error_prefix(error, "%s/%d was created and does not answer yet", topic, partition);
        cli_pause_ms(SERVED_RETRY_MS);
    }
    return true;
}

static bool await_created(struct topics *topics, struct error *error) {
    struct kafka_settings settings;
    struct kafka_reader *reader = NULL;
    const struct kafka_reader_options reader_options = {.settings = &settings, .group = cli_group(topics->cli)};
    int64_t until_us = clock_monotonic_us() + CREATE_MS * INT64_C(1000);
    bool is_ok = cli_get_kafka(topics->cli, &settings, error) && kafka_reader_new(&reader_options, &reader, error);
    for (size_t i = 0; i < topics->count && is_ok; i++)
        for (int32_t partition = 0; partition < topics->seen[i].topic->partitions && is_ok; partition++)
            if (topics->seen[i].state == TOPIC_CREATED)
                is_ok = await_partition(reader, buf_text(&topics->seen[i].name), partition, until_us, error);
    kafka_reader_free(reader);
    return is_ok;
}

static bool create_missing(struct topics *topics, struct error *error) {
    struct kafka_topic_config configs[TOPICS_MAX][TOPIC_CONFIGS_MAX];
    struct kafka_topic_spec specs[TOPICS_MAX];
    struct kafka_create_result results[TOPICS_MAX];
    struct seen *missing[TOPICS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < topics->count; i++) {
        if (topics->seen[i].state != TOPIC_MISSING)
            continue;
        spec_of(topics, &topics->seen[i], configs[count], &specs[count]);
        missing[count++] = &topics->seen[i];
    }
    if (count == 0)
        return true;
    if (!kafka_admin_create_topics(topics->admin, specs, count, CREATE_MS, results, error))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (results[i].created == KAFKA_NOT_CREATED) {
            *error = results[i].error;
            return error_prefix(error, "%s", specs[i].name);
        }
        missing[i]->state = results[i].created == KAFKA_CREATED ? TOPIC_CREATED : TOPIC_IS_THERE;
    }
    return await_created(topics, error) && look_within(topics, CREATE_MS, error);
}

/* ---- showing ---- */

static void show(struct topics *topics) {
    struct cli *cli = topics->cli;
    struct output output;
    output_begin(&output, cli->out, cli->format, cli->colored, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < topics->count; i++) {
        const struct seen *seen = &topics->seen[i];
        char partitions[16], replicas[16];
        bool is_missing = seen->state == TOPIC_MISSING;
        snprintf(partitions, sizeof partitions, "%d", is_missing ? seen->topic->partitions : seen->partitions);
        snprintf(replicas, sizeof replicas, "%d", seen->replicas);
        output_row(&output, (const char *const[]){buf_text(&seen->name), state_names[seen->state], partitions,
                                                  is_missing ? NULL : replicas,
                                                  topic_config_get(seen->topic, "cleanup.policy"), seen->topic->key,
                                                  seen->topic->contents,
                                                  seen->differences.size > 0 ? buf_text(&seen->differences) : NULL});
    }
    output_end(&output);
}

static size_t count_state(const struct topics *topics, enum topic_state state) {
    size_t count = 0;
    for (size_t i = 0; i < topics->count; i++)
        count += topics->seen[i].state == state;
    return count;
}

static enum cli_exit conclude(struct topics *topics) {
    size_t missing = count_state(topics, TOPIC_MISSING), differing = count_state(topics, TOPIC_DIFFERS);
    if (missing > 0)
        cli_note(topics->cli, "%zu of %zu topics are missing; 'leasectl topics --apply' creates them", missing, topics->count);
    if (differing > 0)
        cli_note(topics->cli, "%zu of %zu topics differ; nothing that exists is changed here: use Kafka's own kafka-configs, and "
                              "note that a topic's number of partitions is fixed once it is in use", differing, topics->count);
    /* A setting that somebody chose is no failure of --apply; a missing topic is. */
    bool applies = arguments_has(&topics->cli->arguments, "apply");
    return missing > 0 || (differing > 0 && !applies) ? CLI_NO : CLI_YES;
}

static enum cli_exit run_with(struct topics *topics) {
    struct cli *cli = topics->cli;
    struct kafka_settings settings;
    struct error error;
    if (!cli_get_kafka(cli, &settings, &error) || !kafka_admin_new(&settings, &topics->admin, &error) ||
        !look_within(topics, topics->wait_ms, &error) ||
        (arguments_has(&cli->arguments, "apply") && !create_missing(topics, &error)))
        return cli_fail_with(cli, &error);
    show(topics);
    return conclude(topics);
}

static void add_topic(struct topics *topics, const struct topic *topic) {
    struct seen *seen = &topics->seen[topics->count++];
    seen->topic = topic;
    buf_append_text(&seen->name, cli_topic_prefix(topics->cli));
    buf_append_text(&seen->name, topic->name);
}

/* A kind that the table has is listed anyway. */
static bool add_kind(struct topics *topics, const char *kind, struct error *error) {
    enum topic_id id;
    if (!lease_kind_is_well_formed(kind, strlen(kind)))
        return error_set(error, ERROR_REJECT, "usage", "--kind: '%.40s' is no name of a kind", kind);
    buf_appendf(&topics->kind_name, "%s.events", kind);
    if (topic_find("", buf_text(&topics->kind_name), &id))
        return true;
    topics->of_kind = topic_of_kind(buf_text(&topics->kind_name));
    add_topic(topics, &topics->of_kind);
    return true;
}

static bool read_arguments(struct topics *topics, struct error *error) {
    const struct arguments *arguments = &topics->cli->arguments;
    const char *kind = arguments_text(arguments, "kind");
    return arguments_duration_ms(arguments, "wait", &topics->wait_ms, error) &&
           arguments_number(arguments, "replicas", 1, REPLICAS_MAX, &topics->replicas, error) &&
           (kind == NULL || add_kind(topics, kind, error));
}

static enum cli_exit run(struct cli *cli) {
    struct topics topics = {.cli = cli};
    struct error error;
    for (unsigned id = 0; id < TOPIC_COUNT; id++)
        add_topic(&topics, topic_get((enum topic_id)id));
    enum cli_exit code = read_arguments(&topics, &error) ? run_with(&topics) : cli_fail_usage(cli, &error);
    for (size_t i = 0; i < topics.count; i++) {
        buf_release(&topics.seen[i].name);
        buf_release(&topics.seen[i].differences);
    }
    buf_release(&topics.kind_name);
    kafka_admin_free(topics.admin);
    return code;
}

const struct cli_command command_topics = {
    .name = "topics",
    .usage = "[--apply [--replicas N]] [--kind KIND] [--wait SECONDS]",
    .summary = "compare the broker's topics with those needed, create what is missing",
    .help =
        "Shows the topics that Leasehold uses, what the broker has of them, and where a setting differs. With --apply those that\n"
        "are missing are created, and waited for until every partition answers; running it again changes nothing. What\n"
        "exists is never changed: a difference is shown, and may be meant.\n"
        "Exit code 0 if all is there (without --apply: and as it should be), else 1. --topic-prefix goes before every name.\n",
    .examples =
        "$ leasectl topics --brokers kafka:9092\n"
        "  what is there, missing, different\n"
        "$ leasectl topics --apply --replicas 3 --wait 60\n"
        "  waits for the broker, then creates what is missing with three copies\n"
        "$ leasectl topics --apply --kind price-list\n"
        "  creates price-list.events too, for a kind that was added as rows\n",
    .options = options,
    .run = run,
};
