// variants: what plugin.c lists: one object a variant, in the file of its family; and their
// sources.
#ifndef KILN_ATTENTION_VARIANTS_H
#define KILN_ATTENTION_VARIANTS_H

#include "kiln/plugin.h"

#define ATTENTION_COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

// A row of a parameter's defaults.
#define ATTENTION_DEFAULT(hd, from, to, number) \
    &(const struct kiln_param_default) { \
        .struct_size = sizeof(struct kiln_param_default), .head_size = (hd), .target_min = (from), \
        .target_max = (to), .value = (number) \
    }

extern const struct kiln_variant attention_naive, attention_fap1, attention_fap2, attention_fap2db;
extern const struct kiln_variant attention_splitkv, attention_rope_splitkv;

extern const struct kiln_kernel attention_kernel_naive, attention_kernel_fap1;
extern const struct kiln_kernel attention_kernel_fap2, attention_kernel_fap2db;
extern const struct kiln_kernel attention_kernel_splitkv, attention_kernel_splitkv_combine;
extern const struct kiln_kernel attention_kernel_rope_splitkv;

// The formats of operands: edges f16 or f32; caches f16, for `naive` also f32.
extern const struct kiln_io *const attention_ios[4];
extern const struct kiln_io *const attention_ios_f32[4];

#endif
