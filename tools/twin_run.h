// twin_run: what commands that compare two configs share: BASE.ini and CHANGE.ini, each on top of
// the shared --config files, under the shared --set, opened as a twin.
#ifndef KILN_TOOLS_TWIN_RUN_H
#define KILN_TOOLS_TWIN_RUN_H

#include "cmd.h"

#include "lab/twin.h"

struct kiln_twin_run {
    struct kiln_registry *registry;
    struct kiln_config *config[KILN_SIDES];
    struct kiln_twin twin;
    const char *model_file; // the name of the model's file, as long as the common options
};

// Table rows of a command line that begins BASE.ini CHANGE.ini.
#define KILN_TWIN_FILES(files) \
    {"BASE.ini", NULL, KILN_OPT_ENTRY, (void *)&(files)[KILN_SIDE_BASE], NULL, \
            "what is in force now", 0, 0}, \
    { \
        "CHANGE.ini", NULL, KILN_OPT_ENTRY, (void *)&(files)[KILN_SIDE_CHANGE], NULL, \
                "what is to be judged", 0, 0 \
    }

// files[side]: the INI file of each side; NULL is KILN_STATUS_USAGE but for the control. Ctrl-C is
// caught from here on.
KILN_MUST_CHECK enum kiln_status kiln_twin_run_open(struct kiln_twin_run *run,
        const struct kiln_common *common, const char *const files[KILN_SIDES],
        struct kiln_err *err);
// The envelope of a comparison's result (kiln_save_of), its result still empty; NULL where path is
// NULL. The caller owns *origin.
KILN_MUST_CHECK enum kiln_status kiln_twin_run_origin(const struct kiln_twin_run *run,
        const char *kind, const char *path, struct json_t **origin, struct kiln_err *err);
void kiln_twin_run_close(struct kiln_twin_run *run); // a zeroed one is fine

#endif
