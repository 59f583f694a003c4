// fused: variants of mm_stream that fill several adjacent ops of a layer in one launch: a norm and
// the matrices that read it.
#include "stream.h"

// A matrix of the problem's op: its WEIGHT has K columns, IN is the norm's OUT.
static int32_t take_matrix(struct mv_request *request, uint32_t op) {
    struct gpu_request *base = &request->base;
    struct mv_matrix *matrix = &request->matrices[request->n_matrices++];
    const struct kiln_tensor *in;
    *matrix = (struct mv_matrix){.op = op};
    base->op = base->problem->ops[op];
    int32_t result =
            gpu_need(base, KILN_OPERAND_WEIGHT, GPU_NEED_WEIGHT, request->k, -1, &matrix->weight);
    if (result == KILN_RESULT_OK) {
        result = gpu_need(base, KILN_OPERAND_IN, GPU_NEED_F32, request->k, request->rows, &in);
    }
    int64_t n = result == KILN_RESULT_OK && matrix->weight ? matrix->weight->dims[1] : 0;
    if (result == KILN_RESULT_OK) {
        result = gpu_need(base, KILN_OPERAND_OUT, GPU_NEED_F32, n, request->rows, &matrix->out);
    }
    if (result == KILN_RESULT_OK) {
        result = gpu_may(base, KILN_OPERAND_BIAS, GPU_NEED_F32, n, 1, &matrix->bias);
    }
    if (result == KILN_RESULT_OK) {
        result = gpu_may(
                base, KILN_OPERAND_RESIDUAL, GPU_NEED_F32, n, request->rows, &matrix->residual);
    }
    if (result == KILN_RESULT_OK && matrix->residual != NULL) {
        return gpu_decline(base, "RESIDUAL: not handled behind a norm");
    }
    return result;
}

static int32_t take_norm(struct mv_request *request) {
    struct gpu_request *base = &request->base;
    const struct kiln_tensor *residual = NULL, *out = NULL;
    int32_t result = gpu_need(base, KILN_OPERAND_IN, GPU_NEED_F32, -1, -1, &request->in);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    request->k = request->in->dims[0];
    request->rows = request->in->dims[1];
    request->eps = base->op->eps;
    result =
            gpu_need(base, KILN_OPERAND_WEIGHT, GPU_NEED_F32, request->k, 1, &request->norm_weight);
    if (result == KILN_RESULT_OK) {
        result = gpu_need(base, KILN_OPERAND_OUT, GPU_NEED_F32, request->k, request->rows, &out);
    }
    if (result == KILN_RESULT_OK) {
        result = gpu_may(
                base, KILN_OPERAND_RESIDUAL, GPU_NEED_F32, request->k, request->rows, &residual);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    if (residual != NULL || !(out->flags & KILN_TENSOR_INTERNAL)) {
        return gpu_decline(base, residual != NULL
                                         ? "RESIDUAL: a norm that adds is not handled"
                                         : "OUT: others read the norm too, which is not stored");
    }
    return KILN_RESULT_OK;
}

static int32_t submit(const struct mv_request *request) {
    char why[160];
    if (!mv_fits(request, why, sizeof(why))) {
        return gpu_decline(&request->base, "%s", why);
    }
    return mv_submit(request);
}

// A norm, then matrices of its result.
static int32_t plan_norm_qkv(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    static const uint32_t kinds[] = {KILN_OP_NORM, KILN_OP_MATMUL, KILN_OP_MATMUL, KILN_OP_MATMUL};
    (void)instance;
    struct mv_request request = {.norm = true, .x_bits = 16};
    int32_t result =
            gpu_begin_ops(&request.base, problem, geometry, device, plan, kinds, GPU_COUNT(kinds));
    if (result == KILN_RESULT_OK) {
        result = take_norm(&request);
    }
    for (uint32_t i = 1; i < GPU_COUNT(kinds) && result == KILN_RESULT_OK; i++) {
        result = take_matrix(&request, i);
    }
    return result == KILN_RESULT_OK ? submit(&request) : result;
}

// GATE and UP are the outputs of the matrices; OUT is what leaves.
static int32_t take_activation(struct mv_request *request, uint32_t op) {
    struct gpu_request *base = &request->base;
    const struct mv_matrix *gate = &request->matrices[0], *up = &request->matrices[1];
    const struct kiln_tensor *tensor;
    int64_t n = gate->weight->dims[1];
    base->op = base->problem->ops[op];
    request->pair = true;
    request->out_op = op;
    request->activation = (int32_t)base->op->activation;
    int32_t result = gpu_need(base, KILN_OPERAND_GATE, GPU_NEED_F32, n, request->rows, &tensor);
    if (result == KILN_RESULT_OK) {
        result = gpu_need(base, KILN_OPERAND_UP, GPU_NEED_F32, n, request->rows, &tensor);
    }
    if (result == KILN_RESULT_OK) {
        result = gpu_need(base, KILN_OPERAND_OUT, GPU_NEED_F32, n, request->rows, &request->out);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    if (up->weight->dims[1] != n) {
        return gpu_fail(base, "UP: %lld columns, GATE has %lld", (long long)up->weight->dims[1],
                (long long)n);
    }
    if (!(gate->out->flags & up->out->flags & KILN_TENSOR_INTERNAL)) {
        return gpu_decline(base, "GATE, UP: others read them too, and they are not stored");
    }
    if (request->activation != KILN_ACTIVATION_SILU &&
            request->activation != KILN_ACTIVATION_GELU_TANH) {
        return gpu_decline(
                base, "activation %d is not handled, only silu and gelu_tanh", request->activation);
    }
    return KILN_RESULT_OK;
}

static int32_t plan_norm_glu(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    static const uint32_t kinds[] = {
            KILN_OP_NORM, KILN_OP_MATMUL, KILN_OP_MATMUL, KILN_OP_ACTIVATION};
    (void)instance;
    struct mv_request request = {.norm = true, .x_bits = 16};
    int32_t result =
            gpu_begin_ops(&request.base, problem, geometry, device, plan, kinds, GPU_COUNT(kinds));
    if (result == KILN_RESULT_OK) {
        result = take_norm(&request);
    }
    for (uint32_t i = 1; i <= 2 && result == KILN_RESULT_OK; i++) {
        result = take_matrix(&request, i);
    }
    if (result == KILN_RESULT_OK) {
        result = take_activation(&request, 3);
    }
    return result == KILN_RESULT_OK ? submit(&request) : result;
}

static const char *const slots[] = {"norm"};
static const char *const qkv[] = {"matmul:attn_q", "matmul:attn_k", "matmul:attn_v"};
static const char *const glu[] = {"matmul:ffn_gate", "matmul:ffn_up", "activation"};
static const struct kiln_param *const params[] = {
        &mv_warps_param, &mv_stages_param, &mv_blocks_param, &mv_overlap_param, &mv_bulk_param};
static const struct kiln_kernel *const kernels[] = {&mm_kernel_stream};

const struct kiln_variant mm_variant_norm_qkv = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "norm_qkv",
        .help = "a norm and the products for Q, K and V in one launch, by the kernel of gemv",
        .slots = slots,
        .follows = qkv,
        .params = params,
        .kernels = kernels,
        .n_slots = GPU_COUNT(slots),
        .n_follows = GPU_COUNT(qkv),
        .n_params = GPU_COUNT(params),
        .n_kernels = GPU_COUNT(kernels),
        .plan = plan_norm_qkv};

const struct kiln_variant mm_variant_norm_glu = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "norm_glu",
        .help = "a norm, the products for gate and up and their activation in one launch, by the "
                "kernel of gemv",
        .slots = slots,
        .follows = glu,
        .params = params,
        .kernels = kernels,
        .n_slots = GPU_COUNT(slots),
        .n_follows = GPU_COUNT(glu),
        .n_params = GPU_COUNT(params),
        .n_kernels = GPU_COUNT(kernels),
        .plan = plan_norm_glu};
