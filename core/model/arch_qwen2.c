// arch_qwen2: Qwen 2 and 2.5: biases on q, k and v; the halves of a head rotate against each other.
#include "model/arch_dense.h"

static enum kiln_status build(struct kiln_model *model, struct kiln_err *err) {
    return kiln_dense_build(model,
            &(struct kiln_dense_flavour){.rope_style = KILN_ROPE_HALVES, .qkv_bias = 1}, err);
}

const struct kiln_arch kiln_arch_qwen2 = {.name = "qwen2", .build = build};
