// save: the envelope round a result.
#include "lab/save.h"

#include "base/file.h"
#include "base/mem.h"
#include "lab/digest.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    MAX_SAVED = 1 << 26
};

void kiln_save_date(char *text, size_t size) {
    struct tm utc;
    time_t now = time(NULL);
    if (strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc)) == 0) {
        text[0] = '\0';
    }
}

struct json_t *kiln_json_text(const char *bytes, size_t len) {
    struct kiln_buf clean = {0};
    kiln_buf_put_clean(&clean, bytes, len);
    json_t *json = clean.failed ? NULL : json_stringn(clean.data ? clean.data : "", clean.len);
    kiln_buf_finish(&clean);
    return json;
}

// ---- Writing ------------------------------------------------------------------------------------

// Adds config and sources under the two names.
static enum kiln_status add_config(json_t *saved, const struct kiln_save_origin *origin,
        const struct kiln_config *config, const char *text_name, const char *digest_name,
        struct kiln_err *err) {
    uint64_t digest;
    char hex[24];
    struct kiln_buf text = {0};
    KILN_TRY(kiln_sources_digest(origin->registry, config, origin->device_kind, &digest, err));
    snprintf(hex, sizeof(hex), "%016" PRIx64, digest);
    kiln_config_show(config, &text);
    int failed = text.failed ||
                 json_object_set_new(
                         saved, text_name, kiln_json_text(text.data ? text.data : "", text.len)) ||
                 json_object_set_new(saved, digest_name, json_string(hex));
    kiln_buf_finish(&text);
    return failed ? kiln_err_nomem(err, "a result to be kept") : KILN_STATUS_OK;
}

static enum kiln_status fill(
        json_t *saved, const struct kiln_save_origin *origin, struct kiln_err *err) {
    KILN_TRY(add_config(saved, origin, origin->config, "config", "sources", err));
    if (origin->base) {
        KILN_TRY(add_config(saved, origin, origin->base, "base_config", "base_sources", err));
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_save_make(const struct kiln_save_origin *origin, struct json_t *result,
        struct json_t **saved, struct kiln_err *err) {
    char date[32];
    kiln_save_date(date, sizeof(date));
    const char *driver = origin->driver && *origin->driver ? origin->driver : NULL;
    *saved = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s?, s:s}", "kiln", origin->version, "kind",
            origin->kind, "date", date, "device", origin->device, "device_id", origin->device_id,
            "target", origin->target, "driver", driver, "grade", origin->grade);
    enum kiln_status status = *saved && result ? fill(*saved, origin, err)
                                               : kiln_err_nomem(err, "a result to be kept");
    if (status == KILN_STATUS_OK && json_object_set(*saved, "result", result) != 0) {
        status = kiln_err_nomem(err, "a result to be kept");
    }
    json_decref(result);
    if (status != KILN_STATUS_OK) {
        json_decref(*saved);
        *saved = NULL;
    }
    return status;
}

static int append(const char *bytes, size_t len, void *text) {
    kiln_buf_append(text, bytes, len);
    return 0;
}

enum kiln_status kiln_save_write(
        const char *path, const struct json_t *saved, struct kiln_err *err) {
    struct kiln_buf text = {0};
    int failed = json_dump_callback(saved, append, &text, JSON_INDENT(2));
    kiln_buf_puts(&text, "\n");
    enum kiln_status status = failed || text.failed
                                      ? kiln_err_nomem(err, "a result to be kept")
                                      : kiln_file_write(path, text.data, text.len, err);
    kiln_buf_finish(&text);
    return status;
}

// ---- Reading ------------------------------------------------------------------------------------

enum kiln_status kiln_save_read(const char *path, struct json_t **saved, struct kiln_err *err) {
    char *text;
    size_t size;
    json_error_t problem;
    KILN_TRY(kiln_file_read(path, MAX_SAVED, &text, &size, err));
    *saved = json_loadb(text, size, JSON_REJECT_DUPLICATES, &problem);
    kiln_free(text);
    if (!*saved) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s:%d: %s: no JSON, so not what --save writes",
                path, problem.line, problem.text);
    }
    if (!json_is_object(*saved)) {
        json_decref(*saved);
        *saved = NULL;
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: no JSON object, so neither what --save writes nor a --json document", path);
    }
    return KILN_STATUS_OK;
}

const struct json_t *kiln_save_result(const struct json_t *saved) {
    const json_t *result = json_object_get(saved, "result");
    return json_is_object(result) && json_object_get(saved, "kiln") ? result : saved;
}

// ---- Differences --------------------------------------------------------------------------------

// The next line of a config that sets something, without the comment that says where it came from;
// 0 at the end.
static int next_line(const char **at, const char **line, size_t *len) {
    while (**at) {
        *line = *at;
        size_t whole = strcspn(*at, "\n");
        const char *comment = strstr(*at, " ; ");
        *len = comment && comment < *at + whole ? (size_t)(comment - *at) : whole;
        *at += whole + ((*at)[whole] == '\n');
        if (*len > 0 && **line != ';') {
            return 1;
        }
    }
    *line = "(nothing)";
    *len = strlen(*line);
    return 0;
}

static void compare_configs(const char *then, const char *now, struct kiln_buf *text) {
    const char *lines[2];
    size_t lens[2];
    int more[2];
    do {
        more[0] = next_line(&then, &lines[0], &lens[0]);
        more[1] = next_line(&now, &lines[1], &lens[1]);
        if (lens[0] != lens[1] || memcmp(lines[0], lines[1], lens[0]) != 0) {
            kiln_buf_printf(text, "its config is another: '%.*s' then, '%.*s' now\n", (int)lens[0],
                    lines[0], (int)lens[1], lines[1]);
            return;
        }
    } while (more[0] && more[1]);
}

void kiln_save_differences(
        const struct json_t *saved, const struct json_t *now, struct kiln_buf *text) {
    static const char *const names[] = {"device", "driver", "sources"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const json_t *then = json_object_get(saved, names[i]);
        const json_t *here = json_object_get(now, names[i]);
        if (then && here && !json_equal(then, here)) {
            const char *was = json_string_value(then), *is = json_string_value(here);
            kiln_buf_printf(text, "its %s %s: %s then, %s now\n", names[i],
                    strcmp(names[i], "sources") == 0 ? "are others" : "is another",
                    was ? was : "none", is ? is : "none");
        }
    }
    const char *then = json_string_value(json_object_get(saved, "config"));
    const char *here = json_string_value(json_object_get(now, "config"));
    if (then && here) {
        compare_configs(then, here, text);
    }
}
