// out (M, N) = a (M, K) times b (K, N), f32: a thread an element; through tiles of 16 x 16. Blocks
// of 16 x 16 threads.
#define KERNEL(name) extern "C" __global__ void name
#define M            33
#define N            45
#define K            50

KERNEL(gemm_naive)(const float *a, const float *b, float *out, int) {
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    if (row < M && column < N) {
        float sum = 0;
        for (int k = 0; k < K; k++) {
            sum += a[row * K + k] * b[k * N + column];
        }
        out[row * N + column] = sum;
    }
}

KERNEL(gemm_tiled)(const float *a, const float *b, float *out, int) {
    __shared__ float a_tile[16][16], b_tile[16][16];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    for (int first = 0; first < K; first += 16) {
        a_tile[y][x] = row < M && first + x < K ? a[row * K + first + x] : 0;
        b_tile[y][x] = first + y < K && column < N ? b[(first + y) * N + column] : 0;
        __syncthreads();
        for (int k = 0; k < 16; k++) {
            sum += a_tile[y][k] * b_tile[k][x];
        }
        __syncthreads();
    }
    if (row < M && column < N) {
        out[row * N + column] = sum;
    }
}
