// graph: a model's forward pass as a list of ops over edges. An architecture file builds it once.
//
// Edges are values, each written by one node (or fed from outside) and read by later ones; what
// memory they use, and in which format, is decided when the graph is scheduled
// (core/engine/schedule.h). Rows are tokens and not part of the graph: every edge has S rows.
//
// The graph has two parts: the body, run on every chunk of tokens, and the head (last norm and
// output matmul), run on those rows whose logits are wanted. The body's result and the head's input
// are edges of their own. Behind the head stands the pick, the op that takes the id of the largest
// logit, for where nothing else of the logits is wanted.
//
// Building cannot fail half-way: the first failure sticks in graph->err, later calls do nothing and
// return -1.
#ifndef KILN_MODEL_GRAPH_H
#define KILN_MODEL_GRAPH_H

#include "base/status.h"
#include "kiln/plugin.h"
#include "model/gguf.h"

#include <stddef.h>
#include <stdint.h>

typedef int32_t kiln_edge; // index into graph->edges, -1: none

enum kiln_source_kind {
    KILN_FROM_EDGE,   // edge
    KILN_FROM_WEIGHT, // tensor in the file
    KILN_FROM_KV,     // K or V cache of the node's layer
    KILN_FROM_FREQS,  // table `index` of the graph's RoPE frequencies
    KILN_FROM_VALUE,  // a value that lives on the device: ids, positions, token count …
};

struct kiln_node_operand {
    enum kiln_operand operand;
    enum kiln_source_kind from;
    kiln_edge edge;
    uint32_t index;
    const struct kiln_gguf_tensor *tensor;
};

enum {
    KILN_NODE_OPERANDS = 12
};

struct kiln_node {
    struct kiln_op op; // kind, role and attributes; operands are filled in when scheduled
    int32_t layer;     // -1: outside the layers
    int head;          // belongs to the head
    struct kiln_node_operand operands[KILN_NODE_OPERANDS];
    uint32_t n_operands;
    kiln_edge out; // -1: none
};

struct kiln_graph_edge {
    int64_t cols;
    int32_t writer; // node, -1: fed from outside
};

struct kiln_rope_table {
    float *freqs; // (rope_dims / 2) radians a position
    uint32_t len;
};

struct kiln_graph {
    struct kiln_node *nodes;                   // body first, head behind it, the pick last
    size_t n_nodes, cap_nodes, n_body, n_head; // n_body, n_head: where head and pick begin
    struct kiln_graph_edge *edges;
    size_t n_edges, cap_edges;
    struct kiln_rope_table rope[2];
    uint32_t n_rope;
    kiln_edge body_out; // what the head's rows are copied from
    kiln_edge head_in;  // to
    kiln_edge logits;
    int32_t n_layers;
    int64_t kv_cols; // columns of a K or V cache row: HKV * HD
    struct kiln_err err;
};

void kiln_graph_finish(struct kiln_graph *graph); // a zeroed one is fine

// ---- Building: each returns the edge that the op writes -----------------------------------------

kiln_edge kiln_graph_embed(
        struct kiln_graph *graph, const struct kiln_gguf_tensor *table, float scale);
// residual: -1, or the edge that the normed rows are added to
kiln_edge kiln_graph_norm(struct kiln_graph *graph, int32_t layer, const char *role, kiln_edge in,
        const struct kiln_gguf_tensor *weight, float eps, kiln_edge residual);
// bias: NULL; residual: -1
kiln_edge kiln_graph_matmul(struct kiln_graph *graph, int32_t layer, const char *role, kiln_edge in,
        const struct kiln_gguf_tensor *weight, const struct kiln_gguf_tensor *bias,
        kiln_edge residual);

// What attention layers share; `rope` picks the frequency table.
struct kiln_attention_shape {
    int32_t n_heads, n_kv_heads, head_size;
    uint32_t rope_style; // enum kiln_rope_style
    int32_t rope_dims;
    uint32_t rope;
    float rope_scale;
    int32_t window;
    float scale, softcap, eps;
    const struct kiln_gguf_tensor *q_norm, *k_norm; // (HD), or NULL
};
// Rotates q and k and stores k and v, then attends: two nodes. Returns the attention's output.
kiln_edge kiln_graph_attention(struct kiln_graph *graph, int32_t layer,
        const struct kiln_attention_shape *shape, kiln_edge q, kiln_edge k, kiln_edge v);
kiln_edge kiln_graph_activation(
        struct kiln_graph *graph, int32_t layer, uint32_t activation, kiln_edge gate, kiln_edge up);
// Ends the body; returns the head's input.
kiln_edge kiln_graph_begin_head(struct kiln_graph *graph, kiln_edge x);
// Ends the head, whose result is `logits`, and adds the pick. Returns logits.
kiln_edge kiln_graph_pick(struct kiln_graph *graph, kiln_edge logits);

#endif
