// clock: what happened before what in a block whose warps meet otherwise than all at one barrier:
// mbarriers, barriers of some of the warps. For the files of this folder.
//
// Each warp counts its own time, and knows up to which time of each other warp everything has
// happened before what it does now: it learns so at barriers, from those who arrived. An mbarrier's
// time is the number of its phases that are over; who knows of one knows that its copies are there.
// Each word of shared memory has the time of its last write, by a warp or a copy, and of each
// warp's last read. An access that does not know of those is a race, or early. Where parts of a
// word differ, its bytes are kept apart.
//
// Likewise each warp knows which writes of warps a fence.proxy.async has shown to the copy engine
// and to products of warpgroups (wgmma), which read until their wait.
#ifndef KILN_DEVICE_SIM_CLOCK_H
#define KILN_DEVICE_SIM_CLOCK_H

#include "device/sim/access.h"
#include "device/sim/exec_impl.h"

struct sim_clocks;

KILN_MUST_CHECK enum kiln_status kiln_sim_clocks_create(
        struct sim_clocks **clocks, uint32_t shared_bytes, uint32_t n_warps, struct kiln_err *err);
void kiln_sim_clocks_destroy(struct sim_clocks *clocks); // NULL is fine
// Nothing is written, nobody has read, no two warps have met.
void kiln_sim_clocks_begin(struct sim_clocks *clocks);
// Whole words that were written before the block began.
void kiln_sim_clocks_written(struct sim_clocks *clocks, uint32_t from, uint32_t bytes);

// ---- Accesses -----------------------------------------------------------------------------------
void kiln_sim_clock_access(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_access *access);
// A copy into shared memory, counted at that mbarrier's phase.
void kiln_sim_clock_bulk(struct sim_warp *warp, const struct sim_op *op,
        const struct sim_range *range, const struct sim_mbarrier *barrier);
// A product of the warp may from now on read these words, or no longer does.
void kiln_sim_clock_reading(struct sim_warp *warp, uint32_t at, uint32_t bytes, int under_way);
// Data of a cp.async is there for its own lanes.
void kiln_sim_clock_arrived(struct sim_warp *warp, const struct sim_copy *copy, uint32_t lanes);

// ---- Barriers -----------------------------------------------------------------------------------
// The warp comes to a barrier of the block, with or without waiting.
void kiln_sim_clock_meet(struct sim_warp *warp, uint32_t number);
// Warps in `waiting` go on, knowing of all who came and, where the whole block is meant, who ended.
void kiln_sim_clock_part(struct sim_block *block, uint32_t number, uint32_t waiting, int whole);

// ---- mbarriers ----------------------------------------------------------------------------------
// `barrier` has just been made, or ended, by that lane.
void kiln_sim_clock_made(
        struct sim_warp *warp, const struct sim_op *op, int lane, struct sim_mbarrier *barrier);
// Is used.
void kiln_sim_clock_used(
        struct sim_warp *warp, const struct sim_op *op, int lane, struct sim_mbarrier *barrier);
void kiln_sim_clock_arrives(struct sim_warp *warp, struct sim_mbarrier *barrier);
void kiln_sim_clock_phase_ends(struct sim_block *block, struct sim_mbarrier *barrier);
// The warp has found the phase over.
void kiln_sim_clock_learns(struct sim_warp *warp, struct sim_mbarrier *barrier);
// fence.proxy.async, or fence.mbarrier_init.
void kiln_sim_clock_fence(struct sim_warp *warp, int mbarriers_alone);

#endif
