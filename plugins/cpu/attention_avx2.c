// attention_avx2: attention with AVX2, FMA and F16C.
//
// Prefill: a block owns 48 rows of one head. Keys are taken in tiles of 64 that start at multiples
// of 64: K is packed, scores come from the register tile of gemm_avx2, each row's softmax covers
// exactly the keys that the row sees, and so does its product with V: a masked key is not
// multiplied by zero but left out, so that no NaN behind it shows. Decode: the same steps for one
// row and some heads of one KV head, with K and V read where they lie (f16 and odd head sizes
// through scratch), once for all of these heads. Sum order: scores by fused multiply-adds over the
// head's columns (decode: in 8 lanes); probabilities of a tile in 8 lanes, key t in lane t mod 8;
// P·V keys in order; tiles in order, what went before being scaled. It depends on the row's
// position alone, not on the rows that share its block.
#include "args.h"

#include "dequant.h"
#include "exp_avx2.h"
#include "gemm_avx2.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define INLINE __attribute__((always_inline)) static inline

struct scratch {
    float *q;      // (queries, padded)
    float *sums;   // (queries, padded)
    float *rows;   // (CPU_TILE_KEYS, padded)
    float *packed; // (CPU_TILE_KEYS / CPU_PANEL, padded, CPU_PANEL)
    float *values; // (CPU_TILE_KEYS, padded)
    float *scores; // (queries, CPU_TILE_KEYS)
    float *max;    // (queries)
    float *sum;    // (queries)
    int padded;    // head size, rounded up to 8; the rest of a row is zero
};

struct range { // keys from .. to - 1
    int64_t from, to;
};

static struct scratch divide(float *shared, int head_size, int queries) {
    struct scratch scratch = {.padded = (head_size + 7) / 8 * 8};
    ptrdiff_t tile = (ptrdiff_t)CPU_TILE_KEYS * scratch.padded;
    scratch.q = shared;
    scratch.sums = scratch.q + (ptrdiff_t)queries * scratch.padded;
    scratch.rows = scratch.sums + (ptrdiff_t)queries * scratch.padded;
    scratch.packed = scratch.rows + tile;
    scratch.values = scratch.packed + tile;
    scratch.scores = scratch.values + tile;
    scratch.max = scratch.scores + (ptrdiff_t)queries * CPU_TILE_KEYS;
    scratch.sum = scratch.max + queries;
    return scratch;
}

static struct range visible(const struct cpu_attention *params, int64_t position) {
    struct range range = {0, position + 1 > params->t ? params->t : position + 1};
    if (params->window > 0 && position >= params->window) {
        range.from = position - params->window + 1;
    }
    return range;
}

// One row of n columns to f32, filled up to `padded` with zeros.
static void load_row(
        uint32_t dtype, const char *row, int64_t column, int n, int padded, float *out) {
    int done = 0;
    if (dtype == KILN_DTYPE_F32) {
        const float *at = (const float *)(const void *)row + column;
        for (; done + 8 <= n; done += 8) {
            _mm256_storeu_ps(out + done, _mm256_loadu_ps(at + done));
        }
        for (; done < n; done++) {
            out[done] = at[done];
        }
    } else {
        const uint16_t *at = (const uint16_t *)(const void *)row + column;
        for (; done + 8 <= n; done += 8) {
            __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(at + done));
            _mm256_storeu_ps(out + done, _mm256_cvtph_ps(halves));
        }
        for (; done < n; done++) {
            out[done] = _cvtsh_ss(at[done]);
        }
    }
    for (; done < padded; done++) {
        out[done] = 0;
    }
}

// Lanes whose key first + lane lies in the range.
INLINE __m256 in_range(int first, int from, int to) {
    __m256i key =
            _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i above = _mm256_cmpgt_epi32(key, _mm256_set1_epi32(from - 1));
    __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(to), key);
    return _mm256_castsi256_ps(_mm256_and_si256(above, below));
}

INLINE float largest_lane(__m256 v) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

INLINE float add_lanes(__m256 v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Dot products -> scores of keys from .. to - 1 of a tile (0 .. 64); the largest of them.
static float scale_scores(const struct cpu_attention *params, float *score, int from, int to) {
    __m256 largest = _mm256_set1_ps(-INFINITY);
    __m256 scale = _mm256_set1_ps(params->scale);
    for (int i = from & ~7; i < to; i += 8) {
        __m256 s = _mm256_mul_ps(_mm256_loadu_ps(score + i), scale);
        _mm256_storeu_ps(score + i, s);
        if (params->softcap > 0) {
            for (int j = i; j < i + 8; j++) {
                score[j] = params->softcap * tanhf(score[j] / params->softcap);
            }
            s = _mm256_loadu_ps(score + i);
        }
        s = _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), s, in_range(i, from, to));
        largest = _mm256_max_ps(s, largest); // a NaN in s is passed over
    }
    return largest_lane(largest);
}

// Dot products of a row with the keys from .. to - 1 of a tile -> probabilities in their place,
// before the division by *sum. Updates the row's running maximum and sum; returns the factor for
// what the row has gathered so far.
static float soften(const struct cpu_attention *params, float *score, int from, int to, float *max,
        float *sum) {
    float largest = scale_scores(params, score, from, to);
    largest = largest > *max ? largest : *max;
    // Scores of nothing but minus infinity or NaN have no maximum to subtract.
    float shift = largest == -INFINITY ? 0 : largest;
    __m256 total = _mm256_setzero_ps();
    for (int i = from & ~7; i < to; i += 8) {
        __m256 p = cpu_exp_avx2(_mm256_sub_ps(_mm256_loadu_ps(score + i), _mm256_set1_ps(shift)));
        p = _mm256_and_ps(p, in_range(i, from, to));
        _mm256_storeu_ps(score + i, p);
        total = _mm256_add_ps(total, p);
    }
    float factor = *max == -INFINITY ? 0 : *max == shift ? 1 : expf(*max - shift);
    *max = largest;
    *sum = *sum * factor + add_lanes(total);
    return factor;
}

// sums (8 w) = sums * factor + Σ p[t] * v[t] (8 w) over the keys from .. to - 1; w is a constant in
// each caller.
INLINE void add_values(int w, float *sums, float factor, const float *p, const float *v,
        ptrdiff_t stride, int from, int to) {
    __m256 acc[8];
    for (int i = 0; i < w; i++) {
        acc[i] = _mm256_mul_ps(_mm256_loadu_ps(sums + 8 * i), _mm256_set1_ps(factor));
    }
    for (int t = from; t < to; t++) {
        __m256 weight = _mm256_broadcast_ss(p + t);
        const float *at = v + t * stride;
        for (int i = 0; i < w; i++) {
            acc[i] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(at + 8 * i), acc[i]);
        }
    }
    for (int i = 0; i < w; i++) {
        _mm256_storeu_ps(sums + 8 * i, acc[i]);
    }
}

static void add_tile(float *sums, float factor, const float *p, const float *v, ptrdiff_t stride,
        int from, int to, int columns) {
    int at = 0;
    for (; at + 64 <= columns; at += 64) {
        add_values(8, sums + at, factor, p, v + at, stride, from, to);
    }
    for (; at + 32 <= columns; at += 32) {
        add_values(4, sums + at, factor, p, v + at, stride, from, to);
    }
    for (; at + 8 <= columns; at += 8) {
        add_values(1, sums + at, factor, p, v + at, stride, from, to);
    }
}

static void finish_row(const float *sums, float sum, int any, float *out, int n) {
    for (int i = 0; i < n; i++) {
        out[i] = any ? sums[i] / sum : 0;
    }
}

// ---- Prefill ----

// Packed keys of one tile; keys outside from .. to - 1 are zeros and never read.
static void pack_keys(const struct cpu_attention *params, const char *cache, int64_t column,
        struct range tile, const struct scratch *scratch) {
    int n = (int)(tile.to - tile.from);
    for (int t = 0; t < n; t++) {
        load_row(params->k_dtype, cache + (tile.from + t) * params->k_stride, column,
                params->head_size, scratch->padded, scratch->rows + (ptrdiff_t)t * scratch->padded);
    }
    for (int panel = 0; panel < n; panel += CPU_PANEL) {
        int rows = n - panel < CPU_PANEL ? n - panel : CPU_PANEL;
        cpu_pack_avx2(scratch->rows + (ptrdiff_t)panel * scratch->padded, scratch->padded, rows,
                scratch->padded, scratch->packed + (ptrdiff_t)panel * scratch->padded);
    }
}

static void score_rows(const struct scratch *scratch, int rows, int keys, int head_size) {
    for (int row = 0; row < rows; row += CPU_TILE_ROWS) {
        int m = rows - row < CPU_TILE_ROWS ? rows - row : CPU_TILE_ROWS;
        const float *q = scratch->q + (ptrdiff_t)row * scratch->padded;
        for (int panel = 0; panel < keys; panel += CPU_PANEL) {
            const float *packed = scratch->packed + (ptrdiff_t)panel * scratch->padded;
            float *scores = scratch->scores + row * CPU_TILE_KEYS + panel;
            for (int i = 0; i < head_size; i += CPU_SUM_K) {
                int k = head_size - i < CPU_SUM_K ? head_size - i : CPU_SUM_K;
                cpu_tile_avx2(m, q + i, scratch->padded, packed + i * CPU_PANEL, scores,
                        CPU_TILE_KEYS, k, i > 0);
            }
        }
    }
}

// One tile of keys (tile.from is a multiple of 64) for all rows of the block.
static void fold_tile(const struct cpu_attention *params, void *const *args, int64_t column,
        const int32_t *positions, int rows, struct range tile, const struct scratch *scratch) {
    int keys = (int)(tile.to - tile.from);
    pack_keys(params, args[params->k], column, tile, scratch);
    const char *v = args[params->v];
    for (int t = 0; t < keys; t++) {
        load_row(params->v_dtype, v + (tile.from + t) * params->v_stride, column, params->head_size,
                scratch->padded, scratch->values + (ptrdiff_t)t * scratch->padded);
    }
    score_rows(scratch, rows, keys, params->head_size);
    for (int row = 0; row < rows; row++) {
        struct range seen = visible(params, positions[row]);
        int from = seen.from > tile.from
                           ? (int)(seen.from - tile.from < keys ? seen.from - tile.from : keys)
                           : 0;
        int to = seen.to < tile.to ? (int)(seen.to - tile.from) : keys;
        if (from >= to) {
            continue;
        }
        float *score = scratch->scores + row * CPU_TILE_KEYS;
        float factor = soften(params, score, from, to, &scratch->max[row], &scratch->sum[row]);
        add_tile(scratch->sums + (ptrdiff_t)row * scratch->padded, factor, score, scratch->values,
                scratch->padded, from, to, scratch->padded);
    }
}

static void load_queries(const struct cpu_attention *params, const char *q, int64_t stride,
        int64_t column, int rows, const struct scratch *scratch) {
    for (int row = 0; row < rows; row++) {
        load_row(KILN_DTYPE_F32, q + row * stride, column, params->head_size, scratch->padded,
                scratch->q + (ptrdiff_t)row * scratch->padded);
        scratch->max[row] = -INFINITY;
        scratch->sum[row] = 0;
    }
    memset(scratch->sums, 0, (size_t)rows * (size_t)scratch->padded * sizeof(float));
}

// Grid: x heads, y blocks of CPU_TILE_QUERIES rows.
void cpu_attention_prefill_avx2(const struct kiln_block *block, void *const *args) {
    const struct cpu_attention *params = args[0];
    struct scratch scratch = divide(block->shared, params->head_size, CPU_TILE_QUERIES);
    int64_t first = (int64_t)block->index[1] * CPU_TILE_QUERIES;
    int64_t left = cpu_rows(args, params->n_tokens, params->s) - first;
    int rows = left > CPU_TILE_QUERIES ? CPU_TILE_QUERIES : left > 0 ? (int)left : 0;
    int64_t head = block->index[0];
    int64_t column = head / (params->heads / params->kv_heads) * params->head_size;
    const int32_t *positions = (const int32_t *)args[params->positions] + first;
    load_queries(params, (const char *)args[params->q] + first * params->q_stride, params->q_stride,
            head * params->head_size, rows, &scratch);
    struct range all = {INT64_MAX, 0}; // what any of the rows sees
    for (int row = 0; row < rows; row++) {
        struct range seen = visible(params, positions[row]);
        if (seen.from < seen.to) {
            all.from = seen.from < all.from ? seen.from : all.from;
            all.to = seen.to > all.to ? seen.to : all.to;
        }
    }
    for (int64_t t = all.from / CPU_TILE_KEYS * CPU_TILE_KEYS; t < all.to; t += CPU_TILE_KEYS) {
        struct range tile = {t, t + CPU_TILE_KEYS < all.to ? t + CPU_TILE_KEYS : all.to};
        fold_tile(params, args, column, positions, rows, tile, &scratch);
    }
    for (int row = 0; row < rows; row++) {
        struct range seen = visible(params, positions[row]);
        char *out = (char *)args[params->out] + (first + row) * params->out_stride;
        finish_row(scratch.sums + (ptrdiff_t)row * scratch.padded, scratch.sum[row],
                seen.from < seen.to, (float *)(void *)out + head * params->head_size,
                params->head_size);
    }
}

// ---- Decode ----

// Rows keys.from .. keys.to - 1 of a cache as f32 with `padded` columns: where they lie if they are
// that already, else in `room`.
static const float *tile_rows(const struct cpu_attention *params, uint32_t dtype, const char *cache,
        int64_t cache_stride, int64_t column, struct range keys, int padded, float *room,
        ptrdiff_t *stride) {
    const char *at = cache + keys.from * cache_stride;
    if (dtype == KILN_DTYPE_F32 && params->head_size == padded &&
            cache_stride % (int64_t)sizeof(float) == 0) {
        *stride = cache_stride / (int64_t)sizeof(float);
        return (const float *)(const void *)at + column;
    }
    int n = (int)(keys.to - keys.from);
    for (int t = 0; t < n; t++) {
        load_row(dtype, at + t * cache_stride, column, params->head_size, padded,
                room + (ptrdiff_t)t * padded);
    }
    *stride = padded;
    return room;
}

// q · k of n (1 or 4) keys, each in 8 lanes added in pairs.
INLINE void dot_keys(
        int n, const float *q, const float *k, ptrdiff_t stride, int columns, float *out) {
    __m256 acc[4];
    for (int j = 0; j < 4; j++) {
        acc[j] = _mm256_setzero_ps();
    }
    for (int i = 0; i < columns; i += 8) {
        __m256 x = _mm256_loadu_ps(q + i);
        for (int j = 0; j < n; j++) {
            acc[j] = _mm256_fmadd_ps(x, _mm256_loadu_ps(k + j * stride + i), acc[j]);
        }
    }
    __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(acc[0], acc[1]), _mm256_hadd_ps(acc[2], acc[3]));
    __m128 dots = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
    float four[4];
    _mm_storeu_ps(four, dots);
    memcpy(out, four, (size_t)n * sizeof(float));
}

// The visible keys of one tile of 64, for the heads of the block, all of one KV head.
static void fold_heads(const struct cpu_attention *params, void *const *args, int64_t column,
        int heads, struct range keys, const struct scratch *scratch) {
    // Lanes count from the tile's start, whatever the window leaves of it.
    int from = (int)(keys.from % CPU_TILE_KEYS);
    int n = (int)(keys.to - keys.from);
    int padded = scratch->padded;
    ptrdiff_t k_stride;
    ptrdiff_t v_stride;
    const float *k = tile_rows(params, params->k_dtype, args[params->k], params->k_stride, column,
            keys, padded, scratch->rows, &k_stride);
    const float *v = tile_rows(params, params->v_dtype, args[params->v], params->v_stride, column,
            keys, padded, scratch->values, &v_stride);
    for (int head = 0; head < heads; head++) {
        const float *q = scratch->q + (ptrdiff_t)head * padded;
        float *score = scratch->scores + head * CPU_TILE_KEYS;
        int t = 0;
        for (; t + 4 <= n; t += 4) {
            dot_keys(4, q, k + t * k_stride, k_stride, padded, score + from + t);
        }
        for (; t < n; t++) {
            dot_keys(1, q, k + t * k_stride, k_stride, padded, score + from + t);
        }
        float factor =
                soften(params, score, from, from + n, &scratch->max[head], &scratch->sum[head]);
        add_tile(scratch->sums + (ptrdiff_t)head * padded, factor, score + from, v, v_stride, 0, n,
                padded);
    }
}

// Grid: x blocks of block_heads heads, never of two KV heads, y rows.
void cpu_attention_decode_avx2(const struct kiln_block *block, void *const *args) {
    const struct cpu_attention *params = args[0];
    int64_t row = block->index[1];
    if (row >= cpu_rows(args, params->n_tokens, params->s)) {
        return;
    }
    int64_t size = params->head_size;
    int group = params->heads / params->kv_heads;
    int64_t blocks_a_group = (group + params->block_heads - 1) / params->block_heads;
    int64_t kv_head = block->index[0] / blocks_a_group;
    int first = (int)(block->index[0] % blocks_a_group) * params->block_heads; // in the group
    int heads = group - first < params->block_heads ? group - first : params->block_heads;
    int64_t offset = (kv_head * group + first) * size; // column of the first head in Q and OUT
    struct scratch scratch = divide(block->shared, params->head_size, params->block_heads);
    const char *q = (const char *)args[params->q] + row * params->q_stride;
    // Heads lie behind one another: rows, head_size floats apart.
    load_queries(params, q + offset * (int64_t)sizeof(float), size * (int64_t)sizeof(float), 0,
            heads, &scratch);
    // What soften() reads beside the visible keys must be numbers.
    memset(scratch.scores, 0, (size_t)heads * CPU_TILE_KEYS * sizeof(float));
    struct range seen = visible(params, ((const int32_t *)args[params->positions])[row]);
    for (int64_t from = seen.from; from < seen.to;) {
        int64_t to = (from / CPU_TILE_KEYS + 1) * CPU_TILE_KEYS;
        struct range keys = {from, to < seen.to ? to : seen.to};
        fold_heads(params, args, kv_head * size, heads, keys, &scratch);
        from = keys.to;
    }
    char *out = (char *)args[params->out] + row * params->out_stride;
    for (int head = 0; head < heads; head++) {
        finish_row(scratch.sums + (ptrdiff_t)head * scratch.padded, scratch.sum[head],
                seen.from < seen.to, (float *)(void *)out + offset + head * size,
                params->head_size);
    }
}
