// splitkv_combine: decode attention, second half: joins the parts that splitkv has made of a row's
// keys.
//
// Grid (rows, heads), FA_JOIN_WARPS warps. Each warp adds up every FA_JOIN_WARPS-th part, then the
// warps' sums are added in order. Defines: FA_HD; FA_TKV, by which the keys were cut;
// FA_JOIN_WARPS; FA_WINDOW, FA_OUT_F16 as 0 or 1.
#include "attention/fa_args.cuh"
#include "attention/fa_split.cuh"
#include "common/ptx.cuh"

#if !defined(FA_HD) || !defined(FA_TKV) || !defined(FA_JOIN_WARPS)
#    error "define FA_HD, FA_TKV and FA_JOIN_WARPS"
#endif
#if !defined(FA_WINDOW) || !defined(FA_OUT_F16)
#    error "define FA_WINDOW and FA_OUT_F16 as 0 or 1"
#endif
static_assert(FA_HD % 16 == 0 && FA_HD <= 256, "FA_HD: a multiple of 16 up to 256");
static_assert(FA_JOIN_WARPS >= 1 && FA_JOIN_WARPS <= 32, "FA_JOIN_WARPS: 1 to 32");

#define FA_PAIRS \
    ((FA_HD + 63) / 64) // pairs of columns a lane: lane l has 2l, 2l + 1, then 64 further on

#if FA_OUT_F16
typedef unsigned short fa_out_type;
#else
typedef float fa_out_type;
#endif

// positions (S); n_tokens, kv_len (1) or NULL; parts (S, H, splits, HD), part_rows (S, H, splits,
// 2): as splitkv writes them; out (S, H*HD).
extern "C" __global__ void __launch_bounds__(FA_JOIN_WARPS * 32, 1) splitkv_combine(
        const int *__restrict__ positions, const float *parts, const float *part_rows,
        fa_out_type *__restrict__ out, const int *__restrict__ n_tokens,
        const int *__restrict__ kv_len, const fa_args args) {
    __shared__ float sums[FA_JOIN_WARPS][FA_HD];
    ptx_dependents_may_start();
    ptx_wait_for_dependency();
    int row = (int)blockIdx.x, head = (int)blockIdx.y;
    int warp = (int)(threadIdx.x / 32), lane = ptx_lane();
    int rows = n_tokens ? max(0, min(*n_tokens, args.rows)) : args.rows;
    int keys = kv_len ? max(0, min(*kv_len, args.keys)) : args.keys;
    if (row >= rows) {
        return;
    }
    int first = FA_WINDOW ? max(0, positions[row] - args.window + 1) : 0;
    int n_parts = fa_split_keys(first, min(positions[row], keys - 1), FA_TKV, args.splits).parts;
    long long at = ((long long)row * args.heads + head) * args.splits;
    const float2 *numbers = (const float2 *)(part_rows + at * 2);
    float top = PTX_NEG_INFINITY, total = 0;
#pragma unroll 1
    for (int i = lane; i < n_parts; i += 32) {
        top = fmaxf(top, numbers[i].x);
    }
    top = ptx_warp_max(top);
#pragma unroll 1
    for (int i = lane; i < n_parts; i += 32) {
        total = fmaf(numbers[i].y, ptx_exp2((numbers[i].x - top) * args.to_log2), total);
    }
    total = ptx_warp_sum(total);
    float2 mine[FA_PAIRS] = {};
#pragma unroll 4
    for (int i = warp; i < n_parts; i += FA_JOIN_WARPS) {
        float factor = ptx_exp2((numbers[i].x - top) * args.to_log2);
#pragma unroll
        for (int c = 0; c < FA_PAIRS; c++) {
            int column = c * 64 + lane * 2;
            if (FA_HD % 64 == 0 || column < FA_HD) {
                float2 part = *(const float2 *)(parts + (at + i) * FA_HD + column);
                mine[c].x = fmaf(factor, part.x, mine[c].x);
                mine[c].y = fmaf(factor, part.y, mine[c].y);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < FA_PAIRS; c++) {
        int column = c * 64 + lane * 2;
        if (FA_HD % 64 == 0 || column < FA_HD) {
            *(float2 *)(&sums[warp][column]) = mine[c];
        }
    }
    __syncthreads();
    float inverse = total > 0 ? 1.0f / total : 0.0f; // no key seen: zero
#pragma unroll 1
    for (int column = (int)threadIdx.x; column < FA_HD; column += FA_JOIN_WARPS * 32) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < FA_JOIN_WARPS; w++) {
            sum += sums[w][column];
        }
        fa_out_type *to = out + row * args.out_stride + head * FA_HD + column;
#if FA_OUT_F16
        *to = ptx_float_to_half(sum * inverse);
#else
        *to = sum * inverse;
#endif
    }
}
