// utf8: the little that kiln needs of UTF-8 itself. Character classes come from PCRE2.
#ifndef KILN_BASE_UTF8_H
#define KILN_BASE_UTF8_H

#include <stddef.h>

// How many bytes at `text` (of `len`) form one well-formed character: 1 to 4.
// 0: no well-formed character can start with these bytes (a stray or overlong byte, a surrogate).
// -1: what is there could still become one if more bytes followed.
int kiln_utf8_len(const char *text, size_t len);

// Cuts an unfinished character off the end of a NUL-terminated string.
void kiln_utf8_trim(char *text);

#endif
