// fa_decode: decode attention: each block takes a part of one token's keys for all query heads of
// one KV head, so that keys and values are read once. The parts are joined by the last block to
// have done its part (FA_LAST 1) or by splitkv_combine (0). The math is fa_core's. Used by splitkv
// and rope_splitkv, which differ in where Q and the last key come from.
//
// The query heads that share a KV head are the 16 rows of a tile (zeros where there are fewer;
// groups of 16 where there are more). Each warp has 16 of a tile's FA_TKV keys, its own buffers,
// maximum and sums: in the loop only lanes of a warp wait for each other, and K or V of the next
// tile is always under way. At the end the warps' sums are joined in order through shared memory.
// Grid (splits, KV heads, rows * groups), FA_TKV / 16 warps.
//
// Shared memory: Q 16 rows, K and V FA_TKV rows each, rows FA_HD + FA_KPAD halves apart; over them,
// at the end, O of each warp as f32, then maximum and sum of each of its rows. Defines: fa_core's
// but FA_MT; FA_LAST; MIN_BLOCKS a multiprocessor.
#ifndef KILN_ATTENTION_FA_DECODE_CUH
#define KILN_ATTENTION_FA_DECODE_CUH

#define FA_MT 1
#include "attention/fa_core.cuh"
#include "attention/fa_split.cuh"

#if !defined(MIN_BLOCKS) || !defined(FA_LAST)
#    error "define MIN_BLOCKS, and FA_LAST as 0 or 1"
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

// Of kiln_layout: Q, K, V, O, maximum and sum
#define FA_LAYOUT \
    { \
        FA_TOTAL, 0, FA_Q_BYTES, FA_Q_BYTES, FA_TILE_BYTES, FA_Q_BYTES + FA_TILE_BYTES, \
                FA_TILE_BYTES, 0, FA_OUT_BYTES, FA_OUT_BYTES, FA_ROW_BYTES \
    }

extern __shared__ __align__(16) unsigned char fa_shared[];

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

PTX_INLINE void fa_put(fa_out_type *at, float value) {
#if FA_OUT_F16
    *at = ptx_float_to_half(value);
#else
    *at = value;
#endif
}

// The warps' sums as one: to global memory, part: (heads, splits, HD), row: (heads, splits, 2),
// both of this block's first head and of its split; or, where `to` is there, as this part is the
// only one, divided by the sum of weights to OUT.
PTX_INLINE void fa_join_warps(const float *out, float *part, float *row, fa_out_type *to, int heads,
        int splits, float to_log2) {
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
        if (to) {
            fa_put(to + at, value * (sum > 0 ? 1.0f / sum : 0.0f));
            continue;
        }
        part[(long long)head * splits * FA_HD + column] = value;
        if (column == 0) {
            *(float2 *)(row + (long long)head * splits * 2) = make_float2(top, sum);
        }
    }
}

#if FA_LAST
// Asked by all threads of a block when its part is in memory: is it the last of them? Then it sees
// the others' parts. The counter is 0 before and after.
PTX_INLINE bool fa_is_last(unsigned *counter, int parts) {
    __threadfence();
    __syncthreads();
    bool last = threadIdx.x == 0 && atomicInc(counter, (unsigned)parts - 1) == (unsigned)parts - 1;
    last = __syncthreads_or(last) != 0;
    __threadfence();
    return last;
}

// The parts of each head as one, a warp a head, in order. part, row: of the first head and part.
PTX_INLINE void fa_join_parts(const float *part, const float *row, fa_out_type *to, int heads,
        int n_parts, int splits, float to_log2) {
    constexpr int pairs = (FA_HD + 63) / 64;
    int lane = ptx_lane();
    for (int head = (int)(threadIdx.x / 32); head < heads; head += FA_WARPS) {
        const float *sums = part + (long long)head * splits * FA_HD;
        const float2 *numbers = (const float2 *)(row + (long long)head * splits * 2);
        float top = PTX_NEG_INFINITY, total = 0;
        for (int i = lane; i < n_parts; i += 32) {
            top = fmaxf(top, numbers[i].x);
        }
        top = ptx_warp_max(top);
        for (int i = lane; i < n_parts; i += 32) {
            total = fmaf(numbers[i].y, ptx_exp2((numbers[i].x - top) * to_log2), total);
        }
        total = ptx_warp_sum(total);
        float inverse = total > 0 ? 1.0f / total : 0.0f;
        float2 mine[pairs] = {};
#    pragma unroll 8
        for (int i = 0; i < n_parts; i++) {
            float factor = ptx_exp2((numbers[i].x - top) * to_log2);
#    pragma unroll
            for (int c = 0; c < pairs; c++) {
                int column = c * 64 + lane * 2;
                if (FA_HD % 64 == 0 || column < FA_HD) {
                    float2 one = *(const float2 *)(sums + (long long)i * FA_HD + column);
                    mine[c].x = fmaf(factor, one.x, mine[c].x);
                    mine[c].y = fmaf(factor, one.y, mine[c].y);
                }
            }
        }
#    pragma unroll
        for (int c = 0; c < pairs; c++) {
            int column = c * 64 + lane * 2;
            if (FA_HD % 64 == 0 || column < FA_HD) {
                fa_write_pair(to + head * FA_HD + column, mine[c].x * inverse, mine[c].y * inverse);
            }
        }
    }
}
#endif

// What a block does: a row of Q, a group of up to 16 heads of one KV head, a part of the keys.
struct fa_task {
    int row, kv_head, head, heads, split, counter;
    fa_range range;
    fa_split cut;
};

// false: nothing. Without keys the first part is there, with none.
PTX_INLINE bool fa_take_task(fa_task &task, const int *positions, const int *n_tokens,
        const int *kv_len, const fa_args &args) {
    int ratio = args.heads / args.kv_heads, groups = (ratio + 15) / 16;
    int group = (int)blockIdx.z % groups;
    task.row = (int)blockIdx.z / groups;
    task.kv_head = (int)blockIdx.y;
    task.split = (int)blockIdx.x;
    task.head = task.kv_head * ratio + group * 16;
    task.heads = min(16, ratio - group * 16);
    task.counter = (int)(blockIdx.z * gridDim.y + blockIdx.y);
    int rows = fa_in_use(n_tokens, args.rows);
    if (task.row >= rows) {
        return false;
    }
    task.range = fa_row_range(positions, task.row, rows, fa_in_use(kv_len, args.keys), args);
    task.cut = fa_split_keys(task.range.first, task.range.last, FA_TKV, args.splits);
    task.cut.parts = max(task.cut.parts, FA_LAST);
    return task.split < task.cut.parts;
}

// Where a task's part lies among those of all rows, heads and splits.
PTX_INLINE long long fa_part_of(const fa_task &task, const fa_args &args) {
    return ((long long)task.row * args.heads + task.head) * args.splits + task.split;
}

// Where a warp's keys begin and end, and where its K and V are staged.
struct fa_part {
    int begin, end;
    unsigned q_at, k_at, v_at;
};

// The first of a block's keys.
PTX_INLINE int fa_first_key(const fa_task &task) {
    return (task.cut.first + task.split * task.cut.each) * FA_TKV;
}

// Sends for the first K and V of each warp, but for key `but`, which another way brings.
PTX_INLINE fa_part fa_begin_part(
        const fa_task &task, const fa_half *k, const fa_half *v, int but, const fa_args &args) {
    int warp = (int)(threadIdx.x / 32), lane = ptx_lane();
    int head_column = task.kv_head * FA_HD;
    fa_part part;
    part.begin = fa_first_key(task) + warp * 16;
    part.end = min(task.range.last + 1,
            (task.cut.first + min(task.cut.count, (task.split + 1) * task.cut.each)) * FA_TKV);
    part.q_at = ptx_shared(fa_shared);
    part.k_at = part.q_at + FA_Q_BYTES + (unsigned)(warp * 16 * FA_STRIDE) * 2;
    part.v_at = part.k_at + FA_TILE_BYTES;
    fa_stage_cache<16, 32>(
            part.k_at, k, head_column, args.k_stride, part.begin, part.end, lane, but);
    ptx_cp_async_commit();
    fa_stage_cache<16, 32>(
            part.v_at, v, head_column, args.v_stride, part.begin, part.end, lane, but);
    ptx_cp_async_commit();
    return part;
}

// Q is staged, and the block has not met since.
PTX_INLINE void fa_decode(const fa_task &task, const fa_part &part, const fa_half *k,
        const fa_half *v, float *parts, float *part_rows, unsigned *counters, fa_out_type *out,
        const fa_args &args) {
    int lane = ptx_lane();
    int begin = part.begin, end = part.end;
    unsigned q_at = part.q_at, k_at = part.k_at, v_at = part.v_at;
    int head_column = task.kv_head * FA_HD;
    fa_state state;
    fa_begin(state);
    state.range[0][0] = state.range[0][1] = task.range;
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
    fa_leave(state, (float *)fa_shared);
    __syncthreads();
    long long at = fa_part_of(task, args);
    fa_out_type *to = out + task.row * args.out_stride + task.head * FA_HD;
    bool only = FA_LAST && task.cut.parts == 1;
    fa_join_warps((const float *)fa_shared, parts + at * FA_HD, part_rows + at * 2,
            only ? to : (fa_out_type *)0, task.heads, args.splits, args.to_log2);
#if FA_LAST
    if (!only && fa_is_last(counters + task.counter, task.cut.parts)) {
        at -= task.split;
        fa_join_parts(parts + at * FA_HD, part_rows + at * 2, to, task.heads, task.cut.parts,
                args.splits, args.to_log2);
    }
#else
    (void)counters;
#endif
}

#endif
