// chat: a conversation to ids, in the format that a model was trained on.
//
// A model says how it wants a conversation written by a template (key tokenizer.chat_template), a
// small program in a language of its own. kiln does not run it: it recognises the formats of the
// families it knows by what their templates have in common, and writes those itself. Which of them,
// and with what in front, is read from the template's text, never from the model's name:
//
//   chatml       <|im_start|>ROLE\nTEXT<|im_end|>\n           smollm2, qwen2, qwen3
//   llama3       <|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>
//   gemma        <start_of_turn>ROLE\nTEXT<end_of_turn>\n     the system's text opens the first
//   user turn deepseek-r1  TEXT of the system, <User>TEXT, <Assistant>TEXT<end of sentence>
//
// Control tokens come from the format alone. What a person or the model says is text: spelling a
// control token in it gives the ids of its letters. Text and the format's own letters beside it are
// tokenized in one piece, as they stand.
//
// Not here: when a turn is over (kiln_tokenizer_is_end), what is fed to the engine.
#ifndef KILN_MODEL_CHAT_H
#define KILN_MODEL_CHAT_H

#include "base/status.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

enum kiln_chat_role {
    KILN_CHAT_SYSTEM, // once, before all others
    KILN_CHAT_USER,
    KILN_CHAT_ASSISTANT, // what the model answered earlier
};

struct kiln_chat;

// Recognises the template. KILN_STATUS_FILE names the key: the file has no template, or one that
// kiln does not know (with the list of those it knows), or its vocabulary lacks a token of the
// format. `tokenizer` outlives the chat, gguf need not. The caller ends *chat with kiln_chat_close.
KILN_MUST_CHECK enum kiln_status kiln_chat_open(struct kiln_chat **chat,
        const struct kiln_gguf *gguf, const struct kiln_tokenizer *tokenizer, struct kiln_err *err);
void kiln_chat_close(struct kiln_chat *chat); // NULL is fine

// Name of the format: "chatml" …
const char *kiln_chat_format(const struct kiln_chat *chat);

// Appends a whole turn to ids. The first turn brings along what opens a conversation:
// begin-of-text, and the system text that the template has of its own when it is given none. Text
// may hold any bytes; where the template trims it, it is trimmed. Of an earlier answer the thought
// (up to </think>) is left out where the template does so. A system turn that is not the first is
// KILN_STATUS_USAGE. On failure ids and chat are as they were.
KILN_MUST_CHECK enum kiln_status kiln_chat_append(struct kiln_chat *chat, enum kiln_chat_role role,
        const char *text, size_t len, struct kiln_ids *ids, struct kiln_err *err);

// Appends what makes the model answer. The chat does not change: for the next turn, ids are cut
// back to where they were before, and the answer is appended as a turn, which closes it.
KILN_MUST_CHECK enum kiln_status kiln_chat_begin_answer(
        const struct kiln_chat *chat, struct kiln_ids *ids, struct kiln_err *err);

// Back to before the first turn.
void kiln_chat_reset(struct kiln_chat *chat);

#endif
