// ledger_draft: the page of a round in six sections, from what the ledger has of it.
//
// Every sentence stands on a figure of a result, or says that there is none and which command makes
// one. Whoever publishes the page adds the reasons; the figures stay.
#include "lab/ledger.h"

#include "lab/ledger_impl.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

struct draft {
    const json_t *experiment; // its row
    const json_t *results;    // that judge it, newest first
    const json_t *wall;       // the newest of its models not newer than the last of them, or NULL
    struct kiln_buf *page;
};

static const char *said(const struct draft *d, const char *key) {
    return kiln_json_string(d->experiment, key, NULL);
}

// The i-th result of a kind; NULL past the end.
static const json_t *of_kind(const struct draft *d, const char *kind, size_t index) {
    size_t i;
    const json_t *row;
    json_array_foreach(d->results, i, row) {
        if (strcmp(kiln_json_string(row, "kind", ""), kind) == 0 && index-- == 0) {
            return row;
        }
    }
    return NULL;
}

static void source_of(const struct draft *d, const json_t *row) {
    kiln_buf_printf(d->page, " (%s #%lld, %.10s, %s, %s)", kiln_json_string(row, "kind", "?"),
            (long long)json_integer_value(json_object_get(row, "id")),
            kiln_json_string(row, "date", "?"), kiln_json_string(row, "device", "?"),
            kiln_json_string(row, "grade", "no grade"));
}

static void paragraph(const struct draft *d, const char *key) {
    if (said(d, key)) {
        kiln_buf_printf(d->page, "%s\n\n", said(d, key));
    }
}

static void figures(const struct draft *d) {
    size_t i;
    const json_t *figure, *all = json_object_get(d->experiment, "figures");
    if (json_array_size(all) == 0) {
        return;
    }
    kiln_buf_puts(d->page, "| what | figure | grade |\n| --- | --- | --- |\n");
    json_array_foreach(all, i, figure) {
        const char *unit = kiln_json_string(figure, "unit", "");
        kiln_buf_puts(d->page, "| ");
        kiln_markdown_cell(kiln_json_string(figure, "what", "?"), d->page);
        if (json_object_get(figure, "from")) {
            kiln_buf_printf(d->page, " | %.10g to %.10g", kiln_json_double(figure, "from", 0),
                    kiln_json_double(figure, "to", 0));
        } else {
            kiln_buf_printf(d->page, " | %.10g", kiln_json_double(figure, "value", 0));
        }
        kiln_buf_printf(d->page, "%s%s | %s |\n", *unit ? " " : "", unit,
                kiln_json_string(figure, "grade", "not said"));
    }
    kiln_buf_puts(d->page, "\n");
}

// ---- The sections -------------------------------------------------------------------------------

static void slices(const struct draft *d) {
    size_t i;
    const json_t *slice, *result = json_object_get(d->wall, "result");
    kiln_buf_puts(d->page, "The wall by slice");
    source_of(d, d->wall);
    kiln_buf_printf(d->page, ": %.3f ms.\n\n| slot | ms | share %% |\n| --- | ---: | ---: |\n",
            kiln_json_double(result, "wall_ms", 0));
    json_array_foreach(json_object_get(result, "slices"), i, slice) {
        if (i < 8) {
            kiln_buf_printf(d->page, "| %s | %.3f | %.2f |\n", kiln_json_string(slice, "slot", "?"),
                    kiln_json_double(slice, "ms", 0), kiln_json_double(slice, "share_pct", 0));
        }
    }
    kiln_buf_puts(d->page, "\n");
}

static void background(const struct draft *d) {
    kiln_buf_puts(d->page, "## 1. Background: where things stood\n\n");
    if (d->wall) {
        slices(d);
    } else {
        kiln_buf_puts(d->page, "No wall by slice is in this ledger: `kiln wall --save FILE`, "
                               "`kiln record add FILE`.\n\n");
    }
}

static void kernels(const struct draft *d, const json_t *row) {
    size_t i;
    const json_t *kernel, *result = json_object_get(row, "result");
    const char *slot = said(d, "slot");
    kiln_buf_puts(d->page, "What it costs");
    source_of(d, row);
    kiln_buf_puts(d->page, ":\n\n| slot | variant | smem B | blocks/SM | limiter | occupancy % | "
                           "registers | spill B |\n"
                           "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: |\n");
    json_array_foreach(json_object_get(result, "kernels"), i, kernel) {
        const char *of = kiln_json_string(kernel, "slot", "?");
        if (!slot || strcmp(slot, of) == 0) {
            kiln_buf_printf(d->page, "| %s | %s | %.0f | %.0f | %s | %.1f | %.0f | %.0f |\n", of,
                    kiln_json_string(kernel, "variant", "?"),
                    kiln_json_double(kernel, "smem_requested", 0),
                    kiln_json_double(kernel, "blocks_per_sm", 0),
                    kiln_json_string(kernel, "limiter", "not known"),
                    100 * kiln_json_double(kernel, "occupancy", 0),
                    kiln_json_double(kernel, "registers", 0),
                    kiln_json_double(kernel, "spill_bytes", 0));
        }
    }
    kiln_buf_puts(d->page, "\n");
}

static void principle(const struct draft *d) {
    kiln_buf_puts(d->page, "## 2. Principle: the mechanism\n\n");
    paragraph(d, "mechanism");
    if (!said(d, "mechanism")) {
        kiln_buf_puts(d->page,
                "Nobody has said what it was to bring: `kiln record add --experiment "
                "NAME --update --mechanism TEXT`.\n\n");
    }
    const json_t *audit;
    for (size_t i = 0; (audit = of_kind(d, "audit", i)) != NULL; i++) {
        kernels(d, audit);
    }
    if (!of_kind(d, "audit", 0)) {
        kiln_buf_puts(d->page, "No audit is among its results: `kiln audit --config CHANGE.ini "
                               "--save FILE`.\n\n");
    }
}

struct setting {
    const char *section, *line; // within the text
    size_t section_len, len;
};

// The next line of an INI text that sets something, without its comment; 0 at the end.
static int next_setting(const char **at, struct setting *setting) {
    while (**at) {
        const char *line = *at;
        size_t whole = strcspn(line, "\n"), len = whole;
        const char *comment = strstr(line, " ; ");
        *at += whole + (line[whole] == '\n');
        if (comment && comment < line + whole) {
            len = (size_t)(comment - line);
        }
        if (len > 0 && *line == '[') {
            setting->section = line;
            setting->section_len = len;
        } else if (len > 0 && *line != ';') {
            setting->line = line;
            setting->len = len;
            return 1;
        }
    }
    return 0;
}

static int has_setting(const char *text, const struct setting *wanted) {
    struct setting one = {.section = "", .section_len = 0};
    while (next_setting(&text, &one)) {
        if (one.len == wanted->len && one.section_len == wanted->section_len &&
                memcmp(one.line, wanted->line, one.len) == 0 &&
                memcmp(one.section, wanted->section, one.section_len) == 0) {
            return 1;
        }
    }
    return 0;
}

// The settings of one text that the other has not.
static void settings_only_in(
        const char *text, const char *other, char sign, struct kiln_buf *page) {
    struct setting one = {.section = "", .section_len = 0};
    while (next_setting(&text, &one)) {
        if (!has_setting(other, &one)) {
            kiln_buf_printf(page, "%c %.*s %.*s\n", sign, (int)one.section_len, one.section,
                    (int)one.len, one.line);
        }
    }
}

static void implementation(const struct draft *d) {
    kiln_buf_puts(d->page, "## 3. Implementation\n\n");
    const char *base = said(d, "base"), *change = said(d, "change");
    const json_t *ab = of_kind(d, "ab", 0);
    if (!base && ab) {
        base = kiln_json_string(ab, "base_config", NULL);
        change = kiln_json_string(ab, "config", NULL);
    }
    if (base && change && strchr(change, '\n')) {
        kiln_buf_puts(d->page, "What the configurations differ in:\n\n```diff\n");
        settings_only_in(base, change, '-', d->page);
        settings_only_in(change, base, '+', d->page);
        kiln_buf_puts(d->page, "```\n\n");
    } else if (base && change) {
        kiln_buf_printf(d->page, "`%s` against `%s`.\n\n", base, change);
    } else {
        kiln_buf_puts(d->page, "Neither configuration is in this ledger: a result that `kiln ab "
                               "--save` wrote has both.\n\n");
    }
    const json_t *row = ab ? ab : json_array_get(d->results, 0);
    if (row && kiln_json_string(row, "sources", NULL)) {
        kiln_buf_printf(
                d->page, "Sources of the kernels: %s", kiln_json_string(row, "sources", NULL));
        source_of(d, row);
        kiln_buf_puts(d->page, ".\n\n");
    }
}

static void verification(const struct draft *d) {
    kiln_buf_puts(d->page, "## 4. Verification\n\n");
    const json_t *gate;
    for (size_t i = 0; (gate = of_kind(d, "gate", i)) != NULL; i++) {
        kiln_buf_printf(d->page, "- %s", kiln_json_string(gate, "summary", "?"));
        source_of(d, gate);
        kiln_buf_puts(d->page, "\n");
    }
    kiln_buf_puts(d->page, of_kind(d, "gate", 0)
                                   ? "\n"
                                   : "No gate is among its results: `kiln gate greedy|tolerance|"
                                     "parity … --save FILE`.\n\n");
}

// A line for each slot in which base and change differ; older results have none.
static void kernels_of(const struct draft *d, const json_t *row) {
    const json_t *slots = json_object_get(json_object_get(row, "kernels"), "slots"), *slot;
    char name[64];
    size_t i;
    kiln_result_test_name(row, name, sizeof(name));
    json_array_foreach(slots, i, slot) {
        kiln_buf_printf(d->page,
                "- %s: %s: %.3f ms to %.3f ms, %.2f %% of the base's wall: that predicts %+.2f %% "
                "for the wall, which moved by %+.2f %% (`%s` to `%s`)\n",
                name, kiln_json_string(slot, "slot", "?"), kiln_json_double(slot, "base_ms", 0),
                kiln_json_double(slot, "change_ms", 0), kiln_json_double(slot, "share_pct", 0),
                kiln_json_double(slot, "predicted_pct", 0), kiln_json_double(row, "median_pct", 0),
                kiln_json_string(slot, "base", "?"), kiln_json_string(slot, "change", "?"));
    }
    if (json_array_size(slots) > 0) {
        kiln_buf_puts(d->page, "\n");
    }
}

// Row `i` of a result that is one row itself or has several; NULL behind the last.
static const json_t *row_of(const json_t *result, size_t i) {
    const json_t *rows = json_object_get(result, "rows");
    if (rows) {
        return json_array_get(rows, i);
    }
    return i == 0 ? result : NULL;
}

static void results(const struct draft *d) {
    kiln_buf_puts(d->page, "## 5. Results\n\n");
    const json_t *ab;
    for (size_t i = 0; (ab = of_kind(d, "ab", i)) != NULL; i++) {
        const json_t *result = json_object_get(ab, "result"), *row;
        kiln_buf_puts(d->page, "Interleaved A/B on the whole wall");
        source_of(d, ab);
        kiln_buf_puts(d->page, ":\n\n| test | base t/s | change t/s | change % | interval % | "
                               "noise % | pairs | verdict |\n"
                               "| --- | ---: | ---: | ---: | --- | ---: | ---: | --- |\n");
        for (size_t r = 0; (row = row_of(result, r)) != NULL; r++) {
            char name[64];
            const json_t *interval = json_object_get(row, "interval_pct");
            kiln_result_test_name(row, name, sizeof(name));
            kiln_buf_printf(d->page,
                    "| %s | %.2f | %.2f | %+.2f | %+.2f to %+.2f | %.2f | %zu | %s |\n", name,
                    kiln_json_double(row, "base_ts", 0), kiln_json_double(row, "change_ts", 0),
                    kiln_json_double(row, "median_pct", 0),
                    json_number_value(json_array_get(interval, 0)),
                    json_number_value(json_array_get(interval, 1)),
                    kiln_json_double(row, "noise_pct", 0),
                    json_array_size(json_object_get(row, "pairs")),
                    kiln_json_string(row, "verdict", "?"));
        }
        kiln_buf_puts(d->page, "\n");
        for (size_t r = 0; (row = row_of(result, r)) != NULL; r++) {
            kernels_of(d, row);
        }
    }
    if (!of_kind(d, "ab", 0)) {
        kiln_buf_puts(d->page, "No A/B is among its results: `kiln ab BASE.ini CHANGE.ini --save "
                               "FILE`.\n\n");
    }
    figures(d);
}

static void lessons(const struct draft *d) {
    const char *verdict = said(d, "verdict"), *why = said(d, "why"), *retry = said(d, "retry");
    kiln_buf_puts(d->page, "## 6. Lessons\n\n");
    kiln_buf_printf(d->page, "- Verdict: %s%s%s.\n", verdict ? verdict : "none yet",
            why ? ": " : "", why ? why : "");
    const char *slot = said(d, "slot");
    double share = 0;
    size_t i;
    const json_t *slice;
    json_array_foreach(json_object_get(json_object_get(d->wall, "result"), "slices"), i, slice) {
        if (slot && strcmp(kiln_json_string(slice, "slot", ""), slot) == 0) {
            share += kiln_json_double(slice, "share_pct", 0);
        }
    }
    if (share > 0) {
        kiln_buf_printf(d->page,
                "- %s has %.2f %% of the wall, so a kernel faster by x %% brings at most %.4f x %% "
                "(derived).\n",
                slot, share, share / 100);
    }
    if (retry) {
        kiln_buf_printf(d->page, "- Worth another try: %s; `kiln record due` looks.\n", retry);
    }
    kiln_buf_puts(d->page, "\n");
    paragraph(d, "note");
    if (said(d, "provenance")) {
        kiln_buf_printf(d->page, "Provenance: %s.\n", said(d, "provenance"));
    }
}

static void write_page(const struct draft *d) {
    kiln_buf_printf(d->page, "# %s", said(d, "name"));
    if (said(d, "title")) {
        kiln_buf_printf(d->page, ": %s", said(d, "title"));
    }
    kiln_buf_printf(d->page, "\n\nResult: %s%s%s. Date: %s.\n\n",
            said(d, "verdict") ? said(d, "verdict") : "no verdict yet", said(d, "why") ? ", " : "",
            said(d, "why") ? said(d, "why") : "", said(d, "date") ? said(d, "date") : "not told");
    background(d);
    principle(d);
    implementation(d);
    verification(d);
    results(d);
    lessons(d);
}

// ---- What it stands on --------------------------------------------------------------------------

// The newest wall of the experiment's models that is no newer than its newest result, else the
// newest of them at all.
static const json_t *wall_before(const json_t *walls, const json_t *results, const json_t *models) {
    const char *last = kiln_json_string(json_array_get(results, 0), "date", "9999");
    size_t i;
    const json_t *wall, *newest = NULL;
    json_array_foreach(walls, i, wall) {
        if (kiln_result_may_be_of(wall, models)) {
            newest = newest ? newest : wall;
            if (strcmp(kiln_json_string(wall, "date", ""), last) <= 0) {
                return wall;
            }
        }
    }
    return newest;
}

enum kiln_status kiln_ledger_draft(
        struct kiln_ledger *ledger, const char *name, struct kiln_buf *page, struct kiln_err *err) {
    const struct kiln_ledger_filter self = {.name = name}, own = {.of = name, .with_document = 1},
                                    wall = {.kind = "wall", .with_document = 1, .limit = 200};
    json_t *experiments = NULL, *rows = NULL, *walls = NULL, *models = NULL;
    enum kiln_status status = kiln_ledger_experiments(ledger, &self, &experiments, err);
    if (status == KILN_STATUS_OK && json_array_size(experiments) == 0) {
        status = kiln_err_set(err, KILN_STATUS_USAGE,
                "%s: no experiment is named %.80s; `kiln record list` has the names",
                kiln_ledger_name(ledger), name);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_ledger_results(ledger, &own, &rows, err);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_ledger_results(ledger, &wall, &walls, err);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_lever_models(ledger, json_array_get(experiments, 0), &models, err);
    }
    if (status == KILN_STATUS_OK) {
        struct draft d = {.experiment = json_array_get(experiments, 0),
                .results = rows,
                .wall = wall_before(walls, rows, models),
                .page = page};
        d.wall = of_kind(&d, "wall", 0) ? of_kind(&d, "wall", 0) : d.wall;
        write_page(&d);
        status = page->failed ? kiln_err_nomem(err, "the page") : KILN_STATUS_OK;
    }
    json_decref(experiments);
    json_decref(rows);
    json_decref(walls);
    json_decref(models);
    return status;
}
