// tiny: every tiny model in tests/golden/tiny reproduces its reference logits and greedy ids on the
// CPU, however the prompt is cut into chunks and however many threads there are.
#include "open_model.h"

#include "base/mem.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <jansson.h>
#include <cmocka.h>

enum {
    MAX_MODELS = 64,
    MAX_IDS = 1024
};
static char names[MAX_MODELS][256]; // stems, found by glob: a new pair registers nothing
static size_t n_names;

static void find_models(void) {
    DIR *dir = opendir(golden_path("tiny"));
    assert_non_null(dir);
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot && strcmp(dot, ".gguf") == 0 && n_names < MAX_MODELS) {
            snprintf(names[n_names++], sizeof(names[0]), "%.*s", (int)(dot - entry->d_name),
                    entry->d_name);
        }
    }
    closedir(dir);
    assert_true(n_names >= 20);
}

static size_t read_ids(const json_t *array, int32_t *ids) {
    size_t n = json_array_size(array);
    assert_true(n > 0 && n <= MAX_IDS);
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    }
    return n;
}

static void open_tiny(struct opened_model *model, const char *name, const char *const *sets) {
    char file[256];
    snprintf(file, sizeof(file), "tiny/%s.gguf", name);
    open_model(model, golden_path(file), sets);
}

static json_t *load_reference(const char *name) {
    char file[256];
    snprintf(file, sizeof(file), "tiny/%s.json", name);
    return load_json(golden_path(file));
}

// Largest difference to the reference, as a share of its largest logit.
static double compare_logits(const json_t *reference, const float *logits) {
    const json_t *want = json_object_get(reference, "logits_last");
    double largest = 0, worst = 0;
    for (size_t i = 0; i < json_array_size(want); i++) {
        double value = json_number_value(json_array_get(want, i));
        double difference = fabs((double)logits[i] - value);
        assert_true(isfinite((double)logits[i]));
        largest = fabs(value) > largest ? fabs(value) : largest;
        worst = difference > worst ? difference : worst;
    }
    return worst / largest;
}

static int32_t argmax(const float *logits, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static void check_model(const char *name) {
    json_t *reference = load_reference(name);
    struct opened_model model;
    open_tiny(&model, name, NULL);
    struct kiln_engine *engine = model.session.engine;
    int32_t n_vocab = model.session.model->params.n_vocab;
    float *logits = kiln_calloc((size_t)n_vocab, sizeof(*logits));
    int32_t ids[MAX_IDS], want[MAX_IDS];
    struct kiln_err err = {0};
    size_t n = read_ids(json_object_get(reference, "prompt_ids"), ids);
    size_t n_want = read_ids(json_object_get(reference, "greedy_ids"), want);
    assert_int_equal(json_array_size(json_object_get(reference, "logits_last")), n_vocab);
    assert_int_equal(kiln_engine_eval(engine, ids, (int64_t)n, logits, &err), KILN_STATUS_OK);
    double worst = compare_logits(reference, logits);
    print_message("%s: %.1e of the largest logit\n", name, worst);
    assert_true(worst < 1e-3);
    for (size_t i = 0; i < n_want; i++) {
        int32_t id = argmax(logits, n_vocab);
        assert_int_equal(id, want[i]);
        assert_int_equal(kiln_engine_eval(engine, &id, 1, logits, &err), KILN_STATUS_OK);
    }
    kiln_free(logits);
    close_model(&model);
    json_decref(reference);
}

static void tiny_reference_logits_and_ids(void **state) {
    (void)state;
    for (size_t i = 0; i < n_names; i++) {
        check_model(names[i]);
    }
}

// The last logits after the prompt, evaluated in calls of `step` tokens.
static void logits_of(const char *name, const char *const *sets, int64_t step, float *logits) {
    json_t *reference = load_reference(name);
    struct opened_model model;
    open_tiny(&model, name, sets);
    int32_t ids[MAX_IDS];
    struct kiln_err err = {0};
    int64_t n = (int64_t)read_ids(json_object_get(reference, "prompt_ids"), ids);
    for (int64_t at = 0; at < n; at += step) {
        int64_t rows = n - at < step ? n - at : step;
        assert_int_equal(kiln_engine_eval(model.session.engine, ids + at, rows, logits, &err),
                KILN_STATUS_OK);
    }
    close_model(&model);
    json_decref(reference);
}

static void tiny_chunks_change_nothing(void **state) {
    (void)state;
    static float whole[MAX_IDS], cut[MAX_IDS];
    static const char *const models[] = {"gemma3-q8_0-window32", "llama-f16-rope-linear"};
    static const int64_t steps[] = {1, 7, 33, 64, 129};
    for (size_t m = 0; m < 2; m++) {
        logits_of(models[m], NULL, MAX_IDS, whole);
        for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
            logits_of(models[m], NULL, steps[i], cut);
            for (size_t j = 0; j < 256; j++) { // decode sums in another order than prefill
                assert_true(fabs((double)whole[j] - (double)cut[j]) < 1e-3);
            }
        }
    }
}

static void tiny_threads_and_ubatch_change_no_bit(void **state) {
    (void)state;
    static float one[MAX_IDS], other[MAX_IDS];
    static const char *const models[] = {"gemma3-q8_0-window32", "llama-quant-q4_k_m"};
    static const char *const base[] = {"engine.threads=1", NULL};
    static const char *const threads[] = {"engine.threads=5", NULL};
    for (size_t m = 0; m < 2; m++) {
        memset(one, 0, sizeof(one));
        memset(other, 0, sizeof(other));
        logits_of(models[m], base, MAX_IDS, one);
        logits_of(models[m], threads, MAX_IDS, other);
        assert_memory_equal(one, other, sizeof(one));
    }
}

static void tiny_bad_ids_are_refused(void **state) {
    (void)state;
    struct opened_model model;
    static const char *const sets[] = {"engine.ctx=16", NULL};
    open_tiny(&model, "llama-quant-q8_0", sets);
    struct kiln_err err = {0};
    int32_t ids[17] = {0};
    static float logits[MAX_IDS];
    assert_int_equal(
            kiln_engine_eval(model.session.engine, ids, 17, logits, &err), KILN_STATUS_USAGE);
    assert_non_null(strstr(err.text, "17 tokens do not fit"));
    assert_int_equal(kiln_engine_n_past(model.session.engine), 0);
    ids[3] = 256;
    assert_int_equal(
            kiln_engine_eval(model.session.engine, ids, 4, logits, &err), KILN_STATUS_USAGE);
    assert_non_null(strstr(err.text, "token id 256 at place 3"));
    ids[3] = -1;
    assert_int_equal(
            kiln_engine_eval(model.session.engine, ids, 4, logits, &err), KILN_STATUS_USAGE);
    ids[3] = 0;
    assert_int_equal(kiln_engine_eval(model.session.engine, ids, 16, logits, &err), KILN_STATUS_OK);
    close_model(&model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(tiny_reference_logits_and_ids),
            cmocka_unit_test(tiny_chunks_change_nothing),
            cmocka_unit_test(tiny_threads_and_ubatch_change_no_bit),
            cmocka_unit_test(tiny_bad_ids_are_refused),
    };
    find_models();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
