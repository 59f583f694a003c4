// mmq_share: which blocks make which tiles of a product whose steps are shared out evenly
// (stream-K). For mm_mmq, which makes them, and mm_mmq_seams, which adds up what several made.
//
// A tile is TILE_M rows by BN outputs, a step BK columns of it. Tiles with rows in use are numbered
// rows first. `splits` is how many blocks the device holds at a time. As many tiles as fill whole
// turns of it have a block each. The steps of the others, in order, are one line, cut into ranges
// of as many steps, or one more, for `splits` blocks (fewer where a range would have less than
// MMQ_LEAST_STEPS). So a block may end one tile and begin another; what it makes of a tile that
// others also work on is a part.
//
//   tile       |--------- 5 --------|--------- 6 --------|--------- 7 --------|
//   block      |---- 0 ----|---- 1 ----|---- 2 ----|---- 3 ----|---- 4 ----|-- ...
//
// Parts lie in the workspace, each TILE_M rows of BN f32: 2 * block + 1 for the one that begins a
// tile, 2 * block for the one that does not. A block has at most one of each.
//
// Counted are tiles with rows in use, not those of the bound: a bound may be twice as much, and
// half of the ranges would be empty. So how the sums of a row are grouped follows from the product,
// the device and the number of rows in the call.
#ifndef KILN_MATMUL_MMQ_SHARE_CUH
#define KILN_MATMUL_MMQ_SHARE_CUH

#include "common/ptx.cuh"
#include "matmul/mm_args.cuh"

#define MMQ_LEAST_STEPS 2

PTX_INLINE int mmq_steps(const mm_args &args) { // of a tile
    return (args.k + BK - 1) / BK;
}

PTX_INLINE int mmq_row_tiles(int rows) {
    return (rows + TILE_M - 1) / TILE_M;
}

// Tiles. row_tiles: mmq_row_tiles of the rows in use.
PTX_INLINE int mmq_tiles(int row_tiles, const mm_args &args) {
    return row_tiles * ((args.n + BN - 1) / BN);
}

// The line of steps that blocks share.
struct mmq_line {
    int first;  // tile that it begins with: those before have a block each
    int steps;  // all
    int blocks; // that share it, at least 1
};

PTX_INLINE mmq_line mmq_line_of(int row_tiles, const mm_args &args) {
    int tiles = mmq_tiles(row_tiles, args);
    int shared = tiles % args.splits;
    int steps = shared * mmq_steps(args);
    return {tiles - shared, steps, min(args.splits, max(steps / MMQ_LEAST_STEPS, 1))};
}

// Where the range of a block begins, and that of the one before ends.
PTX_INLINE int mmq_range(int block, const mmq_line &line) {
    return line.steps / line.blocks * block + min(block, line.steps % line.blocks);
}

// The block whose range has this step of a line with steps.
PTX_INLINE int mmq_owner(int step, const mmq_line &line) {
    int each = line.steps / line.blocks; // at least 1
    int longer = line.steps % line.blocks;
    int before = longer * (each + 1);
    return step < before ? step / (each + 1) : longer + (step - before) / each;
}

// The work of a block: steps begin to end, of which step 0 is the first of tile `first`.
struct mmq_work {
    int first, begin, end;
};

// The first `splits` blocks share the line, those behind have a tile each.
PTX_INLINE mmq_work mmq_work_of(int block, int row_tiles, const mm_args &args) {
    mmq_line line = mmq_line_of(row_tiles, args);
    if (block < args.splits) {
        return {line.first, mmq_range(min(block, line.blocks), line),
                mmq_range(min(block + 1, line.blocks), line)};
    }
    int tile = block - args.splits;
    return {tile, 0, tile < line.first ? mmq_steps(args) : 0};
}

#endif
