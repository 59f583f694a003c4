// save: `--save FILE` of the commands that measure or judge.
#ifndef KILN_TOOLS_SAVE_H
#define KILN_TOOLS_SAVE_H

#include "cmd.h"

#include "device/device.h"

struct json_t;

#define KILN_SAVE_OPTION(path) \
    { \
        "--save", NULL, KILN_OPT_STRING, (void *)(path), "FILE", \
                "keep the result, and what it was taken of, as JSON", 0, 0 \
    }

// Whether --save could be kept, asked before anything is measured; path NULL: nothing is to be.
KILN_MUST_CHECK enum kiln_status kiln_save_check(const char *path, struct kiln_err *err);

// The envelope (lab/save.h) of a result taken on an open device; takes `result`. base: of a
// comparison, else NULL. The caller owns *saved.
KILN_MUST_CHECK enum kiln_status kiln_save_of(const char *kind, const struct kiln_dev *dev,
        const struct kiln_registry *registry, const struct kiln_config *config,
        const struct kiln_config *base, struct json_t *result, struct json_t **saved,
        struct kiln_err *err);

// Writes `result` (borrowed) into the envelope `saved` and that to `path`; nothing where path is
// NULL. NULL in place of the others: out of memory.
KILN_MUST_CHECK enum kiln_status kiln_save_keep(
        const char *path, struct json_t *saved, struct json_t *result, struct kiln_err *err);

// "simulated" on sim, else "measured".
const char *kiln_grade_of(const struct kiln_dev *dev);

#endif
