// special: moves that are more than a copy, addresses of spaces, special registers, tests.
#include "device/sim/run_impl.h"

#include "device/sim/lanes_impl.h"

static void put32(const struct sim_warp *warp, uint32_t ref, int lane, uint32_t value) {
    ((u32 *)sim_at(warp, ref))[lane] = value;
}

static void put64(const struct sim_warp *warp, uint32_t ref, int lane, uint64_t value) {
    ((u64 *)sim_at(warp, ref))[lane] = value;
}

static void put(
        const struct sim_warp *warp, uint32_t ref, int lane, uint64_t value, uint32_t bytes) {
    if (bytes == 8) {
        put64(warp, ref, lane, value);
    } else {
        put32(warp, ref, lane, (uint32_t)(bytes == 2 ? (uint16_t)value : value));
    }
}

static uint64_t get(const struct sim_warp *warp, uint32_t ref, int lane, uint32_t bytes) {
    return bytes == 8 ? ((const u64 *)sim_at(warp, ref))[lane]
                      : ((const u32 *)sim_at(warp, ref))[lane];
}

static void put_bit(const struct sim_warp *warp, uint32_t ref, uint32_t bits) {
    u32 *to = sim_at(warp, ref);
    *to = (*to & ~warp->mask) | (bits & warp->mask);
}

#define EACH_ACTIVE(lane) \
    for (uint32_t left_ = warp->mask; left_; left_ &= left_ - 1) \
        for (int lane = __builtin_ctz(left_), once_ = 1; once_; once_ = 0)

// ---- Special registers --------------------------------------------------------------------------
static uint32_t thread_coordinate(const struct sim_warp *warp, int lane, int axis) {
    const uint32_t *block = kiln_sim_launch_of(warp)->block;
    uint32_t thread = warp->index * SIM_LANES + (uint32_t)lane;
    return axis == 0   ? thread % block[0]
           : axis == 1 ? thread / block[0] % block[1]
                       : thread / block[0] / block[1];
}

static uint64_t special(const struct sim_warp *warp, int reg, int lane) {
    const struct kiln_sim_launch *launch = kiln_sim_launch_of(warp);
    uint64_t clock = warp->block->executed + (uint64_t)(uint32_t)lane * 0;
    switch (reg) {
    case KILN_PTX_TID_X:
    case KILN_PTX_TID_Y:
    case KILN_PTX_TID_Z:
        return thread_coordinate(warp, lane, (int)(reg - KILN_PTX_TID_X));
    case KILN_PTX_NTID_X:
    case KILN_PTX_NTID_Y:
    case KILN_PTX_NTID_Z:
        return launch->block[reg - KILN_PTX_NTID_X];
    case KILN_PTX_CTAID_X:
    case KILN_PTX_CTAID_Y:
    case KILN_PTX_CTAID_Z:
        return warp->block->at[reg - KILN_PTX_CTAID_X];
    case KILN_PTX_NCTAID_X:
    case KILN_PTX_NCTAID_Y:
    case KILN_PTX_NCTAID_Z:
        return launch->grid[reg - KILN_PTX_NCTAID_X];
    case KILN_PTX_LANEID:
        return (uint64_t)lane;
    case KILN_PTX_WARPID:
        return warp->index;
    case KILN_PTX_NWARPID:
        return SIM_WARPS;
    case KILN_PTX_SMID:
    case KILN_PTX_GRIDID:
    case KILN_PTX_CLUSTER_CTAID:
        return 0;
    case KILN_PTX_NSMID:
    case KILN_PTX_CLUSTER_NCTAID:
        return 1;
    case KILN_PTX_LANEMASK_EQ:
        return 1u << lane;
    case KILN_PTX_LANEMASK_LE:
        return UINT32_MAX >> (31 - lane);
    case KILN_PTX_LANEMASK_LT:
        return (1u << lane) - 1;
    case KILN_PTX_LANEMASK_GE:
        return UINT32_MAX << lane;
    case KILN_PTX_LANEMASK_GT:
        return UINT32_MAX << lane << 1 & UINT32_MAX;
    case KILN_PTX_CLOCK_HI:
    case KILN_PTX_GLOBALTIMER_HI:
        return clock >> 32;
    case KILN_PTX_CLOCK:
    case KILN_PTX_CLOCK64:
    case KILN_PTX_GLOBALTIMER:
    case KILN_PTX_GLOBALTIMER_LO:
        return clock; // warp instructions of the block: it grows, and is the same in every run
    case KILN_PTX_TOTAL_SMEM:
        return warp->block->shared_bytes;
    case KILN_PTX_DYNAMIC_SMEM:
        return launch->shared_bytes;
    default:
        return 0;
    }
}

const struct sim_op *kiln_sim_run_special_register(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    EACH_ACTIVE(lane) {
        put(warp, op->d, lane, special(warp, insn->sub, lane), insn->d_bytes);
    }
    return op + 1;
}

// ---- Pieces -------------------------------------------------------------------------------------
// A register of 128 bits has two halves of 64.
static uint64_t get_piece(
        const struct sim_warp *warp, uint32_t ref, int lane, uint32_t at, uint32_t bytes) {
    const unsigned char *from = sim_at(warp, ref);
    uint64_t value = 0;
    memcpy(&value, from + at, bytes);
    (void)lane;
    return value;
}

const struct sim_op *kiln_sim_run_pack(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    const uint32_t *list = warp->lists + op->lists + op->list_a;
    uint32_t piece = insn->a_bytes, whole = piece * insn->n_a;
    EACH_ACTIVE(lane) {
        unsigned char bytes[16] = {0};
        for (uint32_t e = 0; e < insn->n_a; e++) {
            uint64_t value = get(warp, list[e], lane, piece);
            memcpy(bytes + piece * e, &value, piece);
        }
        uint32_t each = whole <= 4 ? 4 : whole;
        memcpy((unsigned char *)sim_at(warp, op->d) + each * (uint32_t)lane, bytes, each);
    }
    return op + 1;
}

const struct sim_op *kiln_sim_run_unpack(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    const uint32_t *list = warp->lists + op->lists + op->list_d;
    uint32_t piece = insn->d_bytes, whole = piece * insn->n_d, each = whole <= 4 ? 4 : whole;
    EACH_ACTIVE(lane) {
        for (uint32_t e = 0; e < insn->n_d; e++) {
            put(warp, list[e], lane,
                    get_piece(warp, op->a, lane, each * (uint32_t)lane + piece * e, piece), piece);
        }
    }
    return op + 1;
}

// ---- Addresses ----------------------------------------------------------------------------------
const struct sim_op *kiln_sim_run_local_address(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    EACH_ACTIVE(lane) {
        put(warp, op->d, lane, (uint64_t)op->imm + warp->local_at, insn->d_bytes);
    }
    return op + 1;
}

const struct sim_op *kiln_sim_run_to_generic(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    EACH_ACTIVE(lane) {
        put(warp, op->d, lane, get(warp, op->a, lane, insn->a_bytes) + kiln_sim_window(insn->space),
                insn->d_bytes);
    }
    return op + 1;
}

const struct sim_op *kiln_sim_run_from_generic(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    EACH_ACTIVE(lane) {
        put(warp, op->d, lane, get(warp, op->a, lane, insn->a_bytes) - kiln_sim_window(insn->space),
                insn->d_bytes);
    }
    return op + 1;
}

const struct sim_op *kiln_sim_run_is_space(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t bits = 0;
    EACH_ACTIVE(lane) {
        uint64_t address = get(warp, op->a, lane, insn->a_bytes);
        bits |= kiln_sim_space_of(address) == insn->space ? 1u << lane : 0;
    }
    put_bit(warp, op->d, bits);
    return op + 1;
}

// ---- Tests and comparisons that have no vector form ---------------------------------------------
const struct sim_op *kiln_sim_run_test_number(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    int wide = insn->type == KILN_PTX_F64;
    uint32_t bits = 0;
    EACH_ACTIVE(lane) {
        uint64_t value = get(warp, op->a, lane, wide ? 8 : 4);
        uint64_t exponent = wide ? value >> 52 & 0x7ff : value >> 23 & 0xff;
        uint64_t fraction = wide ? value << 12 : (value & 0x7fffff);
        int top = exponent == (wide ? 0x7ffu : 0xffu), test = 0;
        switch (insn->sub) {
        case KILN_PTX_FINITE:
            test = !top;
            break;
        case KILN_PTX_INFINITE:
            test = top && fraction == 0;
            break;
        case KILN_PTX_NUMBER:
            test = !(top && fraction != 0);
            break;
        case KILN_PTX_NOTANUMBER:
            test = top && fraction != 0;
            break;
        case KILN_PTX_NORMAL:
            test = !top && exponent != 0;
            break;
        case KILN_PTX_SUBNORMAL:
            test = exponent == 0 && fraction != 0;
            break;
        }
        bits |= test ? 1u << lane : 0;
    }
    put_bit(warp, op->d, bits);
    return op + 1;
}

static int compare(double a, double b, int cmp) {
    int unordered = a != a || b != b;
    switch (cmp) {
    case KILN_PTX_EQ:
        return a == b;
    case KILN_PTX_NE:
        return !unordered && a != b;
    case KILN_PTX_LT:
        return a < b;
    case KILN_PTX_LE:
        return a <= b;
    case KILN_PTX_GT:
        return a > b;
    case KILN_PTX_GE:
        return a >= b;
    case KILN_PTX_EQU:
        return unordered || a == b;
    case KILN_PTX_NEU:
        return a != b;
    case KILN_PTX_LTU:
        return unordered || a < b;
    case KILN_PTX_LEU:
        return unordered || a <= b;
    case KILN_PTX_GTU:
        return unordered || a > b;
    case KILN_PTX_GEU:
        return unordered || a >= b;
    case KILN_PTX_NUM:
        return !unordered;
    case KILN_PTX_NAN:
        return unordered;
    }
    return 0;
}

static double half_value(uint16_t bits, int bf16, int ftz) {
    return (double)(bf16 ? bf16_to_f32(bits) : f16_to_f32(ftz ? f16_flush(bits) : bits));
}

static int joined(int a, int c, enum kiln_ptx_bool how) {
    return how == KILN_PTX_BOOL_AND   ? a && c
           : how == KILN_PTX_BOOL_OR  ? a || c
           : how == KILN_PTX_BOOL_XOR ? a != c
                                      : a;
}

static int predicate(const struct sim_warp *warp, uint32_t ref, int lane, int negated) {
    return (int)(*(const u32 *)sim_at(warp, ref) >> lane & 1) != negated;
}

// setp of halves: of a pair, d is of the low ones and d2 of the high ones; of one, d2 is not d.
const struct sim_op *kiln_sim_run_compare_halves(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    int bf16 = insn->type2 == KILN_PTX_BF16X2 || insn->type2 == KILN_PTX_BF16;
    int pair = insn->type2 == KILN_PTX_BF16X2 || insn->type2 == KILN_PTX_F16X2;
    int ftz = (insn->flags & KILN_PTX_FTZ) != 0;
    uint32_t bits[2] = {0, 0};
    EACH_ACTIVE(lane) {
        uint32_t a = (uint32_t)get(warp, op->a, lane, 4), b = (uint32_t)get(warp, op->b, lane, 4);
        int c = insn->boolop && predicate(warp, op->c, lane, (insn->flags & KILN_PTX_C_NOT) != 0);
        for (int h = 0; h < 2; h++) {
            int shift = pair ? 16 * h : 0;
            int r = compare(half_value((uint16_t)(a >> shift), bf16, ftz),
                    half_value((uint16_t)(b >> shift), bf16, ftz), insn->cmp);
            r = !pair && h ? !r : r;
            bits[h] |= joined(r, c, (enum kiln_ptx_bool)insn->boolop) ? 1u << lane : 0;
        }
    }
    put_bit(warp, op->d, bits[0]);
    if (insn->d2 != KILN_PTX_NONE) {
        put_bit(warp, op->d2, bits[1]);
    }
    return op + 1;
}

static int integers(uint64_t a, uint64_t b, int is_signed, int cmp) {
    int less = is_signed ? (int64_t)a < (int64_t)b : a < b;
    switch (cmp) {
    case KILN_PTX_EQ:
        return a == b;
    case KILN_PTX_NE:
        return a != b;
    case KILN_PTX_LT:
        return less;
    case KILN_PTX_LE:
        return less || a == b;
    case KILN_PTX_GT:
        return !less && a != b;
    default:
        return !less;
    }
}

// One comparison of any type but pairs.
static int compare_values(const struct kiln_ptx_insn *insn, uint64_t a, uint64_t b) {
    int cmp = insn->cmp;
    int ftz = (insn->flags & KILN_PTX_FTZ) != 0;
    switch (insn->type2) {
    case KILN_PTX_F32: {
        float x = f32_of((uint32_t)a), y = f32_of((uint32_t)b);
        return compare((double)(ftz ? f32_flush(x) : x), (double)(ftz ? f32_flush(y) : y), cmp);
    }
    case KILN_PTX_F64:
        return compare(f64_of(a), f64_of(b), cmp);
    case KILN_PTX_F16:
        return compare(half_value((uint16_t)a, 0, ftz), half_value((uint16_t)b, 0, ftz), cmp);
    case KILN_PTX_BF16:
        return compare(half_value((uint16_t)a, 1, 0), half_value((uint16_t)b, 1, 0), cmp);
    case KILN_PTX_S16:
        return integers((uint64_t)(int64_t)(int16_t)a, (uint64_t)(int64_t)(int16_t)b, 1, cmp);
    case KILN_PTX_S32:
        return integers((uint64_t)(int64_t)(int32_t)a, (uint64_t)(int64_t)(int32_t)b, 1, cmp);
    case KILN_PTX_S64:
        return integers(a, b, 1, cmp);
    default:
        return integers(a, b, 0, cmp);
    }
}

// What `set` writes for true.
static uint64_t set_value(uint8_t type) {
    switch (type) {
    case KILN_PTX_F32:
        return 0x3f800000u;
    case KILN_PTX_F16:
        return 0x3c00u;
    case KILN_PTX_BF16:
        return 0x3f80u;
    case KILN_PTX_U16:
    case KILN_PTX_S16:
        return 0xffffu;
    default:
        return 0xffffffffu;
    }
}

const struct sim_op *kiln_sim_run_set(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    int pair = insn->type2 == KILN_PTX_F16X2 || insn->type2 == KILN_PTX_BF16X2;
    int bf16 = insn->type2 == KILN_PTX_BF16X2, ftz = (insn->flags & KILN_PTX_FTZ) != 0;
    uint32_t bytes = kiln_ptx_type_bits((enum kiln_ptx_type)insn->type2) == 64 ? 8 : 4;
    int as_integers = insn->type != KILN_PTX_F16X2 && insn->type != KILN_PTX_BF16X2;
    EACH_ACTIVE(lane) {
        uint64_t a = get(warp, op->a, lane, bytes), b = get(warp, op->b, lane, bytes);
        int c = insn->boolop && predicate(warp, op->c, lane, (insn->flags & KILN_PTX_C_NOT) != 0);
        uint32_t value = 0;
        for (int h = 0; h < (pair ? 2 : 1); h++) {
            int r = pair ? compare(half_value((uint16_t)(a >> 16 * h), bf16, ftz),
                                   half_value((uint16_t)(b >> 16 * h), bf16, ftz), insn->cmp)
                         : compare_values(insn, a, b);
            r = joined(r, c, (enum kiln_ptx_bool)insn->boolop);
            uint32_t one = !pair         ? (uint32_t)set_value(insn->type)
                           : as_integers ? 0xffffu
                                         : (bf16 ? 0x3f80u : 0x3c00u);
            value |= r ? one << (16 * h) : 0;
        }
        put32(warp, op->d, lane, value);
    }
    return op + 1;
}

// add, min and max of two 16-bit integers in a word; min and max with .relu; f32's .xorsign.abs.
static int32_t pick(int32_t a, int32_t b, uint16_t what) {
    return what == KILN_PTX_OP_MIN   ? (a < b ? a : b)
           : what == KILN_PTX_OP_MAX ? (a > b ? a : b)
                                     : a + b;
}

const struct sim_op *kiln_sim_run_minmax_pair(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    int relu = (insn->flags & KILN_PTX_RELU) != 0, nan = (insn->flags & KILN_PTX_NAN_FLAG) != 0;
    EACH_ACTIVE(lane) {
        uint32_t a = (uint32_t)get(warp, op->a, lane, 4), b = (uint32_t)get(warp, op->b, lane, 4);
        uint32_t value;
        if (insn->type == KILN_PTX_F32) {
            float x = f32_of(a), y = f32_of(b);
            x = insn->flags & KILN_PTX_FTZ ? f32_flush(x) : x;
            y = insn->flags & KILN_PTX_FTZ ? f32_flush(y) : y;
            float r = insn->op == KILN_PTX_OP_MIN ? f32_min(fabsf(x), fabsf(y), nan)
                                                  : f32_max(fabsf(x), fabsf(y), nan);
            value = f32_bits(f32_with_xor_sign(r, x, y));
        } else if (insn->type == KILN_PTX_S32) {
            int32_t r = pick((int32_t)a, (int32_t)b, insn->op);
            value = (uint32_t)(relu && r < 0 ? 0 : r);
        } else {
            value = 0;
            for (int h = 0; h < 32; h += 16) {
                int is_signed = insn->type == KILN_PTX_S16X2;
                int32_t x = is_signed ? (int16_t)(a >> h) : (uint16_t)(a >> h);
                int32_t y = is_signed ? (int16_t)(b >> h) : (uint16_t)(b >> h);
                int32_t r = pick(x, y, insn->op);
                value |= ((uint32_t)(relu && r < 0 ? 0 : r) & 0xffffu) << h;
            }
        }
        put32(warp, op->d, lane, value);
    }
    return op + 1;
}
