// sim_glu: a prefill with gate, up and activation in one launch has the bits of one that runs them
// apart: the logits behind prompts of tiny models, SwiGLU and GeGLU, several weight types, and more
// rows than a tile has. Where the down product takes rows of f16, that is what is written; where it
// takes int8 blocks, or the FFN is no multiple of 128 wide, f32. So it is also in models whose
// activations no f16 holds: those of a copy whose norm before the FFN is a thousand times as large,
// and of one that is a hundred thousand times smaller. Skipped without NVRTC.
#include "open_model.h"
#include "sim_kernel.h"

#include "base/mem.h"
#include "engine/schedule.h"
#include "model/gguf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum {
    MAX_IDS = 1024,
    PROMPT = 150
};

struct seen { // what a prefill launched and wrote
    struct kiln_dev *dev;
    int fused, activations, rows, floats;
    float largest; // magnitude of an activation, where it is f32
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

static enum kiln_status note_largest(
        struct seen *seen, const struct kiln_trace_edge *edge, struct kiln_err *err) {
    float row[512];
    assert_true(edge->cols <= 512);
    for (int r = 0; r < PROMPT; r++) {
        KILN_TRY(seen->dev->ops->download(seen->dev, row, edge->address + r * edge->row_bytes,
                (uint64_t)edge->cols * sizeof(*row), err));
        for (int64_t i = 0; i < edge->cols; i++) {
            seen->largest = fmaxf(seen->largest, fabsf(row[i]));
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status count_edge(void *arg, const struct kiln_trace_step *step,
        const struct kiln_trace_edge *edge, struct kiln_err *err) {
    struct seen *seen = arg;
    if (is_fused(step)) {
        seen->rows += strcmp(edge->format, "f16_rows") == 0;
        seen->floats += strcmp(edge->format, "f32") == 0;
    }
    return strcmp(step->slot, "activation") == 0 ? note_largest(seen, edge, err) : KILN_STATUS_OK;
}

static void logits_on(const char *device, const char *path, const char *const *sets,
        struct seen *seen, float logits[MAX_IDS]) {
    struct opened_model model;
    int32_t ids[PROMPT];
    struct kiln_err err = {0};
    const struct kiln_trace trace = {.step = count_step, .wrote = count_edge, .arg = seen};
    memset(logits, 0, MAX_IDS * sizeof(*logits));
    open_model_on(&model, device, path, sets);
    *seen = (struct seen){.dev = model.session.dev};
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
        const char *path, const char *const *sets, struct seen *seen, float logits[MAX_IDS]) {
    logits_on("sim", path, sets, seen, logits);
}

static const char *const apart[] = {"matmul.*.prefill.variant=f16_expand", NULL};
static const char *const fused[] = {"matmul.*.prefill.variant=f16_expand",
        "matmul.*.prefill/glu.when=role=ffn_gate", "matmul.*.prefill/glu.variant=f16_expand_glu",
        NULL};
// What Hopper has by itself, apart.
static const char *const wgmma[] = {"matmul.*.prefill.variant=f16_wgmma", NULL};
static float one[MAX_IDS], other[MAX_IDS];

static void sim_glu_has_the_bits_of_three_launches(void **state) {
    (void)state;
    static const char *const files[] = {"tiny/llama-quant-q4_k_m.gguf",
            "tiny/gemma3-q8_0-window32.gguf", "tiny/qwen3-f16-hd128.gguf",
            "tiny/llama-quant-bf16.gguf"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct seen before, after;
        logits_of(golden_path(files[i]), apart, &before, one);
        logits_of(golden_path(files[i]), fused, &after, other);
        assert_true(before.activations > 0 && before.fused == 0);
        assert_int_equal(after.fused, before.activations);
        assert_int_equal(after.activations, 0);
        assert_int_equal(after.rows, after.fused);
        assert_memory_equal(one, other, sizeof(one));
    }
}

static void sim_glu_has_the_bits_of_three_launches_on_hopper(void **state) {
    (void)state;
    static const char *const files[] = {
            "tiny/llama-quant-q4_k_m.gguf", "tiny/gemma3-q8_0-window32.gguf"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct seen before, after;
        logits_on("sim:sm_90a", golden_path(files[i]), wgmma, &before, one);
        logits_on("sim:sm_90a", golden_path(files[i]), NULL, &after, other);
        assert_true(before.activations > 0 && before.fused == 0);
        assert_int_equal(after.fused, before.activations);
        assert_int_equal(after.rows, after.fused);
        assert_memory_equal(one, other, sizeof(one));
    }
}

static void sim_glu_writes_f32_where_rows_are_no_whole_blocks(void **state) {
    (void)state;
    struct seen before, after;
    logits_of(golden_path("tiny/llama-f32-gqa4x2.gguf"), apart, &before, one); // FFN of 192
    logits_of(golden_path("tiny/llama-f32-gqa4x2.gguf"), fused, &after, other);
    assert_int_equal(after.fused, before.activations);
    assert_int_equal(after.floats, after.fused);
    assert_memory_equal(one, other, sizeof(one));
}

// ---- Activations that f16 does not hold ---------------------------------------------------------
enum {
    MAX_FILE = 4 << 20
};
static unsigned char file[MAX_FILE];

// Every norm before an FFN times a factor: gate and up get it too, and their product its square.
static void scale_norms(const char *path, float factor) {
    struct kiln_gguf *gguf;
    struct kiln_err err = {0};
    int scaled = 0;
    assert_int_equal(kiln_gguf_open(&gguf, path, &err), KILN_STATUS_OK);
    for (size_t i = 0; i < kiln_gguf_n_tensors(gguf); i++) {
        const struct kiln_gguf_tensor *tensor = kiln_gguf_tensor_at(gguf, i);
        for (uint64_t j = 0; strstr(tensor->name, ".ffn_norm.weight") && j < tensor->elems; j++) {
            float value;
            assert_int_equal(tensor->bytes, tensor->elems * sizeof(value));
            unsigned char *at = file + tensor->file_offset + j * sizeof(value);
            memcpy(&value, at, sizeof(value));
            value *= factor;
            memcpy(at, &value, sizeof(value));
            scaled++;
        }
    }
    assert_true(scaled > 0);
    kiln_gguf_close(gguf);
}

// A copy of a model whose norms are scaled so; path: of mkstemp.
static void write_scaled(const char *model, float factor, char *path) {
    FILE *from = fopen(model, "rb");
    assert_non_null(from);
    size_t bytes = fread(file, 1, sizeof(file), from);
    assert_true(bytes > 0 && bytes < sizeof(file));
    assert_int_equal(fclose(from), 0);
    scale_norms(model, factor);
    int to = mkstemp(path);
    assert_true(to >= 0);
    assert_int_equal(write(to, file, bytes), (ssize_t)bytes);
    assert_int_equal(close(to), 0);
}

static void sim_glu_has_the_bits_of_what_f16_does_not_hold(void **state) {
    (void)state;
    static const char *const files[] = {
            "tiny/llama-quant-q4_k_m.gguf", "tiny/gemma3-q8_0-window32.gguf"};
    static const float factors[] = {3000, 1e-4F};
    for (int i = 0; i < 8; i++) {
        const char *device = i < 4 ? "sim" : "sim:sm_90a";
        char path[] = "/tmp/test_sim_glu_XXXXXX";
        struct seen before, after;
        write_scaled(golden_path(files[i / 2 % 2]), factors[i % 2], path);
        logits_on(device, path, i < 4 ? apart : wgmma, &before, one);
        assert_true(i % 2 ? before.largest > 0 && before.largest < 0x1p-14F
                          : before.largest > 65504 && isfinite(before.largest));
        logits_on(device, path, i < 4 ? fused : NULL, &after, other);
        unlink(path);
        assert_int_equal(after.fused, before.activations);
        assert_int_equal(after.rows, after.fused);
        assert_true(isfinite(one[0]));
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
    logits_of(golden_path("tiny/llama-quant-q4_0.gguf"), mmq, &before, one);
    logits_of(golden_path("tiny/llama-quant-q4_0.gguf"), mmq_fused, &after, other);
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
    logits_of(golden_path("tiny/llama-quant-q4_0.gguf"), sets, &seen, one);
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
            cmocka_unit_test(sim_glu_writes_f32_where_rows_are_no_whole_blocks),
            cmocka_unit_test(sim_glu_has_the_bits_of_what_f16_does_not_hold),
            cmocka_unit_test(sim_glu_writes_what_the_down_product_reads),
            cmocka_unit_test(sim_glu_leaves_what_is_bound_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
