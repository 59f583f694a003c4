// pool: threads that take the indices of one loop from a shared counter.
//
// A run is published by storing how many indices are left; taking one is a compare-and-swap that
// lowers it. Whoever takes an index holds the run open until it is reported done, so a worker that
// wakes late simply finds nothing left and nobody waits for it. The caller works too: a run ends
// even when no worker wakes.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // sched_getaffinity, CPU_COUNT_S
#endif
#include "base/pool.h"

#include "base/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    SPIN_NS = 50 * 1000, // longer than the gap between two ops of a forward pass
    CACHE_LINE = 64,
};

struct worker {
    struct kiln_pool *pool;
    uint32_t index;
    pthread_t thread;
};

struct kiln_pool {
    // The run: written by the caller while `left` is 0, read by whoever has taken an index.
    kiln_pool_fn fn;
    void *arg;
    uint32_t count;

    uint32_t threads;
    int64_t spin_ns;
    struct worker *workers; // (threads - 1)
    uint32_t started;       // of the workers

    // Each on its own cache line: every thread writes the first, finishing ones the second.
    _Alignas(CACHE_LINE) atomic_uint_fast32_t left;   // indices not yet taken
    _Alignas(CACHE_LINE) atomic_uint_fast32_t done;   // indices finished
    _Alignas(CACHE_LINE) atomic_uint_fast32_t asleep; // workers in, or about to enter, the wait
    atomic_int caller_asleep;
    atomic_int stop;

    pthread_mutex_t lock;
    pthread_cond_t wake;     // workers wait for left > 0 or stop
    pthread_cond_t finished; // the caller waits for done == count
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Takes an index of the run in progress. The swap may succeed on a later run than the one that was
// looked at: its index is as good, since the run's fields are read only afterwards.
static int take(struct kiln_pool *pool, uint32_t *index) {
    uint_fast32_t left = atomic_load(&pool->left);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&pool->left, &left, left - 1)) {
            *index = pool->count - (uint32_t)left;
            return 1;
        }
    }
    return 0;
}

// Works until nothing is left to take.
static void work(struct kiln_pool *pool, uint32_t worker) {
    uint32_t index, ran = 0, count = 0;
    while (take(pool, &index)) {
        if (ran == 0) {
            // not to be read after the report below: the next run may have begun
            count = pool->count;
        }
        pool->fn(pool->arg, index, worker);
        ran++;
    }
    if (ran > 0 && atomic_fetch_add(&pool->done, ran) + ran == count &&
            atomic_load(&pool->caller_asleep)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->finished);
        pthread_mutex_unlock(&pool->lock);
    }
}

static int worker_ready(const struct kiln_pool *pool) {
    return atomic_load(&pool->left) > 0 || atomic_load(&pool->stop);
}

static int run_over(const struct kiln_pool *pool) {
    return atomic_load(&pool->done) == pool->count;
}

static int spin(const struct kiln_pool *pool, int (*over)(const struct kiln_pool *)) {
    if (over(pool)) {
        return 1;
    }
    for (int64_t end = pool->spin_ns ? now_ns() + pool->spin_ns : 0; end && now_ns() < end;) {
        for (int i = 0; i < 32; i++) { // the clock costs more than a look
            pause_cpu();
            if (over(pool)) {
                return 1;
            }
        }
    }
    return 0;
}

// Sleeping announces itself first and looks at the condition again afterwards; waking changes the
// condition first and looks at the announcement afterwards. All four are sequentially consistent,
// so one of the two sees the other and no wake-up is lost.
static void *worker_main(void *arg) {
    struct worker *self = arg;
    struct kiln_pool *pool = self->pool;
    while (!atomic_load(&pool->stop)) {
        if (!spin(pool, worker_ready)) {
            pthread_mutex_lock(&pool->lock);
            atomic_fetch_add(&pool->asleep, 1);
            while (!worker_ready(pool)) {
                pthread_cond_wait(&pool->wake, &pool->lock);
            }
            atomic_fetch_sub(&pool->asleep, 1);
            pthread_mutex_unlock(&pool->lock);
        }
        work(pool, self->index);
    }
    return NULL;
}

static void wake_workers(struct kiln_pool *pool, uint32_t wanted) {
    uint_fast32_t asleep = atomic_load(&pool->asleep);
    if (asleep == 0) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    if (asleep <= wanted) {
        pthread_cond_broadcast(&pool->wake);
    } else {
        for (uint32_t i = 0; i < wanted; i++) {
            pthread_cond_signal(&pool->wake);
        }
    }
    pthread_mutex_unlock(&pool->lock);
}

void kiln_pool_run(struct kiln_pool *pool, kiln_pool_fn fn, void *arg, uint32_t count) {
    if (count <= 1 || pool->threads == 1) {
        for (uint32_t i = 0; i < count; i++) {
            fn(arg, i, 0);
        }
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->count = count;
    atomic_store(&pool->done, 0);
    atomic_store(&pool->left, count); // publishes the fields above
    wake_workers(pool, count - 1);
    work(pool, 0);
    if (!spin(pool, run_over)) {
        pthread_mutex_lock(&pool->lock);
        atomic_store(&pool->caller_asleep, 1);
        while (!run_over(pool)) {
            pthread_cond_wait(&pool->finished, &pool->lock);
        }
        atomic_store(&pool->caller_asleep, 0);
        pthread_mutex_unlock(&pool->lock);
    }
}

// Starts the workers with every signal blocked that is sent from outside, so that Ctrl-C reaches
// the thread that handles it. Faults stay open: blocked, they would kill past every handler.
static int start_workers(struct kiln_pool *pool) {
    sigset_t block, before;
    sigfillset(&block);
    const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        sigdelset(&block, faults[i]);
    }
    pthread_sigmask(SIG_BLOCK, &block, &before);
    int code = 0;
    while (code == 0 && pool->started < pool->threads - 1) {
        struct worker *worker = &pool->workers[pool->started];
        *worker = (struct worker){.pool = pool, .index = pool->started + 1};
        code = pthread_create(&worker->thread, NULL, worker_main, worker);
        pool->started += code == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

enum kiln_status kiln_pool_create(
        struct kiln_pool **pool_out, uint32_t threads, struct kiln_err *err) {
    *pool_out = NULL;
    if (threads == 0) {
        return kiln_err_set(
                err, KILN_STATUS_USAGE, "a thread pool of 0 threads: at least 1 is needed");
    }
    struct kiln_pool *pool = kiln_alloc_aligned(CACHE_LINE, sizeof(*pool));
    struct worker *workers = kiln_calloc(threads - 1, sizeof(*workers));
    if (!pool || !workers) {
        kiln_free(pool);
        kiln_free(workers);
        return kiln_err_nomem(err, "the thread pool");
    }
    memset(pool, 0, sizeof(*pool));
    pool->threads = threads;
    pool->workers = workers;
    // With more threads than cores, spinning takes the core from the one that has the work.
    pool->spin_ns = threads <= kiln_cpu_count() ? SPIN_NS : 0;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->finished, NULL);
    int code = start_workers(pool);
    if (code != 0) {
        uint32_t ran = pool->started + 1;
        kiln_pool_destroy(pool);
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "cannot start thread %" PRIu32 " of %" PRIu32 ": %s; ask for fewer threads",
                ran + 1, threads, strerror(code));
    }
    *pool_out = pool;
    return KILN_STATUS_OK;
}

void kiln_pool_destroy(struct kiln_pool *pool) {
    if (!pool) {
        return;
    }
    atomic_store(&pool->stop, 1);
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->started; i++) {
        pthread_join(pool->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    kiln_free(pool->workers);
    kiln_free(pool);
}

uint32_t kiln_pool_threads(const struct kiln_pool *pool) {
    return pool->threads;
}

// Cores of the affinity mask.
static uint32_t affinity_count(void) {
    cpu_set_t sets[16]; // 16384 cores: the kernel refuses a mask shorter than its own
    memset(sets, 0, sizeof(sets));
    if (sched_getaffinity(0, sizeof(sets), sets) != 0) {
        return 1;
    }
    int count = CPU_COUNT_S(sizeof(sets), sets);
    return count > 0 ? (uint32_t)count : 1;
}

// The first two whitespace-separated words of a small file: 2 when both are there.
static int read_words(const char *path, char first[32], char second[32]) {
    FILE *file = fopen(path, "re");
    if (!file) {
        return 0;
    }
    int count = fscanf(file, "%31s %31s", first, second);
    fclose(file);
    return count;
}

// Cores that `quota` us in each `period` us stand for, rounded up; UINT32_MAX when unlimited
// ("max", -1).
static uint32_t quota_cores(const char *quota, const char *period) {
    intmax_t used = strtoimax(quota, NULL, 10);
    intmax_t each = strtoimax(period, NULL, 10);
    if (used <= 0 || each <= 0 || used / each >= UINT32_MAX) {
        return UINT32_MAX;
    }
    return (uint32_t)(used / each + (used % each != 0));
}

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

// The tightest quota between a control group and the root of its tree. `path` is cut down on the
// way.
static uint32_t group_quota(const char *root, int version, char *path) {
    uint32_t cores = UINT32_MAX;
    for (;;) {
        char name[4608], other[4608], quota[32], period[32];
        if (version == 2) {
            snprintf(name, sizeof(name), "%s%s/cpu.max", root, path);
            if (read_words(name, quota, period) == 2) {
                cores = min_u32(cores, quota_cores(quota, period));
            }
        } else {
            char rest[32];
            snprintf(name, sizeof(name), "%s%s/cpu.cfs_quota_us", root, path);
            snprintf(other, sizeof(other), "%s%s/cpu.cfs_period_us", root, path);
            if (read_words(name, quota, rest) >= 1 && read_words(other, period, rest) >= 1) {
                cores = min_u32(cores, quota_cores(quota, period));
            }
        }
        char *slash = strrchr(path, '/');
        if (!slash) {
            return cores;
        }
        *slash = '\0';
    }
}

// Whether the comma-separated list has the word "cpu".
static int has_cpu(const char *list, size_t len) {
    for (size_t at = 0; at < len;) {
        size_t word = strcspn(list + at, ",:");
        if (word == 3 && memcmp(list + at, "cpu", 3) == 0) {
            return 1;
        }
        at += word + 1;
    }
    return 0;
}

// Lines of /proc/self/cgroup: "0::/path" (version 2), "4:cpu,cpuacct:/path" (version 1).
static uint32_t cgroup_count(void) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    uint32_t cores = UINT32_MAX;
    char line[4400];
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':');
        char *path = list ? strchr(list + 1, ':') : NULL;
        if (!path) {
            continue;
        }
        list++;
        size_t len = (size_t)(path - list);
        path++;
        if (len == 0) {
            cores = min_u32(cores, group_quota("/sys/fs/cgroup", 2, path));
        } else if (has_cpu(list, len)) {
            cores = min_u32(cores, group_quota("/sys/fs/cgroup/cpu", 1, path));
        }
    }
    if (file) {
        fclose(file);
    }
    return cores;
}

uint32_t kiln_cpu_count(void) {
    return min_u32(affinity_count(), cgroup_count());
}
