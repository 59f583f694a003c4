// elementwise: plans embed, norm, rope_kv, activation and argmax: the slots whose rows do not meet.
#include "plan.h"

#include "args.h"

#include <stdio.h>

#define TRY(expression) \
    do { \
        int32_t try_result = (expression); \
        if (try_result != KILN_RESULT_OK) { \
            return try_result; \
        } \
    } while (0)

int32_t cpu_plan_embed(const struct cpu_request *request) {
    const struct kiln_op *op = request->op;
    const struct kiln_tensor *weight;
    const struct kiln_tensor *out;
    const struct kiln_tensor *ids;
    TRY(cpu_need(request, KILN_OPERAND_WEIGHT, CPU_NEED_WEIGHT, -1, -1, &weight));
    TRY(cpu_need(request, KILN_OPERAND_OUT, CPU_NEED_F32, weight->dims[0], -1, &out));
    TRY(cpu_need(request, KILN_OPERAND_IDS, CPU_NEED_I32, 1, out->dims[1], &ids));
    struct cpu_launch launch;
    cpu_launch_begin(&launch, "embed_generic", "exact:embed");
    struct cpu_rowwise params = {.s = out->dims[1],
            .columns = out->dims[0],
            .in_stride = weight->strides[1],
            .out_stride = out->strides[1],
            .vocab = weight->dims[1],
            .dtype = weight->dtype,
            .scale = op->scale,
            .in = cpu_launch_operand(&launch, op, KILN_OPERAND_IDS),
            .weight = cpu_launch_operand(&launch, op, KILN_OPERAND_WEIGHT),
            .out = cpu_launch_operand(&launch, op, KILN_OPERAND_OUT),
            .n_tokens = cpu_launch_operand(&launch, op, KILN_OPERAND_N_TOKENS)};
    launch.record.grid[0] = cpu_blocks(params.s, 1);
    launch.record.flops = (double)params.s * (double)params.columns;
    launch.record.bytes_read = cpu_tensor_bytes(ids) + cpu_tensor_bytes(weight) /
                                                               (double)weight->dims[1] *
                                                               (double)params.s;
    launch.record.bytes_written = cpu_tensor_bytes(out);
    return cpu_launch_submit(&launch, request, &params, sizeof(params));
}

int32_t cpu_plan_norm(const struct cpu_request *request) {
    const struct kiln_op *op = request->op;
    const struct kiln_tensor *in;
    const struct kiln_tensor *weight;
    const struct kiln_tensor *residual;
    const struct kiln_tensor *out;
    TRY(cpu_need(request, KILN_OPERAND_IN, CPU_NEED_F32, -1, -1, &in));
    TRY(cpu_need(request, KILN_OPERAND_WEIGHT, CPU_NEED_F32, in->dims[0], 1, &weight));
    TRY(cpu_need(request, KILN_OPERAND_OUT, CPU_NEED_F32, in->dims[0], in->dims[1], &out));
    TRY(cpu_may(request, KILN_OPERAND_RESIDUAL, CPU_NEED_F32, in->dims[0], in->dims[1], &residual));
    struct cpu_launch launch;
    cpu_launch_begin(&launch, "norm_generic", "exact:norm:f64:l8");
    struct cpu_rowwise params = {.s = in->dims[1],
            .columns = in->dims[0],
            .in_stride = in->strides[1],
            .other_stride = residual != NULL ? residual->strides[1] : 0,
            .out_stride = out->strides[1],
            .eps = op->eps,
            .in = cpu_launch_operand(&launch, op, KILN_OPERAND_IN),
            .weight = cpu_launch_operand(&launch, op, KILN_OPERAND_WEIGHT),
            .other = cpu_launch_operand(&launch, op, KILN_OPERAND_RESIDUAL),
            .out = cpu_launch_operand(&launch, op, KILN_OPERAND_OUT),
            .n_tokens = cpu_launch_operand(&launch, op, KILN_OPERAND_N_TOKENS)};
    launch.record.grid[0] = cpu_blocks(params.s, 1);
    launch.record.flops = 4.0 * (double)params.s * (double)params.columns;
    launch.record.bytes_read =
            cpu_tensor_bytes(in) + cpu_tensor_bytes(weight) + cpu_tensor_bytes(residual);
    launch.record.bytes_written = cpu_tensor_bytes(out);
    return cpu_launch_submit(&launch, request, &params, sizeof(params));
}

int32_t cpu_plan_activation(const struct cpu_request *request) {
    const struct kiln_op *op = request->op;
    const struct kiln_tensor *gate;
    const struct kiln_tensor *up;
    const struct kiln_tensor *out;
    TRY(cpu_need(request, KILN_OPERAND_GATE, CPU_NEED_F32, -1, -1, &gate));
    TRY(cpu_need(request, KILN_OPERAND_UP, CPU_NEED_F32, gate->dims[0], gate->dims[1], &up));
    TRY(cpu_need(request, KILN_OPERAND_OUT, CPU_NEED_F32, gate->dims[0], gate->dims[1], &out));
    if (op->activation != KILN_ACTIVATION_SILU && op->activation != KILN_ACTIVATION_GELU_TANH) {
        return cpu_decline(request, "activation %u is not handled, only silu (1) and gelu_tanh (2)",
                op->activation);
    }
    struct cpu_launch launch;
    cpu_launch_begin(&launch, request->avx2 ? "activation_avx2" : "activation_generic", NULL);
    struct cpu_rowwise params = {.s = gate->dims[1],
            .columns = gate->dims[0],
            .in_stride = gate->strides[1],
            .other_stride = up->strides[1],
            .out_stride = out->strides[1],
            .activation = op->activation,
            .in = cpu_launch_operand(&launch, op, KILN_OPERAND_GATE),
            .other = cpu_launch_operand(&launch, op, KILN_OPERAND_UP),
            .out = cpu_launch_operand(&launch, op, KILN_OPERAND_OUT),
            .n_tokens = cpu_launch_operand(&launch, op, KILN_OPERAND_N_TOKENS)};
    launch.record.grid[0] = cpu_blocks(params.columns, CPU_ACTIVATION_COLUMNS);
    launch.record.grid[1] = cpu_blocks(params.s, 1);
    launch.record.flops = 5.0 * (double)params.s * (double)params.columns;
    launch.record.bytes_read = cpu_tensor_bytes(gate) + cpu_tensor_bytes(up);
    launch.record.bytes_written = cpu_tensor_bytes(out);
    return cpu_launch_submit(&launch, request, &params, sizeof(params));
}

int32_t cpu_plan_quantize(const struct cpu_request *request) {
    const struct kiln_op *op = request->op;
    const struct kiln_tensor *in;
    const struct kiln_tensor *out;
    TRY(cpu_need(request, KILN_OPERAND_IN, CPU_NEED_F32, -1, -1, &in));
    TRY(cpu_need(request, KILN_OPERAND_OUT, CPU_NEED_Q8, in->dims[0], in->dims[1], &out));
    struct cpu_launch launch;
    cpu_launch_begin(&launch, request->avx2 ? "quantize_avx2" : "quantize_generic", NULL);
    struct cpu_rowwise params = {.s = in->dims[1],
            .columns = in->dims[0],
            .in_stride = in->strides[1],
            .out_stride = out->strides[1],
            .in = cpu_launch_operand(&launch, op, KILN_OPERAND_IN),
            .out = cpu_launch_operand(&launch, op, KILN_OPERAND_OUT),
            .n_tokens = cpu_launch_operand(&launch, op, KILN_OPERAND_N_TOKENS)};
    launch.record.grid[0] = cpu_blocks(params.s, 1);
    launch.record.flops = 2.0 * (double)params.s * (double)params.columns;
    launch.record.bytes_read = cpu_tensor_bytes(in);
    launch.record.bytes_written = cpu_tensor_bytes(out);
    return cpu_launch_submit(&launch, request, &params, sizeof(params));
}

int32_t cpu_plan_argmax(const struct cpu_request *request) {
    const struct kiln_op *op = request->op;
    const struct kiln_tensor *in;
    const struct kiln_tensor *out;
    TRY(cpu_need(request, KILN_OPERAND_IN, CPU_NEED_F32, -1, -1, &in));
    TRY(cpu_need(request, KILN_OPERAND_OUT, CPU_NEED_I32, 1, in->dims[1], &out));
    if (in->dims[0] > INT32_MAX) {
        return cpu_decline(request, "IN: %lld columns; an i32 index counts to %d",
                (long long)in->dims[0], INT32_MAX);
    }
    struct cpu_launch launch;
    cpu_launch_begin(&launch, "argmax_generic", NULL);
    struct cpu_rowwise params = {.s = in->dims[1],
            .columns = in->dims[0],
            .in_stride = in->strides[1],
            .in = cpu_launch_operand(&launch, op, KILN_OPERAND_IN),
            .out = cpu_launch_operand(&launch, op, KILN_OPERAND_OUT),
            .n_tokens = cpu_launch_operand(&launch, op, KILN_OPERAND_N_TOKENS)};
    launch.record.grid[0] = cpu_blocks(params.s, 1);
    launch.record.flops = (double)params.s * (double)params.columns;
    launch.record.bytes_read = cpu_tensor_bytes(in);
    launch.record.bytes_written = cpu_tensor_bytes(out);
    return cpu_launch_submit(&launch, request, &params, sizeof(params));
}

struct rope_operands {
    const struct kiln_tensor *q, *k, *v, *q_norm, *k_norm, *freqs, *positions, *out, *k_cache,
            *v_cache;
};

static int32_t find_rope_operands(const struct cpu_request *request, struct rope_operands *found) {
    const struct kiln_op *op = request->op;
    int64_t q_columns = (int64_t)op->n_heads * op->head_size;
    int64_t kv_columns = (int64_t)op->n_kv_heads * op->head_size;
    uint32_t cache = CPU_NEED_F32 | CPU_NEED_F16;
    TRY(cpu_need(request, KILN_OPERAND_Q, CPU_NEED_F32, q_columns, -1, &found->q));
    int64_t s = found->q->dims[1];
    TRY(cpu_need(request, KILN_OPERAND_K, CPU_NEED_F32, kv_columns, s, &found->k));
    TRY(cpu_need(request, KILN_OPERAND_V, CPU_NEED_F32, kv_columns, s, &found->v));
    TRY(cpu_may(request, KILN_OPERAND_Q_NORM, CPU_NEED_F32, op->head_size, 1, &found->q_norm));
    TRY(cpu_may(request, KILN_OPERAND_K_NORM, CPU_NEED_F32, op->head_size, 1, &found->k_norm));
    if (op->rope_dims > 0) {
        TRY(cpu_need(request, KILN_OPERAND_ROPE_FREQS, CPU_NEED_F32, op->rope_dims / 2, 1,
                &found->freqs));
    }
    TRY(cpu_need(request, KILN_OPERAND_POSITIONS, CPU_NEED_I32, 1, s, &found->positions));
    TRY(cpu_need(request, KILN_OPERAND_OUT, CPU_NEED_F32, q_columns, s, &found->out));
    TRY(cpu_need(request, KILN_OPERAND_K_CACHE, cache, kv_columns, -1, &found->k_cache));
    return cpu_need(request, KILN_OPERAND_V_CACHE, cache, kv_columns, found->k_cache->dims[1],
            &found->v_cache);
}

static int32_t check_rope(const struct cpu_request *request) {
    const struct kiln_op *op = request->op;
    if (op->n_heads < 1 || op->n_kv_heads < 1 || op->head_size < 1) {
        return cpu_fail(request,
                "rope_kv: %d heads, %d KV heads of size %d: each must be at least 1", op->n_heads,
                op->n_kv_heads, op->head_size);
    }
    if (op->rope_dims < 0 || op->rope_dims > op->head_size || op->rope_dims % 2 != 0) {
        return cpu_fail(request, "rope_kv: rope_dims %d: must be even and within 0 to head size %d",
                op->rope_dims, op->head_size);
    }
    if (op->rope_dims > 0 && op->rope_style != KILN_ROPE_PAIRS &&
            op->rope_style != KILN_ROPE_HALVES) {
        return cpu_decline(request, "rope style %u is not handled, only pairs (1) and halves (2)",
                op->rope_style);
    }
    if (cpu_operand(op, KILN_OPERAND_PAGE_TABLE) != NULL ||
            cpu_operand(op, KILN_OPERAND_SEQ_START) != NULL) {
        return cpu_decline(request, "a paged cache or several sequences are not handled");
    }
    return KILN_RESULT_OK;
}

int32_t cpu_plan_rope_kv(const struct cpu_request *request) {
    const struct kiln_op *op = request->op;
    struct rope_operands found = {0};
    TRY(check_rope(request));
    TRY(find_rope_operands(request, &found));
    struct cpu_launch launch;
    cpu_launch_begin(&launch, "rope_kv_generic", "exact:rope_kv:norm:f64:l8");
    struct cpu_rope params = {.s = found.q->dims[1],
            .t = found.k_cache->dims[1],
            .q_stride = found.q->strides[1],
            .k_stride = found.k->strides[1],
            .v_stride = found.v->strides[1],
            .out_stride = found.out->strides[1],
            .k_cache_stride = found.k_cache->strides[1],
            .v_cache_stride = found.v_cache->strides[1],
            .heads = op->n_heads,
            .kv_heads = op->n_kv_heads,
            .head_size = op->head_size,
            .rope_dims = op->rope_dims,
            .style = op->rope_style,
            .k_dtype = found.k_cache->dtype,
            .v_dtype = found.v_cache->dtype,
            .scale = op->rope_scale,
            .eps = op->eps,
            .q = cpu_launch_operand(&launch, op, KILN_OPERAND_Q),
            .k = cpu_launch_operand(&launch, op, KILN_OPERAND_K),
            .v = cpu_launch_operand(&launch, op, KILN_OPERAND_V),
            .q_norm = cpu_launch_operand(&launch, op, KILN_OPERAND_Q_NORM),
            .k_norm = cpu_launch_operand(&launch, op, KILN_OPERAND_K_NORM),
            .freqs = cpu_launch_operand(&launch, op, KILN_OPERAND_ROPE_FREQS),
            .positions = cpu_launch_operand(&launch, op, KILN_OPERAND_POSITIONS),
            .out = cpu_launch_operand(&launch, op, KILN_OPERAND_OUT),
            .k_cache = cpu_launch_operand(&launch, op, KILN_OPERAND_K_CACHE),
            .v_cache = cpu_launch_operand(&launch, op, KILN_OPERAND_V_CACHE),
            .n_tokens = cpu_launch_operand(&launch, op, KILN_OPERAND_N_TOKENS)};
    launch.record.grid[0] = cpu_blocks(params.s, 1);
    launch.record.shared_bytes = cpu_rope_scratch(params.head_size, params.rope_dims);
    double q_elems = (double)params.s * (double)found.q->dims[0];
    double kv_elems = (double)params.s * (double)found.k->dims[0];
    launch.record.flops = 3 * (q_elems + kv_elems) * params.rope_dims / params.head_size;
    launch.record.bytes_read =
            cpu_tensor_bytes(found.q) + cpu_tensor_bytes(found.k) + cpu_tensor_bytes(found.v);
    launch.record.bytes_written = cpu_tensor_bytes(found.out) +
                                  kv_elems * (double)found.k_cache->strides[0] +
                                  kv_elems * (double)found.v_cache->strides[0];
    return cpu_launch_submit(&launch, request, &params, sizeof(params));
}
