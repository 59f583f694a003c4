// vocab: two small vocabularies for the fuzz targets: every byte, some merges, control tokens.
#ifndef KILN_TESTS_FUZZ_VOCAB_H
#define KILN_TESTS_FUZZ_VOCAB_H

#include "gguf_write.h"

// The type of the tokens that chat formats are made of; some files list them as user-defined.
enum fuzz_marker_type {
    FUZZ_MARKERS_CONTROL = 3,
    FUZZ_MARKERS_USER = 4
};

// Adds the keys of a byte-level BPE vocabulary with pretokenizer `pre`.
void fuzz_vocab_bpe(struct gguf_write *w, const char *pre, enum fuzz_marker_type markers);
// Adds those of a SentencePiece vocabulary.
void fuzz_vocab_spm(struct gguf_write *w, enum fuzz_marker_type markers);

#endif
