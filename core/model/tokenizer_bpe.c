// tokenizer_bpe: byte-level BPE ("gpt2"): bytes are the first symbols, the pair with the lowest
// rank merges first, words never merge with each other.
//
// Spellings in the file write each byte as one character: the printable ones of Latin-1 as
// themselves, the others as U+0100 and up, in order. Merging works on ids; spellings matter only
// when the file is read and where a whole word is looked up.
#include "model/tokenizer_impl.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>

// ---- bytes and the characters that stand for them

static int is_printable(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

static void append_byte(struct kiln_buf *out, unsigned byte) {
    unsigned code = byte;
    if (!is_printable(byte)) {
        code = 0x100;
        for (unsigned b = 0; b < byte; b++) {
            code += !is_printable(b);
        }
    }
    char text[2] = {(char)code, 0};
    if (code >= 0x80) {
        text[0] = (char)(0xc0 | code >> 6);
        text[1] = (char)(0x80 | (code & 0x3f));
    }
    kiln_buf_append(out, text, code < 0x80 ? 1 : 2);
}

// The byte that the character at text[0..len) stands for, or -1. All of them have one or two bytes.
static int byte_of(const char *text, int len) {
    unsigned code = (unsigned char)text[0];
    if (len == 2) {
        code = (code & 0x1f) << 6 | ((unsigned char)text[1] & 0x3f);
    }
    if (len > 2 || code >= 0x100 + 68) {
        return -1;
    }
    if (code < 0x100) {
        return is_printable(code) ? (int)code : -1;
    }
    unsigned byte = 0;
    for (unsigned skip = code - 0x100; is_printable(byte) || skip > 0; byte++) {
        skip -= !is_printable(byte);
    }
    return (int)byte;
}

// ---- reading the merges

static size_t pair_slot(const struct kiln_bpe *bpe, uint64_t pair) {
    uint64_t hash = pair * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(hash ^ hash >> 32) & bpe->mask;
    while (bpe->pairs[i].id >= 0 && bpe->pairs[i].pair != pair) {
        i = (i + 1) & bpe->mask;
    }
    return i;
}

static uint64_t pair_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static enum kiln_status make_pairs(struct kiln_bpe *bpe, size_t count, struct kiln_err *err) {
    size_t cap = 16;
    while (cap < 2 * count) {
        cap *= 2;
    }
    bpe->pairs = kiln_alloc(cap * sizeof(*bpe->pairs));
    if (!bpe->pairs) {
        return kiln_err_nomem(err, "the merges");
    }
    for (size_t i = 0; i < cap; i++) {
        bpe->pairs[i] = (struct kiln_bpe_pair){.id = -1};
    }
    bpe->mask = cap - 1;
    return KILN_STATUS_OK;
}

static enum kiln_status bad_merge(const struct kiln_gguf *gguf, uint64_t index,
        const struct kiln_str *merge, const char *what, struct kiln_err *err) {
    char shown[KILN_GGUF_SHOWN];
    return kiln_err_set(err, KILN_STATUS_FILE,
            "%s: key 'tokenizer.ggml.merges': merge %llu, '%s', %s", kiln_gguf_path(gguf),
            (unsigned long long)index, kiln_gguf_show(shown, *merge), what);
}

// A merge is "left right"; both and what they make together must be tokens.
static enum kiln_status read_merge(struct kiln_tokenizer *tokenizer, const struct kiln_gguf *gguf,
        uint64_t index, const struct kiln_str *merge, struct kiln_buf *joined,
        struct kiln_err *err) {
    const struct kiln_vocab *vocab = &tokenizer->vocab;
    const char *blank = merge->len > 1 ? memchr(merge->data + 1, ' ', merge->len - 1) : NULL;
    size_t left_len = blank ? (size_t)(blank - merge->data) : 0;
    if (!blank || left_len + 1 == merge->len) {
        return bad_merge(gguf, index, merge, "is not two tokens with a blank between", err);
    }
    kiln_buf_clear(joined);
    kiln_buf_append(joined, merge->data, left_len);
    kiln_buf_append(joined, blank + 1, merge->len - left_len - 1);
    if (joined->failed) {
        return kiln_err_nomem(err, "the merges");
    }
    int32_t left = kiln_vocab_find(vocab, joined->data, left_len);
    int32_t right = kiln_vocab_find(vocab, joined->data + left_len, joined->len - left_len);
    int32_t result = kiln_vocab_find(vocab, joined->data, joined->len);
    if (left < 0 || right < 0 || result < 0) {
        return bad_merge(gguf, index, merge,
                left < 0 || right < 0 ? "has a part that is not in tokenizer.ggml.tokens"
                                      : "makes a token that is not in tokenizer.ggml.tokens",
                err);
    }
    struct kiln_bpe_pair *slot =
            &tokenizer->bpe.pairs[pair_slot(&tokenizer->bpe, pair_of(left, right))];
    // Of equal merges the first counts. Raw text never merges into a control token.
    if (slot->id < 0 && !kiln_vocab_is_control(vocab, result)) {
        *slot = (struct kiln_bpe_pair){
                .pair = pair_of(left, right), .rank = (uint32_t)index, .id = result};
    }
    return KILN_STATUS_OK;
}

static enum kiln_status read_merges(
        struct kiln_tokenizer *tokenizer, const struct kiln_gguf *gguf, struct kiln_err *err) {
    const struct kiln_gguf_key *merges = NULL;
    KILN_TRY(kiln_gguf_get_array(
            gguf, "tokenizer.ggml.merges", KILN_GGUF_REQUIRED, KILN_GGUF_STRING, &merges, err));
    if (merges->count > UINT32_MAX) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: key 'tokenizer.ggml.merges' has %llu elements; allowed are up to %u",
                kiln_gguf_path(gguf), (unsigned long long)merges->count, UINT32_MAX);
    }
    KILN_TRY(make_pairs(&tokenizer->bpe, (size_t)merges->count, err));
    struct kiln_gguf_cursor cursor = {0};
    struct kiln_buf joined = {0};
    struct kiln_str merge;
    enum kiln_status status = KILN_STATUS_OK;
    for (uint64_t i = 0; status == KILN_STATUS_OK && kiln_gguf_next_str(merges, &cursor, &merge);
            i++) {
        status = read_merge(tokenizer, gguf, i, &merge, &joined, err);
    }
    kiln_buf_finish(&joined);
    return status;
}

static enum kiln_status open_pretokenizer(
        struct kiln_tokenizer *tokenizer, const struct kiln_gguf *gguf, struct kiln_err *err) {
    struct kiln_str pre = {0};
    KILN_TRY(kiln_gguf_get_str(gguf, "tokenizer.ggml.pre", KILN_GGUF_OPTIONAL, &pre, err));
    if (!pre.data) {
        kiln_log(KILN_LOG_WARN,
                "%s: no key 'tokenizer.ggml.pre': words are cut as for 'default', which may be "
                "wrong",
                kiln_gguf_path(gguf));
        pre = (struct kiln_str){.data = "default", .len = 7};
    }
    enum kiln_status status = kiln_pretokenizer_open(&tokenizer->bpe.pre, pre.data, pre.len, err);
    if (status != KILN_STATUS_OK) {
        kiln_err_prefix(err, "%s: ", kiln_gguf_path(gguf));
        return status;
    }
    tokenizer->add_bos = kiln_pretokenizer_adds_bos(tokenizer->bpe.pre);
    return KILN_STATUS_OK;
}

static enum kiln_status bpe_open(
        struct kiln_tokenizer *tokenizer, const struct kiln_gguf *gguf, struct kiln_err *err) {
    KILN_TRY(open_pretokenizer(tokenizer, gguf, err));
    struct kiln_buf spelled = {0};
    for (unsigned byte = 0; byte < 256; byte++) {
        kiln_buf_clear(&spelled);
        append_byte(&spelled, byte);
        tokenizer->bpe.bytes[byte] =
                spelled.failed ? -1
                               : kiln_vocab_find_text(&tokenizer->vocab, spelled.data, spelled.len);
    }
    int failed = spelled.failed;
    kiln_buf_finish(&spelled);
    return failed ? kiln_err_nomem(err, "the byte tokens") : read_merges(tokenizer, gguf, err);
}

static void bpe_close(struct kiln_tokenizer *tokenizer) {
    kiln_pretokenizer_close(tokenizer->bpe.pre);
    kiln_free(tokenizer->bpe.pairs);
}

// ---- encoding

static int find_merge(const struct kiln_tokenizer *tokenizer, struct kiln_merger *merger,
        uint32_t left, uint32_t right, uint32_t len, struct kiln_merge *merge) {
    (void)len; // merges are looked up by id
    int32_t left_id = kiln_merger_id(merger, left), right_id = kiln_merger_id(merger, right);
    if (left_id < 0 || right_id < 0) {
        return 0;
    }
    const struct kiln_bpe *bpe = &tokenizer->bpe;
    const struct kiln_bpe_pair *pair = &bpe->pairs[pair_slot(bpe, pair_of(left_id, right_id))];
    merge->key = pair->rank;
    merge->id = pair->id;
    return pair->id >= 0;
}

// The token that the word is as a whole, or -1.
static int32_t whole_word(const struct kiln_tokenizer *tokenizer, const char *word, size_t len,
        struct kiln_buf *spelled) {
    if (!kiln_pretokenizer_ignores_merges(tokenizer->bpe.pre) || len > tokenizer->vocab.max_len) {
        return -1;
    }
    kiln_buf_clear(spelled);
    for (size_t i = 0; i < len; i++) {
        append_byte(spelled, (unsigned char)word[i]);
    }
    return spelled->failed ? -1
                           : kiln_vocab_find_text(&tokenizer->vocab, spelled->data, spelled->len);
}

struct lost_bytes {
    size_t count;
    unsigned first;
};

static enum kiln_status encode_word(const struct kiln_tokenizer *tokenizer,
        struct kiln_merger *merger, const char *word, size_t len, struct kiln_buf *spelled,
        struct lost_bytes *lost, struct kiln_ids *ids, struct kiln_err *err) {
    int32_t whole = whole_word(tokenizer, word, len, spelled);
    if (spelled->failed) {
        return kiln_err_nomem(err, "a word of the text");
    }
    if (whole >= 0) {
        return kiln_ids_push(ids, whole, err);
    }
    KILN_TRY(kiln_merger_start(merger, word, len, err));
    for (uint32_t i = 0; i < merger->len; i++) {
        kiln_merger_put(merger, i, 1, tokenizer->bpe.bytes[(unsigned char)word[i]]);
    }
    KILN_TRY(kiln_merger_run(merger, tokenizer, find_merge, err));
    for (uint32_t i = 0; i < merger->len; i += kiln_merger_len(merger, i)) {
        int32_t id = kiln_merger_id(merger, i);
        if (id >= 0) {
            KILN_TRY(kiln_ids_push(ids, id, err));
        } else { // some vocabularies lack the tokens of rare bytes
            lost->first = lost->count++ ? lost->first : (unsigned char)word[i];
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status bpe_encode(const struct kiln_tokenizer *tokenizer,
        struct kiln_merger *merger, const struct kiln_str *text, struct kiln_ids *ids,
        struct kiln_err *err) {
    struct kiln_pieces words = {0};
    struct kiln_buf spelled = {0};
    struct lost_bytes lost = {0};
    enum kiln_status status =
            kiln_pretokenizer_split(tokenizer->bpe.pre, text->data, text->len, &words, err);
    size_t start = 0;
    for (size_t i = 0; status == KILN_STATUS_OK && i < words.len; i++) {
        status = encode_word(tokenizer, merger, text->data + start, words.ends[i] - start, &spelled,
                &lost, ids, err);
        start = words.ends[i];
    }
    if (status == KILN_STATUS_OK && lost.count > 0) {
        kiln_log(KILN_LOG_WARN,
                "%zu bytes of the text have no token in this model's vocabulary and are left out "
                "(the first: 0x%02x)",
                lost.count, lost.first);
    }
    kiln_free(words.ends);
    kiln_buf_finish(&spelled);
    return status;
}

static void bpe_piece(const struct kiln_tokenizer *tokenizer, int32_t id, struct kiln_buf *out) {
    struct kiln_str text = kiln_vocab_text(&tokenizer->vocab, id);
    for (size_t at = 0; at < text.len;) {
        int len = kiln_utf8_len(text.data + at, text.len - at);
        len = len > 0 ? len : 1;
        int byte = byte_of(text.data + at, len);
        char raw = (char)byte;
        kiln_buf_append(out, byte >= 0 ? &raw : text.data + at, byte >= 0 ? 1 : (size_t)len);
        at += (size_t)len;
    }
}

const struct kiln_tokenizer_kind kiln_tokenizer_bpe = {
        .name = "gpt2",
        .bos = -1,
        .eos = -1,
        .unknown = -1,
        .open = bpe_open,
        .close = bpe_close,
        .encode = bpe_encode,
        .piece = bpe_piece,
};
