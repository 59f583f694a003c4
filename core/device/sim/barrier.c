// barrier: bar.sync, bar.arrive and bar.red. A barrier counts threads by whole warps, as the
// hardware does. Who waits is told apart and let go by run.c's turns.
#include "device/sim/barrier.h"

#include "device/sim/clock.h"
#include "device/sim/lanes_impl.h"
#include "device/sim/run_impl.h"
#include "device/sim/watch.h"

static uint32_t first_value(const struct sim_warp *warp, uint32_t ref) {
    return ((const u32 *)sim_at(warp, ref))[__builtin_ctz(warp->mask)];
}

const struct sim_op *kiln_sim_run_barrier(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t number = insn->a == KILN_PTX_NONE ? 0 : first_value(warp, op->a);
    uint32_t threads = insn->b == KILN_PTX_NONE ? 0 : first_value(warp, op->b);
    if (number >= SIM_BARRIERS) {
        return kiln_sim_fail(warp, op, KILN_STATUS_DEVICE,
                "barrier %u: a block has barriers 0 to %d", number, SIM_BARRIERS - 1);
    }
    if (warp->mask != warp->live && kiln_sim_checks(warp, KILN_SIM_CHECK_BARRIER)) {
        kiln_sim_note(warp, op, KILN_SIM_CHECK_BARRIER, __builtin_ctz(warp->live & ~warp->mask), -1,
                0, 0, "%d threads of the warp are elsewhere when %d arrive",
                __builtin_popcount(warp->live & ~warp->mask), __builtin_popcount(warp->mask));
    }
    kiln_sim_clock_meet(warp, number);
    if (insn->sub == KILN_PTX_BAR_ARRIVE) {
        warp->block->barriers[number].arrived += SIM_LANES;
        return op + 1;
    }
    warp->barrier = number;
    warp->barrier_threads = threads;
    warp->barrier_op = op;
    if (insn->c != KILN_PTX_NONE) {
        uint32_t bits = *(const u32 *)sim_at(warp, op->c);
        warp->barrier_vote = (insn->flags & KILN_PTX_C_NOT ? ~bits : bits) & warp->mask;
    }
    warp->pc = op + 1;
    warp->stop = SIM_BARRIER;
    return NULL;
}

// bar.red: each warp gets what all that waited said.
static void give_result(struct sim_warp *warp, uint32_t count, uint32_t threads) {
    const struct sim_op *op = warp->barrier_op;
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    u32 *d = sim_at(warp, op->d);
    if (insn->sub == KILN_PTX_BAR_RED_POPC) {
        for (int i = 0; i < SIM_LANES; i++) {
            d[i] = warp->mask >> i & 1 ? count : d[i];
        }
    } else if (insn->sub == KILN_PTX_BAR_RED_AND || insn->sub == KILN_PTX_BAR_RED_OR) {
        int value = insn->sub == KILN_PTX_BAR_RED_AND ? count == threads : count > 0;
        *d = (*d & ~warp->mask) | (value ? warp->mask : 0);
    }
}

// Threads that ended before the barrier, of which the rest of the block waits.
static void look_for_missing(struct sim_block *block, const struct sim_warp *waiting) {
    for (uint32_t w = 0; w < block->n_warps; w++) {
        struct sim_warp *warp = &block->warps[w];
        uint32_t missing = warp->first & ~warp->live;
        if (missing) {
            struct sim_warp *told = &block->warps[waiting->index];
            kiln_sim_note_thread(told, told->barrier_op, KILN_SIM_CHECK_BARRIER, w,
                    __builtin_ctz(missing), "a thread of the block ended without reaching it");
            return;
        }
    }
}

static void let_go(struct sim_block *block, uint32_t number, uint32_t waiting, int whole) {
    uint32_t count = 0, threads = 0;
    const struct sim_warp *first = NULL;
    for (uint32_t w = 0; w < block->n_warps; w++) {
        const struct sim_warp *warp = &block->warps[w];
        if (waiting >> w & 1) {
            count += (uint32_t)__builtin_popcount(warp->barrier_vote & warp->mask);
            threads += (uint32_t)__builtin_popcount(warp->mask);
            first = first ? first : warp;
        }
    }
    if (whole && first && kiln_sim_checks(first, KILN_SIM_CHECK_BARRIER)) {
        look_for_missing(block, first);
    }
    if (block->worker->kernel->timed) {
        kiln_sim_clock_part(block, number, waiting, whole);
    } else if (whole && block->shadow) {
        kiln_sim_epoch_ends(block, waiting);
    }
    for (uint32_t w = 0; w < block->n_warps; w++) {
        struct sim_warp *warp = &block->warps[w];
        if (waiting >> w & 1) {
            give_result(warp, count, threads);
            warp->stop = SIM_YIELDS;
        }
    }
    block->barriers[number].arrived = 0;
}

int kiln_sim_barriers_open(struct sim_block *block) {
    int opened = 0;
    for (uint32_t number = 0; number < SIM_BARRIERS; number++) {
        uint32_t waiting = 0, threads = 0, running = 0;
        for (uint32_t w = 0; w < block->n_warps; w++) {
            const struct sim_warp *warp = &block->warps[w];
            if (warp->stop == SIM_BARRIER && warp->barrier == number) {
                waiting |= 1u << w;
                threads = warp->barrier_threads;
            } else if (warp->stop != SIM_EXITED) {
                running++;
            }
        }
        uint32_t there =
                (uint32_t)__builtin_popcount(waiting) * SIM_LANES + block->barriers[number].arrived;
        // Who only arrives may end before the others get there: then it is counted, not waited for.
        int whole = block->barriers[number].arrived == 0 &&
                    (threads == 0 || threads >= block->n_warps * SIM_LANES);
        threads = threads ? threads : block->n_warps * SIM_LANES;
        if (waiting && (whole ? running == 0 : there >= threads)) {
            let_go(block, number, waiting, whole);
            opened = 1;
        }
    }
    return opened;
}
