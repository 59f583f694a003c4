// mbarrier: barriers in shared memory that count arrivals and bytes of copies, phase after phase.
//
// A phase ends when all arrivals that it expects have come and its bytes expected and arrived are
// equal; then the next begins with as many arrivals to come. What stands in the eight bytes is the
// device's own, here nothing: the state is kept beside, by address. A state that an arrival gives
// is the number of its phase. Who tries to wait stands still until a phase ends, if need be for
// ever: a wait that has a limit may be as long as the machine likes.
#include "device/sim/mbarrier.h"

#include "device/sim/access.h"
#include "device/sim/clock.h"
#include "device/sim/lanes_impl.h"
#include "device/sim/run_impl.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    MOST_ARRIVALS = (1 << 20) - 1, // and bytes under way, either way
};

// ---- Which one ----------------------------------------------------------------------------------
struct sim_mbarrier *kiln_sim_mbarrier_at(struct sim_block *block, uint32_t at) {
    for (uint32_t i = 0; i < block->n_mbarriers; i++) {
        if (block->mbarriers[i].at == at) {
            return &block->mbarriers[i];
        }
    }
    return NULL;
}

// A finding about a barrier. 0: nobody wants findings, and the launch ends.
static int KILN_PRINTF(5, 6) wrong(struct sim_warp *warp, const struct sim_op *op, int lane,
        uint32_t at, const char *fmt, ...) {
    char text[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (kiln_sim_checks(warp, KILN_SIM_CHECK_MBARRIER)) {
        kiln_sim_note(warp, op, KILN_SIM_CHECK_MBARRIER, lane, KILN_PTX_SHARED, at, 8, "%s", text);
        return 1;
    }
    kiln_sim_fail(warp, op, KILN_STATUS_DEVICE, "mbarrier at shared 0x%" PRIx32 ": %s", at, text);
    return 0;
}

struct sim_mbarrier *kiln_sim_mbarrier_live(
        struct sim_warp *warp, const struct sim_op *op, int lane, uint32_t at) {
    struct sim_mbarrier *barrier = kiln_sim_mbarrier_at(warp->block, at);
    if (!barrier || !barrier->live) {
        wrong(warp, op, lane, at, "nobody made it one%s", barrier ? " again" : "");
        return NULL;
    }
    kiln_sim_clock_used(warp, op, lane, barrier);
    return barrier;
}

// ---- Phases -------------------------------------------------------------------------------------
static void look_for_end(struct sim_block *block, struct sim_mbarrier *barrier) {
    if (barrier->pending > 0 || barrier->bytes != 0) {
        return;
    }
    barrier->phase++;
    barrier->pending = barrier->expected;
    block->phases_ended++;
    kiln_sim_clock_phase_ends(block, barrier);
}

static int add_bytes(struct sim_warp *warp, const struct sim_op *op, int lane,
        struct sim_mbarrier *barrier, int64_t bytes) {
    int64_t sum = barrier->bytes + bytes;
    if (sum > MOST_ARRIVALS || sum < -MOST_ARRIVALS) {
        return wrong(warp, op, lane, barrier->at,
                "%" PRId64 " bytes under way; it counts to %d either way", sum, MOST_ARRIVALS);
    }
    barrier->bytes = (int32_t)sum;
    barrier->bytes_op = op;
    return 1;
}

int kiln_sim_mbarrier_bytes(struct sim_warp *warp, const struct sim_op *op, int lane,
        struct sim_mbarrier *barrier, int64_t bytes) {
    if (!add_bytes(warp, op, lane, barrier, -bytes)) {
        return 0;
    }
    look_for_end(warp->block, barrier);
    return 1;
}

// ---- Operations, of one lane --------------------------------------------------------------------
static int init(
        struct sim_warp *warp, const struct sim_op *op, int lane, uint32_t at, uint32_t count) {
    struct sim_block *block = warp->block;
    struct sim_mbarrier *barrier = kiln_sim_mbarrier_at(block, at);
    if (count == 0 || count > MOST_ARRIVALS) {
        return wrong(warp, op, lane, at, "made for %" PRIu32 " arrivals; it counts 1 to %d", count,
                MOST_ARRIVALS);
    }
    if (barrier && barrier->live) {
        return wrong(warp, op, lane, at, "made again before it was ended");
    }
    if (!barrier && block->n_mbarriers == SIM_MBARRIERS) {
        kiln_sim_fail(warp, op, KILN_STATUS_DEVICE,
                "more than %d mbarriers in a block, which is as many as sim keeps", SIM_MBARRIERS);
        return 0;
    }
    uint64_t phase = 0;
    if (barrier) { // phases go on, in an even one: who waits for the parity of old sees none over
        phase = (barrier->phase + 2) & ~UINT64_C(1);
    } else {
        barrier = &block->mbarriers[block->n_mbarriers++];
    }
    *barrier = (struct sim_mbarrier){
            .at = at, .live = 1, .expected = count, .pending = count, .phase = phase};
    kiln_sim_clock_made(warp, op, lane, barrier);
    return 1;
}

static int arrive(struct sim_warp *warp, const struct sim_op *op, int lane,
        struct sim_mbarrier *barrier, uint32_t count) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    if (count == 0 || count > barrier->pending) {
        return wrong(warp, op, lane, barrier->at,
                "%" PRIu32 " arrivals where %" PRIu32 " of %" PRIu32 " are missing", count,
                barrier->pending, barrier->expected);
    }
    if (!(insn->flags & KILN_PTX_RELAXED)) {
        kiln_sim_clock_arrives(warp, barrier);
    }
    uint64_t before = barrier->phase;
    barrier->pending -= count;
    barrier->expected -= insn->sub == KILN_PTX_MBARRIER_DROP ? count : 0;
    look_for_end(warp->block, barrier);
    if (insn->flags & KILN_PTX_NO_PHASE && barrier->phase != before) {
        return wrong(warp, op, lane, barrier->at, "an arrival with .noComplete ends the phase");
    }
    return 1;
}

// 0: the launch ends.
static int operate(
        struct sim_warp *warp, const struct sim_op *op, int lane, struct sim_mbarrier *barrier) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t bytes = insn->c == KILN_PTX_NONE ? 0 : ((const u32 *)sim_at(warp, op->c))[lane];
    uint32_t count = insn->b == KILN_PTX_NONE ? 1 : ((const u32 *)sim_at(warp, op->b))[lane];
    switch (insn->sub) {
    case KILN_PTX_MBARRIER_INVAL:
        barrier->live = 0;
        kiln_sim_clock_made(warp, op, lane, barrier);
        return 1;
    case KILN_PTX_MBARRIER_EXPECT:
        return kiln_sim_mbarrier_bytes(warp, op, lane, barrier, -(int64_t)bytes);
    case KILN_PTX_MBARRIER_COMPLETE:
        return kiln_sim_mbarrier_bytes(warp, op, lane, barrier, bytes);
    default:
        if (insn->d != KILN_PTX_NONE) {
            ((u64 *)sim_at(warp, op->d))[lane] = barrier->phase;
        }
        return (bytes == 0 || add_bytes(warp, op, lane, barrier, bytes)) &&
               arrive(warp, op, lane, barrier, count);
    }
}

// ---- Waiting ------------------------------------------------------------------------------------
static int is_over(const struct sim_mbarrier *barrier, const struct kiln_ptx_insn *insn,
        const struct sim_warp *warp, const struct sim_op *op, int lane) {
    if (insn->flags & KILN_PTX_PARITY) {
        return (barrier->phase & 1) != (((const u32 *)sim_at(warp, op->b))[lane] & 1);
    }
    return barrier->phase > ((const u64 *)sim_at(warp, op->b))[lane];
}

static const struct sim_op *wait_for(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_access *access) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t over = warp->mask & ~access->mask; // of those a finding was made: on, past the fault
    const struct sim_mbarrier *first = NULL, *last = NULL; // not over; over
    for (uint32_t mask = access->mask; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        struct sim_mbarrier *barrier =
                kiln_sim_mbarrier_live(warp, op, lane, (uint32_t)access->at[lane]);
        if (warp->stop == SIM_FAILED) {
            return NULL;
        }
        if (!barrier || is_over(barrier, insn, warp, op, lane)) {
            over |= 1u << lane;
            if (barrier && barrier != last && !(insn->flags & KILN_PTX_RELAXED)) {
                kiln_sim_clock_learns(warp, barrier);
                last = barrier;
            }
        } else {
            first = first ? first : barrier;
        }
    }
    u32 *d = sim_at(warp, op->d);
    *d = (*d & ~warp->mask) | over;
    if (!first) {
        return op + 1;
    }
    // Some may go on: they find out on their own. Who only asks lets others run.
    int tries = insn->sub == KILN_PTX_MBARRIER_TRY && !over;
    warp->wait_op = op;
    warp->wait_at = first;
    warp->wait_seen = warp->block->phases_ended;
    warp->pc = tries ? op : op + 1;
    warp->stop = tries ? SIM_WAITS : SIM_YIELDS;
    return NULL;
}

const struct sim_op *kiln_sim_run_mbarrier(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    struct sim_access access = {.bytes = 8, .kind = SIM_WRITES | SIM_ATOMIC | SIM_MBARRIER};
    kiln_sim_addresses(&access, warp, op->a, insn->a == KILN_PTX_NONE ? 0 : insn->a_bytes, op->imm);
    int space = kiln_sim_resolve(&access, warp, op, insn->space);
    if (space == SIM_SPACE_FAILED) {
        return NULL;
    }
    if (access.mask && space != KILN_PTX_SHARED) {
        return kiln_sim_fail(
                warp, op, KILN_STATUS_DEVICE, "an mbarrier that is not in shared memory");
    }
    if (insn->sub == KILN_PTX_MBARRIER_TEST || insn->sub == KILN_PTX_MBARRIER_TRY) {
        return wait_for(warp, op, &access);
    }
    for (uint32_t mask = access.mask; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        uint32_t at = (uint32_t)access.at[lane];
        if (insn->sub == KILN_PTX_MBARRIER_INIT) {
            if (!init(warp, op, lane, at, ((const u32 *)sim_at(warp, op->b))[lane])) {
                return NULL;
            }
            continue;
        }
        struct sim_mbarrier *barrier = kiln_sim_mbarrier_live(warp, op, lane, at);
        if (barrier ? !operate(warp, op, lane, barrier) : warp->stop == SIM_FAILED) {
            return NULL;
        }
    }
    return op + 1;
}

const struct sim_op *kiln_sim_run_fence(struct sim_warp *warp, const struct sim_op *op) {
    int sub = kiln_sim_insn_of(warp, op)->sub;
    if (sub == KILN_PTX_FENCE_PROXY_SHARED || sub == KILN_PTX_FENCE_MBARRIER) {
        kiln_sim_clock_fence(warp, sub == KILN_PTX_FENCE_MBARRIER);
    }
    return op + 1;
}

// ---- The block as a whole -----------------------------------------------------------------------
int kiln_sim_may_go_on(const struct sim_warp *warp) {
    return warp->stop == SIM_WAITS && warp->wait_seen != warp->block->phases_ended;
}

void kiln_sim_mbarrier_stuck(struct sim_warp *warp, uint32_t n_waiting) {
    const struct sim_mbarrier *barrier = warp->wait_at;
    char lacks[80];
    snprintf(lacks, sizeof(lacks),
            "lacks %" PRIu32 " of %" PRIu32 " arrivals and %" PRId32 " bytes", barrier->pending,
            barrier->expected, barrier->bytes);
    int lane = __builtin_ctz(warp->mask);
    if (kiln_sim_checks(warp, KILN_SIM_CHECK_DEADLOCK)) {
        kiln_sim_note(warp, warp->wait_op, KILN_SIM_CHECK_DEADLOCK, lane, KILN_PTX_SHARED,
                barrier->at, 8,
                "%" PRIu32 " warps wait for a phase that nobody will end, the first at an mbarrier "
                "that %s",
                n_waiting, lacks);
    } else {
        kiln_sim_fail(warp, warp->wait_op, KILN_STATUS_DEVICE,
                "deadlock: %" PRIu32 " warps wait for a phase that nobody will end: the mbarrier "
                "at shared 0x%" PRIx32 " %s",
                n_waiting, barrier->at, lacks);
    }
}

void kiln_sim_mbarriers_end(struct sim_block *block) {
    for (uint32_t w = 0; w < block->n_warps; w++) {
        if (block->warps[w].stop != SIM_EXITED) {
            return; // what stopped it has been told, and what is left follows from that
        }
    }
    for (uint32_t i = 0; i < block->n_mbarriers; i++) {
        const struct sim_mbarrier *barrier = &block->mbarriers[i];
        struct sim_warp *warp = &block->warps[0];
        if (barrier->live && barrier->bytes < 0 && kiln_sim_checks(warp, KILN_SIM_CHECK_MBARRIER)) {
            kiln_sim_note(warp, barrier->bytes_op, KILN_SIM_CHECK_MBARRIER, 0, KILN_PTX_SHARED,
                    barrier->at, 8, "%" PRId32 " bytes arrived that no phase expected",
                    -barrier->bytes);
        }
    }
}
