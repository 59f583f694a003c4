// cuda_impl: what the files of the CUDA device share: cuda.c (opening, streams, failures),
// describe.c (what the device is), kernels.c (modules and launches), memory.c, weights.c (the model
// file's way to the device).
#ifndef KILN_DEVICE_CUDA_CUDA_IMPL_H
#define KILN_DEVICE_CUDA_CUDA_IMPL_H

#include "device/cuda/driver.h"
#include "device/cuda/memory.h"
#include "device/device.h"
#include "jit/jit.h"

#include <pthread.h>
#include <stdatomic.h>

struct kiln_cuda_weight { // a piece of the model file that is on the device
    const void *data;
    uint64_t bytes;
    uint64_t addr;
};

struct kiln_cuda_module; // a compiled kernel in the context

enum {
    KILN_CUDA_STAGES = 2
};

// What the device and its sides have in common.
struct kiln_cuda_shared {
    pthread_mutex_t jit_lock; // held while kernels are compiled
    struct kiln_jit *jit;
    pthread_mutex_t lock;             // of all below; never held while waiting for the other
    int sided;                        // a side was opened: what is uploaded is waited for
    struct kiln_cuda_weight *weights; // by address of the data
    size_t n_weights, cap_weights;
    void *stage[KILN_CUDA_STAGES];    // pinned, what is read while the other is on its way
    void *staged[KILN_CUDA_STAGES];   // events
    struct kiln_cuda_module *modules; // a list
    size_t n_modules;
    struct kiln_cuda_memory *memory;
    _Atomic uint64_t weight_bytes;
    // After a kernel's fault every call fails alike; the first failure is what is said.
    atomic_int fatal_state; // enum kiln_cuda_fatal
    struct kiln_err fatal;
};

enum kiln_cuda_fatal {
    KILN_CUDA_FATAL_NONE,
    KILN_CUDA_FATAL_WRITTEN, // just now
    KILN_CUDA_FATAL_SET,     // and not changed any more
};

struct kiln_cuda {
    struct kiln_dev dev;
    struct kiln_cu cu;
    int handle; // CUdevice
    int retained;
    void *context;
    void *stream;
    struct kiln_cuda_names names;
    struct kiln_cuda_shared *shared; // the device's own; a side borrows it
    int is_side;
    // A fault comes out of a later call: what was launched last, and how many launches were not
    // waited for.
    char last[384]; // kernel and geometry
    uint32_t last_grid[3], last_block[3], last_shared;
    uint64_t unwaited;
    int replayed; // a recorded graph was launched behind it
};

struct kiln_cuda *kiln_cuda_of(struct kiln_dev *dev);
// Begins every call: once a kernel has faulted the driver fails all that follows, with whatever
// words; this fails with the first.
KILN_MUST_CHECK enum kiln_status kiln_cuda_alive(
        const struct kiln_cuda *cuda, struct kiln_err *err);
// As kiln_cu_check, naming the kernel launched last: what fails asynchronously is reported late.
KILN_MUST_CHECK enum kiln_status kiln_cuda_check(
        struct kiln_cuda *cuda, int result, const char *call, struct kiln_err *err);
// The same for a call that knows on whose behalf it is.
KILN_MUST_CHECK enum kiln_status kiln_cuda_check_for(struct kiln_cuda *cuda, int result,
        const char *call, const char *what, struct kiln_err *err);

// weights.c
KILN_MUST_CHECK enum kiln_status kiln_cuda_weights(
        struct kiln_dev *dev, const void *data, uint64_t bytes, void **addr, struct kiln_err *err);
void kiln_cuda_weights_finish(struct kiln_cuda *cuda);

// kernels.c
KILN_MUST_CHECK enum kiln_status kiln_cuda_load(struct kiln_dev *dev, const struct kiln_load *loads,
        size_t count, struct kiln_dev_kernel **ready, struct kiln_err *err);
void kiln_cuda_unload(struct kiln_dev *dev, struct kiln_dev_kernel *ready);
KILN_MUST_CHECK enum kiln_status kiln_cuda_launch(struct kiln_dev *dev,
        struct kiln_dev_kernel *ready, const struct kiln_launch *launch, void *const *args,
        struct kiln_err *err);

// For the compiler (kiln_jit_params.have): the loaded module with a key, or NULL.
void *kiln_cuda_take_module(void *device, const struct kiln_jit_key *key);
// Unloads every module. No kernel may be left.
void kiln_cuda_modules_finish(struct kiln_cuda *cuda);

// describe.c
KILN_MUST_CHECK enum kiln_status kiln_cuda_fill_desc(const struct kiln_cu *cu, int handle,
        struct kiln_device *desc, struct kiln_cuda_names *names, struct kiln_err *err);

#endif
