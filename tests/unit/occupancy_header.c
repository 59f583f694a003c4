// occupancy_header: asks cuda_occupancy.h with nothing but a device description's figures.
#include "occupancy_header.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#ifdef HAVE_CUDA_OCCUPANCY
#    include <cuda_occupancy.h>

int header_is_here(void) {
    return 1;
}

static uint32_t limits_of(const struct cudaOccResult *result, int threads_fit) {
    static const struct {
        unsigned theirs;
        uint32_t ours;
    } names[] = {
            {OCC_LIMIT_SHARED_MEMORY, KILN_OCCUPANCY_SMEM},
            {OCC_LIMIT_REGISTERS, KILN_OCCUPANCY_REGISTERS},
            {OCC_LIMIT_WARPS, KILN_OCCUPANCY_WARPS},
            {OCC_LIMIT_BLOCKS, KILN_OCCUPANCY_BLOCKS},
    };
    uint32_t limits = 0;
    for (int i = 0; i < 4; i++) {
        limits |= result->limitingFactors & names[i].theirs ? names[i].ours : 0;
    }
    if ((limits & KILN_OCCUPANCY_WARPS) && !threads_fit) {
        limits ^= KILN_OCCUPANCY_WARPS | KILN_OCCUPANCY_THREADS;
    }
    return limits;
}

void header_occupancy(const struct kiln_device *device, const struct kiln_block_use *use,
        struct kiln_occupancy *occupancy) {
    struct cudaOccDeviceProp properties = {
            .computeMajor = device->cc / 10,
            .computeMinor = device->cc % 10,
            .maxThreadsPerBlock = device->max_threads_block,
            .maxThreadsPerMultiprocessor = device->max_threads_sm,
            .regsPerBlock = device->regs_block,
            .regsPerMultiprocessor = device->regs_sm,
            .warpSize = device->warp_size,
            .sharedMemPerBlock = (size_t)device->smem_block,
            .sharedMemPerMultiprocessor = (size_t)device->smem_sm,
            .numSms = device->sm_count,
            .sharedMemPerBlockOptin = (size_t)device->smem_block_optin,
            .reservedSharedMemPerBlock = (size_t)device->smem_reserved,
    };
    struct cudaOccFuncAttributes function = {
            .maxThreadsPerBlock = device->max_threads_block,
            .numRegs = use->registers > 0 ? use->registers : 0,
            .sharedSizeBytes = use->smem_static,
            .shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN,
            .maxDynamicSharedSizeBytes = use->smem_dynamic, // as kiln sets it for each function
            .numBlockBarriers = 1,
    };
    struct cudaOccDeviceState state = {.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT};
    struct cudaOccResult result = {0};
    assert_int_equal(cudaOccMaxActiveBlocksPerMultiprocessor(&result, &properties, &function,
                             &state, (int)use->threads, use->smem_dynamic),
            CUDA_OCC_SUCCESS);
    *occupancy = (struct kiln_occupancy){.blocks = result.activeBlocksPerMultiprocessor,
            .limits = limits_of(&result, use->threads <= (uint32_t)device->max_threads_block),
            .by_smem = result.blockLimitSharedMem,
            .by_registers = result.blockLimitRegs,
            .by_warps = result.blockLimitWarps,
            .by_blocks = result.blockLimitBlocks,
            .smem_block = (uint32_t)result.allocatedSharedMemPerBlock,
            .registers_block = (uint32_t)result.allocatedRegistersPerBlock};
}
#else
int header_is_here(void) {
    return 0;
}

void header_occupancy(const struct kiln_device *device, const struct kiln_block_use *use,
        struct kiln_occupancy *occupancy) {
    (void)device;
    (void)use;
    (void)occupancy;
    fail_msg("this build has no cuda_occupancy.h");
}
#endif
