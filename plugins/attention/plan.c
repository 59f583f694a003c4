// plan: checking a problem's operands, writing a launch.
#include "plan.h"

#include "plan_parts.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const double log2_e = 1.4426950408889634;

int32_t attention_decline(const struct attention_request *request, const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    int32_t result = plan_decline(request->plan, fmt, list);
    va_end(list);
    return result;
}

int32_t attention_fail(const struct attention_request *request, const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    int32_t result = plan_fail(request->plan, fmt, list);
    va_end(list);
    return result;
}

int64_t attention_blocks(int64_t numerator, int64_t denominator) {
    return (numerator + denominator - 1) / denominator;
}

int32_t attention_value(const struct attention_request *request, const char *name) {
    return plan_value(request->geometry, name);
}

// ---- Checking ---------------------------------------------------------------------------------
static int32_t check_op(
        const struct attention_request *request, const struct attention_needs *needs) {
    const struct kiln_op *op = request->op;
    if (op->n_heads < 1 || op->n_kv_heads < 1 || op->n_heads % op->n_kv_heads != 0) {
        return attention_fail(
                request, "%d heads are not a multiple of %d KV heads", op->n_heads, op->n_kv_heads);
    }
    if (op->window < 0 || !(op->softcap >= 0)) {
        return attention_fail(request, "window %d and softcap %g: neither may be negative",
                op->window, (double)op->softcap);
    }
    if (!(op->scale > 0) || !isfinite(op->scale)) {
        return attention_decline(
                request, "scale %g is not handled, only finite ones above 0", (double)op->scale);
    }
    if (op->head_size < 1 || op->head_size > needs->head_max ||
            op->head_size % needs->head_multiple != 0) {
        return attention_decline(request,
                "head size %d is not handled, only multiples of %d up to %d", op->head_size,
                needs->head_multiple, needs->head_max);
    }
    if (plan_operand(op, KILN_OPERAND_PAGE_TABLE) || plan_operand(op, KILN_OPERAND_SEQ_START) ||
            plan_operand(op, KILN_OPERAND_N_SEQ)) {
        return attention_decline(
                request, "a paged cache or several sequences are not handled, only one sequence");
    }
    return KILN_RESULT_OK;
}

struct shape {
    const char *name;
    uint32_t operand;
    bool f16, f32;
    int64_t columns, rows; // rows -1: any
    uint64_t alignment;    // bytes; 0: of an element
};

static int32_t check_layout(const struct attention_request *request,
        const struct kiln_tensor *tensor, const struct shape *shape) {
    int64_t elem = tensor->dtype == KILN_DTYPE_F16 ? 2 : 4;
    uint64_t step = shape->alignment ? shape->alignment : (uint64_t)elem;
    if (tensor->strides[0] != elem) {
        return attention_decline(request,
                "%s: %lld bytes between neighbouring columns; only %lld is handled", shape->name,
                (long long)tensor->strides[0], (long long)elem);
    }
    if (tensor->alignment % step != 0 || (uint64_t)tensor->strides[1] % step != 0) {
        return attention_decline(request,
                "%s: aligned to %llu bytes, %lld from row to row; both must be multiples of %llu",
                shape->name, (unsigned long long)tensor->alignment, (long long)tensor->strides[1],
                (unsigned long long)step);
    }
    for (uint32_t dim = 0; dim < 4; dim++) {
        uint32_t by = tensor->bound_by[dim];
        if (tensor->bound_dims >> dim & 1 &&
                (dim != 1 || (by != KILN_OPERAND_N_TOKENS && by != KILN_OPERAND_KV_LEN))) {
            return attention_decline(request,
                    "%s: dimension %u is bounded by operand %u; only rows bounded by N_TOKENS or "
                    "KV_LEN are handled",
                    shape->name, dim, by);
        }
    }
    return KILN_RESULT_OK;
}

static int32_t need(const struct attention_request *request, const struct shape *shape,
        const struct kiln_tensor **found) {
    const struct kiln_tensor *tensor = plan_operand(request->op, shape->operand);
    *found = tensor;
    if (!tensor) {
        return attention_fail(request, "the op's operand %s is missing", shape->name);
    }
    if (!((tensor->dtype == KILN_DTYPE_F16 && shape->f16) ||
                (tensor->dtype == KILN_DTYPE_F32 && shape->f32))) {
        return attention_decline(request, "%s: dtype %u is not handled, only %s", shape->name,
                tensor->dtype, shape->f32 ? "f32 and f16" : "f16");
    }
    if (tensor->dims[0] != shape->columns || tensor->dims[1] < 1 || tensor->dims[2] > 1 ||
            tensor->dims[3] > 1 || (shape->rows >= 0 && tensor->dims[1] != shape->rows)) {
        return attention_fail(request,
                "%s: %lld columns, %lld rows; the op's other operands ask for %lld, %lld (-1: any)",
                shape->name, (long long)tensor->dims[0], (long long)tensor->dims[1],
                (long long)shape->columns, (long long)shape->rows);
    }
    if (tensor->dims[1] > INT32_MAX / 2) {
        return attention_decline(request, "%s: %lld rows; at most %d are handled", shape->name,
                (long long)tensor->dims[1], INT32_MAX / 2);
    }
    return check_layout(request, tensor, shape);
}

static int32_t check_positions(struct attention_request *request) {
    const struct kiln_tensor *positions = plan_operand(request->op, KILN_OPERAND_POSITIONS);
    request->positions = positions;
    if (!positions) {
        return attention_fail(request, "the op's operand POSITIONS is missing");
    }
    int64_t step = positions->dims[0] > 1 ? positions->strides[0] : positions->strides[1];
    if (positions->dtype != KILN_DTYPE_I32 || (request->rows > 1 && step != 4)) {
        return attention_decline(request,
                "POSITIONS: dtype %u, %lld bytes apart; only i32 without gaps is handled",
                positions->dtype, (long long)step);
    }
    if (positions->dims[0] * positions->dims[1] != request->rows) {
        return attention_fail(request, "POSITIONS: %lld x %lld values for %lld rows of Q",
                (long long)positions->dims[0], (long long)positions->dims[1],
                (long long)request->rows);
    }
    return KILN_RESULT_OK;
}

static int32_t check_operands(
        struct attention_request *request, const struct attention_needs *needs) {
    const struct kiln_op *op = request->op;
    int64_t columns = (int64_t)op->n_heads * op->head_size;
    int64_t kv_columns = (int64_t)op->n_kv_heads * op->head_size;
    int32_t result = need(request,
            &(struct shape){"Q", KILN_OPERAND_Q, true, true, columns, -1, needs->alignment},
            &request->q);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    request->rows = request->q->dims[1];
    // OUT is written two columns at a time where rows of Q are read so.
    result = need(request,
            &(struct shape){"OUT", KILN_OPERAND_OUT, true, true, columns, request->rows,
                    needs->alignment ? 8 : 0},
            &request->out);
    if (result == KILN_RESULT_OK) {
        result = need(request,
                &(struct shape){"K_CACHE", KILN_OPERAND_K_CACHE, true, needs->f32_cache, kv_columns,
                        -1, needs->alignment},
                &request->k);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    request->keys = request->k->dims[1];
    result = need(request,
            &(struct shape){"V_CACHE", KILN_OPERAND_V_CACHE, true, needs->f32_cache, kv_columns,
                    request->keys, needs->alignment},
            &request->v);
    if (result == KILN_RESULT_OK && request->v->dtype != request->k->dtype) {
        return attention_decline(request, "K_CACHE has dtype %u, V_CACHE %u; only one is handled",
                request->k->dtype, request->v->dtype);
    }
    return result == KILN_RESULT_OK ? check_positions(request) : result;
}

static long long stride(const struct kiln_tensor *tensor) {
    return (long long)(tensor->strides[1] / tensor->strides[0]);
}

static void fill_args(struct attention_request *request) {
    const struct kiln_op *op = request->op;
    // With a cap, scores are tanh(scale * q·k / cap), and to_log2 holds the cap.
    bool cap = op->softcap > 0;
    request->args = (struct fa_args){.q_stride = stride(request->q),
            .out_stride = stride(request->out),
            .k_stride = stride(request->k),
            .v_stride = stride(request->v),
            .rows = (int)request->rows,
            .keys = (int)request->keys,
            .heads = op->n_heads,
            .kv_heads = op->n_kv_heads,
            .head_size = op->head_size,
            .window = op->window,
            .splits = 1,
            .to_log2 = (float)(log2_e * (double)(cap ? op->softcap : op->scale)),
            .cap_in = cap ? (float)(2 * log2_e * (double)op->scale / (double)op->softcap) : 0};
}

int32_t attention_begin(struct attention_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, const struct attention_needs *needs) {
    return attention_begin_ops(request, problem, 1, geometry, device, plan, needs);
}

int32_t attention_begin_ops(struct attention_request *request, const struct kiln_problem *problem,
        uint32_t n_ops, const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, const struct attention_needs *needs) {
    *request = (struct attention_request){
            .problem = problem, .geometry = geometry, .device = device, .plan = plan};
    if (device->kind != KILN_DEVICE_CUDA) {
        return attention_decline(
                request, "device kind %u is not handled, only CUDA devices", device->kind);
    }
    if (device->cc < 75) {
        return attention_decline(request, "%s: compute capability %d.%d; at least 7.5 is needed",
                device->target, device->cc / 10, device->cc % 10);
    }
    if (problem->n_ops != n_ops || problem->ops[n_ops - 1]->kind != KILN_OP_ATTENTION) {
        return attention_decline(request,
                "%u ops, the last of kind %u; %u ops are handled, the last an attention",
                problem->n_ops, problem->n_ops ? problem->ops[problem->n_ops - 1]->kind : 0, n_ops);
    }
    request->op = problem->ops[n_ops - 1];
    int32_t result = check_op(request, needs);
    if (result == KILN_RESULT_OK) {
        result = check_operands(request, needs);
    }
    if (result == KILN_RESULT_OK) {
        fill_args(request);
    }
    return result;
}

// ---- Writing ----------------------------------------------------------------------------------
const char *attention_mma_order(const struct attention_request *request) {
    return request->device->cc < 80 ? "mma_k8" : "mma_k16";
}

static double tensor_bytes(const struct kiln_tensor *tensor) {
    return (double)tensor->dims[0] * (double)tensor->dims[1] * (double)tensor->strides[0];
}

// As if the rows were the last of a full cache: where they really are is not known when the op is
// planned.
static void count_work(struct kiln_launch *record, const struct attention_request *request) {
    const struct kiln_op *op = request->op;
    double rows = (double)request->rows, keys = (double)request->keys, window = op->window;
    double seen = keys < rows ? keys : rows; // rows that see a key
    double most = window > 0 && window < keys ? window : keys;
    double full = keys - most < seen ? keys - most : seen; // rows that see `most` keys; the others
    double rest = seen - full;                             // see one fewer from row to row
    double pairs = full * most + rest * most - rest * (rest - 1) / 2;
    double span = window > 0 && keys > window + rows ? window + rows : keys;
    double row_bytes =
            (double)request->k->dims[0] * (double)(request->k->strides[0] + request->v->strides[0]);
    record->flops = 4 * pairs * op->n_heads * op->head_size;
    record->bytes_read = tensor_bytes(request->q) + row_bytes * span;
    record->bytes_written = tensor_bytes(request->out);
}

void attention_launch_begin(struct attention_launch *launch,
        const struct attention_request *request, const char *kernel, const uint32_t grid[3],
        uint32_t threads) {
    memset(launch, 0, sizeof(*launch));
    struct kiln_launch *record = &launch->record;
    record->struct_size = sizeof(*record);
    record->kernel = kernel;
    for (int i = 0; i < 3; i++) {
        record->grid[i] = grid[i];
        record->block[i] = record->cluster[i] = 1;
    }
    record->block[0] = threads;
    record->args = launch->arg_list;
    record->defines = launch->define_list;
    record->sum_order = launch->order;
    for (int i = 0; i < ATTENTION_MAX_ARGS; i++) {
        launch->arg_list[i] = &launch->args[i];
    }
    for (int i = 0; i < ATTENTION_MAX_DEFINES; i++) {
        launch->define_list[i] = launch->defines[i];
    }
    count_work(record, request);
}

void attention_launch_define(struct attention_launch *launch, const char *name, int32_t value) {
    if (launch->record.n_defines < ATTENTION_MAX_DEFINES) {
        snprintf(launch->defines[launch->record.n_defines++], ATTENTION_DEFINE_MAX, "%s=%d", name,
                value);
    }
}

void attention_launch_define_problem(
        struct attention_launch *launch, const struct attention_request *request) {
    const struct kiln_op *op = request->op;
    attention_launch_define(launch, "FA_HD", op->head_size);
    attention_launch_define(launch, "FA_WINDOW", op->window > 0);
    attention_launch_define(launch, "FA_SOFTCAP", op->softcap > 0);
    attention_launch_define(launch, "FA_Q_F16", request->q->dtype == KILN_DTYPE_F16);
    attention_launch_define(launch, "FA_OUT_F16", request->out->dtype == KILN_DTYPE_F16);
}

static void add_arg(struct attention_launch *launch, struct kiln_arg arg) {
    if (launch->record.n_args < ATTENTION_MAX_ARGS) {
        arg.struct_size = sizeof(arg);
        launch->args[launch->record.n_args++] = arg;
    }
}

void attention_launch_operand(struct attention_launch *launch, uint32_t operand) {
    attention_launch_operand_of(launch, 0, operand);
}

void attention_launch_operand_of(struct attention_launch *launch, uint32_t op, uint32_t operand) {
    add_arg(launch, (struct kiln_arg){.kind = KILN_ARG_OPERAND, .op = op, .operand = operand});
}

void attention_launch_bytes(struct attention_launch *launch, const void *bytes, size_t size) {
    add_arg(launch, (struct kiln_arg){.kind = KILN_ARG_BYTES, .size = size, .bytes = bytes});
}

void attention_launch_workspace(struct attention_launch *launch, uint32_t index, uint64_t offset) {
    add_arg(launch,
            (struct kiln_arg){.kind = KILN_ARG_WORKSPACE, .index = index, .offset = offset});
}

int32_t attention_launch_submit(
        struct attention_launch *launch, const struct attention_request *request) {
    return request->plan->launch(request->plan, &launch->record) < 0 ? KILN_RESULT_FAILED
                                                                     : KILN_RESULT_OK;
}
