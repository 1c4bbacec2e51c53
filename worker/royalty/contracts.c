/* Names and listings of contracts; see contracts.h. */
#include "worker/royalty/contracts.h"

#include "common/buf.h"
#include "common/event_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 10000 };

const char *const contract_types[CONTRACT_TYPES] = {"album-contract", "track-contract", "video-contract"};

/* ---- named ---- */

static bool is_of_type(const char *name, const char *type) {
    size_t size = strlen(type);
    return strncmp(name, type, size) == 0 && name[size] == '/';
}

static bool is_contract(const char *name) {
    size_t size = strlen(name);
    if (event_text_resource((struct slice){name, size}) != EVENT_REASON_NONE)
        return false;
    for (size_t i = 0; i < CONTRACT_TYPES; i++)
        if (is_of_type(name, contract_types[i]))
            return size - strlen(contract_types[i]) - 1 < TALLY_CONTRACT_SIZE;
    return false;
}

static int compare(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static void sort(struct contracts *contracts) {
    size_t kept = 0;
    qsort(contracts->names, contracts->count, sizeof *contracts->names, compare);
    for (size_t i = 0; i < contracts->count; i++) {
        if (kept > 0 && strcmp(contracts->names[kept - 1], contracts->names[i]) == 0)
            free(contracts->names[i]);
        else
            contracts->names[kept++] = contracts->names[i];
    }
    contracts->count = kept;
}

bool contracts_parse(struct contracts *contracts, const char *list, struct error *error) {
    *contracts = (struct contracts){0};
    for (const char *at = list; at != NULL;) {
        size_t size = strcspn(at, ",");
        contracts->names = memory_resize(contracts->names, contracts->count + 1, sizeof *contracts->names);
        contracts->names[contracts->count++] = memory_copy_bytes(at, size);
        if (!is_contract(contracts->names[contracts->count - 1])) {
            error_set(error, ERROR_FATAL, "configuration", "contracts: '%.150s' is no contract: <type>/<name>",
                      contracts->names[contracts->count - 1]);
            contracts_release(contracts);
            return false;
        }
        at = at[size] == ',' ? at + size + 1 : NULL;
    }
    if (contracts->count > 0)
        sort(contracts);
    return true;
}

void contracts_release(struct contracts *contracts) {
    for (size_t i = 0; i < contracts->count; i++)
        free(contracts->names[i]);
    free(contracts->names);
    *contracts = (struct contracts){0};
}

char *contracts_join(const struct contracts *contracts, const char *type) {
    struct buf joined = BUF_INIT;
    if (contracts->count == 0)
        return NULL;
    for (size_t i = 0; i < contracts->count; i++) {
        if (type != NULL && !is_of_type(contracts->names[i], type))
            continue;
        if (joined.size > 0)
            buf_append_byte(&joined, ',');
        buf_append_text(&joined, contracts->names[i] + (type != NULL ? strlen(type) + 1 : 0));
    }
    return buf_take(&joined, NULL);
}

bool contracts_have(const struct contracts *contracts, const char *type) {
    for (size_t i = 0; i < contracts->count; i++)
        if (is_of_type(contracts->names[i], type))
            return true;
    return contracts->count == 0;
}

/* ---- listed ---- */

/* The next page that has a row; false: there is none, or an error. */
static bool turn_page(struct contracts_listing *listing) {
    royalty_rows_free(listing->rows);
    listing->rows = NULL;
    listing->row = 0;
    while (listing->type < CONTRACT_TYPES) {
        if (!royalty_store_contracts(listing->store, contract_types[listing->type], listing->behind, PAGE, &listing->rows,
                                     &listing->error))
            return false;
        if (royalty_rows_count(listing->rows) > 0)
            return true;
        royalty_rows_free(listing->rows);
        listing->rows = NULL;
        listing->behind[0] = '\0';
        listing->type++;
    }
    return false;
}

const char *contracts_next(struct contracts_listing *listing) {
    if ((listing->rows == NULL || listing->row == royalty_rows_count(listing->rows)) && !turn_page(listing))
        return NULL;
    snprintf(listing->behind, sizeof listing->behind, "%s", royalty_rows_contract(listing->rows, listing->row++));
    snprintf(listing->name, sizeof listing->name, "%s/%s", contract_types[listing->type], listing->behind);
    return listing->name;
}

void contracts_listing_release(struct contracts_listing *listing) {
    royalty_rows_free(listing->rows);
    listing->rows = NULL;
}
