// parity_list: which variants, types, geometries and shapes are tried, as trials that have not run.
#include "lab/parity_impl.h"

#include "base/mem.h"
#include "config/slot.h"
#include "model/dtype.h"
#include "plugin/corners.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_FULL_PARAMS = 3 // up to so many parameters, all combinations of corners are run
};

static int wanted(const struct kiln_parity_params *params, const char *slot) {
    int found = params->n_slots == 0;
    for (size_t i = 0; i < params->n_slots; i++) {
        found |= kiln_slot_overlap(params->slots[i], slot);
    }
    return found;
}

static enum kiln_status add_trial(
        struct kiln_parity *parity, const struct kiln_trial *trial, struct kiln_err *err) {
    if (kiln_grow(&parity->trials, &parity->cap, parity->count + 1, sizeof(*parity->trials)) != 0) {
        return kiln_err_nomem(err, "the trials");
    }
    parity->trials[parity->count++] = *trial;
    return KILN_STATUS_OK;
}

// Whether an operand of the first op is a block of 32 columns in the format that a shape asks for.
static int has_blocks(const struct kiln_variant *variant, uint32_t format) {
    for (uint32_t i = 0; i < variant->n_ios; i++) {
        const struct kiln_io *io = variant->ios[i];
        const char *name = io->formats[format < io->n_formats ? format : io->n_formats - 1];
        if ((io->operand == KILN_OPERAND_IN || io->operand == KILN_OPERAND_OUT) &&
                !kiln_dtype_by_name(name) && strcmp(name, "f16_rows") != 0) {
            return 1;
        }
    }
    return 0;
}

struct candidate {
    const struct kiln_plugin *plugin;
    const struct kiln_variant *variant;
    const struct kiln_binding *binding; // NULL: defaults
    const char *slot;
    uint32_t dtype; // of its weights
    enum kiln_op_kind op;
    enum kiln_phase phase;
    int32_t cc;  // of the device
    int follows; // only those that fill the attention behind the slot, too
};

static int has_matrices(const struct kiln_variant *variant) {
    for (uint32_t i = 0; i < variant->n_follows; i++) {
        if (strncmp(variant->follows[i], "matmul", 6) == 0) {
            return 1;
        }
    }
    return 0;
}

static int has_attention(const struct kiln_variant *variant) {
    return variant->n_follows == 1 && strcmp(variant->follows[0], "attention") == 0;
}

// Shape number i of a candidate; 0 past the end.
static int shape_of(const struct kiln_parity_params *params, const struct candidate *of, uint32_t i,
        struct kiln_parity_shape *shape) {
    const struct kiln_dtype_info *info = kiln_dtype_info(of->dtype);
    int group = has_matrices(of->variant);
    int prefill = strstr(of->slot, ".prefill") != NULL;
    // A norm and its matrices are made for a few rows, as gemv is.
    const char *like = group && !prefill            ? "matmul.f32.decode"
                       : has_attention(of->variant) ? "rope_kv attention"
                                                    : of->slot;
    int weights = group || strncmp(of->slot, "matmul.", 7) == 0 || strcmp(of->slot, "embed") == 0;
    int64_t columns = weights ? info->elems : 1;
    if (!kiln_parity_shape(like, params->full, i, columns, shape)) {
        return 0;
    }
    if (has_blocks(of->variant, shape->shape.format) && columns < 32) {
        (void)kiln_parity_shape(like, params->full, i, 32, shape);
    }
    if (weights) {
        uint32_t f32 = KILN_SHAPE_F32;
        shape->shape.weight_dtype = of->dtype == KILN_DTYPE_F32 ? f32 : of->dtype;
        if (group && i % 2 && of->dtype == KILN_DTYPE_Q4_K) {
            shape->shape.last_dtype = KILN_DTYPE_Q6_K;
        }
        if (group && prefill && i % 3 == 1) {
            shape->shape.activation = KILN_ACTIVATION_GELU_TANH;
        }
    }
    return 1;
}

static struct kiln_trial trial_of(
        const struct candidate *of, const struct kiln_parity_shape *shape) {
    struct kiln_trial trial = {.plugin = of->plugin->name,
            .variant = of->variant->name,
            .shape = shape->shape,
            .fill = shape->fill,
            .corner = -1,
            .result = KILN_TRIAL_NOT_RUN,
            .verdict = {.worst = -1}};
    (void)snprintf(trial.slot, sizeof(trial.slot), "%s", of->slot);
    if (of->binding) {
        trial.geometry = of->binding->geometry;
        trial.source = of->binding->source;
    }
    return trial;
}

// ---- Corners ------------------------------------------------------------------------------------
// Whether the slot leaves the type of the weights open.
static int is_open(const struct candidate *of) {
    return of->op != KILN_OP_MATMUL && (of->op == KILN_OP_EMBED || has_matrices(of->variant));
}

// Whether the variant is tried with weights of a type: a norm's matrices are of block types, others
// it declines.
static int takes(const struct candidate *of, const struct kiln_dtype_info *info) {
    char slot[KILN_SLOT_NAME_MAX];
    if (is_open(of)) {
        return info->weight && (info->elems > 1 || of->op == KILN_OP_EMBED);
    }
    kiln_slot_name(slot, of->op, info->dtype, of->phase);
    return info->weight && kiln_variant_fills(of->variant, slot);
}

// Whether a corner is run with the candidate's type: all defaults with every type, each of the
// others with one block type in turn; with every type where `all` says so.
static int has_turn(const struct candidate *of, uint32_t corner, int all) {
    const struct kiln_dtype_info *info, *own = kiln_dtype_info(of->dtype);
    uint32_t n = 0, number = 0;
    int blocks = 0;
    if (all || corner == 0 || (of->op != KILN_OP_MATMUL && !is_open(of))) {
        return 1;
    }
    for (uint32_t i = 0; (info = kiln_dtype_at(i)) != NULL; i++) {
        blocks |= takes(of, info) && info->elems > 1;
    }
    for (uint32_t i = 0; (info = kiln_dtype_at(i)) != NULL; i++) {
        int counts = takes(of, info) && (info->elems > 1) == blocks;
        number = info->dtype == of->dtype ? n : number;
        n += counts;
    }
    return n > 0 && (own->elems > 1) == blocks && corner % n == number;
}

// Whether its shapes are rows by columns, two of each size.
static int is_by_row(const struct candidate *of) {
    return !has_matrices(of->variant) && of->op != KILN_OP_ATTENTION && of->op != KILN_OP_MATMUL &&
           of->op != KILN_OP_ROPE_KV;
}

// Whether a trial from number `first` on has the same numbers and shape.
static int is_known(
        const struct kiln_parity *parity, size_t first, const struct kiln_trial *trial) {
    for (size_t i = first; i < parity->count; i++) {
        const struct kiln_trial *other = &parity->trials[i];
        if (other->shape_number == trial->shape_number &&
                (trial->geometry.n_values == 0 ||
                        memcmp(other->geometry.values, trial->geometry.values,
                                trial->geometry.n_values * sizeof(int64_t)) == 0)) {
            return 1;
        }
    }
    return 0;
}

static enum kiln_status set_corner(struct kiln_parity *parity, const struct candidate *of,
        uint32_t corner, struct kiln_trial *trial, struct kiln_err *err) {
    const struct kiln_variant *variant = of->variant;
    uint32_t n = variant->n_params;
    const char **names = kiln_arena_calloc(&parity->arena, n + 1, sizeof(*names));
    int64_t *values = kiln_arena_calloc(&parity->arena, n + 1, sizeof(*values));
    if (!names || !values) {
        return kiln_err_nomem(err, "the trials");
    }
    for (uint32_t i = 0; i < n; i++) {
        names[i] = variant->params[i]->name;
    }
    int32_t head_size = trial->shape.head_size ? trial->shape.head_size : 128;
    kiln_corner_values(variant, MAX_FULL_PARAMS, corner, head_size, of->cc, values);
    trial->corner = (int32_t)corner;
    trial->geometry = (struct kiln_geometry){.struct_size = sizeof(trial->geometry),
            .n_values = n,
            .names = names,
            .values = values};
    return KILN_STATUS_OK;
}

static enum kiln_status add_corners(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct candidate *of, struct kiln_err *err) {
    uint32_t n = kiln_corners_count(of->variant, MAX_FULL_PARAMS);
    int all = params->corners == KILN_CORNERS_ALL_TYPES;
    size_t first = parity->count;
    // One row, and more rows and columns than a small tile has.
    const uint32_t numbers[] = {0, is_by_row(of) ? 7 : 2};
    for (uint32_t corner = 0; corner < n; corner++) {
        for (uint32_t i = 0; has_turn(of, corner, all) && i < 2; i++) {
            struct kiln_parity_shape shape;
            if (!shape_of(params, of, numbers[i], &shape)) {
                continue;
            }
            struct kiln_trial trial = trial_of(of, &shape);
            trial.shape_number = numbers[i];
            KILN_TRY(set_corner(parity, of, corner, &trial, err));
            if (!is_known(parity, first, &trial)) {
                KILN_TRY(add_trial(parity, &trial, err));
            }
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status add_shapes(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct candidate *of, struct kiln_err *err) {
    struct kiln_parity_shape shape;
    if (params->corners != KILN_CORNERS_NONE) {
        return add_corners(parity, params, of, err);
    }
    for (uint32_t i = 0; shape_of(params, of, i, &shape); i++) {
        struct kiln_trial trial = trial_of(of, &shape);
        KILN_TRY(add_trial(parity, &trial, err));
    }
    return KILN_STATUS_OK;
}

// With every weight type that its slot leaves open.
static enum kiln_status add_types(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct candidate *of, struct kiln_err *err) {
    const struct kiln_dtype_info *info;
    if (!is_open(of)) {
        return add_shapes(parity, params, of, err);
    }
    for (uint32_t i = 0; (info = kiln_dtype_at(i)) != NULL; i++) {
        struct candidate typed = *of;
        typed.dtype = info->dtype;
        if (takes(of, info)) {
            KILN_TRY(add_shapes(parity, params, &typed, err));
        }
    }
    return KILN_STATUS_OK;
}

// What the config binds to a call of the slot: a binding that fills further ops, then the one that
// takes over where it declines. With a role those alone that the slot does not get without.
static enum kiln_status add_binding(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct kiln_bind_query *query,
        struct candidate *of, struct kiln_err *err) {
    struct kiln_bind_query plain = *query;
    plain.role = "";
    for (unsigned skip = 0;; skip++) {
        struct kiln_err none = {0};
        const struct kiln_binding *without = NULL;
        enum kiln_status status =
                kiln_config_bind(params->config, query, skip, &of->binding, &none);
        if (status == KILN_STATUS_CONFIG || !of->binding || !of->binding->variant) {
            return KILN_STATUS_OK; // nothing that runs here
        }
        if (status == KILN_STATUS_OK && query->role[0]) {
            status = kiln_config_bind(params->config, &plain, skip, &without, &none);
            status = status == KILN_STATUS_CONFIG ? KILN_STATUS_OK : status;
        }
        if (status != KILN_STATUS_OK) {
            return kiln_err_set(err, status, "%s", none.text);
        }
        if (of->binding == without) {
            return KILN_STATUS_OK;
        }
        of->plugin = of->binding->plugin;
        of->variant = of->binding->variant;
        if ((!params->variant || strcmp(params->variant, of->variant->name) == 0) &&
                (!of->follows || has_attention(of->variant))) {
            KILN_TRY(add_types(parity, params, of, err));
        }
        if (of->variant->n_follows == 0 || query->role[0]) {
            return KILN_STATUS_OK;
        }
    }
}

// What the config binds to a slot, and to the gate of an FFN, behind which a variant may take more.
static enum kiln_status add_bound(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct kiln_device *device,
        struct candidate *of, struct kiln_err *err) {
    int decode = of->follows || strstr(of->slot, ".decode");
    struct kiln_bind_query query = {.slot = of->slot,
            .m = decode ? 1 : 512,
            .n = 3584,
            .k = 3584, // a multiple of every block
            .hd = 128,
            .role = "",
            .layer = 0,
            .phase = decode ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL,
            .device = device};
    KILN_TRY(add_binding(parity, params, &query, of, err));
    if (of->op != KILN_OP_MATMUL || decode) {
        return KILN_STATUS_OK;
    }
    query.role = "ffn_gate";
    return add_binding(parity, params, &query, of, err);
}

static enum kiln_status add_all(struct kiln_parity *parity, const struct kiln_parity_params *params,
        const struct kiln_device *device, struct candidate *of, struct kiln_err *err) {
    const struct kiln_plugin *const *plugins = kiln_registry_plugins(params->registry);
    for (size_t p = 0; p < kiln_registry_count(params->registry); p++) {
        for (uint32_t v = 0; v < plugins[p]->n_variants; v++) {
            const struct kiln_variant *variant = plugins[p]->variants[v];
            if (!(variant->devices & device->kind) || !kiln_variant_fills(variant, of->slot) ||
                    (of->follows && !has_attention(variant)) ||
                    (params->variant && strcmp(params->variant, variant->name) != 0)) {
                continue;
            }
            of->plugin = plugins[p];
            of->variant = variant;
            KILN_TRY(add_types(parity, params, of, err));
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status add_candidates(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct kiln_device *device,
        struct candidate *of, struct kiln_err *err) {
    return params->all ? add_all(parity, params, device, of, err)
                       : add_bound(parity, params, device, of, err);
}

static enum kiln_status add_slot(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct kiln_device *device,
        enum kiln_op_kind op, uint32_t dtype, enum kiln_phase phase, struct kiln_err *err) {
    char slot[KILN_SLOT_NAME_MAX];
    kiln_slot_name(slot, op, dtype, phase);
    struct candidate of = {
            .slot = slot, .dtype = dtype, .op = op, .phase = phase, .cc = device->cc};
    int asked = wanted(params, slot);
    if (asked) {
        KILN_TRY(add_candidates(parity, params, device, &of, err));
    }
    // The attention of one row may be bound together with the rope_kv before it. Among all variants
    // of the slot those that do so are already.
    of.follows =
            op == KILN_OP_ROPE_KV && (params->all ? !asked && wanted(params, "attention.decode")
                                                  : asked || wanted(params, "attention.decode"));
    return of.follows ? add_candidates(parity, params, device, &of, err) : KILN_STATUS_OK;
}

enum kiln_status kiln_parity_list(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct kiln_device *device,
        struct kiln_err *err) {
    for (int op = KILN_OP_EMBED; op <= KILN_OP_ARGMAX; op++) {
        int matmul = op == KILN_OP_MATMUL, phases = matmul || op == KILN_OP_ATTENTION;
        for (int phase = KILN_PHASE_PREFILL; phase <= (phases ? KILN_PHASE_DECODE : 1); phase++) {
            const struct kiln_dtype_info *info;
            for (uint32_t i = 0; (info = kiln_dtype_at(i)) != NULL; i++) {
                if (matmul ? info->weight : i == 0) {
                    KILN_TRY(add_slot(parity, params, device, (enum kiln_op_kind)op, info->dtype,
                            (enum kiln_phase)phase, err));
                }
            }
        }
    }
    if (parity->count == 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "no variant to judge: none that runs on %s fills the slots asked for; --device sim "
                "runs the CUDA ones without a GPU",
                device->target);
    }
    return KILN_STATUS_OK;
}
