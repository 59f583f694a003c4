// tune_strategy: which candidates of a space are measured next.
//
// exhaustive: all of them in order, what is bound first. random: all of them in a random order.
// local: from what is bound, every candidate that differs in one parameter or in the variant; moves
// to the best until none is better, then begins again at a random one. model: a few at random, then
// those for which a model of the times so far promises most; the model is the distance-weighted
// mean of the nearest candidates measured, in the space of parameter places, less a bonus for being
// far from all of them. No candidate is proposed twice, and the same seed and times give the same
// proposals.
#ifndef KILN_LAB_TUNE_STRATEGY_H
#define KILN_LAB_TUNE_STRATEGY_H

#include "base/status.h"
#include "lab/tune_space.h"

#include <stddef.h>
#include <stdint.h>

enum kiln_tune_strategy_kind {
    KILN_TUNE_EXHAUSTIVE,
    KILN_TUNE_RANDOM,
    KILN_TUNE_LOCAL,
    KILN_TUNE_MODEL,
    KILN_TUNE_STRATEGIES
};
const char *kiln_tune_strategy_name(enum kiln_tune_strategy_kind kind);
// By its name; KILN_TUNE_STRATEGIES: none.
enum kiln_tune_strategy_kind kiln_tune_strategy_of(const char *name);

struct kiln_tune_strategy;

struct kiln_tune_strategy_params {
    const struct kiln_tune_space *space; // outlives the strategy
    enum kiln_tune_strategy_kind kind;
    uint64_t seed;
    uint32_t shard, shards; // of EXHAUSTIVE and RANDOM: candidate i when i % shards == shard
};
KILN_MUST_CHECK enum kiln_status kiln_tune_strategy_create(struct kiln_tune_strategy **strategy,
        const struct kiln_tune_strategy_params *params, struct kiln_err *err);
void kiln_tune_strategy_destroy(struct kiln_tune_strategy *s); // NULL is fine

// A candidate to propose before all others but the base, in the order of the calls.
KILN_MUST_CHECK enum kiln_status kiln_tune_strategy_prefer(
        struct kiln_tune_strategy *s, uint64_t candidate, struct kiln_err *err);
// Up to `max` candidates. None: there are no more or, where some that were proposed have not been
// noted yet, it waits for those.
KILN_MUST_CHECK enum kiln_status kiln_tune_strategy_propose(struct kiln_tune_strategy *s,
        uint64_t *candidates, size_t max, size_t *n, struct kiln_err *err);
// What came of a candidate: seconds, or 0: it has no time. Each that was proposed is noted once.
KILN_MUST_CHECK enum kiln_status kiln_tune_strategy_note(
        struct kiln_tune_strategy *s, uint64_t candidate, double seconds, struct kiln_err *err);

#endif
