// report_ledger: the experiments of a ledger as a timeline, a lane a verdict, and as a table; its
// results as another.
#include "lab/report_impl.h"

#include "lab/ledger_impl.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const struct lane {
    const char *verdict, *label;
    int color;
} lanes[] = {{"LANDED", "LANDED", 2}, {"REVERTED", "REVERTED", 3}, {"MEAS-ONLY", "MEAS-ONLY", 0},
        {"", "no verdict", 7}};

enum {
    LANES = sizeof(lanes) / sizeof(lanes[0]),
    LANE_HEIGHT = 34
};

static size_t lane_of(const char *verdict) {
    size_t i = 0;
    while (i + 1 < LANES && strcmp(lanes[i].verdict, verdict) != 0) {
        i++;
    }
    return i;
}

static const char *experiment_row(struct kiln_table *table, const json_t *row) {
    static const char *const keys[] = {"date", "verdict", "title", "why", "retry", "provenance"};
    const char *name = kiln_table_cell(table, "%s", kiln_json_string(row, "name", "?"));
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        (void)kiln_table_cell(table, "%s", kiln_json_string(row, keys[i], ""));
    }
    return name;
}

// In the order in which they were entered, which a date alone does not give; oldest left. Labels of
// a lane alternate between above and below, so that near ones stay apart.
static void draw_point(struct kiln_section *section, const json_t *row, const char *name, size_t at,
        size_t n, size_t in_lane[LANES]) {
    struct kiln_buf *svg = &section->picture;
    size_t lane = lane_of(kiln_json_string(row, "verdict", ""));
    double x = 82 + (KILN_REPORT_WIDTH - 100) * ((double)at + 0.5) / (double)n;
    double y = 20 + LANE_HEIGHT * (double)lane;
    kiln_buf_printf(svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"var(--c%d)\"><title>", x,
            y, lanes[lane].color);
    kiln_html_text(svg, name);
    kiln_buf_puts(svg, " ");
    kiln_html_text(svg, kiln_json_string(row, "date", ""));
    kiln_buf_puts(svg, "</title></circle>\n");
    kiln_svg_label(svg, x, in_lane[lane]++ % 2 ? y + 15 : y - 7, "middle", 1, name);
}

static void timeline(
        struct kiln_report *report, const struct kiln_report_source *source, const json_t *rows) {
    static const char *const columns[] = {
            "experiment", "date", "verdict", "what", "why", "worth another try", "from"};
    struct kiln_section *section = kiln_report_section(report, "The ledger in time", columns, 7);
    size_t n = json_array_size(rows), in_lane[LANES] = {0};
    if (!section) {
        return;
    }
    kiln_buf_printf(
            &section->note, "%s: %zu experiments, in the order of their entry", source->name, n);
    kiln_svg_begin(&section->picture, LANES * LANE_HEIGHT + 6, "experiments by verdict");
    for (size_t i = 0; i < LANES; i++) {
        double y = 20 + LANE_HEIGHT * (double)i;
        kiln_svg_label(&section->picture, 4, y + 4, "start", 0, lanes[i].label);
        kiln_buf_printf(&section->picture,
                "<line class=\"l\" x1=\"78\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                KILN_REPORT_WIDTH - 4, y, y);
    }
    for (size_t i = 0; i < n; i++) { // a ledger's rows are newest first
        const json_t *row = json_array_get(rows, n - 1 - i);
        draw_point(section, row, experiment_row(&section->table, row), i, n, in_lane);
    }
    kiln_svg_end(&section->picture);
}

// Newest first, as a ledger lists them.
static void list_results(
        struct kiln_report *report, const struct kiln_report_source *source, const json_t *rows) {
    static const char *const columns[] = {
            "result", "date", "kind", "device", "grade", "verdict", "what came out"};
    static const char *const keys[] = {"date", "kind", "device", "grade", "verdict", "summary"};
    struct kiln_section *section = kiln_report_section(report, "Results in the ledger", columns, 7);
    size_t i;
    const json_t *row;
    if (!section) {
        return;
    }
    kiln_buf_printf(
            &section->note, "%s: %zu results, newest first", source->name, json_array_size(rows));
    json_array_foreach(rows, i, row) {
        (void)kiln_table_cell(&section->table, "#%lld",
                (long long)json_integer_value(json_object_get(row, "id")));
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            (void)kiln_table_cell(&section->table, "%s", kiln_json_string(row, keys[k], ""));
        }
    }
}

void kiln_report_ledger(struct kiln_report *report, const struct kiln_report_source *source) {
    const json_t *experiments = json_object_get(source->document, "experiments");
    const json_t *results = json_object_get(source->document, "results");
    size_t n = json_array_size(results);
    if (json_array_size(experiments) > 0 || n == 0) {
        timeline(report, source, experiments);
    }
    if (n > 0) {
        list_results(report, source, results);
    }
}
