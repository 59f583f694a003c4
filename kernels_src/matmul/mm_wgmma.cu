// mm_wgmma: the same product as mm_f16 with expanded weights, on Hopper's own instructions: one
// warpgroup of producers has the copy engine fill a ring of STAGES tiles; BM / 64 warpgroups of
// consumers multiply, 64 rows by BN outputs each. With MM_GLU two products at once, of a gate and
// of UP, and OUT = act(GATE) * UP (mm_glu.cuh): BN / 2 rows of the gate's weights and the same of
// UP's, for BN / 2 outputs. The second launch (mm_glu.cuh) has fewer blocks than tiles: each goes
// over its rows' tiles by gridDim.y.
//
// Each buffer of the ring has two barriers: `full` (its bytes are there) and `empty` (every
// consuming warp is done with it). A consumer keeps one tile's products under way while it waits
// for the next. Registers go from the producers, which need few, to the consumers, which hold all
// sums.
//
// A tile has 64 columns: a row of it is 128 bytes, the swizzle's width.
//
// Sums: each output is one chain over K in steps of 16.
//
// Shared memory: STAGES times BM rows of activations, then STAGES times BN rows of weights, each
// row 128 bytes; over them, at the end, 16 rows of sums for each consuming warp; then the barriers.
// Defines: BM, BN, STAGES, MM_GLU (0, or of enum kiln_activation), KILN_SMEM.
#if !defined(BM) || !defined(BN) || !defined(STAGES) || !defined(MM_GLU)
#    error "define BM, BN, STAGES and MM_GLU"
#endif
#include "common/hopper.cuh"
#include "matmul/mm_args.cuh"
#if MM_GLU
#    include "matmul/mm_glu.cuh"
typedef mm_glu results;
#else
#    include "matmul/mm_out.cuh"
typedef mm_out results;
#endif

#define BK         64
#define SUMS       (MM_GLU ? 2 : 1) // an output
#define OUTS       (BN / SUMS)      // a block
#define QUADS      (OUTS / 4)       // four outputs each, a row
#define CONSUMERS  (BM / 64)
#define THREADS    ((CONSUMERS + 1) * 128)
#define A_BYTES    (BM * BK * 2) // a stage
#define B_BYTES    (BN * BK * 2)
#define RING       (STAGES * (A_BYTES + B_BYTES))
#define OUT_STRIDE (BN + 8) // f32, a row of sums leaving: 8 rows in 8 places for 8-byte stores
#define OUT_BYTES  (CONSUMERS * 4 * 16 * OUT_STRIDE * 4)
#define BODY       (RING > OUT_BYTES ? RING : OUT_BYTES)
#define TOTAL      (BODY + STAGES * 16)
// What is left of 64 K registers when the producers keep 40, in steps of 8, 232 at most.
#define PRODUCER_REGISTERS 40
#define CONSUMER_REGISTERS (CONSUMERS <= 2 ? 232 : 152)

static_assert(BM == 64 || BM == 128 || BM == 192, "BM: 64, 128 or 192");
static_assert(BN == 128 || BN == 256, "BN: 128 or 256");
static_assert(BN == 128 || CONSUMERS <= 2, "BN 256: BM at most 128, or the sums do not fit");
static_assert(STAGES >= 2, "STAGES: at least 2");
static_assert(KILN_SMEM >= TOTAL, "KILN_SMEM: the launcher asks for too little");

// Activations, weights; over them, at the end, sums; barriers.
extern "C" __device__ const unsigned kiln_layout_mm_wgmma[] = {TOTAL, 0, STAGES *A_BYTES,
        STAGES *A_BYTES, STAGES *B_BYTES, 0, OUT_BYTES, BODY, STAGES * 16};

PTX_INLINE void multiply(float (&sums)[BN / 2], unsigned a, unsigned b) {
#if BN == 128
    hopper_wgmma_n128(sums, hopper_matrix(a), hopper_matrix(b));
#else
    hopper_wgmma_n256(sums, hopper_matrix(a), hopper_matrix(b));
#endif
}

struct ring {
    unsigned a, b, full, empty;
};

// Where a side is in the ring, from tile to tile.
struct place {
    int stage;
    unsigned parity;
};

PTX_INLINE void move_on(place &at) {
    at.stage = at.stage + 1 < STAGES ? at.stage + 1 : 0;
    at.parity ^= at.stage == 0;
}

// Has the copy engine fill the ring, tile after tile; one thread. up: with MM_GLU alone.
PTX_INLINE void produce(const ring &r, const hopper_map &halves, const hopper_map &weight,
        const hopper_map &up, place &at, int row, int out, int tiles) {
#pragma unroll 1
    for (int tile = 0; tile < tiles; tile++) {
        int stage = at.stage;
        bulk_wait(r.empty + stage * 8, at.parity);
        bulk_arrive_expect(r.full + stage * 8, A_BYTES + B_BYTES);
        hopper_copy_2d(r.a + stage * A_BYTES, halves, tile * BK, row, r.full + stage * 8);
        hopper_copy_2d(r.b + stage * B_BYTES, weight, tile * BK, out, r.full + stage * 8);
#if MM_GLU
        hopper_copy_2d(r.b + stage * B_BYTES + B_BYTES / 2, up, tile * BK, out, r.full + stage * 8);
#endif
        move_on(at);
    }
}

// Multiplies all tiles; a's rows are this warpgroup's.
PTX_INLINE void consume(const ring &r, place &at, float (&sums)[BN / 2], unsigned a, int tiles) {
    int before = 0;
#pragma unroll 1 // else the compiler peels the first turn off, and takes twice as long
    for (int tile = 0; tile < tiles; tile++) {
        int stage = at.stage;
        bulk_wait(r.full + stage * 8, at.parity);
        hopper_wgmma_begin();
#pragma unroll
        for (int step = 0; step < BK / 16; step++) {
            multiply(sums, a + stage * A_BYTES + step * 32, r.b + stage * B_BYTES + step * 32);
        }
        hopper_wgmma_commit();
        hopper_wgmma_wait<1>(); // the tile before is done
        if (tile > 0 && threadIdx.x % 32 == 0) {
            bulk_arrive(r.empty + before * 8);
        }
        before = stage;
        move_on(at);
    }
    hopper_wgmma_wait<0>();
    if (MM_GLU && threadIdx.x % 32 == 0) { // for the block's next tile
        bulk_arrive(r.empty + before * 8);
    }
}

// A warp's 16 rows leave through a piece of shared memory, as in mm_f16. row0: its first; rows: end
// of those in use; out0: the block's first output.
PTX_INLINE void leave(const float (&sums)[BN / 2], float *piece, const results &to,
        const float *scales, int row0, int rows, int out0) {
    int lane = ptx_lane();
#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
        float *at = piece + lane / 4 * OUT_STRIDE + j * 8 + lane % 4 * 2;
        *(float2 *)at = make_float2(sums[4 * j], sums[4 * j + 1]);
        *(float2 *)(at + 8 * OUT_STRIDE) = make_float2(sums[4 * j + 2], sums[4 * j + 3]);
    }
    __syncwarp();
#pragma unroll 2
    for (int at = lane; at < 16 * QUADS; at += 32) {
        int row = row0 + at / QUADS;
        int column = at % QUADS * 4;
        const float *four = piece + at / QUADS * OUT_STRIDE + column;
        float factor = scales && row < rows ? scales[(long long)row * to.args.scale_step] : 1.0f;
#if MM_GLU
        float largest = 0;
        if (row < rows) {
            float4 up = *(const float4 *)(four + OUTS);
            largest = mm_glu_four(to, row, out0 + column, factor, *(const float4 *)four, up);
        }
        mm_glu_note<(QUADS < 32 ? QUADS : 32)>(to, row, largest);
#else
        if (row < rows) {
            mm_out_four(to, row, out0 + column, factor, *(const float4 *)four);
        }
#endif
    }
}

// Between two tiles of a block, if there is another: no copy overwrites sums that have not left.
PTX_INLINE bool go_on(bool there_is_one) {
    if (there_is_one) {
        __syncwarp(); // one thread of the producers was elsewhere
        bulk_written();
        bulk_sync_some(2, THREADS);
    }
    return there_is_one;
}

// halves: map of (S, k_padded) f16 in boxes of BM rows; weight: of (N, k_padded) f16 in boxes of
// BN; both 64 columns. scales (S) or NULL: all 1. bias (N), residual (S, N), n_tokens (1), or NULL.
// out (S, N) may be residual. With MM_GLU boxes of BN / 2, a second weight and bias, of UP, no
// residual, and largest (S) where args.out_rows says so, else NULL. Grid: x rows, y outputs.
extern "C" __global__ void __launch_bounds__(THREADS, 1) mm_wgmma(
        const __grid_constant__ hopper_map halves, const float *__restrict__ scales,
        const __grid_constant__ hopper_map weight, const float *__restrict__ bias,
#if MM_GLU
        const __grid_constant__ hopper_map up_weight, const float *__restrict__ up_bias, float *out,
#else
        const float *residual, float *out,
#endif
        const int *__restrict__ n_tokens,
#if MM_GLU
        unsigned *largest,
#endif
        const mm_args args) {
    extern __shared__ __align__(1024) unsigned char shared[];
    int rows = n_tokens ? min(*n_tokens, args.rows) : args.rows;
    int first_row = (int)blockIdx.x * BM;
    int first_out = (int)blockIdx.y * OUTS;
    if (first_row >= rows) {
        return;
    }
#if MM_GLU
    const results to = {bias, up_bias, out, largest, args};
    const hopper_map &second = up_weight;
    if (args.again && !mm_glu_again(to, first_row, BM, rows)) {
        return;
    }
    int step = args.again ? (int)gridDim.y * OUTS : args.n; // to the next of the block's tiles
#else
    const results to = {bias, residual, out, args};
    const hopper_map &second = weight;
    int step = args.n;
#endif
    int tiles = (args.k + BK - 1) / BK;
    ring r;
    r.a = ptx_shared(shared);
    r.b = r.a + STAGES * A_BYTES;
    r.full = r.a + BODY;
    r.empty = r.full + STAGES * 8;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            bulk_barrier_begin(r.full + stage * 8, 1);
            bulk_barrier_begin(r.empty + stage * 8, CONSUMERS * 4);
        }
        bulk_barriers_begun();
    }
    __syncthreads();
    int group = (int)threadIdx.x / 128;
    if (group == CONSUMERS) {
        if (CONSUMERS > 1) { // one group of consumers has enough anyway
            hopper_give_registers<PRODUCER_REGISTERS>();
        }
        if (threadIdx.x % 128 == 0) {
            hopper_prefetch_map(halves);
            hopper_prefetch_map(weight);
#if MM_GLU
            hopper_prefetch_map(second);
#endif
        }
        place at = {0, 1}; // the buffers are empty
#pragma unroll 1
        do {
            if (threadIdx.x % 128 == 0) {
                produce(r, halves, weight, second, at, first_row, first_out, tiles);
            }
            first_out += step;
        } while (MM_GLU && go_on(first_out < args.n));
    } else {
        if (CONSUMERS > 1) {
            hopper_take_registers<CONSUMER_REGISTERS>();
        }
        int warp = (int)threadIdx.x / 32;
        float *piece = (float *)shared + warp * (16 * OUT_STRIDE);
        place at = {0, 0};
#pragma unroll 1
        do {
            float sums[BN / 2];
#pragma unroll
            for (int i = 0; i < BN / 2; i++) {
                sums[i] = 0;
            }
            consume(r, at, sums, r.a + group * (64 * BK * 2), tiles);
            // Nobody reads the ring any more after this barrier.
            bulk_sync_some(1, CONSUMERS * 128);
            leave(sums, piece, to, scales, first_row + warp * 16, rows, first_out);
            first_out += step;
        } while (MM_GLU && go_on(first_out < args.n));
    }
}
