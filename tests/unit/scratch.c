// scratch: see scratch.h. RLIMIT_FSIZE stands for a full disk: a write stops half way.
#include "scratch.h"

#include <assert.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char folder[] = "/tmp/kiln-test-XXXXXX";
static struct rlimit before;
static void (*handler_before)(int);

int scratch_setup(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

const char *scratch_path(const char *name) {
    static char paths[8][320];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static size_t walk(int remove) {
    DIR *dir = opendir(folder);
    assert(dir);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            count++;
            if (remove) {
                unlink(scratch_path(entry->d_name));
            }
        }
    }
    closedir(dir);
    return count;
}

size_t scratch_count(void) {
    return walk(0);
}

void scratch_empty(void) {
    walk(1);
}

int scratch_teardown(void **state) {
    (void)state;
    scratch_empty();
    return rmdir(folder);
}

void scratch_fill_disk(size_t bytes) {
    int failed = getrlimit(RLIMIT_FSIZE, &before);
    struct rlimit small = {.rlim_cur = bytes, .rlim_max = before.rlim_max};
    handler_before = signal(SIGXFSZ, SIG_IGN);
    failed |= setrlimit(RLIMIT_FSIZE, &small);
    assert(!failed);
}

void scratch_free_disk(void) {
    int failed = setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler_before);
    assert(!failed);
}
