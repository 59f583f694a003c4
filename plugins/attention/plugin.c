// plugin: the plugin `attention`: CUDA kernels for attention.prefill and attention.decode.
// README.md says what their levers do.
#include "variants.h"

static const struct kiln_variant *const variants[] = {
        &attention_fap2, &attention_fap2db, &attention_fap1, &attention_naive, &attention_splitkv};

KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "attention",
        .version = "0.1.0",
        .help = "attention on CUDA devices: tiles on the tensor cores, in three generations",
        .variants = variants,
        .n_variants = ATTENTION_COUNT(variants)};
