// greedy: two engines in step until they part.
#include "lab/greedy.h"

#include "base/mem.h"

#include <string.h>

struct walk {
    struct kiln_twin *twin;
    enum kiln_side sides[2]; // the base, and what is held against it
    float *logits[2];        // (V) of both
    int32_t *ids;            // (prompt + n): what both are fed
    struct kiln_greedy *result;
};

static enum kiln_status eval_both(
        struct walk *walk, const int32_t *ids, int64_t n, struct kiln_err *err) {
    for (int i = 0; i < 2; i++) {
        struct kiln_engine *engine = walk->twin->engine[walk->sides[i]];
        if (i == 1 && walk->sides[1] == walk->sides[0]) { // the same engine: takes them back first
            kiln_engine_truncate(engine, kiln_engine_n_past(engine) - n);
        }
        enum kiln_status status = kiln_engine_eval(engine, ids, n, walk->logits[i], err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "%s: ", kiln_side_name(walk->sides[i]));
            return status;
        }
    }
    return KILN_STATUS_OK;
}

// Looks at the logits of one step; *id: the base's token.
static enum kiln_status compare_step(
        struct walk *walk, int64_t step, int32_t *id, struct kiln_err *err) {
    struct kiln_row_diff diff;
    struct kiln_greedy *result = walk->result;
    kiln_row_compare(
            walk->logits[0], walk->logits[1], walk->twin->model->params.n_vocab, -1, &diff);
    for (int side = 0; side < 2; side++) {
        if (!diff.top[side].finite) {
            return kiln_err_set(err, KILN_STATUS_CHECK,
                    "%s: the logits of step %lld are not finite numbers",
                    kiln_side_name(walk->sides[side]), (long long)step);
        }
    }
    result->steps = step + 1;
    result->path[step] = (struct kiln_greedy_step){.gap = diff.top[0].gap, .noise = diff.noise};
    if (result->exposed < 0 && diff.noise > 0 && diff.top[0].gap <= 2 * diff.noise) {
        result->exposed = step;
    }
    result->noise = diff.noise > result->noise ? diff.noise : result->noise;
    if (step == 0 || diff.top[0].gap < result->min_gap) {
        result->min_gap = diff.top[0].gap;
        result->min_step = step;
    }
    if (diff.top[0].id != diff.top[1].id) {
        result->fork = step;
        result->at_fork = diff;
    }
    *id = diff.top[0].id;
    return KILN_STATUS_OK;
}

static int is_full(const struct walk *walk) {
    for (int i = 0; i < 2; i++) {
        const struct kiln_engine *engine = walk->twin->engine[walk->sides[i]];
        if (kiln_engine_n_past(engine) >= kiln_engine_ctx(engine)) {
            return 1;
        }
    }
    return 0;
}

static enum kiln_status go(
        struct walk *walk, int64_t n_prompt, int64_t n, int64_t *fed, struct kiln_err *err) {
    int32_t *ids = walk->ids;
    KILN_TRY(eval_both(walk, ids, n_prompt, err));
    *fed = n_prompt;
    KILN_TRY(compare_step(walk, 0, &ids[n_prompt], err));
    for (int64_t step = 1; step < n && walk->result->fork < 0 && !is_full(walk); step++) {
        KILN_TRY(eval_both(walk, &ids[*fed], 1, err));
        *fed += 1;
        KILN_TRY(compare_step(walk, step, &ids[*fed], err));
    }
    return KILN_STATUS_OK;
}

// *fed: tokens that both hold in the end.
static enum kiln_status walk_all(struct walk *walk, const int32_t *ids, int64_t n_prompt, int64_t n,
        int64_t *fed, struct kiln_err *err) {
    memcpy(walk->ids, ids, (size_t)n_prompt * sizeof(*ids));
    for (int i = 0; i < 2; i++) {
        kiln_engine_truncate(walk->twin->engine[walk->sides[i]], 0);
    }
    return go(walk, n_prompt, n, fed, err);
}

static enum kiln_status follow(struct kiln_twin *twin, enum kiln_side side, int explain,
        const int32_t *ids, int64_t n_prompt, int64_t n, struct kiln_greedy *result,
        struct kiln_err *err) {
    *result = (struct kiln_greedy){.fork = -1, .exposed = -1};
    size_t n_vocab = (size_t)twin->model->params.n_vocab;
    struct walk walk = {.twin = twin, .sides = {KILN_SIDE_BASE, side}, .result = result};
    int64_t fed = 0;
    float *logits = kiln_alloc(2 * n_vocab * sizeof(*logits));
    walk.ids = kiln_alloc((size_t)(n_prompt + n + 1) * sizeof(*walk.ids));
    result->path = kiln_calloc((size_t)n, sizeof(*result->path));
    enum kiln_status status = KILN_STATUS_OK;
    if (logits && walk.ids && result->path) {
        walk.logits[0] = logits;
        walk.logits[1] = logits + n_vocab;
        status = walk_all(&walk, ids, n_prompt, n, &fed, err);
    } else {
        status = kiln_err_nomem(err, "two rows of logits");
    }
    if (status == KILN_STATUS_OK && explain && result->fork >= 0) {
        int64_t last = result->fork == 0 ? n_prompt : 1; // what was fed in the step that forked
        status = kiln_growth_measure(twin, walk.ids, fed, last, &result->growth, err);
    }
    kiln_free(walk.ids);
    kiln_free(logits);
    return status;
}

enum kiln_status kiln_greedy_compare(struct kiln_twin *twin, const int32_t *ids, int64_t n_prompt,
        int64_t n, struct kiln_greedy *result, struct kiln_err *err) {
    return follow(twin, KILN_SIDE_CHANGE, 1, ids, n_prompt, n, result, err);
}

enum kiln_status kiln_greedy_follow(struct kiln_twin *twin, enum kiln_side side, const int32_t *ids,
        int64_t n_prompt, int64_t n, struct kiln_greedy *result, struct kiln_err *err) {
    return follow(twin, side, 0, ids, n_prompt, n, result, err);
}

void kiln_greedy_finish(struct kiln_greedy *result) {
    kiln_free(result->path);
    kiln_growth_finish(&result->growth);
    *result = (struct kiln_greedy){0};
}

// ---- What is summed in another order ------------------------------------------------------------

// Whether one of text's lines is `line`, of len bytes.
static int has_line(const char *text, const char *line, size_t len) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (n == len && memcmp(text, line, len) == 0) {
            return 1;
        }
        text += n + (text[n] != 0);
    }
    return 0;
}

// Appends the lines of `ours` that `theirs` does not have, each behind `mark`, once.
static void own_lines(
        const char *ours, const char *theirs, const char *mark, struct kiln_buf *text) {
    while (*ours) {
        size_t n = strcspn(ours, "\n");
        char *line = kiln_asprintf("%s%.*s", mark, (int)n, ours);
        text->failed |= !line;
        if (line && !has_line(theirs, ours, n) &&
                !has_line(text->data ? text->data : "", line, strlen(line))) {
            kiln_buf_printf(text, "%s\n", line);
        }
        kiln_free(line);
        ours += n + (ours[n] != 0);
    }
}

enum kiln_status kiln_regrouped(
        struct kiln_twin *twin, int64_t rows, struct kiln_buf *text, struct kiln_err *err) {
    int64_t counts[2] = {rows, 1};
    enum kiln_status status = KILN_STATUS_OK;
    for (int i = 0; status == KILN_STATUS_OK && i < 2; i++) {
        struct kiln_buf sums[2] = {{0}, {0}};
        for (int side = 0; status == KILN_STATUS_OK && side < 2; side++) {
            status = kiln_engine_sums(twin->engine[side], counts[i], &sums[side], err);
        }
        if (status == KILN_STATUS_OK && (sums[0].failed || sums[1].failed)) {
            status = kiln_err_nomem(err, "the orders of sums");
        }
        if (status == KILN_STATUS_OK) {
            const char *base = sums[0].data ? sums[0].data : "";
            const char *change = sums[1].data ? sums[1].data : "";
            own_lines(base, change, "  base    ", text);
            own_lines(change, base, "  change  ", text);
        }
        kiln_buf_finish(&sums[0]);
        kiln_buf_finish(&sums[1]);
    }
    if (status == KILN_STATUS_OK && text->failed) {
        status = kiln_err_nomem(err, "the orders of sums");
    }
    return status;
}
