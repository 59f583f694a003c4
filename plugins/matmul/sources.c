// sources: the CUDA sources, which the build turns into arrays, and the kernels that they hold.
#include "mmq.h"

#include "matmul_embedded.inc"

#define HEADER(file, array) \
    &(const struct kiln_header) { \
        .struct_size = sizeof(struct kiln_header), .name = file, .text = array \
    }

static const struct kiln_header *const headers[] = {
        HEADER("common/ptx.cuh", embed_ptx),
        HEADER("common/activate.cuh", embed_activate),
        HEADER("common/dequant.cuh", embed_dequant),
        HEADER("common/hopper.cuh", embed_hopper),
        HEADER("common/bulk.cuh", embed_bulk),
        HEADER("matmul/mm_args.cuh", embed_mm_args),
        HEADER("matmul/mm_out.cuh", embed_mm_out),
        HEADER("matmul/mm_glu.cuh", embed_mm_glu),
        HEADER("matmul/mm_scale.cuh", embed_mm_scale),
        HEADER("common/q8.cuh", embed_q8),
        HEADER("matmul/mmq_mma.cuh", embed_mmq_mma),
        HEADER("matmul/mmq_share.cuh", embed_mmq_share),
        HEADER("matmul/mmq_weights.cuh", embed_mmq_weights),
        HEADER("matmul/mv_args.cuh", embed_mv_args),
        HEADER("matmul/mv_types.cuh", embed_mv_types),
        HEADER("matmul/mv_ring.cuh", embed_mv_ring),
        HEADER("matmul/mv_bulk.cuh", embed_mv_bulk),
};

// A compile without textures, surfaces and the device runtime is 12 ms shorter.
static const char *const options[] = {"--minimal"};

#define KERNEL(stem) \
    static const struct kiln_source source_##stem = {.struct_size = sizeof(struct kiln_source), \
            .name = "mm_" #stem ".cu", \
            .text = embed_mm_##stem, \
            .headers = headers, \
            .options = options, \
            .n_headers = GPU_COUNT(headers), \
            .n_options = GPU_COUNT(options)}; \
    const struct kiln_kernel mm_kernel_##stem = {.struct_size = sizeof(struct kiln_kernel), \
            .name = "mm_" #stem, \
            .source = &source_##stem}

KERNEL(rows);
KERNEL(expand);
KERNEL(f16);
KERNEL(gemv);
KERNEL(wgmma);
KERNEL(mmq);
KERNEL(mmq_expand);
KERNEL(mmq_join);
KERNEL(mmq_seams);
KERNEL(quantize);
KERNEL(stream);
