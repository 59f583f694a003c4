// ab_kernels: watched runs of base and change, and the time between their marks by slot.
#include "lab/ab_kernels.h"

#include "base/clock.h"
#include "base/mem.h"
#include "lab/marks.h"
#include "lab/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct variant {
    char *name;
    int64_t steps[KILN_AB_TWO]; // a run
};

struct slot {
    char *name;
    struct variant *variants;
    size_t n, cap;
    int64_t steps[KILN_AB_TWO]; // a run
    double *seconds;            // (side, run)
};

struct kiln_ab_tracer {
    struct kiln_twin *twin;
    struct kiln_workload_run *work;
    struct slot *slots;
    size_t n, cap;
    struct kiln_marks marks; // owners: slots
    size_t runs, cap_runs;
    int counting; // the uncounted runs, which find the slots
    int differs;
    enum kiln_side side; // being watched
    double empty;        // seconds of a mark
};

// ---- Slots --------------------------------------------------------------------------------------

static int32_t find_slot(const struct kiln_ab_tracer *t, const char *name) {
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(t->slots[i].name, name) == 0) {
            return (int32_t)i;
        }
    }
    return KILN_MARK_NOBODY;
}

static enum kiln_status add_slot(struct kiln_ab_tracer *t, const char *name, struct kiln_err *err) {
    double *seconds = kiln_calloc(KILN_AB_TWO * t->cap_runs, sizeof(*seconds));
    char *copy = kiln_strdup(name);
    if (!seconds || !copy || kiln_grow(&t->slots, &t->cap, t->n + 1, sizeof(*t->slots)) != 0) {
        kiln_free(seconds);
        kiln_free(copy);
        return kiln_err_nomem(err, "the slots of a comparison");
    }
    t->slots[t->n++] = (struct slot){.name = copy, .seconds = seconds};
    return KILN_STATUS_OK;
}

// Takes over the name.
static enum kiln_status count_variant(
        struct slot *slot, char *name, enum kiln_side side, struct kiln_err *err) {
    for (size_t i = 0; name && i < slot->n; i++) {
        if (strcmp(slot->variants[i].name, name) == 0) {
            slot->variants[i].steps[side]++;
            kiln_free(name);
            return KILN_STATUS_OK;
        }
    }
    if (!name ||
            kiln_grow(&slot->variants, &slot->cap, slot->n + 1, sizeof(*slot->variants)) != 0) {
        kiln_free(name);
        return kiln_err_nomem(err, "the slots of a comparison");
    }
    struct variant *variant = &slot->variants[slot->n++];
    *variant = (struct variant){.name = name};
    variant->steps[side] = 1;
    return KILN_STATUS_OK;
}

static int slot_differs(const struct slot *slot) {
    int differs = 0;
    for (size_t i = 0; i < slot->n; i++) {
        differs |= slot->variants[i].steps[KILN_SIDE_BASE] !=
                   slot->variants[i].steps[KILN_SIDE_CHANGE];
    }
    return differs;
}

// ---- Steps --------------------------------------------------------------------------------------

static enum kiln_status on_step(
        void *arg, const struct kiln_trace_step *step, struct kiln_err *err) {
    struct kiln_ab_tracer *t = arg;
    int32_t slot = step ? find_slot(t, step->slot) : KILN_MARK_NOBODY;
    if (step && t->counting) {
        if (slot == KILN_MARK_NOBODY) {
            slot = (int32_t)t->n;
            KILN_TRY(add_slot(t, step->slot, err));
        }
        t->slots[slot].steps[t->side]++;
        KILN_TRY(count_variant(&t->slots[slot], kiln_step_name(step), t->side, err));
    }
    return kiln_marks_put(&t->marks, slot, err);
}

static void add_slot_time(void *arg, int32_t slot, double seconds) {
    struct kiln_ab_tracer *t = arg;
    if (!t->counting) {
        t->slots[slot].seconds[(size_t)t->side * t->cap_runs + t->runs] += seconds;
    }
}

// ---- Runs ---------------------------------------------------------------------------------------

static enum kiln_status watched_run(
        struct kiln_ab_tracer *t, enum kiln_side side, struct kiln_err *err) {
    struct kiln_engine *engine = t->twin->engine[side];
    const struct kiln_trace trace = {.step = on_step, .arg = t};
    double seconds;
    t->side = side;
    t->marks.n = 0;
    kiln_engine_trace(engine, &trace);
    enum kiln_status status = kiln_workload_time(t->work, engine, &seconds, err);
    kiln_engine_trace(engine, NULL);
    return status == KILN_STATUS_OK ? kiln_marks_take(&t->marks, add_slot_time, t, err) : status;
}

enum kiln_status kiln_ab_tracer_open(struct kiln_ab_tracer **tracer, struct kiln_twin *twin,
        struct kiln_workload_run *work, size_t runs, struct kiln_err *err) {
    struct kiln_ab_tracer *t = *tracer = kiln_calloc(1, sizeof(*t));
    if (!t) {
        return kiln_err_nomem(err, "the slots of a comparison");
    }
    *t = (struct kiln_ab_tracer){.twin = twin,
            .work = work,
            .marks = {.dev = twin->dev},
            .cap_runs = runs,
            .counting = 1};
    KILN_TRY(watched_run(t, KILN_SIDE_BASE, err));
    KILN_TRY(watched_run(t, KILN_SIDE_CHANGE, err));
    t->counting = 0;
    for (size_t i = 0; i < t->n; i++) {
        t->differs |= slot_differs(&t->slots[i]);
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_ab_tracer_run(
        struct kiln_ab_tracer *tracer, int64_t rest_ms, struct kiln_err *err) {
    if (!tracer->differs || tracer->runs == tracer->cap_runs) {
        return KILN_STATUS_OK;
    }
    const enum kiln_side first = tracer->runs % 2 ? KILN_SIDE_CHANGE : KILN_SIDE_BASE;
    kiln_clock_rest(rest_ms);
    KILN_TRY(watched_run(tracer, first, err));
    kiln_clock_rest(rest_ms);
    KILN_TRY(watched_run(tracer, first == KILN_SIDE_BASE ? KILN_SIDE_CHANGE : KILN_SIDE_BASE, err));
    tracer->runs++;
    return KILN_STATUS_OK;
}

void kiln_ab_tracer_close(struct kiln_ab_tracer *tracer) {
    if (!tracer) {
        return;
    }
    kiln_marks_close(&tracer->marks);
    for (size_t i = 0; i < tracer->n; i++) {
        for (size_t v = 0; v < tracer->slots[i].n; v++) {
            kiln_free(tracer->slots[i].variants[v].name);
        }
        kiln_free(tracer->slots[i].variants);
        kiln_free(tracer->slots[i].name);
        kiln_free(tracer->slots[i].seconds);
    }
    kiln_free(tracer->slots);
    kiln_free(tracer);
}

// ---- What they say ------------------------------------------------------------------------------

// The median run of a slot, less what its marks take. Reorders the runs.
static double seconds_of(const struct kiln_ab_tracer *t, struct slot *slot, enum kiln_side side) {
    double seconds = kiln_median(slot->seconds + (size_t)side * t->cap_runs, t->runs);
    return seconds - fmin((double)slot->steps[side] * t->empty, seconds);
}

// What most steps of the slot run, and how many others there are.
static char *names_of(const struct slot *slot, enum kiln_side side) {
    size_t most = 0, others = 0;
    for (size_t i = 0; i < slot->n; i++) {
        most = slot->variants[i].steps[side] > slot->variants[most].steps[side] ? i : most;
        others += slot->variants[i].steps[side] > 0;
    }
    if (others == 0) {
        return kiln_strdup("none");
    }
    return others == 1 ? kiln_strdup(slot->variants[most].name)
                       : kiln_asprintf("%s and %zu more", slot->variants[most].name, others - 1);
}

static int longest_first(const void *a, const void *b) {
    double x = ((const struct kiln_ab_slot *)a)->seconds[KILN_SIDE_BASE];
    double y = ((const struct kiln_ab_slot *)b)->seconds[KILN_SIDE_BASE];
    return (x < y) - (x > y);
}

static enum kiln_status add_result(struct kiln_ab_kernels *kernels, const struct slot *slot,
        const double seconds[KILN_AB_TWO], struct kiln_err *err) {
    struct kiln_ab_slot *result = &kernels->slots[kernels->n++];
    *result = (struct kiln_ab_slot){.slot = kiln_strdup(slot->name)};
    for (int side = 0; side < KILN_AB_TWO; side++) {
        result->names[side] = names_of(slot, (enum kiln_side)side);
        result->seconds[side] = seconds[side];
    }
    if (!result->slot || !result->names[0] || !result->names[1]) {
        return kiln_err_nomem(err, "the slots of a comparison");
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_ab_tracer_conclude(struct kiln_ab_tracer *tracer, double wall,
        struct kiln_ab_kernels *kernels, struct kiln_err *err) {
    *kernels = (struct kiln_ab_kernels){.runs = (int64_t)tracer->runs, .wall = wall};
    if (tracer->runs == 0) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(kiln_marks_cost(&tracer->marks, &tracer->empty, err));
    kernels->slots = kiln_calloc(tracer->n, sizeof(*kernels->slots));
    if (!kernels->slots) {
        return kiln_err_nomem(err, "the slots of a comparison");
    }
    double all = 0;
    for (size_t i = 0; i < tracer->n; i++) {
        struct slot *slot = &tracer->slots[i];
        double seconds[KILN_AB_TWO];
        for (int side = 0; side < KILN_AB_TWO; side++) {
            seconds[side] = seconds_of(tracer, slot, (enum kiln_side)side);
        }
        all += seconds[KILN_SIDE_BASE];
        if (slot_differs(slot)) {
            KILN_TRY(add_result(kernels, slot, seconds, err));
        }
    }
    kernels->wall = fmax(wall, all);
    qsort(kernels->slots, kernels->n, sizeof(*kernels->slots), longest_first);
    return KILN_STATUS_OK;
}

struct kiln_ab_share kiln_ab_share_of(
        const struct kiln_ab_kernels *kernels, const double seconds[KILN_AB_TWO]) {
    const double base = seconds[KILN_SIDE_BASE], change = seconds[KILN_SIDE_CHANGE];
    const double wall = kernels->wall, after = wall - base + change;
    return (struct kiln_ab_share){.share = wall > 0 ? 100 * base / wall : 0,
            .pct = base > 0 && change > 0 ? 100 * (base / change - 1) : 0,
            .predicted = after > 0 ? 100 * (wall / after - 1) : 0};
}

void kiln_ab_kernels_sum(const struct kiln_ab_kernels *kernels, double seconds[KILN_AB_TWO]) {
    for (int side = 0; side < KILN_AB_TWO; side++) {
        seconds[side] = 0;
        for (size_t i = 0; i < kernels->n; i++) {
            seconds[side] += kernels->slots[i].seconds[side];
        }
    }
}

void kiln_ab_kernels_finish(struct kiln_ab_kernels *kernels) {
    for (size_t i = 0; i < kernels->n; i++) {
        kiln_free(kernels->slots[i].slot);
        for (int side = 0; side < KILN_AB_TWO; side++) {
            kiln_free(kernels->slots[i].names[side]);
        }
    }
    kiln_free(kernels->slots);
    *kernels = (struct kiln_ab_kernels){.n = 0};
}
