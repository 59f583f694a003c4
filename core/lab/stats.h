// stats: what the lab's verdicts are reckoned with: medians, bootstrap intervals, and the rule that
// turns paired differences into a verdict.
//
// Everything here is deterministic: a seed gives the same interval on every platform.
#ifndef KILN_LAB_STATS_H
#define KILN_LAB_STATS_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_interval {
    double low, high;
};

// The middle value (the mean of the two middle ones); 0 for n == 0. Reorders values.
double kiln_median(double *values, size_t n);

// The percentile-bootstrap interval of the median of values[0..n) at `level` (0.99): resamples are
// drawn with replacement. Source: B. Efron, "Bootstrap Methods: Another Look at the Jackknife",
// Annals of Statistics 7 (1979). One value gives an interval of no width, none gives 0..0.
KILN_MUST_CHECK enum kiln_status kiln_bootstrap_median(const double *values, size_t n, double level,
        uint64_t seed, struct kiln_interval *interval, struct kiln_err *err);

// The share of the error rate that look number `look` (1, 2, …) may spend, so that all looks
// together never spend more than `alpha`: alpha * 6 / (pi * look)^2, whose sum over all looks is
// alpha. Holds for any dependence between looks (union bound).
double kiln_alpha_of_look(double alpha, int64_t look);

enum kiln_verdict {
    KILN_VERDICT_NEUTRAL,
    KILN_VERDICT_LAND,
    KILN_VERDICT_REVERT,
};
const char *kiln_verdict_name(enum kiln_verdict verdict); // "LAND"

// What one look at the pairs says. All in percent, positive when the change is faster.
struct kiln_effect {
    double median;                 // of the differences
    struct kiln_interval interval; // of that median, widened by the noise (root of squares)
    double noise; // half the width of the control's interval, or its distance from 0 if larger
    struct kiln_interval control; // of the median of base against base
    int control_off;              // the control's interval does not hold 0: base differs from base
    enum kiln_verdict verdict;
};

// change[i], control[i]: difference of pair i of base and change, and of base and base. LAND when
// the interval's lower end is above 0 and the median reaches `bar`; REVERT when its upper end is
// below 0; NEUTRAL otherwise. When the control is off (base differs from base) a change is judged
// only if its median is five times the noise: less may be the machine's doing.
KILN_MUST_CHECK enum kiln_status kiln_judge(const double *change, const double *control, size_t n,
        double bar, double alpha, uint64_t seed, struct kiln_effect *effect, struct kiln_err *err);

#endif
