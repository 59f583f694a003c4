// tunelab: activations in plain C whose geometry does what candidates of a sweep must survive: LAB
// says how much work a row is done over, and which of them crash, hang, eat memory, end the process
// or are wrong. "tiles" has the geometry of an attention: 48 writes out of bounds, 96 never ends.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // usleep
#endif
#include "kiln/plugin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ARG_PARAMS,
    ARG_GATE,
    ARG_UP,
    ARG_OUT,
    ARG_N_TOKENS,
    N_ARGS
};

enum ill {
    ILL_NONE,
    ILL_FAULT,
    ILL_HANG,
    ILL_MEMORY,
    ILL_WRONG,
    ILL_EXIT,
};

struct params { // by value to the kernel
    int64_t columns, gate_stride, up_stride, out_stride, activation;
    int64_t turns; // the work is done so often
    int64_t ill;
};

static float activate(int64_t activation, float x) {
    if (activation == KILN_ACTIVATION_SILU) {
        return x / (1.0F + expf(-x));
    }
    float u = 0.797884561F * (x + 0.044715F * x * x * x);
    return 0.5F * x * (1.0F + tanhf(u));
}

static void be_ill(int64_t ill) {
    if (ill == ILL_FAULT) {
        volatile uintptr_t address = 64; // in the page that is never mapped
        *(volatile int *)address = 1;
    }
    if (ill == ILL_HANG) {
        for (;;) {
            (void)usleep(1000);
        }
    }
    if (ill == ILL_MEMORY) {
        for (;;) { // never given back; volatile, or the compiler would see that nobody reads it
            char *volatile more = malloc((size_t)8 << 20);
            if (more) {
                memset(more, 1, (size_t)8 << 20);
            } else {
                (void)usleep(1000);
            }
        }
    }
    if (ill == ILL_EXIT) {
        _exit(7);
    }
}

static void gated(const struct kiln_block *block, void *const *args) {
    const struct params *p = args[ARG_PARAMS];
    const int32_t *n_tokens = args[ARG_N_TOKENS];
    int64_t row = block->index[0];
    if (n_tokens && row >= *n_tokens) {
        return;
    }
    be_ill(p->ill);
    const float *gate = (const float *)args[ARG_GATE] + row * p->gate_stride;
    const float *up = (const float *)args[ARG_UP] + row * p->up_stride;
    float *out = (float *)args[ARG_OUT] + row * p->out_stride;
    for (int64_t i = 0; i < p->columns; i++) {
        float value = 0, x = gate[i];
        for (int64_t turn = 0; turn < p->turns; turn++) {
            value = activate(p->activation, x);
            __asm__ volatile("" : "+m"(x), "+m"(value)); // or one turn would do
        }
        out[i] = value * up[i] + (p->ill == ILL_WRONG ? 1.0F : 0.0F);
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

static int64_t row_stride(const struct kiln_tensor *tensor) {
    return tensor->strides[1] / (int64_t)sizeof(float);
}

static int32_t submit(
        const struct kiln_problem *problem, struct kiln_plan *plan, int64_t turns, enum ill ill) {
    const struct kiln_op *op = problem->ops[0];
    const struct kiln_tensor *gate = find(op, KILN_OPERAND_GATE);
    const struct kiln_tensor *up = find(op, KILN_OPERAND_UP), *out = find(op, KILN_OPERAND_OUT);
    if (!gate || !up || !out) {
        return plan->fail(plan, "GATE, UP or OUT is missing");
    }
    const struct params params = {.columns = gate->dims[0],
            .gate_stride = row_stride(gate),
            .up_stride = row_stride(up),
            .out_stride = row_stride(out),
            .activation = op->activation,
            .turns = turns,
            .ill = ill};
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
            .grid = {(uint32_t)gate->dims[1], 1, 1},
            .args = list,
            .n_args = N_ARGS,
            .flops = 6 * elems,
            .bytes_read = 2 * elems * sizeof(float),
            .bytes_written = elems * sizeof(float)};
    return plan->launch(plan, &launch) < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

static int32_t plan_tiles(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)device;
    int64_t tkv = geometry->values[0];
    return submit(problem, plan, tkv / 16, tkv == 48 ? ILL_FAULT : tkv == 96 ? ILL_HANG : ILL_NONE);
}

static int32_t plan_ill(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)device;
    int64_t ill = geometry->values[0];
    return ill == 6   ? plan->decline(plan, "LAB_ILL 6 is declined")
           : ill == 7 ? plan->fail(plan, "LAB_ILL 7 fails")
                      : submit(problem, plan, 8, (enum ill)ill);
}

// ---- Variants -----------------------------------------------------------------------------------
static const struct kiln_kernel kernel = {
        .struct_size = sizeof(kernel), .name = "gated", .host = gated};
static const struct kiln_kernel *const kernels[] = {&kernel};
static const char *const slots[] = {"activation"};

static const int64_t tkv_values[] = {16, 32, 48, 64, 96, 128};
static const struct kiln_param tkv = {.struct_size = sizeof(tkv),
        .name = "FA_TKV",
        .help = "16 is a unit of work; 48 faults, 96 hangs",
        .unit = "",
        .value = 64,
        .allowed = tkv_values,
        .n_allowed = 6};
static const struct kiln_param ill_kind = {.struct_size = sizeof(ill_kind),
        .name = "LAB_ILL",
        .help = "1 faults, 2 hangs, 3 eats memory, 4 is wrong, 5 exits, 6 declines, 7 fails",
        .unit = "",
        .value = 0,
        .min = 0,
        .max = 7};
static const struct kiln_param *const tiles_params[] = {&tkv};
static const struct kiln_param *const ill_params[] = {&ill_kind};

#define VARIANT(variable, label, text, parameters, function) \
    static const struct kiln_variant variable = {.struct_size = sizeof(struct kiln_variant), \
            .devices = KILN_DEVICE_HOST, \
            .name = (label), \
            .help = (text), \
            .slots = slots, \
            .params = (parameters), \
            .kernels = kernels, \
            .n_slots = 1, \
            .n_params = 1, \
            .n_kernels = 1, \
            .plan = (function)}
VARIANT(tiles, "tiles", "more work the larger FA_TKV is", tiles_params, plan_tiles);
VARIANT(same_tiles, "same_tiles", "tiles under another name", tiles_params, plan_tiles);
VARIANT(ill, "ill", "one disease each", ill_params, plan_ill);
static const struct kiln_variant *const variants[] = {&tiles, &same_tiles, &ill};

KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "tunelab",
        .version = "0.1.0",
        .help = "candidates for a sweep",
        .variants = variants,
        .n_variants = 3};
