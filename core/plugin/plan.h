// plan: asks a variant for its plan of a problem and keeps a deep, checked copy of the answer.
//
// Not here: compiling what the plan names, addresses, launching. The copy lives on after plan() and
// does not point into the plugin's stack or heap.
#ifndef KILN_PLUGIN_PLAN_H
#define KILN_PLUGIN_PLAN_H

#include "base/buf.h"
#include "base/status.h"
#include "kiln/plugin.h"
#include "plugin/arena.h"

#include <stdint.h>

struct kiln_planned_workspace {
    uint64_t bytes;
    uint32_t flags; // enum kiln_workspace_flag
};

// The record as the plugin gave it, in this kiln's layout, and the kernel that its name stands for.
struct kiln_planned_launch {
    struct kiln_launch record;
    const struct kiln_kernel *kernel;
};

struct kiln_planned_preparation {
    struct kiln_preparation record;       // its `launches` is NULL: they are the ones below
    struct kiln_planned_launch *launches; // record.n_launches of them
};

// A variant's answer. Everything it points to belongs to it (kiln_planned_destroy), but for the
// variant, its kernels and sources, which are the plugin's.
struct kiln_planned {
    const struct kiln_variant *variant;
    struct kiln_planned_launch *launches;
    uint32_t n_launches;
    struct kiln_planned_workspace *workspaces;
    uint32_t n_workspaces;
    struct kiln_planned_preparation *preparations;
    uint32_t n_preparations;
    struct kiln_arena arena; // holds all of the above
};

enum kiln_plan_outcome {
    KILN_PLAN_DONE,
    KILN_PLAN_DECLINED
};

// Calls variant->plan and checks the answer: kernels exist and fit the device kind, operands named
// exist in the problem or are optional ones of their op, workspace and preparation numbers are
// real, grids are not empty and within the device's limits (a limit of 0 is unknown and not
// checked), bytes are at most 4096, tensor maps are well formed, at least one launch. On DECLINED,
// err->text holds the reason and the status is OK (so err must not be NULL). A failed or ill-formed
// plan is KILN_STATUS_FILE, a well-formed one that exceeds a limit of the device is
// KILN_STATUS_DEVICE; both name plugin, variant, slot, geometry and cause, the latter also the
// geometry keys to change. *planned is the caller's when DONE, NULL otherwise.
KILN_MUST_CHECK enum kiln_status kiln_plan_make(const struct kiln_plugin *plugin,
        const struct kiln_variant *variant, void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        enum kiln_plan_outcome *outcome, struct kiln_planned **planned, struct kiln_err *err);
void kiln_planned_destroy(struct kiln_planned *planned); // NULL is fine

// The plan as text, one line a launch, workspace, preparation and argument: for inspect, for
// messages, and to see that two plans are the same: whatever is in a plan is in its text, bytes in
// hexadecimal.
void kiln_planned_print(const struct kiln_planned *planned, struct kiln_buf *text);

#endif
