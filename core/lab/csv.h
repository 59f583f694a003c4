// csv: comma-separated values as profilers write them (RFC 4180): quoted fields may hold commas,
// line ends and doubled quotes.
#ifndef KILN_LAB_CSV_H
#define KILN_LAB_CSV_H

#include "base/status.h"

#include <stddef.h>

struct kiln_csv_row {
    const char **fields;
    size_t n;
    unsigned line; // of the file, where it begins
};

struct kiln_csv {
    char *text; // the fields point into it
    struct kiln_csv_row *rows;
    size_t n, cap;
};

// Reads a file; blank lines and lines that begin with "==" (a profiler's own words) are left out.
// KILN_STATUS_FILE: a quote that does not end, bytes behind a closing quote, a NUL byte; with the
// line. The caller ends *csv with kiln_csv_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_csv_read(
        const char *path, struct kiln_csv *csv, struct kiln_err *err);
void kiln_csv_finish(struct kiln_csv *csv); // a zeroed one is fine

// The column of a header row with this name, -1: none.
int kiln_csv_column(const struct kiln_csv_row *header, const char *name);

// A field as a number: "1,234.5" (thousands) and "12.5%" are fine. 0: it is none.
int kiln_csv_number(const char *field, double *value);

#endif
