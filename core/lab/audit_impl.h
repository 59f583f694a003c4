// audit_impl: the figures of an audited kernel by name, for text, JSON and differences alike.
#ifndef KILN_LAB_AUDIT_IMPL_H
#define KILN_LAB_AUDIT_IMPL_H

#include "lab/audit.h"

// A number of a kernel. Values are whole but for the ratio.
struct kiln_audit_figure {
    const char *name; // its key in JSON
    int ratio;        // 0 to 1
    // 0: not known, or not of this kind of kernel.
    int (*get)(const struct kiln_audit_kernel *kernel, double *value);
};

// NULL behind the last.
const struct kiln_audit_figure *kiln_audit_figure_at(size_t index);

// Bytes that spilling moves, both ways; -1: not known.
int64_t kiln_audit_spills(const struct kiln_audit_kernel *kernel);
// The kernel did compile, or nothing was compiled.
int kiln_audit_is_sound(const struct kiln_audit_kernel *kernel);

// The kernel of `change` that stands where `kernel` stands in `base`; NULL: none. (audit_diff.c)
const struct kiln_audit_kernel *kiln_audit_counterpart(const struct kiln_audit *base,
        const struct kiln_audit_kernel *kernel, const struct kiln_audit *change);
// What a difference tells one by one: name, then both values as text ("-": none there).
typedef void (*kiln_audit_diff_fn)(
        void *arg, const char *name, const char *base, const char *change);
// Both NULL-able, not both NULL. Returns how many differences there are.
size_t kiln_audit_each_diff(const struct kiln_audit_kernel *base,
        const struct kiln_audit_kernel *change, kiln_audit_diff_fn fn, void *arg);

#endif
