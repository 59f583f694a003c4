// chat_format: the table of chat formats, and how a template's text tells which one it is.
//
// Templates of one family differ in blanks, quotes and ways to name a field. They are brought into
// a plain form first, in which the expression that writes a turn reads the same in all of them; the
// format is the row whose signature is found there. A template that only resembles a format is
// none: what it would write is not known.
#include "model/chat_impl.h"

#include <string.h>

// Marks of the deepseek family; cut where an escape would swallow the letter after it.
#define DS_USER "<\xef\xbd\x9cUser\xef\xbd\x9c>"
#define DS_ASSISTANT \
    "<\xef\xbd\x9c" \
    "Assistant\xef\xbd\x9c>"
#define DS_BEGIN \
    "<\xef\xbd\x9c" \
    "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"
#define DS_END \
    "<\xef\xbd\x9c" \
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"

static const struct kiln_chat_format formats[] = {
        {
                .name = "chatml",
                .signature = {"<|im_start|>'+message.role+'\n'+content+'<|im_end|>\n'",
                        "'<|im_start|>assistant\n"},
                // a thought begun or left empty on a condition; system turns put together
                .refused = {"{{-'<think>\n'}}", "'<think></think>'", "##Metadata",
                        "functioncallingAImodel"},
                .markers = {"<|im_start|>", "<|im_end|>"},
                .system = {"<|im_start|>system\n", "<|im_end|>\n"},
                .user = {"<|im_start|>user\n", "<|im_end|>\n"},
                .assistant = {"<|im_start|>assistant\n", "<|im_end|>\n"},
        },
        {
                .name = "llama3",
                .signature =
                        {"'<|start_header_id|>'+message.role+'<|end_header_id|>\n\n'+content|trim+"
                         "'<|eot_id|>'",
                                "'<|start_header_id|>assistant<|end_header_id|>\n\n'"},
                .markers = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
                .bos = "<|begin_of_text|>",
                .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
                .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
                .assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
                .trims = 1,
        },
        {
                .name = "gemma",
                .signature = {"'<start_of_turn>'+role+'\n'+", "'<start_of_turn>model\n'"},
                .markers = {"<start_of_turn>", "<end_of_turn>"},
                .bos = "<bos>",
                .system = {"", "\n\n"},
                .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
                .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"},
                .trims = 1,
                .system_in_user = 1,
        },
        {
                .name = "deepseek-r1",
                .signature = {"'" DS_USER "'+content}}", "'" DS_ASSISTANT "'+content+'" DS_END "'"},
                .markers = {DS_USER, DS_ASSISTANT, DS_END},
                .bos = DS_BEGIN,
                .system = {"", ""},
                .user = {DS_USER, ""},
                .assistant = {DS_ASSISTANT, DS_END},
        },
        {
                .name = "deepseek-r1 with closed user turns",
                .signature = {"'" DS_USER "'+content+'" DS_END "'",
                        "'" DS_ASSISTANT "'+content+'" DS_END "'"},
                .markers = {DS_USER, DS_ASSISTANT, DS_END},
                .bos = DS_BEGIN,
                .system = {"", ""},
                .user = {DS_USER, DS_END},
                .assistant = {DS_ASSISTANT, DS_END},
        },
};
enum {
    N_FORMATS = sizeof(formats) / sizeof(formats[0])
};

// ---- the plain form

static void replace_all(struct kiln_buf *text, const char *from, const char *to) {
    if (text->len == 0) {
        return;
    }
    struct kiln_buf out = {.failed = text->failed};
    size_t len = strlen(from), start = 0;
    for (size_t at = 0; at < text->len;) {
        if (text->len - at >= len && memcmp(text->data + at, from, len) == 0) {
            kiln_buf_append(&out, text->data + start, at - start);
            kiln_buf_puts(&out, to);
            at += len;
            start = at;
        } else {
            at++;
        }
    }
    kiln_buf_append(&out, text->data + start, text->len - start);
    kiln_buf_finish(text);
    *text = out;
}

// Blanks go, one kind of quote, fields by a dot, neighbouring strings joined, one name for the
// content.
static void make_plain(struct kiln_buf *text) {
    static const char *const steps[][2] = {
            {" ", ""},
            {"\t", ""},
            {"\"", "'"},
            {"['", "."},
            {"']", ""},
            {"'+'", ""},
            {"message.content", "content"},
    };
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && !text->failed; i++) {
        replace_all(text, steps[i][0], steps[i][1]);
    }
}

static int has(const struct kiln_buf *text, const char *part) {
    return text->data && strstr(text->data, part) != NULL;
}

static int matches(const struct kiln_chat_format *format, const struct kiln_buf *plain) {
    for (int i = 0; i < KILN_CHAT_REFUSED; i++) {
        if (format->refused[i] && has(plain, format->refused[i])) {
            return 0;
        }
    }
    return has(plain, format->signature[0]) && has(plain, format->signature[1]);
}

static const struct kiln_chat_format *find_format(const struct kiln_buf *plain) {
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (matches(&formats[i], plain)) {
            return &formats[i];
        }
    }
    return NULL;
}

// ---- what else the text says

// Appends the rest of a string, from `at` up to `end`; 0, and nothing, when something else ends it
// first: `quote`, the character in front of the string, or, when that is no quote, the next
// expression.
static int take_literal(const char *at, char quote, const char *end, struct kiln_buf *out) {
    int quoted = quote == '\'' || quote == '"';
    size_t len = strlen(end), before = out->len;
    for (; strncmp(at, end, len) != 0; at++) {
        if (!*at || (quoted ? *at == quote : *at == '{')) {
            out->len = before;
            return 0;
        }
        at += quoted && at[0] == '\\' && at[1];
        kiln_buf_append(out, at, 1);
    }
    return 1;
}

// A system turn that is written out in the template is the one it has of its own.
static void find_fallback(struct kiln_chat_style *style, const struct kiln_buf *text) {
    const struct kiln_chat_turn *turn = &style->format->system;
    size_t len = strlen(turn->before);
    const char *at = len ? strstr(text->data, turn->before) : NULL;
    while (at && !style->always_system) {
        char quote = at > text->data ? at[-1] : '\0';
        style->always_system = take_literal(at + len, quote, "<|", &style->fallback);
        at = strstr(at + len, turn->before);
    }
}

// llama 3.1 and later tell the model dates in each system turn. Where a template would ask the
// clock it also has a date for when there is none: that one, so that a prompt is the same every
// day. 0: there are dates, but not written as expected.
static int find_preamble(struct kiln_chat_style *style, const struct kiln_buf *text) {
    static const char known[] = "\"Cutting Knowledge Date: ", today[] = "\"Today Date: \"";
    static const char set[] = "date_string = \"";
    const char *at = strstr(text->data, "Cutting Knowledge Date");
    if (!at) {
        return 1;
    }
    at = strstr(text->data, known);
    const char *date = strstr(text->data, set);
    struct kiln_buf *out = &style->preamble;
    if (!at || !date || !has(text, today) || !take_literal(at + 1, '"', "\n", out)) {
        return 0;
    }
    kiln_buf_puts(out, "\nToday Date: ");
    if (!take_literal(date + strlen(set), '\0', "\"", out)) {
        return 0;
    }
    kiln_buf_puts(out, "\n\n");
    style->always_system = 1;
    return 1;
}

// 0: the text says more than kiln understands.
static int read_style(
        struct kiln_chat_style *style, const struct kiln_buf *text, const struct kiln_buf *plain) {
    const struct kiln_chat_format *format = style->format;
    style->bos = has(plain, "bos_token") || (format->bos && has(plain, format->bos));
    find_fallback(style, text);
    struct kiln_buf thought = {0};
    kiln_buf_puts(&thought, format->assistant.before);
    kiln_buf_puts(&thought, "<think>\n");
    style->thinks = !thought.failed && has(plain, thought.data);
    style->fallback.failed |= thought.failed;
    kiln_buf_finish(&thought);
    style->drops_thought = has(plain, "content.split('</think>')[-1]");
    style->drops_newlines = has(plain, "content.split('</think>')[-1].lstrip('\n')");
    return find_preamble(style, text);
}

static enum kiln_status not_known(
        const struct kiln_gguf *gguf, const char *what, struct kiln_err *err) {
    struct kiln_buf known = {0};
    for (size_t i = 0; i < N_FORMATS; i++) {
        kiln_buf_printf(&known, "%s%s", i ? ", " : "", formats[i].name);
    }
    kiln_err_set(err, KILN_STATUS_FILE,
            "%s: key 'tokenizer.chat_template' %s; kiln knows the formats %s; without --chat the "
            "model "
            "continues plain text",
            kiln_gguf_path(gguf), what, known.data ? known.data : "");
    kiln_buf_finish(&known);
    return KILN_STATUS_FILE;
}

static enum kiln_status recognise(struct kiln_chat_style *style, const struct kiln_gguf *gguf,
        struct kiln_buf *text, struct kiln_buf *plain, struct kiln_err *err) {
    replace_all(text, "\\n", "\n"); // a newline in a string is written in either way
    kiln_buf_append(plain, text->data, text->len);
    make_plain(plain);
    if (text->failed || plain->failed) {
        return kiln_err_nomem(err, "the chat template");
    }
    style->format = find_format(plain);
    if (!style->format || !read_style(style, text, plain)) {
        return not_known(gguf, "is of no format that kiln knows", err);
    }
    return style->preamble.failed || style->fallback.failed
                   ? kiln_err_nomem(err, "the chat template")
                   : KILN_STATUS_OK;
}

enum kiln_status kiln_chat_recognise(
        struct kiln_chat_style *style, const struct kiln_gguf *gguf, struct kiln_err *err) {
    struct kiln_str found = {0};
    KILN_TRY(kiln_gguf_get_str(gguf, "tokenizer.chat_template", KILN_GGUF_OPTIONAL, &found, err));
    if (!found.data) {
        return not_known(gguf, "is missing: the model has no chat template", err);
    }
    struct kiln_buf text = {0}, plain = {0};
    kiln_buf_append(&text, found.data, found.len);
    enum kiln_status status = recognise(style, gguf, &text, &plain, err);
    kiln_buf_finish(&text);
    kiln_buf_finish(&plain);
    return status;
}

void kiln_chat_style_finish(struct kiln_chat_style *style) {
    kiln_buf_finish(&style->preamble);
    kiln_buf_finish(&style->fallback);
}
