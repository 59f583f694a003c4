// q8: whole tiny models with exact_q8 in every matmul: the activations are quantized on the way,
// once an edge or once a reader with the same bits, and the logits stay near those of exact.
#include "open_model.h"

#include "base/buf.h"
#include "base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum {
    MAX_VOCAB = 1024,
    N_PROMPT = 21
};

struct outcome {
    float logits[2][MAX_VOCAB]; // after a prefill, after one token more
    int32_t n_vocab;
    char *steps; // of the prefill
};

static const char *const shared[] = {
        "matmul.*.prefill.variant=exact_q8", "matmul.*.decode.variant=exact_q8", NULL};
static const char *const separate[] = {"matmul.*.prefill.variant=exact_q8",
        "matmul.*.decode.variant=exact_q8", "quantize.variant=separate", NULL};

static const char *const fast[] = {
        "matmul.*.prefill.variant=q8", "matmul.*.decode.variant=q8", NULL};

static void run(const char *name, const char *const *sets, struct outcome *out) {
    char file[256];
    struct opened_model model;
    struct kiln_err err = {0};
    struct kiln_buf text = {0};
    int32_t ids[N_PROMPT];
    snprintf(file, sizeof(file), "tiny/%s.gguf", name);
    open_model(&model, golden_path(file), sets);
    struct kiln_engine *engine = model.session.engine;
    out->n_vocab = model.session.model->params.n_vocab;
    assert_true(out->n_vocab <= MAX_VOCAB);
    for (int32_t i = 0; i < N_PROMPT; i++) {
        ids[i] = i * 37 % out->n_vocab;
    }
    assert_int_equal(kiln_engine_eval(engine, ids, N_PROMPT, out->logits[0], &err), KILN_STATUS_OK);
    assert_int_equal(kiln_engine_eval(engine, ids, 1, out->logits[1], &err), KILN_STATUS_OK);
    assert_int_equal(kiln_engine_describe(engine, N_PROMPT, &text, &err), KILN_STATUS_OK);
    out->steps = kiln_buf_take(&text);
    assert_non_null(out->steps);
    close_model(&model);
}

static size_t count(const char *text, const char *word) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        n++;
    }
    return n;
}

// Largest difference, as a share of the largest logit.
static double difference(const struct outcome *want, const struct outcome *got, int call) {
    double worst = 0, largest = 0;
    for (int32_t i = 0; i < want->n_vocab; i++) {
        double value = (double)want->logits[call][i];
        double d = fabs((double)got->logits[call][i] - value);
        assert_true(isfinite(d));
        worst = d > worst ? d : worst;
        largest = fabs(value) > largest ? fabs(value) : largest;
    }
    return worst / largest;
}

// 8 bits cost a part in 254 of a block's largest activation in each product; the layers of these
// models multiply it a few times. Measured: 1.7 to 4.8 percent of the largest logit.
static const double tolerance = 0.08;

static void q8_logits_are_near_those_of_exact(void **state) {
    (void)state;
    static const char *const names[] = {"llama-quant-q4_0", "llama-quant-q4_1", "llama-quant-q5_0",
            "llama-quant-q8_0", "llama-quant-q4_k_m", "llama-quant-q5_k_m", "llama-quant-q6_k",
            "gemma3-q8_0-window32", "qwen2-q4_k_m-hd128-untied"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        static struct outcome exact, once, each;
        run(names[i], NULL, &exact);
        run(names[i], shared, &once);
        run(names[i], separate, &each);
        double prefill = difference(&exact, &once, 0), decode = difference(&exact, &once, 1);
        print_message("%s: %.1e and %.1e of the largest logit\n", names[i], prefill, decode);
        assert_true(prefill > 0 && prefill < tolerance && decode < tolerance);
        assert_memory_equal(once.logits, each.logits, sizeof(once.logits));
        size_t matmuls = count(once.steps, "cpu/exact_q8");
        assert_true(matmuls > 0);
        // q, k and v, and gate and up, share an edge in each layer.
        size_t makes_once = count(once.steps, "cpu/q8_32");
        assert_int_equal(count(each.steps, "cpu/q8_32"), matmuls);
        assert_true(makes_once > 0 && makes_once < matmuls);
        kiln_free(exact.steps);
        kiln_free(once.steps);
        kiln_free(each.steps);
    }
}

// q8 has the integers of exact_q8 and differs by f32 rounding, which a quantized activation at a
// rounding edge turns into a step of 1/127 of its block now and then.
static void q8_fast_logits_are_near_those_of_exact_q8(void **state) {
    (void)state;
    static const char *const names[] = {"llama-quant-q4_0", "llama-quant-q4_1", "llama-quant-q5_0",
            "llama-quant-q8_0", "llama-quant-q4_k_m", "llama-quant-q5_k_m", "llama-quant-q6_k",
            "gemma3-q8_0-window32", "qwen2-q4_k_m-hd128-untied"};
    if (!(kiln_host_features() & KILN_HOST_AVX2)) {
        skip();
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        static struct outcome want, got;
        run(names[i], shared, &want);
        run(names[i], fast, &got);
        double prefill = difference(&want, &got, 0), decode = difference(&want, &got, 1);
        print_message("%s: %.1e and %.1e of the largest logit\n", names[i], prefill, decode);
        assert_true(prefill < tolerance / 4 && decode < tolerance / 4);
        assert_true(count(got.steps, "cpu/q8") > count(got.steps, "cpu/q8_32"));
        assert_int_equal(count(got.steps, "cpu/exact_q8"), 0);
        kiln_free(want.steps);
        kiln_free(got.steps);
    }
}

// Weights that are not in blocks are declined: exact takes them, and no edge is quantized.
static void q8_leaves_plain_weights_to_exact(void **state) {
    (void)state;
    static struct outcome exact, out;
    run("llama-f32-gqa4x2", NULL, &exact);
    run("llama-f32-gqa4x2", shared, &out);
    assert_memory_equal(exact.logits, out.logits, sizeof(out.logits));
    assert_int_equal(count(out.steps, "q8"), 0);
    kiln_free(exact.steps);
    kiln_free(out.steps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(q8_logits_are_near_those_of_exact),
            cmocka_unit_test(q8_fast_logits_are_near_those_of_exact_q8),
            cmocka_unit_test(q8_leaves_plain_weights_to_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
