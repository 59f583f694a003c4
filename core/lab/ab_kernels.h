// ab_kernels: what the kernels take in the slots in which base and change run something else, taken
// in the same window as their walls: some runs of each side between the rounds have a mark of the
// device's clock between all steps. They are counted apart from the rounds.
//
// A kernel and the wall may disagree: what a slot's time says of the wall (its share of it) stands
// beside what the wall did.
#ifndef KILN_LAB_AB_KERNELS_H
#define KILN_LAB_AB_KERNELS_H

#include "engine/workload.h"
#include "lab/twin.h"

enum {
    KILN_AB_TWO = 2 // base and change
};

struct kiln_ab_slot {
    char *slot;                  // "attention.prefill"
    char *names[KILN_AB_TWO];    // "attention/fap2 FA_TQ=64 FA_TKV=32"; "none" where it has no step
    double seconds[KILN_AB_TWO]; // a run, gaps before the next step included, marks not; medians
};

// Of a time in the base's wall and what became of it.
struct kiln_ab_share {
    double share;     // percent of the base's wall
    double pct;       // how much faster the change's kernels are; 0 where a side has none
    double predicted; // how much faster that makes the wall, percent
};

struct kiln_ab_kernels {
    struct kiln_ab_slot *slots; // those that differ, longest in the base first
    size_t n;
    int64_t runs; // watched, of each side; 0: no slot differs, or none was asked for
    double wall;  // seconds of the base's; its slices' sum where that is more
};

struct kiln_ab_share kiln_ab_share_of(
        const struct kiln_ab_kernels *kernels, const double seconds[KILN_AB_TWO]);
// Of all slots that differ.
void kiln_ab_kernels_sum(const struct kiln_ab_kernels *kernels, double seconds[KILN_AB_TWO]);
void kiln_ab_kernels_finish(struct kiln_ab_kernels *kernels); // a zeroed one is fine

// ---- For kiln_ab_run ----------------------------------------------------------------------------

struct kiln_ab_tracer;

// A watched, uncounted run of each side, which tells the slots that differ; up to `runs` of each
// may follow. The twin and *work outlive the tracer. The caller ends *tracer with
// kiln_ab_tracer_close, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_ab_tracer_open(struct kiln_ab_tracer **tracer,
        struct kiln_twin *twin, struct kiln_workload_run *work, size_t runs, struct kiln_err *err);
// A watched run of each side, the one first that was second before; none where no slot differs.
KILN_MUST_CHECK enum kiln_status kiln_ab_tracer_run(
        struct kiln_ab_tracer *tracer, int64_t rest_ms, struct kiln_err *err);
// wall: seconds of the base's. The caller ends *kernels, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_ab_tracer_conclude(struct kiln_ab_tracer *tracer, double wall,
        struct kiln_ab_kernels *kernels, struct kiln_err *err);
void kiln_ab_tracer_close(struct kiln_ab_tracer *tracer); // NULL is fine

#endif
