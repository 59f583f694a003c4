// session: opens device, model and engine.
#include "engine/session.h"

struct kiln_dev_settings kiln_session_dev_settings(const struct kiln_config *config) {
    const struct kiln_settings *settings = kiln_config_settings(config);
    return (struct kiln_dev_settings){.threads = (uint32_t)settings->threads,
            .cache_dir = settings->cache_dir,
            .cache_max_size = settings->cache_max_size};
}

static enum kiln_status open_all(struct kiln_session *session,
        const struct kiln_session_params *params, struct kiln_err *err) {
    struct kiln_dev_settings dev = kiln_session_dev_settings(params->config);
    dev.sim_checks = params->sim_checks;
    dev.sim_counters = params->sim_counters;
    dev.sim_max_instructions = params->sim_max_instructions;
    dev.stop = params->stop;
    dev.progress = params->launch_progress;
    KILN_TRY(kiln_dev_open(&session->dev, params->device, &dev, err));
    KILN_TRY(kiln_model_open(&session->model, params->model_path, err));
    struct kiln_engine_params engine = {
            .model = session->model,
            .registry = params->registry,
            .config = params->config,
            .dev = session->dev,
            .stop = params->stop,
            .progress = params->progress,
            .progress_arg = params->progress_arg,
    };
    return kiln_engine_create(&session->engine, &engine, err);
}

enum kiln_status kiln_session_open(struct kiln_session *session,
        const struct kiln_session_params *params, struct kiln_err *err) {
    *session = (struct kiln_session){0};
    enum kiln_status status = open_all(session, params, err);
    if (status != KILN_STATUS_OK) {
        kiln_session_close(session);
    }
    return status;
}

void kiln_session_close(struct kiln_session *session) {
    kiln_engine_destroy(session->engine);
    kiln_model_close(session->model);
    kiln_dev_close(session->dev);
    *session = (struct kiln_session){0};
}
