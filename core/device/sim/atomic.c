// atomic: atom and red. Lanes of a warp go in the order of their number; warps of a block in the
// order in which they run; blocks of a kernel that has atomics on global memory one after another,
// by their index (run.c). So sums of floats have one order, whatever the number of host threads.
#include "device/sim/access.h"

#include "device/sim/lanes_impl.h"
#include "device/sim/run_impl.h"

static int is_signed(uint8_t type) {
    return type == KILN_PTX_S32 || type == KILN_PTX_S64 || type == KILN_PTX_S16;
}

static uint64_t integer(uint8_t how, uint8_t type, uint64_t old, uint64_t b, uint64_t c) {
    int less = is_signed(type) ? (int64_t)old < (int64_t)b : old < b;
    switch (how) {
    case KILN_PTX_ATOM_ADD:
        return old + b;
    case KILN_PTX_ATOM_MIN:
        return less ? old : b;
    case KILN_PTX_ATOM_MAX:
        return less ? b : old;
    case KILN_PTX_ATOM_AND:
        return old & b;
    case KILN_PTX_ATOM_OR:
        return old | b;
    case KILN_PTX_ATOM_XOR:
        return old ^ b;
    case KILN_PTX_ATOM_INC:
        return old >= b ? 0 : old + 1;
    case KILN_PTX_ATOM_DEC:
        return old == 0 || old > b ? b : old - 1;
    case KILN_PTX_ATOM_EXCH:
        return b;
    case KILN_PTX_ATOM_CAS:
        return old == b ? c : old;
    }
    return old;
}

static uint16_t half(uint8_t how, int bf16, uint16_t old, uint16_t b) {
    float x = bf16 ? bf16_to_f32(old) : f16_to_f32(old), y = bf16 ? bf16_to_f32(b) : f16_to_f32(b);
    if (how == KILN_PTX_ATOM_ADD) {
        double sum = f64_add_to_odd((double)x, (double)y);
        return bf16 ? bf16_from_f64(sum) : f16_from_f64(sum);
    }
    float r = how == KILN_PTX_ATOM_MIN ? f32_min(x, y, 0) : f32_max(x, y, 0);
    return bf16 ? bf16_from_f32(r) : f16_from_f32(r);
}

static uint64_t new_value(const struct kiln_ptx_insn *insn, uint64_t old, uint64_t b, uint64_t c) {
    int bf16 = insn->type == KILN_PTX_BF16 || insn->type == KILN_PTX_BF16X2;
    int moves = insn->sub == KILN_PTX_ATOM_EXCH || insn->sub == KILN_PTX_ATOM_CAS;
    if (moves) {
        return integer(insn->sub, insn->type, old, b, c);
    }
    switch (insn->type) {
    case KILN_PTX_F32: {
        // On global memory subnormals are kept, on shared memory too.
        float r = f32_of((uint32_t)old) + f32_of((uint32_t)b);
        return f32_bits(f32_canonical(r));
    }
    case KILN_PTX_F64:
        return f64_bits(f64_canonical(f64_of(old) + f64_of(b)));
    case KILN_PTX_F16:
    case KILN_PTX_BF16:
        return half(insn->sub, bf16, (uint16_t)old, (uint16_t)b);
    case KILN_PTX_F16X2:
    case KILN_PTX_BF16X2:
        return (uint64_t)half(insn->sub, bf16, (uint16_t)(old >> 16), (uint16_t)(b >> 16)) << 16 |
               half(insn->sub, bf16, (uint16_t)old, (uint16_t)b);
    default:
        return integer(insn->sub, insn->type, old, b, c);
    }
}

static uint64_t operand(
        const struct sim_warp *warp, uint32_t ref, int lane, uint32_t bytes, int extend) {
    if (bytes == 8) {
        return ((const u64 *)sim_at(warp, ref))[lane];
    }
    uint32_t word = ((const u32 *)sim_at(warp, ref))[lane] & (bytes == 2 ? 0xffffu : UINT32_MAX);
    return extend ? (uint64_t)(int64_t)(int32_t)word : word;
}

const struct sim_op *kiln_sim_run_atomic(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t bytes = op->bytes, n = insn->n_b ? insn->n_b : 1;
    struct sim_access access = {.bytes = bytes * n, .kind = SIM_READS | SIM_WRITES | SIM_ATOMIC};
    kiln_sim_addresses(&access, warp, op->a, op->mode & 15, op->imm);
    if (kiln_sim_resolve(&access, warp, op, op->space) == SIM_SPACE_FAILED) {
        return NULL;
    }
    const uint32_t *list = warp->lists + op->lists;
    int extend = is_signed(insn->type), has_c = insn->n_c > 0;
    for (uint32_t mask = access.mask; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        for (uint32_t e = 0; e < n; e++) {
            uint64_t old = 0;
            memcpy(&old, access.p[lane] + bytes * e, bytes);
            uint64_t value = extend && bytes == 4 ? (uint64_t)(int64_t)(int32_t)old : old;
            uint64_t b = operand(warp, list[op->list_b + e], lane, bytes, extend);
            uint64_t c = has_c ? operand(warp, list[op->list_c], lane, bytes, extend) : 0;
            value = new_value(insn, value, b, c);
            memcpy(access.p[lane] + bytes * e, &value, bytes);
            if (insn->n_d == 0) {
                continue;
            }
            if (bytes == 8) {
                ((u64 *)sim_at(warp, list[op->list_d + e]))[lane] = old;
            } else {
                ((u32 *)sim_at(warp, list[op->list_d + e]))[lane] = (uint32_t)old;
            }
        }
    }
    return op + 1;
}
