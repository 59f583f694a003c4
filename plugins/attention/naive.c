// naive: schema and plan of the variant without tensor cores, which fills prefill and decode alike.
#include "plan.h"
#include "variants.h"

#include <stdio.h>

static const int64_t powers[] = {1, 2, 4, 8, 16};

static const struct kiln_param param_rows = {.struct_size = sizeof(param_rows),
        .name = "NV_ROWS",
        .help = "query rows a block, a warp each",
        .unit = "rows",
        .value = 4,
        .allowed = powers,
        .n_allowed = ATTENTION_COUNT(powers)};
static const struct kiln_param param_keys = {.struct_size = sizeof(param_keys),
        .flags = KILN_PARAM_REGROUPS,
        .name = "NV_KEYS",
        .help = "keys between two updates of the running maximum",
        .unit = "keys",
        .value = 8,
        .allowed = powers,
        .n_allowed = ATTENTION_COUNT(powers)};
static const struct kiln_param *const params[] = {&param_rows, &param_keys};

static int32_t plan(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan_to) {
    (void)instance;
    static const struct attention_needs needs = {
            .f32_cache = 1, .head_multiple = 1, .head_max = 256};
    struct attention_request request;
    int32_t result = attention_begin(&request, problem, geometry, device, plan_to, &needs);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    int32_t rows = attention_value(&request, "NV_ROWS");
    uint32_t grid[3] = {
            (uint32_t)attention_blocks(request.rows, rows), (uint32_t)request.op->n_heads, 1};
    struct attention_launch launch;
    attention_launch_begin(&launch, &request, "naive", grid, (uint32_t)rows * 32);
    attention_launch_define_problem(&launch, &request);
    attention_launch_define(&launch, "NV_KV_F32", request.k->dtype == KILN_DTYPE_F32);
    attention_launch_operand(&launch, KILN_OPERAND_Q);
    attention_launch_operand(&launch, KILN_OPERAND_K_CACHE);
    attention_launch_operand(&launch, KILN_OPERAND_V_CACHE);
    attention_launch_operand(&launch, KILN_OPERAND_POSITIONS);
    attention_launch_operand(&launch, KILN_OPERAND_OUT);
    attention_launch_operand(&launch, KILN_OPERAND_N_TOKENS);
    attention_launch_operand(&launch, KILN_OPERAND_KV_LEN);
    snprintf(launch.order, sizeof(launch.order), "attention_naive:keys%d",
            attention_value(&request, "NV_KEYS"));
    attention_launch_bytes(&launch, &request.args, sizeof(request.args));
    return attention_launch_submit(&launch, &request);
}

static const char *const slots[] = {"attention.prefill", "attention.decode"};
static const struct kiln_kernel *const kernels[] = {&attention_kernel_naive};

const struct kiln_variant attention_naive = {.struct_size = sizeof(attention_naive),
        .devices = KILN_DEVICE_CUDA,
        .name = "naive",
        .help = "a warp a query row, f32 throughout, no tensor cores; any head size up to 256",
        .slots = slots,
        .params = params,
        .kernels = kernels,
        .ios = attention_ios_f32,
        .n_slots = ATTENTION_COUNT(slots),
        .n_params = ATTENTION_COUNT(params),
        .n_kernels = ATTENTION_COUNT(kernels),
        .n_ios = ATTENTION_COUNT(attention_ios_f32),
        .plan = plan};
