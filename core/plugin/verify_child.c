// verify_child: the checks themselves, in the process that may die of them.
#include "plugin/verify_impl.h"

#include "config/slot.h"
#include "model/dtype.h"
#include "plugin/arena.h"
#include "plugin/corners.h"
#include "plugin/library.h"
#include "plugin/plan.h"
#include "plugin/registry.h"
#include "plugin/sample.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_FULL_PARAMS = 5 // up to so many parameters, all combinations of corners are tried
};

struct child {
    int fd;
    struct kiln_registry *registry;
    const struct kiln_plugin *plugin;
    int nomem, failed;
};

// One variant in one slot on one device, over all sample shapes and corners.
struct trial {
    struct child *child;
    const struct kiln_variant *variant;
    const struct kiln_device *device;
    const char *slot;
    void *instance;
    uint32_t shape;
    uint64_t planned, declined, beyond;
    struct kiln_err reason; // the first decline
    int failed;             // reported; the rest of the trial would say the same again
};

void kiln_verify_emit(int fd, enum kiln_verify_line kind, const char *fmt, ...) {
    struct kiln_err text = {0};
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text.text, sizeof(text.text), fmt, args);
    va_end(args);
    for (char *at = text.text; *at; at++) {
        *at = *at == '\n' ? ' ' : *at; // a reason may have several lines, a report line has one
    }
    // One write of less than PIPE_BUF: lines of several threads do not mix.
    char line[sizeof(text.text) + 2];
    int len = snprintf(line, sizeof(line), "%c%s\n", (char)kind, text.text);
    for (int done = 0; done < len;) {
        ssize_t n = write(fd, line + done, (size_t)(len - done));
        if (n <= 0) {
            return; // the parent is gone: nobody reads this
        }
        done += (int)n;
    }
}

static void check_symbols(struct child *child, const char *path) {
    struct kiln_buf names = {0};
    struct kiln_err err = {0};
    if (kiln_library_exports(path, &names, &err) != KILN_STATUS_OK) {
        child->failed = 1;
        kiln_verify_emit(child->fd, KILN_VERIFY_FAILED, "symbols: %s", err.text);
    } else if (!names.data || strcmp(names.data, "kiln_plugin_entry\n") != 0) {
        child->failed = 1;
        kiln_verify_emit(child->fd, KILN_VERIFY_FAILED,
                "symbols: exports %s; only kiln_plugin_entry may be seen: build with "
                "-fvisibility=hidden",
                names.data ? names.data : "nothing");
    } else {
        kiln_verify_emit(child->fd, KILN_VERIFY_OK, "symbols: exports kiln_plugin_entry alone");
    }
    kiln_buf_finish(&names);
}

// ---- Plans -----------------------------------------------------------------------------------
// One plan as text; an empty text with OK: declined. The problem is built anew each time, so that a
// plan that holds an address of it shows.
static enum kiln_status plan_text(struct trial *trial, const struct kiln_geometry *geometry,
        struct kiln_buf *text, struct kiln_err *err) {
    const struct kiln_problem *problem = NULL;
    struct kiln_arena arena = {0};
    struct kiln_planned *planned = NULL;
    enum kiln_plan_outcome outcome = KILN_PLAN_DONE;
    enum kiln_status status = kiln_sample_problem(
            &arena, trial->child->plugin, trial->variant, trial->slot, trial->shape, &problem, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_plan_make(trial->child->plugin, trial->variant, trial->instance, problem,
                geometry, trial->device, &outcome, &planned, err);
    }
    if (status == KILN_STATUS_OK && planned) {
        kiln_planned_print(planned, text);
        status = text->failed ? kiln_err_nomem(err, "a plan's text") : status;
    }
    kiln_planned_destroy(planned);
    kiln_arena_finish(&arena);
    return status;
}

static void fail_trial(struct trial *trial, const char *text) {
    kiln_verify_emit(trial->child->fd, KILN_VERIFY_FAILED, "plan of '%s' for %s on %s: %s",
            trial->variant->name, trial->slot, trial->device->name, text);
    trial->failed = trial->child->failed = 1;
}

static void try_geometry(struct trial *trial, const struct kiln_geometry *geometry) {
    struct kiln_buf first = {0}, second = {0};
    struct kiln_err err = {0}, again_err = {0};
    enum kiln_status status = plan_text(trial, geometry, &first, &err);
    enum kiln_status again = plan_text(trial, geometry, &second, &again_err);
    if (status == KILN_STATUS_NOMEM || again == KILN_STATUS_NOMEM) {
        trial->child->nomem = trial->failed = 1;
    } else if (status != KILN_STATUS_OK && status != KILN_STATUS_DEVICE) {
        fail_trial(trial, err.text);
    } else if (status != again || strcmp(err.text, again_err.text) != 0 ||
               first.len != second.len ||
               (first.len > 0 && memcmp(first.data, second.data, first.len) != 0)) {
        fail_trial(trial, "not pure: the same call again gave another plan");
    } else if (status == KILN_STATUS_DEVICE) {
        trial->beyond++;
    } else if (first.len == 0) {
        trial->reason = trial->declined++ ? trial->reason : err;
    } else {
        trial->planned++;
    }
    kiln_buf_finish(&first);
    kiln_buf_finish(&second);
}

static void try_corners(struct trial *trial, const char **names, int64_t *values) {
    const struct kiln_variant *variant = trial->variant;
    struct kiln_geometry geometry = {.struct_size = sizeof(geometry),
            .n_values = variant->n_params,
            .names = names,
            .values = values};
    for (trial->shape = 0; trial->shape < KILN_SAMPLE_N_SHAPES; trial->shape++) {
        uint32_t n = kiln_corners_count(variant, MAX_FULL_PARAMS);
        for (uint32_t i = 0; i < n && !trial->failed; i++) {
            kiln_corner_values(variant, MAX_FULL_PARAMS, i, kiln_sample_head_size(trial->shape),
                    trial->device->cc, values);
            try_geometry(trial, &geometry);
        }
    }
}

static void report_trial(const struct trial *trial) {
    if (trial->failed) {
        return;
    }
    if (trial->planned == 0) {
        kiln_verify_emit(trial->child->fd, KILN_VERIFY_DECLINED, "plan of '%s' for %s on %s: %s",
                trial->variant->name, trial->slot, trial->device->name,
                trial->declined ? trial->reason.text : "beyond the device's limits throughout");
        return;
    }
    kiln_verify_emit(trial->child->fd, KILN_VERIFY_OK,
            "plan of '%s' for %s on %s: %" PRIu64 " planned, %" PRIu64 " declined, %" PRIu64
            " beyond the device's limits",
            trial->variant->name, trial->slot, trial->device->name, trial->planned, trial->declined,
            trial->beyond);
}

static void try_slot(struct child *child, const struct kiln_variant *variant, const char *slot,
        const struct kiln_device *device) {
    struct trial trial = {.child = child, .variant = variant, .device = device, .slot = slot};
    struct kiln_arena arena = {0};
    struct kiln_err err = {0};
    kiln_verify_emit(child->fd, KILN_VERIFY_NOW, "plan of '%s' for %s on %s", variant->name, slot,
            device->name);
    const char **names = kiln_arena_calloc(&arena, variant->n_params, sizeof(*names));
    int64_t *values = kiln_arena_calloc(&arena, variant->n_params, sizeof(*values));
    if (!names || !values) {
        child->nomem = 1;
    } else if (kiln_registry_start(child->registry, child->plugin, device, &trial.instance, &err) !=
               KILN_STATUS_OK) {
        fail_trial(&trial, err.text);
    } else {
        for (uint32_t i = 0; i < variant->n_params; i++) {
            names[i] = variant->params[i]->name;
        }
        try_corners(&trial, names, values);
        report_trial(&trial);
    }
    kiln_arena_finish(&arena);
}

// A slot with "*" is tried with every weight type.
static void try_pattern(struct child *child, const struct kiln_variant *variant,
        const char *pattern, const struct kiln_device *device) {
    const char *star = strchr(pattern, '*');
    if (!star) {
        try_slot(child, variant, pattern, device);
        return;
    }
    const struct kiln_dtype_info *info;
    for (uint32_t i = 0; (info = kiln_dtype_at(i)) != NULL; i++) {
        struct kiln_buf slot = {0};
        kiln_buf_append(&slot, pattern, (size_t)(star - pattern));
        kiln_buf_printf(&slot, "%s%s", info->name, star + 1);
        if (slot.failed) {
            child->nomem = 1;
        } else if (info->weight) {
            try_slot(child, variant, slot.data, device);
        }
        kiln_buf_finish(&slot);
    }
}

static void check_plans(struct child *child) {
    const struct kiln_device *device;
    for (uint32_t i = 0; i < child->plugin->n_variants; i++) {
        const struct kiln_variant *variant = child->plugin->variants[i];
        for (uint32_t k = 0; (device = kiln_sample_device(k)) != NULL; k++) {
            for (uint32_t s = 0; (variant->devices & device->kind) && s < variant->n_slots; s++) {
                try_pattern(child, variant, variant->slots[s], device);
            }
        }
    }
}

void kiln_verify_child(const struct kiln_verify_params *params, int fd) {
    struct child child = {.fd = fd};
    struct kiln_err err = {0};
    kiln_verify_emit(child.fd, KILN_VERIFY_NOW, "loading");
    enum kiln_status status = kiln_registry_create(&child.registry, &err);
    if (status == KILN_STATUS_OK) {
        status = kiln_registry_add_file(child.registry, params->path, &err);
    }
    if (status != KILN_STATUS_OK) {
        kiln_verify_emit(child.fd,
                status == KILN_STATUS_NOMEM ? KILN_VERIFY_NOMEM : KILN_VERIFY_REFUSED, "%s",
                err.text);
        kiln_registry_destroy(child.registry);
        return;
    }
    unsigned major, minor;
    child.plugin = kiln_registry_plugins(child.registry)[0];
    kiln_registry_abi(child.registry, 0, &major, &minor);
    kiln_verify_emit(child.fd, KILN_VERIFY_OK, "accepted: plugin '%s' %s, ABI %u.%u, %u variant%s",
            child.plugin->name, child.plugin->version, major, minor, child.plugin->n_variants,
            child.plugin->n_variants == 1 ? "" : "s");
    check_symbols(&child, params->path);
    check_plans(&child);
    kiln_verify_emit(child.fd, KILN_VERIFY_NOW, "finish()");
    kiln_registry_destroy(child.registry);
    if (!child.nomem && !child.failed && params->more) {
        params->more(params->more_arg, fd);
    }
    if (child.nomem) {
        kiln_verify_emit(child.fd, KILN_VERIFY_NOMEM, "out of memory");
    }
}
