// op_case_matmul: the reference of a product: OUT = IN times WEIGHT transposed, + BIAS, + RESIDUAL,
// in float64 from the operands as they are, and what an element may be off by.
//
// The bound of an element, by how the variant keeps its operands. Sizes are sums over the columns
// of magnitudes; |w| and |a| are those of the operands.
//   f32  sums in f32, in any order, of quants shifted by up to 160 steps: 2^-18 (sum |a w| +
//        sum |a| times the row's largest |w|)
//   f16  both operands to 11 bits: 2^-10 sum |a w|, and what f16's subnormals lose
//   i16  f32's, and half a step of 1/32512 of the largest of 32 activations: 2^-15.9 of it, times
//        their sum |w|
//   q8   the products are of integers and known: 1e-5 of the magnitudes of all terms, minimums by
//        themselves; nothing where all factors are powers of two (KILN_FILL_EXACT)
#include "lab/op_case_impl.h"

#include "base/mem.h"
#include "model/dtype.h"
#include "model/quant.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 32 // columns that share a factor
};

struct product {
    const struct kiln_op_case *c;
    enum kiln_precision precision;
    const struct kiln_tensor *weight;
    int64_t k;
    const double *a, *e; // (n_rows, K); e: NULL, or what a is off by
    double *peaks;       // (n_rows, K / 32 rounded up): the largest |a| of each 32
    double *sum_a;       // (n_rows): sum |a|
    // Of the weight row at hand:
    float *w, *part;    // (K); part: without the minimum
    double *block_w;    // (K / 32): sum |w|
    double sum_w, most; // sum |w|, the largest |w|
};

// The bytes of a row without its minimums: what is left is the difference.
static void without_minimum(const struct kiln_tensor *weight, unsigned char *row) {
    const struct kiln_dtype_info *info = kiln_dtype_info(weight->dtype);
    int has = weight->dtype == KILN_DTYPE_Q4_1 || weight->dtype == KILN_DTYPE_Q4_K ||
              weight->dtype == KILN_DTYPE_Q5_K;
    for (int64_t b = 0; has && b < weight->dims[0] / info->elems; b++) {
        memset(row + b * info->bytes + 2, 0, 2);
    }
}

static int read_weight(struct product *p, const unsigned char *data, int64_t n) {
    size_t bytes = (size_t)p->weight->strides[1], k = (size_t)p->k;
    const unsigned char *row = data + n * p->weight->strides[1];
    unsigned char *copy = kiln_alloc(bytes);
    if (!copy) {
        return -1;
    }
    memcpy(copy, row, bytes);
    without_minimum(p->weight, copy);
    int bad = kiln_dequant_row(p->weight->dtype, row, p->w, k) |
              kiln_dequant_row(p->weight->dtype, copy, p->part, k);
    kiln_free(copy);
    p->sum_w = p->most = 0;
    memset(p->block_w, 0, (k + BLOCK - 1) / BLOCK * sizeof(double));
    for (size_t i = 0; i < k; i++) {
        double size = fabs((double)p->w[i]);
        p->block_w[i / BLOCK] += size;
        p->sum_w += size;
        p->most = fmax(p->most, size);
    }
    return bad;
}

struct sums {
    double value, size, carried; // of a w, of |a w|, of e |w|
};

static struct sums multiply(const struct product *p, const double *a, const double *e) {
    struct sums s = {0, 0, 0};
    for (int64_t i = 0; i < p->k; i++) {
        double product = a[i] * (double)p->w[i];
        s.value += product;
        s.size += fabs(product);
    }
    for (int64_t i = 0; e && i < p->k; i++) {
        s.carried += e[i] * fabs((double)p->w[i]);
    }
    return s;
}

// The magnitudes of the terms that an integer kernel adds: of the quants' products, and of each
// block's minimum times its sum.
static double integer_size(const struct product *p, const double *a) {
    double size = 0;
    for (int64_t i = 0; i < p->k; i++) {
        size += fabs(a[i] * (double)p->part[i]);
    }
    for (int64_t b = 0; b < p->k; b += BLOCK) {
        double minimum = 0;
        for (int64_t i = b; i < b + BLOCK && i < p->k; i++) {
            minimum += a[i] * ((double)p->w[i] - (double)p->part[i]);
        }
        size += fabs(minimum);
    }
    return size;
}

static double bound_of(const struct product *p, int64_t row, const struct sums *s) {
    const double *peaks = p->peaks + row * ((p->k + BLOCK - 1) / BLOCK);
    double plain = 0x1p-18 * (s->size + p->sum_a[row] * p->most), steps = 0, peak = 0;
    switch (p->precision) {
    case KILN_PRECISION_F32:
        return plain;
    case KILN_PRECISION_I16:
        for (int64_t b = 0; b < (p->k + BLOCK - 1) / BLOCK; b++) {
            steps += peaks[b] * p->block_w[b];
        }
        return plain + (kiln_dtype_info(p->weight->dtype)->elems > 1 ? steps * 0x1.1p-16 : 0);
    case KILN_PRECISION_Q8:
        return p->c->fill == KILN_FILL_EXACT
                       ? 0
                       : 1e-5 * (integer_size(p, p->a + row * p->k) + fabs(s->value)) + 1e-30;
    case KILN_PRECISION_F16:
        break;
    }
    for (int64_t b = 0; b < (p->k + BLOCK - 1) / BLOCK; b++) {
        peak = fmax(peak, peaks[b]);
    }
    return s->size * (0x1p-10 + 0x1p-20) + p->sum_a[row] * 0x1p-25 +
           p->sum_w * fmin(0x1p-25, peak) * fmax(1, peak / 16384);
}

// Activations as an int8 kernel that takes f32 makes them.
static void quantize_rows(double *a, int64_t rows, int64_t k) {
    for (int64_t b = 0; b < rows * k / BLOCK; b++) {
        float x[BLOCK];
        struct kiln_q8 q8;
        for (int i = 0; i < BLOCK; i++) {
            x[i] = (float)a[b * BLOCK + i];
        }
        kiln_q8_quantize(x, &q8);
        for (int i = 0; i < BLOCK; i++) {
            a[b * BLOCK + i] = (double)q8.scale * q8.q[i];
        }
    }
}

static int begin(struct product *p, int64_t rows) {
    size_t blocks = (size_t)((p->k + BLOCK - 1) / BLOCK);
    p->peaks = kiln_calloc((size_t)rows * blocks, sizeof(double));
    p->sum_a = kiln_calloc((size_t)rows, sizeof(double));
    p->w = kiln_calloc((size_t)p->k, sizeof(float));
    p->part = kiln_calloc((size_t)p->k, sizeof(float));
    p->block_w = kiln_calloc(blocks, sizeof(double));
    if (!p->peaks || !p->sum_a || !p->w || !p->part || !p->block_w) {
        return -1;
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < p->k; i++) {
            double size = fabs(p->a[r * p->k + i]);
            double *peak = &p->peaks[(size_t)r * blocks + (size_t)i / BLOCK];
            *peak = fmax(*peak, size);
            p->sum_a[r] += size;
        }
    }
    return 0;
}

static void end(struct product *p) {
    kiln_free(p->peaks);
    kiln_free(p->sum_a);
    kiln_free(p->w);
    kiln_free(p->part);
    kiln_free(p->block_w);
}

struct added { // BIAS and RESIDUAL
    const float *bias;
    struct kiln_case_input residual;
};

static enum kiln_status reckon(struct product *p, uint32_t op, const struct added *added,
        const struct kiln_case_value *out, struct kiln_err *err) {
    int64_t rows = p->c->reference->n_rows, n = out->cols;
    const unsigned char *data = kiln_case_data(p->c, op, KILN_OPERAND_WEIGHT);
    if (begin(p, rows) != 0) {
        return kiln_err_nomem(err, "a reference");
    }
    for (int64_t c = 0; c < n; c++) {
        if (read_weight(p, data, c) != 0) {
            return kiln_err_nomem(err, "a reference's weights");
        }
        for (int64_t r = 0; r < rows; r++) {
            struct sums s = multiply(p, p->a + r * p->k, p->e ? p->e + r * p->k : NULL);
            double bias = added->bias ? (double)added->bias[c] : 0;
            double residual = added->residual.v ? added->residual.v[r * n + c] : 0;
            double bound = bound_of(p, r, &s);
            if (bound > 0 || p->precision != KILN_PRECISION_Q8) {
                bound += (fabs(s.value) + fabs(bias) + fabs(residual) + 1e-30) * 0x1p-21;
            }
            out->v[r * n + c] = s.value + bias + residual;
            out->e[r * n + c] = bound + s.carried * (1 + 0x1p-9);
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_case_matmul(const struct kiln_op_case *c, uint32_t op, struct kiln_err *err) {
    struct kiln_case_input in = {.v = NULL};
    struct added added = {.bias = kiln_case_data(c, op, KILN_OPERAND_BIAS)};
    struct kiln_case_value *out = NULL;
    KILN_TRY(kiln_case_output(c, op, KILN_OPERAND_OUT, &out, err));
    enum kiln_status status = kiln_case_input(c, op, KILN_OPERAND_IN, &in, err);
    if (status == KILN_STATUS_OK && kiln_case_find(c, op, KILN_OPERAND_RESIDUAL)) {
        status = kiln_case_input(c, op, KILN_OPERAND_RESIDUAL, &added.residual, err);
    }
    if (status == KILN_STATUS_OK) {
        const struct kiln_tensor *tensor = kiln_case_find(c, op, KILN_OPERAND_IN);
        int blocks = kiln_precision_is_q8(tensor);
        struct product p = {.c = c,
                .precision = blocks ? KILN_PRECISION_Q8 : c->reference->precision,
                .weight = kiln_case_find(c, op, KILN_OPERAND_WEIGHT),
                .k = in.cols,
                .a = in.v,
                .e = in.e};
        if (p.precision == KILN_PRECISION_Q8 && !blocks && in.owned) {
            quantize_rows(in.owned, c->reference->n_rows, in.cols);
        }
        status = reckon(&p, op, &added, out, err);
        end(&p);
    }
    kiln_case_input_finish(&in);
    kiln_case_input_finish(&added.residual);
    return status;
}
