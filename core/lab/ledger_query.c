// ledger_query: rows out of the ledger: filtered, searched, and the dead levers that are due.
#include "lab/ledger.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "lab/ledger_impl.h"
#include "lab/retry.h"

#include <fnmatch.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

// A filter as texts; numbers as text too, NULL when they do not count.
struct filter_texts {
    char id[24], limit[24];
    const char *texts[7];
};

static void texts_of(const struct kiln_ledger_filter *filter, struct filter_texts *texts) {
    snprintf(texts->id, sizeof(texts->id), "%lld", (long long)filter->id);
    snprintf(texts->limit, sizeof(texts->limit), "%lld",
            filter->limit > 0 ? (long long)filter->limit : -1LL);
    const char *const all[] = {filter->kind, filter->verdict, filter->device, filter->name,
            filter->of, filter->id > 0 ? texts->id : NULL, texts->limit};
    memcpy(texts->texts, all, sizeof(all));
}

enum kiln_status kiln_ledger_results(struct kiln_ledger *ledger,
        const struct kiln_ledger_filter *filter, struct json_t **rows, struct kiln_err *err) {
#define RESULT_WHERE \
    " FROM result WHERE (?1 IS NULL OR kind = ?1) AND (?2 IS NULL OR verdict = ?2)" \
    " AND (?3 IS NULL OR instr(lower(coalesce(device,'') || ' ' || coalesce(device_id,'') || ' '" \
    " || coalesce(target,'')), lower(?3)) > 0)" \
    " AND (?5 IS NULL OR id IN (SELECT result FROM evidence WHERE experiment =" \
    " (SELECT id FROM experiment WHERE name = ?5))) AND (?6 IS NULL OR id = CAST(?6 AS INTEGER))" \
    " AND (?4 IS NULL OR 1) ORDER BY date DESC, id DESC LIMIT CAST(?7 AS INTEGER)"
    static const char brief[] = "SELECT id, kind, date, device, driver, kiln, sources, grade,"
                                " verdict, summary" RESULT_WHERE;
    static const char whole[] =
            "SELECT id, kind, date, device, device_id, target, driver, kiln, sources, grade,"
            " verdict, summary, config, base_config, document AS result" RESULT_WHERE;
    struct filter_texts texts;
    sqlite3_stmt *statement;
    texts_of(filter, &texts);
    KILN_TRY(kiln_ledger_prepare(ledger, filter->with_document ? whole : brief, texts.texts,
            sizeof(texts.texts) / sizeof(texts.texts[0]), &statement, err));
    return kiln_ledger_rows(ledger, statement, rows, err);
}

enum kiln_status kiln_ledger_experiments(struct kiln_ledger *ledger,
        const struct kiln_ledger_filter *filter, struct json_t **rows, struct kiln_err *err) {
    static const char sql[] =
            "SELECT name, date, title, verdict, why, slot, mechanism, retry, note, base, change,"
            " provenance, figures, (SELECT json_group_array(result) FROM evidence"
            " WHERE experiment = experiment.id) AS results FROM experiment"
            " WHERE (?1 IS NULL OR 1) AND (?2 IS NULL OR verdict = ?2) AND (?3 IS NULL OR EXISTS("
            " SELECT 1 FROM evidence JOIN result ON result = result.id WHERE experiment ="
            " experiment.id AND instr(lower(coalesce(device,'')), lower(?3)) > 0))"
            " AND (?4 IS NULL OR name = ?4) AND (?5 IS NULL OR 1) AND (?6 IS NULL OR 1)"
            " ORDER BY experiment.id DESC LIMIT CAST(?7 AS INTEGER)";
    struct filter_texts texts;
    sqlite3_stmt *statement;
    texts_of(filter, &texts);
    KILN_TRY(kiln_ledger_prepare(ledger, sql, texts.texts,
            sizeof(texts.texts) / sizeof(texts.texts[0]), &statement, err));
    return kiln_ledger_rows(ledger, statement, rows, err);
}

// ---- Search -------------------------------------------------------------------------------------

// Each word as a phrase of its own, so that nothing in it is FTS5's syntax; NULL: no memory.
static char *search_expression(const char *words) {
    struct kiln_buf text = {0};
    const char *at = words;
    for (;;) {
        at += strspn(at, " \t\r\n");
        size_t len = strcspn(at, " \t\r\n");
        if (len == 0) {
            break;
        }
        int prefix = len > 1 && at[len - 1] == '*';
        kiln_buf_puts(&text, "\"");
        for (size_t i = 0; i < len - (size_t)prefix; i++) {
            kiln_buf_append(&text, at + i, 1);
            if (at[i] == '"') {
                kiln_buf_puts(&text, "\"");
            }
        }
        kiln_buf_puts(&text, prefix ? "\"* " : "\" ");
        at += len;
    }
    kiln_buf_puts(&text, "");
    char *expression = kiln_buf_take(&text);
    kiln_buf_finish(&text);
    return expression;
}

enum kiln_status kiln_ledger_search(
        struct kiln_ledger *ledger, const char *words, struct json_t **rows, struct kiln_err *err) {
    static const char sql[] =
            "SELECT CASE words.rowid % 2 WHEN 0 THEN 'result' ELSE 'experiment' END AS what,"
            " CASE words.rowid % 2 WHEN 0 THEN '#' || (words.rowid / 2) ELSE"
            " (SELECT name FROM experiment WHERE id = words.rowid / 2) END AS name,"
            " title, snippet(words, 1, '', '', '…', 24) AS found"
            " FROM words WHERE words MATCH ?1 ORDER BY rank, words.rowid DESC LIMIT 100";
    char *expression = search_expression(words);
    if (!expression) {
        return kiln_err_nomem(err, "a search");
    }
    const char *texts[] = {expression};
    sqlite3_stmt *statement = NULL;
    enum kiln_status status =
            *expression ? kiln_ledger_prepare(ledger, sql, texts, 1, &statement, err)
                        : kiln_err_set(err, KILN_STATUS_USAGE, "what is to be searched for?");
    kiln_free(expression);
    return status == KILN_STATUS_OK ? kiln_ledger_rows(ledger, statement, rows, err) : status;
}

// ---- Figures of results -------------------------------------------------------------------------

// Sum over a wall's slices of slots that match; 0 when there are none.
static int sum_slices(const json_t *result, const char *slot, const char *key, double *value) {
    size_t i;
    int found = 0;
    const json_t *slice;
    *value = 0;
    json_array_foreach(json_object_get(result, "slices"), i, slice) {
        if (fnmatch(slot, kiln_json_string(slice, "slot", ""), 0) == 0) {
            *value += kiln_json_double(slice, key, 0);
            found = 1;
        }
    }
    return found;
}

static int wall_rate(const json_t *result, const char *test, double *value) {
    char name[64];
    double tokens = kiln_json_double(result, "n_prompt", 0);
    double ms = kiln_json_double(result, "wall_ms", 0);
    kiln_result_test_name(result, name, sizeof(name));
    tokens = tokens > 0 ? tokens : kiln_json_double(result, "n_gen", 0);
    *value = ms > 0 ? tokens / ms * 1e3 : 0;
    return strcmp(name, test) == 0 && ms > 0;
}

// A figure of the row of an A/B or bench that is about `test`.
static int row_figure(const json_t *result, const char *test, const char *key, double *value) {
    const json_t *rows = json_is_array(result) ? result : json_object_get(result, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        char name[64];
        const json_t *row = json_array_get(rows, i);
        kiln_result_test_name(row, name, sizeof(name));
        if (strcmp(name, test) == 0 && json_is_number(json_object_get(row, key))) {
            *value = kiln_json_double(row, key, 0);
            return 1;
        }
    }
    return 0;
}

static int worst_ways(const json_t *kernel, double *value) {
    size_t i;
    const json_t *bank;
    *value = 0;
    json_array_foreach(json_object_get(kernel, "banks"), i, bank) {
        double ways = kiln_json_double(bank, "ways", 0);
        *value = ways > *value ? ways : *value;
    }
    return *value > 0;
}

// Of the first kernel of a slot that has the figure.
static int kernel_figure(const json_t *result, const struct kiln_retry_test *test, double *value) {
    static const char *const keys[KILN_RETRY_KINDS] = {
            [KILN_RETRY_OCCUPANCY] = "occupancy",
            [KILN_RETRY_BLOCKS] = "blocks_per_sm",
            [KILN_RETRY_REGISTERS] = "registers",
            [KILN_RETRY_SMEM] = "smem_requested",
            [KILN_RETRY_SPILLS] = "spill_bytes",
    };
    size_t i;
    const json_t *kernel;
    json_array_foreach(json_object_get(result, "kernels"), i, kernel) {
        if (fnmatch(test->name, kiln_json_string(kernel, "slot", ""), 0) != 0) {
            continue;
        }
        if (test->kind == KILN_RETRY_WAYS) {
            return worst_ways(kernel, value);
        }
        if (keys[test->kind] && json_is_number(json_object_get(kernel, keys[test->kind]))) {
            double scale = test->kind == KILN_RETRY_OCCUPANCY ? 100 : 1;
            *value = scale * kiln_json_double(kernel, keys[test->kind], 0);
            return 1;
        }
    }
    return 0;
}

static void copy_text(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from);
}

// "CUDA 13.0, 580.65.06": the driver's own version is the last word.
static int driver_version(const json_t *row, struct kiln_retry_value *value) {
    const char *driver = kiln_json_string(row, "driver", NULL);
    const char *last = driver ? strrchr(driver, ' ') : NULL;
    if (driver) {
        copy_text(value->text, sizeof(value->text), last ? last + 1 : driver);
    }
    return driver != NULL;
}

static int device_names(const json_t *row, struct kiln_retry_value *value) {
    snprintf(value->text, sizeof(value->text), "%.40s %.20s %.20s",
            kiln_json_string(row, "device", ""), kiln_json_string(row, "device_id", ""),
            kiln_json_string(row, "target", ""));
    value->text[strcspn(value->text, "\n")] = '\0';
    for (size_t len = strlen(value->text); len > 0 && value->text[len - 1] == ' ';) {
        value->text[--len] = '\0';
    }
    return value->text[0] != '\0';
}

// slot: the lever's own, or NULL.
static int gate_verdict(const json_t *row, const struct kiln_retry_test *test, const char *slot,
        struct kiln_retry_value *value) {
    const char *verdict =
            kiln_result_gate_verdict(row, test->name, test->slot[0] ? test->slot : slot);
    if (verdict) {
        copy_text(value->text, sizeof(value->text), verdict);
    }
    return verdict != NULL;
}

// What one row says of a test's subject, for a lever of `slot` (NULL: of none); 0: nothing.
static int figure_of(const json_t *row, const struct kiln_retry_test *test, const char *slot,
        struct kiln_retry_value *value) {
    const char *kind = kiln_json_string(row, "kind", "");
    const json_t *result = json_object_get(row, "result");
    int is_wall = strcmp(kind, "wall") == 0, is_ab = strcmp(kind, "ab") == 0;
    switch ((int)test->kind) {
    case KILN_RETRY_WALL_SHARE:
        return is_wall && sum_slices(result, test->name, "share_pct", &value->number);
    case KILN_RETRY_TIME:
        return is_wall && sum_slices(result, test->name, "ms", &value->number);
    case KILN_RETRY_RATE:
        // Of a comparison the base: what is in force.
        return (is_wall && wall_rate(result, test->name, &value->number)) ||
               (is_ab && row_figure(result, test->name, "base_ts", &value->number)) ||
               row_figure(result, test->name, "avg_ts", &value->number);
    case KILN_RETRY_NOISE:
        return is_ab && row_figure(result, test->name, "noise_pct", &value->number);
    case KILN_RETRY_DEVICE:
        return device_names(row, value);
    case KILN_RETRY_DRIVER:
        return driver_version(row, value);
    case KILN_RETRY_GATE:
        return gate_verdict(row, test, slot, value);
    default:
        return strcmp(kind, "audit") == 0 && kernel_figure(result, test, &value->number);
    }
}

// ---- Due ----------------------------------------------------------------------------------------

enum {
    MAX_LOOKED_AT = 200 // the newest of a kind
};

struct looked_at {
    const json_t *results;
    const char *slot;     // the lever's, or NULL
    const json_t *models; // that it was judged on, as keys; empty: nobody knows
};

// Figures of a run are those of its model: of another model they say nothing about the lever. What
// does not say its model may be of it.
static int is_of_model(
        const struct looked_at *at, const struct kiln_retry_test *test, const json_t *row) {
    int of_run = test->kind == KILN_RETRY_WALL_SHARE || test->kind == KILN_RETRY_TIME ||
                 test->kind == KILN_RETRY_RATE || test->kind == KILN_RETRY_NOISE ||
                 test->kind == KILN_RETRY_GATE;
    return !of_run || kiln_result_may_be_of(row, at->models);
}

// What would tell of the lever's models.
static void say_models(const struct looked_at *at, struct kiln_retry_value *value) {
    const char *model = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)at->models));
    size_t n = json_object_size(at->models);
    snprintf(value->source, sizeof(value->source), "nothing of %.40s%s, which it was judged on",
            model ? model : "?", n > 1 ? " and others" : "");
    kiln_utf8_trim(value->source);
}

static int is_newer(const json_t *row, const json_t *other) {
    int order =
            other ? strcmp(kiln_json_string(row, "date", ""), kiln_json_string(other, "date", ""))
                  : 1;
    return order > 0 || (order == 0 && json_integer_value(json_object_get(row, "id")) >
                                               json_integer_value(json_object_get(other, "id")));
}

static enum kiln_status look(void *arg, const struct kiln_retry_test *test,
        struct kiln_retry_value *value, struct kiln_err *err) {
    (void)err;
    const struct looked_at *at = arg;
    size_t i;
    const json_t *row, *newest = NULL;
    int others = 0;
    json_array_foreach(at->results, i, row) {
        struct kiln_retry_value here = {.known = 1};
        if (!is_newer(row, newest) || !figure_of(row, test, at->slot, &here)) {
            continue;
        }
        if (is_of_model(at, test, row)) {
            *value = here;
            newest = row;
        } else {
            others = 1;
        }
    }
    if (newest) {
        snprintf(value->source, sizeof(value->source), "%s #%lld of %.10s on %.40s",
                kiln_json_string(newest, "kind", "?"),
                (long long)json_integer_value(json_object_get(newest, "id")),
                kiln_json_string(newest, "date", "?"), kiln_json_string(newest, "device", "?"));
    } else if (others) {
        say_models(at, value);
    }
    return KILN_STATUS_OK;
}

// The newest of each kind: one kind with many results must not hide another.
static enum kiln_status newest_results(
        struct kiln_ledger *ledger, const char *device, json_t **newest, struct kiln_err *err) {
    static const char *const kinds[] = {"wall", "ab", "gate", "audit", "op", "tune", "bench"};
    *newest = json_array();
    enum kiln_status status = *newest ? KILN_STATUS_OK : kiln_err_nomem(err, "the levers");
    for (size_t i = 0; status == KILN_STATUS_OK && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const struct kiln_ledger_filter filter = {
                .kind = kinds[i], .device = device, .limit = MAX_LOOKED_AT, .with_document = 1};
        json_t *rows;
        status = kiln_ledger_results(ledger, &filter, &rows, err);
        if (status == KILN_STATUS_OK) {
            status = json_array_extend(*newest, rows) == 0 ? KILN_STATUS_OK
                                                           : kiln_err_nomem(err, "the levers");
            json_decref(rows);
        }
    }
    return status;
}

static enum kiln_status judge_lever(const json_t *lever, const json_t *newest, const json_t *models,
        json_t *rows, struct kiln_err *err) {
    const char *text = kiln_json_string(lever, "retry", NULL);
    const char *slot = kiln_json_string(lever, "slot", "");
    struct looked_at at = {.results = newest, .slot = *slot ? slot : NULL, .models = models};
    struct kiln_retry *retry = NULL;
    struct kiln_buf why = {0};
    enum kiln_truth truth = KILN_TRUTH_UNKNOWN;
    enum kiln_status status = text ? kiln_retry_parse(&retry, text, err) : KILN_STATUS_OK;
    if (status == KILN_STATUS_OK && retry) {
        status = kiln_retry_eval(retry, look, &at, &truth, &why, err);
    }
    if (status == KILN_STATUS_OK) {
        json_t *row = json_pack("{s:O, s:O, s:O, s:O, s:O, s:s, s:s}", "name",
                json_object_get(lever, "name"), "date", json_object_get(lever, "date"), "title",
                json_object_get(lever, "title"), "verdict", json_object_get(lever, "verdict"),
                "retry", json_object_get(lever, "retry"), "state",
                retry ? kiln_truth_name(truth) : "none", "why", why.data ? why.data : "");
        if (why.failed || json_array_append_new(rows, row) != 0) {
            status = kiln_err_nomem(err, "the levers");
        }
    }
    kiln_retry_destroy(retry);
    kiln_buf_finish(&why);
    return status;
}

enum kiln_status kiln_ledger_due(struct kiln_ledger *levers, struct kiln_ledger *results,
        const char *device, struct json_t **rows, struct kiln_err *err) {
    const struct kiln_ledger_filter all = {.limit = 0};
    json_t *experiments = NULL, *looked_at = NULL;
    *rows = json_array();
    enum kiln_status status = *rows ? kiln_ledger_experiments(levers, &all, &experiments, err)
                                    : kiln_err_nomem(err, "the levers");
    if (status == KILN_STATUS_OK) {
        status = newest_results(results, device, &looked_at, err);
    }
    for (size_t i = 0; status == KILN_STATUS_OK && i < json_array_size(experiments); i++) {
        const json_t *lever = json_array_get(experiments, i);
        const char *verdict = kiln_json_string(lever, "verdict", "");
        if (strcmp(verdict, "REVERTED") == 0 || strcmp(verdict, "MEAS-ONLY") == 0) {
            json_t *models;
            status = kiln_lever_models(levers, lever, &models, err);
            if (status == KILN_STATUS_OK) {
                status = judge_lever(lever, looked_at, models, *rows, err);
                json_decref(models);
            }
        }
    }
    json_decref(experiments);
    json_decref(looked_at);
    if (status != KILN_STATUS_OK) {
        json_decref(*rows);
        *rows = NULL;
    }
    return status;
}
