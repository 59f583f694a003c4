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

struct kiln_special_group { // the tokens whose spelling has `len` bytes
    size_t len;
    int user;          // has user-defined tokens
    uint8_t first[32]; // bit set of first bytes
};

struct kiln_specials {
    struct kiln_special_group *groups; // longest first
    size_t n_groups;
    size_t cap;
    uint8_t pairs[8192]; // bit set of the first two bytes, over all groups
};

struct kiln_fragment {
    size_t start; // in the text
    size_t len;
    int32_t id;  // -1: raw text
    size_t next; // index of the next one, SIZE_MAX at the end
};

struct kiln_fragments { // a list linked from element 0
    struct kiln_fragment *at;
    size_t len;
    size_t cap;
};

KILN_MUST_CHECK enum kiln_status kiln_specials_open(
        struct kiln_specials *specials, const struct kiln_vocab *vocab, struct kiln_err *err);
void kiln_specials_close(struct kiln_specials *specials);
// Cuts the text, longest tokens first; control tokens only when `control`. The caller frees
// list->at.
KILN_MUST_CHECK enum kiln_status kiln_specials_split(const struct kiln_specials *specials,
        const struct kiln_vocab *vocab, const char *text, size_t len, int control,
        struct kiln_fragments *list, struct kiln_err *err);

// ---- merging

// A symbol lives at the index of its first byte, so the one to its right is at index + len.
struct kiln_symbol {
    uint32_t len;  // bytes, 0 once merged into its left neighbour
    uint32_t prev; // index of the left neighbour, UINT32_MAX for the first
    int32_t id;    // token, -1: not a token
};

struct kiln_merge {
    uint32_t key; // lowest first; then lowest `left`
    uint32_t left;
    uint32_t len; // of both together: tells a stale entry
    int32_t id;   // of the result
};

// Scratch of one encode call, reused from word to word. Zero-initialize.
struct kiln_merger {
    struct kiln_symbol *symbols; // (len)
    size_t symbols_cap;
    struct kiln_merge *heap;
    size_t heap_len;
    size_t heap_cap;
    const char *text; // the word
    uint32_t len;     // its bytes
};

struct kiln_tokenizer;

// Whether the symbols at `left` and `right` merge: 1 with merge->key and merge->id set, else 0.
typedef int (*kiln_merge_fn)(const struct kiln_tokenizer *tokenizer,
        const struct kiln_merger *merger, uint32_t left, uint32_t right, struct kiln_merge *merge);

// Makes room for a word of len bytes; the caller then fills in the symbols.
KILN_MUST_CHECK enum kiln_status kiln_merger_start(
        struct kiln_merger *merger, const char *text, size_t len, struct kiln_err *err);
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
    uint8_t before_blank[32]; // bit set: the bytes that some token has in front of a blank
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
