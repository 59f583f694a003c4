// cmd_gate_parity: every number that a kernel writes within its bound of the float64 oracle.
#include "gate.h"

#include "base/mem.h"
#include "common.h"
#include "config/slot.h"
#include "device/sim/sim.h"
#include "lab/parity.h"
#include "lab/save.h"
#include "save.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct parity_options {
    struct kiln_common common;
    struct kiln_opt_list slots;
    const char *variant, *save;
    int all, full;
};

static enum kiln_status open_registry(
        void *arg, struct kiln_registry **registry, struct kiln_err *err) {
    return kiln_common_registry(arg, registry, err);
}

// JSON has no NaN and no infinity.
static json_t *number(double value) {
    return isfinite(value) ? json_real(value)
                           : json_string(isnan(value) ? "nan"
                                         : value > 0  ? "inf"
                                                      : "-inf");
}

static json_t *case_json(const struct kiln_trial *trial, const char *device) {
    const struct kiln_op_verdict *v = &trial->verdict;
    int simulated = strncmp(device, "sim", 3) == 0;
    json_t *detail = json_pack("{s:s, s:s, s:s, s:s, s:s}", "slot", trial->slot, "plugin",
            trial->plugin, "variant", trial->variant, "case", trial->name, "grade",
            simulated ? "simulated" : "measured");
    if (detail && v->worst >= 0) {
        json_object_set_new(detail, "worst", number(v->worst));
        json_object_set_new(detail, "normalized", number(v->normalized));
        json_object_set_new(detail, "row", json_integer((json_int_t)v->row));
        json_object_set_new(detail, "column", json_integer((json_int_t)v->col));
        json_object_set_new(detail, "got", number(v->got));
        json_object_set_new(detail, "want", number(v->want));
        json_object_set_new(detail, "bound", number(v->bound));
    }
    if (detail && trial->text[0]) {
        json_object_set_new(detail, "reason", kiln_json_text(trial->text, strlen(trial->text)));
    }
    return detail;
}

static int alike(const struct kiln_trial *a, const struct kiln_trial *b) {
    return strcmp(a->slot, b->slot) == 0 && strcmp(a->variant, b->variant) == 0 &&
           strcmp(a->plugin, b->plugin) == 0;
}

// One line for the trials first .. end - 1 of a variant, then those that failed, then why others
// were skipped, each reason once.
static void print_group(
        const struct kiln_parity *parity, size_t first, size_t end, struct kiln_buf *out) {
    const struct kiln_trial *t = parity->trials;
    size_t counts[3] = {0, 0, 0}, worst = first;
    double normalized = 0;
    for (size_t i = first; i < end; i++) {
        counts[t[i].result]++;
        worst = t[i].verdict.worst > t[worst].verdict.worst ? i : worst;
        normalized = fmax(normalized, t[i].verdict.normalized);
    }
    kiln_buf_printf(out, "%-20s %s/%s: %zu passed, %zu failed, %zu skipped", t[first].slot,
            t[first].plugin, t[first].variant, counts[0], counts[1], counts[2]);
    if (t[worst].verdict.worst >= 0) {
        kiln_buf_printf(out, "; worst %.3f of the bound (%s), normalized %.1e",
                t[worst].verdict.worst, t[worst].name, normalized);
    }
    kiln_buf_puts(out, "\n");
    for (size_t i = first; i < end; i++) {
        int known = 0;
        for (size_t k = first; k < i && t[i].result == KILN_TRIAL_SKIPPED; k++) {
            known |= t[k].result == KILN_TRIAL_SKIPPED && strcmp(t[k].text, t[i].text) == 0;
        }
        if (t[i].result != KILN_TRIAL_PASSED && !known) {
            kiln_buf_printf(out, "  %s %s: %s\n",
                    t[i].result == KILN_TRIAL_FAILED ? "FAILED" : "skipped", t[i].name, t[i].text);
        }
    }
}

// What the result was taken of: NULL where it is not kept. The trials opened devices of their own.
static enum kiln_status origin_of(const struct parity_options *o,
        const struct kiln_parity_params *params, json_t **origin, struct kiln_err *err) {
    struct kiln_dev *dev;
    if (!o->save) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(kiln_dev_open(&dev, params->device, params->settings, err));
    enum kiln_status status = kiln_save_of(
            "gate", dev, params->registry, params->config, NULL, json_object(), origin, err);
    kiln_dev_close(dev);
    return status;
}

static enum kiln_status report(const struct parity_options *o,
        const struct kiln_parity_params *params, const struct kiln_parity *parity,
        struct kiln_err *err) {
    struct kiln_gate_tally tally;
    struct kiln_buf out = {0};
    KILN_TRY(kiln_gate_start(&tally, err));
    tally.save = o->save;
    enum kiln_status status = origin_of(o, params, &tally.origin, err);
    for (size_t i = 0, end; i < parity->count && status == KILN_STATUS_OK; i = end) {
        for (end = i; end < parity->count && alike(&parity->trials[i], &parity->trials[end]) &&
                      status == KILN_STATUS_OK;
                end++) {
            const struct kiln_trial *trial = &parity->trials[end];
            status = kiln_gate_case(&tally,
                    trial->result == KILN_TRIAL_PASSED   ? KILN_GATE_PASSED
                    : trial->result == KILN_TRIAL_FAILED ? KILN_GATE_FAILED
                                                         : KILN_GATE_SKIPPED,
                    case_json(trial, parity->device), err);
        }
        if (!o->common.json) {
            print_group(parity, i, end, &out);
        }
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_out_buf(&out, err);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_gate_conclude(&tally, "parity", o->common.json,
                json_pack("{s:s}", "device", parity->device), err);
    }
    kiln_buf_finish(&out);
    kiln_gate_finish(&tally);
    return status;
}

static enum kiln_status judge(struct parity_options *o, struct kiln_registry *registry,
        struct kiln_config *config, struct kiln_err *err) {
    struct kiln_parity parity = {.trials = NULL};
    struct kiln_dev_settings settings = kiln_session_dev_settings(config);
    char doing[] = "parity";
    settings.stop = kiln_interrupted;
    settings.sim_checks = KILN_SIM_CHECK_ALL & ~(1u << KILN_SIM_CHECK_ORDERS_NOTHING);
    settings.sim_max_instructions = (uint64_t)o->common.sim_instructions;
    if (o->common.sim_checks) {
        KILN_TRY(kiln_sim_check_parse(o->common.sim_checks, &settings.sim_checks, err));
    }
    const struct kiln_parity_params params = {.device = o->common.device,
            .settings = &settings,
            .registry = registry,
            .config = config,
            .open_registry = open_registry,
            .arg = &o->common,
            .slots = o->slots.items,
            .n_slots = o->slots.count,
            .variant = o->variant,
            .all = o->all,
            .full = o->full,
            .progress = o->common.json ? NULL : kiln_progress_bar(),
            .progress_arg = doing};
    kiln_interrupt_catch();
    enum kiln_status status = kiln_parity_run(&parity, &params, err);
    if (status == KILN_STATUS_OK) {
        status = report(o, &params, &parity, err);
    }
    kiln_parity_finish(&parity);
    return status;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct parity_options o = {.all = 0};
    int done;
    kiln_common_init(&o.common);
    const struct kiln_opt table[] = {
            {"SLOT", NULL, KILN_OPT_REST, &o.slots, NULL,
                    "only these slots, * for any weight type: matmul.*.prefill", 0, 0},
            {"--all", NULL, KILN_OPT_FLAG, &o.all, NULL,
                    "every variant that runs on the device, not only what is bound", 0, 0},
            {"--variant", NULL, KILN_OPT_STRING, (void *)&o.variant, "NAME", "this variant alone",
                    0, 0},
            {"--full", NULL, KILN_OPT_FLAG, &o.full, NULL,
                    "also shapes as long as a prompt: minutes on a CPU", 0, 0},
            {"-t", "--threads", KILN_OPT_INT, &o.common.threads, "N",
                    "trials at once (default: all cores)", 1, 1024},
            {"--device", NULL, KILN_OPT_STRING, (void *)&o.common.device, "D",
                    "cpu, cuda[:N], sim[:sm_XX] or auto", 0, 0},
            KILN_SAVE_OPTION(&o.save),
            KILN_COMMON_SIM(&o.common),
            KILN_COMMON_CONFIG(&o.common),
            KILN_COMMON_OUTPUT(&o.common),
            KILN_OPT_END,
    };
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(kiln_save_check(o.save, err));
    for (size_t i = 0; i < o.slots.count; i++) {
        KILN_TRY(kiln_slot_check(o.slots.items[i], 1, err));
    }
    struct kiln_registry *registry = NULL;
    struct kiln_config *config = NULL;
    enum kiln_status status = kiln_common_registry(&o.common, &registry, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_common_config(&o.common, registry, &config, err);
    }
    if (status == KILN_STATUS_OK) {
        status = judge(&o, registry, config, err);
    }
    kiln_config_destroy(config);
    kiln_registry_destroy(registry);
    return status;
}

const struct kiln_cmd kiln_cmd_gate_parity = {
        .name = "gate parity",
        .summary = "what kernels write against a float64 oracle, element by element",
        .usage = "[SLOT …] [--all] [--full] [--device D] [--json]",
        .example = "kiln gate parity attention.prefill --all --device sim",
        .run = run,
};
