// tune_worker: requests to solos, verdicts and times.
#include "lab/tune_worker.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/solo.h"
#include "lab/health.h"
#include "lab/op_case.h"
#include "lab/shape.h"
#include "lab/tune_result.h"
#include "lab/tune_space.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    CASES = 4,       // of variants that are kept ready
    FINALISTS = 16,  // at once
    SEED = 20260906, // of the numbers
};

struct kept_case {
    const struct kiln_variant *variant; // NULL: empty
    struct kiln_op_case value;
};

struct worker {
    const struct kiln_tune_worker_params *params;
    struct kiln_dev *dev;
    struct kiln_health_reader *health;
    struct kiln_buf input;
    size_t used; // of the input
    char slot[64];
    struct kiln_shape shape;
    struct kept_case cases[CASES];
    unsigned next_case;
    int done; // the device is of no more use
};

struct candidate {
    const struct kiln_plugin *plugin;
    const struct kiln_variant *variant;
    const char *names[KILN_TUNE_PARAMS];
    int64_t values[KILN_TUNE_PARAMS];
    struct kiln_geometry geometry;
    const char *source;
};

// ---- Lines --------------------------------------------------------------------------------------

static int append(const char *bytes, size_t len, void *text) {
    kiln_buf_append(text, bytes, len);
    return 0;
}

// Takes `json`. A reader that is gone ends the process at the next read.
static void answer(const struct worker *worker, json_t *json) {
    struct kiln_buf text = {0};
    if (json &&
            json_dump_callback(json, append, &text, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0) {
        kiln_buf_puts(&text, "\n");
    }
    for (size_t at = 0; !text.failed && at < text.len;) {
        ssize_t n = write(worker->params->out, text.data + at, text.len - at);
        if (n <= 0 && errno != EINTR) {
            break;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    kiln_buf_finish(&text);
    json_decref(json);
}

static void say_now(const struct worker *worker, const char *what) {
    answer(worker, json_pack("{s:s}", "now", what));
}

// The next request; NULL: there is none, or memory ran out.
static json_t *next_request(struct worker *worker) {
    struct kiln_buf *in = &worker->input;
    for (;;) {
        char *start = in->data ? in->data + worker->used : NULL;
        char *end = start ? memchr(start, '\n', in->len - worker->used) : NULL;
        if (end) {
            json_error_t problem;
            json_t *request = json_loadb(start, (size_t)(end - start), 0, &problem);
            worker->used = (size_t)(end - in->data) + 1;
            return request;
        }
        if (worker->used == in->len) {
            kiln_buf_clear(in);
            worker->used = 0;
        }
        char bytes[4096];
        ssize_t n = read(worker->params->in, bytes, sizeof(bytes));
        if (n == 0 || (n < 0 && errno != EINTR) || in->failed) {
            return NULL;
        }
        kiln_buf_append(in, bytes, n > 0 ? (size_t)n : 0);
    }
}

// ---- Problems and candidates --------------------------------------------------------------------

static void drop_cases(struct worker *worker) {
    for (size_t i = 0; i < CASES; i++) {
        if (worker->cases[i].variant) {
            kiln_op_case_finish(&worker->cases[i].value);
        }
        worker->cases[i].variant = NULL;
    }
}

static enum kiln_status set_problem(
        struct worker *worker, const json_t *request, struct kiln_err *err) {
    const char *slot = json_string_value(json_object_get(request, "slot"));
    const char *shape = json_string_value(json_object_get(request, "shape"));
    drop_cases(worker);
    worker->shape = (struct kiln_shape){.m = 0};
    (void)snprintf(worker->slot, sizeof(worker->slot), "%s", slot ? slot : "");
    return shape && *shape ? kiln_shape_parse(&worker->shape, shape, err) : KILN_STATUS_OK;
}

static enum kiln_status case_of(struct worker *worker, const struct candidate *candidate,
        struct kiln_op_case **found, struct kiln_err *err) {
    for (size_t i = 0; i < CASES; i++) {
        if (worker->cases[i].variant == candidate->variant) {
            *found = &worker->cases[i].value;
            return KILN_STATUS_OK;
        }
    }
    struct kept_case *kept = &worker->cases[worker->next_case++ % CASES];
    if (kept->variant) {
        kiln_op_case_finish(&kept->value);
    }
    *kept = (struct kept_case){.variant = NULL};
    enum kiln_status status = kiln_op_case_make(&kept->value, worker->slot, candidate->plugin,
            candidate->variant, &worker->shape, KILN_FILL_NORMAL, SEED, err);
    if (status != KILN_STATUS_OK) {
        kiln_op_case_finish(&kept->value);
        return status;
    }
    kept->variant = candidate->variant;
    *found = &kept->value;
    return KILN_STATUS_OK;
}

static enum kiln_status read_candidate(const struct worker *worker, const json_t *json,
        struct candidate *candidate, struct kiln_err *err) {
    const char *plugin = json_string_value(json_object_get(json, "plugin"));
    const char *variant = json_string_value(json_object_get(json, "variant"));
    const json_t *values = json_object_get(json, "values");
    *candidate = (struct candidate){
            .plugin = plugin ? kiln_registry_find(worker->params->registry, plugin) : NULL,
            .source = json_string_value(json_object_get(json, "source"))};
    for (uint32_t i = 0; candidate->plugin && variant && i < candidate->plugin->n_variants; i++) {
        if (strcmp(candidate->plugin->variants[i]->name, variant) == 0) {
            candidate->variant = candidate->plugin->variants[i];
        }
    }
    if (!candidate->variant || json_array_size(values) != candidate->variant->n_params ||
            candidate->variant->n_params > KILN_TUNE_PARAMS) {
        return kiln_err_set(err, KILN_STATUS_FILE, "no variant %s/%s with %zu parameters here",
                plugin ? plugin : "?", variant ? variant : "?", json_array_size(values));
    }
    for (uint32_t i = 0; i < candidate->variant->n_params; i++) {
        candidate->names[i] = candidate->variant->params[i]->name;
        candidate->values[i] = json_integer_value(json_array_get(values, i));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status create_solo(struct worker *worker, struct candidate *candidate,
        struct kiln_op_case *c, struct kiln_solo **solo, enum kiln_plan_outcome *outcome,
        struct kiln_err *err) {
    void *instance;
    candidate->geometry = (struct kiln_geometry){.struct_size = sizeof(candidate->geometry),
            .n_values = candidate->variant->n_params,
            .names = candidate->names,
            .values = candidate->values};
    KILN_TRY(kiln_registry_start(
            worker->params->registry, candidate->plugin, &worker->dev->desc, &instance, err));
    struct kiln_solo_params params = {.dev = worker->dev,
            .plugin = candidate->plugin,
            .variant = candidate->variant,
            .instance = instance,
            .geometry = &candidate->geometry,
            .source = candidate->source,
            .problem = &c->problem,
            .data = c->data,
            .edges = c->edges};
    return kiln_solo_create(solo, &params, outcome, err);
}

// ---- Measuring ----------------------------------------------------------------------------------

static void set_state(struct kiln_tune_result *result, enum kiln_tune_state state, const char *what,
        const struct kiln_err *err) {
    result->state = state;
    (void)snprintf(result->cause, sizeof(result->cause), "%s%.400s", what, err->text);
}

// A failure of the device while a kernel was made ready or ran. Whether the device has gone with
// it, its next call tells.
static void set_failure(struct worker *worker, struct kiln_tune_result *result,
        enum kiln_status status, enum kiln_tune_state otherwise, const struct kiln_err *err) {
    struct kiln_err ignored = {0};
    if (status == KILN_STATUS_NOMEM) {
        set_state(result, KILN_TUNE_MEMORY, "", err);
    } else if (worker->dev->ops->sync(worker->dev, &ignored) != KILN_STATUS_OK) {
        set_state(result, KILN_TUNE_FAULT, "", err);
        worker->done = 1;
    } else {
        set_state(result, otherwise, "", err);
    }
}

struct plan_of_samples {
    int64_t warm, cold;
    double seconds; // that either kind may take, about
};

static enum kiln_status sample(struct kiln_solo *solo, const struct kiln_solo_timing *timing,
        struct kiln_tune_times *times, struct kiln_err *err) {
    KILN_TRY(kiln_solo_time(solo, timing, times->seconds, err));
    times->n = (int32_t)timing->runs;
    kiln_tune_times_finish(times);
    return KILN_STATUS_OK;
}

// At least three samples however long one takes: fewer have no spread.
static int64_t affordable(int64_t wanted, double seconds, double each) {
    double fit = seconds / (each > 1e-9 ? each : 1e-9);
    int64_t most = wanted < KILN_TUNE_SAMPLES ? wanted : KILN_TUNE_SAMPLES;
    return fit >= (double)most ? most : fit > 3 ? (int64_t)fit : most < 3 ? most : 3;
}

static enum kiln_status time_solo(struct worker *worker, struct kiln_solo *solo,
        const struct plan_of_samples *plan, struct kiln_tune_result *result, struct kiln_err *err) {
    double first = 0;
    struct kiln_solo_timing timing = {.runs = 1, .repeats = 1};
    say_now(worker, "taking its time");
    KILN_TRY(kiln_solo_time(solo, &timing, &first, err));
    timing = (struct kiln_solo_timing){.runs = affordable(plan->warm, plan->seconds, first)};
    KILN_TRY(sample(solo, &timing, &result->warm, err));
    if (plan->cold > 0) {
        timing = (struct kiln_solo_timing){
                .runs = affordable(plan->cold, plan->seconds, first), .cold = 1};
        KILN_TRY(sample(solo, &timing, &result->cold, err));
    }
    struct kiln_health health = kiln_health_read(worker->health);
    if (health.sm_mhz >= 0) {
        (void)snprintf(result->device_note, sizeof(result->device_note), "%d MHz, %d W, %d C",
                health.sm_mhz, (int)health.watts, health.celsius);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_solo(struct worker *worker, struct kiln_op_case *c,
        struct kiln_solo *solo, struct kiln_tune_result *result, struct kiln_err *err) {
    struct kiln_op_verdict verdict;
    struct kiln_err fault = {0};
    say_now(worker, "running it for the first time");
    enum kiln_status status = kiln_solo_run(solo, &fault);
    status = status == KILN_STATUS_OK ? kiln_solo_sync(solo, &fault) : status;
    if (status != KILN_STATUS_OK) {
        set_failure(worker, result, status, KILN_TUNE_FAULT, &fault);
        return KILN_STATUS_OK;
    }
    say_now(worker, "judging what it wrote");
    status = kiln_op_case_judge(c, solo, &verdict, &fault);
    if (status == KILN_STATUS_CHECK) { // a guard behind an operand
        set_state(result, KILN_TUNE_PARITY, "", &fault);
        return KILN_STATUS_OK;
    }
    if (status != KILN_STATUS_OK) {
        set_failure(worker, result, status, KILN_TUNE_FAULT, &fault);
        return KILN_STATUS_OK;
    }
    result->parity = verdict.worst;
    if (!verdict.passed) {
        (void)snprintf(result->cause, sizeof(result->cause),
                "row %lld, column %lld is %.9g and must be %.9g within %.3g%s%.127s",
                (long long)verdict.row, (long long)verdict.col, verdict.got, verdict.want,
                verdict.bound, verdict.why[0] ? "; " : "", verdict.why);
        result->state = KILN_TUNE_PARITY;
        return KILN_STATUS_OK;
    }
    (void)err;
    result->state = KILN_TUNE_OK;
    return KILN_STATUS_OK;
}

static enum kiln_status measure_candidate(struct worker *worker, struct candidate *candidate,
        const struct plan_of_samples *plan, struct kiln_tune_result *result, struct kiln_err *err) {
    struct kiln_op_case *c;
    struct kiln_solo *solo = NULL;
    struct kiln_err fault = {0};
    enum kiln_plan_outcome outcome = KILN_PLAN_DONE;
    say_now(worker, "making its problem");
    KILN_TRY(case_of(worker, candidate, &c, err));
    say_now(worker, "making it ready");
    enum kiln_status status = create_solo(worker, candidate, c, &solo, &outcome, &fault);
    if (status != KILN_STATUS_OK) {
        set_failure(worker, result, status,
                status == KILN_STATUS_DEVICE ? KILN_TUNE_LIMITS : KILN_TUNE_COMPILE, &fault);
        return KILN_STATUS_OK;
    }
    if (outcome == KILN_PLAN_DECLINED) {
        set_state(result, KILN_TUNE_DECLINED, "", &fault);
        return KILN_STATUS_OK;
    }
    status = check_solo(worker, c, solo, result, err);
    if (status == KILN_STATUS_OK && result->state == KILN_TUNE_OK) {
        enum kiln_status timed = time_solo(worker, solo, plan, result, &fault);
        if (timed != KILN_STATUS_OK) {
            set_failure(worker, result, timed, KILN_TUNE_FAULT, &fault);
        }
    }
    kiln_solo_destroy(solo);
    return status;
}

static json_t *times_json(const struct kiln_tune_times *times) {
    json_t *array = json_array();
    for (int32_t i = 0; array && i < times->n; i++) {
        (void)json_array_append_new(array, json_real(times->seconds[i]));
    }
    return array;
}

static enum kiln_status measure(
        struct worker *worker, const json_t *request, json_t **reply, struct kiln_err *err) {
    struct candidate candidate;
    struct kiln_tune_result result = {.state = KILN_TUNE_FAULT};
    const struct plan_of_samples plan = {
            .warm = json_integer_value(json_object_get(request, "samples")),
            .cold = json_integer_value(json_object_get(request, "cold_samples")),
            .seconds = json_number_value(json_object_get(request, "seconds"))};
    KILN_TRY(read_candidate(worker, request, &candidate, err));
    KILN_TRY(measure_candidate(worker, &candidate, &plan, &result, err));
    double parity = isfinite(result.parity) ? result.parity : 1e30;
    *reply = json_pack("{s:s, s:s, s:f, s:o, s:o, s:s, s:b}", "state",
            kiln_tune_state_name(result.state), "cause", result.cause, "parity", parity, "warm",
            times_json(&result.warm), "cold", times_json(&result.cold), "note", result.device_note,
            "last", worker->done);
    return KILN_STATUS_OK;
}

// The problem's numbers and what must come of them, which take a while, before a first candidate.
static enum kiln_status prepare(
        struct worker *worker, const json_t *request, struct kiln_err *err) {
    struct candidate candidate;
    struct kiln_op_case *c;
    say_now(worker, "making its problem");
    KILN_TRY(read_candidate(worker, request, &candidate, err));
    KILN_TRY(case_of(worker, &candidate, &c, err));
    return kiln_op_case_reckon(c, err);
}

// ---- Finals -------------------------------------------------------------------------------------

struct final {
    struct candidate candidates[FINALISTS];
    struct kiln_solo *solos[FINALISTS];
    size_t n;
};

static enum kiln_status enter(
        struct worker *worker, const json_t *json, struct final *final, struct kiln_err *err) {
    struct candidate *candidate = &final->candidates[final->n];
    struct kiln_op_case *c;
    enum kiln_plan_outcome outcome = KILN_PLAN_DONE;
    KILN_TRY(read_candidate(worker, json, candidate, err));
    KILN_TRY(case_of(worker, candidate, &c, err));
    KILN_TRY(create_solo(worker, candidate, c, &final->solos[final->n], &outcome, err));
    if (outcome == KILN_PLAN_DECLINED) {
        return kiln_err_set(err, KILN_STATUS_CHECK, "a finalist declined");
    }
    final->n++;
    return KILN_STATUS_OK;
}

// A round: every finalist once and the first once more, beginning with another each time and every
// other time backwards.
static enum kiln_status play_round(
        const struct final *final, size_t round, json_t *times, struct kiln_err *err) {
    double seconds[FINALISTS + 1] = {0};
    size_t count = final->n + 1;
    const struct kiln_solo_timing timing = {.runs = 1};
    for (size_t i = 0; i < count; i++) {
        size_t at = (i + round / 2) % count;
        at = round % 2 ? count - 1 - at : at;
        KILN_TRY(kiln_solo_time(final->solos[at == final->n ? 0 : at], &timing, &seconds[at], err));
    }
    for (size_t i = 0; i < count; i++) {
        if (json_array_append_new(times, json_real(seconds[i])) != 0) {
            return kiln_err_nomem(err, "a final's times");
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status play(struct worker *worker, const json_t *request, struct final *final,
        json_t *rounds, struct kiln_err *err) {
    const json_t *candidates = json_object_get(request, "candidates");
    size_t n = json_array_size(candidates);
    json_int_t count = json_integer_value(json_object_get(request, "rounds"));
    if (n == 0 || n > FINALISTS) {
        return kiln_err_set(err, KILN_STATUS_FILE, "1 to %d finalists", (int)FINALISTS);
    }
    say_now(worker, "making the finalists ready");
    for (size_t i = 0; i < n; i++) {
        KILN_TRY(enter(worker, json_array_get(candidates, i), final, err));
    }
    say_now(worker, "playing the final");
    for (size_t i = 0; i < final->n; i++) { // the first call of each is warmed up outside
        KILN_TRY(kiln_solo_run(final->solos[i], err));
        KILN_TRY(kiln_solo_sync(final->solos[i], err));
    }
    for (size_t i = 0; i < (size_t)count; i++) {
        json_t *times = json_array();
        if (!times || json_array_append_new(rounds, times) != 0) {
            return kiln_err_nomem(err, "a final's times");
        }
        KILN_TRY(play_round(final, i, times, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status play_final(
        struct worker *worker, const json_t *request, json_t **reply, struct kiln_err *err) {
    struct final *final = kiln_calloc(1, sizeof(*final));
    json_t *rounds = json_array();
    enum kiln_status status = final && rounds ? play(worker, request, final, rounds, err)
                                              : kiln_err_nomem(err, "a final");
    for (size_t i = 0; final && i < final->n; i++) {
        kiln_solo_destroy(final->solos[i]);
    }
    kiln_free(final);
    if (status != KILN_STATUS_OK) {
        json_decref(rounds);
        return status;
    }
    *reply = json_pack("{s:o}", "rounds", rounds);
    return KILN_STATUS_OK;
}

// ---- The loop -----------------------------------------------------------------------------------

static void serve(struct worker *worker, const json_t *request) {
    const char *what = json_string_value(json_object_get(request, "do"));
    struct kiln_err err = {0};
    json_t *reply = NULL;
    enum kiln_status status =
            !what                          ? KILN_STATUS_FILE
            : strcmp(what, "problem") == 0 ? set_problem(worker, request, &err)
            : strcmp(what, "prepare") == 0 ? prepare(worker, request, &err)
            : strcmp(what, "measure") == 0 ? measure(worker, request, &reply, &err)
            : strcmp(what, "final") == 0   ? play_final(worker, request, &reply, &err)
                                           : KILN_STATUS_FILE;
    if (status != KILN_STATUS_OK) {
        json_decref(reply);
        reply = json_pack("{s:s, s:i}", "error", err.text, "status", (int)status);
    } else if (!reply) {
        reply = json_pack("{s:b}", "ok", 1);
    }
    answer(worker, reply);
}

enum kiln_status kiln_tune_worker_run(
        const struct kiln_tune_worker_params *params, struct kiln_err *err) {
    struct worker *worker = kiln_calloc(1, sizeof(*worker));
    if (!worker) {
        return kiln_err_nomem(err, "a worker");
    }
    worker->params = params;
    enum kiln_status status = kiln_dev_open(&worker->dev, params->device, params->settings, err);
    if (status != KILN_STATUS_OK) {
        answer(worker, json_pack("{s:s, s:i}", "error", err->text, "status", (int)status));
        kiln_free(worker);
        return status;
    }
    worker->health = kiln_health_open(worker->dev);
    answer(worker, json_pack("{s:b}", "ok", 1));
    json_t *request;
    while (!worker->done && (request = next_request(worker)) != NULL) {
        serve(worker, request);
        json_decref(request);
    }
    drop_cases(worker);
    kiln_health_close(worker->health);
    kiln_buf_finish(&worker->input);
    kiln_dev_close(worker->dev);
    kiln_free(worker);
    return KILN_STATUS_OK;
}
