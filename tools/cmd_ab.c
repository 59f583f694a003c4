// cmd_ab: interleaved A/B of two configs on the whole wall.
#include "cmd.h"

#include "ab_history.h"
#include "base/mem.h"
#include "common.h"
#include "lab/ab.h"
#include "save.h"
#include "sweep.h"
#include "twin_run.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

struct ab_options {
    struct kiln_common common;
    const char *files[KILN_SIDES];
    struct kiln_sweep_texts texts;
    struct kiln_ab_params params;
    int history;
    struct kiln_opt_list rounds; // of the history behind the first two
    const char *save;
};

// What the rows of a sweep add up to.
struct tally {
    json_t *rows;
    json_t *origin; // the envelope to keep the result in, or NULL
    int64_t ubatch;
    size_t count, landed, reverted;
};

// ---- Output -------------------------------------------------------------------------------------

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

static json_t *row_json(const struct kiln_twin *twin, const struct ab_options *o,
        const struct kiln_ab *ab, int64_t ubatch) {
    const struct kiln_effect *e = &ab->effect;
    json_t *pairs = json_array();
    for (size_t i = 0; pairs && i < ab->n; i++) {
        json_array_append_new(pairs, pair_json(&ab->pairs[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:[f,f], s:f, s:[f,f], "
                     "s:f, s:I, s:I, s:s, s:o}",
            "verdict", kiln_verdict_name(e->verdict), "device", twin->dev->id, "model",
            twin->model->arch->name, "n_prompt", (json_int_t)o->params.load.n_prompt, "n_gen",
            (json_int_t)o->params.load.n_gen, "n_depth", (json_int_t)o->params.load.depth,
            "n_ubatch", (json_int_t)ubatch, "base_ts", ab->base_rate, "change_ts", ab->change_rate,
            "median_pct", e->median, "interval_pct", e->interval.low, e->interval.high, "noise_pct",
            e->noise, "control_pct", e->control.low, e->control.high, "bar_pct", o->params.bar,
            "looks", (json_int_t)ab->looks, "disturbed", (json_int_t)ab->disturbed, "grade",
            kiln_grade_of(twin->dev), "pairs", pairs);
}

static enum kiln_status print_head(const struct kiln_twin *twin, struct kiln_err *err) {
    struct kiln_buf out = {0};
    kiln_buf_printf(&out,
            "%s on %s, base against change, %s\n\n"
            "| test | ubatch | base t/s | change t/s | change %% | interval %% | noise %% | pairs "
            "| "
            "verdict |\n"
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n",
            twin->model->arch->name, twin->dev->id, kiln_grade_of(twin->dev));
    return kiln_out_buf(&out, err);
}

static enum kiln_status print_row(const struct ab_options *o, const struct kiln_ab *ab,
        int64_t ubatch, struct kiln_err *err) {
    char name[64];
    kiln_workload_name(&o->params.load, name, sizeof(name));
    const struct kiln_effect *e = &ab->effect;
    struct kiln_buf out = {0};
    kiln_buf_printf(&out,
            "| %s | %" PRId64 " | %.2f | %.2f | %+.2f | %+.2f to %+.2f | %.2f | %zu | %s |\n", name,
            ubatch, ab->base_rate, ab->change_rate, e->median, e->interval.low, e->interval.high,
            e->noise, ab->n, kiln_verdict_name(e->verdict));
    KILN_TRY(kiln_out_buf(&out, err));
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
    return KILN_STATUS_OK;
}

// ---- The sweep ----------------------------------------------------------------------------------

// A twin and where its rows go.
struct place {
    struct ab_options *options;
    struct kiln_twin *twin;
    struct tally *tally;
};

static enum kiln_status run_row(void *arg, const struct kiln_workload *load, struct kiln_err *err) {
    const struct place *place = arg;
    struct ab_options *o = place->options;
    struct tally *tally = place->tally;
    struct kiln_ab ab;
    o->params.load = *load;
    enum kiln_status status = kiln_ab_run(place->twin, &o->params, &ab, err);
    if (status == KILN_STATUS_OK) {
        tally->count++;
        tally->landed += ab.effect.verdict == KILN_VERDICT_LAND;
        tally->reverted += ab.effect.verdict == KILN_VERDICT_REVERT;
        if (json_array_append_new(tally->rows, row_json(place->twin, o, &ab, tally->ubatch)) != 0) {
            status = kiln_err_nomem(err, "the JSON output");
        } else if (!o->common.json) {
            status = print_row(o, &ab, tally->ubatch, err);
        }
    }
    kiln_ab_finish(&ab);
    return status;
}

static enum kiln_status run_sweep(struct ab_options *o, const struct kiln_sweep *sweep,
        struct tally *tally, struct kiln_err *err) {
    if (o->common.ctx == 0) {
        o->common.ctx = kiln_sweep_ctx(sweep);
    }
    for (size_t i = 0; i < sweep->ubatches.count; i++) {
        struct kiln_twin_run run;
        o->common.ubatch = sweep->ubatches.values[i];
        KILN_TRY(kiln_twin_run_open(&run, &o->common, o->files, err));
        tally->ubatch = kiln_engine_ubatch(run.twin.engine[KILN_SIDE_CHANGE]);
        struct place place = {.options = o, .twin = &run.twin, .tally = tally};
        enum kiln_status status = KILN_STATUS_OK;
        if (i == 0) {
            status = kiln_twin_run_origin(&run, "ab", o->save, &tally->origin, err);
        }
        if (status == KILN_STATUS_OK && !o->common.json && i == 0) {
            status = print_head(&run.twin, err);
        }
        if (status == KILN_STATUS_OK) {
            status = kiln_sweep_each(sweep, run_row, &place, err);
        }
        kiln_twin_run_close(&run);
        KILN_TRY(status);
    }
    return KILN_STATUS_OK;
}

// The first row's fields at the top, so that a single comparison reads without its list. NULL: out
// of memory.
static json_t *document(const struct tally *tally) {
    json_t *first = json_array_get(tally->rows, 0);
    json_t *doc = first ? json_copy(first) : json_object();
    if (!doc || json_object_set(doc, "rows", tally->rows) != 0) {
        json_decref(doc);
        return NULL;
    }
    return doc;
}

static enum kiln_status conclude(
        const struct ab_options *o, const struct tally *tally, struct kiln_err *err) {
    if (tally->count == 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "nothing to compare: -p and -n are both 0");
    }
    json_t *doc = document(tally);
    enum kiln_status status = kiln_save_keep(o->save, tally->origin, doc, err);
    if (status == KILN_STATUS_OK && o->common.json) {
        status = kiln_out_json(json_incref(doc), err);
    }
    json_decref(doc);
    KILN_TRY(status);
    if (tally->landed == tally->count) {
        return KILN_STATUS_OK;
    }
    return kiln_err_set(err, KILN_STATUS_CHECK,
            "the bar of %+.2f %% was not met: of %zu comparisons %zu LAND, %zu REVERT, %zu NEUTRAL",
            o->params.bar, tally->count, tally->landed, tally->reverted,
            tally->count - tally->landed - tally->reverted);
}

static enum kiln_status compare(struct ab_options *o, struct kiln_err *err) {
    struct kiln_sweep sweep;
    KILN_TRY(kiln_sweep_read(&sweep, &o->texts, 0, err));
    struct tally tally = {.rows = json_array()};
    enum kiln_status status =
            tally.rows ? run_sweep(o, &sweep, &tally, err) : kiln_err_nomem(err, "the JSON output");
    if (status == KILN_STATUS_OK) {
        status = conclude(o, &tally, err);
    }
    json_decref(tally.rows);
    json_decref(tally.origin);
    return status;
}

static enum kiln_status replay(struct ab_options *o, struct kiln_err *err) {
    struct kiln_ab_history history = {.common = o->common,
            .prompts = o->texts.prompts ? o->texts.prompts : "3325",
            .ubatches = o->texts.ubatches,
            .params = o->params};
    if (o->save) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--history has many configurations and --save keeps one; run the round by its "
                "files");
    }
    for (int side = 0; side < 2 && o->files[side]; side++) {
        history.rounds.items[history.rounds.count++] = o->files[side];
    }
    for (size_t i = 0; i < o->rounds.count; i++) {
        if (history.rounds.count ==
                sizeof(history.rounds.items) / sizeof(history.rounds.items[0])) {
            return kiln_err_set(err, KILN_STATUS_USAGE, "too many rounds");
        }
        history.rounds.items[history.rounds.count++] = o->rounds.items[i];
    }
    return kiln_ab_history_run(&history, err);
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    static char rounds_text[] = "rounds";
    struct ab_options o = {.texts = {.gens = "0", .depths = "0", .ubatches = "0"},
            .params = {.rounds = 15,
                    .bar = 1.5,
                    .alpha = 0.001,
                    .soak = 8,
                    .stop = kiln_interrupted,
                    .progress = kiln_progress_bar(),
                    .progress_arg = rounds_text}};
    kiln_common_init(&o.common);
    int done;
    const struct kiln_opt table[] = {
            KILN_TWIN_FILES(o.files),
            {"ROUND", NULL, KILN_OPT_REST, &o.rounds, NULL,
                    "with --history: rounds, all by default", 0, 0},
            {"--history", NULL, KILN_OPT_FLAG, &o.history, NULL,
                    "run the campaign's rounds again: r46 r48 …, -p 3325 by default", 0, 0},
            KILN_COMMON_MODEL(&o.common),
            KILN_SWEEP_OPTIONS(&o.texts, "512", "0", "0: from the config"),
            {"-r", NULL, KILN_OPT_INT, &o.params.rounds, "R", "rounds of base, change, base (15)",
                    KILN_AB_MIN_ROUNDS, 10000},
            {"--bar", NULL, KILN_OPT_NUMBER, &o.params.bar, "PCT",
                    "gain that a change must bring to land (1.5)", -100, 1000},
            {"--soak", NULL, KILN_OPT_NUMBER, &o.params.soak, "S",
                    "uncounted runs first while a card is at its power limit, at most (8 s)", 0,
                    600},
            {"--rest", NULL, KILN_OPT_INT, &o.params.rest_ms, "MS",
                    "rest before each run, so that a card leaves its power limit (0)", 0, 10000},
            {"--until-decided", NULL, KILN_OPT_FLAG, &o.params.until_decided, NULL,
                    "stop at the first look that decides; -r is the most rounds", 0, 0},
            {"-t", "--threads", KILN_OPT_INT, &o.common.threads, "N", "CPU threads", 1, 1024},
            {"-c", "--ctx", KILN_OPT_INT, &o.common.ctx, "N", "context (what the tests need)", 16,
                    1048576},
            {"--device", NULL, KILN_OPT_STRING, &o.common.device, "D",
                    "cpu, cuda[:N], sim[:sm_XX] or auto", 0, 0},
            KILN_SAVE_OPTION(&o.save),
            KILN_COMMON_CONFIG(&o.common),
            KILN_COMMON_OUTPUT(&o.common),
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(kiln_save_check(o.save, err));
    if (o.history) {
        return replay(&o, err);
    }
    if (o.rounds.count > 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "kiln ab: unexpected argument '%s'; two INI files are compared", o.rounds.items[0]);
    }
    o.texts.prompts = o.texts.prompts ? o.texts.prompts : "512";
    return compare(&o, err);
}

const struct kiln_cmd kiln_cmd_ab = {
        .name = "ab",
        .summary = "is a change faster on the whole wall, beyond noise?",
        .usage = "BASE.ini CHANGE.ini -m MODEL [-p 512,3325] [-n 128] [-r 15] [--bar 1.5] "
                 "[--json], or "
                 "--history [r46 …] -m MODEL",
        .example = "kiln ab base.ini change.ini -m model.gguf -p 512 -d 0,2048",
        .run = run,
};
