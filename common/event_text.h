/* Which characters and lengths the texts of messages may have: one statement of it for who reads commands (event) and who
 * makes them (worker/). The same rules stand in schemas/.
 *
 * Pure functions; safe from any thread. */
#ifndef LEASE_EVENT_TEXT_H
#define LEASE_EVENT_TEXT_H

#include "common/event.h"

#include <stdbool.h>
#include <stddef.h>

/* Borrowed bytes; data NULL: absent. */
struct slice {
    const char *data;
    size_t size;
};

/* EVENT_REASON_NONE, or what is wrong with the text. */
enum event_reason event_text_id(struct slice text);       /* subject, holder */
enum event_reason event_text_resource(struct slice text); /* `<type>/<id>` */
enum event_reason event_text_table(struct slice text);    /* `<type>` */
enum event_reason event_text_step(struct slice text);
enum event_reason event_text_reason(struct slice text);   /* of a fail; valid UTF-8 */
enum event_reason event_text_attribute(struct slice text); /* CloudEvents id, source */
enum event_reason event_text_time(struct slice text);      /* RFC 3339 */
bool event_text_is_traceparent(struct slice text);

#endif
