// cmd_model_synth: writes a model with random weights at a real model's geometry.
#include "cmd.h"

#include "common.h"
#include "model/synth.h"

#include <inttypes.h>

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    const char *path = NULL;
    int64_t seed = 0;
    struct kiln_synth synth = {.arch = "qwen2", .like = NULL, .quant = "q4_K_M"};
    int done;
    const struct kiln_opt table[] = {
            {"OUT", NULL, KILN_OPT_ENTRY, &path, NULL, "file to write", 0, 0},
            {"--arch", NULL, KILN_OPT_STRING, &synth.arch, "ARCH",
                    "llama, qwen2 (default), qwen3 or gemma3", 0, 0},
            {"--like", NULL, KILN_OPT_STRING, &synth.like, "SIZE",
                    "tiny, or a published size: 0.5b, 7b … (without it: the list)", 0, 0},
            {"--quant", NULL, KILN_OPT_STRING, &synth.quant, "MIX",
                    "mix of types: q4_K_M (default), q8_0, f16 …", 0, 0},
            {"--seed", NULL, KILN_OPT_INT, &seed, "N",
                    "other weights (default 0); the same seed gives the same file", 0, 0},
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    if (!path || !synth.like) {
        struct kiln_buf sizes = {0};
        kiln_synth_sizes(synth.arch, &sizes);
        enum kiln_status status =
                kiln_err_set(err, KILN_STATUS_USAGE, "kiln %s needs %s: %s; sizes of %s: %s",
                        cmd->name, path ? "a size, --like" : "a file to write", cmd->example,
                        synth.arch, sizes.data ? sizes.data : "none, see --arch");
        kiln_buf_finish(&sizes);
        return status;
    }
    kiln_interrupt_catch();
    synth.seed = (uint64_t)seed;
    synth.stop = kiln_interrupted;
    synth.progress = kiln_progress_bar();
    static char doing[] = "writing";
    synth.progress_arg = doing;
    struct kiln_synth_result result;
    KILN_TRY(kiln_synth_write(&synth, path, &result, err));
    struct kiln_buf out = {0};
    kiln_buf_printf(&out,
            "%s: %zu tensors, %" PRIu64 " bytes, random weights of seed %" PRId64 "\n", path,
            result.n_tensors, result.file_bytes, seed);
    return kiln_out_buf(&out, err);
}

const struct kiln_cmd kiln_cmd_model_synth = {
        .name = "model synth",
        .summary = "write a model with random weights at a real model's geometry",
        .usage = "--arch ARCH --like SIZE --quant MIX OUT [--seed N]",
        .example = "kiln model synth --arch qwen2 --like 7b --quant q4_K_M random-7b.gguf",
        .run = run,
};
