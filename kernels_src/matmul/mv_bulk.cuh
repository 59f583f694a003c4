// mv_bulk: how mm_stream's warps get weights where there is a copy engine: the block has one ring
// of MV_STAGES stages of a tile's rows by MV_CHUNK units, whole rows where K is short; a warp of
// its own has them copied. Of each tile the other warps have the same units: so each makes integers
// of its own activations, on its way through the first tile, and waits for nobody's. Included by
// mm_stream.cu alone, which has the products.
#ifndef KILN_MATMUL_MV_BULK_CUH
#define KILN_MATMUL_MV_BULK_CUH

#include "common/bulk.cuh"

#define MV_BEHIND 4 // bytes behind a unit that reading may touch (mv_words)

// Two barriers a stage: it is full, it is empty again.
struct ring {
    unsigned full, empty; // of the first stage
};

struct turn { // a stage's turn: the parity of its barriers' phases alternates
    int stage;
    unsigned parity;
};

PTX_INLINE void advance(turn &at) {
    at.stage = at.stage + 1 < MV_STAGES ? at.stage + 1 : 0;
    at.parity ^= at.stage == 0;
}

// A tile's rows, a lane each, from chunk `chunk` of their units on; lanes behind the matrix's last
// row bring that row again. Of rows that do not begin and end at 16 bytes the copies begin and end
// a little outside, with all that reading touches; behind the matrix nothing is read, and what is
// missing the lane itself brings, and zeros.
template <class Type>
PTX_INLINE void copy_chunk(unsigned to, const unsigned char *weight, int tile, int chunk, int n,
        int stride, unsigned barrier) {
    int lane = ptx_lane();
    int row = min(tile * MV_ROWS + lane, n - 1);
    int first = chunk * MV_CHUNK * Type::unit_bytes;
    int bytes = lane < MV_ROWS ? min(MV_CHUNK, MV_UNITS - chunk * MV_CHUNK) * Type::unit_bytes : 0;
    const unsigned char *from = weight + (long long)row * stride + first;
    to += (unsigned)(lane * row_bytes<Type>);
    if (!Type::mv_aligned && bytes > 0) {
        int before = (int)((unsigned long long)from & 15);
        from -= before;
        int shift = tile * MV_ROWS + lane < n ? before : 14; // one that is not there may lie so
        int end = min((shift + bytes + MV_BEHIND + 15) / 16 * 16, row_bytes<Type>);
        long long behind = weight + (long long)n * stride - from;
        int left = behind < end ? (int)behind : end;
        bytes = left / 16 * 16;
        for (int i = bytes; i < end; i += 2) {
            *(unsigned short *)__cvta_shared_to_generic(to + (unsigned)i) =
                    i < left ? *(const unsigned short *)(from + i) : (unsigned short)0;
        }
        if (bytes < end) {
            bulk_written();
        }
    }
    __syncwarp();
    int all = bytes;
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        all += __shfl_xor_sync(0xffffffffu, all, i);
    }
    if (lane == 0) {
        bulk_arrive_expect(barrier, (unsigned)all);
    }
    __syncwarp();
    if (bytes > 0) {
        bulk_copy(to, from, (unsigned)bytes, barrier);
    }
}

PTX_INLINE void copy_place(unsigned to, int tile, int chunk, const matrices &m, unsigned barrier) {
    int matrix = matrix_of(tile, m.args);
    const unsigned char *weight = pick(matrix, m.weight);
    int n = pick(matrix, m.args.n);
    int stride = pick(matrix, m.args.weight_stride);
    if (first_alike(matrix)) {
        copy_chunk<type_0>(to, weight, tile, chunk, n, stride, barrier);
    } else if (second_alike(matrix)) {
        copy_chunk<type_1>(to, weight, tile, chunk, n, stride, barrier);
    } else {
        copy_chunk<type_2>(to, weight, tile, chunk, n, stride, barrier);
    }
}

// The warp that has stages filled: the first ones while the launch before still runs.
PTX_INLINE void produce(const task &task, const ring &ring) {
    turn at = {0, 1}; // fresh barriers count as done with the phase before
#pragma unroll 1
    for (int tile = task.first; tile < task.last; tile++) {
#pragma unroll 1
        for (int chunk = 0; chunk < MV_CHUNKS; chunk++) {
            bulk_wait(ring.empty + (unsigned)(at.stage * 8), at.parity);
            copy_place(ptx_shared(mv_shared) + (unsigned)(at.stage * stage_bytes), tile, chunk,
                    task.m, ring.full + (unsigned)(at.stage * 8));
            advance(at);
        }
    }
}

// A unit's activations on their way: eight columns a lane, and their factors with NORM.
struct eight {
    float x[8], w[8];
};

PTX_INLINE void load_factors(eight &next, const task &task, int column, bool wide) {
    if (NORM) {
        load_eight(next.w, task.norm_weight, column, task.m.args.k, wide);
    }
}

// Makes integers of them. Gives the lane's sum of squares.
PTX_INLINE float stage_unit(eight &mine, int unit) {
    float squares = 0;
    if (NORM) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            squares = fmaf(mine.x[i], mine.x[i], squares);
            mine.x[i] *= mine.w[i];
        }
    }
    stage_eight(fixed_bytes + (unsigned)(unit * MV_X_UNIT), mine.x);
    __syncwarp();
    return squares;
}

// What the results are added to comes from memory: sent for before it is wanted.
PTX_INLINE void prefetch_biases(const task &task) {
    for (int i = (int)threadIdx.x; i < (task.last - task.first) * 16; i += MV_THREADS) {
        int tile = task.first + i / 16;
        int matrix = matrix_of(tile, task.m.args);
        int n = tile * MV_ROWS + i % 16;
        const float *bias = pick(matrix, task.to.bias);
        if (bias && n < pick(matrix, task.m.args.n)) {
            ptx_prefetch(bias + n);
        }
    }
}

PTX_INLINE void consume(const task &task, const ring &ring) {
    const mv_args &args = task.m.args;
    int warp = (int)threadIdx.x / 32;
    int column = ptx_lane() % 4 * 64 + ptx_lane() / 4 * 8; // of a unit
    bool wide = args.in_wide != 0;
    eight next; // of the unit that is made integers next
    load_factors(next, task, warp * 256 + column, wide);
    if (!PAIR && task.to.bias[0]) {
        prefetch_biases(task);
    }
    ptx_wait_for_dependency(); // weights are constant; what follows reads what others wrote
    load_eight(next.x, task.row, warp * 256 + column, args.k, wide);
    bool used = in_use(task);
    float squares = 0;
    float sums[2] = {0, 0};
    activations x; // of the last unit; of the only one all the way
    turn at = {0, 0};
    int windows = 0;
#pragma unroll 1
    for (int window = task.first; window < task.last; window += MV_WINDOW) {
        int end = min(window + MV_WINDOW, task.last);
        float *part = task.parts + windows % 2 * part_floats;
        windows++;
#pragma unroll 1
        for (int tile = window; tile < end && warp < MV_CHUNK; tile++) {
#pragma unroll 1
            for (int chunk = 0; chunk < MV_CHUNKS; chunk++) {
                int unit = chunk * MV_CHUNK + warp;
                if (tile == task.first && unit < MV_UNITS) {
                    eight mine = next;
                    if (MV_CHUNKS > 1) { // behind the last unit: zeros, for nobody
                        int further = (unit + MV_CHUNK) * 256 + column;
                        load_eight(next.x, task.row, further, args.k, wide);
                        load_factors(next, task, further, wide);
                    }
                    squares += stage_unit(mine, unit);
                }
                if (MV_CHUNKS > 1 || tile == task.first) { // behind the last unit: its own before
                    x = load_activations(unit < MV_UNITS ? unit : unit - MV_CHUNK);
                }
                bulk_wait(ring.full + (unsigned)(at.stage * 8), at.parity);
                if (unit < MV_UNITS) {
                    const place here = {tile, unit, warp};
                    multiply_place(sums, (unsigned)(at.stage * stage_bytes), x, here, task.m);
                }
                __syncwarp();
                if (ptx_lane() == 0) {
                    bulk_arrive(ring.empty + (unsigned)(at.stage * 8));
                }
                advance(at);
            }
            leave_sums(sums, part, tile, window);
        }
        if (NORM && window == task.first) {
            squares = ptx_warp_sum(squares);
            if (ptx_lane() == 0) {
                task.squares[warp] = squares;
            }
        }
        bulk_sync_some(1, MV_THREADS);
        if (used) {
            write_window(part, task.squares, window, end, task.to, args);
        }
    }
}

PTX_INLINE void stream(const task &task) {
    unsigned barriers = ptx_shared(mv_shared) + fixed_bytes + x_bytes;
    const ring ring = {barriers, barriers + MV_STAGES * 8};
    bool producer = threadIdx.x >= MV_THREADS;
    if (threadIdx.x == MV_THREADS) {
        for (int i = 0; i < MV_STAGES; i++) {
            bulk_barrier_begin(ring.full + (unsigned)(i * 8), 1);
            bulk_barrier_begin(ring.empty + (unsigned)(i * 8), MV_CHUNK);
        }
        bulk_barriers_begun();
    }
    __syncthreads();
    if (producer) {
        produce(task, ring);
    } else {
        consume(task, ring);
    }
}

#endif
