// gpu_plan: checking a problem's operands, writing a launch.
#include "gpu_plan.h"

#include "plan_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int32_t gpu_decline(const struct gpu_request *request, const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    int32_t result = plan_decline(request->plan, fmt, list);
    va_end(list);
    return result;
}

int32_t gpu_fail(const struct gpu_request *request, const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    int32_t result = plan_fail(request->plan, fmt, list);
    va_end(list);
    return result;
}

int32_t gpu_begin(struct gpu_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, uint32_t op_kind) {
    return gpu_begin_ops(request, problem, geometry, device, plan, &op_kind, 1);
}

int32_t gpu_begin_ops(struct gpu_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, const uint32_t *kinds, uint32_t n_kinds) {
    *request = (struct gpu_request){
            .problem = problem, .geometry = geometry, .device = device, .plan = plan};
    if (device->kind != KILN_DEVICE_CUDA) {
        return gpu_decline(
                request, "device kind %u is not handled, only CUDA devices", device->kind);
    }
    if (device->cc < 75) {
        return gpu_decline(request, "%s: compute capability %d.%d; at least 7.5 is needed",
                device->target, device->cc / 10, device->cc % 10);
    }
    for (uint32_t i = 0; i < n_kinds || i < problem->n_ops; i++) {
        uint32_t kind = i < problem->n_ops ? problem->ops[i]->kind : 0;
        if (i >= n_kinds || kind != kinds[i]) {
            return gpu_decline(request,
                    "%u ops, number %u of kind %u; %u are handled, that one of kind %u",
                    problem->n_ops, i, kind, n_kinds, i < n_kinds ? kinds[i] : 0);
        }
    }
    request->op = problem->ops[0];
    return KILN_RESULT_OK;
}

int32_t gpu_value(const struct gpu_request *request, const char *name) {
    return plan_value(request->geometry, name);
}

const struct gpu_type *gpu_type_find(uint32_t dtype) {
    static const struct gpu_type types[] = {
            {KILN_DTYPE_F32, "f32", 1, 4},
            {KILN_DTYPE_F16, "f16", 1, 2},
            {KILN_DTYPE_BF16, "bf16", 1, 2},
            {KILN_DTYPE_Q4_0, "q4_0", 32, 18},
            {KILN_DTYPE_Q4_1, "q4_1", 32, 20},
            {KILN_DTYPE_Q5_0, "q5_0", 32, 22},
            {KILN_DTYPE_Q8_0, "q8_0", 32, 34},
            {KILN_DTYPE_Q4_K, "q4_K", 256, 144},
            {KILN_DTYPE_Q5_K, "q5_K", 256, 176},
            {KILN_DTYPE_Q6_K, "q6_K", 256, 210},
    };
    for (uint32_t i = 0; i < GPU_COUNT(types); i++) {
        if (types[i].dtype == dtype) {
            return &types[i];
        }
    }
    return NULL;
}

// ---- Checking ---------------------------------------------------------------------------------
static bool is_q8(const struct kiln_tensor *tensor) {
    return tensor->dtype == KILN_DTYPE_BLOCK && tensor->format != NULL &&
           strcmp(tensor->format, GPU_Q8_FORMAT) == 0;
}

static bool is_rows(const struct kiln_tensor *tensor) {
    return tensor->dtype == KILN_DTYPE_BLOCK && tensor->format != NULL &&
           strcmp(tensor->format, GPU_ROWS_FORMAT) == 0;
}

static bool type_fits(const struct kiln_tensor *tensor, uint32_t need) {
    uint32_t dtype = tensor->dtype;
    return ((need & GPU_NEED_Q8) && is_q8(tensor)) || ((need & GPU_NEED_ROWS) && is_rows(tensor)) ||
           ((need & GPU_NEED_F32) && dtype == KILN_DTYPE_F32) ||
           ((need & GPU_NEED_F16) && dtype == KILN_DTYPE_F16) ||
           ((need & GPU_NEED_I32) && dtype == KILN_DTYPE_I32) ||
           ((need & GPU_NEED_WEIGHT) && gpu_type_find(dtype) != NULL);
}

static const char *need_text(uint32_t need) {
    if (need & GPU_NEED_WEIGHT) {
        return "f32, f16, bf16, q4_0, q4_1, q5_0, q8_0, q4_K, q5_K and q6_K";
    }
    if (need & GPU_NEED_I32) {
        return "i32";
    }
    if (need & GPU_NEED_Q8) {
        return need & GPU_NEED_F16   ? "f32, f16 and " GPU_Q8_FORMAT
               : need & GPU_NEED_F32 ? "f32 and " GPU_Q8_FORMAT
                                     : GPU_Q8_FORMAT;
    }
    if (need & GPU_NEED_ROWS) {
        return need & GPU_NEED_F16 ? "f32, f16 and " GPU_ROWS_FORMAT : "f32 and " GPU_ROWS_FORMAT;
    }
    return need & GPU_NEED_F16 ? "f32 and f16" : "f32";
}

static int32_t check_layout(const struct gpu_request *request, const struct kiln_tensor *tensor,
        int64_t elems, int64_t bytes) {
    const char *name = plan_operand_name(tensor->operand);
    int64_t columns = tensor->dims[0];
    int64_t most = INT32_MAX / 2; // columns and rows are counted in i32
    if (columns <= 0 || tensor->dims[1] <= 0) {
        return gpu_fail(request, "%s: empty, %lld columns of %lld rows", name, (long long)columns,
                (long long)tensor->dims[1]);
    }
    if (columns > most || tensor->dims[1] > most) {
        return gpu_decline(request, "%s: %lld columns of %lld rows; at most %lld are handled", name,
                (long long)columns, (long long)tensor->dims[1], (long long)most);
    }
    if (columns % elems != 0) {
        return gpu_fail(request, "%s: %lld columns are not a multiple of a block of %lld", name,
                (long long)columns, (long long)elems);
    }
    bool blocks = tensor->dtype == KILN_DTYPE_BLOCK;
    int64_t row_unit = blocks ? 16 : bytes % 4 == 0 ? 4 : 2;
    if (tensor->strides[0] != bytes || tensor->strides[1] % row_unit != 0) {
        return gpu_decline(request,
                "%s: %lld bytes a column, %lld a row; only %lld and a multiple are handled", name,
                (long long)tensor->strides[0], (long long)tensor->strides[1], (long long)bytes);
    }
    if (tensor->dtype == KILN_DTYPE_I32 && tensor->dims[1] > 1 && tensor->strides[1] != bytes) {
        return gpu_decline(request, "%s: values %lld bytes apart; only %lld is handled", name,
                (long long)tensor->strides[1], (long long)bytes);
    }
    if (tensor->dims[1] > 1 && tensor->strides[1] < columns / elems * bytes) {
        return gpu_decline(
                request, "%s: rows overlap, %lld bytes apart", name, (long long)tensor->strides[1]);
    }
    uint64_t least = blocks ? 16 : elems > 1 ? 2 : (uint64_t)bytes;
    if (tensor->alignment != 0 && tensor->alignment % least != 0) {
        return gpu_decline(request, "%s: aligned to %llu bytes; a multiple of %llu is needed", name,
                (unsigned long long)tensor->alignment, (unsigned long long)least);
    }
    return KILN_RESULT_OK;
}

static int32_t check(const struct gpu_request *request, const struct kiln_tensor *tensor,
        uint32_t need, int64_t columns, int64_t rows) {
    const char *name = plan_operand_name(tensor->operand);
    if (!type_fits(tensor, need)) {
        return gpu_decline(request, "%s: %s %s (type %u) is not handled, only %s", name,
                tensor->format != NULL ? "format" : "its type",
                tensor->format != NULL ? tensor->format : "", tensor->dtype, need_text(need));
    }
    if (need == GPU_NEED_I32 && tensor->dims[0] == rows && tensor->dims[1] == 1) {
        rows = 1; // (S) as S columns of one row: the same bytes as S rows of one column
        columns = tensor->dims[0];
    }
    if ((columns >= 0 && tensor->dims[0] != columns) || (rows >= 0 && tensor->dims[1] != rows) ||
            tensor->dims[2] > 1 || tensor->dims[3] > 1) {
        return gpu_fail(request,
                "%s: %lld columns, %lld rows; the op's other operands ask for %lld, %lld (-1: any)",
                name, (long long)tensor->dims[0], (long long)tensor->dims[1], (long long)columns,
                (long long)rows);
    }
    int32_t result = plan_check_bounds(request->plan, request->op, tensor);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    const struct gpu_type *type = gpu_type_find(tensor->dtype);
    if (is_q8(tensor)) {
        return check_layout(request, tensor, GPU_Q8_COLUMNS, GPU_Q8_BYTES);
    }
    if (is_rows(tensor)) {
        return check_layout(request, tensor, GPU_ROWS_COLUMNS, GPU_ROWS_BYTES);
    }
    return check_layout(request, tensor, type != NULL ? type->elems : 1,
            type != NULL ? type->bytes : (int64_t)sizeof(int32_t));
}

int32_t gpu_may(const struct gpu_request *request, uint32_t operand, uint32_t need, int64_t columns,
        int64_t rows, const struct kiln_tensor **tensor) {
    *tensor = plan_operand(request->op, operand);
    return *tensor == NULL ? KILN_RESULT_OK : check(request, *tensor, need, columns, rows);
}

int32_t gpu_need(const struct gpu_request *request, uint32_t operand, uint32_t need,
        int64_t columns, int64_t rows, const struct kiln_tensor **tensor) {
    *tensor = plan_operand(request->op, operand);
    if (*tensor == NULL) {
        return gpu_fail(request, "the op's operand %s is missing", plan_operand_name(operand));
    }
    return check(request, *tensor, need, columns, rows);
}

// ---- Numbers ----------------------------------------------------------------------------------
static int64_t row_bytes(const struct kiln_tensor *tensor) {
    const struct gpu_type *type = gpu_type_find(tensor->dtype);
    int64_t elems = type != NULL      ? type->elems
                    : is_q8(tensor)   ? GPU_Q8_COLUMNS
                    : is_rows(tensor) ? GPU_ROWS_COLUMNS
                                      : 1;
    return tensor->dims[0] / elems * tensor->strides[0];
}

uint32_t gpu_alignment(const struct kiln_tensor *tensor) {
    if (tensor == NULL) {
        return 16;
    }
    // Unknown alignment: an element's, which every address has.
    uint64_t bits = tensor->alignment != 0 ? tensor->alignment : 2;
    bits |= (uint64_t)tensor->strides[1] | (uint64_t)row_bytes(tensor) | 16;
    return (uint32_t)(bits & (~bits + 1));
}

double gpu_bytes(const struct kiln_tensor *tensor) {
    if (tensor != NULL && is_rows(tensor)) { // without the room behind a row's factor
        return ((double)tensor->dims[0] * 2 + sizeof(float)) * (double)tensor->dims[1];
    }
    return tensor == NULL ? 0 : (double)row_bytes(tensor) * (double)tensor->dims[1];
}

int64_t gpu_blocks(int64_t count, int64_t size) {
    return (count + size - 1) / size;
}

// ---- Writing ----------------------------------------------------------------------------------
void gpu_launch_begin(struct gpu_launch *launch, const char *kernel, uint32_t threads) {
    memset(launch, 0, sizeof(*launch));
    struct kiln_launch *record = &launch->record;
    record->struct_size = sizeof(*record);
    record->kernel = kernel;
    for (int i = 0; i < 3; i++) {
        record->grid[i] = record->block[i] = record->cluster[i] = 1;
    }
    record->block[0] = threads;
    record->args = launch->arg_list;
    record->defines = launch->define_list;
    record->sites = launch->site_list;
    for (int i = 0; i < GPU_MAX_ARGS; i++) {
        launch->arg_list[i] = &launch->args[i];
    }
    for (int i = 0; i < GPU_MAX_DEFINES; i++) {
        launch->define_list[i] = launch->defines[i];
    }
    for (int i = 0; i < GPU_MAX_SITES; i++) {
        launch->site_list[i] = &launch->sites[i];
    }
}

void gpu_launch_define(struct gpu_launch *launch, const char *name, int64_t value) {
    if (launch->record.n_defines < GPU_MAX_DEFINES) {
        snprintf(launch->defines[launch->record.n_defines++], GPU_DEFINE_MAX, "%s=%lld", name,
                (long long)value);
    }
}

void gpu_launch_define_word(struct gpu_launch *launch, const char *name, const char *word) {
    if (launch->record.n_defines < GPU_MAX_DEFINES) {
        snprintf(launch->defines[launch->record.n_defines++], GPU_DEFINE_MAX, "%s=%s", name, word);
    }
}

// No more than a kernel can use of it, so that fewer kernels are compiled: loads are as wide as a
// block's alignment, and rows of blocks at odd addresses gain up to 4.
static uint32_t useful_alignment(const struct gpu_type *type, const struct kiln_tensor *weight) {
    uint32_t given = gpu_alignment(weight);
    uint32_t block = (uint32_t)(type->bytes & -type->bytes);
    uint32_t most = block < 4 ? 4 : block;
    if (type->elems == 1) {
        return given >= 16 ? 16 : (uint32_t)type->bytes;
    }
    return given < most ? given : most;
}

void gpu_launch_define_weight(struct gpu_launch *launch, const struct kiln_tensor *weight) {
    const struct gpu_type *type = gpu_type_find(weight->dtype);
    if (type != NULL) {
        gpu_launch_define_word(launch, "W_TYPE", type->name);
    }
    gpu_launch_define(launch, "W_ALIGN", type != NULL ? useful_alignment(type, weight) : 2);
}

void gpu_launch_site(struct gpu_launch *launch, uint32_t kind, const char *name, uint32_t stride,
        uint32_t access, uint32_t swizzle) {
    if (launch->record.n_sites < GPU_MAX_SITES) {
        launch->sites[launch->record.n_sites++] =
                (struct kiln_smem_site){.struct_size = sizeof(struct kiln_smem_site),
                        .kind = kind,
                        .name = name,
                        .stride_bytes = stride,
                        .access_bytes = access,
                        .swizzle = swizzle};
    }
}

static void add_arg(struct gpu_launch *launch, struct kiln_arg arg) {
    if (launch->record.n_args < GPU_MAX_ARGS) {
        arg.struct_size = sizeof(arg);
        launch->args[launch->record.n_args++] = arg;
    }
}

void gpu_launch_operand(
        struct gpu_launch *launch, const struct gpu_request *request, uint32_t operand) {
    if (plan_operand(request->op, operand) == NULL) {
        gpu_launch_null(launch);
        return;
    }
    add_arg(launch, (struct kiln_arg){.kind = KILN_ARG_OPERAND, .operand = operand});
}

void gpu_launch_operand_of(struct gpu_launch *launch, const struct gpu_request *request,
        uint32_t op, uint32_t operand) {
    if (op >= request->problem->n_ops || plan_operand(request->problem->ops[op], operand) == NULL) {
        gpu_launch_null(launch);
        return;
    }
    add_arg(launch, (struct kiln_arg){.kind = KILN_ARG_OPERAND, .op = op, .operand = operand});
}

void gpu_launch_operand_at(
        struct gpu_launch *launch, uint32_t op, uint32_t operand, uint64_t offset) {
    add_arg(launch,
            (struct kiln_arg){
                    .kind = KILN_ARG_OPERAND, .op = op, .operand = operand, .offset = offset});
}

void gpu_launch_workspace(struct gpu_launch *launch, uint32_t index, uint64_t offset) {
    add_arg(launch,
            (struct kiln_arg){.kind = KILN_ARG_WORKSPACE, .index = index, .offset = offset});
}

void gpu_launch_prepared(struct gpu_launch *launch, uint32_t index) {
    add_arg(launch, (struct kiln_arg){.kind = KILN_ARG_PREPARED, .index = index});
}

void gpu_launch_null(struct gpu_launch *launch) {
    static const uint64_t null = 0;
    gpu_launch_bytes(launch, &null, sizeof(null));
}

void gpu_launch_bytes(struct gpu_launch *launch, const void *bytes, size_t size) {
    add_arg(launch, (struct kiln_arg){.kind = KILN_ARG_BYTES, .size = size, .bytes = bytes});
}

void gpu_launch_map(struct gpu_launch *launch, uint32_t op, uint32_t operand, uint32_t index,
        uint64_t offset, const struct kiln_tensor_map *map) {
    add_arg(launch, (struct kiln_arg){.kind = KILN_ARG_TENSOR_MAP,
                            .op = op,
                            .operand = operand,
                            .index = index,
                            .offset = offset,
                            .map = map});
}

int32_t gpu_launch_submit(struct gpu_launch *launch, const struct gpu_request *request) {
    return request->plan->launch(request->plan, &launch->record) < 0 ? KILN_RESULT_FAILED
                                                                     : KILN_RESULT_OK;
}
