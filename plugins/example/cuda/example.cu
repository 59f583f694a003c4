// norm_rows: OUT (S, D) = RESIDUAL (S, D) + IN (S, D) / rms(IN) * WEIGHT (D). One block a row.
//
// kiln compiles this with the geometry in force: THREADS, threads a block.
#ifndef THREADS
#    error "THREADS is not defined"
#endif
static_assert(THREADS % 32 == 0 && THREADS <= 1024, "THREADS: whole warps, 1024 at most");

struct params { // as in example.c
    long long columns;
    long long in_stride, residual_stride, out_stride; // elements from row to row
    double eps;
};

extern "C" __global__ void __launch_bounds__(THREADS) norm_rows(const params p, const float *in,
        const float *weight, const float *residual, float *out, const int *n_tokens) {
    __shared__ float of_warp[THREADS / 32];
    long long row = blockIdx.x;
    if (n_tokens && row >= *n_tokens) { // the grid is a bound: rows behind are not in use
        return;
    }
    const float *from = in + row * p.in_stride;
    float sum = 0;
    for (long long i = threadIdx.x; i < p.columns; i += THREADS) {
        sum += from[i] * from[i];
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    sum = 0;
    for (int i = 0; i < THREADS / 32; i++) { // in order, so that a run repeats bit for bit
        sum += of_warp[i];
    }
    float factor = 1.0f / sqrtf(sum / (float)p.columns + (float)p.eps);
    for (long long i = threadIdx.x; i < p.columns; i += THREADS) {
        float value = from[i] * factor * weight[i];
        out[row * p.out_stride + i] =
                residual ? residual[row * p.residual_stride + i] + value : value;
    }
}
