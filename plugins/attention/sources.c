// sources: the CUDA sources, which the build turns into arrays, and the kernels that they hold.
#include "variants.h"

#include "attention_embedded.inc"

#define HEADER(file, array) \
    &(const struct kiln_header) { \
        .struct_size = sizeof(struct kiln_header), .name = file, .text = array \
    }

static const struct kiln_header *const headers[] = {
        HEADER("common/ptx.cuh", embed_ptx),
        HEADER("attention/fa_args.cuh", embed_fa_args),
        HEADER("attention/fa_core.cuh", embed_fa_core),
        HEADER("attention/fa_decode.cuh", embed_fa_decode),
        HEADER("attention/fa_rope.cuh", embed_fa_rope),
        HEADER("attention/fa_split.cuh", embed_fa_split),
        HEADER("attention/fa_tile.cuh", embed_fa_tile),
};

// A compile without textures, surfaces and the device runtime is 12 ms shorter.
static const char *const options[] = {"--minimal"};

#define KERNEL(kernel) \
    static const struct kiln_source source_##kernel = {.struct_size = sizeof(struct kiln_source), \
            .name = #kernel ".cu", \
            .text = embed_##kernel, \
            .headers = headers, \
            .options = options, \
            .n_headers = ATTENTION_COUNT(headers), \
            .n_options = ATTENTION_COUNT(options)}; \
    const struct kiln_kernel attention_kernel_##kernel = { \
            .struct_size = sizeof(struct kiln_kernel), \
            .name = #kernel, \
            .source = &source_##kernel}

KERNEL(naive);
KERNEL(fap1);
KERNEL(fap2);
KERNEL(fap2db);
KERNEL(splitkv);
KERNEL(splitkv_combine);
KERNEL(rope_splitkv);

static const char *const f16_or_f32[] = {"f16", "f32"};
static const char *const f16[] = {"f16"};

#define IO(which, list) \
    { \
        .struct_size = sizeof(struct kiln_io), .operand = KILN_OPERAND_##which, \
        .n_formats = ATTENTION_COUNT(list), .formats = list \
    }

static const struct kiln_io q = IO(Q, f16_or_f32), out = IO(OUT, f16_or_f32);
static const struct kiln_io k_f16 = IO(K_CACHE, f16), v_f16 = IO(V_CACHE, f16);
static const struct kiln_io k_any = IO(K_CACHE, f16_or_f32), v_any = IO(V_CACHE, f16_or_f32);

const struct kiln_io *const attention_ios[4] = {&q, &out, &k_f16, &v_f16};
const struct kiln_io *const attention_ios_f32[4] = {&q, &out, &k_any, &v_any};
