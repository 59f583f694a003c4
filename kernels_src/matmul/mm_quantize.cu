// mm_quantize: activations f32 or f16 to blocks of 8-bit integers (common/q8.cuh). A thread takes
// four columns, eight threads a block. Not here: producers that write the blocks themselves.
//
// Shared memory: none. Defines: ROW_THREADS, threads a block; IN_F16, 1: IN is f16.
#include "common/q8.cuh"
#include "matmul/mm_args.cuh"

#if !defined(ROW_THREADS) || !defined(IN_F16)
#    error "define ROW_THREADS and IN_F16"
#endif
static_assert(ROW_THREADS % 32 == 0 && ROW_THREADS >= 32 && ROW_THREADS <= 1024,
        "ROW_THREADS: whole warps, at most 32 of them");

PTX_INLINE float4 load_four(const char *row, int c, int wide) {
#if IN_F16
    const unsigned short *at = (const unsigned short *)row + c;
    if (wide) {
        uint2 v = *(const uint2 *)at;
        return make_float4(
                ptx_low_half(v.x), ptx_high_half(v.x), ptx_low_half(v.y), ptx_high_half(v.y));
    }
    return make_float4(ptx_half_to_float(at[0]), ptx_half_to_float(at[1]), ptx_half_to_float(at[2]),
            ptx_half_to_float(at[3]));
#else
    const float *at = (const float *)row + c;
    return wide ? *(const float4 *)at : make_float4(at[0], at[1], at[2], at[3]);
#endif
}

// in (S, K), K a multiple of 32 -> out (S) rows of q8_32w. n_tokens (1) or NULL. Grid: x the pieces
// of 4 * ROW_THREADS columns of row 0, then of row 1, ...
extern "C" __global__ void __launch_bounds__(ROW_THREADS) mm_quantize(const char *__restrict__ in,
        unsigned char *__restrict__ out, const int *__restrict__ n_tokens, const mm_args args) {
    int pieces = (args.k + 4 * ROW_THREADS - 1) / (4 * ROW_THREADS);
    long long row = blockIdx.x / pieces;
    int c = ((int)(blockIdx.x % pieces) * ROW_THREADS + (int)threadIdx.x) * 4;
    if ((n_tokens && row >= *n_tokens) || c >= args.k) {
        return;
    }
    float4 x = load_four(in + row * args.in_stride, c, args.in_wide);
    q8_put(out + row * args.out_stride, args.k, c, x);
}
