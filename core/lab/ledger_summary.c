// ledger_summary: one line for each kind of result, and its verdict.
#include "lab/ledger.h"

#include "base/mem.h"
#include "lab/ledger_impl.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const json_t *rows_of(const json_t *result) {
    const json_t *rows = json_is_array(result) ? result : json_object_get(result, "rows");
    return json_is_array(rows) ? rows : NULL;
}

void kiln_result_test_name(const struct json_t *row, char *name, size_t size) {
    int64_t prompt = json_integer_value(json_object_get(row, "n_prompt"));
    int64_t gen = json_integer_value(json_object_get(row, "n_gen"));
    int64_t depth = json_integer_value(json_object_get(row, "n_depth"));
    char behind[32] = "";
    if (depth > 0) {
        snprintf(behind, sizeof(behind), "@d%lld", (long long)depth);
    }
    snprintf(name, size, "%s%lld%s", prompt > 0 ? "pp" : "tg",
            (long long)(prompt > 0 ? prompt : gen), behind);
}

static void one_ab(const json_t *row, struct kiln_buf *line) {
    char name[64];
    const json_t *interval = json_object_get(row, "interval_pct");
    kiln_result_test_name(row, name, sizeof(name));
    kiln_buf_printf(line, "%s%s %+.2f %% (%+.2f to %+.2f), %s",
            line->len > strlen("ab: ") ? "; " : "", name, kiln_json_double(row, "median_pct", 0),
            json_number_value(json_array_get(interval, 0)),
            json_number_value(json_array_get(interval, 1)), kiln_json_string(row, "verdict", "?"));
}

// LAND when every row lands, REVERT when one does, else NEUTRAL.
static const char *ab(const json_t *result, struct kiln_buf *line) {
    const json_t *rows = rows_of(result);
    size_t n = rows ? json_array_size(rows) : 1, landed = 0, reverted = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *row = rows ? json_array_get(rows, i) : result;
        const char *verdict = kiln_json_string(row, "verdict", "");
        landed += strcmp(verdict, "LAND") == 0;
        reverted += strcmp(verdict, "REVERT") == 0;
        one_ab(row, line);
    }
    return reverted > 0 ? "REVERT" : landed == n && n > 0 ? "LAND" : "NEUTRAL";
}

static const char *gate(const json_t *result, struct kiln_buf *line) {
    const char *verdict = kiln_json_string(result, "verdict", "FAIL");
    kiln_buf_printf(line, "%s: %s, %lld passed, %lld failed, %lld skipped",
            kiln_json_string(result, "gate", "gate"), verdict,
            (long long)json_integer_value(json_object_get(result, "passed")),
            (long long)json_integer_value(json_object_get(result, "failed")),
            (long long)json_integer_value(json_object_get(result, "skipped")));
    return strcmp(verdict, "PASS") == 0 ? "PASS" : "FAIL";
}

static const char *wall(const json_t *result, struct kiln_buf *line) {
    char name[64];
    size_t i;
    const json_t *slice;
    kiln_result_test_name(result, name, sizeof(name));
    kiln_buf_printf(line, "%s %.3f ms", name, kiln_json_double(result, "wall_ms", 0));
    json_array_foreach(json_object_get(result, "slices"), i, slice) {
        if (i == 3) {
            break;
        }
        kiln_buf_printf(line, "; %s %.1f %%", kiln_json_string(slice, "slot", "?"),
                kiln_json_double(slice, "share_pct", 0));
    }
    return NULL;
}

static const char *audit(const json_t *result, struct kiln_buf *line) {
    const json_t *pairs = json_object_get(result, "diff");
    const json_t *kernels = pairs ? pairs : json_object_get(result, "kernels");
    const json_t *first = json_array_get(kernels, 0);
    const json_t *change = json_object_get(first, "change");
    kiln_buf_printf(line, "%zu kernels%s", json_array_size(kernels), pairs ? " compared" : "");
    first = json_is_object(change) ? change : first;
    if (first) {
        kiln_buf_printf(line, "; %s %s on %s", kiln_json_string(first, "slot", "?"),
                kiln_json_string(first, "variant", "?"), kiln_json_string(first, "target", "?"));
    }
    return NULL;
}

static void one_time(
        const json_t *result, const char *key, const char *name, struct kiln_buf *line) {
    const json_t *us = json_object_get(json_object_get(result, key), "median_us");
    if (json_is_number(us)) {
        kiln_buf_printf(line, ", %.2f us %s", json_number_value(us), name);
    }
}

static const char *op(const json_t *result, struct kiln_buf *line) {
    size_t i;
    const json_t *one;
    json_array_foreach(json_object_get(result, "results"), i, one) {
        const json_t *passed = json_object_get(json_object_get(one, "parity"), "passed");
        if (i == 3) {
            kiln_buf_printf(line, "; … (%zu)", json_array_size(json_object_get(result, "results")));
            break;
        }
        kiln_buf_printf(line, "%s%s %s %s", i > 0 ? "; " : "", kiln_json_string(one, "slot", "?"),
                kiln_json_string(one, "variant", "?"), kiln_json_string(one, "shape", "?"));
        one_time(one, "warm", "warm", line);
        one_time(one, "cold", "cold", line);
        kiln_buf_puts(line, json_is_true(passed)    ? ", passed"
                            : json_is_false(passed) ? ", FAILED"
                                                    : "");
    }
    return NULL;
}

// bench and others, whose documents say what they are about in `slot` or in rows.
static const char *other(const json_t *result, struct kiln_buf *line) {
    const json_t *rows = rows_of(result);
    const char *slot = kiln_json_string(result, "slot", NULL);
    if (slot) {
        kiln_buf_puts(line, slot);
    }
    for (size_t i = 0; rows && i < json_array_size(rows) && i < 4; i++) {
        char name[64];
        const json_t *row = json_array_get(rows, i);
        kiln_result_test_name(row, name, sizeof(name));
        if (json_object_get(row, "avg_ts")) {
            kiln_buf_printf(line, "%s%s %.2f t/s", i > 0 ? "; " : "", name,
                    kiln_json_double(row, "avg_ts", 0));
        }
    }
    return kiln_json_string(result, "verdict", NULL);
}

// Of each problem what won, and among how many.
static const char *tune(const json_t *result, struct kiln_buf *line) {
    size_t i;
    const json_t *problem;
    kiln_buf_puts(line, kiln_json_string(result, "slot", "?"));
    json_array_foreach(json_object_get(result, "problems"), i, problem) {
        const json_t *winner = json_object_get(problem, "winner");
        char *geometry = json_is_object(winner)
                                 ? kiln_json_dump(json_object_get(winner, "geometry"), JSON_COMPACT)
                                 : NULL;
        kiln_buf_printf(line, "; %s: %s%s%s%s of %zu", kiln_json_string(problem, "problem", "?"),
                json_is_true(json_object_get(winner, "kept")) ? "kept " : "",
                kiln_json_string(winner, "variant", "none"), geometry ? " " : "",
                geometry ? geometry : "", json_array_size(json_object_get(problem, "candidates")));
        kiln_free(geometry);
    }
    return NULL;
}

enum kiln_status kiln_ledger_summary(const char *kind, const struct json_t *result, char **summary,
        const char **verdict, struct kiln_err *err) {
    static const struct {
        const char *kind;
        const char *(*write)(const json_t *result, struct kiln_buf *line);
    } writers[] = {{"ab", ab}, {"gate", gate}, {"wall", wall}, {"audit", audit}, {"op", op},
            {"tune", tune}};
    const char *(*write)(const json_t *, struct kiln_buf *) = other;
    for (size_t i = 0; i < sizeof(writers) / sizeof(writers[0]); i++) {
        if (strcmp(kind, writers[i].kind) == 0) {
            write = writers[i].write;
        }
    }
    struct kiln_buf line = {0};
    kiln_buf_printf(&line, "%s: ", kind);
    *verdict = write(result, &line);
    *summary = kiln_buf_take(&line);
    kiln_buf_finish(&line);
    return *summary ? KILN_STATUS_OK : kiln_err_nomem(err, "a result");
}
