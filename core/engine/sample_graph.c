// sample_graph: a plain pre-norm decoder over tensors that are descriptions alone.
#include "engine/sample_graph.h"

#include "base/mem.h"
#include "model/dtype.h"

#include <math.h>

const struct kiln_sample_shape kiln_sample_7b = {
        .n_layers = 28,
        .n_heads = 28,
        .n_kv_heads = 4,
        .head_size = 128,
        .width = 3584,
        .ffn = 18944,
        .n_vocab = 152064,
        .type = KILN_DTYPE_Q4_K,
        .more_type = KILN_DTYPE_Q6_K,
        .output_type = KILN_DTYPE_Q6_K,
        .qkv_bias = 1,
};

static const struct kiln_gguf_tensor *tensor(
        struct kiln_sample_graph *sample, uint32_t dtype, int64_t cols, int64_t rows) {
    struct kiln_gguf_tensor *made = kiln_arena_calloc(&sample->arena, 1, sizeof(*made));
    const struct kiln_dtype_info *info = kiln_dtype_info(dtype);
    if (!made) {
        (void)kiln_err_nomem(&sample->graph.err, "a sample graph");
        return NULL;
    }
    made->dtype = dtype;
    made->n_dims = rows ? 2 : 1;
    made->dims[0] = (uint64_t)cols;
    made->dims[1] = rows ? (uint64_t)rows : 1;
    made->dims[2] = made->dims[3] = 1;
    made->elems = made->dims[0] * made->dims[1];
    made->bytes = made->elems / info->elems * info->bytes;
    return made;
}

static kiln_edge matmul(struct kiln_sample_graph *sample, int32_t layer, const char *role,
        kiln_edge in, uint32_t dtype, int64_t rows, int bias, kiln_edge residual) {
    if (in < 0) {
        return -1;
    }
    const struct kiln_gguf_tensor *weight =
            tensor(sample, dtype, sample->graph.edges[in].cols, rows);
    const struct kiln_gguf_tensor *added = bias ? tensor(sample, KILN_DTYPE_F32, rows, 0) : NULL;
    return kiln_graph_matmul(&sample->graph, layer, role, in, weight, added, residual);
}

static kiln_edge norm(
        struct kiln_sample_graph *sample, int32_t layer, const char *role, kiln_edge in) {
    const struct kiln_gguf_tensor *weight =
            in < 0 ? NULL : tensor(sample, KILN_DTYPE_F32, sample->graph.edges[in].cols, 0);
    return weight ? kiln_graph_norm(&sample->graph, layer, role, in, weight, 1e-6f, -1) : -1;
}

// Whether the layer is one of those that get the larger type: the first and last eighth, and every
// third.
static int gets_more(int32_t layer, int32_t n_layers) {
    return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

static kiln_edge build_layer(struct kiln_sample_graph *sample, const struct kiln_sample_shape *s,
        const struct kiln_attention_shape *attention, int32_t layer, kiln_edge x) {
    uint32_t more = gets_more(layer, s->n_layers) ? s->more_type : s->type;
    int64_t q_cols = (int64_t)s->n_heads * s->head_size;
    int64_t kv_cols = (int64_t)s->n_kv_heads * s->head_size;
    kiln_edge h = norm(sample, layer, "attn_norm", x);
    kiln_edge q = matmul(sample, layer, "attn_q", h, s->type, q_cols, s->qkv_bias, -1);
    kiln_edge k = matmul(sample, layer, "attn_k", h, s->type, kv_cols, s->qkv_bias, -1);
    kiln_edge v = matmul(sample, layer, "attn_v", h, more, kv_cols, s->qkv_bias, -1);
    kiln_edge o = kiln_graph_attention(&sample->graph, layer, attention, q, k, v);
    x = matmul(sample, layer, "attn_output", o, s->type, s->width, 0, x);
    h = norm(sample, layer, "ffn_norm", x);
    kiln_edge gate = matmul(sample, layer, "ffn_gate", h, s->type, s->ffn, 0, -1);
    kiln_edge up = matmul(sample, layer, "ffn_up", h, s->type, s->ffn, 0, -1);
    kiln_edge act = kiln_graph_activation(&sample->graph, layer, KILN_ACTIVATION_SILU, gate, up);
    return matmul(sample, layer, "ffn_down", act, more, s->width, 0, x);
}

enum kiln_status kiln_sample_graph_make(struct kiln_sample_graph *sample,
        const struct kiln_sample_shape *shape, struct kiln_err *err) {
    *sample = (struct kiln_sample_graph){.graph = {.n_layers = shape->n_layers}};
    struct kiln_graph *graph = &sample->graph;
    const struct kiln_attention_shape attention = {.n_heads = shape->n_heads,
            .n_kv_heads = shape->n_kv_heads,
            .head_size = shape->head_size,
            .rope_style = KILN_ROPE_HALVES,
            .rope_dims = shape->head_size,
            .rope_scale = 1.0f,
            .scale = 1.0f / sqrtf((float)shape->head_size),
            .eps = 1e-6f};
    graph->kv_cols = (int64_t)shape->n_kv_heads * shape->head_size;
    graph->rope[0].len = (uint32_t)shape->head_size / 2; // planned with, never computed with
    graph->n_rope = 1;
    const struct kiln_gguf_tensor *table =
            tensor(sample, shape->type, shape->width, shape->n_vocab);
    kiln_edge x = table ? kiln_graph_embed(graph, table, 1.0f) : -1;
    for (int32_t layer = 0; layer < shape->n_layers; layer++) {
        x = build_layer(sample, shape, &attention, layer, x);
    }
    x = norm(sample, -1, "output_norm", kiln_graph_begin_head(graph, x));
    kiln_edge logits = matmul(sample, -1, "output", x, shape->output_type, shape->n_vocab, 0, -1);
    if (kiln_graph_pick(graph, logits) < 0) {
        return kiln_err_nomem(err, "a sample graph");
    }
    return KILN_STATUS_OK;
}

void kiln_sample_graph_finish(struct kiln_sample_graph *sample) {
    kiln_graph_finish(&sample->graph);
    kiln_arena_finish(&sample->arena);
    *sample = (struct kiln_sample_graph){.graph = {.n_layers = 0}};
}
