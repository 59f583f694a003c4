// ptx_tensor: copies of boxes by tensor maps (cp.async.bulk.tensor).
#include "device/sim/ptx_impl.h"

static enum kiln_status offset_32(struct ptx_decode *d, int64_t offset, int32_t *to) {
    if (offset < INT32_MIN || offset > INT32_MAX) {
        return ptx_bad(d, "an offset of more than 32 bits");
    }
    *to = (int32_t)offset;
    return KILN_STATUS_OK;
}

// A tensor map's generic address.
static enum kiln_status map_address(struct ptx_decode *d, const struct ptx_operand *operand) {
    struct kiln_ptx_insn *insn = &d->insn;
    int64_t offset;
    insn->space = KILN_PTX_GENERIC;
    KILN_TRY(ptx_address(d, operand, &insn->b, &insn->b_bytes, &offset));
    if (insn->b == KILN_PTX_NONE || insn->b_bytes != 8) {
        return ptx_bad(d, "a tensor map's address is a register of 64 bits, or a variable");
    }
    return offset_32(d, offset, &insn->imm2);
}

// [to], [map, {coordinates}], [mbarrier] {, cache policy}
static enum kiln_status operands(struct ptx_decode *d, uint32_t rank, int hint) {
    struct kiln_ptx_insn *insn = &d->insn;
    int64_t barrier;
    KILN_TRY(ptx_count(d, hint ? 4 : 3, hint ? 4 : 3));
    const struct ptx_operand *source = ptx_operand(d, 1);
    if (source->kind != PTX_OPERAND_TENSOR) {
        return ptx_bad(d, "a tensor map and coordinates are wanted: [map, {x, y}]");
    }
    insn->type = KILN_PTX_B32; // of the coordinates
    KILN_TRY(map_address(d, &d->func->operands[source->first]));
    KILN_TRY(ptx_list(d, &d->func->operands[source->first + 1], rank, 4, 0, &insn->c, &insn->n_c,
            &insn->c_bytes));
    insn->type = KILN_PTX_B8; // what is copied are bytes
    insn->space = KILN_PTX_SHARED;
    KILN_TRY(ptx_address(d, ptx_operand(d, 0), &insn->a, &insn->a_bytes, &insn->imm));
    KILN_TRY(ptx_address(d, ptx_operand(d, 2), &insn->e, &insn->e_bytes, &barrier));
    insn->a_bytes = insn->a == KILN_PTX_NONE ? 0 : insn->a_bytes;
    insn->e_bytes = insn->e == KILN_PTX_NONE ? 0 : insn->e_bytes;
    KILN_TRY(offset_32(d, barrier, &insn->imm4));
    if (hint) { // which cache lines go first is nothing to an interpreter without caches
        uint32_t ignored;
        KILN_TRY(ptx_source(d, ptx_operand(d, 3), 8, KILN_PTX_B64, &ignored, NULL));
    }
    return ptx_emit(d);
}

enum kiln_status ptx_decode_tensor(struct ptx_decode *d) {
    static const char *const ranks[] = {"1d", "2d", "3d", "4d", "5d"};
    static const char *const spaces[] = {"shared::cluster", "shared::cta"};
    d->insn.op = KILN_PTX_OP_CP_TENSOR;
    int rank = ptx_word_of(d, ranks, 5) + 1;
    if (rank < 1 || ptx_word_of(d, spaces, 2) < 0 || !ptx_word(d, "global")) {
        return ptx_bad(d, "of cp.async.bulk.tensor .1d to .5d from .global to .shared::cluster or "
                          ".shared::cta are modelled");
    }
    (void)ptx_word(d, "tile"); // the mode where none is named
    if (!ptx_word(d, "mbarrier::complete_tx::bytes")) {
        return ptx_bad(d, "of cp.async.bulk.tensor .tile.mbarrier::complete_tx::bytes is modelled");
    }
    int hint = ptx_word(d, "L2::cache_hint");
    KILN_TRY(ptx_words_end(d));
    return operands(d, (uint32_t)rank, hint);
}
