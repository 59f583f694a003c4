// bind: which variant the configuration gives to a node of the graph, and to a quantize op between
// two; the formats that variants name.
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

struct kiln_formats kiln_variant_formats(
        const struct kiln_variant *variant, uint32_t op, uint32_t operand) {
    static const char *const plain[] = {"f32"};
    struct kiln_formats formats = {plain, 1};
    for (uint32_t i = 0; variant && i < variant->n_ios; i++) {
        if (variant->ios[i]->op == op && variant->ios[i]->operand == operand) {
            formats = (struct kiln_formats){variant->ios[i]->formats, variant->ios[i]->n_formats};
        }
    }
    return formats;
}

int kiln_formats_have(struct kiln_formats formats, const char *name) {
    for (uint32_t i = 0; i < formats.count; i++) {
        if (strcmp(formats.names[i], name) == 0) {
            return 1;
        }
    }
    return 0;
}

enum kiln_status kiln_schedule_bind_quantize(const struct kiln_schedule *schedule,
        const struct kiln_node *reader, const struct kiln_binding **binding, struct kiln_err *err) {
    struct kiln_bind_query query = {.slot = "quantize",
            .m = schedule->m,
            .role = reader->op.role,
            .layer = reader->layer,
            .phase = schedule->phase,
            .device = &schedule->runtime->dev->desc};
    return kiln_config_bind(schedule->runtime->config, &query, 0, binding, err);
}

int kiln_quantizes_to(
        const struct kiln_variant *variant, const struct kiln_device *device, const char *format) {
    return (variant->devices & device->kind) && kiln_variant_fills(variant, "quantize") &&
           kiln_formats_have(kiln_variant_formats(variant, 0, KILN_OPERAND_OUT), format);
}

const struct kiln_variant *kiln_find_quantizer(const struct kiln_runtime *rt, const char *format,
        const struct kiln_plugin *wanted, const struct kiln_plugin **plugin) {
    const struct kiln_plugin *const *plugins = kiln_registry_plugins(rt->registry);
    for (size_t i = 0; i < kiln_registry_count(rt->registry); i++) {
        for (uint32_t j = 0; j < plugins[i]->n_variants; j++) {
            if ((!wanted || wanted == plugins[i]) &&
                    kiln_quantizes_to(plugins[i]->variants[j], &rt->dev->desc, format)) {
                *plugin = plugins[i];
                return plugins[i]->variants[j];
            }
        }
    }
    return NULL;
}
