// cmd_ab: interleaved A/B of two configs on the whole wall.
#include "cmd.h"

#include "ab_history.h"
#include "base/mem.h"
#include "common.h"
#include "lab/ab_print.h"
#include "save.h"
#include "sweep.h"
#include "twin_run.h"

#include <jansson.h>

struct ab_options {
    struct kiln_common common;
    const char *files[KILN_SIDES];
    struct kiln_sweep_texts texts;
    struct kiln_ab_params params;
    int history;
    struct kiln_opt_list rounds; // of the history behind the first two
    const char *save;
    int pairs; // of every row
};

// What the rows of a sweep add up to.
struct tally {
    json_t *rows;
    json_t *origin; // the envelope to keep the result in, or NULL
    int64_t ubatch;
    size_t count, landed, reverted;
    struct kiln_buf kernels, pairs; // text below the rows
};

// ---- The sweep ----------------------------------------------------------------------------------

// A twin and where its rows go.
struct place {
    struct ab_options *options;
    struct kiln_twin_run *run;
    struct tally *tally;
};

// The rows at once, as one table; what there is to say of each, below them.
static enum kiln_status print_row(
        const struct kiln_ab_row *row, struct tally *tally, struct kiln_err *err) {
    struct kiln_buf out = {0};
    kiln_ab_print_row(row, &out);
    kiln_ab_print_kernels(row, &tally->kernels);
    kiln_ab_print_pairs(row, &tally->pairs);
    KILN_TRY(kiln_out_buf(&out, err));
    kiln_ab_print_warnings(row);
    return KILN_STATUS_OK;
}

static enum kiln_status print_below(
        const struct ab_options *o, struct tally *tally, struct kiln_err *err) {
    struct kiln_buf out = {0};
    if (tally->kernels.len > 0) {
        kiln_ab_print_kernels_head(&out);
    } else {
        kiln_buf_puts(&out, "\nBase and change run the same kernels in every slot.\n");
    }
    KILN_TRY(kiln_out_buf(&out, err));
    KILN_TRY(kiln_out_buf(&tally->kernels, err));
    return o->pairs || tally->count == 1 ? kiln_out_buf(&tally->pairs, err) : KILN_STATUS_OK;
}

static enum kiln_status run_row(void *arg, const struct kiln_workload *load, struct kiln_err *err) {
    const struct place *place = arg;
    struct ab_options *o = place->options;
    struct tally *tally = place->tally;
    struct kiln_ab ab;
    o->params.load = *load;
    enum kiln_status status = kiln_ab_run(&place->run->twin, &o->params, &ab, err);
    if (status == KILN_STATUS_OK) {
        const struct kiln_ab_row row = {.ab = &ab,
                .params = &o->params,
                .model = place->run->twin.model->arch->name,
                .model_file = place->run->model_file,
                .device = place->run->twin.dev->id,
                .grade = kiln_grade_of(place->run->twin.dev),
                .ubatch = tally->ubatch};
        tally->count++;
        tally->landed += ab.effect.verdict == KILN_VERDICT_LAND;
        tally->reverted += ab.effect.verdict == KILN_VERDICT_REVERT;
        if (json_array_append_new(tally->rows, kiln_ab_row_json(&row)) != 0) {
            status = kiln_err_nomem(err, "the JSON output");
        } else if (!o->common.json) {
            status = print_row(&row, tally, err);
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
        struct place place = {.options = o, .run = &run, .tally = tally};
        enum kiln_status status = KILN_STATUS_OK;
        if (i == 0) {
            status = kiln_twin_run_origin(&run, "ab", o->save, &tally->origin, err);
        }
        if (status == KILN_STATUS_OK && !o->common.json && i == 0) {
            struct kiln_buf head = {0};
            kiln_ab_print_head(run.twin.model->arch->name, run.twin.dev->id,
                    kiln_grade_of(run.twin.dev), &head);
            status = kiln_out_buf(&head, err);
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
        const struct ab_options *o, struct tally *tally, struct kiln_err *err) {
    if (tally->count == 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "nothing to compare: -p and -n are both 0");
    }
    json_t *doc = document(tally);
    enum kiln_status status = kiln_save_keep(o->save, tally->origin, doc, err);
    if (status == KILN_STATUS_OK && o->common.json) {
        status = kiln_out_json(json_incref(doc), err);
    } else if (status == KILN_STATUS_OK) {
        status = print_below(o, tally, err);
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
    kiln_buf_finish(&tally.kernels);
    kiln_buf_finish(&tally.pairs);
    json_decref(tally.rows);
    json_decref(tally.origin);
    return status;
}

static enum kiln_status replay(struct ab_options *o, struct kiln_err *err) {
    struct kiln_ab_history history = {.common = o->common,
            .prompts = o->texts.prompts ? o->texts.prompts : "3325",
            .ubatches = o->texts.ubatches,
            .params = o->params};
    history.params.kernels = 0; // it has the whole wall of either side by slice
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
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "--history takes %zu rounds at most; without a name all are run",
                    history.rounds.count);
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
                    .kernels = 1,
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
            {"-r", NULL, KILN_OPT_INT, &o.params.rounds, "R",
                    "rounds of base, change, base (15), at least 6", KILN_AB_MIN_ROUNDS, 10000},
            {"--bar", NULL, KILN_OPT_NUMBER, &o.params.bar, "PCT",
                    "gain that a change must bring to land (1.5)", -100, 1000},
            {"--soak", NULL, KILN_OPT_NUMBER, &o.params.soak, "S",
                    "uncounted runs first while a card is at its power limit, at most (8 s)", 0,
                    600},
            {"--rest", NULL, KILN_OPT_INT, &o.params.rest_ms, "MS",
                    "rest before each run, so that a card leaves its power limit (0)", 0, 10000},
            {"--until-decided", NULL, KILN_OPT_FLAG, &o.params.until_decided, NULL,
                    "stop at the first look that decides; -r is the most rounds", 0, 0},
            {"--pairs", NULL, KILN_OPT_FLAG, &o.pairs, NULL,
                    "the pairs of every row, not only of a single one", 0, 0},
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
