// op_case_attention: the reference of attention: softmax of scale * q·k over the keys that a row
// sees, times V, in float64 from the operands as they are.
//
// The bound of an element, o of weights p: with M = sum(p |v|) / sum(p)
//   2^-11 M                    where weights are rounded to f16, and 2^-25 sum(|v|) / sum(p) over
//                              those below 2^-14, f16's subnormals
//   (2^-16 + 2^-20 Q) M        for f32 sums and a fast exponential; Q: the row's largest sum of the
//                              magnitudes of a score's products: an error of a score is a relative
//                              error of its weight
//   2^-11 |o|                  where OUT is f16 (kiln_case_round)
// Behind a rope_kv in the same launch Q, and K and V of the call's own rows, are off by what that
// op's are, and by their rounding to f16. With d the most that a score is off by, and dv a value:
//   sum(p |v - o| 2 d) / sum(p) + sum(p dv) / sum(p)
// which holds while d is below 0.4: then e^d (e^d - 1) < 2 d.
// A row that sees no key is zeros, exactly.
#include "lab/op_case_impl.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

struct attention {
    const struct kiln_op_case *c;
    const struct kiln_op *op;
    float *k, *v; // (keys, KV heads * HD)
    int64_t keys, kv_cols;
    double *p, *off;  // (keys) weights, and what their scores are off by
    double *ke, *ve;  // as k and v: what they are off by; NULL: they are given
    const double *qe; // of a head; NULL: it is given
};

static float *decode_cache(
        const struct kiln_op_case *c, uint32_t op, uint32_t operand, int64_t keys) {
    const struct kiln_tensor *tensor = kiln_case_find(c, op, operand);
    const unsigned char *data = kiln_case_data(c, op, operand);
    float *to = kiln_calloc((size_t)(keys * tensor->dims[0]) + 1, sizeof(*to));
    for (int64_t i = 0; to && i < keys; i++) {
        kiln_case_decode(tensor, data + i * tensor->strides[1], to + i * tensor->dims[0]);
    }
    return to;
}

// What an op before wrote to a cache takes the place of the rows that were there.
static enum kiln_status take_rows(const struct attention *at, uint32_t operand, float *cache,
        double **errors, struct kiln_err *err) {
    const struct kiln_case_reference *ref = at->c->reference;
    const struct kiln_case_value *value = kiln_case_value(at->c, 0, operand);
    const int32_t *positions = kiln_case_data(at->c, 0, KILN_OPERAND_POSITIONS);
    if (ref->n_rows != ref->m) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "no oracle for so many rows behind rope_kv");
    }
    *errors = kiln_calloc((size_t)(at->keys * at->kv_cols) + 1, sizeof(**errors));
    if (!*errors) {
        return kiln_err_nomem(err, "a reference");
    }
    for (int64_t r = 0; r < ref->n_rows; r++) {
        int64_t key = positions[r];
        for (int64_t i = 0; key >= 0 && key < at->keys && i < at->kv_cols; i++) {
            cache[key * at->kv_cols + i] = (float)value->v[r * at->kv_cols + i];
            (*errors)[key * at->kv_cols + i] = value->e[r * at->kv_cols + i];
        }
    }
    return KILN_STATUS_OK;
}

// The most that a score is off by where Q and K are: both are made in f32 and kept in f16.
static double score_off(const struct attention *at, const double *q, int64_t element) {
    double sum = 0;
    for (int64_t i = 0; at->qe && at->ke && i < at->op->head_size; i++) {
        double k = fabs((double)at->k[element + i]), ke = at->ke[element + i];
        double qe = at->qe[i] + fabs(q[i]) * 0x1p-11;
        sum += qe * (k + ke) + fabs(q[i]) * ke;
    }
    return sum * (double)at->op->scale;
}

// Weights of keys first .. last, relative to the largest; gives their sum, and the largest sum of
// magnitudes of a finite score.
static double weigh(const struct attention *at, const double *q, const float *k, int64_t first,
        int64_t last, double *largest) {
    int64_t hd = at->op->head_size;
    double top = -HUGE_VAL, sum = 0, cap = (double)at->op->softcap;
    for (int64_t key = first; key <= last; key++) {
        const float *row = k + key * at->kv_cols;
        double dot = 0, size = 0;
        for (int64_t i = 0; i < hd; i++) {
            double product = q[i] * (double)row[i];
            dot += product;
            size += fabs(product);
        }
        dot *= (double)at->op->scale;
        at->p[key] = cap > 0 ? cap * tanh(dot / cap) : dot;
        at->off[key] = score_off(at, q, row - at->k);
        top = fmax(top, at->p[key]);
        size *= (double)at->op->scale;
        *largest = isfinite(size) ? fmax(*largest, size) : *largest;
    }
    for (int64_t key = first; key <= last; key++) {
        at->p[key] = exp(at->p[key] - top);
        sum += at->p[key];
    }
    return sum;
}

static void reckon_head(const struct attention *at, const double *q, int64_t position, int64_t head,
        double *want, double *bound) {
    const struct kiln_op *op = at->op;
    int64_t hd = op->head_size, column = head / (op->n_heads / op->n_kv_heads) * hd;
    int64_t last = position < at->keys ? position : at->keys - 1;
    int64_t first = op->window > 0 && position >= op->window ? position - op->window + 1 : 0;
    double largest = 0;
    if (last < first) {
        return; // zeros
    }
    double sum = weigh(at, q, at->k + column, first, last, &largest);
    int halves = at->c->reference->precision != KILN_PRECISION_F32;
    double term = 0x1p-16 + 0x1p-20 * largest + (halves ? 0x1p-11 : 0);
    for (int64_t key = first; key <= last; key++) {
        int64_t element = key * at->kv_cols + column;
        const float *v = at->v + element;
        double p = at->p[key], off = term * p + (halves && p < 0x1p-14 ? 0x1p-25 : 0);
        for (int64_t i = 0; i < hd; i++) {
            want[i] += p * (double)v[i];
            bound[i] += off * fabs((double)v[i]) + (at->ve ? p * at->ve[element + i] : 0);
        }
    }
    for (int64_t i = 0; i < hd; i++) {
        want[i] /= sum;
        bound[i] = bound[i] / sum + 1e-30;
    }
    for (int64_t key = first; at->qe && key <= last; key++) {
        const float *v = at->v + key * at->kv_cols + column;
        double p = at->p[key] / sum, d = at->off[key] < 0.4 ? 2 * at->off[key] : 1e30;
        for (int64_t i = 0; i < hd; i++) {
            bound[i] += p * d > 0 ? p * d * fabs((double)v[i] - want[i]) : 0;
        }
    }
}

static enum kiln_status reckon(struct attention *at, uint32_t op, const struct kiln_case_input *q,
        const struct kiln_case_value *out) {
    const struct kiln_case_reference *ref = at->c->reference;
    const int32_t *positions = kiln_case_data(at->c, op, KILN_OPERAND_POSITIONS);
    int64_t hd = at->op->head_size;
    for (int64_t r = 0; r < ref->n_rows; r++) {
        for (int64_t head = 0; head < at->op->n_heads; head++) {
            int64_t i = r * out->cols + head * hd;
            at->qe = q->e ? q->e + i : NULL;
            reckon_head(at, q->v + i, positions[ref->rows[r]], head, out->v + i, out->e + i);
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_case_attention(
        const struct kiln_op_case *c, uint32_t op, struct kiln_err *err) {
    struct kiln_case_input q;
    struct kiln_case_value *out = NULL;
    const int32_t *kv_len = kiln_case_data(c, op, KILN_OPERAND_KV_LEN);
    KILN_TRY(kiln_case_output(c, op, KILN_OPERAND_OUT, &out, err));
    KILN_TRY(kiln_case_input(c, op, KILN_OPERAND_Q, &q, err));
    struct attention at = {.c = c,
            .op = c->problem.ops[op],
            .keys = kv_len ? *kv_len : c->shape.kv_len,
            .kv_cols = kiln_case_find(c, op, KILN_OPERAND_K_CACHE)->dims[0]};
    at.k = decode_cache(c, op, KILN_OPERAND_K_CACHE, at.keys);
    at.v = decode_cache(c, op, KILN_OPERAND_V_CACHE, at.keys);
    at.p = kiln_calloc((size_t)at.keys + 1, sizeof(*at.p));
    at.off = kiln_calloc((size_t)at.keys + 1, sizeof(*at.off));
    enum kiln_status status =
            at.k && at.v && at.p && at.off ? KILN_STATUS_OK : kiln_err_nomem(err, "a reference");
    if (status == KILN_STATUS_OK && op > 0) {
        status = take_rows(&at, KILN_OPERAND_K_CACHE, at.k, &at.ke, err);
    }
    if (status == KILN_STATUS_OK && op > 0) {
        status = take_rows(&at, KILN_OPERAND_V_CACHE, at.v, &at.ve, err);
    }
    if (status == KILN_STATUS_OK) {
        status = reckon(&at, op, &q, out);
    }
    kiln_free(at.k);
    kiln_free(at.v);
    kiln_free(at.p);
    kiln_free(at.off);
    kiln_free(at.ke);
    kiln_free(at.ve);
    kiln_case_input_finish(&q);
    return status;
}
