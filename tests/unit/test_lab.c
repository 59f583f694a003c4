#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // mkstemps
#endif
// lab: medians, intervals, verdicts, rows of logits, prompts.
#include "lab/ab_print.h"
#include "lab/logits.h"
#include "lab/prompts.h"
#include "lab/save.h"
#include "lab/stats.h"
#include "lab/wall.h"

#include "base/file.h"
#include "base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <jansson.h>

static double noise(uint64_t *state) { // roughly normal, deviation 1: twelve uniform values
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*state >> 11) / 9007199254740992.0;
    }
    return sum;
}

static void lab_medians(void **state) {
    (void)state;
    double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2};
    assert_true(kiln_median(odd, 3) == 3);
    assert_true(kiln_median(even, 4) == 2.5);
    assert_true(kiln_median(NULL, 0) == 0);
}

static void lab_intervals_repeat_and_hold(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct kiln_interval a, b;
    double values[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    assert_int_equal(kiln_bootstrap_median(values, 11, 0.99, 7, &a, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_bootstrap_median(values, 11, 0.99, 7, &b, &err), KILN_STATUS_OK);
    assert_true(a.low == b.low && a.high == b.high);
    assert_true(a.low >= 1 && a.low < 6 && a.high > 6 && a.high <= 11);
    assert_int_equal(kiln_bootstrap_median(values, 11, 0.5, 7, &b, &err), KILN_STATUS_OK);
    assert_true(b.low > a.low && b.high < a.high); // less sure, narrower
    assert_int_equal(kiln_bootstrap_median(values, 1, 0.99, 7, &a, &err), KILN_STATUS_OK);
    assert_true(a.low == 1 && a.high == 1);
}

static void lab_looks_spend_no_more_than_alpha(void **state) {
    (void)state;
    double spent = 0;
    for (int64_t look = 1; look <= 100000; look++) {
        spent += kiln_alpha_of_look(0.01, look);
    }
    assert_true(spent < 0.01 && spent > 0.0099);
}

// How often 100 comparisons of 15 pairs with 0.5 % of noise end in each verdict.
static void verdicts(double effect, double drift, size_t counts[3]) {
    struct kiln_err err = {0};
    uint64_t state = 42;
    memset(counts, 0, 3 * sizeof(*counts));
    for (int run = 0; run < 100; run++) {
        double change[15], control[15];
        for (int i = 0; i < 15; i++) {
            double base = 0.5 * noise(&state);
            change[i] = effect + 0.5 * noise(&state) - base;
            control[i] = drift + 0.5 * noise(&state) - base;
        }
        struct kiln_effect e;
        assert_int_equal(kiln_judge(change, control, 15, 1.5, 0.001, (uint64_t)run, &e, &err),
                KILN_STATUS_OK);
        assert_true(e.interval.low <= e.median && e.median <= e.interval.high);
        counts[e.verdict]++;
    }
}

static void lab_verdicts(void **state) {
    (void)state;
    size_t counts[3];
    verdicts(0, 0, counts);
    assert_int_equal(counts[KILN_VERDICT_NEUTRAL], 100);
    verdicts(-3, 0, counts);
    assert_in_range(counts[KILN_VERDICT_REVERT], 98, 100);
    verdicts(2.2, 0, counts);
    assert_in_range(counts[KILN_VERDICT_LAND], 92, 100);
    verdicts(1.0, 0, counts); // a real gain below the bar does not land
    assert_in_range(counts[KILN_VERDICT_LAND], 0, 3);
    assert_int_equal(counts[KILN_VERDICT_REVERT], 0);
    verdicts(-5, 4, counts); // base differs from base: too little to be judged
    assert_int_equal(counts[KILN_VERDICT_NEUTRAL], 100);
    verdicts(60, 4, counts); // no such drift makes so much
    assert_int_equal(counts[KILN_VERDICT_LAND], 100);
    verdicts(-60, 4, counts);
    assert_int_equal(counts[KILN_VERDICT_REVERT], 100);
    assert_string_equal(kiln_verdict_name(KILN_VERDICT_LAND), "LAND");
}

static void lab_top2(void **state) {
    (void)state;
    const float row[] = {1, 5, 5, 4, -2};
    struct kiln_top2 top = kiln_top2(row, 5);
    assert_int_equal(top.id, 1); // the lowest id of equals
    assert_int_equal(top.second, 2);
    assert_true(top.gap == 0 && top.finite);
    const float bad[] = {1, NAN, 2}, inf[] = {1, 2, INFINITY};
    assert_false(kiln_top2(bad, 3).finite);
    assert_false(kiln_top2(inf, 3).finite);
    const float first[] = {3, 1};
    assert_int_equal(kiln_top2(first, 2).id, 0);
    assert_true(kiln_top2(first, 2).gap == 2);
}

static void lab_rows(void **state) {
    (void)state;
    // p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4)
    const float base[] = {logf(2), 0, 0}, change[] = {0, logf(2), 0};
    struct kiln_row_diff diff;
    kiln_row_compare(base, change, 3, 0, &diff);
    assert_true(fabs(diff.kl - 0.25 * log(2)) < 1e-6);
    assert_true(fabs(diff.nll[0] - log(2)) < 1e-6 && fabs(diff.nll[1] - log(4)) < 1e-6);
    assert_true(fabsf(diff.noise - logf(2)) < 1e-6f);
    assert_int_equal(diff.top[0].id, 0);
    assert_int_equal(diff.top[1].id, 1);
    kiln_row_compare(base, base, 3, -1, &diff);
    assert_true(diff.kl < 1e-12 && diff.noise == 0 && diff.nll[0] == 0);
}

// Reads `text` as a file of ids; gives the status.
static enum kiln_status read_ids(
        const char *text, struct kiln_prompts *prompts, struct kiln_err *err) {
    char path[] = "/tmp/kiln-lab-XXXXXX.jsonl";
    int fd = mkstemps(path, 6);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    enum kiln_status status = kiln_prompts_read(prompts, path, NULL, err);
    unlink(path);
    return status;
}

static void lab_prompts(void **state) {
    (void)state;
    struct kiln_prompts prompts;
    struct kiln_err err = {0};
    assert_int_equal(read_ids("{\"prompt_ids\": [1, 2, 3], \"x\": 0}\n\n{\"prompt_ids\": [7]}",
                             &prompts, &err),
            KILN_STATUS_OK);
    assert_int_equal(prompts.count, 2);
    assert_int_equal(prompts.items[0].len, 3);
    assert_int_equal(prompts.items[1].ids[0], 7);
    kiln_prompts_finish(&prompts);
    static const char *const bad[][2] = {
            {"{\"prompt_ids\": []}", ":1: \"prompt_ids\" is empty"},
            {"\n{\"prompt_ids\": [-1]}", ":2: \"prompt_ids\" holds something"},
            {"{\"prompt\": \"a\"}", ":1: the model has no tokenizer"},
            {"{}", ":1: no \"prompt\" (text)"},
            {"{", ":1: "},
            {"", "no prompts in it"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(read_ids(bad[i][0], &prompts, &err), KILN_STATUS_FILE);
        assert_non_null(strstr(err.text, bad[i][1]));
        kiln_prompts_finish(&prompts);
    }
}

// What kiln_save_differences says of two documents.
static char *differences(const char *then, const char *now) {
    struct kiln_buf text = {0};
    json_t *a = json_loads(then, 0, NULL), *b = json_loads(now, 0, NULL);
    assert_non_null(a);
    assert_non_null(b);
    kiln_save_differences(a, b, &text);
    json_decref(a);
    json_decref(b);
    kiln_buf_puts(&text, "");
    return kiln_buf_take(&text);
}

static void lab_saved_differences(void **state) {
    (void)state;
    static const char *const same =
            "{\"kiln\": \"1\", \"device\": \"a\", \"driver\": null, "
            "\"sources\": \"11\", \"config\": \"; note\\n[x]\\nk = 1 ; from a\\n\"}";
    static const struct {
        const char *now, *says;
    } cases[] = {
            {"{\"device\": \"a\", \"driver\": null, \"sources\": \"11\", "
             "\"config\": \"[x]\\nk = 1 ; from b\\n; other\\n\"}",
                    ""},
            {"{\"device\": \"b\"}", "its device is another: a then, b now\n"},
            {"{\"driver\": \"CUDA 13.0\"}", "its driver is another: none then, CUDA 13.0 now\n"},
            {"{\"sources\": \"12\"}", "its sources are others: 11 then, 12 now\n"},
            {"{\"config\": \"[x]\\nk = 2\\n\"}",
                    "its config is another: 'k = 1' then, 'k = 2' now\n"},
            {"{\"config\": \"[x]\\nk = 1\\nl = 2\\n\"}",
                    "its config is another: '(nothing)' then, 'l = 2' now\n"},
            {"{}", ""}, // says nothing, so nothing is compared
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = differences(same, cases[i].now);
        assert_string_equal(text, cases[i].says);
        kiln_free(text);
    }
}

static void lab_saved_files(void **state) {
    (void)state;
    char path[] = "/tmp/kiln-save-XXXXXX.json";
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    close(fd);
    struct kiln_err err = {0};
    json_t *saved = json_pack("{s:s, s:{s:i}}", "kiln", "1", "result", "n", 7), *read = NULL;
    assert_int_equal(kiln_save_write(path, saved, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_save_read(path, &read, &err), KILN_STATUS_OK);
    assert_true(json_equal(saved, read));
    assert_int_equal(json_integer_value(json_object_get(kiln_save_result(read), "n")), 7);
    json_decref(saved);
    json_decref(read);
    static const char *const broken[] = {
            "", "{", "[1]", "{\"a\": 1, \"a\": 2}", "null", "\xff\xfe"};
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        assert_int_equal(kiln_file_write(path, broken[i], strlen(broken[i]), &err), KILN_STATUS_OK);
        assert_int_equal(kiln_save_read(path, &read, &err), KILN_STATUS_FILE);
        assert_non_null(strstr(err.text, path));
    }
    unlink(path);
    // A bare document is its own result, also where it has a member of that name.
    saved = json_pack("{s:{}, s:i}", "result", "n", 3);
    assert_ptr_equal(kiln_save_result(saved), saved);
    json_decref(saved);
}

// ---- A/B's text ---------------------------------------------------------------------------------

// A card that heat held down in the second pair and that ran at its power limit in the third.
static void lab_ab_pairs_tell_the_card(void **state) {
    (void)state;
    struct kiln_ab_pair pairs[] = {
            {.base = 0.5,
                    .change = 0.25,
                    .pct = 100,
                    .control_pct = -0.5,
                    .health = {.sm_mhz = 1980, .celsius = 41, .watts = 655.4}},
            {.base = 0.5,
                    .change = 0.5,
                    .disturbed = 1,
                    .health = {.sm_mhz = 1500, .celsius = 88, .watts = 500, .throttle = 0x20}},
            {.base = 0.4,
                    .change = 0.5,
                    .pct = -20,
                    .health = {.sm_mhz = -1, .celsius = -1, .watts = -1, .throttle = 0x4}},
    };
    const struct kiln_ab ab = {.pairs = pairs, .n = 3};
    const struct kiln_ab_params params = {.load = {.n_prompt = 100, .depth = 8}};
    const struct kiln_ab_row row = {.ab = &ab, .params = &params, .ubatch = 64};
    struct kiln_buf out = {0};
    kiln_ab_print_pairs(&row, &out);
    assert_non_null(strstr(out.data, "Pairs of pp100 @ d8, ubatch 64:\n\n| pair |"));
    assert_non_null(
            strstr(out.data, "| 1 | 200.00 | 400.00 | +100.00 | -0.50 | 1980 | 41 | 655 |  |\n"));
    assert_non_null(strstr(
            out.data, "| 2 | 200.00 | 200.00 | +0.00 | +0.00 | 1500 | 88 | 500 | disturbed |\n"));
    assert_non_null(strstr(
            out.data, "| 3 | 250.00 | 200.00 | -20.00 | +0.00 | - | - | - | power limit |\n"));
    kiln_buf_finish(&out);
}

// 40 of 100 ms twice as fast: 100 / 80; a kernel that is gone and one that is new have no percent.
static void lab_ab_kernels_predict_the_wall(void **state) {
    (void)state;
    static char none[] = "none", slot[] = "attention.prefill", other[] = "quantize", name[] = "p/v";
    struct kiln_ab_slot slots[] = {
            {.slot = slot, .names = {name, name}, .seconds = {0.04, 0.02}},
            {.slot = other, .names = {none, name}, .seconds = {0, 0.005}},
    };
    struct kiln_ab ab = {.effect = {.median = 12.5},
            .kernels = {.slots = slots, .n = 2, .runs = 5, .wall = 0.1}};
    const struct kiln_ab_params params = {.load = {.n_gen = 32}};
    const struct kiln_ab_row row = {.ab = &ab, .params = &params, .ubatch = 8};
    struct kiln_buf out = {0};
    kiln_ab_print_kernels(&row, &out);
    assert_non_null(strstr(out.data, "| tg32 | 8 | attention.prefill | 40.000 | 20.000 | +100.00 | "
                                     "40.00 | +25.00 | +12.50 | 5 | p/v | p/v |\n"));
    assert_non_null(strstr(out.data, "| tg32 | 8 | quantize | 0.000 | 5.000 | | 0.00 | -4.76 | "
                                     "+12.50 | 5 | none | p/v |\n"));
    assert_non_null(
            strstr(out.data, "| all of them | 40.000 | 25.000 | +60.00 | 40.00 | +17.65 |"));
    kiln_buf_clear(&out);
    ab.kernels.n = 0;
    kiln_ab_print_kernels(&row, &out);
    assert_int_equal(out.len, 0);
    kiln_buf_finish(&out);
}

static void lab_roofline_is_the_longer_time(void **state) {
    (void)state;
    const struct kiln_ceilings card = {
            .bandwidth = 1e12, .peaks = {.f16 = 100e12, .i8 = 200e12, .f32 = 10e12}};
    const struct kiln_work work = {.flops = 1e12, .bytes = 8e9};
    struct kiln_roofline least = kiln_roofline_of(&card, &work, KILN_PRECISION_F16);
    assert_true(fabs(least.memory - 8e-3) < 1e-12 && fabs(least.compute - 10e-3) < 1e-12);
    assert_true(least.bound == least.compute);
    least = kiln_roofline_of(&card, &work, KILN_PRECISION_Q8);
    assert_true(fabs(least.compute - 5e-3) < 1e-12 && least.bound == least.memory);
    least = kiln_roofline_of(&card, &work, KILN_PRECISION_I16); // two products of bytes each
    assert_true(fabs(least.compute - 10e-3) < 1e-12);
    least = kiln_roofline_of(&card, &work, KILN_PRECISION_F32);
    assert_true(fabs(least.compute - 100e-3) < 1e-12);
    const struct kiln_ceilings memory_alone = {.bandwidth = 1e12}, nothing = {.bandwidth = 0};
    least = kiln_roofline_of(&memory_alone, &work, KILN_PRECISION_F16);
    assert_true(least.compute == 0 && least.bound == least.memory);
    assert_true(kiln_roofline_of(&nothing, &work, KILN_PRECISION_F16).bound == 0);
    // Calls one after the other: each at its own bound.
    const struct kiln_work light = {.flops = 0, .bytes = 20e9};
    const struct kiln_roofline other = kiln_roofline_of(&card, &light, KILN_PRECISION_F16);
    least = kiln_roofline_of(&card, &work, KILN_PRECISION_F16);
    kiln_roofline_add(&least, &other);
    assert_true(fabs(least.bound - 30e-3) < 1e-12 && fabs(least.memory - 28e-3) < 1e-12);
}

static void lab_wall_levers_reach_the_roofline(void **state) {
    (void)state;
    char slot[] = "norm", other[] = "embed", silent[] = "argmax";
    struct kiln_wall_slice slices[] = {
            {.slot = slot, .seconds = 6e-3, .least = {.bound = 2e-3}},
            {.slot = slot, .seconds = 2e-3, .least = {.bound = 3e-3}}, // there already: L2 helped
            {.slot = other, .seconds = 1e-3, .least = {.bound = 5e-3}},
            {.slot = silent, .seconds = 1e-3}, // declares no work
    };
    const struct kiln_wall wall = {.slices = slices, .n = 4, .wall = 20e-3};
    assert_true(fabs(kiln_wall_to_roofline(&wall, slot) + 50) < 1e-9); // 8 ms to 4 ms
    assert_true(fabs(kiln_wall_lever(&wall, slot, -50) + 20) < 1e-9);
    assert_true(kiln_wall_to_roofline(&wall, other) == 0);
    assert_true(kiln_wall_to_roofline(&wall, silent) > 0);
    assert_true(kiln_wall_to_roofline(&wall, "rope_kv") > 0); // none of it
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(lab_medians),
            cmocka_unit_test(lab_intervals_repeat_and_hold),
            cmocka_unit_test(lab_looks_spend_no_more_than_alpha),
            cmocka_unit_test(lab_verdicts),
            cmocka_unit_test(lab_ab_pairs_tell_the_card),
            cmocka_unit_test(lab_ab_kernels_predict_the_wall),
            cmocka_unit_test(lab_roofline_is_the_longer_time),
            cmocka_unit_test(lab_wall_levers_reach_the_roofline),
            cmocka_unit_test(lab_top2),
            cmocka_unit_test(lab_rows),
            cmocka_unit_test(lab_saved_differences),
            cmocka_unit_test(lab_saved_files),
            cmocka_unit_test(lab_prompts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
