// cmd_model_widen: rewrites a model into one of the same function with larger heads.
#include "cmd.h"

#include "common.h"
#include "model/widen.h"

#include <inttypes.h>

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    const char *in = NULL, *out = NULL;
    int64_t head_size = 128;
    int done;
    const struct kiln_opt table[] = {
            {"IN", NULL, KILN_OPT_ENTRY, &in, NULL, "model to read (llama or qwen2)", 0, 0},
            {"OUT", NULL, KILN_OPT_ENTRY, &out, NULL, "file to write", 0, 0},
            {"--head-size", NULL, KILN_OPT_INT, &head_size, "N",
                    "of the result (default 128), above the model's own", 2, 1024},
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    if (!in || !out) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "kiln %s needs a model and a file to write: %s",
                cmd->name, cmd->example);
    }
    kiln_interrupt_catch();
    static char doing[] = "writing";
    struct kiln_widen widen = {.head_size = (int32_t)head_size,
            .stop = kiln_interrupted,
            .progress = kiln_progress_bar(),
            .progress_arg = doing};
    struct kiln_widen_result result;
    KILN_TRY(kiln_widen_write(&widen, in, out, &result, err));
    struct kiln_buf text = {0};
    kiln_buf_printf(&text,
            "%s: heads of %" PRId32 " instead of %" PRId32 ", %zu of %zu tensors now f32, %" PRIu64
            " bytes\n",
            out, widen.head_size, result.old_head_size, result.n_f32, result.n_tensors,
            result.file_bytes);
    return kiln_out_buf(&text, err);
}

const struct kiln_cmd kiln_cmd_model_widen = {
        .name = "model widen",
        .summary = "rewrite a model into one of the same function with larger heads",
        .usage = "--head-size N IN OUT",
        .example = "kiln model widen --head-size 128 model.gguf model-hd128.gguf",
        .run = run,
};
