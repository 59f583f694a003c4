// attention: plans OUT = softmax(scale * Q · Kᵀ) · V over the contiguous cache, causal, with window
// and softcap.
//
// A row at position p sees the keys at positions max(0, p - window + 1) .. min(p, T - 1) and no
// other: not their values, nor, through 0 * NaN, any sign of them. A row that sees no key gives
// zeros.
#include "plan.h"

#include "args.h"

#include <stdio.h>

enum {
    HEAD_SIZE_MAX = 1024,
    BLOCK_HEADS_MAX = 16
};

struct operands {
    const struct kiln_tensor *q, *k, *v, *positions, *out;
};

static int32_t check_op(const struct cpu_request *request) {
    const struct kiln_op *op = request->op;
    if (op->n_heads < 1 || op->n_kv_heads < 1 || op->n_heads % op->n_kv_heads != 0) {
        return cpu_fail(request, "attention: %d heads are not a multiple of %d KV heads",
                op->n_heads, op->n_kv_heads);
    }
    if (op->head_size < 1 || op->head_size > HEAD_SIZE_MAX) {
        return cpu_decline(
                request, "head size %d is not handled, only 1 to %d", op->head_size, HEAD_SIZE_MAX);
    }
    if (op->window < 0 || op->softcap < 0) {
        return cpu_fail(request, "attention: window %d and softcap %g: neither may be negative",
                op->window, (double)op->softcap);
    }
    if (cpu_operand(op, KILN_OPERAND_PAGE_TABLE) != NULL ||
            cpu_operand(op, KILN_OPERAND_SEQ_START) != NULL) {
        return cpu_decline(request, "a paged cache or several sequences are not handled");
    }
    return KILN_RESULT_OK;
}

static int32_t find_operands(const struct cpu_request *request, struct operands *found) {
    const struct kiln_op *op = request->op;
    int64_t q_columns = (int64_t)op->n_heads * op->head_size;
    int64_t kv_columns = (int64_t)op->n_kv_heads * op->head_size;
    uint32_t cache = CPU_NEED_F32 | CPU_NEED_F16;
    int32_t result = cpu_need(request, KILN_OPERAND_Q, CPU_NEED_F32, q_columns, -1, &found->q);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    int64_t s = found->q->dims[1];
    result = cpu_need(request, KILN_OPERAND_OUT, CPU_NEED_F32, q_columns, s, &found->out);
    if (result == KILN_RESULT_OK) {
        result = cpu_need(request, KILN_OPERAND_POSITIONS, CPU_NEED_I32, 1, s, &found->positions);
    }
    if (result == KILN_RESULT_OK) {
        result = cpu_need(request, KILN_OPERAND_K_CACHE, cache, kv_columns, -1, &found->k);
    }
    if (result == KILN_RESULT_OK) {
        int64_t t = found->k->dims[1];
        result = cpu_need(request, KILN_OPERAND_V_CACHE, cache, kv_columns, t, &found->v);
    }
    return result;
}

// As if the rows were the last of a full cache: where they really are is not known when the op is
// planned.
static void count_work(const struct cpu_request *request, const struct operands *found,
        struct kiln_launch *launch) {
    const struct kiln_op *op = request->op;
    int64_t s = found->q->dims[1];
    int64_t t = found->k->dims[1];
    double pairs = 0;
    for (int64_t row = 0; row < s; row++) {
        int64_t keys = t - (s - 1 - row);
        keys = keys < 0 ? 0 : keys;
        pairs += (double)(op->window > 0 && keys > op->window ? op->window : keys);
    }
    int64_t span = op->window > 0 && t > op->window + s ? op->window + s : t;
    double row_bytes =
            (double)found->k->dims[0] * (double)(found->k->strides[0] + found->v->strides[0]);
    launch->flops = 4 * pairs * op->n_heads * op->head_size;
    launch->bytes_read = cpu_tensor_bytes(found->q) + row_bytes * (double)span;
    launch->bytes_written = cpu_tensor_bytes(found->out);
}

// Decode with AVX2 takes as many heads of one KV head together as leaves two blocks a thread: K and
// V are read once for them. No result depends on it.
static void plan_grid(const struct cpu_request *request, struct cpu_attention *params,
        struct kiln_launch *launch) {
    int32_t queries = 1;
    launch->grid[0] = (uint32_t)params->heads;
    launch->grid[1] = cpu_blocks(params->s, 1);
    if (request->avx2 && request->problem->phase == KILN_PHASE_DECODE) {
        int64_t wanted = 2 * (int64_t)request->device->sm_count;
        int32_t group = params->heads / params->kv_heads;
        queries = group < BLOCK_HEADS_MAX ? group : BLOCK_HEADS_MAX;
        while (queries > 1 && params->s * params->kv_heads * cpu_blocks(group, queries) < wanted) {
            queries--;
        }
        params->block_heads = queries;
        launch->grid[0] = (uint32_t)params->kv_heads * cpu_blocks(group, queries);
    } else if (request->avx2) {
        queries = CPU_TILE_QUERIES;
        launch->grid[1] = cpu_blocks(params->s, CPU_TILE_QUERIES);
    }
    launch->shared_bytes = cpu_attention_scratch(params->head_size, queries);
}

int32_t cpu_plan_attention(const struct cpu_request *request) {
    const struct kiln_op *op = request->op;
    struct operands found = {0};
    int32_t result = check_op(request);
    if (result == KILN_RESULT_OK) {
        result = find_operands(request, &found);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    bool decode = request->problem->phase == KILN_PHASE_DECODE;
    const char *phase = decode ? "decode" : "prefill";
    char kernel[64];
    char order[64];
    snprintf(kernel, sizeof(kernel), "attention_%s_%s", phase, request->avx2 ? "avx2" : "generic");
    snprintf(order, sizeof(order), "exact:attention:%s:t64",
            request->avx2 ? decode ? "decode:avx2" : "prefill:avx2" : "generic");
    struct cpu_launch launch;
    cpu_launch_begin(&launch, kernel, order);
    struct cpu_attention params = {.s = found.q->dims[1],
            .t = found.k->dims[1],
            .q_stride = found.q->strides[1],
            .k_stride = found.k->strides[1],
            .v_stride = found.v->strides[1],
            .out_stride = found.out->strides[1],
            .heads = op->n_heads,
            .kv_heads = op->n_kv_heads,
            .head_size = op->head_size,
            .window = op->window,
            .k_dtype = found.k->dtype,
            .v_dtype = found.v->dtype,
            .scale = op->scale,
            .softcap = op->softcap,
            .q = cpu_launch_operand(&launch, op, KILN_OPERAND_Q),
            .k = cpu_launch_operand(&launch, op, KILN_OPERAND_K_CACHE),
            .v = cpu_launch_operand(&launch, op, KILN_OPERAND_V_CACHE),
            .positions = cpu_launch_operand(&launch, op, KILN_OPERAND_POSITIONS),
            .out = cpu_launch_operand(&launch, op, KILN_OPERAND_OUT),
            .n_tokens = cpu_launch_operand(&launch, op, KILN_OPERAND_N_TOKENS)};
    plan_grid(request, &params, &launch.record);
    count_work(request, &found, &launch.record);
    return cpu_launch_submit(&launch, request, &params, sizeof(params));
}
