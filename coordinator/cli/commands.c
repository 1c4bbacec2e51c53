/* The one table of leasectl's commands: dispatch, help and the tests go through it. */
#include "coordinator/cli/commands.h"

const struct cli_command *const cli_commands[] = {
    &command_migrate, &command_topics,   &command_send,   &command_tail, &command_ls,
    &command_show,    &command_timeline, &command_line,   &command_edits, &command_cases,
    &command_resolve, &command_dlq_ls,   &command_jump,   NULL,
};
