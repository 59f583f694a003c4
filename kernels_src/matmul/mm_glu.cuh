// mm_glu: how the results of a gate and an up product leave together: OUT = act(GATE) * UP, GATE
// and UP being sums times their row's factor, + their BIAS, as mm_out has them. Rounded to f32
// where the products would be written and the activation would read them, so that the bits are
// those of three kernels.
//
// OUT is f32, or rows of f16 with a factor each, for a product on f16 tensor cores: what mm_rows
// would make of the f32. A row's factor depends on its largest magnitude, which no block knows
// before all are done, so there are two launches. The first writes every row as it is, and each
// row's largest. In the second, of few blocks, those whose rows are all of ordinary size leave at
// once, but for the factors; where a row is to be scaled, its outputs are made again and written
// scaled.
//
// Defines: MM_GLU, of enum kiln_activation.
#ifndef KILN_MATMUL_MM_GLU_CUH
#define KILN_MATMUL_MM_GLU_CUH

#include "common/activate.cuh"
#include "matmul/mm_args.cuh"
#include "matmul/mm_scale.cuh"

struct mm_glu {
    const float *gate_bias, *up_bias; // (N) or NULL
    float *out;                       // (S, N); rows of f16 where args.out_rows says so
    unsigned
            *largest; // (S), of such rows: bits of the largest magnitude, 0 before the first launch
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

PTX_INLINE int mm_glu_exponent(const mm_glu &to, long long row) {
    return mm_scale_exponent(__uint_as_float(to.largest[row]));
}

// Four of a row, by the launch; their largest magnitude, of which NaN is none.
PTX_INLINE float mm_glu_halves(const mm_glu &to, long long row, char *at, float4 v) {
    if (to.args.again) {
        int exponent = mm_glu_exponent(to, row);
        if (exponent == 0) {
            return 0;
        }
        float factor = mm_scale_factor(exponent);
        v = make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
    }
    *(uint2 *)at = make_uint2(ptx_pack_half2(v.x, v.y), ptx_pack_half2(v.z, v.w));
    return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

// Outputs n .. n + 3 of a row, those that there are; n is a multiple of 4. Gives what mm_glu_note
// is to be told.
PTX_INLINE float mm_glu_four(
        const mm_glu &to, long long row, int n, float factor, float4 gate, float4 up) {
    const mm_args &args = to.args;
    if (n >= args.n) {
        return 0;
    }
    gate = mm_glu_sums(gate, factor, to.gate_bias, n, args.n);
    up = mm_glu_sums(up, factor, to.up_bias, n, args.n);
    float4 v = activate_four(MM_GLU, gate, up);
    char *at = (char *)to.out + row * args.out_stride;
    if (args.out_rows) {
        return mm_glu_halves(to, row, at + 2ll * n, v);
    }
    if (args.out_wide) {
        *(float4 *)(at + 4ll * n) = v;
        return 0;
    }
#pragma unroll 1
    for (int i = 0; i < 4 && n + i < args.n; i++) {
        ((float *)at)[n + i] = i < 2 ? (i == 0 ? v.x : v.y) : (i == 2 ? v.z : v.w);
    }
    return 0;
}

// The whole warp: the largest magnitude of a row as Lanes lanes, which follow each other, have it.
// Magnitudes have the order of their bits, and a largest is the same in any order of adding to it.
template <int Lanes> PTX_INLINE void mm_glu_note(const mm_glu &to, long long row, float largest) {
    if (!to.args.out_rows || to.args.again) {
        return;
    }
#pragma unroll
    for (int mask = Lanes / 2; mask > 0; mask /= 2) {
        largest = ptx_xor_max(largest, mask);
    }
    if (ptx_lane() % Lanes == 0 && largest > 0) {
        atomicMax(&to.largest[row], __float_as_uint(largest));
    }
}

// The second launch: whether one of these rows is to be made again, the same for all threads of the
// block: each warp looks at all of them. The first of the rows' blocks writes their factors.
PTX_INLINE bool mm_glu_again(const mm_glu &to, int first, int count, int rows) {
    bool is_scaled = false;
    for (int row = first + ptx_lane(); row < min(first + count, rows); row += 32) {
        int exponent = mm_glu_exponent(to, row);
        is_scaled |= exponent != 0;
        if (blockIdx.y == 0 && threadIdx.x < 32) {
            char *at = (char *)to.out + row * to.args.out_stride;
            *(float *)(at + 2ll * to.args.n) = mm_scale_inverse(exponent);
        }
    }
    return __any_sync(0xffffffffu, is_scaled) != 0;
}

#endif
