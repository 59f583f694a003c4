// pick: decode whose tokens the device picks itself, one step ahead of the host: the same ids as
// from the logits, and what ran ahead in vain has left nothing behind. The device is the CPU with
// the calls that it has no need of.
#include "open_model.h"

#include "base/mem.h"
#include "engine/generate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum {
    N_PROMPT = 9,
    N = 24,
    MAX_VOCAB = 1024
};
static const char *const models[] = {"tiny/llama-f32-gqa4x2.gguf", "tiny/gemma3-q8_0-window32.gguf",
        "tiny/qwen2-q4_k_m-hd128-untied.gguf", "tiny/llama-quant-q4_k_m.gguf"};
static const int32_t prompt[N_PROMPT] = {1, 38, 75, 112, 149, 186, 223, 4, 41};

static char seen[256]; // what the device was asked: q: a step queued, w: one waited for
static int poisoned;   // the argmax, counted from 1, that is to see NaN; 0: none
static int n_argmax, n_vocab;
static const struct kiln_dev_ops *plain;

static void note(char what) {
    size_t len = strlen(seen);
    if (len + 1 < sizeof(seen)) {
        seen[len] = what;
        seen[len + 1] = '\0';
    }
}

static enum kiln_status fence(struct kiln_dev *dev, void **mark, struct kiln_err *err) {
    note('q');
    return plain->mark(dev, mark, err);
}

static enum kiln_status wait_for(struct kiln_dev *dev, void *mark, struct kiln_err *err) {
    (void)mark;
    note('w');
    return plain->sync(dev, err);
}

static enum kiln_status launch(struct kiln_dev *dev, struct kiln_dev_kernel *ready,
        const struct kiln_launch *record, void *const *args, struct kiln_err *err) {
    if (strcmp(record->kernel, "argmax_generic") == 0 && ++n_argmax == poisoned) {
        float *logits = args[1];
        for (int i = 0; i < n_vocab; i++) {
            logits[i] = NAN;
        }
    }
    return plain->launch(dev, ready, record, args, err);
}

// A model with two engines: one that leaves picking to the host, and one that does not.
struct pair {
    struct opened_model model;
    struct kiln_dev_ops ops;
    struct kiln_session picks;
};

static void must(enum kiln_status status, const struct kiln_err *err) {
    if (status != KILN_STATUS_OK) {
        fail_msg("%s: %s", kiln_status_name(status), err->text);
    }
}

static void open_pair(struct pair *pair, const char *name, const char *const *sets) {
    struct kiln_err err = {0};
    open_model(&pair->model, golden_path(name), sets);
    pair->picks = pair->model.session;
    plain = pair->picks.dev->ops;
    pair->ops = *plain;
    pair->ops.fence = fence;
    pair->ops.wait = wait_for;
    pair->ops.launch = launch;
    pair->picks.dev->ops = &pair->ops;
    struct kiln_engine_params params = {.model = pair->picks.model,
            .registry = pair->model.registry,
            .config = pair->model.config,
            .dev = pair->picks.dev};
    must(kiln_engine_create(&pair->picks.engine, &params, &err), &err);
    assert_true(kiln_engine_picks(pair->picks.engine));
    assert_false(kiln_engine_picks(pair->model.session.engine));
    n_vocab = pair->picks.model->params.n_vocab;
    assert_true(n_vocab <= MAX_VOCAB);
    seen[0] = '\0';
    poisoned = n_argmax = 0;
}

static void close_pair(struct pair *pair) {
    kiln_engine_destroy(pair->picks.engine);
    pair->picks.dev->ops = plain;
    close_model(&pair->model);
}

static enum kiln_status generate(struct kiln_session *session,
        const struct kiln_sampler_params *params, const struct kiln_generate_params *how,
        struct kiln_generated *out, struct kiln_err *err) {
    struct kiln_sampler *sampler;
    must(kiln_sampler_create(&sampler, params, err), err);
    enum kiln_status status = kiln_generate(session, sampler, prompt, N_PROMPT, how, out, err);
    kiln_sampler_destroy(sampler);
    return status;
}

static void expect_same(struct pair *pair, const struct kiln_sampler_params *params) {
    struct kiln_generate_params how = {.n = N, .ignore_end = 1};
    struct kiln_generated want, got;
    struct kiln_err err = {0};
    must(generate(&pair->model.session, params, &how, &want, &err), &err);
    must(generate(&pair->picks, params, &how, &got, &err), &err);
    assert_int_equal(want.ids.len, N);
    assert_int_equal(got.ids.len, N);
    assert_memory_equal(want.ids.ids, got.ids.ids, N * sizeof(*got.ids.ids));
    assert_int_equal(got.decode_steps, N - 1);
    assert_int_equal(kiln_engine_n_past(pair->picks.engine), N_PROMPT + N - 1);
    kiln_ids_finish(&want.ids);
    kiln_ids_finish(&got.ids);
}

static struct kiln_sampler_params greedy(void) {
    struct kiln_sampler_params params = kiln_sampler_defaults();
    params.greedy = 1;
    return params;
}

static void pick_gives_the_ids_of_the_logits(void **state) {
    (void)state;
    for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
        struct pair pair;
        char want[2 * N + 1];
        size_t len = 0;
        want[len++] = 'q';
        open_pair(&pair, models[m], NULL);
        struct kiln_sampler_params params = greedy();
        expect_same(&pair, &params);
        for (int i = 1; i < N - 1; i++) { // each is queued before the one in front is waited for
            want[len++] = 'q';
            want[len++] = 'w';
        }
        want[len++] = 'w'; // the last one: nothing ran ahead in vain
        want[len] = '\0';
        assert_string_equal(seen, want);
        close_pair(&pair);
    }
}

// What draws or penalizes needs the logits.
static void pick_is_for_plain_greedy_alone(void **state) {
    (void)state;
    struct pair pair;
    open_pair(&pair, models[0], NULL);
    struct kiln_sampler_params drawn = kiln_sampler_defaults();
    expect_same(&pair, &drawn);
    struct kiln_sampler_params penalized = greedy();
    penalized.repeat_penalty = 1.5f;
    kiln_engine_truncate(pair.model.session.engine, 0);
    kiln_engine_truncate(pair.picks.engine, 0);
    expect_same(&pair, &penalized);
    assert_string_equal(seen, "");
    struct kiln_sampler_params cold = kiln_sampler_defaults();
    cold.temp = 0;
    kiln_engine_truncate(pair.model.session.engine, 0);
    kiln_engine_truncate(pair.picks.engine, 0);
    expect_same(&pair, &cold);
    assert_string_not_equal(seen, "");
    close_pair(&pair);
}

// Runs ahead, then goes on with `id`: the logits behind it are those of an engine that did not.
static void drop_and_go_on(struct pair *pair, int truncate, int32_t id) {
    static float want[MAX_VOCAB], got[MAX_VOCAB];
    struct kiln_engine *host = pair->model.session.engine, *device = pair->picks.engine;
    struct kiln_err err = {0};
    int32_t pick;
    kiln_engine_truncate(host, 0);
    kiln_engine_truncate(device, 0);
    must(kiln_engine_eval(host, prompt, N_PROMPT, want, &err), &err);
    must(kiln_engine_eval(device, prompt, N_PROMPT, got, &err), &err);
    must(kiln_engine_pick(device, 5, 1, &pick, &err), &err); // and the step behind it
    assert_int_not_equal(pick, id);
    if (truncate) {
        kiln_engine_truncate(device, N_PROMPT);
    } else {
        int32_t five = 5;
        must(kiln_engine_eval(host, &five, 1, want, &err), &err);
    }
    assert_int_equal(kiln_engine_n_past(device), kiln_engine_n_past(host));
    int32_t best = 0, other;
    must(kiln_engine_eval(host, &id, 1, want, &err), &err);
    for (int32_t i = 1; i < n_vocab; i++) {
        best = want[i] > want[best] ? i : best;
    }
    must(kiln_engine_pick(device, id, 0, &other, &err), &err); // not what ran ahead
    assert_int_equal(other, best);
    kiln_engine_truncate(device, kiln_engine_n_past(device) - 1);
    must(kiln_engine_eval(device, &id, 1, got, &err), &err);
    assert_memory_equal(want, got, (size_t)n_vocab * sizeof(float));
    assert_int_equal(kiln_engine_n_past(device), kiln_engine_n_past(host));
}

static void pick_leaves_nothing_of_what_ran_in_vain(void **state) {
    (void)state;
    for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
        struct pair pair;
        open_pair(&pair, models[m], NULL);
        drop_and_go_on(&pair, 0, 17);
        drop_and_go_on(&pair, 1, 17);
        assert_string_equal(seen, "qqwqwqqwqw");
        close_pair(&pair);
    }
}

static enum kiln_status stop_behind_three(void *arg, int32_t id, struct kiln_err *err) {
    int *left = arg;
    (void)id;
    return --*left > 0 ? KILN_STATUS_OK : kiln_err_set(err, KILN_STATUS_INTERRUPTED, "enough");
}

// Stopped while a step runs ahead: the context holds what was fed, and the next run is as if fresh.
static void pick_can_be_stopped(void **state) {
    (void)state;
    struct pair pair;
    int left = 3;
    struct kiln_generate_params how = {.n = N, .token = stop_behind_three, .arg = &left};
    struct kiln_generated out;
    struct kiln_err err = {0};
    open_pair(&pair, models[1], NULL);
    struct kiln_sampler_params params = greedy();
    assert_int_equal(generate(&pair.picks, &params, &how, &out, &err), KILN_STATUS_INTERRUPTED);
    assert_int_equal(out.ids.len, 3);
    assert_int_equal(kiln_engine_n_past(pair.picks.engine), N_PROMPT + 2);
    assert_string_equal(seen, "qqwqw");
    kiln_ids_finish(&out.ids);
    kiln_engine_truncate(pair.picks.engine, 0);
    expect_same(&pair, &params);
    close_pair(&pair);
}

// The step ahead stays inside of the context, too.
static void pick_ends_with_the_context(void **state) {
    (void)state;
    static const char *const sets[] = {"engine.ctx=16", NULL};
    struct pair pair;
    struct kiln_generate_params how = {.n = N, .ignore_end = 1};
    struct kiln_generated out;
    struct kiln_err err = {0};
    open_pair(&pair, models[0], sets);
    struct kiln_sampler_params params = greedy();
    must(generate(&pair.picks, &params, &how, &out, &err), &err);
    assert_int_equal(out.end, KILN_END_CONTEXT);
    assert_int_equal(kiln_engine_n_past(pair.picks.engine), 16);
    assert_string_equal(seen, "qqwqwqwqwqwqww"); // seven steps
    int32_t pick;
    assert_int_equal(kiln_engine_pick(pair.picks.engine, 1, 1, &pick, &err), KILN_STATUS_USAGE);
    kiln_ids_finish(&out.ids);
    close_pair(&pair);
}

// No finite logit: the sampler is asked, which says so; here it finds the logits whole.
static void pick_of_nan_asks_the_sampler(void **state) {
    (void)state;
    struct pair pair;
    open_pair(&pair, models[0], NULL);
    struct kiln_sampler_params params = greedy();
    poisoned = 4;
    expect_same(&pair, &params);
    assert_true(n_argmax > N - 1); // one ran ahead of the fourth in vain
    int32_t pick = 0;
    struct kiln_err err = {0};
    n_argmax = 0;
    poisoned = 1;
    must(kiln_engine_pick(pair.picks.engine, 1, 0, &pick, &err), &err);
    assert_int_equal(pick, -1);
    close_pair(&pair);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(pick_gives_the_ids_of_the_logits),
            cmocka_unit_test(pick_is_for_plain_greedy_alone),
            cmocka_unit_test(pick_leaves_nothing_of_what_ran_in_vain),
            cmocka_unit_test(pick_can_be_stopped),
            cmocka_unit_test(pick_ends_with_the_context),
            cmocka_unit_test(pick_of_nan_asks_the_sampler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
