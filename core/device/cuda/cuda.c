// cuda: a GPU as a device: one context, one stream, memory, recorded graphs.
#include "device/cuda/cuda_impl.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct kiln_cuda *kiln_cuda_of(struct kiln_dev *dev) {
    return (struct kiln_cuda *)(void *)dev;
}

// ---- Failures -----------------------------------------------------------------------------------

// Results after which the context is lost: what the driver calls sticky.
static int is_fatal(int result) {
    enum {
        ECC_UNCORRECTABLE = 214,
        NVLINK_UNCORRECTABLE = 220,
        ILLEGAL_ADDRESS = 700,
        LAUNCH_TIMEOUT = 702,
        CONTEXT_IS_DESTROYED = 709,
        ASSERT = 710,
        HARDWARE_STACK_ERROR = 714, // to LAUNCH_FAILED: illegal instruction, misaligned address …
        LAUNCH_FAILED = 719,
        UNKNOWN = 999
    };
    return result == ECC_UNCORRECTABLE || result == NVLINK_UNCORRECTABLE ||
           result == ILLEGAL_ADDRESS || result == LAUNCH_TIMEOUT ||
           result == CONTEXT_IS_DESTROYED || result == ASSERT ||
           (result >= HARDWARE_STACK_ERROR && result <= LAUNCH_FAILED) || result == UNKNOWN;
}

enum kiln_status kiln_cuda_alive(const struct kiln_cuda *cuda, struct kiln_err *err) {
    const struct kiln_cuda_shared *shared = cuda->shared;
    if (atomic_load(&shared->fatal_state) != KILN_CUDA_FATAL_SET) {
        return KILN_STATUS_OK;
    }
    return kiln_err_set(err, shared->fatal.status, "%s", shared->fatal.text);
}

enum kiln_status kiln_cuda_check_for(struct kiln_cuda *cuda, int result, const char *call,
        const char *what, struct kiln_err *err) {
    struct kiln_err here = {0};
    if (result == 0) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(kiln_cuda_alive(cuda, err));
    here.status = kiln_cu_check(&cuda->cu, result, call, what, &here);
    int none = KILN_CUDA_FATAL_NONE;
    if (is_fatal(result) && atomic_compare_exchange_strong(
                                    &cuda->shared->fatal_state, &none, KILN_CUDA_FATAL_WRITTEN)) {
        cuda->shared->fatal = here;
        atomic_store(&cuda->shared->fatal_state, KILN_CUDA_FATAL_SET);
    }
    return kiln_err_set(err, here.status, "%s", here.text);
}

enum kiln_status kiln_cuda_check(
        struct kiln_cuda *cuda, int result, const char *call, struct kiln_err *err) {
    char what[832];
    if (result == 0) {
        return KILN_STATUS_OK;
    }
    if (!cuda->last[0]) {
        return kiln_cuda_check_for(cuda, result, call, "no kernel was launched before", err);
    }
    const char *others = "";
    if (is_fatal(result) && cuda->unwaited > 1) {
        others = "; of what was not waited for, another kernel may be at fault: "
                 "CUDA_LAUNCH_BLOCKING=1 with --graph off names it";
    }
    snprintf(what, sizeof(what),
            "%s was %s, grid %u,%u,%u, block %u,%u,%u, %u bytes of shared memory%s",
            cuda->replayed ? "a recorded decode step was launched last; the kernel before it"
                           : "the kernel launched last",
            cuda->last, cuda->last_grid[0], cuda->last_grid[1], cuda->last_grid[2],
            cuda->last_block[0], cuda->last_block[1], cuda->last_block[2], cuda->last_shared,
            others);
    return kiln_cuda_check_for(cuda, result, call, what, err);
}

static void shared_finish(struct kiln_cuda *cuda) {
    struct kiln_cuda_shared *shared = cuda->shared;
    if (shared) {
        kiln_cuda_modules_finish(cuda);
        kiln_cuda_weights_finish(cuda);
        kiln_jit_close(shared->jit);
        kiln_cuda_memory_close(shared->memory);
        pthread_mutex_destroy(&shared->jit_lock);
        pthread_mutex_destroy(&shared->lock);
        kiln_free(shared);
    }
}

static void cuda_close(struct kiln_dev *dev) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    if (!cuda->is_side) {
        shared_finish(cuda);
    }
    if (cuda->stream) {
        cuda->cu.stream_destroy(cuda->stream);
    }
    if (cuda->retained) {
        cuda->cu.context_release(cuda->handle);
    }
    kiln_pool_destroy(dev->pool);
    kiln_free(cuda);
}

// ---- Memory -------------------------------------------------------------------------------------

static enum kiln_status cuda_alloc(
        struct kiln_dev *dev, uint64_t bytes, void **addr, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    uint64_t at = 0;
    KILN_TRY(kiln_cuda_alive(cuda, err));
    int result = kiln_cuda_memory_take(cuda->shared->memory, bytes, &at);
    if (result < 0) {
        return kiln_err_nomem(err, "the books of the device's memory");
    }
    if (result != 0) {
        struct kiln_dev_memory memory;
        char what[400];
        dev->ops->memory(dev, &memory);
        snprintf(what, sizeof(what),
                "%" PRIu64 " bytes wanted; kiln holds %" PRIu64 " (%" PRIu64
                " of them weights) and had a budget of %" PRIu64
                " on %s; a smaller -c or -ub needs less",
                bytes, memory.held, memory.weights, memory.budget, cuda->names.name);
        return kiln_cuda_check_for(cuda, result, "cuMemAlloc", what, err);
    }
    *addr = (void *)(uintptr_t)at;
    return KILN_STATUS_OK;
}

static void cuda_free(struct kiln_dev *dev, void *addr) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    if (addr) {
        // What is queued may still use it. A failure is told by the next call that can.
        (void)cuda->cu.stream_sync(cuda->stream);
        kiln_cuda_memory_give(cuda->shared->memory, (uint64_t)(uintptr_t)addr);
    }
}

static void cuda_memory(struct kiln_dev *dev, struct kiln_dev_memory *memory) {
    const struct kiln_cuda *cuda = kiln_cuda_of(dev);
    kiln_cuda_memory_count(cuda->shared->memory, memory);
    memory->weights = atomic_load(&cuda->shared->weight_bytes);
}

static enum kiln_status cuda_upload(
        struct kiln_dev *dev, void *to, const void *from, uint64_t bytes, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    KILN_TRY(kiln_cuda_alive(cuda, err));
    // From pageable memory: the driver has taken the bytes when the call returns.
    return kiln_cuda_check(cuda,
            cuda->cu.upload((uint64_t)(uintptr_t)to, from, bytes, cuda->stream),
            "cuMemcpyHtoDAsync", err);
}

static enum kiln_status cuda_sync(struct kiln_dev *dev, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    KILN_TRY(kiln_cuda_alive(cuda, err));
    KILN_TRY(kiln_cuda_check(cuda, cuda->cu.stream_sync(cuda->stream), "cuStreamSynchronize", err));
    cuda->unwaited = 0;
    return KILN_STATUS_OK;
}

static enum kiln_status cuda_download(
        struct kiln_dev *dev, void *to, const void *from, uint64_t bytes, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    KILN_TRY(kiln_cuda_alive(cuda, err));
    KILN_TRY(kiln_cuda_check(cuda,
            cuda->cu.download(to, (uint64_t)(uintptr_t)from, bytes, cuda->stream),
            "cuMemcpyDtoHAsync", err));
    return cuda_sync(dev, err);
}

static enum kiln_status cuda_copy(
        struct kiln_dev *dev, void *to, const void *from, uint64_t bytes, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    KILN_TRY(kiln_cuda_alive(cuda, err));
    return kiln_cuda_check(cuda,
            cuda->cu.copy((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, bytes, cuda->stream),
            "cuMemcpyDtoDAsync", err);
}

static enum kiln_status cuda_host_alloc(
        struct kiln_dev *dev, uint64_t bytes, void **data, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    KILN_TRY(kiln_cuda_alive(cuda, err));
    return kiln_cuda_check_for(cuda, cuda->cu.host_alloc(data, bytes, 0), "cuMemHostAlloc",
            "pinned memory for what is downloaded", err);
}

static void cuda_host_free(struct kiln_dev *dev, void *data) {
    if (data) {
        (void)kiln_cuda_of(dev)->cu.host_free(data);
    }
}

static enum kiln_status cuda_zero(
        struct kiln_dev *dev, void *addr, uint64_t bytes, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    KILN_TRY(kiln_cuda_alive(cuda, err));
    return kiln_cuda_check(cuda, cuda->cu.fill((uint64_t)(uintptr_t)addr, 0, bytes, cuda->stream),
            "cuMemsetD8Async", err);
}

// ---- Marks --------------------------------------------------------------------------------------

static enum kiln_status record_event(
        struct kiln_dev *dev, void **event, unsigned flags, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    if (!*event) {
        KILN_TRY(kiln_cuda_check(cuda, cuda->cu.event_create(event, flags), "cuEventCreate", err));
    }
    return kiln_cuda_check(cuda, cuda->cu.event_record(*event, cuda->stream), "cuEventRecord", err);
}

static enum kiln_status cuda_mark(struct kiln_dev *dev, void **mark, struct kiln_err *err) {
    return record_event(dev, mark, 0, err);
}

static enum kiln_status cuda_fence(struct kiln_dev *dev, void **mark, struct kiln_err *err) {
    return record_event(dev, mark, KILN_CU_EVENT_NO_TIME, err);
}

static enum kiln_status cuda_elapsed(
        struct kiln_dev *dev, void *from, void *to, double *seconds, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    float ms = 0;
    KILN_TRY(kiln_cuda_check(cuda, cuda->cu.event_sync(to), "cuEventSynchronize", err));
    KILN_TRY(kiln_cuda_check(
            cuda, cuda->cu.event_elapsed(&ms, from, to), "cuEventElapsedTime", err));
    *seconds = (double)ms * 1e-3;
    return KILN_STATUS_OK;
}

static enum kiln_status cuda_wait(struct kiln_dev *dev, void *mark, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    KILN_TRY(kiln_cuda_alive(cuda, err));
    return kiln_cuda_check(cuda, cuda->cu.event_sync(mark), "cuEventSynchronize", err);
}

static void cuda_unmark(struct kiln_dev *dev, void *mark) {
    if (mark) {
        kiln_cuda_of(dev)->cu.event_destroy(mark);
    }
}

// ---- Graphs -------------------------------------------------------------------------------------

static enum kiln_status cuda_record_begin(struct kiln_dev *dev, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    KILN_TRY(kiln_cuda_alive(cuda, err));
    return kiln_cuda_check(cuda, cuda->cu.capture_begin(cuda->stream, KILN_CU_CAPTURE_RELAXED),
            "cuStreamBeginCapture", err);
}

static enum kiln_status cuda_record_end(struct kiln_dev *dev, void **graph, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    KILN_TRY(kiln_cuda_alive(cuda, err));
    void *captured = NULL;
    KILN_TRY(kiln_cuda_check(
            cuda, cuda->cu.capture_end(cuda->stream, &captured), "cuStreamEndCapture", err));
    enum kiln_status status = kiln_cuda_check(
            cuda, cuda->cu.graph_instantiate(graph, captured, 0), "cuGraphInstantiate", err);
    cuda->cu.graph_destroy(captured);
    return status;
}

static enum kiln_status cuda_replay(struct kiln_dev *dev, void *graph, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    KILN_TRY(kiln_cuda_alive(cuda, err));
    cuda->replayed = 1;
    cuda->unwaited += 2; // it holds more than one kernel
    return kiln_cuda_check(cuda, cuda->cu.graph_launch(graph, cuda->stream), "cuGraphLaunch", err);
}

static void cuda_forget(struct kiln_dev *dev, void *graph) {
    if (graph) {
        kiln_cuda_of(dev)->cu.graph_exec_destroy(graph);
    }
}

// ---- Sides --------------------------------------------------------------------------------------

static enum kiln_status cuda_side(
        struct kiln_dev *dev, struct kiln_dev **side, struct kiln_err *err) {
    const struct kiln_cuda *cuda = kiln_cuda_of(dev);
    struct kiln_cuda *made = kiln_calloc(1, sizeof(*made));
    if (!made) {
        return kiln_err_nomem(err, "the CUDA device");
    }
    made->dev = (struct kiln_dev){.ops = dev->ops, .desc = dev->desc};
    memcpy(made->dev.id, dev->id, sizeof(made->dev.id));
    made->cu = cuda->cu;
    made->handle = cuda->handle;
    made->names = cuda->names;
    made->shared = cuda->shared;
    made->is_side = 1;
    pthread_mutex_lock(&cuda->shared->lock);
    cuda->shared->sided = 1;
    pthread_mutex_unlock(&cuda->shared->lock);
    enum kiln_status status = kiln_cu_check(&made->cu, made->cu.context_set(cuda->context),
            "cuCtxSetCurrent", made->names.name, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_cu_check(&made->cu,
                made->cu.stream_create(&made->stream, KILN_CU_STREAM_NON_BLOCKING),
                "cuStreamCreate", made->names.name, err);
    }
    if (status != KILN_STATUS_OK) {
        cuda_close(&made->dev);
        return status;
    }
    *side = &made->dev;
    return KILN_STATUS_OK;
}

static const struct kiln_dev_ops cuda_ops = {
        .close = cuda_close,
        .alloc = cuda_alloc,
        .free = cuda_free,
        .weights = kiln_cuda_weights,
        .upload = cuda_upload,
        .download = cuda_download,
        .copy = cuda_copy,
        .zero = cuda_zero,
        .host_alloc = cuda_host_alloc,
        .host_free = cuda_host_free,
        .load = kiln_cuda_load,
        .unload = kiln_cuda_unload,
        .launch = kiln_cuda_launch,
        .sync = cuda_sync,
        .record_begin = cuda_record_begin,
        .record_end = cuda_record_end,
        .replay = cuda_replay,
        .forget = cuda_forget,
        .side = cuda_side,
        .mark = cuda_mark,
        .elapsed = cuda_elapsed,
        .fence = cuda_fence,
        .wait = cuda_wait,
        .unmark = cuda_unmark,
        .memory = cuda_memory,
};

// ---- Opening ------------------------------------------------------------------------------------

static enum kiln_status open_device(
        struct kiln_cu *cu, int32_t number, int *handle, struct kiln_err *err) {
    int count = 0;
    KILN_TRY(kiln_cu_open(cu, err));
    KILN_TRY(kiln_cu_check(
            cu, cu->device_count(&count), "cuDeviceGetCount", "counting devices", err));
    if (number >= count) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "--device cuda:%d: there are %d CUDA devices here, numbered from 0", number, count);
    }
    return kiln_cu_check(
            cu, cu->device_get(handle, number), "cuDeviceGet", "picking the device", err);
}

enum kiln_status kiln_cuda_count(int32_t *count, struct kiln_err *err) {
    struct kiln_cu cu;
    KILN_TRY(kiln_cu_open(&cu, err));
    return kiln_cu_check(&cu, cu.device_count(count), "cuDeviceGetCount", "counting devices", err);
}

enum kiln_status kiln_cuda_describe(int32_t number, struct kiln_device *desc,
        struct kiln_cuda_names *names, struct kiln_err *err) {
    struct kiln_cu cu;
    int handle = 0;
    KILN_TRY(open_device(&cu, number, &handle, err));
    return kiln_cuda_fill_desc(&cu, handle, desc, names, err);
}

static enum kiln_status make_shared(
        struct kiln_cuda *cuda, const struct kiln_dev_settings *settings, struct kiln_err *err) {
    struct kiln_cuda_shared *shared = kiln_calloc(1, sizeof(*shared));
    if (!shared) {
        return kiln_err_nomem(err, "the CUDA device");
    }
    int failed = pthread_mutex_init(&shared->lock, NULL) != 0;
    if (failed || pthread_mutex_init(&shared->jit_lock, NULL) != 0) {
        if (!failed) {
            pthread_mutex_destroy(&shared->lock);
        }
        kiln_free(shared);
        return kiln_err_nomem(err, "the CUDA device's locks");
    }
    cuda->shared = shared;
    struct kiln_jit_params jit = {
            .cache = {.dir = settings->cache_dir,
                    .max_size = settings->cache_max_size ? settings->cache_max_size : INT64_MAX},
            .have = kiln_cuda_take_module,
            .have_arg = shared};
    return kiln_jit_open(&shared->jit, &jit, err);
}

static enum kiln_status start(struct kiln_cuda *cuda, int32_t number,
        const struct kiln_dev_settings *settings, struct kiln_err *err) {
    const struct kiln_cu *cu = &cuda->cu;
    KILN_TRY(open_device(&cuda->cu, number, &cuda->handle, err));
    KILN_TRY(kiln_cuda_fill_desc(cu, cuda->handle, &cuda->dev.desc, &cuda->names, err));
    KILN_TRY(kiln_cu_check(cu,
            cu->device_bus_id(cuda->dev.bus_id, sizeof(cuda->dev.bus_id), cuda->handle),
            "cuDeviceGetPCIBusId", cuda->names.name, err));
    int version = 0; // 1000 * major + 10 * minor
    KILN_TRY(kiln_cu_check(
            cu, cu->driver_version(&version), "cuDriverGetVersion", cuda->names.name, err));
    snprintf(cuda->dev.driver, sizeof(cuda->dev.driver), "CUDA %d.%d", version / 1000,
            version % 1000 / 10);
    KILN_TRY(kiln_cu_check(cu, cu->context_retain(&cuda->context, cuda->handle),
            "cuDevicePrimaryCtxRetain", cuda->names.name, err));
    cuda->retained = 1;
    KILN_TRY(kiln_cu_check(
            cu, cu->context_set(cuda->context), "cuCtxSetCurrent", cuda->names.name, err));
    KILN_TRY(kiln_cu_check(cu, cu->stream_create(&cuda->stream, KILN_CU_STREAM_NON_BLOCKING),
            "cuStreamCreate", cuda->names.name, err));
    KILN_TRY(make_shared(cuda, settings, err));
    KILN_TRY(kiln_cuda_memory_open(&cuda->shared->memory, cu, err));
    uint32_t threads = settings->threads ? settings->threads : kiln_cpu_count();
    return kiln_pool_create(&cuda->dev.pool, threads, err);
}

enum kiln_status kiln_cuda_open(struct kiln_dev **dev, int32_t number,
        const struct kiln_dev_settings *settings, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_calloc(1, sizeof(*cuda));
    if (!cuda) {
        return kiln_err_nomem(err, "the CUDA device");
    }
    cuda->dev.ops = &cuda_ops;
    snprintf(cuda->dev.id, sizeof(cuda->dev.id), "cuda:%d", number);
    enum kiln_status status = start(cuda, number, settings, err);
    if (status != KILN_STATUS_OK) {
        cuda_close(&cuda->dev);
        return status;
    }
    *dev = &cuda->dev;
    return KILN_STATUS_OK;
}
