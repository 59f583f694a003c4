// report_final: how a sweep ended: what the fastest did against what is bound, interleaved in one
// process, and which configuration is the winner. Not here: what was measured on the way
// (report_sweep.c).
#include "lab/report_impl.h"

#include "lab/ledger_impl.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

// "tiles FA_TKV=16"
static void put_candidate(struct kiln_buf *text, const json_t *candidate) {
    kiln_buf_puts(text, kiln_json_string(candidate, "variant", "?"));
    kiln_report_put_geometry(text, json_object_get(candidate, "geometry"), " ");
}

static int is_same(const json_t *a, const json_t *b) {
    return strcmp(kiln_json_string(a, "variant", "a"), kiln_json_string(b, "variant", "b")) == 0 &&
           json_equal(json_object_get(a, "geometry"), json_object_get(b, "geometry"));
}

void kiln_report_outcome(struct kiln_buf *text, const struct json_t *problem) {
    const json_t *winner = json_object_get(problem, "winner"), *final, *one;
    size_t i;
    if (!winner) {
        return; // another tuner's sweep, which names none
    }
    if (!json_is_object(winner)) {
        kiln_buf_puts(text, "; no winner: no final was played");
        return;
    }
    int kept = json_is_true(json_object_get(winner, "kept"));
    kiln_buf_puts(text, kept ? "; kept: " : "; winner: ");
    put_candidate(text, winner);
    final = json_object_get(problem, "final");
    json_array_foreach(final, i, one) {
        if (!kept && i > 0 && is_same(one, winner)) {
            kiln_buf_printf(text, ", %+.2f %% against what was bound",
                    kiln_json_double(one, "median_pct", 0));
        }
    }
    if (kept) {
        kiln_buf_puts(text, ", which is bound: nothing is faster beyond noise and bar");
    }
}

static void final_row(
        struct kiln_table *table, const json_t *one, const json_t *winner, int first) {
    struct kiln_buf name = {0};
    const json_t *interval = json_object_get(one, "interval_pct");
    const char *tied = json_is_true(json_object_get(one, "tied")) ? ", tied" : "";
    put_candidate(&name, one);
    table->failed |= name.failed;
    (void)kiln_table_cell(table, "%s", name.data ? name.data : "");
    kiln_buf_finish(&name);
    (void)kiln_table_cell(table, "%.2f", kiln_json_double(one, "us", 0));
    if (first) {
        for (int i = 0; i < 3; i++) {
            (void)kiln_table_cell(table, "%s", "");
        }
    } else {
        (void)kiln_table_cell(table, "%+.2f", kiln_json_double(one, "median_pct", 0));
        (void)kiln_table_cell(table, "%+.2f to %+.2f",
                json_number_value(json_array_get(interval, 0)),
                json_number_value(json_array_get(interval, 1)));
        (void)kiln_table_cell(table, "%.2f", kiln_json_double(one, "noise_pct", 0));
    }
    (void)kiln_table_cell(table, "%s%s%s", kiln_json_string(one, "verdict", "?"), tied,
            !is_same(one, winner) ? ""
            : first               ? ", kept"
                                  : ", winner");
}

void kiln_report_final(struct kiln_report *report, const struct kiln_report_source *source,
        const struct json_t *problem, const char *what) {
    static const char *const columns[] = {
            "candidate", "us a call", "change %", "interval %", "noise %", "verdict"};
    const json_t *final = json_object_get(problem, "final"), *one;
    char title[200];
    size_t i;
    if (json_array_size(final) == 0) {
        return;
    }
    snprintf(title, sizeof(title), "Final of %.180s", what);
    struct kiln_section *section = kiln_report_section(report, title, columns, 6);
    if (!section) {
        return;
    }
    kiln_report_note(section, source);
    kiln_buf_puts(&section->note, ", interleaved in one process");
    kiln_report_outcome(&section->note, problem);
    json_array_foreach(final, i, one) {
        final_row(&section->table, one, json_object_get(problem, "winner"), i == 0);
    }
}
