// activation: schema and plan of the slot activation.
#include "ew_plan.h"

EW_THREADS(threads, 256, "threads a block, four columns each", 0);

static int32_t plan_activation(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct gpu_request request;
    const struct kiln_tensor *gate = NULL, *up = NULL, *out = NULL;
    int32_t result = gpu_begin(&request, problem, geometry, device, plan, KILN_OP_ACTIVATION);
    if (result == KILN_RESULT_OK) {
        result = gpu_need(&request, KILN_OPERAND_GATE, GPU_NEED_F32, -1, -1, &gate);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    int64_t columns = gate->dims[0];
    int64_t rows = gate->dims[1];
    result = gpu_need(&request, KILN_OPERAND_UP, GPU_NEED_F32, columns, rows, &up);
    if (result == KILN_RESULT_OK) {
        result = gpu_need(
                &request, KILN_OPERAND_OUT, GPU_NEED_F32 | GPU_NEED_Q8, columns, rows, &out);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    uint32_t kind = request.op->activation;
    if (kind != KILN_ACTIVATION_SILU && kind != KILN_ACTIVATION_GELU_TANH) {
        return gpu_decline(
                &request, "activation %u is not handled, only silu (1) and gelu_tanh (2)", kind);
    }
    struct ew_args args = {.in_stride = gate->strides[1],
            .other_stride = up->strides[1],
            .out_stride = out->strides[1],
            .rows = (int)rows,
            .columns = (int)columns,
            .wide = gpu_alignment(gate) >= 16 && gpu_alignment(up) >= 16 &&
                    gpu_alignment(out) >= 16,
            .activation = (int)kind};
    bool q8 = out->dtype == KILN_DTYPE_BLOCK;
    if (q8 && !args.wide) {
        return gpu_decline(&request, "GATE or UP: rows are not 16-byte aligned, which %s needs",
                GPU_Q8_FORMAT);
    }
    int32_t threads_a_block = gpu_value(&request, "THREADS");
    int64_t blocks = gpu_blocks(columns, 4ll * threads_a_block) * rows;
    if (blocks > INT32_MAX) {
        return gpu_decline(&request, "GATE: %lld rows of %lld columns are more than a grid holds",
                (long long)rows, (long long)columns);
    }
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "ew_activation", (uint32_t)threads_a_block);
    gpu_launch_define(&launch, "OUT_Q8", q8);
    launch.record.flags = KILN_LAUNCH_DEPENDENT;
    gpu_launch_operand(&launch, &request, KILN_OPERAND_GATE);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_UP);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_OUT);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_N_TOKENS);
    gpu_launch_bytes(&launch, &args, sizeof(args));
    launch.record.grid[0] = (uint32_t)blocks;
    launch.record.flops = 5.0 * (double)rows * (double)columns;
    launch.record.bytes_read = gpu_bytes(gate) + gpu_bytes(up);
    launch.record.bytes_written = gpu_bytes(out);
    return gpu_launch_submit(&launch, &request);
}

static const struct kiln_kernel *const kernels[] = {&ew_kernel_activation};
EW_VARIANT(ew_variant_activation, "glu", "silu or gelu_tanh of the gate, times up", "activation",
        plan_activation, threads_list, kernels);

// As blocks of integers where all that read OUT take them.
static const char *const q8_slots[] = {"activation"};
static const char *const q8_formats[] = {GPU_Q8_FORMAT, "f32"};
static const struct kiln_io q8_io = GPU_IO(OUT, q8_formats);
static const struct kiln_io *const q8_ios[] = {&q8_io};

const struct kiln_variant ew_variant_activation_q8 = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "glu_q8",
        .help = "as glu, written as int8 blocks where the readers take them: no quantize op",
        .slots = q8_slots,
        .params = threads_list,
        .kernels = kernels,
        .ios = q8_ios,
        .n_slots = GPU_COUNT(q8_slots),
        .n_params = GPU_COUNT(threads_list),
        .n_kernels = GPU_COUNT(kernels),
        .n_ios = GPU_COUNT(q8_ios),
        .plan = plan_activation};
