// number: whole numbers as a configuration writes them.
#ifndef KILN_CONFIG_NUMBER_H
#define KILN_CONFIG_NUMBER_H

#include <stdint.h>

// Decimal or 0x, an optional '-' in front, nothing else before or behind. 0, or -1 with *number
// untouched when it is none or does not fit.
int kiln_number_parse(const char *text, int64_t *number);

// The same with K, M or G (powers of 1024) behind it.
int kiln_bytes_parse(const char *text, int64_t *bytes);

#endif
