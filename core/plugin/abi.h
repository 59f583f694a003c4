// abi: the sizes of the structs that cross the plugin border, as each published minor had them.
//
// A struct that comes from a plugin states its size; kiln compares it with the size that the
// plugin's minor published, and copies it into the layout of this kiln's own header. Nothing else
// in kiln looks at struct_size.
#ifndef KILN_PLUGIN_ABI_H
#define KILN_PLUGIN_ABI_H

#include "base/status.h"

#include <stdint.h>

// Every struct that a plugin writes and kiln reads.
enum kiln_abi_struct {
    KILN_ABI_PLUGIN,
    KILN_ABI_FORMAT,
    KILN_ABI_VARIANT,
    KILN_ABI_PARAM,
    KILN_ABI_PARAM_DEFAULT,
    KILN_ABI_KERNEL,
    KILN_ABI_SOURCE,
    KILN_ABI_HEADER,
    KILN_ABI_IO,
    KILN_ABI_TENSOR_MAP,
    KILN_ABI_ARG,
    KILN_ABI_SMEM_SITE,
    KILN_ABI_LAUNCH,
    KILN_ABI_PREPARATION,
    KILN_ABI_N_STRUCTS,
};

// Its bytes in minor `minor`; for a minor newer than this kiln's, those of this kiln's.
uint32_t kiln_abi_size(enum kiln_abi_struct which, unsigned minor);

// Whether this is the size that `minor` has, or, for a newer minor, at least this kiln's. If not,
// KILN_STATUS_FILE: "struct_size 80, ABI 1.0 has 88; " and what to do.
KILN_MUST_CHECK enum kiln_status kiln_abi_check_size(
        enum kiln_abi_struct which, uint32_t struct_size, unsigned minor, struct kiln_err *err);

// Copies a struct whose size has been checked to `dest`, of kiln_abi_size(which, KILN_ABI_MINOR)
// bytes: what the plugin did not know reads as zero, what this kiln does not know is left out, and
// struct_size becomes this kiln's.
void kiln_abi_import(enum kiln_abi_struct which, void *dest, const void *source);

#endif
