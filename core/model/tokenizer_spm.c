// tokenizer_spm: SentencePiece ("llama"): characters are the first symbols, the pair whose union is
// the token with the highest score merges first, what is no token in the end becomes byte tokens.
//
// Spellings write a blank as U+2581; here it stays one byte until a spelling is looked up, since a
// text of blanks would grow to three times its size. There are no words: a text is one, and pairs
// may merge across blanks. It is still cut before a blank wherever no token has that blank after
// that byte, because no merge can then reach across: the ids are the same and what is merged at
// once stays small.
#include "model/tokenizer_impl.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

static const char blank[] = "\xe2\x96\x81";
enum {
    BLANK_LEN = sizeof(blank) - 1
};

static int is_blank(const char *text, size_t len) {
    return len >= BLANK_LEN && memcmp(text, blank, BLANK_LEN) == 0;
}

static enum kiln_status read_scores(
        struct kiln_tokenizer *tokenizer, const struct kiln_gguf *gguf, struct kiln_err *err) {
    static const char name[] = "tokenizer.ggml.scores";
    const struct kiln_gguf_key *scores = NULL;
    KILN_TRY(kiln_gguf_get_array(gguf, name, KILN_GGUF_REQUIRED, KILN_GGUF_F32, &scores, err));
    int32_t size = tokenizer->vocab.size;
    if (scores->count != (uint64_t)size) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: key '%s' has %llu elements, 'tokenizer.ggml.tokens' has %d; they must agree",
                kiln_gguf_path(gguf), name, (unsigned long long)scores->count, (int)size);
    }
    tokenizer->spm.keys = kiln_alloc((size_t)size * sizeof(*tokenizer->spm.keys));
    if (!tokenizer->spm.keys) {
        return kiln_err_nomem(err, "the scores");
    }
    for (int32_t id = 0; id < size; id++) {
        float score = (float)kiln_gguf_array_number(scores, (uint64_t)id);
        if (score != score) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "%s: key '%s': the score of token %d is not a number", kiln_gguf_path(gguf),
                    name, (int)id);
        }
        score += 0.0f; // -0 and 0 are one score
        uint32_t bits;
        memcpy(&bits, &score, sizeof(bits));
        // Bits that order like the score, turned round.
        tokenizer->spm.keys[id] = ~(bits >> 31 ? ~bits : bits | 0x80000000u);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status find_bytes(
        struct kiln_tokenizer *tokenizer, const struct kiln_gguf *gguf, struct kiln_err *err) {
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        int len = snprintf(name, sizeof(name), "<0x%02X>", byte);
        int32_t id = kiln_vocab_find(&tokenizer->vocab, name, (size_t)len);
        tokenizer->spm.bytes[byte] = id >= 0 ? id : tokenizer->unknown;
        if (tokenizer->spm.bytes[byte] < 0) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "%s: key 'tokenizer.ggml.tokens' has no token '%s', and there is no unknown "
                    "token (key 'tokenizer.ggml.unknown_token_id') to stand for it",
                    kiln_gguf_path(gguf), name);
        }
    }
    return KILN_STATUS_OK;
}

// Notes which bytes come before a blank in tokens that text can merge into.
static void note_blanks(struct kiln_tokenizer *tokenizer) {
    for (int32_t id = 0; id < tokenizer->vocab.size; id++) {
        struct kiln_str text = kiln_vocab_text(&tokenizer->vocab, id);
        if (kiln_vocab_find_text(&tokenizer->vocab, text.data, text.len) < 0) {
            continue;
        }
        for (size_t at = 1; at < text.len; at++) {
            if (is_blank(text.data + at, text.len - at)) {
                int blanks = at >= BLANK_LEN && is_blank(text.data + at - BLANK_LEN, BLANK_LEN);
                unsigned byte = blanks ? ' ' : (unsigned char)text.data[at - 1];
                uint8_t *bits = &tokenizer->spm.before_blank[byte / 8];
                *bits = (uint8_t)(*bits | 1u << (byte % 8));
            }
        }
    }
}

static enum kiln_status spm_open(
        struct kiln_tokenizer *tokenizer, const struct kiln_gguf *gguf, struct kiln_err *err) {
    tokenizer->spm.add_space_prefix = 1;
    KILN_TRY(kiln_gguf_get_bool(gguf, "tokenizer.ggml.add_space_prefix", KILN_GGUF_OPTIONAL,
            &tokenizer->spm.add_space_prefix, err));
    KILN_TRY(read_scores(tokenizer, gguf, err));
    KILN_TRY(find_bytes(tokenizer, gguf, err));
    note_blanks(tokenizer);
    return KILN_STATUS_OK;
}

static void spm_close(struct kiln_tokenizer *tokenizer) {
    kiln_free(tokenizer->spm.keys);
}

// ---- encoding

// The token that is spelled so, a blank for each U+2581; -1 when there is none.
static int32_t find_spelled(const struct kiln_tokenizer *tokenizer, struct kiln_merger *merger,
        uint32_t at, uint32_t len) {
    const char *text = merger->text + at;
    size_t max = tokenizer->vocab.max_len;
    if (len > max) {
        return -1;
    }
    if (!memchr(text, ' ', len)) {
        return kiln_vocab_find_text(&tokenizer->vocab, text, len);
    }
    kiln_buf_clear(&merger->buf);
    for (uint32_t i = 0; i < len && merger->buf.len <= max; i++) {
        kiln_buf_append(&merger->buf, text[i] == ' ' ? blank : text + i,
                text[i] == ' ' ? (size_t)BLANK_LEN : 1);
    }
    return merger->buf.failed
                   ? -1
                   : kiln_vocab_find_text(&tokenizer->vocab, merger->buf.data, merger->buf.len);
}

static int find_merge(const struct kiln_tokenizer *tokenizer, struct kiln_merger *merger,
        uint32_t left, uint32_t right, uint32_t len, struct kiln_merge *merge) {
    (void)right; // it begins where left ends
    int32_t id = find_spelled(tokenizer, merger, left, len);
    if (id < 0) {
        return 0;
    }
    merge->key = tokenizer->spm.keys[id];
    merge->id = id;
    return 1;
}

// Characters as symbols; a byte that belongs to none is one of its own.
static void start_symbols(const struct kiln_tokenizer *tokenizer, struct kiln_merger *merger) {
    for (uint32_t at = 0; at < merger->len;) {
        int len = kiln_utf8_len(merger->text + at, merger->len - at);
        uint32_t step = len > 0 ? (uint32_t)len : 1;
        kiln_merger_put(merger, at, step, find_spelled(tokenizer, merger, at, step));
        at += step;
    }
}

static enum kiln_status push_bytes(const struct kiln_spm *spm, const char *text, size_t len,
        struct kiln_ids *ids, struct kiln_err *err) {
    for (size_t i = 0; i < len; i++) {
        KILN_TRY(kiln_ids_push(ids, spm->bytes[(unsigned char)text[i]], err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status encode_part(const struct kiln_tokenizer *tokenizer,
        struct kiln_merger *merger, const char *text, size_t len, struct kiln_ids *ids,
        struct kiln_err *err) {
    KILN_TRY(kiln_merger_start(merger, text, len, err));
    start_symbols(tokenizer, merger);
    KILN_TRY(kiln_merger_run(merger, tokenizer, find_merge, err));
    for (uint32_t at = 0, symbol_len; at < merger->len; at += symbol_len) {
        int32_t id = kiln_merger_id(merger, at);
        symbol_len = kiln_merger_len(merger, at);
        if (id >= 0) {
            KILN_TRY(kiln_ids_push(ids, id, err));
        } else if (text[at] == ' ') {
            KILN_TRY(push_bytes(&tokenizer->spm, blank, BLANK_LEN, ids, err));
        } else {
            KILN_TRY(push_bytes(&tokenizer->spm, text + at, symbol_len, ids, err));
        }
    }
    return KILN_STATUS_OK;
}

// The text with a blank in front where the model wants one, U+2581 as a blank. The caller frees it;
// NULL when memory runs out.
static char *make_plain(const struct kiln_spm *spm, const struct kiln_str *text, size_t *len) {
    char *plain = kiln_alloc(text->len + 1);
    if (!plain) {
        return NULL;
    }
    *len = 0;
    if (spm->add_space_prefix) {
        plain[(*len)++] = ' ';
    }
    for (size_t at = 0; at < text->len;) {
        int found = is_blank(text->data + at, text->len - at);
        plain[(*len)++] = found ? ' ' : text->data[at];
        at += found ? BLANK_LEN : 1;
    }
    return plain;
}

// Where the part that starts at `start` ends: before the next blank that no token joins to its
// left.
static size_t part_end(const struct kiln_spm *spm, const char *text, size_t len, size_t start) {
    for (size_t at = start + 1; at < len; at++) {
        unsigned byte = (unsigned char)text[at - 1];
        if (text[at] == ' ' && !(spm->before_blank[byte / 8] >> (byte % 8) & 1)) {
            return at;
        }
    }
    return len;
}

static enum kiln_status spm_encode(const struct kiln_tokenizer *tokenizer,
        struct kiln_merger *merger, const struct kiln_str *text, struct kiln_ids *ids,
        struct kiln_err *err) {
    size_t len = 0;
    char *plain = make_plain(&tokenizer->spm, text, &len);
    enum kiln_status status = plain ? KILN_STATUS_OK : kiln_err_nomem(err, "a copy of the text");
    for (size_t at = 0, end; status == KILN_STATUS_OK && at < len; at = end) {
        end = part_end(&tokenizer->spm, plain, len, at);
        status = encode_part(tokenizer, merger, plain + at, end - at, ids, err);
    }
    kiln_free(plain);
    return status;
}

// ---- decoding

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

// The byte of "<0xNN>", or -1.
static int spelled_byte(const struct kiln_str *text) {
    if (text->len != 6 || memcmp(text->data, "<0x", 3) != 0 || text->data[5] != '>') {
        return -1;
    }
    int high = hex_digit(text->data[3]), low = hex_digit(text->data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static void spm_piece(const struct kiln_tokenizer *tokenizer, int32_t id, struct kiln_buf *out) {
    struct kiln_str text = kiln_vocab_text(&tokenizer->vocab, id);
    int byte = tokenizer->vocab.types[id] == KILN_TOKEN_BYTE ? spelled_byte(&text) : -1;
    if (byte >= 0) {
        char raw = (char)byte;
        kiln_buf_append(out, &raw, 1);
        return;
    }
    for (size_t at = 0; at < text.len;) {
        int found = is_blank(text.data + at, text.len - at);
        kiln_buf_append(out, found ? " " : text.data + at, 1);
        at += found ? BLANK_LEN : 1;
    }
}

const struct kiln_tokenizer_kind kiln_tokenizer_spm = {
        .name = "llama",
        .add_bos = 1,
        .bos = 1,
        .eos = 2,
        .unknown = 0,
        .open = spm_open,
        .close = spm_close,
        .encode = spm_encode,
        .piece = spm_piece,
};
