// cmd_report: results and ledgers as one HTML file, or as text.
#include "cmd.h"

#include "base/file.h"
#include "base/mem.h"
#include "lab/report.h"
#include "record.h"

#include <jansson.h>
#include <string.h>

struct report_options {
    struct kiln_opt_list files;
    struct kiln_record record; // --ledger, --campaign, -o
    const char *keys, *title;
    int text;
};

static enum kiln_status add_ledger(struct kiln_report *report, const struct report_options *o,
        const struct kiln_record *which, struct kiln_err *err) {
    const struct kiln_ledger_filter all = {.limit = 0};
    struct kiln_ledger *ledger;
    json_t *experiments = NULL, *results = NULL, *document = NULL;
    if (which->ledger && !kiln_file_exists(which->ledger)) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "--ledger %s: there is no such file; `kiln record add FILE` takes results into a "
                "ledger",
                which->ledger);
    }
    KILN_TRY(kiln_record_open(&ledger, which, err));
    enum kiln_status status = kiln_ledger_experiments(ledger, &all, &experiments, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_ledger_results(ledger, &all, &results, err);
    }
    if (status == KILN_STATUS_OK) {
        document = json_pack("{s:O, s:O}", "experiments", experiments, "results", results);
        status = document ? kiln_report_add(report, which->campaign ? "the campaign" : "the ledger",
                                    document, o->keys, err)
                          : kiln_err_nomem(err, "the report");
    }
    json_decref(document);
    json_decref(experiments);
    json_decref(results);
    kiln_ledger_close(ledger);
    return status;
}

static enum kiln_status add_all(
        struct kiln_report *report, const struct report_options *o, struct kiln_err *err) {
    for (size_t i = 0; i < o->files.count; i++) {
        const char *path = o->files.items[i], *slash = strrchr(path, '/');
        json_t *document;
        KILN_TRY(kiln_ledger_read_json(path, &document, err));
        enum kiln_status status =
                kiln_report_add(report, slash ? slash + 1 : path, document, o->keys, err);
        json_decref(document);
        KILN_TRY(status);
    }
    if (o->record.ledger) {
        const struct kiln_record own = {.ledger = o->record.ledger};
        KILN_TRY(add_ledger(report, o, &own, err));
    }
    if (o->record.campaign) {
        const struct kiln_record campaign = {.campaign = 1};
        KILN_TRY(add_ledger(report, o, &campaign, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status make(const struct report_options *o, struct kiln_err *err) {
    struct kiln_report *report;
    struct kiln_buf page = {0};
    KILN_TRY(kiln_report_create(&report, o->title, err));
    enum kiln_status status = add_all(report, o, err);
    if (status == KILN_STATUS_OK) {
        status = o->text ? kiln_report_text(report, &page, err)
                         : kiln_report_html(report, &page, err);
    }
    kiln_report_destroy(report);
    if (status == KILN_STATUS_OK) {
        status = o->record.out ? kiln_file_write(o->record.out, page.data, page.len, err)
                               : kiln_out(page.data, page.len, err);
    }
    kiln_buf_finish(&page);
    return status;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct report_options o = {.title = "kiln: results"};
    int done;
    const struct kiln_opt table[] = {
            {"FILE", NULL, KILN_OPT_REST, &o.files, NULL,
                    "what --save or --json wrote: wall, ab, audit, tune, gate, op, bench", 0, 0},
            {"-o", "--out", KILN_OPT_STRING, (void *)&o.record.out, "FILE",
                    "write the page there (stdout)", 0, 0},
            {"--text", NULL, KILN_OPT_FLAG, &o.text, NULL, "the same figures as text", 0, 0},
            {"--keys", NULL, KILN_OPT_STRING, (void *)&o.keys, "A,B",
                    "draw sweeps over these two keys (those with the most values)", 0, 0},
            {"--title", NULL, KILN_OPT_STRING, (void *)&o.title, "TEXT", "of the page", 0, 0},
            {"--ledger", NULL, KILN_OPT_STRING, (void *)&o.record.ledger, "FILE",
                    "with this ledger: a timeline and its results", 0, 0},
            {"--campaign", NULL, KILN_OPT_FLAG, &o.record.campaign, NULL,
                    "with the campaign that ships with kiln as a timeline", 0, 0},
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    if (o.keys && !strchr(o.keys, ',')) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "--keys takes two keys, such as FA_TQ,FA_TKV");
    }
    if (o.files.count == 0 && !o.record.ledger && !o.record.campaign) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "kiln report: of what? files that --save or --json wrote, --ledger FILE or "
                "--campaign");
    }
    return make(&o, err);
}

const struct kiln_cmd kiln_cmd_report = {
        .name = "report",
        .summary = "results and ledgers as one HTML file, or as text",
        .usage = "FILE … [--ledger FILE] [--campaign] [-o report.html] [--text]",
        .example = "kiln report wall.json ab.json audit.json --campaign -o report.html",
        .run = run,
};
