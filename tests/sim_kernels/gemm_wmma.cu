// out (32, 16) = a (32, 64) times b (16, 64) transposed, by CUDA's wmma: a warp and block 16 x 16.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

extern "C" __global__ void gemm_wmma(const half *a, const half *b, float *out, int) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k = 0; k < 64; k += 16) {
        wmma::load_matrix_sync(left, a + blockIdx.y * 16 * 64 + k, 64);
        wmma::load_matrix_sync(right, b + k, 64);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(out + blockIdx.y * 16 * 16, sum, 16, wmma::mem_row_major);
}
