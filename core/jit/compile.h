// compile: a unit through NVRTC: the image, what ptxas said of it, or an error that names the line.
#ifndef KILN_JIT_COMPILE_H
#define KILN_JIT_COMPILE_H

#include "base/status.h"
#include "jit/image.h"
#include "jit/nvrtc.h"
#include "jit/unit.h"

// Compiles. On success the caller ends *image with kiln_image_finish. A source that does not
// compile is KILN_STATUS_DEVICE: kernel, target, NVRTC's version, the first error with its file and
// line, the geometry in force. *log, the caller's, is the whole compile log whenever there is one,
// also after a success.
KILN_MUST_CHECK enum kiln_status kiln_compile(const struct kiln_nvrtc *nvrtc,
        const struct kiln_unit *unit, struct kiln_image *image, char **log, struct kiln_err *err);

// What the log of --ptxas-options=-v says of `entry`; what it does not say is -1.
struct kiln_resources kiln_resources_parse(const char *log, const char *entry);

#endif
