/* leasectl: parses the command line, finds the command in the table, runs it. */
#include "coordinator/cli/commands.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum { COMMANDS_MAX = 32 };

static const struct argument_option common_options[] = {
    {"output", 'o', "FORMAT", "table (for people), json (one array or object) or jsonl (one object per line)"},
    {"help", 'h', NULL, "show this"},
    {0},
};

/* ---- help ---- */

static void print_overview(FILE *file) {
    fputs("leasectl – operate Leasehold: its schema, its topics, its leases\n"
          "\n"
          "Usage: leasectl COMMAND [ARGUMENTS] [OPTIONS]\n"
          "\n"
          "Commands:\n",
          file);
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        fprintf(file, "  %-10s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    fputs("\n"
          "'leasectl COMMAND --help' teaches each of them, with examples; --version says which one this is, --show-config which\n"
          "settings it takes and where each comes from.\n"
          "\n"
          "Settings, for every command:\n",
          file);
    struct buf help = BUF_INIT;
    options_help(OPTIONS_LEASECTL, &help);
    fputs(buf_text(&help), file);
    buf_release(&help);
    fputs("\n"
          "stdout carries data only, messages go to stderr. Exit codes: 0 yes or done, 1 no (refused, not found, differs),\n"
          "64 usage, 65 data, 69 server unavailable, 70 internal, 75 try again, 77 permission, 78 configuration.\n"
          "NO_COLOR, or an output that is no terminal, makes it plain.\n",
          file);
}

static void print_help(const struct cli_command *command, FILE *file) {
    fprintf(file, "leasectl %s – %s\n\nUsage: leasectl %s%s%s\n\n%s\n", command->name, command->summary, command->name,
            command->usage[0] ? " " : "", command->usage, command->help);
    struct buf text = BUF_INIT;
    if (command->options != NULL && command->options[0].name != NULL) {
        buf_append_text(&text, "Options:\n");
        arguments_format_options(command->options, &text);
        buf_append_text(&text, "\n");
    }
    buf_append_text(&text, "Common options (and the settings that 'leasectl --help' lists):\n");
    arguments_format_options(common_options, &text);
    fprintf(file, "%s\nExamples:\n%s", buf_text(&text), command->examples);
    buf_release(&text);
}

/* ---- finding the command ---- */

static bool is_option(const char *word) {
    return word[0] == '-' && word[1] != '\0';
}

/* How many of the words name this command; 0: another one. */
static int match(const struct cli_command *command, int count, char *const *words) {
    const char *space = strchr(command->name, ' ');
    size_t first = space ? (size_t)(space - command->name) : strlen(command->name);
    if (count == 0 || strlen(words[0]) != first || memcmp(words[0], command->name, first) != 0)
        return 0;
    if (space == NULL)
        return 1;
    return count > 1 && strcmp(words[1], space + 1) == 0 ? 2 : 0;
}

static const struct cli_command *find_command(int count, char *const *words, int *ret_used) {
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        *ret_used = match(cli_commands[i], count, words);
        if (*ret_used > 0)
            return cli_commands[i];
    }
    return NULL;
}

static enum cli_exit refuse_unknown(struct cli *cli, const char *word) {
    const char *names[COMMANDS_MAX];
    size_t count = 0;
    for (size_t i = 0; cli_commands[i] != NULL && count < COMMANDS_MAX; i++) {
        names[count++] = cli_commands[i]->name;
        if (strncmp(cli_commands[i]->name, word, strlen(word)) == 0 && cli_commands[i]->name[strlen(word)] == ' ')
            return cli_fail(cli, CLI_USAGE, "'leasectl --help' lists the commands", "did you mean 'leasectl %s'?",
                            cli_commands[i]->name);
    }
    const char *nearest = arguments_nearest(word, names, count);
    return cli_fail(cli, CLI_USAGE, "'leasectl --help' lists the commands", "there is no command '%s'%s%s%s", word,
                    nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

/* ---- running it ---- */

static bool is_colored(void) {
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return isatty(STDOUT_FILENO) && (no_color == NULL || no_color[0] == '\0') &&
           (terminal == NULL || strcmp(terminal, "dumb") != 0);
}

static bool check_arguments(struct cli *cli, struct error *error) {
    const char *format = arguments_text(&cli->arguments, "output");
    size_t words = cli->arguments.word_count;
    if (format != NULL && !output_format_parse(format, &cli->format))
        return error_set(error, ERROR_REJECT, "usage", "--output wants table, json or jsonl, not '%s'", format);
    if (words < cli->command->words_least)
        return error_set(error, ERROR_REJECT, "usage", "something is missing: leasectl %s %s", cli->command->name,
                         cli->command->usage);
    if (words > cli->command->words_most)
        return error_set(error, ERROR_REJECT, "usage", "'%s' is too much: leasectl %s %s",
                         cli->arguments.words[cli->command->words_most], cli->command->name, cli->command->usage);
    return true;
}

static enum cli_exit run_command(struct cli *cli, int count, char *const *words) {
    struct error error;
    if (!arguments_parse(&cli->arguments, count, words, cli->command->options, common_options, &error))
        return cli_fail_usage(cli, &error);
    if (!check_arguments(cli, &error))
        return cli_fail_usage(cli, &error);
    return cli->command->run(cli);
}

static enum cli_exit show_help(struct cli *cli, int count, char *const *words) {
    int used = 0;
    if (count == 0) {
        print_overview(cli->out);
        return CLI_YES;
    }
    const struct cli_command *command = find_command(count, words, &used);
    if (command == NULL)
        return refuse_unknown(cli, words[0]);
    print_help(command, cli->out);
    return CLI_YES;
}

/* Settings may stand before the command, and a broken one must not keep anybody from reading help. */
static enum cli_exit show_help_somewhere(struct cli *cli, int count, char *const *words) {
    int used = 0;
    for (int i = 0; i < count; i++)
        if (find_command(count - i, words + i, &used) != NULL)
            return show_help(cli, count - i, words + i);
    return count > 0 && !is_option(words[0]) ? refuse_unknown(cli, words[0]) : show_help(cli, 0, NULL);
}

static enum cli_exit show_settings(struct cli *cli) {
    struct buf text = BUF_INIT;
    options_show(&cli->options, &text);
    fputs(buf_text(&text), cli->out);
    buf_release(&text);
    return CLI_YES;
}

static enum cli_exit dispatch(struct cli *cli, int count, char *const *words) {
    int used = 0;
    if (count == 0) {
        print_overview(cli->err);
        return CLI_USAGE;
    }
    if (strcmp(words[0], "help") == 0)
        return show_help(cli, count - 1, words + 1);
    if (strcmp(words[0], "--show-config") == 0)
        return show_settings(cli);
    if (is_option(words[0]))
        return cli_fail(cli, CLI_USAGE, "'leasectl --help' lists the commands", "the command comes first, then '%s'", words[0]);
    cli->command = find_command(count, words, &used);
    if (cli->command == NULL)
        return refuse_unknown(cli, words[0]);
    return run_command(cli, count - used, words + used);
}

/* Is one of the two on the line, before a "--"? */
static bool is_on_line(int count, char *const *words, const char *name, const char *letter) {
    for (int i = 0; i < count && strcmp(words[i], "--") != 0; i++)
        if (strcmp(words[i], name) == 0 || strcmp(words[i], letter) == 0)
            return true;
    return false;
}

static enum cli_exit run_line(struct cli *cli, int argc, char **argv) {
    struct error error;
    if (is_on_line(argc - 1, argv + 1, "--help", "-h"))
        return show_help_somewhere(cli, argc - 1, argv + 1);
    if (is_on_line(argc - 1, argv + 1, "--version", "-V")) {
        fprintf(cli->out, "leasectl %s\n", LEASE_VERSION);
        return CLI_YES;
    }
    if (!options_load(&cli->options, OPTIONS_LEASECTL, &argc, argv, environ, &error))
        return cli_fail_with(cli, &error);
    enum cli_exit code = dispatch(cli, argc - 1, argv + 1);
    options_release(&cli->options);
    return code;
}

int main(int argc, char **argv) {
    struct cli cli = {.out = stdout, .err = stderr, .format = OUTPUT_TABLE, .colored = is_colored()};
    signal(SIGPIPE, SIG_DFL); /* `| head` ends us quietly */
    enum cli_exit code = run_line(&cli, argc, argv);
    /* Data that could not be written was not delivered: a full disk must not look like success. */
    if (fflush(stdout) != 0 || ferror(stdout))
        return code == CLI_YES ? (int)CLI_SOFTWARE : (int)code;
    return (int)code;
}
