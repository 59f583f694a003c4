// tune_strategy: the four ways through a space.
#include "lab/tune_strategy.h"

#include "base/mem.h"
#include "lab/tune_model.h"

#include <string.h>

enum {
    NEAR_MAX = KILN_TUNE_PARAMS * KILN_TUNE_AXIS_VALUES + 256,
};

// A set of numbers, open addressing; 0 is stored as 1, and so on.
struct number_set {
    uint64_t *slots;
    size_t cap, count;
};

struct kiln_tune_strategy {
    struct kiln_tune_strategy_params params;
    struct number_set proposed;
    uint64_t total;  // candidates of the shard
    uint64_t cursor; // EXHAUSTIVE
    uint64_t random; // state of the generator
    size_t waiting;  // proposed and not noted
    struct kiln_tune_noted *noted;
    size_t n_noted, cap_noted;
    uint64_t *preferred;
    size_t n_preferred, cap_preferred;
    uint64_t here; // LOCAL; KILN_TUNE_NONE: to begin again
    uint64_t *near;
};

static const char *const names[KILN_TUNE_STRATEGIES] = {"exhaustive", "random", "local", "model"};

const char *kiln_tune_strategy_name(enum kiln_tune_strategy_kind kind) {
    return kind < KILN_TUNE_STRATEGIES ? names[kind] : "?";
}

enum kiln_tune_strategy_kind kiln_tune_strategy_of(const char *name) {
    int kind = 0;
    while (kind < KILN_TUNE_STRATEGIES && strcmp(names[kind], name) != 0) {
        kind++;
    }
    return (enum kiln_tune_strategy_kind)kind;
}

// splitmix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators").
static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t draw(struct kiln_tune_strategy *s, uint64_t below) {
    return mix(s->random += 0x9e3779b97f4a7c15u) % below;
}

// ---- What was proposed --------------------------------------------------------------------------

static int has(const struct number_set *set, uint64_t number) {
    for (size_t at = mix(number) & (set->cap - 1); set->cap > 0 && set->slots[at];
            at = (at + 1) & (set->cap - 1)) {
        if (set->slots[at] == number + 1) {
            return 1;
        }
    }
    return 0;
}

static void place(struct number_set *set, uint64_t number) {
    size_t at = mix(number) & (set->cap - 1);
    while (set->slots[at]) {
        at = (at + 1) & (set->cap - 1);
    }
    set->slots[at] = number + 1;
    set->count++;
}

static enum kiln_status add(struct number_set *set, uint64_t number, struct kiln_err *err) {
    if (set->count * 2 >= set->cap) {
        struct number_set larger = {.cap = set->cap ? set->cap * 2 : 256};
        larger.slots = kiln_calloc(larger.cap, sizeof(*larger.slots));
        if (!larger.slots) {
            return kiln_err_nomem(err, "the candidates of a sweep");
        }
        for (size_t i = 0; i < set->cap; i++) {
            if (set->slots[i]) {
                place(&larger, set->slots[i] - 1);
            }
        }
        kiln_free(set->slots);
        *set = larger;
    }
    place(set, number);
    return KILN_STATUS_OK;
}

static int is_mine(const struct kiln_tune_strategy *s, uint64_t candidate) {
    return candidate % s->params.shards == s->params.shard;
}

static int is_new(const struct kiln_tune_strategy *s, uint64_t candidate) {
    return candidate != KILN_TUNE_NONE && is_mine(s, candidate) && !has(&s->proposed, candidate);
}

struct proposals {
    uint64_t *candidates;
    size_t n, max;
};

static enum kiln_status propose(struct kiln_tune_strategy *s, struct proposals *out,
        uint64_t candidate, struct kiln_err *err) {
    if (out->n == out->max || !is_new(s, candidate)) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(add(&s->proposed, candidate, err));
    out->candidates[out->n++] = candidate;
    s->waiting++;
    return KILN_STATUS_OK;
}

// A candidate that was not proposed: a random one, or the next behind it. There is one.
static uint64_t draw_new(struct kiln_tune_strategy *s) {
    uint64_t candidate = draw(s, s->params.space->count);
    while (!is_new(s, candidate)) {
        candidate = (candidate + 1) % s->params.space->count;
    }
    return candidate;
}

// ---- Life ---------------------------------------------------------------------------------------

enum kiln_status kiln_tune_strategy_create(struct kiln_tune_strategy **strategy,
        const struct kiln_tune_strategy_params *params, struct kiln_err *err) {
    struct kiln_tune_strategy *s = kiln_calloc(1, sizeof(*s));
    uint64_t *near = kiln_calloc(NEAR_MAX, sizeof(*near));
    *strategy = NULL;
    if (!s || !near) {
        kiln_free(s);
        kiln_free(near);
        return kiln_err_nomem(err, "a strategy");
    }
    uint32_t shards = params->shards > 0 ? params->shards : 1;
    uint64_t count = params->space->count;
    s->params = *params;
    s->params.shards = shards;
    s->near = near;
    s->random = params->seed;
    s->here = params->space->base;
    s->total = count / shards + (params->shard < count % shards);
    *strategy = s;
    return KILN_STATUS_OK;
}

void kiln_tune_strategy_destroy(struct kiln_tune_strategy *s) {
    if (s) {
        kiln_free(s->proposed.slots);
        kiln_free(s->noted);
        kiln_free(s->near);
        kiln_free(s->preferred);
        kiln_free(s);
    }
}

enum kiln_status kiln_tune_strategy_prefer(
        struct kiln_tune_strategy *s, uint64_t candidate, struct kiln_err *err) {
    if (kiln_grow(&s->preferred, &s->cap_preferred, s->n_preferred + 1, sizeof(*s->preferred)) !=
            0) {
        return kiln_err_nomem(err, "the candidates of a sweep");
    }
    s->preferred[s->n_preferred++] = candidate;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_tune_strategy_note(
        struct kiln_tune_strategy *s, uint64_t candidate, double seconds, struct kiln_err *err) {
    if (kiln_grow(&s->noted, &s->cap_noted, s->n_noted + 1, sizeof(*s->noted)) != 0) {
        return kiln_err_nomem(err, "the times of a sweep");
    }
    s->noted[s->n_noted++] = (struct kiln_tune_noted){candidate, seconds};
    s->waiting--;
    return KILN_STATUS_OK;
}

static double time_of(const struct kiln_tune_strategy *s, uint64_t candidate) {
    for (size_t i = 0; i < s->n_noted; i++) {
        if (s->noted[i].candidate == candidate) {
            return s->noted[i].seconds;
        }
    }
    return 0;
}

// ---- The ways -----------------------------------------------------------------------------------

static enum kiln_status propose_in_order(
        struct kiln_tune_strategy *s, struct proposals *out, struct kiln_err *err) {
    while (s->cursor < s->params.space->count && out->n < out->max) {
        KILN_TRY(propose(s, out, s->cursor++, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status propose_random(
        struct kiln_tune_strategy *s, struct proposals *out, struct kiln_err *err) {
    while (out->n < out->max && s->proposed.count < s->total) {
        KILN_TRY(propose(s, out, draw_new(s), err));
    }
    return KILN_STATUS_OK;
}

// Moves to the best neighbour. 0: none is better than here.
static int move(struct kiln_tune_strategy *s) {
    size_t n = kiln_tune_space_near(s->params.space, s->here, 1, s->near, NEAR_MAX);
    double best = time_of(s, s->here);
    uint64_t to = s->here;
    for (size_t i = 0; i < n; i++) {
        double seconds = time_of(s, s->near[i]);
        if (seconds > 0 && (best <= 0 || seconds < best)) {
            best = seconds;
            to = s->near[i];
        }
    }
    int moved = to != s->here;
    s->here = to;
    return moved;
}

static enum kiln_status propose_near(
        struct kiln_tune_strategy *s, struct proposals *out, struct kiln_err *err) {
    size_t n = kiln_tune_space_near(s->params.space, s->here, 1, s->near, NEAR_MAX);
    KILN_TRY(propose(s, out, s->here, err));
    for (size_t i = 0; i < n; i++) {
        KILN_TRY(propose(s, out, s->near[i], err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status propose_local(
        struct kiln_tune_strategy *s, struct proposals *out, struct kiln_err *err) {
    while (out->n == 0 && s->proposed.count < s->total) {
        if (s->here == KILN_TUNE_NONE) {
            s->here = draw_new(s);
        }
        KILN_TRY(propose_near(s, out, err));
        if (out->n > 0 || s->waiting > 0) {
            return KILN_STATUS_OK;
        }
        if (!move(s)) {
            s->here = KILN_TUNE_NONE;
        }
    }
    return KILN_STATUS_OK;
}

enum {
    POOL = 2048 // candidates that the model looks at
};

// Everything that is left, or so many at random of it and what is near the best so far.
static enum kiln_status fill_pool(struct kiln_tune_strategy *s, uint64_t *pool, size_t *n) {
    uint64_t count = s->params.space->count, best = KILN_TUNE_NONE;
    double seconds = 0;
    *n = 0;
    for (uint64_t i = 0; count <= POOL && i < count; i++) {
        if (is_new(s, i)) {
            pool[(*n)++] = i;
        }
    }
    for (size_t i = 0; i < s->n_noted; i++) {
        if (s->noted[i].seconds > 0 && (seconds <= 0 || s->noted[i].seconds < seconds)) {
            seconds = s->noted[i].seconds;
            best = s->noted[i].candidate;
        }
    }
    if (count <= POOL) {
        return KILN_STATUS_OK;
    }
    size_t n_near = best == KILN_TUNE_NONE
                            ? 0
                            : kiln_tune_space_near(s->params.space, best, 1, s->near, POOL / 2);
    for (size_t i = 0; i < n_near; i++) {
        if (is_new(s, s->near[i])) {
            pool[(*n)++] = s->near[i];
        }
    }
    for (size_t tries = 0; *n < POOL && tries < (size_t)POOL * 2; tries++) {
        uint64_t candidate = draw(s, count);
        if (is_new(s, candidate)) {
            pool[(*n)++] = candidate;
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status propose_promising(
        struct kiln_tune_strategy *s, struct proposals *out, struct kiln_err *err) {
    uint64_t *pool = kiln_calloc(POOL, sizeof(*pool));
    size_t n = 0;
    if (!pool) {
        return kiln_err_nomem(err, "the model of a sweep");
    }
    enum kiln_status status = fill_pool(s, pool, &n);
    if (status == KILN_STATUS_OK) {
        status = kiln_tune_model_rank(s->params.space, s->noted, s->n_noted, pool, n, err);
    }
    for (size_t i = 0; status == KILN_STATUS_OK && i < n && out->n < out->max; i++) {
        status = propose(s, out, pool[i], err);
    }
    kiln_free(pool);
    return status;
}

static enum kiln_status propose_model(
        struct kiln_tune_strategy *s, struct proposals *out, struct kiln_err *err) {
    size_t start = 8 + 2 * s->params.space->n_parts; // at random before the model is asked
    if (s->proposed.count < start) {
        size_t left = start - s->proposed.count;
        out->max = out->max < left ? out->max : left;
        return propose_random(s, out, err);
    }
    return s->waiting > 0 || s->proposed.count >= s->total ? KILN_STATUS_OK
                                                           : propose_promising(s, out, err);
}

enum kiln_status kiln_tune_strategy_propose(struct kiln_tune_strategy *s,
        uint64_t *candidates, // NOLINT(readability-non-const-parameter): filled in through out
        size_t max, size_t *n, struct kiln_err *err) {
    static enum kiln_status (*const ways[KILN_TUNE_STRATEGIES])(struct kiln_tune_strategy *,
            struct proposals *,
            struct kiln_err *) = {propose_in_order, propose_random, propose_local, propose_model};
    struct proposals out = {.max = max};
    out.candidates = candidates;
    enum kiln_status status = KILN_STATUS_OK;
    *n = 0;
    if (max == 0) {
        return KILN_STATUS_OK;
    }
    if (s->proposed.count == 0) {
        status = propose(s, &out, s->params.space->base, err); // what is bound comes first
    }
    for (size_t i = 0; status == KILN_STATUS_OK && i < s->n_preferred; i++) {
        status = propose(s, &out, s->preferred[i], err);
    }
    if (status == KILN_STATUS_OK) {
        status = ways[s->params.kind](s, &out, err);
    }
    *n = out.n;
    return status;
}
