// common: what commands that run a model share beside their options (cmd.h).
#ifndef KILN_TOOLS_COMMON_H
#define KILN_TOOLS_COMMON_H

#include "cmd.h"

#include "base/buf.h"
#include "config/layers.h"
#include "engine/session.h"

// KILN_STATUS_USAGE without -m; the error says how to fetch a model.
KILN_MUST_CHECK enum kiln_status kiln_common_need_model(
        const struct kiln_common *common, struct kiln_err *err);
// What the shared options say of the configuration, as layers.
struct kiln_option_layers {
    struct kiln_layers layers;
    const char *sets[64 + 4];  // --set, then -t, -c, -ub, --graph
    const char *files[64 + 1]; // common->tuned, then --config
    char numbers[4][64];
    size_t n_numbers;
};
void kiln_common_layers(const struct kiln_common *common, struct kiln_option_layers *text);

// A model opened with everything that it needs.
struct kiln_run {
    struct kiln_registry *registry;
    struct kiln_config *config;
    struct kiln_session session;
    char *tuned; // see struct kiln_common; owned
};
// Opens by the shared options; without -m the error says how to fetch a model. Ctrl-C is caught
// from here on.
KILN_MUST_CHECK enum kiln_status kiln_run_open(
        struct kiln_run *run, const struct kiln_common *common, struct kiln_err *err);
// What --sim-check found in the run goes to stderr; faults among it are KILN_STATUS_CHECK.
KILN_MUST_CHECK enum kiln_status kiln_run_verdict(const struct kiln_run *run, struct kiln_err *err);
void kiln_run_close(struct kiln_run *run); // a zeroed one is fine

// What the run holds of its device's memory: a line for -v, and as JSON (NULL: out of memory).
void kiln_print_memory(const struct kiln_session *session);
struct json_t *kiln_json_memory(const struct kiln_session *session);

void kiln_interrupt_catch(void);
int kiln_interrupted(void);
// For what goes on after a Ctrl-C: forgets it, so that the next one counts again. 0: it was no
// Ctrl-C but a request to end.
int kiln_interrupt_clear(void);

typedef void (*kiln_progress_fn)(void *arg, int64_t done, int64_t total);
kiln_progress_fn kiln_progress_bar(
        void); // NULL when stderr is no terminal; arg: what is going on, a char *

// Writes out a buf and ends it.
KILN_MUST_CHECK enum kiln_status kiln_out_buf(struct kiln_buf *buf, struct kiln_err *err);

// Appends a value as one JSON document, with the line's end.
KILN_MUST_CHECK enum kiln_status kiln_json_print(
        const struct json_t *json, struct kiln_buf *text, struct kiln_err *err);

// A JSON array; NULL when out of memory.
struct json_t *kiln_json_ids(const int32_t *ids, size_t len);

struct kiln_numbers {
    int64_t values[64];
    size_t count;
};
// "512,3325": the value of an option that takes a list.
KILN_MUST_CHECK enum kiln_status kiln_parse_list(const char *option, const char *text, int64_t min,
        int64_t max, struct kiln_numbers *list, struct kiln_err *err);

#endif
