// lanes_mma: the products of the tensor cores that matter for speed: m16n8k8 and m16n8k16 of f16
// and bf16 with f32 sums, m16n8k16 and m16n8k32 of bytes; and a warp's part of a product of a
// warpgroup, whose operands wgmma.c has fetched. All else is mma.c's. Compiled once for any host
// and once for AVX2 (SIM_ISA).
//
// The order of a sum: it begins with c and takes the products at k = 0, 1, 2 … one after another,
// each exact (bf16's, where they leave the range of f32: rounded), each sum rounded to nearest.
//
// With g = lane / 4 and t = lane % 4 an operand register's 32 lanes are, in memory, eight rows g of
// four words t: rows of A, columns of B, so both lie there as 16-byte rows along k. Of C, the first
// register of a pair holds columns 0 2 4 6 of a row and the second 1 3 5 7; all below is done in
// that order of columns.
#include "device/sim/lanes.h"

#include "device/sim/lanes_impl.h"
#include "device/sim/wgmma.h"

#ifdef __AVX2__
#    include <immintrin.h>
#endif

enum {
    ROWS = 16,
    COLUMNS = 8,
    WORDS = 4, // of a row in a register
    MAX_K = 32,
};

// Column of B that stands at place j.
static const unsigned char column_at[COLUMNS] = {0, 2, 4, 6, 1, 3, 5, 7};

struct registers {
    const u32 *a[4], *b[2], *c[4];
    u32 *d[4];
};

SIM_INLINE struct registers operands(
        const struct sim_warp *warp, const struct sim_op *op, uint32_t n_a, uint32_t n_b) {
    struct registers r = {{0}, {0}, {0}, {0}};
    const uint32_t *list = warp->lists + op->lists;
    for (uint32_t i = 0; i < 4; i++) {
        r.d[i] = sim_at(warp, list[op->list_d + i]);
        r.c[i] = sim_at(warp, list[op->list_c + i]);
    }
    for (uint32_t i = 0; i < n_a; i++) {
        r.a[i] = sim_at(warp, list[op->list_a + i]);
    }
    for (uint32_t i = 0; i < n_b; i++) {
        r.b[i] = sim_at(warp, list[op->list_b + i]);
    }
    return r;
}

// ---- f16 and bf16 -------------------------------------------------------------------------------
#ifdef __AVX2__
SIM_INLINE __m256 widen(__m128i halves, int bf16) {
    __m256 values = bf16 ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16))
                         : _mm256_cvtph_ps(halves);
    return values;
}

// Eight columns of eight halves along k -> eight rows k of eight columns.
SIM_INLINE void transpose(__m128i to[8], const u32 *from) {
    __m128i r[8], s[8];
    for (int j = 0; j < 8; j++) {
        r[j] = _mm_load_si128((const __m128i *)(const void *)(from + WORDS * column_at[j]));
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
        to[2 * j] = _mm_unpacklo_epi64(r[j], r[j + 4]);
        to[2 * j + 1] = _mm_unpackhi_epi64(r[j], r[j + 4]);
    }
}

SIM_INLINE void multiply(const struct registers *r, int k_halves, int bf16) {
    __m256 b[16];
    float a[ROWS][16] __attribute__((aligned(32)));
    for (int h = 0; h < k_halves; h++) {
        __m128i rows[8];
        transpose(rows, r->b[h]);
        for (int k = 0; k < 8; k++) {
            b[8 * h + k] = widen(rows[k], bf16);
        }
        for (int row = 0; row < ROWS; row++) {
            const u32 *from = r->a[2 * h + row / 8] + WORDS * (row % 8);
            _mm256_store_ps(a[row] + 8 * h,
                    widen(_mm_load_si128((const __m128i *)(const void *)from), bf16));
        }
    }
    const __m256 canonical = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    for (int part = 0; part < 2; part++) {
        __m256 sum[8];
        for (int g = 0; g < 8; g++) {
            sum[g] = _mm256_set_m128(_mm_load_ps((const float *)(r->c[2 * part + 1] + WORDS * g)),
                    _mm_load_ps((const float *)(r->c[2 * part] + WORDS * g)));
        }
        for (int k = 0; k < 8 * k_halves; k++) {
            for (int g = 0; g < 8; g++) {
                __m256 left = _mm256_broadcast_ss(&a[8 * part + g][k]);
                // An f16 product is exact, so fusing the sum changes no bit.
                sum[g] = bf16 ? _mm256_add_ps(sum[g], _mm256_mul_ps(left, b[k]))
                              : _mm256_fmadd_ps(left, b[k], sum[g]);
            }
        }
        for (int g = 0; g < 8; g++) {
            __m256 good = _mm256_cmp_ps(sum[g], sum[g], _CMP_EQ_OQ);
            sum[g] = _mm256_blendv_ps(canonical, sum[g], good);
            _mm_store_ps((float *)(r->d[2 * part] + WORDS * g), _mm256_castps256_ps128(sum[g]));
            _mm_store_ps(
                    (float *)(r->d[2 * part + 1] + WORDS * g), _mm256_extractf128_ps(sum[g], 1));
        }
    }
}
#else
SIM_INLINE float widen(u32 word, int high, int bf16) {
    uint16_t half = (uint16_t)(high ? word >> 16 : word);
    return bf16 ? f32_of((uint32_t)half << 16) : f16_to_f32(half);
}

SIM_INLINE void multiply(const struct registers *r, int k_halves, int bf16) {
    float a[ROWS][16], b[16][COLUMNS];
    for (int k = 0; k < 8 * k_halves; k++) {
        int h = k / 8, word = k % 8 / 2;
        for (int row = 0; row < ROWS; row++) {
            a[row][k] = widen(r->a[2 * h + row / 8][WORDS * (row % 8) + word], k & 1, bf16);
        }
        for (int j = 0; j < COLUMNS; j++) {
            b[k][j] = widen(r->b[h][WORDS * column_at[j] + word], k & 1, bf16);
        }
    }
    for (int row = 0; row < ROWS; row++) {
        int at = WORDS * (row % 8), part = row / 8;
        float sum[COLUMNS];
        for (int j = 0; j < COLUMNS; j++) {
            sum[j] = f32_of(r->c[2 * part + j / 4][at + j % 4]);
        }
        for (int k = 0; k < 8 * k_halves; k++) {
            for (int j = 0; j < COLUMNS; j++) {
                sum[j] += a[row][k] * b[k][j];
            }
        }
        for (int j = 0; j < COLUMNS; j++) {
            r->d[2 * part + j / 4][at + j % 4] = f32_bits(f32_canonical(sum[j]));
        }
    }
}
#endif

// op->n: registers of B, one for each 8 of k.
static const struct sim_op *run_MMA_F16_F32(struct sim_warp *warp, const struct sim_op *op) {
    struct registers r = operands(warp, op, 2u * op->n, op->n);
    if (op->n == 2) {
        multiply(&r, 2, 0);
    } else {
        multiply(&r, 1, 0);
    }
    return op + 1;
}

static const struct sim_op *run_MMA_BF16_F32(struct sim_warp *warp, const struct sim_op *op) {
    struct registers r = operands(warp, op, 2u * op->n, op->n);
    if (op->n == 2) {
        multiply(&r, 2, 1);
    } else {
        multiply(&r, 1, 1);
    }
    return op + 1;
}

// ---- Bytes --------------------------------------------------------------------------------------
// Bytes of a word as 16-bit numbers, two to a word: 0, 1 and 2, 3.
SIM_INLINE void spread(u32 word, int is_signed, int16_t to[4]) {
    for (int i = 0; i < 4; i++) {
        uint32_t byte = word >> (8 * i) & 255;
        to[i] = is_signed ? (int8_t)byte : (int16_t)byte;
    }
}

// op->n: registers of B, one for each 16 of k. op->mode: 1 A is signed, 2 B is.
static const struct sim_op *run_MMA_S8(struct sim_warp *warp, const struct sim_op *op) {
    struct registers r = operands(warp, op, 2u * op->n, op->n);
    int16_t a[ROWS][MAX_K] __attribute__((aligned(32)));
    int16_t b[MAX_K / 2][COLUMNS][2] __attribute__((aligned(32)));
    for (int h = 0; h < op->n; h++) {
        for (int word = 0; word < WORDS; word++) {
            int k = 16 * h + 4 * word;
            for (int row = 0; row < ROWS; row++) {
                spread(r.a[2 * h + row / 8][WORDS * (row % 8) + word], op->mode & 1, a[row] + k);
            }
            for (int j = 0; j < COLUMNS; j++) {
                int16_t four[4];
                spread(r.b[h][WORDS * column_at[j] + word], op->mode & 2, four);
                memcpy(b[k / 2][j], four, 4);
                memcpy(b[k / 2 + 1][j], four + 2, 4);
            }
        }
    }
    for (int row = 0; row < ROWS; row++) {
        int at = WORDS * (row % 8), part = row / 8;
        uint32_t sum[COLUMNS];
        for (int j = 0; j < COLUMNS; j++) {
            sum[j] = r.c[2 * part + j / 4][at + j % 4];
        }
        for (int k = 0; k < 8 * op->n; k++) {
            for (int j = 0; j < COLUMNS; j++) {
                sum[j] += (uint32_t)(a[row][2 * k] * b[k][j][0] + a[row][2 * k + 1] * b[k][j][1]);
            }
        }
        for (int j = 0; j < COLUMNS; j++) {
            r.d[2 * part + j / 4][at + j % 4] = sum[j];
        }
    }
    return op + 1;
}

// ---- Products of warpgroups ---------------------------------------------------------------------
// Halves of sums in two registers, of rows g and g + 8, as four registers of f32, and back.
static void widen_sums(u32 to[4][SIM_LANES], const u32 *top, const u32 *bottom) {
    for (int i = 0; i < SIM_LANES; i++) {
        to[0][i] = f32_bits(f16_to_f32((uint16_t)top[i]));
        to[1][i] = f32_bits(f16_to_f32((uint16_t)(top[i] >> 16)));
        to[2][i] = f32_bits(f16_to_f32((uint16_t)bottom[i]));
        to[3][i] = f32_bits(f16_to_f32((uint16_t)(bottom[i] >> 16)));
    }
}

static void narrow_sums(u32 *top, u32 *bottom, u32 from[4][SIM_LANES]) {
    for (int i = 0; i < SIM_LANES; i++) {
        top[i] = f16_from_f32(f32_of(from[0][i])) | (u32)f16_from_f32(f32_of(from[1][i])) << 16;
        bottom[i] = f16_from_f32(f32_of(from[2][i])) | (u32)f16_from_f32(f32_of(from[3][i])) << 16;
    }
}

// A warp's 16 rows: one m16n8k16 after another.
static const struct sim_op *run_WGMMA(struct sim_warp *warp, const struct sim_op *op) {
    const struct sim_product *p = warp->product;
    const uint32_t *list = warp->lists + op->lists + op->list_d;
    u32 wide[4][SIM_LANES] __attribute__((aligned(64)));
    static const u32 zeros[SIM_LANES] __attribute__((aligned(64)));
    for (uint32_t j = 0; j < p->n; j++) {
        struct registers r = {.b = {p->b[j][0], p->b[j][1]}};
        u32 *halves[2] = {NULL, NULL};
        for (uint32_t i = 0; i < 2 && p->halves; i++) {
            halves[i] = sim_at(warp, list[2 * j + i]);
        }
        if (p->halves) {
            widen_sums(wide, p->zero ? zeros : halves[0], p->zero ? zeros : halves[1]);
        }
        for (uint32_t i = 0; i < 4; i++) {
            r.a[i] = p->a[i];
            r.d[i] = p->halves ? wide[i] : sim_at(warp, list[4 * j + i]);
            r.c[i] = p->zero ? zeros : r.d[i];
        }
        if (p->bf16) {
            multiply(&r, 2, 1);
        } else {
            multiply(&r, 2, 0);
        }
        if (p->halves) {
            narrow_sums(halves[0], halves[1], wide);
        }
    }
    return op + 1;
}

void SIM_NAMED(kiln_sim_mma_)(sim_handler handlers[SIM_OP_COUNT]) {
    handlers[SIM_OP_MMA_F16_F32] = run_MMA_F16_F32;
    handlers[SIM_OP_MMA_BF16_F32] = run_MMA_BF16_F32;
    handlers[SIM_OP_MMA_S8] = run_MMA_S8;
    handlers[SIM_OP_WGMMA] = run_WGMMA;
}
