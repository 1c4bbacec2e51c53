/* The table of keys; see settings.h. Runs at start, in main's thread. */
#include "worker/daemon/settings.h"

#include "worker/effects/delivery.h"

#include <string.h>

enum { DELIVERY_TTL_MIN_MS = 3000 };

static const char *const kinds[] = {"cleanup", "delivery", NULL};                    /* enum settings_kind */
static bool check_url(const char *value, struct error *error) {
    if (delivery_check_url(value, error))
        return true;
    strcpy(error->code, "configuration");
    return false;
}

/* It becomes a line of a request. */
static bool check_header(const char *value, struct error *error) {
    for (; *value != '\0'; value++)
        if ((unsigned char)*value < ' ' || *value == 0x7f)
            return error_set(error, ERROR_FATAL, "configuration", "the value of a header may hold no control characters");
    return true;
}

#define FIELD(name) PROGRAM_FIELD(struct settings, name)
#define TEXT PROGRAM_TEXT
#define NUMBER PROGRAM_NUMBER

const struct config_row settings_rows[] = {
    {FIELD(kind), .type = CONFIG_CHOICE, .choices = kinds, .required = PROGRAM_US,
     .help = "what to do: cleanup removes files of the file server, delivery posts payloads to an HTTP endpoint"},
    PROGRAM_CONNECTION_ROWS(struct settings, "lease-worker"),
    {FIELD(concurrency), NUMBER(1, 256, "4"), .help = "items that are worked on at a time"},
    {FIELD(credit), NUMBER(0, 10000, "0"), .help = "items in hand or asked for, at most; 0 is twice the concurrency"},
    {FIELD(ttl_ms), NUMBER(300, 3600000, "30000"),
     .help = "of each lease; it is renewed at a third of it. A worker that dies keeps its items from others for so long. "
             "delivery: 3000 at least"},
    {FIELD(patience_ms), NUMBER(0, 3600000, "60000"),
     .help = "how long an item waits here for a database or disk that is away, before it is given back"},
    {FIELD(drain_ms), NUMBER(0, 600000, "20000"), .help = "time that a stop gives to the items in hand"},
    {FIELD(file_root), TEXT(1, 4096), .help = "cleanup: the directory that physical names are beneath. If all files may go by right, put one there that stays: a worker that "
             "misses a file where there is nothing at all takes it for not mounted, and ends"},
    {FIELD(file_database), TEXT(1, 8192), .secrecy = CONFIG_SECRET,
     .help = "cleanup: PostgreSQL connection string of the file server's database, with sql/gate/ and sql/fileserver/ in it"},
    {FIELD(delivery_url), TEXT(1, 4096), .check = check_url, .help = "delivery: where payloads are posted, http or https"},
    {FIELD(delivery_authorization), TEXT(1, 4096), .secrecy = CONFIG_SECRET_NO_FLAG, .check = check_header,
     .help = "delivery: value of the Authorization header"},
    {FIELD(delivery_timeout_ms), NUMBER(10, 600000, "10000"), .help = "delivery: of a whole exchange, connecting included"},
    PROGRAM_LOG_ROWS(struct settings),
};
const size_t settings_row_count = sizeof settings_rows / sizeof settings_rows[0];

/* Rules between keys. Each names both. */
bool settings_check(const void *values, struct error *error) {
    const struct settings *settings = values;
    if (settings->kind == SETTINGS_CLEANUP && (settings->file_root == NULL || settings->file_database == NULL))
        return error_set(error, ERROR_FATAL, "configuration", "kind cleanup needs file_root and file_database");
    if (settings->kind == SETTINGS_DELIVERY && settings->delivery_url == NULL)
        return error_set(error, ERROR_FATAL, "configuration", "kind delivery needs delivery_url");
    /* An exchange that is waited for tells of progress once a second; what tells of none for a third of its lease is not renewed. */
    if (settings->kind == SETTINGS_DELIVERY && settings->ttl_ms < DELIVERY_TTL_MIN_MS)
        return error_set(error, ERROR_FATAL, "configuration", "kind delivery needs a ttl_ms of at least %d", DELIVERY_TTL_MIN_MS);
    if (settings->credit != 0 && settings->credit < settings->concurrency)
        return error_set(error, ERROR_FATAL, "configuration", "credit (%lld) is below concurrency (%lld)",
                         (long long)settings->credit, (long long)settings->concurrency);
    return true;
}

const char *settings_kind_name(const struct settings *settings) {
    return kinds[settings->kind];
}
