// unit: gathers source, headers and options, and writes the key text.
#include "jit/unit.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "jit/defines.h"
#include "jit/source_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    MAX_SOURCE = 16 << 20,
    OPTIONS_SINCE = 13 // NVRTC's major version that knows --minimal and --no-cache
};

void kiln_unit_destroy(struct kiln_unit *unit) {
    if (unit) {
        kiln_free(unit->label);
        kiln_free(unit->geometry);
        kiln_free(unit->file);
        kiln_free(unit->program);
        kiln_free(unit->entry);
        kiln_free(unit->instance);
        kiln_free(unit->target);
        kiln_includes_finish(&unit->includes);
        for (size_t i = 0; i < unit->n_options; i++) {
            kiln_free(unit->options[i]);
        }
        kiln_free(unit->options);
        kiln_free(unit->key_text);
        kiln_free(unit);
    }
}

// ---- Options ------------------------------------------------------------------------------------

// Takes over `option`.
static enum kiln_status add_option(struct kiln_unit *unit, char *option, struct kiln_err *err) {
    if (!option || kiln_grow(&unit->options, &unit->cap_options, unit->n_options + 1,
                           sizeof(*unit->options)) != 0) {
        kiln_free(option);
        return kiln_err_nomem(err, "compile options");
    }
    unit->options[unit->n_options++] = option;
    return KILN_STATUS_OK;
}

static int starts_with(const char *text, const char *word) {
    return strncmp(text, word, strlen(word)) == 0;
}

// The folder that an include option adds; NULL when it is another option.
static const char *include_option(const char *option) {
    static const char *const words[] = {"--include-path=", "-I=", "-I"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (starts_with(option, words[i]) && option[strlen(words[i])]) {
            return option + strlen(words[i]);
        }
    }
    return NULL;
}

static enum kiln_status check_option(const char *option, struct kiln_err *err) {
    static const char *const refused[] = {"--gpu-architecture", "-arch", "--pre-include",
            "-include", "-dlto", "--dlink-time-opt", "--device-debug", "-G", "--time", "-time",
            "-I", "--include-path"};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        size_t len = strlen(refused[i]);
        if (starts_with(option, refused[i]) &&
                (option[len] == '\0' || (option[len] == '=' && !include_option(option)))) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "compile option '%s' is not for a source to give: kiln sets the target and "
                    "what is compiled in",
                    option);
        }
    }
    const char *dir = include_option(option);
    if (*option != '-' || strpbrk(option, "\n\r") || (dir && *dir != '/')) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "compile option '%s': one option on one line is allowed, include folders with "
                "their "
                "whole path in the same word",
                option);
    }
    return KILN_STATUS_OK;
}

static int given(const struct kiln_source *source, const char *a, const char *b) {
    for (uint32_t i = 0; i < source->n_options; i++) {
        if (starts_with(source->options[i], a) || starts_with(source->options[i], b)) {
            return 1;
        }
    }
    return 0;
}

// Whether an option of the source is given to the compiler. One only saves compile time, and was
// chosen for that very text: it is not for what replaces it, nor for a compiler that does not know
// it.
static int is_wanted(const char *option, int replaced, const struct kiln_nvrtc *nvrtc) {
    return strcmp(option, "--minimal") != 0 || (nvrtc->major >= OPTIONS_SINCE && !replaced);
}

static enum kiln_status gather_options(struct kiln_unit *unit, const struct kiln_source *source,
        int replaced, const struct kiln_nvrtc *nvrtc, struct kiln_err *err) {
    KILN_TRY(add_option(unit, kiln_asprintf("--gpu-architecture=%s", unit->arch), err));
    if (!given(source, "-std", "--std")) {
        KILN_TRY(add_option(unit, kiln_strdup("-std=c++17"), err));
    }
    if (!given(source, "-lineinfo", "--generate-line-info")) {
        KILN_TRY(add_option(unit, kiln_strdup("-lineinfo"), err));
    }
    if (!unit->ptx) {
        KILN_TRY(add_option(unit, kiln_strdup("--ptxas-options=-v"), err));
    }
    if (nvrtc->major >= OPTIONS_SINCE) {
        // NVRTC's own cache answers without ptxas's word on registers and spills.
        KILN_TRY(add_option(unit, kiln_strdup("--no-cache"), err));
    }
    for (uint32_t i = 0; i < source->n_options; i++) {
        KILN_TRY(check_option(source->options[i], err));
        if (is_wanted(source->options[i], replaced, nvrtc)) {
            KILN_TRY(add_option(unit, kiln_strdup(source->options[i]), err));
        }
    }
    if (source->flags & KILN_SOURCE_CUDA_INCLUDE) {
        char *dir = kiln_cuda_include_dir(nvrtc);
        if (!dir) {
            return kiln_err_set(err, KILN_STATUS_DEVICE,
                    "the source wants CUDA's headers (cuda_fp16.h), and no CUDA toolkit is here: "
                    "CUDA_HOME names one");
        }
        enum kiln_status status = add_option(unit, kiln_asprintf("--include-path=%s", dir), err);
        // From CUDA 13 on what cooperative_groups.h and cuda/pipeline include lies deeper.
        char *deeper = status == KILN_STATUS_OK ? kiln_asprintf("%s/cccl", dir) : NULL;
        if (deeper && access(deeper, R_OK) == 0) {
            status = add_option(unit, kiln_asprintf("--include-path=%s", deeper), err);
        }
        kiln_free(deeper);
        kiln_free(dir);
        return status;
    }
    return KILN_STATUS_OK;
}

// ---- Sources ------------------------------------------------------------------------------------

static enum kiln_status read_includes(struct kiln_unit *unit,
        const struct kiln_jit_request *request, const char *text, struct kiln_err *err) {
    const struct kiln_source *source = request->kernel->source;
    const char **dirs = kiln_calloc(unit->n_options, sizeof(*dirs));
    const char *slash = request->source ? strrchr(request->source, '/') : NULL;
    char *dir = request->source
                        ? (slash ? kiln_strndup(request->source, (size_t)(slash - request->source))
                                 : kiln_strdup("."))
                        : NULL;
    enum kiln_status status;
    if (!dirs || (request->source && !dir)) {
        status = kiln_err_nomem(err, "include folders");
    } else {
        struct kiln_include_search search = {.dir = dir,
                .headers = source->headers,
                .n_headers = source->n_headers,
                .dirs = dirs};
        for (size_t i = 0; i < unit->n_options; i++) {
            const char *folder = include_option(unit->options[i]);
            if (folder) {
                dirs[search.n_dirs++] = folder;
            }
        }
        status = kiln_includes_read(&unit->includes, text, &search, err);
    }
    kiln_free(dirs);
    kiln_free(dir);
    return status;
}

// The compiler notes absolute file names beside line numbers, made so with the current folder:
// names without one get a slash in front, which compile.c takes off again in messages.
static enum kiln_status number_headers(struct kiln_unit *unit, struct kiln_err *err) {
    for (size_t i = 0; i < unit->includes.count; i++) {
        struct kiln_include *item = &unit->includes.items[i];
        if (item->on_disk) {
            continue;
        }
        const char *name = item->path ? item->path : item->name;
        char *text =
                kiln_asprintf("#line 1 \"%s%s\"\n%s", *name == '/' ? "" : "/", name, item->text);
        if (!text) {
            return kiln_err_nomem(err, "a header");
        }
        kiln_free(item->text);
        item->text = text;
        item->len = strlen(text);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status gather_program(
        struct kiln_unit *unit, const struct kiln_jit_request *request, struct kiln_err *err) {
    char *replacement = NULL;
    size_t size = 0;
    if (request->source) {
        KILN_TRY(kiln_file_read(request->source, MAX_SOURCE, &replacement, &size, err));
        if (strlen(replacement) != size) {
            kiln_free(replacement);
            return kiln_err_set(err, KILN_STATUS_FILE, "%s: is no CUDA source: it holds a NUL byte",
                    request->source);
        }
    }
    const char *text = replacement ? replacement : request->kernel->source->text;
    struct kiln_buf program = {0}, label = {0};
    enum kiln_status status =
            kiln_defines_render(request->geometry, request->launch, &program, err);
    if (status == KILN_STATUS_OK) {
        kiln_defines_label(program.data ? program.data : "", &label);
        kiln_buf_printf(&program, "#line 1 \"%s%s\"\n", *unit->file == '/' ? "" : "/", unit->file);
        kiln_buf_puts(&program, text);
        unit->program = kiln_buf_take(&program);
        unit->geometry = kiln_buf_take(&label);
        status = unit->program && unit->geometry ? read_includes(unit, request, text, err)
                                                 : kiln_err_nomem(err, "a kernel's source");
    }
    kiln_buf_finish(&program);
    kiln_buf_finish(&label);
    kiln_free(replacement);
    return status == KILN_STATUS_OK ? number_headers(unit, err) : status;
}

// ---- Key ----------------------------------------------------------------------------------------

static void put_digest(struct kiln_buf *text, const char *data, size_t len) {
    XXH128_hash_t hash = XXH3_128bits(data, len);
    kiln_buf_printf(text, " %zu bytes %016" PRIx64 "%016" PRIx64 "\n", len, (uint64_t)hash.high64,
            (uint64_t)hash.low64);
}

static enum kiln_status make_key(
        struct kiln_unit *unit, const char *nvrtc_identity, struct kiln_err *err) {
    struct kiln_buf text = {0};
    kiln_buf_printf(&text, "format %d\nnvrtc %s\ntarget %s%s\n", (int)KILN_JIT_FORMAT,
            nvrtc_identity, unit->target, unit->ptx ? " ptx" : "");
    for (size_t i = 0; i < unit->n_options; i++) {
        kiln_buf_printf(&text, "option %s\n", unit->options[i]);
    }
    kiln_buf_printf(&text, "entry %s\n", unit->entry);
    if (unit->instance) {
        kiln_buf_printf(&text, "instance %s\n", unit->instance);
    }
    kiln_buf_printf(&text, "geometry %s\nsource %s", unit->geometry, unit->file);
    put_digest(&text, unit->program, strlen(unit->program));
    for (size_t i = 0; i < unit->includes.count; i++) {
        const struct kiln_include *item = &unit->includes.items[i];
        kiln_buf_printf(&text, "header %s", item->name);
        put_digest(&text, item->text, item->len);
    }
    unit->key_text = kiln_buf_take(&text);
    if (!unit->key_text) {
        return kiln_err_nomem(err, "a cache key");
    }
    XXH128_hash_t hash = XXH3_128bits(unit->key_text, strlen(unit->key_text));
    (void)snprintf(unit->key.hex, sizeof(unit->key.hex), "%016" PRIx64 "%016" PRIx64,
            (uint64_t)hash.high64, (uint64_t)hash.low64);
    return KILN_STATUS_OK;
}

// Whether the file that replaces the variant's source is for this kernel: it has to spell its name
// (of a template instance, "name<64>", what stands before its arguments).
static enum kiln_status is_replaced(
        const struct kiln_jit_request *request, int *replaced, struct kiln_err *err) {
    const struct kiln_kernel *kernel = request->kernel;
    struct kiln_source_files files;
    const char *spelled = kernel->instance ? kernel->instance : kernel->name;
    size_t len = strcspn(spelled, "<");
    while (len > 0 && spelled[len - 1] == ' ') {
        len--;
    }
    char *name = kiln_strndup(spelled, len);
    if (!name) {
        return kiln_err_nomem(err, "a kernel's name");
    }
    const char *colons = strrchr(name, ':');
    enum kiln_status status = kiln_source_files_read(&files, request->source, err);
    *replaced =
            status == KILN_STATUS_OK && kiln_source_files_spell(&files, colons ? colons + 1 : name);
    kiln_source_files_finish(&files);
    kiln_free(name);
    return status;
}

static enum kiln_status fill(struct kiln_unit *unit, const struct kiln_jit_request *request,
        const struct kiln_nvrtc *nvrtc, struct kiln_err *err) {
    const struct kiln_kernel *kernel = request->kernel;
    unit->label = kiln_asprintf("%s/%s kernel %s", request->plugin, request->variant, kernel->name);
    unit->file = kiln_strdup(request->source ? request->source : kernel->source->name);
    unit->entry = kiln_strdup(kernel->name);
    unit->instance = kernel->instance ? kiln_strdup(kernel->instance) : NULL;
    unit->target = kiln_strdup(request->target);
    unit->shared_bytes = request->launch->shared_bytes;
    if (!unit->label || !unit->file || !unit->entry || !unit->target ||
            (kernel->instance && !unit->instance)) {
        return kiln_err_nomem(err, "a compile");
    }
    if (strpbrk(unit->file, "\"\\\n")) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "source file '%s': quotes, backslashes and line ends are not allowed in its name",
                unit->file);
    }
    KILN_TRY(kiln_nvrtc_arch(nvrtc, request->target, request->ptx, unit->arch, err));
    unit->ptx = starts_with(unit->arch, "compute");
    KILN_TRY(gather_options(unit, kernel->source, request->source != NULL, nvrtc, err));
    KILN_TRY(gather_program(unit, request, err));
    return make_key(unit, nvrtc->identity, err);
}

enum kiln_status kiln_unit_make(struct kiln_unit **unit, const struct kiln_jit_request *request,
        const struct kiln_nvrtc *nvrtc, struct kiln_err *err) {
    *unit = NULL;
    if (!request->kernel->source) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s/%s kernel %s is a host kernel: it has no CUDA source to compile",
                request->plugin, request->variant, request->kernel->name);
    }
    struct kiln_unit *made = kiln_calloc(1, sizeof(*made));
    if (!made) {
        return kiln_err_nomem(err, "a compile");
    }
    struct kiln_jit_request chosen = *request;
    int replaced = 0;
    enum kiln_status status =
            request->source ? is_replaced(request, &replaced, err) : KILN_STATUS_OK;
    chosen.source = replaced ? request->source : NULL;
    if (status == KILN_STATUS_OK) {
        status = fill(made, &chosen, nvrtc, err);
    }
    if (status != KILN_STATUS_OK) {
        if (made->label && status != KILN_STATUS_NOMEM) {
            kiln_err_prefix(err, "%s: ", made->label);
        }
        kiln_unit_destroy(made);
        return status;
    }
    *unit = made;
    return KILN_STATUS_OK;
}
