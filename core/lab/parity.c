// parity: lists trials, runs them side by side, keeps what came out.
#include "lab/parity.h"

#include "base/mem.h"
#include "config/slot.h"
#include "device/sim/sim.h"
#include "jit/nvrtc.h"
#include "model/dtype.h"
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

// ---- Listing ------------------------------------------------------------------------------------
static int wanted(const struct kiln_parity_params *params, const char *slot) {
    int found = params->n_slots == 0;
    for (size_t i = 0; i < params->n_slots; i++) {
        found |= kiln_slot_overlap(params->slots[i], slot);
    }
    return found;
}

static enum kiln_status add_trial(
        struct kiln_parity *parity, const struct kiln_trial *trial, struct kiln_err *err) {
    if (kiln_grow(&parity->trials, &parity->cap, parity->count + 1, sizeof(*parity->trials)) != 0) {
        return kiln_err_nomem(err, "the trials");
    }
    parity->trials[parity->count++] = *trial;
    return KILN_STATUS_OK;
}

// Whether an operand of the first op is a block of 32 columns in the format that a shape asks for.
static int has_blocks(const struct kiln_variant *variant, uint32_t format) {
    for (uint32_t i = 0; i < variant->n_ios; i++) {
        const struct kiln_io *io = variant->ios[i];
        const char *name = io->formats[format < io->n_formats ? format : io->n_formats - 1];
        if ((io->operand == KILN_OPERAND_IN || io->operand == KILN_OPERAND_OUT) &&
                !kiln_dtype_by_name(name)) {
            return 1;
        }
    }
    return 0;
}

struct candidate {
    const struct kiln_plugin *plugin;
    const struct kiln_variant *variant;
    const struct kiln_binding *binding; // NULL: defaults
    const char *slot;
    uint32_t dtype; // of its weights
};

static int has_matrices(const struct kiln_variant *variant) {
    for (uint32_t i = 0; i < variant->n_follows; i++) {
        if (strncmp(variant->follows[i], "matmul", 6) == 0) {
            return 1;
        }
    }
    return 0;
}

// Shape number i of a candidate; 0 past the end.
static int shape_of(const struct kiln_parity_params *params, const struct candidate *of, uint32_t i,
        struct kiln_parity_shape *shape) {
    const struct kiln_dtype_info *info = kiln_dtype_info(of->dtype);
    int group = has_matrices(of->variant);
    // A norm and its matrices are made for a few rows, as gemv is.
    const char *like = group ? "matmul.f32.decode" : of->slot;
    int weights = group || strncmp(of->slot, "matmul.", 7) == 0 || strcmp(of->slot, "embed") == 0;
    int64_t columns = weights ? info->elems : 1;
    if (!kiln_parity_shape(like, params->full, i, columns, shape)) {
        return 0;
    }
    if (has_blocks(of->variant, shape->shape.format) && columns < 32) {
        (void)kiln_parity_shape(like, params->full, i, 32, shape);
    }
    if (weights) {
        uint32_t f32 = KILN_SHAPE_F32;
        shape->shape.weight_dtype = of->dtype == KILN_DTYPE_F32 ? f32 : of->dtype;
        if (group && i % 2 && of->dtype == KILN_DTYPE_Q4_K) {
            shape->shape.last_dtype = KILN_DTYPE_Q6_K;
        }
    }
    return 1;
}

static enum kiln_status add_shapes(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct candidate *of, struct kiln_err *err) {
    struct kiln_parity_shape shape;
    for (uint32_t i = 0; shape_of(params, of, i, &shape); i++) {
        struct kiln_trial trial = {.plugin = of->plugin->name,
                .variant = of->variant->name,
                .shape = shape.shape,
                .fill = shape.fill,
                .result = KILN_TRIAL_NOT_RUN,
                .verdict = {.worst = -1}};
        (void)snprintf(trial.slot, sizeof(trial.slot), "%s", of->slot);
        if (of->binding) {
            trial.geometry = of->binding->geometry;
            trial.source = of->binding->source;
        }
        KILN_TRY(add_trial(parity, &trial, err));
    }
    return KILN_STATUS_OK;
}

// With every weight type that its slot leaves open.
static enum kiln_status add_types(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct candidate *of, struct kiln_err *err) {
    const struct kiln_dtype_info *info;
    int open = strcmp(of->slot, "embed") == 0 || has_matrices(of->variant);
    if (!open) {
        return add_shapes(parity, params, of, err);
    }
    for (uint32_t i = 0; (info = kiln_dtype_at(i)) != NULL; i++) {
        struct candidate typed = *of;
        typed.dtype = info->dtype;
        // A group's matrices are of block types: others it declines.
        if (info->weight && (info->elems > 1 || strcmp(of->slot, "embed") == 0)) {
            KILN_TRY(add_shapes(parity, params, &typed, err));
        }
    }
    return KILN_STATUS_OK;
}

// What the config binds to a slot: each binding that some call of it can get.
static enum kiln_status add_bound(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct kiln_device *device,
        struct candidate *of, struct kiln_err *err) {
    struct kiln_bind_query query = {.slot = of->slot,
            .m = strstr(of->slot, ".decode") ? 1 : 512,
            .n = 3584,
            .k = 3584, // a multiple of every block
            .hd = 128,
            .role = "",
            .layer = 0,
            .phase = strstr(of->slot, ".decode") ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL,
            .device = device};
    for (unsigned skip = 0;; skip++) {
        struct kiln_err none = {0};
        enum kiln_status status =
                kiln_config_bind(params->config, &query, skip, &of->binding, &none);
        if (status == KILN_STATUS_CONFIG || !of->binding || !of->binding->variant) {
            return KILN_STATUS_OK; // nothing that runs here
        }
        if (status != KILN_STATUS_OK) {
            return kiln_err_set(err, status, "%s", none.text);
        }
        of->plugin = of->binding->plugin;
        of->variant = of->binding->variant;
        if (!params->variant || strcmp(params->variant, of->variant->name) == 0) {
            KILN_TRY(add_types(parity, params, of, err));
        }
        if (of->variant->n_follows == 0) {
            return KILN_STATUS_OK;
        }
    }
}

static enum kiln_status add_all(struct kiln_parity *parity, const struct kiln_parity_params *params,
        const struct kiln_device *device, struct candidate *of, struct kiln_err *err) {
    const struct kiln_plugin *const *plugins = kiln_registry_plugins(params->registry);
    for (size_t p = 0; p < kiln_registry_count(params->registry); p++) {
        for (uint32_t v = 0; v < plugins[p]->n_variants; v++) {
            const struct kiln_variant *variant = plugins[p]->variants[v];
            if (!(variant->devices & device->kind) || !kiln_variant_fills(variant, of->slot) ||
                    (params->variant && strcmp(params->variant, variant->name) != 0)) {
                continue;
            }
            of->plugin = plugins[p];
            of->variant = variant;
            KILN_TRY(add_types(parity, params, of, err));
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status add_slot(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct kiln_device *device,
        enum kiln_op_kind op, uint32_t dtype, enum kiln_phase phase, struct kiln_err *err) {
    char slot[KILN_SLOT_NAME_MAX];
    kiln_slot_name(slot, op, dtype, phase);
    struct candidate of = {.slot = slot, .dtype = dtype};
    if (!wanted(params, slot)) {
        return KILN_STATUS_OK;
    }
    return params->all ? add_all(parity, params, device, &of, err)
                       : add_bound(parity, params, device, &of, err);
}

static enum kiln_status list_trials(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct kiln_device *device,
        struct kiln_err *err) {
    for (int op = KILN_OP_EMBED; op <= KILN_OP_ARGMAX; op++) {
        int matmul = op == KILN_OP_MATMUL, phases = matmul || op == KILN_OP_ATTENTION;
        for (int phase = KILN_PHASE_PREFILL; phase <= (phases ? KILN_PHASE_DECODE : 1); phase++) {
            const struct kiln_dtype_info *info;
            for (uint32_t i = 0; (info = kiln_dtype_at(i)) != NULL; i++) {
                if (matmul ? info->weight : i == 0) {
                    KILN_TRY(add_slot(parity, params, device, (enum kiln_op_kind)op, info->dtype,
                            (enum kiln_phase)phase, err));
                }
            }
        }
    }
    if (parity->count == 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "no variant to judge: none that runs on %s fills the slots asked for; --device sim "
                "runs the CUDA ones without a GPU",
                device->target);
    }
    return KILN_STATUS_OK;
}

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
    uint64_t faults; // counted before
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

// How often sim found fault so far; *text: the last kind of it.
static uint64_t count_faults(const struct attempt *at, const char **text) {
    struct kiln_sim_report *report = kiln_sim_dev_report(at->worker->dev);
    const struct kiln_sim_finding *findings = NULL;
    uint32_t n = report ? kiln_sim_findings(report, &findings) : 0;
    uint64_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        count += findings[i].advice ? 0 : findings[i].count;
        *text = findings[i].advice ? *text : findings[i].text;
    }
    return count;
}

// Fails the trial by what sim found since.
static void judge_faults(struct attempt *at) {
    const char *text = "";
    if (count_faults(at, &text) > at->faults) {
        fail(at->trial, text);
    }
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
    const char *before = "";
    at.faults = count_faults(&at, &before);
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
        status = list_trials(parity, params, &dev->desc, err);
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
    *parity = (struct kiln_parity){.trials = NULL};
}
