// image: a compiled kernel: machine code or PTX, the entry's name in it, what it needs.
#ifndef KILN_JIT_IMAGE_H
#define KILN_JIT_IMAGE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

// As ptxas reported it for the kernel; -1: not known (PTX is not machine code yet).
struct kiln_resources {
    int32_t registers;                 // a thread
    int32_t stack;                     // bytes a thread
    int32_t spill_stores, spill_loads; // bytes
    int32_t smem_static;               // bytes a block, without the launch's
};

struct kiln_image {
    char *data; // cubin, or PTX text with a NUL behind it
    size_t size;
    char *entry;  // the kernel's name in the image: a template instance's is a mangled one
    char *target; // as asked for: "sm_90a"
    char *label, *geometry; // who it is: "attention/fap2 kernel fap2", "FA_TQ=64 KILN_SMEM=34816"
    int ptx;                // data is PTX
    double compile_ms;      // that the compile took
    struct kiln_resources resources;
};

void kiln_image_finish(struct kiln_image *image); // a zeroed one is fine
KILN_MUST_CHECK enum kiln_status kiln_image_copy(
        struct kiln_image *to, const struct kiln_image *from, struct kiln_err *err);

#endif
