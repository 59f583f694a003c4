// common: set-up and output that most subcommands share.
#include "cmd.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "common.h"
#include "device/sim/sim.h"
#include "tune_start.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void kiln_common_init(struct kiln_common *common) {
    *common = (struct kiln_common){.device = "auto"};
}

enum kiln_status kiln_common_registry(
        const struct kiln_common *common, struct kiln_registry **registry, struct kiln_err *err) {
    if (common->verbose && kiln_log_get_level() < KILN_LOG_INFO) {
        kiln_log_set_level(common->verbose > 1 ? KILN_LOG_DEBUG : KILN_LOG_INFO);
    }
    for (size_t i = 0; i < common->plugin_dirs.count; i++) {
        if (!common->plugin_dirs
                        .items[i][0]) { // an unset variable must not mean the current folder
            return kiln_err_set(err, KILN_STATUS_USAGE, "--plugin-dir is empty: name a folder");
        }
    }
    KILN_TRY(kiln_registry_create(registry, err));
    enum kiln_status status = kiln_registry_add_default(
            *registry, common->plugin_dirs.items, common->plugin_dirs.count, err);
    if (status != KILN_STATUS_OK) {
        kiln_registry_destroy(*registry);
        *registry = NULL;
        return status;
    }
    for (size_t i = 0; i < kiln_registry_n_refusals(*registry); i++) {
        kiln_log(KILN_LOG_WARN, "%s", kiln_registry_refusal(*registry, i).text);
    }
    return KILN_STATUS_OK;
}

// "engine.KEY=VALUE" behind the sets, unless the option was not given (0).
static void set_number(struct kiln_option_layers *text, const char *key, int64_t value) {
    if (value != 0) {
        char *line = text->numbers[text->n_numbers++];
        snprintf(line, sizeof(text->numbers[0]), "engine.%s=%" PRId64, key, value);
        text->sets[text->layers.n_sets++] = line;
    }
}

void kiln_common_layers(const struct kiln_common *common, struct kiln_option_layers *text) {
    *text = (struct kiln_option_layers){.n_numbers = 0};
    text->layers = (struct kiln_layers){
            .files = text->files, .sets = text->sets, .n_sets = common->sets.count};
    if (common->tuned) {
        text->files[text->layers.n_files++] = common->tuned;
    }
    for (size_t i = 0; i < common->configs.count; i++) {
        text->files[text->layers.n_files++] = common->configs.items[i];
    }
    for (size_t i = 0; i < common->sets.count; i++) {
        text->sets[i] = common->sets.items[i];
    }
    set_number(text, "threads", common->threads);
    set_number(text, "ctx", common->ctx);
    set_number(text, "ubatch", common->ubatch);
    if (common->graph) {
        char *line = text->numbers[text->n_numbers++];
        snprintf(line, sizeof(text->numbers[0]), "engine.graph=%.40s", common->graph);
        text->sets[text->layers.n_sets++] = line;
    }
}

enum kiln_status kiln_common_config(const struct kiln_common *common,
        const struct kiln_registry *registry, struct kiln_config **config, struct kiln_err *err) {
    struct kiln_option_layers text;
    struct kiln_catalog catalog = {
            .plugins = kiln_registry_plugins(registry), .n_plugins = kiln_registry_count(registry)};
    kiln_common_layers(common, &text);
    return kiln_config_load(config, &text.layers, &catalog, err);
}

// ---- Interrupts and progress --------------------------------------------------------------------

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    interrupted = signal_number;
}

void kiln_interrupt_catch(void) {
    // The first Ctrl-C asks the loops to end; SA_RESETHAND lets a second one end the program at
    // once.
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int kiln_interrupted(void) {
    return interrupted;
}

int kiln_interrupt_clear(void) {
    if (interrupted != SIGINT) {
        return interrupted == 0;
    }
    interrupted = 0;
    kiln_interrupt_catch();
    return 1;
}

static void show_progress(void *arg, int64_t done, int64_t total) {
    const char *what = arg;
    enum {
        WIDTH = 30
    };
    int filled = (int)(done * WIDTH / (total > 0 ? total : 1));
    fprintf(stderr, "\r%s [", what);
    for (int i = 0; i < WIDTH; i++) {
        fputc(i < filled ? '#' : '.', stderr);
    }
    fprintf(stderr, "] %" PRId64 "/%" PRId64, done, total);
    if (done >= total) {
        fputs("\r\033[K", stderr);
    }
    fflush(stderr);
}

kiln_progress_fn kiln_progress_bar(void) {
    return isatty(STDERR_FILENO) ? show_progress : NULL;
}

// At most five a second: a launch may be short.
static void show_launch(void *arg, const char *kernel, uint64_t done, uint64_t total) {
    static double last;
    double now = kiln_clock_seconds();
    char what[64];
    (void)arg;
    if (now - last < 0.2) {
        return;
    }
    last = now;
    size_t len = strcspn(kernel, "(");
    len = len < sizeof(what) ? len : sizeof(what) - 1;
    memcpy(what, kernel, len);
    what[len] = '\0';
    show_progress(what, (int64_t)done, (int64_t)total);
}

// ---- Sessions -----------------------------------------------------------------------------------

enum kiln_status kiln_common_need_model(const struct kiln_common *common, struct kiln_err *err) {
    if (common->model) {
        return KILN_STATUS_OK;
    }
    return kiln_err_set(err, KILN_STATUS_USAGE,
            "no model: -m MODEL.gguf names one; `tools/fetch-model smollm2` fetches a small one "
            "and "
            "prints its path");
}

// The config of the options, and what is tuned at the start below their files.
static enum kiln_status open_config(
        struct kiln_run *run, const struct kiln_common *common, struct kiln_err *err) {
    struct kiln_common own = *common;
    KILN_TRY(kiln_common_config(common, run->registry, &run->config, err));
    KILN_TRY(kiln_tune_at_start(common, run->registry, run->config, &run->tuned, err));
    if (!run->tuned) {
        return KILN_STATUS_OK;
    }
    own.tuned = run->tuned;
    kiln_config_destroy(run->config);
    run->config = NULL;
    return kiln_common_config(&own, run->registry, &run->config, err);
}

enum kiln_status kiln_run_open(
        struct kiln_run *run, const struct kiln_common *common, struct kiln_err *err) {
    *run = (struct kiln_run){0};
    KILN_TRY(kiln_common_need_model(common, err));
    kiln_interrupt_catch();
    uint32_t checks = 0;
    enum kiln_status status = common->sim_checks
                                      ? kiln_sim_check_parse(common->sim_checks, &checks, err)
                                      : KILN_STATUS_OK;
    if (status == KILN_STATUS_OK) {
        status = kiln_common_registry(common, &run->registry, err);
    }
    if (status == KILN_STATUS_OK) {
        status = open_config(run, common, err);
    }
    if (status == KILN_STATUS_OK) {
        kiln_progress_fn bar = kiln_progress_bar();
        static char loading[] = "loading", prefill[] = "prefill";
        struct kiln_session_params params = {
                .model_path = common->model,
                .device = common->device,
                .registry = run->registry,
                .config = run->config,
                .stop = kiln_interrupted,
                .progress = bar,
                .progress_arg = prefill,
                .sim_checks = checks,
                .sim_max_instructions = (uint64_t)common->sim_instructions,
                .launch_progress = bar ? show_launch : NULL,
        };
        if (bar) {
            bar(loading, 0, 1);
        }
        status = kiln_session_open(&run->session, &params, err);
        if (bar) {
            bar(loading, 1, 1);
        }
    }
    if (status != KILN_STATUS_OK) {
        kiln_run_close(run);
    }
    return status;
}

enum kiln_status kiln_run_verdict(const struct kiln_run *run, struct kiln_err *err) {
    struct kiln_sim_report *report = kiln_sim_dev_report(run->session.dev);
    const struct kiln_sim_finding *found = NULL;
    uint32_t n = report ? kiln_sim_findings(report, &found) : 0;
    for (uint32_t i = 0; i < n; i++) {
        kiln_say("%s%s", found[i].advice ? "advice: " : "", found[i].text);
    }
    uint32_t faults = report ? kiln_sim_faults(report) : 0;
    return faults ? kiln_err_set(err, KILN_STATUS_CHECK, "sim found %u fault%s in kernels", faults,
                            faults > 1 ? "s" : "")
                  : KILN_STATUS_OK;
}

void kiln_run_close(struct kiln_run *run) {
    kiln_session_close(&run->session);
    kiln_config_destroy(run->config);
    kiln_registry_destroy(run->registry);
    kiln_free(run->tuned);
    *run = (struct kiln_run){0};
}

// Whether the device has memory of its own; what it says of it.
static int device_memory(const struct kiln_session *session, struct kiln_dev_memory *memory) {
    struct kiln_dev *dev = session->dev;
    if (dev->ops->memory) {
        dev->ops->memory(dev, memory);
    }
    return dev->ops->memory != NULL;
}

void kiln_print_memory(const struct kiln_session *session) {
    const double mib = 1 << 20;
    struct kiln_engine_memory memory;
    struct kiln_dev_memory own;
    kiln_engine_memory(session->engine, &memory);
    fprintf(stderr,
            "kiln: %s: MiB of memory: weights %.1f, expanded weights %.1f, KV cache %.1f, work "
            "%.1f",
            session->dev->id, (double)memory.weights / mib, (double)memory.expansion / mib,
            (double)memory.kv / mib, (double)memory.work / mib);
    if (device_memory(session, &own)) {
        fprintf(stderr, "; held %.1f, at most %.1f, of a budget of %.1f", (double)own.held / mib,
                (double)own.peak / mib, (double)own.budget / mib);
    }
    fprintf(stderr, "\n");
}

struct json_t *kiln_json_memory(const struct kiln_session *session) {
    struct kiln_engine_memory memory;
    struct kiln_dev_memory own;
    kiln_engine_memory(session->engine, &memory);
    json_t *json = json_pack("{s:I, s:I, s:I, s:I}", "weights", (json_int_t)memory.weights,
            "expansion", (json_int_t)memory.expansion, "kv", (json_int_t)memory.kv, "work",
            (json_int_t)memory.work);
    if (json && device_memory(session, &own)) {
        json_t *more = json_pack("{s:I, s:I, s:I, s:I}", "used", (json_int_t)own.used, "held",
                (json_int_t)own.held, "peak", (json_int_t)own.peak, "budget",
                (json_int_t)own.budget);
        if (!more || json_object_update_new(json, more) != 0) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

// ---- Output -------------------------------------------------------------------------------------

enum kiln_status kiln_out(const char *bytes, size_t len, struct kiln_err *err) {
    errno = 0;
    if (fwrite(bytes, 1, len, stdout) != len || fflush(stdout) != 0) {
        return kiln_err_set(
                err, KILN_STATUS_FILE, "standard output could not be written: %s", strerror(errno));
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_out_buf(struct kiln_buf *buf, struct kiln_err *err) {
    enum kiln_status status = buf->failed ? kiln_err_nomem(err, "the output")
                                          : kiln_out(buf->data ? buf->data : "", buf->len, err);
    kiln_buf_finish(buf);
    return status;
}

static int append(const char *bytes, size_t len, void *arg) {
    struct kiln_buf *text = arg;
    kiln_buf_append(text, bytes, len);
    return text->failed ? -1 : 0;
}

enum kiln_status kiln_json_print(
        const struct json_t *json, struct kiln_buf *text, struct kiln_err *err) {
    int failed = !json || json_dump_callback(json, append, text, JSON_INDENT(2)) != 0;
    kiln_buf_puts(text, "\n");
    return failed || text->failed ? kiln_err_nomem(err, "the JSON output") : KILN_STATUS_OK;
}

enum kiln_status kiln_out_json(struct json_t *json, struct kiln_err *err) {
    struct kiln_buf text = {0};
    enum kiln_status status = kiln_json_print(json, &text, err);
    json_decref(json);
    if (status != KILN_STATUS_OK) {
        kiln_buf_finish(&text);
        return status;
    }
    return kiln_out_buf(&text, err);
}

struct json_t *kiln_json_ids(const int32_t *ids, size_t len) {
    json_t *array = json_array();
    for (size_t i = 0; array && i < len; i++) {
        json_array_append_new(array, json_integer(ids[i]));
    }
    return array;
}

enum kiln_status kiln_parse_list(const char *option, const char *text, int64_t min, int64_t max,
        struct kiln_numbers *list, struct kiln_err *err) {
    list->count = 0;
    const char *at = text;
    for (;;) {
        char *end;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        if (errno || end == at || (*end && *end != ',') || value < min || value > max ||
                list->count == sizeof(list->values) / sizeof(list->values[0])) {
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "%s takes whole numbers from %" PRId64 " to %" PRId64
                    ", separated by commas, not '%s'",
                    option, min, max, text);
        }
        list->values[list->count++] = value;
        if (!*end) {
            return KILN_STATUS_OK;
        }
        at = end + 1;
    }
}
