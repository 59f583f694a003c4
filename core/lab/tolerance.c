// tolerance: rows of logits of two engines over one text, what goes on from it, and the verdict.
#include "lab/tolerance.h"

#include "base/mem.h"
#include "lab/greedy.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    MAX_ROWS = 512 // of logits held at a time
};

struct comparison {
    struct kiln_twin *twin;
    const int32_t *ids;
    int64_t n, n_vocab;
    int64_t chunk;       // tokens fed at a time: a prefill chunk, at most MAX_ROWS
    float *base, *other; // (chunk, V)
    struct kiln_row_diff diffs[MAX_ROWS];
};

// Sums of squares, for the errors of means.
struct squares {
    double nll, kl;
};

struct sink {
    float *rows;
    int64_t n_vocab, filled;
};

static enum kiln_status take(
        void *arg, int64_t at, int64_t n, const float *logits, struct kiln_err *err) {
    (void)err;
    struct sink *sink = arg;
    memcpy(sink->rows + at * sink->n_vocab, logits,
            (size_t)(n * sink->n_vocab) * sizeof(*sink->rows));
    sink->filled += n;
    return KILN_STATUS_OK;
}

// Rows [at, at + n) of what `side` makes of the text, into the sink.
static enum kiln_status read_rows(struct comparison *c, enum kiln_side side, int64_t at, int64_t n,
        struct sink sink, struct kiln_err *err) {
    struct kiln_engine *engine = c->twin->engine[side];
    kiln_engine_truncate(engine, at);
    enum kiln_status status = kiln_engine_eval_all(engine, c->ids + at, n, 0, take, &sink, err);
    if (status != KILN_STATUS_OK) {
        kiln_err_prefix(err, "%s: ", kiln_side_name(side));
    }
    return status;
}

struct slice {
    struct comparison *c;
    int64_t at;
};

static void compare_row(void *arg, uint32_t index, uint32_t worker) {
    (void)worker;
    struct slice *slice = arg;
    struct comparison *c = slice->c;
    int64_t row = slice->at + index;
    int32_t next = row + 1 < c->n ? c->ids[row + 1] : -1;
    kiln_row_compare(c->base + index * c->n_vocab, c->other + index * c->n_vocab,
            (int32_t)c->n_vocab, next, &c->diffs[index]);
}

static enum kiln_status add_rows(struct comparison *c, int64_t at, int64_t n, float bound,
        struct kiln_closeness *sum, struct squares *squares, struct kiln_err *err) {
    struct slice slice = {.c = c, .at = at};
    kiln_pool_run(c->twin->dev->pool, compare_row, &slice, (uint32_t)n);
    for (int64_t i = 0; i < n; i++) { // in order: the same sums for any number of threads
        const struct kiln_row_diff *d = &c->diffs[i];
        if (!d->top[0].finite || !d->top[1].finite) {
            return kiln_err_set(err, KILN_STATUS_CHECK,
                    "the logits at token %" PRId64 " are not finite numbers", at + i);
        }
        sum->noise = fmaxf(sum->noise, d->noise);
        sum->kl_mean += d->kl;
        squares->kl += d->kl * d->kl;
        sum->kl_max = fmax(sum->kl_max, d->kl);
        if (d->top[0].id != d->top[1].id) {
            sum->flips++;
            sum->flip_gap = fmaxf(sum->flip_gap, d->top[0].gap);
            sum->flips_above += d->top[0].gap > bound;
        }
        if (at + i + 1 < c->n) {
            double delta = d->nll[1] - d->nll[0];
            sum->nll_diff += delta;
            sum->nll_base += d->nll[0];
            squares->nll += delta * delta;
            sum->scored++;
        }
        sum->rows++;
    }
    return KILN_STATUS_OK;
}

// The standard error of a mean of n values.
static double error_of(double mean, double squares, double n) {
    double variance = n > 1 ? squares / n - mean * mean : 0;
    return variance > 0 ? sqrt(variance / (n - 1)) : 0;
}

// Sums become means.
static void conclude(struct kiln_closeness *sum, const struct squares *squares) {
    double rows = (double)sum->rows, n = (double)sum->scored;
    sum->kl_mean /= rows > 0 ? rows : 1;
    sum->kl_error = error_of(sum->kl_mean, squares->kl, rows);
    sum->nll_diff /= n > 0 ? n : 1;
    sum->nll_base /= n > 0 ? n : 1;
    sum->nll_error = error_of(sum->nll_diff, squares->nll, n);
}

// `side` against the base over the whole text.
static enum kiln_status compare(struct comparison *c, enum kiln_side side, float gap,
        struct kiln_closeness *sum, struct kiln_err *err) {
    struct squares squares = {0};
    struct sink base = {.rows = c->base, .n_vocab = c->n_vocab};
    struct sink other = {.rows = c->other, .n_vocab = c->n_vocab};
    for (int64_t at = 0; at < c->n; at += c->chunk) {
        int64_t n = c->n - at < c->chunk ? c->n - at : c->chunk;
        KILN_TRY(read_rows(c, KILN_SIDE_BASE, at, n, base, err));
        KILN_TRY(read_rows(c, side, at, n, other, err));
        KILN_TRY(add_rows(c, at, n, gap, sum, &squares, err));
    }
    conclude(sum, &squares);
    return KILN_STATUS_OK;
}

static enum kiln_status go_on(struct kiln_twin *twin, enum kiln_side side,
        const struct kiln_tolerance_text *text, float gap, struct kiln_closeness *sum,
        struct kiln_err *err) {
    struct kiln_greedy greedy;
    enum kiln_status status =
            kiln_greedy_follow(twin, side, text->ids, text->n, text->n_more, &greedy, err);
    sum->texts = 1;
    sum->steps = greedy.steps;
    sum->noise = fmaxf(sum->noise, greedy.noise);
    if (greedy.fork >= 0) {
        sum->forks = 1;
        sum->fork_step = greedy.fork;
        sum->at_fork[0] = greedy.at_fork.top[0];
        sum->at_fork[1] = greedy.at_fork.top[1];
        sum->fork_gap = greedy.at_fork.top[0].gap;
        sum->forks_above = sum->fork_gap > gap;
    }
    kiln_greedy_finish(&greedy);
    return status;
}

static enum kiln_status compare_rows(struct comparison *c, enum kiln_side side, float gap,
        struct kiln_closeness *result, struct kiln_err *err) {
    c->chunk = kiln_engine_ubatch(c->twin->engine[KILN_SIDE_BASE]);
    c->chunk = c->chunk < MAX_ROWS ? c->chunk : MAX_ROWS;
    c->chunk = c->chunk < c->n ? c->chunk : c->n;
    size_t bytes = (size_t)c->chunk * (size_t)c->n_vocab * sizeof(float);
    c->base = kiln_alloc(bytes);
    c->other = kiln_alloc(bytes);
    enum kiln_status status = c->base && c->other ? compare(c, side, gap, result, err)
                                                  : kiln_err_nomem(err, "rows of logits");
    kiln_free(c->base);
    kiln_free(c->other);
    return status;
}

enum kiln_status kiln_tolerance_compare(struct kiln_twin *twin, enum kiln_side side,
        const struct kiln_tolerance_text *text, float gap, struct kiln_closeness *result,
        struct kiln_err *err) {
    *result = (struct kiln_closeness){0};
    struct comparison *c = kiln_calloc(1, sizeof(*c));
    if (!c) {
        return kiln_err_nomem(err, "a comparison");
    }
    *c = (struct comparison){
            .twin = twin, .ids = text->ids, .n = text->n, .n_vocab = twin->model->params.n_vocab};
    enum kiln_status status = compare_rows(c, side, gap, result, err);
    kiln_free(c);
    return status == KILN_STATUS_OK ? go_on(twin, side, text, gap, result, err) : status;
}

static double mix(double a, int64_t n, double b, int64_t m) {
    return n + m > 0 ? (a * (double)n + b * (double)m) / (double)(n + m) : 0;
}

// The error of a mean of independent parts: each part's, weighted by its share.
static double mix_errors(double a, int64_t n, double b, int64_t m) {
    return n + m > 0 ? hypot(a * (double)n, b * (double)m) / (double)(n + m) : 0;
}

void kiln_tolerance_add(struct kiln_closeness *sum, const struct kiln_closeness *more) {
    sum->nll_error = mix_errors(sum->nll_error, sum->scored, more->nll_error, more->scored);
    sum->nll_diff = mix(sum->nll_diff, sum->scored, more->nll_diff, more->scored);
    sum->nll_base = mix(sum->nll_base, sum->scored, more->nll_base, more->scored);
    sum->kl_error = mix_errors(sum->kl_error, sum->rows, more->kl_error, more->rows);
    sum->kl_mean = mix(sum->kl_mean, sum->rows, more->kl_mean, more->rows);
    sum->kl_max = fmax(sum->kl_max, more->kl_max);
    sum->noise = fmaxf(sum->noise, more->noise);
    sum->flip_gap = fmaxf(sum->flip_gap, more->flip_gap);
    sum->flips += more->flips;
    sum->flips_above += more->flips_above;
    sum->rows += more->rows;
    sum->scored += more->scored;
    sum->texts += more->texts;
    sum->steps += more->steps;
    sum->forks += more->forks;
    sum->forks_above += more->forks_above;
    sum->fork_gap = fmaxf(sum->fork_gap, more->fork_gap);
    if (more->forks > 0) {
        sum->fork_step = more->fork_step;
        memcpy(sum->at_fork, more->at_fork, sizeof(sum->at_fork));
    }
}

// ---- Verdict ------------------------------------------------------------------------------------

double kiln_tolerance_nll_reach(const struct kiln_closeness *c) {
    return fabs(c->nll_diff) + 2 * c->nll_error;
}

static double first_of(double by_hand, double control) {
    return by_hand > 0 ? by_hand : control;
}

void kiln_tolerance_bound(struct kiln_tolerance_bounds *bounds,
        const struct kiln_closeness *control, double factor,
        const struct kiln_tolerance_bounds *by_hand) {
    const struct kiln_tolerance_bounds *hand = by_hand;
    int any = hand->gap > 0 || hand->noise > 0 || hand->kl_mean > 0 || hand->kl_max > 0 ||
              hand->nll > 0;
    double none = any ? (double)INFINITY : 0, square = factor * factor;
    struct kiln_tolerance_bounds own = {none, none, none, none, none};
    if (control->noise > 0) {
        own.gap = own.noise = factor * (double)control->noise;
        own.kl_mean = square * control->kl_mean;
        own.kl_max = square * control->kl_max;
        own.nll = factor * kiln_tolerance_nll_reach(control);
    }
    bounds->gap = first_of(hand->gap, own.gap);
    bounds->noise = first_of(hand->noise, own.noise);
    bounds->kl_mean = first_of(hand->kl_mean, own.kl_mean);
    bounds->kl_max = first_of(hand->kl_max, own.kl_max);
    bounds->nll = first_of(hand->nll, own.nll);
}

// NaN breaks a bound.
static unsigned breaks(double value, double bound, unsigned fault) {
    return value <= bound ? 0 : fault;
}

unsigned kiln_tolerance_judge_text(
        const struct kiln_tolerance_bounds *bounds, const struct kiln_closeness *change) {
    return breaks((double)change->flip_gap, bounds->gap, KILN_TOLERANCE_ARGMAX) |
           breaks((double)change->fork_gap, bounds->gap, KILN_TOLERANCE_FORK) |
           breaks((double)change->noise, bounds->noise, KILN_TOLERANCE_LOGIT) |
           breaks(change->kl_max, bounds->kl_max, KILN_TOLERANCE_KL_MAX);
}

unsigned kiln_tolerance_judge_all(
        const struct kiln_tolerance_bounds *bounds, const struct kiln_closeness *change) {
    return breaks(change->kl_mean, bounds->kl_mean, KILN_TOLERANCE_KL_MEAN) |
           breaks(kiln_tolerance_nll_reach(change), bounds->nll, KILN_TOLERANCE_PERPLEXITY);
}
