// save: envelopes of results.
#include "save.h"

#include "base/file.h"
#include "lab/health.h"
#include "lab/save.h"

#include <jansson.h>
#include <string.h>

const char *kiln_grade_of(const struct kiln_dev *dev) {
    return strncmp(dev->id, "sim", 3) == 0 ? "simulated" : "measured";
}

enum kiln_status kiln_save_check(const char *path, struct kiln_err *err) {
    return path ? kiln_file_check_write(path, err) : KILN_STATUS_OK;
}

enum kiln_status kiln_save_of(const char *kind, const struct kiln_dev *dev,
        const struct kiln_registry *registry, const struct kiln_config *config,
        const struct kiln_config *base, struct json_t *result, struct json_t **saved,
        struct kiln_err *err) {
    char driver[128];
    kiln_health_driver(dev, driver, sizeof(driver));
    const struct kiln_save_origin origin = {.version = KILN_VERSION,
            .kind = kind,
            .grade = kiln_grade_of(dev),
            .device = dev->desc.name,
            .device_id = dev->id,
            .target = dev->desc.target,
            .driver = driver,
            .device_kind = dev->desc.kind,
            .registry = registry,
            .config = config,
            .base = base};
    return kiln_save_make(&origin, result, saved, err);
}

enum kiln_status kiln_save_keep(
        const char *path, struct json_t *saved, struct json_t *result, struct kiln_err *err) {
    if (!result || (path && !saved)) {
        return kiln_err_nomem(err, "the JSON output");
    }
    if (!path) {
        return KILN_STATUS_OK;
    }
    if (json_object_set(saved, "result", result) != 0) {
        return kiln_err_nomem(err, "the JSON output");
    }
    return kiln_save_write(path, saved, err);
}
