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
    double *p; // (keys)
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
        const float *v = at->v + key * at->kv_cols + column;
        double p = at->p[key], off = term * p + (halves && p < 0x1p-14 ? 0x1p-25 : 0);
        for (int64_t i = 0; i < hd; i++) {
            want[i] += p * (double)v[i];
            bound[i] += off * fabs((double)v[i]);
        }
    }
    for (int64_t i = 0; i < hd; i++) {
        want[i] /= sum;
        bound[i] = bound[i] / sum + 1e-30;
    }
}

static enum kiln_status reckon(
        struct attention *at, uint32_t op, const double *q, const struct kiln_case_value *out) {
    const struct kiln_case_reference *ref = at->c->reference;
    const int32_t *positions = kiln_case_data(at->c, op, KILN_OPERAND_POSITIONS);
    int64_t hd = at->op->head_size;
    for (int64_t r = 0; r < ref->n_rows; r++) {
        for (int64_t head = 0; head < at->op->n_heads; head++) {
            int64_t i = r * out->cols + head * hd;
            reckon_head(at, q + i, positions[ref->rows[r]], head, out->v + i, out->e + i);
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
    enum kiln_status status =
            at.k && at.v && at.p ? reckon(&at, op, q.v, out) : kiln_err_nomem(err, "a reference");
    kiln_free(at.k);
    kiln_free(at.v);
    kiln_free(at.p);
    kiln_case_input_finish(&q);
    return status;
}
