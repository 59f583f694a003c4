// cpu_attention: the cpu plugin's attention, prefill and decode, plain C and AVX2, against f64.
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

struct shape {
    int heads, kv_heads, size, window;
    float softcap;
    int half; // f16 cache
};

// An attention with everything it owns. Rows of Q and OUT have a gap of 3 floats, those of the
// caches one of 2 values.
struct attention {
    struct shape shape;
    int64_t s, t, bound; // rows in use, keys in the cache, bound of the rows
    int32_t *positions;  // (bound)
    float *q, *out;      // (bound, heads * size + 3)
    float *k, *v;        // (t, kv_heads * size + 2) as f32, what the caches hold
    void *k_cache, *v_cache;
    double *expected; // (s, heads * size)
    double *bar;      // (s, heads * size): what an element may be off by
};

static void *new_bytes(size_t size) {
    void *bytes = kiln_alloc(size);
    assert_non_null(bytes);
    return bytes;
}

// *size: the sum of the products without their signs, what its error is measured against.
static double score_of(
        const struct attention *a, int64_t row, int64_t head, int64_t key, double *size) {
    const struct shape *shape = &a->shape;
    int64_t q_row = (int64_t)shape->heads * shape->size + 3;
    int64_t kv_row = (int64_t)shape->kv_heads * shape->size + 2;
    int64_t kv_head = head / (shape->heads / shape->kv_heads);
    double dot = 0;
    for (int64_t i = 0; i < shape->size; i++) {
        double term = (double)a->q[row * q_row + head * shape->size + i] *
                      (double)a->k[key * kv_row + kv_head * shape->size + i] * (double)0.125F;
        dot += term;
        *size += fabs(term);
    }
    return shape->softcap > 0 ? (double)shape->softcap * tanh(dot / (double)shape->softcap) : dot;
}

static void expect_row(const struct attention *a, int64_t row, int64_t head, double *score) {
    const struct shape *shape = &a->shape;
    int64_t kv_row = (int64_t)shape->kv_heads * shape->size + 2;
    int64_t kv_head = head / (shape->heads / shape->kv_heads);
    int64_t position = a->positions[row];
    int64_t from =
            shape->window > 0 && position >= shape->window ? position - shape->window + 1 : 0;
    double max = -HUGE_VAL;
    double largest = 0;
    double sum = 0;
    for (int64_t key = from; key <= position; key++) {
        double products = 0;
        score[key] = score_of(a, row, head, key, &products);
        largest = products > largest ? products : largest;
        max = score[key] > max ? score[key] : max;
    }
    for (int64_t key = from; key <= position; key++) {
        score[key] = exp(score[key] - max);
        sum += score[key];
    }
    for (int64_t i = 0; i < shape->size; i++) {
        double out = 0;
        double size = 0;
        for (int64_t key = from; key <= position; key++) {
            double v = (double)a->v[key * kv_row + kv_head * shape->size + i];
            out += score[key] / sum * v;
            size += score[key] / sum * fabs(v);
        }
        int64_t at = (row * shape->heads + head) * shape->size + i;
        a->expected[at] = out;
        // An error of a score is a relative error of its weight, and of the sum of weights.
        a->bar[at] = (1e-6 + 2e-7 * largest) * size;
    }
}

static void fill_cache(struct attention *a, uint32_t *seed) {
    int64_t row = (int64_t)a->shape.kv_heads * a->shape.size + 2;
    float *plain[2] = {a->k, a->v};
    void *cache[2] = {a->k_cache, a->v_cache};
    int64_t last = -1;
    for (int64_t s = 0; s < a->s; s++) {
        last = a->positions[s] > last ? a->positions[s] : last;
    }
    memset(a->k_cache, 0xff, (size_t)(a->t * row) * sizeof(float)); // NaN as f32 and as f16
    memset(a->v_cache, 0xff, (size_t)(a->t * row) * sizeof(float));
    for (int which = 0; which < 2; which++) {
        for (int64_t i = 0; i < a->t * row; i++) {
            int64_t key = i / row;
            float value = exec_uniform(seed);
            uint32_t bits;
            memcpy(&bits, &value, sizeof(bits));
            bits &= 0xffffe000; // a value that f16 holds: 10 bits behind the point, not too small
            memcpy(&value, &bits, sizeof(value));
            value = fabsf(value) < 0x1p-14F ? 0 : value;
            memcpy(&bits, &value, sizeof(bits));
            plain[which][i] = value;
            if (key > last || i % row >= row - 2) {
                continue;
            }
            if (a->shape.half) {
                uint32_t exponent = bits >> 23 & 255;
                ((uint16_t *)cache[which])[i] =
                        (uint16_t)((bits >> 16 & 0x8000) |
                                   (value == 0 ? 0
                                               : (exponent - 112) << 10 | (bits >> 13 & 0x3ff)));
            } else {
                ((float *)cache[which])[i] = value;
            }
        }
    }
}

// The rows stand at first, first + 1 …; the cache holds t keys.
static struct attention attention_new(
        struct shape shape, int64_t s, int64_t first, int64_t t, int64_t bound) {
    struct attention a = {.shape = shape, .s = s, .t = t, .bound = bound};
    size_t q_floats = (size_t)(bound * ((int64_t)shape.heads * shape.size + 3));
    size_t kv_floats = (size_t)(t * ((int64_t)shape.kv_heads * shape.size + 2));
    size_t out_values = (size_t)(s * shape.heads * shape.size);
    uint32_t seed = (uint32_t)(5 + s + 17 * t + 257 * shape.size);
    a.positions = new_bytes((size_t)bound * sizeof(int32_t));
    for (int64_t i = 0; i < bound; i++) {
        a.positions[i] = (int32_t)(first + i);
    }
    a.q = new_bytes(q_floats * sizeof(float));
    a.out = new_bytes(q_floats * sizeof(float));
    a.k = new_bytes(kv_floats * sizeof(float));
    a.v = new_bytes(kv_floats * sizeof(float));
    a.k_cache = new_bytes(kv_floats * sizeof(float));
    a.v_cache = new_bytes(kv_floats * sizeof(float));
    a.expected = new_bytes(out_values * sizeof(double));
    a.bar = new_bytes(out_values * sizeof(double));
    fill_cache(&a, &seed); // first, so that it does not depend on the bound
    for (size_t i = 0; i < q_floats; i++) {
        a.q[i] = 4 * exec_uniform(&seed);
    }
    double *score = new_bytes((size_t)(t + s) * sizeof(double));
    for (int64_t row = 0; row < s; row++) {
        for (int64_t head = 0; head < shape.heads; head++) {
            expect_row(&a, row, head, score);
        }
    }
    kiln_free(score);
    return a;
}

static void attention_finish(struct attention *a) {
    kiln_free(a->positions);
    kiln_free(a->q);
    kiln_free(a->out);
    kiln_free(a->k);
    kiln_free(a->v);
    kiln_free(a->k_cache);
    kiln_free(a->v_cache);
    kiln_free(a->expected);
    kiln_free(a->bar);
}

static void attention_run(struct attention *a, uint32_t phase, struct exec_setup setup) {
    const struct shape *shape = &a->shape;
    int64_t q_columns = (int64_t)shape->heads * shape->size;
    int64_t kv_columns = (int64_t)shape->kv_heads * shape->size;
    int64_t elem = shape->half ? 2 : 4;
    uint32_t dtype = shape->half ? KILN_DTYPE_F16 : KILN_DTYPE_F32;
    int32_t in_use = (int32_t)a->s;
    struct exec_op op = exec_op(KILN_OP_ATTENTION, phase);
    op.op.n_heads = shape->heads;
    op.op.n_kv_heads = shape->kv_heads;
    op.op.head_size = shape->size;
    op.op.window = shape->window;
    op.op.softcap = shape->softcap;
    op.op.scale = 0.125F;
    memset(a->out, GUARD, (size_t)(a->bound * (q_columns + 3)) * sizeof(float));
    exec_add(&op, KILN_OPERAND_Q, KILN_DTYPE_F32, q_columns, a->bound, 1, 4, (q_columns + 3) * 4,
            a->q);
    exec_add(&op, KILN_OPERAND_K_CACHE, dtype, kv_columns, a->t, 1, elem, (kv_columns + 2) * elem,
            a->k_cache);
    exec_add(&op, KILN_OPERAND_V_CACHE, dtype, kv_columns, a->t, 1, elem, (kv_columns + 2) * elem,
            a->v_cache);
    exec_i32(&op, KILN_OPERAND_POSITIONS, a->bound, a->positions);
    exec_add(&op, KILN_OPERAND_OUT, KILN_DTYPE_F32, q_columns, a->bound, 1, 4, (q_columns + 3) * 4,
            a->out);
    exec_bound(&op, &in_use);
    exec_call(plugin, &op, "attention", setup);
}

static void attention_check(const struct attention *a, const char *how) {
    static const unsigned char guard[4] = {GUARD, GUARD, GUARD, GUARD};
    int64_t columns = (int64_t)a->shape.heads * a->shape.size;
    for (int64_t row = 0; row < a->bound; row++) {
        for (int64_t i = 0; i < columns + 3; i++) {
            const float *at = &a->out[row * (columns + 3) + i];
            if (row >= a->s || i >= columns) {
                assert_memory_equal(at, guard, sizeof(guard));
            } else if (a->positions[row] < 0) {
                assert_true(*at == 0);
            } else {
                double want = a->expected[row * columns + i];
                if (!(fabs((double)*at - want) <= a->bar[row * columns + i])) {
                    fail_msg("%s %d:%d size %d window %d, %d rows over %d keys: [%d][%d] is %.9g, "
                             "not %.9g (bar %.3g)",
                            how, a->shape.heads, a->shape.kv_heads, a->shape.size, a->shape.window,
                            (int)a->s, (int)a->t, (int)row, (int)i, (double)*at, want,
                            a->bar[row * columns + i]);
                }
            }
        }
    }
}

// All four ways; the cache has `behind` rows of NaN behind the last position.
static void run_all(struct shape shape, int64_t s, int64_t first, int64_t behind) {
    int64_t t = first + s + behind;
    struct attention a = attention_new(shape, s, first, t < 1 ? 1 : t, s + 2);
    for (int mode = 0; mode < 4; mode++) {
        static const char *const names[] = {
                "generic prefill", "generic decode", "avx2 prefill", "avx2 decode"};
        uint32_t phase = mode % 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL;
        // With more threads decode spreads the heads of one KV head over blocks.
        uint32_t threads = s == 1 ? 7 : 1;
        attention_run(&a, phase, (struct exec_setup){mode / 2 ? exec_features() : 0, threads});
        attention_check(&a, names[mode]);
    }
    attention_finish(&a);
}

// Ratios of heads that are no power of two, with several KV heads.
static void cpu_attention_agrees_for_every_head_ratio(void **state) {
    (void)state;
    static const int heads[][2] = {{1, 1}, {2, 2}, {3, 1}, {6, 2}, {8, 2}, {15, 5}, {15, 3},
            {14, 2}, {28, 4}, {24, 2}, {12, 1}, {40, 8}};
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct shape shape = {
                .heads = heads[i][0], .kv_heads = heads[i][1], .size = 32, .half = (int)i % 2};
        run_all(shape, 19, 0, 3);
        run_all(shape, 1, 40, 3);
    }
}

static void cpu_attention_agrees_for_every_head_size(void **state) {
    (void)state;
    static const int sizes[] = {1, 7, 20, 32, 64, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int half = 0; half < 2; half++) {
            struct shape shape = {.heads = 4, .kv_heads = 2, .size = sizes[i], .half = half};
            run_all(shape, 70, 0, 5);
            run_all(shape, 3, 130, 1);
        }
    }
}

// Lengths around tile borders; NaN behind the last key.
static void cpu_attention_agrees_for_every_length(void **state) {
    (void)state;
    static const int64_t lengths[] = {
            1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 255, 256, 257, 3325};
    struct shape shape = {.heads = 3, .kv_heads = 1, .size = 64};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        shape.half = (int)i % 2;
        run_all(shape, 1, lengths[i] - 1, (int64_t)i % 4);
        if (lengths[i] <= 257) {
            run_all(shape, lengths[i], 0, 7);
        }
    }
}

// Fewer queries than keys, and more: rows before the first key see nothing and give zeros.
static void cpu_attention_aligns_queries_with_the_last_keys(void **state) {
    (void)state;
    struct shape shape = {.heads = 4, .kv_heads = 2, .size = 32};
    run_all(shape, 5, 1, 0);
    run_all(shape, 1, 4095, 0);
    run_all(shape, 65, 63, 0);
    run_all(shape, 6, -1, 0);
    run_all(shape, 60, -50, 3);
    run_all(shape, 2, -2, 1);
}

// Windows, and one that masks the whole first tile.
static void cpu_attention_agrees_with_a_window(void **state) {
    (void)state;
    static const int windows[] = {1, 31, 32, 33, 64, 128, 1024};
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        struct shape shape = {
                .heads = 3, .kv_heads = 1, .size = 32, .window = windows[i], .half = (int)i % 2};
        int64_t w = windows[i];
        run_all(shape, 1, w > 1 ? w - 2 : 0, 1);
        run_all(shape, 1, w - 1, 1);
        run_all(shape, 1, w, 1);
        run_all(shape, 1, w + 31, 0);
        run_all(shape, 50, 4 * w - 50 > 0 ? 4 * w - 50 : 0, 2);
        run_all(shape, 100, 0, 2);
    }
}

static void cpu_attention_agrees_with_a_softcap(void **state) {
    (void)state;
    struct shape shape = {.heads = 2, .kv_heads = 1, .size = 64, .softcap = 2};
    run_all(shape, 67, 0, 1);
    run_all(shape, 1, 200, 1);
}

// What lies behind a row must not reach it, not even as 0 * NaN: here the later rows of the same
// call hold NaN.
static void cpu_attention_later_rows_leave_earlier_ones_alone(void **state) {
    (void)state;
    struct shape shape = {.heads = 2, .kv_heads = 1, .size = 32};
    struct attention a = attention_new(shape, 40, 0, 40, 40);
    memset((float *)a.v_cache + 21 * 34, 0xff, 19 * 34 * sizeof(float));
    memset((float *)a.k_cache + 21 * 34, 0xff, 19 * 34 * sizeof(float));
    for (int mode = 0; mode < 4; mode++) {
        attention_run(&a, mode % 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL,
                (struct exec_setup){mode / 2 ? exec_features() : 0, 1});
        for (int64_t row = 0; row < 40; row++) {
            for (int i = 0; i < 64; i++) {
                float got = a.out[row * 67 + i];
                // NaN that a row does see is not hidden either.
                assert_true(row < 21 ? fabs((double)got - a.expected[row * 64 + i]) <=
                                               a.bar[row * 64 + i]
                                     : isnan(got));
            }
        }
    }
    attention_finish(&a);
}

// Scores of minus infinity, here those of two whole tiles, weigh nothing and make no NaN.
static void cpu_attention_infinitely_small_scores_weigh_nothing(void **state) {
    (void)state;
    struct shape shape = {.heads = 2, .kv_heads = 1, .size = 32, .window = 30};
    struct attention a = attention_new(shape, 1, 149, 150, 1);
    double score[150];
    for (int head = 0; head < 2; head++) {
        a.q[head * 32] =
                0x1p-100F; // the first column has no share in a score, unless it is infinite
        expect_row(&a, 0, head, score); // over the last 30 keys: what a window of 30 leaves
    }
    a.shape.window = 0; // now the others get minus infinity
    for (int key = 0; key < 120; key++) {
        ((float *)a.k_cache)[key * 34] = -INFINITY;
    }
    for (int mode = 0; mode < 4; mode++) {
        attention_run(&a, mode % 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL,
                (struct exec_setup){mode / 2 ? exec_features() : 0, 1});
        attention_check(&a, "minus infinity");
    }
    attention_finish(&a);
}

static void cpu_attention_repeats_bit_for_bit(void **state) {
    (void)state;
    struct shape shape = {.heads = 6, .kv_heads = 2, .size = 64, .window = 90};
    static const int64_t bounds[] = {100, 128, 512};
    for (int mode = 0; mode < 4; mode++) {
        float *first = NULL;
        size_t bytes = 100 * (6 * 64 + 3) * sizeof(float);
        for (int i = 0; i < 9; i++) {
            static const uint32_t threads[] = {1, 2, 7};
            struct attention a = attention_new(shape, 100, 30, 140, bounds[i % 3]);
            attention_run(&a, mode % 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL,
                    (struct exec_setup){mode / 2 ? exec_features() : 0, threads[i / 3]});
            if (first == NULL) {
                first = new_bytes(bytes);
                memcpy(first, a.out, bytes);
            }
            assert_memory_equal(first, a.out, bytes);
            attention_finish(&a);
        }
        kiln_free(first);
    }
}

// Chunked equals one go, here even bit for bit, since a row's sums depend on its position
// alone.
static void cpu_attention_chunks_give_the_bits_of_one_go(void **state) {
    (void)state;
    struct shape shape = {.heads = 2, .kv_heads = 1, .size = 64};
    struct attention a = attention_new(shape, 150, 0, 150, 150);
    for (int mode = 0; mode < 2; mode++) {
        struct exec_setup setup = {mode ? exec_features() : 0, 1};
        size_t bytes = 150 * 131 * sizeof(float);
        float *whole = new_bytes(bytes);
        attention_run(&a, KILN_PHASE_PREFILL, setup);
        memcpy(whole, a.out, bytes);
        for (int64_t cut = 1; cut < 150; cut += 37) {
            struct attention tail = a;
            tail.s = tail.bound = 150 - cut;
            tail.q = a.q + cut * 131;
            tail.positions = a.positions + cut;
            attention_run(&tail, KILN_PHASE_PREFILL, setup);
            assert_memory_equal(
                    tail.out, whole + cut * 131, (size_t)(150 - cut) * 131 * sizeof(float));
        }
        kiln_free(whole);
    }
    attention_finish(&a);
}

static void cpu_attention_plan_declines_what_it_does_not_know(void **state) {
    (void)state;
    static const float dummy[4];
    struct exec_op op = exec_op(KILN_OP_ATTENTION, KILN_PHASE_DECODE);
    op.op.n_heads = 4;
    op.op.n_kv_heads = 2;
    op.op.head_size = 16;
    op.op.scale = 1;
    exec_f32(&op, KILN_OPERAND_Q, 64, 1, dummy);
    exec_f32(&op, KILN_OPERAND_K_CACHE, 32, 100, dummy);
    exec_f32(&op, KILN_OPERAND_V_CACHE, 32, 100, dummy);
    exec_i32(&op, KILN_OPERAND_POSITIONS, 1, dummy);
    exec_f32(&op, KILN_OPERAND_OUT, 64, 1, dummy);
    struct exec_setup setup = {0, 2};
    struct exec_plan plan = exec_make(plugin, &op, "attention.decode", setup);
    assert_int_equal(plan.result, KILN_RESULT_OK);
    assert_true(plan.launch.flops == 4.0 * 100 * 64);
    assert_true(plan.launch.bytes_read == 64 * 4 + 2 * 100 * 32 * 4);
    op.tensors[1].dtype = KILN_DTYPE_Q8_0;
    plan = exec_make(plugin, &op, "attention.decode", setup);
    assert_int_equal(plan.result, KILN_RESULT_DECLINED);
    assert_non_null(strstr(plan.text, "K_CACHE"));
    op.tensors[1].dtype = KILN_DTYPE_F32;
    op.op.n_kv_heads = 3;
    plan = exec_make(plugin, &op, "attention.decode", setup);
    assert_int_equal(plan.result, KILN_RESULT_FAILED);
    op.op.n_kv_heads = 2;
    exec_i32(&op, KILN_OPERAND_PAGE_TABLE, 4, dummy);
    plan = exec_make(plugin, &op, "attention.decode", setup);
    assert_int_equal(plan.result, KILN_RESULT_DECLINED);
}

int main(void) {
    plugin = exec_open("plugins/cpu/cpu.so");
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(cpu_attention_agrees_for_every_head_ratio),
            cmocka_unit_test(cpu_attention_agrees_for_every_head_size),
            cmocka_unit_test(cpu_attention_agrees_for_every_length),
            cmocka_unit_test(cpu_attention_aligns_queries_with_the_last_keys),
            cmocka_unit_test(cpu_attention_agrees_with_a_window),
            cmocka_unit_test(cpu_attention_agrees_with_a_softcap),
            cmocka_unit_test(cpu_attention_later_rows_leave_earlier_ones_alone),
            cmocka_unit_test(cpu_attention_infinitely_small_scores_weigh_nothing),
            cmocka_unit_test(cpu_attention_repeats_bit_for_bit),
            cmocka_unit_test(cpu_attention_chunks_give_the_bits_of_one_go),
            cmocka_unit_test(cpu_attention_plan_declines_what_it_does_not_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
