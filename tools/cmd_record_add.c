// cmd_record_add: takes saved results into the ledger, and says what came of an experiment.
#include "record.h"

#include "base/mem.h"
#include "lab/save.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

struct add_options {
    struct kiln_record record;
    struct kiln_opt_list files;
    struct kiln_experiment experiment;
    struct kiln_opt_list results; // --result: numbers that are there already
    int update;
};

// What was added, for the output and for the verdict.
struct added {
    int64_t ids[64 * 2];
    size_t n;
    json_t *rows;
    int landed, reverted, neutral, gate_failed; // what the results say
};

static enum kiln_status take_file(
        struct kiln_ledger *ledger, const char *path, struct added *added, struct kiln_err *err) {
    json_t *saved;
    int64_t id = 0;
    int fresh = 0;
    KILN_TRY(kiln_ledger_read_json(path, &saved, err));
    enum kiln_status status = kiln_ledger_add_result(ledger, saved, &id, &fresh, err);
    json_decref(saved);
    if (status != KILN_STATUS_OK) {
        kiln_err_prefix(err, "%s: ", path);
        return status;
    }
    added->ids[added->n++] = id;
    return json_array_append_new(added->rows,
                   json_pack("{s:o, s:I, s:b}", "file", kiln_json_text(path, strlen(path)), "id",
                           (json_int_t)id, "fresh", fresh)) == 0
                   ? KILN_STATUS_OK
                   : kiln_err_nomem(err, "the output");
}

static enum kiln_status take_number(const char *text, struct added *added, struct kiln_err *err) {
    struct kiln_numbers numbers;
    KILN_TRY(kiln_parse_list("--result", text + (*text == '#'), 1, INT64_MAX, &numbers, err));
    for (size_t i = 0; i < numbers.count; i++) {
        if (added->n == sizeof(added->ids) / sizeof(added->ids[0])) {
            return kiln_err_set(err, KILN_STATUS_USAGE, "too many results for one experiment");
        }
        added->ids[added->n++] = numbers.values[i];
    }
    return KILN_STATUS_OK;
}

static enum kiln_status look_at_verdicts(
        struct kiln_ledger *ledger, struct added *added, struct kiln_err *err) {
    for (size_t i = 0; i < added->n; i++) {
        json_t *rows;
        const struct kiln_ledger_filter filter = {.id = added->ids[i]};
        KILN_TRY(kiln_ledger_results(ledger, &filter, &rows, err));
        const char *verdict =
                json_string_value(json_object_get(json_array_get(rows, 0), "verdict"));
        verdict = verdict ? verdict : "";
        added->landed |= strcmp(verdict, "LAND") == 0;
        added->reverted |= strcmp(verdict, "REVERT") == 0;
        added->neutral |= strcmp(verdict, "NEUTRAL") == 0;
        added->gate_failed |= strcmp(verdict, "FAIL") == 0;
        json_decref(rows);
    }
    return KILN_STATUS_OK;
}

// What the results themselves say, where nobody said it: a failed gate outranks any speed.
static void judge(struct kiln_experiment *e, const struct added *added) {
    if (e->verdict) {
        return;
    }
    const char *why = added->gate_failed ? "a gate failed"
                      : added->reverted  ? "regression"
                      : added->neutral   ? "below the bar"
                                         : NULL;
    e->verdict = why ? "REVERTED" : added->landed ? "LANDED" : "MEAS-ONLY";
    e->why = e->why ? e->why : why;
}

static int says_something(const struct added *added) {
    return added->landed || added->reverted || added->neutral || added->gate_failed;
}

// What an experiment stands on already counts when it is judged again.
static enum kiln_status look_at_earlier(
        struct kiln_ledger *ledger, const char *name, struct added *added, struct kiln_err *err) {
    struct added earlier = {.n = 0};
    const struct kiln_ledger_filter filter = {.name = name};
    json_t *rows;
    KILN_TRY(kiln_ledger_experiments(ledger, &filter, &rows, err));
    const json_t *ids = json_object_get(json_array_get(rows, 0), "results");
    const size_t most = sizeof(earlier.ids) / sizeof(earlier.ids[0]);
    for (size_t i = 0; i < json_array_size(ids) && earlier.n < most; i++) {
        earlier.ids[earlier.n++] = json_integer_value(json_array_get(ids, i));
    }
    json_decref(rows);
    KILN_TRY(look_at_verdicts(ledger, &earlier, err));
    added->landed |= earlier.landed;
    added->reverted |= earlier.reverted;
    added->neutral |= earlier.neutral;
    added->gate_failed |= earlier.gate_failed;
    return KILN_STATUS_OK;
}

static enum kiln_status add_experiment(struct kiln_ledger *ledger, struct add_options *o,
        struct added *added, struct kiln_err *err) {
    for (size_t i = 0; i < o->results.count; i++) {
        KILN_TRY(take_number(o->results.items[i], added, err));
    }
    KILN_TRY(look_at_verdicts(ledger, added, err));
    // A wall or a gate that passed says nothing against the verdict that is there.
    if (o->update && says_something(added)) {
        KILN_TRY(look_at_earlier(ledger, o->experiment.name, added, err));
    }
    if (!o->update || says_something(added)) {
        judge(&o->experiment, added);
    }
    KILN_TRY(kiln_ledger_add_experiment(ledger, &o->experiment, o->update, err));
    for (size_t i = 0; i < added->n; i++) {
        KILN_TRY(kiln_ledger_link(ledger, o->experiment.name, added->ids[i], err));
    }
    return KILN_STATUS_OK;
}

// All of it or nothing.
static enum kiln_status add_all(struct kiln_ledger *ledger, struct add_options *o,
        struct added *added, struct kiln_err *err) {
    KILN_TRY(kiln_ledger_begin(ledger, err));
    for (size_t i = 0; i < o->files.count; i++) {
        KILN_TRY(take_file(ledger, o->files.items[i], added, err));
    }
    if (o->experiment.name) {
        KILN_TRY(add_experiment(ledger, o, added, err));
    }
    return kiln_ledger_commit(ledger, err);
}

static enum kiln_status say(const struct add_options *o, const struct kiln_ledger *ledger,
        const struct added *added, struct kiln_err *err) {
    const struct kiln_experiment *e = &o->experiment;
    if (o->record.json) {
        return kiln_out_json(
                json_pack("{s:o, s:O, s:s?, s:s?}", "ledger",
                        kiln_json_text(kiln_ledger_name(ledger), strlen(kiln_ledger_name(ledger))),
                        "results", added->rows, "experiment", e->name, "verdict", e->verdict),
                err);
    }
    struct kiln_buf out = {0};
    size_t i;
    const json_t *row;
    json_array_foreach(added->rows, i, row) {
        kiln_buf_printf(&out, "#%lld %s%s\n",
                (long long)json_integer_value(json_object_get(row, "id")),
                json_string_value(json_object_get(row, "file")),
                json_is_true(json_object_get(row, "fresh")) ? "" : " (was there already)");
    }
    if (e->name) {
        kiln_buf_printf(&out, "%s %s%s%s\n", e->name, e->verdict ? e->verdict : "updated",
                e->why ? ": " : "", e->why ? e->why : "");
    }
    return kiln_out_buf(&out, err);
}

static enum kiln_status add(struct add_options *o, struct kiln_err *err) {
    char *path;
    KILN_TRY(kiln_record_path(o->record.ledger, &path, err));
    struct kiln_ledger *ledger = NULL;
    struct added added = {.rows = json_array()};
    enum kiln_status status = added.rows ? kiln_ledger_open(&ledger, path, KILN_LEDGER_WRITE, err)
                                         : kiln_err_nomem(err, "the output");
    kiln_free(path);
    if (status == KILN_STATUS_OK) {
        status = add_all(ledger, o, &added, err);
    }
    if (status == KILN_STATUS_OK) {
        status = say(o, ledger, &added, err);
    }
    kiln_ledger_close(ledger);
    json_decref(added.rows);
    return status;
}

// What is said of an experiment wants its name: it would be lost.
static enum kiln_status check_named(const struct add_options *o, struct kiln_err *err) {
    const struct kiln_experiment *e = &o->experiment;
    const struct {
        const char *option;
        int given;
    } said[] = {{"--result", o->results.count > 0}, {"--verdict", e->verdict != NULL},
            {"--why", e->why != NULL}, {"--retry", e->retry != NULL}, {"--title", e->title != NULL},
            {"--slot", e->slot != NULL}, {"--mechanism", e->mechanism != NULL},
            {"--note", e->note != NULL}, {"--date", e->date != NULL}, {"--update", o->update}};
    for (size_t i = 0; !e->name && i < sizeof(said) / sizeof(said[0]); i++) {
        if (said[i].given) {
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "%s is said of an experiment: --experiment NAME names it", said[i].option);
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_record_add(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct add_options o = {.update = 0};
    struct kiln_experiment *e = &o.experiment;
    int done;
    const struct kiln_opt table[] = {
            {"FILE", NULL, KILN_OPT_REST, &o.files, NULL, "what --save wrote", 0, 0},
            {"--experiment", NULL, KILN_OPT_STRING, (void *)&e->name, "NAME",
                    "an experiment that these results judge", 0, 0},
            {"--result", NULL, KILN_OPT_LIST, &o.results, "N[,N]",
                    "results of the ledger that judge it, too", 0, 0},
            {"--verdict", NULL, KILN_OPT_STRING, (void *)&e->verdict, "VERDICT",
                    "LANDED, REVERTED or MEAS-ONLY (what its results say)", 0, 0},
            {"--why", NULL, KILN_OPT_STRING, (void *)&e->why, "TEXT",
                    "of REVERTED: below the bar, regression, or which gate", 0, 0},
            {"--retry", NULL, KILN_OPT_STRING, (void *)&e->retry, "CONDITION",
                    "when it is worth another try: wall share of SLOT > 8 %", 0, 0},
            {"--title", NULL, KILN_OPT_STRING, (void *)&e->title, "TEXT", "what was changed", 0, 0},
            {"--slot", NULL, KILN_OPT_STRING, (void *)&e->slot, "SLOT", "the slot it is about", 0,
                    0},
            {"--mechanism", NULL, KILN_OPT_STRING, (void *)&e->mechanism, "TEXT",
                    "why it should be faster", 0, 0},
            {"--note", NULL, KILN_OPT_STRING, (void *)&e->note, "TEXT", "what was learnt", 0, 0},
            {"--date", NULL, KILN_OPT_STRING, (void *)&e->date, "DATE", "2026-11-30 (today)", 0, 0},
            {"--update", NULL, KILN_OPT_FLAG, &o.update, NULL, "change an experiment that is there",
                    0, 0},
            KILN_RECORD_LEDGER(&o.record),
            {"--json", NULL, KILN_OPT_FLAG, &o.record.json, NULL, "one JSON document on stdout", 0,
                    0},
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    if (o.files.count == 0 && !e->name) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "kiln record add: what? files that --save wrote, or --experiment NAME");
    }
    KILN_TRY(check_named(&o, err));
    return add(&o, err);
}
