// parity_shapes: which shapes a slot is tried with: one token, one below, at and past a tile, odd
// numbers of outputs, ratios of heads, planted values. Small, so that an interpreter can run all of
// them; `full` adds those as long as a prompt.
#include "lab/parity.h"

#include <string.h>

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

// m, keys, heads, KV heads, window, rows of the bound behind those in use, softcap, fill
struct attention_shape {
    int64_t m, keys;
    int32_t heads, kv_heads, window;
    int64_t slack;
    float softcap;
    enum kiln_case_fill fill;
};

static const struct attention_shape prefill_small[] = {
        {1, 1, 1, 1, 0, 0, 0, KILN_FILL_NORMAL},
        {15, 15, 3, 1, 0, 7, 0, KILN_FILL_NORMAL},
        {17, 48, 4, 1, 0, 0, 0, KILN_FILL_EDGES},
        {65, 65, 7, 1, 0, 21, 0, KILN_FILL_NORMAL},
        {33, 95, 4, 2, 33, 0, 0, KILN_FILL_NORMAL},
        {20, 50, 2, 2, 0, 3, 20, KILN_FILL_NORMAL},
        {21, 16, 2, 1, 0, 0, 0, KILN_FILL_MASKED},
        {5, 131, 6, 2, 0, 0, 0, KILN_FILL_EDGES},
};
static const struct attention_shape prefill_full[] = {
        {16, 16, 4, 1, 0, 0, 0, KILN_FILL_NORMAL},
        {63, 63, 14, 2, 0, 21, 0, KILN_FILL_EDGES},
        {64, 128, 3, 3, 0, 0, 0, KILN_FILL_NORMAL},
        {127, 128, 15, 5, 0, 5, 0, KILN_FILL_NORMAL},
        {129, 329, 12, 1, 0, 0, 0, KILN_FILL_EDGES},
        {1000, 1000, 7, 1, 0, 24, 0, KILN_FILL_NORMAL},
        {6, 4096, 28, 4, 0, 0, 0, KILN_FILL_NORMAL},
        {129, 629, 3, 1, 128, 0, 0, KILN_FILL_NORMAL},
        {70, 70, 2, 1, 1, 0, 0, KILN_FILL_NORMAL},
        {300, 377, 2, 2, 64, 7, 0, KILN_FILL_EDGES},
        {90, 290, 4, 4, 50, 0, 5, KILN_FILL_NORMAL},
        {200, 130, 6, 2, 0, 0, 0, KILN_FILL_MASKED},
};
static const struct attention_shape decode_small[] = {
        {1, 1, 7, 1, 0, 0, 0, KILN_FILL_NORMAL},
        {1, 15, 3, 1, 0, 0, 0, KILN_FILL_EDGES},
        {1, 65, 14, 2, 0, 0, 0, KILN_FILL_NORMAL},
        {1, 257, 4, 4, 0, 0, 0, KILN_FILL_EDGES},
        {3, 129, 20, 1, 0, 2, 0, KILN_FILL_NORMAL},
        {2, 200, 4, 2, 33, 0, 0, KILN_FILL_NORMAL},
        {1, 100, 4, 1, 0, 0, 20, KILN_FILL_NORMAL},
};
static const struct attention_shape decode_full[] = {
        {1, 16, 4, 1, 0, 0, 0, KILN_FILL_NORMAL},
        {1, 17, 12, 1, 0, 0, 0, KILN_FILL_NORMAL},
        {1, 63, 4, 4, 0, 0, 0, KILN_FILL_NORMAL},
        {1, 64, 28, 4, 0, 0, 0, KILN_FILL_EDGES},
        {1, 1000, 15, 5, 0, 0, 0, KILN_FILL_NORMAL},
        {1, 3325, 28, 4, 0, 0, 0, KILN_FILL_NORMAL},
        {4, 1001, 20, 1, 0, 4, 0, KILN_FILL_EDGES},
        {1, 2001, 8, 1, 512, 0, 0, KILN_FILL_NORMAL},
        {1, 701, 4, 2, 0, 0, 20, KILN_FILL_NORMAL},
};
static const int32_t head_sizes[] = {64, 128, 256};

static int attention_shape(int decode, int full, uint32_t i, struct kiln_parity_shape *shape) {
    const struct attention_shape *small = decode ? decode_small : prefill_small;
    const struct attention_shape *more = decode ? decode_full : prefill_full;
    uint32_t n_small = decode ? COUNT(decode_small) : COUNT(prefill_small);
    uint32_t n_more = decode ? COUNT(decode_full) : COUNT(prefill_full);
    uint32_t n = n_small + (full ? n_more : 0), which = i % n;
    if (i >= n * COUNT(head_sizes)) {
        return 0;
    }
    const struct attention_shape *a = which < n_small ? &small[which] : &more[which - n_small];
    *shape = (struct kiln_parity_shape){.fill = a->fill,
            .shape = {.m = a->m,
                    .kv_len = a->keys,
                    .bound = a->m + a->slack,
                    .n_heads = a->heads,
                    .n_kv_heads = a->kv_heads,
                    .head_size = head_sizes[i / n],
                    .window = a->window,
                    .softcap = a->softcap,
                    .format = which % 2}};
    return 1;
}

// rows, outputs, inputs (rounded to the block), slack, operands, fill
struct matmul_shape {
    int64_t m, n, k, slack;
    uint32_t with;
    enum kiln_case_fill fill;
};

static const struct matmul_shape gemm_small[] = {
        {1, 1, 32, 0, 0, KILN_FILL_NORMAL},
        {15, 33, 512, 0, KILN_WITH_BIAS, KILN_FILL_NORMAL},
        {17, 68, 288, 6, KILN_WITH_BIAS | KILN_WITH_RESIDUAL, KILN_FILL_EDGES},
        {65, 130, 544, 0, KILN_WITH_RESIDUAL | KILN_WITH_IN_PLACE, KILN_FILL_NORMAL},
        {33, 40, 256, 0, KILN_WITH_BIAS, KILN_FILL_EXACT},
        {129, 3, 1024, 11, 0, KILN_FILL_EXACT},
        {37, 256, 512, 3, KILN_WITH_BIAS, KILN_FILL_NORMAL},
        {35, 128, 256, 0, KILN_WITH_BIAS, KILN_FILL_NORMAL},
        {35, 384, 256, 2, 0, KILN_FILL_EDGES},
};
static const struct matmul_shape gemm_full[] = {
        {16, 127, 256, 0, 0, KILN_FILL_NORMAL},
        {63, 1000, 96, 0, KILN_WITH_RESIDUAL, KILN_FILL_NORMAL},
        {64, 64, 1792, 0, KILN_WITH_BIAS, KILN_FILL_EDGES},
        {127, 257, 544, 13, KILN_WITH_BIAS | KILN_WITH_RESIDUAL | KILN_WITH_IN_PLACE,
                KILN_FILL_NORMAL},
        {129, 1000, 3584, 0, 0, KILN_FILL_NORMAL},
        {1000, 257, 1792, 0, KILN_WITH_BIAS, KILN_FILL_NORMAL},
        {1000, 4, 4096, 24, 0, KILN_FILL_EDGES},
        {1, 1000, 4096, 0, 0, KILN_FILL_EXACT},
        {2, 51865, 256, 0, 0, KILN_FILL_NORMAL},
};
static const struct matmul_shape gemv_small[] = {
        {1, 1, 32, 0, 0, KILN_FILL_NORMAL},
        {1, 33, 512, 0, KILN_WITH_BIAS | KILN_WITH_RESIDUAL, KILN_FILL_NORMAL},
        {3, 70, 544, 2, KILN_WITH_RESIDUAL | KILN_WITH_IN_PLACE, KILN_FILL_NORMAL},
        {11, 17, 288, 0, KILN_WITH_BIAS, KILN_FILL_EDGES},
        {1, 257, 1024, 0, 0, KILN_FILL_NORMAL},
        {2, 40, 256, 0, KILN_WITH_BIAS, KILN_FILL_EXACT},
};
static const struct matmul_shape gemv_full[] = {
        {1, 3, 4096, 0, 0, KILN_FILL_NORMAL},
        {1, 4, 96, 0, 0, KILN_FILL_NORMAL},
        {4, 33, 4096, 0, KILN_WITH_BIAS, KILN_FILL_NORMAL},
        {9, 1000, 1792, 0, 0, KILN_FILL_NORMAL},
        {1, 3584, 18944, 0, KILN_WITH_RESIDUAL | KILN_WITH_IN_PLACE, KILN_FILL_NORMAL},
        {1, 51865, 256, 0, 0, KILN_FILL_NORMAL},
};

struct matmul_list {
    const struct matmul_shape *shapes;
    uint32_t n;
};
static const struct matmul_list matmul_lists[2][2] = {
        // of prefill, of decode; small, full
        {{gemm_small, COUNT(gemm_small)}, {gemm_full, COUNT(gemm_full)}},
        {{gemv_small, COUNT(gemv_small)}, {gemv_full, COUNT(gemv_full)}},
};

// Rounded up to a multiple.
static int64_t fit(int64_t k, int64_t columns) {
    return (k + columns - 1) / columns * columns;
}

static int matmul_shape(
        int decode, int full, uint32_t i, int64_t columns, struct kiln_parity_shape *shape) {
    const struct matmul_list *small = &matmul_lists[decode][0], *more = &matmul_lists[decode][1];
    uint32_t n_small = small->n, n = n_small + (full ? more->n : 0);
    if (i >= n) {
        return 0;
    }
    const struct matmul_shape *a = i < n_small ? &small->shapes[i] : &more->shapes[i - n_small];
    *shape = (struct kiln_parity_shape){.fill = a->fill,
            .shape = {.m = a->m,
                    .n = a->n,
                    .k = fit(a->k, columns),
                    .bound = a->m + a->slack,
                    .with = a->with,
                    .format = i % 3}};
    return 1;
}

// Rows, columns. Some 500 rows and more are enough to fill a device: kernels may share them out in
// another way.
static const int64_t widths_small[][2] = {
        {1, 1}, {3, 2}, {5, 31}, {7, 100}, {4, 640}, {2, 3584}, {700, 36}};
static const int64_t widths_full[][2] = {
        {15, 3}, {16, 64}, {17, 1000}, {129, 5000}, {1000, 896}, {64, 18944}};

static int row_shape(
        const char *slot, int full, uint32_t i, int64_t columns, struct kiln_parity_shape *shape) {
    uint32_t n_small = COUNT(widths_small), n = n_small + (full ? COUNT(widths_full) : 0);
    uint32_t which = i / 2;
    if (which >= n) {
        return 0;
    }
    const int64_t *width = which < n_small ? widths_small[which] : widths_full[which - n_small];
    int argmax = strcmp(slot, "argmax") == 0, embed = strcmp(slot, "embed") == 0;
    *shape = (struct kiln_parity_shape){.fill = i % 2 ? KILN_FILL_EDGES : KILN_FILL_NORMAL,
            .shape = {.m = width[0],
                    .n = embed    ? 37
                         : argmax ? width[1] * 7
                                  : 0,
                    .k = fit(width[1], columns),
                    .bound = width[0] + (which % 2 ? 3 : 0),
                    .with = i % 3 == 1   ? KILN_WITH_RESIDUAL
                            : i % 3 == 2 ? KILN_WITH_RESIDUAL | KILN_WITH_IN_PLACE
                                         : 0,
                    .activation = i / 2 % 2 ? KILN_ACTIVATION_GELU_TANH : KILN_ACTIVATION_SILU,
                    .format = (i + which) % 3}};
    return 1;
}

static int rope_shape(int full, uint32_t i, struct kiln_parity_shape *shape) {
    static const int32_t sizes[] = {64, 128, 256, 80};
    if (i >= (full ? 16u : 11u)) {
        return 0;
    }
    int fills = i == 8 || i == 10; // a device
    int64_t m = fills ? 1000 : 1 + (int64_t)i * (full ? 9 : 3);
    *shape = (struct kiln_parity_shape){.fill = i % 4 == 3   ? KILN_FILL_MASKED
                                                : i % 4 == 1 ? KILN_FILL_EDGES
                                                             : KILN_FILL_NORMAL,
            .shape = {.m = m,
                    .bound = m + (i % 3 == 1 ? 2 : 0),
                    .kv_len = i % 4 == 3 ? 0 : m + (i % 2 ? 0 : 37) + (full && i == 6 ? 4000 : 0),
                    .n_heads = fills ? 15 : (int32_t)(1 + i % 5) * (int32_t)(1 + i % 2),
                    .n_kv_heads = fills ? 5 : (int32_t)(1 + i % 2),
                    .head_size = sizes[i % COUNT(sizes)],
                    .with = (i & 1 ? KILN_WITH_NORMS : 0) | (i & 2 ? KILN_WITH_PAIRS : 0) |
                            (i & 4 ? KILN_WITH_IN_PLACE : 0) | (i % 3 == 2 ? KILN_WITH_PART : 0),
                    .format = i / 2 % 2}};
    return 1;
}

// Keys, heads, KV heads, options: a row turned, put into the caches and attended to in one launch.
struct row_shape {
    int64_t keys;
    int32_t heads, kv_heads;
    uint32_t with;
};
static const struct row_shape rope_row_small[] = {
        {1, 7, 1, 0},
        {16, 3, 1, KILN_WITH_PAIRS},
        {65, 14, 2, KILN_WITH_PART},
        {257, 4, 4, KILN_WITH_PAIRS | KILN_WITH_PART},
        {130, 20, 1, 0},
};
static const struct row_shape rope_row_full[] = {
        {64, 28, 4, 0},
        {1001, 15, 5, KILN_WITH_PAIRS},
        {3325, 28, 4, 0},
};

static int rope_row_shape(int full, uint32_t i, struct kiln_parity_shape *shape) {
    uint32_t n_small = COUNT(rope_row_small), n = n_small + (full ? COUNT(rope_row_full) : 0);
    if (i >= n * COUNT(head_sizes)) {
        return 0;
    }
    const struct row_shape *a =
            i % n < n_small ? &rope_row_small[i % n] : &rope_row_full[i % n - n_small];
    *shape = (struct kiln_parity_shape){.fill = KILN_FILL_NORMAL,
            .shape = {.m = 1,
                    .bound = 1,
                    .kv_len = a->keys,
                    .n_heads = a->heads,
                    .n_kv_heads = a->kv_heads,
                    .head_size = head_sizes[i / n],
                    .with = a->with,
                    .format = i % 2}};
    return 1;
}

int kiln_parity_shape(
        const char *slot, int full, uint32_t i, int64_t columns, struct kiln_parity_shape *shape) {
    int decode = strstr(slot, ".decode") != NULL;
    if (strncmp(slot, "attention.", 10) == 0) {
        return attention_shape(decode, full, i, shape);
    }
    if (strncmp(slot, "matmul.", 7) == 0) {
        return matmul_shape(decode, full, i, columns, shape);
    }
    if (strcmp(slot, "rope_kv attention") == 0) {
        return rope_row_shape(full, i, shape);
    }
    if (strcmp(slot, "rope_kv") == 0) {
        return rope_shape(full, i, shape);
    }
    return row_shape(slot, full, i, columns, shape);
}
