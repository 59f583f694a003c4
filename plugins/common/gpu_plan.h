// gpu_plan: the parts that the plans of the CUDA plugins matmul and elementwise share: checking a
// problem's operands and writing a launch. Linked into each plugin; needs nothing but
// kiln/plugin.h.
//
// A problem that contradicts itself (an operand missing, shapes that do not meet) fails; one that
// is merely not for a plugin (a type, layout or device it does not handle) is declined. Both say
// which operand, what it is and what is allowed.
#ifndef COMMON_GPU_PLAN_H
#define COMMON_GPU_PLAN_H

#include "kiln/plugin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPU_COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

// A row of a parameter's defaults, for any head size.
#define GPU_DEFAULT(from, to, number) \
    &(const struct kiln_param_default) { \
        .struct_size = sizeof(struct kiln_param_default), .target_min = (from), \
        .target_max = (to), .value = (number) \
    }

// One format list of an operand of the first op.
#define GPU_IO(which, list) \
    { \
        .struct_size = sizeof(struct kiln_io), .operand = KILN_OPERAND_##which, \
        .n_formats = GPU_COUNT(list), .formats = list \
    }

struct gpu_request {
    const struct kiln_problem *problem;
    const struct kiln_op *op; // the problem's only op, or the one that is looked at
    const struct kiln_geometry *geometry;
    const struct kiln_device *device;
    struct kiln_plan *plan;
};

// Fills in *request. KILN_RESULT_OK, or what plan() must return: for another device than a CUDA one
// of compute capability 7.5 or later, or another problem than one op of this kind.
int32_t gpu_begin(struct gpu_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, uint32_t op_kind);
// The same for adjacent ops of these kinds; op is the first.
int32_t gpu_begin_ops(struct gpu_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, const uint32_t *kinds, uint32_t n_kinds);

// Give what plan() must return.
int32_t gpu_decline(const struct gpu_request *request, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
int32_t gpu_fail(const struct gpu_request *request, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

// A value of the geometry; 0 when it has no such name.
int32_t gpu_value(const struct gpu_request *request, const char *name);

// The type of a weight as the CUDA sources name it; NULL for one that they do not handle.
struct gpu_type {
    uint32_t dtype;   // enum kiln_dtype
    const char *name; // "q4_K"
    int32_t elems, bytes;
};
const struct gpu_type *gpu_type_find(uint32_t dtype);

enum gpu_need { // types that an operand may have, or-ed
    GPU_NEED_F32 = 1,
    GPU_NEED_F16 = 2,
    GPU_NEED_I32 = 4,
    GPU_NEED_WEIGHT = 8, // any of gpu_type_find
    GPU_NEED_Q8 = 16,    // blocks of GPU_Q8_FORMAT
    GPU_NEED_ROWS = 32,  // GPU_ROWS_FORMAT
};

// The edge format of int8 activations: kernels_src/common/q8.cuh. The plugin matmul declares it.
#define GPU_Q8_FORMAT "q8_32w"
enum {
    GPU_Q8_COLUMNS = 32,
    GPU_Q8_BYTES = 48
};

// The edge format of activations on f16 tensor cores, a row of K: f16[K], then one f32, the factor
// that makes the row's values of them: a power of two (kernels_src/matmul/mm_scale.cuh). The rest
// of a row is room, so that rows of a multiple of 256 columns begin at lines of 128 bytes, others
// at half of one. The plugin matmul declares it.
#define GPU_ROWS_FORMAT "f16_rows"
enum {
    GPU_ROWS_COLUMNS = 128,
    GPU_ROWS_BYTES = 320
};

// Checks an operand: it is there, of one of the types in `need`, has these dimensions (-1: any),
// lies densely within a row, and its rows, if bounded, are bounded by N_TOKENS (caches: KV_LEN).
// KILN_RESULT_OK with *tensor set, or what plan() must return. With GPU_NEED_I32, one value a row:
// columns is 1, and the dimensions may also be written as `rows` columns of one row.
int32_t gpu_need(const struct gpu_request *request, uint32_t operand, uint32_t need,
        int64_t columns, int64_t rows, const struct kiln_tensor **tensor);
// The same for an operand that may be absent: then *tensor is NULL.
int32_t gpu_may(const struct gpu_request *request, uint32_t operand, uint32_t need, int64_t columns,
        int64_t rows, const struct kiln_tensor **tensor);

// The largest power of two, up to 16, that divides every row's address and size. NULL: 16.
uint32_t gpu_alignment(const struct kiln_tensor *tensor);
// Bytes of its elements, gaps not counted; NULL: 0.
double gpu_bytes(const struct kiln_tensor *tensor);

// ceil(count / size).
int64_t gpu_blocks(int64_t count, int64_t size);

enum {
    GPU_MAX_ARGS = 16,
    GPU_MAX_DEFINES = 12,
    GPU_DEFINE_MAX = 48,
    GPU_MAX_SITES = 4
};
// One launch under construction. Points into itself: do not copy.
struct gpu_launch {
    struct kiln_launch record;
    struct kiln_arg args[GPU_MAX_ARGS];
    const struct kiln_arg *arg_list[GPU_MAX_ARGS];
    char defines[GPU_MAX_DEFINES][GPU_DEFINE_MAX];
    const char *define_list[GPU_MAX_DEFINES];
    struct kiln_smem_site sites[GPU_MAX_SITES];
    const struct kiln_smem_site *site_list[GPU_MAX_SITES];
    char order[64];
};
void gpu_launch_begin(struct gpu_launch *launch, const char *kernel, uint32_t threads);
void gpu_launch_define(struct gpu_launch *launch, const char *name, int64_t value);
void gpu_launch_define_word(struct gpu_launch *launch, const char *name, const char *word);
// W_TYPE and W_ALIGN of common/dequant.cuh.
void gpu_launch_define_weight(struct gpu_launch *launch, const struct kiln_tensor *weight);
void gpu_launch_site(struct gpu_launch *launch, uint32_t kind, const char *name, uint32_t stride,
        uint32_t access, uint32_t swizzle);
// Arguments, in the order of the kernel's parameters. An operand that the op lacks is passed as
// NULL.
void gpu_launch_operand(
        struct gpu_launch *launch, const struct gpu_request *request, uint32_t operand);
// The same of op `op` of the problem.
void gpu_launch_operand_of(struct gpu_launch *launch, const struct gpu_request *request,
        uint32_t op, uint32_t operand);
// The same, `offset` bytes behind its beginning; it must be there.
void gpu_launch_operand_at(
        struct gpu_launch *launch, uint32_t op, uint32_t operand, uint64_t offset);
void gpu_launch_workspace(struct gpu_launch *launch, uint32_t index, uint64_t offset);
void gpu_launch_prepared(struct gpu_launch *launch, uint32_t index);
void gpu_launch_null(struct gpu_launch *launch);
// `bytes` must live until the launch is submitted.
void gpu_launch_bytes(struct gpu_launch *launch, const void *bytes, size_t size);
// op: whose operand it is.
void gpu_launch_map(struct gpu_launch *launch, uint32_t op, uint32_t operand, uint32_t index,
        uint64_t offset, const struct kiln_tensor_map *map);
// Gives what plan() must return.
int32_t gpu_launch_submit(struct gpu_launch *launch, const struct gpu_request *request);

#endif
