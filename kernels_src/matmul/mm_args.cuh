// mm_args: the numbers that a launch of a matmul kernel is given by value. Read by the CUDA sources
// and, as plain C, by the plugin that fills it in, so that there is one such struct. Not here:
// pointers, which are arguments of their own, and what a kernel is compiled for.
#ifndef KILN_MATMUL_MM_ARGS_CUH
#define KILN_MATMUL_MM_ARGS_CUH

struct mm_args {
    long long in_stride, out_stride, residual_stride; // bytes from one token's row to the next
    long long weight_stride;                          // bytes from one output's row to the next
    long long halves_stride; // bytes from one row of f16 activations to the next
    int rows;                // bound of S
    int n, k;                // outputs, inputs
    int k_padded;   // columns of the f16 activations and of expanded weights; those from k on are 0
    int splits;     // gemv: warps that share a row; mmq: parts of K, or blocks that share steps
    int in_wide;    // IN's rows are 16-byte aligned
    int out_wide;   // four of OUT and RESIDUAL are read and written at once; n is a multiple of 4
    int scale_step; // f32 from the factor of one row of f16 activations to the next
    int out_rows;   // OUT is rows of f16 with a factor each, else f32; of mm_glu.cuh alone
    int again;      // such an OUT is launched a second time
};

#endif
