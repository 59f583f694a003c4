// fit: occupancy of what was compiled; none is a refusal.
#include "jit/fit.h"

#include "base/buf.h"
#include "jit/occupancy.h"

#include <inttypes.h>

static void put_keys(const struct kiln_geometry *geometry, struct kiln_buf *text) {
    for (uint32_t i = 0; i < geometry->n_values; i++) {
        kiln_buf_printf(text, "%s%s",
                i == 0                       ? "; change "
                : i + 1 < geometry->n_values ? ", "
                                             : " or ",
                geometry->names[i]);
    }
}

static enum kiln_status refuse(const struct kiln_jit_request *request,
        const struct kiln_image *image, const struct kiln_block_use *use,
        const struct kiln_occupancy *occupancy, struct kiln_err *err) {
    const struct kiln_device *device = request->device;
    struct kiln_buf keys = {0};
    put_keys(request->geometry, &keys);
    const char *change = keys.data && !keys.failed ? keys.data : "";
    if (occupancy->limits & KILN_OCCUPANCY_REGISTERS) {
        uint32_t warps = (use->threads + 31) / 32;
        (void)kiln_err_set(err, KILN_STATUS_DEVICE,
                "%s/%s kernel %s (%s): %" PRIu32 " threads with %" PRId32 " registers each take "
                "%" PRIu32 " registers, given out in units of %" PRId32
                " a warp and of 4 warps a block; %s allows %" PRId32 " a block: fewer threads, or "
                "fewer registers by a higher MIN_BLOCKS where there is one%s",
                request->plugin, request->variant, request->kernel->name,
                image->geometry ? image->geometry : "", use->threads, use->registers,
                occupancy->registers_block / warps * ((warps + 3) / 4 * 4), device->reg_unit,
                device->target, device->regs_block, change);
    } else {
        (void)kiln_err_set(err, KILN_STATUS_DEVICE,
                "%s/%s kernel %s (%s): %" PRIu32 " bytes of dynamic and %" PRIu32 " of static "
                "shared memory a block; %s allows %" PRId32 " in all%s",
                request->plugin, request->variant, request->kernel->name,
                image->geometry ? image->geometry : "", use->smem_dynamic, use->smem_static,
                device->target, device->smem_block_optin, change);
    }
    kiln_buf_finish(&keys);
    return KILN_STATUS_DEVICE;
}

enum kiln_status kiln_fit_check(const struct kiln_jit_request *request,
        const struct kiln_image *image, const struct kiln_layout_check *layout,
        struct kiln_fit *fit, struct kiln_err *err) {
    const struct kiln_launch *launch = request->launch;
    const struct kiln_device *device = request->device;
    *fit = (struct kiln_fit){.blocks = -1, .blocks_layout = -1};
    if (!device || device->kind != KILN_DEVICE_CUDA || device->smem_sm == 0) {
        return KILN_STATUS_OK;
    }
    const struct kiln_resources *resources = &image->resources;
    struct kiln_block_use use = {.threads = launch->block[0] * launch->block[1] * launch->block[2],
            .registers = resources->registers,
            .smem_static = resources->smem_static > 0 ? (uint32_t)resources->smem_static : 0,
            .smem_dynamic = launch->shared_bytes};
    struct kiln_occupancy occupancy, by_layout;
    kiln_occupancy_of(device, &use, &occupancy);
    if (occupancy.blocks == 0 && !(occupancy.limits & KILN_OCCUPANCY_THREADS)) {
        return refuse(request, image, &use, &occupancy, err);
    }
    use.smem_dynamic = layout->used;
    kiln_occupancy_of(device, &use, &by_layout);
    fit->blocks = occupancy.blocks;
    fit->blocks_layout = by_layout.blocks;
    return KILN_STATUS_OK;
}
