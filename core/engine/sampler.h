// sampler: the next token from the logits.
//
// The filters run in this order, each on what the one before left:
//   1. repeat penalty   logits of recently accepted ids: divided by it when positive, else
//      multiplied
//   2. greedy           the largest logit, the lowest id of equals; nothing below applies
//   3. top-k            the k largest
//   4. top-p            the fewest of them, largest first, whose probabilities reach p of the sum
//   5. min-p            those at least min_p times as probable as the best
//   6. temperature      and one draw from what is left
// Probabilities in 4 and 5 are those at temperature 1.
//
// A seed gives the same ids on every platform: the generator (xoshiro256**) and the exponential are
// the sampler's own. Not thread-safe: one sampler a sequence.
#ifndef KILN_ENGINE_SAMPLER_H
#define KILN_ENGINE_SAMPLER_H

#include "base/status.h"

#include <stdint.h>

struct kiln_sampler_params {
    int greedy;           // also meant by temp == 0
    float temp;           // >= 0
    int top_k;            // <= 0: all
    float top_p;          // in (0, 1]; 1: all
    float min_p;          // in [0, 1]; 0: all
    float repeat_penalty; // > 0; 1: none
    int repeat_last_n;    // how many accepted ids count as recent; 0: none, at most 1000000
    uint64_t seed;
};

// temp 0.8, top-k 40, top-p 0.95, min-p 0.05, no repeat penalty (over 64 ids when set), seed 0.
struct kiln_sampler_params kiln_sampler_defaults(void);

struct kiln_sampler;

// KILN_STATUS_USAGE names the parameter out of its range.
KILN_MUST_CHECK enum kiln_status kiln_sampler_create(struct kiln_sampler **sampler,
        const struct kiln_sampler_params *params, struct kiln_err *err);
void kiln_sampler_destroy(struct kiln_sampler *sampler); // NULL is fine

// Picks *id in [0, n_vocab) from logits // (n_vocab). A logit that is not a number never wins; when
// no logit is finite, or one is +infinity, it is KILN_STATUS_CHECK: the logits are not numbers.
KILN_MUST_CHECK enum kiln_status kiln_sampler_sample(struct kiln_sampler *sampler,
        const float *logits, int32_t n_vocab, int32_t *id, struct kiln_err *err);

// Whether the pick is always the largest logit, whatever was accepted before: then whoever has the
// logits may pick, and the sampler need not see them.
int kiln_sampler_is_plain(const struct kiln_sampler *sampler);

// Tells the sampler of an id that is now part of the text (of the prompt or sampled).
void kiln_sampler_accept(struct kiln_sampler *sampler, int32_t id);

#endif
