// fuse: a plugin of plain host kernels over f32 weights that uses what the ABI has beside single
// ops: a variant that fills q, k and v together, a norm that writes a block format itself, a
// quantize op, a matmul that reads the format, one that runs on prepared weights, and variants that
// decline or fail.
//
// The block format "q8_test" is 32 values as int8 behind an f32 scale.
#include "kiln/plugin.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 32
};
struct block {
    float scale;
    int8_t q[BLOCK];
};

struct shape { // by value to every kernel
    int64_t k, n;
    float eps;
    int32_t has_residual;
};

// ---- Kernels: one grid block is one row ---------------------------------------------------------

static int unused_row(const struct kiln_block *block, const int32_t *n_tokens) {
    return (int32_t)block->index[0] >= *n_tokens;
}

static void quantize_row(const float *in, int64_t k, struct block *out) {
    for (int64_t b = 0; b < k / BLOCK; b++) {
        float top = 0;
        for (int i = 0; i < BLOCK; i++) {
            top = fmaxf(top, fabsf(in[b * BLOCK + i]));
        }
        out[b].scale = top / 127;
        for (int i = 0; i < BLOCK; i++) {
            out[b].q[i] = (int8_t)(top > 0 ? lrintf(in[b * BLOCK + i] / out[b].scale) : 0);
        }
    }
}

// in, out (blocks), n_tokens, shape
static void quantize(const struct kiln_block *block, void *const *args) {
    const struct shape *s = args[3];
    if (!unused_row(block, args[2])) {
        quantize_row((const float *)args[0] + block->index[0] * s->k, s->k,
                (struct block *)args[1] + block->index[0] * (s->k / BLOCK));
    }
}

// in, weight, out (blocks), n_tokens, shape
static void norm_quantize(const struct kiln_block *block, void *const *args) {
    const struct shape *s = args[4];
    if (unused_row(block, args[3])) {
        return;
    }
    const float *in = (const float *)args[0] + block->index[0] * s->k, *weight = args[1];
    float row[4096], sum = 0;
    for (int64_t i = 0; i < s->k; i++) {
        sum += in[i] * in[i];
    }
    float scale = 1 / sqrtf(sum / (float)s->k + s->eps);
    for (int64_t i = 0; i < s->k; i++) {
        row[i] = in[i] * scale * weight[i];
    }
    quantize_row(row, s->k, (struct block *)args[2] + block->index[0] * (s->k / BLOCK));
}

// in, weight, out, n_tokens, shape, residual
static void matmul_row(
        const struct kiln_block *block, const float *in, void *const *args, int transposed) {
    const struct shape *s = args[4];
    const float *weight = args[1], *residual = s->has_residual ? args[5] : NULL;
    float *out = (float *)args[2] + block->index[0] * s->n;
    for (int64_t n = 0; n < s->n; n++) {
        float sum = 0;
        for (int64_t k = 0; k < s->k; k++) {
            sum += in[k] * (transposed ? weight[k * s->n + n] : weight[n * s->k + k]);
        }
        out[n] = sum + (residual ? residual[block->index[0] * s->n + n] : 0);
    }
}

static void matmul(const struct kiln_block *block, void *const *args) {
    const struct shape *s = args[4];
    if (!unused_row(block, args[3])) {
        matmul_row(block, (const float *)args[0] + block->index[0] * s->k, args, 0);
    }
}

static void matmul_prepared(const struct kiln_block *block, void *const *args) {
    const struct shape *s = args[4];
    if (!unused_row(block, args[3])) {
        matmul_row(block, (const float *)args[0] + block->index[0] * s->k, args, 1);
    }
}

static void matmul_q8(const struct kiln_block *block, void *const *args) {
    const struct shape *s = args[4];
    float row[4096];
    if (unused_row(block, args[3])) {
        return;
    }
    const struct block *in = (const struct block *)args[0] + block->index[0] * (s->k / BLOCK);
    for (int64_t k = 0; k < s->k; k++) {
        row[k] = in[k / BLOCK].scale * in[k / BLOCK].q[k % BLOCK];
    }
    matmul_row(block, row, args, 0);
}

// weight, transposed weight, shape; a block is a row of the weight
static void transpose(const struct kiln_block *block, void *const *args) {
    const struct shape *s = args[2];
    const float *from = (const float *)args[0] + block->index[0] * s->k;
    for (int64_t k = 0; k < s->k; k++) {
        ((float *)args[1])[k * s->n + block->index[0]] = from[k];
    }
}

// ---- Plans --------------------------------------------------------------------------------------

static const struct kiln_tensor *find(const struct kiln_op *op, uint32_t operand) {
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (op->operands[i]->operand == operand) {
            return op->operands[i];
        }
    }
    return NULL;
}

// An operand that the op always has.
static const struct kiln_tensor *need(const struct kiln_op *op, uint32_t operand) {
    static const struct kiln_tensor none;
    const struct kiln_tensor *tensor = find(op, operand);
    return tensor ? tensor : &none;
}

static struct kiln_arg operand_arg(uint32_t op, uint32_t operand) {
    return (struct kiln_arg){.struct_size = sizeof(struct kiln_arg),
            .kind = KILN_ARG_OPERAND,
            .op = op,
            .operand = operand};
}

static int32_t put_launch(struct kiln_plan *plan, const char *kernel, uint32_t rows,
        const struct kiln_arg *args, uint32_t n_args) {
    const struct kiln_arg *pointers[8];
    for (uint32_t i = 0; i < n_args; i++) {
        pointers[i] = &args[i];
    }
    struct kiln_launch launch = {
            .struct_size = sizeof(launch),
            .kernel = kernel,
            .grid = {rows, 1, 1},
            .block = {1, 1, 1},
            .args = pointers,
            .n_args = n_args,
    };
    return plan->launch(plan, &launch) < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

static struct shape shape_of(const struct kiln_op *op) {
    const struct kiln_tensor *in = need(op, KILN_OPERAND_IN), *out = need(op, KILN_OPERAND_OUT);
    return (struct shape){.k = in->dims[0],
            .n = out->dims[0],
            .eps = op->eps,
            .has_residual = find(op, KILN_OPERAND_RESIDUAL) != NULL};
}

static struct kiln_arg bytes_arg(const struct shape *shape) {
    return (struct kiln_arg){.struct_size = sizeof(struct kiln_arg),
            .kind = KILN_ARG_BYTES,
            .bytes = shape,
            .size = sizeof(*shape)};
}

static int32_t plan_matmul_op(const struct kiln_problem *problem, uint32_t op, const char *kernel,
        struct kiln_plan *plan) {
    struct shape shape = shape_of(problem->ops[op]);
    struct kiln_arg args[] = {operand_arg(op, KILN_OPERAND_IN),
            operand_arg(op, KILN_OPERAND_WEIGHT), operand_arg(op, KILN_OPERAND_OUT),
            operand_arg(op, KILN_OPERAND_N_TOKENS), bytes_arg(&shape),
            operand_arg(op, KILN_OPERAND_RESIDUAL)};
    uint32_t rows = (uint32_t)need(problem->ops[op], KILN_OPERAND_OUT)->dims[1];
    return put_launch(
            plan, kernel, rows, args, find(problem->ops[op], KILN_OPERAND_RESIDUAL) ? 6 : 5);
}

static int32_t plan_matmul(
        const struct kiln_problem *problem, const char *kernel, struct kiln_plan *plan) {
    for (uint32_t op = 0; op < problem->n_ops; op++) {
        if (need(problem->ops[op], KILN_OPERAND_WEIGHT)->dtype != KILN_DTYPE_F32) {
            return plan->decline(plan, "f32 weights only");
        }
        int32_t result = plan_matmul_op(problem, op, kernel, plan);
        if (result != KILN_RESULT_OK) {
            return result;
        }
    }
    return KILN_RESULT_OK;
}

static int32_t plan_plain(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance, (void)geometry, (void)device;
    return plan_matmul(problem, "matmul", plan);
}

static int32_t plan_q8(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance, (void)geometry, (void)device;
    return plan_matmul(problem, "matmul_q8", plan);
}

static int32_t plan_prepared(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance, (void)geometry, (void)device;
    struct shape shape = shape_of(problem->ops[0]);
    struct kiln_arg weight = operand_arg(0, KILN_OPERAND_WEIGHT);
    struct kiln_arg self = {
            .struct_size = sizeof(self), .kind = KILN_ARG_PREPARED, .index = KILN_PREP_SELF};
    struct kiln_arg bytes = bytes_arg(&shape);
    const struct kiln_arg *args[] = {&weight, &self, &bytes}, *sources[] = {&weight};
    struct kiln_launch launch = {.struct_size = sizeof(launch),
            .kernel = "transpose",
            .grid = {(uint32_t)shape.n, 1, 1},
            .block = {1, 1, 1},
            .args = args,
            .n_args = 3};
    const struct kiln_launch *launches[] = {&launch};
    uint64_t size = (uint64_t)(shape.n * shape.k) * sizeof(float);
    static const char *const keys[] = {"PAD"};
    struct kiln_preparation preparation = {.struct_size = sizeof(preparation),
            .id = "transposed",
            .n_sources = 1,
            .sources = sources,
            .n_buffers = 1,
            .buffer_bytes = &size,
            .n_launches = 1,
            .launches = launches,
            .n_keys = 1,
            .keys = keys};
    int32_t index = plan->prepare(plan, &preparation);
    if (index < 0) {
        return KILN_RESULT_FAILED;
    }
    struct kiln_arg prepared = {
            .struct_size = sizeof(prepared), .kind = KILN_ARG_PREPARED, .index = (uint32_t)index};
    struct kiln_arg all[] = {operand_arg(0, KILN_OPERAND_IN), prepared,
            operand_arg(0, KILN_OPERAND_OUT), operand_arg(0, KILN_OPERAND_N_TOKENS), bytes,
            operand_arg(0, KILN_OPERAND_RESIDUAL)};
    uint32_t rows = (uint32_t)need(problem->ops[0], KILN_OPERAND_OUT)->dims[1];
    return put_launch(plan, "matmul_prepared", rows, all,
            find(problem->ops[0], KILN_OPERAND_RESIDUAL) ? 6 : 5);
}

static int32_t plan_norm_quantize(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance, (void)geometry, (void)device;
    if (find(problem->ops[0], KILN_OPERAND_RESIDUAL)) {
        return plan->decline(plan, "no residual");
    }
    struct shape shape = shape_of(problem->ops[0]);
    struct kiln_arg args[] = {operand_arg(0, KILN_OPERAND_IN), operand_arg(0, KILN_OPERAND_WEIGHT),
            operand_arg(1, KILN_OPERAND_OUT), operand_arg(0, KILN_OPERAND_N_TOKENS),
            bytes_arg(&shape)};
    return put_launch(plan, "norm_quantize",
            (uint32_t)need(problem->ops[1], KILN_OPERAND_OUT)->dims[1], args, 5);
}

static int32_t plan_quantize(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance, (void)geometry, (void)device;
    struct shape shape = shape_of(problem->ops[0]);
    struct kiln_arg args[] = {operand_arg(0, KILN_OPERAND_IN), operand_arg(0, KILN_OPERAND_OUT),
            operand_arg(0, KILN_OPERAND_N_TOKENS), bytes_arg(&shape)};
    return put_launch(
            plan, "quantize", (uint32_t)need(problem->ops[0], KILN_OPERAND_OUT)->dims[1], args, 4);
}

static int32_t plan_declines(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance, (void)problem, (void)geometry, (void)device;
    return plan->decline(plan, "not today");
}

static int32_t plan_fails(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance, (void)problem, (void)geometry, (void)device;
    return plan->fail(plan, "broken on purpose");
}

// ---- Tables -------------------------------------------------------------------------------------

#define KERNEL(fn) \
    { .struct_size = sizeof(struct kiln_kernel), .name = #fn, .host = fn }
static const struct kiln_kernel kernels[] = {KERNEL(matmul), KERNEL(matmul_q8),
        KERNEL(matmul_prepared), KERNEL(transpose), KERNEL(norm_quantize), KERNEL(quantize)};
static const struct kiln_kernel *const all_kernels[] = {
        &kernels[0], &kernels[1], &kernels[2], &kernels[3], &kernels[4], &kernels[5]};

static const struct kiln_format q8_test = {.struct_size = sizeof(q8_test),
        .block_elems = BLOCK,
        .block_bytes = sizeof(struct block),
        .row_multiple = 1,
        .name = "q8_test",
        .layout = "f32 scale, 32 int8"};
static const struct kiln_format *const formats[] = {&q8_test};
static const char *const q8_formats[] = {"q8_test"};
static const struct kiln_io reads_q8 = {.struct_size = sizeof(reads_q8),
        .op = 0,
        .operand = KILN_OPERAND_IN,
        .n_formats = 1,
        .formats = q8_formats};
static const struct kiln_io writes_q8 = {.struct_size = sizeof(writes_q8),
        .op = 0,
        .operand = KILN_OPERAND_OUT,
        .n_formats = 1,
        .formats = q8_formats};
static const struct kiln_io quantizes_q8 = {.struct_size = sizeof(quantizes_q8),
        .op = 1,
        .operand = KILN_OPERAND_OUT,
        .n_formats = 1,
        .formats = q8_formats};
static const struct kiln_io *const ios_reads[] = {&reads_q8}, *const ios_writes[] = {&writes_q8},
                                   *const ios_quantizes[] = {&quantizes_q8};

static const struct kiln_param pad = {.struct_size = sizeof(pad),
        .name = "PAD",
        .help = "what the preparation depends on",
        .unit = "rows",
        .value = 0,
        .min = 0,
        .max = 8};
static const struct kiln_param *const params[] = {&pad};

static const char *const matmul_slots[] = {"matmul.*.prefill", "matmul.*.decode"};
static const char *const norm_slots[] = {"norm"}, *const quantize_slots[] = {"quantize"};
static const char *const kv[] = {"matmul:attn_k", "matmul:attn_v"}, *const and_quantize[] = {
                                                                            "quantize"};

#define VARIANT(var, text, fn, slot_list, count) \
    .struct_size = sizeof(struct kiln_variant), .devices = KILN_DEVICE_HOST, .name = var, \
    .help = text, .slots = slot_list, .n_slots = count, .kernels = all_kernels, .n_kernels = 6, \
    .plan = fn

static const struct kiln_variant plain = {VARIANT("plain", "one op", plan_plain, matmul_slots, 2)};
static const struct kiln_variant qkv = {
        VARIANT("qkv", "q, k and v at once", plan_plain, matmul_slots, 2), .role = "attn_q",
        .follows = kv, .n_follows = 2};
static const struct kiln_variant q8 = {
        VARIANT("reads_q8", "reads q8_test", plan_q8, matmul_slots, 2), .ios = ios_reads,
        .n_ios = 1};
static const struct kiln_variant prepared = {
        VARIANT("prepared", "on transposed weights", plan_prepared, matmul_slots, 2),
        .params = params, .n_params = 1};
static const struct kiln_variant norm_q8 = {
        VARIANT("norm_q8", "writes q8_test", plan_norm_quantize, norm_slots, 1),
        .follows = and_quantize, .n_follows = 1, .ios = ios_quantizes, .n_ios = 1};
static const struct kiln_variant make_q8 = {
        VARIANT("make_q8", "f32 to q8_test", plan_quantize, quantize_slots, 1), .ios = ios_writes,
        .n_ios = 1};
static const struct kiln_variant declines = {
        VARIANT("declines", "never fits", plan_declines, matmul_slots, 2)};
static const struct kiln_variant fails = {
        VARIANT("fails", "always fails", plan_fails, matmul_slots, 2)};
static const struct kiln_variant *const variants[] = {
        &plain, &qkv, &q8, &prepared, &norm_q8, &make_q8, &declines, &fails};

const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "fuse",
        .version = "1",
        .help = "test plugin: fusing, formats, preparation",
        .variants = variants,
        .n_variants = 8,
        .formats = formats,
        .n_formats = 1};
