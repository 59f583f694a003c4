// defines: a kernel's geometry as text: the one place that renders it.
//
// The same text is part of the cache key, stands in front of the source that is compiled and
// dumped, and (as a label) names the geometry in messages and tables.
#ifndef KILN_JIT_DEFINES_H
#define KILN_JIT_DEFINES_H

#include "base/buf.h"
#include "base/status.h"
#include "kiln/plugin.h"

// Appends "#define NAME VALUE\n" for every geometry parameter, for KILN_SMEM (the launch's
// shared_bytes) and for the launch's own defines, sorted by name. A name that comes twice, or is
// none, is KILN_STATUS_FILE.
KILN_MUST_CHECK enum kiln_status kiln_defines_render(const struct kiln_geometry *geometry,
        const struct kiln_launch *launch, struct kiln_buf *text, struct kiln_err *err);

// Appends the rendered text as "NAME=VALUE NAME=VALUE".
void kiln_defines_label(const char *rendered, struct kiln_buf *label);

#endif
