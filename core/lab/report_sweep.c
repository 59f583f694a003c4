// report_sweep: a sweep as a heat map over two of its keys, and all its candidates as a table.
//
// Two forms are read: kiln's own (problems, each with candidates: variant, geometry, status, times)
// and the T4 schema that tuners share (results: configuration, invalidity, measurements).
#include "lab/report_impl.h"

#include "base/log.h"
#include "base/utf8.h"
#include "lab/ledger_impl.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_VALUES = 24, // of a key that is drawn
    MAX_KEYS = 16
};

static const json_t *candidates_of(const json_t *problem) {
    static const char *const lists[] = {"candidates", "results"};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        const json_t *list = json_object_get(problem, lists[i]);
        const json_t *first = json_array_get(list, 0);
        if (json_is_object(json_object_get(first, "geometry")) ||
                json_is_object(json_object_get(first, "configuration"))) {
            return list;
        }
    }
    return NULL;
}

const struct json_t *kiln_report_candidates(const struct json_t *document) {
    const json_t *problems = json_object_get(document, "problems"), *problem, *found = NULL;
    size_t i;
    if (!json_is_array(problems)) {
        return candidates_of(document);
    }
    json_array_foreach(problems, i, problem) {
        found = found ? found : candidates_of(problem);
    }
    return found;
}

static const json_t *geometry_of(const json_t *candidate) {
    const json_t *geometry = json_object_get(candidate, "geometry");
    return geometry ? geometry : json_object_get(candidate, "configuration");
}

static const char *state_of(const json_t *candidate) {
    const char *state = kiln_json_string(candidate, "status", NULL);
    state = state ? state : kiln_json_string(candidate, "state", NULL);
    return state ? state : kiln_json_string(candidate, "invalidity", "ok");
}

static int is_right(const json_t *candidate) {
    const char *state = state_of(candidate);
    return strcmp(state, "ok") == 0 || strcmp(state, "correct") == 0;
}

// A T4 measurement called "time", in microseconds; NaN: none.
static double t4_time(const json_t *candidate) {
    size_t i;
    const json_t *one;
    json_array_foreach(json_object_get(candidate, "measurements"), i, one) {
        const char *unit = kiln_json_string(one, "unit", "ms");
        if (strcmp(kiln_json_string(one, "name", ""), "time") == 0) {
            double scale = strcmp(unit, "s") == 0 || strcmp(unit, "seconds") == 0         ? 1e6
                           : strcmp(unit, "us") == 0 || strcmp(unit, "microseconds") == 0 ? 1
                           : strcmp(unit, "ns") == 0 || strcmp(unit, "nanoseconds") == 0  ? 1e-3
                                                                                          : 1e3;
            return scale * kiln_json_double(one, "value", (double)NAN);
        }
    }
    return (double)NAN;
}

// Microseconds of one call; NaN: not measured.
static double time_of(const json_t *candidate) {
    const json_t *warm = json_object_get(candidate, "warm_us");
    if (!is_right(candidate)) {
        return (double)NAN;
    }
    if (json_is_object(warm)) {
        return kiln_json_double(warm, "median", (double)NAN);
    }
    return json_is_number(warm) ? json_number_value(warm) : t4_time(candidate);
}

// ---- Keys ---------------------------------------------------------------------------------------

struct axis {
    char name[64];
    char values[MAX_VALUES][32]; // as text, in order of number
    size_t n;
};

static void value_text(const json_t *value, char *text, size_t size) {
    if (json_is_string(value)) {
        snprintf(text, size, "%.31s", json_string_value(value));
    } else {
        snprintf(text, size, "%.10g", json_number_value(value));
    }
}

static size_t find_value(const struct axis *axis, const char *text) {
    size_t i = 0;
    while (i < axis->n && strcmp(axis->values[i], text) != 0) {
        i++;
    }
    return i;
}

static int by_number(const void *a, const void *b) {
    double one = strtod(a, NULL), other = strtod(b, NULL);
    return one == other ? strcmp(a, b) : one < other ? -1 : 1;
}

static void fill_axis(struct axis *axis, const json_t *candidates, const char *name, size_t len) {
    size_t i;
    const json_t *candidate;
    snprintf(axis->name, sizeof(axis->name), "%.*s", (int)(len < 63 ? len : 63), name);
    axis->n = 0;
    json_array_foreach(candidates, i, candidate) {
        char text[32];
        const json_t *value = json_object_get(geometry_of(candidate), axis->name);
        if (!value) {
            continue;
        }
        value_text(value, text, sizeof(text));
        if (find_value(axis, text) == axis->n && axis->n < MAX_VALUES) {
            memcpy(axis->values[axis->n++], text, sizeof(text));
        }
    }
    qsort(axis->values, axis->n, sizeof(axis->values[0]), by_number);
}

// The two keys with the most values. A T4 configuration has the variant among its keys; it is none.
static void choose_axes(const json_t *candidates, const char *keys, struct axis axes[2]) {
    const char *comma = keys ? strchr(keys, ',') : NULL;
    if (comma) {
        fill_axis(&axes[0], candidates, keys, (size_t)(comma - keys));
        fill_axis(&axes[1], candidates, comma + 1, strlen(comma + 1));
        return;
    }
    size_t i, tried = 0;
    const json_t *candidate;
    char seen[MAX_KEYS][64];
    axes[0].n = axes[1].n = 0;
    json_array_foreach(candidates, i, candidate) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)geometry_of(candidate), key, value) {
            struct axis one;
            size_t s = 0;
            while (s < tried && strncmp(seen[s], key, 63) != 0) {
                s++;
            }
            if (s < tried || tried == MAX_KEYS || strcmp(key, "variant") == 0) {
                continue;
            }
            snprintf(seen[tried++], sizeof(seen[0]), "%.63s", key);
            fill_axis(&one, candidates, key, strlen(key));
            if (one.n > axes[0].n) {
                axes[1] = axes[0];
                axes[0] = one;
            } else if (one.n > axes[1].n) {
                axes[1] = one;
            }
        }
    }
}

// ---- The map ------------------------------------------------------------------------------------

static size_t place_on(const struct axis *axis, const json_t *candidate) {
    char text[32];
    const json_t *value = json_object_get(geometry_of(candidate), axis->name);
    if (!value) {
        return axis->n;
    }
    value_text(value, text, sizeof(text));
    return find_value(axis, text);
}

// The best time over all other keys for each pair of values; NaN where none is right.
static void best_times(
        const json_t *candidates, const struct axis axes[2], double best[MAX_VALUES][MAX_VALUES]) {
    size_t i;
    const json_t *candidate;
    for (size_t y = 0; y < MAX_VALUES; y++) {
        for (size_t x = 0; x < MAX_VALUES; x++) {
            best[y][x] = (double)NAN;
        }
    }
    json_array_foreach(candidates, i, candidate) {
        size_t x = place_on(&axes[0], candidate), y = place_on(&axes[1], candidate);
        double us = time_of(candidate);
        if (x < axes[0].n && y < axes[1].n && !isnan(us) && !(best[y][x] <= us)) {
            best[y][x] = us;
        }
    }
}

static void extremes(const struct axis axes[2], double best[MAX_VALUES][MAX_VALUES],
        double *fastest, double *slowest) {
    *fastest = (double)INFINITY;
    *slowest = 0;
    for (size_t y = 0; y < axes[1].n; y++) {
        for (size_t x = 0; x < axes[0].n; x++) {
            *fastest = isnan(best[y][x]) ? *fastest : fmin(*fastest, best[y][x]);
            *slowest = isnan(best[y][x]) ? *slowest : fmax(*slowest, best[y][x]);
        }
    }
}

static void map_row(struct kiln_section *section, const struct axis axes[2], size_t y,
        const double best[MAX_VALUES], double fastest, double slowest) {
    char tip[256];
    struct kiln_buf *svg = &section->picture;
    double width = (KILN_REPORT_WIDTH - 70.0) / (double)axes[0].n;
    (void)kiln_table_cell(&section->table, "%s", axes[1].values[y]);
    kiln_svg_label(svg, 62, 46 + 26 * (double)y, "end", 1, axes[1].values[y]);
    for (size_t x = 0; x < axes[0].n; x++) {
        int known = !isnan(best[x]);
        const char *figure = known ? kiln_table_cell(&section->table, "%.2f", best[x])
                                   : kiln_table_cell(&section->table, "none");
        // From full colour (fastest) down: a ratio, so that factors of two look alike.
        double shade = known && slowest > fastest
                               ? 1 - 0.85 * log(best[x] / fastest) / log(slowest / fastest)
                               : 1;
        snprintf(tip, sizeof(tip), "%s=%s %s=%s: %s%s", axes[0].name, axes[0].values[x],
                axes[1].name, axes[1].values[y], figure, known ? " us" : " right");
        kiln_svg_rect(svg, 68 + width * (double)x, 30 + 26 * (double)y, width - 2, 24,
                known ? 2 : KILN_REPORT_COLORS - 1, known ? shade : 0.12, tip);
        if (width > 34) {
            kiln_svg_label(
                    svg, 68 + width * ((double)x + 0.5), 46 + 26 * (double)y, "middle", 1, figure);
        }
    }
}

static void draw_map(struct kiln_report *report, const struct kiln_report_source *source,
        const json_t *candidates, const struct axis axes[2], const char *what) {
    const char *columns[MAX_VALUES + 1];
    char title[200], corner[160];
    double best[MAX_VALUES][MAX_VALUES], fastest, slowest;
    snprintf(corner, sizeof(corner), "%s \\ %s", axes[1].name, axes[0].name);
    columns[0] = corner;
    for (size_t x = 0; x < axes[0].n; x++) {
        columns[x + 1] = axes[0].values[x];
    }
    snprintf(title, sizeof(title), "Sweep of %.110s: best us over %.30s and %.30s", what,
            axes[0].name, axes[1].name);
    struct kiln_section *section = kiln_report_section(report, title, columns, axes[0].n + 1);
    if (!section) {
        return;
    }
    best_times(candidates, axes, best);
    extremes(axes, best, &fastest, &slowest);
    kiln_report_note(section, source);
    kiln_svg_begin(&section->picture, 34 + 26 * (double)axes[1].n, title);
    double width = (KILN_REPORT_WIDTH - 70.0) / (double)axes[0].n;
    kiln_svg_label(&section->picture, 68, 11, "start", 0, axes[0].name);
    kiln_svg_label(&section->picture, 62, 24, "end", 0, axes[1].name);
    for (size_t x = 0; x < axes[0].n; x++) {
        kiln_svg_label(&section->picture, 68 + width * ((double)x + 0.5), 24, "middle", 1,
                axes[0].values[x]);
    }
    for (size_t y = 0; y < axes[1].n; y++) {
        map_row(section, axes, y, best[y], fastest, slowest);
    }
    kiln_svg_end(&section->picture);
}

static void list_candidates(struct kiln_report *report, const struct kiln_report_source *source,
        const json_t *problem, const json_t *candidates, const char *what) {
    static const char *const columns[] = {"variant", "geometry", "status", "us", "cause"};
    char title[200];
    snprintf(title, sizeof(title), "Candidates of %.180s", what);
    struct kiln_section *section = kiln_report_section(report, title, columns, 5);
    size_t i;
    const json_t *candidate;
    if (!section) {
        return;
    }
    kiln_report_note(section, source);
    kiln_buf_printf(&section->note, ", %zu candidates", json_array_size(candidates));
    kiln_report_outcome(&section->note, problem);
    json_array_foreach(candidates, i, candidate) {
        double us = time_of(candidate);
        const json_t *keys = geometry_of(candidate);
        struct kiln_buf geometry = {0};
        kiln_report_put_geometry(&geometry, keys, "");
        section->table.failed |= geometry.failed;
        (void)kiln_table_cell(&section->table, "%s%s",
                kiln_json_string(candidate, "variant", kiln_json_string(keys, "variant", "")),
                json_is_true(json_object_get(candidate, "bound")) ? " (bound)" : "");
        (void)kiln_table_cell(&section->table, "%s", geometry.data ? geometry.data : "");
        (void)kiln_table_cell(&section->table, "%s", state_of(candidate));
        (void)(isnan(us) ? kiln_table_cell(&section->table, "%s", "")
                         : kiln_table_cell(&section->table, "%.2f", us));
        (void)kiln_table_cell(&section->table, "%s", kiln_json_string(candidate, "cause", ""));
        kiln_buf_finish(&geometry);
    }
}

static void add_problem(struct kiln_report *report, const struct kiln_report_source *source,
        const json_t *problem) {
    const json_t *candidates = candidates_of(problem);
    const char *name = kiln_json_string(problem, "problem", "");
    struct axis axes[2];
    char what[128];
    snprintf(what, sizeof(what), "%.40s%s%.80s",
            kiln_json_string(source->document, "slot", "a kernel"), *name ? ", " : "", name);
    kiln_utf8_trim(what);
    choose_axes(candidates, source->keys, axes);
    kiln_report_final(report, source, problem, what);
    if (axes[0].n > 0 && axes[1].n > 0) {
        draw_map(report, source, candidates, axes, what);
    } else if (source->keys) {
        kiln_log(KILN_LOG_WARN, "%s: no candidate has a key %s, so no map is drawn", source->name,
                axes[0].n == 0 ? axes[0].name : axes[1].name);
    }
    list_candidates(report, source, problem, candidates, what);
}

void kiln_report_sweep(struct kiln_report *report, const struct kiln_report_source *source) {
    const json_t *problems = json_object_get(source->document, "problems"), *problem;
    size_t i;
    if (!json_is_array(problems)) {
        add_problem(report, source, source->document);
        return;
    }
    json_array_foreach(problems, i, problem) {
        add_problem(report, source, problem);
    }
}
