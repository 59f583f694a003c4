// gpu: what the programs in bench/ that time a plugin's kernels on a real device share: CUDA and
// NVRTC by dlopen, a plan caught as plugin->plan() gives it, kernels compiled and kept in a folder.
// Not part of kiln: no cache to trust, no scheduling; every failure ends the program with a
// message.
#ifndef KILN_BENCH_GPU_H
#define KILN_BENCH_GPU_H

#include "kiln/plugin.h"

#include <stddef.h>
#include <stdint.h>

enum {
    GPU_MAX_LAUNCHES = 8,
    GPU_MAX_ARGS = 24,
    GPU_MAX_WORKSPACES = 8,
    GPU_MAX_PARAMS = 32,
    GPU_TEXT_MAX = 512
};

// Prints the message and ends with status 4.
_Noreturn void gpu_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// ---- Plans --------------------------------------------------------------------------------------
struct gpu_launch {
    struct kiln_launch record; // its pointers lead nowhere once plan() is done: use what follows
    char kernel[64], order[96];
    char defines[GPU_TEXT_MAX]; // "-DNAME=VALUE" with blanks between, geometry included
    struct kiln_arg args[GPU_MAX_ARGS];
    unsigned char bytes[GPU_MAX_ARGS][512]; // of KILN_ARG_BYTES
};

struct gpu_plan {
    struct kiln_plan sink;
    char text[GPU_TEXT_MAX]; // why it was declined
    char geometry[GPU_TEXT_MAX];
    uint64_t workspaces[GPU_MAX_WORKSPACES];
    uint32_t workspace_flags[GPU_MAX_WORKSPACES]; // enum kiln_workspace_flag
    uint32_t n_workspaces, n_launches;
    struct gpu_launch launches[GPU_MAX_LAUNCHES];
};

struct kiln_variant;
// Opens a plugin's .so.
const struct kiln_plugin *gpu_load_plugin(const char *path);
const struct kiln_variant *gpu_find_variant(const struct kiln_plugin *plugin, const char *name);
// Plans with the schema's defaults for head_size and the device, changed by settings: "NAME=VALUE
// NAME=VALUE". Gives the variant's result; a FAILED one ends the program.
int32_t gpu_plan(struct gpu_plan *plan, const struct kiln_variant *variant,
        const struct kiln_problem *problem, const struct kiln_device *device, int32_t head_size,
        const char *settings);

// ---- The device -------------------------------------------------------------------------------
typedef unsigned long long gpu_address;
struct gpu_function; // a compiled kernel

// Starts CUDA on device 0 and describes it. folder: where compiled kernels are kept, NULL: nowhere.
void gpu_open(struct kiln_device *device, const char *folder);
// Describes a device of this target that is not there ("sm_90a"): enough to plan and compile.
void gpu_describe_target(struct kiln_device *device, const char *target, const char *folder);
// Compiles into the folder without loading; nothing to do when it is there. BENCH_SHARD=3/16 in the
// environment: only the fourth of 16 parts of all kernels, so that 16 processes share the work.
void gpu_compile(const struct kiln_variant *variant, const struct gpu_launch *launch,
        const struct kiln_device *device);
// Compiles or takes from the folder, and loads. The same launch gives the same function.
const struct gpu_function *gpu_function(const struct kiln_variant *variant,
        const struct gpu_launch *launch, const struct kiln_device *device);

struct gpu_figures {
    int registers, local_bytes, blocks_sm;
    unsigned layout_bytes; // the source's own account of its dynamic shared memory; 0: none
};
struct gpu_figures gpu_figures(
        const struct gpu_function *function, const struct gpu_launch *launch);

gpu_address gpu_alloc(size_t bytes);
void gpu_free(gpu_address at);
void gpu_upload(gpu_address to, const void *from, size_t bytes);
void gpu_download(void *to, gpu_address from, size_t bytes);
void gpu_fill(gpu_address at, unsigned char byte, size_t bytes); // does not wait
void gpu_wait(void);

// Addresses of operands by enum kiln_operand, 0: absent; of workspaces by index.
struct gpu_addresses {
    gpu_address operands[32], workspaces[GPU_MAX_WORKSPACES];
};
// Queues the launches of a plan; functions[i] is that of launch i.
void gpu_run(const struct gpu_plan *plan, const struct gpu_function *const *functions,
        const struct gpu_addresses *addresses);
// Median microseconds of `count` runs, each timed by itself. flush: fill so many bytes before each,
// so that nothing of the operands is left in L2; 0: as the last run left it.
double gpu_time(const struct gpu_plan *plan, const struct gpu_function *const *functions,
        const struct gpu_addresses *addresses, int count, gpu_address scratch, size_t flush);

#endif
