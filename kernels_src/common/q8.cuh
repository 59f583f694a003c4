// q8: the edge format "q8_32w": activations as 8-bit integers with two f32 for each 32 columns. A
// row of K columns has K / 32 * 48 bytes, a multiple of 16, so that copies take 16 at a time:
//
//   0 q i8[K] | K (scale f32, scale * (sum of its q) f32)[K / 32] | unused      value = scale * q
//
// The integers of a tile of 128 columns are one line of memory, its scales one sector: with each
// block's scale behind its integers, a copy would touch three times the lines.
//
// The integers and the scale are those of the host's q8_32, to the bit. With a the largest |x|:
//   a NaN or infinite: scale NaN, q 0;  a < 2^-100: scale 0, q 0;
//   else scale = a / 127, q = x * (127 / a) to the nearest integer, ties to even.
// The sum is exact before it is scaled: |sum| <= 4064. Kept in f16, as others do, the product of 32
// equal values overflows from 2047 on.
//
// Here: what makes a block. Not here: who reads it.
#ifndef KILN_COMMON_Q8_CUH
#define KILN_COMMON_Q8_CUH

#include "common/ptx.cuh"

#define Q8_COLUMNS 32
#define Q8_BYTES   48 // of a row, for each 32 columns

PTX_INLINE bool q8_finite(float size) {
    return size <= 3.402823466e38f; // NaN is not
}

// Columns c .. c + 3 of a row of `columns`: 32 columns by 8 neighbouring lanes, the first of which
// is a multiple of 8. All lanes of the group are there; others of the warp need not be.
PTX_INLINE void q8_put(unsigned char *row, int columns, int c, float4 x) {
    int lane = ptx_lane();
    unsigned group = 0xffu << (lane & 24);
    float size = fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
    bool finite = q8_finite(fabsf(x.x)) && q8_finite(fabsf(x.y)) && q8_finite(fabsf(x.z)) &&
                  q8_finite(fabsf(x.w));
    size = finite ? size : __int_as_float(0x7f800000);
#pragma unroll
    for (int mask = 1; mask < 8; mask *= 2) {
        size = fmaxf(size, __shfl_xor_sync(group, size, mask));
    }
    finite = q8_finite(size);
    bool zero = !finite || size < 7.888609052e-31f; // 2^-100: below it 127 / size could overflow
    float inverse = 127.0f / size;
    int q[4] = {__float2int_rn(x.x * inverse), __float2int_rn(x.y * inverse),
            __float2int_rn(x.z * inverse), __float2int_rn(x.w * inverse)};
    unsigned word = (unsigned)(q[0] & 255) | (unsigned)(q[1] & 255) << 8 |
                    (unsigned)(q[2] & 255) << 16 | (unsigned)q[3] << 24;
    int sum = zero ? 0 : q[0] + q[1] + q[2] + q[3];
#pragma unroll
    for (int mask = 1; mask < 8; mask *= 2) {
        sum += __shfl_xor_sync(group, sum, mask);
    }
    *(unsigned *)(row + c) = zero ? 0 : word;
    if ((lane & 7) == 0) {
        float scale = !finite ? __int_as_float(0x7fffffff) : zero ? 0.0f : size / 127.0f;
        *(float2 *)(row + columns + c / Q8_COLUMNS * 8) = make_float2(scale, scale * (float)sum);
    }
}

#endif
