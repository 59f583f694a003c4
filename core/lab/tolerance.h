// tolerance: the gate for changes that regroup float sums, where identical tokens cannot be
// expected: do logits and tokens stay as close to the base's as a change that is known to be
// harmless, the control, leaves them?
//
// Base, control and change read the same texts and go on from each greedily. Base against base is
// run as well: it must be identical, or nothing else means anything. What the control differs by
// over all texts, times a factor F, is what the change may differ by:
//
//   a logit, and the base's top-2 gap   F * the control's largest difference of a logit: at F = 2
//   where an argmax flips or the        the largest gap that the control itself could have closed,
//   continuation forks                  since it moves both logits
//   KL, mean and largest                F^2 * the control's: it grows with the square of the logits
//   perplexity                          F * the control's; of both what the difference may be at
//                                       most, two standard errors included, so that a wide error is
//                                       no excuse
//
// A control without differences bounds nothing, and then what is not bounded by hand is not judged;
// where nothing is bounded by hand either, only a change without differences passes.
#ifndef KILN_LAB_TOLERANCE_H
#define KILN_LAB_TOLERANCE_H

#include "lab/logits.h"
#include "lab/twin.h"

// One side against the base, over all positions of one text or more.
struct kiln_closeness {
    int64_t rows, scored;             // scored: rows with a token behind them
    float noise;                      // largest difference of a logit, the continuations' included
    int64_t flips;                    // rows whose argmax differs
    float flip_gap;                   // the largest base gap at which it does; 0 without flips
    int64_t flips_above;              // flips where the base's gap exceeds the bound
    double kl_mean, kl_error, kl_max; // kl_error: of the mean, rows taken as independent
    // Mean of -log p(next) of the side minus that of base, its standard error (likewise), and the
    // base's own mean: ppl = exp(mean).
    double nll_diff, nll_error, nll_base;
    // Greedy continuations without a penalty, a text each.
    int64_t texts, steps, forks, forks_above;
    float fork_gap;              // the largest base gap at a fork; 0 without forks
    int64_t fork_step;           // of the last fork that was added
    struct kiln_top2 at_fork[2]; // base and side there
};

struct kiln_tolerance_text {
    const int32_t *ids; // (n)
    int64_t n, n_more;  // n_more: tokens to go on with; the context holds n + n_more - 1
};

// gap: above it flips and forks count as such. A row that is not finite is KILN_STATUS_CHECK.
KILN_MUST_CHECK enum kiln_status kiln_tolerance_compare(struct kiln_twin *twin, enum kiln_side side,
        const struct kiln_tolerance_text *text, float gap, struct kiln_closeness *result,
        struct kiln_err *err);

// Adds what `more` has to `sum` (zeroed at first), as if they were one text.
void kiln_tolerance_add(struct kiln_closeness *sum, const struct kiln_closeness *more);

// How far the perplexity may be from the base's, in nats a token: the difference and two errors.
double kiln_tolerance_nll_reach(const struct kiln_closeness *c);

struct kiln_tolerance_bounds {
    double gap, noise, kl_mean, kl_max, nll; // INFINITY: not judged
};

enum kiln_tolerance_fault { // or-ed
    KILN_TOLERANCE_ARGMAX = 1,
    KILN_TOLERANCE_FORK = 2,
    KILN_TOLERANCE_LOGIT = 4,
    KILN_TOLERANCE_KL_MAX = 8,
    KILN_TOLERANCE_KL_MEAN = 16,
    KILN_TOLERANCE_PERPLEXITY = 32,
};

// What the control leaves a change, replaced by those of `by_hand` that are above 0. control: over
// all texts; zeroed: there is none. Where nothing bounds anything, all bounds are 0.
void kiln_tolerance_bound(struct kiln_tolerance_bounds *bounds,
        const struct kiln_closeness *control, double factor,
        const struct kiln_tolerance_bounds *by_hand);

// Which bounds are broken. A text is judged by what one row can break, all texts together by means.
unsigned kiln_tolerance_judge_text(
        const struct kiln_tolerance_bounds *bounds, const struct kiln_closeness *change);
unsigned kiln_tolerance_judge_all(
        const struct kiln_tolerance_bounds *bounds, const struct kiln_closeness *change);

#endif
