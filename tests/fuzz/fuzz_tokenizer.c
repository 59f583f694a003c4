// fuzz_tokenizer: any bytes as text, to ids and back, whole and streamed, in two vocabularies.
//
// The first byte of the input: bits 0-1 the encode flags, bits 2-4 which tokenizer, bits 5-7 into
// pieces of how many bytes the stream is cut. The rest is the text.
#include "fuzz.h"

#include "base/mem.h"
#include "model/tokenizer.h"
#include "vocab.h"

#include <string.h>

enum {
    N_TOKENIZERS = 8
};
static struct kiln_tokenizer *tokenizers[N_TOKENIZERS];

static struct kiln_tokenizer *open_tokenizer(struct gguf_write *w) {
    size_t size;
    uint8_t *bytes = gguf_write_finish(w, &size);
    struct kiln_gguf *gguf = NULL;
    struct kiln_tokenizer *tokenizer = NULL;
    struct kiln_err err = {0};
    FUZZ_CHECK(kiln_gguf_parse(&gguf, bytes, size, "fuzz.gguf", &err) == KILN_STATUS_OK);
    FUZZ_CHECK(kiln_tokenizer_open(&tokenizer, gguf, &err) == KILN_STATUS_OK && tokenizer);
    kiln_gguf_close(gguf);
    kiln_free(bytes);
    return tokenizer;
}

// Never closed: they serve all inputs.
static void open_all(void) {
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-r1-qwen"};
    struct gguf_write w;
    gguf_write_init(&w);
    for (int i = 0; i < 5; i++) {
        fuzz_vocab_bpe(&w, pres[i], i % 2 ? FUZZ_MARKERS_USER : FUZZ_MARKERS_CONTROL);
        tokenizers[i] = open_tokenizer(&w);
    }
    for (int i = 5; i < N_TOKENIZERS; i++) {
        fuzz_vocab_spm(&w, i == 5 ? FUZZ_MARKERS_CONTROL : FUZZ_MARKERS_USER);
        if (i == 7) {
            gguf_write_bool(&w, "tokenizer.ggml.add_space_prefix", 0);
        }
        tokenizers[i] = open_tokenizer(&w);
    }
}

static int has_blank_mark(const char *text, size_t len) {
    for (size_t i = 0; i + 3 <= len; i++) {
        if (memcmp(text + i, "\xe2\x96\x81", 3) == 0) {
            return 1;
        }
    }
    return 0;
}

static void check_ids(const struct kiln_tokenizer *tokenizer, const struct kiln_ids *ids,
        size_t len, unsigned flags) {
    size_t start = flags & KILN_TOKENIZE_BOS && kiln_tokenizer_adds_bos(tokenizer);
    FUZZ_CHECK(ids->len <= len + 3); // begin, end, and the blank in front
    for (size_t i = 0; i < ids->len; i++) {
        FUZZ_CHECK(ids->ids[i] >= 0 && ids->ids[i] < kiln_tokenizer_size(tokenizer));
        // Text cannot forge what only the program may write.
        FUZZ_CHECK(i < start || flags & KILN_TOKENIZE_SPECIAL ||
                   !kiln_tokenizer_is_control(tokenizer, ids->ids[i]));
    }
}

// What is streamed in pieces of `step` bytes is what was put in, and nothing is held back for long.
static void check_stream(const struct kiln_buf *text, size_t step) {
    struct kiln_stream stream = {0};
    struct kiln_buf out = {0};
    for (size_t at = 0; at < text->len; at += step) {
        size_t len = text->len - at < step ? text->len - at : step;
        kiln_stream_push(&stream, text->data + at, len, &out);
        FUZZ_CHECK(stream.len <= 3 && out.len + stream.len == at + len);
    }
    kiln_stream_end(&stream, &out);
    FUZZ_CHECK(!out.failed && out.len == text->len);
    FUZZ_CHECK(out.len == 0 || memcmp(out.data, text->data, out.len) == 0);
    kiln_buf_finish(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!tokenizers[0]) {
        open_all();
    }
    if (size == 0) {
        return 0;
    }
    unsigned flags = data[0] & 3, which = data[0] >> 2 & 7, step = (data[0] >> 5) + 1;
    const struct kiln_tokenizer *tokenizer = tokenizers[which];
    const char *text = (const char *)data + 1;
    size_t len = size - 1;
    struct kiln_ids ids = {0};
    struct kiln_err err = {0};
    struct kiln_buf back = {0};
    fuzz_watch_memory();
    FUZZ_CHECK(kiln_tokenizer_encode(tokenizer, text, len, flags, &ids, &err) == KILN_STATUS_OK);
    check_ids(tokenizer, &ids, len, flags);
    kiln_tokenizer_decode(tokenizer, ids.ids, ids.len, 1, &back);
    FUZZ_CHECK(!back.failed);
    // Begin-of-text in front is not text, even when the text spells it. U+2581 stands for a blank
    // in SentencePiece and comes back as one.
    int opens = ids.len > 0 && ids.ids[0] == kiln_tokenizer_bos(tokenizer) &&
                !(flags & KILN_TOKENIZE_BOS) && kiln_tokenizer_adds_bos(tokenizer);
    if (!opens && (which < 5 || !has_blank_mark(text, len))) {
        FUZZ_CHECK(back.len == len && (len == 0 || memcmp(back.data, text, len) == 0));
    }
    check_stream(&back, step);
    kiln_ids_finish(&ids);
    kiln_buf_finish(&back);
    fuzz_check_memory(size);
    return 0;
}
