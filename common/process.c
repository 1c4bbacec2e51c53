/* A daemon's process; see process.h. A thread of its own takes the signals: nothing runs inside a handler. */
#include "common/process.h"

#include "common/buf.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* Many threads, few of them busy: more arenas only keep memory apart. The bound on resident memory needs this. */
enum { ARENAS = 2 };

struct stopper {
    void (*stop)(void *object);
    void *object;
};

static sigset_t stop_signals(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    return signals;
}

static void *wait_for_signals(void *context) {
    const struct stopper *stopper = context;
    const sigset_t signals = stop_signals();
    int number;
    sigwait(&signals, &number);
    stopper->stop(stopper->object);
    sigwait(&signals, &number);
    _exit(128 + number);
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
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    return status;
}
