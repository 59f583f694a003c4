// sweep: what bench and ab walk through: lists of prefills, decodes, depths and micro-batches.
#ifndef KILN_TOOLS_SWEEP_H
#define KILN_TOOLS_SWEEP_H

#include "common.h"

#include "engine/workload.h"

// As given: "512,3325".
struct kiln_sweep_texts {
    const char *prompts, *gens, *depths, *ubatches;
};
// Rows of a command's option table; what each is by default stands in its help.
#define KILN_SWEEP_OPTIONS(t, prompt, gen, ubatch) \
    {"-p", NULL, KILN_OPT_STRING, &(t)->prompts, "N[,N]", \
            "prefill of N tokens (" prompt "); 0: none", 0, 0}, \
            {"-n", NULL, KILN_OPT_STRING, &(t)->gens, "N[,N]", \
                    "decode of N tokens (" gen "); 0: none", 0, 0}, \
            {"-d", NULL, KILN_OPT_STRING, &(t)->depths, "D[,D]", \
                    "tokens in the context before (0)", 0, 0}, \
    { \
        "-ub", "--ubatch", KILN_OPT_STRING, &(t)->ubatches, "N[,N]", \
                "tokens of a prefill chunk (" ubatch ")", 0, 0 \
    }

struct kiln_sweep {
    struct kiln_numbers prompts, gens, depths, ubatches;
};

// min_ubatch 0: 0 leaves it to the config.
KILN_MUST_CHECK enum kiln_status kiln_sweep_read(struct kiln_sweep *sweep,
        const struct kiln_sweep_texts *texts, int64_t min_ubatch, struct kiln_err *err);
// The context that every point fits into, at least what kiln allows.
int64_t kiln_sweep_ctx(const struct kiln_sweep *sweep);
// Every prefill and decode at every depth; those of 0 tokens are left out. A status other than OK
// ends the walk.
typedef enum kiln_status (*kiln_sweep_fn)(
        void *arg, const struct kiln_workload *load, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_sweep_each(
        const struct kiln_sweep *sweep, kiln_sweep_fn point, void *arg, struct kiln_err *err);

#endif
