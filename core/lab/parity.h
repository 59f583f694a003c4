// parity: variants x shapes x types against the float64 oracle (op_case.h), on any kind of device.
//
// Each trial is one call of one variant: its outputs within their bounds, rows that are not the
// call's untouched, guards behind operands whole, the same bits when run again (not on sim, which
// cannot do otherwise), no fault that sim knows of. Trials run side by side, each thread with a
// device of its own. Not here: printing.
#ifndef KILN_LAB_PARITY_H
#define KILN_LAB_PARITY_H

#include "config/config.h"
#include "device/device.h"
#include "lab/op_case.h"
#include "plugin/arena.h"
#include "plugin/registry.h"

#include <stdint.h>

enum kiln_trial_result {
    KILN_TRIAL_PASSED,
    KILN_TRIAL_FAILED,
    KILN_TRIAL_SKIPPED, // the variant declined: `text` says why
    KILN_TRIAL_REFUSED, // of a corner: its plan exceeds a limit of the device
    KILN_TRIAL_NOT_RUN,
};

struct kiln_trial {
    char slot[64];
    const char *plugin, *variant;  // names
    struct kiln_geometry geometry; // as bound; names NULL: the defaults, filled in when it runs
    const char *source;
    int32_t corner;        // number of the geometry (plugin/corners.h), -1: not one of them
    uint32_t shape_number; // of a corner's shapes
    struct kiln_shape shape;
    enum kiln_case_fill fill;
    // What came out of it.
    enum kiln_trial_result result;
    char name[192];                 // of the case: "m=65 n=257 k=512 q4_K"
    struct kiln_op_verdict verdict; // worst < 0: there is none
    char text[1024];                // why it failed or was skipped
};

struct kiln_parity {
    struct kiln_trial *trials; // by slot, then variant, then shape
    size_t count, cap;
    char device[32];         // "sim:sm_80"
    struct kiln_arena arena; // geometries of corners
};

enum kiln_parity_corners {
    KILN_CORNERS_NONE,     // one geometry a variant
    KILN_CORNERS_EACH,     // every corner with two small shapes, other types than the first in turn
    KILN_CORNERS_ALL_TYPES // every corner with every weight type
};

struct kiln_parity_params {
    const char *device;                       // as kiln_dev_open takes it
    const struct kiln_dev_settings *settings; // threads: trials at once; sim_checks: faults
    struct kiln_registry *registry;
    struct kiln_config *config; // what is bound, where `all` is 0
    // A registry for a thread of its own: instances of a plugin are called by one at a time.
    enum kiln_status (*open_registry)(
            void *arg, struct kiln_registry **registry, struct kiln_err *err);
    void *arg;
    const char *const *slots; // patterns ("matmul.*.prefill"); n_slots 0: all
    size_t n_slots;
    const char *variant; // this one only, or NULL
    int all;  // every variant that runs on the device, default geometry; 0: what is bound
    int full; // also shapes as long as a prompt
    enum kiln_parity_corners corners;                         // of each variant; with `all`
    void (*begin)(void *arg, const struct kiln_trial *trial); // by any thread; or NULL
    void (*progress)(void *arg, int64_t done, int64_t total); // or NULL
    void *progress_arg;
};

// Lists the trials and runs them. A trial that fails is a result, not an error; errors are those of
// the device, of memory and of the oracle itself. *parity starts zeroed and the caller ends it with
// kiln_parity_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_parity_run(
        struct kiln_parity *parity, const struct kiln_parity_params *params, struct kiln_err *err);
void kiln_parity_finish(struct kiln_parity *parity);

// ---- parity_shapes.c: which shapes a slot is tried with ----------------------------------------
struct kiln_parity_shape {
    struct kiln_shape shape;
    enum kiln_case_fill fill;
};
// The i-th shape of a slot; 0 past the end. columns: what `k` must be a multiple of. "rope_kv
// attention": of one row in both.
int kiln_parity_shape(
        const char *slot, int full, uint32_t i, int64_t columns, struct kiln_parity_shape *shape);

#endif
