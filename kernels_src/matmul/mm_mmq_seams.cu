// mm_mmq_seams: adds up the tiles of a product that mm_mmq's blocks made in parts (mmq_share.cuh),
// in the order of K, + BIAS, + RESIDUAL. A thread makes four outputs. Tiles that one block made
// have left already.
//
// Shared memory: none. Defines: TILE_M, BN, BK as mm_mmq's; ROW_THREADS, threads a block.
#if !defined(TILE_M) || !defined(BN) || !defined(BK) || !defined(ROW_THREADS)
#    error "define TILE_M, BN, BK, ROW_THREADS"
#endif
#include "matmul/mm_args.cuh"
#include "matmul/mm_out.cuh"
#include "matmul/mmq_share.cuh"

// parts (2 * splits, TILE_M, BN) f32. bias (N), residual (S, N), n_tokens (1), or NULL. out (S, N)
// may be residual. Grid: x the pieces of 4 * ROW_THREADS outputs of the first shared tile, then of
// the next, ...: as many tiles as there may be.
extern "C" __global__ void __launch_bounds__(ROW_THREADS) mm_mmq_seams(
        const float *__restrict__ parts, const float *__restrict__ bias, const float *residual,
        float *out, const int *__restrict__ n_tokens, const mm_args args) {
    constexpr int pieces = (TILE_M * BN / 4 + ROW_THREADS - 1) / ROW_THREADS;
    int shared = (int)blockIdx.x / pieces;
    int four = (int)blockIdx.x % pieces * ROW_THREADS + (int)threadIdx.x;
    int rows = n_tokens ? min(*n_tokens, args.rows) : args.rows;
    int row_tiles = mmq_row_tiles(rows);
    mmq_line line = mmq_line_of(row_tiles, args);
    int steps = mmq_steps(args);
    if (shared * steps >= line.steps || four >= TILE_M * BN / 4) {
        return;
    }
    int block = mmq_owner(shared * steps, line);
    int last = mmq_owner(shared * steps + steps - 1, line);
    int tile = line.first + shared;
    long long row = (long long)(tile % row_tiles) * TILE_M + four / (BN / 4);
    int n = tile / row_tiles * BN + four % (BN / 4) * 4;
    if (block == last || row >= rows || n >= args.n) {
        return;
    }
    const float4 *from = (const float4 *)parts + four;
    float4 sum = from[(2ll * block + 1) * (TILE_M * BN / 4)];
    while (++block <= last) {
        float4 part = from[2ll * block * (TILE_M * BN / 4)];
        sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
    }
    mm_out_four({bias, residual, out, args}, row, n, 1.0f, sum);
}
