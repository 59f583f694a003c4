// synth_blocks: one filler a type, and the arithmetic that gives all of them the same mean and
// variance.
//
// With quants uniform over 2^b numbers, a value d * scale * (q - center) has the variance
// d^2 * E[scale^2] * E[(q - center)^2]. Where the format has a minimum, it is chosen to be exactly
// d * scale * center, which makes the mean zero; where it has none the center is half a number off,
// and a random sign of the scale makes up for it.
//
// Not here: which tensors there are (synth.c), what the bytes mean (quant.h).
#include "model/synth_blocks.h"

#include "model/dtype.h"
#include "model/quant.h"

#include <math.h>
#include <string.h>

uint64_t kiln_synth_next(struct kiln_synth_rng *rng) { // splitmix64 (Steele, Lea, Flood 2014)
    uint64_t z = rng->state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static void fill_bytes(struct kiln_synth_rng *rng, uint8_t *out, size_t size) {
    for (size_t at = 0; at < size; at += 8) { // sizes are multiples of 8
        uint64_t word = kiln_synth_next(rng);
        memcpy(out + at, &word, sizeof(word));
    }
}

static void put_u16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static float uniform(struct kiln_synth_rng *rng, float limit) {
    // 24 bits, centered: no value more likely than its negative
    return ((float)(kiln_synth_next(rng) >> 40) + 0.5f) * (limit * 0x1p-23f) - limit;
}

static void fill_f32(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *block) {
    float value = uniform(rng, b->limit);
    memcpy(block, &value, sizeof(value));
}

static void fill_f16(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *block) {
    put_u16(block, kiln_f32_to_f16(uniform(rng, b->limit)));
}

static void fill_bf16(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *block) {
    put_u16(block, kiln_f32_to_bf16(uniform(rng, b->limit)));
}

// A scale of random sign.
static void put_signed(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *block) {
    uint64_t word = kiln_synth_next(rng);
    put_u16(block, (uint16_t)(b->d[word & 15] | (word >> 4 & 1) << 15));
}

static void fill_q4_0(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *block) {
    put_signed(b, rng, block);
    fill_bytes(rng, block + 2, 16);
}

static void fill_q4_1(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *block) {
    uint64_t level = kiln_synth_next(rng) & 15;
    put_u16(block, b->d[level]);
    put_u16(block + 2, b->low[level]);
    fill_bytes(rng, block + 4, 16);
}

static void fill_q5_0(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *block) {
    put_signed(b, rng, block);
    uint64_t high = kiln_synth_next(rng);
    memcpy(block + 2, &high, 4);
    fill_bytes(rng, block + 6, 16);
}

static void fill_q8_0(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *block) {
    put_u16(block, b->d[kiln_synth_next(rng) & 15]);
    fill_bytes(rng, block + 2, 32);
    for (int i = 2; i < 34; i++) {
        block[i] = block[i] == 0x80 ? 0 : block[i]; // -128 has no counterpart
    }
}

// d, dmin and scales of q4_K and q5_K. Scales are 16..31 and minimums twice as large, not the same,
// so that reading one for the other shows.
static void put_scales(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *block) {
    uint64_t word = kiln_synth_next(rng);
    uint8_t scales[8], mins[8];
    for (int g = 0; g < 8; g++) {
        scales[g] = (uint8_t)(16 + (word >> 4 * g & 15));
        mins[g] = (uint8_t)(2 * scales[g]);
    }
    put_u16(block, b->d[word >> 32 & 15]);
    put_u16(block + 2, b->low[word >> 32 & 15]);
    kiln_pack_scales(scales, mins, block + 4);
}

static void fill_q4_k(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *block) {
    put_scales(b, rng, block);
    fill_bytes(rng, block + 16, 128);
}

static void fill_q5_k(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *block) {
    put_scales(b, rng, block);
    fill_bytes(rng, block + 16, 160);
}

static void fill_q6_k(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *block) {
    fill_bytes(rng, block, 192);
    uint64_t sizes[2] = {kiln_synth_next(rng), kiln_synth_next(rng)};
    for (int g = 0; g < 16; g++) { // 32..63 of either sign
        int bits = (int)(sizes[g / 8] >> g % 8 * 6 & 63);
        int scale = 32 + (bits & 31);
        block[192 + g] = (uint8_t)(bits & 32 ? -scale : scale);
    }
    put_u16(block + 208, b->d[sizes[0] >> 48 & 15]);
}

struct filler {
    uint32_t dtype;
    void (*fill)(const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *block);
    double square; // mean of (scale * (q - center))^2; 0: no blocks
    double low;    // the minimum (or its scale) as a multiple of d; 0: none
};

// E[(q - 7.5)^2] = (16^2 - 1) / 12 = 21.25, E[(q - 8)^2] = 21.5; with 32 numbers 85.25 and 85.5;
// with 64, off by a half, 341.5. q8_0: the squares of 1..127 twice, over 256. Scales 16..31: E[s^2]
// = 573.5; 32..63: 2341.5.
static const struct filler fillers[] = {
        // clang-format off
        {KILN_DTYPE_F32,  fill_f32,  0, 0},
        {KILN_DTYPE_F16,  fill_f16,  0, 0},
        {KILN_DTYPE_BF16, fill_bf16, 0, 0},
        {KILN_DTYPE_Q4_0, fill_q4_0, 21.5, 0},
        {KILN_DTYPE_Q4_1, fill_q4_1, 21.25, -7.5},
        {KILN_DTYPE_Q5_0, fill_q5_0, 85.5, 0},
        {KILN_DTYPE_Q8_0, fill_q8_0, 5397.5, 0},
        {KILN_DTYPE_Q4_K, fill_q4_k, 573.5 * 21.25, 7.5 / 2},
        {KILN_DTYPE_Q5_K, fill_q5_k, 573.5 * 85.25, 15.5 / 2},
        {KILN_DTYPE_Q6_K, fill_q6_k, 2341.5 * 341.5, 0},
        // clang-format on
};

static const struct filler *find_filler(uint32_t dtype) {
    for (size_t i = 0; i < sizeof(fillers) / sizeof(fillers[0]); i++) {
        if (fillers[i].dtype == dtype) {
            return &fillers[i];
        }
    }
    return NULL;
}

int kiln_synth_blocks_init(struct kiln_synth_blocks *b, uint32_t dtype, double variance) {
    const struct filler *filler = find_filler(dtype);
    if (!filler) {
        return -1;
    }
    *b = (struct kiln_synth_blocks){.dtype = dtype, .limit = (float)sqrt(3 * variance)};
    double mean_square = 0;
    for (int i = 0; i < KILN_SYNTH_LEVELS; i++) {
        double factor = 0.75 + i / 30.0;
        mean_square += factor * factor / KILN_SYNTH_LEVELS;
    }
    for (int i = 0; i < KILN_SYNTH_LEVELS && filler->square > 0; i++) {
        // Six bits of d leave room in an f16 for its product with the five bits of `low`: the
        // minimum is then exact, and the mean zero.
        int exponent;
        double middle = sqrt(variance / (filler->square * mean_square));
        double fraction = frexp(middle * (0.75 + i / 30.0), &exponent);
        double d = ldexp(rint(ldexp(fraction, 6)), exponent - 6);
        b->d[i] = kiln_f32_to_f16((float)d);
        b->low[i] = kiln_f32_to_f16((float)(d * filler->low));
    }
    return 0;
}

void kiln_synth_fill(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *out, size_t count) {
    const struct filler *filler = find_filler(b->dtype);
    const struct kiln_dtype_info *info = kiln_dtype_info(b->dtype);
    for (size_t i = 0; filler && info && i < count; i++) {
        filler->fill(b, rng, out + i * info->bytes);
    }
}
