// cmd_gate_tolerance: the gate for changes that sum floats in another order.
#include "gate.h"

#include "common.h"
#include "lab/prompts.h"
#include "lab/tolerance.h"
#include "save.h"
#include "twin_run.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

struct tolerance_options {
    struct kiln_common common;
    const char *files[KILN_SIDES];
    const char *prompts, *save;
    double bound, max_kl;
};

static json_t *closeness_json(const struct kiln_closeness *c) {
    return json_pack("{s:I, s:f, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "rows",
            (json_int_t)c->rows, "noise", (double)c->noise, "flips", (json_int_t)c->flips,
            "flips_above_bound", (json_int_t)c->flips_above, "flip_gap", (double)c->flip_gap,
            "kl_mean", c->kl_mean, "kl_max", c->kl_max, "nll_diff", c->nll_diff, "nll_error",
            c->nll_error, "ppl_base", exp(c->nll_base), "ppl_ratio", exp(c->nll_diff));
}

static int passes(const struct tolerance_options *o, const struct kiln_tolerance *t) {
    int same = t->self.noise == 0; // base against base, bit for bit
    return same && t->change.flips_above == 0 && (o->max_kl <= 0 || t->change.kl_mean <= o->max_kl);
}

static json_t *case_json(
        const struct kiln_twin *twin, size_t prompt, const struct kiln_tolerance *t) {
    return json_pack("{s:I, s:f, s:f, s:o, s:o, s:s}", "prompt", (json_int_t)prompt, "bound",
            (double)t->bound, "self_noise", (double)t->self.noise, "control",
            t->control.rows > 0 ? closeness_json(&t->control) : json_null(), "change",
            closeness_json(&t->change), "grade", kiln_grade_of(twin->dev));
}

static void print_closeness(
        const char *name, const struct kiln_closeness *c, struct kiln_buf *out) {
    kiln_buf_printf(out,
            "| %s | %" PRId64 " | %.6f | %" PRId64 " | %" PRId64 " | %.6f | %.3e | %.3e | %+.4f "
            "± "
            "%.4f |\n",
            name, c->rows, (double)c->noise, c->flips, c->flips_above, (double)c->flip_gap,
            c->kl_mean, c->kl_max, 100 * expm1(c->nll_diff), 100 * c->nll_error);
}

// several: prompts with bounds of their own.
static enum kiln_status print_sum(
        const struct kiln_tolerance *sum, int several, struct kiln_err *err) {
    struct kiln_buf out = {0};
    kiln_buf_puts(&out,
            "| against the base | rows | largest logit difference | argmax flips | above the "
            "bound | "
            "largest gap flipped | mean KL | largest KL | perplexity % |\n"
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    print_closeness("base again", &sum->self, &out);
    if (sum->control.rows > 0) {
        print_closeness("control", &sum->control, &out);
    }
    print_closeness("change", &sum->change, &out);
    kiln_buf_printf(&out,
            "bound: an argmax may flip where the base's two best logits are at most %.6f apart%s\n",
            (double)sum->bound,
            several ? "; that is the largest, each prompt has its own from the control" : "");
    return kiln_out_buf(&out, err);
}

static enum kiln_status run_prompts(const struct tolerance_options *o, struct kiln_twin *twin,
        const struct kiln_prompts *prompts, struct kiln_gate_tally *tally,
        struct kiln_tolerance *sum, struct kiln_err *err) {
    for (size_t i = 0; i < prompts->count; i++) {
        struct kiln_tolerance t;
        enum kiln_status status = kiln_tolerance_compare(twin, prompts->items[i].ids,
                (int64_t)prompts->items[i].len, (float)o->bound, &t, err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "prompt %zu: ", i);
            return status;
        }
        if (t.self.noise > 0) {
            fprintf(stderr,
                    "prompt %zu: the base differs from itself by %.6f: nothing else counts\n", i,
                    (double)t.self.noise);
        }
        kiln_tolerance_add(sum, &t);
        KILN_TRY(kiln_gate_case(tally, passes(o, &t) ? KILN_GATE_PASSED : KILN_GATE_FAILED,
                case_json(twin, i, &t), err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status judge(
        const struct tolerance_options *o, struct kiln_twin_run *run, struct kiln_err *err) {
    struct kiln_twin *twin = &run->twin;
    struct kiln_prompts prompts;
    struct kiln_gate_tally tally;
    struct kiln_tolerance sum = {0};
    enum kiln_status status = kiln_gate_start_twin(&tally, &prompts, run, o->prompts, o->save, err);
    if (status == KILN_STATUS_OK) {
        status = run_prompts(o, twin, &prompts, &tally, &sum, err);
    }
    if (status == KILN_STATUS_OK && !o->common.json) {
        status = print_sum(&sum, prompts.count > 1 && sum.control.rows > 0 && o->bound <= 0, err);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_gate_conclude(
                &tally, "tolerance", o->common.json, case_json(twin, 0, &sum), err);
    }
    kiln_gate_finish(&tally);
    kiln_prompts_finish(&prompts);
    return status;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct tolerance_options o = {0};
    kiln_common_init(&o.common);
    int done;
    const struct kiln_opt table[] = {
            KILN_TWIN_FILES(o.files),
            {"--control", NULL, KILN_OPT_STRING, (void *)&o.files[KILN_SIDE_CONTROL], "FILE",
                    "INI of a regrouping known to be harmless: it sets the bound", 0, 0},
            {"--bound", NULL, KILN_OPT_NUMBER, &o.bound, "GAP",
                    "in place of a control: logit gap up to which an argmax may flip", 0, 1e6},
            {"--max-kl", NULL, KILN_OPT_NUMBER, &o.max_kl, "NATS",
                    "mean KL divergence that is still fine (0: any)", 0, 1e6},
            KILN_COMMON_MODEL(&o.common),
            {"--prompts", NULL, KILN_OPT_STRING, (void *)&o.prompts, "FILE",
                    "a text a line, or separated by lines of ---, or .jsonl", 0, 0},
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
    KILN_TRY(kiln_save_check(o.save, err));
    if (!o.prompts) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "--prompts FILE names the texts");
    }
    if (!o.files[KILN_SIDE_CONTROL] && o.bound <= 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "what is close enough? --control FILE.ini names a change known to be harmless that "
                "sets the bound, or --bound GAP gives it");
    }
    struct kiln_twin_run run;
    KILN_TRY(kiln_twin_run_open(&run, &o.common, o.files, err));
    enum kiln_status status = judge(&o, &run, err);
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
