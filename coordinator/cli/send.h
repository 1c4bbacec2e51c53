/* A command that another command of leasectl has composed, sent as `leasectl send` sends one, and its answer. */
#ifndef LEASE_CLI_SEND_H
#define LEASE_CLI_SEND_H

#include "coordinator/cli/cli.h"
#include "coordinator/cli/compose.h"

/* type, subject and data of `compose`, which is released; id and source are made here. Waits wait_ms for the answer and prints it:
 * CLI_NO for a refusal. */
enum cli_exit send_composed(struct cli *cli, const struct compose *compose, int64_t wait_ms);

#endif
