// cmd_gate_greedy: the same tokens from two configs, or the fork explained.
#include "gate.h"

#include "common.h"
#include "lab/greedy.h"
#include "lab/prompts.h"
#include "save.h"
#include "twin_run.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

struct greedy_options {
    struct kiln_common common;
    const char *files[KILN_SIDES];
    const char *prompts, *save;
    int64_t n, seed;
    int greedy;
};

static json_t *growth_json(const struct kiln_growth *growth) {
    json_t *rows = json_array();
    for (size_t i = 0; rows && i < growth->n; i++) {
        const struct kiln_growth_row *row = &growth->rows[i];
        json_array_append_new(
                rows, json_pack("{s:i, s:s, s:s, s:I, s:f, s:f, s:f}", "layer", (int)row->layer,
                              "slot", row->slot, "role", row->role, "cols", (json_int_t)row->cols,
                              "max", row->max, "rms", row->rms, "relative_rms", row->relative_rms));
    }
    return rows;
}

static json_t *path_json(const struct kiln_greedy *g) {
    json_t *path = json_array();
    for (int64_t i = 0; path && i < g->steps; i++) {
        json_array_append_new(path, json_pack("{s:f, s:f}", "gap", (double)g->path[i].gap, "noise",
                                            (double)g->path[i].noise));
    }
    return path;
}

static json_t *case_json(const struct kiln_twin *twin, size_t prompt, int64_t n_prompt,
        const struct kiln_greedy *g) {
    json_t *detail = json_pack("{s:I, s:I, s:I, s:I, s:f, s:I, s:f, s:I, s:o, s:s}", "prompt",
            (json_int_t)prompt, "n_prompt", (json_int_t)n_prompt, "steps", (json_int_t)g->steps,
            "fork", (json_int_t)g->fork, "min_gap", (double)g->min_gap, "min_gap_step",
            (json_int_t)g->min_step, "noise", (double)g->noise, "exposed", (json_int_t)g->exposed,
            "path", path_json(g), "grade", kiln_grade_of(twin->dev));
    if (detail && g->fork >= 0) {
        json_object_set_new(detail, "base", kiln_gate_token_json(twin, &g->at_fork.top[0]));
        json_object_set_new(detail, "change", kiln_gate_token_json(twin, &g->at_fork.top[1]));
        json_object_set_new(detail, "fork_noise", json_real((double)g->at_fork.noise));
        json_object_set_new(detail, "growth", growth_json(&g->growth));
        json_object_set_new(
                detail, "not_compared", json_integer((json_int_t)g->growth.not_compared));
    }
    return detail;
}

// The layer's last edge, and the one that differs most; false past the last layer.
static int rows_of_layer(const struct kiln_growth *growth, int32_t layer,
        const struct kiln_growth_row **last, const struct kiln_growth_row **most) {
    *last = *most = NULL;
    for (size_t i = 0; i < growth->n; i++) {
        const struct kiln_growth_row *row = &growth->rows[i];
        if (row->layer == layer) {
            *last = row;
            *most = !*most || row->relative_rms > (*most)->relative_rms ? row : *most;
        }
    }
    return *last != NULL;
}

// How the difference came to be as large as the gap.
static void print_why(const struct kiln_greedy *g, struct kiln_buf *out) {
    const struct kiln_growth *growth = &g->growth;
    const struct kiln_growth_row *first = kiln_growth_first(growth), *last, *most;
    if (g->exposed >= 0) {
        kiln_buf_printf(out,
                "  step %" PRId64 " was the first that the noise could flip: gap %.6f, logits "
                "differ by up to %.6f\n",
                g->exposed, (double)g->path[g->exposed].gap, (double)g->path[g->exposed].noise);
    }
    if (first) {
        kiln_buf_printf(out,
                "  fed the same tokens, they differ from layer %" PRId32 " %s %s on:\n",
                first->layer, first->slot, first->role);
    }
    for (int32_t layer = 0; first && rows_of_layer(growth, layer, &last, &most); layer++) {
        kiln_buf_printf(out,
                "  layer %3" PRId32 "  leaves %.2e (relative rms), at most %.2e apart; most in %s "
                "%s: %.2e\n",
                layer, last->relative_rms, last->max, most->slot, most->role, most->relative_rms);
    }
    if (first) {
        last = &growth->rows[growth->n - 1];
        kiln_buf_printf(out,
                "  logits     %.2e (relative rms), at most %.2e apart, against a gap of %.2e\n",
                last->relative_rms, last->max, (double)g->at_fork.top[0].gap);
    }
}

static enum kiln_status print_case(const struct kiln_twin *twin, size_t prompt, int64_t n_prompt,
        const struct kiln_greedy *g, struct kiln_err *err) {
    struct kiln_buf out = {0};
    kiln_buf_printf(&out, "prompt %zu (%" PRId64 " tokens): ", prompt, n_prompt);
    if (g->fork < 0) {
        kiln_buf_printf(&out,
                "%" PRId64 " tokens identical; closest call: gap %.5f at step %" PRId64
                "; logits differ by at most %.6f\n",
                g->steps, (double)g->min_gap, g->min_step, (double)g->noise);
    } else {
        kiln_buf_printf(&out, "fork at step %" PRId64 ": base ", g->fork);
        kiln_gate_print_token(twin, &g->at_fork.top[0], &out);
        kiln_buf_puts(&out, ", change ");
        kiln_gate_print_token(twin, &g->at_fork.top[1], &out);
        kiln_buf_printf(&out, "; logits there differ by at most %.6f\n", (double)g->at_fork.noise);
        print_why(g, &out);
    }
    return kiln_out_buf(&out, err);
}

static enum kiln_status run_prompts(const struct greedy_options *o, struct kiln_twin *twin,
        const struct kiln_prompts *prompts, struct kiln_gate_tally *tally, struct kiln_err *err) {
    for (size_t i = 0; i < prompts->count; i++) {
        struct kiln_greedy g;
        int64_t n_prompt = (int64_t)prompts->items[i].len;
        enum kiln_status status =
                kiln_greedy_compare(twin, prompts->items[i].ids, n_prompt, o->n, &g, err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "prompt %zu: ", i);
        } else if (!o->common.json) {
            status = print_case(twin, i, n_prompt, &g, err);
        }
        if (status == KILN_STATUS_OK) {
            status = kiln_gate_case(tally, g.fork < 0 ? KILN_GATE_PASSED : KILN_GATE_FAILED,
                    case_json(twin, i, n_prompt, &g), err);
        }
        kiln_greedy_finish(&g);
        KILN_TRY(status);
    }
    return KILN_STATUS_OK;
}

// Says beforehand whether identity can be expected. *extra: for the JSON document.
static enum kiln_status announce(struct kiln_twin *twin, json_t **extra, struct kiln_err *err) {
    struct kiln_buf text = {0};
    enum kiln_status status =
            kiln_regrouped(twin, kiln_engine_ubatch(twin->engine[KILN_SIDE_BASE]), &text, err);
    if (status == KILN_STATUS_OK && text.len > 0) {
        fprintf(stderr,
                "the change sums or rounds floats in another way, so identity cannot be expected "
                "(`kiln gate tolerance` judges such changes):\n%s",
                text.data);
    } else if (status == KILN_STATUS_OK) {
        fputs("every sum has the same order on both sides: identity can be expected\n", stderr);
    }
    *extra = json_pack(
            "{s:b, s:s}", "regroups", text.len > 0, "regrouped", text.data ? text.data : "");
    kiln_buf_finish(&text);
    return status;
}

static enum kiln_status judge(
        const struct greedy_options *o, struct kiln_twin_run *run, struct kiln_err *err) {
    struct kiln_twin *twin = &run->twin;
    struct kiln_prompts prompts;
    struct kiln_gate_tally tally;
    json_t *extra = NULL;
    enum kiln_status status = kiln_gate_start_twin(&tally, &prompts, run, o->prompts, o->save, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_gate_check_room(twin, &prompts, o->n, err);
    }
    if (status == KILN_STATUS_OK) {
        status = announce(twin, &extra, err);
    }
    if (status == KILN_STATUS_OK) {
        status = run_prompts(o, twin, &prompts, &tally, err);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_gate_conclude(&tally, "greedy", o->common.json, extra, err);
        extra = NULL; // taken
    }
    json_decref(extra);
    kiln_gate_finish(&tally);
    kiln_prompts_finish(&prompts);
    return status;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct greedy_options o = {.n = 32};
    kiln_common_init(&o.common);
    int done;
    const struct kiln_opt table[] = {
            KILN_TWIN_FILES(o.files),
            KILN_COMMON_MODEL(&o.common),
            {"--prompts", NULL, KILN_OPT_STRING, (void *)&o.prompts, "FILE",
                    "a prompt a line, or separated by lines of ---, or .jsonl", 0, 0},
            {"-n", NULL, KILN_OPT_INT, &o.n, "N", "tokens to go on with (32)", 1, 100000},
            {"--greedy", NULL, KILN_OPT_FLAG, &o.greedy, NULL, "the only way this gate samples", 0,
                    0},
            {"--seed", NULL, KILN_OPT_INT, &o.seed, "S", "accepted; greedy draws nothing", 0, 0},
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
        return kiln_err_set(err, KILN_STATUS_USAGE, "--prompts FILE names the prompts");
    }
    struct kiln_twin_run run;
    KILN_TRY(kiln_twin_run_open(&run, &o.common, o.files, err));
    enum kiln_status status = judge(&o, &run, err);
    kiln_twin_run_close(&run);
    return status;
}

const struct kiln_cmd kiln_cmd_gate_greedy = {
        .name = "gate greedy",
        .summary = "two configs go on with the same tokens, or the fork is explained",
        .usage = "BASE.ini CHANGE.ini -m MODEL --prompts FILE [-n 32] [--json]",
        .example = "kiln gate greedy base.ini change.ini -m model.gguf --prompts prompts.txt",
        .run = run,
};
