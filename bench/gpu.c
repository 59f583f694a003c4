// gpu: CUDA and NVRTC by dlopen, for the programs in bench/. See gpu.h.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif
#include "gpu.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_FUNCTIONS = 512
};

struct gpu_function {
    uint64_t key;
    void *module, *function;
};

// Parameters as cuda.h and nvrtc.h declare them; handles are pointers.
static struct {
    int (*cuInit)(unsigned);
    int (*cuDeviceGet)(int *, int);
    int (*cuDeviceGetName)(char *, int, int);
    int (*cuDeviceGetAttribute)(int *, int, int);
    int (*cuDevicePrimaryCtxRetain)(void **, int);
    int (*cuCtxSetCurrent)(void *);
    int (*cuCtxSynchronize)(void);
    int (*cuGetErrorName)(int, const char **);
    int (*cuModuleLoadData)(void **, const void *);
    int (*cuModuleGetFunction)(void **, void *, const char *);
    int (*cuModuleGetGlobal_v2)(gpu_address *, size_t *, void *, const char *);
    int (*cuFuncGetAttribute)(int *, int, void *);
    int (*cuFuncSetAttribute)(void *, int, int);
    int (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *, void *, int, size_t);
    int (*cuMemAlloc_v2)(gpu_address *, size_t);
    int (*cuMemFree_v2)(gpu_address);
    int (*cuMemcpyHtoD_v2)(gpu_address, const void *, size_t);
    int (*cuMemcpyDtoH_v2)(void *, gpu_address, size_t);
    int (*cuMemsetD8Async)(gpu_address, unsigned char, size_t, void *);
    int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
            unsigned, void *, void **, void **);
    int (*cuEventCreate)(void **, unsigned);
    int (*cuEventRecord)(void *, void *);
    int (*cuEventSynchronize)(void *);
    int (*cuEventElapsedTime)(float *, void *, void *);
    int (*nvrtcCreateProgram)(
            void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*nvrtcCompileProgram)(void *, int, const char *const *);
    int (*nvrtcGetProgramLogSize)(void *, size_t *);
    int (*nvrtcGetProgramLog)(void *, char *);
    int (*nvrtcGetCUBINSize)(void *, size_t *);
    int (*nvrtcGetCUBIN)(void *, char *);
    int (*nvrtcDestroyProgram)(void **);
} api;

static const char *folder;
static struct gpu_function functions[MAX_FUNCTIONS];
static int n_functions;

void gpu_die(const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    fprintf(stderr, "error: ");
    vfprintf(stderr, fmt, list);
    fprintf(stderr, "\n");
    va_end(list);
    exit(4);
}

static void check(int result, const char *call) {
    const char *name = NULL;
    if (result != 0) {
        if (api.cuGetErrorName) {
            api.cuGetErrorName(result, &name);
        }
        gpu_die("%s: %d %s", call, result, name ? name : "");
    }
}
#define CHECK(call) check(api.call, #call)

// A function's address as a data pointer, which C itself has no cast for.
static void find(void *library, const char *name, void *to) {
    void *symbol = dlsym(library, name);
    if (!symbol) {
        gpu_die("%s is missing: %s", name, dlerror());
    }
    memcpy(to, &symbol, sizeof(symbol));
}
#define FIND(library, name) find(library, #name, &api.name)

static void open_nvrtc(void) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so",
            "/usr/local/cuda/lib64/libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so",
            "libnvrtc.so.12"};
    const char *chosen = getenv("KILN_NVRTC");
    void *library = chosen ? dlopen(chosen, RTLD_NOW) : NULL;
    for (size_t i = 0; !chosen && !library && i < sizeof(names) / sizeof(names[0]); i++) {
        library = dlopen(names[i], RTLD_NOW);
    }
    if (!library) {
        gpu_die("no NVRTC (set KILN_NVRTC to its path): %s", dlerror());
    }
    FIND(library, nvrtcCreateProgram);
    FIND(library, nvrtcCompileProgram);
    FIND(library, nvrtcGetProgramLogSize);
    FIND(library, nvrtcGetProgramLog);
    FIND(library, nvrtcGetCUBINSize);
    FIND(library, nvrtcGetCUBIN);
    FIND(library, nvrtcDestroyProgram);
}

static void open_cuda(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        gpu_die("no CUDA driver: %s", dlerror());
    }
    FIND(library, cuInit);
    FIND(library, cuDeviceGet);
    FIND(library, cuDeviceGetName);
    FIND(library, cuDeviceGetAttribute);
    FIND(library, cuDevicePrimaryCtxRetain);
    FIND(library, cuCtxSetCurrent);
    FIND(library, cuCtxSynchronize);
    FIND(library, cuGetErrorName);
    FIND(library, cuModuleLoadData);
    FIND(library, cuModuleGetFunction);
    FIND(library, cuModuleGetGlobal_v2);
    FIND(library, cuFuncGetAttribute);
    FIND(library, cuFuncSetAttribute);
    FIND(library, cuOccupancyMaxActiveBlocksPerMultiprocessor);
    FIND(library, cuMemAlloc_v2);
    FIND(library, cuMemFree_v2);
    FIND(library, cuMemcpyHtoD_v2);
    FIND(library, cuMemcpyDtoH_v2);
    FIND(library, cuMemsetD8Async);
    FIND(library, cuLaunchKernel);
    FIND(library, cuEventCreate);
    FIND(library, cuEventRecord);
    FIND(library, cuEventSynchronize);
    FIND(library, cuEventElapsedTime);
}

// ---- Plans --------------------------------------------------------------------------------------
const struct kiln_plugin *gpu_load_plugin(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        gpu_die("%s", dlerror());
    }
    const struct kiln_plugin *plugin = dlsym(library, "kiln_plugin_entry");
    if (!plugin) {
        gpu_die("%s: no kiln_plugin_entry", path);
    }
    return plugin;
}

const struct kiln_variant *gpu_find_variant(const struct kiln_plugin *plugin, const char *name) {
    for (uint32_t i = 0; i < plugin->n_variants; i++) {
        if (strcmp(plugin->variants[i]->name, name) == 0) {
            return plugin->variants[i];
        }
    }
    gpu_die("plugin %s has no variant '%s'", plugin->name, name);
}

static int32_t take_workspace(struct kiln_plan *sink, uint64_t bytes, uint32_t flags) {
    struct gpu_plan *plan = sink->data;
    if (plan->n_workspaces == GPU_MAX_WORKSPACES) {
        gpu_die("more than %d workspaces", GPU_MAX_WORKSPACES);
    }
    plan->workspaces[plan->n_workspaces] = bytes;
    plan->workspace_flags[plan->n_workspaces] = flags;
    return (int32_t)plan->n_workspaces++;
}

static int32_t take_prepare(struct kiln_plan *sink, const struct kiln_preparation *preparation) {
    (void)sink;
    gpu_die("preparation %s: not handled here", preparation->id);
}

static void append(char *text, const char *part) {
    size_t used = strlen(text);
    if (used + strlen(part) + 1 > GPU_TEXT_MAX) {
        gpu_die("text too long: %s", text);
    }
    memcpy(text + used, part, strlen(part) + 1);
}

static int32_t take_launch(struct kiln_plan *sink, const struct kiln_launch *record) {
    struct gpu_plan *plan = sink->data;
    if (plan->n_launches == GPU_MAX_LAUNCHES || record->n_args > GPU_MAX_ARGS) {
        gpu_die("launch %s: too many launches or arguments", record->kernel);
    }
    struct gpu_launch *launch = &plan->launches[plan->n_launches];
    memset(launch, 0, sizeof(*launch));
    launch->record = *record;
    snprintf(launch->kernel, sizeof(launch->kernel), "%s", record->kernel);
    snprintf(
            launch->order, sizeof(launch->order), "%s", record->sum_order ? record->sum_order : "");
    append(launch->defines, plan->geometry);
    char text[160];
    for (uint32_t i = 0; i < record->n_defines; i++) {
        snprintf(text, sizeof(text), "-D%s ", record->defines[i]);
        append(launch->defines, text);
    }
    snprintf(text, sizeof(text), "-DKILN_SMEM=%u ", record->shared_bytes);
    append(launch->defines, text);
    for (uint32_t i = 0; i < record->n_args; i++) {
        launch->args[i] = *record->args[i];
        if (launch->args[i].kind == KILN_ARG_BYTES) {
            if (launch->args[i].size > sizeof(launch->bytes[i])) {
                gpu_die("launch %s: argument %u is too long", record->kernel, i);
            }
            memcpy(launch->bytes[i], launch->args[i].bytes, launch->args[i].size);
        }
    }
    return (int32_t)plan->n_launches++;
}

static int32_t take_text(struct kiln_plan *sink, const char *text, int32_t result) {
    struct gpu_plan *plan = sink->data;
    snprintf(plan->text, sizeof(plan->text), "%s", text);
    return result;
}

static int32_t take_decline(struct kiln_plan *sink, const char *text) {
    return take_text(sink, text, KILN_RESULT_DECLINED);
}

static int32_t take_fail(struct kiln_plan *sink, const char *text) {
    return take_text(sink, text, KILN_RESULT_FAILED);
}

static int64_t default_of(const struct kiln_param *param, int32_t head_size, int32_t cc) {
    for (uint32_t i = 0; i < param->n_defaults; i++) {
        const struct kiln_param_default *row = param->defaults[i];
        if ((row->head_size == 0 || row->head_size == head_size) && cc >= row->target_min &&
                (row->target_max == 0 || cc <= row->target_max)) {
            return row->value;
        }
    }
    return param->value;
}

static int64_t setting_of(const struct kiln_param *param, const char *settings, int64_t value) {
    size_t len = strlen(param->name);
    for (const char *at = settings; (at = strstr(at, param->name)) != NULL; at += len) {
        if ((at == settings || at[-1] == ' ') && at[len] == '=') {
            value = strtoll(at + len + 1, NULL, 10);
        }
    }
    return value;
}

int32_t gpu_plan(struct gpu_plan *plan, const struct kiln_variant *variant,
        const struct kiln_problem *problem, const struct kiln_device *device, int32_t head_size,
        const char *settings) {
    const char *names[GPU_MAX_PARAMS];
    int64_t values[GPU_MAX_PARAMS];
    memset(plan, 0, sizeof(*plan));
    for (uint32_t i = 0; i < variant->n_params; i++) {
        names[i] = variant->params[i]->name;
        values[i] = setting_of(variant->params[i], settings,
                default_of(variant->params[i], head_size, device->cc));
        char text[96];
        snprintf(text, sizeof(text), "-D%s=%lld ", names[i], (long long)values[i]);
        append(plan->geometry, text);
    }
    const struct kiln_geometry geometry = {sizeof(geometry), variant->n_params, names, values};
    plan->sink = (struct kiln_plan){sizeof(plan->sink), 0, plan, take_workspace, take_prepare,
            take_launch, take_decline, take_fail};
    int32_t result = variant->plan(NULL, problem, &geometry, device, &plan->sink);
    if (result == KILN_RESULT_FAILED) {
        gpu_die("%s %s: plan failed: %s", variant->name, settings, plan->text);
    }
    return result;
}

// ---- Compiling --------------------------------------------------------------------------------
static uint64_t hash(uint64_t state, const char *text) {
    for (; *text; text++) {
        state = (state ^ (unsigned char)*text) * UINT64_C(1099511628211);
    }
    return state * 31 + 7;
}

static const struct kiln_source *source_of(
        const struct kiln_variant *variant, const struct gpu_launch *launch) {
    for (uint32_t i = 0; i < variant->n_kernels; i++) {
        if (strcmp(variant->kernels[i]->name, launch->kernel) == 0) {
            return variant->kernels[i]->source;
        }
    }
    gpu_die("variant %s has no kernel %s", variant->name, launch->kernel);
}

static uint64_t key_of(const struct kiln_source *source, const struct gpu_launch *launch,
        const struct kiln_device *device) {
    uint64_t key = hash(hash(UINT64_C(14695981039346656037), source->text), launch->defines);
    for (uint32_t i = 0; i < source->n_headers; i++) {
        key = hash(key, source->headers[i]->text);
    }
    return hash(key, device->target);
}

// Gives a cubin from malloc.
static char *compile(const struct kiln_source *source, const struct gpu_launch *launch,
        const struct kiln_device *device, size_t *bytes) {
    const char *texts[32], *names[32], *options[64];
    char defines[GPU_TEXT_MAX], arch[64], *save = NULL;
    int n = 0;
    for (uint32_t i = 0; i < source->n_headers && i < 32; i++) {
        texts[i] = source->headers[i]->text;
        names[i] = source->headers[i]->name;
    }
    snprintf(arch, sizeof(arch), "--gpu-architecture=%s", device->target);
    options[n++] = arch;
    memcpy(defines, launch->defines, sizeof(defines));
    for (char *at = strtok_r(defines, " ", &save); at && n < 60; at = strtok_r(NULL, " ", &save)) {
        options[n++] = at;
    }
    void *program = NULL;
    CHECK(nvrtcCreateProgram(
            &program, source->text, source->name, (int)source->n_headers, texts, names));
    int result = api.nvrtcCompileProgram(program, n, options);
    if (result != 0) {
        size_t size = 0;
        api.nvrtcGetProgramLogSize(program, &size);
        char *log = calloc(size + 1, 1);
        api.nvrtcGetProgramLog(program, log);
        gpu_die("%s %s: NVRTC %d\n%s", launch->kernel, launch->defines, result, log ? log : "");
    }
    CHECK(nvrtcGetCUBINSize(program, bytes));
    char *cubin = malloc(*bytes);
    if (!cubin) {
        gpu_die("no memory");
    }
    CHECK(nvrtcGetCUBIN(program, cubin));
    CHECK(nvrtcDestroyProgram(&program));
    return cubin;
}

// From the folder, or compiled and put there.
static char *cubin_of(const struct kiln_source *source, const struct gpu_launch *launch,
        const struct kiln_device *device, uint64_t key) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s-%016llx.cubin", folder ? folder : "", launch->kernel,
            (unsigned long long)key);
    FILE *file = folder ? fopen(path, "rb") : NULL;
    size_t bytes = 0;
    if (file) {
        fseek(file, 0, SEEK_END);
        bytes = (size_t)ftell(file);
        rewind(file);
        char *cubin = malloc(bytes + 1);
        if (!cubin || fread(cubin, 1, bytes, file) != bytes) {
            gpu_die("%s: cannot be read", path);
        }
        fclose(file);
        return cubin;
    }
    char *cubin = compile(source, launch, device, &bytes);
    file = folder ? fopen(path, "wb") : NULL;
    if (file) {
        fwrite(cubin, 1, bytes, file);
        fclose(file);
    }
    return cubin;
}

void gpu_compile(const struct kiln_variant *variant, const struct gpu_launch *launch,
        const struct kiln_device *device) {
    const struct kiln_source *source = source_of(variant, launch);
    uint64_t key = key_of(source, launch, device), shard = 0, shards = 1;
    const char *text = getenv("BENCH_SHARD");
    if (text) {
        char *end;
        shard = strtoull(text, &end, 10);
        shards = *end == '/' ? strtoull(end + 1, NULL, 10) : 0;
        if (shards == 0) {
            gpu_die("BENCH_SHARD=%s: write NUMBER/COUNT", text);
        }
    }
    if (key % shards == shard) {
        free(cubin_of(source, launch, device, key));
    }
}

const struct gpu_function *gpu_function(const struct kiln_variant *variant,
        const struct gpu_launch *launch, const struct kiln_device *device) {
    const struct kiln_source *source = source_of(variant, launch);
    uint64_t key = key_of(source, launch, device);
    for (int i = 0; i < n_functions; i++) {
        if (functions[i].key == key) {
            return &functions[i];
        }
    }
    if (n_functions == MAX_FUNCTIONS) {
        gpu_die("more than %d kernels", MAX_FUNCTIONS);
    }
    struct gpu_function *function = &functions[n_functions++];
    char *cubin = cubin_of(source, launch, device, key);
    function->key = key;
    CHECK(cuModuleLoadData(&function->module, cubin));
    free(cubin);
    CHECK(cuModuleGetFunction(&function->function, function->module, launch->kernel));
    CHECK(cuFuncSetAttribute(function->function, 8, (int)launch->record.shared_bytes));
    return function;
}

struct gpu_figures gpu_figures(
        const struct gpu_function *function, const struct gpu_launch *launch) {
    struct gpu_figures figures = {0};
    char name[96];
    gpu_address at = 0;
    size_t bytes = 0;
    CHECK(cuFuncGetAttribute(&figures.registers, 4, function->function));
    CHECK(cuFuncGetAttribute(&figures.local_bytes, 3, function->function));
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&figures.blocks_sm, function->function,
            (int)launch->record.block[0], launch->record.shared_bytes));
    snprintf(name, sizeof(name), "kiln_layout_%s", launch->kernel);
    if (api.cuModuleGetGlobal_v2(&at, &bytes, function->module, name) == 0) {
        gpu_download(&figures.layout_bytes, at, sizeof(figures.layout_bytes));
    }
    return figures;
}

// ---- The device -------------------------------------------------------------------------------
static int32_t attribute(int which, int device) {
    int value = 0;
    CHECK(cuDeviceGetAttribute(&value, which, device));
    return value;
}

void gpu_describe_target(struct kiln_device *device, const char *target, const char *to_folder) {
    open_nvrtc();
    folder = to_folder;
    *device = (struct kiln_device){.struct_size = sizeof(*device),
            .kind = KILN_DEVICE_CUDA,
            .name = target,
            .target = target,
            .cc = (int32_t)strtol(target + 3, NULL, 10),
            .sm_count = 132,
            .warp_size = 32};
}

void gpu_open(struct kiln_device *device, const char *to_folder) {
    static char name[128], target[16];
    int handle = 0;
    void *context = NULL;
    open_nvrtc();
    open_cuda();
    folder = to_folder;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&handle, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, handle));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuDeviceGetName(name, (int)sizeof(name), handle));
    int32_t cc = attribute(75, handle) * 10 + attribute(76, handle);
    snprintf(target, sizeof(target), "sm_%d%s", cc, cc == 90 ? "a" : "");
    *device = (struct kiln_device){.struct_size = sizeof(*device),
            .kind = KILN_DEVICE_CUDA,
            .name = name,
            .target = target,
            .cc = cc,
            .sm_count = attribute(16, handle),
            .warp_size = 32,
            .max_threads_block = attribute(1, handle),
            .max_threads_sm = attribute(39, handle),
            .regs_sm = attribute(82, handle),
            .smem_block = attribute(8, handle),
            .smem_block_optin = attribute(97, handle),
            .smem_sm = attribute(81, handle),
            .l2_bytes = (uint64_t)attribute(38, handle)};
}

gpu_address gpu_alloc(size_t bytes) {
    gpu_address at = 0;
    CHECK(cuMemAlloc_v2(&at, bytes ? bytes : 16));
    return at;
}

void gpu_free(gpu_address at) {
    if (at) {
        CHECK(cuMemFree_v2(at));
    }
}

void gpu_upload(gpu_address to, const void *from, size_t bytes) {
    CHECK(cuMemcpyHtoD_v2(to, from, bytes));
}

void gpu_download(void *to, gpu_address from, size_t bytes) {
    CHECK(cuMemcpyDtoH_v2(to, from, bytes));
}

void gpu_fill(gpu_address at, unsigned char byte, size_t bytes) {
    CHECK(cuMemsetD8Async(at, byte, bytes, NULL));
}

void gpu_wait(void) {
    CHECK(cuCtxSynchronize());
}

void gpu_run(const struct gpu_plan *plan, const struct gpu_function *const *with,
        const struct gpu_addresses *addresses) {
    for (uint32_t i = 0; i < plan->n_launches; i++) {
        const struct gpu_launch *launch = &plan->launches[i];
        const struct kiln_launch *record = &launch->record;
        gpu_address at[GPU_MAX_ARGS];
        unsigned char bytes[GPU_MAX_ARGS][512];
        void *params[GPU_MAX_ARGS];
        for (uint32_t k = 0; k < record->n_args; k++) {
            const struct kiln_arg *arg = &launch->args[k];
            params[k] = &at[k];
            if (arg->kind == KILN_ARG_BYTES) {
                memcpy(bytes[k], launch->bytes[k], sizeof(bytes[k]));
                params[k] = bytes[k];
            } else if (arg->kind == KILN_ARG_OPERAND) {
                gpu_address base = addresses->operands[arg->operand];
                at[k] = base ? base + arg->offset : 0;
            } else {
                at[k] = addresses->workspaces[arg->index] + arg->offset;
            }
        }
        CHECK(cuLaunchKernel(with[i]->function, record->grid[0], record->grid[1], record->grid[2],
                record->block[0], record->block[1], record->block[2], record->shared_bytes, NULL,
                params, NULL));
    }
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double gpu_time(const struct gpu_plan *plan, const struct gpu_function *const *with,
        const struct gpu_addresses *addresses, int count, gpu_address scratch, size_t flush) {
    float times[200];
    void *start = NULL, *end = NULL;
    count = count > 200 ? 200 : count;
    CHECK(cuEventCreate(&start, 0));
    CHECK(cuEventCreate(&end, 0));
    for (int i = -3; i < count; i++) {
        if (flush) {
            gpu_fill(scratch, (unsigned char)i, flush);
        }
        CHECK(cuEventRecord(start, NULL));
        gpu_run(plan, with, addresses);
        CHECK(cuEventRecord(end, NULL));
        CHECK(cuEventSynchronize(end));
        CHECK(cuEventElapsedTime(&times[i < 0 ? 0 : i], start, end));
    }
    qsort(times, (size_t)count, sizeof(times[0]), compare);
    return 1000.0 * (double)times[count / 2];
}
