// mmq_weights: the block types of dequant.cuh as the int8 kernels want them: signed bytes, and for
// each 32 columns factors in f32. With I = sum of w * q over 32 columns (q6_K: over each 16), T the
// activations' scaled sum:
//
//   sum of value * x = scale * factor * I + minimum * T     q4_1, q4_K, q5_K
//                    = scale * (factor0 * I0 + factor1 * I1) q6_K
//                    = scale * factor * I                    q4_0, q5_0, q8_0
//
// The bytes w are those of the host's exact_q8. A factor has at most 19 significant bits.
#ifndef KILN_MATMUL_MMQ_WEIGHTS_CUH
#define KILN_MATMUL_MMQ_WEIGHTS_CUH

#include "common/dequant.cuh"

#if W_IS_FLOAT
#    error "W_TYPE: a block type"
#endif

#define MMQ_HAS_MIN (W_IS_K || W_IS(q4_1))
#define MMQ_HALVES  W_IS(q6_K)
#define MMQ_PAIR    (MMQ_HAS_MIN || MMQ_HALVES) // two numbers for each 32 columns

// Run `run` of a unit (dequant.cuh) as signed bytes.
PTX_INLINE uint2 mmq_bytes(const w_raw &raw, int unit, int run) {
    uint2 q = w_quants(raw, unit, run);
#if W_IS(q8_0)
    return make_uint2(q.x ^ 0x80808080u, q.y ^ 0x80808080u);
#elif W_IS(q4_0) || W_IS(q5_0) || W_IS(q6_K)
    // q - zero in each byte: 128 - zero more never carries, and the top bit takes 128 back.
    constexpr unsigned lift = (W_IS(q4_0) ? 120u : W_IS(q5_0) ? 112u : 96u) * 0x01010101u;
    return make_uint2((q.x + lift) ^ 0x80808080u, (q.y + lift) ^ 0x80808080u);
#else
    return q;
#endif
}

// Units whose two runs give all factors of a tile: every MMQ_EVERY-th.
#define MMQ_EVERY (W_IS_K ? 4 : 2)

// Calls put(column of the 32, which of the two numbers, value) for the factors that a unit knows.
template <typename Put> PTX_INLINE void mmq_factors(const w_raw &raw, int unit, const Put &put) {
    float factor[2];
    float offset[2];
    w_scales(raw, unit, factor, offset);
    int column = w_column(unit);
#if MMQ_HALVES
    put(column, column / 16 % 2, factor[0]);
    put(column + W_GAP, column / 16 % 2, factor[1]);
#else
    put(column, 0, factor[0]);
#    if MMQ_HAS_MIN
    put(column, 1, -offset[0]);
#    endif
#    if W_IS_K
    put(column + W_GAP, 0, factor[1]);
    put(column + W_GAP, 1, -offset[1]);
#    endif
#endif
}

#endif
