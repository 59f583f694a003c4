// mm_plan: checks OUT (S, N) = IN (S, K) times WEIGHT (N, K) transposed, + BIAS (N), + RESIDUAL (S,
// N).
#include "mm_plan.h"

int32_t mm_begin(struct mm_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, uint32_t in) {
    *request = (struct mm_request){0};
    struct gpu_request *base = &request->base;
    int32_t result = gpu_begin(base, problem, geometry, device, plan, KILN_OP_MATMUL);
    if (result == KILN_RESULT_OK) {
        result = gpu_need(base, KILN_OPERAND_WEIGHT, GPU_NEED_WEIGHT, -1, -1, &request->weight);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    int64_t k = request->weight->dims[0];
    int64_t n = request->weight->dims[1];
    result = gpu_need(base, KILN_OPERAND_IN, in, k, -1, &request->in);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    int64_t s = request->in->dims[1];
    result = gpu_need(base, KILN_OPERAND_OUT, GPU_NEED_F32, n, s, &request->out);
    if (result == KILN_RESULT_OK) {
        result = gpu_may(base, KILN_OPERAND_BIAS, GPU_NEED_F32, n, 1, &request->bias);
    }
    if (result == KILN_RESULT_OK) {
        result = gpu_may(base, KILN_OPERAND_RESIDUAL, GPU_NEED_F32, n, s, &request->residual);
    }
    request->args = (struct mm_args){.in_stride = request->in->strides[1],
            .out_stride = request->out->strides[1],
            .residual_stride = request->residual != NULL ? request->residual->strides[1] : 0,
            .weight_stride = request->weight->strides[1],
            .rows = (int)s,
            .n = (int)n,
            .k = (int)k,
            .in_wide = gpu_alignment(request->in) >= 16,
            .out_wide =
                    gpu_alignment(request->out) >= 16 && gpu_alignment(request->residual) >= 16};
    return result;
}

void mm_count_work(struct kiln_launch *record, const struct mm_request *request) {
    record->flops = 2.0 * request->args.rows * request->args.n * request->args.k;
    record->bytes_read = gpu_bytes(request->in) + gpu_bytes(request->weight) +
                         gpu_bytes(request->bias) + gpu_bytes(request->residual);
    record->bytes_written = gpu_bytes(request->out);
}
