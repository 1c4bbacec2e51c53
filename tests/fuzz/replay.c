/* Runs a fuzz target over kept inputs: each argument is a file or a folder of files. Prints how many there were; ends at the first
 * that fails, having named it before, so that its name is the last line. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static size_t done;

static void replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(66);
    }
    struct buf bytes = BUF_INIT;
    char block[65536];
    for (size_t got; (got = fread(block, 1, sizeof block, file)) > 0;)
        buf_append(&bytes, block, got);
    fclose(file);
    printf("%s\n", path);
    fflush(stdout);
    /* A copy of exactly this size, so that a sanitizer sees a read behind it. */
    uint8_t *copy = memory_or_exit(malloc(bytes.size > 0 ? bytes.size : 1));
    memcpy(copy, buf_text(&bytes), bytes.size);
    LLVMFuzzerTestOneInput(copy, bytes.size);
    free(copy);
    buf_release(&bytes);
    done++;
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static void replay(const char *path) {
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISDIR(status.st_mode)) {
        replay_file(path);
        return;
    }
    struct dirent **entries;
    int count = scandir(path, &entries, is_visible, alphasort);
    if (count < 0) {
        perror(path);
        exit(66);
    }
    for (int i = 0; i < count; i++) {
        struct buf inner = BUF_INIT;
        buf_appendf(&inner, "%s/%s", path, entries[i]->d_name);
        replay(buf_text(&inner));
        buf_release(&inner);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    printf("%zu inputs replayed\n", done);
    return done > 0 ? 0 : 1;
}
