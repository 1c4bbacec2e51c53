/* Looks up what the build put in; see embedded.h. */
#include "coordinator/cli/embedded.h"

#include <assert.h>
#include <string.h>

const char *embedded_query(const char *name) {
    size_t size = strlen(name);
    for (size_t i = 0; i < embedded_queries_count; i++)
        if (strncmp(embedded_queries[i].name, name, size) == 0 && strcmp(embedded_queries[i].name + size, ".sql") == 0)
            return embedded_queries[i].text;
    assert(!"no such query");
    return "";
}
