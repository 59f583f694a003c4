// embed: schema and plan of the slot embed.
#include "ew_plan.h"

EW_THREADS(threads, 128, "threads a block, 16 columns each", 0);

static int32_t plan_embed(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct gpu_request request;
    const struct kiln_tensor *weight = NULL, *out = NULL, *ids = NULL;
    int32_t result = gpu_begin(&request, problem, geometry, device, plan, KILN_OP_EMBED);
    if (result == KILN_RESULT_OK) {
        result = gpu_need(&request, KILN_OPERAND_WEIGHT, GPU_NEED_WEIGHT, -1, -1, &weight);
    }
    if (result == KILN_RESULT_OK) {
        result = gpu_need(&request, KILN_OPERAND_OUT, GPU_NEED_F32, weight->dims[0], -1, &out);
    }
    if (result == KILN_RESULT_OK) {
        result = gpu_need(&request, KILN_OPERAND_IDS, GPU_NEED_I32, 1, out->dims[1], &ids);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    int64_t rows = out->dims[1];
    struct ew_args args = {.in_stride = weight->strides[1],
            .out_stride = out->strides[1],
            .rows = (int)rows,
            .columns = (int)out->dims[0],
            .wide = gpu_alignment(out) >= 16,
            .vocab = (int)weight->dims[1],
            .scale = request.op->scale};
    int32_t threads_a_block = gpu_value(&request, "THREADS");
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "ew_embed", (uint32_t)threads_a_block);
    launch.record.flags = KILN_LAUNCH_DEPENDENT;
    gpu_launch_define_weight(&launch, weight);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_IDS);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_WEIGHT);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_OUT);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_N_TOKENS);
    gpu_launch_bytes(&launch, &args, sizeof(args));
    launch.record.grid[0] = (uint32_t)rows;
    launch.record.grid[1] = (uint32_t)gpu_blocks(args.columns, 16ll * threads_a_block);
    launch.record.flops = (double)rows * (double)args.columns;
    launch.record.bytes_read =
            gpu_bytes(ids) + gpu_bytes(weight) / (double)weight->dims[1] * (double)rows;
    launch.record.bytes_written = gpu_bytes(out);
    return gpu_launch_submit(&launch, &request);
}

static const struct kiln_kernel *const kernels[] = {&ew_kernel_embed};
EW_VARIANT(ew_variant_embed, "gather", "one row of the table a token, dequantized", "embed",
        plan_embed, threads_list, kernels);
