// op_case_rows: the references of ops that take a row at a time: norm, activation, embed, argmax,
// rope_kv, quantize. float64 from the operands as they are; bounds are those of f32 arithmetic.
#include "lab/op_case_impl.h"

#include "base/mem.h"
#include "model/dtype.h"
#include "model/quant.h"

#include <math.h>
#include <string.h>

static const double tiny = 1e-30; // absolute: below it f32 may flush
static const double ulp = 0x1p-23;

// ---- Inputs and outputs -------------------------------------------------------------------------
// The op before that wrote the edge which the operand is; NULL: it is host data.
static const struct kiln_case_value *written_before(
        const struct kiln_op_case *c, uint32_t op, uint32_t operand) {
    uint32_t edge = c->edges[(size_t)op * KILN_SOLO_OPERANDS + operand];
    for (uint32_t i = 0; edge > 0 && i < op; i++) {
        const struct kiln_case_value *value = kiln_case_value(c, i, KILN_OPERAND_OUT);
        if (c->edges[(size_t)i * KILN_SOLO_OPERANDS + KILN_OPERAND_OUT] == edge && value->v) {
            return value;
        }
    }
    return NULL;
}

enum kiln_status kiln_case_input(const struct kiln_op_case *c, uint32_t op, uint32_t operand,
        struct kiln_case_input *input, struct kiln_err *err) {
    const struct kiln_tensor *tensor = kiln_case_find(c, op, operand);
    const struct kiln_case_value *before = written_before(c, op, operand);
    const unsigned char *data = kiln_case_data(c, op, operand);
    const struct kiln_case_reference *ref = c->reference;
    *input = (struct kiln_case_input){.v = NULL};
    if (before) {
        *input = (struct kiln_case_input){.cols = before->cols, .v = before->v, .e = before->e};
        return KILN_STATUS_OK;
    }
    if (!tensor || !data) {
        return kiln_err_set(err, KILN_STATUS_CHECK, "op %u: operand %u has no data", op, operand);
    }
    int64_t cols = tensor->dims[0];
    float *row = kiln_calloc((size_t)cols, sizeof(*row));
    input->owned = kiln_calloc((size_t)(ref->n_rows * cols), sizeof(double));
    if (!row || !input->owned) {
        kiln_free(row);
        return kiln_err_nomem(err, "a reference");
    }
    for (int64_t r = 0; r < ref->n_rows; r++) {
        kiln_case_decode(tensor, data + ref->rows[r] * tensor->strides[1], row);
        for (int64_t i = 0; i < cols; i++) {
            input->owned[r * cols + i] = (double)row[i];
        }
    }
    kiln_free(row);
    input->cols = cols;
    input->v = input->owned;
    return KILN_STATUS_OK;
}

void kiln_case_input_finish(struct kiln_case_input *input) {
    kiln_free(input->owned);
    *input = (struct kiln_case_input){.v = NULL};
}

enum kiln_status kiln_case_output(const struct kiln_op_case *c, uint32_t op, uint32_t operand,
        struct kiln_case_value **value, struct kiln_err *err) {
    const struct kiln_tensor *tensor = kiln_case_find(c, op, operand);
    struct kiln_case_value *at = kiln_case_value(c, op, operand);
    if (!tensor) {
        return kiln_err_set(err, KILN_STATUS_CHECK, "op %u: operand %u is missing", op, operand);
    }
    at->cols = tensor->dims[0];
    size_t n = (size_t)(c->reference->n_rows * at->cols);
    at->v = kiln_calloc(n, sizeof(double));
    at->e = kiln_calloc(n, sizeof(double));
    *value = at;
    return at->v && at->e ? KILN_STATUS_OK : kiln_err_nomem(err, "a reference");
}

// Half a step of the block's scale; the scale itself is off by as much as its largest element.
static void round_blocks(const struct kiln_case_value *value, int64_t elements) {
    for (int64_t b = 0; b < elements; b += 32) {
        double peak = 0;
        for (int64_t i = b; i < b + 32; i++) {
            peak = fmax(peak, fabs(value->v[i]) + value->e[i]);
        }
        for (int64_t i = b; i < b + 32; i++) {
            value->e[i] += peak / 254 * (1 + 0x1p-10) + 0x1p-100;
        }
    }
}

// A row's largest magnitude is at least 2^-6 as f16 holds it, and its finest steps are 2^-24.
static void round_rows(const struct kiln_case_value *value, int64_t rows) {
    for (int64_t r = 0; r < rows; r++) {
        const double *v = value->v + r * value->cols;
        double *e = value->e + r * value->cols, peak = 0;
        for (int64_t i = 0; i < value->cols; i++) {
            peak = fmax(peak, fabs(v[i]) + e[i]);
        }
        for (int64_t i = 0; i < value->cols; i++) {
            e[i] += fabs(v[i]) * 0x1p-11 + peak * 0x1p-19 + 0x1p-140;
        }
    }
}

void kiln_case_round(const struct kiln_op_case *c, uint32_t op, uint32_t operand) {
    const struct kiln_tensor *tensor = kiln_case_find(c, op, operand);
    const struct kiln_case_value *value = kiln_case_value(c, op, operand);
    int64_t n = c->reference->n_rows * value->cols;
    if (kiln_precision_is_q8(tensor)) {
        round_blocks(value, n);
    } else if (tensor->dtype == KILN_DTYPE_BLOCK) {
        round_rows(value, c->reference->n_rows);
    }
    for (int64_t i = 0; i < n; i++) {
        double size = fabs(value->v[i]);
        value->e[i] += tensor->dtype == KILN_DTYPE_F16    ? size * 0x1p-11 + 0x1p-25
                       : tensor->dtype == KILN_DTYPE_BF16 ? size * 0x1p-8
                                                          : 0;
    }
}

// ---- norm ---------------------------------------------------------------------------------------
static void norm_row(const double *x, const double *e, const float *weight, double eps,
        int64_t cols, double *v, double *bound) {
    double sum = 0;
    for (int64_t i = 0; i < cols; i++) {
        sum += x[i] * x[i];
    }
    double factor = 1 / sqrt(sum / (double)cols + eps);
    for (int64_t i = 0; i < cols; i++) {
        double w = weight ? (double)weight[i] : 1;
        v[i] = x[i] * factor * w;
        bound[i] = fabs(v[i]) * 16 * ulp + (e ? 2 * e[i] * factor * fabs(w) : 0) + tiny;
    }
}

enum kiln_status kiln_case_norm(const struct kiln_op_case *c, uint32_t op, struct kiln_err *err) {
    struct kiln_case_input in, residual = {.v = NULL};
    struct kiln_case_value *out = NULL;
    const float *weight = kiln_case_data(c, op, KILN_OPERAND_WEIGHT);
    KILN_TRY(kiln_case_output(c, op, KILN_OPERAND_OUT, &out, err));
    KILN_TRY(kiln_case_input(c, op, KILN_OPERAND_IN, &in, err));
    enum kiln_status status = KILN_STATUS_OK;
    if (kiln_case_find(c, op, KILN_OPERAND_RESIDUAL)) {
        status = kiln_case_input(c, op, KILN_OPERAND_RESIDUAL, &residual, err);
    }
    for (int64_t r = 0; status == KILN_STATUS_OK && r < c->reference->n_rows; r++) {
        int64_t at = r * out->cols;
        norm_row(in.v + at, in.e ? in.e + at : NULL, weight, (double)c->problem.ops[op]->eps,
                out->cols, out->v + at, out->e + at);
        for (int64_t i = at; residual.v && i < at + out->cols; i++) {
            out->v[i] += residual.v[i];
            out->e[i] += fabs(residual.v[i]) * 2 * ulp;
        }
    }
    kiln_case_input_finish(&in);
    kiln_case_input_finish(&residual);
    return status;
}

// ---- activation ---------------------------------------------------------------------------------
// act(x), the bound of its f32 arithmetic, and the most that its slope is.
static double act(uint32_t kind, double x, double *bound) {
    int silu = kind == KILN_ACTIVATION_SILU;
    double inner = 0.79788456080286536 * (x + 0.044715 * x * x * x);
    double value = silu ? x / (1 + exp(-x)) : x / (1 + exp(-2 * inner));
    // The exponent's own rounding is multiplied by its size.
    *bound = fabs(value) * (8 + 4 * fabs(silu ? x : 4 * inner)) * ulp + tiny;
    return value;
}

enum kiln_status kiln_case_activation(
        const struct kiln_op_case *c, uint32_t op, struct kiln_err *err) {
    static const double slope = 1.13; // at most, of silu and gelu
    struct kiln_case_input gate, up = {.v = NULL};
    struct kiln_case_value *out = NULL;
    KILN_TRY(kiln_case_output(c, op, KILN_OPERAND_OUT, &out, err));
    KILN_TRY(kiln_case_input(c, op, KILN_OPERAND_GATE, &gate, err));
    enum kiln_status status = kiln_case_input(c, op, KILN_OPERAND_UP, &up, err);
    int64_t n = c->reference->n_rows * out->cols;
    for (int64_t i = 0; status == KILN_STATUS_OK && i < n; i++) {
        double bound, eg = gate.e ? gate.e[i] : 0, eu = up.e ? up.e[i] : 0;
        double value = act(c->problem.ops[op]->activation, gate.v[i], &bound);
        out->v[i] = value * up.v[i];
        out->e[i] = bound * fabs(up.v[i]) + fabs(out->v[i]) * 2 * ulp + tiny +
                    slope * eg * (fabs(up.v[i]) + eu) + fabs(value) * eu;
    }
    kiln_case_input_finish(&gate);
    kiln_case_input_finish(&up);
    return status;
}

// ---- embed, argmax, quantize --------------------------------------------------------------------
enum kiln_status kiln_case_embed(const struct kiln_op_case *c, uint32_t op, struct kiln_err *err) {
    const struct kiln_tensor *weight = kiln_case_find(c, op, KILN_OPERAND_WEIGHT);
    const unsigned char *data = kiln_case_data(c, op, KILN_OPERAND_WEIGHT);
    const int32_t *ids = kiln_case_data(c, op, KILN_OPERAND_IDS);
    struct kiln_case_value *out = NULL;
    KILN_TRY(kiln_case_output(c, op, KILN_OPERAND_OUT, &out, err));
    float *row = kiln_calloc((size_t)out->cols, sizeof(*row));
    if (!row) {
        return kiln_err_nomem(err, "a reference");
    }
    for (int64_t r = 0; r < c->reference->n_rows; r++) {
        const unsigned char *at = data + ids[c->reference->rows[r]] * weight->strides[1];
        if (kiln_dequant_row(weight->dtype, at, row, (size_t)out->cols) != 0) {
            kiln_free(row);
            return kiln_err_set(err, KILN_STATUS_CHECK, "no oracle for the table's type");
        }
        for (int64_t i = 0; i < out->cols; i++) {
            double value = (double)row[i] * (double)c->problem.ops[op]->scale;
            out->v[r * out->cols + i] = value;
            out->e[r * out->cols + i] = fabs(value) * ulp + 0x1p-149;
        }
    }
    kiln_free(row);
    return KILN_STATUS_OK;
}

enum kiln_status kiln_case_argmax(const struct kiln_op_case *c, uint32_t op, struct kiln_err *err) {
    struct kiln_case_input in;
    struct kiln_case_value *out = NULL;
    KILN_TRY(kiln_case_output(c, op, KILN_OPERAND_OUT, &out, err));
    KILN_TRY(kiln_case_input(c, op, KILN_OPERAND_IN, &in, err));
    for (int64_t r = 0; r < c->reference->n_rows; r++) {
        const double *x = in.v + r * in.cols;
        int64_t best = 0;
        double largest = -HUGE_VAL; // NaN is never the largest
        for (int64_t i = 0; i < in.cols; i++) {
            if (x[i] > largest) {
                largest = x[i];
                best = i;
            }
        }
        out->v[r] = isfinite(largest) ? (double)best : -1;
    }
    kiln_case_input_finish(&in);
    return KILN_STATUS_OK;
}

enum kiln_status kiln_case_copy(const struct kiln_op_case *c, uint32_t op, struct kiln_err *err) {
    struct kiln_case_input in;
    struct kiln_case_value *out = NULL;
    KILN_TRY(kiln_case_output(c, op, KILN_OPERAND_OUT, &out, err));
    KILN_TRY(kiln_case_input(c, op, KILN_OPERAND_IN, &in, err));
    size_t n = (size_t)(c->reference->n_rows * out->cols);
    memcpy(out->v, in.v, n * sizeof(double));
    if (in.e) {
        memcpy(out->e, in.e, n * sizeof(double));
    }
    kiln_case_input_finish(&in);
    return KILN_STATUS_OK;
}

// ---- rope_kv ------------------------------------------------------------------------------------
struct turn {
    const struct kiln_op *op;
    const float *freqs;
    double normed[512], off[512]; // a head after its norm
};

static void turn_head(struct turn *t, const double *x, const float *norm, int32_t position,
        double *v, double *e) {
    const struct kiln_op *op = t->op;
    int32_t half = op->rope_dims / 2;
    double scale = (double)op->rope_scale;
    if (norm) {
        norm_row(x, NULL, norm, (double)op->eps, op->head_size, t->normed, t->off);
    } else {
        memcpy(t->normed, x, (size_t)op->head_size * sizeof(double));
    }
    for (int32_t i = 0; i < half; i++) {
        int pairs = op->rope_style == KILN_ROPE_PAIRS;
        int32_t a = pairs ? 2 * i : i, b = pairs ? 2 * i + 1 : i + half;
        double angle = (double)((float)position * t->freqs[i]); // rounded to f32 first
        double x0 = t->normed[a], x1 = t->normed[b];
        v[a] = (x0 * cos(angle) - x1 * sin(angle)) * scale;
        v[b] = (x0 * sin(angle) + x1 * cos(angle)) * scale;
        e[a] = e[b] = (fabs(x0) + fabs(x1)) * scale * 16 * ulp + tiny;
    }
    for (int32_t i = op->rope_dims; i < op->head_size; i++) {
        v[i] = t->normed[i];
        e[i] = norm ? fabs(v[i]) * 16 * ulp + tiny : 0;
    }
}

static enum kiln_status turn_rows(const struct kiln_op_case *c, uint32_t op, uint32_t operand,
        uint32_t norm, uint32_t to, int heads, struct kiln_err *err) {
    struct kiln_case_input in;
    struct kiln_case_value *out = NULL;
    const int32_t *positions = kiln_case_data(c, op, KILN_OPERAND_POSITIONS);
    struct turn *t = kiln_calloc(1, sizeof(*t));
    if (!t) {
        return kiln_err_nomem(err, "a reference");
    }
    t->op = c->problem.ops[op];
    t->freqs = kiln_case_data(c, op, KILN_OPERAND_ROPE_FREQS);
    enum kiln_status status = kiln_case_output(c, op, to, &out, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_case_input(c, op, operand, &in, err);
    }
    for (int64_t r = 0; status == KILN_STATUS_OK && r < c->reference->n_rows; r++) {
        for (int head = 0; head < heads; head++) {
            int64_t at = r * in.cols + (int64_t)head * t->op->head_size;
            turn_head(t, in.v + at, kiln_case_data(c, op, norm), positions[c->reference->rows[r]],
                    out->v + at, out->e + at);
        }
    }
    if (status == KILN_STATUS_OK) {
        kiln_case_input_finish(&in);
    }
    kiln_free(t);
    return status;
}

enum kiln_status kiln_case_rope(const struct kiln_op_case *c, uint32_t op, struct kiln_err *err) {
    const struct kiln_op *rope = c->problem.ops[op];
    struct kiln_case_input v;
    struct kiln_case_value *cache = NULL;
    if (rope->head_size > 512) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "no oracle for heads of more than 512 columns");
    }
    KILN_TRY(turn_rows(
            c, op, KILN_OPERAND_Q, KILN_OPERAND_Q_NORM, KILN_OPERAND_OUT, rope->n_heads, err));
    KILN_TRY(turn_rows(c, op, KILN_OPERAND_K, KILN_OPERAND_K_NORM, KILN_OPERAND_K_CACHE,
            rope->n_kv_heads, err));
    KILN_TRY(kiln_case_output(c, op, KILN_OPERAND_V_CACHE, &cache, err));
    KILN_TRY(kiln_case_input(c, op, KILN_OPERAND_V, &v, err));
    memcpy(cache->v, v.v, (size_t)(c->reference->n_rows * v.cols) * sizeof(double));
    kiln_case_input_finish(&v);
    return KILN_STATUS_OK;
}
