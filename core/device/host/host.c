// host: the CPU as a device. A kernel is a C function, called once for each block of its grid on
// the pool.
#include "device/device.h"

#include "base/clock.h"
#include "base/crash.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#    include <cpuid.h>
#endif

struct host {
    struct kiln_dev dev;
    uint8_t **scratch; // one a thread: a block's shared memory
    uint32_t scratch_bytes;
};

struct kiln_dev_kernel {
    kiln_host_fn fn;
    struct kiln_foreign_call call; // whose it is
};

static struct host *host_of(struct kiln_dev *dev) {
    return (struct host *)(void *)dev;
}

static void host_close(struct kiln_dev *dev) {
    struct host *host = host_of(dev);
    for (uint32_t i = 0; host->scratch && i < kiln_pool_threads(dev->pool); i++) {
        kiln_free(host->scratch[i]);
    }
    kiln_free(host->scratch);
    kiln_pool_destroy(dev->pool);
    kiln_free(host);
}

static enum kiln_status host_alloc(
        struct kiln_dev *dev, uint64_t bytes, void **addr, struct kiln_err *err) {
    (void)dev;
    *addr = kiln_alloc_aligned(64, bytes);
    return *addr ? KILN_STATUS_OK
                 : kiln_err_set(err, KILN_STATUS_NOMEM, "out of memory for %llu bytes on the CPU",
                           (unsigned long long)bytes);
}

static void host_free(struct kiln_dev *dev, void *addr) {
    (void)dev;
    kiln_free(addr);
}

static enum kiln_status host_weights(
        struct kiln_dev *dev, const void *data, uint64_t bytes, void **addr, struct kiln_err *err) {
    (void)dev;
    (void)bytes;
    (void)err;
    memcpy(addr, &data, sizeof(data)); // kernels do not write to weights
    return KILN_STATUS_OK;
}

static enum kiln_status host_upload(
        struct kiln_dev *dev, void *to, const void *from, uint64_t bytes, struct kiln_err *err) {
    (void)dev;
    (void)err;
    memcpy(to, from, bytes);
    return KILN_STATUS_OK;
}

static enum kiln_status host_zero(
        struct kiln_dev *dev, void *addr, uint64_t bytes, struct kiln_err *err) {
    (void)dev;
    (void)err;
    memset(addr, 0, bytes);
    return KILN_STATUS_OK;
}

static enum kiln_status host_load(struct kiln_dev *dev, const struct kiln_load *loads, size_t count,
        struct kiln_dev_kernel **ready, struct kiln_err *err) {
    (void)dev;
    for (size_t i = 0; i < count; i++) {
        enum kiln_status status = KILN_STATUS_OK;
        ready[i] = kiln_alloc(sizeof(*ready[i]));
        if (loads[i].source) {
            status = kiln_err_set(err, KILN_STATUS_CONFIG,
                    "source = %s: %s of plugin %s runs on the CPU and has no CUDA source to "
                    "replace",
                    loads[i].source, loads[i].variant, loads[i].plugin);
        } else if (!ready[i]) {
            status = kiln_err_nomem(err, "a kernel");
        }
        if (status != KILN_STATUS_OK) {
            for (size_t j = 0; j <= i; j++) {
                kiln_free(ready[j]);
                ready[j] = NULL;
            }
            return status;
        }
        *ready[i] = (struct kiln_dev_kernel){.fn = loads[i].kernel->host,
                .call = {.plugin = loads[i].plugin,
                        .variant = loads[i].variant,
                        .what = loads[i].kernel->name}};
    }
    return KILN_STATUS_OK;
}

static void host_unload(struct kiln_dev *dev, struct kiln_dev_kernel *ready) {
    (void)dev;
    kiln_free(ready);
}

struct grid_run {
    const struct host *host;
    const struct kiln_dev_kernel *kernel;
    const struct kiln_launch *launch;
    void *const *args;
};

static void run_block(void *arg, uint32_t index, uint32_t worker) {
    const struct grid_run *run = arg;
    const uint32_t *grid = run->launch->grid;
    struct kiln_block block = {
            .struct_size = sizeof(block),
            .worker = worker,
            .grid = {grid[0], grid[1], grid[2]},
            .index = {index % grid[0], index / grid[0] % grid[1], index / grid[0] / grid[1]},
            .shared = run->launch->shared_bytes ? run->host->scratch[worker] : NULL,
    };
    kiln_crash_note(&run->kernel->call);
    run->kernel->fn(&block, run->args);
    kiln_crash_note(NULL);
}

static enum kiln_status grow_scratch(struct host *host, uint32_t bytes, struct kiln_err *err) {
    for (uint32_t i = 0; i < kiln_pool_threads(host->dev.pool); i++) {
        uint8_t *grown = kiln_alloc_aligned(64, bytes);
        if (!grown) {
            return kiln_err_nomem(err, "a host kernel's scratch");
        }
        kiln_free(host->scratch[i]);
        host->scratch[i] = grown;
    }
    host->scratch_bytes = bytes;
    return KILN_STATUS_OK;
}

static enum kiln_status host_launch(struct kiln_dev *dev, struct kiln_dev_kernel *ready,
        const struct kiln_launch *launch, void *const *args, struct kiln_err *err) {
    struct host *host = host_of(dev);
    if (launch->shared_bytes > host->scratch_bytes) {
        KILN_TRY(grow_scratch(host, launch->shared_bytes, err));
    }
    struct grid_run run = {.host = host, .kernel = ready, .launch = launch, .args = args};
    kiln_pool_run(dev->pool, run_block, &run, launch->grid[0] * launch->grid[1] * launch->grid[2]);
    return KILN_STATUS_OK;
}

static enum kiln_status host_sync(struct kiln_dev *dev, struct kiln_err *err) {
    (void)dev;
    (void)err;
    return KILN_STATUS_OK;
}

// Memory is the process's own and kernels are functions: only the threads and their scratch differ.
// One thread: the others are busy with the device itself.
static enum kiln_status host_side(
        struct kiln_dev *dev, struct kiln_dev **side, struct kiln_err *err) {
    const struct kiln_dev_settings settings = {.threads = 1};
    KILN_TRY(kiln_host_open(side, &settings, err));
    (*side)->desc = dev->desc; // what is planned there runs on the device
    return KILN_STATUS_OK;
}

// Work is done when it is queued, so a mark is a reading of the clock.
static enum kiln_status host_mark(struct kiln_dev *dev, void **mark, struct kiln_err *err) {
    (void)dev;
    if (!*mark) {
        *mark = kiln_alloc(sizeof(double));
    }
    if (!*mark) {
        return kiln_err_nomem(err, "a mark");
    }
    *(double *)*mark = kiln_clock_seconds();
    return KILN_STATUS_OK;
}

static enum kiln_status host_elapsed(
        struct kiln_dev *dev, void *from, void *to, double *seconds, struct kiln_err *err) {
    (void)dev, (void)err;
    *seconds = *(double *)to - *(double *)from;
    return KILN_STATUS_OK;
}

static void host_unmark(struct kiln_dev *dev, void *mark) {
    (void)dev;
    kiln_free(mark);
}

static const struct kiln_dev_ops host_ops = {
        .close = host_close,
        .alloc = host_alloc,
        .free = host_free,
        .weights = host_weights,
        .upload = host_upload,
        .download = host_upload,
        .copy = host_upload,
        .zero = host_zero,
        .load = host_load,
        .unload = host_unload,
        .launch = host_launch,
        .sync = host_sync,
        .side = host_side,
        .mark = host_mark,
        .elapsed = host_elapsed,
        .unmark = host_unmark,
};

#if defined(__x86_64__)
// clang 14 does not know the name "f16c" in __builtin_cpu_supports.
static int has_f16c(void) {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}
#endif

uint32_t kiln_host_features(void) {
    uint32_t features = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
        features |= KILN_HOST_AVX2;
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
        features |= KILN_HOST_AVX512;
    }
    if (__builtin_cpu_supports("avx512vnni")) {
        features |= KILN_HOST_AVX512_VNNI;
    }
#endif
    return features;
}

void kiln_host_cpu_name(char *name, size_t size) {
    snprintf(name, size, "CPU");
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (file && fgets(line, sizeof(line), file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(name, size, "%s", colon + 2);
            break;
        }
    }
    if (file) {
        fclose(file);
    }
}

enum kiln_status kiln_host_open(
        struct kiln_dev **dev, const struct kiln_dev_settings *settings, struct kiln_err *err) {
    struct host *host = kiln_calloc(1, sizeof(*host));
    if (!host) {
        return kiln_err_nomem(err, "the CPU device");
    }
    host->dev.ops = &host_ops;
    snprintf(host->dev.id, sizeof(host->dev.id), "cpu");
    uint32_t count = settings->threads ? settings->threads : kiln_cpu_count();
    enum kiln_status status = kiln_pool_create(&host->dev.pool, count, err);
    if (status != KILN_STATUS_OK) {
        kiln_free(host);
        return status;
    }
    host->scratch = kiln_calloc(count, sizeof(*host->scratch));
    if (!host->scratch) {
        host_close(&host->dev);
        return kiln_err_nomem(err, "the CPU device");
    }
    host->dev.desc = (struct kiln_device){
            .struct_size = sizeof(struct kiln_device),
            .kind = KILN_DEVICE_HOST,
            .name = "cpu",
            .target = "cpu",
            .sm_count = (int32_t)count,
            .warp_size = 1,
            .max_grid = {INT32_MAX, 65535, 65535},
            .max_block = {1, 1, 1},
            .max_threads_block = 1,
            .smem_block = 1 << 26,
            .smem_block_optin = 1 << 26,
            .host_features = kiln_host_features(),
    };
    *dev = &host->dev;
    return KILN_STATUS_OK;
}
