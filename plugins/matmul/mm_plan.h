// mm_plan: what the variants of matmul share: the op's operands, checked, and the kernels.
#ifndef MATMUL_MM_PLAN_H
#define MATMUL_MM_PLAN_H

#include "../common/gpu_plan.h"

#include "mm_args.cuh.h" // kernels_src/matmul/mm_args.cuh, copied by the build

struct mm_request {
    struct gpu_request base;
    const struct kiln_tensor *in, *weight, *bias, *residual, *out;
    // Of a gate, whose UP is op 1 and whose activation is op 2, with OUT; else NULL and 0.
    const struct kiln_tensor *up_weight, *up_bias;
    uint32_t activation; // enum kiln_activation
    struct mm_args args; // but k_padded, splits and what f16 activations have
};

// Fills in *request. KILN_RESULT_OK, or what plan() must return. in: enum gpu_need of IN.
int32_t mm_begin(struct mm_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, uint32_t in);
// The same of a gate, an up product of the same IN and their activation. OUT: f32 or
// rows of f16.
int32_t mm_begin_glu(struct mm_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, uint32_t in);
// The useful work of all ops.
void mm_count_work(struct kiln_launch *record, const struct mm_request *request);

extern const struct kiln_variant mm_variant_f16, mm_variant_f16_expand, mm_variant_f16_wgmma;
extern const struct kiln_variant mm_variant_f16_expand_glu, mm_variant_f16_wgmma_glu;
extern const struct kiln_variant mm_variant_gemv, mm_variant_gemv_simple, mm_variant_gemv_q8;
extern const struct kiln_variant mm_variant_norm_qkv, mm_variant_norm_glu;

extern const struct kiln_kernel mm_kernel_rows, mm_kernel_expand, mm_kernel_f16, mm_kernel_wgmma;
extern const struct kiln_kernel mm_kernel_gemv, mm_kernel_stream;

#endif
