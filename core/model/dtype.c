// dtype: the table. Not here: what a block's bytes mean.
#include "model/dtype.h"

#include <stddef.h>
#include <string.h>

static const struct kiln_dtype_info infos[] = {
        // clang-format off
        {KILN_DTYPE_F32,  "f32",  1,   4,   1},
        {KILN_DTYPE_F16,  "f16",  1,   2,   1},
        {KILN_DTYPE_BF16, "bf16", 1,   2,   1},
        {KILN_DTYPE_Q4_0, "q4_0", 32,  18,  1}, // f16 d, 16 bytes of nibbles
        {KILN_DTYPE_Q4_1, "q4_1", 32,  20,  1}, // f16 d and m, 16 bytes of nibbles
        {KILN_DTYPE_Q5_0, "q5_0", 32,  22,  1}, // f16 d, 32 fifth bits, 16 bytes of nibbles
        {KILN_DTYPE_Q5_1, "q5_1", 32,  24,  0}, // f16 d and m, 32 fifth bits, 16 bytes of nibbles
        {KILN_DTYPE_Q8_0, "q8_0", 32,  34,  1}, // f16 d, 32 bytes
        {KILN_DTYPE_Q2_K, "q2_K", 256, 84,  0}, // 16 scales, 64 bytes of 2 bits, f16 d and dmin
        {KILN_DTYPE_Q3_K, "q3_K", 256, 110, 0}, // 32 high bits, 64 2 bits, 12 scales, f16 d
        {KILN_DTYPE_Q4_K, "q4_K", 256, 144, 1}, // f16 d, dmin, 12 scales, 128 nibbles
        {KILN_DTYPE_Q5_K, "q5_K", 256, 176, 1}, // as q4_K with 32 bytes of fifth bits
        {KILN_DTYPE_Q6_K, "q6_K", 256, 210, 1}, // 128 nibbles, 64 2 bits, 16 scales, f16 d
        {KILN_DTYPE_I8,   "i8",   1,   1,   0},
        {KILN_DTYPE_I16,  "i16",  1,   2,   0},
        {KILN_DTYPE_I32,  "i32",  1,   4,   0},
        {KILN_DTYPE_I64,  "i64",  1,   8,   0},
        {KILN_DTYPE_F64,  "f64",  1,   8,   0},
        // clang-format on
};

enum {
    COUNT = sizeof(infos) / sizeof(infos[0])
};

const struct kiln_dtype_info *kiln_dtype_info(uint32_t dtype) {
    for (uint32_t i = 0; i < COUNT; i++) {
        if (infos[i].dtype == dtype) {
            return &infos[i];
        }
    }
    return NULL;
}

const struct kiln_dtype_info *kiln_dtype_by_name(const char *name) {
    for (uint32_t i = 0; i < COUNT; i++) {
        if (strcmp(infos[i].name, name) == 0) {
            return &infos[i];
        }
    }
    return NULL;
}

const struct kiln_dtype_info *kiln_dtype_at(uint32_t index) {
    return index < COUNT ? &infos[index] : NULL;
}
