// gate: tally, document, exit code.
#include "gate.h"

#include "common.h"
#include "lab/logits.h"
#include "lab/prompts.h"
#include "lab/save.h"
#include "save.h"
#include "twin_run.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

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
    tally->model_file = run->model_file;
    return kiln_twin_run_origin(run, "gate", save, &tally->origin, err);
}

enum kiln_status kiln_gate_check_room(const struct kiln_twin *twin,
        const struct kiln_prompts *prompts, int64_t n_more, struct kiln_err *err) {
    int64_t ctx = kiln_engine_ctx(twin->engine[KILN_SIDE_BASE]);
    for (int side = 0; side < KILN_SIDES; side++) {
        int64_t other = twin->engine[side] ? kiln_engine_ctx(twin->engine[side]) : ctx;
        ctx = other < ctx ? other : ctx;
    }
    for (size_t i = 0; i < prompts->count; i++) {
        int64_t n = (int64_t)prompts->items[i].len + n_more - 1; // the last one is not fed
        if (n > ctx) {
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "prompt %zu: its %zu tokens and the %" PRId64
                    " of -n do not fit the context of "
                    "%" PRId64 "; -c %" PRId64 " is enough",
                    i, prompts->items[i].len, n_more, ctx, n);
        }
    }
    return KILN_STATUS_OK;
}

json_t *kiln_gate_token_json(const struct kiln_twin *twin, const struct kiln_top2 *top) {
    struct kiln_str piece = {0};
    if (twin->model->tokenizer) {
        piece = kiln_tokenizer_piece(twin->model->tokenizer, top->id, 1);
    }
    return json_pack("{s:i, s:o, s:i, s:f}", "id", top->id, "text",
            kiln_json_text(piece.data ? piece.data : "", piece.len), "second", top->second, "gap",
            (double)top->gap);
}

void kiln_gate_print_token(
        const struct kiln_twin *twin, const struct kiln_top2 *top, struct kiln_buf *out) {
    kiln_buf_printf(out, "%" PRId32, top->id);
    if (twin->model->tokenizer) {
        struct kiln_str piece = kiln_tokenizer_piece(twin->model->tokenizer, top->id, 1);
        kiln_buf_puts(out, " '");
        kiln_buf_append(out, piece.data, piece.len);
        kiln_buf_puts(out, "'");
    }
    kiln_buf_printf(out, " (gap %.5f)", (double)top->gap);
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
    const char *file = tally->model_file;
    if (doc && ((extra && json_object_update(doc, extra) != 0) ||
                       (file && json_object_set_new(doc, "model_file",
                                        kiln_json_text(file, strlen(file))) != 0))) {
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
