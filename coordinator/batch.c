/* Messages that are applied together; see batch.h. */
#include "coordinator/batch.h"

#include "common/buf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Large enough that a batch of ordinary messages needs a handful, small enough that an idle batch keeps little. */
enum { CHUNK_BYTES = 64 * 1024, CHUNKS_KEPT = 8, ENTRIES_KEPT = 1024 };

/* Measured: 13 µs for a resource that is covered for the first time, 50 to 100 µs for a command. */
enum { RESOURCES_A_MESSAGE = 5 };

struct batch_chunk {
    struct batch_chunk *next;
    size_t size, capacity;
    _Alignas(max_align_t) unsigned char bytes[];
};

struct batch *batch_new(void) {
    return memory_alloc(sizeof(struct batch));
}

void batch_free(struct batch *batch) {
    if (batch == NULL)
        return;
    batch_reset(batch);
    while (batch->chunks != NULL) {
        struct batch_chunk *next = batch->chunks->next;
        free(batch->chunks);
        batch->chunks = next;
    }
    free(batch->entries);
    free(batch->slots);
    free(batch);
}

static void keep_some_chunks(struct batch *batch) {
    struct batch_chunk *kept = NULL;
    for (int count = 0; batch->chunks != NULL;) {
        struct batch_chunk *chunk = batch->chunks;
        batch->chunks = chunk->next;
        if (chunk->capacity == CHUNK_BYTES && count < CHUNKS_KEPT) {
            chunk->size = 0;
            chunk->next = kept;
            kept = chunk;
            count++;
        } else {
            free(chunk);
        }
    }
    batch->chunks = kept;
}

void batch_reset(struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++)
        command_release(&batch->entries[i].command);
    keep_some_chunks(batch);
    if (batch->capacity > ENTRIES_KEPT) {
        free(batch->entries);
        batch->entries = NULL;
        batch->capacity = 0;
    }
    batch->count = batch->slot_count = batch->bytes = batch->work = 0;
    batch->next = NULL;
}

/* Chunks with room stand at the front only: a large record gets one of its own behind it. */
static void *take_bytes(struct batch *batch, size_t size) {
    size = (size + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1);
    struct batch_chunk *front = batch->chunks;
    for (int tried = 0; front != NULL && tried < CHUNKS_KEPT && front->capacity - front->size < size; tried++)
        front = front->next;
    if (front == NULL || front->capacity - front->size < size) {
        size_t capacity = size > CHUNK_BYTES ? size : CHUNK_BYTES;
        front = memory_alloc(sizeof *front + capacity);
        front->capacity = capacity;
        front->next = batch->chunks;
        batch->chunks = front;
    }
    void *bytes = front->bytes + front->size;
    front->size += size;
    return bytes;
}

static const void *copy_bytes(unsigned char **at, const void *bytes, size_t size) {
    if (bytes == NULL)
        return NULL;
    unsigned char *copy = *at;
    memcpy(copy, bytes, size);
    copy[size] = '\0';
    *at += size + 1;
    return copy;
}

static size_t message_bytes(const struct message *message) {
    size_t size = message->key_size + 1 + message->value_size + 1;
    for (size_t i = 0; i < message->header_count; i++)
        size += message->headers[i].name_size + 1 + message->headers[i].value_size + 1;
    return size;
}

static void copy_message(struct batch *batch, const char *topic, const struct message *message, struct message *ret_copy) {
    size_t headers_size = message->header_count * sizeof(struct message_header);
    struct message_header *headers = take_bytes(batch, headers_size + message_bytes(message));
    unsigned char *at = (unsigned char *)headers + headers_size;
    *ret_copy = *message;
    ret_copy->topic = topic;
    ret_copy->key = copy_bytes(&at, message->key, message->key_size);
    ret_copy->value = copy_bytes(&at, message->value, message->value_size);
    ret_copy->headers = message->header_count > 0 ? headers : NULL;
    for (size_t i = 0; i < message->header_count; i++) {
        const struct message_header *header = &message->headers[i];
        headers[i] = *header;
        headers[i].name = copy_bytes(&at, header->name, header->name_size);
        headers[i].value = copy_bytes(&at, header->value, header->value_size);
    }
}

/* A taking found from the end: a batch rarely has more than a dozen slots. */
static uint32_t find_slot(struct batch *batch, struct partition *partition) {
    for (size_t i = batch->slot_count; i > 0; i--)
        if (batch->slots[i - 1].partition == partition && batch->slots[i - 1].generation == partition->taken)
            return (uint32_t)(i - 1);
    if (batch->slot_count == batch->slot_capacity) {
        batch->slot_capacity = batch->slot_capacity > 0 ? 2 * batch->slot_capacity : 16;
        batch->slots = memory_resize(batch->slots, batch->slot_capacity, sizeof *batch->slots);
    }
    batch->slots[batch->slot_count] = (struct batch_slot){
        .partition = partition, .generation = partition->taken, .epoch = partition->epoch, .expected = partition->handed};
    return (uint32_t)batch->slot_count++;
}

size_t batch_work_of(const struct command *command) {
    return command == NULL ? 1 : 1 + command->resource_count / RESOURCES_A_MESSAGE + command->item_count;
}

void batch_add(struct batch *batch, struct partition *partition, const struct message *message,
               struct command *take_command) {
    if (batch->count == batch->capacity) {
        batch->capacity = batch->capacity > 0 ? 2 * batch->capacity : 64;
        batch->entries = memory_resize(batch->entries, batch->capacity, sizeof *batch->entries);
    }
    struct batch_entry *entry = &batch->entries[batch->count++];
    memset(entry, 0, sizeof *entry);
    entry->slot = find_slot(batch, partition);
    copy_message(batch, partition->topic, message, &entry->message);
    batch->bytes += message_bytes(message);
    batch->work += batch_work_of(take_command);
    if (take_command != NULL) {
        entry->command = *take_command;
        memset(take_command, 0, sizeof *take_command);
        entry->is_decoded = true;
        batch->bytes += command_size(&entry->command);
    }
}

size_t batch_claims(const struct batch *batch, size_t from, size_t upto, struct batch_claim *ret_claims) {
    size_t count = 0;
    int64_t *cursor = memory_alloc_array(batch->slot_count + 1, sizeof *cursor);
    int64_t *place = memory_alloc_array(batch->slot_count + 1, sizeof *place); /* 1 + index of the slot's claim */
    for (size_t i = 0; i < batch->slot_count; i++)
        cursor[i] = batch->slots[i].expected;
    for (size_t i = 0; i < upto; i++) {
        const struct batch_entry *entry = &batch->entries[i];
        if (i >= from && !entry->is_dropped) {
            if (place[entry->slot] == 0) {
                ret_claims[count] = (struct batch_claim){.slot = &batch->slots[entry->slot], .slot_index = entry->slot,
                                                         .expected = cursor[entry->slot]};
                place[entry->slot] = (int64_t)++count;
            }
            ret_claims[place[entry->slot] - 1].next = entry->message.offset + 1;
            ret_claims[place[entry->slot] - 1].last = &entry->message;
        }
        cursor[entry->slot] = entry->message.offset + 1;
    }
    free(cursor);
    free(place);
    return count;
}

size_t batch_drop_outdated(struct batch *batch, size_t from, size_t upto) {
    size_t left = 0;
    for (size_t i = from; i < upto; i++) {
        struct batch_entry *entry = &batch->entries[i];
        const struct batch_slot *slot = &batch->slots[entry->slot];
        if (!entry->is_dropped && !partition_is_current(slot->partition, slot->generation))
            entry->is_dropped = true;
        left += !entry->is_dropped;
    }
    return left;
}

void batch_drop_slot(struct batch *batch, uint32_t slot, size_t from, size_t upto) {
    for (size_t i = from; i < upto; i++)
        if (batch->entries[i].slot == slot)
            batch->entries[i].is_dropped = true;
}
