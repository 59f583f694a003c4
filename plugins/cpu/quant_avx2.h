// quant_avx2: weight rows with AVX2: to f32, and straight into a dot product. Bits of the values as
// in dequant.h.
#ifndef CPU_QUANT_AVX2_H
#define CPU_QUANT_AVX2_H

#include "dequant.h"

#include <stdint.h>

struct cpu_quant_avx2 {
    uint32_t dtype; // enum kiln_dtype
    cpu_dequant_fn dequant;
    // row: k / elems blocks; x: (k) f32. Sum order: 32 sums, sum j over the columns j, j + 32 … by
    // fused multiply-adds; the 32 are added in a fixed tree.
    float (*dot)(const uint8_t *row, const float *x, int64_t k);
};

const struct cpu_quant_avx2 *cpu_quant_avx2_find(uint32_t dtype); // NULL when unknown

#endif
