// q8: the arithmetic of the variant `exact_q8`: activations as 8-bit integers, integer dot
// products, f32 scales. It is the reference for every int8 kernel, so all of it is fixed here to
// the last bit; plain C and AVX2 give the same bits. What is not here: weight layouts (quant.h).
//
// Edge format "q8_32": a row of K columns is K / 32 blocks of 40 bytes, one behind the other:
//
//   0 scale f32 | 4 sum i32 | 8 q i8[32]
//
// Quantization of 32 columns x[0 .. 31], each operation rounded to f32 (to nearest, ties to even):
//   a = max |x[i]|
//   a is NaN or infinite (any x[i] is):  scale = NaN, every q[i] = 0
//   a < 2^-100, zero included:           scale = 0,   every q[i] = 0
//   otherwise                            scale = a / 127, inverse = 127 / a,
//                                        q[i] = x[i] * inverse as an integer, ties to even
//   sum = q[0] + … + q[31]
// |q[i]| <= 127. The sum is an integer of at most 4064 in magnitude: it cannot overflow, as a
// product with the scale that is kept in f16 does once 32 equal values pass 2047. A row that is not
// finite gives NaN in all outputs of that row, never a number that looks right.
//
// Weights, 32 columns at a time: value[i] = a * s[i / 16] * w[i] + b * m, with integers w, s, m:
//            a     s[0], s[1]        w[i]             b       m
//   q4_0     d     1, 1              nibble - 8       0       0
//   q4_1     d     1, 1              nibble           m       1
//   q5_0     d     1, 1              5 bits - 16      0       0
//   q8_0     d     1, 1              int8             0       0
//   q4_K     d     scale of the group, twice; nibble  -dmin   min of the group
//   q5_K     d     scale of the group, twice; 5 bits  -dmin   min of the group
//   q6_K     d     its two scales    6 bits - 32      0       0
//
// For one output and one block of 32 columns:
//   I = s[0] * Σ_{i < 16} w[i] * q[i] + s[1] * Σ_{i >= 16} w[i] * q[i]    exact, in 32-bit integers
//   M = m * sum                                                           exact
//   t = (a * scale) * I + (b * scale) * M    four products and one addition, each rounded to f32;
//                                            |I|, |M| < 2^24, so as f32 they are still exact
// A chunk is 256 columns, the last one what is left; t of absent blocks is 0. Of a chunk
//   c = ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]))
// and the output is c[0] + c[1] + … from the left, + BIAS, + RESIDUAL. No fused multiply-add.
#ifndef CPU_Q8_H
#define CPU_Q8_H

#include "kiln/plugin.h"

#include <stdint.h>

enum {
    CPU_Q8_COLUMNS = 32,
    CPU_Q8_BYTES = 40,
    CPU_Q8_CHUNK = 256, // columns; the largest weight block
    CPU_Q8_BLOCKS = CPU_Q8_CHUNK / CPU_Q8_COLUMNS,
    CPU_Q8_ROWS = 16, // weight rows unpacked at a time
};
#define CPU_Q8_FORMAT "q8_32"

struct cpu_q8_block { // rows start at multiples of 4 bytes
    float scale;
    int32_t sum;
    int8_t q[CPU_Q8_COLUMNS];
};
_Static_assert(sizeof(struct cpu_q8_block) == CPU_Q8_BYTES, "the layout of q8_32");

// A chunk of a weight row as integers; blocks behind the row's end are zeros.
struct cpu_q8_weight {
    int8_t w[CPU_Q8_CHUNK];
    float a[CPU_Q8_BLOCKS], b[CPU_Q8_BLOCKS];
    int32_t m[CPU_Q8_BLOCKS];
    int16_t s[2 * CPU_Q8_BLOCKS];
};

// x: (columns) f32, a multiple of 32 -> out (columns / 32).
void cpu_quantize_row_generic(const float *x, struct cpu_q8_block *out, int64_t columns);
void cpu_quantize_row_avx2(const float *x, struct cpu_q8_block *out, int64_t columns);

// c of a chunk of `blocks` (1 to 8) blocks; x: (blocks).
float cpu_q8_dot_generic(
        const struct cpu_q8_weight *weight, const struct cpu_q8_block *x, int blocks);

// Kernels: kiln_host_fn. The grids are those of the exact matmul; quantize: x rows.
void cpu_quantize_generic(const struct kiln_block *block, void *const *args);
void cpu_matmul_q8_prefill_generic(const struct kiln_block *block, void *const *args);
void cpu_matmul_q8_decode_generic(const struct kiln_block *block, void *const *args);

// With AVX2; there only where CPU_HAVE_AVX2 is 1.
void cpu_quantize_avx2(const struct kiln_block *block, void *const *args);
void cpu_matmul_q8_prefill_avx2(const struct kiln_block *block, void *const *args);
void cpu_matmul_q8_decode_avx2(const struct kiln_block *block, void *const *args);

// Scratch of one block in bytes.
uint32_t cpu_matmul_q8_scratch(int32_t block_rows);

#endif
