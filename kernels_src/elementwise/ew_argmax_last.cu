// ew_argmax_last: second step of argmax: the best of what the blocks of ew_argmax_part left. One
// block a row.
//
// Shared memory: static, 8 bytes a warp. Defines: THREADS a block.
#include "elementwise/ew_argmax.cuh"

// parts (S, blocks) -> out (S): the lowest index of the largest value, -1 when that is not finite;
// n_tokens (1) or NULL.
extern "C" __global__ void __launch_bounds__(THREADS) ew_argmax_last(const ew_best *parts,
        int *__restrict__ out, const int *__restrict__ n_tokens, const ew_args args) {
    ptx_dependents_may_start();
    ptx_wait_for_dependency();
    long long row = blockIdx.x;
    if (n_tokens && row >= *n_tokens) {
        return;
    }
    ew_best best = ew_none();
    for (int i = (int)threadIdx.x; i < args.blocks; i += THREADS) {
        ew_best other = parts[row * args.blocks + i];
        ew_take(best, other.value, other.index);
    }
    best = ew_of_block(best);
    if (threadIdx.x == 0) {
        bool finite = best.value > PTX_NEG_INFINITY && best.value < -PTX_NEG_INFINITY;
        out[row] = finite ? best.index : -1;
    }
}
