// layout: a kernel's own account of its shared memory, read out of the compiled image, against what
// its launcher asks for.
//
// CUDA sources export `extern "C" __device__ const unsigned kiln_layout_<kernel>[]`: total bytes,
// then offset and bytes of each region. No GPU is needed to read it.
#ifndef KILN_JIT_LAYOUT_H
#define KILN_JIT_LAYOUT_H

#include "base/status.h"
#include "jit/image.h"

#include <stdint.h>

enum {
    KILN_LAYOUT_REGIONS = 32
};

struct kiln_layout {
    int present; // 0: the kernel exports none
    uint32_t total;
    uint32_t n_regions;
    struct {
        uint32_t offset, bytes;
    } regions[KILN_LAYOUT_REGIONS];
};

struct kiln_layout_check {
    uint32_t requested; // dynamic shared memory, by the launcher
    uint32_t used;      // by the layout; `requested` when the kernel exports none
    uint32_t over;      // requested beyond what is used
    int present;
};

// Reads the layout of kernel `kernel` (its name in the plugin). One that is cut short or whose
// regions lie outside of its total is KILN_STATUS_FILE.
KILN_MUST_CHECK enum kiln_status kiln_layout_read(const struct kiln_image *image,
        const char *kernel, struct kiln_layout *layout, struct kiln_err *err);

// Compares. A launcher that asks for less than the layout's total is KILN_STATUS_FILE.
KILN_MUST_CHECK enum kiln_status kiln_layout_compare(const struct kiln_layout *layout,
        const char *kernel, uint32_t shared_bytes, struct kiln_layout_check *check,
        struct kiln_err *err);

#endif
