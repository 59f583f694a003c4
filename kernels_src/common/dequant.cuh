// dequant: the weight types, as they lie in GGUF files, to f32. One type a compilation: define
// W_TYPE (q4_K, f16, ...) and W_ALIGN, the power of two (2 to 16) that divides every row's address.
// Not here: where the values go.
//
// A row of K values is K / W_BLOCK blocks of W_BYTES bytes. It is read in units of 16 values,
// chosen so that a unit's two runs of 8 neighbours share their bytes: run 1 begins W_GAP values
// after run 0.
//
//   type   block  bytes  gap   bytes of a block                              value
//   q4_0    32     18    16   | 0 d f16 | 2 qs[16]                    |  d * (nibble - 8)
//   q4_1    32     20    16   | 0 d f16 | 2 m f16 | 4 qs[16]          |  d * nibble + m
//   q5_0    32     22    16   | 0 d f16 | 2 qh u32 | 6 qs[16]         |  d * (5 bits - 16)
//   q8_0    32     34     8   | 0 d f16 | 2 qs[32] i8                 |  d * qs
//   q4_K   256    144    32   | 0 d | 2 dmin | 4 scales[12] | 16 qs[128]
//                                                     d * scale * nibble - dmin * min
//   q5_K   256    176    32   | 0 d | 2 dmin | 4 scales[12] | 16 qh[32] | 48 qs[128]
//                                                     d * scale * (5 bits) - dmin * min
//   q6_K   256    210    64   | 0 ql[128] | 128 qh[64] | 192 scales[16] i8 | 208 d f16
//                                                     d * scale * (6 bits - 32)
//   f16, bf16, f32: a value a block, gap 8
//
// q4_0, q4_1, q5_0: byte i holds value i in its low nibble and value i + 16 in its high one; bit i
// of qh is the fifth of value i.
//
// q4_K, q5_K: 8 groups of 32. Groups 2j and 2j + 1 are the low and high nibbles of qs[32j .. 32j +
// 31]; bit g of qh[l] is the fifth of value l of group g. 8 scales and 8 minimums of 6 bits:
//   g < 4:  scale = s[g] & 63                              min = s[g + 4] & 63
//   g >= 4: scale = (s[g + 4] & 15) | (s[g - 4] >> 6) << 4  min = s[g + 4] >> 4 | (s[g] >> 6) << 4
//
// q6_K: two halves of 128. In a half, value 32p + l (and + 64, which is run 1) is the low (high)
// nibble of ql[32p + l] with bits 2p and 2p + 1 (2p + 4 and 2p + 5) of qh[l] above it.
//
// Each product is exact in f32, so every way to dequantize gives the same bits, but for the sign of
// zero.
#ifndef KILN_COMMON_DEQUANT_CUH
#define KILN_COMMON_DEQUANT_CUH

#include "common/ptx.cuh"

#ifndef W_TYPE
#    error "define W_TYPE: f32, f16, bf16, q4_0, q4_1, q5_0, q8_0, q4_K, q5_K or q6_K"
#endif
#ifndef W_ALIGN
#    error "define W_ALIGN: the power of two, 2 to 16, that divides the address of every row"
#endif

#define W_TYPE_f32  0 // numbers as in GGUF files
#define W_TYPE_f16  1
#define W_TYPE_q4_0 2
#define W_TYPE_q4_1 3
#define W_TYPE_q5_0 6
#define W_TYPE_q8_0 8
#define W_TYPE_q4_K 12
#define W_TYPE_q5_K 13
#define W_TYPE_q6_K 14
#define W_TYPE_bf16 30

#define W_PASTE(type)  W_TYPE_##type
#define W_NUMBER(type) W_PASTE(type)
#define W_IS(name)     (W_NUMBER(W_TYPE) == W_TYPE_##name)
#define W_IS_K         (W_IS(q4_K) || W_IS(q5_K))
#define W_IS_FLOAT     (W_IS(f32) || W_IS(f16) || W_IS(bf16))

#if W_IS(q4_0)
#    define W_BLOCK 32
#    define W_BYTES 18
#    define W_GAP   16
#elif W_IS(q4_1)
#    define W_BLOCK 32
#    define W_BYTES 20
#    define W_GAP   16
#elif W_IS(q5_0)
#    define W_BLOCK 32
#    define W_BYTES 22
#    define W_GAP   16
#elif W_IS(q8_0)
#    define W_BLOCK 32
#    define W_BYTES 34
#    define W_GAP   8
#elif W_IS(q4_K)
#    define W_BLOCK 256
#    define W_BYTES 144
#    define W_GAP   32
#elif W_IS(q5_K)
#    define W_BLOCK 256
#    define W_BYTES 176
#    define W_GAP   32
#elif W_IS(q6_K)
#    define W_BLOCK 256
#    define W_BYTES 210
#    define W_GAP   64
#elif W_IS(f32)
#    define W_BLOCK 1
#    define W_BYTES 4
#    define W_GAP   8
#else
#    define W_BLOCK 1
#    define W_BYTES 2
#    define W_GAP   8
#endif

static_assert(
        W_ALIGN == 2 || W_ALIGN == 4 || W_ALIGN == 8 || W_ALIGN == 16, "W_ALIGN is 2, 4, 8 or 16");

// What divides a block's address.
constexpr int w_block_align = W_ALIGN < (W_BYTES & -W_BYTES) ? W_ALIGN : W_BYTES & -W_BYTES;

// ---- Reading bytes ------------------------------------------------------------------------------
PTX_INLINE unsigned w_load2(const unsigned char *at) {
    return *(const unsigned short *)at;
}

template <int Align> PTX_INLINE unsigned w_load4(const unsigned char *at) {
    if (Align >= 4) {
        return *(const unsigned *)at;
    }
    return w_load2(at) | w_load2(at + 2) << 16;
}

// Where only rows are aligned to 4, two words and a half cover 8 bytes at any even address; none of
// the three touches a byte outside the row.
template <int Align> PTX_INLINE uint2 w_load8(const unsigned char *at) {
    if (Align >= 8) {
        return *(const uint2 *)at;
    }
    if (Align >= 4) {
        return make_uint2(*(const unsigned *)at, *(const unsigned *)(at + 4));
    }
    if (W_ALIGN >= 4) {
        bool odd = ((unsigned long long)at & 2) != 0;
        const unsigned char *base = odd ? at - 2 : at;
        unsigned first = *(const unsigned *)base;
        unsigned second = *(const unsigned *)(base + 4);
        unsigned last = w_load2(at + 6);
        return make_uint2(
                odd ? first >> 16 | second << 16 : first, odd ? second >> 16 | last << 16 : second);
    }
    return make_uint2(w_load4<2>(at), w_load4<2>(at + 4));
}

template <int Align> PTX_INLINE uint4 w_load16(const unsigned char *at) {
    if (Align >= 16) {
        return *(const uint4 *)at;
    }
    uint2 low = w_load8<Align>(at);
    uint2 high = w_load8<Align>(at + 8);
    return make_uint4(low.x, low.y, high.x, high.y);
}

// ---- Units --------------------------------------------------------------------------------------
// Units of a row of k values. Block types: k is a multiple of W_BLOCK.
PTX_INLINE int w_units(int k) {
    return (k + 15) / 16;
}

// First column of a unit's run 0.
PTX_INLINE int w_column(int unit) {
    constexpr int lanes = W_GAP / 8;
    return unit / lanes * (2 * W_GAP) + unit % lanes * 8;
}

// The unit and run of the 8 values from column 8 * chunk on.
PTX_INLINE int w_unit_of(int chunk, int &run) {
    constexpr int lanes = W_GAP / 8;
    run = chunk / lanes % 2;
    return chunk / (2 * lanes) * lanes + chunk % lanes;
}

#if W_IS_FLOAT

struct w_raw {
    float v[16];
};

#    if W_IS(f32)
PTX_INLINE void w_load_run(float *v, const unsigned char *row, int column, int k) {
    const float *at = (const float *)row + column;
#        pragma unroll
    for (int i = 0; i < 8; i += 4) {
        if (W_ALIGN >= 16 && column + i + 4 <= k) {
            float4 four = *(const float4 *)(at + i);
            v[i] = four.x;
            v[i + 1] = four.y;
            v[i + 2] = four.z;
            v[i + 3] = four.w;
            continue;
        }
#        pragma unroll
        for (int j = i; j < i + 4; j++) {
            v[j] = column + j < k ? at[j] : 0.0f;
        }
    }
}
#    else
PTX_INLINE float w_half_value(unsigned bits) {
    return W_IS(f16) ? ptx_half_to_float((unsigned short)bits)
                     : ptx_bf16_to_float((unsigned short)bits);
}

PTX_INLINE void w_load_run(float *v, const unsigned char *row, int column, int k) {
    const unsigned char *at = row + 2 * column;
    if (W_ALIGN >= 16 && column + 8 <= k) {
        uint4 eight = *(const uint4 *)at;
        unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#        pragma unroll
        for (int i = 0; i < 4; i++) {
            v[2 * i] = w_half_value(pairs[i] & 0xffff);
            v[2 * i + 1] = w_half_value(pairs[i] >> 16);
        }
        return;
    }
#        pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = column + i < k ? w_half_value(w_load2(at + 2 * i)) : 0.0f;
    }
}
#    endif

// Columns from k on read as 0.
PTX_INLINE void w_load(w_raw &raw, const unsigned char *row, int unit, int k) {
    w_load_run(raw.v, row, 16 * unit, k);
    w_load_run(raw.v + 8, row, 16 * unit + 8, k);
}

PTX_INLINE void w_values(const w_raw &raw, int, int run, float (&v)[8]) {
#    pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = run ? raw.v[8 + i] : raw.v[i];
    }
}

// The unit's 16 values times x: run 0's 8, then run 1's. sums: of each run's x.
PTX_INLINE float w_dot(const w_raw &raw, int, const float (&x)[16], const float (&)[2]) {
    float sum = 0;
#    pragma unroll
    for (int i = 0; i < 16; i++) {
        sum = fmaf(raw.v[i], x[i], sum);
    }
    return sum;
}

#else // blocks of whole numbers: value = factor * quant - offset

#    if W_IS_K
struct w_raw {
    uint4 head; // d, dmin, scales
    uint2 low;
#        if W_IS(q5_K)
    uint2 high;
#        endif
};

PTX_INLINE void w_load(w_raw &raw, const unsigned char *row, int unit, int) {
    const unsigned char *block = row + (long long)(unit / 16) * W_BYTES;
    int at = unit % 16 * 8; // 32 bytes for each pair of groups, 8 a unit
    raw.head = w_load16<w_block_align>(block);
    raw.low = w_load8<w_block_align>(block + (W_IS(q5_K) ? 48 : 16) + at);
#        if W_IS(q5_K)
    raw.high = w_load8<w_block_align>(block + 16 + at % 32);
#        endif
}

PTX_INLINE uint2 w_quants(const w_raw &raw, int unit, int run) {
    uint2 q = make_uint2(raw.low.x >> (4 * run) & 0x0f0f0f0f, raw.low.y >> (4 * run) & 0x0f0f0f0f);
#        if W_IS(q5_K)
    int bit = unit % 16 / 4 * 2 + run;
    q.x |= (raw.high.x >> bit & 0x01010101) << 4;
    q.y |= (raw.high.y >> bit & 0x01010101) << 4;
#        endif
    return q;
}

// Both groups of the unit at once: groups 2j and 2j+1 have neighbouring bytes.
PTX_INLINE void w_scales(const w_raw &raw, int unit, float (&factor)[2], float (&offset)[2]) {
    int j = unit % 16 / 4;
    int shift = j % 2 * 16;
    unsigned a = raw.head.y >> shift;
    unsigned b = raw.head.z >> shift;
    unsigned c = raw.head.w >> shift;
    unsigned scales = j < 2 ? a & 0x3f3f : (c & 0x0f0f) | (a >> 2 & 0x3030);
    unsigned mins = j < 2 ? b & 0x3f3f : (c >> 4 & 0x0f0f) | (b >> 2 & 0x3030);
    float d = ptx_low_half(raw.head.x);
    float dmin = ptx_high_half(raw.head.x);
    factor[0] = d * (float)(scales & 0xff);
    factor[1] = d * (float)(scales >> 8 & 0xff);
    offset[0] = dmin * (float)(mins & 0xff);
    offset[1] = dmin * (float)(mins >> 8 & 0xff);
}

#    elif W_IS(q6_K)
struct w_raw {
    uint2 low, high;
    unsigned d;
    int scale[2];
};

PTX_INLINE void w_load(w_raw &raw, const unsigned char *row, int unit, int) {
    const unsigned char *block = row + (long long)(unit / 16) * W_BYTES;
    int half = unit % 16 / 8;
    int at = unit % 8 * 8; // 32p + l
    raw.low = w_load8<w_block_align>(block + 64 * half + at);
    raw.high = w_load8<w_block_align>(block + 128 + 32 * half + at % 32);
    const signed char *scales = (const signed char *)block + 192 + 8 * half + at / 16;
    raw.scale[0] = scales[0];
    raw.scale[1] = scales[4];
    raw.d = w_load2(block + 208);
}

PTX_INLINE uint2 w_quants(const w_raw &raw, int unit, int run) {
    int bits = unit % 8 / 4 * 2 + 4 * run;
    return make_uint2(
            (raw.low.x >> (4 * run) & 0x0f0f0f0f) | (raw.high.x >> bits & 0x03030303) << 4,
            (raw.low.y >> (4 * run) & 0x0f0f0f0f) | (raw.high.y >> bits & 0x03030303) << 4);
}

PTX_INLINE void w_scales(const w_raw &raw, int, float (&factor)[2], float (&offset)[2]) {
    float d = ptx_low_half(raw.d);
#        pragma unroll
    for (int run = 0; run < 2; run++) {
        factor[run] = d * (float)raw.scale[run];
        offset[run] = 32.0f * factor[run];
    }
}

#    elif W_IS(q8_0)
struct w_raw {
    uint2 q[2];
    unsigned d;
};

PTX_INLINE void w_load(w_raw &raw, const unsigned char *row, int unit, int) {
    const unsigned char *block = row + (long long)(unit / 2) * W_BYTES;
    raw.d = w_load2(block);
    raw.q[0] = w_load8<w_block_align>(block + 2 + unit % 2 * 16);
    raw.q[1] = w_load8<w_block_align>(block + 2 + unit % 2 * 16 + 8);
}

// Shifted by 128 to be unsigned; w_scales takes it back.
PTX_INLINE uint2 w_quants(const w_raw &raw, int, int run) {
    uint2 q = run ? raw.q[1] : raw.q[0];
    return make_uint2(q.x ^ 0x80808080u, q.y ^ 0x80808080u);
}

PTX_INLINE void w_scales(const w_raw &raw, int, float (&factor)[2], float (&offset)[2]) {
    factor[0] = factor[1] = ptx_low_half(raw.d);
    offset[0] = offset[1] = 128.0f * factor[0];
}

#    else // q4_0, q4_1, q5_0
struct w_raw {
    uint2 low;
    unsigned d; // q4_1: d and m
#        if W_IS(q5_0)
    unsigned high;
#        endif
};

PTX_INLINE void w_load(w_raw &raw, const unsigned char *row, int unit, int) {
    const unsigned char *block = row + (long long)(unit / 2) * W_BYTES;
#        if W_IS(q4_1)
    raw.d = w_load4<w_block_align>(block);
#        else
    raw.d = w_load2(block);
#        endif
#        if W_IS(q5_0)
    raw.high = w_load4<w_block_align>(block + 2);
#        endif
    raw.low = w_load8<w_block_align>(block + W_BYTES - 16 + unit % 2 * 8);
}

// Bits 0 .. 3 to bit 4 of bytes 0 .. 3.
PTX_INLINE unsigned w_spread(unsigned bits) {
    return ((bits & 15) * 0x00204081u & 0x01010101u) << 4;
}

PTX_INLINE uint2 w_quants(const w_raw &raw, int unit, int run) {
    uint2 q = make_uint2(raw.low.x >> (4 * run) & 0x0f0f0f0f, raw.low.y >> (4 * run) & 0x0f0f0f0f);
#        if W_IS(q5_0)
    unsigned bits = raw.high >> (16 * run + unit % 2 * 8);
    q.x |= w_spread(bits);
    q.y |= w_spread(bits >> 4);
#        endif
    return q;
}

PTX_INLINE void w_scales(const w_raw &raw, int, float (&factor)[2], float (&offset)[2]) {
    factor[0] = factor[1] = ptx_low_half(raw.d);
    offset[0] = offset[1] = W_IS(q4_1)   ? -ptx_high_half(raw.d)
                            : W_IS(q5_0) ? 16.0f * factor[0]
                                         : 8.0f * factor[0];
}
#    endif

// Byte i of a word as 128 + byte, for bytes below 128: one byte permutation puts it into the
// mantissa of 128.0f (0x43000000), where converting it would take two instructions and a slower
// pipe.
template <int I> PTX_INLINE float w_byte_plus_128(unsigned word) {
    return __int_as_float((int)__byte_perm(word, 0x00430000u, 0x6044u | I << 8));
}

template <int I> PTX_INLINE float w_byte(unsigned word) {
    return W_IS(q8_0) ? (float)(word >> (8 * I) & 0xff) : w_byte_plus_128<I>(word) - 128.0f;
}

PTX_INLINE void w_values(const w_raw &raw, int unit, int run, float (&v)[8]) {
    float factor[2];
    float offset[2];
    w_scales(raw, unit, factor, offset);
    uint2 q = w_quants(raw, unit, run);
    float f = run ? factor[1] : factor[0];
    float o = run ? offset[1] : offset[0];
    v[0] = fmaf(f, w_byte<0>(q.x), -o);
    v[1] = fmaf(f, w_byte<1>(q.x), -o);
    v[2] = fmaf(f, w_byte<2>(q.x), -o);
    v[3] = fmaf(f, w_byte<3>(q.x), -o);
    v[4] = fmaf(f, w_byte<0>(q.y), -o);
    v[5] = fmaf(f, w_byte<1>(q.y), -o);
    v[6] = fmaf(f, w_byte<2>(q.y), -o);
    v[7] = fmaf(f, w_byte<3>(q.y), -o);
}

// What w_dot sums up: the quant itself, or 128 more, which the sum of x takes back.
template <int I> PTX_INLINE float w_term(unsigned word) {
    return W_IS(q8_0) ? (float)(int)(signed char)((word >> (8 * I) & 0xff) ^ 0x80)
                      : w_byte_plus_128<I>(word);
}

// The unit's 16 values times x: run 0's 8, then run 1's. sums: of each run's x, added in order.
PTX_INLINE float w_dot(const w_raw &raw, int unit, const float (&x)[16], const float (&sums)[2]) {
    float factor[2];
    float offset[2];
    w_scales(raw, unit, factor, offset);
    float result = 0;
#    pragma unroll
    for (int run = 0; run < 2; run++) {
        uint2 q = w_quants(raw, unit, run);
        float sum = x[8 * run] * w_term<0>(q.x);
        sum = fmaf(x[8 * run + 1], w_term<1>(q.x), sum);
        sum = fmaf(x[8 * run + 2], w_term<2>(q.x), sum);
        sum = fmaf(x[8 * run + 3], w_term<3>(q.x), sum);
        sum = fmaf(x[8 * run + 4], w_term<0>(q.y), sum);
        sum = fmaf(x[8 * run + 5], w_term<1>(q.y), sum);
        sum = fmaf(x[8 * run + 6], w_term<2>(q.y), sum);
        sum = fmaf(x[8 * run + 7], w_term<3>(q.y), sum);
        if (W_IS(q8_0)) {
            result = fmaf(factor[run], sum, result);
        } else {
            sum = fmaf(-128.0f, sums[run], sum);
            result = fmaf(factor[run], sum, result);
            result = fmaf(-offset[run], sums[run], result);
        }
    }
    return result;
}
#endif

// A run of 8 values as f16, rounded to nearest; what f16 cannot hold becomes its largest, not
// infinity.
PTX_INLINE uint4 w_halves(const w_raw &raw, int unit, int run) {
    float v[8];
    w_values(raw, unit, run, v);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = v[i] > 65504.0f ? 65504.0f : v[i] < -65504.0f ? -65504.0f : v[i]; // a NaN stays
    }
    return make_uint4(ptx_pack_half2(v[0], v[1]), ptx_pack_half2(v[2], v[3]),
            ptx_pack_half2(v[4], v[5]), ptx_pack_half2(v[6], v[7]));
}

#endif
