// cmd_bench: prefill and decode speed, in rows as llama-bench prints them.
#include "cmd.h"

#include "base/mem.h"
#include "common.h"
#include "sweep.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct bench_options {
    struct kiln_common common;
    struct kiln_sweep_texts texts;
    int64_t repeats;
};

struct bench_row {
    struct kiln_workload load;
    int64_t ubatch;
    double avg_ts, stddev_ts; // tokens a second
    double avg_ns;
};

static enum kiln_status repeat(struct kiln_workload_run *run, struct kiln_engine *engine,
        struct bench_row *row, int64_t repeats, struct kiln_err *err) {
    double sum = 0, squares = 0, total = 0, seconds;
    KILN_TRY(kiln_workload_warm(run, engine, NULL, err)); // not counted
    for (int64_t i = 0; i < repeats; i++) {
        KILN_TRY(kiln_workload_time(run, engine, &seconds, err));
        double rate = (double)kiln_workload_tokens(&row->load) / seconds;
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

static enum kiln_status measure(struct kiln_session *session, struct bench_row *row,
        int64_t repeats, struct kiln_err *err) {
    struct kiln_workload_run run;
    enum kiln_status status =
            kiln_workload_open(&run, &row->load, session->dev, session->model->params.n_vocab, err);
    if (status == KILN_STATUS_OK) {
        status = repeat(&run, session->engine, row, repeats, err);
    }
    kiln_workload_close(&run);
    return status;
}

static json_t *row_json(const struct kiln_session *session, const struct bench_row *row) {
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o}", "model",
            session->model->arch->name, "device", session->dev->id, "graph",
            kiln_engine_graph(session->engine) ? "on" : "off", "n_prompt",
            (json_int_t)row->load.n_prompt, "n_gen", (json_int_t)row->load.n_gen, "n_depth",
            (json_int_t)row->load.depth, "n_ubatch", (json_int_t)row->ubatch, "n_threads",
            (json_int_t)kiln_pool_threads(session->dev->pool), "avg_ts", row->avg_ts, "stddev_ts",
            row->stddev_ts, "avg_ns", row->avg_ns, "device_memory", kiln_json_memory(session));
}

static enum kiln_status print_row(
        const struct kiln_session *session, const struct bench_row *row, struct kiln_err *err) {
    char name[64];
    kiln_workload_name(&row->load, name, sizeof(name));
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

// A session and where its rows go.
struct place {
    const struct bench_options *options;
    const struct kiln_config *config;
    struct kiln_session *session;
    json_t *rows;
};

static enum kiln_status run_row(void *arg, const struct kiln_workload *load, struct kiln_err *err) {
    const struct place *place = arg;
    const struct bench_options *o = place->options;
    struct bench_row row = {.load = *load, .ubatch = kiln_config_settings(place->config)->ubatch};
    KILN_TRY(measure(place->session, &row, o->repeats, err));
    if (o->common.json) {
        return json_array_append_new(place->rows, row_json(place->session, &row)) == 0
                       ? KILN_STATUS_OK
                       : kiln_err_nomem(err, "the JSON output");
    }
    return print_row(place->session, &row, err);
}

static enum kiln_status run_sweep(struct bench_options *o, const struct kiln_sweep *sweep,
        json_t *rows, struct kiln_err *err) {
    if (o->common.ctx == 0) {
        o->common.ctx = kiln_sweep_ctx(sweep);
    }
    if (!o->common.json) {
        KILN_TRY(print_head(err));
    }
    for (size_t i = 0; i < sweep->ubatches.count; i++) {
        struct kiln_run run;
        o->common.ubatch = sweep->ubatches.values[i];
        KILN_TRY(kiln_run_open(&run, &o->common, err));
        struct place place = {
                .options = o, .config = run.config, .session = &run.session, .rows = rows};
        enum kiln_status status = kiln_sweep_each(sweep, run_row, &place, err);
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
            .texts = {.prompts = "512", .gens = "128", .depths = "0", .ubatches = "0"},
            .repeats = 5};
    kiln_common_init(&o.common);
    int done;
    const struct kiln_opt table[] = {
            KILN_COMMON_MODEL(&o.common),
            KILN_SWEEP_OPTIONS(&o.texts, "512", "128", "as configured"),
            {"-r", NULL, KILN_OPT_INT, &o.repeats, "R", "repeats of each (5)", 1, 10000},
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
    struct kiln_sweep sweep;
    KILN_TRY(kiln_sweep_read(&sweep, &o.texts, 0, err));
    json_t *rows = json_array();
    if (!rows) {
        return kiln_err_nomem(err, "the JSON output");
    }
    enum kiln_status status = run_sweep(&o, &sweep, rows, err);
    if (status == KILN_STATUS_OK && o.common.json) {
        return kiln_out_json(rows, err);
    }
    json_decref(rows);
    return status;
}

const struct kiln_cmd kiln_cmd_bench = {
        .name = "bench",
        .summary = "prefill and decode speed",
        .usage = "-m MODEL [-p 512,3325] [-n 128] [-r 5] [-ub N] [-d 0] [--json]",
        .example = "kiln bench -m model.gguf -p 512 -n 64 -r 3",
        .run = run,
};
