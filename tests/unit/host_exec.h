// host_exec: plans one op with a plugin and runs the launches, without the rest of kiln: for tests
// and benchmarks of host kernels. Header-only, because each test is one source file. Not a device:
// it checks nothing but itself.
#ifndef KILN_TESTS_HOST_EXEC_H
#define KILN_TESTS_HOST_EXEC_H

#include "base/mem.h"
#include "base/pool.h"
#include "kiln/plugin.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXEC_OPERANDS = 32,
    EXEC_ARGS = 24,
    EXEC_TEXT = 512
};

// One op under construction: its operands and where they lie.
struct exec_op {
    struct kiln_op op;
    struct kiln_tensor tensors[EXEC_OPERANDS];
    const struct kiln_tensor *list[EXEC_OPERANDS];
    void *address[EXEC_OPERANDS]; // by enum kiln_operand
    uint32_t phase;
    const char *variant; // NULL: the plugin's first
};

// What plan() answered: one launch, copied.
struct exec_plan {
    struct kiln_launch launch;
    struct kiln_arg args[EXEC_ARGS];
    uint64_t bytes[EXEC_ARGS][64];
    char kernel[64];
    char sum_order[96];
    uint32_t launches;
    int32_t result;       // enum kiln_result
    char text[EXEC_TEXT]; // of decline or fail
    kiln_host_fn fn;
};

struct exec_setup {
    uint32_t features; // enum kiln_host_feature
    uint32_t threads;
};

static inline const struct kiln_plugin *exec_open(const char *relative) {
    char path[4096];
    const char *root = getenv("KILN_TEST_BUILD");
    snprintf(path, sizeof(path), "%s/%s", root != NULL ? root : ".", relative);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
    }
    assert(library != NULL);
    const struct kiln_plugin *plugin = dlsym(library, "kiln_plugin_entry");
    assert(plugin != NULL);
    return plugin; // the library stays open
}

static inline struct exec_op exec_op(uint32_t kind, uint32_t phase) {
    struct exec_op op = {
            .op = {.struct_size = sizeof(struct kiln_op), .kind = kind, .role = "test"},
            .phase = phase};
    return op;
}

// stride: bytes from row to row, 0 for dense ones. elems and bytes: of the type's blocks.
static inline void exec_add(struct exec_op *op, uint32_t operand, uint32_t dtype, int64_t columns,
        int64_t rows, int64_t elems, int64_t bytes, int64_t stride, const void *address) {
    uint32_t i = op->op.n_operands++;
    assert(i < EXEC_OPERANDS);
    op->tensors[i] = (struct kiln_tensor){.struct_size = sizeof(struct kiln_tensor),
            .operand = operand,
            .dtype = dtype,
            .n_dims = 2,
            .dims = {columns, rows, 1, 1},
            .strides = {bytes, stride != 0 ? stride : columns / elems * bytes}};
    memcpy(&op->address[operand], &address, sizeof(address)); // casts const away
}

static inline void exec_f32(
        struct exec_op *op, uint32_t operand, int64_t columns, int64_t rows, const void *address) {
    exec_add(op, operand, KILN_DTYPE_F32, columns, rows, 1, 4, 0, address);
}

static inline void exec_i32(struct exec_op *op, uint32_t operand, int64_t n, const void *address) {
    exec_add(op, operand, KILN_DTYPE_I32, n, 1, 1, 4, 0, address);
    op->tensors[op->op.n_operands - 1].n_dims = 1;
}

// Makes the op's rows a bound, and *in_use what is in use. Call it last; weights and caches keep
// theirs.
static inline void exec_bound(struct exec_op *op, const int32_t *in_use) {
    for (uint32_t i = 0; i < op->op.n_operands; i++) {
        struct kiln_tensor *tensor = &op->tensors[i];
        switch (tensor->operand) {
        case KILN_OPERAND_IN:
        case KILN_OPERAND_OUT:
        case KILN_OPERAND_RESIDUAL:
        case KILN_OPERAND_GATE:
        case KILN_OPERAND_UP:
        case KILN_OPERAND_Q:
        case KILN_OPERAND_K:
        case KILN_OPERAND_V:
        case KILN_OPERAND_IDS:
        case KILN_OPERAND_POSITIONS: {
            uint32_t dim = tensor->n_dims == 1 ? 0 : 1;
            tensor->bound_dims = 1U << dim;
            tensor->bound_by[dim] = KILN_OPERAND_N_TOKENS;
            break;
        }
        default:
            break;
        }
    }
    exec_i32(op, KILN_OPERAND_N_TOKENS, 1, in_use);
}

static inline int32_t exec_sink_launch(struct kiln_plan *plan, const struct kiln_launch *launch) {
    struct exec_plan *made = plan->data;
    made->launch = *launch;
    snprintf(made->kernel, sizeof(made->kernel), "%s", launch->kernel);
    snprintf(made->sum_order, sizeof(made->sum_order), "%s",
            launch->sum_order != NULL ? launch->sum_order : "");
    assert(launch->n_args <= EXEC_ARGS);
    for (uint32_t i = 0; i < launch->n_args; i++) {
        made->args[i] = *launch->args[i];
        if (made->args[i].kind == KILN_ARG_BYTES) {
            assert(made->args[i].size <= sizeof(made->bytes[i]));
            memcpy(made->bytes[i], made->args[i].bytes, made->args[i].size);
        }
    }
    return (int32_t)made->launches++;
}

static inline int32_t exec_sink_decline(struct kiln_plan *plan, const char *reason) {
    struct exec_plan *made = plan->data;
    snprintf(made->text, sizeof(made->text), "%s", reason);
    return KILN_RESULT_DECLINED;
}

static inline int32_t exec_sink_fail(struct kiln_plan *plan, const char *text) {
    exec_sink_decline(plan, text);
    return KILN_RESULT_FAILED;
}

static inline struct exec_plan exec_make(const struct kiln_plugin *plugin, struct exec_op *op,
        const char *slot, struct exec_setup setup) {
    struct exec_plan made = {0};
    struct kiln_plan sink = {.struct_size = sizeof(sink),
            .data = &made,
            .launch = exec_sink_launch,
            .decline = exec_sink_decline,
            .fail = exec_sink_fail};
    for (uint32_t i = 0; i < op->op.n_operands; i++) {
        op->list[i] = &op->tensors[i];
    }
    op->op.operands = op->list;
    const struct kiln_op *ops[] = {&op->op};
    struct kiln_problem problem = {.struct_size = sizeof(problem),
            .phase = op->phase,
            .slot = slot,
            .ops = ops,
            .n_ops = 1,
            .world = 1};
    struct kiln_geometry geometry = {.struct_size = sizeof(geometry)};
    struct kiln_device device = {.struct_size = sizeof(device),
            .kind = KILN_DEVICE_HOST,
            .name = "cpu",
            .target = "cpu",
            .sm_count = (int32_t)setup.threads,
            .host_features = setup.features};
    const struct kiln_variant *variant = plugin->variants[0];
    for (uint32_t i = 0; op->variant != NULL && i < plugin->n_variants; i++) {
        if (strcmp(plugin->variants[i]->name, op->variant) == 0) {
            variant = plugin->variants[i];
        }
    }
    assert(op->variant == NULL || strcmp(variant->name, op->variant) == 0);
    made.result = variant->plan(NULL, &problem, &geometry, &device, &sink);
    for (uint32_t i = 0; made.result == KILN_RESULT_OK && i < variant->n_kernels; i++) {
        if (strcmp(variant->kernels[i]->name, made.kernel) == 0) {
            made.fn = variant->kernels[i]->host;
        }
    }
    return made;
}

struct exec_run {
    const struct exec_plan *plan;
    void *args[EXEC_ARGS];
    unsigned char *scratch; // one piece a worker
    size_t piece;
};

static inline void exec_block(void *arg, uint32_t index, uint32_t worker) {
    const struct exec_run *run = arg;
    const uint32_t *grid = run->plan->launch.grid;
    struct kiln_block block = {.struct_size = sizeof(block),
            .worker = worker,
            .grid = {grid[0], grid[1], grid[2]},
            .index = {index % grid[0], index / grid[0] % grid[1], index / grid[0] / grid[1]},
            .shared = run->scratch + worker * run->piece};
    run->plan->fn(&block, run->args);
}

// Runs the planned launch on a pool. Scratch is filled with NaN first.
static inline void exec_launch(
        const struct exec_plan *plan, const struct exec_op *op, struct kiln_pool *pool) {
    struct exec_run run = {.plan = plan};
    for (uint32_t i = 0; i < plan->launch.n_args; i++) {
        const struct kiln_arg *arg = &plan->args[i];
        if (arg->kind == KILN_ARG_BYTES) {
            memcpy(&run.args[i], &(const void *){plan->bytes[i]}, sizeof(void *));
        } else {
            run.args[i] = op->address[arg->operand];
            assert(run.args[i] != NULL);
        }
    }
    run.piece = ((size_t)plan->launch.shared_bytes + 127) / 64 * 64;
    run.scratch = kiln_alloc_aligned(64, run.piece * kiln_pool_threads(pool));
    assert(run.scratch != NULL);
    memset(run.scratch, 0xff, run.piece * kiln_pool_threads(pool));
    kiln_pool_run(pool, exec_block, &run,
            plan->launch.grid[0] * plan->launch.grid[1] * plan->launch.grid[2]);
    kiln_free(run.scratch);
}

static inline struct kiln_pool *exec_pool(uint32_t threads) {
    struct kiln_pool *pool = NULL;
    struct kiln_err err = {0};
    enum kiln_status status = kiln_pool_create(&pool, threads, &err);
    assert(status == KILN_STATUS_OK);
    return pool;
}

// Plans and runs; the plan must be OK.
static inline void exec_call(const struct kiln_plugin *plugin, struct exec_op *op, const char *slot,
        struct exec_setup setup) {
    struct exec_plan plan = exec_make(plugin, op, slot, setup);
    if (plan.result != KILN_RESULT_OK) {
        fprintf(stderr, "%s: %s\n", slot, plan.text);
    }
    assert(plan.result == KILN_RESULT_OK && plan.fn != NULL && plan.launches == 1);
    struct kiln_pool *pool = exec_pool(setup.threads);
    exec_launch(&plan, op, pool);
    kiln_pool_destroy(pool);
}

// What this processor has, as a device would say it.
static inline uint32_t exec_features(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return KILN_HOST_AVX2;
    }
#endif
    return 0;
}

// A fixed sequence of numbers; state is never 0.
static inline uint32_t exec_random(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static inline float exec_uniform(uint32_t *state) { // -1 .. 1
    return (float)(int32_t)exec_random(state) * 0x1p-31F;
}

struct exec_type {
    uint32_t dtype; // enum kiln_dtype
    const char *name;
    int64_t elems, bytes; // of a block
    int scales[2];        // byte offsets of its f16 scales; -1: none
};

static const struct exec_type exec_types[] = {
        {KILN_DTYPE_F32, "f32", 1, 4, {-1, -1}},
        {KILN_DTYPE_F16, "f16", 1, 2, {-1, -1}},
        {KILN_DTYPE_BF16, "bf16", 1, 2, {-1, -1}},
        {KILN_DTYPE_Q4_0, "q4_0", 32, 18, {0, -1}},
        {KILN_DTYPE_Q4_1, "q4_1", 32, 20, {0, 2}},
        {KILN_DTYPE_Q5_0, "q5_0", 32, 22, {0, -1}},
        {KILN_DTYPE_Q8_0, "q8_0", 32, 34, {0, -1}},
        {KILN_DTYPE_Q4_K, "q4_K", 256, 144, {0, 2}},
        {KILN_DTYPE_Q5_K, "q5_K", 256, 176, {0, 2}},
        {KILN_DTYPE_Q6_K, "q6_K", 256, 210, {208, -1}},
};
enum {
    EXEC_TYPES = sizeof(exec_types) / sizeof(exec_types[0])
};

// Random weights of moderate size: every bit random but for the scales' exponents.
static inline void exec_fill(
        const struct exec_type *type, unsigned char *at, size_t blocks, uint32_t *seed) {
    for (size_t b = 0; b < blocks; b++, at += type->bytes) {
        for (int64_t i = 0; i < type->bytes; i++) {
            at[i] = (unsigned char)(exec_random(seed) >> 16);
        }
        float value = exec_uniform(seed);
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        uint16_t half = (uint16_t)(0x2800 | (exec_random(seed) >> 8 & 0x83ff)); // ± 2^-5 .. 2^-4
        if (type->dtype == KILN_DTYPE_F32) {
            memcpy(at, &value, sizeof(value));
        } else if (type->dtype == KILN_DTYPE_BF16) {
            uint16_t upper = (uint16_t)(bits >> 16);
            memcpy(at, &upper, sizeof(upper));
        } else if (type->dtype == KILN_DTYPE_F16) {
            memcpy(at, &half, sizeof(half));
        }
        for (int i = 0; i < 2 && type->scales[i] >= 0; i++) {
            half = (uint16_t)(0x2000 | (exec_random(seed) >> 8 & 0x83ff));
            memcpy(at + type->scales[i], &half, sizeof(half));
        }
    }
}

#endif
