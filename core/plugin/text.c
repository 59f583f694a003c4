// text: the checks of names and lines of text that a plugin hands over.
#include "plugin/text.h"

#include "base/utf8.h"

#include <string.h>

static int is_lower(char c) {
    return c >= 'a' && c <= 'z';
}

static int is_upper(char c) {
    return c >= 'A' && c <= 'Z';
}

static int is_digit(char c) {
    return c >= '0' && c <= '9';
}

static int fits(enum kiln_name_kind kind, char c, int first) {
    switch (kind) {
    case KILN_NAME_LOWER:
        return is_lower(c) || is_digit(c) || c == '_';
    case KILN_NAME_UPPER:
        return is_upper(c) || (!first && (is_digit(c) || c == '_'));
    case KILN_NAME_IDENTIFIER:
        return is_lower(c) || is_upper(c) || c == '_' || (!first && is_digit(c));
    case KILN_NAME_WORD:
    default:
        return is_lower(c) || is_upper(c) || is_digit(c) || c == '_';
    }
}

enum kiln_status kiln_text_check_name(
        const char *name, enum kiln_name_kind kind, struct kiln_err *err) {
    static const char *const allowed[] = {
            [KILN_NAME_LOWER] = "[a-z0-9_]+",
            [KILN_NAME_UPPER] = "[A-Z][A-Z0-9_]*",
            [KILN_NAME_IDENTIFIER] = "[A-Za-z_][A-Za-z0-9_]*",
            [KILN_NAME_WORD] = "[A-Za-z0-9_]+",
    };
    if (!name) {
        return kiln_err_set(err, KILN_STATUS_FILE, "the name is NULL; it is mandatory");
    }
    size_t len = strnlen(name, KILN_NAME_MAX + 1);
    int good = len > 0 && len <= KILN_NAME_MAX;
    for (size_t i = 0; good && i < len; i++) {
        good = fits(kind, name[i], i == 0);
    }
    if (!good) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "'%.64s' is not a name; allowed: %s, at most %d characters", name, allowed[kind],
                KILN_NAME_MAX);
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_text_check_line(const char *field, const char *text, struct kiln_err *err) {
    if (!text) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s is NULL; it is mandatory", field);
    }
    size_t len = strlen(text);
    for (size_t i = 0; i < len;) {
        int step = kiln_utf8_len(text + i, len - i);
        if (step <= 0) {
            return kiln_err_set(err, KILN_STATUS_FILE, "%s is not UTF-8 (byte %zu)", field, i + 1);
        }
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "%s has a control character (byte %zu); it must be one line", field, i + 1);
        }
        i += (size_t)step;
    }
    return KILN_STATUS_OK;
}
