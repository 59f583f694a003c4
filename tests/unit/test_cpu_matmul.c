// cpu_matmul: the cpu plugin's matmul and its weight types, against f64 and against values derived
// by hand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_exec.h"

#include <math.h>

static const struct kiln_plugin *plugin;

enum {
    GUARD = 0x5a
};

// A matmul with everything it owns. Rows of OUT and RESIDUAL have a gap of two floats, those of IN
// one.
struct product {
    const struct exec_type *type;
    int64_t s, n, k, bound;
    unsigned char *weight;
    float *in, *bias, *residual, *out;
    float *dense;     // (n, k) the weights as the plugin reads them
    double *expected; // (s, n)
    double *size;     // (s, n): Σ |in * weight|, what errors are measured against
};

static void *new_bytes(size_t size) {
    void *bytes = kiln_alloc(size);
    assert_non_null(bytes);
    return bytes;
}

// The weights as f32, by way of the embed slot with the ids 0 .. n - 1.
static void read_weights(const struct product *p) {
    int32_t *ids = new_bytes((size_t)p->n * sizeof(int32_t));
    for (int64_t i = 0; i < p->n; i++) {
        ids[i] = (int32_t)i;
    }
    struct exec_op op = exec_op(KILN_OP_EMBED, KILN_PHASE_PREFILL);
    op.op.scale = 1;
    exec_i32(&op, KILN_OPERAND_IDS, p->n, ids);
    exec_add(&op, KILN_OPERAND_WEIGHT, p->type->dtype, p->k, p->n, p->type->elems, p->type->bytes,
            0, p->weight);
    exec_f32(&op, KILN_OPERAND_OUT, p->k, p->n, p->dense);
    exec_call(plugin, &op, "embed", (struct exec_setup){0, 1});
    kiln_free(ids);
}

static void compute_expected(const struct product *p) {
    for (int64_t s = 0; s < p->s; s++) {
        for (int64_t n = 0; n < p->n; n++) {
            double sum = 0;
            double size = 0;
            for (int64_t k = 0; k < p->k; k++) {
                double term = (double)p->in[s * (p->k + 1) + k] * (double)p->dense[n * p->k + k];
                sum += term;
                size += fabs(term);
            }
            p->expected[s * p->n + n] = sum;
            p->size[s * p->n + n] = size;
        }
    }
}

static struct product product_new(
        const struct exec_type *type, int64_t s, int64_t n, int64_t k, int64_t bound) {
    struct product p = {.type = type, .s = s, .n = n, .k = k, .bound = bound};
    uint32_t seed = (uint32_t)(77 + s + 31 * n + 1009 * k);
    size_t weights = (size_t)(n * k);
    p.weight = new_bytes(weights / (size_t)type->elems * (size_t)type->bytes);
    exec_fill(type, p.weight, weights / (size_t)type->elems, &seed);
    p.in = new_bytes((size_t)(bound * (k + 1)) * sizeof(float));
    p.bias = new_bytes((size_t)n * sizeof(float));
    p.residual = new_bytes((size_t)(bound * (n + 2)) * sizeof(float));
    p.out = new_bytes((size_t)(bound * (n + 2)) * sizeof(float));
    p.dense = new_bytes(weights * sizeof(float));
    p.expected = new_bytes((size_t)(s * n) * sizeof(double));
    p.size = new_bytes((size_t)(s * n) * sizeof(double));
    memset(p.in, 0xff, (size_t)(bound * (k + 1)) * sizeof(float)); // NaN where nothing may be read
    for (int64_t i = 0; i < s; i++) {
        for (int64_t j = 0; j < k; j++) {
            p.in[i * (k + 1) + j] = exec_uniform(&seed);
        }
        for (int64_t j = 0; j < n + 2; j++) {
            p.residual[i * (n + 2) + j] = exec_uniform(&seed);
        }
    }
    for (int64_t j = 0; j < n; j++) {
        p.bias[j] = exec_uniform(&seed);
    }
    read_weights(&p);
    compute_expected(&p);
    return p;
}

static void product_finish(struct product *p) {
    kiln_free(p->weight);
    kiln_free(p->in);
    kiln_free(p->bias);
    kiln_free(p->residual);
    kiln_free(p->out);
    kiln_free(p->dense);
    kiln_free(p->expected);
    kiln_free(p->size);
}

enum extra {
    EXTRA_BIAS = 1,
    EXTRA_RESIDUAL = 2,
    EXTRA_IN_PLACE = 4 // OUT is RESIDUAL
};

static void product_run(
        struct product *p, uint32_t phase, unsigned extra, struct exec_setup setup) {
    struct exec_op op = exec_op(KILN_OP_MATMUL, phase);
    int32_t in_use = (int32_t)p->s;
    size_t out_bytes = (size_t)(p->bound * (p->n + 2)) * sizeof(float);
    int64_t out_stride = (p->n + 2) * (int64_t)sizeof(float);
    memset(p->out, GUARD, out_bytes);
    if (extra & EXTRA_IN_PLACE) {
        for (int64_t s = 0; s < p->s; s++) {
            memcpy(p->out + s * (p->n + 2), p->residual + s * (p->n + 2),
                    (size_t)p->n * sizeof(float));
        }
    }
    exec_add(&op, KILN_OPERAND_IN, KILN_DTYPE_F32, p->k, p->bound, 1, 4, (p->k + 1) * 4, p->in);
    exec_add(&op, KILN_OPERAND_WEIGHT, p->type->dtype, p->k, p->n, p->type->elems, p->type->bytes,
            0, p->weight);
    if (extra & EXTRA_BIAS) {
        exec_f32(&op, KILN_OPERAND_BIAS, p->n, 1, p->bias);
    }
    if (extra & (EXTRA_RESIDUAL | EXTRA_IN_PLACE)) {
        exec_add(&op, KILN_OPERAND_RESIDUAL, KILN_DTYPE_F32, p->n, p->bound, 1, 4, out_stride,
                extra & EXTRA_IN_PLACE ? p->out : p->residual);
    }
    exec_add(&op, KILN_OPERAND_OUT, KILN_DTYPE_F32, p->n, p->bound, 1, 4, out_stride, p->out);
    exec_bound(&op, &in_use);
    exec_call(plugin, &op, "matmul", setup);
}

static void product_check(const struct product *p, unsigned extra) {
    static const unsigned char guard[4] = {GUARD, GUARD, GUARD, GUARD};
    for (int64_t s = 0; s < p->bound; s++) {
        for (int64_t n = 0; n < p->n + 2; n++) {
            const float *at = &p->out[s * (p->n + 2) + n];
            if (s >= p->s || n >= p->n) {
                assert_memory_equal(at, guard, sizeof(guard));
                continue;
            }
            double want = p->expected[s * p->n + n];
            double size = p->size[s * p->n + n];
            want += extra & EXTRA_BIAS ? (double)p->bias[n] : 0;
            want += extra & (EXTRA_RESIDUAL | EXTRA_IN_PLACE)
                            ? (double)p->residual[s * (p->n + 2) + n]
                            : 0;
            if (!(fabs((double)*at - want) <= 1e-6 * size + 2e-7 * (fabs(want) + 2))) {
                fail_msg("%s s %d n %d k %d: [%d][%d] is %.9g, not %.9g", p->type->name, (int)p->s,
                        (int)p->n, (int)p->k, (int)s, (int)n, (double)*at, want);
            }
        }
    }
}

static void run_all(const struct exec_type *type, int64_t s, int64_t n, int64_t k, int64_t bound) {
    struct product p = product_new(type, s, n, k, bound);
    static const unsigned extras[] = {0, EXTRA_BIAS, EXTRA_BIAS | EXTRA_RESIDUAL, EXTRA_IN_PLACE};
    for (int i = 0; i < 8; i++) {
        uint32_t phase = i % 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL;
        unsigned extra = extras[(i / 2 + s) % 4];
        if (i >= 4) {
            product_run(&p, phase, extra, (struct exec_setup){exec_features(), 2});
        } else {
            product_run(&p, phase, extra, (struct exec_setup){0, 2});
        }
        product_check(&p, extra);
    }
    product_finish(&p);
}

static void cpu_matmul_agrees_with_f64_for_every_type(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {
            {1, 1, 256}, {2, 3, 256}, {3, 4, 4096}, {9, 33, 512}, {17, 130, 768}, {5, 16, 256}};
    for (int t = 0; t < EXEC_TYPES; t++) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            run_all(&exec_types[t], shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][0] + 3);
        }
        if (exec_types[t].elems <= 32) {
            run_all(&exec_types[t], 4, 33, 32, 4);
            run_all(&exec_types[t], 7, 3, 32 * 19, 64);
        }
        if (exec_types[t].elems == 1) { // not a multiple of anything
            run_all(&exec_types[t], 3, 5, 1, 8);
            run_all(&exec_types[t], 7, 19, 263, 8);
        }
    }
}

static void cpu_matmul_agrees_with_f64_for_row_counts(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 129};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        run_all(&exec_types[3 + i % 7], rows[i], 20, 256, 130);
    }
}

// An odd, large number of weight rows. The whole is compared with the same rows in another
// place of the matrix.
static void cpu_matmul_fills_every_row_of_a_large_odd_matrix(void **state) {
    (void)state;
    static const int types[] = {4, 6, 7, 9}; // q4_1, q8_0, q4_K, q6_K
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        struct product p = product_new(&exec_types[types[t]], 2, 51865, 256, 3);
        product_run(&p, KILN_PHASE_PREFILL, 0, (struct exec_setup){exec_features(), 2});
        product_check(&p, 0);
        product_run(&p, KILN_PHASE_DECODE, 0, (struct exec_setup){exec_features(), 2});
        product_check(&p, 0);
        product_finish(&p);
    }
}

static void cpu_matmul_repeats_bit_for_bit(void **state) {
    (void)state;
    static const int64_t bounds[] = {67, 128, 512};
    for (int mode = 0; mode < 4; mode++) {
        uint32_t features = mode % 2 ? exec_features() : 0;
        uint32_t phase = mode / 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL;
        float *first = NULL;
        for (int i = 0; i < 9; i++) {
            static const uint32_t threads[] = {1, 2, 7};
            struct product p = product_new(&exec_types[7], 67, 150, 512, bounds[i % 3]);
            product_run(&p, phase, EXTRA_BIAS, (struct exec_setup){features, threads[i / 3]});
            size_t bytes = (size_t)(67 * 152) * sizeof(float);
            if (first == NULL) {
                first = new_bytes(bytes);
                memcpy(first, p.out, bytes);
            }
            assert_memory_equal(first, p.out, bytes);
            product_finish(&p);
        }
        kiln_free(first);
    }
}

// A row alone gives the bits that it gives among others.
static void cpu_matmul_row_does_not_depend_on_its_neighbours(void **state) {
    (void)state;
    struct product p = product_new(&exec_types[5], 13, 40, 320, 13);
    for (int mode = 0; mode < 2; mode++) {
        struct exec_setup setup = {mode ? exec_features() : 0, 1};
        product_run(&p, KILN_PHASE_PREFILL, 0, setup);
        float row[40];
        memcpy(row, p.out + 12 * 42, sizeof(row));
        struct product alone = p;
        alone.s = 1;
        alone.in = p.in + 12 * 321;
        alone.bound = 1;
        product_run(&alone, KILN_PHASE_PREFILL, 0, setup);
        assert_memory_equal(row, alone.out, sizeof(row));
    }
    product_finish(&p);
}

// Expected values of one block by its own rule, written out here apart from the plugin's code.
// Multiplied with unit vectors, so that every way that expands a block gives them exactly.
static void check_block(
        const struct exec_type *type, const unsigned char *block, const float *expected) {
    int64_t k = type->elems;
    struct product p = {.type = type, .s = k, .n = 1, .k = k, .bound = k};
    p.weight = new_bytes((size_t)type->bytes);
    memcpy(p.weight, block, (size_t)type->bytes);
    p.in = new_bytes((size_t)(k * (k + 1)) * sizeof(float));
    memset(p.in, 0, (size_t)(k * (k + 1)) * sizeof(float));
    p.out = new_bytes((size_t)(3 * k) * sizeof(float));
    p.dense = new_bytes((size_t)k * sizeof(float));
    for (int64_t i = 0; i < k; i++) {
        p.in[i * (k + 1) + i] = 1;
    }
    read_weights(&p);
    for (int mode = 0; mode < 4; mode++) {
        product_run(&p, mode % 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL, 0,
                (struct exec_setup){mode / 2 ? exec_features() : 0, 1});
        for (int64_t i = 0; i < k; i++) {
            if (p.out[3 * i] != expected[i] || p.dense[i] != expected[i]) {
                fail_msg("%s mode %d value %d: %.9g and %.9g, not %.9g", type->name, mode, (int)i,
                        (double)p.out[3 * i], (double)p.dense[i], (double)expected[i]);
            }
        }
    }
    kiln_free(p.weight);
    kiln_free(p.in);
    kiln_free(p.out);
    kiln_free(p.dense);
}

static void cpu_dequant_small_blocks_give_the_derived_values(void **state) {
    (void)state;
    unsigned char block[34];
    float expected[32];
    for (int i = 0; i < 16; i++) { // d = 0.5: low nibble i, high nibble 15 - i
        block[2 + i] = (unsigned char)(i | (15 - i) << 4);
        expected[i] = 0.5F * (float)(i - 8);
        expected[16 + i] = 0.5F * (float)(7 - i);
    }
    memcpy(block, "\x00\x38", 2);
    check_block(&exec_types[3], block, expected);

    memmove(block + 4, block + 2, 16); // q4_1: d = 0.5, m = -1.5
    memcpy(block + 2, "\x00\xbe", 2);
    for (int i = 0; i < 16; i++) {
        expected[i] = 0.5F * (float)i - 1.5F;
        expected[16 + i] = 0.5F * (float)(15 - i) - 1.5F;
    }
    check_block(&exec_types[4], block, expected);

    memmove(block + 6, block + 4, 16); // q5_0: fifth bits of the values 0, 1, 5, 16, 30
    memcpy(block + 2, "\x23\x00\x01\x40", 4);
    for (int i = 0; i < 32; i++) {
        int nibble = i < 16 ? i : 31 - i;
        int fifth = i == 0 || i == 1 || i == 5 || i == 16 || i == 30;
        expected[i] = 0.5F * (float)(nibble + 16 * fifth - 16);
    }
    check_block(&exec_types[5], block, expected);

    for (int i = 0; i < 32; i++) { // q8_0: -128, -120 … 120
        int quant = 8 * i - 128;
        block[2 + i] = (unsigned char)quant;
        expected[i] = 0.5F * (float)quant;
    }
    check_block(&exec_types[6], block, expected);
}

// The split 6-bit scales and minimums.
static void cpu_dequant_q4_K_scales_are_split(void **state) {
    (void)state;
    static const unsigned char scales[] = {
            0x41, 0x82, 0xc3, 0xc4, 0x45, 0x86, 0xc7, 0x88, 0x41, 0x82, 0xc3, 0x1f};
    static const float groups[] = {-4, -4, -4, -4, -3, -6, -9, 30};
    unsigned char block[144] = {0x00, 0x3c, 0x00, 0x3c};
    float expected[256];
    memcpy(block + 4, scales, sizeof(scales));
    memset(block + 16, 0x11, 128);
    for (int i = 0; i < 256; i++) {
        expected[i] = groups[i / 32];
    }
    check_block(&exec_types[7], block, expected);
}

static void cpu_dequant_q5_K_gives_the_derived_values(void **state) {
    (void)state;
    static const unsigned char scales[] = {
            0x41, 0x82, 0xc3, 0xc4, 0x45, 0x86, 0xc7, 0x88, 0x41, 0x82, 0xc3, 0x1f};
    static const int scale[] = {1, 2, 3, 4, 17, 34, 51, 63};
    static const int min[] = {5, 6, 7, 8, 20, 40, 60, 33};
    unsigned char block[176] = {0x00, 0x3c, 0x00, 0x38}; // d = 1, dmin = 0.5
    float expected[256];
    memcpy(block + 4, scales, sizeof(scales));
    for (int l = 0; l < 32; l++) {
        block[16 + l] = (unsigned char)(7 * l); // fifth bits: bit g of 7 l
    }
    for (int i = 0; i < 128; i++) {
        block[48 + i] = (unsigned char)(i * 29);
    }
    for (int i = 0; i < 256; i++) {
        int group = i / 32;
        int byte = (32 * (group / 2) + i % 32) * 29 & 255;
        int quant = group % 2 ? byte >> 4 : byte & 15;
        quant += (7 * (i % 32) & 255) >> group & 1 ? 16 : 0;
        expected[i] = (float)(scale[group] * quant) - 0.5F * (float)min[group];
    }
    check_block(&exec_types[8], block, expected);
}

static void cpu_dequant_q6_K_gives_the_derived_values(void **state) {
    (void)state;
    unsigned char block[210];
    float expected[256];
    memset(block, 0, sizeof(block));
    memcpy(block + 208, "\x00\x34", 2); // d = 0.25
    for (int i = 0; i < 16; i++) {
        block[192 + i] = (unsigned char)(i % 2 ? -128 + i : 3 * i + 1);
    }
    for (int i = 0; i < 256; i++) {
        int quant = i * 37 % 64; // 6 bits, placed by the layout
        int half = i / 128;
        int part = i % 128 / 32;
        int l = i % 32;
        block[64 * half + (part & 1 ? 32 : 0) + l] |=
                (unsigned char)((quant & 15) << (part < 2 ? 0 : 4));
        block[128 + 32 * half + l] |= (unsigned char)(quant >> 4 << 2 * part);
        int group = i / 16;
        int scale = group % 2 ? -128 + group : 3 * group + 1;
        expected[i] = 0.25F * (float)(scale * (quant - 32));
    }
    check_block(&exec_types[9], block, expected);
}

static void cpu_dequant_f16_covers_every_kind_of_number(void **state) {
    (void)state;
    static const uint16_t halves[] = {
            0x0000, 0x8000, 0x3c00, 0xc000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0x3555};
    static const float expected[] = {
            0, -0.0F, 1, -2, 0x1p-24F, -0x1.ff8p-15F, 0x1p-14F, 65504, 0x1.554p-2F};
    for (int i = 0; i < 9; i++) {
        check_block(&exec_types[1], (const unsigned char *)&halves[i], &expected[i]);
    }
}

// Large sums of activations, and a row of zeros.
static void cpu_matmul_large_and_zero_activations_stay_finite(void **state) {
    (void)state;
    static const float values[] = {2047, 2048, -2048, 100000, 0};
    for (int t = 0; t < EXEC_TYPES; t++) {
        struct product p = product_new(&exec_types[t], 5, 4, 256, 5);
        for (int64_t s = 0; s < 5; s++) {
            for (int64_t k = 0; k < 256; k++) {
                p.in[s * 257 + k] = values[s];
            }
        }
        compute_expected(&p);
        for (int mode = 0; mode < 4; mode++) {
            product_run(&p, mode % 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL, 0,
                    (struct exec_setup){mode / 2 ? exec_features() : 0, 1});
            product_check(&p, 0);
            for (int n = 0; n < 4; n++) {
                assert_true(p.out[4 * 6 + n] == 0);
            }
        }
        product_finish(&p);
    }
}

static void cpu_matmul_plan_states_its_work_and_declines_with_reasons(void **state) {
    (void)state;
    static const float dummy[4];
    struct exec_op op = exec_op(KILN_OP_MATMUL, KILN_PHASE_PREFILL);
    exec_f32(&op, KILN_OPERAND_IN, 256, 8, dummy);
    exec_add(&op, KILN_OPERAND_WEIGHT, KILN_DTYPE_Q4_K, 256, 10, 256, 144, 0, dummy);
    exec_f32(&op, KILN_OPERAND_OUT, 10, 8, dummy);
    struct exec_setup generic = {0, 2};
    struct exec_plan plan = exec_make(plugin, &op, "matmul.q4_K.prefill", generic);
    assert_int_equal(plan.result, KILN_RESULT_OK);
    assert_string_equal(plan.kernel, "matmul_q4_K_prefill_generic");
    assert_true(plan.launch.flops == 2.0 * 8 * 10 * 256);
    assert_true(plan.launch.bytes_read == 8 * 256 * 4 + 1440);
    assert_true(plan.launch.bytes_written == 8 * 10 * 4);
    if (exec_features() != 0) {
        plan = exec_make(
                plugin, &op, "matmul.q4_K.prefill", (struct exec_setup){KILN_HOST_AVX2, 2});
        assert_string_equal(plan.kernel, "matmul_q4_K_prefill_avx2");
        assert_string_equal(plan.sum_order, "exact:matmul:prefill:avx2:k128");
    }
    op.tensors[1].dtype = KILN_DTYPE_Q2_K;
    plan = exec_make(plugin, &op, "matmul.q2_K.prefill", generic);
    assert_int_equal(plan.result, KILN_RESULT_DECLINED);
    assert_non_null(strstr(plan.text, "WEIGHT"));
    op.tensors[1].dtype = KILN_DTYPE_Q4_K;
    op.tensors[0].dtype = KILN_DTYPE_F16;
    plan = exec_make(plugin, &op, "matmul.q4_K.prefill", generic);
    assert_int_equal(plan.result, KILN_RESULT_DECLINED);
    assert_non_null(strstr(plan.text, "IN"));
    op.tensors[0].dtype = KILN_DTYPE_F32;
    op.tensors[0].dims[0] = 255;
    plan = exec_make(plugin, &op, "matmul.q4_K.prefill", generic);
    assert_int_equal(plan.result, KILN_RESULT_FAILED);
}

int main(void) {
    plugin = exec_open("plugins/cpu/cpu.so");
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(cpu_dequant_small_blocks_give_the_derived_values),
            cmocka_unit_test(cpu_dequant_q4_K_scales_are_split),
            cmocka_unit_test(cpu_dequant_q5_K_gives_the_derived_values),
            cmocka_unit_test(cpu_dequant_q6_K_gives_the_derived_values),
            cmocka_unit_test(cpu_dequant_f16_covers_every_kind_of_number),
            cmocka_unit_test(cpu_matmul_agrees_with_f64_for_every_type),
            cmocka_unit_test(cpu_matmul_agrees_with_f64_for_row_counts),
            cmocka_unit_test(cpu_matmul_fills_every_row_of_a_large_odd_matrix),
            cmocka_unit_test(cpu_matmul_repeats_bit_for_bit),
            cmocka_unit_test(cpu_matmul_row_does_not_depend_on_its_neighbours),
            cmocka_unit_test(cpu_matmul_large_and_zero_activations_stay_finite),
            cmocka_unit_test(cpu_matmul_plan_states_its_work_and_declines_with_reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
