// growth: how the difference of two engines grows on the way through the model: the values of every
// edge that both write, layer by layer and slot by slot, for the last of the same tokens.
//
// A change of a tile differs from layer 0 on. What matters is how large the difference has become
// where the logits are made, and which slot made it so.
#ifndef KILN_LAB_GROWTH_H
#define KILN_LAB_GROWTH_H

#include "lab/twin.h"

#include <stddef.h>

struct kiln_growth_row {
    int32_t layer; // -1: outside the layers
    char slot[64]; // that wrote it on the base's side: "matmul.q4_K.decode"
    char role[32]; // "attn_q"
    int64_t cols;
    double max;          // largest difference of a value
    double rms;          // root of the mean square of the differences
    double relative_rms; // rms over the base's own; 0 where that is zero
};

struct kiln_growth {
    struct kiln_growth_row *rows; // in the order in which the base writes them
    size_t n, cap;
    size_t not_compared; // edges of the base that the change does not write, or in block formats
};

// ids: the n tokens that both engines hold. Takes back the last n_last of them, which were fed in
// one call, and feeds them again with every edge read back. The engines hold n tokens afterwards.
// The caller ends *growth with kiln_growth_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_growth_measure(struct kiln_twin *twin, const int32_t *ids,
        int64_t n, int64_t n_last, struct kiln_growth *growth, struct kiln_err *err);
void kiln_growth_finish(struct kiln_growth *growth); // a zeroed one is fine

// The first row that differs; NULL: none does.
const struct kiln_growth_row *kiln_growth_first(const struct kiln_growth *growth);

#endif
