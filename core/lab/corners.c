// corners: lists and runs the trials, a line for each corner from those of its shapes.
//
// A variant may be made for a target other than sim's default one. So where no device is named,
// what declines every corner of a slot on the default is not told of there but tried once more on
// Hopper.
#include "lab/corners.h"

#include "base/buf.h"
#include "base/mem.h"
#include "device/sim/sim.h"
#include "jit/nvrtc.h"
#include "lab/parity.h"
#include "plugin/schema.h"
#include "plugin/verify.h"

#include <string.h>

#define HOPPER "sim:sm_90a"

struct later { // a slot and its variant
    char slot[64];
    const char *variant; // the registry's
};

struct corners {
    const struct kiln_corners_params *params;
    int fd;
    struct kiln_registry *registry;
    struct kiln_parity parity;
    size_t counts[KILN_TRIAL_NOT_RUN + 1]; // corners, by result
    struct later *later;                   // (n_later): to be tried on Hopper
    size_t n_later, cap_later;
    int puts_off; // fill `later`
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

// How many trials from `trials` on are of one slot and variant; *declined: all of them were;
// *alike: for one reason.
static size_t group_size(const struct kiln_trial *trials, size_t most, int *declined, int *alike) {
    size_t n = 0;
    *declined = *alike = 1;
    for (; n < most && strcmp(trials[n].slot, trials[0].slot) == 0 &&
            strcmp(trials[n].variant, trials[0].variant) == 0;
            n++) {
        *declined = *declined && trials[n].result == KILN_TRIAL_SKIPPED;
        *alike = *alike && *declined && strcmp(trials[n].text, trials[0].text) == 0;
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

static enum kiln_status put_off(
        struct corners *corners, const struct kiln_trial *trial, struct kiln_err *err) {
    if (kiln_grow(&corners->later, &corners->cap_later, corners->n_later + 1,
                sizeof(*corners->later)) != 0) {
        return kiln_err_nomem(err, "corners to be tried later");
    }
    struct later *later = &corners->later[corners->n_later++];
    memcpy(later->slot, trial->slot, sizeof(later->slot));
    later->variant = trial->variant;
    return KILN_STATUS_OK;
}

static enum kiln_status report(struct corners *corners, struct kiln_err *err) {
    const struct kiln_parity *parity = &corners->parity;
    for (size_t i = 0, n; i < parity->count; i += n) {
        const struct kiln_trial *trials = &parity->trials[i];
        int declined, alike;
        n = group_size(trials, parity->count - i, &declined, &alike);
        if (declined && corners->puts_off) {
            KILN_TRY(put_off(corners, trials, err));
        } else {
            say_group(corners, trials, n, alike);
        }
    }
    return KILN_STATUS_OK;
}

static void say_counts(struct corners *corners, const char *device) {
    const size_t *counts = corners->counts;
    if (counts[KILN_TRIAL_FAILED] == 0) {
        kiln_verify_emit(corners->fd, KILN_VERIFY_OK,
                "corners on %s: %zu right, %zu declined, %zu refused; schemas of more than three "
                "parameters: one of them at an end at a time%s",
                device, counts[KILN_TRIAL_PASSED], counts[KILN_TRIAL_SKIPPED],
                counts[KILN_TRIAL_REFUSED],
                corners->params->all_types ? "" : "; weight types in turn");
    }
    memset(corners->counts, 0, sizeof(corners->counts));
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

// The trials of one variant in some slots, or of all (variant NULL).
static enum kiln_status run(struct corners *corners, const char *device, const char *variant,
        const char *const *slots, size_t n_slots, struct kiln_err *err) {
    const struct kiln_dev_settings settings = {.threads = corners->params->threads,
            .sim_checks = KILN_SIM_CHECK_ALL & ~(1u << KILN_SIM_CHECK_ORDERS_NOTHING)};
    struct kiln_corners_params own = *corners->params;
    const struct kiln_parity_params params = {.device = device,
            .settings = &settings,
            .registry = corners->registry,
            .open_registry = open_registry,
            .arg = &own,
            .slots = slots,
            .n_slots = n_slots,
            .variant = variant,
            .all = 1,
            .corners = own.all_types ? KILN_CORNERS_ALL_TYPES : KILN_CORNERS_EACH,
            .begin = begin,
            .progress = progress,
            .progress_arg = corners};
    kiln_parity_finish(&corners->parity);
    corners->parity = (struct kiln_parity){0};
    KILN_TRY(kiln_parity_run(&corners->parity, &params, err));
    return report(corners, err);
}

// What was put off, a variant after the other in all its slots.
static enum kiln_status run_later(struct corners *corners, struct kiln_err *err) {
    const char **slots = kiln_calloc(corners->n_later, sizeof(*slots));
    enum kiln_status status = slots ? KILN_STATUS_OK : kiln_err_nomem(err, "slots");
    corners->puts_off = 0;
    for (size_t i = 0; status == KILN_STATUS_OK && i < corners->n_later; i++) {
        const char *variant = corners->later[i].variant;
        size_t n = 0;
        for (size_t k = i; variant && k < corners->n_later; k++) {
            if (corners->later[k].variant && strcmp(corners->later[k].variant, variant) == 0) {
                slots[n++] = corners->later[k].slot;
                corners->later[k].variant = NULL; // done
            }
        }
        if (n > 0) {
            status = run(corners, HOPPER, variant, slots, n, err);
        }
    }
    kiln_free(slots);
    return status;
}

static enum kiln_status run_all(struct corners *corners, struct kiln_err *err) {
    const char *device = corners->params->device;
    corners->puts_off = device == NULL;
    KILN_TRY(run(corners, device ? device : "sim", NULL, NULL, 0, err));
    char first[sizeof(corners->parity.device)];
    memcpy(first, corners->parity.device, sizeof(first));
    say_counts(corners, first);
    if (corners->n_later > 0) {
        KILN_TRY(run_later(corners, err));
        say_counts(corners, corners->parity.device);
    }
    return KILN_STATUS_OK;
}

void kiln_corners_try(void *arg, int fd) {
    struct corners corners = {.params = arg, .fd = fd};
    struct kiln_nvrtc *nvrtc = NULL;
    struct kiln_err err = {0};
    kiln_verify_emit(fd, KILN_VERIFY_NOW, "corners on sim");
    kiln_verify_emit(fd, KILN_VERIFY_STEP, "0 1");
    enum kiln_status status = open_registry(arg, &corners.registry, &err);
    if (status == KILN_STATUS_OK && has_cuda(corners.registry)) {
        if (kiln_nvrtc_open(&nvrtc, &err) != KILN_STATUS_OK) {
            kiln_verify_emit(fd, KILN_VERIFY_SKIPPED, "corners on sim: %s", err.text);
        } else {
            status = run_all(&corners, &err);
        }
    }
    if (status != KILN_STATUS_OK) {
        kiln_verify_emit(fd, status == KILN_STATUS_NOMEM ? KILN_VERIFY_NOMEM : KILN_VERIFY_FAILED,
                "corners on sim: %s", err.text);
    }
    kiln_nvrtc_close(nvrtc);
    kiln_parity_finish(&corners.parity);
    kiln_free(corners.later);
    kiln_registry_destroy(corners.registry);
}
