// The sim device: planted faults are found on their line, and mended kernels are silent; bits of
// arithmetic against other ways to reckon them.
#include "base/file.h"
#include "base/mem.h"
#include "device/sim/exec.h"
#include "device/sim/ptx.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N = 256,
    MAX_TEXT = 1 << 18,
    MAX_FAULTS = 64,
};

struct fault {
    char kernel[64], checks[64];
    uint32_t line;
};

static char source[MAX_TEXT], ptx[MAX_TEXT];
static struct fault faults[MAX_FAULTS];
static size_t n_faults;
static struct kiln_ptx_module *module;
static const char *golden = "faults"; // its sources are NAME.cu and NAME.ptx

static size_t read_golden(const char *name, char *text) {
    char path[4096];
    const char *root = getenv("KILN_TEST_SRC");
    (void)snprintf(path, sizeof(path), "%s/tests/golden/sim/%s", root ? root : ".", name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(text, 1, MAX_TEXT - 1, file);
    assert_int_equal(fclose(file), 0);
    assert_true(n < MAX_TEXT - 1);
    text[n] = '\0';
    return n;
}

// The lines that say "// fault: CHECK …" and the kernels they stand in.
static void find_faults(void) {
    char kernel[64] = "";
    uint32_t line = 0;
    for (char *at = source; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        line++;
        size_t n = strcspn(at, "\n");
        char text[512];
        n = n < sizeof(text) - 1 ? n : sizeof(text) - 1;
        memcpy(text, at, n);
        text[n] = '\0';
        (void)sscanf(text, "KERNEL(%63[a-z_])", kernel);
        char *mark = strstr(text, "// fault: ");
        if (mark) {
            assert_true(n_faults < MAX_FAULTS);
            struct fault *f = &faults[n_faults++];
            f->line = line;
            (void)snprintf(f->kernel, sizeof(f->kernel), "%s", kernel);
            (void)snprintf(f->checks, sizeof(f->checks), "%.60s", mark + 10);
        }
    }
}

static int open_module(void **state) {
    (void)state;
    struct kiln_err err = {0};
    char name[64];
    (void)snprintf(name, sizeof(name), "%s.cu", golden);
    (void)read_golden(name, source);
    (void)snprintf(name, sizeof(name), "%s.ptx", golden);
    size_t n = read_golden(name, ptx);
    find_faults();
    if (kiln_ptx_open(&module, name, ptx, n, &err) != KILN_STATUS_OK) {
        print_error("%s\n", err.text);
        return -1;
    }
    return 0;
}

static int close_module(void **state) {
    (void)state;
    kiln_ptx_close(module);
    return 0;
}

// Runs one kernel over fresh memory, all checks on unless `checks` says otherwise.
static enum kiln_status run(const char *name, uint32_t checks, uint32_t threads, float result[N],
        struct kiln_sim_report *report, struct kiln_err *err) {
    struct kiln_sim *sim = NULL;
    struct kiln_sim_code *code = NULL;
    uint64_t out = 0, in = 0;
    float values[N];
    for (int i = 0; i < N; i++) {
        values[i] = (float)(i + 1);
    }
    assert_int_equal(kiln_sim_create(&sim, threads, err), KILN_STATUS_OK);
    assert_int_equal(kiln_sim_alloc(sim, "out", sizeof(values), &out, err), KILN_STATUS_OK);
    assert_int_equal(kiln_sim_alloc(sim, "in", sizeof(values), &in, err), KILN_STATUS_OK);
    assert_int_equal(kiln_sim_write(sim, in, values, sizeof(values), err), KILN_STATUS_OK);
    enum kiln_status status = kiln_sim_load(sim, module, &code, err);
    if (status != KILN_STATUS_OK) {
        print_error("%s\n", err->text);
    }
    assert_int_equal(status, KILN_STATUS_OK);
    struct {
        uint64_t out, in;
        int32_t n;
    } params = {out, in, N};
    const struct kiln_sim_launch launch = {.kernel = kiln_sim_find(code, name),
            .grid = {2, 1, 1},
            .block = {128, 1, 1},
            .params = &params,
            .param_bytes = sizeof(params)};
    assert_non_null(launch.kernel);
    const struct kiln_sim_options options = {.checks = checks, .counters = 1};
    status = kiln_sim_launch(sim, &launch, &options, report, err);
    if (result) {
        assert_int_equal(kiln_sim_read(sim, result, out, sizeof(values), err), KILN_STATUS_OK);
    }
    kiln_sim_unload(sim, code);
    kiln_sim_destroy(sim);
    return status;
}

static int names(const char *list, const char *word) {
    const char *at = strstr(list, word);
    return at && (at == list || at[-1] == ' ') && (!at[strlen(word)] || at[strlen(word)] == ' ');
}

static void sim_finds_every_planted_fault_on_its_line(void **state) {
    (void)state;
    int wrong = 0;
    char file[64];
    (void)snprintf(file, sizeof(file), "%s.cu", golden);
    assert_true(n_faults >= 14);
    for (size_t i = 0; i < n_faults; i++) {
        struct kiln_err err = {0};
        struct kiln_sim_report *report = NULL;
        assert_int_equal(kiln_sim_report_create(&report, &err), KILN_STATUS_OK);
        assert_int_equal(
                run(faults[i].kernel, KILN_SIM_CHECK_ALL, 2, NULL, report, &err), KILN_STATUS_OK);
        const struct kiln_sim_finding *found = NULL;
        uint32_t n = kiln_sim_findings(report, &found), hits = 0;
        for (uint32_t k = 0; k < n; k++) {
            hits += found[k].from_line == faults[i].line && strcmp(found[k].from_file, file) == 0 &&
                    names(faults[i].checks, kiln_sim_check_name(found[k].check));
        }
        if (!hits) {
            print_error(
                    "%s: line %u: no '%s'\n", faults[i].kernel, faults[i].line, faults[i].checks);
            for (uint32_t k = 0; k < n; k++) {
                print_error("    %s\n", found[k].text);
            }
            wrong++;
        }
        kiln_sim_report_destroy(report);
    }
    assert_int_equal(wrong, 0);
}

static void sim_is_silent_about_mended_kernels(void **state) {
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < n_faults; i++) {
        struct kiln_err err = {0};
        struct kiln_sim_report *report = NULL;
        char kernel[64];
        (void)snprintf(kernel, sizeof(kernel), "%.50s", faults[i].kernel);
        memcpy(strstr(kernel, "_bad"), "_good", 6);
        assert_int_equal(kiln_sim_report_create(&report, &err), KILN_STATUS_OK);
        // One thread runs both blocks, and the second finds what the first left behind.
        assert_int_equal(run(kernel, KILN_SIM_CHECK_ALL, 1, NULL, report, &err), KILN_STATUS_OK);
        const struct kiln_sim_finding *found = NULL;
        uint32_t n = kiln_sim_findings(report, &found);
        for (uint32_t k = 0; k < n; k++) {
            // What is mended in these is where a barrier stands, not what it orders.
            if (!found[k].advice || !names("barrier deadlock", faults[i].checks)) {
                print_error("%s: %s\n", kernel, found[k].text);
                wrong++;
            }
        }
        kiln_sim_report_destroy(report);
    }
    assert_int_equal(wrong, 0);
}

// An access of the whole warp is looked at as one; the thread told is the one at the address.
static void sim_names_the_thread_at_the_address(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct kiln_sim_report *report = NULL;
    assert_int_equal(kiln_sim_report_create(&report, &err), KILN_STATUS_OK);
    assert_int_equal(
            run("one_writes_bad", KILN_SIM_CHECK_ALL, 1, NULL, report, &err), KILN_STATUS_OK);
    const struct kiln_sim_finding *found = NULL;
    assert_int_equal(kiln_sim_findings(report, &found), 1);
    assert_int_equal(found[0].address, 4 * 40);
    assert_int_equal(found[0].thread[0], 40);
    kiln_sim_report_destroy(report);
}

static void sim_ends_a_launch_outside_of_memory_with_checks_off(void **state) {
    (void)state;
    struct kiln_err err = {0};
    assert_int_equal(run("write_past_bad", 0, 2, NULL, NULL, &err), KILN_STATUS_DEVICE);
    assert_non_null(strstr(err.text, "write_past_bad"));
    assert_non_null(strstr(err.text, "past the end of 'out' (1024 bytes)"));
}

static void sim_gives_the_same_for_any_number_of_threads(void **state) {
    (void)state;
    float one[N], four[N];
    struct kiln_err err = {0};
    assert_int_equal(run("reduction_good", 0, 1, one, NULL, &err), KILN_STATUS_OK);
    assert_int_equal(
            run("reduction_good", KILN_SIM_CHECK_ALL, 4, four, NULL, &err), KILN_STATUS_OK);
    assert_memory_equal(one, four, sizeof(one));
    assert_true(one[0] == 128.0f * 129 / 2);
    assert_true(one[255] == 128.0f * 129 / 2 + 128 * 128);
}

static void sim_knows_checks_by_name(void **state) {
    (void)state;
    uint32_t mask = 0;
    struct kiln_err err = {0};
    assert_int_equal(kiln_sim_check_parse("race,bounds", &mask, &err), KILN_STATUS_OK);
    assert_int_equal(mask, 1u << KILN_SIM_CHECK_RACE | 1u << KILN_SIM_CHECK_BOUNDS);
    assert_int_equal(kiln_sim_check_parse("all", &mask, &err), KILN_STATUS_OK);
    assert_int_equal(mask, KILN_SIM_CHECK_ALL);
    assert_int_equal(kiln_sim_check_parse("race,rase", &mask, &err), KILN_STATUS_USAGE);
    assert_non_null(strstr(err.text, "'rase'"));
}

// Two turns of a ring: what comes out, and what was counted.
static void sim_counts_bulk_copies_and_mbarriers(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct kiln_sim_report *report = NULL;
    float result[N];
    const struct kiln_sim_kernel_counts *kernels = NULL;
    assert_int_equal(kiln_sim_report_create(&report, &err), KILN_STATUS_OK);
    assert_int_equal(
            run("no_empty_good", KILN_SIM_CHECK_ALL, 1, result, report, &err), KILN_STATUS_OK);
    for (int i = 0; i < N; i++) { // the first warp of a block has copies made
        assert_true(i % 128 < 32 || result[i] == (float)(i / 128 * 128 + 128 - i % 128));
    }
    assert_int_equal(kiln_sim_kernels(report, &kernels), 1);
    const struct kiln_sim_counts *c = &kernels[0].total;
    assert_int_equal(c->bulk_copies, 2 * 2);
    assert_int_equal(c->bulk_bytes, 2 * 2 * 512);
    assert_int_equal(c->bulk_sectors, 2 * 2 * 512 / 32);
    assert_int_equal(c->global_loads, 0);
    // Two made; in each turn a wait and the bytes expected, and of three warps a wait, an arrival.
    assert_int_equal(c->mbarriers, 2 * (2 + 2 * (2 + 3 * 2)));
    kiln_sim_report_destroy(report);
}

static void sim_tells_why_a_block_stands_once(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct kiln_sim_report *report = NULL;
    const struct kiln_sim_finding *found = NULL;
    assert_int_equal(kiln_sim_report_create(&report, &err), KILN_STATUS_OK);
    assert_int_equal(
            run("nothing_expected_bad", KILN_SIM_CHECK_ALL, 1, NULL, report, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_sim_findings(report, &found), 1);
    assert_int_equal(found[0].check, KILN_SIM_CHECK_DEADLOCK);
    assert_int_equal(found[0].count, 2); // blocks
    assert_non_null(strstr(found[0].text, "lacks 0 of 1 arrivals and -512 bytes"));
    kiln_sim_report_destroy(report);
}

static void sim_ends_a_launch_at_a_bad_mbarrier_with_checks_off(void **state) {
    (void)state;
    const struct {
        const char *kernel, *says;
    } cases[] = {{"not_made_bad", "nobody made it one"}, {"too_many_arrive_bad", "65 arrivals"},
            {"bytes_missing_bad", "lacks 0 of 1 arrivals and 16 bytes"},
            {"bulk_past_bad", "past the end of 'in'"}, {"bulk_odd_size_bad", "multiples of 16"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kiln_err err = {0};
        assert_int_equal(run(cases[i].kernel, 0, 1, NULL, NULL, &err), KILN_STATUS_DEVICE);
        assert_non_null(strstr(err.text, "faults_bulk.cu:"));
        if (!strstr(err.text, cases[i].says)) {
            fail_msg("%s: %s", cases[i].kernel, err.text);
        }
    }
}

// Usage: test_sim [faults_bulk]
int main(int argc, char **argv) {
    const struct CMUnitTest of_bulk[] = {
            cmocka_unit_test(sim_finds_every_planted_fault_on_its_line),
            cmocka_unit_test(sim_is_silent_about_mended_kernels),
            cmocka_unit_test(sim_counts_bulk_copies_and_mbarriers),
            cmocka_unit_test(sim_tells_why_a_block_stands_once),
            cmocka_unit_test(sim_ends_a_launch_at_a_bad_mbarrier_with_checks_off),
    };
    if (argc > 1) {
        golden = argv[1];
        return cmocka_run_group_tests(of_bulk, open_module, close_module);
    }
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(sim_finds_every_planted_fault_on_its_line),
            cmocka_unit_test(sim_is_silent_about_mended_kernels),
            cmocka_unit_test(sim_names_the_thread_at_the_address),
            cmocka_unit_test(sim_ends_a_launch_outside_of_memory_with_checks_off),
            cmocka_unit_test(sim_gives_the_same_for_any_number_of_threads),
            cmocka_unit_test(sim_knows_checks_by_name),
    };
    return cmocka_run_group_tests(tests, open_module, close_module);
}
