// warp: where a warp's lanes go: branches, meeting again, calls, exits.
//
// When lanes part, the part that runs is in warp->mask and the rest waits in warp->splits: first an
// entry for all of them at the point where they meet (the branch's immediate post-dominator), on it
// one for the way that is taken later. Who reaches warp->reconverge waits and the next entry runs.
#include "device/sim/run_impl.h"

#include "base/mem.h"
#include "device/sim/lanes_impl.h"

enum {
    MAX_CALLS = 256, // activations of a warp
};

static int push_split(struct sim_warp *warp, const struct sim_op *pc, uint32_t mask) {
    if (warp->n_splits >= warp->cap_splits &&
            kiln_grow(&warp->splits, &warp->cap_splits, warp->n_splits + 1,
                    sizeof(*warp->splits)) != 0) {
        return 0;
    }
    warp->splits[warp->n_splits++] = (struct sim_split){pc, warp->reconverge, mask};
    return 1;
}

static const struct sim_op *stop(
        struct sim_warp *warp, const struct sim_op *pc, enum sim_stop why) {
    warp->pc = pc;
    warp->stop = why;
    return NULL;
}

// The frame of the caller comes back into force for the lanes that returned.
static const struct sim_op *leave_function(struct sim_warp *warp) {
    struct sim_frame *f = &warp->call_frames[--warp->n_call_frames];
    const struct kiln_ptx_insn *call = f->call;
    uint32_t callee_bytes = warp->function->ptx->call_bytes;
    uint32_t caller_bytes = f->function->ptx->call_bytes;
    const uint32_t *triples = f->function->ptx->lists + call->b;
    for (uint32_t i = 0; i < call->n_b; i++, triples += 3) {
        for (int lane = 0; lane < SIM_LANES; lane++) {
            if (f->returned >> lane & 1) {
                memcpy(warp->calls + f->call_at + (size_t)lane * caller_bytes + triples[0],
                        warp->calls + warp->call_at + (size_t)lane * callee_bytes + triples[1],
                        triples[2]);
            }
        }
    }
    warp->function = f->function;
    warp->frame_at = f->frame_at;
    warp->call_at = f->call_at;
    warp->local_at = f->local_at;
    warp->bank[0] = warp->frames + warp->frame_at;
    warp->mask = f->returned & warp->live;
    warp->reconverge = f->reconverge;
    return f->back;
}

// No lane of the running part is left: who goes on, and where.
static const struct sim_op *next_part(struct sim_warp *warp) {
    for (;;) {
        size_t base = warp->n_call_frames ? warp->call_frames[warp->n_call_frames - 1].base : 0;
        const struct sim_op *pc;
        if (warp->n_splits > base) {
            const struct sim_split *s = &warp->splits[--warp->n_splits];
            warp->mask = s->mask;
            warp->reconverge = s->reconverge;
            pc = s->pc;
        } else if (warp->n_call_frames > 0) {
            pc = leave_function(warp);
        } else {
            return stop(warp, NULL, SIM_EXITED);
        }
        if (warp->mask) {
            return pc;
        }
    }
}

const struct sim_op *kiln_sim_run_enter(struct sim_warp *warp, const struct sim_op *op) {
    while (op == warp->reconverge) {
        op = next_part(warp);
        if (!op || op->fn != kiln_sim_run_enter) {
            return op;
        }
    }
    if (warp->turn <= 0) {
        return stop(warp, op, SIM_YIELDS);
    }
    warp->turn -= op->mode;
    struct sim_worker *worker = warp->worker;
    worker->block_count[op->id]++;
    worker->block_lanes[op->id] += (uint64_t)__builtin_popcount(warp->mask);
    return op + 1;
}

static uint32_t guard_lanes(const struct sim_warp *warp, const struct sim_op *op) {
    if (!(op->mode & 1)) {
        return warp->mask;
    }
    uint32_t bits = *(const u32 *)sim_at(warp, op->a);
    return warp->mask & (op->mode & 2 ? ~bits : bits);
}

const struct sim_op *kiln_sim_run_guard(struct sim_warp *warp, const struct sim_op *op) {
    uint32_t all = warp->mask, some = guard_lanes(warp, op);
    if (some == 0) {
        return op + 2;
    }
    warp->mask = some;
    const struct sim_op *next = op[1].fn(warp, op + 1);
    warp->mask = all;
    return next;
}

const struct sim_op *kiln_sim_run_jump(struct sim_warp *warp, const struct sim_op *op) {
    (void)warp;
    return op->target;
}

static const struct sim_op *no_memory(struct sim_warp *warp, const struct sim_op *op) {
    return kiln_sim_fail(warp, op, KILN_STATUS_NOMEM, "no memory for a warp's state");
}

// All lanes that run now are to meet at `join`. Without one (NULL: only at the function's end) they
// still stop where those around them meet.
static int meet_at(struct sim_warp *warp, const struct sim_op *join) {
    if (join && join != warp->reconverge) {
        if (!push_split(warp, join, warp->mask)) {
            return 0;
        }
        warp->reconverge = join;
    }
    return 1;
}

// `take` goes to op->target, the rest to `other`.
static const struct sim_op *part(struct sim_warp *warp, const struct sim_op *op, uint32_t take,
        const struct sim_op *target, const struct sim_op *other) {
    const struct sim_op *join = op->join;
    uint32_t rest = warp->mask & ~take;
    warp->worker->diverged[op->id]++;
    if (!meet_at(warp, join)) {
        return no_memory(warp, op);
    }
    if (target == join) {
        warp->mask = rest;
        return other;
    }
    if (other != join) {
        if (!push_split(warp, other, rest)) {
            return no_memory(warp, op);
        }
    }
    warp->mask = take;
    return target;
}

const struct sim_op *kiln_sim_run_branch(struct sim_warp *warp, const struct sim_op *op) {
    uint32_t take = guard_lanes(warp, op);
    if (take == warp->mask) {
        return op->target;
    }
    return take ? part(warp, op, take, op->target, op + 1) : op + 1;
}

const struct sim_op *kiln_sim_run_branch_table(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    const u32 *index = sim_at(warp, op->a);
    const uint32_t *targets = warp->function->ptx->lists + insn->b;
    uint32_t left = warp->mask;
    const struct sim_op *first = NULL;
    uint32_t first_mask = 0;
    const struct sim_op *join = op->join;
    int parted = 0;
    while (left) {
        int lane = __builtin_ctz(left);
        uint32_t at = index[lane] < insn->n_b ? index[lane] : insn->n_b - 1u, same = 0;
        for (int i = lane; i < SIM_LANES; i++) {
            uint32_t there = index[i] < insn->n_b ? index[i] : insn->n_b - 1u;
            same |= left >> i & 1 && targets[there] == targets[at] ? 1u << i : 0;
        }
        left &= ~same;
        const struct sim_op *target = kiln_sim_op_of(warp->function, targets[at]);
        if (!first) {
            first = target;
            first_mask = same;
            continue;
        }
        if (!parted) {
            warp->worker->diverged[op->id]++;
            if (!meet_at(warp, join)) {
                return no_memory(warp, op);
            }
            parted = 1;
        }
        if (target != join && !push_split(warp, target, same)) {
            return no_memory(warp, op);
        }
    }
    if (!parted) {
        return first;
    }
    warp->mask = first == join ? 0 : first_mask;
    return warp->mask ? first : next_part(warp);
}

// Takes lanes out of everything that waits, down to `base`.
static void drop(struct sim_warp *warp, uint32_t lanes, size_t base) {
    for (size_t i = base; i < warp->n_splits; i++) {
        warp->splits[i].mask &= ~lanes;
    }
    warp->mask &= ~lanes;
}

const struct sim_op *kiln_sim_run_exit(struct sim_warp *warp, const struct sim_op *op) {
    uint32_t lanes = guard_lanes(warp, op);
    warp->live &= ~lanes;
    for (size_t i = 0; i < warp->n_call_frames; i++) {
        warp->call_frames[i].returned &= ~lanes;
    }
    drop(warp, lanes, 0);
    return warp->mask ? op + 1 : next_part(warp);
}

const struct sim_op *kiln_sim_run_return(struct sim_warp *warp, const struct sim_op *op) {
    if (warp->n_call_frames == 0) {
        return kiln_sim_run_exit(warp, op);
    }
    struct sim_frame *f = &warp->call_frames[warp->n_call_frames - 1];
    uint32_t lanes = guard_lanes(warp, op);
    f->returned |= lanes;
    drop(warp, lanes, f->base);
    return warp->mask ? op + 1 : next_part(warp);
}

// ---- Calls --------------------------------------------------------------------------------------
static int grow_bytes(unsigned char **area, size_t *cap, size_t need) {
    if (need <= *cap) {
        return 1;
    }
    size_t bytes = need * 2;
    unsigned char *more = kiln_alloc_aligned(64, bytes);
    if (!more) {
        return 0;
    }
    if (*cap > 0) {
        memcpy(more, *area, *cap);
    }
    memset(more + *cap, 0, bytes - *cap);
    kiln_free(*area);
    *area = more;
    *cap = bytes;
    return 1;
}

int kiln_sim_reserve(struct sim_warp *warp, const struct sim_function *function) {
    return grow_bytes(&warp->frames, &warp->frames_cap, warp->frame_at + function->frame_bytes) &&
           grow_bytes(&warp->calls, &warp->calls_cap,
                   warp->call_at + (size_t)SIM_LANES * function->ptx->call_bytes + 64);
}

static const struct sim_op *enter_function(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_function *callee) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    const struct sim_function *caller = warp->function;
    if (warp->n_call_frames >= MAX_CALLS ||
            warp->local_at + caller->ptx->local_bytes + callee->ptx->local_bytes >
                    warp->worker->kernel->local_bytes) {
        return kiln_sim_fail(warp, op, KILN_STATUS_DEVICE,
                "stack overflow: more than %d calls inside each other, or more local memory than "
                "each function needs once",
                MAX_CALLS);
    }
    struct sim_frame frame = {.back = op + 1,
            .reconverge = warp->reconverge,
            .mask = warp->mask,
            .base = warp->n_splits,
            .function = caller,
            .call = insn,
            .frame_at = warp->frame_at,
            .call_at = warp->call_at,
            .local_at = warp->local_at};
    if (kiln_grow(&warp->call_frames, &warp->cap_call_frames, warp->n_call_frames + 1,
                sizeof(frame)) != 0) {
        return no_memory(warp, op);
    }
    warp->frame_at += caller->frame_bytes;
    warp->call_at += (size_t)SIM_LANES * caller->ptx->call_bytes;
    if (!kiln_sim_reserve(warp, callee)) {
        warp->frame_at = frame.frame_at;
        warp->call_at = frame.call_at;
        return no_memory(warp, op);
    }
    warp->call_frames[warp->n_call_frames++] = frame;
    const uint32_t *triples = caller->ptx->lists + insn->a;
    for (uint32_t i = 0; i < insn->n_a; i++, triples += 3) {
        for (int lane = 0; lane < SIM_LANES; lane++) {
            memcpy(warp->calls + warp->call_at + (size_t)lane * callee->ptx->call_bytes +
                            triples[1],
                    warp->calls + frame.call_at + (size_t)lane * caller->ptx->call_bytes +
                            triples[0],
                    triples[2]);
        }
    }
    warp->local_at += caller->ptx->local_bytes;
    warp->function = callee;
    warp->reconverge = NULL;
    warp->bank[0] = warp->frames + warp->frame_at;
    return callee->ops;
}

const struct sim_op *kiln_sim_run_call(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    return enter_function(warp, op, &warp->worker->kernel->functions[insn->target]);
}

// Lanes that call different functions go one function after another: the others come back to the
// call itself.
const struct sim_op *kiln_sim_run_call_register(struct sim_warp *warp, const struct sim_op *op) {
    const u64 *address = sim_at(warp, op->c);
    int lane = __builtin_ctz(warp->mask);
    uint64_t number = address[lane] - KILN_PTX_FUNCTION_BASE;
    if (number >= warp->worker->kernel->n_functions || number == 0) {
        return kiln_sim_fail(warp, op, KILN_STATUS_DEVICE,
                "call of 0x%llx, which is no function's address",
                (unsigned long long)address[lane]);
    }
    uint32_t same = 0;
    for (int i = 0; i < SIM_LANES; i++) {
        same |= warp->mask >> i & 1 && address[i] == address[lane] ? 1u << i : 0;
    }
    if (same != warp->mask) {
        const struct sim_op *back = op + 1; // an ENTER: a call ends its block
        uint32_t rest = warp->mask & ~same;
        if (!push_split(warp, back, warp->mask)) {
            return no_memory(warp, op);
        }
        warp->reconverge = back;
        if (!push_split(warp, op, rest)) {
            return no_memory(warp, op);
        }
        warp->mask = same;
    }
    return enter_function(warp, op, &warp->worker->kernel->functions[number]);
}

const struct sim_op *kiln_sim_run_trap(struct sim_warp *warp, const struct sim_op *op) {
    return kiln_sim_fail(warp, op, KILN_STATUS_DEVICE, "trap");
}

const struct sim_op *kiln_sim_run_nothing(struct sim_warp *warp, const struct sim_op *op) {
    (void)warp;
    return op + 1;
}
