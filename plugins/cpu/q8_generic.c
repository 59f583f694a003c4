// q8_generic: `exact_q8` in plain C: quantization and the integer matmul, as q8.h defines them.
#include "q8_kernels.h"

#include <math.h>

static const float smallest = 0x1p-100F; // below it 127 / a could overflow

static void quantize_block(const float *x, struct cpu_q8_block *out) {
    float largest = 0;
    int finite = 1;
    for (int i = 0; i < CPU_Q8_COLUMNS; i++) {
        float size = fabsf(x[i]);
        largest = size > largest ? size : largest;
        finite &= size <= 3.402823466e38F; // NaN is not
    }
    int zero = !finite || largest < smallest;
    float inverse = zero ? 0 : 127.0F / largest;
    out->scale = !finite ? NAN : zero ? 0 : largest / 127.0F;
    out->sum = 0;
    for (int i = 0; i < CPU_Q8_COLUMNS; i++) {
        int q = zero ? 0 : (int)rintf(x[i] * inverse);
        out->q[i] = (int8_t)q;
        out->sum += q;
    }
}

void cpu_quantize_row_generic(const float *x, struct cpu_q8_block *out, int64_t columns) {
    for (int64_t i = 0; i < columns; i += CPU_Q8_COLUMNS) {
        quantize_block(x + i, out++);
    }
}

float cpu_q8_dot_generic(
        const struct cpu_q8_weight *weight, const struct cpu_q8_block *x, int blocks) {
    float t[CPU_Q8_BLOCKS] = {0};
    for (int i = 0; i < blocks; i++) {
        const int8_t *w = weight->w + CPU_Q8_COLUMNS * i;
        int32_t half[2] = {0, 0};
        for (int j = 0; j < CPU_Q8_COLUMNS; j++) {
            half[j / 16] += w[j] * x[i].q[j];
        }
        int32_t product = weight->s[2 * i] * half[0] + weight->s[2 * i + 1] * half[1];
        int32_t minimum = weight->m[i] * x[i].sum;
        t[i] = weight->a[i] * x[i].scale * (float)product +
               weight->b[i] * x[i].scale * (float)minimum;
    }
    return ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]));
}

uint32_t cpu_matmul_q8_scratch(int32_t block_rows) {
    return (uint32_t)(CPU_Q8_ROWS *
                      (sizeof(struct cpu_q8_weight) + (size_t)block_rows * sizeof(float)));
}

// Grid: x rows.
void cpu_quantize_generic(const struct kiln_block *block, void *const *args) {
    const struct cpu_rowwise *params = args[0];
    int64_t row = block->index[0];
    if (row < cpu_rows(args, params->n_tokens, params->s)) {
        const char *in = (const char *)args[params->in] + row * params->in_stride;
        char *out = (char *)args[params->out] + row * params->out_stride;
        cpu_quantize_row_generic((const float *)(const void *)in,
                (struct cpu_q8_block *)(void *)out, params->columns);
    }
}

void cpu_matmul_q8_prefill_generic(const struct kiln_block *block, void *const *args) {
    q8_prefill(cpu_q8_dot_generic, block, args);
}

void cpu_matmul_q8_decode_generic(const struct kiln_block *block, void *const *args) {
    q8_decode(cpu_q8_dot_generic, block, args);
}
