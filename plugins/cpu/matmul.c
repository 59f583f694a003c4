// matmul: plans OUT (S, N) = IN (S, K) · WEIGHT (N, K)ᵀ + BIAS (N) + RESIDUAL (S, N). OUT may be
// RESIDUAL. No weight is ever expanded as a whole: prefill expands a panel into scratch, decode
// dequantizes in registers. exact_q8 and q8 differ in IN's format, in their kernels and in the
// scratch of these.
#include "plan.h"

#include "args.h"
#include "dequant.h"
#include "i8.h"
#include "q8.h"

#include <stdio.h>

struct operands {
    const struct kiln_tensor *in, *weight, *bias, *residual, *out;
};

enum family {
    EXACT,
    EXACT_Q8,
    FAST_Q8
};

// q8: the operands of exact_q8 and q8.
static int32_t find_operands(const struct cpu_request *request, bool q8, struct operands *found) {
    int32_t result = cpu_need(request, KILN_OPERAND_WEIGHT, q8 ? CPU_NEED_BLOCKS : CPU_NEED_WEIGHT,
            -1, -1, &found->weight);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    int64_t k = found->weight->dims[0];
    int64_t n = found->weight->dims[1];
    result = cpu_need(request, KILN_OPERAND_IN, q8 ? CPU_NEED_Q8 : CPU_NEED_F32, k, -1, &found->in);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    int64_t s = found->in->dims[1];
    result = cpu_need(request, KILN_OPERAND_OUT, CPU_NEED_F32, n, s, &found->out);
    if (result == KILN_RESULT_OK) {
        result = cpu_may(request, KILN_OPERAND_BIAS, CPU_NEED_F32, n, 1, &found->bias);
    }
    if (result == KILN_RESULT_OK) {
        result = cpu_may(request, KILN_OPERAND_RESIDUAL, CPU_NEED_F32, n, s, &found->residual);
    }
    return result;
}

// Rows so that there are about four blocks a thread: enough to level out, few enough that a panel
// is expanded once for many rows. No result depends on it.
static int32_t rows_for(
        int64_t rows, int64_t other_blocks, int64_t threads, int32_t multiple, int32_t most) {
    int64_t wanted = (4 * threads + other_blocks - 1) / other_blocks;
    int64_t each = (rows + wanted - 1) / wanted;
    each = (each + multiple - 1) / multiple * multiple;
    return each > most ? most : (int32_t)each;
}

static uint32_t plan_grid(
        const struct cpu_request *request, struct cpu_matmul *params, struct kiln_launch *launch) {
    int64_t threads = request->device->sm_count > 0 ? request->device->sm_count : 1;
    if (request->problem->phase == KILN_PHASE_DECODE) {
        params->block_rows = rows_for(params->n, 1, threads, 4, CPU_DECODE_ROWS);
        launch->grid[0] = cpu_blocks(params->n, params->block_rows);
        // The activation row in another order, sums of 16 and of 32 columns, or a chunk of weights.
        int64_t floats = params->k + params->k / 16 + params->k / 32;
        return (uint32_t)((floats > CPU_BLOCK_K ? floats : CPU_BLOCK_K) * (int64_t)sizeof(float));
    }
    uint32_t panels = cpu_blocks(params->n, CPU_BLOCK_N);
    params->block_rows = rows_for(params->s, panels, threads, CPU_TILE_ROWS, 40 * CPU_TILE_ROWS);
    launch->grid[0] = panels;
    launch->grid[1] = cpu_blocks(params->s, params->block_rows);
    return cpu_matmul_scratch(params->block_rows);
}

static void count_work(const struct operands *found, struct kiln_launch *launch) {
    double products = (double)found->in->dims[1] * (double)found->weight->dims[0] *
                      (double)found->weight->dims[1];
    launch->flops = 2 * products;
    launch->bytes_read = cpu_tensor_bytes(found->in) + cpu_tensor_bytes(found->weight) +
                         cpu_tensor_bytes(found->bias) + cpu_tensor_bytes(found->residual);
    launch->bytes_written = cpu_tensor_bytes(found->out);
}

static struct cpu_matmul make_params(
        const struct operands *found, const struct kiln_op *op, struct cpu_launch *launch) {
    return (struct cpu_matmul){.s = found->in->dims[1],
            .n = found->weight->dims[1],
            .k = found->weight->dims[0],
            .in_stride = found->in->strides[1],
            .weight_stride = found->weight->strides[1],
            .out_stride = found->out->strides[1],
            .residual_stride = found->residual != NULL ? found->residual->strides[1] : 0,
            .dtype = found->weight->dtype,
            .in = cpu_launch_operand(launch, op, KILN_OPERAND_IN),
            .weight = cpu_launch_operand(launch, op, KILN_OPERAND_WEIGHT),
            .bias = cpu_launch_operand(launch, op, KILN_OPERAND_BIAS),
            .residual = cpu_launch_operand(launch, op, KILN_OPERAND_RESIDUAL),
            .out = cpu_launch_operand(launch, op, KILN_OPERAND_OUT),
            .n_tokens = cpu_launch_operand(launch, op, KILN_OPERAND_N_TOKENS)};
}

// Of the AVX2 decode: types in blocks have their scales taken out.
static const char *decode_order(uint32_t dtype) {
    return cpu_quant_find(dtype)->elems > 1 ? "exact:matmul:decode:avx2:b32"
                                            : "exact:matmul:decode:avx2:l32";
}

static const char *sum_order(
        enum family family, const struct cpu_request *request, uint32_t dtype) {
    bool decode = request->problem->phase == KILN_PHASE_DECODE;
    if (family == EXACT_Q8) {
        return "exact_q8:matmul:k256";
    }
    if (family == FAST_Q8) {
        return decode ? "q8:matmul:decode:avx2:l8" : "q8:matmul:prefill:avx2:l1";
    }
    if (decode) {
        return request->avx2 ? decode_order(dtype) : "exact:matmul:decode:generic:k256:l8";
    }
    return request->avx2 ? "exact:matmul:prefill:avx2:k128"
                         : "exact:matmul:prefill:generic:k256:l8";
}

static uint32_t scratch_of(
        enum family family, bool decode, const struct cpu_matmul *params, uint32_t exact) {
    if (family == EXACT_Q8) {
        return cpu_matmul_q8_scratch(params->block_rows);
    }
#if CPU_HAVE_AVX2
    if (family == FAST_Q8) {
        return decode ? cpu_matmul_i8_decode_scratch(params->k)
                      : cpu_matmul_i8_prefill_scratch(params->block_rows);
    }
#endif
    (void)decode;
    return exact;
}

static int32_t plan_matmul(const struct cpu_request *request, enum family family) {
    static const char *const infixes[] = {"", "_q8", "_i8"};
    struct operands found = {0};
    int32_t result = find_operands(request, family != EXACT, &found);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    bool decode = request->problem->phase == KILN_PHASE_DECODE;
    char kernel[64];
    snprintf(kernel, sizeof(kernel), "matmul%s_%s_%s_%s", infixes[family],
            cpu_quant_find(found.weight->dtype)->name, decode ? "decode" : "prefill",
            request->avx2 ? "avx2" : "generic");
    struct cpu_launch launch;
    cpu_launch_begin(&launch, kernel, sum_order(family, request, found.weight->dtype));
    struct cpu_matmul params = make_params(&found, request->op, &launch);
    uint32_t exact = plan_grid(request, &params, &launch.record);
    launch.record.shared_bytes = scratch_of(family, decode, &params, exact);
    count_work(&found, &launch.record);
    return cpu_launch_submit(&launch, request, &params, sizeof(params));
}

int32_t cpu_plan_matmul(const struct cpu_request *request) {
    return plan_matmul(request, EXACT);
}

int32_t cpu_plan_matmul_q8(const struct cpu_request *request) {
    return plan_matmul(request, EXACT_Q8);
}

int32_t cpu_plan_matmul_i8(const struct cpu_request *request) {
    return request->avx2 ? plan_matmul(request, FAST_Q8)
                         : cpu_decline(request, "the processor has no AVX2, FMA and F16C");
}
