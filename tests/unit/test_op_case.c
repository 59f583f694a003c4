// op_case: what is judged passes when it is right and fails when it is not: NaN, infinity, zeros,
// a row that is not the call's; the same numbers each time.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "lab/op_case_impl.h"

#include <math.h>
#include <string.h>

static struct kiln_op_case made(const char *slot, const struct kiln_shape *shape, uint64_t seed) {
    struct kiln_op_case c;
    struct kiln_err err = {0};
    enum kiln_status status =
            kiln_op_case_make(&c, slot, NULL, NULL, shape, KILN_FILL_NORMAL, seed, &err);
    if (status != KILN_STATUS_OK) {
        print_error("%s\n", err.text);
    }
    assert_int_equal(status, KILN_STATUS_OK);
    return c;
}

// OUT as the reference has it, rows behind those in use as they were.
static float *right_output(struct kiln_op_case *c, const void **outputs) {
    struct kiln_op_verdict verdict;
    struct kiln_err err = {0};
    const struct kiln_tensor *out = kiln_case_find(c, 0, KILN_OPERAND_OUT);
    float *at = kiln_alloc(kiln_solo_span(out));
    assert_non_null(at);
    memset(at, 0xff, kiln_solo_span(out));
    outputs[KILN_OPERAND_OUT] = at;
    assert_int_equal(kiln_op_case_judge_bytes(c, outputs, &verdict, &err), KILN_STATUS_OK);
    assert_false(verdict.passed); // nothing was written
    const struct kiln_case_value *value = kiln_case_value(c, 0, KILN_OPERAND_OUT);
    for (int64_t i = 0; i < c->shape.m * value->cols; i++) {
        at[i] = (float)value->v[i];
    }
    return at;
}

static struct kiln_op_verdict judged(struct kiln_op_case *c, const void *const *outputs) {
    struct kiln_op_verdict verdict;
    struct kiln_err err = {0};
    assert_int_equal(kiln_op_case_judge_bytes(c, outputs, &verdict, &err), KILN_STATUS_OK);
    return verdict;
}

static void op_case_judges(const char *slot, const struct kiln_shape *shape) {
    const void *outputs[KILN_CASE_OPS * KILN_SOLO_OPERANDS] = {NULL};
    struct kiln_op_case c = made(slot, shape, 1);
    float *out = right_output(&c, outputs);
    int64_t cols = kiln_case_find(&c, 0, KILN_OPERAND_OUT)->dims[0];
    int64_t at = cols + 2; // row 1, column 2
    const float kept = out[at];
    const float planted[] = {NAN, INFINITY, -INFINITY, 0, kept * 1.5F, 1e30F};
    assert_true(judged(&c, outputs).passed);
    for (size_t i = 0; i < sizeof(planted) / sizeof(planted[0]); i++) {
        out[at] = planted[i];
        struct kiln_op_verdict verdict = judged(&c, outputs);
        assert_false(verdict.passed);
        assert_int_equal(verdict.row, 1);
        assert_int_equal(verdict.col, 2);
        assert_true(verdict.got == (double)planted[i] || isnan(planted[i]));
        assert_true(fabs(verdict.want - (double)kept) < 1e-6 * fabs(verdict.want));
        assert_true(verdict.bound > 0 && verdict.bound < fabs(verdict.want));
    }
    out[at] = kept;
    out[c.shape.m * cols + 1] = 1; // the first row behind
    assert_false(judged(&c, outputs).passed);
    assert_non_null(strstr(judged(&c, outputs).why, "is not of the call's"));
    kiln_free(out);
    kiln_op_case_finish(&c);
}

static void op_case_judges_matmul(void **state) {
    (void)state;
    op_case_judges(
            "matmul.q4_K.prefill", &(struct kiln_shape){.m = 3, .n = 5, .k = 256, .bound = 5});
}

static void op_case_judges_attention(void **state) {
    (void)state;
    op_case_judges("attention.prefill", &(struct kiln_shape){.m = 4,
                                                .bound = 6,
                                                .kv_len = 9,
                                                .n_heads = 3,
                                                .n_kv_heads = 1,
                                                .head_size = 8});
}

static void op_case_judges_norm(void **state) {
    (void)state;
    op_case_judges("norm", &(struct kiln_shape){.m = 3, .k = 40, .bound = 4});
}

// Two queries over one key: the first sees none and is zero; one key: its value, whatever q is.
static void op_case_masked_rows_are_zero(void **state) {
    (void)state;
    const void *outputs[KILN_CASE_OPS * KILN_SOLO_OPERANDS] = {NULL};
    struct kiln_op_case c = made("attention.prefill",
            &(struct kiln_shape){
                    .m = 2, .kv_len = 1, .n_heads = 1, .n_kv_heads = 1, .head_size = 8},
            7);
    float *out = right_output(&c, outputs);
    const struct kiln_tensor *cache = kiln_case_find(&c, 0, KILN_OPERAND_V_CACHE);
    float v[8];
    kiln_case_decode(cache, kiln_case_data(&c, 0, KILN_OPERAND_V_CACHE), v);
    for (int i = 0; i < 8; i++) {
        assert_true(out[i] == 0);
        assert_true(out[8 + i] == v[i]);
    }
    out[3] = 1e-20F;
    assert_false(judged(&c, outputs).passed);
    kiln_free(out);
    kiln_op_case_finish(&c);
}

// Rows that are not reckoned are looked at for what is not finite, in any column and type.
static void op_case_looks_at_every_row(void **state) {
    (void)state;
    static const char *const formats[] = {"f32", "f16", "bf16"};
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t f = 0; f < 6; f++) {
        const char *format[] = {formats[f / 2]};
        const struct kiln_io io = {.struct_size = sizeof(io),
                .operand = KILN_OPERAND_OUT,
                .n_formats = 1,
                .formats = format};
        const struct kiln_io *ios[] = {&io};
        const struct kiln_variant variant = {
                .struct_size = sizeof(variant), .name = "v", .n_ios = 1, .ios = ios};
        const struct kiln_shape shape = {.m = 8, .k = f % 2 ? 12 : 7};
        const void *outputs[KILN_CASE_OPS * KILN_SOLO_OPERANDS] = {NULL};
        struct kiln_op_case c;
        struct kiln_err err = {0};
        assert_int_equal(
                kiln_op_case_make(&c, "norm", NULL, &variant, &shape, KILN_FILL_NORMAL, 1, &err),
                KILN_STATUS_OK);
        c.reference->n_rows = 2; // as if the problem were large
        c.reference->rows[1] = 7;
        const struct kiln_tensor *out = kiln_case_find(&c, 0, KILN_OPERAND_OUT);
        unsigned char *at = kiln_calloc(1, kiln_solo_span(out));
        float row[12];
        assert_non_null(at);
        outputs[KILN_OPERAND_OUT] = at;
        assert_int_equal(kiln_op_case_reckon(&c, &err), KILN_STATUS_OK);
        for (int64_t r = 0; r < 2; r++) {
            for (int64_t i = 0; i < shape.k; i++) {
                row[i] = (float)kiln_case_value(&c, 0, KILN_OPERAND_OUT)->v[r * shape.k + i];
            }
            kiln_case_encode(out, row, at + r * 7 * out->strides[1]);
        }
        for (int64_t i = 0; i < shape.k; i++) {
            for (int64_t j = 0; j < shape.k; j++) {
                row[j] = j % 2 ? 65504 : -65504;
            }
            kiln_case_encode(out, row, at + 3 * out->strides[1]);
            assert_true(judged(&c, outputs).passed);
            row[i] = odd[i % 3];
            kiln_case_encode(out, row, at + 3 * out->strides[1]);
            assert_false(judged(&c, outputs).passed);
            assert_int_equal(judged(&c, outputs).row, 3);
            assert_int_equal(judged(&c, outputs).col, i);
        }
        kiln_free(at);
        kiln_op_case_finish(&c);
    }
}

// A problem without numbers has the operands of one with them.
static void op_case_without_data(void **state) {
    (void)state;
    static const char *const slots[] = {"embed", "norm", "rope_kv", "activation", "argmax",
            "quantize", "attention.prefill", "attention.decode", "matmul.q4_K.prefill"};
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        struct kiln_op_case bare, full = made(slots[i], &(struct kiln_shape){.m = 1, .k = 256}, 1);
        struct kiln_err err = {0};
        assert_int_equal(kiln_op_case_make(&bare, slots[i], NULL, NULL,
                                 &(struct kiln_shape){.m = 1, .k = 256}, KILN_FILL_NONE, 1, &err),
                KILN_STATUS_OK);
        assert_int_equal(bare.problem.ops[0]->n_operands, full.problem.ops[0]->n_operands);
        for (uint32_t t = 0; t < bare.problem.ops[0]->n_operands; t++) {
            const struct kiln_tensor *one = bare.problem.ops[0]->operands[t];
            assert_memory_equal(
                    one->dims, full.problem.ops[0]->operands[t]->dims, sizeof(one->dims));
            assert_null(bare.data[one->operand]);
        }
        char one[200], other[200];
        kiln_op_case_name(&bare, one, sizeof(one));
        kiln_op_case_name(&full, other, sizeof(other));
        assert_string_equal(one, other);
        kiln_op_case_finish(&bare);
        kiln_op_case_finish(&full);
    }
}

// A cache with the row that rope_kv must put into it, as the reference has it.
static unsigned char *written_cache(struct kiln_op_case *c, uint32_t operand) {
    const struct kiln_tensor *cache = kiln_case_find(c, 0, operand);
    const struct kiln_case_value *value = kiln_case_value(c, 0, operand);
    unsigned char *at = kiln_alloc(kiln_solo_span(cache));
    float row[64];
    assert_non_null(at);
    memcpy(at, kiln_case_data(c, 0, operand), kiln_solo_span(cache));
    for (int64_t i = 0; i < 64; i++) {
        row[i] = (float)value->v[i];
    }
    kiln_case_encode(cache, row, at + (c->shape.kv_len - 1) * cache->strides[1]);
    return at;
}

// rope_kv and the attention of one row together: what the row puts into the caches is what it reads
// there. The first token sees itself alone: each head is V of its KV head.
static void op_case_attends_behind_rope(void **state) {
    (void)state;
    static const char *const follows[] = {"attention"};
    static const struct kiln_variant both = {.struct_size = sizeof(both),
            .devices = KILN_DEVICE_CUDA,
            .name = "both",
            .follows = follows,
            .n_follows = 1};
    const struct kiln_shape shape = {
            .m = 1, .kv_len = 1, .n_heads = 6, .n_kv_heads = 2, .head_size = 32};
    const void *outputs[KILN_CASE_OPS * KILN_SOLO_OPERANDS] = {NULL};
    struct kiln_op_case c;
    struct kiln_op_verdict verdict;
    struct kiln_err err = {0};
    float out[6 * 32];
    assert_int_equal(
            kiln_op_case_make(&c, "rope_kv", NULL, &both, &shape, KILN_FILL_NORMAL, 1, &err),
            KILN_STATUS_OK);
    const float *v = kiln_case_data(&c, 0, KILN_OPERAND_V);
    for (int i = 0; i < 6 * 32; i++) {
        out[i] = v[i / 96 * 32 + i % 32];
    }
    outputs[KILN_OPERAND_K_CACHE] = kiln_case_data(&c, 0, KILN_OPERAND_K_CACHE);
    outputs[KILN_OPERAND_V_CACHE] = kiln_case_data(&c, 0, KILN_OPERAND_V_CACHE);
    outputs[KILN_SOLO_OPERANDS + KILN_OPERAND_OUT] = out;
    assert_int_equal(kiln_op_case_judge_bytes(&c, outputs, &verdict, &err), KILN_STATUS_OK);
    assert_false(verdict.passed); // the caches were not written
    unsigned char *k_cache = written_cache(&c, KILN_OPERAND_K_CACHE);
    unsigned char *v_cache = written_cache(&c, KILN_OPERAND_V_CACHE);
    outputs[KILN_OPERAND_K_CACHE] = k_cache;
    outputs[KILN_OPERAND_V_CACHE] = v_cache;
    assert_true(judged(&c, outputs).passed);
    out[100] *= 1.01F;
    verdict = judged(&c, outputs);
    assert_false(verdict.passed);
    assert_true(verdict.op == 1 && verdict.operand == KILN_OPERAND_OUT && verdict.col == 100);
    kiln_free(k_cache);
    kiln_free(v_cache);
    kiln_op_case_finish(&c);
}

// Blocks of 32 equal values whose sum passes 65504 stay finite; a row that is not finite is NaN.
static void op_case_quantizes(void **state) {
    (void)state;
    struct kiln_q8 q8;
    float x[32];
    for (int i = 0; i < 32; i++) {
        x[i] = 2048;
    }
    kiln_q8_quantize(x, &q8);
    assert_true(q8.scale == 2048.0F / 127 && q8.sum == 32 * 127);
    x[5] = NAN;
    kiln_q8_quantize(x, &q8);
    assert_true(isnan(q8.scale) && q8.sum == 0);
    memset(x, 0, sizeof(x));
    kiln_q8_quantize(x, &q8);
    assert_true(q8.scale == 0 && q8.sum == 0);
}

static void op_case_repeats(void **state) {
    (void)state;
    const struct kiln_shape shape = {.m = 2, .n = 3, .k = 256};
    struct kiln_op_case a = made("matmul.q6_K.decode", &shape, 5);
    struct kiln_op_case b = made("matmul.q6_K.decode", &shape, 5);
    struct kiln_op_case other = made("matmul.q6_K.decode", &shape, 6);
    size_t bytes = kiln_solo_span(kiln_case_find(&a, 0, KILN_OPERAND_WEIGHT));
    const void *at = kiln_case_data(&a, 0, KILN_OPERAND_WEIGHT);
    assert_memory_equal(at, kiln_case_data(&b, 0, KILN_OPERAND_WEIGHT), bytes);
    assert_memory_not_equal(at, kiln_case_data(&other, 0, KILN_OPERAND_WEIGHT), bytes);
    kiln_op_case_finish(&a);
    kiln_op_case_finish(&b);
    kiln_op_case_finish(&other);
}

static void op_case_refuses(void **state) {
    (void)state;
    static const struct {
        const char *slot;
        struct kiln_shape shape;
    } bad[] = {
            {"matmul.q4_K.prefill", {.k = 100, .m = 1, .n = 1}},
            {"attention.decode", {.n_heads = 5, .n_kv_heads = 2, .m = 1}},
            {"matmul.q4_K", {.m = 1}},
            {"norm", {.m = -1}},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct kiln_op_case c;
        struct kiln_err err = {0};
        assert_int_not_equal(kiln_op_case_make(&c, bad[i].slot, NULL, NULL, &bad[i].shape,
                                     KILN_FILL_NORMAL, 1, &err),
                KILN_STATUS_OK);
        assert_true(err.text[0] != '\0');
        kiln_op_case_finish(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(op_case_judges_matmul),
            cmocka_unit_test(op_case_judges_attention),
            cmocka_unit_test(op_case_judges_norm),
            cmocka_unit_test(op_case_masked_rows_are_zero),
            cmocka_unit_test(op_case_attends_behind_rope),
            cmocka_unit_test(op_case_looks_at_every_row),
            cmocka_unit_test(op_case_without_data),
            cmocka_unit_test(op_case_quantizes),
            cmocka_unit_test(op_case_repeats),
            cmocka_unit_test(op_case_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
