// prepare: decoded functions -> operations ready to run: operands as banks and offsets, a handler
// for each, branch targets as pointers, and in front of each basic block an ENTER, which counts the
// block and lets lanes meet again.
#include "device/sim/exec_impl.h"

#include "base/mem.h"
#include "device/sim/run_impl.h"
#include "device/sim/wgmma.h"

#include <string.h>

enum {
    SINK_BYTES = 16 * SIM_LANES, // behind a frame's registers: what nobody reads
};

struct building {
    struct kiln_sim_kernel *kernel;
    struct sim_function *function;
    const struct kiln_ptx_function *ptx;
    unsigned char *leader; // (n_insns + 1): a basic block begins here
    size_t cap_ops;
    struct kiln_err *err;
};

static uint32_t ref(const struct building *b, uint32_t operand) {
    if (operand == KILN_PTX_NONE) {
        return b->ptx->frame_bytes;
    }
    return operand & KILN_PTX_CONST ? (operand & ~KILN_PTX_CONST) | 1 : operand;
}

static enum kiln_status append(struct building *b, struct sim_op op) {
    struct sim_function *f = b->function;
    if (kiln_grow(&f->ops, &b->cap_ops, (size_t)f->n_ops + 1, sizeof(*f->ops)) != 0) {
        return kiln_err_nomem(b->err, "a kernel's operations");
    }
    f->ops[f->n_ops++] = op;
    return KILN_STATUS_OK;
}

// An instruction at which a warp may stand still.
static int waits(const struct kiln_ptx_insn *insn) {
    return insn->op == KILN_PTX_OP_BAR ||
           (insn->op == KILN_PTX_OP_MBARRIER &&
                   (insn->sub == KILN_PTX_MBARRIER_TEST || insn->sub == KILN_PTX_MBARRIER_TRY));
}

static int ends_block(const struct kiln_ptx_insn *insn) {
    switch (insn->op) {
    case KILN_PTX_OP_BRA:
    case KILN_PTX_OP_BRX:
    case KILN_PTX_OP_CALL:
    case KILN_PTX_OP_CALL_REG:
    case KILN_PTX_OP_RET:
    case KILN_PTX_OP_EXIT:
        return 1;
    default:
        return waits(insn);
    }
}

static void find_leaders(struct building *b) {
    const struct kiln_ptx_function *f = b->ptx;
    b->leader[0] = 1;
    for (uint32_t i = 0; i < f->n_insns; i++) {
        const struct kiln_ptx_insn *insn = &f->insns[i];
        if (ends_block(insn)) {
            b->leader[i + 1] = 1;
        }
        if (insn->op == KILN_PTX_OP_BRA) {
            b->leader[insn->target] = 1;
            b->leader[insn->join] = 1;
        } else if (insn->op == KILN_PTX_OP_BRX) {
            b->leader[insn->join] = 1;
            for (uint32_t k = 0; k < insn->n_b; k++) {
                b->leader[f->lists[insn->b + k]] = 1;
            }
        }
    }
}

static enum kiln_status append_enter(struct building *b, uint32_t at) {
    struct kiln_sim_kernel *k = b->kernel;
    uint32_t end = at + 1;
    while (end < b->ptx->n_insns && !b->leader[end]) {
        end++;
    }
    if (kiln_grow(&k->blocks, &k->cap_blocks, k->n_blocks + 1, sizeof(*k->blocks)) != 0) {
        return kiln_err_nomem(b->err, "a kernel's basic blocks");
    }
    k->blocks[k->n_blocks] = (struct sim_block_info){b->function->first_insn + at, end - at};
    return append(
            b, (struct sim_op){
                       .fn = kiln_sim_run_enter, .mode = end - at, .id = (uint32_t)k->n_blocks++});
}

// Appends n elements to the kernel's lists: of an operand with a count of one, itself.
static enum kiln_status append_list(struct building *b, uint32_t operand, uint32_t n) {
    struct kiln_sim_kernel *k = b->kernel;
    if (kiln_grow(&k->lists, &k->cap_lists, k->n_lists + n + 1, sizeof(*k->lists)) != 0) {
        return kiln_err_nomem(b->err, "a kernel's operand lists");
    }
    for (uint32_t i = 0; i < n; i++) {
        k->lists[k->n_lists++] = ref(b, n == 1 ? operand : b->ptx->lists[operand + i]);
    }
    return KILN_STATUS_OK;
}

static int has_lists(const struct kiln_ptx_insn *insn) {
    switch (insn->op) {
    case KILN_PTX_OP_PACK:
    case KILN_PTX_OP_UNPACK:
    case KILN_PTX_OP_LD:
    case KILN_PTX_OP_ST:
    case KILN_PTX_OP_ATOM:
    case KILN_PTX_OP_LDMATRIX:
    case KILN_PTX_OP_STMATRIX:
    case KILN_PTX_OP_MMA:
    case KILN_PTX_OP_WMMA_MMA:
    case KILN_PTX_OP_WMMA_LOAD:
    case KILN_PTX_OP_WMMA_STORE:
    case KILN_PTX_OP_WGMMA:
    case KILN_PTX_OP_CP_TENSOR:
        return 1;
    default:
        return 0;
    }
}

static enum kiln_status set_lists(
        struct building *b, const struct kiln_ptx_insn *insn, struct sim_op *op) {
    op->lists = (uint32_t)b->kernel->n_lists;
    op->list_d = 0;
    op->list_a = insn->n_d;
    op->list_b = (uint16_t)(op->list_a + insn->n_a);
    op->list_c = (uint16_t)(op->list_b + insn->n_b);
    KILN_TRY(append_list(b, insn->d, insn->n_d));
    KILN_TRY(append_list(b, insn->a, insn->n_a));
    KILN_TRY(append_list(b, insn->b, insn->n_b));
    return append_list(b, insn->c, insn->n_c);
}

static enum kiln_status unknown(struct building *b, uint32_t at) {
    const struct kiln_ptx_insn *insn = &b->ptx->insns[at];
    const struct kiln_ptx_module *module = b->kernel->code->module;
    const struct kiln_ptx_where *where = &module->wheres[b->ptx->where[at]];
    const char *file = where->file < module->n_files ? module->files[where->file] : NULL;
    return kiln_err_set(b->err, KILN_STATUS_DEVICE,
            "%s:%u: sim cannot run %s.%s.%s (kernel %s, %s:%u); docs/sim-semantics.md lists what "
            "it runs",
            module->name, where->ptx_line, kiln_ptx_op_name((enum kiln_ptx_op)insn->op),
            kiln_ptx_type_name((enum kiln_ptx_type)insn->type),
            kiln_ptx_type_name((enum kiln_ptx_type)insn->type2), b->kernel->ptx->name,
            file ? file : "no source", where->line);
}

// A guard in front of what changes which lanes run: those for which it is false jump over it.
static enum kiln_status append_skip(
        struct building *b, const struct kiln_ptx_insn *insn, uint32_t at) {
    uint32_t flipped = insn->flags & KILN_PTX_GUARD_NOT ? 1 : 3;
    return append(b, (struct sim_op){.fn = kiln_sim_run_branch,
                             .a = ref(b, insn->guard),
                             .mode = flipped,
                             .imm = (int64_t)(at + 1) << 32 | (at + 1),
                             .id = b->function->first_insn + at});
}

static int list_is_watched(const struct building *b, uint32_t operand, uint32_t n) {
    for (uint32_t i = 0; i < (n > 1 ? n : 1); i++) {
        if (kiln_sim_watched(b->ptx, n > 1 ? b->ptx->lists[operand + i] : operand) !=
                SIM_UNWATCHED) {
            return 1;
        }
    }
    return 0;
}

// Whether it touches registers that a WGMMA may be at work on, and is none itself.
static int is_watched(const struct building *b, const struct kiln_ptx_insn *insn) {
    int calls = insn->op == KILN_PTX_OP_CALL || insn->op == KILN_PTX_OP_CALL_HOST ||
                insn->op == KILN_PTX_OP_CALL_REG || insn->op == KILN_PTX_OP_BRX;
    return b->function == b->kernel->functions && b->ptx->n_watched > 0 && !calls &&
           insn->op != KILN_PTX_OP_WGMMA &&
           (list_is_watched(b, insn->d, insn->n_d) || list_is_watched(b, insn->a, insn->n_a) ||
                   list_is_watched(b, insn->b, insn->n_b) ||
                   list_is_watched(b, insn->c, insn->n_c) || list_is_watched(b, insn->e, 0));
}

static enum kiln_status append_insn(struct building *b, uint32_t at) {
    const struct kiln_ptx_insn *insn = &b->ptx->insns[at];
    if (is_watched(b, insn)) {
        KILN_TRY(append(b, (struct sim_op){.fn = kiln_sim_run_watch_registers,
                                   .id = b->function->first_insn + at}));
    }
    struct sim_op op = {.id = b->function->first_insn + at,
            .d = ref(b, insn->d),
            .d2 = ref(b, insn->d2),
            .a = ref(b, insn->a),
            .b = ref(b, insn->b),
            .c = ref(b, insn->c),
            .e = ref(b, insn->e),
            .imm = insn->imm};
    int guarded = insn->guard != KILN_PTX_NONE;
    uint32_t guard_mode = guarded ? 1 | (insn->flags & KILN_PTX_GUARD_NOT ? 2 : 0) : 0;
    switch (insn->op) {
    case KILN_PTX_OP_BRA:
    case KILN_PTX_OP_BRX:
    case KILN_PTX_OP_EXIT:
    case KILN_PTX_OP_RET:
        op.a = insn->op == KILN_PTX_OP_BRX ? op.a : ref(b, insn->guard);
        op.mode = guard_mode;
        op.imm = (int64_t)((uint64_t)insn->join << 32 | insn->target);
        op.fn = insn->op == KILN_PTX_OP_BRA    ? (guarded ? kiln_sim_run_branch : kiln_sim_run_jump)
                : insn->op == KILN_PTX_OP_BRX  ? kiln_sim_run_branch_table
                : insn->op == KILN_PTX_OP_EXIT ? kiln_sim_run_exit
                                               : kiln_sim_run_return;
        if (insn->op == KILN_PTX_OP_BRX && guarded) {
            KILN_TRY(append_skip(b, insn, at));
        }
        return append(b, op);
    case KILN_PTX_OP_CALL:
    case KILN_PTX_OP_CALL_REG:
        if (guarded) {
            KILN_TRY(append_skip(b, insn, at));
        }
        break;
    default:
        if (guarded && waits(insn)) {
            KILN_TRY(append_skip(b, insn, at));
        } else if (guarded) {
            KILN_TRY(append(b, (struct sim_op){.fn = kiln_sim_run_guard,
                                       .a = ref(b, insn->guard),
                                       .mode = guard_mode,
                                       .id = op.id}));
        }
        break;
    }
    if (has_lists(insn)) {
        KILN_TRY(set_lists(b, insn, &op));
    }
    if (!kiln_sim_select(b->kernel->code->sim, insn, &op)) {
        return unknown(b, at);
    }
    return append(b, op);
}

// Numbers of instructions in `imm` become pointers, now that the operations stand still. Behind the
// last instruction the lanes leave.
static void link_branches(struct building *b) {
    struct sim_function *f = b->function;
    for (uint32_t i = 0; i < f->n_ops; i++) {
        struct sim_op *op = &f->ops[i];
        if (op->fn == kiln_sim_run_branch || op->fn == kiln_sim_run_jump ||
                op->fn == kiln_sim_run_branch_table) {
            uint32_t target = (uint32_t)op->imm, join = (uint32_t)((uint64_t)op->imm >> 32);
            op->target = op->fn == kiln_sim_run_branch_table ? NULL
                                                             : f->ops + b->function->op_of[target];
            op->join = join < b->ptx->n_insns ? f->ops + b->function->op_of[join] : NULL;
        }
    }
}

static enum kiln_status build(struct building *b) {
    uint32_t n = b->ptx->n_insns;
    b->leader = kiln_calloc((size_t)n + 1, 1);
    b->function->op_of = kiln_calloc((size_t)n + 1, sizeof(*b->function->op_of));
    if (!b->leader || !b->function->op_of) {
        return kiln_err_nomem(b->err, "a kernel's control flow");
    }
    find_leaders(b);
    for (uint32_t i = 0; i < n; i++) {
        b->function->op_of[i] = b->function->n_ops;
        if (b->leader[i]) {
            KILN_TRY(append_enter(b, i));
        }
        KILN_TRY(append_insn(b, i));
    }
    b->function->op_of[n] = b->function->n_ops;
    KILN_TRY(append(b, (struct sim_op){.fn = kiln_sim_run_return,
                               .id = b->function->first_insn + (n ? n - 1 : 0)}));
    link_branches(b);
    return KILN_STATUS_OK;
}

// What the order of blocks could change; which memory the order of warps depends on.
static void look_at(struct kiln_sim_kernel *kernel, const struct kiln_ptx_insn *insn) {
    int global = insn->space == KILN_PTX_GLOBAL || insn->space == KILN_PTX_GENERIC;
    int shared = insn->space == KILN_PTX_SHARED || insn->space == KILN_PTX_GENERIC;
    if (insn->op == KILN_PTX_OP_ATOM) {
        kernel->ordered |= global;
        kernel->partial |=
                shared && (insn->sub == KILN_PTX_ATOM_CAS || insn->sub == KILN_PTX_ATOM_EXCH);
    } else if (insn->op == KILN_PTX_OP_LD && insn->flags & KILN_PTX_VOLATILE) {
        kernel->ordered |= global;
        kernel->partial |= shared;
    } else if (insn->op == KILN_PTX_OP_WGMMA) {
        kernel->products = kernel->timed = 1;
    } else if (insn->op == KILN_PTX_OP_BAR) {
        kernel->timed |= insn->b != KILN_PTX_NONE || insn->sub == KILN_PTX_BAR_ARRIVE;
    } else if (insn->op == KILN_PTX_OP_MBARRIER || insn->op == KILN_PTX_OP_CP_BULK) {
        kernel->timed = 1;
    }
}

static enum kiln_status prepare_function(
        struct kiln_sim_kernel *kernel, uint32_t index, struct kiln_err *err) {
    const struct kiln_ptx_function *ptx = &kernel->ptx->functions[index];
    struct building b = {
            .kernel = kernel, .function = &kernel->functions[index], .ptx = ptx, .err = err};
    b.function->ptx = ptx;
    b.function->first_insn = kernel->n_insns;
    b.function->frame_bytes = (ptx->frame_bytes + SINK_BYTES + 63) / 64 * 64;
    enum kiln_status status = build(&b);
    kiln_free(b.leader);
    if (status != KILN_STATUS_OK) {
        return status;
    }
    kernel->n_insns += ptx->n_insns;
    kernel->local_bytes += ptx->local_bytes;
    for (uint32_t i = 0; i < ptx->n_insns; i++) {
        look_at(kernel, &ptx->insns[i]);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status copy_constants(struct kiln_sim_kernel *kernel, struct kiln_err *err) {
    const struct kiln_ptx_kernel *ptx = kernel->ptx;
    kernel->constants = kiln_alloc_aligned(64, (size_t)ptx->constant_bytes + 64);
    if (!kernel->constants) {
        return kiln_err_nomem(err, "a kernel's constants");
    }
    if (ptx->constant_bytes > 0) {
        memcpy(kernel->constants, ptx->constants, ptx->constant_bytes);
    }
    for (uint32_t i = 0; i < ptx->n_relocs; i++) {
        const struct kiln_ptx_reloc *r = &ptx->relocs[i];
        uint64_t value = (r->var != KILN_PTX_NONE ? kernel->code->var_address[r->var]
                                                  : KILN_PTX_FUNCTION_BASE + r->function) +
                         (uint64_t)r->addend;
        for (int lane = 0; lane < SIM_LANES; lane++) {
            memcpy(kernel->constants + r->at + 8 * lane, &value, 8);
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_sim_prepare(struct kiln_sim_kernel *kernel, struct kiln_err *err) {
    kernel->n_functions = kernel->ptx->n_functions;
    kernel->functions = kiln_calloc(kernel->n_functions, sizeof(*kernel->functions));
    if (!kernel->functions) {
        return kiln_err_nomem(err, "a kernel's functions");
    }
    KILN_TRY(copy_constants(kernel, err));
    for (uint32_t i = 0; i < kernel->n_functions; i++) {
        KILN_TRY(prepare_function(kernel, i, err));
    }
    return KILN_STATUS_OK;
}

void kiln_sim_unprepare(struct kiln_sim_kernel *kernel) {
    for (uint32_t i = 0; kernel->functions && i < kernel->n_functions; i++) {
        kiln_free(kernel->functions[i].ops);
        kiln_free(kernel->functions[i].op_of);
    }
    kiln_free(kernel->functions);
    kiln_free(kernel->blocks);
    kiln_free(kernel->lists);
    kiln_free(kernel->constants);
}

const struct sim_op *kiln_sim_op_of(const struct sim_function *function, uint32_t insn) {
    return function->ops + function->op_of[insn];
}

static const struct sim_function *function_of(const struct kiln_sim_kernel *kernel, uint32_t id) {
    uint32_t f = 0;
    while (f + 1 < kernel->n_functions && kernel->functions[f + 1].first_insn <= id) {
        f++;
    }
    return &kernel->functions[f];
}

const struct kiln_ptx_insn *kiln_sim_insn(const struct kiln_sim_kernel *kernel, uint32_t id) {
    const struct sim_function *f = function_of(kernel, id);
    return &f->ptx->insns[id - f->first_insn];
}

const struct kiln_ptx_where *kiln_sim_where(const struct kiln_sim_kernel *kernel, uint32_t id) {
    const struct sim_function *f = function_of(kernel, id);
    return &kernel->code->module->wheres[f->ptx->where[id - f->first_insn]];
}
