// sweep: reads the lists and walks through them.
#include "sweep.h"

enum {
    MOST_TOKENS = 1000000,
    MOST_UBATCH = 65536,
    LEAST_CTX = 16
};

static int64_t largest(const struct kiln_numbers *list) {
    int64_t max = 0;
    for (size_t i = 0; i < list->count; i++) {
        max = list->values[i] > max ? list->values[i] : max;
    }
    return max;
}

enum kiln_status kiln_sweep_read(struct kiln_sweep *sweep, const struct kiln_sweep_texts *texts,
        int64_t min_ubatch, struct kiln_err *err) {
    KILN_TRY(kiln_parse_list("-p", texts->prompts, 0, MOST_TOKENS, &sweep->prompts, err));
    KILN_TRY(kiln_parse_list("-n", texts->gens, 0, MOST_TOKENS, &sweep->gens, err));
    if (largest(&sweep->prompts) == 0 && largest(&sweep->gens) == 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "-p and -n are both 0, nothing is left to measure; give one of them tokens");
    }
    KILN_TRY(kiln_parse_list("-d", texts->depths, 0, MOST_TOKENS, &sweep->depths, err));
    return kiln_parse_list("-ub", texts->ubatches, min_ubatch, MOST_UBATCH, &sweep->ubatches, err);
}

int64_t kiln_sweep_ctx(const struct kiln_sweep *sweep) {
    int64_t prompt = largest(&sweep->prompts), gen = largest(&sweep->gens);
    int64_t ctx = largest(&sweep->depths) + (prompt > gen ? prompt : gen);
    return ctx < LEAST_CTX ? LEAST_CTX : ctx;
}

enum kiln_status kiln_sweep_each(
        const struct kiln_sweep *sweep, kiln_sweep_fn point, void *arg, struct kiln_err *err) {
    for (size_t d = 0; d < sweep->depths.count; d++) {
        int64_t depth = sweep->depths.values[d];
        for (size_t i = 0; i < sweep->prompts.count; i++) {
            struct kiln_workload load = {.n_prompt = sweep->prompts.values[i], .depth = depth};
            if (load.n_prompt > 0) {
                KILN_TRY(point(arg, &load, err));
            }
        }
        for (size_t i = 0; i < sweep->gens.count; i++) {
            struct kiln_workload load = {.n_gen = sweep->gens.values[i], .depth = depth};
            if (load.n_gen > 0) {
                KILN_TRY(point(arg, &load, err));
            }
        }
    }
    return KILN_STATUS_OK;
}
