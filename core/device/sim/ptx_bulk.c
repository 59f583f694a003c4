// ptx_bulk: barriers in shared memory (mbarrier) and copies of many bytes (cp.async.bulk).
#include "device/sim/ptx_impl.h"

#define T(name) (UINT64_C(1) << KILN_PTX_##name)

// ---- mbarrier -----------------------------------------------------------------------------------

// .release, .acquire or .relaxed, and a scope: within one block all are the same.
static void order_words(struct ptx_decode *d) {
    static const char *const orders[] = {"release", "acquire", "relaxed"};
    static const char *const scopes[] = {"cta", "cluster"};
    int order = ptx_word_of(d, orders, 3);
    d->insn.flags |= order == 2 ? KILN_PTX_RELAXED : 0;
    (void)ptx_word_of(d, scopes, 2);
}

// The words behind the operation. Another block's barriers are not there to be named.
static enum kiln_status last_words(struct ptx_decode *d) {
    static const char *const spaces[] = {"shared", "shared::cta", "shared::cluster"};
    d->insn.space = ptx_word_of(d, spaces, 3) >= 0 ? KILN_PTX_SHARED : KILN_PTX_GENERIC;
    KILN_TRY(ptx_word_type(d, T(B64), &d->insn.type));
    return ptx_words_end(d);
}

static enum kiln_status barrier_address(struct ptx_decode *d, uint32_t at) {
    return ptx_address(d, ptx_operand(d, at), &d->insn.a, &d->insn.a_bytes, &d->insn.imm);
}

static enum kiln_status number_at(struct ptx_decode *d, uint32_t at, uint32_t *to) {
    return ptx_source(d, ptx_operand(d, at), 4, KILN_PTX_U32, to, NULL);
}

static enum kiln_status decode_init(struct ptx_decode *d, int init) {
    d->insn.sub = init ? KILN_PTX_MBARRIER_INIT : KILN_PTX_MBARRIER_INVAL;
    KILN_TRY(last_words(d));
    KILN_TRY(ptx_count(d, init ? 2 : 1, init ? 2 : 1));
    KILN_TRY(barrier_address(d, 0));
    KILN_TRY(init ? number_at(d, 1, &d->insn.b) : KILN_STATUS_OK);
    return ptx_emit(d);
}

// mbarrier.arrive[.expect_tx|.noComplete] state|_, [a] {, bytes or arrivals}
static enum kiln_status decode_arrive(struct ptx_decode *d, int drops) {
    struct kiln_ptx_insn *insn = &d->insn;
    int expects = ptx_word(d, "expect_tx"), no_phase = !expects && ptx_word(d, "noComplete");
    insn->sub = drops ? KILN_PTX_MBARRIER_DROP : KILN_PTX_MBARRIER_ARRIVE;
    insn->flags |= no_phase ? KILN_PTX_NO_PHASE : 0;
    order_words(d);
    KILN_TRY(last_words(d));
    KILN_TRY(expects ? ptx_needs(d, 90) : KILN_STATUS_OK);
    KILN_TRY(ptx_count(d, 1, 3));
    // Without a destination it begins with the address.
    uint32_t at = ptx_operand(d, 0)->kind == PTX_OPERAND_ADDR ? 0 : 1;
    uint32_t more = d->stmt->count - at - 1;
    if (d->stmt->count < at + 1 || more > 1 || (more == 0 && (expects || no_phase))) {
        return ptx_bad(d, "operands are a state, an address and a number");
    }
    KILN_TRY(at ? ptx_dest(d, ptx_operand(d, 0), 8, &insn->d, &insn->d_bytes) : KILN_STATUS_OK);
    KILN_TRY(barrier_address(d, at));
    KILN_TRY(more ? number_at(d, at + 1, expects ? &insn->c : &insn->b) : KILN_STATUS_OK);
    return ptx_emit(d);
}

// mbarrier.expect_tx and .complete_tx [a], bytes
static enum kiln_status decode_bytes(struct ptx_decode *d, int expects) {
    d->insn.sub = expects ? KILN_PTX_MBARRIER_EXPECT : KILN_PTX_MBARRIER_COMPLETE;
    KILN_TRY(ptx_needs(d, 90));
    order_words(d);
    KILN_TRY(last_words(d));
    KILN_TRY(ptx_count(d, 2, 2));
    KILN_TRY(barrier_address(d, 0));
    KILN_TRY(number_at(d, 1, &d->insn.c));
    return ptx_emit(d);
}

// mbarrier.test_wait and .try_wait[.parity] p, [a], state or parity {, nanoseconds}
static enum kiln_status decode_wait(struct ptx_decode *d, int tries) {
    struct kiln_ptx_insn *insn = &d->insn;
    insn->sub = tries ? KILN_PTX_MBARRIER_TRY : KILN_PTX_MBARRIER_TEST;
    int parity = ptx_word(d, "parity");
    insn->flags |= parity ? KILN_PTX_PARITY : 0;
    KILN_TRY(ptx_needs(d, tries ? 90 : 80));
    order_words(d);
    KILN_TRY(last_words(d));
    KILN_TRY(ptx_count(d, 3, tries ? 4 : 3));
    KILN_TRY(ptx_dest(d, ptx_operand(d, 0), 0, &insn->d, &insn->d_bytes));
    KILN_TRY(barrier_address(d, 1));
    KILN_TRY(ptx_source(d, ptx_operand(d, 2), parity ? 4 : 8, parity ? KILN_PTX_U32 : KILN_PTX_B64,
            &insn->b, &insn->b_bytes));
    if (d->stmt->count == 4) { // how long to wait at most: for ever is within what the ISA allows
        uint32_t ignored;
        KILN_TRY(number_at(d, 3, &ignored));
    }
    return ptx_emit(d);
}

static enum kiln_status decode_mbarrier(struct ptx_decode *d) {
    static const char *const names[] = {"init", "inval", "arrive", "arrive_drop", "expect_tx",
            "complete_tx", "test_wait", "try_wait"};
    int what = ptx_word_of(d, names, 8);
    switch (what) {
    case KILN_PTX_MBARRIER_INIT:
    case KILN_PTX_MBARRIER_INVAL:
        return decode_init(d, what == KILN_PTX_MBARRIER_INIT);
    case KILN_PTX_MBARRIER_ARRIVE:
    case KILN_PTX_MBARRIER_DROP:
        return decode_arrive(d, what == KILN_PTX_MBARRIER_DROP);
    case KILN_PTX_MBARRIER_EXPECT:
    case KILN_PTX_MBARRIER_COMPLETE:
        return decode_bytes(d, what == KILN_PTX_MBARRIER_EXPECT);
    case KILN_PTX_MBARRIER_TEST:
    case KILN_PTX_MBARRIER_TRY:
        return decode_wait(d, what == KILN_PTX_MBARRIER_TRY);
    default:
        return ptx_bad(d, "of mbarrier .init, .inval, .arrive, .arrive_drop, .expect_tx, "
                          ".complete_tx, .test_wait and .try_wait are modelled");
    }
}

// ---- cp.async.bulk ------------------------------------------------------------------------------

static enum kiln_status offset_32(struct ptx_decode *d, int64_t offset, int32_t *to) {
    if (offset < INT32_MIN || offset > INT32_MAX) {
        return ptx_bad(d, "an offset of more than 32 bits");
    }
    *to = (int32_t)offset;
    return KILN_STATUS_OK;
}

// [to], [from], bytes, [mbarrier] {, cache policy}
static enum kiln_status bulk_operands(struct ptx_decode *d, int hint) {
    struct kiln_ptx_insn *insn = &d->insn;
    int64_t from, barrier;
    KILN_TRY(ptx_count(d, hint ? 5 : 4, hint ? 5 : 4));
    insn->type = KILN_PTX_B8; // what is copied are bytes
    insn->space = KILN_PTX_SHARED;
    KILN_TRY(ptx_address(d, ptx_operand(d, 0), &insn->a, &insn->a_bytes, &insn->imm));
    KILN_TRY(ptx_address(d, ptx_operand(d, 3), &insn->e, &insn->e_bytes, &barrier));
    insn->e_bytes = insn->e == KILN_PTX_NONE ? 0 : insn->e_bytes;
    insn->space = KILN_PTX_GLOBAL;
    KILN_TRY(ptx_address(d, ptx_operand(d, 1), &insn->b, &insn->b_bytes, &from));
    insn->space = KILN_PTX_SHARED;
    if (insn->b == KILN_PTX_NONE) {
        return ptx_bad(d, "the source is a register or a variable");
    }
    KILN_TRY(offset_32(d, from, &insn->imm2));
    KILN_TRY(offset_32(d, barrier, &insn->imm4));
    KILN_TRY(number_at(d, 2, &insn->c));
    if (hint) { // which cache lines go first is nothing to an interpreter without caches
        uint32_t ignored;
        KILN_TRY(ptx_source(d, ptx_operand(d, 4), 8, KILN_PTX_B64, &ignored, NULL));
    }
    return ptx_emit(d);
}

enum kiln_status ptx_decode_bulk(struct ptx_decode *d) {
    static const char *const spaces[] = {"shared::cluster", "shared::cta"};
    d->insn.op = KILN_PTX_OP_CP_BULK;
    KILN_TRY(ptx_needs(d, 90));
    if (ptx_word(d, "tensor")) {
        return ptx_decode_tensor(d);
    }
    if (ptx_word_of(d, spaces, 2) < 0 || !ptx_word(d, "global") ||
            !ptx_word(d, "mbarrier::complete_tx::bytes")) {
        return ptx_bad(d, "of cp.async.bulk .shared::cluster.global.mbarrier::complete_tx::bytes "
                          "is modelled");
    }
    int hint = ptx_word(d, "L2::cache_hint");
    KILN_TRY(ptx_words_end(d));
    return bulk_operands(d, hint);
}

// ---- Registers ----------------------------------------------------------------------------------

// setmaxnreg.inc|dec.sync.aligned.u32 count: how many there are is nothing to an interpreter.
static enum kiln_status decode_setmaxnreg(struct ptx_decode *d) {
    static const char *const ways[] = {"inc", "dec"};
    int64_t count;
    KILN_TRY(ptx_needs(d, 90));
    if (ptx_word_of(d, ways, 2) < 0 || !ptx_word(d, "sync") || !ptx_word(d, "aligned")) {
        return ptx_bad(d, ".inc or .dec, .sync.aligned is missing");
    }
    KILN_TRY(ptx_word_type(d, T(U32), &d->insn.type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 1, 1));
    KILN_TRY(ptx_number(d, ptx_operand(d, 0), &count));
    if (count < 24 || count > 256 || count % 8) {
        return ptx_bad(d, "registers are 24 to 256, a multiple of 8");
    }
    return ptx_emit(d);
}

const struct ptx_opcode *ptx_bulk_opcode(struct ptx_name name) {
    static const struct ptx_opcode known[] = {
            {"mbarrier", decode_mbarrier, KILN_PTX_OP_MBARRIER},
            {"setmaxnreg", decode_setmaxnreg, KILN_PTX_OP_NOP},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (ptx_same(name, known[i].name)) {
            return &known[i];
        }
    }
    return NULL;
}
