// blocks_avx2: the numbers of weight blocks as unsigned bytes in AVX2 registers, 32 at a time, and
// their factors. Layouts are drawn in quant.h. For files that are built for AVX2, FMA and F16C.
#ifndef CPU_BLOCKS_AVX2_H
#define CPU_BLOCKS_AVX2_H

#include "quant.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define CPU_INLINE __attribute__((always_inline)) static inline

CPU_INLINE __m256i cpu_load_32_bytes(const void *at) {
    return _mm256_loadu_si256((const __m256i *)at);
}

CPU_INLINE __m128 cpu_load_f16(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, sizeof(half));
    return _mm_cvtph_ps(_mm_cvtsi32_si128(half));
}

// The 16 bytes at qs as 32: low nibbles, then high ones; the upper four bits of each are to be
// masked away.
CPU_INLINE __m256i cpu_load_nibbles(const uint8_t *qs) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)qs);
    return _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
}

CPU_INLINE __m256i cpu_bytes_q5_0(const uint8_t *at) {
    int32_t high;
    memcpy(&high, at + CPU_Q5_0_QH, sizeof(high));
    // byte i of `spread` is the byte of qh that holds bit i; `bit` picks it out
    const __m256i spread =
            _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201U);
    __m256i bits = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(high), spread), bit);
    __m256i fifth = _mm256_and_si256(_mm256_cmpeq_epi8(bits, bit), _mm256_set1_epi8(16));
    __m256i nibbles = _mm256_and_si256(cpu_load_nibbles(at + CPU_Q5_0_QS), _mm256_set1_epi8(15));
    return _mm256_or_si256(nibbles, fifth);
}

// Of q4_K, whose upper four bits are to be masked away.
CPU_INLINE __m256i cpu_bytes_q4_K(const uint8_t *at, int group) {
    __m256i bytes = cpu_load_32_bytes(at + CPU_Q4_K_QS + 32 * (group / 2));
    return group % 2 ? _mm256_srli_epi16(bytes, 4) : bytes;
}

CPU_INLINE __m256i cpu_bytes_q5_K(const uint8_t *at, int group) {
    __m256i high = cpu_load_32_bytes(at + CPU_Q5_K_QH);
    __m256i bytes = cpu_load_32_bytes(at + CPU_Q5_K_QS + 32 * (group / 2));
    bytes = group % 2 ? _mm256_srli_epi16(bytes, 4) : bytes;
    __m256i moved =
            group < 4 ? _mm256_slli_epi16(high, 4 - group) : _mm256_srli_epi16(high, group - 4);
    return _mm256_or_si256(_mm256_and_si256(bytes, _mm256_set1_epi8(15)),
            _mm256_and_si256(moved, _mm256_set1_epi8(16)));
}

// Part 0 to 7, of 32 values; 4 a half.
CPU_INLINE __m256i cpu_bytes_q6_K(const uint8_t *at, int part) {
    __m256i low = cpu_load_32_bytes(at + CPU_Q6_K_QL + 64 * (part / 4) + 32 * (part % 2));
    __m256i high = cpu_load_32_bytes(at + CPU_Q6_K_QH + 32 * (part / 4));
    low = part % 4 < 2 ? low : _mm256_srli_epi16(low, 4);
    high = part % 4 < 2 ? _mm256_slli_epi16(high, 4 - 2 * (part % 4))
                        : _mm256_srli_epi16(high, 2 * (part % 4) - 4);
    return _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi8(15)),
            _mm256_and_si256(high, _mm256_set1_epi8(48)));
}

// Scales and minimums of q4_K and q5_K as f32, times the block's factors; returns the minimums.
CPU_INLINE __m256 cpu_factors_qk(const uint8_t *at, __m256 *scaled) {
    uint32_t word[3];
    memcpy(word, at + CPU_QK_SCALES, sizeof(word));
    uint32_t scale[2] = {
            word[0] & 0x3f3f3f3f, (word[2] & 0x0f0f0f0f) | (word[0] >> 2 & 0x30303030)};
    uint32_t min[2] = {
            word[1] & 0x3f3f3f3f, (word[2] >> 4 & 0x0f0f0f0f) | (word[1] >> 2 & 0x30303030)};
    __m128i scales = _mm_loadl_epi64((const __m128i *)(const void *)scale);
    __m128i mins = _mm_loadl_epi64((const __m128i *)(const void *)min);
    __m256 d = _mm256_broadcastss_ps(cpu_load_f16(at + CPU_QK_D));
    __m256 dmin = _mm256_broadcastss_ps(cpu_load_f16(at + CPU_QK_DMIN));
    *scaled = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(scales)));
    return _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(mins)));
}

// Scales 8 i to 8 i + 7 of q6_K as f32, times d.
CPU_INLINE __m256 cpu_factors_q6_K(const uint8_t *at, int i) {
    __m128i eight = _mm_loadl_epi64((const __m128i *)(const void *)(at + CPU_Q6_K_SCALES + 8 * i));
    return _mm256_mul_ps(_mm256_broadcastss_ps(cpu_load_f16(at + CPU_Q6_K_D)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)));
}

// The sum of the lanes, in pairs.
CPU_INLINE float cpu_add_lanes(__m256 v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#endif
