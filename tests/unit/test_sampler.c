// sampler: each filter by what can and cannot come out, and one fixed sequence for the generator.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/sampler.h"

enum {
    DRAWS = 20000
};

static struct kiln_sampler_params plain(void) {
    return (struct kiln_sampler_params){
            .temp = 1, .top_p = 1, .repeat_penalty = 1, .repeat_last_n = 64, .seed = 7};
}

static struct kiln_sampler *make(const struct kiln_sampler_params *params) {
    struct kiln_sampler *sampler = NULL;
    struct kiln_err err = {0};
    if (kiln_sampler_create(&sampler, params, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    return sampler;
}

static int32_t sample(struct kiln_sampler *sampler, const float *logits, int32_t n) {
    int32_t id = -1;
    struct kiln_err err = {0};
    if (kiln_sampler_sample(sampler, logits, n, &id, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    return id;
}

static int32_t greedy(const float *logits, int32_t n) {
    struct kiln_sampler_params params = plain();
    params.greedy = 1;
    struct kiln_sampler *sampler = make(&params);
    int32_t id = sample(sampler, logits, n);
    kiln_sampler_destroy(sampler);
    return id;
}

// How often each of n ids is drawn.
static void count_draws(
        const struct kiln_sampler_params *params, const float *logits, int32_t n, int *counts) {
    struct kiln_sampler *sampler = make(params);
    memset(counts, 0, (size_t)n * sizeof(*counts));
    for (int i = 0; i < DRAWS; i++) {
        counts[sample(sampler, logits, n)]++;
    }
    kiln_sampler_destroy(sampler);
}

static void sampler_greedy_takes_the_largest(void **state) {
    (void)state;
    assert_int_equal(greedy((float[]){1, 3, 2}, 3), 1);
    assert_int_equal(greedy((float[]){-5, -3, -3, -4}, 4), 1); // the lowest id of equals
    assert_int_equal(greedy((float[]){NAN, -INFINITY, -9, NAN}, 4), 2);
    assert_int_equal(greedy((float[]){-INFINITY, -3e38f}, 2), 1);
    struct kiln_sampler_params params = plain();
    params.temp = 0;
    struct kiln_sampler *sampler = make(&params);
    assert_int_equal(sample(sampler, (float[]){1, 1.001f, 1}, 3), 1);
    kiln_sampler_destroy(sampler);
}

static void sampler_refuses_what_is_no_number(void **state) {
    (void)state;
    const float bad[][2] = {{NAN, NAN}, {-INFINITY, -INFINITY}, {-INFINITY, NAN}, {INFINITY, 0}};
    for (int g = 0; g < 2; g++) {
        struct kiln_sampler_params params = plain();
        params.greedy = g;
        struct kiln_sampler *sampler = make(&params);
        for (size_t i = 0; i < 4; i++) {
            int32_t id = 0;
            struct kiln_err err = {0};
            assert_int_equal(kiln_sampler_sample(sampler, bad[i], 2, &id, &err), KILN_STATUS_CHECK);
            assert_non_null(strstr(err.text, "the logits are not numbers"));
        }
        int32_t id = 0;
        struct kiln_err err = {0};
        assert_int_equal(kiln_sampler_sample(sampler, bad[0], 0, &id, &err), KILN_STATUS_CHECK);
        kiln_sampler_destroy(sampler);
    }
}

static void sampler_draws_by_probability(void **state) {
    (void)state;
    const float logits[] = {0, 0.6931472f, -INFINITY, NAN, 1.3862944f}; // 1 : 2 : 0 : 0 : 4
    int counts[5];
    struct kiln_sampler_params params = plain();
    count_draws(&params, logits, 5, counts);
    assert_int_equal(counts[2] + counts[3], 0);
    assert_true(abs(counts[0] - DRAWS / 7) < DRAWS / 50);
    assert_true(abs(counts[1] - DRAWS * 2 / 7) < DRAWS / 50);
    params.temp = 0.5f; // squares: 1 : 4 : 16
    count_draws(&params, logits, 5, counts);
    assert_true(abs(counts[0] - DRAWS / 21) < DRAWS / 50);
    assert_true(abs(counts[4] - DRAWS * 16 / 21) < DRAWS / 50);
}

static void sampler_top_k_keeps_k(void **state) {
    (void)state;
    const float logits[] = {1, 4, 2, 4, 4, 3};
    int counts[6];
    struct kiln_sampler_params params = plain();
    params.top_k = 2;
    count_draws(&params, logits, 6, counts);
    assert_int_equal(counts[1] + counts[3], DRAWS); // of three equals the two lowest ids
    assert_true(abs(counts[1] - DRAWS / 2) < DRAWS / 50);
    params.top_k = 1;
    count_draws(&params, logits, 6, counts);
    assert_int_equal(counts[1], DRAWS);
    float equal[50] = {0};
    int many[50];
    params.top_k = 3;
    count_draws(&params, equal, 50, many);
    assert_true(many[0] > 0 && many[1] > 0 && many[2] > 0);
    assert_int_equal(many[0] + many[1] + many[2], DRAWS);
    params.top_k = 100;
    count_draws(&params, logits, 6, counts);
    assert_true(counts[0] > 0);
}

// Probabilities 0.1, 0.6, 0.3.
static void sampler_top_p_keeps_the_fewest(void **state) {
    (void)state;
    const float logits[] = {logf(0.1f), logf(0.6f), logf(0.3f)};
    const struct {
        float top_p;
        int kept; // of ids 1, 2, 0
    } cases[] = {{0.01f, 1}, {0.59f, 1}, {0.61f, 2}, {0.89f, 2}, {0.91f, 3}, {1, 3}};
    for (int top_k = 0; top_k <= 3; top_k += 3) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            int counts[4];
            struct kiln_sampler_params params = plain();
            params.top_p = cases[i].top_p;
            params.top_k = top_k;
            // The fourth is out of reach of top-k 3 and next to nothing without it.
            const float four[] = {logits[0], logits[1], logits[2], -50};
            count_draws(&params, four, 4, counts);
            assert_true(counts[1] > 0);
            assert_int_equal(counts[2] > 0, cases[i].kept > 1);
            assert_int_equal(counts[0] > 0, cases[i].kept > 2);
            assert_int_equal(counts[3], 0);
        }
    }
}

static void sampler_min_p_is_relative_to_the_best(void **state) {
    (void)state;
    const float logits[] = {logf(0.1f), logf(0.6f), logf(0.3f)};
    int counts[3];
    struct kiln_sampler_params params = plain();
    params.min_p = 0.49f;
    params.temp = 5; // the filter looks at temperature 1
    count_draws(&params, logits, 3, counts);
    assert_true(counts[1] > 0 && counts[2] > 0 && counts[0] == 0);
    params.min_p = 0.51f;
    count_draws(&params, logits, 3, counts);
    assert_int_equal(counts[1], DRAWS);
    params.min_p = 1;
    count_draws(&params, logits, 3, counts);
    assert_int_equal(counts[1], DRAWS);
}

static void sampler_penalizes_recent_ids(void **state) {
    (void)state;
    struct kiln_sampler_params params = plain();
    params.greedy = 1;
    params.repeat_penalty = 2;
    params.repeat_last_n = 2;
    struct kiln_sampler *sampler = make(&params);
    const float logits[] = {3, 4, -1, 1.9f};
    assert_int_equal(sample(sampler, logits, 4), 1);
    kiln_sampler_accept(sampler, 1);
    kiln_sampler_accept(sampler, 1); // once: 4 / 2, not 4 / 4
    assert_int_equal(sample(sampler, logits, 4), 0);
    kiln_sampler_accept(sampler, 0);
    assert_int_equal(sample(sampler, logits, 4), 1); // 2 against 1.5 and 1.9
    kiln_sampler_accept(sampler, 3);                 // 1 is forgotten now
    assert_int_equal(sample(sampler, logits, 4), 1);
    kiln_sampler_accept(sampler, 1000); // not in this vocabulary
    kiln_sampler_accept(sampler, -1);
    assert_int_equal(sample(sampler, logits, 4), 1);
    const float negative[] = {-1, -1.5f};
    kiln_sampler_accept(sampler, 0);
    assert_int_equal(sample(sampler, negative, 2), 1); // -2 against -1.5
    kiln_sampler_destroy(sampler);

    params.repeat_last_n = 0;
    sampler = make(&params);
    kiln_sampler_accept(sampler, 1);
    assert_int_equal(sample(sampler, logits, 4), 1);
    kiln_sampler_destroy(sampler);
}

static void sampler_repeats_itself_by_seed(void **state) {
    (void)state;
    float logits[100];
    for (int i = 0; i < 100; i++) {
        logits[i] = (float)(i * 37 % 100) / 25;
    }
    struct kiln_sampler_params params = plain();
    params.top_k = 90;
    params.top_p = 0.9f;
    params.temp = 0.7f;
    static const int32_t want[] = {40, 62, 83, 96, 77, 64, 54, 54, 43, 81, 51, 67, 80, 64, 70, 78,
            35, 97, 81, 81, 8, 59, 86, 62};
    int differs = 0;
    for (int round = 0; round < 2; round++) {
        struct kiln_sampler *sampler = make(&params);
        for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
            int32_t id = sample(sampler, logits, 100);
            if (round == 0) {
                assert_int_equal(id, want[i]);
            }
            differs |= id != want[i];
        }
        kiln_sampler_destroy(sampler);
        params.seed++;
    }
    assert_true(differs); // another seed, another text
}

static void sampler_refuses_bad_parameters(void **state) {
    (void)state;
    struct kiln_sampler_params bad[10];
    for (size_t i = 0; i < 10; i++) {
        bad[i] = kiln_sampler_defaults();
    }
    bad[0].temp = -1;
    bad[1].temp = NAN;
    bad[2].top_p = 0;
    bad[3].top_p = 1.5f;
    bad[4].min_p = -0.1f;
    bad[5].min_p = NAN;
    bad[6].repeat_penalty = 0;
    bad[7].repeat_penalty = INFINITY;
    bad[8].repeat_last_n = -1;
    bad[9].repeat_last_n = 1000001;
    const char *names[] = {"temp", "temp", "top_p", "top_p", "min_p", "min_p", "repeat_penalty",
            "repeat_penalty", "repeat_last_n", "repeat_last_n"};
    for (size_t i = 0; i < 10; i++) {
        struct kiln_sampler *sampler = NULL;
        struct kiln_err err = {0};
        assert_int_equal(kiln_sampler_create(&sampler, &bad[i], &err), KILN_STATUS_USAGE);
        assert_null(sampler);
        assert_non_null(strstr(err.text, names[i]));
    }
    struct kiln_sampler_params good = kiln_sampler_defaults();
    kiln_sampler_destroy(make(&good));
    kiln_sampler_destroy(NULL);
}

static void sampler_survives_failing_allocations(void **state) {
    (void)state;
    const float logits[] = {1, 2, 3};
    struct kiln_sampler_params params = kiln_sampler_defaults();
    params.top_k = 2;
    enum kiln_status status = KILN_STATUS_NOMEM;
    uint64_t n = 0;
    while (status != KILN_STATUS_OK) {
        struct kiln_sampler *sampler = NULL;
        struct kiln_err err = {0};
        int32_t id = 0;
        kiln_mem_fail_at(++n, 0);
        status = kiln_sampler_create(&sampler, &params, &err);
        if (status == KILN_STATUS_OK) {
            status = kiln_sampler_sample(sampler, logits, 3, &id, &err);
        }
        kiln_mem_fail_at(0, 0);
        assert_true(status == KILN_STATUS_OK || status == KILN_STATUS_NOMEM);
        kiln_sampler_destroy(sampler);
    }
    assert_int_equal(n, 5); // two when created, two when sampling
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(sampler_greedy_takes_the_largest),
            cmocka_unit_test(sampler_refuses_what_is_no_number),
            cmocka_unit_test(sampler_draws_by_probability),
            cmocka_unit_test(sampler_top_k_keeps_k),
            cmocka_unit_test(sampler_top_p_keeps_the_fewest),
            cmocka_unit_test(sampler_min_p_is_relative_to_the_best),
            cmocka_unit_test(sampler_penalizes_recent_ids),
            cmocka_unit_test(sampler_repeats_itself_by_seed),
            cmocka_unit_test(sampler_refuses_bad_parameters),
            cmocka_unit_test(sampler_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
