// record: what the parts of `kiln record` share: which ledger is meant, and common options.
#ifndef KILN_TOOLS_RECORD_H
#define KILN_TOOLS_RECORD_H

#include "common.h"

#include "lab/ledger.h"

struct kiln_record {
    const char *ledger; // --ledger, or NULL
    const char *out;    // -o, or NULL: stdout
    int campaign, json;
};

#define KILN_RECORD_LEDGER(o) \
    { \
        "--ledger", NULL, KILN_OPT_STRING, (void *)&(o)->ledger, "FILE", \
                "the ledger (KILN_LEDGER, else kiln/ledger.db in the data folder)", 0, 0 \
    }
#define KILN_RECORD_OPTIONS(o) \
    KILN_RECORD_LEDGER(o), \
            {"--campaign", NULL, KILN_OPT_FLAG, &(o)->campaign, NULL, \
                    "the campaign that ships with kiln, read-only", 0, 0}, \
    { \
        "--json", NULL, KILN_OPT_FLAG, &(o)->json, NULL, "one JSON document on stdout", 0, 0 \
    }

// The path of the ledger meant by the option (NULL: by the environment); the caller frees it.
KILN_MUST_CHECK enum kiln_status kiln_record_path(
        const char *option, char **path, struct kiln_err *err);
// A file of the shipped campaign (configs/history); the caller frees it.
KILN_MUST_CHECK enum kiln_status kiln_record_campaign(
        const char *name, char **path, struct kiln_err *err);
// The ledger that the options mean, for reading.
KILN_MUST_CHECK enum kiln_status kiln_record_open(
        struct kiln_ledger **ledger, const struct kiln_record *o, struct kiln_err *err);

enum kiln_status kiln_record_add(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err);

#endif
