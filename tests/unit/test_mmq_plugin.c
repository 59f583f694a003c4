// mmq_plugin: the plans of the int8 variants and of what makes their activations, for devices that
// are not here: tiles, parts of K, shared memory and workspaces, reckoned here. What the kernels
// compute is tests/gpu's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/catalog.h"
#include "host_exec.h"
#include "plugin/plan.h"

static const char *const targets[] = {
        "sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120", "sm_121"};
static const char *const names[] = {"mmq", "mmq_async", "mmq_expand"};
enum {
    N_TARGETS = sizeof(targets) / sizeof(targets[0]),
    H200 = 4,
    MAX_PARAMS = 16
};
static struct kiln_device_entry devices[N_TARGETS];
static const struct kiln_plugin *matmul, *elementwise;

static const struct {
    uint32_t dtype;
    int64_t elems, bytes;
    int pair; // two factors for each 32 columns
} types[] = {
        {KILN_DTYPE_Q4_K, 256, 144, 1},
        {KILN_DTYPE_Q6_K, 256, 210, 1},
        {KILN_DTYPE_Q5_K, 256, 176, 1},
        {KILN_DTYPE_Q4_0, 32, 18, 0},
        {KILN_DTYPE_Q4_1, 32, 20, 1},
        {KILN_DTYPE_Q5_0, 32, 22, 0},
        {KILN_DTYPE_Q8_0, 32, 34, 0},
};
enum {
    N_TYPES = sizeof(types) / sizeof(types[0])
};

struct made {
    struct kiln_planned *planned;
    enum kiln_plan_outcome outcome;
    enum kiln_status status;
    struct kiln_err err;
    const char *names[MAX_PARAMS];
    int64_t values[MAX_PARAMS];
};

static const struct kiln_variant *variant_of(const struct kiln_plugin *plugin, const char *name) {
    for (uint32_t i = 0; i < plugin->n_variants; i++) {
        if (strcmp(plugin->variants[i]->name, name) == 0) {
            return plugin->variants[i];
        }
    }
    fail_msg("no variant %s", name);
    return NULL;
}

static int64_t default_of(const struct kiln_param *param, const struct kiln_device *device) {
    for (uint32_t i = 0; i < param->n_defaults; i++) {
        const struct kiln_param_default *row = param->defaults[i];
        if ((row->target_min == 0 || device->cc >= row->target_min) &&
                (row->target_max == 0 || device->cc <= row->target_max)) {
            return row->value;
        }
    }
    return param->value;
}

struct setting {
    const char *key;
    int64_t value;
};

// The parameters that are not in the list, which ends with a key of NULL, have their defaults.
static void make_with(struct made *made, const struct kiln_plugin *plugin,
        const struct kiln_variant *variant, struct exec_op *op, const struct kiln_device *device,
        const struct setting *settings) {
    *made = (struct made){.planned = NULL};
    assert_true(variant->n_params <= MAX_PARAMS);
    for (uint32_t i = 0; i < variant->n_params; i++) {
        made->names[i] = variant->params[i]->name;
        made->values[i] = default_of(variant->params[i], device);
        for (const struct setting *set = settings; set->key != NULL; set++) {
            made->values[i] = strcmp(set->key, made->names[i]) == 0 ? set->value : made->values[i];
        }
    }
    for (uint32_t i = 0; i < op->op.n_operands; i++) {
        op->list[i] = &op->tensors[i];
        op->tensors[i].alignment = 64;
        op->tensors[i].flags =
                op->tensors[i].operand == KILN_OPERAND_WEIGHT ? KILN_TENSOR_WEIGHT : 0;
    }
    op->op.operands = op->list;
    const struct kiln_op *ops[] = {&op->op};
    struct kiln_problem problem = {.struct_size = sizeof(problem),
            .phase = op->phase,
            .slot = "test",
            .ops = ops,
            .n_ops = 1,
            .world = 1};
    struct kiln_geometry geometry = {.struct_size = sizeof(geometry),
            .n_values = variant->n_params,
            .names = made->names,
            .values = made->values};
    made->status = kiln_plan_make(plugin, variant, NULL, &problem, &geometry, device,
            &made->outcome, &made->planned, &made->err);
}

// key: a parameter that is given `value`, or NULL: all have their defaults.
static void make(struct made *made, const struct kiln_plugin *plugin,
        const struct kiln_variant *variant, struct exec_op *op, const struct kiln_device *device,
        const char *key, int64_t value) {
    const struct setting settings[] = {{key, value}, {NULL, 0}};
    make_with(made, plugin, variant, op, device, settings);
}

static int64_t value_of(
        const struct kiln_variant *variant, const struct made *made, const char *name) {
    for (uint32_t i = 0; i < variant->n_params; i++) {
        if (strcmp(made->names[i], name) == 0) {
            return made->values[i];
        }
    }
    fail_msg("no parameter %s", name);
    return 0;
}

static void add_q8(struct exec_op *op, uint32_t operand, int64_t k, int64_t s) {
    exec_add(op, operand, KILN_DTYPE_BLOCK, k, s, 32, 48, 0, NULL);
    op->tensors[op->op.n_operands - 1].format = "q8_32w";
}

static struct exec_op matmul_op(int type, int64_t s, int64_t n, int64_t k) {
    struct exec_op op = exec_op(KILN_OP_MATMUL, KILN_PHASE_PREFILL);
    add_q8(&op, KILN_OPERAND_IN, k, s);
    exec_add(&op, KILN_OPERAND_WEIGHT, types[type].dtype, k, n, types[type].elems,
            types[type].bytes, 0, NULL);
    exec_f32(&op, KILN_OPERAND_OUT, n, s, NULL);
    return op;
}

static int64_t blocks(int64_t count, int64_t size) {
    return (count + size - 1) / size;
}

static int has_define(const struct kiln_launch *launch, const char *define) {
    for (uint32_t i = 0; i < launch->n_defines; i++) {
        if (strcmp(launch->defines[i], define) == 0) {
            return 1;
        }
    }
    return 0;
}

static void mmq_defaults_fit_every_target(void **state) {
    (void)state;
    for (size_t v = 0; v < 3; v++) {
        const struct kiln_variant *variant = variant_of(matmul, names[v]);
        for (int t = 0; t < N_TARGETS; t++) {
            for (int type = 0; type < N_TYPES; type++) {
                struct exec_op op = matmul_op(type, 3325, 18944, 3584);
                struct made made;
                make(&made, matmul, variant, &op, &devices[t].desc, "STREAM_K", 0);
                if (made.status != KILN_STATUS_OK) {
                    fail_msg("%s: %s", targets[t], made.err.text);
                }
                if (v == 1 && t == 0) { // cp.async is not there
                    assert_int_equal(made.outcome, KILN_PLAN_DECLINED);
                    assert_non_null(strstr(made.err.text, "8.0"));
                    continue;
                }
                assert_int_equal(made.outcome, KILN_PLAN_DONE);
                const struct kiln_launch *launch = &made.planned->launches[0].record;
                int64_t bm = value_of(variant, &made, "BM");
                int64_t bn = value_of(variant, &made, "BN");
                int64_t bk = value_of(variant, &made, "BK");
                int64_t stage = (bm + bn) * bk + bk / 32 * (bm + 4) * 8 +
                                bk / 32 * (bn + 4) * (types[type].pair ? 8 : 4);
                assert_int_equal(launch->shared_bytes, stage * value_of(variant, &made, "STAGES"));
                assert_int_equal(launch->grid[0], blocks(3325, bm));
                assert_int_equal(launch->grid[1], blocks(18944, bn));
                assert_int_equal(launch->grid[2], 1);
                assert_int_equal(made.planned->n_launches, 1);
                assert_int_equal(made.planned->n_preparations, v == 2);
                if (v == 2) {
                    assert_int_equal(made.planned->preparations[0].record.buffer_bytes[0],
                            18944ll * 3584 / 32 * 40);
                }
                kiln_planned_destroy(made.planned);
            }
        }
    }
}

// Few rows take a tile of their size; the parts of K are as many as the device has room for, and
// none is empty. Of few tiles of few steps equal parts are the best way.
static void mmq_few_rows_share_the_device(void **state) {
    (void)state;
    static const struct {
        int64_t s, n, k;
        const char *tile;
    } cases[] = {{1, 3584, 3584, "TILE_M=16"}, {16, 3584, 18944, "TILE_M=16"},
            {17, 512, 3584, "TILE_M=32"}, {64, 512, 3584, "TILE_M=64"},
            {65, 512, 3584, "TILE_M=128"}, {512, 512, 3584, "TILE_M=128"}};
    const struct kiln_variant *variant = variant_of(matmul, "mmq");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct exec_op op = matmul_op(0, cases[i].s, cases[i].n, cases[i].k);
        struct made made;
        make(&made, matmul, variant, &op, &devices[H200].desc, NULL, 0);
        assert_int_equal(made.outcome, KILN_PLAN_DONE);
        const struct kiln_launch *launch = &made.planned->launches[0].record;
        assert_true(has_define(launch, cases[i].tile));
        int64_t parts = launch->grid[2];
        int64_t tiles = cases[i].k / 128;
        assert_true(parts > 1 && (parts - 1) * blocks(tiles, parts) < tiles);
        assert_int_equal(made.planned->n_launches, 2);
        assert_string_equal(made.planned->launches[1].record.kernel, "mm_mmq_join");
        assert_int_equal(made.planned->workspaces[0].bytes, parts * cases[i].s * cases[i].n * 4);
        kiln_planned_destroy(made.planned);
    }
    struct exec_op op = matmul_op(0, 512, 3584, 3584); // 112 blocks of 132: no room for two parts
    struct made made;
    make(&made, matmul, variant, &op, &devices[H200].desc, "STREAM_K", 0);
    assert_int_equal(made.planned->launches[0].record.grid[2], 1);
    assert_int_equal(made.planned->n_launches, 1);
    kiln_planned_destroy(made.planned);
    make(&made, matmul, variant, &op, &devices[H200].desc, "SPLITS", 5);
    assert_int_equal(made.planned->launches[0].record.grid[2], 5);
    assert_true(has_define(&made.planned->launches[0].record, "STREAMED=0"));
    kiln_planned_destroy(made.planned);
}

// As many blocks share steps as the device holds; behind them are whole turns of tiles. Parts have
// room; the seams cover what does not fill a turn.
static void check_streamed(const struct made *made, int64_t tiles, int64_t size, int64_t held) {
    const struct kiln_launch *product = &made->planned->launches[0].record;
    char order[64], tile[32];
    assert_true(has_define(product, "STREAMED=1"));
    assert_int_equal(product->grid[0], held + tiles / held * held);
    assert_int_equal(product->grid[1], 1);
    assert_int_equal(product->grid[2], 1);
    (void)snprintf(tile, sizeof(tile), "TILE_M=%d", (int)(size / 128));
    assert_true(has_define(product, tile));
    (void)snprintf(
            order, sizeof(order), "matmul_q8:k32:t%dx128x128:s%d", (int)(size / 128), (int)held);
    assert_string_equal(product->sum_order, order);
    assert_int_equal(made->planned->n_launches, 2);
    const struct kiln_launch *seams = &made->planned->launches[1].record;
    assert_string_equal(seams->kernel, "mm_mmq_seams");
    int64_t most = tiles < held ? tiles : held - 1; // with other rows in use, any rest of a turn
    assert_int_equal(seams->grid[0], most * blocks(size / 4, seams->block[0]));
    assert_int_equal(made->planned->workspaces[0].bytes, 2 * held * size * 4);
}

// A 7B's products on 132 multiprocessors: shared steps where tiles leave a turn of the device half
// empty, and enough of them to pay for the seams. A call has more than half of the rows.
static void mmq_streams_where_turns_are_not_full(void **state) {
    (void)state;
    static const struct {
        int64_t s, n, k;
        int streamed;
    } cases[] = {
            {512, 3584, 18944, 1},  // 84 or 112 tiles for 132
            {512, 18944, 3584, 1},  // 444 or 592: 3 turns and 48, 4 and 64
            {1024, 3584, 18944, 1}, // 140 to 224
            {64, 18944, 3584, 1},   // 148 for 264, two blocks each
            {1024, 18944, 3584, 0}, // 1184 when full, 9 turns less 4
            {512, 512, 3584, 0},    // 16 tiles of 28 steps: equal parts do
            {128, 3584, 3584, 0},
    };
    const struct kiln_variant *variant = variant_of(matmul, "mmq");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct exec_op op = matmul_op(0, cases[i].s, cases[i].n, cases[i].k);
        int64_t rows = cases[i].s == 64 ? 64 : 128;
        struct made made;
        make(&made, matmul, variant, &op, &devices[H200].desc, NULL, 0);
        assert_int_equal(made.outcome, KILN_PLAN_DONE);
        if (cases[i].streamed) {
            check_streamed(&made, blocks(cases[i].s, rows) * (cases[i].n / 128), rows * 128,
                    rows == 64 ? 264 : 132);
        } else {
            assert_true(has_define(&made.planned->launches[0].record, "STREAMED=0"));
        }
        kiln_planned_destroy(made.planned);
        make(&made, matmul, variant, &op, &devices[H200].desc, "STREAM_K", 0);
        assert_true(has_define(&made.planned->launches[0].record, "STREAMED=0"));
        assert_non_null(strstr(made.planned->launches[0].record.sum_order, ":p"));
        kiln_planned_destroy(made.planned);
    }
}

// Asked for, steps are shared whatever it costs, but not together with equal parts.
static void mmq_streams_when_asked(void **state) {
    (void)state;
    const struct kiln_variant *variant = variant_of(matmul, "mmq");
    struct made made;
    struct exec_op op = matmul_op(0, 512, 512, 3584);
    make(&made, matmul, variant, &op, &devices[H200].desc, "STREAM_K", 1);
    check_streamed(&made, 16, 128 * 128, 132);
    kiln_planned_destroy(made.planned);
    op = matmul_op(0, 17, 37888, 3584);
    make(&made, matmul, variant, &op, &devices[H200].desc, "STREAM_K", 1);
    check_streamed(&made, 296, 32 * 128, 264);
    kiln_planned_destroy(made.planned);
    op = matmul_op(3, 1, 1, 32);
    make(&made, matmul, variant, &op, &devices[H200].desc, "STREAM_K", 1);
    check_streamed(&made, 1, 16 * 128, 264);
    kiln_planned_destroy(made.planned);
    const struct setting both[] = {{"STREAM_K", 1}, {"SPLITS", 5}, {NULL, 0}};
    make_with(&made, matmul, variant, &op, &devices[H200].desc, both);
    assert_int_equal(made.outcome, KILN_PLAN_DECLINED);
    assert_non_null(strstr(made.err.text, "SPLITS to 0"));
    op = matmul_op(0, 1 << 29, 152064, 256); // 2^22 by 1188 tiles
    make(&made, matmul, variant, &op, &devices[H200].desc, "STREAM_K", 1);
    assert_int_equal(made.outcome, KILN_PLAN_DECLINED);
    assert_non_null(strstr(made.err.text, "STREAM_K 1: 4982833152 tiles"));
    make(&made, matmul, variant, &op, &devices[H200].desc, NULL, 0);
    assert_int_equal(made.outcome, KILN_PLAN_DONE);
    assert_true(has_define(&made.planned->launches[0].record, "STREAMED=0"));
    kiln_planned_destroy(made.planned);
}

static void mmq_refuses_with_reasons(void **state) {
    (void)state;
    const struct kiln_variant *variant = variant_of(matmul, "mmq");
    struct made made;
    struct exec_op op = matmul_op(1, 512, 512, 512);
    make(&made, matmul, variant, &op, &devices[H200].desc, "BK", 64);
    assert_int_equal(made.outcome, KILN_PLAN_DECLINED);
    assert_non_null(strstr(made.err.text, "q6_K"));
    op = matmul_op(0, 512, 512, 512);
    op.tensors[0].format = "q8_32"; // the host's
    make(&made, matmul, variant, &op, &devices[H200].desc, NULL, 0);
    assert_int_equal(made.outcome, KILN_PLAN_DECLINED);
    assert_non_null(strstr(made.err.text, "q8_32w"));
}

// Whoever writes the blocks writes them: the format is declared, and the plans take it.
static void mmq_activations_have_three_ways(void **state) {
    (void)state;
    assert_int_equal(matmul->n_formats, 2); // the other is f16_rows
    assert_string_equal(matmul->formats[0]->name, "q8_32w");
    assert_int_equal(matmul->formats[0]->block_elems, 32);
    assert_int_equal(matmul->formats[0]->block_bytes, 48);
    struct made made;
    struct exec_op op = exec_op(KILN_OP_QUANTIZE, KILN_PHASE_PREFILL);
    exec_f32(&op, KILN_OPERAND_IN, 3584, 5, NULL);
    add_q8(&op, KILN_OPERAND_OUT, 3584, 5);
    make(&made, matmul, variant_of(matmul, "q8_32w"), &op, &devices[0].desc, NULL, 0);
    assert_int_equal(made.outcome, KILN_PLAN_DONE);
    assert_int_equal(made.planned->launches[0].record.grid[0], 5 * 4);
    kiln_planned_destroy(made.planned);
    op = exec_op(KILN_OP_NORM, KILN_PHASE_PREFILL);
    exec_f32(&op, KILN_OPERAND_IN, 3584, 5, NULL);
    exec_f32(&op, KILN_OPERAND_WEIGHT, 3584, 1, NULL);
    add_q8(&op, KILN_OPERAND_OUT, 3584, 5);
    make(&made, elementwise, variant_of(elementwise, "rms_q8"), &op, &devices[0].desc, NULL, 0);
    assert_int_equal(made.outcome, KILN_PLAN_DONE);
    assert_true(has_define(&made.planned->launches[0].record, "OUT_Q8=1"));
    kiln_planned_destroy(made.planned);
    op = exec_op(KILN_OP_ACTIVATION, KILN_PHASE_PREFILL);
    op.op.activation = KILN_ACTIVATION_SILU;
    exec_f32(&op, KILN_OPERAND_GATE, 3584, 5, NULL);
    exec_f32(&op, KILN_OPERAND_UP, 3584, 5, NULL);
    add_q8(&op, KILN_OPERAND_OUT, 3584, 5);
    make(&made, elementwise, variant_of(elementwise, "glu_q8"), &op, &devices[0].desc, NULL, 0);
    assert_int_equal(made.outcome, KILN_PLAN_DONE);
    assert_true(has_define(&made.planned->launches[0].record, "OUT_Q8=1"));
    kiln_planned_destroy(made.planned);
}

int main(void) {
    char dir[4096];
    const char *root = getenv("KILN_TEST_SRC");
    snprintf(dir, sizeof(dir), "%s/configs/devices", root != NULL ? root : ".");
    matmul = exec_open("plugins/matmul/matmul.so");
    elementwise = exec_open("plugins/elementwise/elementwise.so");
    for (int t = 0; t < N_TARGETS; t++) {
        struct kiln_err err = {0};
        if (kiln_device_find(&devices[t], dir, targets[t], &err) != KILN_STATUS_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
    }
    devices[H200].desc.memory_bandwidth = 4.8e12; // its datasheet; a target alone says nothing
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(mmq_defaults_fit_every_target),
            cmocka_unit_test(mmq_few_rows_share_the_device),
            cmocka_unit_test(mmq_streams_where_turns_are_not_full),
            cmocka_unit_test(mmq_streams_when_asked),
            cmocka_unit_test(mmq_refuses_with_reasons),
            cmocka_unit_test(mmq_activations_have_three_ways),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int t = 0; t < N_TARGETS; t++) {
        kiln_device_entry_finish(&devices[t]);
    }
    return failed;
}
