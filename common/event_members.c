/* The members of each command's data: one table of rows, one reader per type of member; see event_private.h. */
#include "common/event_private.h"
#include "common/json_text.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_number(const json_t *value) {
    return json_is_integer(value) ||
           (json_is_string(value) && json_text_is_quoted_number(json_string_value(value), json_string_length(value)));
}

/* A string that is one, not a quoted number. */
bool event_take_text(const json_t *value, struct slice *ret) {
    if (!json_is_string(value) || is_number(value))
        return false;
    *ret = (struct slice){.data = json_string_value(value), .size = json_string_length(value)};
    return true;
}

/* ---- one reader per type ---- */

struct reading {
    struct decoder *decoder;
    struct slice text;   /* of the data object, as it came; of the item's */
    void *target;        /* what the members are read into: the command, or the item */
    bool is_item;
    size_t item;         /* its place among the items */
    const json_t *items; /* the list of them, until it is gone through */
};

struct member {
    const char *name;
    bool (*read)(struct reading *reading, const struct member *member, const json_t *value);
    bool is_required;
    size_t offset; /* of the destination in struct command; of an item's member in struct command_item */
    int64_t min;
    int64_t max;
};

/* At a member: `name`, or `items[i].name`. */
static bool fault_at(struct reading *reading, enum event_reason reason, const char *name) {
    if (!reading->is_item)
        return event_fault_text(reading->decoder, reason, name);
    struct buf field = BUF_INIT;
    buf_appendf(&field, "items[%zu].%s", reading->item, name);
    event_fault(reading->decoder, reason, buf_text(&field), field.size);
    buf_release(&field);
    return false;
}

static bool fault_of(struct reading *reading, const struct member *member, enum event_reason reason) {
    return fault_at(reading, reason, member->name);
}

static void *destination(struct reading *reading, const struct member *member) {
    return (char *)reading->target + member->offset;
}

static bool is_integer_text(const char *text) {
    if (*text == '-')
        text++;
    return text[strspn(text, "0123456789")] == '\0';
}

static bool read_integer(struct reading *reading, const struct member *member, const json_t *value) {
    if (!is_number(value))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    if (!json_is_integer(value)) {
        const char *written = json_string_value(value) + 1;
        bool is_large = is_integer_text(written) && strcmp(written, "-0") != 0;
        return fault_of(reading, member, is_large ? EVENT_OUT_OF_RANGE : EVENT_WRONG_TYPE);
    }
    int64_t number = json_integer_value(value);
    if (number < member->min || number > member->max)
        return fault_of(reading, member, EVENT_OUT_OF_RANGE);
    *(int64_t *)destination(reading, member) = number;
    return true;
}

/* null: the lease had none. */
static bool read_seen_fence(struct reading *reading, const struct member *member, const json_t *value) {
    return json_is_null(value) || read_integer(reading, member, value);
}

static bool read_boolean(struct reading *reading, const struct member *member, const json_t *value) {
    if (!json_is_boolean(value))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    *(int *)destination(reading, member) = json_is_true(value) ? 1 : 0;
    return true;
}

static bool read_checked(struct reading *reading, const struct member *member, const json_t *value,
                         enum event_reason (*check)(struct slice)) {
    struct slice text;
    if (!event_take_text(value, &text))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    enum event_reason reason = check(text);
    if (reason != EVENT_REASON_NONE)
        return fault_of(reading, member, reason);
    *(const char **)destination(reading, member) = command_copy(reading->decoder->command, text.data, text.size);
    return true;
}

static bool read_id(struct reading *reading, const struct member *member, const json_t *value) {
    return read_checked(reading, member, value, event_text_id);
}

static bool read_step(struct reading *reading, const struct member *member, const json_t *value) {
    return read_checked(reading, member, value, event_text_step);
}

static enum event_reason check_verdict(struct slice text) {
    static const char *const verdicts[] = {"done", "not_done", "extend"};
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++)
        if (strlen(verdicts[i]) == text.size && memcmp(verdicts[i], text.data, text.size) == 0)
            return EVENT_REASON_NONE;
    return EVENT_OUT_OF_RANGE;
}

static bool read_verdict(struct reading *reading, const struct member *member, const json_t *value) {
    return read_checked(reading, member, value, check_verdict);
}

static bool read_reason(struct reading *reading, const struct member *member, const json_t *value) {
    return read_checked(reading, member, value, event_text_reason);
}

static bool read_claim_id(struct reading *reading, const struct member *member, const json_t *value) {
    struct slice text;
    if (!event_take_text(value, &text) || !claim_id_parse(text.data, text.size, destination(reading, member)))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    if (!reading->is_item)
        reading->decoder->command->has_claim_id = true;
    return true;
}

static bool read_token(struct reading *reading, const struct member *member, const json_t *value) {
    struct slice text;
    if (!event_take_text(value, &text) || !token_is_well_formed(text.data, text.size))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    char *token = destination(reading, member);
    memcpy(token, text.data, text.size);
    token[text.size] = '\0';
    return true;
}

/* The object's own text, so that no number is changed by having been read. */
static bool read_object(struct reading *reading, const struct member *member, const json_t *value) {
    if (!json_is_object(value))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    struct json_member found;
    if (!json_text_find_member(reading->text.data, reading->text.size, member->name, &found))
        return fault_of(reading, member, EVENT_NOT_ALLOWED_CHARACTERS); /* its name was written with escapes */
    struct buf compact = BUF_INIT;
    json_text_compact(found.value, found.value_size, &compact);
    bool fits = compact.size <= LEASE_PAYLOAD_MAX;
    if (fits)
        *(const char **)destination(reading, member) =
            command_copy(reading->decoder->command, buf_text(&compact), compact.size);
    buf_release(&compact);
    return fits || fault_of(reading, member, EVENT_TOO_LONG);
}

/* The id of another message. */
static bool read_message_id(struct reading *reading, const struct member *member, const json_t *value) {
    return read_checked(reading, member, value, event_text_attribute);
}

/* ---- lists of names ---- */

struct list {
    const char **items;
    size_t count;
};

static bool fault_at_item(struct reading *reading, const struct member *member, enum event_reason reason, size_t i) {
    char field[64];
    snprintf(field, sizeof field, "%s[%zu]", member->name, i);
    return event_fault_text(reading->decoder, reason, field);
}

static int compare_items(const void *left, const void *right) {
    const char *const *a = *(const char *const *const *)left;
    const char *const *b = *(const char *const *const *)right;
    int order = strcmp(*a, *b);
    return order != 0 ? order : (a > b) - (a < b);
}

/* The index of the first item that stands before it already; `count` if all are distinct. Sorts pointers to the items,
 * so equal ones are neighbours in their order. */
static size_t first_repeated(const struct list *list) {
    const char ***sorted = memory_alloc_array(list->count, sizeof *sorted);
    for (size_t i = 0; i < list->count; i++)
        sorted[i] = &list->items[i];
    qsort(sorted, list->count, sizeof *sorted, compare_items);
    size_t first = list->count;
    for (size_t i = 1; i < list->count; i++) {
        size_t index = (size_t)(sorted[i] - list->items);
        if (index < first && strcmp(*sorted[i], *sorted[i - 1]) == 0)
            first = index;
    }
    free(sorted);
    return first;
}

static bool read_list(struct reading *reading, const struct member *member, const json_t *value,
                      enum event_reason (*check)(struct slice), struct list *ret_list) {
    struct command *command = reading->decoder->command;
    if (!json_is_array(value))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    size_t count = json_array_size(value);
    if (count == 0)
        return fault_of(reading, member, EVENT_EMPTY);
    if (count > (size_t)member->max)
        return fault_of(reading, member, EVENT_TOO_MANY);
    struct list list = {.items = command_take(command, count * sizeof(char *)), .count = count};
    for (size_t i = 0; i < count; i++) {
        struct slice text;
        if (!event_take_text(json_array_get(value, i), &text))
            return fault_at_item(reading, member, EVENT_WRONG_TYPE, i);
        enum event_reason reason = check(text);
        if (reason != EVENT_REASON_NONE)
            return fault_at_item(reading, member, reason, i);
        list.items[i] = command_copy(command, text.data, text.size);
    }
    size_t repeated = first_repeated(&list);
    if (repeated < count)
        return fault_at_item(reading, member, EVENT_REPEATED, repeated);
    *ret_list = list;
    return true;
}

static bool read_resources(struct reading *reading, const struct member *member, const json_t *value) {
    struct list list = {0};
    if (!read_list(reading, member, value, event_text_resource, &list))
        return false;
    reading->decoder->command->resources = list.items;
    reading->decoder->command->resource_count = list.count;
    return true;
}

static bool read_tables(struct reading *reading, const struct member *member, const json_t *value) {
    struct list list = {0};
    if (!read_list(reading, member, value, event_text_table, &list))
        return false;
    reading->decoder->command->tables = list.items;
    reading->decoder->command->table_count = list.count;
    return true;
}

/* ---- the members of each command ---- */

/* Left for the end, when the rest is known to be right. */
static bool read_items(struct reading *reading, const struct member *member, const json_t *value) {
    if (!json_is_array(value))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    size_t count = json_array_size(value);
    if (count == 0)
        return fault_of(reading, member, EVENT_EMPTY);
    if (count > (size_t)member->max)
        return fault_of(reading, member, EVENT_TOO_MANY);
    reading->items = value;
    return true;
}

#define AT(member) offsetof(struct command, member)
#define HOLDER {"holder", read_id, true, AT(holder), 0, 0}
#define TTL {"ttl_ms", read_integer, false, AT(ttl_ms), 1, LEASE_TTL_MS_MAX}
/* What only the holder of a grant knows. */
#define GRANT                                                                                                          \
    HOLDER, {"fence", read_integer, true, AT(fence), 1, LEASE_FENCE_MAX},                                              \
        {"claim_id", read_claim_id, true, AT(claim_id), 0, 0}, {"token", read_token, true, AT(token), 0, 0}
#define COUNT(name, where, is_required) {name, read_integer, is_required, AT(where), 0, LEASE_FENCE_MAX}
#define WAIT {"wait_ms", read_integer, false, AT(wait_ms), 0, LEASE_WAIT_MS_MAX}
#define DELAY {"delay_ms", read_integer, false, AT(amount), 0, LEASE_DELAY_MS_MAX}
#define OBJECT(name) {name, read_object, false, AT(payload), 0, 0}

static const struct member start_members[] = {
    HOLDER, TTL,
    {"resources", read_resources, false, AT(resources), 1, LEASE_RESOURCES_MAX},
    {"more", read_boolean, false, AT(flag), 0, 0},
    {"tables", read_tables, false, AT(tables), 1, LEASE_TABLES_MAX},
    WAIT,
    COUNT("refresh", refresh, false),
    OBJECT("payload"),
};
static const struct member cover_members[] = {
    GRANT, {"resources", read_resources, true, AT(resources), 1, LEASE_RESOURCES_MAX},
};
static const struct member begin_members[] = {GRANT, COUNT("count", amount, true)};
static const struct member request_members[] = {OBJECT("payload"), DELAY};
static const struct member claim_members[] = {
    {"holder", read_id, false, AT(holder), 0, 0},
    COUNT("credit_total", amount, true),
    COUNT("refresh", refresh, true),
    WAIT,
    TTL,
};
static const struct member renew_members[] = {GRANT, TTL};
static const struct member advance_members[] = {GRANT, {"step", read_step, true, AT(word), 0, 0}};
static const struct member finish_members[] = {GRANT, OBJECT("result")};
static const struct member fail_members[] = {
    GRANT, {"reason", read_reason, true, AT(word), 0, 0}, {"retry", read_boolean, false, AT(flag), 0, 0}, DELAY,
};
static const struct member release_members[] = {GRANT};
/* Who and why are only looked at: they travel with the rest in the payload. */
static const struct member resolve_members[] = {
    {"actor", read_id, true, AT(payload), 0, 0},
    {"reason", read_reason, true, AT(payload), 0, 0},
    {"verdict", read_verdict, true, AT(word), 0, 0},
    {"fence", read_seen_fence, true, AT(fence), 1, LEASE_FENCE_MAX},
    TTL,
};
#define EDITOR {"editor", read_id, true, AT(holder), 0, 0}
static const struct member edit_members[] = {
    EDITOR,
    {"new", read_object, true, AT(payload), 0, 0},
    {"old", read_object, false, AT(old), 0, 0},
    {"follows", read_message_id, false, AT(word), 0, 0},
    {"park_ms", read_integer, false, AT(wait_ms), 1, LEASE_DELAY_MS_MAX},
};
static const struct member cancel_members[] = {EDITOR, {"edit", read_message_id, true, AT(word), 0, 0}};

/* What stands between members, and defaults. */
static bool finish_start(struct reading *reading) {
    struct command *command = reading->decoder->command;
    if (command->flag < 0)
        command->flag = 0;
    if (command->table_count > 0 && command->flag == 0)
        return event_fault_text(reading->decoder, EVENT_MISSING, "more");
    return true;
}

static bool finish_claim(struct reading *reading) {
    struct command *command = reading->decoder->command;
    if (command->holder == NULL)
        command->holder = command->subject;
    return strcmp(command->holder, command->subject) == 0 ||
           event_fault_text(reading->decoder, EVENT_KEY_MISMATCH, "holder");
}

static bool finish_fail(struct reading *reading) {
    struct command *command = reading->decoder->command;
    if (command->flag < 0)
        command->flag = 1;
    return true;
}

/* The payload is all that the operator said: it is kept with the answer, whatever that is. */
static bool finish_resolve(struct reading *reading) {
    struct command *command = reading->decoder->command;
    bool is_extended = strcmp(command->word, "extend") == 0, has_ttl = command->ttl_ms != COMMAND_ABSENT;
    if (is_extended != has_ttl)
        return event_fault_text(reading->decoder, is_extended ? EVENT_MISSING : EVENT_UNKNOWN_MEMBER, "ttl_ms");
    struct buf compact = BUF_INIT;
    json_text_compact(reading->text.data, reading->text.size, &compact);
    command->payload = command_copy(command, compact.data, compact.size);
    buf_release(&compact);
    return true;
}

/* What the author saw is told, or is what another edit will have made; both stand in the payload, as SQL wants it. */
static bool finish_edit(struct reading *reading) {
    struct command *command = reading->decoder->command;
    if (command->old == NULL && command->word == NULL)
        return event_fault_text(reading->decoder, EVENT_MISSING, "old");
    struct buf payload = BUF_INIT;
    buf_appendf(&payload, "{\"new\":%s", command->payload);
    if (command->old != NULL)
        buf_appendf(&payload, ",\"old\":%s", command->old);
    buf_append_byte(&payload, '}');
    command->payload = command_copy(command, buf_text(&payload), payload.size);
    buf_release(&payload);
    return true;
}

/* Over many items: the subject is who holds them. */
static bool finish_many(struct reading *reading) {
    struct command *command = reading->decoder->command;
    return strcmp(command->holder, command->subject) == 0 ||
           event_fault_text(reading->decoder, EVENT_KEY_MISMATCH, "holder");
}

static bool finish_failed_item(struct reading *reading) {
    struct command_item *item = reading->target;
    if (item->flag < 0)
        item->flag = 1;
    return true;
}

struct members {
    const struct member *rows;
    size_t count;
    bool (*finish)(struct reading *reading); /* NULL: nothing more */
};
#define ROWS(rows) (rows), sizeof(rows) / sizeof *(rows)
static const struct members members_of[LEASE_COMMAND_COUNT] = {
    [LEASE_COMMAND_START] = {ROWS(start_members), finish_start},
    [LEASE_COMMAND_COVER] = {ROWS(cover_members), NULL},
    [LEASE_COMMAND_BEGIN] = {ROWS(begin_members), NULL},
    [LEASE_COMMAND_REQUEST] = {ROWS(request_members), NULL},
    [LEASE_COMMAND_CLAIM] = {ROWS(claim_members), finish_claim},
    [LEASE_COMMAND_RENEW] = {ROWS(renew_members), NULL},
    [LEASE_COMMAND_ADVANCE] = {ROWS(advance_members), NULL},
    [LEASE_COMMAND_FINISH] = {ROWS(finish_members), NULL},
    [LEASE_COMMAND_FAIL] = {ROWS(fail_members), finish_fail},
    [LEASE_COMMAND_RELEASE] = {ROWS(release_members), NULL},
    [LEASE_COMMAND_RESOLVE] = {ROWS(resolve_members), finish_resolve},
    [LEASE_COMMAND_EDIT] = {ROWS(edit_members), finish_edit},
    [LEASE_COMMAND_CANCEL] = {ROWS(cancel_members), NULL},
};

#define ITEM_AT(member) offsetof(struct command_item, member)
#define ITEMS {"items", read_items, true, 0, 1, LEASE_ITEMS_MAX}
#define ITEM                                                                                                           \
    {"lease", read_id, true, ITEM_AT(lease), 0, 0},                                                                    \
        {"fence", read_integer, true, ITEM_AT(fence), 1, LEASE_FENCE_MAX},                                             \
        {"claim_id", read_claim_id, true, ITEM_AT(claim_id), 0, 0}, {"token", read_token, true, ITEM_AT(token), 0, 0}

static const struct member many_members[] = {HOLDER, ITEMS};
static const struct member renew_many_members[] = {HOLDER, ITEMS, TTL};
static const struct member plain_item[] = {ITEM};
static const struct member finish_item[] = {ITEM, {"result", read_object, false, ITEM_AT(payload), 0, 0}};
static const struct member fail_item[] = {
    ITEM,
    {"reason", read_reason, true, ITEM_AT(word), 0, 0},
    {"retry", read_boolean, false, ITEM_AT(flag), 0, 0},
    {"delay_ms", read_integer, false, ITEM_AT(amount), 0, LEASE_DELAY_MS_MAX},
};

/* The other form of the commands that may name many items; an item's members are those of its command alone. */
struct many {
    struct members command;
    struct members item;
};
static const struct many many_of[LEASE_COMMAND_COUNT] = {
    [LEASE_COMMAND_RENEW] = {{ROWS(renew_many_members), finish_many}, {ROWS(plain_item), NULL}},
    [LEASE_COMMAND_FINISH] = {{ROWS(many_members), finish_many}, {ROWS(finish_item), NULL}},
    [LEASE_COMMAND_FAIL] = {{ROWS(many_members), finish_many}, {ROWS(fail_item), finish_failed_item}},
    [LEASE_COMMAND_RELEASE] = {{ROWS(many_members), finish_many}, {ROWS(plain_item), NULL}},
};
enum { MEMBERS_MAX = 8 };

static size_t find_member(const struct members *members, const char *name) {
    for (size_t i = 0; i < members->count; i++)
        if (strcmp(members->rows[i].name, name) == 0)
            return i;
    return members->count;
}

/* Unknown names come first: a misspelt one explains the one that is missing. */
static bool read_members(struct reading *reading, const struct members *members, json_t *data) {
    const json_t *found[MEMBERS_MAX] = {NULL};
    assert(members->count <= MEMBERS_MAX);
    for (void *at = json_object_iter(data); at != NULL; at = json_object_iter_next(data, at)) {
        const char *name = json_object_iter_key(at);
        size_t i = find_member(members, name);
        if (i == members->count)
            return fault_at(reading, EVENT_UNKNOWN_MEMBER, name);
        found[i] = json_object_iter_value(at);
    }
    for (size_t i = 0; i < members->count; i++) {
        const struct member *member = &members->rows[i];
        if (found[i] != NULL && !member->read(reading, member, found[i]))
            return false;
        if (found[i] == NULL && member->is_required)
            return fault_of(reading, member, EVENT_MISSING);
    }
    return members->finish == NULL || members->finish(reading);
}

/* ---- the items of a command over many ---- */

/* Every item with `text` of its own; the command has them all, zeroed, before the first is read, so that no token is left in one
 * that is given up. */
static bool read_each_item(struct reading *reading, const struct members *members, struct json_member *list) {
    struct command *command = reading->decoder->command;
    size_t count = json_array_size(reading->items);
    command->items = command_take(command, count * sizeof *command->items);
    memset(command->items, 0, count * sizeof *command->items);
    command->item_count = count;
    size_t position = 0;
    for (size_t i = 0; i < count; i++) {
        json_t *value = json_array_get(reading->items, i);
        struct json_element element = {0};
        bool has_text = json_text_next_element(list->value, list->value_size, &position, &element);
        assert(has_text);
        (void)has_text;
        if (!json_is_object(value)) {
            char field[64];
            snprintf(field, sizeof field, "items[%zu]", i);
            return event_fault_text(reading->decoder, EVENT_WRONG_TYPE, field);
        }
        command->items[i].amount = COMMAND_ABSENT;
        command->items[i].flag = -1;
        struct reading of_item = {.decoder = reading->decoder,
                                  .text = {.data = element.value, .size = element.value_size},
                                  .target = &command->items[i],
                                  .is_item = true,
                                  .item = i};
        if (!read_members(&of_item, members, value))
            return false;
    }
    return true;
}

static bool check_items_distinct(struct reading *reading) {
    struct command *command = reading->decoder->command;
    struct list list = {.items = memory_alloc_array(command->item_count, sizeof(char *)), .count = command->item_count};
    for (size_t i = 0; i < list.count; i++)
        list.items[i] = command->items[i].lease;
    size_t repeated = first_repeated(&list);
    free(list.items);
    if (repeated == list.count)
        return true;
    struct reading of_item = {.decoder = reading->decoder, .is_item = true, .item = repeated};
    return fault_at(&of_item, EVENT_REPEATED, "lease");
}

static bool read_many(struct reading *reading, const struct many *many, json_t *data) {
    if (!read_members(reading, &many->command, data))
        return false;
    struct json_member list;
    if (!json_text_find_member(reading->text.data, reading->text.size, "items", &list))
        return fault_at(reading, EVENT_NOT_ALLOWED_CHARACTERS, "items"); /* its name was written with escapes */
    return read_each_item(reading, &many->item, &list) && check_items_distinct(reading);
}

bool event_read_members(struct decoder *decoder, json_t *data, struct slice text) {
    struct command *command = decoder->command;
    struct reading reading = {.decoder = decoder, .text = text, .target = command};
    const struct many *many = &many_of[command->command];
    if (many->command.rows != NULL && json_object_get(data, "items") != NULL)
        return read_many(&reading, many, data);
    return read_members(&reading, &members_of[command->command], data);
}
