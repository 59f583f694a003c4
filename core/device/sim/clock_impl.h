// clock_impl: what clock.c and watch_clock.c share.
#ifndef KILN_DEVICE_SIM_CLOCK_IMPL_H
#define KILN_DEVICE_SIM_CLOCK_IMPL_H

#include "device/sim/clock.h"
#include "device/sim/watch.h"

enum {
    SIM_AGENTS = SIM_WARPS + SIM_MBARRIERS, // who has a time: warps, then mbarriers
};

struct sim_vector {
    uint32_t seen[SIM_AGENTS]; // up to which time of each everything has happened before
    uint32_t shown[SIM_WARPS]; // up to which the copy engine has been shown it
};

struct sim_mbarrier_clock {
    struct sim_vector coming; // what those know who have arrived
    struct sim_vector over;   // what they knew when the last phase ended
    uint32_t phases;          // that are over
    uint32_t maker, made;     // who made it, and when
    uint32_t shower, shown;   // who showed it to the copy engine; UINT32_MAX: nobody
};

struct sim_cell {   // of a word, or a byte
    uint32_t time;  // of the last write
    uint16_t who;   // wrote: an agent
    uint16_t flags; // enum sim_cell_flag
};

enum sim_cell_flag {
    SIM_CELL_ATOMIC = 1,   // by an atomic
    SIM_CELL_ARRIVES = 2,  // a cp.async of that warp, under way
    SIM_CELL_MBARRIER = 4, // it is an mbarrier's
    SIM_CELL_SPLIT = 8,    // a word whose bytes have cells of their own
};

struct sim_clocks {
    uint32_t begin; // everybody's time when the block began
    uint32_t n_warps, words;
    struct sim_vector warps[SIM_WARPS], barriers[SIM_BARRIERS];
    struct sim_mbarrier_clock mbarriers[SIM_MBARRIERS];
    struct sim_cell *cells; // (5 words): of words, then of bytes
    uint32_t *reads;        // (5 words, n_warps): time of each warp's last read, or SIM_READING
};

#define SIM_READING UINT32_MAX // a product of the warp may still read it

// NULL: no check wants them.
static inline struct sim_clocks *kiln_sim_clocks_of(const struct sim_block *block) {
    return block->shadow ? block->shadow->clocks : NULL;
}

struct sim_mbarrier_clock *kiln_sim_clock_of(
        struct sim_clocks *clocks, const struct sim_block *block, const struct sim_mbarrier *b);
// The warp has made the barrier: nobody has come to it.
void kiln_sim_clock_new(
        struct sim_clocks *clocks, const struct sim_warp *warp, const struct sim_mbarrier *barrier);

#endif
