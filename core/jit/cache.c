// cache: one entry: finding, checking, writing, locking.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // flock, mkostemp, futimens
#endif
#include "jit/cache.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "jit/cache_impl.h"
#include "jit/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_ENTRY = 1 << 30,
    LOCK_WAIT_MS = 120 * 1000
};

enum kiln_status kiln_cache_open(
        struct kiln_cache **cache, const struct kiln_cache_params *params, struct kiln_err *err) {
    struct kiln_cache *made = kiln_calloc(1, sizeof(*made));
    *cache = NULL;
    if (made) {
        made->params = *params;
        made->base = params->dir ? kiln_strdup(params->dir) : kiln_cache_dir();
        made->path = made->base ? kiln_asprintf("%s/kernels", made->base) : NULL;
    }
    if (!made || !made->path) {
        kiln_cache_close(made);
        return kiln_err_nomem(err, "the kernel cache");
    }
    *cache = made;
    return KILN_STATUS_OK;
}

void kiln_cache_close(struct kiln_cache *cache) {
    if (cache) {
        kiln_free(cache->base);
        kiln_free(cache->path);
        kiln_free(cache);
    }
}

const char *kiln_cache_path(const struct kiln_cache *cache) {
    return cache->path;
}

const char kiln_cache_foreign[] = "it belongs to another user";

int kiln_cache_trusts(const struct stat *st) {
    return st->st_uid == geteuid() || st->st_uid == 0;
}

// ---- The folder ---------------------------------------------------------------------------------

// Says once why the folder is of no use.
static void give_up(struct kiln_cache *cache, const char *why) {
    if (!atomic_exchange(&cache->warned, 1)) {
        kiln_log(KILN_LOG_WARN,
                "kernel cache %s cannot be used: %s. Kernels are compiled and not kept; [cache] "
                "dir or "
                "KILN_CACHE_DIR names another folder",
                cache->path, why);
    }
}

// Makes the folder and looks whose it is. 0, or -1 when nothing can be stored there.
static int make_folder(struct kiln_cache *cache) {
    struct kiln_err err = {0};
    struct stat st;
    if (kiln_make_dirs(cache->base, &err) != KILN_STATUS_OK) {
        give_up(cache, err.text);
        return -1;
    }
    if ((mkdir(cache->path, 0700) != 0 && errno != EEXIST) || stat(cache->path, &st) != 0) {
        give_up(cache, strerror(errno));
        return -1;
    }
    if (!S_ISDIR(st.st_mode) || !kiln_cache_trusts(&st)) {
        give_up(cache, S_ISDIR(st.st_mode) ? kiln_cache_foreign : "it is no folder");
        return -1;
    }
    return 0;
}

static char *entry_path(const struct kiln_cache *cache, const struct kiln_jit_key *key) {
    return kiln_asprintf("%s/%s" KILN_CACHE_SUFFIX, cache->path, key->hex);
}

static void step(struct kiln_cache *cache, const char *name) {
    if (cache->params.step) {
        cache->params.step(cache->params.step_arg, name);
    }
}

// ---- Reading ------------------------------------------------------------------------------------

const char kiln_cache_no_memory[] = "there is no memory for it";

static const char *read_fd(int fd, size_t size, uint8_t **bytes) {
    uint8_t *data = kiln_alloc(size);
    size_t len = 0;
    while (data && len < size) {
        ssize_t n = read(fd, data + len, size - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            kiln_free(data);
            return n < 0 ? "it cannot be read" : "it is cut short";
        }
        len += (size_t)n;
    }
    *bytes = data;
    return data ? NULL : kiln_cache_no_memory;
}

const char *kiln_cache_read(
        const char *path, int touch, uint8_t **bytes, size_t *size, struct stat *st) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return errno == ENOENT || errno == ENOTDIR ? "" : "it cannot be opened";
    }
    const char *fault = NULL;
    if (fstat(fd, st) != 0 || !S_ISREG(st->st_mode) || st->st_size > MAX_ENTRY) {
        fault = "it is no cache entry";
    } else if (!kiln_cache_trusts(st)) {
        fault = kiln_cache_foreign;
    } else {
        *size = (size_t)st->st_size;
        fault = read_fd(fd, *size, bytes);
    }
    if (!fault && touch) { // by hand: many disks are mounted not to
        const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
        (void)futimens(fd, times);
    }
    close(fd);
    return fault;
}

// Why there is no good entry: NULL: there is one; "": none at all.
static const char *get(const char *path, const struct kiln_jit_key *key, const char *key_text,
        struct kiln_image *image) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    struct stat st;
    struct kiln_err err = {0};
    const char *fault = kiln_cache_read(path, 1, &bytes, &size, &st);
    if (!fault) {
        fault = kiln_entry_fault(bytes, size, key, key_text);
    }
    if (!fault && kiln_entry_decode(bytes, image, NULL, &err) != KILN_STATUS_OK) {
        fault = kiln_cache_no_memory;
    }
    kiln_free(bytes);
    return fault;
}

int kiln_cache_get(struct kiln_cache *cache, const struct kiln_jit_key *key, const char *key_text,
        struct kiln_image *image) {
    struct stat st;
    // Whoever owns the folder could swap entries for older ones of the same key.
    if (stat(cache->path, &st) != 0 || !kiln_cache_trusts(&st)) {
        return 0;
    }
    char *path = entry_path(cache, key);
    if (!path) {
        return 0;
    }
    const char *fault = get(path, key, key_text, image);
    if (fault && *fault && fault != kiln_cache_no_memory) {
        if (unlink(path) == 0 || errno == ENOENT) {
            kiln_log(KILN_LOG_WARN, "kernel cache: %s: %s; it is dropped and compiled again", path,
                    fault);
        } else { // it stays, and so will the next one: nothing can be kept here
            char why[128];
            (void)snprintf(why, sizeof(why), "an entry, %s: %s, and it cannot be replaced: %s",
                    key->hex, fault, strerror(errno));
            give_up(cache, why);
        }
    }
    kiln_free(path);
    return fault == NULL;
}

// ---- Writing ------------------------------------------------------------------------------------

static int write_all(int fd, const uint8_t *data, size_t size) {
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return -1;
        }
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

static void flush_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

// Writes bytes to path by way of temp, a template for mkostemp. 0, or -1 with errno.
static int publish(
        struct kiln_cache *cache, char *temp, const char *path, const uint8_t *bytes, size_t size) {
    step(cache, "create");
    int fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    step(cache, "write");
    // Who may read is the folder's business: one that root filled can serve everyone.
    int failed = fchmod(fd, 0644) != 0 || write_all(fd, bytes, size / 2) != 0;
    step(cache, "write on");
    failed = failed || write_all(fd, bytes + size / 2, size - size / 2) != 0;
    step(cache, "flush");
    failed = failed || fsync(fd) != 0;
    int saved = errno;
    if (close(fd) != 0 && !failed) { // network file systems report a full disk here
        failed = 1;
        saved = errno;
    }
    step(cache, "rename");
    if (!failed && rename(temp, path) != 0) {
        failed = 1;
        saved = errno;
    }
    if (failed) {
        (void)unlink(temp);
        errno = saved;
        return -1;
    }
    step(cache, "flush the folder");
    flush_folder(cache->path);
    return 0;
}

static void store(struct kiln_cache *cache, const struct kiln_jit_key *key, const uint8_t *bytes,
        size_t size) {
    char *temp = kiln_asprintf("%s/.%s.XXXXXX", cache->path, key->hex);
    char *path = entry_path(cache, key);
    if (temp && path) {
        // A temporary file that is gone fell to `cache clear`: that entry was not wanted.
        if (publish(cache, temp, path, bytes, size) != 0 && errno != ENOENT) {
            char why[200];
            (void)snprintf(why, sizeof(why), "it cannot be written: %s", strerror(errno));
            give_up(cache, why);
        }
    }
    kiln_free(temp);
    kiln_free(path);
}

void kiln_cache_put(struct kiln_cache *cache, const struct kiln_jit_key *key, const char *key_text,
        const struct kiln_image *image) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    struct kiln_err err = {0};
    if (atomic_load(&cache->warned) || make_folder(cache) != 0 ||
            kiln_entry_encode(key, key_text, image, &bytes, &size, &err) != KILN_STATUS_OK) {
        return;
    }
    if ((uint64_t)size <= (uint64_t)cache->params.max_size) {
        store(cache, key, bytes, size);
        kiln_cache_sweep(cache, key);
    }
    kiln_free(bytes);
}

// ---- Locks --------------------------------------------------------------------------------------

static char *lock_path(const struct kiln_cache *cache, const struct kiln_jit_key *key) {
    return kiln_asprintf("%s/.%s.lock", cache->path, key->hex);
}

// Waits for the lock on fd: 0, or -1 when it cannot be had.
static int wait_for(int fd) {
    long waited = 0;
    for (long pause = 1; flock(fd, LOCK_EX | LOCK_NB) != 0; pause = pause < 20 ? pause * 2 : 20) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || waited > LOCK_WAIT_MS) {
            return -1;
        }
        const struct timespec time = {.tv_nsec = pause * 1000000};
        (void)nanosleep(&time, NULL);
        waited += pause;
    }
    return 0;
}

int kiln_cache_lock(struct kiln_cache *cache, const struct kiln_jit_key *key) {
    if (atomic_load(&cache->warned) || cache->params.max_size == 0 || make_folder(cache) != 0) {
        return -1;
    }
    char *path = lock_path(cache, key);
    int lock = -1;
    while (path) {
        struct stat held, there;
        lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (lock < 0) {
            char why[200];
            (void)snprintf(why, sizeof(why), "it cannot be written: %s", strerror(errno));
            give_up(cache, why);
            break;
        }
        if (wait_for(lock) != 0) {
            close(lock);
            lock = -1;
            break;
        }
        // The holder removes the file as it lets go: a lock on a removed file is none.
        if (fstat(lock, &held) == 0 && stat(path, &there) == 0 && held.st_ino == there.st_ino &&
                held.st_dev == there.st_dev) {
            break;
        }
        close(lock);
    }
    kiln_free(path);
    return lock;
}

void kiln_cache_unlock(struct kiln_cache *cache, const struct kiln_jit_key *key, int lock) {
    if (lock >= 0) {
        char *path = lock_path(cache, key);
        if (path) {
            (void)unlink(path);
        }
        kiln_free(path);
        close(lock);
    }
}
