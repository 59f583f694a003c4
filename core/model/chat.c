// chat: turns to ids.
//
// How a template is recognised is not here: chat_format.c.
#include "model/chat.h"

#include "base/mem.h"
#include "model/chat_impl.h"

#include <string.h>

// Not tokens of a format, but templates write them. A vocabulary need not have them.
static const char *const thought_marks[] = {"<think>", "</think>"};
enum {
    N_THOUGHT_MARKS = sizeof(thought_marks) / sizeof(thought_marks[0]),
    N_MARKERS = KILN_CHAT_MARKERS + N_THOUGHT_MARKS
};

struct marker {
    const char *text; // NULL: none in this place
    size_t len;
    int32_t id;  // -1: the vocabulary has none, and it is text
    int guarded; // raw text would turn into it: a person's text must not
};

struct kiln_chat {
    const struct kiln_tokenizer *tokenizer;
    struct kiln_chat_style style;
    struct marker markers[N_MARKERS];
    int32_t bos;          // -1: the conversation does not open with it
    int opened;           // there is a turn
    struct kiln_buf held; // the system's text until the first user turn
};

// ---- opening

// The format's tokens are needed, the marks of a thought are not.
static enum kiln_status find_markers(
        struct kiln_chat *chat, const struct kiln_gguf *gguf, struct kiln_err *err) {
    for (size_t i = 0; i < N_MARKERS; i++) {
        struct marker *marker = &chat->markers[i];
        int needed = i < KILN_CHAT_MARKERS;
        marker->text =
                needed ? chat->style.format->markers[i] : thought_marks[i - KILN_CHAT_MARKERS];
        if (!marker->text) {
            continue;
        }
        marker->len = strlen(marker->text);
        marker->id = kiln_tokenizer_find(chat->tokenizer, marker->text);
        if (needed && marker->id < 0) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "%s: key 'tokenizer.ggml.tokens' has no token '%s', which the format %s of key "
                    "'tokenizer.chat_template' is made of",
                    kiln_gguf_path(gguf), marker->text, chat->style.format->name);
        }
        marker->guarded = needed && !kiln_tokenizer_is_control(chat->tokenizer, marker->id);
    }
    return KILN_STATUS_OK;
}

static void find_bos(struct kiln_chat *chat) {
    const char *spelled = chat->style.format->bos;
    chat->bos = -1;
    if (chat->style.bos || kiln_tokenizer_adds_bos(chat->tokenizer)) {
        chat->bos = kiln_tokenizer_bos(chat->tokenizer);
        if (chat->bos < 0 && spelled) {
            chat->bos = kiln_tokenizer_find(chat->tokenizer, spelled);
        }
    }
}

enum kiln_status kiln_chat_open(struct kiln_chat **chat, const struct kiln_gguf *gguf,
        const struct kiln_tokenizer *tokenizer, struct kiln_err *err) {
    *chat = NULL;
    if (!tokenizer) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: key 'tokenizer.ggml.model': the model has no tokenizer, so it cannot chat",
                kiln_gguf_path(gguf));
    }
    struct kiln_chat *made = kiln_calloc(1, sizeof(*made));
    if (!made) {
        return kiln_err_nomem(err, "the chat");
    }
    made->tokenizer = tokenizer;
    enum kiln_status status = kiln_chat_recognise(&made->style, gguf, err);
    if (status == KILN_STATUS_OK) {
        status = find_markers(made, gguf, err);
    }
    if (status != KILN_STATUS_OK) {
        kiln_chat_close(made);
        return status;
    }
    find_bos(made);
    *chat = made;
    return KILN_STATUS_OK;
}

void kiln_chat_close(struct kiln_chat *chat) {
    if (chat) {
        kiln_chat_style_finish(&chat->style);
        kiln_buf_finish(&chat->held);
        kiln_free(chat);
    }
}

const char *kiln_chat_format(const struct kiln_chat *chat) {
    return chat->style.format->name;
}

void kiln_chat_reset(struct kiln_chat *chat) {
    chat->opened = 0;
    kiln_buf_finish(&chat->held);
}

// ---- writing ids

// Text gathers in `raw` and is tokenized when a control token ends it.
struct writer {
    const struct kiln_chat *chat;
    struct kiln_ids *ids;
    struct kiln_buf raw;
    struct kiln_err *err;
    enum kiln_status status; // the first failure sticks
};

static void flush(struct writer *w) {
    if (w->status == KILN_STATUS_OK && w->raw.failed) {
        w->status = kiln_err_nomem(w->err, "a turn of the chat");
    }
    if (w->status == KILN_STATUS_OK && w->raw.len > 0) {
        w->status = kiln_tokenizer_encode(
                w->chat->tokenizer, w->raw.data, w->raw.len, 0, w->ids, w->err);
    }
    kiln_buf_clear(&w->raw);
}

static void put_id(struct writer *w, int32_t id) {
    flush(w);
    if (w->status == KILN_STATUS_OK) {
        w->status = kiln_ids_push(w->ids, id, w->err);
    }
}

static const struct marker *marker_at(const struct kiln_chat *chat, const char *text, size_t len) {
    for (size_t i = 0; i < N_MARKERS; i++) {
        const struct marker *marker = &chat->markers[i];
        if (marker->text && marker->id >= 0 && marker->len <= len &&
                memcmp(marker->text, text, marker->len) == 0) {
            return marker;
        }
    }
    return NULL;
}

// The format's own text: control tokens are what they look like.
static void put_format(struct writer *w, const char *text) {
    size_t len = strlen(text);
    for (size_t at = 0; at < len;) {
        const struct marker *marker = marker_at(w->chat, text + at, len - at);
        if (marker) {
            put_id(w, marker->id);
            at += marker->len;
        } else {
            kiln_buf_append(&w->raw, text + at++, 1);
        }
    }
}

// What somebody said: never a control token. A file may list the format's tokens as ordinary ones
// that are matched as they are spelled; such a spelling is cut in two, which matches nothing.
static void put_text(struct writer *w, const char *text, size_t len) {
    size_t start = 0;
    for (size_t at = 0; at < len; at++) {
        const struct marker *marker =
                text[at] == '<' ? marker_at(w->chat, text + at, len - at) : NULL;
        if (marker && marker->guarded) {
            kiln_buf_append(&w->raw, text + start, at + 1 - start);
            flush(w);
            start = at + 1;
        }
    }
    kiln_buf_append(&w->raw, text + start, len - start);
}

// ---- what templates do to a turn's text

// Bytes of the blank at text[0..len), 0 when it is none. Blanks are those of Unicode and the four
// separators of ASCII.
static size_t blank_at(const char *text, size_t len) {
    static const char *const wide[] = {"\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80", "\xe2\x80\xa8",
            "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
    unsigned char first = len ? (unsigned char)text[0] : 0;
    if ((first >= 0x09 && first <= 0x0d) || (first >= 0x1c && first <= 0x20)) {
        return 1;
    }
    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++) {
        size_t n = strlen(wide[i]);
        if (len >= n && memcmp(text, wide[i], n) == 0) {
            return n;
        }
    }
    int spaces = len >= 3 && memcmp(text, "\xe2\x80", 2) == 0; // U+2000 to U+200A
    return spaces && (unsigned char)text[2] >= 0x80 && (unsigned char)text[2] <= 0x8a ? 3 : 0;
}

static struct kiln_str trim(struct kiln_str text) {
    for (size_t n; (n = blank_at(text.data, text.len)) > 0;) {
        text.data += n;
        text.len -= n;
    }
    for (size_t n = 1; n <= 3 && n <= text.len;) { // a blank of n bytes at the end
        int found = blank_at(text.data + text.len - n, n) == n;
        text.len -= found ? n : 0;
        n = found ? 1 : n + 1;
    }
    return text;
}

static struct kiln_str drop_thought(const struct kiln_chat_style *style, struct kiln_str text) {
    static const char mark[] = "</think>";
    size_t len = sizeof(mark) - 1, after = 0;
    for (size_t at = 0; style->drops_thought && at + len <= text.len; at++) {
        after = memcmp(text.data + at, mark, len) == 0 ? at + len : after;
    }
    text.data += after;
    text.len -= after;
    while (after && style->drops_newlines && text.len && text.data[0] == '\n') {
        text.data++;
        text.len--;
    }
    return text;
}

// ---- turns

static void put_turn(struct writer *w, const struct kiln_chat_turn *turn,
        const struct kiln_buf *preamble, struct kiln_str text) {
    put_format(w, turn->before);
    if (preamble && preamble->len) {
        put_text(w, preamble->data, preamble->len);
    }
    put_text(w, text.data, text.len);
    put_format(w, turn->after);
}

// Begin-of-text, and the system turn that is there even when none was asked for.
static void put_opening(struct writer *w, enum kiln_chat_role role) {
    const struct kiln_chat *chat = w->chat;
    const struct kiln_chat_style *style = &chat->style;
    if (chat->bos >= 0) {
        put_id(w, chat->bos);
    }
    if (role != KILN_CHAT_SYSTEM && style->always_system) {
        const char *data = style->fallback.len ? style->fallback.data : "";
        struct kiln_str text = {.data = data, .len = style->fallback.len};
        put_turn(w, &style->format->system, &style->preamble, text);
    }
}

static void put_user(struct writer *w, struct kiln_str text) {
    const struct kiln_chat_format *format = w->chat->style.format;
    const struct kiln_buf *held = &w->chat->held;
    put_format(w, format->user.before);
    if (held->data) {
        put_text(w, held->data, held->len);
        put_format(w, format->system.after);
    }
    put_text(w, text.data, text.len);
    put_format(w, format->user.after);
}

static void put_role(struct writer *w, enum kiln_chat_role role, struct kiln_str text) {
    const struct kiln_chat_style *style = &w->chat->style;
    if (role == KILN_CHAT_ASSISTANT) {
        text = drop_thought(style, text);
    }
    if (style->format->trims && !(role == KILN_CHAT_SYSTEM && style->format->system_in_user)) {
        text = trim(text);
    }
    if (!w->chat->opened) {
        put_opening(w, role);
    }
    if (role == KILN_CHAT_USER) {
        put_user(w, text);
    } else if (role == KILN_CHAT_ASSISTANT) {
        put_turn(w, &style->format->assistant, NULL, text);
    } else if (!style->format->system_in_user) {
        put_turn(w, &style->format->system, &style->preamble, text);
    }
}

static enum kiln_status finish(struct writer *w, size_t before) {
    flush(w);
    kiln_buf_finish(&w->raw);
    if (w->status != KILN_STATUS_OK) {
        w->ids->len = before;
    }
    return w->status;
}

enum kiln_status kiln_chat_append(struct kiln_chat *chat, enum kiln_chat_role role,
        const char *text, size_t len, struct kiln_ids *ids, struct kiln_err *err) {
    if (role == KILN_CHAT_SYSTEM && chat->opened) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "the system's text comes first, once; this conversation has begun");
    }
    struct kiln_buf held = {0};
    if (role == KILN_CHAT_SYSTEM && chat->style.format->system_in_user) {
        kiln_buf_append(&held, text, len);
    }
    size_t before = ids->len;
    struct writer w = {.chat = chat, .ids = ids, .err = err};
    put_role(&w, role, (struct kiln_str){.data = len ? text : "", .len = len});
    if (held.failed && w.status == KILN_STATUS_OK) {
        w.status = kiln_err_nomem(err, "the system's text");
    }
    enum kiln_status status = finish(&w, before);
    if (status != KILN_STATUS_OK) {
        kiln_buf_finish(&held);
        return status;
    }
    chat->opened = 1;
    if (role != KILN_CHAT_ASSISTANT) { // taken over, or used up
        kiln_buf_finish(&chat->held);
        chat->held = held;
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_chat_begin_answer(
        const struct kiln_chat *chat, struct kiln_ids *ids, struct kiln_err *err) {
    struct writer w = {.chat = chat, .ids = ids, .err = err};
    size_t before = ids->len;
    put_format(&w, chat->style.format->assistant.before);
    if (chat->style.thinks) {
        put_format(&w, "<think>\n");
    }
    return finish(&w, before);
}
