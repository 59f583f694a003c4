// capture_read: a folder that a capture was written to, as a problem with its operands. Nothing in
// it is trusted.
#include "lab/capture.h"

#include "base/file.h"
#include "base/mem.h"
#include "config/slot.h"
#include "lab/capture_impl.h"
#include "model/dtype.h"
#include "model/quant.h"
#include "plugin/describe.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

enum {
    MAX_JSON = 1 << 20,
    MAX_OPERANDS = 24 // an op
};
#define MAX_BYTES INT64_C(1) << 36 // of an operand

struct reading {
    struct kiln_captured *captured;
    const char *dir;
    struct kiln_err *err;
};

static enum kiln_status bad(const struct reading *r, const char *what) {
    return kiln_err_set(r->err, KILN_STATUS_FILE, "%s/%s: %s: not what `kiln run --capture` writes",
            r->dir, KILN_CAPTURE_FILE, what);
}

static const char *text_of(const struct reading *r, const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? kiln_arena_strdup(&r->captured->arena, text) : NULL;
}

static int32_t number_of(const json_t *object, const char *key) {
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value >= INT32_MIN && value <= INT32_MAX ? (int32_t)value : 0;
}

static float float_of(const json_t *object, const char *key) {
    return (float)json_number_value(json_object_get(object, key));
}

// ---- Tensors ------------------------------------------------------------------------------------

static enum kiln_status read_list(const struct reading *r, const json_t *object, const char *key,
        int64_t least, int64_t values[4]) {
    const json_t *array = json_object_get(object, key);
    for (size_t i = 0; i < 4; i++) {
        const json_t *value = json_array_get(array, i);
        values[i] = json_integer_value(value);
        if (!json_is_integer(value) || values[i] < least || values[i] > MAX_BYTES) {
            return bad(r, key);
        }
    }
    return KILN_STATUS_OK;
}

// Strides that are no shorter than what they step over, so that the span covers every element.
static int strides_hold(const struct kiln_tensor *t) {
    const struct kiln_dtype_info *info = kiln_dtype_info(t->dtype);
    if (info &&
            (t->dims[0] % info->elems != 0 || t->strides[0] != info->bytes ||
                    (t->n_dims > 1 && t->strides[1] < t->dims[0] / info->elems * t->strides[0]))) {
        return 0;
    }
    for (uint32_t i = 2; i < t->n_dims; i++) {
        if (t->strides[i] / t->dims[i - 1] < t->strides[i - 1]) {
            return 0;
        }
    }
    for (uint32_t i = 0; i < 4; i++) { // the product of dims[i] and strides[i] is formed
        if (t->strides[i] > 0 && t->dims[i] > (MAX_BYTES) / t->strides[i]) {
            return 0;
        }
    }
    return info || (t->n_dims > 1 && t->strides[1] > 0);
}

static enum kiln_status read_tensor(
        const struct reading *r, const json_t *one, struct kiln_tensor *tensor) {
    const char *name = json_string_value(json_object_get(one, "operand"));
    const char *dtype = json_string_value(json_object_get(one, "dtype"));
    const struct kiln_dtype_info *info = dtype ? kiln_dtype_by_name(dtype) : NULL;
    *tensor = (struct kiln_tensor){.struct_size = sizeof(*tensor),
            .operand = name ? kiln_operand_by_name(name) : 0,
            .dtype = info ? info->dtype : (uint32_t)KILN_DTYPE_BLOCK,
            .n_dims = (uint32_t)number_of(one, "n_dims"),
            .format = info ? NULL : text_of(r, one, "format")};
    json_int_t alignment = json_integer_value(json_object_get(one, "alignment"));
    tensor->alignment = alignment > 0 ? (uint64_t)alignment : 1;
    if (json_is_true(json_object_get(one, "weight"))) {
        tensor->flags |= KILN_TENSOR_WEIGHT;
    }
    if (json_is_true(json_object_get(one, "internal"))) {
        tensor->flags |= KILN_TENSOR_INTERNAL;
    }
    for (uint32_t i = 0; i < 4; i++) {
        const char *by = json_string_value(json_array_get(json_object_get(one, "bound_by"), i));
        tensor->bound_by[i] = by ? kiln_operand_by_name(by) : 0;
        tensor->bound_dims |= by ? 1u << i : 0;
    }
    KILN_TRY(read_list(r, one, "dims", 1, tensor->dims));
    KILN_TRY(read_list(r, one, "strides", 0, tensor->strides));
    if (!tensor->operand || (!info && (dtype || !tensor->format)) || tensor->n_dims < 1 ||
            tensor->n_dims > 4 || !strides_hold(tensor)) {
        return bad(r, name ? name : "an operand");
    }
    return KILN_STATUS_OK;
}

// The bytes of a file of the folder; *data stays NULL where the description names none.
static enum kiln_status read_bytes(const struct reading *r, const json_t *one, const char *key,
        uint64_t bytes, const void **data) {
    const char *name = json_string_value(json_object_get(one, key));
    if (!name) {
        return KILN_STATUS_OK;
    }
    if (strchr(name, '/')) {
        return bad(r, key);
    }
    struct kiln_map map = {0};
    char *path = kiln_asprintf("%s/%s", r->dir, name);
    enum kiln_status status =
            path ? kiln_map_open(&map, path, r->err) : kiln_err_nomem(r->err, "a capture");
    if (status == KILN_STATUS_OK && map.size != bytes) {
        status = kiln_err_set(r->err, KILN_STATUS_FILE,
                "%s: has %zu bytes; the tensor described in %s spans %" PRIu64, path, map.size,
                KILN_CAPTURE_FILE, bytes);
    }
    if (status == KILN_STATUS_OK) {
        *data = kiln_arena_copy(&r->captured->arena, map.data, bytes, 1);
        status = *data ? KILN_STATUS_OK : kiln_err_nomem(r->err, "a capture");
    }
    kiln_map_close(&map);
    kiln_free(path);
    return status;
}

static enum kiln_status read_operand(
        const struct reading *r, const json_t *one, uint32_t op, struct kiln_tensor *tensor) {
    struct kiln_captured *c = r->captured;
    KILN_TRY(read_tensor(r, one, tensor));
    size_t index = (size_t)op * KILN_SOLO_OPERANDS + tensor->operand;
    int32_t edge = number_of(one, "edge");
    c->edges[index] = edge > 0 ? (uint32_t)edge : 0;
    uint64_t bytes = kiln_solo_span(tensor);
    KILN_TRY(read_bytes(r, one, "before", bytes, &c->data[index]));
    return read_bytes(r, one, "after", bytes, &c->after[index]);
}

// ---- Ops ----------------------------------------------------------------------------------------

static enum kiln_status read_op(
        const struct reading *r, const json_t *one, uint32_t index, struct kiln_op *op) {
    const json_t *operands = json_object_get(one, "operands");
    const char *kind = json_string_value(json_object_get(one, "kind"));
    size_t count = json_array_size(operands);
    struct kiln_arena *arena = &r->captured->arena;
    if (count < 1 || count > MAX_OPERANDS) {
        return bad(r, "operands");
    }
    struct kiln_tensor *tensors = kiln_arena_calloc(arena, count, sizeof(*tensors));
    const struct kiln_tensor **pointers = kiln_arena_calloc(arena, count, sizeof(*pointers));
    if (!tensors || !pointers) {
        return kiln_err_nomem(r->err, "a capture");
    }
    *op = (struct kiln_op){.struct_size = sizeof(*op),
            .kind = kind ? kiln_op_kind(kind, strlen(kind)) : 0,
            .role = text_of(r, one, "role"),
            .operands = pointers,
            .n_operands = (uint32_t)count,
            .activation = (uint32_t)number_of(one, "activation"),
            .n_heads = number_of(one, "n_heads"),
            .n_kv_heads = number_of(one, "n_kv_heads"),
            .head_size = number_of(one, "head_size"),
            .window = number_of(one, "window"),
            .rope_style = (uint32_t)number_of(one, "rope_style"),
            .rope_dims = number_of(one, "rope_dims"),
            .rope_scale = float_of(one, "rope_scale"),
            .scale = float_of(one, "scale"),
            .softcap = float_of(one, "softcap"),
            .eps = float_of(one, "eps")};
    if (!op->kind || !op->role) {
        return bad(r, "an op");
    }
    for (size_t i = 0; i < count; i++) {
        pointers[i] = &tensors[i];
        KILN_TRY(read_operand(r, json_array_get(operands, i), index, &tensors[i]));
        for (size_t j = 0; j < i; j++) {
            if (tensors[j].operand == tensors[i].operand) {
                return bad(r, "an operand that comes twice");
            }
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status read_problem(const struct reading *r, const json_t *json) {
    struct kiln_captured *c = r->captured;
    const json_t *list = json_object_get(json, "ops");
    size_t count = json_array_size(list);
    const char *slot = text_of(r, json, "slot");
    const char *phase = json_string_value(json_object_get(json, "phase"));
    c->device = text_of(r, json, "device");
    c->plugin = text_of(r, json, "plugin");
    c->variant = text_of(r, json, "variant");
    if (number_of(json, "capture") != 1 || count < 1 || count > KILN_CAPTURE_OPS || !slot ||
            !phase || !c->device || !c->plugin || !c->variant) {
        return bad(r, "the call");
    }
    struct kiln_op *ops = kiln_arena_calloc(&c->arena, count, sizeof(*ops));
    const struct kiln_op **pointers = kiln_arena_calloc(&c->arena, count, sizeof(*pointers));
    if (!ops || !pointers) {
        return kiln_err_nomem(r->err, "a capture");
    }
    for (size_t i = 0; i < count; i++) {
        pointers[i] = &ops[i];
        KILN_TRY(read_op(r, json_array_get(list, i), (uint32_t)i, &ops[i]));
    }
    c->problem = (struct kiln_problem){.struct_size = sizeof(c->problem),
            .phase = strcmp(phase, "decode") == 0 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL,
            .slot = slot,
            .ops = pointers,
            .n_ops = (uint32_t)count,
            .layer = number_of(json, "layer"),
            .world = 1};
    return kiln_slot_check(slot, 0, r->err);
}

// Integers that kernels find rows by: they must lie within what they point into.
static int integers_hold(const struct kiln_captured *c, uint32_t op, const struct kiln_tensor *t) {
    const struct kiln_op *of = c->problem.ops[op];
    const int32_t *values = c->data[(size_t)op * KILN_SOLO_OPERANDS + t->operand];
    uint32_t into = t->operand == KILN_OPERAND_IDS        ? KILN_OPERAND_WEIGHT
                    : t->operand == KILN_OPERAND_N_TOKENS ? KILN_OPERAND_OUT
                                                          : KILN_OPERAND_K_CACHE;
    int64_t limit = INT32_MAX - 1;
    if (t->operand > KILN_OPERAND_N_PAST) {
        return 1;
    }
    for (uint32_t i = 0; i < of->n_operands; i++) {
        limit = of->operands[i]->operand == into ? of->operands[i]->dims[1] : limit;
    }
    int count = t->operand > KILN_OPERAND_POSITIONS; // may be as many as there are
    const int32_t *used = c->data[(size_t)op * KILN_SOLO_OPERANDS + KILN_OPERAND_N_TOKENS];
    for (int64_t i = 0; i < t->dims[0] && (!used || i < *used); i++) {
        if (values[i] < 0 || values[i] >= limit + count) {
            return 0;
        }
    }
    return 1;
}

// Every input has its bytes, and whoever counts rows counts no more than there are.
static enum kiln_status check_data(const struct reading *r) {
    const struct kiln_captured *c = r->captured;
    for (uint32_t op = 0; op < c->problem.n_ops; op++) {
        for (uint32_t i = 0; i < c->problem.ops[op]->n_operands; i++) {
            const struct kiln_tensor *t = c->problem.ops[op]->operands[i];
            size_t at = (size_t)op * KILN_SOLO_OPERANDS + t->operand;
            int optional = t->operand == KILN_OPERAND_OUT || c->edges[at] > 0 ||
                           (t->flags & KILN_TENSOR_INTERNAL) != 0;
            if (t->operand >= KILN_OPERAND_IDS && t->dtype != KILN_DTYPE_I32) {
                return bad(r, "a count or an index that is no i32");
            }
            if (!c->data[at] && !optional) {
                return bad(r, "an input without bytes");
            }
            if (t->operand >= KILN_OPERAND_IDS && (!c->data[at] || !integers_hold(c, op, t))) {
                return bad(r, "an index outside of what it points into");
            }
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_captured_read(
        struct kiln_captured *captured, const char *dir, struct kiln_err *err) {
    *captured = (struct kiln_captured){.device = NULL};
    const struct reading r = {.captured = captured, .dir = dir, .err = err};
    char *path = kiln_asprintf("%s/%s", dir, KILN_CAPTURE_FILE);
    char *text = NULL;
    size_t size = 0;
    json_error_t problem;
    enum kiln_status status = path ? kiln_file_read(path, MAX_JSON, &text, &size, err)
                                   : kiln_err_nomem(err, "a capture");
    if (status == KILN_STATUS_OK) {
        json_t *json = json_loadb(text, size, 0, &problem);
        status = json ? read_problem(&r, json)
                      : kiln_err_set(err, KILN_STATUS_FILE, "%s:%d: %s", path, problem.line,
                                problem.text);
        json_decref(json);
        if (status == KILN_STATUS_OK) {
            status = check_data(&r);
        }
    }
    kiln_free(text);
    kiln_free(path);
    return status;
}

// ---- Widening -----------------------------------------------------------------------------------

static int is_half(const struct kiln_tensor *t) {
    return (t->dtype == KILN_DTYPE_F16 || t->dtype == KILN_DTYPE_BF16) &&
           !(t->flags & KILN_TENSOR_WEIGHT);
}

static float widened(uint32_t dtype, const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, sizeof(half));
    if (dtype == KILN_DTYPE_F16) {
        return kiln_f16_to_f32(half);
    }
    uint32_t bits = (uint32_t)half << 16; // bf16
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// The same elements as f32, one behind the other; NULL stays NULL.
static enum kiln_status widen_bytes(struct kiln_captured *c, const struct kiln_tensor *from,
        const struct kiln_tensor *to, const void **data, struct kiln_err *err) {
    const uint8_t *bytes = *data;
    if (!bytes) {
        return KILN_STATUS_OK;
    }
    float *values = kiln_arena_calloc(&c->arena, kiln_solo_span(to), 1);
    if (!values) {
        return kiln_err_nomem(err, "a capture");
    }
    *data = values;
    for (int64_t i3 = 0; i3 < from->dims[3]; i3++) {
        for (int64_t i2 = 0; i2 < from->dims[2]; i2++) {
            for (int64_t i1 = 0; i1 < from->dims[1]; i1++) {
                const uint8_t *row = bytes + i3 * from->strides[3] + i2 * from->strides[2] +
                                     i1 * from->strides[1];
                for (int64_t i0 = 0; i0 < from->dims[0]; i0++) {
                    *values++ = widened(from->dtype, row + i0 * from->strides[0]);
                }
            }
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status widen_operand(struct kiln_captured *c, uint32_t op,
        const struct kiln_tensor *from, struct kiln_tensor *to, struct kiln_err *err) {
    size_t at = (size_t)op * KILN_SOLO_OPERANDS + from->operand;
    *to = *from;
    if (!is_half(from)) {
        return KILN_STATUS_OK;
    }
    to->dtype = KILN_DTYPE_F32;
    to->strides[0] = sizeof(float);
    for (uint32_t i = 1; i < 4; i++) {
        to->strides[i] = to->strides[i - 1] * to->dims[i - 1];
    }
    KILN_TRY(widen_bytes(c, from, to, &c->data[at], err));
    return widen_bytes(c, from, to, &c->after[at], err);
}

enum kiln_status kiln_captured_widen(
        struct kiln_captured *captured, int *changed, struct kiln_err *err) {
    struct kiln_captured *c = captured;
    uint32_t n = c->problem.n_ops;
    struct kiln_op *ops = kiln_arena_calloc(&c->arena, n, sizeof(*ops));
    const struct kiln_op **pointers = kiln_arena_calloc(&c->arena, n, sizeof(*pointers));
    *changed = 0;
    for (uint32_t op = 0; ops && pointers && op < n; op++) {
        const struct kiln_op *from = c->problem.ops[op];
        struct kiln_tensor *made = kiln_arena_calloc(&c->arena, from->n_operands, sizeof(*made));
        const struct kiln_tensor **operands =
                kiln_arena_calloc(&c->arena, from->n_operands, sizeof(*operands));
        if (!made || !operands) {
            return kiln_err_nomem(err, "a capture");
        }
        for (uint32_t i = 0; i < from->n_operands; i++) {
            *changed |= is_half(from->operands[i]);
            operands[i] = &made[i];
            KILN_TRY(widen_operand(c, op, from->operands[i], &made[i], err));
        }
        ops[op] = *from;
        ops[op].operands = operands;
        pointers[op] = &ops[op];
    }
    if (!ops || !pointers) {
        return kiln_err_nomem(err, "a capture");
    }
    c->problem.ops = pointers;
    return KILN_STATUS_OK;
}

void kiln_captured_finish(struct kiln_captured *captured) {
    kiln_arena_finish(&captured->arena);
    *captured = (struct kiln_captured){.device = NULL};
}
