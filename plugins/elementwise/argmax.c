// argmax: schema and plan of the slot argmax: several blocks a row, then one that takes the best of
// theirs.
#include "ew_plan.h"

enum {
    GRID_Y = 65535,
    LOADS = 4,         // of four columns, that a thread should have to do
    BLOCKS_MAX = 1024, // a row
    BEST_BYTES = 8     // value and index
};

EW_THREADS(threads, 256, "threads a block", 0);

static int32_t submit_part(const struct gpu_request *request, const struct ew_args *args,
        uint32_t threads_a_block, uint32_t parts, const struct kiln_tensor *in) {
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "ew_argmax_part", threads_a_block);
    launch.record.flags = KILN_LAUNCH_DEPENDENT;
    gpu_launch_operand(&launch, request, KILN_OPERAND_IN);
    gpu_launch_workspace(&launch, parts, 0);
    gpu_launch_operand(&launch, request, KILN_OPERAND_N_TOKENS);
    gpu_launch_bytes(&launch, args, sizeof(*args));
    launch.record.grid[0] = (uint32_t)args->blocks;
    launch.record.grid[1] = (uint32_t)args->rows;
    launch.record.flops = (double)args->rows * (double)args->columns;
    launch.record.bytes_read = gpu_bytes(in);
    launch.record.bytes_written = (double)args->rows * args->blocks * BEST_BYTES;
    return gpu_launch_submit(&launch, request);
}

static int32_t submit_last(const struct gpu_request *request, const struct ew_args *args,
        uint32_t threads_a_block, uint32_t parts, const struct kiln_tensor *out) {
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "ew_argmax_last", threads_a_block);
    launch.record.flags = KILN_LAUNCH_DEPENDENT;
    gpu_launch_workspace(&launch, parts, 0);
    gpu_launch_operand(&launch, request, KILN_OPERAND_OUT);
    gpu_launch_operand(&launch, request, KILN_OPERAND_N_TOKENS);
    gpu_launch_bytes(&launch, args, sizeof(*args));
    launch.record.grid[0] = (uint32_t)args->rows;
    launch.record.flops = (double)args->rows * args->blocks;
    launch.record.bytes_read = (double)args->rows * args->blocks * BEST_BYTES;
    launch.record.bytes_written = gpu_bytes(out);
    return gpu_launch_submit(&launch, request);
}

static int32_t plan_argmax(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct gpu_request request;
    const struct kiln_tensor *in = NULL, *out = NULL;
    int32_t result = gpu_begin(&request, problem, geometry, device, plan, KILN_OP_ARGMAX);
    if (result == KILN_RESULT_OK) {
        result = gpu_need(&request, KILN_OPERAND_IN, GPU_NEED_F32, -1, -1, &in);
    }
    if (result == KILN_RESULT_OK) {
        result = gpu_need(&request, KILN_OPERAND_OUT, GPU_NEED_I32, 1, in->dims[1], &out);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    if (in->dims[1] > GRID_Y) {
        return gpu_decline(
                &request, "IN: %lld rows; at most %d are handled", (long long)in->dims[1], GRID_Y);
    }
    int32_t threads_a_block = gpu_value(&request, "THREADS");
    int64_t blocks = gpu_blocks(in->dims[0], 4ll * LOADS * threads_a_block);
    struct ew_args args = {.in_stride = in->strides[1],
            .rows = (int)in->dims[1],
            .columns = (int)in->dims[0],
            .wide = gpu_alignment(in) >= 16,
            .blocks = blocks < BLOCKS_MAX ? (int)blocks : BLOCKS_MAX};
    uint64_t bytes = (uint64_t)args.rows * (uint64_t)args.blocks * BEST_BYTES;
    int32_t parts = plan->workspace(plan, bytes, 0);
    if (parts < 0) {
        return KILN_RESULT_FAILED;
    }
    result = submit_part(&request, &args, (uint32_t)threads_a_block, (uint32_t)parts, in);
    return result == KILN_RESULT_OK
                   ? submit_last(&request, &args, (uint32_t)threads_a_block, (uint32_t)parts, out)
                   : result;
}

static const struct kiln_kernel *const kernels[] = {&ew_kernel_argmax_part, &ew_kernel_argmax_last};
EW_VARIANT(ew_variant_argmax, "two_step", "blocks share a row, then one takes the best of theirs",
        "argmax", plan_argmax, threads_list, kernels);
