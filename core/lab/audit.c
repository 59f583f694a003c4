// audit: rows of a kernel list to figures.
#include "lab/audit.h"

#include "base/mem.h"
#include "lab/banks.h"

#include <string.h>

static enum kiln_status nomem(struct kiln_err *err) {
    return kiln_err_nomem(err, "an audit of kernels");
}

void kiln_audit_finish(struct kiln_audit *audit) {
    for (size_t i = 0; i < audit->count; i++) {
        if (audit->kernels[i].structure) { // itself in the arena
            kiln_structure_finish(audit->kernels[i].structure);
        }
        kiln_behaviour_destroy(audit->kernels[i].behaviour);
    }
    kiln_free(audit->kernels);
    kiln_free(audit->no_compiler);
    kiln_arena_finish(&audit->arena);
    *audit = (struct kiln_audit){.count = 0};
}

// ---- Rows that are the same kernel --------------------------------------------------------------

static int same_defines(const struct kiln_launch *a, const struct kiln_launch *b) {
    if (a->n_defines != b->n_defines) {
        return 0;
    }
    for (uint32_t i = 0; i < a->n_defines; i++) {
        if (strcmp(a->defines[i], b->defines[i]) != 0) {
            return 0;
        }
    }
    return 1;
}

static int same_geometry(const struct kiln_geometry *a, const struct kiln_geometry *b) {
    return a->n_values == b->n_values &&
           (a->n_values == 0 ||
                   memcmp(a->values, b->values, a->n_values * sizeof(*a->values)) == 0);
}

static int same_text(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

// Compiled and launched alike, for another op: other grids and bytes, the same block.
static int is_alike(const struct kiln_kernel_row *a, const struct kiln_kernel_row *b) {
    if (a->device != b->device || strcmp(a->op->slot, b->op->slot) != 0 ||
            a->op->variant != b->op->variant || !a->launch != !b->launch) {
        return 0;
    }
    if (!a->launch) {
        return same_text(a->op->unsupported, b->op->unsupported);
    }
    const struct kiln_launch *x = &a->launch->record, *y = &b->launch->record;
    return a->launch->kernel == b->launch->kernel && same_text(a->preparation, b->preparation) &&
           same_text(a->op->source, b->op->source) && x->shared_bytes == y->shared_bytes &&
           memcmp(x->block, y->block, sizeof(x->block)) == 0 &&
           memcmp(x->cluster, y->cluster, sizeof(x->cluster)) == 0 && same_defines(x, y) &&
           same_geometry(&a->op->geometry, &b->op->geometry);
}

// ---- Figures ------------------------------------------------------------------------------------

static enum kiln_status add_banks(
        struct kiln_audit *audit, struct kiln_audit_kernel *kernel, struct kiln_err *err) {
    const struct kiln_launch *launch = &kernel->row->launch->record;
    kernel->banks = kiln_arena_calloc(&audit->arena, launch->n_sites + 1, sizeof(*kernel->banks));
    if (!kernel->banks) {
        return nomem(err);
    }
    for (uint32_t i = 0; i < launch->n_sites; i++) {
        kernel->banks[kernel->n_banks++] = (struct kiln_audit_bank){
                .site = launch->sites[i], .ways = kiln_bank_ways(launch->sites[i])};
    }
    return KILN_STATUS_OK;
}

static void add_figures(struct kiln_audit_kernel *kernel) {
    const struct kiln_launch *launch = &kernel->row->launch->record;
    const struct kiln_jit_item *item = kernel->item;
    int known = item && item->image.data; // also of one that was refused since
    kernel->use = (struct kiln_block_use){
            .threads = launch->block[0] * launch->block[1] * launch->block[2],
            .registers = known ? item->image.resources.registers : -1,
            .smem_static = known && item->image.resources.smem_static > 0
                                   ? (uint32_t)item->image.resources.smem_static
                                   : 0,
            .smem_dynamic = launch->shared_bytes};
    kernel->layout = known && item->layout.present ? (int32_t)item->layout.used : -1;
    if (kernel->row->device->kind != KILN_DEVICE_CUDA) {
        return;
    }
    struct kiln_block_use own = kernel->use;
    own.smem_dynamic = kernel->layout >= 0 ? (uint32_t)kernel->layout : own.smem_dynamic;
    kiln_occupancy_of(kernel->row->device, &kernel->use, &kernel->occupancy);
    kiln_occupancy_of(kernel->row->device, &own, &kernel->by_layout);
}

static enum kiln_status add_call(struct kiln_audit *audit, struct kiln_audit_kernel *kernel,
        const struct kiln_kernel_row *row, struct kiln_err *err) {
    struct kiln_audit_call *calls =
            kiln_arena_calloc(&audit->arena, kernel->n_calls + 1, sizeof(*calls));
    if (!calls) {
        return nomem(err);
    }
    if (kernel->n_calls > 0) {
        memcpy(calls, kernel->calls, kernel->n_calls * sizeof(*calls));
    }
    calls[kernel->n_calls++] = (struct kiln_audit_call){.role = row->op->role,
            .phase = row->op->problem ? row->op->problem->phase : 0,
            .ops = row->op->ops,
            .launch = row->launch ? &row->launch->record : NULL};
    kernel->calls = calls;
    return KILN_STATUS_OK;
}

static enum kiln_status add_kernel(struct kiln_audit *audit, const struct kiln_kernel_set *set,
        const struct kiln_kernel_row *row, int compiled, struct kiln_err *err) {
    if (kiln_grow(&audit->kernels, &audit->cap, audit->count + 1, sizeof(*audit->kernels)) != 0) {
        return nomem(err);
    }
    struct kiln_audit_kernel *kernel = &audit->kernels[audit->count++];
    *kernel = (struct kiln_audit_kernel){.row = row, .layout = -1};
    if (!row->launch) {
        return KILN_STATUS_OK;
    }
    if (compiled && row->item != KILN_KERNEL_NO_ITEM) {
        kernel->item = &set->list.items[row->item];
    }
    add_figures(kernel);
    return add_banks(audit, kernel, err);
}

enum kiln_status kiln_audit_make(struct kiln_audit *audit, const struct kiln_kernel_set *set,
        int compiled, struct kiln_err *err) {
    for (size_t i = 0; i < set->list.count; i++) {
        const struct kiln_kernel_row *row = &set->list.rows[i];
        size_t at = 0;
        while (at < audit->count && !is_alike(audit->kernels[at].row, row)) {
            at++;
        }
        if (at == audit->count) {
            KILN_TRY(add_kernel(audit, set, row, compiled, err));
        }
        KILN_TRY(add_call(audit, &audit->kernels[at], row, err));
    }
    return KILN_STATUS_OK;
}

// ---- Compiling ----------------------------------------------------------------------------------

// What a kernel's PTX shows. A kernel whose PTX cannot be had or read goes without.
static enum kiln_status add_structure(struct kiln_audit *audit, struct kiln_audit_kernel *kernel,
        const struct kiln_jit_item *ptx, struct kiln_err *err) {
    struct kiln_err ignored = {0};
    if (ptx->status != KILN_STATUS_OK || !ptx->image.ptx) {
        return KILN_STATUS_OK;
    }
    struct kiln_structure *structure = kiln_arena_calloc(&audit->arena, 1, sizeof(*structure));
    if (!structure) {
        return nomem(err);
    }
    enum kiln_status status =
            kiln_structure_read(structure, ptx->image.data, ptx->image.entry, &ignored);
    if (status == KILN_STATUS_OK) {
        kernel->structure = structure;
    } else {
        kiln_structure_finish(structure);
    }
    return status == KILN_STATUS_NOMEM ? nomem(err) : KILN_STATUS_OK;
}

// PTX is compiled (and cached) for itself: it is what still has the source's lines.
static enum kiln_status add_structures(
        struct kiln_audit *audit, struct kiln_jit *jit, struct kiln_err *err) {
    struct kiln_err ignored = {0}; // failures have been told of the machine code
    size_t n = 0;
    struct kiln_jit_item *items = kiln_calloc(audit->count + 1, sizeof(*items));
    if (!items) {
        return nomem(err);
    }
    for (size_t i = 0; i < audit->count; i++) {
        if (audit->kernels[i].item && audit->kernels[i].item->image.data) {
            items[n] = (struct kiln_jit_item){.request = audit->kernels[i].item->request};
            items[n++].request.ptx = 1;
        }
    }
    enum kiln_status status = n ? kiln_jit_run(jit, items, n, 0, &ignored) : KILN_STATUS_OK;
    status = status == KILN_STATUS_NOMEM ? nomem(err) : KILN_STATUS_OK;
    n = 0;
    for (size_t i = 0; status == KILN_STATUS_OK && i < audit->count; i++) {
        if (audit->kernels[i].item && audit->kernels[i].item->image.data) {
            status = add_structure(audit, &audit->kernels[i], &items[n++], err);
        }
    }
    kiln_jit_items_finish(items, audit->count);
    kiln_free(items);
    return status;
}

enum kiln_status kiln_audit_compile(struct kiln_audit *audit, struct kiln_kernel_set *set,
        struct kiln_jit *jit, struct kiln_err *err) {
    struct kiln_err why = {0}, first = {0};
    int compiler = set->list.n_items > 0 && kiln_jit_need_nvrtc(jit, &why) == KILN_STATUS_OK;
    if (set->list.n_items > 0 && !compiler) {
        audit->no_compiler = kiln_strdup(why.text);
        if (!audit->no_compiler) {
            return nomem(err);
        }
    }
    enum kiln_status status =
            compiler ? kiln_kernel_list_compile(&set->list, jit, 0, &first) : KILN_STATUS_OK;
    if (status == KILN_STATUS_NOMEM) {
        return nomem(err);
    }
    KILN_TRY(kiln_audit_make(audit, set, compiler, err));
    if (compiler) {
        KILN_TRY(add_structures(audit, jit, err));
    }
    if (status != KILN_STATUS_OK && err) {
        *err = first;
    }
    return status;
}
