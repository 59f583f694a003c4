// logits: one row of logits against another: who wins, by how much, how far the two are apart.
#ifndef KILN_LAB_LOGITS_H
#define KILN_LAB_LOGITS_H

#include <stdint.h>

struct kiln_top2 {
    int32_t id, second; // the largest logit (the lowest id of equals) and the next
    float gap;          // between them
    int finite;         // 0: a logit is not a number or infinite; nothing else holds then
};

// logits: (V), V at least 2.
struct kiln_top2 kiln_top2(const float *logits, int32_t n_vocab);

struct kiln_row_diff {
    struct kiln_top2 top[2]; // of base and change
    float noise;             // largest difference of a logit
    double kl;               // KL divergence of change from base, nats, at temperature 1
    double nll[2];           // -log p(next) of base and change; 0 when there is no next token
};

// base, change: (V) of the same prefix. next: the id that follows in the text, or -1.
void kiln_row_compare(const float *base, const float *change, int32_t n_vocab, int32_t next,
        struct kiln_row_diff *diff);

#endif
