// ptx_alu: arithmetic, comparison, bits, moves and conversions: a table of opcodes with their
// modifiers, types and operands, and decoders for those that have a form of their own.
#include "device/sim/ptx_impl.h"

#include <string.h>

#define T(name) (UINT64_C(1) << KILN_PTX_##name)

#define B16_64  (T(B16) | T(B32) | T(B64))
#define U16_64  (T(U16) | T(U32) | T(U64))
#define S16_64  (T(S16) | T(S32) | T(S64))
#define I16_64  (U16_64 | S16_64)
#define HALVES  (T(F16) | T(F16X2) | T(BF16) | T(BF16X2))
#define PAIRS16 (T(U16X2) | T(S16X2))
#define REALS   (T(F32) | T(F64))
#define I32     (T(U32) | T(S32))
#define I32_64  (I32 | T(U64) | T(S64))

enum modifier {
    M_ROUND = 1 << 0, // rn rz rm rp
    M_FTZ = 1 << 1,
    M_SAT = 1 << 2,
    M_CC = 1 << 3,
    M_HALF = 1 << 4, // lo hi wide, of integers: must be there
    M_LOHI = 1 << 5, // lo hi, must be there
    M_APPROX = 1 << 6,
    M_FULL = 1 << 7,
    M_NAN = 1 << 8,
    M_XORSIGN = 1 << 9,
    M_RELU = 1 << 10,
    M_CLAMP = 1 << 11, // clamp wrap, must be there
    M_SHIFTAMT = 1 << 12,
    M_CARRY = 1 << 13,      // takes the carry in
    M_NEED_ROUND = 1 << 14, // of f32 and f64
};

// Operands: a letter for the field, one for the register: T the type's, W twice that with .wide, U
// 32 bits, P a predicate, S type2's.
struct alu {
    const char *name;
    uint16_t op;
    uint16_t modifiers;
    uint64_t types;
    const char *operands;
    uint64_t types2; // of a second type; 0: there is none
};

static const struct alu table[] = {
        {"add", KILN_PTX_OP_ADD, M_ROUND | M_FTZ | M_SAT | M_CC, I16_64 | HALVES | REALS | PAIRS16,
                "dT aT bT", 0},
        {"sub", KILN_PTX_OP_SUB, M_ROUND | M_FTZ | M_SAT | M_CC, I16_64 | HALVES | REALS,
                "dT aT bT", 0},
        {"addc", KILN_PTX_OP_ADD, M_CC | M_CARRY, I32_64, "dT aT bT", 0},
        {"subc", KILN_PTX_OP_SUB, M_CC | M_CARRY, I32_64, "dT aT bT", 0},
        {"mul", KILN_PTX_OP_MUL, M_ROUND | M_FTZ | M_SAT | M_HALF, I16_64 | HALVES | REALS,
                "dW aT bT", 0},
        {"mad", KILN_PTX_OP_MAD, M_ROUND | M_FTZ | M_SAT | M_CC | M_HALF, I16_64 | REALS,
                "dW aT bT cW", 0},
        {"madc", KILN_PTX_OP_MAD, M_CC | M_CARRY | M_HALF, I32_64, "dW aT bT cW", 0},
        {"fma", KILN_PTX_OP_FMA, M_ROUND | M_FTZ | M_SAT | M_RELU | M_NEED_ROUND, HALVES | REALS,
                "dT aT bT cT", 0},
        {"mul24", KILN_PTX_OP_MUL24, M_LOHI, I32, "dT aT bT", 0},
        {"mad24", KILN_PTX_OP_MAD24, M_LOHI | M_SAT, I32, "dT aT bT cT", 0},
        {"sad", KILN_PTX_OP_SAD, 0, I16_64, "dT aT bT cT", 0},
        {"div", KILN_PTX_OP_DIV, M_ROUND | M_FTZ | M_APPROX | M_FULL | M_NEED_ROUND, I16_64 | REALS,
                "dT aT bT", 0},
        {"rem", KILN_PTX_OP_REM, 0, I16_64, "dT aT bT", 0},
        {"abs", KILN_PTX_OP_ABS, M_FTZ, S16_64 | HALVES | REALS, "dT aT", 0},
        {"neg", KILN_PTX_OP_NEG, M_FTZ, S16_64 | HALVES | REALS, "dT aT", 0},
        {"min", KILN_PTX_OP_MIN, M_FTZ | M_NAN | M_XORSIGN | M_RELU,
                I16_64 | HALVES | REALS | PAIRS16, "dT aT bT", 0},
        {"max", KILN_PTX_OP_MAX, M_FTZ | M_NAN | M_XORSIGN | M_RELU,
                I16_64 | HALVES | REALS | PAIRS16, "dT aT bT", 0},
        {"popc", KILN_PTX_OP_POPC, 0, T(B32) | T(B64), "dU aT", 0},
        {"clz", KILN_PTX_OP_CLZ, 0, T(B32) | T(B64), "dU aT", 0},
        {"bfind", KILN_PTX_OP_BFIND, M_SHIFTAMT, I32_64, "dU aT", 0},
        {"brev", KILN_PTX_OP_BREV, 0, T(B32) | T(B64), "dT aT", 0},
        {"bfe", KILN_PTX_OP_BFE, 0, I32_64, "dT aT bU cU", 0},
        {"bfi", KILN_PTX_OP_BFI, 0, T(B32) | T(B64), "dT aT bT cU eU", 0},
        {"szext", KILN_PTX_OP_SZEXT, M_CLAMP, I32, "dT aT bU", 0},
        {"bmsk", KILN_PTX_OP_BMSK, M_CLAMP, T(B32), "dT aU bU", 0},
        {"fns", KILN_PTX_OP_FNS, 0, T(B32), "dT aU bU cU", 0},
        {"dp4a", KILN_PTX_OP_DP4A, 0, I32, "dU aU bU cU", I32},
        {"dp2a", KILN_PTX_OP_DP2A, M_LOHI, I32, "dU aU bU cU", I32},
        {"rcp", KILN_PTX_OP_RCP, M_ROUND | M_FTZ | M_APPROX | M_NEED_ROUND, REALS, "dT aT", 0},
        {"sqrt", KILN_PTX_OP_SQRT, M_ROUND | M_FTZ | M_APPROX | M_NEED_ROUND, REALS, "dT aT", 0},
        {"rsqrt", KILN_PTX_OP_RSQRT, M_FTZ | M_APPROX | M_NEED_ROUND, REALS, "dT aT", 0},
        {"sin", KILN_PTX_OP_SIN, M_FTZ | M_APPROX | M_NEED_ROUND, T(F32), "dT aT", 0},
        {"cos", KILN_PTX_OP_COS, M_FTZ | M_APPROX | M_NEED_ROUND, T(F32), "dT aT", 0},
        {"lg2", KILN_PTX_OP_LG2, M_FTZ | M_APPROX | M_NEED_ROUND, T(F32), "dT aT", 0},
        {"ex2", KILN_PTX_OP_EX2, M_FTZ | M_APPROX | M_NEED_ROUND, T(F32) | HALVES, "dT aT", 0},
        {"tanh", KILN_PTX_OP_TANH, M_APPROX | M_NEED_ROUND, T(F32) | HALVES, "dT aT", 0},
        {"copysign", KILN_PTX_OP_COPYSIGN, 0, REALS, "dT aT bT", 0},
        {"slct", KILN_PTX_OP_SLCT, M_FTZ, B16_64 | I16_64 | REALS, "dT aT bT cS", T(S32) | T(F32)},
        {"and", KILN_PTX_OP_AND, 0, T(PRED) | B16_64, "dT aT bT", 0},
        {"or", KILN_PTX_OP_OR, 0, T(PRED) | B16_64, "dT aT bT", 0},
        {"xor", KILN_PTX_OP_XOR, 0, T(PRED) | B16_64, "dT aT bT", 0},
        {"not", KILN_PTX_OP_NOT, 0, T(PRED) | B16_64, "dT aT", 0},
        {"cnot", KILN_PTX_OP_CNOT, 0, B16_64, "dT aT", 0},
        {"shl", KILN_PTX_OP_SHL, 0, B16_64, "dT aT bU", 0},
        {"shr", KILN_PTX_OP_SHR, 0, B16_64 | I16_64, "dT aT bU", 0},
};

// ---- The table's own form -----------------------------------------------------------------------

// One modifier of `allowed`; 1 when a word was taken.
static int modifier(struct ptx_decode *d, uint32_t allowed, uint32_t *seen) {
    static const char *const rounds[] = {"rn", "rz", "rm", "rp"};
    static const char *const halves[] = {"lo", "hi", "wide"};
    static const char *const clamps[] = {"clamp", "wrap"};
    static const struct {
        uint32_t modifier, flag;
        const char *name;
    } flags[] = {{M_FTZ, KILN_PTX_FTZ, "ftz"}, {M_SAT, KILN_PTX_SAT, "sat"},
            {M_CC, KILN_PTX_CC_OUT, "cc"}, {M_NAN, KILN_PTX_NAN_FLAG, "NaN"},
            {M_RELU, KILN_PTX_RELU, "relu"}, {M_SHIFTAMT, KILN_PTX_SHIFTAMT, "shiftamt"}};
    struct kiln_ptx_insn *insn = &d->insn;
    uint32_t open = allowed & ~*seen;
    int found = open & M_ROUND ? ptx_word_of(d, rounds, 4) : -1;
    if (found >= 0) {
        insn->round = (uint8_t)(KILN_PTX_RN + found);
        *seen |= M_ROUND | M_APPROX | M_FULL;
        return 1;
    }
    found = open & (M_HALF | M_LOHI) ? ptx_word_of(d, halves, open & M_HALF ? 3 : 2) : -1;
    if (found >= 0) {
        insn->sub = (uint8_t)(KILN_PTX_LO + found);
        *seen |= M_HALF | M_LOHI;
        return 1;
    }
    found = open & M_CLAMP ? ptx_word_of(d, clamps, 2) : -1;
    if (found >= 0) {
        insn->sub = (uint8_t)found;
        *seen |= M_CLAMP;
        return 1;
    }
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if ((open & flags[i].modifier) && ptx_word(d, flags[i].name)) {
            insn->flags |= flags[i].flag;
            *seen |= flags[i].modifier;
            return 1;
        }
    }
    if ((open & M_APPROX) && ptx_word(d, "approx")) {
        insn->round = KILN_PTX_APPROX;
        *seen |= M_ROUND | M_APPROX | M_FULL;
        return 1;
    }
    if ((open & M_FULL) && ptx_word(d, "full")) {
        insn->round = KILN_PTX_FULL;
        *seen |= M_ROUND | M_APPROX | M_FULL;
        return 1;
    }
    if ((open & M_XORSIGN) && ptx_word(d, "xorsign")) {
        insn->flags |= KILN_PTX_XORSIGN;
        *seen |= M_XORSIGN;
        return ptx_word(d, "abs");
    }
    return 0;
}

// What the words may say together.
static enum kiln_status check(struct ptx_decode *d, const struct alu *alu, uint32_t seen) {
    const struct kiln_ptx_insn *insn = &d->insn;
    uint64_t type = UINT64_C(1) << insn->type;
    int real = (type & (HALVES | REALS)) != 0;
    if ((alu->modifiers & M_HALF) && real == ((seen & M_HALF) != 0)) {
        return ptx_bad(
                d, real ? ".lo, .hi and .wide belong to integers" : ".lo, .hi or .wide is missing");
    }
    if ((alu->modifiers & M_LOHI) && !(seen & M_LOHI)) {
        return ptx_bad(d, ".lo or .hi is missing");
    }
    if ((alu->modifiers & M_CLAMP) && !(seen & M_CLAMP)) {
        return ptx_bad(d, ".clamp or .wrap is missing");
    }
    if ((alu->modifiers & M_NEED_ROUND) && real && !(seen & M_ROUND)) {
        return ptx_bad(d, "a rounding modifier or .approx is missing");
    }
    if (!real && (seen & (M_ROUND | M_FTZ | M_NAN | M_XORSIGN)) && alu->op != KILN_PTX_OP_SLCT) {
        return ptx_bad(d, "rounding, .ftz, .NaN and .xorsign belong to real types");
    }
    if ((insn->flags & KILN_PTX_FTZ) && insn->type == KILN_PTX_F64 &&
            insn->round != KILN_PTX_APPROX) {
        return ptx_bad(d, ".ftz does not go with .f64");
    }
    if (!real && (insn->flags & KILN_PTX_SAT) && insn->type != KILN_PTX_S32 && !(type & PAIRS16) &&
            alu->op != KILN_PTX_OP_MAD24) {
        return ptx_bad(d, ".sat belongs to .s32 and to real types");
    }
    if ((insn->flags & KILN_PTX_CC_OUT) && !(type & I32_64)) {
        return ptx_bad(d, ".cc belongs to integers of 32 and 64 bits");
    }
    if (insn->sub == KILN_PTX_WIDE && (alu->modifiers & M_HALF) &&
            kiln_ptx_type_bits(insn->type) == 64) {
        return ptx_bad(d, ".wide belongs to integers of 16 and 32 bits");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status carry(struct ptx_decode *d, const struct alu *alu) {
    int in = (alu->modifiers & M_CARRY) != 0, out = (d->insn.flags & KILN_PTX_CC_OUT) != 0;
    if (!in && !out) {
        return KILN_STATUS_OK;
    }
    if (d->carry == KILN_PTX_NONE) {
        KILN_TRY(ptx_temp(d, 0, &d->carry));
    }
    if (in) {
        d->insn.e = d->carry;
        d->insn.flags |= KILN_PTX_CC_IN;
    }
    if (out) {
        d->insn.d2 = d->carry;
    }
    return KILN_STATUS_OK;
}

static uint32_t bytes_of(const struct kiln_ptx_insn *insn, char kind) {
    uint32_t bytes = ptx_type_bytes(insn->type);
    int wide = insn->sub == KILN_PTX_WIDE &&
               (insn->op == KILN_PTX_OP_MUL || insn->op == KILN_PTX_OP_MAD);
    switch (kind) {
    case 'W':
        return wide ? bytes * 2 : bytes;
    case 'U':
        return 4;
    case 'P':
        return 0;
    case 'S':
        return ptx_type_bytes(insn->type2);
    default:
        return bytes;
    }
}

static enum kiln_status fields(struct ptx_decode *d, const char *operands) {
    struct kiln_ptx_insn *insn = &d->insn;
    uint32_t wanted = (uint32_t)(strlen(operands) + 1) / 3;
    KILN_TRY(ptx_count(d, wanted, wanted));
    for (uint32_t i = 0; i < wanted; i++) {
        const struct ptx_operand *operand = ptx_operand(d, i);
        char field = operands[3 * i];
        uint32_t bytes = bytes_of(insn, operands[3 * i + 1]);
        uint32_t type = operands[3 * i + 1] == 'T'   ? insn->type
                        : operands[3 * i + 1] == 'S' ? insn->type2
                                                     : KILN_PTX_B32;
        uint32_t not_flag = field == 'a'   ? KILN_PTX_A_NOT
                            : field == 'b' ? KILN_PTX_B_NOT
                                           : KILN_PTX_C_NOT;
        if (field == 'd') {
            KILN_TRY(ptx_dest(d, operand, bytes, &insn->d, &insn->d_bytes));
            continue;
        }
        uint32_t *to = field == 'a'   ? &insn->a
                       : field == 'b' ? &insn->b
                       : field == 'c' ? &insn->c
                                      : &insn->e;
        uint8_t *width = field == 'a'   ? &insn->a_bytes
                         : field == 'b' ? &insn->b_bytes
                         : field == 'c' ? &insn->c_bytes
                                        : NULL;
        if (operands[3 * i + 1] == 'W') {
            type = bytes == 8 ? KILN_PTX_B64 : insn->type;
        }
        KILN_TRY(ptx_source(d, operand, bytes, type, to, width));
        insn->flags |= operand->negated ? not_flag : 0;
    }
    return KILN_STATUS_OK;
}

static enum kiln_status decode_alu(struct ptx_decode *d) {
    const struct alu *alu = NULL;
    uint32_t seen = 0;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]) && !alu; i++) {
        alu = ptx_same(d->words[0], table[i].name) ? &table[i] : NULL;
    }
    if (!alu) {
        return ptx_bad(d, "an unknown instruction");
    }
    d->insn.op = alu->op;
    while (modifier(d, alu->modifiers, &seen)) {
    }
    KILN_TRY(ptx_word_type(d, alu->types, &d->insn.type));
    if (alu->types2) {
        KILN_TRY(ptx_word_type(d, alu->types2, &d->insn.type2));
    }
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(check(d, alu, seen));
    if (alu->op == KILN_PTX_OP_MAD && (UINT64_C(1) << d->insn.type & REALS)) {
        d->insn.op = KILN_PTX_OP_FMA;
    }
    KILN_TRY(carry(d, alu));
    KILN_TRY(fields(d, alu->operands));
    return ptx_emit(d);
}

// ---- Moves --------------------------------------------------------------------------------------

#define MOVES \
    (T(PRED) | T(B8) | T(B128) | B16_64 | I16_64 | REALS | T(F16) | T(F16X2) | T(BF16) | T(BF16X2))

// mov.b32 d, {a, b} and mov.b32 {a, b}, d.
static enum kiln_status decode_pieces(struct ptx_decode *d, int unpack) {
    struct kiln_ptx_insn *insn = &d->insn;
    const struct ptx_operand *pieces = ptx_operand(d, unpack ? 0 : 1);
    uint32_t whole = ptx_type_bytes(insn->type);
    if (pieces->count < 2 || whole % pieces->count != 0) {
        return ptx_bad(d, "%u pieces of %u bits are wanted", pieces->count, whole * 8);
    }
    uint32_t piece = whole / pieces->count;
    if (piece == 1) {
        return ptx_bad(d, "pieces of 8 bits are not modelled");
    }
    insn->op = unpack ? KILN_PTX_OP_UNPACK : KILN_PTX_OP_PACK;
    if (unpack) {
        KILN_TRY(ptx_list(d, pieces, 0, piece, 1, &insn->d, &insn->n_d, &insn->d_bytes));
        KILN_TRY(ptx_source(d, ptx_operand(d, 1), whole, insn->type, &insn->a, &insn->a_bytes));
        insn->d_bytes = (uint8_t)piece;
    } else {
        KILN_TRY(ptx_dest(d, ptx_operand(d, 0), whole, &insn->d, &insn->d_bytes));
        KILN_TRY(ptx_list(d, pieces, 0, piece, 0, &insn->a, &insn->n_a, &insn->a_bytes));
        insn->a_bytes = (uint8_t)piece;
    }
    return ptx_emit(d);
}

static enum kiln_status decode_mov(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    KILN_TRY(ptx_word_type(d, MOVES, &insn->type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 2, 2));
    const struct ptx_operand *to = ptx_operand(d, 0), *from = ptx_operand(d, 1);
    if (to->kind == PTX_OPERAND_LIST || from->kind == PTX_OPERAND_LIST) {
        return decode_pieces(d, to->kind == PTX_OPERAND_LIST);
    }
    uint32_t bytes = ptx_type_bytes(insn->type);
    KILN_TRY(ptx_dest(d, to, bytes, &insn->d, &insn->d_bytes));
    if (from->kind == PTX_OPERAND_SREG) {
        if (bytes == 0) {
            return ptx_bad(d, "a special register is no predicate");
        }
        insn->op = KILN_PTX_OP_SREG;
        insn->sub = (uint8_t)from->index;
        return ptx_emit(d);
    }
    KILN_TRY(ptx_source(d, from, bytes, insn->type, &insn->a, &insn->a_bytes));
    insn->flags |= from->negated ? KILN_PTX_A_NOT : 0;
    return ptx_emit(d);
}

static enum kiln_status decode_prmt(struct ptx_decode *d) {
    static const char *const modes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
    KILN_TRY(ptx_word_type(d, T(B32), &d->insn.type));
    int mode = ptx_word_of(d, modes, 6);
    d->insn.sub = (uint8_t)(mode + 1);
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(fields(d, "dT aT bT cU"));
    return ptx_emit(d);
}

static enum kiln_status decode_lop3(struct ptx_decode *d) {
    static const char *const ops[] = {"and", "or", "xor"};
    struct kiln_ptx_insn *insn = &d->insn;
    int op = ptx_word_of(d, ops, 3);
    KILN_TRY(ptx_word_type(d, T(B32), &insn->type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, op < 0 ? 5 : 6, op < 0 ? 5 : 6));
    KILN_TRY(ptx_dest_pair(d, ptx_operand(d, 0), 4));
    KILN_TRY(ptx_source(d, ptx_operand(d, 1), 4, insn->type, &insn->a, &insn->a_bytes));
    KILN_TRY(ptx_source(d, ptx_operand(d, 2), 4, insn->type, &insn->b, &insn->b_bytes));
    KILN_TRY(ptx_source(d, ptx_operand(d, 3), 4, insn->type, &insn->c, &insn->c_bytes));
    KILN_TRY(ptx_number(d, ptx_operand(d, 4), &insn->imm));
    insn->imm &= 0xff;
    if (op >= 0) {
        insn->boolop = (uint8_t)(KILN_PTX_BOOL_AND + op);
        KILN_TRY(ptx_source(d, ptx_operand(d, 5), 0, KILN_PTX_PRED, &insn->e, NULL));
        insn->flags |= ptx_operand(d, 5)->negated ? KILN_PTX_C_NOT : 0;
    } else if (insn->d2 != KILN_PTX_NONE) {
        return ptx_bad(d, "a predicate as a second result takes .and, .or or .xor");
    }
    return ptx_emit(d);
}

static enum kiln_status decode_shf(struct ptx_decode *d) {
    int right = ptx_word(d, "r");
    if (!right && !ptx_word(d, "l")) {
        return ptx_bad(d, ".l or .r is missing");
    }
    int wrap = ptx_word(d, "wrap");
    if (!wrap && !ptx_word(d, "clamp")) {
        return ptx_bad(d, ".clamp or .wrap is missing");
    }
    d->insn.sub = (uint8_t)(2 * right + wrap);
    KILN_TRY(ptx_word_type(d, T(B32), &d->insn.type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(fields(d, "dT aT bT cU"));
    return ptx_emit(d);
}

static enum kiln_status decode_testp(struct ptx_decode *d) {
    static const char *const tests[] = {
            "finite", "infinite", "number", "notanumber", "normal", "subnormal"};
    int test = ptx_word_of(d, tests, 6);
    if (test < 0) {
        return ptx_bad(d, "what to test for is missing");
    }
    d->insn.sub = (uint8_t)test;
    KILN_TRY(ptx_word_type(d, REALS, &d->insn.type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(fields(d, "dP aT"));
    return ptx_emit(d);
}

// ---- Comparison ---------------------------------------------------------------------------------

#define COMPARED (B16_64 | I16_64 | REALS | HALVES)

static enum kiln_status comparison(struct ptx_decode *d) {
    static const char *const names[] = {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu",
            "leu", "gtu", "geu", "num", "nan", "lo", "ls", "hi", "hs"};
    static const uint8_t unsigned_ones[] = {KILN_PTX_LT, KILN_PTX_LE, KILN_PTX_GT, KILN_PTX_GE};
    static const char *const ops[] = {"and", "or", "xor"};
    int cmp = ptx_word_of(d, names, 18);
    if (cmp < 0) {
        return ptx_bad(d, "a comparison is missing: .eq .ne .lt .le .gt .ge …");
    }
    d->insn.cmp = cmp < 14 ? (uint8_t)cmp : unsigned_ones[cmp - 14];
    int op = ptx_word_of(d, ops, 3);
    d->insn.boolop = op < 0 ? KILN_PTX_NOBOOL : (uint8_t)(KILN_PTX_BOOL_AND + op);
    d->insn.flags |= ptx_word(d, "ftz") ? KILN_PTX_FTZ : 0;
    return KILN_STATUS_OK;
}

// Behind the type: whether it can be compared so.
static enum kiln_status check_comparison(struct ptx_decode *d) {
    uint64_t type = UINT64_C(1) << d->insn.type2;
    int real = (type & (REALS | HALVES)) != 0;
    if ((!real && (d->insn.cmp >= KILN_PTX_EQU || (d->insn.flags & KILN_PTX_FTZ))) ||
            ((type & B16_64) && d->insn.cmp > KILN_PTX_NE)) {
        return ptx_bad(d, "this comparison does not go with the type");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status compared(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    uint32_t bytes = ptx_type_bytes(insn->type2), wanted = insn->boolop ? 4 : 3;
    KILN_TRY(ptx_count(d, wanted, wanted));
    KILN_TRY(ptx_source(d, ptx_operand(d, 1), bytes, insn->type2, &insn->a, &insn->a_bytes));
    KILN_TRY(ptx_source(d, ptx_operand(d, 2), bytes, insn->type2, &insn->b, &insn->b_bytes));
    if (insn->boolop) {
        KILN_TRY(ptx_source(d, ptx_operand(d, 3), 0, KILN_PTX_PRED, &insn->c, NULL));
        insn->flags |= ptx_operand(d, 3)->negated ? KILN_PTX_C_NOT : 0;
    }
    return ptx_emit(d);
}

static enum kiln_status decode_setp(struct ptx_decode *d) {
    KILN_TRY(comparison(d));
    KILN_TRY(ptx_word_type(d, COMPARED, &d->insn.type2));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(check_comparison(d));
    d->insn.type = KILN_PTX_PRED;
    KILN_TRY(ptx_count(d, 3, 4));
    KILN_TRY(ptx_dest_pair(d, ptx_operand(d, 0), 0));
    return compared(d);
}

static enum kiln_status decode_set(struct ptx_decode *d) {
    KILN_TRY(comparison(d));
    KILN_TRY(ptx_word_type(d, I16_64 | T(F32) | HALVES, &d->insn.type));
    KILN_TRY(ptx_word_type(d, COMPARED, &d->insn.type2));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(check_comparison(d));
    KILN_TRY(ptx_count(d, 3, 4));
    KILN_TRY(ptx_dest(
            d, ptx_operand(d, 0), ptx_type_bytes(d->insn.type), &d->insn.d, &d->insn.d_bytes));
    return compared(d);
}

static enum kiln_status decode_selp(struct ptx_decode *d) {
    KILN_TRY(ptx_word_type(d, B16_64 | I16_64 | REALS, &d->insn.type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(fields(d, "dT aT bT cP"));
    if (d->insn.flags & KILN_PTX_C_NOT) { // the other way round
        uint32_t a = d->insn.a;
        d->insn.a = d->insn.b;
        d->insn.b = a;
        d->insn.flags &= ~(uint32_t)KILN_PTX_C_NOT;
    }
    return ptx_emit(d);
}

// ---- Conversion ---------------------------------------------------------------------------------

#define CVT_INTS  (T(U8) | T(S8) | I16_64)
#define CVT_REALS (T(F16) | T(BF16) | REALS)

static enum kiln_status decode_cvt_pack(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    insn->op = KILN_PTX_OP_CVT_PACK;
    if (!ptx_word(d, "sat")) {
        return ptx_bad(d, ".sat is missing");
    }
    insn->flags |= KILN_PTX_SAT;
    KILN_TRY(ptx_word_type(d, T(U16) | T(S16) | T(U8) | T(S8) | T(U4) | T(S4), &insn->type));
    KILN_TRY(ptx_word_type(d, T(S32), &insn->type2));
    int third = insn->type != KILN_PTX_U16 && insn->type != KILN_PTX_S16;
    if (third && !ptx_word(d, "b32")) {
        return ptx_bad(d, ".b32 is missing");
    }
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(fields(d, third ? "dU aU bU cU" : "dU aU bU"));
    return ptx_emit(d);
}

static enum kiln_status cvt_words(struct ptx_decode *d) {
    static const char *const rounds[] = {"rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"};
    struct kiln_ptx_insn *insn = &d->insn;
    int round = ptx_word_of(d, rounds, 9);
    insn->round = round < 0 ? KILN_PTX_RN : (uint8_t)(KILN_PTX_RN + round);
    for (;;) {
        if (ptx_word(d, "ftz")) {
            insn->flags |= KILN_PTX_FTZ;
        } else if (ptx_word(d, "satfinite")) {
            insn->flags |= KILN_PTX_SATFINITE;
        } else if (ptx_word(d, "sat")) {
            insn->flags |= KILN_PTX_SAT;
        } else if (ptx_word(d, "relu")) {
            insn->flags |= KILN_PTX_RELU;
        } else {
            break;
        }
    }
    KILN_TRY(ptx_word_type(d, CVT_INTS | CVT_REALS | T(F16X2) | T(BF16X2) | T(TF32), &insn->type));
    KILN_TRY(ptx_word_type(d, CVT_INTS | CVT_REALS, &insn->type2));
    KILN_TRY(ptx_words_end(d));
    uint64_t to = UINT64_C(1) << insn->type, from = UINT64_C(1) << insn->type2;
    int pair = (to & (T(F16X2) | T(BF16X2) | T(TF32))) != 0;
    if (pair && insn->type2 != KILN_PTX_F32) {
        return ptx_bad(d, "this type is converted from .f32 only");
    }
    if ((to & CVT_INTS) && (from & (CVT_REALS)) && insn->round < KILN_PTX_RNI) {
        if (round >= 0) {
            return ptx_bad(d, "a conversion to an integer takes .rni, .rzi, .rmi or .rpi");
        }
        return ptx_bad(d, "a rounding modifier is missing");
    }
    int narrower = kiln_ptx_type_bits(insn->type) < kiln_ptx_type_bits(insn->type2);
    int bf16 = insn->type == KILN_PTX_BF16 || insn->type == KILN_PTX_BF16X2;
    if ((to & CVT_REALS) && round < 0 &&
            ((from & CVT_INTS) ||
                    ((from & CVT_REALS) && (narrower || (bf16 && insn->type2 != KILN_PTX_BF16))))) {
        return ptx_bad(d, "a rounding modifier is missing");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status decode_cvt(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    if (ptx_word(d, "pack")) {
        return decode_cvt_pack(d);
    }
    KILN_TRY(cvt_words(d));
    int pair = insn->type == KILN_PTX_F16X2 || insn->type == KILN_PTX_BF16X2;
    KILN_TRY(ptx_count(d, pair ? 3 : 2, pair ? 3 : 2));
    uint32_t bytes = ptx_type_bytes(insn->type);
    KILN_TRY(ptx_dest(d, ptx_operand(d, 0), PTX_ANY, &insn->d, &insn->d_bytes));
    if (insn->d != KILN_PTX_NONE && insn->d_bytes < bytes) {
        return ptx_bad(d, "the destination has fewer bits than the type");
    }
    KILN_TRY(ptx_source(d, ptx_operand(d, 1), PTX_ANY, insn->type2, &insn->a, &insn->a_bytes));
    if (pair) {
        KILN_TRY(ptx_source(d, ptx_operand(d, 2), PTX_ANY, insn->type2, &insn->b, &insn->b_bytes));
    }
    return ptx_emit(d);
}

// ---- Opcodes ------------------------------------------------------------------------------------

const struct ptx_opcode *ptx_alu_opcode(struct ptx_name name) {
    static const struct ptx_opcode of_table = {"", decode_alu, KILN_PTX_OP_NOP};
    static const struct ptx_opcode others[] = {
            {"mov", decode_mov, KILN_PTX_OP_MOV},
            {"prmt", decode_prmt, KILN_PTX_OP_PRMT},
            {"lop3", decode_lop3, KILN_PTX_OP_LOP3},
            {"shf", decode_shf, KILN_PTX_OP_SHF},
            {"testp", decode_testp, KILN_PTX_OP_TESTP},
            {"setp", decode_setp, KILN_PTX_OP_SETP},
            {"set", decode_set, KILN_PTX_OP_SET},
            {"selp", decode_selp, KILN_PTX_OP_SELP},
            {"cvt", decode_cvt, KILN_PTX_OP_CVT},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (ptx_same(name, others[i].name)) {
            return &others[i];
        }
    }
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (ptx_same(name, table[i].name)) {
            return &of_table;
        }
    }
    return NULL;
}
