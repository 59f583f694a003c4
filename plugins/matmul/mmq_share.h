// mmq_share: how the blocks of an int8 product share its tiles: a block each, K in equal parts, or
// (stream-K) the steps of what does not fill a turn of the device in equal ranges. Picks what is
// reckoned to take least time. What the kernels make of it: kernels_src/matmul/mmq_share.cuh.
#ifndef MATMUL_MMQ_SHARE_H
#define MATMUL_MMQ_SHARE_H

#include <stdbool.h>
#include <stdint.h>

enum mmq_stream { // values of STREAM_K
    MMQ_STREAM_NEVER,
    MMQ_STREAM_ALWAYS,
    MMQ_STREAM_WHERE_FASTER
};

// What the reckoning follows. A tile is bm rows by bn outputs, a step bk columns of it. The numbers
// are at least 1.
struct mmq_product {
    int64_t row_tiles, out_tiles; // tiles along the bound of the rows, and along the outputs
    int64_t steps;                // of a tile
    int32_t bm, bn, bk;
    int32_t sm_count, a_sm;  // multiprocessors, and blocks that one holds at a time
    double memory_bandwidth; // bytes a second; 0: unknown
};

struct mmq_share {
    bool streamed;
    int32_t splits; // parts of K of each tile; streamed: blocks that the device holds at a time
};

// Microseconds that a product takes when `row_tiles` tiles of rows are in use, reckoned; good
// enough to compare ways with each other.
double mmq_time(
        const struct mmq_product *product, const struct mmq_share *share, int64_t row_tiles);

// Tiles whose steps may be shared, at most, whatever rows are in use: fewer than a turn.
int64_t mmq_most_shared(const struct mmq_product *product, const struct mmq_share *share);

// Whether the kernels, which count in 31 bits, can stream so many tiles.
bool mmq_tiles_are_counted(const struct mmq_product *product, const struct mmq_share *share);

// The way to take. splits: parts of K asked for, or 0: as many as give every multiprocessor work;
// none is empty. MMQ_STREAM_ALWAYS streams even what cannot be counted.
struct mmq_share mmq_pick_share(
        const struct mmq_product *product, int32_t splits, enum mmq_stream stream);

#endif
