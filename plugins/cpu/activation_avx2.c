// activation_avx2: act(GATE) * UP with AVX2. The formulas are those of cpu_activation_generic.
#include "args.h"

#include "exp_avx2.h"

#include <stddef.h>
#include <string.h>

__attribute__((always_inline)) static inline __m256 activate(uint32_t activation, __m256 x) {
    const __m256 one = _mm256_set1_ps(1.0F);
    __m256 minus;
    if (activation == KILN_ACTIVATION_SILU) {
        minus = _mm256_sub_ps(_mm256_setzero_ps(), x);
    } else {
        __m256 cube =
                _mm256_mul_ps(_mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(0.044715F), x), x), x);
        __m256 u = _mm256_mul_ps(_mm256_set1_ps(0.797884561F), _mm256_add_ps(x, cube));
        minus = _mm256_mul_ps(_mm256_set1_ps(-2.0F), u);
    }
    return _mm256_div_ps(x, _mm256_add_ps(one, cpu_exp_avx2(minus)));
}

static void activate_row(
        uint32_t activation, const float *gate, const float *up, float *out, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 value = activate(activation, _mm256_loadu_ps(gate + i));
        _mm256_storeu_ps(out + i, _mm256_mul_ps(value, _mm256_loadu_ps(up + i)));
    }
    if (i < n) {
        float rest[2][8] = {{0}};
        memcpy(rest[0], gate + i, (size_t)(n - i) * sizeof(float));
        memcpy(rest[1], up + i, (size_t)(n - i) * sizeof(float));
        __m256 value = activate(activation, _mm256_loadu_ps(rest[0]));
        _mm256_storeu_ps(rest[0], _mm256_mul_ps(value, _mm256_loadu_ps(rest[1])));
        memcpy(out + i, rest[0], (size_t)(n - i) * sizeof(float));
    }
}

// Grid: x blocks of CPU_ACTIVATION_COLUMNS columns, y rows. OUT may be GATE.
void cpu_activation_avx2(const struct kiln_block *block, void *const *args) {
    const struct cpu_rowwise *params = args[0];
    int64_t row = block->index[1];
    if (row >= cpu_rows(args, params->n_tokens, params->s)) {
        return;
    }
    int64_t begin = (int64_t)block->index[0] * CPU_ACTIVATION_COLUMNS;
    int64_t n = params->columns - begin;
    n = n > CPU_ACTIVATION_COLUMNS ? CPU_ACTIVATION_COLUMNS : n;
    const char *gate = (const char *)args[params->in] + row * params->in_stride;
    const char *up = (const char *)args[params->other] + row * params->other_stride;
    char *out = (char *)args[params->out] + row * params->out_stride;
    activate_row(params->activation, (const float *)(const void *)gate + begin,
            (const float *)(const void *)up + begin, (float *)(void *)out + begin, n);
}
