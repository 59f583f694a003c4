// synth: a random model opens as a model, has the mix of types of a real one, and weights of the
// right spread.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "kiln/plugin.h"
#include "model/dtype.h"
#include "model/model.h"
#include "model/quant.h"
#include "model/synth.h"
#include "model/synth_blocks.h"
#include "scratch.h"

static const uint32_t types[] = {KILN_DTYPE_F32, KILN_DTYPE_F16, KILN_DTYPE_BF16, KILN_DTYPE_Q4_0,
        KILN_DTYPE_Q4_1, KILN_DTYPE_Q5_0, KILN_DTYPE_Q8_0, KILN_DTYPE_Q4_K, KILN_DTYPE_Q5_K,
        KILN_DTYPE_Q6_K};

static void write_model(const char *path, const char *arch, const char *quant, uint64_t seed) {
    struct kiln_synth synth = {.arch = arch, .like = "tiny", .quant = quant, .seed = seed};
    struct kiln_synth_result result;
    struct kiln_err err = {0};
    if (kiln_synth_write(&synth, path, &result, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    struct kiln_gguf *gguf;
    assert_int_equal(kiln_gguf_open(&gguf, path, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_gguf_n_tensors(gguf), result.n_tensors);
    assert_int_equal(kiln_gguf_file_size(gguf), result.file_bytes);
    assert_int_equal(kiln_synth_is(gguf), 1);
    kiln_gguf_close(gguf);
}

static void synth_blocks_have_mean_and_variance(void **state) {
    (void)state;
    enum {
        N = 1 << 20
    };
    static const double variances[] = {1.0, 1.0 / 576, 1.0 / 3584, 1.0 / 18944};
    float *values = kiln_calloc(N, sizeof(float));
    uint8_t *bytes = kiln_calloc(N, 4);
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        const struct kiln_dtype_info *info = kiln_dtype_info(types[t]);
        for (size_t v = 0; v < sizeof(variances) / sizeof(variances[0]); v++) {
            struct kiln_synth_blocks blocks;
            struct kiln_synth_rng rng = {.state = v};
            assert_int_equal(kiln_synth_blocks_init(&blocks, types[t], variances[v]), 0);
            kiln_synth_fill(&blocks, &rng, bytes, N / info->elems);
            assert_int_equal(kiln_dequant_row(types[t], bytes, values, N), 0);
            double mean = 0, square = 0;
            for (size_t i = 0; i < N; i++) {
                mean += (double)values[i] / N;
                square += (double)values[i] * (double)values[i] / N;
            }
            // Six times the standard error.
            double off = fabs(mean) / sqrt(variances[v]);
            double ratio = square / variances[v];
            if (off > 6.0 / sqrt(N) || fabs(ratio - 1) > 0.03) {
                fail_msg("%s, variance %g: mean %g deviations, variance off by %g", info->name,
                        variances[v], off, ratio);
            }
        }
    }
    kiln_free(values);
    kiln_free(bytes);
}

// Every byte position of a block must take many values, or a reader's fault could hide behind it.
static void synth_blocks_use_every_byte(void **state) {
    (void)state;
    static uint8_t bytes[4096 * 210];
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        const struct kiln_dtype_info *info = kiln_dtype_info(types[t]);
        struct kiln_synth_blocks blocks;
        struct kiln_synth_rng rng = {.state = 7};
        assert_int_equal(kiln_synth_blocks_init(&blocks, types[t], 1.0 / 1024), 0);
        kiln_synth_fill(&blocks, &rng, bytes, 4096);
        for (uint32_t at = 0; at < info->bytes; at++) {
            int seen[256] = {0}, different = 0;
            for (size_t i = 0; i < 4096; i++) {
                seen[bytes[i * info->bytes + at]] = 1;
            }
            for (int i = 0; i < 256; i++) {
                different += seen[i];
            }
            if (different < 2) {
                fail_msg("%s: byte %u is always the same", info->name, at);
            }
        }
    }
    assert_int_equal(kiln_synth_blocks_init(&(struct kiln_synth_blocks){0}, KILN_DTYPE_I8, 1), -1);
}

static void synth_weights_have_variance_by_their_columns(void **state) {
    (void)state;
    const char *path = scratch_path("m.gguf");
    write_model(path, "qwen2", "q4_K_M", 3);
    struct kiln_gguf *gguf;
    struct kiln_err err = {0};
    assert_int_equal(kiln_gguf_open(&gguf, path, &err), KILN_STATUS_OK);
    for (size_t i = 0; i < kiln_gguf_n_tensors(gguf); i++) {
        const struct kiln_gguf_tensor *tensor = kiln_gguf_tensor_at(gguf, i);
        float *values = kiln_calloc(tensor->elems, sizeof(float));
        assert_int_equal(kiln_dequant_row(tensor->dtype, tensor->data, values, tensor->elems), 0);
        double mean = 0, square = 0, n = (double)tensor->elems;
        for (size_t k = 0; k < tensor->elems; k++) {
            mean += (double)values[k] / n;
        }
        for (size_t k = 0; k < tensor->elems; k++) {
            square += ((double)values[k] - mean) * ((double)values[k] - mean) / n;
        }
        int matrix = tensor->n_dims == 2;
        double want_mean = !matrix && strstr(tensor->name, "norm") ? 1 : 0;
        double want = matrix ? 1.0 / (double)tensor->dims[0] : 0.01;
        if (fabs(mean - want_mean) > 6 * sqrt(want / n) ||
                fabs(square / want - 1) > 0.02 + 10 / sqrt(n)) {
            fail_msg("%s: mean %g, variance %g of %g", tensor->name, mean, square, want);
        }
        kiln_free(values);
    }
    kiln_gguf_close(gguf);
    scratch_empty();
}

static void synth_mixes_types_as_published_files_do(void **state) {
    (void)state;
    const char *path = scratch_path("m.gguf");
    write_model(path, "qwen2", "Q4_k_m", 0); // letter case does not matter
    struct kiln_gguf *gguf;
    struct kiln_err err = {0};
    assert_int_equal(kiln_gguf_open(&gguf, path, &err), KILN_STATUS_OK);
    size_t n_q6 = 0;
    for (size_t i = 0; i < kiln_gguf_n_tensors(gguf); i++) {
        const struct kiln_gguf_tensor *tensor = kiln_gguf_tensor_at(gguf, i);
        int layer = -1;
        char suffix[64] = "";
        int has_layer = sscanf(tensor->name, "blk.%d.%63s", &layer, suffix) == 2;
        // Of 8 layers: the first, the last, and every third between.
        int more = has_layer && (layer == 0 || layer == 3 || layer == 6 || layer == 7) &&
                   (!strcmp(suffix, "attn_v.weight") || !strcmp(suffix, "ffn_down.weight"));
        int output = strcmp(tensor->name, "output.weight") == 0;
        uint32_t want = tensor->n_dims == 1 ? KILN_DTYPE_F32
                        : more || output    ? KILN_DTYPE_Q6_K
                                            : KILN_DTYPE_Q4_K;
        if (tensor->dtype != want) {
            fail_msg("%s has type %u, not %u", tensor->name, tensor->dtype, want);
        }
        n_q6 += tensor->dtype == KILN_DTYPE_Q6_K;
    }
    assert_int_equal(n_q6, 9);
    kiln_gguf_close(gguf);
    // Where the embedding is the output, it gets what the output would.
    write_model(path, "qwen3", "q4_K_M", 0);
    assert_int_equal(kiln_gguf_open(&gguf, path, &err), KILN_STATUS_OK);
    assert_null(kiln_gguf_find_tensor(gguf, "output.weight"));
    assert_int_equal(kiln_gguf_find_tensor(gguf, "token_embd.weight")->dtype, KILN_DTYPE_Q6_K);
    kiln_gguf_close(gguf);
    scratch_empty();
}

static void synth_models_open_as_models(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "qwen3", "gemma3"};
    static const char *const quants[] = {
            "q4_K_M", "q5_K_M", "q6_K", "q4_0", "q4_1", "q5_0", "q8_0", "f16", "bf16", "f32"};
    for (size_t i = 0; i < 4; i++) {
        for (size_t q = 0; q < sizeof(quants) / sizeof(quants[0]); q++) {
            const char *path = scratch_path("m.gguf");
            write_model(path, archs[i], quants[q], i);
            struct kiln_model *model;
            struct kiln_err err = {0};
            if (kiln_model_open(&model, path, &err) != KILN_STATUS_OK) {
                fail_msg("%s %s: %s", archs[i], quants[q], err.text);
            }
            assert_string_equal(model->arch->name, archs[i]);
            assert_null(model->tokenizer);
            assert_int_equal(model->params.n_vocab, 512);
            assert_int_equal(model->params.n_layers, 8);
            kiln_model_close(model);
        }
    }
    scratch_empty();
}

static void read_file(const char *path, char **data, size_t *size) {
    struct kiln_err err = {0};
    assert_int_equal(kiln_file_read(path, 1 << 28, data, size, &err), KILN_STATUS_OK);
}

static void synth_seed_decides_the_bytes(void **state) {
    (void)state;
    char *data[3];
    size_t size[3];
    static const uint64_t seeds[3] = {5, 5, 6};
    for (int i = 0; i < 3; i++) {
        write_model(scratch_path("m.gguf"), "llama", "q4_K_M", seeds[i]);
        read_file(scratch_path("m.gguf"), &data[i], &size[i]);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(data[0], data[1], size[0]);
    assert_int_equal(size[0], size[2]);
    size_t same = 0;
    for (size_t i = 0; i < size[0]; i++) {
        same += data[0][i] == data[2][i];
    }
    assert_true(same < size[0] / 4);
    for (int i = 0; i < 3; i++) {
        kiln_free(data[i]);
    }
    scratch_empty();
}

static void refuse(const char *arch, const char *like, const char *quant, const char *text) {
    struct kiln_synth synth = {.arch = arch, .like = like, .quant = quant};
    struct kiln_err err = {0};
    assert_int_equal(
            kiln_synth_write(&synth, scratch_path("m.gguf"), NULL, &err), KILN_STATUS_USAGE);
    assert_string_equal(err.text, text);
    assert_int_equal(scratch_count(), 0);
}

static void synth_lists_what_is_known(void **state) {
    (void)state;
    refuse("gpt5", "7b", "q4_K_M",
            "unknown architecture 'gpt5'; known: llama, qwen2, qwen3, gemma3");
    refuse("qwen2", "70b", "q4_K_M", "unknown size '70b'; known: tiny, 0.5b, 1.5b, 7b");
    refuse("qwen2", "7b", "q2_K",
            "unknown mix of types 'q2_K'; known: q4_K_M, q5_K_M, q6_K, q4_0, q4_1, q5_0, q8_0, "
            "f16, "
            "bf16, f32");
}

static int always(void) {
    return 1;
}

static int64_t last_done, last_total;

static void see(void *arg, int64_t done, int64_t total) {
    assert_string_equal(arg, "arg");
    assert_true(done > last_done && done <= total);
    last_done = done;
    last_total = total;
}

static void synth_tells_progress_and_stops(void **state) {
    (void)state;
    char arg[] = "arg";
    struct kiln_synth synth = {.arch = "llama", .like = "tiny", .quant = "q4_0"};
    struct kiln_err err = {0};
    synth.progress = see;
    synth.progress_arg = arg;
    assert_int_equal(kiln_synth_write(&synth, scratch_path("m.gguf"), NULL, &err), KILN_STATUS_OK);
    assert_true(last_done == last_total && last_done > 2000000);
    scratch_empty();
    synth.stop = always;
    assert_int_equal(
            kiln_synth_write(&synth, scratch_path("m.gguf"), NULL, &err), KILN_STATUS_INTERRUPTED);
    assert_int_equal(scratch_count(), 0);
}

static void synth_leaves_nothing_on_a_full_disk(void **state) {
    (void)state;
    struct kiln_synth synth = {.arch = "qwen2", .like = "7b", .quant = "q4_K_M"};
    struct kiln_err err = {0};
    scratch_fill_disk(20 << 20);
    enum kiln_status status = kiln_synth_write(&synth, scratch_path("m.gguf"), NULL, &err);
    scratch_free_disk();
    assert_int_equal(status, KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, scratch_path("m.gguf")));
    assert_non_null(strstr(err.text, "File too large"));
    assert_int_equal(scratch_count(), 0);
}

static void synth_survives_each_failed_allocation(void **state) {
    (void)state;
    struct kiln_synth synth = {.arch = "qwen2", .like = "tiny", .quant = "q4_0"};
    uint64_t n = 0, asked;
    do {
        struct kiln_err err = {0};
        kiln_mem_fail_at(++n, 0);
        enum kiln_status status = kiln_synth_write(&synth, scratch_path("m.gguf"), NULL, &err);
        asked = kiln_mem_count();
        kiln_mem_fail_at(0, 0);
        // A failed list of what is known harms nothing when it is not shown.
        assert_true(status == KILN_STATUS_OK || status == KILN_STATUS_NOMEM);
        assert_int_equal(scratch_count(), status == KILN_STATUS_OK);
        scratch_empty();
    } while (asked >= n);
    assert_true(n > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(synth_blocks_have_mean_and_variance),
            cmocka_unit_test(synth_blocks_use_every_byte),
            cmocka_unit_test(synth_weights_have_variance_by_their_columns),
            cmocka_unit_test(synth_mixes_types_as_published_files_do),
            cmocka_unit_test(synth_models_open_as_models),
            cmocka_unit_test(synth_seed_decides_the_bytes),
            cmocka_unit_test(synth_lists_what_is_known),
            cmocka_unit_test(synth_tells_progress_and_stops),
            cmocka_unit_test(synth_leaves_nothing_on_a_full_disk),
            cmocka_unit_test(synth_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
