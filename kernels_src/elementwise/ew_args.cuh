// ew_args: the numbers that a launch of an elementwise kernel is given by value. Read by the CUDA
// sources and, as plain C, by the plugin that fills them in, so that there is one such struct. Not
// here: pointers, which are arguments of their own, and what a kernel is compiled for.
#ifndef KILN_ELEMENTWISE_EW_ARGS_CUH
#define KILN_ELEMENTWISE_EW_ARGS_CUH

struct ew_args {                                   // norm, activation, embed, argmax
    long long in_stride, other_stride, out_stride; // bytes from row to row; other: RESIDUAL or UP
    int rows;                                      // bound of S
    int columns;                                   // D, F or V
    int wide;       // all rows are 16-byte aligned and columns a multiple of 4
    int activation; // enum kiln_activation
    int vocab;      // embed: rows of the table
    int blocks;     // argmax: blocks that share a row
    int out_f16;    // norm: OUT holds f16, else f32
    int reserved;   // 0
    float eps, scale;
};

struct ew_rope_args {
    long long q_stride, k_stride, v_stride, out_stride, k_cache_stride, v_cache_stride; // bytes
    int rows;            // bound of S
    int positions;       // T: rows of the caches
    int heads, kv_heads; // H, HKV
    int head_size, rope_dims;
    int pairs;        // 1: (2i, 2i + 1) turn together, 0: (i, i + rope_dims / 2)
    int k_f16, v_f16; // the caches hold f16, else f32
    int out_f16;      // so does OUT
    float scale, eps;
};

#endif
