/* One POST with libcurl; see delivery.h. Handles, and the connections that they keep open, are used again by whichever thread comes
 * next. The only file that includes curl.h. */
#include "worker/effects/delivery.h"

#include "common/buf.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RETRY_AFTER_MAX_S = 3600,
    CONNECT_PART = 2, /* connecting gets half of the time: an exchange that is begun late is of no use */
};

struct delivery {
    char *url;
    char *authorization; /* the whole header, or NULL */
    int64_t timeout_ms;
    bool (*is_mine)(void *context);
    pthread_mutex_t mutex;
    CURL **idle;
    size_t count, capacity;
};

/* What the progress callback needs. */
struct exchange {
    const struct delivery *delivery;
    void *context;
};

/* ---- the endpoint ---- */

bool delivery_check_url(const char *url, struct error *error) {
    char *scheme = NULL, *user = NULL, *password = NULL;
    CURLU *parsed = memory_or_exit(curl_url());
    bool is_url = curl_url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
                  curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                  (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);
    bool has_user = curl_url_get(parsed, CURLUPART_USER, &user, 0) == CURLUE_OK ||
                    curl_url_get(parsed, CURLUPART_PASSWORD, &password, 0) == CURLUE_OK;
    curl_free(scheme);
    curl_free(user);
    curl_free(password);
    curl_url_cleanup(parsed);
    if (!is_url)
        return error_set(error, ERROR_FATAL, "delivery_url", "this is no URL of http or https");
    if (has_user)
        return error_set(error, ERROR_FATAL, "delivery_url", "a URL with a user in it would show in logs: use delivery_authorization_file");
    return true;
}

/* ---- handles ---- */

static CURL *take_handle(struct delivery *delivery) {
    CURL *handle = NULL;
    pthread_mutex_lock(&delivery->mutex);
    if (delivery->count > 0)
        handle = delivery->idle[--delivery->count];
    pthread_mutex_unlock(&delivery->mutex);
    return handle != NULL ? handle : memory_or_exit(curl_easy_init());
}

static void give_handle(struct delivery *delivery, CURL *handle) {
    curl_easy_reset(handle); /* connections stay */
    pthread_mutex_lock(&delivery->mutex);
    if (delivery->count == delivery->capacity) {
        delivery->capacity = delivery->capacity * 2 + 4;
        delivery->idle = memory_resize(delivery->idle, delivery->capacity, sizeof(CURL *));
    }
    delivery->idle[delivery->count++] = handle;
    pthread_mutex_unlock(&delivery->mutex);
}

/* ---- the request ---- */

static size_t overlook(char *bytes, size_t size, size_t count, void *context) {
    (void)bytes;
    (void)context;
    return size * count;
}

static int ask_whose(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    const struct exchange *exchange = context;
    (void)a, (void)b, (void)c, (void)d;
    return exchange->delivery->is_mine(exchange->context) ? 0 : 1;
}

static void add_header(struct curl_slist **headers, const char *name, const char *value) {
    struct buf line = BUF_INIT;
    buf_appendf(&line, "%s: %s", name, value);
    *headers = memory_or_exit(curl_slist_append(*headers, buf_text(&line)));
    buf_release(&line);
}

static void add_number(struct curl_slist **headers, const char *name, int64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    add_header(headers, name, text);
}

static struct curl_slist *make_headers(const struct delivery *delivery, const struct delivery_message *message) {
    struct curl_slist *headers = NULL;
    struct buf key = BUF_INIT;
    buf_appendf(&key, "%s/%s", message->kind, message->item);
    add_header(&headers, "Content-Type", "application/json");
    add_header(&headers, "Expect", ""); /* no second round trip before the body */
    add_header(&headers, "Lease-Kind", message->kind);
    add_header(&headers, "Lease-Item", message->item);
    add_number(&headers, "Lease-Fence", message->fence);
    add_header(&headers, "Lease-Claim", message->claim_id);
    add_number(&headers, "Lease-Attempt", message->attempt);
    add_header(&headers, "Idempotency-Key", buf_text(&key));
    if (delivery->authorization != NULL)
        headers = memory_or_exit(curl_slist_append(headers, delivery->authorization));
    buf_release(&key);
    return headers;
}

static void set_up(CURL *handle, const struct delivery *delivery, const struct delivery_message *message,
                   const struct curl_slist *headers, struct exchange *exchange) {
    curl_easy_setopt(handle, CURLOPT_URL, delivery->url);
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle, CURLOPT_PROXY, ""); /* none, whatever the environment says */
    curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_USERAGENT, "lease-worker/" LEASE_VERSION);
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, (long)delivery->timeout_ms);
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, (long)(delivery->timeout_ms / CONNECT_PART));
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(handle, CURLOPT_POST, 1L);
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, message->payload != NULL ? message->payload : "{}");
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE,
                     (curl_off_t)(message->payload != NULL ? message->payload_size : 2));
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, overlook);
    curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, ask_whose);
    curl_easy_setopt(handle, CURLOPT_XFERINFODATA, exchange);
}

/* ---- the answer ---- */

static enum delivery_verdict judge(long status) {
    if (status >= 200 && status < 300)
        return DELIVERY_DONE;
    if (status == 408 || status == 409 || status == 425 || status == 429 || status >= 500)
        return DELIVERY_RETRY;
    return DELIVERY_REFUSED;
}

static int64_t retry_after_ms(CURL *handle) {
    curl_off_t seconds = 0;
    if (curl_easy_getinfo(handle, CURLINFO_RETRY_AFTER, &seconds) != CURLE_OK || seconds <= 0)
        return -1;
    return (seconds < RETRY_AFTER_MAX_S ? (int64_t)seconds : RETRY_AFTER_MAX_S) * 1000;
}

static void read_answer(CURL *handle, CURLcode code, struct delivery_outcome *outcome) {
    if (code == CURLE_ABORTED_BY_CALLBACK) {
        outcome->verdict = DELIVERY_LOST;
        return;
    }
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &outcome->status);
    if (code != CURLE_OK) {
        /* Whether it was received is unknown; the key tells the receiver. */
        outcome->verdict = DELIVERY_RETRY;
        snprintf(outcome->reason, sizeof outcome->reason, "%s", curl_easy_strerror(code));
        return;
    }
    outcome->verdict = judge(outcome->status);
    if (outcome->verdict == DELIVERY_RETRY)
        outcome->delay_ms = retry_after_ms(handle);
    snprintf(outcome->reason, sizeof outcome->reason, "answered %ld%s", outcome->status,
             outcome->status >= 300 && outcome->status < 400 ? ", a redirect" : "");
}

void delivery_run(struct delivery *delivery, const struct delivery_message *message, void *context,
                  struct delivery_outcome *ret_outcome) {
    *ret_outcome = (struct delivery_outcome){.delay_ms = -1};
    if (!delivery->is_mine(context)) {
        ret_outcome->verdict = DELIVERY_LOST;
        return;
    }
    struct exchange exchange = {.delivery = delivery, .context = context};
    struct curl_slist *headers = make_headers(delivery, message);
    CURL *handle = take_handle(delivery);
    set_up(handle, delivery, message, headers, &exchange);
    CURLcode code = curl_easy_perform(handle);
    read_answer(handle, code, ret_outcome);
    give_handle(delivery, handle);
    curl_slist_free_all(headers);
}

/* ---- life ---- */

bool delivery_new(const struct delivery_options *options, struct delivery **ret_delivery, struct error *error) {
    if (!delivery_check_url(options->url, error))
        return false;
    struct delivery *delivery = memory_alloc(sizeof *delivery);
    delivery->url = memory_copy_text(options->url);
    if (options->authorization != NULL) {
        struct buf line = BUF_INIT;
        buf_appendf(&line, "Authorization: %s", options->authorization);
        delivery->authorization = buf_take(&line, NULL);
    }
    delivery->timeout_ms = options->timeout_ms;
    delivery->is_mine = options->is_mine;
    pthread_mutex_init(&delivery->mutex, NULL);
    *ret_delivery = delivery;
    return true;
}

void delivery_free(struct delivery *delivery) {
    if (delivery == NULL)
        return;
    for (size_t i = 0; i < delivery->count; i++)
        curl_easy_cleanup(delivery->idle[i]);
    free(delivery->idle);
    free(delivery->url);
    free(delivery->authorization);
    pthread_mutex_destroy(&delivery->mutex);
    free(delivery);
}
