// plan: checking a problem's operands, writing a launch.
#include "plan.h"

#include "args.h"
#include "dequant.h"
#include "plan_parts.h"
#include "q8.h"

#include <stdarg.h>
#include <string.h>

int32_t cpu_decline(const struct cpu_request *request, const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    int32_t result = plan_decline(request->plan, fmt, list);
    va_end(list);
    return result;
}

int32_t cpu_fail(const struct cpu_request *request, const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    int32_t result = plan_fail(request->plan, fmt, list);
    va_end(list);
    return result;
}

const struct kiln_tensor *cpu_operand(const struct kiln_op *op, uint32_t operand) {
    return plan_operand(op, operand);
}

static bool is_q8(const struct kiln_tensor *tensor) {
    return tensor->dtype == KILN_DTYPE_BLOCK && tensor->format != NULL &&
           strcmp(tensor->format, CPU_Q8_FORMAT) == 0;
}

static bool type_fits(const struct kiln_tensor *tensor, uint32_t need) {
    uint32_t dtype = tensor->dtype;
    const struct cpu_quant *quant = cpu_quant_find(dtype);
    return ((need & CPU_NEED_F32) && dtype == KILN_DTYPE_F32) ||
           ((need & CPU_NEED_F16) && dtype == KILN_DTYPE_F16) ||
           ((need & CPU_NEED_I32) && dtype == KILN_DTYPE_I32) ||
           ((need & CPU_NEED_WEIGHT) && quant != NULL) ||
           ((need & CPU_NEED_BLOCKS) && quant != NULL && quant->elems > 1) ||
           ((need & CPU_NEED_Q8) && is_q8(tensor));
}

static const char *need_text(uint32_t need) {
    if (need & CPU_NEED_WEIGHT) {
        return "f32, f16, bf16, q4_0, q4_1, q5_0, q8_0, q4_K, q5_K and q6_K";
    }
    if (need & CPU_NEED_BLOCKS) {
        return "q4_0, q4_1, q5_0, q8_0, q4_K, q5_K and q6_K";
    }
    if (need & CPU_NEED_Q8) {
        return CPU_Q8_FORMAT;
    }
    if (need & CPU_NEED_I32) {
        return "i32";
    }
    return need & CPU_NEED_F16 ? "f32 and f16" : "f32";
}

static int32_t check_strides(const struct cpu_request *request, const struct kiln_tensor *tensor,
        int64_t elems, int64_t bytes) {
    const char *name = plan_operand_name(tensor->operand);
    int64_t columns = tensor->dims[0];
    if (columns <= 0 || tensor->dims[1] <= 0) {
        return cpu_fail(request, "%s: empty, %lld columns of %lld rows", name, (long long)columns,
                (long long)tensor->dims[1]);
    }
    if (columns % elems != 0) {
        return cpu_fail(request, "%s: %lld columns are not a multiple of a block of %lld", name,
                (long long)columns, (long long)elems);
    }
    if (tensor->strides[0] != bytes) {
        return cpu_decline(request,
                "%s: %lld bytes between neighbouring columns; only %lld is handled", name,
                (long long)tensor->strides[0], (long long)bytes);
    }
    if (tensor->dtype == KILN_DTYPE_I32 && tensor->dims[1] > 1 && tensor->strides[1] != bytes) {
        return cpu_decline(request, "%s: values %lld bytes apart; only %lld is handled", name,
                (long long)tensor->strides[1], (long long)bytes);
    }
    if (tensor->dims[1] > 1 && tensor->strides[1] < columns / elems * bytes) {
        return cpu_decline(
                request, "%s: rows overlap, %lld bytes apart", name, (long long)tensor->strides[1]);
    }
    return KILN_RESULT_OK;
}

static int32_t check(const struct cpu_request *request, const struct kiln_tensor *tensor,
        uint32_t need, int64_t columns, int64_t rows) {
    const char *name = plan_operand_name(tensor->operand);
    if (!type_fits(tensor, need)) {
        const struct cpu_quant *quant = cpu_quant_find(tensor->dtype);
        const char *format = tensor->format != NULL ? tensor->format
                             : quant != NULL        ? quant->name
                                                    : "its format";
        return cpu_decline(request, "%s: %s (type %u) is not handled, only %s", name, format,
                tensor->dtype, need_text(need));
    }
    if (need == CPU_NEED_I32 && tensor->dims[0] == rows && tensor->dims[1] == 1) {
        rows = 1; // (S) as S columns of one row: the same bytes as S rows of one column
        columns = tensor->dims[0];
    }
    if ((columns >= 0 && tensor->dims[0] != columns) || (rows >= 0 && tensor->dims[1] != rows) ||
            tensor->dims[2] > 1 || tensor->dims[3] > 1) {
        return cpu_fail(request,
                "%s: %lld columns, %lld rows; the op's other operands ask for %lld, %lld (-1: any)",
                name, (long long)tensor->dims[0], (long long)tensor->dims[1], (long long)columns,
                (long long)rows);
    }
    int32_t result = plan_check_bounds(request->plan, request->op, tensor);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    if (is_q8(tensor)) {
        return check_strides(request, tensor, CPU_Q8_COLUMNS, CPU_Q8_BYTES);
    }
    const struct cpu_quant *quant = cpu_quant_find(tensor->dtype);
    return check_strides(request, tensor, quant != NULL ? quant->elems : 1,
            quant != NULL ? quant->bytes : (int64_t)sizeof(int32_t));
}

int32_t cpu_may(const struct cpu_request *request, uint32_t operand, uint32_t need, int64_t columns,
        int64_t rows, const struct kiln_tensor **tensor) {
    *tensor = cpu_operand(request->op, operand);
    return *tensor == NULL ? KILN_RESULT_OK : check(request, *tensor, need, columns, rows);
}

int32_t cpu_need(const struct cpu_request *request, uint32_t operand, uint32_t need,
        int64_t columns, int64_t rows, const struct kiln_tensor **tensor) {
    *tensor = cpu_operand(request->op, operand);
    if (*tensor == NULL) {
        return cpu_fail(request, "the op's operand %s is missing", plan_operand_name(operand));
    }
    return check(request, *tensor, need, columns, rows);
}

void cpu_launch_begin(struct cpu_launch *launch, const char *kernel, const char *sum_order) {
    memset(launch, 0, sizeof(*launch));
    launch->record.struct_size = sizeof(launch->record);
    launch->record.kernel = kernel;
    launch->record.sum_order = sum_order;
    for (int i = 0; i < 3; i++) {
        launch->record.grid[i] = launch->record.block[i] = launch->record.cluster[i] = 1;
    }
    launch->record.n_args = 1;
    for (int i = 0; i < CPU_MAX_ARGS; i++) {
        launch->list[i] = &launch->args[i];
    }
}

uint8_t cpu_launch_operand(struct cpu_launch *launch, const struct kiln_op *op, uint32_t operand) {
    if (cpu_operand(op, operand) == NULL || launch->record.n_args == CPU_MAX_ARGS) {
        return 0;
    }
    uint32_t index = launch->record.n_args++;
    launch->args[index] = (struct kiln_arg){
            .struct_size = sizeof(struct kiln_arg), .kind = KILN_ARG_OPERAND, .operand = operand};
    return (uint8_t)index;
}

int32_t cpu_launch_submit(struct cpu_launch *launch, const struct cpu_request *request,
        const void *params, size_t size) {
    launch->args[0] = (struct kiln_arg){.struct_size = sizeof(struct kiln_arg),
            .kind = KILN_ARG_BYTES,
            .size = size,
            .bytes = params};
    launch->record.args = launch->list;
    return request->plan->launch(request->plan, &launch->record) < 0 ? KILN_RESULT_FAILED
                                                                     : KILN_RESULT_OK;
}

uint32_t cpu_blocks(int64_t count, int64_t size) {
    return (uint32_t)((count + size - 1) / size);
}

double cpu_tensor_bytes(const struct kiln_tensor *tensor) {
    if (tensor == NULL) {
        return 0;
    }
    const struct cpu_quant *quant = cpu_quant_find(tensor->dtype);
    double elems = quant != NULL ? quant->elems : is_q8(tensor) ? CPU_Q8_COLUMNS : 1;
    return (double)tensor->dims[0] / elems * (double)tensor->strides[0] * (double)tensor->dims[1];
}

void *cpu_arg(void *const *args, uint8_t index) {
    return index == 0 ? NULL : args[index];
}

int64_t cpu_rows(void *const *args, uint8_t n_tokens, int64_t bound) {
    const int32_t *in_use = cpu_arg(args, n_tokens);
    if (in_use == NULL || *in_use > bound) {
        return bound;
    }
    return *in_use < 0 ? 0 : *in_use;
}
