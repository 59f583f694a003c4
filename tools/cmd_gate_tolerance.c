// cmd_gate_tolerance: the gate for changes that sum floats in another order.
#include "gate.h"

#include "base/mem.h"
#include "common.h"
#include "lab/prompts.h"
#include "lab/tolerance.h"
#include "save.h"
#include "twin_run.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

enum {
    ENOUGH_ROWS = 1000 // fewer are said to prove little
};

struct tolerance_options {
    struct kiln_common common;
    const char *files[KILN_SIDES];
    const char *prompts, *save;
    double factor, max_ppl;
    struct kiln_tolerance_bounds by_hand; // 0: the control's
    int64_t n;
};

struct judging {
    const struct tolerance_options *o;
    struct kiln_twin *twin;
    struct kiln_prompts prompts;
    struct kiln_gate_tally tally;
    struct kiln_closeness *parts[KILN_SIDES]; // (prompts): of base against itself, change, control
    struct kiln_closeness sums[KILN_SIDES];
    struct kiln_tolerance_bounds bounds;
    json_t *notes; // array: what the verdict is worth
};

static const struct fault {
    unsigned bit;
    const char *name, *text;
} faults[] = {
        {KILN_TOLERANCE_ARGMAX, "argmax", "an argmax flips at a gap above the bound"},
        {KILN_TOLERANCE_FORK, "fork", "the continuation forks at a gap above the bound"},
        {KILN_TOLERANCE_LOGIT, "logit", "a logit differs by more than the bound"},
        {KILN_TOLERANCE_KL_MAX, "kl_max", "the KL divergence of a row exceeds the bound"},
        {KILN_TOLERANCE_KL_MEAN, "kl_mean", "the mean KL divergence exceeds the bound"},
        {KILN_TOLERANCE_PERPLEXITY, "perplexity",
                "the perplexity may be off by more than the bound"},
};
enum {
    N_FAULTS = sizeof(faults) / sizeof(faults[0])
};

// ---- As JSON ------------------------------------------------------------------------------------

static json_t *closeness_json(const struct kiln_closeness *c) {
    return json_pack("{s:I, s:f, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, "
                     "s:f}",
            "rows", (json_int_t)c->rows, "noise", (double)c->noise, "flips", (json_int_t)c->flips,
            "flips_above_bound", (json_int_t)c->flips_above, "flip_gap", (double)c->flip_gap,
            "kl_mean", c->kl_mean, "kl_error", c->kl_error, "kl_max", c->kl_max, "nll_diff",
            c->nll_diff, "nll_error", c->nll_error, "ppl_base", exp(c->nll_base), "ppl_ratio",
            exp(c->nll_diff), "steps", (json_int_t)c->steps, "forks", (json_int_t)c->forks,
            "forks_above_bound", (json_int_t)c->forks_above, "fork_gap", (double)c->fork_gap);
}

// Of one text: with its fork.
static json_t *text_json(const struct kiln_twin *twin, const struct kiln_closeness *c) {
    json_t *text = closeness_json(c);
    if (text && c->forks > 0) {
        json_object_set_new(text, "fork",
                json_pack("{s:I, s:o, s:o}", "step", (json_int_t)c->fork_step, "base",
                        kiln_gate_token_json(twin, &c->at_fork[0]), "other",
                        kiln_gate_token_json(twin, &c->at_fork[1])));
    }
    return text;
}

static json_t *bound_json(double bound) {
    return isfinite(bound) ? json_real(bound) : json_null();
}

static json_t *failed_json(unsigned broken, int base_differs) {
    json_t *failed = json_array();
    for (size_t i = 0; failed && i < N_FAULTS; i++) {
        if (broken & faults[i].bit) {
            json_array_append_new(failed, json_string(faults[i].name));
        }
    }
    if (failed && base_differs) {
        json_array_append_new(failed, json_string("base_differs_from_itself"));
    }
    return failed;
}

static json_t *case_json(const struct judging *j, size_t i, unsigned broken) {
    const struct kiln_closeness *self = &j->parts[KILN_SIDE_BASE][i];
    const struct kiln_closeness *control = &j->parts[KILN_SIDE_CONTROL][i];
    return json_pack("{s:I, s:o, s:f, s:o, s:o, s:o, s:s}", "prompt", (json_int_t)i, "bound",
            bound_json(j->bounds.gap), "self_noise", (double)self->noise, "control",
            control->rows > 0 ? text_json(j->twin, control) : json_null(), "change",
            text_json(j->twin, &j->parts[KILN_SIDE_CHANGE][i]), "failed",
            failed_json(broken, self->noise > 0), "grade", kiln_grade_of(j->twin->dev));
}

static const char *rests_on(const struct judging *j) {
    const struct kiln_tolerance_bounds *hand = &j->o->by_hand;
    int any = hand->gap > 0 || hand->noise > 0 || hand->kl_mean > 0 || hand->kl_max > 0 ||
              hand->nll > 0;
    if (j->sums[KILN_SIDE_CONTROL].noise > 0) {
        return any ? "control and options" : "control";
    }
    return any ? "options" : "identity";
}

static json_t *summary_json(struct judging *j) {
    const struct kiln_tolerance_bounds *b = &j->bounds;
    const struct kiln_closeness *control = &j->sums[KILN_SIDE_CONTROL];
    return json_pack("{s:o, s:{s:o, s:o, s:o, s:o, s:o}, s:f, s:s, s:O, s:f, s:o, s:o, s:s}",
            "bound", bound_json(b->gap), "bounds", "gap", bound_json(b->gap), "logit",
            bound_json(b->noise), "kl_mean", bound_json(b->kl_mean), "kl_max",
            bound_json(b->kl_max), "ppl_pct", bound_json(100 * expm1(b->nll)), "factor",
            j->o->factor, "rests_on", rests_on(j), "notes", j->notes, "self_noise",
            (double)j->sums[KILN_SIDE_BASE].noise, "control",
            control->rows > 0 ? closeness_json(control) : json_null(), "change",
            closeness_json(&j->sums[KILN_SIDE_CHANGE]), "grade", kiln_grade_of(j->twin->dev));
}

// ---- In words -----------------------------------------------------------------------------------

static void print_closeness(
        const char *name, const struct kiln_closeness *c, struct kiln_buf *out) {
    kiln_buf_printf(out,
            "| %s | %" PRId64 " | %.6f | %" PRId64 " | %.6f | %.3e ± %.1e | %.3e | %+.4f ± %.4f | "
            "%" PRId64 " of %" PRId64 " | %.6f |\n",
            name, c->rows, (double)c->noise, c->flips, (double)c->flip_gap, c->kl_mean, c->kl_error,
            c->kl_max, 100 * expm1(c->nll_diff), 100 * c->nll_error, c->forks, c->texts,
            (double)c->fork_gap);
}

static void print_bound(double bound, struct kiln_buf *out) {
    if (isfinite(bound)) {
        kiln_buf_printf(out, " %.4g |", bound);
    } else {
        kiln_buf_puts(out, " any |");
    }
}

static void print_bounds(const struct kiln_tolerance_bounds *b, struct kiln_buf *out) {
    kiln_buf_puts(out, "| may be at most | |");
    print_bound(b->noise, out);
    kiln_buf_puts(out, " |");
    print_bound(b->gap, out);
    print_bound(b->kl_mean, out);
    print_bound(b->kl_max, out);
    print_bound(100 * expm1(b->nll), out);
    kiln_buf_puts(out, " |");
    print_bound(b->gap, out);
    kiln_buf_puts(out, "\n");
}

// What each text does that the table of all does not show: forks, and bounds it breaks.
static void print_text(const struct judging *j, size_t i, unsigned broken, struct kiln_buf *out) {
    for (int side = 0; side < KILN_SIDES; side++) {
        const struct kiln_closeness *c = &j->parts[side][i];
        if (c->forks > 0) {
            kiln_buf_printf(out, "prompt %zu: fork at step %" PRId64 ": base ", i, c->fork_step);
            kiln_gate_print_token(j->twin, &c->at_fork[0], out);
            kiln_buf_printf(out, ", %s ",
                    side == KILN_SIDE_BASE ? "base again" : kiln_side_name((enum kiln_side)side));
            kiln_gate_print_token(j->twin, &c->at_fork[1], out);
            kiln_buf_puts(out, "\n");
        }
    }
    for (size_t k = 0; k < N_FAULTS; k++) {
        if (broken & faults[k].bit) {
            kiln_buf_printf(out, "prompt %zu: %s\n", i, faults[k].text);
        }
    }
}

static void print_all(const struct judging *j, unsigned broken, struct kiln_buf *out) {
    kiln_buf_puts(out,
            "| against the base | rows | largest logit difference | argmax flips | largest gap "
            "flipped | mean KL | largest KL | perplexity % | forks | largest gap forked |\n"
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    print_closeness("base again", &j->sums[KILN_SIDE_BASE], out);
    if (j->sums[KILN_SIDE_CONTROL].rows > 0) {
        print_closeness("control", &j->sums[KILN_SIDE_CONTROL], out);
    }
    print_closeness("change", &j->sums[KILN_SIDE_CHANGE], out);
    print_bounds(&j->bounds, out);
    if (j->sums[KILN_SIDE_CONTROL].noise > 0) {
        kiln_buf_printf(out,
                "bounds: %g times what the control differs by, KL %g times; of the perplexity the "
                "difference and two errors count\n",
                j->o->factor, j->o->factor * j->o->factor);
    }
    for (size_t k = 0; k < N_FAULTS; k++) {
        if (broken & faults[k].bit) {
            kiln_buf_printf(out, "all prompts: %s\n", faults[k].text);
        }
    }
}

// Says it and keeps it for the document.
static enum kiln_status note(struct judging *j, const char *text, struct kiln_err *err) {
    fprintf(stderr, "%s\n", text);
    return json_array_append_new(j->notes, json_string(text)) == 0
                   ? KILN_STATUS_OK
                   : kiln_err_nomem(err, "the notes of a gate");
}

static enum kiln_status note_bounds(struct judging *j, struct kiln_err *err) {
    const struct kiln_closeness *control = &j->sums[KILN_SIDE_CONTROL];
    if (control->noise > 0) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(note(j,
            control->rows > 0 ? "the control's logits are the base's, bit for bit: it is no "
                                "control and sets no bound"
                              : "no control: nothing says what a harmless change differs by",
            err));
    return note(j,
            rests_on(j)[0] == 'o'
                    ? "the verdict rests on the bounds given as options alone; what they do not "
                      "bound is shown, not judged"
                    : "no bound is given either: only a change without any difference passes",
            err);
}

// What the verdict is worth, before it.
static enum kiln_status note_worth(struct judging *j, struct kiln_err *err) {
    int64_t rows = j->sums[KILN_SIDE_CHANGE].rows;
    if (j->sums[KILN_SIDE_BASE].noise > 0) {
        KILN_TRY(note(j, "the base differs from itself: nothing else counts", err));
    }
    KILN_TRY(note_bounds(j, err));
    if (j->sums[KILN_SIDE_CHANGE].noise <= 0) {
        KILN_TRY(note(j, "the change's logits are the base's, bit for bit", err));
    }
    if (rows >= ENOUGH_ROWS) {
        return KILN_STATUS_OK;
    }
    // None among n: at 95 % confidence the share is below 3 / n.
    char *text = kiln_asprintf(
            "%" PRId64 " rows prove little: what none of them shows may still befall %.1f %% of "
            "rows (at 95 %% confidence); give longer texts, %d rows and more",
            rows, fmin(100, 300 / (double)rows), ENOUGH_ROWS);
    enum kiln_status status =
            text ? note(j, text, err) : kiln_err_nomem(err, "the notes of a gate");
    kiln_free(text);
    return status;
}

// ---- Judging ------------------------------------------------------------------------------------

static enum kiln_status compare_side(struct judging *j, enum kiln_side side, struct kiln_err *err) {
    for (size_t i = 0; i < j->prompts.count; i++) {
        const struct kiln_tolerance_text text = {.ids = j->prompts.items[i].ids,
                .n = (int64_t)j->prompts.items[i].len,
                .n_more = j->o->n};
        struct kiln_closeness *part = &j->parts[side][i];
        enum kiln_status status =
                kiln_tolerance_compare(j->twin, side, &text, (float)j->bounds.gap, part, err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "prompt %zu: ", i);
            return status;
        }
        kiln_tolerance_add(&j->sums[side], part);
    }
    return KILN_STATUS_OK;
}

// The controls first: they say what the change is judged by.
static enum kiln_status compare_all(struct judging *j, struct kiln_err *err) {
    KILN_TRY(compare_side(j, KILN_SIDE_BASE, err));
    if (j->twin->engine[KILN_SIDE_CONTROL]) {
        j->bounds.gap = (double)INFINITY;
        KILN_TRY(compare_side(j, KILN_SIDE_CONTROL, err));
    }
    kiln_tolerance_bound(&j->bounds, &j->sums[KILN_SIDE_CONTROL], j->o->factor, &j->o->by_hand);
    return compare_side(j, KILN_SIDE_CHANGE, err);
}

static enum kiln_gate_result result_of(const struct kiln_closeness *self, unsigned broken) {
    return self->noise > 0 || broken ? KILN_GATE_FAILED : KILN_GATE_PASSED;
}

// A case for each text, and one for all together.
static enum kiln_status tally_all(struct judging *j, struct kiln_buf *out, struct kiln_err *err) {
    for (size_t i = 0; i < j->prompts.count; i++) {
        unsigned broken = kiln_tolerance_judge_text(&j->bounds, &j->parts[KILN_SIDE_CHANGE][i]);
        print_text(j, i, broken, out);
        KILN_TRY(kiln_gate_case(&j->tally, result_of(&j->parts[KILN_SIDE_BASE][i], broken),
                case_json(j, i, broken), err));
    }
    const struct kiln_closeness *self = &j->sums[KILN_SIDE_BASE];
    unsigned broken = kiln_tolerance_judge_all(&j->bounds, &j->sums[KILN_SIDE_CHANGE]);
    print_all(j, broken, out);
    return kiln_gate_case(&j->tally, result_of(self, broken),
            json_pack("{s:s, s:I, s:o, s:s}", "prompt", "all", "prompts",
                    (json_int_t)j->prompts.count, "failed", failed_json(broken, self->noise > 0),
                    "grade", kiln_grade_of(j->twin->dev)),
            err);
}

static enum kiln_status make_room(struct judging *j, struct kiln_err *err) {
    j->notes = json_array();
    int complete = j->notes != NULL;
    for (int side = 0; side < KILN_SIDES; side++) {
        j->parts[side] = kiln_calloc(j->prompts.count, sizeof(*j->parts[side]));
        complete &= j->parts[side] != NULL;
    }
    return complete ? KILN_STATUS_OK : kiln_err_nomem(err, "the figures of the prompts");
}

static enum kiln_status judge(struct judging *j, struct kiln_err *err) {
    struct kiln_buf out = {0};
    KILN_TRY(kiln_gate_check_room(j->twin, &j->prompts, j->o->n, err));
    KILN_TRY(make_room(j, err));
    KILN_TRY(compare_all(j, err));
    KILN_TRY(note_worth(j, err));
    enum kiln_status status = tally_all(j, &out, err);
    if (status != KILN_STATUS_OK || j->o->common.json) {
        kiln_buf_finish(&out);
    } else {
        status = kiln_out_buf(&out, err);
    }
    if (status == KILN_STATUS_OK) {
        status =
                kiln_gate_conclude(&j->tally, "tolerance", j->o->common.json, summary_json(j), err);
    }
    return status;
}

static enum kiln_status run_pair(
        const struct tolerance_options *o, struct kiln_twin_run *run, struct kiln_err *err) {
    struct judging j = {.o = o, .twin = &run->twin};
    enum kiln_status status =
            kiln_gate_start_twin(&j.tally, &j.prompts, run, o->prompts, o->save, err);
    if (status == KILN_STATUS_OK) {
        status = judge(&j, err);
    }
    json_decref(j.notes);
    for (int side = 0; side < KILN_SIDES; side++) {
        kiln_free(j.parts[side]);
    }
    kiln_gate_finish(&j.tally);
    kiln_prompts_finish(&j.prompts);
    return status;
}

static enum kiln_status check(struct tolerance_options *o, struct kiln_err *err) {
    KILN_TRY(kiln_save_check(o->save, err));
    if (!o->prompts) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "--prompts FILE names the texts");
    }
    if (!o->files[KILN_SIDE_CONTROL] && o->by_hand.gap <= 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "what is close enough? --control FILE.ini names a change known to be harmless that "
                "sets the bounds, or --bound GAP gives one");
    }
    o->by_hand.nll = log1p(o->max_ppl / 100);
    return KILN_STATUS_OK;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct tolerance_options o = {.factor = 2, .n = 32};
    kiln_common_init(&o.common);
    int done;
    const struct kiln_opt table[] = {
            KILN_TWIN_FILES(o.files),
            {"--control", NULL, KILN_OPT_STRING, (void *)&o.files[KILN_SIDE_CONTROL], "FILE",
                    "INI of a regrouping known to be harmless: it sets the bounds", 0, 0},
            {"--factor", NULL, KILN_OPT_NUMBER, &o.factor, "F",
                    "bounds are F (2) times the control's differences, of KL F*F times", 1, 1000},
            {"--bound", NULL, KILN_OPT_NUMBER, &o.by_hand.gap, "GAP",
                    "in place of F: logit gap up to which an argmax may flip", 0, 1e6},
            {"--max-diff", NULL, KILN_OPT_NUMBER, &o.by_hand.noise, "LOGIT",
                    "in place of F: largest difference of a logit", 0, 1e6},
            {"--max-kl", NULL, KILN_OPT_NUMBER, &o.by_hand.kl_mean, "NATS",
                    "in place of F*F: mean KL divergence", 0, 1e6},
            {"--max-row-kl", NULL, KILN_OPT_NUMBER, &o.by_hand.kl_max, "NATS",
                    "in place of F*F: KL divergence of a row", 0, 1e6},
            {"--max-ppl", NULL, KILN_OPT_NUMBER, &o.max_ppl, "PERCENT",
                    "in place of F: perplexity's difference, two errors included", 0, 1e6},
            KILN_COMMON_MODEL(&o.common),
            {"--prompts", NULL, KILN_OPT_STRING, (void *)&o.prompts, "FILE",
                    "a text a line, or separated by lines of ---, or .jsonl", 0, 0},
            {"-n", NULL, KILN_OPT_INT, &o.n, "N", "tokens to go on with greedily (32)", 1, 100000},
            KILN_COMMON_ENGINE(&o.common),
            KILN_SAVE_OPTION(&o.save),
            KILN_COMMON_CONFIG(&o.common),
            KILN_COMMON_OUTPUT(&o.common),
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(check(&o, err));
    struct kiln_twin_run run;
    KILN_TRY(kiln_twin_run_open(&run, &o.common, o.files, err));
    enum kiln_status status = run_pair(&o, &run, err);
    kiln_twin_run_close(&run);
    return status;
}

const struct kiln_cmd kiln_cmd_gate_tolerance = {
        .name = "gate tolerance",
        .summary = "a change that regroups float sums stays as close as a harmless one",
        .usage = "BASE.ini CHANGE.ini -m MODEL --prompts FILE (--control FILE | --bound GAP)",
        .example = "kiln gate tolerance base.ini change.ini --control harmless.ini -m model.gguf "
                   "--prompts texts.txt",
        .run = run,
};
