// exact: greedy ids of the real models equal those of an independent implementation in exact
// arithmetic.
#include "open_model.h"

#include "engine/generate.h"

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
    STEPS = 32
};
// A reference step whose two largest logits are nearer than this may come out either way; what
// follows it then belongs to another text.
static const double knife_edge = 0.002;

struct model_case {
    const char *variable;
    const char *reference;
};
static struct model_case smollm2 = {"KILN_MODEL_SMOLLM2", "exact/exact_smollm2.jsonl"};
static struct model_case gemma3 = {"KILN_MODEL_GEMMA3", "exact/exact_gemma3.jsonl"};

static void check_prompt(struct opened_model *model, const json_t *line) {
    const char *prompt = json_string_value(json_object_get(line, "prompt"));
    const json_t *want = json_object_get(line, "greedy_ids");
    const json_t *gaps = json_object_get(line, "top2_gap");
    const json_t *want_prompt = json_object_get(line, "prompt_ids");
    struct kiln_err err = {0};
    struct kiln_ids ids = {0};
    assert_int_equal(kiln_tokenizer_encode(model->session.model->tokenizer, prompt, strlen(prompt),
                             KILN_TOKENIZE_BOS, &ids, &err),
            KILN_STATUS_OK);
    assert_int_equal(ids.len, json_array_size(want_prompt));
    for (size_t i = 0; i < ids.len; i++) {
        assert_int_equal(ids.ids[i], json_integer_value(json_array_get(want_prompt, i)));
    }
    struct kiln_sampler_params greedy = kiln_sampler_defaults();
    greedy.greedy = 1;
    struct kiln_sampler *sampler;
    assert_int_equal(kiln_sampler_create(&sampler, &greedy, &err), KILN_STATUS_OK);
    struct kiln_generate_params params = {.n = STEPS, .ignore_end = 1};
    struct kiln_generated out;
    kiln_engine_truncate(model->session.engine, 0);
    assert_int_equal(
            kiln_generate(&model->session, sampler, ids.ids, (int64_t)ids.len, &params, &out, &err),
            KILN_STATUS_OK);
    assert_int_equal(out.ids.len, STEPS);
    for (size_t i = 0; i < STEPS; i++) {
        if (out.ids.ids[i] != json_integer_value(json_array_get(want, i))) {
            double gap = json_real_value(json_array_get(gaps, i));
            print_message("'%s': step %zu differs at a gap of %g\n", prompt, i, gap);
            assert_true(gap < knife_edge);
            break;
        }
    }
    kiln_ids_finish(&out.ids);
    kiln_ids_finish(&ids);
    kiln_sampler_destroy(sampler);
}

static void exact_greedy_ids(void **state) {
    const struct model_case *c = *state;
    const char *path = getenv(c->variable);
    if (!path) {
        skip();
    }
    struct opened_model model;
    open_model(&model, path, NULL);
    size_t lines = 0;
    for (json_t *line; (line = load_json_line(golden_path(c->reference), lines)) != NULL; lines++) {
        check_prompt(&model, line);
        json_decref(line);
    }
    assert_int_equal(lines, 4);
    close_model(&model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(exact_greedy_ids, &smollm2),
            cmocka_unit_test_prestate(exact_greedy_ids, &gemma3),
    };
    if (!getenv(smollm2.variable) && !getenv(gemma3.variable)) {
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
