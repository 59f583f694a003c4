// run: what the files of `kiln run` share.
//   cmd_run.c          options, what is run
//   run_prompt.c       one prompt: feeding, showing, the lines and JSON behind it
//   run_interactive.c  lines from a person, the text goes on
//   run_chat.c         --chat: one turn, or a conversation
//   run_line.c         a line from stdin, and the commands among them
//   run_watch.c        switching to what the configuration says by now
#ifndef KILN_TOOLS_RUN_H
#define KILN_TOOLS_RUN_H

#include "base/buf.h"
#include "common.h"
#include "engine/generate.h"
#include "engine/reload.h"
#include "lab/capture.h"
#include "prompt.h"

struct run_options {
    struct kiln_common common;
    struct kiln_prompt_source source;
    int64_t n; // -1: not given
    int greedy, ignore_eos, chat, watch;
    const char *system;
    double temp, top_p, min_p, repeat_penalty;
    int64_t top_k, seed;
    const char *tokens_out;
    const char *capture[2]; // what, where to; NULL: nothing
};

struct run_state {
    const struct run_options *options;
    int64_t n;       // tokens of an answer at most
    int interactive; // less is said after an answer
    struct kiln_run run;
    struct kiln_sampler *sampler;
    struct kiln_capture *capture; // NULL: none
    struct kiln_stream stream;
    struct kiln_buf shown;            // of one token, reused
    struct kiln_buf text;             // of the answer
    struct kiln_ids held;             // what the engine's context holds
    struct kiln_reload *reload;       // NULL: the configuration of the start stays
    struct kiln_option_layers layers; // that it follows
    int at_prompt;                    // a "> " stands on the line that is written to
};

// The sampler of the options, as at the start.
KILN_MUST_CHECK enum kiln_status run_make_sampler(
        const struct run_options *options, struct kiln_sampler **sampler, struct kiln_err *err);

// Generates behind ids, of which only what the engine does not hold yet is fed, and shows the text.
// `answer`: the ids generated, also after an interruption; ended and filled anew. `end` says what
// ended it.
KILN_MUST_CHECK enum kiln_status run_answer(struct run_state *state, const struct kiln_ids *ids,
        struct kiln_ids *answer, enum kiln_generate_end *end, struct kiln_err *err);
// Whether ids leave room in the context; if not, says so.
int run_fits(const struct run_state *state, const struct kiln_ids *ids);

// A line of stdin, without its end. Zero-initialize; end the text with kiln_buf_finish.
struct run_line {
    struct kiln_buf text;
    int over;         // no line: the end of the input
    char bytes[4096]; // read and not given out yet
    size_t at, end;
};
// Shows "> " and waits; edits of the configuration take effect meanwhile. Ctrl-C is
// KILN_STATUS_INTERRUPTED.
KILN_MUST_CHECK enum kiln_status run_read_line(
        struct run_state *state, struct run_line *line, struct kiln_err *err);

enum run_command {
    RUN_TEXT, // no command
    RUN_DONE, // a command that was carried out, or refused with a message
    RUN_RESET,
    RUN_EXIT,
};
// Carries out what all interactive modes know: /help, /config, /set. A status other than OK ends
// the run.
KILN_MUST_CHECK enum kiln_status run_take_command(
        struct run_state *state, const char *line, enum run_command *command, struct kiln_err *err);
// After an answer: one stopped by Ctrl-C counts as done, and the next Ctrl-C is a new one.
KILN_MUST_CHECK enum kiln_status run_resume(enum kiln_status status);

// Follows the configuration from here on.
KILN_MUST_CHECK enum kiln_status run_watch_begin(struct run_state *state, struct kiln_err *err);
void run_watch_end(struct run_state *state);
// Between the tokens of an answer, and before a prompt, where what was edited is waited for.
KILN_MUST_CHECK enum kiln_status run_watch_step(struct run_state *state, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status run_watch_prompt(struct run_state *state, struct kiln_err *err);
// `once` again and again: whenever what runs has changed, from the start. Ends with INTERRUPTED.
KILN_MUST_CHECK enum kiln_status run_watch_loop(struct run_state *state,
        enum kiln_status (*once)(struct run_state *state, struct kiln_err *err),
        struct kiln_err *err);

KILN_MUST_CHECK enum kiln_status run_interactive(struct run_state *state, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status run_chat(struct run_state *state, struct kiln_err *err);

#endif
