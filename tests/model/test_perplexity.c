// perplexity: of a text that every Debian has, against the reference values of both real models.
// The whole text takes minutes on two cores and is read only when KILN_TEST_LONG is set.
#include "open_model.h"

#include "base/file.h"
#include "base/mem.h"
#include "engine/perplexity.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <jansson.h>
#include <cmocka.h>

enum {
    SKIPPED = 77
};
static const char text_path[] = "/usr/share/common-licenses/GPL-3";

struct perplexity_case {
    const char *variable;
    int64_t ctx, chunks, want_chunks;
    double want; // made by an independent implementation in exact arithmetic
};
static struct perplexity_case cases[] = {
        {"KILN_MODEL_SMOLLM2", 512, 0, 14, 18.3001},
        {"KILN_MODEL_SMOLLM2", 512, 1, 1, 16.2659},
        {"KILN_MODEL_SMOLLM2", 2048, 1, 1, 20.2026},
        {"KILN_MODEL_GEMMA3", 512, 0, 14, 13.8291},
        {"KILN_MODEL_GEMMA3", 512, 1, 1, 12.8688},
        {"KILN_MODEL_GEMMA3", 2048, 1, 1, 17.4701},
};

static void perplexity_reference_value(void **state) {
    const struct perplexity_case *c = *state;
    const char *path = getenv(c->variable);
    struct kiln_err err = {0};
    char *text;
    size_t size;
    if (!path || (c->chunks == 0 && !getenv("KILN_TEST_LONG"))) {
        skip();
    }
    assert_int_equal(kiln_file_read(text_path, 1u << 20, &text, &size, &err), KILN_STATUS_OK);
    char ctx[64];
    snprintf(ctx, sizeof(ctx), "engine.ctx=%d", (int)c->ctx);
    const char *const sets[] = {ctx, NULL};
    struct opened_model model;
    open_model(&model, path, sets);
    struct kiln_ids ids = {0};
    assert_int_equal(kiln_tokenizer_encode(model.session.model->tokenizer, text, size,
                             KILN_TOKENIZE_BOS, &ids, &err),
            KILN_STATUS_OK);
    struct kiln_perplexity result;
    assert_int_equal(kiln_perplexity(&model.session, ids.ids, (int64_t)ids.len, c->ctx, c->chunks,
                             NULL, NULL, &result, &err),
            KILN_STATUS_OK);
    print_message("%s -c %d: %.4f, reference %.4f (%+.4f %%)\n", c->variable, (int)c->ctx,
            result.ppl, c->want, (result.ppl / c->want - 1) * 100);
    assert_int_equal(result.chunks, c->want_chunks);
    assert_int_equal(result.scored, c->want_chunks * (c->ctx / 2 - 1));
    assert_true(fabs(result.ppl / c->want - 1) < 0.0005);
    kiln_ids_finish(&ids);
    close_model(&model);
    kiln_free(text);
}

int main(void) {
    struct CMUnitTest tests[sizeof(cases) / sizeof(cases[0])];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tests[i] =
                (struct CMUnitTest)cmocka_unit_test_prestate(perplexity_reference_value, &cases[i]);
    }
    if ((!getenv("KILN_MODEL_SMOLLM2") && !getenv("KILN_MODEL_GEMMA3")) ||
            !kiln_file_exists(text_path)) {
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
