// verify: is this plugin fit to ship? Run in a child process, since the library may crash.
//
// Planning only: running kernels at every corner of a schema is the device's part.
#ifndef KILN_PLUGIN_VERIFY_H
#define KILN_PLUGIN_VERIFY_H

#include "base/buf.h"
#include "base/status.h"

enum {
    KILN_VERIFY_LIMIT_MS = 60000 // what `kiln plugins verify` gives a plugin
};

// Opens one library in a child process, which has limit_ms for everything, and checks: that it
// exports exactly one symbol beyond those of the toolchain, that it is accepted (names, help,
// schemas), and that plan() is pure, and declines or answers well, for sample problems of every
// slot that each variant fills, at the corners of its schema (the smallest, the largest and the
// default of each parameter), on sample devices of every kind that it names. A report, one line a
// check, is appended to `report`: "ok", "declined" or "failed", and what. A plan that is sound but
// exceeds a limit of a sample device counts as declined. KILN_STATUS_CHECK when something failed, a
// crash (with its signal), an exit and a time-out included; KILN_STATUS_FILE when the library is
// refused.
KILN_MUST_CHECK enum kiln_status kiln_plugin_verify(
        const char *path, unsigned limit_ms, struct kiln_buf *report, struct kiln_err *err);

#endif
