// matmul_plugin: the plans of the plugins matmul and elementwise, for devices that are not here:
// every corner of the schemas, checked by kiln's own rules, against shared memory, grids and
// workspaces reckoned here. What the kernels compute is tests/gpu's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device/catalog.h"
#include "host_exec.h"
#include "plugin/plan.h"

static const char *const targets[] = {
        "sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120", "sm_121"};
enum {
    N_TARGETS = sizeof(targets) / sizeof(targets[0]),
    MAX_PARAMS = 16,
    GROUP = 3 // ops that a variant fills
};
static struct kiln_device_entry devices[N_TARGETS];
static const struct kiln_plugin *matmul, *elementwise;

static const struct {
    uint32_t dtype;
    const char *name;
    int64_t elems, bytes;
} types[] = {
        {KILN_DTYPE_Q4_K, "q4_K", 256, 144},
        {KILN_DTYPE_Q6_K, "q6_K", 256, 210},
        {KILN_DTYPE_Q5_K, "q5_K", 256, 176},
        {KILN_DTYPE_Q4_0, "q4_0", 32, 18},
        {KILN_DTYPE_Q4_1, "q4_1", 32, 20},
        {KILN_DTYPE_Q5_0, "q5_0", 32, 22},
        {KILN_DTYPE_Q8_0, "q8_0", 32, 34},
        {KILN_DTYPE_F16, "f16", 1, 2},
        {KILN_DTYPE_BF16, "bf16", 1, 2},
        {KILN_DTYPE_F32, "f32", 1, 4},
};
enum {
    N_TYPES = sizeof(types) / sizeof(types[0])
};

// A plan and all that it was made from.
struct made {
    struct kiln_planned *planned;
    enum kiln_plan_outcome outcome;
    enum kiln_status status;
    struct kiln_err err;
    int64_t values[MAX_PARAMS];
};

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

static const struct kiln_variant *variant_of(const struct kiln_plugin *plugin, const char *name) {
    for (uint32_t i = 0; i < plugin->n_variants; i++) {
        if (strcmp(plugin->variants[i]->name, name) == 0) {
            return plugin->variants[i];
        }
    }
    fail_msg("no variant %s", name);
    abort(); // not reached, which gcc does not know
}

static int64_t value_of(
        const struct kiln_variant *variant, const struct made *made, const char *name) {
    for (uint32_t i = 0; i < variant->n_params; i++) {
        if (strcmp(variant->params[i]->name, name) == 0) {
            return made->values[i];
        }
    }
    fail_msg("no parameter %s", name);
    return 0;
}

// corner: a mixed-radix number that picks the least, the default or the largest of each parameter;
// -1: defaults.
static void make_ops(struct made *made, const struct kiln_plugin *plugin,
        const struct kiln_variant *variant, struct exec_op *group, uint32_t n_ops,
        const struct kiln_device *device, int64_t corner) {
    const char *names[MAX_PARAMS];
    *made = (struct made){.planned = NULL};
    assert_true(variant->n_params <= MAX_PARAMS);
    for (uint32_t i = 0; i < variant->n_params; i++) {
        const struct kiln_param *param = variant->params[i];
        names[i] = param->name;
        int pick = corner < 0 ? 1 : (int)(corner % 3);
        corner = corner < 0 ? corner : corner / 3;
        int64_t least = param->allowed != NULL ? param->allowed[0] : param->min;
        int64_t most = param->allowed != NULL ? param->allowed[param->n_allowed - 1] : param->max;
        made->values[i] = pick == 0 ? least : pick == 1 ? default_of(param, device) : most;
    }
    const struct kiln_op *ops[GROUP];
    assert_true(n_ops <= GROUP);
    for (uint32_t n = 0; n < n_ops; n++) {
        for (uint32_t i = 0; i < group[n].op.n_operands; i++) {
            group[n].list[i] = &group[n].tensors[i];
        }
        group[n].op.operands = group[n].list;
        ops[n] = &group[n].op;
    }
    struct kiln_problem problem = {.struct_size = sizeof(problem),
            .phase = group->phase,
            .slot = "test",
            .ops = ops,
            .n_ops = n_ops,
            .world = 1};
    struct kiln_geometry geometry = {.struct_size = sizeof(geometry),
            .n_values = variant->n_params,
            .names = names,
            .values = made->values};
    made->status = kiln_plan_make(plugin, variant, NULL, &problem, &geometry, device,
            &made->outcome, &made->planned, &made->err);
}

static void make(struct made *made, const struct kiln_plugin *plugin,
        const struct kiln_variant *variant, struct exec_op *op, const struct kiln_device *device,
        int64_t corner) {
    make_ops(made, plugin, variant, op, 1, device, corner);
}

static int64_t corners_of(const struct kiln_variant *variant) {
    int64_t corners = 1;
    for (uint32_t i = 0; i < variant->n_params; i++) {
        corners *= 3;
    }
    return corners;
}

static void set_alignment(struct exec_op *op, uint64_t weight) {
    for (uint32_t i = 0; i < op->op.n_operands; i++) {
        struct kiln_tensor *tensor = &op->tensors[i];
        tensor->alignment = tensor->operand == KILN_OPERAND_WEIGHT ? weight : 64;
        tensor->flags = tensor->operand == KILN_OPERAND_WEIGHT ? KILN_TENSOR_WEIGHT : 0;
    }
}

static struct exec_op matmul_op(int type, int64_t s, int64_t n, int64_t k, uint32_t phase) {
    struct exec_op op = exec_op(KILN_OP_MATMUL, phase);
    k = k < types[type].elems ? types[type].elems : k - k % types[type].elems;
    exec_f32(&op, KILN_OPERAND_IN, k, s, NULL);
    exec_add(&op, KILN_OPERAND_WEIGHT, types[type].dtype, k, n, types[type].elems,
            types[type].bytes, 0, NULL);
    exec_f32(&op, KILN_OPERAND_BIAS, n, 1, NULL);
    exec_f32(&op, KILN_OPERAND_RESIDUAL, n, s, NULL);
    exec_f32(&op, KILN_OPERAND_OUT, n, s, NULL);
    exec_bound(&op, NULL);
    set_alignment(&op, 32);
    return op;
}

static int64_t blocks(int64_t count, int64_t size) {
    return (count + size - 1) / size;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int has_define(const struct kiln_launch *launch, const char *define) {
    for (uint32_t i = 0; i < launch->n_defines; i++) {
        if (strcmp(launch->defines[i], define) == 0) {
            return 1;
        }
    }
    return 0;
}

static int64_t define_of(const struct kiln_launch *launch, const char *name) {
    size_t len = strlen(name);
    for (uint32_t i = 0; i < launch->n_defines; i++) {
        if (strncmp(launch->defines[i], name, len) == 0 && launch->defines[i][len] == '=') {
            return strtoll(launch->defines[i] + len + 1, NULL, 10);
        }
    }
    return -1;
}

// What a GEMM's last launch must be.
static void check_gemm(
        const struct kiln_variant *variant, const struct made *made, const struct exec_op *op) {
    const struct kiln_planned *planned = made->planned;
    const struct kiln_launch *launch = &planned->launches[planned->n_launches - 1].record;
    int64_t s = op->tensors[0].dims[1];
    int64_t k = op->tensors[0].dims[0];
    int64_t n = op->tensors[1].dims[1];
    int64_t bm = value_of(variant, made, "BM");
    int64_t bn = value_of(variant, made, "BN"), tile_n = define_of(launch, "TILE_N");
    int64_t stages = value_of(variant, made, "STAGES");
    if (strcmp(variant->name, "f16_expand") == 0) { // fewer outputs where blocks would be too few
        assert_true(tile_n == bn || tile_n * 2 == bn || tile_n * 4 == bn);
        bn = tile_n;
    }
    int wgmma = strcmp(variant->name, "f16_wgmma") == 0;
    int64_t bk = wgmma ? 64 : value_of(variant, made, "BK");
    int64_t warps = wgmma ? bm / 16
                          : value_of(variant, made, "WARPS_M") * value_of(variant, made, "WARPS_N");
    int64_t columns = wgmma ? bn : bn / value_of(variant, made, "WARPS_N");
    int64_t shared = larger(stages * (bm + bn) * bk * 2, warps * 16 * (columns + 8) * 4);
    assert_int_equal(launch->shared_bytes, shared + (wgmma ? stages * 16 : 0));
    assert_int_equal(launch->block[0], wgmma ? warps * 32 + 128 : warps * 32);
    assert_int_equal(launch->grid[0], blocks(s, bm));
    assert_int_equal(launch->grid[1], blocks(n, bn));
    assert_true(launch->flops == 2.0 * (double)s * (double)n * (double)k);
    assert_non_null(launch->sum_order);
    assert_int_equal(planned->n_launches, 2);
    assert_string_equal(planned->launches[0].record.kernel, "mm_rows");
    assert_int_equal(planned->launches[0].record.grid[0], s);
    assert_int_equal(planned->n_workspaces, 2);
    assert_int_equal(planned->workspaces[0].bytes, s * blocks(k, 128) * 256);
    assert_int_equal(planned->workspaces[1].bytes, s * 4);
}

static void check_expansion(const struct made *made, const struct exec_op *op) {
    const struct kiln_planned *planned = made->planned;
    int64_t k = op->tensors[0].dims[0];
    int64_t n = op->tensors[1].dims[1];
    int as_it_is = op->tensors[1].dtype == KILN_DTYPE_F16 && k % 128 == 0;
    assert_int_equal(planned->n_preparations, as_it_is ? 0 : 1);
    if (!as_it_is) {
        const struct kiln_planned_preparation *preparation = &planned->preparations[0];
        assert_int_equal(preparation->record.buffer_bytes[0], n * blocks(k, 128) * 256);
        assert_int_equal(preparation->record.n_keys, 0);
        assert_int_equal(
                preparation->launches[0].record.grid[0], blocks(n * blocks(k, 128) * 8, 256));
    }
}

static void check_gemm_corners(const char *name, int expands) {
    static const int64_t shapes[][3] = {{1, 1, 32}, {129, 33, 576}, {3325, 18944, 3584}};
    const struct kiln_variant *variant = variant_of(matmul, name);
    int64_t done = 0;
    for (int t = 0; t < N_TARGETS; t++) {
        const struct kiln_device *device = &devices[t].desc;
        for (int64_t corner = -1; corner < corners_of(variant); corner++) {
            size_t shape = (size_t)(corner + 1) % 3;
            int type = (int)((corner + 1) % N_TYPES);
            struct exec_op op = matmul_op(
                    type, shapes[shape][0], shapes[shape][1], shapes[shape][2], KILN_PHASE_PREFILL);
            struct made made;
            make(&made, matmul, variant, &op, device, corner);
            // A corner may ask for more shared memory than there is; it may not be ill-formed.
            assert_true(made.status == KILN_STATUS_OK || made.status == KILN_STATUS_DEVICE);
            if (made.status == KILN_STATUS_OK && made.outcome == KILN_PLAN_DONE) {
                check_gemm(variant, &made, &op);
                if (expands) {
                    check_expansion(&made, &op);
                }
                done++;
            } else {
                assert_true(made.err.text[0] != '\0');
            }
            kiln_planned_destroy(made.planned);
        }
    }
    assert_true(done > 20);
}

static void matmul_f16_plans_every_corner(void **state) {
    (void)state;
    check_gemm_corners("f16", 0);
}

static void matmul_f16_expand_plans_every_corner(void **state) {
    (void)state;
    check_gemm_corners("f16_expand", 1);
}

static void matmul_f16_wgmma_plans_every_corner_on_its_target_alone(void **state) {
    (void)state;
    const struct kiln_variant *variant = variant_of(matmul, "f16_wgmma");
    struct exec_op op = matmul_op(0, 3325, 3584, 3584, KILN_PHASE_PREFILL);
    for (int t = 0; t < N_TARGETS; t++) {
        struct made made;
        make(&made, matmul, variant, &op, &devices[t].desc, -1);
        assert_int_equal(made.status, KILN_STATUS_OK);
        int here = strcmp(targets[t], "sm_90a") == 0;
        assert_int_equal(made.outcome, here ? KILN_PLAN_DONE : KILN_PLAN_DECLINED);
        if (here) {
            check_gemm(variant, &made, &op);
            check_expansion(&made, &op);
        } else {
            assert_non_null(strstr(made.err.text, "sm_90a"));
        }
        kiln_planned_destroy(made.planned);
    }
}

// ---- gate, up and activation --------------------------------------------------------------------
static void drop_operand(struct exec_op *op, uint32_t operand) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < op->op.n_operands; i++) {
        if (op->tensors[i].operand != operand) {
            op->tensors[n++] = op->tensors[i];
        }
    }
    op->op.n_operands = n;
}

static struct kiln_tensor *operand_of(struct exec_op *op, uint32_t operand) {
    for (uint32_t i = 0; i < op->op.n_operands; i++) {
        if (op->tensors[i].operand == operand) {
            return &op->tensors[i];
        }
    }
    fail_msg("no operand %u", operand);
    return op->tensors;
}

// An edge of whole blocks as rows of f16.
static void as_rows(struct kiln_tensor *tensor) {
    tensor->dtype = KILN_DTYPE_BLOCK;
    tensor->format = "f16_rows";
    tensor->strides[0] = 320;
    tensor->strides[1] = tensor->dims[0] / 128 * 320;
    tensor->strides[2] = tensor->strides[3] = tensor->strides[1] * tensor->dims[1];
}

// Weights of one type for the gate, the next for UP.
static void glu_ops(struct exec_op group[GROUP], int type, int64_t s, int64_t n, int64_t k) {
    for (int i = 0; i < 2; i++) {
        group[i] = matmul_op((type + i) % N_TYPES, s, n, k, KILN_PHASE_PREFILL);
        drop_operand(&group[i], KILN_OPERAND_RESIDUAL);
        operand_of(&group[i], KILN_OPERAND_OUT)->flags = KILN_TENSOR_INTERNAL;
    }
    group[2] = exec_op(KILN_OP_ACTIVATION, KILN_PHASE_PREFILL);
    group[2].op.activation = KILN_ACTIVATION_GELU_TANH;
    exec_f32(&group[2], KILN_OPERAND_GATE, n, s, NULL);
    exec_f32(&group[2], KILN_OPERAND_UP, n, s, NULL);
    exec_f32(&group[2], KILN_OPERAND_OUT, n, s, NULL);
    exec_bound(&group[2], NULL);
    set_alignment(&group[2], 32);
}

static void check_glu(const struct kiln_variant *variant, const struct made *made,
        struct exec_op *group, int64_t s, int64_t n, int64_t k) {
    const struct kiln_planned *planned = made->planned;
    const struct kiln_launch *launch = &planned->launches[planned->n_launches - 1].record;
    int wgmma = strcmp(variant->name, "f16_wgmma_glu") == 0;
    int64_t bn = wgmma ? value_of(variant, made, "BN") : define_of(launch, "TILE_N");
    uint32_t halves = 0; // weights that are f16 already
    for (int i = 0; i < 2; i++) {
        halves +=
                operand_of(&group[i], KILN_OPERAND_WEIGHT)->dtype == KILN_DTYPE_F16 && k % 128 == 0;
    }
    assert_int_equal(planned->n_launches, 2);
    assert_int_equal(planned->n_workspaces, 2); // rows of f16, their factors
    assert_string_equal(planned->launches[0].record.kernel, "mm_rows");
    assert_int_equal(planned->n_preparations, 2 - halves);
    assert_int_equal(launch->grid[0], blocks(s, value_of(variant, made, "BM")));
    assert_int_equal(launch->grid[1], blocks(n, bn / 2)); // half of the rows are UP's
    assert_true(launch->flops == 4.0 * (double)s * (double)n * (double)k);
    assert_true(launch->bytes_written == 4.0 * (double)s * (double)n);
    assert_true(has_define(launch, "MM_GLU=2"));
}

// Writes rows of f16 by two launches of one kernel: the second has blocks for one turn of the
// device at most, and no products to be counted.
static void check_glu_rows(const char *name) {
    struct exec_op group[GROUP];
    struct made made;
    glu_ops(group, 0, 3325, 18944, 3584);
    as_rows(operand_of(&group[2], KILN_OPERAND_OUT));
    make_ops(&made, matmul, variant_of(matmul, name), group, GROUP, &devices[4].desc, -1);
    assert_int_equal(made.status, KILN_STATUS_OK);
    assert_int_equal(made.outcome, KILN_PLAN_DONE);
    const struct kiln_planned *planned = made.planned;
    assert_int_equal(planned->n_launches, 3);
    const struct kiln_launch *once = &planned->launches[1].record;
    const struct kiln_launch *again = &planned->launches[2].record;
    assert_string_equal(once->kernel, again->kernel);
    assert_int_equal(once->shared_bytes, again->shared_bytes);
    assert_int_equal(once->n_defines, again->n_defines);
    for (uint32_t i = 0; i < once->n_defines; i++) { // compiled once
        assert_string_equal(once->defines[i], again->defines[i]);
    }
    assert_int_equal(once->grid[0], again->grid[0]);
    assert_true(again->grid[0] * again->grid[1] <= (uint32_t)devices[4].desc.sm_count);
    assert_true(once->bytes_written == 3325.0 * (18944 * 2 + 4));
    assert_true(again->flops == 0);
    assert_int_equal(planned->n_workspaces, 3);
    assert_int_equal(planned->workspaces[2].flags, KILN_WORKSPACE_ZERO);
    assert_int_equal(planned->workspaces[2].bytes, 3325 * 4);
    kiln_planned_destroy(made.planned);
}

static void matmul_glu_writes_rows_by_two_launches(void **state) {
    (void)state;
    check_glu_rows("f16_expand_glu");
    check_glu_rows("f16_wgmma_glu");
}

// Read as they are: no mm_rows, and the factor behind each row's values.
static void matmul_reads_rows_as_they_are(void **state) {
    (void)state;
    static const char *const names[] = {"f16", "f16_expand", "f16_wgmma"};
    for (int i = 0; i < 3; i++) {
        struct made made;
        struct exec_op op = matmul_op(0, 130, 64, 512, KILN_PHASE_PREFILL);
        as_rows(operand_of(&op, KILN_OPERAND_IN));
        make(&made, matmul, variant_of(matmul, names[i]), &op, &devices[4].desc, -1);
        assert_int_equal(made.status, KILN_STATUS_OK);
        assert_int_equal(made.outcome, KILN_PLAN_DONE);
        assert_int_equal(made.planned->n_launches, 1);
        const struct kiln_launch *launch = &made.planned->launches[0].record;
        assert_int_equal(launch->args[1]->kind, KILN_ARG_OPERAND);
        assert_int_equal(launch->args[1]->operand, KILN_OPERAND_IN);
        assert_int_equal(launch->args[1]->offset, 512 * 2);
        kiln_planned_destroy(made.planned);
    }
}

static void check_glu_corners(const char *name, int64_t least) {
    static const int64_t shapes[][3] = {{1, 1, 256}, {129, 33, 512}, {3325, 18944, 3584}};
    const struct kiln_variant *variant = variant_of(matmul, name);
    int64_t done = 0;
    for (int t = 0; t < N_TARGETS; t++) {
        for (int64_t corner = -1; corner < corners_of(variant); corner++) {
            const int64_t *shape = shapes[(corner + 1) % 3];
            struct exec_op group[GROUP];
            struct made made;
            glu_ops(group, (int)((corner + 1) % N_TYPES), shape[0], shape[1], shape[2]);
            make_ops(&made, matmul, variant, group, GROUP, &devices[t].desc, corner);
            assert_true(made.status == KILN_STATUS_OK || made.status == KILN_STATUS_DEVICE);
            if (made.status == KILN_STATUS_OK && made.outcome == KILN_PLAN_DONE) {
                check_glu(variant, &made, group, shape[0], shape[1], shape[2]);
                done++;
            } else {
                assert_true(made.err.text[0] != '\0');
            }
            assert_true(corner >= 0 || strcmp(name, "f16_wgmma_glu") == 0 || made.planned);
            kiln_planned_destroy(made.planned);
        }
    }
    assert_true(done >= least);
}

static void matmul_glu_plans_every_corner(void **state) {
    (void)state;
    check_glu_corners("f16_expand_glu", 20);
    check_glu_corners("f16_wgmma_glu", 10);
}

static void glu_refuses(struct exec_op group[GROUP], enum kiln_status status, const char *why) {
    struct made made;
    make_ops(&made, matmul, variant_of(matmul, "f16_expand_glu"), group, GROUP, &devices[1].desc,
            -1);
    assert_int_equal(made.status, status);
    assert_true(status != KILN_STATUS_OK || made.outcome == KILN_PLAN_DECLINED);
    if (!strstr(made.err.text, why)) {
        fail_msg("'%s', not '%s'", made.err.text, why);
    }
}

static void matmul_glu_refuses_with_reasons(void **state) {
    (void)state;
    struct exec_op group[GROUP];
    glu_ops(group, 0, 5, 64, 256);
    operand_of(&group[1], KILN_OPERAND_OUT)->flags = 0;
    glu_refuses(group, KILN_STATUS_OK, "others read them too");
    glu_ops(group, 0, 5, 64, 256);
    group[2].op.activation = 9;
    glu_refuses(group, KILN_STATUS_OK, "activation 9");
    glu_ops(group, 0, 5, 64, 256);
    group[0] = matmul_op(0, 5, 64, 256, KILN_PHASE_PREFILL); // with a residual
    glu_refuses(group, KILN_STATUS_OK, "RESIDUAL");
    glu_ops(group, 0, 5, 64, 256);
    operand_of(&group[1], KILN_OPERAND_IN)->dtype = KILN_DTYPE_F16;
    operand_of(&group[1], KILN_OPERAND_IN)->strides[0] = 2;
    glu_refuses(group, KILN_STATUS_OK, "IN: that of the up product");
    glu_ops(group, 0, 5, 64, 256);
    group[1] = matmul_op(0, 5, 63, 256, KILN_PHASE_PREFILL);
    glu_refuses(group, KILN_STATUS_FILE, "UP: 63 columns, GATE has 64");
}

static void matmul_defaults_fit_every_target(void **state) {
    (void)state;
    static const char *const names[] = {"f16", "f16_expand", "gemv", "gemv_simple"};
    for (int v = 0; v < 4; v++) {
        const struct kiln_variant *variant = variant_of(matmul, names[v]);
        for (int t = 0; t < N_TARGETS; t++) {
            for (int type = 0; type < N_TYPES; type++) {
                struct exec_op op = matmul_op(type, v >= 2 ? 1 : 512, 3584, 3584,
                        v >= 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL);
                struct made made;
                make(&made, matmul, variant, &op, &devices[t].desc, -1);
                assert_int_equal(made.status, KILN_STATUS_OK);
                assert_int_equal(made.outcome, KILN_PLAN_DONE);
                kiln_planned_destroy(made.planned);
            }
        }
    }
}

static void matmul_gemv_covers_all_outputs(void **state) {
    (void)state;
    static const int64_t outputs[] = {1, 3, 4, 33, 512, 51865, 152064};
    const struct kiln_variant *variant = variant_of(matmul, "gemv_simple");
    for (int64_t corner = -1; corner < corners_of(variant); corner++) {
        for (int i = 0; i < 7; i++) {
            struct exec_op op =
                    matmul_op(i % N_TYPES, 1 + i % 3, outputs[i], 3584, KILN_PHASE_DECODE);
            struct made made;
            make(&made, matmul, variant, &op, &devices[4].desc, corner);
            assert_int_equal(made.status, KILN_STATUS_OK);
            assert_int_equal(made.outcome, KILN_PLAN_DONE);
            const struct kiln_launch *launch = &made.planned->launches[0].record;
            int splits = 0;
            const char *order = strstr(launch->sum_order, ":s");
            assert_non_null(order);
            splits = (int)strtol(order + 2, NULL, 10);
            int64_t warps = value_of(variant, &made, "GEMV_WARPS");
            int64_t each = warps / splits * value_of(variant, &made, "ROWS");
            assert_true(splits >= 1 && warps % splits == 0);
            assert_int_equal(launch->grid[0], blocks(outputs[i], each));
            assert_int_equal(launch->grid[1], 1 + i % 3);
            assert_int_equal(launch->block[0], warps * 32);
            kiln_planned_destroy(made.planned);
        }
    }
}

static int64_t stage_of(int type, int64_t units) {
    int64_t unit = 256 / types[type].elems * types[type].bytes;
    int64_t pieces = types[type].elems == 256 && unit % 16 == 0 ? units * unit / 16
                                                                : blocks(units * unit + 14, 16);
    return (pieces + 1 - pieces % 2) * 256;
}

// Rings as long as shared memory allows, for every block type, by the copy engine where it is and
// most warps have units; what does not fit, and plain floats, go to the kernel that needs none.
static void check_stream(const struct kiln_variant *variant, const struct made *made, int type,
        int64_t k, const struct kiln_device *device) {
    const struct kiln_launch *launch = &made->planned->launches[0].record;
    int64_t asked = value_of(variant, made, "GEMV_WARPS"), units = blocks(k, 256);
    int64_t asked_bulk = value_of(variant, made, "GEMV_BULK");
    int simple = strcmp(launch->kernel, "mm_gemv") == 0;
    int64_t warps = !simple ? define_of(launch, "MV_WARPS") : asked < 4 ? asked : 4;
    int64_t bulk = simple ? 0 : define_of(launch, "MV_BULK");
    int64_t chunks = warps > 0 ? blocks(units, warps) : 1;
    int64_t chunk = chunks > 0 ? blocks(units, chunks) : 1; // units of a row in a stage
    int64_t stage = bulk ? stage_of(type, chunk) + 16 : warps * stage_of(type, 1);
    int64_t rest = warps * 1024 + blocks(warps * 4, 16) * 16 + units * 608;
    if (simple) {
        assert_true(types[type].elems == 1 || 2 * stage + rest > device->smem_block_optin);
        return;
    }
    int64_t stages = define_of(launch, "MV_STAGES"), rows = define_of(launch, "MV_ROWS");
    int64_t shared = stages * stage + rest;
    assert_true(types[type].elems > 1);
    assert_int_equal(launch->shared_bytes, shared);
    assert_true(shared <= device->smem_block_optin);
    assert_true(stages >= 2);
    assert_true(
            stages <= (bulk ? asked_bulk : value_of(variant, made, "GEMV_STAGES")) || stages == 2);
    int64_t all = warps + bulk; // the copies have a warp
    assert_true(all == asked || (stages == 2 && all >= 4 && asked % all == 0));
    assert_true(!bulk || (device->cc >= 90 && asked_bulk > 0 && asked > 1 && units * 2 > asked));
    assert_int_equal(define_of(launch, "MV_UNITS"), units);
    assert_int_equal(launch->block[0], all * 32);
    // 70 outputs: the fewest of a tile that multiprocessors are there for.
    assert_true(rows >= 9 && rows <= 16);
    assert_int_equal(launch->grid[0], blocks(70, rows));
}

static void matmul_stream_fits_shared_memory(void **state) {
    (void)state;
    static const int64_t inputs[] = {32, 576, 3584, 18944, 200000};
    const struct kiln_variant *variant = variant_of(matmul, "gemv");
    int streamed = 0, bulk = 0;
    for (int64_t corner = -1; corner < corners_of(variant); corner += 7) {
        for (int t = 0; t < N_TARGETS * N_TYPES * 5; t++) {
            const struct kiln_device *device = &devices[t % N_TARGETS].desc;
            int type = t / N_TARGETS % N_TYPES;
            struct exec_op op =
                    matmul_op(type, 1, 70, inputs[t / N_TARGETS / N_TYPES], KILN_PHASE_DECODE);
            struct made made;
            make(&made, matmul, variant, &op, device, corner);
            assert_int_equal(made.status, KILN_STATUS_OK);
            assert_int_equal(made.outcome, KILN_PLAN_DONE);
            check_stream(variant, &made, type, op.tensors[0].dims[0], device);
            const struct kiln_launch *launch = &made.planned->launches[0].record;
            int stream = strcmp(launch->kernel, "mm_stream") == 0;
            streamed += stream;
            bulk += stream && define_of(launch, "MV_BULK") == 1;
            kiln_planned_destroy(made.planned);
        }
    }
    assert_true(streamed > 100 && bulk > 20 && streamed - bulk > 20);
}

// As wide as the rows allow, and no wider than a type can use.
static void matmul_weights_are_read_as_aligned(void **state) {
    (void)state;
    static const struct {
        int type;
        int64_t k;
        uint64_t alignment;
        const char *define;
    } cases[] = {{0, 256, 32, "W_ALIGN=16"}, {0, 256, 8, "W_ALIGN=8"}, {0, 256, 2, "W_ALIGN=2"},
            {1, 256, 32, "W_ALIGN=2"}, {1, 512, 32, "W_ALIGN=4"}, {3, 64, 32, "W_ALIGN=4"},
            {3, 32, 32, "W_ALIGN=2"}, {4, 32, 32, "W_ALIGN=4"}, {7, 33, 32, "W_ALIGN=2"},
            {7, 40, 32, "W_ALIGN=16"}, {9, 33, 32, "W_ALIGN=4"}, {9, 36, 32, "W_ALIGN=16"}};
    const struct kiln_variant *variant = variant_of(matmul, "gemv_simple");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct exec_op op = matmul_op(cases[i].type, 1, 10, cases[i].k, KILN_PHASE_DECODE);
        struct made made;
        set_alignment(&op, cases[i].alignment);
        make(&made, matmul, variant, &op, &devices[1].desc, -1);
        assert_int_equal(made.outcome, KILN_PLAN_DONE);
        assert_true(has_define(&made.planned->launches[0].record, cases[i].define));
        kiln_planned_destroy(made.planned);
    }
}

static void matmul_f16_activations_need_no_conversion(void **state) {
    (void)state;
    const struct kiln_variant *variant = variant_of(matmul, "f16_expand");
    for (int odd = 0; odd < 2; odd++) {
        struct exec_op op = matmul_op(7, 512, 3584, odd ? 576 : 3584, KILN_PHASE_PREFILL);
        op.tensors[0].dtype = KILN_DTYPE_F16;
        op.tensors[0].strides[0] = 2;
        op.tensors[0].strides[1] = 2 * op.tensors[0].dims[0];
        struct made made;
        make(&made, matmul, variant, &op, &devices[4].desc, -1);
        assert_int_equal(made.outcome, KILN_PLAN_DONE);
        assert_int_equal(made.planned->n_launches, odd ? 2 : 1);
        assert_int_equal(made.planned->n_preparations, odd ? 1 : 0);
        kiln_planned_destroy(made.planned);
    }
}

static void matmul_refuses_with_reasons(void **state) {
    (void)state;
    static const char *const names[] = {"f16", "f16_expand", "gemv"};
    for (int v = 0; v < 3; v++) {
        const struct kiln_variant *variant = variant_of(matmul, names[v]);
        struct made made;
        struct exec_op op = matmul_op(0, 4, 10, 256, KILN_PHASE_PREFILL);
        op.tensors[1].dtype = KILN_DTYPE_Q2_K;
        make(&made, matmul, variant, &op, &devices[1].desc, -1);
        assert_int_equal(made.outcome, KILN_PLAN_DECLINED);
        assert_non_null(strstr(made.err.text, "WEIGHT"));
        op = matmul_op(0, 4, 10, 256, KILN_PHASE_PREFILL);
        set_alignment(&op, 1);
        make(&made, matmul, variant, &op, &devices[1].desc, -1);
        assert_int_equal(made.outcome, KILN_PLAN_DECLINED);
        assert_non_null(strstr(made.err.text, "aligned"));
        op = matmul_op(0, 4, 10, 256, KILN_PHASE_PREFILL);
        op.tensors[0].dims[0] = 255;
        make(&made, matmul, variant, &op, &devices[1].desc, -1);
        assert_int_equal(made.status, KILN_STATUS_FILE);
        assert_non_null(strstr(made.err.text, "IN"));
        struct kiln_device host = {.struct_size = sizeof(host),
                .kind = KILN_DEVICE_HOST,
                .name = "cpu",
                .target = "cpu"};
        op = matmul_op(0, 4, 10, 256, KILN_PHASE_PREFILL);
        make(&made, matmul, variant, &op, &host, -1);
        assert_int_equal(made.outcome, KILN_PLAN_DECLINED);
    }
}

// ---- elementwise --------------------------------------------------------------------------------
static struct exec_op elementwise_op(uint32_t kind, int64_t s, int64_t d) {
    struct exec_op op = exec_op(kind, KILN_PHASE_PREFILL);
    op.op.activation = KILN_ACTIVATION_SILU;
    op.op.n_heads = 6;
    op.op.n_kv_heads = 2;
    op.op.head_size = 64;
    op.op.rope_dims = 32;
    op.op.rope_style = KILN_ROPE_PAIRS;
    switch (kind) {
    case KILN_OP_NORM:
        exec_f32(&op, KILN_OPERAND_IN, d, s, NULL);
        exec_f32(&op, KILN_OPERAND_WEIGHT, d, 1, NULL);
        exec_f32(&op, KILN_OPERAND_RESIDUAL, d, s, NULL);
        break;
    case KILN_OP_ACTIVATION:
        exec_f32(&op, KILN_OPERAND_GATE, d, s, NULL);
        exec_f32(&op, KILN_OPERAND_UP, d, s, NULL);
        break;
    case KILN_OP_EMBED:
        exec_i32(&op, KILN_OPERAND_IDS, s, NULL);
        exec_add(&op, KILN_OPERAND_WEIGHT, KILN_DTYPE_Q4_0, d - d % 32, 100, 32, 18, 0, NULL);
        d -= d % 32;
        break;
    case KILN_OP_ARGMAX:
        exec_f32(&op, KILN_OPERAND_IN, d, s, NULL);
        exec_i32(&op, KILN_OPERAND_OUT, s, NULL);
        break;
    default:
        exec_f32(&op, KILN_OPERAND_Q, 384, s, NULL);
        exec_f32(&op, KILN_OPERAND_K, 128, s, NULL);
        exec_f32(&op, KILN_OPERAND_V, 128, s, NULL);
        exec_f32(&op, KILN_OPERAND_Q_NORM, 64, 1, NULL);
        exec_f32(&op, KILN_OPERAND_ROPE_FREQS, 16, 1, NULL);
        exec_i32(&op, KILN_OPERAND_POSITIONS, s, NULL);
        exec_add(&op, KILN_OPERAND_K_CACHE, KILN_DTYPE_F16, 128, 77, 1, 2, 0, NULL);
        exec_add(&op, KILN_OPERAND_V_CACHE, KILN_DTYPE_F16, 128, 77, 1, 2, 0, NULL);
        d = 384;
        break;
    }
    if (kind != KILN_OP_ARGMAX) {
        exec_f32(&op, KILN_OPERAND_OUT, d, s, NULL);
    }
    exec_bound(&op, NULL);
    set_alignment(&op, 32);
    return op;
}

// The number of threads that the launches' kernels need for one thread an item of `items` each.
static void elementwise_plans_every_corner(void **state) {
    (void)state;
    static const struct {
        const char *variant;
        uint32_t kind;
    } slots[] = {{"rms", KILN_OP_NORM}, {"rope_kv", KILN_OP_ROPE_KV}, {"glu", KILN_OP_ACTIVATION},
            {"gather", KILN_OP_EMBED}, {"two_step", KILN_OP_ARGMAX}};
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        const struct kiln_variant *variant = variant_of(elementwise, slots[i].variant);
        for (int64_t corner = -1; corner < corners_of(variant); corner++) {
            for (int64_t d = 33; d < 200000; d *= 17) {
                struct exec_op op = elementwise_op(slots[i].kind, 5, d);
                struct made made;
                make(&made, elementwise, variant, &op, &devices[(corner + 1) % N_TARGETS].desc,
                        corner);
                assert_int_equal(made.status, KILN_STATUS_OK);
                assert_int_equal(made.outcome, KILN_PLAN_DONE);
                const struct kiln_launch *launch = &made.planned->launches[0].record;
                int64_t threads = (int64_t)launch->grid[0] * launch->grid[1] * launch->block[0];
                int64_t rows = slots[i].kind == KILN_OP_ROPE_KV ? 5 * 10 * 32
                               : slots[i].kind == KILN_OP_EMBED ? 5 * ((d - d % 32) / 16)
                               : slots[i].kind == KILN_OP_NORM || slots[i].kind == KILN_OP_ARGMAX
                                       ? 5
                                       : 5 * blocks(d, 4);
                assert_true(threads >= rows);
                assert_int_equal(launch->block[0] % 32, 0);
                assert_int_equal(launch->shared_bytes, 0);
                kiln_planned_destroy(made.planned);
            }
        }
    }
}

static void elementwise_refuses_with_reasons(void **state) {
    (void)state;
    struct made made;
    struct exec_op op = elementwise_op(KILN_OP_ACTIVATION, 5, 64);
    op.op.activation = 9;
    make(&made, elementwise, variant_of(elementwise, "glu"), &op, &devices[1].desc, -1);
    assert_int_equal(made.outcome, KILN_PLAN_DECLINED);
    assert_non_null(strstr(made.err.text, "activation 9"));
    op = elementwise_op(KILN_OP_ROPE_KV, 5, 64);
    op.op.rope_dims = 65;
    make(&made, elementwise, variant_of(elementwise, "rope_kv"), &op, &devices[1].desc, -1);
    assert_int_equal(made.status, KILN_STATUS_FILE);
    op = elementwise_op(KILN_OP_NORM, 5, 64);
    op.tensors[1].dims[0] = 63;
    make(&made, elementwise, variant_of(elementwise, "rms"), &op, &devices[1].desc, -1);
    assert_int_equal(made.status, KILN_STATUS_FILE);
    assert_non_null(strstr(made.err.text, "WEIGHT"));
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
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(matmul_f16_plans_every_corner),
            cmocka_unit_test(matmul_f16_expand_plans_every_corner),
            cmocka_unit_test(matmul_f16_wgmma_plans_every_corner_on_its_target_alone),
            cmocka_unit_test(matmul_glu_plans_every_corner),
            cmocka_unit_test(matmul_glu_writes_rows_by_two_launches),
            cmocka_unit_test(matmul_reads_rows_as_they_are),
            cmocka_unit_test(matmul_glu_refuses_with_reasons),
            cmocka_unit_test(matmul_defaults_fit_every_target),
            cmocka_unit_test(matmul_gemv_covers_all_outputs),
            cmocka_unit_test(matmul_stream_fits_shared_memory),
            cmocka_unit_test(matmul_weights_are_read_as_aligned),
            cmocka_unit_test(matmul_f16_activations_need_no_conversion),
            cmocka_unit_test(matmul_refuses_with_reasons),
            cmocka_unit_test(elementwise_plans_every_corner),
            cmocka_unit_test(elementwise_refuses_with_reasons),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int t = 0; t < N_TARGETS; t++) {
        kiln_device_entry_finish(&devices[t]);
    }
    return failed;
}
