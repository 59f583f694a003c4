// run_line: lines from a person, and the commands among them.
#include "run.h"

#include "base/log.h"
#include "engine/switch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// ---- Lines --------------------------------------------------------------------------------------

enum {
    LOOK_MS = 5 // between looks at the configuration while nothing is typed
};

// Waits for input; meanwhile the configuration is followed.
static enum kiln_status wait_input(struct run_state *state, struct kiln_err *err) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    int ready = 0;
    while (ready == 0 && !kiln_interrupted()) {
        uint64_t seen = state->reload ? kiln_reload_count(state->reload) : 0;
        state->at_prompt = 1;
        enum kiln_status status =
                state->reload ? kiln_reload_poll(state->reload, 1, err) : KILN_STATUS_OK;
        state->at_prompt = 0;
        KILN_TRY(status);
        if (state->reload && kiln_reload_count(state->reload) != seen) {
            fputs("> ", stderr);
        }
        ready = poll(&input, 1, state->reload ? LOOK_MS : -1);
        if (ready < 0 && errno != EINTR) {
            ready = 1; // read() will say what it is
        } else if (ready < 0) {
            ready = 0;
        }
    }
    return KILN_STATUS_OK;
}

// The next byte, or -1 at the end of the input or after Ctrl-C.
static enum kiln_status next_byte(
        struct run_state *state, struct run_line *line, int *byte, struct kiln_err *err) {
    *byte = -1;
    if (line->at == line->end) {
        KILN_TRY(wait_input(state, err));
        if (kiln_interrupted()) {
            return KILN_STATUS_OK;
        }
        ssize_t n = read(STDIN_FILENO, line->bytes, sizeof(line->bytes));
        if (n <= 0) {
            return KILN_STATUS_OK;
        }
        line->at = 0;
        line->end = (size_t)n;
    }
    *byte = (unsigned char)line->bytes[line->at++];
    return KILN_STATUS_OK;
}

enum kiln_status run_read_line(
        struct run_state *state, struct run_line *line, struct kiln_err *err) {
    fputs("> ", stderr);
    kiln_buf_clear(&line->text);
    kiln_buf_puts(&line->text, "");
    int c;
    KILN_TRY(next_byte(state, line, &c, err));
    line->over = c < 0;
    while (c >= 0 && c != '\n') {
        char byte = (char)c;
        kiln_buf_append(&line->text, &byte, 1);
        KILN_TRY(next_byte(state, line, &c, err));
    }
    if (c < 0) {
        fputc('\n', stderr);
    }
    if (kiln_interrupted()) {
        return kiln_err_set(err, KILN_STATUS_INTERRUPTED, "interrupted");
    }
    return line->text.failed ? kiln_err_nomem(err, "a line of input") : KILN_STATUS_OK;
}

// ---- Commands -----------------------------------------------------------------------------------

static void help(const struct run_state *state) {
    fprintf(stderr,
            "  /set SECTION.KEY=VALUE  set it on top of every file, as --set does\n"
            "  /config                 what runs, and what it was read from\n"
            "  /reset                  forget the %s\n"
            "  /exit                   end (so does Ctrl-D)\n"
            "  Ctrl-C                  stop the answer; at the prompt: end\n"
            "An edited INI file, or CUDA file that `source =` names, is taken over by itself.\n",
            state->options->chat ? "conversation" : "text");
}

static enum kiln_status show_config(struct run_state *state, struct kiln_err *err) {
    struct kiln_buf text = {0};
    KILN_TRY(run_watch_prompt(state, err));
    kiln_engine_summary(state->run.session.engine, &text);
    kiln_reload_describe(state->reload, &text);
    if (text.failed) {
        kiln_buf_finish(&text);
        return kiln_err_nomem(err, "the configuration");
    }
    fputs(text.data, stderr);
    kiln_buf_finish(&text);
    return KILN_STATUS_OK;
}

// What is refused is said, and the run goes on.
static enum kiln_status set(struct run_state *state, const char *assignment, struct kiln_err *err) {
    struct kiln_err refused = {0};
    enum kiln_status status = kiln_reload_set(state->reload, assignment, &refused);
    if (status == KILN_STATUS_INTERRUPTED) {
        *err = refused;
        return run_resume(status);
    }
    if (status != KILN_STATUS_OK) {
        kiln_say("not switched, the configuration in force stays: %s", refused.text);
    }
    return KILN_STATUS_OK;
}

// How long the word is when `line` is a command spelled wrong, else 0: `/` and one word with
// nothing behind it, or a command that takes nothing with something behind it. "/usr is full" is
// text.
static int misspelled(const char *line) {
    static const char *const bare[] = {"/exit", "/reset", "/help", "/config"};
    size_t length = line[0] == '/' ? 1 + strspn(line + 1, "abcdefghijklmnopqrstuvwxyz") : 0;
    int wrong = length > 1 && line[length + strspn(line + length, " ")] == '\0';
    for (size_t i = 0; i < sizeof(bare) / sizeof(bare[0]); i++) {
        wrong |= length > 1 && line[length] == ' ' && strlen(bare[i]) == length &&
                 strncmp(line, bare[i], length) == 0;
    }
    return wrong ? (int)length : 0;
}

enum kiln_status run_take_command(struct run_state *state, const char *line,
        enum run_command *command, struct kiln_err *err) {
    *command = RUN_DONE;
    if (strcmp(line, "/exit") == 0) {
        *command = RUN_EXIT;
    } else if (strcmp(line, "/reset") == 0) {
        *command = RUN_RESET;
    } else if (strcmp(line, "/help") == 0) {
        help(state);
    } else if (strcmp(line, "/config") == 0) {
        return show_config(state, err);
    } else if (strncmp(line, "/set", 4) == 0 && (line[4] == ' ' || line[4] == '\0')) {
        return set(state, line + 4 + strspn(line + 4, " "), err);
    } else if (misspelled(line)) {
        fprintf(stderr,
                "kiln: '%.*s' is no command, or takes nothing behind it; there are /set "
                "SECTION.KEY=VALUE, /config, /reset, /exit and /help; a blank in front makes it "
                "text\n",
                misspelled(line), line);
    } else {
        *command = RUN_TEXT;
    }
    return KILN_STATUS_OK;
}
