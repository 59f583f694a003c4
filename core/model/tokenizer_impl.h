// tokenizer_impl: what the tokenizer's own files share. Nothing outside core/model/tokenizer*.c
// includes it.
//
// The pieces, in the order in which text meets them:
//   tokenizer_special.c  cuts the text at tokens that are matched as they are spelled
//   tokenizer_bpe.c      a run of raw text to ids, byte-level BPE  (pretokenizer.h, then merges by
//   rank) tokenizer_spm.c      a run of raw text to ids, SentencePiece   (merges by score, bytes as
//   fallback) tokenizer_merge.c    the merge loop of both
//   tokenizer_vocab.c    the table of spellings
//   tokenizer.c          the public functions
#ifndef KILN_MODEL_TOKENIZER_IMPL_H
#define KILN_MODEL_TOKENIZER_IMPL_H

#include "base/buf.h"
#include "base/status.h"
#include "model/gguf.h"
#include "model/pretokenizer.h"
#include "model/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

// Values of tokenizer.ggml.token_type.
enum kiln_token_type {
    KILN_TOKEN_NORMAL = 1,
    KILN_TOKEN_UNKNOWN = 2,
    KILN_TOKEN_CONTROL = 3,
    KILN_TOKEN_USER = 4, // matched in raw text as it is spelled
    KILN_TOKEN_UNUSED = 5,
    KILN_TOKEN_BYTE = 6, // "<0xNN>": one byte
};

// ---- the table of spellings

struct kiln_vocab_slot {
    uint32_t tag; // upper half of the hash
    int32_t id;   // -1: free
};

struct kiln_vocab {
    int32_t size;
    size_t max_len;                // bytes of the longest spelling
    struct kiln_buf spelling;      // all spellings end to end, a copy
    size_t *ends;                  // (size + 1): spelling of id is [ends[id], ends[id + 1])
    uint8_t *types;                // (size) enum kiln_token_type
    struct kiln_vocab_slot *slots; // (mask + 1) open addressing, at most half full
    size_t mask;
};

KILN_MUST_CHECK enum kiln_status kiln_vocab_open(
        struct kiln_vocab *vocab, const struct kiln_gguf *gguf, struct kiln_err *err);
void kiln_vocab_close(struct kiln_vocab *vocab);
struct kiln_str kiln_vocab_text(const struct kiln_vocab *vocab, int32_t id);
// The id spelled so, or -1. Of several ids with one spelling the last counts.
int32_t kiln_vocab_find(const struct kiln_vocab *vocab, const char *text, size_t len);
// The same, but never a token that raw text must not turn into: control, unknown and byte tokens.
int32_t kiln_vocab_find_text(const struct kiln_vocab *vocab, const char *text, size_t len);
// Control in the wide sense: shown and recognised only on demand.
int kiln_vocab_is_control(const struct kiln_vocab *vocab, int32_t id);

// ---- tokens matched as they are spelled

struct kiln_special {
    const char *text; // in the vocabulary
    uint32_t len;
    uint32_t rank; // of the length, among all lengths that there are: 0 is the longest
    int32_t id;
};

struct kiln_specials {
    struct kiln_special *at; // (len) ordered by spelling
    size_t len;
    size_t n_ranks;
    uint8_t pairs[8192]; // bit set of the first two bytes
};

// Where the tokens lie in a text. Zero-initialize; end with kiln_cuts_finish.
struct kiln_cuts {
    uint64_t *covered; // (len) bit set: bytes of tokens; NULL when the text has none
    uint64_t *starts;  // (len) bit set: the first byte of each token
    size_t len;        // of the text
    uint64_t steps;    // comparisons that it took
};

KILN_MUST_CHECK enum kiln_status kiln_specials_open(
        struct kiln_specials *specials, const struct kiln_vocab *vocab, struct kiln_err *err);
void kiln_specials_close(struct kiln_specials *specials);
// Cuts the text, longest tokens first; control tokens only when `control`.
KILN_MUST_CHECK enum kiln_status kiln_specials_cut(const struct kiln_specials *specials,
        const struct kiln_vocab *vocab, const char *text, size_t len, int control,
        struct kiln_cuts *cuts, struct kiln_err *err);
// Where the token, or the run of raw text, that begins at `at` ends; *token says which it is.
size_t kiln_cuts_end(const struct kiln_cuts *cuts, size_t at, int *token);
void kiln_cuts_finish(struct kiln_cuts *cuts);

// ---- merging

// A word as symbols, each at the index of its first byte. Packed, for a word may be a whole file:
// what the bytes behind a symbol's first one would hold is used for its length. Scratch of one
// encode call, reused from word to word. Zero-initialize.
enum {
    KILN_MERGER_LEVELS = 8
};
struct kiln_merger {
    const char *text;    // the word
    uint32_t len;        // its bytes
    uint32_t *slots;     // (len) first byte of a symbol: id; its second and its last byte: length
    uint32_t *starts;    // (len) bit set: the first byte of each symbol
    uint32_t *keys;      // (len) of the pair whose left symbol begins here; UINT32_MAX: no merge
    struct kiln_buf buf; // for the functions that look up merges
    // The tree over the keys: each level holds the lowest of FAN of the one before.
    uint32_t *levels[KILN_MERGER_LEVELS];
    uint32_t level_len[KILN_MERGER_LEVELS];
    int n_levels; // levels[0] is keys
    uint32_t *block;
    size_t block_cap; // numbers
};

struct kiln_merge {
    uint32_t key; // lowest first, then leftmost
    int32_t id;   // of the result
};

struct kiln_tokenizer;

// Whether the symbols at `left` and `right` merge: 1 with *merge set, else 0. `len`: bytes of both.
typedef int (*kiln_merge_fn)(const struct kiln_tokenizer *tokenizer, struct kiln_merger *merger,
        uint32_t left, uint32_t right, uint32_t len, struct kiln_merge *merge);

// Makes room for a word of len bytes; the caller then puts its symbols.
KILN_MUST_CHECK enum kiln_status kiln_merger_start(
        struct kiln_merger *merger, const char *text, size_t len, struct kiln_err *err);
void kiln_merger_put(struct kiln_merger *merger, uint32_t at, uint32_t len, int32_t id);
int32_t kiln_merger_id(const struct kiln_merger *merger, uint32_t at); // -1: no token
uint32_t kiln_merger_len(const struct kiln_merger *merger, uint32_t at);
// Merges until no pair is left. n log n in the bytes of the word.
KILN_MUST_CHECK enum kiln_status kiln_merger_run(struct kiln_merger *merger,
        const struct kiln_tokenizer *tokenizer, kiln_merge_fn find, struct kiln_err *err);
void kiln_merger_finish(struct kiln_merger *merger);

// ---- the two kinds

struct kiln_bpe_pair {
    uint64_t pair; // left id in the upper half, right id in the lower
    uint32_t rank;
    int32_t id; // of the result; -1: a free slot
};

struct kiln_bpe {
    struct kiln_pretokenizer *pre;
    struct kiln_bpe_pair *pairs; // (mask + 1) open addressing, at most half full
    size_t mask;
    int32_t bytes[256]; // id of each byte's own token, -1: the vocabulary has none
};

struct kiln_spm {
    uint32_t *keys;       // (vocab size) merge order of each token: the higher its score the lower
    int add_space_prefix; // a blank in front of raw text that starts the text or follows a token
    int32_t bytes[256];   // id of <0xNN>, else the unknown token
    uint8_t before_blank
            [32]; // bit set: the bytes that some token has in front of a blank; 32: a blank
};

struct kiln_tokenizer_kind {
    const char *name; // tokenizer.ggml.model
    int add_bos;      // default of tokenizer.ggml.add_bos_token
    int32_t bos;      // defaults of the id keys, -1: none
    int32_t eos;
    int32_t unknown;
    enum kiln_status (*open)(
            struct kiln_tokenizer *tokenizer, const struct kiln_gguf *gguf, struct kiln_err *err);
    void (*close)(struct kiln_tokenizer *tokenizer);
    // Raw text to ids. It starts the text or follows a token matched as spelled.
    enum kiln_status (*encode)(const struct kiln_tokenizer *tokenizer, struct kiln_merger *merger,
            const struct kiln_str *text, struct kiln_ids *ids, struct kiln_err *err);
    // Appends the bytes that an ordinary token stands for.
    void (*piece)(const struct kiln_tokenizer *tokenizer, int32_t id, struct kiln_buf *out);
};

extern const struct kiln_tokenizer_kind kiln_tokenizer_bpe;
extern const struct kiln_tokenizer_kind kiln_tokenizer_spm;

struct kiln_tokenizer {
    const struct kiln_tokenizer_kind *kind;
    struct kiln_vocab vocab;
    struct kiln_specials specials;
    struct kiln_buf pieces; // what each token stands for, end to end
    size_t *piece_ends;     // (size + 1)
    uint8_t *is_end;        // (size)
    int32_t bos;            // -1: none
    int32_t eos;
    int32_t unknown;
    int add_bos;
    int add_eos;
    struct kiln_bpe bpe;
    struct kiln_spm spm;
};

#endif
