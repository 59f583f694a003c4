// log: lines on stderr.
#include "base/log.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_LINE = 8192 // what is longer is cut
};

static atomic_int log_level = KILN_LOG_WARN;

void kiln_log_set_level(enum kiln_log_level level) {
    atomic_store(&log_level, (int)level);
}

enum kiln_log_level kiln_log_get_level(void) {
    return (enum kiln_log_level)atomic_load(&log_level);
}

// The control characters of ASCII but for line ends and tabs, and those of Unicode, U+0080 to
// U+009F.
static int is_control(const char *at, int len) {
    unsigned char first = (unsigned char)at[0];
    return len == 1 ? (first < ' ' && first != '\n' && first != '\t') || first == 0x7f
                    : first == 0xc2 && (unsigned char)at[1] < 0xa0;
}

static void put_text(const char *text) {
    for (size_t left = strlen(text); left > 0;) {
        int len = kiln_utf8_len(text, left);
        if (len > 0 && !is_control(text, len)) {
            fwrite(text, 1, (size_t)len, stderr);
        } else {
            len = 1;
            fprintf(stderr, "\\x%02x", (unsigned char)*text);
        }
        text += len;
        left -= (size_t)len;
    }
}

__attribute__((format(printf, 2, 0))) static void put_line(
        const char *label, const char *fmt, va_list args) {
    char text[MAX_LINE];
    if (vsnprintf(text, sizeof(text), fmt, args) >= MAX_LINE) {
        kiln_utf8_trim(text);
    }
    flockfile(stderr);
    fprintf(stderr, "kiln: %s", label);
    put_text(text);
    fputc('\n', stderr);
    funlockfile(stderr);
}

void kiln_say(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    put_line("", fmt, args);
    va_end(args);
}

void kiln_log(enum kiln_log_level level, const char *fmt, ...) {
    static const char *const labels[] = {"error: ", "warning: ", "", "debug: "};
    if ((int)level > atomic_load(&log_level)) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    put_line(labels[level], fmt, args);
    va_end(args);
}
