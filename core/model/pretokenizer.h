// pretokenizer: cuts raw text into the words that byte-level BPE merges within.
//
// A pretokenizer is a row of a table: the names a file may call it, and up to four PCRE2 patterns.
// The patterns are applied one after the other, each to the pieces that the one before left; what a
// pattern does not match between two matches is a piece too, so that no byte is ever lost.
#ifndef KILN_MODEL_PRETOKENIZER_H
#define KILN_MODEL_PRETOKENIZER_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_pretokenizer;

// By the value of tokenizer.ggml.pre (`len` bytes, no NUL needed). An unknown name is
// KILN_STATUS_FILE and lists the known ones. Read-only after open: threads may share it.
KILN_MUST_CHECK enum kiln_status kiln_pretokenizer_open(
        struct kiln_pretokenizer **pre, const char *name, size_t len, struct kiln_err *err);
void kiln_pretokenizer_close(struct kiln_pretokenizer *pre); // NULL is fine

// A word that is a token as a whole is that token, without merging.
int kiln_pretokenizer_ignores_merges(const struct kiln_pretokenizer *pre);
// Models with this pretokenizer start with begin-of-text unless their file says otherwise.
int kiln_pretokenizer_adds_bos(const struct kiln_pretokenizer *pre);

// Where the pieces of a text end: ends[i] is the offset after piece i, the last one the text's
// length, which is under 2^32.
struct kiln_pieces {
    uint32_t *ends; // 32 bits: a text may be all words of one byte
    size_t len;
    size_t cap;
};

// Any bytes are accepted: a byte that is not part of a well-formed character counts as a character
// that is neither letter, number nor blank. Zero-initialize *pieces; the caller frees pieces->ends.
KILN_MUST_CHECK enum kiln_status kiln_pretokenizer_split(const struct kiln_pretokenizer *pre,
        const char *text, size_t len, struct kiln_pieces *pieces, struct kiln_err *err);

#endif
