// ew_embed: OUT = scale * row of the table, for each id. A thread makes a unit of 16 values
// (dequant.cuh). An id that is not in the table gives a row of NaN, so that it cannot pass for a
// result.
//
// Shared memory: none. Defines: THREADS a block, W_TYPE, W_ALIGN.
#include "common/dequant.cuh"
#include "elementwise/ew_args.cuh"

#ifndef THREADS
#    error "define THREADS: threads a block"
#endif
static_assert(THREADS % 32 == 0 && THREADS >= 32 && THREADS <= 1024, "THREADS: whole warps");

// ids (S); weight (V, D) as in the file; out (S, D) f32; n_tokens (1) or NULL. Grid: x rows, y
// pieces of 16 * THREADS columns.
extern "C" __global__ void __launch_bounds__(THREADS)
        ew_embed(const int *__restrict__ ids, const unsigned char *__restrict__ weight,
                float *__restrict__ out, const int *__restrict__ n_tokens, const ew_args args) {
    ptx_dependents_may_start();
    ptx_wait_for_dependency();
    long long row = blockIdx.x;
    int unit = (int)(blockIdx.y * THREADS + threadIdx.x);
    if ((n_tokens && row >= *n_tokens) || unit >= w_units(args.columns)) {
        return;
    }
    int id = ids[row];
    bool known = id >= 0 && id < args.vocab;
    w_raw raw;
    if (known) {
        w_load(raw, weight + id * args.in_stride, unit, args.columns);
    }
    float *to = (float *)((char *)out + row * args.out_stride);
#pragma unroll
    for (int run = 0; run < 2; run++) {
        float v[8];
        int column = w_column(unit) + run * W_GAP;
        if (known) {
            w_values(raw, unit, run, v);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = known ? v[i] * args.scale : __int_as_float(0x7fc00000);
        }
        if (args.wide && column + 8 <= args.columns) {
            *(float4 *)(to + column) = make_float4(v[0], v[1], v[2], v[3]);
            *(float4 *)(to + column + 4) = make_float4(v[4], v[5], v[6], v[7]);
            continue;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (column + i < args.columns) {
                to[column + i] = v[i];
            }
        }
    }
}
