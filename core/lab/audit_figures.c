// audit_figures: the table behind audit_impl.h.
#include "lab/audit_impl.h"

static int has_occupancy(const struct kiln_audit_kernel *kernel) {
    return kernel->row->launch && kernel->row->device->kind == KILN_DEVICE_CUDA;
}

static int give(int known, double number, double *value) {
    *value = number;
    return known;
}

static int smem_requested(const struct kiln_audit_kernel *kernel, double *value) {
    return give(kernel->row->launch != NULL, kernel->use.smem_dynamic, value);
}

static int smem_layout(const struct kiln_audit_kernel *kernel, double *value) {
    return give(kernel->layout >= 0, kernel->layout, value);
}

static int smem_over(const struct kiln_audit_kernel *kernel, double *value) {
    return give(kernel->layout >= 0, (double)kernel->use.smem_dynamic - kernel->layout, value);
}

static int smem_static(const struct kiln_audit_kernel *kernel, double *value) {
    return give(kernel->use.registers >= 0, kernel->use.smem_static, value);
}

static int registers(const struct kiln_audit_kernel *kernel, double *value) {
    return give(kernel->row->launch && kernel->use.registers >= 0, kernel->use.registers, value);
}

static int spill_bytes(const struct kiln_audit_kernel *kernel, double *value) {
    int64_t bytes = kiln_audit_spills(kernel);
    return give(bytes >= 0, (double)bytes, value);
}

static int threads(const struct kiln_audit_kernel *kernel, double *value) {
    return give(has_occupancy(kernel), kernel->use.threads, value);
}

static int blocks_per_sm(const struct kiln_audit_kernel *kernel, double *value) {
    return give(has_occupancy(kernel), kernel->occupancy.blocks, value);
}

static int blocks_per_sm_layout(const struct kiln_audit_kernel *kernel, double *value) {
    return give(has_occupancy(kernel) && kernel->layout >= 0, kernel->by_layout.blocks, value);
}

static int warps_per_sm(const struct kiln_audit_kernel *kernel, double *value) {
    return give(has_occupancy(kernel), kernel->occupancy.warps, value);
}

static int occupancy(const struct kiln_audit_kernel *kernel, double *value) {
    return give(has_occupancy(kernel), kernel->occupancy.occupancy, value);
}

static int barriers_per_turn(const struct kiln_audit_kernel *kernel, double *value) {
    const struct kiln_structure_loop *loop = kiln_audit_main_loop(kernel);
    return give(loop != NULL, loop ? loop->barriers : 0, value);
}

static const struct kiln_audit_figure figures[] = {
        {"smem_requested", 0, smem_requested},
        {"smem_layout", 0, smem_layout},
        {"smem_over", 0, smem_over},
        {"smem_static", 0, smem_static},
        {"registers", 0, registers},
        {"spill_bytes", 0, spill_bytes},
        {"threads", 0, threads},
        {"blocks_per_sm", 0, blocks_per_sm},
        {"blocks_per_sm_layout", 0, blocks_per_sm_layout},
        {"warps_per_sm", 0, warps_per_sm},
        {"occupancy", 1, occupancy},
        {"barriers_per_turn", 0, barriers_per_turn},
};

const struct kiln_audit_figure *kiln_audit_figure_at(size_t index) {
    return index < sizeof(figures) / sizeof(figures[0]) ? &figures[index] : NULL;
}

int64_t kiln_audit_spills(const struct kiln_audit_kernel *kernel) {
    if (!kernel->item || !kernel->item->image.data) {
        return -1;
    }
    const struct kiln_resources *r = &kernel->item->image.resources;
    return r->spill_stores < 0 ? -1 : (int64_t)r->spill_stores + r->spill_loads;
}

int kiln_audit_is_sound(const struct kiln_audit_kernel *kernel) {
    return kernel->row->launch && (!kernel->item || kernel->item->status == KILN_STATUS_OK);
}
