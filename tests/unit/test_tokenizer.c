// tokenizer: small vocabularies whose ids can be worked out by hand, both kinds, and the stream.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "gguf_write.h"
#include "model/pretokenizer.h"
#include "model/tokenizer.h"
#include "model/tokenizer_impl.h"

enum {
    MAX_TOKENS = 400,
    NORMAL = 1,
    UNKNOWN = 2,
    CONTROL = 3,
    USER = 4,
    UNUSED = 5,
    BYTE = 6
};

// A vocabulary under construction; spellings are kept in `text`.
struct vocab {
    const char *tokens[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    float scores[MAX_TOKENS];
    size_t n;
    char text[MAX_TOKENS][32];
    const char *merges[MAX_TOKENS];
    size_t n_merges;
};

static int32_t add(struct vocab *v, const char *token, int type, float score) {
    snprintf(v->text[v->n], sizeof(v->text[0]), "%s", token);
    v->tokens[v->n] = v->text[v->n];
    v->types[v->n] = type;
    v->scores[v->n] = score;
    return (int32_t)v->n++;
}

// "left right", and the token it makes unless it is there.
static int32_t add_merge(struct vocab *v, const char *merge) {
    v->merges[v->n_merges++] = merge;
    char joined[32];
    snprintf(joined, sizeof(joined), "%s", merge);
    char *blank = strchr(joined, ' ');
    memmove(blank, blank + 1, strlen(blank));
    for (size_t i = 0; i < v->n; i++) {
        if (strcmp(v->tokens[i], joined) == 0) {
            return (int32_t)i;
        }
    }
    return add(v, joined, NORMAL, 0);
}

// Ids 0 to 255: the byte of that value, spelled as byte-level BPE does.
static void add_bytes(struct vocab *v) {
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < 256; byte++) {
        int printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        unsigned code = printable ? byte : next++;
        char text[3] = {(char)code, 0, 0};
        if (code >= 0x80) {
            text[0] = (char)(0xc0 | code >> 6);
            text[1] = (char)(0x80 | (code & 0x3f));
        }
        add(v, text, NORMAL, 0);
    }
}

static void write_vocab(struct gguf_write *w, const struct vocab *v, const char *model) {
    gguf_write_str(w, "tokenizer.ggml.model", model);
    gguf_write_strs(w, "tokenizer.ggml.tokens", v->tokens, v->n);
    gguf_write_array(w, "tokenizer.ggml.token_type", KILN_GGUF_I32, v->n, v->types, v->n * 4);
    if (strcmp(model, "gpt2") == 0) {
        gguf_write_strs(w, "tokenizer.ggml.merges", v->merges, v->n_merges);
    } else {
        gguf_write_array(w, "tokenizer.ggml.scores", KILN_GGUF_F32, v->n, v->scores, v->n * 4);
    }
}

// Opens what was written. The tokenizer must not need the file afterwards.
static enum kiln_status finish(
        struct gguf_write *w, struct kiln_tokenizer **tokenizer, struct kiln_err *err) {
    size_t size;
    uint8_t *bytes = gguf_write_finish(w, &size);
    struct kiln_gguf *gguf = NULL;
    enum kiln_status status = kiln_gguf_parse(&gguf, bytes, size, "m.gguf", err);
    if (status == KILN_STATUS_OK) {
        status = kiln_tokenizer_open(tokenizer, gguf, err);
    }
    kiln_gguf_close(gguf);
    memset(bytes, 0xee, size);
    kiln_free(bytes);
    return status;
}

static struct kiln_tokenizer *open_ok(struct gguf_write *w) {
    struct kiln_tokenizer *tokenizer = NULL;
    struct kiln_err err = {0};
    if (finish(w, &tokenizer, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    return tokenizer;
}

static void open_fails(struct gguf_write *w, const char *part) {
    struct kiln_tokenizer *tokenizer = (struct kiln_tokenizer *)1;
    struct kiln_err err = {0};
    assert_int_equal(finish(w, &tokenizer, &err), KILN_STATUS_FILE);
    assert_null(tokenizer);
    if (!strstr(err.text, part) || !strstr(err.text, "m.gguf")) {
        fail_msg("'%s' does not name the file and '%s'", err.text, part);
    }
}

static void expect_bytes(const struct kiln_tokenizer *tokenizer, const char *text, size_t len,
        unsigned flags, const char *want) {
    struct kiln_ids ids = {0};
    struct kiln_err err = {0};
    if (kiln_tokenizer_encode(tokenizer, text, len, flags, &ids, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    struct kiln_buf got = {0};
    kiln_buf_puts(&got, "");
    for (size_t i = 0; i < ids.len; i++) {
        kiln_buf_printf(&got, "%s%d", i ? " " : "", (int)ids.ids[i]);
    }
    assert_string_equal(got.data, want);
    kiln_buf_finish(&got);
    kiln_ids_finish(&ids);
}

static void expect(const struct kiln_tokenizer *tokenizer, const char *text, unsigned flags,
        const char *want) {
    expect_bytes(tokenizer, text, strlen(text), flags, want);
}

static void expect_decoded(const struct kiln_tokenizer *tokenizer, const int32_t *ids, size_t n,
        int special, const char *want) {
    struct kiln_buf text = {0};
    kiln_buf_puts(&text, "");
    kiln_tokenizer_decode(tokenizer, ids, n, special, &text);
    assert_string_equal(text.data, want);
    kiln_buf_finish(&text);
}

static void expect_round_trip(
        const struct kiln_tokenizer *tokenizer, const char *text, size_t len, unsigned flags) {
    struct kiln_ids ids = {0};
    struct kiln_err err = {0};
    assert_int_equal(
            kiln_tokenizer_encode(tokenizer, text, len, flags, &ids, &err), KILN_STATUS_OK);
    struct kiln_buf back = {0};
    kiln_buf_puts(&back, "");
    kiln_tokenizer_decode(tokenizer, ids.ids, ids.len, 1, &back);
    assert_int_equal(back.len, len);
    assert_memory_equal(back.data, text, len);
    kiln_buf_finish(&back);
    kiln_ids_finish(&ids);
}

// ---- byte-level BPE. Ids from 256 on:
enum {
    HE = 256,
    LL,
    HELL,
    HELLO,
    GL,
    IM_START,
    IM_END,
    TOOL,
    TOOLS,
    TWELVE
};

static void bpe_vocab(struct vocab *v) {
    *v = (struct vocab){0};
    add_bytes(v);
    add_merge(v, "h e");
    add_merge(v, "l l");
    add_merge(v, "he ll");
    add_merge(v, "hell o");
    add_merge(v, "\xc4\xa0 l"); // U+0120 is how a blank is spelled
    add(v, "<|im_start|>", CONTROL, 0);
    add(v, "<|im_end|>", CONTROL, 0);
    add(v, "<tool>", USER, 0);
    add(v, "<tool><ss>", USER, 0);
    add_merge(v, "1 2");
    add_merge(v, "l l"); // again: the first one counts
}

static struct kiln_tokenizer *bpe_open(const char *pre) {
    static struct vocab v;
    bpe_vocab(&v);
    struct gguf_write w;
    gguf_write_init(&w);
    write_vocab(&w, &v, "gpt2");
    gguf_write_str(&w, "tokenizer.ggml.pre", pre);
    gguf_write_u32(&w, "tokenizer.ggml.bos_token_id", IM_START);
    gguf_write_u32(&w, "tokenizer.ggml.eos_token_id", 3);
    return open_ok(&w);
}

static void tokenizer_bpe_merges_by_rank(void **state) {
    (void)state;
    struct kiln_tokenizer *t = bpe_open("gpt2");
    expect(t, "hello", 0, "259");
    expect(t, "hell", 0, "258");
    expect(t, "lll", 0, "257 108");     // the leftmost of equal pairs first
    expect(t, " lll", 0, "32 257 108"); // "ll" outranks " l"
    expect(t, "a l", 0, "97 260");
    expect(t, "h ello", 0, "104 32 101 257 111"); // never across words
    expect(t, "", 0, "");
    kiln_tokenizer_close(t);
}

static void tokenizer_bpe_cuts_digits(void **state) {
    (void)state;
    struct kiln_tokenizer *t = bpe_open("smollm");
    expect(t, "12", 0, "49 50");
    expect(t, " 1", 0, "32 49"); // the digit leaves its blank behind
    kiln_tokenizer_close(t);
    t = bpe_open("gpt2");
    expect(t, "12", 0, "265");
    kiln_tokenizer_close(t);
}

static void tokenizer_bpe_takes_any_bytes(void **state) {
    (void)state;
    struct kiln_tokenizer *t = bpe_open("smollm");
    char all[256];
    for (int i = 0; i < 256; i++) {
        all[i] = (char)i;
    }
    expect_round_trip(t, all, sizeof(all), 0);
    // A bad byte stands alone beside letters but does not hurt the words next to it.
    expect(t, "hello\xff hello", 0, "259 255 32 259");
    expect(t, "hello\xe2\x82", 0, "259 226 130");
    expect_bytes(t, "he\0he", 5, 0, "256 0 256");
    kiln_tokenizer_close(t);
}

static void tokenizer_bpe_matches_special_tokens(void **state) {
    (void)state;
    struct kiln_tokenizer *t = bpe_open("gpt2");
    expect(t, "<|im_start|>he <|im_end|>", KILN_TOKENIZE_SPECIAL, "261 256 32 262");
    expect(t, "<|im_end|>", 0, "60 124 105 109 95 101 110 100 124 62"); // text stays text
    expect(t, "he<tool>he", 0, "256 263 256");                          // user-defined always
    expect(t, "<tool><ss>", 0, "264");                                  // the longer one first
    expect(t, "<tool><tool>", 0, "263 263");
    expect(t, "<tool", 0, "60 116 111 111 108");
    assert_true(kiln_tokenizer_is_control(t, IM_END));
    assert_false(kiln_tokenizer_is_control(t, TOOL));
    kiln_tokenizer_close(t);
}

static void tokenizer_bpe_puts_bos_where_asked(void **state) {
    (void)state;
    struct kiln_tokenizer *t = bpe_open("gpt2");
    assert_false(kiln_tokenizer_adds_bos(t));
    expect(t, "he", KILN_TOKENIZE_BOS, "256");
    kiln_tokenizer_close(t);
    t = bpe_open("llama-bpe"); // by default
    assert_true(kiln_tokenizer_adds_bos(t));
    expect(t, "he", KILN_TOKENIZE_BOS, "261 256");
    expect(t, "", KILN_TOKENIZE_BOS, "261");
    expect(t, "he", 0, "256");
    kiln_tokenizer_close(t);

    static struct vocab v;
    bpe_vocab(&v);
    struct gguf_write w;
    gguf_write_init(&w);
    write_vocab(&w, &v, "gpt2");
    gguf_write_str(&w, "tokenizer.ggml.pre", "qwen2");
    gguf_write_bool(&w, "tokenizer.ggml.add_bos_token", 1);
    gguf_write_bool(&w, "tokenizer.ggml.add_eos_token", 1);
    gguf_write_u32(&w, "tokenizer.ggml.bos_token_id", 7);
    gguf_write_u32(&w, "tokenizer.ggml.eos_token_id", 8);
    t = open_ok(&w);
    assert_int_equal(kiln_tokenizer_bos(t), 7);
    assert_int_equal(kiln_tokenizer_eos(t), 8);
    expect(t, "he", KILN_TOKENIZE_BOS, "7 256 8");
    int32_t ids[] = {7, HE};
    expect_decoded(t, ids, 2, 1, "he");
    kiln_tokenizer_close(t);
}

// " Viet": the whole word is a token that no merge makes.
static void tokenizer_bpe_ignores_merges_for_llama3(void **state) {
    (void)state;
    static struct vocab v;
    for (int llama3 = 0; llama3 < 2; llama3++) {
        bpe_vocab(&v);
        int32_t whole = add(&v, "\xc4\xa0Viet", NORMAL, 0);
        struct gguf_write w;
        gguf_write_init(&w);
        write_vocab(&w, &v, "gpt2");
        gguf_write_str(&w, "tokenizer.ggml.pre", llama3 ? "llama3" : "qwen2");
        struct kiln_tokenizer *t = open_ok(&w);
        assert_int_equal(whole, 266);
        expect(t, "a Viet", 0, llama3 ? "97 266" : "97 32 86 105 101 116");
        kiln_tokenizer_close(t);
    }
}

static void tokenizer_bpe_leaves_out_missing_bytes(void **state) {
    (void)state;
    static struct vocab v;
    v = (struct vocab){0};
    add(&v, "a", NORMAL, 0);
    add(&v, "b", NORMAL, 0);
    add_merge(&v, "a b");
    struct gguf_write w;
    gguf_write_init(&w);
    write_vocab(&w, &v, "gpt2");
    gguf_write_str(&w, "tokenizer.ggml.pre", "gpt2");
    struct kiln_tokenizer *t = open_ok(&w);
    expect(t, "ab-ab", 0, "2 2");
    expect(t, "axb", 0, "0 1"); // what is missing still stands between
    kiln_tokenizer_close(t);
}

static void tokenizer_bpe_never_merges_into_control(void **state) {
    (void)state;
    static struct vocab v;
    bpe_vocab(&v);
    add(&v, "ab", CONTROL, 0);
    add_merge(&v, "a b");
    struct gguf_write w;
    gguf_write_init(&w);
    write_vocab(&w, &v, "gpt2");
    gguf_write_str(&w, "tokenizer.ggml.pre", "gpt2");
    struct kiln_tokenizer *t = open_ok(&w);
    expect(t, "ab", 0, "97 98");
    expect(t, "ab", KILN_TOKENIZE_SPECIAL, "266");
    kiln_tokenizer_close(t);
}

static void tokenizer_bpe_decodes(void **state) {
    (void)state;
    struct kiln_tokenizer *t = bpe_open("gpt2");
    int32_t ids[] = {IM_START, GL, HELLO, 0xf0, 0x9f, 0xa4, 0x96, TOOL, IM_END, -1, 9999};
    expect_decoded(t, ids, 11, 0, " lhello\xf0\x9f\xa4\x96<tool>");
    expect_decoded(t, ids, 11, 1, "<|im_start|> lhello\xf0\x9f\xa4\x96<tool><|im_end|>");
    assert_int_equal(kiln_tokenizer_piece(t, 0, 0).len, 1);
    assert_int_equal(kiln_tokenizer_piece(t, 0, 0).data[0], 0);
    assert_int_equal(kiln_tokenizer_piece(t, IM_END, 0).len, 0);
    assert_int_equal(kiln_tokenizer_size(t), 266);
    assert_int_equal(kiln_tokenizer_find(t, "<|im_end|>"), IM_END);
    assert_int_equal(kiln_tokenizer_find(t, "<|im_"), -1);
    kiln_tokenizer_close(t);
}

static void tokenizer_knows_ends(void **state) {
    (void)state;
    static struct vocab v;
    bpe_vocab(&v);
    int32_t eot = add(&v, "<end_of_turn>", USER, 0); // listed as text in some files
    struct gguf_write w;
    gguf_write_init(&w);
    write_vocab(&w, &v, "gpt2");
    gguf_write_str(&w, "tokenizer.ggml.pre", "gpt2");
    gguf_write_u32(&w, "tokenizer.ggml.eos_token_id", 1);
    gguf_write_u32(&w, "tokenizer.ggml.eot_token_id", 2);
    gguf_write_u32(&w, "tokenizer.ggml.eom_token_id", 3);
    struct kiln_tokenizer *t = open_ok(&w);
    int32_t ends[] = {1, 2, 3, IM_END, eot};
    for (size_t i = 0; i < 5; i++) {
        assert_true(kiln_tokenizer_is_end(t, ends[i]));
    }
    assert_false(kiln_tokenizer_is_end(t, IM_START));
    assert_false(kiln_tokenizer_is_end(t, 0));
    assert_false(kiln_tokenizer_is_end(t, -1));
    assert_false(kiln_tokenizer_is_end(t, 100000));
    assert_true(kiln_tokenizer_is_control(t, eot));
    kiln_tokenizer_close(t);
}

// ---- SentencePiece. Ids:
enum {
    UNK,
    BOS,
    EOS,
    SPM_A,
    SPM_B,
    SPM_C,
    SPM_AB,
    SPM_BC,
    BLANK,
    BLANK_A,
    NEWLINES
};

static void spm_vocab(struct vocab *v) {
    *v = (struct vocab){0};
    add(v, "<unk>", UNKNOWN, 0);
    add(v, "<s>", CONTROL, 0);
    add(v, "</s>", CONTROL, 0);
    add(v, "a", NORMAL, -1);
    add(v, "b", NORMAL, -2);
    add(v, "c", NORMAL, -3);
    add(v, "ab", NORMAL, -20);
    add(v, "bc", NORMAL, -10); // the better one
    add(v, "\xe2\x96\x81", NORMAL, -5);
    add(v,
            "\xe2\x96\x81"
            "a",
            NORMAL, -30);
    add(v, "\n\n", USER, 0);
}

enum {
    FIRST_BYTE = 11
};

static struct kiln_tokenizer *spm_open(int prefix) {
    static struct vocab v;
    spm_vocab(&v);
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof(name), "<0x%02X>", byte);
        add(&v, name, BYTE, 0);
    }
    struct gguf_write w;
    gguf_write_init(&w);
    write_vocab(&w, &v, "llama");
    gguf_write_bool(&w, "tokenizer.ggml.add_space_prefix", (uint8_t)prefix);
    return open_ok(&w);
}

static void tokenizer_spm_merges_by_score(void **state) {
    (void)state;
    struct kiln_tokenizer *t = spm_open(0);
    expect(t, "abc", 0, "3 7");
    expect(t, "ab", 0, "6");
    expect(t, "abab", 0, "6 6");
    expect(t, " abc", 0, "9 7"); // a blank and a: bc came first
    expect(t, "  a", 0, "8 9");
    expect(t, "", 0, "");
    assert_true(kiln_tokenizer_adds_bos(t));
    expect(t, "", KILN_TOKENIZE_BOS, "1");
    expect(t, "a", KILN_TOKENIZE_BOS, "1 3");
    kiln_tokenizer_close(t);
}

static void tokenizer_spm_takes_the_leftmost_of_equals(void **state) {
    (void)state;
    static struct vocab v;
    spm_vocab(&v);
    add(&v, "aa", NORMAL, -7);
    struct gguf_write w;
    gguf_write_init(&w);
    write_vocab(&w, &v, "llama");
    gguf_write_bool(&w, "tokenizer.ggml.add_space_prefix", 0);
    struct kiln_tokenizer *t = open_ok(&w);
    expect(t, "aaa", 0, "11 3");
    expect(t, "aaaaa", 0, "11 11 3");
    expect(t, "x", 0, "0"); // no byte tokens: unknown
    kiln_tokenizer_close(t);
}

static void tokenizer_spm_falls_back_to_bytes(void **state) {
    (void)state;
    struct kiln_tokenizer *t = spm_open(0);
    expect(t, "a\xc3\xa9", 0, "3 206 180");
    expect(t,
            "\xff"
            "ab\xe2",
            0, "266 6 237");
    expect_bytes(t, "\0", 1, 0, "11");
    char all[256];
    for (int i = 0; i < 256; i++) {
        all[i] = (char)i;
    }
    expect_round_trip(t, all, sizeof(all), 0);
    expect_round_trip(t, "a\xf0\x9f\xa4\x96 \xe2\x96", 8, 0);
    kiln_tokenizer_close(t);
}

static void tokenizer_spm_keeps_text_text(void **state) {
    (void)state;
    static struct vocab v;
    spm_vocab(&v);
    add(&v, "<", NORMAL, -1);
    add(&v, "s", NORMAL, -1);
    add(&v, ">", NORMAL, -1);
    add(&v, "<s", NORMAL, -1); // so that <s> is one merge away
    const char *parts[] = {"0", "x", "4", "1", "<0", "<0x", "<0x4", "<0x41"};
    for (size_t i = 0; i < 8; i++) {
        add(&v, parts[i], NORMAL, -1);
    }
    add(&v, "<0x41>", BYTE, 0);
    struct gguf_write w;
    gguf_write_init(&w);
    write_vocab(&w, &v, "llama");
    gguf_write_bool(&w, "tokenizer.ggml.add_space_prefix", 0);
    struct kiln_tokenizer *t = open_ok(&w);
    expect(t, "<s>", 0, "14 13");
    expect(t, "<s>", KILN_TOKENIZE_SPECIAL, "1");
    expect(t, "a\n\nb", 0, "3 10 4"); // user-defined
    expect(t, "<0x41>", 0, "22 13");  // one merge away as well, and a byte token
    kiln_tokenizer_close(t);
}

static void tokenizer_spm_prefixes_a_blank(void **state) {
    (void)state;
    struct kiln_tokenizer *t = spm_open(1);
    expect(t, "a", 0, "9");
    expect(t, " a", 0, "8 9");
    expect(t, "a\n\na", 0, "9 10 9"); // and after a token matched as spelled
    expect(t, "<s>a", KILN_TOKENIZE_SPECIAL, "1 9");
    int32_t ids[] = {BOS, BLANK_A, NEWLINES, BLANK_A, BLANK_A};
    expect_decoded(t, ids, 5, 1, "a\n\na a");
    const char *texts[] = {"a", " a", "  a b", "\n\n a", "a</s> a", ""};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        expect_round_trip(t, texts[i], strlen(texts[i]), 3);
    }
    kiln_tokenizer_close(t);
}

// A text is cut at blanks for speed; not where a token reaches across one.
static void tokenizer_spm_merges_across_blanks(void **state) {
    (void)state;
    static struct vocab v;
    spm_vocab(&v);
    add(&v, "b\xe2\x96\x81", NORMAL, -1);
    add(&v,
            "b\xe2\x96\x81"
            "a",
            NORMAL, -0.5f);
    struct gguf_write w;
    gguf_write_init(&w);
    write_vocab(&w, &v, "llama");
    gguf_write_bool(&w, "tokenizer.ggml.add_space_prefix", 0);
    struct kiln_tokenizer *t = open_ok(&w);
    expect(t, "cb ac a", 0, "5 12 5 9");
    kiln_tokenizer_close(t);
}

// ---- files

static void tokenizer_none_is_no_tokenizer(void **state) {
    (void)state;
    for (int none = 0; none < 2; none++) {
        struct gguf_write w;
        gguf_write_init(&w);
        if (none) {
            gguf_write_str(&w, "tokenizer.ggml.model", "none");
        }
        assert_null(open_ok(&w));
    }
    kiln_tokenizer_close(NULL);
}

enum damage {
    NO_DAMAGE,
    TYPES_SHORT,
    TYPE_UNKNOWN,
    MERGE_FORM,
    MERGE_PART,
    MERGE_RESULT,
    BOS_RANGE,
    PRE
};

static void refuse_bpe(enum damage damage, const char *part) {
    static struct vocab v;
    bpe_vocab(&v);
    v.types[5] = damage == TYPE_UNKNOWN ? 9 : v.types[5];
    v.merges[2] = damage == MERGE_FORM     ? "hell"
                  : damage == MERGE_PART   ? "he xyz"
                  : damage == MERGE_RESULT ? "he he"
                                           : v.merges[2];
    struct gguf_write w;
    gguf_write_init(&w);
    gguf_write_str(&w, "tokenizer.ggml.model", "gpt2");
    gguf_write_strs(&w, "tokenizer.ggml.tokens", v.tokens, v.n);
    size_t n_types = damage == TYPES_SHORT ? v.n - 1 : v.n;
    gguf_write_array(&w, "tokenizer.ggml.token_type", KILN_GGUF_I32, n_types, v.types, n_types * 4);
    gguf_write_strs(&w, "tokenizer.ggml.merges", v.merges, v.n_merges);
    gguf_write_str(&w, "tokenizer.ggml.pre", damage == PRE ? "smolm" : "smollm");
    gguf_write_u32(&w, "tokenizer.ggml.bos_token_id", damage == BOS_RANGE ? 266 : 0);
    if (damage == NO_DAMAGE) {
        kiln_tokenizer_close(open_ok(&w));
    } else {
        open_fails(&w, part);
    }
}

static void tokenizer_refuses_bad_bpe_tables(void **state) {
    (void)state;
    refuse_bpe(NO_DAMAGE, "");
    refuse_bpe(TYPES_SHORT, "tokenizer.ggml.token_type");
    refuse_bpe(TYPE_UNKNOWN, "token 5 has type 9");
    refuse_bpe(MERGE_FORM, "merge 2, 'hell'");
    refuse_bpe(MERGE_PART, "merge 2, 'he xyz', has a part");
    refuse_bpe(MERGE_RESULT, "merge 2, 'he he', makes a token");
    refuse_bpe(BOS_RANGE, "tokenizer.ggml.bos_token_id");
    refuse_bpe(
            PRE, "it has smollm, starcoder, refact, command-r, gpt2, gpt-2, mpt, default, llama3");
}

static void tokenizer_refuses_bad_spm_tables(void **state) {
    (void)state;
    static struct vocab v;
    struct gguf_write w;
    spm_vocab(&v);
    v.scores[4] = NAN;
    gguf_write_init(&w);
    write_vocab(&w, &v, "llama");
    open_fails(&w, "score of token 4");

    spm_vocab(&v);
    gguf_write_init(&w);
    gguf_write_str(&w, "tokenizer.ggml.model", "llama");
    gguf_write_strs(&w, "tokenizer.ggml.tokens", v.tokens, v.n);
    gguf_write_array(&w, "tokenizer.ggml.scores", KILN_GGUF_F32, 3, v.scores, 12);
    open_fails(&w, "tokenizer.ggml.scores");

    gguf_write_init(&w);
    gguf_write_str(&w, "tokenizer.ggml.model", "llama");
    gguf_write_strs(&w, "tokenizer.ggml.tokens", v.tokens, 0);
    open_fails(&w, "tokenizer.ggml.tokens");

    gguf_write_init(&w);
    gguf_write_str(&w, "tokenizer.ggml.model", "wordpiece");
    open_fails(&w, "gpt2, llama");
}

// ---- size and memory

static void tokenizer_long_words_are_not_quadratic(void **state) {
    (void)state;
    size_t len = 1000000; // squared it would outlast the test's time limit
    char *text = malloc(len);
    assert_non_null(text);
    struct kiln_tokenizer *t[] = {bpe_open("smollm"), spm_open(0)};
    const char *fill[] = {"l", " ", "<", "\xff"};
    for (size_t i = 0; i < 4; i++) {
        memset(text, fill[i][0], len);
        text[len - 1] = 'a';
        expect_round_trip(t[0], text, len, KILN_TOKENIZE_SPECIAL);
        expect_round_trip(t[1], text, len, KILN_TOKENIZE_SPECIAL);
    }
    free(text);
    kiln_tokenizer_close(t[0]);
    kiln_tokenizer_close(t[1]);
}

// One word that is a whole file costs less than 16 bytes a byte, whatever merges there are.
static void tokenizer_long_words_stay_small(void **state) {
    (void)state;
    size_t len = 2000000;
    char *text = malloc(len);
    assert_non_null(text);
    struct kiln_tokenizer *t[] = {bpe_open("gpt2"), spm_open(0)};
    const char *fill[] = {"l", "a", "1", "\xff"};
    for (size_t i = 0; i < 8; i++) {
        memset(text, fill[i / 2][0], len);
        struct kiln_ids ids = {0};
        struct kiln_err err = {0};
        kiln_mem_watch(1);
        assert_int_equal(
                kiln_tokenizer_encode(t[i % 2], text, len, KILN_TOKENIZE_SPECIAL, &ids, &err),
                KILN_STATUS_OK);
        assert_true(kiln_mem_peak() > len);
        assert_true(kiln_mem_peak() < 16 * len);
        kiln_ids_finish(&ids);
        kiln_mem_watch(0);
    }
    free(text);
    kiln_tokenizer_close(t[0]);
    kiln_tokenizer_close(t[1]);
}

// Special tokens of many lengths that all begin alike: what it takes to look for them does not grow
// with the number of lengths, neither in text that begins like them nor in text that is them.
static void tokenizer_special_lengths_cost_little(void **state) {
    (void)state;
    enum {
        N_LENGTHS = 1000,
        LEN = 90000
    };
    static char spelled[N_LENGTHS][N_LENGTHS + 8];
    const char *tokens[N_LENGTHS];
    int32_t types[N_LENGTHS];
    for (int i = 0; i < N_LENGTHS; i++) {
        memcpy(spelled[i], "<|", 2);
        memset(spelled[i] + 2, 'a' + i % 26, (size_t)i + 1);
        tokens[i] = spelled[i];
        types[i] = CONTROL;
    }
    struct gguf_write w;
    gguf_write_init(&w);
    gguf_write_strs(&w, "tokenizer.ggml.tokens", tokens, N_LENGTHS);
    gguf_write_array(
            &w, "tokenizer.ggml.token_type", KILN_GGUF_I32, N_LENGTHS, types, N_LENGTHS * 4);
    size_t size;
    uint8_t *bytes = gguf_write_finish(&w, &size);
    struct kiln_gguf *gguf = NULL;
    struct kiln_vocab vocab = {0};
    struct kiln_specials specials = {0};
    struct kiln_err err = {0};
    assert_int_equal(kiln_gguf_parse(&gguf, bytes, size, "m.gguf", &err), KILN_STATUS_OK);
    assert_int_equal(kiln_vocab_open(&vocab, gguf, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_specials_open(&specials, &vocab, &err), KILN_STATUS_OK);
    static char text[LEN + 1];
    const char *fill[] = {"<|", "<|a", "<|abc", "<|zzzzzzzzzz"};
    for (size_t f = 0; f < 4; f++) {
        size_t step = strlen(fill[f]), found = 0;
        for (size_t i = 0; i < LEN; i++) {
            text[i] = fill[f][i % step];
        }
        struct kiln_cuts cuts = {0};
        assert_int_equal(
                kiln_specials_cut(&specials, &vocab, text, LEN, 1, &cuts, &err), KILN_STATUS_OK);
        for (size_t at = 0; at < LEN;) {
            int token = 0;
            at = kiln_cuts_end(&cuts, at, &token);
            found += (size_t)token;
        }
        // A length at a time would be 1000 steps for each "<|".
        assert_in_range(cuts.steps, LEN / step, 300 * (LEN / step));
        assert_int_equal(found, f == 0 || f == 3 ? 0 : LEN / step);
        kiln_cuts_finish(&cuts);
    }
    kiln_specials_close(&specials);
    kiln_vocab_close(&vocab);
    kiln_gguf_close(gguf);
    kiln_free(bytes);
}

// Opens and encodes with the n-th allocation failing; 1 when it was never reached. Compiling a
// pattern to machine code is allowed to fail unnoticed, so success is fine, but only with the right
// ids.
static int try_with_failure(
        const struct kiln_gguf *gguf, uint64_t n, int sticky, const struct kiln_ids *want) {
    static const char text[] = "he<tool>llo \xff 12 <|im_end|> a\n\nbc";
    struct kiln_tokenizer *tokenizer = NULL;
    struct kiln_ids ids = {0};
    struct kiln_err err = {0};
    kiln_mem_fail_at(n, sticky);
    enum kiln_status status = kiln_tokenizer_open(&tokenizer, gguf, &err);
    if (status == KILN_STATUS_OK) {
        status = kiln_tokenizer_encode(tokenizer, text, sizeof(text) - 1, 3, &ids, &err);
    } else {
        assert_null(tokenizer);
    }
    int reached = n != 0 && kiln_mem_count() >= n;
    kiln_mem_fail_at(0, 0);
    if (status == KILN_STATUS_OK) {
        assert_true(!reached || !sticky);
        assert_int_equal(ids.len, want->len);
        assert_memory_equal(ids.ids, want->ids, ids.len * sizeof(*ids.ids));
    } else {
        assert_true(reached);
        assert_int_equal(status, KILN_STATUS_NOMEM);
        assert_int_equal(ids.len, 0);
        assert_true(err.text[0] != '\0');
    }
    kiln_ids_finish(&ids);
    kiln_tokenizer_close(tokenizer);
    return !reached;
}

static void tokenizer_survives_failing_allocations(void **state) {
    (void)state;
    int32_t bpe[] = {
            HE, TOOL, LL, 'o', ' ', 0xff, ' ', TWELVE, ' ', IM_END, ' ', 'a', '\n', '\n', 'b', 'c'};
    int32_t spm[] = {BOS, BLANK, UNK, UNK, UNK, UNK, UNK, UNK, UNK, UNK, UNK, UNK, UNK, BLANK, UNK,
            BLANK, UNK, UNK, BLANK, UNK, UNK, UNK, UNK, UNK, UNK, UNK, UNK, UNK, UNK, BLANK_A,
            NEWLINES, BLANK, SPM_BC};
    const struct kiln_ids bpe_ids = {.ids = bpe, .len = sizeof(bpe) / sizeof(bpe[0])};
    const struct kiln_ids spm_ids = {.ids = spm, .len = sizeof(spm) / sizeof(spm[0])};
    static struct vocab v;
    for (int kind = 0; kind < 2; kind++) {
        struct gguf_write w;
        gguf_write_init(&w);
        if (kind == 0) {
            bpe_vocab(&v);
        } else {
            spm_vocab(&v);
        }
        write_vocab(&w, &v, kind == 0 ? "gpt2" : "llama");
        gguf_write_str(&w, "tokenizer.ggml.pre", "llama3");
        size_t size;
        uint8_t *bytes = gguf_write_finish(&w, &size);
        struct kiln_gguf *gguf = NULL;
        struct kiln_err err = {0};
        assert_int_equal(kiln_gguf_parse(&gguf, bytes, size, "m.gguf", &err), KILN_STATUS_OK);
        for (int sticky = 0; sticky < 2; sticky++) {
            uint64_t n = 1;
            while (!try_with_failure(gguf, n, sticky, kind == 0 ? &bpe_ids : &spm_ids)) {
                n++;
            }
            assert_true(n > 10);
        }
        kiln_gguf_close(gguf);
        kiln_free(bytes);
    }
}

// ---- pretokenizers: the pieces, joined by '|'

static void expect_pieces(const char *pre, const char *text, const char *want) {
    struct kiln_pretokenizer *p = NULL;
    struct kiln_pieces pieces = {0};
    struct kiln_err err = {0};
    assert_int_equal(kiln_pretokenizer_open(&p, pre, strlen(pre), &err), KILN_STATUS_OK);
    assert_int_equal(kiln_pretokenizer_split(p, text, strlen(text), &pieces, &err), KILN_STATUS_OK);
    struct kiln_buf got = {0};
    kiln_buf_puts(&got, "");
    size_t start = 0;
    for (size_t i = 0; i < pieces.len; i++) {
        kiln_buf_puts(&got, i ? "|" : "");
        kiln_buf_append(&got, text + start, pieces.ends[i] - start);
        start = pieces.ends[i];
    }
    assert_string_equal(got.data, want);
    kiln_buf_finish(&got);
    kiln_free(pieces.ends);
    kiln_pretokenizer_close(p);
}

static void pretokenizer_gpt2_cuts(void **state) {
    (void)state;
    expect_pieces("gpt2", "", "");
    expect_pieces("gpt2", "Hello, world!", "Hello|,| world|!");
    expect_pieces("gpt2", "a  b   c ", "a| | b|  | c| ");
    expect_pieces("gpt2", "don't I'LL we've", "don|'t| I|'|LL| we|'ve");
    expect_pieces("gpt2", "x\r\n\r\n\ty\n", "x|\r\n\r\n|\t|y|\n");
    expect_pieces("gpt2", "a1234 56", "a|1234| 56");
    expect_pieces("gpt2",
            "a\xc2\x85\xc2\xa0"
            "b",
            "a|\xc2\x85|\xc2\xa0|b");
    expect_pieces("gpt2",
            " \xe1\xa0\x8e"
            "b",
            " \xe1\xa0\x8e|b"); // U+180E is no blank
    expect_pieces("gpt2",
            "\xff\xfe"
            "a\xf0\x9f\x98",
            "\xff\xfe|a|\xf0\x9f\x98");
}

static void pretokenizer_default_cuts(void **state) {
    (void)state;
    expect_pieces("default", "a1234 56", "a|123|4| |56");
    expect_pieces("default", "x (foo).bar!!  z", "x| |(|foo|).|bar|!!| | z");
    expect_pieces("default", "$1+2=~`c`", "$|1|+|2|=~|`|c|`");
    expect_pieces("default", "don't", "don|'|t");
}

static void pretokenizer_smollm_cuts(void **state) {
    (void)state;
    expect_pieces("smollm", "a1234 56", "a|1|2|3|4| |5|6");
    expect_pieces("smollm", "x  7", "x|  |7"); // blanks before a digit stay together
    expect_pieces("smollm", "2\xc2\xb2\xe2\x85\xa7", "2|\xc2\xb2|\xe2\x85\xa7");
}

static void pretokenizer_llama3_cuts(void **state) {
    (void)state;
    expect_pieces("llama3", "1 12 123 12345678", "1| |12| |123| |123|456|78");
    expect_pieces("llama3", "I'LL HE'S it'\xc5\xbfx", "I|'LL| HE|'S| it|'\xc5\xbfx");
    expect_pieces("llama3", "(foo).bar!!\n\nx", "(foo|).|bar|!!\n\n|x");
    expect_pieces("llama3", " \n \n  z", " \n \n| | z");
    expect_pieces("qwen2", "a123\tb", "a|1|2|3|\tb");
}

// ---- streaming

static void stream_never_shows_half_a_character(void **state) {
    (void)state;
    static const char text[] = "a\xf0\x9f\xa4\x96z\xc3\xa9";
    size_t len = sizeof(text) - 1;
    for (size_t first = 0; first <= len; first++) {
        for (size_t second = first; second <= len; second++) {
            size_t cuts[] = {0, first, second, len};
            struct kiln_stream stream = {0};
            struct kiln_buf out = {0};
            for (int i = 0; i < 3; i++) {
                kiln_stream_push(&stream, text + cuts[i], cuts[i + 1] - cuts[i], &out);
                size_t end = cuts[i + 1]; // what may be shown: up to the last whole character
                size_t whole = end > 1 && end < 5 ? 1 : end == 7 ? 6 : end;
                assert_int_equal(out.len, whole);
                assert_int_equal(stream.len, end - whole);
            }
            kiln_stream_end(&stream, &out);
            assert_string_equal(out.data, text);
            kiln_buf_finish(&out);
        }
    }
}

static void stream_passes_bad_bytes_through(void **state) {
    (void)state;
    static const char text[] = "\xff"
                               "a\x80\xf0\x9f"
                               "b\xe2\x82\xe2\x82\xac\xc0\xaf\xf4\x90\xed\xa0\xf0\x9f";
    size_t len = sizeof(text) - 1;
    for (size_t cut = 0; cut <= len; cut++) {
        struct kiln_stream stream = {0};
        struct kiln_buf out = {0};
        kiln_stream_push(&stream, text, cut, &out);
        kiln_stream_push(&stream, text + cut, len - cut, &out);
        assert_int_equal(stream.len, 2); // an unfinished one at the end is held back
        kiln_stream_end(&stream, &out);
        assert_int_equal(stream.len, 0);
        assert_int_equal(out.len, len);
        assert_memory_equal(out.data, text, len);
        kiln_buf_finish(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(tokenizer_bpe_merges_by_rank),
            cmocka_unit_test(tokenizer_bpe_cuts_digits),
            cmocka_unit_test(tokenizer_bpe_takes_any_bytes),
            cmocka_unit_test(tokenizer_bpe_matches_special_tokens),
            cmocka_unit_test(tokenizer_bpe_puts_bos_where_asked),
            cmocka_unit_test(tokenizer_bpe_ignores_merges_for_llama3),
            cmocka_unit_test(tokenizer_bpe_leaves_out_missing_bytes),
            cmocka_unit_test(tokenizer_bpe_never_merges_into_control),
            cmocka_unit_test(tokenizer_bpe_decodes),
            cmocka_unit_test(tokenizer_knows_ends),
            cmocka_unit_test(tokenizer_spm_merges_by_score),
            cmocka_unit_test(tokenizer_spm_takes_the_leftmost_of_equals),
            cmocka_unit_test(tokenizer_spm_falls_back_to_bytes),
            cmocka_unit_test(tokenizer_spm_keeps_text_text),
            cmocka_unit_test(tokenizer_spm_prefixes_a_blank),
            cmocka_unit_test(tokenizer_spm_merges_across_blanks),
            cmocka_unit_test(tokenizer_none_is_no_tokenizer),
            cmocka_unit_test(tokenizer_refuses_bad_bpe_tables),
            cmocka_unit_test(tokenizer_refuses_bad_spm_tables),
            cmocka_unit_test(tokenizer_long_words_are_not_quadratic),
            cmocka_unit_test(tokenizer_long_words_stay_small),
            cmocka_unit_test(tokenizer_special_lengths_cost_little),
            cmocka_unit_test(tokenizer_survives_failing_allocations),
            cmocka_unit_test(pretokenizer_gpt2_cuts),
            cmocka_unit_test(pretokenizer_default_cuts),
            cmocka_unit_test(pretokenizer_smollm_cuts),
            cmocka_unit_test(pretokenizer_llama3_cuts),
            cmocka_unit_test(stream_never_shows_half_a_character),
            cmocka_unit_test(stream_passes_bad_bytes_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
