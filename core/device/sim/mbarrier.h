// mbarrier: a block's barriers in shared memory. For the files of this folder.
#ifndef KILN_DEVICE_SIM_MBARRIER_H
#define KILN_DEVICE_SIM_MBARRIER_H

#include "device/sim/exec_impl.h"

// The one at that offset of shared memory, also when it was invalidated; NULL: there never was one.
struct sim_mbarrier *kiln_sim_mbarrier_at(struct sim_block *block, uint32_t at);
// The same for a lane that uses it; NULL: it is none, which is a finding or has ended the launch.
struct sim_mbarrier *kiln_sim_mbarrier_live(
        struct sim_warp *warp, const struct sim_op *op, int lane, uint32_t at);
// Bytes of a copy have arrived, or with a minus are expected. 0: the launch ends.
int kiln_sim_mbarrier_bytes(struct sim_warp *warp, const struct sim_op *op, int lane,
        struct sim_mbarrier *barrier, int64_t bytes);

// A phase has ended since the warp began to wait for one.
int kiln_sim_may_go_on(const struct sim_warp *warp);
// No warp of the block can go on, n_waiting of them wait for phases, `warp` is the first.
void kiln_sim_mbarrier_stuck(struct sim_warp *warp, uint32_t n_waiting);
// The block is over: where all its warps have ended, bytes that nobody expected are a finding.
void kiln_sim_mbarriers_end(struct sim_block *block);

#endif
