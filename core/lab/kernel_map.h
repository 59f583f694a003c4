// kernel_map: which of kiln's slots another engine's kernels stand for, by patterns in an INI file:
//
//   [matmul.q4_K.prefill]
//   match = mul_mat_q<\(ggml_type\)12[,>]
//
// A section is a slot, as in a config; "*" stands for any weight type, or at the end for both
// phases; a name that is no slot of kiln's, nor nearly one, stands for work that kiln has no slot
// for. `match` is a POSIX extended regular expression, looked for anywhere in the kernel's name;
// the first section that matches has it.
#ifndef KILN_LAB_KERNEL_MAP_H
#define KILN_LAB_KERNEL_MAP_H

#include "base/status.h"

struct kiln_kernel_map;

// path: an INI file; a name without a slash and an ending, "llama.cpp", is the one that ships with
// kiln (configs/kernels/llama.cpp.ini). KILN_STATUS_FILE: it cannot be read; KILN_STATUS_CONFIG: it
// is malformed or a section is a misspelled slot, with the line. The caller owns *map.
KILN_MUST_CHECK enum kiln_status kiln_kernel_map_read(
        const char *path, struct kiln_kernel_map **map, struct kiln_err *err);
void kiln_kernel_map_destroy(struct kiln_kernel_map *map); // NULL is fine

// The section that matches; NULL: none.
const char *kiln_kernel_map_find(const struct kiln_kernel_map *map, const char *kernel);

#endif
