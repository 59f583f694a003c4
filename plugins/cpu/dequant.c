// dequant: weight rows to f32, in plain C. Layouts are drawn in quant.h.
#include "dequant.h"

#include "kiln/plugin.h"
#include "quant.h"

#include <stddef.h>
#include <string.h>

static uint16_t read_u16(const uint8_t *at) {
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static float bits_to_f32(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

float cpu_f16_to_f32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 31;
    uint32_t mantissa = half & 1023;
    if (exponent == 31) {
        return bits_to_f32(sign | 0x7f800000 | mantissa << 13);
    }
    if (exponent == 0) {
        float small = (float)mantissa * 0x1p-24f;
        return sign ? -small : small;
    }
    return bits_to_f32(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t cpu_f32_to_f16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t abs = bits & 0x7fffffff;
    if (abs > 0x7f800000) { // NaN: keep it quiet, with the upper bits of its payload
        return (uint16_t)(sign | 0x7e00 | (abs >> 13 & 0x3ff));
    }
    if (abs >= 0x477ff000) { // 65520 and above round to infinity
        return (uint16_t)(sign | 0x7c00);
    }
    if (abs < 0x38800000) { // below 2^-14: adding 0.5 puts the last subnormal bit in the last place
        float magic = bits_to_f32(abs) + 0.5f;
        uint32_t sum;
        memcpy(&sum, &magic, sizeof(sum));
        return (uint16_t)(sign | (sum - 0x3f000000));
    }
    uint32_t odd = abs >> 13 & 1;
    return (uint16_t)(sign | (abs - 0x38000000 + 0xfff + odd) >> 13);
}

void cpu_scale_min(const uint8_t *scales, int group, int *scale, int *min) {
    if (group < 4) {
        *scale = scales[group] & 63;
        *min = scales[group + 4] & 63;
    } else {
        *scale = (scales[group + 4] & 15) | (scales[group - 4] >> 6) << 4;
        *min = scales[group + 4] >> 4 | (scales[group] >> 6) << 4;
    }
}

static void dequant_f32(const uint8_t *row, float *out, int64_t k) {
    memcpy(out, row, (size_t)k * sizeof(float));
}

static void dequant_f16(const uint8_t *row, float *out, int64_t k) {
    for (int64_t i = 0; i < k; i++) {
        out[i] = cpu_f16_to_f32(read_u16(row + 2 * i));
    }
}

static void dequant_bf16(const uint8_t *row, float *out, int64_t k) {
    for (int64_t i = 0; i < k; i++) {
        out[i] = bits_to_f32((uint32_t)read_u16(row + 2 * i) << 16);
    }
}

static void dequant_q4_0(const uint8_t *row, float *out, int64_t k) {
    for (int64_t at = 0; at < k; at += 32, row += CPU_Q4_0_BYTES) {
        float d = cpu_f16_to_f32(read_u16(row + CPU_Q4_0_D));
        for (int i = 0; i < 16; i++) {
            int byte = row[CPU_Q4_0_QS + i];
            out[at + i] = d * (float)((byte & 15) - 8);
            out[at + 16 + i] = d * (float)((byte >> 4) - 8);
        }
    }
}

static void dequant_q4_1(const uint8_t *row, float *out, int64_t k) {
    for (int64_t at = 0; at < k; at += 32, row += CPU_Q4_1_BYTES) {
        float d = cpu_f16_to_f32(read_u16(row + CPU_Q4_1_D));
        float m = cpu_f16_to_f32(read_u16(row + CPU_Q4_1_M));
        for (int i = 0; i < 16; i++) {
            int byte = row[CPU_Q4_1_QS + i];
            out[at + i] = d * (float)(byte & 15) + m;
            out[at + 16 + i] = d * (float)(byte >> 4) + m;
        }
    }
}

static void dequant_q5_0(const uint8_t *row, float *out, int64_t k) {
    for (int64_t at = 0; at < k; at += 32, row += CPU_Q5_0_BYTES) {
        float d = cpu_f16_to_f32(read_u16(row + CPU_Q5_0_D));
        uint32_t high = read_u32(row + CPU_Q5_0_QH);
        for (int i = 0; i < 16; i++) {
            int byte = row[CPU_Q5_0_QS + i];
            int low_bit = (int)(high >> i & 1) << 4;
            int high_bit = (int)(high >> (i + 16) & 1) << 4;
            out[at + i] = d * (float)(((byte & 15) | low_bit) - 16);
            out[at + 16 + i] = d * (float)((byte >> 4 | high_bit) - 16);
        }
    }
}

static void dequant_q8_0(const uint8_t *row, float *out, int64_t k) {
    for (int64_t at = 0; at < k; at += 32, row += CPU_Q8_0_BYTES) {
        float d = cpu_f16_to_f32(read_u16(row + CPU_Q8_0_D));
        for (int i = 0; i < 32; i++) {
            out[at + i] = d * (float)(int8_t)row[CPU_Q8_0_QS + i];
        }
    }
}

// q4_K, and q5_K where there are fifth bits (high: 32 bytes, or NULL).
static void dequant_qk(const uint8_t *block, const uint8_t *high, const uint8_t *qs, float *out) {
    float d = cpu_f16_to_f32(read_u16(block + CPU_QK_D));
    float dmin = cpu_f16_to_f32(read_u16(block + CPU_QK_DMIN));
    for (int group = 0; group < 8; group++) {
        int scale;
        int min;
        cpu_scale_min(block + CPU_QK_SCALES, group, &scale, &min);
        float factor = d * (float)scale;
        float offset = dmin * (float)min;
        for (int l = 0; l < 32; l++) {
            int byte = qs[32 * (group / 2) + l];
            int quant = group % 2 ? byte >> 4 : byte & 15;
            if (high != NULL) {
                quant |= (high[l] >> group & 1) << 4;
            }
            out[32 * group + l] = factor * (float)quant - offset;
        }
    }
}

static void dequant_q4_K(const uint8_t *row, float *out, int64_t k) {
    for (int64_t at = 0; at < k; at += 256, row += CPU_Q4_K_BYTES) {
        dequant_qk(row, NULL, row + CPU_Q4_K_QS, out + at);
    }
}

static void dequant_q5_K(const uint8_t *row, float *out, int64_t k) {
    for (int64_t at = 0; at < k; at += 256, row += CPU_Q5_K_BYTES) {
        dequant_qk(row, row + CPU_Q5_K_QH, row + CPU_Q5_K_QS, out + at);
    }
}

static void dequant_q6_K(const uint8_t *row, float *out, int64_t k) {
    for (int64_t at = 0; at < k; at += 256, row += CPU_Q6_K_BYTES) {
        float d = cpu_f16_to_f32(read_u16(row + CPU_Q6_K_D));
        for (int i = 0; i < 256; i++) {
            int half = i / 128;
            int part = i % 128 / 32;
            int l = i % 32;
            int low = row[CPU_Q6_K_QL + 64 * half + 32 * (part % 2) + l];
            low = part < 2 ? low & 15 : low >> 4;
            int high = row[CPU_Q6_K_QH + 32 * half + l] >> (2 * part) & 3;
            float scale = d * (float)(int8_t)row[CPU_Q6_K_SCALES + i / 16];
            out[at + i] = scale * (float)((low | high << 4) - 32);
        }
    }
}

static const struct cpu_quant quants[] = {
        {KILN_DTYPE_F32, "f32", 1, 4, dequant_f32},
        {KILN_DTYPE_F16, "f16", 1, 2, dequant_f16},
        {KILN_DTYPE_BF16, "bf16", 1, 2, dequant_bf16},
        {KILN_DTYPE_Q4_0, "q4_0", 32, CPU_Q4_0_BYTES, dequant_q4_0},
        {KILN_DTYPE_Q4_1, "q4_1", 32, CPU_Q4_1_BYTES, dequant_q4_1},
        {KILN_DTYPE_Q5_0, "q5_0", 32, CPU_Q5_0_BYTES, dequant_q5_0},
        {KILN_DTYPE_Q8_0, "q8_0", 32, CPU_Q8_0_BYTES, dequant_q8_0},
        {KILN_DTYPE_Q4_K, "q4_K", 256, CPU_Q4_K_BYTES, dequant_q4_K},
        {KILN_DTYPE_Q5_K, "q5_K", 256, CPU_Q5_K_BYTES, dequant_q5_K},
        {KILN_DTYPE_Q6_K, "q6_K", 256, CPU_Q6_K_BYTES, dequant_q6_K},
};

const struct cpu_quant *cpu_quant_find(uint32_t dtype) {
    for (size_t i = 0; i < sizeof(quants) / sizeof(quants[0]); i++) {
        if (quants[i].dtype == dtype) {
            return &quants[i];
        }
    }
    return NULL;
}
