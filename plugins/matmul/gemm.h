// gemm: what the GEMM variants share: activations and weights as rows of f16.
#ifndef MATMUL_GEMM_H
#define MATMUL_GEMM_H

#include "mm_plan.h"

// Rows of f16 are padded to a multiple of this many columns: any BK, any weight's gap.
enum {
    MM_K_PAD = 128
};

// f16 activations. IN as it is: f16 without factors, or rows that have them. Else workspaces: (S,
// k_padded) f16 and (S) f32.
struct mm_halves {
    bool as_in, has_scales;
    uint32_t values, scales;
};

// mm_begin, or with `glu` mm_begin_glu, and args.k_padded.
int32_t mm_begin_gemm(struct mm_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, bool glu);
// Outputs of a block whose tile has bn rows of weights: a gate's are half of them.
int32_t mm_outputs_of(const struct mm_request *request, int32_t bn);
// Activations as rows of f16: IN, or what a launch that is added makes of it. Sets args' strides.
int32_t mm_take_halves(struct mm_request *request, struct mm_halves *halves);
// 2 for a gate, whose UP is op 1; else 1.
uint32_t mm_weights(const struct mm_request *request);
// Whether the weight of an op can be read as it is; mm_prepare_weights expands those that cannot,
// once, to the preparations prepared[op].
bool mm_halves_as_they_are(const struct mm_request *request, uint32_t op);
int32_t mm_prepare_weights(const struct mm_request *request, uint32_t prepared[2]);
// The argument that is their factors.
void mm_add_scales(struct gpu_launch *launch, const struct mm_request *request,
        const struct mm_halves *halves);
// The workspace of an OUT of rows of f16: each row's largest magnitude (S) u32, zeroed. *index is
// not set where OUT is f32.
int32_t mm_take_largest(const struct mm_request *request, uint32_t *index);
// Adds the last arguments of a GEMM (out, n_tokens, of a gate largest, args) and its grid, and
// submits it; where OUT is rows of f16, again with a grid for the few rows that are to be scaled.
// rows, outputs: of a block.
int32_t mm_submit(struct gpu_launch *launch, const struct mm_request *request, int32_t rows,
        int32_t outputs, uint32_t largest);

extern const struct kiln_format mm_format_rows;
extern const struct kiln_io *const mm_gemm_ios[1];
// What a variant with a gate says of itself: its slots, the ops behind, formats.
extern const char *const mm_gemm_slots[1], *const mm_glu_follows[2];
extern const struct kiln_io *const mm_glu_ios[3];

#endif
