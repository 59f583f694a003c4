// fa_args: the numbers that a launch of an attention kernel is given by value. Read by the CUDA
// sources and, as plain C, by the plugin that fills it in, so that there is one such struct. Not
// here: pointers, which are arguments of their own, and what a kernel is compiled for.
#ifndef KILN_ATTENTION_FA_ARGS_CUH
#define KILN_ATTENTION_FA_ARGS_CUH

struct fa_args {
    long long q_stride, out_stride; // elements from one token's row to the next
    long long k_stride, v_stride;   // elements from one position's row to the next
    int rows;                       // bound of S: rows of Q and OUT
    int keys;                       // T: rows of the caches
    int heads, kv_heads;            // H is a multiple of HKV
    int head_size;                  // HD
    int window;                     // keys that a row sees, itself included; 0: all before it
    int splits;                     // decode: parts that the keys of a row are cut into
    int reserved;                   // 0
    float to_log2;                  // a score, times this, is the exponent of 2 of its weight
    float cap_in;                   // with a cap: the score, times this, is log2 of e^2x, where
                                    // tanh(x) is then the score that to_log2 multiplies
};

#endif
