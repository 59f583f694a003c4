// mm_f16: OUT (S, N) = IN (S, K) times WEIGHT (N, K) transposed, + BIAS, + RESIDUAL, on the f16
// tensor cores with f32 sums. With MM_GLU two products at once, of a gate and of UP, and OUT =
// act(GATE) * UP (mm_glu.cuh).
//
// Each block makes BM rows by TILE_N outputs (BN, or fewer where blocks would be too few),
// WARPS_M x WARPS_N warps with BM/WARPS_M by TILE_N/WARPS_N each. K goes by in tiles of BK columns
// through a ring of STAGES buffers in shared memory; copies run STAGES - 1 tiles ahead; one barrier
// a tile, before its last step: there the next tile is complete and nobody reads the one before
// this any more, which is refilled.
//
// Activations are f16 with a power-of-two factor a row (mm_rows, mm_glu.cuh). Weights: MM_EXPANDED
// 1: f16 rows of k_padded columns (mm_expand); 0: as in the file, dequantized on the way: their
// bytes rest in registers for one tile, then go to the ring as f16.
//
// MM_GLU: the first half of a tile's TILE_N rows are the gate's, the second the same rows of UP. A
// warp takes 8 of each in turns, so that a thread has both sums of an output; TILE_N / 2 outputs a
// block. The second launch (mm_glu.cuh) has fewer blocks than tiles: each goes over its rows' tiles
// by gridDim.y.
//
// Sums: each output is one chain over K in steps of 16 (sm_75: 8), whatever the geometry.
//
// Shared memory: STAGES times BM rows of activations, then STAGES times TILE_N rows of weights,
// each row BK halves in pieces of 16 bytes, exchanged so that 8 rows of one column lie in 8
// different places (swizzle); over them, at the end, the rows of sums of each warp, 16 at a time
// where the ring has no room for all. Defines: BM, TILE_N, BK, STAGES, WARPS_M, WARPS_N, MIN_BLOCKS
// a multiprocessor, MM_EXPANDED, MM_GLU (0, or of enum kiln_activation), KILN_SMEM; with
// MM_EXPANDED 0 W_TYPE and W_ALIGN.
#if !defined(BM) || !defined(TILE_N) || !defined(BK) || !defined(STAGES) || !defined(WARPS_M) || \
        !defined(WARPS_N) || !defined(MIN_BLOCKS) || !defined(MM_EXPANDED) || !defined(MM_GLU)
#    error "define BM, TILE_N, BK, STAGES, WARPS_M, WARPS_N, MIN_BLOCKS, MM_EXPANDED and MM_GLU"
#endif
#if MM_EXPANDED
#    include "common/ptx.cuh"
#else
#    include "common/dequant.cuh"
#endif
#include "matmul/mm_args.cuh"
#if MM_GLU
#    include "matmul/mm_glu.cuh"
typedef mm_glu results;
#else
#    include "matmul/mm_out.cuh"
typedef mm_out results;
#endif

#define SUMS    (MM_GLU ? 2 : 1) // an output
#define OUTS    (TILE_N / SUMS)  // a block
#define THREADS (WARPS_M * WARPS_N * 32)
#define PIECES  (BK / 8)           // of 16 bytes, a row
#define WM      (BM / WARPS_M)     // a warp's rows
#define WN      (TILE_N / WARPS_N) // and outputs
#define MT      (WM / 16)
#define NT      (WN / 8)
#define QUADS   (WN / SUMS / 4) // four outputs each, a warp's row
#define A_BYTES (BM * BK * 2)   // a stage
#define B_BYTES (TILE_N * BK * 2)
#define RING    (STAGES * (A_BYTES + B_BYTES))

#define OUT_STRIDE (WN + 8) // f32, a row of sums leaving: 8 rows in 8 places for 8-byte stores
#define OUT_16     (WARPS_M * WARPS_N * 16 * OUT_STRIDE * 4) // 16 rows of each warp
// Tiles of 16 rows that leave at once: all where the ring has the room.
#define OUT_TILES (MT * OUT_16 <= RING ? MT : 1)
#define OUT_BYTES (OUT_TILES * OUT_16)
#define TOTAL     (RING > OUT_BYTES ? RING : OUT_BYTES)

static_assert(BK == 32 || BK == 64 || BK == 128, "BK: 32, 64 or 128");
static_assert(STAGES >= 2, "STAGES: at least 2");
static_assert(WM % 16 == 0 && WM > 0, "BM: a multiple of 16 * WARPS_M");
static_assert(WN % 16 == 0 && WN > 0, "TILE_N: a multiple of 16 * WARPS_N");
static_assert(THREADS <= 1024, "at most 32 warps");
static_assert(THREADS % (8 * PIECES) == 0, "threads: a multiple of BK, for whole swizzles");
static_assert(BM * PIECES % THREADS == 0 && TILE_N * PIECES % (2 * THREADS) == 0,
        "BM * BK / 8 must be a multiple of the threads, TILE_N * BK / 16 too");
static_assert((QUADS & (QUADS - 1)) == 0, "a row's quads: a power of two");
static_assert(KILN_SMEM >= TOTAL, "KILN_SMEM: the launcher asks for too little");

// Activations, weights; over them, at the end, sums.
extern "C" __device__ const unsigned kiln_layout_mm_f16[] = {
        TOTAL, 0, STAGES *A_BYTES, STAGES *A_BYTES, STAGES *B_BYTES, 0, OUT_BYTES};

// Where piece `piece` of row `row` lies in a stage.
PTX_INLINE unsigned place(int row, int piece) {
    constexpr int rows_a_line = PIECES >= 8 ? 1 : 8 / PIECES; // a line: all 32 banks
    constexpr int mask = PIECES >= 8 ? 7 : PIECES - 1;
    return (unsigned)(row * PIECES + (piece ^ (row / rows_a_line & mask))) * 16;
}

struct fragments {
    unsigned a[MT][4];
    unsigned b[NT][2];
};

// Step `step` of 16 columns: the warp's rows from m0 on and outputs from n0 on.
PTX_INLINE void load_fragments(
        fragments &f, unsigned a_stage, unsigned b_stage, int m0, int n0, int lane, int step) {
#pragma unroll
    for (int i = 0; i < MT; i++) {
        ptx_ldmatrix_x4(f.a[i], a_stage + place(m0 + i * 16 + lane % 16, 2 * step + lane / 16));
    }
#pragma unroll
    for (int i = 0; i < NT; i += 2) {
        unsigned four[4];
        // Rows of the tile: 16 in a row, or 8 of the gate and 8 of UP.
        int row = MM_GLU ? n0 + i * 4 + lane / 16 * OUTS : n0 + i * 8 + lane / 16 * 8;
        ptx_ldmatrix_x4(four, b_stage + place(row + lane % 8, 2 * step + lane / 8 % 2));
        f.b[i][0] = four[0];
        f.b[i][1] = four[1];
        f.b[i + 1][0] = four[2];
        f.b[i + 1][1] = four[3];
    }
}

// What a thread copies of f16 rows: one piece of every COPY_STEP-th row.
#define COPY_STEP (THREADS / PIECES)
// The steps of a tile among which copies are spread: where few tiles are ahead they go at once.
#define COPY_STEPS (MM_EXPANDED && STAGES > 3 ? BK / 16 - 1 : 1)

static_assert(!MM_GLU || MM_EXPANDED, "MM_GLU: with expanded weights alone");

struct copier {
    const char *from; // the first row's piece, in tile 0
    const char *up;   // the same of UP
    long long step;   // bytes from one of the thread's rows to the next
    int left;         // rows from the first on; those behind read as 0
    unsigned to;      // in a stage
};

PTX_INLINE copier copy_begin(
        const void *halves, const void *up, int thread, int first, int end, long long stride) {
    int row = thread / PIECES;
    int piece = thread % PIECES;
    long long at = (first + row) * stride + piece * 16;
    copier c;
    c.from = (const char *)halves + at;
    c.up = (const char *)up + at;
    c.step = stride * COPY_STEP;
    c.left = end - first - row;
    c.to = place(row, piece);
    return c;
}

// Part `part` of `parts` of the thread's pieces of a tile. Matrices 2: its second half is UP's.
template <int Rows, int Matrices = 1>
PTX_INLINE void copy_tile(const copier &c, unsigned stage, int tile, int part = 0, int parts = 1) {
    constexpr int count = Rows / COPY_STEP;
    constexpr int each = count / Matrices;
    const char *from = c.from + (long long)tile * (BK * 2);
    const char *up = c.up + (long long)tile * (BK * 2);
#pragma unroll
    for (int i = 0; i < count; i++) {
        if (i * parts / count == part) {
            ptx_cp_async_16(stage + c.to + i * (COPY_STEP * BK * 2),
                    (i < each ? from : up) + i % each * c.step, i % each * COPY_STEP < c.left);
        }
    }
}

#if !MM_EXPANDED
// A thread takes whole units where a tile holds both runs, else single runs.
constexpr bool whole = 2 * W_GAP <= BK;
constexpr int pieces_each = TILE_N * PIECES / THREADS;
constexpr int units_each = whole ? pieces_each / 2 : pieces_each;

struct weights {
    const unsigned char *row;
    int n0;
    w_raw raw[units_each];
};

PTX_INLINE void weights_begin(weights &w, const void *from, int n0) {
    w.row = (const unsigned char *)from;
    w.n0 = n0;
}

// Which unit thread's i-th is: its row in the tile, number, run and piece.
PTX_INLINE int weights_at(int i, int tile, int &unit, int &run, int &piece) {
    int at = i * THREADS + (int)threadIdx.x;
    if (whole) {
        unit = at % (PIECES / 2) + tile * (PIECES / 2);
        run = 0;
        piece = w_column(unit) / 8 - tile * PIECES;
        return at / (PIECES / 2);
    }
    piece = at % PIECES;
    unit = w_unit_of(tile * PIECES + piece, run);
    return at / PIECES;
}

PTX_INLINE void weights_load(weights &w, int tile, const mm_args &args) {
#    pragma unroll
    for (int i = 0; i < units_each; i++) {
        int unit;
        int run;
        int piece;
        int row = weights_at(i, tile, unit, run, piece);
        if (w.n0 + row < args.n && w_column(unit) < args.k) {
            w_load(w.raw[i], w.row + (w.n0 + row) * args.weight_stride, unit, args.k);
        }
    }
}

// What weights_load has read for the same tile.
PTX_INLINE void weights_store(const weights &w, unsigned stage, int tile, const mm_args &args) {
#    pragma unroll
    for (int i = 0; i < units_each; i++) {
        int unit;
        int run;
        int piece;
        int row = weights_at(i, tile, unit, run, piece);
        bool valid = w.n0 + row < args.n && w_column(unit) < args.k;
        uint4 zero = make_uint4(0, 0, 0, 0);
        ptx_store_shared_v4(
                stage + place(row, piece), valid ? w_halves(w.raw[i], unit, run) : zero);
        if (whole) {
            ptx_store_shared_v4(stage + place(row, piece + W_GAP / 8),
                    valid ? w_halves(w.raw[i], unit, 1) : zero);
        }
    }
}
#endif

// The quad-th four outputs of a warp's row, of which `sums` are the sums. out0: the warp's first;
// rows: end of those in use. The whole warp.
PTX_INLINE void out_four(const results &to, const float *scales, int row, int rows, int out0,
        int quad, const float *sums) {
    float factor = scales && row < rows ? scales[(long long)row * to.args.scale_step] : 1.0f;
#if MM_GLU
    const float *gate = sums + quad / 2 * 16 + quad % 2 * 4;
    float largest = 0;
    if (row < rows) {
        float4 up = *(const float4 *)(gate + 8);
        largest = mm_glu_four(to, row, out0 + quad * 4, factor, *(const float4 *)gate, up);
    }
    mm_glu_note<(QUADS < 32 ? QUADS : 32)>(to, row, largest);
#else
    if (row < rows) {
        mm_out_four(to, row, out0 + quad * 4, factor, *(const float4 *)(sums + quad * 4));
    }
#endif
}

// Each warp takes its sums through a piece of shared memory of its own, so that rows leave whole.
// row0, out0: the warp's first; rows: end of those in use.
PTX_INLINE void leave(const float (&sums)[MT][NT][4], float *piece, const results &to,
        const float *scales, int lane, int row0, int rows, int out0) {
    __syncthreads(); // the ring is free
#pragma unroll
    for (int first = 0; first < MT; first += OUT_TILES) {
#pragma unroll
        for (int i = 0; i < OUT_TILES; i++) {
#pragma unroll
            for (int j = 0; j < NT; j++) {
                float *at = piece + (i * 16 + lane / 4) * OUT_STRIDE + j * 8 + lane % 4 * 2;
                const float(&four)[4] = sums[first + i][j];
                *(float2 *)at = make_float2(four[0], four[1]);
                *(float2 *)(at + 8 * OUT_STRIDE) = make_float2(four[2], four[3]);
            }
        }
        __syncwarp();
#pragma unroll 2
        for (int at = lane; at < OUT_TILES * 16 * QUADS; at += 32) {
            out_four(to, scales, row0 + first * 16 + at / QUADS, rows, out0, at % QUADS,
                    piece + at / QUADS * OUT_STRIDE);
        }
        __syncwarp();
    }
}

struct operands {
    const uint4 *halves;
    const float *scales;
    const void *weight, *up_weight;
};

// The rows from first_row on, of those in use, times the outputs from first_out on.
PTX_INLINE void make_tile(const operands &from, const results &to, unsigned char *shared,
        int first_row, int rows, int first_out) {
    const mm_args &args = to.args;
    unsigned a_at = ptx_shared(shared);
    unsigned b_at = a_at + STAGES * A_BYTES;
    int tiles = (args.k + BK - 1) / BK; // k_padded holds them all
    int thread = (int)threadIdx.x;
#if MM_GLU // what is reckoned from it need not wait in registers for the block's next tile
    asm volatile("" : "+r"(thread));
#endif
    int warp = thread / 32;
    int lane = ptx_lane();
    int m0 = warp / WARPS_N * WM;
    int n0 = warp % WARPS_N * (WN / SUMS);
    copier a_copy =
            copy_begin(from.halves, from.halves, thread, first_row, rows, args.halves_stride);
#if MM_EXPANDED
    copier b_copy = copy_begin(from.weight, MM_GLU ? from.up_weight : from.weight, thread,
            first_out, args.n, (long long)args.k_padded * 2);
#else
    weights w;
    weights_begin(w, from.weight, first_out);
#endif

#if !MM_EXPANDED
    weights_load(w, 0, args);
#endif
#pragma unroll 1
    for (int tile = 0; tile < STAGES - 1; tile++) {
        if (tile < tiles) {
            copy_tile<BM>(a_copy, a_at + tile * A_BYTES, tile);
#if MM_EXPANDED
            copy_tile<TILE_N, SUMS>(b_copy, b_at + tile * B_BYTES, tile);
#else
            weights_store(w, b_at + tile * B_BYTES, tile, args);
            weights_load(w, tile + 1, args);
#endif
        }
        ptx_cp_async_commit();
    }
    float sums[MT][NT][4] = {};
    fragments f[2];
    ptx_cp_async_wait<STAGES - 2>();
    __syncthreads();
    load_fragments(f[0], a_at, b_at, m0, n0, lane, 0);

    int stage = 0;
    int free_stage = STAGES - 1;
#pragma unroll 1
    for (int tile = 0; tile < tiles; tile++) {
        int next = stage + 1 < STAGES ? stage + 1 : 0;
        int ahead = tile + STAGES - 1;
#pragma unroll
        for (int step = 0; step < BK / 16; step++) {
            if (step == BK / 16 - 1) {
#if !MM_EXPANDED
                if (ahead < tiles) {
                    weights_store(w, b_at + free_stage * B_BYTES, ahead, args);
                }
                if (ahead + 1 < tiles) {
                    weights_load(w, ahead + 1, args);
                }
#endif
                ptx_cp_async_wait<STAGES - 2>();
                __syncthreads();
                if (tile + 1 < tiles) {
                    load_fragments(f[(step + 1) % 2], a_at + next * A_BYTES, b_at + next * B_BYTES,
                            m0, n0, lane, 0);
                }
            } else {
                load_fragments(f[(step + 1) % 2], a_at + stage * A_BYTES, b_at + stage * B_BYTES,
                        m0, n0, lane, step + 1);
            }
            if (step < COPY_STEPS && ahead < tiles) {
                copy_tile<BM>(a_copy, a_at + free_stage * A_BYTES, ahead, step, COPY_STEPS);
#if MM_EXPANDED
                copy_tile<TILE_N, SUMS>(
                        b_copy, b_at + free_stage * B_BYTES, ahead, step, COPY_STEPS);
#endif
            }
            if (step == COPY_STEPS - 1) {
                ptx_cp_async_commit();
            }
#pragma unroll
            for (int i = 0; i < MT; i++) {
#pragma unroll
                for (int at = 0; at < NT; at++) { // there and back: weights stay at a turn
                    int j = i % 2 == 0 ? at : NT - 1 - at;
                    ptx_mma_f16(
                            sums[i][j], f[step % 2].a[i], f[step % 2].b[j][0], f[step % 2].b[j][1]);
                }
            }
        }
        free_stage = stage;
        stage = next;
    }

    leave(sums, (float *)shared + warp * (OUT_TILES * 16 * OUT_STRIDE), to, from.scales, lane,
            first_row + m0, rows, first_out + n0);
}

// halves (S) rows of k_padded f16, scales (S): mm_rows or mm_glu, or NULL: all 1. weight: (N,
// k_padded) f16 or (N, K) as in the file. bias (N), residual (S, N), n_tokens (1), or NULL. out (S,
// N) may be residual. With MM_GLU up_weight (N, k_padded) and up_bias (N) or NULL, no residual, and
// largest (S) where args.out_rows says so, else NULL. Grid: x rows, y outputs.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
        mm_f16(const uint4 *__restrict__ halves, const float *__restrict__ scales,
                const void *__restrict__ weight, const float *__restrict__ bias,
                const void *__restrict__ up_weight, const float *__restrict__ up_bias,
                const float *residual, float *out, const int *__restrict__ n_tokens,
#if MM_GLU
                unsigned *largest,
#endif
                const mm_args args) {
    extern __shared__ __align__(128) unsigned char shared[];
    int rows = n_tokens ? min(*n_tokens, args.rows) : args.rows;
    int first_row = (int)blockIdx.x * BM;
    int first_out = (int)blockIdx.y * OUTS;
    if (first_row >= rows) {
        return;
    }
    const operands from = {halves, scales, weight, up_weight};
#if MM_GLU
    const results to = {bias, up_bias, out, largest, args};
    if (args.again && !mm_glu_again(to, first_row, BM, rows)) {
        return;
    }
#    pragma unroll 1
    for (;;) {
        make_tile(from, to, shared, first_row, rows, first_out);
        first_out += (int)gridDim.y * OUTS;
        if (!args.again || first_out >= args.n) {
            return;
        }
        __syncthreads(); // all sums have left
    }
#else
    const results to = {bias, residual, out, args};
    make_tile(from, to, shared, first_row, rows, first_out);
#endif
}
