// cmd_tokenize: a text's token ids on one line.
#include "cmd.h"

#include "base/file.h"
#include "base/mem.h"
#include "common.h"
#include "lab/save.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

enum {
    MAX_TEXT = 1 << 30
};

static enum kiln_status print_ids(const struct kiln_tokenizer *tokenizer,
        const struct kiln_ids *ids, int json, struct kiln_err *err) {
    if (json) {
        json_t *pieces = json_array();
        for (size_t i = 0; pieces && i < ids->len; i++) {
            struct kiln_str piece = kiln_tokenizer_piece(tokenizer, ids->ids[i], 1);
            json_array_append_new(pieces, kiln_json_text(piece.data, piece.len));
        }
        return kiln_out_json(
                json_pack("{s:o, s:o}", "ids", kiln_json_ids(ids->ids, ids->len), "pieces", pieces),
                err);
    }
    struct kiln_buf out = {0};
    for (size_t i = 0; i < ids->len; i++) {
        kiln_buf_printf(&out, "%s%" PRId32, i ? ", " : "[", ids->ids[i]);
    }
    kiln_buf_puts(&out, ids->len ? "]\n" : "[]\n");
    return kiln_out_buf(&out, err);
}

static enum kiln_status tokenize(const char *model, const char *text, size_t len, unsigned flags,
        int json, struct kiln_err *err) {
    struct kiln_gguf *gguf = NULL;
    struct kiln_tokenizer *tokenizer = NULL;
    struct kiln_ids ids = {0};
    enum kiln_status status = kiln_gguf_open(&gguf, model, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_tokenizer_open(&tokenizer, gguf, err);
    }
    if (status == KILN_STATUS_OK && !tokenizer) {
        status = kiln_err_set(err, KILN_STATUS_FILE,
                "%s: key 'tokenizer.ggml.model': the file has no tokenizer", model);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_tokenizer_encode(tokenizer, text, len, flags, &ids, err);
    }
    if (status == KILN_STATUS_OK) {
        status = print_ids(tokenizer, &ids, json, err);
    }
    kiln_ids_finish(&ids);
    kiln_tokenizer_close(tokenizer);
    kiln_gguf_close(gguf);
    return status;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_common common;
    kiln_common_init(&common);
    const char *text = NULL, *file = NULL;
    int no_special = 0, no_bos = 0, done;
    const struct kiln_opt table[] = {
            KILN_COMMON_MODEL(&common),
            {"-p", "--prompt", KILN_OPT_STRING, &text, "TEXT", "the text", 0, 0},
            {"-f", "--file", KILN_OPT_STRING, &file, "FILE",
                    "the text is in a file; - is standard input", 0, 0},
            {"--no-special", NULL, KILN_OPT_FLAG, &no_special, NULL,
                    "control tokens spelled out in the text are text", 0, 0},
            {"--no-bos", NULL, KILN_OPT_FLAG, &no_bos, NULL, "no begin-of-text in front", 0, 0},
            KILN_COMMON_OUTPUT(&common),
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    if (!common.model || (!text && !file) || (text && file)) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "kiln tokenize needs -m MODEL and one of -p TEXT and -f FILE%s",
                common.model ? "" : "; `tools/fetch-model smollm2` fetches a model");
    }
    char *data = NULL;
    size_t len = text ? strlen(text) : 0;
    if (file) {
        KILN_TRY(kiln_file_read(file, MAX_TEXT, &data, &len, err));
    }
    unsigned flags = (no_bos ? 0u : KILN_TOKENIZE_BOS) | (no_special ? 0u : KILN_TOKENIZE_SPECIAL);
    enum kiln_status status =
            tokenize(common.model, data ? data : text, len, flags, common.json, err);
    kiln_free(data);
    return status;
}

const struct kiln_cmd kiln_cmd_tokenize = {
        .name = "tokenize",
        .summary = "a text's token ids",
        .usage = "-m MODEL (-p TEXT | -f FILE) [--no-special] [--json]",
        .example = "kiln tokenize -m model.gguf -p 'Hello, world!'",
        .run = run,
};
