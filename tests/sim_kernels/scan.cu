// Prefix sums of 512 numbers in one block: Hillis and Steele's (inclusive, a thread an element),
// Blelloch's (exclusive, a thread two).
#define KERNEL(name) extern "C" __global__ void name
#define N            512

KERNEL(scan_hillis_steele)(const int *a, const int *, int *out, int) {
    __shared__ int rows[2][N];
    int thread = threadIdx.x, from = 0;
    rows[0][thread] = a[thread];
    for (int step = 1; step < N; step *= 2) {
        __syncthreads();
        int value = rows[from][thread];
        rows[!from][thread] = thread >= step ? value + rows[from][thread - step] : value;
        from = !from;
    }
    out[thread] = rows[from][thread];
}

KERNEL(scan_blelloch)(const int *a, const int *, int *out, int) {
    __shared__ int tree[N];
    int thread = threadIdx.x;
    tree[2 * thread] = a[2 * thread];
    tree[2 * thread + 1] = a[2 * thread + 1];
    int step = 1;
    for (int active = N / 2; active > 0; active /= 2) {
        __syncthreads();
        if (thread < active) {
            tree[step * (2 * thread + 2) - 1] += tree[step * (2 * thread + 1) - 1];
        }
        step *= 2;
    }
    if (thread == 0) {
        tree[N - 1] = 0;
    }
    for (int active = 1; active < N; active *= 2) {
        step /= 2;
        __syncthreads();
        if (thread < active) {
            int low = step * (2 * thread + 1) - 1, high = step * (2 * thread + 2) - 1;
            int left = tree[low];
            tree[low] = tree[high];
            tree[high] += left;
        }
    }
    // The last step left a pair to the thread that made it.
    out[2 * thread] = tree[2 * thread];
    out[2 * thread + 1] = tree[2 * thread + 1];
}
