/* Names of the protocol; see lease.h. One table per enum, indexed by it: a value without a name does not compile
 * away silently, the test walks all of them. */
#include "common/lease.h"

#include <assert.h>
#include <string.h>

static const char *const mode_names[LEASE_MODE_COUNT] = {
    [LEASE_MODE_RUN] = "run",
    [LEASE_MODE_POOL] = "pool",
    [LEASE_MODE_EDIT] = "edit",
};

enum { RUN = 1 << LEASE_MODE_RUN, POOL = 1 << LEASE_MODE_POOL, EDIT = 1 << LEASE_MODE_EDIT };

struct command_row {
    const char *name;
    unsigned modes;
};
static const struct command_row command_rows[LEASE_COMMAND_COUNT] = {
    [LEASE_COMMAND_START] = {"start", RUN},
    [LEASE_COMMAND_COVER] = {"cover", RUN},
    [LEASE_COMMAND_BEGIN] = {"begin", RUN},
    [LEASE_COMMAND_REQUEST] = {"request", POOL},
    [LEASE_COMMAND_CLAIM] = {"claim", POOL},
    [LEASE_COMMAND_RENEW] = {"renew", RUN | POOL},
    [LEASE_COMMAND_ADVANCE] = {"advance", RUN},
    [LEASE_COMMAND_FINISH] = {"finish", RUN | POOL},
    [LEASE_COMMAND_FAIL] = {"fail", RUN | POOL},
    [LEASE_COMMAND_RELEASE] = {"release", RUN | POOL},
    [LEASE_COMMAND_RESOLVE] = {"resolve", RUN | POOL},
    [LEASE_COMMAND_EDIT] = {"edit", EDIT},
    [LEASE_COMMAND_CANCEL] = {"cancel", EDIT},
};

static const char *const outcome_names[LEASE_OUTCOME_COUNT] = {
    [LEASE_OUTCOME_MALFORMED] = "malformed",
    [LEASE_OUTCOME_DUPLICATE] = "duplicate",
    [LEASE_OUTCOME_UNKNOWN] = "unknown",
    [LEASE_OUTCOME_FINAL] = "final",
    [LEASE_OUTCOME_STALE] = "stale",
    [LEASE_OUTCOME_LAPSED] = "lapsed",
    [LEASE_OUTCOME_HELD] = "held",
    [LEASE_OUTCOME_BUSY] = "busy",
    [LEASE_OUTCOME_INCOMPLETE] = "incomplete",
    [LEASE_OUTCOME_OUT_OF_STEP] = "out_of_step",
    [LEASE_OUTCOME_WAITING] = "waiting",
    [LEASE_OUTCOME_PARKED] = "parked",
    [LEASE_OUTCOME_EMPTY] = "empty",
    [LEASE_OUTCOME_GRANTED] = "granted",
    [LEASE_OUTCOME_COVERED] = "covered",
    [LEASE_OUTCOME_RENEWED] = "renewed",
    [LEASE_OUTCOME_ADVANCED] = "advanced",
    [LEASE_OUTCOME_FINISHED] = "finished",
    [LEASE_OUTCOME_FAILED] = "failed",
    [LEASE_OUTCOME_RELEASED] = "released",
    [LEASE_OUTCOME_REQUESTED] = "requested",
    [LEASE_OUTCOME_ANSWERED] = "answered",
    [LEASE_OUTCOME_APPLIED] = "applied",
    [LEASE_OUTCOME_BOUNCED] = "bounced",
    [LEASE_OUTCOME_CANCELLED] = "cancelled",
};

static const char *const state_names[LEASE_STATE_COUNT] = {
    [LEASE_STATE_FREE] = "free",
    [LEASE_STATE_READY] = "ready",
    [LEASE_STATE_HELD] = "held",
    [LEASE_STATE_FINISHED] = "finished",
    [LEASE_STATE_FAILED] = "failed",
    [LEASE_STATE_DEAD] = "dead",
};

static bool text_is(const char *text, size_t size, const char *name) {
    return strlen(name) == size && memcmp(text, name, size) == 0;
}

static bool find_name(const char *const *names, unsigned count, const char *text, size_t size, unsigned *ret_index) {
    for (unsigned i = 0; i < count; i++)
        if (text_is(text, size, names[i])) {
            *ret_index = i;
            return true;
        }
    return false;
}

const char *lease_command_name(enum lease_command command) {
    assert((unsigned)command < LEASE_COMMAND_COUNT);
    return command_rows[command].name;
}

const char *lease_outcome_name(enum lease_outcome outcome) {
    assert((unsigned)outcome < LEASE_OUTCOME_COUNT);
    return outcome_names[outcome];
}

const char *lease_state_name(enum lease_state state) {
    assert((unsigned)state < LEASE_STATE_COUNT);
    return state_names[state];
}

bool lease_mode_parse(const char *text, size_t size, enum lease_mode *ret) {
    unsigned index;
    if (!find_name(mode_names, LEASE_MODE_COUNT, text, size, &index))
        return false;
    *ret = (enum lease_mode)index;
    return true;
}

bool lease_command_parse(const char *text, size_t size, enum lease_command *ret) {
    for (unsigned i = 0; i < LEASE_COMMAND_COUNT; i++)
        if (text_is(text, size, command_rows[i].name)) {
            *ret = (enum lease_command)i;
            return true;
        }
    return false;
}

bool lease_outcome_parse(const char *text, size_t size, enum lease_outcome *ret) {
    unsigned index;
    if (!find_name(outcome_names, LEASE_OUTCOME_COUNT, text, size, &index))
        return false;
    *ret = (enum lease_outcome)index;
    return true;
}

bool lease_command_is_of_mode(enum lease_command command, enum lease_mode mode) {
    assert((unsigned)command < LEASE_COMMAND_COUNT);
    return (command_rows[command].modes & (1u << mode)) != 0;
}

bool lease_outcome_is_refusal(enum lease_outcome outcome) {
    return outcome < LEASE_OUTCOME_WAITING || outcome == LEASE_OUTCOME_BOUNCED;
}

bool lease_kind_is_well_formed(const char *text, size_t size) {
    if (size == 0 || size > LEASE_KIND_MAX || text[0] < 'a' || text[0] > 'z')
        return false;
    for (size_t i = 1; i < size; i++)
        if (!((text[i] >= 'a' && text[i] <= 'z') || (text[i] >= '0' && text[i] <= '9') || text[i] == '_' || text[i] == '-'))
            return false;
    return true;
}

static int hex_digit(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return -1;
}

static bool has_hyphen_at(size_t position) {
    return position == 8 || position == 13 || position == 18 || position == 23;
}

bool claim_id_parse(const char *text, size_t size, struct claim_id *ret) {
    if (size != CLAIM_ID_TEXT_SIZE - 1)
        return false;
    struct claim_id parsed = {{0}};
    unsigned digits = 0;
    uint8_t any = 0;
    for (size_t i = 0; i < size; i++) {
        if (has_hyphen_at(i)) {
            if (text[i] != '-')
                return false;
            continue;
        }
        int digit = hex_digit(text[i]);
        if (digit < 0)
            return false;
        parsed.bytes[digits / 2] = (uint8_t)(parsed.bytes[digits / 2] << 4 | digit);
        any |= (uint8_t)digit;
        digits++;
    }
    if (any == 0)
        return false;
    *ret = parsed;
    return true;
}

const char *claim_id_format(const struct claim_id *claim_id, char ret_text[static CLAIM_ID_TEXT_SIZE]) {
    static const char hex[] = "0123456789abcdef";
    char *to = ret_text;
    for (size_t i = 0; i < sizeof claim_id->bytes; i++) {
        if (has_hyphen_at((size_t)(to - ret_text)))
            *to++ = '-';
        *to++ = hex[claim_id->bytes[i] >> 4];
        *to++ = hex[claim_id->bytes[i] & 15];
    }
    *to = '\0';
    return ret_text;
}
