// Retry conditions: what is read, what is refused and where the mark stands, three-valued logic.
#include "base/mem.h"
#include "lab/retry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// norm is unknown, of all other slots the share is 10; the gate failed.
static enum kiln_status look(void *arg, const struct kiln_retry_test *test,
        struct kiln_retry_value *value, struct kiln_err *err) {
    (void)err;
    (*(int *)arg)++;
    value->known = strcmp(test->name, "norm") != 0;
    value->number = 10;
    if (test->kind == KILN_RETRY_GATE) {
        snprintf(value->text, sizeof(value->text), "FAIL");
    }
    return KILN_STATUS_OK;
}

static enum kiln_truth truth_of(const char *text) {
    struct kiln_err err = {0};
    struct kiln_retry *retry;
    struct kiln_buf why = {0};
    enum kiln_truth truth;
    int asked = 0;
    assert_int_equal(kiln_retry_parse(&retry, text, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_retry_eval(retry, look, &asked, &truth, &why, &err), KILN_STATUS_OK);
    assert_true(asked > 0 && why.len > 0);
    kiln_buf_finish(&why);
    kiln_retry_destroy(retry);
    return truth;
}

static void retry_compares(void **state) {
    (void)state;
    assert_int_equal(truth_of("retry when wall share of x > 8 %"), KILN_TRUTH_YES);
    assert_int_equal(truth_of("when wall share of x > 10 %"), KILN_TRUTH_NO);
    assert_int_equal(truth_of("Wall Share of x >= 10%"), KILN_TRUTH_YES);
    assert_int_equal(truth_of("time of matmul.*.prefill<1e1ms"), KILN_TRUTH_NO);
    assert_int_equal(truth_of("blocks of x != 10"), KILN_TRUTH_NO);
    assert_int_equal(truth_of("tok/s of pp3325@d2048 <= 10.0"), KILN_TRUTH_YES);
    assert_int_equal(truth_of("gate parity is not PASS"), KILN_TRUTH_YES);
    assert_int_equal(truth_of("gate parity of x is PASS"), KILN_TRUTH_NO);
    assert_int_equal(truth_of("wall share of x > -3"), KILN_TRUTH_YES);
}

static void retry_knows_three_values(void **state) {
    (void)state;
    assert_int_equal(truth_of("time of norm > 1"), KILN_TRUTH_UNKNOWN);
    assert_int_equal(truth_of("not time of norm > 1"), KILN_TRUTH_UNKNOWN);
    assert_int_equal(truth_of("time of norm > 1 or time of x > 1"), KILN_TRUTH_YES);
    assert_int_equal(truth_of("time of norm > 1 and time of x > 1"), KILN_TRUTH_UNKNOWN);
    assert_int_equal(truth_of("time of norm > 1 and time of x > 99"), KILN_TRUTH_NO);
    // "and" binds closer than "or"
    assert_int_equal(truth_of("time of x = 10 or time of x = 1 and time of x = 2"), KILN_TRUTH_YES);
    assert_int_equal(
            truth_of("(time of x = 10 or time of x = 1) and time of x = 2"), KILN_TRUTH_NO);
    assert_int_equal(truth_of("not not time of x = 10"), KILN_TRUTH_YES);
}

// The column of the mark, in bytes of ASCII texts; -1 when the text is read after all.
static int mark_of(const char *text, const char *says) {
    struct kiln_err err = {0};
    struct kiln_retry *retry;
    if (kiln_retry_parse(&retry, text, &err) == KILN_STATUS_OK) {
        kiln_retry_destroy(retry);
        return -1;
    }
    assert_int_equal(err.status, KILN_STATUS_USAGE);
    assert_non_null(strstr(err.text, says));
    const char *line = strrchr(err.text, '\n');
    assert_non_null(line);
    return (int)strcspn(line, "^") - 3;
}

static void retry_points_at_the_fault(void **state) {
    (void)state;
    assert_int_equal(mark_of("", "figure is needed"), 0);
    assert_int_equal(mark_of("retry when", "figure is needed"), 10);
    assert_int_equal(mark_of("retry when walls of x > 1", "figure is needed"), 11);
    assert_int_equal(mark_of("wall share x > 1", "'of'"), 11);
    assert_int_equal(mark_of("wall share of > 1", "a slot"), 14);
    assert_int_equal(mark_of("time of x ~ 1", "< <= > >= = !="), 10);
    assert_int_equal(mark_of("time of x > much", "number is needed"), 12);
    assert_int_equal(mark_of("time of x > inf", "number is needed"), 12);
    assert_int_equal(mark_of("time of x > nan", "number is needed"), 12);
    assert_int_equal(mark_of("time of x > 0x10", "number is needed"), 12);
    assert_int_equal(mark_of("time of x > 8 %", "behind the number comes ms"), 14);
    assert_int_equal(mark_of("time of x > 8 and", "figure is needed"), 17);
    assert_int_equal(mark_of("(time of x > 8", "')'"), 14);
    assert_int_equal(mark_of("time of x > 8)", "the end"), 13);
    assert_int_equal(mark_of("gate speed is PASS", "parity, greedy and tolerance"), 5);
    assert_int_equal(mark_of("gate greedy was PASS", "'is'"), 12);
    assert_int_equal(mark_of("gate greedy of (", "a slot is needed"), 15);
    assert_int_equal(mark_of("gate greedy is GOOD", "PASS or FAIL"), 15);
    assert_int_equal(mark_of("device is not", "device is needed"), 13);
    assert_int_equal(mark_of("driver is 5", "< <= >"), 7);
}

static void retry_has_limits(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct kiln_retry *retry;
    char text[600];
    memset(text, '(', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(kiln_retry_parse(&retry, text, &err), KILN_STATUS_USAGE);
    text[400] = '\0';
    assert_int_equal(kiln_retry_parse(&retry, text, &err), KILN_STATUS_USAGE);
    assert_non_null(strstr(err.text, "nested too deeply"));
    assert_int_equal(
            kiln_retry_parse(&retry, "time of x > 1\nand time of x > 1", &err), KILN_STATUS_USAGE);
    kiln_mem_fail_at(2, 1);
    assert_int_equal(kiln_retry_parse(&retry, "time of x > 1", &err), KILN_STATUS_NOMEM);
    kiln_mem_fail_at(0, 0);
    assert_null(retry);
}

static void retry_knows_slots(void **state) {
    (void)state;
    static const struct {
        const char *text, *said; // NULL: right
    } cases[] = {{"wall share of attention.prefill > 8 %", NULL},
            {"time of matmul.*.prefill > 8 and tok/s of pp512 > 1 and device is gb10", NULL},
            {"gate parity is PASS or noise of pp512 < 1 %", NULL},
            {"not (registers of attention.prefil > 8)", "did you mean 'prefill'"},
            {"time of norm > 1 or smem of x > 8 B", "'x'"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kiln_err err = {0};
        struct kiln_retry *retry;
        assert_int_equal(kiln_retry_parse(&retry, cases[i].text, &err), KILN_STATUS_OK);
        assert_int_equal(kiln_retry_check_slots(retry, &err),
                cases[i].said ? KILN_STATUS_CONFIG : KILN_STATUS_OK);
        assert_true(!cases[i].said || strstr(err.text, cases[i].said));
        kiln_retry_destroy(retry);
    }
}

static void retry_orders_versions(void **state) {
    (void)state;
    assert_int_equal(kiln_version_compare("580.159", "580.65"), 1);
    assert_int_equal(kiln_version_compare("580", "580.1"), -1);
    assert_int_equal(kiln_version_compare("590.10.2", "590.10.2"), 0);
    assert_int_equal(kiln_version_compare("9", "10"), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(retry_compares),
            cmocka_unit_test(retry_knows_three_values),
            cmocka_unit_test(retry_points_at_the_fault),
            cmocka_unit_test(retry_has_limits),
            cmocka_unit_test(retry_knows_slots),
            cmocka_unit_test(retry_orders_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
