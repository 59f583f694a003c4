// watch: what the checks keep about a block's shared memory, and what barriers order. For the files
// of this folder.
//
// Time in a block is counted in epochs: a barrier of the whole block ends one. Each word of shared
// memory knows who wrote it last and who read it in this and the last epoch. Two accesses of one
// epoch by different warps, one of them a write, are a race. Where parts of a word were written by
// different warps the word is split and its bytes are kept apart. Where warps meet otherwise than
// all at one barrier, order is kept by times in place of epochs (clock.h).
#ifndef KILN_DEVICE_SIM_WATCH_H
#define KILN_DEVICE_SIM_WATCH_H

#include "device/sim/exec_impl.h"

struct sim_cells {        // of words, or of bytes
    uint32_t *writer;     // epoch << 5 | warp; SIM_ARRIVES | ...: cp.async under way
    uint32_t *atomics;    // epoch in which it was written, by nothing but atomics (high bit: of
                          // several warps); or 0
    uint32_t *epoch[2];   // by parity of an epoch: the last in which it was read,
    uint32_t *readers[2]; // and by which warps
};

struct sim_shadow {
    uint32_t epoch, first; // now; when the block began
    uint32_t atomic_epoch; // the last with an atomic in it, or 0
    uint32_t words;        // of shared memory
    struct sim_cells word, byte;
    uint32_t *memory;
    int advise;                // look for conflicts with the last epoch
    uint32_t ended[SIM_WARPS]; // the barriers that ended the last epoch, one a warp
    uint32_t n_ended;
    struct sim_clocks *clocks; // NULL: epochs
};

// timed_warps: 0: epochs; else times, of that many warps.
KILN_MUST_CHECK enum kiln_status kiln_sim_shadow_create(struct sim_shadow **shadow,
        uint32_t shared_bytes, uint32_t timed_warps, struct kiln_err *err);
void kiln_sim_shadow_destroy(struct sim_shadow *shadow); // NULL is fine
// Nothing is written and nobody has read.
void kiln_sim_shadow_begin(struct sim_shadow *shadow);
// Whole words that were written before the block began.
void kiln_sim_shadow_written(struct sim_shadow *shadow, uint32_t from, uint32_t bytes);

// The warps in `warps` passed a barrier of the whole block.
void kiln_sim_epoch_ends(struct sim_block *block, uint32_t warps);
// The block is over: what the last barrier ordered is known.
void kiln_sim_epochs_end(struct sim_block *block);
// Data of a cp.async is there for its own lanes. A block that ends waits for what is under way.
void kiln_sim_copy_arrived(struct sim_warp *warp, const struct sim_copy *copy, uint32_t lanes);

#endif
