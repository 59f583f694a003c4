// report: any results as one page: HTML that needs nothing else (no network, no script), or text.
//
// A page is a row of sections. Each is a table, and where that helps a picture (inline SVG) whose
// every figure is in the table, written alike. What a name or a text holds is escaped.
#ifndef KILN_LAB_REPORT_H
#define KILN_LAB_REPORT_H

#include "base/buf.h"
#include "base/status.h"

struct json_t;
struct kiln_report;

// The caller ends *report with kiln_report_destroy.
KILN_MUST_CHECK enum kiln_status kiln_report_create(
        struct kiln_report **report, const char *title, struct kiln_err *err);
void kiln_report_destroy(struct kiln_report *report); // NULL is fine

// A document by its content: what --save wrote (lab/save.h) or what --json printed, of wall, ab,
// `ab --history`, audit, tune, gate, op or bench; a sweep in the T4 schema; an exported ledger. One
// that is none of these is KILN_STATUS_FILE. name: what the page calls it. keys: "A,B", the two
// keys that a sweep is drawn over; NULL: those with the most values. The document is borrowed and
// not kept.
KILN_MUST_CHECK enum kiln_status kiln_report_add(struct kiln_report *report, const char *name,
        const struct json_t *document, const char *keys, struct kiln_err *err);

// Both append to *page. A kind's sections stand together, in the order in which they were added.
KILN_MUST_CHECK enum kiln_status kiln_report_html(
        const struct kiln_report *report, struct kiln_buf *page, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_report_text(
        const struct kiln_report *report, struct kiln_buf *page, struct kiln_err *err);

#endif
