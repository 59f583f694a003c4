// mm_rows: activations to f16 for the tensor cores. One block a row: the row's largest magnitude,
// then the row times a power of two that f16 can hold, and what undoes it. Rows of ordinary size
// are not scaled (mm_scale.cuh); none is rounded twice.
//
// Shared memory: static, one f32 a warp. Defines: ROW_THREADS, threads a block; IN_F16, 1: IN is
// f16.
#include "common/ptx.cuh"
#include "matmul/mm_args.cuh"
#include "matmul/mm_scale.cuh"

#if !defined(ROW_THREADS) || !defined(IN_F16)
#    error "define ROW_THREADS and IN_F16"
#endif
static_assert(ROW_THREADS % 32 == 0 && ROW_THREADS >= 32 && ROW_THREADS <= 1024,
        "ROW_THREADS: whole warps, at most 32 of them");

#if IN_F16
typedef unsigned short in_type;
#else
typedef float in_type;
#endif

PTX_INLINE float load_one(const in_type *row, int c, const mm_args &args) {
    if (c >= args.k) {
        return 0;
    }
#if IN_F16
    return ptx_half_to_float(row[c]);
#else
    return row[c];
#endif
}

// Columns c .. c + 3 of a row; 0 from k on. Wide: rows are aligned and k is a multiple of 4.
template <bool Wide> PTX_INLINE float4 load_four(const in_type *row, int c, const mm_args &args) {
    float4 v = make_float4(0, 0, 0, 0);
    if (Wide) {
        if (c < args.k) {
#if IN_F16
            uint2 h = *(const uint2 *)(row + c);
            v = make_float4(
                    ptx_low_half(h.x), ptx_high_half(h.x), ptx_low_half(h.y), ptx_high_half(h.y));
#else
            v = *(const float4 *)(row + c);
#endif
        }
        return v;
    }
#pragma unroll 1 // seldom taken: what counts is to compile it
    for (int i = 0; i < 4; i++) {
        float one = load_one(row, c + i, args);
        v.x = i == 0 ? one : v.x;
        v.y = i == 1 ? one : v.y;
        v.z = i == 2 ? one : v.z;
        v.w = i == 3 ? one : v.w;
    }
    return v;
}

// The largest magnitude among this thread's columns.
template <bool Wide> PTX_INLINE float row_largest(const in_type *row, const mm_args &args) {
    float largest = 0;
    for (int c = 4 * (int)threadIdx.x; c < args.k; c += 4 * ROW_THREADS) {
        float4 x = load_four<Wide>(row, c, args);
        largest =
                fmaxf(largest, fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w))));
    }
    return largest;
}

template <bool Wide>
PTX_INLINE void row_out(const in_type *row, uint2 *to, float factor, const mm_args &args) {
    for (int c = 4 * (int)threadIdx.x; c < args.k_padded; c += 4 * ROW_THREADS) {
        float4 x = load_four<Wide>(row, c, args);
        to[c / 4] = make_uint2(ptx_pack_half2(x.x * factor, x.y * factor),
                ptx_pack_half2(x.z * factor, x.w * factor));
    }
}

// in (S, K) -> halves (S, k_padded) f16, scales (S) f32: in = halves * scales. n_tokens (1) or
// NULL.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
        mm_rows(const in_type *__restrict__ in, uint2 *__restrict__ halves,
                float *__restrict__ scales, const int *__restrict__ n_tokens, const mm_args args) {
    __shared__ float of_warp[ROW_THREADS / 32];
    int at = (int)blockIdx.x;
    if (n_tokens && at >= *n_tokens) {
        return;
    }
    const in_type *row = (const in_type *)((const char *)in + at * args.in_stride);
    bool wide = args.in_wide && args.k % 4 == 0;
    float largest = wide ? row_largest<true>(row, args) : row_largest<false>(row, args);
    largest = ptx_warp_max(largest);
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = largest;
    }
    __syncthreads();
    largest = of_warp[0];
    for (int i = 1; i < ROW_THREADS / 32; i++) {
        largest = fmaxf(largest, of_warp[i]);
    }
    int exponent = mm_scale_exponent(largest);
    float factor = mm_scale_factor(exponent);
    uint2 *to = halves + (long long)at * (args.k_padded / 4);
    if (wide) {
        row_out<true>(row, to, factor, args);
    } else {
        row_out<false>(row, to, factor, args);
    }
    if (threadIdx.x == 0) {
        scales[at] = mm_scale_inverse(exponent);
    }
}
