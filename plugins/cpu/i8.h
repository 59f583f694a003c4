// i8: the matmul of the variant `q8`: as exact_q8 (q8.h) the activations are 8-bit integers with a
// scale each 32 columns, the dot products of a block are integers, exact and the same, and scales
// are f32; but the f32 sums are fused multiply-adds in an order made for speed. There with AVX2
// alone (CPU_HAVE_AVX2).
//
// With u = w - z the weight as an unsigned byte (z: what quant.h subtracts), value[i] = a u[i] + b
// for the columns of a block of 32, or of 16 for q6_K. One output is
//   Σ over blocks of  (a * scale) * Σ u q  +  b * (scale * Σ q)
#ifndef CPU_I8_H
#define CPU_I8_H

#include "kiln/plugin.h"

#include <stdint.h>

// Kernels: kiln_host_fn. The grids are those of the exact matmul.
void cpu_matmul_i8_prefill_avx2(const struct kiln_block *block, void *const *args);
void cpu_matmul_i8_decode_avx2(const struct kiln_block *block, void *const *args);

enum {
    CPU_I8_TILE_ROWS = 4, // activation rows of the register tile
};

// Scratch of one block in bytes.
uint32_t cpu_matmul_i8_prefill_scratch(int32_t block_rows);
uint32_t cpu_matmul_i8_decode_scratch(int64_t k);

#endif
