// number: strict parsing, without strtol's blanks, signs and octal.
#include "config/number.h"

#include <string.h>

// The value of a digit, or 99.
static unsigned digit(char c) {
    if (c >= '0' && c <= '9') {
        return (unsigned)(c - '0');
    }
    if (c >= 'a' && c <= 'f') {
        return (unsigned)(c - 'a') + 10;
    }
    return c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10 : 99;
}

static int parse(const char *text, size_t len, int64_t *number) {
    int negative = len > 0 && text[0] == '-';
    size_t at = (size_t)negative;
    unsigned base = 10;
    if (len - at > 2 && text[at] == '0' && (text[at + 1] == 'x' || text[at + 1] == 'X')) {
        base = 16;
        at += 2;
    }
    if (at >= len) {
        return -1;
    }
    int64_t value = 0;
    for (; at < len; at++) {
        unsigned d = digit(text[at]);
        if (d >= base || value > (INT64_MAX - (int64_t)d) / (int64_t)base) {
            return -1;
        }
        value = value * (int64_t)base + (int64_t)d;
    }
    *number = negative ? -value : value;
    return 0;
}

int kiln_number_parse(const char *text, int64_t *number) {
    return parse(text, strlen(text), number);
}

int kiln_bytes_parse(const char *text, int64_t *bytes) {
    static const char units[] = "KMG";
    size_t len = strlen(text);
    const char *unit = len > 1 ? strchr(units, text[len - 1]) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    int64_t value = 0;
    if (parse(text, len - (unit != NULL), &value) < 0 || value < 0 || value > INT64_MAX >> shift) {
        return -1;
    }
    *bytes = value << shift;
    return 0;
}
