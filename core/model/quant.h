// quant: weight types to f32 and back: what the bytes of each block mean, and one plain way to make
// them.
//
// Used by what writes or rewrites models (synth, widen) and by tests. The forward pass does not
// come here: each plugin reads blocks itself. Numbers are little-endian; f16 is IEEE half, bf16 the
// upper half of an f32.
//
// A row of n values is n / elems blocks, one behind the other. Byte offsets within a block:
//
//   q4_0   | 0 d f16 | 2 qs[16] |                                     18 bytes, 32 values
//          value i = d * (nibble i - 8); nibbles 0..15 are the low ones of qs[0..15], 16..31 the
//          high ones
//   q4_1   | 0 d f16 | 2 m f16 | 4 qs[16] |                           20 bytes, 32 values
//          value i = d * nibble i + m
//   q5_0   | 0 d f16 | 2 qh u32 | 6 qs[16] |                          22 bytes, 32 values
//          value i = d * ((nibble i | bit i of qh << 4) - 16)
//   q8_0   | 0 d f16 | 2 qs[32] i8 |                                  34 bytes, 32 values
//          value i = d * qs[i]
//   q4_K   | 0 d f16 | 2 dmin f16 | 4 scales[12] | 16 qs[128] |       144 bytes, 256 values
//          8 groups of 32; groups 2j and 2j+1 are the low and the high nibbles of qs[32j .. 32j+31]
//          value = d * scale(group) * nibble - dmin * min(group)
//          scales: 6 bits each,   group 0..3: scale = bits 0-5 of [g],     min = bits 0-5 of [g +
//          4]
//                                 group 4..7: scale = bits 0-3 of [g + 4], then bits 6-7 of [g - 4]
//                                             min   = bits 4-7 of [g + 4], then bits 6-7 of [g]
//   q5_K   | 0 d f16 | 2 dmin f16 | 4 scales[12] | 16 qh[32] | 48 qs[128] |      176 bytes, 256
//   values
//          as q4_K; the fifth bit of value l of group g is bit g of qh[l]
//   q6_K   | 0 ql[128] | 128 qh[64] | 192 scales[16] i8 | 208 d f16 | 210 bytes, 256 values
//          value i = d * scales[i / 16] * (number i - 32); half h = i / 128, part p = i % 128 / 32,
//          l = i % 32: number i: bits 0-3 from ql[64h + 32(p % 2) + l] (low nibble when p < 2),
//          bits 4-5 are bits 2p, 2p+1 of qh[32h + l]
#ifndef KILN_MODEL_QUANT_H
#define KILN_MODEL_QUANT_H

#include <stddef.h>
#include <stdint.h>

// src: a row's blocks, any alignment; dst: (n) f32. Returns 0, or -1 with nothing written when
// `dtype` is not a weight type (kiln_dtype_info()->weight) or n no multiple of its block. Every
// product is exact in f32.
int kiln_dequant_row(uint32_t dtype, const void *src, float *dst, size_t n);

// The other way; src: (n) f32, finite. Returns as above. Each block by itself, without looking at
// what the values mean; d, dmin are rounded to f16 first (at most 65504) and the numbers chosen for
// the rounded ones, to nearest:
//   f16, bf16   to nearest, ties to even
//   q8_0        d = largest magnitude / 127
//   q4_0, q5_0  d = -(value of largest magnitude) / 8 or 16, so that this one uses the longer
//   negative side q4_1        m = smallest, d = (largest - smallest) / 15
//   q4_K, q5_K  a group's scale and minimum as in q4_1 (the minimum not above 0), both rounded to 6
//   bits of the
//               largest in the block
//   q6_K        a group's scale as in q4_0 with 32, rounded to a share of the largest in the block
//   over 127
int kiln_quantize_row(uint32_t dtype, const float *src, void *dst, size_t n);

float kiln_f16_to_f32(uint16_t half);
uint16_t kiln_f32_to_f16(
        float value); // to nearest, ties to even; NaN stays NaN, 65520 and more is infinity
uint16_t kiln_f32_to_bf16(float value); // to nearest, ties to even; NaN stays NaN

// The 6-bit scales and minimums of the 8 groups of q4_K and q5_K; packed: 12 bytes.
void kiln_unpack_scales(const uint8_t *packed, uint8_t scales[8], uint8_t mins[8]);
void kiln_pack_scales(const uint8_t scales[8], const uint8_t mins[8], uint8_t *packed);

#endif
