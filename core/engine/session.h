// session: everything a run needs, opened in order and closed in reverse: device, model, engine.
#ifndef KILN_ENGINE_SESSION_H
#define KILN_ENGINE_SESSION_H

#include "engine/engine.h"

struct kiln_session_params {
    const char *model_path;
    const char *device;             // as kiln_dev_open takes it
    struct kiln_registry *registry; // outlive the session
    struct kiln_config *config;     // checked
    uint32_t sim_checks;            // of --device sim: 1 << enum kiln_sim_check
    int sim_counters;               // and whether it counts by source line
    uint64_t sim_max_instructions;  // and how many a block may run; 0: sim's default
    int (*stop)(void);
    void (*progress)(void *arg, int64_t done, int64_t total);
    void *progress_arg;
    // How far a kernel is, on a device that is slow enough to tell (sim).
    void (*launch_progress)(void *arg, const char *kernel, uint64_t done, uint64_t total);
};

// What a checked config says of the device; the rest is zero.
struct kiln_dev_settings kiln_session_dev_settings(const struct kiln_config *config);

struct kiln_session {
    struct kiln_dev *dev;
    struct kiln_model *model;
    struct kiln_engine *engine;
};

// Fills in *session; on failure it is left zeroed.
KILN_MUST_CHECK enum kiln_status kiln_session_open(struct kiln_session *session,
        const struct kiln_session_params *params, struct kiln_err *err);
void kiln_session_close(struct kiln_session *session); // a zeroed one is fine

#endif
