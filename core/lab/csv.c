// csv: splits a file in place.
#include "lab/csv.h"

#include "base/file.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_FILE = 1 << 28,
    MAX_FIELDS = 1 << 14
};

struct cursor {
    const char *path;
    char *at;
    unsigned line;
    const char **fields; // of the row at hand, (MAX_FIELDS)
    size_t n;
};

static enum kiln_status fail(
        const struct cursor *c, unsigned line, const char *what, struct kiln_err *err) {
    return kiln_err_set(err, KILN_STATUS_FILE, "%s:%u: %s: no CSV", c->path, line, what);
}

// The field in quotes at c->at, unquoted in place; c->at is moved behind the closing quote.
static enum kiln_status quoted(struct cursor *c, struct kiln_err *err) {
    const unsigned from = c->line;
    char *to = c->at, *read = c->at + 1;
    c->fields[c->n++] = to;
    for (;; read++) {
        if (*read == '\0') {
            return fail(c, from, "a quote that does not end", err);
        }
        if (*read == '"' && read[1] != '"') {
            break;
        }
        read += *read == '"';
        c->line += *read == '\n';
        *to++ = *read;
    }
    c->at = read + 1;
    if (*c->at && *c->at != ',' && *c->at != '\n' && *c->at != '\r') {
        return fail(c, c->line, "something stands behind a closing quote", err);
    }
    *to = '\0'; // at most where the closing quote was
    return KILN_STATUS_OK;
}

// One row; c->at is moved behind its end.
static enum kiln_status row_fields(struct cursor *c, struct kiln_err *err) {
    for (c->n = 0;;) {
        if (c->n == MAX_FIELDS) {
            return fail(c, c->line, "more than 16384 fields in a row", err);
        }
        if (*c->at == '"') {
            KILN_TRY(quoted(c, err));
        } else {
            c->fields[c->n++] = c->at;
            c->at += strcspn(c->at, ",\r\n");
        }
        const char end = *c->at;
        *c->at = '\0';
        c->at += end != '\0';
        if (end == '\r' && *c->at == '\n') {
            c->at++;
        }
        if (end != ',') {
            c->line += end != '\0';
            return KILN_STATUS_OK;
        }
    }
}

static enum kiln_status keep_row(
        struct kiln_csv *csv, const struct cursor *c, unsigned line, struct kiln_err *err) {
    if (c->n == 1 && c->fields[0][0] == '\0') {
        return KILN_STATUS_OK; // blank
    }
    const char **fields = kiln_alloc(c->n * sizeof(*fields));
    if (!fields || kiln_grow(&csv->rows, &csv->cap, csv->n + 1, sizeof(*csv->rows)) != 0) {
        kiln_free(fields);
        return kiln_err_nomem(err, "a CSV file");
    }
    memcpy(fields, c->fields, c->n * sizeof(*fields));
    csv->rows[csv->n++] = (struct kiln_csv_row){.fields = fields, .n = c->n, .line = line};
    return KILN_STATUS_OK;
}

static enum kiln_status split(struct kiln_csv *csv, struct cursor *c, struct kiln_err *err) {
    while (*c->at) {
        const unsigned line = c->line;
        if (strncmp(c->at, "==", 2) == 0) {
            c->at += strcspn(c->at, "\n");
            c->at += *c->at == '\n';
            c->line++;
            continue;
        }
        KILN_TRY(row_fields(c, err));
        KILN_TRY(keep_row(csv, c, line, err));
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_csv_read(const char *path, struct kiln_csv *csv, struct kiln_err *err) {
    size_t size;
    *csv = (struct kiln_csv){0};
    KILN_TRY(kiln_file_read(path, MAX_FILE, &csv->text, &size, err));
    struct cursor c = {.path = path, .at = csv->text, .line = 1};
    if (strlen(csv->text) != size) {
        return fail(&c, 1, "it holds a NUL byte", err);
    }
    if (strncmp(c.at, "\xef\xbb\xbf", 3) == 0) {
        c.at += 3; // a byte order mark
    }
    c.fields = kiln_alloc(MAX_FIELDS * sizeof(*c.fields));
    enum kiln_status status = c.fields ? split(csv, &c, err) : kiln_err_nomem(err, "a CSV file");
    kiln_free(c.fields);
    return status;
}

void kiln_csv_finish(struct kiln_csv *csv) {
    for (size_t i = 0; i < csv->n; i++) {
        kiln_free(csv->rows[i].fields);
    }
    kiln_free(csv->rows);
    kiln_free(csv->text);
    *csv = (struct kiln_csv){0};
}

int kiln_csv_column(const struct kiln_csv_row *header, const char *name) {
    for (size_t i = 0; i < header->n; i++) {
        if (strcmp(header->fields[i], name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

int kiln_csv_number(const char *field, double *value) {
    char digits[64], *end;
    size_t n = 0;
    for (const char *at = field; *at; at++) {
        if (*at == ',') {
            continue;
        }
        if (n + 1 == sizeof(digits)) {
            return 0;
        }
        digits[n++] = *at;
    }
    digits[n] = '\0';
    *value = strtod(digits, &end);
    return end != digits && (*end == '\0' || strcmp(end, "%") == 0) && isfinite(*value);
}
