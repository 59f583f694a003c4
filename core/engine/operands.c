// operands: how a node's operands look to a plugin: shapes, types, strides, bounds; and where they
// live.
#include "engine/schedule_impl.h"

#include "model/dtype.h"

#include <string.h>

// Fills strides of a row-major tensor whose dims and dtype are set.
static void set_strides(struct kiln_tensor *tensor) {
    const struct kiln_dtype_info *info = kiln_dtype_info(tensor->dtype);
    tensor->strides[0] = info->bytes;
    tensor->strides[1] = tensor->dims[0] / info->elems * info->bytes;
    tensor->strides[2] = tensor->strides[1] * tensor->dims[1];
    tensor->strides[3] = tensor->strides[2] * tensor->dims[2];
}

static void init(struct kiln_tensor *tensor, enum kiln_operand operand, uint32_t dtype,
        uint32_t n_dims, int64_t cols, int64_t rows) {
    *tensor = (struct kiln_tensor){
            .struct_size = sizeof(*tensor),
            .operand = operand,
            .dtype = dtype,
            .n_dims = n_dims,
            .dims = {cols, rows, 1, 1},
            .alignment = 64,
    };
    set_strides(tensor);
}

static void bound_rows(struct kiln_tensor *tensor, unsigned dim, enum kiln_operand by) {
    tensor->bound_dims |= 1u << dim;
    tensor->bound_by[dim] = by;
}

static void describe_weight(const struct kiln_gguf_tensor *weight, struct kiln_tensor *tensor) {
    init(tensor, (enum kiln_operand)tensor->operand, weight->dtype, weight->n_dims,
            (int64_t)weight->dims[0], (int64_t)weight->dims[1]);
    tensor->dims[2] = (int64_t)weight->dims[2];
    tensor->dims[3] = (int64_t)weight->dims[3];
    set_strides(tensor);
    tensor->flags = KILN_TENSOR_WEIGHT;
    tensor->alignment = 1; // what the file gives: at least general.alignment from its start
    while (tensor->alignment < 64 && weight->file_offset % (tensor->alignment * 2) == 0) {
        tensor->alignment *= 2;
    }
}

static void describe_value(const struct kiln_schedule *schedule, const struct kiln_node *node,
        struct kiln_tensor *tensor, void **address) {
    void *const *values = schedule->runtime->values;
    int ids = tensor->operand == KILN_OPERAND_IDS;
    enum kiln_value_id many = ids ? KILN_VALUE_IDS : KILN_VALUE_POSITIONS;
    enum kiln_value_id one = ids ? KILN_VALUE_ONE_ID : KILN_VALUE_ONE_POSITION;
    switch (tensor->operand) {
    case KILN_OPERAND_IDS:
    case KILN_OPERAND_POSITIONS:
        *address = values[schedule->rows == 1 ? one : many];
        init(tensor, (enum kiln_operand)tensor->operand, KILN_DTYPE_I32, 1, schedule->rows, 1);
        bound_rows(tensor, 0, KILN_OPERAND_N_TOKENS);
        return;
    case KILN_OPERAND_OUT: // of the pick
        *address = values[KILN_VALUE_ONE_ID];
        init(tensor, KILN_OPERAND_OUT, KILN_DTYPE_I32, 2, 1, schedule->rows);
        bound_rows(tensor, 1, KILN_OPERAND_N_TOKENS);
        return;
    case KILN_OPERAND_N_TOKENS:
        *address = values[node->head ? KILN_VALUE_HEAD_ROWS : KILN_VALUE_N_TOKENS];
        break;
    case KILN_OPERAND_KV_LEN:
        *address = values[KILN_VALUE_KV_LEN];
        break;
    default:
        *address = values[KILN_VALUE_N_PAST];
        break;
    }
    init(tensor, (enum kiln_operand)tensor->operand, KILN_DTYPE_I32, 1, 1, 1);
}

void kiln_step_describe(const struct kiln_schedule *schedule, const struct kiln_node *node,
        const struct kiln_node_operand *operand, struct kiln_tensor *tensor, void **address) {
    const struct kiln_runtime *rt = schedule->runtime;
    *tensor = (struct kiln_tensor){.operand = operand->operand};
    switch (operand->from) {
    case KILN_FROM_WEIGHT:
        describe_weight(operand->tensor, tensor);
        break; // its address is the device's, filled in by the caller
    case KILN_FROM_KV:
        init(tensor, operand->operand, rt->kv_dtype, 2, rt->graph->kv_cols, rt->ctx);
        bound_rows(tensor, 1, KILN_OPERAND_KV_LEN);
        *address = rt->kv[(size_t)node->layer * 2 + operand->index];
        break;
    case KILN_FROM_FREQS:
        init(tensor, operand->operand, KILN_DTYPE_F32, 1, rt->graph->rope[operand->index].len, 1);
        *address = rt->rope[operand->index];
        break;
    case KILN_FROM_VALUE:
        describe_value(schedule, node, tensor, address);
        break;
    case KILN_FROM_EDGE:
        break; // kiln_edge_describe
    }
}

static const struct kiln_format *find_format(
        const struct kiln_registry *registry, const char *name) {
    const struct kiln_plugin *const *plugins = kiln_registry_plugins(registry);
    for (size_t i = 0; i < kiln_registry_count(registry); i++) {
        for (uint32_t j = 0; j < plugins[i]->n_formats; j++) {
            if (strcmp(plugins[i]->formats[j]->name, name) == 0) {
                return plugins[i]->formats[j];
            }
        }
    }
    return NULL;
}

int kiln_edge_fits(const struct kiln_schedule *schedule, kiln_edge edge, const char *format) {
    const struct kiln_format *block = find_format(schedule->runtime->registry, format);
    return !block || schedule->runtime->graph->edges[edge].cols % block->block_elems == 0;
}

enum kiln_status kiln_edge_describe(const struct kiln_schedule *schedule, kiln_edge edge,
        const char *format, struct kiln_tensor *tensor, uint64_t *bytes, struct kiln_err *err) {
    int64_t cols = schedule->runtime->graph->edges[edge].cols;
    int64_t rows = schedule->rows;
    const struct kiln_dtype_info *info = kiln_dtype_by_name(format);
    if (info && info->elems == 1) {
        init(tensor, KILN_OPERAND_IN, info->dtype, 2, cols, rows);
    } else {
        const struct kiln_format *block = find_format(schedule->runtime->registry, format);
        if (!block || cols % block->block_elems != 0) {
            return kiln_err_set(err, KILN_STATUS_FILE, "edge format '%s': %s", format,
                    block ? "the edge's columns are no multiple of its block"
                          : "no loaded plugin declares it");
        }
        init(tensor, KILN_OPERAND_IN, KILN_DTYPE_F32, 2, cols, rows);
        tensor->dtype = KILN_DTYPE_BLOCK;
        tensor->format = block->name;
        int64_t padded =
                (rows + block->row_multiple - 1) / block->row_multiple * block->row_multiple;
        tensor->strides[0] = block->block_bytes;
        tensor->strides[1] = cols / block->block_elems * block->block_bytes;
        tensor->strides[2] = tensor->strides[1] * padded;
        tensor->strides[3] = tensor->strides[2];
    }
    bound_rows(tensor, 1, KILN_OPERAND_N_TOKENS);
    *bytes = (uint64_t)tensor->strides[2];
    return KILN_STATUS_OK;
}
