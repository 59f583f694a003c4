// ew_argmax_part: first step of argmax: `blocks` blocks share a row; each leaves its best value and
// index. ew_argmax_last takes the best of those.
//
// Shared memory: static, 8 bytes a warp. Defines: THREADS a block.
#include "elementwise/ew_argmax.cuh"

// in (S, V) f32 -> parts (S, blocks) of value and index; n_tokens (1) or NULL. Grid: x blocks, y
// rows.
extern "C" __global__ void __launch_bounds__(THREADS) ew_argmax_part(const float *in,
        ew_best *__restrict__ parts, const int *__restrict__ n_tokens, const ew_args args) {
    ptx_dependents_may_start();
    ptx_wait_for_dependency();
    long long row = blockIdx.y;
    if (n_tokens && row >= *n_tokens) {
        return;
    }
    const float *x = (const float *)((const char *)in + row * args.in_stride);
    int step = args.blocks * THREADS;
    int first = (int)blockIdx.x * THREADS + (int)threadIdx.x;
    ew_best best = ew_none();
    if (args.wide) {
        for (int c = first; c < args.columns / 4; c += step) {
            float4 v = *(const float4 *)(x + 4ll * c);
            ew_take(best, v.x, 4 * c);
            ew_take(best, v.y, 4 * c + 1);
            ew_take(best, v.z, 4 * c + 2);
            ew_take(best, v.w, 4 * c + 3);
        }
    } else {
        for (int c = first; c < args.columns; c += step) {
            ew_take(best, x[c], c);
        }
    }
    best = ew_of_block(best);
    if (threadIdx.x == 0) {
        parts[row * args.blocks + blockIdx.x] = best;
    }
}
