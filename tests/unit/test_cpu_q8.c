// cpu_q8: the cpu plugin's exact_q8 and its edge format, bit for bit against the arithmetic that
// plugins/cpu/q8.h defines, written out here once more; and against f64 within what 8 bits cost.
// The variant q8, whose integers are the same, against the same reference within what f32 sums
// cost.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_exec.h"

#include <math.h>

static const struct kiln_plugin *plugin;

enum {
    COLUMNS = 32, // of a block
    GUARD = 0x5a,
};

struct block { // q8_32
    float scale;
    int32_t sum;
    int8_t q[COLUMNS];
};

// 32 columns of a weight row as integers: value = a * s[i / 16] * w[i] + b * m.
struct integers {
    float a, b;
    int m, s[2], w[COLUMNS];
};

static void *new_bytes(size_t size) {
    void *bytes = kiln_alloc(size);
    assert_non_null(bytes);
    return bytes;
}

// ---- The reference ------------------------------------------------------------------------------

static float half_at(const unsigned char *at) {
    int bits = at[0] | at[1] << 8;
    float size = bits >> 10 & 31 ? ldexpf((float)(1024 | (bits & 1023)), (bits >> 10 & 31) - 25)
                                 : ldexpf((float)(bits & 1023), -24);
    return bits & 0x8000 ? -size : size;
}

static void read_small(
        const struct exec_type *type, const unsigned char *at, struct integers *out) {
    int high = type->dtype == KILN_DTYPE_Q5_0 ? 4 : 0;
    const unsigned char *qs = at + type->bytes - 16;
    *out = (struct integers){.a = half_at(at), .s = {1, 1}};
    for (int i = 0; i < COLUMNS; i++) {
        int nibble = i < 16 ? qs[i] % 16 : qs[i - 16] / 16;
        if (type->dtype == KILN_DTYPE_Q8_0) {
            out->w[i] = at[2 + i] < 128 ? at[2 + i] : at[2 + i] - 256;
        } else if (high) {
            out->w[i] = nibble + (at[2 + i / 8] >> i % 8) % 2 * 16 - 16;
        } else {
            out->w[i] = type->dtype == KILN_DTYPE_Q4_0 ? nibble - 8 : nibble;
        }
    }
    if (type->dtype == KILN_DTYPE_Q4_1) {
        out->b = half_at(at + 2);
        out->m = 1;
    }
}

static void read_q6_K(const unsigned char *at, int group, struct integers *out) {
    *out = (struct integers){.a = half_at(at + 208)};
    for (int i = 0; i < COLUMNS; i++) {
        int value = 32 * group + i;
        int l = value % 32, part = value / 32 % 4, half = value / 128;
        int low = at[64 * half + 32 * (part % 2) + l] >> (part < 2 ? 0 : 4);
        int high = at[128 + 32 * half + l] >> 2 * part;
        out->w[i] = low % 16 + high % 4 * 16 - 32;
        int scale = at[192 + value / 16];
        out->s[i / 16] = scale < 128 ? scale : scale - 256;
    }
}

static void read_qk(
        const struct exec_type *type, const unsigned char *at, int group, struct integers *out) {
    const unsigned char *scales = at + 4;
    int fifth = type->dtype == KILN_DTYPE_Q5_K;
    const unsigned char *qs = at + (fifth ? 48 : 16);
    int scale = scales[group] % 64, min = scales[(group + 4) % 12] % 64;
    if (group >= 4) {
        scale = scales[group + 4] % 16 + scales[group - 4] / 64 * 16;
        min = scales[group + 4] / 16 + scales[group] / 64 * 16;
    }
    *out = (struct integers){
            .a = half_at(at), .b = -half_at(at + 2), .m = min, .s = {scale, scale}};
    for (int i = 0; i < COLUMNS; i++) {
        int byte = qs[32 * (group / 2) + i];
        out->w[i] = group % 2 ? byte / 16 : byte % 16;
        out->w[i] += fifth ? (at[16 + i] >> group) % 2 * 16 : 0;
    }
}

static void read_block(const struct exec_type *type, const unsigned char *row, int64_t block,
        struct integers *out) {
    if (type->elems == COLUMNS) {
        read_small(type, row + block * type->bytes, out);
        return;
    }
    const unsigned char *at = row + block / 8 * type->bytes;
    if (type->dtype == KILN_DTYPE_Q6_K) {
        read_q6_K(at, (int)(block % 8), out);
    } else {
        read_qk(type, at, (int)(block % 8), out);
    }
}

static float dot_block(const struct integers *w, const struct block *x) {
    int64_t half[2] = {0, 0}, sum = 0;
    for (int i = 0; i < COLUMNS; i++) {
        half[i / 16] += w->w[i] * x->q[i];
        sum += x->q[i];
    }
    volatile float a = w->a * x->scale; // volatile: no product may be fused with the addition
    volatile float b = w->b * x->scale;
    volatile float product = a * (float)(w->s[0] * half[0] + w->s[1] * half[1]);
    volatile float minimum = b * (float)(w->m * sum);
    return product + minimum;
}

static float dot_row(
        const struct exec_type *type, const unsigned char *row, const struct block *x, int64_t k) {
    float total = 0;
    for (int64_t first = 0; first < k / COLUMNS; first += 8) {
        float t[8] = {0};
        for (int64_t i = 0; i < 8 && first + i < k / COLUMNS; i++) {
            struct integers w;
            read_block(type, row, first + i, &w);
            t[i] = dot_block(&w, &x[first + i]);
        }
        float chunk = ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]));
        total = first == 0 ? chunk : total + chunk;
    }
    return total;
}

static void quantize_block(const float *x, struct block *out) {
    double a = 0;
    int finite = 1;
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < COLUMNS; i++) {
        finite = finite && isfinite(x[i]);
        a = fabs((double)x[i]) > a ? fabs((double)x[i]) : a;
    }
    if (!finite || a < 0x1p-100) {
        out->scale = finite ? 0 : NAN;
        return;
    }
    out->scale = (float)a / 127;
    float inverse = 127 / (float)a;
    for (int i = 0; i < COLUMNS; i++) {
        volatile float scaled = x[i] * inverse;
        out->q[i] = (int8_t)lrint((double)scaled);
        out->sum += out->q[i];
    }
}

// ---- Quantize -----------------------------------------------------------------------------------

static void run_quantize(const float *x, int64_t stride, int64_t k, int32_t rows, int64_t bound,
        struct block *out, uint32_t features) {
    struct exec_op op = exec_op(KILN_OP_QUANTIZE, KILN_PHASE_PREFILL);
    op.variant = "q8_32";
    exec_add(&op, KILN_OPERAND_IN, KILN_DTYPE_F32, k, bound, 1, 4, stride * 4, x);
    exec_add(&op, KILN_OPERAND_OUT, KILN_DTYPE_BLOCK, k, bound, COLUMNS, sizeof(struct block), 0,
            out);
    op.tensors[1].format = "q8_32";
    exec_bound(&op, &rows);
    exec_call(plugin, &op, "quantize", (struct exec_setup){features, 2});
}

static void check_quantized(const float *x, int64_t stride, int64_t k, int32_t rows) {
    int64_t blocks = k / COLUMNS;
    size_t bytes = (size_t)((rows + 2) * blocks) * sizeof(struct block);
    struct block *out = new_bytes(bytes), guard;
    memset(&guard, GUARD, sizeof(guard));
    for (int mode = 0; mode < 2; mode++) {
        memset(out, GUARD, bytes);
        run_quantize(x, stride, k, rows, rows + 2, out, mode ? exec_features() : 0);
        for (int64_t i = 0; i < (rows + 2) * blocks; i++) {
            struct block want = guard; // rows behind those in use are left alone
            if (i < rows * blocks) {
                quantize_block(x + i / blocks * stride + i % blocks * COLUMNS, &want);
            }
            if (isnan(want.scale)) {
                assert_true(isnan(out[i].scale));
                out[i].scale = want.scale;
            }
            assert_memory_equal(&out[i], &want, sizeof(want));
        }
    }
    kiln_free(out);
}

static void cpu_q8_quantizes_as_defined(void **state) {
    (void)state;
    enum {
        K = 96,
        ROWS = 37
    };
    static float x[(ROWS + 2) * (K + 3)];
    uint32_t seed = 5;
    for (int i = 0; i < ROWS * (K + 3); i++) {
        x[i] = ldexpf(exec_uniform(&seed), (int)(exec_random(&seed) >> 8) % 40 - 20);
    }
    for (int i = 0; i < COLUMNS; i++) {
        x[i] = (float)i - 0.5F; // ties: the inverse is 127 / 127 once the largest is 127
        x[K + 3 + i] = ldexpf(exec_uniform(&seed), -101);
        x[2 * (K + 3) + i] = ldexpf(exec_uniform(&seed), -140);
        x[3 * (K + 3) + i] = ldexpf(exec_uniform(&seed), 127);
        x[4 * (K + 3) + i] = i % 2 ? -0.0F : 0;
    }
    x[31] = 127;
    x[5 * (K + 3) + 7] = NAN;
    x[6 * (K + 3) + 40] = -INFINITY;
    check_quantized(x, K + 3, K, ROWS);
}

// ---- Matmul -------------------------------------------------------------------------------------

struct product { // rows of OUT and RESIDUAL have a gap of two floats
    const struct exec_type *type;
    const char *variant;
    int64_t s, n, k, bound;
    unsigned char *weight;
    float *x, *bias, *residual, *out;
    struct block *in; // (bound, k / 32)
};

static void quantize_rows(const struct product *p) {
    memset(p->in, 0xff, (size_t)(p->bound * p->k / COLUMNS) * sizeof(struct block));
    for (int64_t i = 0; i < p->s * p->k / COLUMNS; i++) {
        quantize_block(p->x + i * COLUMNS, &p->in[i]);
    }
}

static struct product product_new(
        const struct exec_type *type, int64_t s, int64_t n, int64_t k, int64_t bound) {
    struct product p = {
            .type = type, .variant = "exact_q8", .s = s, .n = n, .k = k, .bound = bound};
    uint32_t seed = (uint32_t)(3 + s + 17 * n + 1013 * k);
    size_t blocks = (size_t)(n * k / type->elems);
    p.weight = new_bytes(blocks * (size_t)type->bytes);
    exec_fill(type, p.weight, blocks, &seed);
    p.x = new_bytes((size_t)(bound * k) * sizeof(float));
    p.in = new_bytes((size_t)(bound * k / COLUMNS) * sizeof(struct block));
    p.bias = new_bytes((size_t)n * sizeof(float));
    p.residual = new_bytes((size_t)(bound * (n + 2)) * sizeof(float));
    p.out = new_bytes((size_t)(bound * (n + 2)) * sizeof(float));
    for (int64_t i = 0; i < s * k; i++) {
        p.x[i] = exec_uniform(&seed);
    }
    for (int64_t i = 0; i < n; i++) {
        p.bias[i] = exec_uniform(&seed);
    }
    for (int64_t i = 0; i < bound * (n + 2); i++) {
        p.residual[i] = exec_uniform(&seed);
    }
    quantize_rows(&p);
    return p;
}

static void product_finish(struct product *p) {
    kiln_free(p->weight);
    kiln_free(p->x);
    kiln_free(p->in);
    kiln_free(p->bias);
    kiln_free(p->residual);
    kiln_free(p->out);
}

static void product_op(struct product *p, uint32_t phase, int extras, struct exec_op *op) {
    *op = exec_op(KILN_OP_MATMUL, phase);
    op->variant = p->variant;
    exec_add(op, KILN_OPERAND_IN, KILN_DTYPE_BLOCK, p->k, p->bound, COLUMNS, sizeof(struct block),
            0, p->in);
    op->tensors[0].format = "q8_32";
    exec_add(op, KILN_OPERAND_WEIGHT, p->type->dtype, p->k, p->n, p->type->elems, p->type->bytes, 0,
            p->weight);
    exec_add(op, KILN_OPERAND_OUT, KILN_DTYPE_F32, p->n, p->bound, 1, 4, (p->n + 2) * 4, p->out);
    if (extras) {
        exec_f32(op, KILN_OPERAND_BIAS, p->n, 1, p->bias);
        exec_add(op, KILN_OPERAND_RESIDUAL, KILN_DTYPE_F32, p->n, p->bound, 1, 4, (p->n + 2) * 4,
                p->residual);
    }
}

static void product_run(struct product *p, uint32_t phase, int extras, struct exec_setup setup) {
    int32_t in_use = (int32_t)p->s;
    struct exec_op op;
    memset(p->out, GUARD, (size_t)(p->bound * (p->n + 2)) * sizeof(float));
    product_op(p, phase, extras, &op);
    exec_bound(&op, &in_use);
    exec_call(plugin, &op, "matmul", setup);
}

static void product_check(const struct product *p, int extras) {
    float guard;
    memset(&guard, GUARD, sizeof(guard));
    int64_t row_bytes = p->k / p->type->elems * p->type->bytes;
    for (int64_t i = 0; i < p->bound * (p->n + 2); i++) {
        int64_t s = i / (p->n + 2), n = i % (p->n + 2);
        float want = guard;
        if (s < p->s && n < p->n) {
            want = dot_row(p->type, p->weight + n * row_bytes, p->in + s * (p->k / COLUMNS), p->k);
            want = extras ? want + p->bias[n] + p->residual[i] : want;
        }
        if (memcmp(&want, &p->out[i], sizeof(want)) != 0) {
            fail_msg("%s s %d n %d k %d: [%d][%d] is %.9g, not %.9g", p->type->name, (int)p->s,
                    (int)p->n, (int)p->k, (int)s, (int)n, (double)p->out[i], (double)want);
        }
    }
}

static void run_all(const struct exec_type *type, int64_t s, int64_t n, int64_t k, int64_t bound) {
    struct product p = product_new(type, s, n, k, bound);
    for (int i = 0; i < 8; i++) {
        uint32_t phase = i % 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL;
        product_run(&p, phase, i / 4, (struct exec_setup){i / 2 % 2 ? exec_features() : 0, 2});
        product_check(&p, i / 4);
    }
    product_finish(&p);
}

static void cpu_q8_matmul_gives_the_defined_bits(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {
            {1, 1, 256}, {2, 3, 512}, {3, 17, 2048}, {9, 33, 256}, {19, 130, 768}};
    for (int t = 3; t < EXEC_TYPES; t++) { // the block types
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            run_all(&exec_types[t], shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][0] + 3);
        }
        if (exec_types[t].elems == COLUMNS) {
            run_all(&exec_types[t], 4, 33, 32, 4);
            run_all(&exec_types[t], 7, 3, 32 * 19, 64);
        }
    }
}

// The largest products there are: w -128 (and scale -128), q ± 127.
static void cpu_q8_extreme_integers_do_not_saturate(void **state) {
    (void)state;
    for (int t = 3; t < EXEC_TYPES; t++) {
        for (int fill = 0; fill < 256; fill += 51) {
            struct product p = product_new(&exec_types[t], 4, 3, 256, 4);
            size_t bytes = (size_t)(3 * 256 / p.type->elems * p.type->bytes);
            for (size_t i = 0; i < bytes; i++) {
                p.weight[i] = (unsigned char)(fill == 0 ? 0x80 : fill);
            }
            for (size_t b = 0; b < bytes / (size_t)p.type->bytes; b++) {
                for (int i = 0; i < 2 && p.type->scales[i] >= 0; i++) {
                    memcpy(p.weight + b * (size_t)p.type->bytes + p.type->scales[i], "\x00\x3c", 2);
                }
            }
            for (int64_t i = 0; i < 4 * 256; i++) {
                p.x[i] = i / 256 == 0 ? 1.0F : i / 256 == 1 ? -1.0F : i % 2 ? 1.0F : -1.0F;
            }
            quantize_rows(&p);
            for (int mode = 0; mode < 4; mode++) {
                product_run(&p, mode % 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL, 0,
                        (struct exec_setup){mode / 2 ? exec_features() : 0, 1});
                product_check(&p, 0);
            }
            product_finish(&p);
        }
    }
}

static void cpu_q8_threads_and_bounds_change_no_bit(void **state) {
    (void)state;
    static const int64_t bounds[] = {67, 128, 512};
    static const uint32_t threads[] = {1, 2, 7};
    for (int i = 0; i < 9; i++) {
        struct product p = product_new(&exec_types[7], 67, 150, 512, bounds[i % 3]);
        product_run(&p, i % 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL, 1,
                (struct exec_setup){exec_features(), threads[i / 3]});
        product_check(&p, 1);
        product_finish(&p);
    }
}

// The whole way, x in f32 to OUT, against f64: every product is off by at most half a step of q.
static void check_against_f64(struct product *p, const float *dense) {
    for (int64_t i = 0; i < p->s * p->n; i++) {
        int64_t s = i / p->n, n = i % p->n;
        double want = 0, bound = 1e-6;
        for (int64_t k = 0; k < p->k; k++) {
            double w = (double)dense[n * p->k + k];
            want += w * (double)p->x[s * p->k + k];
            bound += fabs(w) * (0.51 * (double)p->in[(s * p->k + k) / COLUMNS].scale +
                                       4e-6 * fabs((double)p->x[s * p->k + k]));
        }
        double got = (double)p->out[s * (p->n + 2) + n];
        assert_true(isfinite(got) && fabs(got - want) <= bound);
    }
}

static float *dense_weights(const struct product *p) {
    static const int32_t ids[] = {0, 1, 2, 3};
    float *dense = new_bytes((size_t)(p->n * p->k) * sizeof(float));
    struct exec_op op = exec_op(KILN_OP_EMBED, KILN_PHASE_PREFILL);
    op.op.scale = 1;
    exec_i32(&op, KILN_OPERAND_IDS, p->n, ids);
    exec_add(&op, KILN_OPERAND_WEIGHT, p->type->dtype, p->k, p->n, p->type->elems, p->type->bytes,
            0, p->weight);
    exec_f32(&op, KILN_OPERAND_OUT, p->k, p->n, dense);
    exec_call(plugin, &op, "embed", (struct exec_setup){0, 1});
    return dense;
}

// Sums of the activations that leave f16, and a row of zeros.
static void cpu_q8_large_and_zero_activations_stay_finite(void **state) {
    (void)state;
    static const float values[] = {2047, 2048, -2048, 100000, 0};
    for (int t = 3; t < EXEC_TYPES; t++) {
        for (int minimum = 0; minimum < 3; minimum++) { // as it falls, 0, 1
            struct product p = product_new(&exec_types[t], 5, 4, 256, 5);
            for (int64_t b = 0; minimum && b < 4 * 256 / p.type->elems; b++) {
                if (p.type->scales[1] >= 0) {
                    memcpy(p.weight + b * p.type->bytes + p.type->scales[1],
                            minimum == 1 ? "\x00\x00" : "\x00\x3c", 2);
                }
            }
            for (int64_t i = 0; i < 5 * 256; i++) {
                p.x[i] = values[i / 256];
            }
            quantize_rows(&p);
            float *dense = dense_weights(&p);
            for (int mode = 0; mode < 4; mode++) {
                uint32_t features = mode / 2 ? exec_features() : 0;
                run_quantize(p.x, 256, 256, 5, 5, p.in, features);
                product_run(&p, mode % 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL, 0,
                        (struct exec_setup){features, 1});
                product_check(&p, 0);
                check_against_f64(&p, dense);
                for (int n = 0; n < 4; n++) {
                    assert_true(p.out[4 * 6 + n] == 0);
                }
            }
            kiln_free(dense);
            product_finish(&p);
        }
    }
}

static void cpu_q8_a_row_that_is_not_finite_shows(void **state) {
    (void)state;
    struct product p = product_new(&exec_types[4], 3, 4, 64, 3);
    p.x[64 + 40] = INFINITY;
    quantize_rows(&p);
    product_run(&p, KILN_PHASE_PREFILL, 0, (struct exec_setup){exec_features(), 1});
    for (int n = 0; n < 4; n++) {
        assert_true(isfinite(p.out[n]) && isnan(p.out[6 + n]) && isfinite(p.out[12 + n]));
    }
    product_finish(&p);
}

// ---- The variant q8 -----------------------------------------------------------------------------

// Σ |a scale| Σ (|w| + z) |q| + |b scale sum|: what f32 sums may err by a few parts in 2^24 of.
static double magnitude(
        const struct exec_type *type, const unsigned char *row, const struct block *x, int64_t k) {
    int zero = type->dtype == KILN_DTYPE_Q4_0   ? 8
               : type->dtype == KILN_DTYPE_Q5_0 ? 16
               : type->dtype == KILN_DTYPE_Q6_K ? 32
                                                : 0;
    double total = 0;
    for (int64_t b = 0; b < k / COLUMNS; b++) {
        struct integers w;
        read_block(type, row, b, &w);
        double scale = (double)x[b].scale;
        for (int i = 0; i < COLUMNS; i++) {
            total +=
                    fabs((double)w.a * scale * w.s[i / 16]) * (abs(w.w[i]) + zero) * abs(x[b].q[i]);
        }
        total += fabs((double)w.b * scale * w.m * x[b].sum);
    }
    return total;
}

static void product_check_near(const struct product *p, int extras) {
    float guard;
    memset(&guard, GUARD, sizeof(guard));
    int64_t row_bytes = p->k / p->type->elems * p->type->bytes;
    for (int64_t i = 0; i < p->bound * (p->n + 2); i++) {
        int64_t s = i / (p->n + 2), n = i % (p->n + 2);
        if (s >= p->s || n >= p->n) {
            assert_memory_equal(&guard, &p->out[i], sizeof(guard));
            continue;
        }
        const unsigned char *row = p->weight + n * row_bytes;
        const struct block *x = p->in + s * (p->k / COLUMNS);
        double want = (double)dot_row(p->type, row, x, p->k),
               bound = magnitude(p->type, row, x, p->k);
        if (extras) {
            want += (double)p->bias[n] + (double)p->residual[i];
            bound += fabs((double)p->bias[n]) + fabs((double)p->residual[i]);
        }
        if (!(fabs((double)p->out[i] - want) <= 1e-6 * bound)) {
            fail_msg("%s s %d n %d k %d: [%d][%d] is %.9g, not %.9g (of %.9g)", p->type->name,
                    (int)p->s, (int)p->n, (int)p->k, (int)s, (int)n, (double)p->out[i], want,
                    bound);
        }
    }
}

// q8 needs AVX2.
static void need_avx2(void) {
    if (exec_features() == 0) {
        skip();
    }
}

static void run_q8(const struct exec_type *type, int64_t s, int64_t n, int64_t k, int64_t bound) {
    struct product p = product_new(type, s, n, k, bound);
    p.variant = "q8";
    for (int i = 0; i < 4; i++) {
        product_run(&p, i % 2 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL, i / 2,
                (struct exec_setup){exec_features(), 2});
        product_check_near(&p, i / 2);
    }
    product_finish(&p);
}

static void cpu_q8_fast_is_near_the_defined_bits(void **state) {
    (void)state;
    need_avx2();
    static const int64_t shapes[][3] = {{1, 1, 256}, {2, 3, 512}, {3, 17, 2048}, {4, 64, 256},
            {9, 33, 256}, {19, 130, 768}, {250, 20, 256}};
    for (int t = 3; t < EXEC_TYPES; t++) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            run_q8(&exec_types[t], shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][0] + 3);
        }
        if (exec_types[t].elems == COLUMNS) {
            run_q8(&exec_types[t], 4, 33, 32, 4);
            run_q8(&exec_types[t], 7, 3, 32 * 19, 64);
        }
    }
}

static void cpu_q8_fast_extreme_integers_do_not_saturate(void **state) {
    (void)state;
    need_avx2();
    for (int t = 3; t < EXEC_TYPES; t++) {
        for (int fill = 0; fill < 256; fill += 51) {
            struct product p = product_new(&exec_types[t], 5, 3, 256, 5);
            p.variant = "q8";
            memset(p.weight, fill == 0 ? 0x80 : fill,
                    (size_t)(3 * 256 / p.type->elems * p.type->bytes));
            for (int b = 0; b < 3 * 256 / p.type->elems; b++) {
                for (int i = 0; i < 2 && p.type->scales[i] >= 0; i++) {
                    memcpy(p.weight + b * p.type->bytes + p.type->scales[i], "\x00\x3c", 2);
                }
            }
            for (int64_t i = 0; i < 5 * 256; i++) {
                p.x[i] = i / 256 == 0 ? 1.0F : i / 256 == 1 ? -1.0F : i % 2 ? 1.0F : -1.0F;
            }
            quantize_rows(&p);
            for (uint32_t mode = 0; mode < 2; mode++) {
                product_run(&p, mode ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL, 0,
                        (struct exec_setup){exec_features(), 1});
                product_check_near(&p, 0);
            }
            product_finish(&p);
        }
    }
}

static void cpu_q8_fast_threads_and_bounds_change_no_bit(void **state) {
    (void)state;
    need_avx2();
    enum {
        S = 67,
        N = 150
    };
    static const int64_t bounds[] = {S, 128, 512};
    static const uint32_t threads[] = {1, 2, 7};
    for (int type = 3; type < EXEC_TYPES; type += 4) {
        for (int phase = 0; phase < 2; phase++) {
            static float first[S * (N + 2)];
            for (int i = 0; i < 9; i++) {
                struct product p = product_new(&exec_types[type], S, N, 512, bounds[i % 3]);
                p.variant = "q8";
                product_run(&p, phase ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL, 0,
                        (struct exec_setup){exec_features(), threads[i / 3]});
                if (i == 0) {
                    memcpy(first, p.out, sizeof(first));
                }
                assert_memory_equal(first, p.out, sizeof(first));
                product_finish(&p);
            }
        }
    }
}

static void cpu_q8_fast_a_row_that_is_not_finite_shows(void **state) {
    (void)state;
    need_avx2();
    for (uint32_t phase = 0; phase < 2; phase++) {
        struct product p = product_new(&exec_types[4], 3, 4, 64, 3);
        p.variant = "q8";
        p.x[64 + 40] = INFINITY;
        quantize_rows(&p);
        product_run(&p, phase ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL, 0,
                (struct exec_setup){exec_features(), 1});
        for (int n = 0; n < 4; n++) {
            assert_true(isfinite(p.out[n]) && isnan(p.out[6 + n]) && isfinite(p.out[12 + n]));
        }
        product_finish(&p);
    }
}

static void cpu_q8_fast_is_declined_without_avx2(void **state) {
    (void)state;
    need_avx2();
    struct product p = product_new(&exec_types[7], 2, 4, 256, 2);
    p.variant = "q8";
    struct exec_op op;
    product_op(&p, KILN_PHASE_PREFILL, 0, &op);
    struct exec_plan plan =
            exec_make(plugin, &op, "matmul.q4_K.prefill", (struct exec_setup){0, 2});
    assert_int_equal(plan.result, KILN_RESULT_DECLINED);
    assert_non_null(strstr(plan.text, "AVX2"));
    plan = exec_make(plugin, &op, "matmul.q4_K.prefill", (struct exec_setup){exec_features(), 2});
    assert_int_equal(plan.result, KILN_RESULT_OK);
    assert_string_equal(plan.kernel, "matmul_i8_q4_K_prefill_avx2");
    assert_string_equal(plan.sum_order, "q8:matmul:prefill:avx2:l1");
    product_finish(&p);
}

static void cpu_q8_plans_or_declines_with_reasons(void **state) {
    (void)state;
    struct product p = product_new(&exec_types[7], 2, 4, 256, 2);
    struct exec_setup setup = {0, 2};
    struct exec_op op;
    product_op(&p, KILN_PHASE_PREFILL, 0, &op);
    struct exec_plan plan = exec_make(plugin, &op, "matmul.q4_K.prefill", setup);
    assert_int_equal(plan.result, KILN_RESULT_OK);
    assert_string_equal(plan.kernel, "matmul_q8_q4_K_prefill_generic");
    assert_string_equal(plan.sum_order, "exact_q8:matmul:k256");
    assert_true(plan.launch.bytes_read == 2 * 8 * 40 + 4 * 144);
    op.tensors[0].format = "q8_test";
    plan = exec_make(plugin, &op, "matmul.q4_K.prefill", setup);
    assert_int_equal(plan.result, KILN_RESULT_DECLINED);
    assert_non_null(strstr(plan.text, "IN: q8_test"));
    assert_non_null(strstr(plan.text, "only q8_32"));
    static const uint32_t plain[] = {KILN_DTYPE_F32, KILN_DTYPE_F16, KILN_DTYPE_BF16};
    for (int i = 0; i < 3; i++) {
        op.tensors[1].dtype = plain[i];
        plan = exec_make(plugin, &op, "matmul.f16.prefill", setup);
        assert_int_equal(plan.result, KILN_RESULT_DECLINED);
        assert_non_null(strstr(plan.text, "WEIGHT"));
        assert_non_null(strstr(plan.text, "q6_K"));
    }
    product_finish(&p);
}

int main(void) {
    plugin = exec_open("plugins/cpu/cpu.so");
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(cpu_q8_quantizes_as_defined),
            cmocka_unit_test(cpu_q8_matmul_gives_the_defined_bits),
            cmocka_unit_test(cpu_q8_extreme_integers_do_not_saturate),
            cmocka_unit_test(cpu_q8_threads_and_bounds_change_no_bit),
            cmocka_unit_test(cpu_q8_large_and_zero_activations_stay_finite),
            cmocka_unit_test(cpu_q8_a_row_that_is_not_finite_shows),
            cmocka_unit_test(cpu_q8_plans_or_declines_with_reasons),
            cmocka_unit_test(cpu_q8_fast_is_near_the_defined_bits),
            cmocka_unit_test(cpu_q8_fast_extreme_integers_do_not_saturate),
            cmocka_unit_test(cpu_q8_fast_threads_and_bounds_change_no_bit),
            cmocka_unit_test(cpu_q8_fast_a_row_that_is_not_finite_shows),
            cmocka_unit_test(cpu_q8_fast_is_declined_without_avx2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
