// perplexity: how well a model predicts a text, by the protocol of llama.cpp's tool of that name.
//
// The text's ids are cut into chunks of `ctx` that do not overlap; the first id of each is replaced
// by begin-of-text where the model adds one; each chunk is evaluated from an empty cache, and its
// ids at places ctx/2 + 1 … ctx - 1 are scored. P = exp(mean negative log-likelihood), E its
// standard error times P.
#ifndef KILN_ENGINE_PERPLEXITY_H
#define KILN_ENGINE_PERPLEXITY_H

#include "engine/session.h"

struct kiln_perplexity {
    double ppl, error;
    int64_t scored; // tokens
    int64_t chunks;
};

// Called after each chunk with the value so far; or NULL.
typedef void (*kiln_perplexity_fn)(void *arg, int64_t chunk, int64_t chunks, double ppl);

// chunks: at most so many, 0: all. A text too short for one chunk is KILN_STATUS_USAGE and says how
// many tokens it has.
KILN_MUST_CHECK enum kiln_status kiln_perplexity(struct kiln_session *session, const int32_t *ids,
        int64_t n_ids, int64_t ctx, int64_t chunks, kiln_perplexity_fn progress, void *arg,
        struct kiln_perplexity *result, struct kiln_err *err);

#endif
