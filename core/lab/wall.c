// wall: runs with and without marks, paced ones, and the slices between the marks.
#include "lab/wall.h"

#include "base/clock.h"
#include "base/mem.h"
#include "lab/health.h"
#include "lab/marks.h"
#include "lab/work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SETTLE 1.0 // seconds before the first paced run, behind one at the power limit

enum {
    // Fills round paced steps are small: L2 is to hold what the step before left there.
    AWAKE = 64,
    AWAKE_BYTES = 64 << 10
};

struct mean {
    double sum, n;
};

struct recorder {
    struct kiln_session *session;
    const struct kiln_registry *registry;
    struct kiln_wall *wall;
    struct kiln_marks marks; // owners: slices
    struct kiln_workload_run work;
    struct kiln_health_reader *health;
    void *fills; // recorded
    struct mean clock;
    int paced;   // whether the run under way is
    double took; // what the marks that were taken last had between them
    struct mean paced_clock, paced_watts;
};

// ---- Watching the steps -------------------------------------------------------------------------

// The slice of a step; a new one when there is none yet.
static enum kiln_status slice_of(struct recorder *r, const struct kiln_trace_step *step,
        int32_t *index, struct kiln_err *err) {
    struct kiln_wall *wall = r->wall;
    char *name = kiln_step_name(step);
    if (!name) {
        return kiln_err_nomem(err, "a slice of the wall");
    }
    for (size_t i = 0; i < wall->n; i++) {
        if (strcmp(wall->slices[i].slot, step->slot) == 0 &&
                strcmp(wall->slices[i].name, name) == 0) {
            kiln_free(name);
            *index = (int32_t)i;
            return KILN_STATUS_OK;
        }
    }
    char *slot = kiln_strdup(step->slot);
    if (!slot || kiln_grow(&wall->slices, &wall->cap, wall->n + 1, sizeof(*wall->slices)) != 0) {
        kiln_free(slot);
        kiln_free(name);
        return kiln_err_nomem(err, "a slice of the wall");
    }
    *index = (int32_t)wall->n;
    wall->slices[wall->n++] = (struct kiln_wall_slice){.slot = slot, .name = name};
    return KILN_STATUS_OK;
}

static void add_to(struct mean *mean, double value) {
    if (value > 0) {
        mean->sum += value;
        mean->n++;
    }
}

// Looks at the card behind a run, when its clock has not had time to move.
static void look(struct recorder *r) {
    struct kiln_health health = kiln_health_read(r->health);
    add_to(&r->clock, health.sm_mhz);
    r->wall->full_mhz = health.full_sm_mhz > 0 ? health.full_sm_mhz : 0;
    r->wall->capped += kiln_health_capped(&health) != 0;
}

static double mean_of(const struct mean *mean) {
    return mean->n > 0 ? mean->sum / mean->n : 0;
}

static int is_gpu(const struct recorder *r) {
    return r->session->dev->desc.kind == KILN_DEVICE_CUDA;
}

static void count_work(const struct recorder *r, struct kiln_wall_slice *slice,
        const struct kiln_trace_step *step) {
    const struct kiln_work work = kiln_work_of(step->planned, step->problem, step->kv_len);
    if (r->registry) {
        slice->precision = kiln_precision_of_problem(kiln_registry_find(r->registry, step->plugin),
                step->planned->variant, step->problem);
        const struct kiln_roofline least =
                kiln_roofline_of(&r->wall->ceilings, &work, slice->precision);
        kiln_roofline_add(&slice->least, &least);
    }
    slice->steps++;
    slice->flops += work.flops;
    slice->bytes += work.bytes;
}

static void add_slice(void *arg, int32_t slice, double seconds) {
    struct recorder *r = arg;
    struct kiln_wall_slice *s = &r->wall->slices[slice];
    r->took += seconds;
    *(r->paced ? &s->paced : &s->seconds) += seconds;
}

// Takes the marks' times to their slices.
static enum kiln_status add_up(struct recorder *r, struct kiln_err *err) {
    r->took = 0;
    return kiln_marks_take(&r->marks, add_slice, r, err);
}

// ---- Pacing -------------------------------------------------------------------------------------

static void look_paced(struct recorder *r) {
    struct kiln_health health = kiln_health_read(r->health);
    add_to(&r->paced_clock, health.sm_mhz);
    add_to(&r->paced_watts, health.watts);
    r->wall->pace.looks++;
    r->wall->pace.capped += kiln_health_capped(&health) != 0;
}

static enum kiln_status record_fills(struct recorder *r, struct kiln_err *err) {
    struct kiln_dev *dev = r->session->dev;
    KILN_TRY(kiln_marks_fill(&r->marks, 1, AWAKE_BYTES, err)); // has the memory before it records
    KILN_TRY(dev->ops->record_begin(dev, err));
    struct kiln_err ended = {0};
    enum kiln_status status = kiln_marks_fill(&r->marks, AWAKE, AWAKE_BYTES, err);
    enum kiln_status end = dev->ops->record_end(dev, &r->fills, &ended);
    if (status == KILN_STATUS_OK && end != KILN_STATUS_OK) {
        *err = ended;
        return end;
    }
    return status;
}

// Has a GPU busy while what comes next is queued: else the host's time to launch would count into
// it. Little of L2 is lost. Recorded, so that many small fills are one call: queued
// by themselves they take no longer to run than to queue, and the card waits for the step.
static enum kiln_status keep_awake(struct recorder *r, struct kiln_err *err) {
    struct kiln_dev *dev = r->session->dev;
    if (!is_gpu(r)) {
        return KILN_STATUS_OK;
    }
    if (!r->fills) {
        KILN_TRY(record_fills(r, err));
    }
    return dev->ops->replay(dev, r->fills, err);
}

// Little power, but awake. Devices that are no GPU sleep.
static enum kiln_status rest(struct recorder *r, double seconds, struct kiln_err *err) {
    struct kiln_dev *dev = r->session->dev;
    const double from = kiln_clock_seconds();
    do {
        if (!is_gpu(r)) {
            kiln_clock_rest((int64_t)ceil(seconds * 1e3));
        }
        KILN_TRY(keep_awake(r, err));
        KILN_TRY(dev->ops->sync(dev, err));
    } while (kiln_clock_seconds() - from < seconds);
    r->wall->pace.rest += kiln_clock_seconds() - from;
    return KILN_STATUS_OK;
}

// Ends the step before, rests, and has the card busy for the next; KILN_MARK_NOBODY: there is none.
static enum kiln_status pace_step(struct recorder *r, int32_t slice, struct kiln_err *err) {
    if (r->marks.n > 0) {
        KILN_TRY(kiln_marks_put(&r->marks, KILN_MARK_NOBODY, err));
        look_paced(r); // while it runs
        KILN_TRY(add_up(r, err));
        KILN_TRY(rest(r, fmax(KILN_WALL_REST_LEAST, KILN_WALL_REST_TIMES * r->took), err));
    }
    if (slice == KILN_MARK_NOBODY) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(keep_awake(r, err));
    return kiln_marks_put(&r->marks, slice, err);
}

// ---- Runs ---------------------------------------------------------------------------------------

static enum kiln_status on_step(
        void *arg, const struct kiln_trace_step *step, struct kiln_err *err) {
    struct recorder *r = arg;
    int32_t slice = KILN_MARK_NOBODY;
    if (step) {
        KILN_TRY(slice_of(r, step, &slice, err));
    }
    if (r->paced) {
        return pace_step(r, slice, err);
    }
    if (step) {
        count_work(r, &r->wall->slices[slice], step);
    }
    return kiln_marks_put(&r->marks, slice, err);
}

static enum kiln_status traced_run(struct recorder *r, double *seconds, struct kiln_err *err) {
    const struct kiln_trace trace = {.step = on_step, .arg = r};
    kiln_engine_trace(r->session->engine, &trace);
    enum kiln_status status = kiln_workload_time(&r->work, r->session->engine, seconds, err);
    kiln_engine_trace(r->session->engine, NULL);
    return status;
}

static enum kiln_status all_runs(struct recorder *r, int64_t runs, struct kiln_err *err) {
    struct kiln_engine *engine = r->session->engine;
    double seconds = 0;
    KILN_TRY(kiln_workload_warm(&r->work, engine, NULL, err));
    for (int64_t i = 0; i < runs; i++) { // interleaved, so that drift meets both alike
        KILN_TRY(kiln_workload_time(&r->work, engine, &seconds, err));
        look(r);
        r->wall->wall += seconds;
        KILN_TRY(traced_run(r, &seconds, err));
        look(r);
        r->wall->traced += seconds;
        KILN_TRY(add_up(r, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status paced_runs(struct recorder *r, int64_t runs, struct kiln_err *err) {
    double seconds;
    if (is_gpu(r)) {
        KILN_TRY(rest(r, SETTLE, err));
    }
    r->wall->pace = (struct kiln_wall_pace){.runs = runs};
    r->paced = 1;
    for (int64_t i = 0; i < runs; i++) {
        KILN_TRY(traced_run(r, &seconds, err));
    }
    r->paced = 0;
    return KILN_STATUS_OK;
}

static int longest_first(const void *a, const void *b) {
    double x = ((const struct kiln_wall_slice *)a)->seconds;
    double y = ((const struct kiln_wall_slice *)b)->seconds;
    return (x < y) - (x > y);
}

// Sums over the runs become means, without the marks' own time.
static void conclude(struct recorder *r, int64_t runs) {
    struct kiln_wall *wall = r->wall;
    double n = (double)runs;
    wall->runs = runs;
    wall->sm_mhz = mean_of(&r->clock);
    wall->pace.sm_mhz = mean_of(&r->paced_clock);
    wall->pace.watts = mean_of(&r->paced_watts);
    wall->pace.rest /= n;
    wall->wall /= n;
    wall->traced /= n;
    wall->host = wall->traced;
    for (size_t i = 0; i < wall->n; i++) {
        struct kiln_wall_slice *s = &wall->slices[i];
        s->steps /= runs;
        const double marks = fmin((double)s->steps * wall->mark, s->seconds / n);
        wall->host -= s->seconds / n;
        wall->traced -= marks;
        s->seconds = s->seconds / n - marks;
        s->paced = fmax(0, s->paced / n - (double)s->steps * wall->mark);
        wall->pace.seconds += s->paced;
        s->flops /= n;
        s->bytes /= n;
        s->least.memory /= n;
        s->least.compute /= n;
        s->least.bound /= n;
    }
    qsort(wall->slices, wall->n, sizeof(*wall->slices), longest_first);
}

static enum kiln_status measure(
        struct recorder *r, const struct kiln_wall_params *params, struct kiln_err *err) {
    if (!r->session->dev->ops->mark) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "the device %s has no clock of its own to read",
                r->session->dev->id);
    }
    KILN_TRY(kiln_ceilings_of(&r->wall->ceilings, &r->session->dev->desc, err));
    KILN_TRY(kiln_workload_open(
            &r->work, &params->load, r->session->dev, r->session->model->params.n_vocab, err));
    KILN_TRY(all_runs(r, params->runs, err));
    if (params->paced) {
        KILN_TRY(paced_runs(r, params->runs, err));
    }
    KILN_TRY(kiln_marks_cost(&r->marks, &r->wall->mark, err));
    conclude(r, params->runs);
    return KILN_STATUS_OK;
}

enum kiln_status kiln_wall_run(struct kiln_session *session, const struct kiln_wall_params *params,
        struct kiln_wall *wall, struct kiln_err *err) {
    *wall = (struct kiln_wall){0};
    struct recorder r = {.session = session,
            .registry = params->registry,
            .wall = wall,
            .marks = {.dev = session->dev},
            .health = kiln_health_open(session->dev)};
    enum kiln_status status = measure(&r, params, err);
    if (r.fills) {
        session->dev->ops->forget(session->dev, r.fills);
    }
    kiln_marks_close(&r.marks);
    kiln_health_close(r.health);
    kiln_workload_close(&r.work);
    return status;
}

void kiln_wall_finish(struct kiln_wall *wall) {
    for (size_t i = 0; i < wall->n; i++) {
        kiln_free(wall->slices[i].slot);
        kiln_free(wall->slices[i].name);
    }
    kiln_free(wall->slices);
    *wall = (struct kiln_wall){0};
}

double kiln_wall_slot(const struct kiln_wall *wall, const char *slot) {
    double seconds = 0;
    for (size_t i = 0; i < wall->n; i++) {
        seconds += strcmp(wall->slices[i].slot, slot) == 0 ? wall->slices[i].seconds : 0;
    }
    return seconds;
}

double kiln_wall_lever(const struct kiln_wall *wall, const char *slot, double magnitude) {
    return kiln_wall_slot(wall, slot) / wall->wall * magnitude;
}

double kiln_wall_to_roofline(const struct kiln_wall *wall, const char *slot) {
    double seconds = 0, least = 0;
    for (size_t i = 0; i < wall->n; i++) {
        const struct kiln_wall_slice *s = &wall->slices[i];
        if (strcmp(s->slot, slot) != 0) {
            continue;
        }
        if (s->least.bound <= 0) {
            return 1;
        }
        seconds += s->seconds;
        least += fmin(s->seconds, s->least.bound);
    }
    return seconds > 0 ? 100 * (least / seconds - 1) : 1;
}
