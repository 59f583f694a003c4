// gate: tally, document, exit code.
#include "gate.h"

#include "common.h"
#include "lab/prompts.h"
#include "save.h"
#include "twin_run.h"

#include <inttypes.h>
#include <jansson.h>

static const char *const result_names[] = {"passed", "failed", "skipped"};

enum kiln_status kiln_gate_start(struct kiln_gate_tally *tally, struct kiln_err *err) {
    *tally = (struct kiln_gate_tally){.cases = json_array()};
    return tally->cases ? KILN_STATUS_OK : kiln_err_nomem(err, "the cases of a gate");
}

enum kiln_status kiln_gate_start_twin(struct kiln_gate_tally *tally, struct kiln_prompts *prompts,
        const struct kiln_twin_run *run, const char *prompts_path, const char *save,
        struct kiln_err *err) {
    *tally = (struct kiln_gate_tally){0};
    KILN_TRY(kiln_prompts_read(prompts, prompts_path, run->twin.model->tokenizer, err));
    KILN_TRY(kiln_gate_start(tally, err));
    tally->save = save;
    return kiln_twin_run_origin(run, "gate", save, &tally->origin, err);
}

void kiln_gate_finish(struct kiln_gate_tally *tally) {
    json_decref(tally->cases);
    json_decref(tally->origin);
    *tally = (struct kiln_gate_tally){0};
}

enum kiln_status kiln_gate_case(struct kiln_gate_tally *tally, enum kiln_gate_result result,
        struct json_t *detail, struct kiln_err *err) {
    tally->passed += result == KILN_GATE_PASSED;
    tally->failed += result == KILN_GATE_FAILED;
    tally->skipped += result == KILN_GATE_SKIPPED;
    if (!detail || json_object_set_new(detail, "result", json_string(result_names[result])) != 0 ||
            json_array_append(tally->cases, detail) != 0) {
        json_decref(detail);
        return kiln_err_nomem(err, "the cases of a gate");
    }
    json_decref(detail);
    return KILN_STATUS_OK;
}

// NULL: out of memory.
static json_t *document(const struct kiln_gate_tally *tally, const char *gate, const char *verdict,
        struct json_t *extra) {
    json_t *doc = json_pack("{s:s, s:s, s:I, s:I, s:I, s:O}", "gate", gate, "verdict", verdict,
            "passed", (json_int_t)tally->passed, "failed", (json_int_t)tally->failed, "skipped",
            (json_int_t)tally->skipped, "cases", tally->cases);
    if (doc && extra && json_object_update(doc, extra) != 0) {
        json_decref(doc);
        return NULL;
    }
    return doc;
}

enum kiln_status kiln_gate_conclude(struct kiln_gate_tally *tally, const char *gate, int json,
        struct json_t *extra, struct kiln_err *err) {
    int good = tally->failed == 0 && tally->passed > 0;
    json_t *doc = document(tally, gate, good ? "PASS" : "FAIL", extra);
    enum kiln_status status = kiln_save_keep(tally->save, tally->origin, doc, err);
    json_decref(extra);
    if (status == KILN_STATUS_OK && json) {
        status = kiln_out_json(json_incref(doc), err);
    } else if (status == KILN_STATUS_OK) {
        struct kiln_buf out = {0};
        kiln_buf_printf(&out, "%" PRId64 " passed, %" PRId64 " failed, %" PRId64 " skipped\n",
                tally->passed, tally->failed, tally->skipped);
        status = kiln_out_buf(&out, err);
    }
    json_decref(doc);
    if (status != KILN_STATUS_OK || good) {
        return status;
    }
    return kiln_err_set(err, KILN_STATUS_CHECK,
            "gate %s: FAIL: %" PRId64 " of %" PRId64 " cases failed", gate, tally->failed,
            tally->passed + tally->failed);
}
