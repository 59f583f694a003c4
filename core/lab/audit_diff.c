// audit_diff: which kernel of one audit stands where in another, and what differs.
#include "lab/audit_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- Counterparts -------------------------------------------------------------------------------

// The same place of the pass: device, slot, first role, and in or out of a preparation.
static int same_place(const struct kiln_audit_kernel *a, const struct kiln_audit_kernel *b) {
    return strcmp(a->row->device->target, b->row->device->target) == 0 &&
           strcmp(a->row->device->name, b->row->device->name) == 0 &&
           strcmp(a->row->op->slot, b->row->op->slot) == 0 &&
           strcmp(a->calls[0].role, b->calls[0].role) == 0 &&
           !a->row->preparation == !b->row->preparation;
}

// How many kernels of the audit stand at its place before it.
static size_t rank_of(const struct kiln_audit *audit, const struct kiln_audit_kernel *kernel) {
    size_t rank = 0;
    for (const struct kiln_audit_kernel *at = audit->kernels; at != kernel; at++) {
        rank += (size_t)same_place(at, kernel);
    }
    return rank;
}

const struct kiln_audit_kernel *kiln_audit_counterpart(const struct kiln_audit *base,
        const struct kiln_audit_kernel *kernel, const struct kiln_audit *change) {
    size_t rank = rank_of(base, kernel);
    for (size_t i = 0; i < change->count; i++) {
        if (same_place(kernel, &change->kernels[i]) && rank-- == 0) {
            return &change->kernels[i];
        }
    }
    return NULL;
}

// ---- Differences --------------------------------------------------------------------------------

enum {
    TEXT = 64
};

struct telling {
    kiln_audit_diff_fn fn;
    void *arg;
    size_t count;
};

static void tell(struct telling *telling, const char *name, const char *base, const char *change) {
    if (strcmp(base, change) != 0) {
        telling->count++;
        if (telling->fn) {
            telling->fn(telling->arg, name, base, change);
        }
    }
}

static void value_text(const struct kiln_geometry *geometry, const char *name, char text[TEXT]) {
    snprintf(text, TEXT, "-");
    for (uint32_t i = 0; i < geometry->n_values; i++) {
        if (strcmp(geometry->names[i], name) == 0) {
            snprintf(text, TEXT, "%" PRId64, geometry->values[i]);
        }
    }
}

static void tell_geometry(struct telling *telling, const struct kiln_geometry *base,
        const struct kiln_geometry *change) {
    char a[TEXT], b[TEXT];
    for (uint32_t i = 0; i < base->n_values; i++) {
        value_text(base, base->names[i], a);
        value_text(change, base->names[i], b);
        tell(telling, base->names[i], a, b);
    }
    for (uint32_t i = 0; i < change->n_values; i++) {
        value_text(base, change->names[i], a);
        value_text(change, change->names[i], b);
        if (strcmp(a, "-") == 0) {
            tell(telling, change->names[i], a, b);
        }
    }
}

static void figure_text(const struct kiln_audit_figure *figure,
        const struct kiln_audit_kernel *kernel, char text[TEXT]) {
    double value;
    if (!figure->get(kernel, &value)) {
        snprintf(text, TEXT, "-");
    } else if (figure->ratio) {
        int permille = (int)(value * 1000 + 0.5);
        snprintf(text, TEXT, "%d.%d %%", permille / 10, permille % 10);
    } else {
        snprintf(text, TEXT, "%" PRId64, (int64_t)value);
    }
}

static void ways_text(const struct kiln_audit_kernel *kernel, const char *site, char text[TEXT]) {
    snprintf(text, TEXT, "-");
    for (uint32_t i = 0; i < kernel->n_banks; i++) {
        if (strcmp(kernel->banks[i].site->name, site) == 0) {
            snprintf(text, TEXT, "%u-way, %u B", kernel->banks[i].ways,
                    kernel->banks[i].site->stride_bytes);
        }
    }
}

static void tell_banks(struct telling *telling, const struct kiln_audit_kernel *base,
        const struct kiln_audit_kernel *change) {
    char a[TEXT], b[TEXT], name[TEXT + 8];
    const struct kiln_audit_kernel *both[] = {base, change};
    for (int k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < both[k]->n_banks; i++) {
            const char *site = both[k]->banks[i].site->name;
            ways_text(base, site, a);
            ways_text(change, site, b);
            if (k == 0 || strcmp(a, "-") == 0) {
                snprintf(name, sizeof(name), "banks %.60s", site);
                tell(telling, name, a, b);
            }
        }
    }
}

// ---- By source line -----------------------------------------------------------------------------

// What the line of `like` does in this kernel; "-": nothing that is told, or no such line.
static void line_text(const struct kiln_audit_kernel *kernel,
        const struct kiln_structure_line *like, char text[KILN_AUDIT_COUNTS]) {
    const struct kiln_structure *structure = kernel->structure;
    text[0] = '\0';
    for (size_t i = 0; structure && i < structure->n_lines; i++) {
        const struct kiln_structure_line *line = &structure->lines[i];
        if (line->line == like->line && strcmp(line->file, like->file) == 0) {
            kiln_audit_counts(line, text);
        }
    }
    if (!text[0]) {
        memcpy(text, "-", 2);
    }
}

static void outside_text(const struct kiln_audit_kernel *kernel, char text[TEXT]) {
    snprintf(text, TEXT, "-");
    if (kernel->structure && kernel->structure->loops_known) {
        snprintf(text, TEXT, "%" PRIu32, kernel->structure->barriers_outside);
    }
}

// The stages: what each source line gives tensor cores, shared memory and ALU to do.
static void tell_structure(struct telling *telling, const struct kiln_audit_kernel *base,
        const struct kiln_audit_kernel *change) {
    char a[KILN_AUDIT_COUNTS], b[KILN_AUDIT_COUNTS], name[TEXT + 32];
    const struct kiln_structure *both[] = {base->structure, change->structure};
    if (!both[0] && !both[1]) {
        return;
    }
    outside_text(base, a);
    outside_text(change, b);
    tell(telling, "barriers_outside", a, b);
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; both[k] && i < both[k]->n_lines; i++) {
            const struct kiln_structure_line *line = &both[k]->lines[i];
            line_text(base, line, a);
            line_text(change, line, b);
            if (k == 0 || strcmp(a, "-") == 0) {
                snprintf(name, sizeof(name), "structure %s:%" PRIu32, line->file, line->line);
                tell(telling, name, a, b);
            }
        }
    }
}

static int is_same_site(const struct kiln_behaviour_site *a, const struct kiln_behaviour_site *b) {
    return a->line == b->line && !a->global == !b->global && strcmp(a->file, b->file) == 0 &&
           strcmp(a->opcode, b->opcode) == 0;
}

// What its accesses cost: "4-way, 4 wavefronts", "8.0 sectors".
static void site_text(const struct kiln_audit_kernel *kernel,
        const struct kiln_behaviour_site *like, char text[TEXT]) {
    const struct kiln_behaviour *behaviour = kernel->behaviour;
    snprintf(text, TEXT, "-");
    for (size_t i = 0; behaviour && !behaviour->why_not && i < behaviour->n_sites; i++) {
        const struct kiln_behaviour_site *site = &behaviour->sites[i];
        if (!is_same_site(site, like)) {
            continue;
        }
        if (site->global) {
            snprintf(text, TEXT, "%.4g sectors", site->sectors);
        } else {
            snprintf(text, TEXT, "%" PRIu32 "-way, %.4g wavefronts", site->ways, site->wavefronts);
        }
    }
}

static void tell_sites(struct telling *telling, const struct kiln_audit_kernel *base,
        const struct kiln_audit_kernel *change) {
    char a[TEXT], b[TEXT], name[2 * TEXT];
    const struct kiln_behaviour *both[] = {base->behaviour, change->behaviour};
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; both[k] && !both[k]->why_not && i < both[k]->n_sites; i++) {
            const struct kiln_behaviour_site *site = &both[k]->sites[i];
            site_text(base, site, a);
            site_text(change, site, b);
            if (k == 0 || strcmp(a, "-") == 0) {
                snprintf(name, sizeof(name), "simulated %s:%" PRIu32 " %s", site->file, site->line,
                        site->opcode);
                tell(telling, name, a, b);
            }
        }
    }
}

// ---- Simulated ----------------------------------------------------------------------------------

enum {
    SIMULATED = 6
};
static const char *const simulated_names[SIMULATED] = {"simulated_barriers", "simulated_mma",
        "simulated_smem", "simulated_ways", "simulated_idle_barriers", "simulated_faults"};

// What the simulator counted, a block.
static void simulated_text(const struct kiln_audit_kernel *kernel, int which, char text[TEXT]) {
    const struct kiln_behaviour *b = kernel->behaviour;
    if (!b || b->why_not) {
        snprintf(text, TEXT, "-");
        return;
    }
    uint32_t ways = 1;
    for (size_t i = 0; i < b->n_sites; i++) {
        ways = !b->sites[i].global && b->sites[i].ways > ways ? b->sites[i].ways : ways;
    }
    const double values[SIMULATED] = {
            b->barriers, b->tensor_ops, b->smem_used, ways, (double)b->n_idle, b->faults};
    snprintf(text, TEXT, "%.6g", values[which]);
}

static void tell_simulated(struct telling *telling, const struct kiln_audit_kernel *base,
        const struct kiln_audit_kernel *change) {
    char a[TEXT], b[TEXT];
    for (int i = 0; i < SIMULATED; i++) {
        simulated_text(base, i, a);
        simulated_text(change, i, b);
        tell(telling, simulated_names[i], a, b);
    }
}

static const char *or_dash(const char *text) {
    return text ? text : "-";
}

static const char *who(const struct kiln_audit_kernel *kernel) {
    return kernel->row->op->variant ? kernel->row->op->variant->name : "-";
}

size_t kiln_audit_each_diff(const struct kiln_audit_kernel *base,
        const struct kiln_audit_kernel *change, kiln_audit_diff_fn fn, void *arg) {
    static const struct kiln_kernel_row nothing = {.launch = NULL};
    static const struct kiln_survey_row none = {.role = ""};
    struct telling telling = {.fn = fn, .arg = arg};
    struct kiln_kernel_row row = nothing;
    struct kiln_audit_kernel absent = {.row = &row, .layout = -1};
    row.op = &none;
    row.device = (base ? base : change)->row->device;
    absent.use.registers = -1;
    base = base ? base : &absent;
    change = change ? change : &absent;
    tell(&telling, "variant", who(base), who(change));
    tell(&telling, "kernel", base->row->launch ? base->row->launch->kernel->name : "-",
            change->row->launch ? change->row->launch->kernel->name : "-");
    tell_geometry(&telling, &base->row->op->geometry, &change->row->op->geometry);
    for (size_t i = 0; kiln_audit_figure_at(i); i++) {
        char a[TEXT], b[TEXT];
        figure_text(kiln_audit_figure_at(i), base, a);
        figure_text(kiln_audit_figure_at(i), change, b);
        tell(&telling, kiln_audit_figure_at(i)->name, a, b);
    }
    tell(&telling, "limiter", or_dash(kiln_occupancy_limiter(&base->occupancy)),
            or_dash(kiln_occupancy_limiter(&change->occupancy)));
    tell_banks(&telling, base, change);
    tell_structure(&telling, base, change);
    tell_simulated(&telling, base, change);
    tell_sites(&telling, base, change);
    tell(&telling, "unsupported", or_dash(base->row->op->unsupported),
            or_dash(change->row->op->unsupported));
    return telling.count;
}
