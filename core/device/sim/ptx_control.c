// ptx_control: branches, calls, returns, and what ends or only names a moment.
#include "device/sim/ptx_impl.h"

#include "base/mem.h"

#include <string.h>

#define T(name) (UINT64_C(1) << KILN_PTX_##name)

enum {
    MAX_COPIES = 80, // arguments of a call
    MAX_TARGETS = 256
};

// ---- Branches -----------------------------------------------------------------------------------

static enum kiln_status label_of(
        struct ptx_decode *d, const struct ptx_operand *operand, uint32_t *stmt) {
    const struct ptx_symbol *symbol =
            operand->kind == PTX_OPERAND_NAME     ? ptx_find(d->p, operand->index, operand->name)
            : operand->kind == PTX_OPERAND_SYMBOL ? &d->p->symbols[operand->index]
                                                  : NULL;
    if (!symbol || symbol->kind != PTX_SYM_LABEL) {
        return ptx_bad(d, "%.*s is no label of this function", (int)operand->name.len,
                operand->name.text ? operand->name.text : "the operand");
    }
    *stmt = symbol->index;
    return KILN_STATUS_OK;
}

static enum kiln_status decode_bra(struct ptx_decode *d) {
    d->insn.flags |= ptx_word(d, "uni") ? KILN_PTX_UNI : 0;
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 1, 1));
    KILN_TRY(label_of(d, ptx_operand(d, 0), &d->insn.target));
    return ptx_emit(d);
}

static enum kiln_status decode_brx(struct ptx_decode *d) {
    struct kiln_ptx_insn *insn = &d->insn;
    uint32_t targets[MAX_TARGETS];
    if (!ptx_word(d, "idx")) {
        return ptx_bad(d, ".idx is missing");
    }
    insn->flags |= ptx_word(d, "uni") ? KILN_PTX_UNI : 0;
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 2, 2));
    KILN_TRY(ptx_source(d, ptx_operand(d, 0), 4, KILN_PTX_U32, &insn->a, &insn->a_bytes));
    const struct ptx_operand *name = ptx_operand(d, 1);
    const struct ptx_symbol *symbol =
            name->kind == PTX_OPERAND_SYMBOL ? &d->p->symbols[name->index] : NULL;
    if (!symbol || symbol->kind != PTX_SYM_TARGETS) {
        return ptx_bad(d, "a list of .branchtargets is wanted");
    }
    const struct ptx_operand *list = &d->func->operands[symbol->index];
    if (list->count > MAX_TARGETS) {
        return ptx_bad(d, "more than %d targets", (int)MAX_TARGETS);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        KILN_TRY(label_of(d, &d->func->operands[list->first + i], &targets[i]));
    }
    insn->imm = list->count;
    KILN_TRY(ptx_push_list(d, targets, list->count, &insn->b));
    return ptx_emit(d);
}

// ---- Calls --------------------------------------------------------------------------------------

struct call {
    const struct ptx_proto *proto;
    const struct ptx_operand *results, *args; // lists, NULL: none
    uint32_t before[3 * MAX_COPIES], after[3 * MAX_COPIES];
    uint32_t n_before, n_after;
    uint32_t call_at; // where hidden places in the call area begin
};

// A place in the caller's call area for an argument that is a register or a number.
static uint32_t hidden_place(struct ptx_decode *d, struct call *call, uint32_t bytes) {
    uint32_t at = (call->call_at + bytes - 1) / bytes * bytes;
    call->call_at = at + bytes;
    if (call->call_at > d->out->call_bytes) {
        d->out->call_bytes = call->call_at;
    }
    return at;
}

static enum kiln_status access_call_area(struct ptx_decode *d, enum kiln_ptx_op op,
        const struct ptx_operand *operand, const struct ptx_formal *formal, uint32_t at) {
    struct kiln_ptx_insn kept = d->insn;
    ptx_blank(d, op);
    struct kiln_ptx_insn *insn = &d->insn;
    insn->space = KILN_PTX_CALLS;
    insn->type = (uint8_t)formal->type;
    insn->imm = at;
    insn->a_bytes = 8;
    if (op == KILN_PTX_OP_ST) {
        insn->n_b = 1;
        KILN_TRY(ptx_source(d, operand, PTX_ANY, formal->type, &insn->b, &insn->b_bytes));
    } else {
        insn->n_d = 1;
        KILN_TRY(ptx_dest(d, operand, PTX_ANY, &insn->d, &insn->d_bytes));
    }
    KILN_TRY(ptx_emit(d));
    d->insn = kept;
    return KILN_STATUS_OK;
}

// Pairs the operands of a call with the formal parameters (or results) of what is called.
static enum kiln_status pair_up(struct ptx_decode *d, struct call *call,
        const struct ptx_operand *list, size_t first, size_t count, int is_result) {
    uint32_t has = list ? list->count : 0;
    if (has != count || count > MAX_COPIES) {
        return ptx_bad(
                d, "%u %s; the function has %zu", has, is_result ? "results" : "arguments", count);
    }
    for (uint32_t i = 0; i < has; i++) {
        const struct ptx_operand *operand = &d->func->operands[list->first + i];
        const struct ptx_formal *formal = &call->proto->formals[first + i];
        uint32_t *copies = is_result ? call->after : call->before;
        uint32_t *n = is_result ? &call->n_after : &call->n_before;
        uint32_t at;
        const struct ptx_symbol *symbol =
                operand->kind == PTX_OPERAND_SYMBOL ? &d->p->symbols[operand->index] : NULL;
        if (symbol && symbol->kind == PTX_SYM_CALL) {
            if (symbol->bytes < formal->bytes) {
                return ptx_bad(d, "%.*s has %u bytes; the function's has %u",
                        (int)operand->name.len, operand->name.text, symbol->bytes, formal->bytes);
            }
            at = (uint32_t)symbol->offset;
        } else {
            if (formal->bytes > 8) {
                return ptx_bad(
                        d, "a .param variable is wanted for what has %u bytes", formal->bytes);
            }
            at = hidden_place(d, call, formal->bytes);
            if (!is_result) {
                KILN_TRY(access_call_area(d, KILN_PTX_OP_ST, operand, formal, at));
            }
        }
        copies[3 * *n] = at;
        copies[3 * *n + 1] = formal->offset;
        copies[3 * *n + 2] = formal->bytes;
        ++*n;
    }
    return KILN_STATUS_OK;
}

// Results that go to registers, behind the call.
static enum kiln_status take_results(struct ptx_decode *d, const struct call *call) {
    for (uint32_t i = 0; i < call->n_after; i++) {
        const struct ptx_operand *operand = &d->func->operands[call->results->first + i];
        if (operand->kind != PTX_OPERAND_SYMBOL) {
            KILN_TRY(access_call_area(
                    d, KILN_PTX_OP_LD, operand, &call->proto->formals[i], call->after[3 * i]));
        }
    }
    return KILN_STATUS_OK;
}

static int host_function(struct ptx_name name) {
    static const char *const known[] = {"vprintf", "__assertfail", "malloc", "free"};
    for (int i = 0; i < 4; i++) {
        if (ptx_same(name, known[i])) {
            return i;
        }
    }
    return -1;
}

static enum kiln_status call_host(struct ptx_decode *d, struct call *call, int which) {
    static const uint32_t n_args[] = {2, 5, 1, 1};
    uint32_t offsets[MAX_COPIES];
    d->insn.op = KILN_PTX_OP_CALL_HOST;
    d->insn.sub = (uint8_t)(KILN_PTX_VPRINTF + which);
    if (call->n_before != n_args[which]) {
        return ptx_bad(d, "%u arguments; %u are wanted", call->n_before, n_args[which]);
    }
    for (uint32_t i = 0; i < call->n_before; i++) {
        offsets[i] = call->before[3 * i];
    }
    d->insn.n_a = (uint8_t)call->n_before;
    d->insn.target = call->n_after > 0 ? call->after[0] : KILN_PTX_NONE;
    KILN_TRY(ptx_push_list(d, offsets, call->n_before, &d->insn.a));
    KILN_TRY(ptx_emit(d));
    return take_results(d, call);
}

// The parts of a call: [results,] function [, arguments] [, prototype].
static enum kiln_status call_parts(struct ptx_decode *d, struct call *call,
        const struct ptx_operand **callee, const struct ptx_operand **prototype) {
    uint32_t at = 0, count = d->stmt->count;
    if (at < count && ptx_operand(d, at)->kind == PTX_OPERAND_LIST) {
        call->results = ptx_operand(d, at++);
    }
    if (at == count) {
        return ptx_bad(d, "the function is missing");
    }
    *callee = ptx_operand(d, at++);
    if (at < count && ptx_operand(d, at)->kind == PTX_OPERAND_LIST) {
        call->args = ptx_operand(d, at++);
    }
    *prototype = at < count ? ptx_operand(d, at++) : NULL;
    return at == count ? KILN_STATUS_OK : ptx_bad(d, "more operands than a call has");
}

static enum kiln_status make_call(struct ptx_decode *d, struct call *call) {
    const struct ptx_operand *callee = NULL, *prototype = NULL;
    KILN_TRY(call_parts(d, call, &callee, &prototype));
    const struct ptx_symbol *symbol =
            callee->kind == PTX_OPERAND_SYMBOL ? &d->p->symbols[callee->index] : NULL;
    const struct ptx_symbol *proto = prototype && prototype->kind == PTX_OPERAND_SYMBOL
                                             ? &d->p->symbols[prototype->index]
                                             : NULL;
    int direct = symbol && symbol->kind == PTX_SYM_FUNC;
    if (direct) {
        call->proto = &d->p->funcs[symbol->index].proto;
    } else if (callee->kind == PTX_OPERAND_REG && proto && proto->kind == PTX_SYM_PROTO) {
        call->proto = &d->p->protos[proto->index];
        KILN_TRY(ptx_source(d, callee, 8, KILN_PTX_U64, &d->insn.c, &d->insn.c_bytes));
        d->insn.op = KILN_PTX_OP_CALL_REG;
    } else {
        return ptx_bad(d, "a function, or a register and a .callprototype, is wanted");
    }
    size_t results = call->proto->n_results;
    KILN_TRY(pair_up(d, call, call->args, results, call->proto->count - results, 0));
    KILN_TRY(pair_up(d, call, call->results, 0, results, 1));
    if (direct) {
        const struct ptx_func *func = &d->p->funcs[symbol->index];
        int host = func->has_body ? -1 : host_function(func->name);
        if (host >= 0) {
            return call_host(d, call, host);
        }
        if (!func->has_body || func->is_entry) {
            return ptx_bad(d, "%.*s has no body here, and is no function that kiln has",
                    (int)func->name.len, func->name.text);
        }
        d->insn.target = symbol->index + 1;
    }
    d->insn.n_a = (uint8_t)call->n_before;
    d->insn.n_b = (uint8_t)call->n_after;
    KILN_TRY(ptx_push_list(d, call->before, 3 * call->n_before, &d->insn.a));
    KILN_TRY(ptx_push_list(d, call->after, 3 * call->n_after, &d->insn.b));
    KILN_TRY(ptx_emit(d));
    return take_results(d, call);
}

static enum kiln_status decode_call(struct ptx_decode *d) {
    struct call call = {.call_at = d->func->call_bytes};
    d->insn.flags |= ptx_word(d, "uni") ? KILN_PTX_UNI : 0;
    KILN_TRY(ptx_words_end(d));
    return make_call(d, &call);
}

// ---- Ends ---------------------------------------------------------------------------------------

static enum kiln_status decode_ret(struct ptx_decode *d) {
    const struct ptx_proto *proto = &d->func->proto;
    struct kiln_ptx_insn ret = d->insn;
    ret.flags |= ptx_word(d, "uni") ? KILN_PTX_UNI : 0;
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 0, 0));
    for (size_t i = 0; i < proto->n_results; i++) { // results in registers
        const struct ptx_formal *formal = &proto->formals[i];
        if (formal->reg != KILN_PTX_NONE) {
            struct ptx_operand from = {
                    .kind = PTX_OPERAND_REG, .index = formal->reg, .name = formal->name};
            KILN_TRY(access_call_area(d, KILN_PTX_OP_ST, &from, formal, formal->offset));
        }
    }
    d->insn = ret;
    d->insn.op = d->is_entry ? KILN_PTX_OP_EXIT : KILN_PTX_OP_RET;
    return ptx_emit(d);
}

static enum kiln_status decode_plain(struct ptx_decode *d) {
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 0, 0));
    return ptx_emit(d);
}

// Instructions that change nothing here; their words and operands are theirs.
static enum kiln_status decode_nop(struct ptx_decode *d) {
    static const char *const words[] = {"u32", "launch_dependents", "wait", "mask"};
    (void)ptx_word_of(d, words, 4);
    KILN_TRY(ptx_words_end(d));
    KILN_TRY(ptx_count(d, 0, 1));
    return ptx_emit(d);
}

const struct ptx_opcode *ptx_flow_opcode(struct ptx_name name) {
    static const struct ptx_opcode known[] = {
            {"bra", decode_bra, KILN_PTX_OP_BRA},
            {"brx", decode_brx, KILN_PTX_OP_BRX},
            {"call", decode_call, KILN_PTX_OP_CALL},
            {"ret", decode_ret, KILN_PTX_OP_RET},
            {"exit", decode_plain, KILN_PTX_OP_EXIT},
            {"trap", decode_plain, KILN_PTX_OP_TRAP},
            {"brkpt", decode_plain, KILN_PTX_OP_NOP},
            {"nanosleep", decode_nop, KILN_PTX_OP_NOP},
            {"pmevent", decode_nop, KILN_PTX_OP_NOP},
            {"griddepcontrol", decode_nop, KILN_PTX_OP_NOP},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (ptx_same(name, known[i].name)) {
            return &known[i];
        }
    }
    return NULL;
}
