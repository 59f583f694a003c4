// mmq_share: see mmq_share.h.
//
// Reckoned in microseconds. A multiprocessor makes the steps of its blocks one after another, or at
// once in as much time; the device is done when the multiprocessor with most to do is.
//
//   a block each:   tiles / sm_count, rounded up, times (steps of a tile, and its edge)
//   equal parts:    the same with as many more blocks of fewer steps, and the join
//   shared steps:   whole turns of tiles as in the first; then every multiprocessor as many of the
//                   steps that are left, an edge for each tile that it touches, and the seams
//
// With 112 tiles of 148 steps for 132 multiprocessors the first is 148 steps, the second 148 as
// well (there is no room for two parts), the last 126. What it costs for that is written and read
// again: at most two parts of a tile's size a block.
#include "mmq_share.h"

// ---- What the reckoning rests on ----------------------------------------------------------------
// Correct these where a measurement says otherwise; the comparison follows their proportions alone.
enum {
    // Estimated: to bring and to recombine the weights of a step takes as long as the products of
    // this many rows.
    LEAST_ROWS = 64,
    // A choice, of the kernels too: MMQ_LEAST_STEPS. A block that gets fewer steps waits for its
    // first longer than it works.
    LEAST_STEPS = 2
};
// Measured: operations a microsecond and multiprocessor, from 208 to 218 TOP/s for q4_K on the 132
// of an H200 (plugins/matmul/README.md). Other types are slower, other devices differ.
static const double sm_rate = 1.6e6;
// Estimated: until a block's first tile is in shared memory, and its results have left. About a
// step of 128 x 128 x 128, which is 2.6.
static const double edge = 2.5;
// Estimated: one more launch in a recorded graph, from the end of one kernel to work in the next.
static const double another_launch = 3.0;
// Estimated, where the bandwidth is unknown: bytes a microsecond and multiprocessor. By their
// datasheets 6 (GB10) to 36 (H200) thousand.
static const double sm_bandwidth = 10e3;
// A choice: shared steps must be reckoned this much faster to be taken. Within it nothing can be
// said.
static const double worth_it = 0.98;

static int64_t up(int64_t count, int64_t size) {
    return (count + size - 1) / size;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t at_least_one(int64_t number) {
    return number < 1 ? 1 : number;
}

// ---- Time ---------------------------------------------------------------------------------------
static double step_time(const struct mmq_product *product) {
    double rows = product->bm < LEAST_ROWS ? LEAST_ROWS : product->bm;
    return 2 * rows * product->bn * product->bk / sm_rate;
}

// A launch that reads this many parts of a tile's size, and writes so many tiles.
static double join_time(const struct mmq_product *product, int64_t parts, int64_t tiles) {
    double bandwidth = product->memory_bandwidth > 0 ? product->memory_bandwidth / 1e6
                                                     : product->sm_count * sm_bandwidth;
    double bytes = (double)(parts + tiles) * product->bm * product->bn * (double)sizeof(float);
    return another_launch + bytes / bandwidth;
}

static double tiles_time(const struct mmq_product *product, int64_t blocks, int64_t steps) {
    return (double)up(blocks, product->sm_count) * ((double)steps * step_time(product) + edge);
}

// The steps of so many tiles, shared, and their seams.
static double line_time(const struct mmq_product *product, int64_t shared, int64_t held) {
    if (shared == 0) {
        return join_time(product, 0, 0);
    }
    int64_t steps = shared * product->steps;
    int64_t blocks = least(held, at_least_one(steps / LEAST_STEPS));
    int64_t each = up(steps, blocks);
    int64_t touched = up(each - 1, product->steps) + 1; // a range begins anywhere
    // Each cut makes one more piece; all pieces of cut tiles are read.
    int64_t cut_tiles = least(blocks - 1, shared);
    return (double)up(blocks, product->sm_count) *
                   ((double)each * step_time(product) + (double)touched * edge) +
           join_time(product, blocks - 1 + cut_tiles, cut_tiles);
}

double mmq_time(
        const struct mmq_product *product, const struct mmq_share *share, int64_t row_tiles) {
    int64_t tiles = row_tiles * product->out_tiles;
    if (share->streamed) {
        int64_t shared = tiles % share->splits;
        return tiles_time(product, tiles - shared, product->steps) +
               line_time(product, shared, share->splits);
    }
    double time = tiles_time(product, tiles * share->splits, up(product->steps, share->splits));
    return share->splits > 1 ? time + join_time(product, tiles * share->splits, tiles) : time;
}

// What a plan that knows the bound of the rows alone can expect. Bounds are powers of two, for all
// counts of rows above half of them; but long prompts come in chunks that fill theirs, so that the
// bound itself counts as much as all those.
static double expected_time(const struct mmq_product *product, const struct mmq_share *share) {
    double sum = 0;
    int64_t first = product->row_tiles / 2 + 1;
    for (int64_t row_tiles = first; row_tiles <= product->row_tiles; row_tiles++) {
        sum += mmq_time(product, share, row_tiles);
    }
    return (sum / (double)(product->row_tiles - first + 1) +
                   mmq_time(product, share, product->row_tiles)) /
           2;
}

// ---- Ways ---------------------------------------------------------------------------------------
static int64_t blocks_held(const struct mmq_product *product) {
    return (int64_t)product->sm_count * product->a_sm;
}

static int32_t count_parts(const struct mmq_product *product, int32_t wanted) {
    int64_t parts = wanted;
    if (wanted == 0) {
        parts = blocks_held(product) / (product->row_tiles * product->out_tiles);
        parts = least(parts, product->steps / 2);
    }
    parts = at_least_one(least(parts, product->steps));
    return (int32_t)up(product->steps, up(product->steps, parts)); // none without work
}

int64_t mmq_most_shared(const struct mmq_product *product, const struct mmq_share *share) {
    return at_least_one(least(product->row_tiles * product->out_tiles, share->splits - 1));
}

bool mmq_tiles_are_counted(const struct mmq_product *product, const struct mmq_share *share) {
    return product->row_tiles * product->out_tiles <= INT32_MAX - share->splits;
}

struct mmq_share mmq_pick_share(
        const struct mmq_product *product, int32_t splits, enum mmq_stream stream) {
    struct mmq_share equal = {.splits = count_parts(product, splits)};
    struct mmq_share streamed = {.streamed = true, .splits = (int32_t)blocks_held(product)};
    if (stream == MMQ_STREAM_ALWAYS) {
        return streamed;
    }
    bool may = stream == MMQ_STREAM_WHERE_FASTER && splits == 0 &&
               mmq_tiles_are_counted(product, &streamed);
    return may && expected_time(product, &streamed) < worth_it * expected_time(product, &equal)
                   ? streamed
                   : equal;
}
