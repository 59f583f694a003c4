// gemm: what the GEMM variants share: activations and weights as rows of f16.
#ifndef MATMUL_GEMM_H
#define MATMUL_GEMM_H

#include "mm_plan.h"

// Rows of f16 are padded to a multiple of this many columns: any BK, any weight's gap.
enum {
    MM_K_PAD = 128
};

struct mm_halves { // workspaces: (S, k_padded) f16 and (S) f32
    uint32_t values, scales;
};

// mm_begin, or with `glu` mm_begin_glu, and args.k_padded.
int32_t mm_begin_gemm(struct mm_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, bool glu);
// Outputs of a block whose tile has bn rows of weights: a gate's are half of them.
int32_t mm_outputs_of(const struct mm_request *request, int32_t bn);
// Whether IN can be read as it is; else mm_rows_to_halves makes rows of f16 of it.
bool mm_activations_as_they_are(const struct mm_request *request);
int32_t mm_rows_to_halves(const struct mm_request *request, struct mm_halves *halves);
// 2 for a gate, whose UP is op 1; else 1.
uint32_t mm_weights(const struct mm_request *request);
// Whether the weight of an op can be read as it is; mm_prepare_weights expands those that cannot,
// once, to the preparations prepared[op].
bool mm_halves_as_they_are(const struct mm_request *request, uint32_t op);
int32_t mm_prepare_weights(const struct mm_request *request, uint32_t prepared[2]);
// The last arguments of a GEMM: out, n_tokens, args.
void mm_add_results(struct gpu_launch *launch, const struct mm_request *request);

extern const struct kiln_io *const mm_gemm_ios[1];
// What a variant with a gate says of itself: its slots, the ops behind, formats.
extern const char *const mm_gemm_slots[1], *const mm_glu_follows[2];
extern const struct kiln_io *const mm_glu_ios[3];

#endif
