// mm_expand: weights to f16, once, when a model is loaded: rows of k_padded halves, 0 from column k
// on. A thread makes a unit of 16 values (dequant.cuh). Not here: the GEMM that reads them.
//
// Shared memory: none. Defines: W_TYPE, W_ALIGN; ROW_THREADS, threads a block.
#include "common/dequant.cuh"
#include "matmul/mm_args.cuh"

#ifndef ROW_THREADS
#    error "define ROW_THREADS: threads a block"
#endif

// weight (N, K) as in the file -> halves (N, k_padded) f16. k_padded is a multiple of 2 * W_GAP.
extern "C" __global__ void __launch_bounds__(ROW_THREADS) mm_expand(
        const unsigned char *__restrict__ weight, uint4 *__restrict__ halves, const mm_args args) {
    int units = args.k_padded / 16;
    long long at = (long long)blockIdx.x * ROW_THREADS + threadIdx.x;
    if (at >= (long long)args.n * units) {
        return;
    }
    long long row = at / units;
    int unit = (int)(at - row * units);
    int column = w_column(unit);
    uint4 low = make_uint4(0, 0, 0, 0);
    uint4 high = low;
    if (column < args.k) { // a block's runs are both inside or both outside
        w_raw raw;
        w_load(raw, weight + row * args.weight_stride, unit, args.k);
        low = w_halves(raw, unit, 0);
        high = w_halves(raw, unit, 1);
    }
    uint4 *to = halves + row * (args.k_padded / 8) + column / 8;
    to[0] = low;
    to[W_GAP / 8] = high;
}
