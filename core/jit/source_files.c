// source_files: reads a source and its includes, keeps names and a digest.
#include "jit/source_files.h"

#include "base/file.h"
#include "base/mem.h"
#include "jit/includes.h"

#include <string.h>
#include <xxhash.h>

enum {
    MAX_SOURCE = 16 << 20
};

void kiln_source_files_finish(struct kiln_source_files *files) {
    for (size_t i = 0; i < files->count; i++) {
        kiln_free(files->items[i].path);
        kiln_free(files->items[i].text);
    }
    kiln_free(files->items);
    *files = (struct kiln_source_files){.items = NULL};
}

static enum kiln_status add(struct kiln_source_files *files, const char *path, const char *text,
        size_t len, struct kiln_err *err) {
    struct kiln_source_file file = {.path = kiln_strdup(path), .text = kiln_strndup(text, len)};
    if (!file.path || !file.text ||
            kiln_grow(&files->items, &files->cap, files->count + 1, sizeof(*files->items)) != 0) {
        kiln_free(file.path);
        kiln_free(file.text);
        return kiln_err_nomem(err, "a list of source files");
    }
    files->items[files->count++] = file;
    files->digest = XXH3_64bits_withSeed(text, len, files->digest) | 1;
    return KILN_STATUS_OK;
}

// ---- Names --------------------------------------------------------------------------------------

static int is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Behind a comment, a string or a character that starts at `at`; `at` itself where none does.
static const char *skip_quiet(const char *at) {
    if (at[0] == '/' && at[1] == '/') {
        return at + strcspn(at, "\n");
    }
    if (at[0] == '/' && at[1] == '*') {
        const char *end = strstr(at + 2, "*/");
        return end ? end + 2 : at + strlen(at);
    }
    if (*at == '"' || *at == '\'') {
        const char *end = at + 1;
        while (*end && *end != *at && *end != '\n') {
            end += *end == '\\' && end[1] ? 2 : 1;
        }
        return *end ? end + 1 : end;
    }
    return at;
}

static int spells(const char *text, const char *name) {
    size_t len = strlen(name);
    for (const char *at = text; *at;) {
        const char *behind = skip_quiet(at);
        if (behind != at) {
            at = behind;
            continue;
        }
        size_t word = 0;
        while (is_word(at[word])) {
            word++;
        }
        if (word == len && memcmp(at, name, len) == 0) {
            return 1;
        }
        at += word ? word : 1;
    }
    return 0;
}

int kiln_source_files_spell(const struct kiln_source_files *files, const char *name) {
    for (size_t i = 0; i < files->count; i++) {
        if (spells(files->items[i].text, name)) {
            return 1;
        }
    }
    return 0;
}

// ---- Reading ------------------------------------------------------------------------------------

static enum kiln_status add_includes(
        struct kiln_source_files *files, const char *path, const char *text, struct kiln_err *err) {
    const char *slash = strrchr(path, '/');
    char *dir = slash ? kiln_strndup(path, (size_t)(slash - path)) : kiln_strdup(".");
    if (!dir) {
        return kiln_err_nomem(err, "a path");
    }
    struct kiln_includes includes = {.items = NULL};
    struct kiln_include_search search = {.dir = dir};
    enum kiln_status status = kiln_includes_read(&includes, text, &search, err);
    for (size_t i = 0; status == KILN_STATUS_OK && i < includes.count; i++) {
        const struct kiln_include *item = &includes.items[i];
        status = add(files, item->path, item->text, item->len, err);
    }
    kiln_includes_finish(&includes);
    kiln_free(dir);
    return status;
}

enum kiln_status kiln_source_files_read(
        struct kiln_source_files *files, const char *path, struct kiln_err *err) {
    char *text = NULL;
    size_t len = 0;
    *files = (struct kiln_source_files){.items = NULL};
    KILN_TRY(kiln_file_read(path, MAX_SOURCE, &text, &len, err));
    enum kiln_status status = add(files, path, text, len, err);
    if (status == KILN_STATUS_OK) {
        status = add_includes(files, path, text, err);
    }
    kiln_free(text);
    return status;
}
