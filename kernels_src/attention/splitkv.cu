// splitkv: decode attention, first half: each block takes a part of one token's keys for all query
// heads of one KV head, so that keys and values are read once. splitkv_combine joins the parts. The
// math is fa_core's.
//
// The query heads that share a KV head are the 16 rows of a tile (zeros where there are fewer;
// groups of 16 where there are more). Each warp has 16 of a tile's FA_TKV keys, its own buffers,
// maximum and sums: in the loop only lanes of a warp wait for each other, and K or V of the next
// tile is always under way. At the end the warps' sums are joined in order through shared memory.
// Grid (splits, KV heads, rows * groups), FA_TKV / 16 warps.
//
// Shared memory: Q 16 rows, K and V FA_TKV rows each, rows FA_HD + FA_KPAD halves apart; over them,
// at the end, O of each warp as f32, then maximum and sum of each of its rows. Defines: fa_core's
// but FA_MT; MIN_BLOCKS a multiprocessor.
#define FA_MT 1
#include "attention/fa_core.cuh"
#include "attention/fa_split.cuh"

#if !defined(MIN_BLOCKS)
#    error "define MIN_BLOCKS"
#endif
#define FA_WARPS   (FA_TKV / 16)
#define FA_THREADS (FA_WARPS * 32)
static_assert(FA_THREADS <= 1024, "FA_TKV: more than 1024 threads");

#define FA_Q_BYTES    (16 * FA_STRIDE * 2)
#define FA_TILE_BYTES (FA_TKV * FA_STRIDE * 2)
#define FA_OUT_BYTES  (FA_WARPS * 16 * FA_HD * 4)
#define FA_ROW_BYTES  (FA_WARPS * 16 * 2 * 4) // maximum and sum
#define FA_MAX(a, b)  ((a) > (b) ? (a) : (b))
#define FA_TOTAL      FA_MAX(FA_Q_BYTES + 2 * FA_TILE_BYTES, FA_OUT_BYTES + FA_ROW_BYTES)
static_assert(KILN_SMEM >= FA_TOTAL, "KILN_SMEM: the launcher asks for too little");

// Q, K, V, O, maximum and sum
extern "C" __device__ const unsigned kiln_layout_splitkv[] = {FA_TOTAL, 0, FA_Q_BYTES, FA_Q_BYTES,
        FA_TILE_BYTES, FA_Q_BYTES + FA_TILE_BYTES, FA_TILE_BYTES, 0, FA_OUT_BYTES, FA_OUT_BYTES,
        FA_ROW_BYTES};

PTX_INLINE void fa_stage_heads(unsigned to, const fa_q_type *q, int heads) {
    constexpr int chunks = FA_HD / 8;
    for (int chunk = (int)threadIdx.x; chunk < 16 * chunks; chunk += FA_THREADS) {
        int row = chunk / chunks, column = chunk % chunks * 8;
        uint4 value = make_uint4(0, 0, 0, 0);
        if (row < heads) {
            value = fa_load_q(q + row * FA_HD + column);
        }
        ptx_store_shared_v4(to + (unsigned)(row * FA_STRIDE + column) * 2, value);
    }
}

// This warp's sums to shared memory. out: FA_OUT_BYTES, then FA_ROW_BYTES.
PTX_INLINE void fa_leave(fa_state &state, float *out) {
    int warp = (int)(threadIdx.x / 32), column = (ptx_lane() & 3) * 2;
    float *rows = out + FA_OUT_BYTES / 4;
    fa_join_sums(state);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = warp * 16 + ptx_lane() / 4 + h * 8;
        if (column == 0) {
            rows[row * 2] = state.max[0][h];
            rows[row * 2 + 1] = state.sum[0][h];
        }
#pragma unroll
        for (int i = 0; i < FA_HD / 8; i++) {
            *(float2 *)(out + row * FA_HD + i * 8 + column) =
                    make_float2(state.out[0][i][2 * h], state.out[0][i][2 * h + 1]);
        }
    }
}

// The warps' sums as one, to global memory. part: (heads, splits, HD), row: (heads, splits, 2),
// both of this block's first head and of its split.
PTX_INLINE void fa_join_warps(
        const float *out, float *part, float *row, int heads, int splits, float to_log2) {
    const float *rows = out + FA_OUT_BYTES / 4;
    for (int at = (int)threadIdx.x; at < heads * FA_HD; at += FA_THREADS) {
        int head = at / FA_HD, column = at % FA_HD;
        float top = PTX_NEG_INFINITY, sum = 0, value = 0;
#pragma unroll
        for (int w = 0; w < FA_WARPS; w++) {
            top = fmaxf(top, rows[(w * 16 + head) * 2]);
        }
        float shift = top == PTX_NEG_INFINITY ? 0.0f : top;
#pragma unroll
        for (int w = 0; w < FA_WARPS; w++) {
            float factor = ptx_exp2((rows[(w * 16 + head) * 2] - shift) * to_log2);
            sum = fmaf(factor, rows[(w * 16 + head) * 2 + 1], sum);
            value = fmaf(factor, out[(w * 16 + head) * FA_HD + column], value);
        }
        part[(long long)head * splits * FA_HD + column] = value;
        if (column == 0) {
            *(float2 *)(row + (long long)head * splits * 2) = make_float2(top, sum);
        }
    }
}

// q (S, H*HD); k, v (T, HKV*HD); positions (S); n_tokens, kv_len (1) or NULL; parts (S, H, splits,
// HD); part_rows (S, H, splits, 2): maximum, in units of the score, and sum.
extern "C" __global__ void __launch_bounds__(FA_THREADS, MIN_BLOCKS) splitkv(const fa_q_type *q,
        const fa_half *k, const fa_half *v, const int *__restrict__ positions,
        float *__restrict__ parts, float *__restrict__ part_rows, const int *__restrict__ n_tokens,
        const int *__restrict__ kv_len, const fa_args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    ptx_dependents_may_start();
    ptx_wait_for_dependency();
    int ratio = args.heads / args.kv_heads, groups = (ratio + 15) / 16;
    int row = (int)blockIdx.z / groups, group = (int)blockIdx.z % groups;
    int kv_head = (int)blockIdx.y, split = (int)blockIdx.x;
    int rows = fa_in_use(n_tokens, args.rows);
    if (row >= rows) {
        return;
    }
    fa_range range = fa_row_range(positions, row, rows, fa_in_use(kv_len, args.keys), args);
    fa_split cut = fa_split_keys(range.first, range.last, FA_TKV, args.splits);
    if (split >= cut.parts) {
        return;
    }
    int head = kv_head * ratio + group * 16, heads = min(16, ratio - group * 16);
    int warp = (int)(threadIdx.x / 32), lane = ptx_lane();
    int begin = (cut.first + split * cut.each) * FA_TKV + warp * 16;
    int end = min(range.last + 1, (cut.first + min(cut.count, (split + 1) * cut.each)) * FA_TKV);
    unsigned q_at = ptx_shared(shared);
    unsigned k_at = q_at + FA_Q_BYTES + (unsigned)(warp * 16 * FA_STRIDE) * 2;
    unsigned v_at = k_at + FA_TILE_BYTES;
    int head_column = kv_head * FA_HD;
    fa_stage_cache<16, 32>(k_at, k, head_column, args.k_stride, begin, end, lane);
    ptx_cp_async_commit();
    fa_stage_cache<16, 32>(v_at, v, head_column, args.v_stride, begin, end, lane);
    ptx_cp_async_commit();
    fa_stage_heads(q_at, q + row * args.q_stride + head * FA_HD, heads);
    fa_state state;
    fa_begin(state);
    state.range[0][0] = state.range[0][1] = range;
    __syncthreads();
    fa_take_q(state, q_at);

    for (int key = begin; key < end; key += FA_TKV) {
        float s[1][2][4];
        ptx_cp_async_wait<1>();
        __syncwarp(); // K is there
        fa_scores<16>(state, q_at, k_at, s);
        __syncwarp(); // and read
        if (key + FA_TKV < end) {
            fa_stage_cache<16, 32>(k_at, k, head_column, args.k_stride, key + FA_TKV, end, lane);
        }
        ptx_cp_async_commit();
        fa_mask<16>(state, key, args, s);
        fa_softmax<16>(state, args.to_log2, s);
        ptx_cp_async_wait<1>();
        __syncwarp(); // V is there
        fa_values<16>(state, v_at, s);
        __syncwarp(); // and read
        if (key + FA_TKV < end) {
            fa_stage_cache<16, 32>(v_at, v, head_column, args.v_stride, key + FA_TKV, end, lane);
        }
        ptx_cp_async_commit();
    }
    ptx_cp_async_wait<0>();
    __syncthreads();
    fa_leave(state, (float *)shared);
    __syncthreads();
    long long at = ((long long)row * args.heads + head) * args.splits + split;
    fa_join_warps((const float *)shared, parts + at * FA_HD, part_rows + at * 2, heads, args.splits,
            args.to_log2);
}
