/* Rows on stdout: a table for people, JSON for programs. One description of the columns drives all three formats.
 *
 *   table   columns in line, values escaped (text.h); a column in which no row has anything is left out
 *   json    one array, closed by output_end, an object per row
 *   jsonl   an object per line, written at once
 *
 * A table is kept until output_end, so that columns fit; at OUTPUT_TABLE_ROWS it is printed and goes on with those
 * widths. Not thread safe. */
#ifndef LEASE_CLI_OUTPUT_H
#define LEASE_CLI_OUTPUT_H

#include "common/buf.h"
#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum output_format { OUTPUT_TABLE, OUTPUT_JSON, OUTPUT_JSONL };

bool output_format_parse(const char *text, enum output_format *ret_format) MUST_USE;

enum output_kind {
    OUTPUT_TEXT,
    OUTPUT_NUMBER, /* right-aligned; bare in JSON (the value is a JSON number already) */
    OUTPUT_VALUE,  /* text that is JSON already: written as it is */
    OUTPUT_REMAINING, /* milliseconds: "in 4.2 s" or "4.2 s ago" in the table, bare in JSON */
};

enum output_place { OUTPUT_EVERYWHERE, OUTPUT_ONLY_TABLE, OUTPUT_ONLY_JSON };

struct output_column {
    const char *name;  /* member in JSON */
    const char *title; /* head in the table */
    enum output_kind kind;
    enum output_place place;
};

enum { OUTPUT_COLUMNS_MAX = 24, OUTPUT_TABLE_ROWS = 1000 };

struct output {
    FILE *file; /* borrowed */
    enum output_format format;
    bool colored;
    const struct output_column *columns; /* borrowed */
    size_t column_count;
    struct buf cells; /* table: escaped cells of the rows kept, each followed by NUL */
    size_t kept;
    size_t rows;      /* all so far */
    size_t widths[OUTPUT_COLUMNS_MAX];
    bool filled[OUTPUT_COLUMNS_MAX];
};

void output_begin(struct output *output, FILE *file, enum output_format format, bool colored,
                  const struct output_column *columns, size_t column_count);
/* One text for each column, in order; NULL: absent (an empty cell; left out of the object). */
void output_row(struct output *output, const char *const *values);
/* An object that is JSON already, for rows that carry their own members. Not for tables. */
void output_object(struct output *output, const char *json);
/* Closes what was begun and returns how many rows there were. */
size_t output_end(struct output *output);

/* One row set upright: "name  value" lines, or one object. Same columns, same rules. */
void output_record(FILE *file, enum output_format format, bool colored, const struct output_column *columns,
                   size_t column_count, const char *const *values);

#endif
