/* gate; see gate.h. Runs in its owner's thread. */
#include "common/gate.h"

#include "common/json_text.h"
#include "common/stamp.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Out of memory ends the process, here as everywhere. */
#define uthash_malloc(size) memory_alloc(size)
#define uthash_fatal(message) abort()
#include <uthash.h>

struct resource {
    UT_hash_handle hh;
    int64_t floor;
    int64_t fence;        /* the highest granted or admitted; 0 = none */
    struct claim_id claim_id;
    int64_t claim_number; /* of the record that told claim_id */
    int64_t number;       /* of the newest record */
    int64_t published;    /* the highest fence that records told */
    int64_t finished;     /* the highest fence that records told as finished */
    int64_t effect_done;  /* under `fence` */
    bool is_admitted;     /* somebody was, under `fence` */
    size_t name_size;
    char name[];
};

struct partition {
    int64_t end, position;
    int64_t number; /* the highest in it */
};

struct gate {
    struct gate_options options;
    struct resource *resources; /* uthash */
    struct partition *partitions;
    int32_t partition_count;
    int32_t partitions_behind; /* not read up to their end */
    bool has_begun;
    int64_t base;         /* nothing below was forgotten that could be admitted: refuse what is not remembered */
    int64_t base_unknown; /* the same, of what was forgotten and was admitted, or stood in no record yet */
    struct buf name;      /* of the record in hand */
    struct gate_counts counts;
};

/* What a record of lease.state says. 0 = not said. */
struct state_record {
    int64_t number, fence, min_fence;
    struct claim_id claim_id;
    bool has_claim_id, is_finished;
};

static const char *const verdict_names[] = {"not-ready", "stale", "duplicate", "admit"};

const char *gate_verdict_name(enum gate_verdict verdict) {
    assert((unsigned)verdict < GATE_VERDICT_COUNT);
    return verdict_names[verdict];
}

struct gate *gate_new(const struct gate_options *options) {
    struct gate *gate = memory_alloc(sizeof *gate);
    if (options != NULL)
        gate->options = *options;
    if (gate->options.resources_max == 0)
        gate->options.resources_max = GATE_RESOURCES_DEFAULT;
    if (gate->options.resources_max < GATE_RESOURCES_MIN)
        gate->options.resources_max = GATE_RESOURCES_MIN;
    return gate;
}

void gate_free(struct gate *gate) {
    if (gate == NULL)
        return;
    struct resource *resource, *next;
    HASH_ITER(hh, gate->resources, resource, next) {
        HASH_DEL(gate->resources, resource); /* NOLINT(clang-analyzer-unix.Malloc): what is freed was taken out of the table before */
        free(resource);
    }
    free(gate->partitions);
    buf_release(&gate->name);
    free(gate);
}

static void raise_to(int64_t *number, int64_t other) {
    if (other > *number)
        *number = other;
}

/* ---- the bound ---- */

/* Below this, the resource refuses. Its own fence too: whose it was is forgotten with it. */
static int64_t refuses_below(const struct resource *resource) {
    int64_t above_fence = resource->fence > 0 ? resource->fence + 1 : 0;
    return resource->floor > above_fence ? resource->floor : above_fence;
}

/* The last grant that is known of is over: its end is a floor above it, or it was finished. (That is no floor above it: effects of
 * before the finish may still be under way.) */
static bool has_ended(const struct resource *resource) {
    return resource->floor > resource->fence || (resource->fence > 0 && resource->finished >= resource->fence);
}

static int compare_for_forgetting(const void *left_item, const void *right_item) {
    const struct resource *left = *(struct resource *const *)left_item, *right = *(struct resource *const *)right_item;
    if (has_ended(left) != has_ended(right))
        return has_ended(left) ? -1 : 1;
    int64_t left_below = refuses_below(left), right_below = refuses_below(right);
    return left_below < right_below ? -1 : left_below > right_below;
}

static void forget(struct gate *gate, struct resource *resource) {
    raise_to(&gate->base, refuses_below(resource));
    if (resource->fence > resource->published || resource->is_admitted)
        raise_to(&gate->base_unknown, refuses_below(resource));
    HASH_DEL(gate->resources, resource); /* NOLINT(clang-analyzer-core.NullDereference): whatever is in the table has its neighbours */
    free(resource);
    gate->counts.forgotten++;
}

/* An eighth at once, so that the sorting is paid by many. */
static void make_room(struct gate *gate) {
    size_t count = HASH_COUNT(gate->resources), found = 0;
    if (count < gate->options.resources_max)
        return;
    struct resource **all = memory_alloc_array(count, sizeof(struct resource *));
    for (struct resource *resource = gate->resources; resource != NULL; resource = resource->hh.next)
        all[found++] = resource;
    qsort(all, count, sizeof(struct resource *), compare_for_forgetting);
    for (size_t i = 0; i < count / 8; i++)
        forget(gate, all[i]);
    free(all);
}

static struct resource *find_resource(const struct gate *gate, const char *name, size_t size) {
    struct resource *resource;
    HASH_FIND(hh, gate->resources, name, size, resource);
    return resource;
}

static struct resource *add_resource(struct gate *gate, const char *name, size_t size, int64_t floor) {
    make_room(gate);
    struct resource *resource = memory_alloc(sizeof *resource + size);
    resource->floor = floor;
    resource->name_size = size;
    memcpy(resource->name, name, size);
    HASH_ADD_KEYPTR(hh, gate->resources, resource->name, size, resource);
    return resource;
}

/* ---- lease.state ---- */

static struct partition *find_partition(const struct gate *gate, int32_t partition) {
    return partition >= 0 && partition < gate->partition_count ? &gate->partitions[partition] : NULL;
}

void gate_begin(struct gate *gate, const int64_t *ends, int32_t count) {
    free(gate->partitions);
    gate->partitions = memory_alloc_array((size_t)count + 1, sizeof *gate->partitions);
    gate->partition_count = count;
    gate->partitions_behind = 0;
    gate->has_begun = true;
    for (int32_t i = 0; i < count; i++) {
        gate->partitions[i].end = ends[i];
        gate->partitions_behind += ends[i] > 0;
    }
}

void gate_reached(struct gate *gate, int32_t number, int64_t offset) {
    struct partition *partition = find_partition(gate, number);
    if (partition == NULL || offset <= partition->position)
        return;
    gate->partitions_behind -= partition->position < partition->end && offset >= partition->end;
    partition->position = offset;
}

bool gate_is_ready(const struct gate *gate) {
    return gate->has_begun && gate->partitions_behind == 0;
}

static bool unreadable(const struct message *record, const char *what, struct error *error) {
    return error_set(error, ERROR_FATAL, "gate_unreadable", "%s, partition %d, offset %lld: %s", record->topic,
                     (int)record->partition, (long long)record->offset, what);
}

static bool is_named(const struct json_member *member, const char *name) {
    return member->name_size == strlen(name) && memcmp(member->name, name, member->name_size) == 0;
}

static bool parse_number(const struct json_member *member, int64_t *ret) {
    int64_t number = 0;
    if (member->value_size == 0 || member->value_size > 18)
        return false;
    for (size_t i = 0; i < member->value_size; i++) {
        if (member->value[i] < '0' || member->value[i] > '9')
            return false;
        number = number * 10 + (member->value[i] - '0');
    }
    *ret = number;
    return true;
}

/* False: a member that matters is not what it should be. */
static bool read_member(const struct json_member *member, struct state_record *state) {
    if (is_named(member, "number"))
        return parse_number(member, &state->number);
    if (is_named(member, "fence"))
        return parse_number(member, &state->fence);
    if (is_named(member, "min_fence"))
        return parse_number(member, &state->min_fence);
    if (is_named(member, "state"))
        state->is_finished = member->value_size == strlen("\"finished\"") && memcmp(member->value, "\"finished\"", member->value_size) == 0;
    if (is_named(member, "claim_id"))
        return state->has_claim_id =
                   member->value_size > 2 && claim_id_parse(member->value + 1, member->value_size - 2, &state->claim_id);
    return true;
}

static bool read_state(const struct message *record, struct state_record *ret_state) {
    struct state_record state = {0};
    struct json_member member;
    size_t position = 0;
    const char *value = record->value;
    while (json_text_next_member(value, record->value_size, &position, &member))
        if (!read_member(&member, &state))
            return false;
    if (position >= record->value_size || value[position] != '}' || state.number == 0)
        return false;
    *ret_state = state;
    return true;
}

/* What lease.state says of a lease it says in order, but for stragglers: a record that is none is newer than whatever was
 * forgotten of its lease, unless somebody was admitted: before any record told of it, or under the very fence that is now said to be
 * another claim's (two servers that were promoted apart can give one out twice). */
static int64_t floor_of_new(const struct gate *gate, const struct state_record *state, bool is_in_order) {
    bool is_the_leases_own = gate->options.resource == NULL;
    return is_in_order && is_the_leases_own && state->fence > 0 ? gate->base_unknown : gate->base;
}

static void take_grant(struct resource *resource, const struct state_record *state) {
    if (state->fence < resource->fence || (state->fence == resource->fence && (resource->is_admitted || state->number <= resource->claim_number)))
        return;
    if (state->fence > resource->fence) {
        resource->is_admitted = false;
        resource->effect_done = 0;
    }
    resource->fence = state->fence;
    resource->claim_id = state->claim_id;
    resource->claim_number = state->number;
}

static void take_state(struct gate *gate, const struct state_record *state, bool is_in_order) {
    struct resource *resource = find_resource(gate, buf_text(&gate->name), gate->name.size);
    if (resource == NULL && state->fence == 0 && state->min_fence == 0)
        return; /* nobody was granted anything yet */
    if (resource == NULL)
        resource = add_resource(gate, buf_text(&gate->name), gate->name.size, floor_of_new(gate, state, is_in_order));
    raise_to(&resource->floor, state->min_fence);
    raise_to(&resource->published, state->fence);
    if (state->is_finished)
        raise_to(&resource->finished, state->fence);
    if (state->has_claim_id)
        take_grant(resource, state);
    else
        raise_to(&resource->floor, state->fence);
    gate->counts.stragglers += state->number < resource->number;
    raise_to(&resource->number, state->number);
}

static bool name_resource(struct gate *gate, const struct message *record) {
    buf_reset(&gate->name);
    if (gate->options.resource != NULL)
        return gate->options.resource(gate->options.context, record->key, record->key_size, &gate->name);
    buf_append(&gate->name, record->key, record->key_size);
    return true;
}

bool gate_feed(struct gate *gate, const struct message *record, struct error *error) {
    struct stamp stamp;
    struct state_record state;
    stamp_read(record, &stamp);
    struct partition *partition = find_partition(gate, record->partition);
    if (stamp.is_mark) {
        gate->counts.marks++;
    } else if (record->has_lost_headers) {
        return unreadable(record, "it has more headers than can be read", error);
    } else if (stamp.number == 0 || record->key == NULL || record->value == NULL) {
        gate->counts.strangers++;
    } else {
        if (!read_state(record, &state) || state.number != stamp.number)
            return unreadable(record, "not a state that this version understands", error);
        bool is_in_order = partition != NULL && state.number > partition->number;
        if (is_in_order)
            partition->number = state.number;
        gate->counts.records++;
        if (name_resource(gate, record))
            take_state(gate, &state, is_in_order);
    }
    gate_reached(gate, record->partition, record->offset + 1);
    return true;
}

/* ---- effects ---- */

static bool can_be_judged(const struct gate_request *request) {
    return request->resource != NULL && request->resource_size >= 1 && request->resource_size <= GATE_RESOURCE_NAME_MAX &&
           request->fence >= 1 && request->fence <= LEASE_FENCE_MAX;
}

static bool is_same_claim(const struct claim_id *left, const struct claim_id *right) {
    return memcmp(left->bytes, right->bytes, sizeof left->bytes) == 0;
}

static bool is_stale(const struct gate *gate, const struct resource *resource, const struct gate_request *request) {
    if (resource == NULL)
        return request->fence < gate->base;
    return request->fence < resource->floor || request->fence < resource->fence ||
           (request->fence == resource->fence && !is_same_claim(&request->claim_id, &resource->claim_id));
}

static void remember(struct resource *resource, const struct gate_request *request) {
    if (request->fence > resource->fence) {
        resource->fence = request->fence;
        resource->claim_id = request->claim_id;
        resource->claim_number = 0;
        resource->effect_done = 0;
    }
    resource->is_admitted = true;
}

static enum gate_verdict judge(struct gate *gate, const struct gate_request *request) {
    if (!gate_is_ready(gate))
        return GATE_NOT_READY;
    if (!can_be_judged(request))
        return GATE_STALE;
    struct resource *resource = find_resource(gate, request->resource, request->resource_size);
    if (is_stale(gate, resource, request))
        return GATE_STALE;
    if (resource == NULL)
        resource = add_resource(gate, request->resource, request->resource_size, gate->base);
    remember(resource, request);
    return request->effect > 0 && request->effect <= resource->effect_done ? GATE_DUPLICATE : GATE_ADMIT;
}

enum gate_verdict gate_admit(struct gate *gate, const struct gate_request *request) {
    enum gate_verdict verdict = judge(gate, request);
    gate->counts.verdicts[verdict]++;
    return verdict;
}

void gate_done(struct gate *gate, const struct gate_request *request) {
    struct resource *resource = find_resource(gate, request->resource, request->resource_size);
    if (resource != NULL && resource->fence == request->fence && is_same_claim(&request->claim_id, &resource->claim_id))
        raise_to(&resource->effect_done, request->effect);
}

void gate_get_counts(const struct gate *gate, struct gate_counts *ret_counts) {
    *ret_counts = gate->counts;
    ret_counts->base = gate->base;
    ret_counts->resources = HASH_COUNT(gate->resources);
}
