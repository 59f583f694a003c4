// model: reads the keys that every architecture has, then lets the architecture build its graph.
#include "model/model.h"

#include "base/buf.h"
#include "base/mem.h"
#include "model/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct kiln_arch *const archs[] = {
        &kiln_arch_gemma3, &kiln_arch_llama, &kiln_arch_qwen2, &kiln_arch_qwen3};
enum {
    N_ARCHS = sizeof(archs) / sizeof(archs[0]),
    NAME_MAX_LEN = 128
};

static enum kiln_status find_arch(struct kiln_model *model, struct kiln_err *err) {
    struct kiln_str name = {0};
    KILN_TRY(
            kiln_gguf_get_str(model->gguf, "general.architecture", KILN_GGUF_REQUIRED, &name, err));
    struct kiln_buf known = {0};
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (strlen(archs[i]->name) == name.len &&
                memcmp(archs[i]->name, name.data, name.len) == 0) {
            kiln_buf_finish(&known);
            model->arch = archs[i];
            return KILN_STATUS_OK;
        }
        kiln_buf_printf(&known, "%s%s", i ? ", " : "", archs[i]->name);
    }
    const struct kiln_gguf_key *key = kiln_gguf_find_key(model->gguf, "general.architecture");
    char shown[KILN_GGUF_SHOWN];
    kiln_err_set(err, KILN_STATUS_FILE,
            "%s: key 'general.architecture' at byte %" PRIu64
            ": unknown architecture '%s'; known: %s",
            kiln_gguf_path(model->gguf), key->offset, kiln_gguf_show(shown, name),
            known.data ? known.data : "");
    kiln_buf_finish(&known);
    return KILN_STATUS_FILE;
}

static void key_name(const struct kiln_model *model, const char *suffix, char name[NAME_MAX_LEN]) {
    snprintf(name, NAME_MAX_LEN, "%s.%s", model->arch->name, suffix);
}

enum kiln_status kiln_model_get_i32(const struct kiln_model *model, const char *suffix,
        int required, int32_t min, int32_t max, int32_t *out, struct kiln_err *err) {
    char name[NAME_MAX_LEN];
    key_name(model, suffix, name);
    uint64_t value = (uint64_t)*out;
    KILN_TRY(kiln_gguf_get_u64(
            model->gguf, name, required, (uint64_t)min, (uint64_t)max, &value, err));
    *out = (int32_t)value;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_model_get_f32(const struct kiln_model *model, const char *suffix,
        int required, float min, float max, float *out, struct kiln_err *err) {
    char name[NAME_MAX_LEN];
    key_name(model, suffix, name);
    return kiln_gguf_get_f32(model->gguf, name, required, min, max, out, err);
}

static enum kiln_status bad_shape(
        struct kiln_model *model, const char *suffix, int32_t value, struct kiln_err *err) {
    char name[NAME_MAX_LEN];
    key_name(model, suffix, name);
    return kiln_err_set(err, KILN_STATUS_FILE, "%s: key '%s' is %d, which does not fit: %s",
            kiln_gguf_path(model->gguf), name, value,
            "query heads must be a multiple of key/value heads, rope.dimension_count even and at "
            "most "
            "the head size, value_length equal to key_length");
}

static enum kiln_status read_attention(struct kiln_model *model, struct kiln_err *err) {
    struct kiln_model_params *p = &model->params;
    KILN_TRY(kiln_model_get_i32(
            model, "attention.head_count", KILN_GGUF_REQUIRED, 1, 4096, &p->n_heads, err));
    p->n_kv_heads = p->n_heads;
    KILN_TRY(kiln_model_get_i32(
            model, "attention.head_count_kv", KILN_GGUF_OPTIONAL, 1, 4096, &p->n_kv_heads, err));
    if (p->n_heads % p->n_kv_heads != 0) {
        return bad_shape(model, "attention.head_count_kv", p->n_kv_heads, err);
    }
    p->head_size = p->width / p->n_heads;
    KILN_TRY(kiln_model_get_i32(
            model, "attention.key_length", KILN_GGUF_OPTIONAL, 1, 65536, &p->head_size, err));
    if (p->head_size < 1) {
        return bad_shape(model, "attention.head_count", p->n_heads, err);
    }
    int32_t value_length = p->head_size;
    KILN_TRY(kiln_model_get_i32(
            model, "attention.value_length", KILN_GGUF_OPTIONAL, 1, 65536, &value_length, err));
    if (value_length != p->head_size) {
        return bad_shape(model, "attention.value_length", value_length, err);
    }
    p->rope_dims = p->head_size;
    KILN_TRY(kiln_model_get_i32(
            model, "rope.dimension_count", KILN_GGUF_OPTIONAL, 0, 65536, &p->rope_dims, err));
    if (p->rope_dims > p->head_size || p->rope_dims % 2 != 0) {
        return bad_shape(model, "rope.dimension_count", p->rope_dims, err);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status read_rope_scaling(struct kiln_model *model, struct kiln_err *err) {
    struct kiln_model_params *p = &model->params;
    p->rope_base = 10000.0f;
    p->rope_factor = 1.0f;
    p->rope_attn_factor = 1.0f;
    p->rope_ctx_orig = p->ctx_train;
    p->rope_beta_fast = 32.0f;
    p->rope_beta_slow = 1.0f;
    KILN_TRY(kiln_model_get_f32(
            model, "rope.freq_base", KILN_GGUF_OPTIONAL, 1.0f, 1e12f, &p->rope_base, err));
    char name[NAME_MAX_LEN];
    key_name(model, "rope.scaling.type", name);
    struct kiln_str type = {.data = "none", .len = 4};
    KILN_TRY(kiln_gguf_get_str(model->gguf, name, KILN_GGUF_OPTIONAL, &type, err));
    static const char *const types[] = {"none", "linear", "yarn"};
    int found = -1;
    for (int i = 0; i < 3; i++) {
        if (strlen(types[i]) == type.len && memcmp(types[i], type.data, type.len) == 0) {
            found = i;
        }
    }
    if (found < 0) {
        char shown[KILN_GGUF_SHOWN];
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: key '%s': unknown RoPE scaling '%s'; known: none, linear, yarn",
                kiln_gguf_path(model->gguf), name, kiln_gguf_show(shown, type));
    }
    p->rope_scaling = (enum kiln_rope_scaling)found;
    KILN_TRY(kiln_model_get_f32(model, "rope.scaling.factor",
            p->rope_scaling == KILN_ROPE_SCALING_NONE ? KILN_GGUF_OPTIONAL : KILN_GGUF_REQUIRED,
            1e-6f, 1e6f, &p->rope_factor, err));
    KILN_TRY(kiln_model_get_f32(model, "rope.scaling.attn_factor", KILN_GGUF_OPTIONAL, 1e-6f, 1e6f,
            &p->rope_attn_factor, err));
    KILN_TRY(kiln_model_get_i32(model, "rope.scaling.original_context_length", KILN_GGUF_OPTIONAL,
            1, INT32_MAX, &p->rope_ctx_orig, err));
    KILN_TRY(kiln_model_get_f32(model, "rope.scaling.yarn_beta_fast", KILN_GGUF_OPTIONAL, 1e-3f,
            1e6f, &p->rope_beta_fast, err));
    return kiln_model_get_f32(model, "rope.scaling.yarn_beta_slow", KILN_GGUF_OPTIONAL, 1e-3f, 1e6f,
            &p->rope_beta_slow, err);
}

static enum kiln_status read_params(struct kiln_model *model, struct kiln_err *err) {
    struct kiln_model_params *p = &model->params;
    KILN_TRY(kiln_model_get_i32(
            model, "block_count", KILN_GGUF_REQUIRED, 1, 4096, &p->n_layers, err));
    KILN_TRY(kiln_model_get_i32(
            model, "embedding_length", KILN_GGUF_REQUIRED, 1, 1 << 20, &p->width, err));
    KILN_TRY(kiln_model_get_i32(
            model, "feed_forward_length", KILN_GGUF_REQUIRED, 1, 1 << 24, &p->ffn, err));
    KILN_TRY(kiln_model_get_i32(
            model, "context_length", KILN_GGUF_REQUIRED, 1, INT32_MAX, &p->ctx_train, err));
    KILN_TRY(kiln_model_get_f32(model, "attention.layer_norm_rms_epsilon", KILN_GGUF_REQUIRED, 0.0f,
            1.0f, &p->rms_eps, err));
    KILN_TRY(read_attention(model, err));
    KILN_TRY(read_rope_scaling(model, err));
    const struct kiln_gguf_tensor *table = kiln_gguf_find_tensor(model->gguf, "token_embd.weight");
    if (!table) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: tensor 'token_embd.weight' is missing",
                kiln_gguf_path(model->gguf));
    }
    if (table->dims[1] > INT32_MAX) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: tensor 'token_embd.weight' has %" PRIu64
                " rows; at most 2147483647 are allowed",
                kiln_gguf_path(model->gguf), table->dims[1]);
    }
    p->n_vocab = (int32_t)table->dims[1];
    return KILN_STATUS_OK;
}

static enum kiln_status read_tokenizer(struct kiln_model *model, struct kiln_err *err) {
    KILN_TRY(kiln_tokenizer_open(&model->tokenizer, model->gguf, err));
    if (model->tokenizer && kiln_tokenizer_size(model->tokenizer) > model->params.n_vocab) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: key 'tokenizer.ggml.tokens' has %d tokens, tensor 'token_embd.weight' only %d "
                "rows",
                kiln_gguf_path(model->gguf), kiln_tokenizer_size(model->tokenizer),
                model->params.n_vocab);
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_model_from_gguf(
        struct kiln_model **out, struct kiln_gguf *gguf, struct kiln_err *err) {
    struct kiln_model *model = kiln_calloc(1, sizeof(*model));
    if (!model) {
        kiln_gguf_close(gguf);
        return kiln_err_nomem(err, "the model");
    }
    model->gguf = gguf;
    enum kiln_status status = find_arch(model, err);
    if (status == KILN_STATUS_OK) {
        status = read_params(model, err);
    }
    if (status == KILN_STATUS_OK) {
        status = read_tokenizer(model, err);
    }
    if (status == KILN_STATUS_OK) {
        model->graph.n_layers = model->params.n_layers;
        model->graph.kv_cols = (int64_t)model->params.n_kv_heads * model->params.head_size;
        status = model->arch->build(model, err);
    }
    if (status != KILN_STATUS_OK) {
        kiln_model_close(model);
        return status;
    }
    *out = model;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_model_open(struct kiln_model **out, const char *path, struct kiln_err *err) {
    struct kiln_gguf *gguf = NULL;
    KILN_TRY(kiln_gguf_open(&gguf, path, err));
    return kiln_model_from_gguf(out, gguf, err);
}

void kiln_model_close(struct kiln_model *model) {
    if (!model) {
        return;
    }
    kiln_graph_finish(&model->graph);
    kiln_tokenizer_close(model->tokenizer);
    kiln_free(model->windowed);
    kiln_gguf_close(model->gguf);
    kiln_free(model);
}

uint64_t kiln_model_weight_bytes(const struct kiln_model *model) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < kiln_gguf_n_tensors(model->gguf); i++) {
        bytes += kiln_gguf_tensor_at(model->gguf, i)->bytes;
    }
    return bytes;
}

static void check_tensor(struct kiln_model *model, const struct kiln_gguf_tensor *tensor,
        int64_t cols, int64_t rows) {
    struct kiln_err *err = &model->graph.err;
    uint64_t want_rows = rows > 0 ? (uint64_t)rows : 1;
    if (tensor->dims[0] != (uint64_t)cols || tensor->dims[1] != want_rows || tensor->dims[2] != 1 ||
            tensor->dims[3] != 1) {
        kiln_err_set(err, KILN_STATUS_FILE,
                "%s: tensor '%s' at byte %" PRIu64 " is %" PRIu64 " x %" PRIu64
                ", the model's keys ask for %" PRId64 " x %" PRIu64,
                kiln_gguf_path(model->gguf), tensor->name, tensor->file_offset, tensor->dims[0],
                tensor->dims[1], cols, want_rows);
        return;
    }
    const struct kiln_dtype_info *info = kiln_dtype_info(tensor->dtype);
    if (rows > 0 ? !info->weight : tensor->dtype != KILN_DTYPE_F32) {
        kiln_err_set(err, KILN_STATUS_FILE, "%s: tensor '%s' at byte %" PRIu64 " has type %s; %s",
                kiln_gguf_path(model->gguf), tensor->name, tensor->file_offset, info->name,
                rows > 0 ? "matrices may be q4_K, q5_K, q6_K, q5_0, q4_1, q4_0, q8_0, f16, bf16 or "
                           "f32"
                         : "vectors must be f32");
    }
}

const struct kiln_gguf_tensor *kiln_model_tensor_optional(
        struct kiln_model *model, int32_t layer, const char *suffix, int64_t cols, int64_t rows) {
    char name[NAME_MAX_LEN];
    if (layer >= 0) {
        snprintf(name, sizeof(name), "blk.%d.%s", layer, suffix);
    } else {
        snprintf(name, sizeof(name), "%s", suffix);
    }
    const struct kiln_gguf_tensor *tensor = kiln_gguf_find_tensor(model->gguf, name);
    if (tensor && model->graph.err.status == KILN_STATUS_OK) {
        check_tensor(model, tensor, cols, rows);
    }
    return tensor;
}

const struct kiln_gguf_tensor *kiln_model_tensor(
        struct kiln_model *model, int32_t layer, const char *suffix, int64_t cols, int64_t rows) {
    const struct kiln_gguf_tensor *tensor =
            kiln_model_tensor_optional(model, layer, suffix, cols, rows);
    if (!tensor && model->graph.err.status == KILN_STATUS_OK) {
        char prefix[32] = "";
        if (layer >= 0) {
            snprintf(prefix, sizeof(prefix), "blk.%d.", layer);
        }
        kiln_err_set(&model->graph.err, KILN_STATUS_FILE,
                "%s: tensor '%s%s' is missing; architecture %s needs it",
                kiln_gguf_path(model->gguf), prefix, suffix, model->arch->name);
    }
    return tensor;
}

void kiln_model_head(struct kiln_model *model, kiln_edge x) {
    const struct kiln_model_params *p = &model->params;
    struct kiln_graph *g = &model->graph;
    x = kiln_graph_begin_head(g, x);
    kiln_edge h = kiln_graph_norm(g, -1, "output_norm", x,
            kiln_model_tensor(model, -1, "output_norm.weight", p->width, 0), p->rms_eps, -1);
    const struct kiln_gguf_tensor *output =
            kiln_model_tensor_optional(model, -1, "output.weight", p->width, p->n_vocab);
    if (!output) {
        output = kiln_model_tensor(model, -1, "token_embd.weight", p->width, p->n_vocab);
    }
    (void)kiln_graph_pick(g, kiln_graph_matmul(g, -1, "output", h, output, NULL, -1));
}
