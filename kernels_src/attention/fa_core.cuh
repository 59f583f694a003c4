// fa_core: attention in tiles on the tensor cores, from which fap2, fap2db and splitkv are made:
// staging, scores, online softmax on the fragments, weights times values. What is warp-local is
// here; barriers and the order of copies, in which the variants differ, are in the kernels. fap1,
// whose scores go through shared memory, uses the staging alone.
//
// OUT = softmax(scale * Q K^T) V, a row at a time in meaning. A warp owns FA_MT times 16 rows.
// Scores S (16 x keys) stand in accumulator fragments: a lane holds columns 2t, 2t+1 of rows g and
// g+8 in every group of 8 keys, so the 4 lanes of one g hold a row between them and its maximum
// takes two shuffles. Weights P = 2^(S - max) are packed into the A operand of P V where they
// stand. They carry a factor of 2^FA_WEIGHT_LOG2, that of their sum too, which cancels: it keeps
// small weights out of the subnormal halves.
//
// Sums. A row's keys are taken in tiles of FA_TKV from a multiple of FA_TKV on, so a row's bits
// depend on its keys, FA_TKV and the head size alone: not on the rows beside it, the grid or the
// bounds. A tile of which a row sees nothing leaves it as it was. Fused multiply-adds are written
// out, so that no kernel rounds differently.
//
// Defines: FA_HD head size; FA_TKV keys a tile; FA_KPAD halves behind each staged row (8: rows of
// ldmatrix fall into different banks); FA_MT; FA_QREG 1: Q's fragments stay in registers, 0: read
// again for each tile; FA_WINDOW, FA_SOFTCAP 1 where the op has one; FA_Q_F16, FA_OUT_F16 1: f16,
// 0: f32.
#ifndef KILN_ATTENTION_FA_CORE_CUH
#define KILN_ATTENTION_FA_CORE_CUH

#include "attention/fa_args.cuh"
#include "common/ptx.cuh"

#if !defined(FA_HD) || !defined(FA_TKV) || !defined(FA_KPAD) || !defined(FA_MT) || !defined(FA_QREG)
#    error "define FA_HD, FA_TKV, FA_KPAD, FA_MT and FA_QREG"
#endif
#if !defined(FA_WINDOW) || !defined(FA_SOFTCAP) || !defined(FA_Q_F16) || !defined(FA_OUT_F16)
#    error "define FA_WINDOW, FA_SOFTCAP, FA_Q_F16 and FA_OUT_F16 as 0 or 1"
#endif
#if !defined(KILN_SMEM)
#    error "define KILN_SMEM: the shared memory that the launcher asks for, in bytes"
#endif

static_assert(FA_HD % 16 == 0 && FA_HD >= 16 && FA_HD <= 256, "FA_HD: a multiple of 16 up to 256");
static_assert(FA_TKV % 16 == 0 && FA_TKV >= 16, "FA_TKV: a multiple of 16");
static_assert(FA_KPAD % 8 == 0 && FA_KPAD >= 0, "FA_KPAD: whole 16-byte steps keep rows aligned");

#define FA_STRIDE      (FA_HD + FA_KPAD) // halves from one staged row to the next
#define FA_K_STEPS     (FA_HD / 16)      // mma steps along the head
#define FA_WEIGHT_LOG2 14.0f             // the largest weight is 2^14; a half holds up to 65504

#if FA_Q_F16
typedef unsigned short fa_q_type;
#else
typedef float fa_q_type;
#endif
#if FA_OUT_F16
typedef unsigned short fa_out_type;
#else
typedef float fa_out_type;
#endif
typedef unsigned short fa_half; // the bits of an f16

// ---- What a row sees ----------------------------------------------------------------------------
struct fa_range { // keys first .. last, both ends in; none where first > last
    int first, last;
};

// Rows in use: what the device says, within 0 .. bound.
PTX_INLINE int fa_in_use(const int *value, int bound) {
    return value ? max(0, min(*value, bound)) : bound;
}

PTX_INLINE fa_range fa_row_range(
        const int *positions, int row, int rows, int keys, const fa_args &args) {
    fa_range range = {0x7fffffff, -1};
    if (row < rows) {
        int position = positions[row];
        range.last = min(position, keys - 1);
        range.first = FA_WINDOW ? max(0, position - args.window + 1) : 0;
    }
    return range;
}

// The keys that any of rows first_row .. first_row + Count - 1 sees; the whole warp asks together.
template <int Count>
PTX_INLINE fa_range fa_rows_range(
        const int *positions, int first_row, int rows, int keys, const fa_args &args) {
    fa_range all = {0x7fffffff, -1};
#pragma unroll 1
    for (int i = ptx_lane(); i < Count; i += 32) {
        fa_range one = fa_row_range(positions, first_row + i, rows, keys, args);
        all.first = min(all.first, one.first);
        all.last = max(all.last, one.last);
    }
    all.first = ptx_warp_min_int(all.first);
    all.last = ptx_warp_max_int(all.last);
    return all;
}

// ---- Staging: rows of Halves each, Stride halves apart ------------------------------------------
// Rows first .. first + Rows - 1 of one head of a cache; those at end and behind are zeros: what
// lies there is not read, for a NaN times a weight of 0 would be one. Row `but` is left alone.
template <int Rows, int Threads>
PTX_INLINE void fa_stage_cache(unsigned to, const fa_half *from, int head_column, long long stride,
        int first, int end, int thread, int but = -1) {
    constexpr int chunks = FA_HD / 8;
#pragma unroll
    for (int i = 0; i < (Rows * chunks + Threads - 1) / Threads; i++) {
        int chunk = i * Threads + thread;
        int row = chunk / chunks, column = chunk % chunks * 8;
        bool valid = first + row < end;
        if ((Rows * chunks % Threads == 0 || chunk < Rows * chunks) && first + row != but) {
            const fa_half *at = from + (valid ? (first + row) * stride + head_column + column : 0);
            ptx_cp_async_16(to + (unsigned)(row * FA_STRIDE + column) * 2, at, valid);
        }
    }
}

PTX_INLINE uint4 fa_load_q(const fa_q_type *at) {
#if FA_Q_F16
    return *(const uint4 *)at;
#else
    float4 low = ((const float4 *)at)[0], high = ((const float4 *)at)[1];
    return make_uint4(ptx_pack_half2(low.x, low.y), ptx_pack_half2(low.z, low.w),
            ptx_pack_half2(high.x, high.y), ptx_pack_half2(high.z, high.w));
#endif
}

// ---- A warp's rows ------------------------------------------------------------------------------
struct fa_state {
    float out[FA_MT][FA_HD / 8][4]; // sums of weight * value
    float max[FA_MT][2];            // of rows g and g + 8, in units of the score
    float sum[FA_MT][2];            // of this lane's columns only, until fa_finish
    fa_range range[FA_MT][2];
#if FA_QREG
    unsigned q[FA_MT][FA_K_STEPS][4];
#endif
};

PTX_INLINE void fa_begin(fa_state &state) {
#pragma unroll
    for (int m = 0; m < FA_MT; m++) {
#pragma unroll
        for (int i = 0; i < FA_HD / 8; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                state.out[m][i][e] = 0;
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            state.max[m][h] = PTX_NEG_INFINITY;
            state.sum[m][h] = 0;
        }
    }
}

// Does any row of the warp see one of keys first .. first + Keys - 1? Asked of the lanes each time:
// kept, the answer for a warp would take the registers that a fourth block needs.
template <int Keys> PTX_INLINE bool fa_sees(const fa_state &state, int first) {
    bool sees = false;
#pragma unroll
    for (int m = 0; m < FA_MT; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const fa_range &range = state.range[m][h];
            sees = sees || (first <= range.last && (!FA_WINDOW || first + Keys > range.first));
        }
    }
    return __any_sync(0xffffffffu, sees) != 0;
}

// Does every row of the warp see all of them?
template <int Keys> PTX_INLINE bool fa_sees_all(const fa_state &state, int first) {
    bool sees = true;
#pragma unroll
    for (int m = 0; m < FA_MT; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const fa_range &range = state.range[m][h];
            sees = sees && first + Keys - 1 <= range.last && (!FA_WINDOW || first >= range.first);
        }
    }
    return __all_sync(0xffffffffu, sees) != 0;
}

// Address of this lane's row of the four matrices that make 16 rows x 16 columns, as A of a product
// or, transposed, as B: row l % 16, column l / 16 * 8.
PTX_INLINE unsigned fa_lane_rows(unsigned base) {
    int lane = ptx_lane();
    return base + (unsigned)((lane & 15) * FA_STRIDE + (lane >> 4) * 8) * 2;
}

// The same for B straight: 8 rows x 16 columns, then the next 8 rows.
PTX_INLINE unsigned fa_lane_columns(unsigned base) {
    int lane = ptx_lane();
    int row = (lane & 7) + (lane >> 4) * 8;
    return base + (unsigned)(row * FA_STRIDE + (lane >> 3 & 1) * 8) * 2;
}

// q: the first of this warp's staged rows.
PTX_INLINE void fa_take_q(fa_state &state, unsigned q) {
#if FA_QREG
    unsigned at = fa_lane_rows(q);
#    pragma unroll
    for (int m = 0; m < FA_MT; m++) {
#    pragma unroll
        for (int k = 0; k < FA_K_STEPS; k++) {
            ptx_ldmatrix_x4(state.q[m][k], at + (unsigned)(m * 16 * FA_STRIDE + k * 16) * 2);
        }
    }
#else
    (void)state;
    (void)q;
#endif
}

// S = Q K^T. k: Keys staged rows; s[m][n]: keys 8n .. 8n + 7.
template <int Keys>
PTX_INLINE void fa_scores(
        const fa_state &state, unsigned q, unsigned k, float (&s)[FA_MT][Keys / 8][4]) {
    unsigned q_at = fa_lane_rows(q), k_at = fa_lane_columns(k);
#pragma unroll
    for (int m = 0; m < FA_MT; m++) {
#pragma unroll
        for (int n = 0; n < Keys / 8; n++) {
            s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
        }
    }
#pragma unroll
    for (int step = 0; step < FA_K_STEPS; step++) {
        unsigned a[FA_MT][4];
#pragma unroll
        for (int m = 0; m < FA_MT; m++) {
#if FA_QREG
            a[m][0] = state.q[m][step][0];
            a[m][1] = state.q[m][step][1];
            a[m][2] = state.q[m][step][2];
            a[m][3] = state.q[m][step][3];
            (void)q_at;
#else
            (void)state;
            ptx_ldmatrix_x4(a[m], q_at + (unsigned)(m * 16 * FA_STRIDE + step * 16) * 2);
#endif
        }
#pragma unroll
        for (int n = 0; n < Keys / 16; n++) {
            unsigned b[4];
            ptx_ldmatrix_x4(b, k_at + (unsigned)(n * 16 * FA_STRIDE + step * 16) * 2);
#pragma unroll
            for (int m = 0; m < FA_MT; m++) {
                ptx_mma_f16(s[m][2 * n], a[m], b[0], b[1]);
                ptx_mma_f16(s[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

#if FA_SOFTCAP
// tanh(x) from the score that cap_in turns into log2 of e^2x: 1 - 2 / (1 + e^2x). The op's cap is
// in to_log2.
PTX_INLINE float fa_cap(float score, float cap_in) {
    return fmaf(-2.0f, ptx_rcp(1.0f + ptx_exp2(score * cap_in)), 1.0f);
}
#endif

// Caps the scores and sets those of keys that a row does not see to minus infinity. first: the
// tile's first key.
template <int Keys>
PTX_INLINE void fa_mask(
        const fa_state &state, int first, const fa_args &args, float (&s)[FA_MT][Keys / 8][4]) {
#if FA_SOFTCAP
#    pragma unroll
    for (int m = 0; m < FA_MT; m++) {
#    pragma unroll
        for (int n = 0; n < Keys / 8; n++) {
#    pragma unroll
            for (int e = 0; e < 4; e++) {
                s[m][n][e] = fa_cap(s[m][n][e], args.cap_in);
            }
        }
    }
#else
    (void)args;
#endif
    if (fa_sees_all<Keys>(state, first)) {
        return;
    }
    int column = first + (ptx_lane() & 3) * 2;
#pragma unroll
    for (int m = 0; m < FA_MT; m++) {
#pragma unroll
        for (int n = 0; n < Keys / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int key = column + n * 8 + (e & 1);
                const fa_range &range = state.range[m][e >> 1];
                bool seen = key <= range.last && (!FA_WINDOW || key >= range.first);
                s[m][n][e] = seen ? s[m][n][e] : PTX_NEG_INFINITY;
            }
        }
    }
}

// Scores to weights, in place; brings the sums so far to the new maximum. When no row's maximum
// moved, every factor is exactly 1 and the warp leaves its sums alone.
template <int Keys>
PTX_INLINE void fa_softmax(fa_state &state, float to_log2, float (&s)[FA_MT][Keys / 8][4]) {
    float factor[FA_MT][2];
    bool moved = false;
#pragma unroll
    for (int m = 0; m < FA_MT; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = state.max[m][h];
#pragma unroll
            for (int n = 0; n < Keys / 8; n++) {
                top = fmaxf(top, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            }
            top = ptx_xor_max(ptx_xor_max(top, 1), 2);
            // A row that has seen no key yet has no maximum to subtract.
            float shift = top == PTX_NEG_INFINITY ? 0.0f : top;
            factor[m][h] = ptx_exp2((state.max[m][h] - shift) * to_log2);
            state.max[m][h] = top;
            moved = moved || factor[m][h] != 1.0f;
            float offset = fmaf(-shift, to_log2, FA_WEIGHT_LOG2);
            float sum = 0;
#pragma unroll
            for (int n = 0; n < Keys / 8; n++) {
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) {
                    s[m][n][e] = ptx_exp2(fmaf(s[m][n][e], to_log2, offset));
                    sum += s[m][n][e];
                }
            }
            state.sum[m][h] = fmaf(state.sum[m][h], factor[m][h], sum);
        }
    }
    if (__any_sync(0xffffffffu, moved)) {
#pragma unroll
        for (int m = 0; m < FA_MT; m++) {
#pragma unroll
            for (int i = 0; i < FA_HD / 8; i++) {
                state.out[m][i][0] *= factor[m][0];
                state.out[m][i][1] *= factor[m][0];
                state.out[m][i][2] *= factor[m][1];
                state.out[m][i][3] *= factor[m][1];
            }
        }
    }
}

// out += P V. v: Keys staged rows.
template <int Keys>
PTX_INLINE void fa_values(fa_state &state, unsigned v, const float (&p)[FA_MT][Keys / 8][4]) {
    unsigned v_at = fa_lane_rows(v);
#pragma unroll
    for (int k = 0; k < Keys / 16; k++) {
        unsigned a[FA_MT][4];
#pragma unroll
        for (int m = 0; m < FA_MT; m++) {
            a[m][0] = ptx_pack_half2(p[m][2 * k][0], p[m][2 * k][1]);
            a[m][1] = ptx_pack_half2(p[m][2 * k][2], p[m][2 * k][3]);
            a[m][2] = ptx_pack_half2(p[m][2 * k + 1][0], p[m][2 * k + 1][1]);
            a[m][3] = ptx_pack_half2(p[m][2 * k + 1][2], p[m][2 * k + 1][3]);
        }
#pragma unroll
        for (int i = 0; i < FA_HD / 16; i++) {
            unsigned b[4];
            ptx_ldmatrix_x4_trans(b, v_at + (unsigned)(k * 16 * FA_STRIDE + i * 16) * 2);
#pragma unroll
            for (int m = 0; m < FA_MT; m++) {
                ptx_mma_f16(state.out[m][2 * i], a[m], b[0], b[1]);
                ptx_mma_f16(state.out[m][2 * i + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// Adds up the sums of a row's 4 lanes.
PTX_INLINE void fa_join_sums(fa_state &state) {
#pragma unroll
    for (int m = 0; m < FA_MT; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            state.sum[m][h] = ptx_xor_sum(ptx_xor_sum(state.sum[m][h], 1), 2);
        }
    }
}

// Divides by the sums of weights. A row that saw no key is zero.
PTX_INLINE void fa_finish(fa_state &state) {
    fa_join_sums(state);
#pragma unroll
    for (int m = 0; m < FA_MT; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float inverse = state.sum[m][h] > 0 ? 1.0f / state.sum[m][h] : 0.0f;
#pragma unroll
            for (int i = 0; i < FA_HD / 8; i++) {
                state.out[m][i][2 * h] *= inverse;
                state.out[m][i][2 * h + 1] *= inverse;
            }
        }
    }
}

// Two neighbouring columns of OUT.
PTX_INLINE void fa_write_pair(fa_out_type *at, float low, float high) {
#if FA_OUT_F16
    *(unsigned *)at = ptx_pack_half2(low, high);
#else
    *(float2 *)at = make_float2(low, high);
#endif
}

#endif
