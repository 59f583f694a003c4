// fap2db: fap2 with two stages of K and V: the next tile is fetched while this one is used, one
// barrier a tile.
//
// FA_WROWS rows a warp: 16 as in fap2, or 32, which uses each fragment of K and V that it reads
// twice, for twice the accumulators. Shared memory: Q FA_TQ rows, two stages of K and V with FA_TKV
// rows each, rows FA_HD + FA_KPAD halves apart; over them, at the end, O of the last tile as f32.
// Defines: fa_core's but FA_MT, fa_tile's; FA_WROWS; MIN_BLOCKS a multiprocessor.
#if !defined(FA_WROWS) || !defined(MIN_BLOCKS)
#    error "define FA_WROWS and MIN_BLOCKS"
#endif
#define FA_MT (FA_WROWS / 16)
#include "attention/fa_tile.cuh"

static_assert(FA_WROWS == 16 || FA_WROWS == 32, "FA_WROWS: rows a warp, 16 or 32");

#define FA_TOTAL FA_MAX(FA_Q_BYTES + 4 * FA_TILE_BYTES, FA_OUT_BYTES)
static_assert(KILN_SMEM >= FA_TOTAL, "KILN_SMEM: the launcher asks for too little");

// Q, K and V of stage 0, of stage 1, O
extern "C" __device__ const unsigned kiln_layout_fap2db[] = {FA_TOTAL, 0, FA_Q_BYTES, FA_Q_BYTES,
        2 * FA_TILE_BYTES, FA_Q_BYTES + 2 * FA_TILE_BYTES, 2 * FA_TILE_BYTES, 0, FA_OUT_BYTES};

// q, out (S, H*HD); k, v (T, HKV*HD); positions (S); n_tokens, kv_len (1) or NULL.
extern "C" __global__ void __launch_bounds__(FA_THREADS, MIN_BLOCKS)
        fap2db(const fa_q_type *__restrict__ q, const fa_half *__restrict__ k,
                const fa_half *__restrict__ v, const int *__restrict__ positions,
                fa_out_type *__restrict__ out, const int *__restrict__ n_tokens,
                const int *__restrict__ kv_len, const fa_args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    fa_tile tile;
    if (!fa_place_tile(tile, n_tokens, args)) {
        return;
    }
    fa_tile_range(tile, positions, kv_len, args);
    unsigned q_at = ptx_shared(shared), stage = q_at + FA_Q_BYTES;
    unsigned other = stage + 2 * FA_TILE_BYTES;
    unsigned warp_q = q_at + threadIdx.x / 32 * (16 * FA_MT * FA_STRIDE * 2);
    int thread = (int)threadIdx.x;
    int head_column = tile.kv_head * FA_HD;
    if (tile.begin < tile.end) {
        fa_stage_cache<FA_TKV, FA_THREADS>(
                stage, k, head_column, args.k_stride, tile.begin, tile.end, thread);
        fa_stage_cache<FA_TKV, FA_THREADS>(
                stage + FA_TILE_BYTES, v, head_column, args.v_stride, tile.begin, tile.end, thread);
        ptx_cp_async_commit();
    }
    fa_stage_q(q_at, q, tile, args);
    fa_state state;
    fa_begin(state);
    fa_warp_ranges(state, tile, positions, kv_len, args);
    __syncthreads();
    fa_take_q(state, warp_q);

    for (int key = tile.begin; key < tile.end; key += FA_TKV) {
        ptx_cp_async_wait<0>();
        __syncthreads(); // this tile is there, and nobody reads the one before any more
        if (key + FA_TKV < tile.end) {
            fa_stage_cache<FA_TKV, FA_THREADS>(
                    other, k, head_column, args.k_stride, key + FA_TKV, tile.end, thread);
            fa_stage_cache<FA_TKV, FA_THREADS>(other + FA_TILE_BYTES, v, head_column, args.v_stride,
                    key + FA_TKV, tile.end, thread);
            ptx_cp_async_commit();
        }
        if (fa_sees<FA_TKV>(state, key)) {
            float s[FA_MT][FA_TKV / 8][4];
            fa_scores<FA_TKV>(state, warp_q, stage, s);
            fa_mask<FA_TKV>(state, key, args, s);
            fa_softmax<FA_TKV>(state, args.to_log2, s);
            fa_values<FA_TKV>(state, stage + FA_TILE_BYTES, s);
        }
        unsigned next = other;
        other = stage;
        stage = next;
    }
    fa_finish(state);
    fa_write(state, out, (float *)shared, n_tokens, args);
}
