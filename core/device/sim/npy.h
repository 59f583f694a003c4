// npy: arrays in NumPy's file format, versions 1.0 and 2.0 (3.0 differs in field names, which plain
// arrays have none of, and is read too): little-endian numbers in C order.
#ifndef KILN_DEVICE_SIM_NPY_H
#define KILN_DEVICE_SIM_NPY_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    KILN_NPY_DIMS = 16
};

struct kiln_npy {
    char kind;      // 'f', 'i', 'u', 'b' (bool), 'c' (complex), 'V' (bytes)
    uint32_t bytes; // of an element
    uint32_t n_dims;
    uint64_t dims[KILN_NPY_DIMS];
    uint64_t count; // elements
    void *data;     // count * bytes; owned
};

// Reads a file. KILN_STATUS_FILE with what is wrong in it: another format, big-endian or Fortran
// order, fewer bytes than its shape says, or more. The caller ends *array with kiln_npy_finish.
KILN_MUST_CHECK enum kiln_status kiln_npy_read(
        struct kiln_npy *array, const char *path, struct kiln_err *err);
// The same from bytes in memory; `name` is for messages.
KILN_MUST_CHECK enum kiln_status kiln_npy_parse(struct kiln_npy *array, const char *name,
        const char *bytes, size_t size, struct kiln_err *err);
// Writes version 1.0, whole or not at all.
KILN_MUST_CHECK enum kiln_status kiln_npy_write(
        const struct kiln_npy *array, const char *path, struct kiln_err *err);
void kiln_npy_finish(struct kiln_npy *array); // a zeroed one is fine

#endif
