// Sums: over a block through shared memory, through shuffles, over the grid through atomics. Blocks
// of 256 threads.
#define KERNEL(name) extern "C" __global__ void name

KERNEL(reduce_shared)(const float *a, const float *, float *out, int n) {
    __shared__ float sum[256];
    int thread = threadIdx.x, i = blockIdx.x * 256 + thread;
    sum[thread] = i < n ? a[i] : 0;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) {
            sum[thread] += sum[thread + half];
        }
        __syncwarp();
    }
    if (thread == 0) {
        out[blockIdx.x] = sum[0];
    }
}

KERNEL(reduce_shuffle)(const float *a, const float *, float *out, int n) {
    __shared__ float of_warp[8];
    int thread = threadIdx.x, i = blockIdx.x * 256 + thread;
    float sum = i < n ? a[i] : 0;
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, step);
    }
    if (thread % 32 == 0) {
        of_warp[thread / 32] = sum;
    }
    __syncthreads();
    if (thread < 8) {
        sum = of_warp[thread];
        for (int step = 4; step > 0; step /= 2) {
            sum += __shfl_down_sync(0xffu, sum, step, 8);
        }
        if (thread == 0) {
            out[blockIdx.x] = sum;
        }
    }
}

KERNEL(reduce_atomic)(const int *a, const int *, int *out, int n) {
    __shared__ int sum;
    int i = blockIdx.x * 256 + threadIdx.x;
    if (threadIdx.x == 0) {
        sum = 0;
    }
    __syncthreads();
    if (i < n) {
        atomicAdd(&sum, a[i]);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(out, sum);
    }
}
