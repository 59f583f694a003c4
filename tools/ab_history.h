// ab_history: `kiln ab --history`: the campaign's rounds, run again on this device.
#ifndef KILN_TOOLS_AB_HISTORY_H
#define KILN_TOOLS_AB_HISTORY_H

#include "common.h"

#include "lab/ab.h"

struct kiln_ab_history {
    struct kiln_common common;
    const char *prompts, *ubatches; // as given; one number each
    struct kiln_opt_list rounds;    // names; none: all that have configurations
    struct kiln_ab_params params;   // but the workload
};

// Prints a row for each round: the campaign's figures, this device's, and whether they agree. A
// round that cannot run here is a row with the reason; where none can, that is KILN_STATUS_CHECK.
// What no round could do without (names, model, device) is told before anything is printed.
KILN_MUST_CHECK enum kiln_status kiln_ab_history_run(
        struct kiln_ab_history *history, struct kiln_err *err);

#endif
