// audit_text: an audit for people: a heading a kernel, then structure, resources, behaviour and
// work, each line with its grade.
#include "lab/audit.h"

#include "lab/audit_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// "69,376"
static void put_count(struct kiln_buf *text, uint64_t value) {
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%" PRIu64, value);
    for (int i = 0; i < len; i++) {
        kiln_buf_append(text, &digits[i], 1);
        if (i + 1 < len && (len - i - 1) % 3 == 0) {
            kiln_buf_puts(text, ",");
        }
    }
}

static void put_scaled(struct kiln_buf *text, double value, const char *unit) {
    static const char *const steps[] = {"", "k", "M", "G", "T", "P"};
    size_t step = 0;
    while (value >= 1000 && step + 1 < sizeof(steps) / sizeof(steps[0])) {
        value /= 1000;
        step++;
    }
    kiln_buf_printf(text, "%.*f %s%s", step == 0 || value >= 100 ? 0 : 1, value, steps[step], unit);
}

static void put_line(struct kiln_buf *text, const char *name) {
    kiln_buf_printf(text, "  %-10s [derived]  ", name);
}

static void put_more(struct kiln_buf *text) {
    kiln_buf_printf(text, "  %-10s            ", "");
}

// ---- Structure ----------------------------------------------------------------------------------

static void put_barriers(struct kiln_buf *text, const struct kiln_audit_kernel *kernel) {
    const struct kiln_structure *structure = kernel->structure;
    const struct kiln_structure_loop *loop = kiln_audit_main_loop(kernel);
    if (!structure->loops_known) {
        kiln_buf_puts(text, "its loops could not be followed");
    } else if (!loop) {
        kiln_buf_printf(text, "no loop, %" PRIu32 " barriers", structure->barriers_outside);
    } else {
        kiln_buf_printf(text, "%" PRIu32 " barrier%s a turn of the loop at %s:%" PRIu32,
                loop->barriers, loop->barriers == 1 ? "" : "s", loop->file, loop->line);
        if (loop->sometimes) {
            kiln_buf_printf(text, " (%" PRIu32 " of them not on every turn)", loop->sometimes);
        }
        kiln_buf_printf(text, ", %" PRIu32 " outside of loops", structure->barriers_outside);
    }
    if (structure->calls) {
        kiln_buf_printf(
                text, "; %" PRIu32 " calls, whose functions are not counted", structure->calls);
    }
    kiln_buf_puts(text, "\n");
}

static void put_source_line(struct kiln_buf *text, const struct kiln_audit_kernel *kernel,
        const struct kiln_structure_line *line) {
    char units[KILN_AUDIT_UNITS], counts[KILN_AUDIT_COUNTS];
    const char *source = NULL;
    kiln_audit_units(line, units);
    if (!units[0]) {
        return; // addresses, limits of loops, barriers: nothing that runs on one of them
    }
    put_more(text);
    kiln_audit_counts(line, counts);
    kiln_buf_printf(text, "%s:%-4" PRIu32 " %s: %s", line->file, line->line, units, counts);
    size_t len = kiln_audit_source_line(kernel, line, &source);
    if (len > 0) {
        kiln_buf_printf(text, "  | %.*s", len < 60 ? (int)len : 60, source);
    }
    kiln_buf_puts(text, "\n");
}

static void put_structure(struct kiln_buf *text, const struct kiln_audit_kernel *kernel) {
    if (!kernel->structure) {
        return;
    }
    put_line(text, "structure");
    put_barriers(text, kernel);
    for (size_t i = 0; i < kernel->structure->n_lines; i++) {
        put_source_line(text, kernel, &kernel->structure->lines[i]);
    }
}

// ---- Resources ----------------------------------------------------------------------------------

static void put_blocks(struct kiln_buf *text, const struct kiln_audit_kernel *kernel) {
    const struct kiln_occupancy *o = &kernel->occupancy;
    if (o->blocks == 0) {
        kiln_buf_puts(text, "fits no multiprocessor: ");
    } else {
        kiln_buf_printf(text,
                "%" PRId32 " block%s/SM, %" PRId32 " of %" PRId32 " warps, occupancy %.1f %%, "
                "limited by ",
                o->blocks, o->blocks == 1 ? "" : "s", o->warps, kernel->row->device->max_warps_sm,
                o->occupancy * 100);
    }
    const char *comma = "";
    for (uint32_t flag = 1; flag <= o->limits; flag <<= 1) {
        if (o->limits & flag) {
            kiln_buf_printf(text, "%s%s", comma, kiln_occupancy_limit_name(flag));
            comma = ", ";
        }
    }
    kiln_buf_puts(text, "\n");
    put_more(text);
    kiln_buf_puts(text, "blocks/SM that each allows: ");
    if (o->by_smem != INT32_MAX) {
        kiln_buf_printf(text, "shared memory %" PRId32 ", ", o->by_smem);
    }
    if (o->by_registers != INT32_MAX) {
        kiln_buf_printf(text, "registers %" PRId32 ", ", o->by_registers);
    }
    kiln_buf_printf(
            text, "warps %" PRId32 ", block slots %" PRId32 "\n", o->by_warps, o->by_blocks);
}

static void put_shared(struct kiln_buf *text, const struct kiln_audit_kernel *kernel) {
    kiln_buf_puts(text, "shared memory ");
    put_count(text, kernel->use.smem_dynamic);
    kiln_buf_puts(text, " B asked for");
    if (kernel->layout >= 0) {
        kiln_buf_puts(text, ", ");
        put_count(text, (uint64_t)kernel->layout);
        kiln_buf_puts(text, " B by its own layout");
    } else if (kernel->use.smem_dynamic > 0) {
        int compiled = kernel->item && kernel->item->image.data;
        kiln_buf_puts(text, compiled ? ", no layout of its own" : ", its layout is not known");
    }
    if (kernel->use.smem_static > 0) {
        kiln_buf_puts(text, ", static ");
        put_count(text, kernel->use.smem_static);
        kiln_buf_puts(text, " B");
    }
}

static void put_registers(struct kiln_buf *text, const struct kiln_audit_kernel *kernel) {
    int64_t spills = kiln_audit_spills(kernel);
    if (kernel->use.registers < 0) {
        kiln_buf_puts(text, "registers and spills not known");
        return;
    }
    kiln_buf_printf(text, "%" PRId32 " registers, ", kernel->use.registers);
    if (spills > 0) {
        put_count(text, (uint64_t)spills);
        kiln_buf_puts(text, " B spilled");
    } else {
        kiln_buf_puts(text, spills == 0 ? "no spills" : "spills not known");
    }
}

static void put_over(struct kiln_buf *text, const struct kiln_audit_kernel *kernel) {
    if (kernel->layout < 0 || kernel->use.smem_dynamic <= (uint32_t)kernel->layout) {
        return;
    }
    int32_t lost = kernel->by_layout.blocks - kernel->occupancy.blocks;
    put_line(text, "over");
    kiln_buf_puts(text, "its launcher asks for ");
    put_count(text, kernel->use.smem_dynamic - (uint32_t)kernel->layout);
    if (lost > 0) {
        kiln_buf_printf(text,
                " B that its layout does not use: %" PRId32 " block%s/SM, %" PRId32
                " without them\n",
                kernel->occupancy.blocks, kernel->occupancy.blocks == 1 ? "" : "s",
                kernel->by_layout.blocks);
    } else {
        kiln_buf_puts(text, " B that its layout does not use; no block/SM is lost to them\n");
    }
}

static void put_resources(struct kiln_buf *text, const struct kiln_audit_kernel *kernel) {
    put_line(text, "resources");
    if (kernel->row->device->kind != KILN_DEVICE_CUDA) {
        kiln_buf_puts(text, "a function of the plugin; scratch ");
        put_count(text, kernel->use.smem_dynamic);
        kiln_buf_puts(text, " B a thread\n");
        return;
    }
    put_blocks(text, kernel);
    put_more(text);
    kiln_buf_printf(text, "%" PRIu32 " threads, ", kernel->use.threads);
    put_registers(text, kernel);
    kiln_buf_puts(text, "; ");
    put_shared(text, kernel);
    kiln_buf_puts(text, "\n");
    put_over(text, kernel);
}

// ---- Behaviour and work -------------------------------------------------------------------------

static void put_behaviour(struct kiln_buf *text, const struct kiln_audit_kernel *kernel) {
    if (kernel->n_banks == 0) {
        return;
    }
    put_line(text, "behaviour");
    kiln_buf_puts(text, "bank conflicts: ");
    for (uint32_t i = 0; i < kernel->n_banks; i++) {
        const struct kiln_audit_bank *bank = &kernel->banks[i];
        kiln_buf_puts(text, bank->site->name);
        if (i + 1 < kernel->n_banks && bank[1].ways == bank->ways &&
                bank[1].site->stride_bytes == bank->site->stride_bytes) {
            kiln_buf_puts(text, ", "); // said of both at once
            continue;
        }
        if (bank->ways > 1) {
            kiln_buf_printf(text, " %u-way", bank->ways);
        } else {
            kiln_buf_puts(text, " none");
        }
        kiln_buf_printf(text, " (rows %" PRIu32 " B apart)%s", bank->site->stride_bytes,
                i + 1 < kernel->n_banks ? "; " : "\n");
    }
}

static void put_call(struct kiln_buf *text, const struct kiln_audit_kernel *kernel,
        const struct kiln_audit_call *call, int first) {
    const struct kiln_launch *launch = call->launch;
    const struct kiln_device *device = kernel->row->device;
    double blocks = (double)launch->grid[0] * launch->grid[1] * launch->grid[2];
    if (first) {
        put_line(text, "work");
    } else {
        put_more(text);
    }
    kiln_buf_printf(text, "%s%s x%" PRIu32 ": grid %" PRIu32 "x%" PRIu32 "x%" PRIu32, call->role,
            call->phase == KILN_PHASE_DECODE ? " in decode" : "", call->ops, launch->grid[0],
            launch->grid[1], launch->grid[2]);
    if (device->kind == KILN_DEVICE_CUDA && kernel->occupancy.blocks > 0) {
        kiln_buf_printf(text, ", %.1f waves", blocks / device->sm_count / kernel->occupancy.blocks);
    }
    if (launch->bytes_read + launch->bytes_written + launch->flops > 0) {
        kiln_buf_puts(text, "; each moves ");
        put_scaled(text, launch->bytes_read + launch->bytes_written, "B");
        kiln_buf_puts(text, ", ");
        put_scaled(text, launch->flops, "FLOP");
    }
    kiln_buf_puts(text, "\n");
}

// ---- A kernel -----------------------------------------------------------------------------------

static void put_heading(struct kiln_buf *text, const struct kiln_audit_kernel *kernel) {
    const struct kiln_survey_row *op = kernel->row->op;
    const struct kiln_device *device = kernel->row->device;
    kiln_buf_printf(text, "%s: %s/%s", op->slot, op->plugin ? op->plugin->name : "-",
            op->variant ? op->variant->name : "nothing is bound");
    if (kernel->row->launch) {
        kiln_buf_printf(text, " kernel %s", kernel->row->launch->kernel->name);
    }
    if (kernel->row->preparation) {
        kiln_buf_printf(text, ", once for each weight (%s)", kernel->row->preparation);
    }
    kiln_buf_printf(text, ", on %s (%s)\n", device->name, device->target);
    for (uint32_t i = 0; i < op->geometry.n_values; i++) {
        kiln_buf_printf(text, "%s%s=%" PRId64, i ? " " : "  ", op->geometry.names[i],
                op->geometry.values[i]);
    }
    kiln_buf_puts(text, op->geometry.n_values ? "\n" : "");
}

static void put_kernel(struct kiln_buf *text, const struct kiln_audit_kernel *kernel) {
    put_heading(text, kernel);
    if (!kernel->row->launch) {
        kiln_buf_printf(text, "  %s: %s\n\n",
                kernel->row->op->exceeds ? "exceeds the device" : "unsupported",
                kernel->row->op->unsupported);
        return;
    }
    if (!kiln_audit_is_sound(kernel)) {
        kiln_buf_printf(text, "  failed: %s\n", kernel->item->err.text);
    }
    put_structure(text, kernel);
    put_resources(text, kernel);
    put_behaviour(text, kernel);
    kiln_audit_put_behaviour(text, kernel->behaviour);
    kiln_audit_put_measured(text, kernel->measured);
    for (uint32_t i = 0; i < kernel->n_calls; i++) {
        put_call(text, kernel, &kernel->calls[i], i == 0);
    }
    kiln_buf_puts(text, "\n");
}

static void put_end(const struct kiln_audit *audit, struct kiln_buf *text) {
    size_t kernels = 0, over = 0, spilling = 0, unsupported = 0;
    for (size_t i = 0; i < audit->count; i++) {
        const struct kiln_audit_kernel *kernel = &audit->kernels[i];
        kernels += kernel->row->launch != NULL;
        unsupported += kernel->row->launch == NULL;
        over += kernel->layout >= 0 && kernel->use.smem_dynamic > (uint32_t)kernel->layout;
        spilling += kiln_audit_spills(kernel) > 0;
    }
    kiln_buf_printf(text,
            "%zu kernel%s, %zu asking for shared memory that is not used, %zu with spills, %zu "
            "unsupported\n",
            kernels, kernels == 1 ? "" : "s", over, spilling, unsupported);
    if (audit->no_compiler) {
        kiln_buf_printf(text,
                "structures, registers, spills and layouts are not known, and limit no blocks: "
                "%s\n",
                audit->no_compiler);
    }
}

void kiln_audit_print(const struct kiln_audit *audit, struct kiln_buf *text) {
    for (size_t i = 0; i < audit->count; i++) {
        put_kernel(text, &audit->kernels[i]);
    }
    put_end(audit, text);
}

// ---- Differences --------------------------------------------------------------------------------

static void on_diff(void *arg, const char *name, const char *base, const char *change) {
    kiln_buf_printf(arg, "  %-28s %14s -> %s\n", name, base, change);
}

static size_t put_pair(struct kiln_buf *text, const struct kiln_audit_kernel *base,
        const struct kiln_audit_kernel *change) {
    if (kiln_audit_each_diff(base, change, NULL, NULL) == 0) {
        return 0;
    }
    const struct kiln_kernel_row *row = (base ? base : change)->row;
    kiln_buf_printf(text, "%s (%s) on %s (%s) [derived]\n", row->op->slot, row->op->role,
            row->device->name, row->device->target);
    (void)kiln_audit_each_diff(base, change, on_diff, text);
    kiln_buf_puts(text, "\n");
    return 1;
}

void kiln_audit_print_diff(
        const struct kiln_audit *base, const struct kiln_audit *change, struct kiln_buf *text) {
    size_t differ = 0, total = base->count;
    for (size_t i = 0; i < base->count; i++) {
        differ += put_pair(
                text, &base->kernels[i], kiln_audit_counterpart(base, &base->kernels[i], change));
    }
    for (size_t i = 0; i < change->count; i++) {
        if (!kiln_audit_counterpart(change, &change->kernels[i], base)) {
            total++;
            differ += put_pair(text, NULL, &change->kernels[i]);
        }
    }
    kiln_buf_printf(text, "%zu of %zu kernels differ\n", differ, total);
    if (base->no_compiler) {
        kiln_buf_printf(
                text, "registers, spills and layouts are not known: %s\n", base->no_compiler);
    }
}
