// op_case: builds a problem: ops, operands, how they hang together, their data. The numbers are
// op_case_data.c's, the references have files of their own.
#include "lab/op_case_impl.h"

#include "base/buf.h"
#include "base/mem.h"
#include "config/slot.h"
#include "model/dtype.h"
#include "plugin/describe.h"
#include "plugin/registry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_OPERANDS = 16,
    SLACK_ROWS = 40, // of the caches, behind the last key
    WEIGHT_ALIGNMENT = 32,
    VALUE_ALIGNMENT = 64,
    MOST_WORK = 300000000 // products that the reference makes of one op
};

static const float f16_most = 65504;

struct case_op {
    struct kiln_op op;
    struct kiln_tensor tensors[MAX_OPERANDS];
    const struct kiln_tensor *list[MAX_OPERANDS];
};

struct maker {
    struct kiln_op_case *c;
    struct kiln_arena *arena;
    const struct kiln_variant *variant; // NULL: single op
    struct kiln_random random;
    uint64_t seed;
    uint32_t index; // of the op
    struct case_op *made;
    uint32_t n_edges;
    struct kiln_tensor nowhere; // what is described after a failure
    struct kiln_err *err;
    enum kiln_status status; // of the first failure
};

// ---- Looking up ---------------------------------------------------------------------------------
static size_t at_of(uint32_t op, uint32_t operand) {
    return (size_t)op * KILN_SOLO_OPERANDS + operand;
}

const struct kiln_tensor *kiln_case_find(
        const struct kiln_op_case *c, uint32_t op, uint32_t operand) {
    return kiln_op_tensor(c->problem.ops[op], operand);
}

const void *kiln_case_data(const struct kiln_op_case *c, uint32_t op, uint32_t operand) {
    return c->data[at_of(op, operand)];
}

struct kiln_case_value *kiln_case_value(
        const struct kiln_op_case *c, uint32_t op, uint32_t operand) {
    return &c->reference->values[at_of(op, operand)];
}

// ---- Operands -----------------------------------------------------------------------------------
static void fail(struct maker *mk, enum kiln_status status, const char *text, const char *detail) {
    if (mk->status == KILN_STATUS_OK) {
        mk->status = status == KILN_STATUS_NOMEM
                             ? kiln_err_nomem(mk->err, "a problem's data")
                             : kiln_err_set(mk->err, status, "%s%s", text, detail);
    }
}

static const char *type_name(uint32_t dtype) {
    const struct kiln_dtype_info *info = kiln_dtype_info(dtype);
    return info ? info->name : "?";
}

// The format of an operand: one of those that the variant lists for it, or `fallback`.
static const char *format_of(const struct maker *mk, uint32_t operand, const char *fallback) {
    for (uint32_t i = 0; mk->variant && i < mk->variant->n_ios; i++) {
        const struct kiln_io *io = mk->variant->ios[i];
        if (io->op == mk->index && io->operand == operand && io->n_formats > 0) {
            uint32_t which = mk->c->shape.format;
            return io->formats[which < io->n_formats ? which : io->n_formats - 1];
        }
    }
    return fallback;
}

static struct kiln_tensor *add(
        struct maker *mk, uint32_t operand, const char *format, int64_t cols, int64_t rows) {
    const struct kiln_dtype_info *info = kiln_dtype_by_name(format);
    const struct kiln_case_format *block = info ? NULL : kiln_case_format_find(format);
    uint32_t i = mk->made ? mk->made->op.n_operands : MAX_OPERANDS;
    if (i >= MAX_OPERANDS || (!info && !block)) {
        fail(mk, KILN_STATUS_USAGE, "no oracle for the format ", format);
        return &mk->nowhere;
    }
    int64_t elems = info ? info->elems : block->elems, bytes = info ? info->bytes : block->bytes;
    if (cols < 1 || rows < 1 || cols % elems != 0) {
        fail(mk, KILN_STATUS_USAGE,
                "columns and rows must be at least 1, columns a multiple of the "
                "block of ",
                format);
        return &mk->nowhere;
    }
    struct kiln_tensor *tensor = &mk->made->tensors[i];
    *tensor = (struct kiln_tensor){.struct_size = sizeof(*tensor),
            .operand = operand,
            .dtype = info ? info->dtype : KILN_DTYPE_BLOCK,
            .n_dims = 2,
            .dims = {cols, rows, 1, 1},
            .alignment = VALUE_ALIGNMENT,
            .format = block ? block->name : NULL};
    tensor->strides[0] = bytes;
    tensor->strides[1] = cols / elems * bytes;
    tensor->strides[2] = tensor->strides[3] = tensor->strides[1] * rows;
    mk->made->list[mk->made->op.n_operands++] = tensor;
    return tensor;
}

static void bound_rows(struct kiln_tensor *tensor, uint32_t dim, uint32_t by) {
    tensor->bound_dims |= 1u << dim;
    tensor->bound_by[dim] = by;
}

static int has_data(const struct maker *mk) {
    return mk->c->fill != KILN_FILL_NONE;
}

// Bytes for an operand's data, 0xff throughout; NULL: none, by the fill or after a failure.
static unsigned char *room(struct maker *mk, const struct kiln_tensor *tensor) {
    if (!has_data(mk)) {
        return NULL;
    }
    uint64_t bytes = kiln_solo_span(tensor);
    unsigned char *at =
            mk->status == KILN_STATUS_OK ? kiln_arena_calloc(mk->arena, 1, bytes) : NULL;
    if (!at) {
        fail(mk, KILN_STATUS_NOMEM, "", "");
        return NULL;
    }
    memset(at, 0xff, bytes);
    mk->c->data[at_of(mk->index, tensor->operand)] = at;
    return at;
}

// A value of S rows, without data.
// As kiln chooses for edges of other columns than whole blocks: f32 for rows of f16.
static struct kiln_tensor *add_edge(struct maker *mk, uint32_t operand, int64_t cols) {
    const char *format = format_of(mk, operand, "f32");
    const struct kiln_case_format *rows = kiln_case_format_find(format);
    if (rows && !rows->put && cols % rows->elems != 0) {
        format = "f32";
    }
    struct kiln_tensor *tensor = add(mk, operand, format, cols, mk->c->shape.bound);
    bound_rows(tensor, 1, KILN_OPERAND_N_TOKENS);
    return tensor;
}

typedef void (*row_fn)(struct maker *mk, int64_t row, float *x, int64_t cols);

static void fill_rows(struct maker *mk, const struct kiln_tensor *tensor, row_fn fn) {
    if (!has_data(mk)) {
        return;
    }
    unsigned char *at = room(mk, tensor);
    float *row = at ? kiln_calloc((size_t)tensor->dims[0], sizeof(*row)) : NULL;
    if (!row) {
        fail(mk, KILN_STATUS_NOMEM, "", "");
        return;
    }
    for (int64_t r = 0; r < mk->c->shape.m && r < tensor->dims[1]; r++) {
        fn(mk, r, row, tensor->dims[0]);
        for (int64_t i = 0; tensor->dtype == KILN_DTYPE_F16 && i < tensor->dims[0]; i++) {
            row[i] = fabsf(row[i]) > f16_most ? copysignf(f16_most, row[i]) : row[i];
        }
        kiln_case_encode(tensor, row, at + r * tensor->strides[1]);
    }
    kiln_free(row);
}

static void normal_row(struct maker *mk, int64_t row, float *x, int64_t cols) {
    (void)row;
    for (int64_t i = 0; i < cols; i++) {
        x[i] = kiln_random_normal(&mk->random);
    }
}

// Whole numbers, so that they add no error to sums of whole steps.
static void whole_row(struct maker *mk, int64_t row, float *x, int64_t cols) {
    for (int64_t i = 0; i < cols; i++) {
        x[i] = mk->c->fill == KILN_FILL_EXACT ? (float)((i + row) % 7)
                                              : kiln_random_normal(&mk->random);
    }
}

static void matrix_row(struct maker *mk, int64_t row, float *x, int64_t cols) {
    kiln_case_fill_row(&mk->random, mk->c->fill, row + (int64_t)(mk->seed % 11), x, cols);
}

static void add_input(struct maker *mk, uint32_t operand, int64_t cols, row_fn fn) {
    fill_rows(mk, add_edge(mk, operand, cols), fn);
}

// f32, one row.
static float *add_vector(struct maker *mk, uint32_t operand, int64_t cols) {
    struct kiln_tensor *tensor = add(mk, operand, "f32", cols, 1);
    tensor->n_dims = 1;
    tensor->flags = KILN_TENSOR_WEIGHT;
    tensor->alignment = WEIGHT_ALIGNMENT;
    return (float *)(void *)room(mk, tensor);
}

static void add_normal_vector(struct maker *mk, uint32_t operand, int64_t cols) {
    float *at = add_vector(mk, operand, cols);
    if (at) {
        whole_row(mk, 0, at, cols);
    }
}

static void add_weight(struct maker *mk, int64_t cols, int64_t rows, uint32_t dtype) {
    struct kiln_tensor *tensor = add(mk, KILN_OPERAND_WEIGHT, type_name(dtype), cols, rows);
    tensor->flags = KILN_TENSOR_WEIGHT;
    tensor->alignment = WEIGHT_ALIGNMENT;
    unsigned char *at = room(mk, tensor);
    if (at) {
        kiln_case_fill_weight(&mk->random, tensor, mk->c->fill, at);
    }
}

static int32_t *add_integers(struct maker *mk, uint32_t operand, int64_t n) {
    struct kiln_tensor *tensor = add(mk, operand, "i32", n, 1);
    tensor->n_dims = 1;
    if (operand == KILN_OPERAND_POSITIONS || operand == KILN_OPERAND_IDS) {
        bound_rows(tensor, 0, KILN_OPERAND_N_TOKENS);
    }
    return (int32_t *)(void *)room(mk, tensor);
}

static void add_count(struct maker *mk, uint32_t operand, int64_t value) {
    int32_t *at = add_integers(mk, operand, 1);
    if (at) {
        *at = (int32_t)value;
    }
}

static uint32_t edge_number(struct maker *mk, uint32_t op, uint32_t operand) {
    uint32_t *edge = &mk->c->edges[at_of(op, operand)];
    *edge = *edge ? *edge : ++mk->n_edges;
    return *edge;
}

static const struct kiln_tensor *find_made(const struct maker *mk, uint32_t op, uint32_t operand) {
    return kiln_case_find(mk->c, op, operand);
}

// An operand that is what another op has: its OUT, or the same IN.
static int64_t take_edge(struct maker *mk, uint32_t operand, uint32_t from, uint32_t source) {
    const struct kiln_tensor *known = find_made(mk, from, source);
    if (!known || !mk->made || mk->made->op.n_operands >= MAX_OPERANDS) {
        fail(mk, KILN_STATUS_USAGE, "no oracle for this group of ops", "");
        return 1;
    }
    struct kiln_tensor *tensor = &mk->made->tensors[mk->made->op.n_operands];
    *tensor = *known;
    tensor->operand = operand;
    mk->made->list[mk->made->op.n_operands++] = tensor;
    mk->c->edges[at_of(mk->index, operand)] = edge_number(mk, from, source);
    mk->c->data[at_of(mk->index, operand)] = mk->c->data[at_of(from, source)];
    if (source == KILN_OPERAND_OUT) { // nobody else reads it
        for (uint32_t i = 0; i < mk->c->problem.ops[from]->n_operands; i++) {
            struct case_op *op = (struct case_op *)(uintptr_t)mk->c->problem.ops[from];
            if (op->tensors[i].operand == KILN_OPERAND_OUT) {
                op->tensors[i].flags |= KILN_TENSOR_INTERNAL;
            }
        }
        tensor->flags |= KILN_TENSOR_INTERNAL;
    }
    return tensor->dims[0];
}

// OUT takes the memory of `operand` where the shape says so and their types agree.
static void place_in(struct maker *mk, uint32_t operand) {
    const struct kiln_tensor *from = find_made(mk, mk->index, operand);
    const struct kiln_tensor *out = find_made(mk, mk->index, KILN_OPERAND_OUT);
    if (!(mk->c->shape.with & KILN_WITH_IN_PLACE) || !from || !out || from->dtype != out->dtype) {
        return;
    }
    mk->c->edges[at_of(mk->index, KILN_OPERAND_OUT)] = edge_number(mk, mk->index, operand);
    mk->c->data[at_of(mk->index, KILN_OPERAND_OUT)] = mk->c->data[at_of(mk->index, operand)];
}

// ---- Ops ----------------------------------------------------------------------------------------
static void add_residual(struct maker *mk, int64_t cols) {
    if (mk->c->shape.with & KILN_WITH_RESIDUAL) {
        add_input(mk, KILN_OPERAND_RESIDUAL, cols, whole_row);
    }
}

// Rows: all zero, as large as Gemma's residual, tiny, one column that outweighs the others.
static void norm_row(struct maker *mk, int64_t row, float *x, int64_t cols) {
    static const float widths[] = {1, 1e5F, 0, 1e-20F, 1};
    int64_t kind = mk->c->fill == KILN_FILL_EDGES ? (row + (int64_t)(mk->seed % 5)) % 5 : 0;
    normal_row(mk, row, x, cols);
    for (int64_t i = 0; i < cols; i++) {
        x[i] *= widths[kind];
    }
    if (kind == 4) {
        x[cols / 2] = 12345.0F;
    }
}

static void make_norm(struct maker *mk) {
    int64_t k = mk->c->shape.k;
    mk->made->op.eps = 1e-6F;
    add_input(mk, KILN_OPERAND_IN, k, norm_row);
    add_normal_vector(mk, KILN_OPERAND_WEIGHT, k);
    if (!mk->variant || mk->variant->n_follows == 0) {
        add_residual(mk, k);
    }
    add_edge(mk, KILN_OPERAND_OUT, k);
    place_in(mk, KILN_OPERAND_RESIDUAL);
}

static void make_matmul(struct maker *mk, uint32_t dtype) {
    const struct kiln_shape *shape = &mk->c->shape;
    const char *role = mk->made->op.role;
    int64_t k = shape->k, n = shape->n;
    if (strcmp(role, "attn_k") == 0 || strcmp(role, "attn_v") == 0) {
        n = n * shape->n_kv_heads / shape->n_heads;
        n = n < 1 ? 1 : n;
    }
    if (mk->index == 0) {
        add_input(mk, KILN_OPERAND_IN, k, matrix_row);
    } else if (mk->c->problem.ops[0]->kind == KILN_OP_MATMUL) {
        take_edge(mk, KILN_OPERAND_IN, 0, KILN_OPERAND_IN);
    } else {
        take_edge(mk, KILN_OPERAND_IN, 0, KILN_OPERAND_OUT);
    }
    add_weight(mk, k, n, dtype);
    if (shape->with & KILN_WITH_BIAS) {
        add_normal_vector(mk, KILN_OPERAND_BIAS, n);
    }
    if (!mk->variant || mk->variant->n_follows == 0) {
        add_residual(mk, n);
    }
    add_edge(mk, KILN_OPERAND_OUT, n);
    place_in(mk, KILN_OPERAND_RESIDUAL);
}

// Where the exponential is near its ends, and at 0.
static void gate_row(struct maker *mk, int64_t row, float *x, int64_t cols) {
    static const float planted[] = {100, -100, 0, 88, -88, 1e-40F, -1e-40F, 3e4F, -3e4F};
    normal_row(mk, row, x, cols);
    for (int64_t i = 0; i < cols; i++) {
        x[i] *= 4;
        if (mk->c->fill == KILN_FILL_EDGES && i % 3 == 0) {
            x[i] = planted[(i / 3 + row) % 9];
        }
    }
}

static void make_activation(struct maker *mk) {
    const struct kiln_shape *shape = &mk->c->shape;
    int64_t cols = shape->k;
    mk->made->op.activation = shape->activation;
    if (mk->index >= 2) {
        cols = take_edge(mk, KILN_OPERAND_GATE, mk->index - 2, KILN_OPERAND_OUT);
        take_edge(mk, KILN_OPERAND_UP, mk->index - 1, KILN_OPERAND_OUT);
    } else {
        add_input(mk, KILN_OPERAND_GATE, cols, gate_row);
        add_input(mk, KILN_OPERAND_UP, cols, normal_row);
    }
    add_edge(mk, KILN_OPERAND_OUT, cols);
    place_in(mk, KILN_OPERAND_GATE);
}

static void make_embed(struct maker *mk) {
    const struct kiln_shape *shape = &mk->c->shape;
    mk->made->op.scale = 1.5F;
    int32_t *ids = add_integers(mk, KILN_OPERAND_IDS, shape->bound);
    for (int64_t i = 0; ids && i < shape->bound; i++) {
        ids[i] = i < shape->m ? (int32_t)(kiln_random_bits(&mk->random) % (uint64_t)shape->n)
                              : INT32_MAX;
    }
    if (ids) {
        ids[shape->m - 1] = (int32_t)(shape->n - 1);
    }
    add_weight(mk, shape->k, shape->n, shape->weight_dtype);
    add_edge(mk, KILN_OPERAND_OUT, shape->k);
}

// Ties, NaN beside numbers, nothing but NaN, nothing but -inf, the largest at the very end.
static void logit_row(struct maker *mk, int64_t row, float *x, int64_t cols) {
    int64_t kind = mk->c->fill == KILN_FILL_EDGES ? (row + (int64_t)(mk->seed % 5)) % 5 : -1;
    normal_row(mk, row, x, cols);
    for (int64_t i = 0; i < cols; i++) {
        x[i] = kind == 0                                ? floorf(x[i] * 2)
               : kind == 2 || (kind == 1 && i % 3 == 0) ? NAN
               : kind == 3                              ? -INFINITY
                                                        : x[i];
    }
    if (kind == 4) {
        x[cols - 1] = 1e30F;
    }
}

static void make_argmax(struct maker *mk) {
    add_input(mk, KILN_OPERAND_IN, mk->c->shape.n, logit_row);
    struct kiln_tensor *out = add(mk, KILN_OPERAND_OUT, "i32", 1, mk->c->shape.bound);
    bound_rows(out, 1, KILN_OPERAND_N_TOKENS);
}

// Also rows that are not finite: what becomes of them is fixed.
static void any_row(struct maker *mk, int64_t row, float *x, int64_t cols) {
    matrix_row(mk, row, x, cols);
    if (mk->c->fill == KILN_FILL_EDGES && row % 4 == 3) {
        x[cols / 2] = row % 8 == 3 ? NAN : -INFINITY;
    }
}

static void make_quantize(struct maker *mk) {
    int64_t cols = mk->c->shape.k;
    if (mk->index > 0) {
        cols = take_edge(mk, KILN_OPERAND_IN, mk->index - 1, KILN_OPERAND_OUT);
    } else {
        add_input(mk, KILN_OPERAND_IN, cols, any_row);
    }
    add_edge(mk, KILN_OPERAND_OUT, cols);
}

// ---- Caches -------------------------------------------------------------------------------------
static const char *cache_format(const struct maker *mk, uint32_t operand) {
    uint32_t wanted = mk->c->shape.kv_dtype;
    if (wanted == KILN_SHAPE_F32) {
        return "f32";
    }
    return wanted ? type_name(wanted) : format_of(mk, operand, "f16");
}

static void add_positions(struct maker *mk) {
    const struct kiln_shape *shape = &mk->c->shape;
    int32_t *at = add_integers(mk, KILN_OPERAND_POSITIONS, shape->bound);
    for (int64_t i = 0; at && i < shape->bound; i++) {
        at[i] = i < shape->m ? (int32_t)(shape->kv_len - shape->m + i) : INT32_MAX / 2;
    }
}

// Rows: scores all alike, far apart, nearly 0.
static void query_row(struct maker *mk, int64_t row, float *x, int64_t cols) {
    int32_t hd = mk->c->shape.head_size;
    int64_t kind = mk->c->fill == KILN_FILL_EDGES ? (row + (int64_t)(mk->seed % 4)) % 4 : -1;
    for (int64_t i = 0; i < cols; i++) {
        float value = kiln_random_normal(&mk->random);
        value = kind == 0 ? 0 : kind == 1 ? value * 64 : kind == 2 ? value * 0x1p-20F : value;
        // Column 0 of a head is positive: times a key's -inf it is -inf.
        value = kind >= 0 && i % hd == 0 ? 0.5F + fabsf(value) : value;
        x[i] = kiln_f16_round(value);
    }
}

static void cache_rows(struct maker *mk, const struct kiln_tensor *tensor, int keys) {
    const struct kiln_shape *shape = &mk->c->shape;
    if (!has_data(mk)) {
        return;
    }
    unsigned char *at = room(mk, tensor);
    float *row = at ? kiln_calloc((size_t)tensor->dims[0], sizeof(*row)) : NULL;
    if (!row) {
        fail(mk, KILN_STATUS_NOMEM, "", "");
        return;
    }
    for (int64_t r = 0; r < shape->kv_len; r++) {
        normal_row(mk, r, row, tensor->dims[0]);
        for (int64_t i = 0; i < tensor->dims[0]; i++) {
            int infinite = keys && mk->c->fill == KILN_FILL_EDGES && shape->window == 0 &&
                           r % 7 == 3 && i % shape->head_size == 0;
            row[i] = infinite ? -INFINITY : kiln_f16_round(row[i]);
        }
        kiln_case_encode(tensor, row, at + r * tensor->strides[1]);
    }
    kiln_free(row);
}

static void add_caches(struct maker *mk) {
    const struct kiln_shape *shape = &mk->c->shape;
    int64_t kv = (int64_t)shape->n_kv_heads * shape->head_size;
    for (uint32_t operand = KILN_OPERAND_K_CACHE; operand <= KILN_OPERAND_V_CACHE; operand++) {
        int64_t rows = (shape->kv_len > shape->m ? shape->kv_len : shape->m) + SLACK_ROWS;
        struct kiln_tensor *tensor = add(mk, operand, cache_format(mk, operand), kv, rows);
        bound_rows(tensor, 1, KILN_OPERAND_KV_LEN);
        cache_rows(mk, tensor, operand == KILN_OPERAND_K_CACHE);
    }
}

static void make_attention(struct maker *mk) {
    const struct kiln_shape *shape = &mk->c->shape;
    int64_t cols = (int64_t)shape->n_heads * shape->head_size;
    mk->made->op.scale = 1.0F / sqrtf((float)shape->head_size);
    mk->made->op.softcap = shape->softcap;
    mk->made->op.window = shape->window;
    if (mk->index > 0) { // behind a rope_kv
        take_edge(mk, KILN_OPERAND_Q, 0, KILN_OPERAND_OUT);
        take_edge(mk, KILN_OPERAND_K_CACHE, 0, KILN_OPERAND_K_CACHE);
        take_edge(mk, KILN_OPERAND_V_CACHE, 0, KILN_OPERAND_V_CACHE);
        take_edge(mk, KILN_OPERAND_POSITIONS, 0, KILN_OPERAND_POSITIONS);
    } else {
        add_input(mk, KILN_OPERAND_Q, cols, query_row);
        add_caches(mk);
        add_positions(mk);
    }
    add_count(mk, KILN_OPERAND_KV_LEN, shape->kv_len > 0 ? shape->kv_len : 0);
    add_edge(mk, KILN_OPERAND_OUT, cols);
}

static void make_rope(struct maker *mk) {
    const struct kiln_shape *shape = &mk->c->shape;
    struct kiln_op *op = &mk->made->op;
    int64_t cols = (int64_t)shape->n_heads * shape->head_size;
    int64_t kv = (int64_t)shape->n_kv_heads * shape->head_size;
    op->rope_style = shape->with & KILN_WITH_PAIRS ? KILN_ROPE_PAIRS : KILN_ROPE_HALVES;
    op->rope_dims = shape->with & KILN_WITH_PART ? shape->head_size / 4 * 2 : shape->head_size;
    op->rope_scale = 1.25F;
    op->eps = 1e-6F;
    add_input(mk, KILN_OPERAND_Q, cols, norm_row);
    add_input(mk, KILN_OPERAND_K, kv, normal_row);
    add_input(mk, KILN_OPERAND_V, kv, normal_row);
    if (shape->with & KILN_WITH_NORMS) {
        add_normal_vector(mk, KILN_OPERAND_Q_NORM, shape->head_size);
        add_normal_vector(mk, KILN_OPERAND_K_NORM, shape->head_size);
    }
    float *freqs = add_vector(mk, KILN_OPERAND_ROPE_FREQS, op->rope_dims / 2);
    for (int32_t i = 0; freqs && i < op->rope_dims / 2; i++) {
        freqs[i] = (float)pow(10000.0, -2.0 * i / op->rope_dims);
    }
    add_positions(mk);
    add_caches(mk);
    add_edge(mk, KILN_OPERAND_OUT, cols);
    place_in(mk, KILN_OPERAND_Q);
}

static void make_op(struct maker *mk, uint32_t dtype) {
    struct kiln_op *op = &mk->made->op;
    const struct kiln_shape *shape = &mk->c->shape;
    if (op->kind == KILN_OP_ATTENTION || op->kind == KILN_OP_ROPE_KV) {
        op->n_heads = shape->n_heads;
        op->n_kv_heads = shape->n_kv_heads;
        op->head_size = shape->head_size;
    }
    switch (op->kind) {
    case KILN_OP_EMBED:
        make_embed(mk);
        break;
    case KILN_OP_NORM:
        make_norm(mk);
        break;
    case KILN_OP_MATMUL:
        make_matmul(mk, dtype);
        break;
    case KILN_OP_ROPE_KV:
        make_rope(mk);
        break;
    case KILN_OP_ATTENTION:
        make_attention(mk);
        break;
    case KILN_OP_ACTIVATION:
        make_activation(mk);
        break;
    case KILN_OP_QUANTIZE:
        make_quantize(mk);
        break;
    case KILN_OP_ARGMAX:
        make_argmax(mk);
        break;
    default:
        fail(mk, KILN_STATUS_USAGE, "no oracle for this kind of op", "");
        return;
    }
    add_count(mk, KILN_OPERAND_N_TOKENS, shape->m);
}

// ---- The whole ----------------------------------------------------------------------------------
static int is_decode(const char *slot) {
    size_t len = strlen(slot);
    return len > 7 && strcmp(slot + len - 7, ".decode") == 0;
}

// The weight type that the slot names; f32 where it names none.
static uint32_t slot_dtype(const char *slot, uint32_t otherwise) {
    char name[KILN_SLOT_NAME_MAX];
    const char *dot = strchr(slot, '.');
    size_t len = dot ? strcspn(dot + 1, ".") : 0;
    if (len == 0 || len >= sizeof(name) || kiln_op_kind_of(slot) != KILN_OP_MATMUL) {
        return otherwise == KILN_SHAPE_F32 ? (uint32_t)KILN_DTYPE_F32
               : otherwise                 ? otherwise
                                           : (uint32_t)KILN_DTYPE_Q4_K;
    }
    memcpy(name, dot + 1, len);
    name[len] = '\0';
    const struct kiln_dtype_info *info = kiln_dtype_by_name(name);
    return info ? info->dtype : (uint32_t)KILN_DTYPE_F32;
}

static void fill_defaults(struct kiln_shape *s, const char *slot) {
    uint32_t kind = kiln_op_kind_of(slot);
    int decode = is_decode(slot) || kind == KILN_OP_ARGMAX;
    int attends = kind == KILN_OP_ATTENTION || kind == KILN_OP_ROPE_KV;
    int words = kind == KILN_OP_EMBED || kind == KILN_OP_ARGMAX;
    s->m = s->m ? s->m : decode ? 1 : 3325;
    s->n = s->n ? s->n : words ? 152064 : 18944;
    s->k = s->k ? s->k : kind == KILN_OP_ACTIVATION ? 18944 : 3584;
    s->n_heads = s->n_heads ? s->n_heads : 28;
    s->n_kv_heads = s->n_kv_heads ? s->n_kv_heads : 4;
    s->head_size = s->head_size ? s->head_size : 128;
    s->kv_len = s->kv_len ? s->kv_len : attends && decode ? 3325 : s->m;
    s->bound = s->bound > s->m ? s->bound : s->m;
    s->weight_dtype = slot_dtype(slot, s->weight_dtype);
    s->last_dtype = s->last_dtype ? slot_dtype("", s->last_dtype) : s->weight_dtype;
    s->activation = s->activation ? s->activation : (uint32_t)KILN_ACTIVATION_SILU;
}

static enum kiln_status check_shape(
        const struct kiln_shape *s, const char *slot, struct kiln_err *err) {
    const struct kiln_dtype_info *info = kiln_dtype_info(s->weight_dtype);
    if (s->m < 1 || s->n < 1 || s->k < 1 || s->n_heads < 1 || s->n_kv_heads < 1 ||
            s->head_size < 1 || s->window < 0 || !(s->softcap >= 0)) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "%s: every number of a shape must be at least 1, window and softcap at least 0",
                slot);
    }
    if (s->n_heads % s->n_kv_heads != 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "%s: %d heads are no multiple of %d KV heads",
                slot, s->n_heads, s->n_kv_heads);
    }
    if (s->bound > INT32_MAX / 4 || s->kv_len > INT32_MAX / 4) {
        return kiln_err_set(
                err, KILN_STATUS_USAGE, "%s: at most %d rows and keys", slot, INT32_MAX / 4);
    }
    if (!info || !info->weight) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "%s: no weight type", slot);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status pick_rows(struct kiln_op_case *c, struct kiln_err *err) {
    const struct kiln_shape *s = &c->shape;
    struct kiln_case_reference *ref = c->reference;
    double a_row = 1;
    for (uint32_t op = 0; op < c->problem.n_ops; op++) {
        uint32_t kind = c->problem.ops[op]->kind;
        double work = kind == KILN_OP_MATMUL ? (double)s->n * (double)s->k
                      : kind == KILN_OP_ATTENTION
                              ? 2.0 * (double)s->kv_len * s->n_heads * s->head_size
                              : 1;
        a_row = work > a_row ? work : a_row;
    }
    int64_t most = (int64_t)(MOST_WORK / a_row);
    most = most < 3 ? 3 : most;
    ref->m = s->m;
    ref->n_rows = s->m < most ? s->m : most;
    ref->rows = kiln_arena_calloc(&ref->arena, (size_t)ref->n_rows, sizeof(*ref->rows));
    if (!ref->rows) {
        return kiln_err_nomem(err, "a reference");
    }
    for (int64_t i = 0; i < ref->n_rows; i++) {
        ref->rows[i] = ref->n_rows > 1 ? i * (s->m - 1) / (ref->n_rows - 1) : 0;
    }
    return KILN_STATUS_OK;
}

static enum kiln_status make_ops(struct maker *mk, const char *slot) {
    struct kiln_op_case *c = mk->c;
    const struct kiln_variant *variant = mk->variant;
    uint32_t n = 1 + (variant ? variant->n_follows : 0);
    // NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers is meant
    const struct kiln_op **ops = kiln_arena_calloc(mk->arena, n, sizeof(*ops));
    char *copy = kiln_arena_strdup(mk->arena, slot);
    if (n > KILN_CASE_OPS) {
        return kiln_err_set(mk->err, KILN_STATUS_USAGE, "no oracle for more than %d ops at once",
                KILN_CASE_OPS);
    }
    if (!ops || !copy) {
        return kiln_err_nomem(mk->err, "a problem");
    }
    c->problem = (struct kiln_problem){.struct_size = sizeof(c->problem),
            .phase = is_decode(slot) || (!strstr(slot, ".prefill") && c->shape.bound == 1)
                             ? KILN_PHASE_DECODE
                             : KILN_PHASE_PREFILL,
            .slot = copy,
            .ops = ops,
            .world = 1};
    for (mk->index = 0; mk->index < n && mk->status == KILN_STATUS_OK; mk->index++) {
        const char *name = mk->index ? variant->follows[mk->index - 1] : slot;
        const char *colon = mk->index ? strchr(name, ':') : NULL;
        const char *role = colon ? colon + 1 : mk->index == 0 && variant ? variant->role : NULL;
        mk->made = kiln_arena_calloc(mk->arena, 1, sizeof(*mk->made));
        if (!mk->made) {
            return kiln_err_nomem(mk->err, "a problem");
        }
        mk->made->op = (struct kiln_op){.struct_size = sizeof(struct kiln_op),
                .kind = kiln_op_kind_of(name),
                .role = role                                          ? role
                        : kiln_op_kind_of(name) == KILN_OP_MATMUL     ? "ffn_up"
                        : kiln_op_kind_of(name) == KILN_OP_NORM       ? "attn_norm"
                        : kiln_op_kind_of(name) == KILN_OP_ACTIVATION ? "activation"
                                                                      : "",
                .operands = mk->made->list};
        ops[mk->index] = &mk->made->op;
        c->problem.n_ops = mk->index + 1;
        int last = mk->index > 0 && role &&
                   (strcmp(role, "attn_v") == 0 || strcmp(role, "ffn_up") == 0);
        make_op(mk, last ? c->shape.last_dtype : c->shape.weight_dtype);
    }
    return mk->status;
}

enum kiln_status kiln_op_case_make(struct kiln_op_case *c, const char *slot,
        const struct kiln_plugin *plugin, const struct kiln_variant *variant,
        const struct kiln_shape *shape, enum kiln_case_fill fill, uint64_t seed,
        struct kiln_err *err) {
    *c = (struct kiln_op_case){.shape = *shape, .fill = fill};
    KILN_TRY(kiln_slot_check(slot, 0, err));
    if (fill == KILN_FILL_MASKED && c->shape.m > 1 && c->shape.kv_len == 0) {
        c->shape.kv_len = c->shape.m - 1 - c->shape.m / 4;
    }
    fill_defaults(&c->shape, slot);
    KILN_TRY(check_shape(&c->shape, slot, err));
    c->reference = kiln_calloc(1, sizeof(*c->reference));
    if (!c->reference) {
        return kiln_err_nomem(err, "a reference");
    }
    c->reference->precision = kiln_precision_of(plugin, variant);
    struct maker mk = {.c = c,
            .arena = &c->reference->arena,
            .variant = variant,
            .random = {seed * UINT64_C(0x2545f4914f6cdd1d) + 1},
            .seed = seed,
            .err = err};
    enum kiln_status status = make_ops(&mk, slot);
    return status == KILN_STATUS_OK ? pick_rows(c, err) : status;
}

// The shape that a problem from elsewhere has, as far as the reference asks for it.
static struct kiln_shape shape_of(const struct kiln_op_case *c) {
    const struct kiln_op *op = c->problem.ops[0];
    const struct kiln_tensor *out = kiln_case_find(c, 0, KILN_OPERAND_OUT);
    const struct kiln_tensor *weight = kiln_case_find(c, 0, KILN_OPERAND_WEIGHT);
    const struct kiln_tensor *cache = kiln_case_find(c, 0, KILN_OPERAND_K_CACHE);
    const int32_t *used = kiln_case_data(c, 0, KILN_OPERAND_N_TOKENS);
    const int32_t *keys = kiln_case_data(c, 0, KILN_OPERAND_KV_LEN);
    int64_t rows = out ? out->dims[1] : 1;
    return (struct kiln_shape){.m = used && *used > 0 && *used < rows ? *used : rows,
            .n = out ? out->dims[0] : 1,
            .k = weight ? weight->dims[0] : 1,
            .n_heads = op->n_heads,
            .n_kv_heads = op->n_kv_heads,
            .head_size = op->head_size,
            .window = op->window,
            .kv_len = keys    ? *keys
                      : cache ? cache->dims[1]
                              : 0,
            .bound = rows};
}

enum kiln_status kiln_op_case_adopt(struct kiln_op_case *c, const struct kiln_problem *problem,
        const void *const *data, const uint32_t *edges, const struct kiln_plugin *plugin,
        const struct kiln_variant *variant, struct kiln_err *err) {
    *c = (struct kiln_op_case){.problem = *problem};
    if (problem->n_ops > KILN_CASE_OPS) {
        return kiln_err_set(
                err, KILN_STATUS_USAGE, "no oracle for more than %d ops at once", KILN_CASE_OPS);
    }
    size_t count = (size_t)problem->n_ops * KILN_SOLO_OPERANDS;
    memcpy(c->data, data, count * sizeof(c->data[0]));
    memcpy(c->edges, edges, count * sizeof(c->edges[0]));
    for (size_t i = 0; i < count; i++) { // what is there before a call that writes in place
        for (size_t j = 0; !c->data[i] && c->edges[i] && j < count; j++) {
            c->data[i] = edges[j] == edges[i] ? data[j] : NULL;
        }
    }
    c->reference = kiln_calloc(1, sizeof(*c->reference));
    if (!c->reference) {
        return kiln_err_nomem(err, "a reference");
    }
    c->reference->precision = kiln_precision_of(plugin, variant);
    c->shape = shape_of(c);
    return pick_rows(c, err);
}

void kiln_op_case_finish(struct kiln_op_case *c) {
    struct kiln_case_reference *ref = c->reference;
    if (ref) {
        for (size_t i = 0; i < sizeof(ref->values) / sizeof(ref->values[0]); i++) {
            kiln_free(ref->values[i].v);
            kiln_free(ref->values[i].e);
        }
        for (size_t i = 0; i < sizeof(ref->read) / sizeof(ref->read[0]); i++) {
            kiln_free(ref->read[i]);
        }
        kiln_arena_finish(&ref->arena);
        kiln_free(ref);
    }
    *c = (struct kiln_op_case){.reference = NULL};
}

// ---- Names --------------------------------------------------------------------------------------
static void name_formats(const struct kiln_op_case *c, struct kiln_buf *text) {
    for (uint32_t op = 0; op < c->problem.n_ops; op++) {
        for (uint32_t i = 0; i < c->problem.ops[op]->n_operands; i++) {
            const struct kiln_tensor *t = c->problem.ops[op]->operands[i];
            int edge = t->operand == KILN_OPERAND_IN || t->operand == KILN_OPERAND_OUT ||
                       t->operand == KILN_OPERAND_Q || t->operand == KILN_OPERAND_K_CACHE;
            if (edge && t->dtype != KILN_DTYPE_F32 && t->dtype != KILN_DTYPE_I32) {
                static const char *const names[] = {[KILN_OPERAND_IN] = "in",
                        [KILN_OPERAND_OUT] = "out",
                        [KILN_OPERAND_Q] = "q",
                        [KILN_OPERAND_K_CACHE] = "cache"};
                kiln_buf_printf(text, " %s=%s", names[t->operand],
                        t->format ? t->format : type_name(t->dtype));
            }
        }
    }
}

void kiln_op_case_name(const struct kiln_op_case *c, char *name, size_t size) {
    static const char *const fills[] = {[KILN_FILL_NORMAL] = "",
            [KILN_FILL_EDGES] = " edges",
            [KILN_FILL_MASKED] = " masked",
            [KILN_FILL_EXACT] = " exact",
            [KILN_FILL_NONE] = ""};
    static const char *const withs[] = {"bias", "residual", "norms", "in-place", "pairs", "part"};
    const struct kiln_shape *s = &c->shape;
    struct kiln_buf text = {0};
    uint32_t kind = c->problem.n_ops ? c->problem.ops[0]->kind : 0;
    kiln_buf_printf(&text, "m=%lld", (long long)s->m);
    if (s->bound != s->m) {
        kiln_buf_printf(&text, "/%lld", (long long)s->bound);
    }
    if (kind == KILN_OP_ATTENTION || kind == KILN_OP_ROPE_KV) {
        kiln_buf_printf(&text, " kv=%lld heads=%d/%d hd=%d", (long long)s->kv_len, s->n_heads,
                s->n_kv_heads, s->head_size);
        if (s->window) {
            kiln_buf_printf(&text, " window=%d", s->window);
        }
        if (s->softcap > 0) {
            kiln_buf_printf(&text, " softcap=%g", (double)s->softcap);
        }
    } else if (kind == KILN_OP_MATMUL || c->problem.n_ops > 2) {
        kiln_buf_printf(&text, " n=%lld k=%lld %s", (long long)s->n, (long long)s->k,
                type_name(s->weight_dtype));
        if (s->last_dtype != s->weight_dtype) {
            kiln_buf_printf(&text, "+%s", type_name(s->last_dtype));
        }
    } else if (kind == KILN_OP_EMBED) {
        kiln_buf_printf(&text, " n=%lld k=%lld %s", (long long)s->n, (long long)s->k,
                type_name(s->weight_dtype));
    } else {
        kiln_buf_printf(&text, kind == KILN_OP_ARGMAX ? " n=%lld" : " k=%lld",
                (long long)(kind == KILN_OP_ARGMAX ? s->n : s->k));
    }
    name_formats(c, &text);
    for (uint32_t i = 0; i < 6; i++) {
        if (s->with >> i & 1) {
            kiln_buf_printf(&text, " %s", withs[i]);
        }
    }
    if (s->activation == KILN_ACTIVATION_GELU_TANH) {
        kiln_buf_puts(&text, " gelu_tanh");
    }
    kiln_buf_puts(&text, fills[c->fill]);
    (void)snprintf(name, size, "%s", text.data ? text.data : "");
    kiln_buf_finish(&text);
}

int kiln_op_case_is_output(const struct kiln_op_case *c, uint32_t op, uint32_t operand) {
    const struct kiln_tensor *tensor = kiln_case_find(c, op, operand);
    if (!tensor || (tensor->flags & KILN_TENSOR_INTERNAL)) {
        return 0;
    }
    int caches = operand == KILN_OPERAND_K_CACHE || operand == KILN_OPERAND_V_CACHE;
    return operand == KILN_OPERAND_OUT || (caches && c->problem.ops[op]->kind == KILN_OP_ROPE_KV);
}
