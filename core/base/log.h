// log: what kiln says on stderr beside its result. Errors travel in struct kiln_err, not here.
#ifndef KILN_BASE_LOG_H
#define KILN_BASE_LOG_H

enum kiln_log_level {
    KILN_LOG_ERROR,
    KILN_LOG_WARN,
    KILN_LOG_INFO,  // -v
    KILN_LOG_DEBUG, // -v -v
};

// Process-wide; WARN until set. main() sets it once from -v and KILN_LOG.
void kiln_log_set_level(enum kiln_log_level level);
enum kiln_log_level kiln_log_get_level(void);

// One line, "kiln: warning: ..." and so on; thread-safe, a line is never torn.
void kiln_log(enum kiln_log_level level, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

#endif
