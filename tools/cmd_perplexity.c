// cmd_perplexity: how well the model predicts a text.
#include "cmd.h"

#include "base/file.h"
#include "base/mem.h"
#include "common.h"
#include "engine/perplexity.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

enum {
    MAX_TEXT = 1 << 30,
    DEFAULT_CTX = 512
};

static void show_chunk(void *arg, int64_t chunk, int64_t chunks, double ppl) {
    (void)arg;
    fprintf(stderr, "chunk %" PRId64 "/%" PRId64 ": ppl = %.4f\n", chunk, chunks, ppl);
}

static enum kiln_status print(const struct kiln_perplexity *p, int json, struct kiln_err *err) {
    if (json) {
        return kiln_out_json(
                json_pack("{s:f, s:f, s:I, s:I}", "ppl", p->ppl, "error", p->error, "tokens",
                        (json_int_t)p->scored, "chunks", (json_int_t)p->chunks),
                err);
    }
    struct kiln_buf out = {0};
    kiln_buf_printf(
            &out, "ppl = %.4f +/- %.4f over %" PRId64 " tokens\n", p->ppl, p->error, p->scored);
    return kiln_out_buf(&out, err);
}

static enum kiln_status measure(const struct kiln_common *common, const char *text, size_t len,
        int64_t chunks, struct kiln_err *err) {
    struct kiln_run run;
    KILN_TRY(kiln_run_open(&run, common, err));
    struct kiln_ids ids = {0};
    struct kiln_perplexity result = {0};
    const struct kiln_tokenizer *tokenizer = run.session.model->tokenizer;
    enum kiln_status status =
            tokenizer ? kiln_tokenizer_encode(tokenizer, text, len, KILN_TOKENIZE_BOS, &ids, err)
                      : kiln_err_set(err, KILN_STATUS_FILE,
                                "%s: key 'tokenizer.ggml.model': the file has no tokenizer",
                                common->model);
    if (status == KILN_STATUS_OK) {
        status = kiln_perplexity(&run.session, ids.ids, (int64_t)ids.len, common->ctx, chunks,
                show_chunk, NULL, &result, err);
    }
    if (status == KILN_STATUS_OK) {
        status = print(&result, common->json, err);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_run_verdict(&run, err);
    }
    kiln_ids_finish(&ids);
    kiln_run_close(&run);
    return status;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_common common;
    kiln_common_init(&common);
    common.ctx = DEFAULT_CTX;
    const char *file = NULL;
    int64_t chunks = 0;
    int done;
    const struct kiln_opt table[] = {
            KILN_COMMON_MODEL(&common),
            {"-f", "--file", KILN_OPT_STRING, &file, "FILE", "the text; - is standard input", 0, 0},
            {"--chunks", NULL, KILN_OPT_INT, &chunks, "K", "the first K chunks only", 1, 1e9},
            KILN_COMMON_ENGINE(&common),
            KILN_COMMON_SIM(&common),
            KILN_COMMON_CONFIG(&common),
            KILN_COMMON_OUTPUT(&common),
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    if (!file) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "kiln perplexity needs a text: -f FILE");
    }
    if (common.ctx < 4) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "kiln perplexity: -c is %" PRId64 ", at least 4 is needed", common.ctx);
    }
    char *data;
    size_t len;
    KILN_TRY(kiln_file_read(file, MAX_TEXT, &data, &len, err));
    enum kiln_status status = measure(&common, data, len, chunks, err);
    kiln_free(data);
    return status;
}

const struct kiln_cmd kiln_cmd_perplexity = {
        .name = "perplexity",
        .summary = "how well the model predicts a text",
        .usage = "-m MODEL -f FILE [-c N] [--chunks K] [--json]",
        .example = "kiln perplexity -m model.gguf -f /usr/share/common-licenses/GPL-3 -c 512",
        .run = run,
};
