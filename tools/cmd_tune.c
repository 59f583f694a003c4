// cmd_tune: sweeps the variants and geometries of a slot; `tune merge` joins the stores of shards.
#include "cmd.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd_tune.h"
#include "common.h"
#include "config/slot.h"
#include "lab/save.h"
#include "lab/tune.h"
#include "lab/tune_worker.h"
#include "model/model.h"
#include "save.h"
#include "tune_start.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TUNED = 1 << 22, // bytes of a tuned file
};

struct tune_options {
    struct kiln_common common;
    const char *slot, *strategy, *shard, *store, *out, *exported, *imported, *save, *rank;
    struct kiln_opt_list shapes, space;
    int64_t seed, most, memory_mib, samples, cold_samples, rounds;
    double budget, timeout, bar;
    int again, resume;
    // Made of them:
    struct kiln_registry *registry;
    struct kiln_config *config;
    struct kiln_dev_settings settings;
    struct kiln_tune_params params;
    struct kiln_tune_worker_argv worker;
    struct kiln_arena arena;
};

// ---- The worker ---------------------------------------------------------------------------------

static enum kiln_status run_worker(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_common common;
    struct kiln_registry *registry = NULL;
    struct kiln_config *config = NULL;
    int done;
    kiln_common_init(&common);
    const struct kiln_opt table[] = {
            {"--device", NULL, KILN_OPT_STRING, &common.device, "D", "cpu, cuda[:N], sim[:sm_XX]",
                    0, 0},
            {"-t", "--threads", KILN_OPT_INT, &common.threads, "N", "CPU threads", 1, 1024},
            KILN_COMMON_CONFIG(&common),
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    enum kiln_status status = kiln_common_registry(&common, &registry, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_common_config(&common, registry, &config, err);
    }
    if (status == KILN_STATUS_OK) {
        const struct kiln_dev_settings settings = kiln_session_dev_settings(config);
        const struct kiln_tune_worker_params params = {.device = common.device,
                .settings = &settings,
                .registry = registry,
                .in = 0,
                .out = 3};
        status = kiln_tune_worker_run(&params, err);
    }
    kiln_config_destroy(config);
    kiln_registry_destroy(registry);
    return status;
}

// ---- Options ------------------------------------------------------------------------------------

static enum kiln_status read_shard(struct tune_options *o, struct kiln_err *err) {
    char *end;
    if (!o->shard) {
        return KILN_STATUS_OK;
    }
    long i = strtol(o->shard, &end, 10), n = *end == '/' ? strtol(end + 1, &end, 10) : 0;
    if (*end || i < 1 || n < 1 || i > n || n > 4096) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--shard %.40s: I/N with 1 <= I <= N <= 4096 is allowed, such as 1/4", o->shard);
    }
    if (o->params.strategy != KILN_TUNE_EXHAUSTIVE && o->params.strategy != KILN_TUNE_RANDOM) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--shard goes with --strategy exhaustive or random: %s goes by the times of "
                "candidates that another shard would have",
                o->strategy);
    }
    o->params.shard = (uint32_t)i - 1;
    o->params.shards = (uint32_t)n;
    return KILN_STATUS_OK;
}

static enum kiln_status read_words(struct tune_options *o, struct kiln_err *err) {
    struct kiln_tune_params *p = &o->params;
    p->strategy = kiln_tune_strategy_of(o->strategy);
    if (p->strategy == KILN_TUNE_STRATEGIES) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--strategy %.40s: exhaustive, random, local and model are known", o->strategy);
    }
    if (strcmp(o->rank, "warm") != 0 && strcmp(o->rank, "cold") != 0) {
        return kiln_err_set(
                err, KILN_STATUS_USAGE, "--rank %.40s: warm or cold is allowed", o->rank);
    }
    p->by_cold = strcmp(o->rank, "cold") == 0;
    if (!o->slot) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "name a slot to tune, such as attention.prefill; `kiln plugins list` shows them");
    }
    KILN_TRY(kiln_slot_check(o->slot, 0, err));
    return read_shard(o, err);
}

static double default_timeout(const char *device) {
    return strncmp(device, "sim", 3) == 0 ? 600 : 30;
}

static void fill_params(struct tune_options *o) {
    struct kiln_tune_params *p = &o->params;
    p->slot = o->slot;
    p->shapes = o->shapes.items;
    p->n_shapes = o->shapes.count;
    p->device = o->common.device;
    p->settings = &o->settings;
    p->registry = o->registry;
    p->config = o->config;
    p->version = KILN_VERSION;
    p->space = o->space.items;
    p->n_space = o->space.count;
    p->seed = (uint64_t)o->seed;
    p->most = (uint64_t)o->most;
    if (p->most == 0 && p->strategy != KILN_TUNE_EXHAUSTIVE) {
        p->most = 100;
    }
    p->budget = o->budget;
    p->again = o->again;
    p->worker = o->worker.argv;
    p->timeout = o->timeout > 0 ? o->timeout : default_timeout(o->common.device);
    p->memory_limit = (uint64_t)o->memory_mib << 20;
    p->samples = o->samples;
    p->cold_samples = o->cold_samples;
    p->bar = o->bar;
    p->rounds = o->rounds;
    p->stop = kiln_interrupted;
    p->progress = kiln_progress_bar();
}

// The device by its own name, so that "auto" is the same here and in the worker.
static enum kiln_status find_device(struct tune_options *o, char id[32], struct kiln_err *err) {
    struct kiln_dev *dev = NULL;
    KILN_TRY(kiln_dev_open(&dev, o->common.device, &o->settings, err));
    memcpy(id, dev->id, sizeof(dev->id));
    kiln_dev_close(dev);
    return KILN_STATUS_OK;
}

// ---- Results ------------------------------------------------------------------------------------

// configs/tuned/DEVICE.ini beside the folder of the devices' files; the caller frees it.
static char *default_out(const struct kiln_tune *tune) {
    char slug[64];
    char *devices = kiln_device_dir();
    char *slash = devices ? strrchr(devices, '/') : NULL;
    char *path = NULL;
    kiln_tune_device_slug(tune, slug, sizeof(slug));
    if (slash) {
        path = kiln_asprintf("%.*s/tuned/%s.ini", (int)(slash - devices), devices, slug);
    }
    kiln_free(devices);
    return path;
}

static enum kiln_status write_tuned(
        const struct kiln_tune *tune, const char *path, struct kiln_err *err) {
    struct kiln_buf text = {0};
    char *before = NULL;
    size_t size = 0, sections = 0;
    if (kiln_file_exists(path)) {
        KILN_TRY(kiln_file_read(path, MAX_TUNED, &before, &size, err));
    }
    enum kiln_status status = kiln_tune_ini(tune, before ? before : "", &text, &sections, err);
    int same = before && text.len == size && memcmp(text.data, before, size) == 0;
    if (status == KILN_STATUS_OK && !same && (sections > 0 || before)) {
        const char *slash = strrchr(path, '/');
        char *dir = slash && slash != path ? kiln_strndup(path, (size_t)(slash - path)) : NULL;
        status = dir ? kiln_make_dirs(dir, err) : KILN_STATUS_OK;
        kiln_free(dir);
        if (status == KILN_STATUS_OK) {
            status = kiln_file_write(path, text.data, text.len, err);
        }
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "the winner could not be written (--out names another file): ");
        } else if (sections > 0) {
            kiln_say("wrote %s; take it in with --config %s", path, path);
        } else {
            kiln_say("took what is no faster any more out of %s", path);
        }
    }
    kiln_buf_finish(&text);
    kiln_free(before);
    return status;
}

static enum kiln_status keep_files(
        const struct tune_options *o, const struct kiln_tune *tune, struct kiln_err *err) {
    if (o->exported) {
        json_t *t4 = kiln_tune_t4(tune);
        enum kiln_status status =
                t4 ? kiln_save_write(o->exported, t4, err) : kiln_err_nomem(err, "T4 results");
        json_decref(t4);
        KILN_TRY(status);
    }
    if (o->save) {
        json_t *saved = NULL;
        const struct kiln_save_origin origin = {.version = KILN_VERSION,
                .kind = "tune",
                .grade = kiln_tune_grade(tune),
                .device = tune->device.desc.name,
                .device_id = tune->id,
                .target = tune->device.desc.target,
                .driver = tune->driver,
                .device_kind = tune->device.desc.kind,
                .registry = o->registry,
                .config = o->config};
        KILN_TRY(kiln_save_make(&origin, kiln_tune_json(tune), &saved, err));
        enum kiln_status status = kiln_save_write(o->save, saved, err);
        json_decref(saved);
        KILN_TRY(status);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status print(
        const struct tune_options *o, const struct kiln_tune *tune, struct kiln_err *err) {
    struct kiln_buf text = {0};
    if (o->common.json) {
        return kiln_out_json(kiln_tune_json(tune), err);
    }
    kiln_tune_print(tune, &text);
    return kiln_out_buf(&text, err);
}

static enum kiln_status conclude(
        struct tune_options *o, struct kiln_tune *tune, struct kiln_err *err) {
    size_t right = 0, taken = 0;
    KILN_TRY(print(o, tune, err));
    KILN_TRY(keep_files(o, tune, err));
    for (size_t i = 0; i < tune->n_problems; i++) {
        right += tune->problems[i].counts[KILN_TUNE_OK];
        taken += tune->problems[i].counts[KILN_TUNE_RUNNING]; // by another process
    }
    if (right == 0 && taken == 0 && o->params.shards <= 1) {
        return kiln_err_set(err, KILN_STATUS_CHECK,
                "no candidate came out right and measured; the table says why");
    }
    if (o->params.shards > 1 || (o->out && strcmp(o->out, "-") == 0)) {
        return KILN_STATUS_OK;
    }
    if (o->common.model) {
        enum kiln_verdict verdict = KILN_VERDICT_NEUTRAL;
        KILN_TRY(kiln_tune_check_on_wall(&o->common, tune, &verdict, err));
        if (verdict == KILN_VERDICT_REVERT) {
            return kiln_err_set(err, KILN_STATUS_CHECK,
                    "the kernels win alone and not in the model, so nothing is written");
        }
        if (verdict != KILN_VERDICT_LAND) {
            fprintf(stderr, "kiln: no faster in the model beyond noise: what is bound stays and "
                            "nothing is written\n");
            return KILN_STATUS_OK;
        }
    }
    char *path = o->out ? kiln_strdup(o->out) : default_out(tune);
    enum kiln_status status =
            path ? write_tuned(tune, path, err) : kiln_err_nomem(err, "the tuned file's path");
    kiln_free(path);
    return status;
}

// ---- The command --------------------------------------------------------------------------------

static enum kiln_status open_store(struct tune_options *o, struct kiln_err *err) {
    char *path = o->store ? kiln_strdup(o->store) : kiln_tune_store_default();
    if (!path) {
        return kiln_err_nomem(err, "the store's path");
    }
    enum kiln_status status =
            o->resume && !kiln_file_exists(path)
                    ? kiln_err_set(err, KILN_STATUS_USAGE,
                              "--resume: there is no store of an earlier sweep at %s", path)
                    : kiln_tune_store_open(&o->params.store, path, err);
    kiln_free(path);
    return status;
}

// What comes after the sweep is looked at before it: files to be written, and the model. Folders of
// --out are made when it is written.
static enum kiln_status check_files(const struct tune_options *o, struct kiln_err *err) {
    KILN_TRY(kiln_save_check(o->save, err));
    KILN_TRY(kiln_save_check(o->exported, err));
    if (o->out && strcmp(o->out, "-") != 0 && (!*o->out || kiln_file_exists(o->out))) {
        KILN_TRY(kiln_save_check(o->out, err));
    }
    struct kiln_model *model = NULL;
    KILN_TRY(o->common.model ? kiln_model_open(&model, o->common.model, err) : KILN_STATUS_OK);
    kiln_model_close(model);
    return KILN_STATUS_OK;
}

static enum kiln_status tune(struct tune_options *o, struct kiln_err *err) {
    char id[32];
    static char doing[] = "candidates";
    struct kiln_tune result = {.params = NULL};
    KILN_TRY(read_words(o, err));
    KILN_TRY(check_files(o, err));
    KILN_TRY(kiln_common_registry(&o->common, &o->registry, err));
    KILN_TRY(kiln_common_config(&o->common, o->registry, &o->config, err));
    o->settings = kiln_session_dev_settings(o->config);
    kiln_interrupt_catch();
    KILN_TRY(find_device(o, id, err));
    o->common.device = id;
    KILN_TRY(kiln_tune_worker_of(&o->worker, &o->common, id, err));
    fill_params(o);
    o->params.progress_arg = doing;
    if (o->imported) {
        const char **first = NULL;
        KILN_TRY(kiln_tune_t4_read(o->imported, &o->arena, &first, &o->params.n_first, err));
        o->params.first = first;
    }
    KILN_TRY(open_store(o, err));
    enum kiln_status status = kiln_tune_run(&result, &o->params, err);
    if (status == KILN_STATUS_OK) {
        status = conclude(o, &result, err);
    } else if (status == KILN_STATUS_INTERRUPTED && kiln_tune_store_durable(o->params.store)) {
        fprintf(stderr, "kiln: what was measured is kept: the same command goes on from there\n");
    }
    kiln_tune_finish(&result);
    return status;
}

static void finish(struct tune_options *o) {
    kiln_tune_store_close(o->params.store);
    kiln_config_destroy(o->config);
    kiln_registry_destroy(o->registry);
    kiln_arena_finish(&o->arena);
    kiln_free(o);
}

static enum kiln_status run_sweep(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct tune_options *o = kiln_calloc(1, sizeof(*o));
    int done;
    if (!o) {
        return kiln_err_nomem(err, "the command");
    }
    kiln_common_init(&o->common);
    o->strategy = "exhaustive";
    o->rank = "warm";
    o->samples = 15;
    o->cold_samples = 7;
    o->rounds = 15;
    o->bar = 1;
    const struct kiln_opt table[] = {
            {"SLOT", NULL, KILN_OPT_ENTRY, (void *)&o->slot, NULL, "attention.prefill …", 0, 0},
            {"--shape", NULL, KILN_OPT_LIST, &o->shapes, "LIST",
                    "a problem: m=3325,h=28,hkv=4,hd=128 (a 7B model's); several: --shape again", 0,
                    0},
            {"--space", NULL, KILN_OPT_LIST, &o->space, "TEXT",
                    "narrow: \"variant=A,B KEY=V,V *=default\"", 0, 0},
            {"--strategy", NULL, KILN_OPT_STRING, (void *)&o->strategy, "S",
                    "exhaustive, random, local or model (exhaustive)", 0, 0},
            {"--most", NULL, KILN_OPT_INT, &o->most, "N",
                    "candidates a problem (all; of other strategies 100)", 1, 1 << 30},
            {"--budget", NULL, KILN_OPT_NUMBER, &o->budget, "SECONDS", "of the whole sweep", 0.1,
                    1e6},
            {"--seed", NULL, KILN_OPT_INT, &o->seed, "N", "of the strategies (0)", 0, 0},
            {"--shard", NULL, KILN_OPT_STRING, (void *)&o->shard, "I/N",
                    "measure this part alone; see kiln tune merge", 0, 0},
            {"--store", NULL, KILN_OPT_STRING, (void *)&o->store, "FILE",
                    "where results are kept (tune/tune.db in the cache folder)", 0, 0},
            {"--resume", NULL, KILN_OPT_FLAG, &o->resume, NULL,
                    "the store has to be there; known results are used in any case", 0, 0},
            {"--again", NULL, KILN_OPT_FLAG, &o->again, NULL,
                    "forget what is known of these problems first", 0, 0},
            {"--rank", NULL, KILN_OPT_STRING, (void *)&o->rank, "L2", "warm or cold (warm)", 0, 0},
            {"--samples", NULL, KILN_OPT_INT, &o->samples, "N", "with a warm L2 (15)", 1,
                    KILN_TUNE_SAMPLES},
            {"--cold-samples", NULL, KILN_OPT_INT, &o->cold_samples, "N", "with a cold L2 (7)", 0,
                    KILN_TUNE_SAMPLES},
            {"-r", NULL, KILN_OPT_INT, &o->rounds, "R", "rounds of the final (15)", 6, 1000},
            {"--bar", NULL, KILN_OPT_NUMBER, &o->bar, "PCT", "gain that replaces what is bound (1)",
                    0, 1000},
            {"--timeout", NULL, KILN_OPT_NUMBER, &o->timeout, "SECONDS",
                    "of a candidate (30; sim: 600)", 0.05, 86400},
            {"--memory", NULL, KILN_OPT_INT, &o->memory_mib, "MIB",
                    "that the measuring process may have", 16, 1 << 24},
            {"--out", NULL, KILN_OPT_STRING, (void *)&o->out, "FILE",
                    "the winner as INI (configs/tuned/DEVICE.ini); -: write none", 0, 0},
            {"--export", NULL, KILN_OPT_STRING, (void *)&o->exported, "FILE", "results as T4 JSON",
                    0, 0},
            {"--import", NULL, KILN_OPT_STRING, (void *)&o->imported, "FILE",
                    "begin with the configurations of T4 JSON", 0, 0},
            KILN_SAVE_OPTION(&o->save),
            KILN_COMMON_MODEL(&o->common),
            {"-t", "--threads", KILN_OPT_INT, &o->common.threads, "N", "CPU threads", 1, 1024},
            {"--device", NULL, KILN_OPT_STRING, &o->common.device, "D",
                    "cpu, cuda[:N], sim[:sm_XX] or auto", 0, 0},
            KILN_COMMON_CONFIG(&o->common),
            KILN_COMMON_OUTPUT(&o->common),
            KILN_OPT_END,
    };
    enum kiln_status status = kiln_opt_parse(cmd, table, argc, argv, &done, err);
    if (status == KILN_STATUS_OK && !done) {
        status = tune(o, err);
    }
    finish(o);
    return status;
}

static enum kiln_status run_merge(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_opt_list from = {.count = 0};
    const char *into = NULL;
    struct kiln_tune_store *store = NULL;
    int done;
    const struct kiln_opt table[] = {
            {"STORE", NULL, KILN_OPT_REST, &from, NULL, "stores of other sweeps", 0, 0},
            {"--store", NULL, KILN_OPT_STRING, (void *)&into, "FILE",
                    "what they are merged into (tune/tune.db in the cache folder)", 0, 0},
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    if (from.count == 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "name the stores to merge");
    }
    char *path = into ? kiln_strdup(into) : kiln_tune_store_default();
    enum kiln_status status = path ? kiln_tune_store_open(&store, path, err)
                                   : kiln_err_nomem(err, "the store's path");
    if (status == KILN_STATUS_OK && !kiln_tune_store_durable(store)) {
        status = kiln_err_set(err, KILN_STATUS_FILE,
                "%s: cannot be written, so there is nothing to merge into; --store names another",
                path);
    }
    for (size_t i = 0; i < from.count && status == KILN_STATUS_OK; i++) {
        int64_t added = 0;
        char line[512];
        status = kiln_tune_store_merge(store, from.items[i], &added, err);
        if (status == KILN_STATUS_OK) {
            int len = snprintf(line, sizeof(line), "%.400s: %" PRId64 " results taken over\n",
                    from.items[i], added);
            status = kiln_out(line, (size_t)len, err);
        }
    }
    kiln_tune_store_close(store);
    kiln_free(path);
    return status;
}

static const struct kiln_cmd merge_cmd = {
        .name = "tune merge",
        .summary = "joins the results of sweeps that ran apart",
        .usage = "STORE … [--store FILE]",
        .example = "kiln tune merge shard1.db shard2.db",
        .run = run_merge,
};

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    if (argc > 1 && strcmp(argv[1], "--worker") == 0) {
        return run_worker(cmd, argc - 1, argv + 1, err);
    }
    if (argc > 1 && strcmp(argv[1], "merge") == 0) {
        return run_merge(&merge_cmd, argc - 1, argv + 1, err);
    }
    return run_sweep(cmd, argc, argv, err);
}

const struct kiln_cmd kiln_cmd_tune = {
        .name = "tune",
        .summary = "sweeps variants and geometry of a slot; `tune merge` joins shards",
        .usage = "SLOT [--shape m=3325,…] [--space \"KEY=V,V\"] [--strategy S] [--budget SECONDS] "
                 "[--json]",
        .example = "kiln tune attention.prefill --space \"variant=fap2,fap2db FA_TKV=16,32,64 "
                   "*=default\"",
        .run = run,
};
