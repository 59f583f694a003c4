// parity: runs trials side by side, keeps what came out. parity_list.c says which.
#include "lab/parity_impl.h"

#include "base/mem.h"
#include "device/sim/sim.h"
#include "jit/nvrtc.h"
#include "plugin/schema.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_PARAMS = 64
};

struct worker { // a thread's own
    struct kiln_dev *dev;
    struct kiln_registry *registry;
    struct kiln_err err; // what ended it
};

struct run {
    struct kiln_parity *parity;
    const struct kiln_parity_params *params;
    struct worker *workers;
    pthread_mutex_t opening; // held while a worker opens what is its own
    atomic_int failed;       // a worker's err is set: the rest is not run
    atomic_int_least64_t done;
};

// ---- One trial ----------------------------------------------------------------------------------
struct attempt {
    struct worker *worker;
    struct kiln_trial *trial;
    const struct kiln_plugin *plugin;
    const struct kiln_variant *variant;
    struct kiln_geometry geometry;
    const char *names[MAX_PARAMS];
    int64_t values[MAX_PARAMS];
    struct kiln_op_case problem;
    struct kiln_solo *solo;
};

static void fail(struct kiln_trial *trial, const char *text) {
    trial->result = KILN_TRIAL_FAILED;
    (void)snprintf(trial->text, sizeof(trial->text), "%s", text);
}

// The worker's own copies of plugin and variant, and the geometry.
static enum kiln_status find(struct attempt *at, struct kiln_err *err) {
    struct kiln_trial *trial = at->trial;
    at->plugin = kiln_registry_find(at->worker->registry, trial->plugin);
    for (uint32_t i = 0; at->plugin && i < at->plugin->n_variants; i++) {
        const struct kiln_variant *variant = at->plugin->variants[i];
        if (strcmp(variant->name, trial->variant) == 0 &&
                kiln_variant_fills(variant, trial->slot)) {
            at->variant = variant;
        }
    }
    if (!at->variant || at->variant->n_params > MAX_PARAMS) {
        return kiln_err_set(err, KILN_STATUS_FILE, "plugin %s: variant %s is not there any more",
                trial->plugin, trial->variant);
    }
    at->geometry = (struct kiln_geometry){.struct_size = sizeof(at->geometry),
            .n_values = at->variant->n_params,
            .names = at->names,
            .values = at->values};
    int32_t hd = trial->shape.head_size ? trial->shape.head_size : 128;
    for (uint32_t i = 0; i < at->variant->n_params; i++) {
        at->names[i] = at->variant->params[i]->name;
        at->values[i] = trial->geometry.names ? trial->geometry.values[i]
                                              : kiln_param_default_value(at->variant->params[i], hd,
                                                        at->worker->dev->desc.cc);
    }
    return KILN_STATUS_OK;
}

// Fails the trial by the first fault that sim found in it.
static void judge_faults(struct attempt *at) {
    struct kiln_sim_report *report = kiln_sim_dev_report(at->worker->dev);
    const struct kiln_sim_finding *findings = NULL;
    uint32_t n = report ? kiln_sim_findings(report, &findings) : 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!findings[i].advice) {
            fail(at->trial, findings[i].text);
            return;
        }
    }
}

// Whether the plan is sound but more than the device has.
static int exceeds(struct attempt *at, void *instance, struct kiln_err *why) {
    enum kiln_plan_outcome outcome = KILN_PLAN_DONE;
    struct kiln_planned *planned = NULL;
    enum kiln_status status = kiln_plan_make(at->plugin, at->variant, instance,
            &at->problem.problem, &at->geometry, &at->worker->dev->desc, &outcome, &planned, why);
    kiln_planned_destroy(planned);
    return status == KILN_STATUS_DEVICE;
}

static enum kiln_status start(struct attempt *at, struct kiln_err *err) {
    struct kiln_trial *trial = at->trial;
    enum kiln_plan_outcome outcome = KILN_PLAN_DONE;
    void *instance = NULL;
    KILN_TRY(kiln_registry_start(
            at->worker->registry, at->plugin, &at->worker->dev->desc, &instance, err));
    const struct kiln_solo_params params = {.dev = at->worker->dev,
            .plugin = at->plugin,
            .variant = at->variant,
            .instance = instance,
            .geometry = &at->geometry,
            .source = trial->source,
            .problem = &at->problem.problem,
            .data = at->problem.data,
            .edges = at->problem.edges};
    struct kiln_err why = {0};
    if (trial->corner >= 0 && exceeds(at, instance, &why)) {
        trial->result = KILN_TRIAL_REFUSED;
        (void)snprintf(trial->text, sizeof(trial->text), "%s", why.text);
        return KILN_STATUS_OK;
    }
    enum kiln_status status = kiln_solo_create(&at->solo, &params, &outcome, &why);
    if (status == KILN_STATUS_OK && outcome == KILN_PLAN_DECLINED) {
        trial->result = KILN_TRIAL_SKIPPED;
        (void)snprintf(trial->text, sizeof(trial->text), "%s", why.text);
    } else if (status != KILN_STATUS_OK) {
        *err = why;
    }
    return status;
}

// Operands that the call overwrote are what they were.
static enum kiln_status rewrite(struct attempt *at, struct kiln_err *err) {
    const struct kiln_op_case *c = &at->problem;
    for (uint32_t op = 0; op < c->problem.n_ops; op++) {
        for (uint32_t operand = 1; operand < KILN_SOLO_OPERANDS; operand++) {
            const void *data = c->data[(size_t)op * KILN_SOLO_OPERANDS + operand];
            if (data && kiln_op_case_is_output(c, op, operand)) {
                KILN_TRY(kiln_solo_write(at->solo, op, operand, data, err));
            }
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status run_once(struct attempt *at, struct kiln_err *err) {
    KILN_TRY(kiln_solo_run(at->solo, err));
    return kiln_solo_sync(at->solo, err);
}

// The bits of all outputs are those of the run before.
static enum kiln_status run_again(struct attempt *at, struct kiln_err *err) {
    const struct kiln_op_case *c = &at->problem;
    enum kiln_status status = KILN_STATUS_OK;
    for (uint32_t op = 0; op < c->problem.n_ops; op++) {
        const struct kiln_tensor *const *operands = c->problem.ops[op]->operands;
        for (uint32_t i = 0; i < c->problem.ops[op]->n_operands && status == KILN_STATUS_OK; i++) {
            uint32_t operand = operands[i]->operand;
            uint64_t bytes = kiln_solo_span(operands[i]);
            if (!kiln_op_case_is_output(c, op, operand)) {
                continue;
            }
            void *first = kiln_alloc(bytes), *second = kiln_alloc(bytes);
            status = first && second ? kiln_solo_read(at->solo, op, operand, first, err)
                                     : kiln_err_nomem(err, "an output");
            if (status == KILN_STATUS_OK) {
                status = rewrite(at, err);
            }
            if (status == KILN_STATUS_OK) {
                status = run_once(at, err);
            }
            if (status == KILN_STATUS_OK) {
                status = kiln_solo_read(at->solo, op, operand, second, err);
            }
            if (status == KILN_STATUS_OK && memcmp(first, second, bytes) != 0) {
                fail(at->trial, "not the same bits when run again");
            }
            kiln_free(first);
            kiln_free(second);
        }
    }
    return status;
}

static void say_verdict(struct kiln_trial *trial) {
    const struct kiln_op_verdict *v = &trial->verdict;
    trial->result = v->passed ? KILN_TRIAL_PASSED : KILN_TRIAL_FAILED;
    if (v->why[0]) {
        fail(trial, v->why);
    } else if (!v->passed) {
        (void)snprintf(trial->text, sizeof(trial->text),
                "row %lld, column %lld: %.9g, must be %.9g within %.3g", (long long)v->row,
                (long long)v->col, v->got, v->want, v->bound);
    }
}

static enum kiln_status judge(struct attempt *at, struct kiln_err *err) {
    KILN_TRY(run_once(at, err));
    KILN_TRY(kiln_op_case_judge(&at->problem, at->solo, &at->trial->verdict, err));
    say_verdict(at->trial);
    judge_faults(at);
    if (at->trial->result == KILN_TRIAL_PASSED && !kiln_sim_dev_report(at->worker->dev)) {
        return run_again(at, err);
    }
    return KILN_STATUS_OK;
}

static uint64_t seed_of(const struct kiln_trial *trial) {
    const struct kiln_shape *s = &trial->shape;
    return (uint64_t)s->m * 31 + (uint64_t)s->n * 7 + (uint64_t)s->k + (uint64_t)s->head_size;
}

// What fails for a reason of the call's own fails the trial; the rest ends the run.
static enum kiln_status try_it(
        struct worker *worker, struct kiln_trial *trial, struct kiln_err *err) {
    struct attempt at = {.worker = worker, .trial = trial};
    struct kiln_err cause = {0};
    if (kiln_sim_dev_report(worker->dev)) {
        kiln_sim_report_clear(kiln_sim_dev_report(worker->dev));
    }
    enum kiln_status status = find(&at, &cause);
    if (status == KILN_STATUS_OK) {
        status = kiln_op_case_make(&at.problem, trial->slot, at.plugin, at.variant, &trial->shape,
                trial->fill, seed_of(trial), &cause);
        if (at.problem.reference) {
            kiln_op_case_name(&at.problem, trial->name, sizeof(trial->name));
        }
        if (status == KILN_STATUS_USAGE) { // no oracle
            trial->result = KILN_TRIAL_SKIPPED;
            (void)snprintf(trial->text, sizeof(trial->text), "%s", cause.text);
            status = KILN_STATUS_OK;
        } else if (status == KILN_STATUS_OK) {
            status = start(&at, &cause);
        }
    }
    if (status == KILN_STATUS_OK && at.solo) {
        status = judge(&at, &cause);
    }
    kiln_solo_destroy(at.solo);
    kiln_op_case_finish(&at.problem);
    if (status == KILN_STATUS_NOMEM || status == KILN_STATUS_INTERRUPTED) {
        *err = cause;
        return status;
    }
    if (status != KILN_STATUS_OK) {
        fail(trial, cause.text);
        judge_faults(&at);
    }
    return KILN_STATUS_OK;
}

// ---- All of them --------------------------------------------------------------------------------
// By the thread that uses it: a GPU's context is a thread's.
static enum kiln_status open_worker(
        const struct kiln_parity_params *params, struct worker *worker, struct kiln_err *err) {
    struct kiln_dev_settings settings = *params->settings;
    settings.threads = 1;
    KILN_TRY(kiln_dev_open(&worker->dev, params->device, &settings, err));
    return params->open_registry(params->arg, &worker->registry, err);
}

static enum kiln_status ready(struct run *run, struct worker *worker) {
    if (worker->dev) {
        return KILN_STATUS_OK;
    }
    pthread_mutex_lock(&run->opening);
    enum kiln_status status = open_worker(run->params, worker, &worker->err);
    pthread_mutex_unlock(&run->opening);
    return status;
}

static void run_trial(void *arg, uint32_t index, uint32_t number) {
    struct run *run = arg;
    struct worker *worker = &run->workers[number];
    if (run->params->begin) {
        run->params->begin(run->params->progress_arg, &run->parity->trials[index]);
    }
    if (!atomic_load(&run->failed) &&
            (ready(run, worker) != KILN_STATUS_OK ||
                    try_it(worker, &run->parity->trials[index], &worker->err) != KILN_STATUS_OK)) {
        atomic_store(&run->failed, 1);
    }
    int64_t done = atomic_fetch_add(&run->done, 1) + 1;
    if (run->params->progress && number == 0) {
        run->params->progress(run->params->progress_arg, done, (int64_t)run->parity->count);
    }
}

static enum kiln_status run_all(struct run *run, uint32_t n_workers, struct kiln_err *err) {
    struct kiln_pool *pool = NULL;
    KILN_TRY(kiln_pool_create(&pool, n_workers, err));
    kiln_pool_run(pool, run_trial, run, (uint32_t)run->parity->count);
    kiln_pool_destroy(pool);
    for (uint32_t i = 0; i < n_workers; i++) {
        if (run->workers[i].err.status != KILN_STATUS_OK) {
            *err = run->workers[i].err;
            return err->status;
        }
    }
    return KILN_STATUS_OK;
}

// Whether kernels can be compiled at all: else each trial would fail for the same reason.
static enum kiln_status need_compiler(const struct kiln_dev *dev, struct kiln_err *err) {
    struct kiln_nvrtc *nvrtc = NULL;
    if (dev->desc.kind == KILN_DEVICE_CUDA) {
        KILN_TRY(kiln_nvrtc_open(&nvrtc, err));
    }
    kiln_nvrtc_close(nvrtc);
    return KILN_STATUS_OK;
}

enum kiln_status kiln_parity_run(
        struct kiln_parity *parity, const struct kiln_parity_params *params, struct kiln_err *err) {
    uint32_t n = params->settings->threads ? params->settings->threads : kiln_cpu_count();
    struct run run = {.parity = parity, .params = params, .opening = PTHREAD_MUTEX_INITIALIZER};
    run.workers = kiln_calloc(n, sizeof(*run.workers));
    if (!run.workers) {
        return kiln_err_nomem(err, "the trials");
    }
    enum kiln_status status = open_worker(params, &run.workers[0], err);
    if (status == KILN_STATUS_OK) {
        const struct kiln_dev *dev = run.workers[0].dev;
        memcpy(parity->device, dev->id, sizeof(parity->device));
        status = kiln_parity_list(parity, params, &dev->desc, err);
    }
    if (status == KILN_STATUS_OK) {
        status = need_compiler(run.workers[0].dev, err);
    }
    if (status == KILN_STATUS_OK) {
        status = run_all(&run, n, err);
    }
    for (uint32_t i = 0; i < n; i++) {
        kiln_registry_destroy(run.workers[i].registry);
        kiln_dev_close(run.workers[i].dev);
    }
    (void)pthread_mutex_destroy(&run.opening);
    kiln_free(run.workers);
    return status;
}

void kiln_parity_finish(struct kiln_parity *parity) {
    kiln_free(parity->trials);
    kiln_arena_finish(&parity->arena);
    *parity = (struct kiln_parity){.trials = NULL};
}
