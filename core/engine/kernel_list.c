// kernel_list: launches to jit items.
#include "engine/kernel_list.h"

#include "base/mem.h"

#include <string.h>

void kiln_kernel_list_finish(struct kiln_kernel_list *list) {
    kiln_jit_items_finish(list->items, list->n_items);
    kiln_free(list->items);
    kiln_free(list->rows);
    *list = (struct kiln_kernel_list){.rows = NULL};
}

static enum kiln_status add_row(
        struct kiln_kernel_list *list, const struct kiln_kernel_row *row, struct kiln_err *err) {
    if (kiln_grow(&list->rows, &list->cap, list->count + 1, sizeof(*list->rows)) != 0) {
        return kiln_err_nomem(err, "a list of kernels");
    }
    list->rows[list->count++] = *row;
    return KILN_STATUS_OK;
}

static enum kiln_status add_launches(struct kiln_kernel_list *list, struct kiln_kernel_row row,
        const struct kiln_planned_launch *launches, uint32_t count, struct kiln_err *err) {
    for (uint32_t i = 0; i < count; i++) {
        row.launch = &launches[i];
        row.item = KILN_KERNEL_NO_ITEM;
        if (!launches[i].kernel->source) {
            KILN_TRY(add_row(list, &row, err));
            continue;
        }
        if (kiln_grow(&list->items, &list->cap_items, list->n_items + 1, sizeof(*list->items)) !=
                0) {
            return kiln_err_nomem(err, "a list of kernels");
        }
        row.item = list->n_items++;
        list->items[row.item] = (struct kiln_jit_item){.request = {.plugin = row.op->plugin->name,
                                                               .variant = row.op->variant->name,
                                                               .kernel = launches[i].kernel,
                                                               .geometry = &row.op->geometry,
                                                               .launch = &launches[i].record,
                                                               .source = row.op->source,
                                                               .target = row.device->target,
                                                               .device = row.device}};
        KILN_TRY(add_row(list, &row, err));
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_kernel_list_add(struct kiln_kernel_list *list,
        const struct kiln_survey *survey, const struct kiln_device *device, struct kiln_err *err) {
    for (size_t i = 0; i < survey->count; i++) {
        struct kiln_kernel_row row = {.op = &survey->rows[i], .device = device};
        const struct kiln_planned *planned = row.op->planned;
        if (!planned) {
            KILN_TRY(add_row(list, &row, err));
            continue;
        }
        for (uint32_t j = 0; j < planned->n_preparations; j++) {
            const struct kiln_planned_preparation *preparation = &planned->preparations[j];
            row.preparation = preparation->record.id;
            KILN_TRY(add_launches(
                    list, row, preparation->launches, preparation->record.n_launches, err));
        }
        row.preparation = NULL;
        KILN_TRY(add_launches(list, row, planned->launches, planned->n_launches, err));
    }
    return KILN_STATUS_OK;
}

// Whether b says nothing that a has not said.
static int is_twin(const struct kiln_kernel_list *list, const struct kiln_kernel_row *a,
        const struct kiln_kernel_row *b) {
    if (a->op->variant != b->op->variant || a->device != b->device ||
            strcmp(a->op->slot, b->op->slot) != 0 || !a->launch != !b->launch) {
        return 0;
    }
    if (!a->launch) {
        return strcmp(a->op->unsupported, b->op->unsupported) == 0;
    }
    if (a->item == KILN_KERNEL_NO_ITEM || b->item == KILN_KERNEL_NO_ITEM) {
        return a->launch->kernel == b->launch->kernel;
    }
    const struct kiln_jit_item *x = &list->items[a->item], *y = &list->items[b->item];
    return x->key.hex[0] && strcmp(x->key.hex, y->key.hex) == 0;
}

void kiln_kernel_list_drop_twins(struct kiln_kernel_list *list) {
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        int twin = 0;
        for (size_t j = 0; j < kept && !twin; j++) {
            twin = is_twin(list, &list->rows[j], &list->rows[i]);
        }
        if (!twin) {
            list->rows[kept++] = list->rows[i];
        }
    }
    list->count = kept;
}

enum kiln_status kiln_kernel_list_compile(struct kiln_kernel_list *list, struct kiln_jit *jit,
        int keep_sources, struct kiln_err *err) {
    return kiln_jit_run(jit, list->items, list->n_items, keep_sources, err);
}
