/* A daemon's process; see process.h. A thread of its own takes the signals: nothing runs inside a handler. */
#include "common/process.h"

#include "common/buf.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

/* Many threads, few of them busy: more arenas only keep memory apart. The bound on resident memory needs this. */
enum { ARENAS = 2 };

struct stopper {
    void (*stop)(void *object);
    void *object;
    atomic_bool is_over;      /* the run has returned: the next signal is process_run's own */
};

static sigset_t stop_signals(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    return signals;
}

/* True for a signal from outside, false when the run is over. */
static bool wait_for_signal(struct stopper *stopper, int *ret_number) {
    const sigset_t signals = stop_signals();
    sigwait(&signals, ret_number);
    return !atomic_load(&stopper->is_over);
}

static void *wait_for_signals(void *context) {
    struct stopper *stopper = context;
    int number;
    if (!wait_for_signal(stopper, &number))
        return NULL;
    stopper->stop(stopper->object);
    if (wait_for_signal(stopper, &number))
        _exit(128 + number);
    return NULL;
}

void process_prepare(void) {
    const sigset_t signals = stop_signals();
    mallopt(M_ARENA_MAX, ARENAS);
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

int process_run(int (*run)(void *object), void (*stop)(void *object), void *object) {
    pthread_t thread;
    struct stopper stopper = {.stop = stop, .object = object};
    int failed = pthread_create(&thread, NULL, wait_for_signals, &stopper);
    memory_or_exit(failed != 0 ? NULL : object);
    int status = run(object);
    /* Woken, not cancelled: a cancelled thread leaves its stack marked as in use, which AddressSanitizer takes for a fault. */
    atomic_store(&stopper.is_over, true);
    pthread_kill(thread, SIGTERM); /* NOLINT(bugprone-bad-signal-to-kill-thread,cert-pos44-c): it is blocked, and waited for there */
    pthread_join(thread, NULL);
    return status;
}
