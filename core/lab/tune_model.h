// tune_model: what the times so far promise of candidates that were not measured.
#ifndef KILN_LAB_TUNE_MODEL_H
#define KILN_LAB_TUNE_MODEL_H

#include "base/status.h"
#include "lab/tune_space.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_tune_noted {
    uint64_t candidate;
    double seconds; // 0: it has no time
};

// How far two candidates are apart: for each parameter that both have the difference of places on
// its axis (0 to 1), for each that one of them lacks a half; another variant counts as 1.
double kiln_tune_distance(const struct kiln_tune_space *space, uint64_t a, uint64_t b);

// Sorts candidates[0..n) by promise, the best first. A candidate without a time counts as twice as
// slow as the slowest that has one. NOMEM.
KILN_MUST_CHECK enum kiln_status kiln_tune_model_rank(const struct kiln_tune_space *space,
        const struct kiln_tune_noted *noted, size_t n_noted, uint64_t *candidates, size_t n,
        struct kiln_err *err);

#endif
