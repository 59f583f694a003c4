// ab_history: walks the campaign's rounds: for each the wall by slice of both sides (what became of
// the mechanism) and the interleaved A/B (what became of the wall), beside the campaign's figures.
#include "ab_history.h"

#include "base/mem.h"
#include "base/nearest.h"
#include "lab/ledger.h"
#include "lab/wall.h"
#include "record.h"
#include "twin_run.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WALL_RUNS = 3
};

// One round here.
struct outcome {
    char reason[512]; // why there are no figures; "" where there are
    struct kiln_ab ab;
    int walls;           // the two walls were taken
    double share;        // of the round's slots in the base's wall, percent
    double kernel;       // change of their time, percent; negative: faster
    char kernels[2][96]; // what ran in the round's first slot
};

struct walk {
    struct kiln_ab_history *history;
    json_t *campaign; // its text
    json_t *rows;
    char device[96];
    size_t ran;
    char reason[512]; // of the first round that did not run
};

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

// A figure of the round by its id; NULL when the campaign's records do not tell it.
static const json_t *figure_of(const json_t *round, const char *id) {
    size_t i;
    const json_t *figure;
    json_array_foreach(json_object_get(round, "figures"), i, figure) {
        if (strcmp(text_of(figure, "id"), id) == 0) {
            return json_object_get(figure, "value");
        }
    }
    return NULL;
}

// ---- One round ----------------------------------------------------------------------------------

static int is_slot_of(const json_t *round, const char *slot) {
    size_t i;
    const json_t *one;
    json_array_foreach(json_object_get(round, "slots"), i, one) {
        if (strcmp(json_string_value(one), slot) == 0) {
            return 1;
        }
    }
    return 0;
}

static double slots_seconds(const json_t *round, const struct kiln_wall *wall) {
    double seconds = 0;
    for (size_t i = 0; i < wall->n; i++) {
        seconds += is_slot_of(round, wall->slices[i].slot) ? wall->slices[i].seconds : 0;
    }
    return seconds;
}

static const struct kiln_wall_slice *first_slice(
        const json_t *round, const struct kiln_wall *wall) {
    for (size_t i = 0; i < wall->n; i++) {
        if (is_slot_of(round, wall->slices[i].slot)) {
            return &wall->slices[i];
        }
    }
    return NULL;
}

static int has_slice(const struct kiln_wall *wall, const struct kiln_wall_slice *slice) {
    for (size_t i = 0; i < wall->n; i++) {
        if (strcmp(wall->slices[i].slot, slice->slot) == 0 &&
                strcmp(wall->slices[i].name, slice->name) == 0 &&
                wall->slices[i].steps == slice->steps) {
            return 1;
        }
    }
    return 0;
}

// Whether both sides ran the very same kernels: then the round's change is none here.
static int same_kernels(const struct kiln_wall *base, const struct kiln_wall *change) {
    int same = base->n == change->n;
    for (size_t i = 0; same && i < base->n; i++) {
        same = has_slice(change, &base->slices[i]);
    }
    return same;
}

static enum kiln_status take_wall(const struct kiln_twin *twin, enum kiln_side side,
        const struct kiln_workload *load, struct kiln_wall *wall, struct kiln_err *err) {
    struct kiln_session session = {
            .dev = twin->dev, .model = twin->model, .engine = twin->engine[side]};
    const struct kiln_wall_params params = {.load = *load, .runs = WALL_RUNS};
    return kiln_wall_run(&session, &params, wall, err);
}

static void compare_walls(const json_t *round, struct kiln_wall walls[2], struct outcome *outcome) {
    double base = slots_seconds(round, &walls[0]), change = slots_seconds(round, &walls[1]);
    outcome->walls = base > 0;
    double total = 0; // of the timed run, which a disturbance may make longer than the wall
    for (size_t i = 0; i < walls[0].n; i++) {
        total += walls[0].slices[i].seconds;
    }
    outcome->share = 100 * base / fmax(total, walls[0].wall);
    outcome->kernel = base > 0 ? 100 * (change / base - 1) : 0;
    for (int side = 0; side < 2; side++) {
        const struct kiln_wall_slice *slice = first_slice(round, &walls[side]);
        snprintf(outcome->kernels[side], sizeof(outcome->kernels[side]), "%.90s",
                slice ? slice->name : "none");
    }
    if (same_kernels(&walls[0], &walls[1])) {
        snprintf(outcome->reason, sizeof(outcome->reason),
                "both sides run the same kernels here (%s): the variant does not take this model "
                "or device",
                outcome->kernels[0]);
    }
}

static enum kiln_status measure(struct walk *walk, const struct kiln_twin *twin,
        const json_t *round, struct outcome *outcome, struct kiln_err *err) {
    struct kiln_wall walls[2] = {{.n = 0}, {.n = 0}};
    const struct kiln_workload *load = &walk->history->params.load;
    enum kiln_status status = take_wall(twin, KILN_SIDE_BASE, load, &walls[0], err);
    if (status == KILN_STATUS_OK) {
        status = take_wall(twin, KILN_SIDE_CHANGE, load, &walls[1], err);
    }
    if (status == KILN_STATUS_OK) {
        compare_walls(round, walls, outcome);
    }
    kiln_wall_finish(&walls[0]);
    kiln_wall_finish(&walls[1]);
    if (status == KILN_STATUS_OK && !outcome->reason[0]) {
        status = kiln_ab_run(
                (struct kiln_twin *)(uintptr_t)twin, &walk->history->params, &outcome->ab, err);
    }
    return status;
}

static enum kiln_status open_and_measure(struct walk *walk, const json_t *round,
        const char *const files[KILN_SIDES], struct outcome *outcome, struct kiln_err *err) {
    struct kiln_twin_run run;
    KILN_TRY(kiln_twin_run_open(&run, &walk->history->common, files, err));
    enum kiln_status status = measure(walk, &run.twin, round, outcome, err);
    kiln_twin_run_close(&run);
    return status;
}

// What cannot run here is an outcome; what would stop every other round too is a failure.
static enum kiln_status run_round(
        struct walk *walk, const json_t *round, struct outcome *outcome, struct kiln_err *err) {
    char *base = NULL, *change = NULL;
    *outcome = (struct outcome){.walls = 0};
    enum kiln_status status = kiln_record_campaign(text_of(round, "base"), &base, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_record_campaign(text_of(round, "change"), &change, err);
    }
    if (status == KILN_STATUS_OK) {
        const char *const files[KILN_SIDES] = {base, change, NULL};
        status = open_and_measure(walk, round, files, outcome, err);
    }
    kiln_free(base);
    kiln_free(change);
    if (status == KILN_STATUS_CONFIG || status == KILN_STATUS_DEVICE) {
        snprintf(outcome->reason, sizeof(outcome->reason), "%.500s", err->text);
        *err = (struct kiln_err){0};
        return KILN_STATUS_OK;
    }
    return status;
}

// ---- Rows ---------------------------------------------------------------------------------------

// LANDED there and LAND here, or taken back for its speed there and no gain here: "yes". A round
// that a gate ended says nothing about speed.
static const char *agreement(const json_t *round, const struct outcome *outcome) {
    int landed = strcmp(text_of(round, "verdict"), "LANDED") == 0;
    if (outcome->reason[0]) {
        return "not run";
    }
    if (!landed && !strstr(text_of(round, "why"), "bar")) {
        return "not judged: a gate ended it";
    }
    return landed == (outcome->ab.effect.verdict == KILN_VERDICT_LAND) ? "yes" : "no";
}

static json_t *here_json(const struct walk *walk, const struct outcome *o) {
    const struct kiln_effect *e = &o->ab.effect;
    if (o->reason[0]) {
        return json_null();
    }
    return json_pack("{s:s, s:I, s:f, s:f, s:f, s:[f,f], s:f, s:I, s:f, s:f, s:f, s:s, s:s, s:s}",
            "verdict", kiln_verdict_name(e->verdict), "n_prompt",
            (json_int_t)walk->history->params.load.n_prompt, "base_ts", o->ab.base_rate,
            "change_ts", o->ab.change_rate, "wall_pct", e->median, "interval_pct", e->interval.low,
            e->interval.high, "noise_pct", e->noise, "pairs", (json_int_t)o->ab.n, "share_pct",
            o->share, "kernel_pct", o->kernel, "ceiling_pct", -o->share * o->kernel / 100,
            "base_kernel", o->kernels[0], "change_kernel", o->kernels[1], "grade", "measured");
}

static json_t *known(const json_t *value) {
    return value ? json_incref((json_t *)(uintptr_t)value) : json_null();
}

static json_t *row_json(const struct walk *walk, const json_t *round, const struct outcome *o) {
    return json_pack("{s:s, s:s, s:s, s:{s:s, s:s?, s:o, s:o}, s:o, s:s?, s:s}", "round",
            text_of(round, "name"), "title", text_of(round, "title"), "mechanism",
            text_of(round, "mechanism"), "there", "verdict", text_of(round, "verdict"), "why",
            json_string_value(json_object_get(round, "why")), "kernel_pct",
            known(figure_of(round, "kernel_pct")), "wall_pct", known(figure_of(round, "wall_pct")),
            "here", here_json(walk, o), "reason", o->reason[0] ? o->reason : NULL, "agrees",
            agreement(round, o));
}

static void percent(const json_t *value, struct kiln_buf *out) {
    if (value) {
        kiln_buf_printf(out, " %+.2f |", json_number_value(value));
    } else {
        kiln_buf_puts(out, " not told |");
    }
}

static enum kiln_status print_row(
        const json_t *round, const struct outcome *o, struct kiln_err *err) {
    struct kiln_buf out = {0};
    const struct kiln_effect *e = &o->ab.effect;
    kiln_buf_printf(&out, "| %s |", text_of(round, "name"));
    percent(figure_of(round, "kernel_pct"), &out);
    if (o->reason[0]) {
        kiln_buf_puts(&out, " |");
    } else {
        kiln_buf_printf(&out, " %+.2f |", o->kernel);
    }
    percent(figure_of(round, "wall_pct"), &out);
    if (o->reason[0]) {
        kiln_buf_printf(&out, " | | %s | | not run: %s |\n", text_of(round, "verdict"), o->reason);
    } else {
        kiln_buf_printf(&out, " %+.2f (%+.2f to %+.2f) | %.2f | %s | %s | %s |\n", e->median,
                e->interval.low, e->interval.high, e->noise, text_of(round, "verdict"),
                kiln_verdict_name(e->verdict), agreement(round, o));
    }
    return kiln_out_buf(&out, err);
}

// Expected beside measured, a paragraph a round.
static enum kiln_status print_mechanism(const json_t *row, struct kiln_err *err) {
    const json_t *here = json_object_get(row, "here");
    struct kiln_buf out = {0};
    kiln_buf_printf(&out, "\n%s: %s\n  expected: %s\n", text_of(row, "round"),
            text_of(row, "title"), text_of(row, "mechanism"));
    if (json_is_object(here)) {
        kiln_buf_printf(&out,
                "  measured: %s -> %s: %.2f %% of the wall, its time %+.2f %%, so at most %+.2f %% "
                "of the wall's speed; the wall moved by %+.2f %%\n",
                text_of(here, "base_kernel"), text_of(here, "change_kernel"),
                json_number_value(json_object_get(here, "share_pct")),
                json_number_value(json_object_get(here, "kernel_pct")),
                json_number_value(json_object_get(here, "ceiling_pct")),
                json_number_value(json_object_get(here, "wall_pct")));
    } else {
        kiln_buf_printf(&out, "  measured: nothing: %s\n", text_of(row, "reason"));
    }
    return kiln_out_buf(&out, err);
}

// ---- The walk -----------------------------------------------------------------------------------

static int can_run(const json_t *round) {
    return *text_of(round, "base") && *text_of(round, "change");
}

static const json_t *find_round(const json_t *rounds, const char *name) {
    const json_t *round;
    size_t i;
    json_array_foreach(rounds, i, round) {
        if (strcmp(text_of(round, "name"), name) == 0) {
            return round;
        }
    }
    return NULL;
}

static int is_wanted(const struct kiln_ab_history *history, const json_t *round) {
    if (!can_run(round)) {
        return 0;
    }
    for (size_t i = 0; i < history->rounds.count; i++) {
        if (strcmp(history->rounds.items[i], text_of(round, "name")) == 0) {
            return 1;
        }
    }
    return history->rounds.count == 0;
}

// Every name asked for is a round that can be run.
static enum kiln_status check_names(const struct walk *walk, struct kiln_err *err) {
    const struct kiln_opt_list *asked = &walk->history->rounds;
    const json_t *rounds = json_object_get(walk->campaign, "experiments"), *round;
    const char *names[128];
    size_t i, n = 0;
    struct kiln_buf list = {0};
    json_array_foreach(rounds, i, round) {
        if (can_run(round)) {
            kiln_buf_printf(&list, " %s", text_of(round, "name"));
        }
        if (can_run(round) && n < sizeof(names) / sizeof(names[0])) {
            names[n++] = text_of(round, "name");
        }
    }
    enum kiln_status status = KILN_STATUS_OK;
    for (size_t k = 0; status == KILN_STATUS_OK && k < asked->count; k++) {
        const char *name = asked->items[k], *near;
        round = find_round(rounds, name);
        if (!round) {
            near = kiln_nearest(name, names, n);
            status = kiln_err_set(err, KILN_STATUS_USAGE,
                    "--history: the campaign has no round '%.40s'%s%s%s; those that can be run, "
                    "named one by one:%s",
                    name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "",
                    list.data ? list.data : " none");
        } else if (!can_run(round)) {
            status = kiln_err_set(err, KILN_STATUS_USAGE,
                    "--history: the campaign has no configurations of round '%s', it cannot be run "
                    "again; those that can:%s",
                    name, list.data ? list.data : " none");
        }
    }
    kiln_buf_finish(&list);
    return status;
}

// What would stop every round is found before the first one, not told as the outcome of each.
static enum kiln_status check_place(struct walk *walk, struct kiln_err *err) {
    const struct kiln_common *common = &walk->history->common;
    const struct kiln_dev_settings settings = {.threads = (uint32_t)common->threads};
    struct kiln_model *model = NULL;
    struct kiln_dev *dev = NULL;
    KILN_TRY(kiln_model_open(&model, common->model, err));
    enum kiln_status status = kiln_dev_open(&dev, common->device, &settings, err);
    if (status == KILN_STATUS_OK) {
        snprintf(walk->device, sizeof(walk->device), "%.90s", dev->id);
        if (!dev->ops->mark) {
            status = kiln_err_set(err, KILN_STATUS_USAGE,
                    "--history: the device %s has no clock of its own, so there is no wall by "
                    "slice to compare; cpu and cuda have one",
                    dev->id);
        }
    }
    kiln_dev_close(dev);
    kiln_model_close(model);
    return status;
}

static enum kiln_status one_round(struct walk *walk, const json_t *round, struct kiln_err *err) {
    struct outcome outcome;
    enum kiln_status status = run_round(walk, round, &outcome, err);
    walk->ran += !outcome.reason[0];
    if (outcome.reason[0] && !walk->reason[0]) {
        snprintf(walk->reason, sizeof(walk->reason), "%s", outcome.reason);
    }
    if (status == KILN_STATUS_OK &&
            json_array_append_new(walk->rows, row_json(walk, round, &outcome)) != 0) {
        status = kiln_err_nomem(err, "the JSON output");
    }
    if (status == KILN_STATUS_OK && !walk->history->common.json) {
        status = print_row(round, &outcome, err);
    }
    kiln_ab_finish(&outcome.ab);
    return status;
}

static enum kiln_status all_rounds(struct walk *walk, struct kiln_err *err) {
    const json_t *round;
    size_t i;
    if (!walk->history->common.json) {
        struct kiln_buf out = {0};
        kiln_buf_printf(&out,
                "there: %s, as its records have it; here: measured, pp%" PRId64 "\n\n"
                "| round | kernel %%, there | here | wall %%, there | here | noise %% | there "
                "| here | as there |\n"
                "| --- | ---: | ---: | ---: | --- | ---: | --- | --- | --- |\n",
                text_of(walk->campaign, "device"), walk->history->params.load.n_prompt);
        KILN_TRY(kiln_out_buf(&out, err));
    }
    json_array_foreach(json_object_get(walk->campaign, "experiments"), i, round) {
        if (is_wanted(walk->history, round)) {
            KILN_TRY(one_round(walk, round, err));
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status print_walk(const struct walk *walk, struct kiln_err *err) {
    size_t i;
    const json_t *row;
    if (walk->history->common.json) {
        return kiln_out_json(json_pack("{s:s, s:s, s:O}", "device", walk->device, "there",
                                     text_of(walk->campaign, "device"), "rows", walk->rows),
                err);
    }
    json_array_foreach(walk->rows, i, row) {
        KILN_TRY(print_mechanism(row, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status conclude(const struct walk *walk, struct kiln_err *err) {
    KILN_TRY(print_walk(walk, err));
    if (walk->ran > 0) {
        return KILN_STATUS_OK;
    }
    size_t n = json_array_size(walk->rows);
    return n == 1 ? kiln_err_set(err, KILN_STATUS_CHECK,
                            "--history: the round could not run here: %s", walk->reason)
                  : kiln_err_set(err, KILN_STATUS_CHECK,
                            "--history: none of the %zu rounds could run here; the first: %s", n,
                            walk->reason);
}

static enum kiln_status read_shape(struct kiln_ab_history *history, struct kiln_err *err) {
    struct kiln_numbers prompts, ubatches;
    KILN_TRY(kiln_parse_list("-p", history->prompts, 1, 1048576, &prompts, err));
    KILN_TRY(kiln_parse_list("-ub", history->ubatches, 0, 65536, &ubatches, err));
    if (prompts.count != 1 || ubatches.count != 1) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "--history: one -p and one -ub for all rounds");
    }
    history->params.load = (struct kiln_workload){.n_prompt = prompts.values[0]};
    history->common.ubatch = ubatches.values[0];
    if (history->common.ctx == 0) {
        history->common.ctx = prompts.values[0] < 16 ? 16 : prompts.values[0];
    }
    return KILN_STATUS_OK;
}

static enum kiln_status read_campaign(struct walk *walk, struct kiln_err *err) {
    char *path;
    KILN_TRY(kiln_record_campaign("campaign.json", &path, err));
    enum kiln_status status = kiln_ledger_read_json(path, &walk->campaign, err);
    if (status == KILN_STATUS_OK &&
            !json_is_array(json_object_get(walk->campaign, "experiments"))) {
        status = kiln_err_set(err, KILN_STATUS_FILE, "%s: no array \"experiments\"", path);
    }
    kiln_free(path);
    return status;
}

enum kiln_status kiln_ab_history_run(struct kiln_ab_history *history, struct kiln_err *err) {
    KILN_TRY(read_shape(history, err));
    KILN_TRY(kiln_common_need_model(&history->common, err));
    struct walk walk = {.history = history, .rows = json_array()};
    enum kiln_status status =
            walk.rows ? read_campaign(&walk, err) : kiln_err_nomem(err, "the JSON output");
    if (status == KILN_STATUS_OK) {
        status = check_names(&walk, err);
    }
    if (status == KILN_STATUS_OK) {
        status = check_place(&walk, err);
    }
    if (status == KILN_STATUS_OK) {
        status = all_rounds(&walk, err);
    }
    if (status == KILN_STATUS_OK) {
        status = conclude(&walk, err);
    }
    json_decref(walk.campaign);
    json_decref(walk.rows);
    return status;
}
