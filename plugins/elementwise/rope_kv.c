// rope_kv: schema and plan of the slot rope_kv: one warp a head.
#include "ew_plan.h"

#include <stdio.h>

EW_THREADS(threads, 128, "threads a block, one warp a head", 0);

struct operands {
    const struct kiln_tensor *q, *k, *v, *q_norm, *k_norm, *freqs, *positions, *out, *k_cache,
            *v_cache;
};

#define TRY(expression) \
    do { \
        int32_t try_result = (expression); \
        if (try_result != KILN_RESULT_OK) { \
            return try_result; \
        } \
    } while (0)

static int32_t find_operands(const struct gpu_request *request, struct operands *found) {
    const struct kiln_op *op = request->op;
    int64_t q_columns = (int64_t)op->n_heads * op->head_size;
    int64_t kv_columns = (int64_t)op->n_kv_heads * op->head_size;
    uint32_t cache = GPU_NEED_F32 | GPU_NEED_F16;
    TRY(gpu_need(request, KILN_OPERAND_Q, GPU_NEED_F32, q_columns, -1, &found->q));
    int64_t s = found->q->dims[1];
    TRY(gpu_need(request, KILN_OPERAND_K, GPU_NEED_F32, kv_columns, s, &found->k));
    TRY(gpu_need(request, KILN_OPERAND_V, GPU_NEED_F32, kv_columns, s, &found->v));
    TRY(gpu_may(request, KILN_OPERAND_Q_NORM, GPU_NEED_F32, op->head_size, 1, &found->q_norm));
    TRY(gpu_may(request, KILN_OPERAND_K_NORM, GPU_NEED_F32, op->head_size, 1, &found->k_norm));
    if (op->rope_dims > 0) {
        TRY(gpu_need(request, KILN_OPERAND_ROPE_FREQS, GPU_NEED_F32, op->rope_dims / 2, 1,
                &found->freqs));
    }
    TRY(gpu_need(request, KILN_OPERAND_POSITIONS, GPU_NEED_I32, 1, s, &found->positions));
    TRY(gpu_need(request, KILN_OPERAND_OUT, cache, q_columns, s, &found->out));
    TRY(gpu_need(request, KILN_OPERAND_K_CACHE, cache, kv_columns, -1, &found->k_cache));
    return gpu_need(request, KILN_OPERAND_V_CACHE, cache, kv_columns, found->k_cache->dims[1],
            &found->v_cache);
}

static int32_t check_op(const struct gpu_request *request) {
    const struct kiln_op *op = request->op;
    if (op->n_heads < 1 || op->n_kv_heads < 1 || op->head_size < 1) {
        return gpu_fail(request, "%d heads, %d KV heads of size %d: each must be at least 1",
                op->n_heads, op->n_kv_heads, op->head_size);
    }
    if (op->rope_dims < 0 || op->rope_dims > op->head_size || op->rope_dims % 2 != 0) {
        return gpu_fail(request, "rope_dims %d: must be even and within 0 to head size %d",
                op->rope_dims, op->head_size);
    }
    if (op->rope_dims > 0 && op->rope_style != KILN_ROPE_PAIRS &&
            op->rope_style != KILN_ROPE_HALVES) {
        return gpu_decline(request, "rope style %u is not handled, only pairs (1) and halves (2)",
                op->rope_style);
    }
    for (uint32_t i = 0; i < op->n_operands; i++) {
        uint32_t operand = op->operands[i]->operand;
        if (operand == KILN_OPERAND_PAGE_TABLE || operand == KILN_OPERAND_SEQ_START) {
            return gpu_decline(request, "a paged cache or several sequences are not handled");
        }
    }
    return KILN_RESULT_OK;
}

static struct ew_rope_args make_args(const struct kiln_op *op, const struct operands *found) {
    return (struct ew_rope_args){.q_stride = found->q->strides[1],
            .k_stride = found->k->strides[1],
            .v_stride = found->v->strides[1],
            .out_stride = found->out->strides[1],
            .k_cache_stride = found->k_cache->strides[1],
            .v_cache_stride = found->v_cache->strides[1],
            .rows = (int)found->q->dims[1],
            .positions = (int)found->k_cache->dims[1],
            .heads = op->n_heads,
            .kv_heads = op->n_kv_heads,
            .head_size = op->head_size,
            .rope_dims = op->rope_dims,
            .pairs = op->rope_style == KILN_ROPE_PAIRS,
            .k_f16 = found->k_cache->dtype == KILN_DTYPE_F16,
            .v_f16 = found->v_cache->dtype == KILN_DTYPE_F16,
            .out_f16 = found->out->dtype == KILN_DTYPE_F16,
            .scale = op->rope_scale,
            .eps = op->eps};
}

static void count_work(
        struct kiln_launch *record, const struct ew_rope_args *args, const struct operands *found) {
    double q = (double)args->rows * (double)found->q->dims[0];
    double kv = (double)args->rows * (double)found->k->dims[0];
    record->flops = 3 * (q + kv) * args->rope_dims / args->head_size;
    record->bytes_read = gpu_bytes(found->q) + gpu_bytes(found->k) + gpu_bytes(found->v);
    record->bytes_written = gpu_bytes(found->out) + kv * (double)found->k_cache->strides[0] +
                            kv * (double)found->v_cache->strides[0];
}

static int32_t plan_rope_kv(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    static const uint32_t operands[] = {KILN_OPERAND_Q, KILN_OPERAND_K, KILN_OPERAND_V,
            KILN_OPERAND_Q_NORM, KILN_OPERAND_K_NORM, KILN_OPERAND_ROPE_FREQS,
            KILN_OPERAND_POSITIONS, KILN_OPERAND_OUT, KILN_OPERAND_K_CACHE, KILN_OPERAND_V_CACHE,
            KILN_OPERAND_N_TOKENS};
    struct gpu_request request;
    struct operands found = {0};
    TRY(gpu_begin(&request, problem, geometry, device, plan, KILN_OP_ROPE_KV));
    TRY(check_op(&request));
    TRY(find_operands(&request, &found));
    struct ew_rope_args args = make_args(request.op, &found);
    int32_t threads_a_block = gpu_value(&request, "THREADS");
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "ew_rope_kv", (uint32_t)threads_a_block);
    launch.record.flags = KILN_LAUNCH_DEPENDENT;
    for (uint32_t i = 0; i < GPU_COUNT(operands); i++) {
        gpu_launch_operand(&launch, &request, operands[i]);
    }
    gpu_launch_bytes(&launch, &args, sizeof(args));
    launch.record.grid[0] = (uint32_t)args.rows;
    launch.record.grid[1] =
            (uint32_t)gpu_blocks(args.heads + 2ll * args.kv_heads, threads_a_block / 32);
    count_work(&launch.record, &args, &found);
    launch.record.sum_order = "rope_kv:norm:f32:l32";
    return gpu_launch_submit(&launch, &request);
}

static const char *const cache_formats[] = {"f16", "f32"};
static const char *const out_formats[] = {"f32", "f16"};
static const struct kiln_io k_cache = GPU_IO(K_CACHE, cache_formats);
static const struct kiln_io v_cache = GPU_IO(V_CACHE, cache_formats);
static const struct kiln_io out = GPU_IO(OUT, out_formats);
static const struct kiln_io *const ios[] = {&out, &k_cache, &v_cache};

static const char *const slots[] = {"rope_kv"};
static const struct kiln_kernel *const kernels[] = {&ew_kernel_rope_kv};

const struct kiln_variant ew_variant_rope_kv = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "rope_kv",
        .help = "one warp a head: norm, rotation, cache; f16 or f32 caches",
        .slots = slots,
        .params = threads_list,
        .kernels = kernels,
        .ios = ios,
        .n_slots = GPU_COUNT(slots),
        .n_params = GPU_COUNT(threads_list),
        .n_kernels = GPU_COUNT(kernels),
        .n_ios = GPU_COUNT(ios),
        .plan = plan_rope_kv};
