// naive: attention without tensor cores, for prefill and decode: a warp a query row of one head,
// all in f32. Any head size up to 256, caches of f16 or f32: what the fast variants are measured
// against, and what runs where they cannot.
//
// Lanes divide the head: lane l has columns l, l + 32, .... Keys are taken NV_KEYS at a time: their
// scores (a sum over the warp each), the new maximum, then weights times values. Grid (ceil(rows /
// NV_ROWS), heads), NV_ROWS warps a block. Defines: FA_HD; NV_ROWS; NV_KEYS; FA_WINDOW, FA_SOFTCAP,
// FA_Q_F16, FA_OUT_F16, NV_KV_F32 as 0 or 1. No shared memory.
#include "attention/fa_args.cuh"
#include "common/ptx.cuh"

#if !defined(FA_HD) || !defined(NV_ROWS) || !defined(NV_KEYS)
#    error "define FA_HD, NV_ROWS and NV_KEYS"
#endif
#if !defined(FA_WINDOW) || !defined(FA_SOFTCAP) || !defined(FA_Q_F16) || !defined(FA_OUT_F16) || \
        !defined(NV_KV_F32)
#    error "define FA_WINDOW, FA_SOFTCAP, FA_Q_F16, FA_OUT_F16 and NV_KV_F32 as 0 or 1"
#endif
static_assert(FA_HD >= 1 && FA_HD <= 256, "FA_HD: 1 to 256");
static_assert(NV_ROWS >= 1 && NV_ROWS <= 32, "NV_ROWS: 1 to 32 warps a block");

#define NV_COLUMNS ((FA_HD + 31) / 32) // a lane

template <bool F16> struct naive_type;
template <> struct naive_type<true> { typedef unsigned short type; };
template <> struct naive_type<false> { typedef float type; };

PTX_INLINE float naive_read(const float *at) {
    return *at;
}

PTX_INLINE float naive_read(const unsigned short *at) {
    return ptx_half_to_float(*at);
}

PTX_INLINE void naive_write(float *at, float value) {
    *at = value;
}

PTX_INLINE void naive_write(unsigned short *at, float value) {
    *at = ptx_float_to_half(value);
}

// This lane's columns of a row; those behind FA_HD are 0.
template <class Type> PTX_INLINE void naive_load(float (&to)[NV_COLUMNS], const Type *row) {
#pragma unroll
    for (int i = 0; i < NV_COLUMNS; i++) {
        int column = i * 32 + ptx_lane();
        to[i] = column < FA_HD ? naive_read(row + column) : 0.0f;
    }
}

// q, out (S, H*HD); k, v (T, HKV*HD); positions (S); n_tokens, kv_len (1) or NULL.
extern "C" __global__ void __launch_bounds__(NV_ROWS * 32, 1) naive(
        const naive_type<FA_Q_F16>::type *__restrict__ q,
        const naive_type<!NV_KV_F32>::type *__restrict__ k,
        const naive_type<!NV_KV_F32>::type *__restrict__ v, const int *__restrict__ positions,
        naive_type<FA_OUT_F16>::type *__restrict__ out, const int *__restrict__ n_tokens,
        const int *__restrict__ kv_len, const fa_args args) {
    int rows = n_tokens ? max(0, min(*n_tokens, args.rows)) : args.rows;
    int keys = kv_len ? max(0, min(*kv_len, args.keys)) : args.keys;
    int row = (int)(blockIdx.x * NV_ROWS + threadIdx.x / 32), head = (int)blockIdx.y;
    if (row >= rows) {
        return;
    }
    int last = min(positions[row], keys - 1);
    int first = FA_WINDOW ? max(0, positions[row] - args.window + 1) : 0;
    long long kv_column = head / (args.heads / args.kv_heads) * FA_HD;
    float query[NV_COLUMNS], sums[NV_COLUMNS] = {};
    float largest = PTX_NEG_INFINITY, total = 0;
    naive_load(query, q + row * args.q_stride + head * FA_HD);

    for (int key = first; key <= last; key += NV_KEYS) {
        float score[NV_KEYS], top = largest;
#pragma unroll
        for (int i = 0; i < NV_KEYS; i++) {
            float values[NV_COLUMNS], dot = 0;
            int at = min(key + i, last);
            naive_load(values, k + at * args.k_stride + kv_column);
#pragma unroll
            for (int c = 0; c < NV_COLUMNS; c++) {
                dot = fmaf(query[c], values[c], dot);
            }
            score[i] = ptx_warp_sum(dot);
#if FA_SOFTCAP // tanh: see fa_args.cuh
            score[i] = 1.0f - 2.0f / (1.0f + ptx_exp2(score[i] * args.cap_in));
#endif
            score[i] = key + i <= last ? score[i] : PTX_NEG_INFINITY;
            top = fmaxf(top, score[i]);
        }
        float factor = ptx_exp2((largest - top) * args.to_log2); // 0 at first: 2^-infinity
        largest = top;
        total *= factor;
#pragma unroll
        for (int c = 0; c < NV_COLUMNS; c++) {
            sums[c] *= factor;
        }
#pragma unroll
        for (int i = 0; i < NV_KEYS; i++) {
            float values[NV_COLUMNS];
            float weight = ptx_exp2((score[i] - top) * args.to_log2); // behind last: 0
            naive_load(values, v + min(key + i, last) * args.v_stride + kv_column);
            total += weight;
#pragma unroll
            for (int c = 0; c < NV_COLUMNS; c++) {
                sums[c] = fmaf(weight, values[c], sums[c]);
            }
        }
    }
    float inverse = total > 0 ? 1.0f / total : 0.0f;
#pragma unroll
    for (int c = 0; c < NV_COLUMNS; c++) {
        if (c * 32 + ptx_lane() < FA_HD) {
            naive_write(out + row * args.out_stride + head * FA_HD + c * 32 + ptx_lane(),
                    sums[c] * inverse);
        }
    }
}
