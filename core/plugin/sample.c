// sample: small problems and device descriptions to try a variant's plan() on.
#include "plugin/sample.h"

#include "config/slot.h"
#include "model/dtype.h"

#include <string.h>

static const struct kiln_device devices[] = {
        {.struct_size = sizeof(struct kiln_device),
                .kind = KILN_DEVICE_HOST,
                .name = "cpu without vector extensions",
                .target = "cpu",
                .sm_count = 1,
                .memory_bytes = UINT64_C(4) << 30},
        {.struct_size = sizeof(struct kiln_device),
                .kind = KILN_DEVICE_HOST,
                .name = "cpu with AVX-512",
                .target = "cpu",
                .sm_count = 16,
                .host_features = KILN_HOST_AVX2 | KILN_HOST_AVX512 | KILN_HOST_AVX512_VNNI,
                .memory_bytes = UINT64_C(64) << 30},
        {.struct_size = sizeof(struct kiln_device),
                .kind = KILN_DEVICE_CUDA,
                .name = "A100",
                .target = "sm_80",
                .cc = 80,
                .sm_count = 108,
                .warp_size = 32,
                .max_threads_block = 1024,
                .max_threads_sm = 2048,
                .max_blocks_sm = 32,
                .max_warps_sm = 64,
                .regs_block = 65536,
                .regs_sm = 65536,
                .reg_unit = 256,
                .smem_block = 49152,
                .smem_block_optin = 166912,
                .smem_sm = 167936,
                .smem_reserved = 1024,
                .max_cluster = 1,
                .l2_bytes = 41943040,
                .memory_bytes = UINT64_C(40) << 30,
                .memory_bandwidth = 1.555e12,
                .max_grid = {INT32_MAX, 65535, 65535},
                .max_block = {1024, 1024, 64}},
        {.struct_size = sizeof(struct kiln_device),
                .kind = KILN_DEVICE_CUDA,
                .name = "H200",
                .target = "sm_90a",
                .cc = 90,
                .sm_count = 132,
                .warp_size = 32,
                .max_threads_block = 1024,
                .max_threads_sm = 2048,
                .max_blocks_sm = 32,
                .max_warps_sm = 64,
                .regs_block = 65536,
                .regs_sm = 65536,
                .reg_unit = 256,
                .smem_block = 49152,
                .smem_block_optin = 232448,
                .smem_sm = 233472,
                .smem_reserved = 1024,
                .max_cluster = 8,
                .l2_bytes = 52428800,
                .memory_bytes = UINT64_C(141) << 30,
                .memory_bandwidth = 4.8e12,
                .max_grid = {INT32_MAX, 65535, 65535},
                .max_block = {1024, 1024, 64}},
        {.struct_size = sizeof(struct kiln_device),
                .kind = KILN_DEVICE_CUDA,
                .name = "GB10",
                .target = "sm_121",
                .cc = 121,
                .sm_count = 48,
                .warp_size = 32,
                .max_threads_block = 1024,
                .max_threads_sm = 1536,
                .max_blocks_sm = 24,
                .max_warps_sm = 48,
                .regs_block = 65536,
                .regs_sm = 65536,
                .reg_unit = 256,
                .smem_block = 49152,
                .smem_block_optin = 101376,
                .smem_sm = 102400,
                .smem_reserved = 1024,
                .max_cluster = 8,
                .l2_bytes = 25165824,
                .memory_bytes = UINT64_C(128) << 30,
                .memory_bandwidth = 2.73e11,
                .max_grid = {INT32_MAX, 65535, 65535},
                .max_block = {1024, 1024, 64}},
};

struct shape {
    int64_t tokens, inputs, outputs, words;
    int32_t n_heads, n_kv_heads, head_size;
    int optional; // with bias, residual, norms of heads
};

// Inputs are multiples of 256, as the K types need; the rest is no power of two where that is
// possible.
static const struct shape shapes[KILN_SAMPLE_N_SHAPES] = {
        {.tokens = 1,
                .inputs = 256,
                .outputs = 256,
                .words = 300,
                .n_heads = 3,
                .n_kv_heads = 1,
                .head_size = 64},
        {.tokens = 37,
                .inputs = 768,
                .outputs = 520,
                .words = 1001,
                .n_heads = 10,
                .n_kv_heads = 2,
                .head_size = 128,
                .optional = 1},
        {.tokens = 512,
                .inputs = 2048,
                .outputs = 2816,
                .words = 32000,
                .n_heads = 8,
                .n_kv_heads = 4,
                .head_size = 256},
};
enum {
    CACHE_ROWS = 4096,
    MAX_OPERANDS = 16
};

struct sample {
    struct kiln_arena *arena;
    const struct kiln_plugin *plugin;
    const struct kiln_variant *variant;
    const struct shape *shape;
    int64_t tokens;
    uint32_t weight_type; // of the slot
    uint32_t op;          // the op being made
    struct kiln_op *made;
    const struct kiln_tensor **operands;
    int nomem;
};

const struct kiln_device *kiln_sample_device(uint32_t index) {
    return index < sizeof(devices) / sizeof(devices[0]) ? &devices[index] : NULL;
}

int32_t kiln_sample_head_size(uint32_t shape) {
    return shapes[shape].head_size;
}

// The first format that the variant lists for an operand of the op being made; NULL: it lists none.
static const char *listed_format(const struct sample *sample, uint32_t operand) {
    for (uint32_t i = 0; i < sample->variant->n_ios; i++) {
        const struct kiln_io *io = sample->variant->ios[i];
        if (io->op == sample->op && io->operand == operand) {
            return io->formats[0];
        }
    }
    return NULL;
}

// Sizes of a block format: the plugin's own, or, for another plugin's, those of the commonest kind.
static void find_format(
        const struct sample *sample, const char *name, uint32_t *elems, uint32_t *bytes) {
    *elems = 32;
    *bytes = 36;
    for (uint32_t i = 0; i < sample->plugin->n_formats; i++) {
        if (strcmp(sample->plugin->formats[i]->name, name) == 0) {
            *elems = sample->plugin->formats[i]->block_elems;
            *bytes = sample->plugin->formats[i]->block_bytes;
        }
    }
}

static void add(struct sample *sample, uint32_t operand, uint32_t dtype, int64_t columns,
        int64_t rows, uint32_t flags) {
    struct kiln_tensor *tensor = kiln_arena_calloc(sample->arena, 1, sizeof(*tensor));
    if (!tensor || sample->made->n_operands == MAX_OPERANDS) {
        sample->nomem = 1;
        return;
    }
    const char *format = listed_format(sample, operand);
    const struct kiln_dtype_info *info =
            format ? kiln_dtype_by_name(format) : kiln_dtype_info(dtype);
    uint32_t elems = 1, bytes = 4;
    if (info) {
        elems = info->elems;
        bytes = info->bytes;
    } else if (format) {
        find_format(sample, format, &elems, &bytes);
    }
    *tensor = (struct kiln_tensor){.struct_size = sizeof(*tensor),
            .operand = operand,
            .dtype = info ? info->dtype : KILN_DTYPE_BLOCK,
            .flags = flags,
            .n_dims = 2,
            .dims = {columns, rows, 1, 1},
            .alignment = 256,
            .format = info ? NULL : format};
    tensor->strides[0] = bytes;
    tensor->strides[1] = (columns + elems - 1) / elems * bytes;
    tensor->strides[2] = tensor->strides[3] = tensor->strides[1] * rows;
    sample->operands[sample->made->n_operands++] = tensor;
}

static void add_edge(struct sample *sample, uint32_t operand, int64_t columns) {
    add(sample, operand, KILN_DTYPE_F32, columns, sample->tokens, 0);
}

static void add_weight(struct sample *sample, uint32_t operand, int64_t columns, int64_t rows) {
    uint32_t type = operand == KILN_OPERAND_WEIGHT ? sample->weight_type : KILN_DTYPE_F32;
    add(sample, operand, type, columns, rows, KILN_TENSOR_WEIGHT);
}

static void add_heads(struct sample *sample, int attention) {
    const struct shape *shape = sample->shape;
    int64_t q = (int64_t)shape->n_heads * shape->head_size;
    int64_t kv = (int64_t)shape->n_kv_heads * shape->head_size;
    add_edge(sample, KILN_OPERAND_Q, q);
    if (!attention) {
        add_edge(sample, KILN_OPERAND_K, kv);
        add_edge(sample, KILN_OPERAND_V, kv);
        if (shape->optional) {
            add_weight(sample, KILN_OPERAND_Q_NORM, shape->head_size, 1);
            add_weight(sample, KILN_OPERAND_K_NORM, shape->head_size, 1);
        }
        add_weight(sample, KILN_OPERAND_ROPE_FREQS, shape->head_size / 2, 1);
    }
    add(sample, KILN_OPERAND_POSITIONS, KILN_DTYPE_I32, sample->tokens, 1, 0);
    add(sample, KILN_OPERAND_K_CACHE, KILN_DTYPE_F16, kv, CACHE_ROWS, 0);
    add(sample, KILN_OPERAND_V_CACHE, KILN_DTYPE_F16, kv, CACHE_ROWS, 0);
    add_edge(sample, KILN_OPERAND_OUT, q);
    sample->made->n_heads = shape->n_heads;
    sample->made->n_kv_heads = shape->n_kv_heads;
    sample->made->head_size = shape->head_size;
}

static void add_operands(struct sample *sample) {
    const struct shape *shape = sample->shape;
    switch (sample->made->kind) {
    case KILN_OP_EMBED:
        add(sample, KILN_OPERAND_IDS, KILN_DTYPE_I32, sample->tokens, 1, 0);
        add_weight(sample, KILN_OPERAND_WEIGHT, shape->inputs, shape->words);
        add_edge(sample, KILN_OPERAND_OUT, shape->inputs);
        break;
    case KILN_OP_NORM:
        add_edge(sample, KILN_OPERAND_IN, shape->inputs);
        add(sample, KILN_OPERAND_WEIGHT, KILN_DTYPE_F32, shape->inputs, 1, KILN_TENSOR_WEIGHT);
        if (shape->optional) {
            add_edge(sample, KILN_OPERAND_RESIDUAL, shape->inputs);
        }
        add_edge(sample, KILN_OPERAND_OUT, shape->inputs);
        break;
    case KILN_OP_MATMUL:
        add_edge(sample, KILN_OPERAND_IN, shape->inputs);
        add_weight(sample, KILN_OPERAND_WEIGHT, shape->inputs, shape->outputs);
        if (shape->optional) {
            add(sample, KILN_OPERAND_BIAS, KILN_DTYPE_F32, shape->outputs, 1, KILN_TENSOR_WEIGHT);
            add_edge(sample, KILN_OPERAND_RESIDUAL, shape->outputs);
        }
        add_edge(sample, KILN_OPERAND_OUT, shape->outputs);
        break;
    case KILN_OP_ROPE_KV:
    case KILN_OP_ATTENTION:
        add_heads(sample, sample->made->kind == KILN_OP_ATTENTION);
        break;
    case KILN_OP_ACTIVATION:
        add_edge(sample, KILN_OPERAND_GATE, shape->inputs);
        add_edge(sample, KILN_OPERAND_UP, shape->inputs);
        add_edge(sample, KILN_OPERAND_OUT, shape->inputs);
        break;
    case KILN_OP_QUANTIZE:
        add_edge(sample, KILN_OPERAND_IN, shape->inputs);
        add(sample, KILN_OPERAND_OUT, KILN_DTYPE_F16, shape->inputs, sample->tokens, 0);
        break;
    default: // ARGMAX
        add_edge(sample, KILN_OPERAND_IN, shape->words);
        add(sample, KILN_OPERAND_OUT, KILN_DTYPE_I32, 1, sample->tokens, 0);
        break;
    }
}

static uint32_t weight_type(const char *slot) {
    char name[KILN_SLOT_NAME_MAX] = "";
    const char *dot = strchr(slot, '.');
    size_t len = dot ? strcspn(dot + 1, ".") : 0;
    if (len == 0 || len >= sizeof(name)) {
        return KILN_DTYPE_F32;
    }
    memcpy(name, dot + 1, len);
    const struct kiln_dtype_info *info = kiln_dtype_by_name(name);
    return info ? info->dtype : KILN_DTYPE_F32;
}

static struct kiln_op *make_op(struct sample *sample, const char *name, const char *role) {
    struct kiln_op *op = kiln_arena_calloc(sample->arena, 1, sizeof(*op));
    const struct kiln_tensor **operands =
            kiln_arena_calloc(sample->arena, MAX_OPERANDS, sizeof(*operands));
    if (!op || !operands) {
        return NULL;
    }
    *op = (struct kiln_op){.struct_size = sizeof(*op),
            .kind = kiln_op_kind_of(name),
            .role = role,
            .operands = operands,
            .activation = KILN_ACTIVATION_SILU,
            .rope_style = KILN_ROPE_HALVES,
            .rope_dims = sample->shape->head_size,
            .rope_scale = 1.0f,
            .scale = 0.125f,
            .eps = 1e-5f};
    sample->made = op;
    sample->operands = operands;
    add_operands(sample);
    return op;
}

enum kiln_status kiln_sample_problem(struct kiln_arena *arena, const struct kiln_plugin *plugin,
        const struct kiln_variant *variant, const char *slot, uint32_t shape,
        const struct kiln_problem **problem, struct kiln_err *err) {
    int decode = strlen(slot) > 7 && strcmp(slot + strlen(slot) - 7, ".decode") == 0;
    struct sample sample = {.arena = arena,
            .plugin = plugin,
            .variant = variant,
            .shape = &shapes[shape],
            .tokens = decode ? 1 : shapes[shape].tokens,
            .weight_type = weight_type(slot)};
    uint32_t n_ops = variant->n_follows + 1;
    struct kiln_problem *made = kiln_arena_calloc(arena, 1, sizeof(*made));
    const struct kiln_op **ops = kiln_arena_calloc(arena, n_ops, sizeof(*ops));
    char *slot_copy = kiln_arena_strdup(arena, slot);
    if (!made || !ops || !slot_copy) {
        return kiln_err_nomem(err, "a sample problem");
    }
    for (sample.op = 0; sample.op < n_ops; sample.op++) {
        const char *name = sample.op ? variant->follows[sample.op - 1] : slot;
        const char *colon = sample.op ? strchr(name, ':') : NULL;
        const char *role = sample.op ? (colon ? colon + 1 : "") : variant->role;
        ops[sample.op] = make_op(&sample, name, role ? role : "");
        if (!ops[sample.op] || sample.nomem) {
            return kiln_err_nomem(err, "a sample problem");
        }
    }
    *made = (struct kiln_problem){.struct_size = sizeof(*made),
            .phase = decode ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL,
            .slot = slot_copy,
            .ops = ops,
            .n_ops = n_ops,
            .world = 1};
    *problem = made;
    return KILN_STATUS_OK;
}
