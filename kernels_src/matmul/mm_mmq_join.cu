// mm_mmq_join: adds up the parts of a product whose columns several blocks shared, in their order,
// + BIAS, + RESIDUAL. A thread makes four outputs.
//
// Shared memory: none. Defines: ROW_THREADS, threads a block.
#include "matmul/mm_args.cuh"
#include "matmul/mm_out.cuh"

#ifndef ROW_THREADS
#    error "define ROW_THREADS: threads a block"
#endif

// parts (splits, S, N rounded up to 4) f32. bias (N), residual (S, N), n_tokens (1), or NULL.
// out (S, N) may be residual. Grid: x the pieces of 4 * ROW_THREADS outputs of row 0, then of
// row 1, ...
extern "C" __global__ void __launch_bounds__(ROW_THREADS) mm_mmq_join(
        const float *__restrict__ parts, const float *__restrict__ bias, const float *residual,
        float *out, const int *__restrict__ n_tokens, const mm_args args) {
    int width = (args.n + 3) / 4 * 4;
    int pieces = (width + 4 * ROW_THREADS - 1) / (4 * ROW_THREADS);
    long long row = blockIdx.x / pieces;
    int n = ((int)(blockIdx.x % pieces) * ROW_THREADS + (int)threadIdx.x) * 4;
    if ((n_tokens && row >= *n_tokens) || n >= width) {
        return;
    }
    const float *from = parts + row * width + n;
    float4 sum = *(const float4 *)from;
    for (int i = 1; i < args.splits; i++) {
        from += (long long)args.rows * width;
        float4 part = *(const float4 *)from;
        sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
    }
    mm_out_four({bias, residual, out, args}, row, n, 1.0f, sum);
}
