/* Files that the build puts into the program (embed.cmake): every .sql below sql/, and leasectl's own queries. */
#ifndef LEASE_CLI_EMBEDDED_H
#define LEASE_CLI_EMBEDDED_H

#include <stddef.h>

struct embedded_file {
    const char *name; /* path below its folder: "functions/R__apply.sql" */
    const char *text; /* NUL behind, not counted */
    size_t size;
};

extern const struct embedded_file embedded_sql[];
extern const size_t embedded_sql_count;

extern const struct embedded_file embedded_queries[];
extern const size_t embedded_queries_count;

/* The text of coordinator/cli/queries/<name>.sql; a missing one is a bug. */
const char *embedded_query(const char *name);

#endif
