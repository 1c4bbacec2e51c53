/* Preloaded into a coordinator: counts its allocations in a file that the test maps, and lets the one fail that the test asks for.
 * Counting begins when the test says so, with everything running. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

struct control {
    _Atomic long is_counting, count, fail_at, failed;
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("LEASE_TEST_ALLOCATIONS");
    int file = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    control = mapped == MAP_FAILED ? NULL : mapped;
}

static int must_fail(void) {
    if (control == NULL || !atomic_load(&control->is_counting))
        return 0;
    long number = atomic_fetch_add(&control->count, 1) + 1;
    if (number != atomic_load(&control->fail_at))
        return 0;
    atomic_fetch_add(&control->failed, 1);
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) {
    return must_fail() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return must_fail() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    return must_fail() ? NULL : __libc_realloc(old, size);
}
