// ptx_mma: tensor-core instructions: which shapes and types there are, and how many registers of a
// lane a fragment takes.
#include "device/sim/ptx_impl.h"

#include <string.h>

#define T(name) (UINT64_C(1) << KILN_PTX_##name)

static const struct {
    const char *name;
    enum kiln_ptx_shape shape;
    uint32_t m, n, k;
} shapes[] = {
        {"m8n8k4", KILN_PTX_M8N8K4, 8, 8, 4},
        {"m8n8k16", KILN_PTX_M8N8K16, 8, 8, 16},
        {"m8n8k32", KILN_PTX_M8N8K32, 8, 8, 32},
        {"m8n8k128", KILN_PTX_M8N8K128, 8, 8, 128},
        {"m16n8k4", KILN_PTX_M16N8K4, 16, 8, 4},
        {"m16n8k8", KILN_PTX_M16N8K8, 16, 8, 8},
        {"m16n8k16", KILN_PTX_M16N8K16, 16, 8, 16},
        {"m16n8k32", KILN_PTX_M16N8K32, 16, 8, 32},
        {"m16n8k64", KILN_PTX_M16N8K64, 16, 8, 64},
        {"m16n8k128", KILN_PTX_M16N8K128, 16, 8, 128},
        {"m16n8k256", KILN_PTX_M16N8K256, 16, 8, 256},
        {"m16n16k16", KILN_PTX_M16N16K16, 16, 16, 16},
        {"m32n8k16", KILN_PTX_M32N8K16, 32, 8, 16},
        {"m8n32k16", KILN_PTX_M8N32K16, 8, 32, 16},
        {"m16n16k8", KILN_PTX_M16N16K8, 16, 16, 8},
};

enum {
    N_SHAPES = sizeof(shapes) / sizeof(shapes[0])
};

#define S(name) (1u << KILN_PTX_##name)

#define WMMA_SQUARES (S(M16N16K16) | S(M32N8K16) | S(M8N32K16))

// What mma and wmma multiply: shapes by the type of a (and b), and what d and c may be.
static const struct product {
    uint64_t types, sums;
    uint32_t mma, wmma;
} products[] = {
        {T(F16), T(F16) | T(F32), S(M8N8K4) | S(M16N8K8) | S(M16N8K16), WMMA_SQUARES},
        {T(BF16), T(F32), S(M16N8K8) | S(M16N8K16), WMMA_SQUARES},
        {T(TF32), T(F32), S(M16N8K4) | S(M16N8K8), S(M16N16K8)},
        {T(F64), T(F64), S(M8N8K4), S(M8N8K4)},
        {T(U8) | T(S8), T(S32), S(M8N8K16) | S(M16N8K16) | S(M16N8K32), WMMA_SQUARES},
        {T(U4) | T(S4), T(S32), S(M8N8K32) | S(M16N8K32) | S(M16N8K64), S(M8N8K32)},
        {T(B1), T(S32), S(M8N8K128) | S(M16N8K128) | S(M16N8K256), S(M8N8K128)},
};

static const struct product *product_of(uint32_t type) {
    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
        if (products[i].types >> type & 1) {
            return &products[i];
        }
    }
    return NULL;
}

static enum kiln_status shape_word(struct ptx_decode *d) {
    for (uint32_t i = 0; i < N_SHAPES; i++) {
        if (ptx_word(d, shapes[i].name)) {
            d->insn.sub = (uint8_t)shapes[i].shape;
            return KILN_STATUS_OK;
        }
    }
    return ptx_bad(d, "a shape is missing, or not modelled");
}

static enum kiln_status sync_words(struct ptx_decode *d) {
    if (!ptx_word(d, "sync") || !ptx_word(d, "aligned")) {
        return ptx_bad(d, ".sync.aligned is missing");
    }
    d->insn.flags |= KILN_PTX_ALIGNED;
    return KILN_STATUS_OK;
}

static enum kiln_status layout_word(struct ptx_decode *d, uint32_t flag) {
    if (ptx_word(d, "col")) {
        d->insn.flags |= flag;
        return KILN_STATUS_OK;
    }
    return ptx_word(d, "row") ? KILN_STATUS_OK : ptx_bad(d, ".row or .col is missing");
}

// Registers of a lane for `elements` of a type, spread over 32 lanes.
static uint32_t registers_for(uint32_t elements, uint32_t type) {
    uint32_t bits = kiln_ptx_type_bits((enum kiln_ptx_type)type);
    uint32_t a_register = bits == 64 ? 64 : 32;
    return elements * bits / 32 / a_register;
}

static uint32_t register_bytes(uint32_t type) {
    return type == KILN_PTX_F64 ? 8 : 4;
}

// One fragment as a list operand.
static enum kiln_status fragment(
        struct ptx_decode *d, uint32_t number, uint32_t count, uint32_t type, int is_dest) {
    struct kiln_ptx_insn *insn = &d->insn;
    uint32_t *const to[] = {&insn->d, &insn->a, &insn->b, &insn->c};
    uint8_t *const n[] = {&insn->n_d, &insn->n_a, &insn->n_b, &insn->n_c};
    uint8_t *const bytes[] = {&insn->d_bytes, &insn->a_bytes, &insn->b_bytes, &insn->c_bytes};
    uint8_t kept = insn->type;
    insn->type = type == KILN_PTX_F64   ? KILN_PTX_F64
                 : type == KILN_PTX_F32 ? KILN_PTX_F32
                                        : KILN_PTX_B32; // what constants in the list are
    enum kiln_status status = ptx_list(d, ptx_operand(d, number), count, register_bytes(type),
            is_dest, to[number], n[number], bytes[number]);
    insn->type = kept;
    return status;
}

// ---- mma ----------------------------------------------------------------------------------------

static enum kiln_status mma_types(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    uint64_t sums = T(F16) | T(F32) | T(F64) | T(S32);
    uint64_t factors = T(F16) | T(BF16) | T(TF32) | T(F64) | T(U8) | T(S8) | T(U4) | T(S4) | T(B1);
    KILN_TRY(ptx_word_type(d, sums, &insn->type));
    KILN_TRY(ptx_word_type(d, factors, &insn->type2));
    KILN_TRY(ptx_word_type(d, factors, &insn->type3));
    return ptx_word_type(d, sums, &insn->type4);
}

static enum kiln_status check_product(struct ptx_decode *d, int wmma) {
    const struct kiln_ptx_insn *insn = &d->insn;
    const struct product *product = product_of(insn->type2);
    uint32_t of_shape = 1u << insn->sub;
    if (!product || product != product_of(insn->type3) ||
            !((wmma ? product->wmma : product->mma) & of_shape) ||
            !(product->sums >> insn->type & 1) || !(product->sums >> insn->type4 & 1)) {
        return ptx_bad(d, "this shape does not go with these types");
    }
    if ((insn->flags & KILN_PTX_SATFINITE) && !(product->sums & T(S32)) && !wmma) {
        return ptx_bad(d, ".satfinite belongs to integers");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status mma_fragments(struct ptx_decode *d) {
    const struct kiln_ptx_insn *insn = &d->insn;
    uint32_t m = shapes[insn->sub].m, n = shapes[insn->sub].n, k = shapes[insn->sub].k;
    uint32_t a = registers_for(m * k, insn->type2), b = registers_for(k * n, insn->type3);
    uint32_t c = registers_for(m * n, insn->type4), to = registers_for(m * n, insn->type);
    if (insn->sub == KILN_PTX_M8N8K4 && insn->type2 == KILN_PTX_F16) {
        a = b = 2; // four products at once, eight lanes each
        c = insn->type4 == KILN_PTX_F16 ? 4 : 8;
        to = insn->type == KILN_PTX_F16 ? 4 : 8;
    }
    KILN_TRY(ptx_count(d, 4, 4));
    KILN_TRY(fragment(d, 0, to, insn->type, 1));
    KILN_TRY(fragment(d, 1, a, insn->type2, 0));
    KILN_TRY(fragment(d, 2, b, insn->type3, 0));
    return fragment(d, 3, c, insn->type4, 0);
}

static enum kiln_status decode_mma(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    KILN_TRY(sync_words(d));
    KILN_TRY(shape_word(d));
    KILN_TRY(layout_word(d, KILN_PTX_A_COL));
    KILN_TRY(layout_word(d, KILN_PTX_B_COL));
    insn->flags |= ptx_word(d, "satfinite") ? KILN_PTX_SATFINITE : 0;
    (void)ptx_word(d, "rn"); // of f64, the default
    KILN_TRY(mma_types(d));
    if (insn->type2 == KILN_PTX_B1) {
        insn->imm = ptx_word(d, "xor") ? 1 : ptx_word(d, "and") ? 2 : 0;
        if (insn->imm == 0 || !ptx_word(d, "popc")) {
            return ptx_bad(d, ".xor.popc or .and.popc is missing");
        }
    }
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(check_product(d, 0));
    int any_layout = insn->sub == KILN_PTX_M8N8K4 && insn->type2 == KILN_PTX_F16;
    uint32_t layout = insn->flags & (KILN_PTX_A_COL | KILN_PTX_B_COL);
    if (!any_layout && layout != KILN_PTX_B_COL) {
        return ptx_bad(d, "this shape is .row.col");
    }
    KILN_TRY(mma_fragments(d));
    return ptx_emit(d);
}

// ---- wmma ---------------------------------------------------------------------------------------

// Registers of a wmma fragment: 0 a, 1 b, 2 c and d. Those of a and b in f16 are held twice.
static uint32_t wmma_registers(uint32_t shape, uint32_t type, int which) {
    uint32_t m = shapes[shape].m, n = shapes[shape].n, k = shapes[shape].k;
    if (which < 2 && type == KILN_PTX_F16) {
        return 8;
    }
    return registers_for(which == 0 ? m * k : which == 1 ? k * n : m * n, type);
}

// Address, stride and space of wmma.load and wmma.store.
static enum kiln_status wmma_place(
        struct ptx_decode *d, uint32_t address, uint32_t stride, uint32_t count) {
    struct kiln_ptx_insn *insn = &d->insn;
    KILN_TRY(ptx_address(d, ptx_operand(d, address), &insn->a, &insn->a_bytes, &insn->imm));
    return stride < count ? ptx_source(d, ptx_operand(d, stride), 4, KILN_PTX_U32, &insn->c,
                                    &insn->c_bytes)
                          : KILN_STATUS_OK;
}

static enum kiln_status wmma_memory_words(struct ptx_decode *d, uint64_t types) {
    static const char *const spaces[] = {"global", "shared", "shared::cta"};
    KILN_TRY(sync_words(d));
    KILN_TRY(layout_word(d, KILN_PTX_B_COL));
    KILN_TRY(shape_word(d));
    int space = ptx_word_of(d, spaces, 3);
    d->insn.space = space < 0 ? KILN_PTX_GENERIC : space == 0 ? KILN_PTX_GLOBAL : KILN_PTX_SHARED;
    KILN_TRY(ptx_word_type(d, types, &d->insn.type));
    KILN_TRY(ptx_words_end(d));
    return ptx_count(d, 2, 3);
}

static enum kiln_status wmma_load(struct ptx_decode *d) {
    static const char *const which[] = {"a", "b", "c"};
    struct kiln_ptx_insn *insn = &d->insn;
    insn->op = KILN_PTX_OP_WMMA_LOAD;
    insn->imm2 = ptx_word_of(d, which, 3);
    if (insn->imm2 < 0) {
        return ptx_bad(d, ".a, .b or .c is missing");
    }
    uint64_t sums = T(F16) | T(F32) | T(S32) | T(F64);
    uint64_t factors = T(F16) | T(BF16) | T(TF32) | T(F64) | T(U8) | T(S8) | T(U4) | T(S4) | T(B1);
    KILN_TRY(wmma_memory_words(d, insn->imm2 == 2 ? sums : factors));
    const struct product *product = product_of(insn->type);
    if (insn->imm2 < 2 && (!product || !(product->wmma >> insn->sub & 1))) {
        return ptx_bad(d, "this shape does not go with this type");
    }
    KILN_TRY(fragment(d, 0, wmma_registers(insn->sub, insn->type, insn->imm2), insn->type, 1));
    KILN_TRY(wmma_place(d, 1, 2, d->stmt->count));
    return ptx_emit(d);
}

static enum kiln_status wmma_store(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    insn->op = KILN_PTX_OP_WMMA_STORE;
    if (!ptx_word(d, "d")) {
        return ptx_bad(d, ".d is missing");
    }
    KILN_TRY(wmma_memory_words(d, T(F16) | T(F32) | T(S32) | T(F64)));
    KILN_TRY(wmma_place(d, 0, 2, d->stmt->count));
    uint8_t type = insn->type;
    insn->type = type == KILN_PTX_F32 || type == KILN_PTX_F64 ? type : KILN_PTX_B32;
    KILN_TRY(ptx_list(d, ptx_operand(d, 1), wmma_registers(insn->sub, type, 2),
            register_bytes(type), 0, &insn->b, &insn->n_b, &insn->b_bytes));
    insn->type = type;
    return ptx_emit(d);
}

// .mma.sync.aligned.LAYOUT.LAYOUT.SHAPE.TYPES[.satfinite|.rnd]; of f16 only d's and c's type.
static enum kiln_status wmma_mma(struct ptx_decode *d) {
    static const char *const rounds[] = {"rn", "rz", "rm", "rp"};
    struct kiln_ptx_insn *insn = &d->insn;
    insn->op = KILN_PTX_OP_WMMA_MMA;
    int bits = ptx_word(d, "xor") ? 1 : ptx_word(d, "and") ? 2 : 0;
    if (bits && !ptx_word(d, "popc")) {
        return ptx_bad(d, ".popc is missing");
    }
    insn->imm = bits;
    KILN_TRY(sync_words(d));
    KILN_TRY(layout_word(d, KILN_PTX_A_COL));
    KILN_TRY(layout_word(d, KILN_PTX_B_COL));
    KILN_TRY(shape_word(d));
    if (d->n_words - d->word < 4) {
        KILN_TRY(ptx_word_type(d, T(F16) | T(F32), &insn->type));
        KILN_TRY(ptx_word_type(d, T(F16) | T(F32), &insn->type4));
        insn->type2 = insn->type3 = KILN_PTX_F16;
    } else {
        KILN_TRY(mma_types(d));
    }
    insn->flags |= ptx_word(d, "satfinite") ? KILN_PTX_SATFINITE : 0;
    int round = insn->type == KILN_PTX_F64 ? ptx_word_of(d, rounds, 4) : -1;
    insn->round = round < 0 ? KILN_PTX_RN : (uint8_t)(KILN_PTX_RN + round);
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(check_product(d, 1));
    KILN_TRY(ptx_count(d, 4, 4));
    KILN_TRY(fragment(d, 0, wmma_registers(insn->sub, insn->type, 2), insn->type, 1));
    KILN_TRY(fragment(d, 1, wmma_registers(insn->sub, insn->type2, 0), insn->type2, 0));
    KILN_TRY(fragment(d, 2, wmma_registers(insn->sub, insn->type3, 1), insn->type3, 0));
    KILN_TRY(fragment(d, 3, wmma_registers(insn->sub, insn->type4, 2), insn->type4, 0));
    return ptx_emit(d);
}

static enum kiln_status decode_wmma(struct ptx_decode *d) {
    if (ptx_word(d, "load")) {
        return wmma_load(d);
    }
    if (ptx_word(d, "store")) {
        return wmma_store(d);
    }
    return ptx_word(d, "mma") ? wmma_mma(d) : ptx_bad(d, ".load, .store or .mma is missing");
}

const struct ptx_opcode *ptx_mma_opcode(struct ptx_name name) {
    static const struct ptx_opcode mma = {"mma", decode_mma, KILN_PTX_OP_MMA};
    static const struct ptx_opcode wmma = {"wmma", decode_wmma, KILN_PTX_OP_WMMA_MMA};
    return ptx_same(name, "mma") ? &mma : ptx_same(name, "wmma") ? &wmma : NULL;
}
