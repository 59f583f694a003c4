// example: a kiln plugin with one CPU variant, `plain`, which fills the slots matmul.f32.prefill
// and matmul.f32.decode.
//
// It is whole: it builds, passes `kiln plugins verify` and runs models as it stands. Make it yours
// from step 1 on downwards, a little at a time, and verify after each change. What every struct and
// field means is said in kiln/plugin.h.
#include <kiln/plugin.h>

#include <stddef.h>

// ---- Step 1: what the kernel needs to know ------------------------------------------------------
// Addresses come from kiln at every launch. All else is known when plan() runs, and travels with
// the launch by value. Fields of 8 bytes leave no padding, whose bytes would be undefined and make
// two plans of the same problem differ.
struct params {
    int64_t rows, inputs, outputs;                                 // S, K, N
    int64_t in_stride, weight_stride, residual_stride, out_stride; // elements from row to row
};

// The kernel's arguments, in this order: args[ARG_IN] is the address of the operand IN.
enum {
    ARG_PARAMS,
    ARG_IN,
    ARG_WEIGHT,
    ARG_BIAS,
    ARG_RESIDUAL,
    ARG_OUT,
    ARG_N_TOKENS,
    N_ARGS
};

// ---- Step 2: the kernel -------------------------------------------------------------------------
enum {
    BLOCK_OUTPUTS = 16
}; // outputs that one block computes, of all rows

static float dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return (float)sum;
}

// Called once for each block of the grid, by several threads at once.
// OUT (S, N) = IN (S, K) * WEIGHT (N, K) transposed + BIAS (N) + RESIDUAL (S, N)
static void matmul(const struct kiln_block *block, void *const *args) {
    const struct params *p = args[ARG_PARAMS];
    const float *bias = args[ARG_BIAS], *residual = args[ARG_RESIDUAL]; // NULL: there is none
    const int32_t *n_tokens = args[ARG_N_TOKENS]; // rows in use, at most p->rows
    int64_t rows = n_tokens && *n_tokens < p->rows ? *n_tokens : p->rows;
    int64_t begin = (int64_t)block->index[0] * BLOCK_OUTPUTS;
    int64_t end = begin + BLOCK_OUTPUTS < p->outputs ? begin + BLOCK_OUTPUTS : p->outputs;
    for (int64_t n = begin; n < end; n++) {
        const float *weight = (const float *)args[ARG_WEIGHT] + n * p->weight_stride;
        for (int64_t row = 0; row < rows; row++) {
            const float *in = (const float *)args[ARG_IN] + row * p->in_stride;
            float value = dot(in, weight, p->inputs) + (bias ? bias[n] : 0);
            float *out = (float *)args[ARG_OUT] + row * p->out_stride;
            out[n] = residual ? residual[row * p->residual_stride + n] + value : value;
        }
    }
}

// ---- Step 3: the plan ---------------------------------------------------------------------------
static const struct kiln_tensor *find(const struct kiln_op *op, uint32_t operand) {
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (op->operands[i]->operand == operand) {
            return op->operands[i];
        }
    }
    return NULL;
}

static int64_t row_stride(const struct kiln_tensor *tensor) {
    return tensor ? tensor->strides[1] / (int64_t)sizeof(float) : 0;
}

// Describes the launches that do the problem; kiln launches them, again and again, without asking
// anew. Pure: the answer depends on the arguments alone.
static int32_t plan_matmul(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance; // there is no start() below that would have made one
    (void)geometry; // the variant has no parameters
    (void)device;
    const struct kiln_op *op = problem->ops[0];
    const struct kiln_tensor *in = find(op, KILN_OPERAND_IN), *out = find(op, KILN_OPERAND_OUT);
    const struct kiln_tensor *weight = find(op, KILN_OPERAND_WEIGHT);
    const struct kiln_tensor *bias = find(op, KILN_OPERAND_BIAS);
    if (!in || !out || !weight) {
        return plan->fail(plan, "IN, OUT or WEIGHT is missing");
    }
    // Edges are f32 unless the variant lists other formats; WEIGHT has the type of the slot; a bias
    // has the type of its file. What is declined goes to another variant, and kiln tells the user
    // this reason.
    if (bias && bias->dtype != KILN_DTYPE_F32) {
        return plan->decline(plan, "the bias is not f32");
    }
    const struct params params = {.rows = in->dims[1],
            .inputs = in->dims[0],
            .outputs = weight->dims[1],
            .in_stride = row_stride(in),
            .weight_stride = row_stride(weight),
            .residual_stride = row_stride(find(op, KILN_OPERAND_RESIDUAL)),
            .out_stride = row_stride(out)};
    struct kiln_arg args[N_ARGS] = {
            [ARG_PARAMS] = {.kind = KILN_ARG_BYTES, .size = sizeof(params), .bytes = &params},
            [ARG_IN] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_IN},
            [ARG_WEIGHT] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_WEIGHT},
            [ARG_BIAS] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_BIAS},
            [ARG_RESIDUAL] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_RESIDUAL},
            [ARG_OUT] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_OUT},
            [ARG_N_TOKENS] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_N_TOKENS},
    };
    const struct kiln_arg *list[N_ARGS];
    for (int i = 0; i < N_ARGS; i++) {
        args[i].struct_size = sizeof(args[i]);
        list[i] = &args[i];
    }
    double n = (double)params.outputs, k = (double)params.inputs, m = (double)params.rows;
    const struct kiln_launch launch = {.struct_size = sizeof(launch),
            .kernel = "matmul",
            .grid = {(uint32_t)((params.outputs + BLOCK_OUTPUTS - 1) / BLOCK_OUTPUTS), 1, 1},
            .args = list,
            .n_args = N_ARGS,
            .flops = 2 * m * n * k, // the counts are for tools that print percent of ceiling
            .bytes_read = (n * k + m * k) * sizeof(float),
            .bytes_written = m * n * sizeof(float)};
    return plan->launch(plan, &launch) < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

// ---- Step 4: the variant ------------------------------------------------------------------------
static const struct kiln_kernel kernel = {
        .struct_size = sizeof(kernel), .name = "matmul", .host = matmul};
static const struct kiln_kernel *const kernels[] = {&kernel};
static const char *const slots[] = {"matmul.f32.prefill", "matmul.f32.decode"};

static const struct kiln_variant variant = {.struct_size = sizeof(variant),
        .devices = KILN_DEVICE_HOST,
        .name = "plain", // `variant = plain` in an INI file
        .help = "16 outputs a block, products summed in f64",
        .slots = slots,
        .kernels = kernels,
        .n_slots = 2,
        .n_kernels = 1,
        .plan = plan_matmul};
static const struct kiln_variant *const variants[] = {&variant};

// ---- Step 5: the entry, the one name that the library exports -----------------------------------
KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "example",
        .version = "0.1.0",
        .help = "a matmul of f32 weights in plain C",
        .variants = variants,
        .n_variants = 1};
