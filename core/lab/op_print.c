// op_print: results of op for people and as JSON.
#include "lab/op.h"

#include "device/sim/sim.h"
#include "plugin/describe.h"
#include "plugin/schema.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

static const char *grade_of(const struct kiln_op_setup *setup) {
    return kiln_sim_dev_report(setup->dev) ? "simulated" : "measured";
}

// ---- One result ---------------------------------------------------------------------------------

// For a sentence: "f16", "the peak given".
static const char *peak_of(const struct kiln_op_result *result) {
    return strcmp(result->peak_name, "given") == 0 ? "the peak given" : result->peak_name;
}

static void print_rates(const struct kiln_op_setup *setup, const struct kiln_op_result *result,
        double seconds, struct kiln_buf *text) {
    double bandwidth = setup->ceilings.bandwidth;
    if (result->bytes > 0) {
        double rate = result->bytes / seconds;
        kiln_buf_printf(text, "  %.1f GB/s", rate / 1e9);
        if (bandwidth > 0) {
            kiln_buf_printf(text, " (%.1f %% of memory)", 100 * rate / bandwidth);
        }
    }
    if (result->flops > 0) {
        double rate = result->flops / seconds;
        kiln_buf_printf(text, "  %.3f TFLOP/s", rate / 1e12);
        if (result->peak > 0) {
            kiln_buf_printf(text, " (%.1f %% of %s)", 100 * rate / result->peak, peak_of(result));
        }
    }
    kiln_buf_puts(text, "\n");
}

static void print_times(const struct kiln_op_setup *setup, const struct kiln_op_result *result,
        const char *what, const struct kiln_op_times *times, struct kiln_buf *text) {
    if (times->median > 0) {
        kiln_buf_printf(text, "  %-9s %.2f us (%.2f to %.2f, %" PRId64 " samples)", what,
                times->median * 1e6, times->low * 1e6, times->high * 1e6, setup->runs);
        print_rates(setup, result, times->median, text);
    }
}

static void print_ceiling(const struct kiln_op_setup *setup, const struct kiln_op_result *result,
        struct kiln_buf *text) {
    const struct kiln_ceilings *c = &setup->ceilings;
    kiln_buf_puts(text, "  ceiling   memory: ");
    if (c->bandwidth > 0) {
        kiln_buf_printf(text, "%.0f GB/s", c->bandwidth / 1e9);
    } else {
        kiln_buf_puts(text, "not known");
    }
    if (setup->peak > 0) {
        kiln_buf_printf(text, "; arithmetic: %.1f TFLOP/s, as given\n", result->peak / 1e12);
    } else if (result->peak > 0) {
        kiln_buf_printf(text, "; arithmetic: %.1f TFLOP/s of %s (configs/devices/%s.ini)\n",
                result->peak / 1e12, result->peak_name, c->file);
    } else {
        kiln_buf_puts(text, "; arithmetic: not known (--peak TFLOPS gives it)\n");
    }
}

static void print_verdict(const struct kiln_op_result *result, struct kiln_buf *text) {
    const struct kiln_op_verdict *v = &result->verdict;
    if (v->why[0]) {
        kiln_buf_printf(text, "  parity    FAILED: %s\n", v->why);
        return;
    }
    kiln_buf_printf(text,
            "  parity    %s: the worst element is off by %.3g of its bound (op %u %s, row %" PRId64
            ", column %" PRId64 ": %.9g, is to be %.9g within %.3g); normalized %.2g\n",
            v->passed ? "passed" : "FAILED", v->worst, v->op,
            v->operand ? kiln_operand_name(v->operand) : "out", v->row, v->col, v->got, v->want,
            v->bound, v->normalized);
}

static void print_replayed(const struct kiln_op_result *result, struct kiln_buf *text) {
    const struct kiln_op_replayed *a = &result->against;
    if (a->differ == 0) {
        kiln_buf_printf(text, "  captured  the same bits, %" PRId64 " elements\n", a->elements);
        return;
    }
    kiln_buf_printf(text,
            "  captured  %s: %" PRId64 " of %" PRId64
            " elements differ, by %.3g at most, %.2g of the largest",
            kiln_op_passed(result) ? "alike" : "FAILED", a->differ, a->elements, a->largest,
            a->normalized);
    if (a->not_finite) {
        kiln_buf_printf(text, "; %" PRId64 " are NaN or infinite", a->not_finite);
    }
    kiln_buf_puts(text, "\n");
}

// Each line of `lines` behind its own label.
static void print_lines(const char *label, const char *lines, struct kiln_buf *text) {
    for (const char *at = lines; at && *at; at += strspn(at, "\n")) {
        size_t len = strcspn(at, "\n");
        kiln_buf_printf(text, "  %-9s %.*s\n", label, (int)len, at);
        at += len;
    }
}

void kiln_op_print(const struct kiln_op_setup *setup, const struct kiln_op_result *result,
        struct kiln_buf *text) {
    const struct kiln_binding *binding = result->binding;
    kiln_buf_printf(text, "%s %s on %s (%s), %s\n", result->slot, result->shape, setup->dev->id,
            setup->dev->desc.name, grade_of(setup));
    kiln_buf_printf(text, "  variant   %s/%s", binding->plugin->name, binding->variant_name);
    kiln_geometry_print(&binding->geometry, text);
    kiln_buf_printf(text, "  [%s] %s\n", binding->section, binding->origin);
    print_lines("kernel", result->launches, text);
    print_lines("declined", result->passed_over, text);
    if (result->prepared_bytes > 0) {
        kiln_buf_printf(text, "  weights   %.1f MiB in a form of their own\n",
                (double)result->prepared_bytes / (1 << 20));
    }
    if (result->judged) {
        print_verdict(result, text);
    }
    if (result->replayed) {
        print_replayed(result, text);
    }
    if (result->instructions > 0) {
        kiln_buf_printf(text, "  sim       %" PRIu64 " warp instructions\n", result->instructions);
    }
    if (result->timed) {
        print_times(setup, result, "warm L2", &result->warm, text);
        print_times(setup, result, "cold L2", &result->cold, text);
        print_ceiling(setup, result, text);
    }
}

// ---- Several ------------------------------------------------------------------------------------

static void print_cell(double value, int digits, struct kiln_buf *text) {
    if (value > 0) {
        kiln_buf_printf(text, " %.*f |", digits, value);
    } else {
        kiln_buf_puts(text, " |");
    }
}

static void print_row(const struct kiln_op_setup *setup, const struct kiln_op_result *result,
        struct kiln_buf *text) {
    double warm = result->timed ? result->warm.median : HUGE_VAL, peak = result->peak;
    double bandwidth = setup->ceilings.bandwidth;
    kiln_buf_printf(text, "| %s | %s/%s", result->shape, result->binding->plugin->name,
            result->binding->variant_name);
    kiln_geometry_print(&result->binding->geometry, text);
    kiln_buf_printf(text, " | %s |",
            !result->judged && !result->replayed ? ""
            : kiln_op_passed(result)             ? "passed"
                                                 : "FAILED");
    print_cell(result->timed ? warm * 1e6 : 0, 2, text);
    print_cell(result->timed ? result->cold.median * 1e6 : 0, 2, text);
    print_cell(result->bytes / warm / 1e9, 1, text);
    print_cell(bandwidth > 0 ? 100 * result->bytes / warm / bandwidth : 0, 1, text);
    print_cell(result->flops / warm / 1e12, 3, text);
    print_cell(peak > 0 ? 100 * result->flops / warm / peak : 0, 1, text);
    kiln_buf_printf(text, " %s |\n", peak > 0 ? result->peak_name : "");
}

void kiln_op_print_table(const struct kiln_op_setup *setup, const struct kiln_op_result *results,
        size_t count, struct kiln_buf *text) {
    kiln_buf_printf(text,
            "%s on %s (%s), %s\n\n"
            "| shape | variant | parity | warm us | cold us | GB/s | %% of memory | TFLOP/s | %% "
            "of peak | peak |\n"
            "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n",
            results[0].slot, setup->dev->id, setup->dev->desc.name, grade_of(setup));
    for (size_t i = 0; i < count; i++) {
        print_row(setup, &results[i], text);
    }
}

// ---- JSON ---------------------------------------------------------------------------------------

static json_t *finite_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *verdict_json(const struct kiln_op_result *result) {
    const struct kiln_op_verdict *v = &result->verdict;
    if (!result->judged) {
        return json_null();
    }
    return json_pack("{s:b, s:o, s:o, s:i, s:s, s:I, s:I, s:o, s:o, s:o, s:s?}", "passed",
            v->passed, "worst", finite_or_null(v->worst), "normalized",
            finite_or_null(v->normalized), "op", (int)v->op, "operand",
            v->operand ? kiln_operand_name(v->operand) : "out", "row", (json_int_t)v->row, "col",
            (json_int_t)v->col, "got", finite_or_null(v->got), "want", finite_or_null(v->want),
            "bound", finite_or_null(v->bound), "why", v->why[0] ? v->why : NULL);
}

static json_t *replayed_json(const struct kiln_op_result *result) {
    const struct kiln_op_replayed *a = &result->against;
    if (!result->replayed) {
        return json_null();
    }
    return json_pack("{s:b, s:I, s:I, s:f, s:f, s:I}", "passed", kiln_op_passed(result), "elements",
            (json_int_t)a->elements, "differ", (json_int_t)a->differ, "largest", a->largest,
            "normalized", a->normalized, "not_finite", (json_int_t)a->not_finite);
}

static json_t *times_json(const struct kiln_op_setup *setup, const struct kiln_op_result *result,
        const struct kiln_op_times *times) {
    double s = times->median, bandwidth = setup->ceilings.bandwidth;
    if (!result->timed || s <= 0) {
        return json_null();
    }
    return json_pack("{s:f, s:f, s:f, s:I, s:o, s:o, s:o, s:o}", "median_us", s * 1e6, "min_us",
            times->low * 1e6, "max_us", times->high * 1e6, "samples", (json_int_t)setup->runs,
            "gb_s", result->bytes > 0 ? json_real(result->bytes / s / 1e9) : json_null(), "tflop_s",
            result->flops > 0 ? json_real(result->flops / s / 1e12) : json_null(), "memory_pct",
            result->bytes > 0 && bandwidth > 0 ? json_real(100 * result->bytes / s / bandwidth)
                                               : json_null(),
            "peak_pct",
            result->flops > 0 && result->peak > 0
                    ? json_real(100 * result->flops / s / result->peak)
                    : json_null());
}

static json_t *lines_json(const char *lines) {
    json_t *array = json_array();
    for (const char *at = lines; array && at && *at; at += strspn(at, "\n")) {
        size_t len = strcspn(at, "\n");
        json_array_append_new(array, json_stringn(at, len));
        at += len;
    }
    return array;
}

static json_t *result_json(const struct kiln_op_setup *setup, const struct kiln_op_result *result) {
    const struct kiln_binding *binding = result->binding;
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:s?, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, "
                     "s:I, s:I, s:s?, s:o}",
            "slot", result->slot, "shape", result->shape, "plugin", binding->plugin->name,
            "variant", binding->variant_name, "geometry", kiln_geometry_json(&binding->geometry),
            "section", binding->section, "source", binding->source, "launches",
            lines_json(result->launches), "declined", lines_json(result->passed_over), "parity",
            verdict_json(result), "captured", replayed_json(result), "warm",
            times_json(setup, result, &result->warm), "cold",
            times_json(setup, result, &result->cold), "flops", result->flops, "bytes",
            result->bytes, "prepared_bytes", (json_int_t)result->prepared_bytes,
            "warp_instructions", (json_int_t)result->instructions, "peak",
            result->peak > 0 ? result->peak_name : NULL, "peak_tflop_s",
            result->peak > 0 ? json_real(result->peak / 1e12) : json_null());
}

struct json_t *kiln_op_json(
        const struct kiln_op_setup *setup, const struct kiln_op_result *results, size_t count) {
    const struct kiln_ceilings *ceilings = &setup->ceilings;
    json_t *array = json_array();
    int passed = 1;
    for (size_t i = 0; array && i < count; i++) {
        json_array_append_new(array, result_json(setup, &results[i]));
        passed &= kiln_op_passed(&results[i]);
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:s?, s:o, s:b, s:o}", "device", setup->dev->id,
            "device_name", setup->dev->desc.name, "grade", grade_of(setup), "memory_gb_s",
            ceilings->bandwidth > 0 ? json_real(ceilings->bandwidth / 1e9) : json_null(),
            "device_file", ceilings->file[0] ? ceilings->file : NULL, "peak_tflop_s",
            setup->peak > 0 ? json_real(setup->peak / 1e12) : json_null(), "passed", passed,
            "results", array);
}
