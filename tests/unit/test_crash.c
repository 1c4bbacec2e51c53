/* crash: the point that fires is the one that was asked for, at the passage that was asked for, and leaves a trace. In
 * a build without crash points the test says that the macro is false. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/crash.h"

#ifdef LEASE_CRASH_POINTS

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs in a child: how it ended. */
static int status_of(void (*run)(void)) {
    pid_t child = fork();
    if (child == 0) {
        run();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    if (!WIFSTOPPED(status))
        return status;
    kill(child, SIGCONT);
    int rest;
    assert_int_equal(waitpid(child, &rest, 0), child);
    assert_true(WIFEXITED(rest) && WEXITSTATUS(rest) == 0);
    return status;
}

static void pass_three_times(void) {
    for (int i = 0; i < 3; i++) {
        CRASH_POINT("other");
        if (CRASH_POINT("here"))
            _exit(10 + i);
    }
}

static void kill_at_second(void) {
    crash_arm("here:2", NULL);
    pass_three_times();
}

static void kill_at_fourth(void) {
    crash_arm("here:4:kill", NULL);
    pass_three_times();
}

static void stop_at_first(void) {
    crash_arm("here:1:stop", NULL);
    pass_three_times();
}

static void fail_at_second(void) {
    crash_arm("nowhere:1,here:2:error", NULL);
    pass_three_times();
}

static void from_environment(void) {
    setenv("LEASE_CRASH", "here:3:error", 1);
    pass_three_times();
}

static void test_crash__fires_at_the_nth_passage_of_its_point_only(void **state) {
    (void)state;
    assert_true(WIFSIGNALED(status_of(kill_at_second)));
    assert_int_equal(WTERMSIG(status_of(kill_at_second)), SIGKILL);
    assert_int_equal(status_of(kill_at_fourth), 0);
    assert_int_equal(WEXITSTATUS(status_of(fail_at_second)), 11);
}

static void test_crash__stop_freezes_and_goes_on_after_sigcont(void **state) {
    (void)state;
    int status = status_of(stop_at_first);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(WSTOPSIG(status), SIGSTOP);
}

static void test_crash__the_environment_arms_it(void **state) {
    (void)state;
    assert_int_equal(WEXITSTATUS(status_of(from_environment)), 12);
}

static char notes_file[] = "/tmp/lease-crash-notes-XXXXXX";

static void note_from_second(void) {
    crash_arm("here:2:note,here:3:error", notes_file);
    pass_three_times();
}

static void test_crash__notes_every_passage_from_the_nth_on_and_goes_on(void **state) {
    (void)state;
    int file = mkstemp(notes_file);
    assert_true(file >= 0);
    assert_int_equal(WEXITSTATUS(status_of(note_from_second)), 12);
    char text[64] = {0};
    assert_true(read(file, text, sizeof text - 1) > 0);
    close(file);
    unlink(notes_file);
    assert_string_equal(text, "here\nhere\nhere\n"); /* the second, the third, and the third as an error */
}

enum { THREADS = 4, PASSAGES = 1000000 };

static atomic_int fired;

static void *pass_often(void *start) {
    pthread_barrier_wait(start);
    for (int i = 0; i < PASSAGES; i++)
        if (CRASH_POINT("shared"))
            atomic_fetch_add(&fired, 1);
    return NULL;
}

static void test_crash__passages_are_counted_over_all_threads(void **state) {
    (void)state;
    crash_arm("shared:4000000:error", NULL); /* the very last: a single passage lost is a fault that never comes */
    atomic_store(&fired, 0);
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, THREADS);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, pass_often, &start);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    assert_int_equal(atomic_load(&fired), 1);
    crash_arm(NULL, NULL);
    assert_false(CRASH_POINT("shared"));
}

static char log_file[] = "/tmp/lease-crash-log-XXXXXX";

static void kill_with_log(void) {
    crash_arm("here:2", log_file);
    pass_three_times();
}

static void test_crash__the_log_names_the_point_before_the_kill(void **state) {
    (void)state;
    int file = mkstemp(log_file);
    assert_true(file >= 0);
    assert_true(WIFSIGNALED(status_of(kill_with_log)));
    assert_true(WIFSIGNALED(status_of(kill_with_log)));
    char text[64] = "";
    assert_int_equal(read(file, text, sizeof text - 1), 10);
    assert_string_equal(text, "here\nhere\n");
    close(file);
    unlink(log_file);
}

static const char *bad_spec;

static void arm_bad_spec(void) {
    close(STDERR_FILENO);
    crash_arm(bad_spec, NULL);
}

static void test_crash__a_spec_that_does_not_parse_aborts(void **state) {
    (void)state;
    static const char *const specs[] = {"here", "here:0", "here:x", "here:1:burn", "here:1:kill:more", ":1", "here:-1"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        bad_spec = specs[i];
        int status = status_of(arm_bad_spec);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
            fail_msg("%s was accepted", specs[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crash__fires_at_the_nth_passage_of_its_point_only),
        cmocka_unit_test(test_crash__stop_freezes_and_goes_on_after_sigcont),
        cmocka_unit_test(test_crash__the_environment_arms_it),
        cmocka_unit_test(test_crash__notes_every_passage_from_the_nth_on_and_goes_on),
        cmocka_unit_test(test_crash__passages_are_counted_over_all_threads),
        cmocka_unit_test(test_crash__the_log_names_the_point_before_the_kill),
        cmocka_unit_test(test_crash__a_spec_that_does_not_parse_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void test_crash__is_compiled_out(void **state) {
    (void)state;
    assert_false(CRASH_POINT("here"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_crash__is_compiled_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
