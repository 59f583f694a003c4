// arch_llama: Llama and its many relatives: neighbouring dimensions rotate.
#include "model/arch_dense.h"

static enum kiln_status build(struct kiln_model *model, struct kiln_err *err) {
    return kiln_dense_build(
            model, &(struct kiln_dense_flavour){.rope_style = KILN_ROPE_PAIRS}, err);
}

const struct kiln_arch kiln_arch_llama = {.name = "llama", .build = build};
