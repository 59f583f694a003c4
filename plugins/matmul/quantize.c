// quantize: the edge format of the int8 variants, and the plan of the op that makes it of f32 or
// f16. Whether there is one for each reader or one an edge is kiln's choice, not this variant's.
#include "mmq.h"

enum {
    ROW_THREADS = 256
};

const struct kiln_format mm_format_q8 = {.struct_size = sizeof(mm_format_q8),
        .block_elems = GPU_Q8_COLUMNS,
        .block_bytes = GPU_Q8_BYTES,
        .row_multiple = 1,
        .name = GPU_Q8_FORMAT,
        .layout =
                "a row of K: q i8[K], then K/32 times scale f32 and scale * sum of q f32; value = "
                "scale * q"};

static int32_t plan_quantize(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct gpu_request request;
    const struct kiln_tensor *in = NULL, *out = NULL;
    int32_t result = gpu_begin(&request, problem, geometry, device, plan, KILN_OP_QUANTIZE);
    if (result == KILN_RESULT_OK) {
        result = gpu_need(&request, KILN_OPERAND_IN, GPU_NEED_F32 | GPU_NEED_F16, -1, -1, &in);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    result = gpu_need(&request, KILN_OPERAND_OUT, GPU_NEED_Q8, in->dims[0], in->dims[1], &out);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    struct mm_args args = {.in_stride = in->strides[1],
            .out_stride = out->strides[1],
            .rows = (int)in->dims[1],
            .k = (int)in->dims[0],
            .in_wide = gpu_alignment(in) >= (in->dtype == KILN_DTYPE_F16 ? 8 : 16)};
    int64_t blocks = gpu_blocks(args.k, 4 * ROW_THREADS) * args.rows;
    if (blocks > INT32_MAX) {
        return gpu_decline(&request, "IN: %d rows of %d columns are more than a grid holds",
                args.rows, args.k);
    }
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "mm_quantize", ROW_THREADS);
    gpu_launch_define(&launch, "ROW_THREADS", ROW_THREADS);
    gpu_launch_define(&launch, "IN_F16", in->dtype == KILN_DTYPE_F16);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_IN);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_OUT);
    gpu_launch_operand(&launch, &request, KILN_OPERAND_N_TOKENS);
    gpu_launch_bytes(&launch, &args, sizeof(args));
    launch.record.grid[0] = (uint32_t)blocks;
    launch.record.flops = 3.0 * (double)args.rows * (double)args.k;
    launch.record.bytes_read = gpu_bytes(in);
    launch.record.bytes_written = gpu_bytes(out);
    return gpu_launch_submit(&launch, &request);
}

static const char *const out_formats[] = {GPU_Q8_FORMAT};
static const struct kiln_io out_io = GPU_IO(OUT, out_formats);
static const struct kiln_io *const ios[] = {&out_io};
static const char *const slots[] = {"quantize"};
static const struct kiln_kernel *const kernels[] = {&mm_kernel_quantize};

const struct kiln_variant mm_variant_quantize = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = GPU_Q8_FORMAT,
        .help = "f32 to int8 with a scale and a scaled sum each 32 columns",
        .slots = slots,
        .kernels = kernels,
        .ios = ios,
        .n_slots = GPU_COUNT(slots),
        .n_kernels = GPU_COUNT(kernels),
        .n_ios = GPU_COUNT(ios),
        .plan = plan_quantize};
