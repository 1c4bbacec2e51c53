/* window; see window.h. A ticket is the row's sequence number, then the output partition of a mark, then which record. */
#include "coordinator/window.h"

#include "common/buf.h"

#include <assert.h>
#include <stdlib.h>

enum {
    RECORD_BITS = 3,
    INDEX_BITS = 13, /* OUTPUT_PARTITIONS_MAX fits */
    TICKET_BITS = RECORD_BITS + INDEX_BITS,
    RECORD_MASK = (1 << RECORD_BITS) - 1,
    INDEX_MASK = (1 << INDEX_BITS) - 1,
    RECORD_MARK = RECORD_MASK,
};

void window_init(struct window *window, size_t capacity, int32_t partitions, int64_t published) {
    *window = (struct window){.capacity = 1, .partitions = partitions, .published = published};
    while (window->capacity < capacity)
        window->capacity *= 2;
    window->rows = memory_alloc_array(window->capacity, sizeof *window->rows);
    window->position = memory_alloc_array((size_t)partitions, sizeof *window->position);
    for (int32_t i = 0; i < partitions; i++)
        window->position[i] = -1;
}

void window_release(struct window *window) {
    if (!window)
        return;
    free(window->rows);
    free(window->position);
    *window = (struct window){0};
}

size_t window_size(const struct window *window) {
    return (size_t)(window->tail - window->head);
}

size_t window_room(const struct window *window) {
    return window->capacity - window_size(window);
}

static struct window_row *window_row(struct window *window, uint64_t sequence) {
    assert(sequence >= window->head && sequence < window->tail);
    return &window->rows[sequence & (window->capacity - 1)];
}

uint64_t window_open(struct window *window, int64_t number, int64_t at_us) {
    assert(window_room(window) > 0);
    uint64_t sequence = window->tail++;
    *window_row(window, sequence) = (struct window_row){.number = number, .at_us = at_us};
    return sequence;
}

uint64_t window_add(struct window *window, uint64_t sequence, int32_t index) {
    struct window_row *row = window_row(window, sequence);
    assert(row->record_count < WINDOW_ROW_RECORDS && !row->is_sealed);
    assert(index >= 0 && index < window->partitions);
    row->index[row->record_count] = index;
    row->offset[row->record_count] = -1;
    row->pending++;
    return sequence << TICKET_BITS | row->record_count++;
}

void window_undo(struct window *window, uint64_t ticket) {
    struct window_row *row = window_row(window, ticket >> TICKET_BITS);
    assert(row->record_count == (ticket & RECORD_MASK) + 1 && !row->is_sealed);
    row->record_count--;
    row->pending--;
}

uint64_t window_add_mark(struct window *window, uint64_t sequence, int32_t index) {
    assert(index >= 0 && index < window->partitions && index <= INDEX_MASK);
    window_row(window, sequence)->pending++;
    return sequence << TICKET_BITS | (uint64_t)index << RECORD_BITS | RECORD_MARK;
}

void window_seal(struct window *window, uint64_t sequence) {
    window_row(window, sequence)->is_sealed = true;
}

int32_t window_acknowledge(struct window *window, uint64_t ticket, int64_t offset) {
    struct window_row *row = window_row(window, ticket >> TICKET_BITS);
    size_t record = ticket & RECORD_MASK;
    assert(row->pending > 0);
    row->pending--;
    if (record == RECORD_MARK)
        return (int32_t)(ticket >> RECORD_BITS & INDEX_MASK);
    row->offset[record] = offset;
    return row->index[record];
}

int64_t window_number(struct window *window, uint64_t ticket) {
    return window_row(window, ticket >> TICKET_BITS)->number;
}

size_t window_collect(struct window *window) {
    size_t collected = 0;
    for (; window->head < window->tail; window->head++, collected++) {
        struct window_row *row = window_row(window, window->head);
        if (!row->is_sealed || row->pending > 0)
            break;
        for (size_t i = 0; i < row->record_count; i++)
            if (row->offset[i] >= 0)
                window->position[row->index[i]] = row->offset[i] + 1;
        window->published = row->number;
    }
    return collected;
}

int64_t window_oldest_us(const struct window *window) {
    return window->head == window->tail ? 0 : window->rows[window->head & (window->capacity - 1)].at_us;
}
