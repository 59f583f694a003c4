// Of integers: histogram, sorting, compaction, dot products of bytes; a convolution; and a
// hand-over between warps through a named barrier.
#define KERNEL(name) extern "C" __global__ void name
#define EVERY        0xffffffffu

// Values below 64, blocks of 128 threads.
KERNEL(histogram)(const int *a, const int *, int *out, int n) {
    __shared__ int bins[64];
    if (threadIdx.x < 64) {
        bins[threadIdx.x] = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) {
        atomicAdd(&bins[a[i]], 1);
    }
    __syncthreads();
    if (threadIdx.x < 64) {
        atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
    }
}

// 512 numbers, 256 threads, a pair each.
KERNEL(bitonic_sort)(const int *a, const int *, int *out, int) {
    __shared__ int row[512];
    int thread = threadIdx.x;
    row[thread] = a[thread];
    row[thread + 256] = a[thread + 256];
    for (int size = 2; size <= 512; size *= 2) {
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            int low = thread / step * 2 * step + thread % step, high = low + step;
            int up = (low & size) == 0, x = row[low], y = row[high];
            if ((x > y) == up) {
                row[low] = y;
                row[high] = x;
            }
        }
    }
    __syncthreads();
    out[thread] = row[thread];
    out[thread + 256] = row[thread + 256];
}

// The positive ones of 256 in their order, behind how many there are.
KERNEL(compact)(const int *a, const int *, int *out, int) {
    __shared__ int of_warp[8];
    int thread = threadIdx.x, warp = thread / 32, value = a[thread];
    unsigned kept = __ballot_sync(EVERY, value > 0);
    if (thread % 32 == 0) {
        of_warp[warp] = __popc(kept);
    }
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < 8; w++) {
        before += w < warp ? of_warp[w] : 0;
        all += of_warp[w];
    }
    if (thread == 0) {
        out[0] = all;
    }
    if (value > 0) {
        out[1 + before + __popc(kept & ((1u << thread % 32) - 1))] = value;
    }
}

// Row i of a (n, 64 bytes) with b, a thread a row.
KERNEL(dot_dp4a)(const int *a, const int *b, int *out, int n) {
    int row = blockIdx.x * 64 + threadIdx.x;
    if (row < n) {
        int sum = 0;
        for (int i = 0; i < 16; i++) {
            sum = __dp4a(a[row * 16 + i], b[i], sum);
        }
        out[row] = sum;
    }
}

// 7 taps b around each of n numbers, zeros outside. Blocks of 128 threads, a halo of 3 on each
// side.
KERNEL(convolution)(const float *a, const float *b, float *out, int n) {
    __shared__ float row[128 + 6];
    int first = blockIdx.x * 128;
    for (int i = threadIdx.x; i < 128 + 6; i += 128) {
        int from = first + i - 3;
        row[i] = from >= 0 && from < n ? a[from] : 0;
    }
    __syncthreads();
    if (first + (int)threadIdx.x < n) {
        float sum = 0;
        for (int tap = 0; tap < 7; tap++) {
            sum += row[threadIdx.x + tap] * b[tap];
        }
        out[first + threadIdx.x] = sum;
    }
}

// The first warp brings, arrives and ends; the second waits and takes.
KERNEL(hand_over)(const int *a, const int *, int *out, int) {
    __shared__ int row[32];
    if (threadIdx.x < 32) {
        row[threadIdx.x] = a[threadIdx.x];
        asm volatile("bar.arrive 1, 64;" : : : "memory");
    } else {
        asm volatile("bar.sync 1, 64;" : : : "memory");
        out[threadIdx.x - 32] = row[63 - threadIdx.x];
    }
}
