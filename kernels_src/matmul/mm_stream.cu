// mm_stream: matrix times vector at the speed of memory, for weights of block types and a few rows
// of activations: OUT = IN times WEIGHT transposed, + BIAS, + RESIDUAL, for one to three matrices
// that share IN. With NORM, IN is normed on its way in (rms, times NORM_WEIGHT); with PAIR, the two
// matrices are GATE and UP and what leaves is act(GATE) * UP.
//
// Weights go once from memory to shared memory, as they lie in the file, by copies that run ahead:
// each warp has a ring of MV_STAGES pieces of 16 outputs by 256 columns (a unit), and waits for
// nobody else. A block has a row of tiles (16 outputs each); its warps take their units in turn. So
// bytes under way are many and do not depend on registers.
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
// then the warps in the order of their first units: it depends on MV_WARPS and the tile's number
// alone.
//
// Grid: x blocks that share the tiles evenly, y rows. Shared memory: see MV_ below. Defines:
// MV_WARPS, MV_STAGES; MV_UNITS of IN's columns; TYPE_0 to TYPE_2 of the matrices (those not there:
// as TYPE_0), MATRICES 1 to 3, PAIR and NORM 0 or 1.
#include "matmul/mv_args.cuh"
#include "matmul/mv_types.cuh"

#if !defined(MV_WARPS) || !defined(MV_STAGES) || !defined(MV_UNITS) || !defined(TYPE_0) || \
        !defined(TYPE_1) || !defined(TYPE_2)
#    error "define MV_WARPS, MV_STAGES, MV_UNITS, TYPE_0, TYPE_1 and TYPE_2"
#endif
#if !defined(MATRICES) || !defined(PAIR) || !defined(NORM) || !defined(X_BITS)
#    error "define MATRICES as 1 to 3, PAIR and NORM as 0 or 1, X_BITS as 8 or 16"
#endif
#if !defined(KILN_SMEM)
#    error "define KILN_SMEM: the shared memory that the launcher asks for, in bytes"
#endif
static_assert(MV_WARPS >= 1 && MV_WARPS <= 32, "MV_WARPS: 1 to 32");
static_assert(MV_STAGES >= 2 && MV_STAGES <= 16, "MV_STAGES: 2 to 16");
static_assert(X_BITS == 8 || X_BITS == 16, "X_BITS: 8 or 16");
static_assert(!PAIR || MATRICES == 2, "PAIR: of two matrices");

#define MV_PASTE(type) mv_##type
#define MV_TYPE(type)  MV_PASTE(type)
typedef MV_TYPE(TYPE_0) type_0;
typedef MV_TYPE(TYPE_1) type_1;
typedef MV_TYPE(TYPE_2) type_2;

#define MV_THREADS (MV_WARPS * 32)
#define MV_WINDOW  8 // tiles whose sums are joined at once
// A unit's activations: bytes, sums of 16 columns, factors of 32.
#define MV_X_UNIT    (512 + 64 + 32)
#define MV_X_SUMS    512
#define MV_X_FACTORS 576

template <int A, int B> constexpr int largest = A > B ? A : B;
constexpr int stage_bytes =
        16 * largest<mv_stride<type_0>, largest<mv_stride<type_1>, mv_stride<type_2>>>;
constexpr int ring_bytes = MV_WARPS * MV_STAGES * stage_bytes;
constexpr int part_floats = MV_WINDOW * MV_WARPS * 16;
constexpr int fixed_bytes = ring_bytes + 2 * part_floats * 4 + (MV_WARPS * 4 + 15) / 16 * 16;
constexpr int x_bytes = MV_UNITS * MV_X_UNIT;
static_assert(KILN_SMEM >= fixed_bytes + x_bytes, "KILN_SMEM: the launcher asks for too little");

// Rings, sums of the warps, sums of squares, activations.
extern "C" __device__ const unsigned kiln_layout_mm_stream[] = {fixed_bytes + x_bytes, 0,
        ring_bytes, ring_bytes, 2 * part_floats * 4, ring_bytes + 2 * part_floats * 4, MV_WARPS * 4,
        fixed_bytes, x_bytes};

struct matrices {
    const unsigned char *weight[3];
    const mv_args &args;
};

struct place { // a unit: which tile, and which unit of its rows
    int tile, unit;
};

// The warp's next unit: MV_WARPS further on.
PTX_INLINE void advance(place &at) {
    at.unit += MV_WARPS;
    if (MV_UNITS >= MV_WARPS) {
        bool next = at.unit >= MV_UNITS;
        at.unit -= next ? MV_UNITS : 0;
        at.tile += next;
    } else {
        at.tile += at.unit / MV_UNITS;
        at.unit %= MV_UNITS;
    }
}

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

// ---- Weights to shared memory -------------------------------------------------------------------
// 16 rows of a unit. In the last tile zeros are put for what lies behind the last row.
template <class Type>
PTX_INLINE void copy_unit(
        unsigned to, const unsigned char *weight, int tile, int unit, int n, int stride) {
    constexpr int pieces = mv_pieces<Type>;
    constexpr int count = 16 * pieces;
    const unsigned char *from = weight + 16ll * tile * stride + unit * Type::unit_bytes;
    to += ptx_shared(mv_shared);
    if (tile * 16 + 16 < n) {
#pragma unroll
        for (int i = 0; i < (count + 31) / 32; i++) {
            int piece = ptx_lane() + 32 * i;
            int row = piece / pieces;
            int column = piece % pieces * 16;
            const unsigned char *source = from + row * stride;
            if (!Type::mv_aligned) {
                source -= (unsigned long long)source & 15;
            }
            if (count % 32 == 0 || piece < count) {
                ptx_cp_async_16_line(
                        to + (unsigned)(row * mv_stride<Type> + column), source + column);
            }
        }
        return;
    }
    const unsigned char *end = weight + (long long)n * stride;
#pragma unroll 1
    for (int piece = ptx_lane(); piece < count; piece += 32) {
        int row = piece / pieces;
        int column = piece % pieces * 16;
        const unsigned char *source = from + row * stride;
        source -= (unsigned long long)source & 15;
        long long left = end - (source + column);
        ptx_cp_async_part(to + (unsigned)(row * mv_stride<Type> + column), source + column,
                left >= 16 ? 16
                : left > 0 ? (int)left
                           : 0);
    }
}

PTX_INLINE void copy_place(unsigned to, place at, const matrices &m) {
    int matrix = matrix_of(at.tile, m.args);
    const unsigned char *weight = pick(matrix, m.weight);
    int n = pick(matrix, m.args.n);
    int stride = pick(matrix, m.args.weight_stride);
    if (first_alike(matrix)) {
        copy_unit<type_0>(to, weight, at.tile, at.unit, n, stride);
    } else if (second_alike(matrix)) {
        copy_unit<type_1>(to, weight, at.tile, at.unit, n, stride);
    } else {
        copy_unit<type_2>(to, weight, at.tile, at.unit, n, stride);
    }
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
    float inverse = some ? limit / largest : 0.0f;
    float factor = some ? largest / limit : finite ? 0.0f : __int_as_float(0x7fc00000);
    unsigned bits[8];
    unsigned top[8];
    unsigned total = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        bits[i] = (unsigned)__float_as_int(__fadd_rn(__fmul_rn(x[i], inverse), 12582912.0f));
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

// Units of IN, one a warp at a time; the next one's loads are under way meanwhile. One body for all
// of them: to unroll it makes the compiler take twice as long and the kernel no faster. Gives the
// lane's sum of squares.
PTX_INLINE float stage_activations(
        unsigned to, const float *row, const float *norm_weight, const mv_args &args) {
    int warp = (int)threadIdx.x / 32;
    int column = warp * 256 + ptx_lane() % 4 * 64 + ptx_lane() / 4 * 8;
    bool wide = args.in_wide != 0;
    float squares = 0;
    float next[8];
    load_eight(next, row, column, args.k, wide);
#pragma unroll 1
    for (int unit = warp; unit < MV_UNITS; unit += MV_WARPS) {
        float x[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[i] = next[i];
        }
        if (MV_UNITS > MV_WARPS) { // behind the last unit: zeros, for nobody
            load_eight(next, row, column + MV_WARPS * 256, args.k, wide);
        }
        if (NORM) {
            float w[8];
            load_eight(w, norm_weight, column, args.k, wide);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                squares = fmaf(x[i], x[i], squares);
                x[i] *= w[i];
            }
        }
        stage_eight(to + (unsigned)(unit * MV_X_UNIT), x);
        column += MV_WARPS * 256;
    }
    return squares;
}

// ---- Products -----------------------------------------------------------------------------------
PTX_INLINE float float_at(unsigned at) {
    return *(const float *)(mv_shared + at);
}

// One unit of 16 rows: adds rows g and g + 8 to sums. x: the unit's activations.
template <class Type>
PTX_INLINE void multiply_unit(float (&sums)[2], unsigned stage, unsigned x,
        const unsigned char *from, int stride, int unit, int k) {
    constexpr int words = Type::mv_group / 4;
    constexpr int groups = 64 / Type::mv_group;
    int g = ptx_lane() / 4;
    int t = ptx_lane() % 4;
    unsigned at[2] = {
            stage + (unsigned)(g * mv_stride<Type>), stage + (unsigned)((g + 8) * mv_stride<Type>)};
    if (!Type::mv_aligned) {
        unsigned low = (unsigned)(unsigned long long)from + (unsigned)(unit * Type::unit_bytes);
        at[0] += low + (unsigned)(g * stride) & 15;
        at[1] += low + (unsigned)((g + 8) * stride) & 15;
    }
    Type a, b;
    a.load(at[0], t);
    b.load(at[1], t);
    bool mine = g / 2 == t;
    uint4 v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = make_uint4(0, 0, 0, 0);
        if (mine) {
            v[i] = mv_four(x + (unsigned)(i * 128 + t * 32 + g % 2 * 16));
        }
    }
#pragma unroll
    for (int group = 0; group < groups; group++) {
        int c[4] = {0, 0, 0, 0};
        float sum = 0;
#pragma unroll
        for (int i = group * words; i < (group + 1) * words; i += 2) {
            const unsigned quants[4] = {a.word(i), b.word(i), a.word(i + 1), b.word(i + 1)};
            unsigned x0 = i % 4 == 0 ? v[i / 4].x : v[i / 4].z;
            unsigned x1 = i % 4 == 0 ? v[i / 4].y : v[i / 4].w;
            if (Type::mv_signed) {
                ptx_mma_s8(c, quants, x0, x1);
            } else {
                ptx_mma_u8(c, quants, x0, x1);
            }
            if (i % 4 == 0) {
                sum += float_at(x + (unsigned)(MV_X_SUMS + t * 16 + i));
            }
        }
        float factor = float_at(x + (unsigned)(MV_X_FACTORS + t * 8 + group * words / 8 * 4));
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
        float (&sums)[2], unsigned stage, unsigned x, place at, const matrices &m) {
    int matrix = matrix_of(at.tile, m.args);
    int stride = pick(matrix, m.args.weight_stride);
    const unsigned char *from = pick(matrix, m.weight) + 16ll * at.tile * stride;
    x += (unsigned)(at.unit * MV_X_UNIT);
    if (first_alike(matrix)) {
        multiply_unit<type_0>(sums, stage, x, from, stride, at.unit, m.args.k);
    } else if (second_alike(matrix)) {
        multiply_unit<type_1>(sums, stage, x, from, stride, at.unit, m.args.k);
    } else {
        multiply_unit<type_2>(sums, stage, x, from, stride, at.unit, m.args.k);
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
    int first = tile * MV_UNITS % MV_WARPS;
    float sum = 0;
#pragma unroll // all loads at once: every block waits for its last sums
    for (int i = 0; i < min(MV_UNITS, MV_WARPS); i++) {
        int warp = first + i < MV_WARPS ? first + i : first + i - MV_WARPS;
        sum += part[((tile - window) * MV_WARPS + warp) * 16 + row];
    }
    return sum;
}

PTX_INLINE float activate(int kind, float x) {
    float u = 0.797884561f * (x + 0.044715f * x * x * x);
    return x / (1.0f + expf(kind == 1 ? -x : -2.0f * u));
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
        int n = tile * 16 + row;
        bool there = n < pick(matrix, args.n);
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

// in (S, K), norm_weight (K) with NORM; weights (N, K) as in the file, biases (N), residual (S, N),
// outs (S, N); n_tokens (1); NULL where absent. out_0 may be residual.
extern "C" __global__ void __launch_bounds__(MV_THREADS, 1) mm_stream(const float *in,
        const float *__restrict__ norm_weight, const unsigned char *__restrict__ weight_0,
        const unsigned char *__restrict__ weight_1, const unsigned char *__restrict__ weight_2,
        const float *__restrict__ bias_0, const float *__restrict__ bias_1,
        const float *__restrict__ bias_2, const float *residual, float *out_0, float *out_1,
        float *out_2, const int *__restrict__ n_tokens, const mv_args args) {
    const matrices m = {{weight_0, weight_1, weight_2}, args};
    const results to = {{bias_0, bias_1, bias_2}, residual, {out_0, out_1, out_2}, (int)blockIdx.y};
    float *parts = (float *)(mv_shared + ring_bytes);
    float *squares = parts + 2 * part_floats;
    unsigned x = fixed_bytes;
    int warp = (int)threadIdx.x / 32;
    unsigned ring = (unsigned)(warp * MV_STAGES * stage_bytes);
    int step = PAIR ? 2 : 1;
    int total = 0;
#pragma unroll
    for (int i = 0; i < MATRICES; i++) {
        total += args.tiles[i];
    }
    total /= step;
    int first = (int)((long long)total * blockIdx.x / gridDim.x) * step;
    int last = (int)((long long)total * (blockIdx.x + 1) / gridDim.x) * step;
    ptx_dependents_may_start();

    // Units are numbered through all tiles; a warp takes every MV_WARPS-th.
    int skip = (warp + MV_WARPS - first * MV_UNITS % MV_WARPS) % MV_WARPS;
    place now = {first + skip / MV_UNITS, skip % MV_UNITS};
    place ahead = now;
    int filled = 0;
#pragma unroll 1
    for (int i = 0; i < MV_STAGES; i++) {
        if (ahead.tile < last) {
            copy_place(ring + (unsigned)(i * stage_bytes), ahead, m);
        }
        ptx_cp_async_commit();
        advance(ahead);
    }
    ptx_wait_for_dependency(); // weights are constant; what follows reads what others wrote
    bool in_use = !n_tokens || to.at < *n_tokens; // asked late: the answer takes its time
    float sum = stage_activations(
            x, (const float *)((const char *)in + to.at * args.in_stride), norm_weight, args);
    if (NORM) {
        sum = ptx_warp_sum(sum);
        if (ptx_lane() == 0) {
            squares[warp] = sum;
        }
    }
    __syncthreads();

    float sums[2] = {0, 0};
    int turn = 0;
#pragma unroll 1
    for (int window = first; window < last; window += MV_WINDOW) {
        int end = min(window + MV_WINDOW, last);
        float *part = parts + turn % 2 * part_floats;
        turn++;
#pragma unroll 1
        while (now.tile < end) {
            unsigned stage = ring + (unsigned)(filled * stage_bytes);
            ptx_cp_async_wait<MV_STAGES - 1>();
            __syncwarp();
            multiply_place(sums, stage, x, now, m);
            __syncwarp();
            if (ahead.tile < last) {
                copy_place(stage, ahead, m);
            }
            ptx_cp_async_commit();
            filled = filled + 1 < MV_STAGES ? filled + 1 : 0;
            int tile = now.tile;
            advance(now);
            advance(ahead);
            if (now.tile != tile) {
                leave_sums(sums, part, tile, window);
            }
        }
        __syncthreads();
        if (in_use) {
            write_window(part, squares, window, end, to, args);
        }
    }
    ptx_cp_async_wait<0>();
}
