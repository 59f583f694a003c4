// stats: medians, bootstrap intervals, verdicts.
#include "lab/stats.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    RESAMPLES = 4000
};

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle(const double *sorted, size_t n) {
    return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

double kiln_median(double *values, size_t n) {
    if (n == 0) {
        return 0; // qsort must not be given NULL
    }
    qsort(values, n, sizeof(*values), ascending);
    return middle(values, n);
}

// splitmix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators").
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// The value of which the share `p` of sorted[0..n) is no larger.
static double quantile(const double *sorted, size_t n, double p) {
    double at = p * (double)(n - 1);
    size_t low = (size_t)at;
    if (low + 1 >= n) {
        return sorted[n - 1];
    }
    return sorted[low] + (at - (double)low) * (sorted[low + 1] - sorted[low]);
}

enum kiln_status kiln_bootstrap_median(const double *values, size_t n, double level, uint64_t seed,
        struct kiln_interval *interval, struct kiln_err *err) {
    *interval = (struct kiln_interval){0, 0};
    if (n == 0) {
        return KILN_STATUS_OK;
    }
    double *medians = kiln_alloc((RESAMPLES + n) * sizeof(*medians));
    if (!medians) {
        return kiln_err_nomem(err, "the resamples of an interval");
    }
    double *sample = medians + RESAMPLES;
    uint64_t state = seed;
    for (size_t r = 0; r < RESAMPLES; r++) {
        for (size_t i = 0; i < n; i++) {
            sample[i] = values[next_random(&state) % n];
        }
        medians[r] = kiln_median(sample, n);
    }
    qsort(medians, RESAMPLES, sizeof(*medians), ascending);
    double tail = 0.5 * (1 - level);
    interval->low = quantile(medians, RESAMPLES, tail);
    interval->high = quantile(medians, RESAMPLES, 1 - tail);
    kiln_free(medians);
    return KILN_STATUS_OK;
}

double kiln_alpha_of_look(double alpha, int64_t look) {
    const double pi = 3.14159265358979323846;
    return alpha * 6 / (pi * pi * (double)look * (double)look);
}

const char *kiln_verdict_name(enum kiln_verdict verdict) {
    switch (verdict) {
    case KILN_VERDICT_LAND:
        return "LAND";
    case KILN_VERDICT_REVERT:
        return "REVERT";
    case KILN_VERDICT_NEUTRAL:
        break;
    }
    return "NEUTRAL";
}

// A base that differs from itself is drift of unknown shape: the noise measures its size, and only
// what is several times that size cannot be its doing.
static const double beyond_drift = 5;

static enum kiln_verdict verdict_of(const struct kiln_effect *effect, double bar) {
    if (effect->control_off && fabs(effect->median) < beyond_drift * effect->noise) {
        return KILN_VERDICT_NEUTRAL;
    }
    if (effect->interval.low > 0 && effect->median >= bar) {
        return KILN_VERDICT_LAND;
    }
    return effect->interval.high < 0 ? KILN_VERDICT_REVERT : KILN_VERDICT_NEUTRAL;
}

enum kiln_status kiln_judge(const double *change, const double *control, size_t n, double bar,
        double alpha, uint64_t seed, struct kiln_effect *effect, struct kiln_err *err) {
    *effect = (struct kiln_effect){0};
    double *copy = kiln_alloc((n > 0 ? n : 1) * sizeof(*copy));
    if (!copy) {
        return kiln_err_nomem(err, "the pairs of a comparison");
    }
    memcpy(copy, change, n * sizeof(*copy));
    effect->median = kiln_median(copy, n);
    kiln_free(copy);
    KILN_TRY(kiln_bootstrap_median(change, n, 1 - alpha, seed, &effect->interval, err));
    KILN_TRY(kiln_bootstrap_median(control, n, 1 - alpha, seed + 1, &effect->control, err));
    double width = 0.5 * (effect->control.high - effect->control.low);
    double off = fmax(effect->control.low, -effect->control.high); // distance of the interval to 0
    effect->control_off = off > 0;
    effect->noise = fmax(width, off);
    effect->interval.low =
            effect->median - hypot(effect->median - effect->interval.low, effect->noise);
    effect->interval.high =
            effect->median + hypot(effect->interval.high - effect->median, effect->noise);
    effect->verdict = verdict_of(effect, bar);
    return KILN_STATUS_OK;
}
