// fap1: prefill attention whose scores and weights go through shared memory. 8 warps whatever the
// tile: FA_TQ / 16 row groups times 8 / (FA_TQ / 16) column groups. Made to be measured against
// fap2, which keeps both in registers.
//
// A tile: all fetch K and V | S = Q K^T, f32, to shared memory | a warp a row: maximum, weights P
// as halves over the same bytes, and the row's factor | O = factor * O + P V. Four barriers. A row
// of P lies in the first half of its own row of S, which one warp has read before it writes.
//
// Shared memory: Q FA_TQ rows, K and V FA_TKV rows each, rows FA_HD + FA_KPAD halves apart; S and P
// FA_TQ rows, FA_TKV + FA_SPAD floats apart; maximum, sum and factor of each row. FA_SPAD 8: stores
// of S fall into different banks, loads of P two by two into one; 4: the other way round; 0: both
// collide. Defines: fa_core's but FA_MT and FA_QREG, FA_TQ; FA_SPAD; FA_LEGACY_SMEM 1: the launcher
// asks for K and V as if they had FA_TQ rows each, which this source does not use; MIN_BLOCKS a
// multiprocessor: 2, or registers take back what the shared memory allows.
#define FA_MT    1
#define FA_QREG  0
#define FA_WARPS 8
#include "attention/fa_tile.cuh"

#if !defined(FA_SPAD) || !defined(FA_LEGACY_SMEM) || !defined(MIN_BLOCKS)
#    error "define FA_SPAD, FA_LEGACY_SMEM and MIN_BLOCKS"
#endif

#define FA_ROW_GROUPS    (FA_TQ / 16)
#define FA_COLUMN_GROUPS (FA_WARPS / FA_ROW_GROUPS)
#define FA_KEYS_WARP     (FA_TKV / FA_COLUMN_GROUPS) // columns of S a warp makes
#define FA_COLUMNS_WARP  (FA_HD / FA_COLUMN_GROUPS)  // columns of O a warp makes
#define FA_S_STRIDE      (FA_TKV + FA_SPAD)          // floats, or twice as many halves
#define FA_S_BYTES       (FA_TQ * FA_S_STRIDE * 4)
#define FA_ROW_BYTES     (FA_TQ * 4) // one number a row

static_assert(FA_WARPS % FA_ROW_GROUPS == 0, "FA_TQ: 16, 32, 64 or 128");
static_assert(FA_KEYS_WARP % 8 == 0 && FA_TKV % 32 == 0, "FA_TKV: too few columns for 8 warps");
static_assert(FA_COLUMNS_WARP % 16 == 0, "FA_HD: too few columns for 8 warps");
static_assert(FA_SPAD % 4 == 0, "FA_SPAD: rows of P start at 16 bytes");

#define FA_TOTAL (FA_Q_BYTES + 2 * FA_TILE_BYTES + FA_S_BYTES + 3 * FA_ROW_BYTES)
static_assert(KILN_SMEM >= FA_TOTAL, "KILN_SMEM: the launcher asks for too little");

#define FA_K_AT   FA_Q_BYTES
#define FA_V_AT   (FA_K_AT + FA_TILE_BYTES)
#define FA_S_AT   (FA_V_AT + FA_TILE_BYTES)
#define FA_MAX_AT (FA_S_AT + FA_S_BYTES)

// Q, K, V, S and P, maximum, sum, factor
extern "C" __device__ const unsigned kiln_layout_fap1[] = {FA_TOTAL, 0, FA_Q_BYTES, FA_K_AT,
        FA_TILE_BYTES, FA_V_AT, FA_TILE_BYTES, FA_S_AT, FA_S_BYTES, FA_MAX_AT, FA_ROW_BYTES,
        FA_MAX_AT + FA_ROW_BYTES, FA_ROW_BYTES, FA_MAX_AT + 2 * FA_ROW_BYTES, FA_ROW_BYTES};

// This warp's part of S, to shared memory.
PTX_INLINE void fa_make_scores(unsigned q, unsigned k, float *scores) {
    float s[FA_KEYS_WARP / 8][4] = {};
    unsigned q_at = fa_lane_rows(q), k_at = fa_lane_columns(k);
#pragma unroll
    for (int step = 0; step < FA_K_STEPS; step++) {
        unsigned a[4];
        ptx_ldmatrix_x4(a, q_at + step * 32u);
#pragma unroll
        for (int n = 0; n < FA_KEYS_WARP / 16; n++) {
            unsigned b[4];
            ptx_ldmatrix_x4(b, k_at + (unsigned)(n * 16 * FA_STRIDE + step * 16) * 2);
            ptx_mma_f16(s[2 * n], a, b[0], b[1]);
            ptx_mma_f16(s[2 * n + 1], a, b[2], b[3]);
        }
        if (FA_KEYS_WARP % 16 != 0) { // a last group of 8 keys: lanes 0 to 15 name its rows
            unsigned b[2];
            ptx_ldmatrix_x2(
                    b, k_at + (unsigned)(FA_KEYS_WARP / 16 * 16 * FA_STRIDE + step * 16) * 2);
            ptx_mma_f16(s[FA_KEYS_WARP / 8 - 1], a, b[0], b[1]);
        }
    }
    float *at = scores + ptx_lane() / 4 * FA_S_STRIDE + (ptx_lane() & 3) * 2;
#pragma unroll
    for (int n = 0; n < FA_KEYS_WARP / 8; n++) {
        *(float2 *)(at + n * 8) = make_float2(s[n][0], s[n][1]);
        *(float2 *)(at + 8 * FA_S_STRIDE + n * 8) = make_float2(s[n][2], s[n][3]);
    }
}

// One row of S to a row of P in its place; the whole warp. rows: the row's maximum, then, FA_TQ
// further each, its sum and its factor. first: the tile's first key.
PTX_INLINE void fa_softmax_row(
        float *scores, float *rows, const fa_range &range, int first, const fa_args &args) {
    constexpr int each = FA_TKV / 32; // neighbouring columns a lane
    int column = ptx_lane() * each;
    float s[each], top = PTX_NEG_INFINITY;
#pragma unroll
    for (int i = 0; i < each; i++) {
        int key = first + column + i;
        bool seen = key <= range.last && (!FA_WINDOW || key >= range.first);
        float score = scores[column + i];
#if FA_SOFTCAP
        score = fa_cap(score, args.cap_in);
#endif
        s[i] = seen ? score : PTX_NEG_INFINITY;
        top = fmaxf(top, s[i]);
    }
    float before = rows[0], sum_before = rows[FA_TQ];
    top = fmaxf(before, ptx_warp_max(top));
    float shift = top == PTX_NEG_INFINITY ? 0.0f : top;
    float factor = ptx_exp2((before - shift) * args.to_log2);
    float offset = fmaf(-shift, args.to_log2, FA_WEIGHT_LOG2);
    float sum = 0;
    __syncwarp(); // all lanes have read the row that is written now
    fa_half *weights = (fa_half *)scores;
#pragma unroll
    for (int i = 0; i < each; i++) {
        float weight = ptx_exp2(fmaf(s[i], args.to_log2, offset));
        weights[column + i] = ptx_float_to_half(weight);
        sum += weight;
    }
    sum = ptx_warp_sum(sum);
    if (ptx_lane() == 0) {
        rows[0] = top;
        rows[FA_TQ] = fmaf(sum_before, factor, sum);
        rows[2 * FA_TQ] = factor;
    }
}

// o = factor * o + P V: this warp's rows and columns.
PTX_INLINE void fa_add_values(
        float (&o)[FA_COLUMNS_WARP / 8][4], unsigned p, unsigned v, const float *factors) {
    float low = factors[ptx_lane() / 4], high = factors[ptx_lane() / 4 + 8];
#pragma unroll
    for (int i = 0; i < FA_COLUMNS_WARP / 8; i++) {
        o[i][0] *= low;
        o[i][1] *= low;
        o[i][2] *= high;
        o[i][3] *= high;
    }
    int lane = ptx_lane();
    unsigned p_at = p + (unsigned)((lane & 15) * FA_S_STRIDE * 4 + (lane >> 4) * 16);
    unsigned v_at = fa_lane_rows(v);
#pragma unroll
    for (int k = 0; k < FA_TKV / 16; k++) {
        unsigned a[4];
        ptx_ldmatrix_x4(a, p_at + k * 32u);
#pragma unroll
        for (int i = 0; i < FA_COLUMNS_WARP / 16; i++) {
            unsigned b[4];
            ptx_ldmatrix_x4_trans(b, v_at + (unsigned)(k * 16 * FA_STRIDE + i * 16) * 2);
            ptx_mma_f16(o[2 * i], a, b[0], b[1]);
            ptx_mma_f16(o[2 * i + 1], a, b[2], b[3]);
        }
    }
}

// rows: as in fa_softmax_row, for this warp's 16 rows; first_row: of them.
PTX_INLINE void fa_write_rows(const float (&o)[FA_COLUMNS_WARP / 8][4], const float *sums,
        fa_out_type *out, int first_row, int rows, long long stride) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = ptx_lane() / 4 + h * 8;
        if (first_row + row >= rows) {
            continue;
        }
        float inverse = sums[row] > 0 ? 1.0f / sums[row] : 0.0f; // no key seen: zero
        fa_out_type *at = out + (first_row + row) * stride + (ptx_lane() & 3) * 2;
#pragma unroll
        for (int i = 0; i < FA_COLUMNS_WARP / 8; i++) {
            fa_write_pair(at + i * 8, o[i][2 * h] * inverse, o[i][2 * h + 1] * inverse);
        }
    }
}

// q, out (S, H*HD); k, v (T, HKV*HD); positions (S); n_tokens, kv_len (1) or NULL.
extern "C" __global__ void __launch_bounds__(FA_THREADS, MIN_BLOCKS)
        fap1(const fa_q_type *__restrict__ q, const fa_half *__restrict__ k,
                const fa_half *__restrict__ v, const int *__restrict__ positions,
                fa_out_type *__restrict__ out, const int *__restrict__ n_tokens,
                const int *__restrict__ kv_len, const fa_args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    fa_tile tile;
    if (!fa_place_tile(tile, n_tokens, args)) {
        return;
    }
    fa_tile_range(tile, positions, kv_len, args);
    int thread = (int)threadIdx.x, warp = thread / 32;
    int row_group = warp / FA_COLUMN_GROUPS, column_group = warp % FA_COLUMN_GROUPS;
    int keys = fa_in_use(kv_len, args.keys);
    unsigned base = ptx_shared(shared);
    float *scores = (float *)(shared + FA_S_AT), *row_numbers = (float *)(shared + FA_MAX_AT);
    int head_column = tile.kv_head * FA_HD;
    unsigned warp_q = base + (unsigned)(row_group * 16 * FA_STRIDE) * 2;
    unsigned warp_k = base + FA_K_AT + (unsigned)(column_group * FA_KEYS_WARP * FA_STRIDE) * 2;
    unsigned warp_v = base + FA_V_AT + (unsigned)(column_group * FA_COLUMNS_WARP) * 2;
    unsigned warp_p = base + FA_S_AT + (unsigned)(row_group * 16 * FA_S_STRIDE) * 4;
    float o[FA_COLUMNS_WARP / 8][4] = {};
    fa_stage_q(base, q, tile, args);
    for (int row = thread; row < FA_TQ; row += FA_THREADS) {
        row_numbers[row] = PTX_NEG_INFINITY;
        row_numbers[FA_TQ + row] = 0;
    }
    __syncthreads();

    for (int key = tile.begin; key < tile.end; key += FA_TKV) {
        fa_stage_cache<FA_TKV, FA_THREADS>(
                base + FA_K_AT, k, head_column, args.k_stride, key, tile.end, thread);
        fa_stage_cache<FA_TKV, FA_THREADS>(
                base + FA_V_AT, v, head_column, args.v_stride, key, tile.end, thread);
        ptx_cp_async_commit();
        ptx_cp_async_wait<0>();
        __syncthreads();
        fa_make_scores(warp_q, warp_k,
                scores + row_group * 16 * FA_S_STRIDE + column_group * FA_KEYS_WARP);
        __syncthreads();
        for (int row = warp; row < FA_TQ; row += FA_WARPS) {
            fa_range range = fa_row_range(positions, tile.first_row + row, tile.rows, keys, args);
            fa_softmax_row(scores + row * FA_S_STRIDE, row_numbers + row, range, key, args);
        }
        __syncthreads();
        fa_add_values(o, warp_p, warp_v, row_numbers + 2 * FA_TQ + row_group * 16);
        __syncthreads();
    }
    fa_write_rows(o, row_numbers + FA_TQ + row_group * 16,
            out + tile.head * FA_HD + column_group * FA_COLUMNS_WARP,
            tile.first_row + row_group * 16, tile.rows, args.out_stride);
}
