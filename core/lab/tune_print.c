// tune_print: a sweep as text for people and as JSON.
#include "lab/tune.h"

#include "base/mem.h"
#include "plugin/schema.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

static double in_us(double seconds) {
    return seconds * 1e6;
}

// ---- Text ---------------------------------------------------------------------------------------

static void put_times(const struct kiln_tune_times *times, struct kiln_buf *text) {
    if (times->n > 0) {
        kiln_buf_printf(text, " %.2f (%.2f to %.2f, %d) |", in_us(times->median), in_us(times->low),
                in_us(times->high), times->n);
    } else {
        kiln_buf_puts(text, " - |");
    }
}

static void put_entry(const struct kiln_tune *tune, const struct kiln_tune_problem *problem,
        const struct kiln_tune_entry *entry, struct kiln_buf *text) {
    const struct kiln_tune_result *r = &entry->result;
    int ok = r->state == KILN_TUNE_OK;
    kiln_buf_puts(text, "| ");
    kiln_tune_space_print(&problem->space, entry->candidate, text);
    kiln_buf_printf(text, "%s | %s |", entry == problem->base ? " (bound)" : "",
            kiln_tune_state_name(r->state));
    if (!ok) {
        kiln_buf_printf(text, " %s | | | |\n", r->cause);
        return;
    }
    put_times(&r->warm, text);
    put_times(&r->cold, text);
    const struct kiln_tune_entry *base = problem->base;
    if (base && base->result.state == KILN_TUNE_OK && base != entry) {
        double change =
                kiln_tune_ranked(tune, &base->result)->median / kiln_tune_ranked(tune, r)->median;
        kiln_buf_printf(text, " %+.1f |", 100 * (change - 1));
    } else {
        kiln_buf_puts(text, " |");
    }
    kiln_buf_printf(text, " %.3f |\n", r->parity);
}

static void put_final(const struct kiln_tune_problem *problem, struct kiln_buf *text) {
    kiln_buf_puts(text, "\nfinal, interleaved in one process:\n"
                        "| candidate | us a call | change % | interval % | noise % | verdict |\n"
                        "| --- | ---: | ---: | ---: | ---: | --- |\n");
    for (size_t i = 0; i < problem->n_finalists; i++) {
        const struct kiln_tune_finalist *f = &problem->finalists[i];
        kiln_buf_puts(text, "| ");
        kiln_tune_space_print(&problem->space, f->entry->candidate, text);
        kiln_buf_printf(text, " | %.2f |", in_us(f->seconds));
        if (i == 0) {
            kiln_buf_puts(text, " | | | base |\n");
        } else {
            kiln_buf_printf(text, " %+.2f | %+.2f to %+.2f | %.2f | %s%s |\n", f->effect.median,
                    f->effect.interval.low, f->effect.interval.high, f->effect.noise,
                    kiln_verdict_name(f->effect.verdict), f->tied ? ", tied" : "");
        }
    }
}

static void put_winner(const struct kiln_tune_problem *problem, struct kiln_buf *text) {
    size_t tied = 0;
    for (size_t i = 0; i < problem->n_finalists; i++) {
        tied += problem->finalists[i].tied != 0;
    }
    if (!problem->winner) {
        kiln_buf_puts(text, problem->counts[KILN_TUNE_OK] > 0
                                    ? "no final was played, so nothing wins\n"
                                    : "no candidate came out right and measured\n");
        return;
    }
    kiln_buf_puts(text, problem->kept ? "kept: " : "winner: ");
    kiln_tune_space_print(&problem->space, problem->winner->candidate, text);
    if (problem->kept) {
        kiln_buf_puts(text, ": nothing is faster than what is bound, beyond noise and bar");
    }
    if (tied > 0) {
        kiln_buf_printf(text, "; %zu %s it within the noise", tied,
                tied == 1 ? "finalist ties with" : "finalists tie with");
    }
    kiln_buf_puts(text, "\n");
}

static void put_counts(const struct kiln_tune_problem *problem, struct kiln_buf *text) {
    kiln_buf_printf(
            text, "%zu of %" PRIu64 " candidates:", problem->n_entries, problem->space.count);
    for (int state = 0; state < KILN_TUNE_STATES; state++) {
        if (problem->counts[state] > 0) {
            kiln_buf_printf(text, " %zu %s", problem->counts[state],
                    kiln_tune_state_name((enum kiln_tune_state)state));
        }
    }
    size_t own = problem->n_entries - problem->known - problem->counts[KILN_TUNE_RUNNING];
    kiln_buf_printf(text,
            "%s; %zu measured now, %zu known before, %.1f s (%.2f candidates a second)\n",
            problem->n_entries == 0 ? " the budget ended before the first" : "", problem->measured,
            problem->known, problem->seconds,
            problem->seconds > 0 ? (double)own / problem->seconds : 0);
}

void kiln_tune_print(const struct kiln_tune *tune, struct kiln_buf *text) {
    for (size_t i = 0; i < tune->n_problems; i++) {
        const struct kiln_tune_problem *problem = &tune->problems[i];
        const struct kiln_tune_entry **order = kiln_tune_order(tune, problem);
        kiln_buf_printf(text, "%s%s, %s on %s (%s), %s\n\n", i ? "\n" : "", tune->params->slot,
                problem->name, tune->device.desc.name, tune->id, kiln_tune_grade(tune));
        kiln_buf_puts(text,
                "| candidate | status | warm us (quartiles, samples) | cold us | vs bound % | "
                "error/bound |\n| --- | --- | ---: | ---: | ---: | ---: |\n");
        for (size_t j = 0; order && j < problem->n_entries; j++) {
            put_entry(tune, problem, order[j], text);
        }
        text->failed |= !order;
        kiln_free(order);
        if (problem->n_finalists > 0) {
            put_final(problem, text);
        }
        kiln_buf_puts(text, "\n");
        put_counts(problem, text);
        put_winner(problem, text);
    }
}

// ---- JSON ---------------------------------------------------------------------------------------

static json_t *times_json(const struct kiln_tune_times *times) {
    json_t *samples = json_array();
    if (times->n == 0) {
        json_decref(samples);
        return json_null();
    }
    for (int32_t i = 0; samples && i < times->n; i++) {
        (void)json_array_append_new(samples, json_real(in_us(times->seconds[i])));
    }
    return json_pack("{s:f, s:f, s:f, s:i, s:o}", "median", in_us(times->median), "low",
            in_us(times->low), "high", in_us(times->high), "n", times->n, "samples", samples);
}

static json_t *geometry_json(const struct kiln_tune_entry *entry) {
    json_t *object = json_object();
    for (uint32_t i = 0; object && i < entry->part->n_axes; i++) {
        (void)json_object_set_new(object, entry->part->names[i], json_integer(entry->values[i]));
    }
    return object;
}

static json_t *entry_json(
        const struct kiln_tune_problem *problem, const struct kiln_tune_entry *entry) {
    const struct kiln_tune_result *r = &entry->result;
    return json_pack("{s:s, s:s, s:o, s:s, s:s, s:o, s:o, s:f, s:f, s:f, s:b, s:b, s:s, s:I}",
            "plugin", entry->part->plugin->name, "variant", entry->part->variant->name, "geometry",
            geometry_json(entry), "status", kiln_tune_state_name(r->state), "cause", r->cause,
            "warm_us", times_json(&r->warm), "cold_us", times_json(&r->cold), "parity",
            isfinite(r->parity) ? r->parity : 1e30, "compile_ms", r->compile_ms, "seconds", r->cost,
            "known", entry->known, "bound", entry == problem->base, "device_state", r->device_note,
            "at", (json_int_t)r->at);
}

static json_t *final_json(const struct kiln_tune_problem *problem) {
    json_t *array = json_array();
    for (size_t i = 0; array && i < problem->n_finalists; i++) {
        const struct kiln_tune_finalist *f = &problem->finalists[i];
        const struct kiln_effect *e = &f->effect;
        (void)json_array_append_new(array,
                json_pack("{s:s, s:o, s:f, s:s, s:f, s:[f,f], s:f, s:b}", "variant",
                        f->entry->part->variant->name, "geometry", geometry_json(f->entry), "us",
                        in_us(f->seconds), "verdict", i ? kiln_verdict_name(e->verdict) : "base",
                        "median_pct", e->median, "interval_pct", e->interval.low, e->interval.high,
                        "noise_pct", e->noise, "tied", f->tied));
    }
    return array;
}

static json_t *winner_json(const struct kiln_tune_problem *problem) {
    return problem->winner ? json_pack("{s:s, s:s, s:o, s:b}", "plugin",
                                     problem->winner->part->plugin->name, "variant",
                                     problem->winner->part->variant->name, "geometry",
                                     geometry_json(problem->winner), "kept", problem->kept)
                           : json_null();
}

static json_t *problem_json(const struct kiln_tune *tune, const struct kiln_tune_problem *problem) {
    const struct kiln_tune_entry **order = kiln_tune_order(tune, problem);
    json_t *candidates = json_array(), *counts = json_object();
    for (size_t i = 0; order && candidates && i < problem->n_entries; i++) {
        (void)json_array_append_new(candidates, entry_json(problem, order[i]));
    }
    for (int state = 0; counts && state < KILN_TUNE_STATES; state++) {
        (void)json_object_set_new(counts, kiln_tune_state_name((enum kiln_tune_state)state),
                json_integer((json_int_t)problem->counts[state]));
    }
    kiln_free(order);
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:b, s:o, s:o, s:o, s:o}", "problem", problem->name,
            "space", (json_int_t)problem->space.count, "measured", (json_int_t)problem->measured,
            "known", (json_int_t)problem->known, "seconds", problem->seconds, "cut", problem->cut,
            "counts", counts, "candidates", candidates, "final", final_json(problem), "winner",
            winner_json(problem));
}

json_t *kiln_tune_json(const struct kiln_tune *tune) {
    json_t *problems = json_array();
    for (size_t i = 0; problems && i < tune->n_problems; i++) {
        (void)json_array_append_new(problems, problem_json(tune, &tune->problems[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:o}", "slot",
            tune->params->slot, "device", tune->id, "name", tune->device.desc.name, "target",
            tune->device.desc.target, "driver", tune->driver, "grade", kiln_tune_grade(tune),
            "strategy", kiln_tune_strategy_name(tune->params->strategy), "seed",
            (json_int_t)tune->params->seed, "workers", (json_int_t)tune->workers, "problems",
            problems);
}
