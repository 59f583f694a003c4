// ptx_warp: shuffles, votes, barriers and fences; branches, calls and ends.
#include "device/sim/ptx_impl.h"

#include <string.h>

#define T(name) (UINT64_C(1) << KILN_PTX_##name)

// ---- Between lanes ------------------------------------------------------------------------------

// The member mask of a .sync form.
static enum kiln_status members(struct ptx_decode *d, uint32_t number) {
    return ptx_source(d, ptx_operand(d, number), 4, KILN_PTX_B32, &d->insn.e, NULL);
}

static enum kiln_status decode_shfl(struct ptx_decode *d) {
    static const char *const modes[] = {"up", "down", "bfly", "idx"};
    struct kiln_ptx_insn *insn = &d->insn;
    int sync = ptx_word(d, "sync"), mode = ptx_word_of(d, modes, 4);
    if (mode < 0) {
        return ptx_bad(d, ".up, .down, .bfly or .idx is missing");
    }
    insn->sub = (uint8_t)mode;
    KILN_TRY(ptx_word_type(d, T(B32), &insn->type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, sync ? 5 : 4, sync ? 5 : 4));
    KILN_TRY(ptx_dest_pair(d, ptx_operand(d, 0), 4));
    KILN_TRY(ptx_source(d, ptx_operand(d, 1), 4, insn->type, &insn->a, &insn->a_bytes));
    KILN_TRY(ptx_source(d, ptx_operand(d, 2), 4, insn->type, &insn->b, &insn->b_bytes));
    KILN_TRY(ptx_source(d, ptx_operand(d, 3), 4, insn->type, &insn->c, &insn->c_bytes));
    KILN_TRY(sync ? members(d, 4) : KILN_STATUS_OK);
    return ptx_emit(d);
}

static enum kiln_status decode_vote(struct ptx_decode *d) {
    static const char *const modes[] = {"all", "any", "uni", "ballot"};
    struct kiln_ptx_insn *insn = &d->insn;
    int sync = ptx_word(d, "sync"), mode = ptx_word_of(d, modes, 4);
    if (mode < 0) {
        return ptx_bad(d, ".all, .any, .uni or .ballot is missing");
    }
    insn->sub = (uint8_t)mode;
    int ballot = mode == KILN_PTX_VOTE_BALLOT;
    KILN_TRY(ptx_word_type(d, ballot ? T(B32) : T(PRED), &insn->type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, sync ? 3 : 2, sync ? 3 : 2));
    KILN_TRY(ptx_dest(d, ptx_operand(d, 0), ballot ? 4 : 0, &insn->d, &insn->d_bytes));
    KILN_TRY(ptx_source(d, ptx_operand(d, 1), 0, KILN_PTX_PRED, &insn->a, NULL));
    insn->flags |= ptx_operand(d, 1)->negated ? KILN_PTX_A_NOT : 0;
    KILN_TRY(sync ? members(d, 2) : KILN_STATUS_OK);
    return ptx_emit(d);
}

static enum kiln_status decode_match(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    int all = ptx_word(d, "all");
    if ((!all && !ptx_word(d, "any")) || !ptx_word(d, "sync")) {
        return ptx_bad(d, ".any.sync or .all.sync is missing");
    }
    insn->sub = (uint8_t)all;
    KILN_TRY(ptx_word_type(d, T(B32) | T(B64), &insn->type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 3, 3));
    KILN_TRY(ptx_dest_pair(d, ptx_operand(d, 0), 4));
    if (!all && insn->d2 != KILN_PTX_NONE) {
        return ptx_bad(d, "match.any has no predicate");
    }
    KILN_TRY(ptx_source(d, ptx_operand(d, 1), ptx_type_bytes(insn->type), insn->type, &insn->a,
            &insn->a_bytes));
    KILN_TRY(members(d, 2));
    return ptx_emit(d);
}

static enum kiln_status decode_redux(struct ptx_decode *d) {
    static const char *const ops[] = {"add", "min", "max", "and", "or", "xor"};
    struct kiln_ptx_insn *insn = &d->insn;
    if (!ptx_word(d, "sync")) {
        return ptx_bad(d, ".sync is missing");
    }
    int op = ptx_word_of(d, ops, 6);
    if (op < 0) {
        return ptx_bad(d, "an operation is missing: .add .min .max .and .or .xor");
    }
    insn->sub = (uint8_t)op;
    KILN_TRY(ptx_word_type(d, op <= KILN_PTX_ATOM_MAX ? T(U32) | T(S32) : T(B32), &insn->type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 3, 3));
    KILN_TRY(ptx_dest(d, ptx_operand(d, 0), 4, &insn->d, &insn->d_bytes));
    KILN_TRY(ptx_source(d, ptx_operand(d, 1), 4, insn->type, &insn->a, &insn->a_bytes));
    KILN_TRY(members(d, 2));
    return ptx_emit(d);
}

static enum kiln_status decode_activemask(struct ptx_decode *d) {
    KILN_TRY(ptx_word_type(d, T(B32), &d->insn.type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 1, 1));
    KILN_TRY(ptx_dest(d, ptx_operand(d, 0), 4, &d->insn.d, &d->insn.d_bytes));
    return ptx_emit(d);
}

static enum kiln_status decode_elect(struct ptx_decode *d) {
    if (!ptx_word(d, "sync")) {
        return ptx_bad(d, ".sync is missing");
    }
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 2, 2));
    KILN_TRY(ptx_dest_pair(d, ptx_operand(d, 0), 4));
    KILN_TRY(members(d, 1));
    return ptx_emit(d);
}

// ---- Barriers -----------------------------------------------------------------------------------

static enum kiln_status warp_sync(struct ptx_decode *d) {
    d->insn.op = KILN_PTX_OP_WARPSYNC;
    if (!ptx_word(d, "sync")) {
        return ptx_bad(d, ".sync is missing");
    }
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 1, 1));
    KILN_TRY(members(d, 0));
    return ptx_emit(d);
}

// The number of the barrier and, when there is one, of threads.
static enum kiln_status barrier_operands(struct ptx_decode *d, uint32_t at, int with_threads) {
    struct kiln_ptx_insn *insn = &d->insn;
    KILN_TRY(ptx_source(d, ptx_operand(d, at), 4, KILN_PTX_U32, &insn->a, &insn->a_bytes));
    return with_threads ? ptx_source(d, ptx_operand(d, at + 1), 4, KILN_PTX_U32, &insn->b,
                                  &insn->b_bytes)
                        : KILN_STATUS_OK;
}

static enum kiln_status decode_bar(struct ptx_decode *d) {
    static const char *const reductions[] = {"popc", "and", "or"};
    struct kiln_ptx_insn *insn = &d->insn;
    int plain = ptx_same(d->words[0], "bar"); // bar.X is barrier.X.aligned
    if (plain && ptx_word(d, "warp")) {
        return warp_sync(d);
    }
    (void)ptx_word(d, "cta");
    int sync = ptx_word(d, "sync"), arrive = !sync && ptx_word(d, "arrive");
    if (!sync && !arrive && !ptx_word(d, "red")) {
        return ptx_bad(d, ".sync, .arrive or .red is missing");
    }
    int red = sync || arrive ? -1 : ptx_word_of(d, reductions, 3);
    insn->sub = (uint8_t)(sync     ? KILN_PTX_BAR_SYNC
                          : arrive ? KILN_PTX_BAR_ARRIVE
                                   : KILN_PTX_BAR_RED_POPC + red);
    if (!sync && !arrive && red < 0) {
        return ptx_bad(d, ".popc, .and or .or is missing");
    }
    insn->flags |= ptx_word(d, "aligned") || plain ? KILN_PTX_ALIGNED : 0;
    if (red < 0) {
        KILN_TRY(ptx_words_end(d));
        KILN_TRY(ptx_count(d, arrive ? 2 : 1, 2));
        KILN_TRY(barrier_operands(d, 0, d->stmt->count == 2));
        return ptx_emit(d);
    }
    KILN_TRY(ptx_word_type(d, red == 0 ? T(U32) : T(PRED), &insn->type));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 3, 4));
    uint32_t last = d->stmt->count - 1;
    KILN_TRY(ptx_dest(d, ptx_operand(d, 0), red == 0 ? 4 : 0, &insn->d, &insn->d_bytes));
    KILN_TRY(barrier_operands(d, 1, last == 3));
    KILN_TRY(ptx_source(d, ptx_operand(d, last), 0, KILN_PTX_PRED, &insn->c, NULL));
    insn->flags |= ptx_operand(d, last)->negated ? KILN_PTX_C_NOT : 0;
    return ptx_emit(d);
}

// fence.proxy.async: between accesses of threads and those of the copy engine.
static enum kiln_status proxy_fence(struct ptx_decode *d) {
    static const char *const spaces[] = {"shared::cta", "shared::cluster", "global"};
    if (!ptx_word(d, "async")) {
        return ptx_bad(d, "of fence.proxy only .async is modelled");
    }
    int global = ptx_word_of(d, spaces, 3) == 2;
    d->insn.sub = global ? KILN_PTX_FENCE_PROXY_GLOBAL : KILN_PTX_FENCE_PROXY_SHARED;
    KILN_TRY(ptx_needs(d, 90));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 0, 0));
    return ptx_emit(d);
}

static enum kiln_status decode_fence(struct ptx_decode *d) {
    static const char *const orders[] = {"sc", "acq_rel", "acquire", "release"};
    static const char *const scopes[] = {"cta", "gl", "gpu", "sys", "cluster"};
    static const uint8_t levels[] = {KILN_PTX_FENCE_CTA, KILN_PTX_FENCE_GPU, KILN_PTX_FENCE_GPU,
            KILN_PTX_FENCE_SYS, KILN_PTX_FENCE_GPU};
    if (ptx_same(d->words[0], "fence")) {
        if (ptx_word(d, "proxy")) {
            return proxy_fence(d);
        }
        if (ptx_word(d, "mbarrier_init")) {
            d->insn.sub = KILN_PTX_FENCE_MBARRIER;
            if (!ptx_word(d, "release") || !ptx_word(d, "cluster")) {
                return ptx_bad(d, ".release.cluster is missing");
            }
            KILN_TRY(ptx_needs(d, 90));
            KILN_TRY(ptx_words_end(d));
            KILN_TRY(ptx_count(d, 0, 0));
            return ptx_emit(d);
        }
        (void)ptx_word_of(d, orders, 4);
    }
    int scope = ptx_word_of(d, scopes, 5);
    if (scope < 0) {
        return ptx_bad(d, "a scope is missing, or the fence is not modelled");
    }
    d->insn.sub = levels[scope];
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 0, 0));
    return ptx_emit(d);
}

const struct ptx_opcode *ptx_warp_opcode(struct ptx_name name) {
    static const struct ptx_opcode known[] = {
            {"shfl", decode_shfl, KILN_PTX_OP_SHFL},
            {"vote", decode_vote, KILN_PTX_OP_VOTE},
            {"match", decode_match, KILN_PTX_OP_MATCH},
            {"redux", decode_redux, KILN_PTX_OP_REDUX},
            {"activemask", decode_activemask, KILN_PTX_OP_ACTIVEMASK},
            {"elect", decode_elect, KILN_PTX_OP_ELECT},
            {"bar", decode_bar, KILN_PTX_OP_BAR},
            {"barrier", decode_bar, KILN_PTX_OP_BAR},
            {"membar", decode_fence, KILN_PTX_OP_MEMBAR},
            {"fence", decode_fence, KILN_PTX_OP_MEMBAR},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (ptx_same(name, known[i].name)) {
            return &known[i];
        }
    }
    return NULL;
}
