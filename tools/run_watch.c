// run_watch: `run --watch` and interactive runs follow the configuration.
#include "run.h"

#include "base/log.h"

#include <stdio.h>

static void say(void *arg, int note, const char *line) {
    const struct run_state *state = arg;
    (void)note;
    fputs(state->at_prompt ? "\n" : "", stderr);
    kiln_say("%s", line);
}

enum kiln_status run_watch_begin(struct run_state *state, struct kiln_err *err) {
    struct kiln_common common = state->options->common;
    common.tuned = state->run.tuned;
    kiln_common_layers(&common, &state->layers);
    struct kiln_reload_params params = {.session = &state->run.session,
            .registry = state->run.registry,
            .config = &state->run.config,
            .layers = state->layers.layers,
            .stop = kiln_interrupted,
            .say = say,
            .arg = state};
    return kiln_reload_create(&state->reload, &params, err);
}

void run_watch_end(struct run_state *state) {
    kiln_reload_destroy(state->reload);
    state->reload = NULL;
}

enum kiln_status run_watch_step(struct run_state *state, struct kiln_err *err) {
    return state->reload ? kiln_reload_poll(state->reload, 0, err) : KILN_STATUS_OK;
}

enum kiln_status run_watch_prompt(struct run_state *state, struct kiln_err *err) {
    return state->reload ? kiln_reload_settle(state->reload, err) : KILN_STATUS_OK;
}

// As at the start: nothing in the context, the sampler's memory empty.
static enum kiln_status start_over(struct run_state *state, struct kiln_err *err) {
    kiln_sampler_destroy(state->sampler);
    state->sampler = NULL;
    state->held.len = 0;
    return run_make_sampler(state->options, &state->sampler, err);
}

enum kiln_status run_watch_loop(struct run_state *state,
        enum kiln_status (*once)(struct run_state *state, struct kiln_err *err),
        struct kiln_err *err) {
    for (;;) {
        KILN_TRY(run_watch_prompt(state, err));
        uint64_t seen = kiln_reload_count(state->reload);
        KILN_TRY(once(state, err));
        fprintf(stderr, "kiln: watching; an edit of the configuration or of a source runs the "
                        "prompt again, Ctrl-C ends\n");
        KILN_TRY(kiln_reload_wait(state->reload, seen, err));
        KILN_TRY(start_over(state, err));
    }
}
