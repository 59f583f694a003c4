// mmq_gpu: checks and times the int8 matmul variants of the plugin matmul on a GPU, against the
// host's exact_q8: its blocks of activations to the bit, its outputs to 1e-5 of the magnitudes they
// are the sum of, and, where every scale is a power of two, so that f32 rounds nothing and the
// output is the integer sum, to the bit. Then the shapes of a 7B model. Run by hand.
//
//   bench_mmq_gpu MATMUL.so [check|small|time [VARIANT [TYPE [ROWS]]]] [NAME=VALUE ...]
//
// NAME=VALUE: geometry of VARIANT. Ends with 1 when a case is out of its bound, 4 when the device
// or a compilation fails. Beside each case: the same bits twice, and not a byte behind the rows in
// use.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif
#include "gpu_harness.h"

#include "../plugins/cpu/q8_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GUARD = 4096, // bytes behind OUT
    SETTINGS = 16,
    Q8_COLUMNS = 32,
    Q8_BYTES = 48, // of kernels_src/common/q8.cuh
    CEILING = 1979 // TOP/s: dense int8 of an H200, by its datasheet
};
static const char q8_format[] = "q8_32w";

static const struct kiln_plugin *plugin;
static struct gpu_value settings[SETTINGS];
static uint32_t n_settings;
static int failures, cases;

// ---- Data ---------------------------------------------------------------------------------------
static const uint32_t types[] = {KILN_DTYPE_Q4_K, KILN_DTYPE_Q6_K, KILN_DTYPE_Q5_K, KILN_DTYPE_Q4_0,
        KILN_DTYPE_Q4_1, KILN_DTYPE_Q5_0, KILN_DTYPE_Q8_0};

struct shape {
    int64_t rows, n, k;
    int64_t bound; // 0: rows; else the bound of rows that N_TOKENS says are in use
    int exact;     // every scale a power of two
    int bias;
    int residual;    // 2: OUT is RESIDUAL
    int weight_skew; // bytes from an aligned address
    float large;     // 0, or what row 0's first 32 activations are
};

struct data {
    const struct cpu_quant *quant;
    unsigned char *weight;
    float *in, *bias, *residual;
    struct cpu_q8_block *q8; // in, as the host quantizes it
};

static void put_half(unsigned char *at, float value) {
    uint16_t half = cpu_f32_to_f16(value);
    memcpy(at, &half, sizeof(half));
}

static void fill_block(uint32_t dtype, unsigned char *at, int bytes, int exact) {
    for (int i = 0; i < bytes; i++) {
        at[i] = (unsigned char)gpu_random_bits();
    }
    float d = exact ? 0x1p-8F : 0.004F * (0.5F + (float)(gpu_random_bits() & 255) / 256.0F);
    switch (dtype) {
    case KILN_DTYPE_Q4_K:
    case KILN_DTYPE_Q5_K:
        put_half(at, d / 64);
        put_half(at + 2, d / 16);
        break;
    case KILN_DTYPE_Q6_K:
        put_half(at + 208, d / 256);
        break;
    case KILN_DTYPE_Q4_1:
        put_half(at, d);
        put_half(at + 2, -8 * d);
        break;
    default:
        put_half(at, dtype == KILN_DTYPE_Q8_0 ? d / 16 : d);
        break;
    }
}

static unsigned char *make_weights(const struct cpu_quant *quant, int64_t n, int64_t k, int exact) {
    int64_t blocks = n * (k / quant->elems);
    unsigned char *at = gpu_get((size_t)(blocks * quant->bytes));
    for (int64_t i = 0; i < blocks; i++) {
        fill_block(quant->dtype, at + i * quant->bytes, quant->bytes, exact);
    }
    return at;
}

static float *random_floats(int64_t count) {
    float *at = gpu_get((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        at[i] = gpu_random_normal();
    }
    return at;
}

static void make_data(struct data *data, uint32_t dtype, const struct shape *shape) {
    data->quant = cpu_quant_find(dtype);
    data->weight = make_weights(data->quant, shape->n, shape->k, shape->exact);
    data->in = random_floats(shape->rows * shape->k);
    for (int64_t i = 0; shape->large != 0 && i < shape->k; i++) {
        data->in[i] = i < 32 ? shape->large : 0;
    }
    // Whole numbers of at most 127, one of them 127: a scale of 1. Few are not 0, so that sums stay
    // below 2^24 steps.
    for (int64_t i = 0; shape->exact && i < shape->rows * shape->k; i++) {
        int some = gpu_random_bits() % 4 == 0;
        data->in[i] = i % 32 == 5 ? 127.0F : some ? (float)((int)(gpu_random_bits() % 15) - 7) : 0;
    }
    data->q8 = gpu_get((size_t)(shape->rows * shape->k / 32) * sizeof(*data->q8));
    cpu_quantize_row_generic(data->in, data->q8, shape->rows * shape->k);
    data->bias = random_floats(shape->n);
    data->residual = random_floats(shape->rows * shape->n);
    for (int64_t i = 0; shape->exact && i < shape->n; i++) {
        data->bias[i] = (float)(i % 5);
    }
    for (int64_t i = 0; shape->exact && i < shape->rows * shape->n; i++) {
        data->residual[i] = (float)(i % 7);
    }
}

static void free_data(struct data *data) {
    free(data->weight);
    free(data->in);
    free(data->q8);
    free(data->bias);
    free(data->residual);
}

// ---- Device -------------------------------------------------------------------------------------
struct buffers {
    uint64_t in, q8, weight, weight_base, bias, residual, out, n_tokens;
    size_t out_bytes; // with the rows behind and the guard
};

static void upload(struct buffers *on, const struct data *data, const struct shape *shape) {
    int64_t bound = shape->bound != 0 ? shape->bound : shape->rows;
    size_t weight =
            (size_t)(shape->n * (shape->k / data->quant->elems)) * (size_t)data->quant->bytes;
    on->in = gpu_alloc((size_t)(bound * shape->k) * 4);
    gpu_fill(on->in, 0xff, (size_t)(bound * shape->k) * 4); // NaN behind the rows in use
    gpu_upload(on->in, data->in, (size_t)(shape->rows * shape->k) * 4);
    on->q8 = gpu_alloc((size_t)(bound * shape->k / Q8_COLUMNS) * Q8_BYTES);
    gpu_fill(on->q8, 0xff, (size_t)(bound * shape->k / Q8_COLUMNS) * Q8_BYTES);
    on->weight_base = gpu_alloc(weight + 64);
    gpu_fill(on->weight_base, 0xff, weight + 64);
    on->weight = on->weight_base + (uint64_t)shape->weight_skew;
    gpu_upload(on->weight, data->weight, weight);
    on->bias = gpu_copy(data->bias, (size_t)shape->n * 4);
    on->residual = gpu_alloc((size_t)(bound * shape->n) * 4);
    gpu_upload(on->residual, data->residual, (size_t)(shape->rows * shape->n) * 4);
    on->out_bytes = (size_t)(bound * shape->n) * 4 + GUARD;
    on->out = gpu_alloc(on->out_bytes);
    int32_t in_use = (int32_t)shape->rows;
    on->n_tokens = gpu_copy(&in_use, sizeof(in_use));
}

static void free_buffers(struct buffers *on) {
    gpu_free(on->in);
    gpu_free(on->q8);
    gpu_free(on->weight_base);
    gpu_free(on->bias);
    gpu_free(on->residual);
    gpu_free(on->out);
    gpu_free(on->n_tokens);
}

static void add_q8(struct gpu_op *op, uint32_t operand, int64_t k, int64_t rows, uint64_t at) {
    gpu_op_add(op, operand, KILN_DTYPE_BLOCK, k, rows, Q8_COLUMNS, Q8_BYTES, 0, at);
    op->tensors[op->op.n_operands - 1].format = q8_format;
}

static void quantize(const struct buffers *on, const struct shape *shape) {
    int64_t bound = shape->bound != 0 ? shape->bound : shape->rows;
    struct gpu_op op;
    const char *why = "";
    gpu_op_begin(&op, KILN_OP_QUANTIZE, KILN_PHASE_PREFILL);
    gpu_op_f32(&op, KILN_OPERAND_IN, shape->k, bound, on->in);
    add_q8(&op, KILN_OPERAND_OUT, shape->k, bound, on->q8);
    if (shape->bound != 0) {
        gpu_op_bound(&op, on->n_tokens);
    }
    struct gpu_planned *planned =
            gpu_plan_op(gpu_find_variant(plugin, q8_format), &op, NULL, 0, &why);
    if (planned == NULL) {
        gpu_die("quantize declined: %s", why);
    }
    gpu_launch(planned);
    gpu_sync();
    gpu_planned_free(planned);
}

// Blocks that are not the host's.
static int64_t count_other_blocks(
        const struct buffers *on, const struct data *data, const struct shape *shape) {
    int64_t blocks = shape->rows * shape->k / Q8_COLUMNS;
    unsigned char *got = gpu_get((size_t)(blocks * Q8_BYTES));
    gpu_download(got, on->q8, (size_t)(blocks * Q8_BYTES));
    int64_t others = 0;
    for (int64_t i = 0; i < blocks; i++) {
        const struct cpu_q8_block *want = &data->q8[i];
        const unsigned char *row = got + i / (shape->k / 32) * (shape->k / 32) * Q8_BYTES;
        int64_t block = i % (shape->k / 32);
        float pair[2];
        memcpy(pair, row + shape->k + block * 8, sizeof(pair));
        float scaled = want->scale * (float)want->sum;
        int same = memcmp(row + block * 32, want->q, 32) == 0 &&
                   ((isnan(want->scale) && isnan(pair[0])) ||
                           (pair[0] == want->scale && pair[1] == scaled));
        others += !same;
    }
    free(got);
    return others;
}

static void build_op(struct gpu_op *op, const struct buffers *on, const struct data *data,
        const struct shape *shape) {
    int64_t bound = shape->bound != 0 ? shape->bound : shape->rows;
    gpu_op_begin(op, KILN_OP_MATMUL, KILN_PHASE_PREFILL);
    add_q8(op, KILN_OPERAND_IN, shape->k, bound, on->q8);
    gpu_op_add(op, KILN_OPERAND_WEIGHT, data->quant->dtype, shape->k, shape->n, data->quant->elems,
            data->quant->bytes, 0, on->weight);
    if (shape->bias) {
        gpu_op_f32(op, KILN_OPERAND_BIAS, shape->n, 1, on->bias);
    }
    if (shape->residual) {
        gpu_op_f32(op, KILN_OPERAND_RESIDUAL, shape->n, bound,
                shape->residual == 2 ? on->out : on->residual);
    }
    gpu_op_f32(op, KILN_OPERAND_OUT, shape->n, bound, on->out);
    if (shape->bound != 0) {
        gpu_op_bound(op, on->n_tokens);
    }
}

static void run_into(const struct gpu_planned *planned, const struct buffers *on,
        const struct data *data, const struct shape *shape, unsigned char *out) {
    gpu_fill(on->out, 0xa5, on->out_bytes);
    if (shape->residual == 2) {
        gpu_upload(on->out, data->residual, (size_t)(shape->rows * shape->n) * 4);
    }
    gpu_launch(planned);
    gpu_sync();
    gpu_download(out, on->out, on->out_bytes);
}

// ---- Parity -------------------------------------------------------------------------------------
// The host's output and the sum of the magnitudes of its terms, every `step`-th output.
static double compare(
        const struct data *data, const struct shape *shape, const float *out, int64_t *worst) {
    struct cpu_q8_weight *unpacked = gpu_get(sizeof(*unpacked));
    float *want = gpu_get((size_t)shape->rows * sizeof(float));
    double *size = gpu_get((size_t)shape->rows * sizeof(double));
    int64_t row_bytes = shape->k / data->quant->elems * data->quant->bytes;
    int64_t step = 1 + shape->rows * shape->n * shape->k / 30000000;
    double most = 0;
    *worst = 0;
    for (int64_t c = 0; c < shape->n; c += c + 2 < shape->n && c + step < shape->n ? step : 1) {
        memset(want, 0, (size_t)shape->rows * sizeof(float));
        memset(size, 0, (size_t)shape->rows * sizeof(double));
        for (int64_t k0 = 0; k0 < shape->k; k0 += CPU_Q8_CHUNK) {
            int64_t left = (shape->k - k0) / 32;
            int blocks = left > CPU_Q8_BLOCKS ? CPU_Q8_BLOCKS : (int)left;
            q8_unpack(data->quant->dtype,
                    data->weight + c * row_bytes + k0 / data->quant->elems * data->quant->bytes,
                    blocks, unpacked);
            for (int64_t r = 0; r < shape->rows; r++) {
                const struct cpu_q8_block *x = data->q8 + (r * shape->k + k0) / 32;
                float chunk = cpu_q8_dot_generic(unpacked, x, blocks);
                want[r] = k0 == 0 ? chunk : want[r] + chunk;
                for (int b = 0; b < blocks; b++) {
                    double a = fabs((double)unpacked->a[b] * (double)x[b].scale);
                    int magnitude = 0;
                    for (int i = 0; i < 32; i++) {
                        magnitude += abs(
                                unpacked->w[32 * b + i] * x[b].q[i] * unpacked->s[2 * b + i / 16]);
                    }
                    size[r] += a * magnitude + fabs((double)unpacked->b[b] * (double)x[b].scale *
                                                       unpacked->m[b] * x[b].sum);
                }
            }
        }
        for (int64_t r = 0; r < shape->rows; r++) {
            float value = want[r];
            value += shape->bias ? data->bias[c] : 0;
            value += shape->residual ? data->residual[r * shape->n + c] : 0;
            float got = out[r * shape->n + c];
            double off;
            if (isnan(value) || isnan(got)) {
                off = isnan(value) && isnan(got) ? 0 : 1e30;
            } else if (shape->exact) {
                off = got == value ? 0 : 1e30;
            } else {
                off = fabs((double)got - (double)value) /
                      (1e-5 * (size[r] + fabs((double)value)) + 1e-30);
            }
            if (off > most) {
                most = off;
                *worst = r * shape->n + c;
            }
        }
    }
    free(unpacked);
    free(want);
    free(size);
    return most;
}

static void check_case(const struct kiln_variant *variant, uint32_t dtype, struct shape shape) {
    struct data data;
    struct buffers on;
    struct gpu_op op;
    const char *why = "";
    make_data(&data, dtype, &shape);
    upload(&on, &data, &shape);
    quantize(&on, &shape);
    int64_t others = count_other_blocks(&on, &data, &shape);
    build_op(&op, &on, &data, &shape);
    struct gpu_planned *planned = gpu_plan_op(variant, &op, settings, n_settings, &why);
    if (planned == NULL) {
        printf("%-12s %-5s declined: %s\n", variant->name, data.quant->name, why);
    } else {
        unsigned char *out = gpu_get(on.out_bytes);
        unsigned char *again = gpu_get(on.out_bytes);
        int64_t worst;
        run_into(planned, &on, &data, &shape, out);
        run_into(planned, &on, &data, &shape, again);
        double off = compare(&data, &shape, (const float *)(const void *)out, &worst);
        int differs = memcmp(out, again, on.out_bytes) != 0;
        int behind = 0;
        for (size_t i = (size_t)(shape.rows * shape.n) * 4; i < on.out_bytes; i++) {
            behind |= out[i] != 0xa5;
        }
        cases++;
        int failed = off > 1 || differs || behind || others > 0;
        failures += failed;
        if (failed || getenv("VERBOSE") != NULL) {
            printf("%s %s %s rows %lld n %lld k %lld bound %lld %s bias %d residual %d skew %d "
                   "large %g: %.3g of the bound at %lld, %lld blocks differ%s%s\n",
                    failed ? "FAILED" : "ok", variant->name, data.quant->name,
                    (long long)shape.rows, (long long)shape.n, (long long)shape.k,
                    (long long)shape.bound, shape.exact ? "exact" : "random", shape.bias,
                    shape.residual, shape.weight_skew, (double)shape.large, off, (long long)worst,
                    (long long)others, differs ? ", not the same twice" : "",
                    behind ? ", wrote behind" : "");
        }
        free(out);
        free(again);
        gpu_planned_free(planned);
    }
    free_buffers(&on);
    free_data(&data);
    fflush(stdout);
}

static int64_t fit_k(uint32_t dtype, int64_t k) {
    int64_t elems = cpu_quant_find(dtype)->elems;
    return k < elems ? elems : k - k % elems;
}

// small: fewer and smaller shapes.
static void check_type(const struct kiln_variant *variant, uint32_t dtype, int small) {
    static const int64_t rows[] = {1, 15, 16, 17, 63, 64, 65, 127, 129, 1000};
    static const int64_t outputs[] = {1, 3, 33, 68, 127, 1000};
    static const int64_t inputs[] = {32, 96, 256, 544, 1792, 3584};
    static const float large[] = {
            2047.0F, 2048.0F, -2048.0F, 100000.0F, 1e30F, 1e-30F, 1e-38F, INFINITY};
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        for (size_t n = 0; n < sizeof(outputs) / sizeof(outputs[0]); n++) {
            for (size_t k = 0; k < sizeof(inputs) / sizeof(inputs[0]); k++) {
                int64_t work = rows[r] * outputs[n] * inputs[k];
                if ((r + n + k) % 3 != 0 || (small && work > 3000000)) {
                    continue;
                }
                check_case(variant, dtype,
                        (struct shape){.rows = rows[r],
                                .n = outputs[n],
                                .k = fit_k(dtype, inputs[k]),
                                .exact = (int)((r + n) % 2),
                                .bias = (int)((r + k) % 2),
                                .residual = (int)((r + k) % 3)});
            }
        }
    }
    int64_t k1 = fit_k(dtype, 256);
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        check_case(variant, dtype, (struct shape){.rows = 2, .n = 40, .k = k1, .large = large[i]});
    }
    for (int64_t in_use = 1; in_use <= 129; in_use += 64) {
        check_case(variant, dtype,
                (struct shape){.rows = in_use, .n = 68, .k = 2 * k1, .bound = 140, .residual = 2});
    }
    for (int skew = 2; skew <= 16; skew += 2) {
        check_case(variant, dtype,
                (struct shape){.rows = 3, .n = 70, .k = 2 * k1, .weight_skew = skew, .exact = 1});
    }
}

// ---- Times --------------------------------------------------------------------------------------
static void time_case(
        const struct kiln_variant *variant, uint32_t dtype, int64_t rows, int64_t n, int64_t k) {
    const struct cpu_quant *quant = cpu_quant_find(dtype);
    size_t bytes = (size_t)(n * (k / quant->elems)) * (size_t)quant->bytes;
    struct shape shape = {.rows = rows, .n = n, .k = k};
    struct buffers on = {0};
    struct gpu_op op;
    const char *why = "";
    unsigned char *weight = make_weights(quant, 64, k, 0);
    float *x = random_floats(16 * k);
    on.in = gpu_alloc((size_t)(rows * k) * 4);
    for (int64_t r = 0; r < rows; r += 16) {
        gpu_upload(on.in + (uint64_t)(r * k) * 4, x,
                (size_t)((rows - r < 16 ? rows - r : 16) * k) * 4);
    }
    on.q8 = gpu_alloc((size_t)(rows * k / Q8_COLUMNS) * Q8_BYTES);
    on.out = gpu_alloc((size_t)(rows * n) * 4);
    on.weight = gpu_alloc(bytes);
    size_t piece = bytes / (size_t)n * 64;
    for (size_t at = 0; at < bytes; at += piece) {
        gpu_upload(on.weight + at, weight, bytes - at < piece ? bytes - at : piece);
    }
    quantize(&on, &shape);
    struct data data = {.quant = quant};
    build_op(&op, &on, &data, &shape);
    struct gpu_planned *planned = gpu_plan_op(variant, &op, settings, n_settings, &why);
    if (planned == NULL) {
        printf("%-10s %-5s declined: %s\n", variant->name, quant->name, why);
    } else {
        double best;
        double seconds = gpu_time(&planned, 1, rows > 64 ? 10 : 40, &best);
        double tops = 2.0 * (double)rows * (double)n * (double)k / seconds / 1e12;
        printf("%-10s %-5s m %5lld k %6lld n %6lld %9.2f us (best %9.2f) %7.1f TOP/s %5.1f %% of "
               "%d\n",
                variant->name, quant->name, (long long)rows, (long long)k, (long long)n,
                seconds * 1e6, best * 1e6, tops, tops * 100 / CEILING, CEILING);
        gpu_planned_free(planned);
    }
    fflush(stdout);
    gpu_free(on.in);
    gpu_free(on.q8);
    gpu_free(on.out);
    gpu_free(on.weight);
    free(weight);
    free(x);
}

static void time_type(const struct kiln_variant *variant, uint32_t dtype, int64_t only_rows) {
    static const int64_t shapes[][2] = {// k, n
            {3584, 3584}, {3584, 512}, {3584, 18944}, {18944, 3584}};
    static const int64_t all[] = {16, 512, 3325};
    const int64_t *rows = only_rows == 0 ? all : &only_rows;
    size_t n_rows = only_rows == 0 ? sizeof(all) / sizeof(all[0]) : 1;
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            time_case(variant, dtype, rows[r], shapes[i][1], shapes[i][0]);
        }
    }
}

// Variants of one name share out the types.
static const struct kiln_variant *find_variant(const char *name, uint32_t dtype) {
    char slot[64];
    snprintf(slot, sizeof(slot), "matmul.%s.prefill", cpu_quant_find(dtype)->name);
    for (uint32_t i = 0; i < plugin->n_variants; i++) {
        const struct kiln_variant *variant = plugin->variants[i];
        for (uint32_t k = 0; strcmp(variant->name, name) == 0 && k < variant->n_slots; k++) {
            if (strcmp(variant->slots[k], slot) == 0) {
                return variant;
            }
        }
    }
    gpu_die("the plugin has no variant %s for %s", name, slot);
}

static int wanted(const char *given, const char *name) {
    return given == NULL || strcmp(given, "all") == 0 || strcmp(given, name) == 0;
}

int main(int argc, char **argv) {
    const char *words[4] = {"check", NULL, NULL, NULL}; // what, variant, type, rows
    static const char *const names[] = {"mmq", "mmq_async", "mmq_expand"};
    int n_words = 0;
    if (argc < 2) {
        fprintf(stderr,
                "usage: %s MATMUL.so [check|small|time [VARIANT [TYPE [ROWS]]]] [NAME=VALUE ...]\n",
                argv[0]);
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals != NULL && n_settings < SETTINGS) {
            *equals = '\0';
            settings[n_settings++] =
                    (struct gpu_value){.name = argv[i], .value = strtoll(equals + 1, NULL, 10)};
        } else if (n_words < 4) {
            words[n_words++] = argv[i];
        }
    }
    const struct kiln_device *device = gpu_open();
    gpu_print_resources(getenv("RESOURCES") != NULL);
    plugin = gpu_load_plugin(argv[1]);
    printf("%s, %s, %d SMs\n", device->name, device->target, device->sm_count);
    int timed = strcmp(words[0], "time") == 0;
    for (size_t v = 0; v < sizeof(names) / sizeof(names[0]); v++) {
        for (size_t t = 0; wanted(words[1], names[v]) && t < sizeof(types) / sizeof(types[0]);
                t++) {
            if (!wanted(words[2], cpu_quant_find(types[t])->name)) {
                continue;
            }
            const struct kiln_variant *variant = find_variant(names[v], types[t]);
            if (timed) {
                time_type(variant, types[t], words[3] != NULL ? strtoll(words[3], NULL, 10) : 0);
            } else {
                check_type(variant, types[t], strcmp(words[0], "small") == 0);
            }
        }
    }
    printf("%d cases checked, %d failed\n", cases, failures);
    return failures != 0;
}
