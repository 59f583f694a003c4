// run_impl: handlers that are not plain arithmetic, for prepare.c and select.c.
#ifndef KILN_DEVICE_SIM_RUN_IMPL_H
#define KILN_DEVICE_SIM_RUN_IMPL_H

#include "device/sim/exec_impl.h"

#define SIM_DECLARE(name) \
    const struct sim_op *kiln_sim_run_##name(struct sim_warp *warp, const struct sim_op *op)

// The first operation of an instruction that a branch may lead to (prepare.c).
const struct sim_op *kiln_sim_op_of(const struct sim_function *function, uint32_t insn);
// Makes room for an activation at warp->frame_at and call_at. 0: no memory.
int kiln_sim_reserve(struct sim_warp *warp, const struct sim_function *function);

// Hands on what the block printed (host.c).
void kiln_sim_print_block(struct sim_block *block);

// warp.c. Branches: mode 1 there is a guard, a; 2 it is negated.
SIM_DECLARE(enter);
SIM_DECLARE(guard);
SIM_DECLARE(jump);
SIM_DECLARE(branch);
SIM_DECLARE(branch_table);
SIM_DECLARE(exit);
SIM_DECLARE(return );
SIM_DECLARE(call);
SIM_DECLARE(call_register);
SIM_DECLARE(trap);
SIM_DECLARE(nothing);
// host.c: what a CUDA program finds on every device
SIM_DECLARE(call_host);
// special.c
SIM_DECLARE(special_register);
SIM_DECLARE(pack);
SIM_DECLARE(unpack);
SIM_DECLARE(local_address);
SIM_DECLARE(to_generic);
SIM_DECLARE(from_generic);
SIM_DECLARE(is_space);
SIM_DECLARE(test_number);
SIM_DECLARE(compare_halves);
SIM_DECLARE(set);
SIM_DECLARE(minmax_pair);
// convert.c, directed.c
SIM_DECLARE(convert);
SIM_DECLARE(convert_pack);
SIM_DECLARE(directed);
// access.c. Loads and stores: n elements of `bytes` bytes in `space`.
SIM_DECLARE(load);
SIM_DECLARE(store);
SIM_DECLARE(load_matrix);
SIM_DECLARE(store_matrix);
SIM_DECLARE(move_matrix);
SIM_DECLARE(wmma_load);
SIM_DECLARE(wmma_store);
// async.c
SIM_DECLARE(copy_async);
SIM_DECLARE(copy_commit);
SIM_DECLARE(copy_wait);
// bulk.c, mbarrier.c
SIM_DECLARE(copy_bulk);
// tensor.c
SIM_DECLARE(copy_tensor);
SIM_DECLARE(mbarrier);
SIM_DECLARE(fence);
// atomic.c
SIM_DECLARE(atomic);
// collect.c
SIM_DECLARE(shuffle);
SIM_DECLARE(vote);
SIM_DECLARE(match);
SIM_DECLARE(reduce);
SIM_DECLARE(active_mask);
SIM_DECLARE(sync_warp);
SIM_DECLARE(elect);
// barrier.c
SIM_DECLARE(barrier);
// mma.c
SIM_DECLARE(matrix);       // any shape
SIM_DECLARE(matrix_quick); // looks that all lanes are there, then runs the one for `mode`
// wgmma.c, watch_wgmma.c
SIM_DECLARE(wgmma);
SIM_DECLARE(wgmma_fence);
SIM_DECLARE(wgmma_commit);
SIM_DECLARE(wgmma_wait);
SIM_DECLARE(watch_registers); // in front of what touches registers that a WGMMA may work on

#endif
