// run_prompt: one prompt in, its answer out.
#include "run.h"

#include "base/file.h"
#include "device/sim/sim.h"
#include "lab/save.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

// ---- Showing tokens -----------------------------------------------------------------------------

static enum kiln_status show(struct run_state *state, struct kiln_err *err) {
    enum kiln_status status = KILN_STATUS_OK;
    kiln_buf_append(&state->text, state->shown.data, state->shown.len);
    if (state->shown.failed || state->text.failed) {
        status = kiln_err_nomem(err, "the output");
    } else if (!state->options->common.json && state->shown.len > 0) {
        status = kiln_out(state->shown.data, state->shown.len, err);
    }
    kiln_buf_clear(&state->shown);
    return status;
}

static enum kiln_status show_token(void *arg, int32_t id, struct kiln_err *err) {
    struct run_state *state = arg;
    const struct kiln_tokenizer *tokenizer = state->run.session.model->tokenizer;
    if (tokenizer) {
        struct kiln_str piece = kiln_tokenizer_piece(tokenizer, id, state->options->ignore_eos);
        kiln_stream_push(&state->stream, piece.data, piece.len, &state->shown);
    } else {
        kiln_buf_printf(&state->shown, "%" PRId32 "\n", id);
    }
    KILN_TRY(show(state, err));
    return run_watch_step(state, err);
}

static enum kiln_status end_text(struct run_state *state, struct kiln_err *err) {
    kiln_stream_end(&state->stream, &state->shown);
    KILN_TRY(show(state, err));
    if (state->run.session.model->tokenizer && !state->options->common.json) {
        return kiln_out("\n", 1, err);
    }
    return KILN_STATUS_OK;
}

// ---- Behind the text ----------------------------------------------------------------------------

static json_t *timings(size_t fed, const struct kiln_generated *out) {
    double prompt_rate = out->prompt_seconds > 0 ? (double)fed / out->prompt_seconds : 0;
    double rate = out->decode_seconds > 0 ? (double)out->decode_steps / out->decode_seconds : 0;
    return json_pack("{s:f, s:f, s:f, s:f}", "prompt_ms", out->prompt_seconds * 1e3,
            "prompt_per_second", prompt_rate, "decode_ms", out->decode_seconds * 1e3,
            "decode_per_second", rate);
}

static enum kiln_status print_json(struct run_state *state, const struct kiln_ids *prompt,
        const struct kiln_generated *out, struct kiln_err *err) {
    static const char *const ends[] = {"length", "end", "context"};
    struct kiln_sim_report *report = kiln_sim_dev_report(state->run.session.dev);
    json_t *instructions = report ? json_integer((json_int_t)kiln_sim_instructions(report)) : NULL;
    return kiln_out_json(
            json_pack("{s:o, s:o, s:o, s:s, s:s, s:s, s:o, s:o, s:o*}", "text",
                    kiln_json_text(state->text.data, state->text.len), "prompt_ids",
                    kiln_json_ids(prompt->ids, prompt->len), "ids",
                    kiln_json_ids(out->ids.ids, out->ids.len), "device", state->run.session.dev->id,
                    "graph", kiln_engine_graph(state->run.session.engine) ? "on" : "off",
                    "stopped_by", ends[out->end], "timings", timings(prompt->len, out),
                    "device_memory", kiln_json_memory(&state->run.session), "warp_instructions",
                    instructions),
            err);
}

static enum kiln_status write_tokens(
        const char *path, const struct kiln_ids *ids, struct kiln_err *err) {
    struct kiln_buf text = {0};
    for (size_t i = 0; i < ids->len; i++) {
        kiln_buf_printf(&text, "%" PRId32 "\n", ids->ids[i]);
    }
    enum kiln_status status =
            text.failed ? kiln_err_nomem(err, "the token list")
                        : kiln_file_write(path, text.data ? text.data : "", text.len, err);
    kiln_buf_finish(&text);
    return status;
}

static void say_full(const struct run_state *state) {
    fprintf(stderr, "kiln: the context of %" PRId64 " tokens is full; a larger -c holds more\n",
            kiln_engine_ctx(state->run.session.engine));
}

static void print_stats(
        const struct run_state *state, size_t fed, const struct kiln_generated *out) {
    if (out->end == KILN_END_CONTEXT) {
        say_full(state);
    }
    if (state->interactive && !state->options->common.verbose) {
        return;
    }
    fprintf(stderr, "kiln: %s: prompt %zu tokens in %.2f s (%.1f/s), %zu tokens out",
            state->run.session.dev->id, fed, out->prompt_seconds,
            out->prompt_seconds > 0 ? (double)fed / out->prompt_seconds : 0.0, out->ids.len);
    if (out->decode_steps > 0) {
        fprintf(stderr, " (%.1f/s)", (double)out->decode_steps / out->decode_seconds);
    }
    fprintf(stderr, "\n");
    if (state->options->common.verbose) {
        kiln_print_memory(&state->run.session);
    }
}

static enum kiln_status finish_output(struct run_state *state, const struct kiln_ids *prompt,
        size_t fed, const struct kiln_generated *out, struct kiln_err *err) {
    KILN_TRY(end_text(state, err));
    if (state->options->common.json) {
        KILN_TRY(print_json(state, prompt, out, err));
    }
    if (state->options->tokens_out) {
        KILN_TRY(write_tokens(state->options->tokens_out, &out->ids, err));
    }
    print_stats(state, fed, out);
    return KILN_STATUS_OK;
}

// ---- One prompt ---------------------------------------------------------------------------------

int run_fits(const struct run_state *state, const struct kiln_ids *ids) {
    int fits = (int64_t)ids->len <= kiln_engine_ctx(state->run.session.engine);
    if (!fits) {
        say_full(state);
    }
    return fits;
}

// Drops from the engine what differs from ids, and returns how many are left to build on. The last
// id is always fed, because its logits are needed.
static size_t keep_common(struct run_state *state, const struct kiln_ids *ids) {
    size_t same = 0;
    size_t there = (size_t)kiln_engine_n_past(state->run.session.engine); // 0 after some switches
    while (same < state->held.len && same < there && same + 1 < ids->len &&
            state->held.ids[same] == ids->ids[same]) {
        same++;
    }
    kiln_engine_truncate(state->run.session.engine, (int64_t)same);
    return same;
}

// The engine has taken the first of ids and of what came behind them.
static enum kiln_status note_held(struct run_state *state, const struct kiln_ids *ids,
        const struct kiln_ids *answer, struct kiln_err *err) {
    size_t n = (size_t)kiln_engine_n_past(state->run.session.engine);
    state->held.len = 0;
    for (size_t i = 0; i < n && i < ids->len + answer->len; i++) {
        int32_t id = i < ids->len ? ids->ids[i] : answer->ids[i - ids->len];
        KILN_TRY(kiln_ids_push(&state->held, id, err));
    }
    return KILN_STATUS_OK;
}

enum kiln_status run_answer(struct run_state *state, const struct kiln_ids *ids,
        struct kiln_ids *answer, enum kiln_generate_end *end, struct kiln_err *err) {
    struct kiln_generate_params params = {
            .n = state->n,
            .ignore_end = state->options->ignore_eos,
            .token = show_token,
            .arg = state,
    };
    struct kiln_generated out = {0};
    kiln_buf_clear(&state->text);
    size_t same = keep_common(state, ids), fed = ids->len - same;
    enum kiln_status status = kiln_generate(
            &state->run.session, state->sampler, ids->ids + same, (int64_t)fed, &params, &out, err);
    struct kiln_err other = {0}; // being interrupted is what counts
    enum kiln_status noted = note_held(state, ids, &out.ids, status ? &other : err);
    if (status == KILN_STATUS_OK) {
        status = noted == KILN_STATUS_OK ? finish_output(state, ids, fed, &out, err) : noted;
    } else if (status == KILN_STATUS_INTERRUPTED) {
        enum kiln_status shown = end_text(state, &other);
        (void)shown;
    }
    kiln_ids_finish(answer);
    *answer = out.ids;
    *end = out.end;
    return status;
}
