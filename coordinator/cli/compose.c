/* Commands from words; see compose.h. */
#include "coordinator/cli/compose.h"

#include "common/clock.h"
#include "common/lease.h"
#include "common/topics.h"
#include "common/token.h"
#include "coordinator/cli/text.h"

#include <stdlib.h>
#include <string.h>

/* Members that are numbers in every command which has them. */
static const char *const numbers[] = {"ttl_ms", "fence", "count", "delay_ms", "credit_total", "refresh", "wait_ms", "park_ms"};
static const char *const booleans[] = {"more", "retry"};

static bool is_among(const char *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

bool compose_begin(struct compose *compose, const char *json, struct error *error) {
    if (json == NULL) {
        compose->data = document_new();
        return true;
    }
    if (!document_parse(json, strlen(json), &compose->data, error))
        return error_prefix(error, "--data");
    if (!document_is_object(compose->data))
        return error_set(error, ERROR_REJECT, "usage", "--data wants a JSON object");
    return true;
}

/* `name=text` of a member that is no text: "17" is 17, "true" is true; anything else stays the text that it is. */
static bool set_plain(struct document *data, const char *name, const char *text, struct error *error) {
    int64_t number = 0;
    bool is_number = is_among(name, numbers, sizeof numbers / sizeof numbers[0]);
    bool is_boolean = is_among(name, booleans, sizeof booleans / sizeof booleans[0]);
    if (is_number && text_parse_number(text, &number))
        return document_set_number(data, name, number) || error_set(error, ERROR_REJECT, "usage", "%s is not UTF-8", name);
    if (is_boolean && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0))
        return document_set_json(data, name, text, error);
    if (!document_set_text(data, name, text))
        return error_set(error, ERROR_REJECT, "usage", "%s is not UTF-8", name);
    return true;
}

bool compose_add(struct compose *compose, const char *word, struct error *error) {
    char name[64];
    const char *equals = strchr(word, '=');
    bool is_json = equals && equals > word && equals[-1] == ':';
    size_t size = equals ? (size_t)(equals - word) - is_json : 0;
    if (size == 0 || size >= sizeof name)
        return error_set(error, ERROR_REJECT, "usage", "'%.40s' is neither name=text nor name:=json", word);
    memcpy(name, word, size);
    name[size] = '\0';
    return is_json ? document_set_json(compose->data, name, equals + 1, error)
                   : set_plain(compose->data, name, equals + 1, error);
}

bool compose_add_grant(struct compose *compose, const struct document *grant, struct error *error) {
    static const char *const members[] = {"holder", "fence", "claim_id", "token"};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (!document_copy(compose->data, members[i], grant, members[i]))
            return error_set(error, ERROR_REJECT, "not_a_grant",
                             "the grant has no %s: take one as 'leasectl tail grants -o json' prints it", members[i]);
    if (compose->subject == NULL)
        compose->subject = document_text(grant, "lease");
    if (compose->subject == NULL)
        return error_set(error, ERROR_REJECT, "not_a_grant", "the grant names no lease");
    return true;
}

static void add_header(struct compose *compose, const char *name, const char *value) {
    if (value == NULL)
        return;
    compose->headers[compose->header_count++] =
        (struct message_header){.name = name, .name_size = strlen(name), .value = value, .value_size = strlen(value)};
}

static void finish_binary(struct compose *compose) {
    document_format(compose->data, &compose->value);
    add_header(compose, "ce_specversion", "1.0");
    add_header(compose, "ce_id", compose->id);
    add_header(compose, "ce_source", compose->source);
    add_header(compose, "ce_type", compose->type);
    add_header(compose, "ce_subject", compose->subject);
    add_header(compose, "ce_time", buf_text(&compose->time));
    add_header(compose, "ce_traceparent", compose->traceparent);
    add_header(compose, "content-type", "application/json");
}

static void append_member(struct buf *buf, const char *name, const char *text) {
    if (text == NULL)
        return;
    buf_appendf(buf, "\"%s\":", name);
    buf_json_string(buf, text, strlen(text));
    buf_append_byte(buf, ',');
}

static void finish_structured(struct compose *compose) {
    buf_append_byte(&compose->value, '{');
    append_member(&compose->value, "specversion", "1.0");
    append_member(&compose->value, "id", compose->id);
    append_member(&compose->value, "source", compose->source);
    append_member(&compose->value, "type", compose->type);
    append_member(&compose->value, "subject", compose->subject);
    append_member(&compose->value, "time", buf_text(&compose->time));
    append_member(&compose->value, "traceparent", compose->traceparent);
    append_member(&compose->value, "datacontenttype", "application/json");
    buf_append_text(&compose->value, "\"data\":");
    document_format(compose->data, &compose->value);
    buf_append_byte(&compose->value, '}');
    add_header(compose, "content-type", "application/cloudevents+json; charset=UTF-8");
}

void compose_finish(struct compose *compose) {
    char time[CLOCK_TEXT_SIZE];
    buf_append_text(&compose->time, clock_format(clock_wall_us(), time));
    if (compose->is_binary)
        finish_binary(compose);
    else
        finish_structured(compose);
}

void compose_release(struct compose *compose) {
    document_free(compose->data);
    if (compose->value.data != NULL)
        token_wipe(compose->value.data, compose->value.size);
    buf_release(&compose->value);
    buf_release(&compose->time);
}

bool compose_topic(const char *type, struct buf *buf) {
    enum lease_command command = LEASE_COMMAND_COUNT;
    const char *dot = strchr(type, '.');
    if (dot == NULL || !lease_kind_is_well_formed(type, (size_t)(dot - type)) ||
        !lease_command_parse(dot + 1, strlen(dot + 1), &command))
        return false;
    if (command == LEASE_COMMAND_RENEW)
        buf_append_text(buf, topic_get(TOPIC_RENEWALS)->name);
    else
        buf_appendf(buf, "%.*s.events", (int)(dot - type), type);
    return true;
}
