// sim_mm_wgmma: the product on Hopper's own instructions, as it ships: right to the bit in each
// geometry, counted by formula; faults planted into it are found on their line. Skipped (77)
// without NVRTC.
#include "sim_kernel.h"

#include "base/mem.h"
#include "device/sim/tensor_map.h"

#include "matmul/mm_args.cuh"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum {
    ROWS = 150, // of activations: no tile of rows is full
    OUTPUTS = 200,
    DEPTH = 328, // the last tile has 8 columns
    TILE = 64,
    TILES = (DEPTH + TILE - 1) / TILE,
};

struct geometry {
    int bm, bn, stages;
};

struct params {
    _Alignas(64) unsigned char halves[SIM_MAP_BYTES];
    uint64_t scales;
    _Alignas(64) unsigned char weight[SIM_MAP_BYTES];
    uint64_t bias, residual, out, n_tokens;
    struct mm_args args;
};

static char *mm_wgmma; // the source as it ships
static uint16_t halves[ROWS * DEPTH], weight[OUTPUTS * DEPTH];

// ---- Numbers ------------------------------------------------------------------------------------
static uint16_t half_at(int i) { // 0.5 to 2 and their negatives, in no order
    uint32_t bits = (uint32_t)(i + 1) * 2654435761U;
    return (uint16_t)(0x3800 + bits % 2048 + (bits >> 31) * 0x8000);
}

static float float_of(uint16_t half) {
    uint32_t bits = (uint32_t)(half & 0x8000) << 16 | ((half >> 10 & 31) + 112U) << 23 |
                    (uint32_t)(half & 1023) << 13;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static float sum_at(int row, int output) { // one chain along K
    float sum = 0;
    for (int k = 0; k < DEPTH; k++) {
        sum += float_of(halves[row * DEPTH + k]) * float_of(weight[output * DEPTH + k]);
    }
    return sum;
}

// ---- A run --------------------------------------------------------------------------------------
static void make_map(
        unsigned char to[SIM_MAP_BYTES], uint64_t address, uint32_t rows, uint32_t box_rows) {
    const struct kiln_tensor_map map = {.struct_size = sizeof(map),
            .dtype = KILN_DTYPE_F16,
            .rank = 2,
            .dims = {DEPTH, rows},
            .strides = {2, DEPTH * 2},
            .box = {TILE, box_rows},
            .elem_strides = {1, 1},
            .swizzle = KILN_SWIZZLE_128};
    struct kiln_err err = {0};
    if (kiln_sim_map_encode(to, &map, address, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
}

static void run(
        struct sim_kernel *kernel, const char *text, const struct geometry *g, uint64_t *out) {
    char bm[32], bn[32], stages[32], smem[32];
    int consumers = g->bm / 64, ring = g->stages * (g->bm + g->bn) * TILE * 2;
    int sums = consumers * 4 * 16 * (g->bn + 8) * 4;
    uint32_t bytes = (uint32_t)((ring > sums ? ring : sums) + g->stages * 16);
    (void)snprintf(bm, sizeof(bm), "-DBM=%d", g->bm);
    (void)snprintf(bn, sizeof(bn), "-DBN=%d", g->bn);
    (void)snprintf(stages, sizeof(stages), "-DSTAGES=%d", g->stages);
    (void)snprintf(smem, sizeof(smem), "-DKILN_SMEM=%u", bytes);
    const char *const options[] = {bm, bn, stages, smem, "-DMM_GLU=0", NULL};
    const struct sim_source source = {.name = "mm_wgmma.cu",
            .text = text,
            .entry = "mm_wgmma",
            .options = options,
            .architecture = "compute_90a"};
    sim_kernel_open(kernel, &source);
    *out = sim_kernel_out(kernel, "out", ROWS * OUTPUTS * sizeof(float));
    struct params params = {.out = *out,
            .args = {.out_stride = OUTPUTS * sizeof(float),
                    .rows = ROWS,
                    .n = OUTPUTS,
                    .k = DEPTH,
                    .k_padded = DEPTH,
                    .out_wide = 1}};
    make_map(params.halves, sim_kernel_in(kernel, "halves", halves, sizeof(halves)), ROWS,
            (uint32_t)g->bm);
    make_map(params.weight, sim_kernel_in(kernel, "weight", weight, sizeof(weight)), OUTPUTS,
            (uint32_t)g->bn);
    const uint32_t grid[3] = {
            (uint32_t)((ROWS + g->bm - 1) / g->bm), (uint32_t)((OUTPUTS + g->bn - 1) / g->bn), 1};
    const uint32_t block[3] = {(uint32_t)(consumers + 1) * 128, 1, 1};
    sim_kernel_run(kernel, grid, block, bytes, &params, sizeof(params));
}

static int fill(void **state) {
    (void)state;
    for (int i = 0; i < ROWS * DEPTH; i++) {
        halves[i] = half_at(i);
    }
    for (int i = 0; i < OUTPUTS * DEPTH; i++) {
        weight[i] = half_at(i + ROWS * DEPTH);
    }
    mm_wgmma = sim_read_source("kernels_src/matmul/mm_wgmma.cu");
    return 0;
}

static int finish(void **state) {
    (void)state;
    kiln_free(mm_wgmma);
    return 0;
}

// ---- As it ships --------------------------------------------------------------------------------
static void check_counts(struct sim_kernel *kernel, const struct geometry *g) {
    char shape[64];
    const uint64_t across = (uint64_t)(ROWS + g->bm - 1) / g->bm;
    const uint64_t down = (uint64_t)(OUTPUTS + g->bn - 1) / g->bn;
    (void)snprintf(shape, sizeof(shape), "m64n%dk16.f32.f16.f16", g->bn);
    // A warp of four multiplies 16 rows by BN by 16 at a time.
    assert_int_equal(sim_report_mma(kernel->report, "mm_wgmma", shape),
            across * down * (uint64_t)(g->bm / 16) * TILES * (TILE / 16));
    const struct kiln_sim_kernel_counts *counts = sim_kernel_counts(kernel);
    // Of a tile two boxes; every row of activations once for each tile of outputs, and so on.
    assert_int_equal(counts->total.bulk_copies, across * down * TILES * 2);
    assert_int_equal(counts->total.bulk_bytes, (down * ROWS + across * OUTPUTS) * DEPTH * 2);
}

static void sim_mm_wgmma_is_right_in_every_geometry(void **state) {
    (void)state;
    static const struct geometry all[] = {
            {64, 128, 2}, {128, 256, 4}, {192, 128, 3}, {64, 256, 3}, {128, 128, 5}};
    static float out[ROWS * OUTPUTS];
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct sim_kernel kernel;
        uint64_t at;
        run(&kernel, mm_wgmma, &all[i], &at);
        sim_kernel_expect_silence(&kernel);
        sim_kernel_read(&kernel, out, at, sizeof(out));
        for (int e = 0; e < ROWS * OUTPUTS; e++) {
            float want = sum_at(e / OUTPUTS, e % OUTPUTS);
            if (memcmp(&out[e], &want, sizeof(want)) != 0) {
                fail_msg("BM %d BN %d STAGES %d: row %d output %d is %.9g, not %.9g", all[i].bm,
                        all[i].bn, all[i].stages, e / OUTPUTS, e % OUTPUTS, (double)out[e],
                        (double)want);
            }
        }
        check_counts(&kernel, &all[i]);
        sim_kernel_close(&kernel);
    }
}

// ---- Faults -------------------------------------------------------------------------------------
#define PRODUCES ", second, at, first_row, first_out, tiles);" // the copies' outermost line

static const struct fault {
    const char *what;
    enum kiln_sim_check check;
    const char *from, *to; // in the source
    const char *line;      // what stands on the line that is to blame, or where it was inlined
} faults[] = {
        {"sums leave before the last wait", KILN_SIM_CHECK_ASYNC, "    hopper_wgmma_wait<0>();\n",
                "\n", "*(float2 *)at = "},
        {"a buffer is given back while it is read", KILN_SIM_CHECK_RACE, "hopper_wgmma_wait<1>()",
                "hopper_wgmma_wait<2>()", PRODUCES},
        {"tiles are read before they are there", KILN_SIM_CHECK_ASYNC,
                "        bulk_wait(r.full + stage * 8, at.parity);",
                "        if (tile == 0) bulk_wait(r.full + stage * 8, at.parity);",
                "consume(r, at, sums, r"},
        {"only the activations are waited for", KILN_SIM_CHECK_ASYNC, "A_BYTES + B_BYTES);",
                "A_BYTES);", "consume(r, at, sums, r"},
        {"buffers are filled again with no wait", KILN_SIM_CHECK_ASYNC,
                "        bulk_wait(r.empty + stage * 8, at.parity);\n", "\n", PRODUCES},
        {"barriers that the copy engine does not see", KILN_SIM_CHECK_MBARRIER,
                "        bulk_barriers_begun();\n", "\n", PRODUCES},
        {"sums go over tiles that others read", KILN_SIM_CHECK_RACE,
                "            bulk_sync_some(1, CONSUMERS * 128);\n", "\n", "*(float2 *)at = "},
        {"a warp does not multiply", KILN_SIM_CHECK_LANES, "        consume(r, at, sums, r",
                "        if (threadIdx.x / 32 != 1) consume(r, at, sums, r",
                "consume(r, at, sums, r"},
        {"weights past the end of shared memory", KILN_SIM_CHECK_BOUNDS,
                "r.b = r.a + STAGES * A_BYTES;", "r.b = r.a + STAGES * A_BYTES + 2 * B_BYTES;",
                "consume(r, at, sums, r"},
};

static void sim_mm_wgmma_faults_are_found_on_their_line(void **state) {
    (void)state;
    static const struct geometry small = {64, 128, 2};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        const struct fault *f = &faults[i];
        struct sim_kernel kernel;
        uint64_t at;
        char *bad = sim_replace(mm_wgmma, f->from, f->to, 1);
        uint32_t line = sim_line_of(bad, f->line, 1), right = 0;
        run(&kernel, bad, &small, &at);
        const struct kiln_sim_finding *found;
        uint32_t n = kiln_sim_findings(kernel.report, &found);
        for (uint32_t k = 0; k < n; k++) {
            int inner = found[k].line == line && strcmp(found[k].file, "mm_wgmma.cu") == 0;
            int outer =
                    found[k].from_line == line && strcmp(found[k].from_file, "mm_wgmma.cu") == 0;
            right += found[k].check == f->check && (inner || outer);
        }
        for (uint32_t k = 0; k < n && right == 0; k++) {
            print_error("%s\n", found[k].text);
        }
        if (right == 0) {
            fail_msg("%s: %s is not told on line %u", f->what, kiln_sim_check_name(f->check), line);
        }
        sim_kernel_close(&kernel);
        kiln_free(bad);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(sim_mm_wgmma_is_right_in_every_geometry),
            cmocka_unit_test(sim_mm_wgmma_faults_are_found_on_their_line),
    };
    if (!sim_can_compile(0)) {
        return SIM_SKIPPED;
    }
    return cmocka_run_group_tests(tests, fill, finish);
}
