// log: lines on stderr.
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int log_level = KILN_LOG_WARN;

void kiln_log_set_level(enum kiln_log_level level) {
    atomic_store(&log_level, (int)level);
}

enum kiln_log_level kiln_log_get_level(void) {
    return (enum kiln_log_level)atomic_load(&log_level);
}

void kiln_log(enum kiln_log_level level, const char *fmt, ...) {
    static const char *const labels[] = {"error: ", "warning: ", "", "debug: "};
    if ((int)level > atomic_load(&log_level)) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    flockfile(stderr);
    fprintf(stderr, "kiln: %s", labels[level]);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(args);
}
