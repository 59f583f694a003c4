// cmd_audit: what every bound kernel costs on a device, with no GPU.
#include "cmd.h"

#include "base/mem.h"
#include "common.h"
#include "lab/audit.h"
#include "lab/save.h"
#include "save.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

// One configuration's kernels.
struct side {
    struct kiln_config *config;
    struct kiln_kernel_set set;
    struct kiln_audit audit;
};

struct audit_run {
    struct kiln_common common;
    const char *targets, *save, *ncu_file;
    struct kiln_opt_list words; // slots; with --diff two files before them
    int64_t tokens;
    int diff, simulate, all;
    struct kiln_registry *registry;
    struct side sides[2];
    struct kiln_jit *jit;
    struct kiln_ncu ncu;
};

// Where neither a target nor a device is named: the GPU that is here, else the GB10.
static const char *default_device(const struct audit_run *run) {
    struct kiln_err ignored = {0};
    int32_t count = 0;
    if (run->targets) {
        return NULL;
    }
    if (strcmp(run->common.device, "auto") != 0) {
        return run->common.device;
    }
    return kiln_cuda_count(&count, &ignored) == KILN_STATUS_OK && count > 0 ? "cuda" : NULL;
}

static enum kiln_status gather(
        struct audit_run *run, struct side *side, const char *change, struct kiln_err *err) {
    struct kiln_common common = run->common;
    if (run->targets && strcmp(common.device, "auto") != 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "kiln audit: --device %s and --target %s: one of the two", common.device,
                run->targets);
    }
    if (change) {
        if (common.configs.count ==
                sizeof(common.configs.items) / sizeof(common.configs.items[0])) {
            return kiln_err_set(err, KILN_STATUS_USAGE, "kiln audit: too many --config");
        }
        common.configs.items[common.configs.count++] = change;
    }
    KILN_TRY(kiln_common_config(&common, run->registry, &side->config, err));
    const struct kiln_kernel_set_params params = {.registry = run->registry,
            .config = side->config,
            .model = common.model,
            .device = default_device(run),
            .targets = run->targets ? run->targets : "gb10",
            .slots = run->words.items + (run->diff ? 2 : 0),
            .n_slots = run->words.count - (run->diff ? 2 : 0),
            .tokens = run->tokens,
            .all = run->all};
    return kiln_kernel_set_make(&side->set, &params, err);
}

static enum kiln_status audit_side(
        struct audit_run *run, struct side *side, const char *change, struct kiln_err *err) {
    KILN_TRY(gather(run, side, change, err));
    if (!run->jit) {
        const struct kiln_settings *settings = kiln_config_settings(side->config);
        struct kiln_jit_params params = {
                .cache = {.dir = settings->cache_dir, .max_size = settings->cache_max_size},
                .threads = (uint32_t)settings->threads};
        KILN_TRY(kiln_jit_open(&run->jit, &params, err));
    }
    enum kiln_status status = kiln_audit_compile(&side->audit, &side->set, run->jit, err);
    if (kiln_interrupted()) { // caught since the other side was simulated
        return kiln_err_set(err, KILN_STATUS_INTERRUPTED, "interrupted");
    }
    if (run->simulate && status != KILN_STATUS_NOMEM) { // a kernel that does not compile says so
        const struct kiln_settings *settings = kiln_config_settings(side->config);
        kiln_interrupt_catch();
        KILN_TRY(kiln_audit_simulate(&side->audit, run->registry, settings->cache_dir,
                (uint32_t)settings->threads, kiln_interrupted,
                status == KILN_STATUS_OK ? err : NULL));
    }
    return status;
}

// NULL: out of memory.
static json_t *document(const struct audit_run *run) {
    const struct kiln_audit *base = &run->sides[0].audit, *change = &run->sides[1].audit;
    json_t *rows = run->diff ? kiln_audit_diff_json(base, change) : kiln_audit_json(base);
    const char *model = run->common.model ? run->common.model : "7b sample";
    return json_pack("{s:o, s:I, s:o, s:s?}", run->diff ? "diff" : "kernels", rows, "tokens",
            (json_int_t)run->tokens, "model", kiln_json_text(model, strlen(model)),
            "registers_unknown", base->no_compiler);
}

// Keeps the document where it was asked for. The devices need not be there: no driver.
static enum kiln_status keep(const struct audit_run *run, json_t *doc, struct kiln_err *err) {
    const struct side *last = &run->sides[run->diff ? 1 : 0];
    const struct kiln_device *device = &last->set.devices[0].desc;
    struct kiln_buf targets = {0};
    json_t *saved = NULL;
    if (!run->save) {
        return doc ? KILN_STATUS_OK : kiln_err_nomem(err, "the JSON output");
    }
    for (size_t i = 0; i < last->set.n_targets; i++) {
        kiln_buf_printf(&targets, "%s%s", i > 0 ? "," : "", last->set.devices[i].desc.target);
    }
    const struct kiln_save_origin origin = {.version = KILN_VERSION,
            .kind = "audit",
            .grade = "derived",
            .device = device->name,
            .device_id = device->target,
            .target = targets.data,
            .device_kind = device->kind,
            .registry = run->registry,
            .config = last->config,
            .base = run->diff ? run->sides[0].config : NULL};
    enum kiln_status status = targets.failed ? kiln_err_nomem(err, "the JSON output")
                                             : kiln_save_make(&origin, json_object(), &saved, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_save_keep(run->save, saved, doc, err);
    }
    json_decref(saved);
    kiln_buf_finish(&targets);
    return status;
}

static enum kiln_status print(const struct audit_run *run, struct kiln_err *err) {
    const struct kiln_audit *base = &run->sides[0].audit, *change = &run->sides[1].audit;
    if (run->common.json || run->save) {
        json_t *doc = document(run);
        enum kiln_status status = keep(run, doc, err);
        if (status == KILN_STATUS_OK && run->common.json) {
            status = kiln_out_json(json_incref(doc), err);
        }
        json_decref(doc);
        if (status != KILN_STATUS_OK || run->common.json) {
            return status;
        }
    }
    struct kiln_buf out = {0};
    if (run->diff) {
        kiln_audit_print_diff(base, change, &out);
    } else {
        kiln_audit_print(base, &out);
    }
    return kiln_out_buf(&out, err);
}

static void add_measured(struct audit_run *run) {
    size_t found = 0;
    for (int i = 0; i < (run->diff ? 2 : 1); i++) {
        found += kiln_audit_measured(&run->sides[i].audit, &run->ncu);
    }
    if (found == 0) {
        fprintf(stderr, "%s: none of its %zu kernels is audited here; its first is %s\n",
                run->ncu_file, run->ncu.n, run->ncu.kernels[0].entry);
    }
}

static enum kiln_status audit(struct audit_run *run, struct kiln_err *err) {
    struct kiln_err failures[2] = {{0}, {0}};
    const size_t n = run->diff ? 2 : 1;
    if (run->diff && run->words.count < 2) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "kiln audit --diff takes two files, BASE.ini and CHANGE.ini, and then slots");
    }
    KILN_TRY(kiln_save_check(run->save, err));
    if (run->ncu_file) {
        KILN_TRY(kiln_ncu_read(run->ncu_file, &run->ncu, err));
    }
    KILN_TRY(kiln_common_registry(&run->common, &run->registry, err));
    for (size_t i = 0; i < n; i++) {
        enum kiln_status status = audit_side(
                run, &run->sides[i], run->diff ? run->words.items[i] : NULL, &failures[i]);
        if (status != KILN_STATUS_OK && run->sides[i].audit.count == 0) {
            *err = failures[i]; // there is nothing to show
            return status;
        }
    }
    if (run->ncu_file) {
        add_measured(run);
    }
    KILN_TRY(print(run, err));
    for (size_t i = 0; i < n; i++) { // kernels that do not compile have been shown
        if (failures[i].status != KILN_STATUS_OK) {
            *err = failures[i];
            return err->status;
        }
        KILN_TRY(kiln_kernel_set_check_bound(&run->sides[i].set, err));
    }
    return KILN_STATUS_OK;
}

static void finish(struct audit_run *run) {
    for (int i = 0; i < 2; i++) {
        kiln_audit_finish(&run->sides[i].audit);
        kiln_kernel_set_finish(&run->sides[i].set);
        kiln_config_destroy(run->sides[i].config);
    }
    kiln_ncu_finish(&run->ncu);
    kiln_jit_close(run->jit);
    kiln_registry_destroy(run->registry);
    kiln_free(run);
}

static enum kiln_status run_audit(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct audit_run *run = kiln_calloc(1, sizeof(*run));
    int done;
    if (!run) {
        return kiln_err_nomem(err, "the command");
    }
    kiln_common_init(&run->common);
    run->tokens = 3325;
    const struct kiln_opt table[] = {
            {"SLOT", NULL, KILN_OPT_REST, &run->words, NULL,
                    "only these slots, * for any weight type: matmul.*.prefill", 0, 0},
            {"--target", NULL, KILN_OPT_STRING, &run->targets, "T,T",
                    "targets or devices: gb10,h200,sm_80 (default: the GPU here, else gb10)", 0, 0},
            {"--device", NULL, KILN_OPT_STRING, &run->common.device, "D",
                    "in place of --target: cpu, cuda[:N], sim[:sm_XX]", 0, 0},
            {"--diff", NULL, KILN_OPT_FLAG, &run->diff, NULL,
                    "BASE.ini CHANGE.ini stand before the slots: what differs between them", 0, 0},
            {"--tokens", NULL, KILN_OPT_INT, &run->tokens, "N", "of the prefill (default: 3325)", 1,
                    1048576},
            {"--simulate", NULL, KILN_OPT_FLAG, &run->simulate, NULL,
                    "run each kernel on the simulator, at a small problem, and count", 0, 0},
            {"--all", NULL, KILN_OPT_FLAG, &run->all, NULL,
                    "every variant, weight type and head size instead of what is bound", 0, 0},
            {"--ncu", NULL, KILN_OPT_STRING, &run->ncu_file, "FILE",
                    "CSV export of Nsight Compute: its counters beside", 0, 0},
            KILN_SAVE_OPTION(&run->save),
            KILN_COMMON_MODEL(&run->common),
            KILN_COMMON_COMPILE(&run->common),
            KILN_COMMON_CONFIG(&run->common),
            KILN_COMMON_OUTPUT(&run->common),
            KILN_OPT_END,
    };
    enum kiln_status status = kiln_opt_parse(cmd, table, argc, argv, &done, err);
    if (status == KILN_STATUS_OK && !done) {
        status = audit(run, err);
    }
    finish(run);
    return status;
}

const struct kiln_cmd kiln_cmd_audit = {
        .name = "audit",
        .summary = "what every bound kernel costs on a device; no GPU needed",
        .usage = "[--diff BASE.ini CHANGE.ini] [SLOT …] [--target gb10,h200] [-m MODEL] [--json]",
        .example = "kiln audit attention.prefill --target gb10",
        .run = run_audit,
};
