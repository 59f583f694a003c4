// sources: what was in the CUDA files that a config names when a runtime was made.
#include "engine/schedule.h"

#include "base/mem.h"
#include "config/layers.h"
#include "jit/source_files.h"

#include <string.h>

void kiln_runtime_drop_sources(struct kiln_runtime *rt) {
    for (size_t i = 0; i < rt->n_sources; i++) {
        kiln_free(rt->sources[i].path);
    }
    kiln_free(rt->sources);
    rt->sources = NULL;
    rt->n_sources = rt->cap_sources = 0;
}

uint64_t kiln_runtime_source_digest(const struct kiln_runtime *rt, const char *path) {
    for (size_t i = 0; path && i < rt->n_sources; i++) {
        if (strcmp(rt->sources[i].path, path) == 0) {
            return rt->sources[i].digest;
        }
    }
    return 0;
}

static enum kiln_status note(struct kiln_runtime *rt, const char *path, struct kiln_err *err) {
    struct kiln_source_files files;
    enum kiln_status status = kiln_source_files_read(&files, path, err);
    uint64_t digest = files.digest;
    kiln_source_files_finish(&files);
    KILN_TRY(status);
    char *copy = kiln_strdup(path);
    if (!copy || kiln_grow(&rt->sources, &rt->cap_sources, rt->n_sources + 1,
                         sizeof(*rt->sources)) != 0) {
        kiln_free(copy);
        return kiln_err_nomem(err, "a list of source files");
    }
    rt->sources[rt->n_sources++] = (struct kiln_source_note){.path = copy, .digest = digest};
    return KILN_STATUS_OK;
}

enum kiln_status kiln_runtime_read_sources(struct kiln_runtime *rt, struct kiln_err *err) {
    const char *path;
    for (size_t i = 0; (path = kiln_config_source(rt->config, i)) != NULL; i++) {
        if (!kiln_runtime_source_digest(rt, path)) {
            KILN_TRY(note(rt, path, err));
        }
    }
    return KILN_STATUS_OK;
}
