// lanes_math: arithmetic of one lane, for the files that do it 32 lanes at a time. Inline so that
// loops over lanes become vector code. The same bits whatever the host's instructions: no
// contraction, no reassociation.
//
// NaN results are the canonical ones: 0x7fffffff (f32), 0x7fff (f16, bf16), 0x7fffffffffffffff
// (f64). 2^x, 1/x and the like are closer than the PTX ISA's bounds; docs/sim-semantics.md has the
// figures.
#ifndef KILN_DEVICE_SIM_LANES_MATH_H
#define KILN_DEVICE_SIM_LANES_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define SIM_INLINE static inline __attribute__((always_inline, unused))

// Values lie in register files that several types look at.
typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t __attribute__((may_alias)) u16;
typedef int16_t __attribute__((may_alias)) s16;
typedef uint32_t __attribute__((may_alias)) u32;
typedef int32_t __attribute__((may_alias)) s32;
typedef uint64_t __attribute__((may_alias)) u64;
typedef int64_t __attribute__((may_alias)) s64;
typedef float __attribute__((may_alias)) f32;
typedef double __attribute__((may_alias)) f64;

SIM_INLINE uint32_t f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

SIM_INLINE float f32_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

SIM_INLINE uint64_t f64_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

SIM_INLINE double f64_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// ---- Integers -----------------------------------------------------------------------------------
SIM_INLINE uint32_t int_shl32(uint32_t a, uint32_t n) {
    return n > 31 ? 0 : a << (n & 31);
}

SIM_INLINE uint32_t int_shr32(uint32_t a, uint32_t n) {
    return n > 31 ? 0 : a >> (n & 31);
}

SIM_INLINE int32_t int_sar32(int32_t a, uint32_t n) {
    return a >> (n > 31 ? 31 : n);
}

SIM_INLINE uint64_t int_shl64(uint64_t a, uint32_t n) {
    return n > 63 ? 0 : a << (n & 63);
}

SIM_INLINE uint64_t int_shr64(uint64_t a, uint32_t n) {
    return n > 63 ? 0 : a >> (n & 63);
}

SIM_INLINE int64_t int_sar64(int64_t a, uint32_t n) {
    return a >> (n > 63 ? 63 : n);
}

// Division by zero gives all ones and the remainder the dividend, as NVIDIA GPUs have it.
SIM_INLINE uint32_t int_div_u32(uint32_t a, uint32_t b) {
    return b ? a / b : UINT32_MAX;
}

SIM_INLINE int32_t int_div_s32(int32_t a, int32_t b) {
    return b == 0 ? -1 : b == -1 ? (int32_t)(0u - (uint32_t)a) : a / b;
}

SIM_INLINE uint32_t int_rem_u32(uint32_t a, uint32_t b) {
    return b ? a % b : a;
}

SIM_INLINE int32_t int_rem_s32(int32_t a, int32_t b) {
    return b == 0 ? a : b == -1 ? 0 : a % b;
}

SIM_INLINE uint64_t int_div_u64(uint64_t a, uint64_t b) {
    return b ? a / b : UINT64_MAX;
}

SIM_INLINE int64_t int_div_s64(int64_t a, int64_t b) {
    return b == 0 ? -1 : b == -1 ? (int64_t)(0u - (uint64_t)a) : a / b;
}

SIM_INLINE uint64_t int_rem_u64(uint64_t a, uint64_t b) {
    return b ? a % b : a;
}

SIM_INLINE int64_t int_rem_s64(int64_t a, int64_t b) {
    return b == 0 ? a : b == -1 ? 0 : a % b;
}

__extension__ typedef unsigned __int128 sim_u128;
__extension__ typedef __int128 sim_s128;

SIM_INLINE uint64_t int_mul_hi_u64(uint64_t a, uint64_t b) {
    return (uint64_t)((sim_u128)a * b >> 64);
}

SIM_INLINE int64_t int_mul_hi_s64(int64_t a, int64_t b) {
    return (int64_t)((sim_s128)a * b >> 64);
}

SIM_INLINE int32_t int_add_sat(int32_t a, int32_t b) {
    int64_t sum = (int64_t)a + b;
    return (int32_t)(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
}

SIM_INLINE int32_t int_sub_sat(int32_t a, int32_t b) {
    int64_t sum = (int64_t)a - b;
    return (int32_t)(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
}

SIM_INLINE int32_t int_mad_hi_sat(int32_t a, int32_t b, int32_t c) {
    return int_add_sat((int32_t)((int64_t)a * b >> 32), c);
}

SIM_INLINE uint32_t int_reverse(uint32_t a) {
    a = (a >> 1 & 0x55555555) | (a & 0x55555555) << 1;
    a = (a >> 2 & 0x33333333) | (a & 0x33333333) << 2;
    a = (a >> 4 & 0x0f0f0f0f) | (a & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(a);
}

SIM_INLINE uint64_t int_reverse64(uint64_t a) {
    return (uint64_t)int_reverse((uint32_t)a) << 32 | int_reverse((uint32_t)(a >> 32));
}

SIM_INLINE uint32_t int_clz32(uint32_t a) {
    return a ? (uint32_t)__builtin_clz(a) : 32;
}

SIM_INLINE uint32_t int_clz64(uint64_t a) {
    return a ? (uint32_t)__builtin_clzll(a) : 64;
}

// Position of the most significant bit that is not the sign; all ones when there is none.
SIM_INLINE uint32_t int_find_u64(uint64_t a) {
    return a ? 63 - (uint32_t)__builtin_clzll(a) : UINT32_MAX;
}

SIM_INLINE uint32_t int_find_s64(int64_t a) {
    return int_find_u64((uint64_t)(a < 0 ? ~a : a));
}

SIM_INLINE uint64_t int_extract_u64(uint64_t a, uint32_t at, uint32_t len, uint32_t width) {
    at &= 255;
    len &= 255;
    if (at >= width || len == 0) {
        return 0;
    }
    a >>= at;
    return len >= 64 ? a : a & ((1ull << len) - 1);
}

// The field's top bit is its sign; past the register's end it is the register's.
SIM_INLINE int64_t int_extract_s64(int64_t a, uint32_t at, uint32_t len, uint32_t width) {
    at &= 255;
    len &= 255;
    if (len == 0) {
        return 0;
    }
    if (at >= width) {
        return a < 0 ? -1 : 0;
    }
    a >>= at;
    return len + at >= width ? a : (int64_t)((uint64_t)a << (64 - len)) >> (64 - len);
}

SIM_INLINE uint64_t int_insert(uint64_t a, uint64_t b, uint32_t at, uint32_t len, uint32_t width) {
    at &= 255;
    len &= 255;
    if (at >= width || len == 0) {
        return b;
    }
    uint64_t field = (len >= 64 ? UINT64_MAX : (1ull << len) - 1) << at;
    return (b & ~field) | (a << at & field);
}

SIM_INLINE uint32_t int_mask(uint32_t at, uint32_t len, int wrap) {
    if (wrap) {
        at &= 31;
        len &= 31;
    }
    if (at > 31 || len == 0) {
        return 0;
    }
    return (len > 31 ? UINT32_MAX : (1u << len) - 1) << at;
}

// The offset-th set bit from position base on, counted as the ISA's fns.
SIM_INLINE uint32_t int_nth_set(uint32_t mask, uint32_t base, int32_t offset) {
    if (offset == 0) {
        return base <= 31 && (mask >> base & 1) ? base : UINT32_MAX;
    }
    int64_t step = offset > 0 ? 1 : -1, left = offset > 0 ? offset : -(int64_t)offset;
    for (int64_t at = base; at >= 0 && at <= 31; at += step) {
        if (mask >> at & 1 && --left == 0) {
            return (uint32_t)at;
        }
    }
    return UINT32_MAX;
}

SIM_INLINE uint32_t int_lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t r = 0;
    r |= (table & 1 ? UINT32_MAX : 0) & ~a & ~b & ~c;
    r |= (table & 2 ? UINT32_MAX : 0) & ~a & ~b & c;
    r |= (table & 4 ? UINT32_MAX : 0) & ~a & b & ~c;
    r |= (table & 8 ? UINT32_MAX : 0) & ~a & b & c;
    r |= (table & 16 ? UINT32_MAX : 0) & a & ~b & ~c;
    r |= (table & 32 ? UINT32_MAX : 0) & a & ~b & c;
    r |= (table & 64 ? UINT32_MAX : 0) & a & b & ~c;
    r |= (table & 128 ? UINT32_MAX : 0) & a & b & c;
    return r;
}

SIM_INLINE uint32_t int_permute(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t pick = selector >> (4 * i) & 15;
        uint32_t byte = (uint32_t)(bytes >> (8 * (pick & 7))) & 255;
        if (pick & 8) {
            byte = byte & 128 ? 255 : 0;
        }
        r |= byte << (8 * i);
    }
    return r;
}

// prmt's other modes: 0 f4e, 1 b4e, 2 rc8, 3 ecl, 4 ecr, 5 rc16.
SIM_INLINE uint32_t int_permute_mode(uint32_t a, uint32_t b, uint32_t selector, uint32_t mode) {
    static const uint16_t table[6][4] = {{0x3210, 0x4321, 0x5432, 0x6543},
            {0x5670, 0x6701, 0x7012, 0x0123}, {0x0000, 0x1111, 0x2222, 0x3333},
            {0x3210, 0x3211, 0x3222, 0x3333}, {0x0000, 0x1110, 0x2210, 0x3210},
            {0x1010, 0x3232, 0x1010, 0x3232}};
    return int_permute(a, b, table[mode][selector & 3]);
}

SIM_INLINE uint32_t int_dot4(uint32_t a, uint32_t b, uint32_t c, int a_signed, int b_signed) {
    for (int i = 0; i < 4; i++) {
        uint32_t x = a >> (8 * i) & 255, y = b >> (8 * i) & 255;
        int32_t left = a_signed ? (int8_t)x : (int32_t)x, right = b_signed ? (int8_t)y : (int32_t)y;
        c += (uint32_t)(left * right);
    }
    return c;
}

SIM_INLINE uint32_t int_dot2(
        uint32_t a, uint32_t b, uint32_t c, int a_signed, int b_signed, int high) {
    b >>= high ? 16 : 0;
    for (int i = 0; i < 2; i++) {
        uint32_t x = a >> (16 * i) & 65535, y = b >> (8 * i) & 255;
        int32_t left = a_signed ? (int16_t)x : (int32_t)x,
                right = b_signed ? (int8_t)y : (int32_t)y;
        c += (uint32_t)left * (uint32_t)right;
    }
    return c;
}

// ---- f32 and f64 --------------------------------------------------------------------------------
SIM_INLINE float f32_canonical(float value) {
    return f32_of(value == value ? f32_bits(value) : 0x7fffffffu);
}

SIM_INLINE double f64_canonical(double value) {
    return f64_of(value == value ? f64_bits(value) : UINT64_C(0x7fffffffffffffff));
}

// Subnormal to a zero of its sign.
SIM_INLINE float f32_flush(float value) {
    uint32_t bits = f32_bits(value);
    return f32_of((bits & 0x7f800000u) ? bits : bits & 0x80000000u);
}

// To [0, 1]; NaN to +0.
SIM_INLINE float f32_saturate(float value) {
    return f32_of(value > 0.0f ? (value < 1.0f ? f32_bits(value) : 0x3f800000u) : 0);
}

SIM_INLINE double f64_saturate(double value) {
    return value > 0.0 ? (value < 1.0 ? value : 1.0) : 0.0;
}

SIM_INLINE float f32_result(float value, int ftz, int sat) {
    value = ftz ? f32_flush(value) : value;
    return sat ? f32_saturate(value) : f32_canonical(value);
}

// -0 is less than +0. One NaN gives the other operand, or with `nan` a NaN.
SIM_INLINE float f32_min(float a, float b, int nan) {
    uint32_t x = f32_bits(a), y = f32_bits(b);
    uint32_t less = a < b || (a == b && x >> 31) ? x : y;
    less = a != a ? y : b != b ? x : less;
    less = (nan ? (a != a || b != b) : (a != a && b != b)) ? 0x7fffffffu : less;
    return f32_of(less);
}

SIM_INLINE float f32_max(float a, float b, int nan) {
    uint32_t x = f32_bits(a), y = f32_bits(b);
    uint32_t more = a > b || (a == b && y >> 31) ? x : y;
    more = a != a ? y : b != b ? x : more;
    more = (nan ? (a != a || b != b) : (a != a && b != b)) ? 0x7fffffffu : more;
    return f32_of(more);
}

// .xorsign: the sign is the exclusive or of both signs, the size that of the larger or smaller.
SIM_INLINE float f32_with_xor_sign(float size, float a, float b) {
    uint32_t bits = f32_bits(size);
    return size != size
                   ? size
                   : f32_of((bits & 0x7fffffffu) | ((f32_bits(a) ^ f32_bits(b)) & 0x80000000u));
}

SIM_INLINE double f64_min(double a, double b) {
    uint64_t less = a < b || (a == b && f64_bits(a) >> 63) ? f64_bits(a) : f64_bits(b);
    less = a != a ? f64_bits(b) : b != b ? f64_bits(a) : less;
    return f64_canonical(f64_of(less));
}

SIM_INLINE double f64_max(double a, double b) {
    uint64_t more = a > b || (a == b && f64_bits(b) >> 63) ? f64_bits(a) : f64_bits(b);
    more = a != a ? f64_bits(b) : b != b ? f64_bits(a) : more;
    return f64_canonical(f64_of(more));
}

// 2^x: x = n + f with f in [-1/2, 1/2], 2^f by a polynomial in f32. Within 1.1 ulp for results
// that are not subnormal.
SIM_INLINE float f32_exp2(float x, int ftz) {
    float in = x > 129.0f ? 129.0f : x < -160.0f ? -160.0f : x;
    in = x == x ? in : 0.0f;
    float shifted = in + 12582912.0f; // 1.5 * 2^23: its low bits are the nearest integer
    int32_t n = (int32_t)(f32_bits(shifted) - 0x4b400000u);
    float f = in - (shifted - 12582912.0f);
    float p = 1.5252733804059840280e-5f;
    p = p * f + 1.5403530393381609954e-4f;
    p = p * f + 1.3333558146428443423e-3f;
    p = p * f + 9.6181291076284771619e-3f;
    p = p * f + 5.5504108664821579953e-2f;
    p = p * f + 2.4022650695910071233e-1f;
    p = p * f + 6.9314718055994530942e-1f;
    p = p * f + 1.0f;
    // In two steps: 2^n alone may be out of f32's range where the result is not.
    int32_t half = n >> 1;
    float low = f32_of((uint32_t)(half + 127) << 23),
          high = f32_of((uint32_t)(n - half + 127) << 23);
    float result = p * low * high;
    result = ftz ? f32_flush(result) : result;
    return f32_of(x == x ? f32_bits(result) : 0x7fffffffu);
}

// ---- f16 and bf16 -------------------------------------------------------------------------------
SIM_INLINE float f16_to_f32(uint16_t half) {
    uint32_t magnitude = half & 0x7fffu, sign = (uint32_t)(half & 0x8000u) << 16;
    float scaled = f32_of(magnitude << 13) * 0x1p112f; // exact, subnormal halves too
    uint32_t bits = magnitude >= 0x7c00u ? 0x7f800000u : f32_bits(scaled);
    bits = magnitude > 0x7c00u ? 0x7fffffffu : bits | sign;
    return f32_of(bits);
}

SIM_INLINE float bf16_to_f32(uint16_t value) {
    return f32_canonical(f32_of((uint32_t)value << 16));
}

// To nearest, ties to even; too large is infinity.
SIM_INLINE uint16_t f16_from_f32(float value) {
    uint32_t bits = f32_bits(value), sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    uint32_t subnormal = f32_bits(f32_of(bits) + 0.5f) - 0x3f000000u; // 0.5 has 2^-24 as last bit
    uint32_t normal = (bits + 0xc8000fffu + (bits >> 13 & 1)) >> 13;
    uint32_t r = bits < 0x38800000u ? subnormal : normal;
    r = bits >= 0x47800000u ? 0x7c00u : r;
    r = bits > 0x7f800000u ? 0x7fffu : r | sign;
    return (uint16_t)r;
}

SIM_INLINE uint16_t bf16_from_f32(float value) {
    uint32_t bits = f32_bits(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

// a + b in f64 with the last bit odd where the sum is inexact: rounding it once more, to a format
// of at most 51 bits, gives what one rounding gives.
SIM_INLINE double f64_add_to_odd(double a, double b) {
    double sum = a + b;
    double b_part = sum - a, a_part = sum - b_part;
    double error = (a - a_part) + (b - b_part);
    uint64_t bits = f64_bits(sum);
    if (error != 0 && error == error && sum - sum == 0 && !(bits & 1)) {
        bits += (error > 0) == (sum > 0) ? 1 : UINT64_MAX;
    }
    return f64_of(bits);
}

// From an f64 to nearest, through an f32 rounded to odd.
SIM_INLINE float f32_from_f64_to_odd(double value) {
    float near = (float)value;
    uint32_t bits = f32_bits(near);
    double back = (double)near;
    if (back != value && value == value && !(bits & 1)) {
        // An infinity from a finite value steps back as well: any format narrower overflows too.
        bits += (back < value) == (value > 0) ? 1 : UINT32_MAX;
    }
    return f32_of(bits);
}

SIM_INLINE uint16_t f16_from_f64(double value) {
    return f16_from_f32(f32_from_f64_to_odd(value));
}

SIM_INLINE uint16_t bf16_from_f64(double value) {
    return bf16_from_f32(f32_from_f64_to_odd(value));
}

SIM_INLINE uint16_t f16_flush(uint16_t half) {
    return (uint16_t)((half & 0x7c00u) ? half : half & 0x8000u);
}

SIM_INLINE uint16_t f16_fma(uint16_t a, uint16_t b, uint16_t c) {
    return f16_from_f64(
            f64_add_to_odd((double)f16_to_f32(a) * (double)f16_to_f32(b), (double)f16_to_f32(c)));
}

SIM_INLINE uint16_t bf16_fma(uint16_t a, uint16_t b, uint16_t c) {
    return bf16_from_f64(f64_add_to_odd(
            (double)bf16_to_f32(a) * (double)bf16_to_f32(b), (double)bf16_to_f32(c)));
}

#endif
