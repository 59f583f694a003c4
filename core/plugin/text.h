// text: the checks of names and lines of text that a plugin hands over.
#ifndef KILN_PLUGIN_TEXT_H
#define KILN_PLUGIN_TEXT_H

#include "base/status.h"

enum kiln_name_kind {
    KILN_NAME_LOWER,      // [a-z0-9_]+: plugins, variants, block formats
    KILN_NAME_UPPER,      // [A-Z][A-Z0-9_]*: geometry parameters
    KILN_NAME_IDENTIFIER, // [A-Za-z_][A-Za-z0-9_]*: kernels, defines
    KILN_NAME_WORD,       // [A-Za-z0-9_]+: formats and weight types, roles
};

enum {
    KILN_NAME_MAX = 63 // bytes
};

// NULL, empty, too long or with another character: KILN_STATUS_FILE with what is allowed.
KILN_MUST_CHECK enum kiln_status kiln_text_check_name(
        const char *name, enum kiln_name_kind kind, struct kiln_err *err);
// One line of UTF-8 without control characters; it may be empty, NULL is an error. `field` names
// it.
KILN_MUST_CHECK enum kiln_status kiln_text_check_line(
        const char *field, const char *text, struct kiln_err *err);

#endif
