// fap2: prefill attention whose softmax stays in registers. FA_TQ / 16 warps, each with 16 query
// rows and all FA_TKV keys of a tile; one buffer for K and one for V. The math is fa_core's.
//
// FA_AHEAD 0, as first written: K and V of a tile are fetched together and waited for, then used.
// FA_AHEAD 1: V is fetched while scores are made and the next K while V is used. The same buffers
// and barriers.
//   barrier 1: K of this tile is there; nobody reads the last tile's V any more: fetch V
//   barrier 2: V is there; nobody reads K any more: fetch the next K
// FA_SYNC 3 adds a barrier between scores and softmax. It orders nothing: no warp writes what
// another reads around it.
//
// Shared memory: Q FA_TQ rows, K and V FA_TKV rows each, rows FA_HD + FA_KPAD halves apart; over
// them, once the keys are done, O of the last tile as f32. Defines: fa_core's and fa_tile's;
// FA_SYNC 2, 3; FA_AHEAD 0, 1; MIN_BLOCKS a multiprocessor.
#define FA_MT 1
#include "attention/fa_tile.cuh"

#if !defined(FA_SYNC) || !defined(FA_AHEAD) || !defined(MIN_BLOCKS)
#    error "define FA_SYNC, FA_AHEAD and MIN_BLOCKS"
#endif
static_assert(FA_SYNC == 2 || FA_SYNC == 3, "FA_SYNC: barriers a tile, 2 or 3");
static_assert(FA_AHEAD == 0 || FA_AHEAD == 1, "FA_AHEAD: 0 or 1");

#define FA_TOTAL FA_MAX(FA_Q_BYTES + 2 * FA_TILE_BYTES, FA_OUT_BYTES)
static_assert(KILN_SMEM >= FA_TOTAL, "KILN_SMEM: the launcher asks for too little");

// Q, K, V, O
extern "C" __device__ const unsigned kiln_layout_fap2[] = {FA_TOTAL, 0, FA_Q_BYTES, FA_Q_BYTES,
        FA_TILE_BYTES, FA_Q_BYTES + FA_TILE_BYTES, FA_TILE_BYTES, 0, FA_OUT_BYTES};

// q, out (S, H*HD); k, v (T, HKV*HD); positions (S); n_tokens, kv_len (1) or NULL.
extern "C" __global__ void __launch_bounds__(FA_THREADS, MIN_BLOCKS)
        fap2(const fa_q_type *__restrict__ q, const fa_half *__restrict__ k,
                const fa_half *__restrict__ v, const int *__restrict__ positions,
                fa_out_type *__restrict__ out, const int *__restrict__ n_tokens,
                const int *__restrict__ kv_len, const fa_args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    fa_tile tile;
    if (!fa_place_tile(tile, n_tokens, args)) {
        return;
    }
    fa_tile_range(tile, positions, kv_len, args);
    unsigned q_at = ptx_shared(shared), k_at = q_at + FA_Q_BYTES, v_at = k_at + FA_TILE_BYTES;
    unsigned warp_q = q_at + threadIdx.x / 32 * (16 * FA_STRIDE * 2);
    int thread = (int)threadIdx.x;
    int head_column = tile.kv_head * FA_HD;
    if (FA_AHEAD && tile.begin < tile.end) {
        fa_stage_cache<FA_TKV, FA_THREADS>(
                k_at, k, head_column, args.k_stride, tile.begin, tile.end, thread);
        ptx_cp_async_commit();
    }
    fa_stage_q(q_at, q, tile, args);
    fa_state state;
    fa_begin(state);
    fa_warp_ranges(state, tile, positions, kv_len, args);
    __syncthreads();
    fa_take_q(state, warp_q);

#pragma unroll 1
    for (int key = tile.begin; key < tile.end; key += FA_TKV) {
        float s[FA_MT][FA_TKV / 8][4];
        bool sees = fa_sees<FA_TKV>(state, key);
        if (FA_AHEAD) {
            ptx_cp_async_wait<0>();
            __syncthreads();
        } else {
            fa_stage_cache<FA_TKV, FA_THREADS>(
                    k_at, k, head_column, args.k_stride, key, tile.end, thread);
        }
        fa_stage_cache<FA_TKV, FA_THREADS>(
                v_at, v, head_column, args.v_stride, key, tile.end, thread);
        ptx_cp_async_commit();
        if (!FA_AHEAD) {
            ptx_cp_async_wait<0>();
            __syncthreads();
        }
        if (sees) {
            fa_scores<FA_TKV>(state, warp_q, k_at, s);
        }
        if (FA_SYNC == 3) {
            __syncthreads();
        }
        if (FA_AHEAD) {
            ptx_cp_async_wait<0>();
            __syncthreads();
            if (key + FA_TKV < tile.end) {
                fa_stage_cache<FA_TKV, FA_THREADS>(
                        k_at, k, head_column, args.k_stride, key + FA_TKV, tile.end, thread);
                ptx_cp_async_commit();
            }
        }
        if (sees) {
            fa_mask<FA_TKV>(state, key, args, s);
            fa_softmax<FA_TKV>(state, args.to_log2, s);
            fa_values<FA_TKV>(state, v_at, s);
        }
        if (!FA_AHEAD) {
            __syncthreads();
        }
    }
    fa_finish(state);
    fa_write(state, out, (float *)shared, n_tokens, args);
}
