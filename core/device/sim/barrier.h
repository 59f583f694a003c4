// barrier: which warps of a block may go on. For the files of this folder.
#ifndef KILN_DEVICE_SIM_BARRIER_H
#define KILN_DEVICE_SIM_BARRIER_H

#include "device/sim/exec_impl.h"

// Lets the warps go that wait at a barrier which is complete. 0: there was none.
int kiln_sim_barriers_open(struct sim_block *block);

#endif
