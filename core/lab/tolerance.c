// tolerance: rows of logits of three engines over one text.
#include "lab/tolerance.h"

#include "base/mem.h"

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
        struct kiln_closeness *sum, double *squares, struct kiln_err *err) {
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
            *squares += delta * delta;
            sum->scored++;
        }
        sum->rows++;
    }
    return KILN_STATUS_OK;
}

// Sums become means.
static void conclude(struct kiln_closeness *sum, double squares) {
    double n = (double)sum->scored;
    sum->kl_mean /= sum->rows > 0 ? (double)sum->rows : 1;
    if (sum->scored == 0) {
        return;
    }
    sum->nll_diff /= n;
    sum->nll_base /= n;
    double variance = squares / n - sum->nll_diff * sum->nll_diff;
    sum->nll_error = n > 1 && variance > 0 ? sqrt(variance / (n - 1)) : 0;
}

// `side` against the base over the whole text.
static enum kiln_status compare(struct comparison *c, enum kiln_side side, float bound,
        struct kiln_closeness *sum, struct kiln_err *err) {
    double squares = 0;
    struct sink base = {.rows = c->base, .n_vocab = c->n_vocab};
    struct sink other = {.rows = c->other, .n_vocab = c->n_vocab};
    for (int64_t at = 0; at < c->n; at += c->chunk) {
        int64_t n = c->n - at < c->chunk ? c->n - at : c->chunk;
        KILN_TRY(read_rows(c, KILN_SIDE_BASE, at, n, base, err));
        KILN_TRY(read_rows(c, side, at, n, other, err));
        KILN_TRY(add_rows(c, at, n, bound, sum, &squares, err));
    }
    conclude(sum, squares);
    return KILN_STATUS_OK;
}

static enum kiln_status compare_all(
        struct comparison *c, float bound, struct kiln_tolerance *result, struct kiln_err *err) {
    KILN_TRY(compare(c, KILN_SIDE_BASE, 0, &result->self, err));
    result->bound = bound;
    if (c->twin->engine[KILN_SIDE_CONTROL]) {
        KILN_TRY(compare(c, KILN_SIDE_CONTROL, INFINITY, &result->control, err));
        result->bound = bound > 0 ? bound : 2 * result->control.noise;
    }
    return compare(c, KILN_SIDE_CHANGE, result->bound, &result->change, err);
}

enum kiln_status kiln_tolerance_compare(struct kiln_twin *twin, const int32_t *ids, int64_t n,
        float bound, struct kiln_tolerance *result, struct kiln_err *err) {
    *result = (struct kiln_tolerance){0};
    struct comparison *c = kiln_calloc(1, sizeof(*c));
    if (!c) {
        return kiln_err_nomem(err, "a comparison");
    }
    *c = (struct comparison){
            .twin = twin, .ids = ids, .n = n, .n_vocab = twin->model->params.n_vocab};
    c->chunk = kiln_engine_ubatch(twin->engine[KILN_SIDE_BASE]);
    c->chunk = c->chunk < MAX_ROWS ? c->chunk : MAX_ROWS;
    c->chunk = c->chunk < n ? c->chunk : n;
    size_t bytes = (size_t)c->chunk * (size_t)c->n_vocab * sizeof(float);
    c->base = kiln_alloc(bytes);
    c->other = kiln_alloc(bytes);
    enum kiln_status status = c->base && c->other ? compare_all(c, bound, result, err)
                                                  : kiln_err_nomem(err, "rows of logits");
    kiln_free(c->base);
    kiln_free(c->other);
    kiln_free(c);
    return status;
}

static double mix(double a, int64_t n, double b, int64_t m) {
    return n + m > 0 ? (a * (double)n + b * (double)m) / (double)(n + m) : 0;
}

static void add(struct kiln_closeness *sum, const struct kiln_closeness *more) {
    double n = (double)sum->scored, m = (double)more->scored;
    // The error of a mean of independent parts: each part's, weighted by its share.
    sum->nll_error = n + m > 0 ? hypot(sum->nll_error * n, more->nll_error * m) / (n + m) : 0;
    sum->nll_diff = mix(sum->nll_diff, sum->scored, more->nll_diff, more->scored);
    sum->nll_base = mix(sum->nll_base, sum->scored, more->nll_base, more->scored);
    sum->kl_mean = mix(sum->kl_mean, sum->rows, more->kl_mean, more->rows);
    sum->kl_max = fmax(sum->kl_max, more->kl_max);
    sum->noise = fmaxf(sum->noise, more->noise);
    sum->flip_gap = fmaxf(sum->flip_gap, more->flip_gap);
    sum->flips += more->flips;
    sum->flips_above += more->flips_above;
    sum->rows += more->rows;
    sum->scored += more->scored;
}

void kiln_tolerance_add(struct kiln_tolerance *sum, const struct kiln_tolerance *more) {
    add(&sum->self, &more->self);
    add(&sum->control, &more->control);
    add(&sum->change, &more->change);
    sum->bound = fmaxf(sum->bound, more->bound);
}
