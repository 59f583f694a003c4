// mm_scale: the power of two that a row of activations is multiplied by to be held as f16, by its
// largest magnitude. f16 goes from 2^-14 (2^-24 as a subnormal) to 65504: a row whose largest
// magnitude is outside [2^-6, 2^15) is moved there; others are left as they are.
#ifndef KILN_MATMUL_MM_SCALE_CUH
#define KILN_MATMUL_MM_SCALE_CUH

#include "common/ptx.cuh"

// As its exponent. Infinite and NaN magnitudes stay what they are.
PTX_INLINE int mm_scale_exponent(float largest) {
    int exponent = (__float_as_int(largest) >> 23 & 255) - 127; // -127: 0 or subnormal
    if (exponent >= 15 && exponent < 128) {
        return 14 - exponent;
    }
    return exponent < -6 && largest > 0 ? -6 - (exponent < -126 ? -126 : exponent) : 0;
}

// 2 to the power of what mm_scale_exponent gives, and what undoes it.
PTX_INLINE float mm_scale_factor(int exponent) {
    return __int_as_float((exponent + 127) << 23);
}

PTX_INLINE float mm_scale_inverse(int exponent) {
    return __int_as_float((127 - exponent) << 23);
}

#endif
