// cmd_plugins: what plugins there are, what they offer, whether one is fit to ship.
#include "cmd.h"

#include "base/log.h"
#include "common.h"
#include "lab/corners.h"
#include "plugin/describe.h"
#include "plugin/verify.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    STEP_LIMIT_MS = 600000 // between two corners: a compile and what sim runs, on a busy machine
};

static enum kiln_status list(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_common common;
    kiln_common_init(&common);
    int done;
    const struct kiln_opt table[] = {
            KILN_COMMON_PLUGINS(&common), KILN_COMMON_OUTPUT(&common), KILN_OPT_END};
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    struct kiln_registry *registry;
    KILN_TRY(kiln_common_registry(&common, &registry, err));
    struct kiln_buf out = {0};
    enum kiln_status status = KILN_STATUS_OK;
    if (common.json) {
        status = kiln_plugins_list_json(registry, &out, err);
    } else {
        kiln_plugins_list(registry, &out);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_out_buf(&out, err);
    }
    kiln_buf_finish(&out);
    kiln_registry_destroy(registry);
    return status;
}

// A name of a loaded plugin, or the path of a library, which is opened beside them.
static enum kiln_status find_plugin(
        struct kiln_registry *registry, const char *what, size_t *index, struct kiln_err *err) {
    struct stat info;
    if (strchr(what, '/') && stat(what, &info) == 0) {
        size_t before = kiln_registry_count(registry);
        KILN_TRY(kiln_registry_add_file(registry, what, err));
        if (kiln_registry_count(registry) > before) {
            *index = before;
            return KILN_STATUS_OK;
        }
    }
    for (size_t i = 0; i < kiln_registry_count(registry); i++) {
        struct stat other;
        if (strcmp(kiln_registry_plugins(registry)[i]->name, what) == 0 ||
                (strchr(what, '/') && stat(what, &info) == 0 &&
                        stat(kiln_registry_path(registry, i), &other) == 0 &&
                        other.st_dev == info.st_dev && other.st_ino == info.st_ino)) {
            *index = i;
            return KILN_STATUS_OK;
        }
    }
    return kiln_err_set(err, KILN_STATUS_FILE,
            "no plugin '%s': `kiln plugins list` shows those that are loaded; a path must contain "
            "a '/'",
            what);
}

static enum kiln_status inspect(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_common common;
    kiln_common_init(&common);
    const char *what = NULL;
    int done;
    const struct kiln_opt table[] = {{"PLUGIN", NULL, KILN_OPT_ENTRY, &what, NULL,
                                             "a plugin's name, or a path with a '/'", 0, 0},
            KILN_COMMON_PLUGINS(&common), KILN_COMMON_OUTPUT(&common), KILN_OPT_END};
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    if (!what) {
        return kiln_err_set(
                err, KILN_STATUS_USAGE, "kiln plugins inspect needs a plugin's name or path");
    }
    struct kiln_registry *registry;
    KILN_TRY(kiln_common_registry(&common, &registry, err));
    struct kiln_buf out = {0};
    size_t index = 0;
    enum kiln_status status = find_plugin(registry, what, &index, err);
    if (status == KILN_STATUS_OK && common.json) {
        status = kiln_plugin_inspect_json(registry, index, &out, err);
    } else if (status == KILN_STATUS_OK) {
        kiln_plugin_inspect(registry, index, &out);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_out_buf(&out, err);
    }
    kiln_buf_finish(&out);
    kiln_registry_destroy(registry);
    return status;
}

struct verify_options {
    struct kiln_opt_list files;
    int no_sim, all_types;
    const char *device;
    int64_t threads;
};

// One library's report, printed. What failed is `err`'s.
static enum kiln_status verify_one(
        const struct verify_options *o, const char *path, struct kiln_err *err) {
    struct kiln_buf report = {0};
    char doing[] = "corners on sim";
    struct kiln_corners_params corners = {.path = path,
            .device = o->device,
            .threads = (uint32_t)o->threads,
            .all_types = o->all_types};
    const struct kiln_verify_params params = {.path = path,
            .limit_ms = KILN_VERIFY_LIMIT_MS,
            .more = o->no_sim ? NULL : kiln_corners_try,
            .more_arg = &corners,
            .step_ms = STEP_LIMIT_MS,
            .progress = kiln_progress_bar(),
            .progress_arg = doing};
    enum kiln_status status = kiln_plugin_verify(&params, &report, err);
    struct kiln_err printing = {0};
    if (kiln_out_buf(&report, &printing) != KILN_STATUS_OK) {
        *err = printing;
        return printing.status;
    }
    return status;
}

static enum kiln_status verify(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct verify_options o = {.no_sim = 0};
    int done;
    const struct kiln_opt table[] = {
            {"FILE", NULL, KILN_OPT_REST, &o.files, NULL, "plugin libraries", 0, 0},
            {"--no-sim", NULL, KILN_OPT_FLAG, &o.no_sim, NULL,
                    "plans alone: no kernel is compiled or run", 0, 0},
            {"--all-types", NULL, KILN_OPT_FLAG, &o.all_types, NULL,
                    "every corner with every weight type, not with one of them in turn", 0, 0},
            {"--device", NULL, KILN_OPT_STRING, &o.device, "sim:sm_XX",
                    "run them there alone (default: on sim, and on sim:sm_90a what declines there)",
                    0, 0},
            {"-t", "--threads", KILN_OPT_INT, &o.threads, "N",
                    "corners at once (default: all cores)", 1, 1024},
            KILN_OPT_END};
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    if (o.files.count == 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "kiln plugins verify needs a plugin's file");
    }
    if (o.device && strncmp(o.device, "sim", 3) != 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--device %s: verify runs kernels on sim or sim:sm_XX; `kiln gate parity --all` "
                "takes any device",
                o.device);
    }
    enum kiln_status worst = KILN_STATUS_OK;
    for (size_t i = 0; i < o.files.count; i++) {
        struct kiln_err one = {0};
        enum kiln_status status = verify_one(&o, o.files.items[i], &one);
        if (status != KILN_STATUS_OK) {
            if (worst != KILN_STATUS_OK) {
                kiln_say("%s", err->text);
            }
            worst = status;
            *err = one;
        }
    }
    return worst;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    const struct kiln_cmd table[] = {
            {"plugins list", "the plugins found, and those refused with the reason", "[--json]",
                    "kiln plugins list", list},
            {"plugins inspect", "a plugin's variants, slots, formats and geometry",
                    "PLUGIN [--json]", "kiln plugins inspect cpu", inspect},
            {"plugins verify", "whether a plugin is fit to ship, tried in a child process",
                    "FILE … [--no-sim] [--all-types] [--device sim:sm_XX] [-t N]",
                    "kiln plugins verify ./my_plugin.so", verify},
            kiln_cmd_plugins_new,
            {0},
    };
    return kiln_cmd_dispatch(cmd, table, argc, argv, err);
}

const struct kiln_cmd kiln_cmd_plugins = {
        .name = "plugins",
        .summary = "the plugins: list, inspect, verify, new",
        .usage = "list|inspect|verify|new …",
        .example = "kiln plugins inspect cpu",
        .run = run,
};
