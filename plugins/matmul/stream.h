// stream: plans of the kernel mm_stream, which the variants for few rows share: one to three
// matrices of one input, with or without a norm before and an activation behind.
#ifndef MATMUL_STREAM_H
#define MATMUL_STREAM_H

#include "mm_plan.h"

#include "mv_args.cuh.h" // kernels_src/matmul/mv_args.cuh, copied by the build

enum {
    MV_MATRICES = 3
};

struct mv_matrix { // an op of the problem
    uint32_t op;
    const struct kiln_tensor *weight, *bias, *residual, *out;
};

struct mv_request {
    struct gpu_request base;
    const struct kiln_tensor *in;
    bool norm;                                   // op 0 is a norm of IN, the matrices follow
    bool pair;                                   // two matrices, then their activation: the last op
    uint32_t out_op;                             // pair: the activation
    const struct kiln_tensor *norm_weight, *out; // norm; pair
    struct mv_matrix matrices[MV_MATRICES];
    uint32_t n_matrices;
    int64_t rows, k;
    int32_t activation;
    int32_t x_bits; // activations as integers of 8 or 16 bits
    float eps;
};

// Whether mm_stream handles these weights and sizes on this device; else *why is a reason.
bool mv_fits(const struct mv_request *request, char *why, size_t size);
// The launch. Gives what plan() must return.
int32_t mv_submit(const struct mv_request *request);

extern const struct kiln_param mv_warps_param, mv_stages_param, mv_blocks_param;
extern const struct kiln_param mv_overlap_param, mv_bulk_param;

#endif
