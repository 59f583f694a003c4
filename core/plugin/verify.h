// verify: is this plugin fit to ship? Run in a child process, since the library may crash.
//
// Plans only: what runs the kernels at every corner of a schema is lab/corners.h, which a caller
// hands in.
#ifndef KILN_PLUGIN_VERIFY_H
#define KILN_PLUGIN_VERIFY_H

#include "base/buf.h"
#include "base/status.h"

#include <stdint.h>

enum {
    KILN_VERIFY_LIMIT_MS = 60000 // what `kiln plugins verify` gives a plugin for its plans
};

// The child writes lines to a pipe as it goes, so that what it found before a crash is not lost.
// The first byte of a line says what it is.
enum kiln_verify_line {
    KILN_VERIFY_OK = '+',
    KILN_VERIFY_DECLINED = '~',
    KILN_VERIFY_BEYOND = '^',  // refused before its launch: it exceeds a limit of the device
    KILN_VERIFY_SKIPPED = '=', // could not be tried here
    KILN_VERIFY_FAILED = '-',
    KILN_VERIFY_NOW = '@',     // what is tried next: named when it does not come back
    KILN_VERIFY_STEP = '#',    // "DONE TOTAL" of what is behind the plans
    KILN_VERIFY_REFUSED = '!', // the plugin is refused; the last line
    KILN_VERIFY_NOMEM = '?',   // out of memory; the last line
};

// Writes a line at once, newlines in it as blanks, by any thread of the child.
void kiln_verify_emit(int fd, enum kiln_verify_line kind, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

struct kiln_verify_params {
    const char *path;  // of the library
    unsigned limit_ms; // for loading and planning together
    // What else the child does when nothing failed so far, and what it finds it says on fd; NULL:
    // nothing. It has step_ms from one KILN_VERIFY_STEP to the next, the first within limit_ms.
    void (*more)(void *arg, int fd);
    void *more_arg;
    unsigned step_ms;
    void (*progress)(void *arg, int64_t done, int64_t total); // of its steps; or NULL
    void *progress_arg;
};

// Opens one library in a child process and checks: that it exports exactly one symbol beyond those
// of the toolchain, that it is accepted (names, help, schemas), and that plan() is pure, and
// declines or answers well, for sample problems of every slot that each variant fills, at the
// corners of its schema (the smallest, the largest and the default of each parameter), on sample
// devices of every kind that it names. A report, one line a check, is appended to `report`: "ok",
// "declined", "refused", "skipped" or "failed", and what. A plan that is sound but exceeds a limit
// of a sample device counts as declined. KILN_STATUS_CHECK when something failed, a crash (with its
// signal), an exit and a time-out included; KILN_STATUS_FILE when the library is refused.
KILN_MUST_CHECK enum kiln_status kiln_plugin_verify(
        const struct kiln_verify_params *params, struct kiln_buf *report, struct kiln_err *err);

#endif
