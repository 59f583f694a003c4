// survey: binds and plans each node by itself, on a runtime that has a description in place of a
// device.
#include "engine/survey.h"

#include "base/mem.h"
#include "config/slot.h"
#include "engine/schedule_impl.h"
#include "model/dtype.h"
#include "plugin/schema.h"

#include <string.h>
#include <xxhash.h>

// What one look at the pass needs: schedule and runtime as a run would have them, with no memory
// behind.
struct view {
    const struct kiln_survey_params *params;
    struct kiln_survey *survey;
    struct kiln_dev dev;
    struct kiln_runtime runtime;
    struct kiln_schedule schedule;
    const struct kiln_binding **bindings; // by node, the best one until it is filled; NULL: none
    uint32_t *op_of;                      // by node: which of the binding's ops it is
    size_t filled;                        // nodes that the last choice fills
};

// The bound variant at a place of the pass.
struct choice {
    size_t node;
    const char *slot;
    const struct kiln_plugin *plugin;
    const struct kiln_variant *variant;
    struct kiln_geometry geometry;
    const char *source;
    uint32_t n_nodes; // that the variant fills from there on
};

void kiln_survey_finish(struct kiln_survey *survey) {
    for (size_t i = 0; i < survey->count; i++) {
        kiln_planned_destroy(survey->rows[i].planned);
        kiln_free(survey->rows[i].unsupported);
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

// ---- Formats of edges ---------------------------------------------------------------------------

struct formats {
    const char *const *names;
    uint32_t count;
};

static const char *const plain[] = {"f32"};

static struct formats formats_at(
        const struct kiln_variant *variant, uint32_t op, uint32_t operand) {
    for (uint32_t i = 0; variant && i < variant->n_ios; i++) {
        if (variant->ios[i]->op == op && variant->ios[i]->operand == operand) {
            return (struct formats){variant->ios[i]->formats, variant->ios[i]->n_formats};
        }
    }
    return (struct formats){plain, 1};
}

static int has(struct formats formats, const char *name) {
    for (uint32_t i = 0; i < formats.count; i++) {
        if (strcmp(formats.names[i], name) == 0) {
            return 1;
        }
    }
    return 0;
}

// What the edge's writer can give.
static struct formats given(const struct view *view, kiln_edge edge) {
    int32_t writer = view->params->graph->edges[edge].writer;
    const struct kiln_binding *binding = writer >= 0 ? view->bindings[writer] : NULL;
    return formats_at(
            binding ? binding->variant : NULL, binding ? view->op_of[writer] : 0, KILN_OPERAND_OUT);
}

// What the edge's first reader takes.
static struct formats taken(const struct view *view, kiln_edge edge) {
    const struct kiln_graph *graph = view->params->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        for (uint32_t i = 0; i < graph->nodes[n].n_operands; i++) {
            const struct kiln_node_operand *operand = &graph->nodes[n].operands[i];
            if (operand->from == KILN_FROM_EDGE && operand->edge == edge &&
                    operand->operand != KILN_OPERAND_OUT) {
                const struct kiln_binding *binding = view->bindings[n];
                return formats_at(binding ? binding->variant : NULL, binding ? view->op_of[n] : 0,
                        operand->operand);
            }
        }
    }
    return (struct formats){plain, 1};
}

// The format that an operand of the choice's op has.
static const char *format_of(const struct view *view, const struct choice *choice, uint32_t op,
        const struct kiln_node_operand *operand) {
    struct formats own = formats_at(choice->variant, op, operand->operand);
    int out = operand->operand == KILN_OPERAND_OUT;
    struct formats other = out ? taken(view, operand->edge) : given(view, operand->edge);
    struct formats first = out ? other : own,
                   second = out ? own : other; // the reader's order decides
    for (uint32_t i = 0; i < first.count; i++) {
        if (has(second, first.names[i])) {
            return first.names[i];
        }
    }
    return out && has(own, "f32") ? "f32" : own.names[0];
}

// Whether an edge is written and read by the choice's ops alone, so that it need not be stored.
static int stays_inside(const struct view *view, const struct choice *choice, kiln_edge edge) {
    const struct kiln_graph *graph = view->params->graph;
    size_t end = choice->node + choice->n_nodes;
    int32_t writer = graph->edges[edge].writer;
    if (writer < (int32_t)choice->node || writer >= (int32_t)end || edge == graph->body_out ||
            edge == graph->logits) {
        return 0;
    }
    for (size_t n = end; n < graph->n_nodes; n++) {
        for (uint32_t i = 0; i < graph->nodes[n].n_operands; i++) {
            const struct kiln_node_operand *operand = &graph->nodes[n].operands[i];
            if (operand->from == KILN_FROM_EDGE && operand->edge == edge) {
                return 0;
            }
        }
    }
    return 1;
}

// ---- Problems -----------------------------------------------------------------------------------

static enum kiln_status add_operand(const struct view *view, const struct choice *choice,
        uint32_t op, const struct kiln_node *node, const struct kiln_node_operand *operand,
        const struct kiln_tensor **made, struct kiln_err *err) {
    struct kiln_tensor *tensor = kiln_arena_calloc(&view->survey->arena, 1, sizeof(*tensor));
    if (!tensor) {
        return nomem(err);
    }
    if (operand->from == KILN_FROM_EDGE) {
        uint64_t bytes;
        int inside = stays_inside(view, choice, operand->edge);
        KILN_TRY(kiln_edge_describe(&view->schedule, operand->edge,
                inside ? "f32" : format_of(view, choice, op, operand), tensor, &bytes, err));
        tensor->operand = operand->operand;
        tensor->flags |= inside ? KILN_TENSOR_INTERNAL : 0u;
    } else {
        void *address = NULL;
        kiln_step_describe(&view->schedule, node, operand, tensor, &address);
    }
    *made = tensor;
    return KILN_STATUS_OK;
}

static enum kiln_status add_op(const struct view *view, const struct choice *choice, uint32_t index,
        struct kiln_op *op, struct kiln_err *err) {
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

// The quantize op at the end of a variant that writes a block format itself.
static enum kiln_status add_quantize(const struct view *view, const struct choice *choice,
        uint32_t n_nodes, struct kiln_op *op, struct kiln_err *err) {
    const struct kiln_node *node = &view->params->graph->nodes[choice->node + n_nodes - 1];
    struct kiln_tensor *tensors = kiln_arena_calloc(&view->survey->arena, 2, sizeof(*tensors));
    const struct kiln_tensor **operands =
            kiln_arena_calloc(&view->survey->arena, 2, sizeof(*operands));
    uint64_t bytes;
    if (!tensors || !operands) {
        return nomem(err);
    }
    struct formats out = formats_at(choice->variant, n_nodes, KILN_OPERAND_OUT);
    KILN_TRY(kiln_edge_describe(&view->schedule, node->out, "f32", &tensors[0], &bytes, err));
    KILN_TRY(
            kiln_edge_describe(&view->schedule, node->out, out.names[0], &tensors[1], &bytes, err));
    tensors[0].flags |= KILN_TENSOR_INTERNAL;
    tensors[0].operand = KILN_OPERAND_IN;
    tensors[1].operand = KILN_OPERAND_OUT;
    operands[0] = &tensors[0];
    operands[1] = &tensors[1];
    *op = (struct kiln_op){.struct_size = sizeof(*op),
            .kind = KILN_OP_QUANTIZE,
            .role = node->op.role,
            .operands = operands,
            .n_operands = 2};
    return KILN_STATUS_OK;
}

// How many nodes the variant fills from here on; 0: it does not fit. *quantizes: and quantizes the
// last.
static uint32_t nodes_filled(const struct view *view, const struct choice *choice, int *quantizes) {
    const struct kiln_graph *graph = view->params->graph;
    const struct kiln_variant *variant = choice->variant;
    const struct kiln_node *nodes = &graph->nodes[choice->node];
    uint32_t n = 1;
    *quantizes = 0;
    if (variant->role && strcmp(variant->role, nodes[0].op.role) != 0) {
        return 0;
    }
    for (uint32_t i = 0; i < variant->n_follows; i++) {
        const char *pattern = variant->follows[i], *colon = strchr(pattern, ':');
        size_t len = strcspn(pattern, ":");
        if (i + 1 == variant->n_follows && strcmp(pattern, "quantize") == 0) {
            *quantizes = 1;
            break;
        }
        if (choice->node + n >= graph->n_nodes || nodes[n].layer != nodes[0].layer) {
            return 0;
        }
        const char *kind = kiln_op_name((enum kiln_op_kind)nodes[n].op.kind);
        if (strlen(kind) != len || strncmp(kind, pattern, len) != 0 ||
                (colon && strcmp(colon + 1, nodes[n].op.role) != 0)) {
            return 0;
        }
        n++;
    }
    return n;
}

static enum kiln_status make_problem(const struct view *view, const struct choice *choice,
        int quantizes, struct kiln_problem **made, struct kiln_err *err) {
    struct kiln_arena *arena = &view->survey->arena;
    uint32_t n_nodes = choice->n_nodes;
    uint32_t n = n_nodes + (uint32_t)quantizes;
    struct kiln_problem *problem = kiln_arena_calloc(arena, 1, sizeof(*problem));
    struct kiln_op *ops = kiln_arena_calloc(arena, n, sizeof(*ops));
    const struct kiln_op **list = kiln_arena_calloc(arena, n, sizeof(*list));
    char *slot = kiln_arena_strdup(arena, choice->slot);
    if (!problem || !ops || !list || !slot) {
        return nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        KILN_TRY(i < n_nodes ? add_op(view, choice, i, &ops[i], err)
                             : add_quantize(view, choice, n_nodes, &ops[i], err));
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

// ---- Rows ---------------------------------------------------------------------------------------

// A hash of what a plan can depend on: two ops with the same one are one row.
static uint64_t likeness(const struct choice *choice, const struct kiln_problem *problem) {
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
static struct kiln_survey_row *add_row(const struct view *view, const struct choice *choice,
        const struct kiln_problem *problem, struct kiln_err *err) {
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
            .alike = alike};
    memcpy(row->slot, choice->slot, strlen(choice->slot) + 1);
    return row;
}

static enum kiln_status refuse(
        struct kiln_survey_row *row, const char *reason, struct kiln_err *err) {
    row->unsupported = kiln_strdup(reason);
    return row->unsupported ? KILN_STATUS_OK : nomem(err);
}

static enum kiln_status plan_row(
        const struct view *view, struct kiln_survey_row *row, struct kiln_err *err) {
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

// Plans a choice into a row. *done: it can run, so that no other binding need be tried.
static enum kiln_status try_choice(
        const struct view *view, struct choice *choice, int *done, struct kiln_err *err) {
    int quantizes;
    choice->n_nodes = nodes_filled(view, choice, &quantizes);
    *done = 0;
    if (choice->n_nodes == 0) {
        return KILN_STATUS_OK; // made for other ops
    }
    struct kiln_problem *problem = NULL;
    KILN_TRY(make_problem(view, choice, quantizes, &problem, err));
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

// ---- What the config binds ----------------------------------------------------------------------

static int64_t rows_of(const struct view *view, size_t node) {
    // Logits are wanted of one row.
    return view->schedule.phase == KILN_PHASE_DECODE || view->params->graph->nodes[node].head
                   ? 1
                   : view->params->rows;
}

// As lowering has it: a later layer binds one of the ops behind the first.
static int outranked(
        const struct view *view, const struct choice *choice, const struct kiln_binding *binding) {
    int quantizes;
    uint32_t n = nodes_filled(view, choice, &quantizes);
    for (uint32_t i = 1; i < n; i++) {
        const struct kiln_binding *other = view->bindings[choice->node + i];
        if (other && other->layer > binding->layer) {
            return 1;
        }
    }
    return 0;
}

static enum kiln_status survey_node(struct view *view, size_t node, struct kiln_err *err) {
    char slot[KILN_SLOT_NAME_MAX];
    int done = 0;
    view->schedule.rows = view->schedule.m = rows_of(view, node);
    for (unsigned skip = 0; !done; skip++) {
        const struct kiln_binding *binding = NULL;
        struct kiln_err cause = {0};
        enum kiln_status status = kiln_schedule_bind(&view->schedule, node, view->schedule.phase,
                view->schedule.m, skip, slot, &binding, &cause);
        if (!wanted(view->params, slot)) {
            return KILN_STATUS_OK;
        }
        struct choice choice = {.node = node, .slot = slot, .geometry = {.n_values = 0}};
        if (status == KILN_STATUS_CONFIG) {
            struct kiln_err out = {0};
            struct kiln_survey_row *row = add_row(view, &choice, NULL, &out);
            return row                               ? refuse(row, cause.text, err)
                   : out.status == KILN_STATUS_NOMEM ? nomem(err)
                                                     : KILN_STATUS_OK;
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
        for (uint32_t i = 0; done && i < choice.n_nodes; i++) {
            view->bindings[node + i] = binding;
            view->op_of[node + i] = i;
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status bind_all(struct view *view, struct kiln_err *err) {
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
        view->op_of[n] = 0;
    }
    return KILN_STATUS_OK;
}

// ---- Every variant ------------------------------------------------------------------------------

static enum kiln_status default_geometry(
        const struct view *view, struct choice *choice, int32_t head_size, struct kiln_err *err) {
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

static enum kiln_status survey_variants(struct view *view, size_t node, const char *slot,
        const struct kiln_plugin *plugin, struct kiln_err *err) {
    const struct kiln_node *at = &view->params->graph->nodes[node];
    for (uint32_t i = 0; i < plugin->n_variants; i++) {
        struct choice choice = {
                .node = node, .slot = slot, .plugin = plugin, .variant = plugin->variants[i]};
        int done;
        if ((choice.variant->devices & view->params->device->kind) &&
                kiln_variant_fills(choice.variant, slot)) {
            KILN_TRY(default_geometry(view, &choice, at->op.head_size, err));
            KILN_TRY(try_choice(view, &choice, &done, err));
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status survey_node_all(struct view *view, size_t node, struct kiln_err *err) {
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
            wanted(view->params, slot) && i < kiln_registry_count(view->params->registry); i++) {
        KILN_TRY(survey_variants(view, node, slot, plugins[i], err));
    }
    return KILN_STATUS_OK;
}

// ---- A pass -------------------------------------------------------------------------------------

static enum kiln_status survey(struct kiln_survey *survey, const struct kiln_survey_params *params,
        int all, struct kiln_err *err) {
    const struct kiln_graph *graph = params->graph;
    struct view view = {.params = params, .survey = survey, .dev = {.desc = *params->device}};
    void **caches = kiln_calloc((size_t)graph->n_layers * 2, sizeof(*caches));
    view.bindings = kiln_calloc(graph->n_nodes, sizeof(*view.bindings));
    view.op_of = kiln_calloc(graph->n_nodes, sizeof(*view.op_of));
    view.runtime = (struct kiln_runtime){.dev = &view.dev,
            .registry = params->registry,
            .config = params->config,
            .graph = graph,
            .ctx = params->ctx,
            .kv_dtype = params->kv_dtype,
            .kv = caches};
    view.schedule = (struct kiln_schedule){.runtime = &view.runtime, .rows = params->rows};
    enum kiln_status status = caches && view.bindings && view.op_of ? KILN_STATUS_OK : nomem(err);
    for (int phase = KILN_PHASE_PREFILL; status == KILN_STATUS_OK && phase <= KILN_PHASE_DECODE;
            phase++) {
        view.schedule.phase = (enum kiln_phase)phase;
        if (!all) {
            status = bind_all(&view, err);
        }
        for (size_t n = 0; status == KILN_STATUS_OK && n < graph->n_nodes; n += view.filled) {
            view.filled = 1;
            status = all ? survey_node_all(&view, n, err) : survey_node(&view, n, err);
        }
    }
    kiln_free(view.bindings);
    kiln_free(view.op_of);
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
