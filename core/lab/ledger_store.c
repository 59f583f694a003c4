// ledger_store: short cuts round statements, and how results and experiments are taken in.
#include "lab/ledger.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "lab/ledger_impl.h"
#include "lab/retry.h"
#include "lab/save.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

const char *kiln_json_string(const struct json_t *object, const char *key, const char *fallback) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : fallback;
}

double kiln_json_double(const struct json_t *object, const char *key, double fallback) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : fallback;
}

static int append(const char *bytes, size_t len, void *text) {
    kiln_buf_append(text, bytes, len);
    return 0;
}

char *kiln_json_dump(const struct json_t *value, size_t flags) {
    struct kiln_buf text = {0};
    if (json_dump_callback(value, append, &text, flags) != 0) {
        text.failed = 1;
    }
    char *bytes = kiln_buf_take(&text);
    kiln_buf_finish(&text);
    return bytes;
}

// ---- Statements ---------------------------------------------------------------------------------

enum kiln_status kiln_ledger_prepare(struct kiln_ledger *ledger, const char *sql,
        const char *const *texts, size_t n, sqlite3_stmt **statement, struct kiln_err *err) {
    int code = sqlite3_prepare_v2(ledger->db, sql, -1, statement, NULL);
    for (size_t i = 0; code == SQLITE_OK && i < n; i++) {
        code = sqlite3_bind_text(*statement, (int)i + 1, texts[i], -1, SQLITE_TRANSIENT);
    }
    if (code == SQLITE_OK) {
        return KILN_STATUS_OK;
    }
    enum kiln_status status = kiln_ledger_failed(ledger, "read it", err);
    sqlite3_finalize(*statement);
    *statement = NULL;
    return status;
}

enum kiln_status kiln_ledger_step(struct kiln_ledger *ledger, sqlite3_stmt *statement,
        const char *doing, struct kiln_err *err) {
    int code = sqlite3_step(statement);
    enum kiln_status status =
            code == SQLITE_DONE ? KILN_STATUS_OK : kiln_ledger_failed(ledger, doing, err);
    sqlite3_finalize(statement);
    return status;
}

// The first column of the first row; *found 0 when there is none.
static enum kiln_status look_up(struct kiln_ledger *ledger, const char *sql, const char *text,
        int64_t *value, int *found, struct kiln_err *err) {
    sqlite3_stmt *statement;
    KILN_TRY(kiln_ledger_prepare(ledger, sql, &text, 1, &statement, err));
    int code = sqlite3_step(statement);
    *found = code == SQLITE_ROW;
    if (*found) {
        *value = sqlite3_column_int64(statement, 0);
    }
    enum kiln_status status = *found || code == SQLITE_DONE
                                      ? KILN_STATUS_OK
                                      : kiln_ledger_failed(ledger, "read it", err);
    sqlite3_finalize(statement);
    return status;
}

static json_t *column_json(sqlite3_stmt *statement, int column, const char *name) {
    const char *text = (const char *)sqlite3_column_text(statement, column);
    switch (sqlite3_column_type(statement, column)) {
    case SQLITE_NULL:
        return json_null();
    case SQLITE_INTEGER:
        return json_integer(sqlite3_column_int64(statement, column));
    case SQLITE_FLOAT:
        return json_real(sqlite3_column_double(statement, column));
    default:
        break;
    }
    if (strcmp(name, "result") == 0 || strcmp(name, "figures") == 0 ||
            strcmp(name, "results") == 0) {
        json_t *value = json_loads(text ? text : "", JSON_DECODE_ANY, NULL);
        return value ? value : json_null();
    }
    text = text ? text : "";
    return kiln_json_text(text, strlen(text)); // NULL, no memory, fails the row
}

enum kiln_status kiln_ledger_rows(struct kiln_ledger *ledger, sqlite3_stmt *statement,
        struct json_t **rows, struct kiln_err *err) {
    int code, failed = 0;
    *rows = json_array();
    while ((code = sqlite3_step(statement)) == SQLITE_ROW && *rows && !failed) {
        json_t *row = json_object();
        for (int i = 0; row && i < sqlite3_column_count(statement) && !failed; i++) {
            const char *name = sqlite3_column_name(statement, i);
            failed = json_object_set_new(row, name, column_json(statement, i, name)) != 0;
        }
        failed |= json_array_append_new(*rows, row) != 0;
    }
    enum kiln_status status = KILN_STATUS_OK;
    if (!*rows || failed) {
        status = kiln_err_nomem(err, "the ledger's rows");
    } else if (code != SQLITE_DONE) {
        status = kiln_ledger_failed(ledger, "read it", err);
    }
    sqlite3_finalize(statement);
    if (status != KILN_STATUS_OK) {
        json_decref(*rows);
        *rows = NULL;
    }
    return status;
}

// ---- Results ------------------------------------------------------------------------------------

static const char *const kinds[] = {"ab", "gate", "wall", "audit", "op", "tune", "bench"};

// "2026-11-30" with anything behind; the order of dates is that of their text.
static int is_date(const char *text) {
    static const char shape[] = "dddd-dd-dd";
    for (size_t i = 0; shape[i]; i++) {
        if (shape[i] == 'd' ? !isdigit((unsigned char)text[i]) : text[i] != shape[i]) {
            return 0;
        }
    }
    static const int days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int month = 10 * (text[5] - '0') + text[6] - '0', day = 10 * (text[8] - '0') + text[9] - '0';
    return month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
}

static enum kiln_status check_saved(const json_t *saved, struct kiln_err *err) {
    static const char *const texts[] = {"kiln", "kind", "date"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (!json_is_string(json_object_get(saved, texts[i]))) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "no \"%s\": not what `kiln ab|gate|wall|audit|op|tune --save FILE` writes",
                    texts[i]);
        }
    }
    if (!json_is_object(json_object_get(saved, "result")) &&
            !json_is_array(json_object_get(saved, "result"))) {
        return kiln_err_set(
                err, KILN_STATUS_FILE, "\"result\" is missing or neither object nor array");
    }
    const char *kind = kiln_json_string(saved, "kind", ""),
               *date = kiln_json_string(saved, "date", "");
    int known = 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        known |= strcmp(kinds[i], kind) == 0;
    }
    if (!known) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "\"kind\" is '%.40s'; known are ab, gate, wall, audit, op, tune and bench", kind);
    }
    return is_date(date) ? KILN_STATUS_OK
                         : kiln_err_set(err, KILN_STATUS_FILE,
                                   "\"date\" is '%.40s'; 2026-11-30T12:00:00Z is such a one", date);
}

// The same bytes for the same object, whatever the order of its keys.
static char *digest_of(const json_t *saved) {
    char *text = kiln_json_dump(saved, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text) {
        return NULL;
    }
    XXH128_hash_t hash = XXH3_128bits(text, strlen(text));
    char *hex = kiln_asprintf(
            "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    kiln_free(text);
    return hex;
}

static enum kiln_status insert_result(struct kiln_ledger *ledger, const json_t *saved,
        const char *digest, int64_t *id, struct kiln_err *err) {
    const json_t *result = json_object_get(saved, "result");
    const char *kind = kiln_json_string(saved, "kind", NULL), *verdict;
    char *summary, *document = kiln_json_dump(result, JSON_COMPACT);
    if (!document) {
        return kiln_err_nomem(err, "a result");
    }
    enum kiln_status status = kiln_ledger_summary(kind, result, &summary, &verdict, err);
    if (status == KILN_STATUS_OK) {
        const char *texts[] = {digest, kind, kiln_json_string(saved, "date", NULL),
                kiln_json_string(saved, "device", NULL), kiln_json_string(saved, "device_id", NULL),
                kiln_json_string(saved, "target", NULL), kiln_json_string(saved, "driver", NULL),
                kiln_json_string(saved, "kiln", NULL), kiln_json_string(saved, "config", NULL),
                kiln_json_string(saved, "base_config", NULL),
                kiln_json_string(saved, "sources", NULL), kiln_json_string(saved, "grade", NULL),
                verdict, summary, document};
        sqlite3_stmt *statement;
        status = kiln_ledger_prepare(ledger,
                "INSERT INTO result(digest, kind, date, device, device_id, target, driver, kiln,"
                " config, base_config, sources, grade, verdict, summary, document)"
                " VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                texts, sizeof(texts) / sizeof(texts[0]), &statement, err);
        if (status == KILN_STATUS_OK) {
            status = kiln_ledger_step(ledger, statement, "add a result", err);
        }
        *id = sqlite3_last_insert_rowid(ledger->db);
        kiln_free(summary);
    }
    kiln_free(document);
    return status;
}

enum kiln_status kiln_ledger_add_result(struct kiln_ledger *ledger, const struct json_t *saved,
        int64_t *id, int *fresh, struct kiln_err *err) {
    KILN_TRY(check_saved(saved, err));
    char *digest = digest_of(saved);
    if (!digest) {
        return kiln_err_nomem(err, "a result");
    }
    int found;
    enum kiln_status status =
            look_up(ledger, "SELECT id FROM result WHERE digest = ?1", digest, id, &found, err);
    *fresh = !found;
    if (status == KILN_STATUS_OK && !found) {
        status = insert_result(ledger, saved, digest, id, err);
    }
    kiln_free(digest);
    return status;
}

// ---- Experiments --------------------------------------------------------------------------------

static enum kiln_status check_name(const char *name, struct kiln_err *err) {
    int letters = 0, good = name && *name && strlen(name) < 64;
    for (const char *c = good ? name : ""; *c; c++) {
        letters += isalpha((unsigned char)*c) != 0;
        good &= isalnum((unsigned char)*c) || strchr("._-", *c) != NULL;
    }
    return good && letters > 0
                   ? KILN_STATUS_OK
                   : kiln_err_set(err, KILN_STATUS_USAGE,
                             "an experiment's name has letters, digits and ._- (at most 63, at "
                             "least one letter), not '%.80s'",
                             name ? name : "");
}

static enum kiln_status check_texts(
        const struct kiln_experiment *experiment, struct kiln_err *err) {
    const struct {
        const char *what, *text;
    } texts[] = {{"title", experiment->title}, {"why", experiment->why}, {"slot", experiment->slot},
            {"mechanism", experiment->mechanism}, {"retry", experiment->retry},
            {"note", experiment->note}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *at = texts[i].text ? texts[i].text : "";
        for (size_t left = strlen(at); left > 0;) {
            int n = kiln_utf8_len(at, left);
            if (n <= 0) {
                return kiln_err_set(
                        err, KILN_STATUS_USAGE, "--%s is not UTF-8 text", texts[i].what);
            }
            at += n;
            left -= (size_t)n;
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_experiment(
        const struct kiln_experiment *experiment, int update, struct kiln_err *err) {
    const char *verdict = experiment->verdict;
    KILN_TRY(check_name(experiment->name, err));
    KILN_TRY(check_texts(experiment, err));
    if (verdict && strcmp(verdict, "LANDED") != 0 && strcmp(verdict, "REVERTED") != 0 &&
            strcmp(verdict, "MEAS-ONLY") != 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "a verdict is LANDED, REVERTED or MEAS-ONLY, not '%.40s'", verdict);
    }
    if (experiment->date && !is_date(experiment->date)) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "a date is written 2026-11-30, not '%.40s'",
                experiment->date);
    }
    if (verdict && strcmp(verdict, "REVERTED") == 0 && !update &&
            (!experiment->why || !experiment->retry)) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "%s: REVERTED needs --why (below the bar, regression, or which gate) and --retry "
                "\"wall share of SLOT > 8 %%\": when it is worth another try",
                experiment->name);
    }
    struct kiln_retry *retry = NULL;
    enum kiln_status status =
            experiment->retry ? kiln_retry_parse(&retry, experiment->retry, err) : KILN_STATUS_OK;
    if (status == KILN_STATUS_OK && retry) {
        status = kiln_retry_check_slots(retry, err);
    }
    kiln_retry_destroy(retry);
    return status;
}

static enum kiln_status write_experiment(struct kiln_ledger *ledger,
        const struct kiln_experiment *experiment, int update, struct kiln_err *err) {
    char today[32];
    time_t now = time(NULL);
    struct tm utc;
    (void)strftime(today, sizeof(today), "%Y-%m-%d", gmtime_r(&now, &utc));
    char *figures = experiment->figures ? kiln_json_dump(experiment->figures, JSON_COMPACT) : NULL;
    if (experiment->figures && !figures) {
        return kiln_err_nomem(err, "an experiment");
    }
    const char *texts[] = {experiment->name, experiment->date || update ? experiment->date : today,
            experiment->title, experiment->verdict, experiment->why, experiment->slot,
            experiment->mechanism, experiment->retry, experiment->note, experiment->base,
            experiment->change, experiment->provenance, figures};
    static const char insert[] =
            "INSERT INTO experiment(name, date, title, verdict, why, slot, mechanism, retry, note,"
            " base, change, provenance, figures) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)";
    static const char change[] =
            "UPDATE experiment SET date = coalesce(?2, date), title = coalesce(?3, title),"
            " verdict = coalesce(?4, verdict), slot = coalesce(?6, slot),"
            // why it was taken back says nothing of one that is not
            " why = CASE WHEN ?5 IS NULL AND ?4 != 'REVERTED' AND verdict = 'REVERTED' THEN NULL"
            " ELSE coalesce(?5, why) END,"
            " mechanism = coalesce(?7, mechanism), retry = coalesce(?8, retry),"
            " note = coalesce(?9, note), base = coalesce(?10, base),"
            " change = coalesce(?11, change), provenance = coalesce(?12, provenance),"
            " figures = coalesce(?13, figures) WHERE name = ?1";
    sqlite3_stmt *statement;
    enum kiln_status status = kiln_ledger_prepare(ledger, update ? change : insert, texts,
            sizeof(texts) / sizeof(texts[0]), &statement, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_ledger_step(ledger, statement, "add an experiment", err);
    }
    kiln_free(figures);
    return status;
}

enum kiln_status kiln_ledger_add_experiment(struct kiln_ledger *ledger,
        const struct kiln_experiment *experiment, int update, struct kiln_err *err) {
    int found;
    int64_t id;
    KILN_TRY(check_experiment(experiment, update, err));
    KILN_TRY(look_up(ledger, "SELECT id FROM experiment WHERE name = ?1", experiment->name, &id,
            &found, err));
    if (found != (update != 0)) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                found ? "%s: there is an experiment %s already; --update changes it"
                      : "%s: there is no experiment %s to update",
                ledger->path, experiment->name);
    }
    return write_experiment(ledger, experiment, update, err);
}

enum kiln_status kiln_ledger_link(
        struct kiln_ledger *ledger, const char *name, int64_t result, struct kiln_err *err) {
    char number[24];
    int64_t id;
    int found;
    snprintf(number, sizeof(number), "%lld", (long long)result);
    KILN_TRY(look_up(ledger, "SELECT id FROM result WHERE id = CAST(?1 AS INTEGER)", number, &id,
            &found, err));
    if (!found) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "%s: there is no result %s; `kiln record list` "
                "has the numbers",
                ledger->path, number);
    }
    const char *texts[] = {name, number};
    sqlite3_stmt *statement;
    KILN_TRY(kiln_ledger_prepare(ledger,
            "INSERT OR IGNORE INTO evidence(experiment, result)"
            " SELECT id, CAST(?2 AS INTEGER) FROM experiment WHERE name = ?1",
            texts, 2, &statement, err));
    return kiln_ledger_step(ledger, statement, "add to an experiment", err);
}
