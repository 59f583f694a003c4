// audit_measured: counters of a profiler beside the derived figures.
#include "lab/audit_impl.h"

#include <inttypes.h>
#include <jansson.h>

enum {
    SHOWN_STALLS = 5
};

size_t kiln_audit_measured(struct kiln_audit *audit, const struct kiln_ncu *ncu) {
    size_t found = 0;
    for (size_t i = 0; i < audit->count; i++) {
        struct kiln_audit_kernel *kernel = &audit->kernels[i];
        if (kernel->row->launch) {
            kernel->measured = kiln_ncu_find(ncu, kernel->row->launch->record.kernel);
        }
        found += kernel->measured != NULL;
    }
    return found;
}

static void put_figures(struct kiln_buf *text, const struct kiln_ncu_kernel *m) {
    static const struct {
        enum kiln_ncu_figure figure;
        const char *words;
    } shown[] = {{KILN_NCU_SM_BUSY, "SM busy"}, {KILN_NCU_ISSUE, "issue slots busy"},
            {KILN_NCU_COMPUTE, "compute"}, {KILN_NCU_MEMORY, "memory"}, {KILN_NCU_DRAM, "DRAM"},
            {KILN_NCU_OCCUPANCY, "occupancy"}, {KILN_NCU_L1_HIT, "L1 hits"},
            {KILN_NCU_L2_HIT, "L2 hits"}};
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
        if (m->figures[shown[i].figure] >= 0) {
            kiln_buf_printf(text, ", %s %.1f %%", shown[i].words, m->figures[shown[i].figure]);
        }
    }
}

void kiln_audit_put_measured(struct kiln_buf *text, const struct kiln_ncu_kernel *measured) {
    if (!measured) {
        return;
    }
    kiln_buf_printf(text, "  %-10s [measured] %.3f ms a launch, mean of %" PRId64, "ncu",
            measured->seconds / (double)measured->launches * 1e3, measured->launches);
    put_figures(text, measured);
    kiln_buf_puts(text, "\n");
    for (uint32_t i = 0; i < measured->n_stalls && i < SHOWN_STALLS; i++) {
        kiln_buf_printf(text, "%s%s %.2f", i == 0 ? "                        stalls: " : ", ",
                measured->stalls[i].name, measured->stalls[i].cycles);
    }
    if (measured->n_stalls > 0) {
        kiln_buf_puts(text, " (cycles a warp waits for each instruction issued)\n");
    }
    if (measured->rule) {
        kiln_buf_printf(text, "                        estimated speedup %.1f %% (%s)%s\n",
                measured->speedup_pct, measured->rule,
                measured->local ? ", local: of what that rule looks at" : "");
    }
}

struct json_t *kiln_audit_measured_json(const struct kiln_ncu_kernel *measured) {
    if (!measured) {
        return json_null();
    }
    json_t *stalls = json_array();
    json_t *object = json_pack("{s:s, s:I, s:f, s:s}", "kernel", measured->name, "launches",
            (json_int_t)measured->launches, "ms",
            measured->seconds / (double)measured->launches * 1e3, "grade", "measured");
    for (int i = 0; object && i < KILN_NCU_FIGURES; i++) {
        double value = measured->figures[i];
        json_object_set_new(object, kiln_ncu_figure_name((enum kiln_ncu_figure)i),
                value >= 0 ? json_real(value) : json_null());
    }
    for (uint32_t i = 0; i < measured->n_stalls; i++) {
        json_array_append_new(stalls, json_pack("{s:s, s:f}", "stall", measured->stalls[i].name,
                                              "cycles", measured->stalls[i].cycles));
    }
    if (!object || json_object_set_new(object, "stalls", stalls) != 0 ||
            json_object_set_new(object, "speedup_pct",
                    measured->rule ? json_real(measured->speedup_pct) : json_null()) != 0 ||
            json_object_set_new(object, "speedup_type",
                    measured->rule ? json_string(measured->local ? "local" : "global")
                                   : json_null()) != 0 ||
            json_object_set_new(object, "rule",
                    measured->rule ? json_string(measured->rule) : json_null()) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}
