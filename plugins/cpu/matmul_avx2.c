// matmul_avx2: matmul with AVX2 and FMA.
//
// Prefill: a block owns 64 weight rows × block_rows activation rows of OUT. For each 256 columns it
// expands its weight rows into four packed panels of 16 (64 KB: they stay in the second-level
// cache), then runs a register tile of 6 activation rows × 16 weight rows over them. Sums gather in
// scratch, and are finished with bias and residual. Sum order: fused multiply-adds over 128
// columns, such sums added one after the other. Decode: dot_avx2.c for types in blocks; a row of
// another type is converted in registers straight into its dot product.
#include "args.h"

#include "dot_avx2.h"
#include "gemm_avx2.h"
#include "quant_avx2.h"

#include <immintrin.h>
#include <string.h>

void cpu_matmul_finish_avx2(const struct cpu_matmul *params, void *const *args, const float *sums,
        int64_t row, int64_t n0, int n) {
    float *out = (float *)(void *)((char *)args[params->out] + row * params->out_stride) + n0;
    const float *bias = cpu_arg(args, params->bias);
    const char *residual = cpu_arg(args, params->residual);
    const float *add =
            residual != NULL
                    ? (const float *)(const void *)(residual + row * params->residual_stride) + n0
                    : NULL;
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 value = _mm256_loadu_ps(sums + i);
        if (bias != NULL) {
            value = _mm256_add_ps(value, _mm256_loadu_ps(bias + n0 + i));
        }
        if (add != NULL) {
            value = _mm256_add_ps(value, _mm256_loadu_ps(add + i));
        }
        _mm256_storeu_ps(out + i, value);
    }
    if (i < n) {
        cpu_matmul_finish(params, args, sums + i, row, n0 + i, n - i);
    }
}

struct scratch {
    float *expanded; // (CPU_PANEL, CPU_BLOCK_K)
    float *packed;   // (CPU_BLOCK_N / CPU_PANEL, CPU_BLOCK_K, CPU_PANEL)
    float *in;       // (CPU_TILE_ROWS, CPU_BLOCK_K)
    float *sums;     // (block_rows, CPU_BLOCK_N)
};

static struct scratch divide(float *shared) {
    struct scratch scratch;
    scratch.packed = shared;
    scratch.expanded = scratch.packed + CPU_BLOCK_N * CPU_BLOCK_K;
    scratch.in = scratch.expanded + CPU_PANEL * CPU_BLOCK_K;
    scratch.sums = scratch.in + CPU_TILE_ROWS * CPU_BLOCK_K;
    return scratch;
}

// Columns k0 .. k0 + k of the weight rows n0 .. n0 + n, into packed panels.
static void pack_weights(const struct cpu_matmul *params, const uint8_t *weight, int64_t n0, int n,
        int64_t k0, int k, const struct scratch *scratch) {
    const struct cpu_quant *quant = cpu_quant_find(params->dtype);
    cpu_dequant_fn dequant = cpu_quant_avx2_find(params->dtype)->dequant;
    int padded = (k + 3) / 4 * 4;
    for (int panel = 0; panel < n; panel += CPU_PANEL) {
        int rows = n - panel < CPU_PANEL ? n - panel : CPU_PANEL;
        for (int i = 0; i < rows; i++) {
            float *expanded = scratch->expanded + i * CPU_BLOCK_K;
            dequant(weight + (n0 + panel + i) * params->weight_stride +
                            k0 / quant->elems * quant->bytes,
                    expanded, k);
            memset(expanded + k, 0, (size_t)(padded - k) * sizeof(float));
        }
        cpu_pack_avx2(scratch->expanded, CPU_BLOCK_K, rows, padded,
                scratch->packed + panel * CPU_BLOCK_K);
    }
}

// Adds the products of k columns to the sums of all rows.
static void multiply(const struct cpu_matmul *params, const char *in, int rows, int n, int k,
        const struct scratch *scratch, int add) {
    for (int s = 0; s < rows; s += CPU_TILE_ROWS) {
        int m = rows - s < CPU_TILE_ROWS ? rows - s : CPU_TILE_ROWS;
        // Rows of a power-of-two stride would fall into the same sets of the first-level cache.
        for (int i = 0; i < m; i++) {
            memcpy(scratch->in + i * CPU_BLOCK_K, in + (s + i) * params->in_stride,
                    (size_t)k * sizeof(float));
        }
        for (int panel = 0; panel < n; panel += CPU_PANEL) {
            const float *packed = scratch->packed + panel * CPU_BLOCK_K;
            float *sums = scratch->sums + s * CPU_BLOCK_N + panel;
            // Short chains, so that errors of one sign do not pile up.
            for (int j = 0; j < k; j += CPU_SUM_K) {
                cpu_tile_avx2(m, scratch->in + j, CPU_BLOCK_K, packed + j * CPU_PANEL, sums,
                        CPU_BLOCK_N, k - j < CPU_SUM_K ? k - j : CPU_SUM_K, add || j > 0);
            }
        }
    }
}

// Grid: x blocks of CPU_BLOCK_N weight rows, y blocks of block_rows activation rows.
void cpu_matmul_prefill_avx2(const struct kiln_block *block, void *const *args) {
    const struct cpu_matmul *params = args[0];
    struct scratch scratch = divide(block->shared);
    int64_t s0 = (int64_t)block->index[1] * params->block_rows;
    int64_t left = cpu_rows(args, params->n_tokens, params->s) - s0;
    if (left <= 0) {
        return;
    }
    int rows = left > params->block_rows ? params->block_rows : (int)left;
    int64_t n0 = (int64_t)block->index[0] * CPU_BLOCK_N;
    int n = params->n - n0 > CPU_BLOCK_N ? CPU_BLOCK_N : (int)(params->n - n0);
    const char *in = (const char *)args[params->in] + s0 * params->in_stride;
    for (int64_t k0 = 0; k0 < params->k; k0 += CPU_BLOCK_K) {
        int k = params->k - k0 > CPU_BLOCK_K ? CPU_BLOCK_K : (int)(params->k - k0);
        pack_weights(params, args[params->weight], n0, n, k0, k, &scratch);
        multiply(params, in + k0 * (int64_t)sizeof(float), rows, n, k, &scratch, k0 > 0);
    }
    for (int s = 0; s < rows; s++) {
        cpu_matmul_finish_avx2(params, args, scratch.sums + s * CPU_BLOCK_N, s0 + s, n0, n);
    }
}

static void dot_blocks(const struct cpu_dot_avx2 *type, const struct cpu_matmul *params,
        const float *in, const uint8_t *weight, int n, float *shared, float *sums) {
    struct cpu_dot_x x = cpu_dot_prepare(in, params->k, shared);
    for (int i = 0; i < n; i++) {
        sums[i] = type->dot(weight + i * params->weight_stride, &x, params->k);
    }
}

static void dot_plain(const struct cpu_matmul *params, const float *in, const uint8_t *weight,
        int n, float *sums) {
    float (*dot)(const uint8_t *, const float *, int64_t) = cpu_quant_avx2_find(params->dtype)->dot;
    for (int i = 0; i < n; i++) {
        sums[i] = dot(weight + i * params->weight_stride, in, params->k);
    }
}

// Grid: x blocks of block_rows weight rows; all activation rows in use.
void cpu_matmul_decode_avx2(const struct kiln_block *block, void *const *args) {
    const struct cpu_matmul *params = args[0];
    const struct cpu_dot_avx2 *type = cpu_dot_avx2_find(params->dtype);
    int64_t rows = cpu_rows(args, params->n_tokens, params->s);
    int64_t n0 = (int64_t)block->index[0] * params->block_rows;
    int n = params->n - n0 > params->block_rows ? params->block_rows : (int)(params->n - n0);
    float sums[CPU_DECODE_ROWS];
    const uint8_t *weight = (const uint8_t *)args[params->weight] + n0 * params->weight_stride;
    for (int64_t s = 0; s < rows; s++) {
        const char *at = (const char *)args[params->in] + s * params->in_stride;
        const float *in = (const float *)(const void *)at;
        if (type != NULL) {
            dot_blocks(type, params, in, weight, n, block->shared, sums);
        } else {
            dot_plain(params, in, weight, n, sums);
        }
        cpu_matmul_finish_avx2(params, args, sums, s, n0, n);
    }
}
