// driver: the CUDA driver library by dlopen: the few types, numbers and functions that kiln uses.
//
// Declared here and not included from cuda.h, so that kiln builds where there is no CUDA. Names and
// numbers are those of the driver API's documentation; they are part of its ABI and do not change.
#ifndef KILN_DEVICE_CUDA_DRIVER_H
#define KILN_DEVICE_CUDA_DRIVER_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_cu_launch_attr { // CUlaunchAttribute
    int32_t id;
    char pad[4];
    union {
        char bytes[64];
        int32_t flag;
        uint32_t dim[3];
    } value;
};

struct kiln_cu_launch { // CUlaunchConfig
    uint32_t grid[3], block[3], shared_bytes;
    void *stream;
    struct kiln_cu_launch_attr *attrs;
    uint32_t n_attrs;
};

// CUtensorMap: opaque to all but the driver and the hardware.
struct kiln_cu_tensor_map {
    _Alignas(64) uint64_t opaque[16];
};

enum {
    KILN_CU_ERROR_NO_MEMORY = 2,
    KILN_CU_ERROR_NO_DEVICE = 100,
    KILN_CU_STREAM_NON_BLOCKING = 1,
    KILN_CU_CAPTURE_RELAXED = 2,
    KILN_CU_EVENT_NO_TIME = 2,
    KILN_CU_JIT_ERROR_LOG = 5,
    KILN_CU_JIT_ERROR_LOG_BYTES = 6,
    KILN_CU_FUNC_STATIC_SHARED = 1,
    KILN_CU_FUNC_REGISTERS = 4,
    KILN_CU_FUNC_MAX_DYNAMIC_SHARED = 8,
    KILN_CU_ATTR_COOPERATIVE = 2,
    KILN_CU_ATTR_CLUSTER = 4,
    KILN_CU_ATTR_DEPENDENT = 6,
};

// member, symbol in the library, parameters; all return CUresult
#define KILN_CU_TABLE(X) \
    X(init, "cuInit", (unsigned)) \
    X(driver_version, "cuDriverGetVersion", (int *)) \
    X(error_name, "cuGetErrorName", (int, const char **)) \
    X(error_string, "cuGetErrorString", (int, const char **)) \
    X(device_count, "cuDeviceGetCount", (int *)) \
    X(device_get, "cuDeviceGet", (int *, int)) \
    X(device_name, "cuDeviceGetName", (char *, int, int)) \
    X(device_bus_id, "cuDeviceGetPCIBusId", (char *, int, int)) \
    X(device_memory, "cuDeviceTotalMem_v2", (size_t *, int)) \
    X(device_attribute, "cuDeviceGetAttribute", (int *, int, int)) \
    X(context_retain, "cuDevicePrimaryCtxRetain", (void **, int)) \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (int)) \
    X(context_set, "cuCtxSetCurrent", (void *)) \
    X(module_load, "cuModuleLoadDataEx", (void **, const void *, unsigned, int *, void **)) \
    X(module_unload, "cuModuleUnload", (void *)) \
    X(module_function, "cuModuleGetFunction", (void **, void *, const char *)) \
    X(function_get, "cuFuncGetAttribute", (int *, int, void *)) \
    X(function_set, "cuFuncSetAttribute", (void *, int, int)) \
    X(mem_alloc, "cuMemAlloc_v2", (uint64_t *, size_t)) \
    X(mem_free, "cuMemFree_v2", (uint64_t)) \
    X(mem_info, "cuMemGetInfo_v2", (size_t *, size_t *)) \
    X(host_alloc, "cuMemHostAlloc", (void **, size_t, unsigned)) \
    X(host_free, "cuMemFreeHost", (void *)) \
    X(upload, "cuMemcpyHtoDAsync_v2", (uint64_t, const void *, size_t, void *)) \
    X(download, "cuMemcpyDtoHAsync_v2", (void *, uint64_t, size_t, void *)) \
    X(copy, "cuMemcpyDtoDAsync_v2", (uint64_t, uint64_t, size_t, void *)) \
    X(fill, "cuMemsetD8Async", (uint64_t, unsigned char, size_t, void *)) \
    X(stream_create, "cuStreamCreate", (void **, unsigned)) \
    X(stream_destroy, "cuStreamDestroy_v2", (void *)) \
    X(stream_sync, "cuStreamSynchronize", (void *)) \
    X(event_create, "cuEventCreate", (void **, unsigned)) \
    X(event_destroy, "cuEventDestroy_v2", (void *)) \
    X(event_record, "cuEventRecord", (void *, void *)) \
    X(event_sync, "cuEventSynchronize", (void *)) \
    X(event_elapsed, "cuEventElapsedTime", (float *, void *, void *)) \
    X(launch, "cuLaunchKernelEx", (const struct kiln_cu_launch *, void *, void **, void **)) \
    X(capture_begin, "cuStreamBeginCapture_v2", (void *, int)) \
    X(capture_end, "cuStreamEndCapture", (void *, void **)) \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long)) \
    X(graph_launch, "cuGraphLaunch", (void *, void *)) \
    X(graph_destroy, "cuGraphDestroy", (void *)) \
    X(graph_exec_destroy, "cuGraphExecDestroy", (void *)) \
    X(tensor_map, "cuTensorMapEncodeTiled", \
            (struct kiln_cu_tensor_map *, int, uint32_t, void *, const uint64_t *, \
                    const uint64_t *, const uint32_t *, const uint32_t *, int, int, int, int))

struct kiln_cu {
    void *library;
#define KILN_CU_MEMBER(member, symbol, params) \
    int(*member) params; // NOLINT(bugprone-macro-parentheses): a declarator
    KILN_CU_TABLE(KILN_CU_MEMBER)
#undef KILN_CU_MEMBER
};

// Opens libcuda.so.1 (KILN_CUDA names another file), resolves every function and initializes it.
// KILN_STATUS_DEVICE says what is missing: the library, a function (a driver that is too old), a
// device. *cu is the caller's; the library stays open for the life of the process.
KILN_MUST_CHECK enum kiln_status kiln_cu_open(struct kiln_cu *cu, struct kiln_err *err);

// KILN_STATUS_DEVICE unless result is 0: what was called, on behalf of what, the driver's own
// words.
KILN_MUST_CHECK enum kiln_status kiln_cu_check(const struct kiln_cu *cu, int result,
        const char *call, const char *what, struct kiln_err *err);

#endif
