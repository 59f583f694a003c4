// ledger_campaign: the campaign's text as a read-only ledger in memory.
#include "lab/ledger.h"

#include "base/file.h"
#include "base/mem.h"
#include "lab/ledger_impl.h"

#include <jansson.h>
#include <string.h>

enum {
    MAX_FILE = 1 << 26
};

static enum kiln_status add_one(
        struct kiln_ledger *ledger, const json_t *entry, struct kiln_err *err) {
    const struct kiln_experiment experiment = {
            .name = kiln_json_string(entry, "name", NULL),
            .date = kiln_json_string(entry, "date", NULL),
            .title = kiln_json_string(entry, "title", NULL),
            .verdict = kiln_json_string(entry, "verdict", NULL),
            .why = kiln_json_string(entry, "why", NULL),
            .slot = kiln_json_string(entry, "slot", NULL),
            .mechanism = kiln_json_string(entry, "mechanism", NULL),
            .retry = kiln_json_string(entry, "retry", NULL),
            .note = kiln_json_string(entry, "note", NULL),
            .base = kiln_json_string(entry, "base", NULL),
            .change = kiln_json_string(entry, "change", NULL),
            .provenance = kiln_json_string(entry, "provenance", NULL),
            .figures = json_object_get(entry, "figures"),
    };
    enum kiln_status status = kiln_ledger_add_experiment(ledger, &experiment, 0, err);
    if (status == KILN_STATUS_OK && !experiment.date) { // not told, which is not today
        const char *texts[] = {experiment.name};
        sqlite3_stmt *statement;
        KILN_TRY(kiln_ledger_prepare(ledger, "UPDATE experiment SET date = NULL WHERE name = ?1",
                texts, 1, &statement, err));
        status = kiln_ledger_step(ledger, statement, "add an experiment", err);
    }
    return status;
}

static enum kiln_status add_all(
        struct kiln_ledger *ledger, const json_t *campaign, struct kiln_err *err) {
    const json_t *entries = json_object_get(campaign, "experiments"), *entry;
    size_t i;
    if (!json_is_array(entries)) {
        return kiln_err_set(err, KILN_STATUS_FILE, "no array \"experiments\"");
    }
    KILN_TRY(kiln_ledger_begin(ledger, err));
    json_array_foreach(entries, i, entry) {
        KILN_TRY(add_one(ledger, entry, err));
    }
    KILN_TRY(kiln_ledger_commit(ledger, err));
    return kiln_ledger_exec(ledger, "PRAGMA query_only = 1", "close it to writers", err);
}

enum kiln_status kiln_ledger_read_json(
        const char *path, struct json_t **value, struct kiln_err *err) {
    char *text;
    size_t size;
    json_error_t problem;
    KILN_TRY(kiln_file_read(path, MAX_FILE, &text, &size, err));
    *value = json_loadb(text, size, JSON_REJECT_DUPLICATES, &problem);
    kiln_free(text);
    return *value ? KILN_STATUS_OK
                  : kiln_err_set(err, KILN_STATUS_FILE, "%s:%d: %s: no JSON document", path,
                            problem.line, problem.text);
}

enum kiln_status kiln_ledger_open_campaign(
        struct kiln_ledger **ledger, const char *path, struct kiln_err *err) {
    json_t *campaign = NULL;
    *ledger = NULL;
    KILN_TRY(kiln_ledger_read_json(path, &campaign, err));
    enum kiln_status status = kiln_ledger_open_memory(ledger, path, err);
    if (status == KILN_STATUS_OK) {
        status = add_all(*ledger, campaign, err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "%s: ", path);
            kiln_ledger_close(*ledger);
            *ledger = NULL;
        }
    }
    json_decref(campaign);
    return status;
}
