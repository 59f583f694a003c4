// mmq: the edge format that the int8 variants read, and the variants: mmq.c, quantize.c.
#ifndef MATMUL_MMQ_H
#define MATMUL_MMQ_H

#include "mm_plan.h"

extern const struct kiln_format mm_format_q8;
extern const struct kiln_variant mm_variant_mmq, mm_variant_mmq_q6; // by the types that they take
extern const struct kiln_variant mm_variant_mmq_async, mm_variant_mmq_async_q6;
extern const struct kiln_variant mm_variant_mmq_expand;
extern const struct kiln_variant mm_variant_quantize;

extern const struct kiln_kernel mm_kernel_mmq, mm_kernel_mmq_expand, mm_kernel_mmq_join;
extern const struct kiln_kernel mm_kernel_mmq_seams, mm_kernel_quantize;

#endif
