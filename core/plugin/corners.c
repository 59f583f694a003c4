// corners: which value each parameter takes.
#include "plugin/corners.h"

#include "plugin/schema.h"

enum {
    DEFAULT,
    SMALLEST,
    LARGEST,
    N_CORNERS
};

uint32_t kiln_corners_count(const struct kiln_variant *variant, uint32_t full) {
    uint32_t n = 1;
    if (variant->n_params > full) {
        return N_CORNERS + 2 * variant->n_params;
    }
    for (uint32_t i = 0; i < variant->n_params; i++) {
        n *= N_CORNERS;
    }
    return n;
}

void kiln_corner_values(const struct kiln_variant *variant, uint32_t full, uint32_t index,
        int32_t head_size, int32_t cc, int64_t *values) {
    int all = variant->n_params <= full;
    uint32_t rest = index;
    for (uint32_t i = 0; i < variant->n_params; i++) {
        const struct kiln_param *param = variant->params[i];
        unsigned corner = all ? rest % N_CORNERS : index;
        rest /= N_CORNERS;
        if (!all && index >= N_CORNERS) {
            uint32_t single = index - N_CORNERS;
            corner = single / 2 == i ? SMALLEST + single % 2 : DEFAULT;
        }
        values[i] = corner == DEFAULT    ? kiln_param_default_value(param, head_size, cc)
                    : corner == SMALLEST ? kiln_param_smallest(param)
                                         : kiln_param_largest(param);
    }
}
