// matmul_generic: matmul in plain C. Not fast: it is what every processor has, and what the fast
// forms are tested against.
//
// Sum order: columns in blocks of 256; in a block 8 sums, sum j over the columns j, j + 8 …; the 8
// added in pairs; the blocks' sums added one after the other; then the bias, then the residual.
#include "args.h"

#include "dequant.h"

#include <stddef.h>

enum {
    LANES = 8
};

uint32_t cpu_matmul_scratch(int32_t block_rows) {
    // Expanded rows of a panel, the same packed, a tile of activation rows, the sums.
    size_t floats = CPU_PANEL * CPU_BLOCK_K + CPU_BLOCK_N * CPU_BLOCK_K +
                    CPU_TILE_ROWS * CPU_BLOCK_K + (size_t)block_rows * CPU_BLOCK_N;
    return (uint32_t)(floats * sizeof(float));
}

float cpu_dot_generic(const float *a, const float *b, int64_t k) {
    float lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= k; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] += a[i + j] * b[i + j];
        }
    }
    for (int j = 0; i < k; i++, j++) {
        lane[j] += a[i] * b[i];
    }
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

void cpu_matmul_finish(const struct cpu_matmul *params, void *const *args, const float *sums,
        int64_t row, int64_t n0, int64_t n) {
    float *out = (float *)(void *)((char *)args[params->out] + row * params->out_stride) + n0;
    const float *bias = cpu_arg(args, params->bias);
    const char *residual = cpu_arg(args, params->residual);
    for (int64_t i = 0; i < n; i++) {
        float value = sums[i];
        if (bias != NULL) {
            value += bias[n0 + i];
        }
        if (residual != NULL) {
            value += ((
                    const float *)(const void *)(residual + row * params->residual_stride))[n0 + i];
        }
        out[i] = value;
    }
}

// Grid: x blocks of CPU_BLOCK_N weight rows, y blocks of block_rows activation rows.
void cpu_matmul_prefill_generic(const struct kiln_block *block, void *const *args) {
    const struct cpu_matmul *params = args[0];
    const struct cpu_quant *quant = cpu_quant_find(params->dtype);
    int64_t s0 = (int64_t)block->index[1] * params->block_rows;
    int64_t rows = cpu_rows(args, params->n_tokens, params->s) - s0;
    rows = rows > params->block_rows ? params->block_rows : rows;
    int64_t n0 = (int64_t)block->index[0] * CPU_BLOCK_N;
    int64_t n = params->n - n0 > CPU_BLOCK_N ? CPU_BLOCK_N : params->n - n0;
    float *expanded = block->shared;                    // (CPU_BLOCK_N, CPU_BLOCK_K)
    float *sums = expanded + CPU_BLOCK_N * CPU_BLOCK_K; // (rows, CPU_BLOCK_N)
    for (int64_t k0 = 0; k0 < params->k && rows > 0; k0 += CPU_BLOCK_K) {
        int64_t k = params->k - k0 > CPU_BLOCK_K ? CPU_BLOCK_K : params->k - k0;
        for (int64_t i = 0; i < n; i++) {
            const uint8_t *row = (const uint8_t *)args[params->weight] +
                                 (n0 + i) * params->weight_stride +
                                 k0 / quant->elems * quant->bytes;
            quant->dequant(row, expanded + i * CPU_BLOCK_K, k);
        }
        for (int64_t s = 0; s < rows; s++) {
            const char *at = (const char *)args[params->in] + (s0 + s) * params->in_stride;
            const float *in = (const float *)(const void *)at + k0;
            for (int64_t i = 0; i < n; i++) {
                float sum = cpu_dot_generic(in, expanded + i * CPU_BLOCK_K, k);
                float *total = &sums[s * CPU_BLOCK_N + i];
                *total = k0 == 0 ? sum : *total + sum;
            }
        }
    }
    for (int64_t s = 0; s < rows; s++) {
        cpu_matmul_finish(params, args, sums + s * CPU_BLOCK_N, s0 + s, n0, n);
    }
}

// Grid: x blocks of block_rows weight rows. All activation rows in use, so weights are read once a
// row: decode has few of them.
void cpu_matmul_decode_generic(const struct kiln_block *block, void *const *args) {
    const struct cpu_matmul *params = args[0];
    const struct cpu_quant *quant = cpu_quant_find(params->dtype);
    int64_t rows = cpu_rows(args, params->n_tokens, params->s);
    int64_t n0 = (int64_t)block->index[0] * params->block_rows;
    int64_t end = n0 + params->block_rows > params->n ? params->n : n0 + params->block_rows;
    float *expanded = block->shared; // (CPU_BLOCK_K)
    for (int64_t s = 0; s < rows; s++) {
        const char *at = (const char *)args[params->in] + s * params->in_stride;
        const float *in = (const float *)(const void *)at;
        for (int64_t i = n0; i < end; i++) {
            const uint8_t *row = (const uint8_t *)args[params->weight] + i * params->weight_stride;
            float total = 0;
            for (int64_t k0 = 0; k0 < params->k; k0 += CPU_BLOCK_K) {
                int64_t k = params->k - k0 > CPU_BLOCK_K ? CPU_BLOCK_K : params->k - k0;
                quant->dequant(row + k0 / quant->elems * quant->bytes, expanded, k);
                float sum = cpu_dot_generic(in + k0, expanded, k);
                total = k0 == 0 ? sum : total + sum;
            }
            cpu_matmul_finish(params, args, &total, s, i, 1);
        }
    }
}
