// sim_report: findings first, as they are what a run is for; then the figures.
#include "sim_report.h"

#include "common.h"
#include "lab/save.h"

#include <inttypes.h>
#include <string.h>

// ---- Text ---------------------------------------------------------------------------------------

static void findings_text(struct kiln_sim_report *report, struct kiln_buf *out) {
    const struct kiln_sim_finding *all;
    uint32_t n = kiln_sim_findings(report, &all);
    for (uint32_t i = 0; i < n; i++) {
        kiln_buf_printf(out, "%s%s", all[i].advice ? "advice: " : "", all[i].text);
        if (all[i].count > 1) {
            kiln_buf_printf(out, " (%" PRIu64 " times)", all[i].count);
        }
        kiln_buf_puts(out, "\n");
    }
    uint32_t faults = kiln_sim_faults(report);
    if (faults > 0) {
        kiln_buf_printf(out, "%u fault%s found\n", faults, faults > 1 ? "s" : "");
    } else {
        kiln_buf_puts(out, "no fault found\n");
    }
}

static double ratio(uint64_t a, uint64_t b) {
    return b ? (double)a / (double)b : 0.0;
}

static void memory_text(const struct kiln_sim_counts *c, struct kiln_buf *out) {
    static const char row[] = "  %-20s %12" PRIu64 " requests, %" PRIu64 " %s";
    if (c->global_loads) {
        kiln_buf_printf(out, row, "global loads", c->global_loads, c->global_load_bytes, "bytes");
        kiln_buf_printf(out, ", %" PRIu64 " sectors, %.2f a request\n", c->global_load_sectors,
                ratio(c->global_load_sectors, c->global_loads));
    }
    if (c->global_stores) {
        kiln_buf_printf(
                out, row, "global stores", c->global_stores, c->global_store_bytes, "bytes");
        kiln_buf_printf(out, ", %" PRIu64 " sectors, %.2f a request\n", c->global_store_sectors,
                ratio(c->global_store_sectors, c->global_stores));
    }
    if (c->shared_loads) {
        kiln_buf_printf(
                out, row, "shared loads", c->shared_loads, c->shared_load_wavefronts, "wavefronts");
        kiln_buf_printf(out, ", %" PRIu64 " without conflicts\n", c->shared_load_ideal);
    }
    if (c->shared_stores) {
        kiln_buf_printf(out, row, "shared stores", c->shared_stores, c->shared_store_wavefronts,
                "wavefronts");
        kiln_buf_printf(out, ", %" PRIu64 " without conflicts\n", c->shared_store_ideal);
    }
    if (c->shared_ways > 1) {
        kiln_buf_printf(out, "  %-20s %12u ways\n", "worst bank conflict", c->shared_ways);
    }
}

static void kernel_text(const struct kiln_sim_kernel_counts *kernel, struct kiln_buf *out) {
    const struct kiln_sim_counts *c = &kernel->total;
    kiln_buf_printf(out, "%s: %" PRIu64 " launch%s, %" PRIu64 " blocks, %" PRIu64 " warps\n",
            kernel->kernel, kernel->launches, kernel->launches == 1 ? "" : "es", kernel->blocks,
            kernel->warps);
    kiln_buf_printf(out, "  %-20s %12" PRIu64 " by warps, %.1f lanes on average\n", "instructions",
            c->instructions, ratio(c->lanes, c->instructions));
    for (int i = 0; i < KILN_SIM_CLASS_COUNT; i++) {
        if (c->by_class[i]) {
            kiln_buf_printf(out, "    %-18s %12" PRIu64 "\n",
                    kiln_sim_class_name((enum kiln_sim_class)i), c->by_class[i]);
        }
    }
    for (uint32_t i = 0; i < kernel->n_mma; i++) {
        kiln_buf_printf(
                out, "    %-40s %12" PRIu64 "\n", kernel->mma[i].shape, kernel->mma[i].count);
    }
    memory_text(c, out);
    if (c->barriers) {
        kiln_buf_printf(out, "  %-20s %12" PRIu64 " arrivals of warps, %.1f a warp\n", "barriers",
                c->barriers, ratio(c->barriers, kernel->warps));
    }
    if (c->mbarriers) {
        kiln_buf_printf(out, "  %-20s %12" PRIu64 " operations of warps, %.1f a warp\n",
                "mbarriers", c->mbarriers, ratio(c->mbarriers, kernel->warps));
    }
    if (c->bulk_copies) {
        kiln_buf_printf(out, "  %-20s %12" PRIu64 ", %" PRIu64 " bytes in %" PRIu64 " sectors\n",
                "bulk copies", c->bulk_copies, c->bulk_bytes, c->bulk_sectors);
    }
    if (c->branches) {
        kiln_buf_printf(out, "  %-20s %12" PRIu64 ", %" PRIu64 " divergent\n", "branches",
                c->branches, c->divergent_branches);
    }
    if (kernel->shared_requested) {
        kiln_buf_printf(out, "  %-20s %12u bytes a block, %u used\n", "shared memory",
                kernel->shared_requested, kernel->shared_used);
    }
}

static void lines_text(const struct kiln_sim_kernel_counts *kernel, struct kiln_buf *out) {
    kiln_buf_printf(out, "  %12s %10s %10s %10s %6s  %s\n", "instructions", "global", "shared",
            "wavefronts", "ways", "line");
    for (uint32_t i = 0; i < kernel->n_lines; i++) {
        const struct kiln_sim_counts *c = &kernel->lines[i].counts;
        kiln_buf_printf(out,
                "  %12" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %6u  %s:%u\n",
                c->instructions, c->global_loads + c->global_stores,
                c->shared_loads + c->shared_stores,
                c->shared_load_wavefronts + c->shared_store_wavefronts, c->shared_ways,
                kernel->lines[i].file, kernel->lines[i].line);
    }
}

void kiln_sim_report_text(struct kiln_sim_report *report, int lines, struct kiln_buf *out) {
    const struct kiln_sim_kernel_counts *kernels;
    uint32_t n = kiln_sim_kernels(report, &kernels);
    findings_text(report, out);
    for (uint32_t i = 0; i < n; i++) {
        kernel_text(&kernels[i], out);
        if (lines) {
            lines_text(&kernels[i], out);
        }
    }
}

// ---- JSON ---------------------------------------------------------------------------------------

static json_t *finding_json(const struct kiln_sim_finding *finding) {
    return json_pack("{s:s, s:b, s:s, s:o, s:i, s:i, s:[iii], s:[iii], s:s, s:I, s:o, s:o, s:I}",
            "check", kiln_sim_check_name(finding->check), "advice", finding->advice, "kernel",
            finding->kernel, "file", kiln_json_text(finding->file, strlen(finding->file)), "line",
            (int)finding->line, "ptx_line", (int)finding->ptx_line, "block", (int)finding->block[0],
            (int)finding->block[1], (int)finding->block[2], "thread", (int)finding->thread[0],
            (int)finding->thread[1], (int)finding->thread[2], "space", finding->space, "address",
            (json_int_t)finding->address, "allocation",
            kiln_json_text(finding->allocation, strlen(finding->allocation)), "text",
            kiln_json_text(finding->text, strlen(finding->text)), "count",
            (json_int_t)finding->count);
}

static json_t *counts_json(const struct kiln_sim_counts *c) {
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {{"instructions", c->instructions}, {"lanes", c->lanes},
            {"global_loads", c->global_loads}, {"global_stores", c->global_stores},
            {"global_load_bytes", c->global_load_bytes},
            {"global_store_bytes", c->global_store_bytes},
            {"global_load_sectors", c->global_load_sectors},
            {"global_store_sectors", c->global_store_sectors}, {"shared_loads", c->shared_loads},
            {"shared_stores", c->shared_stores},
            {"shared_load_wavefronts", c->shared_load_wavefronts},
            {"shared_store_wavefronts", c->shared_store_wavefronts},
            {"shared_load_ideal", c->shared_load_ideal},
            {"shared_store_ideal", c->shared_store_ideal}, {"shared_ways", c->shared_ways},
            {"barriers", c->barriers}, {"mbarriers", c->mbarriers}, {"bulk_copies", c->bulk_copies},
            {"bulk_bytes", c->bulk_bytes}, {"bulk_sectors", c->bulk_sectors},
            {"branches", c->branches}, {"divergent_branches", c->divergent_branches}};
    json_t *object = json_object(), *classes = json_object();
    for (size_t i = 0; object && i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)json_object_set_new(object, rows[i].name, json_integer((json_int_t)rows[i].value));
    }
    for (int i = 0; classes && i < KILN_SIM_CLASS_COUNT; i++) {
        if (c->by_class[i]) {
            (void)json_object_set_new(classes, kiln_sim_class_name((enum kiln_sim_class)i),
                    json_integer((json_int_t)c->by_class[i]));
        }
    }
    (void)json_object_set_new(object, "classes", classes);
    return object;
}

// A place with its counts: a source line, or an instruction of one.
static json_t *place_json(const char *file, uint32_t line, const struct kiln_sim_counts *counts) {
    json_t *object = counts_json(counts);
    (void)json_object_set_new(object, "file", kiln_json_text(file, strlen(file)));
    (void)json_object_set_new(object, "line", json_integer((json_int_t)line));
    return object;
}

static json_t *kernel_json(const struct kiln_sim_kernel_counts *kernel) {
    json_t *lines = json_array(), *sites = json_array(), *mma = json_object();
    for (uint32_t i = 0; i < kernel->n_lines; i++) {
        (void)json_array_append_new(lines,
                place_json(kernel->lines[i].file, kernel->lines[i].line, &kernel->lines[i].counts));
    }
    for (uint32_t i = 0; i < kernel->n_sites; i++) {
        const struct kiln_sim_site *site = &kernel->sites[i];
        json_t *object = place_json(site->file, site->line, &site->counts);
        (void)json_object_set_new(object, "opcode", json_string(site->opcode));
        (void)json_object_set_new(object, "ptx_line", json_integer((json_int_t)site->ptx_line));
        (void)json_array_append_new(sites, object);
    }
    for (uint32_t i = 0; i < kernel->n_mma; i++) {
        (void)json_object_set_new(
                mma, kernel->mma[i].shape, json_integer((json_int_t)kernel->mma[i].count));
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:i, s:i, s:o, s:o, s:o, s:o, s:s}", "kernel",
            kernel->kernel, "launches", (json_int_t)kernel->launches, "blocks",
            (json_int_t)kernel->blocks, "warps", (json_int_t)kernel->warps, "shared_requested",
            (int)kernel->shared_requested, "shared_used", (int)kernel->shared_used, "total",
            counts_json(&kernel->total), "lines", lines, "sites", sites, "mma", mma, "grade",
            "simulated");
}

json_t *kiln_sim_report_json(struct kiln_sim_report *report) {
    const struct kiln_sim_finding *found;
    const struct kiln_sim_kernel_counts *counted;
    uint32_t n_found = kiln_sim_findings(report, &found);
    uint32_t n_counted = kiln_sim_kernels(report, &counted);
    json_t *findings = json_array(), *kernels = json_array();
    for (uint32_t i = 0; findings && i < n_found; i++) {
        (void)json_array_append_new(findings, finding_json(&found[i]));
    }
    for (uint32_t i = 0; kernels && i < n_counted; i++) {
        (void)json_array_append_new(kernels, kernel_json(&counted[i]));
    }
    return json_pack("{s:o, s:i, s:o, s:I}", "findings", findings, "faults",
            (int)kiln_sim_faults(report), "kernels", kernels, "warp_instructions",
            (json_int_t)kiln_sim_instructions(report));
}
