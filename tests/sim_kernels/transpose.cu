// out (COLUMNS, ROWS) = a (ROWS, COLUMNS) transposed: straight, through a tile whose columns lie in
// one bank, through a padded one. Blocks of 32 x 8 threads, a tile of 32 x 32 each.
#define KERNEL(name) extern "C" __global__ void name
#define ROWS         45
#define COLUMNS      70

KERNEL(transpose_naive)(const float *a, const float *, float *out, int) {
    int column = blockIdx.x * 32 + threadIdx.x;
    for (int i = threadIdx.y; i < 32; i += 8) {
        int row = blockIdx.y * 32 + i;
        if (row < ROWS && column < COLUMNS) {
            out[column * ROWS + row] = a[row * COLUMNS + column];
        }
    }
}

template <int Stride> static __device__ void through_tile(const float *a, float *out) {
    __shared__ float tile[32 * Stride];
    int first_row = blockIdx.y * 32, first_column = blockIdx.x * 32, x = threadIdx.x;
    for (int i = threadIdx.y; i < 32; i += 8) {
        if (first_row + i < ROWS && first_column + x < COLUMNS) {
            tile[i * Stride + x] = a[(first_row + i) * COLUMNS + first_column + x];
        }
    }
    __syncthreads();
    for (int i = threadIdx.y; i < 32; i += 8) {
        if (first_row + x < ROWS && first_column + i < COLUMNS) {
            out[(first_column + i) * ROWS + first_row + x] = tile[x * Stride + i];
        }
    }
}

KERNEL(transpose_tiled)(const float *a, const float *, float *out, int) {
    through_tile<32>(a, out);
}

KERNEL(transpose_padded)(const float *a, const float *, float *out, int) {
    through_tile<33>(a, out);
}
