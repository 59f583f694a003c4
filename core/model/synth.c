// synth: which tensors a model of a given architecture, size and mix has, and the file around them.
//
// Not here: the bytes of a block (synth_blocks.c), writing (gguf_writer.c).
#include "model/synth.h"

#include "base/mem.h"
#include "model/dtype.h"
#include "model/gguf_writer.h"
#include "model/synth_blocks.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    KEY_BYTES = 96,
    CHUNK_BYTES = 1 << 18, // of data made at a time; more than any block
};

// The letters of model.h. The figures are those of the published models.
struct geometry {
    const char *arch, *like;
    uint32_t n_layers, width, n_heads, n_kv_heads, head_size, ffn, n_vocab, ctx;
    uint32_t window; // 0: none
    float rope_base, rms_eps;
    int untied; // has an output matrix beside the embedding
};

static const struct geometry geometries[] = {
        // clang-format off arch     like     L   D     H   HKV HD   F      V       context window
        // base     eps    untied
        {"llama", "tiny", 8, 256, 4, 2, 64, 512, 512, 2048, 0, 1e4F, 1e-5F, 1},
        {"llama", "135m", 30, 576, 9, 3, 64, 1536, 49152, 8192, 0, 1e5F, 1e-5F, 0},
        {"llama", "1b", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 0, 5e5F, 1e-5F, 0},
        {"llama", "8b", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 0, 5e5F, 1e-5F, 1},
        {"qwen2", "tiny", 8, 256, 4, 2, 64, 512, 512, 2048, 0, 1e6F, 1e-6F, 1},
        {"qwen2", "0.5b", 24, 896, 14, 2, 64, 4864, 151936, 32768, 0, 1e6F, 1e-6F, 0},
        {"qwen2", "1.5b", 28, 1536, 12, 2, 128, 8960, 151936, 32768, 0, 1e6F, 1e-6F, 0},
        {"qwen2", "7b", 28, 3584, 28, 4, 128, 18944, 152064, 32768, 0, 1e6F, 1e-6F, 1},
        {"qwen3", "tiny", 8, 256, 4, 2, 128, 512, 512, 2048, 0, 1e6F, 1e-6F, 0},
        {"qwen3", "0.6b", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 0, 1e6F, 1e-6F, 0},
        {"qwen3", "8b", 36, 4096, 32, 8, 128, 12288, 151936, 40960, 0, 1e6F, 1e-6F, 1},
        {"gemma3", "tiny", 8, 256, 2, 1, 256, 512, 512, 2048, 32, 1e6F, 1e-6F, 0},
        {"gemma3", "270m", 18, 640, 4, 1, 256, 2048, 262144, 32768, 512, 1e6F, 1e-6F, 0},
        {"gemma3", "1b", 26, 1152, 4, 1, 256, 6912, 262144, 32768, 512, 1e6F, 1e-6F, 0},
        // clang-format on
};

// Published files give more bits to the value and down matrices of half of the layers, and to the
// output matrix (the embedding, where it serves as output).
struct mix {
    const char *name;
    uint32_t base, more, output; // enum kiln_dtype
};

static const struct mix mixes[] = {
        // clang-format off
        {"q4_K_M", KILN_DTYPE_Q4_K, KILN_DTYPE_Q6_K, KILN_DTYPE_Q6_K},
        {"q5_K_M", KILN_DTYPE_Q5_K, KILN_DTYPE_Q6_K, KILN_DTYPE_Q6_K},
        {"q6_K",   KILN_DTYPE_Q6_K, KILN_DTYPE_Q6_K, KILN_DTYPE_Q6_K},
        {"q4_0",   KILN_DTYPE_Q4_0, KILN_DTYPE_Q4_0, KILN_DTYPE_Q6_K},
        {"q4_1",   KILN_DTYPE_Q4_1, KILN_DTYPE_Q4_1, KILN_DTYPE_Q6_K},
        {"q5_0",   KILN_DTYPE_Q5_0, KILN_DTYPE_Q5_0, KILN_DTYPE_Q6_K},
        {"q8_0",   KILN_DTYPE_Q8_0, KILN_DTYPE_Q8_0, KILN_DTYPE_Q8_0},
        {"f16",    KILN_DTYPE_F16,  KILN_DTYPE_F16,  KILN_DTYPE_F16},
        {"bf16",   KILN_DTYPE_BF16, KILN_DTYPE_BF16, KILN_DTYPE_BF16},
        {"f32",    KILN_DTYPE_F32,  KILN_DTYPE_F32,  KILN_DTYPE_F32},
        // clang-format on
};

enum {
    N_GEOMETRIES = sizeof(geometries) / sizeof(geometries[0]),
    N_MIXES = sizeof(mixes) / sizeof(mixes[0]),
};

enum tensor_kind {
    KIND_MATRIX,
    KIND_NORM, // near 1
    KIND_BIAS, // near 0
};

struct tensor {
    enum tensor_kind kind;
    uint32_t dtype;
    uint64_t cols, rows;
};

struct job {
    const struct kiln_synth *synth;
    const struct geometry *g;
    const struct mix *mix;
    struct kiln_gguf_writer *writer;
    struct tensor *tensors; // (n_tensors) as announced to the writer
    size_t n_tensors, cap_tensors;
    int failed; // out of memory
    int64_t written;
    struct kiln_err *err;
};

// ---- The request --------------------------------------------------------------------------------

void kiln_synth_sizes(const char *arch, struct kiln_buf *text) {
    const char *between = "";
    for (int i = 0; i < N_GEOMETRIES; i++) {
        if (strcmp(geometries[i].arch, arch) == 0) {
            kiln_buf_printf(text, "%s%s", between, geometries[i].like);
            between = ", ";
        }
    }
}

static enum kiln_status not_known(
        const char *what, const char *text, struct kiln_buf *known, struct kiln_err *err) {
    enum kiln_status status = kiln_err_set(err, KILN_STATUS_USAGE, "unknown %s '%s'; known: %s",
            what, text, known->data ? known->data : "");
    kiln_buf_finish(known);
    return status;
}

static enum kiln_status find_geometry(struct job *job) {
    const struct kiln_synth *synth = job->synth;
    struct kiln_buf known = {0}; // a list cut short by a failed allocation does no harm
    int arch_known = 0;
    for (int i = 0; i < N_GEOMETRIES; i++) {
        int same = strcmp(geometries[i].arch, synth->arch) == 0;
        if (same && strcasecmp(geometries[i].like, synth->like) == 0) {
            job->g = &geometries[i];
            kiln_buf_finish(&known);
            return KILN_STATUS_OK;
        }
        arch_known |= same;
        if (i == 0 || strcmp(geometries[i].arch, geometries[i - 1].arch) != 0) {
            kiln_buf_printf(&known, "%s%s", i ? ", " : "", geometries[i].arch);
        }
    }
    if (!arch_known) {
        return not_known("architecture", synth->arch, &known, job->err);
    }
    kiln_buf_clear(&known);
    kiln_synth_sizes(synth->arch, &known);
    return not_known("size", synth->like, &known, job->err);
}

static enum kiln_status find_mix(struct job *job) {
    struct kiln_buf known = {0};
    for (int i = 0; i < N_MIXES; i++) {
        if (strcasecmp(mixes[i].name, job->synth->quant) == 0) {
            job->mix = &mixes[i];
            kiln_buf_finish(&known);
            return KILN_STATUS_OK;
        }
        kiln_buf_printf(&known, "%s%s", i ? ", " : "", mixes[i].name);
    }
    return not_known("mix of types", job->synth->quant, &known, job->err);
}

// ---- Keys ---------------------------------------------------------------------------------------

static void key_u32(struct job *job, const char *suffix, uint32_t value) {
    char key[KEY_BYTES];
    snprintf(key, sizeof(key), "%s.%s", job->g->arch, suffix);
    kiln_gguf_writer_u32(job->writer, key, value);
}

static void key_f32(struct job *job, const char *suffix, float value) {
    char key[KEY_BYTES];
    snprintf(key, sizeof(key), "%s.%s", job->g->arch, suffix);
    kiln_gguf_writer_f32(job->writer, key, value);
}

static void add_keys(struct job *job) {
    const struct geometry *g = job->g;
    char name[KEY_BYTES];
    snprintf(name, sizeof(name), "random weights, %s %s %s", g->arch, g->like, job->mix->name);
    kiln_gguf_writer_str(job->writer, "general.architecture", g->arch);
    kiln_gguf_writer_str(job->writer, "general.name", name);
    kiln_gguf_writer_u32(job->writer, "general.quantization_version", 2);
    kiln_gguf_writer_bool(job->writer, "kiln.synthetic", 1);
    kiln_gguf_writer_u64(job->writer, "kiln.synthetic.seed", job->synth->seed);
    key_u32(job, "block_count", g->n_layers);
    key_u32(job, "context_length", g->ctx);
    key_u32(job, "embedding_length", g->width);
    key_u32(job, "feed_forward_length", g->ffn);
    key_u32(job, "attention.head_count", g->n_heads);
    key_u32(job, "attention.head_count_kv", g->n_kv_heads);
    key_u32(job, "attention.key_length", g->head_size);
    key_u32(job, "attention.value_length", g->head_size);
    key_f32(job, "attention.layer_norm_rms_epsilon", g->rms_eps);
    key_u32(job, "rope.dimension_count", g->head_size);
    key_f32(job, "rope.freq_base", g->rope_base);
    key_u32(job, "vocab_size", g->n_vocab);
    if (g->window > 0) {
        key_u32(job, "attention.sliding_window", g->window);
    }
    kiln_gguf_writer_str(job->writer, "tokenizer.ggml.model", "none");
}

// ---- Tensors ------------------------------------------------------------------------------------

// A row that is no whole number of blocks takes a type of smaller blocks, as published files do.
static uint32_t fitting(uint32_t dtype, uint32_t cols) {
    if (cols % kiln_dtype_info(dtype)->elems == 0) {
        return dtype;
    }
    return dtype == KILN_DTYPE_Q4_K ? KILN_DTYPE_Q5_0 : KILN_DTYPE_Q8_0;
}

// layer < 0: the name has no layer
static void add(struct job *job, int layer, const char *suffix, struct tensor tensor) {
    char name[KEY_BYTES];
    if (layer >= 0) {
        snprintf(name, sizeof(name), "blk.%d.%s", layer, suffix);
    } else {
        snprintf(name, sizeof(name), "%s", suffix);
    }
    if (kiln_grow(&job->tensors, &job->cap_tensors, job->n_tensors + 1, sizeof(tensor)) != 0) {
        job->failed = 1;
        return;
    }
    job->tensors[job->n_tensors++] = tensor;
    const uint64_t dims[2] = {tensor.cols, tensor.rows};
    kiln_gguf_writer_tensor(
            job->writer, name, tensor.dtype, tensor.kind == KIND_MATRIX ? 2 : 1, dims);
}

static void add_matrix(struct job *job, int layer, const char *suffix, uint32_t dtype,
        uint32_t cols, uint32_t rows) {
    add(job, layer, suffix, (struct tensor){KIND_MATRIX, fitting(dtype, cols), cols, rows});
}

static void add_norm(struct job *job, int layer, const char *suffix, uint32_t cols) {
    add(job, layer, suffix, (struct tensor){KIND_NORM, KILN_DTYPE_F32, cols, 1});
}

static void add_bias(struct job *job, int layer, const char *suffix, uint32_t cols) {
    add(job, layer, suffix, (struct tensor){KIND_BIAS, KILN_DTYPE_F32, cols, 1});
}

// The layers that get more bits in the published mixes: the first and last eighth, and every third
// between.
static int has_more_bits(uint32_t layer, uint32_t n_layers) {
    uint32_t eighth = n_layers / 8;
    return layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2;
}

static void add_layer(struct job *job, int i) {
    const struct geometry *g = job->g;
    int gemma = strcmp(g->arch, "gemma3") == 0, qwen2 = strcmp(g->arch, "qwen2") == 0;
    uint32_t q_cols = g->n_heads * g->head_size, kv_cols = g->n_kv_heads * g->head_size;
    uint32_t base = job->mix->base;
    uint32_t more = has_more_bits((uint32_t)i, g->n_layers) ? job->mix->more : base;
    add_norm(job, i, "attn_norm.weight", g->width);
    add_matrix(job, i, "attn_q.weight", base, g->width, q_cols);
    add_matrix(job, i, "attn_k.weight", base, g->width, kv_cols);
    add_matrix(job, i, "attn_v.weight", more, g->width, kv_cols);
    if (qwen2) {
        add_bias(job, i, "attn_q.bias", q_cols);
        add_bias(job, i, "attn_k.bias", kv_cols);
        add_bias(job, i, "attn_v.bias", kv_cols);
    }
    if (gemma || strcmp(g->arch, "qwen3") == 0) {
        add_norm(job, i, "attn_q_norm.weight", g->head_size);
        add_norm(job, i, "attn_k_norm.weight", g->head_size);
    }
    add_matrix(job, i, "attn_output.weight", base, q_cols, g->width);
    if (gemma) {
        add_norm(job, i, "post_attention_norm.weight", g->width);
        add_norm(job, i, "post_ffw_norm.weight", g->width);
    }
    add_norm(job, i, "ffn_norm.weight", g->width);
    add_matrix(job, i, "ffn_gate.weight", base, g->width, g->ffn);
    add_matrix(job, i, "ffn_up.weight", base, g->width, g->ffn);
    add_matrix(job, i, "ffn_down.weight", more, g->ffn, g->width);
}

static void add_tensors(struct job *job) {
    const struct geometry *g = job->g;
    add_matrix(job, -1, "token_embd.weight", g->untied ? job->mix->base : job->mix->output,
            g->width, g->n_vocab);
    for (uint32_t i = 0; i < g->n_layers; i++) {
        add_layer(job, (int)i);
    }
    add_norm(job, -1, "output_norm.weight", g->width);
    if (g->untied) {
        add_matrix(job, -1, "output.weight", job->mix->output, g->width, g->n_vocab);
    }
}

// ---- Data ---------------------------------------------------------------------------------------

static enum kiln_status write_chunk(struct job *job, const uint8_t *chunk, size_t bytes) {
    const struct kiln_synth *synth = job->synth;
    if (synth->stop && synth->stop()) {
        return kiln_err_set(job->err, KILN_STATUS_INTERRUPTED, "interrupted; nothing was written");
    }
    KILN_TRY(kiln_gguf_writer_data(job->writer, chunk, bytes, job->err));
    job->written += (int64_t)bytes;
    if (synth->progress) {
        synth->progress(synth->progress_arg, job->written,
                (int64_t)kiln_gguf_writer_data_bytes(job->writer));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status write_tensor(struct job *job, size_t index, uint8_t *chunk) {
    const struct tensor *tensor = &job->tensors[index];
    const struct kiln_dtype_info *info = kiln_dtype_info(tensor->dtype);
    // Each tensor has its own stream, so that its bytes do not depend on those in front of it.
    struct kiln_synth_rng rng = {.state = job->synth->seed};
    rng.state = kiln_synth_next(&rng) + index;
    struct kiln_synth_blocks blocks;
    double variance = tensor->kind == KIND_MATRIX ? 1.0 / (double)tensor->cols : 0.01;
    if (kiln_synth_blocks_init(&blocks, tensor->dtype, variance) != 0) {
        return kiln_err_set(
                job->err, KILN_STATUS_USAGE, "no random weights of type %s", info->name);
    }
    uint64_t left = tensor->cols / info->elems * tensor->rows;
    while (left > 0) {
        size_t count = CHUNK_BYTES / info->bytes;
        count = count < left ? count : (size_t)left;
        kiln_synth_fill(&blocks, &rng, chunk, count);
        for (size_t i = 0; tensor->kind == KIND_NORM && i < count; i++) {
            float value;
            memcpy(&value, chunk + i * sizeof(value), sizeof(value));
            value += 1.0f;
            memcpy(chunk + i * sizeof(value), &value, sizeof(value));
        }
        KILN_TRY(write_chunk(job, chunk, count * info->bytes));
        left -= count;
    }
    return KILN_STATUS_OK;
}

static enum kiln_status write_file(struct job *job, uint8_t *chunk) {
    add_keys(job);
    add_tensors(job);
    if (job->failed) {
        return kiln_err_nomem(job->err, "the list of tensors");
    }
    KILN_TRY(kiln_gguf_writer_begin(job->writer, job->err));
    for (size_t i = 0; i < job->n_tensors; i++) {
        KILN_TRY(write_tensor(job, i, chunk));
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_synth_write(const struct kiln_synth *synth, const char *path,
        struct kiln_synth_result *result, struct kiln_err *err) {
    struct job job = {.synth = synth, .err = err};
    KILN_TRY(find_geometry(&job));
    KILN_TRY(find_mix(&job));
    KILN_TRY(kiln_gguf_writer_open(&job.writer, path, err));
    uint8_t *chunk = kiln_alloc(CHUNK_BYTES);
    enum kiln_status status =
            chunk ? write_file(&job, chunk) : kiln_err_nomem(err, "a chunk of weights");
    if (status == KILN_STATUS_OK) {
        if (result) {
            *result = (struct kiln_synth_result){.n_tensors = job.n_tensors,
                    .file_bytes = kiln_gguf_writer_file_bytes(job.writer)};
        }
        status = kiln_gguf_writer_finish(job.writer, err);
    } else {
        kiln_gguf_writer_abandon(job.writer);
    }
    kiln_free(chunk);
    kiln_free(job.tensors);
    return status;
}

int kiln_synth_is(const struct kiln_gguf *gguf) {
    int synthetic = 0;
    struct kiln_err ignored = {0};
    // A key of another type was not written by kiln, but it is no promise of real weights either.
    return kiln_gguf_get_bool(gguf, "kiln.synthetic", KILN_GGUF_OPTIONAL, &synthetic, &ignored) !=
                   KILN_STATUS_OK ||
           synthetic;
}
