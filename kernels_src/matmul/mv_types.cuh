// mv_types: block types of weights as bytes for mm_stream: what a lane makes of the bytes of a row
// that lie in shared memory. Several types in one compilation, unlike dequant.cuh, whose table says
// how the blocks are laid out.
//
// A row is taken in units of 256 columns: one block, or eight blocks of 32. A unit's columns belong
// to the four lanes t of a quad, 64 neighbours each. word(i), i in 0 .. 15, holds the quants of
// columns 64t + 4i .. + 3 as bytes, unsigned unless mv_signed, and
//
//   value = factor[g] * byte - offset[g],   g = i / (mv_group / 4), mv_group columns a group
//
// Rows may begin at any even address: `at` is a shared-memory address of any even value, and
// 16-byte aligned where mv_aligned. Reading touches up to 3 bytes on either side of a unit.
#ifndef KILN_MATMUL_MV_TYPES_CUH
#define KILN_MATMUL_MV_TYPES_CUH

#include "common/ptx.cuh"

// What is in shared memory is named by its distance from the start.
extern __shared__ __align__(16) unsigned char mv_shared[];

PTX_INLINE unsigned mv_word(unsigned at) {
    return *(const unsigned *)(mv_shared + at);
}

PTX_INLINE unsigned short mv_half(unsigned at) {
    return *(const unsigned short *)(mv_shared + at);
}

PTX_INLINE uint4 mv_four(unsigned at) {
    return *(const uint4 *)(mv_shared + at);
}

// Count words from an even address on.
template <int Count> PTX_INLINE void mv_words(unsigned *to, unsigned at) {
    unsigned base = at & ~3u;
    unsigned shift = (at & 2) * 8;
    unsigned low = mv_word(base);
#pragma unroll
    for (int i = 0; i < Count; i++) {
        unsigned high = mv_word(base + 4 * (i + 1));
        to[i] = __funnelshift_r(low, high, shift);
        low = high;
    }
}

PTX_INLINE unsigned mv_rotate(unsigned value, int left) {
    return __funnelshift_l(value, value, left);
}

// The two 6-bit scales and minimums of groups 2t and 2t + 1 of a q4_K or q5_K block.
PTX_INLINE void mv_k_scales(uint4 head, int t, float (&factor)[2], float (&offset)[2]) {
    int shift = t % 2 * 16;
    unsigned a = head.y >> shift;
    unsigned b = head.z >> shift;
    unsigned c = head.w >> shift;
    unsigned scales = t < 2 ? a & 0x3f3f : (c & 0x0f0f) | (a >> 2 & 0x3030);
    unsigned mins = t < 2 ? b & 0x3f3f : (c >> 4 & 0x0f0f) | (b >> 2 & 0x3030);
    float d = ptx_low_half(head.x);
    float dmin = ptx_high_half(head.x);
    factor[0] = d * (float)(scales & 0xff);
    factor[1] = d * (float)(scales >> 8 & 0xff);
    offset[0] = dmin * (float)(mins & 0xff);
    offset[1] = dmin * (float)(mins >> 8 & 0xff);
}

// High nibbles stay where they are, 16 times as large, which the factor takes back.
struct mv_q4_K {
    static constexpr int unit_bytes = 144, mv_group = 32;
    static constexpr bool mv_aligned = true, mv_signed = false;
    unsigned low[8];
    float factor[2], offset[2];

    __device__ __forceinline__ void load(unsigned at, int t) {
        mv_k_scales(mv_four(at), t, factor, offset);
        factor[1] *= 0.0625f;
        *(uint4 *)low = mv_four(at + 16 + 32 * t);
        *(uint4 *)(low + 4) = mv_four(at + 32 + 32 * t);
    }
    __device__ __forceinline__ unsigned word(int i) const {
        return i < 8 ? low[i] & 0x0f0f0f0f : low[i - 8] & 0xf0f0f0f0;
    }
};

struct mv_q5_K {
    static constexpr int unit_bytes = 176, mv_group = 32;
    static constexpr bool mv_aligned = true, mv_signed = false;
    unsigned low[8], high[8]; // high: bits 4 and 5 of a byte are the fifth bits of both groups
    float factor[2], offset[2];

    __device__ __forceinline__ void load(unsigned at, int t) {
        mv_k_scales(mv_four(at), t, factor, offset);
        *(uint4 *)low = mv_four(at + 48 + 32 * t);
        *(uint4 *)(low + 4) = mv_four(at + 64 + 32 * t);
        *(uint4 *)high = mv_four(at + 16);
        *(uint4 *)(high + 4) = mv_four(at + 32);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            high[i] = mv_rotate(high[i], 4 - 2 * t);
        }
    }
    __device__ __forceinline__ unsigned word(int i) const {
        return i < 8 ? (low[i] & 0x0f0f0f0f) | (high[i] & 0x10101010)
                     : (low[i - 8] >> 4 & 0x0f0f0f0f) | (high[i - 8] >> 1 & 0x10101010);
    }
};

// Lanes 2h and 2h + 1 share the bytes of half h: one has the low nibbles, the other the high ones.
struct mv_q6_K {
    static constexpr int unit_bytes = 210, mv_group = 16;
    static constexpr bool mv_aligned = false, mv_signed = false;
    unsigned low[16], high[8]; // high: bits 4, 5 for words 0 .. 7, bits 6, 7 for words 8 .. 15
    float factor[4], offset[4];

    __device__ __forceinline__ void load(unsigned at, int t) {
        int half = t / 2;
        int odd = t % 2;
        mv_words<16>(low, at + 64 * half);
        mv_words<8>(high, at + 128 + 32 * half);
        unsigned scales;
        mv_words<1>(&scales, at + 192 + 4 * t);
        float d = ptx_half_to_float(mv_half(at + 208));
#pragma unroll
        for (int i = 0; i < 16; i++) {
            low[i] = low[i] >> (4 * odd);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            high[i] = mv_rotate(high[i], 4 - 4 * odd);
        }
#pragma unroll
        for (int g = 0; g < 4; g++) {
            factor[g] = d * (float)(signed char)(scales >> (8 * g));
            offset[g] = 32.0f * factor[g];
        }
    }
    __device__ __forceinline__ unsigned word(int i) const {
        return (low[i] & 0x0f0f0f0f) | ((i < 8 ? high[i] : high[i - 8] >> 2) & 0x30303030);
    }
};

struct mv_q8_0 {
    static constexpr int unit_bytes = 272, mv_group = 32;
    static constexpr bool mv_aligned = false, mv_signed = true;
    unsigned low[16];
    float factor[2], offset[2];

    __device__ __forceinline__ void load(unsigned at, int t) {
#pragma unroll
        for (int b = 0; b < 2; b++) {
            unsigned block = at + (2 * t + b) * 34;
            factor[b] = ptx_half_to_float(mv_half(block));
            offset[b] = 0.0f;
            mv_words<8>(low + 8 * b, block + 2);
        }
    }
    __device__ __forceinline__ unsigned word(int i) const {
        return low[i];
    }
};

// q4_0, q4_1, q5_0: 32 columns a block; byte i has columns i and i + 16.
template <int Bytes, bool Minimum, bool Fifth> struct mv_32 {
    static constexpr int unit_bytes = 8 * Bytes, mv_group = 32;
    static constexpr bool mv_aligned = false, mv_signed = false;
    unsigned low[8], high[2];
    float factor[2], offset[2];

    __device__ __forceinline__ void load(unsigned at, int t) {
#pragma unroll
        for (int b = 0; b < 2; b++) {
            unsigned block = at + (2 * t + b) * Bytes;
            factor[b] = ptx_half_to_float(mv_half(block));
            offset[b] = Minimum ? -ptx_half_to_float(mv_half(block + 2))
                                : (Fifth ? 16.0f : 8.0f) * factor[b];
            if (Fifth) {
                mv_words<1>(high + b, block + 2);
            }
            mv_words<4>(low + 4 * b, block + Bytes - 16);
        }
    }
    // Bits 0 .. 3 to bit 4 of bytes 0 .. 3.
    static __device__ __forceinline__ unsigned spread(unsigned bits) {
        return ((bits & 15) * 0x00204081u & 0x01010101u) << 4;
    }
    __device__ __forceinline__ unsigned word(int i) const {
        int b = i / 8;
        unsigned q = low[4 * b + i % 4];
        q = (i % 8 < 4 ? q : q >> 4) & 0x0f0f0f0f;
        return Fifth ? q | spread(high[b] >> (i % 8 * 4)) : q;
    }
};
typedef mv_32<18, false, false> mv_q4_0;
typedef mv_32<20, true, false> mv_q4_1;
typedef mv_32<22, false, true> mv_q5_0;

// What Units units of a row take in shared memory: 16-byte pieces that cover them wherever they
// begin, and the distance from row to row: an odd number of pieces, so that eight rows fall into
// different banks.
template <class Type, int Units>
constexpr int mv_pieces = Type::mv_aligned ? Units *Type::unit_bytes / 16
                                           : (Units *Type::unit_bytes + 14 + 15) / 16;
template <class Type, int Units> constexpr int mv_stride = (mv_pieces<Type, Units> | 1) * 16;

#endif
