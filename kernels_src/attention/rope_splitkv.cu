// rope_splitkv: rope_kv and decode attention of one row in one launch (fa_decode.cuh). Each block
// turns the query heads that it needs on their way to shared memory, while the first keys are under
// way; the blocks whose keys end with the row's own turn K and put K and V into the cache. Heads
// with norms are left to rope_kv.
//
// Angles, products and roundings are those of ew_rope_kv. Grid as splitkv's, of one row.
#include "attention/fa_decode.cuh"
#include "attention/fa_rope.cuh"

static_assert(FA_LAST, "FA_LAST: 1, for a block may have K to put away and no keys to read");

extern "C" __device__ const unsigned kiln_layout_rope_splitkv[] = FA_LAYOUT;

// Where a head goes: to the staged rows, to the cache, or to both.
struct fa_target {
    fa_half *staged, *cache;
};

PTX_INLINE void fa_put_half(const fa_target &to, int column, float value) {
    fa_half half = ptx_float_to_half(value);
    if (to.staged) {
        to.staged[column] = half;
    }
    if (to.cache) {
        to.cache[column] = half;
    }
}

// How far pairs lane + 32 * j are turned.
struct fa_turn {
    static constexpr int each = (FA_HD / 2 + 31) / 32;
    float sine[each], cosine[each];
};

PTX_INLINE void fa_begin_turn(
        fa_turn &turn, const float *freqs, float position, const fa_rope_args &rope) {
    int half = rope.dims / 2;
#pragma unroll
    for (int j = 0; j < fa_turn::each; j++) {
        int i = ptx_lane() + 32 * j;
        sincosf(position * (i < half ? freqs[i] : 0.0f), &turn.sine[j], &turn.cosine[j]);
        turn.sine[j] *= rope.scale;
        turn.cosine[j] *= rope.scale;
    }
}

// A warp takes every FA_WARPS-th of the heads of Q; then, where the cache has a place for them, K
// and V. The columns of a pair are seldom neighbours, so halves are stored one by one.
PTX_INLINE void fa_turn_heads(const fa_task &task, const float *q, const float *k, const float *v,
        const fa_turn &turn, const fa_target &k_to, const fa_target &v_to,
        const fa_rope_args &rope) {
    int lane = ptx_lane(), half = rope.dims / 2, count = 16 + (k_to.cache ? 2 : 0);
    for (int head = (int)(threadIdx.x / 32); head < count; head += FA_WARPS) {
        const float *from = head < 16 ? q + head * FA_HD : head == 16 ? k : v;
        fa_target to = {(fa_half *)fa_shared + head * FA_STRIDE, (fa_half *)0};
        to = head < 16 ? to : head == 16 ? k_to : v_to;
        bool there = head >= 16 || head < task.heads;
#pragma unroll
        for (int j = 0; j < fa_turn::each; j++) {
            int i = lane + 32 * j;
            if (FA_HD % 64 != 0 && i >= FA_HD / 2) {
                continue;
            }
            // Pairs behind the turned ones are neighbours.
            bool turned = i < half && head != 17;
            int a = i < half && !rope.pairs ? i : 2 * i;
            int b = i < half && !rope.pairs ? i + half : 2 * i + 1;
            float x = there ? from[a] : 0.0f;
            float y = there ? from[b] : 0.0f;
            fa_put_half(to, a, turned ? x * turn.cosine[j] - y * turn.sine[j] : x);
            fa_put_half(to, b, turned ? x * turn.sine[j] + y * turn.cosine[j] : y);
        }
    }
}

// q (1, H*HD), k, v (1, HKV*HD); freqs (dims / 2); k_cache, v_cache (T, HKV*HD); the others as
// splitkv's.
extern "C" __global__ void __launch_bounds__(FA_THREADS, MIN_BLOCKS) rope_splitkv(const float *q,
        const float *k, const float *v, const float *__restrict__ freqs, fa_half *k_cache,
        fa_half *v_cache, const int *__restrict__ positions, float *parts, float *part_rows,
        unsigned *counters, fa_out_type *out, const int *__restrict__ n_tokens,
        const int *__restrict__ kv_len, const fa_args args, const fa_rope_args rope) {
    // Counts, positions and the keys of the rows before are there when a step begins; its launches
    // bring Q and the row's own K and V alone.
    ptx_dependents_may_start();
    fa_task task;
    if (!fa_take_task(task, positions, n_tokens, kv_len, args)) {
        if (blockIdx.x == 0) { // whoever waits for this launch waits for those before it, too
            ptx_wait_for_dependency();
        }
        return;
    }
    // The row's own K and V go to the cache by the block that has the last keys; where they are
    // among the keys that it sends for first, it puts them there, too, and sends for the others.
    // Keys that it reads later it finds in the cache: the block has met by then.
    int position = positions[0], column = task.kv_head * FA_HD;
    bool own = position >= 0 && position < rope.positions && task.split == task.cut.parts - 1;
    int at = position - fa_first_key(task);
    bool staged = own && task.range.last == position && at >= 0 && at < FA_TKV;
    fa_half *k_staged = (fa_half *)(fa_shared + FA_Q_BYTES) + at * FA_STRIDE;
    fa_target k_to = {}, v_to = {};
    if (own) {
        k_to.cache = k_cache + position * args.k_stride + column;
        v_to.cache = v_cache + position * args.v_stride + column;
    }
    if (staged) {
        k_to.staged = k_staged;
        v_to.staged = k_staged + FA_TKV * FA_STRIDE;
    }
    fa_part part = fa_begin_part(task, k_cache, v_cache, staged ? position : -1, args);
    fa_turn turn;
    fa_begin_turn(turn, freqs, (float)position, rope);
    ptx_wait_for_dependency();
    fa_turn_heads(task, q + task.head * FA_HD, k + column, v + column, turn, k_to, v_to, rope);
    fa_decode(task, part, k_cache, v_cache, parts, part_rows, counters, out, args);
}
