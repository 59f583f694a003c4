// vocab: builds the tables of the two vocabularies.
#include "vocab.h"

#include "fuzz.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_TOKENS = 420,
    NORMAL = 1,
    UNKNOWN = 2,
    CONTROL = 3,
    USER = 4,
    BYTE = 6
};

struct table {
    char text[MAX_TOKENS][32];
    const char *tokens[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    float scores[MAX_TOKENS];
    size_t n;
};

static void add(struct table *t, const char *text, int type, float score) {
    FUZZ_CHECK(t->n < MAX_TOKENS);
    snprintf(t->text[t->n], sizeof(t->text[0]), "%s", text);
    t->tokens[t->n] = t->text[t->n];
    t->types[t->n] = type;
    t->scores[t->n++] = score;
}

static void add_markers(struct table *t, enum fuzz_marker_type type) {
    static const char *const markers[] = {"<|im_start|>", "<|im_end|>", "<|start_header_id|>",
            "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>", "<start_of_turn>",
            "<end_of_turn>", "<\xef\xbd\x9cUser\xef\xbd\x9c>",
            "<\xef\xbd\x9c"
            "Assistant\xef\xbd\x9c>",
            "<\xef\xbd\x9c"
            "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
            "<\xef\xbd\x9c"
            "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"};
    for (size_t i = 0; i < sizeof(markers) / sizeof(markers[0]); i++) {
        add(t, markers[i], (int)type, 0);
    }
    add(t, "<think>", USER, 0);
    add(t, "</think>", USER, 0);
    add(t, "<u>", USER, 0);
    add(t, "<u><u>", USER, 0);
}

// Each byte as byte-level BPE spells it: printable ones as they are, the others from U+0100 on.
static void add_bpe_bytes(struct table *t) {
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < 256; byte++) {
        int printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        unsigned code = printable ? byte : next++;
        char text[3] = {(char)code, 0, 0};
        if (code >= 0x80) {
            text[0] = (char)(0xc0 | code >> 6);
            text[1] = (char)(0x80 | (code & 0x3f));
        }
        add(t, text, NORMAL, 0);
    }
}

static void write_table(struct gguf_write *w, const struct table *t, const char *model) {
    gguf_write_str(w, "tokenizer.ggml.model", model);
    gguf_write_strs(w, "tokenizer.ggml.tokens", t->tokens, t->n);
    gguf_write_array(w, "tokenizer.ggml.token_type", KILN_GGUF_I32, t->n, t->types, t->n * 4);
}

void fuzz_vocab_bpe(struct gguf_write *w, const char *pre, enum fuzz_marker_type markers) {
    static const char *const merges[] = {"a a", "aa aa", "a b", "ab a", "t h", "th e", "\xc4\xa0 a",
            "\xc4\xa0 the", "1 2", "12 3", "\xc4\x8a \xc4\x8a", "\xc3\xa9 s", "\xc3\x83 \xc2\xa9"};
    static struct table t;
    memset(&t, 0, sizeof(t));
    add_bpe_bytes(&t);
    for (size_t i = 0; i < sizeof(merges) / sizeof(merges[0]); i++) {
        char joined[32];
        snprintf(joined, sizeof(joined), "%s", merges[i]);
        char *blank = strchr(joined, ' ');
        memmove(blank, blank + 1, strlen(blank));
        add(&t, joined, NORMAL, 0);
    }
    add(&t, "<|endoftext|>", CONTROL, 0);
    add_markers(&t, markers);
    write_table(w, &t, "gpt2");
    gguf_write_str(w, "tokenizer.ggml.pre", pre);
    gguf_write_strs(w, "tokenizer.ggml.merges", merges, sizeof(merges) / sizeof(merges[0]));
}

void fuzz_vocab_spm(struct gguf_write *w, enum fuzz_marker_type markers) {
    static const struct {
        const char *text;
        float score;
    } words[] = {{"\xe2\x96\x81", -1}, {"\xe2\x96\x81\xe2\x96\x81", -2}, {"a", -3}, {"aa", -4},
            {"b", -5}, {"ab", -6},
            {"\xe2\x96\x81"
             "a",
                    -7},
            {"the", -8}, {"t", -9}, {"h", -10}, {"e", -11}, {"th", -12}, {"\xc3\xa9", -13},
            {"\n", -14}, {"1", -15}};
    static struct table t;
    memset(&t, 0, sizeof(t));
    add(&t, "<unk>", UNKNOWN, 0);
    add(&t, "<s>", CONTROL, 0);
    add(&t, "</s>", CONTROL, 0);
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof(text), "<0x%02X>", byte);
        add(&t, text, BYTE, 0);
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        add(&t, words[i].text, NORMAL, words[i].score);
    }
    add_markers(&t, markers);
    write_table(w, &t, "llama");
    gguf_write_array(w, "tokenizer.ggml.scores", KILN_GGUF_F32, t.n, t.scores, t.n * 4);
}
