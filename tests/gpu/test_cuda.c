// cuda: whole models on a GPU: tiny ones against their reference logits, the real ones against the
// greedy ids of exact arithmetic, and the same run twice bit for bit. Skipped (77) where there is
// no CUDA device.
#include "open_model.h"

#include "base/mem.h"
#include "engine/generate.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include <cmocka.h>

enum {
    SKIPPED = 77,
    MAX_IDS = 1024,
    MAX_VOCAB = 1024,
    STEPS = 32
};
// f16 operands move logits; a step whose two largest are nearer than this may come out either way.
static const double knife_edge = 0.05;
// What llama.cpp's f16 and quantized-activation paths differ by on these models is up to 0.05 of
// the largest logit (tests/golden/tiny/README.md); f16 operands alone stay well below.
static const double logits_bound = 0.02;

static size_t read_ids(const json_t *array, int32_t *ids) {
    size_t n = json_array_size(array);
    for (size_t i = 0; i < n && i < MAX_IDS; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    }
    return n;
}

static void eval_tiny(const char *name, const char *const *sets, const json_t *reference,
        float *logits, float *decoded) {
    char file[300];
    snprintf(file, sizeof(file), "tiny/%s.gguf", name);
    struct opened_model model;
    open_model_on(&model, "cuda", golden_path(file), sets);
    int32_t ids[MAX_IDS], next[MAX_IDS];
    struct kiln_err err = {0};
    size_t n = read_ids(json_object_get(reference, "prompt_ids"), ids);
    read_ids(json_object_get(reference, "greedy_ids"), next);
    struct kiln_engine *engine = model.session.engine;
    if (kiln_engine_eval(engine, ids, (int64_t)n, logits, &err) != KILN_STATUS_OK ||
            kiln_engine_eval(engine, next, 1, decoded, &err) != KILN_STATUS_OK) {
        fail_msg("%s: %s", name, err.text);
    }
    close_model(&model);
}

static int check_tiny(const char *name) {
    char file[300];
    snprintf(file, sizeof(file), "tiny/%s.json", name);
    json_t *reference = load_json(golden_path(file));
    const json_t *want = json_object_get(reference, "logits_last");
    static float logits[MAX_VOCAB], decoded[MAX_VOCAB], again[MAX_VOCAB], again_decoded[MAX_VOCAB];
    memset(again, 0, sizeof(again));
    memset(logits, 0, sizeof(logits));
    eval_tiny(name, NULL, reference, logits, decoded);
    eval_tiny(name, NULL, reference, again, again_decoded);
    double largest = 0, worst = 0;
    for (size_t i = 0; i < json_array_size(want); i++) {
        double value = json_number_value(json_array_get(want, i));
        double d = fabs((double)logits[i] - value);
        largest = fabs(value) > largest ? fabs(value) : largest;
        worst = !(d <= worst) ? d : worst; // a NaN stays
    }
    int same = memcmp(logits, again, json_array_size(want) * sizeof(float)) == 0 &&
               memcmp(decoded, again_decoded, json_array_size(want) * sizeof(float)) == 0;
    int good = worst / largest < logits_bound && same;
    print_message("%-32s %.1e of the largest logit%s%s\n", name, worst / largest,
            same ? "" : ", NOT the same twice", good ? "" : "  <-- bad");
    json_decref(reference);
    return good;
}

static void cuda_tiny_models(void **state) {
    (void)state;
    DIR *dir = opendir(golden_path("tiny"));
    assert_non_null(dir);
    int bad = 0;
    size_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot && strcmp(dot, ".gguf") == 0) {
            char name[256];
            snprintf(name, sizeof(name), "%.*s", (int)(dot - entry->d_name), entry->d_name);
            bad += !check_tiny(name);
            count++;
        }
    }
    closedir(dir);
    assert_true(count >= 20);
    assert_int_equal(bad, 0);
}

struct model_case {
    const char *variable;
    const char *reference;
};
static struct model_case smollm2 = {"KILN_MODEL_SMOLLM2", "exact/exact_smollm2.jsonl"};
static struct model_case gemma3 = {"KILN_MODEL_GEMMA3", "exact/exact_gemma3.jsonl"};

static void check_prompt(struct opened_model *model, const json_t *line) {
    const json_t *want = json_object_get(line, "greedy_ids");
    const json_t *gaps = json_object_get(line, "top2_gap");
    int32_t prompt[MAX_IDS];
    size_t n = read_ids(json_object_get(line, "prompt_ids"), prompt);
    struct kiln_err err = {0};
    struct kiln_sampler_params greedy = kiln_sampler_defaults();
    greedy.greedy = 1;
    struct kiln_sampler *sampler;
    assert_int_equal(kiln_sampler_create(&sampler, &greedy, &err), KILN_STATUS_OK);
    struct kiln_generate_params params = {.n = STEPS, .ignore_end = 1};
    struct kiln_generated out;
    kiln_engine_truncate(model->session.engine, 0);
    if (kiln_generate(&model->session, sampler, prompt, (int64_t)n, &params, &out, &err) !=
            KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    size_t i = 0;
    while (i < STEPS && out.ids.ids[i] == json_integer_value(json_array_get(want, i))) {
        i++;
    }
    if (i < STEPS) {
        double gap = json_real_value(json_array_get(gaps, i));
        print_message("step %zu differs at a gap of %g\n", i, gap);
        assert_true(gap < knife_edge);
    }
    kiln_ids_finish(&out.ids);
    kiln_sampler_destroy(sampler);
}

static void cuda_greedy_ids(void **state) {
    const struct model_case *c = *state;
    if (!getenv(c->variable)) {
        skip();
    }
    struct opened_model model;
    open_model_on(&model, "cuda", getenv(c->variable), NULL);
    json_t *line;
    for (size_t i = 0; (line = load_json_line(golden_path(c->reference), i)) != NULL; i++) {
        check_prompt(&model, line);
        json_decref(line);
    }
    close_model(&model);
}

int main(void) {
    struct kiln_err err = {0};
    int32_t count = 0;
    if (kiln_cuda_count(&count, &err) != KILN_STATUS_OK || count == 0) {
        printf("skipped: %s\n", err.text);
        return SKIPPED;
    }
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(cuda_tiny_models),
            cmocka_unit_test_prestate(cuda_greedy_ids, &smollm2),
            cmocka_unit_test_prestate(cuda_greedy_ids, &gemma3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
