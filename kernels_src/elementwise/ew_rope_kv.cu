// ew_rope_kv: Q turned to OUT, K turned into the cache, V copied into the cache; Q and K normed
// before, where the model has norms. A warp takes heads of one token: those of Q, then K's, then
// V's; several where there are rows enough to fill the device, or one.
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

PTX_INLINE const float *head_of(const float *base, long long row, long long stride, int column) {
    return (const float *)((const char *)base + row * stride) + column;
}

PTX_INLINE target head_at(void *base, bool f16, long long row, long long stride, int column) {
    target to = {(char *)base + row * stride + (long long)column * (f16 ? 2 : 4), f16};
    return to;
}

// One head before and after: norm and factor are of its norm, where it has one.
struct turned {
    const float *from;
    target to;
    const float *norm;
    float factor;
};

PTX_INLINE float normed(const turned &head, int column) {
    float value = head.from[column];
    return head.norm ? value * head.factor * head.norm[column] : value;
}

PTX_INLINE void turn(const turned &head, int a, int b, float sine, float cosine) {
    float x = normed(head, a);
    float y = normed(head, b);
    put(head.to, a, x * cosine - y * sine);
    put(head.to, b, x * sine + y * cosine);
}

// q, out (S, H*HD); k, v (S, HKV*HD); q_norm, k_norm (HD) or NULL; freqs (rope_dims / 2); positions
// (S); k_cache, v_cache (T, HKV*HD); n_tokens (1) or NULL. Grid: x rows, y pieces of THREADS / 32
// warps; a row's warps share its heads. With norms there is a warp for each head.
extern "C" __global__ void __launch_bounds__(THREADS) ew_rope_kv(const float *q, const float *k,
        const float *v, const float *__restrict__ q_norm, const float *__restrict__ k_norm,
        const float *__restrict__ freqs, const int *__restrict__ positions, void *out,
        void *__restrict__ k_cache, void *__restrict__ v_cache, const int *__restrict__ n_tokens,
        const ew_rope_args args) {
    ptx_dependents_may_start();
    ptx_wait_for_dependency();
    long long row = blockIdx.x;
    if (n_tokens && row >= *n_tokens) {
        return;
    }
    int first = (int)(blockIdx.y * (THREADS / 32) + threadIdx.x / 32);
    int warps = (int)gridDim.y * (THREADS / 32);
    int position = positions[row];
    bool cached = position >= 0 && position < args.positions;
    int with_angles = args.heads + (cached ? args.kv_heads : 0);
    auto head_of_row = [&](int head) {
        bool of_q = head < args.heads;
        int column = (of_q ? head : head - args.heads) * args.head_size;
        turned t = {of_q ? head_of(q, row, args.q_stride, column)
                         : head_of(k, row, args.k_stride, column),
                of_q ? head_at(out, args.out_f16 != 0, row, args.out_stride, column)
                     : head_at(k_cache, args.k_f16 != 0, position, args.k_cache_stride, column),
                of_q ? q_norm : k_norm, 1.0f};
        return t;
    };
    float factor = 1.0f;
    if ((q_norm || k_norm) && first < with_angles) {
        turned t = head_of_row(first);
        factor = t.norm ? norm_factor(t.from, args) : 1.0f;
    }
    int half = args.rope_dims / 2;
    // Columns outside, heads inside: an angle's sine and cosine serve all the heads of the warp.
#pragma unroll 1
    for (int i = ptx_lane(); i < half && first < with_angles; i += 32) {
        float sine;
        float cosine;
        sincosf((float)position * freqs[i], &sine, &cosine);
        sine *= args.scale;
        cosine *= args.scale;
#pragma unroll 4
        for (int head = first; head < with_angles; head += warps) {
            turned t = head_of_row(head);
            t.factor = factor;
            turn(t, args.pairs ? 2 * i : i, args.pairs ? 2 * i + 1 : i + half, sine, cosine);
        }
    }
#pragma unroll 1
    for (int c = args.rope_dims + ptx_lane(); c < args.head_size; c += 32) {
        for (int head = first; head < with_angles; head += warps) {
            turned t = head_of_row(head);
            t.factor = factor;
            put(t.to, c, normed(t, c));
        }
    }
    int before_v = args.heads + args.kv_heads;
    int head = first >= before_v ? first : first + (before_v - first + warps - 1) / warps * warps;
#pragma unroll 1
    for (; cached && head < before_v + args.kv_heads; head += warps) {
        int column = (head - before_v) * args.head_size;
        const float *from = head_of(v, row, args.v_stride, column);
        target to = head_at(v_cache, args.v_f16 != 0, position, args.v_cache_stride, column);
        for (int c = ptx_lane(); c < args.head_size; c += 32) {
            put(to, c, from[c]);
        }
    }
}
