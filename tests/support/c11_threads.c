/* For the thread sanitizer, which knows pthreads only: librdkafka calls C11's functions, whose threads the sanitizer would never hear of
 * (it fails when one of them calls a function of ours) and whose locks it would not count. A program's own functions come before
 * those of the C library. In glibc the types are the same. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

struct start {
    thrd_start_t run;
    void *argument;
};

static void *run_thread(void *data) {
    struct start start = *(struct start *)data;
    free(data);
    return (void *)(intptr_t)start.run(start.argument);
}

int thrd_create(thrd_t *thread, thrd_start_t run, void *argument) {
    struct start *start = malloc(sizeof *start);
    if (start == NULL)
        return thrd_nomem;
    *start = (struct start){run, argument};
    return pthread_create((pthread_t *)thread, NULL, run_thread, start) == 0 ? thrd_success : thrd_error;
}

int thrd_join(thrd_t thread, int *ret_result) {
    void *result = NULL;
    int code = pthread_join((pthread_t)thread, &result);
    if (ret_result != NULL)
        *ret_result = (int)(intptr_t)result;
    return code == 0 ? thrd_success : thrd_error;
}

int thrd_detach(thrd_t thread) {
    return pthread_detach((pthread_t)thread) == 0 ? thrd_success : thrd_error;
}

int mtx_init(mtx_t *mutex, int type) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, (type & mtx_recursive) != 0 ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_NORMAL);
    return pthread_mutex_init((pthread_mutex_t *)mutex, &attributes) == 0 ? thrd_success : thrd_error;
}

int mtx_lock(mtx_t *mutex) {
    return pthread_mutex_lock((pthread_mutex_t *)mutex) == 0 ? thrd_success : thrd_error;
}

int mtx_trylock(mtx_t *mutex) {
    return pthread_mutex_trylock((pthread_mutex_t *)mutex) == 0 ? thrd_success : thrd_busy;
}

int mtx_unlock(mtx_t *mutex) {
    return pthread_mutex_unlock((pthread_mutex_t *)mutex) == 0 ? thrd_success : thrd_error;
}

void mtx_destroy(mtx_t *mutex) {
    pthread_mutex_destroy((pthread_mutex_t *)mutex);
}

int cnd_init(cnd_t *condition) {
    return pthread_cond_init((pthread_cond_t *)condition, NULL) == 0 ? thrd_success : thrd_error;
}

int cnd_signal(cnd_t *condition) {
    return pthread_cond_signal((pthread_cond_t *)condition) == 0 ? thrd_success : thrd_error;
}

int cnd_broadcast(cnd_t *condition) {
    return pthread_cond_broadcast((pthread_cond_t *)condition) == 0 ? thrd_success : thrd_error;
}

int cnd_wait(cnd_t *condition, mtx_t *mutex) {
    return pthread_cond_wait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex) == 0 ? thrd_success : thrd_error;
}

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until) {
    int code = pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until);
    return code == 0 ? thrd_success : code == ETIMEDOUT ? thrd_timedout : thrd_error;
}

void cnd_destroy(cnd_t *condition) {
    pthread_cond_destroy((pthread_cond_t *)condition);
}
