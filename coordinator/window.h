/* window: the journal rows that were handed to the producer and are not known to be published, in order; and how far each output
 * partition has come. A row leaves the window when all its records are acknowledged and all rows before it have left: then
 * everything up to its number is published, and the partitions' positions are exact for that number. Pure; one thread. */
#ifndef LEASE_WINDOW_H
#define LEASE_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WINDOW_ROW_RECORDS = 4 }; /* a row has at most one record in each output topic */

struct window_row {
    int64_t number;
    int64_t at_us; /* when it was decided */
    uint32_t pending;
    bool is_sealed; /* all its records were handed over */
    uint8_t record_count;
    int32_t index[WINDOW_ROW_RECORDS]; /* output partition of each record */
    int64_t offset[WINDOW_ROW_RECORDS];
};

struct window {
    struct window_row *rows; /* a ring */
    size_t capacity;         /* a power of two */
    uint64_t head, tail;     /* sequence numbers of the oldest row and of the next */
    int64_t published;       /* every row up to this number is */
    int64_t *position;       /* per output partition: behind its last record with a number ≤ published; -1 = none of ours yet */
    int32_t partitions;
};

/* Room for `capacity` rows at least. */
void window_init(struct window *window, size_t capacity, int32_t partitions, int64_t published);
void window_release(struct window *window); /* NULL and zeroed allowed */

size_t window_size(const struct window *window);
size_t window_room(const struct window *window);

/* Opens a row behind the others (there is room: asserted); returns its sequence number. */
uint64_t window_open(struct window *window, int64_t number, int64_t at_us);
/* A record of the open row goes to this output partition; returns the ticket that its acknowledgement brings back. */
uint64_t window_add(struct window *window, uint64_t sequence, int32_t index);
/* Takes the last window_add back: the record could not be handed over yet. */
void window_undo(struct window *window, uint64_t ticket);
/* A record that has no place in the order of its partition (a mark): only waited for. */
uint64_t window_add_mark(struct window *window, uint64_t sequence, int32_t index);
void window_seal(struct window *window, uint64_t sequence);
/* The offset is negative where the broker did not say (a repeated request that had been accepted): the position stays. Returns the
 * record's output partition. */
int32_t window_acknowledge(struct window *window, uint64_t ticket, int64_t offset);

/* The row's number of a ticket. */
int64_t window_number(struct window *window, uint64_t ticket);

/* Lets complete rows leave; returns how many did. */
size_t window_collect(struct window *window);

/* When the oldest row in the window was decided; 0 if it is empty. */
int64_t window_oldest_us(const struct window *window);

#endif
