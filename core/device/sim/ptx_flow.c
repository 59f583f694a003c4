// ptx_flow: the control flow graph of a decoded function, and where the lanes of a branch that went
// two ways meet again: at its block's immediate post-dominator.
//
// Ways that end (exit, ret, trap) do not count: a lane that has left needs no meeting point. From a
// loop that nothing leaves there is none either: it meets at the function's end.
#include "device/sim/ptx_impl.h"

#include "base/mem.h"

#include <string.h>

static int is_branch(const struct kiln_ptx_insn *insn) {
    return insn->op == KILN_PTX_OP_BRA || insn->op == KILN_PTX_OP_BRX;
}

// Whether control never goes on to the next instruction.
static int is_final(const struct kiln_ptx_insn *insn) {
    return insn->guard == KILN_PTX_NONE &&
           (is_branch(insn) || insn->op == KILN_PTX_OP_EXIT || insn->op == KILN_PTX_OP_RET ||
                   insn->op == KILN_PTX_OP_TRAP);
}

// Calls fn for each target of a branch.
static void each_target(const struct kiln_ptx_function *function, const struct kiln_ptx_insn *insn,
        void (*fn)(void *arg, uint32_t target), void *arg) {
    if (insn->op == KILN_PTX_OP_BRA) {
        fn(arg, insn->target);
    } else if (insn->op == KILN_PTX_OP_BRX) {
        for (uint32_t k = 0; k < (uint32_t)insn->imm; k++) {
            fn(arg, function->lists[insn->b + k]);
        }
    }
}

// ---- Blocks -------------------------------------------------------------------------------------

static void mark_leader(void *arg, uint32_t target) {
    uint32_t *leader = arg;
    leader[target] = 1;
}

static int make_blocks(struct ptx_flow *flow, const struct kiln_ptx_function *function) {
    uint32_t n = function->n_insns;
    uint32_t *leader = kiln_calloc((size_t)n + 1, sizeof(*leader));
    flow->block_of = kiln_calloc((size_t)n + 1, sizeof(*flow->block_of));
    if (!leader || !flow->block_of) {
        kiln_free(leader);
        return -1;
    }
    leader[0] = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (is_branch(&function->insns[i]) || is_final(&function->insns[i])) {
            leader[i + 1] = 1;
            each_target(function, &function->insns[i], mark_leader, leader);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        flow->n_blocks += leader[i];
        flow->block_of[i] = flow->n_blocks - 1;
    }
    kiln_free(leader);
    flow->blocks = kiln_calloc(flow->n_blocks, sizeof(*flow->blocks));
    if (!flow->blocks) {
        return -1;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct ptx_block *block = &flow->blocks[flow->block_of[i]];
        if (block->end == 0) {
            block->first = i;
        }
        block->end = i + 1;
    }
    return 0;
}

struct edges {
    struct ptx_flow *flow;
    uint32_t n, *cap;
    int store;
};

static void add_edge(void *arg, uint32_t target) {
    struct edges *edges = arg;
    if (edges->store) {
        edges->flow->edges[edges->n] = edges->flow->block_of[target];
    }
    edges->n++;
}

// Successors of all blocks: counted, then stored.
static int make_edges(struct ptx_flow *flow, const struct kiln_ptx_function *function) {
    struct edges edges = {.flow = flow};
    flow->edge_at = kiln_calloc((size_t)flow->n_blocks + 1, sizeof(*flow->edge_at));
    if (!flow->edge_at) {
        return -1;
    }
    for (edges.store = 0; edges.store < 2; edges.store++) {
        edges.n = 0;
        for (uint32_t b = 0; b < flow->n_blocks; b++) {
            const struct kiln_ptx_insn *last = &function->insns[flow->blocks[b].end - 1];
            flow->edge_at[b] = edges.n;
            each_target(function, last, add_edge, &edges);
            if (!is_final(last) && b + 1 < flow->n_blocks) {
                add_edge(&edges, flow->blocks[b + 1].first);
            }
        }
        flow->edge_at[flow->n_blocks] = edges.n;
        if (!edges.store) {
            flow->edges = kiln_calloc(edges.n, sizeof(*flow->edges));
            if (!flow->edges) {
                return -1;
            }
        }
    }
    return 0;
}

// ---- Post-dominators ----------------------------------------------------------------------------

// Predecessors of all blocks, and of one more that stands for the end.
struct backward {
    uint32_t *edges, *at;
    uint32_t *order;    // blocks as a search from the end leaves them, the end last
    uint32_t *position; // of a block in order; NONE: nothing leads from it to the end
    uint32_t n_order;
    uint32_t *stack, *next;
};

static int make_backward(struct backward *back, const struct ptx_flow *flow) {
    uint32_t n = flow->n_blocks, n_edges = flow->edge_at[n], total = 0;
    back->at = kiln_calloc((size_t)n + 3, sizeof(*back->at));
    back->edges = kiln_calloc((size_t)n_edges + n, sizeof(*back->edges));
    back->order = kiln_calloc((size_t)n + 1, sizeof(*back->order));
    back->position = kiln_calloc((size_t)n + 1, sizeof(*back->position));
    back->stack = kiln_calloc((size_t)n + 1, sizeof(*back->stack));
    back->next = kiln_calloc((size_t)n + 1, sizeof(*back->next));
    if (!back->at || !back->edges || !back->order || !back->position || !back->stack ||
            !back->next) {
        return -1;
    }
    uint32_t *count = back->at + 2; // shifted by two, so that filling leaves the starts in place
    for (uint32_t b = 0; b < n; b++) {
        for (uint32_t e = flow->edge_at[b]; e < flow->edge_at[b + 1]; e++) {
            count[flow->edges[e]]++;
        }
        count[n] += flow->edge_at[b] == flow->edge_at[b + 1];
    }
    for (uint32_t b = 0; b <= n; b++) {
        total += count[b];
        count[b] = total;
    }
    uint32_t *fill = back->at + 1;
    for (uint32_t b = 0; b < n; b++) {
        for (uint32_t e = flow->edge_at[b]; e < flow->edge_at[b + 1]; e++) {
            back->edges[fill[flow->edges[e]]++] = b;
        }
        if (flow->edge_at[b] == flow->edge_at[b + 1]) {
            back->edges[fill[n]++] = b;
        }
    }
    return 0;
}

static void backward_finish(struct backward *back) {
    kiln_free(back->edges);
    kiln_free(back->at);
    kiln_free(back->order);
    kiln_free(back->position);
    kiln_free(back->stack);
    kiln_free(back->next);
}

// A depth-first search against the edges, from the end.
static void search(struct backward *back, uint32_t end) {
    uint32_t depth = 1;
    for (uint32_t b = 0; b <= end; b++) {
        back->position[b] = KILN_PTX_NONE;
        back->next[b] = back->at[b];
    }
    back->stack[0] = end;
    back->position[end] = 0; // seen
    while (depth > 0) {
        uint32_t b = back->stack[depth - 1];
        if (back->next[b] < back->at[b + 1]) {
            uint32_t to = back->edges[back->next[b]++];
            if (back->position[to] == KILN_PTX_NONE) {
                back->position[to] = 0;
                back->stack[depth++] = to;
            }
        } else {
            back->position[b] = back->n_order;
            back->order[back->n_order++] = b;
            depth--;
        }
    }
}

static uint32_t meet(const struct backward *back, const uint32_t *dom, uint32_t a, uint32_t b) {
    while (a != b) {
        while (back->position[a] < back->position[b]) {
            a = dom[a];
        }
        while (back->position[b] < back->position[a]) {
            b = dom[b];
        }
    }
    return a;
}

// Cooper, Harvey and Kennedy's iteration on the reversed graph.
static void post_dominators(struct ptx_flow *flow, const struct backward *back, uint32_t *dom) {
    uint32_t end = flow->n_blocks;
    int changed = 1;
    for (uint32_t b = 0; b <= end; b++) {
        dom[b] = KILN_PTX_NONE;
    }
    dom[end] = end;
    while (changed) {
        changed = 0;
        for (uint32_t i = back->n_order - 1; i-- > 0;) {
            uint32_t b = back->order[i], found = KILN_PTX_NONE;
            if (flow->edge_at[b] == flow->edge_at[b + 1]) {
                found = end;
            }
            for (uint32_t e = flow->edge_at[b]; e < flow->edge_at[b + 1]; e++) {
                uint32_t to = flow->edges[e];
                if (dom[to] != KILN_PTX_NONE) {
                    found = found == KILN_PTX_NONE ? to : meet(back, dom, found, to);
                }
            }
            if (found != dom[b]) {
                dom[b] = found;
                changed = 1;
            }
        }
    }
    for (uint32_t b = 0; b < end; b++) {
        flow->blocks[b].join = dom[b] == end ? KILN_PTX_NONE : dom[b];
    }
}

static int find_joins(struct ptx_flow *flow, struct kiln_ptx_function *function) {
    struct backward back = {0};
    uint32_t *dom = kiln_calloc((size_t)flow->n_blocks + 1, sizeof(*dom));
    int failed = !dom || make_backward(&back, flow) != 0;
    if (!failed) {
        search(&back, flow->n_blocks);
        post_dominators(flow, &back, dom);
        for (uint32_t b = 0; b < flow->n_blocks; b++) {
            struct kiln_ptx_insn *last = &function->insns[flow->blocks[b].end - 1];
            uint32_t join = flow->blocks[b].join;
            if (is_branch(last)) {
                last->join = join == KILN_PTX_NONE ? function->n_insns : flow->blocks[join].first;
            }
        }
    }
    backward_finish(&back);
    kiln_free(dom);
    return failed ? -1 : 0;
}

enum kiln_status ptx_flow_make(
        struct ptx_flow *flow, struct kiln_ptx_function *function, struct kiln_err *err) {
    *flow = (struct ptx_flow){0};
    if (make_blocks(flow, function) != 0 || make_edges(flow, function) != 0 ||
            find_joins(flow, function) != 0) {
        return kiln_err_nomem(err, "a control flow graph");
    }
    return KILN_STATUS_OK;
}

void ptx_flow_finish(struct ptx_flow *flow) {
    kiln_free(flow->blocks);
    kiln_free(flow->edges);
    kiln_free(flow->edge_at);
    kiln_free(flow->block_of);
    *flow = (struct ptx_flow){0};
}
