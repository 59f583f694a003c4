// elementwise_gpu: checks the plugin elementwise on a GPU against float64 on the host, then times
// the shapes of a 7B model. Run by hand.
//
//   bench_elementwise_gpu ELEMENTWISE.so [check|time|all]
//
// Ends with 1 when a case is out of its bound, 4 when the device or a compilation fails.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif
#include "gpu_harness.h"

#include "../plugins/cpu/dequant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATTERN = 0xa5
};

static const struct kiln_plugin *plugin;
static int failures, cases;

static float random_float(float width) {
    return ((float)(gpu_random_bits() & 0xffff) / 32768.0F - 1) * width;
}

static float *random_floats(int64_t count, float width) {
    float *at = gpu_get((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        at[i] = random_float(width);
    }
    return at;
}

static uint64_t upload_floats(const float *from, int64_t count) {
    return gpu_copy(from, (size_t)count * sizeof(float));
}

static struct gpu_planned *plan(const char *variant, struct gpu_op *op) {
    const char *why = "";
    struct gpu_planned *planned = gpu_plan_op(gpu_find_variant(plugin, variant), op, NULL, 0, &why);
    if (planned == NULL) {
        gpu_die("%s declined: %s", variant, why);
    }
    return planned;
}

// Runs twice over a pattern; gives `bytes` from `out` in new memory.
static void *run(
        const char *name, struct gpu_op *op, uint64_t out, const void *before, size_t bytes) {
    unsigned char *first = gpu_get(bytes);
    unsigned char *second = gpu_get(bytes);
    struct gpu_planned *planned = plan(name, op);
    for (int i = 0; i < 2; i++) {
        gpu_fill(out, PATTERN, bytes);
        if (before != NULL) {
            gpu_upload(out, before, bytes);
        }
        gpu_launch(planned);
        gpu_sync();
        gpu_download(i == 0 ? first : second, out, bytes);
    }
    if (memcmp(first, second, bytes) != 0) {
        failures++;
        printf("FAILED %s: not the same twice\n", name);
    }
    gpu_planned_free(planned);
    free(second);
    return first;
}

static void verdict(const char *what, double off, int64_t rows, int64_t columns) {
    cases++;
    if (!(off <= 1)) {
        failures++;
        printf("FAILED %s, %lld rows of %lld: %.3g of the bound\n", what, (long long)rows,
                (long long)columns, off);
    }
}

static double more(double most, double off) {
    return off <= most ? most : isnan(off) ? (double)INFINITY : off;
}

static double untouched(const void *at, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        if (((const unsigned char *)at)[i] != PATTERN) {
            return (double)INFINITY;
        }
    }
    return 0;
}

static float *floats_of(const void *raw, int64_t count, int f16) {
    float *to = gpu_get((size_t)count * sizeof(float));
    const uint16_t *halves = raw;
    for (int64_t i = 0; i < count && f16; i++) {
        to[i] = cpu_f16_to_f32(halves[i]);
    }
    if (!f16) {
        memcpy(to, raw, (size_t)count * sizeof(float));
    }
    return to;
}

// ---- norm --------------------------------------------------------------------------------------
static void check_norm(int64_t rows, int64_t bound, int64_t d, int residual, float width, int f16) {
    float *x = random_floats(bound * d, width);
    float *w = random_floats(d, 2);
    float *r = random_floats(bound * d, 1);
    int32_t in_use = (int32_t)rows;
    uint64_t at[5] = {upload_floats(x, bound * d), upload_floats(w, d), upload_floats(r, bound * d),
            gpu_alloc((size_t)(bound * d) * 4), gpu_copy(&in_use, 4)};
    struct gpu_op op;
    gpu_op_begin(&op, KILN_OP_NORM, KILN_PHASE_PREFILL);
    op.op.eps = 1e-6F;
    gpu_op_f32(&op, KILN_OPERAND_IN, d, bound, at[0]);
    gpu_op_f32(&op, KILN_OPERAND_WEIGHT, d, 1, at[1]);
    if (residual) {
        gpu_op_f32(&op, KILN_OPERAND_RESIDUAL, d, bound, residual == 2 ? at[3] : at[2]);
    }
    size_t elem = f16 ? 2 : 4;
    gpu_op_add(&op, KILN_OPERAND_OUT, f16 ? KILN_DTYPE_F16 : KILN_DTYPE_F32, d, bound, 1,
            (int64_t)elem, 0, at[3]);
    gpu_op_bound(&op, at[4]);
    void *raw = run("rms", &op, at[3], residual == 2 ? r : NULL, (size_t)(bound * d) * elem);
    float *out = floats_of(raw, rows * d, f16);
    double off = residual == 2
                         ? 0
                         : untouched(raw, (size_t)(rows * d) * elem, (size_t)(bound * d) * elem);
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t c = 0; c < d; c++) {
            sum += (double)x[i * d + c] * (double)x[i * d + c];
        }
        double factor = 1 / sqrt(sum / (double)d + 1e-6);
        for (int64_t c = 0; c < d; c++) {
            double value = (double)x[i * d + c] * factor * (double)w[c];
            double add = residual ? (double)r[i * d + c] : 0;
            double bound_of = (fabs(value) * 16 + fabs(add) * 2) * 0x1p-23 + 1e-30 +
                              f16 * (fabs(value + add) * 0x1p-11 + 0x1p-25);
            off = more(off, fabs((double)out[i * d + c] - (value + add)) / bound_of);
        }
    }
    verdict("norm", off, rows, d);
    for (int i = 0; i < 5; i++) {
        gpu_free(at[i]);
    }
    free(x);
    free(w);
    free(r);
    free(raw);
    free(out);
}

// ---- activation --------------------------------------------------------------------------------
static void check_activation(int64_t rows, int64_t f, uint32_t kind, int in_place) {
    float *g = random_floats(rows * f, 12);
    float *u = random_floats(rows * f, 3);
    g[0] = 100;
    g[rows * f - 1] = -100;
    uint64_t at[3] = {upload_floats(g, rows * f), upload_floats(u, rows * f),
            gpu_alloc((size_t)(rows * f) * 4)};
    struct gpu_op op;
    gpu_op_begin(&op, KILN_OP_ACTIVATION, KILN_PHASE_PREFILL);
    op.op.activation = kind;
    gpu_op_f32(&op, KILN_OPERAND_GATE, f, rows, in_place ? at[2] : at[0]);
    gpu_op_f32(&op, KILN_OPERAND_UP, f, rows, at[1]);
    gpu_op_f32(&op, KILN_OPERAND_OUT, f, rows, at[2]);
    float *out = run("glu", &op, at[2], in_place ? g : NULL, (size_t)(rows * f) * 4);
    double off = 0;
    for (int64_t i = 0; i < rows * f; i++) {
        double x = (double)g[i];
        double inner = 0.79788456080286536 * (x + 0.044715 * x * x * x);
        double act = kind == KILN_ACTIVATION_SILU ? x / (1 + exp(-x)) : x / (1 + exp(-2 * inner));
        double value = act * (double)u[i];
        // The exponent's own rounding is multiplied by its size.
        double size = 8 + 4 * fabs(kind == KILN_ACTIVATION_SILU ? x : 4 * inner);
        off = more(off, fabs((double)out[i] - value) / (fabs(value) * size * 0x1p-23 + 1e-30));
    }
    verdict("activation", off, rows, f);
    for (int i = 0; i < 3; i++) {
        gpu_free(at[i]);
    }
    free(g);
    free(u);
    free(out);
}

// ---- embed -------------------------------------------------------------------------------------
static void check_embed(uint32_t dtype, int64_t rows, int64_t d) {
    enum {
        VOCAB = 37
    };
    const struct cpu_quant *quant = cpu_quant_find(dtype);
    d = d < quant->elems ? quant->elems : d - d % quant->elems;
    int64_t row_bytes = d / quant->elems * quant->bytes;
    unsigned char *table = gpu_get((size_t)(VOCAB * row_bytes));
    for (int64_t i = 0; i < VOCAB * row_bytes; i++) {
        table[i] = (unsigned char)(gpu_random_bits() % 0x70); // as f16 and f32: finite
    }
    int32_t *ids = gpu_get((size_t)rows * 4);
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = (int32_t)(gpu_random_bits() % VOCAB);
    }
    ids[rows - 1] = rows > 2 ? VOCAB : ids[rows - 1];
    ids[0] = rows > 2 ? -1 : ids[0];
    uint64_t at[3] = {gpu_copy(ids, (size_t)rows * 4), gpu_copy(table, (size_t)(VOCAB * row_bytes)),
            gpu_alloc((size_t)(rows * d) * 4)};
    struct gpu_op op;
    gpu_op_begin(&op, KILN_OP_EMBED, KILN_PHASE_PREFILL);
    op.op.scale = 1.5F;
    gpu_op_i32(&op, KILN_OPERAND_IDS, rows, at[0]);
    gpu_op_add(&op, KILN_OPERAND_WEIGHT, dtype, d, VOCAB, quant->elems, quant->bytes, 0, at[1]);
    gpu_op_f32(&op, KILN_OPERAND_OUT, d, rows, at[2]);
    float *out = run("gather", &op, at[2], NULL, (size_t)(rows * d) * 4);
    float *row = gpu_get((size_t)d * 4);
    double off = 0;
    for (int64_t i = 0; i < rows; i++) {
        int known = ids[i] >= 0 && ids[i] < VOCAB;
        if (known) {
            quant->dequant(table + ids[i] * row_bytes, row, d);
        }
        for (int64_t c = 0; c < d; c++) { // to the bit
            float value = out[i * d + c];
            int same = known ? value == row[c] * 1.5F : isnan(value);
            off = same ? off : (double)INFINITY;
        }
    }
    verdict(quant->name, off, rows, d);
    for (int i = 0; i < 3; i++) {
        gpu_free(at[i]);
    }
    free(table);
    free(ids);
    free(row);
    free(out);
}

// ---- argmax ------------------------------------------------------------------------------------
static void check_argmax(int64_t rows, int64_t v, int mode) {
    float *x = random_floats(rows * v, 5);
    for (int64_t i = 0; i < rows * v; i++) {
        if (mode == 1) {
            x[i] = floorf(x[i]); // many equal ones
        } else if (mode == 2 && i % 3 == 0) {
            x[i] = NAN;
        } else if (mode == 3) {
            x[i] = NAN;
        } else if (mode == 4) {
            x[i] = -INFINITY;
        }
    }
    uint64_t at[2] = {upload_floats(x, rows * v), gpu_alloc((size_t)rows * 4)};
    struct gpu_op op;
    gpu_op_begin(&op, KILN_OP_ARGMAX, KILN_PHASE_DECODE);
    gpu_op_f32(&op, KILN_OPERAND_IN, v, rows, at[0]);
    gpu_op_i32(&op, KILN_OPERAND_OUT, rows, at[1]);
    int32_t *out = run("two_step", &op, at[1], NULL, (size_t)rows * 4);
    double off = 0;
    for (int64_t i = 0; i < rows; i++) {
        int32_t best = 0;
        float largest = -INFINITY;
        for (int64_t c = 0; c < v; c++) {
            if (x[i * v + c] > largest) {
                largest = x[i * v + c];
                best = (int32_t)c;
            }
        }
        off = out[i] == best ? off : (double)INFINITY;
    }
    verdict("argmax", off, rows, v);
    gpu_free(at[0]);
    gpu_free(at[1]);
    free(x);
    free(out);
}

// ---- rope_kv -----------------------------------------------------------------------------------
struct rope {
    int64_t rows, positions;
    int32_t heads, kv_heads, head_size, dims;
    uint32_t style, cache;
    int norms;
    int in_place;
    int f16_out;   // not in place
    int32_t first; // position of row 0
};

static double head_off(const struct rope *r, const float *x, const float *norm, const float *freqs,
        int32_t position, const float *out, double unit) {
    double y[512];
    double sum = 0;
    for (int32_t i = 0; i < r->head_size; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    double factor = norm != NULL ? 1 / sqrt(sum / r->head_size + 1e-6) : 1;
    for (int32_t i = 0; i < r->head_size; i++) {
        y[i] = (double)x[i] * factor * (norm != NULL ? (double)norm[i] : 1);
    }
    double off = 0;
    for (int32_t i = 0; i < r->dims / 2; i++) {
        int32_t a = r->style == KILN_ROPE_PAIRS ? 2 * i : i;
        int32_t b = r->style == KILN_ROPE_PAIRS ? 2 * i + 1 : i + r->dims / 2;
        double angle = (double)((float)position * freqs[i]); // rounded to f32 first
        double turned[2] = {(y[a] * cos(angle) - y[b] * sin(angle)) * 1.25,
                (y[a] * sin(angle) + y[b] * cos(angle)) * 1.25};
        double size = (fabs(y[a]) + fabs(y[b])) * 1.25 * (16 * 0x1p-23 + unit) + 1e-7 * (unit > 0);
        off = more(off, fabs((double)out[a] - turned[0]) / (size + 1e-30));
        off = more(off, fabs((double)out[b] - turned[1]) / (size + 1e-30));
    }
    for (int32_t i = r->dims; i < r->head_size; i++) {
        double size = fabs(y[i]) * (16 * 0x1p-23 + unit) + 1e-7 * (unit > 0) + 1e-30;
        off = more(off, fabs((double)out[i] - y[i]) / size);
    }
    return off;
}

// The cache as f32, n values.
static float *cache_floats(uint64_t at, int64_t n, uint32_t dtype) {
    float *to = gpu_get((size_t)n * 4);
    if (dtype == KILN_DTYPE_F32) {
        gpu_download(to, at, (size_t)n * 4);
        return to;
    }
    uint16_t *halves = gpu_get((size_t)n * 2);
    gpu_download(halves, at, (size_t)n * 2);
    for (int64_t i = 0; i < n; i++) {
        to[i] = cpu_f16_to_f32(halves[i]);
    }
    free(halves);
    return to;
}

struct rope_data {
    float *q, *k, *v, *q_norm, *k_norm, *freqs;
    int32_t *positions;
    uint64_t on[10]; // q, k, v, q_norm, k_norm, freqs, positions, out, k_cache, v_cache
};

static void build_rope(struct gpu_op *op, const struct rope *r, struct rope_data *d) {
    int64_t qc = (int64_t)r->heads * r->head_size;
    int64_t kc = (int64_t)r->kv_heads * r->head_size;
    int64_t elem = r->cache == KILN_DTYPE_F32 ? 4 : 2;
    gpu_op_begin(op, KILN_OP_ROPE_KV, KILN_PHASE_PREFILL);
    op->op.n_heads = r->heads;
    op->op.n_kv_heads = r->kv_heads;
    op->op.head_size = r->head_size;
    op->op.rope_dims = r->dims;
    op->op.rope_style = r->style;
    op->op.rope_scale = 1.25F;
    op->op.eps = 1e-6F;
    gpu_op_f32(op, KILN_OPERAND_Q, qc, r->rows, r->in_place ? d->on[7] : d->on[0]);
    gpu_op_f32(op, KILN_OPERAND_K, kc, r->rows, d->on[1]);
    gpu_op_f32(op, KILN_OPERAND_V, kc, r->rows, d->on[2]);
    if (r->norms) {
        gpu_op_f32(op, KILN_OPERAND_Q_NORM, r->head_size, 1, d->on[3]);
        gpu_op_f32(op, KILN_OPERAND_K_NORM, r->head_size, 1, d->on[4]);
    }
    gpu_op_f32(op, KILN_OPERAND_ROPE_FREQS, r->dims / 2, 1, d->on[5]);
    gpu_op_i32(op, KILN_OPERAND_POSITIONS, r->rows, d->on[6]);
    gpu_op_add(op, KILN_OPERAND_OUT, r->f16_out ? KILN_DTYPE_F16 : KILN_DTYPE_F32, qc, r->rows, 1,
            r->f16_out ? 2 : 4, 0, d->on[7]);
    gpu_op_add(op, KILN_OPERAND_K_CACHE, r->cache, kc, r->positions, 1, elem, 0, d->on[8]);
    gpu_op_add(op, KILN_OPERAND_V_CACHE, r->cache, kc, r->positions, 1, elem, 0, d->on[9]);
}

static void make_rope(const struct rope *r, struct rope_data *d) {
    int64_t qc = (int64_t)r->heads * r->head_size;
    int64_t kc = (int64_t)r->kv_heads * r->head_size;
    size_t cache = (size_t)(r->positions * kc) * 4;
    d->q = random_floats(r->rows * qc, 3);
    d->k = random_floats(r->rows * kc, 3);
    d->v = random_floats(r->rows * kc, 3);
    d->q_norm = random_floats(r->head_size, 1);
    d->k_norm = random_floats(r->head_size, 1);
    d->freqs = gpu_get((size_t)(r->dims / 2) * 4);
    d->positions = gpu_get((size_t)r->rows * 4);
    for (int32_t i = 0; i < r->dims / 2; i++) {
        d->freqs[i] = (float)pow(10000.0, -2.0 * i / r->dims);
    }
    for (int64_t i = 0; i < r->rows; i++) {
        d->positions[i] = r->first + (int32_t)i;
    }
    d->on[0] = upload_floats(d->q, r->rows * qc);
    d->on[1] = upload_floats(d->k, r->rows * kc);
    d->on[2] = upload_floats(d->v, r->rows * kc);
    d->on[3] = upload_floats(d->q_norm, r->head_size);
    d->on[4] = upload_floats(d->k_norm, r->head_size);
    d->on[5] = upload_floats(d->freqs, r->dims / 2);
    d->on[6] = gpu_copy(d->positions, (size_t)r->rows * 4);
    d->on[7] = gpu_alloc((size_t)(r->rows * qc) * 4);
    d->on[8] = gpu_alloc(cache);
    d->on[9] = gpu_alloc(cache);
    gpu_fill(d->on[8], 0, cache);
    gpu_fill(d->on[9], 0, cache);
}

static void check_rope(struct rope r) {
    struct rope_data d;
    struct gpu_op op;
    int64_t qc = (int64_t)r.heads * r.head_size;
    int64_t kc = (int64_t)r.kv_heads * r.head_size;
    make_rope(&r, &d);
    build_rope(&op, &r, &d);
    void *raw = run("rope_kv", &op, d.on[7], r.in_place ? d.q : NULL,
            (size_t)(r.rows * qc) * (r.f16_out ? 2 : 4));
    float *out = floats_of(raw, r.rows * qc, r.f16_out);
    float *k = cache_floats(d.on[8], r.positions * kc, r.cache);
    float *v = cache_floats(d.on[9], r.positions * kc, r.cache);
    double unit = r.cache == KILN_DTYPE_F16 ? 0x1p-11 : 0;
    double off = 0;
    for (int64_t i = 0; i < r.rows; i++) {
        int32_t p = d.positions[i];
        for (int32_t h = 0; h < r.heads; h++) {
            int64_t at = i * qc + (int64_t)h * r.head_size;
            off = more(off, head_off(&r, d.q + at, r.norms ? d.q_norm : NULL, d.freqs, p, out + at,
                                    r.f16_out ? 0x1p-11 : 0));
        }
        for (int32_t h = 0; h < r.kv_heads && p < r.positions; h++) {
            int64_t at = i * kc + (int64_t)h * r.head_size;
            int64_t to = p * kc + (int64_t)h * r.head_size;
            off = more(off,
                    head_off(&r, d.k + at, r.norms ? d.k_norm : NULL, d.freqs, p, k + to, unit));
            for (int32_t c = 0; c < r.head_size; c++) {
                double size = fabs((double)d.v[at + c]) * unit + 1e-7 * (unit > 0) + 1e-30;
                off = more(off, fabs((double)v[to + c] - (double)d.v[at + c]) / size);
            }
        }
    }
    for (int64_t i = 0; i < r.first * kc && i < r.positions * kc; i++) { // rows before stay 0
        off = k[i] == 0 && v[i] == 0 ? off : (double)INFINITY;
    }
    verdict("rope_kv", off, r.rows, r.head_size);
    for (int i = 0; i < 10; i++) {
        gpu_free(d.on[i]);
    }
    free(d.q);
    free(d.k);
    free(d.v);
    free(d.q_norm);
    free(d.k_norm);
    free(d.freqs);
    free(d.positions);
    free(raw);
    free(out);
    free(k);
    free(v);
}

// ---- All ---------------------------------------------------------------------------------------
static void check_all(void) {
    static const int64_t widths[] = {1, 2, 3, 31, 64, 100, 640, 3584, 5000};
    static const uint32_t types[] = {KILN_DTYPE_Q4_K, KILN_DTYPE_Q6_K, KILN_DTYPE_Q5_K,
            KILN_DTYPE_Q4_0, KILN_DTYPE_Q4_1, KILN_DTYPE_Q5_0, KILN_DTYPE_Q8_0, KILN_DTYPE_F16,
            KILN_DTYPE_BF16, KILN_DTYPE_F32};
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        for (int residual = 0; residual < 3; residual++) {
            check_norm(3, 5, widths[i], residual, residual == 1 ? 1e5F : 1, 0);
            if (residual < 2) {
                check_norm(2, 4, widths[i], residual, 1, 1);
            }
        }
        check_activation(3, widths[i], KILN_ACTIVATION_SILU, (int)i % 2);
        check_activation(2, widths[i], KILN_ACTIVATION_GELU_TANH, (int)(i + 1) % 2);
        for (int mode = 0; mode < 5; mode++) {
            check_argmax(1 + (int64_t)i, widths[i] * 7, mode);
        }
    }
    check_argmax(1, 152064, 0);
    check_argmax(2, 262144, 1);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        check_embed(types[i], 1, 3584);
        check_embed(types[i], 5, 256);
        check_embed(types[i], 7, 37);
    }
    for (int i = 0; i < 16; i++) {
        check_rope((struct rope){.rows = 1 + i * 3,
                .positions = 60 + (i % 3 == 0 ? 4000 : 0),
                .heads = 1 + i % 5,
                .kv_heads = 1 + i % 2,
                .head_size = i % 4 == 0   ? 256
                             : i % 4 == 1 ? 64
                             : i % 4 == 2 ? 128
                                          : 80,
                .dims = i % 4 == 3   ? 20
                        : i % 4 == 0 ? 256
                                     : 64,
                .style = i % 2 == 0 ? KILN_ROPE_PAIRS : KILN_ROPE_HALVES,
                .cache = i % 3 == 0 ? KILN_DTYPE_F32 : KILN_DTYPE_F16,
                .norms = i / 2 % 2,
                .in_place = i / 4 % 2,
                .f16_out = i / 4 % 2 == 0 && i % 2,
                .first = i % 3 == 0 ? 3900 : 7});
    }
}

static void report(const char *what, struct gpu_op *op, const char *variant) {
    double best;
    struct gpu_planned *planned = plan(variant, op);
    double seconds = gpu_time(&planned, 1, 50, &best);
    double gbs = gpu_planned_bytes(planned) / seconds / 1e9;
    printf("%-34s %9.2f us (best %9.2f) %7.0f GB/s %5.1f %% of 4800\n", what, seconds * 1e6,
            best * 1e6, gbs, gbs / 48);
    gpu_planned_free(planned);
}

static void time_all(void) {
    static const int64_t rows[] = {1, 512, 3325};
    for (int i = 0; i < 3; i++) {
        struct gpu_op op;
        char what[64];
        int64_t s = rows[i];
        uint64_t x = gpu_alloc((size_t)(s * 18944) * 4);
        uint64_t y = gpu_alloc((size_t)(s * 18944) * 4);
        uint64_t w = gpu_alloc((size_t)3584 * 4);
        gpu_fill(x, 0, (size_t)(s * 18944) * 4);
        gpu_fill(y, 0, (size_t)(s * 18944) * 4);
        gpu_fill(w, 0, (size_t)3584 * 4);
        gpu_op_begin(&op, KILN_OP_NORM, KILN_PHASE_PREFILL);
        op.op.eps = 1e-6F;
        gpu_op_f32(&op, KILN_OPERAND_IN, 3584, s, x);
        gpu_op_f32(&op, KILN_OPERAND_WEIGHT, 3584, 1, w);
        gpu_op_f32(&op, KILN_OPERAND_OUT, 3584, s, y);
        snprintf(what, sizeof(what), "norm %lld x 3584", (long long)s);
        report(what, &op, "rms");
        gpu_op_begin(&op, KILN_OP_ACTIVATION, KILN_PHASE_PREFILL);
        op.op.activation = KILN_ACTIVATION_SILU;
        gpu_op_f32(&op, KILN_OPERAND_GATE, 18944, s, x);
        gpu_op_f32(&op, KILN_OPERAND_UP, 18944, s, y);
        gpu_op_f32(&op, KILN_OPERAND_OUT, 18944, s, x);
        snprintf(what, sizeof(what), "activation %lld x 18944", (long long)s);
        report(what, &op, "glu");
        struct rope r = {.rows = s,
                .positions = 4096,
                .heads = 28,
                .kv_heads = 4,
                .head_size = 128,
                .dims = 128,
                .style = KILN_ROPE_HALVES,
                .cache = KILN_DTYPE_F16};
        struct rope_data d;
        make_rope(&r, &d);
        build_rope(&op, &r, &d);
        snprintf(what, sizeof(what), "rope_kv %lld x (28 + 2 * 4) x 128", (long long)s);
        report(what, &op, "rope_kv");
        gpu_free(x);
        gpu_free(y);
        gpu_free(w);
    }
    struct gpu_op op;
    uint64_t logits = gpu_alloc((size_t)152064 * 4);
    gpu_fill(logits, 0, (size_t)152064 * 4);
    gpu_op_begin(&op, KILN_OP_ARGMAX, KILN_PHASE_DECODE);
    gpu_op_f32(&op, KILN_OPERAND_IN, 152064, 1, logits);
    gpu_op_i32(&op, KILN_OPERAND_OUT, 1, gpu_alloc(4));
    report("argmax 152064", &op, "two_step");
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s ELEMENTWISE.so [check|time|all]\n", argv[0]);
        return 2;
    }
    const char *what = argc > 2 ? argv[2] : "all";
    const struct kiln_device *device = gpu_open();
    gpu_print_resources(getenv("RESOURCES") != NULL);
    plugin = gpu_load_plugin(argv[1]);
    printf("%s, %s, %d SMs\n", device->name, device->target, device->sm_count);
    if (strcmp(what, "time") != 0) {
        check_all();
    }
    if (strcmp(what, "check") != 0) {
        time_all();
    }
    printf("%d cases checked, %d failed\n", cases, failures);
    return failures != 0;
}
