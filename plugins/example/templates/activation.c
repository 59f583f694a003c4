// example: a kiln plugin with one CPU variant, `plain`, which fills the slot activation.
//
// It is whole: it builds, passes `kiln plugins verify` and runs models as it stands. Make it yours
// from step 1 on downwards, a little at a time, and verify after each change. What every struct and
// field means is said in kiln/plugin.h.
#include <kiln/plugin.h>

#include <math.h>
#include <stddef.h>

// ---- Step 1: what the kernel needs to know ------------------------------------------------------
// Addresses come from kiln at every launch. All else is known when plan() runs, and travels with
// the launch by value. Fields of 8 bytes leave no padding, whose bytes would be undefined and make
// two plans of the same problem differ.
struct params {
    int64_t columns;                            // F
    int64_t gate_stride, up_stride, out_stride; // elements from row to row
    int64_t activation;                         // enum kiln_activation
};

// The kernel's arguments, in this order: args[ARG_GATE] is the address of the operand GATE.
enum {
    ARG_PARAMS,
    ARG_GATE,
    ARG_UP,
    ARG_OUT,
    ARG_N_TOKENS,
    N_ARGS
};

// ---- Step 2: the kernel -------------------------------------------------------------------------
static float activate(int64_t activation, float x) {
    if (activation == KILN_ACTIVATION_SILU) {
        return x / (1.0F + expf(-x));
    }
    float u = 0.797884561F * (x + 0.044715F * x * x * x); // sqrt(2 / pi) * ...
    return 0.5F * x * (1.0F + tanhf(u));
}

// Called once for each block of the grid, here for each row, by several threads at once.
// OUT (S, F) = act(GATE (S, F)) * UP (S, F); OUT may be the same memory as GATE.
static void gated(const struct kiln_block *block, void *const *args) {
    const struct params *p = args[ARG_PARAMS];
    const int32_t *n_tokens = args[ARG_N_TOKENS];
    int64_t row = block->index[0];
    if (n_tokens && row >= *n_tokens) { // the grid is a bound: rows behind are not in use
        return;
    }
    const float *gate = (const float *)args[ARG_GATE] + row * p->gate_stride;
    const float *up = (const float *)args[ARG_UP] + row * p->up_stride;
    float *out = (float *)args[ARG_OUT] + row * p->out_stride;
    for (int64_t i = 0; i < p->columns; i++) {
        out[i] = activate(p->activation, gate[i]) * up[i];
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
    return tensor->strides[1] / (int64_t)sizeof(float);
}

// Describes the launches that do the problem; kiln launches them, again and again, without asking
// anew. Pure: the answer depends on the arguments alone.
static int32_t plan_activation(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance; // there is no start() below that would have made one
    (void)geometry; // the variant has no parameters
    (void)device;
    const struct kiln_op *op = problem->ops[0];
    const struct kiln_tensor *gate = find(op, KILN_OPERAND_GATE);
    const struct kiln_tensor *up = find(op, KILN_OPERAND_UP), *out = find(op, KILN_OPERAND_OUT);
    if (!gate || !up || !out) {
        return plan->fail(plan, "GATE, UP or OUT is missing");
    }
    // What is declined goes to another variant, and kiln tells the user this reason. Edges are f32
    // unless the variant lists other formats, so their types need no look.
    if (op->activation != KILN_ACTIVATION_SILU && op->activation != KILN_ACTIVATION_GELU_TANH) {
        return plan->decline(plan, "the activation is neither SiLU nor GELU (tanh)");
    }
    const struct params params = {.columns = gate->dims[0],
            .gate_stride = row_stride(gate),
            .up_stride = row_stride(up),
            .out_stride = row_stride(out),
            .activation = op->activation};
    struct kiln_arg args[N_ARGS] = {
            [ARG_PARAMS] = {.kind = KILN_ARG_BYTES, .size = sizeof(params), .bytes = &params},
            [ARG_GATE] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_GATE},
            [ARG_UP] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_UP},
            [ARG_OUT] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_OUT},
            [ARG_N_TOKENS] = {.kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_N_TOKENS},
    };
    const struct kiln_arg *list[N_ARGS];
    for (int i = 0; i < N_ARGS; i++) {
        args[i].struct_size = sizeof(args[i]);
        list[i] = &args[i];
    }
    double elems = (double)gate->dims[0] * (double)gate->dims[1];
    const struct kiln_launch launch = {.struct_size = sizeof(launch),
            .kernel = "gated",
            .grid = {(uint32_t)gate->dims[1], 1, 1}, // rows
            .args = list,
            .n_args = N_ARGS,
            .flops = 6 * elems, // the counts are for tools that print percent of ceiling
            .bytes_read = 2 * elems * sizeof(float),
            .bytes_written = elems * sizeof(float)};
    return plan->launch(plan, &launch) < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

// ---- Step 4: the variant ------------------------------------------------------------------------
static const struct kiln_kernel kernel = {
        .struct_size = sizeof(kernel), .name = "gated", .host = gated};
static const struct kiln_kernel *const kernels[] = {&kernel};
static const char *const slots[] = {"activation"};

static const struct kiln_variant variant = {.struct_size = sizeof(variant),
        .devices = KILN_DEVICE_HOST,
        .name = "plain", // `variant = plain` in an INI file
        .help = "one row a block",
        .slots = slots,
        .kernels = kernels,
        .n_slots = 1,
        .n_kernels = 1,
        .plan = plan_activation};
static const struct kiln_variant *const variants[] = {&variant};

// ---- Step 5: the entry, the one name that the library exports -----------------------------------
KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "example",
        .version = "0.1.0",
        .help = "an activation in plain C",
        .variants = variants,
        .n_variants = 1};
