// cmd_bench: prefill and decode speed, in rows as llama-bench prints them.
#include "cmd.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/ranges.h"
#include "common.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct bench_options {
    struct kiln_common common;
    const char *prompts, *gens, *depths, *ubatches;
    int64_t repeats;
};

struct bench_row {
    int64_t n_prompt, n_gen, depth, ubatch;
    double avg_ts, stddev_ts; // tokens a second
    double avg_ns;
};

// Ids that any model has; which ones does not matter to the time.
static enum kiln_status feed(
        struct kiln_session *session, int64_t n, int64_t chunk, struct kiln_err *err) {
    int64_t n_vocab = session->model->params.n_vocab;
    int32_t *ids = kiln_calloc((size_t)(n > 0 ? n : 1), sizeof(*ids));
    if (!ids) {
        return kiln_err_nomem(err, "a benchmark's prompt");
    }
    for (int64_t i = 0; i < n; i++) {
        ids[i] = (int32_t)((i * 7919 + 1) % n_vocab);
    }
    enum kiln_status status = KILN_STATUS_OK;
    float *logits = kiln_alloc((size_t)n_vocab * sizeof(*logits));
    if (!logits) {
        status = kiln_err_nomem(err, "logits");
    }
    for (int64_t at = 0; status == KILN_STATUS_OK && at < n; at += chunk) {
        int64_t rows = n - at < chunk ? n - at : chunk;
        status = kiln_engine_eval(session->engine, ids + at, rows, logits, err);
    }
    kiln_free(logits);
    kiln_free(ids);
    return status;
}

static enum kiln_status measure_once(struct kiln_session *session, const struct bench_row *row,
        double *seconds, struct kiln_err *err) {
    int64_t n = row->n_prompt > 0 ? row->n_prompt : row->n_gen;
    kiln_engine_truncate(session->engine, 0);
    KILN_TRY(feed(session, row->depth, row->depth > 0 ? row->depth : 1, err));
    kiln_range_push(kiln_range_name("run"), n);
    double start = kiln_clock_seconds();
    enum kiln_status status = feed(session, n, row->n_prompt > 0 ? n : 1, err);
    *seconds = kiln_clock_seconds() - start;
    kiln_range_pop();
    return status;
}

static enum kiln_status measure(struct kiln_session *session, struct bench_row *row,
        int64_t repeats, struct kiln_err *err) {
    int64_t n = row->n_prompt > 0 ? row->n_prompt : row->n_gen;
    double sum = 0, squares = 0, total = 0, seconds;
    KILN_TRY(measure_once(session, row, &seconds, err)); // warms caches and schedules, not counted
    for (int64_t i = 0; i < repeats; i++) {
        KILN_TRY(measure_once(session, row, &seconds, err));
        double rate = (double)n / seconds;
        sum += rate;
        squares += rate * rate;
        total += seconds;
    }
    double r = (double)repeats;
    row->avg_ts = sum / r;
    double variance = repeats > 1 ? (squares - sum * sum / r) / (r - 1) : 0;
    row->stddev_ts = variance > 0 ? sqrt(variance) : 0;
    row->avg_ns = total / r * 1e9;
    return KILN_STATUS_OK;
}

static void row_name(const struct bench_row *row, char *name, size_t size) {
    int len = row->n_prompt > 0 ? snprintf(name, size, "pp%" PRId64, row->n_prompt)
                                : snprintf(name, size, "tg%" PRId64, row->n_gen);
    if (row->depth > 0 && len > 0) {
        snprintf(name + len, size - (size_t)len, " @ d%" PRId64, row->depth);
    }
}

static json_t *row_json(const struct kiln_session *session, const struct bench_row *row) {
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o}", "model",
            session->model->arch->name, "device", session->dev->id, "graph",
            kiln_engine_graph(session->engine) ? "on" : "off", "n_prompt",
            (json_int_t)row->n_prompt, "n_gen", (json_int_t)row->n_gen, "n_depth",
            (json_int_t)row->depth, "n_ubatch", (json_int_t)row->ubatch, "n_threads",
            (json_int_t)kiln_pool_threads(session->dev->pool), "avg_ts", row->avg_ts, "stddev_ts",
            row->stddev_ts, "avg_ns", row->avg_ns, "device_memory", kiln_json_memory(session));
}

static enum kiln_status print_row(
        const struct kiln_session *session, const struct bench_row *row, struct kiln_err *err) {
    char name[64];
    row_name(row, name, sizeof(name));
    struct kiln_buf out = {0};
    kiln_buf_printf(&out,
            "| %-8s | %8.2f MiB | %-8s | %7u | %7" PRId64 " | %-14s | %10.2f ± %.2f |\n",
            session->model->arch->name, (double)kiln_model_weight_bytes(session->model) / 1048576,
            session->dev->id, kiln_pool_threads(session->dev->pool), row->ubatch, name, row->avg_ts,
            row->stddev_ts);
    return kiln_out_buf(&out, err);
}

static enum kiln_status print_head(struct kiln_err *err) {
    static const char head[] = "| model    |         size | device   | threads | ubatch  | test    "
                               "       |          t/s "
                               "|\n"
                               "| -------- | -----------: | -------- | ------: | ------: | "
                               "-------------- | -----------: "
                               "|\n";
    return kiln_out(head, sizeof(head) - 1, err);
}

struct plan {
    struct kiln_numbers prompts, gens, depths, ubatches;
};

static enum kiln_status read_plan(
        const struct bench_options *o, struct plan *plan, struct kiln_err *err) {
    KILN_TRY(kiln_parse_list("-p", o->prompts, 0, 1000000, &plan->prompts, err));
    KILN_TRY(kiln_parse_list("-n", o->gens, 0, 1000000, &plan->gens, err));
    KILN_TRY(kiln_parse_list("-d", o->depths, 0, 1000000, &plan->depths, err));
    return kiln_parse_list("-ub", o->ubatches, 1, 65536, &plan->ubatches, err);
}

static int64_t largest(const struct kiln_numbers *list) {
    int64_t max = 0;
    for (size_t i = 0; i < list->count; i++) {
        max = list->values[i] > max ? list->values[i] : max;
    }
    return max;
}

static enum kiln_status run_row(const struct bench_options *o, struct kiln_session *session,
        struct bench_row row, json_t *rows, struct kiln_err *err) {
    if (row.n_prompt + row.n_gen == 0) { // "-p 0" and "-n 0" leave a test out
        return KILN_STATUS_OK;
    }
    KILN_TRY(measure(session, &row, o->repeats, err));
    if (o->common.json) {
        return json_array_append_new(rows, row_json(session, &row)) == 0
                       ? KILN_STATUS_OK
                       : kiln_err_nomem(err, "the JSON output");
    }
    return print_row(session, &row, err);
}

static enum kiln_status run_rows(const struct bench_options *o, const struct plan *plan,
        struct kiln_session *session, int64_t ubatch, json_t *rows, struct kiln_err *err) {
    for (size_t d = 0; d < plan->depths.count; d++) {
        struct bench_row row = {.depth = plan->depths.values[d], .ubatch = ubatch};
        for (size_t i = 0; i < plan->prompts.count; i++) {
            row.n_prompt = plan->prompts.values[i];
            KILN_TRY(run_row(o, session, row, rows, err));
        }
        row.n_prompt = 0;
        for (size_t i = 0; i < plan->gens.count; i++) {
            row.n_gen = plan->gens.values[i];
            KILN_TRY(run_row(o, session, row, rows, err));
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status run_plan(
        struct bench_options *o, const struct plan *plan, json_t *rows, struct kiln_err *err) {
    int64_t prompt = largest(&plan->prompts), gen = largest(&plan->gens);
    if (o->common.ctx == 0) {
        o->common.ctx = largest(&plan->depths) + (prompt > gen ? prompt : gen);
        o->common.ctx = o->common.ctx < 16 ? 16 : o->common.ctx;
    }
    if (!o->common.json) {
        KILN_TRY(print_head(err));
    }
    for (size_t i = 0; i < plan->ubatches.count; i++) {
        struct kiln_run run;
        o->common.ubatch = plan->ubatches.values[i];
        KILN_TRY(kiln_run_open(&run, &o->common, err));
        enum kiln_status status = run_rows(o, plan, &run.session, o->common.ubatch, rows, err);
        if (status == KILN_STATUS_OK && o->common.verbose) {
            kiln_print_memory(&run.session);
        }
        if (status == KILN_STATUS_OK) {
            status = kiln_run_verdict(&run, err);
        }
        kiln_run_close(&run);
        KILN_TRY(status);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct bench_options o = {
            .prompts = "512", .gens = "128", .depths = "0", .ubatches = "512", .repeats = 5};
    kiln_common_init(&o.common);
    int done;
    const struct kiln_opt table[] = {
            KILN_COMMON_MODEL(&o.common),
            {"-p", NULL, KILN_OPT_STRING, &o.prompts, "N[,N]", "prefill of N tokens (512); 0: none",
                    0, 0},
            {"-n", NULL, KILN_OPT_STRING, &o.gens, "N[,N]", "decode of N tokens (128); 0: none", 0,
                    0},
            {"-r", NULL, KILN_OPT_INT, &o.repeats, "R", "repeats of each (5)", 1, 10000},
            {"-d", NULL, KILN_OPT_STRING, &o.depths, "D[,D]", "tokens in the context before (0)", 0,
                    0},
            {"-ub", "--ubatch", KILN_OPT_STRING, &o.ubatches, "N[,N]",
                    "tokens of a prefill chunk (512)", 0, 0},
            {"-t", "--threads", KILN_OPT_INT, &o.common.threads, "N", "CPU threads", 1, 1024},
            {"-c", "--ctx", KILN_OPT_INT, &o.common.ctx, "N", "context (what the tests need)", 16,
                    1048576},
            {"--device", NULL, KILN_OPT_STRING, &o.common.device, "D",
                    "cpu, cuda[:N], sim[:sm_XX] or auto", 0, 0},
            KILN_COMMON_GRAPH(&o.common),
            KILN_COMMON_SIM(&o.common),
            KILN_COMMON_CONFIG(&o.common),
            KILN_COMMON_OUTPUT(&o.common),
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    struct plan plan;
    KILN_TRY(read_plan(&o, &plan, err));
    json_t *rows = json_array();
    if (!rows) {
        return kiln_err_nomem(err, "the JSON output");
    }
    enum kiln_status status = run_plan(&o, &plan, rows, err);
    if (status == KILN_STATUS_OK && o.common.json) {
        return kiln_out_json(rows, err);
    }
    json_decref(rows);
    return status;
}

const struct kiln_cmd kiln_cmd_bench = {
        .name = "bench",
        .summary = "prefill and decode speed",
        .usage = "-m MODEL [-p 512,3325] [-n 128] [-r 5] [-ub 512] [-d 0] [--json]",
        .example = "kiln bench -m model.gguf -p 512 -n 64 -r 3",
        .run = run,
};
