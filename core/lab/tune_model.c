// tune_model: the distance-weighted mean of the nearest candidates measured.
//
// Logarithms of times, so that a factor of two weighs alike at both ends. What it needs of a space
// is only that near candidates have near times; it never looks at what a parameter means.
#include "lab/tune_model.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    NEAREST = 6
};
static const double bonus = 0.05; // in logarithms, for a distance of 1 from all that was measured

struct promise {
    uint64_t candidate;
    double score; // lower is better
};

static double position(const struct kiln_tune_axis *axis, int64_t value) {
    uint32_t at = 0;
    while (at + 1 < axis->n && axis->values[at] != value) {
        at++;
    }
    return axis->n > 1 ? (double)at / (double)(axis->n - 1) : 0;
}

double kiln_tune_distance(const struct kiln_tune_space *space, uint64_t a, uint64_t b) {
    int64_t x[KILN_TUNE_PARAMS], y[KILN_TUNE_PARAMS];
    const struct kiln_tune_part *p = kiln_tune_space_at(space, a, x);
    const struct kiln_tune_part *q = kiln_tune_space_at(space, b, y);
    double sum = p->variant == q->variant ? 0 : 1;
    uint32_t shared = 0;
    for (uint32_t i = 0; i < p->n_axes; i++) {
        uint32_t j = 0;
        while (j < q->n_axes && strcmp(p->names[i], q->names[j]) != 0) {
            j++;
        }
        if (j < q->n_axes) {
            sum += fabs(position(&p->axes[i], x[i]) - position(&q->axes[j], y[j]));
            shared++;
        }
    }
    return sum + 0.5 * ((double)p->n_axes - shared) + 0.5 * ((double)q->n_axes - shared);
}

// The NEAREST of what was noted: ascending distances, and the logarithms of their times.
struct nearest {
    double distance[NEAREST], value[NEAREST];
    size_t n;
};

static void take(struct nearest *nearest, double distance, double value) {
    size_t at = nearest->n;
    while (at > 0 && nearest->distance[at - 1] > distance) {
        at--;
    }
    if (at == NEAREST) {
        return;
    }
    size_t kept = nearest->n < NEAREST ? nearest->n : NEAREST - 1;
    memmove(&nearest->distance[at + 1], &nearest->distance[at],
            (kept - at) * sizeof(nearest->distance[0]));
    memmove(&nearest->value[at + 1], &nearest->value[at], (kept - at) * sizeof(nearest->value[0]));
    nearest->distance[at] = distance;
    nearest->value[at] = value;
    nearest->n = kept + 1;
}

static double score_of(const struct nearest *nearest) {
    double sum = 0, weights = 0;
    for (size_t i = 0; i < nearest->n; i++) {
        double weight = 1 / (nearest->distance[i] * nearest->distance[i] + 1e-3);
        sum += weight * nearest->value[i];
        weights += weight;
    }
    return weights > 0 ? sum / weights - bonus * nearest->distance[0] : 0;
}

static int by_score(const void *a, const void *b) {
    const struct promise *x = a, *y = b;
    if (x->score < y->score || x->score > y->score) {
        return x->score < y->score ? -1 : 1;
    }
    return (x->candidate > y->candidate) - (x->candidate < y->candidate);
}

enum kiln_status kiln_tune_model_rank(const struct kiln_tune_space *space,
        const struct kiln_tune_noted *noted, size_t n_noted, uint64_t *candidates, size_t n,
        struct kiln_err *err) {
    struct promise *promises = kiln_calloc(n + 1, sizeof(*promises));
    double slowest = 0;
    if (!promises) {
        return kiln_err_nomem(err, "the model of a sweep");
    }
    for (size_t i = 0; i < n_noted; i++) {
        slowest = fmax(slowest, noted[i].seconds);
    }
    for (size_t i = 0; i < n; i++) {
        struct nearest nearest = {.n = 0};
        for (size_t j = 0; slowest > 0 && j < n_noted; j++) {
            double seconds = noted[j].seconds > 0 ? noted[j].seconds : 2 * slowest;
            take(&nearest, kiln_tune_distance(space, candidates[i], noted[j].candidate),
                    log(seconds));
        }
        promises[i] = (struct promise){candidates[i], score_of(&nearest)};
    }
    qsort(promises, n, sizeof(*promises), by_score);
    for (size_t i = 0; i < n; i++) {
        candidates[i] = promises[i].candidate;
    }
    kiln_free(promises);
    return KILN_STATUS_OK;
}
