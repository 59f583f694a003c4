// report_kernels: sections of single kernels: what an audit says of their occupancy, against the
// tile, and how long op measured them. Not here: results of whole runs (report_kinds.c).
#include "lab/report_impl.h"

#include "base/utf8.h"
#include "lab/ledger_impl.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum {
    TIP = 320,
    LABEL = 53,                   // characters that fit the width, and the end
    BARS = KILN_REPORT_WIDTH - 70 // as wide as the longest bar
};

// ---- Geometry -----------------------------------------------------------------------------------

static void add_key(
        struct kiln_buf *out, const char *before, const char *key, const json_t *value) {
    if (json_is_string(value)) {
        kiln_buf_printf(out, "%s%s=%s", before, key, json_string_value(value));
    } else {
        kiln_buf_printf(out, "%s%s=%.10g", before, key, json_number_value(value));
    }
}

void kiln_report_put_geometry(
        struct kiln_buf *out, const struct json_t *geometry, const char *before) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)geometry, key, value) {
        add_key(out, before, key, value);
        before = " ";
    }
}

static void keep_text(struct kiln_buf *from, char *text, size_t size) {
    snprintf(text, size, "%.*s", (int)size - 1, from->data ? from->data : "");
    kiln_utf8_trim(text);
    kiln_buf_finish(from);
}

static void geometry_text(const json_t *geometry, char *text, size_t size) {
    struct kiln_buf out = {0};
    kiln_report_put_geometry(&out, geometry, "");
    keep_text(&out, text, size);
}

// Whether another of the list's kernels of this variant has the key with another value.
static int differs(const json_t *list, const char *variant, const char *key, const json_t *value) {
    size_t i;
    const json_t *one;
    json_array_foreach(list, i, one) {
        const json_t *other = json_object_get(json_object_get(one, "geometry"), key);
        if (other && !json_equal(other, value) &&
                strcmp(kiln_json_string(one, "variant", "?"), variant) == 0) {
            return 1;
        }
    }
    return 0;
}

// The keys in which the list's kernels of a variant differ; where they do not, the first few.
static void tile_text(const json_t *list, const json_t *kernel, char *text, size_t size) {
    struct kiln_buf out = {0};
    const char *key;
    json_t *value, *geometry = json_object_get(kernel, "geometry");
    json_object_foreach(geometry, key, value) {
        if (differs(list, kiln_json_string(kernel, "variant", "?"), key, value)) {
            add_key(&out, out.len ? " " : "", key, value);
        }
    }
    if (out.len == 0) {
        json_object_foreach(geometry, key, value) {
            if (out.len + strlen(key) < 24) {
                add_key(&out, out.len ? " " : "", key, value);
            }
        }
    }
    keep_text(&out, text, size);
}

// A label of four parts, cut where the picture ends.
static void line_of(char label[LABEL], const char *const parts[4]) {
    struct kiln_buf out = {0};
    for (size_t i = 0; i < 4; i++) {
        kiln_buf_printf(&out, "%s%s", i > 0 ? " " : "", parts[i]);
    }
    keep_text(&out, label, LABEL);
}

// ---- Audit --------------------------------------------------------------------------------------

// The variant, and which of its kernels where it has several.
static void kernel_name(const json_t *kernel, char *text, size_t size) {
    struct kiln_buf out = {0};
    const char *variant = kiln_json_string(kernel, "variant", "?");
    const char *name = kiln_json_string(kernel, "kernel", variant);
    kiln_buf_puts(&out, variant);
    if (strcmp(variant, name) != 0) {
        kiln_buf_printf(&out, ": %s", name);
    }
    keep_text(&out, text, size);
}

static void audit_bar(struct kiln_section *section, const json_t *list, const json_t *kernel,
        const char *figure, size_t index) {
    char tile[64], name[128], label[LABEL], tip[TIP];
    struct kiln_buf *svg = &section->picture;
    const char *slot = kiln_json_string(kernel, "slot", "?");
    double y = 14 + 32 * (double)index;
    double width = BARS * kiln_json_double(kernel, "occupancy", 0);
    tile_text(list, kernel, tile, sizeof(tile));
    kernel_name(kernel, name, sizeof(name));
    line_of(label,
            (const char *const[]){kiln_json_string(kernel, "target", "?"), slot, name, tile});
    snprintf(tip, sizeof(tip), "%.160s: %.60s %%", label, figure);
    kiln_svg_label(svg, 4, y, "start", 0, label);
    kiln_svg_rect(svg, 4, y + 3, width, 11, kiln_report_color(slot), 0.9, tip);
    kiln_svg_label(svg, 8 + width, y + 13, "start", 1, figure);
}

static const char *audit_row(struct kiln_table *table, const json_t *kernel) {
    char geometry[200], name[128];
    geometry_text(json_object_get(kernel, "geometry"), geometry, sizeof(geometry));
    kernel_name(kernel, name, sizeof(name));
    (void)kiln_table_cell(table, "%s", kiln_json_string(kernel, "slot", "?"));
    (void)kiln_table_cell(table, "%s", name);
    (void)kiln_table_cell(table, "%s", geometry);
    (void)kiln_table_cell(table, "%s", kiln_json_string(kernel, "target", "?"));
    int known = json_is_number(json_object_get(kernel, "occupancy"));
    const char *figure =
            known ? kiln_table_cell(table, "%.1f", 100 * kiln_json_double(kernel, "occupancy", 0))
                  : kiln_table_cell(table, "not known");
    (void)kiln_table_cell(table, "%.0f", kiln_json_double(kernel, "blocks_per_sm", 0));
    (void)kiln_table_cell(table, "%s", kiln_json_string(kernel, "limiter", ""));
    (void)kiln_table_cell(table, "%.0f", kiln_json_double(kernel, "smem_requested", 0));
    (void)kiln_table_cell(table, "%.0f", kiln_json_double(kernel, "registers", 0));
    (void)kiln_table_cell(table, "%s", kiln_json_string(kernel, "grade", ""));
    return figure;
}

// The kernels of an audit; of one of two configurations, each pair in turn, the base first.
// NULL: no memory.
static json_t *kernels_of(const json_t *document) {
    const json_t *kernels = json_object_get(document, "kernels"), *pair;
    json_t *list = json_array();
    size_t i;
    if (kernels) {
        (void)json_array_extend(list, (json_t *)(uintptr_t)kernels);
        return list;
    }
    json_array_foreach(json_object_get(document, "diff"), i, pair) {
        static const char *const sides[] = {"base", "change"};
        for (size_t s = 0; s < 2; s++) {
            json_t *kernel = json_object_get(pair, sides[s]);
            if (json_is_object(kernel)) {
                (void)json_array_append(list, kernel);
            }
        }
    }
    return list;
}

void kiln_report_audit(struct kiln_report *report, const struct kiln_report_source *source) {
    static const char *const columns[] = {"slot", "variant", "geometry", "target", "occupancy %",
            "blocks/SM", "limiter", "smem B", "registers", "grade"};
    json_t *list = kernels_of(source->document), *kernel;
    struct kiln_section *section =
            json_array_size(list) > 0 || !json_object_get(source->document, "diff")
                    ? kiln_report_section(report, "Occupancy against tile", columns, 10)
                    : NULL;
    size_t i;
    report->failed |= !list;
    if (section) {
        kiln_report_note(section, source);
        kiln_buf_puts(&section->note,
                json_object_get(source->document, "diff")
                        ? "; of each pair the first is the base, the second the change"
                        : "");
        kiln_svg_begin(&section->picture, 4 + 32 * (double)json_array_size(list),
                "occupancy in percent by kernel and tile");
        json_array_foreach(list, i, kernel) {
            audit_bar(section, list, kernel, audit_row(&section->table, kernel), i);
        }
        kiln_svg_end(&section->picture);
    }
    json_decref(list);
}

// ---- Op -----------------------------------------------------------------------------------------

static const char *optional_cell(
        struct kiln_table *table, const json_t *object, const char *key, int digits) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? kiln_table_cell(table, "%.*f", digits, json_number_value(value))
                                 : kiln_table_cell(table, "%s", "");
}

// 0: none was measured.
static double longest_time(const json_t *results) {
    double most = 0;
    size_t i;
    const json_t *one;
    json_array_foreach(results, i, one) {
        double warm = kiln_json_double(json_object_get(one, "warm"), "median_us", 0);
        double cold = kiln_json_double(json_object_get(one, "cold"), "median_us", 0);
        most = warm > most ? warm : most;
        most = cold > most ? cold : most;
    }
    return most;
}

static void op_bar(struct kiln_buf *svg, double y, double part, int color, const char *what,
        const char *figure) {
    char tip[TIP];
    double width = part > 0 ? BARS * part : 0;
    if (!*figure) {
        return;
    }
    snprintf(tip, sizeof(tip), "%.60s: %.60s us", what, figure);
    kiln_svg_rect(svg, 4, y, width, 11, color, 0.9, tip);
    kiln_svg_label(svg, 8 + width, y + 10, "start", 1, figure);
}

// What the text says of parity: passed, FAILED, or not looked at.
static const char *parity_of(const json_t *result) {
    const json_t *passed = json_object_get(json_object_get(result, "parity"), "passed");
    return json_is_true(passed) ? "passed" : json_is_false(passed) ? "FAILED" : "";
}

static void op_row(struct kiln_section *section, const json_t *results, const json_t *one,
        size_t index, double most) {
    char geometry[200], tile[64], label[LABEL];
    struct kiln_table *table = &section->table;
    const json_t *warm = json_object_get(one, "warm"), *cold = json_object_get(one, "cold");
    const char *variant = kiln_json_string(one, "variant", "?");
    double y = 14 + 46 * (double)index;
    geometry_text(json_object_get(one, "geometry"), geometry, sizeof(geometry));
    tile_text(results, one, tile, sizeof(tile));
    const char *shape = kiln_table_cell(table, "%s", kiln_json_string(one, "shape", "?"));
    (void)kiln_table_cell(table, "%s", variant);
    (void)kiln_table_cell(table, "%s", geometry);
    (void)kiln_table_cell(table, "%s", parity_of(one));
    const char *warm_us = optional_cell(table, warm, "median_us", 2);
    const char *cold_us = optional_cell(table, cold, "median_us", 2);
    (void)optional_cell(table, warm, "gb_s", 1);
    (void)optional_cell(table, warm, "memory_pct", 1);
    (void)optional_cell(table, warm, "tflop_s", 3);
    (void)optional_cell(table, warm, "peak_pct", 1);
    (void)kiln_table_cell(table, "%s", kiln_json_string(one, "peak", ""));
    (void)optional_cell(table, one, "warp_instructions", 0);
    if (!*warm_us && !*cold_us) {
        return;
    }
    line_of(label, (const char *const[]){variant, shape, tile, ""});
    kiln_svg_label(&section->picture, 4, y, "start", 0, label);
    op_bar(&section->picture, y + 3, kiln_json_double(warm, "median_us", 0) / most, 0,
            "with a warm L2", warm_us);
    op_bar(&section->picture, y + 16, kiln_json_double(cold, "median_us", 0) / most, 1,
            "with a cold L2", cold_us);
}

void kiln_report_op(struct kiln_report *report, const struct kiln_report_source *source) {
    static const char *const columns[] = {"shape", "variant", "geometry", "parity", "warm us",
            "cold us", "GB/s", "% of memory", "TFLOP/s", "% of peak", "peak", "warp instructions"};
    const json_t *results = json_object_get(source->document, "results"), *one;
    char title[160];
    snprintf(title, sizeof(title), "One kernel: %.120s",
            kiln_json_string(json_array_get(results, 0), "slot", "?"));
    struct kiln_section *section = kiln_report_section(report, title, columns, 12);
    double most = longest_time(results);
    size_t i;
    if (!section) {
        return;
    }
    kiln_report_note(section, source);
    int timed = most > 0;
    if (timed) {
        kiln_buf_puts(&section->note, "; us with a warm L2 above, with a cold one below");
        kiln_svg_begin(&section->picture, 4 + 46 * (double)json_array_size(results), title);
    }
    json_array_foreach(results, i, one) {
        op_row(section, results, one, i, timed ? most : 1);
    }
    if (timed) {
        kiln_svg_end(&section->picture);
    }
}
