// sample: small problems and device descriptions to try a variant's plan() on.
//
// Not a model: shapes are odd on purpose, and no operand has memory behind it.
#ifndef KILN_PLUGIN_SAMPLE_H
#define KILN_PLUGIN_SAMPLE_H

#include "base/status.h"
#include "kiln/plugin.h"
#include "plugin/arena.h"

#include <stdint.h>

// Device descriptions by number, host devices first; NULL past the end. The pointer is static.
const struct kiln_device *kiln_sample_device(uint32_t index);

enum {
    KILN_SAMPLE_N_SHAPES = 3 // one row, a few with optional operands, many
};

// The problem that `variant` meets when it fills `slot` (a name without "*"), the ops that it fills
// after the first included; operands have the first format that the variant lists for them. Memory
// is the arena's.
KILN_MUST_CHECK enum kiln_status kiln_sample_problem(struct kiln_arena *arena,
        const struct kiln_plugin *plugin, const struct kiln_variant *variant, const char *slot,
        uint32_t shape, const struct kiln_problem **problem, struct kiln_err *err);

// The head size of a shape's attention, which defaults of geometry may depend on.
int32_t kiln_sample_head_size(uint32_t shape);

#endif
