// ptx_mem: loads, stores, atomics, asynchronous copies, matrix loads, addresses.
#include "device/sim/ptx_impl.h"

#include <string.h>

#define T(name) (UINT64_C(1) << KILN_PTX_##name)

#define ELEMENTS \
    (T(B8) | T(B16) | T(B32) | T(B64) | T(B128) | T(U8) | T(U16) | T(U32) | T(U64) | T(S8) | \
            T(S16) | T(S32) | T(S64) | T(F32) | T(F64) | T(F16) | T(BF16) | T(F16X2) | T(BF16X2))

// ---- Words that several share -------------------------------------------------------------------

// A state space; -1: the next word is none.
static int space_word(struct ptx_decode *d) {
    static const struct {
        const char *name;
        enum kiln_ptx_space space;
    } spaces[] = {{"global", KILN_PTX_GLOBAL}, {"shared", KILN_PTX_SHARED},
            {"shared::cta", KILN_PTX_SHARED}, {"local", KILN_PTX_LOCAL},
            {"const", KILN_PTX_CONSTANT}, {"param", KILN_PTX_PARAM},
            {"param::entry", KILN_PTX_PARAM}, {"param::func", KILN_PTX_PARAM}};
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
        if (ptx_word(d, spaces[i].name)) {
            return (int)spaces[i].space;
        }
    }
    return -1;
}

// What orders accesses between threads: one thing to an interpreter that does them in order.
static int order_word(struct ptx_decode *d) {
    static const char *const orders[] = {
            "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"};
    static const char *const scopes[] = {"weak", "cta", "cluster", "gpu", "sys"};
    if (ptx_word_of(d, orders, 6) >= 0) {
        d->insn.flags |= KILN_PTX_VOLATILE;
        return 1;
    }
    return ptx_word_of(d, scopes, 5) >= 0;
}

// Hints to caches, which an interpreter without caches has no use for.
static int cache_word(struct ptx_decode *d) {
    static const char *const hints[] = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc",
            "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
            "L1::no_allocate", "L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::64B",
            "L2::128B", "L2::256B"};
    return ptx_word_of(d, hints, 19) >= 0;
}

static uint32_t vector_word(struct ptx_decode *d) {
    return ptx_word(d, "v2") ? 2 : ptx_word(d, "v4") ? 4 : ptx_word(d, "v8") ? 8 : 1;
}

// ---- ld and st ----------------------------------------------------------------------------------

static enum kiln_status access_words(struct ptx_decode *d, uint32_t *vector) {
    int spaced = 0;
    d->insn.space = KILN_PTX_GENERIC;
    for (;;) {
        if (order_word(d) || cache_word(d)) {
            continue;
        }
        int space = spaced ? -1 : space_word(d);
        if (space < 0) {
            break;
        }
        spaced = 1;
        d->insn.space = (uint8_t)space;
    }
    *vector = vector_word(d);
    KILN_TRY(ptx_word_type(d, ELEMENTS, &d->insn.type));
    KILN_TRY(ptx_words_end(d));
    if (*vector * kiln_ptx_type_bits((enum kiln_ptx_type)d->insn.type) > 256) {
        return ptx_bad(d, "a vector of more than 256 bits");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_width(struct ptx_decode *d, uint32_t register_bytes) {
    if (register_bytes != 0 && register_bytes < ptx_type_bytes(d->insn.type)) {
        return ptx_bad(d, "a register has fewer bits than the type");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status decode_ld(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    uint32_t vector;
    KILN_TRY(access_words(d, &vector));
    KILN_TRY(ptx_count(d, 2, 2));
    KILN_TRY(ptx_list(
            d, ptx_operand(d, 0), vector, PTX_ANY, 1, &insn->d, &insn->n_d, &insn->d_bytes));
    KILN_TRY(check_width(d, insn->d_bytes));
    KILN_TRY(ptx_address(d, ptx_operand(d, 1), &insn->a, &insn->a_bytes, &insn->imm));
    return ptx_emit(d);
}

static enum kiln_status decode_st(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    uint32_t vector;
    KILN_TRY(access_words(d, &vector));
    KILN_TRY(ptx_count(d, 2, 2));
    KILN_TRY(ptx_address(d, ptx_operand(d, 0), &insn->a, &insn->a_bytes, &insn->imm));
    if (insn->space == KILN_PTX_PARAM || insn->space == KILN_PTX_CONSTANT) {
        return ptx_bad(d, "this memory can only be read");
    }
    KILN_TRY(ptx_list(
            d, ptx_operand(d, 1), vector, PTX_ANY, 0, &insn->b, &insn->n_b, &insn->b_bytes));
    KILN_TRY(check_width(d, insn->b_bytes));
    return ptx_emit(d);
}

static enum kiln_status decode_prefetch(struct ptx_decode *d) {
    static const char *const levels[] = {"L1", "L2", "L2::evict_last", "L2::evict_normal"};
    struct kiln_ptx_insn *insn = &d->insn;
    int space = space_word(d);
    insn->space = space < 0 ? KILN_PTX_GENERIC : (uint8_t)space;
    if (!ptx_word(d, "tensormap") && ptx_word_of(d, levels, 4) < 0) {
        return ptx_bad(d, ".L1, .L2 or .tensormap is missing");
    }
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 1, 1));
    KILN_TRY(ptx_address(d, ptx_operand(d, 0), &insn->a, &insn->a_bytes, &insn->imm));
    return ptx_emit(d);
}

// ---- atom and red -------------------------------------------------------------------------------

static uint64_t atom_types(uint32_t op) {
    switch (op) {
    case KILN_PTX_ATOM_ADD:
        return T(U32) | T(S32) | T(U64) | T(F32) | T(F64) | T(F16) | T(F16X2) | T(BF16) | T(BF16X2);
    case KILN_PTX_ATOM_MIN:
    case KILN_PTX_ATOM_MAX:
        return T(U32) | T(S32) | T(U64) | T(S64) | T(F16) | T(F16X2) | T(BF16) | T(BF16X2);
    case KILN_PTX_ATOM_INC:
    case KILN_PTX_ATOM_DEC:
        return T(U32);
    case KILN_PTX_ATOM_CAS:
        return T(B16) | T(B32) | T(B64);
    default:
        return T(B32) | T(B64);
    }
}

static enum kiln_status atom_words(struct ptx_decode *d, uint32_t *vector) {
    static const char *const ops[] = {
            "add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas"};
    struct kiln_ptx_insn *insn = &d->insn;
    insn->space = KILN_PTX_GENERIC;
    for (;;) {
        int space = space_word(d);
        if (space >= 0) {
            insn->space = (uint8_t)space;
        } else if (!order_word(d)) {
            break;
        }
    }
    int op = ptx_word_of(d, ops, 10);
    if (op < 0) {
        return ptx_bad(d, "an operation is missing: .add .min .max .and .or .xor .exch .cas …");
    }
    while (order_word(d)) { // CUDA's headers have it here
    }
    insn->flags &= ~(uint32_t)KILN_PTX_VOLATILE;
    insn->sub = (uint8_t)op;
    insn->flags |= ptx_word(d, "noftz") ? KILN_PTX_NOFTZ : 0;
    *vector = vector_word(d);
    KILN_TRY(ptx_word_type(d, atom_types(insn->sub), &insn->type));
    if (*vector > 1 && insn->space != KILN_PTX_GLOBAL) {
        return ptx_bad(d, "vectors belong to .global");
    }
    return ptx_words_end(d);
}

// The operands from the address on.
static enum kiln_status atom_operands(struct ptx_decode *d, uint32_t at, uint32_t vector) {
    struct kiln_ptx_insn *insn = &d->insn;
    uint32_t bytes = ptx_type_bytes(insn->type);
    uint32_t wanted = at + (insn->sub == KILN_PTX_ATOM_CAS ? 3 : 2);
    KILN_TRY(ptx_count(d, wanted, wanted));
    KILN_TRY(ptx_address(d, ptx_operand(d, at), &insn->a, &insn->a_bytes, &insn->imm));
    if (insn->space != KILN_PTX_GENERIC && insn->space != KILN_PTX_GLOBAL &&
            insn->space != KILN_PTX_SHARED) {
        return ptx_bad(d, "atomics work on global and shared memory");
    }
    KILN_TRY(ptx_list(
            d, ptx_operand(d, at + 1), vector, bytes, 0, &insn->b, &insn->n_b, &insn->b_bytes));
    if (insn->sub == KILN_PTX_ATOM_CAS) {
        insn->n_c = 1;
        KILN_TRY(
                ptx_source(d, ptx_operand(d, at + 2), bytes, insn->type, &insn->c, &insn->c_bytes));
    }
    return ptx_emit(d);
}

static enum kiln_status decode_atom(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    uint32_t vector;
    KILN_TRY(atom_words(d, &vector));
    KILN_TRY(ptx_count(d, 3, 4));
    KILN_TRY(ptx_list(d, ptx_operand(d, 0), vector, ptx_type_bytes(insn->type), 1, &insn->d,
            &insn->n_d, &insn->d_bytes));
    return atom_operands(d, 1, vector);
}

static enum kiln_status decode_red(struct ptx_decode *d) {
    uint32_t vector;
    KILN_TRY(atom_words(d, &vector));
    if (d->insn.sub >= KILN_PTX_ATOM_EXCH) {
        return ptx_bad(d, "red has no .exch and .cas");
    }
    return atom_operands(d, 0, vector);
}

// ---- cp.async -----------------------------------------------------------------------------------

static enum kiln_status decode_cp_wait(struct ptx_decode *d, int all) {
    d->insn.op = KILN_PTX_OP_CP_WAIT;
    d->insn.imm = -1;
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, all ? 0 : 1, all ? 0 : 1));
    if (!all) {
        KILN_TRY(ptx_number(d, ptx_operand(d, 0), &d->insn.imm));
        if (d->insn.imm < 0) {
            return ptx_bad(d, "a number of groups is not negative");
        }
    }
    return ptx_emit(d);
}

static enum kiln_status cp_operands(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    int64_t bytes, offset;
    KILN_TRY(ptx_count(d, 3, 4));
    insn->type = KILN_PTX_B8; // what is copied are bytes
    insn->space = KILN_PTX_SHARED;
    KILN_TRY(ptx_address(d, ptx_operand(d, 0), &insn->a, &insn->a_bytes, &insn->imm));
    insn->space = KILN_PTX_GLOBAL;
    KILN_TRY(ptx_address(d, ptx_operand(d, 1), &insn->b, &insn->b_bytes, &offset));
    insn->space = KILN_PTX_SHARED;
    if (offset < INT32_MIN || offset > INT32_MAX || insn->b == KILN_PTX_NONE) {
        return ptx_bad(d, "the source is a register or a variable, and an offset of 32 bits");
    }
    insn->imm2 = (int32_t)offset;
    KILN_TRY(ptx_number(d, ptx_operand(d, 2), &bytes));
    int cg = (insn->flags & KILN_PTX_CG) != 0;
    if (bytes != 16 && (cg || (bytes != 4 && bytes != 8))) {
        return ptx_bad(d, "%s copies %s bytes", cg ? ".cg" : ".ca", cg ? "16" : "4, 8 or 16");
    }
    insn->imm3 = (uint8_t)bytes;
    if (d->stmt->count < 4) {
        return KILN_STATUS_OK;
    }
    const struct ptx_operand *last = ptx_operand(d, 3);
    if (last->kind == PTX_OPERAND_REG && d->func->regs[last->index].bytes == 0) {
        return last->negated ? ptx_bad(d, "a negated ignore-src is not modelled")
                             : ptx_source(d, last, 0, KILN_PTX_PRED, &insn->e, NULL);
    }
    insn->flags |= KILN_PTX_HAS_SIZE;
    return ptx_source(d, last, 4, KILN_PTX_B32, &insn->c, &insn->c_bytes);
}

static enum kiln_status decode_cp(struct ptx_decode *d) {
    static const char *const hints[] = {"L2::64B", "L2::128B", "L2::256B"};
    if (!ptx_word(d, "async")) {
        return ptx_bad(d, "only cp.async is modelled");
    }
    if (ptx_word(d, "bulk")) {
        return ptx_decode_bulk(d);
    }
    if (ptx_word(d, "commit_group")) {
        d->insn.op = KILN_PTX_OP_CP_COMMIT;
        KILN_TRY(ptx_words_end(d));
        KILN_TRY(ptx_count(d, 0, 0));
        return ptx_emit(d);
    }
    if (ptx_word(d, "wait_group")) {
        return decode_cp_wait(d, 0);
    }
    if (ptx_word(d, "wait_all")) {
        return decode_cp_wait(d, 1);
    }
    int cg = ptx_word(d, "cg");
    if (!cg && !ptx_word(d, "ca")) {
        return ptx_bad(d, "of cp.async .ca, .cg, .commit_group, .wait_group and .wait_all are "
                          "modelled");
    }
    d->insn.flags |= cg ? KILN_PTX_CG : 0;
    if ((!ptx_word(d, "shared") && !ptx_word(d, "shared::cta")) || !ptx_word(d, "global")) {
        return ptx_bad(d, ".shared.global is missing");
    }
    (void)ptx_word_of(d, hints, 3);
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(cp_operands(d));
    return ptx_emit(d);
}

// ---- Matrices in shared memory ------------------------------------------------------------------

// .sync.aligned.m8n8.x1|x2|x4 [.trans] [.shared] .b16
static enum kiln_status matrix_words(struct ptx_decode *d, uint32_t *count) {
    static const char *const counts[] = {"x1", "x2", "x4"};
    if (!ptx_word(d, "sync") || !ptx_word(d, "aligned") || !ptx_word(d, "m8n8")) {
        return ptx_bad(d, ".sync.aligned.m8n8 is missing");
    }
    int which = ptx_word_of(d, counts, 3);
    if (which < 0) {
        return ptx_bad(d, ".x1, .x2 or .x4 is missing");
    }
    *count = 1u << which;
    d->insn.flags |= ptx_word(d, "trans") ? KILN_PTX_TRANS | KILN_PTX_ALIGNED : KILN_PTX_ALIGNED;
    int shared = ptx_word(d, "shared") || ptx_word(d, "shared::cta");
    d->insn.space = shared ? KILN_PTX_SHARED : KILN_PTX_GENERIC;
    KILN_TRY(ptx_word_type(d, T(B16), &d->insn.type));
    KILN_TRY(ptx_words_end(d));
    return ptx_count(d, 2, 2);
}

static enum kiln_status decode_ldmatrix(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    uint32_t count;
    KILN_TRY(matrix_words(d, &count));
    KILN_TRY(ptx_list(d, ptx_operand(d, 0), count, 4, 1, &insn->d, &insn->n_d, &insn->d_bytes));
    KILN_TRY(ptx_address(d, ptx_operand(d, 1), &insn->a, &insn->a_bytes, &insn->imm));
    return ptx_emit(d);
}

static enum kiln_status decode_stmatrix(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    uint32_t count;
    KILN_TRY(matrix_words(d, &count));
    KILN_TRY(ptx_address(d, ptx_operand(d, 0), &insn->a, &insn->a_bytes, &insn->imm));
    insn->type = KILN_PTX_B32; // of the registers in the list
    KILN_TRY(ptx_list(d, ptx_operand(d, 1), count, 4, 0, &insn->b, &insn->n_b, &insn->b_bytes));
    insn->type = KILN_PTX_B16;
    return ptx_emit(d);
}

static enum kiln_status decode_movmatrix(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    if (!ptx_word(d, "sync") || !ptx_word(d, "aligned") || !ptx_word(d, "m8n8") ||
            !ptx_word(d, "trans")) {
        return ptx_bad(d, ".sync.aligned.m8n8.trans is missing");
    }
    KILN_TRY(ptx_word_type(d, T(B16), &insn->type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 2, 2));
    insn->flags |= KILN_PTX_TRANS | KILN_PTX_ALIGNED;
    KILN_TRY(ptx_dest(d, ptx_operand(d, 0), 4, &insn->d, &insn->d_bytes));
    KILN_TRY(ptx_source(d, ptx_operand(d, 1), 4, KILN_PTX_B32, &insn->a, &insn->a_bytes));
    return ptx_emit(d);
}

// ---- Addresses ----------------------------------------------------------------------------------

static enum kiln_status decode_cvta(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    if (ptx_word(d, "to")) {
        insn->op = KILN_PTX_OP_CVTA_TO;
    }
    int space = space_word(d);
    if (space < 0) {
        return ptx_bad(d, "a state space is missing");
    }
    if (space == KILN_PTX_PARAM && !d->is_entry) {
        return ptx_bad(d, "generic addresses of a function's parameters are not modelled");
    }
    insn->space = (uint8_t)space;
    KILN_TRY(ptx_word_type(d, T(U32) | T(U64), &insn->type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 2, 2));
    uint32_t bytes = ptx_type_bytes(insn->type);
    KILN_TRY(ptx_dest(d, ptx_operand(d, 0), bytes, &insn->d, &insn->d_bytes));
    KILN_TRY(ptx_source(d, ptx_operand(d, 1), bytes, insn->type, &insn->a, &insn->a_bytes));
    return ptx_emit(d);
}

static enum kiln_status decode_isspacep(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    int space = space_word(d);
    if (space < 0) {
        return ptx_bad(d, "a state space is missing, or not modelled");
    }
    insn->space = (uint8_t)space;
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 2, 2));
    KILN_TRY(ptx_dest(d, ptx_operand(d, 0), 0, &insn->d, &insn->d_bytes));
    KILN_TRY(ptx_source(d, ptx_operand(d, 1), 8, KILN_PTX_U64, &insn->a, &insn->a_bytes));
    return ptx_emit(d);
}

const struct ptx_opcode *ptx_mem_opcode(struct ptx_name name) {
    static const struct ptx_opcode known[] = {
            {"ld", decode_ld, KILN_PTX_OP_LD},
            {"ldu", decode_ld, KILN_PTX_OP_LD},
            {"st", decode_st, KILN_PTX_OP_ST},
            {"prefetch", decode_prefetch, KILN_PTX_OP_PREFETCH},
            {"prefetchu", decode_prefetch, KILN_PTX_OP_PREFETCH},
            {"atom", decode_atom, KILN_PTX_OP_ATOM},
            {"red", decode_red, KILN_PTX_OP_ATOM},
            {"cp", decode_cp, KILN_PTX_OP_CP_ASYNC},
            {"ldmatrix", decode_ldmatrix, KILN_PTX_OP_LDMATRIX},
            {"stmatrix", decode_stmatrix, KILN_PTX_OP_STMATRIX},
            {"movmatrix", decode_movmatrix, KILN_PTX_OP_MOVMATRIX},
            {"cvta", decode_cvta, KILN_PTX_OP_CVTA},
            {"isspacep", decode_isspacep, KILN_PTX_OP_ISSPACEP},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (ptx_same(name, known[i].name)) {
            return &known[i];
        }
    }
    return NULL;
}
