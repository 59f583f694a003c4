// ptx_wgmma: products of warpgroups (wgmma): 64 rows by N columns by 16, of f16 and bf16.
#include "device/sim/ptx_impl.h"

#include <stdio.h>
#include <string.h>

#define T(name) (UINT64_C(1) << KILN_PTX_##name)

enum {
    MAX_N = 256,
    A_REGISTERS = 4,
};

// .m64nNk16, N a multiple of 8 up to 256
static enum kiln_status shape_word(struct ptx_decode *d) {
    char name[16];
    for (uint32_t n = 8; n <= MAX_N; n += 8) {
        snprintf(name, sizeof(name), "m64n%uk16", n);
        if (ptx_word(d, name)) {
            d->insn.sub = (uint8_t)(n / 8);
            return KILN_STATUS_OK;
        }
    }
    return ptx_bad(d, "a shape is missing, or not modelled: .m64nNk16 is, N a multiple of 8");
}

static enum kiln_status types(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    KILN_TRY(ptx_word_type(d, T(F16) | T(F32), &insn->type));
    KILN_TRY(ptx_word_type(d, T(F16) | T(BF16), &insn->type2));
    KILN_TRY(ptx_word_type(d, T(F16) | T(BF16), &insn->type3));
    insn->type4 = insn->type;
    if (insn->type2 != insn->type3 ||
            (insn->type2 == KILN_PTX_BF16 && insn->type == KILN_PTX_F16)) {
        return ptx_bad(d, "these types do not go together");
    }
    return KILN_STATUS_OK;
}

// The sums, read and written.
static enum kiln_status sums(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    uint32_t same[MAX_N / 2];
    uint32_t count = insn->type == KILN_PTX_F32 ? insn->sub * 4u : insn->sub * 2u;
    KILN_TRY(ptx_list(d, ptx_operand(d, 0), count, 4, 1, &insn->d, &insn->n_d, &insn->d_bytes));
    memcpy(same, d->out->lists + insn->d, count * sizeof(same[0]));
    insn->n_c = insn->n_d;
    insn->c_bytes = insn->d_bytes;
    return ptx_push_list(d, same, count, &insn->c);
}

// The description of a matrix in shared memory.
static enum kiln_status matrix(
        struct ptx_decode *d, uint32_t number, uint32_t *to, uint8_t *n, uint8_t *bytes) {
    *n = 1;
    return ptx_source(d, ptx_operand(d, number), 8, KILN_PTX_B64, to, bytes);
}

static enum kiln_status factor_a(struct ptx_decode *d, int in_registers) {
    struct kiln_ptx_insn *insn = &d->insn;
    if (!in_registers) {
        return matrix(d, 1, &insn->a, &insn->n_a, &insn->a_bytes);
    }
    uint8_t type = insn->type;
    insn->type = KILN_PTX_B32; // of the registers in the list
    enum kiln_status status =
            ptx_list(d, ptx_operand(d, 1), A_REGISTERS, 4, 0, &insn->a, &insn->n_a, &insn->a_bytes);
    insn->type = type;
    return status;
}

// imm-scale-a, imm-scale-b (1 or -1), then imm-trans-a where a has a description, imm-trans-b.
static enum kiln_status numbers(struct ptx_decode *d, int in_registers) {
    struct kiln_ptx_insn *insn = &d->insn;
    int64_t value;
    for (uint32_t i = 0; i < 2; i++) {
        KILN_TRY(ptx_number(d, ptx_operand(d, 4 + i), &value));
        if (value != 1 && value != -1) {
            return ptx_bad(d, "a matrix is taken by 1 or -1");
        }
        insn->imm |= value < 0 ? 1 << i : 0;
    }
    for (uint32_t i = (uint32_t)in_registers; i < 2; i++) {
        KILN_TRY(ptx_number(d, ptx_operand(d, 6 + i - (uint32_t)in_registers), &value));
        if (value != 0 && value != 1) {
            return ptx_bad(d, "a matrix is transposed (1) or not (0)");
        }
        insn->flags |= !value ? 0 : i == 0 ? KILN_PTX_A_COL : KILN_PTX_TRANS;
    }
    return KILN_STATUS_OK;
}

static enum kiln_status emit(struct ptx_decode *d) {
    const struct kiln_ptx_module *module = d->p->module;
    if (module->target != 90 || module->feature != 'a') {
        return ptx_bad(d, "it is there on sm_90a alone; the module is for sm_%u%s", module->target,
                module->feature ? " with other features" : "");
    }
    return ptx_emit(d);
}

static enum kiln_status mma_async(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    insn->op = KILN_PTX_OP_WGMMA;
    if (!ptx_word(d, "sync") || !ptx_word(d, "aligned")) {
        return ptx_bad(d, ".sync.aligned is missing");
    }
    insn->flags |= KILN_PTX_ALIGNED;
    KILN_TRY(shape_word(d));
    KILN_TRY(types(d));
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 7, 8));
    int in_registers = ptx_operand(d, 1)->kind == PTX_OPERAND_LIST;
    KILN_TRY(ptx_count(d, in_registers ? 7 : 8, in_registers ? 7 : 8));
    KILN_TRY(sums(d));
    KILN_TRY(factor_a(d, in_registers));
    KILN_TRY(matrix(d, 2, &insn->b, &insn->n_b, &insn->b_bytes));
    KILN_TRY(ptx_source(d, ptx_operand(d, 3), 0, KILN_PTX_PRED, &insn->e, NULL));
    if (ptx_operand(d, 3)->negated) {
        return ptx_bad(d, "a negated scale-d is not modelled");
    }
    KILN_TRY(numbers(d, in_registers));
    return emit(d);
}

static enum kiln_status decode_wgmma(struct ptx_decode *d) {
    static const char *const names[] = {"fence", "commit_group", "wait_group"};
    static const uint16_t ops[] = {
            KILN_PTX_OP_WGMMA_FENCE, KILN_PTX_OP_WGMMA_COMMIT, KILN_PTX_OP_WGMMA_WAIT};
    if (ptx_word(d, "mma_async")) {
        return mma_async(d);
    }
    int what = ptx_word_of(d, names, 3);
    if (what < 0 || !ptx_word(d, "sync") || !ptx_word(d, "aligned")) {
        return ptx_bad(d, "of wgmma .mma_async, .fence, .commit_group and .wait_group are "
                          "modelled, with .sync.aligned");
    }
    d->insn.op = ops[what];
    d->insn.flags |= KILN_PTX_ALIGNED;
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, what == 2, what == 2));
    if (what == 2) {
        KILN_TRY(ptx_number(d, ptx_operand(d, 0), &d->insn.imm));
        if (d->insn.imm < 0) {
            return ptx_bad(d, "a number of groups is not negative");
        }
    }
    return emit(d);
}

const struct ptx_opcode *ptx_wgmma_opcode(struct ptx_name name) {
    static const struct ptx_opcode wgmma = {"wgmma", decode_wgmma, KILN_PTX_OP_WGMMA};
    return ptx_same(name, "wgmma") ? &wgmma : NULL;
}
