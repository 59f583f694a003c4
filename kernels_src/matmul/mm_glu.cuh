// mm_glu: how the results of a gate and an up product leave together: OUT = act(GATE) * UP, GATE
// and UP being sums times their row's factor, + their BIAS, as mm_out has them. Rounded to f32
// where the products would be written and the activation would read them, so that the bits are
// those of three kernels.
//
// OUT is f32, or f16 for a product that would round it to f16 anyway: magnitudes above the largest
// of f16 become that, infinities stay what they are.
//
// Defines: MM_GLU, of enum kiln_activation.
#ifndef KILN_MATMUL_MM_GLU_CUH
#define KILN_MATMUL_MM_GLU_CUH

#include "common/activate.cuh"
#include "matmul/mm_args.cuh"

struct mm_glu {
    const float *gate_bias, *up_bias; // (N) or NULL
    float *out;                       // (S, N); f16 where args.out_f16 says so
    const mm_args &args;
};

// Sums of outputs n .. n + 3 times a factor, + BIAS.
PTX_INLINE float4 mm_glu_sums(float4 v, float factor, const float *bias, int n, int end) {
    v = make_float4(__fmul_rn(v.x, factor), __fmul_rn(v.y, factor), __fmul_rn(v.z, factor),
            __fmul_rn(v.w, factor));
    if (bias) {
        v.x = __fadd_rn(v.x, bias[n]);
        v.y = __fadd_rn(v.y, bias[min(n + 1, end - 1)]);
        v.z = __fadd_rn(v.z, bias[min(n + 2, end - 1)]);
        v.w = __fadd_rn(v.w, bias[min(n + 3, end - 1)]);
    }
    return v;
}

// What f16 holds of a magnitude beyond its largest.
PTX_INLINE float mm_glu_held(float v) {
    float size = fabsf(v);
    return size > 65504.0f && size <= 3.402823466e38f ? copysignf(65504.0f, v) : v;
}

// Four as f16. Nearly always none is beyond the largest.
PTX_INLINE uint2 mm_glu_halves(float4 v) {
    float most = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    if (most > 65504.0f) {
        v = make_float4(mm_glu_held(v.x), mm_glu_held(v.y), mm_glu_held(v.z), mm_glu_held(v.w));
    }
    return make_uint2(ptx_pack_half2(v.x, v.y), ptx_pack_half2(v.z, v.w));
}

// Outputs n .. n + 3 of a row, those that there are; n is a multiple of 4.
PTX_INLINE void mm_glu_four(
        const mm_glu &to, long long row, int n, float factor, float4 gate, float4 up) {
    const mm_args &args = to.args;
    if (n >= args.n) {
        return;
    }
    gate = mm_glu_sums(gate, factor, to.gate_bias, n, args.n);
    up = mm_glu_sums(up, factor, to.up_bias, n, args.n);
    float4 v = activate_four(MM_GLU, gate, up);
    char *at = (char *)to.out + row * args.out_stride;
    if (args.out_f16) {
        uint2 halves = mm_glu_halves(v);
        if (args.out_wide) {
            *(uint2 *)(at + 2ll * n) = halves;
            return;
        }
#pragma unroll 1
        for (int i = 0; i < 4 && n + i < args.n; i++) {
            unsigned two = i < 2 ? halves.x : halves.y;
            ((unsigned short *)at)[n + i] = (unsigned short)(i % 2 == 0 ? two : two >> 16);
        }
        return;
    }
    if (args.out_wide) {
        *(float4 *)(at + 4ll * n) = v;
        return;
    }
#pragma unroll 1
    for (int i = 0; i < 4 && n + i < args.n; i++) {
        ((float *)at)[n + i] = i < 2 ? (i == 0 ? v.x : v.y) : (i == 2 ? v.z : v.w);
    }
}

#endif
