// q8_kernels: the matmul of `exact_q8` but for the dot product of a chunk: unpacking weights to
// integers, and the loops. A header, because it is compiled twice: for any processor, and for AVX2,
// where the compiler makes vectors of the unpacking loops. All results here are integers or copies,
// so both give the same bits.
#ifndef CPU_Q8_KERNELS_H
#define CPU_Q8_KERNELS_H

#include "args.h"
#include "dequant.h"
#include "q8.h"
#include "quant.h"

#include <stddef.h>
#include <string.h>

typedef float (*cpu_q8_dot_fn)(
        const struct cpu_q8_weight *weight, const struct cpu_q8_block *x, int blocks);

static inline float q8_f16(const uint8_t *at) {
    return cpu_f16_to_f32((uint16_t)(at[0] | at[1] << 8));
}

static inline void q8_factors(struct cpu_q8_weight *out, int block, float a, float b, int m) {
    out->a[block] = a;
    out->b[block] = b;
    out->m[block] = m;
    out->s[2 * block] = out->s[2 * block + 1] = 1;
}

static inline void q8_nibbles(const uint8_t *qs, int zero, int8_t *w) {
    for (int i = 0; i < 16; i++) {
        w[i] = (int8_t)((qs[i] & 15) - zero);
        w[i + 16] = (int8_t)((qs[i] >> 4) - zero);
    }
}

static inline void q8_unpack_q4_0(const uint8_t *at, struct cpu_q8_weight *out, int block) {
    q8_nibbles(at + CPU_Q4_0_QS, 8, out->w + CPU_Q8_COLUMNS * block);
    q8_factors(out, block, q8_f16(at + CPU_Q4_0_D), 0, 0);
}

static inline void q8_unpack_q4_1(const uint8_t *at, struct cpu_q8_weight *out, int block) {
    q8_nibbles(at + CPU_Q4_1_QS, 0, out->w + CPU_Q8_COLUMNS * block);
    q8_factors(out, block, q8_f16(at + CPU_Q4_1_D), q8_f16(at + CPU_Q4_1_M), 1);
}

static inline void q8_unpack_q5_0(const uint8_t *at, struct cpu_q8_weight *out, int block) {
    int8_t *w = out->w + CPU_Q8_COLUMNS * block;
    q8_nibbles(at + CPU_Q5_0_QS, 16, w);
    for (int i = 0; i < CPU_Q8_COLUMNS; i++) {
        w[i] = (int8_t)(w[i] + ((at[CPU_Q5_0_QH + i / 8] >> i % 8 & 1) << 4));
    }
    q8_factors(out, block, q8_f16(at + CPU_Q5_0_D), 0, 0);
}

static inline void q8_unpack_q8_0(const uint8_t *at, struct cpu_q8_weight *out, int block) {
    memcpy(out->w + CPU_Q8_COLUMNS * block, at + CPU_Q8_0_QS, CPU_Q8_COLUMNS);
    q8_factors(out, block, q8_f16(at + CPU_Q8_0_D), 0, 0);
}

// q4_K, and q5_K where there are fifth bits (high: 32 bytes, or NULL).
static inline void q8_unpack_qk(
        const uint8_t *at, const uint8_t *high, const uint8_t *qs, struct cpu_q8_weight *out) {
    float d = q8_f16(at + CPU_QK_D);
    float dmin = q8_f16(at + CPU_QK_DMIN);
    for (int group = 0; group < 8; group++) {
        int8_t *w = out->w + 32 * group;
        const uint8_t *bytes = qs + 32 * (group / 2);
        int shift = 4 * (group % 2);
        for (int i = 0; i < 32; i++) {
            w[i] = (int8_t)(bytes[i] >> shift & 15);
        }
        for (int i = 0; high != NULL && i < 32; i++) {
            w[i] = (int8_t)(w[i] | (high[i] >> group & 1) << 4);
        }
        int scale;
        int min;
        cpu_scale_min(at + CPU_QK_SCALES, group, &scale, &min);
        q8_factors(out, group, d, -dmin, min);
        out->s[2 * group] = out->s[2 * group + 1] = (int16_t)scale;
    }
}

static inline void q8_unpack_q6_K(const uint8_t *at, struct cpu_q8_weight *out) {
    float d = q8_f16(at + CPU_Q6_K_D);
    for (int part = 0; part < 8; part++) { // of 32 values; 4 a half
        int8_t *w = out->w + 32 * part;
        const uint8_t *low = at + CPU_Q6_K_QL + 64 * (part / 4) + 32 * (part % 2);
        const uint8_t *high = at + CPU_Q6_K_QH + 32 * (part / 4);
        int low_shift = part % 4 < 2 ? 0 : 4;
        int high_shift = 2 * (part % 4);
        for (int i = 0; i < 32; i++) {
            w[i] = (int8_t)(((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4) - 32);
        }
        q8_factors(out, part, d, 0, 0);
        for (int i = 0; i < 2; i++) {
            out->s[2 * part + i] = (int8_t)at[CPU_Q6_K_SCALES + 2 * part + i];
        }
    }
}

// The `blocks` blocks of one chunk; at: the chunk's first byte.
static inline void q8_unpack(
        uint32_t dtype, const uint8_t *at, int blocks, struct cpu_q8_weight *out) {
    if (blocks < CPU_Q8_BLOCKS) {
        memset(out, 0, sizeof(*out));
    }
    for (int block = 0; block < blocks; block++) {
        switch (dtype) {
        case KILN_DTYPE_Q4_0:
            q8_unpack_q4_0(at + block * CPU_Q4_0_BYTES, out, block);
            break;
        case KILN_DTYPE_Q4_1:
            q8_unpack_q4_1(at + block * CPU_Q4_1_BYTES, out, block);
            break;
        case KILN_DTYPE_Q5_0:
            q8_unpack_q5_0(at + block * CPU_Q5_0_BYTES, out, block);
            break;
        case KILN_DTYPE_Q8_0:
            q8_unpack_q8_0(at + block * CPU_Q8_0_BYTES, out, block);
            break;
        case KILN_DTYPE_Q4_K: // one block of 256 is the chunk
            q8_unpack_qk(at, NULL, at + CPU_Q4_K_QS, out);
            return;
        case KILN_DTYPE_Q5_K:
            q8_unpack_qk(at, at + CPU_Q5_K_QH, at + CPU_Q5_K_QS, out);
            return;
        default:
            q8_unpack_q6_K(at, out);
            return;
        }
    }
}

// Outputs of `rows` activation rows from s0 and `n` (at most CPU_Q8_ROWS) weight rows from n0.
// sums: (rows, CPU_Q8_ROWS).
static inline void q8_panel(cpu_q8_dot_fn dot, const struct cpu_matmul *params, void *const *args,
        int64_t s0, int rows, int64_t n0, int n, struct cpu_q8_weight *unpacked, float *sums) {
    const struct cpu_quant *quant = cpu_quant_find(params->dtype);
    const uint8_t *weight = (const uint8_t *)args[params->weight] + n0 * params->weight_stride;
    const char *in = (const char *)args[params->in] + s0 * params->in_stride;
    for (int64_t k0 = 0; k0 < params->k; k0 += CPU_Q8_CHUNK) {
        int64_t left = (params->k - k0) / CPU_Q8_COLUMNS;
        int blocks = left > CPU_Q8_BLOCKS ? CPU_Q8_BLOCKS : (int)left;
        for (int i = 0; i < n; i++) {
            q8_unpack(params->dtype,
                    weight + i * params->weight_stride + k0 / quant->elems * quant->bytes, blocks,
                    &unpacked[i]);
        }
        for (int s = 0; s < rows; s++) {
            const struct cpu_q8_block *x =
                    (const struct cpu_q8_block *)(const void *)(in + s * params->in_stride) +
                    k0 / CPU_Q8_COLUMNS;
            float *sum = sums + s * CPU_Q8_ROWS;
            for (int i = 0; i < n; i++) {
                float chunk = dot(&unpacked[i], x, blocks);
                sum[i] = k0 == 0 ? chunk : sum[i] + chunk;
            }
        }
    }
    for (int s = 0; s < rows; s++) {
        cpu_matmul_finish(params, args, sums + s * CPU_Q8_ROWS, s0 + s, n0, n);
    }
}

// Weight rows n0 .. end - 1, panel by panel.
static inline void q8_rows(cpu_q8_dot_fn dot, const struct kiln_block *block,
        const struct cpu_matmul *params, void *const *args, int64_t s0, int64_t rows, int64_t n0,
        int64_t end) {
    struct cpu_q8_weight *unpacked = block->shared;          // (CPU_Q8_ROWS)
    float *sums = (float *)(void *)(unpacked + CPU_Q8_ROWS); // (rows, CPU_Q8_ROWS)
    end = end > params->n ? params->n : end;
    for (int64_t n = n0; n < end && rows > 0; n += CPU_Q8_ROWS) {
        int some = end - n > CPU_Q8_ROWS ? CPU_Q8_ROWS : (int)(end - n);
        q8_panel(dot, params, args, s0, (int)rows, n, some, unpacked, sums);
    }
}

// Grid: x blocks of CPU_BLOCK_N weight rows, y blocks of block_rows activation rows.
static inline void q8_prefill(
        cpu_q8_dot_fn dot, const struct kiln_block *block, void *const *args) {
    const struct cpu_matmul *params = args[0];
    int64_t s0 = (int64_t)block->index[1] * params->block_rows;
    int64_t rows = cpu_rows(args, params->n_tokens, params->s) - s0;
    rows = rows > params->block_rows ? params->block_rows : rows;
    int64_t n0 = (int64_t)block->index[0] * CPU_BLOCK_N;
    q8_rows(dot, block, params, args, s0, rows, n0, n0 + CPU_BLOCK_N);
}

// Grid: x blocks of block_rows weight rows; all activation rows in use, one at a time.
static inline void q8_decode(cpu_q8_dot_fn dot, const struct kiln_block *block, void *const *args) {
    const struct cpu_matmul *params = args[0];
    int64_t rows = cpu_rows(args, params->n_tokens, params->s);
    int64_t n0 = (int64_t)block->index[0] * params->block_rows;
    for (int64_t s = 0; s < rows; s++) {
        q8_rows(dot, block, params, args, s, 1, n0, n0 + params->block_rows);
    }
}

#endif
