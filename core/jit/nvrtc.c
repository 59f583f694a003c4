// nvrtc: the library's functions behind kiln's own types.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // dladdr, dlinfo
#endif
#include "jit/nvrtc.h"

#include "base/file.h"
#include "base/mem.h"
#include "jit/elf.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct nvrtc_program; // NVRTC's own; it calls a pointer to it nvrtcProgram

struct kiln_nvrtc_api {
    const char *(*error)(int code);
    int (*version)(int *major, int *minor);
    int (*n_archs)(int *count);
    int (*archs)(int *list);
    int (*create)(struct nvrtc_program **program, const char *text, const char *name, int n,
            const char *const *header_texts, const char *const *header_names);
    int (*destroy)(struct nvrtc_program **program);
    int (*compile)(struct nvrtc_program *program, int n, const char *const *options);
    int (*log_size)(struct nvrtc_program *program, size_t *size);
    int (*log)(struct nvrtc_program *program, char *text);
    int (*cubin_size)(struct nvrtc_program *program, size_t *size);
    int (*cubin)(struct nvrtc_program *program, char *bytes);
    int (*ptx_size)(struct nvrtc_program *program, size_t *size);
    int (*ptx)(struct nvrtc_program *program, char *text);
    int (*add_name)(struct nvrtc_program *program, const char *expression);
    int (*lowered)(struct nvrtc_program *program, const char *expression, const char **name);
};

// What KILN_NVRTC may be, and what to do about one that is not so.
#define NAMING \
    "It names CUDA's runtime compiler: the library (libnvrtc.so.13 or .12) or the folder that " \
    "holds it. Correct it, or unset it and kiln looks by itself; tools/fetch-nvrtc fetches one; " \
    "--device cpu needs none"

// ---- Opening ------------------------------------------------------------------------------------

// dlsym gives an object pointer; POSIX promises that it can stand for a function.
static int bind(void *handle, const char *name, void *slot) {
    void *at = dlsym(handle, name);
    memcpy(slot, &at, sizeof(at));
    return at != NULL;
}

// What a library without the function is, and what to do.
static enum kiln_status wrong(
        const struct kiln_nvrtc *n, const char *function, struct kiln_err *err) {
    const char *kind =
            dlsym(n->handle, "nvrtcVersion") ? "an NVRTC older than CUDA 11.2's" : "no NVRTC";
    const char *named = kiln_nvrtc_named();
    if (!named) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "kernels cannot be compiled: %s is %s (it has no function %s). Name another in "
                "KILN_NVRTC; tools/fetch-nvrtc fetches one",
                n->path, kind, function);
    }
    return kiln_err_set(err, KILN_STATUS_DEVICE,
            "kernels cannot be compiled: KILN_NVRTC is '%.200s', and %s is %s (it has no function "
            "%s). " NAMING,
            named, n->path, kind, function);
}

static enum kiln_status bind_all(struct kiln_nvrtc *n, struct kiln_err *err) {
    struct kiln_nvrtc_api *api = n->api;
    const struct {
        const char *name;
        void *slot;
    } functions[] = {
            {"nvrtcGetErrorString", &api->error},
            {"nvrtcVersion", &api->version},
            {"nvrtcGetNumSupportedArchs", &api->n_archs},
            {"nvrtcGetSupportedArchs", &api->archs},
            {"nvrtcCreateProgram", &api->create},
            {"nvrtcDestroyProgram", &api->destroy},
            {"nvrtcCompileProgram", &api->compile},
            {"nvrtcGetProgramLogSize", &api->log_size},
            {"nvrtcGetProgramLog", &api->log},
            {"nvrtcGetCUBINSize", &api->cubin_size},
            {"nvrtcGetCUBIN", &api->cubin},
            {"nvrtcGetPTXSize", &api->ptx_size},
            {"nvrtcGetPTX", &api->ptx},
            {"nvrtcAddNameExpression", &api->add_name},
            {"nvrtcGetLoweredName", &api->lowered},
    };
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (!bind(n->handle, functions[i].name, functions[i].slot)) {
            return wrong(n, functions[i].name, err);
        }
    }
    return KILN_STATUS_OK;
}

// Appends the build id of a library file, or the digest of its content where it has none.
static void identify_file(struct kiln_buf *text, const char *path) {
    struct kiln_map map;
    struct kiln_err ignored = {0};
    if (kiln_map_open(&map, path, &ignored) != KILN_STATUS_OK) {
        kiln_buf_puts(text, " unreadable");
        return;
    }
    struct kiln_elf elf;
    struct kiln_elf_bytes id;
    if (kiln_elf_open(&elf, map.data, map.size) == 0 && kiln_elf_build_id(&elf, &id) == 0) {
        kiln_buf_puts(text, " ");
        for (uint64_t i = 0; i < id.size; i++) {
            kiln_buf_printf(text, "%02x", id.data[i]);
        }
    } else {
        XXH128_hash_t hash = XXH3_128bits(map.data, map.size);
        kiln_buf_printf(text, " xxh3:%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64,
                (uint64_t)hash.low64);
    }
    kiln_map_close(&map);
}

// The builtins library holds device headers that are compiled in: it is part of the build. NVRTC
// asks the loader for it by its bare name, which fails where its folder is on no search path;
// opened here by its path first, it is there already.
static void take_builtins(struct kiln_buf *text, const struct kiln_nvrtc *n) {
    const char *slash = strrchr(n->path, '/');
    char *path = kiln_asprintf("%.*s/libnvrtc-builtins.so.%d.%d",
            slash ? (int)(slash - n->path) : 1, slash ? n->path : ".", n->major, n->minor);
    if (!path) {
        text->failed = 1;
    } else if (kiln_file_exists(path)) {
        identify_file(text, path);
        (void)dlopen(path, RTLD_NOW | RTLD_LOCAL); // NVRTC itself says what is wrong if this fails
    } else {
        kiln_buf_puts(text, " builtins elsewhere");
    }
    kiln_free(path);
}

static int compare_ints(const void *a, const void *b) {
    int x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return (x > y) - (x < y);
}

static enum kiln_status describe(struct kiln_nvrtc *n, struct kiln_err *err) {
    int count = 0;
    if (n->api->version(&n->major, &n->minor) != 0 || n->api->n_archs(&count) != 0 || count <= 0) {
        return kiln_err_set(
                err, KILN_STATUS_DEVICE, "%s does not say its version or targets", n->path);
    }
    n->archs = kiln_calloc((size_t)count, sizeof(*n->archs));
    if (!n->archs) {
        return kiln_err_nomem(err, "NVRTC's targets");
    }
    if (n->api->archs(n->archs) != 0) {
        return kiln_err_set(err, KILN_STATUS_DEVICE, "%s does not say its targets", n->path);
    }
    n->n_archs = (size_t)count;
    qsort(n->archs, n->n_archs, sizeof(*n->archs), compare_ints);
    struct kiln_buf text = {0};
    kiln_buf_printf(&text, "%d.%d", n->major, n->minor);
    identify_file(&text, n->path);
    take_builtins(&text, n);
    n->identity = kiln_buf_take(&text);
    return n->identity ? KILN_STATUS_OK : kiln_err_nomem(err, "NVRTC's identity");
}

static enum kiln_status absent(const struct kiln_buf *searched, struct kiln_err *err) {
    const char *named = kiln_nvrtc_named(), *places = searched->data ? searched->data : "";
    const int len = searched->len > 0 ? (int)searched->len - 1 : 0; // no newline at the end
    if (named) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "kernels cannot be compiled: KILN_NVRTC is '%.200s', and no library can be opened "
                "there. " NAMING ". Tried:\n%.*s",
                named, len, places);
    }
    return kiln_err_set(err, KILN_STATUS_DEVICE,
            "kernels cannot be compiled: NVRTC (libnvrtc.so), CUDA's runtime compiler, is not "
            "here. Get it with tools/fetch-nvrtc, or name the library or its folder in KILN_NVRTC; "
            "--device cpu needs none. Searched:\n%.*s",
            len, places);
}

// The file that a library came from: that of its own nvrtcVersion, for NVRTC may be what the opened
// library brings with it; of a library without one its own.
static char *file_of(void *handle) {
    Dl_info info;
    struct link_map *map = NULL;
    void *at = dlsym(handle, "nvrtcVersion");
    const char *name = at && dladdr(at, &info) != 0                                ? info.dli_fname
                       : dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name ? map->l_name
                                                                                   : "libnvrtc.so";
    char real[PATH_MAX];
    return kiln_strdup(realpath(name, real) ? real : name);
}

static enum kiln_status open_handle(struct kiln_nvrtc *n, struct kiln_err *err) {
    struct kiln_buf searched = {0};
    n->handle = kiln_nvrtc_find(&searched);
    enum kiln_status status = n->handle ? KILN_STATUS_OK : absent(&searched, err);
    kiln_buf_finish(&searched);
    KILN_TRY(status);
    n->path = file_of(n->handle);
    n->api = kiln_calloc(1, sizeof(*n->api));
    return n->path && n->api ? KILN_STATUS_OK : kiln_err_nomem(err, "NVRTC");
}

enum kiln_status kiln_nvrtc_open(struct kiln_nvrtc **nvrtc, struct kiln_err *err) {
    *nvrtc = NULL;
    struct kiln_nvrtc *n = kiln_calloc(1, sizeof(*n));
    if (!n) {
        return kiln_err_nomem(err, "NVRTC");
    }
    enum kiln_status status = open_handle(n, err);
    if (status == KILN_STATUS_OK) {
        status = bind_all(n, err);
    }
    if (status == KILN_STATUS_OK) {
        status = describe(n, err);
    }
    if (status != KILN_STATUS_OK) {
        kiln_nvrtc_close(n);
        return status;
    }
    *nvrtc = n;
    return KILN_STATUS_OK;
}

void kiln_nvrtc_close(struct kiln_nvrtc *nvrtc) {
    if (nvrtc) {
        // The library stays loaded: it keeps threads and exit handlers of its own.
        kiln_free(nvrtc->api);
        kiln_free(nvrtc->path);
        kiln_free(nvrtc->identity);
        kiln_free(nvrtc->archs);
        kiln_free(nvrtc);
    }
}

// ---- Targets ------------------------------------------------------------------------------------

int kiln_target_parse(const char *target, int *cc, const char **suffix) {
    const char *at = strncmp(target, "sm_", 3) == 0        ? target + 3
                     : strncmp(target, "compute_", 8) == 0 ? target + 8
                                                           : NULL;
    if (!at || strspn(at, "0123456789") < 2 || strspn(at, "0123456789") > 3) {
        return -1;
    }
    char *end;
    *cc = (int)strtol(at, &end, 10);
    *suffix = end;
    return *end == '\0' || ((*end == 'a' || *end == 'f') && end[1] == '\0') ? 0 : -1;
}

static int knows(const struct kiln_nvrtc *nvrtc, int cc) {
    for (size_t i = 0; i < nvrtc->n_archs; i++) {
        if (nvrtc->archs[i] == cc) {
            return 1;
        }
    }
    return 0;
}

enum kiln_status kiln_nvrtc_arch(const struct kiln_nvrtc *nvrtc, const char *target, int ptx,
        char arch[32], struct kiln_err *err) {
    int cc = 0, newest = nvrtc->archs[nvrtc->n_archs - 1];
    const char *suffix = "";
    int parsed = kiln_target_parse(target, &cc, &suffix) == 0;
    if (parsed && knows(nvrtc, cc)) {
        ptx = ptx || target[0] == 'c';
        (void)snprintf(arch, 32, "%s_%d%.1s", ptx ? "compute" : "sm", cc, suffix);
        return KILN_STATUS_OK;
    }
    if (parsed && cc > newest && *suffix == '\0' && cc < 200) {
        (void)snprintf(arch, 32, "compute_%d", newest);
        return KILN_STATUS_OK;
    }
    struct kiln_buf known = {0};
    for (size_t i = 0; i < nvrtc->n_archs; i++) {
        kiln_buf_printf(&known, "%ssm_%d", i ? ", " : "", nvrtc->archs[i]);
    }
    enum kiln_status status = kiln_err_set(err, KILN_STATUS_DEVICE,
            "target '%s': NVRTC %d.%d (%s) does not compile for it; it knows %s (with a or f "
            "behind the "
            "number where the GPU has them). %s",
            target, nvrtc->major, nvrtc->minor, nvrtc->path, known.data ? known.data : "none",
            parsed && cc < nvrtc->archs[0] ? "An older NVRTC still does: KILN_NVRTC names one"
                                           : "A newer NVRTC may: KILN_NVRTC names one");
    kiln_buf_finish(&known);
    return status;
}

// ---- Compiling ----------------------------------------------------------------------------------

static enum kiln_status failed(
        const struct kiln_nvrtc *nvrtc, const char *what, int code, struct kiln_err *err) {
    return kiln_err_set(err, KILN_STATUS_DEVICE, "NVRTC %d.%d: %s: %s", nvrtc->major, nvrtc->minor,
            what, nvrtc->api->error(code));
}

// Reads a text or image out of a program: two calls of NVRTC.
static enum kiln_status fetch(const struct kiln_nvrtc *nvrtc, struct nvrtc_program *program,
        int (*ask)(struct nvrtc_program *, size_t *), int (*get)(struct nvrtc_program *, char *),
        const char *what, char **bytes, size_t *size, struct kiln_err *err) {
    int code = ask(program, size);
    if (code != 0) {
        return failed(nvrtc, what, code, err);
    }
    *bytes = kiln_alloc(*size + 1);
    if (!*bytes) {
        return kiln_err_nomem(err, what);
    }
    (*bytes)[*size] = '\0';
    code = *size ? get(program, *bytes) : 0;
    return code == 0 ? KILN_STATUS_OK : failed(nvrtc, what, code, err);
}

static enum kiln_status take_results(const struct kiln_nvrtc *nvrtc, struct nvrtc_program *handle,
        const struct kiln_nvrtc_program *program, struct kiln_nvrtc_result *result,
        struct kiln_err *err) {
    const struct kiln_nvrtc_api *api = nvrtc->api;
    if (program->instance) {
        const char *name = NULL;
        int code = api->lowered(handle, program->instance, &name);
        if (code != 0) {
            return failed(nvrtc, program->instance, code, err);
        }
        result->lowered = kiln_strdup(name);
        if (!result->lowered) {
            return kiln_err_nomem(err, "a kernel's name");
        }
    }
    KILN_TRY(fetch(nvrtc, handle, program->ptx ? api->ptx_size : api->cubin_size,
            program->ptx ? api->ptx : api->cubin, program->ptx ? "the PTX" : "the cubin",
            &result->image, &result->image_size, err));
    if (program->ptx && result->image_size > 0) {
        result->image_size = strlen(result->image); // NVRTC counts the NUL
    }
    return KILN_STATUS_OK;
}

static enum kiln_status compile(const struct kiln_nvrtc *nvrtc, struct nvrtc_program *handle,
        const struct kiln_nvrtc_program *program, struct kiln_nvrtc_result *result,
        struct kiln_err *err) {
    const struct kiln_nvrtc_api *api = nvrtc->api;
    int code = program->instance ? api->add_name(handle, program->instance) : 0;
    if (code != 0) {
        return failed(nvrtc, program->instance, code, err);
    }
    code = api->compile(handle, program->n_options, program->options);
    size_t size = 0;
    KILN_TRY(fetch(
            nvrtc, handle, api->log_size, api->log, "the compile log", &result->log, &size, err));
    if (code != 0) {
        return failed(nvrtc, "compile", code, err);
    }
    return take_results(nvrtc, handle, program, result, err);
}

enum kiln_status kiln_nvrtc_compile(const struct kiln_nvrtc *nvrtc,
        const struct kiln_nvrtc_program *program, struct kiln_nvrtc_result *result,
        struct kiln_err *err) {
    *result = (struct kiln_nvrtc_result){0};
    struct nvrtc_program *handle = NULL;
    int code = nvrtc->api->create(&handle, program->text, program->name, program->n_headers,
            program->header_texts, program->header_names);
    enum kiln_status status = code == 0 ? compile(nvrtc, handle, program, result, err)
                                        : failed(nvrtc, "a new program", code, err);
    if (handle) {
        (void)nvrtc->api->destroy(&handle);
    }
    if (!result->log && status != KILN_STATUS_NOMEM) {
        result->log = kiln_strdup("");
        status = result->log ? status : kiln_err_nomem(err, "the compile log");
    }
    return status;
}

void kiln_nvrtc_result_finish(struct kiln_nvrtc_result *result) {
    kiln_free(result->image);
    kiln_free(result->lowered);
    kiln_free(result->log);
    *result = (struct kiln_nvrtc_result){0};
}
