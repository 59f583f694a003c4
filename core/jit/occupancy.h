// occupancy: how many blocks of a kernel a multiprocessor holds at once, and what stops it from
// holding more. Arithmetic on a device description; nothing is asked of a device.
//
// Follows what cuda_occupancy.h of CUDA 13.0 computes for compute capability 7.5 and later: shared
// memory is given out in units a block, registers in units a warp and by quarters of a
// multiprocessor. tests/golden/occupancy.json holds that header's answers.
#ifndef KILN_JIT_OCCUPANCY_H
#define KILN_JIT_OCCUPANCY_H

#include "base/buf.h"
#include "kiln/plugin.h"

#include <stdint.h>

// What one block of a kernel takes.
struct kiln_block_use {
    uint32_t threads;
    int32_t registers;    // a thread; -1: not known, taken as no limit
    uint32_t smem_static; // bytes, by the compiled kernel
    uint32_t smem_dynamic;
};

enum kiln_occupancy_limit { // flags
    KILN_OCCUPANCY_SMEM = 1,
    KILN_OCCUPANCY_REGISTERS = 2,
    KILN_OCCUPANCY_WARPS = 4,
    KILN_OCCUPANCY_BLOCKS = 8,
    KILN_OCCUPANCY_THREADS = 16, // a block has more than a block may have
};

struct kiln_occupancy {
    int32_t blocks;   // a multiprocessor; 0: the device cannot run the block at all
    uint32_t limits;  // enum kiln_occupancy_limit: those that allow no more than `blocks`
    int32_t warps;    // of these blocks
    double occupancy; // warps over the multiprocessor's, 0 to 1
    // What each resource alone would allow; INT32_MAX: no limit.
    int32_t by_smem, by_registers, by_warps, by_blocks;
    uint32_t smem_block;      // bytes that a block takes from the multiprocessor, all told
    uint32_t registers_block; // registers likewise; 0: not known
};

// device: a CUDA device whose limits are all known (configs/devices, or a driver's).
void kiln_occupancy_of(const struct kiln_device *device, const struct kiln_block_use *use,
        struct kiln_occupancy *occupancy);

// "shared memory", "registers", "warps", "blocks", "threads": of one flag.
const char *kiln_occupancy_limit_name(uint32_t limit);
// The first limit in the order of the enum; NULL when there is none.
const char *kiln_occupancy_limiter(const struct kiln_occupancy *occupancy);

#endif
