// ab_print: tables and documents of kiln ab.
#include "lab/ab_print.h"

#include "lab/save.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

// ---- JSON ---------------------------------------------------------------------------------------

static json_t *known(int32_t value) {
    return value < 0 ? json_null() : json_integer(value);
}

static json_t *pair_json(const struct kiln_ab_pair *pair) {
    const struct kiln_health *health = &pair->health;
    return json_pack("{s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:I, s:b}", "base_s", pair->base,
            "change_s", pair->change, "pct", pair->pct, "control_pct", pair->control_pct, "sm_mhz",
            known(health->sm_mhz), "memory_mhz", known(health->memory_mhz), "celsius",
            known(health->celsius), "watts",
            health->watts < 0 ? json_null() : json_real(health->watts), "throttle",
            (json_int_t)health->throttle, "disturbed", pair->disturbed);
}

// pct is null where a side has no kernel.
static json_t *times_json(
        const struct kiln_ab_kernels *kernels, const double seconds[KILN_AB_TWO]) {
    const struct kiln_ab_share share = kiln_ab_share_of(kernels, seconds);
    const double base = seconds[KILN_SIDE_BASE], change = seconds[KILN_SIDE_CHANGE];
    return json_pack("{s:f, s:f, s:o, s:f, s:f}", "base_ms", 1e3 * base, "change_ms", 1e3 * change,
            "pct", base > 0 && change > 0 ? json_real(share.pct) : json_null(), "share_pct",
            share.share, "predicted_pct", share.predicted);
}

static json_t *slot_json(const struct kiln_ab_kernels *kernels, const struct kiln_ab_slot *slot) {
    json_t *json = times_json(kernels, slot->seconds);
    if (!json || json_object_set_new(json, "slot", json_string(slot->slot)) != 0 ||
            json_object_set_new(json, "base", json_string(slot->names[KILN_SIDE_BASE])) != 0 ||
            json_object_set_new(json, "change", json_string(slot->names[KILN_SIDE_CHANGE])) != 0) {
        json_decref(json);
        return NULL;
    }
    return json;
}

// The wall's own change is the row's median_pct.
static json_t *kernels_json(const struct kiln_ab_kernels *kernels) {
    json_t *slots = json_array();
    for (size_t i = 0; i < kernels->n; i++) {
        if (json_array_append_new(slots, slot_json(kernels, &kernels->slots[i])) != 0) {
            json_decref(slots);
            return NULL;
        }
    }
    double seconds[KILN_AB_TWO];
    kiln_ab_kernels_sum(kernels, seconds);
    return json_pack("{s:I, s:o, s:o}", "runs", (json_int_t)kernels->runs, "slots", slots, "all",
            kernels->n > 0 ? times_json(kernels, seconds) : json_null());
}

json_t *kiln_ab_row_json(const struct kiln_ab_row *row) {
    const struct kiln_ab *ab = row->ab;
    const struct kiln_effect *e = &ab->effect;
    const struct kiln_workload *load = &row->params->load;
    json_t *pairs = json_array();
    for (size_t i = 0; pairs && i < ab->n; i++) {
        json_array_append_new(pairs, pair_json(&ab->pairs[i]));
    }
    return json_pack(
            "{s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:[f,f], s:f, s:[f,f], "
            "s:f, s:I, s:I, s:s, s:o, s:o}",
            "verdict", kiln_verdict_name(e->verdict), "device", row->device, "model", row->model,
            "model_file", kiln_json_text(row->model_file, strlen(row->model_file)), "n_prompt",
            (json_int_t)load->n_prompt, "n_gen", (json_int_t)load->n_gen, "n_depth",
            (json_int_t)load->depth, "n_ubatch", (json_int_t)row->ubatch, "base_ts", ab->base_rate,
            "change_ts", ab->change_rate, "median_pct", e->median, "interval_pct", e->interval.low,
            e->interval.high, "noise_pct", e->noise, "control_pct", e->control.low, e->control.high,
            "bar_pct", row->params->bar, "looks", (json_int_t)ab->looks, "disturbed",
            (json_int_t)ab->disturbed, "grade", row->grade, "pairs", pairs, "kernels",
            kernels_json(&ab->kernels));
}

// ---- The table ----------------------------------------------------------------------------------

void kiln_ab_print_head(
        const char *model, const char *device, const char *grade, struct kiln_buf *out) {
    kiln_buf_printf(out,
            "%s on %s, base against change, %s\n\n"
            "| test | ubatch | base t/s | change t/s | change %% | interval %% | noise %% | pairs "
            "| "
            "verdict |\n"
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n",
            model, device, grade);
}

void kiln_ab_print_row(const struct kiln_ab_row *row, struct kiln_buf *out) {
    char name[64];
    const struct kiln_ab *ab = row->ab;
    const struct kiln_effect *e = &ab->effect;
    kiln_workload_name(&row->params->load, name, sizeof(name));
    kiln_buf_printf(out,
            "| %s | %" PRId64 " | %.2f | %.2f | %+.2f | %+.2f to %+.2f | %.2f | %zu | %s |\n", name,
            row->ubatch, ab->base_rate, ab->change_rate, e->median, e->interval.low,
            e->interval.high, e->noise, ab->n, kiln_verdict_name(e->verdict));
}

void kiln_ab_print_warnings(const struct kiln_ab_row *row) {
    char name[64];
    const struct kiln_ab *ab = row->ab;
    const struct kiln_effect *e = &ab->effect;
    kiln_workload_name(&row->params->load, name, sizeof(name));
    if (e->control_off) {
        fprintf(stderr,
                "%s: the base differs from itself by %+.2f to %+.2f %%: something else changes the "
                "time here, so only a change of five times the noise is judged\n",
                name, e->control.low, e->control.high);
    }
    if (ab->disturbed > 0) {
        fprintf(stderr, "%s: %zu of %zu rounds were disturbed (clock moved or was held down)\n",
                name, ab->disturbed, ab->n);
    }
    if (ab->capped > 0) {
        fprintf(stderr,
                "%s: %zu of %zu rounds ran at the card's power limit, where the clock follows the "
                "load; more rounds (-r) narrow the interval\n",
                name, ab->capped, ab->n);
    }
}

// ---- Kernels beside the wall --------------------------------------------------------------------

void kiln_ab_print_kernels_head(struct kiln_buf *out) {
    kiln_buf_puts(out, "\nKernels of the slots that differ, between the rounds, and what their "
                       "share of the base's wall makes of it:\n\n"
                       "| test | ubatch | slot | base ms | change ms | kernel % | share % "
                       "| predicted wall % | wall % | runs | base kernel | change kernel |\n"
                       "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- "
                       "| --- |\n");
}

static void print_times(const struct kiln_ab_row *row, const char *slot,
        const double seconds[KILN_AB_TWO], const char *base, const char *change,
        struct kiln_buf *out) {
    char name[64];
    const struct kiln_ab_kernels *kernels = &row->ab->kernels;
    const struct kiln_ab_share share = kiln_ab_share_of(kernels, seconds);
    kiln_workload_name(&row->params->load, name, sizeof(name));
    kiln_buf_printf(out, "| %s | %" PRId64 " | %s | %.3f | %.3f |", name, row->ubatch, slot,
            1e3 * seconds[KILN_SIDE_BASE], 1e3 * seconds[KILN_SIDE_CHANGE]);
    if (seconds[KILN_SIDE_BASE] > 0 && seconds[KILN_SIDE_CHANGE] > 0) {
        kiln_buf_printf(out, " %+.2f |", share.pct);
    } else {
        kiln_buf_puts(out, " |");
    }
    kiln_buf_printf(out, " %.2f | %+.2f | %+.2f | %" PRId64 " | %s | %s |\n", share.share,
            share.predicted, row->ab->effect.median, kernels->runs, base, change);
}

void kiln_ab_print_kernels(const struct kiln_ab_row *row, struct kiln_buf *out) {
    const struct kiln_ab_kernels *kernels = &row->ab->kernels;
    for (size_t i = 0; i < kernels->n; i++) {
        const struct kiln_ab_slot *slot = &kernels->slots[i];
        print_times(row, slot->slot, slot->seconds, slot->names[KILN_SIDE_BASE],
                slot->names[KILN_SIDE_CHANGE], out);
    }
    if (kernels->n > 1) {
        double seconds[KILN_AB_TWO];
        kiln_ab_kernels_sum(kernels, seconds);
        print_times(row, "all of them", seconds, "", "", out);
    }
}

// ---- Pairs --------------------------------------------------------------------------------------

static void print_known(int is_known, double value, struct kiln_buf *out) {
    if (is_known) {
        kiln_buf_printf(out, " %.0f |", value);
    } else {
        kiln_buf_puts(out, " - |");
    }
}

void kiln_ab_print_pairs(const struct kiln_ab_row *row, struct kiln_buf *out) {
    char name[64];
    const double tokens = (double)kiln_workload_tokens(&row->params->load);
    kiln_workload_name(&row->params->load, name, sizeof(name));
    kiln_buf_printf(out,
            "\nPairs of %s, ubatch %" PRId64 ":\n\n"
            "| pair | base t/s | change t/s | change %% | base again %% | SM MHz | °C | W | |\n"
            "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n",
            name, row->ubatch);
    for (size_t i = 0; i < row->ab->n; i++) {
        const struct kiln_ab_pair *pair = &row->ab->pairs[i];
        const struct kiln_health *health = &pair->health;
        kiln_buf_printf(out, "| %zu | %.2f | %.2f | %+.2f | %+.2f |", i + 1, tokens / pair->base,
                tokens / pair->change, pair->pct, pair->control_pct);
        print_known(health->sm_mhz >= 0, health->sm_mhz, out);
        print_known(health->celsius >= 0, health->celsius, out);
        print_known(health->watts >= 0, health->watts, out);
        kiln_buf_printf(out, " %s%s |\n", pair->disturbed ? "disturbed" : "",
                !kiln_health_capped(health) ? ""
                : pair->disturbed           ? ", power limit"
                                            : "power limit");
    }
}
