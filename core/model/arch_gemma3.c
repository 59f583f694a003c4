// arch_gemma3: Gemma 3: norms before and after both halves of a layer, norms on q and k, GeGLU,
// embeddings scaled by the root of the width, and a sliding window on all but every n-th layer.
//
// The stored norm weights already contain the 1 that Gemma adds. Window layers rotate with their
// own base and without the file's RoPE scaling.
#include "model/model.h"

#include "base/mem.h"

#include <math.h>

enum {
    DEFAULT_PATTERN = 6
}; // every 6th layer sees everything, as in the published models

static enum kiln_status read_pattern(struct kiln_model *model, struct kiln_err *err) {
    struct kiln_model_params *p = &model->params;
    KILN_TRY(kiln_model_get_i32(
            model, "attention.sliding_window", KILN_GGUF_OPTIONAL, 0, INT32_MAX, &p->window, err));
    if (p->window == 0) {
        return KILN_STATUS_OK;
    }
    model->windowed = kiln_calloc((size_t)p->n_layers, 1);
    if (!model->windowed) {
        return kiln_err_nomem(err, "the window pattern");
    }
    p->windowed = model->windowed;
    const char *name = "gemma3.attention.sliding_window_pattern";
    const struct kiln_gguf_key *key = kiln_gguf_find_key(model->gguf, name);
    if (key && key->type == KILN_GGUF_ARRAY) {
        KILN_TRY(kiln_gguf_get_array(
                model->gguf, name, KILN_GGUF_REQUIRED, KILN_GGUF_BOOL, &key, err));
        if (key->count != (uint64_t)p->n_layers) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "%s: key '%s' at byte %llu has %llu entries, the model has %d layers",
                    kiln_gguf_path(model->gguf), name, (unsigned long long)key->offset,
                    (unsigned long long)key->count, p->n_layers);
        }
        for (int32_t i = 0; i < p->n_layers; i++) {
            model->windowed[i] = kiln_gguf_array_number(key, (uint64_t)i) != 0;
        }
        return KILN_STATUS_OK;
    }
    int32_t every = DEFAULT_PATTERN;
    KILN_TRY(kiln_model_get_i32(model, "attention.sliding_window_pattern", KILN_GGUF_OPTIONAL, 1,
            INT32_MAX, &every, err));
    for (int32_t i = 0; i < p->n_layers; i++) {
        model->windowed[i] = (i + 1) % every != 0;
    }
    return KILN_STATUS_OK;
}

static kiln_edge build_layer(
        struct kiln_model *model, int32_t layer, struct kiln_attention_shape *shape, kiln_edge x) {
    const struct kiln_model_params *p = &model->params;
    struct kiln_graph *g = &model->graph;
    int64_t d = p->width, q_cols = (int64_t)p->n_heads * p->head_size;
    int64_t kv_cols = (int64_t)p->n_kv_heads * p->head_size;
    shape->q_norm = kiln_model_tensor(model, layer, "attn_q_norm.weight", p->head_size, 0);
    shape->k_norm = kiln_model_tensor(model, layer, "attn_k_norm.weight", p->head_size, 0);

    kiln_edge h = kiln_graph_norm(g, layer, "attn_norm", x,
            kiln_model_tensor(model, layer, "attn_norm.weight", d, 0), p->rms_eps, -1);
    kiln_edge q = kiln_graph_matmul(g, layer, "attn_q", h,
            kiln_model_tensor(model, layer, "attn_q.weight", d, q_cols), NULL, -1);
    kiln_edge k = kiln_graph_matmul(g, layer, "attn_k", h,
            kiln_model_tensor(model, layer, "attn_k.weight", d, kv_cols), NULL, -1);
    kiln_edge v = kiln_graph_matmul(g, layer, "attn_v", h,
            kiln_model_tensor(model, layer, "attn_v.weight", d, kv_cols), NULL, -1);
    kiln_edge o = kiln_graph_attention(g, layer, shape, q, k, v);
    o = kiln_graph_matmul(g, layer, "attn_output", o,
            kiln_model_tensor(model, layer, "attn_output.weight", q_cols, d), NULL, -1);
    x = kiln_graph_norm(g, layer, "post_attention_norm", o,
            kiln_model_tensor(model, layer, "post_attention_norm.weight", d, 0), p->rms_eps, x);

    h = kiln_graph_norm(g, layer, "ffn_norm", x,
            kiln_model_tensor(model, layer, "ffn_norm.weight", d, 0), p->rms_eps, -1);
    kiln_edge gate = kiln_graph_matmul(g, layer, "ffn_gate", h,
            kiln_model_tensor(model, layer, "ffn_gate.weight", d, p->ffn), NULL, -1);
    kiln_edge up = kiln_graph_matmul(g, layer, "ffn_up", h,
            kiln_model_tensor(model, layer, "ffn_up.weight", d, p->ffn), NULL, -1);
    kiln_edge act = kiln_graph_activation(g, layer, KILN_ACTIVATION_GELU_TANH, gate, up);
    kiln_edge down = kiln_graph_matmul(g, layer, "ffn_down", act,
            kiln_model_tensor(model, layer, "ffn_down.weight", p->ffn, d), NULL, -1);
    return kiln_graph_norm(g, layer, "post_ffw_norm", down,
            kiln_model_tensor(model, layer, "post_ffw_norm.weight", d, 0), p->rms_eps, x);
}

static enum kiln_status build(struct kiln_model *model, struct kiln_err *err) {
    struct kiln_model_params *p = &model->params;
    KILN_TRY(read_pattern(model, err));
    p->rope_base_swa = 10000.0f;
    KILN_TRY(kiln_model_get_f32(
            model, "rope.freq_base_swa", KILN_GGUF_OPTIONAL, 1.0f, 1e12f, &p->rope_base_swa, err));
    // The 27B model alone scales by its width over its heads; every other size by the head size.
    float scale_dim = p->n_layers == 62 ? (float)p->width / (float)p->n_heads : (float)p->head_size;
    struct kiln_attention_shape global = {
            .n_heads = p->n_heads,
            .n_kv_heads = p->n_kv_heads,
            .head_size = p->head_size,
            .rope_style = KILN_ROPE_HALVES,
            .rope_dims = p->rope_dims,
            .scale = 1.0f / sqrtf(scale_dim),
            .eps = p->rms_eps,
    };
    struct kiln_attention_shape local = global;
    global.rope = kiln_model_rope(model, p->rope_base, 1, &global.rope_scale);
    local.rope = kiln_model_rope(model, p->rope_base_swa, 0, &local.rope_scale);
    local.window = p->window;
    kiln_edge x = kiln_graph_embed(&model->graph,
            kiln_model_tensor(model, -1, "token_embd.weight", p->width, p->n_vocab),
            sqrtf((float)p->width));
    for (int32_t layer = 0; layer < p->n_layers; layer++) {
        int windowed = p->windowed && p->windowed[layer];
        x = build_layer(model, layer, windowed ? &local : &global, x);
    }
    kiln_model_head(model, x);
    if (model->graph.err.status != KILN_STATUS_OK) {
        *err = model->graph.err;
    }
    return model->graph.err.status;
}

const struct kiln_arch kiln_arch_gemma3 = {.name = "gemma3", .build = build};
