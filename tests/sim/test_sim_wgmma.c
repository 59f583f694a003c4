// sim_wgmma: products of warpgroups: every way that a matrix may lie in shared memory, by the
// offsets that the PTX ISA gives for it; faults planted in one kernel. Skipped (77) without NVRTC.
#include "sim_kernel.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
    ROWS = 64, // of a, and of the sums
    DEPTH = 16,
    MAX_N = 256,
    THREADS = 128,
    SHARED = 96 * 1024,
    B_AT = 32 * 1024, // of b in shared memory
    MAX_TEXT = 1 << 15,
};

// ---- The kernel ---------------------------------------------------------------------------------
struct product {
    int n;
    int f16_sums, bf16;
    int swizzle_a, swizzle_b; // bytes of a row, 0: none
    int a_in_registers;
    int rows_first_a, rows_first_b; // M-major, N-major
    int from_zero;                  // scale-d is 0
    int minus_a, minus_b;
    int base;  // rows of 128 bytes by which both patterns begin late
    int pitch; // bytes beyond the closest place, from 8 rows (or 8 of k) to the next
};

static int n_registers(const struct product *p) {
    return p->f16_sums ? p->n / 4 : p->n / 2;
}

static size_t put(char *text, size_t at, const char *fmt, ...) KILN_PRINTF(3, 4);
static size_t put(char *text, size_t at, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text + at, MAX_TEXT - at, fmt, args);
    va_end(args);
    assert_true(n >= 0 && at + (size_t)n < MAX_TEXT);
    return at + (size_t)n;
}

// The instruction as CUDA has it: sums %0 …, then a, b, and what scales the sums.
static size_t put_product(char *text, size_t at, const struct product *p) {
    int count = n_registers(p), next = count;
    at = put(text, at,
            "asm volatile(\"{ .reg .pred p; setp.ne.b32 p, %%%d, 0; "
            "wgmma.mma_async.sync.aligned.m64n%dk16.%s.%s.%s {",
            count + (p->a_in_registers ? 5 : 2), p->n, p->f16_sums ? "f16" : "f32",
            p->bf16 ? "bf16" : "f16", p->bf16 ? "bf16" : "f16");
    for (int i = 0; i < count; i++) {
        at = put(text, at, "%s%%%d", i ? ", " : "", i);
    }
    if (p->a_in_registers) {
        at = put(text, at, "}, {%%%d, %%%d, %%%d, %%%d}", next, next + 1, next + 2, next + 3);
        next += 4;
    } else {
        at = put(text, at, "}, %%%d", next++);
    }
    at = put(text, at, ", %%%d, p, %d, %d", next, p->minus_a ? -1 : 1, p->minus_b ? -1 : 1);
    if (!p->a_in_registers) {
        at = put(text, at, ", %d", p->rows_first_a);
    }
    at = put(text, at, ", %d; }\" : ", p->rows_first_b);
    for (int i = 0; i < count; i++) {
        at = put(text, at, "%s\"+%s\"(d[%d])", i ? ", " : "", p->f16_sums ? "r" : "f", i);
    }
    at = put(text, at,
            p->a_in_registers ? " : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])"
                              : " : \"l\"(at_a)");
    return put(text, at, ", \"l\"(at_b), \"r\"(scale));\n");
}

static void put_kernel(char *text, const struct product *p) {
    size_t at = put(text, 0,
            "extern \"C\" __global__ void product(const uint4 *image, unsigned long long at_a,\n"
            "        unsigned long long at_b, const unsigned *in, %s *sums, int scale) {\n"
            "    extern __shared__ __align__(1024) unsigned char shared[];\n"
            "    for (int i = threadIdx.x; i < %d; i += 128) {\n"
            "        ((uint4 *)shared)[i] = image[i];\n"
            "    }\n"
            "    asm volatile(\"fence.proxy.async.shared::cta;\" : : : \"memory\");\n"
            "    __syncthreads();\n"
            "    unsigned a[4];\n"
            "    %s d[%d];\n"
            "    for (int i = 0; i < 4; i++) {\n"
            "        a[i] = in[i * 128 + threadIdx.x];\n"
            "    }\n"
            "#pragma unroll\n"
            "    for (int i = 0; i < %d; i++) {\n"
            "        d[i] = sums[i * 128 + threadIdx.x];\n"
            "    }\n"
            "    asm volatile(\"wgmma.fence.sync.aligned;\" : : : \"memory\");\n    ",
            p->f16_sums ? "unsigned" : "float", SHARED / 16, p->f16_sums ? "unsigned" : "float",
            n_registers(p), n_registers(p));
    at = put_product(text, at, p);
    (void)put(text, at,
            "    asm volatile(\"wgmma.commit_group.sync.aligned;\" : : : \"memory\");\n"
            "    asm volatile(\"wgmma.wait_group.sync.aligned 0;\" : : : \"memory\");\n"
            "#pragma unroll\n"
            "    for (int i = 0; i < %d; i++) {\n"
            "        sums[i * 128 + threadIdx.x] = d[i];\n"
            "    }\n"
            "}\n",
            n_registers(p));
}

// ---- Matrices and where they lie ----------------------------------------------------------------
static unsigned char image[SHARED];
static uint16_t factor_a[ROWS][DEPTH], factor_b[MAX_N][DEPTH];
static float value_a[ROWS][DEPTH], value_b[MAX_N][DEPTH], value_c[ROWS][MAX_N];

static float fraction(int i) { // a number that f16 and bf16 hold
    uint32_t bits = (uint32_t)(i + 1) * 2654435761U;
    return (float)((int)(bits >> 20) % 255 - 127) / 32;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static uint16_t half_of(float value, int bf16) {
    uint32_t bits = bits_of(value);
    if (bf16 || value == 0.0F) {
        return (uint16_t)(bits >> 16);
    }
    return (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 255) - 112) << 10 |
                      (bits >> 13 & 1023));
}

static float float_of(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31;
    uint32_t bits =
            exponent == 0 ? sign : sign | (exponent + 112) << 23 | (uint32_t)(half & 1023) << 13;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

struct place { // of a matrix in shared memory
    int start, leading, stride, swizzle, base;
};

// Offsets that keep a matrix of so many rows together.
static struct place place_of(
        int rows, int start, int swizzle, int rows_first, const struct product *p) {
    int width = swizzle ? swizzle : 16;
    struct place place = {.start = start + p->base * 128, .swizzle = swizzle, .base = p->base};
    if (!swizzle) { // pieces of 8 rows by 8 of k, 128 bytes each
        place.stride = 128 + p->pitch;
        place.leading = rows / 8 * place.stride + 256;
    } else if (!rows_first) {
        place.stride = 8 * width + p->pitch;
    } else { // atoms of width / 2 rows by 8 of k
        place.leading = 8 * width + p->pitch;
        place.stride = (rows * 2 + width - 1) / width * place.leading;
    }
    return place;
}

static int offset_of(const struct place *place, int row, int k, int rows_first) {
    int width = place->swizzle ? place->swizzle : 16, at = place->start, each = width / 2;
    if (!rows_first) {
        at += row / 8 * place->stride + row % 8 * width;
        at += place->swizzle ? k * 2 : k / 8 * place->leading + k % 8 * 2;
    } else if (!place->swizzle) {
        at += row / 8 * place->stride + k / 8 * place->leading + k % 8 * 16 + row % 8 * 2;
    } else {
        at += row / each * place->leading + k / 8 * place->stride + k % 8 * width + row % each * 2;
    }
    // The 16-byte pieces of a row of 128 bytes trade places by the number of the row.
    int line = (at / 128 - place->base) & (width / 16 - 1);
    return at ^ line * 16;
}

static uint64_t describe(const struct place *place) {
    uint64_t mode = place->swizzle == 128  ? 1
                    : place->swizzle == 64 ? 2
                    : place->swizzle == 32 ? 3
                                           : 0;
    return (uint64_t)(place->start / 16) | (uint64_t)(place->leading / 16) << 16 |
           (uint64_t)(place->stride / 16) << 32 | (uint64_t)place->base << 49 | mode << 62;
}

static void lay_out(const struct place *place, int rows, uint16_t factor[][DEPTH], int rows_first) {
    for (int row = 0; row < rows; row++) {
        for (int k = 0; k < DEPTH; k++) {
            int at = offset_of(place, row, k, rows_first);
            assert_true(at >= 0 && at < SHARED);
            memcpy(image + at, &factor[row][k], 2);
        }
    }
}

static void fill(const struct product *p) {
    memset(image, 0x7c, sizeof(image)); // large numbers where none belong
    for (int i = 0; i < ROWS * DEPTH; i++) {
        value_a[i / DEPTH][i % DEPTH] = fraction(i);
        factor_a[i / DEPTH][i % DEPTH] = half_of(fraction(i), p->bf16);
    }
    for (int i = 0; i < p->n * DEPTH; i++) {
        value_b[i / DEPTH][i % DEPTH] = fraction(i + 5000);
        factor_b[i / DEPTH][i % DEPTH] = half_of(fraction(i + 5000), p->bf16);
    }
    for (int i = 0; i < ROWS * p->n; i++) {
        value_c[i / p->n][i % p->n] = fraction(i + 9000);
    }
}

// The element of row and column in the registers: thread, register, half.
static int thread_of(int row, int column) {
    return row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
}

static int element_of(int row, int column) {
    return column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
}

static uint32_t sum_at(const uint32_t *sums, const struct product *p, int row, int column) {
    int e = element_of(row, column), thread = thread_of(row, column);
    if (!p->f16_sums) {
        return sums[e * THREADS + thread];
    }
    return sums[e / 2 * THREADS + thread] >> e % 2 * 16 & 0xffff;
}

static void put_sum(uint32_t *sums, const struct product *p, int row, int column, float value) {
    int e = element_of(row, column), thread = thread_of(row, column);
    if (p->f16_sums) {
        sums[e / 2 * THREADS + thread] |= (uint32_t)half_of(value, 0) << e % 2 * 16;
    } else {
        sums[e * THREADS + thread] = bits_of(value);
    }
}

static void put_factor(uint32_t in[4 * THREADS]) { // a in registers, as mma.m16n8k16 has it
    for (int row = 0; row < ROWS; row++) {
        for (int k = 0; k < DEPTH; k++) {
            int reg = row % 16 / 8 + k / 8 * 2, thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
            in[reg * THREADS + thread] |= (uint32_t)factor_a[row][k] << k % 2 * 16;
        }
    }
}

// ---- Results ------------------------------------------------------------------------------------
static float expected(const struct product *p, int row, int column) {
    float sum = p->from_zero ? 0 : value_c[row][column];
    for (int k = 0; k < DEPTH; k++) {
        float product = value_a[row][k] * value_b[column][k];
        sum += p->minus_a != p->minus_b ? -product : product;
    }
    return sum;
}

struct params {
    uint64_t image, at_a, at_b, in, sums;
    int32_t scale;
};

static void run_source(struct sim_kernel *kernel, const char *text, const struct product *p,
        uint32_t threads, uint32_t shared, uint32_t *sums) {
    struct sim_source source = {
            .name = "product.cu", .text = text, .entry = "product", .architecture = "compute_90a"};
    uint32_t in[4 * THREADS] = {0};
    fill(p);
    struct place a = place_of(ROWS, 0, p->swizzle_a, p->rows_first_a, p);
    struct place b = place_of(p->n, B_AT, p->swizzle_b, p->rows_first_b, p);
    lay_out(&a, ROWS, factor_a, p->rows_first_a);
    lay_out(&b, p->n, factor_b, p->rows_first_b);
    put_factor(in);
    memset(sums, 0, THREADS * MAX_N / 2 * sizeof(*sums));
    for (int i = 0; i < ROWS * p->n; i++) {
        put_sum(sums, p, i / p->n, i % p->n, value_c[i / p->n][i % p->n]);
    }
    sim_kernel_open(kernel, &source);
    size_t bytes = (size_t)n_registers(p) * THREADS * 4;
    struct params params = {.image = sim_kernel_in(kernel, "image", image, sizeof(image)),
            .at_a = describe(&a),
            .at_b = describe(&b),
            .in = sim_kernel_in(kernel, "in", in, sizeof(in)),
            .sums = sim_kernel_in(kernel, "sums", sums, bytes),
            .scale = !p->from_zero};
    sim_kernel_run(kernel, (uint32_t[]){1, 1, 1}, (uint32_t[]){threads, 1, 1}, shared, &params,
            sizeof(params));
    sim_kernel_read(kernel, sums, params.sums, bytes);
}

static void check_product(const struct product *p) {
    static char text[MAX_TEXT];
    static uint32_t sums[THREADS * MAX_N / 2];
    struct sim_kernel kernel;
    put_kernel(text, p);
    run_source(&kernel, text, p, THREADS, SHARED, sums);
    sim_kernel_expect_silence(&kernel);
    for (int i = 0; i < ROWS * p->n; i++) {
        int row = i / p->n, column = i % p->n;
        float want = expected(p, row, column);
        uint32_t got = sum_at(sums, p, row, column);
        // f16 sums are rounded once: to within half of their last place.
        float off = p->f16_sums ? float_of((uint16_t)got) - want : 0;
        int good = p->f16_sums ? off * off <= want * want / (1 << 22) : got == bits_of(want);
        if (!good) {
            fail_msg("n %d swizzle %d and %d: row %d column %d is %08x, not %08x (%g)", p->n,
                    p->swizzle_a, p->swizzle_b, row, column, got, bits_of(want), (double)want);
        }
    }
    char shape[64];
    (void)snprintf(shape, sizeof(shape), "m64n%dk16.%s.%s.%s", p->n, p->f16_sums ? "f16" : "f32",
            p->bf16 ? "bf16" : "f16", p->bf16 ? "bf16" : "f16");
    assert_int_equal(sim_report_mma(kernel.report, "product", shape), 4); // warps
    sim_kernel_close(&kernel);
}

static void wgmma_multiplies_every_shape(void **state) {
    (void)state;
    static const int sizes[] = {8, 16, 24, 136, 256};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        check_product(&(struct product){.n = sizes[i], .swizzle_a = 128, .swizzle_b = 128});
    }
    check_product(&(struct product){.n = 32, .bf16 = 1, .swizzle_a = 128, .swizzle_b = 128});
    check_product(&(struct product){.n = 32, .f16_sums = 1, .swizzle_a = 128, .swizzle_b = 128});
}

static void wgmma_finds_matrices_however_they_lie(void **state) {
    (void)state;
    static const int swizzles[] = {0, 32, 64, 128};
    for (int i = 0; i < 16; i++) {
        check_product(&(struct product){.n = 64,
                .swizzle_a = swizzles[i / 4],
                .swizzle_b = swizzles[(i + i / 4) % 4],
                .rows_first_a = i & 1,
                .rows_first_b = i >> 1 & 1,
                .pitch = i % 3 ? 1024 : 0});
    }
    check_product(&(struct product){
            .n = 40, .swizzle_a = 128, .swizzle_b = 128, .base = 3, .pitch = 1024});
}

static void wgmma_scales_and_takes_a_from_registers(void **state) {
    (void)state;
    check_product(&(struct product){.n = 16, .swizzle_b = 64, .a_in_registers = 1});
    check_product(&(struct product){
            .n = 16, .swizzle_b = 64, .a_in_registers = 1, .bf16 = 1, .rows_first_b = 1});
    check_product(&(struct product){.n = 16, .swizzle_a = 32, .swizzle_b = 32, .from_zero = 1});
    check_product(&(struct product){.n = 16, .swizzle_a = 32, .swizzle_b = 32, .minus_a = 1});
    check_product(&(struct product){
            .n = 16, .swizzle_a = 32, .swizzle_b = 32, .minus_a = 1, .minus_b = 1});
}

// ---- Faults -------------------------------------------------------------------------------------
struct fault {
    const char *what;
    enum kiln_sim_check check;
    const char *from, *to; // in the kernel
    const char *line;      // what stands on the line that is to blame
    int a_in_registers;
    uint32_t threads, shared; // of the launch
};

static const struct fault faults[] = {
        {"sums read before the wait", KILN_SIM_CHECK_ASYNC, "wait_group.sync.aligned 0",
                "wait_group.sync.aligned 1", "sums[i * 128 + threadIdx.x] = d[i]", 0, 128, SHARED},
        {"no wait at all", KILN_SIM_CHECK_ASYNC,
                "    asm volatile(\"wgmma.wait_group.sync.aligned 0;\" : : : \"memory\");\n", "\n",
                "sums[i * 128 + threadIdx.x] = d[i]", 0, 128, SHARED},
        {"a's registers read before the wait", KILN_SIM_CHECK_ASYNC,
                "    asm volatile(\"wgmma.wait_group",
                "    sums[threadIdx.x] = (float)a[0];\n    asm volatile(\"wgmma.wait_group",
                "(float)a[0]", 1, 128, SHARED},
        {"no wgmma.fence", KILN_SIM_CHECK_ASYNC,
                "    asm volatile(\"wgmma.fence.sync.aligned;\" : : : \"memory\");\n", "\n",
                "wgmma.mma_async", 0, 128, SHARED},
        {"no proxy fence", KILN_SIM_CHECK_RACE,
                "    asm volatile(\"fence.proxy.async.shared::cta;\" : : : \"memory\");\n", "\n",
                "wgmma.mma_async", 0, 128, SHARED},
        {"a barrier missing", KILN_SIM_CHECK_RACE, "    __syncthreads();\n", "\n",
                "wgmma.mma_async", 0, 128, SHARED},
        {"b written before the wait", KILN_SIM_CHECK_RACE, "    asm volatile(\"wgmma.wait_group",
                "    shared[32768] = 1;\n    asm volatile(\"wgmma.wait_group", "shared[32768] = 1",
                0, 128, SHARED},
        {"a lane missing", KILN_SIM_CHECK_LANES, "    asm volatile(\"{",
                "    if (threadIdx.x != 5) asm volatile(\"{", "wgmma.mma_async", 0, 128, SHARED},
        {"a warp missing", KILN_SIM_CHECK_LANES, "    asm volatile(\"{",
                "    if (threadIdx.x < 96) asm volatile(\"{", "wgmma.mma_async", 0, 128, SHARED},
        {"a warpgroup of three warps", KILN_SIM_CHECK_LANES, "    asm volatile(\"{",
                "    asm volatile(\"{", "wgmma.mma_async", 0, 96, SHARED},
        {"warps with other matrices", KILN_SIM_CHECK_LANES, "    asm volatile(\"{",
                "    at_b += threadIdx.x / 32; asm volatile(\"{", "wgmma.mma_async", 0, 128,
                SHARED},
        {"b past the end", KILN_SIM_CHECK_BOUNDS, "    asm volatile(\"{",
                "    at_b += 5000; asm volatile(\"{", "wgmma.mma_async", 0, 128, SHARED},
};

static void wgmma_tells_faults_on_their_line(void **state) {
    (void)state;
    static char text[MAX_TEXT];
    static uint32_t sums[THREADS * MAX_N / 2];
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        const struct fault *f = &faults[i];
        struct product p = {.n = 16,
                .swizzle_a = f->a_in_registers ? 0 : 128,
                .swizzle_b = 128,
                .a_in_registers = f->a_in_registers};
        struct sim_kernel kernel;
        put_kernel(text, &p);
        char *bad = sim_replace(text, f->from, f->to, 1);
        run_source(&kernel, bad, &p, f->threads, f->shared, sums);
        const struct kiln_sim_finding *found;
        uint32_t n = kiln_sim_findings(kernel.report, &found), right = 0;
        for (uint32_t k = 0; k < n; k++) {
            right += found[k].check == f->check && found[k].line == sim_line_of(bad, f->line, 1);
        }
        for (uint32_t k = 0; k < n && right == 0; k++) {
            print_error("%s\n", found[k].text);
        }
        if (right == 0) {
            fail_msg("%s: %s is not told on line %u", f->what, kiln_sim_check_name(f->check),
                    sim_line_of(bad, f->line, 1));
        }
        sim_kernel_close(&kernel);
        kiln_free(bad);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(wgmma_multiplies_every_shape),
            cmocka_unit_test(wgmma_finds_matrices_however_they_lie),
            cmocka_unit_test(wgmma_scales_and_takes_a_from_registers),
            cmocka_unit_test(wgmma_tells_faults_on_their_line),
    };
    if (!sim_can_compile(0)) {
        return SIM_SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
