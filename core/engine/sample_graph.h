// sample_graph: the forward pass of a model that is not there, by its sizes: for planning,
// compiling and auditing kernels at a real model's shapes without its file.
#ifndef KILN_ENGINE_SAMPLE_GRAPH_H
#define KILN_ENGINE_SAMPLE_GRAPH_H

#include "base/status.h"
#include "model/graph.h"
#include "plugin/arena.h"

#include <stdint.h>

struct kiln_sample_shape {
    int32_t n_layers, n_heads, n_kv_heads, head_size;
    int64_t width, ffn, n_vocab;
    uint32_t type;      // enum kiln_dtype of the matrices
    uint32_t more_type; // of attn_v and ffn_down in half of the layers, as the *_K_M mixes have it
    uint32_t output_type;
    int qkv_bias;
};

// A 7B model in Q4_K_M: 28 layers, 28 heads, 4 KV heads, head size 128, width 3584, ffn 18944,
// vocabulary 152064.
extern const struct kiln_sample_shape kiln_sample_7b;

struct kiln_sample_graph {
    struct kiln_graph graph;
    struct kiln_arena arena; // its tensors, which have no data
};

// Builds. NOMEM is all that can go wrong. The caller ends *sample with kiln_sample_graph_finish,
// also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_sample_graph_make(struct kiln_sample_graph *sample,
        const struct kiln_sample_shape *shape, struct kiln_err *err);
void kiln_sample_graph_finish(struct kiln_sample_graph *sample);

#endif
