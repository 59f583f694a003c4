// cmd_op: one slot's kernel alone.
#include "cmd.h"

#include "base/mem.h"
#include "common.h"
#include "device/sim/sim.h"
#include "lab/op.h"
#include "lab/shape.h"
#include "save.h"
#include "sim_report.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_POINTS = 256
};

struct op_run {
    struct kiln_common common;
    const char *slot, *shape, *from, *role, *depths, *ubatches, *save;
    int64_t runs, layer, seed;
    double peak; // TFLOP/s
    int once;
    struct kiln_registry *registry;
    struct kiln_config *config;
    struct kiln_dev *dev;
    struct kiln_captured captured;
    struct kiln_op_result results[MAX_POINTS];
    size_t n_results;
};

static void finish(struct op_run *run) {
    for (size_t i = 0; i < run->n_results; i++) {
        kiln_op_result_finish(&run->results[i]);
    }
    kiln_captured_finish(&run->captured);
    kiln_dev_close(run->dev);
    kiln_config_destroy(run->config);
    kiln_registry_destroy(run->registry);
    kiln_free(run);
}

static enum kiln_status open_device(struct op_run *run, struct kiln_err *err) {
    kiln_interrupt_catch();
    KILN_TRY(kiln_common_registry(&run->common, &run->registry, err));
    KILN_TRY(kiln_common_config(&run->common, run->registry, &run->config, err));
    struct kiln_dev_settings settings = kiln_session_dev_settings(run->config);
    settings.stop = kiln_interrupted;
    settings.sim_counters = run->common.json || run->save;
    settings.sim_max_instructions = (uint64_t)run->common.sim_instructions;
    if (run->common.sim_checks) {
        KILN_TRY(kiln_sim_check_parse(run->common.sim_checks, &settings.sim_checks, err));
    }
    return kiln_dev_open(&run->dev, run->common.device, &settings, err);
}

// A table's point: rows of a micro-batch behind so many tokens.
static enum kiln_status measure(struct op_run *run, const struct kiln_op_setup *setup,
        const struct kiln_shape *shape, struct kiln_err *err) {
    if (kiln_interrupted()) {
        return kiln_err_set(err, KILN_STATUS_INTERRUPTED, "interrupted");
    }
    struct kiln_op_result *result = &run->results[run->n_results++];
    return run->from ? kiln_op_replay(setup, &run->captured, result, err)
                     : kiln_op_run(setup, run->slot, shape, result, err);
}

static enum kiln_status walk(
        struct op_run *run, const struct kiln_op_setup *setup, struct kiln_err *err) {
    struct kiln_shape shape = {.m = 0};
    struct kiln_numbers ubatches = {.count = 0}, depths = {.count = 0};
    if (run->shape) {
        KILN_TRY(kiln_shape_parse(&shape, run->shape, err));
    }
    if (run->ubatches) {
        KILN_TRY(kiln_parse_list("-ub", run->ubatches, 1, 65536, &ubatches, err));
    }
    if (run->depths) {
        KILN_TRY(kiln_parse_list("-d", run->depths, 0, 1 << 24, &depths, err));
    }
    size_t n_ub = ubatches.count ? ubatches.count : 1, n_d = depths.count ? depths.count : 1;
    if (n_ub * n_d > MAX_POINTS) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "-ub and -d: more than %d points", MAX_POINTS);
    }
    for (size_t i = 0; i < n_ub * n_d; i++) {
        struct kiln_shape point = shape;
        if (ubatches.count) {
            point.m = ubatches.values[i / n_d];
        }
        if (depths.count) {
            int64_t rows = point.m ? point.m : strstr(run->slot, ".decode") ? 1 : 3325;
            point.m = rows;
            point.kv_len = depths.values[i % n_d] + rows;
        }
        KILN_TRY(measure(run, setup, &point, err));
    }
    return KILN_STATUS_OK;
}

// What --json prints and --save keeps: on sim with what the kernels of all calls did, by kernel,
// line and site. NULL: out of memory.
static json_t *document_of(const struct op_run *run, const struct kiln_op_setup *setup) {
    struct kiln_sim_report *report = kiln_sim_dev_report(run->dev);
    json_t *document = kiln_op_json(setup, run->results, run->n_results);
    if (document && report) {
        json_object_set_new(document, "sim", kiln_sim_report_json(report));
    }
    return document;
}

static enum kiln_status keep(
        const struct op_run *run, const struct kiln_op_setup *setup, struct kiln_err *err) {
    json_t *saved = NULL;
    if (!run->save) {
        return KILN_STATUS_OK;
    }
    json_t *result = document_of(run, setup);
    enum kiln_status status = kiln_save_of(
            "op", run->dev, run->registry, run->config, NULL, json_object(), &saved, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_save_keep(run->save, saved, result, err);
    }
    json_decref(saved);
    json_decref(result);
    return status;
}

static enum kiln_status print(
        const struct op_run *run, const struct kiln_op_setup *setup, struct kiln_err *err) {
    if (run->common.json) {
        return kiln_out_json(document_of(run, setup), err);
    }
    struct kiln_buf text = {0};
    if (run->n_results > 1) {
        kiln_op_print_table(setup, run->results, run->n_results, &text);
    } else {
        kiln_op_print(setup, &run->results[0], &text);
    }
    return kiln_out_buf(&text, err);
}

// Numbers that are wrong, and what sim found in kernels.
static enum kiln_status verdict(const struct op_run *run, struct kiln_err *err) {
    const struct kiln_run seen = {.session = {.dev = run->dev}};
    KILN_TRY(kiln_run_verdict(&seen, err));
    for (size_t i = 0; i < run->n_results; i++) {
        if (!kiln_op_passed(&run->results[i])) {
            return kiln_err_set(err, KILN_STATUS_CHECK, "%s %s: the numbers are wrong",
                    run->results[i].slot, run->results[i].shape);
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check(const struct op_run *run, struct kiln_err *err) {
    if (!run->from == !run->slot) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "kiln op takes a slot, such as attention.prefill or matmul.q4_K.decode, or --from "
                "DIR, which says what was captured");
    }
    if (run->from && (run->shape || run->ubatches || run->depths || run->role)) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--from DIR runs the captured call: --shape, --role, -ub and -d do not apply");
    }
    if (run->depths && strncmp(run->slot, "attention.", 10) != 0 &&
            strcmp(run->slot, "rope_kv") != 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "-d is of keys in the cache before the call, and %s has no cache", run->slot);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status op(struct op_run *run, struct kiln_err *err) {
    KILN_TRY(check(run, err));
    KILN_TRY(kiln_save_check(run->save, err));
    if (run->from) {
        KILN_TRY(kiln_captured_read(&run->captured, run->from, err));
    }
    KILN_TRY(open_device(run, err));
    struct kiln_op_setup setup = {.dev = run->dev,
            .registry = run->registry,
            .config = run->config,
            .role = run->role ? run->role : "",
            .layer = (int32_t)run->layer,
            .runs = run->once ? 0 : run->runs,
            .stop = kiln_interrupted,
            .once = run->once,
            .seed = (uint64_t)run->seed,
            .peak = run->peak * 1e12};
    KILN_TRY(kiln_ceilings_of(&setup.ceilings, &run->dev->desc, err));
    KILN_TRY(walk(run, &setup, err));
    KILN_TRY(print(run, &setup, err));
    KILN_TRY(keep(run, &setup, err));
    return verdict(run, err);
}

static enum kiln_status run_op(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct op_run *run = kiln_calloc(1, sizeof(*run));
    int done;
    if (!run) {
        return kiln_err_nomem(err, "the command");
    }
    kiln_common_init(&run->common);
    run->runs = 20;
    run->layer = -1;
    run->seed = 1;
    const struct kiln_opt table[] = {{"SLOT", NULL, KILN_OPT_ENTRY, &run->slot, NULL,
                                             "attention.prefill, matmul.q4_K.decode, norm …", 0, 0},
            {"--shape", NULL, KILN_OPT_STRING, &run->shape, "KEY=N,…",
                    "m, n, k, h, hkv, hd, kv, window … (default: a 7B model's)", 0, 0},
            {"--from", NULL, KILN_OPT_STRING, &run->from, "DIR",
                    "the call that `kiln run --capture` kept there, in place of a slot", 0, 0},
            {"-ub", NULL, KILN_OPT_STRING, &run->ubatches, "N[,N]",
                    "a table: rows of the call, in place of m", 0, 0},
            {"-d", NULL, KILN_OPT_STRING, &run->depths, "D[,D]",
                    "a table: keys in the cache before the call's own", 0, 0},
            {"-r", NULL, KILN_OPT_INT, &run->runs, "R", "samples of each time (20); 0: none", 0,
                    100000},
            {"--once", NULL, KILN_OPT_FLAG, &run->once, NULL,
                    "a single call and nothing else, for a profiler", 0, 0},
            {"--peak", NULL, KILN_OPT_NUMBER, &run->peak, "TFLOPS",
                    "what its arithmetic can do at most, in place of the card's own peak", 0, 1e6},
            {"--role", NULL, KILN_OPT_STRING, &run->role, "ROLE",
                    "which of a layer's ops it is to `when` conditions: ffn_down", 0, 0},
            {"--layer", NULL, KILN_OPT_INT, &run->layer, "L", "likewise its layer", 0, 100000},
            {"--seed", NULL, KILN_OPT_INT, &run->seed, "N", "of the operands (1)", 0, 9e15},
            {"-t", "--threads", KILN_OPT_INT, &run->common.threads, "N",
                    "CPU threads (default: all cores)", 1, 1024},
            {"--device", NULL, KILN_OPT_STRING, &run->common.device, "D",
                    "cpu, cuda[:N], sim[:sm_XX] or auto", 0, 0},
            KILN_SAVE_OPTION(&run->save), KILN_COMMON_SIM(&run->common),
            KILN_COMMON_CONFIG(&run->common), KILN_COMMON_OUTPUT(&run->common), KILN_OPT_END};
    enum kiln_status status = kiln_opt_parse(cmd, table, argc, argv, &done, err);
    if (status == KILN_STATUS_OK && !done) {
        status = op(run, err);
    }
    finish(run);
    return status;
}

const struct kiln_cmd kiln_cmd_op = {
        .name = "op",
        .summary = "one slot's kernel alone: its numbers, its time, percent of the ceiling",
        .usage = "SLOT [--shape m=512,k=4096] [-ub 64,512] [-d 0,2048] | --from DIR [--once] "
                 "[--json]",
        .example = "kiln op attention.prefill --shape m=512,h=28,hkv=4,hd=128,kv=2560",
        .run = run_op,
};
