// dot_avx2: dot products of quantized weight rows with an activation row, for decode.
#ifndef CPU_DOT_AVX2_H
#define CPU_DOT_AVX2_H

#include <stdint.h>

// An activation row of k columns, made ready once for many weight rows.
struct cpu_dot_x {
    const float *x; // (k) as it came
    float *quads;   // (k / 32, 4, 8): column 4 j + b of a block at [b][j], times 2^(-8 b)
    float *halves;  // (k / 16) sums of 16 columns
    float *sums;    // (k / 32) sums of 32
};

struct cpu_dot_avx2 {
    uint32_t dtype; // enum kiln_dtype
    float (*dot)(const uint8_t *row, const struct cpu_dot_x *x, int64_t k);
};

const struct cpu_dot_avx2 *cpu_dot_avx2_find(uint32_t dtype); // NULL for types not in blocks

// Divides `shared` (k + k / 16 + k / 32 floats) and fills it. k is a multiple of 32.
struct cpu_dot_x cpu_dot_prepare(const float *x, int64_t k, float *shared);

#endif
