// open_model: see the header.
#include "open_model.h"

#include "base/file.h"
#include "base/mem.h"
#include "device/sim/exec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include <cmocka.h>

static void must(enum kiln_status status, const struct kiln_err *err) {
    if (status != KILN_STATUS_OK) {
        fail_msg("%s: %s", kiln_status_name(status), err->text);
    }
}

static const char *env_path(const char *variable) {
    const char *value = getenv(variable);
    assert_non_null(value); // meson sets it
    return value;
}

static enum kiln_status open_all(struct opened_model *model, struct kiln_session_params *params,
        const char *const *plugins, const char *const *sets, struct kiln_err *err) {
    char dir[4096];
    snprintf(dir, sizeof(dir), "%s/plugins", env_path("KILN_TEST_BUILD"));
    KILN_TRY(kiln_registry_create(&model->registry, err));
    KILN_TRY(kiln_registry_add_dir(model->registry, dir, err));
    for (size_t i = 0; plugins && plugins[i]; i++) {
        KILN_TRY(kiln_registry_add_file(model->registry, plugins[i], err));
    }
    KILN_TRY(kiln_config_create(&model->config, err));
    KILN_TRY(kiln_config_add_defaults(model->config, err));
    for (size_t i = 0; sets && sets[i]; i++) {
        KILN_TRY(kiln_config_add_set(model->config, sets[i], err));
    }
    struct kiln_catalog catalog = {.plugins = kiln_registry_plugins(model->registry),
            .n_plugins = kiln_registry_count(model->registry)};
    KILN_TRY(kiln_config_check(model->config, &catalog, err));
    params->registry = model->registry;
    params->config = model->config;
    return kiln_session_open(&model->session, params, err);
}

enum kiln_status try_open_model(struct opened_model *model, const char *device, const char *path,
        const char *const *plugins, const char *const *sets, struct kiln_err *err) {
    *model = (struct opened_model){0};
    struct kiln_session_params params = {.model_path = path, .device = device};
    enum kiln_status status = open_all(model, &params, plugins, sets, err);
    if (status != KILN_STATUS_OK) {
        close_model(model);
    }
    return status;
}

void open_model(struct opened_model *model, const char *path, const char *const *sets) {
    struct kiln_err err = {0};
    must(try_open_model(model, "cpu", path, NULL, sets, &err), &err);
}

void open_model_on(
        struct opened_model *model, const char *device, const char *path, const char *const *sets) {
    struct kiln_err err = {0};
    int32_t count = 0;
    if (strncmp(device, "cuda", 4) == 0 && kiln_cuda_count(&count, &err) != KILN_STATUS_OK) {
        print_message("%s\n", err.text);
        skip();
    }
    must(try_open_model(model, device, path, NULL, sets, &err), &err);
}

void open_model_on_sim(
        struct opened_model *model, const char *device, const char *path, const char *const *sets) {
    struct kiln_err err = {0};
    struct kiln_session_params params = {.model_path = path,
            .device = device,
            .sim_checks = KILN_SIM_CHECK_ALL,
            .sim_counters = 1};
    *model = (struct opened_model){0};
    must(open_all(model, &params, NULL, sets, &err), &err);
}

void close_model(struct opened_model *model) {
    kiln_session_close(&model->session);
    kiln_config_destroy(model->config);
    kiln_registry_destroy(model->registry);
}

const char *golden_path(const char *name) {
    static char path[4096];
    snprintf(path, sizeof(path), "%s/tests/golden/%s", env_path("KILN_TEST_SRC"), name);
    return path;
}

struct json_t *load_json(const char *path) {
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    if (!json) {
        fail_msg("%s:%d: %s", path, error.line, error.text);
    }
    return json;
}

struct json_t *load_json_line(const char *path, size_t line) {
    struct kiln_err err = {0};
    char *data;
    size_t size;
    must(kiln_file_read(path, 1u << 24, &data, &size, &err), &err);
    char *at = data;
    for (size_t i = 0; i < line && at; i++) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    json_t *json = NULL;
    if (at && *at) {
        json_error_t error;
        json = json_loadb(at, strcspn(at, "\n"), 0, &error);
        if (!json) {
            fail_msg("%s line %zu: %s", path, line + 1, error.text);
        }
    }
    kiln_free(data);
    return json;
}
