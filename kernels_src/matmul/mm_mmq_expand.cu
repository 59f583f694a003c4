// mm_mmq_expand: block weights to bytes and f32 factors, once, when a model is loaded, for the int8
// kernel that recombines nothing. A row: k_padded bytes, then two f32 for each 32 columns
// (mmq_weights.cuh; the second is 0 where a type has one). 0 from column k on. A thread makes a
// unit of 16 values. Not here: the GEMM that reads them.
//
// Shared memory: none. Defines: W_TYPE, W_ALIGN; ROW_THREADS, threads a block.
#include "matmul/mm_args.cuh"
#include "matmul/mmq_weights.cuh"

#ifndef ROW_THREADS
#    error "define ROW_THREADS: threads a block"
#endif

// weight (N, K) as in the file -> rows (N) of k_padded / 32 * 40 bytes. k_padded is a multiple of
// 2 * W_GAP and of 32.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
        mm_mmq_expand(const unsigned char *__restrict__ weight, unsigned char *__restrict__ rows,
                const mm_args args) {
    int units = args.k_padded / 16;
    long long at = (long long)blockIdx.x * ROW_THREADS + threadIdx.x;
    if (at >= (long long)args.n * units) {
        return;
    }
    long long row = at / units;
    int unit = (int)(at - row * units);
    int column = w_column(unit);
    unsigned char *to = rows + row * (args.k_padded / 32 * 40);
    float *factors = (float *)(to + args.k_padded);
    if (column >= args.k) { // a block's runs are both inside or both outside
        *(uint2 *)(to + column) = make_uint2(0, 0);
        *(uint2 *)(to + column + W_GAP) = make_uint2(0, 0);
        factors[column / 32 * 2 + column / 16 % 2] = 0;
        factors[(column + W_GAP) / 32 * 2 + (column + W_GAP) / 16 % 2] = 0;
        return;
    }
    w_raw raw;
    w_load(raw, weight + row * args.weight_stride, unit, args.k);
    *(uint2 *)(to + column) = mmq_bytes(raw, unit, 0);
    *(uint2 *)(to + column + W_GAP) = mmq_bytes(raw, unit, 1);
    if (unit % MMQ_EVERY == 0) {
        mmq_factors(raw, unit, [&](int c, int which, float value) {
            factors[c / 32 * 2 + which] = value;
            if (!MMQ_PAIR) {
                factors[c / 32 * 2 + 1] = 0;
            }
        });
    }
}
