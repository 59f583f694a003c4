// access: loads and stores of registers, and of 8 x 8 matrices.
#include "device/sim/access.h"

#include "device/sim/lanes_impl.h"
#include "device/sim/run_impl.h"

#ifdef __SSE2__
#    include <emmintrin.h>
#endif

static int is_signed(uint8_t type) {
    return type == KILN_PTX_S8 || type == KILN_PTX_S16 || type == KILN_PTX_S32;
}

// A value of 1 to 8 bytes, extended as the type says.
static uint64_t read_value(const unsigned char *from, uint32_t bytes, int extend) {
    uint64_t value = 0;
    memcpy(&value, from, bytes); // little-endian, like the GPU
    if (extend && bytes < 8) {
        uint32_t shift = 64 - 8 * bytes;
        value = (uint64_t)((int64_t)(value << shift) >> shift);
    }
    return value;
}

static void put_words(u32 *d, const struct sim_access *access, uint32_t offset, uint32_t mask) {
    if (mask == SIM_ALL) {
        for (int i = 0; i < SIM_LANES; i++) {
            memcpy(&d[i], access->p[i] + offset, 4);
        }
    } else {
        for (; mask; mask &= mask - 1) {
            int i = __builtin_ctz(mask);
            memcpy(&d[i], access->p[i] + offset, 4);
        }
    }
}

static void put_doubles(u64 *d, const struct sim_access *access, uint32_t offset, uint32_t mask) {
    for (; mask; mask &= mask - 1) {
        int i = __builtin_ctz(mask);
        memcpy(&d[i], access->p[i] + offset, 8);
    }
}

// Lanes whose access was refused read zeros, so all that run are written.
static void put_any(const struct sim_warp *warp, const struct sim_op *op, uint32_t ref,
        const struct sim_access *access, uint32_t offset, uint32_t d_bytes) {
    int extend = is_signed(op->type);
    for (uint32_t mask = warp->mask; mask; mask &= mask - 1) {
        int i = __builtin_ctz(mask);
        const unsigned char *from = access->p[i] + offset;
        if (op->bytes == 16) {
            memcpy((unsigned char *)sim_at(warp, ref) + 16 * i, from, 16);
            continue;
        }
        uint64_t value = read_value(from, op->bytes, extend);
        if (d_bytes == 8) {
            ((u64 *)sim_at(warp, ref))[i] = value;
        } else {
            ((u32 *)sim_at(warp, ref))[i] = (uint32_t)(d_bytes == 2 ? (uint16_t)value : value);
        }
    }
}

const struct sim_op *kiln_sim_run_load(struct sim_warp *warp, const struct sim_op *op) {
    struct sim_access access = {.bytes = (uint32_t)op->bytes * op->n, .kind = SIM_READS};
    access.kind |= op->space == KILN_PTX_CONSTANT ? SIM_CONSTANT : 0;
    kiln_sim_addresses(&access, warp, op->a, op->mode & 15, op->imm);
    if (kiln_sim_resolve(&access, warp, op, op->space) == SIM_SPACE_FAILED) {
        return NULL;
    }
    const uint32_t *list = warp->lists + op->lists;
    uint32_t d_bytes = op->mode >> 4;
    for (uint32_t e = 0; e < op->n; e++) {
        uint32_t ref = list[op->list_d + e];
        if (op->bytes == 4 && d_bytes == 4) {
            if (op->n == 1 && access.contiguous) {
                memcpy(sim_at(warp, ref), access.p[0], 4 * SIM_LANES);
            } else {
                put_words(sim_at(warp, ref), &access, 4 * e, warp->mask);
            }
        } else if (op->bytes == 8 && d_bytes == 8) {
            put_doubles(sim_at(warp, ref), &access, 8 * e, warp->mask);
        } else {
            put_any(warp, op, ref, &access, op->bytes * e, d_bytes);
        }
    }
    return op + 1;
}

const struct sim_op *kiln_sim_run_store(struct sim_warp *warp, const struct sim_op *op) {
    struct sim_access access = {.bytes = (uint32_t)op->bytes * op->n, .kind = SIM_WRITES};
    kiln_sim_addresses(&access, warp, op->a, op->mode & 15, op->imm);
    if (kiln_sim_resolve(&access, warp, op, op->space) == SIM_SPACE_FAILED) {
        return NULL;
    }
    const uint32_t *list = warp->lists + op->lists;
    uint32_t b_lane = op->mode >> 4; // bytes of a lane in its register
    for (uint32_t e = 0; e < op->n; e++) {
        const unsigned char *from = sim_at(warp, list[op->list_b + e]);
        if (op->bytes == 4 && b_lane == 4 && op->n == 1 && access.contiguous) {
            memcpy(access.p[0], from, 4 * SIM_LANES);
        } else if (op->bytes == 4 && b_lane == 4) {
            for (uint32_t mask = access.mask; mask; mask &= mask - 1) {
                int i = __builtin_ctz(mask);
                memcpy(access.p[i] + 4 * e, from + 4 * i, 4);
            }
        } else {
            for (uint32_t mask = access.mask; mask; mask &= mask - 1) {
                int i = __builtin_ctz(mask);
                memcpy(access.p[i] + op->bytes * e, from + b_lane * (uint32_t)i, op->bytes);
            }
        }
    }
    return op + 1;
}

int kiln_sim_is_wanted(const struct sim_warp *warp, const struct sim_op *op, uint32_t byte) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t element = kiln_ptx_type_bits((enum kiln_ptx_type)insn->type) / 8;
    // Checks look at words: elements that share one are all wanted.
    return insn->op != KILN_PTX_OP_LD || insn->n_d <= 1 || element < 4 ||
           warp->function->ptx->lists[insn->d + byte / element] != KILN_PTX_NONE;
}

// ---- Matrices -----------------------------------------------------------------------------------
// Eight rows of eight 16-bit elements, transposed.
static void transpose(u32 *to, const unsigned char *const row[8]) {
#ifdef __SSE2__
    __m128i r[8], s[8];
    for (int j = 0; j < 8; j++) {
        r[j] = _mm_loadu_si128((const __m128i *)(const void *)row[j]);
    }
    for (int j = 0; j < 4; j++) {
        s[2 * j] = _mm_unpacklo_epi16(r[2 * j], r[2 * j + 1]);
        s[2 * j + 1] = _mm_unpackhi_epi16(r[2 * j], r[2 * j + 1]);
    }
    for (int j = 0; j < 2; j++) {
        r[4 * j] = _mm_unpacklo_epi32(s[4 * j], s[4 * j + 2]);
        r[4 * j + 1] = _mm_unpackhi_epi32(s[4 * j], s[4 * j + 2]);
        r[4 * j + 2] = _mm_unpacklo_epi32(s[4 * j + 1], s[4 * j + 3]);
        r[4 * j + 3] = _mm_unpackhi_epi32(s[4 * j + 1], s[4 * j + 3]);
    }
    for (int j = 0; j < 4; j++) {
        _mm_storeu_si128((__m128i *)(void *)(to + 8 * j), _mm_unpacklo_epi64(r[j], r[j + 4]));
        _mm_storeu_si128((__m128i *)(void *)(to + 8 * j + 4), _mm_unpackhi_epi64(r[j], r[j + 4]));
    }
#else
    for (int lane = 0; lane < SIM_LANES; lane++) {
        uint16_t low, high;
        memcpy(&low, row[lane % 4 * 2] + lane / 4 * 2, 2);
        memcpy(&high, row[lane % 4 * 2 + 1] + lane / 4 * 2, 2);
        to[lane] = (uint32_t)low | (uint32_t)high << 16;
    }
#endif
}

// A register whose lanes are a matrix: 16 bytes of a row lie in four lanes.
static void put_matrix(struct sim_warp *warp, uint32_t ref, const u32 value[SIM_LANES]) {
    u32 *d = sim_aligned(warp, ref);
    if (warp->mask == SIM_ALL) {
        memcpy(d, value, 4 * SIM_LANES);
        return;
    }
    for (int i = 0; i < SIM_LANES; i++) {
        d[i] = warp->mask >> i & 1 ? value[i] : d[i];
    }
}

// Addresses of the rows: lane l names row l % 8 of matrix l / 8. The access is that of 8 n lanes.
static int matrix_rows(struct sim_access *access, struct sim_warp *warp, const struct sim_op *op) {
    kiln_sim_lanes_needed(warp, op, SIM_ALL);
    kiln_sim_addresses(access, warp, op->a, op->mode & 15, op->imm);
    uint32_t rows = op->n == 4 ? SIM_ALL : (1u << (8 * op->n)) - 1;
    access->mask &= rows;
    for (int i = 0; i < SIM_LANES; i++) {
        access->at[i] = access->mask >> i & 1 ? access->at[i] : access->at[0];
    }
    return kiln_sim_resolve(access, warp, op, op->space) != SIM_SPACE_FAILED;
}

const struct sim_op *kiln_sim_run_load_matrix(struct sim_warp *warp, const struct sim_op *op) {
    struct sim_access access = {.bytes = 16, .kind = SIM_READS};
    if (!matrix_rows(&access, warp, op)) {
        return NULL;
    }
    const uint32_t *list = warp->lists + op->lists + op->list_d;
    for (uint32_t m = 0; m < op->n; m++) {
        u32 value[SIM_LANES];
        unsigned char *const *rows = access.p + 8 * m;
        if (op->mode & 16) {
            transpose(value, (const unsigned char *const *)rows);
        } else {
            for (int row = 0; row < 8; row++) {
                memcpy(value + 4 * row, rows[row], 16);
            }
        }
        put_matrix(warp, list[m], value);
    }
    return op + 1;
}

const struct sim_op *kiln_sim_run_store_matrix(struct sim_warp *warp, const struct sim_op *op) {
    struct sim_access access = {.bytes = 16, .kind = SIM_WRITES};
    if (!matrix_rows(&access, warp, op)) {
        return NULL;
    }
    const uint32_t *list = warp->lists + op->lists + op->list_b;
    for (uint32_t m = 0; m < op->n; m++) {
        const unsigned char *value = sim_at(warp, list[m]);
        u32 flipped[SIM_LANES];
        if (op->mode & 16) {
            const unsigned char *rows[8];
            for (int row = 0; row < 8; row++) {
                rows[row] = value + 16 * row;
            }
            transpose(flipped, rows);
            value = (const unsigned char *)flipped;
        }
        for (uint32_t row = 0; row < 8; row++) {
            if (access.mask >> (8 * m + row) & 1) {
                memcpy(access.p[8 * m + row], value + 16 * row, 16);
            }
        }
    }
    return op + 1;
}

const struct sim_op *kiln_sim_run_move_matrix(struct sim_warp *warp, const struct sim_op *op) {
    kiln_sim_lanes_needed(warp, op, SIM_ALL);
    const unsigned char *from = sim_at(warp, op->a), *rows[8];
    u32 value[SIM_LANES];
    for (int row = 0; row < 8; row++) {
        rows[row] = from + 16 * row;
    }
    transpose(value, rows);
    put_matrix(warp, op->d, value);
    return op + 1;
}
