// fit: whether a compiled kernel, launched as planned, fits a device at all, and what an
// over-request of shared memory costs it.
//
// The plan's own limits are checked when it is made (plugin/plan.h); registers and static shared
// memory are known only here.
#ifndef KILN_JIT_FIT_H
#define KILN_JIT_FIT_H

#include "base/status.h"
#include "jit/image.h"
#include "jit/layout.h"
#include "jit/unit.h"

#include <stdint.h>

struct kiln_fit {
    int32_t blocks;        // that a multiprocessor holds; -1: not known
    int32_t blocks_layout; // the same if the launcher asked for what the layout uses
};

// Without request->device nothing is checked. KILN_STATUS_DEVICE: the device cannot run one block
// of it; the text has the numbers and the geometry keys to change.
KILN_MUST_CHECK enum kiln_status kiln_fit_check(const struct kiln_jit_request *request,
        const struct kiln_image *image, const struct kiln_layout_check *layout,
        struct kiln_fit *fit, struct kiln_err *err);

#endif
