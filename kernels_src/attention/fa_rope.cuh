// fa_rope: the numbers that rope_splitkv is given by value beside fa_args. Read by the CUDA source
// and, as plain C, by the plugin that fills it in, so that there is one such struct.
#ifndef KILN_ATTENTION_FA_ROPE_CUH
#define KILN_ATTENTION_FA_ROPE_CUH

struct fa_rope_args {
    int dims;      // the first dims columns of a head turn; even
    int pairs;     // 1: (2i, 2i + 1) turn together, 0: (i, i + dims / 2)
    int positions; // T
    float scale;   // multiplies cosine and sine
};

#endif
