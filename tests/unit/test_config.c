/* config: who wins, what is refused and with which words, and that no secret shows anywhere. A small table of its own. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/config.h"

enum { MAIN = 1, OTHER = 2 };

struct target {
    const char *name;
    const char *database;
    const char *token_key;
    const char *elsewhere;
    const char *config;
    int64_t lanes;
    bool throwaway;
    int colour;
};

static bool check_name(const char *value, struct error *error) {
    return strchr(value, '!') == NULL || error_set(error, ERROR_FATAL, "configuration", "no shouting");
}

static const char *const colours[] = {"red", "green", NULL};

#define FIELD(field) .key = #field, .offset = offsetof(struct target, field)

static const struct config_row rows[] = {
    {FIELD(name), .type = CONFIG_TEXT, .minimum = 1, .maximum = 20, .programs = MAIN | OTHER, .required = OTHER,
     .initial = "nobody", .check = check_name, .help = "who"},
    {FIELD(database), .type = CONFIG_TEXT, .minimum = 1, .maximum = 1000, .programs = MAIN, .secrecy = CONFIG_SECRET,
     .help = "where"},
    {FIELD(token_key), .type = CONFIG_TEXT, .minimum = 8, .maximum = 100, .programs = MAIN,
     .secrecy = CONFIG_SECRET_NO_FLAG, .help = "key"},
    {FIELD(elsewhere), .type = CONFIG_TEXT, .minimum = 1, .maximum = 20, .programs = OTHER, .help = "not MAIN's"},
    {FIELD(lanes), .type = CONFIG_NUMBER, .minimum = 1, .maximum = 16, .programs = MAIN, .initial = "2", .help = "many|few"},
    {FIELD(throwaway), .type = CONFIG_BOOL, .programs = MAIN, .initial = "false", .help = "lose it"},
    {FIELD(colour), .type = CONFIG_CHOICE, .choices = colours, .programs = MAIN, .initial = "red", .help = "of the shed"},
    {FIELD(config), .type = CONFIG_TEXT, .minimum = 1, .maximum = 4096, .programs = MAIN | OTHER, .help = "file"},
};

static bool property_check(const char *name, const char *value, struct error *error) {
    (void)value;
    return strcmp(name, "acks") != 0 || error_set(error, ERROR_FATAL, "kafka_key_protocol", "acks is the protocol's");
}

static bool property_is_secret(const char *name) {
    return strcmp(name, "sasl.password") == 0;
}

static const char *const ignored[] = {"LEASE_TEST_", NULL};

static const struct config_schema schema = {
    .program = "test", .program_bit = MAIN, .rows = rows, .row_count = sizeof rows / sizeof *rows, .ignored = ignored,
    .property_check = property_check, .property_is_secret = property_is_secret};
static const struct config_schema other_schema = {
    .program = "other", .program_bit = OTHER, .rows = rows, .row_count = sizeof rows / sizeof *rows, .ignored = ignored,
    .property_check = property_check, .property_is_secret = property_is_secret};

enum { ARGUMENTS_MAX = 12 };

struct fixture {
    struct config *config;
    struct target target;
    struct error error;
    char *argv[ARGUMENTS_MAX];
    int argc;
    char folder[64];
    char path[128]; /* of the configuration file */
};

static int set_up(void **state) {
    struct fixture *fixture = calloc(1, sizeof *fixture);
    strcpy(fixture->folder, "/tmp/lease-config-XXXXXX");
    if (fixture == NULL || mkdtemp(fixture->folder) == NULL)
        return -1;
    snprintf(fixture->path, sizeof fixture->path, "%s/lease.conf", fixture->folder);
    *state = fixture;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *fixture = *state;
    config_free(fixture->config);
    for (int i = 0; i < ARGUMENTS_MAX; i++)
        free(fixture->argv[i]);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", fixture->folder);
    int failure = system(command);
    free(fixture);
    return failure;
}

/* For tests of several cases. */
static struct fixture *start_again(void **state) {
    tear_down(state);
    assert_int_equal(set_up(state), 0);
    return *state;
}

static void write_file(struct fixture *fixture, const char *name, mode_t mode, const char *text, size_t size) {
    char path[192];
    snprintf(path, sizeof path, "%s/%s", fixture->folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

static const char *path_of(struct fixture *fixture, const char *name, char path[static 192]) {
    snprintf(path, 192, "%s/%s", fixture->folder, name);
    return path;
}

/* `text` is the file (NULL: none), the rest are flags up to NULL. */
static bool load_as(struct fixture *fixture, const struct config_schema *program, const char *text,
                    char *const *environment, va_list flags) {
    fixture->argv[fixture->argc++] = strdup("test");
    for (const char *flag; (flag = va_arg(flags, const char *)) != NULL;)
        fixture->argv[fixture->argc++] = strdup(flag);
    if (text != NULL) {
        write_file(fixture, "lease.conf", 0600, text, strlen(text));
        fixture->argv[fixture->argc++] = strdup("--config");
        fixture->argv[fixture->argc++] = strdup(fixture->path);
    }
    char *pointers[ARGUMENTS_MAX + 1] = {0};
    memcpy(pointers, fixture->argv, sizeof fixture->argv);
    int argc = fixture->argc;
    config_free(fixture->config);
    fixture->config = config_new(program);
    return config_take_flags(fixture->config, &argc, pointers, &fixture->error) &&
           config_refuse_rest(fixture->config, argc, pointers, &fixture->error) &&
           config_read_environment(fixture->config, environment, &fixture->error) &&
           config_read_file(fixture->config, &fixture->error) &&
           config_store(fixture->config, &fixture->target, &fixture->error);
}

static bool load(struct fixture *fixture, const char *text, char *const *environment, ...) __attribute__((sentinel));

static bool load(struct fixture *fixture, const char *text, char *const *environment, ...) {
    va_list flags;
    va_start(flags, environment);
    bool is_loaded = load_as(fixture, &schema, text, environment, flags);
    va_end(flags);
    return is_loaded;
}

#define NO_ENVIRONMENT ((char *[]){NULL})

/* The message without the temporary folder's name. */
static void assert_refused(struct fixture *fixture, bool is_loaded, const char *code, const char *message) {
    if (is_loaded)
        fail_msg("accepted, expected: %s", message);
    assert_string_equal(fixture->error.code, code);
    char got[600];
    snprintf(got, sizeof got, "%s", fixture->error.message);
    char *folder;
    while ((folder = strstr(got, fixture->folder)) != NULL)
        memmove(folder, folder + strlen(fixture->folder) + 1, strlen(folder + strlen(fixture->folder)));
    assert_string_equal(got, message);
}

static void test_config__defaults_hold_where_nothing_is_said(void **state) {
    struct fixture *fixture = *state;
    assert_true(load(fixture, NULL, NO_ENVIRONMENT, NULL));
    assert_string_equal(fixture->target.name, "nobody");
    assert_null(fixture->target.database);
    assert_int_equal(fixture->target.lanes, 2);
    assert_false(fixture->target.throwaway);
    assert_int_equal(fixture->target.colour, 0);
}

static void test_config__flags_beat_environment_beats_file(void **state) {
    struct fixture *fixture = *state;
    char *environment[] = {"LEASE_NAME=env", "LEASE_LANES=5", "PATH=/bin", NULL};
    assert_true(load(fixture, "name = file\nlanes = 7\ncolour = green\n", environment, "--name=flag", NULL));
    assert_string_equal(fixture->target.name, "flag");
    assert_int_equal(fixture->target.lanes, 5);
    assert_int_equal(fixture->target.colour, 1);
}

static void test_config__the_environment_can_name_the_file(void **state) {
    struct fixture *fixture = *state;
    write_file(fixture, "lease.conf", 0644, "lanes = 9\n", 10);
    char variable[256];
    snprintf(variable, sizeof variable, "LEASE_CONFIG=%s", fixture->path);
    char *environment[] = {variable, NULL};
    assert_true(load(fixture, NULL, environment, NULL));
    assert_int_equal(fixture->target.lanes, 9);
}

static void test_config__flags_come_in_both_forms(void **state) {
    struct fixture *fixture = *state;
    assert_true(load(fixture, NULL, NO_ENVIRONMENT, "--lanes", "3", "--throwaway", "--name=a=b", "--colour", "green", NULL));
    assert_int_equal(fixture->target.lanes, 3);
    assert_true(fixture->target.throwaway);
    assert_string_equal(fixture->target.name, "a=b");
    assert_int_equal(fixture->target.colour, 1);
}

static void test_config__a_bool_flag_can_be_given_a_value(void **state) {
    struct fixture *fixture = *state;
    char *environment[] = {"LEASE_THROWAWAY=1", NULL};
    assert_true(load(fixture, NULL, environment, "--throwaway=false", NULL));
    assert_false(fixture->target.throwaway);
    fixture = start_again(state);
    assert_true(load(fixture, NULL, environment, NULL));
    assert_true(fixture->target.throwaway);
}

static void test_config__flags_of_others_stay_in_order(void **state) {
    struct fixture *fixture = *state;
    char *argv[] = {"test", "ls", "--lanes", "3", "-o", "json", "--name=n", "x", "--", "--lanes", NULL};
    int argc = 10;
    fixture->config = config_new(&schema);
    assert_true(config_take_flags(fixture->config, &argc, argv, &fixture->error));
    static const char *const wanted[] = {"test", "ls", "-o", "json", "x", "--", "--lanes"};
    assert_int_equal(argc, 7);
    for (int i = 0; i < argc; i++)
        assert_string_equal(argv[i], wanted[i]);
    assert_null(argv[argc]);
}

static void test_config__an_empty_variable_is_not_set(void **state) {
    struct fixture *fixture = *state;
    char *environment[] = {"LEASE_NAME=", "LEASE_LANES=", NULL};
    assert_true(load(fixture, NULL, environment, NULL));
    assert_string_equal(fixture->target.name, "nobody");
}

static void test_config__keys_of_another_program_are_overlooked_but_not_as_flags(void **state) {
    struct fixture *fixture = *state;
    char *environment[] = {"LEASE_ELSEWHERE=x", NULL};
    assert_true(load(fixture, "elsewhere = y\n", environment, NULL));
    assert_null(fixture->target.elsewhere);
    fixture = start_again(state);
    assert_refused(fixture, load(fixture, NULL, NO_ENVIRONMENT, "--elsewhere", "z", NULL), "usage",
                   "unknown key --elsewhere, the nearest known one is --lanes");
}

/* One row per way to be wrong: file, environment, flags → code, message. */
static void test_config__what_is_wrong_is_named_with_key_value_and_range(void **state) {
    static const struct {
        const char *file, *variable, *flag, *value, *code, *message;
    } cases[] = {
        {"nmae = x\n", NULL, NULL, NULL, "configuration", "lease.conf:1: unknown key nmae, the nearest known one is name"},
        {NULL, "LEASE_LANSE=3", NULL, NULL, "configuration",
         "environment: unknown key LEASE_LANSE, the nearest known one is LEASE_LANES"},
        {NULL, NULL, "--lane", "3", "usage", "unknown key --lane, the nearest known one is --lanes"},
        {NULL, NULL, "--trow-away=1", NULL, "usage", "unknown key --trow-away, the nearest known one is --throwaway"},
        {NULL, NULL, "--token_key", "x", "usage", "unknown key --token_key, the nearest known one is --token-key"},
        {NULL, NULL, "stray", NULL, "usage", "unexpected argument: stray"},
        {"\n# c\nname = a\nname = b\n", NULL, NULL, NULL, "configuration",
         "lease.conf:4: name is given twice, first as lease.conf:3"},
        {NULL, NULL, "--name=a", "--name=b", "usage", "--name: name is given twice, first as --name"},
        {"lanes = 17\n", NULL, NULL, NULL, "configuration", "lanes (lease.conf:1): 17 is outside 1..16"},
        {NULL, "LEASE_LANES=0", NULL, NULL, "configuration", "lanes (LEASE_LANES): 0 is outside 1..16"},
        {NULL, NULL, "--lanes", "99999999999999999999", "configuration",
         "lanes (--lanes): 99999999999999999999 is outside 1..16"},
        {NULL, NULL, "--lanes", "3s", "configuration", "lanes (--lanes): \"3s\" is not a whole number"},
        {NULL, NULL, "--lanes", " 3", "configuration", "lanes (--lanes): \" 3\" is not a whole number"},
        {NULL, NULL, "--lanes=", NULL, "configuration", "lanes (--lanes): \"\" is not a whole number"},
        {NULL, NULL, "--lanes", NULL, "usage", "--lanes wants a value"},
        {NULL, NULL, "--throwaway=yes", NULL, "configuration", "throwaway (--throwaway): \"yes\" is neither true nor false"},
        {NULL, NULL, "--colour", "blue", "configuration", "colour (--colour): \"blue\" is none of red|green"},
        {NULL, NULL, "--name", "hey!", "configuration", "name (--name): no shouting"},
        {NULL, NULL, "--name", "abcdefghijklmnopqrstu", "configuration",
         "name (--name): 21 bytes long, allowed are 1 to 20"},
        {NULL, NULL, "--name", "a\nb", "configuration", "name (--name): control character"},
        {NULL, "LEASE_TOKEN_KEY=short", NULL, NULL, "configuration",
         "token_key (LEASE_TOKEN_KEY): 5 bytes long, allowed are 8 to 100"},
        {NULL, NULL, "--token-key", "canary-canary", "usage",
         "--token-key would show to everybody on this machine: use --token-key-file or the environment"},
        {"[kafak]\na = b\n", NULL, NULL, NULL, "configuration", "lease.conf:2: unknown section [kafak], the only one is [kafka]"},
        {"config = x\n", NULL, NULL, NULL, "configuration", "lease.conf:1: a file cannot name another file"},
        {"name x\n", NULL, NULL, NULL, "configuration", "lease.conf:1: neither key = value nor [section] nor a comment"},
        {"name = a\n  lanes = 3\n", NULL, NULL, NULL, "configuration",
         "lease.conf:2: a line must not begin with a space, it would continue the value above"},
        {"name = a ; b\n", NULL, NULL, NULL, "configuration",
         "lease.conf:1: ';' behind a space would begin a comment: comments have lines of their own"},
        {"name = \x1b[2J\n", NULL, NULL, NULL, "configuration", "lease.conf:1: control character"},
        {NULL, NULL, "-X", "acks=1", "kafka_key_protocol", "-X acks: acks is the protocol's"},
        {NULL, NULL, "-X", "a", "usage", "-X wants name=value"},
        {NULL, NULL, "-X", NULL, "usage", "-X wants name=value"},
        {NULL, NULL, "-Xa=1", "-Xa=2", "usage", "-X a: property a is given twice, first as -X a"},
        {"[kafka]\nacks = 1\n", NULL, "-X", "linger.ms=1", "kafka_key_protocol", "lease.conf:2: acks is the protocol's"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *fixture = *state;
        char *environment[] = {(char *)(uintptr_t)cases[i].variable, NULL};
        bool is_loaded = load(fixture, cases[i].file, environment, cases[i].flag, cases[i].value, NULL);
        assert_refused(fixture, is_loaded, cases[i].code, cases[i].message);
        assert_null(strstr(fixture->error.message, "canary"));
        start_again(state);
    }
}

static void test_config__a_line_too_long_is_refused_but_a_comment_is_not(void **state) {
    struct fixture *fixture = *state;
    char text[600] = "# ";
    memset(text + 2, 'x', 300);
    strcpy(text + 302, "\nlanes = 4\n");
    assert_true(load(fixture, text, NO_ENVIRONMENT, NULL));
    assert_int_equal(fixture->target.lanes, 4);
    fixture = start_again(state);
    char line[400] = "\ndatabase = ";
    memset(line + strlen(line), 'x', 300);
    assert_refused(fixture, load(fixture, line, NO_ENVIRONMENT, NULL), "configuration",
                   "lease.conf:2: the line is too long; a long secret can stand in a file of its own (<key>_file)");
}

static void test_config__a_value_at_the_line_limit_is_whole(void **state) {
    struct fixture *fixture = *state;
    char line[CONFIG_LINE_MAX + 2] = "database = ";
    memset(line + strlen(line), 'x', CONFIG_LINE_MAX - strlen(line));
    assert_true(load(fixture, line, NO_ENVIRONMENT, NULL));
    assert_int_equal(strlen(fixture->target.database), CONFIG_LINE_MAX - strlen("database = "));
}

static void test_config__a_file_that_cannot_be_read_is_named(void **state) {
    struct fixture *fixture = *state;
    assert_refused(fixture, load(fixture, NULL, NO_ENVIRONMENT, "--config", "/nowhere/lease.conf", NULL), "configuration",
                   "/nowhere/lease.conf cannot be opened: No such file or directory");
    fixture = start_again(state);
    assert_refused(fixture, load(fixture, NULL, NO_ENVIRONMENT, "--config", "/dev/null", NULL), "configuration",
                   "/dev/null is not a regular file");
}

static void test_config__a_required_key_that_is_missing_is_named_with_its_ways(void **state) {
    struct fixture *fixture = *state;
    struct config *config = config_new(&other_schema);
    assert_false(config_store(config, &fixture->target, &fixture->error));
    assert_string_equal(fixture->error.message, "name is not set: use --name, LEASE_NAME, or name in the file");
    config_free(config);
}

static void test_config__variables_of_others_are_no_errors(void **state) {
    struct fixture *fixture = *state;
    char *environment[] = {"LEASE_TEST_BROKERS=x", "LEASE_SERVICE_HOST=10.0.0.1", "LEASE_PORT_9464_TCP_ADDR=10.0.0.1",
                           "LEASE_PORT=tcp://10.0.0.1:9464", "LEASE_COORDINATOR_SERVICE_PORT_HTTP=1", "LEASEHOLD=1", NULL};
    assert_true(load(fixture, NULL, environment, NULL));
}

static void test_config__properties_pass_from_all_sources_and_the_stronger_wins(void **state) {
    struct fixture *fixture = *state;
    char *environment[] = {"LEASE_KAFKA_SECURITY_PROTOCOL=ssl", "LEASE_KAFKA_LINGER_MS=5", NULL};
    assert_true(load(fixture, "name = n\n[kafka]\nlinger.ms = 1\nclient.rack = a=b\nsasl.password = p\n", environment, "-X",
                     "linger.ms=9", NULL));
    size_t count;
    const struct kafka_property *properties = config_properties(fixture->config, &count);
    static const char *const wanted[][2] = {
        {"client.rack", "a=b"}, {"linger.ms", "9"}, {"sasl.password", "p"}, {"security.protocol", "ssl"}};
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(properties[i].key, wanted[i][0]);
        assert_string_equal(properties[i].value, wanted[i][1]);
    }
}

static void test_config__secrets_come_from_files(void **state) {
    struct fixture *fixture = *state;
    char key[192], password[192], variable[256], property[256];
    write_file(fixture, "key", 0400, "0123456789\r\n", 12);
    write_file(fixture, "password", 0640, "p w\n\n", 5);
    snprintf(variable, sizeof variable, "LEASE_TOKEN_KEY_FILE=%s", path_of(fixture, "key", key));
    snprintf(property, sizeof property, "LEASE_KAFKA_SASL_PASSWORD_FILE=%s", path_of(fixture, "password", password));
    char *environment[] = {variable, property, NULL};
    assert_true(load(fixture, NULL, environment, "--database-file", key, NULL));
    assert_string_equal(fixture->target.token_key, "0123456789");
    assert_string_equal(fixture->target.database, "0123456789");
    size_t count;
    const struct kafka_property *properties = config_properties(fixture->config, &count);
    assert_int_equal(count, 1);
    assert_string_equal(properties[0].key, "sasl.password");
    assert_string_equal(properties[0].value, "p w\n");
}

static void test_config__a_secret_and_its_file_together_are_one_too_many(void **state) {
    struct fixture *fixture = *state;
    char *environment[] = {"LEASE_DATABASE=host=x", "LEASE_DATABASE_FILE=/x", NULL};
    assert_refused(fixture, load(fixture, NULL, environment, NULL), "configuration",
                   "LEASE_DATABASE_FILE: database is given twice, first as LEASE_DATABASE");
}

static void test_config__a_secret_file_must_be_closed_plain_and_not_empty(void **state) {
    static const struct {
        const char *name, *text;
        size_t size;
        mode_t mode;
        const char *message;
    } cases[] = {
        {"open", "0123456789", 10, 0644, "open is open to others (mode 0644): chmod 600"},
        {"other", "0123456789", 10, 0601, "other is open to others (mode 0601): chmod 600"},
        {"group", "0123456789", 10, 0620, "group is open to others (mode 0620): chmod 600"},
        {"empty", "\n", 1, 0600, "empty is empty"},
        {"none", "", 0, 0600, "none is empty"},
        {"nul", "01234\0006789", 10, 0600, "nul holds a NUL byte"},
        {"link", NULL, 0, 0, "link is a symbolic link"},
        {"folder", NULL, 0, 0, "folder is not a regular file"},
        {"absent", NULL, 0, 0, "absent cannot be opened: No such file or directory"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *fixture = *state;
        char path[192], target[192];
        path_of(fixture, cases[i].name, path);
        if (cases[i].text != NULL)
            write_file(fixture, cases[i].name, cases[i].mode, cases[i].text, cases[i].size);
        if (strcmp(cases[i].name, "link") == 0) {
            write_file(fixture, "target", 0600, "0123456789", 10);
            assert_int_equal(symlink(path_of(fixture, "target", target), path), 0);
        }
        if (strcmp(cases[i].name, "folder") == 0)
            assert_int_equal(mkdir(path, 0700), 0);
        char wanted[256];
        snprintf(wanted, sizeof wanted, "token_key (--token-key-file): %s", cases[i].message);
        bool is_loaded = load(fixture, NULL, NO_ENVIRONMENT, "--token-key-file", path, NULL);
        assert_refused(fixture, is_loaded, fixture->error.code, wanted);
        start_again(state);
    }
}

static void test_config__a_secret_file_of_another_user_is_refused(void **state) {
    struct fixture *fixture = *state;
    if (geteuid() != 0)
        skip();
    char path[192];
    write_file(fixture, "key", 0600, "0123456789", 10);
    assert_int_equal(chown(path_of(fixture, "key", path), 12345, 12345), 0);
    assert_refused(fixture, load(fixture, NULL, NO_ENVIRONMENT, "--token-key-file", path, NULL), "secret_file",
                   "token_key (--token-key-file): key belongs to another user (12345)");
}

enum { MOUNTED_AS_IT_SHOULD = 0, REFUSED = 1, MAY_NOT_MOUNT = 77 };

/* In a child with mounts of its own: a secret as Kubernetes lays it out, behind a link, open, on a read-only mount. */
static int load_from_read_only_mount(struct fixture *fixture) {
    char link[192];
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(NULL, "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 || mount("none", fixture->folder, "tmpfs", 0, NULL) != 0)
        return MAY_NOT_MOUNT;
    write_file(fixture, "target", 0644, "0123456789", 10);
    if (symlink("target", path_of(fixture, "link", link)) != 0 ||
        mount(NULL, fixture->folder, "none", MS_REMOUNT | MS_RDONLY, NULL) != 0)
        return MAY_NOT_MOUNT;
    if (!load(fixture, NULL, NO_ENVIRONMENT, "--token-key-file", link, NULL))
        return REFUSED;
    return strcmp(fixture->target.token_key, "0123456789") == 0 ? MOUNTED_AS_IT_SHOULD : REFUSED;
}

static void test_config__a_read_only_mount_is_the_engines_affair(void **state) {
    pid_t child = fork();
    if (child == 0)
        _exit(load_from_read_only_mount(*state));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == MAY_NOT_MOUNT) {
        print_message("no right to mount here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), MOUNTED_AS_IT_SHOULD);
}

static void test_config__a_secret_in_a_file_that_others_may_read_is_refused(void **state) {
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"token_key = canary-canary\n", "lease.conf:1: others may read this file: close it (chmod 600), or use token_key_file"},
        {"[kafka]\nsasl.password = canary\n",
         "lease.conf:2: others may read this file: close it (chmod 600), or use sasl.password_file"},
    };
    for (size_t i = 0; i < 2; i++) {
        struct fixture *fixture = *state;
        write_file(fixture, "lease.conf", 0644, cases[i].text, strlen(cases[i].text));
        assert_refused(fixture, load(fixture, NULL, NO_ENVIRONMENT, "--config", fixture->path, NULL), "secret_file",
                       cases[i].message);
        start_again(state);
    }
}

static void test_config__show_tells_origins_and_no_secret(void **state) {
    struct fixture *fixture = *state;
    char *environment[] = {"LEASE_TOKEN_KEY=canary-canary", "LEASE_KAFKA_SASL_PASSWORD=canary", NULL};
    assert_true(load(fixture, NULL, environment, "--database", "password=canary", "--lanes=3", "-X", "linger.ms=1", NULL));
    struct buf out = BUF_INIT;
    config_show(fixture->config, &out);
    assert_string_equal(buf_text(&out), "name = nobody  # default\n"
                                        "database = (secret)  # --database\n"
                                        "token_key = (secret)  # LEASE_TOKEN_KEY\n"
                                        "lanes = 3  # --lanes\n"
                                        "throwaway = false  # default\n"
                                        "colour = red  # default\n"
                                        "# config is not set\n"
                                        "[kafka]\n"
                                        "linger.ms = 1  # -X linger.ms\n"
                                        "sasl.password = (secret)  # LEASE_KAFKA_SASL_PASSWORD\n");
    buf_release(&out);
}

static void test_config__help_comes_from_the_table(void **state) {
    (void)state;
    struct buf help = BUF_INIT;
    config_help(&schema, &help);
    assert_non_null(strstr(buf_text(&help), "  --lanes N\n        many|few\n        (1..16; default 2; LEASE_LANES)\n"));
    assert_non_null(strstr(buf_text(&help), "  --token-key-file FILE\n        key\n        (at least 8 bytes; not set by default; "
                                            "LEASE_TOKEN_KEY; from a file: LEASE_TOKEN_KEY_FILE)\n"));
    assert_null(strstr(buf_text(&help), "elsewhere"));
    buf_release(&help);
}

#define CONFIG_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(test_config__defaults_hold_where_nothing_is_said),
        CONFIG_TEST(test_config__flags_beat_environment_beats_file),
        CONFIG_TEST(test_config__the_environment_can_name_the_file),
        CONFIG_TEST(test_config__flags_come_in_both_forms),
        CONFIG_TEST(test_config__a_bool_flag_can_be_given_a_value),
        CONFIG_TEST(test_config__flags_of_others_stay_in_order),
        CONFIG_TEST(test_config__an_empty_variable_is_not_set),
        CONFIG_TEST(test_config__keys_of_another_program_are_overlooked_but_not_as_flags),
        CONFIG_TEST(test_config__what_is_wrong_is_named_with_key_value_and_range),
        CONFIG_TEST(test_config__a_line_too_long_is_refused_but_a_comment_is_not),
        CONFIG_TEST(test_config__a_value_at_the_line_limit_is_whole),
        CONFIG_TEST(test_config__a_file_that_cannot_be_read_is_named),
        CONFIG_TEST(test_config__a_required_key_that_is_missing_is_named_with_its_ways),
        CONFIG_TEST(test_config__variables_of_others_are_no_errors),
        CONFIG_TEST(test_config__properties_pass_from_all_sources_and_the_stronger_wins),
        CONFIG_TEST(test_config__secrets_come_from_files),
        CONFIG_TEST(test_config__a_secret_and_its_file_together_are_one_too_many),
        CONFIG_TEST(test_config__a_secret_file_must_be_closed_plain_and_not_empty),
        CONFIG_TEST(test_config__a_secret_file_of_another_user_is_refused),
        CONFIG_TEST(test_config__a_read_only_mount_is_the_engines_affair),
        CONFIG_TEST(test_config__a_secret_in_a_file_that_others_may_read_is_refused),
        CONFIG_TEST(test_config__show_tells_origins_and_no_secret),
        CONFIG_TEST(test_config__help_comes_from_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
