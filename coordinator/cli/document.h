/* JSON for leasectl: values of records read, data of commands built. The only file of it that includes jansson.h.
 *
 * A document owns its memory; texts handed out are borrowed from it. Paths are member names joined by dots
 * ("held_by.holder"). */
#ifndef LEASE_CLI_DOCUMENT_H
#define LEASE_CLI_DOCUMENT_H

#include "common/buf.h"
#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct document;

struct document *document_new(void); /* an empty object */
/* One JSON value and nothing behind it; members may not repeat. ERROR_REJECT says where it is wrong, never what stands
 * there: it may be a token. */
bool document_parse(const char *text, size_t size, struct document **ret_document, struct error *error) MUST_USE;
/* The last object of a text: itself, the last element of an array, or the last line. */
bool document_parse_last(const char *text, size_t size, struct document **ret_document, struct error *error) MUST_USE;
void document_free(struct document *document); /* NULL allowed */

bool document_is_object(const struct document *document);
const char *document_text(const struct document *document, const char *path); /* NULL: absent, or no text */
bool document_number(const struct document *document, const char *path, int64_t *ret_number);
bool document_has(const struct document *document, const char *path);

/* Members of the object itself; one that is there is replaced. Not text in UTF-8, or not JSON: false. */
bool document_set_text(struct document *document, const char *name, const char *text) MUST_USE;
bool document_set_number(struct document *document, const char *name, int64_t number) MUST_USE;
bool document_set_json(struct document *document, const char *name, const char *json, struct error *error) MUST_USE;
/* Copies a member from another document; false if it is not there. */
bool document_copy(struct document *document, const char *name, const struct document *from, const char *path) MUST_USE;

/* Compact, in one line, members in their order. */
void document_format(const struct document *document, struct buf *buf);

#endif
