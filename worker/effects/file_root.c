/* Renames and unlinks beneath a root; see file_root.h. Each call opens the file's directory, works on names in it, and closes it. */
#include "worker/effects/file_root.h"

#include "common/buf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    NAME_BYTES_MAX = 1000, /* of a whole name; the file server's own bound */
    BASE_BYTES_MAX = 200,  /* of its last part: leaves room for a fence within the 255 bytes that file systems allow */
    BASE_SIZE = 256,
};

struct file_root {
    int directory;
};

/* A file's directory, opened, and its name there. */
struct place {
    int directory; /* -1: there is no such directory */
    const char *base;
};

/* ---- errors ---- */

static bool fail(const char *what, int number, struct error *error) {
    static const struct {
        int number;
        enum error_kind kind;
        const char *code;
    } known[] = {
        {ELOOP, ERROR_REJECT, "file_link"},     {EXDEV, ERROR_REJECT, "file_outside"}, {ENOTDIR, ERROR_REJECT, "file_not_regular"},
        {ENAMETOOLONG, ERROR_REJECT, "file_name"}, {EEXIST, ERROR_REJECT, "file_twice"}, {EACCES, ERROR_REJECT, "file_denied"},
        {EPERM, ERROR_REJECT, "file_denied"},    {EROFS, ERROR_REJECT, "file_denied"},   {ENOSYS, ERROR_FATAL, "file_kernel"},
        {EINVAL, ERROR_FATAL, "file_system"}, /* a file system without RENAME_NOREPLACE */
    };
    char text[128];
    const char *reason = strerror_r(number, text, sizeof text);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].number == number)
            return error_set(error, known[i].kind, known[i].code, "%s: %s", what, reason);
    return error_set(error, ERROR_RETRY, "file_io", "%s: %s", what, reason);
}

/* ---- finding ---- */

static int open_beneath(int directory, const char *path) {
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    return (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
}

static bool is_plain_part(const char *part, size_t size) {
    return size > 0 && !(size == 1 && part[0] == '.') && !(size == 2 && part[0] == '.' && part[1] == '.');
}

/* Does it end in ".~<digits>"? Such names are ours. */
static bool carries_fence(const char *base) {
    const char *mark = strrchr(base, '~');
    return mark != NULL && mark > base && mark[-1] == '.' && mark[1] != '\0' && mark[1 + strspn(mark + 1, "0123456789")] == '\0';
}

static bool check_name(const char *name, struct error *error) {
    const char *base = name;
    for (const char *part = name;; part++) {
        size_t size = strcspn(part, "/");
        if (!is_plain_part(part, size))
            return error_set(error, ERROR_REJECT, "file_name", "a name of a file is no path beneath the root");
        base = part;
        part += size;
        if (*part == '\0')
            break;
    }
    if (strlen(name) > NAME_BYTES_MAX || strlen(base) > BASE_BYTES_MAX)
        return error_set(error, ERROR_REJECT, "file_name", "a name of a file is too long");
    if (carries_fence(base))
        return error_set(error, ERROR_REJECT, "file_name", "a name of a file ends as if it carried a fence");
    return true;
}

static bool open_place(const struct file_root *root, const char *name, struct place *ret_place, struct error *error) {
    *ret_place = (struct place){.directory = -1};
    if (!check_name(name, error))
        return false;
    const char *slash = strrchr(name, '/');
    char folder[NAME_BYTES_MAX + 1] = ".";
    if (slash != NULL)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - name), name);
    ret_place->base = slash != NULL ? slash + 1 : name;
    ret_place->directory = open_beneath(root->directory, folder);
    if (ret_place->directory >= 0 || errno == ENOENT)
        return true;
    return fail("open the directory of a file", errno, error);
}

static void close_place(struct place *place) {
    if (place->directory >= 0)
        close(place->directory);
}

static void fenced_name(const char *base, int64_t fence, char ret_name[static BASE_SIZE]) {
    snprintf(ret_name, BASE_SIZE, "%s.~%" PRId64, base, fence);
}

/* Is there a regular file under this name of the directory? What is there and is none is refused. */
static bool look(const struct place *place, const char *base, bool *ret_is_there, struct error *error) {
    struct stat found;
    *ret_is_there = fstatat(place->directory, base, &found, AT_SYMLINK_NOFOLLOW) == 0;
    if (!*ret_is_there)
        return errno == ENOENT || fail("look at a file", errno, error);
    if (S_ISLNK(found.st_mode))
        return error_set(error, ERROR_REJECT, "file_link", "a file is a symbolic link");
    if (!S_ISREG(found.st_mode))
        return error_set(error, ERROR_REJECT, "file_not_regular", "a file is no regular file");
    return true;
}

/* ---- moving ---- */

static bool move_from(const struct place *place, const char *from, const char *to, bool *ret_is_there, struct error *error) {
    if (!look(place, from, ret_is_there, error) || !*ret_is_there)
        return error->kind == ERROR_NONE;
    if (renameat2(place->directory, from, place->directory, to, RENAME_NOREPLACE) == 0)
        return true;
    *ret_is_there = false;
    return errno == ENOENT /* somebody else has moved it on */ || fail("move a file", errno, error);
}

/* In the order in which files move, so that none is missed while another worker moves it. */
static bool move_from_any(const struct place *place, int64_t fence, const int64_t *earlier, size_t earlier_count,
                          bool *ret_is_there, struct error *error) {
    char from[BASE_SIZE], to[BASE_SIZE];
    fenced_name(place->base, fence, to);
    if (!move_from(place, place->base, to, ret_is_there, error))
        return false;
    for (size_t i = 0; i < earlier_count && !*ret_is_there; i++) {
        fenced_name(place->base, earlier[i], from);
        if (!move_from(place, from, to, ret_is_there, error))
            return false;
    }
    return *ret_is_there || look(place, to, ret_is_there, error);
}

bool file_root_move(const struct file_root *root, const char *name, int64_t fence, const int64_t *earlier, size_t earlier_count,
                    bool *ret_is_there, struct error *error) {
    struct place place;
    *ret_is_there = false;
    error_clear(error);
    if (!open_place(root, name, &place, error))
        return false;
    bool is_done = place.directory < 0 || move_from_any(&place, fence, earlier, earlier_count, ret_is_there, error);
    close_place(&place);
    return is_done;
}

/* ---- removing ---- */

static bool remove_base(const struct place *place, const char *base, struct error *error) {
    bool is_there;
    if (!look(place, base, &is_there, error))
        return false;
    if (is_there && unlinkat(place->directory, base, 0) != 0 && errno != ENOENT)
        return fail("remove a file", errno, error);
    return fsync(place->directory) == 0 || fail("synchronise a directory", errno, error);
}

bool file_root_remove(const struct file_root *root, const char *name, int64_t fence, struct error *error) {
    struct place place;
    char base[BASE_SIZE];
    if (!open_place(root, name, &place, error))
        return false;
    fenced_name(place.base, fence, base);
    bool is_done = place.directory < 0 || remove_base(&place, base, error);
    close_place(&place);
    return is_done;
}

bool file_root_remove_former(const struct file_root *root, const char *name, struct error *error) {
    struct place place;
    if (!open_place(root, name, &place, error))
        return false;
    bool is_done = place.directory < 0 || remove_base(&place, place.base, error);
    close_place(&place);
    return is_done;
}

/* ---- life ---- */

bool file_root_open(const char *path, struct file_root **ret_root, struct error *error) {
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return error_set(error, ERROR_FATAL, "file_root", "%s: %s", path, strerror(errno));
    int probe = open_beneath(directory, ".");
    if (probe < 0) {
        int number = errno;
        close(directory);
        return error_set(error, ERROR_FATAL, number == ENOSYS || number == EPERM ? "file_kernel" : "file_root",
                         "%s: openat2: %s (needs Linux 5.6, and a container that permits it)", path, strerror(number));
    }
    close(probe);
    struct file_root *root = memory_alloc(sizeof *root);
    root->directory = directory;
    *ret_root = root;
    return true;
}

bool file_root_check_not_empty(const struct file_root *root, struct error *error) {
    int directory = open_beneath(root->directory, ".");
    DIR *entries = directory >= 0 ? fdopendir(directory) : NULL;
    if (entries == NULL) {
        int number = errno;
        if (directory >= 0)
            close(directory);
        return fail("open the root", number, error);
    }
    bool is_empty = true;
    for (const struct dirent *entry = readdir(entries); is_empty && entry != NULL; entry = readdir(entries))
        is_empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(entries);
    return !is_empty || error_set(error, ERROR_FATAL, "file_root_empty", "there is nothing beneath the root: is it mounted?");
}

void file_root_free(struct file_root *root) {
    if (root == NULL)
        return;
    close(root->directory);
    free(root);
}
