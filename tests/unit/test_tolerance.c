// Tolerance: what a control bounds, what overrides it, what breaks a bound, how texts add up.
#include "lab/tolerance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct kiln_tolerance_bounds nothing_by_hand = {0};
static const struct kiln_closeness control = {.rows = 100,
        .scored = 100,
        .noise = 0.25F,
        .kl_mean = 0.001,
        .kl_max = 0.01,
        .nll_diff = -0.001,
        .nll_error = 0.0005};

static void tolerance_bounds_come_from_the_control(void **state) {
    (void)state;
    struct kiln_tolerance_bounds bounds;
    kiln_tolerance_bound(&bounds, &control, 3, &nothing_by_hand);
    assert_true(bounds.gap == 0.75 && bounds.noise == 0.75);
    assert_true(fabs(bounds.kl_mean - 0.009) < 1e-15 && fabs(bounds.kl_max - 0.09) < 1e-15);
    assert_true(fabs(bounds.nll - 3 * 0.002) < 1e-15); // |-0.001| + 2 * 0.0005
    const struct kiln_tolerance_bounds hand = {.gap = 5, .kl_mean = 0.5};
    kiln_tolerance_bound(&bounds, &control, 2, &hand);
    assert_true(bounds.gap == 5 && bounds.kl_mean == 0.5 && bounds.noise == 0.5);
}

static void tolerance_without_differences_bounds_nothing(void **state) {
    (void)state;
    const struct kiln_closeness same = {.rows = 100, .scored = 100};
    const struct kiln_tolerance_bounds hand = {.gap = 0.1};
    struct kiln_tolerance_bounds bounds;
    kiln_tolerance_bound(&bounds, &same, 2, &hand);
    assert_true(bounds.gap == 0.1 && isinf(bounds.noise) && isinf(bounds.kl_max) &&
                isinf(bounds.kl_mean) && isinf(bounds.nll));
    kiln_tolerance_bound(&bounds, &same, 2, &nothing_by_hand);
    assert_int_equal(kiln_tolerance_judge_text(&bounds, &same), 0);
    assert_int_equal(kiln_tolerance_judge_all(&bounds, &same), 0);
    assert_int_not_equal(kiln_tolerance_judge_text(&bounds, &control), 0);
    assert_int_not_equal(kiln_tolerance_judge_all(&bounds, &control), 0);
}

static void tolerance_judges_each_figure(void **state) {
    (void)state;
    struct kiln_tolerance_bounds bounds;
    kiln_tolerance_bound(&bounds, &control, 2, &nothing_by_hand);
    struct kiln_closeness change = control;
    assert_int_equal(kiln_tolerance_judge_text(&bounds, &change), 0);
    assert_int_equal(kiln_tolerance_judge_all(&bounds, &change), 0);
    change.flip_gap = 0.5F; // as far as the bound goes
    assert_int_equal(kiln_tolerance_judge_text(&bounds, &change), 0);
    change.flip_gap = 0.51F;
    assert_int_equal(kiln_tolerance_judge_text(&bounds, &change), KILN_TOLERANCE_ARGMAX);
    change = control;
    change.fork_gap = 0.51F;
    assert_int_equal(kiln_tolerance_judge_text(&bounds, &change), KILN_TOLERANCE_FORK);
    change = control;
    change.noise = 0.51F;
    change.kl_max = 0.041;
    assert_int_equal(kiln_tolerance_judge_text(&bounds, &change),
            KILN_TOLERANCE_LOGIT | KILN_TOLERANCE_KL_MAX);
    change = control;
    change.kl_mean = (double)NAN;
    change.nll_error = 0.002; // a wide error is no excuse
    assert_int_equal(kiln_tolerance_judge_all(&bounds, &change),
            KILN_TOLERANCE_KL_MEAN | KILN_TOLERANCE_PERPLEXITY);
}

static void tolerance_texts_add_up(void **state) {
    (void)state;
    const struct kiln_closeness fork = {.rows = 300,
            .scored = 300,
            .noise = 0.5F,
            .kl_mean = 0.005,
            .kl_error = 0.003,
            .nll_diff = 0.003,
            .nll_error = 0.0005,
            .texts = 1,
            .steps = 4,
            .forks = 1,
            .fork_gap = 0.125F,
            .fork_step = 3,
            .at_fork = {{.id = 7}, {.id = 8}}};
    struct kiln_closeness sum = {0};
    kiln_tolerance_add(&sum, &fork);
    kiln_tolerance_add(&sum, &control);
    assert_true(sum.rows == 400 && sum.noise == 0.5F && sum.kl_max == 0.01);
    assert_true(fabs(sum.kl_mean - 0.004) < 1e-15 && fabs(sum.nll_diff - 0.002) < 1e-15);
    assert_true(fabs(sum.kl_error - 0.75 * 0.003) < 1e-15);
    assert_true(fabs(sum.nll_error - hypot(0.75 * 0.0005, 0.25 * 0.0005)) < 1e-15);
    assert_true(sum.texts == 1 && sum.steps == 4 && sum.forks == 1 && sum.fork_step == 3 &&
                sum.fork_gap == 0.125F && sum.at_fork[1].id == 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(tolerance_bounds_come_from_the_control),
            cmocka_unit_test(tolerance_without_differences_bounds_nothing),
            cmocka_unit_test(tolerance_judges_each_figure),
            cmocka_unit_test(tolerance_texts_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
