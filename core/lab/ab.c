// ab: rounds of base, change and base, and what they say.
#include "lab/ab.h"

#include "base/clock.h"
#include "base/mem.h"

enum arm {
    ARM_BASE,
    ARM_CHANGE,
    ARM_CONTROL, // the base once more
    ARMS
};

// Seconds.
static const double soak_look = 1.0;  // after which the card has shown whether it is held back
static const double still_warm = 2.0; // since the last round at the limit

// Every order once in six rounds: each arm is first, second and last equally often, and follows
// each other arm equally often.
static const enum arm orders[6][ARMS] = {
        {ARM_BASE, ARM_CHANGE, ARM_CONTROL},
        {ARM_CONTROL, ARM_CHANGE, ARM_BASE},
        {ARM_CHANGE, ARM_BASE, ARM_CONTROL},
        {ARM_CONTROL, ARM_BASE, ARM_CHANGE},
        {ARM_CHANGE, ARM_CONTROL, ARM_BASE},
        {ARM_BASE, ARM_CONTROL, ARM_CHANGE},
};

struct run {
    struct kiln_twin *twin;
    const struct kiln_ab_params *params;
    struct kiln_workload_run work;
    struct kiln_health_reader *health;
    struct kiln_ab_tracer *tracer; // NULL: kernels are not asked for
};

// How much faster than `base` the other is, in percent of speed.
static double faster(double base, double other) {
    return 100 * (base / other - 1);
}

static enum kiln_status round_of(
        struct run *run, size_t index, struct kiln_ab_pair *pair, struct kiln_err *err) {
    double seconds[ARMS] = {0};
    for (int i = 0; i < ARMS; i++) {
        enum arm arm = orders[index % 6][i];
        enum kiln_side side = arm == ARM_CHANGE ? KILN_SIDE_CHANGE : KILN_SIDE_BASE;
        kiln_clock_rest(run->params->rest_ms);
        KILN_TRY(kiln_workload_time(&run->work, run->twin->engine[side], &seconds[arm], err));
    }
    pair->base = 0.5 * (seconds[ARM_BASE] + seconds[ARM_CONTROL]);
    pair->change = seconds[ARM_CHANGE];
    pair->control = seconds[ARM_CONTROL];
    pair->pct = faster(pair->base, pair->change);
    pair->control_pct = faster(seconds[ARM_BASE], seconds[ARM_CONTROL]);
    pair->health = kiln_health_read(run->health);
    return KILN_STATUS_OK;
}

enum column {
    COLUMN_PCT,
    COLUMN_CONTROL,
    COLUMN_BASE,
    COLUMN_CHANGE,
    COLUMN_CLOCK,
    COLUMNS
};

static double column_of(const struct kiln_ab_pair *pair, enum column column) {
    switch (column) {
    case COLUMN_PCT:
        return pair->pct;
    case COLUMN_CONTROL:
        return pair->control_pct;
    case COLUMN_BASE:
        return pair->base;
    case COLUMN_CHANGE:
        return pair->change;
    case COLUMN_CLOCK:
    case COLUMNS:
        break;
    }
    return pair->health.sm_mhz;
}

static enum kiln_status look(
        struct run *run, struct kiln_ab *ab, double alpha, struct kiln_err *err) {
    double *values = kiln_alloc(ab->n * COLUMNS * sizeof(*values));
    if (!values) {
        return kiln_err_nomem(err, "the pairs of a comparison");
    }
    double *column[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
        column[c] = values + (size_t)c * ab->n;
        for (size_t i = 0; i < ab->n; i++) {
            column[c][i] = column_of(&ab->pairs[i], (enum column)c);
        }
    }
    enum kiln_status status = kiln_judge(column[COLUMN_PCT], column[COLUMN_CONTROL], ab->n,
            run->params->bar, alpha, run->params->seed, &ab->effect, err);
    double tokens = (double)kiln_workload_tokens(&run->params->load);
    ab->base_rate = tokens / kiln_median(column[COLUMN_BASE], ab->n);
    ab->change_rate = tokens / kiln_median(column[COLUMN_CHANGE], ab->n);
    int32_t usual = (int32_t)kiln_median(column[COLUMN_CLOCK], ab->n);
    ab->disturbed = ab->capped = 0;
    for (size_t i = 0; i < ab->n; i++) {
        ab->pairs[i].disturbed = kiln_health_disturbed(&ab->pairs[i].health, usual);
        ab->disturbed += ab->pairs[i].disturbed != 0;
        ab->capped += kiln_health_capped(&ab->pairs[i].health) != 0;
    }
    ab->looks++;
    kiln_free(values);
    return status;
}

static enum kiln_status rounds(struct run *run, struct kiln_ab *ab, struct kiln_err *err) {
    const struct kiln_ab_params *p = run->params;
    for (int64_t i = 0; i < p->rounds; i++) {
        if (p->stop && p->stop()) {
            return kiln_err_set(err, KILN_STATUS_INTERRUPTED,
                    "interrupted after %lld of %lld rounds", (long long)i, (long long)p->rounds);
        }
        KILN_TRY(round_of(run, (size_t)i, &ab->pairs[ab->n], err));
        ab->n++;
        if (run->tracer && ab->n % KILN_AB_WATCH == 0) {
            KILN_TRY(kiln_ab_tracer_run(run->tracer, p->rest_ms, err));
        }
        if (p->progress) {
            p->progress(p->progress_arg, i + 1, p->rounds);
        }
        if (p->until_decided && ab->n % KILN_AB_LOOK == 0) {
            KILN_TRY(look(run, ab, kiln_alpha_of_look(p->alpha, ab->looks + 1), err));
            if (ab->effect.verdict != KILN_VERDICT_NEUTRAL) {
                return KILN_STATUS_OK;
            }
        }
    }
    if (p->until_decided && ab->n % KILN_AB_LOOK == 0) {
        return KILN_STATUS_OK;
    }
    return look(run, ab, p->until_decided ? kiln_alpha_of_look(p->alpha, ab->looks + 1) : p->alpha,
            err);
}

static enum kiln_status warm(struct run *run, enum kiln_side side, struct kiln_err *err) {
    enum kiln_status status =
            kiln_workload_warm(&run->work, run->twin->engine[side], kiln_side_name(side), err);
    if (status != KILN_STATUS_OK) {
        kiln_err_prefix(err, "%s: ", kiln_side_name(side));
    }
    return status;
}

// Runs both, uncounted, until a card at its power limit has settled there. What was running at it a
// moment ago has.
static enum kiln_status soak(struct run *run, struct kiln_err *err) {
    const double from = kiln_clock_seconds();
    double seconds;
    if (from - run->twin->capped_at < still_warm) {
        return KILN_STATUS_OK;
    }
    for (int i = 0; run->health && kiln_clock_seconds() - from < run->params->soak; i++) {
        struct kiln_health health = kiln_health_read(run->health);
        if (kiln_clock_seconds() - from > soak_look && !kiln_health_capped(&health)) {
            break;
        }
        if (run->params->stop && run->params->stop()) {
            return kiln_err_set(err, KILN_STATUS_INTERRUPTED, "interrupted before the rounds");
        }
        kiln_clock_rest(run->params->rest_ms);
        KILN_TRY(kiln_workload_time(&run->work,
                run->twin->engine[i % 2 ? KILN_SIDE_CHANGE : KILN_SIDE_BASE], &seconds, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status compare(struct run *run, struct kiln_ab *ab, struct kiln_err *err) {
    ab->pairs = kiln_calloc((size_t)run->params->rounds, sizeof(*ab->pairs));
    if (!ab->pairs) {
        return kiln_err_nomem(err, "a comparison");
    }
    KILN_TRY(kiln_workload_open(
            &run->work, &run->params->load, run->twin->dev, run->twin->model->params.n_vocab, err));
    KILN_TRY(warm(run, KILN_SIDE_BASE, err));
    KILN_TRY(warm(run, KILN_SIDE_CHANGE, err));
    if (run->params->kernels) {
        const size_t runs = (size_t)(run->params->rounds / KILN_AB_WATCH);
        KILN_TRY(kiln_ab_tracer_open(&run->tracer, run->twin, &run->work, runs, err));
    }
    KILN_TRY(soak(run, err));
    KILN_TRY(rounds(run, ab, err));
    if (run->tracer) {
        const double wall = (double)kiln_workload_tokens(&run->params->load) / ab->base_rate;
        KILN_TRY(kiln_ab_tracer_conclude(run->tracer, wall, &ab->kernels, err));
    }
    if (ab->capped > 0) {
        run->twin->capped_at = kiln_clock_seconds();
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_ab_run(struct kiln_twin *twin, const struct kiln_ab_params *params,
        struct kiln_ab *ab, struct kiln_err *err) {
    *ab = (struct kiln_ab){0};
    struct run run = {.twin = twin, .params = params, .health = kiln_health_open(twin->dev)};
    enum kiln_status status = compare(&run, ab, err);
    kiln_ab_tracer_close(run.tracer);
    kiln_health_close(run.health);
    kiln_workload_close(&run.work);
    return status;
}

void kiln_ab_finish(struct kiln_ab *ab) {
    kiln_free(ab->pairs);
    kiln_ab_kernels_finish(&ab->kernels);
    *ab = (struct kiln_ab){0};
}
