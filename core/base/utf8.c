// utf8: well-formedness after table 3-7 of the Unicode standard.
#include "base/utf8.h"

#include <string.h>

int kiln_utf8_len(const char *text, size_t len) {
    if (len == 0) {
        return -1;
    }
    unsigned char lead = (unsigned char)text[0];
    if (lead < 0x80) {
        return 1;
    }
    int need = lead >= 0xc2 && lead <= 0xdf ? 2 : lead >= 0xe0 && lead <= 0xef ? 3 : 4;
    if (lead < 0xc2 || lead > 0xf4) {
        return 0;
    }
    for (int i = 1; i < need; i++) {
        if ((size_t)i >= len) {
            return -1;
        }
        unsigned char c = (unsigned char)text[i];
        unsigned char low = 0x80, high = 0xbf;
        if (i == 1) { // the second byte alone rules out overlong forms, surrogates and > U+10FFFF
            low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
            high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        }
        if (c < low || c > high) {
            return 0;
        }
    }
    return need;
}

void kiln_utf8_trim(char *text) {
    size_t len = strlen(text);
    size_t start = len;
    while (start > 0 && len - start < 3 && ((unsigned char)text[start - 1] & 0xc0) == 0x80) {
        start--;
    }
    if (start > 0 && kiln_utf8_len(text + start - 1, len - start + 1) < 0) {
        text[start - 1] = '\0';
    }
}
