// status: the table in words, and the writing of error texts.
#include "base/status.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int exit_code;
    const char *text;
} statuses[] = {
#define KILN_STATUS_ROW(name, code, text) {#name, code, text},
        KILN_STATUS_TABLE(KILN_STATUS_ROW)
#undef KILN_STATUS_ROW
};

const char *kiln_status_name(enum kiln_status status) {
    return statuses[status].name;
}

const char *kiln_status_text(enum kiln_status status) {
    return statuses[status].text;
}

int kiln_status_exit_code(enum kiln_status status) {
    return statuses[status].exit_code;
}

enum kiln_status(kiln_err_set)(
        struct kiln_err *err, enum kiln_status status, const char *fmt, ...) {
    if (!err) {
        return status;
    }
    err->status = status;
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    if (len >= (int)sizeof(err->text)) {
        kiln_utf8_trim(err->text);
    }
    return status;
}

void kiln_err_prefix(struct kiln_err *err, const char *fmt, ...) {
    if (!err) {
        return;
    }
    char rest[sizeof(err->text)];
    memcpy(rest, err->text, sizeof(rest));
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    if (len < 0 || (size_t)len >= sizeof(err->text)) {
        kiln_utf8_trim(err->text);
        return;
    }
    size_t room = sizeof(err->text) - (size_t)len;
    size_t copy = strlen(rest);
    if (copy >= room) {
        copy = room - 1;
    }
    memcpy(err->text + len, rest, copy);
    err->text[(size_t)len + copy] = '\0';
    kiln_utf8_trim(err->text);
}

enum kiln_status(kiln_err_nomem)(struct kiln_err *err, const char *what) {
    return kiln_err_set(err, KILN_STATUS_NOMEM, "out of memory for %s", what);
}
