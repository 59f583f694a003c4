// cmd_tune: what the parts of `kiln tune` share.
#ifndef KILN_TOOLS_CMD_TUNE_H
#define KILN_TOOLS_CMD_TUNE_H

#include "cmd.h"

#include "lab/tune.h"

// The winners in a whole model (common->model): greedy tokens of base and change against each
// other, then an interleaved A/B on the wall of a prefill of 512 tokens or of a decode, whichever
// the slot is in. Prints what it finds to stderr. *verdict: of the wall; REVERT as well when the
// tokens fork where the base is sure. Nothing to check (no winner but the base): LAND.
KILN_MUST_CHECK enum kiln_status kiln_tune_check_on_wall(const struct kiln_common *common,
        const struct kiln_tune *tune, enum kiln_verdict *verdict, struct kiln_err *err);

#endif
