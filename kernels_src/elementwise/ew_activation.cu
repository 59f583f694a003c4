// ew_activation: OUT = act(GATE) * UP, silu or gelu_tanh. A thread makes four columns. OUT may be
// GATE. OUT_Q8 1: OUT leaves as blocks of 8-bit integers (common/q8.cuh).
//
// Shared memory: none. Defines: THREADS a block, OUT_Q8.
#include "common/activate.cuh"
#include "common/q8.cuh"
#include "elementwise/ew_args.cuh"

#if !defined(THREADS) || !defined(OUT_Q8)
#    error "define THREADS, threads a block, and OUT_Q8"
#endif
static_assert(THREADS % 32 == 0 && THREADS >= 32 && THREADS <= 1024, "THREADS: whole warps");

// gate, up, out (S, F); n_tokens (1) or NULL. With OUT_Q8 args.wide is 1 and F a multiple of 32.
// Grid: x the pieces of 4 * THREADS columns of row 0, then of row 1, ...
extern "C" __global__ void __launch_bounds__(THREADS) ew_activation(const float *gate,
        const float *up, float *out, const int *__restrict__ n_tokens, const ew_args args) {
    ptx_dependents_may_start();
    ptx_wait_for_dependency();
    int blocks_a_row = (args.columns + 4 * THREADS - 1) / (4 * THREADS);
    long long row = blockIdx.x / blocks_a_row;
    if (n_tokens && row >= *n_tokens) {
        return;
    }
    int c = ((int)(blockIdx.x % blocks_a_row) * THREADS + (int)threadIdx.x) * 4;
    const float *g = (const float *)((const char *)gate + row * args.in_stride);
    const float *u = (const float *)((const char *)up + row * args.other_stride);
    float *to = (float *)((char *)out + row * args.out_stride);
    if (args.wide && c < args.columns) {
        float4 x = *(const float4 *)(g + c);
        float4 y = *(const float4 *)(u + c);
        float4 v = activate_four(args.activation, x, y);
#if OUT_Q8
        q8_put((unsigned char *)to, args.columns, c, v);
#else
        *(float4 *)(to + c) = v;
#endif
        return;
    }
    for (int i = c; i < c + 4 && i < args.columns; i++) {
        to[i] = activate(args.activation, g[i]) * u[i];
    }
}
