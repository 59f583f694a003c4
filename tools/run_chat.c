// run_chat: `run --chat`: one turn from -p or -f, or a conversation.
//
// The conversation is kept as the ids of its closed turns. An answer is generated behind them and
// then appended as the turn that the template makes of it, so that the model always sees what it
// was trained on; the engine keeps what stays the same.
#include "run.h"

#include "base/file.h"
#include "base/mem.h"
#include "model/chat.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_PROMPT = 1 << 28
};

struct talk {
    struct kiln_chat *chat;
    struct kiln_ids ids; // of the closed turns
    struct kiln_ids answer;
    int over; // the context is full
};

static enum kiln_status open_talk(
        const struct run_state *state, struct talk *talk, struct kiln_err *err) {
    const char *system = state->options->system;
    kiln_chat_reset(talk->chat);
    talk->ids.len = 0;
    return system ? kiln_chat_append(
                            talk->chat, KILN_CHAT_SYSTEM, system, strlen(system), &talk->ids, err)
                  : KILN_STATUS_OK;
}

// Generates behind the turns; they are as before afterwards.
static enum kiln_status answer(struct run_state *state, struct talk *talk, struct kiln_err *err) {
    size_t closed = talk->ids.len;
    enum kiln_generate_end end = KILN_END_LENGTH;
    KILN_TRY(kiln_chat_begin_answer(talk->chat, &talk->ids, err));
    talk->over = state->interactive && !run_fits(state, &talk->ids);
    enum kiln_status status =
            talk->over ? KILN_STATUS_OK : run_answer(state, &talk->ids, &talk->answer, &end, err);
    talk->over = talk->over || end == KILN_END_CONTEXT;
    talk->ids.len = closed;
    return status;
}

static enum kiln_status one_turn(struct run_state *state, struct talk *talk, struct kiln_err *err) {
    const struct kiln_prompt_source *source = &state->options->source;
    char *data = NULL;
    size_t size = 0;
    if (source->file) {
        KILN_TRY(kiln_file_read(source->file, MAX_PROMPT, &data, &size, err));
    } else {
        size = strlen(source->text);
    }
    enum kiln_status status = kiln_chat_append(
            talk->chat, KILN_CHAT_USER, data ? data : source->text, size, &talk->ids, err);
    kiln_free(data);
    KILN_TRY(status);
    return answer(state, talk, err);
}

// A turn of the person and one of the model.
static enum kiln_status exchange(struct run_state *state, struct talk *talk,
        const struct run_line *line, struct kiln_err *err) {
    KILN_TRY(kiln_chat_append(
            talk->chat, KILN_CHAT_USER, line->text.data, line->text.len, &talk->ids, err));
    KILN_TRY(run_watch_prompt(state, err));
    KILN_TRY(run_resume(answer(state, talk, err)));
    const char *text = state->text.data ? state->text.data : "";
    return kiln_chat_append(
            talk->chat, KILN_CHAT_ASSISTANT, text, state->text.len, &talk->ids, err);
}

static enum kiln_status take_line(struct run_state *state, struct talk *talk,
        const struct run_line *line, struct kiln_err *err) {
    enum run_command command;
    KILN_TRY(run_take_command(state, line->text.data, &command, err));
    if (command == RUN_EXIT) {
        talk->over = 1;
    } else if (command == RUN_RESET) {
        fprintf(stderr, "kiln: a new conversation\n");
        return open_talk(state, talk, err);
    } else if (command == RUN_TEXT && line->text.len > 0) {
        return exchange(state, talk, line, err);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status converse(struct run_state *state, struct talk *talk, struct kiln_err *err) {
    struct run_line line = {0};
    fprintf(stderr, "kiln: chat (%s); /help lists the commands, Ctrl-D ends\n",
            kiln_chat_format(talk->chat));
    enum kiln_status status = KILN_STATUS_OK;
    while (status == KILN_STATUS_OK && !talk->over) {
        status = run_read_line(state, &line, err);
        if (line.over) {
            break;
        }
        if (status == KILN_STATUS_OK) {
            status = take_line(state, talk, &line, err);
        }
    }
    kiln_buf_finish(&line.text);
    return status;
}

enum kiln_status run_chat(struct run_state *state, struct kiln_err *err) {
    const struct kiln_model *model = state->run.session.model;
    struct talk talk = {0};
    KILN_TRY(kiln_chat_open(&talk.chat, model->gguf, model->tokenizer, err));
    enum kiln_status status = open_talk(state, &talk, err);
    if (status == KILN_STATUS_OK) {
        status = state->interactive ? converse(state, &talk, err) : one_turn(state, &talk, err);
    }
    kiln_chat_close(talk.chat);
    kiln_ids_finish(&talk.ids);
    kiln_ids_finish(&talk.answer);
    return status;
}
