// dot_avx2: dot products of quantized rows with AVX2, FMA and F16C. Layouts are drawn in quant.h.
//
// A block's scale is applied to its sum instead of to each weight, and what all its weights have in
// common (a minimum, a zero point) multiplies the block's sum of activations: the dequantized
// product, d Σ q x + m Σ x, with its factors taken out. All in f32. Four bits do not have to be
// moved to the bottom of a 32-bit number to become a float: the 4 bytes of a number are masked
// where they lie, and the activations that meet bytes 1 to 3 come divided by 2^8, 2^16 and 2^24,
// which is exact. So 8 weights cost one mask, one conversion and one multiply-add.
//
// Sum order: a block's products in 8 lanes by fused multiply-adds, times the scale onto the row's 8
// lanes; the lanes in pairs at the end; then the row's sum of common parts.
#include "dot_avx2.h"

#include "args.h"
#include "blocks_avx2.h"
#include "dequant.h"
#include "quant.h"

#include <immintrin.h>
#include <string.h>

#define INLINE CPU_INLINE

enum {
    AHEAD = 2048, // bytes of weights that are asked for before they are needed
};

struct sum { // of one weight row
    __m256 products;
    __m256 common;
    __m128 common_one; // lane 0 only
};

// Σ byte * x over 32 columns in 8 lanes; only the bits of `mask` (at most 127) of each byte count.
INLINE __m256 dot_bytes(__m256i bytes, int mask, const float *quads) {
    __m256 sum = _mm256_setzero_ps();
    for (int b = 0; b < 4; b++) {
        __m256i part = _mm256_and_si256(bytes, _mm256_set1_epi32(mask << 8 * b));
        __m256 value = _mm256_cvtepi32_ps(part);
        __m256 x = _mm256_loadu_ps(quads + 8 * b);
        sum = b == 0 ? _mm256_mul_ps(value, x) : _mm256_fmadd_ps(value, x, sum);
    }
    return sum;
}

// Adds d * dot and zero * d * Σ x.
INLINE void add_block(struct sum *sum, __m256 dot, __m128 d, float zero_times_sum) {
    sum->products = _mm256_fmadd_ps(_mm256_broadcastss_ps(d), dot, sum->products);
    sum->common_one = _mm_fmadd_ss(d, _mm_set_ss(zero_times_sum), sum->common_one);
}

INLINE void block_q4_0(const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum) {
    __m256 dot = dot_bytes(cpu_load_nibbles(at + CPU_Q4_0_QS), 15, x->quads + k);
    add_block(sum, dot, cpu_load_f16(at + CPU_Q4_0_D), -8 * x->sums[k / 32]);
}

INLINE void block_q4_1(const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum) {
    int32_t both;
    memcpy(&both, at + CPU_Q4_1_D, sizeof(both));
    __m128 d = _mm_cvtph_ps(_mm_cvtsi32_si128(both)); // d, m
    __m256 dot = dot_bytes(cpu_load_nibbles(at + CPU_Q4_1_QS), 15, x->quads + k);
    sum->products = _mm256_fmadd_ps(_mm256_broadcastss_ps(d), dot, sum->products);
    sum->common_one =
            _mm_fmadd_ss(_mm_movehdup_ps(d), _mm_load_ss(x->sums + k / 32), sum->common_one);
}

INLINE void block_q5_0(const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum) {
    __m256 dot = dot_bytes(cpu_bytes_q5_0(at), 31, x->quads + k);
    add_block(sum, dot, cpu_load_f16(at + CPU_Q5_0_D), -16 * x->sums[k / 32]);
}

INLINE void block_q8_0(const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum) {
    __m256 dot = _mm256_setzero_ps();
    for (int c = 0; c < 4; c++) {
        __m128i eight = _mm_loadl_epi64((const __m128i *)(const void *)(at + CPU_Q8_0_QS + 8 * c));
        __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
        __m256 in = _mm256_loadu_ps(x->x + k + 8 * c);
        dot = c == 0 ? _mm256_mul_ps(value, in) : _mm256_fmadd_ps(value, in, dot);
    }
    __m128 d = cpu_load_f16(at + CPU_Q8_0_D);
    sum->products = _mm256_fmadd_ps(_mm256_broadcastss_ps(d), dot, sum->products);
}

// q4_K, and q5_K where `fifth` is 1.
INLINE void block_qk(
        int fifth, const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum) {
    __m256 scaled;
    float factor[8];
    __m256 offsets = cpu_factors_qk(at, &scaled);
    _mm256_storeu_ps(factor, scaled);
    sum->common = _mm256_fnmadd_ps(offsets, _mm256_loadu_ps(x->sums + k / 32), sum->common);
    for (int group = 0; group < 8; group++) {
        __m256i bytes = fifth ? cpu_bytes_q5_K(at, group) : cpu_bytes_q4_K(at, group);
        __m256 dot = dot_bytes(bytes, fifth ? 31 : 15, x->quads + k + 32 * group);
        sum->products = _mm256_fmadd_ps(_mm256_broadcast_ss(&factor[group]), dot, sum->products);
    }
}

INLINE void block_q4_K(const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum) {
    block_qk(0, at, x, k, sum);
}

INLINE void block_q5_K(const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum) {
    block_qk(1, at, x, k, sum);
}

INLINE void block_q6_K(const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum) {
    float factor[16];
    for (int i = 0; i < 2; i++) {
        __m256 scales = cpu_factors_q6_K(at, i);
        _mm256_storeu_ps(factor + 8 * i, scales);
        __m256 zero =
                _mm256_mul_ps(_mm256_loadu_ps(x->halves + k / 16 + 8 * i), _mm256_set1_ps(-32));
        sum->common = _mm256_fmadd_ps(scales, zero, sum->common);
    }
    for (int part = 0; part < 8; part++) {
        __m256 scale = _mm256_set_m128(
                _mm_broadcast_ss(&factor[2 * part + 1]), _mm_broadcast_ss(&factor[2 * part]));
        __m256 dot = dot_bytes(cpu_bytes_q6_K(at, part), 63, x->quads + k + 32 * part);
        sum->products = _mm256_fmadd_ps(scale, dot, sum->products);
    }
}

typedef void (*block_fn)(const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum);

// Which type it is, is a constant in each caller. One row at a time: several side by side share the
// loads of x, but were slower, by a quarter for q4_K.
INLINE float dot_row(block_fn add, int elems, int bytes, const uint8_t *row,
        const struct cpu_dot_x *x, int64_t k) {
    struct sum sum = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm_setzero_ps()};
    for (int64_t at = 0; at < k; at += elems, row += bytes) {
        for (int line = 0; line < bytes; line += 64) {
            _mm_prefetch((const char *)row + AHEAD + line, _MM_HINT_T0);
        }
        add(row, x, at, &sum);
    }
    return cpu_add_lanes(sum.products) +
           (cpu_add_lanes(sum.common) + _mm_cvtss_f32(sum.common_one));
}

#define DEFINE_DOT(type, elems, bytes) \
    static float dot_##type(const uint8_t *row, const struct cpu_dot_x *x, int64_t k) { \
        return dot_row(block_##type, elems, bytes, row, x, k); \
    }

DEFINE_DOT(q4_0, 32, CPU_Q4_0_BYTES)
DEFINE_DOT(q4_1, 32, CPU_Q4_1_BYTES)
DEFINE_DOT(q5_0, 32, CPU_Q5_0_BYTES)
DEFINE_DOT(q8_0, 32, CPU_Q8_0_BYTES)
DEFINE_DOT(q4_K, 256, CPU_Q4_K_BYTES)
DEFINE_DOT(q5_K, 256, CPU_Q5_K_BYTES)
DEFINE_DOT(q6_K, 256, CPU_Q6_K_BYTES)

static const struct cpu_dot_avx2 dots[] = {
        {KILN_DTYPE_Q4_0, dot_q4_0},
        {KILN_DTYPE_Q4_1, dot_q4_1},
        {KILN_DTYPE_Q5_0, dot_q5_0},
        {KILN_DTYPE_Q8_0, dot_q8_0},
        {KILN_DTYPE_Q4_K, dot_q4_K},
        {KILN_DTYPE_Q5_K, dot_q5_K},
        {KILN_DTYPE_Q6_K, dot_q6_K},
};

const struct cpu_dot_avx2 *cpu_dot_avx2_find(uint32_t dtype) {
    for (size_t i = 0; i < sizeof(dots) / sizeof(dots[0]); i++) {
        if (dots[i].dtype == dtype) {
            return &dots[i];
        }
    }
    return NULL;
}

// Columns j and j + 16 of 4, side by side in one register.
INLINE __m256 load_pair(const float *x) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x)), _mm_loadu_ps(x + 16), 1);
}

static void prepare_block(const float *x, float *quads, float *halves, float *sum) {
    __m256 r0 = load_pair(x), r1 = load_pair(x + 4), r2 = load_pair(x + 8), r3 = load_pair(x + 12);
    __m256 a = _mm256_unpacklo_ps(r0, r1), b = _mm256_unpackhi_ps(r0, r1);
    __m256 c = _mm256_unpacklo_ps(r2, r3), d = _mm256_unpackhi_ps(r2, r3);
    _mm256_storeu_ps(quads, _mm256_shuffle_ps(a, c, 0x44));
    _mm256_storeu_ps(
            quads + 8, _mm256_mul_ps(_mm256_shuffle_ps(a, c, 0xee), _mm256_set1_ps(0x1p-8F)));
    _mm256_storeu_ps(
            quads + 16, _mm256_mul_ps(_mm256_shuffle_ps(b, d, 0x44), _mm256_set1_ps(0x1p-16F)));
    _mm256_storeu_ps(
            quads + 24, _mm256_mul_ps(_mm256_shuffle_ps(b, d, 0xee), _mm256_set1_ps(0x1p-24F)));
    __m256 v = _mm256_add_ps(_mm256_add_ps(r0, r1), _mm256_add_ps(r2, r3));
    v = _mm256_hadd_ps(v, v);
    v = _mm256_hadd_ps(v, v);
    halves[0] = _mm256_cvtss_f32(v);
    halves[1] = _mm_cvtss_f32(_mm256_extractf128_ps(v, 1));
    *sum = halves[0] + halves[1];
}

// NOLINTNEXTLINE(readability-non-const-parameter): what it returns points into it
struct cpu_dot_x cpu_dot_prepare(const float *x, int64_t k, float *shared) {
    struct cpu_dot_x made = {
            .x = x, .quads = shared, .halves = shared + k, .sums = shared + k + k / 16};
    for (int64_t at = 0; at < k; at += 32) {
        prepare_block(x + at, made.quads + at, made.halves + at / 16, made.sums + at / 32);
    }
    return made;
}
