// survey_formats: in which format each edge of a pass is, as lowering would have it (lower.c): by
// what its writer gives and all of its readers take.
#include "engine/survey_impl.h"

#include "config/slot.h"

#include <string.h>

uint32_t kiln_survey_fills(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, int *quantizes) {
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

int kiln_survey_writes(const struct kiln_survey_view *view, const struct kiln_survey_choice *choice,
        kiln_edge edge) {
    int32_t writer = view->params->graph->edges[edge].writer;
    return writer >= (int32_t)choice->node && writer < (int32_t)(choice->node + choice->n_nodes);
}

// Calls visit for every operand of a node behind the choice that reads the edge; stops at the first
// non-zero.
static int each_read(const struct kiln_survey_view *view, const struct kiln_survey_choice *choice,
        kiln_edge edge, int (*visit)(struct kiln_formats taken, void *arg), void *arg) {
    const struct kiln_graph *graph = view->params->graph;
    for (size_t n = choice->node + choice->n_nodes; n < graph->n_nodes; n++) {
        const struct kiln_binding *binding = view->bindings[view->owners[n]];
        for (uint32_t i = 0; i < graph->nodes[n].n_operands; i++) {
            const struct kiln_node_operand *operand = &graph->nodes[n].operands[i];
            if (operand->from == KILN_FROM_EDGE && operand->edge == edge &&
                    operand->operand != KILN_OPERAND_OUT &&
                    visit(kiln_variant_formats(binding ? binding->variant : NULL,
                                  (uint32_t)(n - view->owners[n]), operand->operand),
                            arg)) {
                return 1;
            }
        }
    }
    // The engine reads these itself.
    return (edge == graph->body_out || edge == graph->logits) &&
           visit(kiln_variant_formats(NULL, 0, KILN_OPERAND_IN), arg);
}

static int any_read(struct kiln_formats taken, void *arg) {
    (void)taken;
    (void)arg;
    return 1;
}

int kiln_survey_keeps_inside(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, kiln_edge edge) {
    return kiln_survey_writes(view, choice, edge) && !each_read(view, choice, edge, any_read, NULL);
}

struct agreement {
    const struct kiln_schedule *schedule;
    kiln_edge edge;
    struct kiln_formats given;
    const char *format; // what all readers so far would take
};

static int agree(struct kiln_formats taken, void *arg) {
    struct agreement *a = arg;
    for (uint32_t i = 0; i < taken.count; i++) {
        if (kiln_formats_have(a->given, taken.names[i]) &&
                kiln_edge_fits(a->schedule, a->edge, taken.names[i])) {
            int differs = a->format && strcmp(a->format, taken.names[i]) != 0;
            a->format = taken.names[i];
            return differs;
        }
    }
    return 1; // this one needs a quantize op
}

const char *kiln_survey_agreed(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, kiln_edge edge, struct kiln_formats given) {
    struct agreement a = {.schedule = &view->schedule, .edge = edge, .given = given};
    return each_read(view, choice, edge, agree, &a) == 0 ? a.format : NULL;
}

const char *kiln_survey_written(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, kiln_edge edge) {
    int quantizes;
    uint32_t n = kiln_survey_fills(view, choice, &quantizes);
    uint32_t op = (uint32_t)((size_t)view->params->graph->edges[edge].writer - choice->node);
    uint32_t last = op + 1 == n ? op + (uint32_t)quantizes : op;
    struct kiln_formats given = kiln_variant_formats(choice->variant, last, KILN_OPERAND_OUT);
    const char *format = kiln_survey_agreed(view, choice, edge, given);
    return format ? format : kiln_formats_have(given, "f32") ? "f32" : given.names[0];
}

const char *kiln_survey_read(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, uint32_t op,
        const struct kiln_node_operand *operand, const char **from) {
    struct kiln_formats own = kiln_variant_formats(choice->variant, op, operand->operand);
    int32_t writer = view->params->graph->edges[operand->edge].writer;
    *from = "f32"; // of what is fed in, and of what no variant is bound to
    if (writer >= 0 && view->bindings[view->owners[writer]]) {
        int quantizes;
        struct kiln_survey_choice other = {.node = view->owners[writer],
                .variant = view->bindings[view->owners[writer]]->variant};
        other.n_nodes = kiln_survey_fills(view, &other, &quantizes);
        *from = kiln_survey_written(view, &other, operand->edge);
    }
    return kiln_formats_have(own, *from) ? *from : own.names[0];
}
