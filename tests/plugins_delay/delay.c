// delay: a plugin whose activation takes longer by a known time: what tells a speed comparison that
// works from one that does not. Its results are those of any other activation.
#ifndef _POSIX_C_SOURCE
#    define _POSIX_C_SOURCE 200809L // nanosleep
#endif
#include "kiln/plugin.h"

#include <math.h>
#include <stddef.h>
#include <time.h>

struct call { // by value
    int64_t columns, wait_us;
    uint32_t activation, unused;
};

static float activate(float x, uint32_t activation) {
    if (activation == KILN_ACTIVATION_SILU) {
        return x / (1 + expf(-x));
    }
    return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

// One block does all rows: the wait is once a call.
static void wait_and_activate(const struct kiln_block *block, void *const *args) {
    (void)block;
    const float *gate = args[0], *up = args[1];
    float *out = args[2];
    const int32_t *n_tokens = args[3];
    const struct call *call = args[4];
    const struct timespec wait = {
            .tv_sec = call->wait_us / 1000000, .tv_nsec = call->wait_us % 1000000 * 1000};
    if (call->wait_us > 0) {
        (void)nanosleep(&wait, NULL);
    }
    for (int64_t i = 0; i < call->columns * *n_tokens; i++) {
        out[i] = activate(gate[i], call->activation) * up[i];
    }
}

static int32_t plan_wait(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance, (void)device;
    const struct kiln_op *op = problem->ops[0];
    struct call call = {.wait_us = geometry->values[0], .activation = op->activation};
    static const uint32_t operands[] = {
            KILN_OPERAND_GATE, KILN_OPERAND_UP, KILN_OPERAND_OUT, KILN_OPERAND_N_TOKENS};
    struct kiln_arg args[5];
    const struct kiln_arg *pointers[5];
    for (uint32_t i = 0; i < 5; i++) {
        args[i] = (struct kiln_arg){.struct_size = sizeof(args[i]),
                .kind = i < 4 ? KILN_ARG_OPERAND : KILN_ARG_BYTES,
                .operand = i < 4 ? operands[i] : 0,
                .bytes = i < 4 ? NULL : &call,
                .size = i < 4 ? 0 : sizeof(call)};
        pointers[i] = &args[i];
    }
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (op->operands[i]->operand == KILN_OPERAND_OUT) {
            call.columns = op->operands[i]->dims[0];
        }
    }
    const struct kiln_launch launch = {.struct_size = sizeof(launch),
            .kernel = "wait_and_activate",
            .grid = {1, 1, 1},
            .block = {1, 1, 1},
            .args = pointers,
            .n_args = 5};
    return plan->launch(plan, &launch) < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

static const struct kiln_kernel kernel = {
        .struct_size = sizeof(kernel), .name = "wait_and_activate", .host = wait_and_activate};
static const struct kiln_kernel *const kernels[] = {&kernel};
static const struct kiln_param wait_us = {.struct_size = sizeof(wait_us),
        .name = "WAIT_US",
        .help = "time that a call takes longer",
        .unit = "us",
        .value = 0,
        .min = 0,
        .max = 1000000};
static const struct kiln_param *const params[] = {&wait_us};
static const char *const slots[] = {"activation"};
static const struct kiln_variant variant = {.struct_size = sizeof(variant),
        .devices = KILN_DEVICE_HOST,
        .name = "wait",
        .help = "an activation that waits first",
        .slots = slots,
        .n_slots = 1,
        .params = params,
        .n_params = 1,
        .kernels = kernels,
        .n_kernels = 1,
        .plan = plan_wait};
static const struct kiln_variant *const variants[] = {&variant};

const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "delay",
        .version = "1",
        .help = "test plugin: a known loss of time",
        .variants = variants,
        .n_variants = 1};
