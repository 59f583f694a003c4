// chat_impl: what chat.c and chat_format.c share. Nothing else includes it.
#ifndef KILN_MODEL_CHAT_IMPL_H
#define KILN_MODEL_CHAT_IMPL_H

#include "base/buf.h"
#include "base/status.h"
#include "model/gguf.h"

enum {
    KILN_CHAT_MARKERS = 4,
    KILN_CHAT_REFUSED = 5
};

// What stands before and behind a turn's text, its control tokens spelled out.
struct kiln_chat_turn {
    const char *before, *after;
};

struct kiln_chat_format {
    const char *name;
    // Found in every template of the format, in the plain form that chat_format.c brings it into.
    const char *signature[2];
    // In plain form as well: signs of a template that writes more than the format does.
    const char *refused[KILN_CHAT_REFUSED];
    const char *markers[KILN_CHAT_MARKERS]; // its control tokens; the vocabulary must have them
    const char *bos; // how begin-of-text is spelled, should the template spell it
    struct kiln_chat_turn system, user, assistant;
    int trims;          // blanks around the text of a turn are dropped
    int system_in_user; // the system's text has no turn: it opens the first user turn, as it is
};

// What a template says beyond its format.
struct kiln_chat_style {
    const struct kiln_chat_format *format;
    int bos;                  // the conversation opens with begin-of-text
    int always_system;        // there is a system turn, asked for or not
    struct kiln_buf preamble; // in front of the system's text
    struct kiln_buf fallback; // the system's text when there is none
    int thinks;               // an answer begins with "<think>\n"
    int drops_thought;        // earlier answers lose what stands up to "</think>" …
    int drops_newlines;       // … and the newlines behind it
};

// Zero-initialize *style; end it with kiln_chat_style_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_chat_recognise(
        struct kiln_chat_style *style, const struct kiln_gguf *gguf, struct kiln_err *err);
void kiln_chat_style_finish(struct kiln_chat_style *style);

#endif
