// ledger_impl: what the parts of the ledger share: the database and its short cuts.
#ifndef KILN_LAB_LEDGER_IMPL_H
#define KILN_LAB_LEDGER_IMPL_H

#include "lab/ledger.h"

#include <sqlite3.h>

struct kiln_ledger {
    sqlite3 *db;
    char *path;
};

// The database's last failure as a status: what was being done is a phrase: "add a result".
enum kiln_status kiln_ledger_failed(
        const struct kiln_ledger *ledger, const char *doing, struct kiln_err *err);

// An empty ledger that is in no file. (ledger.c)
KILN_MUST_CHECK enum kiln_status kiln_ledger_open_memory(
        struct kiln_ledger **ledger, const char *name, struct kiln_err *err);

// Statements without rows. (ledger.c)
KILN_MUST_CHECK enum kiln_status kiln_ledger_exec(
        struct kiln_ledger *ledger, const char *sql, const char *doing, struct kiln_err *err);
// (ledger.c) The schema in an empty or older database.
KILN_MUST_CHECK enum kiln_status kiln_ledger_migrate(
        struct kiln_ledger *ledger, struct kiln_err *err);

// One statement with texts (NULL is NULL) for its ?1, ?2 …; sqlite3_finalize by the caller.
KILN_MUST_CHECK enum kiln_status kiln_ledger_prepare(struct kiln_ledger *ledger, const char *sql,
        const char *const *texts, size_t n, sqlite3_stmt **statement, struct kiln_err *err);
// Runs a statement that gives no rows, and finalizes it.
KILN_MUST_CHECK enum kiln_status kiln_ledger_step(struct kiln_ledger *ledger,
        sqlite3_stmt *statement, const char *doing, struct kiln_err *err);
// All rows of a statement as objects by column name; columns named "document", "figures" and
// "results" hold JSON. Finalizes it.
KILN_MUST_CHECK enum kiln_status kiln_ledger_rows(struct kiln_ledger *ledger,
        sqlite3_stmt *statement, struct json_t **rows, struct kiln_err *err);

// What a line says of a result, and its verdict or NULL, out of its kind and document; both are the
// caller's. (ledger_summary.c)
KILN_MUST_CHECK enum kiln_status kiln_ledger_summary(const char *kind, const struct json_t *result,
        char **summary, const char **verdict, struct kiln_err *err);

// "pp3325", "tg128@d2048": what a row with n_prompt, n_gen and n_depth is about. (ledger_summary.c)
void kiln_result_test_name(const struct json_t *row, char *name, size_t size);

// What a gate's result (a row with its document) says of a slot, "PASS" or "FAIL"; NULL: nothing.
// Parity is about the slots of its cases, the others about those that their two configurations give
// other settings. slot NULL: the result as a whole. (ledger_gate.c)
const char *kiln_result_gate_verdict(const struct json_t *row, const char *gate, const char *slot);

// The name of the model's file that a result (a row with its document) is of; NULL: of none, or it
// does not say. (ledger_model.c)
const char *kiln_result_model(const struct json_t *row);
// The models that the results behind a lever (a row) are of, as the keys of an object; the caller
// owns it. (ledger_model.c)
KILN_MUST_CHECK enum kiln_status kiln_lever_models(struct kiln_ledger *ledger,
        const struct json_t *lever, struct json_t **models, struct kiln_err *err);

// Whether a result is of one of them, as far as anybody knows: true where it does not say its own,
// or there are none. (ledger_model.c)
int kiln_result_may_be_of(const struct json_t *row, const struct json_t *models);

// Appends text so that it stays within a cell of a Markdown table. (ledger_export.c)
void kiln_markdown_cell(const char *value, struct kiln_buf *text);

// A value as text, with jansson's flags; NULL: no memory. The caller frees it. (ledger_store.c)
char *kiln_json_dump(const struct json_t *value, size_t flags);
// The text of an object's key, or `fallback`.
const char *kiln_json_string(const struct json_t *object, const char *key, const char *fallback);
double kiln_json_double(const struct json_t *object, const char *key, double fallback);

#endif
