// workload: any tokens, fed and timed.
#include "engine/workload.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/ranges.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

int64_t kiln_workload_tokens(const struct kiln_workload *load) {
    return load->n_prompt > 0 ? load->n_prompt : load->n_gen;
}

void kiln_workload_name(const struct kiln_workload *load, char *name, size_t size) {
    const char *kind = load->n_prompt > 0 ? "pp" : "tg";
    if (load->depth > 0) {
        snprintf(name, size, "%s%" PRId64 " @ d%" PRId64, kind, kiln_workload_tokens(load),
                load->depth);
    } else {
        snprintf(name, size, "%s%" PRId64, kind, kiln_workload_tokens(load));
    }
}

enum kiln_status kiln_workload_open(struct kiln_workload_run *run, const struct kiln_workload *load,
        struct kiln_dev *dev, int32_t n_vocab, struct kiln_err *err) {
    int64_t count = load->depth + kiln_workload_tokens(load);
    *run = (struct kiln_workload_run){.load = *load, .dev = dev, .n_vocab = n_vocab};
    run->ids = kiln_calloc((size_t)count, sizeof(*run->ids));
    if (!run->ids) {
        return kiln_err_nomem(err, "the tokens to be timed");
    }
    void *logits = NULL;
    KILN_TRY(kiln_dev_host_alloc(dev, (uint64_t)n_vocab * sizeof(*run->logits), &logits, err));
    run->logits = logits;
    for (int64_t i = 0; i < count; i++) {
        run->ids[i] = (int32_t)((i * 7919 + 1) % n_vocab);
    }
    return KILN_STATUS_OK;
}

void kiln_workload_close(struct kiln_workload_run *run) {
    kiln_free(run->ids);
    if (run->logits) {
        kiln_dev_host_free(run->dev, run->logits);
    }
    *run = (struct kiln_workload_run){0};
}

static void warn_of_nan(const struct kiln_workload_run *run, const char *who) {
    int32_t count = 0;
    for (int32_t i = 0; i < run->n_vocab; i++) {
        count += isnan(run->logits[i]) != 0;
    }
    if (count > 0) {
        kiln_log(KILN_LOG_WARN,
                "%s%s%" PRId32 " of %" PRId32 " logits are NaN: the model or a kernel is broken, "
                "and its speed says nothing; `kiln gate` looks for where",
                who ? who : "", who ? ": " : "", count, run->n_vocab);
    }
}

enum kiln_status kiln_workload_warm(struct kiln_workload_run *run, struct kiln_engine *engine,
        const char *who, struct kiln_err *err) {
    int64_t tokens = kiln_workload_tokens(&run->load), ctx = kiln_engine_ctx(engine);
    double seconds;
    if (run->load.depth + tokens > ctx) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "%" PRId64 " tokens at depth %" PRId64 " do not fit: the context holds %" PRId64
                "; a larger -c holds more",
                tokens, run->load.depth, ctx);
    }
    kiln_engine_truncate(engine, 0);
    if (run->load.depth > 0) {
        KILN_TRY(kiln_engine_eval(engine, run->ids, run->load.depth, run->logits, err));
    }
    KILN_TRY(kiln_workload_time(run, engine, &seconds, err));
    if (run->load.n_prompt == 0 && kiln_engine_picks(engine)) { // the logits stayed on the device
        kiln_engine_truncate(engine, kiln_engine_n_past(engine) - 1);
        KILN_TRY(kiln_engine_eval(engine, &run->last, 1, run->logits, err));
    }
    warn_of_nan(run, who);
    return KILN_STATUS_OK;
}

// As a greedy user's tokens come: each is known to the host before the next one counts.
static enum kiln_status feed_picks(
        struct kiln_workload_run *run, struct kiln_engine *engine, struct kiln_err *err) {
    const int32_t *ids = run->ids + run->load.depth;
    int32_t pick = ids[0];
    for (int64_t i = 0; i < run->load.n_gen; i++) {
        run->last = pick >= 0 ? pick : ids[i]; // broken, which was warned of: any other will do
        KILN_TRY(kiln_engine_pick(engine, run->last, i + 1 < run->load.n_gen, &pick, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status feed(
        struct kiln_workload_run *run, struct kiln_engine *engine, struct kiln_err *err) {
    const int32_t *ids = run->ids + run->load.depth;
    int64_t n = kiln_workload_tokens(&run->load);
    int64_t chunk = run->load.n_prompt > 0 ? n : 1;
    if (run->load.n_prompt == 0 && kiln_engine_picks(engine)) {
        return feed_picks(run, engine, err);
    }
    for (int64_t at = 0; at < n; at += chunk) {
        KILN_TRY(kiln_engine_eval(engine, ids + at, chunk, run->logits, err));
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_workload_time(struct kiln_workload_run *run, struct kiln_engine *engine,
        double *seconds, struct kiln_err *err) {
    kiln_engine_truncate(engine, run->load.depth);
    kiln_range_push(kiln_range_name("run"), kiln_workload_tokens(&run->load));
    double from = kiln_clock_seconds();
    enum kiln_status status = feed(run, engine, err);
    *seconds = kiln_clock_seconds() - from;
    kiln_range_pop();
    return status;
}
