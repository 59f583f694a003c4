// report_kinds: sections of results of whole runs: wall and A/B with a picture each, gates and rows
// of figures without one. Not here: what is known of single kernels (report_kernels.c).
#include "lab/report_impl.h"

#include "base/utf8.h"
#include "lab/ledger_impl.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TIP = 320
};

void kiln_report_note(struct kiln_section *section, const struct kiln_report_source *source) {
    kiln_buf_printf(&section->note, "%s%s%s%s%s", source->name, *source->device ? ", " : "",
            source->device, *source->grade ? ", " : "", source->grade);
}

static const json_t *rows_of(const json_t *document) {
    const json_t *rows = json_is_array(document) ? document : json_object_get(document, "rows");
    return json_is_array(rows) ? rows : NULL;
}

// ---- Wall ---------------------------------------------------------------------------------------

int kiln_report_color(const char *slot) {
    static const char *const known[] = {
            "attention.", "matmul.", "quantize", "norm", "activation", "rope_kv", "embed"};
    for (int i = 0; i < (int)(sizeof(known) / sizeof(known[0])); i++) {
        if (strncmp(slot, known[i], strlen(known[i])) == 0) {
            return i;
        }
    }
    return KILN_REPORT_COLORS - 1;
}

// A number with so many decimals, or an empty cell where a result has none.
static void wall_cell(
        struct kiln_table *table, const json_t *slice, const char *key, int decimals) {
    const double value = kiln_json_double(slice, key, -1);
    (void)(value >= 0 ? kiln_table_cell(table, "%.*f", decimals, value)
                      : kiln_table_cell(table, "%s", ""));
}

// slice: of the result; NULL: what is no kernel.
static void wall_row(struct kiln_section *section, const json_t *slice, const char *slot,
        const char *name, double ms, double wall_ms, double *x) {
    char tip[TIP];
    struct kiln_table *table = &section->table;
    double share = wall_ms > 0 ? 100 * ms / wall_ms : 0;
    (void)kiln_table_cell(table, "%s", slot);
    const char *time = kiln_table_cell(table, "%.3f", ms);
    const char *part = kiln_table_cell(table, "%.2f", share);
    wall_cell(table, slice, "memory_pct", 1);
    wall_cell(table, slice, "peak_pct", 1);
    (void)kiln_table_cell(table, "%s", kiln_json_string(slice, "peak", ""));
    wall_cell(table, slice, "bound_ms", 3);
    (void)kiln_table_cell(table, "%s", name);
    snprintf(tip, sizeof(tip), "%.120s: %s ms, %s %%", slot, time, part);
    double width = ms > 0 ? (KILN_REPORT_WIDTH - 8) * share / 100 : 0;
    kiln_svg_rect(&section->picture, *x, 20, width, 34, kiln_report_color(slot), 0.9, tip);
    if (width > 60) {
        kiln_svg_label(&section->picture, *x + width / 2, 41, "middle", 1, part);
    }
    *x += width;
}

// What each colour stands for, two a line.
static void wall_legend(struct kiln_section *section, const json_t *slices) {
    double y = 72;
    size_t i, shown = 0;
    const json_t *slice;
    char seen[64][64], label[28]; // what fits half the width
    json_array_foreach(slices, i, slice) {
        const char *slot = kiln_json_string(slice, "slot", "?");
        int again = 0;
        for (size_t s = 0; s < shown; s++) {
            again |= strncmp(seen[s], slot, sizeof(seen[s]) - 1) == 0;
        }
        if (again || shown == 12) {
            continue;
        }
        snprintf(seen[shown], sizeof(seen[shown]), "%.63s", slot);
        double x = shown % 2 ? KILN_REPORT_WIDTH / 2.0 : 4;
        kiln_svg_rect(&section->picture, x, y - 9, 10, 10, kiln_report_color(slot), 0.9, slot);
        snprintf(label, sizeof(label), "%.27s", slot);
        kiln_utf8_trim(label);
        kiln_svg_label(&section->picture, x + 14, y, "start", 0, label);
        y += shown % 2 ? 16 : 0;
        shown++;
    }
}

void kiln_report_wall(struct kiln_report *report, const struct kiln_report_source *source) {
    static const char *const columns[] = {"slot", "ms", "% of the wall", "% of memory", "% of peak",
            "peak", "roofline ms, derived", "kernel"};
    char title[160], test[64];
    const json_t *doc = source->document, *slices = json_object_get(doc, "slices"), *slice;
    kiln_result_test_name(doc, test, sizeof(test));
    snprintf(title, sizeof(title), "Wall by slice: %s", test);
    struct kiln_section *section = kiln_report_section(report, title, columns, 8);
    if (!section) {
        return;
    }
    size_t i, lines = json_array_size(slices) < 12 ? json_array_size(slices) : 12;
    double wall = kiln_json_double(doc, "wall_ms", 0), x = 4, sum = 0;
    kiln_report_note(section, source);
    size_t legend = (lines + 1) / 2;
    kiln_svg_begin(&section->picture, 66 + 16 * (double)legend, title);
    json_array_foreach(slices, i, slice) {
        double ms = kiln_json_double(slice, "ms", 0);
        wall_row(section, slice, kiln_json_string(slice, "slot", "?"),
                kiln_json_string(slice, "name", ""), ms, wall, &x);
        sum += ms;
    }
    if (json_object_get(doc, "host_ms")) {
        wall_row(section, NULL, "host", "between the parts of a pass", wall - sum, wall, &x);
    }
    (void)kiln_table_cell(&section->table, "wall");
    const char *whole = kiln_table_cell(&section->table, "%.3f", wall);
    (void)kiln_table_cell(&section->table, "100");
    for (int blank = 0; blank < 3; blank++) {
        (void)kiln_table_cell(&section->table, "%s", "");
    }
    wall_cell(&section->table, json_object_get(doc, "roofline"), "bound_ms", 3);
    (void)kiln_table_cell(&section->table, "%s", "");
    kiln_svg_label(&section->picture, KILN_REPORT_WIDTH - 4, 13, "end", 1, whole);
    kiln_svg_label(&section->picture, 4, 13, "start", 0, "the whole wall, ms");
    wall_legend(section, slices);
    kiln_svg_end(&section->picture);
}

// ---- A/B ----------------------------------------------------------------------------------------

struct scale {
    double low, high, top, height;
};

static double place(const struct scale *s, double value) {
    return s->top + s->height * (s->high - value) / (s->high - s->low);
}

static struct scale scale_of(const json_t *pairs, double noise) {
    struct scale s = {.low = -noise, .high = noise, .top = 12, .height = 150};
    size_t i;
    const json_t *pair;
    json_array_foreach(pairs, i, pair) {
        double pct = kiln_json_double(pair, "pct", 0);
        s.low = fmin(s.low, pct);
        s.high = fmax(s.high, pct);
    }
    double margin = 0.08 * (s.high - s.low) + 0.01;
    s.low -= margin;
    s.high += margin;
    return s;
}

static void line_at(struct kiln_buf *svg, double y, const char *class) {
    kiln_buf_printf(svg, "<line class=\"%s\" x1=\"50\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
            class, KILN_REPORT_WIDTH - 4, y, y);
}

static void ab_pairs(struct kiln_section *section, const json_t *pairs, const struct scale *s) {
    size_t i, n = json_array_size(pairs);
    const json_t *pair;
    json_array_foreach(pairs, i, pair) {
        struct kiln_table *table = &section->table;
        int disturbed = json_is_true(json_object_get(pair, "disturbed"));
        double pct = kiln_json_double(pair, "pct", 0);
        const char *index = kiln_table_cell(table, "%zu", i + 1);
        (void)kiln_table_cell(table, "%.6f", kiln_json_double(pair, "base_s", 0));
        (void)kiln_table_cell(table, "%.6f", kiln_json_double(pair, "change_s", 0));
        const char *figure = kiln_table_cell(table, "%+.2f", pct);
        (void)kiln_table_cell(table, "%+.2f", kiln_json_double(pair, "control_pct", 0));
        (void)kiln_table_cell(table, "%s", disturbed ? "disturbed" : "");
        double x = 60 + (KILN_REPORT_WIDTH - 74) * ((double)i + 0.5) / (double)n;
        kiln_buf_printf(&section->picture,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\" stroke=\"var(--c0)\"><title>"
                "pair %s: %s %%%s</title></circle>\n",
                x, place(s, pct), disturbed ? "none" : "var(--c0)", index, figure,
                disturbed ? ", disturbed" : "");
    }
}

// The medians and bounds, as a last row of the table.
static void ab_summary(struct kiln_section *section, const json_t *row, const struct scale *s) {
    struct kiln_table *table = &section->table;
    const json_t *interval = json_object_get(row, "interval_pct");
    double median = kiln_json_double(row, "median_pct", 0);
    double noise = kiln_json_double(row, "noise_pct", 0);
    (void)kiln_table_cell(table, "median");
    (void)kiln_table_cell(table, "%.2f t/s", kiln_json_double(row, "base_ts", 0));
    (void)kiln_table_cell(table, "%.2f t/s", kiln_json_double(row, "change_ts", 0));
    const char *middle = kiln_table_cell(table, "%+.2f", median);
    const char *band = kiln_table_cell(table, "%.2f", noise);
    (void)kiln_table_cell(table, "%s; interval %+.2f to %+.2f",
            kiln_json_string(row, "verdict", "?"), json_number_value(json_array_get(interval, 0)),
            json_number_value(json_array_get(interval, 1)));
    line_at(&section->picture, place(s, 0), "z");
    kiln_svg_label(&section->picture, 46, place(s, 0) + 4, "end", 0, "base");
    line_at(&section->picture, place(s, median), "l");
    // Where the two lines are near each other, the labels are not.
    double y = place(s, median), apart = fabs(y - place(s, 0));
    kiln_svg_label(&section->picture, 46, apart < 12 ? place(s, 0) + (median > 0 ? -8 : 16) : y + 4,
            "end", 1, middle);
    kiln_svg_label(&section->picture, 46, 186, "end", 1, band);
    kiln_svg_label(
            &section->picture, 52, 186, "start", 0, "% of noise: the band; points: pairs, %");
}

static void ab_row(
        struct kiln_report *report, const struct kiln_report_source *source, const json_t *row) {
    static const char *const columns[] = {
            "pair", "base s", "change s", "change %", "control %, noise %", ""};
    char title[160], test[64], tip[TIP];
    kiln_result_test_name(row, test, sizeof(test));
    snprintf(title, sizeof(title), "A/B: %s: %.20s", test, kiln_json_string(row, "verdict", "?"));
    struct kiln_section *section = kiln_report_section(report, title, columns, 6);
    if (!section) {
        return;
    }
    const json_t *pairs = json_object_get(row, "pairs");
    double noise = kiln_json_double(row, "noise_pct", 0);
    struct scale s = scale_of(pairs, noise);
    kiln_report_note(section, source);
    kiln_svg_begin(&section->picture, 194, title);
    snprintf(tip, sizeof(tip), "noise: base against base");
    kiln_svg_rect(&section->picture, 50, place(&s, noise), KILN_REPORT_WIDTH - 54,
            place(&s, -noise) - place(&s, noise), KILN_REPORT_COLORS - 1, 0.25, tip);
    ab_summary(section, row, &s);
    ab_pairs(section, pairs, &s);
    kiln_svg_end(&section->picture);
}

// Of the slots in which base and change differ; older results have none.
static void ab_kernels(
        struct kiln_report *report, const struct kiln_report_source *source, const json_t *row) {
    static const char *const columns[] = {"slot", "base ms", "change ms", "kernel %", "share %",
            "predicted wall %", "wall %", "base kernel", "change kernel"};
    char title[160], test[64];
    const json_t *slots = json_object_get(json_object_get(row, "kernels"), "slots"), *slot;
    size_t i;
    if (json_array_size(slots) == 0) {
        return;
    }
    kiln_result_test_name(row, test, sizeof(test));
    snprintf(title, sizeof(title), "A/B: kernels beside the wall: %s", test);
    struct kiln_section *section = kiln_report_section(report, title, columns, 9);
    if (!section) {
        return;
    }
    kiln_report_note(section, source);
    json_array_foreach(slots, i, slot) {
        struct kiln_table *table = &section->table;
        (void)kiln_table_cell(table, "%s", kiln_json_string(slot, "slot", "?"));
        (void)kiln_table_cell(table, "%.3f", kiln_json_double(slot, "base_ms", 0));
        (void)kiln_table_cell(table, "%.3f", kiln_json_double(slot, "change_ms", 0));
        if (json_is_number(json_object_get(slot, "pct"))) {
            (void)kiln_table_cell(table, "%+.2f", kiln_json_double(slot, "pct", 0));
        } else {
            (void)kiln_table_cell(table, "%s", "");
        }
        (void)kiln_table_cell(table, "%.2f", kiln_json_double(slot, "share_pct", 0));
        (void)kiln_table_cell(table, "%+.2f", kiln_json_double(slot, "predicted_pct", 0));
        (void)kiln_table_cell(table, "%+.2f", kiln_json_double(row, "median_pct", 0));
        (void)kiln_table_cell(table, "%s", kiln_json_string(slot, "base", "?"));
        (void)kiln_table_cell(table, "%s", kiln_json_string(slot, "change", "?"));
    }
}

void kiln_report_ab(struct kiln_report *report, const struct kiln_report_source *source) {
    const json_t *rows = json_object_get(source->document, "rows"), *row;
    size_t i;
    if (!json_is_array(rows) || json_array_size(rows) == 0) {
        ab_row(report, source, source->document);
        ab_kernels(report, source, source->document);
        return;
    }
    json_array_foreach(rows, i, row) {
        ab_row(report, source, row);
        ab_kernels(report, source, row);
    }
}

// ---- Gate, and rows of figures ------------------------------------------------------------------

void kiln_report_gate(struct kiln_report *report, const struct kiln_report_source *source) {
    static const char *const columns[] = {"gate", "verdict", "passed", "failed", "skipped"};
    const json_t *doc = source->document;
    struct kiln_section *section = kiln_report_section(report, "Gate", columns, 5);
    if (!section) {
        return;
    }
    kiln_report_note(section, source);
    (void)kiln_table_cell(&section->table, "%s", kiln_json_string(doc, "gate", "?"));
    (void)kiln_table_cell(&section->table, "%s", kiln_json_string(doc, "verdict", "?"));
    for (size_t i = 2; i < 5; i++) {
        (void)kiln_table_cell(&section->table, "%.0f", kiln_json_double(doc, columns[i], 0));
    }
}

static void any_cell(struct kiln_table *table, const json_t *value) {
    if (json_is_string(value)) {
        (void)kiln_table_cell(table, "%s", json_string_value(value));
    } else if (json_is_number(value)) {
        (void)kiln_table_cell(table, "%.10g", json_number_value(value));
    } else {
        (void)kiln_table_cell(table, "%s", json_is_true(value) ? "yes" : "");
    }
}

// A row's plain members, and those of its objects as "there wall_pct". NULL: no memory.
static json_t *flatten(const json_t *row) {
    json_t *flat = json_object(), *value, *inner;
    const char *key, *below;
    json_object_foreach((json_t *)(uintptr_t)row, key, value) {
        if (!json_is_object(value) && !json_is_array(value)) {
            (void)json_object_set(flat, key, value);
        }
        json_object_foreach(value, below, inner) {
            char name[96];
            snprintf(name, sizeof(name), "%.40s %.40s", key, below);
            if (!json_is_object(inner) && !json_is_array(inner)) {
                (void)json_object_set(flat, name, inner);
            }
        }
    }
    return flat;
}

// Columns are what any row has; a row without one has an empty cell there.
void kiln_report_rows(struct kiln_report *report, const struct kiln_report_source *source) {
    const json_t *rows = rows_of(source->document), *row;
    json_t *flat = json_array(), *all = json_object(), *value;
    const char *columns[32], *key;
    size_t i, n = 0;
    json_array_foreach(rows, i, row) {
        json_t *one = flatten(row);
        (void)json_object_update_missing(all, one);
        (void)json_array_append_new(flat, one);
    }
    json_object_foreach(all, key, value) {
        if (n < sizeof(columns) / sizeof(columns[0])) {
            columns[n++] = key;
        }
    }
    struct kiln_section *section =
            n > 0 ? kiln_report_section(report, "Figures", columns, n) : NULL;
    if (section) {
        kiln_report_note(section, source);
    }
    json_array_foreach(flat, i, row) {
        for (size_t c = 0; section && c < n; c++) {
            any_cell(&section->table, json_object_get(row, columns[c]));
        }
    }
    json_decref(flat);
    json_decref(all);
}
