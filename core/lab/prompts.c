// prompts: reads them from text and from JSON lines.
#include "lab/prompts.h"

#include "base/file.h"
#include "base/mem.h"

#include <jansson.h>
#include <string.h>

enum {
    MAX_FILE = 1 << 28
};

struct reader {
    struct kiln_prompts *prompts;
    const char *path;
    const struct kiln_tokenizer *tokenizer;
    size_t line; // of the text at hand, from 1
};

static enum kiln_status bad(const struct reader *reader, const char *what, struct kiln_err *err) {
    return kiln_err_set(err, KILN_STATUS_FILE, "%s:%zu: %s", reader->path, reader->line, what);
}

// Room for one more prompt, empty; NULL when memory ran out.
static struct kiln_ids *next_item(struct reader *reader) {
    struct kiln_prompts *prompts = reader->prompts;
    if (kiln_grow(&prompts->items, &prompts->cap, prompts->count + 1, sizeof(*prompts->items)) !=
            0) {
        return NULL;
    }
    struct kiln_ids *ids = &prompts->items[prompts->count++];
    *ids = (struct kiln_ids){0};
    return ids;
}

static enum kiln_status add_text(
        struct reader *reader, const char *text, size_t len, struct kiln_err *err) {
    if (!reader->tokenizer) {
        return bad(reader, "the model has no tokenizer: give \"prompt_ids\" in a .jsonl file", err);
    }
    struct kiln_ids *ids = next_item(reader);
    if (!ids) {
        return kiln_err_nomem(err, "the prompts");
    }
    KILN_TRY(kiln_tokenizer_encode(
            reader->tokenizer, text, len, KILN_TOKENIZE_BOS | KILN_TOKENIZE_SPECIAL, ids, err));
    return ids->len > 0 ? KILN_STATUS_OK : bad(reader, "the prompt has no tokens", err);
}

static enum kiln_status add_ids(struct reader *reader, const json_t *array, struct kiln_err *err) {
    struct kiln_ids *ids = next_item(reader);
    size_t i;
    const json_t *value;
    if (!ids) {
        return kiln_err_nomem(err, "the prompts");
    }
    json_array_foreach(array, i, value) {
        json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id > INT32_MAX) {
            return bad(reader, "\"prompt_ids\" holds something that is no token id", err);
        }
        KILN_TRY(kiln_ids_push(ids, (int32_t)id, err));
    }
    return ids->len > 0 ? KILN_STATUS_OK : bad(reader, "\"prompt_ids\" is empty", err);
}

static enum kiln_status add_json(
        struct reader *reader, const char *text, size_t len, struct kiln_err *err) {
    json_error_t problem;
    json_t *object = json_loadb(text, len, 0, &problem);
    if (!object) {
        return bad(reader, problem.text, err);
    }
    const json_t *ids = json_object_get(object, "prompt_ids");
    const json_t *prompt = json_object_get(object, "prompt");
    enum kiln_status status;
    if (json_is_array(ids)) {
        status = add_ids(reader, ids, err);
    } else if (json_is_string(prompt)) {
        status = add_text(reader, json_string_value(prompt), json_string_length(prompt), err);
    } else {
        status = bad(reader, "no \"prompt\" (text) and no \"prompt_ids\" (list of ids)", err);
    }
    json_decref(object);
    return status;
}

static int is_blank(const char *text, size_t len) {
    while (len > 0 && strchr(" \t\r", text[len - 1])) {
        len--;
    }
    return len == 0;
}

static int is_dashes(const char *line, size_t len) {
    return len == 3 && memcmp(line, "---", 3) == 0;
}

typedef enum kiln_status (*line_fn)(
        struct reader *reader, const char *text, size_t len, struct kiln_err *err);

// Every line that is not blank.
static enum kiln_status by_line(
        struct reader *reader, const char *text, size_t size, line_fn add, struct kiln_err *err) {
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t len = end ? (size_t)(end - text) - at : size - at;
        reader->line++;
        if (!is_blank(text + at, len)) {
            KILN_TRY(add(reader, text + at, len, err));
        }
        at += len + 1;
    }
    return KILN_STATUS_OK;
}

// What stands between lines of three dashes, without the line end before such a line.
static enum kiln_status by_dashes(
        struct reader *reader, const char *text, size_t size, struct kiln_err *err) {
    size_t from = 0, line = 1, first = 1;
    for (size_t at = 0; at <= size;) {
        const char *end = at < size ? memchr(text + at, '\n', size - at) : NULL;
        size_t len = end ? (size_t)(end - text) - at : size - at;
        if (at == size || is_dashes(text + at, len)) {
            size_t stop = at > from && text[at - 1] == '\n' ? at - 1 : at;
            reader->line = first;
            if (stop > from && !is_blank(text + from, stop - from)) {
                KILN_TRY(add_text(reader, text + from, stop - from, err));
            }
            from = at + len + 1;
            first = line + 1;
        }
        at += len + 1;
        line++;
    }
    return KILN_STATUS_OK;
}

static int has_dashes(const char *text, size_t size) {
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t len = end ? (size_t)(end - text) - at : size - at;
        if (is_dashes(text + at, len)) {
            return 1;
        }
        at += len + 1;
    }
    return 0;
}

enum kiln_status kiln_prompts_read(struct kiln_prompts *prompts, const char *path,
        const struct kiln_tokenizer *tokenizer, struct kiln_err *err) {
    *prompts = (struct kiln_prompts){0};
    struct reader reader = {.prompts = prompts, .path = path, .tokenizer = tokenizer};
    char *text;
    size_t size, len = strlen(path);
    KILN_TRY(kiln_file_read(path, MAX_FILE, &text, &size, err));
    enum kiln_status status;
    if (len > 6 && strcmp(path + len - 6, ".jsonl") == 0) {
        status = by_line(&reader, text, size, add_json, err);
    } else if (has_dashes(text, size)) {
        status = by_dashes(&reader, text, size, err);
    } else {
        status = by_line(&reader, text, size, add_text, err);
    }
    kiln_free(text);
    if (status == KILN_STATUS_OK && prompts->count == 0) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: no prompts in it: one a line, or separated by lines of three dashes", path);
    }
    return status;
}

void kiln_prompts_finish(struct kiln_prompts *prompts) {
    for (size_t i = 0; i < prompts->count; i++) {
        kiln_ids_finish(&prompts->items[i]);
    }
    kiln_free(prompts->items);
    *prompts = (struct kiln_prompts){0};
}
