// gpu_harness: plans one op with a CUDA plugin and runs the launches, without the rest of kiln: for
// programs that check and time a plugin's kernels on a machine with a GPU and little else. libcuda
// and NVRTC are opened at run time. Whatever goes wrong ends the program with a message. Not a
// device of kiln: no cache, no pool, one stream.
#ifndef KILN_BENCH_GPU_HARNESS_H
#define KILN_BENCH_GPU_HARNESS_H

#include "kiln/plugin.h"

#include <stddef.h>
#include <stdint.h>

enum {
    GPU_OPERANDS = 32,
    GPU_LAUNCHES = 4,
    GPU_VALUES = 16
};

__attribute__((format(printf, 1, 2), noreturn)) void gpu_die(const char *fmt, ...);

// Zeroed host memory, ended with free.
void *gpu_get(size_t bytes);
// The same numbers in every run: any bits; about normal, deviation 1.
uint32_t gpu_random_bits(void);
float gpu_random_normal(void);

// Opens device 0 and NVRTC; the description that plans get.
const struct kiln_device *gpu_open(void);
// Prints resources of each kernel that is compiled from here on.
void gpu_print_resources(int on);

// Device memory; each piece has `guard` bytes behind it that gpu_guard_broken looks at.
uint64_t gpu_alloc(size_t bytes);
void gpu_free(uint64_t address);
void gpu_upload(uint64_t to, const void *from, size_t bytes);
void gpu_download(void *to, uint64_t from, size_t bytes);
void gpu_fill(uint64_t to, int byte, size_t bytes);
// Uploads to new memory.
uint64_t gpu_copy(const void *from, size_t bytes);

// A plugin's entry; the library stays open.
const struct kiln_plugin *gpu_load_plugin(const char *path);
const struct kiln_variant *gpu_find_variant(const struct kiln_plugin *plugin, const char *name);

// One op under construction.
struct gpu_op {
    struct kiln_op op;
    struct kiln_tensor tensors[GPU_OPERANDS];
    const struct kiln_tensor *list[GPU_OPERANDS];
    uint64_t address[GPU_OPERANDS]; // by enum kiln_operand
    uint32_t phase;
};
void gpu_op_begin(struct gpu_op *op, uint32_t kind, uint32_t phase);
// elems and bytes: of the type's blocks. stride: bytes from row to row, 0 for dense ones.
void gpu_op_add(struct gpu_op *op, uint32_t operand, uint32_t dtype, int64_t columns, int64_t rows,
        int64_t elems, int64_t bytes, int64_t stride, uint64_t address);
void gpu_op_f32(
        struct gpu_op *op, uint32_t operand, int64_t columns, int64_t rows, uint64_t address);
void gpu_op_i32(struct gpu_op *op, uint32_t operand, int64_t n, uint64_t address);
// Makes the rows of everything but weights and caches a bound, *n_tokens of them in use. Call it
// last.
void gpu_op_bound(struct gpu_op *op, uint64_t n_tokens);

// Geometry: the defaults for the device and the op's head size, but for these.
struct gpu_value {
    const char *name;
    int64_t value;
};

struct gpu_planned;
// NULL when the variant declined; *text then says why. Compiles, allocates, runs preparations.
struct gpu_planned *gpu_plan_op(const struct kiln_variant *variant, struct gpu_op *op,
        const struct gpu_value *values, uint32_t n_values, const char **text);
void gpu_planned_free(struct gpu_planned *planned);
// Puts the launches on the stream.
void gpu_launch(const struct gpu_planned *planned);
void gpu_sync(void);
// Of all launches of a call.
double gpu_planned_flops(const struct gpu_planned *planned);
double gpu_planned_bytes(const struct gpu_planned *planned);

// Seconds a call: plans[0 .. n - 1] in turn, `calls` in all, as one graph; the median of 9 runs.
// *best: of the fastest run.
double gpu_time(struct gpu_planned *const *plans, uint32_t n, uint32_t calls, double *best);

#endif
