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

// mm_begin, and args.k_padded.
int32_t mm_begin_gemm(struct mm_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan);
// Whether IN can be read as it is; else mm_rows_to_halves makes rows of f16 of it.
bool mm_activations_as_they_are(const struct mm_request *request);
int32_t mm_rows_to_halves(const struct mm_request *request, struct mm_halves *halves);
// Whether WEIGHT can be read as it is; else mm_prepare_halves expands it, once, to the preparation
// *index.
bool mm_halves_as_they_are(const struct mm_request *request);
int32_t mm_prepare_halves(const struct mm_request *request, uint32_t *index);
// The last arguments of a GEMM: bias, residual, out, n_tokens, args.
void mm_add_results(struct gpu_launch *launch, const struct mm_request *request);

extern const struct kiln_io *const mm_gemm_ios[1];

#endif
