// fa_tile: what the prefill kernels on fa_core share: which tile of query rows a block takes, Q's
// staging, the way back of O. Not here: the loop over the keys.
//
// A block is FA_WARPS warps and takes FA_TQ query rows of one head. Grid (ceil(rows / FA_TQ),
// heads), read as one line of blocks: the tiles that see most keys start first, so the last to end
// are short ones; and neighbours share a KV head, so its keys come from L2. Defines, beside those
// of fa_core: FA_TQ.
#ifndef KILN_ATTENTION_FA_TILE_CUH
#define KILN_ATTENTION_FA_TILE_CUH

#include "attention/fa_core.cuh"

#if !defined(FA_TQ)
#    error "define FA_TQ: query rows a block"
#endif

#ifndef FA_WARPS // fap1 divides the work otherwise
#    define FA_WARPS (FA_TQ / (16 * FA_MT))
#endif
#define FA_THREADS (FA_WARPS * 32)

static_assert(FA_TQ % (16 * FA_MT) == 0 && FA_TQ > 0, "FA_TQ: a multiple of a warp's rows");
static_assert(FA_THREADS <= 1024, "FA_TQ: more than 1024 threads");

#define FA_MAX(a, b)  ((a) > (b) ? (a) : (b))
#define FA_Q_BYTES    (FA_TQ * FA_STRIDE * 2)
#define FA_TILE_BYTES (FA_TKV * FA_STRIDE * 2) // K or V of one tile
#define FA_OUT_BYTES  (FA_TQ * FA_HD * 4)      // O of the last tile, over Q, K and V

struct fa_tile {
    int first_row, rows; // rows: in use in all
    int head, kv_head;
    int begin, end; // keys that the tile sees: begin is a multiple of FA_TKV
};

// All but the keys, from what can be read again: asked before and after the loop over the keys, so
// that the answers take no registers in between. False for a block without rows.
PTX_INLINE bool fa_place_tile(fa_tile &tile, const int *n_tokens, const fa_args &args) {
    tile.rows = fa_in_use(n_tokens, args.rows);
    int tiles = (tile.rows + FA_TQ - 1) / FA_TQ;
    int line = ptx_block_y() * (int)gridDim.x + ptx_block_x();
    int order = line / args.heads;
    tile.head = line % args.heads;
    tile.kv_head = tile.head / (args.heads / args.kv_heads);
    tile.first_row = (tiles - 1 - order) * FA_TQ;
    return order < tiles;
}

PTX_INLINE void fa_tile_range(
        fa_tile &tile, const int *positions, const int *kv_len, const fa_args &args) {
    int keys = fa_in_use(kv_len, args.keys);
    fa_range range = fa_rows_range<FA_TQ>(positions, tile.first_row, tile.rows, keys, args);
    tile.begin = range.first / FA_TKV * FA_TKV;
    tile.end = range.last + 1;
}

PTX_INLINE void fa_warp_ranges(fa_state &state, const fa_tile &tile, const int *positions,
        const int *kv_len, const fa_args &args) {
    int keys = fa_in_use(kv_len, args.keys);
    int row = tile.first_row + (int)(threadIdx.x / 32) * 16 * FA_MT + ptx_lane() / 4;
#pragma unroll
    for (int m = 0; m < FA_MT; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            state.range[m][h] =
                    fa_row_range(positions, row + m * 16 + h * 8, tile.rows, keys, args);
        }
    }
}

PTX_INLINE void fa_stage_q(
        unsigned to, const fa_q_type *q, const fa_tile &tile, const fa_args &args) {
    constexpr int chunks = FA_HD / 8;
#pragma unroll 1
    for (int chunk = (int)threadIdx.x; chunk < FA_TQ * chunks; chunk += FA_THREADS) {
        int row = chunk / chunks, column = chunk % chunks * 8;
        uint4 value = make_uint4(0, 0, 0, 0);
        if (tile.first_row + row < tile.rows) {
            value = fa_load_q(
                    q + (tile.first_row + row) * args.q_stride + tile.head * FA_HD + column);
        }
        ptx_store_shared_v4(to + (unsigned)(row * FA_STRIDE + column) * 2, value);
    }
}

// A full tile is written from the fragments. Of the last one only some rows exist: O goes through
// shared memory, from where whole rows are copied. shared: FA_OUT_BYTES; all threads of the block
// call.
PTX_INLINE void fa_write(const fa_state &state, fa_out_type *out, float *shared,
        const int *n_tokens, const fa_args &args) {
    fa_tile tile;
    fa_place_tile(tile, n_tokens, args);
    int row = (int)(threadIdx.x / 32) * 16 * FA_MT + ptx_lane() / 4;
    int column = (ptx_lane() & 3) * 2;
    fa_out_type *to = out + tile.first_row * args.out_stride + tile.head * FA_HD;
    bool full = tile.first_row + FA_TQ <= tile.rows;
    if (!full) {
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < FA_MT; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int at = row + m * 16 + h * 8;
#pragma unroll
            for (int i = 0; i < FA_HD / 8; i++) {
                float low = state.out[m][i][2 * h], high = state.out[m][i][2 * h + 1];
                if (full) {
                    fa_write_pair(to + at * args.out_stride + i * 8 + column, low, high);
                } else {
                    *(float2 *)(shared + at * FA_HD + i * 8 + column) = make_float2(low, high);
                }
            }
        }
    }
    if (full) {
        return;
    }
    __syncthreads();
#pragma unroll 1
    for (int pair = (int)threadIdx.x; pair < FA_TQ * FA_HD / 2; pair += FA_THREADS) {
        int from = pair * 2 / FA_HD, at = pair * 2 % FA_HD;
        if (tile.first_row + from < tile.rows) {
            float2 value = *(const float2 *)(shared + from * FA_HD + at);
            fa_write_pair(to + from * args.out_stride + at, value.x, value.y);
        }
    }
}

#endif
