// q8_avx2: `exact_q8` with AVX2. The same bits as q8_generic: integers are exact in any order, and
// the f32 operations are those of q8.h, lane i being block i of a chunk.
#include "q8_kernels.h"

#include <immintrin.h>
#include <math.h>

#define INLINE __attribute__((always_inline)) static inline

INLINE __m256i load_32_bytes(const void *at) {
    return _mm256_loadu_si256((const __m256i *)at);
}

INLINE float largest_lane(__m256 v) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// 4 × 8 integers within -127 .. 127 -> 32 bytes in order.
INLINE __m256i pack_bytes(const __m256i v[4]) {
    __m256i low = _mm256_packs_epi32(v[0], v[1]);
    __m256i high = _mm256_packs_epi32(v[2], v[3]);
    return _mm256_permutevar8x32_epi32(
            _mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

INLINE int32_t add_lanes(__m256i v) {
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}

static void quantize_block(const float *x, struct cpu_q8_block *out) {
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256 most = _mm256_set1_ps(3.402823466e38F);
    __m256 value[4];
    __m256 largest = _mm256_setzero_ps();
    __m256 strange = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        value[i] = _mm256_loadu_ps(x + 8 * i);
        __m256 size = _mm256_and_ps(value[i], no_sign);
        strange = _mm256_or_ps(strange, _mm256_cmp_ps(size, most, _CMP_NLE_UQ));
        largest = _mm256_max_ps(largest, size);
    }
    float a = largest_lane(largest);
    if (_mm256_movemask_ps(strange) != 0 || a < 0x1p-100F) {
        memset(out, 0, sizeof(*out));
        out->scale = _mm256_movemask_ps(strange) != 0 ? NAN : 0;
        return;
    }
    __m256 inverse = _mm256_set1_ps(127.0F / a);
    __m256i q[4];
    for (int i = 0; i < 4; i++) {
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(value[i], inverse)); // to nearest, ties to even
    }
    out->scale = a / 127.0F;
    out->sum =
            add_lanes(_mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3])));
    _mm256_storeu_si256((__m256i *)(void *)out->q, pack_bytes(q));
}

void cpu_quantize_row_avx2(const float *x, struct cpu_q8_block *out, int64_t columns) {
    for (int64_t i = 0; i < columns; i += CPU_Q8_COLUMNS) {
        quantize_block(x + i, out++);
    }
}

// I of one block, spread over 8 lanes. |w| is at most 128, which fits an unsigned byte, and |q| at
// most 127, so that no pair of products leaves 16 bits.
INLINE __m256i products(const struct cpu_q8_weight *weight, const struct cpu_q8_block *x, int i) {
    __m256i w = load_32_bytes(weight->w + CPU_Q8_COLUMNS * i);
    __m256i q = load_32_bytes(x[i].q);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
    int32_t both;
    memcpy(&both, weight->s + (ptrdiff_t)2 * i, sizeof(both));
    __m128i scales = _mm_cvtsi32_si128(both);
    __m256i scale = _mm256_set_m128i(_mm_shuffle_epi32(_mm_shufflelo_epi16(scales, 0x55), 0),
            _mm_shuffle_epi32(_mm_shufflelo_epi16(scales, 0), 0));
    return _mm256_madd_epi16(pairs, scale);
}

// The sums of 8 vectors, in order.
INLINE __m256i add_each(const __m256i v[8]) {
    __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return _mm256_add_epi32(
            _mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

static float dot(const struct cpu_q8_weight *weight, const struct cpu_q8_block *x, int blocks) {
    __m256i product[CPU_Q8_BLOCKS];
    float scales[CPU_Q8_BLOCKS] = {0};
    int32_t sums[CPU_Q8_BLOCKS] = {0};
    for (int i = 0; i < CPU_Q8_BLOCKS; i++) {
        product[i] = i < blocks ? products(weight, x, i) : _mm256_setzero_si256();
        if (i < blocks) {
            scales[i] = x[i].scale;
            sums[i] = x[i].sum;
        }
    }
    __m256 scale = _mm256_loadu_ps(scales);
    __m256i minimum = _mm256_mullo_epi32(load_32_bytes(weight->m), load_32_bytes(sums));
    __m256 a = _mm256_mul_ps(_mm256_loadu_ps(weight->a), scale);
    __m256 b = _mm256_mul_ps(_mm256_loadu_ps(weight->b), scale);
    __m256 t = _mm256_add_ps(_mm256_mul_ps(a, _mm256_cvtepi32_ps(add_each(product))),
            _mm256_mul_ps(b, _mm256_cvtepi32_ps(minimum)));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Grid: x rows.
void cpu_quantize_avx2(const struct kiln_block *block, void *const *args) {
    const struct cpu_rowwise *params = args[0];
    int64_t row = block->index[0];
    if (row < cpu_rows(args, params->n_tokens, params->s)) {
        const char *in = (const char *)args[params->in] + row * params->in_stride;
        char *out = (char *)args[params->out] + row * params->out_stride;
        cpu_quantize_row_avx2((const float *)(const void *)in, (struct cpu_q8_block *)(void *)out,
                params->columns);
    }
}

void cpu_matmul_q8_prefill_avx2(const struct kiln_block *block, void *const *args) {
    q8_prefill(dot, block, args);
}

void cpu_matmul_q8_decode_avx2(const struct kiln_block *block, void *const *args) {
    q8_decode(dot, block, args);
}
