// activate: the activation of a gated FFN, silu or gelu_tanh, in f32. Every kernel that applies it
// has it from here. Where a compiler could make one rounding of two, the one that is meant is
// spelled, so that a fused kernel has the bits of the activation kernel. (expf ends with a product
// by a power of two, which is exact: to add 1 to it in the same step changes nothing.)
//
// gelu_tanh(x) = x / 2 * (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) * (x + 0.044715 x^3):
// the second form does not cancel for negative x.
#ifndef KILN_COMMON_ACTIVATE_CUH
#define KILN_COMMON_ACTIVATE_CUH

#include "common/ptx.cuh"

#define ACTIVATE_SILU      1 // of enum kiln_activation
#define ACTIVATE_GELU_TANH 2

PTX_INLINE float activate(int kind, float x) {
    float u = 0.797884561f * fmaf(0.044715f * x * x, x, x);
    return x / (1.0f + expf(kind == ACTIVATE_SILU ? -x : -2.0f * u));
}

// act(GATE) * UP of four outputs.
PTX_INLINE float4 activate_four(int kind, float4 gate, float4 up) {
    return make_float4(__fmul_rn(activate(kind, gate.x), up.x),
            __fmul_rn(activate(kind, gate.y), up.y), __fmul_rn(activate(kind, gate.z), up.z),
            __fmul_rn(activate(kind, gate.w), up.w));
}

#endif
