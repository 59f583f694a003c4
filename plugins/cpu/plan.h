// plan: the parts that the plans of all slot families share: checking a problem's operands and
// writing a launch. A problem that is malformed (an operand missing, shapes that do not meet)
// fails; one that is merely not for this plugin (a type or format it does not read) is declined.
// Both say which operand, what it is and what is allowed.
#ifndef CPU_PLAN_H
#define CPU_PLAN_H

#include "kiln/plugin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpu_request {
    const struct kiln_problem *problem;
    const struct kiln_op *op; // the problem's only op
    const struct kiln_device *device;
    struct kiln_plan *plan;
    bool avx2; // what the device has and this build carries
};

// Give what plan() must return.
int32_t cpu_decline(const struct cpu_request *request, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
int32_t cpu_fail(const struct cpu_request *request, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

// An operand of the op; NULL when absent.
const struct kiln_tensor *cpu_operand(const struct kiln_op *op, uint32_t operand);

enum cpu_need {
    CPU_NEED_F32 = 1,
    CPU_NEED_F16 = 2,
    CPU_NEED_I32 = 4,
    CPU_NEED_WEIGHT = 8,  // any type of dequant.h
    CPU_NEED_BLOCKS = 16, // of these, the block types
    CPU_NEED_Q8 = 32,     // the format of q8.h
};
// Checks an operand: it is there, of one of the types or-ed in `need`, has these dimensions (-1:
// any), lies densely within a row, and its rows, if bounded, are bounded by N_TOKENS (caches:
// KV_LEN). KILN_RESULT_OK with *tensor set, or what plan() must return. With CPU_NEED_I32, one
// value a row: columns is 1, and the dimensions may also be written as `rows` columns of one row.
int32_t cpu_need(const struct cpu_request *request, uint32_t operand, uint32_t need,
        int64_t columns, int64_t rows, const struct kiln_tensor **tensor);
// The same for an operand that may be absent: then *tensor is NULL.
int32_t cpu_may(const struct cpu_request *request, uint32_t operand, uint32_t need, int64_t columns,
        int64_t rows, const struct kiln_tensor **tensor);

enum {
    CPU_MAX_ARGS = 16
};
struct cpu_launch { // args[0] is kept for the parameter struct
    struct kiln_launch record;
    struct kiln_arg args[CPU_MAX_ARGS];
    const struct kiln_arg *list[CPU_MAX_ARGS];
};
void cpu_launch_begin(struct cpu_launch *launch, const char *kernel, const char *sum_order);
// Appends an operand of op 0 where the op has it: its index in args, or 0.
uint8_t cpu_launch_operand(struct cpu_launch *launch, const struct kiln_op *op, uint32_t operand);
// Hands the launch to kiln with its parameters. Gives what plan() must return.
int32_t cpu_launch_submit(struct cpu_launch *launch, const struct cpu_request *request,
        const void *params, size_t size);

// ceil(count / size), as a grid dimension.
uint32_t cpu_blocks(int64_t count, int64_t size);
double cpu_tensor_bytes(
        const struct kiln_tensor *tensor); // of its elements, gaps not counted; NULL: 0

// The families.
int32_t cpu_plan_matmul(const struct cpu_request *request);
int32_t cpu_plan_matmul_q8(const struct cpu_request *request);
int32_t cpu_plan_matmul_i8(const struct cpu_request *request);
int32_t cpu_plan_quantize(const struct cpu_request *request);
int32_t cpu_plan_attention(const struct cpu_request *request);
int32_t cpu_plan_rope_kv(const struct cpu_request *request);
int32_t cpu_plan_embed(const struct cpu_request *request);
int32_t cpu_plan_norm(const struct cpu_request *request);
int32_t cpu_plan_activation(const struct cpu_request *request);
int32_t cpu_plan_argmax(const struct cpu_request *request);

#endif
