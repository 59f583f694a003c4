// cpu_kernels: the cpu plugin's entry and its row-wise kernels (embed, norm, rope_kv, activation,
// argmax), against f64.
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

static void *new_bytes(size_t size) {
    void *bytes = kiln_alloc(size);
    assert_non_null(bytes);
    return bytes;
}

static void fill(float *at, size_t n, float scale, uint32_t *seed) {
    for (size_t i = 0; i < n; i++) {
        at[i] = scale * exec_uniform(seed);
    }
}

static void assert_near(float got, double want, double bar, const char *what, int at) {
    if (!(fabs((double)got - want) <= bar)) {
        fail_msg("%s [%d]: %.9g, not %.9g (bar %.3g)", what, at, (double)got, want, bar);
    }
}

static void assert_guard(const void *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(((const unsigned char *)at)[i], GUARD);
    }
}

static void cpu_plugin_entry_is_whole(void **state) {
    (void)state;
    assert_int_equal(plugin->struct_size, sizeof(struct kiln_plugin));
    assert_int_equal(plugin->abi_major, KILN_ABI_MAJOR);
    assert_string_equal(plugin->name, "cpu");
#if defined(__x86_64__)
    static const char *const names[] = {"exact", "exact_q8", "q8", "q8_32"};
#else
    static const char *const names[] = {"exact", "exact_q8", "q8_32"};
#endif
    assert_int_equal(plugin->n_variants, sizeof(names) / sizeof(names[0]));
    for (uint32_t v = 0; v < plugin->n_variants; v++) {
        const struct kiln_variant *variant = plugin->variants[v];
        assert_string_equal(variant->name, names[v]);
        assert_int_equal(variant->devices, KILN_DEVICE_HOST);
        for (uint32_t i = 0; i < variant->n_kernels; i++) {
            assert_int_equal(variant->kernels[i]->struct_size, sizeof(struct kiln_kernel));
            assert_true(variant->kernels[i]->host != NULL);
            for (uint32_t j = 0; j < i; j++) {
                assert_string_not_equal(variant->kernels[i]->name, variant->kernels[j]->name);
            }
        }
    }
    assert_int_equal(plugin->n_formats, 1);
    assert_string_equal(plugin->formats[0]->name, "q8_32");
    assert_int_equal(plugin->formats[0]->block_elems, 32);
    assert_int_equal(plugin->formats[0]->block_bytes, 40);
}

static void cpu_plugin_declines_other_devices_and_groups_of_ops(void **state) {
    (void)state;
    struct kiln_op op = {.struct_size = sizeof(op), .kind = KILN_OP_QUANTIZE, .role = "x"};
    const struct kiln_op *ops[] = {&op, &op};
    struct kiln_problem problem = {
            .struct_size = sizeof(problem), .slot = "norm", .ops = ops, .n_ops = 2};
    struct kiln_geometry geometry = {.struct_size = sizeof(geometry)};
    struct kiln_device device = {.struct_size = sizeof(device), .kind = KILN_DEVICE_HOST};
    struct exec_plan made = {0};
    struct kiln_plan sink = {.struct_size = sizeof(sink),
            .data = &made,
            .launch = exec_sink_launch,
            .decline = exec_sink_decline,
            .fail = exec_sink_fail};
    const struct kiln_variant *exact = plugin->variants[0];
    assert_int_equal(exact->plan(NULL, &problem, &geometry, &device, &sink), KILN_RESULT_DECLINED);
    assert_non_null(strstr(made.text, "2 ops"));
    problem.n_ops = 1;
    assert_int_equal(exact->plan(NULL, &problem, &geometry, &device, &sink), KILN_RESULT_DECLINED);
    device.kind = KILN_DEVICE_CUDA;
    assert_int_equal(exact->plan(NULL, &problem, &geometry, &device, &sink), KILN_RESULT_DECLINED);
    assert_non_null(strstr(made.text, "device"));
}

static void cpu_embed_scales_rows_and_marks_bad_ids(void **state) {
    (void)state;
    static const int32_t ids[] = {3, 0, 9, -1, 10, 5, 5, 7}; // 6 in use
    float table[10 * 33];
    float out[8 * 33];
    int32_t in_use = 6;
    uint32_t seed = 7;
    fill(table, 330, 1, &seed);
    memset(out, GUARD, sizeof(out));
    struct exec_op op = exec_op(KILN_OP_EMBED, KILN_PHASE_PREFILL);
    op.op.scale = 25.298221F;
    exec_i32(&op, KILN_OPERAND_IDS, 8, ids);
    exec_f32(&op, KILN_OPERAND_WEIGHT, 33, 10, table);
    exec_f32(&op, KILN_OPERAND_OUT, 33, 8, out);
    exec_bound(&op, &in_use);
    exec_call(plugin, &op, "embed", (struct exec_setup){0, 2});
    for (int s = 0; s < 6; s++) {
        for (int i = 0; i < 33; i++) {
            float got = out[s * 33 + i];
            if (s == 3 || s == 4) {
                assert_true(isnan(got));
            } else {
                assert_true(got == table[ids[s] * 33 + i] * 25.298221F);
            }
        }
    }
    assert_guard(out + 6 * 33, 2 * 33 * sizeof(float));
}

static void cpu_norm_agrees_with_f64(void **state) {
    (void)state;
    static const int sizes[] = {1, 7, 8, 63, 640, 4097};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int mode = 0; mode < 3; mode++) { // plain, with a residual, in place of the residual
            int n = sizes[i];
            size_t floats = 5 * (size_t)n;
            float *in = new_bytes(floats * sizeof(float));
            float *weight = new_bytes((size_t)n * sizeof(float));
            float *residual = new_bytes(floats * sizeof(float));
            float *out = new_bytes(floats * sizeof(float));
            uint32_t seed = 11;
            int32_t in_use = 4;
            fill(in, floats, 1e5F, &seed);
            memset(in, 0, (size_t)n * sizeof(float)); // a row of zeros: eps alone
            fill(weight, (size_t)n, 2, &seed);
            fill(residual, floats, 3, &seed);
            memset(out, GUARD, floats * sizeof(float));
            memcpy(out, residual, mode == 2 ? 4 * (size_t)n * sizeof(float) : 0);
            struct exec_op op = exec_op(KILN_OP_NORM, KILN_PHASE_PREFILL);
            op.op.eps = 1e-6F;
            exec_f32(&op, KILN_OPERAND_IN, n, 5, in);
            exec_f32(&op, KILN_OPERAND_WEIGHT, n, 1, weight);
            if (mode > 0) {
                exec_f32(&op, KILN_OPERAND_RESIDUAL, n, 5, mode == 2 ? out : residual);
            }
            exec_f32(&op, KILN_OPERAND_OUT, n, 5, out);
            exec_bound(&op, &in_use);
            exec_call(plugin, &op, "norm", (struct exec_setup){exec_features(), 2});
            for (int s = 0; s < 4; s++) {
                double sum = 0;
                for (int j = 0; j < n; j++) {
                    sum += (double)in[s * n + j] * (double)in[s * n + j];
                }
                double factor = 1 / sqrt(sum / n + (double)1e-6F);
                for (int j = 0; j < n; j++) {
                    double want = (double)in[s * n + j] * factor * (double)weight[j];
                    want += mode > 0 ? (double)residual[s * n + j] : 0;
                    assert_near(out[s * n + j], want, 3e-7 * (fabs(want) + 6), "norm", s * n + j);
                }
            }
            assert_guard(out + 4 * n, (size_t)n * sizeof(float));
            kiln_free(in);
            kiln_free(weight);
            kiln_free(residual);
            kiln_free(out);
        }
    }
}

static double activate(uint32_t activation, double x) {
    if (activation == KILN_ACTIVATION_SILU) {
        return x / (1 + exp(-x));
    }
    // x / 2 * (1 + tanh(u)) without its cancellation
    return x / (1 + exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

// In place of GATE; every size of rest; from the largest to the smallest arguments.
static void cpu_activation_agrees_with_f64(void **state) {
    (void)state;
    enum {
        N = 4096 + 13
    };
    static float gate[3 * N];
    static float up[3 * N];
    static float out[3 * N];
    for (int mode = 0; mode < 4; mode++) {
        uint32_t activation = mode % 2 ? KILN_ACTIVATION_SILU : KILN_ACTIVATION_GELU_TANH;
        for (int n = N - 8; n <= N; n++) {
            uint32_t seed = 17;
            int32_t in_use = 2;
            for (int i = 0; i < 3 * n; i++) {
                float x = exec_uniform(&seed);
                gate[i] = i % 3 == 0 ? 120 * x : i % 3 == 1 ? 6 * x : 0.01F * x;
                up[i] = 1 + exec_uniform(&seed);
            }
            memcpy(out, gate, sizeof(out));
            struct exec_op op = exec_op(KILN_OP_ACTIVATION, KILN_PHASE_PREFILL);
            op.op.activation = activation;
            exec_f32(&op, KILN_OPERAND_GATE, n, 3, out);
            exec_f32(&op, KILN_OPERAND_UP, n, 3, up);
            exec_f32(&op, KILN_OPERAND_OUT, n, 3, out);
            exec_bound(&op, &in_use);
            exec_call(plugin, &op, "activation",
                    (struct exec_setup){mode / 2 ? exec_features() : 0, 2});
            for (int i = 0; i < 3 * n; i++) {
                double want = activate(activation, (double)gate[i]) * (double)up[i];
                if (i >= 2 * n) {
                    assert_true(out[i] == gate[i]);
                } else {
                    // A relative error of the exponential's argument, a few roundings, is as large
                    // an absolute one, and that a relative one of the result.
                    double x = fabs((double)gate[i]);
                    double argument = mode % 2 ? 0 : fmin(1.6 * (x + 0.045 * x * x * x), 90);
                    double bar = (3e-7 + 4 * 0x1p-24 * argument) * fabs(want) + 6e-37;
                    assert_near(out[i], want, bar, "activation", i);
                }
            }
        }
    }
}

// The vector exponential, seen through silu: its error is that of the exponential and three
// roundings, at 100,000 arguments.
static void cpu_activation_exponential_is_within_ulps(void **state) {
    (void)state;
    enum {
        N = 100000
    };
    float *gate = new_bytes(N * sizeof(float));
    float *up = new_bytes(N * sizeof(float));
    float *out = new_bytes(N * sizeof(float));
    for (int i = 0; i < N; i++) {
        gate[i] = -87.0F + 174.0F * (float)i / (float)N;
        up[i] = 1;
    }
    struct exec_op op = exec_op(KILN_OP_ACTIVATION, KILN_PHASE_PREFILL);
    op.op.activation = KILN_ACTIVATION_SILU;
    exec_f32(&op, KILN_OPERAND_GATE, N, 1, gate);
    exec_f32(&op, KILN_OPERAND_UP, N, 1, up);
    exec_f32(&op, KILN_OPERAND_OUT, N, 1, out);
    for (int mode = 0; mode < 2; mode++) {
        exec_call(plugin, &op, "activation", (struct exec_setup){mode ? exec_features() : 0, 1});
        for (int i = 0; i < N; i++) {
            double want = activate(KILN_ACTIVATION_SILU, (double)gate[i]);
            assert_near(out[i], want, 3 * 0x1p-24 * fabs(want) + 0x1p-149, "silu", i);
        }
    }
    gate[0] = NAN;
    gate[1] = INFINITY;
    gate[2] = -1000;
    exec_call(plugin, &op, "activation", (struct exec_setup){exec_features(), 1});
    assert_true(isnan(out[0]) && out[1] == INFINITY && out[2] == 0);
    kiln_free(gate);
    kiln_free(up);
    kiln_free(out);
}

static void cpu_argmax_takes_the_lowest_of_the_largest(void **state) {
    (void)state;
    float in[8][5] = {{1, 3, 3, 2, 3}, {-5, -4, -9, -4, -8}, {NAN, 1, NAN, 2, 0},
            {NAN, NAN, NAN, NAN, NAN}, {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY},
            {0, 0, 0, 0, 1}, {0, INFINITY, NAN, 1, 2}, {9, 9, 9, 9, 9}};
    static const int32_t expected[] = {1, 1, 3, -1, -1, 4, -1};
    int32_t out[8];
    int32_t in_use = 7;
    memset(out, GUARD, sizeof(out));
    struct exec_op op = exec_op(KILN_OP_ARGMAX, KILN_PHASE_DECODE);
    exec_f32(&op, KILN_OPERAND_IN, 5, 8, in);
    exec_i32(&op, KILN_OPERAND_OUT, 8, out);
    exec_bound(&op, &in_use);
    exec_call(plugin, &op, "argmax", (struct exec_setup){0, 2});
    assert_memory_equal(out, expected, sizeof(expected));
    assert_guard(out + 7, sizeof(int32_t));
}

// ---- rope_kv ----

struct rope {
    int heads, kv_heads, size, dims;
    uint32_t style;
    int norm, half, in_place;
};

enum {
    ROPE_ROWS = 5,
    ROPE_T = 40
};

static double rope_want(const struct rope *rope, const float *head, const float *norm,
        const float *freqs, int32_t position, int at) {
    double factor = 1;
    if (norm != NULL) {
        double sum = 0;
        for (int i = 0; i < rope->size; i++) {
            sum += (double)head[i] * (double)head[i];
        }
        factor = 1 / sqrt(sum / rope->size + (double)1e-5F);
    }
    int half = rope->dims / 2;
    int pairs = rope->style == KILN_ROPE_PAIRS;
    int pair = pairs ? at / 2 : at % (half > 0 ? half : 1);
    int second = pairs ? at % 2 : at >= half;
    int a = pairs ? 2 * pair : pair;
    int b = pairs ? 2 * pair + 1 : pair + half;
    if (at >= rope->dims) {
        return (double)head[at] * factor * (norm != NULL ? (double)norm[at] : 1);
    }
    double x = (double)head[a] * factor * (norm != NULL ? (double)norm[a] : 1);
    double y = (double)head[b] * factor * (norm != NULL ? (double)norm[b] : 1);
    double angle = (double)((float)position * freqs[pair]);
    double c = cos(angle) * 1.25;
    double s = sin(angle) * 1.25;
    return second ? x * s + y * c : x * c - y * s;
}

static float half_value(uint16_t half) { // normal numbers and zero
    float value = ldexpf((float)((half & 0x3ff) | 0x400), (half >> 10 & 31) - 25);
    value = (half & 0x7c00) == 0 ? ldexpf((float)(half & 0x3ff), -24) : value;
    return half & 0x8000 ? -value : value;
}

static float cache_value(const struct rope *rope, const void *cache, int64_t at) {
    return rope->half ? half_value(((const uint16_t *)cache)[at]) : ((const float *)cache)[at];
}

static void check_rope(const struct rope *rope) {
    static const int32_t positions[ROPE_ROWS] = {
            3, 4, 39, -1, 40}; // the last two are not in the cache
    static float q[ROPE_ROWS * 1024];
    static float k[ROPE_ROWS * 1024];
    static float v[ROPE_ROWS * 1024];
    static float out[ROPE_ROWS * 1024];
    static float k_cache[ROPE_T * 1024];
    static float v_cache[ROPE_T * 1024];
    static float norms[2][256];
    static float freqs[128];
    int q_columns = rope->heads * rope->size;
    int kv_columns = rope->kv_heads * rope->size;
    int64_t elem = rope->half ? 2 : 4;
    uint32_t cache_type = rope->half ? KILN_DTYPE_F16 : KILN_DTYPE_F32;
    uint32_t seed = 23;
    fill(q, ROPE_ROWS * 1024, 2, &seed);
    fill(k, ROPE_ROWS * 1024, 2, &seed);
    fill(v, ROPE_ROWS * 1024, 2, &seed);
    fill(norms[0], 512, 1, &seed);
    for (int i = 0; i < rope->dims / 2; i++) {
        freqs[i] = powf(10000, -2.0F * (float)i / (float)rope->dims);
    }
    memset(k_cache, GUARD, sizeof(k_cache));
    memset(v_cache, GUARD, sizeof(v_cache));
    memcpy(out, q, sizeof(out));
    struct exec_op op = exec_op(KILN_OP_ROPE_KV, KILN_PHASE_PREFILL);
    op.op.n_heads = rope->heads;
    op.op.n_kv_heads = rope->kv_heads;
    op.op.head_size = rope->size;
    op.op.rope_dims = rope->dims;
    op.op.rope_style = rope->style;
    op.op.rope_scale = 1.25F;
    op.op.eps = 1e-5F;
    exec_f32(&op, KILN_OPERAND_Q, q_columns, ROPE_ROWS, rope->in_place ? out : q);
    exec_f32(&op, KILN_OPERAND_K, kv_columns, ROPE_ROWS, k);
    exec_f32(&op, KILN_OPERAND_V, kv_columns, ROPE_ROWS, v);
    if (rope->norm) {
        exec_f32(&op, KILN_OPERAND_Q_NORM, rope->size, 1, norms[0]);
        exec_f32(&op, KILN_OPERAND_K_NORM, rope->size, 1, norms[1]);
    }
    exec_f32(&op, KILN_OPERAND_ROPE_FREQS, rope->dims / 2, 1, freqs);
    exec_i32(&op, KILN_OPERAND_POSITIONS, ROPE_ROWS, positions);
    exec_f32(&op, KILN_OPERAND_OUT, q_columns, ROPE_ROWS, out);
    exec_add(&op, KILN_OPERAND_K_CACHE, cache_type, kv_columns, ROPE_T, 1, elem, 0, k_cache);
    exec_add(&op, KILN_OPERAND_V_CACHE, cache_type, kv_columns, ROPE_T, 1, elem, 0, v_cache);
    exec_call(plugin, &op, "rope_kv", (struct exec_setup){exec_features(), 2});
    for (int s = 0; s < ROPE_ROWS; s++) {
        for (int i = 0; i < q_columns; i++) {
            double want = rope_want(rope, q + s * q_columns + i / rope->size * rope->size,
                    rope->norm ? norms[0] : NULL, freqs, positions[s], i % rope->size);
            assert_near(out[s * q_columns + i], want, 1.2e-6, "rope q", i);
        }
    }
    for (int t = 0; t < ROPE_T; t++) {
        int s = t == 3 ? 0 : t == 4 ? 1 : t == 39 ? 2 : -1;
        if (s < 0) {
            assert_guard((char *)k_cache + t * kv_columns * elem, (size_t)(kv_columns * elem));
            assert_guard((char *)v_cache + t * kv_columns * elem, (size_t)(kv_columns * elem));
            continue;
        }
        for (int i = 0; i < kv_columns; i++) {
            double want = rope_want(rope, k + s * kv_columns + i / rope->size * rope->size,
                    rope->norm ? norms[1] : NULL, freqs, positions[s], i % rope->size);
            double bar = rope->half ? fabs(want) * 0x1p-11 + 1.3e-6 : 1.2e-6;
            assert_near(cache_value(rope, k_cache, t * kv_columns + i), want, bar, "rope k", i);
            want = (double)v[s * kv_columns + i];
            bar = rope->half ? fabs(want) * 0x1p-11 + 0x1p-25 : 0;
            assert_near(cache_value(rope, v_cache, t * kv_columns + i), want, bar, "rope v", i);
        }
    }
    assert_guard((char *)k_cache + ROPE_T * kv_columns * elem,
            kv_columns < 1024 ? (size_t)(kv_columns * elem) : 0);
}

static void cpu_rope_kv_agrees_with_f64(void **state) {
    (void)state;
    static const struct rope cases[] = {
            {9, 3, 64, 64, KILN_ROPE_PAIRS, 0, 0, 0},
            {4, 1, 256, 256, KILN_ROPE_HALVES, 1, 0, 1},
            {4, 2, 128, 128, KILN_ROPE_HALVES, 1, 1, 0},
            {3, 3, 80, 80, KILN_ROPE_PAIRS, 1, 1, 1},
            {2, 1, 64, 32, KILN_ROPE_HALVES, 0, 0, 1},
            {2, 1, 64, 16, KILN_ROPE_PAIRS, 1, 1, 0},
            {12, 1, 32, 32, KILN_ROPE_HALVES, 0, 1, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_rope(&cases[i]);
    }
}

// f16 caches: rounding to nearest even at the borders, overflow, subnormals. V is stored as it
// comes.
static void cpu_rope_kv_rounds_f16_to_nearest_even(void **state) {
    (void)state;
    static const float values[] = {1, 0x1.002p0F, 0x1.006p0F, 65504, 65519.99F, 65520, -1e9F,
            0x1p-24F, 0x1.8p-25F, 0x1p-25F, 0x1.8p-24F, -0x1.ff8p-15F, 0x1.fffp-15F, -0.0F,
            INFINITY, 1e-30F};
    static const uint16_t expected[] = {0x3c00, 0x3c00, 0x3c02, 0x7bff, 0x7bff, 0x7c00, 0xfc00,
            0x0001, 0x0001, 0x0000, 0x0002, 0x83ff, 0x0400, 0x8000, 0x7c00, 0x0000};
    float in[16] = {0};
    uint16_t k_cache[16];
    uint16_t v_cache[16];
    int32_t position = 0;
    float out[16];
    struct exec_op op = exec_op(KILN_OP_ROPE_KV, KILN_PHASE_DECODE);
    op.op.n_heads = op.op.n_kv_heads = 1;
    op.op.head_size = 16;
    exec_f32(&op, KILN_OPERAND_Q, 16, 1, in);
    exec_f32(&op, KILN_OPERAND_K, 16, 1, in);
    exec_f32(&op, KILN_OPERAND_V, 16, 1, values);
    exec_i32(&op, KILN_OPERAND_POSITIONS, 1, &position);
    exec_f32(&op, KILN_OPERAND_OUT, 16, 1, out);
    exec_add(&op, KILN_OPERAND_K_CACHE, KILN_DTYPE_F16, 16, 1, 1, 2, 0, k_cache);
    exec_add(&op, KILN_OPERAND_V_CACHE, KILN_DTYPE_F16, 16, 1, 1, 2, 0, v_cache);
    exec_call(plugin, &op, "rope_kv", (struct exec_setup){0, 1});
    for (int i = 0; i < 16; i++) {
        assert_int_equal(v_cache[i], expected[i]);
    }
}

int main(void) {
    plugin = exec_open("plugins/cpu/cpu.so");
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(cpu_plugin_entry_is_whole),
            cmocka_unit_test(cpu_plugin_declines_other_devices_and_groups_of_ops),
            cmocka_unit_test(cpu_embed_scales_rows_and_marks_bad_ids),
            cmocka_unit_test(cpu_norm_agrees_with_f64),
            cmocka_unit_test(cpu_activation_agrees_with_f64),
            cmocka_unit_test(cpu_activation_exponential_is_within_ulps),
            cmocka_unit_test(cpu_argmax_takes_the_lowest_of_the_largest),
            cmocka_unit_test(cpu_rope_kv_agrees_with_f64),
            cmocka_unit_test(cpu_rope_kv_rounds_f16_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
