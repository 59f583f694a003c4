// async: cp.async. The bytes are copied when the instruction runs; what is kept until the wait is
// that nobody may look at them yet. Groups are each thread's own.
#include "device/sim/access.h"

#include "base/mem.h"
#include "device/sim/lanes_impl.h"
#include "device/sim/run_impl.h"
#include "device/sim/watch.h"

#include <string.h>

static unsigned char zeros[16]; // what a lane reads whose source is not there

// Bytes to read of each lane: all, c of them, or none.
static uint32_t source_bytes(const struct kiln_ptx_insn *insn, const struct sim_warp *warp,
        const struct sim_op *op, int lane) {
    uint32_t bytes = insn->imm3;
    if (insn->flags & KILN_PTX_HAS_SIZE) {
        uint32_t size = ((const u32 *)sim_at(warp, op->c))[lane];
        bytes = size < bytes ? size : bytes;
    }
    if (insn->e != KILN_PTX_NONE && *(const u32 *)sim_at(warp, op->e) >> lane & 1) {
        bytes = 0;
    }
    return bytes;
}

// Resolves what is read, lanes of one size after those of another: a lane that reads nothing may
// have any address.
static int resolve_source(struct sim_access *from, struct sim_warp *warp, const struct sim_op *op,
        const uint32_t size[SIM_LANES]) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t left = warp->mask, common = 0, odd = 0;
    for (int i = 0; i < SIM_LANES; i++) {
        common |= left >> i & 1 && size[i] == insn->imm3 ? 1u << i : 0;
        odd |= left >> i & 1 && size[i] != insn->imm3 && size[i] ? 1u << i : 0;
    }
    uint32_t running = warp->mask;
    from->bytes = insn->imm3;
    if (common) {
        warp->mask = common;
        kiln_sim_addresses(from, warp, op->b, insn->b_bytes, insn->imm2);
        warp->mask = running;
        if (kiln_sim_resolve(from, warp, op, KILN_PTX_GLOBAL) == SIM_SPACE_FAILED) {
            return 0;
        }
    }
    for (; odd; odd &= odd - 1) {
        int lane = __builtin_ctz(odd);
        // The address is aligned as for all bytes, but fewer are read: byte for byte.
        struct sim_access one = {.bytes = 1, .kind = SIM_READS};
        int all = 1;
        warp->mask = 1u << lane;
        for (uint32_t byte = 0; byte < size[lane]; byte++) {
            kiln_sim_addresses(&one, warp, op->b, insn->b_bytes, insn->imm2 + (int64_t)byte);
            if (kiln_sim_resolve(&one, warp, op, KILN_PTX_GLOBAL) == SIM_SPACE_FAILED) {
                warp->mask = running;
                return 0;
            }
            from->p[lane] = byte == 0 ? one.p[lane] : from->p[lane];
            all &= one.mask != 0;
        }
        from->p[lane] = all ? from->p[lane] : zeros;
        warp->mask = running;
    }
    return 1;
}

static int remember(struct sim_warp *warp, const struct sim_access *to, uint32_t bytes) {
    if (kiln_grow(&warp->copies, &warp->cap_copies, warp->n_copies + 1, sizeof(*warp->copies)) !=
            0) {
        return 0;
    }
    struct sim_copy *copy = &warp->copies[warp->n_copies++];
    copy->mask = to->mask;
    copy->bytes = bytes;
    for (int i = 0; i < SIM_LANES; i++) {
        copy->at[i] = (uint32_t)to->at[i];
        copy->group[i] = warp->group[i];
    }
    return 1;
}

const struct sim_op *kiln_sim_run_copy_async(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t size[SIM_LANES], bytes = insn->imm3;
    for (int i = 0; i < SIM_LANES; i++) {
        size[i] = warp->mask >> i & 1 ? source_bytes(insn, warp, op, i) : 0;
    }
    struct sim_access from = {.kind = SIM_READS};
    if (!resolve_source(&from, warp, op, size)) {
        return NULL;
    }
    struct sim_access to = {.bytes = bytes, .kind = SIM_WRITES | SIM_ASYNC};
    kiln_sim_addresses(&to, warp, op->a, op->mode & 15, op->imm);
    if (kiln_sim_resolve(&to, warp, op, KILN_PTX_SHARED) == SIM_SPACE_FAILED) {
        return NULL;
    }
    if (insn->flags & KILN_PTX_CG && warp->worker->counters) {
        kiln_sim_count_halves(warp, op, &from, &to);
    }
    for (uint32_t mask = to.mask; mask; mask &= mask - 1) {
        int i = __builtin_ctz(mask);
        if (size[i] == 16) {
            memcpy(to.p[i], from.p[i], 16);
            continue;
        }
        if (size[i] > 0) {
            memcpy(to.p[i], from.p[i], size[i]);
        }
        memset(to.p[i] + size[i], 0, bytes - size[i]);
    }
    if (warp->block->shadow && !remember(warp, &to, bytes)) {
        return kiln_sim_fail(warp, op, KILN_STATUS_NOMEM, "no memory for a copy under way");
    }
    return op + 1;
}

const struct sim_op *kiln_sim_run_copy_commit(struct sim_warp *warp, const struct sim_op *op) {
    for (uint32_t mask = warp->mask; mask; mask &= mask - 1) {
        warp->group[__builtin_ctz(mask)]++;
    }
    return op + 1;
}

// Copies of groups before the last imm that were committed have arrived; with -1 all have.
const struct sim_op *kiln_sim_run_copy_wait(struct sim_warp *warp, const struct sim_op *op) {
    size_t kept = 0;
    for (size_t n = 0; n < warp->n_copies; n++) {
        struct sim_copy *copy = &warp->copies[n];
        uint32_t arrived = 0;
        for (uint32_t mask = copy->mask & warp->mask; mask; mask &= mask - 1) {
            int i = __builtin_ctz(mask);
            int there = op->imm < 0 || (int64_t)copy->group[i] + op->imm < (int64_t)warp->group[i];
            arrived |= there ? 1u << i : 0;
        }
        if (arrived) {
            kiln_sim_copy_arrived(warp, copy, arrived);
        }
        copy->mask &= ~arrived;
        if (copy->mask) {
            warp->copies[kept++] = *copy;
        }
    }
    warp->n_copies = kept;
    return op + 1;
}
