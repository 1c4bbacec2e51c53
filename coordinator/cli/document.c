/* JSON for leasectl; see document.h. */
#include "coordinator/cli/document.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct document {
    json_t *value;
};

static struct document *wrap(json_t *value) {
    struct document *document = memory_alloc(sizeof *document);
    document->value = memory_or_exit(value);
    return document;
}

struct document *document_new(void) {
    return wrap(json_object());
}

void document_free(struct document *document) {
    if (document == NULL)
        return;
    json_decref(document->value);
    free(document);
}

bool document_parse(const char *text, size_t size, struct document **ret_document, struct error *error) {
    json_error_t where;
    json_t *value = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
    if (value == NULL) /* jansson's own words quote the text */
        return error_set(error, ERROR_REJECT, "invalid_json", "not valid JSON, at character %d", where.position);
    *ret_document = wrap(value);
    return true;
}

static size_t last_line(const char *text, size_t size, size_t *ret_size) {
    while (size > 0 && strchr(" \t\r\n", text[size - 1]) != NULL)
        size--;
    size_t start = size;
    while (start > 0 && text[start - 1] != '\n')
        start--;
    *ret_size = size - start;
    return start;
}

bool document_parse_last(const char *text, size_t size, struct document **ret_document, struct error *error) {
    struct document *document = NULL;
    size_t line_size = 0, start = last_line(text, size, &line_size);
    if (!document_parse(text, size, &document, error) && !document_parse(text + start, line_size, &document, error))
        return false;
    size_t count = json_array_size(document->value); /* 0 for what is no array */
    if (count > 0) {
        json_t *last = json_incref(json_array_get(document->value, count - 1));
        json_decref(document->value);
        document->value = last;
    }
    *ret_document = document;
    return true;
}

static json_t *find(const struct document *document, const char *path) {
    json_t *value = document->value;
    while (value != NULL) {
        size_t size = strcspn(path, ".");
        char name[64];
        if (size >= sizeof name)
            return NULL;
        memcpy(name, path, size);
        name[size] = '\0';
        value = json_object_get(value, name);
        if (path[size] == '\0')
            return value;
        path += size + 1;
    }
    return NULL;
}

bool document_is_object(const struct document *document) {
    return json_is_object(document->value);
}

const char *document_text(const struct document *document, const char *path) {
    return json_string_value(find(document, path));
}

bool document_number(const struct document *document, const char *path, int64_t *ret_number) {
    const json_t *value = find(document, path);
    if (!json_is_integer(value))
        return false;
    *ret_number = json_integer_value(value);
    return true;
}

bool document_has(const struct document *document, const char *path) {
    return find(document, path) != NULL;
}

bool document_set_text(struct document *document, const char *name, const char *text) {
    return json_object_set_new(document->value, name, json_string(text)) == 0;
}

bool document_set_number(struct document *document, const char *name, int64_t number) {
    return json_object_set_new(document->value, name, json_integer(number)) == 0;
}

bool document_set_json(struct document *document, const char *name, const char *json, struct error *error) {
    struct document *value = NULL;
    if (!document_parse(json, strlen(json), &value, error))
        return error_prefix(error, "%s", name);
    bool is_ok = json_object_set(document->value, name, value->value) == 0;
    document_free(value);
    return is_ok || error_set(error, ERROR_REJECT, "invalid_json", "the name of a member is not UTF-8");
}

bool document_copy(struct document *document, const char *name, const struct document *from, const char *path) {
    json_t *value = find(from, path);
    return value != NULL && json_object_set(document->value, name, value) == 0;
}

void document_format(const struct document *document, struct buf *buf) {
    char *text = memory_or_exit(json_dumps(document->value, JSON_COMPACT | JSON_ENCODE_ANY));
    buf_append_text(buf, text);
    free(text);
}
