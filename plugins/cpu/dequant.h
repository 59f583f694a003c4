// dequant: weight rows to f32, in plain C for any processor. The meaning of each type; quant_avx2
// is the fast form.
#ifndef CPU_DEQUANT_H
#define CPU_DEQUANT_H

#include <stdint.h>

// row: k / elems blocks, any alignment; out: (k) f32. k is a multiple of the type's block.
typedef void (*cpu_dequant_fn)(const uint8_t *row, float *out, int64_t k);

struct cpu_quant {
    uint32_t dtype;   // enum kiln_dtype
    const char *name; // as in slots
    int32_t elems;    // values a block; divides 256
    int32_t bytes;    // bytes a block
    cpu_dequant_fn dequant;
};

// NULL for a type that this plugin does not know. The pointer is static.
const struct cpu_quant *cpu_quant_find(uint32_t dtype);

// The 6-bit scale and minimum of a group (0 .. 7) of q4_K and q5_K; scales: 12 bytes.
void cpu_scale_min(const uint8_t *scales, int group, int *scale, int *min);

float cpu_f16_to_f32(uint16_t half);
uint16_t cpu_f32_to_f16(float value); // to nearest, ties to even; NaN stays NaN

#endif
