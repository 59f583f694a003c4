// op_case_data: the numbers of a case, and the formats that they are kept in.
#include "lab/op_case_impl.h"

#include "model/dtype.h"
#include "model/quant.h"

#include <math.h>
#include <string.h>

// ---- Random numbers -----------------------------------------------------------------------------
uint32_t kiln_random_bits(struct kiln_random *random) {
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = random->state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

// The sum of four uniform ones, deviation 1.
float kiln_random_normal(struct kiln_random *random) {
    uint32_t a = kiln_random_bits(random), b = kiln_random_bits(random);
    int32_t sum = (int32_t)(a >> 16) + (int32_t)(a & 65535) + (int32_t)(b >> 16) +
                  (int32_t)(b & 65535) - 131070;
    return (float)sum * (1.0F / 37837);
}

float kiln_f16_round(float value) {
    return kiln_f16_to_f32(kiln_f32_to_f16(value));
}

// ---- Blocks of activations ----------------------------------------------------------------------
void kiln_q8_quantize(const float *x, struct kiln_q8 *block) {
    float largest = 0;
    int finite = 1;
    for (int i = 0; i < 32; i++) {
        float size = fabsf(x[i]);
        largest = size > largest ? size : largest;
        finite &= isfinite(x[i]) != 0;
    }
    int zero = !finite || largest < 0x1p-100F;
    float inverse = zero ? 0 : 127.0F / largest;
    *block = (struct kiln_q8){.scale = !finite ? NAN : zero ? 0 : largest / 127.0F};
    for (int i = 0; i < 32 && !zero; i++) {
        int q = (int)rintf(x[i] * inverse);
        block->q[i] = (int8_t)q;
        block->sum += q;
    }
}

// q8_32w: a row of K columns: q i8[K], then K / 32 times scale f32 and scale * sum f32.
static void put_wide(unsigned char *row, int64_t cols, int64_t block, const struct kiln_q8 *q8) {
    float pair[2] = {q8->scale, q8->scale * (float)q8->sum};
    memcpy(row + block * 32, q8->q, 32);
    memcpy(row + cols + block * 8, pair, sizeof(pair));
}

static void get_wide(const unsigned char *row, int64_t cols, int64_t block, struct kiln_q8 *q8) {
    memcpy(q8->q, row + block * 32, 32);
    memcpy(&q8->scale, row + cols + block * 8, sizeof(q8->scale));
}

static int32_t sum_of(const struct kiln_q8 *q8) {
    int32_t sum = 0;
    for (int i = 0; i < 32; i++) {
        sum += q8->q[i];
    }
    return sum;
}

static int sum_fits_wide(const unsigned char *row, int64_t cols, int64_t block) {
    struct kiln_q8 q8;
    float stated;
    get_wide(row, cols, block, &q8);
    memcpy(&stated, row + cols + block * 8 + 4, sizeof(stated));
    float sum = q8.scale * (float)sum_of(&q8);
    return stated == sum || (isnan(stated) && isnan(sum));
}

// q8_32: blocks of scale f32, sum i32, q i8[32].
enum {
    Q8_BYTES = 40
};

static void put_blocks(unsigned char *row, int64_t cols, int64_t block, const struct kiln_q8 *q8) {
    (void)cols;
    unsigned char *at = row + block * Q8_BYTES;
    memcpy(at, &q8->scale, 4);
    memcpy(at + 4, &q8->sum, 4);
    memcpy(at + 8, q8->q, 32);
}

static void get_blocks(const unsigned char *row, int64_t cols, int64_t block, struct kiln_q8 *q8) {
    (void)cols;
    const unsigned char *at = row + block * Q8_BYTES;
    memcpy(&q8->scale, at, 4);
    memcpy(q8->q, at + 8, 32);
}

static int sum_fits_blocks(const unsigned char *row, int64_t cols, int64_t block) {
    struct kiln_q8 q8;
    int32_t stated;
    get_blocks(row, cols, block, &q8);
    memcpy(&stated, row + block * Q8_BYTES + 4, sizeof(stated));
    return stated == sum_of(&q8);
}

static const struct kiln_case_format formats[] = {
        {"q8_32w", 32, 48, put_wide, get_wide, sum_fits_wide},
        {"q8_32", 32, Q8_BYTES, put_blocks, get_blocks, sum_fits_blocks},
        {"f16_rows", 128, 320, NULL, NULL, NULL},
};

const struct kiln_case_format *kiln_case_format_find(const char *name) {
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return &formats[i];
        }
    }
    return NULL;
}

// ---- Rows of f16 --------------------------------------------------------------------------------
// f16_rows: a row of K columns: q f16[K], then a factor f32, a power of two; value = factor * q. It
// is 1 where the row's largest magnitude is in [2^-6, 2^15); other rows it brings there.
static int exponent_of(const float *x, int64_t cols) {
    float largest = 0;
    int exponent;
    for (int64_t i = 0; i < cols; i++) {
        largest = fmaxf(largest, fabsf(x[i]));
    }
    (void)frexpf(largest, &exponent); // largest = [1/2, 1) * 2^exponent
    if (largest == 0 || isinf(largest)) {
        return 0;
    }
    exponent = exponent < -125 ? -125 : exponent; // the factor of subnormal ones is that of 2^-126
    return exponent > 15 ? exponent - 15 : exponent < -5 ? exponent + 5 : 0;
}

static void put_row(unsigned char *row, int64_t cols, const float *from) {
    int exponent = exponent_of(from, cols);
    float factor = ldexpf(1, exponent);
    for (int64_t i = 0; i < cols; i++) {
        uint16_t half = kiln_f32_to_f16(ldexpf(from[i], -exponent));
        memcpy(row + 2 * i, &half, sizeof(half));
    }
    memcpy(row + 2 * cols, &factor, sizeof(factor));
}

float kiln_case_scale(const struct kiln_tensor *tensor, const void *row) {
    float factor;
    memcpy(&factor, (const unsigned char *)row + 2 * tensor->dims[0], sizeof(factor));
    return factor;
}

static void get_row(const struct kiln_tensor *tensor, const unsigned char *row, float *to) {
    float factor = kiln_case_scale(tensor, row);
    for (int64_t i = 0; i < tensor->dims[0]; i++) {
        uint16_t half;
        memcpy(&half, row + 2 * i, sizeof(half));
        to[i] = factor * kiln_f16_to_f32(half);
    }
}

// ---- Rows ---------------------------------------------------------------------------------------
static float from_bf16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

void kiln_case_decode(const struct kiln_tensor *tensor, const void *row, float *to) {
    const unsigned char *bytes = row;
    int64_t cols = tensor->dims[0];
    uint16_t half;
    if (tensor->dtype == KILN_DTYPE_BLOCK) {
        const struct kiln_case_format *format = kiln_case_format_find(tensor->format);
        if (!kiln_precision_is_q8(tensor)) {
            get_row(tensor, bytes, to);
            return;
        }
        for (int64_t b = 0; b < cols / 32; b++) {
            struct kiln_q8 q8;
            format->get(bytes, cols, b, &q8);
            for (int i = 0; i < 32; i++) {
                to[b * 32 + i] = q8.scale * (float)q8.q[i];
            }
        }
        return;
    }
    if (tensor->dtype == KILN_DTYPE_F32) {
        memcpy(to, row, (size_t)cols * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < cols; i++) {
        memcpy(&half, bytes + 2 * i, sizeof(half));
        to[i] = tensor->dtype == KILN_DTYPE_F16 ? kiln_f16_to_f32(half) : from_bf16(half);
    }
}

void kiln_case_encode(const struct kiln_tensor *tensor, const float *from, void *row) {
    unsigned char *bytes = row;
    int64_t cols = tensor->dims[0];
    if (tensor->dtype == KILN_DTYPE_BLOCK) {
        const struct kiln_case_format *format = kiln_case_format_find(tensor->format);
        if (!kiln_precision_is_q8(tensor)) {
            put_row(bytes, cols, from);
            return;
        }
        for (int64_t b = 0; b < cols / 32; b++) {
            struct kiln_q8 q8;
            kiln_q8_quantize(from + b * 32, &q8);
            format->put(bytes, cols, b, &q8);
        }
        return;
    }
    if (tensor->dtype == KILN_DTYPE_F32) {
        memcpy(row, from, (size_t)cols * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < cols; i++) {
        uint16_t half = tensor->dtype == KILN_DTYPE_F16 ? kiln_f32_to_f16(from[i])
                                                        : kiln_f32_to_bf16(from[i]);
        memcpy(bytes + 2 * i, &half, sizeof(half));
    }
}

// ---- Weights ------------------------------------------------------------------------------------
static void put_half(unsigned char *at, float value) {
    uint16_t half = kiln_f32_to_f16(value);
    memcpy(at, &half, sizeof(half));
}

// Factors of a block whose other bytes are any. Two factors: the scale and the minimum.
static void put_factors(uint32_t dtype, unsigned char *at, float d, int no_minimum) {
    switch (dtype) {
    case KILN_DTYPE_Q4_K:
    case KILN_DTYPE_Q5_K:
        put_half(at, d / 64);
        put_half(at + 2, no_minimum ? 0 : d / 16);
        break;
    case KILN_DTYPE_Q6_K:
        put_half(at + 208, d / 256);
        break;
    case KILN_DTYPE_Q4_1:
        put_half(at, d);
        put_half(at + 2, no_minimum ? 0 : -8 * d);
        break;
    default:
        put_half(at, dtype == KILN_DTYPE_Q8_0 ? d / 16 : d);
        break;
    }
}

static void fill_plain(struct kiln_random *random, const struct kiln_tensor *tensor,
        enum kiln_case_fill fill, unsigned char *data) {
    for (int64_t i = 0; i < tensor->dims[0] * tensor->dims[1]; i++) {
        float value = fill == KILN_FILL_EXACT
                              ? (float)((int)(kiln_random_bits(random) % 15) - 7) * 0x1p-8F
                              : kiln_random_normal(random) * 0.03F;
        struct kiln_tensor one = *tensor;
        one.dims[0] = 1;
        kiln_case_encode(&one, &value, data + i * tensor->strides[0]);
    }
}

void kiln_case_fill_weight(struct kiln_random *random, const struct kiln_tensor *tensor,
        enum kiln_case_fill fill, void *data) {
    const struct kiln_dtype_info *info = kiln_dtype_info(tensor->dtype);
    unsigned char *at = data;
    if (info->elems == 1) {
        fill_plain(random, tensor, fill, at);
        return;
    }
    int64_t blocks = tensor->dims[0] / info->elems * tensor->dims[1];
    for (int64_t b = 0; b < blocks; b++, at += info->bytes) {
        for (uint32_t i = 0; i < info->bytes; i++) {
            at[i] = (unsigned char)kiln_random_bits(random);
        }
        float d = 0.004F * (0.5F + (float)(kiln_random_bits(random) & 255) / 256.0F);
        int edges = fill == KILN_FILL_EDGES;
        put_factors(tensor->dtype, at,
                fill == KILN_FILL_EXACT ? 0x1p-8F
                : edges && b % 5 == 1   ? 0
                                        : d,
                edges && b % 3 == 0);
    }
}

// ---- Activations --------------------------------------------------------------------------------
void kiln_case_fill_row(
        struct kiln_random *random, enum kiln_case_fill fill, int64_t row, float *x, int64_t cols) {
    // What the first 32 columns of a row are, the others zero; 0: all about normal.
    static const float planted[] = {
            2048.0F, 0, -2048.0F, 100000.0F, 2047.0F, 1e30F, 1e-30F, 1e-38F, 1e-41F, 1e-4F};
    enum {
        N_PLANTED = sizeof(planted) / sizeof(planted[0]),
        KINDS = N_PLANTED + 2 // all zeros, subnormals among normal ones
    };
    int64_t kind = row % KINDS;
    for (int64_t i = 0; i < cols; i++) {
        x[i] = kiln_random_normal(random);
        if (fill == KILN_FILL_EXACT) {
            // Whole numbers of at most 127, one in 32 of them 127: a scale of 1. Few are not 0, so
            // that sums stay below 2^24 steps.
            uint32_t bits = kiln_random_bits(random);
            x[i] = i % 32 == 5 ? 127.0F : bits % 4 == 0 ? (float)((int)(bits >> 8) % 15 - 7) : 0;
        } else if (fill == KILN_FILL_EDGES) {
            if (kind == N_PLANTED) {
                x[i] = 0;
            } else if (kind > N_PLANTED) {
                x[i] = i % 3 == 0 ? x[i] * 0x1p-130F : x[i];
            } else if (planted[kind] != 0) {
                x[i] = i < 32 ? planted[kind] : 0;
            }
        }
    }
}
