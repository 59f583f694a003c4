// gemv: schema and plan of the variant for one row of activations, or a few.
#include "mm_plan.h"

#include <stdio.h>

enum {
    UNIT = 16,        // columns that a lane takes at a time (common/dequant.cuh)
    WARPS_A_SM = 16,  // that keep enough loads under way
    GRID_ROWS = 65535 // of a grid's y
};

static const int64_t rows_values[] = {1, 2, 4, 8};
static const int64_t warps_values[] = {1, 2, 4, 8, 16};

static const struct kiln_param rows_param = {.struct_size = sizeof(struct kiln_param),
        .name = "ROWS",
        .help = "outputs a warp makes at once: more share the activations read, fewer fill more "
                "warps",
        .unit = "outputs",
        .value = 4,
        .allowed = rows_values,
        .n_allowed = GPU_COUNT(rows_values)};
static const struct kiln_param warps_param = {.struct_size = sizeof(struct kiln_param),
        .flags = KILN_PARAM_REGROUPS, // it bounds how many warps may share a row
        .name = "GEMV_WARPS",
        .help = "warps a block",
        .unit = "warps",
        .value = 8,
        .allowed = warps_values,
        .n_allowed = GPU_COUNT(warps_values)};
static const struct kiln_param *const params[] = {&rows_param, &warps_param};

// Warps that share a row: as few as fill the device, a power of two, and no more than have units to
// do.
static int32_t splits_for(const struct mm_request *request, int32_t rows, int32_t warps) {
    int64_t groups = gpu_blocks(request->args.n, rows) * request->args.rows;
    int64_t wanted = (int64_t)request->base.device->sm_count * WARPS_A_SM;
    int64_t units = gpu_blocks(request->args.k, UNIT);
    int32_t splits = 1;
    while (splits * 2 <= warps && groups * splits < wanted && units > (int64_t)splits * 32) {
        splits *= 2;
    }
    return splits;
}

static int32_t plan_gemv(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct mm_request request;
    int32_t result = mm_begin(&request, problem, geometry, device, plan, GPU_NEED_F32);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    if (request.args.rows > GRID_ROWS) {
        return gpu_decline(&request.base,
                "IN: %d rows; at most %d are handled, by streaming the "
                "weights for each",
                request.args.rows, GRID_ROWS);
    }
    int32_t rows = gpu_value(&request.base, "ROWS");
    int32_t warps = gpu_value(&request.base, "GEMV_WARPS");
    request.args.splits = splits_for(&request, rows, warps);
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "mm_gemv", (uint32_t)warps * 32);
    gpu_launch_define_weight(&launch, request.weight);
    gpu_launch_operand(&launch, &request.base, KILN_OPERAND_IN);
    gpu_launch_operand(&launch, &request.base, KILN_OPERAND_WEIGHT);
    gpu_launch_operand(&launch, &request.base, KILN_OPERAND_BIAS);
    gpu_launch_operand(&launch, &request.base, KILN_OPERAND_RESIDUAL);
    gpu_launch_operand(&launch, &request.base, KILN_OPERAND_OUT);
    gpu_launch_operand(&launch, &request.base, KILN_OPERAND_N_TOKENS);
    gpu_launch_bytes(&launch, &request.args, sizeof(request.args));
    int64_t outputs = (int64_t)(warps / request.args.splits) * rows;
    launch.record.grid[0] = (uint32_t)gpu_blocks(request.args.n, outputs);
    launch.record.grid[1] = (uint32_t)request.args.rows;
    mm_count_work(&launch.record, &request);
    snprintf(launch.order, sizeof(launch.order), "matmul_gemv:u16:l32:s%d", request.args.splits);
    launch.record.sum_order = launch.order;
    return gpu_launch_submit(&launch, &request.base);
}

static const char *const slots[] = {"matmul.*.decode"};
static const struct kiln_kernel *const kernels[] = {&mm_kernel_gemv};

const struct kiln_variant mm_variant_gemv = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "gemv",
        .help = "f32 activations and sums; weights streamed once, dequantized in registers",
        .slots = slots,
        .params = params,
        .kernels = kernels,
        .n_slots = GPU_COUNT(slots),
        .n_params = GPU_COUNT(params),
        .n_kernels = GPU_COUNT(kernels),
        .plan = plan_gemv};
