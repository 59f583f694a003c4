// twin_run: opens two configs of one model.
#include "twin_run.h"

#include "common.h"
#include "save.h"

#include <jansson.h>
#include <string.h>

static enum kiln_status open_config(struct kiln_twin_run *run, const struct kiln_common *common,
        enum kiln_side side, const char *file, struct kiln_err *err) {
    struct kiln_common own = *common;
    if (own.configs.count == sizeof(own.configs.items) / sizeof(own.configs.items[0])) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "--config was given too often");
    }
    own.configs.items[own.configs.count++] = file;
    return kiln_common_config(&own, run->registry, &run->config[side], err);
}

static enum kiln_status open_all(struct kiln_twin_run *run, const struct kiln_common *common,
        const char *const files[KILN_SIDES], struct kiln_err *err) {
    KILN_TRY(kiln_common_registry(common, &run->registry, err));
    for (int side = 0; side < KILN_SIDES; side++) {
        if (files[side]) {
            KILN_TRY(open_config(run, common, (enum kiln_side)side, files[side], err));
        }
    }
    struct kiln_twin_params params = {
            .model_path = common->model,
            .device = common->device,
            .registry = run->registry,
            .config = {run->config[KILN_SIDE_BASE], run->config[KILN_SIDE_CHANGE],
                    run->config[KILN_SIDE_CONTROL]},
            .stop = kiln_interrupted,
    };
    return kiln_twin_open(&run->twin, &params, err);
}

enum kiln_status kiln_twin_run_open(struct kiln_twin_run *run, const struct kiln_common *common,
        const char *const files[KILN_SIDES], struct kiln_err *err) {
    *run = (struct kiln_twin_run){0};
    if (!files[KILN_SIDE_BASE] || !files[KILN_SIDE_CHANGE]) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "two INI files are compared: BASE.ini CHANGE.ini; an empty file is the defaults");
    }
    KILN_TRY(kiln_common_need_model(common, err));
    const char *slash = strrchr(common->model, '/');
    run->model_file = slash ? slash + 1 : common->model;
    kiln_interrupt_catch();
    enum kiln_status status = open_all(run, common, files, err);
    if (status != KILN_STATUS_OK) {
        kiln_twin_run_close(run);
    }
    return status;
}

enum kiln_status kiln_twin_run_origin(const struct kiln_twin_run *run, const char *kind,
        const char *path, struct json_t **origin, struct kiln_err *err) {
    *origin = NULL;
    if (!path) {
        return KILN_STATUS_OK;
    }
    return kiln_save_of(kind, run->twin.dev, run->registry, run->config[KILN_SIDE_CHANGE],
            run->config[KILN_SIDE_BASE], json_object(), origin, err);
}

void kiln_twin_run_close(struct kiln_twin_run *run) {
    kiln_twin_close(&run->twin);
    for (int side = 0; side < KILN_SIDES; side++) {
        kiln_config_destroy(run->config[side]);
    }
    kiln_registry_destroy(run->registry);
    *run = (struct kiln_twin_run){0};
}
