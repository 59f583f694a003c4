// run_interactive: lines from a person; the model goes on from each.
#include "run.h"

#include <stdio.h>

enum kiln_status run_resume(enum kiln_status status) {
    if (status == KILN_STATUS_OK || status == KILN_STATUS_INTERRUPTED) {
        return kiln_interrupt_clear() ? KILN_STATUS_OK : KILN_STATUS_INTERRUPTED;
    }
    return status;
}

// ---- Text that goes on --------------------------------------------------------------------------

static enum kiln_status append_ids(
        struct kiln_ids *to, const struct kiln_ids *from, struct kiln_err *err) {
    for (size_t i = 0; i < from->len; i++) {
        KILN_TRY(kiln_ids_push(to, from->ids[i], err));
    }
    return KILN_STATUS_OK;
}

struct story {
    struct kiln_ids ids, answer;
    int over;
};

static enum kiln_status go_on(struct run_state *state, struct story *story,
        const struct run_line *line, struct kiln_err *err) {
    unsigned flags = (story->ids.len ? 0u : KILN_TOKENIZE_BOS) |
                     (state->options->source.no_special ? 0u : KILN_TOKENIZE_SPECIAL);
    KILN_TRY(kiln_tokenizer_encode(state->run.session.model->tokenizer, line->text.data,
            line->text.len, flags, &story->ids, err));
    story->over = !run_fits(state, &story->ids);
    if (story->over || story->ids.len == 0) {
        return KILN_STATUS_OK;
    }
    enum kiln_generate_end end = KILN_END_LENGTH;
    KILN_TRY(run_watch_prompt(state, err));
    KILN_TRY(run_resume(run_answer(state, &story->ids, &story->answer, &end, err)));
    story->over = end == KILN_END_CONTEXT;
    return append_ids(&story->ids, &story->answer, err);
}

static enum kiln_status take_line(struct run_state *state, struct story *story,
        const struct run_line *line, struct kiln_err *err) {
    enum run_command command;
    KILN_TRY(run_take_command(state, line->text.data, &command, err));
    if (command == RUN_EXIT) {
        story->over = 1;
    } else if (command == RUN_RESET) {
        fprintf(stderr, "kiln: a new text\n");
        story->ids.len = 0;
    } else if (command == RUN_TEXT) {
        return go_on(state, story, line, err);
    }
    return KILN_STATUS_OK;
}

enum kiln_status run_interactive(struct run_state *state, struct kiln_err *err) {
    struct story story = {0};
    struct run_line line = {0};
    fprintf(stderr,
            "kiln: the model goes on from each line; /help lists the commands, Ctrl-C stops "
            "it, an empty line or Ctrl-D ends\n");
    enum kiln_status status = KILN_STATUS_OK;
    while (status == KILN_STATUS_OK && !story.over) {
        status = run_read_line(state, &line, err);
        if (status == KILN_STATUS_OK && line.text.len == 0) {
            break;
        }
        if (status == KILN_STATUS_OK) {
            status = take_line(state, &story, &line, err);
        }
    }
    kiln_ids_finish(&story.ids);
    kiln_ids_finish(&story.answer);
    kiln_buf_finish(&line.text);
    return status;
}
