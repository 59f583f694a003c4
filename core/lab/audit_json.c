// audit_json: an audit as JSON, with the keys that others read.
//
// jansson's *_new functions take the references handed to them also when they fail, and accept NULL
// for "out of memory", so that a document is built without looking and judged at its end.
#include "lab/audit.h"

#include "lab/audit_impl.h"
#include "plugin/schema.h"

#include <jansson.h>

// Sets a key, or drops the whole object: *object is NULL once anything has failed.
static void set(json_t **object, const char *key, json_t *value) {
    if (json_object_set_new(*object, key, value) != 0) {
        json_decref(*object);
        *object = NULL;
    }
}

static void append(json_t **array, json_t *value) {
    if (json_array_append_new(*array, value) != 0) {
        json_decref(*array);
        *array = NULL;
    }
}

static json_t *text_or_null(const char *text) {
    return text ? json_string(text) : json_null();
}

static json_t *banks_json(const struct kiln_audit_kernel *kernel) {
    json_t *array = json_array();
    for (uint32_t i = 0; i < kernel->n_banks; i++) {
        const struct kiln_smem_site *site = kernel->banks[i].site;
        append(&array, json_pack("{s:s, s:s, s:i, s:i, s:i, s:s}", "site", site->name, "kind",
                               site->kind == KILN_SITE_LDMATRIX ? "ldmatrix"
                               : site->kind == KILN_SITE_LOAD   ? "load"
                                                                : "store",
                               "stride_bytes", (int)site->stride_bytes, "access_bytes",
                               (int)site->access_bytes, "ways", (int)kernel->banks[i].ways, "grade",
                               "derived"));
    }
    kiln_audit_add_banks_json(array, kernel->behaviour);
    return array;
}

static json_t *calls_json(const struct kiln_audit_kernel *kernel) {
    json_t *array = json_array();
    for (uint32_t i = 0; i < kernel->n_calls; i++) {
        const struct kiln_audit_call *call = &kernel->calls[i];
        json_t *object = json_pack("{s:s, s:s?, s:i}", "role", call->role, "phase",
                call->phase == KILN_PHASE_PREFILL  ? "prefill"
                : call->phase == KILN_PHASE_DECODE ? "decode"
                                                   : NULL,
                "ops", (int)call->ops);
        if (object && call->launch) {
            const struct kiln_launch *launch = call->launch;
            set(&object, "grid",
                    json_pack("[I,I,I]", (json_int_t)launch->grid[0], (json_int_t)launch->grid[1],
                            (json_int_t)launch->grid[2]));
            set(&object, "bytes_read", json_real(launch->bytes_read));
            set(&object, "bytes_written", json_real(launch->bytes_written));
            set(&object, "flops", json_real(launch->flops));
            set(&object, "sum_order", text_or_null(launch->sum_order));
        }
        append(&array, object);
    }
    return array;
}

static json_t *limiters_json(const struct kiln_occupancy *occupancy) {
    json_t *array = json_array();
    for (uint32_t flag = 1; flag <= occupancy->limits; flag <<= 1) {
        if (occupancy->limits & flag) {
            append(&array, json_string(kiln_occupancy_limit_name(flag)));
        }
    }
    return array;
}

static json_t *counts_json(const uint32_t counts[KILN_STRUCTURE_CLASSES]) {
    json_t *object = json_object();
    for (unsigned i = 0; i < KILN_STRUCTURE_CLASSES; i++) {
        if (counts[i]) {
            set(&object, kiln_audit_class_name(i), json_integer((json_int_t)counts[i]));
        }
    }
    return object;
}

static json_t *loop_json(const struct kiln_structure_loop *loop) {
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "file", loop->file, "line",
            (json_int_t)loop->line, "depth", (json_int_t)loop->depth, "barriers",
            (json_int_t)loop->barriers, "barriers_not_every_turn", (json_int_t)loop->sometimes,
            "instructions", counts_json(loop->counts));
}

static json_t *line_json(
        const struct kiln_audit_kernel *kernel, const struct kiln_structure_line *line) {
    char units[KILN_AUDIT_UNITS];
    const char *source = NULL;
    kiln_audit_units(line, units);
    json_t *object = json_pack("{s:s, s:I, s:s, s:o}", "file", line->file, "line",
            (json_int_t)line->line, "units", units, "instructions", counts_json(line->counts));
    size_t len = kiln_audit_source_line(kernel, line, &source);
    if (object && len > 0) {
        set(&object, "source", json_stringn(source, len));
    }
    return object;
}

static json_t *structure_json(const struct kiln_audit_kernel *kernel) {
    const struct kiln_structure *structure = kernel->structure;
    if (!structure) {
        return json_null();
    }
    json_t *loops = json_array(), *lines = json_array();
    for (size_t i = 0; i < structure->n_loops; i++) {
        append(&loops, loop_json(&structure->loops[i]));
    }
    for (size_t i = 0; i < structure->n_lines; i++) {
        append(&lines, line_json(kernel, &structure->lines[i]));
    }
    if (!structure->loops_known) {
        json_decref(loops);
        loops = json_null();
    }
    return json_pack("{s:s, s:o, s:I, s:I, s:o}", "grade", "derived", "loops", loops,
            "barriers_outside_loops", (json_int_t)structure->barriers_outside, "calls",
            (json_int_t)structure->calls, "lines", lines);
}

static json_t *figure_json(
        const struct kiln_audit_figure *figure, const struct kiln_audit_kernel *kernel) {
    double value;
    if (!figure->get(kernel, &value)) {
        return json_null();
    }
    return figure->ratio ? json_real(value) : json_integer((json_int_t)value);
}

static json_t *kernel_json(const struct kiln_audit_kernel *kernel) {
    const struct kiln_survey_row *op = kernel->row->op;
    json_t *object = json_object();
    set(&object, "slot", json_string(op->slot));
    set(&object, "plugin", text_or_null(op->plugin ? op->plugin->name : NULL));
    set(&object, "variant", text_or_null(op->variant ? op->variant->name : NULL));
    set(&object, "kernel",
            text_or_null(kernel->row->launch ? kernel->row->launch->kernel->name : NULL));
    set(&object, "target", json_string(kernel->row->device->target));
    set(&object, "device", json_string(kernel->row->device->name));
    set(&object, "geometry", kiln_geometry_json(&op->geometry));
    set(&object, "grade", json_string("derived"));
    set(&object, "calls", calls_json(kernel));
    if (!kernel->row->launch) {
        set(&object, "unsupported", json_string(op->unsupported));
        return object;
    }
    if (kernel->row->preparation) {
        set(&object, "preparation", json_string(kernel->row->preparation));
    }
    for (size_t i = 0; kiln_audit_figure_at(i); i++) {
        const struct kiln_audit_figure *figure = kiln_audit_figure_at(i);
        set(&object, figure->name, figure_json(figure, kernel));
    }
    set(&object, "limiter", text_or_null(kiln_occupancy_limiter(&kernel->occupancy)));
    set(&object, "limiters", limiters_json(&kernel->occupancy));
    set(&object, "banks", banks_json(kernel));
    set(&object, "structure", structure_json(kernel));
    set(&object, "simulated", kiln_audit_behaviour_json(kernel->behaviour));
    set(&object, "ncu", kiln_audit_measured_json(kernel->measured));
    if (!kiln_audit_is_sound(kernel)) {
        set(&object, "error", json_string(kernel->item->err.text));
    }
    return object;
}

json_t *kiln_audit_json(const struct kiln_audit *audit) {
    json_t *array = json_array();
    for (size_t i = 0; i < audit->count; i++) {
        append(&array, kernel_json(&audit->kernels[i]));
    }
    return array;
}

// ---- Differences --------------------------------------------------------------------------------

static void on_diff(void *arg, const char *name, const char *base, const char *change) {
    set(arg, name, json_pack("[s, s]", base, change));
}

static json_t *pair_json(
        const struct kiln_audit_kernel *base, const struct kiln_audit_kernel *change) {
    json_t *object = json_object(), *changes = json_object();
    (void)kiln_audit_each_diff(base, change, on_diff, &changes);
    set(&object, "slot", json_string((base ? base : change)->row->op->slot));
    set(&object, "target", json_string((base ? base : change)->row->device->target));
    set(&object, "base", base ? kernel_json(base) : json_null());
    set(&object, "change", change ? kernel_json(change) : json_null());
    set(&object, "changes", changes);
    return object;
}

json_t *kiln_audit_diff_json(const struct kiln_audit *base, const struct kiln_audit *change) {
    json_t *array = json_array();
    for (size_t i = 0; i < base->count; i++) {
        append(&array, pair_json(&base->kernels[i],
                               kiln_audit_counterpart(base, &base->kernels[i], change)));
    }
    for (size_t i = 0; i < change->count; i++) {
        if (!kiln_audit_counterpart(change, &change->kernels[i], base)) {
            append(&array, pair_json(NULL, &change->kernels[i]));
        }
    }
    return array;
}
