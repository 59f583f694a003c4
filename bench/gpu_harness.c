// gpu_harness: the driver and NVRTC through dlopen, a plan's sink, launches and times.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif
#include "gpu_harness.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MODULES_MAX = 512,
    TEXT_MAX = 4096,
    ARGS_MAX = 24,
    WORKSPACES_MAX = 8,
    TIMED_RUNS = 9,
    SMEM_ATTRIBUTE = 8, // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
};

// ---- The driver and NVRTC ----------------------------------------------------------------------
typedef uint64_t address;
static struct {
    int (*Init)(unsigned);
    int (*DeviceGet)(int *, int);
    int (*DeviceGetName)(char *, int, int);
    int (*DeviceGetAttribute)(int *, int, int);
    int (*DevicePrimaryCtxRetain)(void **, int);
    int (*CtxSetCurrent)(void *);
    int (*CtxSynchronize)(void);
    int (*MemAlloc_v2)(address *, size_t);
    int (*MemFree_v2)(address);
    int (*MemcpyHtoD_v2)(address, const void *, size_t);
    int (*MemcpyDtoH_v2)(void *, address, size_t);
    int (*MemsetD8_v2)(address, unsigned char, size_t);
    int (*ModuleLoadData)(void **, const void *);
    int (*ModuleGetFunction)(void **, void *, const char *);
    int (*ModuleGetGlobal_v2)(address *, size_t *, void *, const char *);
    int (*FuncSetAttribute)(void *, int, int);
    int (*LaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
            unsigned, void *, void **, void **);
    int (*StreamCreate)(void **, unsigned);
    int (*StreamBeginCapture_v2)(void *, int);
    int (*StreamEndCapture)(void *, void **);
    int (*GraphInstantiateWithFlags)(void **, void *, unsigned long long);
    int (*GraphLaunch)(void *, void *);
    int (*GraphExecDestroy)(void *);
    int (*GraphDestroy)(void *);
    int (*EventCreate)(void **, unsigned);
    int (*EventRecord)(void *, void *);
    int (*EventElapsedTime)(float *, void *, void *);
    int (*GetErrorString)(int, const char **);
    int (*TensorMapEncodeTiled)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
            const uint32_t *, const uint32_t *, int, int, int, int);
} cu;
static struct {
    int (*CreateProgram)(
            void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*CompileProgram)(void *, int, const char *const *);
    int (*GetProgramLogSize)(void *, size_t *);
    int (*GetProgramLog)(void *, char *);
    int (*GetCUBINSize)(void *, size_t *);
    int (*GetCUBIN)(void *, char *);
    int (*DestroyProgram)(void **);
} nvrtc;

struct symbol {
    const char *name;
    void *at; // a function pointer
};

static void *stream;
static struct kiln_device device;
static int print_resources;

void gpu_die(const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    vfprintf(stderr, fmt, list);
    va_end(list);
    fputc('\n', stderr);
    exit(4);
}

void *gpu_get(size_t bytes) {
    void *at = calloc(bytes > 0 ? bytes : 1, 1);
    if (at == NULL) {
        gpu_die("out of memory for %zu bytes", bytes);
    }
    return at;
}

uint32_t gpu_random_bits(void) { // xorshift64 (G. Marsaglia)
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

float gpu_random_normal(void) { // four uniform values, scaled
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += (float)(gpu_random_bits() & 0xffff) / 65536.0F;
    }
    return (sum - 2.0F) * 1.73F;
}

static void check(int code, const char *what) {
    const char *text = "";
    if (code != 0) {
        cu.GetErrorString(code, &text);
        gpu_die("%s: error %d, %s", what, code, text != NULL ? text : "");
    }
}
#define CU(call, ...) check(cu.call(__VA_ARGS__), "cu" #call)
#define CU_WAIT()     check(cu.CtxSynchronize(), "cuCtxSynchronize")

static void *open_library(const char *const *names, const char *what) {
    for (; *names != NULL; names++) {
        void *library = dlopen(*names, RTLD_NOW | RTLD_GLOBAL);
        if (library != NULL) {
            return library;
        }
    }
    gpu_die("%s: %s", what, dlerror());
}

static void bind(void *library, const char *prefix, const struct symbol *symbols, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char name[80];
        snprintf(name, sizeof(name), "%s%s", prefix, symbols[i].name);
        void *found = dlsym(library, name);
        if (found == NULL) {
            gpu_die("%s: not found", name);
        }
        memcpy(symbols[i].at, &found, sizeof(found));
    }
}

static void bind_driver(void) {
    static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
#define SYMBOL(name) \
    { #name, &cu.name }
    const struct symbol symbols[] = {SYMBOL(Init), SYMBOL(DeviceGet), SYMBOL(DeviceGetName),
            SYMBOL(DeviceGetAttribute), SYMBOL(DevicePrimaryCtxRetain), SYMBOL(CtxSetCurrent),
            SYMBOL(CtxSynchronize), SYMBOL(MemAlloc_v2), SYMBOL(MemFree_v2), SYMBOL(MemcpyHtoD_v2),
            SYMBOL(MemcpyDtoH_v2), SYMBOL(MemsetD8_v2), SYMBOL(ModuleLoadData),
            SYMBOL(ModuleGetFunction), SYMBOL(ModuleGetGlobal_v2), SYMBOL(FuncSetAttribute),
            SYMBOL(LaunchKernel), SYMBOL(StreamCreate), SYMBOL(StreamBeginCapture_v2),
            SYMBOL(StreamEndCapture), SYMBOL(GraphInstantiateWithFlags), SYMBOL(GraphLaunch),
            SYMBOL(GraphExecDestroy), SYMBOL(GraphDestroy), SYMBOL(EventCreate),
            SYMBOL(EventRecord), SYMBOL(EventElapsedTime), SYMBOL(GetErrorString),
            SYMBOL(TensorMapEncodeTiled)};
#undef SYMBOL
    bind(open_library(names, "libcuda"), "cu", symbols, sizeof(symbols) / sizeof(symbols[0]));
}

static void bind_nvrtc(void) {
    const char *given = getenv("KILN_NVRTC");
    const char *const names[] = {given != NULL ? given : "libnvrtc.so.13", "libnvrtc.so.13",
            "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so", "libnvrtc.so.12", NULL};
#define SYMBOL(name) \
    { #name, &nvrtc.name }
    const struct symbol symbols[] = {SYMBOL(CreateProgram), SYMBOL(CompileProgram),
            SYMBOL(GetProgramLogSize), SYMBOL(GetProgramLog), SYMBOL(GetCUBINSize),
            SYMBOL(GetCUBIN), SYMBOL(DestroyProgram)};
#undef SYMBOL
    bind(open_library(names, "NVRTC"), "nvrtc", symbols, sizeof(symbols) / sizeof(symbols[0]));
}

static int attribute(int which) {
    int value;
    CU(DeviceGetAttribute, &value, which, 0);
    return value;
}

const struct kiln_device *gpu_open(void) {
    static char name[128];
    static char target[16];
    bind_driver();
    bind_nvrtc();
    void *context;
    int handle;
    CU(Init, 0);
    CU(DeviceGet, &handle, 0);
    CU(DevicePrimaryCtxRetain, &context, handle);
    CU(CtxSetCurrent, context);
    CU(StreamCreate, &stream, 1);
    CU(DeviceGetName, name, sizeof(name), handle);
    int cc = attribute(75) * 10 + attribute(76);
    snprintf(target, sizeof(target), "sm_%d%s", cc, cc == 90 ? "a" : "");
    device = (struct kiln_device){.struct_size = sizeof(device),
            .kind = KILN_DEVICE_CUDA,
            .name = name,
            .target = target,
            .cc = cc,
            .sm_count = attribute(16),
            .warp_size = 32,
            .max_threads_block = attribute(1),
            .max_threads_sm = attribute(39),
            .max_blocks_sm = attribute(106),
            .max_warps_sm = attribute(39) / 32,
            .regs_block = attribute(12),
            .regs_sm = attribute(82),
            .reg_unit = 256,
            .smem_block = attribute(8),
            .smem_block_optin = attribute(97),
            .smem_sm = attribute(81),
            .smem_reserved = attribute(111),
            .max_cluster = cc >= 90 ? 8 : 1,
            .l2_bytes = (uint64_t)attribute(38),
            .memory_bandwidth = 2.0 * attribute(36) * 1e3 * attribute(37) / 8, // kHz, bits
            .max_grid = {attribute(5), attribute(6), attribute(7)},
            .max_block = {attribute(2), attribute(3), attribute(4)}};
    return &device;
}

void gpu_print_resources(int on) {
    print_resources = on;
}

// ---- Memory ------------------------------------------------------------------------------------
uint64_t gpu_alloc(size_t bytes) {
    address at;
    CU(MemAlloc_v2, &at, bytes > 0 ? bytes : 1);
    return at;
}

void gpu_free(uint64_t at) {
    CU(MemFree_v2, at);
}

void gpu_upload(uint64_t to, const void *from, size_t bytes) {
    CU(MemcpyHtoD_v2, to, from, bytes);
    CU_WAIT(); // pageable memory may still be on its way, and the stream waits for no other
}

void gpu_download(void *to, uint64_t from, size_t bytes) {
    CU(MemcpyDtoH_v2, to, from, bytes);
}

void gpu_fill(uint64_t to, int byte, size_t bytes) {
    CU(MemsetD8_v2, to, (unsigned char)byte, bytes);
    CU_WAIT();
}

uint64_t gpu_copy(const void *from, size_t bytes) {
    uint64_t to = gpu_alloc(bytes);
    gpu_upload(to, from, bytes);
    return to;
}

// ---- Plugins and ops ---------------------------------------------------------------------------
const struct kiln_plugin *gpu_load_plugin(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct kiln_plugin *plugin = library != NULL ? dlsym(library, "kiln_plugin_entry") : NULL;
    if (plugin == NULL) {
        gpu_die("%s", dlerror());
    }
    return plugin;
}

const struct kiln_variant *gpu_find_variant(const struct kiln_plugin *plugin, const char *name) {
    for (uint32_t i = 0; i < plugin->n_variants; i++) {
        if (strcmp(plugin->variants[i]->name, name) == 0) {
            return plugin->variants[i];
        }
    }
    gpu_die("plugin %s has no variant %s", plugin->name, name);
}

void gpu_op_begin(struct gpu_op *op, uint32_t kind, uint32_t phase) {
    *op = (struct gpu_op){
            .op = {.struct_size = sizeof(struct kiln_op), .kind = kind, .role = "test"},
            .phase = phase};
}

void gpu_op_add(struct gpu_op *op, uint32_t operand, uint32_t dtype, int64_t columns, int64_t rows,
        int64_t elems, int64_t bytes, int64_t stride, uint64_t at) {
    if (op->op.n_operands == GPU_OPERANDS) {
        gpu_die("more than %d operands", GPU_OPERANDS);
    }
    uint64_t aligned = at & 255 ? at & ~(at - 1) & 255 : 256;
    int64_t row = columns / elems * bytes;
    op->tensors[op->op.n_operands++] =
            (struct kiln_tensor){.struct_size = sizeof(struct kiln_tensor),
                    .operand = operand,
                    .dtype = dtype,
                    .flags = operand == KILN_OPERAND_WEIGHT ? KILN_TENSOR_WEIGHT : 0u,
                    .n_dims = 2,
                    .dims = {columns, rows, 1, 1},
                    .strides = {bytes, stride != 0 ? stride : row, 0, 0},
                    .alignment = aligned};
    op->address[operand] = at;
}

void gpu_op_f32(struct gpu_op *op, uint32_t operand, int64_t columns, int64_t rows, uint64_t at) {
    gpu_op_add(op, operand, KILN_DTYPE_F32, columns, rows, 1, 4, 0, at);
}

void gpu_op_i32(struct gpu_op *op, uint32_t operand, int64_t n, uint64_t at) {
    gpu_op_add(op, operand, KILN_DTYPE_I32, n, 1, 1, 4, 0, at);
    op->tensors[op->op.n_operands - 1].n_dims = 1;
}

void gpu_op_bound(struct gpu_op *op, uint64_t n_tokens) {
    for (uint32_t i = 0; i < op->op.n_operands; i++) {
        struct kiln_tensor *tensor = &op->tensors[i];
        switch (tensor->operand) {
        case KILN_OPERAND_WEIGHT:
        case KILN_OPERAND_BIAS:
        case KILN_OPERAND_K_CACHE:
        case KILN_OPERAND_V_CACHE:
        case KILN_OPERAND_Q_NORM:
        case KILN_OPERAND_K_NORM:
        case KILN_OPERAND_ROPE_FREQS:
            break;
        default: {
            uint32_t dim = tensor->n_dims == 1 ? 0 : 1;
            tensor->bound_dims = 1U << dim;
            tensor->bound_by[dim] = KILN_OPERAND_N_TOKENS;
        }
        }
    }
    gpu_op_i32(op, KILN_OPERAND_N_TOKENS, 1, n_tokens);
}

// ---- Compiling ---------------------------------------------------------------------------------
struct module {
    char *key;
    void *module;
};
static struct module modules[MODULES_MAX];
static uint32_t n_modules;

struct text {
    char at[TEXT_MAX];
    size_t len;
};

__attribute__((format(printf, 2, 3))) static void append(struct text *text, const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    int n = vsnprintf(text->at + text->len, sizeof(text->at) - text->len, fmt, list);
    va_end(list);
    if (n < 0 || (size_t)n >= sizeof(text->at) - text->len) {
        gpu_die("options longer than %d bytes", TEXT_MAX);
    }
    text->len += (size_t)n + 1; // each option a string of its own
}

static void report_log(void *program, const char *name, int failed) {
    size_t size = 0;
    nvrtc.GetProgramLogSize(program, &size);
    char *log = calloc(size + 1, 1); // a program for measuring, not part of kiln
    if (log == NULL) {
        gpu_die("out of memory");
    }
    nvrtc.GetProgramLog(program, log);
    if (failed) {
        gpu_die("%s:\n%s", name, log);
    }
    const char *spill = strstr(log, "bytes spill stores");
    int spills = spill != NULL && strstr(log, "0 bytes spill stores") == NULL;
    if (print_resources || spills) {
        printf("%s%s: %s\n", spills ? "SPILLS " : "", name, log);
    }
    free(log);
}

static void *compile(const struct kiln_source *source, struct text *options, const char *key) {
    const char *list[64];
    const char *texts[16];
    const char *names[16];
    int n = 0;
    for (size_t at = 0; at < options->len && n < 64; at += strlen(options->at + at) + 1) {
        list[n++] = options->at + at;
    }
    for (uint32_t i = 0; i < source->n_headers && i < 16; i++) {
        names[i] = source->headers[i]->name;
        texts[i] = source->headers[i]->text;
    }
    void *program;
    check(nvrtc.CreateProgram(
                  &program, source->text, source->name, (int)source->n_headers, texts, names),
            "nvrtcCreateProgram");
    int code = nvrtc.CompileProgram(program, n, list);
    report_log(program, key, code != 0);
    size_t size = 0;
    check(nvrtc.GetCUBINSize(program, &size), "nvrtcGetCUBINSize");
    char *cubin = calloc(size, 1);
    if (cubin == NULL) {
        gpu_die("out of memory");
    }
    check(nvrtc.GetCUBIN(program, cubin), "nvrtcGetCUBIN");
    void *module;
    CU(ModuleLoadData, &module, cubin);
    free(cubin);
    nvrtc.DestroyProgram(&program);
    return module;
}

static void *find_module(const struct kiln_kernel *kernel, const struct kiln_launch *launch,
        const struct kiln_geometry *geometry) {
    struct text options = {.len = 0};
    struct text key = {.len = 0};
    append(&options, "--gpu-architecture=%s", device.target);
    append(&options, "-std=c++17");
    append(&options, "--ptxas-options=-v");
    append(&options, "-DKILN_SMEM=%u", launch->shared_bytes);
    for (uint32_t i = 0; i < geometry->n_values; i++) {
        append(&options, "-D%s=%lld", geometry->names[i], (long long)geometry->values[i]);
    }
    for (uint32_t i = 0; i < launch->n_defines; i++) {
        append(&options, "-D%s", launch->defines[i]);
    }
    append(&key, "%s", kernel->name);
    for (size_t at = 0; at < options.len; at += strlen(options.at + at) + 1) {
        key.len--;
        append(&key, " %s", options.at + at);
    }
    for (uint32_t i = 0; i < n_modules; i++) {
        if (strcmp(modules[i].key, key.at) == 0) {
            return modules[i].module;
        }
    }
    if (n_modules == MODULES_MAX) {
        gpu_die("more than %d modules", MODULES_MAX);
    }
    void *module = compile(kernel->source, &options, key.at);
    modules[n_modules].key = strdup(key.at);
    modules[n_modules++].module = module;
    return module;
}

// ---- Plans -------------------------------------------------------------------------------------
struct launch {
    void *function;
    uint32_t grid[3], block[3], shared_bytes;
    uint32_t n_args;
    unsigned char args[ARGS_MAX][256]; // values, not addresses of them; tensor maps have 128 bytes
};

struct gpu_planned {
    const struct kiln_variant *variant;
    struct kiln_geometry geometry;
    int64_t values[GPU_VALUES];
    const char *names[GPU_VALUES];
    const struct gpu_op *op;
    struct launch launches[GPU_LAUNCHES];
    uint32_t n_launches;
    uint64_t workspaces[WORKSPACES_MAX];
    size_t workspace_bytes[WORKSPACES_MAX];
    uint32_t workspace_flags[WORKSPACES_MAX];
    uint32_t n_workspaces;
    uint64_t prepared[4][4];
    uint32_t n_prepared;
    double flops, bytes;
    char text[512];
};

static uint64_t resolve(const struct gpu_planned *planned, uint32_t kind,
        const struct kiln_arg *arg, uint32_t preparation) {
    switch (kind) {
    case KILN_ARG_OPERAND:
        return planned->op->address[arg->operand] + arg->offset;
    case KILN_ARG_WORKSPACE:
        return planned->workspaces[arg->index] + arg->offset;
    default:
        return planned->prepared[arg->index == KILN_PREP_SELF ? preparation : arg->index]
                                [arg->buffer] +
               arg->offset;
    }
}

static void encode_map(void *to, const struct kiln_tensor_map *map, uint64_t at) {
    int type = map->dtype == KILN_DTYPE_F16 ? 6 : map->dtype == KILN_DTYPE_BF16 ? 9 : 7;
    int promotion = map->l2_promotion == 256   ? 3
                    : map->l2_promotion == 128 ? 2
                    : map->l2_promotion == 64  ? 1
                                               : 0;
    _Alignas(64) unsigned char encoded[128];
    void *base;
    memcpy(&base, &at, sizeof(base));
    CU(TensorMapEncodeTiled, encoded, type, map->rank, base, map->dims, map->strides + 1, map->box,
            map->elem_strides, (int)map->interleave / 16, (int)map->swizzle, promotion,
            (int)map->oob_nan);
    memcpy(to, encoded, sizeof(encoded));
}

static const struct kiln_kernel *find_kernel(const struct kiln_variant *variant, const char *name) {
    for (uint32_t i = 0; i < variant->n_kernels; i++) {
        if (strcmp(variant->kernels[i]->name, name) == 0) {
            return variant->kernels[i];
        }
    }
    gpu_die("variant %s has no kernel %s", variant->name, name);
}

static void check_layout(void *module, const struct kiln_launch *record) {
    char name[96];
    address at;
    size_t size;
    snprintf(name, sizeof(name), "kiln_layout_%s", record->kernel);
    if (cu.ModuleGetGlobal_v2(&at, &size, module, name) == 0) {
        uint32_t total;
        gpu_download(&total, at, sizeof(total));
        if (total != record->shared_bytes) {
            gpu_die("%s: asks for %u bytes of shared memory, its layout has %u", record->kernel,
                    record->shared_bytes, total);
        }
    }
}

static void make_launch(const struct gpu_planned *planned, const struct kiln_launch *record,
        uint32_t preparation, struct launch *launch) {
    const struct kiln_kernel *kernel = find_kernel(planned->variant, record->kernel);
    void *module = find_module(kernel, record, &planned->geometry);
    CU(ModuleGetFunction, &launch->function, module, record->kernel);
    check_layout(module, record);
    if (record->shared_bytes > 0) {
        CU(FuncSetAttribute, launch->function, SMEM_ATTRIBUTE, (int)record->shared_bytes);
    }
    memcpy(launch->grid, record->grid, sizeof(launch->grid));
    memcpy(launch->block, record->block, sizeof(launch->block));
    launch->shared_bytes = record->shared_bytes;
    launch->n_args = record->n_args;
    for (uint32_t i = 0; i < record->n_args; i++) {
        const struct kiln_arg *arg = record->args[i];
        uint64_t at;
        switch (arg->kind) {
        case KILN_ARG_BYTES:
            memcpy(launch->args[i], arg->bytes, arg->size);
            break;
        case KILN_ARG_TENSOR_MAP:
            encode_map(
                    launch->args[i], arg->map, resolve(planned, arg->map->base, arg, preparation));
            break;
        default:
            at = resolve(planned, arg->kind, arg, preparation);
            memcpy(launch->args[i], &at, sizeof(at));
            break;
        }
    }
}

static void put(const struct launch *launch) {
    // Tensor maps must stand at multiples of 64 bytes.
    _Alignas(64) static unsigned char values[ARGS_MAX][256];
    void *pointers[ARGS_MAX];
    memcpy(values, launch->args, sizeof(values));
    for (uint32_t i = 0; i < launch->n_args; i++) {
        pointers[i] = values[i];
    }
    CU(LaunchKernel, launch->function, launch->grid[0], launch->grid[1], launch->grid[2],
            launch->block[0], launch->block[1], launch->block[2], launch->shared_bytes, stream,
            pointers, NULL);
}

static int32_t sink_workspace(struct kiln_plan *plan, uint64_t bytes, uint32_t flags) {
    struct gpu_planned *planned = plan->data;
    uint32_t i = planned->n_workspaces++;
    if (i >= WORKSPACES_MAX) {
        gpu_die("more than %d workspaces", WORKSPACES_MAX);
    }
    planned->workspaces[i] = gpu_alloc(bytes);
    planned->workspace_bytes[i] = bytes;
    planned->workspace_flags[i] = flags;
    gpu_fill(planned->workspaces[i], 0xff, bytes); // NaN
    return (int32_t)i;
}

static int32_t sink_prepare(struct kiln_plan *plan, const struct kiln_preparation *preparation) {
    struct gpu_planned *planned = plan->data;
    uint32_t index = planned->n_prepared++;
    for (uint32_t i = 0; i < preparation->n_buffers; i++) {
        planned->prepared[index][i] = gpu_alloc(preparation->buffer_bytes[i]);
        gpu_fill(planned->prepared[index][i], 0xff, preparation->buffer_bytes[i]);
    }
    for (uint32_t i = 0; i < preparation->n_launches; i++) {
        struct launch launch = {0};
        make_launch(planned, preparation->launches[i], index, &launch);
        put(&launch);
    }
    gpu_sync();
    return (int32_t)index;
}

static int32_t sink_launch(struct kiln_plan *plan, const struct kiln_launch *record) {
    struct gpu_planned *planned = plan->data;
    if (planned->n_launches == GPU_LAUNCHES) {
        gpu_die("more than %d launches", GPU_LAUNCHES);
    }
    make_launch(planned, record, 0, &planned->launches[planned->n_launches]);
    // The last launch counts the whole op.
    planned->flops = record->flops;
    planned->bytes = record->bytes_read + record->bytes_written;
    return (int32_t)planned->n_launches++;
}

static int32_t sink_decline(struct kiln_plan *plan, const char *reason) {
    struct gpu_planned *planned = plan->data;
    snprintf(planned->text, sizeof(planned->text), "%s", reason);
    return KILN_RESULT_DECLINED;
}

static int32_t sink_fail(struct kiln_plan *plan, const char *text) {
    (void)plan;
    gpu_die("plan failed: %s", text);
}

static int64_t default_of(const struct kiln_param *param, int32_t head_size) {
    for (uint32_t i = 0; i < param->n_defaults; i++) {
        const struct kiln_param_default *row = param->defaults[i];
        if ((row->head_size == 0 || row->head_size == head_size) &&
                (row->target_min == 0 || device.cc >= row->target_min) &&
                (row->target_max == 0 || device.cc <= row->target_max)) {
            return row->value;
        }
    }
    return param->value;
}

static void fill_geometry(struct gpu_planned *planned, const struct gpu_value *values,
        uint32_t n_values, int32_t head_size) {
    const struct kiln_variant *variant = planned->variant;
    for (uint32_t i = 0; i < variant->n_params && i < GPU_VALUES; i++) {
        planned->names[i] = variant->params[i]->name;
        planned->values[i] = default_of(variant->params[i], head_size);
        for (uint32_t j = 0; j < n_values; j++) {
            if (strcmp(values[j].name, planned->names[i]) == 0) {
                planned->values[i] = values[j].value;
            }
        }
    }
    planned->geometry = (struct kiln_geometry){.struct_size = sizeof(planned->geometry),
            .n_values = variant->n_params,
            .names = planned->names,
            .values = planned->values};
}

struct gpu_planned *gpu_plan_op(const struct kiln_variant *variant, struct gpu_op *op,
        const struct gpu_value *values, uint32_t n_values, const char **text) {
    struct gpu_planned *planned = calloc(1, sizeof(*planned));
    if (planned == NULL) {
        gpu_die("out of memory");
    }
    planned->variant = variant;
    planned->op = op;
    fill_geometry(planned, values, n_values, op->op.head_size);
    for (uint32_t i = 0; i < op->op.n_operands; i++) {
        op->list[i] = &op->tensors[i];
    }
    op->op.operands = op->list;
    const struct kiln_op *ops[] = {&op->op};
    struct kiln_problem problem = {.struct_size = sizeof(problem),
            .phase = op->phase,
            .slot = "test",
            .ops = ops,
            .n_ops = 1,
            .world = 1};
    struct kiln_plan sink = {.struct_size = sizeof(sink),
            .data = planned,
            .workspace = sink_workspace,
            .prepare = sink_prepare,
            .launch = sink_launch,
            .decline = sink_decline,
            .fail = sink_fail};
    if (variant->plan(NULL, &problem, &planned->geometry, &device, &sink) != KILN_RESULT_OK) {
        static char reason[512];
        memcpy(reason, planned->text, sizeof(reason));
        *text = reason;
        gpu_planned_free(planned);
        return NULL;
    }
    return planned;
}

void gpu_planned_free(struct gpu_planned *planned) {
    for (uint32_t i = 0; i < planned->n_workspaces; i++) {
        gpu_free(planned->workspaces[i]);
    }
    for (uint32_t i = 0; i < planned->n_prepared; i++) {
        for (uint32_t j = 0; j < 4 && planned->prepared[i][j] != 0; j++) {
            gpu_free(planned->prepared[i][j]);
        }
    }
    free(planned);
}

void gpu_launch(const struct gpu_planned *planned) {
    for (uint32_t i = 0; i < planned->n_workspaces; i++) {
        if (planned->workspace_flags[i] & KILN_WORKSPACE_ZERO) {
            gpu_fill(planned->workspaces[i], 0, planned->workspace_bytes[i]);
        }
    }
    for (uint32_t i = 0; i < planned->n_launches; i++) {
        put(&planned->launches[i]);
    }
}

void gpu_sync(void) {
    CU_WAIT();
}

double gpu_planned_flops(const struct gpu_planned *planned) {
    return planned->flops;
}

double gpu_planned_bytes(const struct gpu_planned *planned) {
    return planned->bytes;
}

// ---- Time --------------------------------------------------------------------------------------
static int compare(const void *a, const void *b) {
    const double *x = a;
    const double *y = b;
    return (*x > *y) - (*x < *y);
}

double gpu_time(struct gpu_planned *const *plans, uint32_t n, uint32_t calls, double *best) {
    void *graph;
    void *runnable;
    void *events[2];
    double times[TIMED_RUNS];
    gpu_launch(plans[0]);
    gpu_sync();
    CU(StreamBeginCapture_v2, stream, 2);
    for (uint32_t i = 0; i < calls; i++) {
        gpu_launch(plans[i % n]);
    }
    CU(StreamEndCapture, stream, &graph);
    CU(GraphInstantiateWithFlags, &runnable, graph, 0);
    CU(EventCreate, &events[0], 0);
    CU(EventCreate, &events[1], 0);
    for (int run = -2; run < TIMED_RUNS; run++) {
        CU(EventRecord, events[0], stream);
        CU(GraphLaunch, runnable, stream);
        CU(EventRecord, events[1], stream);
        gpu_sync();
        float ms;
        CU(EventElapsedTime, &ms, events[0], events[1]);
        if (run >= 0) {
            times[run] = (double)ms / 1000 / calls;
        }
    }
    CU(GraphExecDestroy, runnable);
    CU(GraphDestroy, graph);
    qsort(times, TIMED_RUNS, sizeof(times[0]), compare);
    *best = times[0];
    return times[TIMED_RUNS / 2];
}
