// ini_lines: INI text to (section, key, value, line): a strict line reader in front of inih.
//
// inih by itself cuts long lines and parses the rest as lines of their own, takes an indented line
// as more of the key above, cuts long names and accepts text after "]". The reader here looks at
// every line first, refuses what inih would misread, hands over the rest without comments, and
// compares what inih delivers with what it handed over. It does not know what sections and keys
// mean, nor whether they repeat.
//
// The text is UTF-8 without a byte order mark, lines end in LF or CR LF. A line is blank, a comment
// (";" or "#" first), "[section]" or "KEY = VALUE", each starting in the first column; ";" after a
// blank starts a comment behind the last two.
#ifndef KILN_CONFIG_INI_LINES_H
#define KILN_CONFIG_INI_LINES_H

#include "base/status.h"

#include <stddef.h>

enum {
    KILN_INI_LINE_MAX = 1023, // bytes of a line without its end
    KILN_INI_NAME_MAX = 49,   // bytes of a section's or a key's name: what inih keeps of one
};

// A section header (key and value NULL) or a pair. The strings live during the call. An error ends
// the reading.
typedef enum kiln_status (*kiln_ini_fn)(void *arg, const char *section, const char *key,
        const char *value, unsigned line, struct kiln_err *err);

// Reads the whole text. `name` stands for the file in messages ("name:line: ..."). What is wrong
// with the text is KILN_STATUS_CONFIG; whatever fn returned comes back as it is.
KILN_MUST_CHECK enum kiln_status kiln_ini_read(const char *name, const char *text, size_t len,
        kiln_ini_fn fn, void *arg, struct kiln_err *err);

// The same rules for names and values that come another way (--set). The errors have no place in
// front.
KILN_MUST_CHECK enum kiln_status kiln_ini_check_section(
        const char *section, size_t len, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_ini_check_key(
        const char *key, size_t len, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_ini_check_value(
        const char *value, size_t len, struct kiln_err *err);

#endif
