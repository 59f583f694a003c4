// select: which code runs an instruction. The plain cases stand in one table by opcode, modifier
// and type; those that need more than a look are below it.
#include "device/sim/run_impl.h"

#include <stddef.h>

enum {
    ANY = 255
};

struct choice {
    uint8_t op, sub, type;
    uint16_t number;
};

// clang-format off
#define ROW(op, sub, type, number) {KILN_PTX_OP_##op, sub, KILN_PTX_##type, SIM_OP_##number}
#define SIGNED(op, sub, name) \
    ROW(op, sub, U16, name##_U16), ROW(op, sub, S16, name##_S16), \
    ROW(op, sub, U32, name##_U32), ROW(op, sub, S32, name##_S32), \
    ROW(op, sub, U64, name##_U64), ROW(op, sub, S64, name##_S64)
#define BITS(op, sub, name) \
    ROW(op, sub, U16, name##_B16), ROW(op, sub, S16, name##_B16), ROW(op, sub, B16, name##_B16), \
    ROW(op, sub, U32, name##_B32), ROW(op, sub, S32, name##_B32), ROW(op, sub, B32, name##_B32), \
    ROW(op, sub, U64, name##_B64), ROW(op, sub, S64, name##_B64), ROW(op, sub, B64, name##_B64)
#define HALVES(op, name) \
    ROW(op, ANY, F16, name##_F16), ROW(op, ANY, F16X2, name##_F16X2), \
    ROW(op, ANY, BF16, name##_BF16), ROW(op, ANY, BF16X2, name##_BF16X2)

static const struct choice choices[] = {
    BITS(ADD, ANY, ADD), HALVES(ADD, ADD), ROW(ADD, ANY, F64, ADD_F64),
    BITS(SUB, ANY, SUB), HALVES(SUB, SUB), ROW(SUB, ANY, F64, SUB_F64),
    HALVES(MUL, MUL), ROW(MUL, ANY, F64, MUL_F64),
    BITS(MUL, KILN_PTX_LO, MUL_LO), SIGNED(MUL, KILN_PTX_HI, MUL_HI),
    ROW(MUL, KILN_PTX_WIDE, U16, MUL_WIDE_U16), ROW(MUL, KILN_PTX_WIDE, S16, MUL_WIDE_S16),
    ROW(MUL, KILN_PTX_WIDE, U32, MUL_WIDE_U32), ROW(MUL, KILN_PTX_WIDE, S32, MUL_WIDE_S32),
    BITS(MAD, KILN_PTX_LO, MAD_LO), SIGNED(MAD, KILN_PTX_HI, MAD_HI),
    ROW(MAD, KILN_PTX_WIDE, U16, MAD_WIDE_U16), ROW(MAD, KILN_PTX_WIDE, S16, MAD_WIDE_S16),
    ROW(MAD, KILN_PTX_WIDE, U32, MAD_WIDE_U32), ROW(MAD, KILN_PTX_WIDE, S32, MAD_WIDE_S32),
    HALVES(FMA, FMA), ROW(FMA, ANY, F64, FMA_F64), ROW(MAD, ANY, F64, FMA_F64),
    ROW(MUL24, KILN_PTX_LO, U32, MUL24_LO_U32), ROW(MUL24, KILN_PTX_HI, U32, MUL24_HI_U32),
    ROW(MUL24, KILN_PTX_LO, S32, MUL24_LO_S32), ROW(MUL24, KILN_PTX_HI, S32, MUL24_HI_S32),
    ROW(MAD24, KILN_PTX_LO, U32, MAD24_LO_U32), ROW(MAD24, KILN_PTX_LO, S32, MAD24_LO_S32),
    SIGNED(SAD, ANY, SAD),
    SIGNED(DIV, ANY, DIV), ROW(DIV, ANY, F64, DIV_F64), SIGNED(REM, ANY, REM),
    ROW(ABS, ANY, S16, ABS_S16), ROW(ABS, ANY, S32, ABS_S32), ROW(ABS, ANY, S64, ABS_S64),
    HALVES(ABS, ABS), ROW(ABS, ANY, F64, ABS_F64),
    BITS(NEG, ANY, NEG), HALVES(NEG, NEG), ROW(NEG, ANY, F64, NEG_F64),
    SIGNED(MIN, ANY, MIN), HALVES(MIN, MIN), ROW(MIN, ANY, F64, MIN_F64),
    SIGNED(MAX, ANY, MAX), HALVES(MAX, MAX), ROW(MAX, ANY, F64, MAX_F64),
    ROW(POPC, ANY, B32, POPC_B32), ROW(POPC, ANY, B64, POPC_B64),
    ROW(CLZ, ANY, B32, CLZ_B32), ROW(CLZ, ANY, B64, CLZ_B64),
    ROW(BREV, ANY, B32, BREV_B32), ROW(BREV, ANY, B64, BREV_B64),
    ROW(BFE, ANY, U32, BFE_U32), ROW(BFE, ANY, S32, BFE_S32),
    ROW(BFE, ANY, U64, BFE_U64), ROW(BFE, ANY, S64, BFE_S64),
    ROW(BFI, ANY, B32, BFI_B32), ROW(BFI, ANY, B64, BFI_B64),
    ROW(SZEXT, 0, U32, SZEXT_U32), ROW(SZEXT, 0, S32, SZEXT_S32),
    ROW(BMSK, 0, B32, BMSK_CLAMP), ROW(BMSK, 1, B32, BMSK_WRAP),
    ROW(FNS, ANY, B32, FNS_B32),
    ROW(SQRT, ANY, F32, SQRT_F32), ROW(SQRT, ANY, F64, SQRT_F64),
    ROW(RCP, KILN_PTX_APPROX, F64, RCP_APPROX_F64), ROW(RCP, ANY, F64, RCP_F64),
    ROW(RSQRT, ANY, F32, RSQRT_F32), ROW(RSQRT, ANY, F64, RSQRT_F64),
    ROW(SIN, ANY, F32, SIN_F32), ROW(COS, ANY, F32, COS_F32), ROW(LG2, ANY, F32, LG2_F32),
    HALVES(EX2, EX2), ROW(TANH, ANY, F32, TANH_F32), HALVES(TANH, TANH),
    ROW(COPYSIGN, ANY, F32, COPYSIGN_F32), ROW(COPYSIGN, ANY, F64, COPYSIGN_F64),
    BITS(AND, ANY, AND), BITS(OR, ANY, OR), BITS(XOR, ANY, XOR), BITS(NOT, ANY, NOT),
    BITS(CNOT, ANY, CNOT),
    ROW(AND, ANY, PRED, AND_PRED), ROW(OR, ANY, PRED, OR_PRED), ROW(XOR, ANY, PRED, XOR_PRED),
    ROW(NOT, ANY, PRED, NOT_PRED), ROW(MOV, ANY, PRED, MOV_PRED),
    BITS(SHL, ANY, SHL), SIGNED(SHR, ANY, SHR),
    ROW(SHR, ANY, B16, SHR_U16), ROW(SHR, ANY, B32, SHR_U32), ROW(SHR, ANY, B64, SHR_U64),
    ROW(SHF, 0, B32, SHF_L_CLAMP), ROW(SHF, 1, B32, SHF_L_WRAP),
    ROW(SHF, 2, B32, SHF_R_CLAMP), ROW(SHF, 3, B32, SHF_R_WRAP),
};
// clang-format on

static const struct choice *choose(const struct kiln_ptx_insn *insn) {
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        const struct choice *c = &choices[i];
        uint8_t sub = insn->op == KILN_PTX_OP_RCP ? insn->round : insn->sub;
        if (c->op == insn->op && c->type == insn->type && (c->sub == ANY || c->sub == sub)) {
            return c;
        }
    }
    return NULL;
}

static uint32_t modifiers(const struct kiln_ptx_insn *insn) {
    uint32_t mode = 0;
    mode |= insn->flags & KILN_PTX_FTZ ? SIM_MODE_FTZ : 0;
    mode |= insn->flags & KILN_PTX_SAT ? SIM_MODE_SAT : 0;
    mode |= insn->flags & KILN_PTX_NAN_FLAG ? SIM_MODE_NAN : 0;
    mode |= insn->flags & KILN_PTX_RELU ? SIM_MODE_RELU : 0;
    mode |= insn->flags & KILN_PTX_XORSIGN ? SIM_MODE_XORSIGN : 0;
    return mode;
}

static int is_float(uint8_t type) {
    return type == KILN_PTX_F32 || type == KILN_PTX_F64;
}

static int is_signed(uint8_t type) {
    return type == KILN_PTX_S8 || type == KILN_PTX_S16 || type == KILN_PTX_S32 ||
           type == KILN_PTX_S64 || type == KILN_PTX_S4;
}

// Bytes of a lane in its register.
static uint32_t lane_bytes(uint8_t type) {
    uint32_t bits = kiln_ptx_type_bits((enum kiln_ptx_type)type);
    return bits <= 32 ? 4 : bits / 8;
}

static int is_directed(const struct kiln_ptx_insn *insn) {
    return is_float(insn->type) &&
           (insn->round == KILN_PTX_RZ || insn->round == KILN_PTX_RM || insn->round == KILN_PTX_RP);
}

// f32 has a handler for the plain form and one for every modifier.
static int select_f32(const struct kiln_ptx_insn *insn) {
    int plain = !(insn->flags & (KILN_PTX_FTZ | KILN_PTX_SAT | KILN_PTX_NAN_FLAG));
    int ftz = (insn->flags & KILN_PTX_FTZ) != 0;
    if (insn->flags & (KILN_PTX_XORSIGN | KILN_PTX_RELU)) {
        return -1;
    }
    switch (insn->op) {
    case KILN_PTX_OP_ADD:
        return plain ? SIM_OP_ADD_F32 : SIM_OP_ADD_X_F32;
    case KILN_PTX_OP_SUB:
        return plain ? SIM_OP_SUB_F32 : SIM_OP_SUB_X_F32;
    case KILN_PTX_OP_MUL:
        return plain ? SIM_OP_MUL_F32 : SIM_OP_MUL_X_F32;
    case KILN_PTX_OP_FMA:
    case KILN_PTX_OP_MAD:
        return plain ? SIM_OP_FMA_F32 : SIM_OP_FMA_X_F32;
    case KILN_PTX_OP_MIN:
        return plain ? SIM_OP_MIN_F32 : SIM_OP_MIN_X_F32;
    case KILN_PTX_OP_MAX:
        return plain ? SIM_OP_MAX_F32 : SIM_OP_MAX_X_F32;
    case KILN_PTX_OP_DIV:
        return ftz ? SIM_OP_DIV_FTZ_F32 : SIM_OP_DIV_F32;
    case KILN_PTX_OP_RCP:
        return ftz ? SIM_OP_RCP_FTZ_F32 : SIM_OP_RCP_F32;
    case KILN_PTX_OP_EX2:
        return ftz ? SIM_OP_EX2_FTZ_F32 : SIM_OP_EX2_F32;
    case KILN_PTX_OP_NEG:
        return ftz ? SIM_OP_NEG_FTZ_F32 : SIM_OP_NEG_F32;
    case KILN_PTX_OP_ABS:
        return ftz ? SIM_OP_ABS_FTZ_F32 : SIM_OP_ABS_F32;
    default:
        return -1;
    }
}

static int use(const struct kiln_sim *sim, struct sim_op *op, int number) {
    op->fn = sim->handlers[number];
    return op->fn != NULL;
}

static int run(struct sim_op *op, sim_handler fn) {
    op->fn = fn;
    return 1;
}

// ---- Comparison ---------------------------------------------------------------------------------
static int compare_number(const struct kiln_ptx_insn *insn) {
    static const uint16_t first[] = {SIM_OP_SETP_EQ_U16, SIM_OP_SETP_EQ_S16, SIM_OP_SETP_EQ_U32,
            SIM_OP_SETP_EQ_S32, SIM_OP_SETP_EQ_U64, SIM_OP_SETP_EQ_S64, SIM_OP_SETP_EQ_F32,
            SIM_OP_SETP_EQ_FTZ_F32, SIM_OP_SETP_EQ_F64, SIM_OP_SETP_EQ_F16, SIM_OP_SETP_EQ_BF16};
    int which;
    switch (insn->type2) {
    case KILN_PTX_B16:
    case KILN_PTX_U16:
        which = 0;
        break;
    case KILN_PTX_S16:
        which = 1;
        break;
    case KILN_PTX_B32:
    case KILN_PTX_U32:
        which = 2;
        break;
    case KILN_PTX_S32:
        which = 3;
        break;
    case KILN_PTX_B64:
    case KILN_PTX_U64:
        which = 4;
        break;
    case KILN_PTX_S64:
        which = 5;
        break;
    case KILN_PTX_F32:
        which = insn->flags & KILN_PTX_FTZ ? 7 : 6;
        break;
    case KILN_PTX_F64:
        which = 8;
        break;
    case KILN_PTX_F16:
        which = 9;
        break;
    case KILN_PTX_BF16:
        which = 10;
        break;
    default:
        return -1;
    }
    if (which < 6 && insn->cmp > KILN_PTX_GE) {
        return -1;
    }
    return first[which] + insn->cmp;
}

static int select_compare(
        const struct kiln_sim *sim, const struct kiln_ptx_insn *insn, struct sim_op *op) {
    int pair = insn->type2 == KILN_PTX_F16X2 || insn->type2 == KILN_PTX_BF16X2;
    if (pair || insn->op == KILN_PTX_OP_SET ||
            (insn->type2 == KILN_PTX_F16 && insn->flags & KILN_PTX_FTZ)) {
        return run(
                op, insn->op == KILN_PTX_OP_SET ? kiln_sim_run_set : kiln_sim_run_compare_halves);
    }
    op->mode = insn->boolop | (insn->flags & KILN_PTX_C_NOT ? 4 : 0) |
               (insn->d2 != KILN_PTX_NONE ? 8 : 0);
    int number = compare_number(insn);
    return number >= 0 && use(sim, op, number);
}

// ---- Conversion ---------------------------------------------------------------------------------
static int select_convert(
        const struct kiln_sim *sim, const struct kiln_ptx_insn *insn, struct sim_op *op) {
    static const struct {
        uint8_t type, type2;
        uint16_t number;
    } quick[] = {{KILN_PTX_U32, KILN_PTX_U16, SIM_OP_CVT_U32_U16},
            {KILN_PTX_S32, KILN_PTX_U16, SIM_OP_CVT_U32_U16},
            {KILN_PTX_S32, KILN_PTX_S16, SIM_OP_CVT_S32_S16},
            {KILN_PTX_U64, KILN_PTX_U32, SIM_OP_CVT_U64_U32},
            {KILN_PTX_S64, KILN_PTX_U32, SIM_OP_CVT_U64_U32},
            {KILN_PTX_S64, KILN_PTX_S32, SIM_OP_CVT_S64_S32},
            {KILN_PTX_U64, KILN_PTX_S32, SIM_OP_CVT_S64_S32},
            {KILN_PTX_U32, KILN_PTX_U64, SIM_OP_CVT_U32_U64},
            {KILN_PTX_S32, KILN_PTX_S64, SIM_OP_CVT_U32_U64},
            {KILN_PTX_U32, KILN_PTX_S64, SIM_OP_CVT_U32_U64},
            {KILN_PTX_U16, KILN_PTX_U32, SIM_OP_CVT_U16_U32},
            {KILN_PTX_S16, KILN_PTX_S32, SIM_OP_CVT_U16_U32},
            {KILN_PTX_U16, KILN_PTX_S32, SIM_OP_CVT_U16_U32},
            {KILN_PTX_F32, KILN_PTX_S32, SIM_OP_CVT_F32_S32},
            {KILN_PTX_F32, KILN_PTX_F16, SIM_OP_CVT_F32_F16},
            {KILN_PTX_F16, KILN_PTX_F32, SIM_OP_CVT_F16_F32},
            {KILN_PTX_F32, KILN_PTX_BF16, SIM_OP_CVT_F32_BF16},
            {KILN_PTX_BF16, KILN_PTX_F32, SIM_OP_CVT_BF16_F32},
            {KILN_PTX_F16X2, KILN_PTX_F32, SIM_OP_CVT_F16X2_F32},
            {KILN_PTX_BF16X2, KILN_PTX_F32, SIM_OP_CVT_BF16X2_F32}};
    // A register wider than its type, or a modifier, is the general one's.
    int fits = insn->d_bytes * 8u == kiln_ptx_type_bits((enum kiln_ptx_type)insn->type) &&
               insn->a_bytes * 8u == kiln_ptx_type_bits((enum kiln_ptx_type)insn->type2);
    if (fits && !modifiers(insn) && !(insn->flags & KILN_PTX_SATFINITE) &&
            insn->round == KILN_PTX_RN) {
        for (size_t i = 0; i < sizeof(quick) / sizeof(quick[0]); i++) {
            if (quick[i].type == insn->type && quick[i].type2 == insn->type2) {
                return use(sim, op, quick[i].number);
            }
        }
    }
    return run(op, kiln_sim_run_convert);
}

// ---- Matrices -----------------------------------------------------------------------------------
static int select_matrix(const struct kiln_ptx_insn *insn, struct sim_op *op) {
    op->fn = kiln_sim_run_matrix;
    // Volta's four products in one, of halves, are laid out like nothing else.
    if (insn->op == KILN_PTX_OP_MMA && insn->sub == KILN_PTX_M8N8K4 &&
            insn->type2 == KILN_PTX_F16) {
        return 0;
    }
    if (insn->op != KILN_PTX_OP_MMA || insn->n_d != 4 || insn->n_c != 4) {
        return 1;
    }
    int halves = insn->sub == KILN_PTX_M16N8K16 || insn->sub == KILN_PTX_M16N8K8;
    int floats = insn->type == KILN_PTX_F32 && insn->type4 == KILN_PTX_F32;
    if (halves && floats && insn->type2 == KILN_PTX_F16) {
        op->mode = SIM_OP_MMA_F16_F32 << 2;
    } else if (halves && floats && insn->type2 == KILN_PTX_BF16) {
        op->mode = SIM_OP_MMA_BF16_F32 << 2;
    } else if ((insn->sub == KILN_PTX_M16N8K16 || insn->sub == KILN_PTX_M16N8K32) &&
               (insn->type2 == KILN_PTX_S8 || insn->type2 == KILN_PTX_U8) &&
               !(insn->flags & (KILN_PTX_SAT | KILN_PTX_SATFINITE))) {
        op->mode = SIM_OP_MMA_S8 << 2 | (insn->type2 == KILN_PTX_S8 ? 1u : 0) |
                   (insn->type3 == KILN_PTX_S8 ? 2u : 0);
    } else {
        return 1;
    }
    op->n = insn->n_b;
    op->fn = kiln_sim_run_matrix_quick;
    return 1;
}

// ---- The rest -----------------------------------------------------------------------------------
static int select_carry(
        const struct kiln_sim *sim, const struct kiln_ptx_insn *insn, struct sim_op *op) {
    uint32_t what = insn->op == KILN_PTX_OP_ADD   ? 0
                    : insn->op == KILN_PTX_OP_SUB ? 1
                    : insn->sub == KILN_PTX_LO    ? 2
                    : is_signed(insn->type)       ? 4
                                                  : 3;
    op->mode = what | (lane_bytes(insn->type) == 8 ? 8 : 0) |
               (insn->flags & KILN_PTX_CC_IN ? 16 : 0) | (insn->flags & KILN_PTX_CC_OUT ? 32 : 0);
    return use(sim, op, SIM_OP_CARRY);
}

static int select_memory(const struct kiln_ptx_insn *insn, struct sim_op *op) {
    op->space = insn->space;
    op->type = insn->type;
    op->bytes = (uint8_t)(kiln_ptx_type_bits((enum kiln_ptx_type)insn->type) / 8);
    op->n = insn->op == KILN_PTX_OP_ST ? insn->n_b : insn->n_d;
    op->mode = insn->a == KILN_PTX_NONE ? 0 : insn->a_bytes;
    // Bits 4 and up: bytes of the destination; of a lane of the stored register; .trans.
    if (insn->op == KILN_PTX_OP_LD) {
        op->mode |= (uint32_t)insn->d_bytes << 4;
    } else if (insn->op == KILN_PTX_OP_ST) {
        op->mode |= (insn->b_bytes < 4 ? 4u : insn->b_bytes) << 4;
    } else if (insn->op == KILN_PTX_OP_LDMATRIX || insn->op == KILN_PTX_OP_STMATRIX) {
        op->n = insn->op == KILN_PTX_OP_LDMATRIX ? insn->n_d : insn->n_b;
        op->mode |= insn->flags & KILN_PTX_TRANS ? 16 : 0;
    }
    // Bits are not moved one by one: types of less than a byte are refused.
    return op->bytes > 0 || insn->op == KILN_PTX_OP_CP_ASYNC || insn->op == KILN_PTX_OP_LDMATRIX ||
           insn->op == KILN_PTX_OP_STMATRIX;
}

static int select_move(
        const struct kiln_sim *sim, const struct kiln_ptx_insn *insn, struct sim_op *op) {
    if (insn->type == KILN_PTX_PRED) {
        op->mode = insn->flags & KILN_PTX_A_NOT ? 1 : 0;
        return use(sim, op, SIM_OP_MOV_PRED);
    }
    uint32_t bytes = lane_bytes(insn->type);
    return bytes <= 8 && use(sim, op, bytes == 8 ? SIM_OP_MOV_B64 : SIM_OP_MOV_B32);
}

static int select_arithmetic(
        const struct kiln_sim *sim, const struct kiln_ptx_insn *insn, struct sim_op *op) {
    int add_like = insn->op == KILN_PTX_OP_ADD || insn->op == KILN_PTX_OP_SUB;
    if (insn->flags & (KILN_PTX_CC_IN | KILN_PTX_CC_OUT)) {
        return select_carry(sim, insn, op);
    }
    if (add_like && insn->type == KILN_PTX_S32 && insn->flags & KILN_PTX_SAT) {
        return use(sim, op, insn->op == KILN_PTX_OP_ADD ? SIM_OP_ADD_SAT_S32 : SIM_OP_SUB_SAT_S32);
    }
    if (insn->op == KILN_PTX_OP_MAD && insn->type == KILN_PTX_S32 && insn->flags & KILN_PTX_SAT) {
        return insn->sub == KILN_PTX_HI && use(sim, op, SIM_OP_MAD_HI_SAT_S32);
    }
    if (is_directed(insn)) {
        op->mode = modifiers(insn);
        return run(op, kiln_sim_run_directed);
    }
    if (insn->type == KILN_PTX_S16X2 || insn->type == KILN_PTX_U16X2 ||
            (insn->flags & KILN_PTX_RELU && is_signed(insn->type)) ||
            (insn->flags & KILN_PTX_XORSIGN && insn->type == KILN_PTX_F32)) {
        return run(op, kiln_sim_run_minmax_pair);
    }
    op->mode = modifiers(insn);
    int number = insn->type == KILN_PTX_F32 ? select_f32(insn) : -1;
    if (number >= 0) {
        return use(sim, op, number);
    }
    const struct choice *c = choose(insn);
    return c && use(sim, op, c->number);
}

static int select_bits(
        const struct kiln_sim *sim, const struct kiln_ptx_insn *insn, struct sim_op *op) {
    if (insn->type == KILN_PTX_PRED) {
        op->mode = (insn->flags & KILN_PTX_A_NOT ? 1 : 0) | (insn->flags & KILN_PTX_B_NOT ? 2 : 0);
    }
    const struct choice *c = choose(insn);
    return c && use(sim, op, c->number);
}

static int select_find(
        const struct kiln_sim *sim, const struct kiln_ptx_insn *insn, struct sim_op *op) {
    int shift = (insn->flags & KILN_PTX_SHIFTAMT) != 0;
    switch (insn->type) {
    case KILN_PTX_U32:
        return use(sim, op, shift ? SIM_OP_BFIND_SHIFT_U32 : SIM_OP_BFIND_U32);
    case KILN_PTX_S32:
        return use(sim, op, shift ? SIM_OP_BFIND_SHIFT_S32 : SIM_OP_BFIND_S32);
    case KILN_PTX_U64:
        return use(sim, op, shift ? SIM_OP_BFIND_SHIFT_U64 : SIM_OP_BFIND_U64);
    case KILN_PTX_S64:
        return use(sim, op, shift ? SIM_OP_BFIND_SHIFT_S64 : SIM_OP_BFIND_S64);
    default:
        return 0;
    }
}

static int select_slct(
        const struct kiln_sim *sim, const struct kiln_ptx_insn *insn, struct sim_op *op) {
    int wide = lane_bytes(insn->type) == 8, real = insn->type2 == KILN_PTX_F32;
    return use(sim, op,
            wide ? (real ? SIM_OP_SLCT_B64_F32 : SIM_OP_SLCT_B64_S32)
                 : (real ? SIM_OP_SLCT_B32_F32 : SIM_OP_SLCT_B32_S32));
}

static int select_special(
        const struct kiln_sim *sim, const struct kiln_ptx_insn *insn, struct sim_op *op) {
    switch (insn->op) {
    case KILN_PTX_OP_SELP:
        return use(sim, op, lane_bytes(insn->type) == 8 ? SIM_OP_SELP_B64 : SIM_OP_SELP_B32);
    case KILN_PTX_OP_SLCT:
        return select_slct(sim, insn, op);
    case KILN_PTX_OP_BFIND:
        return select_find(sim, insn, op);
    case KILN_PTX_OP_LOP3:
        op->mode = ((uint32_t)insn->imm & 255) | (uint32_t)insn->boolop << 8 |
                   (insn->flags & KILN_PTX_C_NOT ? 1024 : 0);
        return use(sim, op, insn->d2 != KILN_PTX_NONE ? SIM_OP_LOP3_PRED : SIM_OP_LOP3_B32);
    case KILN_PTX_OP_PRMT:
        op->mode = insn->sub ? insn->sub - 1u : 0;
        return use(sim, op, insn->sub ? SIM_OP_PRMT_MODE_B32 : SIM_OP_PRMT_B32);
    case KILN_PTX_OP_DP4A:
    case KILN_PTX_OP_DP2A:
        op->mode = (insn->type == KILN_PTX_S32 ? 1 : 0) | (insn->type2 == KILN_PTX_S32 ? 2 : 0) |
                   (insn->sub == KILN_PTX_HI ? 4 : 0);
        return use(sim, op, insn->op == KILN_PTX_OP_DP4A ? SIM_OP_DP4A : SIM_OP_DP2A);
    case KILN_PTX_OP_SZEXT:
        // With .wrap the amount is taken modulo 32, which the table has no row for.
        return insn->sub == 0 && select_bits(sim, insn, op);
    default:
        return 0;
    }
}

static sim_handler plain(int op) {
    // clang-format off
    static const struct { uint8_t op; sim_handler fn; } handlers[] = {
        {KILN_PTX_OP_PACK, kiln_sim_run_pack}, {KILN_PTX_OP_UNPACK, kiln_sim_run_unpack},
        {KILN_PTX_OP_SREG, kiln_sim_run_special_register},
        {KILN_PTX_OP_LEA_LOCAL, kiln_sim_run_local_address},
        {KILN_PTX_OP_CVT_PACK, kiln_sim_run_convert_pack},
        {KILN_PTX_OP_CVTA, kiln_sim_run_to_generic},
        {KILN_PTX_OP_CVTA_TO, kiln_sim_run_from_generic},
        {KILN_PTX_OP_ISSPACEP, kiln_sim_run_is_space},
        {KILN_PTX_OP_TESTP, kiln_sim_run_test_number},
        {KILN_PTX_OP_PREFETCH, kiln_sim_run_nothing}, {KILN_PTX_OP_NOP, kiln_sim_run_nothing},
        {KILN_PTX_OP_MEMBAR, kiln_sim_run_fence},
        {KILN_PTX_OP_CP_COMMIT, kiln_sim_run_copy_commit},
        {KILN_PTX_OP_WGMMA, kiln_sim_run_wgmma},
        {KILN_PTX_OP_WGMMA_FENCE, kiln_sim_run_wgmma_fence},
        {KILN_PTX_OP_WGMMA_COMMIT, kiln_sim_run_wgmma_commit},
        {KILN_PTX_OP_WGMMA_WAIT, kiln_sim_run_wgmma_wait},
        {KILN_PTX_OP_CP_WAIT, kiln_sim_run_copy_wait},
        {KILN_PTX_OP_CP_BULK, kiln_sim_run_copy_bulk},
        {KILN_PTX_OP_CP_TENSOR, kiln_sim_run_copy_tensor},
        {KILN_PTX_OP_MBARRIER, kiln_sim_run_mbarrier},
        {KILN_PTX_OP_MOVMATRIX, kiln_sim_run_move_matrix},
        {KILN_PTX_OP_SHFL, kiln_sim_run_shuffle}, {KILN_PTX_OP_VOTE, kiln_sim_run_vote},
        {KILN_PTX_OP_MATCH, kiln_sim_run_match}, {KILN_PTX_OP_REDUX, kiln_sim_run_reduce},
        {KILN_PTX_OP_ACTIVEMASK, kiln_sim_run_active_mask},
        {KILN_PTX_OP_WARPSYNC, kiln_sim_run_sync_warp}, {KILN_PTX_OP_ELECT, kiln_sim_run_elect},
        {KILN_PTX_OP_BAR, kiln_sim_run_barrier}, {KILN_PTX_OP_CALL, kiln_sim_run_call},
        {KILN_PTX_OP_CALL_REG, kiln_sim_run_call_register},
        {KILN_PTX_OP_CALL_HOST, kiln_sim_run_call_host}, {KILN_PTX_OP_TRAP, kiln_sim_run_trap},
    };
    // clang-format on
    for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++) {
        if (handlers[i].op == op) {
            return handlers[i].fn;
        }
    }
    return NULL;
}

static sim_handler memory_handler(int op) {
    return op == KILN_PTX_OP_LD           ? kiln_sim_run_load
           : op == KILN_PTX_OP_ST         ? kiln_sim_run_store
           : op == KILN_PTX_OP_ATOM       ? kiln_sim_run_atomic
           : op == KILN_PTX_OP_CP_ASYNC   ? kiln_sim_run_copy_async
           : op == KILN_PTX_OP_LDMATRIX   ? kiln_sim_run_load_matrix
           : op == KILN_PTX_OP_STMATRIX   ? kiln_sim_run_store_matrix
           : op == KILN_PTX_OP_WMMA_LOAD  ? kiln_sim_run_wmma_load
           : op == KILN_PTX_OP_WMMA_STORE ? kiln_sim_run_wmma_store
                                          : NULL;
}

int kiln_sim_select(
        const struct kiln_sim *sim, const struct kiln_ptx_insn *insn, struct sim_op *op) {
    int what = insn->op;
    op->fn = memory_handler(what);
    if (op->fn) {
        return select_memory(insn, op);
    }
    op->fn = plain(what);
    if (op->fn) {
        return 1;
    }
    switch (what) {
    case KILN_PTX_OP_MOV:
        return select_move(sim, insn, op);
    case KILN_PTX_OP_CVT:
        return select_convert(sim, insn, op);
    case KILN_PTX_OP_SETP:
    case KILN_PTX_OP_SET:
        return select_compare(sim, insn, op);
    case KILN_PTX_OP_MMA:
    case KILN_PTX_OP_WMMA_MMA:
        return select_matrix(insn, op);
    case KILN_PTX_OP_AND:
    case KILN_PTX_OP_OR:
    case KILN_PTX_OP_XOR:
    case KILN_PTX_OP_NOT:
    case KILN_PTX_OP_CNOT:
    case KILN_PTX_OP_SHL:
    case KILN_PTX_OP_SHR:
    case KILN_PTX_OP_SHF:
        return select_bits(sim, insn, op);
    default:
        return select_special(sim, insn, op) || select_arithmetic(sim, insn, op);
    }
}
