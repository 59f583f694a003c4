// elementwise_generic: embed, norm, rope_kv, activation and argmax in plain C, one row a block.
#include "args.h"

#include "dequant.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum {
    LANES = 8
};

static const float *row_of(const void *base, int64_t row, int64_t stride) {
    return (const float *)(const void *)((const char *)base + row * stride);
}

static float *out_row(void *base, int64_t row, int64_t stride) {
    return (float *)(void *)((char *)base + row * stride);
}

// Grid: x rows. An id that is not in the table gives a row of NaN, so that it cannot pass for a
// result.
void cpu_embed_generic(const struct kiln_block *block, void *const *args) {
    const struct cpu_rowwise *params = args[0];
    int64_t row = block->index[0];
    if (row >= cpu_rows(args, params->n_tokens, params->s)) {
        return;
    }
    int32_t id = ((const int32_t *)args[params->in])[row];
    float *out = out_row(args[params->out], row, params->out_stride);
    if (id < 0 || id >= params->vocab) {
        for (int64_t i = 0; i < params->columns; i++) {
            out[i] = NAN;
        }
        return;
    }
    const uint8_t *weight = (const uint8_t *)args[params->weight] + id * params->in_stride;
    cpu_quant_find(params->dtype)->dequant(weight, out, params->columns);
    for (int64_t i = 0; i < params->columns; i++) {
        out[i] *= params->scale;
    }
}

// 1 / sqrt(mean of squares + eps). The squares are summed in f64, in 8 lanes: a row of Gemma's
// reaches 1e5, and this costs nothing beside the matmuls.
static float rms_factor(const float *x, int64_t n, float eps) { // x: (n)
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] += (double)x[i + j] * (double)x[i + j];
        }
    }
    for (int j = 0; i < n; i++, j++) {
        lane[j] += (double)x[i] * (double)x[i];
    }
    double sum = ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
                 ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    return (float)(1.0 / sqrt(sum / (double)n + (double)eps));
}

// Grid: x rows. OUT may be IN or RESIDUAL.
void cpu_norm_generic(const struct kiln_block *block, void *const *args) {
    const struct cpu_rowwise *params = args[0];
    int64_t row = block->index[0];
    if (row >= cpu_rows(args, params->n_tokens, params->s)) {
        return;
    }
    const float *in = row_of(args[params->in], row, params->in_stride);
    const float *weight = args[params->weight];
    const void *residual_base = cpu_arg(args, params->other);
    float *out = out_row(args[params->out], row, params->out_stride);
    float factor = rms_factor(in, params->columns, params->eps);
    if (residual_base == NULL) {
        for (int64_t i = 0; i < params->columns; i++) {
            out[i] = in[i] * factor * weight[i];
        }
        return;
    }
    const float *residual = row_of(residual_base, row, params->other_stride);
    for (int64_t i = 0; i < params->columns; i++) {
        out[i] = residual[i] + in[i] * factor * weight[i];
    }
}

// gelu_tanh(x) = x / 2 * (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) * (x + 0.044715 x^3).
// The second form does not cancel for negative x. Where exp overflows, the result is -0 in place of
// at most 3e-37.
static float activate(uint32_t activation, float x) {
    if (activation == KILN_ACTIVATION_SILU) {
        return x / (1.0F + expf(-x));
    }
    float u = 0.797884561F * (x + 0.044715F * x * x * x);
    return x / (1.0F + expf(-2.0F * u));
}

// Grid: x blocks of CPU_ACTIVATION_COLUMNS columns, y rows. OUT may be GATE.
void cpu_activation_generic(const struct kiln_block *block, void *const *args) {
    const struct cpu_rowwise *params = args[0];
    int64_t row = block->index[1];
    if (row >= cpu_rows(args, params->n_tokens, params->s)) {
        return;
    }
    int64_t begin = (int64_t)block->index[0] * CPU_ACTIVATION_COLUMNS;
    int64_t end = begin + CPU_ACTIVATION_COLUMNS;
    end = end > params->columns ? params->columns : end;
    const float *gate = row_of(args[params->in], row, params->in_stride);
    const float *up = row_of(args[params->other], row, params->other_stride);
    float *out = out_row(args[params->out], row, params->out_stride);
    for (int64_t i = begin; i < end; i++) {
        out[i] = activate(params->activation, gate[i]) * up[i];
    }
}

// Grid: x rows. NaN is never the largest; where the largest is not finite the result is -1.
void cpu_argmax_generic(const struct kiln_block *block, void *const *args) {
    const struct cpu_rowwise *params = args[0];
    int64_t row = block->index[0];
    if (row >= cpu_rows(args, params->n_tokens, params->s)) {
        return;
    }
    const float *in = row_of(args[params->in], row, params->in_stride);
    int32_t best = 0;
    float largest = -INFINITY;
    for (int64_t i = 0; i < params->columns; i++) {
        if (in[i] > largest) {
            largest = in[i];
            best = (int32_t)i;
        }
    }
    ((int32_t *)args[params->out])[row] = isfinite(largest) ? best : -1;
}

uint32_t cpu_rope_scratch(int32_t head_size, int32_t rope_dims) {
    return (uint32_t)(((size_t)head_size + (size_t)rope_dims) * sizeof(float));
}

static void store_cache(uint32_t dtype, char *cache, const float *values, int64_t n) {
    if (dtype == KILN_DTYPE_F32) {
        memcpy(cache, values, (size_t)n * sizeof(float));
        return;
    }
    uint16_t *halves = (uint16_t *)(void *)cache;
    for (int64_t i = 0; i < n; i++) {
        halves[i] = cpu_f32_to_f16(values[i]);
    }
}

// One head: out = rotate(norm(in)); table holds rope_dims/2 cosines, then as many sines.
static void turn_head(const struct cpu_rope *params, const float *in, const float *norm,
        const float *table, float *out) {
    int32_t half = params->rope_dims / 2;
    float factor = norm != NULL ? rms_factor(in, params->head_size, params->eps) : 1.0F;
    for (int32_t i = 0; i < params->head_size; i++) {
        out[i] = norm != NULL ? in[i] * factor * norm[i] : in[i];
    }
    for (int32_t i = 0; i < half; i++) {
        int32_t a = params->style == KILN_ROPE_PAIRS ? 2 * i : i;
        int32_t b = params->style == KILN_ROPE_PAIRS ? 2 * i + 1 : i + half;
        float x = out[a];
        float y = out[b];
        out[a] = x * table[i] - y * table[half + i];
        out[b] = x * table[half + i] + y * table[i];
    }
}

// The angle is position * frequency rounded to f32, as engines and kernels commonly compute it; its
// cosine and sine are libm's f32 ones.
static void fill_table(
        const struct cpu_rope *params, const float *freqs, int32_t position, float *table) {
    int32_t half = params->rope_dims / 2;
    for (int32_t i = 0; i < half; i++) {
        float angle = (float)position * freqs[i];
        table[i] = cosf(angle) * params->scale;
        table[half + i] = sinf(angle) * params->scale;
    }
}

// Grid: x rows. OUT may be Q. A row whose position is not in the cache leaves the caches alone.
void cpu_rope_kv_generic(const struct kiln_block *block, void *const *args) {
    const struct cpu_rope *params = args[0];
    int64_t row = block->index[0];
    if (row >= cpu_rows(args, params->n_tokens, params->s)) {
        return;
    }
    float *head = block->shared;
    float *table = head + params->head_size;
    int64_t size = params->head_size;
    int32_t position = ((const int32_t *)args[params->positions])[row];
    fill_table(params, cpu_arg(args, params->freqs), position, table);
    const float *q = row_of(args[params->q], row, params->q_stride);
    float *out = out_row(args[params->out], row, params->out_stride);
    for (int64_t h = 0; h < params->heads; h++) {
        turn_head(params, q + h * size, cpu_arg(args, params->q_norm), table, head);
        memcpy(out + h * size, head, (size_t)size * sizeof(float));
    }
    if (position < 0 || position >= params->t) {
        return;
    }
    const float *k = row_of(args[params->k], row, params->k_stride);
    char *k_cache = (char *)args[params->k_cache] + position * params->k_cache_stride;
    int64_t elem = params->k_dtype == KILN_DTYPE_F32 ? 4 : 2;
    for (int64_t h = 0; h < params->kv_heads; h++) {
        turn_head(params, k + h * size, cpu_arg(args, params->k_norm), table, head);
        store_cache(params->k_dtype, k_cache + h * size * elem, head, size);
    }
    store_cache(params->v_dtype, (char *)args[params->v_cache] + position * params->v_cache_stride,
            row_of(args[params->v], row, params->v_stride), params->kv_heads * size);
}
