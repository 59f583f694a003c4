// plugin: the plugin `elementwise`: CUDA kernels for norm, rope_kv, activation, embed and argmax.
// README.md says what their levers do.
#include "ew_plan.h"

static const struct kiln_variant *const variants[] = {&ew_variant_norm, &ew_variant_rope_kv,
        &ew_variant_activation, &ew_variant_embed, &ew_variant_argmax, &ew_variant_norm_q8,
        &ew_variant_activation_q8};

KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "elementwise",
        .version = "0.1.0",
        .help = "the slots of a forward pass that move data on CUDA devices",
        .variants = variants,
        .n_variants = GPU_COUNT(variants)};
