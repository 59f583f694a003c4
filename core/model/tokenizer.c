// tokenizer: opening by kind, encoding around tokens matched as spelled, decoding, streaming.
//
// How raw text becomes ids is not here: tokenizer_bpe.c and tokenizer_spm.c.
#include "model/tokenizer.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "model/tokenizer_impl.h"

#include <string.h>

// Offsets within a text are 32 bits in places, and SentencePiece makes 3 bytes of a blank.
static const size_t max_text = (size_t)1 << 30;

static const struct kiln_tokenizer_kind *const kinds[] = {&kiln_tokenizer_bpe, &kiln_tokenizer_spm};

// Spellings that end a turn or a text in the families kiln knows, whatever the file says of them.
static const char *const end_spellings[] = {
        "<|im_end|>",      // chatml: qwen, smollm
        "<|endoftext|>",   // gpt2, qwen, smollm
        "<end_of_turn>",   // gemma
        "<|eot_id|>",      // llama 3
        "<|eom_id|>",      // llama 3
        "<|end_of_text|>", // llama 3
        "<|end|>",         // phi 3
        "<|EOT|>",         // deepseek coder
        "<EOT>",
        ("<\xef\xbd\x9c" // deepseek; cut where the escape would swallow the letter after it
         "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
};

// ---- lists of ids

enum kiln_status kiln_ids_push(struct kiln_ids *ids, int32_t id, struct kiln_err *err) {
    if (kiln_grow(&ids->ids, &ids->cap, ids->len + 1, sizeof(*ids->ids)) != 0) {
        return kiln_err_nomem(err, "the ids of a text");
    }
    ids->ids[ids->len++] = id;
    return KILN_STATUS_OK;
}

void kiln_ids_finish(struct kiln_ids *ids) {
    kiln_free(ids->ids);
    *ids = (struct kiln_ids){0};
}

// ---- opening

// *id is the default beforehand, which is dropped when the vocabulary has no such id.
static enum kiln_status read_id(const struct kiln_tokenizer *tokenizer,
        const struct kiln_gguf *gguf, const char *name, int32_t *id, struct kiln_err *err) {
    uint64_t value = UINT64_MAX;
    uint64_t last = (uint64_t)tokenizer->vocab.size - 1;
    KILN_TRY(kiln_gguf_get_u64(gguf, name, KILN_GGUF_OPTIONAL, 0, last, &value, err));
    if (value != UINT64_MAX) {
        *id = (int32_t)value;
    } else if (*id >= tokenizer->vocab.size) {
        *id = -1;
    }
    return KILN_STATUS_OK;
}

static void mark_end(struct kiln_tokenizer *tokenizer, int32_t id) {
    if (id >= 0) {
        tokenizer->is_end[id] = 1;
    }
}

static enum kiln_status read_special_ids(
        struct kiln_tokenizer *tokenizer, const struct kiln_gguf *gguf, struct kiln_err *err) {
    int32_t eot = -1, eom = -1;
    tokenizer->bos = tokenizer->kind->bos;
    tokenizer->eos = tokenizer->kind->eos;
    tokenizer->unknown = tokenizer->kind->unknown;
    KILN_TRY(read_id(tokenizer, gguf, "tokenizer.ggml.bos_token_id", &tokenizer->bos, err));
    KILN_TRY(read_id(tokenizer, gguf, "tokenizer.ggml.eos_token_id", &tokenizer->eos, err));
    KILN_TRY(read_id(tokenizer, gguf, "tokenizer.ggml.unknown_token_id", &tokenizer->unknown, err));
    KILN_TRY(read_id(tokenizer, gguf, "tokenizer.ggml.eot_token_id", &eot, err));
    KILN_TRY(read_id(tokenizer, gguf, "tokenizer.ggml.eom_token_id", &eom, err));
    tokenizer->is_end = kiln_calloc((size_t)tokenizer->vocab.size, 1);
    if (!tokenizer->is_end) {
        return kiln_err_nomem(err, "the vocabulary");
    }
    mark_end(tokenizer, tokenizer->eos);
    mark_end(tokenizer, eot);
    mark_end(tokenizer, eom);
    for (size_t i = 0; i < sizeof(end_spellings) / sizeof(end_spellings[0]); i++) {
        int32_t id = kiln_tokenizer_find(tokenizer, end_spellings[i]);
        mark_end(tokenizer, id);
        if (id >= 0) { // some files list them as text, and then text could end a turn
            tokenizer->vocab.types[id] = KILN_TOKEN_CONTROL;
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status build_pieces(struct kiln_tokenizer *tokenizer, struct kiln_err *err) {
    const struct kiln_vocab *vocab = &tokenizer->vocab;
    tokenizer->piece_ends = kiln_calloc((size_t)vocab->size + 1, sizeof(*tokenizer->piece_ends));
    if (!tokenizer->piece_ends) {
        return kiln_err_nomem(err, "the text of the tokens");
    }
    for (int32_t id = 0; id < vocab->size; id++) {
        if (vocab->types[id] == KILN_TOKEN_USER || kiln_vocab_is_control(vocab, id)) {
            struct kiln_str text = kiln_vocab_text(vocab, id);
            kiln_buf_append(&tokenizer->pieces, text.data, text.len);
        } else {
            tokenizer->kind->piece(tokenizer, id, &tokenizer->pieces);
        }
        tokenizer->piece_ends[id + 1] = tokenizer->pieces.len;
    }
    return tokenizer->pieces.failed ? kiln_err_nomem(err, "the text of the tokens")
                                    : KILN_STATUS_OK;
}

static enum kiln_status open_tables(
        struct kiln_tokenizer *tokenizer, const struct kiln_gguf *gguf, struct kiln_err *err) {
    KILN_TRY(kiln_vocab_open(&tokenizer->vocab, gguf, err));
    KILN_TRY(read_special_ids(tokenizer, gguf, err));
    tokenizer->add_bos = tokenizer->kind->add_bos;
    KILN_TRY(tokenizer->kind->open(tokenizer, gguf, err)); // may know a better default for add_bos
    KILN_TRY(kiln_gguf_get_bool(
            gguf, "tokenizer.ggml.add_bos_token", KILN_GGUF_OPTIONAL, &tokenizer->add_bos, err));
    KILN_TRY(kiln_gguf_get_bool(
            gguf, "tokenizer.ggml.add_eos_token", KILN_GGUF_OPTIONAL, &tokenizer->add_eos, err));
    tokenizer->add_bos = tokenizer->add_bos && tokenizer->bos >= 0;
    tokenizer->add_eos = tokenizer->add_eos && tokenizer->eos >= 0;
    KILN_TRY(kiln_specials_open(&tokenizer->specials, &tokenizer->vocab, err));
    return build_pieces(tokenizer, err);
}

static int str_is(const struct kiln_str *str, const char *text) {
    return str->len == strlen(text) && memcmp(str->data, text, str->len) == 0;
}

enum kiln_status kiln_tokenizer_open(
        struct kiln_tokenizer **tokenizer, const struct kiln_gguf *gguf, struct kiln_err *err) {
    *tokenizer = NULL;
    struct kiln_str model = {0};
    KILN_TRY(kiln_gguf_get_str(gguf, "tokenizer.ggml.model", KILN_GGUF_OPTIONAL, &model, err));
    if (!model.data || str_is(&model, "none")) {
        return KILN_STATUS_OK;
    }
    const struct kiln_tokenizer_kind *kind = NULL;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        kind = str_is(&model, kinds[i]->name) ? kinds[i] : kind;
    }
    if (!kind) {
        char shown[KILN_GGUF_SHOWN];
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: key 'tokenizer.ggml.model': kiln has no tokenizer '%s'; it has gpt2, llama "
                "and none",
                kiln_gguf_path(gguf), kiln_gguf_show(shown, model));
    }
    struct kiln_tokenizer *made = kiln_calloc(1, sizeof(*made));
    if (!made) {
        return kiln_err_nomem(err, "the tokenizer");
    }
    made->kind = kind;
    enum kiln_status status = open_tables(made, gguf, err);
    if (status != KILN_STATUS_OK) {
        kiln_tokenizer_close(made);
        return status;
    }
    *tokenizer = made;
    return KILN_STATUS_OK;
}

void kiln_tokenizer_close(struct kiln_tokenizer *tokenizer) {
    if (tokenizer) {
        tokenizer->kind->close(tokenizer);
        kiln_vocab_close(&tokenizer->vocab);
        kiln_specials_close(&tokenizer->specials);
        kiln_buf_finish(&tokenizer->pieces);
        kiln_free(tokenizer->piece_ends);
        kiln_free(tokenizer->is_end);
        kiln_free(tokenizer);
    }
}

// ---- encoding

static enum kiln_status encode_parts(const struct kiln_tokenizer *tokenizer, const char *text,
        const struct kiln_cuts *cuts, struct kiln_ids *ids, struct kiln_err *err) {
    struct kiln_merger merger = {0};
    enum kiln_status status = KILN_STATUS_OK;
    for (size_t at = 0, end; status == KILN_STATUS_OK && at < cuts->len; at = end) {
        int token = 0;
        end = kiln_cuts_end(cuts, at, &token);
        struct kiln_str part = {.data = text + at, .len = end - at};
        status = token ? kiln_ids_push(
                                 ids, kiln_vocab_find(&tokenizer->vocab, part.data, part.len), err)
                       : tokenizer->kind->encode(tokenizer, &merger, &part, ids, err);
    }
    kiln_merger_finish(&merger);
    return status;
}

static enum kiln_status encode_all(const struct kiln_tokenizer *tokenizer, const char *text,
        size_t len, unsigned flags, struct kiln_ids *ids, struct kiln_err *err) {
    if ((flags & KILN_TOKENIZE_BOS) && tokenizer->add_bos) {
        KILN_TRY(kiln_ids_push(ids, tokenizer->bos, err));
    }
    struct kiln_cuts cuts = {0};
    enum kiln_status status = kiln_specials_cut(&tokenizer->specials, &tokenizer->vocab, text, len,
            (flags & KILN_TOKENIZE_SPECIAL) != 0, &cuts, err);
    if (status == KILN_STATUS_OK) {
        status = encode_parts(tokenizer, text, &cuts, ids, err);
    }
    kiln_cuts_finish(&cuts);
    KILN_TRY(status);
    return (flags & KILN_TOKENIZE_BOS) && tokenizer->add_eos
                   ? kiln_ids_push(ids, tokenizer->eos, err)
                   : KILN_STATUS_OK;
}

enum kiln_status kiln_tokenizer_encode(const struct kiln_tokenizer *tokenizer, const char *text,
        size_t len, unsigned flags, struct kiln_ids *ids, struct kiln_err *err) {
    if (len > max_text) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "the text has %zu bytes; at most %zu can be tokenized at once", len, max_text);
    }
    size_t before = ids->len;
    enum kiln_status status = encode_all(tokenizer, len ? text : "", len, flags, ids, err);
    if (status != KILN_STATUS_OK) {
        ids->len = before;
    }
    return status;
}

// ---- decoding

struct kiln_str kiln_tokenizer_piece(
        const struct kiln_tokenizer *tokenizer, int32_t id, int special) {
    if (id < 0 || id >= tokenizer->vocab.size ||
            (!special && kiln_vocab_is_control(&tokenizer->vocab, id))) {
        return (struct kiln_str){.data = "", .len = 0};
    }
    size_t start = tokenizer->piece_ends[id], end = tokenizer->piece_ends[id + 1];
    const char *base = tokenizer->pieces.data ? tokenizer->pieces.data : "";
    return (struct kiln_str){.data = base + start, .len = end - start};
}

static int is_matched_as_spelled(const struct kiln_tokenizer *tokenizer, int32_t id) {
    return id >= 0 && id < tokenizer->vocab.size &&
           (tokenizer->vocab.types[id] == KILN_TOKEN_USER ||
                   kiln_vocab_is_control(&tokenizer->vocab, id));
}

void kiln_tokenizer_decode(const struct kiln_tokenizer *tokenizer, const int32_t *ids, size_t len,
        int special, struct kiln_buf *text) {
    size_t i = len > 0 && tokenizer->add_bos && ids[0] == tokenizer->bos;
    int after_token = 1; // encode put a blank in front of the raw text that comes next
    for (; i < len; i++) {
        struct kiln_str piece = kiln_tokenizer_piece(tokenizer, ids[i], special);
        int as_spelled = is_matched_as_spelled(tokenizer, ids[i]);
        size_t skip = after_token && !as_spelled && tokenizer->spm.add_space_prefix &&
                      piece.len > 0 && piece.data[0] == ' ';
        kiln_buf_append(text, piece.data + skip, piece.len - skip);
        after_token = as_spelled;
    }
}

int32_t kiln_tokenizer_size(const struct kiln_tokenizer *tokenizer) {
    return tokenizer->vocab.size;
}

int32_t kiln_tokenizer_bos(const struct kiln_tokenizer *tokenizer) {
    return tokenizer->bos;
}

int32_t kiln_tokenizer_eos(const struct kiln_tokenizer *tokenizer) {
    return tokenizer->eos;
}

int kiln_tokenizer_adds_bos(const struct kiln_tokenizer *tokenizer) {
    return tokenizer->add_bos;
}

int kiln_tokenizer_is_end(const struct kiln_tokenizer *tokenizer, int32_t id) {
    return id >= 0 && id < tokenizer->vocab.size && tokenizer->is_end[id];
}

int kiln_tokenizer_is_control(const struct kiln_tokenizer *tokenizer, int32_t id) {
    return id >= 0 && id < tokenizer->vocab.size && kiln_vocab_is_control(&tokenizer->vocab, id);
}

int32_t kiln_tokenizer_find(const struct kiln_tokenizer *tokenizer, const char *text) {
    return kiln_vocab_find(&tokenizer->vocab, text, strlen(text));
}

// ---- streaming

// Appends the characters in front that are whole, and bytes that can become none; returns their
// length.
static size_t show_finished(const char *bytes, size_t len, struct kiln_buf *out) {
    size_t at = 0;
    while (at < len) {
        int step = kiln_utf8_len(bytes + at, len - at);
        if (step < 0) {
            break;
        }
        at += step > 0 ? (size_t)step : 1;
    }
    kiln_buf_append(out, bytes, at);
    return at;
}

void kiln_stream_push(
        struct kiln_stream *stream, const char *bytes, size_t len, struct kiln_buf *out) {
    while (stream->len > 0 && len > 0) { // byte by byte until nothing is held back any more
        stream->held[stream->len++] = *bytes++;
        len--;
        size_t shown = show_finished(stream->held, stream->len, out);
        stream->len -= shown;
        memmove(stream->held, stream->held + shown, stream->len);
    }
    if (len > 0) {
        size_t shown = show_finished(bytes, len, out);
        stream->len = len - shown;
        memcpy(stream->held, bytes + shown, stream->len);
    }
}

void kiln_stream_end(struct kiln_stream *stream, struct kiln_buf *out) {
    kiln_buf_append(out, stream->held, stream->len);
    stream->len = 0;
}
