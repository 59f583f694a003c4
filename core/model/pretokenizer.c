// pretokenizer: a table of names and patterns, run by PCRE2.
//
// Every pattern takes time linear in the text: no repeat is nested, and each long backtrack is over
// blanks that the same match then consumes. The match limit is there for a pattern that breaks this
// rule.
#include "model/pretokenizer.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "model/gguf.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string.h>

// The characters with the property White_Space. PCRE2's own \s also has U+180E, which lost the
// property.
#define BLANK \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
// A run of blanks leaves its last one to the word that follows.
#define BLANKS "[" BLANK "]+(?![^" BLANK "])|[" BLANK "]+"

#define WORDS_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" BLANK "\\p{L}\\p{N}]+|" BLANKS

// Letter case spelled out: (?i:s) would also match U+017F.
#define WORDS_LLAMA3(digits) \
    "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
    "| ?[^" BLANK "\\p{L}\\p{N}]+[\\r\\n]*|[" BLANK "]*[\\r\\n]+|" BLANKS

enum {
    MAX_NAMES = 4,
    MAX_PATTERNS = 4
};

struct row {
    const char *names[MAX_NAMES];
    const char *patterns[MAX_PATTERNS];
    int ignores_merges;
    int adds_bos;
};

static const struct row rows[] = {
        {{"smollm", "starcoder", "refact", "command-r"}, {"\\p{N}", WORDS_GPT2}, 0, 0},
        {{"gpt2", "gpt-2", "mpt"}, {WORDS_GPT2}, 0, 0},
        {{"default"}, {"[\\p{P}$+<=>^~|]+", WORDS_GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, 0, 0},
        {{"llama3", "llama-v3", "llama-bpe"}, {WORDS_LLAMA3("\\p{N}{1,3}")}, 1, 1},
        {{"qwen2", "deepseek-r1-qwen"}, {WORDS_LLAMA3("\\p{N}")}, 0, 0},
};
static const size_t n_rows = sizeof(rows) / sizeof(rows[0]);

struct kiln_pretokenizer {
    const struct row *row;
    pcre2_general_context *context;
    pcre2_code *codes[MAX_PATTERNS];
};

static void *context_alloc(size_t size, void *data) {
    (void)data;
    return kiln_alloc(size);
}

static void context_free(void *ptr, void *data) {
    (void)data;
    kiln_free(ptr);
}

static const struct row *find_row(const char *name, size_t len) {
    for (size_t r = 0; r < n_rows; r++) {
        for (int i = 0; i < MAX_NAMES && rows[r].names[i]; i++) {
            if (strlen(rows[r].names[i]) == len && memcmp(rows[r].names[i], name, len) == 0) {
                return &rows[r];
            }
        }
    }
    return NULL;
}

static enum kiln_status unknown_name(const char *name, size_t len, struct kiln_err *err) {
    struct kiln_buf known = {0};
    for (size_t r = 0; r < n_rows; r++) {
        for (int i = 0; i < MAX_NAMES && rows[r].names[i]; i++) {
            kiln_buf_printf(&known, "%s%s", known.len ? ", " : "", rows[r].names[i]);
        }
    }
    char shown[KILN_GGUF_SHOWN];
    enum kiln_status status = kiln_err_set(err, KILN_STATUS_FILE,
            "key 'tokenizer.ggml.pre': kiln has no pretokenizer '%s'; it has %s",
            kiln_gguf_show(shown, (struct kiln_str){.data = name, .len = len}),
            known.data ? known.data : "others");
    kiln_buf_finish(&known);
    return status;
}

static enum kiln_status compile(
        struct kiln_pretokenizer *pre, int i, const char *pattern, struct kiln_err *err) {
    pcre2_compile_context *context = pcre2_compile_context_create(pre->context);
    if (!context) {
        return kiln_err_nomem(err, "a pretokenizer pattern");
    }
    int code = 0;
    PCRE2_SIZE offset = 0;
    pre->codes[i] = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset, context);
    pcre2_compile_context_free(context);
    if (!pre->codes[i]) {
        char text[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof(text));
        return code == PCRE2_ERROR_HEAP_FAILED
                       ? kiln_err_nomem(err, "a pretokenizer pattern")
                       : kiln_err_set(err, KILN_STATUS_FILE,
                                 "pretokenizer '%s': PCRE2 refuses pattern %d at offset %zu: %s",
                                 pre->row->names[0], i + 1, offset, text);
    }
    // Only speed: without a just-in-time compiler the same pattern is interpreted.
    (void)pcre2_jit_compile(pre->codes[i], PCRE2_JIT_COMPLETE);
    return KILN_STATUS_OK;
}

enum kiln_status kiln_pretokenizer_open(
        struct kiln_pretokenizer **pre, const char *name, size_t len, struct kiln_err *err) {
    *pre = NULL;
    const struct row *row = find_row(name, len);
    if (!row) {
        return unknown_name(name, len, err);
    }
    struct kiln_pretokenizer *made = kiln_calloc(1, sizeof(*made));
    if (!made) {
        return kiln_err_nomem(err, "the pretokenizer");
    }
    made->row = row;
    made->context = pcre2_general_context_create(context_alloc, context_free, NULL);
    enum kiln_status status =
            made->context ? KILN_STATUS_OK : kiln_err_nomem(err, "the pretokenizer");
    for (int i = 0; status == KILN_STATUS_OK && i < MAX_PATTERNS && row->patterns[i]; i++) {
        status = compile(made, i, row->patterns[i], err);
    }
    if (status != KILN_STATUS_OK) {
        kiln_pretokenizer_close(made);
        return status;
    }
    *pre = made;
    return KILN_STATUS_OK;
}

void kiln_pretokenizer_close(struct kiln_pretokenizer *pre) {
    if (pre) {
        for (int i = 0; i < MAX_PATTERNS; i++) {
            pcre2_code_free(pre->codes[i]);
        }
        pcre2_general_context_free(pre->context);
        kiln_free(pre);
    }
}

int kiln_pretokenizer_ignores_merges(const struct kiln_pretokenizer *pre) {
    return pre->row->ignores_merges;
}

int kiln_pretokenizer_adds_bos(const struct kiln_pretokenizer *pre) {
    return pre->row->adds_bos;
}

static enum kiln_status push(struct kiln_pieces *pieces, size_t end, struct kiln_err *err) {
    if (kiln_grow(&pieces->ends, &pieces->cap, pieces->len + 1, sizeof(*pieces->ends)) != 0) {
        return kiln_err_nomem(err, "the words of the text");
    }
    pieces->ends[pieces->len++] = (uint32_t)end;
    return KILN_STATUS_OK;
}

// ---- one pattern over one piece

struct matcher {
    const struct kiln_pretokenizer *pre;
    const pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

// The next match at or after `from` in [start, end): 1 with *at and *to set, 0 when there is none.
// The piece is the whole subject, so that nothing looks past its end.
static enum kiln_status match(const struct matcher *m, const char *text, size_t start, size_t end,
        size_t from, size_t *at, size_t *to, int *found, struct kiln_err *err) {
    PCRE2_SPTR subject = (PCRE2_SPTR)text + start;
    // Checked once for the whole text: PCRE2 would check the rest of the piece at each match.
    uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int rc = pcre2_match(m->code, subject, end - start, from - start, options, m->data, m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(m->code, subject, end - start, from - start, options | PCRE2_NO_JIT,
                m->data, m->context);
    }
    *found = rc > 0;
    if (rc > 0) {
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(m->data);
        *at = start + range[0];
        *to = start + range[1];
    } else if (rc == PCRE2_ERROR_NOMEMORY) {
        return kiln_err_nomem(err, "matching the words of the text");
    } else if (rc != PCRE2_ERROR_NOMATCH) {
        char why[128] = "";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof(why));
        return kiln_err_set(err, KILN_STATUS_CHECK,
                "pretokenizer '%s': the text cannot be cut into words at byte %zu: %s",
                m->pre->row->names[0], from, why);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status split_piece(const struct matcher *m, const char *text, size_t start,
        size_t end, struct kiln_pieces *out, struct kiln_err *err) {
    size_t from = start;
    while (from < end) {
        size_t at = end, to = end;
        int found = 0;
        KILN_TRY(match(m, text, start, end, from, &at, &to, &found, err));
        if (!found || at > from) { // what lies before the match is a piece of its own
            KILN_TRY(push(out, found ? at : end, err));
        }
        if (found) {
            KILN_TRY(push(out, to, err));
        }
        from = to;
    }
    return KILN_STATUS_OK;
}

static enum kiln_status split_all(const struct matcher *m, const char *text,
        const struct kiln_pieces *in, struct kiln_pieces *out, struct kiln_err *err) {
    size_t start = 0;
    for (size_t i = 0; i < in->len; i++) {
        KILN_TRY(split_piece(m, text, start, in->ends[i], out, err));
        start = in->ends[i];
    }
    return KILN_STATUS_OK;
}

static enum kiln_status run_patterns(const struct kiln_pretokenizer *pre, const char *text,
        size_t len, struct kiln_pieces *pieces, struct kiln_err *err) {
    struct matcher m = {.pre = pre,
            .data = pcre2_match_data_create(1, pre->context),
            .context = pcre2_match_context_create(pre->context)};
    enum kiln_status status = m.data && m.context
                                      ? KILN_STATUS_OK
                                      : kiln_err_nomem(err, "matching the words of the text");
    if (status == KILN_STATUS_OK) {
        // One step a character and alternative suffices for a pattern of linear time.
        size_t limit = 1000000 + 16 * len;
        pcre2_set_match_limit(m.context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
        status = push(pieces, len, err);
    }
    for (int i = 0; status == KILN_STATUS_OK && i < MAX_PATTERNS && pre->codes[i]; i++) {
        struct kiln_pieces finer = {0};
        m.code = pre->codes[i];
        status = split_all(&m, text, pieces, &finer, err);
        kiln_free(pieces->ends);
        *pieces = finer;
    }
    pcre2_match_data_free(m.data);
    pcre2_match_context_free(m.context);
    return status;
}

// ---- text that is not UTF-8

static size_t well_formed_prefix(const char *text, size_t len) {
    size_t at = 0;
    while (at < len) {
        int step = kiln_utf8_len(text + at, len - at);
        if (step <= 0) {
            break;
        }
        at += (size_t)step;
    }
    return at;
}

// A copy in which each byte that is part of no character is U+0001: of the same class as U+FFFD in
// every pattern, and one byte long, so that offsets stay what they are.
static char *repaired(const char *text, size_t len, size_t at) {
    char *copy = kiln_strndup(text, len);
    while (copy && at < len) {
        copy[at] = '\x01';
        at += 1 + well_formed_prefix(text + at + 1, len - at - 1);
    }
    return copy;
}

enum kiln_status kiln_pretokenizer_split(const struct kiln_pretokenizer *pre, const char *text,
        size_t len, struct kiln_pieces *pieces, struct kiln_err *err) {
    pieces->len = 0;
    if (len == 0) {
        return KILN_STATUS_OK;
    }
    size_t good = well_formed_prefix(text, len);
    if (good == len) {
        return run_patterns(pre, text, len, pieces, err);
    }
    char *copy = repaired(text, len, good);
    if (!copy) {
        return kiln_err_nomem(err, "a copy of the text");
    }
    enum kiln_status status = run_patterns(pre, copy, len, pieces, err);
    kiln_free(copy);
    return status;
}
