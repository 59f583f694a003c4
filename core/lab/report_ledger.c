// report_ledger: the experiments of a ledger as a timeline, a lane a verdict, and as a table.
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

void kiln_report_ledger(struct kiln_report *report, const struct kiln_report_source *source) {
    static const char *const columns[] = {
            "experiment", "date", "verdict", "what", "why", "worth another try", "from"};
    const json_t *rows = json_object_get(source->document, "experiments");
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
