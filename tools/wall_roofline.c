// wall_roofline: bounds of slices as JSON and as a table.
#include "wall_roofline.h"

#include <jansson.h>

static json_t *real_or_null(double value) {
    return value > 0 ? json_real(value) : json_null();
}

static double percent(double part, double whole) {
    return whole > 0 ? 100 * part / whole : 0;
}

// What bounds it, as far as is known: "memory" or the peak's name; NULL: there is no bound.
static const char *bound_by(const struct kiln_wall_slice *slice) {
    const struct kiln_roofline *least = &slice->least;
    if (least->bound <= 0) {
        return NULL;
    }
    return least->compute > least->memory ? kiln_peak_name(slice->precision) : "memory";
}

int kiln_wall_roofline_slice(
        const struct kiln_wall *wall, const struct kiln_wall_slice *slice, struct json_t *json) {
    const struct kiln_roofline *least = &slice->least;
    const char *by = bound_by(slice);
    const int known = kiln_ceilings_peak(&wall->ceilings, slice->precision) > 0;
    int bad = json_object_set_new(
            json, "memory_pct", real_or_null(percent(least->memory, slice->seconds)));
    bad |= json_object_set_new(
            json, "peak", known ? json_string(kiln_peak_name(slice->precision)) : json_null());
    bad |= json_object_set_new(
            json, "peak_pct", real_or_null(percent(least->compute, slice->seconds)));
    bad |= json_object_set_new(json, "bound_ms", real_or_null(least->bound * 1e3));
    bad |= json_object_set_new(json, "bound_by", by ? json_string(by) : json_null());
    return bad ? -1 : 0;
}

static double bound_of_all(const struct kiln_wall *wall) {
    double seconds = 0;
    for (size_t i = 0; i < wall->n; i++) {
        seconds += wall->slices[i].least.bound;
    }
    return seconds;
}

struct json_t *kiln_wall_roofline_json(const struct kiln_wall *wall) {
    const struct kiln_ceilings *c = &wall->ceilings;
    return json_pack("{s:s, s:s?, s:o, s:o, s:o, s:o, s:o}", "grade", "derived", "device_file",
            c->file[0] ? c->file : NULL, "memory_gb_s", real_or_null(c->bandwidth / 1e9),
            "f16_tflop_s", real_or_null(c->peaks.f16 / 1e12), "int8_tflop_s",
            real_or_null(c->peaks.i8 / 1e12), "f32_tflop_s", real_or_null(c->peaks.f32 / 1e12),
            "bound_ms", real_or_null(bound_of_all(wall) * 1e3));
}

static void print_head(const struct kiln_wall *wall, const char *device, struct kiln_buf *out) {
    const struct kiln_ceilings *c = &wall->ceilings;
    kiln_buf_puts(out, "\nroofline, derived: the least by bytes and operations of the plans, ");
    if (c->bandwidth > 0) {
        kiln_buf_printf(out, "%.0f GB/s", c->bandwidth / 1e9);
    } else {
        kiln_buf_puts(out, "a bandwidth that is not known");
    }
    if (c->file[0]) {
        kiln_buf_printf(out, " and the peaks of configs/devices/%s.ini\n", c->file);
    } else {
        kiln_buf_printf(out,
                " alone; configs/devices has no file of this %s, so that its peaks are not known\n",
                device);
    }
}

void kiln_wall_roofline_print(
        const struct kiln_wall *wall, const char *device, struct kiln_buf *out) {
    const double all = bound_of_all(wall), slices = wall->traced - wall->host;
    if (all <= 0) {
        return;
    }
    print_head(wall, device, out);
    kiln_buf_puts(out, "  bound ms    wall ms  bound / wall  by\n");
    for (size_t i = 0; i < wall->n; i++) {
        const struct kiln_wall_slice *s = &wall->slices[i];
        const char *by = bound_by(s);
        kiln_buf_printf(out, "%10.3f %10.3f %11.1f %%  %-8s  %s  %s\n", s->least.bound * 1e3,
                s->seconds * 1e3, percent(s->least.bound, s->seconds), by ? by : "not known",
                s->slot, s->name);
    }
    kiln_buf_printf(out, "%10.3f %10.3f %11.1f %%  all slices\n", all * 1e3, slices * 1e3,
            percent(all, slices));
}
