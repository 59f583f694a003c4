// exp_avx2: e^x for 8 floats. A header because it must be inlined into the kernels that use it.
#ifndef CPU_EXP_AVX2_H
#define CPU_EXP_AVX2_H

#include <immintrin.h>

// Within 1 ulp of e^x wherever that is a normal f32, subnormal results rounded once more; 0 below
// -104, infinity above 88.73; NaN for NaN. x = n ln 2 + r, |r| <= ln 2 / 2, with ln 2 in two parts;
// the Taylor polynomial of degree 7 is off by at most 5e-9 of the result. 2^n is applied in two
// steps, so that n may go beyond the exponents of f32.
__attribute__((always_inline)) static inline __m256 cpu_exp_avx2(__m256 x) {
    // The bound stands first: minps and maxps give their second operand when one is NaN.
    x = _mm256_min_ps(_mm256_set1_ps(89.0F), x);
    x = _mm256_max_ps(_mm256_set1_ps(-105.0F), x);
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504F)),
            _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1F), x); // 15 bits: n times it is exact
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20F), r);
    __m256 p = _mm256_set1_ps(1.0F / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5F));
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0F));
    __m256i whole = _mm256_cvtps_epi32(n);
    __m256i first = _mm256_srai_epi32(whole, 1);
    __m256i second = _mm256_sub_epi32(whole, first);
    __m256i bias = _mm256_set1_epi32(127);
    __m256 scale0 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23));
    __m256 scale1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p, scale0), scale1);
}

#endif
