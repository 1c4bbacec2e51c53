/* Tokens; see token.h. A keyed context is made once per key and duplicated per use: that costs about a microsecond,
 * needs no lock, and the key is expanded only once. */
#include "common/token.h"

#include "common/buf.h"

#include <assert.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdlib.h>
#include <string.h>

enum { TOKEN_BYTES = (LEASE_TOKEN_TEXT_SIZE - 1) / 2 };

struct token_keys {
    EVP_MAC *hmac;
    EVP_MAC_CTX *current;
    EVP_MAC_CTX *previous; /* NULL: none */
};

static EVP_MAC_CTX *keyed_context(EVP_MAC *hmac, const void *key, size_t size) {
    char digest[] = "SHA256";
    OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                               OSSL_PARAM_construct_end()};
    EVP_MAC_CTX *context = memory_or_exit(EVP_MAC_CTX_new(hmac));
    if (EVP_MAC_init(context, key, size, parameters) == 1)
        return context;
    EVP_MAC_CTX_free(context);
    return NULL;
}

bool token_keys_new(const void *current, size_t current_size, const void *previous, size_t previous_size,
                    struct token_keys **ret_keys, struct error *error) {
    if (current == NULL || current_size < TOKEN_KEY_MIN)
        return error_set(error, ERROR_FATAL, "token_key_short", "the token key has fewer than %d bytes", TOKEN_KEY_MIN);
    if (previous != NULL && previous_size < TOKEN_KEY_MIN)
        return error_set(error, ERROR_FATAL, "token_key_short", "the previous token key has fewer than %d bytes",
                         TOKEN_KEY_MIN);

    struct token_keys *keys = memory_alloc(sizeof *keys);
    keys->hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    if (keys->hmac != NULL) {
        keys->current = keyed_context(keys->hmac, current, current_size);
        if (previous != NULL)
            keys->previous = keyed_context(keys->hmac, previous, previous_size);
    }
    if (keys->current == NULL || (previous != NULL && keys->previous == NULL)) {
        token_keys_free(keys);
        return error_set(error, ERROR_FATAL, "token_hmac", "the crypto library offers no HMAC-SHA256");
    }
    *ret_keys = keys;
    return true;
}

void token_keys_free(struct token_keys *keys) {
    if (keys == NULL)
        return;
    EVP_MAC_CTX_free(keys->current); /* wipes its key */
    EVP_MAC_CTX_free(keys->previous);
    EVP_MAC_free(keys->hmac);
    free(keys);
}

static void derive(const EVP_MAC_CTX *keyed, const struct claim_id *claim_id,
                   char ret_text[static LEASE_TOKEN_TEXT_SIZE]) {
    static const char hex[] = "0123456789abcdef";
    unsigned char bytes[TOKEN_BYTES];
    size_t size = 0;
    EVP_MAC_CTX *context = memory_or_exit(EVP_MAC_CTX_dup(keyed));
    int is_done = EVP_MAC_update(context, claim_id->bytes, sizeof claim_id->bytes) == 1 &&
                  EVP_MAC_final(context, bytes, &size, sizeof bytes) == 1;
    EVP_MAC_CTX_free(context);
    assert(is_done && size == sizeof bytes); /* a keyed HMAC over 16 bytes can only fail for want of memory */
    (void)is_done;
    for (size_t i = 0; i < sizeof bytes; i++) {
        ret_text[2 * i] = hex[bytes[i] >> 4];
        ret_text[2 * i + 1] = hex[bytes[i] & 15];
    }
    ret_text[2 * sizeof bytes] = '\0';
    OPENSSL_cleanse(bytes, sizeof bytes);
}

void token_derive(const struct token_keys *keys, const struct claim_id *claim_id,
                  char ret_text[static LEASE_TOKEN_TEXT_SIZE]) {
    derive(keys->current, claim_id, ret_text);
}

bool token_is_well_formed(const char *text, size_t size) {
    if (size != LEASE_TOKEN_TEXT_SIZE - 1)
        return false;
    for (size_t i = 0; i < size; i++)
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
            return false;
    return true;
}

bool token_fits(const struct token_keys *keys, const struct claim_id *claim_id, const char *text) {
    /* A fixed-size copy, so that a short text is compared over the same bytes as a long one. */
    char sent[LEASE_TOKEN_TEXT_SIZE] = {0};
    size_t size = strnlen(text, sizeof sent);
    memcpy(sent, text, size < sizeof sent ? size : sizeof sent - 1);

    char right[LEASE_TOKEN_TEXT_SIZE];
    derive(keys->current, claim_id, right);
    int differs_from_current = CRYPTO_memcmp(sent, right, sizeof right);
    derive(keys->previous != NULL ? keys->previous : keys->current, claim_id, right);
    int differs_from_previous = CRYPTO_memcmp(sent, right, sizeof right);
    OPENSSL_cleanse(right, sizeof right);
    OPENSSL_cleanse(sent, sizeof sent);
    return size == sizeof sent - 1 && ((differs_from_current == 0) | (differs_from_previous == 0));
}

void token_wipe(void *bytes, size_t size) {
    OPENSSL_cleanse(bytes, size);
}
