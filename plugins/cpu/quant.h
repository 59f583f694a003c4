// quant: how the weight types lie in memory, as in GGUF files. Numbers are little-endian; f16 is
// IEEE half.
// What is not here: arithmetic (dequant.h, quant_avx2.h).
//
// A row of K values is K / elems blocks, one behind the other. Byte offsets within a block:
//
//   f32, f16, bf16   one value a block; bf16 is the upper half of an f32
//
//   q4_0   0 d f16 | 2 qs[16]                          18 bytes, 32 values
//          value i      = d * ((qs[i] & 15) - 8)       i < 16: low nibbles first,
//          value i + 16 = d * ((qs[i] >> 4) - 8)       then the high ones
//   q4_1   0 d f16 | 2 m f16 | 4 qs[16]                20 bytes, 32 values
//          d * nibble + m, nibbles as in q4_0
//   q5_0   0 d f16 | 2 qh u32 | 6 qs[16]               22 bytes, 32 values
//          d * ((nibble of value i | bit i of qh << 4) - 16)
//   q8_0   0 d f16 | 2 qs[32] i8                       34 bytes, 32 values
//          d * qs[i]
//
//   q4_K   0 d f16 | 2 dmin f16 | 4 scales[12] | 16 qs[128]                  144 bytes, 256 values
//          8 groups of 32. Groups 2j and 2j+1 are the low and the high nibbles of qs[32j..32j+31].
//          value = d * scale[group] * nibble - dmin * min[group]
//          scales: 8 scales and 8 minimums of 6 bits each.
//            group g < 4:  scale = scales[g] & 63                min = scales[g + 4] & 63
//            group g >= 4: scale = (scales[g + 4] & 15) | (scales[g - 4] >> 6) << 4
//                          min   = (scales[g + 4] >> 4) | (scales[g] >> 6) << 4
//   q5_K   0 d f16 | 2 dmin f16 | 4 scales[12] | 16 qh[32] | 48 qs[128]      176 bytes, 256 values
//          as q4_K; the fifth bit of value l of group g is bit g of qh[l]
//   q6_K   0 ql[128] | 128 qh[64] | 192 scales[16] i8 | 208 d f16            210 bytes, 256 values
//          two halves of 128 values, each with 64 bytes of ql, 32 of qh and 8 scales. In a half,
//          for l < 32:
//            value l      low nibble of ql[l],       bits 0-1 of qh[l]
//            value l + 32 low nibble of ql[l + 32],  bits 2-3 of qh[l]
//            value l + 64 high nibble of ql[l],      bits 4-5 of qh[l]
//            value l + 96 high nibble of ql[l + 32], bits 6-7 of qh[l]
//          value = d * scales[value / 16] * (6-bit number - 32)
//
// Every product here is exact in f32 (11 bits of d, at most 7 of a scale, at most 6 of a quant), so
// the order of the factors does not matter, and a fused multiply-add that adds the minimum gives
// the same bits as a multiplication and an addition: all that dequantize agree bit for bit, but for
// the sign of zero.
#ifndef CPU_QUANT_H
#define CPU_QUANT_H

enum {
    CPU_Q4_0_D = 0,
    CPU_Q4_0_QS = 2,
    CPU_Q4_0_BYTES = 18,

    CPU_Q4_1_D = 0,
    CPU_Q4_1_M = 2,
    CPU_Q4_1_QS = 4,
    CPU_Q4_1_BYTES = 20,

    CPU_Q5_0_D = 0,
    CPU_Q5_0_QH = 2,
    CPU_Q5_0_QS = 6,
    CPU_Q5_0_BYTES = 22,

    CPU_Q8_0_D = 0,
    CPU_Q8_0_QS = 2,
    CPU_Q8_0_BYTES = 34,

    CPU_QK_D = 0, // of q4_K and q5_K
    CPU_QK_DMIN = 2,
    CPU_QK_SCALES = 4,
    CPU_Q4_K_QS = 16,
    CPU_Q4_K_BYTES = 144,
    CPU_Q5_K_QH = 16,
    CPU_Q5_K_QS = 48,
    CPU_Q5_K_BYTES = 176,

    CPU_Q6_K_QL = 0,
    CPU_Q6_K_QH = 128,
    CPU_Q6_K_SCALES = 192,
    CPU_Q6_K_D = 208,
    CPU_Q6_K_BYTES = 210,
};

#endif
