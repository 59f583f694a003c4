// prompt: reads a prompt as token ids.
#include "prompt.h"

#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PROMPT = 1 << 28
};

int kiln_prompt_is_interactive(const struct kiln_prompt_source *source) {
    return !source->text && !source->file && !source->ids_file;
}

enum kiln_status kiln_prompt_check(const struct kiln_prompt_source *source, struct kiln_err *err) {
    if (!!source->text + !!source->file + !!source->ids_file > 1) {
        return kiln_err_set(
                err, KILN_STATUS_USAGE, "give the prompt once: by -p, by -f or by --prompt-ids");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status read_ids(const char *path, struct kiln_ids *ids, struct kiln_err *err) {
    static const char separators[] = " \t\r\n,[]";
    char *data;
    size_t size;
    KILN_TRY(kiln_file_read(path, MAX_PROMPT, &data, &size, err));
    enum kiln_status status = KILN_STATUS_OK;
    for (const char *at = data + strspn(data, separators); *at && status == KILN_STATUS_OK;) {
        char *end;
        errno = 0;
        long id = strtol(at, &end, 10);
        if (errno || end == at || id < 0 || id > INT32_MAX || (*end && !strchr(separators, *end))) {
            status = kiln_err_set(err, KILN_STATUS_USAGE,
                    "%s: byte %td is no token id (a whole number that is not negative): '%.20s'",
                    path, at - data, at);
            break;
        }
        status = kiln_ids_push(ids, (int32_t)id, err);
        at = end + strspn(end, separators);
    }
    if (status == KILN_STATUS_OK && strlen(data) != size) {
        status = kiln_err_set(err, KILN_STATUS_USAGE, "%s: byte %zu is a NUL", path, strlen(data));
    }
    kiln_free(data);
    return status;
}

static enum kiln_status encode(const struct kiln_prompt_source *source,
        const struct kiln_tokenizer *tokenizer, struct kiln_ids *ids, struct kiln_err *err) {
    unsigned flags = KILN_TOKENIZE_BOS | (source->no_special ? 0u : KILN_TOKENIZE_SPECIAL);
    if (source->text) {
        return kiln_tokenizer_encode(
                tokenizer, source->text, strlen(source->text), flags, ids, err);
    }
    char *data;
    size_t size;
    KILN_TRY(kiln_file_read(source->file, MAX_PROMPT, &data, &size, err));
    enum kiln_status status = kiln_tokenizer_encode(tokenizer, data, size, flags, ids, err);
    kiln_free(data);
    return status;
}

enum kiln_status kiln_prompt_read(const struct kiln_prompt_source *source,
        const struct kiln_tokenizer *tokenizer, const char *model, struct kiln_ids *ids,
        struct kiln_err *err) {
    if (source->ids_file) {
        KILN_TRY(read_ids(source->ids_file, ids, err));
    } else if (!tokenizer) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "%s has no tokenizer: give token ids with --prompt-ids FILE", model);
    } else {
        KILN_TRY(encode(source, tokenizer, ids, err));
    }
    if (ids->len > 0) {
        return KILN_STATUS_OK;
    }
    if (!tokenizer || kiln_tokenizer_bos(tokenizer) < 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "the prompt is empty, and the model has no begin-of-text token to start from");
    }
    return kiln_ids_push(ids, kiln_tokenizer_bos(tokenizer), err);
}
