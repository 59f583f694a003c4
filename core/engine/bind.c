// bind: which variant the configuration gives to a node of the graph.
#include "engine/schedule_impl.h"

#include "config/slot.h"

#include <string.h>

static const struct kiln_node_operand *find_operand(
        const struct kiln_node *node, enum kiln_operand operand) {
    for (uint32_t i = 0; i < node->n_operands; i++) {
        if (node->operands[i].operand == operand) {
            return &node->operands[i];
        }
    }
    return NULL;
}

enum kiln_status kiln_schedule_bind(const struct kiln_schedule *schedule, size_t index,
        enum kiln_phase phase, int64_t m, unsigned skip, char slot[64],
        const struct kiln_binding **binding, struct kiln_err *err) {
    const struct kiln_runtime *rt = schedule->runtime;
    const struct kiln_node *node = &rt->graph->nodes[index];
    const struct kiln_node_operand *weight = find_operand(node, KILN_OPERAND_WEIGHT);
    kiln_slot_name(slot, (enum kiln_op_kind)node->op.kind,
            weight ? weight->tensor->dtype : (uint32_t)KILN_DTYPE_F32, phase);
    struct kiln_bind_query query = {
            .slot = slot,
            .m = m,
            .n = node->out >= 0 ? rt->graph->edges[node->out].cols : 0,
            .k = weight ? (int64_t)weight->tensor->dims[0] : 0,
            .hd = node->op.head_size,
            .role = node->op.role,
            .layer = node->layer,
            .phase = phase,
            .device = &rt->dev->desc,
    };
    return kiln_config_bind(rt->config, &query, skip, binding, err);
}
