// mma: products of the tensor cores in any shape and type, by the book and slowly; what kernels
// spend their time in is lanes_mma.c. And wmma's loads and stores.
//
// The order of a sum: it begins with c and takes the products at k = 0, 1, 2 … one after another.
// f16, bf16 and tf32: the product in f32 (exact where it is in range), the sum in f32, rounded to
// nearest; a result in f16 is rounded once at the end. f64: fused. Integers wrap, or with
// .satfinite are clamped at the end.
#include "device/sim/access.h"

#include "device/sim/lanes_impl.h"
#include "device/sim/run_impl.h"

enum {
    MAX_SIDE = 32,
    MAX_DEPTH = 256,
    MAX_ELEMENTS = MAX_SIDE * MAX_DEPTH,
};

struct shape {
    uint8_t m, n;
    uint16_t k;
};

// By enum kiln_ptx_shape.
static const struct shape shapes[] = {{8, 8, 4}, {8, 8, 16}, {8, 8, 32}, {8, 8, 128}, {16, 8, 4},
        {16, 8, 8}, {16, 8, 16}, {16, 8, 32}, {16, 8, 64}, {16, 8, 128}, {16, 8, 256}, {16, 16, 16},
        {32, 8, 16}, {8, 32, 16}, {16, 16, 8}};

struct fragment {
    uint32_t registers, per_register; // elements of a register
    uint32_t bits;                    // of an element in it
    uint8_t type;
    int wmma;
};

static uint32_t element_bits(uint8_t type) {
    uint32_t bits = kiln_ptx_type_bits((enum kiln_ptx_type)type);
    return type == KILN_PTX_TF32                               ? 32
           : type == KILN_PTX_F16X2 || type == KILN_PTX_BF16X2 ? 16
                                                               : bits;
}

static struct fragment fragment_of(uint8_t type, uint32_t registers, int wmma) {
    uint32_t bits = element_bits(type);
    struct fragment f = {.registers = registers, .bits = bits, .type = type, .wmma = wmma};
    f.per_register = bits >= 32 ? 1 : 32 / bits;
    return f;
}

// Which element of the matrix a lane's e-th one is: A rows x K, B K x columns, C rows x columns.
enum side {
    SIDE_A,
    SIDE_B,
    SIDE_C
};

// wmma's fragments have no layout that a program may count on: elements lie in the order of rows,
// equally many to a lane; a fragment with room for more holds them again.
static void place(const struct fragment *f, enum side side, struct shape s, int lane, uint32_t e,
        uint32_t *row, uint32_t *column) {
    uint32_t group = (uint32_t)lane / 4, t = (uint32_t)lane % 4;
    uint32_t rows = side == SIDE_B ? s.k : s.m, columns = side == SIDE_A ? s.k : s.n;
    if (f->wmma) {
        uint32_t each = rows * columns / SIM_LANES, index = (uint32_t)lane * each + e % each;
        *row = index / columns;
        *column = index % columns;
        return;
    }
    uint32_t reg = e / f->per_register, at = e % f->per_register;
    if (side == SIDE_C) {
        // Columns 2t and 2t + 1 of row g, then of row g + 8; a pair of halves is one register.
        *row = group + e / 2 * 8;
        *column = 2 * t + e % 2;
        return;
    }
    uint32_t along = t * f->per_register + at; // k within a quarter or half of the depth
    uint32_t quarter = 4 * f->per_register;
    if (side == SIDE_A) {
        *row = group + (s.m == 16 ? reg % 2 * 8 : 0);
        *column = along + (s.m == 16 ? reg / 2 : reg) * quarter;
    } else {
        *row = along + reg * quarter;
        *column = group;
    }
}

static int is_integer(uint8_t type) {
    return !(type == KILN_PTX_F16 || type == KILN_PTX_BF16 || type == KILN_PTX_TF32 ||
             type == KILN_PTX_F32 || type == KILN_PTX_F64 || type == KILN_PTX_F16X2 ||
             type == KILN_PTX_BF16X2);
}

// An element's bits as a number: floats in a double, exactly; integers as they are.
static double float_of(uint64_t bits, uint8_t type) {
    switch (type) {
    case KILN_PTX_F16:
    case KILN_PTX_F16X2:
        return (double)f16_to_f32((uint16_t)bits);
    case KILN_PTX_BF16:
    case KILN_PTX_BF16X2:
        return (double)bf16_to_f32((uint16_t)bits);
    case KILN_PTX_TF32:
        return (double)f32_of((uint32_t)bits & 0xffffe000u);
    case KILN_PTX_F64:
        return f64_of(bits);
    default:
        return (double)f32_of((uint32_t)bits);
    }
}

static int64_t integer_of(uint64_t bits, uint8_t type) {
    switch (type) {
    case KILN_PTX_S8:
        return (int8_t)bits;
    case KILN_PTX_S4:
        return (int64_t)(bits << 60) >> 60;
    case KILN_PTX_S32:
        return (int32_t)bits;
    default:
        return (int64_t)bits;
    }
}

static uint64_t take(const struct sim_warp *warp, const uint32_t *list, const struct fragment *f,
        int lane, uint32_t e) {
    if (f->bits == 64) {
        return ((const u64 *)sim_at(warp, list[e]))[lane];
    }
    uint32_t word = ((const u32 *)sim_at(warp, list[e / f->per_register]))[lane];
    uint32_t shift = e % f->per_register * f->bits;
    return f->bits == 32 ? word : word >> shift & ((1u << f->bits) - 1);
}

static void give(const struct sim_warp *warp, const uint32_t *list, const struct fragment *f,
        int lane, uint32_t e, uint64_t value) {
    if (f->bits == 64) {
        ((u64 *)sim_at(warp, list[e]))[lane] = value;
        return;
    }
    u32 *word = &((u32 *)sim_at(warp, list[e / f->per_register]))[lane];
    if (f->bits == 32) {
        *word = (uint32_t)value;
        return;
    }
    uint32_t shift = e % f->per_register * f->bits, field = ((1u << f->bits) - 1) << shift;
    *word = (*word & ~field) | ((uint32_t)value << shift & field);
}

struct matrices {
    uint64_t a[MAX_ELEMENTS], b[MAX_ELEMENTS], c[MAX_SIDE * MAX_SIDE];
};

static void gather(uint64_t *to, const struct sim_warp *warp, const uint32_t *list,
        const struct fragment *f, enum side side, struct shape s) {
    uint32_t columns = side == SIDE_A ? s.k : s.n;
    for (int lane = 0; lane < SIM_LANES; lane++) {
        for (uint32_t e = 0; e < f->registers * f->per_register; e++) {
            uint32_t row, column;
            place(f, side, s, lane, e, &row, &column);
            to[row * columns + column] = take(warp, list, f, lane, e);
        }
    }
}

static uint64_t float_sum(const struct matrices *m, struct shape s, uint32_t row, uint32_t column,
        const struct kiln_ptx_insn *insn) {
    uint64_t c = m->c[row * s.n + column];
    if (insn->type == KILN_PTX_F64) {
        double sum = f64_of(c);
        for (uint32_t k = 0; k < s.k; k++) {
            sum = fma(f64_of(m->a[row * s.k + k]), f64_of(m->b[k * s.n + column]), sum);
        }
        return f64_bits(f64_canonical(sum));
    }
    float sum = (float)float_of(c, insn->type4);
    for (uint32_t k = 0; k < s.k; k++) {
        float x = (float)float_of(m->a[row * s.k + k], insn->type2);
        float y = (float)float_of(m->b[k * s.n + column], insn->type3);
        sum += x * y;
    }
    sum = f32_canonical(sum);
    return insn->type == KILN_PTX_F16 || insn->type == KILN_PTX_F16X2 ? f16_from_f32(sum)
                                                                      : f32_bits(sum);
}

static uint64_t integer_sum(const struct matrices *m, struct shape s, uint32_t row, uint32_t column,
        const struct kiln_ptx_insn *insn) {
    int64_t sum = (int32_t)m->c[row * s.n + column];
    for (uint32_t k = 0; k < s.k; k++) {
        uint64_t a = m->a[row * s.k + k], b = m->b[k * s.n + column];
        if (insn->imm > 0) { // single bits: a bit of .xor or .and counts
            sum += (int64_t)((insn->imm == 1 ? a ^ b : a & b) & 1);
        } else {
            sum += integer_of(a, insn->type2) * integer_of(b, insn->type3);
        }
    }
    if (insn->flags & (KILN_PTX_SATFINITE | KILN_PTX_SAT)) {
        sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
    }
    return (uint32_t)sum;
}

const struct sim_op *kiln_sim_run_matrix(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    const uint32_t *list = warp->lists + op->lists;
    struct shape s = shapes[insn->sub];
    int wmma = insn->op == KILN_PTX_OP_WMMA_MMA;
    struct fragment d = fragment_of(insn->type, insn->n_d, wmma);
    struct fragment a = fragment_of(insn->type2, insn->n_a, wmma);
    struct fragment b = fragment_of(insn->type3, insn->n_b, wmma);
    struct fragment c = fragment_of(insn->type4, insn->n_c, wmma);
    struct matrices m;
    kiln_sim_lanes_needed(warp, op, SIM_ALL);
    gather(m.a, warp, list + op->list_a, &a, SIDE_A, s);
    gather(m.b, warp, list + op->list_b, &b, SIDE_B, s);
    gather(m.c, warp, list + op->list_c, &c, SIDE_C, s);
    int integers = is_integer(insn->type2);
    for (int lane = 0; lane < SIM_LANES; lane++) {
        for (uint32_t e = 0; warp->mask >> lane & 1 && e < d.registers * d.per_register; e++) {
            uint32_t row, column;
            place(&d, SIDE_C, s, lane, e, &row, &column);
            give(warp, list + op->list_d, &d, lane, e,
                    integers ? integer_sum(&m, s, row, column, insn)
                             : float_sum(&m, s, row, column, insn));
        }
    }
    return op + 1;
}

const struct sim_op *kiln_sim_run_matrix_quick(struct sim_warp *warp, const struct sim_op *op) {
    if (warp->mask != SIM_ALL) {
        return kiln_sim_run_matrix(warp, op);
    }
    return warp->worker->sim->handlers[op->mode >> 2](warp, op);
}

// ---- wmma's loads and stores --------------------------------------------------------------------
// CUDA asks for a matrix at a multiple of 32 bytes, rows of whole 16: what is no multiple of 16 is
// wrong either way.
static void check_rows(struct sim_warp *warp, const struct sim_op *op,
        const struct sim_access *base, uint32_t lane, uint64_t row_bytes) {
    if ((base->at[lane] % 16 || row_bytes % 16) && kiln_sim_checks(warp, KILN_SIM_CHECK_ALIGN)) {
        kiln_sim_note(warp, op, KILN_SIM_CHECK_ALIGN, (int)lane, op->space, base->at[lane], 16,
                "wmma wants rows at multiples of 16 bytes, these are %llu apart",
                (unsigned long long)row_bytes);
    }
}

// One element of each lane at a time.
static const struct sim_op *move(struct sim_warp *warp, const struct sim_op *op, int store) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    const uint32_t *list = warp->lists + op->lists + (store ? op->list_b : op->list_d);
    struct shape s = shapes[insn->sub];
    struct fragment f = fragment_of(insn->type, store ? insn->n_b : insn->n_d, 1);
    enum side side = store || insn->imm2 == 2 ? SIDE_C : insn->imm2 ? SIDE_B : SIDE_A;
    uint32_t rows = side == SIDE_B ? s.k : s.m, columns = side == SIDE_A ? s.k : s.n;
    int by_column = (insn->flags & KILN_PTX_B_COL) != 0;
    const u32 *stride = insn->c == KILN_PTX_NONE ? NULL : sim_at(warp, op->c);
    uint32_t each = rows * columns / SIM_LANES, bytes = f.bits / 8;
    struct sim_access base = {.bytes = bytes};
    kiln_sim_lanes_needed(warp, op, SIM_ALL);
    kiln_sim_addresses(&base, warp, op->a, op->mode & 15, op->imm);
    uint32_t first = (uint32_t)__builtin_ctz(warp->mask);
    uint64_t apart = stride ? stride[first] : by_column ? rows : columns;
    check_rows(warp, op, &base, first, apart * bytes);
    for (uint32_t e = 0; e < f.registers * f.per_register; e++) {
        struct sim_access access = base;
        access.kind = store ? SIM_WRITES : SIM_READS;
        if (e >= each && store) {
            break;
        }
        for (int lane = 0; lane < SIM_LANES; lane++) {
            uint32_t row, column;
            place(&f, side, s, lane, e, &row, &column);
            uint32_t step = stride ? stride[lane] : by_column ? rows : columns;
            access.at[lane] += (uint64_t)(by_column ? column : row) * step * bytes +
                               (uint64_t)(by_column ? row : column) * bytes;
        }
        if (kiln_sim_resolve(&access, warp, op, op->space) == SIM_SPACE_FAILED) {
            return NULL;
        }
        for (uint32_t mask = access.mask; mask; mask &= mask - 1) {
            int lane = __builtin_ctz(mask);
            uint64_t value = 0;
            if (store) {
                value = take(warp, list, &f, lane, e);
                memcpy(access.p[lane], &value, bytes);
            } else {
                memcpy(&value, access.p[lane], bytes);
                give(warp, list, &f, lane, e, value);
            }
        }
    }
    return op + 1;
}

const struct sim_op *kiln_sim_run_wmma_load(struct sim_warp *warp, const struct sim_op *op) {
    return move(warp, op, 0);
}

const struct sim_op *kiln_sim_run_wmma_store(struct sim_warp *warp, const struct sim_op *op) {
    return move(warp, op, 1);
}
