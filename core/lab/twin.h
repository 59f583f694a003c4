// twin: two configs of one model side by side in one process: one device, one copy of the weights
// in the file's form, an engine (KV cache, schedules, prepared weights) for each config. A third
// config may come along as a control: one that is known to be harmless.
//
// What a comparison needs: the same clock, the same memory, the same moment.
#ifndef KILN_LAB_TWIN_H
#define KILN_LAB_TWIN_H

#include "engine/session.h"

enum kiln_side {
    KILN_SIDE_BASE,
    KILN_SIDE_CHANGE,
    KILN_SIDE_CONTROL,
    KILN_SIDES
};

struct kiln_twin_params {
    const char *model_path;
    const char *device;                     // as kiln_dev_open takes it
    struct kiln_registry *registry;         // outlives the twin, as do the configs
    struct kiln_config *config[KILN_SIDES]; // checked; the base's settings open the device; the
                                            // control may be NULL
    int (*stop)(void);
};

struct kiln_twin {
    struct kiln_dev *dev;
    struct kiln_model *model;
    struct kiln_engine *engine[KILN_SIDES]; // that of the control may be NULL
    double capped_at; // kiln_clock_seconds when a comparison last left the card at its power limit
};

// Fills in *twin; on failure it is left zeroed, and the message says which side it was.
KILN_MUST_CHECK enum kiln_status kiln_twin_open(
        struct kiln_twin *twin, const struct kiln_twin_params *params, struct kiln_err *err);
void kiln_twin_close(struct kiln_twin *twin); // a zeroed one is fine

const char *kiln_side_name(enum kiln_side side); // "base", "change", "control"

#endif
