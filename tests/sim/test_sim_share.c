// sim_share: int8 products whose blocks share steps (STREAM_K 1), on a device of 16
// multiprocessors: numbers of odd shapes with all of sim's checks on, the same bits every time, for
// tiles that are not cut the bits that they have with a block each, and as many shares as the rows
// in use need. Skipped (77) without NVRTC.
#include "sim_kernel.h"

#include "base/mem.h"
#include "device/sim/sim.h"
#include "engine/solo.h"
#include "lab/op_case.h"
#include "plugin/registry.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
    BM = 16, // of every case
    BN = 32,
    BK = 128,
    HELD = 2 * 16, // blocks that the device holds
    MAX_PARAMS = 16
};

static struct kiln_registry *registry;
static const struct kiln_plugin *matmul;

struct geometry {
    const char *names[MAX_PARAMS];
    int64_t values[MAX_PARAMS];
    struct kiln_geometry list;
};

struct call {
    struct kiln_dev *dev;
    struct kiln_op_case problem;
    struct geometry geometry;
    struct kiln_solo *solo;
    struct kiln_err err;
    int64_t rows, n;
    float *out, *again; // rows * n
};

static void must(enum kiln_status status, const struct call *call) {
    if (status != KILN_STATUS_OK) {
        fail_msg("%s: %s", kiln_status_name(status), call->err.text);
    }
}

// ---- A call -------------------------------------------------------------------------------------
static const struct kiln_variant *variant_of(const char *name, const char *slot) {
    for (uint32_t i = 0; i < matmul->n_variants; i++) {
        const struct kiln_variant *variant = matmul->variants[i];
        for (uint32_t k = 0; strcmp(variant->name, name) == 0 && k < variant->n_slots; k++) {
            if (strcmp(variant->slots[k], slot) == 0) {
                return variant;
            }
        }
    }
    fail_msg("no variant %s for %s", name, slot);
    return NULL;
}

static void set_geometry(
        struct geometry *geometry, const struct kiln_variant *variant, int64_t stream) {
    const struct {
        const char *name;
        int64_t value;
    } sets[] = {{"BM", BM}, {"BN", BN}, {"BK", BK}, {"WARPS_M", 1}, {"WARPS_N", 2},
            {"PRODUCERS", 4}, {"STAGES", 3}, {"SPLITS", stream ? 0 : 1}, {"STREAM_K", stream}};
    assert_true(variant->n_params <= MAX_PARAMS);
    for (uint32_t i = 0; i < variant->n_params; i++) {
        geometry->names[i] = variant->params[i]->name;
        geometry->values[i] = variant->params[i]->value;
        for (size_t k = 0; k < sizeof(sets) / sizeof(sets[0]); k++) {
            if (strcmp(sets[k].name, geometry->names[i]) == 0) {
                geometry->values[i] = sets[k].value;
            }
        }
    }
    geometry->list = (struct kiln_geometry){.struct_size = sizeof(geometry->list),
            .n_values = variant->n_params,
            .names = geometry->names,
            .values = geometry->values};
}

static void open_call(struct call *call, const char *name, const char *slot, int64_t stream,
        const struct kiln_shape *shape, enum kiln_case_fill fill) {
    const struct kiln_variant *variant = variant_of(name, slot);
    const struct kiln_dev_settings settings = {
            .threads = 2, .sim_checks = KILN_SIM_CHECK_ALL, .sim_counters = 1};
    *call = (struct call){.rows = shape->bound != 0 ? shape->bound : shape->m, .n = shape->n};
    must(kiln_dev_open(&call->dev, "sim:sm_87", &settings, &call->err), call);
    assert_int_equal(call->dev->desc.sm_count, HELD / 2);
    must(kiln_op_case_make(&call->problem, slot, matmul, variant, shape, fill, 1, &call->err),
            call);
    set_geometry(&call->geometry, variant, stream);
    struct kiln_solo_params params = {.dev = call->dev,
            .plugin = matmul,
            .variant = variant,
            .geometry = &call->geometry.list,
            .problem = &call->problem.problem,
            .data = call->problem.data,
            .edges = call->problem.edges};
    must(kiln_registry_start(registry, matmul, &call->dev->desc, &params.instance, &call->err),
            call);
    enum kiln_plan_outcome outcome;
    must(kiln_solo_create(&call->solo, &params, &outcome, &call->err), call);
    if (outcome != KILN_PLAN_DONE) {
        fail_msg("%s %s: %s", name, slot, call->err.text);
    }
    call->out = kiln_calloc((size_t)(call->rows * call->n), sizeof(float));
    call->again = kiln_calloc((size_t)(call->rows * call->n), sizeof(float));
    assert_true(call->out != NULL && call->again != NULL);
}

static void close_call(struct call *call) {
    struct kiln_sim_report *report = kiln_sim_dev_report(call->dev);
    const struct kiln_sim_finding *found;
    uint32_t n = kiln_sim_findings(report, &found);
    for (uint32_t i = 0; i < n; i++) {
        print_error("%s\n", found[i].text);
    }
    assert_int_equal(kiln_sim_faults(report), 0);
    kiln_solo_destroy(call->solo);
    kiln_op_case_finish(&call->problem);
    kiln_dev_close(call->dev);
    kiln_free(call->out);
    kiln_free(call->again);
}

// OUT, of NaN before.
static void run(struct call *call, float *out) {
    size_t bytes = (size_t)(call->rows * call->n) * sizeof(float);
    memset(out, 0xff, bytes);
    must(kiln_solo_write(call->solo, 0, KILN_OPERAND_OUT, out, &call->err), call);
    must(kiln_solo_run(call->solo, &call->err), call);
    must(kiln_solo_sync(call->solo, &call->err), call);
    must(kiln_solo_read(call->solo, 0, KILN_OPERAND_OUT, out, &call->err), call);
}

// ---- Numbers ------------------------------------------------------------------------------------
static void check_numbers(const char *name, const char *slot, const struct kiln_shape *shape) {
    struct call call;
    struct kiln_op_verdict verdict;
    open_call(&call, name, slot, 1, shape, KILN_FILL_NORMAL);
    run(&call, call.out);
    must(kiln_op_case_judge(&call.problem, call.solo, &verdict, &call.err), &call);
    if (!verdict.passed) {
        fail_msg("%s %s m=%d n=%d k=%d: %g of the bound", name, slot, (int)shape->m, (int)shape->n,
                (int)shape->k, verdict.worst);
    }
    run(&call, call.again);
    assert_memory_equal(call.out, call.again, (size_t)(call.rows * call.n) * sizeof(float));
    close_call(&call);
}

static void sim_share_odd_shapes(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 15, 16, 17, 63, 65, 127, 129};
    static const struct {
        const char *name, *slot;
        int64_t n, k;
    } cases[] = {{"mmq", "matmul.q4_K.prefill", 300, 512}, {"mmq", "matmul.q4_K.prefill", 1, 768},
            {"mmq", "matmul.q6_K.prefill", 67, 1280}, {"mmq", "matmul.q4_0.prefill", 33, 96},
            {"mmq_async", "matmul.q5_0.prefill", 67, 544},
            {"mmq_expand", "matmul.q8_0.prefill", 65, 416}};
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            const struct kiln_shape shape = {.m = rows[r],
                    .n = cases[i].n,
                    .k = cases[i].k,
                    .with = (r + i) % 2 ? KILN_WITH_BIAS | KILN_WITH_RESIDUAL : 0};
            check_numbers(cases[i].name, cases[i].slot, &shape);
        }
    }
}

// ---- Bits ---------------------------------------------------------------------------------------
enum {
    ROWS = 129,
    OUTPUTS = 300,
    COLUMNS = 512,
    ROW_TILES = (ROWS + BM - 1) / BM,
    TILES = ROW_TILES * ((OUTPUTS + BN - 1) / BN), // 90: two turns of 32, and 26
    STEPS = COLUMNS / BK
};

// Whether several of the blocks that share what does not fill a turn make this tile.
static int is_cut(int64_t tile) {
    int64_t whole = TILES - TILES % HELD;
    int64_t steps = (TILES - whole) * STEPS, each = steps / HELD, longer = steps % HELD;
    for (int64_t block = 1; tile >= whole && block < HELD; block++) {
        int64_t at = block * each + (block < longer ? block : longer);
        if (at / STEPS == tile - whole && at % STEPS != 0) {
            return 1;
        }
    }
    return 0;
}

static const struct kiln_shape shape = {
        .m = ROWS, .n = OUTPUTS, .k = COLUMNS, .with = KILN_WITH_BIAS | KILN_WITH_RESIDUAL};
static const char slot[] = "matmul.q4_K.prefill";

static void compare_with_tiles(enum kiln_case_fill fill, int exact) {
    struct call tiles, shared;
    open_call(&tiles, "mmq", slot, 0, &shape, fill);
    open_call(&shared, "mmq", slot, 1, &shape, fill);
    run(&tiles, tiles.out);
    run(&shared, shared.out);
    int64_t differ = 0;
    assert_int_equal(kiln_solo_planned(shared.solo)->launches[0].record.grid[0], 3 * HELD);
    for (int64_t row = 0; row < ROWS; row++) {
        for (int64_t n = 0; n < OUTPUTS; n++) {
            int64_t at = row * OUTPUTS + n, tile = n / BN * ROW_TILES + row / BM;
            int same = memcmp(&tiles.out[at], &shared.out[at], sizeof(float)) == 0;
            if (!same && (exact || !is_cut(tile))) {
                fail_msg("row %d output %d: %g, with a block each %g", (int)row, (int)n,
                        (double)shared.out[at], (double)tiles.out[at]);
            }
            differ += !same;
        }
    }
    assert_true(exact || differ > 0); // sums of cut tiles are grouped otherwise
    close_call(&tiles);
    close_call(&shared);
}

static void sim_share_whole_tiles_have_their_bits(void **state) {
    (void)state;
    compare_with_tiles(KILN_FILL_NORMAL, 0);
    compare_with_tiles(KILN_FILL_EXACT, 1); // nothing is rounded: cut ones, too
}

static uint64_t count_mma(struct call *call) {
    return sim_report_mma(kiln_sim_dev_report(call->dev), "mm_mmq", "");
}

// Fewer rows than the bound: other tiles are cut, each is made once, and with exact scales nothing
// comes out otherwise; rows that are not in use are not written.
static void sim_share_follows_the_rows_in_use(void **state) {
    (void)state;
    struct kiln_shape bounded = shape;
    struct call call;
    bounded.bound = ROWS;
    open_call(&call, "mmq", slot, 1, &bounded, KILN_FILL_EXACT);
    run(&call, call.out);
    for (int32_t in_use = 0; in_use < ROWS; in_use += 43) {
        must(kiln_solo_write(call.solo, 0, KILN_OPERAND_N_TOKENS, &in_use, &call.err), &call);
        uint64_t before = count_mma(&call);
        run(&call, call.again);
        int64_t tiles = (in_use + BM - 1) / BM * (TILES / ROW_TILES);
        assert_int_equal(
                count_mma(&call) - before, tiles * STEPS * (BM / 16) * (BN / 8) * (BK / 32));
        size_t used = (size_t)in_use * OUTPUTS;
        assert_memory_equal(call.out, call.again, used * sizeof(float));
        for (size_t i = used; i < (size_t)ROWS * OUTPUTS; i++) {
            assert_true(isnan(call.again[i]));
        }
    }
    close_call(&call);
}

static int open_registry(void **state) {
    (void)state;
    char path[4096];
    struct kiln_err err = {0};
    assert_int_equal(kiln_registry_create(&registry, &err), KILN_STATUS_OK);
    (void)snprintf(path, sizeof(path), "%s/plugins", getenv("KILN_TEST_BUILD"));
    assert_int_equal(kiln_registry_add_dir(registry, path, &err), KILN_STATUS_OK);
    matmul = kiln_registry_find(registry, "matmul");
    assert_non_null(matmul);
    return 0;
}

static int close_registry(void **state) {
    (void)state;
    kiln_registry_destroy(registry);
    return 0;
}

int main(void) {
    if (!sim_can_compile(0)) {
        return SIM_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(sim_share_odd_shapes),
            cmocka_unit_test(sim_share_whole_tiles_have_their_bits),
            cmocka_unit_test(sim_share_follows_the_rows_in_use),
    };
    return cmocka_run_group_tests(tests, open_registry, close_registry);
}
