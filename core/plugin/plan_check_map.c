// plan_check_map: whether a tensor map can be encoded: the rules of cuTensorMapEncodeTiled, which a
// device that is not there cannot check.
#include "plugin/plan_impl.h"

#include <inttypes.h>

enum {
    MAX_RANK = 5,
    MAX_BOX = 256,
    MAX_ELEM_STRIDE = 8,
    ALIGNMENT = 16 // of the address, of strides and of the box's inner row
};
static const uint64_t max_dim = UINT64_C(1) << 32, max_stride = UINT64_C(1) << 40;

// Bytes of an element that a map can have; 0: none such.
static uint32_t element_bytes(uint32_t dtype) {
    switch (dtype) {
    case KILN_DTYPE_I8:
        return 1;
    case KILN_DTYPE_F16:
    case KILN_DTYPE_BF16:
    case KILN_DTYPE_I16:
        return 2;
    case KILN_DTYPE_F32:
    case KILN_DTYPE_I32:
        return 4;
    case KILN_DTYPE_F64:
    case KILN_DTYPE_I64:
        return 8;
    default:
        return 0;
    }
}

static int is_float(uint32_t dtype) {
    return dtype == KILN_DTYPE_F16 || dtype == KILN_DTYPE_BF16 || dtype == KILN_DTYPE_F32 ||
           dtype == KILN_DTYPE_F64;
}

static enum kiln_status check_axis(
        const struct kiln_tensor_map *map, uint32_t axis, struct kiln_err *err) {
    if (map->dims[axis] == 0 || map->dims[axis] > max_dim) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "map: dims[%u] is %" PRIu64 ", allowed: 1 to 2^32", axis, map->dims[axis]);
    }
    if (map->box[axis] == 0 || map->box[axis] > MAX_BOX) {
        return kiln_err_set(err, KILN_STATUS_FILE, "map: box[%u] is %u, allowed: 1 to %d", axis,
                map->box[axis], MAX_BOX);
    }
    if (map->elem_strides[axis] == 0 || map->elem_strides[axis] > MAX_ELEM_STRIDE) {
        return kiln_err_set(err, KILN_STATUS_FILE, "map: elem_strides[%u] is %u, allowed: 1 to %d",
                axis, map->elem_strides[axis], MAX_ELEM_STRIDE);
    }
    uint64_t align = map->interleave == 32 ? 32 : ALIGNMENT;
    uint64_t stride = map->strides[axis];
    if (axis > 0 && (stride == 0 || stride % align != 0 || stride >= max_stride)) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "map: strides[%u] is %" PRIu64 " bytes, allowed: multiples of %" PRIu64
                " below 2^40",
                axis, stride, align);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_modes(const struct kiln_tensor_map *map, struct kiln_err *err) {
    if (map->swizzle > KILN_SWIZZLE_128) {
        return kiln_err_set(err, KILN_STATUS_FILE, "map: swizzle is %u, allowed: 0 to %d",
                map->swizzle, KILN_SWIZZLE_128);
    }
    if (map->l2_promotion != 0 && map->l2_promotion != 64 && map->l2_promotion != 128 &&
            map->l2_promotion != 256) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "map: l2_promotion is %u, allowed: 0, 64, 128, 256", map->l2_promotion);
    }
    if (map->interleave != 0 && map->interleave != 16 && map->interleave != 32) {
        return kiln_err_set(err, KILN_STATUS_FILE, "map: interleave is %u, allowed: 0, 16, 32",
                map->interleave);
    }
    if (map->interleave != 0 && map->rank < 3) {
        return kiln_err_set(
                err, KILN_STATUS_FILE, "map: interleave needs rank 3 or more, it is %u", map->rank);
    }
    if (map->interleave == 32 && map->swizzle != KILN_SWIZZLE_32) {
        return kiln_err_set(err, KILN_STATUS_FILE, "map: interleave 32 needs KILN_SWIZZLE_32");
    }
    if (map->oob_nan > 1 || (map->oob_nan && !is_float(map->dtype))) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "map: oob_nan is %u, allowed: 0, and 1 for floating-point types", map->oob_nan);
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_plan_check_map(const struct kiln_device *device,
        const struct kiln_tensor_map *map, uint64_t offset, struct kiln_err *err) {
    if (map->rank == 0 || map->rank > MAX_RANK) {
        return kiln_err_set(
                err, KILN_STATUS_FILE, "map: rank is %u, allowed: 1 to %d", map->rank, MAX_RANK);
    }
    uint32_t bytes = element_bytes(map->dtype);
    if (bytes == 0) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "map: dtype %u cannot be copied; take f16, bf16, f32, f64 or an integer type",
                map->dtype);
    }
    for (uint32_t axis = 0; axis < map->rank; axis++) {
        KILN_TRY(check_axis(map, axis, err));
    }
    KILN_TRY(check_modes(map, err));
    uint32_t inner = map->box[0] * bytes;
    if (map->interleave == 0 && inner % ALIGNMENT != 0) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "map: the box's inner row has %u bytes, allowed: multiples of %d", inner,
                ALIGNMENT);
    }
    if (map->swizzle != KILN_SWIZZLE_NONE && inner > 16U << map->swizzle) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "map: the box's inner row has %u bytes, the swizzle pattern %u; make it no longer",
                inner, 16U << map->swizzle);
    }
    if (offset % ALIGNMENT != 0) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "map: offset %" PRIu64 " is no multiple of %d bytes", offset, ALIGNMENT);
    }
    if (device->kind == KILN_DEVICE_HOST) {
        return kiln_err_set(err, KILN_STATUS_FILE, "map: a host kernel has no tensor maps");
    }
    if (device->cc < 90) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "tensor maps need compute capability 9.0, %s has %d.%d", device->target,
                device->cc / 10, device->cc % 10);
    }
    return KILN_STATUS_OK;
}
