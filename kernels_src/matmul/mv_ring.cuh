// mv_ring: how mm_stream's warps get weights where there is no copy engine: each warp has a ring of
// MV_STAGES pieces of MV_ROWS outputs by a unit, copies into it by cp.async, and waits for nobody
// else. Units are numbered through all tiles; a warp takes every MV_WARPS-th. Included by
// mm_stream.cu alone, which has the products.
#ifndef KILN_MATMUL_MV_RING_CUH
#define KILN_MATMUL_MV_RING_CUH

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

// A tile's rows of a unit. Where they end with the matrix, zeros are put for what lies behind it.
template <class Type>
PTX_INLINE void copy_unit(
        unsigned to, const unsigned char *weight, int tile, int unit, int n, int stride) {
    constexpr int pieces = mv_pieces<Type, 1>;
    constexpr int count = MV_ROWS * pieces;
    const unsigned char *from =
            weight + (long long)MV_ROWS * tile * stride + unit * Type::unit_bytes;
    const unsigned char *end = weight + (long long)n * stride;
    to += ptx_shared(mv_shared);
    if (from + (MV_ROWS - 1) * stride + pieces * 16 <= end) {
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
                        to + (unsigned)(row * row_bytes<Type> + column), source + column);
            }
        }
        return;
    }
#pragma unroll 1
    for (int piece = ptx_lane(); piece < count; piece += 32) {
        int row = piece / pieces;
        int column = piece % pieces * 16;
        const unsigned char *source = from + row * stride;
        source -= (unsigned long long)source & 15;
        long long left = end - (source + column);
        ptx_cp_async_part(to + (unsigned)(row * row_bytes<Type> + column), source + column,
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

// Units of IN, one a warp at a time; the next one's loads are under way meanwhile. One body for all
// of them: to unroll it makes the compiler take twice as long and the kernel no faster. Gives the
// lane's sum of squares.
PTX_INLINE float stage_activations(
        const float *row, const float *norm_weight, const mv_args &args) {
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
        stage_eight(fixed_bytes + (unsigned)(unit * MV_X_UNIT), x);
        column += MV_WARPS * 256;
    }
    return squares;
}

PTX_INLINE void stream(const task &task) {
    const mv_args &args = task.m.args;
    int warp = (int)threadIdx.x / 32;
    unsigned ring = (unsigned)(warp * MV_STAGES * stage_bytes);
    int first = task.first;
    int last = task.last;
    int skip = (warp + MV_WARPS - first * MV_UNITS % MV_WARPS) % MV_WARPS;
    place now = {first + skip / MV_UNITS, skip % MV_UNITS, 0};
    place ahead = now;
    int filled = 0;
#pragma unroll 1
    for (int i = 0; i < MV_STAGES; i++) {
        if (ahead.tile < last) {
            copy_place(ring + (unsigned)(i * stage_bytes), ahead, task.m);
        }
        ptx_cp_async_commit();
        advance(ahead);
    }
    ptx_wait_for_dependency(); // weights are constant; what follows reads what others wrote
    bool used = in_use(task);  // asked late: the answer takes its time
    float sum = stage_activations(task.row, task.norm_weight, args);
    if (NORM) {
        sum = ptx_warp_sum(sum);
        if (ptx_lane() == 0) {
            task.squares[warp] = sum;
        }
    }
    __syncthreads();

    float sums[2] = {0, 0};
    int turn = 0;
#pragma unroll 1
    for (int window = first; window < last; window += MV_WINDOW) {
        int end = min(window + MV_WINDOW, last);
        float *part = task.parts + turn % 2 * part_floats;
        turn++;
#pragma unroll 1
        while (now.tile < end) {
            unsigned stage = ring + (unsigned)(filled * stage_bytes);
            ptx_cp_async_wait<MV_STAGES - 1>();
            __syncwarp();
            multiply_place(sums, stage, load_activations(now.unit), now, task.m);
            __syncwarp();
            if (ahead.tile < last) {
                copy_place(stage, ahead, task.m);
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
        if (used) {
            write_window(part, task.squares, window, end, task.to, args);
        }
    }
    ptx_cp_async_wait<0>();
}

#endif
