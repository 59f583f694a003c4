// cmd_cache: the kernel cache: what is in it, whether it is good, away with it.
#include "cmd.h"

#include "common.h"
#include "jit/cache.h"
#include "lab/save.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <time.h>

struct cache_run {
    struct kiln_common common;
    struct kiln_registry *registry;
    struct kiln_config *config;
    struct kiln_cache *cache;
    struct kiln_cache_list list;
};

static enum kiln_status open_cache(struct cache_run *run, struct kiln_err *err) {
    KILN_TRY(kiln_common_registry(&run->common, &run->registry, err));
    KILN_TRY(kiln_common_config(&run->common, run->registry, &run->config, err));
    const struct kiln_settings *settings = kiln_config_settings(run->config);
    const struct kiln_cache_params params = {
            .dir = settings->cache_dir, .max_size = settings->cache_max_size};
    return kiln_cache_open(&run->cache, &params, err);
}

static void finish(struct cache_run *run) {
    kiln_cache_list_finish(&run->list);
    kiln_cache_close(run->cache);
    kiln_config_destroy(run->config);
    kiln_registry_destroy(run->registry);
}

static uint64_t sum(const struct kiln_cache_list *list, size_t *bad) {
    uint64_t bytes = 0;
    *bad = 0;
    for (size_t i = 0; i < list->count; i++) {
        bytes += list->entries[i].bytes;
        *bad += list->entries[i].fault != NULL;
    }
    return bytes;
}

static json_t *dir_json(const struct cache_run *run) {
    const char *path = kiln_cache_path(run->cache);
    return kiln_json_text(path, strlen(path));
}

// ---- list and verify ----------------------------------------------------------------------------

static json_t *entry_json(const struct kiln_cache_entry *entry) {
    json_t *object = json_pack("{s:s, s:I, s:I, s:b}", "file", entry->name, "bytes",
            (json_int_t)entry->bytes, "used", (json_int_t)entry->used, "good", !entry->fault);
    if (object && entry->fault) {
        (void)json_object_set_new(object, "fault", json_string(entry->fault));
    } else if (object) {
        const struct kiln_image *image = &entry->image;
        json_t *more = json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:i, s:i, s:i, s:o}", "kernel",
                image->label, "entry", image->entry, "target", image->target, "form",
                image->ptx ? "ptx" : "cubin", "geometry", image->geometry, "compile_ms",
                image->compile_ms, "registers", (int)image->resources.registers, "spill_stores",
                (int)image->resources.spill_stores, "spill_loads",
                (int)image->resources.spill_loads, "key",
                kiln_json_text(entry->key_text, strlen(entry->key_text)));
        if (more) {
            (void)json_object_update(object, more);
            json_decref(more);
        }
    }
    return object;
}

static enum kiln_status print_json(const struct cache_run *run, struct kiln_err *err) {
    size_t bad;
    uint64_t bytes = sum(&run->list, &bad);
    json_t *entries = json_array();
    for (size_t i = 0; entries && i < run->list.count; i++) {
        (void)json_array_append_new(entries, entry_json(&run->list.entries[i]));
    }
    return kiln_out_json(
            json_pack("{s:o, s:I, s:I, s:I, s:o}", "dir", dir_json(run), "bytes", (json_int_t)bytes,
                    "max_size", (json_int_t)kiln_config_settings(run->config)->cache_max_size,
                    "bad", (json_int_t)bad, "entries", entries),
            err);
}

static void entry_text(const struct kiln_cache_entry *entry, struct kiln_buf *out) {
    char used[32] = "";
    const time_t seconds = (time_t)entry->used;
    struct tm at;
    if (localtime_r(&seconds, &at)) {
        (void)strftime(used, sizeof(used), "%Y-%m-%d %H:%M", &at);
    }
    kiln_buf_printf(out, "%.8s %9" PRIu64 "  %s  ", entry->name, entry->bytes, used);
    if (entry->fault) {
        kiln_buf_printf(out, "bad: %s\n", entry->fault);
    } else {
        kiln_buf_printf(out, "%-7s %s%s (%s)\n", entry->image.target, entry->image.label,
                entry->image.ptx ? ", PTX" : "", entry->image.geometry);
    }
}

static enum kiln_status print_text(
        const struct cache_run *run, int only_bad, struct kiln_err *err) {
    size_t bad;
    uint64_t bytes = sum(&run->list, &bad);
    struct kiln_buf out = {0};
    for (size_t i = 0; i < run->list.count; i++) {
        if (!only_bad || run->list.entries[i].fault) {
            entry_text(&run->list.entries[i], &out);
        }
    }
    kiln_buf_printf(&out, "%zu entries, %" PRIu64 " bytes, %zu bad, in %s\n", run->list.count,
            bytes, bad, kiln_cache_path(run->cache));
    return kiln_out_buf(&out, err);
}

// Options that all three share, and those of one.
static enum kiln_status parse(const struct kiln_cmd *cmd, struct cache_run *run, int argc,
        char **argv, int *only_bad, int *done, struct kiln_err *err) {
    kiln_common_init(&run->common);
    const struct kiln_opt table[] = {
            KILN_COMMON_CONFIG(&run->common),
            KILN_COMMON_OUTPUT(&run->common),
            // The last row of commands that have it.
            {only_bad ? "--bad" : NULL, NULL, KILN_OPT_FLAG, only_bad, NULL,
                    "only entries that are not good", 0, 0},
            KILN_OPT_END,
    };
    return kiln_opt_parse(cmd, table, argc, argv, done, err);
}

static enum kiln_status show(
        const struct kiln_cmd *cmd, int argc, char **argv, int verify, struct kiln_err *err) {
    struct cache_run run = {.cache = NULL};
    int done;
    KILN_TRY(parse(cmd, &run, argc, argv, NULL, &done, err));
    enum kiln_status status = done ? KILN_STATUS_OK : open_cache(&run, err);
    if (status == KILN_STATUS_OK && !done) {
        status = kiln_cache_list(run.cache, &run.list, err);
    }
    if (status == KILN_STATUS_OK && !done) {
        status = run.common.json ? print_json(&run, err) : print_text(&run, verify, err);
    }
    size_t bad = 0;
    (void)sum(&run.list, &bad);
    if (status == KILN_STATUS_OK && verify && run.list.fault) {
        status = kiln_err_set(err, KILN_STATUS_CHECK,
                "%s is not used: %s; [cache] dir or KILN_CACHE_DIR names another folder",
                kiln_cache_path(run.cache), run.list.fault);
    }
    if (status == KILN_STATUS_OK && verify && bad > 0) {
        status = kiln_err_set(err, KILN_STATUS_CHECK,
                "%zu of %zu entries are not good; they are compiled again when they are needed, "
                "and "
                "`kiln cache clear --bad` removes them now",
                bad, run.list.count);
    }
    finish(&run);
    return status;
}

static enum kiln_status list(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    return show(cmd, argc, argv, 0, err);
}

static enum kiln_status verify(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    return show(cmd, argc, argv, 1, err);
}

// ---- clear --------------------------------------------------------------------------------------

static enum kiln_status clear(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct cache_run run = {.cache = NULL};
    int done, only_bad = 0;
    size_t removed = 0;
    uint64_t bytes = 0;
    KILN_TRY(parse(cmd, &run, argc, argv, &only_bad, &done, err));
    enum kiln_status status = done ? KILN_STATUS_OK : open_cache(&run, err);
    if (status == KILN_STATUS_OK && !done) {
        status = kiln_cache_clear(run.cache, only_bad, &removed, &bytes, err);
    }
    if (status == KILN_STATUS_OK && !done && run.common.json) {
        status = kiln_out_json(json_pack("{s:o, s:I, s:I}", "dir", dir_json(&run), "removed",
                                       (json_int_t)removed, "bytes", (json_int_t)bytes),
                err);
    } else if (status == KILN_STATUS_OK && !done) {
        struct kiln_buf out = {0};
        kiln_buf_printf(&out, "removed %zu entries, %" PRIu64 " bytes, from %s\n", removed, bytes,
                kiln_cache_path(run.cache));
        status = kiln_out_buf(&out, err);
    }
    finish(&run);
    return status;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    static const struct kiln_cmd table[] = {
            {"cache list", "every compiled kernel that is kept", "[--json]", "kiln cache list",
                    list},
            {"cache verify", "reads every entry and says which are not good", "[--json]",
                    "kiln cache verify", verify},
            {"cache clear", "removes all entries, or only those that are not good",
                    "[--bad] [--json]", "kiln cache clear", clear},
            {0},
    };
    return kiln_cmd_dispatch(cmd, table, argc, argv, err);
}

const struct kiln_cmd kiln_cmd_cache = {
        .name = "cache",
        .summary = "compiled kernels on disk: list, verify, clear",
        .usage = "list|verify|clear [--json]",
        .example = "kiln cache list",
        .run = run,
};
