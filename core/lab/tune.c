// tune: the loop: propose, plan, compile, measure, keep.
#include "lab/tune.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "lab/digest.h"
#include "lab/health.h"
#include "lab/shape.h"
#include "lab/tune_child.h"
#include "lab/tune_compile.h"
#include "plugin/describe.h"
#include "plugin/schema.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BATCH_MAX = 64,
    COMPILE_TIMES = 4, // the timeout of a measurement is that of a compile
    METHOD = 1,        // of measuring: results of another are not compared
};

// Candidates whose kernels are compiled together.
struct batch {
    struct kiln_tune_entry *entries[BATCH_MAX];
    struct kiln_tune_job jobs[BATCH_MAX];
    struct kiln_planned *planned[BATCH_MAX];
    size_t n;     // of jobs
    size_t taken; // proposed, those without a job included
};

// What a sweep over one problem works with.
struct sweep {
    struct kiln_tune *tune;
    const struct kiln_tune_params *params;
    struct kiln_tune_problem *problem;
    const char *shape_text;
    struct kiln_op_case *cases; // by part
    struct kiln_tune_strategy *strategy;
    struct kiln_tune_compiler *compiler;
    struct kiln_tune_child *child;
    int64_t context;
    int told; // the worker knows the problem
    double start, until;
    size_t next_first;
    int store_failed;
};

const char *kiln_tune_grade(const struct kiln_tune *tune) {
    return strncmp(tune->id, "sim", 3) == 0 ? "simulated" : "measured";
}

const struct kiln_tune_times *kiln_tune_ranked(
        const struct kiln_tune *tune, const struct kiln_tune_result *result) {
    return tune->params->by_cold && result->cold.n > 0 ? &result->cold : &result->warm;
}

static double time_of(const struct kiln_tune *tune, const struct kiln_tune_result *result) {
    return result->state == KILN_TUNE_OK ? kiln_tune_ranked(tune, result)->median : 0;
}

// ---- Keeping ------------------------------------------------------------------------------------

static void print_key(const struct kiln_tune_entry *entry, struct kiln_buf *geometry) {
    kiln_geometry_print(&entry->geometry, geometry);
}

// A store that cannot be written any more (a full disk) costs a warning: the sweep has its results.
static enum kiln_status keep(
        struct sweep *sweep, struct kiln_tune_entry *entry, struct kiln_err *err) {
    struct kiln_buf geometry = {0};
    struct kiln_err cause = {0};
    print_key(entry, &geometry);
    if (geometry.failed) {
        kiln_buf_finish(&geometry);
        return kiln_err_nomem(err, "a result");
    }
    const struct kiln_tune_key key = {.plugin = entry->part->plugin->name,
            .variant = entry->part->variant->name,
            .geometry = geometry.data ? geometry.data : "",
            .sources = entry->sources};
    entry->result.at = (int64_t)time(NULL);
    enum kiln_status status =
            kiln_tune_store_put(sweep->params->store, sweep->context, &key, &entry->result, &cause);
    kiln_buf_finish(&geometry);
    if (status != KILN_STATUS_OK && !sweep->store_failed) {
        sweep->store_failed = 1;
        kiln_log(KILN_LOG_WARN, "%s; from here on results are not kept", cause.text);
    }
    return kiln_tune_strategy_note(
            sweep->strategy, entry->candidate, time_of(sweep->tune, &entry->result), err);
}

static enum kiln_status claim(struct sweep *sweep, struct kiln_tune_entry *entry,
        enum kiln_tune_claim *claim, struct kiln_err *err) {
    struct kiln_buf geometry = {0};
    struct kiln_err cause = {0};
    print_key(entry, &geometry);
    const struct kiln_tune_key key = {.plugin = entry->part->plugin->name,
            .variant = entry->part->variant->name,
            .geometry = geometry.data ? geometry.data : "",
            .sources = entry->sources};
    *claim = KILN_TUNE_CLAIMED;
    enum kiln_status status = geometry.failed || sweep->store_failed
                                      ? KILN_STATUS_OK
                                      : kiln_tune_store_claim(sweep->params->store, sweep->context,
                                                &key, claim, &entry->result, &cause);
    if (status == KILN_STATUS_NOMEM || geometry.failed) {
        status = kiln_err_nomem(err, "a candidate");
    } else if (status != KILN_STATUS_OK) {
        sweep->store_failed = 1;
        *claim = KILN_TUNE_CLAIMED;
        kiln_log(KILN_LOG_WARN, "%s; from here on results are not kept", cause.text);
        status = KILN_STATUS_OK;
    }
    kiln_buf_finish(&geometry);
    return status;
}

// ---- Planning -----------------------------------------------------------------------------------

// NULL: err says why.
static struct kiln_tune_entry *new_entry(
        struct sweep *sweep, uint64_t candidate, struct kiln_err *err) {
    struct kiln_tune_problem *problem = sweep->problem;
    struct kiln_tune_entry *entry = kiln_arena_calloc(&sweep->tune->arena, 1, sizeof(*entry));
    uint64_t digest;
    if (!entry || kiln_grow(&problem->entries, &problem->cap_entries, problem->n_entries + 1,
                          sizeof(*problem->entries)) != 0) {
        (void)kiln_err_nomem(err, "a candidate");
        return NULL;
    }
    problem->entries[problem->n_entries++] = entry;
    entry->candidate = candidate;
    entry->part = kiln_tune_space_at(&problem->space, candidate, entry->values);
    entry->geometry = (struct kiln_geometry){.struct_size = sizeof(entry->geometry),
            .n_values = entry->part->n_axes,
            .names = entry->part->names,
            .values = entry->values};
    if (candidate == problem->space.base) {
        problem->base = entry;
    }
    if (kiln_one_variant_digest(sweep->params->registry, entry->part->plugin, entry->part->variant,
                entry->part->source, &digest, err) != KILN_STATUS_OK) {
        return NULL;
    }
    (void)snprintf(entry->sources, sizeof(entry->sources), "%016" PRIx64, digest);
    return entry;
}

static enum kiln_status case_of(struct sweep *sweep, const struct kiln_tune_part *part,
        struct kiln_op_case **c, struct kiln_err *err) {
    *c = &sweep->cases[part - sweep->problem->space.parts];
    if ((*c)->reference) {
        return KILN_STATUS_OK;
    }
    struct kiln_shape shape = {.m = 0};
    if (sweep->shape_text) {
        KILN_TRY(kiln_shape_parse(&shape, sweep->shape_text, err));
    }
    return kiln_op_case_make(
            *c, sweep->params->slot, part->plugin, part->variant, &shape, KILN_FILL_NONE, 1, err);
}

// *planned NULL: it does not get that far, and the entry's result says why.
static enum kiln_status plan(struct sweep *sweep, struct kiln_tune_entry *entry,
        struct kiln_planned **planned, struct kiln_err *err) {
    struct kiln_op_case *c;
    struct kiln_err cause = {0};
    enum kiln_plan_outcome outcome = KILN_PLAN_DONE;
    void *instance = NULL;
    *planned = NULL;
    enum kiln_status status = case_of(sweep, entry->part, &c, &cause);
    if (status == KILN_STATUS_OK) {
        status = kiln_registry_start(sweep->params->registry, entry->part->plugin,
                &sweep->tune->device.desc, &instance, &cause);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_plan_make(entry->part->plugin, entry->part->variant, instance, &c->problem,
                &entry->geometry, &sweep->tune->device.desc, &outcome, planned, &cause);
    }
    if (status == KILN_STATUS_NOMEM) {
        *err = cause;
        return status;
    }
    if (status != KILN_STATUS_OK || outcome == KILN_PLAN_DECLINED) {
        entry->result.state = status == KILN_STATUS_OK       ? KILN_TUNE_DECLINED
                              : status == KILN_STATUS_DEVICE ? KILN_TUNE_LIMITS
                              : status == KILN_STATUS_USAGE  ? KILN_TUNE_DECLINED
                                                             : KILN_TUNE_COMPILE;
        (void)snprintf(entry->result.cause, sizeof(entry->result.cause), "%.500s", cause.text);
    }
    return KILN_STATUS_OK;
}

// ---- Batches ------------------------------------------------------------------------------------

static void drop_batch(struct batch *batch) {
    for (size_t i = 0; i < batch->n; i++) {
        kiln_planned_destroy(batch->planned[i]);
    }
    batch->n = batch->taken = 0;
}

// Whether a candidate that gave no answer in the time it had then gets more now. Its cost is at
// least that time.
static int has_more_time(const struct sweep *sweep, const struct kiln_tune_result *result) {
    return result->state == KILN_TUNE_TIMEOUT && result->cost > 0 &&
           result->cost < sweep->params->timeout;
}

static enum kiln_status take(
        struct sweep *sweep, struct batch *batch, uint64_t candidate, struct kiln_err *err) {
    struct kiln_tune_entry *entry = new_entry(sweep, candidate, err);
    enum kiln_tune_claim claimed;
    if (!entry) {
        return err->status;
    }
    KILN_TRY(claim(sweep, entry, &claimed, err));
    batch->taken++;
    if (claimed == KILN_TUNE_KNOWN && has_more_time(sweep, &entry->result)) {
        claimed = KILN_TUNE_CLAIMED;
    }
    if (claimed != KILN_TUNE_CLAIMED) {
        entry->known = claimed == KILN_TUNE_KNOWN;
        entry->elsewhere = claimed == KILN_TUNE_TAKEN;
        sweep->problem->known += (size_t)entry->known;
        return kiln_tune_strategy_note(
                sweep->strategy, candidate, time_of(sweep->tune, &entry->result), err);
    }
    struct kiln_planned *planned;
    entry->result = (struct kiln_tune_result){.state = KILN_TUNE_RUNNING};
    KILN_TRY(plan(sweep, entry, &planned, err));
    if (!planned) {
        return keep(sweep, entry, err);
    }
    batch->entries[batch->n] = entry;
    batch->planned[batch->n] = planned;
    batch->jobs[batch->n++] = (struct kiln_tune_job){.plugin = entry->part->plugin->name,
            .variant = entry->part->variant->name,
            .source = entry->part->source,
            .geometry = &entry->geometry,
            .planned = planned};
    return KILN_STATUS_OK;
}

static int is_over(const struct sweep *sweep) {
    return sweep->until > 0 && kiln_clock_seconds() >= sweep->until;
}

static size_t batch_size(const struct sweep *sweep) {
    const struct kiln_tune_params *p = sweep->params;
    size_t size = 2 * (size_t)kiln_cpu_count(), n = sweep->problem->n_entries;
    size = size < 8 ? 8 : size > BATCH_MAX ? BATCH_MAX : size;
    return p->most > 0 && n + size > p->most ? (p->most > n ? (size_t)p->most - n : 0) : size;
}

// Takes up what the strategy proposes until something is to be compiled or nothing is left.
static enum kiln_status fill(struct sweep *sweep, struct batch *batch, struct kiln_err *err) {
    uint64_t candidates[BATCH_MAX];
    size_t n = 1;
    while (batch->n == 0 && n > 0 && !is_over(sweep)) {
        KILN_TRY(kiln_tune_strategy_propose(
                sweep->strategy, candidates, batch_size(sweep), &n, err));
        for (size_t i = 0; i < n; i++) {
            KILN_TRY(take(sweep, batch, candidates[i], err));
        }
    }
    if (sweep->params->stop && sweep->params->stop()) {
        return kiln_err_set(err, KILN_STATUS_INTERRUPTED, "interrupted");
    }
    return batch->n > 0 ? kiln_tune_compiler_start(sweep->compiler, batch->jobs, batch->n, err)
                        : KILN_STATUS_OK;
}

// ---- Measuring ----------------------------------------------------------------------------------

static json_t *candidate_json(const struct kiln_tune_entry *entry) {
    json_t *values = json_array();
    for (uint32_t i = 0; values && i < entry->part->n_axes; i++) {
        (void)json_array_append_new(values, json_integer(entry->values[i]));
    }
    return json_pack("{s:s, s:s, s:o, s:s?}", "plugin", entry->part->plugin->name, "variant",
            entry->part->variant->name, "values", values, "source", entry->part->source);
}

static enum kiln_status tell_problem(struct sweep *sweep, struct kiln_err *err) {
    int fresh;
    enum kiln_tune_end end;
    char cause[KILN_TUNE_CAUSE];
    json_t *reply = NULL;
    KILN_TRY(kiln_tune_child_ready(sweep->child, &fresh, err));
    if (sweep->told && !fresh) {
        return KILN_STATUS_OK;
    }
    json_t *request = json_pack("{s:s, s:s, s:s}", "do", "problem", "slot", sweep->params->slot,
            "shape", sweep->shape_text ? sweep->shape_text : "");
    enum kiln_status status =
            request ? kiln_tune_child_ask(sweep->child, request, 60, &reply, &end, cause, err)
                    : kiln_err_nomem(err, "a request");
    json_decref(request);
    if (status == KILN_STATUS_OK && !reply) {
        status = kiln_err_set(err, KILN_STATUS_DEVICE, "the process that measures: %s", cause);
    }
    json_decref(reply);
    sweep->told = status == KILN_STATUS_OK;
    return status;
}

static void read_samples(const json_t *reply, const char *name, struct kiln_tune_times *times) {
    const json_t *array = json_object_get(reply, name);
    for (size_t i = 0; i < json_array_size(array) && i < KILN_TUNE_SAMPLES; i++) {
        times->seconds[times->n++] = json_number_value(json_array_get(array, i));
    }
    kiln_tune_times_finish(times);
}

static void read_reply(const json_t *reply, struct kiln_tune_result *result) {
    const char *state = json_string_value(json_object_get(reply, "state"));
    const char *cause = json_string_value(json_object_get(reply, "cause"));
    const char *note = json_string_value(json_object_get(reply, "note"));
    enum kiln_tune_state found = kiln_tune_state_of(state ? state : "");
    result->state = found == KILN_TUNE_STATES ? KILN_TUNE_FAULT : found;
    result->parity = json_number_value(json_object_get(reply, "parity"));
    (void)snprintf(result->cause, sizeof(result->cause), "%s", cause ? cause : "");
    (void)snprintf(result->device_note, sizeof(result->device_note), "%s", note ? note : "");
    read_samples(reply, "warm", &result->warm);
    read_samples(reply, "cold", &result->cold);
}

static enum kiln_status measure(
        struct sweep *sweep, struct kiln_tune_entry *entry, struct kiln_err *err) {
    const struct kiln_tune_params *p = sweep->params;
    enum kiln_tune_end end = KILN_TUNE_END_REPLY;
    json_t *reply = NULL, *request = candidate_json(entry);
    double start = kiln_clock_seconds();
    if (!request || json_object_update_new(
                            request, json_pack("{s:s, s:I, s:I, s:f}", "do", "measure", "samples",
                                             (json_int_t)p->samples, "cold_samples",
                                             (json_int_t)p->cold_samples, "seconds", 0.5)) != 0) {
        json_decref(request);
        return kiln_err_nomem(err, "a request");
    }
    enum kiln_status status = tell_problem(sweep, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_tune_child_ask(
                sweep->child, request, p->timeout, &reply, &end, entry->result.cause, err);
    }
    json_decref(request);
    if (status != KILN_STATUS_OK) {
        return status;
    }
    if (reply) {
        read_reply(reply, &entry->result);
    } else {
        entry->result.state = end == KILN_TUNE_END_TIMEOUT  ? KILN_TUNE_TIMEOUT
                              : end == KILN_TUNE_END_MEMORY ? KILN_TUNE_MEMORY
                                                            : KILN_TUNE_FAULT;
    }
    json_decref(reply);
    entry->result.cost = kiln_clock_seconds() - start;
    sweep->problem->measured++;
    return keep(sweep, entry, err);
}

static enum kiln_status measure_batch(
        struct sweep *sweep, struct batch *batch, struct kiln_err *err) {
    const struct kiln_tune_params *p = sweep->params;
    for (size_t i = 0; i < batch->n; i++) {
        struct kiln_tune_entry *entry = batch->entries[i];
        const struct kiln_tune_job *job = &batch->jobs[i];
        entry->result.compile_ms = job->ms;
        if (is_over(sweep)) {
            continue; // its claim is given back at the end
        }
        if (job->status != KILN_STATUS_OK) {
            entry->result.state = job->limits ? KILN_TUNE_LIMITS : KILN_TUNE_COMPILE;
            (void)snprintf(
                    entry->result.cause, sizeof(entry->result.cause), "%.500s", job->err.text);
            KILN_TRY(keep(sweep, entry, err));
        } else {
            KILN_TRY(measure(sweep, entry, err));
        }
        if (p->progress) {
            int64_t total = (int64_t)sweep->problem->space.count;
            p->progress(p->progress_arg, (int64_t)sweep->problem->n_entries,
                    p->most > 0 && (int64_t)p->most < total ? (int64_t)p->most : total);
        }
    }
    return KILN_STATUS_OK;
}

// Has the worker open the device and make the problem while the first candidates are compiled. What
// becomes of a worker that did not live through it, the first measurement finds out.
static enum kiln_status prepare(
        struct sweep *sweep, const struct batch *batch, struct kiln_err *err) {
    enum kiln_tune_end end;
    char cause[KILN_TUNE_CAUSE];
    json_t *reply = NULL;
    KILN_TRY(tell_problem(sweep, err));
    json_t *request = candidate_json(batch->entries[0]);
    if (!request || json_object_set_new(request, "do", json_string("prepare")) != 0) {
        json_decref(request);
        return kiln_err_nomem(err, "a request");
    }
    enum kiln_status status = kiln_tune_child_ask(
            sweep->child, request, sweep->params->timeout, &reply, &end, cause, err);
    json_decref(request);
    json_decref(reply);
    return status;
}

// One batch is compiled while the one before it is measured.
static enum kiln_status walk(struct sweep *sweep, struct batch *batches, struct kiln_err *err) {
    struct batch *now = &batches[0], *next = &batches[1];
    KILN_TRY(fill(sweep, now, err));
    if (now->n > 0) {
        KILN_TRY(prepare(sweep, now, err));
    }
    while (now->n > 0) {
        KILN_TRY(kiln_tune_compiler_wait(sweep->compiler, err));
        KILN_TRY(fill(sweep, next, err));
        KILN_TRY(measure_batch(sweep, now, err));
        drop_batch(now);
        if (next->n == 0) { // the strategy may have waited for these times
            KILN_TRY(fill(sweep, next, err));
        }
        struct batch *swap = now;
        now = next;
        next = swap;
    }
    return KILN_STATUS_OK;
}

// ---- The final ----------------------------------------------------------------------------------

struct ranked {
    const struct kiln_tune_entry *entry;
    double seconds; // of one that is ok
};

static int by_rank(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    enum kiln_tune_state s = x->entry->result.state, t = y->entry->result.state;
    if (s != t) {
        return (s > t) - (s < t);
    }
    if (x->seconds < y->seconds || x->seconds > y->seconds) {
        return x->seconds < y->seconds ? -1 : 1;
    }
    return (x->entry->candidate > y->entry->candidate) -
           (x->entry->candidate < y->entry->candidate);
}

const struct kiln_tune_entry **kiln_tune_order(
        const struct kiln_tune *tune, const struct kiln_tune_problem *problem) {
    size_t n = problem->n_entries;
    struct ranked *ranked = kiln_calloc(n + 1, sizeof(*ranked));
    const struct kiln_tune_entry **order = kiln_calloc(n + 1, sizeof(*order));
    if (!ranked || !order) {
        kiln_free(ranked);
        kiln_free(order);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        ranked[i] =
                (struct ranked){problem->entries[i], time_of(tune, &problem->entries[i]->result)};
    }
    qsort(ranked, n, sizeof(*ranked), by_rank);
    for (size_t i = 0; i < n; i++) {
        order[i] = ranked[i].entry;
    }
    kiln_free(ranked);
    return order;
}

static int is_ok(const struct kiln_tune_entry *entry) {
    return entry && entry->result.state == KILN_TUNE_OK;
}

static enum kiln_status pick_finalists(struct sweep *sweep, struct kiln_err *err) {
    struct kiln_tune_problem *problem = sweep->problem;
    const struct kiln_tune_entry **order = kiln_tune_order(sweep->tune, problem);
    if (!order) {
        return kiln_err_nomem(err, "a final");
    }
    if (is_ok(problem->base)) {
        problem->finalists[problem->n_finalists++].entry = problem->base;
    }
    for (size_t i = 0; i < problem->n_entries; i++) {
        if (is_ok(order[i]) && order[i] != problem->base &&
                problem->n_finalists < KILN_TUNE_FINALISTS) {
            problem->finalists[problem->n_finalists++].entry = order[i];
        }
    }
    kiln_free(order);
    return KILN_STATUS_OK;
}

static enum kiln_status read_rounds(
        struct sweep *sweep, const json_t *reply, struct kiln_err *err) {
    struct kiln_tune_problem *problem = sweep->problem;
    const json_t *rounds = json_object_get(reply, "rounds");
    size_t n = json_array_size(rounds), columns = problem->n_finalists + 1;
    double *seconds = kiln_calloc(n * columns + 1, sizeof(*seconds));
    if (!seconds) {
        return kiln_err_nomem(err, "a final");
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < columns; j++) {
            seconds[i * columns + j] =
                    json_number_value(json_array_get(json_array_get(rounds, i), j));
        }
    }
    enum kiln_status status =
            kiln_tune_judge(problem, seconds, n, is_ok(problem->base), sweep->params->bar, err);
    kiln_free(seconds);
    return status;
}

static enum kiln_status ask_final(struct sweep *sweep, json_t *request, struct kiln_err *err) {
    struct kiln_tune_problem *problem = sweep->problem;
    enum kiln_tune_end end;
    char cause[KILN_TUNE_CAUSE];
    json_t *reply = NULL;
    double seconds = sweep->params->timeout * (double)problem->n_finalists;
    for (size_t i = 0; i < problem->n_finalists; i++) {
        seconds += 3 * (double)sweep->params->rounds *
                   time_of(sweep->tune, &problem->finalists[i].entry->result);
    }
    KILN_TRY(tell_problem(sweep, err));
    KILN_TRY(kiln_tune_child_ask(sweep->child, request, seconds, &reply, &end, cause, err));
    if (!reply) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "the final was not played to its end: %s; what was measured is kept", cause);
    }
    enum kiln_status status = read_rounds(sweep, reply, err);
    json_decref(reply);
    return status;
}

static enum kiln_status play_final(struct sweep *sweep, struct kiln_err *err) {
    struct kiln_tune_problem *problem = sweep->problem;
    KILN_TRY(pick_finalists(sweep, err));
    if (problem->n_finalists == 0) {
        return KILN_STATUS_OK;
    }
    json_t *candidates = json_array();
    for (size_t i = 0; candidates && i < problem->n_finalists; i++) {
        (void)json_array_append_new(candidates, candidate_json(problem->finalists[i].entry));
    }
    json_t *request = json_pack("{s:s, s:I, s:o}", "do", "final", "rounds",
            (json_int_t)sweep->params->rounds, "candidates", candidates);
    enum kiln_status status = request && json_array_size(candidates) == problem->n_finalists
                                      ? ask_final(sweep, request, err)
                                      : kiln_err_nomem(err, "a final");
    json_decref(request);
    return status;
}

// ---- One problem --------------------------------------------------------------------------------

// Whether a section is one that kiln tune wrote: "SLOT/tuned-2".
static int is_tuned(const char *section, const char *slot) {
    static const char tuned[] = "/tuned";
    size_t len = strlen(slot);
    return strncmp(section, slot, len) == 0 &&
           strncmp(section + len, tuned, sizeof(tuned) - 1) == 0;
}

// Names the problem, finds what is bound to it and makes the space.
static enum kiln_status frame(
        struct sweep *sweep, struct kiln_op_case *plain, struct kiln_err *err) {
    const struct kiln_tune_params *p = sweep->params;
    struct kiln_tune_problem *problem = sweep->problem;
    struct kiln_shape shape = {.m = 0};
    const struct kiln_binding *base = NULL;
    struct kiln_err unbound = {0};
    if (sweep->shape_text) {
        KILN_TRY(kiln_shape_parse(&shape, sweep->shape_text, err));
    }
    KILN_TRY(kiln_op_case_make(plain, p->slot, NULL, NULL, &shape, KILN_FILL_NONE, 1, err));
    kiln_op_case_name(plain, problem->name, sizeof(problem->name));
    const struct kiln_op *op = plain->problem.ops[0];
    problem->shape = plain->shape;
    problem->head_size = op->head_size;
    // As the engine asks, not as the shape has it: a default n or k may be of no tensor of the op.
    const struct kiln_tensor *out = kiln_op_tensor(op, KILN_OPERAND_OUT),
                             *weight = kiln_op_tensor(op, KILN_OPERAND_WEIGHT);
    problem->columns = out ? out->dims[0] : 0;
    problem->depth = weight ? weight->dims[0] : 0;
    const struct kiln_bind_query query = {.slot = p->slot,
            .m = plain->shape.m,
            .n = problem->columns,
            .k = problem->depth,
            .hd = op->head_size,
            .role = op->role,
            .layer = plain->problem.layer,
            .phase = plain->problem.phase,
            .device = &sweep->tune->device.desc};
    if (kiln_config_bind(p->config, &query, 0, &base, &unbound) != KILN_STATUS_OK) {
        kiln_log(KILN_LOG_WARN, "%s: there is no base to compare with", unbound.text);
    }
    problem->base_tuned = base && is_tuned(base->section, p->slot);
    const struct kiln_tune_space_params space = {.registry = p->registry,
            .device = &sweep->tune->device.desc,
            .slot = p->slot,
            .base = base && base->variant ? base : NULL,
            .head_size = op->head_size,
            .texts = p->space,
            .n_texts = p->n_space};
    return kiln_tune_space_make(&problem->space, &space, err);
}

static enum kiln_status open_context(struct sweep *sweep, struct kiln_err *err) {
    const struct kiln_device *d = &sweep->tune->device.desc;
    char cpu[128] = ""; // "cpu" and "sim" are as fast as the processor that they run on
    if (strncmp(sweep->tune->id, "cuda", 4) != 0) {
        kiln_host_cpu_name(cpu, sizeof(cpu));
    }
    char *device = kiln_asprintf("%s %s, %d units, L2 %" PRIu64 " bytes%s%s", d->name, d->target,
            (int)d->sm_count, d->l2_bytes, cpu[0] ? ", " : "", cpu);
    char *problem = kiln_asprintf("%s %s", sweep->params->slot, sweep->problem->name);
    char *version = kiln_asprintf("%s, method %d", sweep->params->version, (int)METHOD);
    enum kiln_status status = KILN_STATUS_NOMEM;
    if (device && problem && version) {
        const struct kiln_tune_context context = {.device = device,
                .driver = sweep->tune->driver,
                .problem = problem,
                .kiln = version};
        status = kiln_tune_store_context(sweep->params->store, &context, &sweep->context, err);
    } else {
        (void)kiln_err_nomem(err, "a sweep");
    }
    kiln_free(device);
    kiln_free(problem);
    kiln_free(version);
    return status == KILN_STATUS_OK && sweep->params->again
                   ? kiln_tune_store_forget(sweep->params->store, sweep->context, err)
                   : status;
}

static enum kiln_status make_strategy(struct sweep *sweep, struct kiln_err *err) {
    const struct kiln_tune_params *p = sweep->params;
    const struct kiln_tune_strategy_params params = {.space = &sweep->problem->space,
            .kind = p->strategy,
            .seed = p->seed,
            .shard = p->shard,
            .shards = p->shards};
    KILN_TRY(kiln_tune_strategy_create(&sweep->strategy, &params, err));
    size_t taken = 0;
    for (size_t i = 0; i < p->n_first; i++) {
        uint64_t candidate = kiln_tune_t4_find(&sweep->problem->space, p->first[i]);
        taken += candidate != KILN_TUNE_NONE;
        if (candidate != KILN_TUNE_NONE) {
            KILN_TRY(kiln_tune_strategy_prefer(sweep->strategy, candidate, err));
        }
    }
    if (taken < p->n_first) {
        kiln_log(KILN_LOG_WARN, "%zu of %zu imported configurations are none of this space",
                p->n_first - taken, p->n_first);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status sweep_problem(struct sweep *sweep, struct kiln_err *err) {
    struct kiln_op_case *plain = kiln_calloc(1, sizeof(*plain));
    struct batch *batches = kiln_calloc(2, sizeof(*batches));
    enum kiln_status status =
            plain && batches ? frame(sweep, plain, err) : kiln_err_nomem(err, "a sweep");
    if (plain) {
        kiln_op_case_finish(plain);
    }
    kiln_free(plain);
    if (status == KILN_STATUS_OK) {
        sweep->cases = kiln_calloc(sweep->problem->space.n_parts, sizeof(*sweep->cases));
        status = sweep->cases ? open_context(sweep, err) : kiln_err_nomem(err, "a sweep");
    }
    if (status == KILN_STATUS_OK) {
        status = make_strategy(sweep, err);
    }
    if (status == KILN_STATUS_OK) {
        status = walk(sweep, batches, err);
    }
    struct kiln_err ignored = {0}; // of a compile that nobody waits for any more
    (void)!kiln_tune_compiler_wait(sweep->compiler, &ignored);
    for (size_t i = 0; batches && i < 2; i++) {
        drop_batch(&batches[i]);
    }
    kiln_free(batches);
    if (status == KILN_STATUS_OK && sweep->params->shards <= 1) {
        status = play_final(sweep, err);
    }
    return status;
}

// What the budget ended before it was measured is as if nobody had looked at it.
static void forget_unfinished(struct kiln_tune_problem *problem) {
    size_t n = 0;
    for (size_t i = 0; i < problem->n_entries; i++) {
        struct kiln_tune_entry *entry = problem->entries[i];
        if (entry->result.state != KILN_TUNE_RUNNING || entry->elsewhere) {
            problem->entries[n++] = entry;
        } else if (problem->base == entry) {
            problem->base = NULL;
        }
    }
    problem->n_entries = n;
}

static void count_states(struct kiln_tune_problem *problem) {
    for (size_t i = 0; i < problem->n_entries; i++) {
        problem->counts[problem->entries[i]->result.state]++;
    }
    problem->cut = problem->n_entries < problem->space.count;
}

static enum kiln_status run_problem(struct sweep *sweep, struct kiln_err *err) {
    double start = kiln_clock_seconds();
    sweep->told = 0;
    enum kiln_status status = sweep_problem(sweep, err);
    struct kiln_err ignored = {0};
    (void)!kiln_tune_store_release(sweep->params->store, &ignored);
    sweep->problem->seconds = kiln_clock_seconds() - start;
    forget_unfinished(sweep->problem);
    count_states(sweep->problem);
    for (size_t i = 0; sweep->cases && i < sweep->problem->space.n_parts; i++) {
        kiln_op_case_finish(&sweep->cases[i]);
    }
    kiln_free(sweep->cases);
    sweep->cases = NULL;
    kiln_tune_strategy_destroy(sweep->strategy);
    sweep->strategy = NULL;
    return status;
}

// ---- All of them --------------------------------------------------------------------------------

// The device is opened to be described and closed again: work is done elsewhere.
static enum kiln_status describe_device(struct kiln_tune *tune, struct kiln_err *err) {
    struct kiln_dev *dev = NULL;
    KILN_TRY(kiln_dev_open(&dev, tune->params->device, tune->params->settings, err));
    enum kiln_status status = kiln_device_entry_copy(&tune->device, &dev->desc, err);
    memcpy(tune->id, dev->id, sizeof(tune->id));
    kiln_health_driver(dev, tune->driver, sizeof(tune->driver));
    kiln_dev_close(dev);
    return status;
}

static enum kiln_status open_sweep(struct sweep *sweep, struct kiln_err *err) {
    const struct kiln_tune_params *p = sweep->params;
    const struct kiln_jit_params jit = {
            .cache = {.dir = p->settings->cache_dir, .max_size = p->settings->cache_max_size},
            .threads = p->settings->threads};
    const struct kiln_tune_compiler_params compiler = {.jit = &jit,
            .device = &sweep->tune->device.desc,
            .ptx = strncmp(sweep->tune->id, "sim", 3) == 0,
            .seconds = COMPILE_TIMES * p->timeout};
    const struct kiln_tune_child_params child = {.argv = p->worker,
            .memory_limit = p->memory_limit,
            .start_seconds = 120,
            .stop = p->stop};
    KILN_TRY(kiln_tune_child_create(&sweep->child, &child, err));
    KILN_TRY(kiln_tune_child_begin(sweep->child, err));
    return kiln_tune_compiler_create(&sweep->compiler, &compiler, err);
}

enum kiln_status kiln_tune_run(
        struct kiln_tune *tune, const struct kiln_tune_params *params, struct kiln_err *err) {
    *tune = (struct kiln_tune){.params = params};
    struct sweep sweep = {.tune = tune, .params = params};
    size_t n = params->n_shapes > 0 ? params->n_shapes : 1;
    tune->problems = kiln_calloc(n, sizeof(*tune->problems));
    if (!tune->problems) {
        return kiln_err_nomem(err, "a sweep");
    }
    sweep.start = kiln_clock_seconds();
    enum kiln_status status = describe_device(tune, err);
    if (status == KILN_STATUS_OK) {
        status = open_sweep(&sweep, err);
    }
    for (size_t i = 0; i < n && status == KILN_STATUS_OK; i++) {
        sweep.problem = &tune->problems[tune->n_problems++];
        sweep.shape_text = params->n_shapes > 0 ? params->shapes[i] : NULL;
        sweep.until =
                params->budget > 0 ? sweep.start + params->budget * (double)(i + 1) / (double)n : 0;
        status = run_problem(&sweep, err);
    }
    tune->workers = sweep.child ? kiln_tune_child_starts(sweep.child) : 0;
    kiln_tune_child_destroy(sweep.child);
    kiln_tune_compiler_destroy(sweep.compiler);
    return status;
}

void kiln_tune_finish(struct kiln_tune *tune) {
    for (size_t i = 0; i < tune->n_problems; i++) {
        kiln_tune_space_finish(&tune->problems[i].space);
        kiln_free(tune->problems[i].entries);
    }
    kiln_free(tune->problems);
    kiln_device_entry_finish(&tune->device);
    kiln_arena_finish(&tune->arena);
    *tune = (struct kiln_tune){.params = NULL};
}
