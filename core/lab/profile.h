// profile: kernels and their times out of another program's profile, for `wall --against`:
// `nsys stats --report cuda_gpu_kern_sum --format csv`, `--report cuda_gpu_trace`, and the CSV
// exports of ncu (ncu.h).
#ifndef KILN_LAB_PROFILE_H
#define KILN_LAB_PROFILE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_profile_kernel {
    char *name;
    double seconds; // of all launches
    int64_t launches;
};

struct kiln_profile {
    struct kiln_profile_kernel *kernels; // longest first
    size_t n, cap;
    const char *kind; // "nsys cuda_gpu_kern_sum", "nsys cuda_gpu_trace", "ncu"
    double seconds;   // of all
};

// Copies and fills of memory are not kernels and left out. KILN_STATUS_FILE: no CSV, none of the
// reports, no kernel in it, or a time that is no number; with the line. The caller ends *profile
// with kiln_profile_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_profile_read(
        const char *path, struct kiln_profile *profile, struct kiln_err *err);
void kiln_profile_finish(struct kiln_profile *profile); // a zeroed one is fine

#endif
