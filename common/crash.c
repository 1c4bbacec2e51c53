/* Crash points for fault tests; see crash.h. Runs in any thread. Compiled to nothing in release builds: the process-wide
 * plan below exists only in test builds, where the process is the thing under test. */
#include "common/crash.h"

#ifdef LEASE_CRASH_POINTS

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLANS_MAX = 64, NAME_MAX_SIZE = 64, PATH_MAX_SIZE = 512 };

enum crash_mode { MODE_KILL, MODE_STOP, MODE_ERROR, MODE_NOTE };

struct plan {
    char name[NAME_MAX_SIZE];
    long nth;
    enum crash_mode mode;
    atomic_long passed;
};

static struct {
    pthread_once_t once;
    int count;
    struct plan plans[PLANS_MAX];
    char log_file[PATH_MAX_SIZE];
} armed = {.once = PTHREAD_ONCE_INIT};

static void refuse(const char *what) {
    fprintf(stderr, "LEASE_CRASH: %s\n", what);
    abort();
}

static enum crash_mode parse_mode(const char *text) {
    if (text == NULL || strcmp(text, "kill") == 0)
        return MODE_KILL;
    if (strcmp(text, "stop") == 0)
        return MODE_STOP;
    if (strcmp(text, "note") == 0)
        return MODE_NOTE;
    if (strcmp(text, "error") != 0)
        refuse("the mode is none of kill, stop, error, note");
    return MODE_ERROR;
}

static void parse_plan(char *text, struct plan *plan) {
    char *rest = NULL;
    const char *name = strtok_r(text, ":", &rest);
    const char *nth = strtok_r(NULL, ":", &rest);
    const char *mode = strtok_r(NULL, ":", &rest);
    if (name == NULL || nth == NULL || strtok_r(NULL, ":", &rest) != NULL)
        refuse("expected <point>:<nth>[:kill|stop|error|note]");
    if (strlen(name) >= sizeof plan->name)
        refuse("the point's name is too long");
    char *end;
    plan->nth = strtol(nth, &end, 10);
    if (plan->nth < 1 || *end != '\0')
        refuse("nth is not a number from 1");
    plan->mode = parse_mode(mode);
    strcpy(plan->name, name);
    atomic_store(&plan->passed, 0);
}

static void arm(const char *spec, const char *log_file) {
    armed.count = 0;
    armed.log_file[0] = '\0';
    if (log_file != NULL) {
        if (strlen(log_file) >= sizeof armed.log_file)
            refuse("LEASE_CRASH_LOG is too long");
        strcpy(armed.log_file, log_file);
    }
    if (spec == NULL)
        return;
    char *copy = strdup(spec);
    if (copy == NULL)
        refuse("out of memory");
    char *rest = NULL;
    for (char *one = strtok_r(copy, ",", &rest); one != NULL; one = strtok_r(NULL, ",", &rest)) {
        if (armed.count == PLANS_MAX)
            refuse("too many points");
        parse_plan(one, &armed.plans[armed.count++]);
    }
    free(copy);
}

static void arm_from_environment(void) {
    arm(getenv("LEASE_CRASH"), getenv("LEASE_CRASH_LOG"));
}

static void nothing(void) {
}

void crash_arm(const char *spec, const char *log_file) {
    pthread_once(&armed.once, nothing);
    arm(spec, log_file);
}

static void write_log(const char *name) {
    if (armed.log_file[0] == '\0')
        return;
    char line[NAME_MAX_SIZE + 1];
    int length = snprintf(line, sizeof line, "%s\n", name);
    int file = open(armed.log_file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || write(file, line, (size_t)length) != length)
        refuse("LEASE_CRASH_LOG cannot be written");
    close(file);
}

static bool fire(const struct plan *plan) {
    write_log(plan->name);
    if (plan->mode == MODE_ERROR || plan->mode == MODE_NOTE)
        return plan->mode == MODE_ERROR;
    /* To this very thread: one sent to the process may reach another first, and this one would run on past the point. */
    raise(plan->mode == MODE_STOP ? SIGSTOP : SIGKILL);
    return false;
}

bool crash_point(const char *name) {
    pthread_once(&armed.once, arm_from_environment);
    bool is_error = false;
    for (int i = 0; i < armed.count; i++) {
        struct plan *plan = &armed.plans[i];
        if (strcmp(plan->name, name) != 0)
            continue;
        long passage = atomic_fetch_add(&plan->passed, 1) + 1;
        if (passage == plan->nth || (passage > plan->nth && plan->mode == MODE_NOTE))
            is_error |= fire(plan);
    }
    return is_error;
}

#else

/* ISO C wants a declaration in every file. */
typedef int crash_points_are_off;

#endif
