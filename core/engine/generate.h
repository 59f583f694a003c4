// generate: the loop from a prompt to sampled tokens.
#ifndef KILN_ENGINE_GENERATE_H
#define KILN_ENGINE_GENERATE_H

#include "engine/sampler.h"
#include "engine/session.h"

struct kiln_generate_params {
    int64_t n;      // tokens at most
    int ignore_end; // go on past an end token, which is output like any other
    // Called with each token as it comes; a status other than OK ends the loop with it. Or NULL.
    enum kiln_status (*token)(void *arg, int32_t id, struct kiln_err *err);
    void *arg;
};

enum kiln_generate_end {
    KILN_END_LENGTH,  // n tokens
    KILN_END_TOKEN,   // an end token (not among the ids)
    KILN_END_CONTEXT, // the context is full
};

struct kiln_generated {
    struct kiln_ids ids; // the caller ends it with kiln_ids_finish, also after a failure
    enum kiln_generate_end end;
    double prompt_seconds, decode_seconds;
    int64_t decode_steps; // evaluations behind decode_seconds
};

// Feeds prompt[0..n_prompt) behind what the engine holds, then samples. The last token sampled is
// fed only when another one follows it. n_prompt must be at least 1. *out is zeroed first.
KILN_MUST_CHECK enum kiln_status kiln_generate(struct kiln_session *session,
        struct kiln_sampler *sampler, const int32_t *prompt, int64_t n_prompt,
        const struct kiln_generate_params *params, struct kiln_generated *out,
        struct kiln_err *err);

#endif
