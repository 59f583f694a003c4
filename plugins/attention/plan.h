// plan: the parts that the plans of all variants share: checking a problem, reading the geometry,
// writing a launch. A problem that contradicts itself fails; one that is merely not for this
// variant is declined. Both say which operand or value, what it is and what is allowed.
#ifndef KILN_ATTENTION_PLAN_H
#define KILN_ATTENTION_PLAN_H

#include "kiln/plugin.h"

#include "fa_args.cuh.h" // kernels_src/attention/fa_args.cuh, copied by the build

#include <stddef.h>
#include <stdint.h>

enum {
    ATTENTION_MAX_ARGS = 16,
    ATTENTION_MAX_DEFINES = 8,
    ATTENTION_DEFINE_MAX = 32
};

struct attention_request {
    const struct kiln_problem *problem;
    const struct kiln_op *op; // the problem's only op, or of several the last
    const struct kiln_geometry *geometry;
    const struct kiln_device *device;
    struct kiln_plan *plan;
    const struct kiln_tensor *q, *k, *v, *positions, *out;
    int64_t rows, keys;  // bounds: of S, of T
    struct fa_args args; // but splits
};

// What a variant takes beside f16 caches and heads of any size.
struct attention_needs {
    int f32_cache;      // also caches of f32
    int head_multiple;  // head size: a multiple of this ...
    int head_max;       // ... up to this
    uint64_t alignment; // bytes, of the first and of every row of Q, K_CACHE and V_CACHE
};

// Fills in *request, of a problem whose last op of n_ops is the attention. KILN_RESULT_OK, or what
// plan() must return.
int32_t attention_begin_ops(struct attention_request *request, const struct kiln_problem *problem,
        uint32_t n_ops, const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, const struct attention_needs *needs);
// The same of a problem of one op.
int32_t attention_begin(struct attention_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, const struct attention_needs *needs);

// Give what plan() must return.
int32_t attention_decline(const struct attention_request *request, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
int32_t attention_fail(const struct attention_request *request, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

// A value of the geometry; 0 when it has no such name.
int32_t attention_value(const struct attention_request *request, const char *name);

// One launch under construction. Points into itself: do not copy.
struct attention_launch {
    struct kiln_launch record;
    struct kiln_arg args[ATTENTION_MAX_ARGS];
    const struct kiln_arg *arg_list[ATTENTION_MAX_ARGS];
    char defines[ATTENTION_MAX_DEFINES][ATTENTION_DEFINE_MAX];
    const char *define_list[ATTENTION_MAX_DEFINES];
    char order[64];
};

// grid and block: x, y, z. Counts the useful work; the launch's own traffic is the caller's to
// correct.
void attention_launch_begin(struct attention_launch *launch,
        const struct attention_request *request, const char *kernel, const uint32_t grid[3],
        uint32_t threads);
void attention_launch_define(struct attention_launch *launch, const char *name, int32_t value);
// FA_HD, FA_WINDOW, FA_SOFTCAP, FA_Q_F16, FA_OUT_F16: what the kernels must know of the problem.
void attention_launch_define_problem(
        struct attention_launch *launch, const struct attention_request *request);
void attention_launch_operand(struct attention_launch *launch, uint32_t operand);
void attention_launch_operand_of(struct attention_launch *launch, uint32_t op, uint32_t operand);
// `bytes` must live until the launch is submitted.
void attention_launch_bytes(struct attention_launch *launch, const void *bytes, size_t size);
void attention_launch_workspace(struct attention_launch *launch, uint32_t index, uint64_t offset);
// Gives what plan() must return.
int32_t attention_launch_submit(
        struct attention_launch *launch, const struct attention_request *request);

// "mma_k16", or on sm_75 "mma_k8": which products the tensor cores add at once.
const char *attention_mma_order(const struct attention_request *request);

// numerator / denominator, rounded up.
int64_t attention_blocks(int64_t numerator, int64_t denominator);

#endif
