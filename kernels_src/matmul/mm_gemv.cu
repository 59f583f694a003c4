// mm_gemv: OUT (S, N) = IN (S, K) times WEIGHT (N, K) transposed, + BIAS, + RESIDUAL, for one row
// of activations, or a few: weights are streamed once a row, as they lie in the file; activations
// and sums are f32.
//
// `splits` warps side by side share ROWS outputs: their lanes take the units (16 columns,
// dequant.cuh) of the rows in turn. A block has GEMV_WARPS warps, GEMV_WARPS / splits such groups.
// A lane's activations serve all ROWS outputs.
//
// Sums: a lane's units in order, then lanes by halving, then the group's warps in order: it depends
// on splits alone.
//
// Shared memory: static, ROWS f32 a warp. Defines: ROWS, GEMV_WARPS, W_TYPE, W_ALIGN.
#include "common/dequant.cuh"
#include "matmul/mm_args.cuh"
#include "matmul/mm_out.cuh"

#if !defined(ROWS) || !defined(GEMV_WARPS)
#    error "define ROWS and GEMV_WARPS"
#endif
static_assert(ROWS >= 1 && ROWS <= 8, "ROWS: 1 to 8");
static_assert(GEMV_WARPS >= 1 && GEMV_WARPS <= 32, "GEMV_WARPS: 1 to 32");

// 8 activations from a column on; where there is a tail, 0 from k on.
PTX_INLINE void load_run(float *x, const float *row, int column, const mm_args &args) {
    if (args.in_wide && (!W_IS_FLOAT || column + 8 <= args.k)) {
        float4 low = *(const float4 *)(row + column);
        float4 high = *(const float4 *)(row + column + 4);
        x[0] = low.x;
        x[1] = low.y;
        x[2] = low.z;
        x[3] = low.w;
        x[4] = high.x;
        x[5] = high.y;
        x[6] = high.z;
        x[7] = high.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] = column + i < args.k ? row[column + i] : 0.0f;
    }
}

PTX_INLINE float sum_of(const float *x) {
    float sum = x[0];
#pragma unroll
    for (int i = 1; i < 8; i++) {
        sum += x[i];
    }
    return sum;
}

// in (S, K), weight (N, K) as in the file, out (S, N); bias (N), residual (S, N), n_tokens (1), or
// NULL. Grid: x groups of outputs, y rows of activations. out may be residual.
extern "C" __global__ void __launch_bounds__(GEMV_WARPS * 32) mm_gemv(const float *__restrict__ in,
        const unsigned char *__restrict__ weight, const float *__restrict__ bias,
        const float *residual, float *out, const int *__restrict__ n_tokens, const mm_args args) {
    __shared__ float parts[GEMV_WARPS * ROWS];
    int at = (int)blockIdx.y;
    if (n_tokens && at >= *n_tokens) {
        return;
    }
    int warp = (int)threadIdx.x / 32;
    int group = warp / args.splits;
    int part = warp % args.splits;
    long long first = ((long long)blockIdx.x * (GEMV_WARPS / args.splits) + group) * ROWS;
    const float *x_row = (const float *)((const char *)in + at * args.in_stride);
    const unsigned char *rows[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) { // behind the last output: read the last again, write nothing
        long long n = first + i < args.n ? first + i : args.n - 1;
        rows[i] = weight + n * args.weight_stride;
    }
    float sums[ROWS] = {};
    int units = first < args.n ? w_units(args.k) : 0;
    for (int unit = part * 32 + ptx_lane(); unit < units; unit += args.splits * 32) {
        w_raw raw[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            w_load(raw[i], rows[i], unit, args.k);
        }
        float x[16];
        load_run(x, x_row, w_column(unit), args);
        load_run(x + 8, x_row, w_column(unit) + W_GAP, args);
        float x_sums[2] = {sum_of(x), sum_of(x + 8)};
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            sums[i] += w_dot(raw[i], unit, x, x_sums);
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        sums[i] = ptx_warp_sum(sums[i]);
    }
    if (ptx_lane() == 0) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            parts[warp * ROWS + i] = sums[i];
        }
    }
    __syncthreads();
    if (part == 0 && ptx_lane() < ROWS && first + ptx_lane() < args.n) {
        float sum = parts[warp * ROWS + ptx_lane()];
        for (int i = 1; i < args.splits; i++) {
            sum += parts[(warp + i) * ROWS + ptx_lane()];
        }
        const mm_out to = {bias, residual, out, args};
        mm_out_one(to, at, (int)first + ptx_lane(), sum);
    }
}
