// mm_out: how a matmul kernel's results leave: + BIAS, + RESIDUAL, in that order. OUT may be
// RESIDUAL: each element is read and written by the same thread.
#ifndef KILN_MATMUL_MM_OUT_CUH
#define KILN_MATMUL_MM_OUT_CUH

#include "common/ptx.cuh"
#include "matmul/mm_args.cuh"

struct mm_out {
    const float *bias;     // (N) or NULL
    const float *residual; // (S, N) or NULL
    float *out;            // (S, N)
    const mm_args &args;
};

// Output n of a row, if there is one.
PTX_INLINE void mm_out_one(const mm_out &to, long long row, int n, float value) {
    if (n >= to.args.n) {
        return;
    }
    if (to.bias) {
        value += to.bias[n];
    }
    if (to.residual) {
        value += ((const float *)((const char *)to.residual + row * to.args.residual_stride))[n];
    }
    ((float *)((char *)to.out + row * to.args.out_stride))[n] = value;
}

// Outputs n .. n + 3, times a factor; n is a multiple of 4.
PTX_INLINE void mm_out_four(const mm_out &to, long long row, int n, float factor, float4 v) {
    if (!to.args.out_wide) {
#pragma unroll 1 // seldom taken, and in every kernel several times: what counts is to compile it
        for (int i = 0; i < 4; i++) {
            float value = i < 2 ? (i == 0 ? v.x : v.y) : (i == 2 ? v.z : v.w);
            mm_out_one(to, row, n + i, value * factor);
        }
        return;
    }
    if (n >= to.args.n) {
        return;
    }
    v = make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
    if (to.bias) {
        v = make_float4(
                v.x + to.bias[n], v.y + to.bias[n + 1], v.z + to.bias[n + 2], v.w + to.bias[n + 3]);
    }
    if (to.residual) {
        const char *from = (const char *)to.residual + row * to.args.residual_stride;
        float4 r = *(const float4 *)(from + 4ll * n);
        v = make_float4(v.x + r.x, v.y + r.y, v.z + r.z, v.w + r.w);
    }
    *(float4 *)((char *)to.out + row * to.args.out_stride + 4ll * n) = v;
}

#endif
