// gate: what the gates share: the tally of their cases, its JSON document and its exit code.
#ifndef KILN_TOOLS_GATE_H
#define KILN_TOOLS_GATE_H

#include "cmd.h"

struct json_t;
struct kiln_buf;
struct kiln_prompts;
struct kiln_top2;
struct kiln_twin;
struct kiln_twin_run;

struct kiln_gate_tally {
    struct json_t *cases; // array
    int64_t passed, failed, skipped;
    const char *save;       // where kiln_gate_conclude keeps the document; NULL: nowhere
    struct json_t *origin;  // the envelope that it goes into (kiln_save_of); the tally's
    const char *model_file; // of the model that was run, its name; NULL: of none
};

enum kiln_gate_result {
    KILN_GATE_PASSED,
    KILN_GATE_FAILED,
    KILN_GATE_SKIPPED
};

KILN_MUST_CHECK enum kiln_status kiln_gate_start(
        struct kiln_gate_tally *tally, struct kiln_err *err);
void kiln_gate_finish(struct kiln_gate_tally *tally); // a zeroed one is fine

// What a gate of two configs starts with: the prompts of a file, and a tally whose document is kept
// at `save` (NULL: nowhere). The caller finishes both, whatever is returned.
KILN_MUST_CHECK enum kiln_status kiln_gate_start_twin(struct kiln_gate_tally *tally,
        struct kiln_prompts *prompts, const struct kiln_twin_run *run, const char *prompts_path,
        const char *save, struct kiln_err *err);

// Whether each prompt and n_more tokens behind it fit every side's context: fewer tokens than asked
// for would pass for as many. KILN_STATUS_USAGE says which -c is enough.
KILN_MUST_CHECK enum kiln_status kiln_gate_check_room(const struct kiln_twin *twin,
        const struct kiln_prompts *prompts, int64_t n_more, struct kiln_err *err);

// The best token of a row of logits and its gap to the next: {id, text, second, gap} (NULL: out of
// memory), and "12 ' the' (gap 0.01250)".
struct json_t *kiln_gate_token_json(const struct kiln_twin *twin, const struct kiln_top2 *top);
void kiln_gate_print_token(
        const struct kiln_twin *twin, const struct kiln_top2 *top, struct kiln_buf *out);

// Counts a case. Takes `detail`, an object (NULL: out of memory), and gives it the member "result".
KILN_MUST_CHECK enum kiln_status kiln_gate_case(struct kiln_gate_tally *tally,
        enum kiln_gate_result result, struct json_t *detail, struct kiln_err *err);

// The last line, "166 passed, 0 failed, 3 skipped", or with `json` the document {gate, verdict,
// passed, failed, skipped, cases, …members of extra}; takes `extra` (an object, or NULL). CHECK
// when a case failed or none passed. What is to be kept is kept in either case.
KILN_MUST_CHECK enum kiln_status kiln_gate_conclude(struct kiln_gate_tally *tally, const char *gate,
        int json, struct json_t *extra, struct kiln_err *err);

extern const struct kiln_cmd kiln_cmd_gate_parity, kiln_cmd_gate_greedy, kiln_cmd_gate_tolerance;

#endif
