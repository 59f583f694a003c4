// classes: what an instruction is called and counted as.
#include "device/sim/report.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *const class_names[] = {
#define CLASS_NAME(name, text) text,
        KILN_SIM_CLASS_TABLE(CLASS_NAME)
#undef CLASS_NAME
};

const char *kiln_sim_class_name(enum kiln_sim_class class_) {
    return class_ < KILN_SIM_CLASS_COUNT ? class_names[class_] : "?";
}

static enum kiln_sim_class by_type(uint8_t type) {
    switch (type) {
    case KILN_PTX_F32:
        return KILN_SIM_CLASS_FLOAT;
    case KILN_PTX_F64:
        return KILN_SIM_CLASS_DOUBLE;
    case KILN_PTX_F16:
    case KILN_PTX_F16X2:
    case KILN_PTX_BF16:
    case KILN_PTX_BF16X2:
        return KILN_SIM_CLASS_HALF;
    default:
        return KILN_SIM_CLASS_INT;
    }
}

static enum kiln_sim_class by_space(uint8_t space) {
    switch (space) {
    case KILN_PTX_SHARED:
        return KILN_SIM_CLASS_SHARED;
    case KILN_PTX_LOCAL:
    case KILN_PTX_CALLS:
        return KILN_SIM_CLASS_LOCAL;
    case KILN_PTX_PARAM:
        return KILN_SIM_CLASS_MOVE;
    default:
        return KILN_SIM_CLASS_GLOBAL;
    }
}

enum kiln_sim_class kiln_sim_class_of(const struct kiln_ptx_insn *insn) {
    switch (insn->op) {
    case KILN_PTX_OP_MOV:
    case KILN_PTX_OP_PACK:
    case KILN_PTX_OP_UNPACK:
    case KILN_PTX_OP_SREG:
    case KILN_PTX_OP_LEA_LOCAL:
    case KILN_PTX_OP_CVTA:
    case KILN_PTX_OP_CVTA_TO:
    case KILN_PTX_OP_SELP:
    case KILN_PTX_OP_SLCT:
    case KILN_PTX_OP_PRMT:
        return KILN_SIM_CLASS_MOVE;
    case KILN_PTX_OP_CVT:
    case KILN_PTX_OP_CVT_PACK:
        return KILN_SIM_CLASS_CONVERT;
    case KILN_PTX_OP_SETP:
    case KILN_PTX_OP_SET:
        return by_type(insn->type2);
    case KILN_PTX_OP_RCP:
    case KILN_PTX_OP_SQRT:
    case KILN_PTX_OP_RSQRT:
    case KILN_PTX_OP_SIN:
    case KILN_PTX_OP_COS:
    case KILN_PTX_OP_LG2:
    case KILN_PTX_OP_EX2:
    case KILN_PTX_OP_TANH:
        return insn->type == KILN_PTX_F64 ? KILN_SIM_CLASS_DOUBLE : KILN_SIM_CLASS_SPECIAL;
    case KILN_PTX_OP_LD:
    case KILN_PTX_OP_ST:
    case KILN_PTX_OP_PREFETCH:
    case KILN_PTX_OP_WMMA_LOAD:
    case KILN_PTX_OP_WMMA_STORE:
        return by_space(insn->space);
    case KILN_PTX_OP_LDMATRIX:
    case KILN_PTX_OP_STMATRIX:
        return KILN_SIM_CLASS_SHARED;
    case KILN_PTX_OP_ATOM:
        return KILN_SIM_CLASS_ATOMIC;
    case KILN_PTX_OP_CP_ASYNC:
    case KILN_PTX_OP_CP_COMMIT:
    case KILN_PTX_OP_CP_WAIT:
    case KILN_PTX_OP_CP_BULK:
    case KILN_PTX_OP_CP_TENSOR:
        return KILN_SIM_CLASS_ASYNC;
    case KILN_PTX_OP_MMA:
    case KILN_PTX_OP_WMMA_MMA:
    case KILN_PTX_OP_WGMMA:
        return KILN_SIM_CLASS_TENSOR;
    case KILN_PTX_OP_WGMMA_FENCE:
    case KILN_PTX_OP_WGMMA_COMMIT:
    case KILN_PTX_OP_WGMMA_WAIT:
        return KILN_SIM_CLASS_BARRIER;
    case KILN_PTX_OP_SHFL:
        return KILN_SIM_CLASS_SHUFFLE;
    case KILN_PTX_OP_VOTE:
    case KILN_PTX_OP_MATCH:
    case KILN_PTX_OP_REDUX:
    case KILN_PTX_OP_ACTIVEMASK:
    case KILN_PTX_OP_WARPSYNC:
    case KILN_PTX_OP_ELECT:
        return KILN_SIM_CLASS_VOTE;
    case KILN_PTX_OP_BAR:
    case KILN_PTX_OP_MEMBAR:
    case KILN_PTX_OP_MBARRIER:
        return KILN_SIM_CLASS_BARRIER;
    case KILN_PTX_OP_BRA:
    case KILN_PTX_OP_BRX:
    case KILN_PTX_OP_CALL:
    case KILN_PTX_OP_CALL_REG:
    case KILN_PTX_OP_CALL_HOST:
    case KILN_PTX_OP_RET:
    case KILN_PTX_OP_EXIT:
        return KILN_SIM_CLASS_BRANCH;
    case KILN_PTX_OP_TRAP:
    case KILN_PTX_OP_NOP:
    case KILN_PTX_OP_MOVMATRIX:
        return KILN_SIM_CLASS_OTHER;
    default:
        return by_type(insn->type);
    }
}

// ---- Names --------------------------------------------------------------------------------------
static const char *const shapes[] = {"m8n8k4", "m8n8k16", "m8n8k32", "m8n8k128", "m16n8k4",
        "m16n8k8", "m16n8k16", "m16n8k32", "m16n8k64", "m16n8k128", "m16n8k256", "m16n16k16",
        "m32n8k16", "m8n32k16", "m16n16k8"};
static const char *const mbarriers[] = {"init", "inval", "arrive", "arrive_drop", "expect_tx",
        "complete_tx", "test_wait", "try_wait"};
static const char *const spaces[] = {
        "", ".global", ".const", ".shared", ".local", ".param", ".param"};

static const char *type_name(uint8_t type) {
    return kiln_ptx_type_name((enum kiln_ptx_type)type);
}

void kiln_sim_opcode(const struct kiln_ptx_insn *insn, char *text, size_t size) {
    char name[24] = "";
    snprintf(name, sizeof(name), "%s", kiln_ptx_op_name((enum kiln_ptx_op)insn->op));
    for (char *at = name; *at; at++) {
        *at = (char)(*at == '_' ? '.' : tolower((unsigned char)*at));
    }
    const char *trans = insn->flags & KILN_PTX_TRANS ? ".trans" : "";
    int n = insn->op == KILN_PTX_OP_ST || insn->op == KILN_PTX_OP_STMATRIX ? insn->n_b : insn->n_d;
    char vector[8] = "";
    if (n > 1) {
        snprintf(vector, sizeof(vector), ".v%d", n);
    }
    switch (insn->op) {
    case KILN_PTX_OP_MMA:
    case KILN_PTX_OP_WMMA_MMA:
        snprintf(text, size, "%s.%s.%s.%s.%s.%s", name, shapes[insn->sub], type_name(insn->type),
                type_name(insn->type2), type_name(insn->type3), type_name(insn->type4));
        break;
    case KILN_PTX_OP_WGMMA:
        snprintf(text, size, "%s.m64n%uk16.%s.%s.%s", name, insn->sub * 8u, type_name(insn->type),
                type_name(insn->type2), type_name(insn->type3));
        break;
    case KILN_PTX_OP_LDMATRIX:
    case KILN_PTX_OP_STMATRIX:
        snprintf(text, size, "%s.x%d%s%s", name, n, trans, spaces[insn->space]);
        break;
    case KILN_PTX_OP_LD:
    case KILN_PTX_OP_ST:
    case KILN_PTX_OP_ATOM:
        snprintf(text, size, "%s%s%s.%s", name, spaces[insn->space], vector, type_name(insn->type));
        break;
    case KILN_PTX_OP_CP_BULK:
        snprintf(text, size, "cp.async.bulk");
        break;
    case KILN_PTX_OP_CP_TENSOR:
        snprintf(text, size, "cp.async.bulk.tensor.%ud", insn->n_c);
        break;
    case KILN_PTX_OP_MBARRIER:
        snprintf(text, size, "%s.%s", name, mbarriers[insn->sub]);
        break;
    case KILN_PTX_OP_CP_ASYNC:
        snprintf(text, size, "%s.%s.%u", name, insn->flags & KILN_PTX_CG ? "cg" : "ca", insn->imm3);
        break;
    default:
        snprintf(text, size, "%s", name);
        break;
    }
}
