// A row at a time: softmax in one pass, layer norm, matrix times vector, causal attention.
#define KERNEL(name) extern "C" __global__ void name
#define COLUMNS      100
#define EVERY        0xffffffffu

static __device__ float sum_of_warp(float value) {
    for (int mask = 16; mask > 0; mask /= 2) {
        value += __shfl_xor_sync(EVERY, value, mask);
    }
    return value;
}

// A warp and block a row: maximum and sum of e^(x - maximum) so far, joined between lanes.
KERNEL(softmax_online)(const float *a, const float *, float *out, int) {
    const float *row = a + blockIdx.x * COLUMNS;
    float most = -1e30f, sum = 0;
    for (int i = threadIdx.x; i < COLUMNS; i += 32) {
        float x = row[i], larger = fmaxf(most, x);
        sum = sum * expf(most - larger) + expf(x - larger);
        most = larger;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
        float other = __shfl_xor_sync(EVERY, most, mask);
        float other_sum = __shfl_xor_sync(EVERY, sum, mask);
        float larger = fmaxf(most, other);
        sum = sum * expf(most - larger) + other_sum * expf(other - larger);
        most = larger;
    }
    for (int i = threadIdx.x; i < COLUMNS; i += 32) {
        out[blockIdx.x * COLUMNS + i] = expf(row[i] - most) / sum;
    }
}

// A block of 128 threads a row; b: a factor a column.
KERNEL(layer_norm)(const float *a, const float *b, float *out, int) {
    __shared__ float of_warp[2][4];
    int i = threadIdx.x, warp = i / 32;
    float x = i < COLUMNS ? a[blockIdx.x * COLUMNS + i] : 0;
    float sum = sum_of_warp(x), squares = sum_of_warp(x * x);
    if (i % 32 == 0) {
        of_warp[0][warp] = sum;
        of_warp[1][warp] = squares;
    }
    __syncthreads();
    sum = squares = 0;
    for (int w = 0; w < 4; w++) {
        sum += of_warp[0][w];
        squares += of_warp[1][w];
    }
    float mean = sum / COLUMNS, variance = squares / COLUMNS - mean * mean;
    if (i < COLUMNS) {
        out[blockIdx.x * COLUMNS + i] = (x - mean) * rsqrtf(variance + 1e-5f) * b[i];
    }
}

// A warp a row, 4 a block; n rows.
KERNEL(matvec)(const float *a, const float *b, float *out, int n) {
    int row = blockIdx.x * 4 + threadIdx.x / 32;
    if (row >= n) {
        return;
    }
    float sum = 0;
    for (int i = threadIdx.x % 32; i < COLUMNS; i += 32) {
        sum += a[row * COLUMNS + i] * b[i];
    }
    sum = sum_of_warp(sum);
    if (threadIdx.x % 32 == 0) {
        out[row] = sum;
    }
}

// A warp and block a query, a lane a column of a head of 32. a: queries (n, 32); b: keys, then
// values.
KERNEL(attention)(const float *a, const float *b, float *out, int n) {
    int query = blockIdx.x, lane = threadIdx.x;
    float q = a[query * 32 + lane], most = -1e30f, sum = 0, value = 0;
    for (int key = 0; key <= query; key++) {
        float score = sum_of_warp(q * b[key * 32 + lane]) * 0.17677669f;
        float larger = fmaxf(most, score), old = expf(most - larger), weight = expf(score - larger);
        sum = sum * old + weight;
        value = value * old + weight * b[(n + key) * 32 + lane];
        most = larger;
    }
    out[query * 32 + lane] = value / sum;
}
