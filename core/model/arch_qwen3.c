// arch_qwen3: Qwen 3 (dense): norms on q and k; the halves of a head rotate against each other.
#include "model/arch_dense.h"

static enum kiln_status build(struct kiln_model *model, struct kiln_err *err) {
    return kiln_dense_build(
            model, &(struct kiln_dense_flavour){.rope_style = KILN_ROPE_HALVES, .qk_norm = 1}, err);
}

const struct kiln_arch kiln_arch_qwen3 = {.name = "qwen3", .build = build};
