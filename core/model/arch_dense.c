// arch_dense: builds the plain pre-norm decoder that llama, qwen2 and qwen3 share.
#include "model/arch_dense.h"

#include <math.h>

// One layer: x -> x + attention(norm(x)) -> x + ffn(norm(x)).
static kiln_edge build_layer(struct kiln_model *model, const struct kiln_dense_flavour *flavour,
        int32_t layer, struct kiln_attention_shape *shape, kiln_edge x) {
    const struct kiln_model_params *p = &model->params;
    struct kiln_graph *g = &model->graph;
    int64_t d = p->width, q_cols = (int64_t)p->n_heads * p->head_size;
    int64_t kv_cols = (int64_t)p->n_kv_heads * p->head_size;
    const struct kiln_gguf_tensor *(*bias)(struct kiln_model *, int32_t, const char *, int64_t,
            int64_t) = flavour->qkv_bias ? kiln_model_tensor : kiln_model_tensor_optional;
    if (flavour->qk_norm) {
        shape->q_norm = kiln_model_tensor(model, layer, "attn_q_norm.weight", p->head_size, 0);
        shape->k_norm = kiln_model_tensor(model, layer, "attn_k_norm.weight", p->head_size, 0);
    }

    kiln_edge h = kiln_graph_norm(g, layer, "attn_norm", x,
            kiln_model_tensor(model, layer, "attn_norm.weight", d, 0), p->rms_eps, -1);
    kiln_edge q = kiln_graph_matmul(g, layer, "attn_q", h,
            kiln_model_tensor(model, layer, "attn_q.weight", d, q_cols),
            bias(model, layer, "attn_q.bias", q_cols, 0), -1);
    kiln_edge k = kiln_graph_matmul(g, layer, "attn_k", h,
            kiln_model_tensor(model, layer, "attn_k.weight", d, kv_cols),
            bias(model, layer, "attn_k.bias", kv_cols, 0), -1);
    kiln_edge v = kiln_graph_matmul(g, layer, "attn_v", h,
            kiln_model_tensor(model, layer, "attn_v.weight", d, kv_cols),
            bias(model, layer, "attn_v.bias", kv_cols, 0), -1);
    kiln_edge o = kiln_graph_attention(g, layer, shape, q, k, v);
    x = kiln_graph_matmul(g, layer, "attn_output", o,
            kiln_model_tensor(model, layer, "attn_output.weight", q_cols, d),
            kiln_model_tensor_optional(model, layer, "attn_output.bias", d, 0), x);

    h = kiln_graph_norm(g, layer, "ffn_norm", x,
            kiln_model_tensor(model, layer, "ffn_norm.weight", d, 0), p->rms_eps, -1);
    kiln_edge gate = kiln_graph_matmul(g, layer, "ffn_gate", h,
            kiln_model_tensor(model, layer, "ffn_gate.weight", d, p->ffn), NULL, -1);
    kiln_edge up = kiln_graph_matmul(g, layer, "ffn_up", h,
            kiln_model_tensor(model, layer, "ffn_up.weight", d, p->ffn), NULL, -1);
    kiln_edge act = kiln_graph_activation(g, layer, KILN_ACTIVATION_SILU, gate, up);
    return kiln_graph_matmul(g, layer, "ffn_down", act,
            kiln_model_tensor(model, layer, "ffn_down.weight", p->ffn, d), NULL, x);
}

enum kiln_status kiln_dense_build(
        struct kiln_model *model, const struct kiln_dense_flavour *flavour, struct kiln_err *err) {
    const struct kiln_model_params *p = &model->params;
    struct kiln_attention_shape shape = {
            .n_heads = p->n_heads,
            .n_kv_heads = p->n_kv_heads,
            .head_size = p->head_size,
            .rope_style = flavour->rope_style,
            .rope_dims = p->rope_dims,
            .scale = 1.0f / sqrtf((float)p->head_size),
            .eps = p->rms_eps,
    };
    shape.rope = kiln_model_rope(model, p->rope_base, 1, &shape.rope_scale);
    kiln_edge x = kiln_graph_embed(&model->graph,
            kiln_model_tensor(model, -1, "token_embd.weight", p->width, p->n_vocab), 1.0f);
    for (int32_t layer = 0; layer < p->n_layers; layer++) {
        x = build_layer(model, flavour, layer, &shape, x);
    }
    kiln_model_head(model, x);
    if (model->graph.err.status != KILN_STATUS_OK) {
        *err = model->graph.err;
    }
    return model->graph.err.status;
}
