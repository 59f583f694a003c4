// cmd_record: the ledger of results and experiments: list, show, draft, due, export, search. What
// takes entries in is cmd_record_add.c.
#include "record.h"

#include "base/file.h"
#include "base/mem.h"
#include "config/words.h"
#include "lab/save.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Which ledger -------------------------------------------------------------------------------

enum kiln_status kiln_record_path(const char *option, char **path, struct kiln_err *err) {
    *path = option ? kiln_strdup(option) : kiln_ledger_path();
    if (*path && **path) {
        return KILN_STATUS_OK;
    }
    kiln_free(*path);
    *path = NULL;
    if (option) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "--ledger is empty: name a file");
    }
    return kiln_err_set(err, KILN_STATUS_USAGE,
            "no ledger: --ledger FILE or KILN_LEDGER names one; without HOME and XDG_DATA_HOME "
            "there is no usual place");
}

// Beside the program, as the other shipped configs: in a build folder, or installed.
static char *shipped(const char *name) {
    char *folder = kiln_exe_dir();
    char *path = folder ? kiln_asprintf("%s/configs/history/%s", folder, name) : NULL;
    if (path && !kiln_file_exists(path)) {
        kiln_free(path);
        path = kiln_asprintf("%s/../share/kiln/configs/history/%s", folder, name);
    }
    kiln_free(folder);
    return path;
}

enum kiln_status kiln_record_campaign(const char *name, char **path, struct kiln_err *err) {
    *path = shipped(name);
    return *path ? KILN_STATUS_OK : kiln_err_nomem(err, "a path");
}

enum kiln_status kiln_record_open(
        struct kiln_ledger **ledger, const struct kiln_record *o, struct kiln_err *err) {
    char *path;
    if (o->campaign) {
        KILN_TRY(kiln_record_campaign("campaign.json", &path, err));
    } else {
        KILN_TRY(kiln_record_path(o->ledger, &path, err));
    }
    enum kiln_status status = o->campaign ? kiln_ledger_open_campaign(ledger, path, err)
                                          : kiln_ledger_open(ledger, path, KILN_LEDGER_READ, err);
    kiln_free(path);
    return status;
}

// ---- list ---------------------------------------------------------------------------------------

static const char *text_of(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

static void list_experiments(const json_t *rows, struct kiln_buf *out) {
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        const char *verdict = text_of(row, "verdict"), *date = text_of(row, "date");
        kiln_buf_printf(out, "%-10.10s  %-8s %-9s  %s", *date ? date : "not told",
                text_of(row, "name"), *verdict ? verdict : "no verdict", text_of(row, "title"));
        if (*text_of(row, "why")) {
            kiln_buf_printf(out, " (%s)", text_of(row, "why"));
        }
        kiln_buf_puts(out, "\n");
    }
}

static void list_results(const json_t *rows, struct kiln_buf *out) {
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        const json_t *device = json_object_get(row, "device");
        kiln_buf_printf(out, "%-10.10s  #%-7lld %-9s  %s [%s]\n", text_of(row, "date"),
                (long long)json_integer_value(json_object_get(row, "id")), text_of(row, "grade"),
                text_of(row, "summary"),
                json_is_string(device) ? json_string_value(device) : "no device");
    }
}

static enum kiln_status fetch(struct kiln_ledger *ledger, const struct kiln_ledger_filter *filter,
        json_t **experiments, json_t **results, struct kiln_err *err) {
    // A kind is of results alone.
    if (filter->kind) {
        *experiments = json_array();
    } else {
        KILN_TRY(kiln_ledger_experiments(ledger, filter, experiments, err));
    }
    return *experiments ? kiln_ledger_results(ledger, filter, results, err)
                        : kiln_err_nomem(err, "the list");
}

static enum kiln_status print_list(const struct kiln_record *o, struct kiln_ledger *ledger,
        const struct kiln_ledger_filter *filter, struct kiln_err *err) {
    json_t *experiments = NULL, *results = NULL;
    enum kiln_status status = fetch(ledger, filter, &experiments, &results, err);
    if (status == KILN_STATUS_OK && o->json) {
        status = kiln_out_json(
                json_pack("{s:o, s:O, s:O}", "ledger",
                        kiln_json_text(kiln_ledger_name(ledger), strlen(kiln_ledger_name(ledger))),
                        "experiments", experiments, "results", results),
                err);
    } else if (status == KILN_STATUS_OK) {
        struct kiln_buf out = {0};
        list_experiments(experiments, &out);
        list_results(results, &out);
        status = kiln_out_buf(&out, err);
        if (json_array_size(experiments) + json_array_size(results) == 0) {
            fprintf(stderr,
                    filter->kind || filter->verdict || filter->device
                            ? "%s: nothing of that kind is there\n"
                            : "%s: nothing there; `kiln record add FILE` takes in what --save "
                              "wrote\n",
                    kiln_ledger_name(ledger));
        }
    }
    json_decref(experiments);
    json_decref(results);
    return status;
}

// A word that no entry has is a slip of the hand, not a list without entries.
static enum kiln_status check_word(const char *option, const char *word, const char *const *words,
        size_t n, struct kiln_err *err) {
    struct kiln_words known = {.count = 0};
    char hint[KILN_WORDS_MAX];
    for (size_t i = 0; i < n; i++) {
        if (!word || strcmp(word, words[i]) == 0) {
            return KILN_STATUS_OK;
        }
        kiln_words_add(&known, words[i]);
    }
    kiln_words_hint(hint, &known, word);
    return kiln_err_set(err, KILN_STATUS_USAGE, "%s %.40s: no such one%s", option, word, hint);
}

static enum kiln_status check_filter(
        const struct kiln_ledger_filter *filter, struct kiln_err *err) {
    static const char *const kinds[] = {"ab", "gate", "wall", "audit", "op", "tune", "bench"};
    static const char *const verdicts[] = {
            "LANDED", "REVERTED", "MEAS-ONLY", "LAND", "REVERT", "NEUTRAL", "PASS", "FAIL"};
    KILN_TRY(check_word("--kind", filter->kind, kinds, sizeof(kinds) / sizeof(kinds[0]), err));
    return check_word(
            "--verdict", filter->verdict, verdicts, sizeof(verdicts) / sizeof(verdicts[0]), err);
}

static enum kiln_status list(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_record o = {.json = 0};
    struct kiln_ledger_filter filter = {.limit = 0};
    int done;
    const struct kiln_opt table[] = {
            KILN_RECORD_OPTIONS(&o),
            {"--kind", NULL, KILN_OPT_STRING, (void *)&filter.kind, "KIND",
                    "only results: ab, gate, wall, audit, op, tune or bench", 0, 0},
            {"--verdict", NULL, KILN_OPT_STRING, (void *)&filter.verdict, "VERDICT",
                    "only these: LANDED, REVERTED, MEAS-ONLY; LAND, PASS …", 0, 0},
            {"--on", NULL, KILN_OPT_STRING, (void *)&filter.device, "DEVICE",
                    "only of devices with this in their name", 0, 0},
            {"--newest", NULL, KILN_OPT_INT, &filter.limit, "N", "at most N of each", 1, 1000000},
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    KILN_TRY(done ? KILN_STATUS_OK : check_filter(&filter, err));
    struct kiln_ledger *ledger = NULL;
    enum kiln_status status = done ? KILN_STATUS_OK : kiln_record_open(&ledger, &o, err);
    if (status == KILN_STATUS_OK && !done) {
        status = print_list(&o, ledger, &filter, err);
    }
    kiln_ledger_close(ledger);
    return status;
}

// ---- show ---------------------------------------------------------------------------------------

// A result's number, with or without its '#'; 0: it is none.
static int64_t result_number(const char *text) {
    char *end;
    text += *text == '#';
    long long id = strtoll(text, &end, 10);
    return end != text && !*end && id > 0 ? id : 0;
}

static void show_text(const json_t *row, struct kiln_buf *out) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)row, key, value) {
        if (json_is_string(value) && strchr(json_string_value(value), '\n')) {
            kiln_buf_printf(out, "%s:\n%s\n", key, json_string_value(value));
        } else if (json_is_string(value)) {
            kiln_buf_printf(out, "%-12s %s\n", key, json_string_value(value));
        } else if (json_is_integer(value)) {
            kiln_buf_printf(out, "%-12s %lld\n", key, (long long)json_integer_value(value));
        }
    }
    size_t i;
    const json_t *figure;
    json_array_foreach(json_object_get(row, "figures"), i, figure) {
        kiln_buf_printf(out, "figure       %s: ", text_of(figure, "what"));
        if (json_object_get(figure, "from")) {
            kiln_buf_printf(out, "%.10g to %.10g",
                    json_number_value(json_object_get(figure, "from")),
                    json_number_value(json_object_get(figure, "to")));
        } else {
            kiln_buf_printf(out, "%.10g", json_number_value(json_object_get(figure, "value")));
        }
        kiln_buf_printf(out, "%s%s (%s)\n", *text_of(figure, "unit") ? " " : "",
                text_of(figure, "unit"), text_of(figure, "grade"));
    }
    const json_t *results = json_object_get(row, "results");
    for (i = 0; i < json_array_size(results); i++) {
        kiln_buf_printf(out, "%s#%lld%s", i ? " " : "results      ",
                (long long)json_integer_value(json_array_get(results, i)),
                i + 1 == json_array_size(results) ? "\n" : "");
    }
}

static enum kiln_status show_one(const struct kiln_record *o, struct kiln_ledger *ledger,
        const char *name, struct kiln_err *err) {
    int64_t id = result_number(name);
    const struct kiln_ledger_filter filter = {
            .name = id ? NULL : name, .id = id, .with_document = 1};
    json_t *rows;
    KILN_TRY(id ? kiln_ledger_results(ledger, &filter, &rows, err)
                : kiln_ledger_experiments(ledger, &filter, &rows, err));
    enum kiln_status status;
    if (json_array_size(rows) == 0) {
        status = kiln_err_set(err, KILN_STATUS_USAGE,
                "%s: no %s is %s%.80s; `kiln record list` has what is there",
                kiln_ledger_name(ledger), id ? "result" : "experiment", id ? "number " : "named ",
                name);
    } else if (o->json) {
        status = kiln_out_json(json_incref(json_array_get(rows, 0)), err);
    } else {
        struct kiln_buf out = {0};
        show_text(json_array_get(rows, 0), &out);
        status = kiln_out_buf(&out, err);
    }
    json_decref(rows);
    return status;
}

// ---- draft --------------------------------------------------------------------------------------

static enum kiln_status draft_one(const struct kiln_record *o, struct kiln_ledger *ledger,
        const char *name, struct kiln_err *err) {
    struct kiln_buf page = {0};
    enum kiln_status status = kiln_ledger_draft(ledger, name, &page, err);
    if (status == KILN_STATUS_OK && o->out) {
        status = kiln_file_write(o->out, page.data, page.len, err);
        kiln_buf_finish(&page);
    } else if (status == KILN_STATUS_OK) {
        status = kiln_out_buf(&page, err);
    } else {
        kiln_buf_finish(&page);
    }
    return status;
}

// show and draft: one name, one ledger.
static enum kiln_status one_entry(
        const struct kiln_cmd *cmd, int argc, char **argv, int draft, struct kiln_err *err) {
    struct kiln_record o = {.json = 0};
    const char *name = NULL;
    int done;
    const struct kiln_opt table[] = {
            {draft ? "NAME" : "NAME|NUMBER", NULL, KILN_OPT_ENTRY, (void *)&name, NULL,
                    draft ? "an experiment" : "an experiment, or a result's number", 0, 0},
            KILN_RECORD_OPTIONS(&o),
            {draft ? "-o" : NULL, "--out", KILN_OPT_STRING, (void *)&o.out, "FILE",
                    "write the page there (stdout)", 0, 0},
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    if (!name) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "kiln %s: which? usage: kiln %s %s", cmd->name,
                cmd->name, cmd->usage);
    }
    struct kiln_ledger *ledger = NULL;
    enum kiln_status status = kiln_record_open(&ledger, &o, err);
    if (status == KILN_STATUS_OK) {
        status = draft ? draft_one(&o, ledger, name, err) : show_one(&o, ledger, name, err);
    }
    kiln_ledger_close(ledger);
    return status;
}

static enum kiln_status show(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    return one_entry(cmd, argc, argv, 0, err);
}

static enum kiln_status draft(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    return one_entry(cmd, argc, argv, 1, err);
}

// ---- due ----------------------------------------------------------------------------------------

static enum kiln_status print_due(const json_t *rows, int all, struct kiln_err *err) {
    struct kiln_buf out = {0};
    size_t i, due = 0, unknown = 0;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        const char *state = text_of(row, "state");
        due += strcmp(state, "due") == 0;
        unknown += strcmp(state, "unknown") == 0;
        if (all || strcmp(state, "due") == 0) {
            kiln_buf_printf(&out, "%-8s %-8s %s\n", text_of(row, "name"),
                    strcmp(state, "none") == 0 ? "no words" : state, text_of(row, "title"));
            if (*text_of(row, "retry")) {
                kiln_buf_printf(&out, "         %s\n         %s\n", text_of(row, "retry"),
                        text_of(row, "why"));
            }
        }
    }
    kiln_buf_printf(&out, "%zu of %zu dead levers are due, %zu cannot be told%s\n", due,
            json_array_size(rows), unknown, all ? "" : "; --all lists every one and why");
    return kiln_out_buf(&out, err);
}

static enum kiln_status judge_due(const struct kiln_record *o, const char *device, int all,
        struct kiln_ledger *levers, struct kiln_ledger *results, struct kiln_err *err) {
    json_t *rows;
    KILN_TRY(kiln_ledger_due(levers, results, device, &rows, err));
    enum kiln_status status = o->json ? kiln_out_json(json_pack("{s:O}", "levers", rows), err)
                                      : print_due(rows, all, err);
    json_decref(rows);
    return status;
}

static enum kiln_status due(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_record o = {.json = 0};
    const char *device = NULL;
    int done, all = 0;
    const struct kiln_opt table[] = {
            KILN_RECORD_OPTIONS(&o),
            {"--on", NULL, KILN_OPT_STRING, (void *)&device, "DEVICE",
                    "only results of devices with this in their name count", 0, 0},
            {"--all", NULL, KILN_OPT_FLAG, &all, NULL, "those that are not due, too, and why", 0,
                    0},
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    // The campaign's levers are tested on what was measured here.
    struct kiln_record own = o;
    own.campaign = 0;
    struct kiln_ledger *levers = NULL, *results = NULL;
    enum kiln_status status = kiln_record_open(&levers, &o, err);
    if (status == KILN_STATUS_OK && o.campaign) {
        status = kiln_record_open(&results, &own, err);
    }
    if (status == KILN_STATUS_OK) {
        status = judge_due(&o, device, all, levers, o.campaign ? results : levers, err);
    }
    kiln_ledger_close(levers);
    kiln_ledger_close(results);
    return status;
}

// ---- export and search --------------------------------------------------------------------------

static enum kiln_status read_format(
        const char *text, enum kiln_ledger_format *format, struct kiln_err *err) {
    static const char *const names[] = {"json", "csv", "markdown"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *format = (enum kiln_ledger_format)i;
            return KILN_STATUS_OK;
        }
    }
    return kiln_err_set(
            err, KILN_STATUS_USAGE, "--format takes json, csv or markdown, not '%.40s'", text);
}

static enum kiln_status export_all(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_record o = {.json = 0};
    const char *format_text = NULL;
    int done;
    const struct kiln_opt table[] = {
            {"--format", NULL, KILN_OPT_STRING, (void *)&format_text, "FORMAT",
                    "json (default), csv or markdown", 0, 0},
            {"-o", "--out", KILN_OPT_STRING, (void *)&o.out, "FILE", "write it there (stdout)", 0,
                    0},
            KILN_RECORD_OPTIONS(&o),
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    enum kiln_ledger_format format = KILN_LEDGER_JSON;
    if (format_text) {
        KILN_TRY(read_format(format_text, &format, err));
    }
    struct kiln_ledger *ledger = NULL;
    struct kiln_buf text = {0};
    enum kiln_status status = done ? KILN_STATUS_OK : kiln_record_open(&ledger, &o, err);
    if (status == KILN_STATUS_OK && !done) {
        status = kiln_ledger_export(ledger, format, &text, err);
    }
    if (status == KILN_STATUS_OK && !done) {
        status = o.out ? kiln_file_write(o.out, text.data, text.len, err)
                       : kiln_out(text.data, text.len, err);
    }
    kiln_buf_finish(&text);
    kiln_ledger_close(ledger);
    return status;
}

static enum kiln_status print_found(const json_t *rows, struct kiln_err *err) {
    struct kiln_buf out = {0};
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        const char *title = text_of(row, "title"), *name = text_of(row, "name");
        size_t same = strlen(name); // an experiment's title begins with its name, a line of its own
        int repeats = strncmp(title, name, same) == 0 && title[same] == '\n';
        kiln_buf_printf(&out, "%-8s %s\n", name, repeats ? title + same + 1 : title);
        const char *found = text_of(row, "found");
        kiln_buf_puts(&out, "         ");
        for (; *found; found++) {
            kiln_buf_append(&out, *found == '\n' ? " " : found, 1);
        }
        kiln_buf_puts(&out, "\n");
    }
    return kiln_out_buf(&out, err);
}

static enum kiln_status search(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_record o = {.json = 0};
    struct kiln_opt_list words = {.count = 0};
    int done;
    const struct kiln_opt table[] = {
            {"WORD", NULL, KILN_OPT_REST, &words, NULL, "all of them; a word* begins so", 0, 0},
            KILN_RECORD_OPTIONS(&o),
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    struct kiln_buf text = {0};
    for (size_t i = 0; i < words.count; i++) {
        kiln_buf_printf(&text, "%s ", words.items[i]);
    }
    struct kiln_ledger *ledger = NULL;
    json_t *rows = NULL;
    enum kiln_status status = done ? KILN_STATUS_OK : kiln_record_open(&ledger, &o, err);
    if (status == KILN_STATUS_OK && !done) {
        status = kiln_ledger_search(ledger, text.data ? text.data : "", &rows, err);
    }
    if (status == KILN_STATUS_OK && !done) {
        status = o.json ? kiln_out_json(json_pack("{s:O}", "found", rows), err)
                        : print_found(rows, err);
    }
    json_decref(rows);
    kiln_buf_finish(&text);
    kiln_ledger_close(ledger);
    return status;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    static const struct kiln_cmd table[] = {
            {"record list", "experiments and results, newest first",
                    "[--campaign] [--kind KIND] [--verdict VERDICT] [--on DEVICE]",
                    "kiln record list --campaign", list},
            {"record show", "all that is known of one entry", "NAME|NUMBER [--campaign]",
                    "kiln record show r46 --campaign", show},
            {"record add", "takes results in, and says what came of an experiment",
                    "[FILE …] [--experiment NAME --verdict REVERTED --why TEXT --retry CONDITION]",
                    "kiln record add ab.json gate.json --experiment tile16", kiln_record_add},
            {"record draft", "the page of a round in six sections, from what was measured",
                    "NAME [-o PAGE.md]", "kiln record draft tile16 -o tile16.md", draft},
            {"record due", "dead levers whose retry condition now holds", "[--campaign] [--all]",
                    "kiln record due --campaign --all", due},
            {"record export", "the whole ledger", "[--format json|csv|markdown] [-o FILE]",
                    "kiln record export --format csv -o ledger.csv", export_all},
            {"record search", "entries with all of the words in their text", "WORD …",
                    "kiln record search attention tile --campaign", search},
            {0},
    };
    return kiln_cmd_dispatch(cmd, table, argc, argv, err);
}

const struct kiln_cmd kiln_cmd_record = {
        .name = "record",
        .summary = "the ledger of results and experiments: list, show, add, draft, due",
        .usage = "list|show|add|draft|due|export|search",
        .example = "kiln record add ab.json --experiment tile16",
        .run = run,
};
