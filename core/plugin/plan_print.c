// plan_print: a plan as text, complete: two plans with the same text are the same plan.
#include "plugin/plan.h"

#include <inttypes.h>

static void print_index(struct kiln_buf *text, uint32_t index) {
    if (index == KILN_PREP_SELF) {
        kiln_buf_puts(text, "self");
    } else {
        kiln_buf_printf(text, "%u", index);
    }
}

static void print_address(struct kiln_buf *text, uint32_t kind, const struct kiln_arg *arg) {
    switch (kind) {
    case KILN_ARG_OPERAND:
        kiln_buf_printf(text, "operand %u of op %u", arg->operand, arg->op);
        break;
    case KILN_ARG_WORKSPACE:
        kiln_buf_printf(text, "workspace %u", arg->index);
        break;
    default:
        kiln_buf_puts(text, "preparation ");
        print_index(text, arg->index);
        kiln_buf_printf(text, " buffer %u", arg->buffer);
        break;
    }
    if (arg->offset) {
        kiln_buf_printf(text, " + %" PRIu64, arg->offset);
    }
}

static void print_map(struct kiln_buf *text, const struct kiln_tensor_map *map) {
    kiln_buf_printf(text, " as map: dtype %u", map->dtype);
    for (uint32_t i = 0; i < map->rank; i++) {
        kiln_buf_printf(text, ", dim %" PRIu64 " stride %" PRIu64 " box %u step %u", map->dims[i],
                i ? map->strides[i] : 0, map->box[i], map->elem_strides[i]);
    }
    kiln_buf_printf(text, ", swizzle %u, l2 %u, interleave %u, oob_nan %u", map->swizzle,
            map->l2_promotion, map->interleave, map->oob_nan);
}

static void print_arg(struct kiln_buf *text, const struct kiln_arg *arg) {
    static const char digits[] = "0123456789abcdef";
    if (arg->kind == KILN_ARG_BYTES) {
        const unsigned char *bytes = arg->bytes;
        kiln_buf_printf(text, "%" PRIu64 " bytes ", arg->size);
        for (uint64_t i = 0; i < arg->size; i++) {
            const char pair[] = {digits[bytes[i] >> 4], digits[bytes[i] & 15], '\0'};
            kiln_buf_puts(text, pair);
        }
        return;
    }
    print_address(text, arg->map ? arg->map->base : arg->kind, arg);
    if (arg->map) {
        print_map(text, arg->map);
    }
}

static void print_axes(struct kiln_buf *text, const char *what, const uint32_t size[3]) {
    kiln_buf_printf(text, ", %s %u x %u x %u", what, size[0], size[1], size[2]);
}

static void print_launch(struct kiln_buf *text, const char *indent, uint32_t index,
        const struct kiln_planned_launch *launch) {
    const struct kiln_launch *record = &launch->record;
    kiln_buf_printf(text, "%slaunch %u: %s", indent, index, record->kernel);
    print_axes(text, "grid", record->grid);
    print_axes(text, "block", record->block);
    if (record->cluster[0] > 1 || record->cluster[1] > 1 || record->cluster[2] > 1) {
        print_axes(text, "cluster", record->cluster);
    }
    kiln_buf_printf(text, ", shared %u bytes%s%s, %.17g flops, %.17g bytes read, %.17g written",
            record->shared_bytes, record->flags & KILN_LAUNCH_COOPERATIVE ? ", cooperative" : "",
            record->flags & KILN_LAUNCH_DEPENDENT ? ", dependent" : "", record->flops,
            record->bytes_read, record->bytes_written);
    if (record->sum_order) {
        kiln_buf_printf(text, ", sum order %s", record->sum_order);
    }
    kiln_buf_puts(text, "\n");
    for (uint32_t i = 0; i < record->n_args; i++) {
        kiln_buf_printf(text, "%s  arg %u: ", indent, i);
        print_arg(text, record->args[i]);
        kiln_buf_puts(text, "\n");
    }
    for (uint32_t i = 0; i < record->n_defines; i++) {
        kiln_buf_printf(text, "%s  define %s\n", indent, record->defines[i]);
    }
    for (uint32_t i = 0; i < record->n_sites; i++) {
        const struct kiln_smem_site *site = record->sites[i];
        kiln_buf_printf(text, "%s  site %s: kind %u, stride %u, access %u, swizzle %u\n", indent,
                site->name, site->kind, site->stride_bytes, site->access_bytes, site->swizzle);
    }
}

static void print_preparation(
        struct kiln_buf *text, uint32_t index, const struct kiln_planned_preparation *preparation) {
    const struct kiln_preparation *record = &preparation->record;
    kiln_buf_printf(text, "preparation %u: %s", index, record->id);
    for (uint32_t i = 0; i < record->n_keys; i++) {
        kiln_buf_printf(text, "%s%s", i ? ", " : ", keyed by ", record->keys[i]);
    }
    kiln_buf_puts(text, "\n");
    for (uint32_t i = 0; i < record->n_sources; i++) {
        kiln_buf_printf(text, "  source %u: ", i);
        print_arg(text, record->sources[i]);
        kiln_buf_puts(text, "\n");
    }
    for (uint32_t i = 0; i < record->n_buffers; i++) {
        kiln_buf_printf(text, "  buffer %u: %" PRIu64 " bytes\n", i, record->buffer_bytes[i]);
    }
    for (uint32_t i = 0; i < record->n_launches; i++) {
        print_launch(text, "  ", i, &preparation->launches[i]);
    }
}

void kiln_planned_print(const struct kiln_planned *planned, struct kiln_buf *text) {
    for (uint32_t i = 0; i < planned->n_workspaces; i++) {
        const struct kiln_planned_workspace *workspace = &planned->workspaces[i];
        kiln_buf_printf(text, "workspace %u: %" PRIu64 " bytes%s\n", i, workspace->bytes,
                workspace->flags & KILN_WORKSPACE_KEPT   ? ", zeroed once"
                : workspace->flags & KILN_WORKSPACE_ZERO ? ", zeroed"
                                                         : "");
    }
    for (uint32_t i = 0; i < planned->n_preparations; i++) {
        print_preparation(text, i, &planned->preparations[i]);
    }
    for (uint32_t i = 0; i < planned->n_launches; i++) {
        print_launch(text, "", i, &planned->launches[i]);
    }
}
