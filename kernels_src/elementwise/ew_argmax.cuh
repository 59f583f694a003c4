// ew_argmax: what both steps of argmax share: an order of candidates in which every way to compare
// gives the same winner.
#ifndef KILN_ELEMENTWISE_EW_ARGMAX_CUH
#define KILN_ELEMENTWISE_EW_ARGMAX_CUH

#include "common/ptx.cuh"
#include "elementwise/ew_args.cuh"

#ifndef THREADS
#    error "define THREADS: threads a block"
#endif
static_assert(THREADS % 32 == 0 && THREADS >= 32 && THREADS <= 1024, "THREADS: whole warps");

struct ew_best {
    float value;
    int index;
};

// NaN is never the largest.
PTX_INLINE ew_best ew_none() {
    ew_best best = {PTX_NEG_INFINITY, 0};
    return best;
}

PTX_INLINE void ew_take(ew_best &best, float value, int index) {
    if (value > best.value || (value == best.value && index < best.index)) {
        best.value = value;
        best.index = index;
    }
}

// Over the block; thread 0 gets the result.
PTX_INLINE ew_best ew_of_block(ew_best best) {
    __shared__ float values[THREADS / 32];
    __shared__ int indices[THREADS / 32];
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        float value = __shfl_xor_sync(0xffffffffu, best.value, mask);
        int index = __shfl_xor_sync(0xffffffffu, best.index, mask);
        ew_take(best, value, index);
    }
    if (threadIdx.x % 32 == 0) {
        values[threadIdx.x / 32] = best.value;
        indices[threadIdx.x / 32] = best.index;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < THREADS / 32; i++) {
            ew_take(best, values[i], indices[i]);
        }
    }
    return best;
}

#endif
