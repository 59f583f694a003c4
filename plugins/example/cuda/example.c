// example: a kiln plugin that fills the slot norm on the CPU (variant `plain`) and on CUDA devices
// (variant `rows`). The CUDA kernel is in example.cu, whose text the assembler puts into the
// library; kiln compiles it where it runs, so that no CUDA toolkit is needed here.
//
// It is whole: it builds, passes `kiln plugins verify` and runs models as it stands. Make it yours
// from step 1 on downwards, a little at a time, and verify after each change. What every struct and
// field means is said in kiln/plugin.h.
#include <kiln/plugin.h>

#include <math.h>
#include <stddef.h>

// ---- Step 1: what the kernel needs to know ------------------------------------------------------
// Addresses come from kiln at every launch. All else is known when plan() runs, and travels with
// the launch by value; example.cu declares the same struct. Fields of 8 bytes leave no padding,
// whose bytes would be undefined and make two plans of the same problem differ.
struct params {
    int64_t columns;                                // D
    int64_t in_stride, residual_stride, out_stride; // elements from row to row
    double eps;
};

// The arguments of both kernels, in this order. On the CPU args[ARG_IN] is the address of the
// operand IN; in example.cu it is the kernel's second parameter.
enum {
    ARG_PARAMS,
    ARG_IN,
    ARG_WEIGHT,
    ARG_RESIDUAL,
    ARG_OUT,
    ARG_N_TOKENS,
    N_ARGS
};

// ---- Step 2: the kernels ------------------------------------------------------------------------
// The one for CUDA: example.cu as it is, with a NUL behind it.
extern const char cuda_text[];
__asm__(".pushsection .rodata\n"
        ".hidden cuda_text\n"
        ".global cuda_text\n"
        "cuda_text:\n"
        ".incbin \"example.cu\"\n"
        ".byte 0\n"
        ".popsection\n");

// Called once for each block of the grid, here for each row, by several threads at once.
// OUT (S, D) = RESIDUAL (S, D) + IN (S, D) / rms(IN) * WEIGHT (D)
static void norm(const struct kiln_block *block, void *const *args) {
    const struct params *p = args[ARG_PARAMS];
    const int32_t *n_tokens = args[ARG_N_TOKENS];
    int64_t row = block->index[0];
    if (n_tokens && row >= *n_tokens) { // the grid is a bound: rows behind are not in use
        return;
    }
    const float *in = (const float *)args[ARG_IN] + row * p->in_stride;
    const float *weight = args[ARG_WEIGHT];
    const float *residual = args[ARG_RESIDUAL]; // NULL: this norm has none
    float *out = (float *)args[ARG_OUT] + row * p->out_stride;
    double sum = 0;
    for (int64_t i = 0; i < p->columns; i++) {
        sum += (double)in[i] * (double)in[i];
    }
    float factor = (float)(1.0 / sqrt(sum / (double)p->columns + p->eps));
    for (int64_t i = 0; i < p->columns; i++) {
        float value = in[i] * factor * weight[i];
        out[i] = residual ? residual[row * p->residual_stride + i] + value : value;
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
static int32_t plan_launch(const struct kiln_problem *problem, const char *kernel, uint32_t threads,
        struct kiln_plan *plan) {
    const struct kiln_op *op = problem->ops[0];
    const struct kiln_tensor *in = find(op, KILN_OPERAND_IN), *out = find(op, KILN_OPERAND_OUT);
    const struct kiln_tensor *weight = find(op, KILN_OPERAND_WEIGHT);
    if (!in || !out || !weight) {
        return plan->fail(plan, "IN, OUT or WEIGHT is missing");
    }
    // Edges are f32 unless the variant lists other formats; a weight has the type of its file. What
    // is declined goes to another variant, and kiln tells the user this reason.
    if (weight->dtype != KILN_DTYPE_F32) {
        return plan->decline(plan, "the weight is not f32");
    }
    const struct params params = {.columns = in->dims[0],
            .in_stride = row_stride(in),
            .residual_stride = row_stride(find(op, KILN_OPERAND_RESIDUAL)),
            .out_stride = row_stride(out),
            .eps = (double)op->eps};
    struct kiln_arg args[N_ARGS] = {
            [ARG_PARAMS] = {.kind = KILN_ARG_BYTES, .size = sizeof(params), .bytes = &params},
            [ARG_IN] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_IN},
            [ARG_WEIGHT] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_WEIGHT},
            [ARG_RESIDUAL] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_RESIDUAL},
            [ARG_OUT] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_OUT},
            [ARG_N_TOKENS] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_N_TOKENS},
    };
    const struct kiln_arg *list[N_ARGS];
    for (int i = 0; i < N_ARGS; i++) {
        args[i].struct_size = sizeof(args[i]);
        list[i] = &args[i];
    }
    double elems = (double)in->dims[0] * (double)in->dims[1];
    const struct kiln_launch launch = {.struct_size = sizeof(launch),
            .kernel = kernel,
            .grid = {(uint32_t)in->dims[1], 1, 1}, // rows
            .block = {threads, 1, 1},
            .args = list,
            .n_args = N_ARGS,
            .flops = 4 * elems, // the counts are for tools that print percent of ceiling
            .bytes_read = elems * sizeof(float),
            .bytes_written = elems * sizeof(float)};
    return plan->launch(plan, &launch) < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

static int32_t plan_plain(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance; // there is no start() below that would have made one
    (void)geometry; // the variant has no parameters
    (void)device;
    return plan_launch(problem, "norm", 1, plan);
}

static int32_t plan_rows(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)device;
    return plan_launch(problem, "norm_rows", (uint32_t)geometry->values[0], plan);
}

// ---- Step 4: the variants -----------------------------------------------------------------------
static const struct kiln_kernel kernel = {
        .struct_size = sizeof(kernel), .name = "norm", .host = norm};
static const struct kiln_kernel *const kernels[] = {&kernel};
static const char *const slots[] = {"norm"};

static const struct kiln_variant plain = {.struct_size = sizeof(plain),
        .devices = KILN_DEVICE_HOST,
        .name = "plain", // `variant = plain` in an INI file
        .help = "one row a block, squares summed in f64",
        .slots = slots,
        .kernels = kernels,
        .n_slots = 1,
        .n_kernels = 1,
        .plan = plan_plain};

static const struct kiln_source cuda_source = {
        .struct_size = sizeof(cuda_source), .name = "example.cu", .text = cuda_text};
static const struct kiln_kernel cuda_kernel = {
        .struct_size = sizeof(cuda_kernel), .name = "norm_rows", .source = &cuda_source};
static const struct kiln_kernel *const cuda_kernels[] = {&cuda_kernel};

// Geometry: an INI file sets it, example.cu gets it as a define, plan_rows as geometry->values[0].
static const struct kiln_param threads = {.struct_size = sizeof(threads),
        .name = "THREADS",
        .help = "threads a block, one block a row",
        .value = 256,
        .min = 32,
        .max = 1024,
        .multiple_of = 32};
static const struct kiln_param *const params[] = {&threads};

static const struct kiln_variant rows = {.struct_size = sizeof(rows),
        .devices = KILN_DEVICE_CUDA,
        .name = "rows",
        .help = "one row a block",
        .slots = slots,
        .params = params,
        .kernels = cuda_kernels,
        .n_slots = 1,
        .n_params = 1,
        .n_kernels = 1,
        .plan = plan_rows};
static const struct kiln_variant *const variants[] = {&plain, &rows};

// ---- Step 5: the entry, the one name that the library exports -----------------------------------
KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "example",
        .version = "0.1.0",
        .help = "a norm in plain C and in CUDA",
        .variants = variants,
        .n_variants = 2};
