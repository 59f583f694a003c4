// tensor_map: see the header. Limits: CUDA driver API, cuTensorMapEncodeTiled.
#include "device/sim/tensor_map.h"

#include <inttypes.h>
#include <string.h>

enum {
    UNIT = 16, // bytes: addresses, strides and rows of a box are multiples of it
    MOST_BOX = 256,
    MOST_STEP = 8,
};

#define MAGIC       UINT64_C(0x31706d6e6c696b73) // "sklinmp1"
#define MOST_DIM    (UINT64_C(1) << 32)
#define MOST_STRIDE (UINT64_C(1) << 40)

// As it lies in the 128 bytes.
struct packed {
    uint64_t magic, address;
    uint64_t strides[SIM_MAP_RANK - 1];
    uint32_t last[SIM_MAP_RANK]; // dims less one
    uint16_t box[SIM_MAP_RANK];
    uint8_t steps[SIM_MAP_RANK], rank, bytes, swizzle;
    uint32_t fill;
};

_Static_assert(sizeof(struct packed) <= SIM_MAP_BYTES, "a tensor map has 128 bytes");

static uint32_t element_bytes(uint32_t dtype) {
    switch (dtype) {
    case KILN_DTYPE_F32:
    case KILN_DTYPE_I32:
        return 4;
    case KILN_DTYPE_F16:
    case KILN_DTYPE_BF16:
    case KILN_DTYPE_I16:
        return 2;
    default:
        return 1; // bytes
    }
}

static uint32_t nan_of(uint32_t dtype) {
    return dtype == KILN_DTYPE_F32    ? 0x7fffffff
           : dtype == KILN_DTYPE_F16  ? 0x7fff
           : dtype == KILN_DTYPE_BF16 ? 0x7fff
                                      : 0;
}

static uint32_t width_of(uint32_t swizzle) {
    return swizzle == KILN_SWIZZLE_NONE ? 0 : 16u << swizzle;
}

static enum kiln_status refuse(
        struct kiln_err *err, const char *what, uint32_t dim, uint64_t value, const char *wanted) {
    return kiln_err_set(err, KILN_STATUS_USAGE, "tensor map: %s[%u] is %" PRIu64 "; %s", what, dim,
            value, wanted);
}

static enum kiln_status check_dim(
        const struct kiln_tensor_map *map, uint32_t i, struct kiln_err *err) {
    if (map->dims[i] == 0 || map->dims[i] > MOST_DIM) {
        return refuse(err, "dims", i, map->dims[i], "it is 1 to 2^32");
    }
    if (map->box[i] == 0 || map->box[i] > MOST_BOX) {
        return refuse(err, "box", i, map->box[i], "it is 1 to 256");
    }
    if (map->elem_strides[i] == 0 || map->elem_strides[i] > MOST_STEP) {
        return refuse(err, "elem_strides", i, map->elem_strides[i], "it is 1 to 8");
    }
    if (i > 0 && (map->strides[i] % UNIT || map->strides[i] >= MOST_STRIDE)) {
        return refuse(err, "strides", i, map->strides[i], "it is a multiple of 16 below 2^40");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_row(const struct kiln_tensor_map *map, struct kiln_err *err) {
    uint32_t row = map->box[0] * element_bytes(map->dtype), width = width_of(map->swizzle);
    if (row % UNIT) {
        return refuse(err, "box", 0, map->box[0], "its bytes are a multiple of 16");
    }
    if (map->swizzle > KILN_SWIZZLE_128 || (width && row > width)) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "tensor map: a row of %u bytes in the box; swizzle %u takes at most %u", row,
                map->swizzle, width);
    }
    if (width && row < width) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "tensor map: a row of %u bytes in the box does not fill the swizzle of %u, which "
                "sim does not model",
                row, width);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check(
        const struct kiln_tensor_map *map, uint64_t address, struct kiln_err *err) {
    if (map->rank == 0 || map->rank > SIM_MAP_RANK) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "tensor map: rank %u; it is 1 to 5", map->rank);
    }
    if (address % UNIT) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "tensor map: the tensor is at 0x%" PRIx64 ", no multiple of 16", address);
    }
    if (map->interleave) {
        return kiln_err_set(
                err, KILN_STATUS_USAGE, "tensor map: sim does not model interleaved layouts");
    }
    if (map->oob_nan && !nan_of(map->dtype)) {
        return kiln_err_set(
                err, KILN_STATUS_USAGE, "tensor map: integers have no NaN to fill with");
    }
    for (uint32_t i = 0; i < map->rank; i++) {
        KILN_TRY(check_dim(map, i, err));
    }
    return check_row(map, err);
}

enum kiln_status kiln_sim_map_encode(unsigned char to[SIM_MAP_BYTES],
        const struct kiln_tensor_map *map, uint64_t address, struct kiln_err *err) {
    KILN_TRY(check(map, address, err));
    struct packed packed = {.magic = MAGIC,
            .address = address,
            .rank = (uint8_t)map->rank,
            .bytes = (uint8_t)element_bytes(map->dtype),
            .swizzle = (uint8_t)map->swizzle,
            .fill = map->oob_nan ? nan_of(map->dtype) : 0};
    for (uint32_t i = 0; i < map->rank; i++) {
        packed.last[i] = (uint32_t)(map->dims[i] - 1);
        packed.box[i] = (uint16_t)map->box[i];
        packed.steps[i] = i == 0 ? 1 : (uint8_t)map->elem_strides[i];
        if (i > 0) {
            packed.strides[i - 1] = map->strides[i];
        }
    }
    memset(to, 0, SIM_MAP_BYTES);
    memcpy(to, &packed, sizeof(packed));
    return KILN_STATUS_OK;
}

int kiln_sim_map_decode(struct sim_tensor_map *map, const unsigned char from[SIM_MAP_BYTES]) {
    struct packed packed;
    memcpy(&packed, from, sizeof(packed));
    if (packed.magic != MAGIC) {
        return 0;
    }
    *map = (struct sim_tensor_map){.address = packed.address,
            .strides = {packed.bytes},
            .rank = packed.rank,
            .bytes = packed.bytes,
            .swizzle = packed.swizzle,
            .fill = packed.fill};
    for (uint32_t i = 0; i < map->rank; i++) {
        map->dims[i] = (uint64_t)packed.last[i] + 1;
        map->box[i] = packed.box[i];
        map->steps[i] = packed.steps[i];
        if (i > 0) {
            map->strides[i] = packed.strides[i - 1];
        }
    }
    return 1;
}

uint32_t kiln_sim_map_count(const struct sim_tensor_map *map, uint32_t dim) {
    return dim < map->rank ? (map->box[dim] + map->steps[dim] - 1) / map->steps[dim] : 1;
}

uint32_t kiln_sim_map_box_bytes(const struct sim_tensor_map *map) {
    uint32_t bytes = map->bytes;
    for (uint32_t i = 0; i < map->rank; i++) {
        bytes *= kiln_sim_map_count(map, i);
    }
    return bytes;
}
