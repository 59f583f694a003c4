// ledger: what was measured and what came of it, in one SQLite file that outlives kills and full
// disks and takes many writers at once.
//
// Two kinds of entries:
//   result      what `--save` wrote (lab/save.h), whole; the same one is kept once
//   experiment  a change that was tried: a name, what it was, the results that judge it, a verdict
//               (LANDED, REVERTED or MEAS-ONLY), and when it is worth another try (lab/retry.h)
//
// Rows come out as JSON objects, one key a column, so that listing, export and reports share them.
// An opened ledger is for one thread; processes take turns by SQLite's locks and wait for each
// other. What a call has acknowledged is on disk (write-ahead log, flushed on every commit).
#ifndef KILN_LAB_LEDGER_H
#define KILN_LAB_LEDGER_H

#include "base/buf.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct json_t;
struct kiln_ledger;

enum kiln_ledger_mode {
    KILN_LEDGER_READ, // never changes the file; one that is not there is an empty ledger
    KILN_LEDGER_WRITE // makes folder and file; brings an older schema up to date
};

// Where the ledger is unless somebody says otherwise: KILN_LEDGER, else
// XDG_DATA_HOME/kiln/ledger.db, else HOME/.local/share/kiln/ledger.db. The caller frees it; NULL:
// no memory, or neither variable is set.
char *kiln_ledger_path(void);

// A file that cannot be read or written, a newer schema, another program's database or one that is
// damaged is KILN_STATUS_FILE. WRITE: a file that is no database at all, nor evidently something
// else (text, a model), is set aside under another name, with a warning, and a new one begun; READ
// refuses it. A read-only file or folder is fine for READ.
KILN_MUST_CHECK enum kiln_status kiln_ledger_open(struct kiln_ledger **ledger, const char *path,
        enum kiln_ledger_mode mode, struct kiln_err *err);
// The campaign that kiln's lab comes from, out of its text (configs/history/campaign.json): a
// read-only ledger of experiments.
KILN_MUST_CHECK enum kiln_status kiln_ledger_open_campaign(
        struct kiln_ledger **ledger, const char *path, struct kiln_err *err);
// A file that holds one JSON document: a saved result, the campaign's text; the caller owns *value
// (json_decref). (ledger_campaign.c)
KILN_MUST_CHECK enum kiln_status kiln_ledger_read_json(
        const char *path, struct json_t **value, struct kiln_err *err);
void kiln_ledger_close(struct kiln_ledger *ledger);             // NULL is fine
const char *kiln_ledger_name(const struct kiln_ledger *ledger); // its path

// ---- Taking in ----------------------------------------------------------------------------------

// All between begin and commit is kept together or not at all. begin waits for other writers;
// close without commit undoes.
KILN_MUST_CHECK enum kiln_status kiln_ledger_begin(
        struct kiln_ledger *ledger, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_ledger_commit(
        struct kiln_ledger *ledger, struct kiln_err *err);

// saved: the object that --save writes. An object that is none is KILN_STATUS_FILE and names the
// key. *fresh: 0 when the very same result was there already; *id is then that one's.
KILN_MUST_CHECK enum kiln_status kiln_ledger_add_result(struct kiln_ledger *ledger,
        const struct json_t *saved, int64_t *id, int *fresh, struct kiln_err *err);

struct kiln_experiment { // NULL: not said
    const char *name;    // "r46"; letters, digits and ._- with at least one letter
    const char *date;    // "2026-09-05"; today by default
    const char *title, *verdict, *why, *slot, *mechanism, *retry, *note;
    const char *base, *change; // configs as INI text, or the names of shipped ones
    const char *provenance;    // where the figures are from, when not from results of this ledger
    const struct json_t *figures; // array of {what, value, unit, grade}, or NULL
};
// Adds an experiment, or (update) changes what is said of one that is there. A name that is there
// already (or, with update, is not), a verdict that is none, a retry condition that does not parse
// are KILN_STATUS_USAGE. REVERTED wants `why` and a retry condition.
KILN_MUST_CHECK enum kiln_status kiln_ledger_add_experiment(struct kiln_ledger *ledger,
        const struct kiln_experiment *experiment, int update, struct kiln_err *err);
// Says that a result judges an experiment; both must be there.
KILN_MUST_CHECK enum kiln_status kiln_ledger_link(
        struct kiln_ledger *ledger, const char *name, int64_t result, struct kiln_err *err);

// ---- Looking ------------------------------------------------------------------------------------

struct kiln_ledger_filter { // NULL or 0: any
    const char *kind;       // of results
    const char *verdict, *device;
    const char *name;  // of an experiment
    const char *of;    // results that judge this experiment
    int64_t id;        // of a result
    int64_t limit;     // the newest so many
    int with_document; // results with their document and config, which may be long
};
// Arrays of objects, newest first; the caller owns *rows (json_decref).
//   results: id, kind, date, device, driver, kiln, sources, grade, verdict, summary
//            (+ device_id, target, config, base_config, result)
//   experiments: name, date, title, verdict, why, slot, mechanism, retry, note, base, change,
//            provenance, figures, results (ids)
KILN_MUST_CHECK enum kiln_status kiln_ledger_results(struct kiln_ledger *ledger,
        const struct kiln_ledger_filter *filter, struct json_t **rows, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_ledger_experiments(struct kiln_ledger *ledger,
        const struct kiln_ledger_filter *filter, struct json_t **rows, struct kiln_err *err);
// Entries that hold all of the words (a word with * at its end: that begin so); best first:
// {what: "result" or "experiment", name, title, found: the text round the words}.
KILN_MUST_CHECK enum kiln_status kiln_ledger_search(
        struct kiln_ledger *ledger, const char *words, struct json_t **rows, struct kiln_err *err);

// The dead levers (REVERTED or MEAS-ONLY) of `levers`, each with what its condition says against
// the newest results of `results`: {name, date, title, retry, state: "due", "no", "unknown" or
// "none" (no condition), why}. device: only results of devices with this in their name; or NULL.
KILN_MUST_CHECK enum kiln_status kiln_ledger_due(struct kiln_ledger *levers,
        struct kiln_ledger *results, const char *device, struct json_t **rows,
        struct kiln_err *err);

// The page of a round in six sections (background, principle, implementation, verification,
// results, lessons), as Markdown, from the experiment's results and the newest wall before it.
// What was not measured is said to be so, with the command that measures it. (ledger_draft.c)
KILN_MUST_CHECK enum kiln_status kiln_ledger_draft(
        struct kiln_ledger *ledger, const char *name, struct kiln_buf *page, struct kiln_err *err);

enum kiln_ledger_format {
    KILN_LEDGER_JSON,    // {experiments, results}, results whole
    KILN_LEDGER_CSV,     // one line an entry, RFC 4180
    KILN_LEDGER_MARKDOWN // two tables
};
// (ledger_export.c)
KILN_MUST_CHECK enum kiln_status kiln_ledger_export(struct kiln_ledger *ledger,
        enum kiln_ledger_format format, struct kiln_buf *text, struct kiln_err *err);

#endif
