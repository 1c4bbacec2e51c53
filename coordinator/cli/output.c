/* Rows on stdout; see output.h. */
#include "coordinator/cli/output.h"

#include "coordinator/cli/text.h"

#include <assert.h>
#include <string.h>

static const char *const bold = "\033[1m", *const plain = "\033[0m";

bool output_format_parse(const char *text, enum output_format *ret_format) {
    static const char *const names[] = {"table", "json", "jsonl"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) != 0)
            continue;
        *ret_format = (enum output_format)i;
        return true;
    }
    return false;
}

static bool is_shown(const struct output *output, size_t column) {
    enum output_place place = output->columns[column].place;
    return place == OUTPUT_EVERYWHERE || (place == OUTPUT_ONLY_TABLE) == (output->format == OUTPUT_TABLE);
}

void output_begin(struct output *output, FILE *file, enum output_format format, bool colored,
                  const struct output_column *columns, size_t column_count) {
    assert(column_count <= OUTPUT_COLUMNS_MAX);
    *output = (struct output){.file = file, .format = format, .colored = colored, .columns = columns,
                              .column_count = column_count};
    for (size_t i = 0; i < column_count; i++)
        output->widths[i] = strlen(columns[i].title);
}

static void append_object(const struct output *output, const char *const *values, struct buf *buf) {
    const char *separator = "";
    buf_append_byte(buf, '{');
    for (size_t i = 0; i < output->column_count; i++) {
        if (values[i] == NULL || !is_shown(output, i))
            continue;
        buf_append_text(buf, separator);
        buf_json_string(buf, output->columns[i].name, strlen(output->columns[i].name));
        buf_append_byte(buf, ':');
        if (output->columns[i].kind == OUTPUT_TEXT)
            buf_json_string(buf, values[i], strlen(values[i]));
        else
            buf_append_text(buf, values[i]);
        separator = ",";
    }
    buf_append_byte(buf, '}');
}

void output_object(struct output *output, const char *json) {
    assert(output->format != OUTPUT_TABLE);
    bool is_array = output->format == OUTPUT_JSON;
    const char *before = !is_array ? "" : output->rows == 0 ? "[\n" : ",\n";
    fprintf(output->file, "%s%s%s", before, json, is_array ? "" : "\n");
    fflush(output->file); /* a reader that follows sees each row as it comes */
    output->rows++;
}

static void print_cell(const struct output *output, size_t column, const char *text, bool is_last) {
    size_t width = text_width(text, strlen(text));
    int padding = width < output->widths[column] ? (int)(output->widths[column] - width) : 0;
    if (output->columns[column].kind == OUTPUT_NUMBER)
        fprintf(output->file, "%*s%s", padding, "", text);
    else
        fprintf(output->file, "%s%*s", text, is_last ? 0 : padding, "");
    fputs(is_last ? "\n" : "  ", output->file);
}

static bool is_printed(const struct output *output, size_t column) {
    return is_shown(output, column) && output->filled[column];
}

static size_t last_printed(const struct output *output) {
    size_t last = 0;
    for (size_t i = 0; i < output->column_count; i++)
        if (is_printed(output, i))
            last = i;
    return last;
}

static void print_head(const struct output *output) {
    size_t last = last_printed(output);
    fputs(output->colored ? bold : "", output->file);
    for (size_t i = 0; i < output->column_count; i++)
        if (is_printed(output, i))
            print_cell(output, i, output->columns[i].title, i == last);
    fputs(output->colored ? plain : "", output->file);
}

static void print_kept(struct output *output) {
    if (output->kept == output->rows && output->rows > 0)
        print_head(output);
    size_t last = last_printed(output);
    const char *cell = buf_text(&output->cells);
    for (size_t row = 0; row < output->kept; row++)
        for (size_t i = 0; i < output->column_count; i++) {
            if (!is_shown(output, i))
                continue;
            if (is_printed(output, i))
                print_cell(output, i, cell, i == last);
            cell += strlen(cell) + 1;
        }
    fflush(output->file);
    output->kept = 0;
    buf_reset(&output->cells);
}

static void append_cell(struct buf *buf, enum output_kind kind, const char *value) {
    int64_t ms = 0;
    if (value == NULL)
        return;
    if (kind == OUTPUT_REMAINING && text_parse_number(value, &ms))
        text_format_remaining_ms(ms, buf);
    else
        text_append_escaped(buf, value, strlen(value));
}

static void keep_row(struct output *output, const char *const *values) {
    for (size_t i = 0; i < output->column_count; i++) {
        if (!is_shown(output, i))
            continue;
        size_t start = output->cells.size;
        append_cell(&output->cells, output->columns[i].kind, values[i]);
        size_t width = text_width(buf_text(&output->cells) + start, output->cells.size - start);
        output->filled[i] = output->filled[i] || width > 0;
        buf_append_byte(&output->cells, '\0');
        if (width > output->widths[i])
            output->widths[i] = width;
    }
    output->kept++;
    output->rows++;
    if (output->kept == OUTPUT_TABLE_ROWS)
        print_kept(output);
}

void output_row(struct output *output, const char *const *values) {
    if (output->format == OUTPUT_TABLE) {
        keep_row(output, values);
        return;
    }
    struct buf object = BUF_INIT;
    append_object(output, values, &object);
    output_object(output, buf_text(&object));
    buf_release(&object);
}

size_t output_end(struct output *output) {
    if (output->format == OUTPUT_TABLE)
        print_kept(output);
    else if (output->format == OUTPUT_JSON)
        fputs(output->rows == 0 ? "[]\n" : "\n]\n", output->file);
    fflush(output->file);
    buf_release(&output->cells);
    return output->rows;
}

static void print_upright(const struct output *output, const char *const *values) {
    size_t widest = 0;
    for (size_t i = 0; i < output->column_count; i++)
        if (is_shown(output, i) && values[i] != NULL && strlen(output->columns[i].title) > widest)
            widest = strlen(output->columns[i].title);
    struct buf cell = BUF_INIT;
    for (size_t i = 0; i < output->column_count; i++) {
        if (!is_shown(output, i) || values[i] == NULL)
            continue;
        buf_reset(&cell);
        append_cell(&cell, output->columns[i].kind, values[i]);
        fprintf(output->file, "%s%-*s%s  %s\n", output->colored ? bold : "", (int)widest, output->columns[i].title,
                output->colored ? plain : "", buf_text(&cell));
    }
    buf_release(&cell);
}

void output_record(FILE *file, enum output_format format, bool colored, const struct output_column *columns,
                   size_t column_count, const char *const *values) {
    struct output output;
    output_begin(&output, file, format, colored, columns, column_count);
    if (format == OUTPUT_TABLE) {
        print_upright(&output, values);
    } else {
        struct buf object = BUF_INIT;
        append_object(&output, values, &object);
        fprintf(file, "%s\n", buf_text(&object));
        buf_release(&object);
    }
    fflush(file);
}
