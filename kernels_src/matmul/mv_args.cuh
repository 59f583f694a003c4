// mv_args: the numbers that a launch of mm_stream is given by value. Read by the CUDA source and,
// as plain C, by the plugin that fills it in, so that there is one such struct.
#ifndef KILN_MATMUL_MV_ARGS_CUH
#define KILN_MATMUL_MV_ARGS_CUH

struct mv_args {
    long long in_stride, residual_stride; // bytes from one token's row to the next
    long long out_stride[3];              // of each matrix
    int weight_stride[3];                 // bytes from one output's row to the next
    int n[3];                             // outputs of each matrix
    int tiles[3];                         // pieces of MV_ROWS outputs, the last may be short
    int k;                                // inputs
    int in_wide;                          // IN's rows are 16-byte aligned
    int activation;                       // enum kiln_activation
    float eps;                            // of the norm before
    int cost[3];                          // of a tile of each: what blocks share evenly
};

#endif
