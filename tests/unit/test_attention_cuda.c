// The plans of the CUDA plugin `attention`, without a device: shared memory to the byte, grids,
// what is declined and why. That its kernels are right is seen where kernels run.
#include "base/buf.h"
#include "base/mem.h"
#include "plugin/plan.h"
#include "plugin/schema.h"
#include "plugin/verify.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PARAMS = 16,
    Q = 0,
    K = 1,
    V = 2,
    POSITIONS = 3,
    OUT = 4,
    N_TOKENS = 5,
    KV_LEN = 6,
    OPERANDS = 7
};

static const struct kiln_plugin *plugin;
static struct kiln_device device = {.struct_size = sizeof(device),
        .kind = KILN_DEVICE_CUDA,
        .name = "test",
        .target = "sm_90a",
        .cc = 90,
        .sm_count = 132,
        .warp_size = 32};

static const char *plugin_path(void) {
    static char path[4096];
    const char *root = getenv("KILN_TEST_BUILD");
    (void)snprintf(path, sizeof(path), "%s/plugins/attention/attention.so", root ? root : ".");
    return path;
}

static int open_plugin(void **state) {
    (void)state;
    void *library = dlopen(plugin_path(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        print_error("%s\n", dlerror());
        return -1;
    }
    plugin = dlsym(library, "kiln_plugin_entry");
    return plugin ? 0 : -1; // the library stays open
}

static const struct kiln_variant *variant_named(const char *name) {
    for (uint32_t i = 0; i < plugin->n_variants; i++) {
        if (strcmp(plugin->variants[i]->name, name) == 0) {
            return plugin->variants[i];
        }
    }
    print_error("no variant %s\n", name);
    abort();
}

// ---- A problem ----------------------------------------------------------------------------------
struct sample {
    struct kiln_tensor tensors[OPERANDS];
    const struct kiln_tensor *list[OPERANDS];
    struct kiln_op op;
    const struct kiln_op *ops[1];
    struct kiln_problem problem;
};

static void set_tensor(struct sample *sample, int at, uint32_t operand, uint32_t dtype,
        int64_t columns, int64_t rows) {
    int64_t elem = dtype == KILN_DTYPE_F16 ? 2 : 4;
    sample->tensors[at] = (struct kiln_tensor){.struct_size = sizeof(struct kiln_tensor),
            .operand = operand,
            .dtype = dtype,
            .n_dims = 2,
            .dims = {columns, rows, 1, 1},
            .strides = {elem, elem * columns, elem * columns * rows, elem * columns * rows},
            .alignment = 64};
    sample->list[at] = &sample->tensors[at];
}

static void make_sample(struct sample *sample, uint32_t phase, int32_t heads, int32_t kv_heads,
        int32_t head_size, int64_t rows, int64_t keys) {
    memset(sample, 0, sizeof(*sample));
    int64_t columns = (int64_t)heads * head_size, kv_columns = (int64_t)kv_heads * head_size;
    set_tensor(sample, Q, KILN_OPERAND_Q, KILN_DTYPE_F32, columns, rows);
    set_tensor(sample, K, KILN_OPERAND_K_CACHE, KILN_DTYPE_F16, kv_columns, keys);
    set_tensor(sample, V, KILN_OPERAND_V_CACHE, KILN_DTYPE_F16, kv_columns, keys);
    set_tensor(sample, POSITIONS, KILN_OPERAND_POSITIONS, KILN_DTYPE_I32, rows, 1);
    set_tensor(sample, OUT, KILN_OPERAND_OUT, KILN_DTYPE_F32, columns, rows);
    set_tensor(sample, N_TOKENS, KILN_OPERAND_N_TOKENS, KILN_DTYPE_I32, 1, 1);
    set_tensor(sample, KV_LEN, KILN_OPERAND_KV_LEN, KILN_DTYPE_I32, 1, 1);
    sample->op = (struct kiln_op){.struct_size = sizeof(struct kiln_op),
            .kind = KILN_OP_ATTENTION,
            .role = "attention",
            .operands = sample->list,
            .n_operands = OPERANDS,
            .n_heads = heads,
            .n_kv_heads = kv_heads,
            .head_size = head_size,
            .scale = 1.0F / sqrtf((float)head_size)};
    sample->ops[0] = &sample->op;
    sample->problem = (struct kiln_problem){.struct_size = sizeof(struct kiln_problem),
            .phase = phase,
            .slot = phase == KILN_PHASE_DECODE ? "attention.decode" : "attention.prefill",
            .ops = sample->ops,
            .n_ops = 1,
            .world = 1};
}

// settings: "FA_TQ=64 FA_TKV=32"; what it does not name has the schema's default. NULL when
// declined, why in err.
static struct kiln_planned *plan(
        struct sample *sample, const char *name, const char *settings, struct kiln_err *err) {
    const struct kiln_variant *variant = variant_named(name);
    const char *names[MAX_PARAMS];
    int64_t values[MAX_PARAMS];
    for (uint32_t i = 0; i < variant->n_params; i++) {
        const struct kiln_param *param = variant->params[i];
        char key[40];
        (void)snprintf(key, sizeof(key), "%s=", param->name);
        const char *at = strstr(settings, key);
        names[i] = param->name;
        values[i] = at ? strtoll(at + strlen(key), NULL, 10)
                       : kiln_param_default_value(param, sample->op.head_size, device.cc);
        assert_true(kiln_param_allows(param, values[i]));
    }
    struct kiln_geometry geometry = {sizeof(geometry), variant->n_params, names, values};
    enum kiln_plan_outcome outcome = KILN_PLAN_DECLINED;
    struct kiln_planned *planned = NULL;
    enum kiln_status status = kiln_plan_make(
            plugin, variant, NULL, &sample->problem, &geometry, &device, &outcome, &planned, err);
    if (status != KILN_STATUS_OK) {
        return NULL;
    }
    return outcome == KILN_PLAN_DONE ? planned : NULL;
}

static uint32_t shared_bytes(int32_t head_size, const char *name, const char *settings) {
    struct sample sample;
    struct kiln_err err = {0};
    make_sample(&sample, KILN_PHASE_PREFILL, 28, 4, head_size, 3325, 3325);
    struct kiln_planned *planned = plan(&sample, name, settings, &err);
    if (!planned) {
        fail_msg("%s %s: %s", name, settings, err.text);
    }
    uint32_t bytes = planned->launches[0].record.shared_bytes;
    kiln_planned_destroy(planned);
    return bytes;
}

// ---- Cases --------------------------------------------------------------------------------------
static void attention_cuda_asks_for_the_bytes_of_the_campaign(void **state) {
    (void)state;
    static const struct {
        const char *variant, *settings;
        uint32_t bytes;
    } rows[] = {
            {"fap1", "FA_TQ=64 FA_TKV=64 FA_SPAD=0", 69376},
            {"fap1", "FA_TQ=64 FA_TKV=32 FA_SPAD=0 FA_LEGACY_SMEM=1", 61184},
            {"fap1", "FA_TQ=64 FA_TKV=32 FA_SPAD=0 FA_LEGACY_SMEM=0", 43776},
            {"fap1", "FA_TQ=64 FA_TKV=64 FA_SPAD=8", 71424},
            {"fap1", "FA_TQ=64 FA_TKV=32 FA_SPAD=8", 45824},
            {"fap2", "FA_TQ=64 FA_TKV=32", 34816},
            {"fap2", "FA_TQ=64 FA_TKV=16", 32768},
            {"fap2db", "FA_TQ=64 FA_TKV=32", 52224},
            {"fap2db", "FA_TQ=48 FA_TKV=32", 47872},
            {"naive", "", 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(shared_bytes(128, rows[i].variant, rows[i].settings), rows[i].bytes);
    }
    // With equal sides the old launcher was right.
    assert_int_equal(shared_bytes(128, "fap1", "FA_TKV=64 FA_LEGACY_SMEM=1"),
            shared_bytes(128, "fap1", "FA_TKV=64 FA_LEGACY_SMEM=0"));
    assert_int_equal(shared_bytes(128, "fap2", "FA_TQ=96 FA_TKV=16 FA_KPAD=0"), 49152);
    assert_int_equal(shared_bytes(64, "fap2", "FA_TQ=192 FA_TKV=16 FA_KPAD=0"), 49152);
}

static void attention_cuda_grid_covers_rows_and_heads(void **state) {
    (void)state;
    struct sample sample;
    struct kiln_err err = {0};
    make_sample(&sample, KILN_PHASE_PREFILL, 28, 4, 128, 3325, 4096);
    struct kiln_planned *planned = plan(&sample, "fap2", "FA_TQ=64", &err);
    assert_non_null(planned);
    const struct kiln_launch *record = &planned->launches[0].record;
    assert_int_equal(record->grid[0], 52);
    assert_int_equal(record->grid[1], 28);
    assert_int_equal(record->block[0], 128);
    assert_true(record->n_sites == 4 && record->sites[1]->stride_bytes == 272);
    double pairs = 3325.0 * 4096 - 3325.0 * 3324 / 2;
    assert_true(fabs(record->flops - 4 * pairs * 28 * 128) < 1);
    kiln_planned_destroy(planned);
    planned = plan(&sample, "fap2db", "FA_TQ=192 FA_WROWS=32", &err);
    assert_non_null(planned);
    assert_int_equal(planned->launches[0].record.grid[0], 18);
    assert_int_equal(planned->launches[0].record.block[0], 192);
    kiln_planned_destroy(planned);
}

static void attention_cuda_counts_work_in_a_window(void **state) {
    (void)state;
    struct sample sample;
    struct kiln_err err = {0};
    make_sample(&sample, KILN_PHASE_PREFILL, 2, 1, 64, 5, 6);
    sample.op.window = 3; // rows see 2, 3, 3, 3, 3 keys
    struct kiln_planned *planned = plan(&sample, "fap2", "", &err);
    assert_non_null(planned);
    assert_true(planned->launches[0].record.flops == 4.0 * 14 * 2 * 64);
    kiln_planned_destroy(planned);
    make_sample(&sample, KILN_PHASE_PREFILL, 1, 1, 64, 6, 5); // the first row sees none
    planned = plan(&sample, "fap2", "", &err);
    assert_non_null(planned);
    assert_true(planned->launches[0].record.flops == 4.0 * 15 * 64);
    kiln_planned_destroy(planned);
}

static void attention_cuda_splits_fill_the_device(void **state) {
    (void)state;
    struct sample sample;
    struct kiln_err err = {0};
    make_sample(&sample, KILN_PHASE_DECODE, 28, 4, 128, 1, 8192);
    struct kiln_planned *planned = plan(&sample, "splitkv", "", &err);
    assert_non_null(planned);
    assert_int_equal(planned->n_launches, 2);
    const struct kiln_launch *record = &planned->launches[0].record;
    assert_int_equal(record->grid[0], 66); // 2 * 132 blocks over 4 KV heads
    assert_int_equal(record->grid[1], 4);
    assert_int_equal(record->grid[2], 1);
    assert_int_equal(record->shared_bytes, (16 + 2 * 64) * 272);
    assert_true(planned->workspaces[0].bytes == 28 * 66 * (128 + 2) * 4);
    assert_string_equal(planned->launches[1].record.kernel, "splitkv_combine");
    kiln_planned_destroy(planned);
    make_sample(&sample, KILN_PHASE_DECODE, 20, 1, 64, 3, 100); // 20 heads: two groups of 16
    planned = plan(&sample, "splitkv", "", &err);
    assert_non_null(planned);
    assert_int_equal(planned->launches[0].record.grid[0], 2); // no more parts than tiles of keys
    assert_int_equal(planned->launches[0].record.grid[2], 6);
    kiln_planned_destroy(planned);
}

// The last block joins: one launch, and a counter for each row, group and KV head.
static void attention_cuda_last_block_joins(void **state) {
    (void)state;
    struct sample sample;
    struct kiln_err err = {0};
    make_sample(&sample, KILN_PHASE_DECODE, 40, 2, 64, 3, 4096); // 20 heads a KV head: two groups
    struct kiln_planned *planned = plan(&sample, "splitkv", "FA_LAST=1", &err);
    assert_non_null(planned);
    assert_int_equal(planned->n_launches, 1);
    assert_int_equal(planned->n_workspaces, 2);
    assert_int_equal(planned->workspaces[0].flags, 0);
    assert_int_equal(planned->workspaces[1].bytes, 3 * 2 * 2 * 4);
    assert_int_equal(planned->workspaces[1].flags, KILN_WORKSPACE_ZERO | KILN_WORKSPACE_KEPT);
    assert_non_null(strstr(planned->launches[0].record.sum_order, ":last"));
    kiln_planned_destroy(planned);
}

static void expect_declined(
        struct sample *sample, const char *name, const char *settings, const char *reason) {
    struct kiln_err err = {0};
    struct kiln_planned *planned = plan(sample, name, settings, &err);
    assert_null(planned);
    if (!strstr(err.text, reason)) {
        fail_msg("%s: '%s' does not say '%s'", name, err.text, reason);
    }
}

static void attention_cuda_declines_with_a_reason(void **state) {
    (void)state;
    struct sample sample;
    make_sample(&sample, KILN_PHASE_PREFILL, 4, 2, 72, 10, 10);
    expect_declined(&sample, "fap2", "", "head size 72 is not handled, only multiples of 16");
    make_sample(&sample, KILN_PHASE_PREFILL, 4, 2, 512, 10, 10);
    expect_declined(&sample, "naive", "", "up to 256");
    make_sample(&sample, KILN_PHASE_PREFILL, 4, 2, 96, 10, 10);
    expect_declined(&sample, "fap1", "FA_TQ=32", "only multiples of 64");
    expect_declined(&sample, "fap2db", "FA_TQ=48 FA_WROWS=32", "no multiple of FA_WROWS 32");
    set_tensor(&sample, K, KILN_OPERAND_K_CACHE, KILN_DTYPE_F32, 192, 10);
    expect_declined(&sample, "fap2", "", "K_CACHE: dtype 0");
    make_sample(&sample, KILN_PHASE_PREFILL, 4, 2, 64, 10, 10);
    sample.tensors[V].strides[1] += 8;
    expect_declined(&sample, "fap2", "", "V_CACHE: aligned to 64 bytes, 264 from row to row");
    make_sample(&sample, KILN_PHASE_PREFILL, 4, 2, 64, 10, 10);
    sample.op.scale = 0;
    expect_declined(&sample, "fap2", "", "scale 0");
    make_sample(&sample, KILN_PHASE_PREFILL, 4, 2, 64, 10, 10);
    device.kind = KILN_DEVICE_HOST;
    expect_declined(&sample, "fap2", "", "only CUDA devices");
    device.kind = KILN_DEVICE_CUDA;
}

static void attention_cuda_reports_problems_that_contradict_themselves(void **state) {
    (void)state;
    struct sample sample;
    make_sample(&sample, KILN_PHASE_PREFILL, 5, 2, 64, 10, 10);
    expect_declined(&sample, "fap2", "", "5 heads are not a multiple of 2 KV heads");
    make_sample(&sample, KILN_PHASE_PREFILL, 4, 2, 64, 10, 10);
    set_tensor(&sample, V, KILN_OPERAND_V_CACHE, KILN_DTYPE_F16, 128, 9);
    expect_declined(&sample, "naive", "", "V_CACHE: 128 columns, 9 rows");
    make_sample(&sample, KILN_PHASE_PREFILL, 4, 2, 64, 10, 10);
    set_tensor(&sample, POSITIONS, KILN_OPERAND_POSITIONS, KILN_DTYPE_I32, 9, 1);
    expect_declined(&sample, "fap1", "", "POSITIONS: 9 x 1 values for 10 rows");
    sample.list[POSITIONS] = &sample.tensors[KV_LEN];
    expect_declined(&sample, "fap1", "", "POSITIONS is missing");
}

static void attention_cuda_names_one_order_of_sums_for_fap2_and_fap2db(void **state) {
    (void)state;
    struct sample sample;
    struct kiln_err err = {0};
    make_sample(&sample, KILN_PHASE_PREFILL, 4, 2, 64, 100, 100);
    struct kiln_planned *one = plan(&sample, "fap2", "FA_TQ=64 FA_TKV=32", &err);
    struct kiln_planned *two = plan(&sample, "fap2db", "FA_TQ=96 FA_TKV=32", &err);
    struct kiln_planned *other = plan(&sample, "fap2", "FA_TKV=16", &err);
    assert_true(one && two && other);
    const char *order = one->launches[0].record.sum_order;
    assert_string_equal(order, two->launches[0].record.sum_order);
    assert_string_not_equal(order, other->launches[0].record.sum_order);
    kiln_planned_destroy(one);
    kiln_planned_destroy(two);
    kiln_planned_destroy(other);
}

// Every corner of every schema on every sample device.
static void attention_cuda_passes_verify(void **state) {
    (void)state;
    struct kiln_buf report = {0};
    struct kiln_err err = {0};
    const struct kiln_verify_params params = {
            .path = plugin_path(), .limit_ms = KILN_VERIFY_LIMIT_MS};
    enum kiln_status status = kiln_plugin_verify(&params, &report, &err);
    if (status != KILN_STATUS_OK) {
        print_error("%s\n%s\n", err.text, report.data ? report.data : "");
    }
    assert_int_equal(status, KILN_STATUS_OK);
    kiln_buf_finish(&report);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(attention_cuda_asks_for_the_bytes_of_the_campaign),
            cmocka_unit_test(attention_cuda_grid_covers_rows_and_heads),
            cmocka_unit_test(attention_cuda_counts_work_in_a_window),
            cmocka_unit_test(attention_cuda_splits_fill_the_device),
            cmocka_unit_test(attention_cuda_last_block_joins),
            cmocka_unit_test(attention_cuda_declines_with_a_reason),
            cmocka_unit_test(attention_cuda_reports_problems_that_contradict_themselves),
            cmocka_unit_test(attention_cuda_names_one_order_of_sums_for_fap2_and_fap2db),
            cmocka_unit_test(attention_cuda_passes_verify),
    };
    return cmocka_run_group_tests(tests, open_plugin, NULL);
}
