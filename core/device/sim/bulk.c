// bulk: cp.async.bulk. The bytes are copied and counted at their mbarrier when the instruction
// runs; that nobody may look at them before the phase is over is what the checks keep.
#include "device/sim/access.h"

#include "device/sim/lanes_impl.h"
#include "device/sim/mbarrier.h"
#include "device/sim/run_impl.h"

#include <string.h>

enum {
    UNIT = 16, // bytes: both addresses and the size are multiples of it
};

static uint64_t address(const struct sim_warp *warp, uint32_t ref, uint32_t bytes, int lane) {
    return bytes == 8   ? ((const u64 *)sim_at(warp, ref))[lane]
           : bytes == 4 ? ((const u32 *)sim_at(warp, ref))[lane]
                        : 0;
}

// 0: the launch ends. A copy that is refused is a finding, and its bytes are still counted, so that
// one fault is not two.
static int copy(struct sim_warp *warp, const struct sim_op *op, int lane) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t bytes = ((const u32 *)sim_at(warp, op->c))[lane];
    uint64_t to = address(warp, op->a, insn->a == KILN_PTX_NONE ? 0 : insn->a_bytes, lane) +
                  (uint64_t)insn->imm;
    uint64_t from = address(warp, op->b, insn->b_bytes, lane) + (uint64_t)(int64_t)insn->imm2;
    uint64_t at = address(warp, op->e, insn->e_bytes, lane) + (uint64_t)(int64_t)insn->imm4;
    struct sim_mbarrier *barrier = kiln_sim_mbarrier_live(warp, op, lane, (uint32_t)at);
    struct sim_range source = {lane, KILN_PTX_GLOBAL, UNIT, SIM_READS, from, bytes, 0};
    struct sim_range target = {lane, KILN_PTX_SHARED, UNIT, SIM_WRITES | SIM_ASYNC, to, bytes, 0};
    unsigned char *read = kiln_sim_resolve_range(warp, op, &source);
    unsigned char *written = kiln_sim_resolve_range(warp, op, &target);
    if (warp->stop == SIM_FAILED) {
        return 0;
    }
    if (read) {
        kiln_sim_watch_bulk_source(warp, op, &source);
    }
    if (written && barrier) {
        kiln_sim_watch_bulk_target(warp, op, &target, barrier);
    }
    if (read && written && bytes > 0) {
        memcpy(written, read, bytes);
    }
    return !barrier || kiln_sim_mbarrier_bytes(warp, op, lane, barrier, bytes);
}

const struct sim_op *kiln_sim_run_copy_bulk(struct sim_warp *warp, const struct sim_op *op) {
    for (uint32_t mask = warp->mask; mask; mask &= mask - 1) {
        if (!copy(warp, op, __builtin_ctz(mask))) {
            return NULL;
        }
    }
    return op + 1;
}
