// precision: reads the extension "kiln.precision/1" of a plugin.
#include "lab/precision.h"

#include "plugin/describe.h"

#include <string.h>

static const char *const names[KILN_PRECISIONS] = {
        [KILN_PRECISION_F32] = "f32",
        [KILN_PRECISION_F16] = "f16",
        [KILN_PRECISION_I16] = "i16",
        [KILN_PRECISION_Q8] = "q8",
};

const char *kiln_precision_name(enum kiln_precision precision) {
    return names[precision];
}

// "gemv=i16" among what the plugin says of its variants.
enum kiln_precision kiln_precision_of(
        const struct kiln_plugin *plugin, const struct kiln_variant *variant) {
    if (!variant) {
        return KILN_PRECISION_F32;
    }
    const char *const *said =
            plugin && plugin->extension ? plugin->extension("kiln.precision/1") : NULL;
    size_t len = strlen(variant->name);
    for (; said && *said; said++) {
        for (int i = 0; i < KILN_PRECISIONS; i++) {
            if (strncmp(*said, variant->name, len) == 0 && (*said)[len] == '=' &&
                    strcmp(*said + len + 1, names[i]) == 0) {
                return (enum kiln_precision)i;
            }
        }
    }
    return variant->devices & KILN_DEVICE_CUDA ? KILN_PRECISION_F16 : KILN_PRECISION_F32;
}

int kiln_precision_is_q8(const struct kiln_tensor *tensor) {
    return tensor->dtype == KILN_DTYPE_BLOCK &&
           !(tensor->format && strcmp(tensor->format, "f16_rows") == 0);
}

enum kiln_precision kiln_precision_of_problem(const struct kiln_plugin *plugin,
        const struct kiln_variant *variant, const struct kiln_problem *problem) {
    int products = 0;
    for (uint32_t i = 0; i < problem->n_ops; i++) {
        const struct kiln_op *op = problem->ops[i];
        const struct kiln_tensor *in = kiln_op_tensor(op, KILN_OPERAND_IN);
        if (op->kind == KILN_OP_MATMUL && in && kiln_precision_is_q8(in)) {
            return KILN_PRECISION_Q8;
        }
        products |= op->kind == KILN_OP_MATMUL || op->kind == KILN_OP_ATTENTION;
    }
    return products ? kiln_precision_of(plugin, variant) : KILN_PRECISION_F32;
}
