// ini_lines: the reader, and the check of what inih makes of its lines.
//
// inih asks for lines through `give_line` and delivers pairs to `take_pair`, one after the other. A
// pair that is longer than inih's line buffer (200 bytes unless it was built otherwise) goes over
// in pieces, the later ones as continuation lines, which inih delivers as further values of the
// same key.
#include "config/ini_lines.h"

#include "base/utf8.h"

#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct reader {
    const char *name;
    const char *text;
    size_t len, pos;
    unsigned line; // of what was read last, from 1
    // The line at hand as inih gets it, "key=value" or "[section]", and how much of it is over
    // there.
    char content[KILN_INI_LINE_MAX + 1];
    size_t content_len, given;
    size_t piece; // where the piece given last starts in content
    int waiting;  // a piece of a pair was given and has not come back
    char section[KILN_INI_NAME_MAX + 1];
    char key[KILN_INI_NAME_MAX + 1];
    kiln_ini_fn fn;
    void *arg;
    enum kiln_status status;
    struct kiln_err *err;
};

static int is_blank(char c) {
    return c == ' ' || c == '\t';
}

static int is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The start of what was read, fit for a message.
static const char *quote(char out[48], const char *text, size_t len) {
    size_t n = len < 40 ? len : 40;
    for (size_t i = 0; i < n; i++) {
        out[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    }
    out[n] = '\0';
    kiln_utf8_trim(out);
    if (n < len) {
        memcpy(out + strlen(out), "...", 4);
    }
    return out;
}

static KILN_PRINTF(2, 3) enum kiln_status fail(struct reader *r, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started one line above
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    r->status = kiln_err_set(r->err, KILN_STATUS_CONFIG, "%s:%u: %s", r->name, r->line, text);
    return r->status;
}

// ---- Names and values ---------------------------------------------------------------------------

static enum kiln_status check_name(
        const char *what, const char *allowed, const char *name, size_t len, struct kiln_err *err) {
    char shown[48];
    if (len == 0) {
        return kiln_err_set(err, KILN_STATUS_CONFIG, "the name of the %s is empty", what);
    }
    if (len > KILN_INI_NAME_MAX) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "%s '%s': a name of %zu bytes, at most %d are allowed", what,
                quote(shown, name, len), len, KILN_INI_NAME_MAX);
    }
    for (size_t i = 0; i < len; i++) {
        if (!is_name_char(name[i]) && (name[i] == '\0' || !strchr(allowed, name[i]))) {
            return kiln_err_set(err, KILN_STATUS_CONFIG,
                    "%s '%s': only letters, digits and %s may stand in its name", what,
                    quote(shown, name, len), *allowed ? "_ . * / -" : "_");
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_ini_check_section(const char *section, size_t len, struct kiln_err *err) {
    return check_name("section", ".*/-", section, len, err);
}

enum kiln_status kiln_ini_check_key(const char *key, size_t len, struct kiln_err *err) {
    return check_name("key", "", key, len, err);
}

enum kiln_status kiln_ini_check_value(const char *value, size_t len, struct kiln_err *err) {
    if (len == 0) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "there is no value; leave the key out to have its default");
    }
    if (len > KILN_INI_LINE_MAX) {
        return kiln_err_set(err, KILN_STATUS_CONFIG, "a value of %zu bytes, at most %d are allowed",
                len, KILN_INI_LINE_MAX);
    }
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)value[i];
        int n = kiln_utf8_len(value + i, len - i);
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return kiln_err_set(err, KILN_STATUS_CONFIG,
                    "a control character (0x%02x) in the value", (unsigned)c);
        }
        if (n <= 0) {
            return kiln_err_set(
                    err, KILN_STATUS_CONFIG, "the value is not UTF-8 (byte 0x%02x)", (unsigned)c);
        }
        if (c == ';' && (i == 0 || is_blank(value[i - 1]))) {
            return kiln_err_set(err, KILN_STATUS_CONFIG,
                    "';' in front of a value or after a blank starts a comment: it cannot stand "
                    "there");
        }
        i += (size_t)n;
    }
    return KILN_STATUS_OK;
}

// ---- Lines --------------------------------------------------------------------------------------

// The next line without its end; 0 at the end of the text. What spoils a line wherever it stands,
// even in a comment, is refused here: it would mean that the text is not divided into lines as its
// author sees it.
static int next_line(struct reader *r, const char **line, size_t *len) {
    if (r->pos >= r->len) {
        return 0;
    }
    const char *start = r->text + r->pos;
    size_t left = r->len - r->pos;
    const char *end = memchr(start, '\n', left);
    size_t n = end ? (size_t)(end - start) : left;
    r->pos += end ? n + 1 : n;
    r->line++;
    n -= n > 0 && start[n - 1] == '\r';
    *line = start;
    *len = n;
    if (r->line == 1 && n >= 3 && memcmp(start, "\xEF\xBB\xBF", 3) == 0) {
        return (void)fail(r, "the file starts with a byte order mark; save it as UTF-8 without"), 0;
    }
    if (memchr(start, '\0', n)) {
        return (void)fail(r, "a NUL byte in the line; a configuration is UTF-8 text"), 0;
    }
    if (memchr(start, '\r', n)) {
        return (void)fail(r, "a carriage return inside the line; end lines with LF or CR LF"), 0;
    }
    if (n > KILN_INI_LINE_MAX) {
        return (void)fail(r, "a line of %zu bytes, at most %d are allowed", n, KILN_INI_LINE_MAX),
               0;
    }
    return 1;
}

// Length without the comment behind it and the blanks before that.
static size_t without_comment(const char *line, size_t len) {
    for (size_t i = 1; i < len; i++) {
        if (line[i] == ';' && is_blank(line[i - 1])) {
            len = i;
        }
    }
    while (len > 0 && is_blank(line[len - 1])) {
        len--;
    }
    return len;
}

static enum kiln_status fail_from(struct reader *r, enum kiln_status status) {
    if (status != KILN_STATUS_OK) {
        kiln_err_prefix(r->err, "%s:%u: ", r->name, r->line);
        r->status = status;
    }
    return status;
}

// "[section]": the header as it is handed on.
static enum kiln_status take_header(struct reader *r, const char *line, size_t len) {
    char shown[48];
    const char *close = memchr(line, ']', len);
    if (!close) {
        return fail(r, "the section header '%s' has no ']'", quote(shown, line, len));
    }
    size_t rest = len - (size_t)(close - line) - 1;
    if (rest > 0) {
        return fail(r, "'%s' behind the section header; only a comment (blank, ';') may follow ']'",
                quote(shown, close + 1, rest));
    }
    size_t n = len - 2;
    KILN_TRY(fail_from(r, kiln_ini_check_section(line + 1, n, r->err)));
    memcpy(r->section, line + 1, n);
    r->section[n] = '\0';
    r->key[0] = '\0';
    memcpy(r->content, line, len);
    r->content[len] = '\0';
    r->content_len = len;
    r->status = r->fn(r->arg, r->section, NULL, NULL, r->line, r->err);
    return r->status;
}

static enum kiln_status no_equals(struct reader *r, const char *line, size_t len) {
    char shown[48];
    quote(shown, line, len);
    if (memchr(line, ':', len)) {
        return fail(
                r, "'%s': ':' does not separate a key from its value; write KEY = VALUE", shown);
    }
    return fail(r,
            "'%s' has no '='; a line is [section], KEY = VALUE or a comment starting with ';'",
            shown);
}

// "KEY = VALUE": handed on as "KEY=VALUE".
static enum kiln_status take_key(struct reader *r, const char *line, size_t len) {
    const char *equals = memchr(line, '=', len);
    const char *colon = memchr(line, ':', len);
    if (!equals || (colon && colon < equals)) {
        return no_equals(r, line, len);
    }
    size_t key_len = (size_t)(equals - line), at = key_len + 1;
    while (key_len > 0 && is_blank(line[key_len - 1])) {
        key_len--;
    }
    while (at < len && is_blank(line[at])) {
        at++;
    }
    KILN_TRY(fail_from(r, kiln_ini_check_key(line, key_len, r->err)));
    memcpy(r->key, line, key_len);
    r->key[key_len] = '\0';
    if (r->section[0] == '\0') {
        return fail(r,
                "%s stands before any section; put it under one, such as [engine] or "
                "[attention.prefill]",
                r->key);
    }
    enum kiln_status status = kiln_ini_check_value(line + at, len - at, r->err);
    if (status != KILN_STATUS_OK) {
        kiln_err_prefix(r->err, "[%s] %s: ", r->section, r->key);
        return fail_from(r, status);
    }
    r->content_len = key_len + 1 + len - at;
    memcpy(r->content, line, key_len);
    r->content[key_len] = '=';
    memcpy(r->content + key_len + 1, line + at, len - at);
    r->content[r->content_len] = '\0';
    return KILN_STATUS_OK;
}

// Reads on to the next line that inih is to see. 0 at the end and after an error.
static int next_content(struct reader *r) {
    const char *line = NULL;
    size_t len = 0;
    char shown[48];
    r->content_len = r->given = r->piece = 0;
    while (r->content_len == 0 && next_line(r, &line, &len)) {
        size_t first = 0;
        while (first < len && is_blank(line[first])) {
            first++;
        }
        if (first == len || line[first] == ';' || line[first] == '#') {
            continue;
        }
        len = without_comment(line, len);
        if (first > 0) {
            (void)fail(r,
                    "'%s' is indented, which would make it part of the line above; start it in "
                    "the first column",
                    quote(shown, line + first, len - first));
        } else if (line[0] == '[') {
            (void)take_header(r, line, len);
        } else {
            (void)take_key(r, line, len);
        }
        if (r->status != KILN_STATUS_OK) {
            return 0;
        }
    }
    return r->status == KILN_STATUS_OK && r->content_len > 0;
}

// ---- To inih and back ---------------------------------------------------------------------------

// How much of content fits into a piece of `room` bytes. A later piece becomes a line of its own,
// so it must not start like a comment, and inih strips blanks from both ends. 0: there is no such
// place.
static size_t piece_len(const struct reader *r, size_t room) {
    size_t left = r->content_len - r->given;
    if (left <= room) {
        return left;
    }
    if (r->key[0] == '\0') {
        return 0;
    }
    size_t least = r->given == 0 ? strlen(r->key) + 2 : 1;
    for (size_t n = room; n >= least; n--) {
        char before = r->content[r->given + n - 1], after = r->content[r->given + n];
        if (!is_blank(before) && !is_blank(after) && after != ';' && after != '#') {
            return n;
        }
    }
    return 0;
}

// inih's fgets: the next piece, or NULL at the end and after an error.
static char *give_line(char *str, int num, void *stream) {
    struct reader *r = stream;
    if (r->status != KILN_STATUS_OK) {
        return NULL;
    }
    if (r->waiting) {
        (void)fail(r, "inih passed over this line");
        return NULL;
    }
    if (r->given == r->content_len && !next_content(r)) {
        return NULL;
    }
    size_t indent = r->given > 0, overhead = indent + 2; // line feed and NUL
    size_t n = num > (int)overhead ? piece_len(r, (size_t)num - overhead) : 0;
    if (n == 0) {
        (void)fail(r, "the line does not fit into the %d bytes that inih was built for", num);
        return NULL;
    }
    str[0] = ' ';
    memcpy(str + indent, r->content + r->given, n);
    memcpy(str + indent + n, "\n", 2);
    r->piece = r->given;
    r->given += n;
    r->waiting = r->key[0] != '\0';
    return str;
}

static int take_pair_checked(
        struct reader *r, const char *section, const char *name, const char *value) {
    if (r->status != KILN_STATUS_OK) {
        return 0;
    }
    size_t value_at = strlen(r->key) + 1;
    size_t from = r->piece > value_at ? r->piece : value_at;
    size_t n = r->given - from;
    if (!r->waiting || strcmp(section, r->section) != 0 || strcmp(name, r->key) != 0 ||
            strlen(value) != n || memcmp(value, r->content + from, n) != 0) {
        (void)fail(r, "inih read something else: [%s] %s = %s", section, name, value);
        return 0;
    }
    r->waiting = 0;
    if (r->given == r->content_len) {
        r->status = r->fn(r->arg, r->section, r->key, r->content + value_at, r->line, r->err);
    }
    return r->status == KILN_STATUS_OK;
}

// inih's handler. A library built to announce sections calls it without a name.
#if INI_HANDLER_LINENO
static int take_pair(
        void *user, const char *section, const char *name, const char *value, int lineno) {
    (void)lineno;
#else
static int take_pair(void *user, const char *section, const char *name, const char *value) {
#endif
    return name && value ? take_pair_checked(user, section, name, value) : 1;
}

enum kiln_status kiln_ini_read(const char *name, const char *text, size_t len, kiln_ini_fn fn,
        void *arg, struct kiln_err *err) {
    struct reader r = {.name = name, .text = text, .len = len, .fn = fn, .arg = arg, .err = err};
    int rc = ini_parse_stream(give_line, &r, take_pair, &r);
    if (r.status != KILN_STATUS_OK) {
        return r.status;
    }
    if (rc == -2) {
        return kiln_err_nomem(err, "inih's line buffer");
    }
    if (rc != 0 || r.waiting || r.pos < r.len) {
        return fail(&r, "inih could not read the line");
    }
    return KILN_STATUS_OK;
}
