// graph: appends nodes and edges; knows shapes, nothing of any architecture.
#include "model/graph.h"

#include "base/mem.h"

#include <string.h>

void kiln_graph_finish(struct kiln_graph *graph) {
    for (uint32_t i = 0; i < graph->n_rope; i++) {
        kiln_free(graph->rope[i].freqs);
    }
    kiln_free(graph->nodes);
    kiln_free(graph->edges);
    *graph = (struct kiln_graph){0};
}

static kiln_edge add_edge(struct kiln_graph *graph, int64_t cols, int32_t writer) {
    if (kiln_grow(&graph->edges, &graph->cap_edges, graph->n_edges + 1, sizeof(*graph->edges)) !=
            0) {
        kiln_err_nomem(&graph->err, "the model's graph");
        return -1;
    }
    graph->edges[graph->n_edges] = (struct kiln_graph_edge){.cols = cols, .writer = writer};
    return (kiln_edge)graph->n_edges++;
}

// A new node that writes an edge of `cols` columns (0: none); NULL once building has failed.
static struct kiln_node *add_node(struct kiln_graph *graph, enum kiln_op_kind kind,
        const char *role, int32_t layer, int64_t cols) {
    if (graph->err.status != KILN_STATUS_OK) {
        return NULL;
    }
    if (kiln_grow(&graph->nodes, &graph->cap_nodes, graph->n_nodes + 1, sizeof(*graph->nodes)) !=
            0) {
        kiln_err_nomem(&graph->err, "the model's graph");
        return NULL;
    }
    struct kiln_node *node = &graph->nodes[graph->n_nodes];
    *node = (struct kiln_node){.layer = layer, .out = -1, .head = graph->n_body > 0};
    node->op.struct_size = sizeof(node->op);
    node->op.kind = kind;
    node->op.role = role;
    if (cols > 0) {
        node->out = add_edge(graph, cols, (int32_t)graph->n_nodes);
        if (node->out < 0) {
            return NULL;
        }
    }
    graph->n_nodes++;
    return node;
}

static void use(struct kiln_node *node, enum kiln_operand operand, enum kiln_source_kind from,
        uint32_t index) {
    node->operands[node->n_operands++] = (struct kiln_node_operand){
            .operand = operand, .from = from, .edge = -1, .index = index};
}

static void use_edge(struct kiln_node *node, enum kiln_operand operand, kiln_edge edge) {
    use(node, operand, KILN_FROM_EDGE, 0);
    node->operands[node->n_operands - 1].edge = edge;
}

static void use_weight(
        struct kiln_node *node, enum kiln_operand operand, const struct kiln_gguf_tensor *tensor) {
    use(node, operand, KILN_FROM_WEIGHT, 0);
    node->operands[node->n_operands - 1].tensor = tensor;
}

static void use_count(struct kiln_node *node) {
    use(node, KILN_OPERAND_N_TOKENS, KILN_FROM_VALUE, 0);
}

kiln_edge kiln_graph_embed(
        struct kiln_graph *graph, const struct kiln_gguf_tensor *table, float scale) {
    struct kiln_node *node =
            table ? add_node(graph, KILN_OP_EMBED, "token_embd", -1, (int64_t)table->dims[0])
                  : NULL;
    if (!node) {
        return -1;
    }
    node->op.scale = scale;
    use(node, KILN_OPERAND_IDS, KILN_FROM_VALUE, 0);
    use_weight(node, KILN_OPERAND_WEIGHT, table);
    use_edge(node, KILN_OPERAND_OUT, node->out);
    use_count(node);
    return node->out;
}

kiln_edge kiln_graph_norm(struct kiln_graph *graph, int32_t layer, const char *role, kiln_edge in,
        const struct kiln_gguf_tensor *weight, float eps, kiln_edge residual) {
    struct kiln_node *node =
            in >= 0 ? add_node(graph, KILN_OP_NORM, role, layer, graph->edges[in].cols) : NULL;
    if (!node) {
        return -1;
    }
    node->op.eps = eps;
    use_edge(node, KILN_OPERAND_IN, in);
    use_weight(node, KILN_OPERAND_WEIGHT, weight);
    if (residual >= 0) {
        use_edge(node, KILN_OPERAND_RESIDUAL, residual);
    }
    use_edge(node, KILN_OPERAND_OUT, node->out);
    use_count(node);
    return node->out;
}

kiln_edge kiln_graph_matmul(struct kiln_graph *graph, int32_t layer, const char *role, kiln_edge in,
        const struct kiln_gguf_tensor *weight, const struct kiln_gguf_tensor *bias,
        kiln_edge residual) {
    struct kiln_node *node = in >= 0 && weight ? add_node(graph, KILN_OP_MATMUL, role, layer,
                                                         (int64_t)weight->dims[1])
                                               : NULL;
    if (!node) {
        return -1;
    }
    use_edge(node, KILN_OPERAND_IN, in);
    use_weight(node, KILN_OPERAND_WEIGHT, weight);
    if (bias) {
        use_weight(node, KILN_OPERAND_BIAS, bias);
    }
    if (residual >= 0) {
        use_edge(node, KILN_OPERAND_RESIDUAL, residual);
    }
    use_edge(node, KILN_OPERAND_OUT, node->out);
    use_count(node);
    return node->out;
}

static void copy_shape(struct kiln_op *op, const struct kiln_attention_shape *shape) {
    op->n_heads = shape->n_heads;
    op->n_kv_heads = shape->n_kv_heads;
    op->head_size = shape->head_size;
}

static kiln_edge rope_kv(struct kiln_graph *graph, int32_t layer,
        const struct kiln_attention_shape *shape, kiln_edge q, kiln_edge k, kiln_edge v) {
    struct kiln_node *node =
            add_node(graph, KILN_OP_ROPE_KV, "rope_kv", layer, graph->edges[q].cols);
    if (!node) {
        return -1;
    }
    copy_shape(&node->op, shape);
    node->op.rope_style = shape->rope_style;
    node->op.rope_dims = shape->rope_dims;
    node->op.rope_scale = shape->rope_scale;
    node->op.eps = shape->eps;
    use_edge(node, KILN_OPERAND_Q, q);
    use_edge(node, KILN_OPERAND_K, k);
    use_edge(node, KILN_OPERAND_V, v);
    if (shape->q_norm) {
        use_weight(node, KILN_OPERAND_Q_NORM, shape->q_norm);
        use_weight(node, KILN_OPERAND_K_NORM, shape->k_norm);
    }
    use(node, KILN_OPERAND_ROPE_FREQS, KILN_FROM_FREQS, shape->rope);
    use(node, KILN_OPERAND_POSITIONS, KILN_FROM_VALUE, 0);
    use(node, KILN_OPERAND_K_CACHE, KILN_FROM_KV, 0);
    use(node, KILN_OPERAND_V_CACHE, KILN_FROM_KV, 1);
    use_count(node);
    use_edge(node, KILN_OPERAND_OUT, node->out);
    return node->out;
}

kiln_edge kiln_graph_attention(struct kiln_graph *graph, int32_t layer,
        const struct kiln_attention_shape *shape, kiln_edge q, kiln_edge k, kiln_edge v) {
    if (q < 0 || k < 0 || v < 0) {
        return -1;
    }
    kiln_edge rotated = rope_kv(graph, layer, shape, q, k, v);
    if (rotated < 0) {
        return -1;
    }
    struct kiln_node *node =
            add_node(graph, KILN_OP_ATTENTION, "attention", layer, graph->edges[rotated].cols);
    if (!node) {
        return -1;
    }
    copy_shape(&node->op, shape);
    node->op.window = shape->window;
    node->op.scale = shape->scale;
    node->op.softcap = shape->softcap;
    use_edge(node, KILN_OPERAND_Q, rotated);
    use(node, KILN_OPERAND_K_CACHE, KILN_FROM_KV, 0);
    use(node, KILN_OPERAND_V_CACHE, KILN_FROM_KV, 1);
    use(node, KILN_OPERAND_POSITIONS, KILN_FROM_VALUE, 0);
    use(node, KILN_OPERAND_KV_LEN, KILN_FROM_VALUE, 0);
    use_count(node);
    use_edge(node, KILN_OPERAND_OUT, node->out);
    return node->out;
}

kiln_edge kiln_graph_activation(struct kiln_graph *graph, int32_t layer, uint32_t activation,
        kiln_edge gate, kiln_edge up) {
    struct kiln_node *node = gate >= 0 && up >= 0
                                     ? add_node(graph, KILN_OP_ACTIVATION, "activation", layer,
                                               graph->edges[gate].cols)
                                     : NULL;
    if (!node) {
        return -1;
    }
    node->op.activation = activation;
    use_edge(node, KILN_OPERAND_GATE, gate);
    use_edge(node, KILN_OPERAND_UP, up);
    use_edge(node, KILN_OPERAND_OUT, node->out);
    use_count(node);
    return node->out;
}

kiln_edge kiln_graph_begin_head(struct kiln_graph *graph, kiln_edge x) {
    if (x < 0 || graph->err.status != KILN_STATUS_OK) {
        return -1;
    }
    graph->n_body = graph->n_nodes;
    graph->body_out = x;
    graph->head_in = add_edge(graph, graph->edges[x].cols, -1);
    return graph->head_in;
}

kiln_edge kiln_graph_pick(struct kiln_graph *graph, kiln_edge logits) {
    graph->n_head = graph->n_nodes;
    struct kiln_node *node = logits >= 0 ? add_node(graph, KILN_OP_ARGMAX, "pick", -1, 0) : NULL;
    if (!node) {
        return -1;
    }
    use_edge(node, KILN_OPERAND_IN, logits);
    use(node, KILN_OPERAND_OUT, KILN_FROM_VALUE, 0); // the id that the next step embeds
    use_count(node);
    graph->logits = logits;
    return logits;
}
