// sources: the CUDA sources, which the build turns into arrays, and the kernels that they hold.
#include "ew_plan.h"

#include "elementwise_embedded.inc"

const int64_t ew_threads_values[6] = {32, 64, 128, 256, 512, 1024};

#define HEADER(file, array) \
    &(const struct kiln_header) { \
        .struct_size = sizeof(struct kiln_header), .name = file, .text = array \
    }

static const struct kiln_header *const headers[] = {
        HEADER("common/ptx.cuh", embed_ptx),
        HEADER("common/activate.cuh", embed_activate),
        HEADER("common/dequant.cuh", embed_dequant),
        HEADER("common/q8.cuh", embed_q8),
        HEADER("elementwise/ew_args.cuh", embed_ew_args),
        HEADER("elementwise/ew_argmax.cuh", embed_ew_argmax),
};

// A compile without textures, surfaces and the device runtime is 12 ms shorter.
static const char *const options[] = {"--minimal"};

#define KERNEL(stem) \
    static const struct kiln_source source_##stem = {.struct_size = sizeof(struct kiln_source), \
            .name = "ew_" #stem ".cu", \
            .text = embed_ew_##stem, \
            .headers = headers, \
            .options = options, \
            .n_headers = GPU_COUNT(headers), \
            .n_options = GPU_COUNT(options)}; \
    const struct kiln_kernel ew_kernel_##stem = {.struct_size = sizeof(struct kiln_kernel), \
            .name = "ew_" #stem, \
            .source = &source_##stem}

KERNEL(norm);
KERNEL(rope_kv);
KERNEL(activation);
KERNEL(embed);
KERNEL(argmax_part);
KERNEL(argmax_last);
