// dir: reads a folder and sorts.
#include "base/dir.h"

#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void kiln_dir_finish(struct kiln_dir *dir) {
    for (size_t i = 0; i < dir->count; i++) {
        kiln_free(dir->names[i]);
    }
    kiln_free(dir->names);
    *dir = (struct kiln_dir){.names = NULL};
}

static int fits(const char *name, const char *prefix, const char *suffix) {
    size_t len = strlen(name), head = strlen(prefix), tail = strlen(suffix);
    return len >= head + tail && strncmp(name, prefix, head) == 0 &&
           strcmp(name + len - tail, suffix) == 0 && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static int compare(const void *a, const void *b) {
    const char *x, *y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return strcmp(x, y);
}

static int read_names(struct kiln_dir *dir, DIR *stream, const char *prefix, const char *suffix) {
    const struct dirent *at;
    for (;;) {
        errno = 0; // to tell an error from the end
        at = readdir(stream);
        if (!at) {
            return errno ? -1 : 0;
        }
        if (!fits(at->d_name, prefix, suffix)) {
            continue;
        }
        char *name = kiln_strdup(at->d_name);
        if (!name || kiln_grow(&dir->names, &dir->cap, dir->count + 1, sizeof(*dir->names)) != 0) {
            kiln_free(name);
            errno = ENOMEM;
            return -1;
        }
        dir->names[dir->count++] = name;
    }
}

int kiln_dir_read(struct kiln_dir *dir, const char *path, const char *prefix, const char *suffix) {
    DIR *stream = opendir(path);
    if (!stream) {
        return -1;
    }
    int failed = read_names(dir, stream, prefix, suffix);
    int saved = errno;
    closedir(stream);
    if (dir->count > 1) {
        qsort(dir->names, dir->count, sizeof(*dir->names), compare);
    }
    errno = saved;
    return failed;
}
