// occupancy: the smallest of what shared memory, registers, warps and block slots allow.
#include "jit/occupancy.h"

#include <stddef.h>

enum {
    QUARTERS = 4,           // of a multiprocessor, each with a part of the registers
    MAX_REGISTERS = 256,    // a thread
    SMEM_UNIT = 128,        // bytes, from compute capability 8.0 on
    SMEM_UNIT_TURING = 256, // bytes, 7.x
};

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

static int32_t by_smem(const struct kiln_device *device, const struct kiln_block_use *use,
        struct kiln_occupancy *occupancy) {
    uint64_t reserved = (uint64_t)device->smem_reserved;
    uint64_t most = (uint64_t)device->smem_block_optin + (device->cc >= 80 ? reserved : 0);
    uint64_t bytes = round_up(reserved + use->smem_static + use->smem_dynamic,
            device->cc >= 80 ? SMEM_UNIT : SMEM_UNIT_TURING);
    occupancy->smem_block = (uint32_t)bytes;
    if (bytes > most) {
        return 0;
    }
    return bytes ? (int32_t)((uint64_t)device->smem_sm / bytes) : INT32_MAX;
}

static int32_t by_registers(const struct kiln_device *device, const struct kiln_block_use *use,
        uint64_t warps, struct kiln_occupancy *occupancy) {
    if (use->registers <= 0) {
        return INT32_MAX;
    }
    uint64_t a_warp = round_up(
            (uint64_t)use->registers * (uint64_t)device->warp_size, (uint64_t)device->reg_unit);
    occupancy->registers_block = (uint32_t)(a_warp * warps);
    // The limit of a block is checked as if its warps filled all quarters evenly.
    if (use->registers > MAX_REGISTERS ||
            a_warp * round_up(warps, QUARTERS) > (uint64_t)device->regs_block) {
        return 0;
    }
    uint64_t warps_quarter = (uint64_t)device->regs_sm / QUARTERS / a_warp;
    return (int32_t)(warps_quarter * QUARTERS / warps);
}

void kiln_occupancy_of(const struct kiln_device *device, const struct kiln_block_use *use,
        struct kiln_occupancy *occupancy) {
    *occupancy = (struct kiln_occupancy){.blocks = INT32_MAX};
    uint64_t warps =
            round_up(use->threads, (uint64_t)device->warp_size) / (uint64_t)device->warp_size;
    warps = warps ? warps : 1;
    int fits = use->threads <= (uint32_t)device->max_threads_block;
    occupancy->by_smem = by_smem(device, use, occupancy);
    occupancy->by_registers = by_registers(device, use, warps, occupancy);
    occupancy->by_warps = fits ? (int32_t)((uint64_t)device->max_warps_sm / warps) : 0;
    occupancy->by_blocks = device->max_blocks_sm;
    const struct {
        uint32_t flag;
        int32_t blocks;
    } limits[] = {
            {KILN_OCCUPANCY_SMEM, occupancy->by_smem},
            {KILN_OCCUPANCY_REGISTERS, occupancy->by_registers},
            {fits ? KILN_OCCUPANCY_WARPS : KILN_OCCUPANCY_THREADS, occupancy->by_warps},
            {KILN_OCCUPANCY_BLOCKS, occupancy->by_blocks},
    };
    const size_t n = sizeof(limits) / sizeof(limits[0]);
    for (size_t i = 0; i < n; i++) {
        if (limits[i].blocks < occupancy->blocks) {
            occupancy->blocks = limits[i].blocks;
        }
    }
    for (size_t i = 0; i < n; i++) {
        occupancy->limits |= limits[i].blocks == occupancy->blocks ? limits[i].flag : 0;
    }
    occupancy->warps = (int32_t)((uint64_t)occupancy->blocks * warps);
    occupancy->occupancy = (double)occupancy->warps / (double)device->max_warps_sm;
}

const char *kiln_occupancy_limit_name(uint32_t limit) {
    switch (limit) {
    case KILN_OCCUPANCY_SMEM:
        return "shared memory";
    case KILN_OCCUPANCY_REGISTERS:
        return "registers";
    case KILN_OCCUPANCY_WARPS:
        return "warps";
    case KILN_OCCUPANCY_BLOCKS:
        return "blocks";
    case KILN_OCCUPANCY_THREADS:
        return "threads";
    default:
        return NULL;
    }
}

const char *kiln_occupancy_limiter(const struct kiln_occupancy *occupancy) {
    return kiln_occupancy_limit_name(occupancy->limits & (~occupancy->limits + 1));
}
