// sim_kernels: textbook kernels (tests/sim_kernels) give what their definitions say, and sim finds
// nothing in them. Skipped (77) without NVRTC; wmma alone needs CUDA's headers, too.
#include "sim_kernel.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
    MAX_VALUES = 4096,
    MATRIX_M = 33, // as in gemm.cu
    MATRIX_N = 45,
    MATRIX_K = 50,
    WARP_M = 32, // as in gemm_mma.cu
    WARP_N = 16,
    WARP_K = 64,
    TURNED_ROWS = 45, // as in transpose.cu
    TURNED_COLUMNS = 70,
    COLUMNS = 100, // as in rows.cu
    SCANNED = 512
};

union values {
    float f[MAX_VALUES];
    int32_t i[MAX_VALUES];
    uint16_t h[MAX_VALUES];
    int8_t b[MAX_VALUES];
};

static union values a, b, out, want;
static int n_want; // of want, set by what makes it

// ---- Inputs and definitions ---------------------------------------------------------------------
static int number(int i, int range) { // -range … range, in no order
    uint32_t bits = (uint32_t)i * 2654435761U;
    return (int)(bits >> 16) % (2 * range + 1) - range;
}

static void fill_floats(void) {
    for (int i = 0; i < MAX_VALUES; i++) {
        a.f[i] = (float)number(i, 8);
        b.f[i] = (float)number(i + 12345, 8);
    }
}

static void fill_fractions(void) {
    for (int i = 0; i < MAX_VALUES; i++) {
        a.f[i] = (float)number(i, 1000) / 256;
        b.f[i] = (float)number(i + 12345, 1000) / 256;
    }
}

static void fill_ints(void) {
    for (int i = 0; i < MAX_VALUES; i++) {
        a.i[i] = number(i, 1000);
        b.i[i] = number(i + 999, 1000);
    }
}

static void make_block_sums(int n) {
    fill_floats();
    n_want = (n + 255) / 256;
    for (int i = 0; i < n; i++) {
        want.f[i / 256] = (i % 256 ? want.f[i / 256] : 0) + a.f[i];
    }
}

static void make_sum(int n) {
    fill_ints();
    n_want = 1;
    want.i[0] = 0;
    for (int i = 0; i < n; i++) {
        want.i[0] += a.i[i];
    }
}

static void make_inclusive(int n) {
    fill_ints();
    n_want = n;
    for (int i = 0, sum = 0; i < n; i++) {
        want.i[i] = sum += a.i[i];
    }
}

static void make_exclusive(int n) {
    fill_ints();
    n_want = n;
    for (int i = 0, sum = 0; i < n; sum += a.i[i++]) {
        want.i[i] = sum;
    }
}

static void make_transpose(int n) {
    (void)n;
    fill_fractions();
    n_want = TURNED_ROWS * TURNED_COLUMNS;
    for (int i = 0; i < n_want; i++) {
        want.f[i % TURNED_COLUMNS * TURNED_ROWS + i / TURNED_COLUMNS] = a.f[i];
    }
}

static void make_product(int n) {
    (void)n;
    fill_floats();
    n_want = MATRIX_M * MATRIX_N;
    for (int i = 0; i < n_want; i++) {
        want.f[i] = 0;
        for (int k = 0; k < MATRIX_K; k++) {
            want.f[i] += a.f[i / MATRIX_N * MATRIX_K + k] * b.f[k * MATRIX_N + i % MATRIX_N];
        }
    }
}

// Of small integers, which every type holds and whose sums f32 holds.
static int product_of(int i) {
    int sum = 0;
    for (int k = 0; k < WARP_K; k++) {
        sum += number(i / WARP_N * WARP_K + k, 8) * number(i % WARP_N * WARP_K + k + 12345, 8);
    }
    return sum;
}

static uint16_t half_bits(float value, int bf16) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (bf16 || value == 0.0F) {
        return (uint16_t)(bits >> 16);
    }
    return (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 255) - 112) << 10 |
                      (bits >> 13 & 1023));
}

static void make_halves(int bf16) {
    fill_floats();
    float left[MAX_VALUES / 2], right[MAX_VALUES / 2];
    memcpy(left, a.f, sizeof(left));
    memcpy(right, b.f, sizeof(right));
    for (int i = 0; i < MAX_VALUES / 2; i++) {
        a.h[i] = half_bits(left[i], bf16);
        b.h[i] = half_bits(right[i], bf16);
    }
    n_want = WARP_M * WARP_N;
    for (int i = 0; i < n_want; i++) {
        want.f[i] = (float)product_of(i);
    }
}

static void make_f16(int n) {
    (void)n;
    make_halves(0);
}

static void make_bf16(int n) {
    (void)n;
    make_halves(1);
}

static void make_tf32(int n) {
    (void)n;
    make_halves(0);
    fill_floats();
}

static void make_s8(int n) {
    (void)n;
    n_want = WARP_M * WARP_N;
    for (int i = 0; i < WARP_M * WARP_K; i++) {
        a.b[i] = (int8_t)number(i, 8);
        b.b[i] = (int8_t)number(i + 12345, 8);
    }
    for (int i = 0; i < n_want; i++) {
        want.i[i] = product_of(i);
    }
}

static void make_softmax(int n) {
    fill_fractions();
    n_want = n * COLUMNS;
    for (int row = 0; row < n; row++) {
        double sum = 0;
        for (int i = 0; i < COLUMNS; i++) {
            sum += exp((double)a.f[row * COLUMNS + i]);
        }
        for (int i = 0; i < COLUMNS; i++) {
            want.f[row * COLUMNS + i] = (float)(exp((double)a.f[row * COLUMNS + i]) / sum);
        }
    }
}

static void make_layer_norm(int n) {
    fill_fractions();
    n_want = n * COLUMNS;
    for (int row = 0; row < n; row++) {
        double mean = 0, variance = 0;
        for (int i = 0; i < COLUMNS; i++) {
            mean += (double)a.f[row * COLUMNS + i] / COLUMNS;
        }
        for (int i = 0; i < COLUMNS; i++) {
            double d = (double)a.f[row * COLUMNS + i] - mean;
            variance += d * d / COLUMNS;
        }
        for (int i = 0; i < COLUMNS; i++) {
            double d = (double)a.f[row * COLUMNS + i] - mean;
            want.f[row * COLUMNS + i] = (float)(d / sqrt(variance + 1e-5) * (double)b.f[i]);
        }
    }
}

static void make_matvec(int n) {
    fill_floats();
    n_want = n;
    for (int row = 0; row < n; row++) {
        want.f[row] = 0;
        for (int i = 0; i < COLUMNS; i++) {
            want.f[row] += a.f[row * COLUMNS + i] * b.f[i];
        }
    }
}

static void make_attention(int n) {
    fill_fractions();
    n_want = n * 32;
    for (int query = 0; query < n; query++) {
        double sum = 0, values[32] = {0};
        for (int key = 0; key <= query; key++) {
            double score = 0;
            for (int i = 0; i < 32; i++) {
                score += (double)a.f[query * 32 + i] * (double)b.f[key * 32 + i];
            }
            double weight = exp(score / sqrt(32.0));
            sum += weight;
            for (int i = 0; i < 32; i++) {
                values[i] += weight * (double)b.f[(n + key) * 32 + i];
            }
        }
        for (int i = 0; i < 32; i++) {
            want.f[query * 32 + i] = (float)(values[i] / sum);
        }
    }
}

static void make_histogram(int n) {
    n_want = 64;
    memset(&want, 0, sizeof(want));
    for (int i = 0; i < n; i++) {
        a.i[i] = (number(i, 31) + 31) * 63 / 62;
        want.i[a.i[i]]++;
    }
}

static int ascending(const void *x, const void *y) {
    const int32_t *p = x, *q = y;
    return (*p > *q) - (*p < *q);
}

static void make_sorted(int n) {
    fill_ints();
    n_want = n;
    memcpy(&want, &a, sizeof(want));
    qsort(want.i, (size_t)n, sizeof(int32_t), ascending);
}

static void make_compact(int n) {
    fill_ints();
    n_want = 1;
    for (int i = 0; i < n; i++) {
        if (a.i[i] > 0) {
            want.i[n_want++] = a.i[i];
        }
    }
    want.i[0] = n_want - 1;
}

static void make_dots(int n) {
    n_want = n;
    for (int i = 0; i < n * 64; i++) {
        a.b[i] = (int8_t)number(i, 127);
        b.b[i] = (int8_t)number(i + 77, 127);
    }
    for (int row = 0; row < n; row++) {
        want.i[row] = 0;
        for (int i = 0; i < 64; i++) {
            want.i[row] += a.b[row * 64 + i] * b.b[i];
        }
    }
}

static void make_convolution(int n) {
    fill_floats();
    n_want = n;
    for (int i = 0; i < n; i++) {
        want.f[i] = 0;
        for (int tap = 0; tap < 7; tap++) {
            int from = i + tap - 3;
            want.f[i] += from >= 0 && from < n ? a.f[from] * b.f[tap] : 0;
        }
    }
}

static void make_reversed(int n) {
    fill_ints();
    n_want = n;
    for (int i = 0; i < n; i++) {
        want.i[i] = a.i[n - 1 - i];
    }
}

static void make_most(int n) {
    fill_fractions();
    n_want = 1;
    want.f[0] = 0;
    for (int i = 0; i < n; i++) {
        want.f[0] = a.f[i] > want.f[0] ? a.f[i] : want.f[0];
    }
}

static void make_tiles(int n) {
    fill_ints();
    n_want = n;
    for (int t = 0; t < n; t += 8) {
        int *w = want.i + t;
        const int *v = a.i + t;
        memset(w, 0, 8 * sizeof(*w));
        w[1] = w[2] = v[0];
        w[5] = v[7];
        for (int i = 0; i < 8; i++) {
            w[0] += v[i];
            w[1] = v[i] < w[1] ? v[i] : w[1];
            w[2] = v[i] > w[2] ? v[i] : w[2];
            w[3] += v[i] == v[0];
            w[4] += v[i] > 0;
            w[6] |= v[i] > 900;
        }
    }
}

static void make_column_sums(int n) {
    fill_floats();
    n_want = 128; // as in bulk.cu
    for (int i = 0; i < n * n_want; i++) {
        want.f[i % n_want] = (i < n_want ? 0 : want.f[i % n_want]) + a.f[i];
    }
}

static void make_table_sum(int n) {
    fill_ints();
    n_want = n;
    for (int i = 0; i < n; i++) {
        want.i[i] = a.i[i] + (i % 300 == 0 ? 5 : i % 300 == 1 ? 7 : 0) + "kiln\0\0"[i % 7];
    }
}

// ---- Cases --------------------------------------------------------------------------------------
struct kernel_case {
    const char *file, *entry;
    void (*make)(int n);
    int n;
    uint32_t grid[3], block[3];
    double bound;    // of |got - want| / max(1, |want|), f32; < 0: integers, to the bit
    int starts_zero; // out is added to
    int cuda_headers;
    uint32_t ways; // the worst bank conflict, 0: not looked at
};

#define EXACT 0.0
#define BITS  (-1.0)

// clang-format off
static const struct kernel_case cases[] = {
    {"reduce.cu", "reduce_shared", make_block_sums, 1000, {4, 1, 1}, {256, 1, 1}, EXACT, 0, 0, 1},
    {"reduce.cu", "reduce_shuffle", make_block_sums, 1000, {4, 1, 1}, {256, 1, 1}, EXACT, 0, 0, 1},
    {"reduce.cu", "reduce_atomic", make_sum, 1000, {4, 1, 1}, {256, 1, 1}, BITS, 1, 0, 0},
    {"scan.cu", "scan_hillis_steele", make_inclusive, SCANNED, {1, 1, 1}, {512, 1, 1}, BITS, 0, 0,
        1},
    {"scan.cu", "scan_blelloch", make_exclusive, SCANNED, {1, 1, 1}, {256, 1, 1}, BITS, 0, 0, 0},
    {"transpose.cu", "transpose_naive", make_transpose, 0, {3, 2, 1}, {32, 8, 1}, EXACT, 0, 0, 0},
    {"transpose.cu", "transpose_tiled", make_transpose, 0, {3, 2, 1}, {32, 8, 1}, EXACT, 0, 0, 32},
    {"transpose.cu", "transpose_padded", make_transpose, 0, {3, 2, 1}, {32, 8, 1}, EXACT, 0, 0, 1},
    {"gemm.cu", "gemm_naive", make_product, 0, {3, 3, 1}, {16, 16, 1}, EXACT, 0, 0, 0},
    {"gemm.cu", "gemm_tiled", make_product, 0, {3, 3, 1}, {16, 16, 1}, EXACT, 0, 0, 0},
    {"gemm_mma.cu", "gemm_f16", make_f16, 0, {2, 2, 1}, {32, 1, 1}, EXACT, 0, 0, 0},
    {"gemm_mma.cu", "gemm_bf16", make_bf16, 0, {2, 2, 1}, {32, 1, 1}, EXACT, 0, 0, 0},
    {"gemm_mma.cu", "gemm_tf32", make_tf32, 0, {2, 2, 1}, {32, 1, 1}, EXACT, 0, 0, 0},
    {"gemm_mma.cu", "gemm_s8", make_s8, 0, {2, 2, 1}, {32, 1, 1}, BITS, 0, 0, 0},
    {"gemm_wmma.cu", "gemm_wmma", make_f16, 0, {1, 2, 1}, {32, 1, 1}, EXACT, 0, 1, 0},
    {"rows.cu", "softmax_online", make_softmax, 7, {7, 1, 1}, {32, 1, 1}, 1e-6, 0, 0, 0},
    {"rows.cu", "layer_norm", make_layer_norm, 9, {9, 1, 1}, {128, 1, 1}, 1e-5, 0, 0, 0},
    {"rows.cu", "matvec", make_matvec, 21, {6, 1, 1}, {128, 1, 1}, EXACT, 0, 0, 0},
    {"rows.cu", "attention", make_attention, 20, {20, 1, 1}, {32, 1, 1}, 1e-5, 0, 0, 0},
    {"integers.cu", "histogram", make_histogram, 1000, {3, 1, 1}, {128, 1, 1}, BITS, 1, 0, 0},
    {"integers.cu", "bitonic_sort", make_sorted, 512, {1, 1, 1}, {256, 1, 1}, BITS, 0, 0, 0},
    {"integers.cu", "compact", make_compact, 256, {1, 1, 1}, {256, 1, 1}, BITS, 0, 0, 0},
    {"integers.cu", "dot_dp4a", make_dots, 60, {1, 1, 1}, {64, 1, 1}, BITS, 0, 0, 0},
    {"integers.cu", "convolution", make_convolution, 1000, {8, 1, 1}, {128, 1, 1}, EXACT, 0, 0, 1},
    {"integers.cu", "hand_over", make_reversed, 32, {1, 1, 1}, {64, 1, 1}, BITS, 0, 0, 1},
    {"atomics.cu", "max_by_swap", make_most, 1000, {4, 1, 1}, {256, 1, 1}, EXACT, 1, 0, 0},
    {"atomics.cu", "tiles", make_tiles, 256, {1, 1, 1}, {256, 1, 1}, BITS, 0, 0, 0},
    {"atomics.cu", "table_tail", make_table_sum, 700, {3, 1, 1}, {256, 1, 1}, BITS, 0, 0, 0},
    {"bulk.cu", "column_sums", make_column_sums, 11, {1, 1, 1}, {160, 1, 1}, EXACT, 0, 0, 1},
};
// clang-format on

static void compare(const struct kernel_case *c) {
    for (int i = 0; i < n_want; i++) {
        if (c->bound < 0) {
            if (out.i[i] != want.i[i]) {
                fail_msg("%s: value %d is %d, not %d", c->entry, i, out.i[i], want.i[i]);
            }
            continue;
        }
        double error = fabs((double)out.f[i] - (double)want.f[i]);
        if (!(error <= c->bound * fmax(1, fabs((double)want.f[i])))) {
            fail_msg("%s: value %d is %.9g, not %.9g", c->entry, i, (double)out.f[i],
                    (double)want.f[i]);
        }
    }
}

static void run_case(void **state) {
    const struct kernel_case *c = *state;
    if (c->cuda_headers && !sim_can_compile(1)) {
        skip();
    }
    struct sim_kernel kernel;
    const int copies = strcmp(c->file, "bulk.cu") == 0; // by the copy engine
    const struct sim_source source = {.name = c->file,
            .entry = c->entry,
            .cuda_headers = c->cuda_headers,
            .architecture = copies ? "compute_90" : NULL};
    sim_kernel_open(&kernel, &source);
    c->make(c->n);
    memset(&out, 0, sizeof(out));
    size_t bytes = (size_t)n_want * sizeof(float);
    struct {
        uint64_t a, b, out;
        int32_t n, zero;
    } params = {.a = sim_kernel_in(&kernel, "a", &a, sizeof(a)),
            .b = sim_kernel_in(&kernel, "b", &b, sizeof(b)),
            .out = c->starts_zero ? sim_kernel_in(&kernel, "out", &out, bytes)
                                  : sim_kernel_out(&kernel, "out", bytes),
            .n = c->n};
    sim_kernel_run(&kernel, c->grid, c->block, 0, &params, sizeof(params));
    sim_kernel_read(&kernel, &out, params.out, bytes);
    compare(c);
    sim_kernel_expect_silence(&kernel);
    if (c->ways) {
        assert_int_equal(sim_kernel_counts(&kernel)->total.shared_ways, c->ways);
    }
    sim_kernel_close(&kernel);
}

int main(void) {
    enum {
        N_CASES = sizeof(cases) / sizeof(cases[0])
    };
    struct CMUnitTest tests[N_CASES];
    if (!sim_can_compile(0)) {
        return SIM_SKIPPED;
    }
    for (size_t i = 0; i < N_CASES; i++) {
        tests[i] = (struct CMUnitTest){.name = cases[i].entry,
                .test_func = run_case,
                .initial_state = (void *)(uintptr_t)&cases[i]};
    }
    return cmocka_run_group_tests_name("sim_kernels", tests, NULL, NULL);
}
