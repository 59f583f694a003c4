// pool: each index runs once, a worker is one thread, and runs follow each other without loss.
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/pool.h"

enum {
    MOST = 5000,
    WORKERS = 8
};

struct tally {
    uint8_t seen[MOST];           // plain on purpose: only the taker of an index writes it
    uint64_t per_worker[WORKERS]; // plain on purpose: only that worker writes it
    atomic_int busy[WORKERS];
    atomic_int overlaps;
    uint32_t threads;
};

static void count_task(void *arg, uint32_t index, uint32_t worker) {
    struct tally *tally = arg;
    if (worker >= tally->threads || atomic_fetch_add(&tally->busy[worker], 1) != 0) {
        atomic_fetch_add(&tally->overlaps, 1);
        return;
    }
    tally->seen[index]++;
    tally->per_worker[worker]++;
    atomic_fetch_sub(&tally->busy[worker], 1);
}

static void check_run(struct kiln_pool *pool, uint32_t count) {
    static struct tally tally;
    memset(&tally, 0, sizeof(tally));
    tally.threads = kiln_pool_threads(pool);
    kiln_pool_run(pool, count_task, &tally, count);
    assert_int_equal(atomic_load(&tally.overlaps), 0);
    uint64_t total = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        total += tally.per_worker[i];
    }
    assert_int_equal(total, count);
    for (uint32_t i = 0; i < MOST; i++) {
        assert_int_equal(tally.seen[i], i < count);
    }
}

static void pool_runs_each_index_once(void **state) {
    (void)state;
    static const uint32_t counts[] = {0, 1, 2, 3, 7, 64, 1000, MOST};
    for (uint32_t threads = 1; threads <= WORKERS; threads++) {
        struct kiln_pool *pool;
        struct kiln_err err = {0};
        assert_int_equal(kiln_pool_create(&pool, threads, &err), KILN_STATUS_OK);
        assert_int_equal(kiln_pool_threads(pool), threads);
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            check_run(pool, counts[i]);
        }
        kiln_pool_destroy(pool);
    }
}

static void add_task(void *arg, uint32_t index, uint32_t worker) {
    (void)worker;
    uint64_t *cells = arg;
    cells[index] += index + 1;
}

static void sleep_us(long us) {
    const struct timespec time = {.tv_nsec = us * 1000};
    nanosleep(&time, NULL);
}

// Runs back to back catch a report or an index that leaks into the next run; the pauses let the
// workers fall asleep in between, just around the end of their spinning.
static void pool_loses_nothing_over_many_runs(void **state) {
    (void)state;
    for (uint32_t threads = 2; threads <= 4; threads++) {
        struct kiln_pool *pool;
        struct kiln_err err = {0};
        assert_int_equal(kiln_pool_create(&pool, threads, &err), KILN_STATUS_OK);
        uint64_t cells[16] = {0};
        enum {
            RUNS = 3000
        };
        uint64_t expected[16] = {0};
        for (uint32_t run = 0; run < RUNS; run++) {
            uint32_t count = 1 + run % 16;
            kiln_pool_run(pool, add_task, cells, count);
            for (uint32_t i = 0; i < count; i++) {
                expected[i] += i + 1;
            }
            assert_memory_equal(cells, expected, sizeof(cells));
            if (run % 50 == 0) {
                sleep_us(20 + run % 100);
            }
        }
        kiln_pool_destroy(pool);
    }
}

static void slow_task(void *arg, uint32_t index, uint32_t worker) {
    (void)index;
    atomic_fetch_or((atomic_uint *)arg, 1u << worker);
    sleep_us(2000);
}

static void pool_spreads_the_work(void **state) {
    (void)state;
    struct kiln_pool *pool;
    struct kiln_err err = {0};
    assert_int_equal(kiln_pool_create(&pool, 3, &err), KILN_STATUS_OK);
    sleep_us(1000); // asleep by now
    atomic_uint workers = 0;
    kiln_pool_run(pool, slow_task, &workers, 60);
    assert_int_equal(atomic_load(&workers), 7);
    kiln_pool_destroy(pool);
}

static void note_index(void *arg, uint32_t index, uint32_t worker) {
    (void)index;
    *(uint32_t *)arg = worker;
}

static void pool_runs_single_tasks_on_the_caller(void **state) {
    (void)state;
    struct kiln_pool *pool;
    struct kiln_err err = {0};
    assert_int_equal(kiln_pool_create(&pool, 4, &err), KILN_STATUS_OK);
    for (int i = 0; i < 100; i++) {
        uint32_t worker = 99;
        kiln_pool_run(pool, note_index, &worker, 1);
        assert_int_equal(worker, 0);
    }
    kiln_pool_destroy(pool);
    kiln_pool_destroy(NULL);
}

static void pool_create_failures_leave_nothing(void **state) {
    (void)state;
    struct kiln_pool *pool;
    struct kiln_err err = {0};
    assert_int_equal(kiln_pool_create(&pool, 0, &err), KILN_STATUS_USAGE);
    for (uint64_t n = 1; n <= 2; n++) {
        kiln_mem_fail_at(n, 0);
        enum kiln_status status = kiln_pool_create(&pool, 3, &err);
        kiln_mem_fail_at(0, 0);
        assert_int_equal(status, KILN_STATUS_NOMEM);
        assert_null(pool);
    }
}

static void cpu_count_is_plausible(void **state) {
    (void)state;
    assert_in_range(kiln_cpu_count(), 1, 16384);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(pool_runs_each_index_once),
            cmocka_unit_test(pool_loses_nothing_over_many_runs),
            cmocka_unit_test(pool_spreads_the_work),
            cmocka_unit_test(pool_runs_single_tasks_on_the_caller),
            cmocka_unit_test(pool_create_failures_leave_nothing),
            cmocka_unit_test(cpu_count_is_plausible),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
