/* The commands, one to a file; commands.c lists them in the order in which help shows them. */
#ifndef LEASE_CLI_COMMANDS_H
#define LEASE_CLI_COMMANDS_H

#include "coordinator/cli/cli.h"

extern const struct cli_command command_migrate;
extern const struct cli_command command_topics;
extern const struct cli_command command_send;
extern const struct cli_command command_tail;
extern const struct cli_command command_ls;
extern const struct cli_command command_show;
extern const struct cli_command command_timeline;
extern const struct cli_command command_line;
extern const struct cli_command command_edits;
extern const struct cli_command command_dlq_ls;
extern const struct cli_command command_jump;
extern const struct cli_command command_cases;
extern const struct cli_command command_resolve;

#endif
