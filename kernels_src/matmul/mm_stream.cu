// mm_stream: matrix times vector at the speed of memory, for weights of block types and a few rows
// of activations: OUT = IN times WEIGHT transposed, + BIAS, + RESIDUAL, for one to three matrices
// that share IN. With NORM, IN is normed on its way in (rms, times NORM_WEIGHT); with PAIR, the two
// matrices are GATE and UP and what leaves is act(GATE) * UP.
//
// Weights go once from memory to shared memory, as they lie in the file, by copies that run ahead:
// bytes under way are many and do not depend on registers. A block has a row of tiles (MV_ROWS
// outputs each); its warps share a tile's units (256 columns each). Who copies, and who has which
// unit: mv_ring.cuh, each warp for itself; mv_bulk.cuh (MV_BULK 1), a warp for all of them by the
// copy engine, sm_90 and later.
//
// The products are made by the tensor cores, used as 32 dot products, one a lane: lane (g, t) puts
// its own quants of rows g and g + 8, bytes as they are, into A, and B has two columns for each t,
// which are zero but in the k that belong to lane t: there column 2t holds the high bytes of the
// activations and column 2t + 1 the low ones. So C gives each lane the exact sums of its own quants
// times its own activations, and no quant is ever converted. Factors and offsets are applied to the
// sums, once for a group of columns.
//
// Activations are 16-bit integers times a factor for each 32 columns, largest magnitude over 32512
// (X_BITS 16), or the format q8_32: 8-bit integers, largest magnitude over 127 (X_BITS 8, low bytes
// 0); rounded to nearest, ties to even. Where one is not finite the factor is NaN; below 2^-100 all
// are zeros.
//
// Sums: a lane's groups in order, a warp's units of a tile in order, lanes of a quad by halving,
// then the warps in the order of their first units: it depends on MV_WARPS, MV_BULK and, without
// that, the tile's number alone.
//
// Grid: x blocks that share the tiles evenly, y rows. Shared memory: see MV_ below. Defines:
// MV_WARPS, MV_STAGES, MV_ROWS, MV_BULK; MV_UNITS of IN's columns; TYPE_0 to TYPE_2 of the matrices
// (those not there: as TYPE_0), MATRICES 1 to 3, PAIR and NORM 0 or 1.
#include "common/activate.cuh"
#include "matmul/mv_args.cuh"
#include "matmul/mv_types.cuh"

#if !defined(MV_WARPS) || !defined(MV_STAGES) || !defined(MV_UNITS) || !defined(TYPE_0) || \
        !defined(TYPE_1) || !defined(TYPE_2)
#    error "define MV_WARPS, MV_STAGES, MV_UNITS, TYPE_0, TYPE_1 and TYPE_2"
#endif
#if !defined(MV_ROWS) || !defined(MV_BULK)
#    error "define MV_ROWS as 9 to 16, MV_BULK as 0 or 1"
#endif
#if !defined(MATRICES) || !defined(PAIR) || !defined(NORM) || !defined(X_BITS)
#    error "define MATRICES as 1 to 3, PAIR and NORM as 0 or 1, X_BITS as 8 or 16"
#endif
#if !defined(KILN_SMEM)
#    error "define KILN_SMEM: the shared memory that the launcher asks for, in bytes"
#endif
static_assert(MV_WARPS >= 1 && MV_WARPS <= 32, "MV_WARPS: 1 to 32");
static_assert(MV_STAGES >= 2 && MV_STAGES <= 16, "MV_STAGES: 2 to 16");
static_assert(MV_ROWS >= 9 && MV_ROWS <= 16, "MV_ROWS: 9 to 16, for the tensor cores take 16");
static_assert(!PAIR || MV_ROWS == 16, "PAIR: tiles of 16");
static_assert(X_BITS == 8 || X_BITS == 16, "X_BITS: 8 or 16");
static_assert(!PAIR || MATRICES == 2, "PAIR: of two matrices");

#define MV_PASTE(type) mv_##type
#define MV_TYPE(type)  MV_PASTE(type)
typedef MV_TYPE(TYPE_0) type_0;
typedef MV_TYPE(TYPE_1) type_1;
typedef MV_TYPE(TYPE_2) type_2;

#define MV_THREADS (MV_WARPS * 32) // that multiply
// A warp's units of a tile are MV_CHUNK apart.
#if MV_BULK
#    define MV_CHUNKS  ((MV_UNITS + MV_WARPS - 1) / MV_WARPS)
#    define MV_CHUNK   ((MV_UNITS + MV_CHUNKS - 1) / MV_CHUNKS)
#    define MV_ACROSS  MV_CHUNK // units of a row that are staged together
#    define MV_SHARERS MV_CHUNK // warps that have units of a tile
#    define MV_BLOCK   (MV_THREADS + 32)
#else
#    define MV_ACROSS  1
#    define MV_SHARERS (MV_UNITS < MV_WARPS ? MV_UNITS : MV_WARPS)
#    define MV_BLOCK   MV_THREADS
#endif
#define MV_WINDOW 8 // tiles whose sums are joined at once
// A unit's activations: bytes, sums of 16 columns, factors of 32.
#define MV_X_UNIT    (512 + 64 + 32)
#define MV_X_SUMS    512
#define MV_X_FACTORS 576

template <int A, int B> constexpr int largest = A > B ? A : B;
template <class Type> constexpr int row_bytes = mv_stride<Type, MV_ACROSS>;
constexpr int stage_bytes =
        16 * largest<row_bytes<type_0>, largest<row_bytes<type_1>, row_bytes<type_2>>>;
constexpr int ring_bytes = (MV_BULK ? 1 : MV_WARPS) * MV_STAGES * stage_bytes;
constexpr int barrier_bytes = MV_BULK ? 2 * 8 * MV_STAGES : 0;
constexpr int part_floats = MV_WINDOW * MV_WARPS * 16;
constexpr int fixed_bytes = ring_bytes + 2 * part_floats * 4 + (MV_WARPS * 4 + 15) / 16 * 16;
constexpr int x_bytes = MV_UNITS * MV_X_UNIT;
static_assert(KILN_SMEM >= fixed_bytes + x_bytes + barrier_bytes,
        "KILN_SMEM: the launcher asks for too little");

// Rings, sums of the warps, sums of squares, activations.
extern "C" __device__ const unsigned kiln_layout_mm_stream[] = {
        fixed_bytes + x_bytes + barrier_bytes, 0, ring_bytes, ring_bytes, 2 * part_floats * 4,
        ring_bytes + 2 * part_floats * 4, MV_WARPS * 4, fixed_bytes, x_bytes};

struct matrices {
    const unsigned char *weight[3];
    const mv_args &args;
};

PTX_INLINE int matrix_of(int &tile, const mv_args &args) {
    if (PAIR) {
        int matrix = tile & 1;
        tile >>= 1;
        return matrix;
    }
    int matrix = 0;
    if (MATRICES > 1 && tile >= args.tiles[0]) {
        tile -= args.tiles[0];
        matrix = 1;
        if (MATRICES > 2 && tile >= args.tiles[1]) {
            tile -= args.tiles[1];
            matrix = 2;
        }
    }
    return matrix;
}

// Of the matrix; written so that arrays of arguments stay where they are.
template <class Value> PTX_INLINE Value pick(int matrix, const Value (&of)[3]) {
    Value value = of[0];
    if (MATRICES > 1) {
        value = matrix == 1 ? of[1] : value;
    }
    if (MATRICES > 2) {
        value = matrix == 2 ? of[2] : value;
    }
    return value;
}

template <class A, class B> constexpr bool same_type = false;
template <class A> constexpr bool same_type<A, A> = true;

// Whether a matrix has the type of the first, else of the second, so that each type is there once.
PTX_INLINE bool first_alike(int matrix) {
    return matrix == 0 || (matrix == 1 && same_type<type_0, type_1>) ||
           (matrix == 2 && same_type<type_0, type_2>) || MATRICES == 1 ||
           (same_type<type_0, type_1> && (MATRICES == 2 || same_type<type_0, type_2>));
}

PTX_INLINE bool second_alike(int matrix) {
    return matrix == 1 || MATRICES == 2 || same_type<type_1, type_2> || same_type<type_0, type_2>;
}

// ---- Activations to shared memory ---------------------------------------------------------------
// K is a multiple of 32: eight columns are there, or none of them.
PTX_INLINE void load_eight(float (&x)[8], const float *row, int column, int k, bool wide) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] = 0.0f;
    }
    if (column < k && wide) {
        *(float4 *)x = *(const float4 *)(row + column);
        *(float4 *)(x + 4) = *(const float4 *)(row + column + 4);
    } else if (column < k) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[i] = row[column + i];
        }
    }
}

// Byte `Byte` of four words as one.
template <int Byte> PTX_INLINE unsigned pack_bytes(const unsigned *four) {
    constexpr unsigned pick_two = Byte == 0 ? 0x0040 : 0x0051;
    return __byte_perm(__byte_perm(four[0], four[1], pick_two),
            __byte_perm(four[2], four[3], pick_two), 0x5410);
}

// Eight columns of a unit, 8 (l / 4) and on of the 64 that belong to the lanes t = l % 4. A number
// v is rounded to the integer q by adding 1.5 * 2^23: the bits of the sum are those of 1.5 * 2^23,
// which end in 22 zeros, plus q.
PTX_INLINE void stage_eight(unsigned at, const float (&x)[8]) {
    constexpr float limit = X_BITS == 16 ? 32512.0f : 127.0f;
    int t = ptx_lane() % 4;
    int eight = ptx_lane() / 4;
    int most = 0; // magnitudes as integers: not finite ones are the largest
#pragma unroll
    for (int i = 0; i < 8; i++) {
        most = max(most, __float_as_int(x[i]) & 0x7fffffff);
    }
    most = max(most, __shfl_xor_sync(0xffffffffu, most, 4));
    most = max(most, __shfl_xor_sync(0xffffffffu, most, 8));
    float largest = __int_as_float(most);
    bool finite = most < 0x7f800000;
    bool some = finite && largest >= 7.8886090522e-31f; // 2^-100
    // Of 16 bits nobody asks for the last one: no division, which takes a fifth of all this. 2^-16,
    // lest the inverse of the largest be subnormal.
    constexpr bool quick = X_BITS == 16;
    constexpr float small = 1.52587890625e-5f;
    float inverse = quick ? limit * small * ptx_rcp(largest * small) : limit / largest;
    float factor = quick ? largest * (1.0f / limit) : largest / limit;
    inverse = some ? inverse : 0.0f;
    factor = some ? factor : finite ? 0.0f : __int_as_float(0x7fc00000);
    unsigned bits[8];
    unsigned top[8];
    unsigned total = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float sum = quick ? fmaf(x[i], inverse, 12582912.0f)
                          : __fadd_rn(__fmul_rn(x[i], inverse), 12582912.0f);
        bits[i] = (unsigned)__float_as_int(sum);
        top[i] = bits[i] + 128;
        total += bits[i];
    }
    constexpr int high_byte = X_BITS == 16 ? 1 : 0;
    const unsigned(&from)[8] = X_BITS == 16 ? top : bits;
    unsigned base = ptx_shared(mv_shared) + at;
    unsigned mine = base + (unsigned)(eight / 2 * 128 + t * 32 + eight % 2 * 8);
    ptx_store_shared_v2(mine, some ? pack_bytes<high_byte>(from) : 0,
            some ? pack_bytes<high_byte>(from + 4) : 0);
    ptx_store_shared_v2(mine + 16, some && X_BITS == 16 ? pack_bytes<0>(bits) : 0,
            some && X_BITS == 16 ? pack_bytes<0>(bits + 4) : 0);
    int sum = some ? (int)(total - 8 * 0x4b400000u) : 0;
    sum += __shfl_xor_sync(0xffffffffu, sum, 4);
    if (eight % 2 == 0) {
        ptx_store_shared(base + MV_X_SUMS + (unsigned)(t * 16 + eight * 2),
                (unsigned)__float_as_int((float)sum));
    }
    if (eight % 4 == 0) {
        ptx_store_shared(
                base + MV_X_FACTORS + (unsigned)(t * 8 + eight), (unsigned)__float_as_int(factor));
    }
}

// ---- Products -----------------------------------------------------------------------------------
// Of a unit, what a lane needs.
struct activations {
    uint4 bytes[4]; // the lane's columns of B, of sixteen columns of IN each
    float sums[4], factors[2];
};

PTX_INLINE activations load_activations(int unit) {
    int g = ptx_lane() / 4;
    int t = ptx_lane() % 4;
    unsigned x = fixed_bytes + (unsigned)(unit * MV_X_UNIT);
    activations a;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a.bytes[i] = make_uint4(0, 0, 0, 0);
        if (g / 2 == t) {
            a.bytes[i] = mv_four(x + (unsigned)(i * 128 + t * 32 + g % 2 * 16));
        }
    }
    *(float4 *)a.sums = *(const float4 *)(mv_shared + x + MV_X_SUMS + t * 16);
    *(float2 *)a.factors = *(const float2 *)(mv_shared + x + MV_X_FACTORS + t * 8);
    return a;
}

// A unit of a tile: the `inside`-th of those that are staged together.
struct place {
    int tile, unit, inside;
};

// One unit of 16 rows: adds rows g and g + 8 to sums; of a short tile the last row stands for those
// that are not there. from: the tile's first row. x: the unit's activations.
template <class Type>
PTX_INLINE void multiply_unit(float (&sums)[2], unsigned stage, const activations &x,
        const unsigned char *from, int stride, place here, int k) {
    constexpr int words = Type::mv_group / 4;
    constexpr int groups = 64 / Type::mv_group;
    int g = ptx_lane() / 4;
    int t = ptx_lane() % 4;
    int h = min(g + 8, MV_ROWS - 1);
    int unit = here.unit;
    stage += (unsigned)(here.inside * Type::unit_bytes);
    unsigned at[2] = {
            stage + (unsigned)(g * row_bytes<Type>), stage + (unsigned)(h * row_bytes<Type>)};
    if (!Type::mv_aligned) {
        unsigned low = (unsigned)(unsigned long long)from +
                       (unsigned)((unit - here.inside) * Type::unit_bytes);
        at[0] += low + (unsigned)(g * stride) & 15;
        at[1] += low + (unsigned)(h * stride) & 15;
    }
    Type a, b;
    a.load(at[0], t);
    b.load(at[1], t);
#pragma unroll
    for (int group = 0; group < groups; group++) {
        int c[4] = {0, 0, 0, 0};
        float sum = 0;
#pragma unroll
        for (int i = group * words; i < (group + 1) * words; i += 2) {
            const unsigned quants[4] = {a.word(i), b.word(i), a.word(i + 1), b.word(i + 1)};
            const uint4 &four = x.bytes[i / 4];
            unsigned x0 = i % 4 == 0 ? four.x : four.z;
            unsigned x1 = i % 4 == 0 ? four.y : four.w;
            if (Type::mv_signed) {
                ptx_mma_s8(c, quants, x0, x1);
            } else {
                ptx_mma_u8(c, quants, x0, x1);
            }
            if (i % 4 == 0) {
                sum += x.sums[i / 4];
            }
        }
        float factor = x.factors[group * words / 8];
        float value[2];
        value[0] = (float)(X_BITS == 16 ? c[0] * 256 + c[1] : c[0]);
        value[1] = (float)(X_BITS == 16 ? c[2] * 256 + c[3] : c[2]);
        value[0] = a.factor[group] * value[0];
        value[1] = b.factor[group] * value[1];
        if (!Type::mv_signed) {
            value[0] = fmaf(-a.offset[group], sum, value[0]);
            value[1] = fmaf(-b.offset[group], sum, value[1]);
        }
        // Columns behind the last of blocks of 32: the bytes are another row's.
        bool there = Type::mv_aligned || Type::mv_group != 32 ||
                     unit * 256 + t * 64 + group * Type::mv_group < k;
        sums[0] = there ? fmaf(factor, value[0], sums[0]) : sums[0];
        sums[1] = there ? fmaf(factor, value[1], sums[1]) : sums[1];
    }
}

PTX_INLINE void multiply_place(
        float (&sums)[2], unsigned stage, const activations &x, place at, const matrices &m) {
    int matrix = matrix_of(at.tile, m.args);
    int stride = pick(matrix, m.args.weight_stride);
    const unsigned char *from = pick(matrix, m.weight) + (long long)MV_ROWS * at.tile * stride;
    if (first_alike(matrix)) {
        multiply_unit<type_0>(sums, stage, x, from, stride, at, m.args.k);
    } else if (second_alike(matrix)) {
        multiply_unit<type_1>(sums, stage, x, from, stride, at, m.args.k);
    } else {
        multiply_unit<type_2>(sums, stage, x, from, stride, at, m.args.k);
    }
}

// ---- Results ------------------------------------------------------------------------------------
PTX_INLINE void leave_sums(float (&sums)[2], float *part, int tile, int window) {
    int warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = ptx_xor_sum(ptx_xor_sum(sums[h], 1), 2);
        if (ptx_lane() % 4 == 0) {
            part[((tile - window) * MV_WARPS + warp) * 16 + ptx_lane() / 4 + 8 * h] = sum;
        }
        sums[h] = 0;
    }
}

// Output `row` of a tile, of which warps that had units of it left sums.
PTX_INLINE float join_sums(const float *part, int tile, int window, int row) {
    int first = MV_BULK ? 0 : tile * MV_UNITS % MV_WARPS;
    float sum = 0;
#pragma unroll // all loads at once: every block waits for its last sums
    for (int i = 0; i < MV_SHARERS; i++) {
        int warp = first + i < MV_WARPS ? first + i : first + i - MV_WARPS;
        sum += part[((tile - window) * MV_WARPS + warp) * 16 + row];
    }
    return sum;
}

struct results {
    const float *bias[3];
    const float *residual;
    float *out[3];
    int at; // row of IN
};

// Tiles window .. end - 1, whose sums are complete.
PTX_INLINE void write_window(const float *part, const float *squares, int window, int end,
        const results &to, const mv_args &args) {
    float factor = 1.0f;
    if (NORM) {
        float sum = 0;
        for (int i = 0; i < MV_WARPS; i++) {
            sum += squares[i];
        }
        factor = 1.0f / sqrtf(sum / (float)args.k + args.eps);
    }
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < (end - window) * 16; i += MV_THREADS) {
        int tile = window + i / 16;
        int row = i % 16;
        float value = join_sums(part, tile, window, row) * factor;
        int matrix = matrix_of(tile, args);
        int n = tile * MV_ROWS + row;
        bool there = row < MV_ROWS && n < pick(matrix, args.n);
        const float *bias = pick(matrix, to.bias);
        value += there && bias ? bias[n] : 0.0f;
        if (PAIR) { // lanes 0 to 15 have gates, the others their rows of UP
            value = activate(args.activation, value) * __shfl_down_sync(0xffffffffu, value, 16);
            there = there && matrix == 0;
        }
        if (there && MATRICES == 1 && to.residual) {
            value += ((const float *)((const char *)to.residual + to.at * args.residual_stride))[n];
        }
        if (there) {
            ((float *)((char *)pick(matrix, to.out) + to.at * pick(matrix, args.out_stride)))[n] =
                    value;
        }
    }
}

// Where the share of `block` begins of what all blocks have. No product leaves 32 bits, for a
// division of 64 takes its time before the first copy.
PTX_INLINE int share_begin(int all, int block) {
    int blocks = (int)gridDim.x;
    return all / blocks * block + all % blocks * block / blocks;
}

// Where a block's tiles begin: blocks share their cost evenly, and a pair's tiles in twos.
PTX_INLINE int first_tile(const mv_args &args, int block) {
    if (PAIR) {
        return share_begin((args.tiles[0] + args.tiles[1]) / 2, block) * 2;
    }
    constexpr bool even = MATRICES == 1 || (same_type<type_0, type_1> &&
                                                   (MATRICES == 2 || same_type<type_0, type_2>));
    int all = 0;
#pragma unroll
    for (int i = 0; i < MATRICES; i++) {
        all += args.tiles[i] * (even ? 1 : args.cost[i]);
    }
    int left = share_begin(all, block);
    if (even) {
        return left;
    }
    int tile = 0;
#pragma unroll
    for (int i = 0; i < MATRICES; i++) {
        int here = min(left, args.tiles[i] * args.cost[i]);
        tile += (here + args.cost[i] - 1) / args.cost[i];
        left -= here;
    }
    return tile;
}

// What a block does: tiles first .. last - 1.
struct task {
    const matrices &m;
    const results &to;
    const float *row, *norm_weight; // of IN
    const int *n_tokens;
    int first, last;
    float *parts, *squares;
};

PTX_INLINE bool in_use(const task &task) {
    return !task.n_tokens || task.to.at < *task.n_tokens;
}

#if MV_BULK
#    include "matmul/mv_bulk.cuh"
#else
#    include "matmul/mv_ring.cuh"
#endif

// in (S, K), norm_weight (K) with NORM; weights (N, K) as in the file, biases (N), residual (S, N),
// outs (S, N); n_tokens (1); NULL where absent. out_0 may be residual.
extern "C" __global__ void __launch_bounds__(MV_BLOCK, 1) mm_stream(const float *in,
        const float *__restrict__ norm_weight, const unsigned char *__restrict__ weight_0,
        const unsigned char *__restrict__ weight_1, const unsigned char *__restrict__ weight_2,
        const float *__restrict__ bias_0, const float *__restrict__ bias_1,
        const float *__restrict__ bias_2, const float *residual, float *out_0, float *out_1,
        float *out_2, const int *__restrict__ n_tokens, const mv_args args) {
    const matrices m = {{weight_0, weight_1, weight_2}, args};
    const results to = {{bias_0, bias_1, bias_2}, residual, {out_0, out_1, out_2}, (int)blockIdx.y};
    float *parts = (float *)(mv_shared + ring_bytes);
    const task mine = {m, to, (const float *)((const char *)in + to.at * args.in_stride),
            norm_weight, n_tokens, first_tile(args, (int)blockIdx.x),
            first_tile(args, (int)blockIdx.x + 1), parts, parts + 2 * part_floats};
    ptx_dependents_may_start();
    stream(mine);
}
