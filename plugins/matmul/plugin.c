// plugin: the plugin `matmul`: CUDA kernels for matmul.TYPE.prefill and matmul.TYPE.decode.
// README.md says what their levers do.
#include "gemm.h"
#include "mmq.h"

#include <string.h>

static const struct kiln_variant *const variants[] = {&mm_variant_f16_expand, &mm_variant_f16_wgmma,
        &mm_variant_f16, &mm_variant_f16_expand_glu, &mm_variant_f16_wgmma_glu, &mm_variant_mmq,
        &mm_variant_mmq_q6, &mm_variant_mmq_async, &mm_variant_mmq_async_q6, &mm_variant_mmq_expand,
        &mm_variant_quantize, &mm_variant_gemv, &mm_variant_gemv_simple, &mm_variant_gemv_q8,
        &mm_variant_norm_qkv, &mm_variant_norm_glu};
static const struct kiln_format *const formats[] = {&mm_format_q8, &mm_format_rows};

// How each variant keeps the operands of its products: by it `kiln gate parity` chooses the bound,
// and `kiln wall` and `op` the peak.
static const void *extension(const char *id) {
    static const char *const precision[] = {
            "gemv=i16", "gemv_simple=f32", "gemv_q8=q8", "norm_qkv=i16", "norm_glu=i16", NULL};
    return strcmp(id, "kiln.precision/1") == 0 ? precision : NULL;
}

KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "matmul",
        .version = "0.1.0",
        .help = "matrix products on CUDA devices: f16 or int8 tensor cores for many rows, "
                "streaming for one",
        .variants = variants,
        .formats = formats,
        .n_variants = GPU_COUNT(variants),
        .n_formats = GPU_COUNT(formats),
        .extension = extension};
