// ptx_lex: tokens of PTX text, integer expressions, and messages that name their place.
#include "device/sim/ptx_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEPTH = 64 // of parentheses
};

// ---- Messages -----------------------------------------------------------------------------------

// A statement as people read it: one line, blanks run together, cut.
static void one_line(char *to, size_t size, const char *from, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < size; i++) {
        unsigned char c = (unsigned char)from[i];
        if (c == '/' && i + 1 < len && from[i + 1] == '/') {
            break;
        }
        if (c <= ' ' || c >= 127) {
            if (n > 0 && to[n - 1] != ' ') {
                to[n++] = ' ';
            }
        } else {
            to[n++] = (char)c;
        }
    }
    while (n > 0 && to[n - 1] == ' ') {
        n--;
    }
    to[n] = '\0';
}

static void cuda_place(const struct ptx_parser *p, uint32_t loc, char *to, size_t size) {
    to[0] = '\0';
    if (loc == KILN_PTX_NONE) {
        return;
    }
    const struct ptx_loc *at = &p->locs[loc];
    const char *file = at->file < p->module->n_files ? p->module->files[at->file] : NULL;
    if (file) {
        snprintf(to, size, " (%s:%u)", file, at->line);
    } else {
        snprintf(to, size, " (file %u:%u)", at->file, at->line);
    }
}

static enum kiln_status KILN_PRINTF(5, 0) fail_at(struct ptx_parser *p, uint32_t line,
        struct ptx_name text, uint32_t loc, const char *fmt, va_list args) {
    char what[400], shown[161], place[300];
    vsnprintf(what, sizeof(what), fmt, args);
    one_line(shown, sizeof(shown), text.text, text.len);
    cuda_place(p, loc, place, sizeof(place));
    return kiln_err_set(
            p->err, KILN_STATUS_FILE, "%s:%u%s: '%s': %s", p->name, line, place, shown, what);
}

enum kiln_status(ptx_fail)(struct ptx_parser *p, const char *fmt, ...) {
    va_list args;
    const char *start = p->stmt_start ? p->stmt_start : p->token_start;
    const char *end = p->at;
    while (end < p->end && *end != '\n' && *end != ';') {
        end++;
    }
    struct ptx_name text = {start, (uint32_t)(end - start)};
    va_start(args, fmt);
    enum kiln_status status = fail_at(p, p->stmt_start ? p->stmt_line : p->line, text,
            p->func ? p->loc : KILN_PTX_NONE, fmt, args);
    va_end(args);
    return status;
}

enum kiln_status(ptx_fail_stmt)(
        struct ptx_parser *p, const struct ptx_stmt *stmt, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    enum kiln_status status = fail_at(p, stmt->line, stmt->text, stmt->where, fmt, args);
    va_end(args);
    return status;
}

enum kiln_status(ptx_nomem)(struct ptx_parser *p) {
    return kiln_err_nomem(p->err, "a PTX module");
}

// ---- Tokens -------------------------------------------------------------------------------------

static int is_digit(char c) {
    return c >= '0' && c <= '9';
}

static int is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '$';
}

// Skips blanks and comments; -1: a comment has no end.
static int skip_blanks(struct ptx_parser *p) {
    while (p->at < p->end) {
        char c = *p->at;
        if (c == '\n') {
            p->line++;
            p->at++;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
            p->at++;
        } else if (c == '/' && p->end - p->at > 1 && p->at[1] == '/') {
            while (p->at < p->end && *p->at != '\n') {
                p->at++;
            }
        } else if (c == '/' && p->end - p->at > 1 && p->at[1] == '*') {
            p->at += 2;
            while (p->end - p->at > 1 && !(p->at[0] == '*' && p->at[1] == '/')) {
                p->line += *p->at == '\n';
                p->at++;
            }
            if (p->end - p->at < 2) {
                return -1;
            }
            p->at += 2;
        } else {
            break;
        }
    }
    return 0;
}

static int digit_value(char c) {
    if (is_digit(c)) {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return 99;
}

// Digits of a base from p->at on; fails when there are none or more than 64 bits.
static enum kiln_status digits(struct ptx_parser *p, unsigned base, uint64_t *value) {
    const char *start = p->at;
    *value = 0;
    while (p->at < p->end && digit_value(*p->at) < (int)base) {
        uint64_t digit = (uint64_t)digit_value(*p->at);
        if (*value > (UINT64_MAX - digit) / base) {
            return ptx_fail(p, "the number does not fit 64 bits");
        }
        *value = *value * base + digit;
        p->at++;
    }
    return p->at == start ? ptx_fail(p, "a number without digits") : KILN_STATUS_OK;
}

// 0f3F800000 and 0d3FF0000000000000.
static enum kiln_status bits_literal(struct ptx_parser *p, struct ptx_token *token, int count) {
    const char *start = p->at += 2;
    token->value = 0;
    while (p->at < p->end && digit_value(*p->at) < 16 && p->at - start < count) {
        token->value = token->value << 4 | (uint64_t)digit_value(*p->at++);
    }
    token->kind = count == 8 ? PTX_REAL4 : PTX_REAL;
    return p->at - start == count ? KILN_STATUS_OK
                                  : ptx_fail(p, "%d hexadecimal digits are wanted", count);
}

// Whether a decimal number with a point or an exponent begins at p->at; its length.
static size_t real_length(const struct ptx_parser *p) {
    const char *at = p->at;
    int real = 0;
    while (at < p->end && is_digit(*at)) {
        at++;
    }
    if (at < p->end && *at == '.' && !(p->end - at > 1 && is_word(at[1]) && !is_digit(at[1]))) {
        real = 1;
        at++;
        while (at < p->end && is_digit(*at)) {
            at++;
        }
    }
    if (at < p->end && (*at == 'e' || *at == 'E')) {
        const char *exponent = at + 1;
        exponent += exponent < p->end && (*exponent == '+' || *exponent == '-');
        if (exponent < p->end && is_digit(*exponent)) {
            real = 1;
            at = exponent;
            while (at < p->end && is_digit(*at)) {
                at++;
            }
        }
    }
    return real ? (size_t)(at - p->at) : 0;
}

static enum kiln_status real_literal(struct ptx_parser *p, struct ptx_token *token, size_t len) {
    char text[64];
    if (len >= sizeof(text)) {
        return ptx_fail(p, "the number is longer than %zu characters", sizeof(text) - 1);
    }
    memcpy(text, p->at, len);
    text[len] = '\0';
    double value = strtod(text, NULL);
    memcpy(&token->value, &value, sizeof(value));
    token->kind = PTX_REAL;
    p->at += len;
    return KILN_STATUS_OK;
}

static enum kiln_status number(struct ptx_parser *p, struct ptx_token *token) {
    char second = p->end - p->at > 1 && *p->at == '0' ? p->at[1] : '\0';
    unsigned base = 10;
    if (second == 'f' || second == 'F') {
        return bits_literal(p, token, 8);
    }
    if (second == 'd' || second == 'D') {
        return bits_literal(p, token, 16);
    }
    size_t len = real_length(p);
    if (len > 0) {
        return real_literal(p, token, len);
    }
    token->kind = PTX_INT;
    if (second == 'x' || second == 'X') {
        base = 16;
        p->at += 2;
    } else if (second == 'b' || second == 'B') {
        base = 2;
        p->at += 2;
    } else if (is_digit(second)) {
        base = 8;
    }
    KILN_TRY(digits(p, base, &token->value));
    p->at += p->at < p->end && *p->at == 'U';
    return p->at < p->end && is_word(*p->at) ? ptx_fail(p, "a number with '%c' in it", *p->at)
                                             : KILN_STATUS_OK;
}

static enum kiln_status string(struct ptx_parser *p, struct ptx_token *token) {
    token->kind = PTX_STRING;
    token->name.text = ++p->at;
    while (p->at < p->end && *p->at != '"' && *p->at != '\n') {
        p->at += *p->at == '\\' && p->end - p->at > 1 && p->at[1] != '\n' ? 2 : 1;
    }
    if (p->at >= p->end || *p->at != '"') {
        return ptx_fail(p, "a string without its second '\"'");
    }
    token->name.len = (uint32_t)(p->at++ - token->name.text);
    return KILN_STATUS_OK;
}

static void word(struct ptx_parser *p, struct ptx_token *token, int dot) {
    token->kind = dot ? PTX_DOT : PTX_WORD;
    p->at += dot;
    token->name.text = p->at;
    p->at += !dot && *p->at == '%';
    while (p->at < p->end) {
        if (is_word(*p->at)) {
            p->at++;
        } else if (dot && p->end - p->at > 2 && p->at[0] == ':' && p->at[1] == ':' &&
                   is_word(p->at[2])) {
            p->at += 2;
        } else {
            break;
        }
    }
    token->name.len = (uint32_t)(p->at - token->name.text);
}

enum kiln_status ptx_next(struct ptx_parser *p) {
    struct ptx_token *token = &p->token;
    p->last_end = p->at;
    if (skip_blanks(p) != 0) {
        return ptx_fail(p, "a comment without its end");
    }
    *token = (struct ptx_token){.line = p->line};
    p->token_start = p->at;
    if (p->at == p->end) {
        token->kind = PTX_END;
        return KILN_STATUS_OK;
    }
    char c = *p->at, after = p->end - p->at > 1 ? p->at[1] : '\0';
    if (is_digit(c)) {
        return number(p, token);
    }
    if (is_word(c) || (c == '%' && is_word(after))) {
        word(p, token, 0);
    } else if (c == '.' && is_word(after)) {
        word(p, token, 1);
    } else if (c == '"') {
        return string(p, token);
    } else if (c > ' ' && c < 127) {
        token->kind = PTX_PUNCT;
        token->punct = c;
        p->at++;
    } else {
        return ptx_fail(p, "a byte 0x%02x that PTX does not have", (unsigned)(unsigned char)c);
    }
    return KILN_STATUS_OK;
}

int ptx_is(const struct ptx_parser *p, char punct) {
    return p->token.kind == PTX_PUNCT && p->token.punct == punct;
}

int ptx_same(struct ptx_name name, const char *text) {
    return strlen(text) == name.len && memcmp(name.text, text, name.len) == 0;
}

int ptx_is_dot(const struct ptx_parser *p, const char *name) {
    return p->token.kind == PTX_DOT && ptx_same(p->token.name, name);
}

enum kiln_status ptx_expect(struct ptx_parser *p, char punct) {
    if (!ptx_is(p, punct)) {
        if (p->token.kind == PTX_END) {
            return ptx_fail(p, "'%c' is wanted, and the text ends here", punct);
        }
        return ptx_fail(p, "'%c' is wanted in place of '%.*s'", punct,
                (int)(p->at - p->token_start < 40 ? p->at - p->token_start : 40), p->token_start);
    }
    return ptx_next(p);
}

enum kiln_status ptx_accept(struct ptx_parser *p, char punct, int *taken) {
    *taken = ptx_is(p, punct);
    return *taken ? ptx_next(p) : KILN_STATUS_OK;
}

// ---- Expressions --------------------------------------------------------------------------------

static enum kiln_status binary(struct ptx_parser *p, int level, int64_t *value);

static enum kiln_status unary(struct ptx_parser *p, int64_t *value) {
    if (p->depth >= MAX_DEPTH) {
        return ptx_fail(p, "an expression deeper than %d", (int)MAX_DEPTH);
    }
    if (p->token.kind == PTX_INT) {
        *value = (int64_t)p->token.value;
        return ptx_next(p);
    }
    char op = p->token.kind == PTX_PUNCT ? p->token.punct : '\0';
    if (op != '-' && op != '+' && op != '~' && op != '!' && op != '(') {
        return ptx_fail(p, "an integer is wanted");
    }
    p->depth++;
    KILN_TRY(ptx_next(p));
    if (op == '(') {
        KILN_TRY(binary(p, 0, value));
        KILN_TRY(ptx_expect(p, ')'));
    } else {
        KILN_TRY(unary(p, value));
        *value = op == '-'   ? (int64_t)(0 - (uint64_t)*value)
                 : op == '~' ? ~*value
                 : op == '!' ? !*value
                             : *value;
    }
    p->depth--;
    return KILN_STATUS_OK;
}

// The level of a binary operator, loosest first; -1: it is none. << and >> are two tokens.
static int level_of(const struct ptx_parser *p) {
    static const char ops[] = "|^&<+*";
    char op = p->token.kind == PTX_PUNCT ? p->token.punct : '\0';
    op = op == '>' ? '<' : op == '-' ? '+' : op == '/' || op == '%' ? '*' : op;
    const char *found = op ? strchr(ops, op) : NULL;
    return found ? (int)(found - ops) : -1;
}

static enum kiln_status apply(struct ptx_parser *p, char op, int64_t right, int64_t *value) {
    uint64_t a = (uint64_t)*value, b = (uint64_t)right;
    if ((op == '/' || op == '%') && (right == 0 || (right == -1 && *value == INT64_MIN))) {
        return ptx_fail(p, "a division that has no result");
    }
    switch (op) {
    case '|':
        a |= b;
        break;
    case '^':
        a ^= b;
        break;
    case '&':
        a &= b;
        break;
    case '<':
        a = b < 64 ? a << b : 0;
        break;
    case '>':
        a = b < 64 ? a >> b : 0;
        break;
    case '+':
        a += b;
        break;
    case '-':
        a -= b;
        break;
    case '*':
        a *= b;
        break;
    case '/':
        a = (uint64_t)(*value / right);
        break;
    case '%':
        a = (uint64_t)(*value % right);
        break;
    default:
        break;
    }
    *value = (int64_t)a;
    return KILN_STATUS_OK;
}

static enum kiln_status binary(struct ptx_parser *p, int level, int64_t *value) {
    KILN_TRY(unary(p, value));
    for (int found = level_of(p); found >= level; found = level_of(p)) {
        char op = p->token.punct;
        int64_t right;
        KILN_TRY(ptx_next(p));
        if (op == '<' || op == '>') {
            KILN_TRY(ptx_expect(p, op));
        }
        if (p->depth >= MAX_DEPTH) {
            return ptx_fail(p, "an expression deeper than %d", (int)MAX_DEPTH);
        }
        p->depth++;
        KILN_TRY(binary(p, found + 1, &right));
        p->depth--;
        KILN_TRY(apply(p, op, right, value));
    }
    return KILN_STATUS_OK;
}

enum kiln_status ptx_expression(struct ptx_parser *p, int64_t *value) {
    return binary(p, 0, value);
}

enum kiln_status ptx_uint(struct ptx_parser *p, uint64_t max, uint64_t *value) {
    int64_t number_read;
    KILN_TRY(ptx_expression(p, &number_read));
    if (number_read < 0 || (uint64_t)number_read > max) {
        return ptx_fail(
                p, "%lld is not in 0 … %llu", (long long)number_read, (unsigned long long)max);
    }
    *value = (uint64_t)number_read;
    return KILN_STATUS_OK;
}
