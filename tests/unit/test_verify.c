// test_verify: what a plugin may do wrong in the hands of `kiln plugins verify`, and what the
// report says then.
#include "plugin/verify.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum {
    LONG_MS = 40000
};

static enum kiln_status verify(
        const char *name, unsigned limit_ms, struct kiln_buf *report, struct kiln_err *err) {
    char *path = kiln_asprintf("%s/tests/plugins_bad/%s.so", getenv("KILN_TEST_BUILD"), name);
    assert_non_null(path);
    const struct kiln_verify_params params = {.path = path, .limit_ms = limit_ms};
    enum kiln_status status = kiln_plugin_verify(&params, report, err);
    kiln_free(path);
    return status;
}

static void assert_verified(
        const char *name, unsigned limit_ms, enum kiln_status expected, const char *line) {
    struct kiln_buf report = {0};
    struct kiln_err err = {0};
    enum kiln_status status = verify(name, limit_ms, &report, &err);
    assert_non_null(report.data);
    if (!strstr(report.data, line) || status != expected) {
        fail_msg("%s: status %d, text '%s', no '%s' in:\n%s", name, (int)status, err.text, line,
                report.data);
    }
    assert_int_equal(strstr(report.data, "failed  ") != NULL, expected != KILN_STATUS_OK);
    kiln_buf_finish(&report);
}

static void verify_passes_good_plugins(void **state) {
    (void)state;
    assert_verified("good", LONG_MS, KILN_STATUS_OK,
            "ok        accepted: plugin 'good' 1.2.3, ABI 1.0, 2 variants\n"
            "ok        symbols: exports kiln_plugin_entry alone\n"
            "ok        plan of 'plain' for norm on cpu without vector extensions: 27 planned, 0 "
            "declined, 0 beyond the device's limits\n");
    assert_verified("newer", LONG_MS, KILN_STATUS_OK, "ABI 1.7, 1 variant\n");
    // A hopper GEMM is declined elsewhere, and its largest tiles are planned where it runs.
    assert_verified("awkward", LONG_MS, KILN_STATUS_OK,
            "declined  plan of 'hopper' for matmul.q4_K.prefill on A100: needs wgmma (sm_90a)\n");
    assert_verified("awkward", LONG_MS, KILN_STATUS_OK,
            "ok        plan of 'hopper' for matmul.q4_K.prefill on H200: 27 planned");
}

static void verify_passes_a_plugin_that_declines(void **state) {
    (void)state;
    assert_verified("declines", LONG_MS, KILN_STATUS_OK,
            "declined  plan of 'only' for norm on cpu with AVX-512: rows are too short\n");
}

static void verify_fails_bad_plans(void **state) {
    (void)state;
    assert_verified("fails", LONG_MS, KILN_STATUS_CHECK,
            "failed    plan of 'only' for norm on cpu with AVX-512: plugin 'fails', variant "
            "'only', "
            "slot norm, geometry (none): plan() failed: the tables are inconsistent\n");
    assert_verified("impure", LONG_MS, KILN_STATUS_CHECK,
            "failed    plan of 'only' for norm on cpu with AVX-512: not pure: the same call again "
            "gave another plan\n");
}

static void verify_fails_an_extra_symbol(void **state) {
    (void)state;
    assert_verified("extra_symbol", LONG_MS, KILN_STATUS_CHECK,
            "failed    symbols: exports kiln_plugin_entry ordinary_extra_symbol ; only "
            "kiln_plugin_entry may be seen: build with -fvisibility=hidden\n");
}

static void verify_survives_a_crash(void **state) {
    (void)state;
    assert_verified("crashes", LONG_MS, KILN_STATUS_CHECK,
            "failed    plan of 'only' for norm on cpu without vector extensions: crashed with "
            "signal 11 (Segmentation fault)\n");
    assert_verified("exits", LONG_MS, KILN_STATUS_CHECK,
            "failed    plan of 'only' for norm on cpu without vector extensions: ended the process "
            "with exit code 7\n");
}

static void verify_ends_a_plugin_that_never_returns(void **state) {
    (void)state;
    time_t start = time(NULL);
    assert_verified("never", 1500, KILN_STATUS_CHECK,
            "failed    plan of 'only' for norm on cpu without vector extensions: did not return "
            "within 1500 ms\n");
    assert_true(time(NULL) - start < 20);
}

static void verify_reports_a_refusal(void **state) {
    (void)state;
    struct kiln_buf report = {0};
    struct kiln_err err = {0};
    assert_int_equal(verify("major", LONG_MS, &report, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "major.so: built for plugin ABI 2.0, this kiln has 1.0"));
    assert_non_null(strstr(report.data, "failed    "));
    kiln_buf_finish(&report);
}

static void verify_counts_failures(void **state) {
    (void)state;
    struct kiln_buf report = {0};
    struct kiln_err err = {0};
    assert_int_equal(verify("extra_symbol", LONG_MS, &report, &err), KILN_STATUS_CHECK);
    assert_non_null(strstr(err.text, "extra_symbol.so: 1 of 4 checks failed"));
    kiln_buf_finish(&report);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(verify_passes_good_plugins),
            cmocka_unit_test(verify_passes_a_plugin_that_declines),
            cmocka_unit_test(verify_fails_bad_plans),
            cmocka_unit_test(verify_fails_an_extra_symbol),
            cmocka_unit_test(verify_survives_a_crash),
            cmocka_unit_test(verify_ends_a_plugin_that_never_returns),
            cmocka_unit_test(verify_reports_a_refusal),
            cmocka_unit_test(verify_counts_failures),
    };
    return getenv("KILN_TEST_BUILD") ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
