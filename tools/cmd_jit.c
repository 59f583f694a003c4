// cmd_jit: compiles what is bound, for any target, with no GPU.
#include "cmd.h"

#include "base/file.h"
#include "base/mem.h"
#include "common.h"
#include "engine/kernel_set.h"
#include "lab/save.h"
#include "plugin/schema.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const char every_target[] = "sm_75,sm_80,sm_86,sm_89,sm_90a,sm_100,sm_120,sm_121";

struct jit_run {
    struct kiln_common common;
    const char *targets, *dump;
    struct kiln_opt_list slots;
    int64_t tokens;
    int all;
    struct kiln_registry *registry;
    struct kiln_config *config;
    struct kiln_kernel_set set;
    struct kiln_jit *jit;
};

// ---- Output -------------------------------------------------------------------------------------

static int64_t spill_bytes(const struct kiln_resources *r) {
    return r->spill_stores < 0 ? -1 : (int64_t)r->spill_stores + r->spill_loads;
}

static json_t *number_or_null(int64_t value) {
    return value < 0 ? json_null() : json_integer(value);
}

static json_t *row_json(const struct jit_run *run, const struct kiln_kernel_row *row) {
    const struct kiln_survey_row *op = row->op;
    json_t *object = json_pack("{s:s, s:s, s:s?, s:s?, s:s, s:o, s:i}", "slot", op->slot, "role",
            op->role, "plugin", op->plugin ? op->plugin->name : NULL, "variant",
            op->variant ? op->variant->name : NULL, "target", row->device->target, "geometry",
            kiln_geometry_json(&op->geometry), "ops", (int)op->ops);
    if (!object || !row->launch) {
        if (object) {
            (void)json_object_set_new(object, "unsupported", json_string(op->unsupported));
        }
        return object;
    }
    const struct kiln_jit_item *item = &run->set.list.items[row->item];
    const struct kiln_resources *r = &item->image.resources;
    (void)json_object_set_new(object, "kernel", json_string(row->launch->kernel->name));
    if (row->preparation) {
        (void)json_object_set_new(object, "preparation", json_string(row->preparation));
    }
    if (item->status != KILN_STATUS_OK) {
        (void)json_object_set_new(
                object, "error", kiln_json_text(item->err.text, strlen(item->err.text)));
        const char *log = item->log ? item->log : "";
        (void)json_object_set_new(object, "log", kiln_json_text(log, strlen(log)));
        return object;
    }
    json_t *figures = json_pack("{s:o, s:o, s:o, s:o, s:i, s:o, s:i, s:o, s:o, s:f, s:b, s:s, s:s}",
            "registers", number_or_null(r->registers), "spill_bytes",
            number_or_null(spill_bytes(r)), "stack", number_or_null(r->stack), "smem_static",
            number_or_null(r->smem_static), "smem_requested", (int)item->layout.requested,
            "smem_layout", number_or_null(item->layout.present ? (int64_t)item->layout.used : -1),
            "smem_over", (int)item->layout.over, "blocks_per_sm", number_or_null(item->fit.blocks),
            "blocks_per_sm_layout", number_or_null(item->fit.blocks_layout), "ms", item->ms,
            "cached", item->cached, "form", item->image.ptx ? "ptx" : "cubin", "key",
            item->key.hex);
    if (figures) {
        (void)json_object_update(object, figures);
        json_decref(figures);
    }
    return object;
}

static void put_figure(struct kiln_buf *out, int64_t value) {
    if (value < 0) {
        kiln_buf_printf(out, " %7s", "-");
    } else {
        kiln_buf_printf(out, " %7" PRId64, value);
    }
}

static void row_text(
        const struct jit_run *run, const struct kiln_kernel_row *row, struct kiln_buf *out) {
    const struct kiln_survey_row *op = row->op;
    kiln_buf_printf(out, "%-7s %-22s %-12s ", row->device->target, op->slot,
            op->variant ? op->variant->name : "-");
    if (!row->launch) {
        kiln_buf_printf(out, "unsupported: %s\n", op->unsupported);
        return;
    }
    const struct kiln_jit_item *item = &run->set.list.items[row->item];
    kiln_buf_printf(out, "%-24s", row->launch->kernel->name);
    if (item->status != KILN_STATUS_OK) {
        kiln_buf_printf(out, " failed: %s\n", item->err.text);
        return;
    }
    const struct kiln_resources *r = &item->image.resources;
    put_figure(out, r->registers);
    put_figure(out, spill_bytes(r));
    put_figure(out, r->smem_static);
    put_figure(out, item->layout.requested);
    put_figure(out, item->layout.present ? (int64_t)item->layout.used : -1);
    kiln_buf_printf(out, " %7.1f %s\n", item->ms, item->cached ? "yes" : "no");
    if (item->layout.over) {
        kiln_buf_printf(out,
                "        its launcher asks for %u bytes of shared memory that it does not use",
                item->layout.over);
        if (item->fit.blocks < item->fit.blocks_layout) {
            kiln_buf_printf(out,
                    ", which leaves %" PRId32 " of %" PRId32 " blocks a multiprocessor",
                    item->fit.blocks, item->fit.blocks_layout);
        }
        kiln_buf_puts(out, "\n");
    }
}

struct totals {
    size_t kernels, spilling, unsupported, failed, cached;
};

static struct totals count(const struct jit_run *run) {
    struct totals t = {0};
    for (size_t i = 0; i < run->set.list.count; i++) {
        const struct kiln_kernel_row *row = &run->set.list.rows[i];
        const struct kiln_jit_item *item = row->launch ? &run->set.list.items[row->item] : NULL;
        int good = item && item->status == KILN_STATUS_OK;
        t.unsupported += !item;
        t.failed += item && !good;
        t.kernels += (size_t)good;
        t.cached += good && item->cached;
        t.spilling += good && spill_bytes(&item->image.resources) > 0;
    }
    return t;
}

static enum kiln_status print(const struct jit_run *run, struct kiln_err *err) {
    struct totals t = count(run);
    if (run->common.json) {
        json_t *rows = json_array();
        for (size_t i = 0; rows && i < run->set.list.count; i++) {
            (void)json_array_append_new(rows, row_json(run, &run->set.list.rows[i]));
        }
        const struct kiln_nvrtc *nvrtc = kiln_jit_nvrtc(run->jit);
        const char *cache = kiln_cache_path(kiln_jit_cache(run->jit));
        return kiln_out_json(
                json_pack("{s:o, s:o, s:o, s:{s:I, s:I, s:I, s:I}}", "kernels", rows, "nvrtc",
                        nvrtc ? kiln_json_text(nvrtc->identity, strlen(nvrtc->identity))
                              : json_null(),
                        "cache", kiln_json_text(cache, strlen(cache)), "totals", "compiled",
                        (json_int_t)t.kernels, "spilling", (json_int_t)t.spilling, "unsupported",
                        (json_int_t)t.unsupported, "failed", (json_int_t)t.failed),
                err);
    }
    struct kiln_buf out = {0};
    kiln_buf_printf(&out, "%-7s %-22s %-12s %-24s %7s %7s %7s %7s %7s %7s %s\n", "target", "slot",
            "variant", "kernel", "regs", "spill", "static", "smem", "layout", "ms", "cached");
    for (size_t i = 0; i < run->set.list.count; i++) {
        row_text(run, &run->set.list.rows[i], &out);
    }
    kiln_buf_printf(&out,
            "%zu kernels, %zu from the cache, %zu with spills, %zu unsupported, %zu failed\n",
            t.kernels, t.cached, t.spilling, t.unsupported, t.failed);
    return kiln_out_buf(&out, err);
}

// ---- Dump ---------------------------------------------------------------------------------------

static enum kiln_status dump_file(const struct jit_run *run, const struct kiln_kernel_row *row,
        const char *suffix, const char *data, size_t size, struct kiln_err *err) {
    const struct kiln_jit_item *item = &run->set.list.items[row->item];
    char *path =
            kiln_asprintf("%s/%s.%s.%s.%s.%.8s%s", run->dump, row->op->slot, row->op->variant->name,
                    row->launch->kernel->name, row->device->target, item->key.hex, suffix);
    if (!path) {
        return kiln_err_nomem(err, "a path");
    }
    enum kiln_status status = kiln_file_write(path, data, size, err);
    kiln_free(path);
    return status;
}

// Source, PTX and cubin of every kernel. PTX is compiled (and cached) for itself.
static enum kiln_status dump(struct jit_run *run, struct kiln_err *err) {
    KILN_TRY(kiln_make_dirs(run->dump, err));
    struct kiln_jit_item *ptx = kiln_calloc(run->set.list.n_items, sizeof(*ptx));
    if (!ptx) {
        return kiln_err_nomem(err, "the dump");
    }
    for (size_t i = 0; i < run->set.list.n_items; i++) {
        ptx[i].request = run->set.list.items[i].request;
        ptx[i].request.ptx = 1;
    }
    struct kiln_err ignored = {0}; // the table has told of every failure
    enum kiln_status status = KILN_STATUS_OK;
    (void)!kiln_jit_run(run->jit, ptx, run->set.list.n_items, 0, &ignored);
    for (size_t i = 0; status == KILN_STATUS_OK && i < run->set.list.count; i++) {
        const struct kiln_kernel_row *row = &run->set.list.rows[i];
        const struct kiln_jit_item *item = row->launch ? &run->set.list.items[row->item] : NULL;
        if (item && item->source) {
            status = dump_file(run, row, ".cu", item->source, strlen(item->source), err);
        }
        if (status == KILN_STATUS_OK && item && item->image.data && !item->image.ptx) {
            status = dump_file(run, row, ".cubin", item->image.data, item->image.size, err);
        }
        if (status == KILN_STATUS_OK && item && ptx[row->item].image.data) {
            const struct kiln_image *image = &ptx[row->item].image;
            status = dump_file(run, row, ".ptx", image->data, image->size, err);
        }
    }
    kiln_jit_items_finish(ptx, run->set.list.n_items);
    kiln_free(ptx);
    return status;
}

// ---- The command --------------------------------------------------------------------------------

static enum kiln_status gather(struct jit_run *run, struct kiln_err *err) {
    KILN_TRY(kiln_common_registry(&run->common, &run->registry, err));
    KILN_TRY(kiln_common_config(&run->common, run->registry, &run->config, err));
    const struct kiln_kernel_set_params params = {.registry = run->registry,
            .config = run->config,
            .model = run->common.model,
            .device = run->targets ? NULL : run->common.device,
            .targets = run->targets ? run->targets : every_target,
            .slots = run->slots.items,
            .n_slots = run->slots.count,
            .tokens = run->tokens,
            .all = run->all};
    if (strcmp(run->common.device, "cpu") == 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "kiln jit: --device cpu: its kernels are functions of the plugins, there is "
                "nothing to compile; `kiln audit --device cpu` shows them");
    }
    if (run->targets && strcmp(run->common.device, "auto") != 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "kiln jit: --device %s and --target %s: one of the two", run->common.device,
                run->targets);
    }
    return kiln_kernel_set_make(&run->set, &params, err);
}

static enum kiln_status compile(struct jit_run *run, struct kiln_err *err) {
    const struct kiln_settings *settings = kiln_config_settings(run->config);
    struct kiln_jit_params params = {
            .cache = {.dir = settings->cache_dir, .max_size = settings->cache_max_size},
            .threads = (uint32_t)settings->threads};
    struct kiln_err first = {0};
    KILN_TRY(kiln_jit_open(&run->jit, &params, err));
    KILN_TRY(kiln_jit_need_nvrtc(run->jit, err));
    enum kiln_status status =
            kiln_kernel_list_compile(&run->set.list, run->jit, run->dump != NULL, &first);
    kiln_kernel_list_drop_twins(&run->set.list);
    KILN_TRY(print(run, err));
    if (run->dump) {
        KILN_TRY(dump(run, err));
    }
    if (status != KILN_STATUS_OK) {
        *err = first;
        return status;
    }
    KILN_TRY(kiln_kernel_set_check_bound(&run->set, err));
    return run->all ? KILN_STATUS_OK : kiln_kernel_set_check_fits(&run->set, err);
}

static void finish(struct jit_run *run) {
    kiln_kernel_set_finish(&run->set);
    kiln_jit_close(run->jit);
    kiln_config_destroy(run->config);
    kiln_registry_destroy(run->registry);
    kiln_free(run);
}

static enum kiln_status run_jit(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct jit_run *run = kiln_calloc(1, sizeof(*run));
    int done;
    if (!run) {
        return kiln_err_nomem(err, "the command");
    }
    kiln_common_init(&run->common);
    run->tokens = 3325;
    const struct kiln_opt table[] = {
            {"SLOT", NULL, KILN_OPT_REST, &run->slots, NULL,
                    "only these slots, * for any weight type: matmul.*.prefill", 0, 0},
            {"--target", NULL, KILN_OPT_STRING, &run->targets, "T,T",
                    "targets or devices: sm_80,gb10 (default: sm_75 to sm_121)", 0, 0},
            {"--device", NULL, KILN_OPT_STRING, &run->common.device, "D",
                    "in place of --target: cuda[:N], sim[:sm_XX]", 0, 0},
            {"--all", NULL, KILN_OPT_FLAG, &run->all, NULL,
                    "every variant, weight type and head size, not what is bound", 0, 0},
            {"--dump", NULL, KILN_OPT_STRING, &run->dump, "DIR",
                    "write source, PTX and cubin of every kernel there", 0, 0},
            {"--tokens", NULL, KILN_OPT_INT, &run->tokens, "N", "of the prefill (default: 3325)", 1,
                    1048576},
            KILN_COMMON_MODEL(&run->common),
            KILN_COMMON_COMPILE(&run->common),
            KILN_COMMON_CONFIG(&run->common),
            KILN_COMMON_OUTPUT(&run->common),
            KILN_OPT_END,
    };
    enum kiln_status status = kiln_opt_parse(cmd, table, argc, argv, &done, err);
    if (status == KILN_STATUS_OK && !done) {
        status = gather(run, err);
    }
    if (status == KILN_STATUS_OK && !done) {
        status = compile(run, err);
    }
    finish(run);
    return status;
}

const struct kiln_cmd kiln_cmd_jit = {
        .name = "jit",
        .summary = "compiles every bound kernel for any target; no GPU needed",
        .usage = "[SLOT …] [--target sm_80,gb10] [--all] [--dump DIR] [-m MODEL] [--json]",
        .example = "kiln jit attention.prefill --target sm_80,sm_90a",
        .run = run_jit,
};
