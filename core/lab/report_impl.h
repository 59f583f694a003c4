// report_impl: what the parts of a report share: tables, pictures, sections.
#ifndef KILN_LAB_REPORT_IMPL_H
#define KILN_LAB_REPORT_IMPL_H

#include "lab/report.h"

#include <stddef.h>

enum {
    KILN_REPORT_WIDTH = 360, // of a picture, in its own units: a phone's width in points
    KILN_REPORT_COLORS = 8
};

// Cells in rows of n_columns; a header first. Zeroed: none.
struct kiln_table {
    char **cells;
    size_t n_columns, n, cap;
    int failed;
};

struct kiln_section {
    char *title;
    struct kiln_buf note;    // a sentence under the title
    struct kiln_buf picture; // an svg element, or empty
    struct kiln_table table;
};

struct kiln_report {
    char *title;
    struct kiln_section *sections;
    size_t n, cap;
    int failed; // a section could not be made: no memory
};

// A new section at the end, until the next call; NULL: no memory. columns: the table's header.
struct kiln_section *kiln_report_section(
        struct kiln_report *report, const char *title, const char *const *columns, size_t n);

// The next cell, row by row. Returns its text (valid as long as the table), "" without memory: what
// a picture shows of a figure is this very text.
const char *kiln_table_cell(struct kiln_table *table, const char *fmt, ...) KILN_PRINTF(2, 3);

// Text for HTML: markup escaped, control characters replaced.
void kiln_html_text(struct kiln_buf *out, const char *text);

// Pictures. Lengths in the picture's units; `text` is escaped. A label's class "f" says that it is
// a figure of the table.
void kiln_svg_begin(struct kiln_buf *svg, double height, const char *what);
void kiln_svg_end(struct kiln_buf *svg);
void kiln_svg_label(struct kiln_buf *svg, double x, double y, const char *anchor, int is_figure,
        const char *text);
// A rectangle of colour `color` (0 … KILN_REPORT_COLORS - 1) with a tip of figures on it.
void kiln_svg_rect(struct kiln_buf *svg, double x, double y, double width, double height, int color,
        double opacity, const char *tip);

// One kind of document each; the document's own members are looked at, not the envelope's.
struct kiln_report_source {
    const char *name;              // of the file
    const char *device, *grade;    // "" where not known
    const struct json_t *document; // the result
    const char *keys;              // of a sweep
};
typedef void (*kiln_report_fn)(struct kiln_report *report, const struct kiln_report_source *source);
void kiln_report_wall(struct kiln_report *report, const struct kiln_report_source *source);
void kiln_report_ab(struct kiln_report *report, const struct kiln_report_source *source);
void kiln_report_audit(struct kiln_report *report, const struct kiln_report_source *source);
void kiln_report_op(struct kiln_report *report, const struct kiln_report_source *source);
void kiln_report_sweep(struct kiln_report *report, const struct kiln_report_source *source);
void kiln_report_ledger(struct kiln_report *report, const struct kiln_report_source *source);
void kiln_report_gate(struct kiln_report *report, const struct kiln_report_source *source);
void kiln_report_rows(struct kiln_report *report, const struct kiln_report_source *source);

// Under a section's title: the file, the device, the grade.
void kiln_report_note(struct kiln_section *section, const struct kiln_report_source *source);
// The colour of a slot, the same in all pictures.
int kiln_report_color(const char *slot);

// A geometry's keys, "FA_TQ=64 FA_TKV=32", appended; `before` stands in front of the first.
// (report_kernels.c)
void kiln_report_put_geometry(
        struct kiln_buf *out, const struct json_t *geometry, const char *before);

// How a problem of a sweep ended, as a phrase appended to a note; nothing where it names no winner.
// And the final as a section, where one was played; `what`: slot and problem. (report_final.c)
void kiln_report_outcome(struct kiln_buf *text, const struct json_t *problem);
void kiln_report_final(struct kiln_report *report, const struct kiln_report_source *source,
        const struct json_t *problem, const char *what);

// The candidates of a sweep, wherever its document has them; NULL: none. (report_sweep.c)
const struct json_t *kiln_report_candidates(const struct json_t *document);

#endif
