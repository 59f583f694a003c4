// mm_mmq: OUT (S, N) = IN (S, K) times WEIGHT (N, K) transposed, + BIAS, + RESIDUAL, on the int8
// tensor cores: activations as blocks of 8-bit integers (common/q8.cuh), block weights as signed
// bytes with f32 factors (mmq_weights.cuh).
//
// Each block makes TILE_M rows by BN outputs. SPREAD_M x SPREAD_N warps multiply; PRODUCERS warps
// fill a ring of STAGES tiles of BK columns in shared memory, so that neither waits for the other's
// instructions: what a tile costs to bring and to recombine runs beside the products. Each buffer
// of the ring has two named barriers: full (its tile is there) and empty (all have multiplied it).
// The producers hold the bytes of the next tile in registers while they wait for a buffer (A_ASYNC
// 1: activations fly to the ring by cp.async), and fetch each piece of it as soon as that of the
// tile before is stored. Weights become bytes on their way into the ring;
// with MMQ_EXPANDED 1 they are so already (mm_mmq_expand), and nothing is left to recombine.
//
// An integer sum I of 32 columns (q6_K: of 16) must meet its scales before the next is begun. The
// products begin not from 0 but from the bits of 1.5 * 2^23 as a float: then their bits are the
// float 1.5 * 2^23 + I, and fma(that, factor, -1.5 * 2^23 * factor) is factor * I, rounded once,
// with no conversion: the constant is exact, as a factor has at most 20 significant bits. A second
// fma takes it times the activations' scale into the sum; a third adds the minimum.
//
// Sums: each output is one f32 chain over its part of K, 32 columns at a time. Parts (SPLITS) are
// added in order by mm_mmq_join. With STREAMED 1 blocks share steps of tiles (mmq_share.cuh), and
// go from one tile to the next without emptying the ring: the producers are ahead while results
// leave. What a block makes of a tile that others also work on is added in order by mm_mmq_seams.
//
// Shared memory: STAGES times TILE_M rows of activations, then STAGES times BN rows of weights,
// each row BK bytes in pieces of 16, exchanged so that 8 rows of one column lie in 8 different
// places; STAGES times the activations' scales; STAGES times the weights' factors.
//
// Defines: BN, BK, STAGES, PRODUCERS, MIN_BLOCKS a multiprocessor, TILE_M, SPREAD_M, SPREAD_N,
// MMQ_EXPANDED, A_ASYNC, STREAMED, KILN_SMEM; W_TYPE and W_ALIGN.
#if !defined(BN) || !defined(BK) || !defined(STAGES) || !defined(PRODUCERS) || \
        !defined(MIN_BLOCKS) || !defined(TILE_M) || !defined(SPREAD_M) || !defined(SPREAD_N) || \
        !defined(MMQ_EXPANDED) || !defined(A_ASYNC) || !defined(STREAMED)
#    error "define BN, BK, STAGES, PRODUCERS, MIN_BLOCKS, TILE_M, SPREAD_*, MMQ_EXPANDED, A_ASYNC"
#    error "and STREAMED"
#endif
#include "common/q8.cuh"
#include "matmul/mm_args.cuh"
#include "matmul/mm_out.cuh"
#include "matmul/mmq_mma.cuh"
#include "matmul/mmq_share.cuh"
#include "matmul/mmq_weights.cuh"

#define CONSUMER_THREADS (SPREAD_M * SPREAD_N * 32)
#define PRODUCER_THREADS (PRODUCERS * 32)
#define THREADS          (CONSUMER_THREADS + PRODUCER_THREADS)
#define PIECES           (BK / 16)           // of 16 bytes, a row
#define BLOCKS           (BK / 32)           // of 32 columns
#define WM               (TILE_M / SPREAD_M) // a warp's rows
#define WN               (BN / SPREAD_N)     // and outputs
#define MT               (WM / 16)
#define NT               (WN / 8)

#define A_BYTES       (TILE_M * BK) // a stage
#define B_BYTES       (BN * BK)
#define SCALE_STRIDE  ((TILE_M + 4) * 8) // two f32 a row; bytes from one 32 columns to the next
#define SCALE_BYTES   (BLOCKS * SCALE_STRIDE)
#define FACTOR_SIZE   (MMQ_PAIR ? 8 : 4)
#define FACTOR_STRIDE ((BN + 4) * FACTOR_SIZE)
#define FACTOR_BYTES  (BLOCKS * FACTOR_STRIDE)
#define B_AT          (STAGES * A_BYTES)
#define SCALE_AT      (B_AT + STAGES * B_BYTES)
#define FACTOR_AT     (SCALE_AT + STAGES * SCALE_BYTES)
#define TOTAL         (FACTOR_AT + STAGES * FACTOR_BYTES)

static_assert(BK == 64 || BK == 128, "BK: 64 or 128");
static_assert(MMQ_EXPANDED || 2 * W_GAP <= BK, "BK: a tile must hold both runs of a unit");
static_assert(STAGES >= 2 && STAGES <= 7, "STAGES: 2 to 7, with two barriers each");
static_assert(WM % 16 == 0 && WM > 0, "TILE_M: a multiple of 16 * SPREAD_M");
static_assert(WN % 16 == 0 && WN > 0, "BN: a multiple of 16 * SPREAD_N");
static_assert(THREADS <= 1024, "at most 32 warps");
static_assert(PRODUCER_THREADS % PIECES == 0 && BN % (PRODUCER_THREADS / PIECES) == 0,
        "BN * BK / 16 must be a multiple of the producers' threads");
static_assert(KILN_SMEM >= TOTAL, "KILN_SMEM: the launcher asks for too little");

// Activations, weights, scales, factors.
extern "C" __device__ const unsigned kiln_layout_mm_mmq[] = {TOTAL, 0, STAGES *A_BYTES, B_AT,
        STAGES *B_BYTES, SCALE_AT, STAGES *SCALE_BYTES, FACTOR_AT, STAGES *FACTOR_BYTES};

// STREAMED: x, as if it came from nowhere. What is made of it is reckoned where it is needed, and
// not kept in registers from tile to tile, beside the sums.
PTX_INLINE int anew(int x) {
    if (STREAMED) {
        asm volatile("" : "+r"(x));
    }
    return x;
}

PTX_INLINE long long anew(long long x) {
    if (STREAMED) {
        asm volatile("" : "+l"(x));
    }
    return x;
}

template <typename T> PTX_INLINE T *anew(T *x) {
    if (STREAMED) {
        asm volatile("" : "+l"(x));
    }
    return x;
}

// Where piece `piece` of row `row` lies in a stage.
PTX_INLINE unsigned place(int row, int piece) {
    constexpr int rows_a_line = PIECES >= 8 ? 1 : 8 / PIECES; // a line: all 32 banks
    constexpr int mask = PIECES >= 8 ? 7 : PIECES - 1;
    return (unsigned)(row * PIECES + (piece ^ (row / rows_a_line & mask))) * 16;
}

// ---- Activations --------------------------------------------------------------------------------
// A thread takes one piece of 16 bytes of every STEP-th row, and the scales of 32 columns of every
// A_STEP-th.
#define STEP   (PRODUCER_THREADS / PIECES)
#define A_STEP (PRODUCER_THREADS / BLOCKS)
constexpr int a_each = (TILE_M + STEP - 1) / STEP;
constexpr int s_each = (TILE_M + A_STEP - 1) / A_STEP;

// Which of the producers' threads.
PTX_INLINE int producer() {
    return (int)threadIdx.x - CONSUMER_THREADS;
}

struct activations {
    const unsigned char *from; // the tile's first row
    int rows;                  // in use, from there on
#if !A_ASYNC
    uint4 piece[a_each];
    float2 scale[s_each];
#endif
};

// What lies outside of a matrix: a row behind the last one is read as the last, as its results go
// nowhere; a column behind the last one as the last, with a scale and a factor of 0. So no load
// depends on a branch. Offsets in a tile are 32 bits wide: the plan sees to it that they fit.

// Whether `row` of the thread's rows, `step` apart, is in the tile at all.
PTX_INLINE bool a_has(int row, int step) {
    return TILE_M % step == 0 || row < TILE_M;
}

PTX_INLINE unsigned scale_at(int stage, int block, int row) {
    return SCALE_AT + stage * SCALE_BYTES + block * SCALE_STRIDE + row * 8;
}

#if A_ASYNC
PTX_INLINE void a_copy(
        const activations &a, unsigned base, int stage, int tile, const mm_args &args) {
    int row = producer() / PIECES;
    int piece = producer() % PIECES;
    int column = tile * BK + piece * 16;
    const unsigned char *from = a.from + row * args.in_stride + column;
#    pragma unroll
    for (int i = 0; i < a_each; i++) {
        if (a_has(row + i * STEP, STEP)) {
            ptx_cp_async_16(base + stage * A_BYTES + place(row + i * STEP, piece),
                    from + i * (STEP * args.in_stride), row + i * STEP < a.rows && column < args.k);
        }
    }
    row = producer() / BLOCKS;
    int block = producer() % BLOCKS;
    column = tile * BK + block * 32;
    from = a.from + row * args.in_stride + args.k + column / 4;
#    pragma unroll
    for (int i = 0; i < s_each; i++) {
        if (a_has(row + i * A_STEP, A_STEP)) {
            mmq_cp_async_8(base + scale_at(stage, block, row + i * A_STEP),
                    from + i * (A_STEP * args.in_stride),
                    row + i * A_STEP < a.rows && column < args.k);
        }
    }
}
#else
// Store: what the thread holds goes to the ring. Load: a piece of tile `next` takes its place.
template <bool Store, bool Load>
PTX_INLINE void a_pass(activations &a, unsigned base, int stage, int next, const mm_args &args) {
    int row = producer() / PIECES;
    int column = next * BK + producer() % PIECES * 16;
    const unsigned char *from = a.from + min(column, args.k - 16);
#    pragma unroll
    for (int i = 0; i < a_each; i++) {
        if (Store && a_has(row + i * STEP, STEP)) {
            ptx_store_shared_v4(base + stage * A_BYTES + place(row + i * STEP, producer() % PIECES),
                    a.piece[i]);
        }
        if (Load) {
            a.piece[i] =
                    *(const uint4 *)(from + min(row + i * STEP, a.rows - 1) * (int)args.in_stride);
        }
    }
    row = producer() / BLOCKS;
    column = next * BK + producer() % BLOCKS * 32;
    from = a.from + args.k + min(column, args.k - 32) / 4;
#    pragma unroll
    for (int i = 0; i < s_each; i++) {
        if (Store && a_has(row + i * A_STEP, A_STEP)) {
            ptx_store_shared_v2(base + scale_at(stage, producer() % BLOCKS, row + i * A_STEP),
                    (unsigned)__float_as_int(a.scale[i].x), (unsigned)__float_as_int(a.scale[i].y));
        }
        if (Load) {
            float2 scale = *(
                    const float2 *)(from + min(row + i * A_STEP, a.rows - 1) * (int)args.in_stride);
            a.scale[i] = column < args.k ? scale : make_float2(0, 0);
        }
    }
}
#endif

// ---- Weights ------------------------------------------------------------------------------------
// A thread takes one piece of 16 bytes, or one unit of 16 values, of every STEP-th row, and the
// factors of one place of every F_STEP-th row.
#if MMQ_EXPANDED
#    define F_ROW BLOCKS // places of a row that give factors
#else
#    define F_ROW (PIECES / MMQ_EVERY)
#endif
#define F_STEP (PRODUCER_THREADS / F_ROW)
constexpr int b_each = BN / STEP;
constexpr int f_each = (BN + F_STEP - 1) / F_STEP;

struct weights {
    const unsigned char *from; // the tile's first row
    int rows;                  // from there on
#if MMQ_EXPANDED
    uint4 piece[b_each];
    float2 factor[f_each];
#else
    w_raw raw[b_each];    // their quants
    w_raw factor[f_each]; // their factors
#endif
};

PTX_INLINE unsigned factor_at(int stage, int block, int row, int which) {
    return FACTOR_AT + stage * FACTOR_BYTES + block * FACTOR_STRIDE + row * FACTOR_SIZE + which * 4;
}

PTX_INLINE bool f_has(int row) {
    return BN % F_STEP == 0 || row < BN;
}

#if MMQ_EXPANDED
PTX_INLINE long long b_stride(const mm_args &args) {
    return args.k_padded / 32 * 40;
}

template <bool Store, bool Load>
PTX_INLINE void b_pass(weights &w, unsigned base, int stage, int, int next, const mm_args &args) {
    unsigned b = base + B_AT + stage * B_BYTES;
    int row = producer() / PIECES;
    const unsigned char *from = w.from + next * BK + producer() % PIECES * 16;
#    pragma unroll
    for (int i = 0; i < b_each; i++) {
        if (Store) {
            ptx_store_shared_v4(b + place(row + i * STEP, producer() % PIECES), w.piece[i]);
        }
        if (Load) {
            w.piece[i] =
                    *(const uint4 *)(from + min(row + i * STEP, w.rows - 1) * (int)b_stride(args));
        }
    }
    row = producer() / F_ROW;
    from = w.from + args.k_padded + (next * BLOCKS + producer() % F_ROW) * 8;
#    pragma unroll
    for (int i = 0; i < f_each; i++) {
        if (Store && f_has(row + i * F_STEP)) {
            unsigned to = base + factor_at(stage, producer() % F_ROW, row + i * F_STEP, 0);
            unsigned x = (unsigned)__float_as_int(w.factor[i].x);
            if (MMQ_PAIR) {
                ptx_store_shared_v2(to, x, (unsigned)__float_as_int(w.factor[i].y));
            } else {
                ptx_store_shared(to, x);
            }
        }
        if (Load) {
            w.factor[i] = *(
                    const float2 *)(from + min(row + i * F_STEP, w.rows - 1) * (int)b_stride(args));
        }
    }
}
#else
template <bool Store, bool Load>
PTX_INLINE void b_pass(
        weights &w, unsigned base, int stage, int tile, int next, const mm_args &args) {
    unsigned b = base + B_AT + stage * B_BYTES;
    int last = args.k / 16 - 1;
    int row = producer() / PIECES;
    int unit = producer() % PIECES;
    int column = w_column(unit);
#    pragma unroll
    for (int i = 0; i < b_each; i++) {
#    pragma unroll
        for (int run = 0; Store && run < 2; run++) {
            uint2 q = mmq_bytes(w.raw[i], tile * PIECES + unit, run);
            int c = column + run * W_GAP;
            ptx_store_shared_v2(b + place(row + i * STEP, c / 16) + c % 16, q.x, q.y);
        }
        if (Load) {
            w_load(w.raw[i], w.from + min(row + i * STEP, w.rows - 1) * (int)args.weight_stride,
                    min(next * PIECES + unit, last), args.k);
        }
    }
    row = producer() / F_ROW;
    unit = producer() % F_ROW * MMQ_EVERY;
    bool valid = w_column(tile * PIECES + unit) < args.k;
#    pragma unroll
    for (int i = 0; i < f_each; i++) {
        if (Store && f_has(row + i * F_STEP)) {
            mmq_factors(w.factor[i], tile * PIECES + unit, [&](int at, int which, float value) {
                ptx_store_shared(
                        base + factor_at(stage, (at - tile * BK) / 32, row + i * F_STEP, which),
                        valid ? (unsigned)__float_as_int(value) : 0);
            });
        }
        if (Load) {
            w_load(w.factor[i],
                    w.from + min(row + i * F_STEP, w.rows - 1) * (int)args.weight_stride,
                    min(next * PIECES + unit, last), args.k);
        }
    }
}
#endif

// ---- Producers ----------------------------------------------------------------------------------
#define FULL(stage)  (1 + (stage))
#define EMPTY(stage) (1 + STAGES + (stage))

// Whether each piece is fetched as soon as the registers of the one before are free, so that it
// flies while others are stored. With four warps for q6_K they would not suffice.
#define EARLY (!MMQ_HALVES || PRODUCERS > 4)

template <bool Store, bool Load>
PTX_INLINE void pass(activations &a, weights &w, unsigned base, int stage, int tile, int next,
        const mm_args &args) {
#if !A_ASYNC
    a_pass<Store, Load>(a, base, stage, next, args);
#endif
    b_pass<Store, Load>(w, base, stage, tile, next, args);
}

// Where the block's tile at (first_row, first_out) begins. rows: in use.
PTX_INLINE void go_to(activations &a, weights &w, const unsigned char *in,
        const unsigned char *weight, int first_row, int first_out, int rows, const mm_args &args) {
    a.from = in + first_row * args.in_stride;
    a.rows = rows - first_row;
    w.rows = args.n - first_out;
#if MMQ_EXPANDED
    w.from = weight + first_out * b_stride(args);
#else
    w.from = weight + first_out * args.weight_stride;
#endif
}

// Brings `left` tiles, from number `tile` of the rows on. pass_end(t): t, or where the block goes
// on when the rows have no such tile: then it has moved a and w there.
template <typename PassEnd>
PTX_INLINE void produce(activations &a, weights &w, unsigned base, int tile, int left,
        const mm_args &args, PassEnd pass_end) {
    int unused = STAGES; // buffers that nothing was put into
    int stage = 0;
    pass<false, true>(a, w, base, 0, tile, tile, args);
#pragma unroll 1
    for (; left > 0; left--) {
        if (unused > 0) {
            unused--;
        } else {
            mmq_barrier_sync(EMPTY(stage), THREADS);
        }
#if A_ASYNC
        a_copy(a, base, stage, tile, args);
        ptx_cp_async_commit();
#endif
        int next = left > 1 ? pass_end(tile + 1) : tile; // the last once more, for nobody
        pass<true, EARLY>(a, w, base, stage, tile, next, args);
        if (!EARLY && left > 1) {
            pass<false, true>(a, w, base, stage, tile, next, args);
        }
#if A_ASYNC
        ptx_cp_async_wait<0>();
#endif
        mmq_barrier_arrive(FULL(stage), THREADS);
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        tile = next;
    }
}

// The first row and output of a warp that multiplies, in the block's tile.
PTX_INLINE int warp_row() {
    return anew((int)threadIdx.x) / 32 / SPREAD_N * WM;
}

PTX_INLINE int warp_out() {
    return anew((int)threadIdx.x) / 32 % SPREAD_N * WN;
}

// ---- Products -----------------------------------------------------------------------------------
// The factors of outputs n and n + 1, n even: one: their first numbers, two: the second ones.
struct factors {
    float2 one, two, back; // back: what takes 1.5 * 2^23 off again
    float2 back_two;
};

PTX_INLINE factors load_factors(unsigned at) {
    factors f;
#if MMQ_PAIR
    float4 four = mmq_load_shared_v4(at);
    f.one = make_float2(four.x, four.z);
    f.two = make_float2(four.y, four.w);
    f.back_two = make_float2(-MMQ_BIAS * four.y, -MMQ_BIAS * four.w);
#else
    f.one = mmq_load_shared_v2(at);
#endif
    f.back = make_float2(-MMQ_BIAS * f.one.x, -MMQ_BIAS * f.one.y);
    return f;
}

// A row's scale and, where a type has a minimum to multiply it by, its scaled sum.
PTX_INLINE float2 load_scale(unsigned at) {
#if MMQ_HAS_MIN
    return mmq_load_shared_v2(at);
#else
    return make_float2(mmq_load_shared(at), 0);
#endif
}

// sums += what 32 columns of 16 rows and 8 outputs give. scale: of rows g and g + 8.
PTX_INLINE void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
        const float2 (&scale)[2], const factors &f) {
#if MMQ_HALVES
    float low[4];
    float high[4];
    mmq_mma_k16(low, a[0], a[1], b0);
    mmq_mma_k16(high, a[2], a[3], b1);
#else
    float low[4];
    mmq_mma_k32(low, a, b0, b1);
#endif
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float one = i % 2 ? f.one.y : f.one.x;
        float back = i % 2 ? f.back.y : f.back.x;
        float value = fmaf(low[i], one, back);
        sums[i] = fmaf(value, scale[i / 2].x, sums[i]);
#if MMQ_HALVES
        float two = i % 2 ? f.two.y : f.two.x;
        float back_two = i % 2 ? f.back_two.y : f.back_two.x;
        sums[i] = fmaf(fmaf(high[i], two, back_two), scale[i / 2].x, sums[i]);
#elif MMQ_HAS_MIN
        sums[i] = fmaf(i % 2 ? f.two.y : f.two.x, scale[i / 2].y, sums[i]);
#endif
    }
}

// One tile: the warp's rows from m0 on and outputs from n0 on.
PTX_INLINE void multiply_tile(float (&sums)[MT][NT][4], unsigned base, int stage, int m0, int n0) {
    int lane = ptx_lane();
    unsigned a_stage = base + stage * A_BYTES;
    unsigned b_stage = base + B_AT + stage * B_BYTES;
    unsigned scale = base + SCALE_AT + stage * SCALE_BYTES + (m0 + lane / 4) * 8;
    unsigned factor = base + factor_at(stage, 0, n0 + lane % 4 * 2, 0);
#pragma unroll 1
    for (int block = 0; block < BLOCKS; block++) {
        unsigned a[MT][4];
        float2 of_row[MT][2];
#pragma unroll
        for (int i = 0; i < MT; i++) {
            ptx_ldmatrix_x4(a[i], a_stage + place(m0 + i * 16 + lane % 16, 2 * block + lane / 16));
            of_row[i][0] = load_scale(scale + block * SCALE_STRIDE + i * 128);
            of_row[i][1] = load_scale(scale + block * SCALE_STRIDE + i * 128 + 64);
        }
#pragma unroll
        for (int j = 0; j < NT; j += 2) {
            if (MMQ_HALVES && (A_ASYNC || THREADS >= 512 || __CUDA_ARCH__ >= 1000)) {
                __syncwarp(); // keeps the compiler from loading all factors at first, and spilling
            }
            unsigned b[4];
            ptx_ldmatrix_x4(b, b_stage + place(n0 + j * 8 + lane / 16 * 8 + lane % 8,
                                                 2 * block + lane / 8 % 2));
#pragma unroll
            for (int half = 0; half < 2; half++) {
                factors f =
                        load_factors(factor + block * FACTOR_STRIDE + (j + half) * 8 * FACTOR_SIZE);
#pragma unroll
                for (int i = 0; i < MT; i++) {
                    multiply(sums[i][j + half], a[i], b[2 * half], b[2 * half + 1], of_row[i], f);
                }
            }
        }
    }
}

// ---- Results ------------------------------------------------------------------------------------
// Lanes next to each other exchange halves, so that each has four outputs of one row: the even one
// of row g, the odd one of row g + 8. row0, out0: the warp's first; rows: end of those in use.
PTX_INLINE void leave(
        const float (&sums)[MT][NT][4], const mm_out &to, int row0, int rows, int out0) {
    int lane = ptx_lane();
    bool odd = lane & 1;
#pragma unroll
    for (int i = 0; i < MT; i++) {
        int row = row0 + i * 16 + lane / 4 + (odd ? 8 : 0);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            if (STREAMED) {
                __syncwarp(); // keeps the compiler from loading all of BIAS and RESIDUAL at first
            }
            const float(&s)[4] = sums[i][j];
            float x = __shfl_xor_sync(0xffffffffu, odd ? s[0] : s[2], 1);
            float y = __shfl_xor_sync(0xffffffffu, odd ? s[1] : s[3], 1);
            float4 four = odd ? make_float4(x, y, s[2], s[3]) : make_float4(s[0], s[1], x, y);
            if (row < rows) {
                mm_out_four(to, row, out0 + j * 8 + lane % 4 / 2 * 4, 1.0f, four);
            }
        }
    }
}

PTX_INLINE int rows_in_use(const int *n_tokens, const mm_args &args) {
    return n_tokens ? min(*n_tokens, args.rows) : args.rows;
}

#if STREAMED
// The numbers that results need, anew.
PTX_INLINE mm_args anew(mm_args args) {
    args.rows = anew(args.rows);
    args.n = anew(args.n);
    args.k = anew(args.k);
    args.splits = anew(args.splits);
    args.out_wide = anew(args.out_wide);
    args.out_stride = anew(args.out_stride);
    args.residual_stride = anew(args.residual_stride);
    return args;
}

// Behind the last of the ring's tiles that make a tile, or a part of one, `left` more to come: what
// is to leave, and where it goes.
PTX_INLINE void leave_shared(const float (&sums)[MT][NT][4], const mm_out &given, float *parts,
        const int *n_tokens, int left) {
    mm_args args = anew(given.args);
    mm_out to = {anew(given.bias), anew(given.residual), anew(given.out), args};
    int rows = rows_in_use(anew(n_tokens), args);
    int live = mmq_row_tiles(rows);
    int block = ptx_block_x();
    mmq_work work = mmq_work_of(block, live, args);
    int steps = mmq_steps(args);
    int end = work.end - left;
    int tile = (end - 1) / steps;
    int begin = max(work.begin, tile * steps);
    int row = (work.first + tile) % live * TILE_M;
    int out = (work.first + tile) / live * BN;
    if (end - begin == steps) {
        leave(sums, to, row + warp_row(), rows, out + warp_out());
        return;
    }
    long long part = 2 * block + (begin == tile * steps);
    args.out_stride = BN * 4;
    args.out_wide = 1;
    args.n = BN;
    leave(sums, {nullptr, nullptr, anew(parts) + part * (TILE_M * BN), args}, warp_row(),
            rows - row, warp_out());
}
#endif

// Multiplies tiles of the ring until `end` of those that the block has left are left.
PTX_INLINE void multiply_tiles(
        float (&sums)[MT][NT][4], unsigned base, int &stage, int &left, int end) {
#pragma unroll 1
    for (; left > end; left--) {
        mmq_barrier_sync(FULL(stage), THREADS);
        multiply_tile(sums, base, stage, warp_row(), warp_out());
        if (left > STAGES) { // else nobody waits for it
            mmq_barrier_arrive(EMPTY(stage), THREADS);
        }
        stage = stage + 1 < STAGES ? stage + 1 : 0;
    }
}

// in (S) rows of q8_32w. weight (N, K) as in the file, or expanded. bias (N), residual (S, N),
// n_tokens (1), or NULL. out (S, N) may be residual. Grid: x rows, y outputs, z parts of K; with
// args.splits > 1 out is parts (splits, S, N rounded up to 4), bias and residual NULL, the row's
// stride and out_wide accordingly. STREAMED: parts (2 * splits, TILE_M, BN); grid: x the blocks
// that share steps, then as many tiles as may have a block each.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
        mm_mmq(const unsigned char *__restrict__ in, const unsigned char *__restrict__ weight,
                const float *__restrict__ bias, const float *residual, float *out, float *parts,
                const int *__restrict__ n_tokens, const mm_args args) {
    extern __shared__ __align__(128) unsigned char shared[];
    int rows = rows_in_use(n_tokens, args);
    int steps = mmq_steps(args);
#if STREAMED
    if (rows <= 0) {
        return;
    }
    int live = mmq_row_tiles(rows);
    mmq_work work = mmq_work_of((int)blockIdx.x, live, args);
    int number = work.first + work.begin / steps;
    int first_row = number % live * TILE_M;
    int first_out = number / live * BN;
    int tile = work.begin % steps;
    int left = work.end - work.begin;
    int count = steps - tile; // of those that make the first tile of the product
#else
    int first_row = (int)blockIdx.x * TILE_M;
    int first_out = (int)blockIdx.y * BN;
    int each = (steps + args.splits - 1) / args.splits;
    int tile = (int)blockIdx.z * each;
    int left = first_row < rows ? min(each, steps - tile) : 0;
#endif
    if (left == 0) {
        return;
    }
    unsigned base = ptx_shared(shared);
    if ((int)threadIdx.x >= CONSUMER_THREADS) {
        activations a;
        weights w;
        go_to(a, w, in, weight, first_row, first_out, rows, args);
        produce(a, w, base, tile, left, args, [&](int next) {
#if STREAMED
            if (next == steps) {
                number++;
                go_to(a, w, in, weight, number % live * TILE_M, number / live * BN, rows, args);
                return 0;
            }
#endif
            return next;
        });
        return;
    }
    int stage = 0;
#if STREAMED
#    pragma unroll 1
    while (left > 0) {
        float sums[MT][NT][4] = {};
        multiply_tiles(sums, (unsigned)anew((int)base), stage, left, max(left - count, 0));
        leave_shared(sums, {bias, residual, out, args}, parts, n_tokens, left);
        count = mmq_steps(anew(args));
    }
#else
    float sums[MT][NT][4] = {};
    multiply_tiles(sums, base, stage, left, 0);

    // Reckoned anew, so that it need not wait in registers behind the sums.
    rows = rows_in_use(n_tokens, args);
    out = (float *)((char *)out + (long long)(int)blockIdx.z * args.rows * args.out_stride);
    leave(sums, {bias, residual, out, args}, ptx_block_x() * TILE_M + warp_row(), rows,
            ptx_block_y() * BN + warp_out());
#endif
}
