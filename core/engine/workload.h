// workload: a prefill or a decode whose time is taken: which tokens, behind how many others, and
// the run itself. What bench, A/B and the wall have in common.
//
// The tokens in the context before are fed once and stay in the cache from run to run.
#ifndef KILN_ENGINE_WORKLOAD_H
#define KILN_ENGINE_WORKLOAD_H

#include "engine/engine.h"

struct kiln_workload {
    int64_t n_prompt, n_gen; // one of them: tokens of a prefill, or of a decode one by one
    int64_t depth;           // tokens in the context before
};

int64_t kiln_workload_tokens(const struct kiln_workload *load); // those whose time is taken
// "pp512", "tg128 @ d2048", as llama-bench names its tests; cut to size.
void kiln_workload_name(const struct kiln_workload *load, char *name, size_t size);

struct kiln_workload_run {
    struct kiln_workload load;
    int32_t *
            ids; // (depth + tokens): any tokens of the vocabulary; which ones is no matter of time.
                 // Where the device picks, a decode is fed the first and then what was picked.
    int32_t last;         // of those fed
    struct kiln_dev *dev; // whose memory logits is
    float *logits;        // (V)
    int32_t n_vocab;      // V
};

// The caller ends *run with kiln_workload_close, also after a failure, before it closes the device.
KILN_MUST_CHECK enum kiln_status kiln_workload_open(struct kiln_workload_run *run,
        const struct kiln_workload *load, struct kiln_dev *dev, int32_t n_vocab,
        struct kiln_err *err);
void kiln_workload_close(struct kiln_workload_run *run);

// Fills the context up to the depth and runs once, so that compiles, caches and clocks are warm.
// More tokens than the context holds is KILN_STATUS_USAGE, before anything runs. Logits that are
// NaN are warned of, since their time is that of a model that computes nothing; who: whose, for
// that, or NULL.
KILN_MUST_CHECK enum kiln_status kiln_workload_warm(struct kiln_workload_run *run,
        struct kiln_engine *engine, const char *who, struct kiln_err *err);
// One run behind the depth, which kiln_workload_warm has filled. *seconds: the host's clock from
// handing over the tokens to the device having finished.
KILN_MUST_CHECK enum kiln_status kiln_workload_time(struct kiln_workload_run *run,
        struct kiln_engine *engine, double *seconds, struct kiln_err *err);

#endif
