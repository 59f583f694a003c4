// What a sweep is made of: the space and its numbers, the ways through it, the store, the final's
// judgement. The sweep itself is tests/cli/test_tune.py's.
#include "base/mem.h"
#include "lab/tune.h"
#include "lab/tune_model.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

// Six and six and eight candidates, of the plugin that the commands are tried with.
static const char *build;

struct lab {
    struct kiln_registry *registry;
    struct kiln_tune_space space;
};

static const struct kiln_device device = {
        .struct_size = sizeof(device), .kind = KILN_DEVICE_HOST, .name = "cpu", .target = "cpu"};

static void open_lab(struct lab *lab, const char *text) {
    char path[512];
    struct kiln_err err = {0};
    *lab = (struct lab){.registry = NULL};
    snprintf(path, sizeof(path), "%s/tests/plugins_tune/tunelab.so", build);
    assert_int_equal(kiln_registry_create(&lab->registry, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_registry_add_file(lab->registry, path, &err), KILN_STATUS_OK);
    const struct kiln_tune_space_params params = {.registry = lab->registry,
            .device = &device,
            .slot = "activation",
            .texts = &text,
            .n_texts = 1};
    assert_int_equal(kiln_tune_space_make(&lab->space, &params, &err), KILN_STATUS_OK);
}

static void close_lab(struct lab *lab) {
    kiln_tune_space_finish(&lab->space);
    kiln_registry_destroy(lab->registry);
}

static void space_numbers_its_candidates(void **state) {
    struct lab lab;
    (void)state;
    open_lab(&lab, "");
    assert_int_equal(lab.space.n_parts, 3);
    assert_int_equal(lab.space.count, 6 + 6 + 8);
    assert_true(lab.space.base == KILN_TUNE_NONE);
    for (uint64_t i = 0; i < lab.space.count; i++) {
        int64_t values[KILN_TUNE_PARAMS];
        const struct kiln_tune_part *part = kiln_tune_space_at(&lab.space, i, values);
        assert_true(kiln_tune_space_find(&lab.space, part->variant, values) == i);
    }
    uint64_t near[64];
    size_t n = kiln_tune_space_near(&lab.space, 2, 0, near, 64);
    assert_int_equal(n, 2);
    assert_int_equal(near[0] + near[1], 1 + 3);
    assert_int_equal(kiln_tune_space_near(&lab.space, 2, 1, near, 64), 5 + 2);
    close_lab(&lab);
    open_lab(&lab, "variant=tiles *=default");
    assert_int_equal(lab.space.count, 1);
    close_lab(&lab);
}

// Every way proposes each candidate once and ends.
static void strategies_propose_each_once(void **state) {
    struct lab lab;
    (void)state;
    open_lab(&lab, "");
    for (int kind = 0; kind < KILN_TUNE_STRATEGIES; kind++) {
        const struct kiln_tune_strategy_params params = {
                .space = &lab.space, .kind = (enum kiln_tune_strategy_kind)kind, .seed = 7};
        struct kiln_tune_strategy *strategy;
        struct kiln_err err = {0};
        int seen[20] = {0};
        size_t n = 1, all = 0;
        assert_int_equal(kiln_tune_strategy_create(&strategy, &params, &err), KILN_STATUS_OK);
        while (n > 0) {
            uint64_t proposed[4];
            assert_int_equal(
                    kiln_tune_strategy_propose(strategy, proposed, 4, &n, &err), KILN_STATUS_OK);
            for (size_t i = 0; i < n; i++, all++) {
                assert_int_equal(seen[proposed[i]]++, 0);
                double seconds = proposed[i] % 5 ? 1.0 / (double)(1 + proposed[i]) : 0;
                assert_int_equal(kiln_tune_strategy_note(strategy, proposed[i], seconds, &err),
                        KILN_STATUS_OK);
            }
        }
        assert_int_equal(all, 20);
        kiln_tune_strategy_destroy(strategy);
    }
    close_lab(&lab);
}

// Times that fall along an axis: what is not measured is ranked along it.
static void model_follows_the_times(void **state) {
    struct lab lab;
    struct kiln_err err = {0};
    (void)state;
    open_lab(&lab, "variant=tiles");
    const struct kiln_tune_noted noted[] = {{0, 1.0}, {1, 2.0}, {4, 16.0}};
    uint64_t left[] = {5, 3, 2};
    assert_int_equal(kiln_tune_model_rank(&lab.space, noted, 3, left, 3, &err), KILN_STATUS_OK);
    assert_int_equal(left[0], 2);
    assert_int_equal(left[2], 5);
    close_lab(&lab);
}

static const struct kiln_tune_context here = {
        .device = "d", .driver = "1", .problem = "p", .kiln = "0"};
static const struct kiln_tune_key key = {
        .plugin = "a", .variant = "v", .geometry = "X=1", .sources = "0f"};

static void store_keeps_apart_what_differs(void **state) {
    struct kiln_tune_store *store;
    struct kiln_err err = {0};
    struct kiln_tune_result result = {.state = KILN_TUNE_OK,
            .warm = {.n = 3, .seconds = {3e-6, 1e-6, 2e-6}},
            .at = (int64_t)time(NULL)};
    struct kiln_tune_result found;
    enum kiln_tune_claim claim;
    int64_t id[2];
    (void)state;
    assert_int_equal(kiln_tune_store_open(&store, scratch_path("t.db"), &err), KILN_STATUS_OK);
    struct kiln_tune_context other = here;
    other.driver = "2";
    assert_int_equal(kiln_tune_store_context(store, &here, &id[0], &err), KILN_STATUS_OK);
    assert_int_equal(kiln_tune_store_context(store, &other, &id[1], &err), KILN_STATUS_OK);
    assert_true(id[0] != id[1]);
    assert_int_equal(
            kiln_tune_store_claim(store, id[0], &key, &claim, &found, &err), KILN_STATUS_OK);
    assert_int_equal(claim, KILN_TUNE_CLAIMED);
    assert_int_equal(kiln_tune_store_put(store, id[0], &key, &result, &err), KILN_STATUS_OK);
    kiln_tune_store_close(store);
    assert_int_equal(kiln_tune_store_open(&store, scratch_path("t.db"), &err), KILN_STATUS_OK);
    assert_int_equal(
            kiln_tune_store_claim(store, id[0], &key, &claim, &found, &err), KILN_STATUS_OK);
    assert_int_equal(claim, KILN_TUNE_KNOWN);
    assert_true(found.warm.n == 3 && found.warm.median == 2e-6 && found.warm.seconds[0] == 3e-6);
    struct kiln_tune_key edited = key;
    edited.sources = "10";
    assert_int_equal(
            kiln_tune_store_claim(store, id[0], &edited, &claim, &found, &err), KILN_STATUS_OK);
    assert_int_equal(claim, KILN_TUNE_CLAIMED);
    assert_int_equal(
            kiln_tune_store_claim(store, id[1], &key, &claim, &found, &err), KILN_STATUS_OK);
    assert_int_equal(claim, KILN_TUNE_CLAIMED);
    const struct kiln_tune_context contexts[] = {
            {.device = "e", .driver = "1", .problem = "p", .kiln = "0"},
            {.device = "d", .driver = "1", .problem = "q", .kiln = "0"},
            {.device = "d", .driver = "1", .problem = "p", .kiln = "1"}};
    for (size_t i = 0; i < sizeof(contexts) / sizeof(contexts[0]); i++) {
        assert_int_equal(
                kiln_tune_store_context(store, &contexts[i], &id[1], &err), KILN_STATUS_OK);
        assert_int_equal(
                kiln_tune_store_claim(store, id[1], &key, &claim, &found, &err), KILN_STATUS_OK);
        assert_int_equal(claim, KILN_TUNE_CLAIMED);
    }
    const struct kiln_tune_key keys[] = {
            {.plugin = "b", .variant = "v", .geometry = "X=1", .sources = "0f"},
            {.plugin = "a", .variant = "w", .geometry = "X=1", .sources = "0f"},
            {.plugin = "a", .variant = "v", .geometry = "X=2", .sources = "0f"}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        assert_int_equal(kiln_tune_store_claim(store, id[0], &keys[i], &claim, &found, &err),
                KILN_STATUS_OK);
        assert_int_equal(claim, KILN_TUNE_CLAIMED);
    }
    kiln_tune_store_close(store);
}

static struct kiln_tune_entry entries[3];

// Rounds of a base, of two finalists and of the base again; factors: of their times.
static void play(struct kiln_tune_problem *problem, const double factors[3], double noise) {
    enum {
        ROUNDS = 12
    };
    double seconds[ROUNDS * 4];
    struct kiln_err err = {0};
    *problem = (struct kiln_tune_problem){.n_finalists = 3};
    for (size_t i = 0; i < 3; i++) {
        entries[i].candidate = i;
        problem->finalists[i].entry = &entries[i];
    }
    for (size_t r = 0; r < ROUNDS; r++) {
        for (size_t c = 0; c < 4; c++) {
            double wave = (double)((r * 5 + c * 3) % 7) / 3.0 - 1.0;
            seconds[r * 4 + c] = factors[c % 3] * (1 + noise * wave) * 1e-4;
        }
    }
    assert_int_equal(kiln_tune_judge(problem, seconds, ROUNDS, 1, 1.0, &err), KILN_STATUS_OK);
}

static void final_keeps_the_base_in_a_tie(void **state) {
    struct kiln_tune_problem problem;
    (void)state;
    play(&problem, (const double[]){1, 0.995, 1.002}, 0.01);
    assert_true(problem.kept && problem.winner == &entries[0]);
    assert_true(problem.finalists[1].tied && problem.finalists[2].tied);
    play(&problem, (const double[]){1, 0.9, 0.8}, 0.005);
    assert_true(!problem.kept && problem.winner == &entries[2]);
    assert_false(problem.finalists[1].tied);
    play(&problem, (const double[]){1, 0.8, 0.8}, 0);
    assert_true(problem.winner == &entries[1] && problem.finalists[2].effect.noise < 1e-9);
}

int main(void) {
    build = getenv("KILN_TEST_BUILD");
    if (!build) {
        fprintf(stderr, "KILN_TEST_BUILD is not set\n");
        return 2;
    }
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(space_numbers_its_candidates),
            cmocka_unit_test(strategies_propose_each_once),
            cmocka_unit_test(model_follows_the_times),
            cmocka_unit_test(store_keeps_apart_what_differs),
            cmocka_unit_test(final_keeps_the_base_in_a_tie),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
