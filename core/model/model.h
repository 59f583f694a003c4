// model: a GGUF file understood: its hyperparameters, its tokenizer, its graph.
//
// Letters used for shapes all over kiln: L layers, S tokens of a call, T tokens in the cache, D
// model width, H query heads, HKV key/value heads, HD head size, F feed-forward width, V
// vocabulary.
//
// An architecture is one file arch_<name>.c with one struct kiln_arch, listed in the table of
// model.c. It reads its own keys into struct kiln_model_params and builds the graph.
#ifndef KILN_MODEL_MODEL_H
#define KILN_MODEL_MODEL_H

#include "base/status.h"
#include "model/graph.h"
#include "model/tokenizer.h"

enum kiln_rope_scaling {
    KILN_ROPE_SCALING_NONE,
    KILN_ROPE_SCALING_LINEAR,
    KILN_ROPE_SCALING_YARN,
};

struct kiln_model_params {
    int32_t n_layers;   // L
    int32_t width;      // D
    int32_t n_heads;    // H
    int32_t n_kv_heads; // HKV
    int32_t head_size;  // HD
    int32_t ffn;        // F
    int32_t n_vocab;    // V
    int32_t ctx_train;  // context length the model was trained for
    float rms_eps;
    int32_t rope_dims;   // leading dimensions of a head that rotate
    float rope_base;     // frequency base
    float rope_base_swa; // of window layers
    enum kiln_rope_scaling rope_scaling;
    float rope_factor;      // positions are stretched by it
    float rope_attn_factor; // yarn: multiplies the magnitude
    int32_t rope_ctx_orig;  // yarn: context before stretching
    float rope_beta_fast, rope_beta_slow;
    int32_t window;          // sliding window in tokens, 0: none
    const uint8_t *windowed; // (L): 1 for layers with the window; NULL when window is 0
};

struct kiln_model;

struct kiln_arch {
    const char *name; // general.architecture
    // Reads what is particular to the architecture and builds the graph. The common keys are read
    // already.
    enum kiln_status (*build)(struct kiln_model *model, struct kiln_err *err);
};

struct kiln_model {
    struct kiln_gguf *gguf;
    const struct kiln_arch *arch;
    struct kiln_model_params params;
    struct kiln_tokenizer *tokenizer; // NULL: the file has none, ids only
    struct kiln_graph graph;
    uint8_t *windowed; // owned storage of params.windowed
};

// Opens, checks and understands a model; KILN_STATUS_FILE names file, key or tensor. An unknown
// architecture says which are known. The caller ends *model with kiln_model_close. No weight is
// copied.
KILN_MUST_CHECK enum kiln_status kiln_model_open(
        struct kiln_model **model, const char *path, struct kiln_err *err);
// The same of a file that is open already. Takes gguf, also when it fails.
KILN_MUST_CHECK enum kiln_status kiln_model_from_gguf(
        struct kiln_model **model, struct kiln_gguf *gguf, struct kiln_err *err);
void kiln_model_close(struct kiln_model *model); // NULL is fine

// Bytes of all tensors in the file.
uint64_t kiln_model_weight_bytes(const struct kiln_model *model);

// ---- For architecture files ---------------------------------------------------------------------

// "<architecture>.<suffix>" as a key; each as kiln_gguf_get_*.
KILN_MUST_CHECK enum kiln_status kiln_model_get_i32(const struct kiln_model *model,
        const char *suffix, int required, int32_t min, int32_t max, int32_t *out,
        struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_model_get_f32(const struct kiln_model *model,
        const char *suffix, int required, float min, float max, float *out, struct kiln_err *err);

// A matrix of `rows` rows and `cols` columns (cols contiguous), of a weight type; a vector (rows 0)
// is F32. A missing tensor or a wrong shape or type sticks in the graph's error. layer < 0: the
// name has no layer. `suffix` is what stands behind "blk.N." or is the whole name.
const struct kiln_gguf_tensor *kiln_model_tensor(
        struct kiln_model *model, int32_t layer, const char *suffix, int64_t cols, int64_t rows);
// The same, NULL without an error when the file does not have it.
const struct kiln_gguf_tensor *kiln_model_tensor_optional(
        struct kiln_model *model, int32_t layer, const char *suffix, int64_t cols, int64_t rows);

// Adds a table of RoPE frequencies to the graph and returns its index. `base`: of the geometric
// row; `scaled`: apply the file's scaling (rope.scaling.*, rope_freqs.weight). *magnitude: what
// cosine and sine are multiplied by. Sources: RoFormer (arXiv 2104.09864), YaRN (arXiv 2309.00071).
uint32_t kiln_model_rope(struct kiln_model *model, float base, int scaled, float *magnitude);

// Tokens in, logits edge set: the output matrix is output.weight, or the embedding when that is
// absent.
void kiln_model_head(struct kiln_model *model, kiln_edge x);

extern const struct kiln_arch kiln_arch_llama, kiln_arch_qwen2, kiln_arch_qwen3, kiln_arch_gemma3;

#endif
