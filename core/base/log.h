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

// A message on stderr whatever the level, "kiln: ..." and the line's end. What is no text in it (a
// file may have any bytes as its name) and what would command a terminal is shown as \xNN.
void kiln_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// One line, "kiln: warning: ..." and so on, shown likewise; thread-safe, a line is never torn.
void kiln_log(enum kiln_log_level level, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

#endif
