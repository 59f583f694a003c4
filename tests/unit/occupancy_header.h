// occupancy_header: what the toolkit's own cuda_occupancy.h says, where the build found it.
#ifndef KILN_TESTS_OCCUPANCY_HEADER_H
#define KILN_TESTS_OCCUPANCY_HEADER_H

#include "jit/occupancy.h"

// 0: this build has no toolkit.
int header_is_here(void);
// Fills in blocks, limits, by_smem, by_registers, by_warps and by_blocks.
void header_occupancy(const struct kiln_device *device, const struct kiln_block_use *use,
        struct kiln_occupancy *occupancy);

#endif
