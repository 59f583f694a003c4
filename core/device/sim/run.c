// run: launches. Blocks go to the machine's threads in the order of their index; in a block, warps
// take turns: one runs until it waits, ends, or has used its turn up.
#include "device/sim/run.h"

#include "base/mem.h"
#include "base/pool.h"
#include "device/sim/barrier.h"
#include "device/sim/lanes_impl.h"
#include "device/sim/mbarrier.h"
#include "device/sim/report.h"
#include "device/sim/run_impl.h"
#include "device/sim/watch.h"
#include "device/sim/wgmma.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TURN = 1 << 15,     // instructions of a warp before the next one runs
    PATIENCE = 1 << 20, // of a block, before another runs or Ctrl-C is looked for
    MAX_TOGETHER = 64,  // blocks that take turns
};

// ---- Asked by other files -----------------------------------------------------------------------
const struct kiln_sim_launch *kiln_sim_launch_of(const struct sim_warp *warp) {
    return warp->worker->run->launch;
}

unsigned char *kiln_sim_params(const struct sim_worker *worker) {
    return worker->run->params;
}

const struct kiln_ptx_insn *kiln_sim_insn_of(const struct sim_warp *warp, const struct sim_op *op) {
    return &warp->function->ptx->insns[op->id - warp->function->first_insn];
}

int kiln_sim_checks(const struct sim_warp *warp, enum kiln_sim_check check) {
    return (int)(warp->worker->checks >> check & 1);
}

// The first block that failed, in the order of their index, is the one that is told of.
const struct sim_op *kiln_sim_fail(struct sim_warp *warp, const struct sim_op *op,
        enum kiln_status status, const char *fmt, ...) {
    struct sim_worker *worker = warp->worker;
    struct sim_run *run = worker->run;
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    pthread_mutex_lock(&run->lock);
    if (warp->block->index < run->failed_block) {
        const struct kiln_ptx_where *where = kiln_sim_where(worker->kernel, op->id);
        run->failed_block = warp->block->index;
        kiln_err_set(&run->failure, status,
                "sim: kernel %s, %s:%u (PTX line %u), block (%u, %u, %u): %s",
                worker->kernel->ptx->name, kiln_sim_file(worker->kernel, where), where->line,
                where->ptx_line, warp->block->at[0], warp->block->at[1], warp->block->at[2], text);
    }
    pthread_mutex_unlock(&run->lock);
    warp->stop = SIM_FAILED;
    warp->block->running = 0;
    return NULL;
}

// ---- Warps and blocks ---------------------------------------------------------------------------
static void finish_warp(struct sim_warp *warp) {
    kiln_free(warp->frames);
    kiln_free(warp->calls);
    kiln_free(warp->local);
    kiln_free(warp->splits);
    kiln_free(warp->call_frames);
    kiln_free(warp->copies);
}

static void destroy_block(struct sim_block *block) {
    if (!block) {
        return;
    }
    for (uint32_t w = 0; w < SIM_WARPS; w++) {
        finish_warp(&block->warps[w]);
    }
    kiln_free(block->shared);
    kiln_free(block->printed);
    kiln_sim_shadow_destroy(block->shadow);
    kiln_sim_wgmma_destroy(block->wgmma);
    kiln_free(block);
}

// Room for any block of the launch.
static enum kiln_status create_block(
        struct sim_block **out, struct sim_worker *worker, struct kiln_err *err) {
    const struct sim_run *run = worker->run;
    const struct sim_function *entry = &worker->kernel->functions[0];
    struct sim_block *block = kiln_calloc(1, sizeof(*block));
    *out = block;
    if (!block) {
        return kiln_err_nomem(err, "a block");
    }
    block->worker = worker;
    block->n_warps = run->n_warps;
    block->shared_bytes = run->shared_bytes;
    block->shared = kiln_alloc_aligned(256, (size_t)block->shared_bytes + 64);
    if (!block->shared) {
        return kiln_err_nomem(err, "a block's shared memory");
    }
    if (worker->check_shared) {
        KILN_TRY(kiln_sim_shadow_create(&block->shadow, block->shared_bytes,
                worker->kernel->timed ? block->n_warps : 0, err));
    }
    if (worker->kernel->products && worker->checks) {
        KILN_TRY(kiln_sim_wgmma_create(&block->wgmma, worker->kernel, err));
    }
    for (uint32_t w = 0; w < block->n_warps; w++) {
        struct sim_warp *warp = &block->warps[w];
        warp->block = block;
        warp->worker = worker;
        warp->index = w;
        warp->lists = worker->kernel->lists;
        warp->bank[1] = worker->kernel->constants;
        warp->local = kiln_alloc_aligned(64, (size_t)SIM_LANES * worker->kernel->local_bytes + 64);
        if (!warp->local || !kiln_sim_reserve(warp, entry)) {
            return kiln_err_nomem(err, "a warp");
        }
    }
    return KILN_STATUS_OK;
}

static void begin_warp(struct sim_warp *warp, uint32_t threads) {
    const struct sim_function *entry = &warp->worker->kernel->functions[0];
    uint32_t here = threads - warp->index * SIM_LANES;
    warp->first = here >= SIM_LANES ? SIM_ALL : (1u << here) - 1;
    warp->live = warp->mask = warp->first;
    warp->reconverge = NULL;
    warp->pc = entry->ops;
    warp->stop = SIM_YIELDS;
    warp->function = entry;
    warp->frame_at = 0;
    warp->call_at = 0;
    warp->local_at = 0;
    warp->n_splits = 0;
    warp->n_call_frames = 0;
    warp->n_copies = 0;
    warp->barrier_vote = 0;
    warp->bank[0] = warp->frames;
    memset(warp->group, 0, sizeof(warp->group));
    memset(warp->global_reads, 0, sizeof(warp->global_reads));
    memset(warp->global_writes, 0, sizeof(warp->global_writes));
    // What a register holds that nobody wrote is the same in every run.
    memset(warp->frames, 0, entry->frame_bytes);
    memset(warp->local, 0, (size_t)SIM_LANES * warp->worker->kernel->local_bytes);
}

static void begin_block(struct sim_block *block, uint64_t index) {
    const struct sim_run *run = block->worker->run;
    const uint32_t *grid = run->launch->grid;
    block->index = index;
    block->at[0] = (uint32_t)(index % grid[0]);
    block->at[1] = (uint32_t)(index / grid[0] % grid[1]);
    block->at[2] = (uint32_t)(index / grid[0] / grid[1]);
    block->executed = 0;
    block->running = 1;
    block->n_printed = 0;
    memset(block->shared, 0, block->shared_bytes);
    memset(block->barriers, 0, sizeof(block->barriers));
    block->n_mbarriers = 0;
    block->phases_ended = 0;
    if (block->shadow) {
        kiln_sim_shadow_begin(block->shadow);
        const struct kiln_ptx_kernel *ptx = block->worker->kernel->ptx;
        for (uint32_t i = 0; i < ptx->n_shared; i++) {
            if (ptx->shared[i].name[0] == '%') { // the device's own, zeros from the start
                kiln_sim_shadow_written(block->shadow, ptx->shared[i].offset, ptx->shared[i].bytes);
            }
        }
    }
    for (uint32_t w = 0; w < block->n_warps; w++) {
        begin_warp(&block->warps[w], run->n_threads);
    }
    if (block->wgmma) {
        kiln_sim_wgmma_begin(block->wgmma);
    }
}

static void run_warp(struct sim_warp *warp) {
    const uint64_t limit = warp->worker->run->limit;
    const int64_t turn = limit < TURN ? (int64_t)limit : TURN;
    warp->turn = turn;
    const struct sim_op *op = warp->pc;
    while (op) {
        op = op->fn(warp, op);
    }
    warp->block->executed += (uint64_t)(turn - warp->turn);
}

static void deadlock(struct sim_block *block) {
    struct sim_warp *waiting = NULL, *for_phase = NULL;
    uint32_t n = 0, n_for_phase = 0;
    for (uint32_t w = 0; w < block->n_warps; w++) {
        if (block->warps[w].stop == SIM_BARRIER) {
            waiting = waiting ? waiting : &block->warps[w];
            n++;
        } else if (block->warps[w].stop == SIM_WAITS) {
            for_phase = for_phase ? for_phase : &block->warps[w];
            n_for_phase++;
        }
    }
    block->running = 0;
    if (for_phase) {
        kiln_sim_mbarrier_stuck(for_phase, n_for_phase);
    }
    if (!waiting) {
        return;
    }
    if (kiln_sim_checks(waiting, KILN_SIM_CHECK_DEADLOCK)) {
        kiln_sim_note(waiting, waiting->barrier_op, KILN_SIM_CHECK_DEADLOCK,
                __builtin_ctz(waiting->mask), -1, 0, 0,
                "%u warps wait at barriers that no other warp will reach, the first at barrier %u",
                n, waiting->barrier);
    } else {
        kiln_sim_fail(waiting, waiting->barrier_op, KILN_STATUS_DEVICE,
                "deadlock: %u warps wait at barriers that no other warp will reach", n);
    }
}

// Runs the block until it is done, has executed PATIENCE instructions, or as many in all as are
// allowed.
static void run_block(struct sim_block *block) {
    const uint64_t limit = block->worker->run->limit, patience = block->executed + PATIENCE;
    while (block->running && block->executed < limit && block->executed < patience) {
        int ran = 0;
        uint32_t exited = 0;
        for (uint32_t w = 0; block->running && w < block->n_warps; w++) {
            struct sim_warp *warp = &block->warps[w];
            if (warp->stop == SIM_YIELDS || kiln_sim_may_go_on(warp)) {
                run_warp(warp);
                ran = 1;
            }
            exited += warp->stop == SIM_EXITED;
        }
        if (!block->running) {
            return;
        }
        if (exited == block->n_warps) {
            block->running = 0;
        } else if (!kiln_sim_barriers_open(block) && !ran) {
            deadlock(block);
        }
    }
}

static void end_block(struct sim_block *block) {
    struct sim_worker *worker = block->worker;
    kiln_sim_mbarriers_end(block);
    if (block->shadow) {
        if (!block->worker->kernel->timed) {
            kiln_sim_epochs_end(block);
        }
        for (uint32_t w = 0; w < block->n_warps; w++) {
            struct sim_warp *warp = &block->warps[w];
            for (size_t n = 0; n < warp->n_copies; n++) { // never waited for
                kiln_sim_copy_arrived(warp, &warp->copies[n], warp->copies[n].mask);
            }
        }
    }
    if (block->wgmma) {
        kiln_sim_wgmma_end(block);
    }
    worker->executed += block->executed;
    atomic_fetch_add(&worker->run->done, 1);
    kiln_sim_print_block(block);
}

// Where a block stands that has not ended.
static struct sim_op place_of(struct sim_block *block, struct sim_warp **of) {
    struct sim_warp *warp = &block->warps[0];
    for (uint32_t w = 1; warp->stop != SIM_YIELDS && w < block->n_warps; w++) {
        warp = &block->warps[w];
    }
    *of = warp;
    // A warp that does not wait stands where a basic block begins.
    const struct sim_op *pc = warp->pc;
    const struct kiln_sim_kernel *kernel = block->worker->kernel;
    return (struct sim_op){
            .id = pc->fn == kiln_sim_run_enter ? kernel->blocks[pc->id].first : pc->id};
}

static void give_up(struct sim_block *block) {
    struct sim_warp *warp;
    struct sim_op at = place_of(block, &warp);
    kiln_sim_fail(warp, &at, KILN_STATUS_DEVICE,
            "the block ran %" PRIu64 " warp instructions and has not ended; %" PRIu64
            " are allowed: it may wait for something that never happens; if it is only long, "
            "--max-instructions allows more",
            block->executed, block->worker->run->limit);
}

// Whoever interrupts a kernel that does not end wants to know where it is.
static void interrupt(struct sim_block *block) {
    struct sim_warp *warp;
    struct sim_op at = place_of(block, &warp);
    kiln_sim_fail(warp, &at, KILN_STATUS_INTERRUPTED,
            "interrupted; the block had run %" PRIu64 " warp instructions", block->executed);
}

// 1: the launch is to end.
static int look_around(struct sim_run *run) {
    if (pthread_equal(pthread_self(), run->launcher) && run->options->progress &&
            run->options->progress(
                    run->options->progress_arg, atomic_load(&run->done), run->n_blocks)) {
        atomic_store(&run->interrupted, 1);
    }
    return atomic_load(&run->interrupted);
}

static void one_block(void *arg, uint32_t index, uint32_t number) {
    struct sim_run *run = arg;
    struct sim_block *block = run->contexts[number];
    if (index >= run->failed_block || look_around(run)) {
        return;
    }
    begin_block(block, index);
    while (block->running && !look_around(run)) {
        run_block(block);
        if (block->running && block->executed >= run->limit) {
            give_up(block);
        }
    }
    if (block->running) {
        interrupt(block);
    }
    end_block(block);
}

// Blocks of a kernel whose result depends on their order: one after another, but where one does not
// end it may wait for a later one, so that the next begin and take turns with it.
static enum kiln_status ordered_blocks(struct sim_run *run, struct kiln_err *err) {
    uint64_t next = 0;
    uint32_t n = 0; // blocks that take turns
    enum kiln_status status = KILN_STATUS_OK;
    while ((next < run->n_blocks || n > 0) && !look_around(run) &&
            run->failed_block == UINT64_MAX && status == KILN_STATUS_OK) {
        if (next < run->n_blocks && n < MAX_TOGETHER) {
            if (!run->together[n]) {
                status = create_block(&run->together[n], &run->workers[0], err);
                if (status != KILN_STATUS_OK) {
                    break;
                }
            }
            begin_block(run->together[n++], next++);
        }
        for (uint32_t i = 0; i < n;) {
            struct sim_block *block = run->together[i];
            run_block(block);
            if (block->running && block->executed >= run->limit) {
                give_up(block);
            }
            if (block->running) {
                i++;
                continue;
            }
            end_block(block);
            n--;
            for (uint32_t k = i; k < n; k++) {
                run->together[k] = run->together[k + 1];
            }
            run->together[n] = block;
        }
    }
    if (n > 0 && atomic_load(&run->interrupted)) {
        interrupt(run->together[0]);
    }
    return status;
}

// ---- Launches -----------------------------------------------------------------------------------
static enum kiln_status check_shared(
        const struct kiln_sim_launch *launch, struct sim_run *run, struct kiln_err *err) {
    const struct kiln_ptx_kernel *ptx = launch->kernel->ptx;
    const struct kiln_sim_options *options = run->options;
    const uint32_t most = options->max_shared_bytes ? options->max_shared_bytes : SIM_MOST_SHARED;
    const uint64_t fixed = launch->shared_bytes ? ptx->dynamic_at : ptx->shared_bytes;
    if (fixed + launch->shared_bytes > most) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "sim: kernel %s: %" PRIu64 " bytes of shared memory a block, %u of them dynamic; "
                "%s has %u for it",
                ptx->name, fixed + launch->shared_bytes, launch->shared_bytes,
                options->target ? options->target : "the largest GPU", most);
    }
    run->shared_bytes = (uint32_t)(fixed + launch->shared_bytes);
    return KILN_STATUS_OK;
}

static enum kiln_status check_shape(
        const struct kiln_sim_launch *launch, struct sim_run *run, struct kiln_err *err) {
    const struct kiln_sim_kernel *kernel = launch->kernel;
    const char *name = kernel->ptx->name;
    uint64_t threads = 1, blocks = 1;
    for (int axis = 0; axis < 3; axis++) {
        if (launch->grid[axis] == 0 || launch->block[axis] == 0) {
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "sim: kernel %s: grid and block must be at least 1 in each direction", name);
        }
        // What every GPU has; only x of a grid goes further.
        uint32_t deepest = axis == 2 ? 64 : 1024, widest = axis == 0 ? INT32_MAX : 65535;
        if (launch->block[axis] > deepest || launch->grid[axis] > widest) {
            int is_block = launch->block[axis] > deepest;
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "sim: kernel %s: a %s of %u in %c; it takes at most %u there", name,
                    is_block ? "block" : "grid",
                    is_block ? launch->block[axis] : launch->grid[axis], "xyz"[axis],
                    is_block ? deepest : widest);
        }
        threads *= launch->block[axis] < 2048 ? launch->block[axis] : 2048;
        blocks *= launch->grid[axis] < UINT32_C(1) << 31 ? launch->grid[axis] : UINT32_C(1) << 31;
        if (blocks >= UINT32_MAX) {
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "sim: kernel %s: a grid may have up to 2^32 - 2 blocks", name);
        }
    }
    uint32_t most = kernel->ptx->max_threads ? kernel->ptx->max_threads : 1024;
    if (threads > 1024 || threads > most) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "sim: kernel %s: a block of %" PRIu64 " threads; it takes at most %u", name,
                threads, most < 1024 ? most : 1024);
    }
    if (launch->param_bytes < kernel->ptx->param_bytes) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "sim: kernel %s has %u bytes of parameters; %u were given", name,
                kernel->ptx->param_bytes, launch->param_bytes);
    }
    run->n_threads = (uint32_t)threads;
    run->n_warps = (uint32_t)(threads + SIM_LANES - 1) / SIM_LANES;
    run->n_blocks = blocks;
    return check_shared(launch, run, err);
}

static enum kiln_status start_worker(struct sim_worker *worker, struct sim_run *run,
        struct kiln_sim *sim, struct kiln_err *err) {
    const struct kiln_sim_kernel *kernel = run->launch->kernel;
    size_t insns = (size_t)kernel->n_insns + 1;
    *worker = (struct sim_worker){.sim = sim,
            .kernel = kernel,
            .run = run,
            .checks = run->options->checks,
            .counters = run->options->counters};
    const uint32_t shared = 1u << KILN_SIM_CHECK_RACE | 1u << KILN_SIM_CHECK_UNINIT_SHARED |
                            1u << KILN_SIM_CHECK_ASYNC | 1u << KILN_SIM_CHECK_ORDERS_NOTHING |
                            (kernel->timed ? 1u << KILN_SIM_CHECK_MBARRIER : 0);
    const uint32_t global =
            1u << KILN_SIM_CHECK_UNINIT_GLOBAL | 1u << KILN_SIM_CHECK_ORDERS_NOTHING;
    if (kernel->partial) {
        // Who waits for whom is not known there, so nobody is accused.
        worker->checks &= ~(1u << KILN_SIM_CHECK_RACE | 1u << KILN_SIM_CHECK_ORDERS_NOTHING);
    }
    if (kernel->timed) {
        worker->checks &= ~(1u << KILN_SIM_CHECK_ORDERS_NOTHING); // of epochs alone
    }
    worker->check_shared = (worker->checks & shared) != 0;
    worker->check_global = (worker->checks & global) != 0;
    worker->watch_shared = worker->check_shared || worker->counters;
    worker->watch_global = worker->check_global || worker->counters;
    worker->block_count = kiln_calloc(kernel->n_blocks + 1, sizeof(uint64_t));
    worker->block_lanes = kiln_calloc(kernel->n_blocks + 1, sizeof(uint64_t));
    worker->diverged = kiln_calloc(insns, sizeof(uint64_t));
    worker->last_allocation = kiln_calloc(insns, sizeof(uint32_t));
    worker->barrier_needed = kiln_calloc(insns, 1);
    worker->sites = kiln_calloc(insns, sizeof(*worker->sites));
    if (!worker->block_count || !worker->block_lanes || !worker->diverged ||
            !worker->last_allocation || !worker->barrier_needed || !worker->sites) {
        return kiln_err_nomem(err, "a launch's counters");
    }
    return KILN_STATUS_OK;
}

static void finish_worker(struct sim_worker *worker) {
    kiln_free(worker->block_count);
    kiln_free(worker->block_lanes);
    kiln_free(worker->diverged);
    kiln_free(worker->last_allocation);
    kiln_free(worker->barrier_needed);
    kiln_free(worker->sites);
    kiln_free(worker->records);
}

static enum kiln_status start(struct sim_run *run, struct kiln_sim *sim, struct kiln_err *err) {
    uint32_t n = run->n_workers;
    run->workers = kiln_calloc(n, sizeof(*run->workers));
    run->contexts = kiln_calloc(n, sizeof(struct sim_block *));
    run->together = kiln_calloc(MAX_TOGETHER, sizeof(struct sim_block *));
    run->params = kiln_alloc_aligned(64, (size_t)run->launch->param_bytes + 64);
    if (!run->workers || !run->contexts || !run->together || !run->params) {
        return kiln_err_nomem(err, "a launch");
    }
    if (run->launch->param_bytes > 0) {
        memcpy(run->params, run->launch->params, run->launch->param_bytes);
    }
    for (uint32_t i = 0; i < n; i++) {
        KILN_TRY(start_worker(&run->workers[i], run, sim, err));
        if (!run->launch->kernel->ordered) {
            KILN_TRY(create_block(&run->contexts[i], &run->workers[i], err));
        }
    }
    return KILN_STATUS_OK;
}

static void finish(struct sim_run *run) {
    for (uint32_t i = 0; run->workers && i < run->n_workers; i++) {
        finish_worker(&run->workers[i]);
    }
    for (uint32_t i = 0; run->contexts && i < run->n_workers; i++) {
        destroy_block(run->contexts[i]);
    }
    for (uint32_t i = 0; run->together && i < MAX_TOGETHER; i++) {
        destroy_block(run->together[i]);
    }
    kiln_free(run->workers);
    kiln_free(run->contexts);
    kiln_free(run->together);
    kiln_free(run->params);
    pthread_mutex_destroy(&run->lock);
}

static enum kiln_status outcome(
        struct sim_run *run, struct kiln_sim_report *report, struct kiln_err *err) {
    if (run->failed_block != UINT64_MAX) {
        if (err) {
            *err = run->failure;
        }
        return run->failure.status;
    }
    if (atomic_load(&run->interrupted)) {
        return kiln_err_set(err, KILN_STATUS_INTERRUPTED, "sim: interrupted");
    }
    return report ? kiln_sim_report_add(report, run, err) : KILN_STATUS_OK;
}

enum kiln_status kiln_sim_launch(struct kiln_sim *sim, const struct kiln_sim_launch *launch,
        const struct kiln_sim_options *options, struct kiln_sim_report *report,
        struct kiln_err *err) {
    struct sim_run run = {.launch = launch,
            .options = options,
            .launcher = pthread_self(),
            .failed_block = UINT64_MAX,
            .limit = options->max_block_instructions ? options->max_block_instructions
                                                     : KILN_SIM_MAX_INSTRUCTIONS};
    KILN_TRY(check_shape(launch, &run, err));
    run.n_workers = launch->kernel->ordered ? 1 : kiln_pool_threads(sim->pool);
    if (pthread_mutex_init(&run.lock, NULL) != 0) {
        return kiln_err_nomem(err, "a launch's lock");
    }
    enum kiln_status status = start(&run, sim, err);
    if (status == KILN_STATUS_OK) {
        if (launch->kernel->ordered) {
            status = ordered_blocks(&run, err);
        } else {
            kiln_pool_run(sim->pool, one_block, &run, (uint32_t)run.n_blocks);
        }
    }
    if (status == KILN_STATUS_OK) {
        status = outcome(&run, report, err);
    }
    finish(&run);
    return status;
}
