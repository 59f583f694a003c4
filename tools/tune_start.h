// tune_start: [tune] at_start: kernels tuned for the model and the device before its first prompt.
#ifndef KILN_TOOLS_TUNE_START_H
#define KILN_TOOLS_TUNE_START_H

#include "cmd.h"

// Where at_start is off: nothing. Else *tuned becomes the path of an INI file, the caller's, to be
// read below the --config files: kept from an earlier start with this model, device, driver and
// these kernels, or made now, within [tune] budget seconds: the geometry of each variant that is
// bound and has one, for the shapes of the model. What goes wrong is a warning, *tuned is NULL and
// the run goes on untuned; only INTERRUPTED and NOMEM are failures.
KILN_MUST_CHECK enum kiln_status kiln_tune_at_start(const struct kiln_common *common,
        struct kiln_registry *registry, struct kiln_config *config, char **tuned,
        struct kiln_err *err);

// argv of the process that measures (lab/tune_child.h) for these options, in `worker`.
enum {
    KILN_TUNE_WORKER_ARGS = 2 * 64 * 3 + 16
};
struct kiln_tune_worker_argv {
    char exe[4096], threads[24];
    const char *argv[KILN_TUNE_WORKER_ARGS]; // NULL behind the last
};
KILN_MUST_CHECK enum kiln_status kiln_tune_worker_of(struct kiln_tune_worker_argv *worker,
        const struct kiln_common *common, const char *device, struct kiln_err *err);

#endif
