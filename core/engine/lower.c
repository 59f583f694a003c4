// lower: turns nodes into steps: groups of adjacent nodes that one variant fills, quantize ops
// where formats do not meet, each planned. When a variant declines, its leading node passes it over
// and lowering starts again.
#include "engine/schedule_impl.h"

#include "base/log.h"
#include "base/mem.h"
#include "config/slot.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

struct group {
    size_t first;
    uint32_t n_nodes;
    uint32_t n_ops; // one more when the variant quantizes what it writes
    char slot[64];
    const struct kiln_binding *binding;
};

struct lowering {
    struct kiln_schedule *schedule;
    const struct kiln_graph *graph;
    unsigned *skip;       // by node: variants passed over
    struct group *groups; // in node order
    size_t n_groups;
    int32_t *group_of;  // by node
    char declined[512]; // why the last one declined, for the error when none is left
    int again;          // a variant declined: start over
};

static const char *const plain[] = {"f32"};

// Logs a message the first time it comes up in this engine.
static void say_once(struct kiln_runtime *rt, const char *text) {
    uint64_t hash = XXH3_64bits(text, strlen(text)) | 1;
    for (size_t i = 0; i < sizeof(rt->said) / sizeof(rt->said[0]); i++) {
        if (rt->said[i] == hash) {
            return;
        }
        if (rt->said[i] == 0) {
            rt->said[i] = hash;
            kiln_log(KILN_LOG_WARN, "%s", text);
            return;
        }
    }
}

// A default that fills several ops where it can: nobody asked for it, so nobody is told.
static int is_offer(const struct kiln_binding *binding) {
    return binding->variant->n_follows > 0 && binding->layer == 0;
}

static void pass_over(struct lowering *low, const struct group *group, const char *reason) {
    const struct kiln_node *node = &low->graph->nodes[group->first];
    snprintf(low->declined, sizeof(low->declined), "%s of plugin %s declined %s: %s",
            group->binding->variant->name, group->binding->plugin->name, group->slot, reason);
    char text[700];
    snprintf(text, sizeof(text), "%s (role %s); the next binding is tried", low->declined,
            node->op.role);
    if (is_offer(group->binding)) {
        kiln_log(KILN_LOG_DEBUG, "%s", text);
    } else {
        say_once(low->schedule->runtime, text);
    }
    low->skip[group->first]++;
    low->again = 1;
}

// ---- Groups -------------------------------------------------------------------------------------

// "kind" or "kind:role"
static int follows(const struct kiln_node *node, const char *pattern) {
    const char *colon = strchr(pattern, ':');
    size_t len = colon ? (size_t)(colon - pattern) : strlen(pattern);
    const char *kind = kiln_op_name((enum kiln_op_kind)node->op.kind);
    return strlen(kind) == len && strncmp(kind, pattern, len) == 0 &&
           (!colon || strcmp(colon + 1, node->op.role) == 0);
}

// How many nodes from `first` on the variant fills, 0 when the pattern does not fit here.
static uint32_t match(const struct lowering *low, size_t first, const struct kiln_variant *variant,
        uint32_t *n_ops) {
    const struct kiln_node *nodes = low->graph->nodes;
    *n_ops = 1 + variant->n_follows;
    if ((variant->role && strcmp(variant->role, nodes[first].op.role) != 0) ||
            *n_ops > KILN_STEP_OPS) {
        return 0;
    }
    uint32_t n = 1;
    for (uint32_t i = 0; i < variant->n_follows; i++) {
        if (strcmp(variant->follows[i], "quantize") == 0 && i + 1 == variant->n_follows) {
            break; // what it writes, not a node of the graph
        }
        if (first + n >= low->schedule->end_node || nodes[first + n].layer != nodes[first].layer ||
                !follows(&nodes[first + n], variant->follows[i])) {
            return 0;
        }
        n++;
    }
    return n;
}

// Whether a later layer than the group's binds one of the ops behind its first: what a user binds
// is not swallowed by a default that fills several ops.
static enum kiln_status outranked(
        struct lowering *low, const struct group *group, int *is, struct kiln_err *err) {
    struct kiln_schedule *s = low->schedule;
    *is = 0;
    for (uint32_t i = 1; i < group->n_nodes && !*is; i++) {
        const struct kiln_binding *binding = NULL;
        char slot[64];
        KILN_TRY(kiln_schedule_bind(s, group->first + i, s->phase, s->m, 0, slot, &binding, err));
        s->bindings[group->first + i - s->first_node] = binding;
        *is = binding->layer > group->binding->layer;
    }
    return KILN_STATUS_OK;
}

static enum kiln_status make_group(
        struct lowering *low, size_t first, struct group *group, struct kiln_err *err) {
    struct kiln_schedule *s = low->schedule;
    for (;;) {
        *group = (struct group){.first = first};
        KILN_TRY(kiln_schedule_bind(
                s, first, s->phase, s->m, low->skip[first], group->slot, &group->binding, err));
        if (!group->binding) {
            return kiln_err_set(err, KILN_STATUS_CONFIG, "[%s]: no variant is left to fill it: %s",
                    group->slot, low->declined);
        }
        if (low->skip[first] == 0) {
            s->bindings[first - s->first_node] = group->binding;
        }
        group->n_nodes = match(low, first, group->binding->variant, &group->n_ops);
        int is_outranked = 0;
        if (group->n_nodes > 0) {
            KILN_TRY(outranked(low, group, &is_outranked, err));
        }
        if (group->n_nodes > 0 && !is_outranked) {
            return KILN_STATUS_OK;
        }
        if (is_outranked) {
            low->skip[first]++;
            continue;
        }
        pass_over(low, group, "the ops here are not those that it fills");
        low->again = 0; // decided before anything was planned
    }
}

static enum kiln_status make_groups(struct lowering *low, struct kiln_err *err) {
    struct kiln_schedule *s = low->schedule;
    low->n_groups = 0;
    for (size_t i = s->first_node; i < s->end_node;) {
        struct group *group = &low->groups[low->n_groups];
        KILN_TRY(make_group(low, i, group, err));
        for (uint32_t j = 0; j < group->n_nodes; j++) {
            low->group_of[i + j - s->first_node] = (int32_t)low->n_groups;
        }
        i += group->n_nodes;
        low->n_groups++;
    }
    return KILN_STATUS_OK;
}

// ---- Formats ------------------------------------------------------------------------------------

// The group that writes an edge and the formats it can give; NULL for an edge that is fed in.
static const struct group *writer_of(
        const struct lowering *low, kiln_edge edge, struct kiln_formats *formats) {
    int32_t node = low->graph->edges[edge].writer;
    *formats = (struct kiln_formats){plain, 1};
    if (node < 0) {
        return NULL;
    }
    const struct group *group =
            &low->groups[low->group_of[(size_t)node - low->schedule->first_node]];
    uint32_t op = (uint32_t)((size_t)node - group->first);
    uint32_t last = op + 1 == group->n_nodes ? group->n_ops - 1 : op;
    *formats = kiln_variant_formats(group->binding->variant, last, KILN_OPERAND_OUT);
    return group;
}

// Calls visit with what a reader takes, best first, for every read of an edge outside of the group
// that writes it; stops at the first non-zero.
static int each_read(const struct lowering *low, kiln_edge edge, const struct group *writer,
        int (*visit)(struct kiln_formats read, void *arg), void *arg) {
    const struct kiln_schedule *s = low->schedule;
    size_t from = writer ? writer->first + writer->n_nodes : s->first_node;
    for (size_t n = from; n < s->end_node; n++) {
        const struct kiln_node *node = &low->graph->nodes[n];
        const struct group *group = &low->groups[low->group_of[n - s->first_node]];
        for (uint32_t i = 0; i < node->n_operands; i++) {
            const struct kiln_node_operand *operand = &node->operands[i];
            if (operand->from == KILN_FROM_EDGE && operand->edge == edge &&
                    operand->operand != KILN_OPERAND_OUT) {
                int result = visit(kiln_variant_formats(group->binding->variant,
                                           (uint32_t)(n - group->first), operand->operand),
                        arg);
                if (result) {
                    return result;
                }
            }
        }
    }
    if (edge == low->graph->body_out ||
            edge == low->graph->logits) { // the engine reads these itself
        return visit((struct kiln_formats){plain, 1}, arg);
    }
    return 0;
}

struct agreement {
    const struct kiln_schedule *schedule;
    kiln_edge edge;
    struct kiln_formats written;
    const char *format; // what all readers so far would take from the writer
};

static int agree(struct kiln_formats read, void *arg) {
    struct agreement *a = arg;
    for (uint32_t i = 0; i < read.count; i++) {
        if (kiln_formats_have(a->written, read.names[i]) &&
                kiln_edge_fits(a->schedule, a->edge, read.names[i])) {
            if (a->format && strcmp(a->format, read.names[i]) != 0) {
                return 1;
            }
            a->format = read.names[i];
            return 0;
        }
    }
    return 1; // this one needs a quantize op
}

// The format that the writer of an edge gives and all its readers take, or NULL.
static const char *agreed_format(const struct lowering *low, kiln_edge edge) {
    struct agreement a = {.schedule = low->schedule, .edge = edge};
    const struct group *writer = writer_of(low, edge, &a.written);
    return each_read(low, edge, writer, agree, &a) == 0 ? a.format : NULL;
}

// The format in which an edge is written: the agreed one, else f32 (or the first that the writer
// has), from which the others quantize.
static const char *written_format(const struct lowering *low, kiln_edge edge) {
    const char *format = agreed_format(low, edge);
    struct kiln_formats formats;
    writer_of(low, edge, &formats);
    return format ? format : kiln_formats_have(formats, "f32") ? "f32" : formats.names[0];
}

// ---- Steps and values ---------------------------------------------------------------------------

static enum kiln_status add_value(struct kiln_schedule *s, kiln_edge edge, const char *format,
        int32_t reader, uint64_t bytes, int32_t *index, struct kiln_err *err) {
    *index = (int32_t)s->n_values;
    if (kiln_grow(&s->values, &s->cap_values, s->n_values + 1, sizeof(*s->values)) != 0) {
        return kiln_err_nomem(err, "a schedule");
    }
    s->values[s->n_values++] = (struct kiln_value){.edge = edge,
            .format = format,
            .reader = reader,
            .bytes = bytes,
            .first = (int32_t)s->n_steps - 1,
            .last = (int32_t)s->n_steps - 1,
            .same_as = -1};
    return KILN_STATUS_OK;
}

static int32_t find_value(
        const struct kiln_schedule *s, kiln_edge edge, const char *format, int32_t reader) {
    for (size_t i = s->n_values; i-- > 0;) {
        const struct kiln_value *value = &s->values[i];
        if (value->edge == edge && value->edge >= 0 && strcmp(value->format, format) == 0 &&
                (value->reader < 0 || value->reader == reader)) {
            return (int32_t)i;
        }
    }
    return -1;
}

static enum kiln_status add_step(struct kiln_schedule *s, const struct kiln_step *step,
        uint32_t n_ops, struct kiln_step **out, struct kiln_err *err) {
    if (kiln_grow(&s->steps, &s->cap_steps, s->n_steps + 1, sizeof(*s->steps)) != 0) {
        return kiln_err_nomem(err, "a schedule");
    }
    struct kiln_step_op *ops = kiln_calloc(n_ops, sizeof(*ops));
    if (!ops) {
        return kiln_err_nomem(err, "a schedule");
    }
    *out = &s->steps[s->n_steps++];
    **out = *step;
    (*out)->ops = ops;
    (*out)->n_ops = n_ops;
    return KILN_STATUS_OK;
}

static void put_operand(struct kiln_step_op *op, enum kiln_operand operand, int32_t value,
        const struct kiln_tensor *tensor, void *address) {
    uint32_t i = op->op.n_operands++;
    op->tensors[i] = *tensor;
    op->tensors[i].operand = operand;
    op->values[i] = value;
    op->address[i] = address;
}

static enum kiln_status plan_step(struct lowering *low, struct kiln_step *step,
        enum kiln_plan_outcome *outcome, struct kiln_err *err) {
    struct kiln_schedule *s = low->schedule;
    const struct kiln_op *ops[KILN_STEP_OPS];
    for (uint32_t i = 0; i < step->n_ops; i++) {
        struct kiln_step_op *op = &step->ops[i];
        for (uint32_t j = 0; j < op->op.n_operands; j++) {
            op->operands[j] = &op->tensors[j];
        }
        op->op.operands = op->operands;
        ops[i] = &op->op;
    }
    struct kiln_problem problem = {
            .struct_size = sizeof(problem),
            .phase = s->phase,
            .slot = step->slot,
            .ops = ops,
            .n_ops = step->n_ops,
            .layer = step->layer,
            .rank = 0,
            .world = 1,
    };
    const struct kiln_device *device = &s->runtime->dev->desc;
    struct kiln_registry *registry = s->runtime->registry;
    kiln_registry_lock(registry); // an instance plans one problem at a time
    void *instance;
    enum kiln_status status = kiln_registry_start(registry, step->plugin, device, &instance, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_plan_make(step->plugin, step->variant, instance, &problem, &step->geometry,
                device, outcome, &step->planned, err);
    }
    kiln_registry_unlock(registry);
    KILN_TRY(status);
    if (*outcome == KILN_PLAN_DECLINED) {
        return KILN_STATUS_OK;
    }
    step->first_workspace = (int32_t)s->n_values;
    for (uint32_t i = 0; i < step->planned->n_workspaces; i++) {
        int32_t value;
        KILN_TRY(add_value(s, -1, "", -1, step->planned->workspaces[i].bytes, &value, err));
        s->values[value].kept = (step->planned->workspaces[i].flags & KILN_WORKSPACE_KEPT) != 0;
    }
    return KILN_STATUS_OK;
}

// ---- Quantize -----------------------------------------------------------------------------------

// Adds the op that makes `format` of an f32 edge, unless a shared one is there already.
static enum kiln_status quantize(struct lowering *low, const struct group *reader, kiln_edge edge,
        const char *format, int32_t *value, struct kiln_err *err) {
    struct kiln_schedule *s = low->schedule;
    const struct kiln_node *node = &low->graph->nodes[reader->first];
    const struct kiln_binding *binding;
    KILN_TRY(kiln_schedule_bind_quantize(s, node, &binding, err));
    int shared = strcmp(binding->variant_name, "shared") == 0;
    int32_t tag = shared ? -1 : (int32_t)reader->first;
    *value = find_value(s, edge, format, tag);
    if (*value >= 0) {
        return KILN_STATUS_OK;
    }
    struct kiln_step step = {.node = reader->first, .layer = node->layer, .binding = binding};
    snprintf(step.slot, sizeof(step.slot), "quantize");
    step.variant = kiln_find_quantizer(s->runtime, format, binding->plugin, &step.plugin);
    if (!step.variant) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "[%s] %s reads edges in format %s, and no loaded plugin has a quantize variant for "
                "it",
                reader->slot, reader->binding->variant->name, format);
    }
    step.geometry.struct_size = sizeof(step.geometry);
    struct kiln_step *added;
    KILN_TRY(add_step(s, &step, 1, &added, err));
    struct kiln_step_op *op = &added->ops[0];
    op->op = (struct kiln_op){
            .struct_size = sizeof(op->op), .kind = KILN_OP_QUANTIZE, .role = node->op.role};
    struct kiln_tensor tensor;
    uint64_t bytes;
    KILN_TRY(kiln_edge_describe(s, edge, "f32", &tensor, &bytes, err));
    int32_t in = find_value(s, edge, "f32", -1);
    if (in < 0) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "[%s] %s reads its input as %s, but what writes it gives no f32 to quantize from",
                reader->slot, reader->binding->variant->name, format);
    }
    s->values[in].last = (int32_t)s->n_steps - 1;
    put_operand(op, KILN_OPERAND_IN, in, &tensor, NULL);
    KILN_TRY(kiln_edge_describe(s, edge, format, &tensor, &bytes, err));
    KILN_TRY(add_value(s, edge, format, tag, bytes, value, err));
    put_operand(op, KILN_OPERAND_OUT, *value, &tensor, NULL);
    struct kiln_node_operand count = {
            .operand = KILN_OPERAND_N_TOKENS, .from = KILN_FROM_VALUE, .edge = -1};
    void *address;
    kiln_step_describe(s, node, &count, &tensor, &address);
    put_operand(op, KILN_OPERAND_N_TOKENS, -1, &tensor, address);
    enum kiln_plan_outcome outcome;
    KILN_TRY(plan_step(low, added, &outcome, err));
    if (outcome == KILN_PLAN_DECLINED) {
        char reason[sizeof(err->text)];
        snprintf(reason, sizeof(reason), "%s", err->text);
        return kiln_err_set(err, KILN_STATUS_CONFIG, "[quantize] %s of plugin %s declined: %s",
                step.variant->name, step.plugin->name, reason);
    }
    return KILN_STATUS_OK;
}

// ---- A group's step -----------------------------------------------------------------------------

static int is_inner(const struct group *group, const struct kiln_graph *graph, kiln_edge edge) {
    int32_t writer = graph->edges[edge].writer;
    return writer >= 0 && (size_t)writer >= group->first &&
           (size_t)writer < group->first + group->n_nodes;
}

static int any_read(struct kiln_formats read, void *arg) {
    (void)read;
    (void)arg;
    return 1;
}

// The value that a reader gets an edge from; quantizes it first where formats do not meet.
static enum kiln_status read_edge(struct lowering *low, const struct group *group, uint32_t op,
        const struct kiln_node_operand *operand, int32_t *value, const char **format,
        struct kiln_err *err) {
    struct kiln_schedule *s = low->schedule;
    struct kiln_formats formats =
            kiln_variant_formats(group->binding->variant, op, operand->operand);
    for (uint32_t i = 0; i < formats.count; i++) {
        *value = find_value(s, operand->edge, formats.names[i], (int32_t)group->first);
        if (*value >= 0) {
            *format = formats.names[i];
            return KILN_STATUS_OK;
        }
    }
    *format = formats.names[0];
    return quantize(low, group, operand->edge, formats.names[0], value, err);
}

struct gathered { // an edge operand of a group, before its step exists
    int32_t value;
    const char *format;
};

static enum kiln_status gather_reads(struct lowering *low, const struct group *group,
        struct gathered reads[KILN_STEP_OPS][KILN_NODE_OPERANDS], struct kiln_err *err) {
    for (uint32_t n = 0; n < group->n_nodes; n++) {
        const struct kiln_node *node = &low->graph->nodes[group->first + n];
        for (uint32_t i = 0; i < node->n_operands; i++) {
            const struct kiln_node_operand *operand = &node->operands[i];
            if (operand->from == KILN_FROM_EDGE && operand->operand != KILN_OPERAND_OUT &&
                    !is_inner(group, low->graph, operand->edge)) {
                KILN_TRY(read_edge(
                        low, group, n, operand, &reads[n][i].value, &reads[n][i].format, err));
            }
        }
    }
    return KILN_STATUS_OK;
}

// An edge that the group writes: as agreed, or not stored at all when only the group itself reads
// it.
static enum kiln_status write_edge(struct lowering *low, const struct group *group,
        struct kiln_step_op *op, kiln_edge edge, int quantized, struct kiln_err *err) {
    struct kiln_schedule *s = low->schedule;
    int internal = quantized || !each_read(low, edge, group, any_read, NULL);
    const char *format = internal ? "f32" : written_format(low, edge);
    struct kiln_tensor tensor;
    uint64_t bytes;
    KILN_TRY(kiln_edge_describe(s, edge, format, &tensor, &bytes, err));
    int32_t value = -1;
    if (internal) {
        tensor.flags |= KILN_TENSOR_INTERNAL;
    } else {
        KILN_TRY(add_value(s, edge, format, -1, bytes, &value, err));
    }
    put_operand(op, KILN_OPERAND_OUT, value, &tensor, NULL);
    return KILN_STATUS_OK;
}

static enum kiln_status fill_op(struct lowering *low, const struct group *group, uint32_t n,
        const struct gathered *reads, struct kiln_step_op *op, struct kiln_err *err) {
    struct kiln_schedule *s = low->schedule;
    const struct kiln_node *node = &low->graph->nodes[group->first + n];
    op->op = node->op;
    op->op.n_operands = 0;
    int quantizes = group->n_ops > group->n_nodes;
    for (uint32_t i = 0; i < node->n_operands; i++) {
        const struct kiln_node_operand *operand = &node->operands[i];
        struct kiln_tensor tensor;
        void *address = NULL;
        if (operand->from != KILN_FROM_EDGE) {
            kiln_step_describe(s, node, operand, &tensor, &address);
            if (operand->from == KILN_FROM_WEIGHT) {
                struct kiln_dev *dev = s->runtime->dev;
                KILN_TRY(dev->ops->weights(
                        dev, operand->tensor->data, operand->tensor->bytes, &address, err));
            }
            put_operand(op, operand->operand, -1, &tensor, address);
        } else if (operand->operand == KILN_OPERAND_OUT) {
            int quantized = quantizes && n + 1 == group->n_nodes;
            KILN_TRY(write_edge(low, group, op, operand->edge, quantized, err));
        } else {
            uint64_t bytes;
            int inner = is_inner(group, low->graph, operand->edge);
            KILN_TRY(kiln_edge_describe(
                    s, operand->edge, inner ? "f32" : reads[i].format, &tensor, &bytes, err));
            tensor.flags |= inner ? KILN_TENSOR_INTERNAL : 0u;
            if (!inner) {
                s->values[reads[i].value].last = (int32_t)s->n_steps - 1;
            }
            put_operand(op, operand->operand, inner ? -1 : reads[i].value, &tensor, NULL);
        }
    }
    return KILN_STATUS_OK;
}

// The quantize op at the end of a group whose variant writes a block format itself.
static enum kiln_status fill_quantize(struct lowering *low, const struct group *group,
        struct kiln_step_op *op, const char *format, struct kiln_err *err) {
    struct kiln_schedule *s = low->schedule;
    const struct kiln_node *node = &low->graph->nodes[group->first + group->n_nodes - 1];
    op->op = (struct kiln_op){
            .struct_size = sizeof(op->op), .kind = KILN_OP_QUANTIZE, .role = node->op.role};
    struct kiln_tensor tensor;
    uint64_t bytes;
    KILN_TRY(kiln_edge_describe(s, node->out, "f32", &tensor, &bytes, err));
    tensor.flags |= KILN_TENSOR_INTERNAL;
    put_operand(op, KILN_OPERAND_IN, -1, &tensor, NULL);
    KILN_TRY(kiln_edge_describe(s, node->out, format, &tensor, &bytes, err));
    int32_t value;
    KILN_TRY(add_value(s, node->out, format, -1, bytes, &value, err));
    put_operand(op, KILN_OPERAND_OUT, value, &tensor, NULL);
    return KILN_STATUS_OK;
}

static enum kiln_status emit(
        struct lowering *low, const struct group *group, struct kiln_err *err) {
    struct kiln_schedule *s = low->schedule;
    struct gathered reads[KILN_STEP_OPS][KILN_NODE_OPERANDS] = {0};
    const char *format = NULL;
    if (group->n_ops > group->n_nodes) {
        format = agreed_format(low, low->graph->nodes[group->first + group->n_nodes - 1].out);
        if (!format) {
            pass_over(low, group, "its readers take no format that it quantizes to");
            return KILN_STATUS_OK;
        }
    }
    KILN_TRY(gather_reads(low, group, reads, err));
    struct kiln_step step = {.node = group->first,
            .n_nodes = group->n_nodes,
            .layer = low->graph->nodes[group->first].layer,
            .binding = group->binding,
            .plugin = group->binding->plugin,
            .variant = group->binding->variant,
            .geometry = group->binding->geometry};
    memcpy(step.slot, group->slot, sizeof(step.slot));
    struct kiln_step *added;
    KILN_TRY(add_step(s, &step, group->n_ops, &added, err));
    for (uint32_t n = 0; n < group->n_nodes; n++) {
        KILN_TRY(fill_op(low, group, n, reads[n], &added->ops[n], err));
    }
    if (format) {
        KILN_TRY(fill_quantize(low, group, &added->ops[group->n_nodes], format, err));
    }
    enum kiln_plan_outcome outcome;
    KILN_TRY(plan_step(low, added, &outcome, err));
    if (outcome == KILN_PLAN_DECLINED) {
        pass_over(low, group, err->text);
    }
    return KILN_STATUS_OK;
}

static void drop_steps(struct kiln_schedule *s) {
    for (size_t i = 0; i < s->n_steps; i++) {
        kiln_planned_destroy(s->steps[i].planned);
        kiln_free(s->steps[i].ops);
    }
    s->n_steps = 0;
    s->n_values = 0;
}

static enum kiln_status lower_all(struct lowering *low, struct kiln_err *err) {
    struct kiln_schedule *s = low->schedule;
    do {
        low->again = 0;
        drop_steps(s);
        KILN_TRY(make_groups(low, err));
        if (s->part != KILN_PART_BODY) { // its input is fed from outside, before the first step
            struct kiln_tensor tensor;
            uint64_t bytes;
            KILN_TRY(kiln_edge_describe(s, low->graph->head_in, "f32", &tensor, &bytes, err));
            KILN_TRY(add_value(s, low->graph->head_in, "f32", -1, bytes, &s->in_value, err));
        }
        for (size_t i = 0; i < low->n_groups && !low->again; i++) {
            KILN_TRY(emit(low, &low->groups[i], err));
        }
    } while (low->again);
    kiln_edge out = s->part == KILN_PART_BODY ? low->graph->body_out : low->graph->logits;
    s->out_value = find_value(s, out, "f32", -1);
    if (s->out_value < 0) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "[%s]: no variant left gives its result in f32, which the engine reads",
                low->groups[low->n_groups - 1].slot);
    }
    s->values[s->out_value].last = INT32_MAX;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_schedule_lower(struct kiln_schedule *schedule, struct kiln_err *err) {
    size_t n = schedule->end_node - schedule->first_node;
    struct lowering low = {
            .schedule = schedule,
            .graph = schedule->runtime->graph,
            .groups = kiln_calloc(n, sizeof(*low.groups)),
            .group_of = kiln_calloc(n, sizeof(*low.group_of)),
            .skip = kiln_calloc(schedule->end_node, sizeof(*low.skip)),
    };
    enum kiln_status status = !low.groups || !low.group_of || !low.skip
                                      ? kiln_err_nomem(err, "a schedule")
                                      : lower_all(&low, err);
    kiln_free(low.groups);
    kiln_free(low.group_of);
    kiln_free(low.skip);
    return status;
}
