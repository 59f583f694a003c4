// watch: stat, compare, wait until it rests.
#include "engine/watch.h"

#include "base/mem.h"

#include <string.h>
#include <sys/stat.h>

// How long nothing may change before a change is reported, in seconds.
static const double rest_whole = 0.004, rest_partial = 0.25;

struct stamp {
    int exists;
    uint64_t dev, ino;
    int64_t size, written_s, written_ns, changed_s, changed_ns;
};

struct kiln_watched {
    char *path;
    struct stamp stamp; // as last looked at
    int touched;        // differs from what was reported last
};

static struct stamp stamp_of(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) {
        return (struct stamp){.exists = 0};
    }
    return (struct stamp){.exists = 1,
            .dev = (uint64_t)st.st_dev,
            .ino = (uint64_t)st.st_ino,
            .size = (int64_t)st.st_size,
            .written_s = (int64_t)st.st_mtim.tv_sec,
            .written_ns = (int64_t)st.st_mtim.tv_nsec,
            .changed_s = (int64_t)st.st_ctim.tv_sec,
            .changed_ns = (int64_t)st.st_ctim.tv_nsec};
}

static int same(const struct stamp *a, const struct stamp *b) {
    return a->exists == b->exists && a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->written_s == b->written_s && a->written_ns == b->written_ns &&
           a->changed_s == b->changed_s && a->changed_ns == b->changed_ns;
}

enum kiln_status kiln_watch_add(struct kiln_watch *watch, const char *path, struct kiln_err *err) {
    for (size_t i = 0; i < watch->count; i++) {
        if (strcmp(watch->files[i].path, path) == 0) {
            return KILN_STATUS_OK;
        }
    }
    char *copy = kiln_strdup(path);
    if (!copy ||
            kiln_grow(&watch->files, &watch->cap, watch->count + 1, sizeof(*watch->files)) != 0) {
        kiln_free(copy);
        return kiln_err_nomem(err, "the list of watched files");
    }
    watch->files[watch->count++] = (struct kiln_watched){.path = copy, .stamp = stamp_of(path)};
    return KILN_STATUS_OK;
}

void kiln_watch_finish(struct kiln_watch *watch) {
    for (size_t i = 0; i < watch->count; i++) {
        kiln_free(watch->files[i].path);
    }
    kiln_free(watch->files);
    *watch = (struct kiln_watch){.files = NULL};
}

// Ends the unrest: what was touched is reported.
static void note_edit(struct kiln_watch *watch) {
    watch->unrest = 0;
    watch->edited = 0;
    for (size_t i = 0; i < watch->count; i++) {
        const struct stamp *stamp = &watch->files[i].stamp;
        double changed = (double)stamp->changed_s + (double)stamp->changed_ns * 1e-9;
        if (watch->files[i].touched && stamp->exists && changed > watch->edited) {
            watch->edited = changed;
        }
        watch->files[i].touched = 0;
    }
}

int kiln_watch_look(struct kiln_watch *watch, double now) {
    int partial = 0;
    for (size_t i = 0; i < watch->count; i++) {
        struct kiln_watched *file = &watch->files[i];
        struct stamp stamp = stamp_of(file->path);
        if (!same(&stamp, &file->stamp)) {
            file->stamp = stamp;
            file->touched = 1;
            watch->unrest = now;
        }
        partial |= file->touched && stamp.size == 0;
    }
    if (watch->unrest == 0 || now - watch->unrest < (partial ? rest_partial : rest_whole)) {
        return 0;
    }
    note_edit(watch);
    return 1;
}
