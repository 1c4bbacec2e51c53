/* One delivery by hand: delivery_probe URL TIMEOUT_MS ITEM FENCE CLAIM_ID PAYLOAD [LOST_AFTER]
 *
 * Prints "<verdict> <status> <delay> <reason>". With LOST_AFTER the lease is ours for so many looks. */
#include "worker/effects/delivery.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_mine(void *context) {
    long *looks = context;
    return *looks < 0 || (*looks)-- > 0;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"done", "refused", "retry", "lost"}; /* enum delivery_verdict */
    if (argc != 7 && argc != 8)
        return EXIT_FAILURE;
    struct error error = {0};
    struct delivery *delivery = NULL;
    const struct delivery_options options = {
        .url = argv[1], .authorization = "Bearer probe", .timeout_ms = atol(argv[2]), .is_mine = is_mine};
    if (!delivery_new(&options, &delivery, &error)) {
        printf("%s %s\n", error_kind_name(error.kind), error.code);
        return EXIT_FAILURE;
    }
    const struct delivery_message message = {.kind = "delivery", .item = argv[3], .fence = strtoll(argv[4], NULL, 10),
                                             .claim_id = argv[5], .attempt = 1, .payload = argv[6], .payload_size = strlen(argv[6])};
    struct delivery_outcome outcome;
    long looks = argc == 8 ? atol(argv[7]) : -1;
    delivery_run(delivery, &message, &looks, &outcome);
    delivery_free(delivery);
    printf("%s %ld %" PRId64 " %s\n", names[outcome.verdict], outcome.status, outcome.delay_ms, outcome.reason);
    return EXIT_SUCCESS;
}
