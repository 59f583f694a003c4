// cmd_model: what a model file holds; dispatch to the commands that write model files.
#include "cmd.h"

#include "common.h"
#include "model/gguf_describe.h"

static enum kiln_status info(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_common common;
    kiln_common_init(&common);
    const char *path = NULL;
    int tensors = 0, done;
    const struct kiln_opt table[] = {
            {"MODEL", NULL, KILN_OPT_ENTRY, &path, NULL, "GGUF file", 0, 0},
            KILN_COMMON_MODEL(&common),
            {"--tensors", NULL, KILN_OPT_FLAG, &tensors, NULL, "a line for each tensor too", 0, 0},
            KILN_COMMON_OUTPUT(&common),
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    path = path ? path : common.model;
    if (!path) {
        return kiln_err_set(
                err, KILN_STATUS_USAGE, "kiln model info needs a file: kiln model info MODEL");
    }
    struct kiln_gguf *gguf;
    KILN_TRY(kiln_gguf_open(&gguf, path, err));
    enum kiln_status status;
    if (common.json) {
        status = kiln_out_json(kiln_gguf_describe_json(gguf), err);
    } else {
        struct kiln_buf out = {0};
        kiln_gguf_describe(gguf, tensors, &out);
        status = kiln_out_buf(&out, err);
    }
    kiln_gguf_close(gguf);
    return status;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    const struct kiln_cmd table[] = {
            {"model info", "what a model file holds", "MODEL [--tensors] [--json]",
                    "kiln model info model.gguf --tensors", info},
            kiln_cmd_model_synth,
            kiln_cmd_model_widen,
            {0},
    };
    return kiln_cmd_dispatch(cmd, table, argc, argv, err);
}

const struct kiln_cmd kiln_cmd_model = {
        .name = "model",
        .summary = "what a model file holds (info), random (synth) and widened (widen) models",
        .usage = "info|synth|widen …",
        .example = "kiln model info model.gguf",
        .run = run,
};
