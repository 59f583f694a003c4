// tensor_map: what a tensor map is on the sim device: 128 bytes, a kernel's parameter or in memory,
// that describe a tensor in global memory and the box of it that a copy brings. cuda's are the
// driver's own and opaque; these are sim's own, checked as the driver checks them.
#ifndef KILN_DEVICE_SIM_TENSOR_MAP_H
#define KILN_DEVICE_SIM_TENSOR_MAP_H

#include "base/status.h"
#include "kiln/plugin.h"

enum {
    SIM_MAP_BYTES = 128,
    SIM_MAP_ALIGN = 64, // of the map itself
    SIM_MAP_RANK = 5,
};

struct sim_tensor_map {
    uint64_t address;               // of the element at 0, 0, …
    uint64_t dims[SIM_MAP_RANK];    // elements
    uint64_t strides[SIM_MAP_RANK]; // bytes; [0] is an element's
    uint32_t box[SIM_MAP_RANK];     // elements that a copy spans
    uint32_t steps[SIM_MAP_RANK];   // between elements that it takes; [0] is 1
    uint32_t rank, bytes;           // of an element
    uint32_t swizzle;               // enum kiln_swizzle
    uint32_t fill;                  // bits of what lies outside: 0 or a NaN
};

// The map of a tensor at a device address. USAGE: what cuTensorMapEncodeTiled would refuse, and
// what sim does not model: interleaved layouts, boxes whose rows do not fill the swizzle's width.
KILN_MUST_CHECK enum kiln_status kiln_sim_map_encode(unsigned char to[SIM_MAP_BYTES],
        const struct kiln_tensor_map *map, uint64_t address, struct kiln_err *err);
// 0: these bytes are no tensor map of sim's.
int kiln_sim_map_decode(struct sim_tensor_map *map, const unsigned char from[SIM_MAP_BYTES]);

// Elements that a copy takes along a dimension; bytes of the whole box in shared memory.
uint32_t kiln_sim_map_count(const struct sim_tensor_map *map, uint32_t dim);
uint32_t kiln_sim_map_box_bytes(const struct sim_tensor_map *map);

#endif
