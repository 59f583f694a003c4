// cmd_sim: any CUDA C or PTX kernel on the sim device, with what its checks find and its counters.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // realpath
#endif
#include "cmd.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/pool.h"
#include "common.h"
#include "device/catalog.h"
#include "device/sim/arg.h"
#include "device/sim/sim.h"
#include "jit/jit.h"
#include "sim_report.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ARGS = 64,
    MAX_PTX = 256 << 20,
    MAX_SOURCE = 16 << 20
};
#define WORD "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

struct sim_run {
    struct kiln_common common;
    const char *file, *entry, *grid, *block, *checks, *target;
    struct kiln_opt_list defines, includes, arg_texts;
    int64_t smem;
    int lines;
    uint32_t mask;
    struct kiln_device_entry device; // what it is run as; none: any GPU
    char *text;                      // of the PTX
    char *name;                      // of the entry in it, NULL: the only one
    char *found;                     // name of the source's only kernel
    struct kiln_ptx_module *module;
    const struct kiln_ptx_kernel *kernel;
    struct kiln_sim *sim;
    struct kiln_sim_code *code;
    struct kiln_sim_report *report;
    struct kiln_sim_arg args[MAX_ARGS];
    size_t n_args;
    uint8_t *params;
};

static void finish(struct sim_run *run) {
    kiln_sim_report_destroy(run->report);
    if (run->sim) {
        kiln_sim_unload(run->sim, run->code);
    }
    kiln_sim_destroy(run->sim); // buffers are mapped into it: before they go
    for (size_t i = 0; i < run->n_args; i++) {
        kiln_sim_arg_finish(&run->args[i]);
    }
    kiln_ptx_close(run->module);
    kiln_device_entry_finish(&run->device);
    kiln_free(run->params);
    kiln_free(run->text);
    kiln_free(run->name);
    kiln_free(run->found);
}

// ---- Target -------------------------------------------------------------------------------------

static int ends_in(const char *text, const char *end) {
    size_t len = strlen(text), n = strlen(end);
    return len >= n && strcmp(text + len - n, end) == 0;
}

// What --target says; a source is compiled for sm_80 without one, and PTX says itself what it is
// for.
static enum kiln_status find_target(struct sim_run *run, struct kiln_err *err) {
    if (!run->target && ends_in(run->file, ".ptx")) {
        return KILN_STATUS_OK;
    }
    enum kiln_status status =
            kiln_device_find(&run->device, NULL, run->target ? run->target : "sm_80", err);
    if (status == KILN_STATUS_USAGE) {
        kiln_err_prefix(err, "--target: ");
    }
    return status;
}

static enum kiln_status check_module(struct sim_run *run, struct kiln_err *err) {
    struct kiln_err ignored = {0};
    char own[16];
    if (run->device.target) {
        return (int32_t)run->module->target <= run->device.desc.cc
                       ? KILN_STATUS_OK
                       : kiln_err_set(err, KILN_STATUS_USAGE,
                                 "%s is PTX for sm_%u, which --target %s cannot run", run->file,
                                 run->module->target, run->target);
    }
    (void)snprintf(own, sizeof(own), "sm_%u", run->module->target);
    if (kiln_device_find(&run->device, NULL, own, &ignored) != KILN_STATUS_OK) {
        kiln_device_entry_finish(&run->device); // an old GPU, of which nothing is known here
    }
    return KILN_STATUS_OK;
}

// ---- Source -------------------------------------------------------------------------------------

struct compile {
    char *options[64]; // --include-path=…
    uint32_t n_options;
    struct kiln_jit *jit;
    struct kiln_jit_item item;
};

static enum kiln_status include_dirs(
        const struct sim_run *run, struct compile *compile, struct kiln_err *err) {
    for (size_t i = 0; i < run->includes.count; i++) {
        char path[PATH_MAX];
        if (!realpath(run->includes.items[i], path)) {
            return kiln_err_set(
                    err, KILN_STATUS_FILE, "-I %s: %s", run->includes.items[i], strerror(errno));
        }
        compile->options[compile->n_options] = kiln_asprintf("--include-path=%s", path);
        if (!compile->options[compile->n_options++]) {
            return kiln_err_nomem(err, "compile options");
        }
    }
    return KILN_STATUS_OK;
}

// The name of the kernel whose __global__ is at `at`: what stands in front of the first '(' that is
// no attribute's. NULL: there is none.
static const char *kernel_name(const char *at, size_t *len) {
    for (; *at; at += *at != '\0') {
        *len = strspn(at, WORD);
        const char *after = at + *len + strspn(at + *len, " \t\n");
        if (*len > 0 && *after == '(' && strncmp(at, "__", 2) != 0) {
            return at;
        }
        at += *len;
        if (*len > 0 && *after == '(') { // __launch_bounds__(…)
            at += strcspn(at, ")");
        }
    }
    return NULL;
}

// Comments become blanks, so that no kernel is looked for in them. Strings are no concern here.
static void blank_comments(char *text) {
    for (char *at = text; *at; at++) {
        int line = at[0] == '/' && at[1] == '/', block = at[0] == '/' && at[1] == '*';
        if (line) {
            memset(at, ' ', strcspn(at, "\n"));
        } else if (block) {
            const char *end = strstr(at + 2, "*/");
            memset(at, ' ', end ? (size_t)(end + 2 - at) : strlen(at));
        }
    }
}

// A macro's definition: the names are where it is used, which only the compiler knows.
static int in_directive(const char *text, const char *at) {
    while (at > text && at[-1] != '\n') {
        at--;
    }
    return at[strspn(at, " \t")] == '#';
}

// Without --entry a source with one kernel says which.
static enum kiln_status only_entry(struct sim_run *run, struct kiln_err *err) {
    char *text;
    size_t size, len = 0, n = 0;
    int macros = 0;
    struct kiln_buf names = {0};
    KILN_TRY(kiln_file_read(run->file, MAX_SOURCE, &text, &size, err));
    blank_comments(text);
    for (const char *at = text; (at = strstr(at, "__global__")) != NULL; at++) {
        const char *name = kernel_name(at, &len);
        int macro = in_directive(text, at);
        macros |= macro;
        if (name && !macro) {
            kiln_buf_printf(&names, "%s%.*s", n++ ? ", " : "", (int)len, name);
        }
    }
    kiln_free(text);
    if (n == 1 && !macros) {
        run->found = kiln_strdup(names.data);
        run->entry = run->found;
    }
    enum kiln_status status;
    if (run->found) {
        status = KILN_STATUS_OK;
    } else if (macros) {
        status = kiln_err_set(err, KILN_STATUS_USAGE,
                "%s: which kernel is to run is not said, and a macro writes kernels there; --entry "
                "names one",
                run->file);
    } else if (n == 0) {
        status = kiln_err_set(
                err, KILN_STATUS_FILE, "%s: has no kernel, a function with __global__", run->file);
    } else if (n == 1) {
        status = kiln_err_nomem(err, "the kernel's name");
    } else {
        status = kiln_err_set(err, KILN_STATUS_USAGE,
                "%s: which kernel is to run is not said; --entry names one of: %s", run->file,
                names.data);
    }
    kiln_buf_finish(&names);
    return status;
}

static enum kiln_status take_image(
        struct sim_run *run, const struct kiln_image *image, struct kiln_err *err) {
    run->text = kiln_strndup(image->data, strlen(image->data));
    run->name = run->entry ? kiln_strdup(image->entry) : NULL;
    return run->text && (run->name || !run->entry) ? KILN_STATUS_OK
                                                   : kiln_err_nomem(err, "the PTX");
}

// Words of a file that nvcc takes and NVRTC does not.
static int has_host_code(const char *path) {
    static const char *const words[] = {
            "<<<", "main(", "<stdio.h>", "<stdlib.h>", "<assert.h>", "<cstdio>", "<iostream>"};
    struct kiln_err ignored = {0};
    char *text;
    size_t size;
    int found = 0;
    if (kiln_file_read(path, MAX_SOURCE, &text, &size, &ignored) != KILN_STATUS_OK) {
        return 0;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        found |= strstr(text, words[i]) != NULL;
    }
    kiln_free(text);
    return found;
}

static enum kiln_status run_compiler(
        const struct sim_run *run, struct compile *compile, struct kiln_err *err) {
    enum kiln_status status = kiln_jit_run(compile->jit, &compile->item, 1, 0, err);
    if (status == KILN_STATUS_OK || !has_host_code(run->file)) {
        return status;
    }
    const struct kiln_err why = *err;
    return kiln_err_set(err, status,
            "%s; the file has a program's host code: leave that out, or make PTX of it with nvcc "
            "-arch=%s -lineinfo -ptx %s and give sim the .ptx",
            why.text, run->device.target, run->file);
}

static enum kiln_status compile_source(
        struct sim_run *run, struct compile *compile, struct kiln_err *err) {
    struct kiln_jit_params params = {.cache = {.max_size = INT64_MAX}};
    if (!run->entry) {
        KILN_TRY(only_entry(run, err));
    }
    KILN_TRY(include_dirs(run, compile, err));
    KILN_TRY(kiln_jit_open(&compile->jit, &params, err));
    KILN_TRY(kiln_jit_need_nvrtc(compile->jit, err));
    char *cuda = kiln_cuda_include_dir(kiln_jit_nvrtc(compile->jit));
    struct kiln_source source = {.struct_size = sizeof(source),
            .flags = cuda ? KILN_SOURCE_CUDA_INCLUDE : 0,
            .name = run->file,
            .text = "",
            .options = (const char *const *)compile->options,
            .n_options = compile->n_options};
    kiln_free(cuda);
    // The entry as a name expression: what it becomes in the PTX is the compiler's to say.
    struct kiln_kernel kernel = {.struct_size = sizeof(kernel),
            .name = run->entry,
            .source = &source,
            .instance = run->entry};
    struct kiln_launch launch = {.struct_size = sizeof(launch),
            .shared_bytes = (uint32_t)run->smem,
            .defines = run->defines.items,
            .n_defines = (uint32_t)run->defines.count};
    struct kiln_geometry geometry = {.struct_size = sizeof(geometry)};
    compile->item.request = (struct kiln_jit_request){.plugin = "sim",
            .variant = run->file,
            .kernel = &kernel,
            .geometry = &geometry,
            .launch = &launch,
            .source = run->file,
            .target = run->device.target,
            .ptx = 1};
    KILN_TRY(run_compiler(run, compile, err));
    return take_image(run, &compile->item.image, err);
}

static enum kiln_status read_text(struct sim_run *run, struct kiln_err *err) {
    if (ends_in(run->file, ".ptx")) {
        size_t size;
        KILN_TRY(kiln_file_read(run->file, MAX_PTX, &run->text, &size, err));
        if (strlen(run->text) != size) {
            return kiln_err_set(
                    err, KILN_STATUS_FILE, "%s: is no PTX: it holds a NUL byte", run->file);
        }
        run->name = run->entry ? kiln_strdup(run->entry) : NULL;
        return KILN_STATUS_OK;
    }
    struct compile compile = {0};
    enum kiln_status status = compile_source(run, &compile, err);
    kiln_jit_items_finish(&compile.item, 1);
    kiln_jit_close(compile.jit);
    for (uint32_t i = 0; i < compile.n_options; i++) {
        kiln_free(compile.options[i]);
    }
    return status;
}

static enum kiln_status find_entry(struct sim_run *run, struct kiln_err *err) {
    struct kiln_ptx_module *module = run->module;
    run->kernel = run->name                ? kiln_ptx_kernel_find(module, run->name)
                  : module->n_kernels == 1 ? &module->kernels[0]
                                           : NULL;
    if (run->kernel) {
        return KILN_STATUS_OK;
    }
    struct kiln_buf names = {0};
    for (uint32_t i = 0; module->kernels && i < module->n_kernels; i++) {
        kiln_buf_printf(&names, "%s%s", i ? ", " : "", module->kernels[i].name);
    }
    enum kiln_status status =
            kiln_err_set(err, KILN_STATUS_USAGE, "%s: %s%s; --entry names one of: %s", run->file,
                    run->name ? "there is no entry " : "which entry is to run is not said",
                    run->name ? run->name : "", names.data ? names.data : "(it has none)");
    kiln_buf_finish(&names);
    return status;
}

// ---- Running ------------------------------------------------------------------------------------

static enum kiln_status shape_of(
        const char *option, const char *text, uint32_t shape[3], struct kiln_err *err) {
    struct kiln_numbers list;
    KILN_TRY(kiln_parse_list(option, text, 1, INT32_MAX, &list, err));
    if (list.count > 3) {
        return kiln_err_set(
                err, KILN_STATUS_USAGE, "%s takes X, X,Y or X,Y,Z, not '%s'", option, text);
    }
    for (size_t i = 0; i < 3; i++) {
        shape[i] = i < list.count ? (uint32_t)list.values[i] : 1;
    }
    return KILN_STATUS_OK;
}

static int show_blocks(void *arg, uint64_t done, uint64_t total) {
    kiln_progress_fn bar = kiln_progress_bar();
    if (bar) {
        bar(arg, (int64_t)done, (int64_t)total);
    }
    return kiln_interrupted() != 0;
}

// With --json stdout is the document's.
static void print_aside(void *arg, const char *text, size_t bytes) {
    (void)arg;
    (void)fwrite(text, 1, bytes, stderr);
}

static enum kiln_status launch(struct sim_run *run, struct kiln_err *err) {
    static char doing[] = "blocks";
    struct kiln_sim_launch shape = {.kernel = kiln_sim_find(run->code, run->kernel->name),
            .shared_bytes = (uint32_t)run->smem,
            .params = run->params,
            .param_bytes = run->kernel->param_bytes};
    struct kiln_sim_options options = {.checks = run->mask,
            .counters = 1,
            .max_block_instructions = (uint64_t)run->common.sim_instructions,
            .target = run->device.target,
            .max_shared_bytes = (uint32_t)run->device.desc.smem_block_optin,
            .progress = show_blocks,
            .progress_arg = doing};
    options.print = run->common.json ? print_aside : NULL;
    KILN_TRY(shape_of("--grid", run->grid, shape.grid, err));
    KILN_TRY(shape_of("--block", run->block, shape.block, err));
    enum kiln_status status = kiln_sim_launch(run->sim, &shape, &options, run->report, err);
    kiln_progress_fn bar = kiln_progress_bar();
    if (bar) {
        bar(doing, 1, 1); // takes the bar off the screen
    }
    return status;
}

static enum kiln_status execute(struct sim_run *run, struct kiln_err *err) {
    uint32_t threads = run->common.threads ? (uint32_t)run->common.threads : kiln_cpu_count();
    for (size_t i = 0; i < run->arg_texts.count; i++) {
        KILN_TRY(kiln_sim_arg_read(&run->args[run->n_args++], run->arg_texts.items[i], err));
    }
    KILN_TRY(find_target(run, err));
    KILN_TRY(read_text(run, err));
    KILN_TRY(kiln_ptx_open(&run->module, run->file, run->text, strlen(run->text), err));
    KILN_TRY(check_module(run, err));
    kiln_sim_file_names(run->module);
    KILN_TRY(find_entry(run, err));
    run->params = kiln_calloc(run->kernel->param_bytes, 1);
    if (!run->params) {
        return kiln_err_nomem(err, "the parameters");
    }
    KILN_TRY(kiln_sim_create(&run->sim, threads, err));
    KILN_TRY(kiln_sim_load(run->sim, run->module, &run->code, err));
    KILN_TRY(kiln_sim_report_create(&run->report, err));
    KILN_TRY(kiln_sim_args_bind(run->sim, run->kernel, run->args, run->n_args, run->params, err));
    return launch(run, err);
}

static enum kiln_status print(const struct sim_run *run, struct kiln_err *err) {
    if (run->common.json) {
        return kiln_out_json(kiln_sim_report_json(run->report), err);
    }
    struct kiln_buf out = {0};
    kiln_sim_report_text(run->report, run->lines, &out);
    return kiln_out_buf(&out, err);
}

static enum kiln_status whole(struct sim_run *run, struct kiln_err *err) {
    if (run->checks) {
        KILN_TRY(kiln_sim_check_parse(run->checks, &run->mask, err));
    }
    kiln_interrupt_catch();
    enum kiln_status status = execute(run, err);
    if (status != KILN_STATUS_OK) {
        // What was found before the kernel failed says why it did.
        const struct kiln_sim_finding *found;
        if (run->report && kiln_sim_findings(run->report, &found) > 0) {
            struct kiln_err ignored = {0};
            (void)!print(run, &ignored);
        }
        return status;
    }
    KILN_TRY(kiln_sim_args_save(run->sim, run->args, run->n_args, err));
    KILN_TRY(print(run, err));
    uint32_t faults = kiln_sim_faults(run->report);
    return faults ? kiln_err_set(err, KILN_STATUS_CHECK, "%s: %u fault%s found", run->kernel->name,
                            faults, faults > 1 ? "s" : "")
                  : KILN_STATUS_OK;
}

static enum kiln_status run_command(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct sim_run run = {.grid = "1", .block = "32", .mask = KILN_SIM_CHECK_ALL};
    int done;
    kiln_common_init(&run.common);
    const struct kiln_opt table[] = {
            {"FILE", NULL, KILN_OPT_ENTRY, &run.file, NULL, "CUDA C, or PTX (.ptx)", 0, 0},
            {"--entry", NULL, KILN_OPT_STRING, &run.entry, "NAME",
                    "the kernel; a template's instance as gemm<64,32>", 0, 0},
            {"--grid", NULL, KILN_OPT_STRING, &run.grid, "X,Y,Z", "blocks (default: 1)", 0, 0},
            {"--block", NULL, KILN_OPT_STRING, &run.block, "X,Y,Z", "threads a block (default: 32)",
                    0, 0},
            {"--smem", NULL, KILN_OPT_INT, &run.smem, "N", "bytes of dynamic shared memory", 0,
                    1 << 20},
            {"--arg", NULL, KILN_OPT_LIST, &run.arg_texts, "A",
                    "in:F.npy, out:f32:64x64:F.npy, rand:f16:4096:7, i32:5 … (man kiln)", 0, 0},
            {"-D", NULL, KILN_OPT_LIST, &run.defines, "NAME=V", "a define", 0, 0},
            {"-I", NULL, KILN_OPT_LIST, &run.includes, "DIR", "look for headers there", 0, 0},
            {"--target", NULL, KILN_OPT_STRING, &run.target, "SM", "sm_80 (default), sm_75, gb10 …",
                    0, 0},
            {"--sim-check", NULL, KILN_OPT_STRING, &run.checks, "LIST",
                    "all (default), none, or checks: bounds,race …", 0, 0},
            KILN_COMMON_SIM_LIMIT(&run.common),
            {"--lines", NULL, KILN_OPT_FLAG, &run.lines, NULL, "counters of every source line", 0,
                    0},
            {"-t", "--threads", KILN_OPT_INT, &run.common.threads, "N",
                    "CPU threads (default: all cores)", 1, 1024},
            KILN_COMMON_OUTPUT(&run.common), KILN_OPT_END};
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    if (!run.file) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "sim: FILE is missing: a .cu or .ptx file");
    }
    enum kiln_status status = whole(&run, err);
    finish(&run);
    return status;
}

const struct kiln_cmd kiln_cmd_sim = {
        .name = "sim",
        .summary = "runs any CUDA kernel with no GPU: its faults by line, its counters",
        .usage = "FILE [--entry NAME] [--grid X,Y,Z] [--block X,Y,Z] [--arg A …] [--json]",
        .example = "kiln sim axpy.cu --grid 4 --block 256 --arg f32:2 --arg rand:f32:1000 "
                   "--arg zeros:f32:1000 --arg i32:1000",
        .run = run_command,
};
