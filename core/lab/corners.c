// corners: lists and runs the trials, a line for each corner from those of its shapes.
#include "lab/corners.h"

#include "base/buf.h"
#include "device/sim/sim.h"
#include "jit/nvrtc.h"
#include "lab/parity.h"
#include "plugin/schema.h"
#include "plugin/verify.h"

#include <string.h>

struct corners {
    const struct kiln_corners_params *params;
    int fd;
    struct kiln_parity parity;
    size_t counts[KILN_TRIAL_NOT_RUN + 1]; // corners, by result
};

static enum kiln_status open_registry(
        void *arg, struct kiln_registry **registry, struct kiln_err *err) {
    const struct kiln_corners_params *params = arg;
    *registry = NULL;
    KILN_TRY(kiln_registry_create(registry, err));
    return kiln_registry_add_file(*registry, params->path, err);
}

// ---- The report ---------------------------------------------------------------------------------
static void print_where(
        const struct corners *corners, const struct kiln_trial *trial, struct kiln_buf *text) {
    kiln_buf_printf(text, "'%s' for %s on %s", trial->variant, trial->slot, corners->parity.device);
    if (trial->geometry.n_values > 0) {
        kiln_buf_puts(text, ",");
        kiln_geometry_print(&trial->geometry, text);
    }
}

static void say(struct corners *corners, enum kiln_verify_line kind, const struct kiln_buf *text) {
    if (text->failed) {
        kiln_verify_emit(corners->fd, KILN_VERIFY_NOMEM, "out of memory");
    } else {
        kiln_verify_emit(corners->fd, kind, "%s", text->data);
    }
}

// Weight types that trials have differ where a slot leaves them open.
static int same_corner(const struct kiln_trial *a, const struct kiln_trial *b) {
    return a->corner == b->corner && strcmp(a->slot, b->slot) == 0 &&
           strcmp(a->variant, b->variant) == 0 && a->shape.weight_dtype == b->shape.weight_dtype;
}

// The trial that stands for those of a corner: one that failed, else one that passed, else one
// that was refused.
static const struct kiln_trial *decisive(const struct kiln_trial *trials, size_t n) {
    static const enum kiln_trial_result order[] = {
            KILN_TRIAL_FAILED, KILN_TRIAL_PASSED, KILN_TRIAL_REFUSED};
    for (size_t which = 0; which < sizeof(order) / sizeof(order[0]); which++) {
        for (size_t i = 0; i < n; i++) {
            if (trials[i].result == order[which]) {
                return &trials[i];
            }
        }
    }
    return trials;
}

static void say_corner(struct corners *corners, const struct kiln_trial *trials, size_t n) {
    static const enum kiln_verify_line kinds[] = {[KILN_TRIAL_PASSED] = KILN_VERIFY_OK,
            [KILN_TRIAL_FAILED] = KILN_VERIFY_FAILED,
            [KILN_TRIAL_SKIPPED] = KILN_VERIFY_DECLINED,
            [KILN_TRIAL_REFUSED] = KILN_VERIFY_BEYOND,
            [KILN_TRIAL_NOT_RUN] = KILN_VERIFY_FAILED};
    const struct kiln_trial *one = decisive(trials, n);
    struct kiln_buf text = {0};
    size_t passed = 0;
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        passed += trials[i].result == KILN_TRIAL_PASSED;
        worst = trials[i].verdict.worst > worst ? trials[i].verdict.worst : worst;
    }
    corners->counts[one->result]++;
    print_where(corners, one, &text);
    if (one->result == KILN_TRIAL_PASSED) {
        kiln_buf_printf(&text, ": %zu call%s, worst %.3f of the bound", passed,
                passed == 1 ? "" : "s", worst);
    } else {
        kiln_buf_printf(&text, ": %s%s%s", one->name, one->name[0] ? ": " : "", one->text);
    }
    say(corners, kinds[one->result], &text);
    kiln_buf_finish(&text);
}

// How many trials from `trials` on are of one slot and variant; *alike: all of them were declined
// for one reason.
static size_t group_size(const struct kiln_trial *trials, size_t most, int *alike) {
    size_t n = 0;
    *alike = 1;
    for (; n < most && strcmp(trials[n].slot, trials[0].slot) == 0 &&
            strcmp(trials[n].variant, trials[0].variant) == 0;
            n++) {
        *alike = *alike && trials[n].result == KILN_TRIAL_SKIPPED &&
                 strcmp(trials[n].text, trials[0].text) == 0;
    }
    return n;
}

static size_t corner_size(const struct kiln_trial *trials, size_t most) {
    size_t n = 1;
    while (n < most && same_corner(&trials[0], &trials[n])) {
        n++;
    }
    return n;
}

static void say_group(
        struct corners *corners, const struct kiln_trial *trials, size_t n, int alike) {
    size_t count = 0;
    for (size_t i = 0, of; i < n; i += of, count++) {
        of = corner_size(&trials[i], n - i);
        if (!alike) {
            say_corner(corners, &trials[i], of);
        }
    }
    if (alike) {
        corners->counts[KILN_TRIAL_SKIPPED] += count;
        kiln_verify_emit(corners->fd, KILN_VERIFY_DECLINED, "'%s' for %s on %s, %zu corner%s: %s",
                trials[0].variant, trials[0].slot, corners->parity.device, count,
                count == 1 ? "" : "s", trials[0].text);
    }
}

static void report(struct corners *corners) {
    const struct kiln_parity *parity = &corners->parity;
    for (size_t i = 0, n; i < parity->count; i += n) {
        int alike;
        n = group_size(&parity->trials[i], parity->count - i, &alike);
        say_group(corners, &parity->trials[i], n, alike);
    }
    const size_t *counts = corners->counts;
    if (counts[KILN_TRIAL_FAILED] == 0) {
        kiln_verify_emit(corners->fd, KILN_VERIFY_OK,
                "corners on %s: %zu right, %zu declined, %zu refused; schemas of more than three "
                "parameters: one of them at an end at a time%s",
                parity->device, counts[KILN_TRIAL_PASSED], counts[KILN_TRIAL_SKIPPED],
                counts[KILN_TRIAL_REFUSED],
                corners->params->all_types ? "" : "; weight types in turn");
    }
}

// ---- Running ------------------------------------------------------------------------------------
static void begin(void *arg, const struct kiln_trial *trial) {
    struct corners *corners = arg;
    struct kiln_buf text = {0};
    print_where(corners, trial, &text);
    say(corners, KILN_VERIFY_NOW, &text);
    kiln_buf_finish(&text);
}

static void progress(void *arg, int64_t done, int64_t total) {
    const struct corners *corners = arg;
    kiln_verify_emit(corners->fd, KILN_VERIFY_STEP, "%lld %lld", (long long)done, (long long)total);
}

static int has_cuda(const struct kiln_registry *registry) {
    const struct kiln_plugin *plugin = kiln_registry_plugins(registry)[0];
    for (uint32_t i = 0; i < plugin->n_variants; i++) {
        if (plugin->variants[i]->devices & KILN_DEVICE_CUDA) {
            return 1;
        }
    }
    return 0;
}

static enum kiln_status run(
        struct corners *corners, struct kiln_registry *registry, struct kiln_err *err) {
    const struct kiln_dev_settings settings = {.threads = corners->params->threads,
            .sim_checks = KILN_SIM_CHECK_ALL & ~(1u << KILN_SIM_CHECK_ORDERS_NOTHING)};
    struct kiln_corners_params own = *corners->params;
    const struct kiln_parity_params params = {.device = "sim",
            .settings = &settings,
            .registry = registry,
            .open_registry = open_registry,
            .arg = &own,
            .all = 1,
            .corners = own.all_types ? KILN_CORNERS_ALL_TYPES : KILN_CORNERS_EACH,
            .begin = begin,
            .progress = progress,
            .progress_arg = corners};
    KILN_TRY(kiln_parity_run(&corners->parity, &params, err));
    report(corners);
    return KILN_STATUS_OK;
}

void kiln_corners_try(void *arg, int fd) {
    struct corners corners = {.params = arg, .fd = fd};
    struct kiln_registry *registry = NULL;
    struct kiln_nvrtc *nvrtc = NULL;
    struct kiln_err err = {0};
    kiln_verify_emit(fd, KILN_VERIFY_NOW, "corners on sim");
    kiln_verify_emit(fd, KILN_VERIFY_STEP, "0 1");
    enum kiln_status status = open_registry(arg, &registry, &err);
    if (status == KILN_STATUS_OK && has_cuda(registry)) {
        if (kiln_nvrtc_open(&nvrtc, &err) != KILN_STATUS_OK) {
            kiln_verify_emit(fd, KILN_VERIFY_SKIPPED, "corners on sim: %s", err.text);
        } else {
            status = run(&corners, registry, &err);
        }
    }
    if (status != KILN_STATUS_OK) {
        kiln_verify_emit(fd, status == KILN_STATUS_NOMEM ? KILN_VERIFY_NOMEM : KILN_VERIFY_FAILED,
                "corners on sim: %s", err.text);
    }
    kiln_nvrtc_close(nvrtc);
    kiln_parity_finish(&corners.parity);
    kiln_registry_destroy(registry);
}
