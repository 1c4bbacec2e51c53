/* Producer, reader and positions of one handle; see link.h. Runs in the handle's own thread. */
#include "worker/link.h"

#include "common/backoff.h"
#include "common/event_text.h"
#include "common/kafka_producer.h"
#include "common/kafka_reader.h"
#include "common/record.h"
#include "common/topics.h"
#include "worker/hold.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* DELIVERY_MS: an outage that lasts longer is met by sending again, with what is true then. METADATA_MS: how long asking for the
 * partitions may hold up the thread; nothing is held then. QUEUE_*: commands are few and small. PARTITIONS_MAX: of
 * lease.results, that we would follow. */
enum {
    DELIVERY_MS = 20000,
    METADATA_MS = 1000,
    QUEUE_MESSAGES = 10000,
    QUEUE_KBYTES = 16384,
    READER_KBYTES = 4096,
    PARTITIONS_MAX = 1000,
    RETRY_BASE_MS = 50,
    RETRY_MAX_MS = 2000,
    REPORTS_MS = 100, /* how long delivery reports may wait for us */
};

#define LINK_SOURCE "/liblease-worker"

struct place {
    bool is_grants;
    int32_t partition;
    unsigned wanted;
    bool is_fixed;
    int64_t next;   /* offset to read next; an end that is not known yet: KAFKA_OFFSET_END */
    int64_t number; /* the last lease_number seen */
};

struct link {
    char *brokers, *topic_prefix, *group, *kind, *holder;
    char incarnation[LINK_INCARNATION_SIZE];
    struct kafka_property *properties;
    size_t property_count;
    lease_log_fn *log;
    void *log_context;
    struct kafka_settings settings;
    int fetch_wait_ms;
    char *events, *renewals, *results, *grants; /* topics, with their prefix */

    struct kafka_producer *producer; /* NULL: to be made */
    struct kafka_reader *reader;     /* NULL: to be made */
    pthread_mutex_t waking;          /* around `reader` itself, for link_wake */

    int32_t results_partitions, grants_partitions; /* 0: not known */
    struct place places[PARTITIONS_MAX + 1];
    size_t place_count;
    bool must_assign;
    bool is_settling; /* assigned, and nothing has come of it yet; see serve_reader */

    struct backoff producer_backoff, reader_backoff;
    int64_t producer_at_us, reader_at_us; /* not before */
    uint64_t number, reconnected, dropped;
    bool is_telling; /* an outage has been told of */
};

/* ---- setting up ---- */

static void random_bytes(unsigned char *bytes, size_t size) {
    for (size_t got = 0; got < size;) {
        ssize_t more = getrandom(bytes + got, size - got, 0);
        assert(more > 0 || errno == EINTR);
        got += more > 0 ? (size_t)more : 0;
    }
}

static void make_incarnation(char ret[static LINK_INCARNATION_SIZE]) {
#ifdef LEASE_CRASH_POINTS /* tests show what becomes of workers that are taken for those who died */
    if (getenv("LEASE_TEST_INCARNATION")) {
        snprintf(ret, LINK_INCARNATION_SIZE, "%s", getenv("LEASE_TEST_INCARNATION"));
        return;
    }
#endif
    unsigned char bytes[8];
    random_bytes(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

static char *join(const char *first, const char *second, const char *third) {
    struct buf text = BUF_INIT;
    buf_append_text(&text, first);
    buf_append_text(&text, second);
    buf_append_text(&text, third);
    return buf_take(&text, NULL);
}

static bool check_names(const struct link *link, const char *name, struct error *error) {
    struct slice holder = {link->holder, strlen(link->holder)};
    if (!lease_kind_is_well_formed(link->kind, strlen(link->kind)))
        return error_set(error, ERROR_FATAL, "options", "'%s' is no name of a kind", link->kind);
    if (event_text_id(holder) != EVENT_REASON_NONE || strlen(name) > 150)
        return error_set(error, ERROR_FATAL, "options",
                         "'%s' cannot be a name: letters, digits and ._:@/+=-, a letter or digit first, 150 at most", name);
    return true;
}

static bool copy_properties(struct link *link, const struct lease_connection *connection, struct error *error) {
    link->properties = memory_alloc_array(connection->property_count + 1, sizeof *link->properties);
    for (size_t i = 0; i < connection->property_count; i++) {
        const struct lease_property *given = &connection->properties[i];
        if (!given->key || !given->value)
            return error_set(error, ERROR_FATAL, "options", "a property without a key or a value");
        if (!kafka_property_check(given->key, given->value, error))
            return false;
        link->properties[i].key = memory_copy_text(given->key);
        link->properties[i].value = memory_copy_text(given->value);
        link->property_count++;
    }
    return true;
}

static void say_for_kafka(void *context, int level, const char *facility, const char *text) {
    if (strcmp(facility, "CONFWARN") == 0)
        return; /* about settings that are ours, and meant */
    link_say(context, level <= 4 ? LEASE_LOG_WARNING : level <= 6 ? LEASE_LOG_INFO : LEASE_LOG_DEBUG, "kafka %s: %s",
             facility, text);
}

static bool link_init(struct link *link, const struct lease_connection *connection, const char *kind, const char *name,
                      int fetch_wait_ms, struct error *error) {
    const char *prefix = connection->topic_prefix ? connection->topic_prefix : "";
    pthread_mutex_init(&link->waking, NULL);
    if (!connection->brokers || !*connection->brokers || !kind || !name)
        return error_set(error, ERROR_FATAL, "options", "brokers and kind are required");
    make_incarnation(link->incarnation);
    link->brokers = memory_copy_text(connection->brokers);
    link->topic_prefix = memory_copy_text(prefix);
    link->group = memory_copy_text(connection->group ? connection->group : "lease-worker");
    link->kind = memory_copy_text(kind);
    link->holder = join(name, ".", link->incarnation);
    link->events = join(prefix, kind, ".events");
    link->renewals = join(prefix, topic_get(TOPIC_RENEWALS)->name, "");
    link->results = join(prefix, topic_get(TOPIC_RESULTS)->name, "");
    link->grants = join(prefix, topic_get(TOPIC_GRANTS)->name, "");
    link->log = connection->log;
    link->log_context = connection->log_context;
    link->fetch_wait_ms = fetch_wait_ms;
    if (!check_names(link, name, error) || !copy_properties(link, connection, error))
        return false;
    link->settings = (struct kafka_settings){
        .brokers = link->brokers, .client_id = link->holder, .properties = link->properties,
        .property_count = link->property_count, .log = link->log ? say_for_kafka : NULL, .log_context = link};
    uint64_t seed;
    random_bytes((unsigned char *)&seed, sizeof seed);
    backoff_init(&link->producer_backoff, RETRY_BASE_MS, RETRY_MAX_MS, seed);
    backoff_init(&link->reader_backoff, RETRY_BASE_MS, RETRY_MAX_MS, ~seed);
    return true;
}

static void note_delivery(void *context, uint64_t number, int32_t partition, int64_t offset, const struct error *error) {
    struct link *link = context;
    (void)number;
    (void)partition;
    (void)offset;
    if (!error)
        backoff_reset(&link->producer_backoff);
}

static bool make_producer(struct link *link, struct error *error) {
    const struct kafka_producer_options options = {
        .settings = &link->settings, .queue_messages = QUEUE_MESSAGES, .queue_kbytes = QUEUE_KBYTES,
        .delivery_ms = DELIVERY_MS, .record_bytes = EVENT_VALUE_MAX + 4096, .delivered = note_delivery, .context = link};
    return kafka_producer_new(&options, &link->producer, error);
}

static bool make_reader(struct link *link, struct error *error) {
    const struct kafka_reader_options options = {.settings = &link->settings, .group = link->group,
                                                 .wait_ms = link->fetch_wait_ms, .queue_kbytes = READER_KBYTES};
    struct kafka_reader *reader;
    if (!kafka_reader_new(&options, &reader, error))
        return false;
    pthread_mutex_lock(&link->waking);
    link->reader = reader;
    pthread_mutex_unlock(&link->waking);
    return true;
}

bool link_new(const struct lease_connection *connection, const char *kind, const char *name, int fetch_wait_ms,
              struct link **ret_link, struct error *error) {
    struct link *link = memory_alloc(sizeof *link);
    if (link_init(link, connection, kind, name, fetch_wait_ms, error) && make_producer(link, error) &&
        make_reader(link, error)) {
        *ret_link = link;
        return true;
    }
    link_free(link);
    return false;
}

static void drop_reader(struct link *link) {
    pthread_mutex_lock(&link->waking);
    struct kafka_reader *reader = link->reader;
    link->reader = NULL;
    pthread_mutex_unlock(&link->waking);
    kafka_reader_free(reader);
}

static void free_properties(struct link *link) {
    for (size_t i = 0; i < link->property_count; i++) {
        char *value = (char *)(uintptr_t)link->properties[i].value;
        if (kafka_property_is_secret(link->properties[i].key))
            explicit_bzero(value, strlen(value));
        free((char *)(uintptr_t)link->properties[i].key);
        free(value);
    }
    free(link->properties);
}

void link_free(struct link *link) {
    if (!link)
        return;
    kafka_producer_free(link->producer);
    drop_reader(link);
    free_properties(link);
    pthread_mutex_destroy(&link->waking);
    char *const texts[] = {link->brokers, link->topic_prefix, link->group, link->kind, link->holder,
                           link->events, link->renewals, link->results, link->grants};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    free(link);
}

const char *link_holder(const struct link *link) {
    return link->holder;
}

const char *link_kind(const struct link *link) {
    return link->kind;
}

void link_say(const struct link *link, enum lease_log_level level, const char *format, ...) {
    if (!link->log)
        return;
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    link->log(link->log_context, level, text);
}

void link_wake(struct link *link) {
    pthread_mutex_lock(&link->waking);
    if (link->reader)
        kafka_reader_wake(link->reader);
    pthread_mutex_unlock(&link->waking);
}

/* ---- what went wrong, and how it is put right ---- */

static void tell(struct link *link, const char *what, const struct error *error) {
    link_say(link, error->kind == ERROR_RETRY ? LEASE_LOG_INFO : LEASE_LOG_WARNING, "%s: %s (%s)", what, error->message,
             error->code);
}

static void reader_later(struct link *link) {
    link->reader_at_us = hold_clock_us() + backoff_next_ms(&link->reader_backoff) * 1000;
}

/* The end that a partition has when it is found again: what stood there before, nobody can tell any more. */
static void forget_position(struct place *place) {
    place->is_fixed = false;
    place->next = KAFKA_OFFSET_END;
    place->number = 0;
}

static void restart_reader(struct link *link) {
    drop_reader(link);
    link->results_partitions = link->grants_partitions = 0; /* the topics may be others */
    for (size_t i = 0; i < link->place_count; i++)
        if (link->places[i].next < 0)
            link->places[i].is_fixed = false;
    link->must_assign = true;
    link->is_settling = false;
    link->reconnected++;
    reader_later(link);
}

static struct place *find_place(struct link *link, bool is_grants, int32_t partition) {
    for (size_t i = 0; i < link->place_count; i++)
        if (link->places[i].is_grants == is_grants && link->places[i].partition == partition)
            return &link->places[i];
    return NULL;
}

static struct place *add_place(struct link *link, bool is_grants, int32_t partition) {
    struct place *place = find_place(link, is_grants, partition);
    if (!place) {
        assert(link->place_count < PARTITIONS_MAX + 1);
        place = &link->places[link->place_count++];
        *place = (struct place){.is_grants = is_grants, .partition = partition};
        forget_position(place);
        link->must_assign = true;
    }
    place->wanted++;
    return place;
}

static int32_t partition_of(const char *key, int32_t count) {
    return kafka_partition_of_key(key, strlen(key), count);
}

/* How many partitions the topics have says in which one we are. */
static bool find_topics(struct link *link, struct error *error) {
    int32_t results, grants;
    if (!kafka_reader_partition_count(link->reader, link->results, METADATA_MS, &results, error) ||
        !kafka_reader_partition_count(link->reader, link->grants, METADATA_MS, &grants, error))
        return false;
    if (results > PARTITIONS_MAX)
        return error_set(error, ERROR_FATAL, "partitions", "%s has %d partitions, %d are followed at most", link->results,
                         results, PARTITIONS_MAX);
    link->results_partitions = results;
    link->grants_partitions = grants;
    if (link->place_count == 0) {
        add_place(link, true, partition_of(link->holder, grants));
        add_place(link, false, partition_of(link->holder, results));
    }
    return true;
}

static bool assign(struct link *link, struct error *error) {
    struct kafka_partition partitions[PARTITIONS_MAX + 1];
    size_t kept = 0;
    for (size_t i = 0; i < link->place_count; i++) {
        struct place place = link->places[i];
        if (place.wanted == 0)
            continue;
        partitions[kept] = (struct kafka_partition){.topic = place.is_grants ? link->grants : link->results,
                                                    .partition = place.partition, .offset = place.next};
        link->places[kept++] = place;
    }
    link->place_count = kept;
    link->must_assign = false;
    link->is_settling = true;
    return kafka_reader_assign(link->reader, partitions, kept, error);
}

/* False: the reader is not there yet. An assignment throws away what was fetched; the next one waits until something has come of
 * this one, so that many new places in a row cannot starve those that are there. */
static bool serve_reader(struct link *link) {
    struct error error;
    if (link->reader && link->results_partitions > 0 && (!link->must_assign || link->is_settling))
        return true;
    if (hold_clock_us() < link->reader_at_us)
        return link->reader && link->results_partitions > 0; /* goes on with what it has */
    bool is_ok = (link->reader || make_reader(link, &error)) && (link->results_partitions > 0 || find_topics(link, &error)) &&
                 (!link->must_assign || assign(link, &error));
    if (!is_ok) {
        if (!link->is_telling)
            tell(link, "cannot read answers yet", &error);
        link->is_telling = true;
        reader_later(link);
    } else {
        link->is_telling = false;
    }
    return is_ok;
}

static void serve_producer(struct link *link) {
    struct error error;
    if (link->producer && !kafka_producer_stopped(link->producer)) {
        kafka_producer_poll(link->producer, 0);
        if (!kafka_producer_stopped(link->producer))
            return;
    }
    if (link->producer) {
        tell(link, "commands were not delivered; sending anew", kafka_producer_stopped(link->producer));
        kafka_producer_free(link->producer);
        link->producer = NULL;
        link->reconnected++;
    }
    int64_t now_us = hold_clock_us();
    if (now_us < link->producer_at_us)
        return;
    if (!make_producer(link, &error))
        tell(link, "no producer", &error);
    link->producer_at_us = now_us + backoff_next_ms(&link->producer_backoff) * 1000;
}

/* ---- reading ---- */

static const struct message_header *find_header(const struct message *message, const char *name) {
    size_t size = strlen(name);
    for (size_t i = 0; i < message->header_count; i++)
        if (message->headers[i].name_size == size && memcmp(message->headers[i].name, name, size) == 0)
            return &message->headers[i];
    return NULL;
}

static int64_t number_in(const struct message_header *header) {
    int64_t number = 0;
    const char *digits = header ? header->value : NULL;
    if (!digits || header->value_size == 0 || header->value_size > 18)
        return -1;
    for (size_t i = 0; i < header->value_size; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return -1;
        number = number * 10 + (digits[i] - '0');
    }
    return number;
}

static bool is_new(struct link *link, struct place *place, const struct message *message) {
    if (find_header(message, HEADER_MARK))
        return false;
    int64_t number = number_in(find_header(message, HEADER_NUMBER));
    if (number <= place->number) { /* also what has none */
        link->dropped++;
        return false;
    }
    place->number = number;
    return true;
}

static bool is_for_holder(const struct link *link, const struct message *message) {
    size_t size = strlen(link->holder);
    return message->key && message->key_size == size && memcmp(message->key, link->holder, size) == 0;
}

static enum link_got take_message(struct link *link, const struct message *message) {
    bool is_grants = strcmp(message->topic, link->grants) == 0;
    struct place *place = find_place(link, is_grants, message->partition);
    if (!place)
        return LINK_OTHER;
    link->is_settling = false;
    place->is_fixed = true;
    place->next = message->offset + 1;
    if (!is_new(link, place, message) || (is_grants && !is_for_holder(link, message)))
        return LINK_OTHER;
    return is_grants ? LINK_GRANT : LINK_RESULT;
}

static void take_end(struct link *link, const struct message *message) {
    struct place *place = find_place(link, strcmp(message->topic, link->grants) == 0, message->partition);
    if (!place)
        return;
    backoff_reset(&link->reader_backoff);
    link->is_settling = false;
    place->is_fixed = true;
    if (message->offset >= 0)
        place->next = message->offset;
}

/* The partition is not what it was: cut, or made anew. Everything from its end on is read again. */
static void take_partition_error(struct link *link, const struct message *message, const struct error *error) {
    tell(link, "reading answers", error);
    if (error->kind == ERROR_RETRY)
        return;
    struct place *place = find_place(link, strcmp(message->topic, link->grants) == 0, message->partition);
    if (place)
        forget_position(place);
    link->must_assign = true;
    link->is_settling = false;
    reader_later(link);
}

enum link_got link_poll(struct link *link, int timeout_ms, struct message *ret_message) {
    struct error error;
    serve_producer(link);
    if (!serve_reader(link) && !link->reader) {
        struct timespec pause = {.tv_nsec = 10 * 1000 * 1000}; /* no client to wait on, for moments */
        nanosleep(&pause, NULL);
        return LINK_NOTHING;
    }
    if (link->producer && kafka_producer_in_flight(link->producer) > 0 && timeout_ms > REPORTS_MS)
        timeout_ms = REPORTS_MS;
    if (((link->must_assign && !link->is_settling) || link->results_partitions == 0) && timeout_ms > RETRY_BASE_MS)
        timeout_ms = RETRY_BASE_MS;
    switch (kafka_reader_poll(link->reader, timeout_ms, ret_message, &error)) {
    case KAFKA_READ_MESSAGE:
        return take_message(link, ret_message);
    case KAFKA_READ_END:
        take_end(link, ret_message);
        return LINK_OTHER;
    case KAFKA_READ_PARTITION_ERROR:
        take_partition_error(link, ret_message, &error);
        return LINK_OTHER;
    case KAFKA_READ_ERROR:
        tell(link, "reading answers", &error);
        if (error.kind != ERROR_RETRY)
            restart_reader(link);
        return LINK_NOTHING;
    case KAFKA_READ_NOTHING:
        return LINK_NOTHING;
    }
    return LINK_NOTHING;
}

static bool is_fixed(struct link *link, bool is_grants, int32_t partition) {
    const struct place *place = find_place(link, is_grants, partition);
    return place && place->is_fixed;
}

bool link_is_ready(struct link *link) {
    return link->results_partitions > 0 &&
           is_fixed(link, true, partition_of(link->holder, link->grants_partitions)) &&
           is_fixed(link, false, partition_of(link->holder, link->results_partitions));
}

bool link_want(struct link *link, const char *lease, int32_t *ret_partition) {
    if (link->results_partitions == 0)
        return false;
    *ret_partition = partition_of(lease, link->results_partitions);
    add_place(link, false, *ret_partition);
    return true;
}

/* It is left at the next assignment, which would cost more now than reading on. */
void link_unwant(struct link *link, int32_t partition) {
    struct place *place = find_place(link, false, partition);
    assert(place && place->wanted > 0);
    place->wanted--;
}

bool link_has(struct link *link, int32_t partition) {
    return is_fixed(link, false, partition);
}

/* ---- sending ---- */

uint64_t link_next_number(struct link *link) {
    return ++link->number;
}

uint64_t link_number_of(const struct link *link, const char *source, const char *id) {
    size_t size = LINK_INCARNATION_SIZE - 1;
    if (!source || !id || strcmp(source, LINK_SOURCE) != 0 || strncmp(id, link->incarnation, size) != 0 || id[size] != '-')
        return 0;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(id + size + 1, &end, 10);
    return errno == 0 && *end == '\0' && end != id + size + 1 ? number : 0;
}

static struct message_header header_of(const char *name, const char *value) {
    return (struct message_header){.name = name, .name_size = strlen(name), .value = value, .value_size = strlen(value)};
}

bool link_send(struct link *link, enum lease_command command, const char *subject, uint64_t number, const struct buf *data,
               bool *is_hopeless) {
    char id[LINK_ID_SIZE], type[LEASE_KIND_MAX + 16];
    struct error error;
    if (is_hopeless)
        *is_hopeless = false;
    if (!link->producer)
        return false;
    snprintf(id, sizeof id, "%s-%llu", link->incarnation, (unsigned long long)number);
    snprintf(type, sizeof type, "%s.%s", link->kind, lease_command_name(command));
    const struct message_header headers[] = {
        header_of("ce_specversion", "1.0"), header_of("ce_id", id), header_of("ce_source", LINK_SOURCE),
        header_of("ce_type", type), header_of("ce_subject", subject), header_of("content-type", "application/json")};
    const struct kafka_record record = {
        .topic = command == LEASE_COMMAND_RENEW ? link->renewals : link->events, .partition = KAFKA_PARTITION_BY_KEY,
        .key = subject, .key_size = strlen(subject), .value = buf_text(data), .value_size = data->size,
        .headers = headers, .header_count = sizeof headers / sizeof *headers};
    if (kafka_producer_send(link->producer, &record, 0, &error))
        return true;
    if (is_hopeless)
        *is_hopeless = error.kind == ERROR_REJECT;
    return false;
}

void link_flush(struct link *link, int wait_ms) {
    struct error error;
    if (link->producer && !kafka_producer_flush(link->producer, wait_ms, &error))
        tell(link, "the last commands", &error);
}

uint64_t link_reconnected(const struct link *link) {
    return link->reconnected;
}

uint64_t link_dropped(const struct link *link) {
    return link->dropped;
}
