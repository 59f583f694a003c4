// logits: rows compared.
#include "lab/logits.h"

#include <math.h>

struct kiln_top2 kiln_top2(const float *logits, int32_t n_vocab) {
    struct kiln_top2 top = {.id = 0, .second = 1, .finite = 1};
    if (logits[1] > logits[0]) {
        top.id = 1;
        top.second = 0;
    }
    for (int32_t i = 0; i < n_vocab; i++) {
        top.finite &= isfinite(logits[i]) != 0;
        if (i < 2) {
            continue;
        }
        if (logits[i] > logits[top.id]) {
            top.second = top.id;
            top.id = i;
        } else if (logits[i] > logits[top.second]) {
            top.second = i;
        }
    }
    top.gap = logits[top.id] - logits[top.second];
    return top;
}

// log of the sum of exp(logits - max).
static double log_sum(const float *logits, int32_t n_vocab, double max) {
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        sum += exp((double)logits[i] - max);
    }
    return log(sum);
}

void kiln_row_compare(const float *base, const float *change, int32_t n_vocab, int32_t next,
        struct kiln_row_diff *diff) {
    *diff = (struct kiln_row_diff){.top = {kiln_top2(base, n_vocab), kiln_top2(change, n_vocab)}};
    if (!diff->top[0].finite || !diff->top[1].finite) {
        return;
    }
    double max[2] = {(double)base[diff->top[0].id], (double)change[diff->top[1].id]};
    double norm[2] = {
            max[0] + log_sum(base, n_vocab, max[0]), max[1] + log_sum(change, n_vocab, max[1])};
    for (int32_t i = 0; i < n_vocab; i++) {
        double p = (double)base[i] - norm[0], q = (double)change[i] - norm[1];
        diff->kl += exp(p) * (p - q);
        diff->noise = fmaxf(diff->noise, fabsf(base[i] - change[i]));
    }
    diff->kl = fmax(diff->kl, 0); // rounding may leave it a hair below
    if (next >= 0) {
        diff->nll[0] = norm[0] - (double)base[next];
        diff->nll[1] = norm[1] - (double)change[next];
    }
}
