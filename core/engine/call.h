// call: one planned call made runnable: the addresses that its arguments name, its kernels, its
// launches queued one behind the other.
//
// What a schedule does for each of its steps and solo for its only one. Whose memory operands and
// workspaces are, and which weights are prepared, is the caller's.
#ifndef KILN_ENGINE_CALL_H
#define KILN_ENGINE_CALL_H

#include "base/status.h"
#include "device/device.h"
#include "engine/prepare.h"
#include "plugin/plan.h"

// Where what a plan names lies.
struct kiln_call_places {
    void *const *operands; // by op * KILN_PREPARE_OPERANDS + enum kiln_operand; NULL: absent
    uint32_t n_ops;
    void *const *workspaces;                     // by index
    const struct kiln_prepared *const *prepared; // by index
    const struct kiln_prepared *self;            // KILN_PREP_SELF, NULL: there is none
};

struct kiln_call {
    const struct kiln_planned *planned;
    struct kiln_dev_kernel **ready; // one a launch, filled in by who loads them
    void **args;                    // of all launches, one behind the other
    size_t n_args;
    void **workspaces; // by index
};

// Fills in `args` and `workspaces`. The caller ends *call with kiln_call_finish, also after a
// failure. `planned` outlives it.
KILN_MUST_CHECK enum kiln_status kiln_call_init(struct kiln_call *call,
        const struct kiln_planned *planned, const struct kiln_call_places *places,
        struct kiln_err *err);
void kiln_call_finish(struct kiln_call *call, struct kiln_dev *dev); // zeroed is fine

// Queues zeros for the workspaces that launches leave zero: once, before the first call.
KILN_MUST_CHECK enum kiln_status kiln_call_clear_kept(
        const struct kiln_call *call, struct kiln_dev *dev, struct kiln_err *err);
// Queues zeros for those that must be zero before each call.
KILN_MUST_CHECK enum kiln_status kiln_call_clear(
        const struct kiln_call *call, struct kiln_dev *dev, struct kiln_err *err);
// Queues the call: zeros, then every launch.
KILN_MUST_CHECK enum kiln_status kiln_call_queue(
        const struct kiln_call *call, struct kiln_dev *dev, struct kiln_err *err);

#endif
