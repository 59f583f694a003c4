// cmd_run: a prompt in, text out.
#include "cmd.h"

#include "base/file.h"
#include "base/log.h"
#include "run.h"

#include <stdint.h>
#include <stdio.h>

enum kiln_status run_make_sampler(
        const struct run_options *o, struct kiln_sampler **sampler, struct kiln_err *err) {
    struct kiln_sampler_params params = kiln_sampler_defaults();
    params.greedy = o->greedy;
    params.temp = (float)o->temp;
    params.top_k = (int)o->top_k;
    params.top_p = (float)o->top_p;
    params.min_p = (float)o->min_p;
    params.repeat_penalty = (float)o->repeat_penalty;
    params.seed = (uint64_t)o->seed;
    return kiln_sampler_create(sampler, &params, err);
}

static enum kiln_status run_once(struct run_state *state, struct kiln_err *err) {
    const struct run_options *o = state->options;
    struct kiln_ids prompt = {0}, answer = {0};
    enum kiln_generate_end end;
    enum kiln_status status = kiln_prompt_read(
            &o->source, state->run.session.model->tokenizer, o->common.model, &prompt, err);
    if (status == KILN_STATUS_OK) {
        status = run_answer(state, &prompt, &answer, &end, err);
    }
    kiln_ids_finish(&prompt);
    kiln_ids_finish(&answer);
    return status;
}

static enum kiln_status run_all(struct run_state *state, struct kiln_err *err) {
    if (state->options->watch && !state->interactive) {
        return run_watch_loop(state, state->options->chat ? run_chat : run_once, err);
    }
    if (state->options->chat) {
        return run_chat(state, err);
    }
    if (!state->interactive) {
        return run_once(state, err);
    }
    if (!state->run.session.model->tokenizer) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "%s has no tokenizer: give token ids with --prompt-ids FILE",
                state->options->common.model);
    }
    return run_interactive(state, err);
}

static enum kiln_status check(const struct run_options *o, struct kiln_err *err) {
    KILN_TRY(kiln_prompt_check(&o->source, err));
    if (o->chat && o->source.ids_file) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--chat takes the prompt as text (-p or -f): token ids are a whole prompt already");
    }
    if (o->system && !o->chat) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "--system is part of a chat: add --chat");
    }
    if (o->common.json && kiln_prompt_is_interactive(&o->source)) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--json is one document for one prompt: give it with -p, -f or --prompt-ids");
    }
    if (o->capture[0] && o->watch) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--capture keeps one call of one run, and --watch runs again after each edit");
    }
    if (o->common.json && o->watch) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--json is one document, and --watch answers again after each edit");
    }
    return o->tokens_out ? kiln_file_check_write(o->tokens_out, err) : KILN_STATUS_OK;
}

static enum kiln_status end_capture(const struct run_state *state, struct kiln_err *err) {
    uint64_t bytes;
    if (!state->capture) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(kiln_capture_end(state->capture, &bytes, err));
    kiln_say("%s: captured in %s, %.1f MiB", state->options->capture[0], state->options->capture[1],
            (double)bytes / (1 << 20));
    return KILN_STATUS_OK;
}

static enum kiln_status open_run(struct run_state *state, struct kiln_err *err) {
    const struct run_options *o = state->options;
    if (o->capture[0]) {
        KILN_TRY(kiln_capture_create(&state->capture, o->capture[0], o->capture[1], err));
    }
    KILN_TRY(kiln_run_open(&state->run, &o->common, err));
    if (state->capture) {
        kiln_engine_trace(state->run.session.engine,
                kiln_capture_trace(state->capture, state->run.session.dev));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status run_with(const struct run_options *options, struct kiln_err *err) {
    // A turn of a chat ends by itself, at the latest when the context is full.
    int64_t n = options->n >= 0 ? options->n : options->chat ? INT64_MAX : 128;
    struct run_state state = {.options = options,
            .n = n,
            .interactive = kiln_prompt_is_interactive(&options->source)};
    KILN_TRY(run_make_sampler(options, &state.sampler, err));
    enum kiln_status status = open_run(&state, err);
    if (status == KILN_STATUS_OK && (state.interactive || options->watch)) {
        status = run_watch_begin(&state, err);
    }
    if (status == KILN_STATUS_OK) {
        status = run_all(&state, err);
    }
    if (status == KILN_STATUS_OK) {
        status = end_capture(&state, err);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_run_verdict(&state.run, err);
    }
    run_watch_end(&state);
    kiln_run_close(&state.run);
    kiln_capture_destroy(state.capture);
    kiln_sampler_destroy(state.sampler);
    kiln_buf_finish(&state.shown);
    kiln_buf_finish(&state.text);
    kiln_ids_finish(&state.held);
    return status;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_sampler_params defaults = kiln_sampler_defaults();
    struct run_options o = {.n = -1,
            .temp = (double)defaults.temp,
            .top_k = defaults.top_k,
            .top_p = (double)defaults.top_p,
            .min_p = (double)defaults.min_p,
            .repeat_penalty = (double)defaults.repeat_penalty};
    kiln_common_init(&o.common);
    int done;
    const struct kiln_opt table[] = {
            KILN_COMMON_MODEL(&o.common),
            KILN_PROMPT_OPTIONS(&o.source),
            {"-n", "--tokens", KILN_OPT_INT, &o.n, "N",
                    "tokens to generate (128; with --chat: to the end of the turn)", 0, 1e9},
            {"--chat", NULL, KILN_OPT_FLAG, &o.chat, NULL,
                    "the prompt is a turn of a chat, in the model's own format", 0, 0},
            {"--system", NULL, KILN_OPT_STRING, &o.system, "TEXT",
                    "what a chat's model is told beforehand", 0, 0},
            {"--greedy", NULL, KILN_OPT_FLAG, &o.greedy, NULL, "always the likeliest token", 0, 0},
            {"--temp", NULL, KILN_OPT_NUMBER, &o.temp, "T", "temperature (0.8); 0 is greedy", 0,
                    100},
            {"--top-k", NULL, KILN_OPT_INT, &o.top_k, "K", "of the K likeliest (40); 0: all", 0,
                    1e9},
            {"--top-p", NULL, KILN_OPT_NUMBER, &o.top_p, "P",
                    "of the likeliest that make up P (0.95); 1: all", 1e-9, 1},
            {"--min-p", NULL, KILN_OPT_NUMBER, &o.min_p, "P",
                    "of those at least P times as likely as the best (0.05); 0: all", 0, 1},
            {"--repeat-penalty", NULL, KILN_OPT_NUMBER, &o.repeat_penalty, "R",
                    "against tokens of the last 64 (1: none)", 1e-6, 100},
            {"--seed", NULL, KILN_OPT_INT, &o.seed, "N", "same seed, same text (0)", 0, 9e15},
            {"--ignore-eos", NULL, KILN_OPT_FLAG, &o.ignore_eos, NULL,
                    "go on past an end token, which is output like any other", 0, 0},
            {"--tokens-out", NULL, KILN_OPT_STRING, &o.tokens_out, "FILE",
                    "write the generated ids there, one a line", 0, 0},
            {"--watch", NULL, KILN_OPT_FLAG, &o.watch, NULL,
                    "run the prompt again whenever the configuration or a CUDA source is edited", 0,
                    0},
            {"--capture", NULL, KILN_OPT_PAIR, (void *)o.capture, "SLOT@LAYER DIR",
                    "keep what the first such call reads and writes there, for `kiln op --from`", 0,
                    0},
            KILN_COMMON_ENGINE(&o.common),
            KILN_COMMON_GRAPH(&o.common),
            KILN_COMMON_SIM(&o.common),
            KILN_COMMON_CONFIG(&o.common),
            KILN_COMMON_OUTPUT(&o.common),
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(check(&o, err));
    return run_with(&o, err);
}

const struct kiln_cmd kiln_cmd_run = {
        .name = "run",
        .summary = "text from a prompt; without one, interactive",
        .usage = "-m MODEL [-p TEXT | -f FILE | --prompt-ids FILE] [--chat] [-n N] …",
        .example = "kiln run -m model.gguf -p 'The capital of France is' -n 32 --greedy",
        .run = run,
};
