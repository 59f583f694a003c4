// ew_norm: OUT = RESIDUAL + IN / sqrt(mean(IN^2) + eps) * WEIGHT. One block a row, which is read
// twice: the second time from the cache nearby.
//
// Sums: a thread's columns in order, then lanes by halving, then warps in order: it depends on the
// block's threads.
//
// OUT_Q8 1: OUT leaves as blocks of 8-bit integers (common/q8.cuh), without a way through memory
// as f32.
//
// Shared memory: static, one f32 a warp. Defines: THREADS, most threads a block; a launch may have
// fewer, whole warps. OUT_Q8.
#include "common/q8.cuh"
#include "elementwise/ew_args.cuh"

#if !defined(THREADS) || !defined(OUT_Q8)
#    error "define THREADS, most threads a block, and OUT_Q8"
#endif
static_assert(THREADS % 32 == 0 && THREADS >= 32 && THREADS <= 1024, "THREADS: whole warps");

// What f16 cannot hold becomes its largest; no row of a norm comes near it with weights below 500.
PTX_INLINE float into_f16(float v) {
    return v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v;
}

PTX_INLINE void put_one(void *to, int c, float v, const ew_args &args) {
    if (args.out_f16) {
        ((unsigned short *)to)[c] = ptx_float_to_half(into_f16(v));
    } else {
        ((float *)to)[c] = v;
    }
}

PTX_INLINE void put_four(void *to, int c, float4 v, const ew_args &args) {
#if OUT_Q8
    q8_put((unsigned char *)to, args.columns, c, v);
#else
    if (args.out_f16) {
        *(uint2 *)((unsigned short *)to + c) =
                make_uint2(ptx_pack_half2(into_f16(v.x), into_f16(v.y)),
                        ptx_pack_half2(into_f16(v.z), into_f16(v.w)));
    } else {
        *(float4 *)((float *)to + c) = v;
    }
#endif
}

// in, residual, out (S, D); weight (D); residual, n_tokens NULL where absent. out, f32 or f16, may
// be in or residual. With OUT_Q8 args.wide is 1 and D a multiple of 32, so that the 8 lanes of a
// block go through the loop together.
extern "C" __global__ void __launch_bounds__(THREADS)
        ew_norm(const float *in, const float *__restrict__ weight, const float *residual, void *out,
                const int *__restrict__ n_tokens, const ew_args args) {
    __shared__ float of_warp[THREADS / 32];
    ptx_dependents_may_start();
    ptx_wait_for_dependency();
    long long at = blockIdx.x;
    if (n_tokens && at >= *n_tokens) {
        return;
    }
    const float *x = (const float *)((const char *)in + at * args.in_stride);
    const float *r = (const float *)((const char *)residual + at * args.other_stride);
    void *to = (char *)out + at * args.out_stride;
    int tid = (int)threadIdx.x;
    int threads = (int)blockDim.x;
    float sum = 0;
    if (args.wide) {
        for (int c = 4 * tid; c < args.columns; c += 4 * threads) {
            float4 v = *(const float4 *)(x + c);
            sum += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
        }
    } else {
        for (int c = tid; c < args.columns; c += threads) {
            sum += x[c] * x[c];
        }
    }
    sum = ptx_warp_sum(sum);
    if (tid % 32 == 0) {
        of_warp[tid / 32] = sum;
    }
    __syncthreads();
    sum = 0;
    for (int i = 0; i < threads / 32; i++) {
        sum += of_warp[i];
    }
    float factor = 1.0f / sqrtf(sum / (float)args.columns + args.eps);
    if (!args.wide) {
        for (int c = tid; c < args.columns; c += threads) {
            float v = x[c] * factor * weight[c];
            put_one(to, c, residual ? r[c] + v : v, args);
        }
        return;
    }
    for (int c = 4 * tid; c < args.columns; c += 4 * threads) {
        float4 v = *(const float4 *)(x + c);
        float4 w = *(const float4 *)(weight + c);
        float4 add = residual ? *(const float4 *)(r + c) : make_float4(0, 0, 0, 0);
        v = make_float4(add.x + v.x * factor * w.x, add.y + v.y * factor * w.y,
                add.z + v.z * factor * w.z, add.w + v.w * factor * w.w);
        put_four(to, c, v, args);
    }
}
