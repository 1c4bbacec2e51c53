/* Which contracts a settlement is over: those that were named, or all that the database has. Types in their order, contracts in the order
 * of their names. */
#ifndef LEASE_ROYALTY_CONTRACTS_H
#define LEASE_ROYALTY_CONTRACTS_H

#include "common/error.h"
#include "worker/royalty/store.h"

#include <stdbool.h>
#include <stddef.h>

enum { CONTRACT_TYPES = 3 };

/* In the order of a settlement, which is that of their names. */
extern const char *const contract_types[CONTRACT_TYPES];

struct contracts {
    char **names; /* '<type>/<contract>', sorted, each once */
    size_t count; /* 0: all there are */
};

/* Of a list joined by commas; NULL: all. FATAL configuration for what is no contract. Zeroed on failure. */
bool contracts_parse(struct contracts *contracts, const char *list, struct error *error) MUST_USE;
void contracts_release(struct contracts *contracts);

/* All names joined by commas, or those of one type without it; NULL for all there are. free() it. */
char *contracts_join(const struct contracts *contracts, const char *type);
/* Is there any of that type? */
bool contracts_have(const struct contracts *contracts, const char *type);

/* Lists all contracts of the database, a page at a time. Begin with one that has nothing but the store; release it at the end. */
struct contracts_listing {
    struct royalty_store *store;
    size_t type;
    struct royalty_rows *rows;
    size_t row;
    char behind[TALLY_CONTRACT_SIZE];
    char name[TALLY_CONTRACT_SIZE + 32];
    struct error error;
};
/* The next name, borrowed until the next call; NULL: there is no more, or `error` is set. */
const char *contracts_next(struct contracts_listing *listing);
void contracts_listing_release(struct contracts_listing *listing);

#endif
