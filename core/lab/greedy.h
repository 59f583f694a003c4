// greedy: do base and change go on with the same tokens? If not, where do they fork, how close was
// it there, and how large is the difference of the logits that made it.
//
// Both continue a prompt greedily, fed the same tokens as long as they agree, so that at a fork
// both rows of logits belong to the same text and can be compared.
#ifndef KILN_LAB_GREEDY_H
#define KILN_LAB_GREEDY_H

#include "lab/growth.h"
#include "lab/logits.h"
#include "lab/twin.h"

struct kiln_greedy_step {
    float gap;   // of the base's two best logits
    float noise; // largest difference of a logit
};

struct kiln_greedy {
    int64_t steps; // compared, the fork's included
    int64_t fork;  // step (0: the first token after the prompt) at which they differ; -1: identical
    struct kiln_row_diff at_fork;
    float min_gap;    // the smallest top-2 gap of the base on the way: the closest call
    int64_t min_step; // where that was
    float noise;      // the largest difference of a logit on the way
    struct kiln_greedy_step *path; // (steps)
    int64_t exposed; // the first step whose noise could flip it: gap <= 2 * noise; -1: none
    struct kiln_growth growth; // of the step that forked; empty where it is identical
};

// Continues ids[0..n_prompt) by up to n tokens, fewer where a context ends. A row of logits that
// are not finite is KILN_STATUS_CHECK and says on which side. The caller ends *result with
// kiln_greedy_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_greedy_compare(struct kiln_twin *twin, const int32_t *ids,
        int64_t n_prompt, int64_t n, struct kiln_greedy *result, struct kiln_err *err);
// The same of any side against the base, the base itself included, which is then run twice; a fork
// is not explained: growth stays empty.
KILN_MUST_CHECK enum kiln_status kiln_greedy_follow(struct kiln_twin *twin, enum kiln_side side,
        const int32_t *ids, int64_t n_prompt, int64_t n, struct kiln_greedy *result,
        struct kiln_err *err);
void kiln_greedy_finish(struct kiln_greedy *result); // a zeroed one is fine

// Appends which orders of float sums, or type of the KV cache, one side has and the other has not
// (kiln_engine_sums), a line each: "  base    attention.prefill fa:tkv32"; nothing when they are
// the same, so that identity can be expected. rows: of a prefill chunk.
KILN_MUST_CHECK enum kiln_status kiln_regrouped(
        struct kiln_twin *twin, int64_t rows, struct kiln_buf *text, struct kiln_err *err);

#endif
