// arch_dense: the plain pre-norm decoder (norm, attention, norm, gated feed-forward), for the
// architecture files that differ from one another by a few tensors.
#ifndef KILN_MODEL_ARCH_DENSE_H
#define KILN_MODEL_ARCH_DENSE_H

#include "model/model.h"

struct kiln_dense_flavour {
    uint32_t rope_style; // enum kiln_rope_style
    int qkv_bias;        // biases of q, k and v must be there; else they are taken where they are
    int qk_norm;         // the file must have norms of q and k, one weight a head dimension
};

// Builds the model's graph; KILN_STATUS_FILE names a tensor that is missing or has another shape.
KILN_MUST_CHECK enum kiln_status kiln_dense_build(
        struct kiln_model *model, const struct kiln_dense_flavour *flavour, struct kiln_err *err);

#endif
