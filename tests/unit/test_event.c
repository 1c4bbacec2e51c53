/* Every kind of bad input that can be told from the record alone, one row each with its outcome, in both content modes
 * where both can carry it; and what a good command decodes to. */
#include "common/event.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <jansson.h>
#include <malloc.h>

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define CLAIM_ID "0198c0de-0000-7000-8000-000000000001"
#define SUBJECT "settlement/2026-06"
#define HOLDER "run-1@host-7"
#define GRANT "\"holder\":\"" HOLDER "\",\"fence\":4294967297,\"claim_id\":\"" CLAIM_ID "\",\"token\":\"" TOKEN "\""
#define TRACEPARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
#define LENGTH(array) (sizeof(array) / sizeof *(array))

enum { HEADERS_MAX = 200 };

/* A message with storage of its own. */
struct sample {
    struct message message;
    struct message_header headers[HEADERS_MAX];
    struct buf value;
};

static void sample_header(struct sample *sample, const char *name, const char *value) {
    assert_true(sample->message.header_count < HEADERS_MAX);
    sample->headers[sample->message.header_count++] =
        (struct message_header){.name = name,
                                .name_size = strlen(name),
                                .value = value,
                                .value_size = value == NULL ? 0 : strlen(value)};
}

static void sample_drop_header(struct sample *sample, const char *name) {
    for (size_t i = 0; i < sample->message.header_count; i++)
        if (strcmp(sample->headers[i].name, name) == 0) {
            sample->headers[i] = sample->headers[--sample->message.header_count];
            i--;
        }
}

static void sample_set_header(struct sample *sample, const char *name, const char *value) {
    sample_drop_header(sample, name);
    sample_header(sample, name, value);
}

static void sample_set_value(struct sample *sample, const char *value, size_t size) {
    buf_reset(&sample->value);
    buf_append(&sample->value, value, size);
    sample->message.value = sample->value.data;
    sample->message.value_size = size;
}

static void sample_begin(struct sample *sample) {
    memset(sample, 0, sizeof *sample);
    sample->message = (struct message){
        .topic = "settlement.events",
        .partition = 3,
        .offset = 41,
        .timestamp_ms = 1,
        .key = SUBJECT,
        .key_size = strlen(SUBJECT),
        .headers = sample->headers,
    };
}

static void sample_binary(struct sample *sample, const char *type, const char *data, size_t size) {
    sample_begin(sample);
    sample_header(sample, "ce_specversion", "1.0");
    sample_header(sample, "ce_id", "message-1");
    sample_header(sample, "ce_source", "/producers/royalty");
    sample_header(sample, "ce_type", type);
    sample_header(sample, "ce_subject", SUBJECT);
    sample_header(sample, "content-type", "application/json");
    sample_set_value(sample, data, size);
}

static void sample_structured(struct sample *sample, const char *type, const char *data, size_t size) {
    sample_begin(sample);
    sample_header(sample, "content-type", "application/cloudevents+json; charset=utf-8");
    struct buf text = BUF_INIT;
    buf_appendf(&text,
                "{\"specversion\":\"1.0\",\"id\":\"message-1\",\"source\":\"/producers/royalty\",\"type\":\"%s\","
                "\"subject\":\"" SUBJECT "\",\"data\":",
                type);
    buf_append(&text, data, size);
    buf_append_byte(&text, '}');
    sample_set_value(sample, text.data, text.size);
    buf_release(&text);
}

static void sample_end(struct sample *sample) {
    buf_release(&sample->value);
}

static void set_key(struct sample *sample, const char *key) {
    sample->message.key = key;
    sample->message.key_size = strlen(key);
}

static bool decode(struct sample *sample, struct command *command) {
    struct event_limits limits = event_limits_default();
    return event_decode(&sample->message, &limits, command);
}

static const char *or_none(const char *text) {
    return text == NULL ? "(none)" : text;
}

/* Field NULL: any. */
static void expect(const char *name, struct sample *sample, enum event_reason reason, const char *field) {
    struct command command;
    bool is_accepted = decode(sample, &command);
    const char *got = or_none(event_reason_name(command.reason));
    if (command.reason != reason || (field != NULL && strcmp(or_none(command.field), field) != 0))
        fail_msg("%s: expected %s %s, got %s %s", name, or_none(event_reason_name(reason)), or_none(field), got,
                 or_none(command.field));
    assert_int_equal(is_accepted, reason == EVENT_REASON_NONE);
    assert_int_equal(command.verdict, event_reason_verdict(reason));
    if (command.verdict == EVENT_DEAD_LETTER) {
        assert_null(command.subject);
        assert_int_equal(command.raw_value_size, sample->message.value_size);
        assert_int_equal(command.raw_key_size, sample->message.key_size);
    } else {
        assert_string_equal(command.subject, SUBJECT);
        assert_string_equal(command.message_id, "message-1");
        assert_null(command.raw_value);
    }
    command_release(&command);
}

/* ---- framing ---- */

static void drop_value(struct sample *sample) {
    sample->message.value = NULL;
    sample->message.value_size = 0;
}
static void empty_value(struct sample *sample) {
    sample->message.value_size = 0;
}
static void drop_key(struct sample *sample) {
    sample->message.key = NULL;
    sample->message.key_size = 0;
}
static void long_key(struct sample *sample) {
    static char key[258];
    memset(key, 'k', 257);
    set_key(sample, key);
}
static void large_value(struct sample *sample) {
    struct buf value = BUF_INIT;
    buf_append_text(&value, "{\"holder\":\"");
    while (value.size < EVENT_VALUE_MAX)
        buf_append_byte(&value, 'h');
    buf_append_text(&value, "\"}");
    sample_set_value(sample, value.data, value.size);
    buf_release(&value);
}
static void many_headers(struct sample *sample) {
    for (int i = 0; i < 100; i++)
        sample_header(sample, "x-noise", "1");
}
static void huge_header(struct sample *sample) {
    static char noise[9000];
    memset(noise, 'n', sizeof noise - 1);
    sample_header(sample, "x-noise", noise);
}
static void batch_mode(struct sample *sample) {
    sample_set_header(sample, "content-type", "application/cloudevents-batch+json");
}
static void avro_mode(struct sample *sample) {
    sample_set_header(sample, "content-type", "application/cloudevents+avro");
}
static void avro_data(struct sample *sample) {
    sample_set_header(sample, "content-type", "avro/binary");
}
static void utf16_data(struct sample *sample) {
    sample_set_header(sample, "content-type", "application/json; charset=utf-16");
}
static void no_event_headers(struct sample *sample) {
    sample->message.header_count = 0;
}
static void gzip_bytes(struct sample *sample) {
    no_event_headers(sample);
    sample_set_value(sample, "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\x56", 12);
}
static void protobuf_bytes(struct sample *sample) {
    no_event_headers(sample);
    sample_set_value(sample, "\x0a\x05hello\x10\x96\x01", 10);
}
static void avro_bytes(struct sample *sample) {
    no_event_headers(sample);
    sample_set_value(sample, "Obj\x01\x04\x14" "avro.codec", 16);
}
static void specversion_0_3(struct sample *sample) {
    sample_set_header(sample, "ce_specversion", "0.3");
}
static void specversion_2_0(struct sample *sample) {
    sample_set_header(sample, "ce_specversion", "2.0");
}
static void no_specversion(struct sample *sample) {
    sample_drop_header(sample, "ce_specversion");
}
static void no_id(struct sample *sample) {
    sample_drop_header(sample, "ce_id");
}
static void no_source(struct sample *sample) {
    sample_drop_header(sample, "ce_source");
}
static void no_type(struct sample *sample) {
    sample_drop_header(sample, "ce_type");
}
static void no_subject(struct sample *sample) {
    sample_drop_header(sample, "ce_subject");
}
static void empty_id(struct sample *sample) {
    sample_set_header(sample, "ce_id", "");
}
static void null_id(struct sample *sample) {
    sample_set_header(sample, "ce_id", NULL);
}
static void two_ids(struct sample *sample) {
    sample_header(sample, "ce_id", "message-2");
}
static void id_with_space(struct sample *sample) {
    sample_set_header(sample, "ce_id", "message 1");
}
static void id_not_ascii(struct sample *sample) {
    sample_set_header(sample, "ce_id", "message-\xEF\xBC\x91");
}
static void id_too_long(struct sample *sample) {
    static char id[130];
    memset(id, 'i', 129);
    sample_set_header(sample, "ce_id", id);
}
static void source_with_newline(struct sample *sample) {
    sample_set_header(sample, "ce_source", "/producers\n");
}
static void unknown_command(struct sample *sample) {
    sample_set_header(sample, "ce_type", "settlement.explode");
}
static void unknown_kind_name(struct sample *sample) {
    sample_set_header(sample, "ce_type", "Settlement.renew");
}
static void type_without_dot(struct sample *sample) {
    sample_set_header(sample, "ce_type", "settlement");
}
static void type_with_spaces(struct sample *sample) {
    sample_set_header(sample, "ce_type", "settlement. renew");
}
static void structured_without_specversion(struct sample *sample) {
    sample_set_header(sample, "content-type", "application/cloudevents+json");
}

struct framing_row {
    const char *name;
    void (*change)(struct sample *sample);
    enum event_reason reason;
    const char *detail;
};
static const struct framing_row framing_rows[] = {
    {"null value", drop_value, EVENT_NULL_VALUE, NULL},
    {"empty value", empty_value, EVENT_EMPTY_VALUE, NULL},
    {"null key", drop_key, EVENT_NULL_KEY, NULL},
    {"key of 257 bytes", long_key, EVENT_KEY_TOO_LONG, NULL},
    {"value over the cap", large_value, EVENT_VALUE_TOO_LARGE, NULL},
    {"100 headers", many_headers, EVENT_HEADERS_TOO_LARGE, NULL},
    {"a header of 9 KB", huge_header, EVENT_HEADERS_TOO_LARGE, NULL},
    {"batch mode", batch_mode, EVENT_BATCH_MODE, NULL},
    {"structured mode in Avro", avro_mode, EVENT_NOT_CLOUDEVENTS, NULL},
    {"data in Avro", avro_data, EVENT_INVALID_ENCODING, NULL},
    {"data in UTF-16 by its charset", utf16_data, EVENT_INVALID_ENCODING, NULL},
    {"JSON that is no event", no_event_headers, EVENT_NOT_CLOUDEVENTS, NULL},
    {"gzip bytes", gzip_bytes, EVENT_INVALID_ENCODING, NULL},
    {"protobuf bytes", protobuf_bytes, EVENT_INVALID_ENCODING, NULL},
    {"Avro bytes", avro_bytes, EVENT_INVALID_JSON, NULL},
    {"specversion 0.3", specversion_0_3, EVENT_UNKNOWN_SPECVERSION, NULL},
    {"specversion 2.0", specversion_2_0, EVENT_UNKNOWN_SPECVERSION, NULL},
    {"no specversion", no_specversion, EVENT_MISSING_ATTRIBUTE, "specversion"},
    {"no id", no_id, EVENT_MISSING_ATTRIBUTE, "id"},
    {"no source", no_source, EVENT_MISSING_ATTRIBUTE, "source"},
    {"no type", no_type, EVENT_MISSING_ATTRIBUTE, "type"},
    {"no subject", no_subject, EVENT_MISSING_ATTRIBUTE, "subject"},
    {"empty id", empty_id, EVENT_MISSING_ATTRIBUTE, "id"},
    {"null id", null_id, EVENT_MISSING_ATTRIBUTE, "id"},
    {"two ids", two_ids, EVENT_INVALID_ATTRIBUTE, "id"},
    {"id with a space", id_with_space, EVENT_INVALID_ATTRIBUTE, "id"},
    {"id with a full-width digit", id_not_ascii, EVENT_INVALID_ATTRIBUTE, "id"},
    {"id of 129 bytes", id_too_long, EVENT_INVALID_ATTRIBUTE, "id"},
    {"source with a newline", source_with_newline, EVENT_INVALID_ATTRIBUTE, "source"},
    {"unknown command", unknown_command, EVENT_UNKNOWN_TYPE, "settlement.explode"},
    {"kind in upper case", unknown_kind_name, EVENT_UNKNOWN_TYPE, "Settlement.renew"},
    {"type without a dot", type_without_dot, EVENT_UNKNOWN_TYPE, "settlement"},
    {"type with a space", type_with_spaces, EVENT_INVALID_ATTRIBUTE, "type"},
    {"structured mode without specversion", structured_without_specversion, EVENT_MISSING_ATTRIBUTE, "specversion"},
};

static void event_decode__framing_that_cannot_be_trusted__is_a_dead_letter(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(framing_rows); i++) {
        const struct framing_row *row = &framing_rows[i];
        static const char data[] = "{" GRANT "}";
        struct sample sample;
        sample_binary(&sample, "settlement.renew", data, strlen(data));
        row->change(&sample);
        expect(row->name, &sample, row->reason, row->detail);
        sample_end(&sample);
    }
}

/* ---- JSON ---- */

struct json_row {
    const char *name;
    const char *data; /* in place of the data of a renew */
    size_t size;      /* 0: strlen */
    enum event_reason reason;
    enum event_reason structured; /* the same text as the data member of a structured event */
};
#define BOTH(reason) reason, reason
static const struct json_row json_rows[] = {
    {"truncated", "{" GRANT, 0, BOTH(EVENT_INVALID_JSON)},
    {"truncated in a string", "{\"holder\":\"r", 0, BOTH(EVENT_INVALID_JSON)},
    {"trailing bytes", "{" GRANT "} x", 0, BOTH(EVENT_INVALID_JSON)},
    {"two documents", "{" GRANT "}{" GRANT "}", 0, BOTH(EVENT_INVALID_JSON)},
    {"top-level array", "[1]", 0, EVENT_INVALID_JSON, EVENT_WRONG_TYPE},
    {"top-level string", "\"renew\"", 0, EVENT_INVALID_JSON, EVENT_WRONG_TYPE},
    {"top-level number", "12", 0, EVENT_INVALID_JSON, EVENT_WRONG_TYPE},
    {"top-level null", "null", 0, EVENT_INVALID_JSON, EVENT_WRONG_TYPE},
    {"only white space", "   ", 0, BOTH(EVENT_INVALID_JSON)},
    {"byte order mark", "\xEF\xBB\xBF{" GRANT "}", 0, EVENT_INVALID_ENCODING, EVENT_INVALID_JSON},
    {"UTF-16, little endian, with mark", "\xFF\xFE{\0}\0", 6, BOTH(EVENT_INVALID_ENCODING)},
    {"UTF-16, big endian, no mark", "\0{\0}", 4, BOTH(EVENT_INVALID_ENCODING)},
    {"invalid UTF-8", "{\"holder\":\"\xFF\"}", 0, BOTH(EVENT_INVALID_ENCODING)},
    {"truncated UTF-8", "{\"holder\":\"\xE2\x82\"}", 0, BOTH(EVENT_INVALID_ENCODING)},
    {"overlong UTF-8", "{\"holder\":\"\xC0\xAF\"}", 0, BOTH(EVENT_INVALID_ENCODING)},
    {"surrogate in UTF-8", "{\"holder\":\"\xED\xA0\x80\"}", 0, BOTH(EVENT_INVALID_ENCODING)},
    {"invalid UTF-8 in a name", "{\"\xFE\":1}", 0, BOTH(EVENT_INVALID_ENCODING)},
    {"invalid UTF-8 between tokens", "{\xA0\"holder\":\"r\"}", 0, BOTH(EVENT_INVALID_ENCODING)},
    {"no-break space between tokens", "{\xC2\xA0\"holder\":\"r\"}", 0, BOTH(EVENT_INVALID_JSON)},
    {"lone surrogate, escaped", "{\"holder\":\"\\ud800\"}", 0, BOTH(EVENT_INVALID_JSON)},
    {"lone low surrogate, escaped", "{\"holder\":\"\\udc00\"}", 0, BOTH(EVENT_INVALID_JSON)},
    {"raw control character", "{\"holder\":\"r\x01\"}", 0, BOTH(EVENT_INVALID_JSON)},
    {"raw newline in a string", "{\"holder\":\"r\n\"}", 0, BOTH(EVENT_INVALID_JSON)},
    {"escaped newline, raw", "{\"holder\":\"r\\\n\"}", 0, BOTH(EVENT_INVALID_JSON)},
    {"raw NUL in a string", "{\"holder\":\"r\0\"}", 14, BOTH(EVENT_INVALID_ENCODING)},
    {"raw NUL behind a backslash", "{\"holder\":\"r\\\0\"}", 15, BOTH(EVENT_INVALID_ENCODING)},
    {"raw NUL behind the end", "{" GRANT "}\0", sizeof "{" GRANT "}", BOTH(EVENT_INVALID_ENCODING)},
    /* F16: and none may end a text parameter in the middle. */
    {"escaped NUL in a value", "{\"holder\":\"r\\u0000\"}", 0, BOTH(EVENT_INVALID_JSON)},
    {"escaped NUL in a name", "{\"hol\\u0000der\":\"r\"}", 0, BOTH(EVENT_INVALID_JSON)},
    {"NaN", "{\"fence\":NaN}", 0, BOTH(EVENT_INVALID_JSON)},
    {"Infinity", "{\"fence\":Infinity}", 0, BOTH(EVENT_INVALID_JSON)},
    {"-Infinity", "{\"fence\":-Infinity}", 0, BOTH(EVENT_INVALID_JSON)},
    {"leading zero", "{\"fence\":01}", 0, BOTH(EVENT_INVALID_JSON)},
    {"leading zero, negative", "{\"fence\":-01}", 0, BOTH(EVENT_INVALID_JSON)},
    {"+1", "{\"fence\":+1}", 0, BOTH(EVENT_INVALID_JSON)},
    {"hexadecimal", "{\"fence\":0x10}", 0, BOTH(EVENT_INVALID_JSON)},
    {"1.", "{\"fence\":1.}", 0, BOTH(EVENT_INVALID_JSON)},
    {".5", "{\"fence\":.5}", 0, BOTH(EVENT_INVALID_JSON)},
    {"1e", "{\"fence\":1e}", 0, BOTH(EVENT_INVALID_JSON)},
    {"1-1", "{\"fence\":1-1}", 0, BOTH(EVENT_INVALID_JSON)},
    {"a lone minus", "{\"fence\":-}", 0, BOTH(EVENT_INVALID_JSON)},
    {"block comment", "{/* */\"fence\":1}", 0, BOTH(EVENT_INVALID_JSON)},
    {"line comment", "{\"fence\":1 // one\n}", 0, BOTH(EVENT_INVALID_JSON)},
    {"trailing comma", "{\"fence\":1,}", 0, BOTH(EVENT_INVALID_JSON)},
    {"trailing comma in an array", "{\"resources\":[\"a/b\",]}", 0, BOTH(EVENT_INVALID_JSON)},
    {"single quotes", "{'fence':1}", 0, BOTH(EVENT_INVALID_JSON)},
    {"name without quotes", "{fence:1}", 0, BOTH(EVENT_INVALID_JSON)},
    {"a number as a name", "{1.5:1}", 0, EVENT_INVALID_JSON, EVENT_INVALID_JSON},
    {"wrong bracket", "{\"resources\":[\"a/b\"}]", 0, BOTH(EVENT_INVALID_JSON)},
    {"a number of 65 digits",
     "{\"fence\":11111111111111111111111111111111111111111111111111111111111111111}", 0, BOTH(EVENT_TOO_COMPLEX)},
    {"an exponent of 5 digits", "{\"fence\":1e10000}", 0, BOTH(EVENT_TOO_COMPLEX)},
    {"duplicate names", "{\"fence\":1,\"fence\":1}", 0, BOTH(EVENT_DUPLICATE_MEMBER)},
    {"duplicate names by an escaped alias", "{\"fence\":1,\"f\\u0065nce\":2}", 0, BOTH(EVENT_DUPLICATE_MEMBER)},
    {"duplicate names deep inside", "{\"payload\":{\"a\":{\"b\":1,\"b\":1}}}", 0, BOTH(EVENT_DUPLICATE_MEMBER)},
};

static void event_decode__data_that_is_no_json_object__is_a_dead_letter(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(json_rows); i++) {
        const struct json_row *row = &json_rows[i];
        size_t size = row->size > 0 ? row->size : strlen(row->data);
        struct sample sample;
        sample_binary(&sample, "settlement.renew", row->data, size);
        expect(row->name, &sample, row->reason, NULL);
        sample_end(&sample);
        sample_structured(&sample, "settlement.renew", row->data, size);
        expect(row->name, &sample, row->structured, row->structured == EVENT_WRONG_TYPE ? "data" : NULL);
        sample_end(&sample);
    }
}

/* Text made of a repeated piece between a head and a tail. */
static struct buf repeated(const char *head, const char *piece, size_t times, const char *tail) {
    struct buf text = BUF_INIT;
    buf_append_text(&text, head);
    for (size_t i = 0; i < times; i++)
        buf_append_text(&text, piece);
    buf_append_text(&text, tail);
    return text;
}

static struct buf nested(size_t depth) {
    struct buf text = repeated("", "{\"a\":", depth - 1, "{}");
    for (size_t i = 1; i < depth; i++)
        buf_append_byte(&text, '}');
    return text;
}

static struct buf many_names(size_t count) {
    struct buf text = BUF_INIT;
    for (size_t i = 0; i < count; i++)
        buf_appendf(&text, "%c\"%zx\":1", i == 0 ? '{' : ',', i);
    buf_append_byte(&text, '}');
    return text;
}

static void expect_text(const char *name, struct buf text, enum event_reason reason, const char *field) {
    struct sample sample;
    sample_binary(&sample, "cleanup.request", text.data, text.size);
    clock_t start = clock(); /* of the processor: others may have it meanwhile */
    expect(name, &sample, reason, field);
    assert_true(clock() - start < CLOCKS_PER_SEC / 2); /* linear, with room for a slow machine under a sanitizer */
    sample_end(&sample);
    buf_release(&text);
}

static void event_decode__json_bombs__are_dead_letters_in_linear_time(void **state) {
    (void)state;
    expect_text("depth 32", nested(32), EVENT_UNKNOWN_MEMBER, "a");
    expect_text("depth 33", nested(33), EVENT_TOO_DEEP, NULL);
    expect_text("depth 40,000", nested(40000), EVENT_TOO_DEEP, NULL);
    expect_text("depth 100,000", nested(100000), EVENT_VALUE_TOO_LARGE, NULL);
    expect_text("100,000 open brackets", repeated("", "[", 100000, ""), EVENT_TOO_DEEP, NULL);
    expect_text("100,000 names", many_names(100000), EVENT_VALUE_TOO_LARGE, NULL);
    expect_text("25,000 names", many_names(25000), EVENT_TOO_COMPLEX, NULL);
    expect_text("empty arrays", repeated("{\"payload\":[[]", ",[]", 60000, "]}"), EVENT_TOO_COMPLEX, NULL);
    expect_text("a string of 1 MB", repeated("{\"payload\":\"", "a", 1000000, "\"}"), EVENT_VALUE_TOO_LARGE, NULL);
    expect_text("white space of 1 MB", repeated("{", " ", 1000000, "}"), EVENT_VALUE_TOO_LARGE, NULL);
    expect_text("white space of 200 KB", repeated("{", " \n\t\r", 50000, "}"), EVENT_TOO_COMPLEX, NULL);
    expect_text("white space in front", repeated("", " ", 5000, "{}"), EVENT_TOO_COMPLEX, NULL);
}

/* ---- types and ids: identified, so answered ---- */

struct data_row {
    const char *name;
    const char *type;
    const char *data;
    enum event_reason reason;
    const char *field;
};

#define FENCE(fence)                                                                                               \
    "{\"holder\":\"" HOLDER "\",\"fence\":" fence ",\"claim_id\":\"" CLAIM_ID "\",\"token\":\"" TOKEN "\"}"
#define CLAIM(claim_id)                                                                                            \
    "{\"holder\":\"" HOLDER "\",\"fence\":7,\"claim_id\":" claim_id ",\"token\":\"" TOKEN "\"}"
#define TOKEN_OF(token)                                                                                            \
    "{\"holder\":\"" HOLDER "\",\"fence\":7,\"claim_id\":\"" CLAIM_ID "\",\"token\":" token "}"
#define START(rest) "{\"holder\":\"" HOLDER "\"" rest "}"
#define HELD_BY(holder) "{\"holder\":" holder "}"
#define WITH_GRANT(rest) "{" GRANT rest "}"
#define RESOURCE(resource) START(",\"resources\":[" resource "]")

static const struct data_row data_rows[] = {
    /* numbers */
    {"fence as a string", "settlement.renew", FENCE("\"12\""), EVENT_WRONG_TYPE, "fence"},
    {"fence in full width", "settlement.renew", FENCE("\"\xEF\xBC\x91\xEF\xBC\x92\""), EVENT_WRONG_TYPE, "fence"},
    {"fence 2^53 - 1", "settlement.renew", FENCE("9007199254740991"), EVENT_REASON_NONE, NULL},
    {"fence 2^53", "settlement.renew", FENCE("9007199254740992"), EVENT_OUT_OF_RANGE, "fence"},
    {"fence 2^63 - 1", "settlement.renew", FENCE("9223372036854775807"), EVENT_OUT_OF_RANGE, "fence"},
    {"fence 2^63", "settlement.renew", FENCE("9223372036854775808"), EVENT_OUT_OF_RANGE, "fence"},
    {"fence 2^64 + 7", "settlement.renew", FENCE("18446744073709551623"), EVENT_OUT_OF_RANGE, "fence"},
    {"fence -2^64", "settlement.renew", FENCE("-18446744073709551616"), EVENT_OUT_OF_RANGE, "fence"},
    {"fence -1", "settlement.renew", FENCE("-1"), EVENT_OUT_OF_RANGE, "fence"},
    {"fence 0", "settlement.renew", FENCE("0"), EVENT_OUT_OF_RANGE, "fence"},
    {"fence 1.0", "settlement.renew", FENCE("1.0"), EVENT_WRONG_TYPE, "fence"},
    {"fence 1e3", "settlement.renew", FENCE("1e3"), EVENT_WRONG_TYPE, "fence"},
    {"fence 1E+3", "settlement.renew", FENCE("1E+3"), EVENT_WRONG_TYPE, "fence"},
    {"fence 1e400", "settlement.renew", FENCE("1e400"), EVENT_WRONG_TYPE, "fence"},
    {"fence -0", "settlement.renew", FENCE("-0"), EVENT_WRONG_TYPE, "fence"},
    {"fence -0.0", "settlement.renew", FENCE("-0.0"), EVENT_WRONG_TYPE, "fence"},
    {"fence null", "settlement.renew", FENCE("null"), EVENT_WRONG_TYPE, "fence"},
    {"fence true", "settlement.renew", FENCE("true"), EVENT_WRONG_TYPE, "fence"},
    {"fence an array", "settlement.renew", FENCE("[7]"), EVENT_WRONG_TYPE, "fence"},
    {"fence written as the parser's mark", "settlement.renew", FENCE("\"\\u00017\""), EVENT_OUT_OF_RANGE, "fence"},
    {"ttl 0", "settlement.renew", WITH_GRANT(",\"ttl_ms\":0"), EVENT_OUT_OF_RANGE, "ttl_ms"},
    {"ttl negative", "settlement.renew", WITH_GRANT(",\"ttl_ms\":-30000"), EVENT_OUT_OF_RANGE, "ttl_ms"},
    {"ttl of a day", "settlement.renew", WITH_GRANT(",\"ttl_ms\":86400000"), EVENT_REASON_NONE, NULL},
    {"ttl above a day", "settlement.renew", WITH_GRANT(",\"ttl_ms\":86400001"), EVENT_OUT_OF_RANGE, "ttl_ms"},
    {"ttl 2^31", "settlement.renew", WITH_GRANT(",\"ttl_ms\":2147483648"), EVENT_OUT_OF_RANGE, "ttl_ms"},
    {"ttl as a string", "settlement.renew", WITH_GRANT(",\"ttl_ms\":\"30000\""), EVENT_WRONG_TYPE, "ttl_ms"},
    {"ttl as a real", "settlement.renew", WITH_GRANT(",\"ttl_ms\":30000.5"), EVENT_WRONG_TYPE, "ttl_ms"},
    {"ttl null", "settlement.renew", WITH_GRANT(",\"ttl_ms\":null"), EVENT_WRONG_TYPE, "ttl_ms"},
    {"count negative", "settlement.begin", WITH_GRANT(",\"count\":-1"), EVENT_OUT_OF_RANGE, "count"},
    {"count missing", "settlement.begin", WITH_GRANT(""), EVENT_MISSING, "count"},
    {"delay above 30 days", "cleanup.request", "{\"delay_ms\":2592000001}", EVENT_OUT_OF_RANGE, "delay_ms"},
    {"credit as a real", "cleanup.claim", "{\"credit_total\":1.5,\"refresh\":1}", EVENT_WRONG_TYPE, "credit_total"},
    {"refresh missing", "cleanup.claim", "{\"credit_total\":1}", EVENT_MISSING, "refresh"},
    {"claim for another holder", "cleanup.claim", "{\"holder\":\"other\",\"credit_total\":1,\"refresh\":1}",
     EVENT_KEY_MISMATCH, "holder"},
    /* strings where strings are due */
    {"holder a number", "settlement.start", HELD_BY("7"), EVENT_WRONG_TYPE, "holder"},
    {"holder a real", "settlement.start", HELD_BY("7.5"), EVENT_WRONG_TYPE, "holder"},
    {"holder null", "settlement.start", HELD_BY("null"), EVENT_WRONG_TYPE, "holder"},
    {"holder missing", "settlement.start", "{}", EVENT_MISSING, "holder"},
    {"reason a number", "settlement.fail", WITH_GRANT(",\"reason\":1.0"), EVENT_WRONG_TYPE, "reason"},
    {"reason missing", "settlement.fail", WITH_GRANT(""), EVENT_MISSING, "reason"},
    {"reason empty", "settlement.fail", WITH_GRANT(",\"reason\":\"\""), EVENT_EMPTY, "reason"},
    {"reason with an ANSI escape", "settlement.fail", WITH_GRANT(",\"reason\":\"\\u001b[2J\""),
     EVENT_NOT_ALLOWED_CHARACTERS, "reason"},
    {"reason with a C1 control", "settlement.fail", WITH_GRANT(",\"reason\":\"\\u009b2J\""),
     EVENT_NOT_ALLOWED_CHARACTERS, "reason"},
    {"retry a number", "settlement.fail", WITH_GRANT(",\"reason\":\"x\",\"retry\":0"), EVENT_WRONG_TYPE, "retry"},
    {"more as a string", "settlement.start", START(",\"more\":\"true\""), EVENT_WRONG_TYPE, "more"},
    {"more null", "settlement.start", START(",\"more\":null"), EVENT_WRONG_TYPE, "more"},
    {"payload an array", "settlement.start", START(",\"payload\":[1]"), EVENT_WRONG_TYPE, "payload"},
    {"payload null", "settlement.start", START(",\"payload\":null"), EVENT_WRONG_TYPE, "payload"},
    {"payload named with an escape", "settlement.start", START(",\"pay\\u006coad\":{}"),
     EVENT_NOT_ALLOWED_CHARACTERS, "payload"},
    {"money as a real stays payload", "settlement.start", START(",\"payload\":{\"share\":0.7}"), EVENT_REASON_NONE,
     NULL},
    {"step in upper case", "settlement.advance", WITH_GRANT(",\"step\":\"Posted\""), EVENT_NOT_ALLOWED_CHARACTERS,
     "step"},
    {"step empty", "settlement.advance", WITH_GRANT(",\"step\":\"\""), EVENT_EMPTY, "step"},
    {"step missing", "settlement.advance", WITH_GRANT(""), EVENT_MISSING, "step"},
    /* claim id and token */
    {"claim id in braces", "settlement.renew", CLAIM("\"{" CLAIM_ID "}\""), EVENT_WRONG_TYPE, "claim_id"},
    {"claim id in upper case", "settlement.renew", CLAIM("\"0198C0DE-0000-7000-8000-000000000001\""),
     EVENT_WRONG_TYPE, "claim_id"},
    {"claim id nil", "settlement.renew", CLAIM("\"00000000-0000-0000-0000-000000000000\""), EVENT_WRONG_TYPE,
     "claim_id"},
    {"claim id without hyphens", "settlement.renew", CLAIM("\"0198c0de000070008000000000000001\""),
     EVENT_WRONG_TYPE, "claim_id"},
    {"claim id as a URN", "settlement.renew", CLAIM("\"urn:uuid:" CLAIM_ID "\""), EVENT_WRONG_TYPE, "claim_id"},
    {"claim id null", "settlement.renew", CLAIM("null"), EVENT_WRONG_TYPE, "claim_id"},
    {"token null", "settlement.renew", TOKEN_OF("null"), EVENT_WRONG_TYPE, "token"},
    {"token short", "settlement.renew", TOKEN_OF("\"0123\""), EVENT_WRONG_TYPE, "token"},
    {"token long", "settlement.renew", TOKEN_OF("\"" TOKEN "0\""), EVENT_WRONG_TYPE, "token"},
    {"token in upper case", "settlement.renew",
     TOKEN_OF("\"0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef\""), EVENT_WRONG_TYPE, "token"},
    {"token missing", "settlement.release", "{\"holder\":\"r\",\"fence\":7,\"claim_id\":\"" CLAIM_ID "\"}",
     EVENT_MISSING, "token"},
    /* members */
    {"unknown member", "settlement.renew", WITH_GRANT(",\"ttl\":3"), EVENT_UNKNOWN_MEMBER, "ttl"},
    {"a misspelt member explains the missing one", "settlement.start", "{\"holdr\":\"r\"}", EVENT_UNKNOWN_MEMBER,
     "holdr"},
    {"a member of another command", "settlement.renew", WITH_GRANT(",\"step\":\"posted\""), EVENT_UNKNOWN_MEMBER,
     "step"},
    {"a member with an empty name", "cleanup.request", "{\"\":1}", EVENT_UNKNOWN_MEMBER, ""},
    {"a member named in full width", "cleanup.request", "{\"\xEF\xBD\x91\":1}", EVENT_UNKNOWN_MEMBER,
     "\xEF\xBD\x91"},
    {"tables without more", "settlement.start", START(",\"tables\":[\"album\"]"), EVENT_MISSING, "more"},
    {"tables with more: false", "settlement.start", START(",\"tables\":[\"album\"],\"more\":false"), EVENT_MISSING,
     "more"},
    {"a table with a slash", "settlement.start", START(",\"tables\":[\"album/1\"],\"more\":true"),
     EVENT_NOT_ALLOWED_CHARACTERS, "tables[0]"},
    /* ids */
    {"holder /", "settlement.start", HELD_BY("\"/\""), EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder ..", "settlement.start", HELD_BY("\"..\""), EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder with a .. segment", "settlement.start", HELD_BY("\"a/../b\""), EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder ending in ..", "settlement.start", HELD_BY("\"a/..\""), EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder with ... is a name", "settlement.start", HELD_BY("\"a/...\""), EVENT_REASON_NONE, NULL},
    {"holder with //", "settlement.start", HELD_BY("\"a//b\""), EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder with %00", "settlement.start", HELD_BY("\"a%00b\""), EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder with a newline", "settlement.start", HELD_BY("\"a\\n\""), EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder with an ANSI escape", "settlement.start", HELD_BY("\"a\\u001b[31m\""), EVENT_NOT_ALLOWED_CHARACTERS,
     "holder"},
    {"holder with a right-to-left mark", "settlement.start", HELD_BY("\"a\\u202eb\""), EVENT_NOT_ALLOWED_CHARACTERS,
     "holder"},
    {"holder with a zero-width space", "settlement.start", HELD_BY("\"a\\u200bb\""), EVENT_NOT_ALLOWED_CHARACTERS,
     "holder"},
    {"holder in NFC", "settlement.start", HELD_BY("\"caf\xC3\xA9\""), EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder in NFD", "settlement.start", HELD_BY("\"cafe\xCC\x81\""), EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder with SQL", "settlement.start", HELD_BY("\"'; drop table lease.leases; --\""),
     EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder with $$", "settlement.start", HELD_BY("\"a$$b\""), EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder with %n%s", "settlement.start", HELD_BY("\"a%n%s\""), EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder with HTML", "settlement.start", HELD_BY("\"<script>alert(1)</script>\""),
     EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder with a space", "settlement.start", HELD_BY("\"a b\""), EVENT_NOT_ALLOWED_CHARACTERS, "holder"},
    {"holder empty", "settlement.start", HELD_BY("\"\""), EVENT_EMPTY, "holder"},
    {"resource a wildcard", "settlement.start", RESOURCE("\"album/*\""), EVENT_NOT_ALLOWED_CHARACTERS,
     "resources[0]"},
    {"resource without a type", "settlement.start", RESOURCE("\"album\""), EVENT_NOT_ALLOWED_CHARACTERS,
     "resources[0]"},
    {"resource without an id", "settlement.start", RESOURCE("\"album/1\",\"album/\""),
     EVENT_NOT_ALLOWED_CHARACTERS, "resources[1]"},
    {"resource a number", "settlement.start", RESOURCE("1"), EVENT_WRONG_TYPE, "resources[0]"},
    {"resource a real", "settlement.start", RESOURCE("1.5"), EVENT_WRONG_TYPE, "resources[0]"},
    {"no resources in the list", "settlement.start", RESOURCE(""), EVENT_EMPTY, "resources"},
    {"resources a string", "settlement.start", START(",\"resources\":\"album/1\""), EVENT_WRONG_TYPE, "resources"},
    {"resource twice", "settlement.start", RESOURCE("\"album/2\",\"album/1\",\"album/2\",\"album/1\""),
     EVENT_REPEATED, "resources[2]"},
    {"the first of two resources twice", "settlement.start", RESOURCE("\"album/1\",\"album/2\",\"album/1\",\"album/2\""),
     EVENT_REPEATED, "resources[2]"},
    {"resource twice by an escape", "settlement.cover", WITH_GRANT(",\"resources\":[\"album/2\",\"album\\/2\"]"),
     EVENT_REPEATED, "resources[1]"},
    {"cover without resources", "settlement.cover", WITH_GRANT(""), EVENT_MISSING, "resources"},
};

/* In both content modes. */
static void expect_rows(const struct data_row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const struct data_row *row = &rows[i];
        struct sample sample;
        sample_binary(&sample, row->type, row->data, strlen(row->data));
        expect(row->name, &sample, row->reason, row->field);
        sample_end(&sample);
        sample_structured(&sample, row->type, row->data, strlen(row->data));
        expect(row->name, &sample, row->reason, row->field);
        sample_end(&sample);
    }
}

static void event_decode__data_that_is_not_as_it_should_be__is_malformed_with_its_field(void **state) {
    (void)state;
    expect_rows(data_rows, LENGTH(data_rows));
}

struct time_row {
    const char *time;
    enum event_reason reason;
};
static const struct time_row time_rows[] = {
    {"2026-06-30T23:59:59Z", EVENT_REASON_NONE},
    {"2026-06-30t23:59:59.123456789z", EVENT_REASON_NONE},
    {"2026-06-30T23:59:59+09:00", EVENT_REASON_NONE},
    {"2024-02-29T00:00:00Z", EVENT_REASON_NONE},
    {"0001-01-01T00:00:00Z", EVENT_REASON_NONE},
    {"9999-12-31T23:59:59Z", EVENT_REASON_NONE},
    {"infinity", EVENT_WRONG_TYPE},
    {"epoch", EVENT_WRONG_TYPE},
    {"today", EVENT_WRONG_TYPE},
    {"", EVENT_WRONG_TYPE},
    {"2026-06-30T23:59:59", EVENT_WRONG_TYPE},
    {"2026-06-30", EVENT_WRONG_TYPE},
    {"2026-06-30 23:59:59Z", EVENT_WRONG_TYPE},
    {"10000-01-01T00:00:00Z", EVENT_WRONG_TYPE},
    {"2026-06-30T23:59:59.Z", EVENT_WRONG_TYPE},
    {"2026-06-30T23:59:59.1234567890Z", EVENT_WRONG_TYPE},
    {"2026-06-30T23:59:59Z ", EVENT_WRONG_TYPE},
    {"0000-01-01T00:00:00Z", EVENT_OUT_OF_RANGE},
    {"2026-06-30T23:59:60Z", EVENT_OUT_OF_RANGE},
    {"2026-06-30T24:00:00Z", EVENT_OUT_OF_RANGE},
    {"2026-13-01T00:00:00Z", EVENT_OUT_OF_RANGE},
    {"2026-02-29T00:00:00Z", EVENT_OUT_OF_RANGE},
    {"2026-06-30T23:59:59+24:00", EVENT_OUT_OF_RANGE},
};

static void event_decode__a_time_that_is_none__is_malformed(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(time_rows); i++) {
        struct sample sample;
        sample_binary(&sample, "settlement.renew", "{" GRANT "}", strlen("{" GRANT "}"));
        sample_header(&sample, "ce_time", time_rows[i].time);
        expect(time_rows[i].time, &sample, time_rows[i].reason,
               time_rows[i].reason == EVENT_REASON_NONE ? NULL : "time");
        sample_end(&sample);
    }
}

static void structured_text(struct sample *sample, const char *members) {
    sample_begin(sample);
    struct buf text = BUF_INIT;
    buf_appendf(&text, "{%s}", members);
    sample_set_value(sample, text.data, text.size);
    buf_release(&text);
}

#define ENVELOPE                                                                                                   \
    "\"specversion\":\"1.0\",\"id\":\"message-1\",\"source\":\"/s\",\"type\":\"cleanup.request\",\"subject\":\""   \
    SUBJECT "\""

static const struct data_row envelope_rows[] = {
    {"without content-type", "", ENVELOPE ",\"data\":{}", EVENT_REASON_NONE, NULL},
    {"extension attributes of any type", "", ENVELOPE ",\"data\":{},\"myext\":1.5,\"other\":null", EVENT_REASON_NONE,
     NULL},
    {"time null", "", ENVELOPE ",\"data\":{},\"time\":null", EVENT_REASON_NONE, NULL},
    {"time a number", "", ENVELOPE ",\"data\":{},\"time\":1719792000", EVENT_WRONG_TYPE, "time"},
    {"time a real", "", ENVELOPE ",\"data\":{},\"time\":1719792000.5", EVENT_WRONG_TYPE, "time"},
    {"data missing", "", ENVELOPE, EVENT_MISSING, "data"},
    {"data null", "", ENVELOPE ",\"data\":null", EVENT_WRONG_TYPE, "data"},
    {"data in base64", "", ENVELOPE ",\"data_base64\":\"e30=\"", EVENT_WRONG_TYPE, "data_base64"},
    {"data of another media type", "", ENVELOPE ",\"data\":{},\"datacontenttype\":\"text/xml\"", EVENT_WRONG_TYPE,
     "datacontenttype"},
    {"data of a JSON media type", "", ENVELOPE ",\"data\":{},\"datacontenttype\":\"application/vnd.x+json\"",
     EVENT_REASON_NONE, NULL},
    {"id a number", "", "\"specversion\":\"1.0\",\"id\":7,\"source\":\"/s\",\"type\":\"cleanup.request\",\"subject\":\"s\"",
     EVENT_INVALID_ATTRIBUTE, "id"},
    {"id a real", "", "\"specversion\":\"1.0\",\"id\":7.5,\"source\":\"/s\",\"type\":\"cleanup.request\",\"subject\":\"s\"",
     EVENT_INVALID_ATTRIBUTE, "id"},
    {"id null", "", "\"specversion\":\"1.0\",\"id\":null,\"source\":\"/s\",\"type\":\"cleanup.request\",\"subject\":\"s\"",
     EVENT_MISSING_ATTRIBUTE, "id"},
    {"specversion a number", "", "\"specversion\":1.0,\"id\":\"7\"", EVENT_INVALID_ATTRIBUTE, "specversion"},
    {"subject with a space", "",
     "\"specversion\":\"1.0\",\"id\":\"7\",\"source\":\"/s\",\"type\":\"cleanup.request\",\"subject\":\"a b\"",
     EVENT_INVALID_ATTRIBUTE, "subject"},
    {"subject of 201 bytes is tested below", "", ENVELOPE ",\"data\":{}", EVENT_REASON_NONE, NULL},
    {"an attribute twice", "", ENVELOPE ",\"data\":{},\"id\":\"message-1\"", EVENT_DUPLICATE_MEMBER, NULL},
};

static void event_decode__a_structured_envelope__is_judged_by_the_same_rules(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(envelope_rows); i++) {
        struct sample sample;
        structured_text(&sample, envelope_rows[i].data);
        expect(envelope_rows[i].name, &sample, envelope_rows[i].reason, envelope_rows[i].field);
        sample_end(&sample);
    }
}

static void event_decode__key_that_is_not_the_subject__is_malformed(void **state) {
    (void)state;
    static const char *const keys[] = {"settlement/2026-07", "", "settlement/2026-06 ", "settlement/2026-0"};
    for (size_t i = 0; i < LENGTH(keys); i++) {
        struct sample sample;
        sample_binary(&sample, "settlement.renew", "{" GRANT "}", strlen("{" GRANT "}"));
        set_key(&sample, keys[i]);
        expect(keys[i], &sample, EVENT_KEY_MISMATCH, "key");
        sample_end(&sample);
    }
}

static void set_subject(struct sample *sample, const char *subject) {
    sample_set_header(sample, "ce_subject", subject);
    set_key(sample, subject);
}

static void event_decode__subject_that_cannot_be_trusted__is_a_dead_letter(void **state) {
    (void)state;
    char long_subject[202];
    memset(long_subject, 's', 201);
    long_subject[201] = '\0';
    char *huge_subject = memory_alloc(2702);
    memset(huge_subject, 's', 2701);
    const char *const subjects[] = {"/", "..", "a/../b", "a//b", "a%00", "a\nb", "a\x1b[2J", "a\xE2\x80\xAE", "a\xE2\x80\x8B",
                                    "caf\xC3\xA9", "cafe\xCC\x81", "'; drop --", "a$$", "%n%s", "<b>", "a b", long_subject, "*"};
    for (size_t i = 0; i < LENGTH(subjects); i++) {
        struct sample sample;
        sample_binary(&sample, "settlement.renew", "{" GRANT "}", strlen("{" GRANT "}"));
        set_subject(&sample, subjects[i]);
        expect(subjects[i], &sample, EVENT_INVALID_ATTRIBUTE, "subject");
        sample_end(&sample);
    }
    struct sample sample;
    sample_binary(&sample, "settlement.renew", "{" GRANT "}", strlen("{" GRANT "}"));
    set_subject(&sample, huge_subject);
    expect("2,701 bytes", &sample, EVENT_KEY_TOO_LONG, NULL);
    sample_end(&sample);
    free(huge_subject);
}

static void event_decode__known_kinds__decide_type_and_mode(void **state) {
    (void)state;
    static const struct event_kind kinds[] = {{"settlement", LEASE_MODE_RUN}, {"cleanup", LEASE_MODE_POOL}};
    static const struct data_row rows[] = {
        {"unknown kind", "delivery.renew", "{" GRANT "}", EVENT_UNKNOWN_TYPE, "delivery.renew"},
        {"claim of a run", "settlement.claim", "{\"credit_total\":1,\"refresh\":1}", EVENT_WRONG_KIND, "type"},
        {"request of a run", "settlement.request", "{}", EVENT_WRONG_KIND, "type"},
        {"start of an item", "cleanup.start", "{}", EVENT_WRONG_KIND, "type"},
        {"advance of an item", "cleanup.advance", "{}", EVENT_WRONG_KIND, "type"},
        {"renew of an item", "cleanup.renew", "{" GRANT "}", EVENT_REASON_NONE, NULL},
    };
    struct event_limits limits = event_limits_default();
    limits.kinds = kinds;
    limits.kind_count = LENGTH(kinds);
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct sample sample;
        struct command command;
        sample_binary(&sample, rows[i].type, rows[i].data, strlen(rows[i].data));
        event_decode(&sample.message, &limits, &command);
        if (command.reason != rows[i].reason || strcmp(or_none(command.field), or_none(rows[i].field)) != 0)
            fail_msg("%s: got %s %s", rows[i].name, or_none(event_reason_name(command.reason)), or_none(command.field));
        command_release(&command);
        sample_end(&sample);
    }
}

/* ---- what good ones say ---- */

static struct command decode_data(const char *type, const char *data) {
    struct sample sample;
    struct command command;
    sample_binary(&sample, type, data, strlen(data));
    if (!decode(&sample, &command))
        fail_msg("%s %s: %s %s", type, data, or_none(event_reason_name(command.reason)), or_none(command.field));
    sample_end(&sample);
    return command;
}

static void event_decode__start__takes_all_members(void **state) {
    (void)state;
    struct command command = decode_data(
        "settlement.start",
        "{\"holder\":\"" HOLDER "\",\"ttl_ms\":30000,\"resources\":[\"album/1\",\"track/a:b@c+d=e-f_g.h/i\"],"
        "\"more\":true,\"tables\":[\"album\",\"track\"],\"payload\":{ \"share\" : 0.70, \"big\":123456789012345678901,"
        " \"a\":\"x  \\u0041 \\\" y\"} }");
    assert_string_equal(command.topic, "settlement.events");
    assert_int_equal(command.partition, 3);
    assert_int_equal(command.offset, 41);
    assert_string_equal(command.kind, "settlement");
    assert_int_equal(command.command, LEASE_COMMAND_START);
    assert_string_equal(command.subject, SUBJECT);
    assert_string_equal(command.source, "/producers/royalty");
    assert_string_equal(command.message_id, "message-1");
    assert_null(command.traceparent);
    assert_string_equal(command.holder, HOLDER);
    assert_int_equal(command.ttl_ms, 30000);
    assert_int_equal(command.resource_count, 2);
    assert_string_equal(command.resources[0], "album/1");
    assert_string_equal(command.resources[1], "track/a:b@c+d=e-f_g.h/i");
    assert_int_equal(command.table_count, 2);
    assert_string_equal(command.tables[1], "track");
    assert_int_equal(command.flag, 1);
    assert_string_equal(command.payload,
                        "{\"share\":0.70,\"big\":123456789012345678901,\"a\":\"x  \\u0041 \\\" y\"}");
    assert_true(command.fence == COMMAND_ABSENT && command.amount == COMMAND_ABSENT);
    assert_true(command.refresh == COMMAND_ABSENT && command.wait_ms == COMMAND_ABSENT);
    assert_false(command.has_claim_id);
    assert_null(command.word);
    assert_null(command.field);
    assert_true(command_size(&command) > 0);
    command_release(&command);
    assert_int_equal(command_size(&command), 0);
}

static void event_decode__optional_members__have_their_defaults(void **state) {
    (void)state;
    struct command start = decode_data("settlement.start", HELD_BY("\"" HOLDER "\""));
    assert_int_equal(start.flag, 0);
    assert_true(start.ttl_ms == COMMAND_ABSENT);
    assert_int_equal(start.resource_count, 0);
    assert_null(start.payload);
    command_release(&start);

    struct command failed = decode_data("settlement.fail", WITH_GRANT(",\"reason\":\"disk \\u00fc full\""));
    assert_int_equal(failed.flag, 1);
    assert_true(failed.amount == COMMAND_ABSENT);
    assert_string_equal(failed.word, "disk \xC3\xBC full");
    command_release(&failed);

    struct command given_up =
        decode_data("cleanup.fail", WITH_GRANT(",\"reason\":\"x\",\"retry\":false,\"delay_ms\":0"));
    assert_int_equal(given_up.flag, 0);
    assert_int_equal(given_up.amount, 0);
    command_release(&given_up);

    struct command claim = decode_data("cleanup.claim", "{\"credit_total\":12,\"refresh\":3,\"wait_ms\":500}");
    assert_string_equal(claim.holder, SUBJECT);
    assert_int_equal(claim.amount, 12);
    assert_int_equal(claim.refresh, 3);
    assert_int_equal(claim.wait_ms, 500);
    assert_int_equal(claim.flag, -1);
    command_release(&claim);
}

static void event_decode__each_holders_command__carries_its_grant(void **state) {
    (void)state;
    static const struct {
        const char *type;
        const char *data;
        enum lease_command command;
        int64_t amount;
        const char *word;
        const char *payload;
    } rows[] = {
        {"settlement.cover", WITH_GRANT(",\"resources\":[\"a/1\"]"), LEASE_COMMAND_COVER, COMMAND_ABSENT, NULL, NULL},
        {"settlement.begin", WITH_GRANT(",\"count\":1000000"), LEASE_COMMAND_BEGIN, 1000000, NULL, NULL},
        {"settlement.renew", WITH_GRANT(""), LEASE_COMMAND_RENEW, COMMAND_ABSENT, NULL, NULL},
        {"settlement.advance", WITH_GRANT(",\"step\":\"calculated\""), LEASE_COMMAND_ADVANCE, COMMAND_ABSENT,
         "calculated", NULL},
        {"cleanup.finish", WITH_GRANT(",\"result\":{\"bytes\":1}"), LEASE_COMMAND_FINISH, COMMAND_ABSENT, NULL,
         "{\"bytes\":1}"},
        {"cleanup.fail", WITH_GRANT(",\"reason\":\"r\",\"delay_ms\":5"), LEASE_COMMAND_FAIL, 5, "r", NULL},
        {"cleanup.release", WITH_GRANT(""), LEASE_COMMAND_RELEASE, COMMAND_ABSENT, NULL, NULL},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct command command = decode_data(rows[i].type, rows[i].data);
        char claim_id[CLAIM_ID_TEXT_SIZE];
        assert_int_equal(command.command, rows[i].command);
        assert_string_equal(command.holder, HOLDER);
        assert_true(command.fence == INT64_C(4294967297));
        assert_true(command.has_claim_id);
        assert_string_equal(claim_id_format(&command.claim_id, claim_id), CLAIM_ID);
        assert_false(command.token_fits);
        assert_true(command.amount == rows[i].amount);
        assert_string_equal(or_none(command.word), or_none(rows[i].word));
        assert_string_equal(or_none(command.payload), or_none(rows[i].payload));
        command_release(&command);
    }
}

static void event_decode__largest_list__is_taken_and_one_more_refused(void **state) {
    (void)state;
    for (size_t count = LEASE_RESOURCES_MAX; count <= LEASE_RESOURCES_MAX + 1; count++) {
        struct buf data = BUF_INIT;
        buf_append_text(&data, "{" GRANT ",\"resources\":[");
        for (size_t i = 0; i < count; i++)
            buf_appendf(&data, "%s\"album/%05zu\"", i == 0 ? "" : ",", i);
        buf_append_text(&data, "]}");
        struct sample sample;
        struct command command;
        sample_binary(&sample, "settlement.cover", data.data, data.size);
        bool is_accepted = decode(&sample, &command);
        assert_int_equal(is_accepted, count == LEASE_RESOURCES_MAX);
        if (is_accepted) {
            assert_int_equal(command.resource_count, LEASE_RESOURCES_MAX);
            assert_string_equal(command.resources[9999], "album/09999");
        } else {
            assert_int_equal(command.reason, EVENT_TOO_MANY);
            assert_int_equal(command.resource_count, 0);
        }
        command_release(&command);
        sample_end(&sample);
        buf_release(&data);
    }
}

static void event_decode__payload__may_have_64_kilobytes(void **state) {
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        size_t inside = LEASE_PAYLOAD_MAX - strlen("{\"a\":\"\"}") + more;
        struct buf data = repeated("{\"payload\":{ \"a\" : \"", "x", inside, "\" } }");
        struct sample sample;
        struct command command;
        sample_binary(&sample, "cleanup.request", data.data, data.size);
        assert_int_equal(decode(&sample, &command), more == 0);
        if (more == 0)
            assert_int_equal(strlen(command.payload), LEASE_PAYLOAD_MAX);
        else
            assert_int_equal(command.reason, EVENT_TOO_LONG);
        command_release(&command);
        sample_end(&sample);
        buf_release(&data);
    }
}

static void event_decode__longest_texts__are_taken_and_one_more_refused(void **state) {
    (void)state;
    static const struct {
        const char *type;
        const char *head;
        const char *piece;
        size_t times;
        const char *tail;
        const char *field;
    } rows[] = {
        {"settlement.start", "{\"holder\":\"", "h", LEASE_ID_MAX, "\"}", "holder"},
        {"settlement.fail", "{" GRANT ",\"reason\":\"", "\xC3\xBC", LEASE_REASON_MAX, "\"}", "reason"},
        {"settlement.advance", "{" GRANT ",\"step\":\"", "s", LEASE_STEP_MAX, "\"}", "step"},
    };
    for (size_t i = 0; i < LENGTH(rows); i++)
        for (size_t more = 0; more < 2; more++) {
            struct buf data = repeated(rows[i].head, rows[i].piece, rows[i].times + more, rows[i].tail);
            struct sample sample;
            sample_binary(&sample, rows[i].type, data.data, data.size);
            expect(rows[i].field, &sample, more == 0 ? EVENT_REASON_NONE : EVENT_TOO_LONG, more == 0 ? NULL : rows[i].field);
            sample_end(&sample);
            buf_release(&data);
        }
}

static void event_decode__long_name_of_a_member__is_cut_at_a_character(void **state) {
    (void)state;
    struct buf data = repeated("{\"x", "\xC3\xBC", 200, "\":1}");
    struct sample sample;
    struct command command;
    sample_binary(&sample, "cleanup.request", data.data, data.size);
    assert_false(decode(&sample, &command));
    assert_int_equal(command.reason, EVENT_UNKNOWN_MEMBER);
    assert_int_equal(strlen(command.field), 127); /* 1 + 63 * 2 */
    command_release(&command);
    sample_end(&sample);
    buf_release(&data);
}

static void event_decode__traceparent__is_kept_only_if_well_formed(void **state) {
    (void)state;
    static const struct {
        const char *header;
        const char *value;
        const char *kept;
    } rows[] = {
        {"ce_traceparent", TRACEPARENT, TRACEPARENT},
        {"traceparent", TRACEPARENT, TRACEPARENT},
        {"ce_traceparent", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", NULL},
        {"ce_traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", NULL},
        {"ce_traceparent", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", NULL},
        {"ce_traceparent", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", NULL},
        {"ce_traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-", NULL},
        {"ce_traceparent", "", NULL},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct sample sample;
        struct command command;
        sample_binary(&sample, "settlement.renew", "{" GRANT "}", strlen("{" GRANT "}"));
        sample_header(&sample, rows[i].header, rows[i].value);
        assert_true(decode(&sample, &command));
        assert_string_equal(or_none(command.traceparent), or_none(rows[i].kept));
        command_release(&command);
        sample_end(&sample);
    }
}

/* ---- digest ---- */

static void digest_of(struct sample *sample, uint8_t ret[16]) {
    struct command command;
    decode(sample, &command);
    assert_int_not_equal(command.verdict, EVENT_DEAD_LETTER);
    memcpy(ret, command.digest, 16);
    command_release(&command);
    sample_end(sample);
}

static void digest_of_data(const char *type, const char *data, uint8_t ret[16]) {
    struct sample sample;
    sample_binary(&sample, type, data, strlen(data));
    digest_of(&sample, ret);
}

static void event_digest__same_meaning__same_digest(void **state) {
    (void)state;
    static const char compact[] = "{\"holder\":\"r\",\"ttl_ms\":5,\"payload\":{\"a\":1.50,\"b\":\"x\"}}";
    static const char spread[] = " { \"payload\" : {\"b\":\"\\u0078\", \"a\":1.50 },\n\"ttl_ms\":5, \"holder\":\"r\" } ";
    uint8_t first[16], second[16];
    digest_of_data("settlement.start", compact, first);
    digest_of_data("settlement.start", spread, second);
    assert_memory_equal(first, second, 16);
    struct sample sample;
    sample_structured(&sample, "settlement.start", spread, strlen(spread));
    digest_of(&sample, second);
    assert_memory_equal(first, second, 16);
}

static void event_digest__other_meaning__other_digest(void **state) {
    (void)state;
    static const struct {
        const char *type;
        const char *data;
    } rows[] = {
        {"settlement.start", "{\"holder\":\"r\",\"payload\":{\"a\":1.5}}"},
        {"settlement.start", "{\"holder\":\"r\",\"payload\":{\"a\":1.50}}"},
        {"settlement.start", "{\"holder\":\"r\",\"payload\":{\"a\":\"1.5\"}}"},
        {"settlement.start", "{\"holder\":\"s\",\"payload\":{\"a\":1.5}}"},
        {"settlement.start", "{\"holder\":\"r\",\"payload\":{\"a\":[1.5]}}"},
        {"settlement.renew", "{\"holder\":\"r\",\"payload\":{\"a\":1.5}}"},
        {"cleanup.renew", "{\"holder\":\"r\",\"payload\":{\"a\":1.5}}"},
    };
    uint8_t digests[LENGTH(rows)][16];
    for (size_t i = 0; i < LENGTH(rows); i++) {
        digest_of_data(rows[i].type, rows[i].data, digests[i]);
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(digests[i], digests[j], 16);
    }
    struct sample sample;
    uint8_t other[16];
    sample_binary(&sample, rows[0].type, rows[0].data, strlen(rows[0].data));
    set_subject(&sample, "other");
    digest_of(&sample, other);
    assert_memory_not_equal(other, digests[0], 16);
}

/* ---- token ---- */

static void command_check_token__fits_only_its_claim__and_wipes(void **state) {
    (void)state;
    struct token_keys *keys;
    struct error error;
    assert_true(token_keys_new("0123456789abcdef0123456789abcdef", 32, NULL, 0, &keys, &error));
    struct claim_id claim_id;
    assert_true(claim_id_parse(CLAIM_ID, strlen(CLAIM_ID), &claim_id));
    char token[LEASE_TOKEN_TEXT_SIZE];
    token_derive(keys, &claim_id, token);

    static const char *const claims[] = {CLAIM_ID, "0198c0de-0000-7000-8000-000000000002"};
    for (size_t i = 0; i < LENGTH(claims); i++) {
        char data[512];
        snprintf(data, sizeof data, "{\"holder\":\"r\",\"fence\":7,\"claim_id\":\"%s\",\"token\":\"%s\"}", claims[i], token);
        struct command command = decode_data("settlement.renew", data);
        assert_string_equal(command.token, token);
        command_check_token(&command, keys);
        assert_int_equal(command.token_fits, i == 0);
        static const char wiped[LEASE_TOKEN_TEXT_SIZE];
        assert_memory_equal(command.token, wiped, sizeof wiped);
        command_release(&command);
    }
    struct command start = decode_data("settlement.start", HELD_BY("\"r\""));
    command_check_token(&start, keys);
    assert_false(start.token_fits);
    command_release(&start);
    token_keys_free(keys);
}

static void event_decode__malformed_command__keeps_nothing_of_what_it_said(void **state) {
    (void)state;
    struct sample sample;
    struct command command;
    static const char data[] = WITH_GRANT(",\"ttl_ms\":0");
    sample_binary(&sample, "settlement.renew", data, strlen(data));
    assert_false(decode(&sample, &command));
    assert_null(command.holder);
    assert_true(command.fence == COMMAND_ABSENT);
    assert_false(command.has_claim_id);
    assert_int_equal(command.token[0], '\0');
    assert_string_equal(event_verdict_name(command.verdict), "malformed");
    command_release(&command);
    sample_end(&sample);
}

/* ---- over many items ---- */

#define PROOF "\"fence\":7,\"claim_id\":\"" CLAIM_ID "\",\"token\":\"" TOKEN "\""
#define ITEM_OF(lease, rest) "{\"lease\":\"" lease "\"," PROOF rest "}"
#define MANY_AND(items, rest) "{\"holder\":\"" SUBJECT "\",\"items\":" items rest "}"
#define MANY(items) MANY_AND("[" items "]", "")
#define ITEM_WITH(members) MANY(ITEM_OF("a", "") "," "{" members "}")

static const struct data_row items_rows[] = {
    {"renew of one", "cleanup.renew", MANY(ITEM_OF("a", "")), EVENT_REASON_NONE, NULL},
    {"renew of two", "cleanup.renew", MANY(ITEM_OF("a", "") " , " ITEM_OF("b", "")), EVENT_REASON_NONE, NULL},
    {"renew with a ttl for all", "cleanup.renew", MANY_AND("[" ITEM_OF("a", "") "]", ",\"ttl_ms\":1"), EVENT_REASON_NONE, NULL},
    {"renew of runs", "settlement.renew", MANY(ITEM_OF("a", "")), EVENT_REASON_NONE, NULL},
    {"ttl 0", "cleanup.renew", MANY_AND("[" ITEM_OF("a", "") "]", ",\"ttl_ms\":0"), EVENT_OUT_OF_RANGE, "ttl_ms"},
    {"ttl of an item", "cleanup.renew", MANY(ITEM_OF("a", ",\"ttl_ms\":1")), EVENT_UNKNOWN_MEMBER, "items[0].ttl_ms"},
    {"ttl of a finish", "cleanup.finish", MANY_AND("[" ITEM_OF("a", "") "]", ",\"ttl_ms\":1"), EVENT_UNKNOWN_MEMBER, "ttl_ms"},
    {"finish, a result of one", "cleanup.finish", MANY(ITEM_OF("a", ",\"result\":{\"x\":0.50}") "," ITEM_OF("b", "")),
     EVENT_REASON_NONE, NULL},
    {"finish, a result for all", "cleanup.finish", MANY_AND("[" ITEM_OF("a", "") "]", ",\"result\":{}"), EVENT_UNKNOWN_MEMBER, "result"},
    {"finish, a result that is none", "cleanup.finish", MANY(ITEM_OF("a", "") "," ITEM_OF("b", ",\"result\":[]")), EVENT_WRONG_TYPE,
     "items[1].result"},
    {"finish, a result named with an escape", "cleanup.finish", MANY(ITEM_OF("a", ",\"r\\u0065sult\":{}")),
     EVENT_NOT_ALLOWED_CHARACTERS, "items[0].result"},
    {"renew, a result", "cleanup.renew", MANY(ITEM_OF("a", ",\"result\":{}")), EVENT_UNKNOWN_MEMBER, "items[0].result"},
    {"fail", "cleanup.fail", MANY(ITEM_OF("a", ",\"reason\":\"r\",\"retry\":false,\"delay_ms\":1")), EVENT_REASON_NONE, NULL},
    {"fail without a reason", "cleanup.fail", MANY(ITEM_OF("a", ",\"reason\":\"r\"") "," ITEM_OF("b", "")), EVENT_MISSING,
     "items[1].reason"},
    {"fail, a reason for all", "cleanup.fail", MANY_AND("[" ITEM_OF("a", "") "]", ",\"reason\":\"r\""), EVENT_UNKNOWN_MEMBER, "reason"},
    {"fail, an empty reason", "cleanup.fail", MANY(ITEM_OF("a", ",\"reason\":\"\"")), EVENT_EMPTY, "items[0].reason"},
    {"fail, retry a number", "cleanup.fail", MANY(ITEM_OF("a", ",\"reason\":\"r\",\"retry\":1")), EVENT_WRONG_TYPE, "items[0].retry"},
    {"fail, delay above 30 days", "cleanup.fail", MANY(ITEM_OF("a", ",\"reason\":\"r\",\"delay_ms\":2592000001")), EVENT_OUT_OF_RANGE,
     "items[0].delay_ms"},
    {"release", "cleanup.release", MANY(ITEM_OF("a", "")), EVENT_REASON_NONE, NULL},
    {"release with a reason", "cleanup.release", MANY(ITEM_OF("a", ",\"reason\":\"r\"")), EVENT_UNKNOWN_MEMBER, "items[0].reason"},
    /* the form of one beside the form of many */
    {"items beside a fence", "cleanup.renew", MANY_AND("[" ITEM_OF("a", "") "]", ",\"fence\":7"), EVENT_UNKNOWN_MEMBER, "fence"},
    {"items beside a claim id", "cleanup.finish", MANY_AND("[" ITEM_OF("a", "") "]", ",\"claim_id\":\"" CLAIM_ID "\""),
     EVENT_UNKNOWN_MEMBER, "claim_id"},
    {"items beside a token", "cleanup.fail", MANY_AND("[" ITEM_OF("a", "") "]", ",\"token\":\"" TOKEN "\""), EVENT_UNKNOWN_MEMBER,
     "token"},
    {"items null", "cleanup.renew", MANY_AND("null", ""), EVENT_WRONG_TYPE, "items"},
    {"items of an advance", "settlement.advance", MANY_AND("[" ITEM_OF("a", "") "]", ",\"step\":\"posted\""), EVENT_UNKNOWN_MEMBER, "items"},
    {"items of a claim", "cleanup.claim", MANY(ITEM_OF("a", "")), EVENT_UNKNOWN_MEMBER, "items"},
    {"items of a request", "cleanup.request", "{\"items\":[]}", EVENT_UNKNOWN_MEMBER, "items"},
    {"items named with an escape", "cleanup.renew", "{\"holder\":\"" SUBJECT "\",\"it\\u0065ms\":[" ITEM_OF("a", "") "]}",
     EVENT_NOT_ALLOWED_CHARACTERS, "items"},
    /* the list */
    {"an object for the list", "cleanup.renew", MANY_AND("{}", ""), EVENT_WRONG_TYPE, "items"},
    {"no items", "cleanup.renew", MANY(""), EVENT_EMPTY, "items"},
    {"an item twice", "cleanup.renew", MANY(ITEM_OF("b", "") "," ITEM_OF("a", "") "," ITEM_OF("b", "")), EVENT_REPEATED,
     "items[2].lease"},
    {"an item twice by an escape", "cleanup.renew", MANY(ITEM_OF("b", "") "," ITEM_OF("\\u0062", "")), EVENT_REPEATED, "items[1].lease"},
    {"a name for an item", "cleanup.renew", MANY("\"a\""), EVENT_WRONG_TYPE, "items[0]"},
    {"a real for an item", "cleanup.renew", MANY("1.5"), EVENT_WRONG_TYPE, "items[0]"},
    {"a list for an item", "cleanup.renew", MANY("[" ITEM_OF("a", "") "]"), EVENT_WRONG_TYPE, "items[0]"},
    {"null behind an item", "cleanup.renew", MANY(ITEM_OF("a", "") ",null"), EVENT_WRONG_TYPE, "items[1]"},
    /* the holder */
    {"another's items", "cleanup.renew", "{\"holder\":\"other\",\"items\":[" ITEM_OF("a", "") "]}", EVENT_KEY_MISMATCH, "holder"},
    {"nobody's items", "cleanup.renew", "{\"items\":[" ITEM_OF("a", "") "]}", EVENT_MISSING, "holder"},
    {"a holder of an item", "cleanup.renew", MANY(ITEM_OF("a", ",\"holder\":\"" SUBJECT "\"")), EVENT_UNKNOWN_MEMBER, "items[0].holder"},
    /* what stands in an item */
    {"an empty item", "cleanup.renew", MANY("{}"), EVENT_MISSING, "items[0].lease"},
    {"an unknown member explains the missing one", "cleanup.renew", MANY("{\"leese\":\"a\"}"), EVENT_UNKNOWN_MEMBER, "items[0].leese"},
    {"a member with an empty name", "cleanup.renew", MANY(ITEM_OF("a", ",\"\":1")), EVENT_UNKNOWN_MEMBER, "items[0]."},
    {"no lease", "cleanup.renew", ITEM_WITH(PROOF), EVENT_MISSING, "items[1].lease"},
    {"a lease that is a number", "cleanup.renew", ITEM_WITH("\"lease\":1," PROOF), EVENT_WRONG_TYPE, "items[1].lease"},
    {"a lease with a space", "cleanup.renew", ITEM_WITH("\"lease\":\"a b\"," PROOF), EVENT_NOT_ALLOWED_CHARACTERS, "items[1].lease"},
    {"a lease without a name", "cleanup.renew", ITEM_WITH("\"lease\":\"\"," PROOF), EVENT_EMPTY, "items[1].lease"},
    {"no fence", "cleanup.renew", ITEM_WITH("\"lease\":\"b\",\"claim_id\":\"" CLAIM_ID "\",\"token\":\"" TOKEN "\""), EVENT_MISSING,
     "items[1].fence"},
    {"fence 0", "cleanup.renew", ITEM_WITH("\"lease\":\"b\",\"fence\":0,\"claim_id\":\"" CLAIM_ID "\",\"token\":\"" TOKEN "\""),
     EVENT_OUT_OF_RANGE, "items[1].fence"},
    {"fence 2^53", "cleanup.renew", ITEM_WITH("\"lease\":\"b\",\"fence\":9007199254740992,\"claim_id\":\"" CLAIM_ID "\",\"token\":\"" TOKEN "\""),
     EVENT_OUT_OF_RANGE, "items[1].fence"},
    {"fence 7.0", "cleanup.renew", ITEM_WITH("\"lease\":\"b\",\"fence\":7.0,\"claim_id\":\"" CLAIM_ID "\",\"token\":\"" TOKEN "\""),
     EVENT_WRONG_TYPE, "items[1].fence"},
    {"fence as a string", "cleanup.renew", ITEM_WITH("\"lease\":\"b\",\"fence\":\"7\",\"claim_id\":\"" CLAIM_ID "\",\"token\":\"" TOKEN "\""),
     EVENT_WRONG_TYPE, "items[1].fence"},
    {"no claim id", "cleanup.renew", ITEM_WITH("\"lease\":\"b\",\"fence\":7,\"token\":\"" TOKEN "\""), EVENT_MISSING, "items[1].claim_id"},
    {"claim id nil", "cleanup.renew",
     ITEM_WITH("\"lease\":\"b\",\"fence\":7,\"claim_id\":\"00000000-0000-0000-0000-000000000000\",\"token\":\"" TOKEN "\""), EVENT_WRONG_TYPE,
     "items[1].claim_id"},
    {"no token", "cleanup.renew", ITEM_WITH("\"lease\":\"b\",\"fence\":7,\"claim_id\":\"" CLAIM_ID "\""), EVENT_MISSING, "items[1].token"},
    {"token short", "cleanup.renew", ITEM_WITH("\"lease\":\"b\",\"fence\":7,\"claim_id\":\"" CLAIM_ID "\",\"token\":\"0123\""), EVENT_WRONG_TYPE,
     "items[1].token"},
    {"token null", "cleanup.renew", ITEM_WITH("\"lease\":\"b\",\"fence\":7,\"claim_id\":\"" CLAIM_ID "\",\"token\":null"), EVENT_WRONG_TYPE,
     "items[1].token"},
    {"a member twice", "cleanup.renew", MANY(ITEM_OF("a", ",\"fence\":8")), EVENT_DUPLICATE_MEMBER, NULL},
};

static void event_decode__items_that_are_not_as_they_should_be__are_malformed_with_their_field(void **state) {
    (void)state;
    expect_rows(items_rows, LENGTH(items_rows));
}

static void event_decode__items__say_what_a_command_over_each_would(void **state) {
    (void)state;
    struct command renewal = decode_data("cleanup.renew", MANY_AND("[" ITEM_OF("a", "") "," ITEM_OF("b/c", "") "]", ",\"ttl_ms\":5000"));
    assert_string_equal(renewal.subject, SUBJECT);
    assert_string_equal(renewal.holder, SUBJECT);
    assert_int_equal(renewal.ttl_ms, 5000);
    assert_true(renewal.fence == COMMAND_ABSENT);
    assert_false(renewal.has_claim_id);
    assert_int_equal(renewal.token[0], '\0');
    assert_int_equal(renewal.item_count, 2);
    assert_string_equal(renewal.items[0].lease, "a");
    assert_string_equal(renewal.items[1].lease, "b/c");
    for (size_t i = 0; i < 2; i++) {
        char claim_id[CLAIM_ID_TEXT_SIZE];
        assert_int_equal(renewal.items[i].fence, 7);
        assert_string_equal(claim_id_format(&renewal.items[i].claim_id, claim_id), CLAIM_ID);
        assert_string_equal(renewal.items[i].token, TOKEN);
        assert_false(renewal.items[i].token_fits);
        assert_true(renewal.items[i].amount == COMMAND_ABSENT);
        assert_int_equal(renewal.items[i].flag, -1);
        assert_null(renewal.items[i].word);
        assert_null(renewal.items[i].payload);
    }
    command_release(&renewal);

    struct command finish = decode_data("cleanup.finish", MANY(ITEM_OF("a", "") "," ITEM_OF("b", ",\"result\":{ \"share\" : 0.70, \"of\":[1, {}]}")));
    assert_null(finish.payload);
    assert_null(finish.items[0].payload);
    assert_string_equal(finish.items[1].payload, "{\"share\":0.70,\"of\":[1,{}]}"); /* as it was written */
    command_release(&finish);

    struct command fail = decode_data(
        "cleanup.fail", MANY(ITEM_OF("a", ",\"reason\":\"disk\"") "," ITEM_OF("b", ",\"reason\":\"x\",\"retry\":false,\"delay_ms\":0")));
    assert_int_equal(fail.flag, -1);
    assert_null(fail.word);
    assert_string_equal(fail.items[0].word, "disk");
    assert_int_equal(fail.items[0].flag, 1);
    assert_true(fail.items[0].amount == COMMAND_ABSENT);
    assert_string_equal(fail.items[1].word, "x");
    assert_int_equal(fail.items[1].flag, 0);
    assert_int_equal(fail.items[1].amount, 0);
    command_release(&fail);
}

/* `bytes` each, with the comma. */
static struct buf many_items(size_t count, size_t bytes) {
    struct buf data = BUF_INIT;
    buf_append_text(&data, "{\"holder\":\"" SUBJECT "\",\"items\":[");
    for (size_t i = 0; i < count; i++) {
        size_t start = data.size;
        buf_appendf(&data, "%s{%s,\"lease\":\"item-%06zu", i == 0 ? " " : ",", PROOF, i);
        while (data.size - start < bytes - 2)
            buf_append_byte(&data, 'x');
        buf_append_text(&data, "\"}");
    }
    buf_append_text(&data, "]}");
    return data;
}

static void event_decode__thousand_items_of_250_bytes__are_taken_and_one_more_refused(void **state) {
    (void)state;
    for (size_t count = LEASE_ITEMS_MAX; count <= LEASE_ITEMS_MAX + 1; count++) {
        struct buf data = many_items(count, 250);
        struct sample sample;
        struct command command;
        sample_binary(&sample, "cleanup.renew", data.data, data.size);
        bool is_accepted = decode(&sample, &command);
        assert_int_equal(is_accepted, count == LEASE_ITEMS_MAX);
        if (is_accepted) {
            assert_int_equal(command.item_count, LEASE_ITEMS_MAX);
            assert_memory_equal(command.items[999].lease, "item-000999", 11);
            assert_true(command_size(&command) < 2 * data.size); /* beside the record: what a queue has to hold */
        } else {
            assert_int_equal(command.reason, EVENT_TOO_MANY);
            assert_string_equal(command.field, "items");
            assert_int_equal(command.item_count, 0);
        }
        command_release(&command);
        sample_end(&sample);
        buf_release(&data);
    }
}

/* With every member that one may have, and a result of some members: the bounds on what is parsed leave room. */
static void event_decode__thousand_items_that_say_all_they_can__are_taken(void **state) {
    (void)state;
    static const struct {
        const char *type, *rest;
    } rows[] = {
        {"cleanup.fail", ",\"reason\":\"r\",\"retry\":true,\"delay_ms\":1"},
        {"cleanup.finish", ",\"result\":{\"a\":1,\"b\":2,\"c\":3,\"d\":4}"},
    };
    for (size_t row = 0; row < LENGTH(rows); row++) {
        struct buf data = BUF_INIT;
        buf_append_text(&data, "{\"holder\":\"" SUBJECT "\",\"items\":[");
        for (size_t i = 0; i < LEASE_ITEMS_MAX; i++)
            buf_appendf(&data, "%s{%s,\"lease\":\"item-%06zu\"%s}", i == 0 ? "" : ",", PROOF, i, rows[row].rest);
        buf_append_text(&data, "]}");
        struct sample sample;
        sample_binary(&sample, rows[row].type, data.data, data.size);
        expect(rows[row].type, &sample, EVENT_REASON_NONE, NULL);
        sample_end(&sample);
        buf_release(&data);
    }
}

static void event_decode__long_name_in_an_item__is_cut(void **state) {
    (void)state;
    struct buf data = repeated("{\"holder\":\"" SUBJECT "\",\"items\":[{\"", "n", 300, "\":1}]}");
    struct sample sample;
    struct command command;
    sample_binary(&sample, "cleanup.renew", data.data, data.size);
    assert_false(decode(&sample, &command));
    assert_int_equal(command.reason, EVENT_UNKNOWN_MEMBER);
    assert_int_equal(strlen(command.field), 128);
    assert_memory_equal(command.field, "items[0].nnn", 12);
    command_release(&command);
    sample_end(&sample);
    buf_release(&data);
}

static void event_digest__of_items__goes_with_their_meaning(void **state) {
    (void)state;
    static const char *const same[] = {MANY(ITEM_OF("a", "") "," ITEM_OF("b", "")),
                                       "{ \"items\": [ {" PROOF ",\"lease\":\"\\u0061\"},\n" ITEM_OF("b", "") " ], \"holder\":\"" SUBJECT "\"}"};
    struct command first = decode_data("cleanup.renew", same[0]);
    struct command second = decode_data("cleanup.renew", same[1]);
    struct command turned = decode_data("cleanup.renew", MANY(ITEM_OF("b", "") "," ITEM_OF("a", "")));
    assert_memory_equal(first.digest, second.digest, sizeof first.digest);
    assert_memory_not_equal(first.digest, turned.digest, sizeof first.digest); /* the order is the answer's */
    command_release(&first);
    command_release(&second);
    command_release(&turned);
}

static void command_check_token__of_items__fits_each_its_claim__and_wipes_all(void **state) {
    (void)state;
    struct token_keys *keys;
    struct error error;
    assert_true(token_keys_new("0123456789abcdef0123456789abcdef", 32, NULL, 0, &keys, &error));
    struct claim_id claim_id;
    assert_true(claim_id_parse(CLAIM_ID, strlen(CLAIM_ID), &claim_id));
    char token[LEASE_TOKEN_TEXT_SIZE];
    token_derive(keys, &claim_id, token);
    char data[1024];
    snprintf(data, sizeof data,
             "{\"holder\":\"" SUBJECT "\",\"items\":[" ITEM_OF("a", "")
             ",{\"lease\":\"b\",\"fence\":7,\"claim_id\":\"%s\",\"token\":\"%s\"}"
             ",{\"lease\":\"c\",\"fence\":7,\"claim_id\":\"0198c0de-0000-7000-8000-000000000002\",\"token\":\"%s\"}]}",
             CLAIM_ID, token, token);
    struct command command = decode_data("cleanup.renew", data);
    command_check_token(&command, keys);
    assert_false(command.token_fits);
    static const char wiped[LEASE_TOKEN_TEXT_SIZE];
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(command.items[i].token_fits, i == 1);
        assert_memory_equal(command.items[i].token, wiped, sizeof wiped);
    }
    command_release(&command);
    token_keys_free(keys);
}

static void event_decode__malformed_items__are_forgotten(void **state) {
    (void)state;
    struct sample sample;
    struct command command;
    static const char data[] = MANY(ITEM_OF("a", "") "," ITEM_OF("b", ",\"x\":1"));
    sample_binary(&sample, "cleanup.renew", data, strlen(data));
    assert_false(decode(&sample, &command));
    assert_null(command.items);
    assert_int_equal(command.item_count, 0);
    assert_null(command.holder);
    command_release(&command);
    sample_end(&sample);
}

static void command_to_dead_letter__of_many_items__has_none(void **state) {
    (void)state;
    struct sample sample;
    struct command command;
    static const char data[] = MANY(ITEM_OF("a", ""));
    sample_binary(&sample, "cleanup.renew", data, strlen(data));
    assert_true(decode(&sample, &command));
    command_to_dead_letter(&command, &sample.message, EVENT_DATABASE_REFUSED, "22000");
    assert_int_equal(command.item_count, 0);
    assert_null(command.items);
    assert_int_equal(command.raw_value_size, sizeof data - 1);
    command_release(&command);
    sample_end(&sample);
}

/* ---- dead letters ---- */

static void event_decode__dead_letter__keeps_the_record_byte_for_byte(void **state) {
    (void)state;
    struct sample sample;
    struct command command;
    sample_begin(&sample);
    sample.message.key = "k\0y";
    sample.message.key_size = 3;
    sample_header(&sample, "trace", "a");
    sample_header(&sample, "null", NULL);
    sample_header(&sample, "", "");
    sample_set_value(&sample, "\xFF\0x", 3);
    assert_false(decode(&sample, &command));
    assert_string_equal(event_verdict_name(command.verdict), "dead_letter");
    assert_memory_equal(command.raw_key, "k\0y", 3);
    assert_memory_equal(command.raw_value, "\xFF\0x", 3);
    static const char packed[] = "\0\0\0\5trace\0\0\0\1a" "\0\0\0\4null\377\377\377\377" "\0\0\0\0\0\0\0\0";
    assert_int_equal(command.raw_headers_size, sizeof packed - 1);
    assert_memory_equal(command.raw_headers, packed, sizeof packed - 1);

    size_t position = 0;
    struct message_header header;
    for (size_t i = 0; i < sample.message.header_count; i++) {
        assert_true(headers_next(command.raw_headers, command.raw_headers_size, &position, &header));
        assert_int_equal(header.name_size, sample.headers[i].name_size);
        assert_int_equal(header.value_size, sample.headers[i].value_size);
        assert_int_equal(header.value == NULL, sample.headers[i].value == NULL);
    }
    assert_false(headers_next(command.raw_headers, command.raw_headers_size, &position, &header));
    command_release(&command);
    sample_end(&sample);
}

static void event_decode__null_key_and_value__stay_null(void **state) {
    (void)state;
    struct sample sample;
    struct command command;
    sample_begin(&sample);
    drop_key(&sample);
    assert_false(decode(&sample, &command));
    assert_null(command.raw_key);
    assert_null(command.raw_value);
    assert_non_null(command.raw_headers);
    assert_int_equal(command.raw_headers_size, 0);
    command_release(&command);
    sample_end(&sample);
}

static void command_to_dead_letter__of_a_good_command__forgets_what_it_said(void **state) {
    (void)state;
    struct sample sample;
    struct command command;
    sample_binary(&sample, "settlement.renew", "{" GRANT "}", strlen("{" GRANT "}"));
    assert_true(decode(&sample, &command));
    command_to_dead_letter(&command, &sample.message, EVENT_DATABASE_REFUSED, "22003");
    assert_int_equal(command.verdict, EVENT_DEAD_LETTER);
    assert_string_equal(command.field, "22003");
    assert_null(command.subject);
    assert_false(command.has_claim_id);
    assert_int_equal(command.token[0], '\0');
    assert_string_equal(command.topic, "settlement.events");
    assert_int_equal(command.offset, 41);
    assert_int_equal(command.raw_value_size, sample.message.value_size);
    command_release(&command);
    sample_end(&sample);
}

/* Nothing of what is journaled may be larger than what the topic of dead letters takes: it would never be published. */
static void command_to_dead_letter__of_a_huge_record__keeps_the_beginnings_and_says_so(void **state) {
    (void)state;
    enum { HUGE_BYTES = 3 * 1024 * 1024, MANY = 400000, LIMIT = 1048588 };
    static char huge[HUGE_BYTES];
    struct message_header *many = memory_alloc_array(MANY, sizeof *many);
    for (size_t i = 0; i < MANY; i++)
        many[i] = (struct message_header){.name = "a", .name_size = 1};
    static const struct { size_t key, value, headers; bool is_cut; } rows[] = {
        {10, LIMIT - 10, 0, false},     {10, LIMIT - 9, 0, true},       {0, 10, 300000, false},  {0, 10, MANY, true},
        {HUGE_BYTES, 10, 10, true},     {10, HUGE_BYTES, MANY, true},   {HUGE_BYTES, HUGE_BYTES, MANY, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct message message = {.topic = "settlement.events", .key = huge, .key_size = rows[i].key, .value = huge,
                                        .value_size = rows[i].value, .headers = many, .header_count = rows[i].headers};
        struct command command = {0};
        command_to_dead_letter(&command, &message, EVENT_KILLED_PROCESS, NULL);
        size_t position = 0, count = 0;
        struct message_header header;
        while (headers_next(command.raw_headers, command.raw_headers_size, &position, &header))
            count++;
        assert_int_equal(position, command.raw_headers_size);
        assert_true(command.raw_key_size + command.raw_value_size + headers_wire_size(many, count) <= LIMIT);
        bool is_whole = command.raw_key_size == rows[i].key && command.raw_value_size == rows[i].value &&
                        count == rows[i].headers;
        assert_int_equal(is_whole, !rows[i].is_cut);
        assert_int_equal(command.field != NULL && strncmp(command.field, "cut ", 4) == 0, rows[i].is_cut);
        assert_true(rows[i].value > LIMIT || rows[i].headers == MANY || command.raw_value_size >= rows[i].value - 1);
        command_release(&command);
    }
    free(many);
}

static void headers_wire_size__is_that_of_the_varints(void **state) {
    (void)state;
    static const struct message_header headers[] = {
        {.name = "a", .name_size = 1},                                    /* 1 + 1 + 1 */
        {.name = "a", .name_size = 1, .value = "", .value_size = 63},     /* 1 + 1 + 1 + 63 */
        {.name = "a", .name_size = 64, .value = "", .value_size = 8191},  /* 2 + 64 + 2 + 8191 */
        {.name = "a", .name_size = 0, .value = "", .value_size = 8192},   /* 1 + 3 + 8192 */
    };
    assert_int_equal(headers_wire_size(headers, 4), 3 + 66 + 8259 + 8196);
}

static void headers_next__broken_bytes__end_it(void **state) {
    (void)state;
    static const uint8_t packed[] = {0, 0, 0, 1, 'n', 0, 0, 0, 2, 'v', 'w'};
    for (size_t size = 0; size < sizeof packed; size++) {
        uint8_t *copy = memory_alloc(size); /* exact, so that a sanitizer sees a byte too many */
        memcpy(copy, packed, size);
        size_t position = 0;
        struct message_header header;
        assert_false(headers_next(copy, size, &position, &header));
        assert_int_equal(position, 0);
        free(copy);
    }
}

/* Every code has a name, and no two have the same. */
static void event_reasons__all_have_distinct_names(void **state) {
    (void)state;
    for (unsigned i = EVENT_REASON_NONE + 1; i < EVENT_REASON_COUNT; i++) {
        assert_non_null(event_reason_name((enum event_reason)i));
        for (unsigned j = EVENT_REASON_NONE + 1; j < i; j++)
            assert_string_not_equal(event_reason_name((enum event_reason)i), event_reason_name((enum event_reason)j));
    }
    assert_int_equal(event_reason_verdict(EVENT_DATABASE_REFUSED), EVENT_DEAD_LETTER);
    assert_int_equal(event_reason_verdict(EVENT_KEY_MISMATCH), EVENT_MALFORMED);
}

/* Not an assertion on time (the machine is shared): printed for who looks. */
static void event_decode__a_renewal__says_how_long_it_takes(void **state) {
    (void)state;
    struct sample sample;
    sample_binary(&sample, "settlement.renew", WITH_GRANT(",\"ttl_ms\":30000"), strlen(WITH_GRANT(",\"ttl_ms\":30000")));
    enum { TIMES = 20000 };
    clock_t start = clock();
    for (int i = 0; i < TIMES; i++) {
        struct command command;
        assert_true(decode(&sample, &command));
        command_release(&command);
    }
    print_message("%.2f us of CPU for %zu bytes of value\n", (double)(clock() - start) * 1e6 / CLOCKS_PER_SEC / TIMES,
                  sample.message.value_size);
    sample_end(&sample);
}

/* ---- what it costs ---- */

static size_t parser_bytes, parser_most; /* that jansson has now, and had at most */

static void *parser_take(size_t size) {
    void *taken = memory_alloc(size);
    parser_bytes += malloc_usable_size(taken);
    if (parser_bytes > parser_most)
        parser_most = parser_bytes;
    return taken;
}

static void parser_give(void *taken) {
    parser_bytes -= taken != NULL ? malloc_usable_size(taken) : 0;
    free(taken);
}

static size_t parser_cost(struct buf text, bool is_read) {
    struct sample sample;
    struct command command;
    sample_binary(&sample, "cleanup.request", text.data, text.size);
    parser_bytes = parser_most = 0;
    decode(&sample, &command);
    assert_int_equal(command.reason == EVENT_TOO_COMPLEX, !is_read);
    command_release(&command);
    sample_end(&sample);
    buf_release(&text);
    assert_int_equal(parser_bytes, 0);
    return parser_most;
}

/* F17. The parser takes many times a text's size for small containers: 43 MB for 1 MB of "[],". Too many are refused before. */
static void event_decode__F17_a_small_text__does_not_become_a_large_heap(void **state) {
    (void)state;
    json_malloc_t malloc_before;
    json_free_t free_before;
    json_get_alloc_funcs(&malloc_before, &free_before);
    json_set_alloc_funcs(parser_take, parser_give);
    assert_int_equal(parser_cost(repeated("{\"payload\":[[]", ",[]", 60000, "]}"), false), 0);
    assert_int_equal(parser_cost(repeated("{\"payload\":[{}", ",{}", 60000, "]}"), false), 0);
    size_t arrays = parser_cost(repeated("{\"payload\":[[]", ",[]", EVENT_ELEMENTS_MAX / 2 - 10, "]}"), true);
    size_t objects = parser_cost(repeated("{\"payload\":[{}", ",{}", EVENT_ELEMENTS_MAX / 2 - 10, "]}"), true);
    json_set_alloc_funcs(malloc_before, free_before);
    print_message("%zu bytes for arrays, %zu for objects\n", arrays, objects);
    assert_in_range(arrays, 1, 8 << 20);
    assert_in_range(objects, 1, 8 << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(event_decode__framing_that_cannot_be_trusted__is_a_dead_letter),
        cmocka_unit_test(event_decode__data_that_is_no_json_object__is_a_dead_letter),
        cmocka_unit_test(event_decode__json_bombs__are_dead_letters_in_linear_time),
        cmocka_unit_test(event_decode__data_that_is_not_as_it_should_be__is_malformed_with_its_field),
        cmocka_unit_test(event_decode__a_time_that_is_none__is_malformed),
        cmocka_unit_test(event_decode__a_structured_envelope__is_judged_by_the_same_rules),
        cmocka_unit_test(event_decode__key_that_is_not_the_subject__is_malformed),
        cmocka_unit_test(event_decode__subject_that_cannot_be_trusted__is_a_dead_letter),
        cmocka_unit_test(event_decode__known_kinds__decide_type_and_mode),
        cmocka_unit_test(event_decode__start__takes_all_members),
        cmocka_unit_test(event_decode__optional_members__have_their_defaults),
        cmocka_unit_test(event_decode__each_holders_command__carries_its_grant),
        cmocka_unit_test(event_decode__largest_list__is_taken_and_one_more_refused),
        cmocka_unit_test(event_decode__payload__may_have_64_kilobytes),
        cmocka_unit_test(event_decode__longest_texts__are_taken_and_one_more_refused),
        cmocka_unit_test(event_decode__long_name_of_a_member__is_cut_at_a_character),
        cmocka_unit_test(event_decode__traceparent__is_kept_only_if_well_formed),
        cmocka_unit_test(event_digest__same_meaning__same_digest),
        cmocka_unit_test(event_digest__other_meaning__other_digest),
        cmocka_unit_test(command_check_token__fits_only_its_claim__and_wipes),
        cmocka_unit_test(event_decode__malformed_command__keeps_nothing_of_what_it_said),
        cmocka_unit_test(event_decode__items_that_are_not_as_they_should_be__are_malformed_with_their_field),
        cmocka_unit_test(event_decode__items__say_what_a_command_over_each_would),
        cmocka_unit_test(event_decode__thousand_items_of_250_bytes__are_taken_and_one_more_refused),
        cmocka_unit_test(event_decode__thousand_items_that_say_all_they_can__are_taken),
        cmocka_unit_test(event_decode__long_name_in_an_item__is_cut),
        cmocka_unit_test(event_digest__of_items__goes_with_their_meaning),
        cmocka_unit_test(command_check_token__of_items__fits_each_its_claim__and_wipes_all),
        cmocka_unit_test(event_decode__malformed_items__are_forgotten),
        cmocka_unit_test(command_to_dead_letter__of_many_items__has_none),
        cmocka_unit_test(event_decode__dead_letter__keeps_the_record_byte_for_byte),
        cmocka_unit_test(event_decode__null_key_and_value__stay_null),
        cmocka_unit_test(command_to_dead_letter__of_a_good_command__forgets_what_it_said),
        cmocka_unit_test(command_to_dead_letter__of_a_huge_record__keeps_the_beginnings_and_says_so),
        cmocka_unit_test(headers_wire_size__is_that_of_the_varints),
        cmocka_unit_test(headers_next__broken_bytes__end_it),
        cmocka_unit_test(event_reasons__all_have_distinct_names),
        cmocka_unit_test(event_decode__a_renewal__says_how_long_it_takes),
        cmocka_unit_test(event_decode__F17_a_small_text__does_not_become_a_large_heap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
