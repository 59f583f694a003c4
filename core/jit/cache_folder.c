// cache_folder: all entries: the size bound, listing, clearing.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // fstatat
#endif
#include "jit/cache_impl.h"

#include "base/mem.h"
#include "jit/cache.h"
#include "jit/entry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    STALE_SECONDS = 3600, // a temporary file that old has no writer any more
    KEY_LEN = 32
};

struct file {
    char name[KEY_LEN + 24];
    uint64_t bytes;
    struct timespec used;
};

struct files {
    struct file *items;
    size_t count, cap;
};

enum name_kind {
    NAME_OTHER,
    NAME_ENTRY,
    NAME_LEFT // a temporary or a lock file
};

static enum name_kind kind_of(const char *name) {
    const char *key = name + (*name == '.');
    size_t len = strlen(name);
    if (strspn(key, "0123456789abcdef") != KEY_LEN || len >= sizeof(((struct file *)0)->name)) {
        return NAME_OTHER;
    }
    if (*name == '.') {
        return key[KEY_LEN] == '.' ? NAME_LEFT : NAME_OTHER;
    }
    return strcmp(name + KEY_LEN, KILN_CACHE_SUFFIX) == 0 ? NAME_ENTRY : NAME_OTHER;
}

static struct timespec last_use(const struct stat *st) {
    const struct timespec *a = &st->st_atim, *m = &st->st_mtim;
    return a->tv_sec > m->tv_sec || (a->tv_sec == m->tv_sec && a->tv_nsec > m->tv_nsec) ? *a : *m;
}

// Gathers the entries of the folder, and the leftovers when `left` is not NULL. 0, or -1 with
// errno.
static int scan(const char *path, struct files *entries, struct files *left) {
    DIR *dir = opendir(path);
    if (!dir) {
        return -1;
    }
    const struct dirent *at;
    int failed = 0;
    while (!failed && (at = readdir(dir)) != NULL) {
        enum name_kind kind = kind_of(at->d_name);
        struct files *to = kind == NAME_ENTRY ? entries : kind == NAME_LEFT ? left : NULL;
        struct stat st;
        if (!to || fstatat(dirfd(dir), at->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        if (kiln_grow(&to->items, &to->cap, to->count + 1, sizeof(*to->items)) != 0) {
            errno = ENOMEM;
            failed = 1;
            continue;
        }
        struct file *file = &to->items[to->count++];
        *file = (struct file){.bytes = (uint64_t)st.st_size, .used = last_use(&st)};
        memcpy(file->name, at->d_name, strlen(at->d_name) + 1);
    }
    int saved = errno;
    closedir(dir);
    errno = saved;
    return failed ? -1 : 0;
}

static int by_use(const void *a, const void *b) {
    const struct timespec *x = &((const struct file *)a)->used;
    const struct timespec *y = &((const struct file *)b)->used;
    if (x->tv_sec != y->tv_sec) {
        return x->tv_sec < y->tv_sec ? -1 : 1;
    }
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct file *)a)->name, ((const struct file *)b)->name);
}

static void sort(struct files *files, int (*compare)(const void *, const void *)) {
    if (files->count > 1) { // an empty one has no items to point to
        qsort(files->items, files->count, sizeof(*files->items), compare);
    }
}

// 0, also when it is gone already; -1 with errno.
static int remove_file(const char *dir, const char *name) {
    char *path = kiln_asprintf("%s/%s", dir, name);
    int failed = !path || (unlink(path) != 0 && errno != ENOENT);
    int saved = path ? errno : ENOMEM;
    kiln_free(path);
    errno = saved;
    return failed ? -1 : 0;
}

void kiln_cache_sweep(struct kiln_cache *cache, const struct kiln_jit_key *key) {
    struct files entries = {0}, left = {0};
    if (scan(cache->path, &entries, &left) == 0) {
        uint64_t total = 0;
        for (size_t i = 0; i < entries.count; i++) {
            total += entries.items[i].bytes;
        }
        sort(&entries, by_use);
        for (size_t i = 0; i < entries.count && total > (uint64_t)cache->params.max_size; i++) {
            const struct file *file = &entries.items[i];
            if (strncmp(file->name, key->hex, KEY_LEN) != 0 &&
                    remove_file(cache->path, file->name) == 0) {
                total -= file->bytes;
            }
        }
        time_t now = time(NULL);
        for (size_t i = 0; i < left.count; i++) {
            if (left.items[i].used.tv_sec + STALE_SECONDS < now) {
                (void)remove_file(cache->path, left.items[i].name);
            }
        }
    }
    kiln_free(entries.items);
    kiln_free(left.items);
}

// ---- Listing ------------------------------------------------------------------------------------

static void entry_finish(struct kiln_cache_entry *entry) {
    kiln_free(entry->name);
    kiln_free(entry->fault);
    kiln_free(entry->key_text);
    kiln_image_finish(&entry->image);
}

void kiln_cache_list_finish(struct kiln_cache_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        entry_finish(&list->entries[i]);
    }
    kiln_free(list->entries);
    *list = (struct kiln_cache_list){0};
}

// Reads one entry. *gone: it was removed meanwhile.
static enum kiln_status inspect(const char *dir, const struct file *file,
        struct kiln_cache_entry *entry, int *gone, struct kiln_err *err) {
    char *path = kiln_asprintf("%s/%s", dir, file->name);
    uint8_t *bytes = NULL;
    size_t size = 0;
    struct stat st;
    struct kiln_jit_key key = {{0}};
    memcpy(key.hex, file->name, KEY_LEN);
    entry->name = kiln_strdup(file->name);
    entry->bytes = file->bytes;
    entry->used = file->used.tv_sec;
    if (!path || !entry->name) {
        kiln_free(path);
        return kiln_err_nomem(err, "the list of cache entries");
    }
    enum kiln_status status = KILN_STATUS_OK;
    const char *fault = kiln_cache_read(path, 0, &bytes, &size, &st);
    *gone = fault && !*fault;
    if (!fault) {
        fault = kiln_entry_fault(bytes, size, &key, NULL);
    }
    if (fault == kiln_cache_no_memory) {
        status = kiln_err_nomem(err, "the list of cache entries");
    } else if (!fault) {
        status = kiln_entry_decode(bytes, &entry->image, &entry->key_text, err);
        kiln_free(entry->image.data); // nobody looks at it
        entry->image.data = NULL;
    } else {
        entry->fault = kiln_strdup(fault);
        status = entry->fault ? KILN_STATUS_OK : kiln_err_nomem(err, "the list of cache entries");
    }
    kiln_free(bytes);
    kiln_free(path);
    return status;
}

static enum kiln_status list_files(struct kiln_cache *cache, const struct files *files,
        struct kiln_cache_list *list, struct kiln_err *err) {
    for (size_t i = 0; i < files->count; i++) {
        if (kiln_grow(&list->entries, &list->cap, list->count + 1, sizeof(*list->entries)) != 0) {
            return kiln_err_nomem(err, "the list of cache entries");
        }
        struct kiln_cache_entry *entry = &list->entries[list->count++];
        *entry = (struct kiln_cache_entry){0};
        int gone = 0;
        KILN_TRY(inspect(cache->path, &files->items[i], entry, &gone, err));
        if (gone) {
            entry_finish(entry);
            list->count--;
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status cannot(
        const struct kiln_cache *cache, const char *what, struct kiln_err *err) {
    return errno == ENOMEM ? kiln_err_nomem(err, "the list of cache entries")
                           : kiln_err_set(err, KILN_STATUS_FILE, "kernel cache %s: cannot %s: %s",
                                     cache->path, what, strerror(errno));
}

static enum kiln_status cannot_remove(
        const struct kiln_cache *cache, const char *name, struct kiln_err *err) {
    int saved = errno;
    char *what = kiln_asprintf("remove %s", name);
    errno = what ? saved : ENOMEM;
    enum kiln_status status = cannot(cache, what, err);
    kiln_free(what);
    return status;
}

enum kiln_status kiln_cache_list(
        struct kiln_cache *cache, struct kiln_cache_list *list, struct kiln_err *err) {
    struct files files = {0};
    *list = (struct kiln_cache_list){0};
    enum kiln_status status = KILN_STATUS_OK;
    if (scan(cache->path, &files, NULL) != 0) {
        status = errno == ENOENT ? KILN_STATUS_OK : cannot(cache, "read it", err);
    } else {
        struct stat st;
        if (stat(cache->path, &st) == 0 && !kiln_cache_trusts(&st)) {
            list->fault = kiln_cache_foreign;
        }
        sort(&files, by_name);
        status = list_files(cache, &files, list, err);
    }
    kiln_free(files.items);
    return status;
}

enum kiln_status kiln_cache_clear(struct kiln_cache *cache, int only_bad, size_t *removed,
        uint64_t *bytes, struct kiln_err *err) {
    struct kiln_cache_list list;
    struct files none = {0}, left = {0};
    *removed = 0;
    *bytes = 0;
    enum kiln_status status = kiln_cache_list(cache, &list, err);
    int listed = status == KILN_STATUS_OK;
    for (size_t i = 0; listed && i < list.count; i++) { // one that stays keeps no other
        const struct kiln_cache_entry *entry = &list.entries[i];
        if (only_bad && !entry->fault) {
            continue;
        }
        if (remove_file(cache->path, entry->name) != 0) {
            status = status == KILN_STATUS_OK ? cannot_remove(cache, entry->name, err) : status;
        } else {
            (*removed)++;
            *bytes += entry->bytes;
        }
    }
    // A writer that is at work loses its temporary file and with it only this one entry.
    if (listed && !only_bad && scan(cache->path, &none, &left) == 0) {
        for (size_t i = 0; i < left.count; i++) {
            (void)remove_file(cache->path, left.items[i].name);
        }
    }
    kiln_cache_list_finish(&list);
    kiln_free(none.items);
    kiln_free(left.items);
    return status;
}
