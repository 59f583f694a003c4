// solo: one call by itself on the host and on sim: what it computes, prepared weights, edges,
// guards, what is declined, and the clock.
#include "engine/solo.h"

#include "base/mem.h"
#include "engine/call.h"
#include "jit/jit.h"
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
    ROWS = 5,
    USED = 4, // rows in use
    K = 64,
    N = 32,
    MAX_OPERANDS = 8
};

// A problem of one op with its data, put together operand by operand.
struct made {
    struct kiln_op op;
    struct kiln_tensor tensors[MAX_OPERANDS];
    const struct kiln_tensor *operands[MAX_OPERANDS];
    const struct kiln_op *ops[1];
    struct kiln_problem problem;
    const void *data[KILN_SOLO_OPERANDS];
    uint32_t edges[KILN_SOLO_OPERANDS];
};

static struct kiln_registry *registry;
static const int32_t in_use = USED;
static float in[ROWS * K], weight[N * K], residual[ROWS * N], other[ROWS * K];

static void add(
        struct made *made, uint32_t operand, int64_t columns, int64_t rows, const void *data) {
    uint32_t i = made->op.n_operands++;
    assert_true(i < MAX_OPERANDS);
    made->tensors[i] = (struct kiln_tensor){.struct_size = sizeof(made->tensors[i]),
            .operand = operand,
            .dtype = operand == KILN_OPERAND_N_TOKENS ? KILN_DTYPE_I32 : KILN_DTYPE_F32,
            .n_dims = rows > 1 ? 2 : 1,
            .dims = {columns, rows, 1, 1},
            .strides = {4, columns * 4, columns * rows * 4, columns * rows * 4},
            .flags = operand == KILN_OPERAND_WEIGHT ? KILN_TENSOR_WEIGHT : 0,
            .alignment = 64};
    if (rows == ROWS) {
        made->tensors[i].bound_dims = 2;
        made->tensors[i].bound_by[1] = KILN_OPERAND_N_TOKENS;
    }
    made->data[operand] = data;
}

static void finish(struct made *made, enum kiln_op_kind kind, const char *slot) {
    add(made, KILN_OPERAND_N_TOKENS, 1, 1, &in_use);
    for (uint32_t i = 0; i < made->op.n_operands; i++) {
        made->operands[i] = &made->tensors[i];
    }
    made->op.struct_size = sizeof(made->op);
    made->op.kind = kind;
    made->op.role = "test";
    made->op.operands = made->operands;
    made->ops[0] = &made->op;
    made->problem = (struct kiln_problem){.struct_size = sizeof(made->problem),
            .phase = KILN_PHASE_PREFILL,
            .slot = slot,
            .ops = made->ops,
            .n_ops = 1,
            .layer = -1,
            .world = 1};
}

static void make_matmul(struct made *made) {
    *made = (struct made){0};
    add(made, KILN_OPERAND_IN, K, ROWS, in);
    add(made, KILN_OPERAND_WEIGHT, K, N, weight);
    add(made, KILN_OPERAND_RESIDUAL, N, ROWS, residual);
    add(made, KILN_OPERAND_OUT, N, ROWS, NULL);
    finish(made, KILN_OP_MATMUL, "matmul.f32.prefill");
}

static void make_activation(struct made *made) {
    *made = (struct made){0};
    add(made, KILN_OPERAND_GATE, K, ROWS, in);
    add(made, KILN_OPERAND_UP, K, ROWS, other);
    add(made, KILN_OPERAND_OUT, K, ROWS, NULL);
    made->op.activation = KILN_ACTIVATION_SILU;
    finish(made, KILN_OP_ACTIVATION, "activation");
}

// ---- Running ------------------------------------------------------------------------------------

struct running {
    struct kiln_dev *dev;
    struct kiln_solo *solo;
    const char *names[8];
    int64_t values[8];
    struct kiln_geometry geometry;
    enum kiln_plan_outcome outcome;
    struct kiln_err err;
};

static void must(enum kiln_status status, const struct running *r) {
    if (status != KILN_STATUS_OK) {
        fail_msg("%s: %s", kiln_status_name(status), r->err.text);
    }
}

static const struct kiln_variant *find(const char *plugin, const char *name) {
    const struct kiln_plugin *p = kiln_registry_find(registry, plugin);
    for (uint32_t i = 0; p && i < p->n_variants; i++) {
        if (strcmp(p->variants[i]->name, name) == 0) {
            return p->variants[i];
        }
    }
    fail_msg("%s has no variant %s", plugin, name);
    return NULL;
}

static enum kiln_status try_start(struct running *r, const char *device, const char *plugin,
        const char *name, struct made *made) {
    *r = (struct running){0};
    const struct kiln_dev_settings settings = {.threads = 2};
    must(kiln_dev_open(&r->dev, device, &settings, &r->err), r);
    const struct kiln_variant *variant = find(plugin, name);
    for (uint32_t i = 0; variant && i < variant->n_params; i++) {
        r->names[i] = variant->params[i]->name;
        r->values[i] = variant->params[i]->value;
    }
    r->geometry = (struct kiln_geometry){
            sizeof(r->geometry), variant ? variant->n_params : 0, r->names, r->values};
    struct kiln_solo_params params = {.dev = r->dev,
            .plugin = kiln_registry_find(registry, plugin),
            .variant = variant,
            .geometry = &r->geometry,
            .problem = &made->problem,
            .data = made->data,
            .edges = made->edges};
    must(kiln_registry_start(registry, params.plugin, &r->dev->desc, &params.instance, &r->err), r);
    return kiln_solo_create(&r->solo, &params, &r->outcome, &r->err);
}

static void start(struct running *r, const char *device, const char *plugin, const char *name,
        struct made *made) {
    must(try_start(r, device, plugin, name, made), r);
    assert_int_equal(r->outcome, KILN_PLAN_DONE);
}

static void stop(struct running *r) {
    kiln_solo_destroy(r->solo);
    kiln_dev_close(r->dev);
}

static void run_once(struct running *r) {
    must(kiln_solo_run(r->solo, &r->err), r);
    must(kiln_solo_sync(r->solo, &r->err), r);
}

static void read_out(struct running *r, float *out) {
    must(kiln_solo_read(r->solo, 0, KILN_OPERAND_OUT, out, &r->err), r);
}

static void check_activation(const float *out) {
    for (int i = 0; i < ROWS * K; i++) {
        double g = (double)in[i], want = g / (1 + exp(-g)) * (double)other[i];
        if (i < USED * K) {
            assert_true(fabs((double)out[i] - want) <= 1e-5 * (fabs(want) + 1));
        } else {
            assert_true(isnan(out[i])); // rows that are not in use are not written
        }
    }
}

static void check_matmul(const float *out, double times, double of_residual) {
    for (int i = 0; i < USED * N; i++) {
        double want = of_residual * (double)residual[i];
        for (int k = 0; k < K; k++) {
            want += times * (double)in[i / N * K + k] * (double)weight[i % N * K + k];
        }
        assert_true(fabs((double)out[i] - want) <= 1e-4 * (fabs(want) + 1));
    }
}

// ---- Tests --------------------------------------------------------------------------------------

static void solo_runs_on_the_host(void **state) {
    (void)state;
    struct made made;
    struct running r;
    float out[ROWS * K];
    make_activation(&made);
    start(&r, "cpu", "cpu", "exact", &made);
    assert_true(kiln_solo_planned(r.solo)->n_launches > 0);
    run_once(&r);
    read_out(&r, out);
    check_activation(out);
    stop(&r);
}

static void solo_runs_on_sim(void **state) {
    (void)state;
    struct kiln_jit_params params = {.cache = {.max_size = INT64_MAX}};
    struct kiln_jit *jit;
    struct kiln_err err = {0};
    assert_int_equal(kiln_jit_open(&jit, &params, &err), KILN_STATUS_OK);
    enum kiln_status have = kiln_jit_need_nvrtc(jit, &err);
    kiln_jit_close(jit);
    if (have != KILN_STATUS_OK) {
        print_message("%s\n", err.text);
        skip();
    }
    struct made made;
    struct running r;
    float out[ROWS * K];
    double seconds;
    make_activation(&made);
    start(&r, "sim:sm_80", "elementwise", "glu", &made);
    run_once(&r);
    read_out(&r, out);
    check_activation(out);
    const struct kiln_solo_timing timing = {.runs = 1, .repeats = 1};
    must(kiln_solo_time(r.solo, &timing, &seconds, &r.err), &r);
    assert_true(seconds > 0);
    stop(&r);
}

static void solo_prepares_weights(void **state) {
    (void)state;
    struct made made;
    struct running r;
    float out[ROWS * N], replaced[ROWS * N] = {0};
    make_matmul(&made);
    start(&r, "cpu", "fuse", "prepared", &made);
    assert_int_equal(kiln_solo_prepared_bytes(r.solo), sizeof(weight));
    run_once(&r);
    read_out(&r, out);
    check_matmul(out, 1, 1);
    must(kiln_solo_write(r.solo, 0, KILN_OPERAND_RESIDUAL, replaced, &r.err), &r);
    run_once(&r);
    read_out(&r, out);
    check_matmul(out, 1, 0);
    stop(&r);
}

static void solo_shares_the_memory_of_an_edge(void **state) {
    (void)state;
    struct made made;
    struct running r;
    float out[ROWS * N];
    make_matmul(&made);
    made.edges[KILN_OPERAND_RESIDUAL] = made.edges[KILN_OPERAND_OUT] = 1;
    start(&r, "cpu", "fuse", "plain", &made);
    run_once(&r);
    run_once(&r);
    read_out(&r, out);
    check_matmul(out, 2, 1);
    assert_memory_equal(out + USED * N, residual + USED * N, N * sizeof(float));
    stop(&r);
}

// Rows that lie closer than they are long: the last one reaches behind the end.
static void solo_sees_what_is_written_behind_the_end(void **state) {
    (void)state;
    struct made made;
    struct running r;
    float out[ROWS * N];
    static const int32_t all = ROWS;
    make_matmul(&made);
    for (uint32_t i = 0; i < made.op.n_operands; i++) {
        if (made.tensors[i].operand == KILN_OPERAND_OUT) {
            made.tensors[i].strides[1] -= 4;
            made.tensors[i].strides[2] = made.tensors[i].strides[3] = 0;
        }
    }
    made.data[KILN_OPERAND_N_TOKENS] = &all;
    start(&r, "cpu", "fuse", "plain", &made);
    run_once(&r);
    assert_int_equal(kiln_solo_read(r.solo, 0, KILN_OPERAND_OUT, out, &r.err), KILN_STATUS_CHECK);
    assert_non_null(strstr(r.err.text, "fuse/plain wrote behind the end of op 0's out"));
    assert_non_null(strstr(r.err.text, "at byte 620"));
    stop(&r);
}

static void solo_says_why_nothing_runs(void **state) {
    (void)state;
    struct made made;
    struct running r;
    make_matmul(&made);
    assert_int_equal(try_start(&r, "cpu", "fuse", "declines", &made), KILN_STATUS_OK);
    assert_int_equal(r.outcome, KILN_PLAN_DECLINED);
    assert_null(r.solo);
    assert_non_null(strstr(r.err.text, "not today"));
    stop(&r);
    assert_int_equal(try_start(&r, "cpu", "fuse", "fails", &made), KILN_STATUS_FILE);
    assert_null(r.solo);
    stop(&r);
    start(&r, "cpu", "fuse", "plain", &made);
    assert_int_equal(kiln_solo_write(r.solo, 0, KILN_OPERAND_BIAS, in, &r.err), KILN_STATUS_USAGE);
    stop(&r);
}

// ---- The clock ----------------------------------------------------------------------------------

static enum kiln_status an_hour(
        struct kiln_dev *dev, void *from, void *to, double *seconds, struct kiln_err *err) {
    (void)dev, (void)from, (void)to, (void)err;
    *seconds = 3600;
    return KILN_STATUS_OK;
}

static void solo_times_calls(void **state) {
    (void)state;
    struct made made;
    struct running r;
    double seconds[4];
    make_matmul(&made);
    start(&r, "cpu", "fuse", "plain", &made);
    static const struct kiln_solo_timing all[] = {
            {.runs = 4}, {.runs = 4, .repeats = 3}, {.runs = 4, .cold = 1}};
    for (size_t t = 0; t < sizeof(all) / sizeof(all[0]); t++) {
        must(kiln_solo_time(r.solo, &all[t], seconds, &r.err), &r);
        for (size_t i = 0; i < 4; i++) {
            assert_true(seconds[i] > 0 && seconds[i] < 1);
        }
    }
    // A device whose clock is ahead of the host's has been asked too early, or is wrong.
    const struct kiln_dev_ops *ops = r.dev->ops;
    struct kiln_dev_ops lying = *ops;
    lying.elapsed = an_hour;
    r.dev->ops = &lying;
    assert_int_equal(kiln_solo_time(r.solo, &all[0], seconds, &r.err), KILN_STATUS_CHECK);
    assert_non_null(strstr(r.err.text, "stopped before"));
    r.dev->ops = ops;
    stop(&r);
}

static int open_registry(void **state) {
    (void)state;
    char path[4096];
    struct kiln_err err = {0};
    for (size_t i = 0; i < ROWS * K; i++) {
        in[i] = sinf((float)i * 0.37f);
        other[i] = cosf((float)i * 0.11f) * 3;
    }
    for (size_t i = 0; i < N * K; i++) {
        weight[i] = sinf((float)i * 0.73f);
    }
    for (size_t i = 0; i < ROWS * N; i++) {
        residual[i] = (float)i;
    }
    assert_int_equal(kiln_registry_create(&registry, &err), KILN_STATUS_OK);
    (void)snprintf(path, sizeof(path), "%s/plugins", getenv("KILN_TEST_BUILD"));
    assert_int_equal(kiln_registry_add_dir(registry, path, &err), KILN_STATUS_OK);
    (void)snprintf(path, sizeof(path), "%s/tests/plugins_fuse/fuse.so", getenv("KILN_TEST_BUILD"));
    assert_int_equal(kiln_registry_add_file(registry, path, &err), KILN_STATUS_OK);
    return 0;
}

static int close_registry(void **state) {
    (void)state;
    kiln_registry_destroy(registry);
    return 0;
}

// ---- The call under it, on a device that only notes what is zeroed ------------------------------

static uint64_t cleared; // bytes

static enum kiln_status note_zeros(
        struct kiln_dev *dev, void *addr, uint64_t bytes, struct kiln_err *err) {
    (void)dev;
    (void)addr;
    (void)err;
    cleared += bytes;
    return KILN_STATUS_OK;
}

static void call_clears_what_is_kept_once(void **state) {
    (void)state;
    const struct kiln_dev_ops ops = {.zero = note_zeros};
    struct kiln_dev dev = {.ops = &ops};
    struct kiln_planned_workspace workspaces[] = {{.bytes = 1},
            {.bytes = 20, .flags = KILN_WORKSPACE_ZERO},
            {.bytes = 300, .flags = KILN_WORKSPACE_ZERO | KILN_WORKSPACE_KEPT}};
    const struct kiln_planned planned = {.workspaces = workspaces, .n_workspaces = 3};
    uint8_t memory[3];
    void *const at[] = {&memory[0], &memory[1], &memory[2]};
    const struct kiln_call_places places = {.workspaces = at};
    struct kiln_call call;
    struct kiln_err err = {0};
    assert_int_equal(kiln_call_init(&call, &planned, &places, &err), KILN_STATUS_OK);
    cleared = 0;
    assert_int_equal(kiln_call_clear_kept(&call, &dev, &err), KILN_STATUS_OK);
    assert_int_equal(cleared, 300);
    assert_int_equal(kiln_call_queue(&call, &dev, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_call_queue(&call, &dev, &err), KILN_STATUS_OK);
    assert_int_equal(cleared, 340);
    kiln_call_finish(&call, &dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(solo_runs_on_the_host),
            cmocka_unit_test(solo_runs_on_sim),
            cmocka_unit_test(solo_prepares_weights),
            cmocka_unit_test(solo_shares_the_memory_of_an_edge),
            cmocka_unit_test(solo_sees_what_is_written_behind_the_end),
            cmocka_unit_test(solo_says_why_nothing_runs),
            cmocka_unit_test(solo_times_calls),
            cmocka_unit_test(call_clears_what_is_kept_once),
    };
    return cmocka_run_group_tests(tests, open_registry, close_registry);
}
