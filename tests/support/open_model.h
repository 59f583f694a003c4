// open_model: a model opened as the program would, for tests: plugins of the build tree, default
// config.
#ifndef KILN_TESTS_SUPPORT_OPEN_MODEL_H
#define KILN_TESTS_SUPPORT_OPEN_MODEL_H

#include "engine/session.h"

struct opened_model {
    struct kiln_registry *registry;
    struct kiln_config *config;
    struct kiln_session session;
};

// sets: NULL-ended list of "SECTION.KEY=VALUE". Fails the running cmocka test with the error's
// text.
void open_model(struct opened_model *model, const char *path, const char *const *sets);
// On another device than the CPU: "cuda". Skips the running test when it is not there.
void open_model_on(
        struct opened_model *model, const char *device, const char *path, const char *const *sets);
// The same with further plugins by path (NULL-ended, or NULL), and failures returned: *model is
// closed then.
enum kiln_status try_open_model(struct opened_model *model, const char *device, const char *path,
        const char *const *plugins, const char *const *sets, struct kiln_err *err);
// On sim ("sim:sm_90a"), with all checks and counters: kiln_sim_dev_report(model->session.dev) has
// what it saw.
void open_model_on_sim(
        struct opened_model *model, const char *device, const char *path, const char *const *sets);
void close_model(struct opened_model *model);

// "<KILN_TEST_SRC>/tests/golden/<name>", static storage.
const char *golden_path(const char *name);

// Reads a JSON file, or line `line` of a file of JSON lines (NULL behind the last); fails the test
// when bad.
struct json_t *load_json(const char *path);
struct json_t *load_json_line(const char *path, size_t line);

#endif
