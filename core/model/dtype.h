// dtype: the element and block types of tensors: the one table of names, numbers and sizes.
//
// The numbers are those of a GGUF file (ggml's type ids), also used across the plugin ABI
// (enum kiln_dtype in kiln/plugin.h). Block types pack `elems` values of one row into `bytes`
// bytes; their layouts are drawn in core/model/quant.h.
#ifndef KILN_MODEL_DTYPE_H
#define KILN_MODEL_DTYPE_H

#include "kiln/plugin.h"

#include <stdint.h>

struct kiln_dtype_info {
    uint32_t dtype;   // enum kiln_dtype
    const char *name; // as in slot names and messages: "q4_K", "f16"
    uint32_t elems;   // values a block
    uint32_t bytes;   // bytes a block
    int weight;       // a weight type that kiln's slots know (dequantized by kiln_dequant_row)
};

// NULL when the number is not a type kiln can size. The pointer is static.
const struct kiln_dtype_info *kiln_dtype_info(uint32_t dtype);
// By name, letter case as in the table; NULL when unknown.
const struct kiln_dtype_info *kiln_dtype_by_name(const char *name);
// Table order; NULL past the end. For messages that list what is known.
const struct kiln_dtype_info *kiln_dtype_at(uint32_t index);

#endif
