// norm: schema and plan of the slot norm.
#include "ew_plan.h"

#include <stdio.h>

enum {
    ROWS_SM = 4 // rows a multiprocessor from which on blocks need not be large
};

EW_PARAM(few, "THREADS", 1024, "most threads a block, one block a row; fewer where a row is short",
        KILN_PARAM_REGROUPS);
EW_PARAM(many, "THREADS_MANY", 128,
        "as THREADS, and not above it, where there are 4 rows a multiprocessor and more",
        KILN_PARAM_REGROUPS);
static const struct kiln_param *const threads_list[] = {&few, &many};

static int32_t plan_norm(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct gpu_request request;
    const struct kiln_tensor *in = NULL, *weight = NULL, *out = NULL, *residual = NULL;
    int32_t result = gpu_begin(&request, problem, geometry, device, plan, KILN_OP_NORM);
    if (result == KILN_RESULT_OK) {
        result = gpu_need(&request, KILN_OPERAND_IN, GPU_NEED_F32, -1, -1, &in);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    int64_t columns = in->dims[0];
    int64_t rows = in->dims[1];
    result = gpu_need(&request, KILN_OPERAND_WEIGHT, GPU_NEED_F32, columns, 1, &weight);
    if (result == KILN_RESULT_OK) {
        result = gpu_need(&request, KILN_OPERAND_OUT, GPU_NEED_F32 | GPU_NEED_F16 | GPU_NEED_Q8,
                columns, rows, &out);
    }
    if (result == KILN_RESULT_OK) {
        result = gpu_may(&request, KILN_OPERAND_RESIDUAL, GPU_NEED_F32, columns, rows, &residual);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    struct ew_args args = {.in_stride = in->strides[1],
            .other_stride = residual != NULL ? residual->strides[1] : 0,
            .out_stride = out->strides[1],
            .rows = (int)rows,
            .columns = (int)columns,
            .wide = gpu_alignment(in) >= 16 && gpu_alignment(weight) >= 16 &&
                    gpu_alignment(out) >= (out->dtype == KILN_DTYPE_F16 ? 8 : 16) &&
                    gpu_alignment(residual) >= 16,
            .out_f16 = out->dtype == KILN_DTYPE_F16,
            .eps = request.op->eps};
    bool q8 = out->dtype == KILN_DTYPE_BLOCK;
    if (q8 && !args.wide) {
        return gpu_decline(&request,
                "IN, WEIGHT or RESIDUAL: rows are not 16-byte aligned, which %s needs",
                GPU_Q8_FORMAT);
    }
    int64_t wanted = (gpu_blocks(columns, 4) + 31) / 32 * 32;
    int32_t most = gpu_value(&request, "THREADS");
    int32_t many_most = gpu_value(&request, "THREADS_MANY");
    if (rows >= (int64_t)device->sm_count * ROWS_SM && many_most < most) {
        most = many_most;
    }
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "ew_norm", wanted < most ? (uint32_t)wanted : (uint32_t)most);
    gpu_launch_define(&launch, "OUT_Q8", q8);
    launch.record.flags = KILN_LAUNCH_DEPENDENT;
    gpu_launch_operand(&launch, &request, KILN_OPERAND_IN);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_WEIGHT);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_RESIDUAL);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_OUT);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_N_TOKENS);
    gpu_launch_bytes(&launch, &args, sizeof(args));
    launch.record.grid[0] = (uint32_t)rows;
    launch.record.flops = 4.0 * (double)rows * (double)columns;
    launch.record.bytes_read = gpu_bytes(in) + gpu_bytes(weight) + gpu_bytes(residual);
    launch.record.bytes_written = gpu_bytes(out);
    snprintf(launch.order, sizeof(launch.order), "norm:f32:t%u%s", launch.record.block[0],
            args.wide ? ":v4" : "");
    launch.record.sum_order = launch.order;
    return gpu_launch_submit(&launch, &request);
}

// f16 for matmuls on tensor cores, which round to it anyway.
static const char *const out_formats[] = {"f32", "f16"};
static const struct kiln_io out_io = GPU_IO(OUT, out_formats);
static const struct kiln_io *const ios[] = {&out_io};
// As blocks of integers where all that read OUT take them.
static const char *const q8_formats[] = {GPU_Q8_FORMAT, "f32", "f16"};
static const struct kiln_io q8_io = GPU_IO(OUT, q8_formats);
static const struct kiln_io *const q8_ios[] = {&q8_io};

static const char *const slots[] = {"norm"};
static const struct kiln_kernel *const kernels[] = {&ew_kernel_norm};

const struct kiln_variant ew_variant_norm = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "rms",
        .help = "one block a row, f32 sums",
        .slots = slots,
        .params = threads_list,
        .kernels = kernels,
        .ios = ios,
        .n_slots = GPU_COUNT(slots),
        .n_params = GPU_COUNT(threads_list),
        .n_kernels = GPU_COUNT(kernels),
        .n_ios = GPU_COUNT(ios),
        .plan = plan_norm};

const struct kiln_variant ew_variant_norm_q8 = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "rms_q8",
        .help = "as rms, written as int8 blocks where the readers take them: no quantize op",
        .slots = slots,
        .params = threads_list,
        .kernels = kernels,
        .ios = q8_ios,
        .n_slots = GPU_COUNT(slots),
        .n_params = GPU_COUNT(threads_list),
        .n_kernels = GPU_COUNT(kernels),
        .n_ios = GPU_COUNT(q8_ios),
        .plan = plan_norm};
