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
        kiln_free(files->paths[i]);
    }
    kiln_free(files->paths);
    *files = (struct kiln_source_files){.paths = NULL};
}

static enum kiln_status add(struct kiln_source_files *files, const char *path, const char *text,
        size_t len, struct kiln_err *err) {
    char *copy = kiln_strdup(path);
    if (!copy ||
            kiln_grow(&files->paths, &files->cap, files->count + 1, sizeof(*files->paths)) != 0) {
        kiln_free(copy);
        return kiln_err_nomem(err, "a list of source files");
    }
    files->paths[files->count++] = copy;
    files->digest = XXH3_64bits_withSeed(text, len, files->digest) | 1;
    return KILN_STATUS_OK;
}

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
    *files = (struct kiln_source_files){.paths = NULL};
    KILN_TRY(kiln_file_read(path, MAX_SOURCE, &text, &len, err));
    enum kiln_status status = add(files, path, text, len, err);
    if (status == KILN_STATUS_OK) {
        status = add_includes(files, path, text, err);
    }
    kiln_free(text);
    return status;
}
