// pool: a fixed set of threads that share one loop at a time.
#ifndef KILN_BASE_POOL_H
#define KILN_BASE_POOL_H

#include "base/status.h"

#include <stdint.h>

struct kiln_pool;

// A task: `index` of the loop, `worker` in [0, threads): the same worker never runs two tasks at
// once, so per-worker scratch needs no lock.
typedef void (*kiln_pool_fn)(void *arg, uint32_t index, uint32_t worker);

// threads >= 1; the caller of kiln_pool_run is one of them. Fails when a thread cannot be started.
KILN_MUST_CHECK enum kiln_status kiln_pool_create(
        struct kiln_pool **pool, uint32_t threads, struct kiln_err *err);
void kiln_pool_destroy(struct kiln_pool *pool); // NULL is fine

uint32_t kiln_pool_threads(const struct kiln_pool *pool);

// Runs fn(arg, i, worker) for i in [0, count), each once, in any order, and returns when all are
// done. Called from one thread at a time. Waiting threads spin briefly, then sleep.
void kiln_pool_run(struct kiln_pool *pool, kiln_pool_fn fn, void *arg, uint32_t count);

// Cores this process may run on (its affinity mask and its cgroup's quota, rounded up), at least 1.
uint32_t kiln_cpu_count(void);

#endif
