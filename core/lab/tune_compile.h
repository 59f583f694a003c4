// tune_compile: kernels of candidates, compiled on all cores by processes of their own while the
// device measures others. What is compiled is in the kernel cache, where the worker finds it. A
// compiler that crashes or hangs costs the candidate that it was at.
#ifndef KILN_LAB_TUNE_COMPILE_H
#define KILN_LAB_TUNE_COMPILE_H

#include "base/status.h"
#include "jit/jit.h"
#include "plugin/plan.h"

#include <stddef.h>

// One candidate's kernels.
struct kiln_tune_job {
    const char *plugin, *variant, *source;
    const struct kiln_geometry *geometry;
    const struct kiln_planned *planned;
    // Filled in:
    enum kiln_status status;
    int limits; // it compiles and does not fit the device
    struct kiln_err err;
    double ms; // of all its kernels
};

struct kiln_tune_compiler;

struct kiln_tune_compiler_params {
    const struct kiln_jit_params *jit;
    const struct kiln_device *device; // outlives the compiler
    int ptx;                          // as sim wants them
    double seconds;                   // that a candidate's kernels may take; 0: any
};
KILN_MUST_CHECK enum kiln_status kiln_tune_compiler_create(struct kiln_tune_compiler **compiler,
        const struct kiln_tune_compiler_params *params, struct kiln_err *err);
void kiln_tune_compiler_destroy(struct kiln_tune_compiler *compiler); // waits; NULL is fine

// Begins with jobs[0..n), which stay the caller's and are left alone until the next wait. Host
// kernels have nothing to compile. One batch at a time.
KILN_MUST_CHECK enum kiln_status kiln_tune_compiler_start(struct kiln_tune_compiler *compiler,
        struct kiln_tune_job *jobs, size_t n, struct kiln_err *err);
// Waits for what was begun; OK at once when nothing was. A job's failure is in the job; what fails
// here is memory, or that there is no compiler.
KILN_MUST_CHECK enum kiln_status kiln_tune_compiler_wait(
        struct kiln_tune_compiler *compiler, struct kiln_err *err);

#endif
