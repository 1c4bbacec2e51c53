/* Command lines against tables of options; see arguments.h. */
#include "coordinator/cli/arguments.h"

#include "coordinator/cli/text.h"

#include <assert.h>
#include <string.h>

static const struct argument_option *find_long(const struct arguments *arguments, const char *name, size_t size) {
    for (size_t t = 0; t < ARGUMENTS_TABLES_MAX; t++)
        for (const struct argument_option *option = arguments->tables[t]; option && option->name; option++)
            if (strlen(option->name) == size && memcmp(option->name, name, size) == 0)
                return option;
    return NULL;
}

static const struct argument_option *find_short(const struct arguments *arguments, char letter) {
    for (size_t t = 0; t < ARGUMENTS_TABLES_MAX; t++)
        for (const struct argument_option *option = arguments->tables[t]; option && option->name; option++)
            if (option->letter == letter)
                return option;
    return NULL;
}

static bool value_is_optional(const struct argument_option *option) {
    return option->value != NULL && option->value[0] == '[';
}

static size_t distance_of(const char *left, const char *right) {
    enum { LONGEST = 32 };
    size_t left_size = strlen(left), right_size = strlen(right);
    if (left_size > LONGEST || right_size > LONGEST)
        return LONGEST;
    size_t row[LONGEST + 1];
    for (size_t j = 0; j <= right_size; j++)
        row[j] = j;
    for (size_t i = 1; i <= left_size; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= right_size; j++) {
            size_t best = corner + (left[i - 1] != right[j - 1]);
            corner = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[right_size];
}

const char *arguments_nearest(const char *text, const char *const *candidates, size_t count) {
    const char *nearest = NULL;
    size_t least = 3; /* two slips at most: farther is another word */
    for (size_t i = 0; i < count; i++) {
        size_t distance = distance_of(text, candidates[i]);
        if (distance < least && distance < strlen(candidates[i])) {
            least = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}

static bool refuse_unknown(const struct arguments *arguments, const char *text, size_t name_size, struct error *error) {
    const char *names[2 * ARGUMENTS_OPTIONS_MAX];
    size_t count = 0;
    for (size_t t = 0; t < ARGUMENTS_TABLES_MAX; t++)
        for (const struct argument_option *option = arguments->tables[t]; option && option->name; option++)
            if (count < sizeof names / sizeof names[0])
                names[count++] = option->name;
    char name[64];
    size_t size = name_size < sizeof name ? name_size : sizeof name - 1;
    memcpy(name, text, size);
    name[size] = '\0';
    const char *nearest = arguments_nearest(name, names, count);
    if (nearest != NULL)
        return error_set(error, ERROR_REJECT, "unknown_option", "there is no option --%s; did you mean --%s?", name, nearest);
    return error_set(error, ERROR_REJECT, "unknown_option", "there is no option --%s", name);
}

static bool add_given(struct arguments *arguments, const struct argument_option *option, const char *value,
                      struct error *error) {
    if (arguments->given_count == ARGUMENTS_OPTIONS_MAX)
        return error_set(error, ERROR_REJECT, "too_many", "more than %d options", ARGUMENTS_OPTIONS_MAX);
    arguments->given[arguments->given_count++] = (struct argument_given){option, value};
    return true;
}

static bool parse_long(struct arguments *arguments, const char *text, const char *next, int *ret_used,
                       struct error *error) {
    const char *equals = strchr(text, '=');
    size_t name_size = equals ? (size_t)(equals - text) : strlen(text);
    const struct argument_option *option = find_long(arguments, text, name_size);
    if (option == NULL)
        return refuse_unknown(arguments, text, name_size, error);
    if (option->value == NULL && equals != NULL)
        return error_set(error, ERROR_REJECT, "no_value", "--%s takes no value", option->name);
    if (option->value == NULL || equals != NULL || value_is_optional(option))
        return add_given(arguments, option, equals ? equals + 1 : NULL, error);
    if (next == NULL)
        return error_set(error, ERROR_REJECT, "value_missing", "--%s wants a value: --%s %s", option->name, option->name,
                         option->value);
    *ret_used = 2;
    return add_given(arguments, option, next, error);
}

static bool parse_short(struct arguments *arguments, const char *text, const char *next, int *ret_used,
                        struct error *error) {
    const struct argument_option *option = find_short(arguments, text[0]);
    if (option == NULL)
        return error_set(error, ERROR_REJECT, "unknown_option", "there is no option -%c", text[0]);
    if (option->value == NULL) {
        if (text[1] != '\0')
            return error_set(error, ERROR_REJECT, "no_value", "-%c takes no value, and letters are not joined", text[0]);
        return add_given(arguments, option, NULL, error);
    }
    if (text[1] != '\0')
        return add_given(arguments, option, text + 1, error);
    if (next == NULL)
        return error_set(error, ERROR_REJECT, "value_missing", "-%c wants a value: -%c %s", text[0], text[0],
                         option->value);
    *ret_used = 2;
    return add_given(arguments, option, next, error);
}

static bool add_word(struct arguments *arguments, const char *word, struct error *error) {
    if (arguments->word_count == ARGUMENTS_WORDS_MAX)
        return error_set(error, ERROR_REJECT, "too_many", "more than %d words", ARGUMENTS_WORDS_MAX);
    arguments->words[arguments->word_count++] = word;
    return true;
}

bool arguments_parse(struct arguments *arguments, int count, char *const *texts, const struct argument_option *own,
                     const struct argument_option *common, struct error *error) {
    *arguments = (struct arguments){.tables = {own, common}};
    bool only_words = false;
    for (int i = 0; i < count;) {
        const char *text = texts[i];
        const char *next = i + 1 < count ? texts[i + 1] : NULL;
        int used = 1;
        bool is_word = only_words || text[0] != '-' || text[1] == '\0';
        if (is_word) {
            if (!add_word(arguments, text, error))
                return false;
        } else if (strcmp(text, "--") == 0) {
            only_words = true;
        } else if (text[1] == '-') {
            if (!parse_long(arguments, text + 2, next, &used, error))
                return false;
        } else if (!parse_short(arguments, text + 1, next, &used, error)) {
            return false;
        }
        i += used;
    }
    return true;
}

static const struct argument_given *last_given(const struct arguments *arguments, const char *name) {
    const struct argument_option *option = find_long(arguments, name, strlen(name));
    assert(option != NULL);
    for (size_t i = arguments->given_count; i > 0; i--)
        if (arguments->given[i - 1].option == option)
            return &arguments->given[i - 1];
    return NULL;
}

bool arguments_has(const struct arguments *arguments, const char *name) {
    return last_given(arguments, name) != NULL;
}

const char *arguments_text(const struct arguments *arguments, const char *name) {
    const struct argument_given *given = last_given(arguments, name);
    return given ? given->value : NULL;
}

bool arguments_number(const struct arguments *arguments, const char *name, int64_t least, int64_t most,
                      int64_t *ret_number, struct error *error) {
    const char *text = arguments_text(arguments, name);
    int64_t number = 0;
    if (text == NULL)
        return true;
    if (!text_parse_number(text, &number) || number < least || number > most)
        return error_set(error, ERROR_REJECT, "not_a_number", "--%s wants a number from %lld to %lld, not '%s'", name,
                         (long long)least, (long long)most, text);
    *ret_number = number;
    return true;
}

bool arguments_duration_ms(const struct arguments *arguments, const char *name, int64_t *ret_ms, struct error *error) {
    const char *text = arguments_text(arguments, name);
    if (text == NULL || text_parse_duration_ms(text, ret_ms))
        return true;
    return error_set(error, ERROR_REJECT, "not_a_duration",
                     "--%s wants a duration such as 500ms, 30s, 5m, 2h or a number of seconds, not '%s'", name, text);
}

static size_t option_width(const struct argument_option *option, struct buf *ret_left) {
    buf_reset(ret_left);
    if (option->letter != 0)
        buf_appendf(ret_left, "-%c, ", option->letter);
    buf_appendf(ret_left, "--%s", option->name);
    if (value_is_optional(option))
        buf_appendf(ret_left, "[=%s", option->value + 1);
    else if (option->value != NULL)
        buf_appendf(ret_left, " %s", option->value);
    return ret_left->size;
}

void arguments_format_options(const struct argument_option *table, struct buf *buf) {
    struct buf left = BUF_INIT;
    size_t widest = 0;
    for (const struct argument_option *option = table; option && option->name; option++) {
        size_t width = option_width(option, &left);
        widest = width > widest ? width : widest;
    }
    for (const struct argument_option *option = table; option && option->name; option++) {
        option_width(option, &left);
        buf_appendf(buf, "  %-*s  %s\n", (int)widest, buf_text(&left), option->help);
    }
    buf_release(&left);
}
