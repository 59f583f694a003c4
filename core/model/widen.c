// widen: walks the tensors of a model and writes each with room for the larger heads.
//
// Not here: what a block's bytes mean (quant.c), the file (gguf_writer.c).
#include "model/widen.h"

#include "base/mem.h"
#include "model/dtype.h"
#include "model/gguf_writer.h"
#include "model/model.h"
#include "model/quant.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_HEAD_SIZE = 1024,
    KEY_BYTES = 96,
    CHUNK_BYTES = 1 << 20, // of copied data between two looks at stop
};

enum change {
    COPY,
    PAD_ROWS,   // of each head (k, v and the biases)
    SCALE_ROWS, // the same, times the factor (q)
    PAD_COLS,   // of each head (attn_output)
};

// What a tensor "blk.N.<suffix>" needs.
struct rule {
    const char *suffix;
    enum change change;
    int of_q; // has heads of q; else of k and v
    int bias;
};

static const struct rule rules[] = {
        {"attn_q.weight", SCALE_ROWS, 1, 0},
        {"attn_k.weight", PAD_ROWS, 0, 0},
        {"attn_v.weight", PAD_ROWS, 0, 0},
        {"attn_q.bias", SCALE_ROWS, 1, 1},
        {"attn_k.bias", PAD_ROWS, 0, 1},
        {"attn_v.bias", PAD_ROWS, 0, 1},
        {"attn_output.weight", PAD_COLS, 1, 0},
};

struct job {
    const struct kiln_widen *widen;
    const struct kiln_model *model;
    struct kiln_gguf_writer *writer;
    uint64_t old_size, new_size; // of a head
    float factor;                // sqrt(new / old)
    float *row;                  // the longest row that is dequantized
    size_t n_f32;
    int64_t written;
    struct kiln_err *err;
};

static const struct rule *find_rule(const char *name) {
    if (strncmp(name, "blk.", 4) != 0) {
        return NULL;
    }
    const char *suffix = name + 4 + strspn(name + 4, "0123456789");
    for (size_t i = 0; *suffix == '.' && i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (strcmp(suffix + 1, rules[i].suffix) == 0) {
            return &rules[i];
        }
    }
    return NULL;
}

static uint64_t n_heads(const struct job *job, const struct rule *rule) {
    const struct kiln_model_params *p = &job->model->params;
    return (uint64_t)(rule->of_q ? p->n_heads : p->n_kv_heads);
}

// Whether heads of both sizes are whole blocks, so that columns can be moved without being read.
static int cols_stay(const struct job *job, const struct kiln_gguf_tensor *tensor) {
    uint32_t elems = kiln_dtype_info(tensor->dtype)->elems;
    return job->old_size % elems == 0 && job->new_size % elems == 0;
}

static uint32_t new_dtype(
        const struct job *job, const struct rule *rule, const struct kiln_gguf_tensor *tensor) {
    int stays = !rule || rule->change == PAD_ROWS || rule->change == COPY ||
                (rule->change == PAD_COLS && cols_stay(job, tensor));
    return stays ? tensor->dtype : KILN_DTYPE_F32;
}

// ---- Checks -------------------------------------------------------------------------------------

static enum kiln_status check_arch(const struct job *job) {
    const char *arch = job->model->arch->name, *path = kiln_gguf_path(job->model->gguf);
    for (size_t i = 0; i < kiln_gguf_n_tensors(job->model->gguf); i++) {
        const char *name = kiln_gguf_tensor_at(job->model->gguf, i)->name;
        if (strstr(name, "attn_q_norm.") || strstr(name, "attn_k_norm.")) {
            return kiln_err_set(job->err, KILN_STATUS_FILE,
                    "%s: tensor '%s': a model with norms on q and k cannot be widened: the norm "
                    "over a padded head is another function",
                    path, name);
        }
    }
    if (strcmp(arch, "llama") != 0 && strcmp(arch, "qwen2") != 0) {
        return kiln_err_set(job->err, KILN_STATUS_FILE,
                "%s: key 'general.architecture' is %s; models of llama and qwen2 can be widened",
                path, arch);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_size(const struct job *job) {
    int32_t size = job->widen->head_size, old = job->model->params.head_size;
    if (size > old && size <= MAX_HEAD_SIZE && size % 2 == 0) {
        return KILN_STATUS_OK;
    }
    return kiln_err_set(job->err, KILN_STATUS_USAGE,
            "head size %" PRId32 " is not possible: the heads of %s have %" PRId32
            "; an even number above that, up to %d, is allowed",
            size, kiln_gguf_path(job->model->gguf), old, MAX_HEAD_SIZE);
}

// The graph has checked those that it uses; a file may hold more.
static enum kiln_status check_tensor(
        const struct job *job, const struct rule *rule, const struct kiln_gguf_tensor *tensor) {
    uint64_t cells = n_heads(job, rule) * job->old_size;
    uint64_t found = rule->change == PAD_COLS || rule->bias ? tensor->dims[0] : tensor->dims[1];
    int flat = rule->bias ? tensor->dims[1] == 1 && tensor->dtype == KILN_DTYPE_F32
                          : kiln_dtype_info(tensor->dtype)->weight;
    if (found == cells && flat && tensor->dims[2] == 1 && tensor->dims[3] == 1) {
        return KILN_STATUS_OK;
    }
    return kiln_err_set(job->err, KILN_STATUS_FILE,
            "%s: tensor '%s' at byte %" PRIu64 " has %" PRIu64 " %s of type %s; %" PRIu64
            " heads of %" PRIu64 " are needed",
            kiln_gguf_path(job->model->gguf), tensor->name, tensor->file_offset, found,
            rule->change == PAD_COLS || rule->bias ? "columns" : "rows",
            kiln_dtype_info(tensor->dtype)->name, n_heads(job, rule), job->old_size);
}

// ---- Keys and table -----------------------------------------------------------------------------

static int is_named(const struct kiln_gguf_key *key, const char *name) {
    return key->name.len == strlen(name) && memcmp(key->name.data, name, key->name.len) == 0;
}

static void add_keys(struct job *job) {
    const struct kiln_model *model = job->model;
    char names[3][KEY_BYTES];
    static const char *const suffixes[3] = {
            "attention.key_length", "attention.value_length", "rope.dimension_count"};
    const uint32_t values[3] = {
            (uint32_t)job->new_size, (uint32_t)job->new_size, (uint32_t)model->params.rope_dims};
    for (int i = 0; i < 3; i++) {
        snprintf(names[i], KEY_BYTES, "%s.%s", model->arch->name, suffixes[i]);
    }
    for (size_t i = 0; i < kiln_gguf_n_keys(model->gguf); i++) {
        const struct kiln_gguf_key *key = kiln_gguf_key_at(model->gguf, i);
        int replaced = is_named(key, "kiln.widened_from");
        for (int k = 0; k < 3; k++) {
            replaced |= is_named(key, names[k]);
        }
        // The result is one file, however many parts the model came in.
        int split = key->name.len > 6 && memcmp(key->name.data, "split.", 6) == 0;
        if (!replaced && !split) {
            kiln_gguf_writer_copy_key(job->writer, key);
        }
    }
    for (int i = 0; i < 3; i++) {
        kiln_gguf_writer_u32(job->writer, names[i], values[i]);
    }
    kiln_gguf_writer_u32(job->writer, "kiln.widened_from", (uint32_t)job->old_size);
}

static enum kiln_status add_tensors(struct job *job) {
    uint64_t longest = 0;
    for (size_t i = 0; i < kiln_gguf_n_tensors(job->model->gguf); i++) {
        const struct kiln_gguf_tensor *tensor = kiln_gguf_tensor_at(job->model->gguf, i);
        const struct rule *rule = find_rule(tensor->name);
        uint32_t dtype = new_dtype(job, rule, tensor);
        uint64_t dims[4];
        memcpy(dims, tensor->dims, sizeof(dims));
        if (rule) {
            KILN_TRY(check_tensor(job, rule, tensor));
            dims[rule->change == PAD_COLS || rule->bias ? 0 : 1] =
                    n_heads(job, rule) * job->new_size;
        }
        if (dtype != tensor->dtype || (rule && rule->change == SCALE_ROWS)) {
            longest = tensor->dims[0] > longest ? tensor->dims[0] : longest;
        }
        job->n_f32 += dtype != tensor->dtype;
        kiln_gguf_writer_tensor(job->writer, tensor->name, dtype, tensor->n_dims, dims);
    }
    job->row = kiln_calloc((size_t)longest, sizeof(*job->row));
    return job->row ? KILN_STATUS_OK : kiln_err_nomem(job->err, "a row of weights");
}

// ---- Data ---------------------------------------------------------------------------------------

static enum kiln_status note(struct job *job, uint64_t bytes) {
    const struct kiln_widen *widen = job->widen;
    job->written += (int64_t)bytes;
    if (widen->progress) {
        widen->progress(widen->progress_arg, job->written,
                (int64_t)kiln_gguf_writer_data_bytes(job->writer));
    }
    if (widen->stop && widen->stop()) {
        return kiln_err_set(job->err, KILN_STATUS_INTERRUPTED, "interrupted; nothing was written");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status put(struct job *job, const void *bytes, uint64_t size) {
    const uint8_t *at = bytes;
    while (size > 0) {
        size_t part = size < CHUNK_BYTES ? (size_t)size : CHUNK_BYTES;
        KILN_TRY(kiln_gguf_writer_data(job->writer, at, part, job->err));
        KILN_TRY(note(job, part));
        at += part;
        size -= part;
    }
    return KILN_STATUS_OK;
}

// One head of old_size cells (rows, or elements of a bias), `cell` bytes each, then the room behind
// it.
static enum kiln_status put_head(struct job *job, const void *head, uint64_t cell) {
    uint64_t room = (job->new_size - job->old_size) * cell;
    KILN_TRY(put(job, head, job->old_size * cell));
    KILN_TRY(kiln_gguf_writer_zeros(job->writer, room, job->err));
    return note(job, room);
}

static enum kiln_status write_padded_rows(
        struct job *job, const struct kiln_gguf_tensor *tensor, uint64_t heads, int bias) {
    const struct kiln_dtype_info *info = kiln_dtype_info(tensor->dtype);
    uint64_t cell = bias ? info->bytes : tensor->dims[0] / info->elems * info->bytes;
    for (uint64_t head = 0; head < heads; head++) {
        KILN_TRY(put_head(job, tensor->data + head * job->old_size * cell, cell));
    }
    return KILN_STATUS_OK;
}

// check_tensor has made sure that the type can be dequantized.
static void read_row(struct job *job, const struct kiln_gguf_tensor *tensor, uint64_t index) {
    const struct kiln_dtype_info *info = kiln_dtype_info(tensor->dtype);
    const uint8_t *row = tensor->data + index * (tensor->dims[0] / info->elems * info->bytes);
    (void)kiln_dequant_row(tensor->dtype, row, job->row, (size_t)tensor->dims[0]);
}

static enum kiln_status write_scaled_rows(
        struct job *job, const struct kiln_gguf_tensor *tensor, uint64_t heads, int bias) {
    uint64_t cols = tensor->dims[0];
    for (uint64_t row = 0; row < tensor->dims[1]; row++) {
        read_row(job, tensor, row);
        for (uint64_t i = 0; i < cols; i++) {
            job->row[i] *= job->factor;
        }
        if (bias) {
            for (uint64_t head = 0; head < heads; head++) {
                KILN_TRY(put_head(job, job->row + head * job->old_size, sizeof(float)));
            }
            continue;
        }
        KILN_TRY(put(job, job->row, cols * sizeof(float)));
        if ((row + 1) % job->old_size == 0) {
            uint64_t room = (job->new_size - job->old_size) * cols * sizeof(float);
            KILN_TRY(kiln_gguf_writer_zeros(job->writer, room, job->err));
            KILN_TRY(note(job, room));
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status write_padded_cols(
        struct job *job, const struct kiln_gguf_tensor *tensor, uint64_t heads) {
    const struct kiln_dtype_info *info = kiln_dtype_info(tensor->dtype);
    int stays = cols_stay(job, tensor);
    uint64_t row_bytes = tensor->dims[0] / info->elems * info->bytes;
    uint64_t old_bytes = job->old_size / info->elems * info->bytes;
    uint64_t room = (job->new_size - job->old_size) / info->elems * info->bytes;
    for (uint64_t row = 0; row < tensor->dims[1]; row++) {
        if (!stays) {
            read_row(job, tensor, row);
        }
        for (uint64_t head = 0; head < heads; head++) {
            if (!stays) {
                KILN_TRY(put_head(job, job->row + head * job->old_size, sizeof(float)));
                continue;
            }
            KILN_TRY(put(job, tensor->data + row * row_bytes + head * old_bytes, old_bytes));
            KILN_TRY(kiln_gguf_writer_zeros(job->writer, room, job->err));
            KILN_TRY(note(job, room));
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status write_tensor(struct job *job, const struct kiln_gguf_tensor *tensor) {
    const struct rule *rule = find_rule(tensor->name);
    switch (rule ? rule->change : COPY) {
    case PAD_ROWS:
        return write_padded_rows(job, tensor, n_heads(job, rule), rule->bias);
    case SCALE_ROWS:
        return write_scaled_rows(job, tensor, n_heads(job, rule), rule->bias);
    case PAD_COLS:
        return write_padded_cols(job, tensor, n_heads(job, rule));
    case COPY:
        break;
    }
    return put(job, tensor->data, tensor->bytes);
}

static enum kiln_status write_file(struct job *job) {
    add_keys(job);
    KILN_TRY(add_tensors(job));
    KILN_TRY(kiln_gguf_writer_begin(job->writer, job->err));
    for (size_t i = 0; i < kiln_gguf_n_tensors(job->model->gguf); i++) {
        KILN_TRY(write_tensor(job, kiln_gguf_tensor_at(job->model->gguf, i)));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status widen_model(
        struct job *job, const char *out, struct kiln_widen_result *result) {
    KILN_TRY(check_arch(job));
    KILN_TRY(check_size(job));
    KILN_TRY(kiln_gguf_writer_open(&job->writer, out, job->err));
    enum kiln_status status = write_file(job);
    if (status != KILN_STATUS_OK) {
        kiln_gguf_writer_abandon(job->writer);
        return status;
    }
    if (result) {
        *result = (struct kiln_widen_result){
                .old_head_size = job->model->params.head_size,
                .n_tensors = kiln_gguf_n_tensors(job->model->gguf),
                .n_f32 = job->n_f32,
                .file_bytes = kiln_gguf_writer_file_bytes(job->writer),
        };
    }
    return kiln_gguf_writer_finish(job->writer, job->err);
}

enum kiln_status kiln_widen_write(const struct kiln_widen *widen, const char *in, const char *out,
        struct kiln_widen_result *result, struct kiln_err *err) {
    struct kiln_model *model = NULL;
    KILN_TRY(kiln_model_open(&model, in, err));
    struct job job = {
            .widen = widen,
            .model = model,
            .old_size = (uint64_t)model->params.head_size,
            .new_size = (uint64_t)widen->head_size,
            .factor = (float)sqrt((double)widen->head_size / model->params.head_size),
            .err = err,
    };
    enum kiln_status status = widen_model(&job, out, result);
    kiln_free(job.row);
    kiln_model_close(model);
    return status;
}
