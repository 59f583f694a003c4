// ptx_slots: gives registers places in the frame, so that registers that are never alive at once
// share one: a kernel of thousands of virtual registers then runs within a cache.
//
// A register is alive over one range of the function's text, from the first place where its value
// may be wanted to the last, found by data flow over blocks; ranges are taken in order and a place
// that has become free last is used first. Places are shared within one width only. What an
// instruction reads stays alive until it is over, so that its results never lie on what it still
// reads, unless the PTX itself names one register twice.
#include "device/sim/ptx_impl.h"

#include "base/mem.h"

#include <string.h>

enum {
    WATCHED = 4,         // the class of registers with places of their own, 4 bytes a lane
    CLASSES = 5,         // predicates, 4, 8 and 16 bytes a lane, WATCHED
    MAX_SETS = 64 << 20, // bytes of live sets; beyond that nothing is shared
    LANES = 32
};

// ---- Operands of an instruction -----------------------------------------------------------------

typedef void (*visit_fn)(void *arg, uint32_t *operand, int is_dest);

static void visit_one(uint32_t *operand, int is_dest, visit_fn fn, void *arg) {
    if (*operand != KILN_PTX_NONE && !(*operand & KILN_PTX_CONST)) {
        fn(arg, operand, is_dest);
    }
}

static void visit_field(struct kiln_ptx_function *function, uint32_t *field, uint32_t n,
        int is_dest, visit_fn fn, void *arg) {
    if (n <= 1) {
        visit_one(field, is_dest, fn, arg);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        visit_one(&function->lists[*field + i], is_dest, fn, arg);
    }
}

// Sources, then destinations.
static void visit(
        struct kiln_ptx_function *function, struct kiln_ptx_insn *insn, visit_fn fn, void *arg) {
    int is_call = insn->op == KILN_PTX_OP_CALL || insn->op == KILN_PTX_OP_CALL_REG ||
                  insn->op == KILN_PTX_OP_CALL_HOST;
    visit_one(&insn->guard, 0, fn, arg);
    if (!is_call) {
        visit_field(function, &insn->a, insn->n_a, 0, fn, arg);
        if (insn->op != KILN_PTX_OP_BRX) {
            visit_field(function, &insn->b, insn->n_b, 0, fn, arg);
        }
    }
    visit_field(function, &insn->c, insn->n_c, 0, fn, arg);
    visit_one(&insn->e, 0, fn, arg);
    visit_field(function, &insn->d, insn->n_d, 1, fn, arg);
    visit_one(&insn->d2, 1, fn, arg);
}

// ---- What nobody reads --------------------------------------------------------------------------

static void mark_read(void *arg, uint32_t *operand, int is_dest) {
    unsigned char *is_read = arg;
    is_read[*operand] |= !is_dest;
}

// Elements of a vector that nobody reads go nowhere.
static int drop_unread(struct kiln_ptx_function *function, uint32_t n_regs) {
    unsigned char *is_read = kiln_calloc((size_t)n_regs + 1, 1);
    if (!is_read) {
        return -1;
    }
    for (uint32_t i = 0; i < function->n_insns; i++) {
        visit(function, &function->insns[i], mark_read, is_read);
    }
    for (uint32_t i = 0; i < function->n_insns; i++) {
        const struct kiln_ptx_insn *insn = &function->insns[i];
        for (uint32_t k = 0; insn->op == KILN_PTX_OP_LD && insn->n_d > 1 && k < insn->n_d; k++) {
            uint32_t *to = &function->lists[insn->d + k];
            *to = *to == KILN_PTX_NONE || is_read[*to] ? *to : KILN_PTX_NONE;
        }
    }
    kiln_free(is_read);
    return 0;
}

// ---- Registers of products under way ------------------------------------------------------------
// A product of a warpgroup goes on working on its registers behind the instruction. Who follows
// that needs to know the register for sure: it shares its place with no other. What is moved to or
// from such a register may well be the same one on a GPU.

static int is_plain(const struct ptx_reg *regs, uint32_t reg) {
    return !(reg & KILN_PTX_CONST) && reg != KILN_PTX_NONE && regs[reg].bytes == 4;
}

static void watch_list(const struct kiln_ptx_function *function, uint32_t first, uint32_t n,
        struct ptx_reg *regs) {
    for (uint32_t i = 0; n > 1 && i < n; i++) {
        uint32_t reg = function->lists[first + i];
        if (is_plain(regs, reg)) {
            regs[reg].watched = 1;
        }
    }
}

static void find_watched(
        const struct kiln_ptx_function *function, struct ptx_reg *regs, uint32_t n_regs) {
    int more = 0;
    for (uint32_t r = 0; r < n_regs; r++) {
        regs[r].watched = 0;
    }
    for (uint32_t i = 0; i < function->n_insns; i++) {
        const struct kiln_ptx_insn *insn = &function->insns[i];
        if (insn->op == KILN_PTX_OP_WGMMA) {
            watch_list(function, insn->d, insn->n_d, regs);
            watch_list(function, insn->a, insn->n_a, regs);
            more = 1;
        }
    }
    while (more) {
        more = 0;
        for (uint32_t i = 0; i < function->n_insns; i++) {
            const struct kiln_ptx_insn *insn = &function->insns[i];
            if (insn->op == KILN_PTX_OP_MOV && insn->type != KILN_PTX_PRED &&
                    is_plain(regs, insn->d) && is_plain(regs, insn->a) &&
                    regs[insn->d].watched != regs[insn->a].watched) {
                regs[insn->d].watched = regs[insn->a].watched = 1;
                more = 1;
            }
        }
    }
}

// ---- Live ranges --------------------------------------------------------------------------------

struct live {
    struct kiln_ptx_function *function;
    const struct ptx_flow *flow;
    uint32_t n_regs, words;
    uint64_t *use, *def, *in; // a set for each block
    uint32_t *start, *end;    // of each register: twice the instruction, + 1 inside of it
    // Of the visit at hand:
    uint64_t *use_here, *def_here;
    uint32_t position;
    int kills;
};

static void gather(void *arg, uint32_t *operand, int is_dest) {
    struct live *live = arg;
    uint32_t word = *operand / 64;
    uint64_t bit = UINT64_C(1) << *operand % 64;
    if (!is_dest) {
        if (!(live->def_here[word] & bit)) {
            live->use_here[word] |= bit;
        }
    } else if (live->kills) {
        live->def_here[word] |= bit;
    }
}

static void gather_block(struct live *live, uint32_t b) {
    const struct ptx_block *block = &live->flow->blocks[b];
    live->use_here = live->use + (size_t)b * live->words;
    live->def_here = live->def + (size_t)b * live->words;
    for (uint32_t i = block->first; i < block->end; i++) {
        struct kiln_ptx_insn *insn = &live->function->insns[i];
        live->kills = insn->guard == KILN_PTX_NONE;
        visit(live->function, insn, gather, live);
    }
    memcpy(live->in + (size_t)b * live->words, live->use_here, live->words * sizeof(uint64_t));
}

// in = use + (what comes after - def); 1: it grew.
static int flow_into(struct live *live, uint32_t b) {
    uint64_t *in = live->in + (size_t)b * live->words;
    const uint64_t *def = live->def + (size_t)b * live->words;
    uint64_t grown = 0;
    for (uint32_t e = live->flow->edge_at[b]; e < live->flow->edge_at[b + 1]; e++) {
        const uint64_t *after = live->in + (size_t)live->flow->edges[e] * live->words;
        for (uint32_t w = 0; w < live->words; w++) {
            uint64_t more = after[w] & ~def[w] & ~in[w];
            in[w] |= more;
            grown |= more;
        }
    }
    return grown != 0;
}

static void extend(struct live *live, uint32_t reg, uint32_t position) {
    if (live->start[reg] == KILN_PTX_NONE) {
        live->start[reg] = live->end[reg] = position;
        return;
    }
    if (position < live->start[reg]) {
        live->start[reg] = position;
    }
    if (position > live->end[reg]) {
        live->end[reg] = position;
    }
}

static void extend_set(struct live *live, const uint64_t *set, uint32_t position) {
    for (uint32_t w = 0; w < live->words; w++) {
        for (uint64_t left = set[w]; left; left &= left - 1) {
            extend(live, w * 64 + (uint32_t)__builtin_ctzll(left), position);
        }
    }
}

static void extend_operand(void *arg, uint32_t *operand, int is_dest) {
    struct live *live = arg;
    (void)is_dest; // a source is alive until the instruction is over
    extend(live, *operand, live->position + 1);
}

static void find_ranges(struct live *live) {
    const struct ptx_flow *flow = live->flow;
    for (uint32_t b = 0; b < flow->n_blocks; b++) {
        gather_block(live, b);
    }
    for (int changed = 1; changed;) {
        changed = 0;
        for (uint32_t b = flow->n_blocks; b-- > 0;) {
            changed |= flow_into(live, b);
        }
    }
    for (uint32_t b = 0; b < flow->n_blocks; b++) {
        const struct ptx_block *block = &flow->blocks[b];
        extend_set(live, live->in + (size_t)b * live->words, 2 * block->first);
        for (uint32_t e = flow->edge_at[b]; e < flow->edge_at[b + 1]; e++) {
            extend_set(live, live->in + (size_t)flow->edges[e] * live->words, 2 * block->end - 1);
        }
    }
}

// ---- Places -------------------------------------------------------------------------------------

struct places {
    uint32_t *place;         // of each register, in its class
    uint32_t *next_start;    // registers that begin at the same position, a list
    uint32_t *next_end;      // … that end
    uint32_t *starts, *ends; // heads, by position
    uint32_t *free_ones[CLASSES];
    uint32_t n_free[CLASSES], used[CLASSES];
};

static uint32_t class_of(const struct ptx_reg *reg) {
    return reg->watched      ? WATCHED
           : reg->bytes == 0 ? 0
           : reg->bytes <= 4 ? 1
           : reg->bytes == 8 ? 2
                             : 3;
}

static void places_finish(struct places *places) {
    kiln_free(places->place);
    kiln_free(places->next_start);
    kiln_free(places->next_end);
    kiln_free(places->starts);
    kiln_free(places->ends);
    for (int c = 0; c < CLASSES; c++) {
        kiln_free(places->free_ones[c]);
    }
}

static int places_make(struct places *places, uint32_t n_regs, uint32_t n_positions) {
    int failed = 0;
    uint32_t **const of_regs[] = {&places->place, &places->next_start, &places->next_end,
            &places->free_ones[0], &places->free_ones[1], &places->free_ones[2],
            &places->free_ones[3], &places->free_ones[WATCHED]};
    for (size_t i = 0; i < sizeof(of_regs) / sizeof(of_regs[0]); i++) {
        *of_regs[i] = kiln_calloc(n_regs, sizeof(uint32_t));
        failed |= !*of_regs[i];
    }
    places->starts = kiln_alloc((size_t)n_positions * sizeof(uint32_t));
    places->ends = kiln_alloc((size_t)n_positions * sizeof(uint32_t));
    if (failed || !places->starts || !places->ends) {
        return -1;
    }
    memset(places->starts, 0xff, (size_t)n_positions * sizeof(uint32_t));
    memset(places->ends, 0xff, (size_t)n_positions * sizeof(uint32_t));
    return 0;
}

static void sweep(struct places *places, const struct live *live, const struct ptx_reg *regs,
        uint32_t n_positions) {
    for (uint32_t r = live->n_regs; r-- > 0;) {
        if (live->start[r] != KILN_PTX_NONE) {
            places->next_start[r] = places->starts[live->start[r]];
            places->starts[live->start[r]] = r;
            places->next_end[r] = places->ends[live->end[r]];
            places->ends[live->end[r]] = r;
        }
    }
    for (uint32_t at = 0; at < n_positions; at++) {
        for (uint32_t r = places->starts[at]; r != KILN_PTX_NONE; r = places->next_start[r]) {
            uint32_t class = class_of(&regs[r]);
            places->place[r] = places->n_free[class] > 0
                                       ? places->free_ones[class][--places->n_free[class]]
                                       : places->used[class]++;
        }
        for (uint32_t r = places->ends[at]; r != KILN_PTX_NONE; r = places->next_end[r]) {
            uint32_t class = class_of(&regs[r]);
            if (class == WATCHED) {
                continue;
            }
            places->free_ones[class][places->n_free[class]++] = places->place[r];
        }
    }
}

struct rewrite {
    const struct places *places;
    const struct ptx_reg *regs;
    uint32_t base[CLASSES];
};

static void rewrite_operand(void *arg, uint32_t *operand, int is_dest) {
    static const uint32_t bytes[CLASSES] = {4, 4 * LANES, 8 * LANES, 16 * LANES, 4 * LANES};
    struct rewrite *rewrite = arg;
    uint32_t class = class_of(&rewrite->regs[*operand]);
    (void)is_dest;
    *operand = rewrite->base[class] + rewrite->places->place[*operand] * bytes[class];
}

static void rewrite_all(struct kiln_ptx_function *function, const struct places *places,
        const struct ptx_reg *regs) {
    struct rewrite rewrite = {.places = places, .regs = regs};
    rewrite.base[1] = (places->used[0] * 4 + 63) / 64 * 64;
    rewrite.base[2] = rewrite.base[1] + places->used[1] * 4 * LANES;
    rewrite.base[3] = rewrite.base[2] + places->used[2] * 8 * LANES;
    rewrite.base[WATCHED] = rewrite.base[3] + places->used[3] * 16 * LANES;
    function->frame_bytes = rewrite.base[WATCHED] + places->used[WATCHED] * 4 * LANES;
    function->watched_at = rewrite.base[WATCHED];
    function->n_watched = places->used[WATCHED];
    for (uint32_t i = 0; i < function->n_insns; i++) {
        visit(function, &function->insns[i], rewrite_operand, &rewrite);
    }
}

// ---- All of it ----------------------------------------------------------------------------------

static int live_make(struct live *live, uint32_t n_regs) {
    size_t sets = (size_t)live->words * live->flow->n_blocks;
    live->start = kiln_alloc((size_t)n_regs * sizeof(uint32_t));
    live->end = kiln_alloc((size_t)n_regs * sizeof(uint32_t));
    if (!live->start || !live->end) {
        return -1;
    }
    memset(live->start, 0xff, (size_t)n_regs * sizeof(uint32_t));
    memset(live->end, 0xff, (size_t)n_regs * sizeof(uint32_t));
    if (sets * 3 * sizeof(uint64_t) > MAX_SETS) {
        live->words = 0;
        return 0;
    }
    live->use = kiln_calloc(sets, sizeof(uint64_t));
    live->def = kiln_calloc(sets, sizeof(uint64_t));
    live->in = kiln_calloc(sets, sizeof(uint64_t));
    return live->use && live->def && live->in ? 0 : -1;
}

static void live_finish(struct live *live) {
    kiln_free(live->use);
    kiln_free(live->def);
    kiln_free(live->in);
    kiln_free(live->start);
    kiln_free(live->end);
}

enum kiln_status ptx_slots(struct kiln_ptx_function *function, const struct ptx_flow *flow,
        struct ptx_reg *regs, uint32_t n_regs, struct kiln_err *err) {
    find_watched(function, regs, n_regs);
    struct live live = {
            .function = function, .flow = flow, .n_regs = n_regs, .words = (n_regs + 63) / 64};
    struct places places = {0};
    uint32_t n_positions = 2 * function->n_insns + 2;
    int failed = drop_unread(function, n_regs) != 0 || live_make(&live, n_regs) != 0 ||
                 places_make(&places, n_regs, n_positions) != 0;
    if (!failed) {
        if (live.words > 0) {
            find_ranges(&live);
        }
        for (uint32_t i = 0; i < function->n_insns; i++) {
            live.position = 2 * i;
            visit(function, &function->insns[i], extend_operand, &live);
        }
        for (uint32_t r = 0; live.words == 0 && r < n_regs; r++) {
            live.start[r] = 0;
            live.end[r] = n_positions - 1;
        }
        sweep(&places, &live, regs, n_positions);
        rewrite_all(function, &places, regs);
    }
    places_finish(&places);
    live_finish(&live);
    return failed ? kiln_err_nomem(err, "live ranges of registers") : KILN_STATUS_OK;
}
