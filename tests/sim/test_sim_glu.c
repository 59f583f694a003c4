// sim_glu: a prefill with gate, up and activation in one launch has the bits of one that runs them
// apart: the logits behind prompts of tiny models, SwiGLU and GeGLU, several weight types, and more
// rows than a tile has. Where the down product takes f16, the launch writes it; where it takes f32
// or int8 blocks, f32. Skipped without NVRTC.
#include "open_model.h"
#include "sim_kernel.h"

#include "base/mem.h"
#include "engine/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum {
    MAX_IDS = 1024,
    PROMPT = 150
};

struct seen { // what a prefill launched and wrote
    int fused, activations, halves, floats;
};

static int is_fused(const struct kiln_trace_step *step) {
    return strcmp(step->variant, "f16_expand_glu") == 0 ||
           strcmp(step->variant, "f16_wgmma_glu") == 0;
}

static enum kiln_status count_step(
        void *arg, const struct kiln_trace_step *step, struct kiln_err *err) {
    struct seen *seen = arg;
    (void)err;
    if (step && step->problem->phase == KILN_PHASE_PREFILL) {
        seen->fused += is_fused(step);
        seen->activations += strcmp(step->slot, "activation") == 0;
    }
    return KILN_STATUS_OK;
}

static enum kiln_status count_edge(void *arg, const struct kiln_trace_step *step,
        const struct kiln_trace_edge *edge, struct kiln_err *err) {
    struct seen *seen = arg;
    (void)err;
    if (is_fused(step)) {
        seen->halves += strcmp(edge->format, "f16") == 0;
        seen->floats += strcmp(edge->format, "f32") == 0;
    }
    return KILN_STATUS_OK;
}

static void logits_on(const char *device, const char *file, const char *const *sets,
        struct seen *seen, float logits[MAX_IDS]) {
    struct opened_model model;
    int32_t ids[PROMPT];
    struct kiln_err err = {0};
    const struct kiln_trace trace = {.step = count_step, .wrote = count_edge, .arg = seen};
    *seen = (struct seen){.fused = 0};
    memset(logits, 0, MAX_IDS * sizeof(*logits));
    open_model_on(&model, device, golden_path(file), sets);
    assert_true(model.session.model->params.n_vocab <= MAX_IDS);
    for (int i = 0; i < PROMPT; i++) {
        ids[i] = (i * 37 + 11) % 250;
    }
    kiln_engine_trace(model.session.engine, &trace);
    if (kiln_engine_eval(model.session.engine, ids, PROMPT, logits, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    close_model(&model);
}

static void logits_of(
        const char *file, const char *const *sets, struct seen *seen, float logits[MAX_IDS]) {
    logits_on("sim", file, sets, seen, logits);
}

static const char *const apart[] = {"matmul.*.prefill.variant=f16_expand", NULL};
static const char *const fused[] = {"matmul.*.prefill.variant=f16_expand",
        "matmul.*.prefill/glu.when=role=ffn_gate", "matmul.*.prefill/glu.variant=f16_expand_glu",
        NULL};
static float one[MAX_IDS], other[MAX_IDS];

static void sim_glu_has_the_bits_of_three_launches(void **state) {
    (void)state;
    static const char *const files[] = {"tiny/llama-quant-q4_k_m.gguf",
            "tiny/gemma3-q8_0-window32.gguf", "tiny/qwen3-f16-hd128.gguf",
            "tiny/llama-quant-bf16.gguf"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct seen before, after;
        logits_of(files[i], apart, &before, one);
        logits_of(files[i], fused, &after, other);
        assert_true(before.activations > 0 && before.fused == 0);
        assert_int_equal(after.fused, before.activations);
        assert_int_equal(after.activations, 0);
        assert_int_equal(after.halves, after.fused);
        assert_memory_equal(one, other, sizeof(one));
    }
}

// What Hopper has by itself.
static void sim_glu_has_the_bits_of_three_launches_on_hopper(void **state) {
    (void)state;
    static const char *const files[] = {
            "tiny/llama-quant-q4_k_m.gguf", "tiny/gemma3-q8_0-window32.gguf"};
    static const char *const plain[] = {"matmul.*.prefill.variant=f16_wgmma", NULL};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct seen before, after;
        logits_on("sim:sm_90a", files[i], plain, &before, one);
        logits_on("sim:sm_90a", files[i], NULL, &after, other);
        assert_true(before.activations > 0 && before.fused == 0);
        assert_int_equal(after.fused, before.activations);
        assert_int_equal(after.halves, after.fused);
        assert_memory_equal(one, other, sizeof(one));
    }
}

static void sim_glu_writes_what_the_down_product_reads(void **state) {
    (void)state;
    static const char *const mmq[] = {"matmul.*.prefill.variant=f16_expand",
            "matmul.*.prefill/down.when=role=ffn_down", "matmul.*.prefill/down.variant=mmq", NULL};
    static const char *const mmq_fused[] = {"matmul.*.prefill.variant=f16_expand",
            "matmul.*.prefill/down.when=role=ffn_down", "matmul.*.prefill/down.variant=mmq",
            "matmul.*.prefill/glu.when=role=ffn_gate",
            "matmul.*.prefill/glu.variant=f16_expand_glu", NULL};
    struct seen before, after;
    logits_of("tiny/llama-quant-q4_0.gguf", mmq, &before, one);
    logits_of("tiny/llama-quant-q4_0.gguf", mmq_fused, &after, other);
    assert_true(before.activations > 0);
    assert_int_equal(after.fused, before.activations);
    assert_int_equal(after.floats, after.fused);
    assert_memory_equal(one, other, sizeof(one));
}

// A section of its own for UP in a later layer is not swallowed.
static void sim_glu_leaves_what_is_bound_elsewhere(void **state) {
    (void)state;
    static const char *const sets[] = {"matmul.*.prefill/glu.when=role=ffn_gate",
            "matmul.*.prefill/glu.variant=f16_expand_glu", "matmul.*.prefill/up.when=role=ffn_up",
            "matmul.*.prefill/up.variant=f16", NULL};
    struct seen seen;
    logits_of("tiny/llama-quant-q4_0.gguf", sets, &seen, one);
    assert_true(seen.activations > 0);
    assert_int_equal(seen.fused, 0);
}

int main(void) {
    if (!sim_can_compile(0)) {
        return SIM_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(sim_glu_has_the_bits_of_three_launches),
            cmocka_unit_test(sim_glu_has_the_bits_of_three_launches_on_hopper),
            cmocka_unit_test(sim_glu_writes_what_the_down_product_reads),
            cmocka_unit_test(sim_glu_leaves_what_is_bound_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
