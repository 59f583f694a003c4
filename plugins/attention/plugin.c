// plugin: the plugin `attention`: CUDA kernels for attention.prefill and attention.decode.
// README.md says what their levers do.
#include "variants.h"

#include <string.h>

static const struct kiln_variant *const variants[] = {&attention_fap2, &attention_fap2db,
        &attention_fap1, &attention_naive, &attention_splitkv, &attention_rope_splitkv};

// How each variant keeps the operands of its products: what `kiln gate parity` judges it by.
static const void *extension(const char *id) {
    static const char *const precision[] = {"naive=f32", NULL};
    return strcmp(id, "kiln.precision/1") == 0 ? precision : NULL;
}

KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "attention",
        .version = "0.1.0",
        .help = "attention on CUDA devices: tiles on the tensor cores, in three generations",
        .variants = variants,
        .n_variants = ATTENTION_COUNT(variants),
        .extension = extension};
