// twin: opens one device and model for two engines.
#include "lab/twin.h"

const char *kiln_side_name(enum kiln_side side) {
    static const char *const names[KILN_SIDES] = {"base", "change", "control"};
    return names[side];
}

static enum kiln_status open_side(struct kiln_twin *twin, const struct kiln_twin_params *params,
        enum kiln_side side, struct kiln_err *err) {
    struct kiln_engine_params engine = {
            .model = twin->model,
            .registry = params->registry,
            .config = params->config[side],
            .dev = twin->dev,
            .stop = params->stop,
    };
    enum kiln_status status = kiln_engine_create(&twin->engine[side], &engine, err);
    if (status != KILN_STATUS_OK) {
        kiln_err_prefix(err, "%s: ", kiln_side_name(side));
    }
    return status;
}

static enum kiln_status open_all(
        struct kiln_twin *twin, const struct kiln_twin_params *params, struct kiln_err *err) {
    struct kiln_dev_settings dev = kiln_session_dev_settings(params->config[KILN_SIDE_BASE]);
    KILN_TRY(kiln_dev_open(&twin->dev, params->device, &dev, err));
    KILN_TRY(kiln_model_open(&twin->model, params->model_path, err));
    for (int side = 0; side < KILN_SIDES; side++) {
        if (params->config[side]) {
            KILN_TRY(open_side(twin, params, (enum kiln_side)side, err));
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_twin_open(
        struct kiln_twin *twin, const struct kiln_twin_params *params, struct kiln_err *err) {
    *twin = (struct kiln_twin){.capped_at = -1e9};
    enum kiln_status status = open_all(twin, params, err);
    if (status != KILN_STATUS_OK) {
        kiln_twin_close(twin);
    }
    return status;
}

void kiln_twin_close(struct kiln_twin *twin) {
    for (int side = 0; side < KILN_SIDES; side++) {
        kiln_engine_destroy(twin->engine[side]);
    }
    kiln_model_close(twin->model);
    kiln_dev_close(twin->dev);
    *twin = (struct kiln_twin){0};
}
