/* The table of keys; see settings.h. Runs at start, in main's thread. */
#include "worker/royalty/settings.h"

#include "common/event_text.h"

#include <string.h>

static bool check_settlement(const char *value, struct error *error) {
    if (event_text_id((struct slice){value, strlen(value)}) == EVENT_REASON_NONE)
        return true;
    return error_set(error, ERROR_FATAL, "configuration", "\"%s\" is no name of a lease", value);
}

static bool check_period(const char *value, struct error *error) {
    static const char form[] = "0000-00";
    size_t i = 0;
    while (value[i] != '\0' && form[i] != '\0' && (form[i] == '-' ? value[i] == '-' : value[i] >= '0' && value[i] <= '9'))
        i++;
    if (value[i] == '\0' && form[i] == '\0')
        return true;
    return error_set(error, ERROR_FATAL, "configuration", "\"%s\" is no month: YYYY-MM", value);
}

#define FIELD(name) PROGRAM_FIELD(struct royalty_settings, name)
#define TEXT PROGRAM_TEXT
#define NUMBER PROGRAM_NUMBER

const struct config_row royalty_settings_rows[] = {
    {FIELD(settlement), TEXT(1, 150), .required = PROGRAM_US, .check = check_settlement, .help = "name of the settlement, and of its lease"},
    {FIELD(period), TEXT(7, 7), .required = PROGRAM_US, .check = check_period, .help = "the month that is settled, YYYY-MM"},
    {FIELD(contracts), TEXT(1, 1000000),
     .help = "settle these only: <type>/<contract>[,…] with type album-contract, track-contract or video-contract. Without it, all there are"},
    PROGRAM_CONNECTION_ROWS(struct royalty_settings, "lease-royalty"),
    {FIELD(royalty_database), TEXT(1, 8192), .required = PROGRAM_US, .secrecy = CONFIG_SECRET,
     .help = "PostgreSQL connection string of the database with sql/gate/ and sql/royalty/ in it"},
    {FIELD(ttl_ms), NUMBER(300, 3600000, "30000"),
     .help = "of the lease; it is renewed at a third of it. A call of the database may take a third of it, too"},
    {FIELD(answer_ms), NUMBER(100, 3600000, "30000"), .help = "how long the coordinator's answers are waited for"},
    {FIELD(chunk_sales), NUMBER(1, 1000000, "20000"), .help = "sales that are read, computed and written at a time"},
    PROGRAM_LOG_ROWS(struct royalty_settings),
};
const size_t royalty_settings_row_count = sizeof royalty_settings_rows / sizeof royalty_settings_rows[0];
