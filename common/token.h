/* The secret that goes with a grant: token = HMAC-SHA256(coordinator's key, the claim id's 16 bytes), in lower-case
 * hexadecimal. Derived when a grant is published and when a holder's command is checked, and stored nowhere
 * (ARCHITECTURE.md, "Why it is so").
 *
 * Rotation: every coordinator accepts the new key (as current or previous) before one derives with it; the old one
 * stays as `previous` while a live lease is older than the change.
 *
 * A struct token_keys is read-only once made: any number of threads may use one. Never log what this returns. */
#ifndef LEASE_TOKEN_H
#define LEASE_TOKEN_H

#include "common/error.h"
#include "common/lease.h"

#include <stdbool.h>
#include <stddef.h>

enum { TOKEN_KEY_MIN = 32 }; /* bytes: what the digest gives, so the key is not the weakest part */

struct token_keys;

/* `previous` may be NULL. FATAL token_key_short when a key has fewer than TOKEN_KEY_MIN bytes. The keys are copied;
 * the caller wipes its own. */
bool token_keys_new(const void *current, size_t current_size, const void *previous, size_t previous_size,
                    struct token_keys **ret_keys, struct error *error) MUST_USE;
void token_keys_free(struct token_keys *keys); /* NULL allowed; wipes */

/* The token of a claim id under the current key. The caller wipes ret_text (token_wipe) when it has been used. */
void token_derive(const struct token_keys *keys, const struct claim_id *claim_id,
                  char ret_text[static LEASE_TOKEN_TEXT_SIZE]);

/* Does the text (NUL-terminated) equal the claim id's token under the current or the previous key? Compares in
 * constant time, and always with both keys. */
bool token_fits(const struct token_keys *keys, const struct claim_id *claim_id, const char *text);

/* 64 lower-case hexadecimal digits? (Form only.) */
bool token_is_well_formed(const char *text, size_t size);

/* Overwrites, in a way that the compiler keeps. */
void token_wipe(void *bytes, size_t size);

#endif
