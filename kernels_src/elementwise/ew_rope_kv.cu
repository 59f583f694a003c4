// ew_rope_kv: Q turned to OUT, K turned into the cache, V copied into the cache; Q and K normed
// before, where the model has norms. A warp takes one head of one token: the heads of Q, then K's,
// then V's.
//
// The angle is position * frequency rounded to f32, as engines commonly compute it; its cosine and
// sine are accurate for any angle. A pair is read and written by one lane, so OUT may be Q. A row
// whose position is not in the cache leaves the caches alone.
//
// Sums (norm): a lane's columns in order, then lanes by halving.
//
// Shared memory: none. Defines: THREADS a block.
#include "common/ptx.cuh"
#include "elementwise/ew_args.cuh"

#ifndef THREADS
#    error "define THREADS: threads a block"
#endif
static_assert(THREADS % 32 == 0 && THREADS >= 32 && THREADS <= 1024, "THREADS: whole warps");

// Where a head goes: f32 or f16.
struct target {
    void *at;
    bool f16;
};

PTX_INLINE void put(const target &to, int column, float value) {
    if (to.f16) {
        ((unsigned short *)to.at)[column] = ptx_float_to_half(value);
    } else {
        ((float *)to.at)[column] = value;
    }
}

// What a head's values are multiplied by before its norm's weights.
PTX_INLINE float norm_factor(const float *head, const ew_rope_args &args) {
    float sum = 0;
#pragma unroll 1
    for (int c = ptx_lane(); c < args.head_size; c += 32) {
        sum += head[c] * head[c];
    }
    sum = ptx_warp_sum(sum);
    return 1.0f / sqrtf(sum / (float)args.head_size + args.eps);
}

// One head of HD values.
PTX_INLINE void turn(const float *head, const float *norm, const float *freqs, float position,
        const target &to, const ew_rope_args &args) {
    float factor = norm ? norm_factor(head, args) : 1.0f;
    int half = args.rope_dims / 2;
#pragma unroll 1
    for (int i = ptx_lane(); i < half; i += 32) {
        int a = args.pairs ? 2 * i : i;
        int b = args.pairs ? 2 * i + 1 : i + half;
        float x = head[a];
        float y = head[b];
        if (norm) {
            x = x * factor * norm[a];
            y = y * factor * norm[b];
        }
        float sine;
        float cosine;
        sincosf(position * freqs[i], &sine, &cosine);
        sine *= args.scale;
        cosine *= args.scale;
        put(to, a, x * cosine - y * sine);
        put(to, b, x * sine + y * cosine);
    }
#pragma unroll 1
    for (int c = args.rope_dims + ptx_lane(); c < args.head_size; c += 32) {
        put(to, c, norm ? head[c] * factor * norm[c] : head[c]);
    }
}

PTX_INLINE const float *head_of(const float *base, long long row, long long stride, int column) {
    return (const float *)((const char *)base + row * stride) + column;
}

PTX_INLINE target head_at(void *base, bool f16, long long row, long long stride, int column) {
    target to = {(char *)base + row * stride + (long long)column * (f16 ? 2 : 4), f16};
    return to;
}

// q, out (S, H*HD); k, v (S, HKV*HD); q_norm, k_norm (HD) or NULL; freqs (rope_dims / 2); positions
// (S); k_cache, v_cache (T, HKV*HD); n_tokens (1) or NULL. Grid: x rows, y pieces of THREADS / 32
// heads.
extern "C" __global__ void __launch_bounds__(THREADS) ew_rope_kv(const float *q, const float *k,
        const float *v, const float *__restrict__ q_norm, const float *__restrict__ k_norm,
        const float *__restrict__ freqs, const int *__restrict__ positions, void *out,
        void *__restrict__ k_cache, void *__restrict__ v_cache, const int *__restrict__ n_tokens,
        const ew_rope_args args) {
    ptx_dependents_may_start();
    ptx_wait_for_dependency();
    long long row = blockIdx.x;
    int head = (int)(blockIdx.y * (THREADS / 32) + threadIdx.x / 32);
    if ((n_tokens && row >= *n_tokens) || head >= args.heads + 2 * args.kv_heads) {
        return;
    }
    int position = positions[row];
    bool of_q = head < args.heads;
    if (!of_q && (position < 0 || position >= args.positions)) {
        return;
    }
    int column = (of_q ? head : (head - args.heads) % args.kv_heads) * args.head_size;
    if (head < args.heads + args.kv_heads) { // one call, for sine and cosine are long to compile
        turn(of_q ? head_of(q, row, args.q_stride, column) : head_of(k, row, args.k_stride, column),
                of_q ? q_norm : k_norm, freqs, (float)position,
                of_q ? head_at(out, args.out_f16 != 0, row, args.out_stride, column)
                     : head_at(k_cache, args.k_f16 != 0, position, args.k_cache_stride, column),
                args);
        return;
    }
    const float *from = head_of(v, row, args.v_stride, column);
    target to = head_at(v_cache, args.v_f16 != 0, position, args.v_cache_stride, column);
#pragma unroll 1
    for (int c = ptx_lane(); c < args.head_size; c += 32) {
        put(to, c, from[c]);
    }
}
