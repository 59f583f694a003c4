// wall: the whole prefill or decode, by slice: where the time goes, and what a faster kernel could
// bring at most.
//
// The wall is the host's clock. It is taken twice: as users run (recorded graphs, nothing watched)
// and with a mark of the device between all steps. Slices come from the second, less what a mark
// takes; what else the marks cost is a line of its own, so that all lines add up to the first.
//
// A card at its power limit runs a dense pass at a lower clock than a profiler runs its kernels at,
// one at a time: the clock stands beside, since what the SMs bound is slower by that much. Paced
// runs measure it: the same steps in the same order on the same data, but the card rests behind
// each, so that its mean power stays far below the limit and its clock is full. Small fills keep it
// awake and busy meanwhile, so that neither waking up nor the host's launch counts into a step.
// They are no part of the wall.
//
// Beside each slice stands the least that it could take by what its plans say and the device's data
// sheet (roofline.h): derived, never mixed with what was measured.
#ifndef KILN_LAB_WALL_H
#define KILN_LAB_WALL_H

#include "engine/session.h"
#include "engine/workload.h"
#include "lab/roofline.h"

struct kiln_wall_slice {
    char *slot;          // "attention.prefill"
    char *name;          // "attention/fap2 FA_TQ=64 FA_TKV=32"
    double seconds;      // a run, the device's clock, gaps before the next step included, marks not
    int64_t steps;       // a run
    double flops, bytes; // a run: useful work, as the plans declare it
    double paced;        // as `seconds`, of paced runs; 0: there were none
    enum kiln_precision precision; // of its products: which peak is its ceiling
    struct kiln_roofline least;    // a run: of its steps one after the other
};

// Rest behind a step of paced runs: so many times what the step took, and at least so long.
#define KILN_WALL_REST_TIMES 4
#define KILN_WALL_REST_LEAST 2e-3

struct kiln_wall_pace {
    int64_t runs;         // 0: there were none
    double seconds, rest; // a run: of all slices; of the rests between
    double sm_mhz, watts; // means of a look behind each step; 0: not known
    int64_t capped;       // looks that found the card at its power limit
    int64_t looks;
};

struct kiln_wall {
    struct kiln_wall_slice *slices; // longest first
    size_t n, cap;
    double wall;   // seconds a run, as users run: the mean of `runs`
    double traced; // seconds a run with marks, less `mark` for each
    double host;   // traced - all slices: before the first step, after the last, and between parts
    int64_t runs;
    double mark;     // seconds from a mark to the next with nothing between
    double sm_mhz;   // the card's clock, mean of a look behind each run; 0: not known
    double full_mhz; // the most that it can be; 0: not known
    int64_t capped;  // looks, of 2 * runs, that found the card at its power limit
    struct kiln_wall_pace pace;
    struct kiln_ceilings ceilings; // of the device
};

struct kiln_wall_params {
    struct kiln_workload load;
    // Of the plugins that run, which say what their products are of; NULL: of a wall whose bounds
    // nobody reads. Outlives the call.
    const struct kiln_registry *registry;
    int64_t runs; // of each kind, behind one that warms up
    int paced;    // whether there are paced ones, too
};

// Devices without marks are KILN_STATUS_USAGE, as are more tokens than the context holds. The
// caller ends *wall with kiln_wall_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_wall_run(struct kiln_session *session,
        const struct kiln_wall_params *params, struct kiln_wall *wall, struct kiln_err *err);
void kiln_wall_finish(struct kiln_wall *wall);

// Seconds of all slices of a slot.
double kiln_wall_slot(const struct kiln_wall *wall, const char *slot);

// The most that a change of `magnitude` percent (negative: faster) of a slot's time brings, in
// percent of the wall's time: share of the wall * magnitude.
double kiln_wall_lever(const struct kiln_wall *wall, const char *slot, double magnitude);

// The magnitude, percent, at which a slot would run at its roofline: each slice of it at its bound,
// one that is there already as it is. 1 where a slice has no bound, since no ceiling of it is known
// or its plans declare no work.
double kiln_wall_to_roofline(const struct kiln_wall *wall, const char *slot);

#endif
