// gemv: schema and plan of the variant for one row of activations, or a few.
#include "stream.h"

#include <stdio.h>

enum {
    UNIT = 16,        // columns that a lane takes at a time (common/dequant.cuh)
    WARPS_A_SM = 16,  // that keep enough loads under way
    GRID_ROWS = 65535 // of a grid's y
};

static const int64_t rows_values[] = {1, 2, 4, 8};

static const struct kiln_param rows_param = {.struct_size = sizeof(struct kiln_param),
        .name = "ROWS",
        .help = "outputs a warp makes at once: more share the activations read, fewer fill more "
                "warps",
        .unit = "outputs",
        .value = 4,
        .allowed = rows_values,
        .n_allowed = GPU_COUNT(rows_values)};
static const struct kiln_param *const params[] = {&rows_param, &mv_warps_param, &mv_stages_param,
        &mv_blocks_param, &mv_overlap_param, &mv_bulk_param};

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

static int32_t plan_units(struct mm_request *request) {
    if (request->args.rows > GRID_ROWS) {
        return gpu_decline(&request->base,
                "IN: %d rows; at most %d are handled, by streaming the "
                "weights for each",
                request->args.rows, GRID_ROWS);
    }
    int32_t rows = gpu_value(&request->base, "ROWS");
    int32_t warps = gpu_value(&request->base, "GEMV_WARPS");
    request->args.splits = splits_for(request, rows, warps);
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "mm_gemv", (uint32_t)warps * 32);
    gpu_launch_define_weight(&launch, request->weight);
    gpu_launch_operand(&launch, &request->base, KILN_OPERAND_IN);
    gpu_launch_operand(&launch, &request->base, KILN_OPERAND_WEIGHT);
    gpu_launch_operand(&launch, &request->base, KILN_OPERAND_BIAS);
    gpu_launch_operand(&launch, &request->base, KILN_OPERAND_RESIDUAL);
    gpu_launch_operand(&launch, &request->base, KILN_OPERAND_OUT);
    gpu_launch_operand(&launch, &request->base, KILN_OPERAND_N_TOKENS);
    gpu_launch_bytes(&launch, &request->args, sizeof(request->args));
    int64_t outputs = (int64_t)(warps / request->args.splits) * rows;
    launch.record.grid[0] = (uint32_t)gpu_blocks(request->args.n, outputs);
    launch.record.grid[1] = (uint32_t)request->args.rows;
    mm_count_work(&launch.record, request);
    snprintf(launch.order, sizeof(launch.order), "matmul_gemv:u16:l32:s%d", request->args.splits);
    launch.record.sum_order = launch.order;
    return gpu_launch_submit(&launch, &request->base);
}

static int32_t plan_simple(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct mm_request request;
    int32_t result = mm_begin(&request, problem, geometry, device, plan, GPU_NEED_F32);
    return result == KILN_RESULT_OK ? plan_units(&request) : result;
}

static struct mv_request stream_of(const struct mm_request *request, int32_t x_bits) {
    return (struct mv_request){.base = request->base,
            .in = request->in,
            .matrices[0] = {.weight = request->weight,
                    .bias = request->bias,
                    .residual = request->residual,
                    .out = request->out},
            .n_matrices = 1,
            .rows = request->args.rows,
            .k = request->args.k,
            .x_bits = x_bits};
}

// What mm_stream does not handle goes to mm_gemv.
static int32_t plan_gemv(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct mm_request request;
    int32_t result = mm_begin(&request, problem, geometry, device, plan, GPU_NEED_F32);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    struct mv_request stream = stream_of(&request, 16);
    char why[160];
    return mv_fits(&stream, why, sizeof(why)) ? mv_submit(&stream) : plan_units(&request);
}

static int32_t plan_q8(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct mm_request request;
    int32_t result = mm_begin(&request, problem, geometry, device, plan, GPU_NEED_F32);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    struct mv_request stream = stream_of(&request, 8);
    char why[160];
    return mv_fits(&stream, why, sizeof(why)) ? mv_submit(&stream)
                                              : gpu_decline(&request.base, "%s", why);
}

static const char *const slots[] = {"matmul.*.decode"};
static const struct kiln_param *const q8_params[] = {
        &mv_warps_param, &mv_stages_param, &mv_blocks_param, &mv_overlap_param, &mv_bulk_param};
static const struct kiln_kernel *const q8_kernels[] = {&mm_kernel_stream};
static const struct kiln_param *const simple_params[] = {&rows_param, &mv_warps_param};
static const struct kiln_kernel *const simple_kernels[] = {&mm_kernel_gemv};
static const struct kiln_kernel *const kernels[] = {&mm_kernel_stream, &mm_kernel_gemv};

const struct kiln_variant mm_variant_gemv_simple = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "gemv_simple",
        .help = "f32 activations and sums on the plain cores; a lane loads what it multiplies",
        .slots = slots,
        .params = simple_params,
        .kernels = simple_kernels,
        .n_slots = GPU_COUNT(slots),
        .n_params = GPU_COUNT(simple_params),
        .n_kernels = GPU_COUNT(simple_kernels),
        .plan = plan_simple};

const struct kiln_variant mm_variant_gemv = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "gemv",
        .help = "weights streamed once through shared memory, the quants of block types times "
                "16-bit activations by the tensor cores; other types as gemv_simple",
        .slots = slots,
        .params = params,
        .kernels = kernels,
        .n_slots = GPU_COUNT(slots),
        .n_params = GPU_COUNT(params),
        .n_kernels = GPU_COUNT(kernels),
        .plan = plan_gemv};

const struct kiln_variant mm_variant_gemv_q8 = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "gemv_q8",
        .help = "as gemv with 8-bit activations, quantized as exact_q8 does; block types alone",
        .slots = slots,
        .params = q8_params,
        .kernels = q8_kernels,
        .n_slots = GPU_COUNT(slots),
        .n_params = GPU_COUNT(q8_params),
        .n_kernels = GPU_COUNT(q8_kernels),
        .plan = plan_q8};
