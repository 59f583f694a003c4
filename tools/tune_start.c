// tune_start: which slots and shapes a model has, a sweep of each, one file of the winners.
#include "tune_start.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "common.h"
#include "engine/kernel_set.h"
#include "lab/digest.h"
#include "lab/health.h"
#include "lab/tune.h"
#include "plugin/describe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

// ---- The worker ---------------------------------------------------------------------------------

enum kiln_status kiln_tune_worker_of(struct kiln_tune_worker_argv *worker,
        const struct kiln_common *common, const char *device, struct kiln_err *err) {
    const struct {
        const char *option;
        const struct kiln_opt_list *list;
    } lists[] = {{"--config", &common->configs}, {"--set", &common->sets},
            {"--plugin-dir", &common->plugin_dirs}};
    ssize_t len = readlink("/proc/self/exe", worker->exe, sizeof(worker->exe) - 1);
    size_t n = 0;
    if (len <= 0) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "/proc/self/exe cannot be read: a sweep starts this program again to measure in");
    }
    worker->exe[len] = '\0';
    worker->argv[n++] = worker->exe;
    worker->argv[n++] = "tune";
    worker->argv[n++] = "--worker";
    worker->argv[n++] = "--device";
    worker->argv[n++] = device;
    if (common->threads > 0) {
        (void)snprintf(worker->threads, sizeof(worker->threads), "%" PRId64, common->threads);
        worker->argv[n++] = "-t";
        worker->argv[n++] = worker->threads;
    }
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (size_t j = 0; j < lists[i].list->count; j++) {
            worker->argv[n++] = lists[i].option;
            worker->argv[n++] = lists[i].list->items[j];
        }
    }
    worker->argv[n] = NULL;
    return KILN_STATUS_OK;
}

// ---- What the model asks for --------------------------------------------------------------------

enum {
    MAX_TARGETS = 32,
    MAX_SHAPES = 8, // of one slot
};

struct target { // a slot of the model whose variant has a geometry
    const char *slot;
    const struct kiln_variant *variant;
    char shapes[MAX_SHAPES][160];
    const char *list[MAX_SHAPES];
    size_t n;
};

struct start {
    const struct kiln_common *common;
    struct kiln_registry *registry;
    struct kiln_config *config;
    struct kiln_dev_settings settings;
    char id[32], driver[128];
    struct kiln_kernel_set set;
    struct target targets[MAX_TARGETS];
    size_t n_targets;
    uint64_t digest; // of all that the winners depend on
    struct kiln_tune_worker_argv worker;
};

// The problem as --shape has it.
static void print_shape(const struct kiln_problem *problem, char *text, size_t size) {
    const struct kiln_op *op = problem->ops[0];
    const struct kiln_tensor *q = kiln_op_tensor(op, KILN_OPERAND_Q),
                             *out = kiln_op_tensor(op, KILN_OPERAND_OUT);
    const struct kiln_tensor *weight = kiln_op_tensor(op, KILN_OPERAND_WEIGHT);
    const struct kiln_tensor *cache = kiln_op_tensor(op, KILN_OPERAND_K_CACHE);
    int64_t m = out ? out->dims[1] : 1;
    if (op->kind == KILN_OP_ATTENTION && q && cache) {
        int64_t kv = problem->phase == KILN_PHASE_DECODE ? (cache->dims[1] + 1) / 2 : m;
        (void)snprintf(text, size,
                "m=%" PRId64 ",h=%d,hkv=%d,hd=%d,window=%d,kv=%" PRId64 ",softcap=%g", m,
                op->n_heads, op->n_kv_heads, op->head_size, op->window, kv, (double)op->softcap);
    } else if (op->kind == KILN_OP_MATMUL && weight) {
        (void)snprintf(text, size, "m=%" PRId64 ",n=%" PRId64 ",k=%" PRId64, m, weight->dims[1],
                weight->dims[0]);
    } else {
        (void)snprintf(text, size, "m=%" PRId64 ",k=%" PRId64, m, out ? out->dims[0] : 1);
    }
}

static struct target *target_of(struct start *start, const struct kiln_survey_row *row) {
    for (size_t i = 0; i < start->n_targets; i++) {
        if (strcmp(start->targets[i].slot, row->slot) == 0 &&
                start->targets[i].variant == row->variant) {
            return &start->targets[i];
        }
    }
    if (start->n_targets == MAX_TARGETS) {
        return NULL;
    }
    struct target *target = &start->targets[start->n_targets++];
    target->slot = row->slot;
    target->variant = row->variant;
    return target;
}

static void add_shape(struct target *target, const char *shape) {
    for (size_t i = 0; i < target->n; i++) {
        if (strcmp(target->shapes[i], shape) == 0) {
            return;
        }
    }
    if (target->n < MAX_SHAPES) {
        (void)snprintf(target->shapes[target->n], sizeof(target->shapes[0]), "%s", shape);
        target->list[target->n] = target->shapes[target->n];
        target->n++;
    }
}

static enum kiln_status list_targets(struct start *start, struct kiln_err *err) {
    const struct kiln_kernel_set_params params = {.registry = start->registry,
            .config = start->config,
            .model = start->common->model,
            .device = start->id,
            .tokens = kiln_config_settings(start->config)->ubatch};
    KILN_TRY(kiln_kernel_set_make(&start->set, &params, err));
    const struct kiln_survey *survey = &start->set.surveys[0];
    for (size_t i = 0; i < survey->count; i++) {
        const struct kiln_survey_row *row = &survey->rows[i];
        struct target *target = NULL;
        char shape[160];
        uint64_t digest;
        if (row->planned && row->variant->n_params > 0 && row->variant->n_follows == 0) {
            target = target_of(start, row);
        }
        if (!target) {
            continue;
        }
        print_shape(row->problem, shape, sizeof(shape));
        add_shape(target, shape);
        KILN_TRY(kiln_one_variant_digest(
                start->registry, row->plugin, row->variant, row->source, &digest, err));
        start->digest = XXH64(shape, strlen(shape), start->digest ^ digest);
        start->digest = XXH64(row->slot, strlen(row->slot), start->digest);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status describe(struct start *start, struct kiln_err *err) {
    struct kiln_dev *dev = NULL;
    start->settings = kiln_session_dev_settings(start->config);
    KILN_TRY(kiln_dev_open(&dev, start->common->device, &start->settings, err));
    memcpy(start->id, dev->id, sizeof(start->id));
    kiln_health_driver(dev, start->driver, sizeof(start->driver));
    start->digest = XXH64(dev->desc.name, strlen(dev->desc.name), 0);
    start->digest = XXH64(start->driver, strlen(start->driver), start->digest);
    kiln_dev_close(dev);
    KILN_TRY(list_targets(start, err));
    return kiln_tune_worker_of(&start->worker, start->common, start->id, err);
}

// ---- Sweeps -------------------------------------------------------------------------------------

static enum kiln_status sweep(struct start *start, const struct target *target, double budget,
        struct kiln_tune_store *store, struct kiln_buf *text, struct kiln_err *err) {
    char *space = kiln_asprintf("variant=%s", target->variant->name);
    const char *const spaces[] = {space};
    size_t sections = 0;
    struct kiln_tune tune = {.params = NULL};
    struct kiln_buf more = {0};
    if (!space) {
        return kiln_err_nomem(err, "a sweep");
    }
    const struct kiln_tune_params params = {.slot = target->slot,
            .shapes = target->list,
            .n_shapes = target->n,
            .device = start->id,
            .settings = &start->settings,
            .registry = start->registry,
            .config = start->config,
            .version = KILN_VERSION,
            .space = spaces,
            .n_space = 1,
            .strategy = KILN_TUNE_MODEL,
            .budget = budget,
            .store = store,
            .worker = start->worker.argv,
            .timeout = budget < 1    ? 1
                       : budget < 30 ? budget
                                     : 30,
            .samples = 9,
            .bar = 1,
            .rounds = 9,
            .stop = kiln_interrupted};
    enum kiln_status status = kiln_tune_run(&tune, &params, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_tune_ini(&tune, text->data ? text->data : "", &more, &sections, err);
    }
    if (status == KILN_STATUS_OK) {
        struct kiln_buf old = *text;
        *text = more;
        more = old;
        kiln_log(KILN_LOG_WARN, "tuned %s (%s): %zu better than what is bound", target->slot,
                target->variant->name, sections);
    }
    kiln_buf_finish(&more);
    kiln_tune_finish(&tune);
    kiln_free(space);
    return status;
}

// What cannot be swept stays as it is bound; the others are swept all the same.
static enum kiln_status sweep_or_leave(struct start *start, const struct target *target,
        double budget, struct kiln_tune_store *store, struct kiln_buf *text, struct kiln_err *err) {
    struct kiln_err cause = {0};
    enum kiln_status status = sweep(start, target, budget, store, text, &cause);
    if (status == KILN_STATUS_INTERRUPTED || status == KILN_STATUS_NOMEM) {
        *err = cause;
        return status;
    }
    if (status != KILN_STATUS_OK) {
        kiln_log(KILN_LOG_WARN, "%s (%s) stays as it is bound: %s", target->slot,
                target->variant->name, cause.text);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status sweep_all(struct start *start, const char *path, struct kiln_err *err) {
    double until = kiln_clock_seconds() + (double)kiln_config_settings(start->config)->tune_budget;
    struct kiln_tune_store *store = NULL;
    struct kiln_buf text = {0};
    char *file = kiln_tune_store_default();
    enum kiln_status status = file ? kiln_tune_store_open(&store, file, err)
                                   : kiln_err_nomem(err, "the store's path");
    for (size_t i = 0; i < start->n_targets && status == KILN_STATUS_OK; i++) {
        double left = until - kiln_clock_seconds();
        if (left > 0) {
            status = sweep_or_leave(start, &start->targets[i],
                    left / (double)(start->n_targets - i), store, &text, err);
        }
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_file_write(path, text.data ? text.data : "", text.len, err);
    }
    kiln_tune_store_close(store);
    kiln_buf_finish(&text);
    kiln_free(file);
    return status;
}

static enum kiln_status find_or_make(struct start *start, char **tuned, struct kiln_err *err) {
    KILN_TRY(describe(start, err));
    char *dir = kiln_cache_dir();
    char *path = dir ? kiln_asprintf("%s/tune/start-%016" PRIx64 ".ini", dir, start->digest) : NULL;
    kiln_free(dir);
    if (!path) {
        return kiln_err_nomem(err, "the tuned file's path");
    }
    enum kiln_status status = kiln_file_exists(path) ? KILN_STATUS_OK : sweep_all(start, path, err);
    if (status == KILN_STATUS_OK) {
        *tuned = path;
    } else {
        kiln_free(path);
    }
    return status;
}

enum kiln_status kiln_tune_at_start(const struct kiln_common *common,
        struct kiln_registry *registry, struct kiln_config *config, char **tuned,
        struct kiln_err *err) {
    struct kiln_err cause = {0};
    *tuned = NULL;
    if (!kiln_config_settings(config)->tune_at_start) {
        return KILN_STATUS_OK;
    }
    struct start *start = kiln_calloc(1, sizeof(*start));
    if (!start) {
        return kiln_err_nomem(err, "tuning at the start");
    }
    start->common = common;
    start->registry = registry;
    start->config = config;
    enum kiln_status status = find_or_make(start, tuned, &cause);
    kiln_kernel_set_finish(&start->set);
    kiln_free(start);
    if (status == KILN_STATUS_INTERRUPTED || status == KILN_STATUS_NOMEM) {
        *err = cause;
        return status;
    }
    if (status != KILN_STATUS_OK) {
        kiln_log(KILN_LOG_WARN, "not tuned at the start: %s", cause.text);
    }
    return KILN_STATUS_OK;
}
