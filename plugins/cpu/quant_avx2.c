// quant_avx2: the weight types with AVX2, FMA and F16C. Layouts are drawn in quant.h.
//
// Each walk_<type> goes through one block, 8 values at a time, and hands them to emit(), which
// either stores them or multiplies them with x into one of four accumulators. Which of the two is a
// constant in each caller, so a row is expanded and multiplied by the same code, and decode
// dequantizes in registers. Inlining is what makes that free.
#include "quant_avx2.h"

#include "kiln/plugin.h"
#include "quant.h"

#include <immintrin.h>
#include <stddef.h>
#include <string.h>

#define INLINE __attribute__((always_inline)) static inline

struct sink {
    int store;      // 1: to out; 0: to acc
    const float *x; // of the block's first value
    float *out;
    __m256 acc[4];
};

// v holds values at .. at + 7 of a block (at: a multiple of 8).
INLINE void emit(__m256 v, int at, struct sink *sink) {
    if (sink->store) {
        _mm256_storeu_ps(sink->out + at, v);
    } else {
        __m256 *acc = &sink->acc[at / 8 % 4];
        *acc = _mm256_fmadd_ps(v, _mm256_loadu_ps(sink->x + at), *acc);
    }
}

INLINE float load_f16(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, sizeof(half));
    return _cvtsh_ss(half);
}

INLINE __m256i load_32_bytes(const uint8_t *at) {
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

INLINE __m256i mask_bytes(__m256i bytes, char mask) {
    return _mm256_and_si256(bytes, _mm256_set1_epi8(mask));
}

// The 16 bytes at qs as 32 nibbles: the low ones, then the high ones.
INLINE __m256i load_nibbles(const uint8_t *qs) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)qs);
    return mask_bytes(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes), 15);
}

// 32 signed bytes: quant * scale - offset, with one scale for each 16. Bits are put together in
// bytes, 32 values at a time; from here on it is 8.
INLINE void emit_bytes(
        __m256i quant, __m256 scale0, __m256 scale1, __m256 offset, int at, struct sink *sink) {
    __m128i half[2] = {_mm256_castsi256_si128(quant), _mm256_extracti128_si256(quant, 1)};
    for (int i = 0; i < 2; i++) {
        __m256 scale = i == 0 ? scale0 : scale1;
        __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(half[i]));
        __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(half[i], 8)));
        emit(_mm256_fmsub_ps(low, scale, offset), at + 16 * i, sink);
        emit(_mm256_fmsub_ps(high, scale, offset), at + 16 * i + 8, sink);
    }
}

// 8 bytes as 16 nibbles: the low ones are the values from at, the high ones from high_at;
// each quant * scale - offset.
INLINE void emit_nibbles(const uint8_t *bytes, const __m256 scale[2], const __m256 offset[2],
        int at, int high_at, struct sink *sink) {
    __m128i eight = _mm_loadl_epi64((const __m128i *)(const void *)bytes);
    __m256i both = _mm256_cvtepu8_epi32(eight);
    __m256i low = _mm256_and_si256(both, _mm256_set1_epi32(15));
    __m256i high = _mm256_srli_epi32(both, 4);
    emit(_mm256_fmsub_ps(_mm256_cvtepi32_ps(low), scale[0], offset[0]), at, sink);
    emit(_mm256_fmsub_ps(_mm256_cvtepi32_ps(high), scale[1], offset[1]), high_at, sink);
}

INLINE void walk_q4_0(const uint8_t *block, struct sink *sink) {
    float d = load_f16(block + CPU_Q4_0_D);
    const __m256 scale[2] = {_mm256_set1_ps(d), _mm256_set1_ps(d)};
    const __m256 offset[2] = {_mm256_set1_ps(8 * d), _mm256_set1_ps(8 * d)};
    for (int c = 0; c < 2; c++) {
        emit_nibbles(block + CPU_Q4_0_QS + 8 * c, scale, offset, 8 * c, 16 + 8 * c, sink);
    }
}

INLINE void walk_q4_1(const uint8_t *block, struct sink *sink) {
    float d = load_f16(block + CPU_Q4_1_D);
    float m = load_f16(block + CPU_Q4_1_M);
    const __m256 scale[2] = {_mm256_set1_ps(d), _mm256_set1_ps(d)};
    const __m256 offset[2] = {_mm256_set1_ps(-m), _mm256_set1_ps(-m)};
    for (int c = 0; c < 2; c++) {
        emit_nibbles(block + CPU_Q4_1_QS + 8 * c, scale, offset, 8 * c, 16 + 8 * c, sink);
    }
}

INLINE void walk_q5_0(const uint8_t *block, struct sink *sink) {
    __m256 scale = _mm256_set1_ps(load_f16(block + CPU_Q5_0_D));
    int32_t high;
    memcpy(&high, block + CPU_Q5_0_QH, sizeof(high));
    // byte i of `spread` is the byte of qh that holds bit i; `bit` picks it out
    const __m256i spread =
            _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201U);
    __m256i bits = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(high), spread), bit);
    __m256i fifth = mask_bytes(_mm256_cmpeq_epi8(bits, bit), 16);
    __m256i quant = _mm256_or_si256(load_nibbles(block + CPU_Q5_0_QS), fifth);
    quant = _mm256_sub_epi8(quant, _mm256_set1_epi8(16));
    emit_bytes(quant, scale, scale, _mm256_setzero_ps(), 0, sink);
}

INLINE void walk_q8_0(const uint8_t *block, struct sink *sink) {
    __m256 scale = _mm256_set1_ps(load_f16(block + CPU_Q8_0_D));
    emit_bytes(load_32_bytes(block + CPU_Q8_0_QS), scale, scale, _mm256_setzero_ps(), 0, sink);
}

// Bit `group` of each byte, moved to bit 4.
INLINE __m256i fifth_bit(__m256i high, int group) {
    __m256i moved =
            group < 4 ? _mm256_slli_epi16(high, 4 - group) : _mm256_srli_epi16(high, group - 4);
    return mask_bytes(moved, 16);
}

// The 6-bit scale and minimum of a group; `group` is a constant once the loop is unrolled.
INLINE void scale_min(const uint8_t *scales, int group, int *scale, int *min) {
    if (group < 4) {
        *scale = scales[group] & 63;
        *min = scales[group + 4] & 63;
    } else {
        *scale = (scales[group + 4] & 15) | (scales[group - 4] >> 6) << 4;
        *min = scales[group + 4] >> 4 | (scales[group] >> 6) << 4;
    }
}

// Scale and minimum of a group, times the block's factors, in all lanes.
INLINE void group_factors(
        const uint8_t *block, float d, float dmin, int group, __m256 *factor, __m256 *offset) {
    int scale;
    int min;
    scale_min(block + CPU_QK_SCALES, group, &scale, &min);
    *factor = _mm256_set1_ps(d * (float)scale);
    *offset = _mm256_set1_ps(dmin * (float)min);
}

INLINE void walk_q4_K(const uint8_t *block, struct sink *sink) {
    float d = load_f16(block + CPU_QK_D);
    float dmin = load_f16(block + CPU_QK_DMIN);
    for (int pair = 0; pair < 4; pair++) {
        __m256 factor[2];
        __m256 offset[2];
        group_factors(block, d, dmin, 2 * pair, &factor[0], &offset[0]);
        group_factors(block, d, dmin, 2 * pair + 1, &factor[1], &offset[1]);
        for (int c = 0; c < 4; c++) {
            emit_nibbles(block + CPU_Q4_K_QS + 32 * pair + 8 * c, factor, offset, 64 * pair + 8 * c,
                    64 * pair + 32 + 8 * c, sink);
        }
    }
}

INLINE void walk_q5_K(const uint8_t *block, struct sink *sink) {
    float d = load_f16(block + CPU_QK_D);
    float dmin = load_f16(block + CPU_QK_DMIN);
    __m256i high = load_32_bytes(block + CPU_Q5_K_QH);
    for (int group = 0; group < 8; group++) {
        __m256 factor;
        __m256 offset;
        group_factors(block, d, dmin, group, &factor, &offset);
        __m256i bytes = load_32_bytes(block + CPU_Q5_K_QS + 32 * (group / 2));
        __m256i quant = mask_bytes(group % 2 ? _mm256_srli_epi16(bytes, 4) : bytes, 15);
        quant = _mm256_or_si256(quant, fifth_bit(high, group));
        emit_bytes(quant, factor, factor, offset, 32 * group, sink);
    }
}

// Bits 2 part and 2 part + 1 of each byte, moved to bits 4 and 5.
INLINE __m256i upper_bits(__m256i high, int part) {
    __m256i moved = part < 2 ? _mm256_slli_epi16(high, 4 - 2 * part)
                             : _mm256_srli_epi16(high, 2 * part - 4);
    return mask_bytes(moved, 48);
}

INLINE void walk_q6_K(const uint8_t *block, struct sink *sink) {
    float d = load_f16(block + CPU_Q6_K_D);
    for (int part = 0; part < 8; part++) { // of 32 values; 4 a half
        const uint8_t *scales = block + CPU_Q6_K_SCALES + 2 * part;
        __m256i low = load_32_bytes(block + CPU_Q6_K_QL + 64 * (part / 4) + 32 * (part % 2));
        __m256i high = load_32_bytes(block + CPU_Q6_K_QH + 32 * (part / 4));
        low = mask_bytes(part % 4 < 2 ? low : _mm256_srli_epi16(low, 4), 15);
        __m256i quant = _mm256_or_si256(low, upper_bits(high, part % 4));
        quant = _mm256_sub_epi8(quant, _mm256_set1_epi8(32));
        emit_bytes(quant, _mm256_set1_ps(d * (float)(int8_t)scales[0]),
                _mm256_set1_ps(d * (float)(int8_t)scales[1]), _mm256_setzero_ps(), 32 * part, sink);
    }
}

// The plain types in blocks of 32 values, the rest of a row as a copy filled up with zeros.
INLINE void walk_f32(const uint8_t *block, struct sink *sink) {
    for (int c = 0; c < 4; c++) {
        emit(_mm256_loadu_ps((const float *)(const void *)(block + 32 * c)), 8 * c, sink);
    }
}

INLINE void walk_f16(const uint8_t *block, struct sink *sink) {
    for (int c = 0; c < 4; c++) {
        __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(block + 16 * c));
        emit(_mm256_cvtph_ps(halves), 8 * c, sink);
    }
}

INLINE void walk_bf16(const uint8_t *block, struct sink *sink) {
    for (int c = 0; c < 4; c++) {
        __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(block + 16 * c));
        __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
        emit(_mm256_castsi256_ps(bits), 8 * c, sink);
    }
}

INLINE float add_lanes(__m256 acc[4]) {
    __m256 sum = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

typedef void (*walk_fn)(const uint8_t *block, struct sink *sink);

INLINE void dequant_row(
        walk_fn walk, int elems, int bytes, const uint8_t *row, float *out, int64_t k) {
    struct sink sink = {.store = 1};
    int64_t at = 0;
    for (; at + elems <= k; at += elems, row += bytes) {
        sink.out = out + at;
        walk(row, &sink);
    }
    if (bytes % elems == 0 && at < k) { // block types have no rest
        uint8_t rest[128] = {0};
        float values[32];
        memcpy(rest, row, (size_t)(k - at) * (size_t)(bytes / elems));
        sink.out = values;
        walk(rest, &sink);
        memcpy(out + at, values, (size_t)(k - at) * sizeof(float));
    }
}

INLINE float dot_row(
        walk_fn walk, int elems, int bytes, const uint8_t *row, const float *x, int64_t k) {
    struct sink sink = {.store = 0};
    for (int i = 0; i < 4; i++) {
        sink.acc[i] = _mm256_setzero_ps();
    }
    int64_t at = 0;
    for (; at + elems <= k; at += elems, row += bytes) {
        sink.x = x + at;
        walk(row, &sink);
    }
    if (bytes % elems == 0 && at < k) {
        uint8_t rest[128] = {0};
        float values[32] = {0};
        memcpy(rest, row, (size_t)(k - at) * (size_t)(bytes / elems));
        memcpy(values, x + at, (size_t)(k - at) * sizeof(float));
        sink.x = values;
        walk(rest, &sink);
    }
    return add_lanes(sink.acc);
}

// One pair of functions a type, so that each walk is inlined.
#define DEFINE_ROWS(type, elems, bytes) \
    static void dequant_##type(const uint8_t *row, float *out, int64_t k) { \
        dequant_row(walk_##type, elems, bytes, row, out, k); \
    } \
    static float dot_##type(const uint8_t *row, const float *x, int64_t k) { \
        return dot_row(walk_##type, elems, bytes, row, x, k); \
    }

DEFINE_ROWS(f32, 32, 128)
DEFINE_ROWS(f16, 32, 64)
DEFINE_ROWS(bf16, 32, 64)
DEFINE_ROWS(q4_0, 32, CPU_Q4_0_BYTES)
DEFINE_ROWS(q4_1, 32, CPU_Q4_1_BYTES)
DEFINE_ROWS(q5_0, 32, CPU_Q5_0_BYTES)
DEFINE_ROWS(q8_0, 32, CPU_Q8_0_BYTES)
DEFINE_ROWS(q4_K, 256, CPU_Q4_K_BYTES)
DEFINE_ROWS(q5_K, 256, CPU_Q5_K_BYTES)
DEFINE_ROWS(q6_K, 256, CPU_Q6_K_BYTES)

static const struct cpu_quant_avx2 quants[] = {
        {KILN_DTYPE_F32, dequant_f32, dot_f32},
        {KILN_DTYPE_F16, dequant_f16, dot_f16},
        {KILN_DTYPE_BF16, dequant_bf16, dot_bf16},
        {KILN_DTYPE_Q4_0, dequant_q4_0, dot_q4_0},
        {KILN_DTYPE_Q4_1, dequant_q4_1, dot_q4_1},
        {KILN_DTYPE_Q5_0, dequant_q5_0, dot_q5_0},
        {KILN_DTYPE_Q8_0, dequant_q8_0, dot_q8_0},
        {KILN_DTYPE_Q4_K, dequant_q4_K, dot_q4_K},
        {KILN_DTYPE_Q5_K, dequant_q5_K, dot_q5_K},
        {KILN_DTYPE_Q6_K, dequant_q6_K, dot_q6_K},
};

const struct cpu_quant_avx2 *cpu_quant_avx2_find(uint32_t dtype) {
    for (size_t i = 0; i < sizeof(quants) / sizeof(quants[0]); i++) {
        if (quants[i].dtype == dtype) {
            return &quants[i];
        }
    }
    return NULL;
}
