// kernel_set: what `kiln jit` compiles and `kiln audit` judges: the kernels of a forward pass, of a
// model or of the 7B sample, as the configuration binds them, on one or more devices.
#ifndef KILN_ENGINE_KERNEL_SET_H
#define KILN_ENGINE_KERNEL_SET_H

#include "base/status.h"
#include "device/catalog.h"
#include "engine/kernel_list.h"
#include "engine/sample_graph.h"
#include "model/model.h"

#include <stddef.h>
#include <stdint.h>

enum {
    KILN_KERNEL_SET_TARGETS = 32
};

struct kiln_kernel_set_params {
    struct kiln_registry *registry; // both outlive the set
    struct kiln_config *config;
    const char *model;   // a GGUF file; NULL: kiln_sample_7b
    const char *device;  // "cpu", "cuda[:N]", "sim[:sm_XX]": plan for it alone; NULL, "auto": for
                         // the targets
    const char *targets; // "sm_90a,gb10": names that kiln_device_find takes
    const char *const *slots; // patterns; n_slots 0: all
    size_t n_slots;
    int64_t tokens; // of a prefill
    int all;        // every variant, weight type and head size instead of what is bound
};

struct kiln_kernel_set {
    struct kiln_kernel_list list;
    struct kiln_device_entry devices[KILN_KERNEL_SET_TARGETS];
    struct kiln_survey surveys[KILN_KERNEL_SET_TARGETS]; // by device
    size_t n_targets;
    struct kiln_model *model; // NULL: the sample
    struct kiln_sample_graph sample;
};

// Plans; compiling the list is the caller's next step. USAGE: an unknown target, device or slot.
// CONFIG: no op of the pass is in a slot that was asked for. *set starts zeroed; the caller ends it
// with kiln_kernel_set_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_kernel_set_make(struct kiln_kernel_set *set,
        const struct kiln_kernel_set_params *params, struct kiln_err *err);
// CONFIG when an op of the pass is bound to nothing that is there: not a target's fault, the
// configuration leaves a hole.
KILN_MUST_CHECK enum kiln_status kiln_kernel_set_check_bound(
        const struct kiln_kernel_set *set, struct kiln_err *err);
// DEVICE when what is bound to an op of the pass exceeds the limits of every one of the devices:
// its geometry can run nowhere. That some of them cannot run it is no failure.
KILN_MUST_CHECK enum kiln_status kiln_kernel_set_check_fits(
        const struct kiln_kernel_set *set, struct kiln_err *err);
void kiln_kernel_set_finish(struct kiln_kernel_set *set);

#endif
