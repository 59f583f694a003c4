// structure_loops: the kernel's loops, by dominators, and the barriers of one turn.
//
// A loop is what lies between a branch back and the block that it goes to, where that block is on
// every way to the branch. A barrier of a loop is met on every turn when its block is on every way
// to each of the loop's branches back.
#include "lab/structure_impl.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct block {
    uint32_t first, count; // instructions
    int32_t next[2];       // successors, -1: none
    int32_t loop;          // the innermost that it is in, -1: none
    int reached;
};

struct loop {
    uint32_t head;
    uint32_t size;    // blocks
    uint64_t *blocks; // a bit each
};

struct graph {
    const struct kiln_structure_text *text;
    struct block *blocks;
    uint32_t n, words;    // words: of a set of blocks
    uint32_t *of;         // block of an instruction
    uint64_t *dominators; // n sets
    struct loop *loops;
    size_t n_loops, cap_loops;
};

static int in_set(const uint64_t *set, uint32_t i) {
    return (int)(set[i / 64] >> (i % 64) & 1);
}

static void put(uint64_t *set, uint32_t i) {
    set[i / 64] |= UINT64_C(1) << (i % 64);
}

static enum kiln_status nomem(struct kiln_err *err) {
    return kiln_err_nomem(err, "the loops of a kernel");
}

// ---- Blocks -------------------------------------------------------------------------------------

// The label that a branch means: of its own braces, else of those around. UINT32_MAX: none.
static uint32_t resolve(
        const struct kiln_structure_text *text, const struct kiln_structure_insn *branch) {
    for (uint32_t scope = branch->scope; scope != UINT32_MAX; scope = text->parents[scope]) {
        for (size_t i = 0; i < text->n_labels; i++) {
            const struct kiln_structure_label *label = &text->labels[i];
            if (label->scope == scope && label->len == branch->target_len &&
                    memcmp(label->name, branch->target, label->len) == 0) {
                return label->at;
            }
        }
    }
    return UINT32_MAX;
}

static enum kiln_status make_blocks(struct graph *graph, struct kiln_err *err) {
    const struct kiln_structure_text *text = graph->text;
    const uint32_t n = (uint32_t)text->n_insns;
    char *starts = kiln_calloc(n + 1, 1);
    graph->of = kiln_calloc(n + 1, sizeof(*graph->of));
    graph->blocks = kiln_calloc(n + 1, sizeof(*graph->blocks));
    if (!starts || !graph->of || !graph->blocks) {
        kiln_free(starts);
        return nomem(err);
    }
    for (size_t i = 0; i < text->n_labels; i++) {
        starts[text->labels[i].at] = 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || starts[i] || text->insns[i - 1].target || text->insns[i - 1].ends) {
            graph->blocks[graph->n++] = (struct block){.first = i, .next = {-1, -1}, .loop = -1};
        }
        graph->of[i] = graph->n - 1;
        graph->blocks[graph->n - 1].count++;
    }
    kiln_free(starts);
    return KILN_STATUS_OK;
}

// 0, or -1: a branch goes where no label is.
static int link_blocks(struct graph *graph) {
    const struct kiln_structure_text *text = graph->text;
    for (uint32_t b = 0; b < graph->n; b++) {
        struct block *block = &graph->blocks[b];
        const struct kiln_structure_insn *last = &text->insns[block->first + block->count - 1];
        if (last->target) {
            uint32_t at = resolve(text, last);
            if (at >= text->n_insns) {
                return -1;
            }
            block->next[0] = (int32_t)graph->of[at];
        }
        int falls = !last->ends && (!last->target || last->guarded);
        block->next[1] = falls && b + 1 < graph->n ? (int32_t)b + 1 : -1;
    }
    return 0;
}

// ---- Dominators ---------------------------------------------------------------------------------

static void mark_reached(struct graph *graph) {
    int changed = graph->n > 0;
    if (changed) {
        graph->blocks[0].reached = 1;
    }
    while (changed) {
        changed = 0;
        for (uint32_t b = 0; b < graph->n; b++) {
            for (int k = 0; graph->blocks[b].reached && k < 2; k++) {
                int32_t next = graph->blocks[b].next[k];
                if (next >= 0 && !graph->blocks[next].reached) {
                    graph->blocks[next].reached = changed = 1;
                }
            }
        }
    }
}

static uint64_t *dominators_of(const struct graph *graph, uint32_t block) {
    return graph->dominators + (size_t)block * graph->words;
}

// set &= those of b's predecessors; returns whether there is one.
static void meet_into(const struct graph *graph, uint32_t from, uint32_t to, int *changed) {
    uint64_t *set = dominators_of(graph, to);
    const uint64_t *by = dominators_of(graph, from);
    for (uint32_t w = 0; w < graph->words; w++) {
        uint64_t keep = by[w] | (w == to / 64 ? UINT64_C(1) << (to % 64) : 0);
        if (set[w] & ~keep) {
            set[w] &= keep;
            *changed = 1;
        }
    }
}

static enum kiln_status find_dominators(struct graph *graph, struct kiln_err *err) {
    graph->words = (graph->n + 63) / 64;
    graph->dominators =
            kiln_calloc((size_t)graph->n * graph->words + 1, sizeof(*graph->dominators));
    if (!graph->dominators) {
        return nomem(err);
    }
    mark_reached(graph);
    memset(graph->dominators, 0xff, (size_t)graph->n * graph->words * sizeof(*graph->dominators));
    memset(dominators_of(graph, 0), 0, graph->words * sizeof(*graph->dominators));
    put(dominators_of(graph, 0), 0);
    for (int changed = 1; changed;) {
        changed = 0;
        for (uint32_t b = 0; b < graph->n; b++) {
            for (int k = 0; graph->blocks[b].reached && k < 2; k++) {
                if (graph->blocks[b].next[k] > 0) { // the first block has but itself
                    meet_into(graph, b, (uint32_t)graph->blocks[b].next[k], &changed);
                }
            }
        }
    }
    return KILN_STATUS_OK;
}

// ---- Loops --------------------------------------------------------------------------------------

// The loop of a head, made when it is new. NULL: out of memory.
static struct loop *loop_of(struct graph *graph, uint32_t head) {
    for (size_t i = 0; i < graph->n_loops; i++) {
        if (graph->loops[i].head == head) {
            return &graph->loops[i];
        }
    }
    if (kiln_grow(&graph->loops, &graph->cap_loops, graph->n_loops + 1, sizeof(*graph->loops)) !=
            0) {
        return NULL;
    }
    struct loop *loop = &graph->loops[graph->n_loops];
    *loop = (struct loop){.head = head, .blocks = kiln_calloc(graph->words, sizeof(uint64_t))};
    graph->n_loops += loop->blocks != NULL;
    return loop->blocks ? loop : NULL;
}

static int goes_to(const struct block *block, uint32_t to) {
    return block->next[0] == (int32_t)to || block->next[1] == (int32_t)to;
}

static int is_back(const struct graph *graph, uint32_t from, uint32_t to) {
    return graph->blocks[from].reached && goes_to(&graph->blocks[from], to) &&
           in_set(dominators_of(graph, from), to);
}

// Adds what reaches `latch` without passing the head.
static void fill_loop(const struct graph *graph, struct loop *loop, uint32_t latch) {
    put(loop->blocks, loop->head);
    put(loop->blocks, latch);
    for (int changed = 1; changed;) {
        changed = 0;
        for (uint32_t b = 0; b < graph->n; b++) {
            for (int k = 0; graph->blocks[b].reached && !in_set(loop->blocks, b) && k < 2; k++) {
                int32_t next = graph->blocks[b].next[k];
                if (next >= 0 && next != (int32_t)loop->head &&
                        in_set(loop->blocks, (uint32_t)next)) {
                    put(loop->blocks, b);
                    changed = 1;
                }
            }
        }
    }
}

static int by_head(const void *a, const void *b) {
    const struct loop *x = a, *y = b;
    return x->head < y->head ? -1 : x->head > y->head;
}

static enum kiln_status find_loops(struct graph *graph, struct kiln_err *err) {
    for (uint32_t b = 0; b < graph->n; b++) {
        for (int k = 0; k < 2; k++) {
            int32_t head = graph->blocks[b].next[k];
            if (head >= 0 && is_back(graph, b, (uint32_t)head)) {
                struct loop *loop = loop_of(graph, (uint32_t)head);
                if (!loop) {
                    return nomem(err);
                }
                fill_loop(graph, loop, b);
            }
        }
    }
    if (graph->n_loops > 1) {
        qsort(graph->loops, graph->n_loops, sizeof(*graph->loops), by_head);
    }
    for (size_t i = 0; i < graph->n_loops; i++) {
        struct loop *loop = &graph->loops[i];
        for (uint32_t b = 0; b < graph->n; b++) {
            loop->size += (uint32_t)in_set(loop->blocks, b);
        }
    }
    for (size_t i = 0; i < graph->n_loops; i++) {
        for (uint32_t b = 0; b < graph->n; b++) {
            int32_t *inner = &graph->blocks[b].loop;
            if (in_set(graph->loops[i].blocks, b) &&
                    (*inner < 0 || graph->loops[i].size < graph->loops[*inner].size)) {
                *inner = (int32_t)i;
            }
        }
    }
    return KILN_STATUS_OK;
}

// On every way from the head to each branch back: met on every turn.
static int is_always(const struct graph *graph, const struct loop *loop, uint32_t block) {
    for (uint32_t b = 0; b < graph->n; b++) {
        if (is_back(graph, b, loop->head) && in_set(loop->blocks, b) &&
                !in_set(dominators_of(graph, b), block)) {
            return 0;
        }
    }
    return 1;
}

static void count_block(struct kiln_structure *structure, const struct graph *graph, uint32_t b) {
    const struct block *block = &graph->blocks[b];
    struct kiln_structure_loop *told = block->loop >= 0 ? &structure->loops[block->loop] : NULL;
    for (uint32_t i = block->first; i < block->first + block->count; i++) {
        const struct kiln_structure_insn *insn = &graph->text->insns[i];
        int barrier = insn->kind == KILN_STRUCTURE_BARRIER;
        if (!told) {
            structure->barriers_outside += (uint32_t)barrier;
            continue;
        }
        told->counts[insn->kind]++;
        told->barriers += (uint32_t)barrier;
        told->sometimes +=
                (uint32_t)(barrier &&
                           (insn->guarded || !is_always(graph, &graph->loops[block->loop], b)));
    }
}

// A loop is named after the line of its last branch back: the statement that it is.
static void name_loop(struct kiln_structure *structure, const struct graph *graph, size_t index) {
    const struct loop *loop = &graph->loops[index];
    struct kiln_structure_loop *told = &structure->loops[index];
    for (uint32_t b = 0; b < graph->n; b++) {
        if (is_back(graph, b, loop->head)) {
            const struct block *block = &graph->blocks[b];
            const struct kiln_structure_line *line =
                    &structure->lines[graph->text->insns[block->first + block->count - 1].line];
            memcpy(told->file, line->file, sizeof(told->file));
            told->line = line->line;
        }
    }
    for (size_t i = 0; i < graph->n_loops; i++) {
        told->depth += (uint32_t)in_set(graph->loops[i].blocks, loop->head);
    }
}

static enum kiln_status tell(
        struct kiln_structure *structure, const struct graph *graph, struct kiln_err *err) {
    structure->loops = kiln_calloc(graph->n_loops + 1, sizeof(*structure->loops));
    if (!structure->loops) {
        return nomem(err);
    }
    structure->n_loops = graph->n_loops;
    structure->loops_known = 1;
    for (size_t i = 0; i < graph->n_loops; i++) {
        name_loop(structure, graph, i);
    }
    for (uint32_t b = 0; b < graph->n; b++) {
        count_block(structure, graph, b);
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_structure_find_loops(struct kiln_structure *structure,
        const struct kiln_structure_text *text, struct kiln_err *err) {
    struct graph graph = {.text = text};
    if (text->n_insns == 0 || text->indirect) {
        structure->loops_known = text->n_insns == 0;
        return KILN_STATUS_OK;
    }
    enum kiln_status status = make_blocks(&graph, err);
    if (status == KILN_STATUS_OK && link_blocks(&graph) == 0) {
        status = find_dominators(&graph, err);
        if (status == KILN_STATUS_OK) {
            status = find_loops(&graph, err);
        }
        if (status == KILN_STATUS_OK) {
            status = tell(structure, &graph, err);
        }
    }
    for (size_t i = 0; i < graph.n_loops; i++) {
        kiln_free(graph.loops[i].blocks);
    }
    kiln_free(graph.loops);
    kiln_free(graph.dominators);
    kiln_free(graph.of);
    kiln_free(graph.blocks);
    return status;
}
