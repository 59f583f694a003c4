// gemm_avx2: packing and the register tile of the AVX2 matrix products.
#include "gemm_avx2.h"

#include "args.h"

#include <immintrin.h>

// rows i and i + 4 of 4 columns, side by side in one register
static inline __m256 load_pair(const float *low, const float *high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}

// 8 rows × 4 columns -> 4 columns of 8, each 16 floats behind the other
static inline void pack_8x4(const float *const row[8], int k, float *out) {
    __m256 r0 = load_pair(row[0] + k, row[4] + k);
    __m256 r1 = load_pair(row[1] + k, row[5] + k);
    __m256 r2 = load_pair(row[2] + k, row[6] + k);
    __m256 r3 = load_pair(row[3] + k, row[7] + k);
    __m256 a = _mm256_unpacklo_ps(r0, r1);
    __m256 b = _mm256_unpackhi_ps(r0, r1);
    __m256 c = _mm256_unpacklo_ps(r2, r3);
    __m256 d = _mm256_unpackhi_ps(r2, r3);
    _mm256_storeu_ps(out, _mm256_shuffle_ps(a, c, 0x44));
    _mm256_storeu_ps(out + CPU_PANEL, _mm256_shuffle_ps(a, c, 0xee));
    _mm256_storeu_ps(out + 2 * CPU_PANEL, _mm256_shuffle_ps(b, d, 0x44));
    _mm256_storeu_ps(out + 3 * CPU_PANEL, _mm256_shuffle_ps(b, d, 0xee));
}

static void pack_some(const float *rows, ptrdiff_t stride, int n_rows, int k, float *out) {
    for (int i = 0; i < CPU_PANEL; i++) {
        for (int j = 0; j < k; j++) {
            out[j * CPU_PANEL + i] = i < n_rows ? rows[i * stride + j] : 0.0F;
        }
    }
}

void cpu_pack_avx2(const float *rows, ptrdiff_t stride, int n_rows, int k, float *out) {
    if (n_rows < CPU_PANEL) {
        pack_some(rows, stride, n_rows, k, out);
        return;
    }
    for (int half = 0; half < 2; half++) {
        const float *row[8];
        for (int i = 0; i < 8; i++) {
            row[i] = rows + (8 * half + i) * stride;
        }
        for (int j = 0; j < k; j += 4) {
            pack_8x4(row, j, out + j * CPU_PANEL + 8 * half);
        }
    }
}

// m is a constant in each caller, so that the sums stay in 2 m registers.
__attribute__((always_inline)) static inline void tile(int m, const float *a, ptrdiff_t a_stride,
        const float *b, float *c, ptrdiff_t c_stride, int k, int add) {
    __m256 sum[CPU_TILE_ROWS][2];
    for (int i = 0; i < m; i++) {
        sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    }
    for (int j = 0; j < k; j++) {
        __m256 b0 = _mm256_loadu_ps(b + j * CPU_PANEL);
        __m256 b1 = _mm256_loadu_ps(b + j * CPU_PANEL + 8);
        for (int i = 0; i < m; i++) {
            __m256 x = _mm256_broadcast_ss(a + i * a_stride + j);
            sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
        }
    }
    for (int i = 0; i < m; i++) {
        float *at = c + i * c_stride;
        if (add) {
            sum[i][0] = _mm256_add_ps(_mm256_loadu_ps(at), sum[i][0]);
            sum[i][1] = _mm256_add_ps(_mm256_loadu_ps(at + 8), sum[i][1]);
        }
        _mm256_storeu_ps(at, sum[i][0]);
        _mm256_storeu_ps(at + 8, sum[i][1]);
    }
}

void cpu_tile_avx2(int m, const float *a, ptrdiff_t a_stride, const float *b, float *c,
        ptrdiff_t c_stride, int k, int add) {
    switch (m) {
    case 1:
        tile(1, a, a_stride, b, c, c_stride, k, add);
        break;
    case 2:
        tile(2, a, a_stride, b, c, c_stride, k, add);
        break;
    case 3:
        tile(3, a, a_stride, b, c, c_stride, k, add);
        break;
    case 4:
        tile(4, a, a_stride, b, c, c_stride, k, add);
        break;
    case 5:
        tile(5, a, a_stride, b, c, c_stride, k, add);
        break;
    default:
        tile(6, a, a_stride, b, c, c_stride, k, add);
        break;
    }
}
