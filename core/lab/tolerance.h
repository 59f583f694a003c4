// tolerance: the gate for changes that regroup float sums, where identical tokens cannot be
// expected: do the logits stay as close as a change that is known to be harmless leaves them?
//
// Base, change and control read the same text. The control sets the bound: an argmax can flip only
// where the gap between the two largest logits is at most twice the largest difference of a logit,
// so bound = 2 * (largest difference of control and base). Base against base is run as well: it
// must be identical, or nothing else means anything.
#ifndef KILN_LAB_TOLERANCE_H
#define KILN_LAB_TOLERANCE_H

#include "lab/logits.h"
#include "lab/twin.h"

// Against the base, over all positions of a text.
struct kiln_closeness {
    int64_t rows, scored; // scored: rows with a token behind them
    float noise;          // largest difference of a logit
    int64_t flips;        // rows whose argmax differs
    float flip_gap;       // the largest base gap at which it does; 0 without flips
    int64_t flips_above;  // flips where the base's gap exceeds the bound
    double kl_mean, kl_max;
    // Mean of -log p(next) of change minus that of base, its standard error (rows taken as
    // independent), and the base's own mean: ppl = exp(mean).
    double nll_diff, nll_error, nll_base;
};

struct kiln_tolerance {
    struct kiln_closeness self, control, change;
    float bound;
};

// ids: (n) of the text, fed in one go; the context must hold them. The bound is reckoned from the
// control unless `bound` > 0 gives it. A row that is not finite is KILN_STATUS_CHECK.
KILN_MUST_CHECK enum kiln_status kiln_tolerance_compare(struct kiln_twin *twin, const int32_t *ids,
        int64_t n, float bound, struct kiln_tolerance *result, struct kiln_err *err);

// Adds the rows of `more` to `sum` (zeroed at first), as if they were one text.
void kiln_tolerance_add(struct kiln_tolerance *sum, const struct kiln_tolerance *more);

#endif
