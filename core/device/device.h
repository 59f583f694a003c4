// device: where kernels run. One table of functions a kind of device: host (C functions on a thread
// pool), cuda (a GPU), sim (CUDA kernels interpreted on the host).
//
// Addresses are the device's own; only the device may look behind them. Work is queued in order,
// and a failure may come out of a later call; sync waits and reports it. Used from one thread at a
// time.
#ifndef KILN_DEVICE_DEVICE_H
#define KILN_DEVICE_DEVICE_H

#include "base/pool.h"
#include "base/status.h"
#include "kiln/plugin.h"

#include <stdint.h>

struct kiln_dev;
struct kiln_dev_kernel; // a kernel made ready to be launched

// A kernel to make ready.
struct kiln_load {
    const char *plugin, *variant; // names, for messages
    const struct kiln_kernel *kernel;
    const struct kiln_launch *launch;
    const struct kiln_geometry *geometry;
    const char *source; // a file that replaces the kernel's own CUDA source, or NULL
};

// A device's own memory, in bytes.
struct kiln_dev_memory {
    uint64_t budget;     // what was free when it was opened
    uint64_t held, peak; // taken from the driver: now, at most
    uint64_t used;       // handed out of that
    uint64_t weights;    // the model file's copy, of what is used
};

struct kiln_dev_ops {
    void (*close)(struct kiln_dev *dev);
    enum kiln_status (*alloc)(
            struct kiln_dev *dev, uint64_t bytes, void **addr, struct kiln_err *err);
    void (*free)(struct kiln_dev *dev, void *addr); // NULL is fine
    // Bytes of a mapped model file, made reachable by kernels; nothing is copied where the device
    // can read the mapping itself. Undone by close.
    enum kiln_status (*weights)(struct kiln_dev *dev, const void *data, uint64_t bytes, void **addr,
            struct kiln_err *err);
    enum kiln_status (*upload)(
            struct kiln_dev *dev, void *to, const void *from, uint64_t bytes, struct kiln_err *err);
    enum kiln_status (*download)(struct kiln_dev *dev, void *to, const void *from, uint64_t bytes,
            struct kiln_err *err); // waits for the work queued before it
    enum kiln_status (*copy)(
            struct kiln_dev *dev, void *to, const void *from, uint64_t bytes, struct kiln_err *err);
    // Optional (NULL: all of the host's memory is alike): the host's memory that download reaches
    // at the speed of the link and that kernels reach at the same address; ended with host_free
    // before the device is closed.
    enum kiln_status (*host_alloc)(
            struct kiln_dev *dev, uint64_t bytes, void **data, struct kiln_err *err);
    void (*host_free)(struct kiln_dev *dev, void *data); // NULL is fine
    enum kiln_status (*zero)(
            struct kiln_dev *dev, void *addr, uint64_t bytes, struct kiln_err *err);
    // Makes kernels of planned launches ready, all at once, so that what has to be compiled is
    // compiled side by side. ready[i] is the caller's and ended with unload; on failure none is.
    enum kiln_status (*load)(struct kiln_dev *dev, const struct kiln_load *loads, size_t count,
            struct kiln_dev_kernel **ready, struct kiln_err *err);
    void (*unload)(struct kiln_dev *dev, struct kiln_dev_kernel *ready); // NULL is fine
    // args[i]: the address that launch->args[i] names, or its bytes.
    enum kiln_status (*launch)(struct kiln_dev *dev, struct kiln_dev_kernel *ready,
            const struct kiln_launch *launch, void *const *args, struct kiln_err *err);
    enum kiln_status (*sync)(struct kiln_dev *dev, struct kiln_err *err);
    // Optional (NULL): records what is queued between begin and end instead of running it, so that
    // replay queues it again at the cost of one call. *graph is the caller's.
    enum kiln_status (*record_begin)(struct kiln_dev *dev, struct kiln_err *err);
    enum kiln_status (*record_end)(struct kiln_dev *dev, void **graph, struct kiln_err *err);
    enum kiln_status (*replay)(struct kiln_dev *dev, void *graph, struct kiln_err *err);
    void (*forget)(struct kiln_dev *dev, void *graph); // NULL is fine
    // Optional (NULL): the same device for another thread: its memory, weights and kernels, with a
    // queue of its own. What was queued there is waited for by `sync` there. Opened, used and
    // closed by that thread, before the device is closed. Kernels and memory made here outlive it.
    enum kiln_status (*side)(struct kiln_dev *dev, struct kiln_dev **side, struct kiln_err *err);
    // Optional (NULL): puts a mark behind what is queued. *mark NULL: makes one, the caller's until
    // unmark; else moves it there. `elapsed` waits for `to` and gives the device's time between.
    enum kiln_status (*mark)(struct kiln_dev *dev, void **mark, struct kiln_err *err);
    enum kiln_status (*elapsed)(
            struct kiln_dev *dev, void *from, void *to, double *seconds, struct kiln_err *err);
    // Optional (NULL): a mark that keeps no time, and the host's wait for what was queued before
    // it, not for what is queued behind it. Ended with unmark.
    enum kiln_status (*fence)(struct kiln_dev *dev, void **mark, struct kiln_err *err);
    enum kiln_status (*wait)(struct kiln_dev *dev, void *mark, struct kiln_err *err);
    void (*unmark)(struct kiln_dev *dev, void *mark); // NULL is fine
    // Optional (NULL: it has none of its own). The device and its sides have it in common.
    void (*memory)(struct kiln_dev *dev, struct kiln_dev_memory *memory);
};

// Kernels that `load` was asked for and that differ: compiled now, taken from the disk, loaded
// already.
struct kiln_dev_counts {
    uint64_t compiled, cached, shared;
};

struct kiln_dev {
    const struct kiln_dev_ops *ops;
    struct kiln_device desc;
    char id[32];            // "cpu", "cuda:0", "sim:sm_80"
    char bus_id[32];        // PCI address of a card, "0000:1b:00.0"; empty where there is none
    char driver[32];        // "CUDA 13.0": what the driver offers; empty where there is none
    struct kiln_pool *pool; // threads for work that stays on the host; owned; NULL on a side
    struct kiln_dev_counts counts;
};

// Settings that devices read; zeroed: defaults.
struct kiln_dev_settings {
    uint32_t threads;      // of the host's pool, 0: all cores
    const char *cache_dir; // of compiled kernels, NULL: kiln_cache_dir()
    int64_t cache_max_size;
    // Of sim: what to look for (1 << enum kiln_sim_check), whether to count by source line, warp
    // instructions that a block may run (0: its default), what ends a launch (nonzero), and who is
    // told how far a launch is.
    uint32_t sim_checks;
    int sim_counters;
    uint64_t sim_max_instructions;
    int (*stop)(void);
    void (*progress)(void *arg, const char *kernel, uint64_t blocks_done, uint64_t blocks);
    void *progress_arg;
};

// Opens a device by what the command line calls it: "auto" (cuda where there is a driver and a
// device, else cpu), "cpu", "cuda[:N]", "sim[:sm_XX]". An unknown name is KILN_STATUS_USAGE and
// lists what there is; a device that is not there is KILN_STATUS_DEVICE and says what is missing.
KILN_MUST_CHECK enum kiln_status kiln_dev_open(struct kiln_dev **dev, const char *name,
        const struct kiln_dev_settings *settings, struct kiln_err *err);
void kiln_dev_close(struct kiln_dev *dev); // NULL is fine

// Memory of the host for what is downloaded again and again, logits above all: host_alloc's where
// the device has it. Ended with kiln_dev_host_free before the device is closed.
KILN_MUST_CHECK enum kiln_status kiln_dev_host_alloc(
        struct kiln_dev *dev, uint64_t bytes, void **data, struct kiln_err *err);
void kiln_dev_host_free(struct kiln_dev *dev, void *data); // NULL is fine

// The kinds, behind kiln_dev_open.
KILN_MUST_CHECK enum kiln_status kiln_host_open(
        struct kiln_dev **dev, const struct kiln_dev_settings *settings, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_cuda_open(struct kiln_dev **dev, int32_t number,
        const struct kiln_dev_settings *settings, struct kiln_err *err);

// CUDA devices the driver shows. Fails as kiln_cuda_open does where there is no driver or no
// device.
KILN_MUST_CHECK enum kiln_status kiln_cuda_count(int32_t *count, struct kiln_err *err);
// What one is, without opening it for work. `names` keeps the strings the description points to.
struct kiln_cuda_names {
    char name[128], target[32];
};
KILN_MUST_CHECK enum kiln_status kiln_cuda_describe(int32_t number, struct kiln_device *desc,
        struct kiln_cuda_names *names, struct kiln_err *err);

// What this machine's processor can do: enum kiln_host_feature, or-ed.
uint32_t kiln_host_features(void);
// Its name as the system tells it, into name (cut to size).
void kiln_host_cpu_name(char *name, size_t size);

#endif
