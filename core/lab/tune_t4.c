// tune_t4: results in the JSON form T4, version 1.0.0, that auto-tuners exchange.
//
// Source: the results schema of the Open Autotuning Results Schema (T4): an object with
// schema_version and results; a result has timestamp, configuration, objectives, times (
// compilation_time, runtimes …), invalidity (timeout, compile, runtime, correctness, constraints,
// correct), correctness and measurements (name, value, unit). Times are in milliseconds here.
#include "lab/tune.h"

#include "base/mem.h"
#include "lab/save.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *invalidity_of(enum kiln_tune_state state) {
    switch (state) {
    case KILN_TUNE_OK:
        return "correct";
    case KILN_TUNE_DECLINED:
    case KILN_TUNE_LIMITS:
        return "constraints";
    case KILN_TUNE_COMPILE:
        return "compile";
    case KILN_TUNE_PARITY:
        return "correctness";
    case KILN_TUNE_TIMEOUT:
        return "timeout";
    case KILN_TUNE_RUNNING:
    case KILN_TUNE_FAULT:
    case KILN_TUNE_MEMORY:
    case KILN_TUNE_STATES:
        break;
    }
    return "runtime";
}

static json_t *configuration(const struct kiln_tune_entry *entry) {
    json_t *object = json_pack("{s:s}", "variant", entry->part->variant->name);
    for (uint32_t i = 0; object && i < entry->part->n_axes; i++) {
        (void)json_object_set_new(object, entry->part->names[i], json_integer(entry->values[i]));
    }
    return object;
}

static json_t *runtimes(const struct kiln_tune_times *times) {
    json_t *array = json_array();
    for (int32_t i = 0; array && i < times->n; i++) {
        (void)json_array_append_new(array, json_real(times->seconds[i] * 1e3));
    }
    return array;
}

static json_t *measurements(const struct kiln_tune_result *result) {
    json_t *array = json_array();
    const struct {
        const char *name;
        const struct kiln_tune_times *times;
    } rows[] = {{"time", &result->warm}, {"time_cold", &result->cold}};
    for (size_t i = 0; array && i < 2; i++) {
        if (rows[i].times->n > 0) {
            (void)json_array_append_new(
                    array, json_pack("{s:s, s:f, s:s}", "name", rows[i].name, "value",
                                   rows[i].times->median * 1e3, "unit", "milliseconds"));
        }
    }
    return array;
}

static json_t *result_json(const struct kiln_tune *tune, const struct kiln_tune_problem *problem,
        const struct kiln_tune_entry *entry) {
    char stamp[32] = "";
    struct tm utc;
    time_t at = (time_t)entry->result.at;
    (void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &utc));
    return json_pack("{s:s, s:o, s:[s], s:{s:f, s:o, s:f, s:f, s:f}, s:s, s:f, s:o, s:s, s:s}",
            "timestamp", stamp, "configuration", configuration(entry), "objectives",
            tune->params->by_cold ? "time_cold" : "time", "times", "compilation_time",
            entry->result.compile_ms, "runtimes", runtimes(&entry->result.warm), "framework",
            entry->result.cost * 1e3, "search_algorithm", 0.0, "validation", 0.0, "invalidity",
            invalidity_of(entry->result.state), "correctness",
            entry->result.state == KILN_TUNE_OK ? 1.0 : 0.0, "measurements",
            measurements(&entry->result), "problem", problem->name, "device",
            tune->device.desc.name);
}

json_t *kiln_tune_t4(const struct kiln_tune *tune) {
    json_t *results = json_array();
    for (size_t i = 0; i < tune->n_problems; i++) {
        const struct kiln_tune_problem *problem = &tune->problems[i];
        for (size_t j = 0; results && j < problem->n_entries; j++) {
            if (problem->entries[j]->result.state != KILN_TUNE_RUNNING) {
                (void)json_array_append_new(
                        results, result_json(tune, problem, problem->entries[j]));
            }
        }
    }
    return json_pack("{s:s, s:o}", "schema_version", "1.0.0", "results", results);
}

// "fap2 FA_TQ=64 FA_TKV=32" of a configuration, "* …" where it names no variant, as those of other
// tuners do; NULL: it is none, or memory ran out.
static char *candidate_text(json_t *configuration) {
    const char *variant = json_string_value(json_object_get(configuration, "variant")), *key;
    struct kiln_buf text = {0};
    json_t *value;
    if (!json_is_object(configuration)) {
        return NULL;
    }
    kiln_buf_puts(&text, variant ? variant : "*");
    json_object_foreach(configuration, key, value) {
        if (json_is_integer(value)) {
            kiln_buf_printf(&text, " %s=%" JSON_INTEGER_FORMAT, key, json_integer_value(value));
        }
    }
    return kiln_buf_take(&text);
}

static int value_of(const char *text, const char *name, int64_t *value) {
    size_t len = strlen(name);
    for (const char *at = strstr(text, name); at; at = strstr(at + len, name)) {
        if (at > text && at[-1] == ' ' && at[len] == '=') {
            *value = strtoll(at + len + 1, NULL, 10);
            return 1;
        }
    }
    return 0;
}

// What the text does not name is as it is by default. NONE: it names no key of the part, or a value
// that the part does not have.
static uint64_t find_in_part(
        const struct kiln_tune_space *space, const struct kiln_tune_part *part, const char *text) {
    int64_t values[KILN_TUNE_PARAMS];
    int named = *text != '*' && part->n_axes == 0;
    for (uint32_t i = 0; i < part->n_axes; i++) {
        values[i] = part->axes[i].standard;
        named |= value_of(text, part->names[i], &values[i]);
    }
    return named ? kiln_tune_space_find(space, part->variant, values) : KILN_TUNE_NONE;
}

uint64_t kiln_tune_t4_find(const struct kiln_tune_space *space, const char *text) {
    size_t len = strcspn(text, " ");
    uint64_t found = KILN_TUNE_NONE;
    int64_t values[KILN_TUNE_PARAMS];
    if (*text == '*' && space->base != KILN_TUNE_NONE) { // what is bound before all others
        found = find_in_part(space, kiln_tune_space_at(space, space->base, values), text);
    }
    for (size_t i = 0; i < space->n_parts && found == KILN_TUNE_NONE; i++) {
        const char *name = space->parts[i].variant->name;
        if (*text == '*' || (strlen(name) == len && strncmp(name, text, len) == 0)) {
            found = find_in_part(space, &space->parts[i], text);
        }
    }
    return found;
}

enum kiln_status kiln_tune_t4_read(const char *path, struct kiln_arena *arena, const char ***texts,
        size_t *n, struct kiln_err *err) {
    json_t *document, *result;
    size_t index;
    *n = 0;
    KILN_TRY(kiln_save_read(path, &document, err));
    json_t *results = json_object_get(document, "results");
    *texts = kiln_arena_calloc(arena, json_array_size(results) + 1, sizeof(**texts));
    if (!json_is_array(results) || !json_object_get(document, "schema_version")) {
        json_decref(document);
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: no T4 results: an object with schema_version and results is", path);
    }
    json_array_foreach(results, index, result) {
        char *text = candidate_text(json_object_get(result, "configuration"));
        if (text && *texts) {
            (*texts)[*n] = kiln_arena_strdup(arena, text);
            *n += (*texts)[*n] != NULL;
        }
        kiln_free(text);
    }
    json_decref(document);
    return *texts ? KILN_STATUS_OK : kiln_err_nomem(err, "T4 results");
}
