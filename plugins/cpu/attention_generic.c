// attention_generic: attention in plain C, one head of one row a block, for prefill and decode.
//
// Keys are taken in tiles of 64 that start at multiples of 64, with a running maximum (online
// softmax): the same steps as the fast forms take. Sum order: scores over the head's columns in 8
// lanes; within a tile keys in order; a tile's sums are added to what went before, scaled.
#include "args.h"

#include "dequant.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

uint32_t cpu_attention_scratch(int32_t head_size, int32_t queries) {
    size_t size = ((size_t)head_size + 7) / 8 * 8;
    size_t rows = (size_t)queries;
    size_t floats = 2 * rows * size;            // queries and their sums
    floats += 3 * (size_t)CPU_TILE_KEYS * size; // keys or values, packed keys, values
    floats += rows * CPU_TILE_KEYS;             // scores
    floats += 2 * rows;                         // maximum and sum of each query
    return (uint32_t)((floats * sizeof(float) + 63) / 64 * 64);
}

static void load_row(uint32_t dtype, const char *row, int64_t column, int32_t n, float *out) {
    if (dtype == KILN_DTYPE_F32) {
        memcpy(out, (const float *)(const void *)row + column, (size_t)n * sizeof(float));
        return;
    }
    const uint16_t *halves = (const uint16_t *)(const void *)row + column;
    for (int32_t i = 0; i < n; i++) {
        out[i] = cpu_f16_to_f32(halves[i]);
    }
}

struct softmax {
    float max, sum;
};

// Scores of keys from .. to - 1 of one tile into score[]; the largest.
static float score_tile(const struct cpu_attention *params, const char *cache, int64_t column,
        const float *q, int64_t from, int64_t to, float *key, float *score) {
    float largest = -INFINITY;
    for (int64_t t = from; t < to; t++) {
        load_row(params->k_dtype, cache + t * params->k_stride, column, params->head_size, key);
        float s = cpu_dot_generic(q, key, params->head_size) * params->scale;
        if (params->softcap > 0) {
            s = params->softcap * tanhf(s / params->softcap);
        }
        score[t - from] = s;
        largest = s > largest ? s : largest;
    }
    return largest;
}

// Folds one tile into the running sums: out (head_size) and *state.
static void add_tile(const struct cpu_attention *params, const char *cache, int64_t column,
        int64_t from, int64_t to, float largest, float *value, float *score, struct softmax *state,
        float *out) {
    float max = largest > state->max ? largest : state->max;
    // Scores of nothing but minus infinity or NaN have no maximum to subtract.
    float shift = max == -INFINITY ? 0 : max;
    float old = state->max == -INFINITY ? 0 : expf(state->max - shift);
    float sum = 0;
    for (int32_t i = 0; i < params->head_size; i++) {
        out[i] *= old;
    }
    for (int64_t t = from; t < to; t++) {
        float p = expf(score[t - from] - shift);
        sum += p;
        load_row(params->v_dtype, cache + t * params->v_stride, column, params->head_size, value);
        for (int32_t i = 0; i < params->head_size; i++) {
            out[i] += p * value[i];
        }
    }
    state->max = max;
    state->sum = state->sum * old + sum;
}

// Grid: x heads, y rows.
void cpu_attention_generic(const struct kiln_block *block, void *const *args) {
    const struct cpu_attention *params = args[0];
    int64_t row = block->index[1];
    if (row >= cpu_rows(args, params->n_tokens, params->s)) {
        return;
    }
    int64_t head = block->index[0];
    int64_t size = params->head_size;
    int64_t column = head / (params->heads / params->kv_heads) * size;
    const char *q_row = (const char *)args[params->q] + row * params->q_stride;
    const float *q = (const float *)(const void *)q_row + head * size;
    float *out = block->shared;
    float *key = out + size;
    float *score = key + size;
    struct softmax state = {-INFINITY, 0};
    int64_t position = ((const int32_t *)args[params->positions])[row];
    int64_t end = position + 1 > params->t ? params->t : position + 1;
    int64_t begin =
            params->window > 0 && position >= params->window ? position - params->window + 1 : 0;
    memset(out, 0, (size_t)size * sizeof(float));
    for (int64_t from = begin; from < end;) {
        int64_t to = (from / CPU_TILE_KEYS + 1) * CPU_TILE_KEYS;
        to = to > end ? end : to;
        float largest = score_tile(params, args[params->k], column, q, from, to, key, score);
        add_tile(params, args[params->v], column, from, to, largest, key, score, &state, out);
        from = to;
    }
    char *out_at = (char *)args[params->out] + row * params->out_stride;
    float *result = (float *)(void *)out_at + head * size;
    for (int64_t i = 0; i < size; i++) {
        result[i] = begin < end ? out[i] / state.sum : 0;
    }
}
