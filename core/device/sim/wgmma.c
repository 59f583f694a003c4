// wgmma: products of warpgroups: operands out of shared memory by their descriptions.
//
// A matrix lies in pieces of 16 bytes, which are 8 elements along K (K-major) or along M or N. Its
// description, 64 bits: 0-13 where it begins, 16-29 the leading offset, 32-45 the stride offset,
// all in units of 16 bytes; 49-51 the base offset; 62-63 the swizzle: 0 none, 1 of 128 bytes, 2 of
// 64, 3 of 32 (PTX ISA, "Shared Memory Matrix Layout" and "Matrix Descriptor Format" of wgmma).
// Sums: lanes_mma.c.
#include "device/sim/wgmma.h"

#include "device/sim/access.h"
#include "device/sim/clock.h"
#include "device/sim/lanes_impl.h"
#include "device/sim/run_impl.h"

enum {
    PIECE = 16, // bytes
    ROWS = 16,  // of a warp's part of a, and of b fetched at a time
};

struct matrix {
    uint32_t start, leading, stride;
    uint32_t swizzle; // bits of the row that are added to those of the piece: 0, 1, 3 or 7
    uint32_t base;    // rows of 128 bytes by which the pattern begins off its own size
    int k_major;
};

static struct matrix matrix_of(uint64_t description, int k_major) {
    static const unsigned char swizzles[] = {0, 7, 3, 1};
    return (struct matrix){.start = ((uint32_t)description & 0x3fff) * PIECE,
            .leading = ((uint32_t)(description >> 16) & 0x3fff) * PIECE,
            .stride = ((uint32_t)(description >> 32) & 0x3fff) * PIECE,
            .swizzle = swizzles[description >> 62],
            .base = (uint32_t)(description >> 49) & 7,
            .k_major = k_major};
}

// Where the piece of a row at 8 `k8` lies (K-major).
static uint32_t piece_along_k(const struct matrix *m, uint32_t row, uint32_t k8) {
    uint32_t width = (m->swizzle + 1) * PIECE;
    return m->start + row % 8 * width + row / 8 * m->stride +
           k8 * (m->swizzle ? PIECE : m->leading);
}

// Where the piece of rows from 8 `row8` on at k lies (M- or N-major).
static uint32_t piece_along_rows(const struct matrix *m, uint32_t row8, uint32_t k) {
    uint32_t pieces = m->swizzle + 1;
    if (!m->swizzle) {
        return m->start + row8 * m->stride + k % 8 * PIECE + k / 8 * m->leading;
    }
    return m->start + row8 % pieces * PIECE + row8 / pieces * m->leading + k % 8 * pieces * PIECE +
           k / 8 * m->stride;
}

static uint32_t swizzled(const struct matrix *m, uint32_t at) {
    return at ^ (((at >> 7) - m->base) & m->swizzle) * PIECE;
}

// Of 32 pieces that make up 8 or 16 rows (16 deep) from `row` on: where the i-th lies. 0: there is
// none.
static int piece(const struct matrix *m, uint32_t row, uint32_t rows, uint32_t i, uint32_t *at) {
    uint32_t outer = i / ROWS, inner = i % ROWS;
    *at = swizzled(m, m->k_major ? piece_along_k(m, row + inner, outer)
                                 : piece_along_rows(m, row / 8 + outer, inner));
    return m->k_major ? inner < rows : outer < rows / 8;
}

// Fetches 8 or 16 rows (16 deep) from `row` on: to[r][h] gets rows 8r to 8r + 7, k from 8h on, a
// row in four lanes. 0: the launch failed.
static int fetch(struct sim_warp *warp, const struct sim_op *op, const struct matrix *m,
        uint32_t row, uint32_t rows, u32 *const to[2][2]) {
    struct sim_access access = {.bytes = PIECE, .kind = SIM_READS | SIM_PROXY};
    for (uint32_t i = 0; i < SIM_LANES; i++) {
        uint32_t at;
        int there = piece(m, row, rows, i, &at);
        access.at[i] = there ? at : access.at[0];
        access.mask |= there ? 1u << i : 0;
    }
    uint32_t wanted = access.mask;
    if (kiln_sim_resolve(&access, warp, op, KILN_PTX_SHARED) == SIM_SPACE_FAILED) {
        return 0;
    }
    for (uint32_t left = wanted; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left), outer = i / ROWS, inner = i % ROWS;
        if (m->k_major) {
            memcpy(to[inner / 8][outer] + inner % 8 * 4, access.p[i], PIECE);
            continue;
        }
        u16 *column = (u16 *)to[outer][inner / 8] + inner % 8;
        for (uint32_t r = 0; r < 8; r++) {
            memcpy(column + 8 * r, access.p[i] + 2 * r, 2);
        }
    }
    return 1;
}

static void tell_reading(
        struct sim_warp *warp, const struct matrix *m, uint32_t row, uint32_t rows, int under_way) {
    for (uint32_t i = 0; i < SIM_LANES; i++) {
        uint32_t at;
        if (piece(m, row, rows, i, &at) && at + PIECE <= warp->block->shared_bytes) {
            kiln_sim_clock_reading(warp, at, PIECE, under_way);
        }
    }
}

void kiln_sim_wgmma_reads(
        struct sim_warp *warp, const struct sim_wgmma_reading *reading, int under_way) {
    const struct kiln_ptx_insn *insn = reading->insn;
    if (insn->n_a == 1) {
        struct matrix a = matrix_of(reading->a, !(insn->flags & KILN_PTX_A_COL));
        uint32_t row = warp->index % SIM_GROUP_WARPS * ROWS;
        tell_reading(warp, &a, row, ROWS, under_way);
    }
    struct matrix b = matrix_of(reading->b, !(insn->flags & KILN_PTX_TRANS));
    uint32_t n = insn->sub * 8u;
    for (uint32_t row = 0; row < n; row += ROWS) {
        tell_reading(warp, &b, row, n - row < ROWS ? n - row : ROWS, under_way);
    }
}

static void negate(u32 *values, size_t n) {
    for (size_t i = 0; i < n; i++) {
        values[i] ^= 0x80008000u;
    }
}

// All lanes name one matrix.
static uint64_t description(struct sim_warp *warp, const struct sim_op *op, uint32_t ref) {
    const u64 *lanes = sim_at(warp, ref);
    int first = __builtin_ctz(warp->mask);
    for (int i = first; i < SIM_LANES; i++) {
        if (warp->mask >> i & 1 && lanes[i] != lanes[first]) {
            if (kiln_sim_checks(warp, KILN_SIM_CHECK_LANES)) {
                kiln_sim_note(warp, op, KILN_SIM_CHECK_LANES, i, -1, 0, 0,
                        "lanes %d and %d describe different matrices", first, i);
            }
            break;
        }
    }
    return lanes[first];
}

static int fetch_operands(struct sim_warp *warp, const struct sim_op *op, struct sim_product *p,
        uint64_t a, uint64_t b) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    const uint32_t *list = warp->lists + op->lists + op->list_a;
    if (insn->n_a == 1) {
        u32 *const to[2][2] = {{p->a[0], p->a[2]}, {p->a[1], p->a[3]}};
        struct matrix m = matrix_of(a, !(insn->flags & KILN_PTX_A_COL));
        if (!fetch(warp, op, &m, warp->index % SIM_GROUP_WARPS * ROWS, ROWS, to)) {
            return 0;
        }
    } else {
        for (uint32_t i = 0; i < 4; i++) {
            memcpy(p->a[i], sim_at(warp, list[i]), sizeof(p->a[i]));
        }
    }
    struct matrix m = matrix_of(b, !(insn->flags & KILN_PTX_TRANS));
    for (uint32_t j = 0; j < p->n; j += 2) {
        uint32_t two = j + 1 < p->n;
        u32 *const to[2][2] = {{p->b[j][0], p->b[j][1]}, {p->b[j + two][0], p->b[j + two][1]}};
        if (!fetch(warp, op, &m, 8 * j, 8 + 8 * two, to)) {
            return 0;
        }
    }
    if (insn->imm & 1) {
        negate(p->a[0], sizeof(p->a) / sizeof(u32));
    }
    if (insn->imm & 2) {
        negate(p->b[0][0], (size_t)p->n * 2 * SIM_LANES);
    }
    return 1;
}

// Lanes that do not take part keep what they had.
static void multiply_some(struct sim_warp *warp, const struct sim_op *op, sim_handler multiply) {
    u32 before[SIM_LIST_MAX][SIM_LANES];
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    const uint32_t *list = warp->lists + op->lists + op->list_d;
    for (uint32_t e = 0; e < insn->n_d; e++) {
        memcpy(before[e], sim_at(warp, list[e]), sizeof(before[e]));
    }
    (void)multiply(warp, op);
    for (uint32_t e = 0; e < insn->n_d; e++) {
        u32 *d = sim_at(warp, list[e]);
        for (int i = 0; i < SIM_LANES; i++) {
            d[i] = warp->mask >> i & 1 ? d[i] : before[e][i];
        }
    }
}

const struct sim_op *kiln_sim_run_wgmma(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t scale = *(const u32 *)sim_at(warp, op->e);
    struct sim_product p = {.n = insn->sub,
            .bf16 = insn->type2 == KILN_PTX_BF16,
            .halves = insn->type == KILN_PTX_F16,
            .zero = !(scale >> __builtin_ctz(warp->mask) & 1)};
    kiln_sim_lanes_needed(warp, op, SIM_ALL);
    uint64_t a = insn->n_a == 1 ? description(warp, op, op->a) : 0;
    uint64_t b = description(warp, op, op->b);
    if (warp->block->wgmma && !kiln_sim_wgmma_issue(warp, op, a, b)) {
        return NULL;
    }
    if (!fetch_operands(warp, op, &p, a, b)) {
        return NULL;
    }
    if (warp->block->wgmma) {
        kiln_sim_wgmma_begun(warp);
    }
    sim_handler multiply = warp->worker->sim->handlers[SIM_OP_WGMMA];
    warp->product = &p;
    if (warp->mask == SIM_ALL) {
        (void)multiply(warp, op);
    } else {
        multiply_some(warp, op, multiply);
    }
    warp->product = NULL;
    return op + 1;
}
