// gemm_avx2: the two steps that every matrix product of the AVX2 kernels is made of.
#ifndef CPU_GEMM_AVX2_H
#define CPU_GEMM_AVX2_H

#include <stddef.h>

// rows (n_rows <= 16) of k f32, `stride` floats apart -> out (k, 16): column by column, absent rows
// as zeros. k is rounded up to a multiple of 4 when reading and writing; the rows must have that
// much memory.
void cpu_pack_avx2(const float *rows, ptrdiff_t stride, int n_rows, int k, float *out);

// c (m, 16) = or += a (m, k) · b (k, 16), m in 1..6; a and c have rows a_stride and c_stride floats
// apart, b is packed. Each element is one chain of fused multiply-adds over k, then one addition to
// c: it does not depend on m.
void cpu_tile_avx2(int m, const float *a, ptrdiff_t a_stride, const float *b, float *c,
        ptrdiff_t c_stride, int k, int add);

#endif
