// quant: the meaning of each block type, then one plain quantizer for each.
//
// Not here: sizes and names of the types (dtype.h), fast forms (the plugins').
#include "model/quant.h"

#include "model/dtype.h"

#include <math.h>
#include <string.h>

// ---- Numbers ------------------------------------------------------------------------------------

static uint16_t get_u16(const uint8_t *at) {
    return (uint16_t)(at[0] | at[1] << 8);
}

static void put_u16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static float f32_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_of_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

float kiln_f16_to_f32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 31, mantissa = half & 1023;
    if (exponent == 0) {
        float small = (float)mantissa * 0x1p-24f;
        return sign ? -small : small;
    }
    return f32_of_bits(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | mantissa << 13);
}

uint16_t kiln_f32_to_f16(float value) {
    uint32_t bits = bits_of_f32(value);
    uint32_t sign = bits >> 16 & 0x8000, abs = bits & 0x7fffffff;
    if (abs > 0x7f800000) { // NaN: quiet, with the upper bits of its payload
        return (uint16_t)(sign | 0x7e00 | (abs >> 13 & 0x1ff));
    }
    if (abs >= 0x477ff000) { // 65520
        return (uint16_t)(sign | 0x7c00);
    }
    if (abs < 0x38800000) { // below 2^-14: the sum's last place is that of a subnormal half
        return (uint16_t)(sign | (bits_of_f32(f32_of_bits(abs) + 0.5f) - 0x3f000000));
    }
    return (uint16_t)(sign | (abs - 0x38000000 + 0xfff + (abs >> 13 & 1)) >> 13);
}

uint16_t kiln_f32_to_bf16(float value) {
    uint32_t bits = bits_of_f32(value);
    if ((bits & 0x7fffffff) > 0x7f800000) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float get_f16(const uint8_t *at) {
    return kiln_f16_to_f32(get_u16(at));
}

// Stores a scale and gives what a reader will see of it.
static float put_f16(uint8_t *at, float value) {
    value = value > 65504.0f ? 65504.0f : value < -65504.0f ? -65504.0f : value;
    put_u16(at, kiln_f32_to_f16(value));
    return get_f16(at);
}

// value / step to the nearest whole number in [low, high]; a step of 0 gives 0, where that is in
// range.
static int nearest(float value, float step, int low, int high) {
    float ratio = step != 0.0f ? value / step : 0.0f;
    if (!(ratio > (float)low)) { // NaN too
        return low;
    }
    return ratio < (float)high ? (int)lrintf(ratio) : high;
}

void kiln_unpack_scales(const uint8_t *packed, uint8_t scales[8], uint8_t mins[8]) {
    for (int g = 0; g < 4; g++) {
        scales[g] = packed[g] & 63;
        mins[g] = packed[g + 4] & 63;
        scales[g + 4] = (uint8_t)((packed[g + 8] & 15) | packed[g] >> 6 << 4);
        mins[g + 4] = (uint8_t)(packed[g + 8] >> 4 | packed[g + 4] >> 6 << 4);
    }
}

void kiln_pack_scales(const uint8_t scales[8], const uint8_t mins[8], uint8_t *packed) {
    for (int g = 0; g < 4; g++) {
        packed[g] = (uint8_t)((scales[g] & 63) | scales[g + 4] >> 4 << 6);
        packed[g + 4] = (uint8_t)((mins[g] & 63) | mins[g + 4] >> 4 << 6);
        packed[g + 8] = (uint8_t)((scales[g + 4] & 15) | mins[g + 4] << 4);
    }
}

// ---- One block to f32 ---------------------------------------------------------------------------

static void read_f32(const uint8_t *block, float *out) {
    memcpy(out, block, sizeof(*out));
}

static void read_f16(const uint8_t *block, float *out) {
    *out = get_f16(block);
}

static void read_bf16(const uint8_t *block, float *out) {
    *out = f32_of_bits((uint32_t)get_u16(block) << 16);
}

static void read_q4_0(const uint8_t *block, float *out) {
    float d = get_f16(block);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((block[2 + i] & 15) - 8);
        out[i + 16] = d * (float)((block[2 + i] >> 4) - 8);
    }
}

static void read_q4_1(const uint8_t *block, float *out) {
    float d = get_f16(block), m = get_f16(block + 2);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)(block[4 + i] & 15) + m;
        out[i + 16] = d * (float)(block[4 + i] >> 4) + m;
    }
}

static void read_q5_0(const uint8_t *block, float *out) {
    float d = get_f16(block);
    uint32_t high = get_u16(block + 2) | (uint32_t)get_u16(block + 4) << 16;
    for (int i = 0; i < 32; i++) {
        int nibble = i < 16 ? block[6 + i] & 15 : block[6 + i - 16] >> 4;
        out[i] = d * (float)((nibble | (int)(high >> i & 1) << 4) - 16);
    }
}

static void read_q8_0(const uint8_t *block, float *out) {
    float d = get_f16(block);
    for (int i = 0; i < 32; i++) {
        out[i] = d * (float)(int8_t)block[2 + i];
    }
}

// q4_K, and q5_K where there are fifth bits (high; else NULL).
static void read_qk(const uint8_t *block, const uint8_t *high, const uint8_t *qs, float *out) {
    float d = get_f16(block), dmin = get_f16(block + 2);
    uint8_t scales[8], mins[8];
    kiln_unpack_scales(block + 4, scales, mins);
    for (size_t i = 0; i < 256; i++) {
        size_t g = i / 32, l = i % 32;
        int quant = qs[g / 2 * 32 + l] >> g % 2 * 4 & 15;
        quant |= high ? (high[l] >> g & 1) << 4 : 0;
        out[i] = d * (float)scales[g] * (float)quant - dmin * (float)mins[g];
    }
}

static void read_q4_k(const uint8_t *block, float *out) {
    read_qk(block, NULL, block + 16, out);
}

static void read_q5_k(const uint8_t *block, float *out) {
    read_qk(block, block + 16, block + 48, out);
}

static void read_q6_k(const uint8_t *block, float *out) {
    float d = get_f16(block + 208);
    for (size_t i = 0; i < 256; i++) {
        size_t half = i / 128, part = i % 128 / 32, l = i % 32;
        int low = block[64 * half + 32 * (part % 2) + l] >> part / 2 * 4 & 15;
        int high = block[128 + 32 * half + l] >> 2 * part & 3;
        out[i] = d * (float)(int8_t)block[192 + i / 16] * (float)((low | high << 4) - 32);
    }
}

// ---- f32 to one block ---------------------------------------------------------------------------

static void write_f32(const float *in, uint8_t *block) {
    memcpy(block, in, sizeof(*in));
}

static void write_f16(const float *in, uint8_t *block) {
    put_u16(block, kiln_f32_to_f16(*in));
}

static void write_bf16(const float *in, uint8_t *block) {
    put_u16(block, kiln_f32_to_bf16(*in));
}

// The value of the largest magnitude, sign kept.
static float largest(const float *in, int count) {
    float found = 0;
    for (int i = 0; i < count; i++) {
        found = fabsf(in[i]) > fabsf(found) ? in[i] : found;
    }
    return found;
}

static void write_q4_0(const float *in, uint8_t *block) {
    float d = put_f16(block, largest(in, 32) / -8.0f);
    for (int i = 0; i < 16; i++) {
        int low = nearest(in[i], d, -8, 7) + 8, high = nearest(in[i + 16], d, -8, 7) + 8;
        block[2 + i] = (uint8_t)(low | high << 4);
    }
}

static void write_q4_1(const float *in, uint8_t *block) {
    float min = in[0], max = in[0];
    for (int i = 1; i < 32; i++) {
        min = in[i] < min ? in[i] : min;
        max = in[i] > max ? in[i] : max;
    }
    float m = put_f16(block + 2, min);
    float d = put_f16(block, (max - m) / 15.0f);
    for (int i = 0; i < 16; i++) {
        int low = nearest(in[i] - m, d, 0, 15), high = nearest(in[i + 16] - m, d, 0, 15);
        block[4 + i] = (uint8_t)(low | high << 4);
    }
}

static void write_q5_0(const float *in, uint8_t *block) {
    float d = put_f16(block, largest(in, 32) / -16.0f);
    uint32_t high = 0;
    memset(block + 6, 0, 16);
    for (int i = 0; i < 32; i++) {
        int quant = nearest(in[i], d, -16, 15) + 16;
        block[6 + i % 16] = (uint8_t)(block[6 + i % 16] | (quant & 15) << i / 16 * 4);
        high |= (uint32_t)(quant >> 4) << i;
    }
    put_u16(block + 2, (uint16_t)high);
    put_u16(block + 4, (uint16_t)(high >> 16));
}

static void write_q8_0(const float *in, uint8_t *block) {
    float d = put_f16(block, fabsf(largest(in, 32)) / 127.0f);
    for (int i = 0; i < 32; i++) {
        block[2 + i] = (uint8_t)nearest(in[i], d, -127, 127);
    }
}

// d, dmin, scales of q4_K and q5_K; then the numbers, up to `top`.
static void write_qk(const float *in, int top, uint8_t *block, uint8_t quants[256]) {
    float steps[8], lows[8]; // of each group: distance of two numbers, and minus its smallest value
    float max_step = 0, max_low = 0;
    for (size_t g = 0; g < 8; g++) {
        float min = 0, max = in[32 * g];
        for (size_t l = 0; l < 32; l++) {
            float value = in[32 * g + l];
            min = value < min ? value : min;
            max = value > max ? value : max;
        }
        steps[g] = (max - min) / (float)top;
        steps[g] = steps[g] > 0 ? steps[g] : 0;
        lows[g] = -min;
        max_step = steps[g] > max_step ? steps[g] : max_step;
        max_low = lows[g] > max_low ? lows[g] : max_low;
    }
    float d = put_f16(block, max_step / 63.0f), dmin = put_f16(block + 2, max_low / 63.0f);
    uint8_t scales[8], mins[8];
    for (int g = 0; g < 8; g++) {
        scales[g] = (uint8_t)nearest(steps[g], d, 0, 63);
        mins[g] = (uint8_t)nearest(lows[g], dmin, 0, 63);
    }
    kiln_pack_scales(scales, mins, block + 4);
    for (int i = 0; i < 256; i++) {
        int g = i / 32;
        float step = d * (float)scales[g], low = dmin * (float)mins[g];
        quants[i] = (uint8_t)nearest(in[i] + low, step, 0, top);
    }
}

static void put_nibbles(const uint8_t quants[256], uint8_t *qs) {
    for (int i = 0; i < 128; i++) {
        int at = i / 32 * 64 + i % 32;
        qs[i] = (uint8_t)((quants[at] & 15) | quants[at + 32] << 4);
    }
}

static void write_q4_k(const float *in, uint8_t *block) {
    uint8_t quants[256];
    write_qk(in, 15, block, quants);
    put_nibbles(quants, block + 16);
}

static void write_q5_k(const float *in, uint8_t *block) {
    uint8_t quants[256];
    write_qk(in, 31, block, quants);
    put_nibbles(quants, block + 48);
    memset(block + 16, 0, 32);
    for (int i = 0; i < 256; i++) {
        block[16 + i % 32] = (uint8_t)(block[16 + i % 32] | quants[i] >> 4 << i / 32);
    }
}

static void write_q6_k(const float *in, uint8_t *block) {
    float steps[16], max_step = 0;
    for (size_t g = 0; g < 16; g++) {
        steps[g] = largest(in + 16 * g, 16) / -32.0f;
        max_step = fabsf(steps[g]) > max_step ? fabsf(steps[g]) : max_step;
    }
    float d = put_f16(block + 208, max_step / 127.0f);
    memset(block, 0, 192);
    for (size_t g = 0; g < 16; g++) {
        int scale = nearest(steps[g], d, -127, 127);
        block[192 + g] = (uint8_t)scale;
        for (size_t i = 16 * g; i < 16 * g + 16; i++) {
            size_t half = i / 128, part = i % 128 / 32, l = i % 32;
            int quant = nearest(in[i], d * (float)scale, -32, 31) + 32;
            uint8_t *low = block + 64 * half + 32 * (part % 2) + l;
            uint8_t *high = block + 128 + 32 * half + l;
            *low = (uint8_t)(*low | (quant & 15) << part / 2 * 4);
            *high = (uint8_t)(*high | quant >> 4 << 2 * part);
        }
    }
}

// ---- Rows ---------------------------------------------------------------------------------------

struct codec {
    uint32_t dtype;
    void (*read)(const uint8_t *block, float *out);
    void (*write)(const float *in, uint8_t *block);
};

static const struct codec codecs[] = {
        // clang-format off
        {KILN_DTYPE_F32,  read_f32,  write_f32},
        {KILN_DTYPE_F16,  read_f16,  write_f16},
        {KILN_DTYPE_BF16, read_bf16, write_bf16},
        {KILN_DTYPE_Q4_0, read_q4_0, write_q4_0},
        {KILN_DTYPE_Q4_1, read_q4_1, write_q4_1},
        {KILN_DTYPE_Q5_0, read_q5_0, write_q5_0},
        {KILN_DTYPE_Q8_0, read_q8_0, write_q8_0},
        {KILN_DTYPE_Q4_K, read_q4_k, write_q4_k},
        {KILN_DTYPE_Q5_K, read_q5_k, write_q5_k},
        {KILN_DTYPE_Q6_K, read_q6_k, write_q6_k},
        // clang-format on
};

static const struct codec *find_codec(uint32_t dtype) {
    for (size_t i = 0; i < sizeof(codecs) / sizeof(codecs[0]); i++) {
        if (codecs[i].dtype == dtype) {
            return &codecs[i];
        }
    }
    return NULL;
}

int kiln_dequant_row(uint32_t dtype, const void *src, float *dst, size_t n) {
    const struct codec *codec = find_codec(dtype);
    const struct kiln_dtype_info *info = kiln_dtype_info(dtype);
    if (!codec || !info || n % info->elems != 0) {
        return -1;
    }
    const uint8_t *block = src;
    for (size_t i = 0; i < n; i += info->elems, block += info->bytes) {
        codec->read(block, dst + i);
    }
    return 0;
}

int kiln_quantize_row(uint32_t dtype, const float *src, void *dst, size_t n) {
    const struct codec *codec = find_codec(dtype);
    const struct kiln_dtype_info *info = kiln_dtype_info(dtype);
    if (!codec || !info || n % info->elems != 0) {
        return -1;
    }
    uint8_t *block = dst;
    for (size_t i = 0; i < n; i += info->elems, block += info->bytes) {
        codec->write(src + i, block);
    }
    return 0;
}
