// op_case_judge: what a call wrote against what it must be.
#include "lab/op_case_impl.h"

#include "base/mem.h"
#include "plugin/describe.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct output { // one operand under judgement
    const struct kiln_op_case *c;
    uint32_t op, operand;
    const struct kiln_tensor *tensor;
    const struct kiln_case_value *value;
    const unsigned char *got, *before; // before: NULL: bytes of 0xff
    float *row;                        // of the tensor's columns
    double largest, error;             // of all: |reference|, |error|
    struct kiln_op_verdict *verdict;
};

enum kiln_status kiln_op_case_reckon(struct kiln_op_case *c, struct kiln_err *err) {
    static enum kiln_status (*const references[])(
            const struct kiln_op_case *c, uint32_t op, struct kiln_err *err) = {
            [KILN_OP_EMBED] = kiln_case_embed,
            [KILN_OP_NORM] = kiln_case_norm,
            [KILN_OP_MATMUL] = kiln_case_matmul,
            [KILN_OP_ROPE_KV] = kiln_case_rope,
            [KILN_OP_ATTENTION] = kiln_case_attention,
            [KILN_OP_ACTIVATION] = kiln_case_activation,
            [KILN_OP_QUANTIZE] = kiln_case_copy,
            [KILN_OP_ARGMAX] = kiln_case_argmax,
    };
    for (uint32_t op = 0; op < c->problem.n_ops && !c->reference->done; op++) {
        KILN_TRY(references[c->problem.ops[op]->kind](c, op, err));
        for (uint32_t operand = 1; operand < KILN_SOLO_OPERANDS; operand++) {
            if (kiln_case_value(c, op, operand)->v) {
                kiln_case_round(c, op, operand);
            }
        }
    }
    c->reference->done = 1;
    return KILN_STATUS_OK;
}

static void complain(const struct output *out, const char *what, int64_t row) {
    struct kiln_op_verdict *verdict = out->verdict;
    if (!verdict->why[0]) {
        (void)snprintf(verdict->why, sizeof(verdict->why), "op %u %s: row %lld %s", out->op,
                kiln_operand_name(out->operand), (long long)row, what);
        verdict->op = out->op;
        verdict->operand = out->operand;
        verdict->row = row;
    }
    verdict->worst = HUGE_VAL;
}

static void note(struct output *out, double worst, int64_t row, int64_t col, double got,
        double want, double bound) {
    struct kiln_op_verdict *verdict = out->verdict;
    if (worst > verdict->worst) {
        *verdict = (struct kiln_op_verdict){.worst = worst,
                .op = out->op,
                .operand = out->operand,
                .row = row,
                .col = col,
                .got = got,
                .want = want,
                .bound = bound};
    }
}

// Where row r of the call lies in the operand: -1: nowhere.
static int64_t place_of(const struct output *out, int64_t r) {
    if (out->operand == KILN_OPERAND_OUT) {
        return r;
    }
    const int32_t *positions = kiln_case_data(out->c, out->op, KILN_OPERAND_POSITIONS);
    return positions[r] >= 0 && positions[r] < out->tensor->dims[1] ? positions[r] : -1;
}

static void read_row(const struct output *out, int64_t place, double *to) {
    const unsigned char *at = out->got + place * out->tensor->strides[1];
    if (out->tensor->dtype == KILN_DTYPE_I32) {
        int32_t number;
        memcpy(&number, at, sizeof(number));
        *to = number;
        return;
    }
    kiln_case_decode(out->tensor, at, out->row);
    for (int64_t i = 0; i < out->tensor->dims[0]; i++) {
        to[i] = (double)out->row[i];
    }
}

// Whether a row of f16 or f32 surely holds finite numbers alone, eight bytes at a time: an exponent
// of all ones, plus one, carries into the place of the sign. Other types and odd widths: no.
static int is_finite_row(const struct output *out, int64_t place) {
    const struct kiln_tensor *tensor = out->tensor;
    int is_f16 = tensor->dtype == KILN_DTYPE_F16;
    uint64_t ones = is_f16 ? UINT64_C(0x7c007c007c007c00) : UINT64_C(0x7f8000007f800000);
    uint64_t one = is_f16 ? UINT64_C(0x0400040004000400) : UINT64_C(0x0080000000800000);
    uint64_t signs = is_f16 ? UINT64_C(0x8000800080008000) : UINT64_C(0x8000000080000000);
    const unsigned char *at = out->got + place * tensor->strides[1];
    int64_t bytes = tensor->dims[0] * (is_f16 ? 2 : 4);
    uint64_t odd = 0;
    if ((!is_f16 && tensor->dtype != KILN_DTYPE_F32) || bytes % 8 != 0) {
        return 0;
    }
    for (int64_t i = 0; i < bytes; i += 8) {
        uint64_t bits;
        memcpy(&bits, at + i, sizeof(bits));
        odd |= (bits & ones) + one;
    }
    return (odd & signs) == 0;
}

static int same_kind(double a, double b) {
    return (isnan(a) && isnan(b)) || a == b;
}

static enum kiln_status judge_row(
        struct output *out, int64_t index, int64_t row, const double *got, struct kiln_err *err) {
    int64_t cols = out->tensor->dims[0];
    int copies = out->c->problem.ops[out->op]->kind == KILN_OP_QUANTIZE;
    for (int64_t i = 0; i < cols; i++) {
        double want = out->value->v[index * cols + i], bound = out->value->e[index * cols + i];
        if (!isfinite(want) && copies) {
            note(out, same_kind(got[i], want) ? 0 : HUGE_VAL, row, i, got[i], want, 0);
            continue;
        }
        if (!isfinite(want) || isnan(bound) || bound < 0) {
            return kiln_err_set(err, KILN_STATUS_CHECK,
                    "the reference of op %u, row %lld, column %lld is %g within %g: the oracle is "
                    "at fault",
                    out->op, (long long)row, (long long)i, want, bound);
        }
        if (isinf(got[i]) && fabs(want) + bound > (double)FLT_MAX) {
            continue; // more than f32 may hold
        }
        double error = fabs(got[i] - want);
        note(out,
                !isfinite(error)  ? HUGE_VAL
                : error == 0      ? 0
                : bound == 0      ? HUGE_VAL
                : isfinite(bound) ? error / bound
                                  : 0,
                row, i, got[i], want, bound);
        out->largest = fmax(out->largest, fabs(want));
        out->error = isfinite(error) ? fmax(out->error, error) : HUGE_VAL;
    }
    return KILN_STATUS_OK;
}

// Integers and their factors to the bit, where the numbers that they stand for are known exactly.
static int judge_blocks(struct output *out, int64_t index, int64_t row) {
    const struct kiln_case_format *format = kiln_case_format_find(out->tensor->format);
    const unsigned char *at = out->got + row * out->tensor->strides[1];
    int64_t cols = out->tensor->dims[0];
    int exact = out->c->problem.ops[out->op]->kind == KILN_OP_QUANTIZE && out->op == 0;
    for (int64_t b = 0; b < cols / 32; b++) {
        struct kiln_q8 got, want;
        float x[32];
        format->get(at, cols, b, &got);
        if (!format->sum_fits(at, cols, b)) {
            complain(out, "has a block whose sum is not that of its integers", row);
        }
        for (int i = 0; i < 32; i++) {
            x[i] = (float)out->value->v[index * cols + b * 32 + i];
        }
        kiln_q8_quantize(x, &want);
        if (!exact) {
            continue;
        }
        if (!same_kind((double)got.scale, (double)want.scale)) {
            note(out, HUGE_VAL, row, b * 32, (double)got.scale, (double)want.scale, 0);
            complain(out, "has a block with another factor", row);
        }
        for (int i = 0; i < 32; i++) {
            note(out, got.q[i] == want.q[i] ? 0 : HUGE_VAL, row, b * 32 + i, got.q[i], want.q[i],
                    0);
        }
    }
    return exact;
}

// A row of f16: its factor is a power of two, 1 unless the row needs another.
static void judge_scale(struct output *out, int64_t row) {
    int exponent;
    double largest = 0;
    float scale = kiln_case_scale(out->tensor, out->got + row * out->tensor->strides[1]);
    for (int64_t i = 0; i < out->tensor->dims[0]; i++) {
        largest = fmax(largest, fabs((double)out->row[i]));
    }
    if (!(scale > 0) || frexpf(scale, &exponent) != 0.5F) {
        complain(out, "has a factor that is no power of two", row);
    } else if (scale != 1 && isfinite(largest) && largest >= 0x1p-6 * 1.001 && largest < 0x1p15) {
        complain(out, "has a factor that it does not need", row);
    }
}

// Rows that the call must leave alone.
static void judge_untouched(struct output *out, const unsigned char *written) {
    size_t stride = (size_t)out->tensor->strides[1];
    for (int64_t row = 0; row < out->tensor->dims[1]; row++) {
        const unsigned char *at = out->got + (size_t)row * stride;
        int differs = 0;
        for (size_t i = 0; i < stride && !written[row]; i++) {
            differs |= at[i] != (out->before ? out->before[(size_t)row * stride + i] : 0xff);
        }
        if (differs) {
            complain(out, "is not of the call's and was written", row);
        }
    }
}

static enum kiln_status judge_rows(
        struct output *out, unsigned char *written, double *got, struct kiln_err *err) {
    const struct kiln_case_reference *ref = out->c->reference;
    int64_t next = 0;
    for (int64_t r = 0; r < ref->m; r++) {
        int64_t place = place_of(out, r);
        int known = next < ref->n_rows && ref->rows[next] == r;
        int64_t index = next;
        next += known;
        if (place < 0) {
            continue;
        }
        written[place] = 1;
        int rows = out->tensor->dtype == KILN_DTYPE_BLOCK && !kiln_precision_is_q8(out->tensor);
        if (known && kiln_precision_is_q8(out->tensor) && judge_blocks(out, index, place)) {
            continue;
        }
        if (!known && is_finite_row(out, place)) {
            continue; // most rows of a large problem
        }
        read_row(out, place, got);
        if (rows) {
            judge_scale(out, place);
        }
        if (known) {
            KILN_TRY(judge_row(out, index, place, got, err));
            continue;
        }
        for (int64_t i = 0; i < out->tensor->dims[0]; i++) {
            if (!isfinite(got[i]) && out->c->problem.ops[out->op]->kind != KILN_OP_QUANTIZE) {
                note(out, HUGE_VAL, place, i, got[i], 0, HUGE_VAL);
            }
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status judge_output(struct output *out, struct kiln_err *err) {
    unsigned char *written = kiln_calloc((size_t)out->tensor->dims[1], 1);
    double *got = kiln_calloc((size_t)out->tensor->dims[0], sizeof(*got));
    out->row = kiln_calloc((size_t)out->tensor->dims[0], sizeof(*out->row));
    enum kiln_status status = written && got && out->row ? judge_rows(out, written, got, err)
                                                         : kiln_err_nomem(err, "a verdict");
    if (status == KILN_STATUS_OK) {
        judge_untouched(out, written);
    }
    kiln_free(written);
    kiln_free(got);
    kiln_free(out->row);
    return status;
}

enum kiln_status kiln_op_case_judge_bytes(struct kiln_op_case *c, const void *const *outputs,
        struct kiln_op_verdict *verdict, struct kiln_err *err) {
    double normalized = 0;
    KILN_TRY(kiln_op_case_reckon(c, err));
    *verdict = (struct kiln_op_verdict){.worst = -1};
    for (uint32_t op = 0; op < c->problem.n_ops; op++) {
        for (uint32_t operand = 1; operand < KILN_SOLO_OPERANDS; operand++) {
            if (!kiln_op_case_is_output(c, op, operand)) {
                continue;
            }
            size_t at = (size_t)op * KILN_SOLO_OPERANDS + operand;
            struct output out = {.c = c,
                    .op = op,
                    .operand = operand,
                    .tensor = kiln_case_find(c, op, operand),
                    .value = kiln_case_value(c, op, operand),
                    .got = outputs[at],
                    .before = c->data[at],
                    .verdict = verdict};
            if (!out.got || !out.value->v) {
                return kiln_err_set(
                        err, KILN_STATUS_CHECK, "op %u: output %u is missing", op, operand);
            }
            KILN_TRY(judge_output(&out, err));
            double size = out.error / (out.largest > 0 ? out.largest : 1);
            normalized = size > normalized ? size : normalized;
        }
    }
    verdict->normalized = normalized;
    verdict->passed = verdict->worst >= 0 && verdict->worst <= 1 && !verdict->why[0];
    return KILN_STATUS_OK;
}

enum kiln_status kiln_op_case_judge(struct kiln_op_case *c, struct kiln_solo *solo,
        struct kiln_op_verdict *verdict, struct kiln_err *err) {
    enum {
        N = KILN_CASE_OPS * KILN_SOLO_OPERANDS
    };
    const void *outputs[N] = {NULL};
    for (uint32_t op = 0; op < c->problem.n_ops; op++) {
        for (uint32_t operand = 1; operand < KILN_SOLO_OPERANDS; operand++) {
            size_t at = (size_t)op * KILN_SOLO_OPERANDS + operand;
            if (!kiln_op_case_is_output(c, op, operand)) {
                continue;
            }
            void **read = &c->reference->read[at];
            *read = *read ? *read : kiln_alloc(kiln_solo_span(kiln_case_find(c, op, operand)));
            if (!*read) {
                return kiln_err_nomem(err, "a verdict");
            }
            KILN_TRY(kiln_solo_read(solo, op, operand, *read, err));
            outputs[at] = *read;
        }
    }
    return kiln_op_case_judge_bytes(c, outputs, verdict, err);
}
