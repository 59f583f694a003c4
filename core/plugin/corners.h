// corners: the geometries at the ends of a schema: each parameter at its default, its smallest or
// its largest value.
//
// Not here: what a plan or a kernel says of them (verify.h, lab/corners.h).
#ifndef KILN_PLUGIN_CORNERS_H
#define KILN_PLUGIN_CORNERS_H

#include "kiln/plugin.h"

#include <stdint.h>

// How many there are. Schemas of at most `full` parameters: every combination. Larger ones: all
// defaults, all smallest, all largest, then one parameter after the other at either end. Number 0
// is all defaults in both. A variant without parameters has one.
uint32_t kiln_corners_count(const struct kiln_variant *variant, uint32_t full);

// Corner number `index`: values[n_params], in the schema's order. Defaults are those for head_size
// and compute capability cc, as kiln_param_default_value takes them; two corners may be alike.
void kiln_corner_values(const struct kiln_variant *variant, uint32_t full, uint32_t index,
        int32_t head_size, int32_t cc, int64_t *values);

#endif
