// run: one launch under way. For the files of this folder.
#ifndef KILN_DEVICE_SIM_RUN_H
#define KILN_DEVICE_SIM_RUN_H

#include "device/sim/exec_impl.h"

#include <pthread.h>

struct sim_run {
    const struct kiln_sim_launch *launch;
    const struct kiln_sim_options *options;
    unsigned char *params;
    uint32_t n_threads, n_warps, shared_bytes; // of a block
    uint64_t n_blocks, limit;
    uint32_t n_workers;
    struct sim_worker *workers;  // (n_workers)
    struct sim_block **contexts; // (n_workers): what each worker runs its blocks in
    struct sim_block **together; // blocks that take turns
    pthread_t launcher;
    atomic_uint_fast64_t done;
    atomic_int interrupted;
    pthread_mutex_t lock;              // over the two below
    atomic_uint_fast64_t failed_block; // UINT64_MAX: none
    struct kiln_err failure;
};

#endif
