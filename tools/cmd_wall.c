// cmd_wall: where the time of a prefill or decode goes, and what a lever could bring at most.
#include "cmd.h"

#include "common.h"
#include "config/slot.h"
#include "lab/save.h"
#include "lab/wall.h"
#include "save.h"
#include "wall_against.h"
#include "wall_roofline.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_APART = 1 // percent that the slices may miss the wall by
};

struct wall_options {
    struct kiln_common common;
    struct kiln_wall_params params;
    struct kiln_opt_list levers;
    const char *save, *against, *kernels;
    int64_t passes;
};

// A second; 0 of a slice that took no longer than its mark.
static double rate_of(double amount, double seconds) {
    return seconds > 0 ? amount / seconds : 0;
}

// ---- The document -------------------------------------------------------------------------------

static json_t *slice_json(const struct kiln_wall *wall, const struct kiln_wall_slice *s) {
    json_t *json = json_pack("{s:s, s:s, s:f, s:f, s:I, s:f, s:f}", "slot", s->slot, "name",
            s->name, "ms", s->seconds * 1e3, "share_pct", 100 * s->seconds / wall->wall, "steps",
            (json_int_t)s->steps, "gb_s", rate_of(s->bytes, s->seconds) / 1e9, "tflop_s",
            rate_of(s->flops, s->seconds) / 1e12);
    if (json && wall->pace.runs > 0) {
        json_object_set_new(json, "paced_ms", json_real(s->paced * 1e3));
    }
    if (json && kiln_wall_roofline_slice(wall, s, json) != 0) {
        json_decref(json);
        return NULL;
    }
    return json;
}

static json_t *pace_json(const struct kiln_wall_pace *pace) {
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:I, s:I}", "runs", (json_int_t)pace->runs, "ms",
            pace->seconds * 1e3, "rest_ms", pace->rest * 1e3, "sm_mhz", pace->sm_mhz, "watts",
            pace->watts, "capped", (json_int_t)pace->capped, "looks", (json_int_t)pace->looks);
}

static json_t *document(const struct wall_options *o, const struct kiln_session *session,
        const struct kiln_wall *wall) {
    char date[32];
    kiln_save_date(date, sizeof(date));
    json_t *slices = json_array();
    for (size_t i = 0; slices && i < wall->n; i++) {
        json_array_append_new(slices, slice_json(wall, &wall->slices[i]));
    }
    json_t *doc = json_pack(
            "{s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:f, s:s, "
            "s:o}",
            "date", date, "device", session->dev->id, "device_name", session->dev->desc.name,
            "model", kiln_json_text(o->common.model, strlen(o->common.model)), "weight_bytes",
            (json_int_t)kiln_model_weight_bytes(session->model), "n_prompt",
            (json_int_t)o->params.load.n_prompt, "n_gen", (json_int_t)o->params.load.n_gen,
            "n_depth", (json_int_t)o->params.load.depth, "runs", (json_int_t)wall->runs, "wall_ms",
            wall->wall * 1e3, "host_ms", wall->host * 1e3, "instrumenting_ms",
            (wall->traced - wall->wall) * 1e3, "sm_mhz", wall->sm_mhz, "full_sm_mhz",
            wall->full_mhz, "capped", (json_int_t)wall->capped, "mark_us", wall->mark * 1e6,
            "grade", kiln_grade_of(session->dev), "slices", slices);
    if (doc && wall->pace.runs > 0) {
        json_object_set_new(doc, "paced", pace_json(&wall->pace));
    }
    if (doc) {
        json_object_set_new(doc, "roofline", kiln_wall_roofline_json(wall));
    }
    return doc;
}

// ---- Text ---------------------------------------------------------------------------------------

static void print_slice(
        const struct kiln_wall *wall, const struct kiln_wall_slice *s, struct kiln_buf *out) {
    const double memory = rate_of(s->least.memory, s->seconds);
    const double compute = rate_of(s->least.compute, s->seconds);
    kiln_buf_printf(out, "%10.3f ms %6.2f %%  %6" PRId64 " x  %-26s %8.1f GB/s", s->seconds * 1e3,
            100 * s->seconds / wall->wall, s->steps, s->slot, rate_of(s->bytes, s->seconds) / 1e9);
    if (memory > 0) {
        kiln_buf_printf(out, " (%4.1f %% of memory)", 100 * memory);
    }
    kiln_buf_printf(out, " %8.2f TFLOP/s", rate_of(s->flops, s->seconds) / 1e12);
    if (compute > 0) {
        kiln_buf_printf(out, " (%4.1f %% of %s)", 100 * compute, kiln_peak_name(s->precision));
    }
    kiln_buf_printf(out, "  %s\n", s->name);
}

static void print_line(
        const struct kiln_wall *wall, double seconds, const char *what, struct kiln_buf *out) {
    kiln_buf_printf(out, "%10.3f ms %6.2f %%            %s\n", seconds * 1e3,
            100 * seconds / wall->wall, what);
}

static void print_clock(const struct kiln_wall *wall, struct kiln_buf *out) {
    if (wall->sm_mhz > 0) {
        kiln_buf_printf(out, "SM clock %.0f MHz", wall->sm_mhz);
        if (wall->full_mhz > 0) {
            kiln_buf_printf(out, " of %.0f", wall->full_mhz);
        }
        kiln_buf_printf(out, ", at the card's power limit in %" PRId64 " of %" PRId64 " looks\n",
                wall->capped, 2 * wall->runs);
    }
}

// The slices come from runs with marks, the wall from those without.
static void warn_if_apart(const struct kiln_wall *wall) {
    const double apart = 100 * (wall->traced / wall->wall - 1);
    if (fabs(apart) > MOST_APART) {
        fprintf(stderr,
                "runs with marks took %+.1f %% of the wall beside what a mark costs (steps queued "
                "one by "
                "one, or a machine that is not quiet): shares and levers are off by as much, more "
                "runs (-r) narrow it\n",
                apart);
    }
}

// Beside the wall, no part of it.
static void print_paced(const struct kiln_wall *wall, struct kiln_buf *out) {
    const struct kiln_wall_pace *pace = &wall->pace;
    kiln_buf_printf(out,
            "\npaced, measured, mean of %" PRId64 " runs: every step alone, behind it rest of %d "
            "times as long, %.0f ms at least\n",
            pace->runs, KILN_WALL_REST_TIMES, KILN_WALL_REST_LEAST * 1e3);
    kiln_buf_puts(out, "  paced ms    wall ms  wall / paced\n");
    for (size_t i = 0; i < wall->n; i++) {
        const struct kiln_wall_slice *s = &wall->slices[i];
        kiln_buf_printf(out, "%10.3f %10.3f %13.3f  %s  %s\n", s->paced * 1e3, s->seconds * 1e3,
                rate_of(s->seconds, s->paced), s->slot, s->name);
    }
    kiln_buf_printf(out, "%10.3f %10.3f %13.3f  all slices\n", pace->seconds * 1e3,
            (wall->traced - wall->host) * 1e3, rate_of(wall->traced - wall->host, pace->seconds));
    if (pace->sm_mhz > 0) {
        kiln_buf_printf(out, "SM clock %.0f MHz", pace->sm_mhz);
        if (pace->watts > 0) {
            kiln_buf_printf(out, ", %.0f W", pace->watts);
        }
        kiln_buf_printf(out, ", at the card's power limit in %" PRId64 " of %" PRId64 " looks\n",
                pace->capped, pace->looks);
    }
}

static enum kiln_status print_wall(const struct wall_options *o, const struct kiln_session *session,
        const struct kiln_wall *wall, struct kiln_err *err) {
    struct kiln_buf out = {0};
    int64_t n = kiln_workload_tokens(&o->params.load);
    kiln_buf_printf(&out,
            "%s of %" PRId64 " tokens at depth %" PRId64 " on %s, measured, mean of %" PRId64
            " runs: %.1f t/s\n",
            o->params.load.n_prompt > 0 ? "prefill" : "decode", n, o->params.load.depth,
            session->dev->id, wall->runs, (double)n / wall->wall);
    for (size_t i = 0; i < wall->n; i++) {
        print_slice(wall, &wall->slices[i], &out);
    }
    print_line(wall, wall->host, "host, and between the parts of a pass", &out);
    print_line(wall, wall->wall - wall->traced, "what runs with marks take beside, taken off again",
            &out);
    print_line(wall, wall->wall, "wall", &out);
    print_clock(wall, &out);
    if (wall->pace.runs > 0) {
        print_paced(wall, &out);
    }
    kiln_wall_roofline_print(wall, session->dev->desc.name, &out);
    return kiln_out_buf(&out, err);
}

// ---- Levers -------------------------------------------------------------------------------------

struct lever {
    char slot[64];
    double percent; // of the slot's time; that to its roofline is known once it is measured
    int roofline;
};

// "attention.prefill=-11%" or "attention.prefill=roofline".
static enum kiln_status read_lever(const char *text, struct lever *lever, struct kiln_err *err) {
    const char *equals = strchr(text, '=');
    char *end = NULL;
    *lever = (struct lever){.percent = equals ? strtod(equals + 1, &end) : 0,
            .roofline = equals && strcmp(equals + 1, "roofline") == 0};
    const int number = equals && end != equals + 1 && (strcmp(end, "%") == 0 || !*end) &&
                       lever->percent >= -100 && lever->percent <= 1000;
    if (!equals || equals == text || (size_t)(equals - text) >= sizeof(lever->slot) ||
            (!number && !lever->roofline)) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--lever takes SLOT=PERCENT from -100 to 1000, such as attention.prefill=-11%%, or "
                "SLOT=roofline, not '%s'",
                text);
    }
    memcpy(lever->slot, text, (size_t)(equals - text));
    return KILN_STATUS_OK;
}

static enum kiln_status no_slice(
        const struct kiln_wall *wall, const char *slot, struct kiln_err *err) {
    struct kiln_buf names = {0};
    for (size_t i = 0; i < wall->n; i++) {
        if (!names.data || !strstr(names.data, wall->slices[i].slot)) {
            kiln_buf_printf(&names, "%s%s", i > 0 ? ", " : "", wall->slices[i].slot);
        }
    }
    kiln_err_set(err, KILN_STATUS_USAGE, "--lever %s: no slice of this wall; there are %s", slot,
            names.data ? names.data : "none");
    kiln_buf_finish(&names);
    return KILN_STATUS_USAGE;
}

static json_t *lever_json(const struct lever *lever, double share, double ceiling) {
    json_t *json = json_pack("{s:s, s:f, s:f, s:f, s:s}", "slot", lever->slot, "share_pct", share,
            "magnitude_pct", lever->percent, "ceiling_pct", ceiling, "grade", "derived");
    if (json && lever->roofline) {
        json_object_set_new(json, "roofline", json_true());
    }
    return json;
}

static enum kiln_status add_lever(const struct wall_options *o, const struct kiln_wall *wall,
        struct lever *lever, json_t *levers, struct kiln_err *err) {
    double share = 100 * kiln_wall_slot(wall, lever->slot) / wall->wall;
    if (share == 0) {
        return no_slice(wall, lever->slot, err);
    }
    if (lever->roofline) {
        lever->percent = kiln_wall_to_roofline(wall, lever->slot);
        if (lever->percent > 0) {
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "--lever %s=roofline: no ceiling of this device is known, or no work of the "
                    "slot; a percentage can be given",
                    lever->slot);
        }
    }
    double ceiling = kiln_wall_lever(wall, lever->slot, lever->percent);
    if (json_array_append_new(levers, lever_json(lever, share, ceiling)) != 0) {
        return kiln_err_nomem(err, "the JSON output");
    }
    if (o->common.json) {
        return KILN_STATUS_OK;
    }
    struct kiln_buf out = {0};
    kiln_buf_printf(&out,
            "lever %s %s%+.1f %%: %.2f %% of the wall, so at most %+.2f %% of the wall's time "
            "(derived)\n",
            lever->slot, lever->roofline ? "to its roofline, " : "", lever->percent, share,
            ceiling);
    return kiln_out_buf(&out, err);
}

static enum kiln_status add_levers(const struct wall_options *o, const struct kiln_wall *wall,
        json_t *levers, struct kiln_err *err) {
    for (size_t i = 0; i < o->levers.count; i++) {
        struct lever lever;
        KILN_TRY(read_lever(o->levers.items[i], &lever, err));
        KILN_TRY(add_lever(o, wall, &lever, levers, err));
    }
    return KILN_STATUS_OK;
}

// ---- The command --------------------------------------------------------------------------------

static enum kiln_status show(const struct wall_options *o, const struct kiln_session *session,
        const struct kiln_wall *wall, json_t *kept, const struct kiln_wall_other *other,
        struct kiln_err *err) {
    json_t *levers = json_array(), *doc = json_object_get(kept, "result");
    if (json_object_set_new(doc, "levers", levers) != 0) {
        return kiln_err_nomem(err, "the JSON output");
    }
    if (!o->common.json) {
        KILN_TRY(print_wall(o, session, wall, err));
    }
    warn_if_apart(wall);
    KILN_TRY(add_levers(o, wall, levers, err));
    if (other) {
        KILN_TRY(kiln_wall_compare(other, wall, kept, o->common.json, err));
    }
    KILN_TRY(kiln_save_keep(o->save, kept, doc, err));
    return o->common.json ? kiln_out_json(json_incref(doc), err) : KILN_STATUS_OK;
}

static enum kiln_status measure(
        struct wall_options *o, const struct kiln_wall_other *other, struct kiln_err *err) {
    int64_t n = kiln_workload_tokens(&o->params.load);
    if (o->common.ctx == 0) {
        o->common.ctx = o->params.load.depth + n < 16 ? 16 : o->params.load.depth + n;
    }
    struct kiln_run run;
    KILN_TRY(kiln_run_open(&run, &o->common, err));
    struct kiln_wall wall;
    o->params.registry = run.registry;
    enum kiln_status status = kiln_wall_run(&run.session, &o->params, &wall, err);
    if (status == KILN_STATUS_OK) {
        json_t *kept = NULL;
        status = kiln_save_of("wall", run.session.dev, run.registry, run.config, NULL,
                document(o, &run.session, &wall), &kept, err);
        if (status == KILN_STATUS_OK) {
            status = show(o, &run.session, &wall, kept, other, err);
        }
        json_decref(kept);
    }
    kiln_wall_finish(&wall);
    kiln_run_close(&run);
    return status;
}

static enum kiln_status check(const struct wall_options *o, struct kiln_err *err) {
    struct lever lever;
    for (size_t i = 0; i < o->levers.count; i++) {
        KILN_TRY(read_lever(o->levers.items[i], &lever, err));
        if (kiln_slot_check(lever.slot, 0, err) != KILN_STATUS_OK) {
            kiln_err_prefix(err, "--lever: ");
            return KILN_STATUS_USAGE;
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct wall_options o = {.params = {.load = {.n_prompt = 512}, .runs = 5}};
    kiln_common_init(&o.common);
    int done;
    const struct kiln_opt table[] = {
            KILN_COMMON_MODEL(&o.common),
            {"-p", NULL, KILN_OPT_INT, &o.params.load.n_prompt, "N", "prefill of N tokens (512)", 1,
                    1000000},
            {"-n", NULL, KILN_OPT_INT, &o.params.load.n_gen, "N", "decode of N tokens instead", 1,
                    1000000},
            {"-d", NULL, KILN_OPT_INT, &o.params.load.depth, "D",
                    "tokens in the context before (0)", 0, 1000000},
            {"-r", NULL, KILN_OPT_INT, &o.params.runs, "R", "runs with and without marks (5)", 1,
                    10000},
            {"--paced", NULL, KILN_OPT_FLAG, &o.params.paced, NULL,
                    "as many runs with a rest behind each step, too: the slices at full clock", 0,
                    0},
            {"--lever", NULL, KILN_OPT_LIST, &o.levers, "SLOT=PCT",
                    "what a change of a slot's time brings at most: attention.prefill=-11%, or "
                    "=roofline: down to its bound",
                    0, 0},
            KILN_SAVE_OPTION(&o.save),
            {"--against", NULL, KILN_OPT_STRING, (void *)&o.against, "FILE",
                    "compare with a result kept before, or with a profile of nsys or ncu", 0, 0},
            {"--kernels", NULL, KILN_OPT_STRING, (void *)&o.kernels, "FILE",
                    "INI that gives a profile's kernels slots (llama.cpp; kiln: its own)", 0, 0},
            {"--passes", NULL, KILN_OPT_INT, &o.passes, "N",
                    "how often the profile ran this workload (1)", 1, 1000000},
            KILN_COMMON_ENGINE(&o.common),
            KILN_COMMON_CONFIG(&o.common),
            KILN_COMMON_OUTPUT(&o.common),
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(kiln_save_check(o.save, err));
    if (o.params.load.n_gen > 0) {
        o.params.load.n_prompt = 0;
    }
    KILN_TRY(check(&o, err));
    struct kiln_wall_other *other = NULL;
    if (!o.against && (o.kernels || o.passes)) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--kernels and --passes are for a profile, and --against names none");
    }
    if (o.against) {
        KILN_TRY(kiln_wall_other_read(o.against, o.kernels, o.passes, &other, err));
    }
    enum kiln_status status = measure(&o, other, err);
    kiln_wall_other_destroy(other);
    return status;
}

const struct kiln_cmd kiln_cmd_wall = {
        .name = "wall",
        .summary = "the time of a prefill or decode by slice, and a lever's ceiling",
        .usage = "-m MODEL [-p 512 | -n 128] [-d 0] [--lever SLOT=-11%] [--save FILE] "
                 "[--against FILE]",
        .example = "kiln wall -m model.gguf -p 3325 --lever attention.prefill=-11%",
        .run = run,
};
