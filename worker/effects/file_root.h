/* The directory beneath which files are removed, and the two things that are done to a file there: it is moved to a name that
 * carries a fence, and that name is removed.
 *
 * A name is a path beneath the root ("a1/f17"). Nothing outside is ever reached: each is resolved by openat2 with RESOLVE_BENEATH
 * and RESOLVE_NO_SYMLINKS, and what lies at its end must be a regular file. Names with "." or ".." in them, absolute ones, and those
 * that cannot take a fence behind them are refused before the kernel sees them.
 *
 * Moves only lead from a name, or from one with a lower fence, to one with a higher: `a1/f17` → `a1/f17.~41` → `a1/f17.~57`.
 * So whoever looks in that order and finds nothing knows that nothing was there, or that a higher fence has it.
 *
 * Errors: REJECT where the name will not do (codes file_name, file_link, file_not_regular, file_outside; file_denied), RETRY for what the
 * disk may get over, FATAL where this machine cannot do it at all (file_kernel, file_root, file_system).
 * Thread safe: the root is only read. Knows neither leases nor the database. */
#ifndef LEASE_FILE_ROOT_H
#define LEASE_FILE_ROOT_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_root;

/* The directory must be there. FATAL file_kernel on a kernel without openat2 (before Linux 5.6, or a container that forbids it). */
bool file_root_open(const char *path, struct file_root **ret_root, struct error *error) MUST_USE;
void file_root_free(struct file_root *root); /* NULL allowed */

/* Is there nothing at all? Then it is not the directory that was meant, but a place where nothing is mounted: FATAL
 * file_root_empty. Any entry will do; where all files may go by right, put one there that stays (".mounted"). */
bool file_root_check_not_empty(const struct file_root *root, struct error *error) MUST_USE;

/* Moves the file to its name with `fence`, from wherever it is: under its own name, or moved by one of `earlier` (fences, rising, all
 * below `fence`). *ret_is_there is false if it is under none of them; it may be at `fence` already. */
bool file_root_move(const struct file_root *root, const char *name, int64_t fence, const int64_t *earlier, size_t earlier_count,
                    bool *ret_is_there, struct error *error) MUST_USE;

/* Removes the name with `fence`, and no other. That nothing is there is as good; in any case nothing will be there after a loss of
 * power (the directory is synchronised). */
bool file_root_remove(const struct file_root *root, const char *name, int64_t fence, struct error *error) MUST_USE;

/* Removes a name that no fence was put on: one that the file had before it was written anew. Likewise. */
bool file_root_remove_former(const struct file_root *root, const char *name, struct error *error) MUST_USE;

#endif
