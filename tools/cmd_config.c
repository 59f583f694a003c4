// cmd_config: the settings and bindings in force and where each came from.
#include "cmd.h"

#include "common.h"

#include <string.h>

static enum kiln_status show_config(
        const struct kiln_config *config, int json, struct kiln_err *err) {
    struct kiln_buf out = {0};
    enum kiln_status status = KILN_STATUS_OK;
    if (json) {
        status = kiln_config_show_json(config, &out, err);
    } else {
        kiln_config_show(config, &out);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_out_buf(&out, err);
    }
    kiln_buf_finish(&out);
    return status;
}

static enum kiln_status with_config(
        const struct kiln_cmd *cmd, int argc, char **argv, int show, struct kiln_err *err) {
    struct kiln_common common;
    kiln_common_init(&common);
    int done;
    const struct kiln_opt table[] = {KILN_COMMON_ENGINE(&common), KILN_COMMON_CONFIG(&common),
            KILN_COMMON_OUTPUT(&common), KILN_OPT_END};
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    struct kiln_registry *registry;
    struct kiln_config *config = NULL;
    KILN_TRY(kiln_common_registry(&common, &registry, err));
    enum kiln_status status = kiln_common_config(&common, registry, &config, err);
    if (status == KILN_STATUS_OK) {
        const char *ok = common.json ? "{\"ok\": true}\n" : "ok\n";
        status = show ? show_config(config, common.json, err) : kiln_out(ok, strlen(ok), err);
    }
    kiln_config_destroy(config);
    kiln_registry_destroy(registry);
    return status;
}

static enum kiln_status show(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    return with_config(cmd, argc, argv, 1, err);
}

static enum kiln_status check(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    return with_config(cmd, argc, argv, 0, err);
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    static const struct kiln_cmd table[] = {
            {"config show", "the settings and bindings in force, each with where it came from",
                    "[--config FILE] [--set SECTION.KEY=VALUE] [--json]",
                    "kiln config show --set engine.ctx=512", show},
            {"config check", "whether the configuration is sound",
                    "[--config FILE] [--set SECTION.KEY=VALUE]",
                    "kiln config check --config my.ini", check},
            {0},
    };
    return kiln_cmd_dispatch(cmd, table, argc, argv, err);
}

const struct kiln_cmd kiln_cmd_config = {
        .name = "config",
        .summary = "the configuration: show, check",
        .usage = "show|check [--config FILE] [--set SECTION.KEY=VALUE]",
        .example = "kiln config show",
        .run = run,
};
