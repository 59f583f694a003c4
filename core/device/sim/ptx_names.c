// ptx_names: how opcodes and types are called, and how wide types are.
#include "device/sim/ptx.h"

const char *kiln_ptx_op_name(enum kiln_ptx_op op) {
    static const char *const names[] = {
#define KILN_PTX_OP_NAME(name) #name,
            KILN_PTX_OPS(KILN_PTX_OP_NAME)
#undef KILN_PTX_OP_NAME
    };
    return op < KILN_PTX_N_OPS ? names[op] : "?";
}

static const struct {
    const char *name;
    uint32_t bits;
} types[KILN_PTX_N_TYPES] = {
        [KILN_PTX_NOTYPE] = {"", 0},
        [KILN_PTX_PRED] = {"pred", 1},
        [KILN_PTX_B8] = {"b8", 8},
        [KILN_PTX_B16] = {"b16", 16},
        [KILN_PTX_B32] = {"b32", 32},
        [KILN_PTX_B64] = {"b64", 64},
        [KILN_PTX_B128] = {"b128", 128},
        [KILN_PTX_B1] = {"b1", 1},
        [KILN_PTX_U4] = {"u4", 4},
        [KILN_PTX_U8] = {"u8", 8},
        [KILN_PTX_U16] = {"u16", 16},
        [KILN_PTX_U32] = {"u32", 32},
        [KILN_PTX_U64] = {"u64", 64},
        [KILN_PTX_S4] = {"s4", 4},
        [KILN_PTX_S8] = {"s8", 8},
        [KILN_PTX_S16] = {"s16", 16},
        [KILN_PTX_S32] = {"s32", 32},
        [KILN_PTX_S64] = {"s64", 64},
        [KILN_PTX_F16] = {"f16", 16},
        [KILN_PTX_F16X2] = {"f16x2", 32},
        [KILN_PTX_BF16] = {"bf16", 16},
        [KILN_PTX_BF16X2] = {"bf16x2", 32},
        [KILN_PTX_TF32] = {"tf32", 32},
        [KILN_PTX_F32] = {"f32", 32},
        [KILN_PTX_F64] = {"f64", 64},
        [KILN_PTX_U16X2] = {"u16x2", 32},
        [KILN_PTX_S16X2] = {"s16x2", 32},
};

const char *kiln_ptx_type_name(enum kiln_ptx_type type) {
    return type < KILN_PTX_N_TYPES ? types[type].name : "?";
}

uint32_t kiln_ptx_type_bits(enum kiln_ptx_type type) {
    return type < KILN_PTX_N_TYPES ? types[type].bits : 0;
}
