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
#include "dequant.h"
#include "quant.h"

#include <immintrin.h>
#include <string.h>

#define INLINE __attribute__((always_inline)) static inline

struct sum { // of one weight row
    __m256 products;
    __m256 common;
    __m128 common_one; // lane 0 only
};

INLINE __m256i load_32_bytes(const uint8_t *at) {
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

// The 16 bytes at qs as 32: low nibbles, then high ones; the upper four bits of each are to be
// masked away.
INLINE __m256i load_nibbles(const uint8_t *qs) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)qs);
    return _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
}

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

INLINE __m128 load_f16(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, sizeof(half));
    return _mm_cvtph_ps(_mm_cvtsi32_si128(half));
}

// Adds d * dot and zero * d * Σ x.
INLINE void add_block(struct sum *sum, __m256 dot, __m128 d, float zero_times_sum) {
    sum->products = _mm256_fmadd_ps(_mm256_broadcastss_ps(d), dot, sum->products);
    sum->common_one = _mm_fmadd_ss(d, _mm_set_ss(zero_times_sum), sum->common_one);
}

INLINE void block_q4_0(const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum) {
    __m256 dot = dot_bytes(load_nibbles(at + CPU_Q4_0_QS), 15, x->quads + k);
    add_block(sum, dot, load_f16(at + CPU_Q4_0_D), -8 * x->sums[k / 32]);
}

INLINE void block_q4_1(const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum) {
    int32_t both;
    memcpy(&both, at + CPU_Q4_1_D, sizeof(both));
    __m128 d = _mm_cvtph_ps(_mm_cvtsi32_si128(both)); // d, m
    __m256 dot = dot_bytes(load_nibbles(at + CPU_Q4_1_QS), 15, x->quads + k);
    sum->products = _mm256_fmadd_ps(_mm256_broadcastss_ps(d), dot, sum->products);
    sum->common_one =
            _mm_fmadd_ss(_mm_movehdup_ps(d), _mm_load_ss(x->sums + k / 32), sum->common_one);
}

INLINE void block_q5_0(const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum) {
    int32_t high;
    memcpy(&high, at + CPU_Q5_0_QH, sizeof(high));
    // byte i of `spread` is the byte of qh that holds bit i; `bit` picks it out
    const __m256i spread =
            _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201U);
    __m256i bits = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(high), spread), bit);
    __m256i fifth = _mm256_and_si256(_mm256_cmpeq_epi8(bits, bit), _mm256_set1_epi8(16));
    __m256i nibbles = _mm256_and_si256(load_nibbles(at + CPU_Q5_0_QS), _mm256_set1_epi8(15));
    __m256 dot = dot_bytes(_mm256_or_si256(nibbles, fifth), 31, x->quads + k);
    add_block(sum, dot, load_f16(at + CPU_Q5_0_D), -16 * x->sums[k / 32]);
}

INLINE void block_q8_0(const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum) {
    __m256 dot = _mm256_setzero_ps();
    for (int c = 0; c < 4; c++) {
        __m128i eight = _mm_loadl_epi64((const __m128i *)(const void *)(at + CPU_Q8_0_QS + 8 * c));
        __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
        __m256 in = _mm256_loadu_ps(x->x + k + 8 * c);
        dot = c == 0 ? _mm256_mul_ps(value, in) : _mm256_fmadd_ps(value, in, dot);
    }
    __m128 d = load_f16(at + CPU_Q8_0_D);
    sum->products = _mm256_fmadd_ps(_mm256_broadcastss_ps(d), dot, sum->products);
}

// Scales and minimums of q4_K and q5_K as f32, times the block's factors.
INLINE __m256 group_factors(const uint8_t *at, float factor[8]) {
    uint32_t word[3];
    memcpy(word, at + CPU_QK_SCALES, sizeof(word));
    uint32_t scale[2] = {
            word[0] & 0x3f3f3f3f, (word[2] & 0x0f0f0f0f) | (word[0] >> 2 & 0x30303030)};
    uint32_t min[2] = {
            word[1] & 0x3f3f3f3f, (word[2] >> 4 & 0x0f0f0f0f) | (word[1] >> 2 & 0x30303030)};
    __m128i scales = _mm_loadl_epi64((const __m128i *)(const void *)scale);
    __m128i mins = _mm_loadl_epi64((const __m128i *)(const void *)min);
    __m256 d = _mm256_broadcastss_ps(load_f16(at + CPU_QK_D));
    __m256 dmin = _mm256_broadcastss_ps(load_f16(at + CPU_QK_DMIN));
    _mm256_storeu_ps(factor, _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(scales))));
    return _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(mins)));
}

// q4_K, and q5_K where `fifth` is 1.
INLINE void block_qk(
        int fifth, const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum) {
    float factor[8];
    __m256 offsets = group_factors(at, factor);
    sum->common = _mm256_fnmadd_ps(offsets, _mm256_loadu_ps(x->sums + k / 32), sum->common);
    const uint8_t *qs = at + (fifth ? CPU_Q5_K_QS : CPU_Q4_K_QS);
    __m256i high = load_32_bytes(at + CPU_Q5_K_QH);
    for (int group = 0; group < 8; group++) {
        __m256i bytes = load_32_bytes(qs + 32 * (group / 2));
        bytes = group % 2 ? _mm256_srli_epi16(bytes, 4) : bytes;
        if (fifth) {
            __m256i moved = group < 4 ? _mm256_slli_epi16(high, 4 - group)
                                      : _mm256_srli_epi16(high, group - 4);
            bytes = _mm256_or_si256(_mm256_and_si256(bytes, _mm256_set1_epi8(15)),
                    _mm256_and_si256(moved, _mm256_set1_epi8(16)));
        }
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
    __m256 d = _mm256_broadcastss_ps(load_f16(at + CPU_Q6_K_D));
    for (int i = 0; i < 2; i++) {
        __m128i eight =
                _mm_loadl_epi64((const __m128i *)(const void *)(at + CPU_Q6_K_SCALES + 8 * i));
        __m256 scales = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)));
        _mm256_storeu_ps(factor + 8 * i, scales);
        __m256 zero =
                _mm256_mul_ps(_mm256_loadu_ps(x->halves + k / 16 + 8 * i), _mm256_set1_ps(-32));
        sum->common = _mm256_fmadd_ps(scales, zero, sum->common);
    }
    for (int part = 0; part < 8; part++) { // of 32 values; 4 a half
        __m256i low = load_32_bytes(at + CPU_Q6_K_QL + 64 * (part / 4) + 32 * (part % 2));
        __m256i high = load_32_bytes(at + CPU_Q6_K_QH + 32 * (part / 4));
        low = part % 4 < 2 ? low : _mm256_srli_epi16(low, 4);
        high = part % 4 < 2 ? _mm256_slli_epi16(high, 4 - 2 * (part % 4))
                            : _mm256_srli_epi16(high, 2 * (part % 4) - 4);
        __m256i bytes = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi8(15)),
                _mm256_and_si256(high, _mm256_set1_epi8(48)));
        __m256 scale = _mm256_set_m128(
                _mm_broadcast_ss(&factor[2 * part + 1]), _mm_broadcast_ss(&factor[2 * part]));
        __m256 dot = dot_bytes(bytes, 63, x->quads + k + 32 * part);
        sum->products = _mm256_fmadd_ps(scale, dot, sum->products);
    }
}

INLINE float add_lanes(__m256 v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

typedef void (*block_fn)(const uint8_t *at, const struct cpu_dot_x *x, int64_t k, struct sum *sum);

// Which type it is, is a constant in each caller. One row at a time: several side by side share the
// loads of x, but were slower, by a quarter for q4_K.
INLINE float dot_row(block_fn add, int elems, int bytes, const uint8_t *row,
        const struct cpu_dot_x *x, int64_t k) {
    struct sum sum = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm_setzero_ps()};
    for (int64_t at = 0; at < k; at += elems, row += bytes) {
        add(row, x, at, &sum);
    }
    return add_lanes(sum.products) + (add_lanes(sum.common) + _mm_cvtss_f32(sum.common_one));
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
