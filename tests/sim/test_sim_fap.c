// sim_fap: faults planted into fap2 are found on their line, and shared memory collides where the
// row strides say, in fap2 and fap1. The kernels' own sources, changed in memory, over one head of
// 150 rows. Skipped (77) without NVRTC.
#include "sim_kernel.h"

#include "base/mem.h"

#include "attention/fa_args.cuh"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum {
    ROWS = 150, // the last tile of rows is not full
    HD = 128,
    TQ = 64
};

struct params {
    uint64_t q, k, v, positions, out, n_tokens, kv_len;
    struct fa_args args;
};

static char *fap2; // the source as it ships

// ---- A run --------------------------------------------------------------------------------------
struct geometry {
    int tkv, kpad, spad; // spad: of fap1
    uint32_t smem, threads;
};

static uint32_t fap2_bytes(int tkv, int kpad) {
    uint32_t staged = (uint32_t)((TQ + 2 * tkv) * (HD + kpad) * 2), out = TQ * HD * 4;
    return staged > out ? staged : out;
}

static void run(
        struct sim_kernel *kernel, const char *name, const char *text, const struct geometry *g) {
    static float q[ROWS * HD];
    static uint16_t kv[ROWS * HD];
    static int32_t positions[ROWS];
    char tkv[32], kpad[32], spad[32], smem[32], file[32];
    (void)snprintf(tkv, sizeof(tkv), "-DFA_TKV=%d", g->tkv);
    (void)snprintf(kpad, sizeof(kpad), "-DFA_KPAD=%d", g->kpad);
    (void)snprintf(spad, sizeof(spad), "-DFA_SPAD=%d", g->spad);
    (void)snprintf(smem, sizeof(smem), "-DKILN_SMEM=%u", g->smem);
    (void)snprintf(file, sizeof(file), "%s.cu", name);
    int fap1 = strcmp(name, "fap1") == 0;
    const char *const options[] = {"-DFA_HD=128", "-DFA_TQ=64", tkv, kpad, spad, smem,
            "-DFA_LEGACY_SMEM=0", "-DFA_SYNC=3", "-DFA_AHEAD=0", "-DMIN_BLOCKS=1", "-DFA_WINDOW=0",
            "-DFA_SOFTCAP=0", "-DFA_Q_F16=0", "-DFA_OUT_F16=0", fap1 ? NULL : "-DFA_QREG=1", NULL};
    const struct sim_source source = {
            .name = file, .text = text, .entry = name, .options = options};
    for (int i = 0; i < ROWS * HD; i++) {
        q[i] = (float)(i * 7 % 13 - 6) / 8;
        kv[i] = (uint16_t)(0x3000 + i * 5 % 1024); // 0.125 to 0.25
    }
    for (int i = 0; i < ROWS; i++) {
        positions[i] = i;
    }
    sim_kernel_open(kernel, &source);
    struct params params = {.q = sim_kernel_in(kernel, "q", q, sizeof(q)),
            .k = sim_kernel_in(kernel, "k", kv, sizeof(kv)),
            .v = sim_kernel_in(kernel, "v", kv, sizeof(kv)),
            .positions = sim_kernel_in(kernel, "positions", positions, sizeof(positions)),
            .out = sim_kernel_out(kernel, "out", sizeof(q)),
            .args = {.q_stride = HD,
                    .out_stride = HD,
                    .k_stride = HD,
                    .v_stride = HD,
                    .rows = ROWS,
                    .keys = ROWS,
                    .heads = 1,
                    .kv_heads = 1,
                    .head_size = HD,
                    .to_log2 = 0.127F}};
    const uint32_t grid[3] = {(ROWS + TQ - 1) / TQ, 1, 1}, block[3] = {g->threads, 1, 1};
    sim_kernel_run(kernel, grid, block, g->smem, &params, sizeof(params));
}

// A finding of `check` in the kernel's source, made for `line` of it; its text, NULL: none.
static const char *found_on(struct sim_kernel *kernel, enum kiln_sim_check check, uint32_t line) {
    const struct kiln_sim_finding *found;
    uint32_t n = kiln_sim_findings(kernel->report, &found);
    for (uint32_t i = 0; i < n; i++) {
        if (found[i].check == check && found[i].from_line == line &&
                strcmp(found[i].from_file, "fap2.cu") == 0) {
            return found[i].text;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        print_message("    %s\n", found[i].text);
    }
    return NULL;
}

static const struct geometry usual = {.tkv = 32, .kpad = 8, .smem = 34816, .threads = 128};

// ---- Barriers -----------------------------------------------------------------------------------
static void sim_fap2_second_barrier_orders_nothing(void **state) {
    (void)state;
    struct sim_kernel kernel;
    run(&kernel, "fap2", fap2, &usual);
    uint32_t line = sim_line_of(fap2, "if (FA_SYNC == 3)", 1) + 1;
    assert_non_null(found_on(&kernel, KILN_SIM_CHECK_ORDERS_NOTHING, line));
    // Nor does the one with which fa_write begins, as the loop ends with its third. No other.
    const struct kiln_sim_finding *found;
    uint32_t n = kiln_sim_findings(kernel.report, &found),
             write = sim_line_of(fap2, "fa_write(", 1);
    for (uint32_t i = 0; i < n; i++) {
        if (found[i].from_line != line && found[i].from_line != write) {
            fail_msg("%s", found[i].text);
        }
    }
    assert_int_equal(n, 2);
    assert_int_equal(kiln_sim_faults(kernel.report), 0);
    sim_kernel_close(&kernel);
}

static void sim_fap2_without_its_first_barrier_races(void **state) {
    (void)state;
    struct sim_kernel kernel;
    char *text = sim_replace(fap2,
            "        if (!FA_AHEAD) {\n            ptx_cp_async_wait<0>();\n"
            "            __syncthreads();\n",
            "        if (!FA_AHEAD) {\n            ptx_cp_async_wait<0>();\n\n", 1);
    run(&kernel, "fap2", text, &usual);
    // A warp makes scores of rows that the others have not brought yet; what they bring then is
    // written with no barrier since it was read.
    assert_non_null(found_on(&kernel, KILN_SIM_CHECK_RACE, sim_line_of(text, "fa_stage_cache", 2)));
    assert_non_null(
            found_on(&kernel, KILN_SIM_CHECK_UNINIT_SHARED, sim_line_of(text, "fa_scores<", 1)));
    sim_kernel_close(&kernel);
    kiln_free(text);
}

static void sim_fap2_without_its_third_barrier_races(void **state) {
    (void)state;
    struct sim_kernel kernel;
    char *text =
            sim_replace(fap2, "        if (!FA_AHEAD) {\n            __syncthreads();\n        }\n",
                    "        if (!FA_AHEAD) {\n\n        }\n", 1);
    run(&kernel, "fap2", text, &usual);
    // The next tile's V comes over the one that others still use.
    assert_non_null(found_on(&kernel, KILN_SIM_CHECK_RACE, sim_line_of(text, "fa_stage_cache", 3)));
    sim_kernel_close(&kernel);
    kiln_free(text);
}

// ---- Shared memory ------------------------------------------------------------------------------
static void sim_fap2_asked_for_staging_alone_is_out_of_bounds(void **state) {
    (void)state;
    struct sim_kernel kernel;
    struct geometry g = {.tkv = 16, .kpad = 8, .smem = 26112, .threads = 128};
    char *text = sim_replace(fap2,
            "static_assert(KILN_SMEM >= FA_TOTAL, \"KILN_SMEM: the launcher asks for too "
            "little\");\n",
            "\n", 1);
    run(&kernel, "fap2", text, &g);
    const char *said = found_on(&kernel, KILN_SIM_CHECK_BOUNDS, sim_line_of(text, "fa_write(", 1));
    assert_non_null(said);
    assert_non_null(strstr(said, "uses 32768 bytes: 6656 missing"));
    assert_non_null(strstr(said, "block (0, 0, 0)")); // the tiles behind come first
    sim_kernel_close(&kernel);
    g.smem = fap2_bytes(16, 8);
    run(&kernel, "fap2", text, &g);
    assert_int_equal(kiln_sim_faults(kernel.report), 0);
    sim_kernel_close(&kernel);
    kiln_free(text);
}

static void check_fap2_ways(int kpad, uint32_t expected) {
    struct sim_kernel kernel;
    uint32_t straight, transposed;
    const struct geometry g = {
            .tkv = 32, .kpad = kpad, .smem = fap2_bytes(32, kpad), .threads = 128};
    run(&kernel, "fap2", fap2, &g);
    assert_true(sim_report_sites(kernel.report, "fap2", "ldmatrix.x4.shared", &straight) > 0);
    assert_true(sim_report_sites(kernel.report, "fap2", "ldmatrix.x4.trans", &transposed) > 0);
    assert_int_equal(straight, expected);
    assert_int_equal(transposed, expected);
    sim_kernel_close(&kernel);
}

static void sim_fap2_ldmatrix_collides_without_a_pad(void **state) {
    (void)state;
    check_fap2_ways(0, 8); // rows 256 bytes apart
    check_fap2_ways(8, 1); // 272
}

// Of a 64 x 64 tile; rows of S, and of P in their place, are (64 + pad) * 4 bytes apart.
static void sim_fap1_collides_as_its_pad_says(void **state) {
    (void)state;
    static const struct {
        int spad;
        uint32_t store, load; // ways: of S's pairs of f32, of P's ldmatrix
    } rows[] = {{0, 4, 8}, {4, 2, 1}, {8, 1, 2}};
    char *fap1 = sim_read_source("kernels_src/attention/fap1.cu");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sim_kernel kernel;
        uint32_t store, load;
        const struct geometry g = {.tkv = 64,
                .kpad = 8,
                .spad = rows[i].spad,
                .smem = (uint32_t)(3 * 64 * (HD + 8) * 2 + 64 * (64 + rows[i].spad) * 4 + 3 * 256),
                .threads = 256};
        run(&kernel, "fap1", fap1, &g);
        assert_int_equal(kiln_sim_faults(kernel.report), 0);
        assert_true(sim_report_sites(kernel.report, "fap1", "st.shared.v2.f32", &store) > 0);
        assert_true(sim_report_sites(kernel.report, "fap1", "ldmatrix.x4.shared", &load) > 0);
        print_message("FA_SPAD %d: S stores %u ways, P loads %u\n", rows[i].spad, store, load);
        assert_int_equal(store, rows[i].store);
        assert_int_equal(load, rows[i].load);
        sim_kernel_close(&kernel);
    }
    kiln_free(fap1);
}

int main(void) {
    if (!sim_can_compile(0)) {
        return SIM_SKIPPED;
    }
    fap2 = sim_read_source("kernels_src/attention/fap2.cu");
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(sim_fap2_second_barrier_orders_nothing),
            cmocka_unit_test(sim_fap2_without_its_first_barrier_races),
            cmocka_unit_test(sim_fap2_without_its_third_barrier_races),
            cmocka_unit_test(sim_fap2_asked_for_staging_alone_is_out_of_bounds),
            cmocka_unit_test(sim_fap2_ldmatrix_collides_without_a_pad),
            cmocka_unit_test(sim_fap1_collides_as_its_pad_says),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kiln_free(fap2);
    return failed;
}
