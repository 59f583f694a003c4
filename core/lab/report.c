// report: sections, and how they are written as a page.
#include "lab/report.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "lab/ledger_impl.h"
#include "lab/report_impl.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// Takes out of a text what is left of characters that were cut.
static void drop_cut(char *text) {
    size_t left = strlen(text), kept = 0;
    for (size_t at = 0; left > 0;) {
        int len = kiln_utf8_len(text + at, left);
        size_t step = len > 0 ? (size_t)len : 1;
        memmove(text + kept, text + at, step);
        kept += len > 0 ? step : 0;
        at += step;
        left -= step;
    }
    text[kept] = '\0';
}

// ---- Tables -------------------------------------------------------------------------------------

static const char *keep_cell(struct kiln_table *table, char *text) {
    if (!text || kiln_grow(&table->cells, &table->cap, table->n + 1, sizeof(*table->cells)) != 0) {
        kiln_free(text);
        table->failed = 1;
        return "";
    }
    table->cells[table->n++] = text;
    return text;
}

const char *kiln_table_cell(struct kiln_table *table, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    drop_cut(text);
    return keep_cell(table, kiln_strdup(text));
}

// ---- Sections -----------------------------------------------------------------------------------

struct kiln_section *kiln_report_section(
        struct kiln_report *report, const char *title, const char *const *columns, size_t n) {
    char *copy = kiln_strdup(title);
    if (!copy || kiln_grow(&report->sections, &report->cap, report->n + 1,
                         sizeof(*report->sections)) != 0) {
        kiln_free(copy);
        report->failed = 1;
        return NULL;
    }
    drop_cut(copy);
    struct kiln_section *section = &report->sections[report->n++];
    *section = (struct kiln_section){.title = copy, .table = {.n_columns = n}};
    for (size_t i = 0; i < n; i++) {
        (void)kiln_table_cell(&section->table, "%s", columns[i]);
    }
    return section;
}

enum kiln_status kiln_report_create(
        struct kiln_report **report, const char *title, struct kiln_err *err) {
    *report = kiln_calloc(1, sizeof(**report));
    char *copy = kiln_strdup(title);
    if (!*report || !copy) {
        kiln_free(copy);
        kiln_free(*report);
        *report = NULL;
        return kiln_err_nomem(err, "the report");
    }
    (*report)->title = copy;
    return KILN_STATUS_OK;
}

void kiln_report_destroy(struct kiln_report *report) {
    for (size_t i = 0; report && i < report->n; i++) {
        struct kiln_section *section = &report->sections[i];
        for (size_t c = 0; c < section->table.n; c++) {
            kiln_free(section->table.cells[c]);
        }
        kiln_free(section->table.cells);
        kiln_free(section->title);
        kiln_buf_finish(&section->note);
        kiln_buf_finish(&section->picture);
    }
    if (report) {
        kiln_free(report->sections);
        kiln_free(report->title);
        kiln_free(report);
    }
}

// ---- Documents ----------------------------------------------------------------------------------

static const json_t *rows_of(const json_t *document) {
    const json_t *rows = json_is_array(document) ? document : json_object_get(document, "rows");
    return json_is_array(rows) ? rows : NULL;
}

static kiln_report_fn kind_of(const json_t *document) {
    const json_t *first = json_array_get(rows_of(document), 0);
    if (json_is_array(json_object_get(document, "experiments"))) {
        return kiln_report_ledger;
    }
    if (json_is_array(json_object_get(document, "slices"))) {
        return kiln_report_wall;
    }
    if (json_is_array(json_object_get(document, "kernels")) ||
            json_is_array(json_object_get(document, "diff"))) {
        return kiln_report_audit;
    }
    const json_t *op = json_array_get(json_object_get(document, "results"), 0);
    if (json_is_string(json_object_get(op, "shape"))) {
        return kiln_report_op;
    }
    if (json_is_string(json_object_get(document, "gate"))) {
        return kiln_report_gate;
    }
    if (json_is_array(json_object_get(document, "pairs")) ||
            json_is_array(json_object_get(first, "pairs"))) {
        return kiln_report_ab;
    }
    if (kiln_report_candidates(document)) {
        return kiln_report_sweep;
    }
    return json_is_object(first) ? kiln_report_rows : NULL;
}

enum kiln_status kiln_report_add(struct kiln_report *report, const char *name,
        const struct json_t *document, const char *keys, struct kiln_err *err) {
    const json_t *result =
            json_object_get(document, "kiln") ? json_object_get(document, "result") : NULL;
    struct kiln_report_source source = {.name = name,
            .device = kiln_json_string(document, "device", ""),
            .grade = kiln_json_string(document, "grade", ""),
            .document = result ? result : document,
            .keys = keys};
    kiln_report_fn add = kind_of(source.document);
    if (!add) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: no result that a report can show: what --save or --json of wall, ab, audit, "
                "tune, gate, op or bench wrote, a sweep in the T4 schema, or an exported ledger",
                name);
    }
    size_t before = report->n;
    add(report, &source);
    int failed = report->failed;
    for (size_t i = before; i < report->n; i++) {
        const struct kiln_section *s = &report->sections[i];
        failed |= s->table.failed || s->note.failed || s->picture.failed;
    }
    if (failed) {
        return kiln_err_nomem(err, "the report");
    }
    return report->n > before ? KILN_STATUS_OK
                              : kiln_err_set(err, KILN_STATUS_FILE, "%s: no figures in it", name);
}

// ---- HTML ---------------------------------------------------------------------------------------

static void html_char(struct kiln_buf *out, char c) {
    switch (c) {
    case '&':
        kiln_buf_puts(out, "&amp;");
        break;
    case '<':
        kiln_buf_puts(out, "&lt;");
        break;
    case '>':
        kiln_buf_puts(out, "&gt;");
        break;
    case '"':
        kiln_buf_puts(out, "&quot;");
        break;
    case '\'':
        kiln_buf_puts(out, "&#39;");
        break;
    default:
        kiln_buf_append(out, (unsigned char)c < ' ' || c == 0x7f ? " " : &c, 1);
    }
}

void kiln_html_text(struct kiln_buf *out, const char *text) {
    size_t left = strlen(text);
    while (left > 0) {
        // Of a character that was cut, nothing is shown.
        int len = kiln_utf8_len(text, left);
        if (len > 1) {
            kiln_buf_append(out, text, (size_t)len);
        } else if (len == 1) {
            html_char(out, *text);
        }
        text += len > 0 ? len : 1;
        left -= len > 0 ? (size_t)len : 1;
    }
}

static const char style[] =
        ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#667080;--line:#d5dae0;"
        "--c0:#3b6fb6;--c1:#d9822b;--c2:#4a9a5b;--c3:#b6484f;--c4:#7d5fb2;--c5:#8a6d4b;--c6:#"
        "c165a5;"
        "--c7:#7b8591}"
        "@media(prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e4e7eb;--dim:#98a2b0;"
        "--line:#363c45;--c0:#7aa7e6;--c1:#eda75f;--c2:#7fc48d;--c3:#e0848a;--c4:#ad93dd;"
        "--c5:#bd9f7b;--c6:#e09cc9;--c7:#a3adba}}"
        "*{box-sizing:border-box}"
        "body{margin:0 auto;padding:1rem;max-width:60rem;background:var(--bg);color:var(--fg);"
        "font:1rem/1.45 system-ui,sans-serif}"
        "h1{font-size:1.4rem}h2{font-size:1.1rem;margin:2rem 0 .3rem;overflow-wrap:anywhere}"
        "p{color:var(--dim);margin:.2rem 0 .6rem;overflow-wrap:anywhere}"
        "svg{display:block;width:100%;max-width:36rem;height:auto}"
        "svg text{font:11px system-ui,sans-serif;fill:var(--fg);paint-order:stroke;"
        "stroke:var(--bg);stroke-width:2.5px;stroke-opacity:.7;stroke-linejoin:round}"
        "svg .l{stroke:var(--line)}svg .z{stroke:var(--dim)}"
        ".t{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem}"
        "th,td{padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--line);text-align:left;"
        "vertical-align:top}td.w{min-width:9rem}td.n{text-align:right;font-variant-numeric:tabular-"
        "nums;"
        "white-space:nowrap}";

// Whether a cell is set like a number.
static int is_number(const char *text) {
    return *text && strspn(text, "+-.0123456789e %") == strlen(text);
}

// A cell of several words keeps some width on a phone, where tables are wider than the screen
// anyway.
static const char *cell_class(const char *text) {
    return is_number(text) ? "<td class=\"n\">" : strlen(text) > 16 ? "<td class=\"w\">" : "<td>";
}

static void html_table(const struct kiln_table *table, struct kiln_buf *page) {
    kiln_buf_puts(page, "<div class=\"t\"><table>\n");
    for (size_t i = 0; i < table->n; i++) {
        size_t column = i % table->n_columns;
        int head = i < table->n_columns;
        kiln_buf_puts(page, column == 0 ? "<tr>" : "");
        kiln_buf_puts(page, head ? "<th>" : cell_class(table->cells[i]));
        kiln_html_text(page, table->cells[i]);
        kiln_buf_puts(page, head ? "</th>" : "</td>");
        kiln_buf_puts(page, column + 1 == table->n_columns ? "</tr>\n" : "");
    }
    kiln_buf_puts(page, "</table></div>\n");
}

enum kiln_status kiln_report_html(
        const struct kiln_report *report, struct kiln_buf *page, struct kiln_err *err) {
    kiln_buf_puts(page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
                        "'none'; style-src 'unsafe-inline'\">\n<title>");
    kiln_html_text(page, report->title);
    kiln_buf_printf(page, "</title>\n<style>%s</style>\n</head>\n<body>\n<h1>", style);
    kiln_html_text(page, report->title);
    kiln_buf_puts(page, "</h1>\n");
    for (size_t i = 0; i < report->n; i++) {
        const struct kiln_section *section = &report->sections[i];
        kiln_buf_puts(page, "<section>\n<h2>");
        kiln_html_text(page, section->title);
        kiln_buf_puts(page, "</h2>\n<p>");
        kiln_html_text(page, section->note.data ? section->note.data : "");
        kiln_buf_puts(page, "</p>\n");
        kiln_buf_puts(page, section->picture.data ? section->picture.data : "");
        html_table(&section->table, page);
        kiln_buf_puts(page, "</section>\n");
    }
    kiln_buf_puts(page, "</body>\n</html>\n");
    return page->failed ? kiln_err_nomem(err, "the report") : KILN_STATUS_OK;
}

// ---- Text ---------------------------------------------------------------------------------------

enum kiln_status kiln_report_text(
        const struct kiln_report *report, struct kiln_buf *page, struct kiln_err *err) {
    kiln_buf_printf(page, "# %s\n", report->title);
    for (size_t i = 0; i < report->n; i++) {
        const struct kiln_section *section = &report->sections[i];
        const struct kiln_table *table = &section->table;
        kiln_buf_printf(page, "\n## %s\n\n", section->title);
        if (section->note.len > 0) {
            kiln_buf_printf(page, "%s\n\n", section->note.data);
        }
        for (size_t c = 0; c < table->n; c++) {
            size_t column = c % table->n_columns;
            kiln_buf_puts(page, "| ");
            kiln_markdown_cell(table->cells[c], page);
            kiln_buf_puts(page, column + 1 == table->n_columns ? " |\n" : " ");
            for (size_t d = 0; c + 1 == table->n_columns && d < table->n_columns; d++) {
                kiln_buf_puts(page, d + 1 == table->n_columns ? "| --- |\n" : "| --- ");
            }
        }
    }
    return page->failed ? kiln_err_nomem(err, "the report") : KILN_STATUS_OK;
}

// ---- Pictures -----------------------------------------------------------------------------------

void kiln_svg_begin(struct kiln_buf *svg, double height, const char *what) {
    kiln_buf_printf(svg, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"",
            KILN_REPORT_WIDTH, height);
    kiln_html_text(svg, what);
    kiln_buf_puts(svg, "\">\n");
}

void kiln_svg_end(struct kiln_buf *svg) {
    kiln_buf_puts(svg, "</svg>\n");
}

void kiln_svg_label(struct kiln_buf *svg, double x, double y, const char *anchor, int is_figure,
        const char *text) {
    kiln_buf_printf(svg, "<text%s x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">",
            is_figure ? " class=\"f\"" : "", x, y, anchor);
    kiln_html_text(svg, text);
    kiln_buf_puts(svg, "</text>\n");
}

void kiln_svg_rect(struct kiln_buf *svg, double x, double y, double width, double height, int color,
        double opacity, const char *tip) {
    kiln_buf_printf(svg,
            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"var(--c%d)\" "
            "fill-opacity=\"%.2f\"><title>",
            x, y, width > 0 ? width : 0, height, color, opacity);
    kiln_html_text(svg, tip);
    kiln_buf_puts(svg, "</title></rect>\n");
}
