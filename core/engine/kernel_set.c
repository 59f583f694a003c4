// kernel_set: targets, then a survey of the pass on each of them.
#include "engine/kernel_set.h"

#include "base/mem.h"
#include "config/slot.h"
#include "device/device.h"
#include "model/dtype.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum kiln_status kiln_kernel_set_check_bound(
        const struct kiln_kernel_set *set, struct kiln_err *err) {
    for (size_t i = 0; i < set->list.count; i++) {
        const struct kiln_survey_row *op = set->list.rows[i].op;
        if (!op->plugin) {
            return kiln_err_set(err, KILN_STATUS_CONFIG, "%s", op->unsupported);
        }
    }
    return KILN_STATUS_OK;
}

static int same_op(const struct kiln_survey_row *a, const struct kiln_survey_row *b) {
    return strcmp(a->slot, b->slot) == 0 && strcmp(a->role, b->role) == 0;
}

// Whether what is bound to the op is too large for every device of the set.
static int exceeds_everywhere(
        const struct kiln_kernel_set *set, const struct kiln_survey_row *wanted) {
    size_t exceeding = 0;
    for (size_t device = 0; device < set->n_targets; device++) {
        int exceeds = 0;
        for (size_t i = 0; i < set->list.count; i++) {
            const struct kiln_kernel_row *row = &set->list.rows[i];
            if (row->device == &set->devices[device].desc && same_op(row->op, wanted)) {
                if (row->launch) {
                    return 0;
                }
                exceeds = exceeds || row->op->exceeds;
            }
        }
        exceeding += (size_t)exceeds;
    }
    return exceeding == set->n_targets;
}

enum kiln_status kiln_kernel_set_check_fits(
        const struct kiln_kernel_set *set, struct kiln_err *err) {
    for (size_t i = 0; i < set->list.count; i++) {
        const struct kiln_kernel_row *row = &set->list.rows[i];
        if (row->op->exceeds && exceeds_everywhere(set, row->op)) {
            return kiln_err_set(err, KILN_STATUS_DEVICE, "%s: what is bound fits %s; on %s: %s",
                    row->op->slot, set->n_targets > 1 ? "none of the targets" : "no target",
                    row->device->target, row->op->unsupported);
        }
    }
    return KILN_STATUS_OK;
}

void kiln_kernel_set_finish(struct kiln_kernel_set *set) {
    kiln_kernel_list_finish(&set->list);
    for (size_t i = 0; i < set->n_targets; i++) {
        kiln_survey_finish(&set->surveys[i]);
        kiln_device_entry_finish(&set->devices[i]);
    }
    kiln_model_close(set->model);
    kiln_sample_graph_finish(&set->sample);
    *set = (struct kiln_kernel_set){.n_targets = 0};
}

// ---- Targets ------------------------------------------------------------------------------------

static enum kiln_status add_named(
        struct kiln_kernel_set *set, const char *names, struct kiln_err *err) {
    for (const char *at = names;;) {
        char name[64];
        size_t len = strcspn(at, ",");
        if (set->n_targets == KILN_KERNEL_SET_TARGETS || len == 0 || len >= sizeof(name)) {
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "--target takes at most %d targets or devices, separated by commas, such as "
                    "sm_80,sm_90a,gb10; not '%.80s'",
                    (int)KILN_KERNEL_SET_TARGETS, names);
        }
        memcpy(name, at, len);
        name[len] = '\0';
        KILN_TRY(kiln_device_find(&set->devices[set->n_targets++], NULL, name, err));
        if (!at[len]) {
            return KILN_STATUS_OK;
        }
        at += len + 1;
    }
}

static enum kiln_status add_host(struct kiln_kernel_set *set, struct kiln_err *err) {
    const struct kiln_dev_settings settings = {.threads = 0};
    struct kiln_dev *dev = NULL;
    KILN_TRY(kiln_host_open(&dev, &settings, err));
    enum kiln_status status =
            kiln_device_entry_copy(&set->devices[set->n_targets++], &dev->desc, err);
    kiln_dev_close(dev);
    return status;
}

static enum kiln_status add_cuda(
        struct kiln_kernel_set *set, const char *number, struct kiln_err *err) {
    struct kiln_device desc;
    struct kiln_cuda_names names;
    char *end;
    errno = 0;
    long index = strtol(number, &end, 10);
    if (errno || end == number || *end || index < 0 || index > 1023) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--device cuda:%.40s: a device's number is allowed, as `kiln devices` lists them",
                number);
    }
    KILN_TRY(kiln_cuda_describe((int32_t)index, &desc, &names, err));
    return kiln_device_entry_copy(&set->devices[set->n_targets++], &desc, err);
}

static enum kiln_status find_targets(struct kiln_kernel_set *set,
        const struct kiln_kernel_set_params *params, struct kiln_err *err) {
    const char *device = params->device;
    if (!device || strcmp(device, "auto") == 0) {
        return add_named(set, params->targets, err);
    }
    if (strcmp(device, "cpu") == 0) {
        return add_host(set, err);
    }
    if (strncmp(device, "cuda", 4) == 0 && (device[4] == '\0' || device[4] == ':')) {
        return add_cuda(set, device[4] ? device + 5 : "0", err);
    }
    if (strncmp(device, "sim", 3) == 0 && (device[3] == '\0' || device[3] == ':')) {
        return add_named(set, device[3] ? device + 4 : "sm_80", err);
    }
    return kiln_err_set(err, KILN_STATUS_USAGE,
            "--device %.40s: no such device; known: auto, cpu, cuda[:N], sim[:sm_XX]", device);
}

// ---- Surveys ------------------------------------------------------------------------------------

static enum kiln_status survey_graph(struct kiln_kernel_set *set, size_t target,
        const struct kiln_kernel_set_params *params, const struct kiln_graph *graph,
        struct kiln_err *err) {
    const struct kiln_settings *settings = kiln_config_settings(params->config);
    const int64_t tokens = params->tokens;
    struct kiln_survey_params survey = {.registry = params->registry,
            .config = params->config,
            .device = &set->devices[target].desc,
            .graph = graph,
            .rows = tokens,
            .ctx = settings->ctx > tokens ? settings->ctx : (tokens + 255) / 256 * 256,
            .kv_dtype = settings->kv_type == KILN_KV_F32 ? KILN_DTYPE_F32 : KILN_DTYPE_F16,
            .slots = params->slots,
            .n_slots = params->n_slots};
    return params->all ? kiln_survey_all(&set->surveys[target], &survey, err)
                       : kiln_survey_bound(&set->surveys[target], &survey, err);
}

// One layer of every weight type, and of every head size.
static enum kiln_status survey_everything(struct kiln_kernel_set *set, size_t target,
        const struct kiln_kernel_set_params *params, struct kiln_err *err) {
    static const int32_t head_sizes[] = {64, 128, 256};
    const struct kiln_dtype_info *type;
    enum kiln_status status = KILN_STATUS_OK;
    for (uint32_t i = 0; status == KILN_STATUS_OK && (type = kiln_dtype_at(i)) != NULL; i++) {
        for (size_t j = 0; status == KILN_STATUS_OK && type->weight && j < 3; j++) {
            struct kiln_sample_shape shape = kiln_sample_7b;
            struct kiln_sample_graph sample;
            shape.n_layers = 1;
            shape.head_size = head_sizes[j];
            shape.type = shape.more_type = shape.output_type = type->dtype;
            status = kiln_sample_graph_make(&sample, &shape, err);
            if (status == KILN_STATUS_OK) {
                status = survey_graph(set, target, params, &sample.graph, err);
            }
            kiln_sample_graph_finish(&sample);
        }
    }
    return status;
}

enum kiln_status kiln_kernel_set_make(struct kiln_kernel_set *set,
        const struct kiln_kernel_set_params *params, struct kiln_err *err) {
    for (size_t i = 0; i < params->n_slots; i++) {
        KILN_TRY(kiln_slot_check(params->slots[i], 1, err));
    }
    KILN_TRY(find_targets(set, params, err));
    const struct kiln_graph *graph = &set->sample.graph;
    if (params->model) {
        KILN_TRY(kiln_model_open(&set->model, params->model, err));
        graph = &set->model->graph;
    } else {
        KILN_TRY(kiln_sample_graph_make(&set->sample, &kiln_sample_7b, err));
    }
    for (size_t i = 0; i < set->n_targets; i++) {
        KILN_TRY(params->all ? survey_everything(set, i, params, err)
                             : survey_graph(set, i, params, graph, err));
        KILN_TRY(kiln_kernel_list_add(&set->list, &set->surveys[i], &set->devices[i].desc, err));
    }
    if (set->list.count == 0) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "no op of this pass is in a slot that was asked for; `kiln plugins list` shows the "
                "slots");
    }
    return KILN_STATUS_OK;
}
