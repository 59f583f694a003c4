// ledger_export: the whole ledger as JSON, CSV or Markdown.
#include "lab/ledger.h"

#include "base/mem.h"
#include "lab/ledger_impl.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

// Of both kinds of entries; a key that a row has not is an empty field.
static const char *const columns[] = {"what", "id", "name", "date", "kind", "verdict", "why",
        "device", "driver", "grade", "title", "slot", "mechanism", "retry", "note", "provenance",
        "figures", "results", "kiln", "sources"};
static const char *const experiment_columns[] = {
        "name", "date", "verdict", "why", "slot", "title", "retry", "provenance"};
static const char *const result_columns[] = {
        "id", "date", "kind", "verdict", "device", "grade", "title"};

// What a column of a row says, as text, appended; a result's title is its summary.
static void cell(const json_t *row, const char *column, struct kiln_buf *text) {
    const json_t *value = json_object_get(row, column);
    if (!value && strcmp(column, "title") == 0) {
        value = json_object_get(row, "summary");
    }
    if (json_is_string(value)) {
        kiln_buf_puts(text, json_string_value(value));
    } else if (value && !json_is_null(value)) {
        char *dump = kiln_json_dump(value, JSON_COMPACT | JSON_ENCODE_ANY);
        kiln_buf_puts(text, dump ? dump : "");
        text->failed |= !dump;
        kiln_free(dump);
    }
}

// ---- CSV ----------------------------------------------------------------------------------------

static void csv_field(const char *value, struct kiln_buf *text) {
    if (!strpbrk(value, ",\"\r\n")) {
        kiln_buf_puts(text, value);
        return;
    }
    kiln_buf_puts(text, "\"");
    for (const char *c = value; *c; c++) {
        kiln_buf_printf(text, *c == '"' ? "\"%c" : "%c", *c);
    }
    kiln_buf_puts(text, "\"");
}

static void csv_rows(const json_t *rows, const char *what, struct kiln_buf *text) {
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        kiln_buf_puts(text, what);
        for (size_t c = 1; c < sizeof(columns) / sizeof(columns[0]); c++) {
            struct kiln_buf one = {0};
            cell(row, columns[c], &one);
            kiln_buf_puts(text, ",");
            csv_field(one.data ? one.data : "", text);
            text->failed |= one.failed;
            kiln_buf_finish(&one);
        }
        kiln_buf_puts(text, "\r\n");
    }
}

static void csv(const json_t *experiments, const json_t *results, struct kiln_buf *text) {
    for (size_t c = 0; c < sizeof(columns) / sizeof(columns[0]); c++) {
        kiln_buf_printf(text, "%s%s", c ? "," : "", columns[c]);
    }
    kiln_buf_puts(text, "\r\n");
    csv_rows(experiments, "experiment", text);
    csv_rows(results, "result", text);
}

// ---- Markdown -----------------------------------------------------------------------------------

void kiln_markdown_cell(const char *value, struct kiln_buf *text) {
    for (const char *c = value; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) {
            kiln_buf_puts(text, " ");
        } else if (strchr("|\\<>`*_[]", *c)) {
            kiln_buf_printf(text, "\\%c", *c);
        } else {
            kiln_buf_append(text, c, 1);
        }
    }
}

static void markdown_table(
        const json_t *rows, const char *const *names, size_t n, struct kiln_buf *text) {
    size_t i;
    const json_t *row;
    for (size_t c = 0; c < n; c++) {
        kiln_buf_printf(text, "| %s ", names[c]);
    }
    kiln_buf_puts(text, "|\n");
    for (size_t c = 0; c < n; c++) {
        kiln_buf_puts(text, "| --- ");
    }
    kiln_buf_puts(text, "|\n");
    json_array_foreach(rows, i, row) {
        for (size_t c = 0; c < n; c++) {
            struct kiln_buf one = {0};
            cell(row, names[c], &one);
            kiln_buf_puts(text, "| ");
            kiln_markdown_cell(one.data ? one.data : "", text);
            kiln_buf_puts(text, " ");
            text->failed |= one.failed;
            kiln_buf_finish(&one);
        }
        kiln_buf_puts(text, "|\n");
    }
}

static void markdown(const json_t *experiments, const json_t *results, struct kiln_buf *text) {
    kiln_buf_printf(text, "## Experiments: %zu\n\n", json_array_size(experiments));
    markdown_table(experiments, experiment_columns,
            sizeof(experiment_columns) / sizeof(experiment_columns[0]), text);
    kiln_buf_printf(text, "\n## Results: %zu\n\n", json_array_size(results));
    markdown_table(
            results, result_columns, sizeof(result_columns) / sizeof(result_columns[0]), text);
}

// ---- All ----------------------------------------------------------------------------------------

static void write_json(json_t *experiments, json_t *results, struct kiln_buf *text) {
    json_t *whole = json_pack("{s:O, s:O}", "experiments", experiments, "results", results);
    char *dump = whole ? kiln_json_dump(whole, JSON_INDENT(2)) : NULL;
    kiln_buf_printf(text, "%s\n", dump ? dump : "");
    text->failed |= !dump;
    kiln_free(dump);
    json_decref(whole);
}

enum kiln_status kiln_ledger_export(struct kiln_ledger *ledger, enum kiln_ledger_format format,
        struct kiln_buf *text, struct kiln_err *err) {
    const struct kiln_ledger_filter filter = {.with_document = format == KILN_LEDGER_JSON};
    json_t *experiments = NULL, *results = NULL;
    enum kiln_status status = kiln_ledger_experiments(ledger, &filter, &experiments, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_ledger_results(ledger, &filter, &results, err);
    }
    if (status == KILN_STATUS_OK) {
        switch (format) {
        case KILN_LEDGER_JSON:
            write_json(experiments, results, text);
            break;
        case KILN_LEDGER_CSV:
            csv(experiments, results, text);
            break;
        case KILN_LEDGER_MARKDOWN:
            markdown(experiments, results, text);
            break;
        }
        status = text->failed ? kiln_err_nomem(err, "the export") : KILN_STATUS_OK;
    }
    json_decref(experiments);
    json_decref(results);
    return status;
}
