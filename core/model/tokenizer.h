// tokenizer: text to ids and back, from the tables in a GGUF file.
//
// Two kinds (tokenizer.ggml.model): "gpt2", byte-level BPE whose pretokenizer is named by
// tokenizer.ggml.pre, and "llama", SentencePiece (highest-score merge first, bytes as fallback).
// Each is its own file behind this header: tokenizer_bpe.c, tokenizer_spm.c. Pretokenizers are a
// table of names and PCRE2 patterns: pretokenizer.c. A name that the table lacks is an error that
// lists what it has.
//
// A tokenizer is read-only after open and may be used by several threads at once.
#ifndef KILN_MODEL_TOKENIZER_H
#define KILN_MODEL_TOKENIZER_H

#include "base/buf.h"
#include "base/status.h"
#include "model/gguf.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_tokenizer;

// A growing list of token ids. Zero-initialize; end with kiln_ids_finish.
struct kiln_ids {
    int32_t *ids;
    size_t len;
    size_t cap;
};
KILN_MUST_CHECK enum kiln_status kiln_ids_push(
        struct kiln_ids *ids, int32_t id, struct kiln_err *err);
void kiln_ids_finish(struct kiln_ids *ids);

// Reads and checks the tables (lengths agree, ids in range, merges well formed, UTF-8 not assumed).
// KILN_STATUS_FILE names the key. A file whose tokenizer.ggml.model is "none", or that has no
// tokenizer at all, succeeds with *tokenizer == NULL: such a model takes ids only.
KILN_MUST_CHECK enum kiln_status kiln_tokenizer_open(
        struct kiln_tokenizer **tokenizer, const struct kiln_gguf *gguf, struct kiln_err *err);
void kiln_tokenizer_close(struct kiln_tokenizer *tokenizer); // NULL is fine

enum kiln_tokenize_flags {
    KILN_TOKENIZE_BOS = 1,     // begin-of-text (and end-of-text behind) where the file asks
    KILN_TOKENIZE_SPECIAL = 2, // recognise control tokens spelled out in the text
};

// Appends the ids of text[0..len); len up to 2^30. Any bytes are accepted: what is not UTF-8
// becomes byte tokens. A byte that a "gpt2" vocabulary has no token for is left out. On failure ids
// is as it was.
KILN_MUST_CHECK enum kiln_status kiln_tokenizer_encode(const struct kiln_tokenizer *tokenizer,
        const char *text, size_t len, unsigned flags, struct kiln_ids *ids, struct kiln_err *err);

// The bytes of one id, as they stand in running text (a control token: its spelling when `special`,
// else nothing). Views into the tokenizer. An id out of range gives no bytes.
struct kiln_str kiln_tokenizer_piece(
        const struct kiln_tokenizer *tokenizer, int32_t id, int special);

// Appends the text of ids. The inverse of encode, without begin-of-text and its added blank.
void kiln_tokenizer_decode(const struct kiln_tokenizer *tokenizer, const int32_t *ids, size_t len,
        int special, struct kiln_buf *text);

int32_t kiln_tokenizer_size(const struct kiln_tokenizer *tokenizer);
int32_t kiln_tokenizer_bos(const struct kiln_tokenizer *tokenizer); // -1: none
int32_t kiln_tokenizer_eos(const struct kiln_tokenizer *tokenizer); // -1: none
int kiln_tokenizer_adds_bos(const struct kiln_tokenizer *tokenizer);
// End of text or end of turn: generation stops there. Covers eos, eot, eom and the well-known
// end-of-turn spellings of the families kiln knows (<|im_end|>, <end_of_turn>, <|eot_id|>,
// <|endoftext|> …).
int kiln_tokenizer_is_end(const struct kiln_tokenizer *tokenizer, int32_t id);
int kiln_tokenizer_is_control(const struct kiln_tokenizer *tokenizer, int32_t id);
// The id whose text is exactly this, or -1. For control tokens in chat templates.
int32_t kiln_tokenizer_find(const struct kiln_tokenizer *tokenizer, const char *text);

// Streaming: holds back the bytes of an unfinished character until the rest of it has come, so that
// what is shown is never half a character. Bytes that can no longer become a character pass through
// as they are. Zero-initialize.
struct kiln_stream {
    char held[4];
    size_t len;
};
// Appends to `out` what may be shown after these bytes have come.
void kiln_stream_push(
        struct kiln_stream *stream, const char *bytes, size_t len, struct kiln_buf *out);
void kiln_stream_end(struct kiln_stream *stream, struct kiln_buf *out); // what is still held

#endif
