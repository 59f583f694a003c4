// precision: how a variant keeps the operands of its products. From it follow the bound that an
// oracle judges it by and the peak of a device that its arithmetic can come near to.
#ifndef KILN_LAB_PRECISION_H
#define KILN_LAB_PRECISION_H

#include "kiln/plugin.h"

enum kiln_precision {
    KILN_PRECISION_F32,
    KILN_PRECISION_F16, // both rounded to 11 bits
    KILN_PRECISION_I16, // activations: 16-bit integers, a factor for each 32
    KILN_PRECISION_Q8,  // activations: 8-bit integers by the rule of kiln_q8_quantize
};
enum {
    KILN_PRECISIONS = KILN_PRECISION_Q8 + 1
};

// "f32", "f16", "i16", "q8".
const char *kiln_precision_name(enum kiln_precision precision);

// As the plugin says by its extension "kiln.precision/1"; where it does not, f16 for a variant that
// runs on GPUs, f32 for one of the host alone. variant NULL (kiln's own): f32; plugin NULL: it says
// nothing.
enum kiln_precision kiln_precision_of(
        const struct kiln_plugin *plugin, const struct kiln_variant *variant);

// Of a whole problem that the variant fills: f32 where no op of it has products of tensors (norm,
// activation, rope_kv), q8 where the activations come as 8-bit blocks, else as above.
enum kiln_precision kiln_precision_of_problem(const struct kiln_plugin *plugin,
        const struct kiln_variant *variant, const struct kiln_problem *problem);

// Whether an operand is blocks of 8-bit integers: every block format but "f16_rows".
int kiln_precision_is_q8(const struct kiln_tensor *tensor);

#endif
