/* The effect of a cleanup: a file goes, and its account gets the bytes back, once, whoever dies or sleeps in the middle.
 *
 *   1 begin    the database is told, behind the gate: from here on nobody writes the file, and a successor knows our fence
 *   2 move     the file is renamed to a name that carries our fence, in one call
 *   3 settle   quota and lifecycle, behind the gate, in one transaction
 *   4 remove   our name is unlinked, and the directory synchronised
 *
 * A successor finds any of these done, and does the rest: it moves a file on that an older fence has moved, does not settle what is
 * settled, and does not miss what is removed. A predecessor that wakes up changes nothing: its name has moved on, the gate refuses
 * it, and it unlinks no name but its own. A file that was not there at all is told: the settlement says `missing`, and so does the
 * outcome; the account gets back what the database says the file had. Where there is no file at all, nothing is believed to be
 * missing: FATAL file_root_empty. (Whose lease was taken over meanwhile is told so first. A root that may become empty by right wants
 * a file in it that stays.)
 *
 * May be run again with the same grant, from any point. Thread safe. */
#ifndef LEASE_FILE_EFFECT_H
#define LEASE_FILE_EFFECT_H

#include "common/error.h"
#include "worker/effects/file_root.h"
#include "worker/effects/file_store.h"

#include <stdbool.h>
#include <stdint.h>

/* Both are borrowed for as long as they are used. */
struct file_effect {
    const struct file_root *root;
    struct file_store *store;
    /* Is the lease still ours? Asked before each step; the first "no" is the end. */
    bool (*is_mine)(void *context);
};

enum file_verdict {
    FILE_REMOVED,
    FILE_MISSING, /* settled, but the file was not there */
    FILE_STALE,   /* the gate refused: somebody else has the file */
    FILE_UNKNOWN, /* the file server has no such file */
    FILE_LOST,    /* is_mine said no */
};

struct file_outcome {
    enum file_verdict verdict;
    int64_t bytes;      /* that the account got back; removed and missing only */
    int64_t settled_by; /* the fence that settled; likewise */
};

/* After an error (RETRY: the database or the disk was away) nothing is known but that it may be run again. */
bool file_effect_run(const struct file_effect *effect, const struct file_grant *grant, void *context,
                     struct file_outcome *ret_outcome, struct error *error) MUST_USE;

/* "removed", "missing", "stale", "unknown", "lost". */
const char *file_verdict_name(enum file_verdict verdict);

#endif
