/* stamp: what a record on an output topic says about where it comes from: journal number, the relay's epoch, the fence. Read by
 * the relay when it takes over, by the witness, and by consumers of the outputs.
 *
 * A dead letter carries its original's headers before ours, and whoever sent it chose them: of a name that comes twice only the
 * last counts, and a dead letter is never a mark and has no fence. */
#ifndef LEASE_STAMP_H
#define LEASE_STAMP_H

#include "common/message.h"

#include <stdbool.h>
#include <stdint.h>

struct stamp {
    bool is_mark;
    int64_t number; /* 0 = none */
    int64_t epoch;  /* 0 = none */
    int64_t fence;  /* 0 = none */
};

void stamp_read(const struct message *message, struct stamp *ret_stamp);

#endif
