// watch_wgmma: the checks on products of warpgroups: registers touched while a product may be at
// work on them, sums written with no wgmma.fence before the product, warps that do not come.
#include "device/sim/wgmma.h"

#include "base/mem.h"
#include "device/sim/lanes_impl.h"
#include "device/sim/run_impl.h"

#include <string.h>

// ---- Life ---------------------------------------------------------------------------------------
enum kiln_status kiln_sim_wgmma_create(
        struct sim_wgmma **out, const struct kiln_sim_kernel *kernel, struct kiln_err *err) {
    struct sim_wgmma *wgmma = kiln_calloc(1, sizeof(*wgmma));
    *out = wgmma;
    if (!wgmma) {
        return kiln_err_nomem(err, "the checks of wgmma");
    }
    wgmma->n_registers = kernel->ptx->functions[0].n_watched;
    size_t n = wgmma->n_registers;
    wgmma->registers = kiln_calloc(n * SIM_WARPS + 1, sizeof(*wgmma->registers));
    if (!wgmma->registers) {
        kiln_free(wgmma);
        *out = NULL;
        return kiln_err_nomem(err, "the checks of wgmma");
    }
    return KILN_STATUS_OK;
}

void kiln_sim_wgmma_destroy(struct sim_wgmma *wgmma) {
    if (!wgmma) {
        return;
    }
    for (uint32_t g = 0; g < SIM_WARPS / SIM_GROUP_WARPS; g++) {
        kiln_free(wgmma->groups[g].issues);
    }
    for (uint32_t w = 0; w < SIM_WARPS; w++) {
        kiln_free(wgmma->warps[w].readings);
    }
    kiln_free(wgmma->registers);
    kiln_free(wgmma);
}

void kiln_sim_wgmma_begin(struct sim_wgmma *wgmma) {
    size_t n = wgmma->n_registers;
    memset(wgmma->registers, 0, n * SIM_WARPS * sizeof(*wgmma->registers));
    for (size_t w = 0; w < SIM_WARPS; w++) {
        const struct sim_wgmma_warp *old = &wgmma->warps[w];
        wgmma->warps[w] = (struct sim_wgmma_warp){.registers = wgmma->registers + w * n,
                .readings = old->readings,
                .cap_readings = old->cap_readings};
        wgmma->groups[w / SIM_GROUP_WARPS].n = 0;
    }
}

// ---- Warps of a group ---------------------------------------------------------------------------
static void note_lanes(struct sim_warp *warp, const struct sim_op *op, const char *text) {
    if (kiln_sim_checks(warp, KILN_SIM_CHECK_LANES)) {
        kiln_sim_note(warp, op, KILN_SIM_CHECK_LANES, 0, -1, 0, 0, "%s", text);
    }
}

// The warps of a group come to the same products, one after the other.
static int enter_issue(struct sim_warp *warp, const struct sim_op *op, uint64_t a, uint64_t b) {
    struct sim_wgmma *wgmma = warp->block->wgmma;
    struct sim_wgmma_group *group = &wgmma->groups[warp->index / SIM_GROUP_WARPS];
    size_t number = wgmma->warps[warp->index].issued++;
    if (number == group->n) {
        if (kiln_grow(&group->issues, &group->cap, group->n + 1, sizeof(*group->issues)) != 0) {
            (void)kiln_sim_fail(warp, op, KILN_STATUS_NOMEM, "no memory for a product under way");
            return 0;
        }
        group->issues[group->n++] = (struct sim_wgmma_issue){.op = op, .a = a, .b = b};
    }
    struct sim_wgmma_issue *issue = &group->issues[number];
    if (issue->op != op) {
        note_lanes(warp, op, "other warps of the warpgroup are at another product");
    } else if (issue->a != a || issue->b != b) {
        note_lanes(warp, op, "other warps of the warpgroup describe other matrices");
    }
    issue->warps |= 1u << warp->index % SIM_GROUP_WARPS;
    return 1;
}

// ---- Registers ----------------------------------------------------------------------------------
static int under_way(const struct sim_wgmma_warp *state, const struct sim_wgmma_register *r) {
    return r->group > state->done;
}

static void note_async(struct sim_warp *warp, const struct sim_op *op, const char *text) {
    if (kiln_sim_checks(warp, KILN_SIM_CHECK_ASYNC)) {
        kiln_sim_note(
                warp, op, KILN_SIM_CHECK_ASYNC, __builtin_ctz(warp->mask), -1, 0, 0, "%s", text);
    }
}

static struct sim_wgmma_register *register_at(
        const struct sim_warp *warp, const struct sim_wgmma_warp *state, uint32_t operand) {
    uint32_t number = kiln_sim_watched(warp->function->ptx, operand);
    return number == SIM_UNWATCHED ? NULL : &state->registers[number];
}

// Registers of a factor (shape 0) or of the sums.
static void take_registers(struct sim_warp *warp, const struct sim_op *op,
        struct sim_wgmma_warp *state, uint32_t first, uint32_t n, uint32_t shape) {
    int written = 0, other = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct sim_wgmma_register *r =
                register_at(warp, state, warp->function->ptx->lists[first + i]);
        if (!r) {
            continue;
        }
        written |= r->written > state->fences;
        // Sums of one shape go from product to product; and many may read a factor.
        other |= under_way(state, r) && r->shape != shape;
        r->group = state->committed + 1;
        r->shape = shape;
    }
    if (written) {
        note_async(warp, op, "takes registers that were written with no wgmma.fence since");
    }
    if (other) {
        note_async(warp, op,
                "takes registers on which a product of another shape may be at work, with no "
                "wgmma.wait_group for it");
    }
}

// ---- Shared memory ------------------------------------------------------------------------------
static int add_reading(struct sim_warp *warp, const struct sim_op *op, uint64_t a, uint64_t b) {
    struct sim_wgmma_warp *state = &warp->block->wgmma->warps[warp->index];
    if (kiln_grow(&state->readings, &state->cap_readings, state->n_readings + 1,
                sizeof(*state->readings)) != 0) {
        (void)kiln_sim_fail(warp, op, KILN_STATUS_NOMEM, "no memory for a product under way");
        return 0;
    }
    state->readings[state->n_readings++] =
            (struct sim_wgmma_reading){state->committed + 1, kiln_sim_insn_of(warp, op), a, b};
    return 1;
}

void kiln_sim_wgmma_begun(struct sim_warp *warp) {
    struct sim_wgmma_warp *state = &warp->block->wgmma->warps[warp->index];
    if (warp->block->shadow) {
        kiln_sim_wgmma_reads(warp, &state->readings[state->n_readings - 1], 1);
    }
}

// Products up to that group have read what they read; what others read too they still do.
static void end_readings(struct sim_warp *warp, uint32_t done) {
    struct sim_wgmma_warp *state = &warp->block->wgmma->warps[warp->index];
    size_t kept = 0;
    for (size_t i = 0; i < state->n_readings; i++) {
        if (state->readings[i].group > done) {
            state->readings[kept++] = state->readings[i];
        } else if (warp->block->shadow) {
            kiln_sim_wgmma_reads(warp, &state->readings[i], 0);
        }
    }
    for (size_t i = 0; warp->block->shadow && kept < state->n_readings && i < kept; i++) {
        kiln_sim_wgmma_reads(warp, &state->readings[i], 1);
    }
    state->n_readings = kept;
}

// ---- Instructions -------------------------------------------------------------------------------
int kiln_sim_wgmma_issue(struct sim_warp *warp, const struct sim_op *op, uint64_t a, uint64_t b) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    struct sim_wgmma_warp *state = &warp->block->wgmma->warps[warp->index];
    if (!enter_issue(warp, op, a, b) || !add_reading(warp, op, a, b)) {
        return 0;
    }
    if (warp->n_call_frames == 0) {
        if (insn->n_a > 1) {
            take_registers(warp, op, state, insn->a, insn->n_a, 0);
        }
        take_registers(warp, op, state, insn->d, insn->n_d, (uint32_t)insn->sub << 8 | insn->type);
    }
    return 1;
}

const struct sim_op *kiln_sim_run_wgmma_fence(struct sim_warp *warp, const struct sim_op *op) {
    kiln_sim_lanes_needed(warp, op, SIM_ALL);
    if (warp->block->wgmma) {
        warp->block->wgmma->warps[warp->index].fences++;
    }
    return op + 1;
}

const struct sim_op *kiln_sim_run_wgmma_commit(struct sim_warp *warp, const struct sim_op *op) {
    kiln_sim_lanes_needed(warp, op, SIM_ALL);
    if (warp->block->wgmma) {
        warp->block->wgmma->warps[warp->index].committed++;
    }
    return op + 1;
}

// Groups before the last imm that were committed are done.
const struct sim_op *kiln_sim_run_wgmma_wait(struct sim_warp *warp, const struct sim_op *op) {
    kiln_sim_lanes_needed(warp, op, SIM_ALL);
    if (warp->block->wgmma) {
        struct sim_wgmma_warp *state = &warp->block->wgmma->warps[warp->index];
        if (state->committed > op->imm && state->committed - (uint32_t)op->imm > state->done) {
            state->done = state->committed - (uint32_t)op->imm;
            end_readings(warp, state->done);
        }
    }
    return op + 1;
}

// What is moved stays what it is: on a GPU both may be one register.
static void move_register(struct sim_warp *warp, const struct sim_op *op,
        const struct sim_wgmma_warp *state, const struct kiln_ptx_insn *insn) {
    struct sim_wgmma_register *to = register_at(warp, state, insn->d);
    const struct sim_wgmma_register *from = register_at(warp, state, insn->a);
    if (to && from) {
        *to = *from;
    } else if (to) {
        if (under_way(state, to)) {
            note_async(warp, op,
                    "writes a register on which a product may be at work, with no "
                    "wgmma.wait_group for it");
        }
        // The compiler puts constants where it likes.
        int constant = insn->a & KILN_PTX_CONST;
        *to = (struct sim_wgmma_register){.written = constant ? 0 : state->fences + 1};
    }
}

struct touched {
    int reads, writes; // registers of products under way
};

static void touch(struct sim_warp *warp, struct sim_wgmma_warp *state, uint32_t operand, uint32_t n,
        int writes, struct touched *touched) {
    for (uint32_t i = 0; i < (n > 1 ? n : 1); i++) {
        uint32_t one = n > 1 ? warp->function->ptx->lists[operand + i] : operand;
        struct sim_wgmma_register *r = register_at(warp, state, one);
        if (!r) {
            continue;
        }
        *(writes ? &touched->writes : &touched->reads) |= under_way(state, r);
        if (writes) {
            *r = (struct sim_wgmma_register){.written = state->fences + 1};
        }
    }
}

const struct sim_op *kiln_sim_run_watch_registers(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    if (!warp->block->wgmma || warp->n_call_frames > 0) {
        return op + 1;
    }
    struct sim_wgmma_warp *state = &warp->block->wgmma->warps[warp->index];
    if (insn->guard != KILN_PTX_NONE) {
        uint32_t bits = *(const u32 *)sim_at(warp,
                insn->guard & KILN_PTX_CONST ? (insn->guard & ~KILN_PTX_CONST) | 1 : insn->guard);
        if (!(warp->mask & (insn->flags & KILN_PTX_GUARD_NOT ? ~bits : bits))) {
            return op + 1;
        }
    }
    if (insn->op == KILN_PTX_OP_MOV) {
        move_register(warp, op, state, insn);
        return op + 1;
    }
    struct touched touched = {0};
    touch(warp, state, insn->a, insn->n_a, 0, &touched);
    touch(warp, state, insn->b, insn->n_b, 0, &touched);
    touch(warp, state, insn->c, insn->n_c, 0, &touched);
    touch(warp, state, insn->e, 0, 0, &touched);
    touch(warp, state, insn->d, insn->n_d, 1, &touched);
    if (touched.reads) {
        note_async(warp, op,
                "reads a register on which a product may be at work, with no wgmma.wait_group for "
                "it");
    }
    if (touched.writes) {
        note_async(warp, op,
                "writes a register on which a product may be at work, with no wgmma.wait_group for "
                "it");
    }
    return op + 1;
}

// ---- The block as a whole -----------------------------------------------------------------------
void kiln_sim_wgmma_end(struct sim_block *block) {
    for (uint32_t w = 0; w < block->n_warps; w++) {
        end_readings(&block->warps[w], UINT32_MAX); // never waited for
    }
    for (uint32_t g = 0; g < SIM_WARPS / SIM_GROUP_WARPS; g++) {
        const struct sim_wgmma_group *group = &block->wgmma->groups[g];
        for (size_t i = 0; i < group->n; i++) {
            uint32_t away = ~group->issues[i].warps & ((1u << SIM_GROUP_WARPS) - 1);
            uint32_t there = (uint32_t)__builtin_ctz(group->issues[i].warps);
            struct sim_warp *warp = &block->warps[g * SIM_GROUP_WARPS + there];
            if (away && kiln_sim_checks(warp, KILN_SIM_CHECK_LANES)) {
                kiln_sim_note(warp, group->issues[i].op, KILN_SIM_CHECK_LANES, 0, -1, 0, 0,
                        "of the four warps of the warpgroup, warp %u of the block never comes to "
                        "it",
                        g * SIM_GROUP_WARPS + (uint32_t)__builtin_ctz(away));
            }
        }
    }
}
