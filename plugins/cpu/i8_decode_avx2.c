// i8_decode_avx2: the decode matmul of the variant `q8` (i8.h): integer dot products straight from
// the weight blocks.
//
// Sum order: a block's products in 8 lanes of integers, each lane times a * scale onto the row's
// lanes by fused multiply-adds; the lanes in pairs at the end; then the row's sum of common parts.
#include "i8.h"

#include "args.h"
#include "blocks_avx2.h"
#include "dequant.h"
#include "q8.h"

enum {
    AHEAD = 2048, // bytes of weights that are asked for before they are needed
};

struct row {             // of activations
    const int8_t *q;     // (k)
    const float *scales; // (k / 32)
    const float *sums;   // (k / 32) scale * Σ q
    const float *halves; // (k / 16) the same of 16 columns
};

struct sum { // of one weight row
    __m256 products;
    __m256 common;
    __m128 common_one; // lane 0 only
};

uint32_t cpu_matmul_i8_decode_scratch(int64_t k) {
    return (uint32_t)(k + (k / 32 * 2 + k / 16) * (int64_t)sizeof(float) + 64);
}

static struct row prepare(const struct cpu_q8_block *x, int64_t k, float *shared) {
    int64_t blocks = k / 32;
    float *scales = shared, *sums = scales + blocks, *halves = sums + blocks;
    int8_t *q = (int8_t *)(void *)(halves + 2 * blocks);
    const __m256i ones = _mm256_set1_epi8(1);
    for (int64_t i = 0; i < blocks; i++) {
        __m256i bytes = cpu_load_32_bytes(x[i].q);
        _mm256_storeu_si256((__m256i *)(void *)(q + 32 * i), bytes);
        __m256i four = _mm256_madd_epi16(_mm256_maddubs_epi16(ones, bytes), _mm256_set1_epi16(1));
        __m128i low = _mm256_castsi256_si128(four);
        low = _mm_add_epi32(low, _mm_unpackhi_epi64(low, low));
        int half = _mm_cvtsi128_si32(_mm_add_epi32(low, _mm_shuffle_epi32(low, 1)));
        scales[i] = x[i].scale;
        sums[i] = x[i].scale * (float)x[i].sum;
        halves[2 * i] = x[i].scale * (float)half;
        halves[2 * i + 1] = x[i].scale * (float)(x[i].sum - half);
    }
    return (struct row){.q = q, .scales = scales, .sums = sums, .halves = halves};
}

// Σ u q of 32 columns in 8 lanes. u at most 127: no pair of products leaves 16 bits.
CPU_INLINE __m256 dot_32(__m256i u, const int8_t *q) {
    __m256i pairs = _mm256_maddubs_epi16(u, cpu_load_32_bytes(q));
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// Adds d * dot, and zero * d for each q.
CPU_INLINE void add_block(
        struct sum *sum, const struct row *x, int64_t block, __m256 dot, __m128 d, float zero) {
    __m128 a = _mm_mul_ss(d, _mm_load_ss(x->scales + block));
    sum->products = _mm256_fmadd_ps(_mm256_broadcastss_ps(a), dot, sum->products);
    sum->common_one = _mm_fmadd_ss(d, _mm_set_ss(zero * x->sums[block]), sum->common_one);
}

CPU_INLINE void block_q4_0(const uint8_t *at, const struct row *x, int64_t k, struct sum *sum) {
    __m256i u = _mm256_and_si256(cpu_load_nibbles(at + CPU_Q4_0_QS), _mm256_set1_epi8(15));
    add_block(sum, x, k / 32, dot_32(u, x->q + k), cpu_load_f16(at + CPU_Q4_0_D), -8);
}

CPU_INLINE void block_q4_1(const uint8_t *at, const struct row *x, int64_t k, struct sum *sum) {
    int32_t both;
    memcpy(&both, at + CPU_Q4_1_D, sizeof(both));
    __m128 d = _mm_cvtph_ps(_mm_cvtsi32_si128(both)); // d, m
    __m256i u = _mm256_and_si256(cpu_load_nibbles(at + CPU_Q4_1_QS), _mm256_set1_epi8(15));
    __m128 a = _mm_mul_ss(d, _mm_load_ss(x->scales + k / 32));
    sum->products = _mm256_fmadd_ps(_mm256_broadcastss_ps(a), dot_32(u, x->q + k), sum->products);
    sum->common_one =
            _mm_fmadd_ss(_mm_movehdup_ps(d), _mm_load_ss(x->sums + k / 32), sum->common_one);
}

CPU_INLINE void block_q5_0(const uint8_t *at, const struct row *x, int64_t k, struct sum *sum) {
    __m256 dot = dot_32(cpu_bytes_q5_0(at), x->q + k);
    add_block(sum, x, k / 32, dot, cpu_load_f16(at + CPU_Q5_0_D), -16);
}

// Signed weights: the sign goes to q, which has no -128. |w| is at most 128.
CPU_INLINE void block_q8_0(const uint8_t *at, const struct row *x, int64_t k, struct sum *sum) {
    __m256i w = cpu_load_32_bytes(at + CPU_Q8_0_QS);
    __m256i q = _mm256_sign_epi8(cpu_load_32_bytes(x->q + k), w);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), q);
    __m256 dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    __m128 a = _mm_mul_ss(cpu_load_f16(at + CPU_Q8_0_D), _mm_load_ss(x->scales + k / 32));
    sum->products = _mm256_fmadd_ps(_mm256_broadcastss_ps(a), dot, sum->products);
}

// q4_K, and q5_K where `fifth` is 1.
CPU_INLINE void block_qk(
        int fifth, const uint8_t *at, const struct row *x, int64_t k, struct sum *sum) {
    __m256 scaled;
    float factor[8];
    __m256 mins = cpu_factors_qk(at, &scaled);
    _mm256_storeu_ps(factor, _mm256_mul_ps(scaled, _mm256_loadu_ps(x->scales + k / 32)));
    sum->common = _mm256_fnmadd_ps(mins, _mm256_loadu_ps(x->sums + k / 32), sum->common);
    for (int group = 0; group < 8; group++) {
        __m256i u = fifth ? cpu_bytes_q5_K(at, group)
                          : _mm256_and_si256(cpu_bytes_q4_K(at, group), _mm256_set1_epi8(15));
        __m256 dot = dot_32(u, x->q + k + 32 * group);
        sum->products = _mm256_fmadd_ps(_mm256_broadcast_ss(&factor[group]), dot, sum->products);
    }
}

CPU_INLINE void block_q4_K(const uint8_t *at, const struct row *x, int64_t k, struct sum *sum) {
    block_qk(0, at, x, k, sum);
}

CPU_INLINE void block_q5_K(const uint8_t *at, const struct row *x, int64_t k, struct sum *sum) {
    block_qk(1, at, x, k, sum);
}

CPU_INLINE void block_q6_K(const uint8_t *at, const struct row *x, int64_t k, struct sum *sum) {
    float factor[16];
    for (int i = 0; i < 2; i++) {
        __m256 scales = cpu_factors_q6_K(at, i);
        // each scale of the activations twice, for the two halves of their blocks
        __m128 four = _mm_loadu_ps(x->scales + k / 32 + 4 * i);
        __m256 twice = _mm256_set_m128(_mm_unpackhi_ps(four, four), _mm_unpacklo_ps(four, four));
        _mm256_storeu_ps(factor + 8 * i, _mm256_mul_ps(scales, twice));
        __m256 zero =
                _mm256_mul_ps(_mm256_loadu_ps(x->halves + k / 16 + 8 * i), _mm256_set1_ps(-32));
        sum->common = _mm256_fmadd_ps(scales, zero, sum->common);
    }
    for (int part = 0; part < 8; part++) {
        __m256 scale = _mm256_set_m128(
                _mm_broadcast_ss(&factor[2 * part + 1]), _mm_broadcast_ss(&factor[2 * part]));
        __m256 dot = dot_32(cpu_bytes_q6_K(at, part), x->q + k + 32 * part);
        sum->products = _mm256_fmadd_ps(scale, dot, sum->products);
    }
}

typedef void (*block_fn)(const uint8_t *at, const struct row *x, int64_t k, struct sum *sum);

// Which type it is, is a constant in each caller. Two sums a row, so that a block need not wait for
// the one before.
CPU_INLINE void dot_rows(block_fn add, int elems, int bytes, const struct cpu_matmul *params,
        const uint8_t *weight, int n, const struct row *x, float *sums) {
    for (int i = 0; i < n; i++) {
        const uint8_t *at = weight + i * params->weight_stride;
        struct sum sum[2] = {{_mm256_setzero_ps(), _mm256_setzero_ps(), _mm_setzero_ps()},
                {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm_setzero_ps()}};
        int64_t k = 0;
        for (; k + 2 * elems <= params->k; k += 2 * elems, at += 2 * (ptrdiff_t)bytes) {
            for (int line = 0; line < 2 * bytes; line += 64) {
                _mm_prefetch((const char *)at + AHEAD + line, _MM_HINT_T0);
            }
            add(at, x, k, &sum[0]);
            add(at + bytes, x, k + elems, &sum[1]);
        }
        if (k < params->k) {
            add(at, x, k, &sum[0]);
        }
        __m256 products = _mm256_add_ps(sum[0].products, sum[1].products);
        __m256 common = _mm256_add_ps(sum[0].common, sum[1].common);
        __m128 one = _mm_add_ss(sum[0].common_one, sum[1].common_one);
        sums[i] = cpu_add_lanes(products) + (cpu_add_lanes(common) + _mm_cvtss_f32(one));
    }
}

static void dot_all(const struct cpu_matmul *params, const uint8_t *weight, int n,
        const struct row *x, float *sums) {
    switch (params->dtype) {
    case KILN_DTYPE_Q4_0:
        dot_rows(block_q4_0, 32, CPU_Q4_0_BYTES, params, weight, n, x, sums);
        break;
    case KILN_DTYPE_Q4_1:
        dot_rows(block_q4_1, 32, CPU_Q4_1_BYTES, params, weight, n, x, sums);
        break;
    case KILN_DTYPE_Q5_0:
        dot_rows(block_q5_0, 32, CPU_Q5_0_BYTES, params, weight, n, x, sums);
        break;
    case KILN_DTYPE_Q8_0:
        dot_rows(block_q8_0, 32, CPU_Q8_0_BYTES, params, weight, n, x, sums);
        break;
    case KILN_DTYPE_Q4_K:
        dot_rows(block_q4_K, 256, CPU_Q4_K_BYTES, params, weight, n, x, sums);
        break;
    case KILN_DTYPE_Q5_K:
        dot_rows(block_q5_K, 256, CPU_Q5_K_BYTES, params, weight, n, x, sums);
        break;
    default:
        dot_rows(block_q6_K, 256, CPU_Q6_K_BYTES, params, weight, n, x, sums);
        break;
    }
}

// Grid: x blocks of block_rows weight rows; all activation rows in use.
void cpu_matmul_i8_decode_avx2(const struct kiln_block *block, void *const *args) {
    const struct cpu_matmul *params = args[0];
    int64_t rows = cpu_rows(args, params->n_tokens, params->s);
    int64_t n0 = (int64_t)block->index[0] * params->block_rows;
    int n = params->n - n0 > params->block_rows ? params->block_rows : (int)(params->n - n0);
    const uint8_t *weight = (const uint8_t *)args[params->weight] + n0 * params->weight_stride;
    float sums[CPU_DECODE_ROWS];
    for (int64_t s = 0; s < rows; s++) {
        const char *in = (const char *)args[params->in] + s * params->in_stride;
        struct row x =
                prepare((const struct cpu_q8_block *)(const void *)in, params->k, block->shared);
        dot_all(params, weight, n, &x, sums);
        cpu_matmul_finish_avx2(params, args, sums, s, n0, n);
    }
}
