// ab: is the change faster on the whole wall, beyond noise? Base and change run interleaved in one
// process and one window, with a second run of the base in every round: base against base is the
// control that measures the noise, instead of assuming it.
//
// A round is one run of each arm (base, change, base again) in an order that goes through all six
// permutations. Differences are taken within the round, so that slow drift falls out. The wall is
// the host's clock from handing over the tokens to the device having finished.
#ifndef KILN_LAB_AB_H
#define KILN_LAB_AB_H

#include "engine/workload.h"
#include "lab/ab_kernels.h"
#include "lab/health.h"
#include "lab/stats.h"
#include "lab/twin.h"

struct kiln_ab_params {
    struct kiln_workload load;
    int64_t rounds; // at most; at least KILN_AB_MIN_ROUNDS
    double bar;     // percent that a change must bring, 1.5
    // A card that is driven to its power limit swings round it for seconds before its clock
    // settles: at most so many seconds of runs go before the first round; none on other devices.
    double soak;
    int64_t rest_ms;   // the device rests so long before each run: see kiln_health_capped
    double alpha;      // error rate of the verdict, all looks together: 0.001
    int until_decided; // look every KILN_AB_LOOK rounds, stop at LAND or REVERT
    uint64_t seed;     // of the resampling
    int kernels;       // watch a run of each side behind every KILN_AB_WATCH rounds
    int (*stop)(void); // asked between rounds, or NULL
    void (*progress)(void *arg, int64_t done, int64_t total); // rounds, or NULL
    void *progress_arg;
};

enum {
    KILN_AB_MIN_ROUNDS = 6,
    KILN_AB_LOOK = 6,
    KILN_AB_WATCH = 3
};

struct kiln_ab_pair {
    double base, change, control; // seconds; base is the mean of the round's two runs of it
    double pct, control_pct;      // percent, positive when change (the second base run) is faster
    struct kiln_health health;    // after the round
    int disturbed;                // see kiln_health_disturbed; counted in all the same
};

struct kiln_ab {
    struct kiln_ab_pair *pairs;
    size_t n;
    struct kiln_effect effect;
    size_t disturbed, capped; // rounds; capped: at the card's power limit
    int64_t looks;
    double base_rate, change_rate; // tokens a second, medians
    struct kiln_ab_kernels kernels;
};

// Runs one comparison. More tokens than a context holds is KILN_STATUS_USAGE. The caller ends *ab
// with kiln_ab_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_ab_run(struct kiln_twin *twin,
        const struct kiln_ab_params *params, struct kiln_ab *ab, struct kiln_err *err);
void kiln_ab_finish(struct kiln_ab *ab);

#endif
