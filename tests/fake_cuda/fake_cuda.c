// fake_cuda: a CUDA driver library without a GPU, for tests of what kiln does with a driver: memory
// is the process's, kernels do not run. What a driver would refuse is refused: a call without a
// current context, a kernel of a module that was unloaded, also when it comes out of a recorded
// graph, memory that was freed.
//
// It counts: fake_cuda_count(WHAT) by enum fake_cuda_counts of fake_cuda.h.
#include "fake_cuda.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    ILLEGAL_ADDRESS = 700,
    INVALID_IMAGE = 200,
    MAX = 1 << 16
};

struct block { // of memory
    uint8_t *data;
    size_t size;
    int live;
};

struct module {
    int live;
};

struct stream {
    struct graph *recording;
};

struct graph {
    struct module *used[4096];
    size_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block blocks[MAX];
static size_t n_blocks;
static long counts[FAKE_CUDA_COUNTS];
static _Thread_local void *current;
static char context; // its address stands for the only one

long fake_cuda_count(int what) {
    pthread_mutex_lock(&lock);
    long count = counts[what];
    pthread_mutex_unlock(&lock);
    return count;
}

static void add(int what, long by) {
    pthread_mutex_lock(&lock);
    counts[what] += by;
    pthread_mutex_unlock(&lock);
}

#define NEED_CONTEXT \
    do { \
        if (!current) { \
            return INVALID_CONTEXT; \
        } \
    } while (0)

// Whether [addr, addr + bytes) lies in memory that is allocated.
static int is_mapped(uint64_t addr, size_t bytes) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = n_blocks; i-- > 0 && !found;) {
        uint64_t start = (uint64_t)(uintptr_t)blocks[i].data;
        found = blocks[i].live && addr >= start && addr + bytes <= start + blocks[i].size;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

// ---- Device and context -------------------------------------------------------------------------

API int cuInit(unsigned flags);
API int cuInit(unsigned flags) {
    (void)flags;
    return 0;
}

API int cuDriverGetVersion(int *version);
API int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}

API int cuGetErrorName(int error, const char **name);
API int cuGetErrorName(int error, const char **name) {
    *name = error == INVALID_CONTEXT   ? "CUDA_ERROR_INVALID_CONTEXT"
            : error == INVALID_HANDLE  ? "CUDA_ERROR_INVALID_HANDLE"
            : error == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                       : "CUDA_ERROR_OTHER";
    return 0;
}

API int cuGetErrorString(int error, const char **text);
API int cuGetErrorString(int error, const char **text) {
    return cuGetErrorName(error, text);
}

API int cuDeviceGetCount(int *count);
API int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

API int cuDeviceGet(int *device, int number);
API int cuDeviceGet(int *device, int number) {
    *device = number;
    return 0;
}

API int cuDeviceGetName(char *name, int size, int device);
API int cuDeviceGetName(char *name, int size, int device) {
    (void)device;
    snprintf(name, (size_t)size, "fake");
    return 0;
}

API int cuDeviceGetPCIBusId(char *id, int size, int device);
API int cuDeviceGetPCIBusId(char *id, int size, int device) {
    (void)device;
    snprintf(id, (size_t)size, "0000:00:00.0");
    return 0;
}

API int cuDeviceTotalMem_v2(size_t *bytes, int device);
API int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)1 << 34;
    return 0;
}

// An A100's figures, by CUdevice_attribute.
API int cuDeviceGetAttribute(int *value, int attribute, int device);
API int cuDeviceGetAttribute(int *value, int attribute, int device) {
    static const int figures[][2] = {{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, INT32_MAX},
            {6, 65535}, {7, 65535}, {8, 49152}, {10, 32}, {12, 65536}, {16, 108}, {36, 1593000},
            {37, 5120}, {38, 41943040}, {39, 2048}, {75, 8}, {76, 0}, {81, 167936}, {82, 65536},
            {97, 166912}, {106, 32}, {111, 1024}};
    (void)device;
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        if (figures[i][0] == attribute) {
            *value = figures[i][1];
            return 0;
        }
    }
    return INVALID_VALUE;
}

API int cuDevicePrimaryCtxRetain(void **made, int device);
API int cuDevicePrimaryCtxRetain(void **made, int device) {
    (void)device;
    *made = &context;
    return 0;
}

API int cuDevicePrimaryCtxRelease_v2(int device);
API int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    return 0;
}

API int cuCtxSetCurrent(void *made);
API int cuCtxSetCurrent(void *made) {
    current = made;
    return 0;
}

// ---- Modules ------------------------------------------------------------------------------------
// A function is its module; both stay in memory after an unload, so that late use is seen.

API int cuModuleLoadDataEx(
        void **module, const void *image, unsigned n, const int *options, void **values);
API int cuModuleLoadDataEx(
        void **module, const void *image, unsigned n, const int *options, void **values) {
    (void)n, (void)options, (void)values;
    NEED_CONTEXT;
    if (memcmp(image, "\177ELF", 4) != 0) {
        return INVALID_IMAGE;
    }
    struct module *made = calloc(1, sizeof(*made)); // kept to the end
    made->live = 1;
    *module = made;
    add(FAKE_CUDA_MODULES, 1);
    add(FAKE_CUDA_MODULE_LOADS, 1);
    return 0;
}

API int cuModuleUnload(void *module);
API int cuModuleUnload(void *module) {
    struct module *made = module;
    if (!made->live) {
        return INVALID_HANDLE;
    }
    made->live = 0;
    add(FAKE_CUDA_MODULES, -1);
    return 0;
}

API int cuModuleGetFunction(void **function, void *module, const char *name);
API int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)name;
    *function = module;
    return 0;
}

API int cuFuncGetAttribute(int *value, int attribute, void *function);
API int cuFuncGetAttribute(int *value, int attribute, void *function) {
    (void)attribute, (void)function;
    *value = 0;
    return 0;
}

API int cuFuncSetAttribute(void *function, int attribute, int value);
API int cuFuncSetAttribute(void *function, int attribute, int value) {
    (void)function, (void)attribute, (void)value;
    return 0;
}

// ---- Memory -------------------------------------------------------------------------------------

API int cuMemAlloc_v2(uint64_t *addr, size_t size);
API int cuMemAlloc_v2(uint64_t *addr, size_t size) {
    NEED_CONTEXT;
    uint8_t *data = calloc(1, size);
    if (!data || n_blocks == MAX) {
        free(data);
        return OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    blocks[n_blocks++] = (struct block){.data = data, .size = size, .live = 1};
    counts[FAKE_CUDA_BYTES] += (long)size;
    pthread_mutex_unlock(&lock);
    *addr = (uint64_t)(uintptr_t)data;
    return 0;
}

API int cuMemFree_v2(uint64_t addr);
API int cuMemFree_v2(uint64_t addr) {
    int result = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (size_t i = n_blocks; i-- > 0;) {
        if (blocks[i].live && (uint64_t)(uintptr_t)blocks[i].data == addr) {
            counts[FAKE_CUDA_BYTES] -= (long)blocks[i].size;
            free(blocks[i].data);
            blocks[i] = blocks[--n_blocks];
            result = 0;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

API int cuMemGetInfo_v2(size_t *unused, size_t *total);
API int cuMemGetInfo_v2(size_t *unused, size_t *total) {
    *unused = *total = (size_t)1 << 34;
    return 0;
}

API int cuMemHostAlloc(void **data, size_t size, unsigned flags);
API int cuMemHostAlloc(void **data, size_t size, unsigned flags) {
    (void)flags;
    *data = calloc(1, size);
    return *data ? 0 : OUT_OF_MEMORY;
}

API int cuMemFreeHost(void *data);
API int cuMemFreeHost(void *data) {
    free(data);
    return 0;
}

API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream);
API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
    (void)stream;
    NEED_CONTEXT;
    if (!is_mapped(to, size)) {
        return ILLEGAL_ADDRESS;
    }
    memcpy((void *)(uintptr_t)to, from, size);
    return 0;
}

API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream);
API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) {
    (void)stream;
    if (!is_mapped(from, size)) {
        return ILLEGAL_ADDRESS;
    }
    memcpy(to, (const void *)(uintptr_t)from, size);
    return 0;
}

API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream);
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
    (void)stream;
    return is_mapped(to, size) && is_mapped(from, size) ? 0 : ILLEGAL_ADDRESS;
}

API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, void *stream);
API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, void *stream) {
    (void)value, (void)stream;
    return is_mapped(to, size) ? 0 : ILLEGAL_ADDRESS;
}

// ---- Streams, events ----------------------------------------------------------------------------

API int cuStreamCreate(void **stream, unsigned flags);
API int cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    NEED_CONTEXT;
    *stream = calloc(1, sizeof(struct stream));
    add(FAKE_CUDA_STREAMS, 1);
    return *stream ? 0 : OUT_OF_MEMORY;
}

API int cuStreamDestroy_v2(void *stream);
API int cuStreamDestroy_v2(void *stream) {
    free(stream);
    add(FAKE_CUDA_STREAMS, -1);
    return 0;
}

API int cuStreamSynchronize(void *stream);
API int cuStreamSynchronize(void *stream) {
    (void)stream;
    NEED_CONTEXT;
    return 0;
}

API int cuEventCreate(void **event, unsigned flags);
API int cuEventCreate(void **event, unsigned flags) {
    (void)flags;
    *event = &context;
    return 0;
}

API int cuEventDestroy_v2(void *event);
API int cuEventDestroy_v2(void *event) {
    (void)event;
    return 0;
}

API int cuEventRecord(void *event, void *stream);
API int cuEventRecord(void *event, void *stream) {
    (void)event, (void)stream;
    return 0;
}

API int cuEventSynchronize(void *event);
API int cuEventSynchronize(void *event) {
    (void)event;
    return 0;
}

API int cuEventElapsedTime(float *ms, void *from, void *to);
API int cuEventElapsedTime(float *ms, void *from, void *to) {
    (void)from;
    (void)to;
    *ms = 0;
    return 0;
}

// ---- Launches and graphs ------------------------------------------------------------------------

struct launch_config { // CUlaunchConfig
    uint32_t grid[3], block[3], shared_bytes;
    struct stream *stream;
};

API int cuLaunchKernelEx(
        const struct launch_config *config, void *function, void **params, void **extra);
API int cuLaunchKernelEx(
        const struct launch_config *config, void *function, void **params, void **extra) {
    struct module *module = function;
    (void)params, (void)extra;
    NEED_CONTEXT;
    if (!module->live) {
        return INVALID_HANDLE;
    }
    struct graph *graph = config->stream->recording;
    if (graph && graph->count < sizeof(graph->used) / sizeof(graph->used[0])) {
        graph->used[graph->count++] = module;
    }
    add(FAKE_CUDA_LAUNCHES, 1);
    return 0;
}

API int cuStreamBeginCapture_v2(struct stream *stream, int mode);
API int cuStreamBeginCapture_v2(struct stream *stream, int mode) {
    (void)mode;
    stream->recording = calloc(1, sizeof(struct graph));
    return stream->recording ? 0 : OUT_OF_MEMORY;
}

API int cuStreamEndCapture(struct stream *stream, void **graph);
API int cuStreamEndCapture(struct stream *stream, void **graph) {
    *graph = stream->recording;
    stream->recording = NULL;
    return 0;
}

API int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags);
API int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags) {
    (void)flags;
    *made = malloc(sizeof(struct graph));
    if (!*made) {
        return OUT_OF_MEMORY;
    }
    memcpy(*made, graph, sizeof(struct graph));
    add(FAKE_CUDA_GRAPHS, 1);
    add(FAKE_CUDA_RECORDS, 1);
    return 0;
}

API int cuGraphLaunch(const struct graph *graph, void *stream);
API int cuGraphLaunch(const struct graph *graph, void *stream) {
    (void)stream;
    for (size_t i = 0; i < graph->count; i++) {
        if (!graph->used[i]->live) {
            return INVALID_HANDLE;
        }
    }
    return 0;
}

API int cuGraphDestroy(void *graph);
API int cuGraphDestroy(void *graph) {
    free(graph);
    return 0;
}

API int cuGraphExecDestroy(void *graph);
API int cuGraphExecDestroy(void *graph) {
    free(graph);
    add(FAKE_CUDA_GRAPHS, -1);
    return 0;
}

API int cuTensorMapEncodeTiled(void *map);
API int cuTensorMapEncodeTiled(void *map) {
    (void)map;
    return 0;
}
