// describe: what a CUDA device is, in the terms that plans are made in.
#include "device/cuda/cuda_impl.h"

#include <stdio.h>

// Numbers of CUdevice_attribute.
enum {
    ATTR_THREADS_BLOCK = 1,
    ATTR_BLOCK_X = 2,
    ATTR_GRID_X = 5,
    ATTR_SMEM_BLOCK = 8,
    ATTR_WARP = 10,
    ATTR_REGS_BLOCK = 12,
    ATTR_SMS = 16,
    ATTR_MEMORY_KHZ = 36,
    ATTR_BUS_BITS = 37,
    ATTR_L2 = 38,
    ATTR_THREADS_SM = 39,
    ATTR_CC_MAJOR = 75,
    ATTR_CC_MINOR = 76,
    ATTR_SMEM_SM = 81,
    ATTR_REGS_SM = 82,
    ATTR_SMEM_OPTIN = 97,
    ATTR_BLOCKS_SM = 106,
    ATTR_SMEM_RESERVED = 111,
};

static enum kiln_status get(
        const struct kiln_cu *cu, int handle, int attribute, int32_t *value, struct kiln_err *err) {
    return kiln_cu_check(cu, cu->device_attribute(value, attribute, handle), "cuDeviceGetAttribute",
            "reading what the device can do", err);
}

static enum kiln_status get_limits(const struct kiln_cu *cu, int handle, struct kiln_device *d,
        int32_t *memory_khz, int32_t *bus_bits, struct kiln_err *err) {
    const struct {
        int attribute;
        int32_t *value;
    } wanted[] = {
            {ATTR_SMS, &d->sm_count},
            {ATTR_WARP, &d->warp_size},
            {ATTR_THREADS_BLOCK, &d->max_threads_block},
            {ATTR_THREADS_SM, &d->max_threads_sm},
            {ATTR_BLOCKS_SM, &d->max_blocks_sm},
            {ATTR_REGS_BLOCK, &d->regs_block},
            {ATTR_REGS_SM, &d->regs_sm},
            {ATTR_SMEM_BLOCK, &d->smem_block},
            {ATTR_SMEM_OPTIN, &d->smem_block_optin},
            {ATTR_SMEM_SM, &d->smem_sm},
            {ATTR_SMEM_RESERVED, &d->smem_reserved},
            {ATTR_MEMORY_KHZ, memory_khz},
            {ATTR_BUS_BITS, bus_bits},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        KILN_TRY(get(cu, handle, wanted[i].attribute, wanted[i].value, err));
    }
    for (int i = 0; i < 3; i++) {
        KILN_TRY(get(cu, handle, ATTR_GRID_X + i, &d->max_grid[i], err));
        KILN_TRY(get(cu, handle, ATTR_BLOCK_X + i, &d->max_block[i], err));
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_cuda_fill_desc(const struct kiln_cu *cu, int handle, struct kiln_device *desc,
        struct kiln_cuda_names *names, struct kiln_err *err) {
    int32_t major = 0, minor = 0, l2 = 0, memory_khz = 0, bus_bits = 0;
    size_t memory = 0;
    *desc = (struct kiln_device){.struct_size = sizeof(*desc), .kind = KILN_DEVICE_CUDA};
    KILN_TRY(get(cu, handle, ATTR_CC_MAJOR, &major, err));
    KILN_TRY(get(cu, handle, ATTR_CC_MINOR, &minor, err));
    KILN_TRY(get(cu, handle, ATTR_L2, &l2, err));
    KILN_TRY(get_limits(cu, handle, desc, &memory_khz, &bus_bits, err));
    KILN_TRY(kiln_cu_check(cu, cu->device_name(names->name, sizeof(names->name), handle),
            "cuDeviceGetName", "reading the device's name", err));
    KILN_TRY(kiln_cu_check(cu, cu->device_memory(&memory, handle), "cuDeviceTotalMem",
            "reading the device's memory", err));
    // Hopper's own instructions (wgmma, setmaxnreg) exist only in the "a" target.
    snprintf(names->target, sizeof(names->target), "sm_%d%d%s", major % 100, minor % 10,
            major == 9 && minor == 0 ? "a" : "");
    desc->name = names->name;
    desc->target = names->target;
    desc->cc = major * 10 + minor;
    desc->max_warps_sm = desc->max_threads_sm / (desc->warp_size > 0 ? desc->warp_size : 32);
    desc->reg_unit = 256;
    desc->max_cluster = major >= 9 ? 8 : 1;
    desc->l2_bytes = (uint64_t)l2;
    desc->memory_bytes = memory;
    desc->memory_bandwidth = 2.0 * memory_khz * 1e3 * bus_bits / 8; // double data rate
    return KILN_STATUS_OK;
}
