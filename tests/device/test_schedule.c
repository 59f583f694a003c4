// schedule: fused variants, edge formats with quantize ops between, prepared weights, variants that
// decline: the schedule has the steps it should, and the model still computes what it should.
#include "open_model.h"

#include "base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char model_name[] = "tiny/llama-f32-gqa4x2.gguf";
enum {
    N_VOCAB = 384,
    N_PROMPT = 9
};

struct outcome {
    float logits[N_VOCAB];  // after a prefill
    float decoded[N_VOCAB]; // after one token more
    char *steps;            // of the prefill
    uint64_t bytes;
};

static const char *fuse_path(void) {
    static char path[4096];
    snprintf(path, sizeof(path), "%s/tests/plugins_fuse/fuse.so", getenv("KILN_TEST_BUILD"));
    return path;
}

static enum kiln_status run(const char *const *sets, struct outcome *out, struct kiln_err *err) {
    struct opened_model model;
    const char *const plugins[] = {fuse_path(), NULL};
    enum kiln_status status =
            try_open_model(&model, "cpu", golden_path(model_name), plugins, sets, err);
    if (status != KILN_STATUS_OK) {
        return status;
    }
    int32_t ids[N_PROMPT];
    for (int32_t i = 0; i < N_PROMPT; i++) {
        ids[i] = i * 37 % N_VOCAB;
    }
    struct kiln_engine *engine = model.session.engine;
    struct kiln_buf text = {0};
    assert_int_equal(kiln_engine_eval(engine, ids, N_PROMPT, out->logits, err), KILN_STATUS_OK);
    assert_int_equal(kiln_engine_eval(engine, ids, 1, out->decoded, err), KILN_STATUS_OK);
    assert_int_equal(kiln_engine_describe(engine, N_PROMPT, &text, err), KILN_STATUS_OK);
    out->steps = kiln_buf_take(&text);
    out->bytes = kiln_engine_bytes(engine);
    close_model(&model);
    return KILN_STATUS_OK;
}

static size_t count(const char *text, const char *word) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        n++;
    }
    return n;
}

static double difference(const float *a, const float *b) {
    double worst = 0;
    for (size_t i = 0; i < N_VOCAB; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        worst = d > worst ? d : worst;
    }
    return worst;
}

static void check(const char *const *sets, double bound, struct outcome *out) {
    struct kiln_err err = {0};
    struct outcome exact = {0};
    assert_int_equal(run(NULL, &exact, &err), KILN_STATUS_OK);
    enum kiln_status status = run(sets, out, &err);
    if (status != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    assert_true(difference(exact.logits, out->logits) < bound);
    assert_true(difference(exact.decoded, out->decoded) < bound);
    kiln_free(exact.steps);
}

static void schedule_plain_steps(void **state) {
    (void)state;
    static const char *const sets[] = {
            "matmul.f32.prefill.variant=plain", "matmul.f32.decode.variant=plain", NULL};
    struct outcome out = {0};
    check(sets, 1e-3, &out);
    assert_int_equal(count(out.steps, "fuse/plain"), 2 * 7 + 1);
    kiln_free(out.steps);
}

static void schedule_fuses_adjacent_ops(void **state) {
    (void)state;
    static const char *const sets[] = {"matmul.f32.prefill.variant=plain",
            "matmul.f32.prefill/qkv.variant=qkv", "matmul.f32.prefill/qkv.when=role=attn_q",
            "matmul.f32.decode.variant=plain", NULL};
    struct outcome out = {0};
    check(sets, 1e-3, &out);
    assert_int_equal(count(out.steps, "fuse/qkv"), 2);
    assert_int_equal(count(out.steps, "fuse/plain"), 2 * 4 + 1);
    kiln_free(out.steps);
}

static void schedule_falls_back_when_a_variant_declines(void **state) {
    (void)state;
    static const char *const sets[] = {"matmul.f32.prefill.variant=plain",
            "matmul.f32.prefill/x.variant=declines", "matmul.f32.prefill/x.when=role=ffn_up",
            "matmul.f32.prefill/qkv.variant=qkv", "matmul.f32.prefill/qkv.when=role=ffn_down",
            NULL};
    struct outcome out = {0};
    check(sets, 1e-3, &out);
    assert_int_equal(count(out.steps, "fuse/declines"), 0);
    assert_int_equal(count(out.steps, "fuse/qkv"), 0); // not the ops that it fills
    kiln_free(out.steps);
}

static void schedule_quantizes_once_or_each(void **state) {
    (void)state;
    static const char *const shared[] = {
            "matmul.f32.prefill.variant=reads_q8", "matmul.f32.decode.variant=reads_q8", NULL};
    static const char *const separate[] = {"matmul.f32.prefill.variant=reads_q8",
            "matmul.f32.decode.variant=reads_q8", "quantize.variant=separate", NULL};
    struct outcome once = {0}, each = {0};
    check(shared, 0.5, &once);
    check(separate, 0.5, &each);
    assert_int_equal(count(once.steps, "fuse/make_q8"), 2 * 4 + 1); // q+k+v, output, gate+up, down
    assert_int_equal(count(each.steps, "fuse/make_q8"), 2 * 7 + 1);
    assert_memory_equal(once.logits, each.logits, sizeof(once.logits));
    kiln_free(once.steps);
    kiln_free(each.steps);
}

static void schedule_producer_writes_the_format(void **state) {
    (void)state;
    static const char *const shared[] = {
            "matmul.f32.prefill.variant=reads_q8", "matmul.f32.decode.variant=reads_q8", NULL};
    static const char *const fused[] = {"matmul.f32.prefill.variant=reads_q8",
            "matmul.f32.decode.variant=reads_q8", "norm/fused.variant=norm_q8",
            "norm/fused.when=role!=output_norm", NULL};
    struct outcome separate = {0}, out = {0};
    check(shared, 0.5, &separate);
    check(fused, 0.5, &out);
    assert_int_equal(count(out.steps, "fuse/norm_q8"), 4);
    assert_int_equal(count(out.steps, "fuse/make_q8"), 2 * 2 + 1);
    assert_true(difference(out.logits, separate.logits) < 0.05);
    kiln_free(out.steps);
    kiln_free(separate.steps);
}

static void schedule_prepares_weights_once(void **state) {
    (void)state;
    static const char *const sets[] = {
            "matmul.f32.prefill.variant=prepared", "matmul.f32.decode.variant=prepared", NULL};
    static const char *const keyed[] = {"matmul.f32.prefill.variant=prepared",
            "matmul.f32.decode.variant=prepared", "matmul.f32.decode.PAD=3", NULL};
    static const char *const plain[] = {
            "matmul.f32.prefill.variant=plain", "matmul.f32.decode.variant=plain", NULL};
    struct outcome out = {0}, both = {0}, none = {0};
    check(sets, 1e-3, &out);
    check(keyed, 1e-3, &both);
    check(plain, 1e-3, &none);
    uint64_t prepared = out.bytes - none.bytes; // prefill and decode share what has the same key
    assert_true(prepared > 0);
    // with another PAD for decode the layers are prepared twice; the output matmul only ran for one
    // row
    uint64_t output = (uint64_t)N_VOCAB * 128 * sizeof(float);
    assert_int_equal(both.bytes - none.bytes, 2 * prepared - output);
    kiln_free(out.steps);
    kiln_free(both.steps);
    kiln_free(none.steps);
}

static void schedule_says_why_nothing_runs(void **state) {
    (void)state;
    static const char *const fails[] = {"matmul.f32.decode.variant=fails", NULL};
    static const char *const formats[] = {"norm.variant=norm_q8", NULL};
    struct outcome out = {0};
    struct kiln_err err = {0};
    assert_int_equal(run(fails, &out, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "broken on purpose"));
    assert_non_null(strstr(err.text, "matmul.f32.decode"));
    // no reader takes the format, so the plain norm of the built-in layer takes over
    assert_int_equal(run(formats, &out, &err), KILN_STATUS_OK);
    assert_int_equal(count(out.steps, "fuse/norm_q8"), 0);
    kiln_free(out.steps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(schedule_plain_steps),
            cmocka_unit_test(schedule_fuses_adjacent_ops),
            cmocka_unit_test(schedule_falls_back_when_a_variant_declines),
            cmocka_unit_test(schedule_quantizes_once_or_each),
            cmocka_unit_test(schedule_producer_writes_the_format),
            cmocka_unit_test(schedule_prepares_weights_once),
            cmocka_unit_test(schedule_says_why_nothing_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
