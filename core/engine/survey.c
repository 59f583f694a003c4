// survey: binds and plans each node by itself, on a runtime that has a description in place of a
// device.
#include "engine/survey_impl.h"

#include "base/mem.h"
#include "config/slot.h"
#include "model/dtype.h"
#include "plugin/schema.h"

#include <string.h>
#include <xxhash.h>

static void free_row(struct kiln_survey_row *row) {
    kiln_planned_destroy(row->planned);
    kiln_free(row->unsupported);
}

void kiln_survey_finish(struct kiln_survey *survey) {
    for (size_t i = 0; i < survey->count; i++) {
        free_row(&survey->rows[i]);
    }
    kiln_free(survey->rows);
    kiln_arena_finish(&survey->arena);
    *survey = (struct kiln_survey){.rows = NULL};
}

static enum kiln_status nomem(struct kiln_err *err) {
    return kiln_err_nomem(err, "a survey of kernels");
}

static int wanted(const struct kiln_survey_params *params, const char *slot) {
    for (size_t i = 0; i < params->n_slots; i++) {
        if (kiln_slot_overlap(params->slots[i], slot)) {
            return 1;
        }
    }
    return params->n_slots == 0;
}

// Whether the slot's ops are looked at: for themselves, or for what is quantized before them.
static int looked_at(const struct kiln_survey_params *params, const char *slot) {
    return wanted(params, slot) || wanted(params, "quantize");
}

// ---- Problems -----------------------------------------------------------------------------------

static enum kiln_status add_operand(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, uint32_t op, const struct kiln_node *node,
        const struct kiln_node_operand *operand, const struct kiln_tensor **made,
        struct kiln_err *err) {
    struct kiln_tensor *tensor = kiln_arena_calloc(&view->survey->arena, 1, sizeof(*tensor));
    if (!tensor) {
        return nomem(err);
    }
    if (operand->from == KILN_FROM_EDGE) {
        uint64_t bytes;
        int out = operand->operand == KILN_OPERAND_OUT;
        int quantized = choice->quantizes && op + 1 == choice->n_nodes;
        int inside = out ? quantized || kiln_survey_keeps_inside(view, choice, operand->edge)
                         : kiln_survey_writes(view, choice, operand->edge);
        const char *from;
        const char *format = inside ? "f32"
                             : out  ? kiln_survey_written(view, choice, operand->edge)
                                    : kiln_survey_read(view, choice, op, operand, &from);
        KILN_TRY(kiln_edge_describe(&view->schedule, operand->edge, format, tensor, &bytes, err));
        tensor->operand = operand->operand;
        tensor->flags |= inside ? KILN_TENSOR_INTERNAL : 0u;
    } else {
        void *address = NULL;
        kiln_step_describe(&view->schedule, node, operand, tensor, &address);
    }
    *made = tensor;
    return KILN_STATUS_OK;
}

static enum kiln_status add_op(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, uint32_t index, struct kiln_op *op,
        struct kiln_err *err) {
    const struct kiln_node *node = &view->params->graph->nodes[choice->node + index];
    const struct kiln_tensor **operands =
            kiln_arena_calloc(&view->survey->arena, node->n_operands + 1, sizeof(*operands));
    if (!operands) {
        return nomem(err);
    }
    *op = node->op;
    op->operands = operands;
    op->n_operands = node->n_operands;
    for (uint32_t i = 0; i < node->n_operands; i++) {
        KILN_TRY(add_operand(view, choice, index, node, &node->operands[i], &operands[i], err));
    }
    return KILN_STATUS_OK;
}

// A quantize op of an edge, from f32: by an op of its own, or (inside) at the end of a variant that
// writes a block format itself.
static enum kiln_status make_quantize(const struct kiln_survey_view *view,
        const struct kiln_node *node, kiln_edge edge, const char *format, int inside,
        struct kiln_op *op, struct kiln_err *err) {
    struct kiln_arena *arena = &view->survey->arena;
    struct kiln_tensor *tensors = kiln_arena_calloc(arena, 3, sizeof(*tensors));
    const struct kiln_tensor **operands = kiln_arena_calloc(arena, 3, sizeof(*operands));
    uint64_t bytes;
    if (!tensors || !operands) {
        return nomem(err);
    }
    KILN_TRY(kiln_edge_describe(&view->schedule, edge, "f32", &tensors[0], &bytes, err));
    KILN_TRY(kiln_edge_describe(&view->schedule, edge, format, &tensors[1], &bytes, err));
    tensors[0].operand = KILN_OPERAND_IN;
    tensors[0].flags |= inside ? KILN_TENSOR_INTERNAL : 0u;
    tensors[1].operand = KILN_OPERAND_OUT;
    const struct kiln_node_operand count = {
            .operand = KILN_OPERAND_N_TOKENS, .from = KILN_FROM_VALUE, .edge = -1};
    void *address = NULL;
    kiln_step_describe(&view->schedule, node, &count, &tensors[2], &address);
    tensors[2].operand = KILN_OPERAND_N_TOKENS;
    for (uint32_t i = 0; i < 3; i++) {
        operands[i] = &tensors[i];
    }
    *op = (struct kiln_op){.struct_size = sizeof(*op),
            .kind = KILN_OP_QUANTIZE,
            .role = node->op.role,
            .operands = operands,
            .n_operands = inside ? 2 : 3};
    return KILN_STATUS_OK;
}

// ops: n of them, in the survey's arena.
static enum kiln_status make_problem(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, struct kiln_op *ops, uint32_t n,
        struct kiln_problem **made, struct kiln_err *err) {
    struct kiln_arena *arena = &view->survey->arena;
    struct kiln_problem *problem = kiln_arena_calloc(arena, 1, sizeof(*problem));
    const struct kiln_op **list = kiln_arena_calloc(arena, n, sizeof(*list));
    char *slot = kiln_arena_strdup(arena, choice->slot);
    if (!problem || !list || !slot) {
        return nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        list[i] = &ops[i];
    }
    *problem = (struct kiln_problem){.struct_size = sizeof(*problem),
            .phase = view->schedule.phase,
            .slot = slot,
            .ops = list,
            .n_ops = n,
            .layer = view->params->graph->nodes[choice->node].layer,
            .world = 1};
    *made = problem;
    return KILN_STATUS_OK;
}

// The problem of the choice's nodes, with a quantize op to `format` behind them unless that is
// NULL.
static enum kiln_status make_nodes_problem(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, const char *format, struct kiln_problem **made,
        struct kiln_err *err) {
    const struct kiln_node *nodes = &view->params->graph->nodes[choice->node];
    uint32_t n = choice->n_nodes;
    struct kiln_op *ops = kiln_arena_calloc(&view->survey->arena, n + 1, sizeof(*ops));
    if (!ops) {
        return nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        KILN_TRY(add_op(view, choice, i, &ops[i], err));
    }
    if (format) {
        KILN_TRY(make_quantize(view, &nodes[n - 1], nodes[n - 1].out, format, 1, &ops[n], err));
    }
    return make_problem(view, choice, ops, format ? n + 1 : n, made, err);
}

// ---- Rows ---------------------------------------------------------------------------------------

// A hash of what a plan can depend on: two ops with the same one are one row.
static uint64_t likeness(
        const struct kiln_survey_choice *choice, const struct kiln_problem *problem) {
    XXH64_hash_t hash = XXH3_64bits_withSeed(&choice->variant, sizeof(choice->variant),
            XXH3_64bits(choice->slot, strlen(choice->slot)));
    hash = XXH3_64bits_withSeed(choice->geometry.values,
            choice->geometry.n_values * sizeof(*choice->geometry.values), hash);
    for (uint32_t i = 0; problem && i < problem->n_ops; i++) {
        struct kiln_op op = *problem->ops[i];
        hash = XXH3_64bits_withSeed(op.role, strlen(op.role), hash);
        for (uint32_t j = 0; j < op.n_operands; j++) {
            hash = XXH3_64bits_withSeed(op.operands[j], sizeof(*op.operands[j]), hash);
        }
        const int32_t numbers[] = {(int32_t)op.kind, op.n_heads, op.n_kv_heads, op.head_size,
                op.window, (int32_t)op.activation, op.rope_dims, (int32_t)op.rope_style};
        hash = XXH3_64bits_withSeed(numbers, sizeof(numbers), hash);
    }
    return hash;
}

// A new row, or NULL when one like it is there (its count is raised) or memory ran out (*err is
// set).
static struct kiln_survey_row *add_row(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, const struct kiln_problem *problem,
        struct kiln_err *err) {
    struct kiln_survey *survey = view->survey;
    uint64_t alike = likeness(choice, problem);
    for (size_t i = 0; i < survey->count; i++) {
        if (survey->rows[i].alike == alike) {
            survey->rows[i].ops++;
            return NULL;
        }
    }
    if (kiln_grow(&survey->rows, &survey->cap, survey->count + 1, sizeof(*survey->rows)) != 0) {
        (void)nomem(err);
        return NULL;
    }
    struct kiln_survey_row *row = &survey->rows[survey->count++];
    *row = (struct kiln_survey_row){.role = view->params->graph->nodes[choice->node].op.role,
            .plugin = choice->plugin,
            .variant = choice->variant,
            .geometry = choice->geometry,
            .source = choice->source,
            .problem = problem,
            .ops = 1,
            .alike = alike,
            .hidden = !wanted(view->params, choice->slot)};
    memcpy(row->slot, choice->slot, strlen(choice->slot) + 1);
    return row;
}

static enum kiln_status refuse(
        struct kiln_survey_row *row, const char *reason, struct kiln_err *err) {
    row->unsupported = kiln_strdup(reason);
    return row->unsupported ? KILN_STATUS_OK : nomem(err);
}

static enum kiln_status plan_row(
        const struct kiln_survey_view *view, struct kiln_survey_row *row, struct kiln_err *err) {
    const struct kiln_survey_params *params = view->params;
    enum kiln_plan_outcome outcome = KILN_PLAN_DONE;
    struct kiln_err cause = {0};
    void *instance;
    KILN_TRY(kiln_registry_start(params->registry, row->plugin, params->device, &instance, err));
    enum kiln_status status = kiln_plan_make(row->plugin, row->variant, instance, row->problem,
            &row->geometry, params->device, &outcome, &row->planned, &cause);
    row->exceeds = status == KILN_STATUS_DEVICE;
    if (row->exceeds || (status == KILN_STATUS_OK && outcome == KILN_PLAN_DECLINED)) {
        return refuse(row, cause.text, err);
    }
    if (status != KILN_STATUS_OK && err) {
        *err = cause;
    }
    return status;
}

// Adds a problem's row, planned. *done: it can run, so that no other binding need be tried.
static enum kiln_status try_problem(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, const struct kiln_problem *problem, int *done,
        struct kiln_err *err) {
    struct kiln_err out = {0};
    size_t before = view->survey->count;
    struct kiln_survey_row *row = add_row(view, choice, problem, &out);
    if (!row) {
        for (size_t i = 0; i < before; i++) { // as the row like it
            const struct kiln_survey_row *like = &view->survey->rows[i];
            *done = *done ||
                    (like->alike == likeness(choice, problem) && (like->planned || like->exceeds));
        }
        return out.status == KILN_STATUS_OK ? KILN_STATUS_OK : nomem(err);
    }
    KILN_TRY(plan_row(view, row, err));
    *done = row->planned || row->exceeds; // a run does not go on to another binding then
    return KILN_STATUS_OK;
}

// A row that says why there is nothing to plan.
static enum kiln_status add_refused(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, const char *reason, struct kiln_err *err) {
    struct kiln_err out = {0};
    struct kiln_survey_row *row = add_row(view, choice, NULL, &out);
    return row                               ? refuse(row, reason, err)
           : out.status == KILN_STATUS_NOMEM ? nomem(err)
                                             : KILN_STATUS_OK;
}

// Plans a choice into a row. *done: as try_problem's.
static enum kiln_status try_choice(const struct kiln_survey_view *view,
        struct kiln_survey_choice *choice, int *done, struct kiln_err *err) {
    const char *format = NULL;
    struct kiln_problem *problem = NULL;
    choice->n_nodes = kiln_survey_fills(view, choice, &choice->quantizes);
    *done = 0;
    if (choice->n_nodes == 0) {
        return KILN_STATUS_OK; // made for other ops
    }
    if (choice->quantizes) {
        size_t last = choice->node + choice->n_nodes - 1;
        struct kiln_formats given =
                kiln_variant_formats(choice->variant, choice->n_nodes, KILN_OPERAND_OUT);
        format = view->all ? given.names[0]
                           : kiln_survey_agreed(
                                     view, choice, view->params->graph->nodes[last].out, given);
        if (!format) {
            return add_refused(
                    view, choice, "its readers take no format that it quantizes to", err);
        }
    }
    KILN_TRY(make_nodes_problem(view, choice, format, &problem, err));
    return try_problem(view, choice, problem, done, err);
}

// ---- Quantize ops -------------------------------------------------------------------------------

static enum kiln_status add_quantize(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *reader, const struct kiln_node *node, kiln_edge edge,
        const char *format, const struct kiln_plugin *plugin, const struct kiln_variant *variant,
        struct kiln_err *err) {
    struct kiln_survey_choice choice = {
            .node = reader->node, .slot = "quantize", .plugin = plugin, .variant = variant};
    struct kiln_op *op = kiln_arena_calloc(&view->survey->arena, 1, sizeof(*op));
    struct kiln_problem *problem = NULL;
    int done = 0;
    if (!op) {
        return nomem(err);
    }
    choice.geometry.struct_size = sizeof(choice.geometry); // as lowering: a policy has no keys
    KILN_TRY(make_quantize(view, node, edge, format, 0, op, err));
    KILN_TRY(make_problem(view, &choice, op, 1, &problem, err));
    return try_problem(view, &choice, problem, &done, err);
}

// The op that makes `format` of an f32 edge for a reader, unless one for all readers is there.
static enum kiln_status survey_quantize(struct kiln_survey_view *view,
        const struct kiln_survey_choice *reader, const struct kiln_node *node, kiln_edge edge,
        const char *format, struct kiln_err *err) {
    const struct kiln_survey_choice none = {.node = reader->node, .slot = "quantize"};
    const struct kiln_plugin *plugin;
    const struct kiln_binding *binding;
    struct kiln_err cause = {0};
    enum kiln_status status = kiln_schedule_bind_quantize(&view->schedule, node, &binding, &cause);
    if (status == KILN_STATUS_CONFIG) {
        return add_refused(view, &none, cause.text, err);
    }
    if (status != KILN_STATUS_OK) {
        return nomem(err);
    }
    if (strcmp(binding->variant_name, "shared") == 0) {
        const char *made = view->quantized[edge];
        if (made && strcmp(made, format) == 0) {
            return KILN_STATUS_OK;
        }
        view->quantized[edge] = format;
    }
    const struct kiln_variant *variant =
            kiln_find_quantizer(&view->runtime, format, binding->plugin, &plugin);
    return variant ? add_quantize(view, reader, node, edge, format, plugin, variant, err)
                   : add_refused(view, &none, "no loaded plugin has a variant for the format", err);
}

// Every variant that makes the format, where every variant is asked for.
static enum kiln_status survey_quantizers(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *reader, const struct kiln_node *node, kiln_edge edge,
        const char *format, struct kiln_err *err) {
    const struct kiln_plugin *const *plugins = kiln_registry_plugins(view->params->registry);
    for (size_t i = 0; i < kiln_registry_count(view->params->registry); i++) {
        for (uint32_t j = 0; j < plugins[i]->n_variants; j++) {
            const struct kiln_variant *variant = plugins[i]->variants[j];
            if (kiln_quantizes_to(variant, view->params->device, format)) {
                KILN_TRY(add_quantize(view, reader, node, edge, format, plugins[i], variant, err));
            }
        }
    }
    return KILN_STATUS_OK;
}

// The quantize ops before a choice: of each edge that it takes in another format than it is in.
static enum kiln_status survey_reads(struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, struct kiln_err *err) {
    kiln_edge last = -1; // operands of one op that are the same edge need it once
    for (uint32_t op = 0; wanted(view->params, "quantize") && op < choice->n_nodes; op++) {
        const struct kiln_node *node = &view->params->graph->nodes[choice->node + op];
        for (uint32_t i = 0; i < node->n_operands; i++) {
            const struct kiln_node_operand *operand = &node->operands[i];
            if (operand->from != KILN_FROM_EDGE || operand->operand == KILN_OPERAND_OUT ||
                    operand->edge == last || kiln_survey_writes(view, choice, operand->edge)) {
                continue;
            }
            const char *from, *format = kiln_survey_read(view, choice, op, operand, &from);
            if (strcmp(format, from) != 0) {
                last = operand->edge;
                KILN_TRY(view->all ? survey_quantizers(view, choice, node, last, format, err)
                                   : survey_quantize(view, choice, node, last, format, err));
            }
        }
    }
    return KILN_STATUS_OK;
}

// ---- What the config binds ----------------------------------------------------------------------

static int64_t rows_of(const struct kiln_survey_view *view, size_t node) {
    // Logits are wanted of one row.
    return view->schedule.phase == KILN_PHASE_DECODE || view->params->graph->nodes[node].head
                   ? 1
                   : view->params->rows;
}

// As lowering has it: a later layer binds one of the ops behind the first.
static int outranked(const struct kiln_survey_view *view, const struct kiln_survey_choice *choice,
        const struct kiln_binding *binding) {
    int quantizes;
    uint32_t n = kiln_survey_fills(view, choice, &quantizes);
    for (uint32_t i = 1; i < n; i++) {
        const struct kiln_binding *other = view->bindings[choice->node + i];
        if (other && other->layer > binding->layer) {
            return 1;
        }
    }
    return 0;
}

static enum kiln_status survey_node(
        struct kiln_survey_view *view, size_t node, struct kiln_err *err) {
    char slot[KILN_SLOT_NAME_MAX];
    int done = 0;
    view->schedule.rows = view->schedule.m = rows_of(view, node);
    for (unsigned skip = 0; !done; skip++) {
        const struct kiln_binding *binding = NULL;
        struct kiln_err cause = {0};
        enum kiln_status status = kiln_schedule_bind(&view->schedule, node, view->schedule.phase,
                view->schedule.m, skip, slot, &binding, &cause);
        if (!looked_at(view->params, slot)) {
            return KILN_STATUS_OK;
        }
        struct kiln_survey_choice choice = {
                .node = node, .slot = slot, .geometry = {.n_values = 0}};
        if (status == KILN_STATUS_CONFIG) {
            return add_refused(view, &choice, cause.text, err);
        }
        if (status != KILN_STATUS_OK) {
            return nomem(err);
        }
        if (!binding) {
            return KILN_STATUS_OK;
        }
        choice.plugin = binding->plugin;
        choice.variant = binding->variant;
        choice.geometry = binding->geometry;
        choice.source = binding->source;
        if (choice.variant && !outranked(view, &choice, binding)) {
            KILN_TRY(try_choice(view, &choice, &done, err));
            view->filled = done ? choice.n_nodes : 1;
        }
        if (done) {
            KILN_TRY(survey_reads(view, &choice, err));
        }
    }
    return KILN_STATUS_OK;
}

// Which node's binding fills each node, were none declined.
static void find_owners(struct kiln_survey_view *view) {
    for (size_t n = 0; n < view->params->graph->n_nodes;) {
        const struct kiln_binding *binding = view->bindings[n];
        const struct kiln_survey_choice choice = {
                .node = n, .variant = binding ? binding->variant : NULL};
        int quantizes;
        uint32_t filled = choice.variant && !outranked(view, &choice, binding)
                                  ? kiln_survey_fills(view, &choice, &quantizes)
                                  : 1;
        filled = filled > 0 ? filled : 1;
        for (uint32_t i = 0; i < filled; i++) {
            view->owners[n + i] = n;
        }
        n += filled;
    }
}

static enum kiln_status bind_all(struct kiln_survey_view *view, struct kiln_err *err) {
    for (size_t n = 0; n < view->params->graph->n_nodes; n++) {
        char slot[KILN_SLOT_NAME_MAX];
        struct kiln_err ignored = {0}; // a slot without a binding becomes a row later
        enum kiln_status status = kiln_schedule_bind(&view->schedule, n, view->schedule.phase,
                rows_of(view, n), 0, slot, &view->bindings[n], &ignored);
        if (status == KILN_STATUS_NOMEM) {
            return nomem(err);
        }
        if (status != KILN_STATUS_OK) {
            view->bindings[n] = NULL;
        }
    }
    find_owners(view);
    return KILN_STATUS_OK;
}

// ---- Every variant ------------------------------------------------------------------------------

static enum kiln_status default_geometry(const struct kiln_survey_view *view,
        struct kiln_survey_choice *choice, int32_t head_size, struct kiln_err *err) {
    const struct kiln_variant *variant = choice->variant;
    const char **names =
            kiln_arena_calloc(&view->survey->arena, variant->n_params + 1, sizeof(*names));
    int64_t *values =
            kiln_arena_calloc(&view->survey->arena, variant->n_params + 1, sizeof(*values));
    if (!names || !values) {
        return nomem(err);
    }
    for (uint32_t i = 0; i < variant->n_params; i++) {
        names[i] = variant->params[i]->name;
        values[i] =
                kiln_param_default_value(variant->params[i], head_size, view->params->device->cc);
    }
    choice->geometry = (struct kiln_geometry){.struct_size = sizeof(choice->geometry),
            .n_values = variant->n_params,
            .names = names,
            .values = values};
    return KILN_STATUS_OK;
}

static enum kiln_status survey_variants(struct kiln_survey_view *view, size_t node,
        const char *slot, const struct kiln_plugin *plugin, struct kiln_err *err) {
    const struct kiln_node *at = &view->params->graph->nodes[node];
    for (uint32_t i = 0; i < plugin->n_variants; i++) {
        struct kiln_survey_choice choice = {
                .node = node, .slot = slot, .plugin = plugin, .variant = plugin->variants[i]};
        int done;
        if ((choice.variant->devices & view->params->device->kind) &&
                kiln_variant_fills(choice.variant, slot)) {
            KILN_TRY(default_geometry(view, &choice, at->op.head_size, err));
            KILN_TRY(try_choice(view, &choice, &done, err));
            KILN_TRY(done ? survey_reads(view, &choice, err) : KILN_STATUS_OK);
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status survey_node_all(
        struct kiln_survey_view *view, size_t node, struct kiln_err *err) {
    const struct kiln_plugin *const *plugins = kiln_registry_plugins(view->params->registry);
    const struct kiln_node *at = &view->params->graph->nodes[node];
    uint32_t dtype = KILN_DTYPE_F32;
    char slot[KILN_SLOT_NAME_MAX];
    for (uint32_t i = 0; i < at->n_operands; i++) {
        if (at->operands[i].operand == KILN_OPERAND_WEIGHT) {
            dtype = at->operands[i].tensor->dtype;
        }
    }
    kiln_slot_name(slot, (enum kiln_op_kind)at->op.kind, dtype, view->schedule.phase);
    view->schedule.rows = view->schedule.m = rows_of(view, node);
    for (size_t i = 0;
            looked_at(view->params, slot) && i < kiln_registry_count(view->params->registry); i++) {
        KILN_TRY(survey_variants(view, node, slot, plugins[i], err));
    }
    return KILN_STATUS_OK;
}

// ---- A pass -------------------------------------------------------------------------------------

// Rows that were made for what is quantized before them.
static void drop_hidden(struct kiln_survey *survey) {
    size_t kept = 0;
    for (size_t i = 0; i < survey->count; i++) {
        if (survey->rows[i].hidden) {
            free_row(&survey->rows[i]);
        } else {
            survey->rows[kept++] = survey->rows[i];
        }
    }
    survey->count = kept;
}

static enum kiln_status survey(struct kiln_survey *survey, const struct kiln_survey_params *params,
        int all, struct kiln_err *err) {
    const struct kiln_graph *graph = params->graph;
    struct kiln_survey_view view = {
            .params = params, .survey = survey, .dev = {.desc = *params->device}};
    void **caches = kiln_calloc((size_t)graph->n_layers * 2, sizeof(*caches));
    view.all = all;
    view.bindings = kiln_calloc(graph->n_nodes, sizeof(*view.bindings));
    view.owners = kiln_calloc(graph->n_nodes, sizeof(*view.owners));
    view.quantized = kiln_calloc(graph->n_edges, sizeof(*view.quantized));
    view.runtime = (struct kiln_runtime){.dev = &view.dev,
            .registry = params->registry,
            .config = params->config,
            .graph = graph,
            .ctx = params->ctx,
            .kv_dtype = params->kv_dtype,
            .kv = caches};
    view.schedule = (struct kiln_schedule){.runtime = &view.runtime, .rows = params->rows};
    int there = caches && view.bindings && view.owners && view.quantized;
    enum kiln_status status = there ? KILN_STATUS_OK : nomem(err);
    for (size_t n = 0; there && n < graph->n_nodes; n++) {
        view.owners[n] = n;
    }
    for (int phase = KILN_PHASE_PREFILL; status == KILN_STATUS_OK && phase <= KILN_PHASE_DECODE;
            phase++) {
        view.schedule.phase = (enum kiln_phase)phase;
        memset(view.quantized, 0, graph->n_edges * sizeof(*view.quantized));
        if (!all) {
            status = bind_all(&view, err);
        }
        for (size_t n = 0; status == KILN_STATUS_OK && n < graph->n_nodes; n += view.filled) {
            view.filled = 1;
            status = all ? survey_node_all(&view, n, err) : survey_node(&view, n, err);
        }
    }
    drop_hidden(survey);
    kiln_free(view.bindings);
    kiln_free(view.owners);
    kiln_free(view.quantized);
    kiln_free(caches);
    return status;
}

enum kiln_status kiln_survey_bound(
        struct kiln_survey *s, const struct kiln_survey_params *params, struct kiln_err *err) {
    return survey(s, params, 0, err);
}

enum kiln_status kiln_survey_all(
        struct kiln_survey *s, const struct kiln_survey_params *params, struct kiln_err *err) {
    return survey(s, params, 1, err);
}
