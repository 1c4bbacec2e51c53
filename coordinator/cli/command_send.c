/* leasectl send: one command onto its topic, and, when asked, its answer. */
#include "common/clock.h"
#include "common/kafka_producer.h"
#include "common/lease.h"
#include "common/token.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/compose.h"
#include "coordinator/cli/send.h"
#include "coordinator/cli/text.h"
#include "coordinator/cli/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* DELIVERY_MS: a person waits so long for the broker. WAIT_MS: --wait without a value. GRANT_BYTES: a grant's payload has
 * 64 KiB at most; there may be several of them in an array. */
enum { DELIVERY_MS = 15000, WAIT_MS = 10000, POLL_MS = 200, GRANT_BYTES_MAX = 4 * 1024 * 1024, RECORD_BYTES_MAX = 1024 * 1024 };

static const struct argument_option options[] = {
    {"data", 'd', "JSON", "the data to begin with, an object; the words are put on top"},
    {"grant", 'g', "FILE", "take holder, fence, claim_id and token from this grant ('-': stdin)"},
    {"wait", 'w', "[SECONDS]", "wait for the answer (10 s) and print it; exit code 1 if it is a refusal"},
    {"grant-to", 0, "FILE", "with --wait: wait for the grant too and write it here, for --grant (mode 0600)"},
    {"id", 0, "ID", "the CloudEvents id; the same source and id again is a duplicate (default: a new one)"},
    {"source", 0, "SOURCE", "the CloudEvents source (default: /leasectl)"},
    {"traceparent", 0, "TEXT", "W3C trace context, travels along"},
    {"binary", 0, NULL, "CloudEvents in binary mode: attributes in headers"},
    {"structured", 0, NULL, "CloudEvents in structured mode: one JSON object (default)"},
    {0},
};

struct send {
    struct cli *cli;
    struct compose compose;
    struct document *grant;
    struct buf topic; /* full name */
    char id[33];
    int64_t wait_ms; /* 0: does not wait */
    const char *grant_file;

    bool is_delivered;
    int32_t partition;
    int64_t offset;
    struct error failure;

    struct watch *watch;
    bool is_answered, is_granted;
    enum cli_exit code;
};

/* ---- what is to be sent ---- */

static void make_id(char ret_id[static 33]) {
    unsigned char bytes[16];
    size_t got = 0;
    while (got < sizeof bytes) {
        ssize_t more = getrandom(bytes + got, sizeof bytes - got, 0);
        got += more > 0 ? (size_t)more : 0;
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(ret_id + 2 * i, 3, "%02x", bytes[i]);
}

static bool read_all(int file, const char *path, struct buf *buf, struct error *error) {
    ssize_t got = 1;
    while (got != 0 && buf->size <= GRANT_BYTES_MAX) {
        buf_reserve(buf, 65536);
        got = read(file, buf->data + buf->size, 65536);
        if (got < 0 && errno != EINTR)
            return error_set(error, ERROR_REJECT, "not_readable", "%s: %s", path, strerror(errno));
        buf->size += got > 0 ? (size_t)got : 0;
    }
    if (buf->size > GRANT_BYTES_MAX)
        return error_set(error, ERROR_REJECT, "too_large", "%s is larger than %d bytes", path, GRANT_BYTES_MAX);
    return true;
}

static bool read_grant(struct send *send, const char *path, struct error *error) {
    struct buf text = BUF_INIT;
    int file = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return error_set(error, ERROR_REJECT, "not_readable", "%s: %s", path, strerror(errno));
    bool is_ok = read_all(file, path, &text, error) && document_parse_last(buf_text(&text), text.size, &send->grant, error);
    if (file != STDIN_FILENO)
        close(file);
    if (text.data != NULL)
        token_wipe(text.data, text.size);
    buf_release(&text);
    if (!is_ok)
        return error_prefix(error, "--grant");
    if (!document_is_object(send->grant))
        return error_set(error, ERROR_REJECT, "not_a_grant", "--grant: %s holds no grant", path);
    return true;
}

/* TYPE [SUBJECT] WORD…; the subject may be left to the grant. */
static bool read_words(struct send *send, struct error *error) {
    const struct arguments *arguments = &send->cli->arguments;
    size_t next = 1;
    send->compose.type = arguments->words[0];
    buf_append_text(&send->topic, cli_topic_prefix(send->cli));
    if (!compose_topic(send->compose.type, &send->topic))
        return error_set(error, ERROR_REJECT, "usage",
                         "'%s' is no type: KIND.COMMAND, such as settlement.start, cleanup.claim, settlement.renew",
                         send->compose.type);
    if (arguments->word_count > 1 && strchr(arguments->words[1], '=') == NULL)
        send->compose.subject = arguments->words[next++];
    if (send->grant != NULL && !compose_add_grant(&send->compose, send->grant, error))
        return false;
    if (send->compose.subject == NULL)
        return error_set(error, ERROR_REJECT, "usage", "which lease (or, for a claim, which worker)? leasectl send %s %s",
                         send->compose.type, "SUBJECT …");
    for (; next < arguments->word_count; next++)
        if (!compose_add(&send->compose, arguments->words[next], error))
            return false;
    return true;
}

static bool read_arguments(struct send *send, struct error *error) {
    const struct arguments *arguments = &send->cli->arguments;
    const char *grant = arguments_text(arguments, "grant"), *id = arguments_text(arguments, "id"),
               *source = arguments_text(arguments, "source");
    make_id(send->id);
    send->compose.id = id ? id : send->id;
    send->compose.source = source ? source : "/leasectl";
    send->compose.traceparent = arguments_text(arguments, "traceparent");
    send->compose.is_binary = arguments_has(arguments, "binary");
    send->grant_file = arguments_text(arguments, "grant-to");
    send->wait_ms = arguments_has(arguments, "wait") ? WAIT_MS : 0;
    if (!arguments_duration_ms(arguments, "wait", &send->wait_ms, error))
        return false;
    if (send->compose.is_binary && arguments_has(arguments, "structured"))
        return error_set(error, ERROR_REJECT, "usage", "--binary or --structured, not both");
    if (send->grant_file != NULL && send->wait_ms == 0)
        return error_set(error, ERROR_REJECT, "usage", "--grant-to needs --wait");
    return (grant == NULL || read_grant(send, grant, error)) &&
           compose_begin(&send->compose, arguments_text(arguments, "data"), error) && read_words(send, error);
}

/* ---- sending it ---- */

static void note_delivery(void *context, uint64_t number, int32_t partition, int64_t offset, const struct error *error) {
    struct send *send = context;
    (void)number;
    if (error != NULL) {
        send->failure = *error;
        return;
    }
    send->is_delivered = true;
    send->partition = partition;
    send->offset = offset;
}

static bool produce(struct send *send, struct error *error) {
    struct kafka_settings settings;
    struct kafka_producer *producer = NULL;
    if (!cli_get_kafka(send->cli, &settings, error))
        return false;
    const struct kafka_producer_options producer_options = {.settings = &settings, .delivery_ms = DELIVERY_MS,
                                                            .record_bytes = RECORD_BYTES_MAX,
                                                            .delivered = note_delivery, .context = send};
    if (!kafka_producer_new(&producer_options, &producer, error))
        return false;
    const struct kafka_record record = {
        .topic = buf_text(&send->topic), .partition = KAFKA_PARTITION_BY_KEY,
        .key = send->compose.subject, .key_size = strlen(send->compose.subject),
        .value = buf_text(&send->compose.value), .value_size = send->compose.value.size,
        .headers = send->compose.headers, .header_count = send->compose.header_count,
    };
    int32_t partitions = 0;
    /* Asked first: a topic that is not there would only show as a delivery that times out. */
    bool is_ok = kafka_producer_partition_count(producer, record.topic, DELIVERY_MS, &partitions, error) &&
                 kafka_producer_send(producer, &record, DELIVERY_MS, error) &&
                 kafka_producer_flush(producer, DELIVERY_MS + 1000, error);
    kafka_producer_free(producer);
    if (is_ok && !send->is_delivered) {
        *error = send->failure;
        return false;
    }
    return is_ok;
}

static void show_sent(struct send *send) {
    static const struct output_column columns[] = {
        {"type", "TYPE", OUTPUT_TEXT, OUTPUT_EVERYWHERE},       {"subject", "SUBJECT", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
        {"source", "SOURCE", OUTPUT_TEXT, OUTPUT_ONLY_JSON},    {"id", "ID", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
        {"topic", "TOPIC", OUTPUT_TEXT, OUTPUT_EVERYWHERE},     {"partition", "PARTITION", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
        {"offset", "OFFSET", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    };
    char partition[16], offset[24];
    struct cli *cli = send->cli;
    snprintf(partition, sizeof partition, "%d", send->partition);
    snprintf(offset, sizeof offset, "%lld", (long long)send->offset);
    output_record(cli->out, cli->format, cli->colored, columns, sizeof columns / sizeof columns[0],
                  (const char *const[]){send->compose.type, send->compose.subject, send->compose.source, send->compose.id,
                                        buf_text(&send->topic), partition, offset});
}

/* ---- its answer ---- */

/* Reads to every end first: what is there already is older than the command, and nothing newer can be missed. */
static bool open_watch(struct send *send, struct error *error) {
    static const enum topic_id topics[] = {TOPIC_RESULTS, TOPIC_DEAD_LETTERS, TOPIC_GRANTS};
    size_t count = send->grant_file ? 3 : 2; /* who does not want a grant needs no right to read them */
    struct watch_record record;
    if (!watch_open(send->cli, topics, count, true, &send->watch, error))
        return false;
    int64_t until_ms = clock_monotonic_us() / 1000 + DELIVERY_MS;
    error_set(error, ERROR_RETRY, "kafka_timeout", "the topics' ends were not reached");
    while (clock_monotonic_us() / 1000 < until_ms)
        switch (watch_next(send->watch, POLL_MS, &record, error)) {
        case WATCH_CAUGHT_UP: return true;
        case WATCH_ERROR:
            if (error->kind != ERROR_RETRY)
                return false;
            break;
        case WATCH_RECORD:
        case WATCH_NOTHING: break;
        }
    return false;
}

static bool is_from(const struct send *send, const struct document *value, const char *topic_path,
                    const char *partition_path, const char *offset_path) {
    int64_t partition = -1, offset = -1;
    const char *topic = document_text(value, topic_path);
    return topic != NULL && strcmp(topic, buf_text(&send->topic)) == 0 &&
           document_number(value, partition_path, &partition) && partition == send->partition &&
           document_number(value, offset_path, &offset) && offset == send->offset;
}

static bool names_command(const struct send *send, const struct document *value) {
    const char *id = document_text(value, "command.id"), *source = document_text(value, "command.source");
    return id != NULL && source != NULL && strcmp(id, send->compose.id) == 0 && strcmp(source, send->compose.source) == 0;
}

static void show_record(struct send *send, const struct watch_record *record) {
    struct buf line = BUF_INIT;
    if (send->cli->format == OUTPUT_TABLE)
        watch_describe(record, send->cli->colored, &line);
    else
        document_format(record->value, &line);
    fprintf(send->cli->out, "%s\n", buf_text(&line));
    fflush(send->cli->out);
    buf_release(&line);
}

static bool take_result(struct send *send, const struct watch_record *record) {
    enum lease_outcome outcome = LEASE_OUTCOME_COUNT;
    const char *name = document_text(record->value, "outcome"), *lease = document_text(record->value, "lease");
    if (!is_from(send, record->value, "origin.topic", "origin.partition", "origin.offset"))
        return false;
    /* Items of a command over many may have a record each, which names it too. */
    if (lease == NULL || strcmp(lease, send->compose.subject) != 0)
        return false;
    /* An event that came of the command later names it too; the answer is the one that is an outcome. */
    if (name == NULL || !lease_outcome_parse(name, strlen(name), &outcome))
        return false;
    show_record(send, record);
    send->is_answered = true;
    send->code = lease_outcome_is_refusal(outcome) ? CLI_NO : CLI_YES;
    return true;
}

static void take_dead_letter(struct send *send, const struct watch_record *record) {
    if (!is_from(send, record->value, "topic", "partition", "offset"))
        return;
    show_record(send, record);
    cli_note(send->cli, "the message became a dead letter: it could not be identified");
    send->is_answered = true;
    send->code = CLI_NO;
}

static enum cli_exit write_grant(struct send *send, const struct document *grant) {
    struct buf text = BUF_INIT;
    int file = open(send->grant_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0)
        return cli_fail(send->cli, CLI_DATA, NULL, "%s: %s", send->grant_file, strerror(errno));
    document_format(grant, &text);
    buf_append_byte(&text, '\n');
    bool is_written = fchmod(file, 0600) == 0 && write(file, text.data, text.size) == (ssize_t)text.size;
    is_written = close(file) == 0 && is_written;
    token_wipe(text.data, text.size);
    buf_release(&text);
    return is_written ? CLI_YES : cli_fail(send->cli, CLI_DATA, NULL, "%s was not written whole", send->grant_file);
}

static enum cli_exit take_grant(struct send *send, const struct watch_record *record) {
    if (send->is_granted || !names_command(send, record->value))
        return CLI_YES;
    send->is_granted = true;
    return write_grant(send, record->value);
}

static bool wants_more(const struct send *send) {
    if (!send->is_answered)
        return true;
    return send->code == CLI_YES && send->grant_file != NULL && !send->is_granted;
}

static enum cli_exit wait_answer(struct send *send) {
    struct watch_record record;
    struct error error = {0};
    int64_t until_ms = clock_monotonic_us() / 1000 + send->wait_ms;
    while (wants_more(send) && clock_monotonic_us() / 1000 < until_ms) {
        enum watch_event event = watch_next(send->watch, POLL_MS, &record, &error);
        if (event == WATCH_ERROR && error.kind != ERROR_RETRY)
            return cli_fail_with(send->cli, &error);
        if (event != WATCH_RECORD)
            continue;
        enum cli_exit code = CLI_YES;
        if (record.topic == TOPIC_RESULTS)
            take_result(send, &record);
        else if (record.topic == TOPIC_DEAD_LETTERS)
            take_dead_letter(send, &record);
        else
            code = take_grant(send, &record);
        if (code != CLI_YES)
            return code;
    }
    if (!send->is_answered)
        return cli_fail(send->cli, CLI_TEMPORARY, "is a coordinator running? sending it again with the same --source and --id is safe",
                        "no answer came within %lld ms; the command is %s/%d@%lld, id %s", (long long)send->wait_ms,
                        buf_text(&send->topic), send->partition, (long long)send->offset, send->compose.id);
    if (wants_more(send))
        return cli_fail(send->cli, CLI_TEMPORARY, "'leasectl tail grants --holder NAME -o json' shows it when it has come",
                        "it was answered, but no grant came within %lld ms", (long long)send->wait_ms);
    return send->code;
}

static enum cli_exit send_and_wait(struct send *send) {
    struct error error;
    compose_finish(&send->compose);
    if (send->wait_ms > 0 && !open_watch(send, &error))
        return cli_fail_with(send->cli, &error);
    if (!produce(send, &error))
        return cli_fail_with(send->cli, &error);
    if (send->wait_ms > 0)
        return wait_answer(send);
    show_sent(send);
    return CLI_YES;
}

enum cli_exit send_composed(struct cli *cli, const struct compose *compose, int64_t wait_ms) {
    struct send send = {.cli = cli, .compose = *compose, .wait_ms = wait_ms};
    make_id(send.id);
    send.compose.id = send.id;
    send.compose.source = "/leasectl";
    buf_append_text(&send.topic, cli_topic_prefix(cli));
    enum cli_exit code = compose_topic(compose->type, &send.topic)
                             ? send_and_wait(&send)
                             : cli_fail(cli, CLI_USAGE, NULL, "'%s' is no type of a command", compose->type);
    watch_free(send.watch);
    compose_release(&send.compose);
    buf_release(&send.topic);
    return code;
}

static enum cli_exit run(struct cli *cli) {
    struct send send = {.cli = cli};
    struct error error;
    enum cli_exit code = CLI_YES;
    if (!read_arguments(&send, &error))
        code = strcmp(error.code, "usage") == 0 ? cli_fail_usage(cli, &error) : cli_fail_with(cli, &error);
    else
        code = send_and_wait(&send);
    watch_free(send.watch);
    compose_release(&send.compose);
    document_free(send.grant);
    buf_release(&send.topic);
    return code;
}

const struct cli_command command_send = {
    .name = "send",
    .usage = "TYPE [SUBJECT] [NAME=TEXT | NAME:=JSON]... [--grant FILE] [--wait[=SECONDS]]",
    .summary = "send a command and see its answer",
    .help =
        "Sends one command as a CloudEvent to its topic (<kind>.events; renewals to lease.renewals), keyed by SUBJECT: the\n"
        "lease, or the worker for a claim. NAME=TEXT sets a member of the data to a text (the protocol's numbers and flags are\n"
        "understood as such), NAME:=JSON to any JSON value. Nothing is checked here: a wrong command gets the coordinator's\n"
        "answer.\n"
        "\n"
        "A holder's commands (renew, advance, finish, fail, release, cover, begin) carry holder, fence, claim_id and token of\n"
        "the grant: --grant takes them from a file (the last grant in it), and SUBJECT may then be left out. With --wait the exit\n"
        "code says whether it was done (0) or refused (1); one over many items (items:=JSON, SUBJECT is the holder) is answered\n"
        "(0), and its answer says what became of each (-o json). Words on a command line can be seen by others on the machine, so give\n"
        "a token with --grant.\n",
    .examples =
        "$ leasectl send settlement.start 2026-10 holder=run-a ttl_ms=2000 resources:='[\"contract/a1\"]' --wait --grant-to g.json\n"
        "  starts a settlement, shows the answer, keeps the grant\n"
        "$ leasectl send settlement.renew --grant g.json --wait\n"
        "  renews it\n"
        "$ leasectl send settlement.finish --grant g.json result:='{\"total\":\"70\"}' --wait=5\n"
        "  finishes it; exit code 1 and `stale` if somebody else was granted it since\n"
        "$ leasectl send cleanup.request file-17 payload:='{\"path\":\"/a/b\"}'\n"
        "$ leasectl send cleanup.claim worker-1 credit_total=1 refresh=1 wait_ms=5000 --wait --grant-to g.json\n"
        "  puts an item into the pool; asks for one\n"
        "$ leasectl tail grants --holder run-a -o json | leasectl send settlement.release --grant -\n"
        "  gives back what run-a was granted last\n",
    .options = options,
    .words_least = 1,
    .words_most = ARGUMENTS_WORDS_MAX,
    .run = run,
};
