// mm_plan: checks OUT (S, N) = IN (S, K) times WEIGHT (N, K) transposed, + BIAS (N), + RESIDUAL (S,
// N), and a gate with what is behind it.
#include "mm_plan.h"

// The matmul base.op.
static int32_t take_matmul(struct mm_request *request, uint32_t in) {
    struct gpu_request *base = &request->base;
    int32_t result = gpu_need(base, KILN_OPERAND_WEIGHT, GPU_NEED_WEIGHT, -1, -1, &request->weight);
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
    return result;
}

static void fill_args(struct mm_request *request) {
    bool rows = request->out->dtype == KILN_DTYPE_BLOCK;
    request->args = (struct mm_args){.in_stride = request->in->strides[1],
            .out_stride = request->out->strides[1],
            .residual_stride = request->residual != NULL ? request->residual->strides[1] : 0,
            .weight_stride = request->weight->strides[1],
            .rows = (int)request->in->dims[1],
            .n = (int)request->weight->dims[1],
            .k = (int)request->weight->dims[0],
            .in_wide = gpu_alignment(request->in) >= 16,
            .out_wide = gpu_alignment(request->out) >= 16 && gpu_alignment(request->residual) >= 16,
            .out_rows = rows};
}

int32_t mm_begin(struct mm_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, uint32_t in) {
    *request = (struct mm_request){0};
    int32_t result = gpu_begin(&request->base, problem, geometry, device, plan, KILN_OP_MATMUL);
    if (result == KILN_RESULT_OK) {
        result = take_matmul(request, in);
    }
    if (result == KILN_RESULT_OK) {
        fill_args(request);
    }
    return result;
}

// Op 1, which reads what op 0 does.
static int32_t take_up(struct mm_request *request, uint32_t in) {
    struct mm_request up = *request;
    up.base.op = request->base.problem->ops[1];
    int32_t result = take_matmul(&up, in);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    if (up.in->dtype != request->in->dtype || up.in->dims[0] != request->in->dims[0] ||
            up.in->dims[1] != request->in->dims[1] ||
            up.in->strides[1] != request->in->strides[1]) {
        return gpu_decline(&up.base, "IN: that of the up product is not that of the gate");
    }
    if (up.weight->dims[1] != request->weight->dims[1]) {
        return gpu_fail(&up.base, "UP: %lld columns, GATE has %lld", (long long)up.weight->dims[1],
                (long long)request->weight->dims[1]);
    }
    if (request->residual != NULL || up.residual != NULL) {
        return gpu_decline(&up.base, "RESIDUAL: not handled before an activation");
    }
    if (!(request->out->flags & up.out->flags & KILN_TENSOR_INTERNAL)) {
        return gpu_decline(&up.base, "GATE, UP: others read them too, and they are not stored");
    }
    request->up_weight = up.weight;
    request->up_bias = up.bias;
    return KILN_RESULT_OK;
}

// Op 2, whose OUT is what is left of it all.
static int32_t take_activation(struct mm_request *request) {
    struct gpu_request base = request->base;
    const struct kiln_tensor *tensor;
    int64_t n = request->weight->dims[1], s = request->in->dims[1];
    base.op = base.problem->ops[2];
    int32_t result = gpu_need(&base, KILN_OPERAND_GATE, GPU_NEED_F32, n, s, &tensor);
    if (result == KILN_RESULT_OK) {
        result = gpu_need(&base, KILN_OPERAND_UP, GPU_NEED_F32, n, s, &tensor);
    }
    if (result == KILN_RESULT_OK) {
        result = gpu_need(
                &base, KILN_OPERAND_OUT, GPU_NEED_F32 | GPU_NEED_ROWS, n, s, &request->out);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    request->activation = base.op->activation;
    if (request->activation != KILN_ACTIVATION_SILU &&
            request->activation != KILN_ACTIVATION_GELU_TANH) {
        return gpu_decline(&base, "activation %u is not handled, only silu (1) and gelu_tanh (2)",
                request->activation);
    }
    return KILN_RESULT_OK;
}

int32_t mm_begin_glu(struct mm_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, uint32_t in) {
    static const uint32_t kinds[] = {KILN_OP_MATMUL, KILN_OP_MATMUL, KILN_OP_ACTIVATION};
    *request = (struct mm_request){0};
    int32_t result =
            gpu_begin_ops(&request->base, problem, geometry, device, plan, kinds, GPU_COUNT(kinds));
    if (result == KILN_RESULT_OK) {
        result = take_matmul(request, in);
    }
    if (result == KILN_RESULT_OK) {
        result = take_up(request, in);
    }
    if (result == KILN_RESULT_OK) {
        result = take_activation(request);
    }
    if (result == KILN_RESULT_OK) {
        fill_args(request);
    }
    return result;
}

void mm_count_work(struct kiln_launch *record, const struct mm_request *request) {
    double products = request->up_weight != NULL ? 2 : 1;
    record->flops = products * 2.0 * request->args.rows * request->args.n * request->args.k;
    record->bytes_read = gpu_bytes(request->in) + gpu_bytes(request->weight) +
                         gpu_bytes(request->bias) + gpu_bytes(request->residual);
    if (request->up_weight != NULL) {
        record->bytes_read += gpu_bytes(request->up_weight) + gpu_bytes(request->up_bias);
    }
    record->bytes_written = gpu_bytes(request->out);
}
