// synth_blocks: random blocks of every weight type, made as they will lie in memory.
//
// Quants are uniform and scales are drawn from a short table, so that the values have mean zero and
// the wanted variance, and every bit of a block is used: scales, minimums and quants differ from
// block to block.
#ifndef KILN_MODEL_SYNTH_BLOCKS_H
#define KILN_MODEL_SYNTH_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

struct kiln_synth_rng {
    uint64_t state;
};
uint64_t kiln_synth_next(struct kiln_synth_rng *rng);

enum {
    KILN_SYNTH_LEVELS = 16
};

struct kiln_synth_blocks {
    uint32_t dtype;
    float limit; // types without blocks: uniform in [-limit, limit]
    // f16: the scales to draw from, and what goes with each: the minimum's scale (q4_K, q5_K) or
    // the minimum itself (q4_1).
    uint16_t d[KILN_SYNTH_LEVELS], low[KILN_SYNTH_LEVELS];
};

// dtype: a weight type; variance of the values: above 0. Returns 0, or -1 for another type.
int kiln_synth_blocks_init(struct kiln_synth_blocks *b, uint32_t dtype, double variance);

// out: `count` blocks.
void kiln_synth_fill(
        const struct kiln_synth_blocks *b, struct kiln_synth_rng *rng, uint8_t *out, size_t count);

#endif
